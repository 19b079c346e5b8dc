//! Reasoning efforts: the words for them, and sets of those that a model takes.
//!
//! Takes: an effort that a client wants, or a refusal that names others. Gives: the nearest one of a set. Never: takes
//! `none` for a little.

use std::fmt;

/// Reasoning efforts, from none to the highest.
pub const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Places of the efforts: the distance between two of them decides which is the nearest. `high` and `xhigh` are nearer to
/// each other than to what is next to them.
const PLACES: [u8; 7] = [0, 1, 2, 4, 6, 7, 9];

/// Words after which a refusal lists what is accepted.
const ACCEPTED: &[&str] = &[
    "supported",
    "supports",
    "must",
    "should",
    "one",
    "valid",
    "allowed",
    "expected",
    "use",
];
/// Words with which such a list ends.
const REFUSED: &[&str] = &["got", "received", "but", "not", "instead", "input"];

/// Set of efforts, one bit for each of [`EFFORTS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Efforts(u8);

impl Efforts {
    /// Returns the set without an effort.
    pub const NONE: Self = Self(0);

    /// Returns the set of these words; `None` if one of them is no effort.
    pub fn of<'w>(words: impl IntoIterator<Item = &'w str>) -> Option<Self> {
        let bit = |word: &str| Some(1 << EFFORTS.iter().position(|effort| *effort == word)?);
        words
            .into_iter()
            .try_fold(0, |bits, word| Some(bits | bit(word)?))
            .map(Self)
    }

    /// Returns the efforts that a refusal says are accepted, as in "Supported types are xhigh (default), medium, and
    /// low."; none if it does not list them.
    pub fn accepted_by(refusal: &str) -> Self {
        let lower = refusal.to_ascii_lowercase();
        let words = lower
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty());
        let listed = words
            .skip_while(|word| !ACCEPTED.contains(word))
            .take_while(|word| !REFUSED.contains(word));
        Self::of(listed.filter(|word| EFFORTS.contains(word))).unwrap_or_default()
    }

    /// Returns true if the set has no effort.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Returns the effort of the set that is the nearest to `requested`, of two the higher; `None` if that is no
    /// effort, or if only `none` is left for one that is more.
    pub fn nearest(self, requested: &str) -> Option<&'static str> {
        let all = || EFFORTS.iter().zip(PLACES);
        let (_, at) = all().find(|(effort, _)| **effort == requested)?;
        let fits = |effort: &str| Self::of([effort]).is_some_and(|own| self.0 & own.0 != 0);
        let some = all()
            .rev()
            .filter(|(effort, place)| fits(effort) && (*place > 0 || at == 0));
        some.min_by_key(|(_, place)| place.abs_diff(at))
            .map(|(effort, _)| *effort)
    }
}

impl fmt::Display for Efforts {
    /// Writes the efforts, separated by colons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = EFFORTS
            .iter()
            .filter(|word| Self::of([**word]).is_some_and(|own| self.0 & own.0 != 0))
            .copied()
            .collect();
        f.write_str(&words.join(":"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_list_what_is_accepted() {
        for (refusal, accepted) in [
            (
                "Unexpected reasoning effort high. Supported types are xhigh (default), medium, and low.",
                "low:medium:xhigh",
            ),
            (
                "Input should be 'low', 'medium' or 'high'; input_value='max'",
                "low:medium:high",
            ),
            (
                "reasoning_effort must be one of low, medium, high, got none",
                "low:medium:high",
            ),
            (
                "Unsupported reasoning effort 'high': use low or max",
                "low:max",
            ),
            ("Reasoning effort none is not supported.", ""),
            ("Unknown reasoning_effort none", ""),
        ] {
            assert_eq!(
                Efforts::accepted_by(refusal).to_string(),
                accepted,
                "{refusal}"
            );
        }
    }

    #[test]
    fn the_nearest_is_never_none_where_some_is_wanted() {
        let of =
            |words: &str| Efforts::of(words.split(':').filter(|word| !word.is_empty())).unwrap();
        for (set, requested, nearest) in [
            ("low:medium:xhigh", "high", Some("xhigh")),
            ("low:medium:high", "minimal", Some("low")),
            ("high:max", "xhigh", Some("high")),
            ("low:high", "medium", Some("high")),
            ("none:high", "low", Some("high")),
            ("none:high", "none", Some("none")),
            ("low:high", "none", Some("low")),
            ("none", "low", None),
            ("", "low", None),
            ("low", "odd", None),
        ] {
            assert_eq!(of(set).nearest(requested), nearest, "{set} {requested}");
        }
        assert_eq!(Efforts::of(["low", "odd"]), None);
    }
}
