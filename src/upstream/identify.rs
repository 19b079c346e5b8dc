//! Identification of an engine through its routes: engine, version, front end and parsers, and how loaded it is
//! (engines G).
//!
//! Takes: a probe with its connection, so that of several engines behind one name the same one is identified that
//! has passed the probe. Gives: the identity and the load, to the upstream. Remembers: when it last ran, and which
//! route reports the load. Never: affects health, makes an engine generate, waits longer than a probe may.

use super::Upstream;
use super::detected_engine::{DetectedEngine, Evidence};
use super::probe::{Probe, ProbeFailure, ProbeReply};
use crate::config::Health;
use crate::engine::{ENGINES, Engine, EngineLoad, Front, LoadRoute, RouteAnswer};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// State that is kept between the probes of one upstream.
#[derive(Debug, Default)]
pub(super) struct Identification {
    /// Time of the last complete identification; `None` if none is valid any more.
    last: Option<Instant>,
    load: LoadSource,
}

/// Route that reports the engine's load.
#[derive(Clone, Copy, Debug, Default)]
enum LoadSource {
    /// Not searched yet.
    #[default]
    Unknown,
    /// Route with this index among the engine's load routes.
    At(usize),
    /// No route reports the load.
    Nowhere,
}

impl Identification {
    /// Makes the next identification due at once, because the engine may have been replaced: it was not reachable,
    /// or has answered badly.
    fn invalidate(&mut self) {
        self.last = None;
    }

    fn is_due(&self, every: Duration) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= every)
    }

    /// Returns the routes to request for the load, with their indices: all of them at first, later only the one that
    /// replied.
    fn loads(
        &self,
        engine: &'static Engine,
    ) -> impl Iterator<Item = (usize, &'static LoadRoute)> + use<> {
        let all = engine.detection.loads;
        let few = match self.load {
            LoadSource::Unknown => all,
            LoadSource::At(at) => all.get(at..=at).unwrap_or_default(),
            LoadSource::Nowhere => &[],
        };
        let first = if let LoadSource::At(at) = self.load {
            at
        } else {
            0
        };
        (first..).zip(few)
    }
}

/// Replies to one identification by path, so that no route is requested twice.
type Replies = HashMap<&'static str, ProbeReply>;

/// Discards what is known to hold only for the engine that was there so far, since another one may have
/// replaced it.
pub(super) fn doubt(upstream: &Upstream, identification: &mut Identification) {
    identification.invalidate();
    upstream.learned.doubt();
}

/// Identifies the engine if that is due, and reads its load. A timeout leaves the former knowledge in
/// place.
pub(super) async fn identify_if_due(
    probe: &mut Probe<'_>,
    identification: &mut Identification,
    config: &Health,
) {
    let upstream = probe.upstream;
    let other = probe
        .owner
        .is_some_and(|owner| owner != upstream.identity().engine);
    if upstream.take_doubt() || other && !upstream.config.engine.is_known() {
        doubt(upstream, identification);
    }
    if identification.is_due(*config.identify) {
        let mut found = upstream.detected();
        let told = timeout(probe.timeout, identify(probe, &mut found)).await;
        let is_whole = matches!(told, Ok(Ok(())));
        tracing::debug!(upstream = upstream.config.name, what = %found, is_whole, "an engine was looked at");
        upstream.set_detected(found);
        if let Ok(Ok(())) = told {
            *identification = Identification {
                last: Some(Instant::now()),
                load: LoadSource::Unknown,
            };
        }
    }
    let busy = match config.engine_load {
        true => timeout(probe.timeout, load(probe, identification))
            .await
            .ok()
            .flatten(),
        false => None,
    };
    upstream.set_busy(busy);
}

async fn identify(probe: &mut Probe<'_>, found: &mut DetectedEngine) -> Result<(), &'static str> {
    let mut replies = Replies::new();
    match probe.owner {
        Some(engine) => found.set_engine(engine, Evidence::Route("/v1/models")),
        None if found.evidence != Evidence::Configuration => {
            find_engine(probe, found, &mut replies).await?
        }
        None => {}
    }
    read_version(probe, found, &mut replies).await?;
    read_front(probe, found, &mut replies).await
}

/// Finds the engine by its characteristic routes, for engines whose list of models does not name them or
/// requires a key.
async fn find_engine(
    probe: &mut Probe<'_>,
    found: &mut DetectedEngine,
    replies: &mut Replies,
) -> Result<(), &'static str> {
    for engine in ENGINES {
        for place in engine.detection.places {
            if place.proof.is_none() {
                continue;
            }
            let reply = reply(probe, place.path, replies).await?;
            if reply.good().is_some_and(|body| place.proves(body)) {
                found.set_engine(engine, Evidence::Route(place.path));
                return Ok(());
            }
        }
    }
    if let Evidence::Route(_) = found.evidence {
        *found = DetectedEngine::configured(probe.upstream.config.engine);
    }
    Ok(())
}

async fn read_version(
    probe: &mut Probe<'_>,
    found: &mut DetectedEngine,
    replies: &mut Replies,
) -> Result<(), &'static str> {
    for place in found.identity.engine.detection.places {
        if place.version.is_none() {
            continue;
        }
        let Some(body) = reply(probe, place.path, replies).await?.good() else {
            continue;
        };
        let told = place.read(body);
        if told.says_version {
            found.set_version(told.version, Evidence::Route(place.path));
            (found.parsers, found.http2) = (told.parsers, told.http2);
            return Ok(());
        }
    }
    if let Evidence::Route(_) = found.version_evidence {
        found.set_version(None, Evidence::Nothing);
        (found.parsers, found.http2) = (None, false);
    }
    Ok(())
}

async fn read_front(
    probe: &mut Probe<'_>,
    found: &mut DetectedEngine,
    replies: &mut Replies,
) -> Result<(), &'static str> {
    let server = probe.server.clone();
    let (version, server) = (found.identity.version, server.as_deref());
    let other = found.identity.engine.detection.other_front.as_ref();
    let front = match other.filter(|other| other.is_possible(version, server)) {
        Some(other) => {
            let reply = reply(probe, other.missing_route, replies).await?;
            other.decide(
                server,
                RouteAnswer::of(reply.status, reply.body.as_deref().unwrap_or_default()),
            )
        }
        None => Front::Own,
    };
    found.set_front(front);
    Ok(())
}

async fn reply<'r>(
    probe: &mut Probe<'_>,
    path: &'static str,
    replies: &'r mut Replies,
) -> Result<&'r ProbeReply, &'static str> {
    if !replies.contains_key(path) {
        let reply = probe.get(path).await.map_err(ProbeFailure::why)?;
        replies.insert(path, reply);
    }
    replies.get(path).ok_or("it does not answer")
}

/// Returns the engine's load, and how many of its requests come from other clients.
async fn load(
    probe: &mut Probe<'_>,
    identification: &mut Identification,
) -> Option<(EngineLoad, u64)> {
    let upstream = probe.upstream;
    for (at, load) in identification.loads(upstream.identity().engine) {
        let before = upstream.under_way();
        let reply = probe.get(load.path).await.ok()?;
        if let Some(busy) = reply.good().and_then(|body| load.read(body)) {
            identification.load = LoadSource::At(at);
            // Requests start and end while the engine counts them; ours must not pass for those of others.
            let ours = before.max(upstream.under_way());
            return Some((busy, (busy.running + busy.waiting).saturating_sub(ours)));
        }
    }
    identification.load = LoadSource::Nowhere;
    None
}

impl Upstream {
    /// Returns the number of requests of this process that are under way.
    fn under_way(&self) -> u64 {
        u64::try_from(self.figures.active.value()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::named;

    #[test]
    fn an_engine_is_identified_at_first_and_then_at_times() {
        let mut identification = Identification::default();
        assert!(identification.is_due(Duration::from_secs(3600)));
        identification.last = Some(Instant::now());
        assert!(!identification.is_due(Duration::from_secs(3600)));
        identification.last = Some(Instant::now() - Duration::from_secs(60));
        assert!(identification.is_due(Duration::from_secs(60)));
        identification.last = Some(Instant::now());
        identification.invalidate();
        assert!(
            identification.is_due(Duration::from_secs(3600)),
            "another engine may be there"
        );
    }

    /// Checks that all routes are requested for the load until one has replied, and then that one alone.
    #[test]
    fn load_is_read_from_the_route_that_has_replied() {
        let engine = named("sglang").unwrap();
        let routes: Vec<_> = engine
            .detection
            .loads
            .iter()
            .map(|load| load.path)
            .collect();
        assert!(routes.len() > 1, "{routes:?}");
        let routes_of = |load| {
            let identification = Identification {
                load,
                ..Identification::default()
            };
            identification
                .loads(engine)
                .map(|(at, load)| (at, load.path))
                .collect::<Vec<_>>()
        };
        let all: Vec<_> = routes.iter().copied().enumerate().collect();
        assert_eq!(routes_of(LoadSource::Unknown), all);
        assert_eq!(routes_of(LoadSource::At(1)), [(1, routes[1])]);
        assert_eq!(routes_of(LoadSource::Nowhere), []);
    }

    /// Only a complete body with status 200 tells something about an engine.
    #[test]
    fn a_reply_is_good_with_status_200_and_its_body() {
        let reply = |status, body: Option<&str>| ProbeReply {
            status,
            body: body.map(Into::into),
        };
        assert_eq!(reply(200, Some("x")).good(), Some(&b"x"[..]));
        assert_eq!(reply(200, None).good(), None);
        assert_eq!(reply(404, Some("x")).good(), None);
    }
}
