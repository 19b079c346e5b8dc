//! The timers of one request to an engine.

use super::connection::overslept;
use crate::config::Timeouts;
use crate::wire::options::Options;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, Sleep, sleep_until};

/// What the clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The engine takes too long.
    Timeout,
    /// The client must hear something: its status, or that it is not forgotten.
    Comment,
}

/// How often it is told that an engine is heard of.
const TELLS: Duration = Duration::from_secs(1);

/// The timers of one request. There is one timer of the runtime; it is touched only when it has run out or something is
/// due earlier, and the time is read no more than three times for each token.
pub(super) struct Clock {
    /// When it was last read.
    now: Instant,
    started: Instant,
    /// When the engine was asked.
    asked: Instant,
    /// Since when we wait for the engine, without the time in which the client had its turn.
    waiting: Instant,
    written: Instant,
    /// From when on it is told again that the engine is heard of.
    tells: Instant,
    /// The engine has said something.
    spoken: bool,
    committed: bool,
    wrote: bool,
    /// Since when it is the client's turn.
    paused: Option<Instant>,
    total: Duration,
    first_token: Duration,
    inter_token: Duration,
    commit_after: Option<Duration>,
    keepalive: Option<Duration>,
    /// When the timer will wake the task.
    armed: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Clock {
    pub(super) fn new(stream: bool, timeouts: &Timeouts, options: &Options) -> Self {
        let now = Instant::now();
        let seconds = |seconds: u64| Some(Duration::from_secs(seconds)).filter(|_| stream);
        Self {
            now,
            started: now,
            asked: now,
            waiting: now,
            written: now,
            tells: now + TELLS,
            spoken: false,
            committed: !stream,
            wrote: false,
            paused: None,
            total: if stream { *timeouts.total_stream } else { *timeouts.total_whole },
            first_token: *timeouts.first_token,
            inter_token: *timeouts.inter_token,
            commit_after: seconds(options.commit_after_seconds),
            keepalive: seconds(options.keepalive_seconds).filter(|pause| !pause.is_zero()),
            armed: None,
            sleep: None,
        }
    }

    /// Another engine is asked.
    pub(super) fn asks_again(&mut self) {
        self.now = Instant::now();
        (self.asked, self.waiting, self.paused) = (self.now, self.now, None);
    }

    /// At least half of the time for all of it is left.
    pub(super) fn has_half(&self) -> bool {
        self.started.elapsed() <= self.total / 2
    }

    /// We turn to the engine. The time since we turned to the client was not the engine's; that before it was, also where
    /// the client was only told that it is not forgotten (faults U09).
    pub(super) fn reads(&mut self) {
        self.now = Instant::now();
        if let Some(since) = self.paused.take() {
            self.waiting += self.now.saturating_duration_since(since);
        }
    }

    /// The engine has sent something; true once a second, or if it is the first time.
    pub(super) fn heard(&mut self, now: Instant, spoken: bool) -> bool {
        let tells = spoken && !self.spoken || now >= self.tells;
        if tells {
            self.tells = now + TELLS;
        }
        self.now = now;
        self.waiting = now;
        self.spoken |= spoken;
        tells
    }

    /// Bytes go to the client; since when it had none.
    pub(super) fn wrote(&mut self) -> Option<Duration> {
        let pause = self.now.saturating_duration_since(self.written);
        self.written = self.now;
        self.paused.get_or_insert(self.now);
        self.committed = true;
        std::mem::replace(&mut self.wrote, true).then_some(pause)
    }

    /// Nobody has to hear anything.
    pub(super) fn detach(&mut self) {
        self.committed = true;
        self.silence();
    }

    pub(super) fn silence(&mut self) {
        self.commit_after = None;
        self.keepalive = None;
    }

    pub(super) fn committed(&mut self) {
        self.committed = true;
        self.written = self.now;
    }

    fn next(&self) -> (Instant, Due) {
        let patience =
            if self.spoken { self.waiting + self.inter_token } else { self.asked + self.first_token };
        let timeout = (patience.min(self.started + self.total), Due::Timeout);
        let commit =
            self.commit_after.filter(|_| !self.committed).map(|after| (self.started + after, Due::Comment));
        let keepalive =
            self.keepalive.filter(|_| self.committed).map(|pause| (self.written + pause, Due::Comment));
        [commit, keepalive]
            .into_iter()
            .flatten()
            .fold(timeout, |first, other| if other.0 < first.0 { other } else { first })
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Due> {
        loop {
            let (at, due) = self.next();
            if at <= self.now {
                let Some(more) = overslept(at, self.now) else { return Poll::Ready(due) };
                for since in [&mut self.started, &mut self.asked, &mut self.waiting, &mut self.written] {
                    *since += more;
                }
                continue;
            }
            // The task's waker never changes: a timer that runs will wake it.
            if self.armed.is_some_and(|armed| self.now < armed && armed <= at) {
                return Poll::Pending;
            }
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
            sleep.as_mut().reset(at);
            self.armed = Some(at);
            ready!(sleep.as_mut().poll(cx));
            self.now = Instant::now();
        }
    }
}

/// Returns the time of the wall clock, in Unix seconds.
pub(super) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
