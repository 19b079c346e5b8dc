//! Candidates of a request in a large pool: some neighbours on a ring of all upstreams that serve its model, so that a
//! choice costs the same for forty upstreams as for ten thousand.
//!
//! Takes: names of upstreams. Gives: windows of the ring. Remembers: the rings of models, as long as no list changes.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Upstreams of which one is chosen. Smaller pools are looked at whole.
pub(super) const WINDOW: usize = 32;
/// Upper limit for the models whose rings are kept. Clients may name any.
const MODELS: usize = 256;

/// Upstreams that serve a model, in an order that depends on their names alone.
#[derive(Debug)]
pub(super) struct HashRing(Box<[(u64, usize)]>);

impl HashRing {
    /// Returns the ring of upstreams, each given as name and place.
    pub(super) fn of<'n>(upstreams: impl Iterator<Item = (&'n str, usize)>) -> Self {
        let mut all: Box<[_]> = upstreams
            .map(|(name, place)| (point(name), place))
            .collect();
        all.sort_unstable();
        Self(all)
    }

    /// Returns true if the upstream of this name and place is on the ring.
    pub(super) fn has(&self, name: &str, place: usize) -> bool {
        self.0.binary_search(&(point(name), place)).is_ok()
    }

    /// Returns true if a window is smaller than the ring.
    pub(super) fn is_large(&self) -> bool {
        self.0.len() > WINDOW
    }

    /// Returns the places of the window after the point of a conversation. It changes little when upstreams come and
    /// go (consistent hashing).
    pub(super) fn after(&self, conversation: u64) -> impl Iterator<Item = usize> {
        self.window(self.0.partition_point(|(point, _)| *point < conversation))
    }

    /// Returns the places of a window that chance decides on. Each upstream is in as many as any other.
    pub(super) fn anywhere(&self, chance: u64) -> impl Iterator<Item = usize> {
        self.window(usize::try_from(chance % self.0.len().max(1) as u64).unwrap_or(0))
    }

    fn window(&self, start: usize) -> impl Iterator<Item = usize> {
        self.0
            .iter()
            .cycle()
            .skip(start)
            .take(WINDOW.min(self.0.len()))
            .map(|(_, place)| *place)
    }
}

/// Returns the point of an upstream on the ring.
fn point(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Rings by model, and the names that any engine lists; out of date when a list changes.
#[derive(Debug, Default)]
pub(super) struct Rings(RwLock<Derived>);

#[derive(Debug, Default)]
struct Derived {
    /// Number of the lists that these were derived from.
    lists: u64,
    rings: HashMap<Box<str>, Arc<HashRing>>,
    names: Option<Arc<[Arc<str>]>>,
}

impl Rings {
    /// Returns the ring of a model, which `derive` makes if it is not known for the lists of this number.
    pub(super) fn of_model(
        &self,
        lists: u64,
        model: &str,
        derive: impl FnOnce() -> HashRing,
    ) -> Arc<HashRing> {
        let known = self.0.read();
        if let Some(ring) = known.rings.get(model).filter(|_| known.lists == lists) {
            return Arc::clone(ring);
        }
        drop(known);
        let ring = Arc::new(derive());
        let mut known = self.at(lists);
        if known.rings.len() >= MODELS {
            known.rings.clear();
        }
        known.rings.insert(model.into(), Arc::clone(&ring));
        ring
    }

    /// Returns the names that any engine lists, each once, which `derive` gives if they are not known for the lists of
    /// this number.
    pub(super) fn names(
        &self,
        lists: u64,
        derive: impl FnOnce() -> Vec<Arc<str>>,
    ) -> Arc<[Arc<str>]> {
        let known = self.0.read();
        if let Some(names) = known.names.as_ref().filter(|_| known.lists == lists) {
            return Arc::clone(names);
        }
        drop(known);
        let mut names = derive();
        names.sort_unstable();
        names.dedup();
        let names: Arc<[_]> = names.into();
        self.at(lists).names = Some(Arc::clone(&names));
        names
    }

    /// Returns what is derived from the lists of this number, without what was derived from others.
    fn at(&self, lists: u64) -> parking_lot::RwLockWriteGuard<'_, Derived> {
        let mut known = self.0.write();
        if known.lists != lists {
            *known = Derived {
                lists,
                ..Derived::default()
            };
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn ring(names: &[String]) -> HashRing {
        HashRing::of(
            names
                .iter()
                .enumerate()
                .map(|(place, name)| (name.as_str(), place)),
        )
    }

    #[test]
    fn windows_have_a_size_and_no_upstream_twice() {
        let names: Vec<_> = (0..100).map(|n| format!("e{n}")).collect();
        for (size, expected) in [(1, 1), (31, 31), (32, 32), (33, 32), (100, 32)] {
            let ring = ring(&names[..size]);
            assert_eq!(ring.is_large(), size > WINDOW);
            for seed in [0, 1, u64::MAX / 2, u64::MAX] {
                for window in [
                    ring.after(seed).collect::<BTreeSet<_>>(),
                    ring.anywhere(seed).collect(),
                ] {
                    assert_eq!(window.len(), expected, "{size}");
                }
            }
        }
    }

    #[test]
    fn chance_gives_each_upstream_as_many_windows() {
        let names: Vec<_> = (0..100).map(|n| format!("e{n}")).collect();
        let mut counts = [0; 100];
        for chance in 0..100 {
            ring(&names)
                .anywhere(chance)
                .for_each(|place| counts[place] += 1);
        }
        assert_eq!(counts, [WINDOW; 100]);
    }

    #[test]
    fn another_upstream_changes_few_windows() {
        let names: Vec<_> = (0..1001).map(|n| format!("e{n}")).collect();
        let (before, after) = (ring(&names[..1000]), ring(&names));
        let changed = (0..1000_u64).filter(|n| {
            let conversation = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            before.after(conversation).ne(after.after(conversation))
        });
        // 32 of 1,001 gaps on average.
        assert!(changed.count() < 100);
    }

    #[test]
    fn rings_are_kept_until_a_list_changes_and_are_bounded() {
        let rings = Rings::default();
        let made = std::cell::Cell::new(0);
        let get = |lists, model: &str| {
            rings.of_model(lists, model, || {
                made.set(made.get() + 1);
                ring(&[])
            });
            made.get()
        };
        assert_eq!(
            [
                get(0, "a"),
                get(0, "a"),
                get(0, "b"),
                get(1, "a"),
                get(1, "a"),
                get(1, "b")
            ],
            [1, 1, 2, 3, 3, 4]
        );
        for n in 0..2 * MODELS {
            get(1, &n.to_string());
        }
        assert!(rings.0.read().rings.len() <= MODELS);
        let names = |lists, list: &[&str]| {
            rings.names(lists, || list.iter().map(|name| (*name).into()).collect())
        };
        assert_eq!(*names(2, &["b", "a", "b"]), ["a".into(), "b".into()]);
        assert_eq!(*names(2, &[]), ["a".into(), "b".into()]);
        assert!(names(3, &[]).is_empty() && rings.0.read().rings.is_empty());
    }
}
