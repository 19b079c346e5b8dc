//! The end of the process, step by step (faults 9).
//!
//! ```text
//! Serving ─→ Settling ─→ Draining ─→ Cut
//!    SIGTERM or a drain   settle      drain
//! ```
//!
//! A drain can be taken back at any time, and everything is as before; a signal cannot.
//!
//! An interrupt from a terminal does not settle: no load balancer waits for it. A second one cuts at once.

use super::accept::reopen;
use super::{ActiveConfig, App};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Context;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// How often it is looked whether everything has ended.
const LOOK: Duration = Duration::from_millis(20);
/// How long those who wait for that may take to be told.
const TELL: Duration = Duration::from_secs(1);

/// How near the end of the process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It is not in sight.
    Serving,
    /// Not ready any more, but whoever still comes is served.
    Settling,
    /// Running requests go on to their end; connections are closed behind them.
    Draining,
    /// What still runs is cut.
    Cut,
}

/// The bits of a state that are its phase.
const PHASE: u32 = 3;

impl Phase {
    fn of(state: u32) -> Self {
        match state & PHASE {
            0 => Self::Serving,
            1 => Self::Settling,
            2 => Self::Draining,
            _ => Self::Cut,
        }
    }
}

/// The phases as they follow each other.
pub(super) struct Shutdown {
    /// The present one, and above its bits how many drains have been taken back. Streams look at it for each token, which behind the
    /// lock of `changes` could be felt.
    state: AtomicU32,
    changes: watch::Sender<Phase>,
    /// Operators that wait for the end of all requests.
    waiting: watch::Sender<usize>,
    /// Operators that take a drain back.
    undos: mpsc::Sender<DrainCancel>,
}

/// An operator takes a drain back, and is told what comes of it.
pub(super) type DrainCancel = oneshot::Sender<Result<(), String>>;

/// Operators that take a drain back at the same moment; more of them wait.
const UNDOS: usize = 4;
/// The answer to an operator who takes back the end of the process.
const GOING: &str = "the process is ending, as a signal has asked it to; that cannot be taken back";

impl Shutdown {
    /// Returns the phases of a process that serves, and what operators take back of them.
    pub(super) fn new() -> (Self, mpsc::Receiver<DrainCancel>) {
        let (undos, asked) = mpsc::channel(UNDOS);
        let this = Self {
            state: AtomicU32::new(Phase::Serving as u32),
            changes: watch::Sender::new(Phase::Serving),
            waiting: watch::Sender::new(0),
            undos,
        };
        (this, asked)
    }

    /// Takes a drain back, and returns when connections are accepted again; false, if there is none.
    ///
    /// # Errors
    /// The process ends, or cannot listen any more.
    pub(super) async fn take_back(&self) -> Result<bool, String> {
        if self.phase() == Phase::Serving {
            return Ok(false);
        }
        let (cancel, told) = oneshot::channel();
        // Nobody hears it any more once a signal has come.
        let _ = self.undos.send(cancel).await;
        told.await.unwrap_or_else(|_| Err(GOING.to_owned())).map(|()| true)
    }

    pub(super) fn phase(&self) -> Phase {
        Phase::of(self.state())
    }

    fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// Serves again.
    fn begin_again(&self) {
        self.changes.send_modify(|present| {
            *present = Phase::Serving;
            // Whoever has slept through the drain sees another state all the same.
            self.state.store((self.state() | PHASE).wrapping_add(1), Ordering::Release);
        });
    }

    /// Goes on to `phase`; back only by [`Self::begin_again`].
    pub(super) fn reach(&self, phase: Phase) {
        self.changes.send_if_modified(|present| {
            let later = phase > *present;
            if later {
                *present = phase;
                self.state.store(self.state() & !PHASE | phase as u32, Ordering::Release);
            }
            later
        });
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Phase> {
        self.changes.subscribe()
    }

    async fn taken_back(&self) {
        // The sender is this very struct's.
        let _ = self.subscribe().wait_for(|present| *present == Phase::Serving).await;
    }

    async fn reached(&self, phase: Phase) {
        // The sender is this very struct's.
        let _ = self.subscribe().wait_for(|present| *present >= phase).await;
    }
}

/// The phases as one task sees them that is polled for each token.
pub(super) struct PhaseWatcher {
    changes: Pin<Box<dyn Future<Output = ()> + Send>>,
    state: Option<u32>,
}

impl PhaseWatcher {
    pub(super) fn of(shutdown: &Shutdown) -> Self {
        let mut phases = shutdown.subscribe();
        Self { changes: Box::pin(async move { while phases.changed().await.is_ok() {} }), state: None }
    }

    /// The phase, if there was a change since the last time; the task is woken when it changes.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, shutdown: &Shutdown) -> Option<Phase> {
        let before = self.state;
        // The task's waker never changes, so while it serves, once is enough; for each token it would cost a lock.
        // Later a wake may still belong to the change before, and must be answered by asking again. The state is
        // read again after that: it may have gone on before the waker was known.
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
    pub(super) fn phase(&self) -> Phase {
        self.shutdown.phase()
    }

    pub(super) fn is_draining(&self) -> bool {
        self.phase() >= Phase::Settling
    }

    pub(super) fn refuses(&self) -> bool {
        self.phase() >= Phase::Draining
    }

    pub(super) fn is_cut(&self) -> bool {
        self.phase() == Phase::Cut
    }

    /// Returns when what still runs is cut.
    pub(super) async fn cut(&self) {
        self.shutdown.reached(Phase::Cut).await;
    }

    /// Answers that are being made, for clients that wait and in the background.
    pub(super) fn under_way(&self) -> usize {
        usize::try_from(self.requests.value()).unwrap_or(0).max(self.runs.count())
    }

    /// Begins to drain, and returns when nothing is under way any more, or has been cut, with what is left then; or nothing, when
    /// the drain has been taken back.
    pub(super) async fn drained(&self) -> Option<usize> {
        self.shutdown.reach(Phase::Settling);
        let _told = DrainWaiter::begin(&self.shutdown.waiting);
        tokio::select! {
            () = self.shutdown.taken_back() => None,
            () = self.emptied() => Some(self.under_way()),
        }
    }

    /// Returns when a drain has come to its end.
    async fn emptied(&self) {
        self.shutdown.reached(Phase::Draining).await;
        let flush = async {
            self.cut().await;
            sleep(TELL).await;
        };
        let idle = async {
            while self.under_way() > 0 {
                sleep(LOOK).await;
            }
        };
        tokio::select! {
            () = idle => {}
            () = flush => {}
        }
    }
}

/// An operator waits; counted until dropped.
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

/// The signals that end the process. From the moment on in which they are taken none is lost.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None`: it means something else.
    hangup: Option<Signal>,
}

impl Signals {
    /// Takes them. `hangs_up`: the end of the terminal ends the process, too.
    ///
    /// # Errors
    /// The system does not give them.
    pub(super) fn take(hangs_up: bool) -> io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let hangup = hangs_up.then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self { terminate, interrupt, hangup })
    }

    /// One has come. Gives whether it is an interrupt.
    pub(super) async fn next(&mut self) -> bool {
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

/// What ends the process.
pub(super) struct ShutdownCause {
    present: Arc<ActiveConfig>,
    shutdown: Arc<Shutdown>,
    signals: Signals,
    undos: mpsc::Receiver<DrainCancel>,
    /// The process is to go; else it was only asked to drain, and stays.
    goes: bool,
    interrupts: u32,
    /// The time at which running requests are cut.
    deadline: Option<Instant>,
}

/// An event that the end of the process acts on.
enum ShutdownEvent {
    Signal,
    Undo(DrainCancel),
}

impl ShutdownCause {
    /// Returns the end of this process. `undos`: the drains that operators take back.
    pub(super) fn of(
        present: &Arc<ActiveConfig>,
        signals: Signals,
        undos: mpsc::Receiver<DrainCancel>,
    ) -> Self {
        Self {
            present: Arc::clone(present),
            shutdown: Arc::clone(&present.app().shutdown),
            signals,
            undos,
            goes: false,
            interrupts: 0,
            deadline: None,
        }
    }

    /// Returns when no more connections are to be accepted.
    pub(super) async fn settled(&mut self) {
        let shutdown = Arc::clone(&self.shutdown);
        loop {
            let word = tokio::select! {
                word = self.word() => Some(word),
                () = shutdown.reached(Phase::Settling) => None,
            };
            if let Some(ShutdownEvent::Undo(cancel)) = word {
                self.begin_again(cancel);
                continue;
            }
            let app = self.present.app();
            tracing::info!(requests = app.requests.value(), "draining");
            shutdown.reach(Phase::Settling);
            if self.settles(*app.config.timeouts.settle).await {
                return;
            }
        }
    }

    /// Waits until load balancers have taken notice; whether the drain goes on.
    async fn settles(&mut self, time: Duration) -> bool {
        let settled = sleep(time);
        tokio::pin!(settled);
        while self.interrupts == 0 {
            tokio::select! {
                () = &mut settled => break,
                word = self.word() => if let ShutdownEvent::Undo(cancel) = word {
                    self.begin_again(cancel);
                    return false;
                }
            }
        }
        true
    }

    /// Lets running requests end after an operator's drain, and waits for what comes then: gives a listener at `address` if the drain
    /// is taken back, nothing when the process is to go.
    pub(super) async fn taken_back(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let shutdown = Arc::clone(&self.shutdown);
        let deadline = self.drains();
        let cut = async {
            sleep_until(deadline).await;
            shutdown.reach(Phase::Cut);
            std::future::pending::<Infallible>().await
        };
        tokio::pin!(cut);
        while !self.goes {
            let word = tokio::select! {
                never = &mut cut => match never {},
                word = self.word() => word,
            };
            let ShutdownEvent::Undo(cancel) = word else { continue };
            match reopen("proxy", address) {
                Ok(listener) => {
                    self.begin_again(cancel);
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

    /// Returns when everything has ended, which `gone` says, or has been cut.
    pub(super) async fn drained(&mut self, gone: impl Future<Output = ()>) {
        let app = self.present.app();
        let deadline = self.drains();
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
                () = gone => {}
                () = cut => {}
            }
        };
        tokio::pin!(ended);
        loop {
            tokio::select! {
                () = &mut ended => break,
                _ = self.word() => {}
            }
        }
        let told = async {
            let _ = app.shutdown.waiting.subscribe().wait_for(|waiting| *waiting == 0).await;
        };
        let _ = tokio::time::timeout(TELL, told).await;
    }

    /// Takes no more requests; gives when those are cut that run.
    fn drains(&mut self) -> Instant {
        self.shutdown.reach(Phase::Draining);
        let time = *self.present.app().config.timeouts.drain;
        *self.deadline.get_or_insert_with(|| Instant::now() + time)
    }

    fn begin_again(&mut self, cancel: DrainCancel) {
        self.deadline = None;
        // Another operator may have been faster.
        if self.shutdown.phase() > Phase::Serving {
            self.shutdown.begin_again();
            tracing::info!("the drain was taken back");
        }
        // An operator that has gone sees it all the same.
        let _ = cancel.send(Ok(()));
    }

    /// The next signal that ends the process, or operator that takes a drain back. A second interrupt cuts what runs; a second
    /// SIGTERM changes nothing.
    async fn word(&mut self) -> ShutdownEvent {
        let is_interrupt = tokio::select! {
            is_interrupt = self.signals.next() => is_interrupt,
            Some(cancel) = self.undos.recv() => return ShutdownEvent::Undo(cancel),
        };
        self.goes = true;
        // Whoever waits there is told by that.
        self.undos.close();
        while self.undos.try_recv().is_ok() {}
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

    /// A task that is polled only after a drain has been taken back hears of the next one.
    #[test]
    fn a_drain_that_was_slept_through_wakes_again() {
        let (shutdown, _undos) = Shutdown::new();
        let wakes = Arc::new(Wakes::default());
        let waker = waker(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        let mut seen = PhaseWatcher::of(&shutdown);
        assert_eq!(seen.poll(&mut cx, &shutdown), Some(Phase::Serving));
        assert_eq!(seen.poll(&mut cx, &shutdown), None);
        for round in 1..=3 {
            shutdown.reach(Phase::Settling);
            shutdown.begin_again();
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
