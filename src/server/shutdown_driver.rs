//! Driver of the shutdown: reacts to signals and operators, and advances the phases of [`Shutdown`].

use super::ActiveConfig;
use super::net::listener::Reopening;
use super::net::service_manager;
use super::net::shutdown::{DrainCancel, Phase, REPORT_TIME, Shutdown};
use futures::future::OptionFuture;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

/// Signals that end the process. Once registered, none is lost.
pub(super) struct Signals {
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
    pub(super) fn take(hangs_up: bool) -> io::Result<Self> {
        let (terminate, interrupt) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        let hangup = hangs_up.then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self {
            terminate,
            interrupt,
            hangup,
        })
    }

    /// Waits for the next signal; returns true if it is an interrupt.
    pub(super) async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.terminate.recv() => false,
            _ = self.interrupt.recv() => true,
            Some(Some(())) = OptionFuture::from(self.hangup.as_mut().map(Signal::recv)) => false,
        }
    }
}

/// Driver of the shutdown: reacts to signals and operators and advances the phases.
pub(super) struct ShutdownDriver {
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
    pub(super) fn of(
        active_config: &Arc<ActiveConfig>,
        signals: Signals,
        cancellations: mpsc::Receiver<DrainCancel>,
    ) -> Self {
        Self {
            active_config: Arc::clone(active_config),
            shutdown: Arc::clone(&active_config.app().net.shutdown),
            signals,
            cancellations,
            is_ending: false,
            interrupts: 0,
            deadline: None,
        }
    }

    /// Waits for a signal or an operator's drain, then until load balancers have noticed. Returns when no more
    /// connections are to be accepted.
    pub(super) async fn wait_until_settled(&mut self) {
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
            tracing::info!(requests = app.running.requests.value(), "draining");
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
    pub(super) async fn wait_for_cancelled_drain(
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
            let ShutdownEvent::CancelDrain(cancel) = event else {
                continue;
            };
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
    pub(super) async fn wait_for_connections(
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
            app.net.shutdown.reach(Phase::Cut);
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
            let _ = app
                .net
                .shutdown
                .waiting
                .subscribe()
                .wait_for(|waiting| *waiting == 0)
                .await;
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
