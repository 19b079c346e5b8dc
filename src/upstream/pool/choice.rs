//! Choice among the upstreams of a pool.
//!
//! Takes: [`SelectionCriteria`], or the name of a model. Gives: a [`ChosenUpstream`], or the upstream whose form a
//! request is read for. Never: waits.

use super::{ChosenUpstream, NoUpstream, Pool, ReadFor, SelectionCriteria};
use crate::upstream::balance::{draw, least_busy, preferred, with_room};
use crate::upstream::circuit_breaker::Availability;
use crate::upstream::health::Standing;
use crate::upstream::ring::{HashRing, WINDOW};
use crate::upstream::targets::ModelTarget;
use crate::upstream::{Upstream, UpstreamId};
use std::sync::Arc;
use tokio::time::Instant;

impl Pool {
    /// Chooses the upstream for a request, and counts the request there until the result is dropped.
    ///
    /// # Errors
    /// Fails if no upstream qualifies, or if those that do are down or overloaded.
    pub fn choose(&self, criteria: &SelectionCriteria<'_>) -> Result<ChosenUpstream, NoUpstream> {
        if let [only] = self.upstreams.as_slice() {
            return self.choose_single(only, criteria);
        }
        self.choose_at(Instant::now(), criteria)
    }

    /// Chooses the upstream for a request at this time.
    pub(in crate::upstream) fn choose_at(
        &self,
        now: Instant,
        criteria: &SelectionCriteria<'_>,
    ) -> Result<ChosenUpstream, NoUpstream> {
        let ring = self
            .ring(criteria.model, criteria.only)
            .filter(|ring| ring.is_large());
        if let Some(found) = ring.and_then(|ring| self.choose_in_window(&ring, criteria, now)) {
            return Ok(found);
        }
        self.choose_of(
            &self.upstreams_for(criteria.model, criteria.only),
            criteria,
            now,
        )
    }

    /// Returns the ring of the upstreams that may serve a model; `None` in a small pool, which has no use for it.
    fn ring(&self, model: &str, only: Option<usize>) -> Option<Arc<HashRing>> {
        if self.upstreams.len() <= WINDOW {
            return None;
        }
        if let Some(entry) = only {
            return self.entry_rings.get(entry).cloned();
        }
        Some(self.rings.of_model(self.state.lists(), model, || {
            let serving = self.serving(model).into_iter();
            HashRing::of(
                serving.map(|upstream| (upstream.config.name.as_str(), self.index_of(upstream))),
            )
        }))
    }

    /// Chooses among the candidates of a large pool; `None` if none of them can take the request now.
    fn choose_in_window(
        &self,
        ring: &HashRing,
        criteria: &SelectionCriteria<'_>,
        now: Instant,
    ) -> Option<ChosenUpstream> {
        let upstream = |place: usize| self.upstreams.get(place);
        let window: Vec<_> = match criteria.affinity_hash {
            Some(conversation) => ring.after(conversation).filter_map(upstream).collect(),
            None => ring
                .anywhere(criteria.chance)
                .filter_map(upstream)
                .collect(),
        };
        // Upstreams that are ejected, or whose probes are late, are a last resort of the whole pool.
        let is_good = |upstream: &&Arc<Upstream>| {
            upstream.standing() == Standing::Up
                && !matches!(upstream.availability(now), Availability::Ejected { .. })
        };
        // The beginning of a prompt is known also to engines of other models that the name stands for.
        let serves = |upstream: &Upstream, place: usize| ring.has(&upstream.config.name, place);
        let holders = self.holders(criteria, serves).into_iter();
        let new = holders.filter(|one| !window.iter().any(|known| known.id == one.id));
        let window: Vec<_> = new.chain(window.iter().copied()).filter(is_good).collect();
        self.choose_of(&window, criteria, now).ok()
    }

    /// Returns the upstreams that have got a beginning of the prompt lately and pass `may`, which gets each with its place:
    /// those of the longest one first.
    fn holders(
        &self,
        criteria: &SelectionCriteria<'_>,
        may: impl Fn(&Upstream, usize) -> bool,
    ) -> Vec<&Arc<Upstream>> {
        let Some(prefixes) = self
            .prefixes
            .as_ref()
            .filter(|_| !criteria.prompt.is_empty())
        else {
            return Vec::new();
        };
        let upstream = |id: UpstreamId| {
            let place = *self.places.get(&id)?;
            self.upstreams
                .get(place)
                .filter(|upstream| may(upstream, place))
        };
        prefixes.holders(criteria.prompt, upstream)
    }

    /// Chooses among these upstreams.
    fn choose_of(
        &self,
        serving: &[&Arc<Upstream>],
        criteria: &SelectionCriteria<'_>,
        now: Instant,
    ) -> Result<ChosenUpstream, NoUpstream> {
        if serving.is_empty() {
            return Err(NoUpstream::Unknown);
        }
        let is_left = |upstream: &&&Arc<Upstream>| {
            upstream.config.weight > 0
                && !criteria.visited.contains(&upstream.id)
                && self.takes_form(upstream, criteria)
        };
        let left: Vec<_> = serving.iter().filter(is_left).copied().collect();
        if left.is_empty() {
            return Err(if criteria.visited.is_empty() {
                NoUpstream::NoneAvailable
            } else {
                NoUpstream::Exhausted
            });
        }
        let of = |standing| {
            left.iter()
                .filter(|upstream| upstream.standing() == standing)
                .copied()
                .collect()
        };
        let mut up: Vec<_> = of(Standing::Up);
        if up.is_empty() && criteria.may_use_last_resort {
            up = of(Standing::Late);
        }
        if up.is_empty() {
            return Err(NoUpstream::NoneAvailable);
        }
        // An upstream that does not match its configuration is chosen only if no other one is available.
        let right: Vec<_> = up
            .iter()
            .filter(|upstream| !upstream.is_mismatched())
            .copied()
            .collect();
        self.choose_among(if right.is_empty() { &up } else { &right }, criteria, now)
    }

    /// Returns an upstream that serves the model, whose options are used to read the request, before the upstream is
    /// chosen. If there is none, returns the first upstream, and false.
    pub fn upstream_to_read_for(&self, model: &str, chance: u64) -> (Arc<Upstream>, bool) {
        // A single upstream itself refuses models that it does not have.
        if self.is_single() {
            return (Arc::clone(&self.first), true);
        }
        let now = Instant::now();
        let is_well = |upstream: &Upstream| is_well(upstream, now);
        let mut serving = self.candidates(model, None, chance);
        if !serving.iter().any(|upstream| is_well(upstream)) {
            serving = self.serving(model);
        }
        let mut up: Vec<_> = serving
            .iter()
            .filter(|upstream| !upstream.is_down())
            .collect();
        // Only upstreams that take the same form can answer, so the form is that of one that is well.
        if up.iter().any(|upstream| is_well(upstream)) {
            up.retain(|upstream| is_well(upstream));
        }
        let at = |all: usize| usize::try_from(chance).unwrap_or(0) % all.max(1);
        let found = up
            .get(at(up.len()))
            .map(|upstream| **upstream)
            .or_else(|| serving.first().copied());
        (Arc::clone(found.unwrap_or(&self.first)), found.is_some())
    }

    /// Returns an upstream and one of the models that the client's name stands for, for whose form the request is
    /// read; false if nothing serves any of them.
    pub fn read_for(&self, model: &str, chance: u64) -> (ReadFor, bool) {
        let targets = self.targets(model, chance);
        let first = targets
            .first()
            .map_or_else(|| model.into(), |target| Arc::clone(&target.model));
        if self.is_single() || targets.is_empty() {
            let (upstream, is_known) = self.upstream_to_read_for(model, chance);
            return (
                ReadFor {
                    upstream,
                    model: first,
                },
                is_known,
            );
        }
        let now = Instant::now();
        let is_well = |upstream: &Upstream| is_well(upstream, now);
        let found = |is_whole: bool, is_fit: &dyn Fn(&Upstream) -> bool| {
            targets.iter().find_map(|target| {
                let mut fit = match is_whole {
                    true => self.upstreams_for(&target.model, target.upstream),
                    false => self.candidates(&target.model, target.upstream, chance),
                };
                fit.retain(|upstream| is_fit(upstream));
                let at = usize::try_from(chance).unwrap_or(0) % fit.len().max(1);
                Some(ReadFor {
                    upstream: Arc::clone(fit.get(at)?),
                    model: Arc::clone(&target.model),
                })
            })
        };
        let anywhere = || {
            found(true, &is_well)
                .or_else(|| found(true, &is_up))
                .or_else(|| found(true, &|_| true))
        };
        match found(false, &is_well).or_else(anywhere) {
            Some(found) => (found, true),
            None => (
                ReadFor {
                    upstream: Arc::clone(&self.first),
                    model: first,
                },
                false,
            ),
        }
    }

    /// Returns the model for which a request with this seed is sent at first: of those that the name stands for, the first
    /// one with an upstream that takes requests, else with any; the name itself if it stands for no others.
    pub fn first_target(&self, model: &str, seed: u64) -> ModelTarget {
        let (targets, now) = (self.targets(model, seed), Instant::now());
        let found = |is_meant: &dyn Fn(&Upstream) -> bool| {
            let is_found = |target: &&ModelTarget| {
                self.target_upstreams(target)
                    .iter()
                    .any(|upstream| is_meant(upstream))
            };
            targets.iter().find(is_found)
        };
        let first = found(&|upstream| takes_requests(upstream, now)).or_else(|| found(&|_| true));
        first
            .or_else(|| targets.first())
            .cloned()
            .unwrap_or_else(|| ModelTarget {
                model: model.into(),
                upstream: None,
            })
    }

    /// Returns true if an upstream of the target takes requests, has fewer than `most` requests under way, and reports
    /// none that waits. True as well for a model that no upstream serves, since its request fails at once.
    pub fn has_spare(&self, target: &ModelTarget, most: usize) -> bool {
        let (upstreams, now) = (self.target_upstreams(target), Instant::now());
        let most = f64::from(i32::try_from(most).unwrap_or(i32::MAX));
        let is_spare = |upstream: &&Arc<Upstream>| {
            let waits = upstream.figures.busy().is_some_and(|busy| busy.waiting > 0);
            takes_requests(upstream, now) && !waits && upstream.load() < most
        };
        upstreams.is_empty() || upstreams.iter().any(is_spare)
    }

    /// Returns the upstreams that may serve a target.
    fn target_upstreams(&self, target: &ModelTarget) -> Vec<&Arc<Upstream>> {
        if self.is_single() {
            vec![&self.first]
        } else {
            self.upstreams_for(&target.model, target.upstream)
        }
    }

    /// Returns the same upstream again, with one more request counted on it.
    pub fn same_upstream(upstream: &Arc<Upstream>) -> ChosenUpstream {
        ChosenUpstream::new(upstream, false)
    }

    fn choose_single(
        &self,
        only: &Arc<Upstream>,
        criteria: &SelectionCriteria<'_>,
    ) -> Result<ChosenUpstream, NoUpstream> {
        let can_take = !only.is_down() && self.takes_form(only, criteria);
        match (criteria.visited.is_empty(), !can_take) {
            (false, _) => Err(NoUpstream::Exhausted),
            (true, true) => Err(NoUpstream::NoneAvailable),
            (true, false) => Ok(ChosenUpstream::new(only, false)),
        }
    }

    /// Returns the upstreams of the only entry that may serve a model, else all that serve it.
    fn upstreams_for(&self, model: &str, only: Option<usize>) -> Vec<&Arc<Upstream>> {
        match only {
            Some(entry) => {
                let places = self.entries.get(entry).cloned().unwrap_or_default();
                self.upstreams.get(places).into_iter().flatten().collect()
            }
            None => self.serving(model),
        }
    }

    /// Returns the upstreams that may serve a model; of a large pool those of a window, on which chance decides.
    fn candidates(&self, model: &str, only: Option<usize>, chance: u64) -> Vec<&Arc<Upstream>> {
        match self.ring(model, only).filter(|ring| ring.is_large()) {
            Some(ring) => ring
                .anywhere(chance)
                .filter_map(|place| self.upstreams.get(place))
                .collect(),
            None => self.upstreams_for(model, only),
        }
    }

    /// Returns the upstreams that serve a model: those configured for it, else those that list it, else those whose
    /// models are unknown; if no list is unknown, the model is not configured and all lists are equal, all upstreams.
    /// Upstreams of weight 0 that list it give way to those whose models are unknown, so that a reload can move traffic
    /// to an engine that has not been probed yet.
    pub(super) fn serving(&self, model: &str) -> Vec<&Arc<Upstream>> {
        let known = self.model(model).map(|(_, known)| known);
        let name = known.map_or(model, |known| known.name.as_str());
        if let Some(known) = known.filter(|known| !known.upstreams.is_empty()) {
            return known
                .upstreams
                .iter()
                .filter_map(|place| self.upstreams.get(*place))
                .collect();
        }
        let all = || self.upstreams.iter();
        let sure: Vec<_> = all()
            .filter(|upstream| upstream.serves(name) == Some(true))
            .collect();
        let silent: Vec<_> = all()
            .filter(|upstream| upstream.serves(name).is_none())
            .collect();
        let may_serve = sure.iter().any(|upstream| upstream.config.weight > 0);
        if may_serve || !sure.is_empty() && silent.is_empty() {
            return sure;
        }
        // Engines with identical lists may know more names than they list.
        let same = || {
            all()
                .skip(1)
                .zip(all())
                .all(|(one, other)| one.lists_the_same_as(other))
        };
        match silent.is_empty() && known.is_none() && same() {
            true => all().collect(),
            false => silent,
        }
    }

    /// Returns true if the request can be sent to this upstream, for this model, as it was read.
    fn takes_form(&self, other: &Upstream, criteria: &SelectionCriteria<'_>) -> bool {
        let Some(ReadFor {
            upstream: one,
            model,
        }) = criteria.compatible_with
        else {
            return true;
        };
        let (a, b) = (
            self.options(one, model, None),
            self.options(other, criteria.model, None),
        );
        one.config.responses == other.config.responses
            && one.config.messages == other.config.messages
            && a.unsupported_tools == b.unsupported_tools
            && a.unsupported_content == b.unsupported_content
            && a.billing_block == b.billing_block
            && a.messages_thinking == b.messages_thinking
            && a.request_unknown == b.request_unknown
    }

    fn choose_among(
        &self,
        all: &[&Arc<Upstream>],
        criteria: &SelectionCriteria<'_>,
        now: Instant,
    ) -> Result<ChosenUpstream, NoUpstream> {
        let standings: Vec<_> = all
            .iter()
            .map(|upstream| (*upstream, upstream.availability(now)))
            .collect();
        if let Some((upstream, _)) = standings
            .iter()
            .find(|(_, availability)| *availability == Availability::Trial)
        {
            return Ok(ChosenUpstream::new(upstream, true));
        }
        let good = |ramped: bool| -> Vec<&Arc<Upstream>> {
            // Not the number by which equals are told apart: there, the lowest numbers always lose.
            let part = |upstream: &Upstream| draw(!criteria.chance, upstream);
            let is_good =
                |(upstream, availability): &(&'_ Arc<Upstream>, Availability)| match availability {
                    Availability::Good(share) => !ramped || part(upstream) < *share,
                    _ => false,
                };
            standings
                .iter()
                .filter(|one| is_good(one))
                .map(|(upstream, _)| *upstream)
                .collect()
        };
        // An upstream on its ramp takes part in a share of the choices, or in all if no other one is good.
        let good = Some(good(true))
            .filter(|some| !some.is_empty())
            .unwrap_or_else(|| good(false));
        let holder = with_room(&good, &self.holders(criteria, |_, _| true));
        if let Some(upstream) = holder {
            upstream.figures.prefix_hits.add(1);
        }
        let chosen = holder
            .or_else(|| preferred(&good, criteria.affinity_hash))
            .or_else(|| least_busy(&good, criteria.chance));
        if let Some(upstream) = chosen {
            if let Some(prefixes) = &self.prefixes {
                prefixes.note(criteria.prompt, upstream.id, now);
            }
            return Ok(ChosenUpstream::new(upstream, false));
        }
        let pushed = standings
            .iter()
            .filter_map(|(_, availability)| match availability {
                Availability::Pushed { status, left } => Some((*left, *status)),
                _ => None,
            });
        // Overloaded upstreams get no request, since they asked for a pause. Ejected ones are the last resort, the
        // one with the shortest time left first: only their answers speak against them, not their probes.
        if let Some((wait, status)) = pushed.min() {
            return Err(NoUpstream::Overloaded { status, wait });
        }
        if !criteria.may_use_last_resort {
            return Err(NoUpstream::NoneAvailable);
        }
        let ejected = standings
            .iter()
            .filter_map(|(upstream, availability)| match availability {
                Availability::Ejected { left } => Some((*left, *upstream)),
                _ => None,
            });
        let least_bad = ejected
            .min_by_key(|(left, _)| *left)
            .ok_or(NoUpstream::NoneAvailable)?;
        Ok(ChosenUpstream::new(least_bad.1, false))
    }
}

/// Returns true if an upstream may get requests at all: it has a weight, and its probes are good.
fn is_up(upstream: &Upstream) -> bool {
    upstream.config.weight > 0 && upstream.standing() == Standing::Up
}

/// Returns true if an upstream is up, and neither ejected nor asking for a pause.
fn is_well(upstream: &Upstream, now: Instant) -> bool {
    is_up(upstream) && matches!(upstream.availability(now), Availability::Good(_))
}

/// Returns true if an upstream is well, or is up and gets a trial request after an ejection.
fn takes_requests(upstream: &Upstream, now: Instant) -> bool {
    is_up(upstream)
        && matches!(
            upstream.availability(now),
            Availability::Good(_) | Availability::Trial
        )
}
