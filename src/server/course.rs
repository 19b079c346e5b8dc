//! The end of the process, step by step (faults 9).
//!
//! ```text
//! Serving ─→ Settling ─→ Draining ─→ Cut
//!    SIGTERM or a drain   settle      drain
//! ```
//!
//! An interrupt from a terminal does not settle: no load balancer waits for it. A second one cuts at once.

use super::{App, Present};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Context;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

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

/// The phases as they follow each other.
pub(super) struct Course {
    /// The present one. Streams look at it for each token, which behind the lock of `changes` could be felt.
    phase: AtomicU8,
    changes: watch::Sender<Phase>,
    /// Operators that wait for the end of all requests.
    waiting: watch::Sender<usize>,
}

impl Default for Course {
    fn default() -> Self {
        Self {
            phase: AtomicU8::new(Phase::Serving as u8),
            changes: watch::Sender::new(Phase::Serving),
            waiting: watch::Sender::new(0),
        }
    }
}

impl Course {
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Serving,
            1 => Phase::Settling,
            2 => Phase::Draining,
            _ => Phase::Cut,
        }
    }

    /// Goes on to `phase`, never back.
    pub(super) fn reach(&self, phase: Phase) {
        self.changes.send_if_modified(|present| {
            let later = phase > *present;
            if later {
                *present = phase;
                self.phase.store(phase as u8, Ordering::Release);
            }
            later
        });
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Phase> {
        self.changes.subscribe()
    }

    async fn reached(&self, phase: Phase) {
        // The sender is this very struct's.
        let _ = self.subscribe().wait_for(|present| *present >= phase).await;
    }
}

/// The phases as one task sees them that is polled for each token.
pub(super) struct Seen {
    changes: Pin<Box<dyn Future<Output = ()> + Send>>,
    phase: Option<Phase>,
}

impl Seen {
    pub(super) fn of(course: &Course) -> Self {
        let mut phases = course.subscribe();
        Self { changes: Box::pin(async move { while phases.changed().await.is_ok() {} }), phase: None }
    }

    /// The phase, if it is another one than the last time; the task is woken when it changes.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, course: &Course) -> Option<Phase> {
        let before = self.phase;
        // The task's waker never changes, so while it serves, once is enough; for each token it would cost a lock.
        // Later a wake may still belong to the change before, and must be answered by asking again. The phase is
        // read again after that: it may have gone on before the waker was known.
        loop {
            let phase = course.phase();
            if self.phase.replace(phase) == Some(phase) && phase == Phase::Serving {
                break;
            }
            let _ = self.changes.as_mut().poll(cx);
            if course.phase() == phase {
                break;
            }
        }
        self.phase.filter(|phase| before != Some(*phase))
    }
}

impl App {
    pub(super) fn phase(&self) -> Phase {
        self.course.phase()
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
        self.course.reached(Phase::Cut).await;
    }

    /// Answers that are being made, for clients that wait and in the background.
    pub(super) fn under_way(&self) -> usize {
        usize::try_from(self.requests.value()).unwrap_or(0).max(self.runs.count())
    }

    /// Begins to drain, and returns when nothing is under way any more, or has been cut. Gives what is left.
    pub(super) async fn drained(&self) -> usize {
        self.course.reach(Phase::Settling);
        let _told = Waiting::begin(&self.course.waiting);
        self.course.reached(Phase::Draining).await;
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
        self.under_way()
    }
}

/// An operator waits; counted until dropped.
struct Waiting<'c>(&'c watch::Sender<usize>);

impl<'c> Waiting<'c> {
    fn begin(waiting: &'c watch::Sender<usize>) -> Self {
        waiting.send_modify(|waiting| *waiting += 1);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

/// The signals that end the process. From the moment on in which they are taken none is lost.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes them.
    ///
    /// # Errors
    /// The system does not give them.
    pub(super) fn take() -> io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt })
    }

    /// One has come. Gives whether it is an interrupt.
    pub(super) async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.terminate.recv() => false,
            _ = self.interrupt.recv() => true,
        }
    }
}

/// What ends the process.
pub(super) struct End {
    present: Arc<Present>,
    course: Arc<Course>,
    signals: Signals,
    /// The process is to go; else it was only asked to drain, and stays.
    goes: bool,
    interrupts: u32,
}

impl End {
    /// That of this process.
    pub(super) fn of(present: &Arc<Present>, signals: Signals) -> Self {
        Self {
            present: Arc::clone(present),
            course: Arc::clone(&present.app().course),
            signals,
            goes: false,
            interrupts: 0,
        }
    }

    /// Returns when no more connections are to be accepted.
    pub(super) async fn settled(&mut self) {
        let course = Arc::clone(&self.course);
        tokio::select! {
            () = self.signalled() => {}
            () = course.reached(Phase::Settling) => {}
        }
        let app = self.present.app();
        tracing::info!(requests = app.requests.value(), "draining");
        course.reach(Phase::Settling);
        let settled = sleep(*app.config.timeouts.settle);
        tokio::pin!(settled);
        while self.interrupts == 0 {
            tokio::select! {
                () = &mut settled => break,
                () = self.signalled() => {}
            }
        }
    }

    /// Returns when everything has ended, which `gone` says, or has been cut.
    pub(super) async fn drained(&mut self, gone: impl Future<Output = ()>) {
        let app = self.present.app();
        app.course.reach(Phase::Draining);
        let cut = async {
            tokio::select! {
                () = sleep(*app.config.timeouts.drain) => {}
                () = app.cut() => {}
            }
            app.course.reach(Phase::Cut);
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
                () = self.signalled() => {}
            }
        }
        let told = async {
            let _ = app.course.waiting.subscribe().wait_for(|waiting| *waiting == 0).await;
        };
        let _ = tokio::time::timeout(TELL, told).await;
        while !self.goes {
            self.signalled().await;
        }
    }

    /// A signal that ends the process has come. A second interrupt cuts what runs; a second SIGTERM changes nothing.
    async fn signalled(&mut self) {
        self.interrupts += u32::from(self.signals.next().await);
        if self.interrupts > 1 {
            self.course.reach(Phase::Cut);
        }
        self.goes = true;
    }
}
