//! Sets of the keys of objects, for a quick test whether a key can be there at all.

/// Set of keys as a mask. Each key sets one of 64 bits, and different keys may share a bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeySet(u64);

impl KeySet {
    /// Set of no key.
    pub(crate) const NONE: Self = Self(0);
    /// Set of all keys.
    pub(crate) const ALL: Self = Self(u64::MAX);

    /// Returns the set of this key.
    pub(crate) const fn of(key: &str) -> Self {
        let bytes = key.as_bytes();
        let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
            return Self(1);
        };
        // With these factors hardly any key that requests have shares its bit with one that is looked for.
        Self(1 << ((bytes.len() * 7 + *first as usize + *last as usize * 11) % 64))
    }

    /// Returns the set with the keys of another one added.
    #[must_use]
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns false if the sets have no key in common; true if they may have one.
    pub(crate) const fn may_share(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
