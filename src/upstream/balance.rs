//! Balance between upstreams that are good: by conversation, or by load.
//!
//! Takes: upstreams and a number. Gives: one of them. Never: checks their health.

use super::Upstream;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Factor by which an upstream may exceed its share of all requests before a conversation moves to another one.
const MAX_OVER_SHARE: f64 = 1.25;

/// Returns a number from 0 to 1 that is always the same for the same seed and upstream.
pub(super) fn draw(seed: u64, upstream: &Upstream) -> f64 {
    let mut hasher = DefaultHasher::new();
    (seed, &upstream.config.name).hash(&mut hasher);
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let number = (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64;
    number
}

/// Returns [`draw`] scaled by weight: over many seeds, an upstream has the highest value in proportion to its
/// weight.
fn weighted(seed: u64, upstream: &Upstream) -> f64 {
    draw(seed, upstream).max(f64::MIN_POSITIVE).ln() / f64::from(upstream.config.weight)
}

/// Requests that a good upstream may have under way before others take what it is preferred for.
struct Room {
    /// Requests under way at all good upstreams, this one included, for each unit of weight.
    mean: f64,
}

impl Room {
    fn of(good: &[&Arc<Upstream>]) -> Self {
        let requests = good.iter().map(|upstream| upstream.load()).sum::<f64>() + 1.0;
        let weights = good
            .iter()
            .map(|upstream| f64::from(upstream.config.weight))
            .sum::<f64>();
        Self {
            mean: requests / weights,
        }
    }

    fn has(&self, upstream: &Upstream) -> bool {
        let most = (MAX_OVER_SHARE * self.mean * f64::from(upstream.config.weight)).ceil();
        upstream.load() + 1.0 <= most
    }
}

/// Returns the upstream of the conversation: the first in its own order that has not many more requests than its
/// share (rendezvous hashing with bounded loads).
pub(super) fn preferred<'u>(
    good: &[&'u Arc<Upstream>],
    conversation: Option<u64>,
) -> Option<&'u Arc<Upstream>> {
    let together = conversation?;
    let room = Room::of(good);
    let drawn = |upstream: &Upstream| weighted(together, upstream);
    let fit = good.iter().copied().filter(|upstream| room.has(upstream));
    fit.max_by(|a, b| drawn(a).total_cmp(&drawn(b)))
}

/// Returns the first of these upstreams that is good and has not many more requests than its share.
pub(super) fn with_room<'u>(
    good: &[&'u Arc<Upstream>],
    these: &[&'u Arc<Upstream>],
) -> Option<&'u Arc<Upstream>> {
    if these.is_empty() {
        return None;
    }
    let room = Room::of(good);
    let is_good = |upstream: &Upstream| good.iter().any(|one| one.id == upstream.id);
    these
        .iter()
        .copied()
        .find(|upstream| is_good(upstream) && room.has(upstream))
}

/// Returns the upstream with the fewest requests for its weight; chance decides among equals.
pub(super) fn least_busy<'u>(good: &[&'u Arc<Upstream>], chance: u64) -> Option<&'u Arc<Upstream>> {
    // The load of each is read once: other threads change it meanwhile, and one of the values must be the minimum.
    let load = |upstream: &Upstream| upstream.load() / f64::from(upstream.config.weight);
    let loads: Vec<_> = good
        .iter()
        .map(|upstream| (load(upstream), *upstream))
        .collect();
    let least = loads.iter().map(|(load, _)| *load).min_by(f64::total_cmp)?;
    let equals = loads
        .into_iter()
        .filter(|(load, _)| *load <= least)
        .map(|(_, upstream)| upstream);
    equals.max_by(|a, b| weighted(chance, a).total_cmp(&weighted(chance, b)))
}
