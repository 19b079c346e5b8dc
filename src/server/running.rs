//! Registry of the requests that run, and of those that ended last, for operators.
//!
//! Takes: facts of a request as they become known. Gives: snapshots. Remembers: an entry for each running request,
//! and the last [`MAX_ENDED`] that have ended. Never: holds the content of a request, or takes its lock for each chunk.

use crate::error::Side;
use crate::telemetry::Gauge;
use http::Method;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Requests in progress.
#[derive(Clone, Default)]
pub(super) struct RunningState {
    /// Requests that run, and those that ended last.
    pub(super) registry: Arc<RequestRegistry>,
    /// Number of requests in progress.
    pub(super) requests: Arc<Gauge>,
    /// Number of these whose answer is read from the store and sent: downloads, and followed events.
    pub(super) stored_answers: Arc<Gauge>,
}

/// Number of ended requests that are remembered.
const MAX_ENDED: usize = 200;

/// Registry of the requests of the process.
#[derive(Default)]
pub(super) struct RequestRegistry(Mutex<RequestLists>);

#[derive(Default)]
struct RequestLists {
    /// Number of the next request.
    next: u64,
    /// Running requests by their number.
    running: BTreeMap<u64, Arc<RunningRequest>>,
    ended: VecDeque<RequestSnapshot>,
}

/// Facts of a request that are texts or references; written a few times in its life.
#[derive(Clone, Default)]
pub(super) struct RequestFacts {
    pub(super) id: Arc<str>,
    pub(super) method: Method,
    pub(super) path: Arc<str>,
    /// Model by the client's name for it.
    pub(super) model: Option<Arc<str>>,
    /// Name of the caller's key.
    pub(super) key: Option<Arc<str>>,
    /// Name of the upstream of the last attempt, and of its engine. An upstream itself is not held here, since it
    /// must go with the configuration that names it.
    pub(super) upstream: Option<(Arc<str>, &'static str)>,
}

/// Running request. Its numbers are written while its answer is relayed, without a lock.
pub(super) struct RunningRequest {
    number: u64,
    facts: Mutex<RequestFacts>,
    began: SystemTime,
    started: Instant,
    is_captured: AtomicBool,
    attempts: AtomicU32,
    /// Time until the first token, in microseconds; 0 before it.
    first_token: AtomicU64,
    chunks: AtomicU64,
    bytes: AtomicU64,
}

/// Snapshot of the numbers of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestNumbers {
    pub(super) is_captured: bool,
    pub(super) attempts: u32,
    pub(super) first_token: Option<Duration>,
    /// Tokens of the answer, as the engine counts them; while the request runs, the number of chunks.
    pub(super) tokens: u64,
    pub(super) bytes: u64,
    /// Time since the request began, or until it ended.
    pub(super) total: Duration,
}

/// Snapshot of a request; `outcome` is `None` while it runs.
#[derive(Clone)]
pub(super) struct RequestSnapshot {
    /// Number of the request in the process.
    pub(super) number: u64,
    pub(super) facts: RequestFacts,
    pub(super) began: SystemTime,
    pub(super) numbers: RequestNumbers,
    pub(super) outcome: Option<RequestOutcome>,
}

/// Outcome of a request.
#[derive(Clone)]
pub(super) struct RequestOutcome {
    /// Value of the log's field `end`.
    pub(super) end: &'static str,
    pub(super) side: Option<Side>,
    pub(super) status: Option<u16>,
    pub(super) code: Option<String>,
}

/// Entry of a running request in the registry. Dropping it removes the entry, so that a request that is cancelled
/// anywhere does not stay.
pub(super) struct RegistryEntry {
    registry: Arc<RequestRegistry>,
    running: Arc<RunningRequest>,
}

impl RequestRegistry {
    /// Adds a request that has just arrived.
    pub(super) fn begin(self: &Arc<Self>, id: Arc<str>) -> RegistryEntry {
        let mut requests = self.0.lock();
        let number = requests.next;
        requests.next += 1;
        let running = Arc::new(RunningRequest {
            number,
            facts: Mutex::new(RequestFacts {
                id,
                ..RequestFacts::default()
            }),
            began: SystemTime::now(),
            started: Instant::now(),
            is_captured: AtomicBool::new(false),
            attempts: AtomicU32::new(0),
            first_token: AtomicU64::new(0),
            chunks: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        });
        requests.running.insert(number, Arc::clone(&running));
        drop(requests);
        RegistryEntry {
            registry: Arc::clone(self),
            running,
        }
    }

    /// Returns the newest running requests, at most `limit`, and those that ended last; both the newest first.
    pub(super) fn list(&self, limit: usize) -> (Vec<RequestSnapshot>, Vec<RequestSnapshot>) {
        let (running, ended): (Vec<_>, Vec<_>) = {
            let requests = self.0.lock();
            let running = requests.running.values().rev().take(limit).cloned();
            (
                running.collect(),
                requests.ended.iter().rev().cloned().collect(),
            )
        };
        (
            running.iter().map(|request| request.snapshot()).collect(),
            ended,
        )
    }
}

impl RunningRequest {
    fn snapshot(&self) -> RequestSnapshot {
        let first_token = self.first_token.load(Ordering::Relaxed);
        RequestSnapshot {
            number: self.number,
            facts: self.facts.lock().clone(),
            began: self.began,
            numbers: RequestNumbers {
                is_captured: self.is_captured.load(Ordering::Relaxed),
                attempts: self.attempts.load(Ordering::Relaxed),
                first_token: (first_token > 0).then(|| Duration::from_micros(first_token)),
                tokens: self.chunks.load(Ordering::Relaxed),
                bytes: self.bytes.load(Ordering::Relaxed),
                total: self.started.elapsed(),
            },
            outcome: None,
        }
    }
}

impl RegistryEntry {
    /// Returns the number of the request in the process.
    pub(super) fn number(&self) -> u64 {
        self.running.number
    }

    /// Changes facts of the request.
    pub(super) fn update(&self, change: impl FnOnce(&mut RequestFacts)) {
        change(&mut self.running.facts.lock());
    }

    /// Notes that the exchange is captured.
    pub(super) fn captured(&self) {
        self.running.is_captured.store(true, Ordering::Relaxed);
    }

    /// Notes how many attempts there have been.
    pub(super) fn attempted(&self, attempts: u32) {
        self.running.attempts.store(attempts, Ordering::Relaxed);
    }

    /// Notes how far the answer is: the time until its first token, its chunks and bytes.
    pub(super) fn progress(&self, first_token: Option<Duration>, chunks: u64, bytes: usize) {
        let running = &self.running;
        let first_token = first_token.map_or(0, |time| {
            u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1)
        });
        running.first_token.store(first_token, Ordering::Relaxed);
        running.chunks.store(chunks, Ordering::Relaxed);
        running.bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// Moves the request to those that have ended. `change` completes its numbers.
    pub(super) fn end(self, outcome: RequestOutcome, change: impl FnOnce(&mut RequestNumbers)) {
        let mut snapshot = RequestSnapshot {
            outcome: Some(outcome),
            ..self.running.snapshot()
        };
        change(&mut snapshot.numbers);
        let mut requests = self.registry.0.lock();
        requests.running.remove(&self.number());
        if requests.ended.len() >= MAX_ENDED {
            requests.ended.pop_front();
        }
        requests.ended.push_back(snapshot);
    }
}

impl Drop for RegistryEntry {
    fn drop(&mut self) {
        self.registry.0.lock().running.remove(&self.number());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(requests: &[RequestSnapshot]) -> Vec<String> {
        requests
            .iter()
            .map(|request| request.facts.id.to_string())
            .collect()
    }

    fn running(registry: &RequestRegistry, limit: usize) -> Vec<String> {
        ids(&registry.list(limit).0)
    }

    #[test]
    fn requests_are_listed_from_their_begin_to_their_end() {
        let registry = Arc::new(RequestRegistry::default());
        let (a, b, c) = (
            registry.begin("a".into()),
            registry.begin("b".into()),
            registry.begin("c".into()),
        );
        assert_eq!(
            (running(&registry, 9), running(&registry, 2).len()),
            (vec!["c".into(), "b".into(), "a".into()], 2)
        );
        b.update(|facts| facts.model = Some("m".into()));
        b.progress(Some(Duration::from_nanos(1)), 3, 40);
        let snapshot = registry.list(9).0.remove(1);
        assert_eq!(snapshot.facts.model.as_deref(), Some("m"));
        assert_eq!((snapshot.numbers.tokens, snapshot.numbers.bytes), (3, 40));
        assert!(
            snapshot.numbers.first_token.is_some(),
            "the first token has come"
        );
        drop(a);
        let outcome = RequestOutcome {
            end: "complete",
            side: None,
            status: Some(200),
            code: None,
        };
        b.end(outcome, |numbers| numbers.tokens = 2);
        assert_eq!(running(&registry, 9), ["c"]);
        let ended = registry.list(9).1;
        assert_eq!(
            (ids(&ended), ended[0].numbers.tokens),
            (vec!["b".to_owned()], 2)
        );
        drop(c);
        assert_eq!(
            (running(&registry, 9).len(), registry.list(9).1.len()),
            (0, 1)
        );
    }

    #[test]
    fn the_last_that_ended_are_kept() {
        let registry = Arc::new(RequestRegistry::default());
        for number in 0..MAX_ENDED + 5 {
            let outcome = RequestOutcome {
                end: "complete",
                side: None,
                status: Some(200),
                code: None,
            };
            registry
                .begin(number.to_string().into())
                .end(outcome, |_| {});
        }
        let ended = ids(&registry.list(9).1);
        assert_eq!(
            (
                ended.len(),
                ended[0].as_str(),
                ended[MAX_ENDED - 1].as_str()
            ),
            (MAX_ENDED, "204", "5")
        );
    }
}
