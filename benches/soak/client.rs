//! Clients of the soak: streams one after the other in every slot, whole answers and background responses at a
//! rate, and clients that misbehave.

use crate::check::{Check, End, code, head};
use crate::plan::{ClientFault, Kind, Plan, Purpose, RunSettings, SeededRandom, number};
use crate::tally::{Tally, Timers};
use crate::wire::{ClientConnection, Stop, request};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::{LocalSet, spawn_local};

/// Load of one run: how many clients of each kind, and how often they send requests.
pub(crate) struct Load {
    pub(crate) proxy: SocketAddr,
    /// Engine addresses. A few streams go there directly, to measure the delay of the machine itself.
    pub(crate) engines: Vec<SocketAddr>,
    pub(crate) measure: RunSettings,
    pub(crate) timers: Timers,
    pub(crate) streams: usize,
    /// Whole answers requested per second.
    pub(crate) whole: f64,
    pub(crate) background: f64,
    /// Clients per second that leave early.
    pub(crate) churn: f64,
    /// Number of readers that stop reading once the calm phase is over.
    pub(crate) stopped: usize,
    /// Number of idle clients: they send short requests, seldom.
    pub(crate) idle: usize,
    /// Time over which the first streams are spread.
    pub(crate) ramp: Duration,
    pub(crate) tally: Arc<Tally>,
}

/// Share of streams that go to an engine directly: one in this many.
const DIRECT: usize = 25;
/// Milliseconds between two requests of an idle client, least and most: engines close idle connections after five
/// seconds.
const GAP: (u64, u64) = (2_000, 8_000);

/// Runs all clients until the tally signals the end of the run and they have stopped.
pub(crate) fn run(load: Load) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    LocalSet::new().block_on(&runtime, async move {
        let load = Rc::new(load);
        let count = Rc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for slot in 0..load.streams {
            let direct =
                (slot % DIRECT == DIRECT - 1).then(|| load.engines[slot % load.engines.len()]);
            let slot = Slot {
                load: Rc::clone(&load),
                count: Rc::clone(&count),
                direct,
                line: None,
            };
            let start = load
                .ramp
                .mul_f64(tasks.len() as f64 / load.streams.max(1) as f64);
            tasks.push(spawn_local(slot.streams(start)));
        }
        let slot = || Slot {
            load: Rc::clone(&load),
            count: Rc::clone(&count),
            direct: None,
            line: None,
        };
        tasks.extend((0..load.stopped).map(|_| spawn_local(slot().stopped_readers())));
        tasks.extend((0..load.idle).map(|_| spawn_local(slot().now_and_then())));
        for (rate, kind, purpose) in [
            (load.whole, Kind::Whole, Purpose::Answer),
            (load.background, Kind::Background, Purpose::Answer),
            (load.churn, Kind::Chat, Purpose::Churn),
        ] {
            let (load, count) = (Rc::clone(&load), Rc::clone(&count));
            tasks.push(spawn_local(at_a_rate(load, count, rate, (kind, purpose))));
        }
        for task in tasks {
            task.await.expect("no client panics");
        }
    });
}

async fn at_a_rate(
    load: Rc<Load>,
    count: Rc<AtomicU64>,
    rate: f64,
    (kind, purpose): (Kind, Purpose),
) {
    if rate <= 0.0 {
        return;
    }
    let mut tick = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
    let mut tasks = tokio::task::JoinSet::new();
    while !load.tally.is_stopping() {
        tick.tick().await;
        let mut slot = Slot {
            load: Rc::clone(&load),
            count: Rc::clone(&count),
            direct: None,
            line: None,
        };
        tasks.spawn_local(async move { slot.one(kind, purpose).await });
        while tasks.try_join_next().is_some() {}
    }
    while tasks.join_next().await.is_some() {}
}

/// Client that keeps its connection as long as it can.
struct Slot {
    load: Rc<Load>,
    count: Rc<AtomicU64>,
    direct: Option<SocketAddr>,
    line: Option<ClientConnection>,
}

impl Slot {
    async fn streams(mut self, start: Duration) {
        tokio::time::sleep(start).await;
        while !self.load.tally.is_stopping() {
            let n = self.count.load(Ordering::Relaxed);
            let kind = if n.is_multiple_of(2) || self.direct.is_some() {
                Kind::Chat
            } else {
                Kind::Responses
            };
            self.one(kind, Purpose::Answer).await;
        }
    }

    async fn stopped_readers(mut self) {
        while !self.load.tally.is_stopping() {
            match self.load.tally.is_calm() {
                true => tokio::time::sleep(Duration::from_millis(100)).await,
                false => self.one(Kind::Chat, Purpose::Stop).await,
            }
        }
    }

    /// Sends short requests with pauses, on one connection as long as it stays open.
    async fn now_and_then(mut self) {
        while !self.load.tally.is_stopping() {
            let n = self.count.load(Ordering::Relaxed);
            let gap = SeededRandom::new(self.load.measure.seed, n).between(GAP.0, GAP.1);
            self.one(
                if n.is_multiple_of(2) {
                    Kind::Chat
                } else {
                    Kind::Whole
                },
                Purpose::Brief,
            )
            .await;
            let until = Instant::now() + Duration::from_millis(gap);
            while Instant::now() < until && !self.load.tally.is_stopping() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// Runs one request from start to end and judges the outcome.
    async fn one(&mut self, kind: Kind, purpose: Purpose) {
        let n = self.count.fetch_add(1, Ordering::Relaxed);
        let faults = self.load.tally.faults.load(Ordering::Relaxed) && self.direct.is_none();
        let plan = Plan::of(&self.load.measure, number(n, kind, faults, purpose));
        let load = Rc::clone(&self.load);
        let started = Instant::now();
        let result = match (kind, plan.leaving) {
            (_, Some(ClientFault::Garbage | ClientFault::Half)) => self.nonsense(&plan).await,
            (Kind::Background, _) => self.in_background(&plan).await,
            _ => self.asks(&plan).await,
        };
        let registry = &load.tally.registry;
        let outcomes = registry.leaves(plan.id, kind != Kind::Background);
        let finished = match result {
            Ok(end) => load.tally.judge(&plan, end, &outcomes, started),
            Err(Stopped::Left) => load.tally.left(),
            // Direct clients are only for measuring: nothing retries for them when an engine is restarted.
            Err(Stopped::Wrong(_)) if self.direct.is_some() => false,
            Err(Stopped::Wrong(why)) => load
                .tally
                .wrong(&plan, &format!("{why}; engines: {outcomes:?}")),
        };
        if !finished {
            self.line = None;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn connected(&mut self, narrow: bool) -> Result<ClientConnection, Stopped> {
        if let Some(line) = self.line.take().filter(|_| !narrow) {
            return Ok(line);
        }
        let to = self.direct.unwrap_or(self.load.proxy);
        let line = ClientConnection::connect(to, narrow).await;
        line.map_err(|error| Stopped::Wrong(format!("no connection: {error}")))
    }

    /// Sends a request and reads its answer to the end.
    async fn asks(&mut self, plan: &Plan) -> Result<End, Stopped> {
        let slow = matches!(
            plan.leaving,
            Some(ClientFault::Slow | ClientFault::Stopped { .. })
        );
        let mut line = self.connected(slow).await?;
        let tally = Arc::clone(&self.load.tally);
        tally.asks(plan.id, self.direct.is_some());
        let mut bytes = request("POST", plan.path(), &plan.body());
        if matches!(plan.leaving, Some(ClientFault::Surplus { .. })) {
            bytes.push(b'X');
        }
        if let Err(error) = line.send(&bytes).await {
            return Err(Stopped::Wrong(format!("the request is not taken: {error}")));
        }
        if let Some(ClientFault::Early { after, reset }) = plan.leaving {
            tokio::time::sleep(Duration::from_millis(after)).await;
            line.leave(reset);
            return Err(Stopped::Left);
        }
        if plan.leaving == Some(ClientFault::Slow) {
            line.rest = Duration::from_millis(50);
        }
        let latency = if plan.leaving.is_some() {
            None
        } else {
            Some(tally.latency(self.direct.is_some()))
        };
        let mut check = Check::new(plan, latency);
        let end = self.read(plan, &mut line, &mut check).await;
        match end {
            Ok(end) => {
                if !line.closes && matches!(end, End::Complete) && plan.leaving.is_none() {
                    self.line = Some(line);
                }
                Ok(end)
            }
            Err(Stopped::Left) => {
                line.leave(matches!(
                    plan.leaving,
                    Some(ClientFault::After { reset: true, .. })
                ));
                Err(Stopped::Left)
            }
            Err(other) => Err(other),
        }
    }

    async fn read(
        &self,
        plan: &Plan,
        line: &mut ClientConnection,
        check: &mut Check<'_>,
    ) -> Result<End, Stopped> {
        let tally = &self.load.tally;
        let whole = plan.kind == Kind::Whole;
        let mut heard = Instant::now();
        loop {
            let patience = self.load.timers.patience(plan, check.tokens > 0);
            match line.more(heard + patience, || tally.is_stopping()).await {
                Ok(_) => {}
                Err(Stop::RunOver) => return Err(Stopped::Left),
                Err(Stop::Silence) => {
                    return Err(Stopped::Wrong(format!(
                        "it hangs after {} tokens",
                        check.tokens
                    )));
                }
                Err(Stop::Cut(why)) => {
                    return Err(Stopped::Wrong(format!(
                        "cut by {why} after {} tokens",
                        check.tokens
                    )));
                }
            }
            if heard.elapsed() > patience {
                return Err(Stopped::Wrong(format!(
                    "{:?} without an event",
                    heard.elapsed()
                )));
            }
            if line.status == 200 && !whole {
                let had = check.tokens;
                let mut at = 0;
                while let Some(length) = memchr::memmem::find(&line.body[at..], b"\n\n") {
                    let event = std::str::from_utf8(&line.body[at..at + length])
                        .map_err(|e| Stopped::Wrong(e.to_string()))?;
                    check.event(event).map_err(Stopped::Wrong)?;
                    at += length + 2;
                }
                line.body.drain(..at);
                // The last events repeat the whole response, which takes a slow reader some time.
                if check.tokens > had || check.has_end() || plan.leaving == Some(ClientFault::Slow)
                {
                    heard = Instant::now();
                }
                match plan.leaving {
                    Some(ClientFault::After { tokens, .. } | ClientFault::Surplus { tokens })
                        if check.tokens >= tokens =>
                    {
                        return Err(Stopped::Left);
                    }
                    Some(ClientFault::Stopped { tokens }) if check.tokens >= tokens => {
                        return self.stopped(plan, line).await;
                    }
                    _ => {}
                }
            }
            if line.is_over() {
                return match line.status {
                    200 if whole => whole_answer(&line.body, check),
                    200 if line.body.is_empty() => check.end().map_err(Stopped::Wrong),
                    200 => Err(Stopped::Wrong("half an event at the end".to_owned())),
                    status => code(&line.body)
                        .map(|code| End::Error(status, code))
                        .ok_or_else(|| {
                            Stopped::Wrong(format!(
                                "{status}: {}",
                                head(&String::from_utf8_lossy(&line.body))
                            ))
                        }),
                };
            }
        }
    }

    /// Stops reading. The proxy must close the connection to the engine when its timer has run out.
    async fn stopped(&self, plan: &Plan, _line: &mut ClientConnection) -> Result<End, Stopped> {
        let (tally, since) = (&self.load.tally, Instant::now());
        let limit = self.load.timers.stall + self.load.timers.slack;
        while tally.registry.works(plan.id) {
            if tally.is_stopping() {
                break;
            }
            if since.elapsed() > limit {
                return Err(Stopped::Wrong(
                    "the engine works on for a reader that has stopped".to_owned(),
                ));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err(Stopped::Left)
    }

    async fn in_background(&mut self, plan: &Plan) -> Result<End, Stopped> {
        let tally = Arc::clone(&self.load.tally);
        let mut line = self.connected(false).await?;
        tally.asks(plan.id, false);
        let body = self
            .exchange(&mut line, &request("POST", plan.path(), &plan.body()))
            .await?;
        if line.status != 200 {
            return Ok(End::Error(line.status, code(&body).unwrap_or_default()));
        }
        let mut check = Check::new(plan, None);
        let created = check
            .object(&String::from_utf8_lossy(&body))
            .map_err(Stopped::Wrong)?;
        let since = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(700)).await;
            let path = format!("/v1/responses/{}", created.id);
            if line.closes {
                line = self.connected(false).await?;
            }
            // Nobody would wait for the answer, and an engine that has fallen silent would hold it until its timer.
            let leaves = tally.is_stopping();
            let asked = match leaves {
                true => request("POST", &format!("{path}/cancel"), ""),
                false => request("GET", &path, ""),
            };
            let body = self.exchange(&mut line, &asked).await?;
            if leaves && line.status != 503 {
                return Err(Stopped::Left);
            }
            if line.status == 503 {
                // The store is failing for the moment; stored responses are not lost.
                if !leaves && !tally.lenient && !tally.near_trouble(since) {
                    return Ok(End::Error(503, code(&body).unwrap_or_default()));
                }
                continue;
            }
            let text = String::from_utf8_lossy(&body);
            if line.status != 200 {
                return Err(Stopped::Wrong(format!(
                    "{} for a created response: {}",
                    line.status,
                    head(&text)
                )));
            }
            let mut check = Check::new(plan, None);
            let object = check.object(&text).map_err(Stopped::Wrong)?;
            match object.status.as_str() {
                "queued" | "in_progress" if since.elapsed() > self.load.timers.background(plan) => {
                    return Err(Stopped::Wrong(format!(
                        "{} after {:?}",
                        object.status,
                        since.elapsed()
                    )));
                }
                "queued" | "in_progress" => {}
                "completed" => {
                    return check
                        .is_complete()
                        .map(|()| End::Complete)
                        .map_err(Stopped::Wrong);
                }
                "failed" => {
                    let fault = object
                        .error
                        .ok_or_else(|| Stopped::Wrong("failed without a reason".to_owned()))?;
                    return Ok(End::Error(200, fault.message));
                }
                other => return Err(Stopped::Wrong(format!("status {other}"))),
            }
        }
    }

    /// Sends a request and returns the body of its whole answer.
    async fn exchange(
        &self,
        line: &mut ClientConnection,
        bytes: &[u8],
    ) -> Result<Vec<u8>, Stopped> {
        line.send(bytes)
            .await
            .map_err(|error| Stopped::Wrong(format!("not taken: {error}")))?;
        let limit = Instant::now() + Duration::from_secs(5) + self.load.timers.slack;
        loop {
            match line.more(limit, || false).await {
                Ok(_) if line.is_over() => return Ok(std::mem::take(&mut line.body)),
                Ok(_) => {}
                Err(stop) => return Err(Stopped::Wrong(format!("{stop:?} instead of an answer"))),
            }
        }
    }

    /// Sends bytes that are not a request, or only a part of one. Fails if the answer is a 200.
    async fn nonsense(&mut self, plan: &Plan) -> Result<End, Stopped> {
        let mut line = self.connected(false).await?;
        let mut dice = SeededRandom::new(self.load.measure.seed, plan.id);
        let whole = request("POST", plan.path(), &plan.body());
        let bytes = match plan.leaving {
            Some(ClientFault::Half) => {
                whole[..usize::try_from(dice.below(whole.len() as u64)).unwrap_or(0)].to_vec()
            }
            _ => (0..dice.between(1, 3_000))
                .map(|_| dice.below(256) as u8)
                .collect(),
        };
        // The request may be refused before its end.
        let _ = line.send(&bytes).await;
        let limit = Instant::now() + Duration::from_millis(dice.between(10, 1_000));
        while let Ok(true) = line.more(limit, || false).await {}
        if line.status == 200 {
            return Err(Stopped::Wrong("200 for an invalid request".to_owned()));
        }
        line.leave(dice.percent(50));
        Err(Stopped::Left)
    }
}

fn whole_answer(body: &[u8], check: &mut Check<'_>) -> Result<End, Stopped> {
    check
        .chat(&String::from_utf8_lossy(body))
        .map_err(Stopped::Wrong)?;
    check
        .is_complete()
        .map(|()| End::Complete)
        .map_err(Stopped::Wrong)
}

/// Reason why an answer has no end to judge.
enum Stopped {
    /// The client has left as planned, or because the run is over.
    Left,
    /// The proxy behaved wrongly.
    Wrong(String),
}
