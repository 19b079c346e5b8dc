//! Judges the answers that clients saw by what the engines did.

use crate::check::End;
use crate::latency::Latency;
use crate::plan::{EngineFault, Kind, Plan};
use crate::registry::{Outcome, Registry};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Times that clients wait: the proxy's own timers, and a second more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers {
    pub(crate) first: Duration,
    pub(crate) inter: Duration,
    pub(crate) stall: Duration,
    /// Additional time for a process suspended on purpose, and for a busy machine.
    pub(crate) slack: Duration,
    pub(crate) rate: f64,
}

impl Timers {
    /// Longest time a client waits without receiving a token.
    pub(crate) fn patience(&self, plan: &Plan, begun: bool) -> Duration {
        let attempts = if begun || !plan.waits() && plan.kind != Kind::Whole {
            1
        } else {
            2
        };
        let timer = if begun { self.inter } else { self.first };
        timer * attempts + Duration::from_secs(1) + self.slack
    }

    /// Longest time a background response may take, with a restart of its engine.
    pub(crate) fn background(&self, plan: &Plan) -> Duration {
        let speech = Duration::from_secs_f64(plan.tokens() as f64 / self.rate);
        speech + self.first * 2 + self.inter + self.slack * 2 + Duration::from_secs(5)
    }
}

/// Period in which a fault was active on purpose, as seen from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineFault {
    pub(crate) name: &'static str,
    pub(crate) until: Instant,
}

#[derive(Default)]
pub(crate) struct Tally {
    /// True if the machine may be too slow for the store.
    pub(crate) lenient: bool,
    pub(crate) registry: Arc<Registry>,
    /// Token delays before the faults begin and while they are active, each in two histograms: through the proxy,
    /// and directly.
    calm: [Latency; 2],
    faulty: [Latency; 2],
    /// True once the calm phase is over.
    pub(crate) rough: AtomicBool,
    /// True once engines and clients misbehave on purpose, after the calm phase.
    pub(crate) faults: AtomicBool,
    stopping: AtomicBool,
    pub(crate) complete: AtomicU64,
    pub(crate) left: AtomicU64,
    /// Requests of clients that go through the proxy.
    pub(crate) requests: AtomicU64,
    /// Attempts of clients that go to engines directly.
    pub(crate) direct: AtomicU64,
    /// Failures before the first token that were not retried on another engine.
    pub(crate) not_retried: AtomicU64,
    pub(crate) errors: Mutex<BTreeMap<String, u64>>,
    pub(crate) wrongs: Mutex<Vec<String>>,
    pub(crate) troubles: Mutex<Vec<MachineFault>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    pub(crate) fn new(lenient: bool) -> Self {
        Self {
            lenient,
            ..Self::default()
        }
    }

    pub(crate) fn latency(&self, direct: bool) -> &Latency {
        self.latencies(!self.is_calm(), direct)
    }

    pub(crate) fn latencies(&self, faults: bool, direct: bool) -> &Latency {
        let of = if faults { &self.faulty } else { &self.calm };
        &of[usize::from(direct)]
    }

    pub(crate) fn pause(&self, paused: bool) {
        for latency in self.calm.iter().chain(&self.faulty) {
            latency.paused.store(paused, Ordering::Relaxed);
        }
    }

    /// Returns true until the calm phase is over.
    pub(crate) fn is_calm(&self) -> bool {
        !self.rough.load(Ordering::Relaxed)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.calm[0].paused.load(Ordering::Relaxed)
    }

    /// Tells all clients to leave, because the run is over.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn asks(&self, id: u64, direct: bool) {
        self.registry.asks(id);
        if direct { &self.direct } else { &self.requests }.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn left(&self) -> bool {
        self.left.fetch_add(1, Ordering::Relaxed);
        false
    }

    pub(crate) fn wrong(&self, plan: &Plan, what: &str) -> bool {
        let mut wrongs = lock(&self.wrongs);
        wrongs.push(format!("{what}; {plan:?}"));
        if wrongs.len() <= 20 {
            eprintln!("soak: WRONG: {what}; {plan:?}");
        }
        false
    }

    /// Returns true if any fault was active on purpose after `since`.
    pub(crate) fn near_trouble(&self, since: Instant) -> bool {
        lock(&self.troubles)
            .iter()
            .any(|trouble| trouble.until > since)
    }

    fn near(&self, since: Instant, name: &str) -> bool {
        lock(&self.troubles)
            .iter()
            .any(|trouble| trouble.name == name && trouble.until > since)
    }

    /// Judges the end of an answer by the outcomes at the engines. Returns true if the answer is complete and its
    /// connection can be reused.
    pub(crate) fn judge(
        &self,
        plan: &Plan,
        end: End,
        outcomes: &[Outcome],
        started: Instant,
    ) -> bool {
        match &end {
            End::Complete if outcomes.last() == Some(&Outcome::Complete) => {
                self.complete.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            End::Error(status, code) if self.is_due(plan, *status, code, outcomes, started) => {
                *lock(&self.errors)
                    .entry(format!("{status} {code}"))
                    .or_default() += 1;
                let first = (*status != 200 && outcomes.len() == 1).then(|| outcomes[0]);
                if matches!(first, Some(Outcome::Wrong(wrong)) if is_retried(wrong)) {
                    self.not_retried.fetch_add(1, Ordering::Relaxed);
                }
                return false;
            }
            _ => {}
        }
        self.wrong(
            plan,
            &format!(
                "{end:?}, but engines: {outcomes:?}, after {:?}",
                started.elapsed()
            ),
        )
    }

    fn is_due(
        &self,
        plan: &Plan,
        status: u16,
        code: &str,
        outcomes: &[Outcome],
        started: Instant,
    ) -> bool {
        let restarted = self.near(started, "restart");
        let nowhere = [
            "upstream_unreachable",
            "no_healthy_upstream",
            "upstream_reset",
        ]
        .contains(&code);
        if plan.kind == Kind::Background && status == 200 {
            // The error of a background response is only text.
            let failed = matches!(
                outcomes.last(),
                Some(Outcome::Wrong(_) | Outcome::Restarted)
            );
            return failed || restarted || self.near(started, "store");
        }
        match outcomes.last() {
            None if code == "store_unavailable" => self.lenient || self.near(started, "store"),
            // All available engines may have requested a pause (U23).
            None if ["rate_limit_exceeded", "server_is_overloaded"].contains(&code) => {
                self.registry.pushed_since(started)
            }
            None => nowhere && restarted,
            Some(Outcome::Restarted) => nowhere || code == "upstream_incomplete",
            Some(Outcome::Wrong(wrong)) => codes(*wrong).contains(&code) || nowhere && restarted,
            // Restarted engines answer 503 while they load.
            Some(_) => false,
        }
    }
}

/// Returns the error codes that a client may receive for a fault of the engine.
fn codes(wrong: EngineFault) -> &'static [&'static str] {
    match wrong {
        EngineFault::ResetAtOnce | EngineFault::FinAtOnce => &["upstream_reset"],
        EngineFault::ResetAfter(0) | EngineFault::FinAfter(0) => {
            &["upstream_reset", "upstream_incomplete"]
        }
        EngineFault::ResetAfter(_) | EngineFault::FinAfter(_) | EngineFault::EndAfter(_) => {
            &["upstream_incomplete"]
        }
        EngineFault::AbortAfter(_) => &["upstream_aborted"],
        EngineFault::ErrorAfter(_) => &["internal_error"],
        EngineFault::GarbageAfter(_) => &["upstream_invalid_event"],
        EngineFault::HangAfter(_) | EngineFault::SilentHead | EngineFault::RoleThenHang => {
            &["upstream_timeout"]
        }
        EngineFault::Status(429) => &["rate_limit_exceeded"],
        EngineFault::Status(503) => &["server_is_overloaded"],
        EngineFault::Status(500) => &["internal_error"],
        EngineFault::Status(_) => &[""],
        EngineFault::SlowFirst => &[],
    }
}

/// Returns true if a failure before the first token is retried on another engine.
fn is_retried(wrong: EngineFault) -> bool {
    !matches!(
        wrong,
        EngineFault::Status(400)
            | EngineFault::GarbageAfter(_)
            | EngineFault::EndAfter(_)
            | EngineFault::SlowFirst
    )
}
