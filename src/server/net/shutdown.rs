//! Shutdown of the process, in phases (faults 9).
//!
//! ```text
//! Serving ─(SIGTERM or a drain)→ Settling ─(`timeouts.settle`)→ Draining ─(`timeouts.drain`)→ Cut
//! ```
//!
//! A drain can be cancelled at any time, which restores normal service; a signal cannot.
//!
//! An interrupt from a terminal skips settling, since no load balancer waits for it. A second one cuts at once.

use super::listener::Reopening;
use super::service_manager;
use crate::server::ActiveConfig;
use crate::server::App;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Context;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Interval at which the end of all requests is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Time after the cut in which requests report it, and time in which operators who wait for the end receive their
/// answer.
const REPORT_TIME: Duration = Duration::from_secs(1);

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
    waiting: watch::Sender<usize>,
    /// Requests of operators to cancel a drain.
    cancellations: mpsc::Sender<DrainCancel>,
}

/// Channel on which an operator who cancels a drain receives the result.
pub(in crate::server) type DrainCancel = oneshot::Sender<Result<(), String>>;

/// Capacity for cancellations at the same moment; further ones wait.
const MAX_CANCELLATIONS: usize = 4;
/// Answer to an operator who tries to cancel the end of the process.
const ENDING: &str = "the process is ending, as a signal has asked it to; that cannot be taken back";

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
        result.await.unwrap_or_else(|_| Err(ENDING.to_owned())).map(|()| true)
    }

    pub(in crate::server) fn phase(&self) -> Phase {
        Phase::of(self.state())
    }

    fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// Returns to normal service. Sets the phase bits to 0 and counts one more cancelled drain in the bits above, so
    /// that a task that was not polled meanwhile sees another state.
    fn resume_service(&self) {
        self.changes.send_modify(|current| {
            *current = Phase::Serving;
            self.state.store((self.state() | PHASE_MASK).wrapping_add(1), Ordering::Release);
        });
    }

    /// Advances to `phase`; an earlier phase is reached only by [`Self::resume_service`].
    pub(in crate::server) fn reach(&self, phase: Phase) {
        self.changes.send_if_modified(|current| {
            let later = phase > *current;
            if later {
                *current = phase;
                self.state.store(self.state() & !PHASE_MASK | phase as u32, Ordering::Release);
            }
            later
        });
    }

    pub(in crate::server) fn subscribe(&self) -> watch::Receiver<Phase> {
        self.changes.subscribe()
    }

    async fn drain_cancelled(&self) {
        // The channel cannot close: `self` owns the sender.
        let _ = self.subscribe().wait_for(|current| *current == Phase::Serving).await;
    }

    async fn reached(&self, phase: Phase) {
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
        Self { changes: Box::pin(async move { while phases.changed().await.is_ok() {} }), state: None }
    }

    /// Returns the phase if it changed since the last call; the task is woken at each change.
    pub(in crate::server) fn poll(&mut self, cx: &mut Context<'_>, shutdown: &Shutdown) -> Option<Phase> {
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
        self.state.filter(|state| before != Some(*state)).map(Phase::of)
    }
}

impl App {
    pub(in crate::server) fn phase(&self) -> Phase {
        self.shutdown.phase()
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
        self.shutdown.reached(Phase::Cut).await;
    }

    /// Returns the number of responses in progress, for waiting clients and in the background.
    pub(in crate::server) fn under_way(&self) -> usize {
        // A background response counts in both: as a request until its record is dropped, as a job until it is stored.
        // A sum would count it twice.
        usize::try_from(self.requests.value()).unwrap_or(0).max(self.background_jobs.count())
    }

    /// Starts a drain and returns the number of requests left once all have ended or were cut; `None` if the drain
    /// was cancelled.
    pub(in crate::server) async fn drain_and_wait(&self) -> Option<usize> {
        self.shutdown.reach(Phase::Settling);
        let _waiter = DrainWaiter::begin(&self.shutdown.waiting);
        tokio::select! {
            () = self.shutdown.drain_cancelled() => None,
            () = self.emptied() => Some(self.under_way()),
        }
    }

    /// Returns when all requests have ended, or were cut and had [`REPORT_TIME`] to report it.
    async fn emptied(&self) {
        self.shutdown.reached(Phase::Draining).await;
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

/// Signals that end the process. Once registered, none is lost.
pub(in crate::server) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` if SIGHUP has another purpose.
    hangup: Option<Signal>,
}

impl Signals {
    /// Registers the signals. `hangs_up` makes the end of the terminal end the process too.
    ///
    /// # Errors
    /// The system does not allow it.
    pub(in crate::server) fn take(hangs_up: bool) -> io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let hangup = hangs_up.then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self { terminate, interrupt, hangup })
    }

    /// Waits for the next signal; returns true if it is an interrupt.
    pub(in crate::server) async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.terminate.recv() => false,
            _ = self.interrupt.recv() => true,
            Some(()) = hung_up(&mut self.hangup) => false,
        }
    }
}

async fn hung_up(signal: &mut Option<Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Driver of the shutdown: reacts to signals and operators and advances the phases.
pub(in crate::server) struct ShutdownDriver {
    active_config: Arc<ActiveConfig>,
    shutdown: Arc<Shutdown>,
    signals: Signals,
    cancellations: mpsc::Receiver<DrainCancel>,
    /// True if the process is to end; false if it only drains and stays.
    is_ending: bool,
    interrupts: u32,
    /// Time at which running requests are cut.
    deadline: Option<Instant>,
}

/// Event that the shutdown reacts to: a signal of the system, or an operator who cancels a drain.
enum ShutdownEvent {
    Signal,
    CancelDrain(DrainCancel),
}

impl ShutdownDriver {
    /// Creates the driver for this process. `cancellations` receives cancelled drains.
    pub(in crate::server) fn of(
        active_config: &Arc<ActiveConfig>,
        signals: Signals,
        cancellations: mpsc::Receiver<DrainCancel>,
    ) -> Self {
        Self {
            active_config: Arc::clone(active_config),
            shutdown: Arc::clone(&active_config.app().shutdown),
            signals,
            cancellations,
            is_ending: false,
            interrupts: 0,
            deadline: None,
        }
    }

    /// Waits for a signal or an operator's drain, then until load balancers have noticed. Returns when no more
    /// connections are to be accepted.
    pub(in crate::server) async fn wait_until_settled(&mut self) {
        let shutdown = Arc::clone(&self.shutdown);
        loop {
            let event = tokio::select! {
                event = self.next_event() => Some(event),
                () = shutdown.reached(Phase::Settling) => None,
            };
            if let Some(ShutdownEvent::CancelDrain(cancel)) = event {
                self.resume_service(cancel);
                continue;
            }
            let app = self.active_config.app();
            tracing::info!(requests = app.requests.value(), "draining");
            shutdown.reach(Phase::Settling);
            service_manager::draining(self.is_ending);
            if self.wait_settle_time(*app.config.timeouts.settle).await {
                return;
            }
        }
    }

    /// Waits until load balancers have noticed the drain. Returns false if the drain was cancelled.
    async fn wait_settle_time(&mut self, time: Duration) -> bool {
        let settled = sleep(time);
        tokio::pin!(settled);
        while self.interrupts == 0 {
            tokio::select! {
                () = &mut settled => break,
                event = self.next_event() => if let ShutdownEvent::CancelDrain(cancel) = event {
                    self.resume_service(cancel);
                    return false;
                }
            }
        }
        true
    }

    /// Lets running requests end after an operator's drain, and waits for the next event. Returns a new listener if the
    /// drain is cancelled, `None` when the process is to end.
    pub(in crate::server) async fn wait_for_cancelled_drain(
        &mut self,
        reopening: &Reopening,
    ) -> Option<TcpListener> {
        let shutdown = Arc::clone(&self.shutdown);
        let deadline = self.begin_draining();
        let cut = async {
            sleep_until(deadline).await;
            shutdown.reach(Phase::Cut);
            std::future::pending::<Infallible>().await
        };
        tokio::pin!(cut);
        while !self.is_ending {
            let event = tokio::select! {
                never = &mut cut => match never {},
                event = self.next_event() => event,
            };
            let ShutdownEvent::CancelDrain(cancel) = event else { continue };
            match reopening.listen() {
                Ok(listener) => {
                    self.resume_service(cancel);
                    return Some(listener);
                }
                Err(error) => {
                    tracing::error!(%error, "the drain cannot be taken back");
                    let _ = cancel.send(Err(error.to_string()));
                }
            }
        }
        None
    }

    /// Returns when all connections have ended, which `connections_closed` reports, or were cut.
    pub(in crate::server) async fn wait_for_connections(
        &mut self,
        connections_closed: impl Future<Output = ()>,
    ) {
        let app = self.active_config.app();
        let deadline = self.begin_draining();
        let cut = async {
            tokio::select! {
                () = sleep_until(deadline) => {}
                () = app.cut() => {}
            }
            app.shutdown.reach(Phase::Cut);
            sleep(*app.config.timeouts.flush).await;
        };
        let ended = async {
            tokio::select! {
                () = connections_closed => {}
                () = cut => {}
            }
        };
        tokio::pin!(ended);
        loop {
            tokio::select! {
                () = &mut ended => break,
                _ = self.next_event() => {}
            }
        }
        let operators_answered = async {
            let _ = app.shutdown.waiting.subscribe().wait_for(|waiting| *waiting == 0).await;
        };
        let _ = tokio::time::timeout(REPORT_TIME, operators_answered).await;
    }

    /// Advances to draining and returns the time at which running requests are cut.
    fn begin_draining(&mut self) -> Instant {
        self.shutdown.reach(Phase::Draining);
        let time = *self.active_config.app().config.timeouts.drain;
        *self.deadline.get_or_insert_with(|| Instant::now() + time)
    }

    fn resume_service(&mut self, cancel: DrainCancel) {
        self.deadline = None;
        // Another operator may have been faster.
        if self.shutdown.phase() > Phase::Serving {
            self.shutdown.resume_service();
            tracing::info!("the drain was taken back");
            service_manager::resumed();
        }
        // The operator may have disconnected.
        let _ = cancel.send(Ok(()));
    }

    /// Waits for the next signal, or for an operator who cancels a drain. A second interrupt cuts running
    /// requests; a second SIGTERM changes nothing.
    async fn next_event(&mut self) -> ShutdownEvent {
        let is_interrupt = tokio::select! {
            is_interrupt = self.signals.next() => is_interrupt,
            Some(cancel) = self.cancellations.recv() => return ShutdownEvent::CancelDrain(cancel),
        };
        self.is_ending = true;
        service_manager::draining(true);
        // Closing the channel answers the operators that wait.
        self.cancellations.close();
        while self.cancellations.try_recv().is_ok() {}
        self.interrupts += u32::from(is_interrupt);
        if self.interrupts > 1 {
            self.shutdown.reach(Phase::Cut);
        }
        ShutdownEvent::Signal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::task::{ArcWake, waker};
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
