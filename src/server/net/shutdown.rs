//! Shutdown of the process, in phases (faults 9).
//!
//! ```text
//! Serving ─(SIGTERM or a drain)→ Settling ─(`timeouts.settle`)→ Draining ─(`timeouts.drain`)→ Cut
//! ```
//!
//! A drain can be cancelled at any time, which restores normal service; a signal cannot.
//!
//! An interrupt from a terminal skips settling, since no load balancer waits for it. A second one cuts at once.

use crate::server::App;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Context;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

/// Interval at which the end of all requests is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Time after the cut in which requests report it, and time in which operators who wait for the end receive their
/// answer.
pub(in crate::server) const REPORT_TIME: Duration = Duration::from_secs(1);

/// Phase of the shutdown, in order. Only a cancelled drain goes back to an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) enum Phase {
    /// Normal service.
    Serving,
    /// Readiness is withdrawn, but new requests are still served.
    Settling,
    /// Running requests are completed; connections are closed after them.
    Draining,
    /// Requests that still run are ended.
    Cut,
}

/// Bits of the state that hold the phase.
const PHASE_MASK: u32 = 3;

impl Phase {
    fn of(state: u32) -> Self {
        match state & PHASE_MASK {
            0 => Self::Serving,
            1 => Self::Settling,
            2 => Self::Draining,
            _ => Self::Cut,
        }
    }
}

/// Current phase of the shutdown, shared by all tasks, and the channels by which operators follow and cancel a
/// drain.
pub(in crate::server) struct Shutdown {
    /// Current phase, and in the higher bits the number of cancelled drains. Streams read it for each token, where
    /// the lock of `changes` would cost noticeable time.
    state: AtomicU32,
    changes: watch::Sender<Phase>,
    /// Number of operators that wait for the end of all requests.
    pub(in crate::server) waiting: watch::Sender<usize>,
    /// Requests of operators to cancel a drain.
    cancellations: mpsc::Sender<DrainCancel>,
}

/// Channel on which an operator who cancels a drain receives the result.
pub(in crate::server) type DrainCancel = oneshot::Sender<Result<(), String>>;

/// Capacity for cancellations at the same moment; further ones wait.
const MAX_CANCELLATIONS: usize = 4;
/// Answer to an operator who tries to cancel the end of the process.
const ENDING: &str =
    "the process is ending, as a signal has asked it to; that cannot be taken back";

impl Shutdown {
    /// Returns the state of a process in normal service, and the receiver for cancelled drains.
    pub(in crate::server) fn new() -> (Self, mpsc::Receiver<DrainCancel>) {
        let (cancellations, requested) = mpsc::channel(MAX_CANCELLATIONS);
        let this = Self {
            state: AtomicU32::new(Phase::Serving as u32),
            changes: watch::Sender::new(Phase::Serving),
            waiting: watch::Sender::new(0),
            cancellations,
        };
        (this, requested)
    }

    /// Cancels a drain and returns once connections are accepted again; false if there is no drain.
    ///
    /// # Errors
    /// The process is ending, or cannot listen any more.
    pub(in crate::server) async fn cancel_drain(&self) -> Result<bool, String> {
        if self.phase() == Phase::Serving {
            return Ok(false);
        }
        let (cancel, result) = oneshot::channel();
        // After a signal the receiver is closed.
        let _ = self.cancellations.send(cancel).await;
        result
            .await
            .unwrap_or_else(|_| Err(ENDING.to_owned()))
            .map(|()| true)
    }

    pub(in crate::server) fn phase(&self) -> Phase {
        Phase::of(self.state())
    }

    fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// Returns to normal service. Sets the phase bits to 0 and counts one more cancelled drain in the bits above, so
    /// that a task that was not polled meanwhile sees another state.
    pub(in crate::server) fn resume_service(&self) {
        self.changes.send_modify(|current| {
            *current = Phase::Serving;
            self.state.store(
                (self.state() | PHASE_MASK).wrapping_add(1),
                Ordering::Release,
            );
        });
    }

    /// Advances to `phase`; an earlier phase is reached only by [`Self::resume_service`].
    pub(in crate::server) fn reach(&self, phase: Phase) {
        self.changes.send_if_modified(|current| {
            let later = phase > *current;
            if later {
                *current = phase;
                self.state
                    .store(self.state() & !PHASE_MASK | phase as u32, Ordering::Release);
            }
            later
        });
    }

    pub(in crate::server) fn subscribe(&self) -> watch::Receiver<Phase> {
        self.changes.subscribe()
    }

    async fn drain_cancelled(&self) {
        // The channel cannot close: `self` owns the sender.
        let _ = self
            .subscribe()
            .wait_for(|current| *current == Phase::Serving)
            .await;
    }

    pub(in crate::server) async fn reached(&self, phase: Phase) {
        // The channel cannot close: `self` owns the sender.
        let _ = self.subscribe().wait_for(|current| *current >= phase).await;
    }
}

/// Watcher of the phase for a task that is polled for each token.
pub(in crate::server) struct PhaseWatcher {
    changes: Pin<Box<dyn Future<Output = ()> + Send>>,
    state: Option<u32>,
}

impl PhaseWatcher {
    pub(in crate::server) fn of(shutdown: &Shutdown) -> Self {
        let mut phases = shutdown.subscribe();
        Self {
            changes: Box::pin(async move { while phases.changed().await.is_ok() {} }),
            state: None,
        }
    }

    /// Returns the phase if it changed since the last call; the task is woken at each change.
    pub(in crate::server) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        shutdown: &Shutdown,
    ) -> Option<Phase> {
        let before = self.state;
        // The task's waker never changes, so during normal service one registration is enough; one for each token
        // would cost a lock. Later, a wake may belong to the previous change and must be followed by a new
        // registration. The state is read again afterwards: it may have changed before the waker was registered.
        loop {
            let state = shutdown.state();
            if self.state.replace(state) == Some(state) && Phase::of(state) == Phase::Serving {
                break;
            }
            let _ = self.changes.as_mut().poll(cx);
            if shutdown.state() == state {
                break;
            }
        }
        self.state
            .filter(|state| before != Some(*state))
            .map(Phase::of)
    }
}

impl App {
    pub(in crate::server) fn phase(&self) -> Phase {
        self.net.shutdown.phase()
    }

    /// Returns true from [`Phase::Settling`] on: readiness is withdrawn.
    pub(in crate::server) fn is_shutting_down(&self) -> bool {
        self.phase() >= Phase::Settling
    }

    /// Returns true from [`Phase::Draining`] on: new requests are refused.
    pub(in crate::server) fn refuses_requests(&self) -> bool {
        self.phase() >= Phase::Draining
    }

    pub(in crate::server) fn is_cut(&self) -> bool {
        self.phase() == Phase::Cut
    }

    /// Returns when the phase [`Phase::Cut`] is reached.
    pub(in crate::server) async fn cut(&self) {
        self.net.shutdown.reached(Phase::Cut).await;
    }

    /// Returns the number of responses in progress, for waiting clients and in the background.
    pub(in crate::server) fn under_way(&self) -> usize {
        // A background response counts in both: as a request until its record is dropped, as a job until it is stored.
        // A sum would count it twice.
        usize::try_from(self.running.requests.value())
            .unwrap_or(0)
            .max(self.responses.background_jobs.count())
    }

    /// Starts a drain and returns the number of requests left once all have ended or were cut; `None` if the drain
    /// was cancelled.
    pub(in crate::server) async fn drain_and_wait(&self) -> Option<usize> {
        self.net.shutdown.reach(Phase::Settling);
        let _waiter = DrainWaiter::begin(&self.net.shutdown.waiting);
        tokio::select! {
            () = self.net.shutdown.drain_cancelled() => None,
            () = self.emptied() => Some(self.under_way()),
        }
    }

    /// Returns when all requests have ended, or were cut and had [`REPORT_TIME`] to report it.
    async fn emptied(&self) {
        self.net.shutdown.reached(Phase::Draining).await;
        let cut_and_reported = async {
            self.cut().await;
            sleep(REPORT_TIME).await;
        };
        let idle = async {
            while self.under_way() > 0 {
                sleep(CHECK_INTERVAL).await;
            }
        };
        tokio::select! {
            () = idle => {}
            () = cut_and_reported => {}
        }
    }
}

/// Guard that counts a waiting operator until it is dropped.
struct DrainWaiter<'c>(&'c watch::Sender<usize>);

impl<'c> DrainWaiter<'c> {
    fn begin(waiting: &'c watch::Sender<usize>) -> Self {
        waiting.send_modify(|waiting| *waiting += 1);
        Self(waiting)
    }
}

impl Drop for DrainWaiter<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::task::{ArcWake, waker};
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl ArcWake for Wakes {
        fn wake_by_ref(this: &Arc<Self>) {
            this.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Regression test: a task that is polled only after a drain was cancelled is still woken by the next one.
    #[test]
    fn a_drain_that_was_slept_through_wakes_again() {
        let (shutdown, _cancellations) = Shutdown::new();
        let wakes = Arc::new(Wakes::default());
        let waker = waker(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        let mut seen = PhaseWatcher::of(&shutdown);
        assert_eq!(seen.poll(&mut cx, &shutdown), Some(Phase::Serving));
        assert_eq!(seen.poll(&mut cx, &shutdown), None);
        for round in 1..=3 {
            shutdown.reach(Phase::Settling);
            shutdown.resume_service();
            assert_eq!(wakes.0.load(Ordering::Relaxed), round);
            assert_eq!(seen.poll(&mut cx, &shutdown), Some(Phase::Serving));
            assert_eq!(seen.poll(&mut cx, &shutdown), None);
        }
        shutdown.reach(Phase::Draining);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 4);
        assert_eq!(seen.poll(&mut cx, &shutdown), Some(Phase::Draining));
        shutdown.reach(Phase::Settling);
        assert_eq!(shutdown.phase(), Phase::Draining);
    }
}
