//! Probes: whether the engine is there, and which models it has (faults 8). What it is, is looked at more closely now and
//! then (`look`).

use super::identify::Identification;
use super::{Hops, Outgoing, Upstream, models};
use crate::config::{Credentials, Health};
use crate::engine::{self, Engine};
use crate::error::{Class, Side};
use crate::telemetry::Propagation;
use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use std::time::Duration;

/// How soon it is looked again where there has been no good probe yet. An engine takes minutes to load, but may have been
/// there all along.
const EAGER: Duration = Duration::from_millis(500);
/// An engine that has said something within this time is there, however slow its answer to a probe.
const LIVELY: Duration = Duration::from_secs(10);
/// Engines behind one name that a probe asks, until one of them is well.
const BEHIND: usize = 4;
/// Bytes of a list of models, or of what else an engine tells of itself.
const LIST: usize = 1 << 20;

/// Probes as long as the upstream is one. `config`: how, at present.
pub async fn watch(upstream: &Upstream, config: impl Fn() -> Health) {
    let mut verdict = Verdict::going_on(upstream.trouble(), upstream.is_down());
    let mut identification = Identification::default();
    while !upstream.is_retired() {
        let config = &config();
        let mut probe = Probe::new(upstream, *config.timeout);
        let found = probe.result(&mut identification, config).await;
        if upstream.is_retired() {
            return;
        }
        let trouble = found.err().map(Trouble::why);
        tracing::debug!(
            upstream = upstream.config.name,
            trouble,
            cause = probe.cause,
            "a probe has come back"
        );
        let trouble = verdict.after(found, upstream.was_heard_within(LIVELY), config);
        if trouble != upstream.trouble() {
            let cause = probe.cause.take();
            match trouble {
                Some(why) => {
                    tracing::warn!(upstream = upstream.config.name, why, cause, "upstream is not ready");
                }
                None => tracing::info!(upstream = upstream.config.name, "upstream is ready"),
            }
        }
        upstream.set_trouble(trouble);
        upstream.set_down(verdict.is_down(config));
        upstream.figures.up.set(trouble.is_none().into());
        let pause = if verdict.proven { spread(*config.interval) } else { EAGER.min(*config.interval) };
        tokio::time::sleep(pause).await;
    }
}

/// A time, a fifth more or less: many processes shall not ask at once.
pub(super) fn spread(time: Duration) -> Duration {
    let chance = f64::from(getrandom::u32().unwrap_or(u32::MAX / 2)) / f64::from(u32::MAX);
    time.mul_f64(0.8 + 0.4 * chance)
}

/// Why a probe was not good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The engine itself says that it is not ready.
    Refuses,
    /// It says nothing.
    Silent,
    /// It was not asked: the proxy has no room for another connection.
    Unasked,
    /// Anything else.
    Bad(&'static str),
}

/// The probe has come back.
const LOOP: Trouble = Trouble::Bad("it leads to samewire itself");

impl Trouble {
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Refuses => "it says that it is not ready",
            Self::Silent => "it does not answer in time",
            Self::Unasked => "the proxy has no room for another connection",
            Self::Bad(why) => why,
        }
    }
}

/// What the probes of one upstream come to. One that fails now and then proves nothing.
#[derive(Debug, Default)]
struct Verdict {
    /// There has been a good probe.
    proven: bool,
    /// Why it is not ready.
    trouble: Option<&'static str>,
    /// How many probes in a row have said otherwise.
    otherwise: u32,
    /// How many in a row have failed.
    failed: u32,
    /// The last one said that it is not ready.
    refuses: bool,
}

impl Verdict {
    /// That of one which is known from before.
    fn going_on(trouble: Option<&'static str>, down: bool) -> Self {
        Self { proven: trouble.is_none() || down, trouble: trouble.filter(|_| down), ..Self::default() }
    }

    /// One more probe; gives why the upstream is not ready, if it is not. `lively`: it has just served.
    fn after(&mut self, found: Result<(), Trouble>, lively: bool, config: &Health) -> Option<&'static str> {
        match (found, self.trouble) {
            (Err(Trouble::Unasked), _) if self.proven => return self.trouble,
            (Ok(()), None) => self.otherwise = 0,
            (Err(Trouble::Silent), None) if lively && self.proven => {}
            (Err(trouble), None) => {
                self.otherwise += 1;
                let enough =
                    !self.proven || trouble == Trouble::Refuses || self.otherwise >= config.down_after;
                self.turn(enough, Some(trouble.why()));
            }
            (Ok(()), Some(_)) => {
                self.otherwise += 1;
                self.turn(!self.proven || self.otherwise >= config.up_after, None);
            }
            (Err(trouble), Some(_)) => {
                self.otherwise = 0;
                self.trouble = Some(trouble.why());
            }
        }
        self.proven |= found.is_ok();
        self.failed = if found.is_ok() { 0 } else { self.failed.saturating_add(1) };
        self.refuses = found == Err(Trouble::Refuses);
        self.trouble
    }

    /// It is not asked any more. One that has not been there yet may come at any moment.
    fn is_down(&self, config: &Health) -> bool {
        self.trouble.is_some() && (self.proven || self.refuses || self.failed >= config.down_after)
    }

    fn turn(&mut self, enough: bool, trouble: Option<&'static str>) {
        if enough {
            (self.trouble, self.otherwise) = (trouble, 0);
        }
    }
}

/// Asks one upstream.
pub(super) struct Probe<'u> {
    pub(super) upstream: &'u Upstream,
    pub(super) patience: Duration,
    /// The engine that its list of models says it is.
    pub(super) owner: Option<&'static Engine>,
    /// What it says in the header `server`.
    pub(super) server: Option<String>,
    /// What the system, or TLS, says of a probe that failed.
    cause: Option<String>,
}

/// What a route has answered.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// The whole body, unless it is too large or broke off.
    pub(super) body: Option<BytesMut>,
}

impl Reply {
    /// The body of a good answer.
    pub(super) fn good(&self) -> Option<&[u8]> {
        self.body.as_deref().filter(|_| self.status == 200)
    }
}

impl<'u> Probe<'u> {
    fn new(upstream: &'u Upstream, patience: Duration) -> Self {
        Self { upstream, patience, owner: None, server: None, cause: None }
    }

    async fn result(&mut self, identification: &mut Identification, config: &Health) -> Result<(), Trouble> {
        let mut result = Err(Trouble::Silent);
        let patience = self.patience.max(self.upstream.identity().engine.detection.patience);
        let (mut count, mut asked) = (1, 0);
        // One that is silent does not speak for the others.
        while asked < count {
            self.upstream.probes.forget();
            count =
                u32::try_from(self.upstream.probes.addresses().clamp(1, BEHIND)).unwrap_or(1).max(asked + 1);
            let found = tokio::time::timeout(patience, self.asked()).await;
            result = found.unwrap_or(Err(Trouble::Silent));
            if result.is_ok() {
                break;
            }
            asked += 1;
        }
        match result {
            Ok(()) => self.look(identification, config).await,
            // Whatever comes back may be another one.
            Err(_) => self.doubt(identification),
        }
        // Until the next one, the engine would close it.
        self.upstream.probes.forget();
        result
    }

    async fn asked(&mut self) -> Result<(), Trouble> {
        let healthy = self.get("/health").await.map(|reply| reply.status);
        // Servers of other makers have no /health, or want a key for it; that they list models is as good.
        let listed = self.list().await;
        if listed == Err(LOOP) {
            return listed;
        }
        match healthy? {
            200..=299 => Ok(()),
            400..=499 | 501 => listed,
            503 => Err(Trouble::Refuses),
            _ => Err(Trouble::Bad("its health check fails")),
        }
    }

    async fn list(&mut self) -> Result<(), Trouble> {
        let Reply { status, body } = self.get("/v1/models").await?;
        // It is there, and wants a key that only clients have.
        if matches!(status, 401 | 403) && !matches!(self.upstream.config.auth, Credentials::Own(_)) {
            return Ok(());
        }
        if status == 508 {
            return Err(LOOP);
        }
        if !(200..=299).contains(&status) {
            return Err(Trouble::Bad("it does not list its models"));
        }
        let body = body.ok_or(Trouble::Bad("its list of models breaks off"))?;
        let listed = models::read(&body).ok_or(Trouble::Bad("its list of models cannot be read"))?;
        self.owner = listed.iter().find_map(|model| engine::recognised(model.owner.as_deref()?));
        self.upstream.listed(&listed);
        let configured = &self.upstream.config.models;
        if !configured.is_empty() && !listed.iter().any(|model| configured.contains(&model.id)) {
            self.upstream.misplace("it lists none of the models that the configuration names");
        }
        Ok(())
    }

    /// What a route of it answers.
    pub(super) async fn get(&mut self, path: &'static str) -> Result<Reply, Trouble> {
        let authorization = match &self.upstream.config.auth {
            Credentials::Own(key) => Some(key.value()),
            _ => None,
        };
        let request = Outgoing {
            method: "GET",
            path: path.into(),
            accept: HeaderValue::from_static("*/*"),
            content_type: None,
            authorization,
            request_id: "samewire-probe".to_owned(),
            again: false,
            trace: Propagation::Passed(Vec::new()),
            hops: Hops::default(),
            body: Bytes::new(),
            upload: None,
        };
        let probes = &self.upstream.probes;
        let mut answer = probes.send(&request).await.map_err(|error| {
            self.cause = error.source.map(|cause| cause.to_string());
            match (error.side, error.class) {
                (Side::Proxy, _) => Trouble::Unasked,
                (_, Class::Unsent) => Trouble::Bad("it cannot be reached"),
                _ => Trouble::Bad("it does not answer in HTTP"),
            }
        })?;
        let server = answer.head.headers.get(http::header::SERVER);
        self.server = server.and_then(|name| name.to_str().ok()).map(ToOwned::to_owned);
        let (status, body) = (answer.head.status, answer.collect(LIST).await.ok());
        probes.give_back(answer);
        let (upstream, bytes) = (&self.upstream.config.name, body.as_ref().map(BytesMut::len));
        tracing::debug!(upstream, path, status, bytes, server = self.server, "a probe has read a route");
        Ok(Reply { status, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: Result<(), Trouble> = Err(Trouble::Bad("bad"));
    const SILENT: Result<(), Trouble> = Err(Trouble::Silent);
    const UNASKED: Result<(), Trouble> = Err(Trouble::Unasked);
    const REFUSES: Result<(), Trouble> = Err(Trouble::Refuses);
    const GOOD: Result<(), Trouble> = Ok(());

    /// After each probe: ready or not.
    fn course(probes: &[Result<(), Trouble>], lively: bool) -> String {
        let (mut verdict, config) = (Verdict::default(), Health::default());
        let ready = |probe| verdict.after(probe, lively, &config).is_none();
        probes.iter().copied().map(ready).map(|ready| if ready { '+' } else { '-' }).collect()
    }

    #[test]
    fn three_bad_ones_down_two_good_ones_up() {
        for (probes, lively, expected) in [
            // The first one decides.
            (&[GOOD, BAD, BAD, BAD, GOOD, GOOD][..], false, "+++--+"),
            (&[BAD, BAD, GOOD], false, "--+"),
            (&[GOOD, BAD, BAD, GOOD, BAD, BAD, GOOD], false, "+++++++"),
            (&[GOOD, BAD, BAD, BAD, GOOD, BAD, GOOD, GOOD], false, "+++----+"),
            // What says that it is not ready is believed.
            (&[GOOD, REFUSES, GOOD, GOOD], false, "+--+"),
            // Who serves is there, but who cannot be reached is not.
            (&[GOOD, SILENT, SILENT, SILENT, SILENT], true, "+++++"),
            (&[GOOD, SILENT, SILENT, SILENT], false, "+++-"),
            (&[GOOD, BAD, SILENT, BAD, SILENT, BAD], true, "+++++-"),
            (&[SILENT, GOOD], true, "-+"),
            // What is not asked has not failed, nor has it recovered.
            (&[GOOD, UNASKED, UNASKED, UNASKED, UNASKED], false, "+++++"),
            (&[GOOD, BAD, BAD, UNASKED, BAD, GOOD, UNASKED, GOOD], false, "++++---+"),
            (&[UNASKED, GOOD], false, "-+"),
        ] {
            assert_eq!(course(probes, lively), expected, "{probes:?} {lively}");
        }
    }

    #[test]
    fn probes_are_spread() {
        let interval = Duration::from_secs(5);
        let pauses: Vec<_> = (0..200).map(|_| spread(interval)).collect();
        assert!(pauses.iter().all(|pause| (4_000..=6_000).contains(&pause.as_millis())));
        assert!(pauses.iter().any(|pause| *pause < interval) && pauses.iter().any(|pause| *pause > interval));
    }
}
