//! Timers of a relay: limits for the engine in each attempt, and the early status and keep-alive of the client.

use crate::config::Timeouts;
use crate::server::ids::since_epoch;
use crate::server::net::connection::late_timer_extension;
use crate::wire::options::Options;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Result of a check of the timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Due {
    /// The engine has taken too long.
    Timeout,
    /// The client must receive something: its status, or a keep-alive comment.
    ClientOutput,
}

/// Interval at which an engine that sends is reported as alive.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Timers of one request. All share one timer of the runtime, which is touched only when it has fired or something
/// is due earlier; the time is read three times for each token.
pub(in crate::server) struct RelayTimers {
    /// Time as last read.
    now: Instant,
    /// Time at which the request began, here and since the Unix epoch.
    epoch: (Instant, Duration),
    started: Instant,
    /// Time at which the request was sent to the engine.
    sent: Instant,
    /// Start of the wait for the engine, moved by the time in which the relay waited for the client.
    waiting: Instant,
    /// Time of the last write to the client, from which the next keep-alive comment is timed.
    written: Instant,
    /// Time of the last write of the answer; `None` before the first.
    answer_written: Option<Instant>,
    /// Time of the next report that the engine is alive.
    next_report: Instant,
    /// True once this attempt has sent content; of a whole answer, any byte.
    spoken: bool,
    committed: bool,
    /// Time since which it is the client's turn.
    paused: Option<Instant>,
    /// Time that the outputs of the answer's calls may take, while they are waited for.
    outputs: Option<Duration>,
    total: Duration,
    first_token: Duration,
    inter_token: Duration,
    commit_after: Option<Duration>,
    keepalive: Option<Duration>,
    /// Time at which the timer will wake the task.
    armed: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl RelayTimers {
    pub(in crate::server) fn new(stream: bool, timeouts: &Timeouts, options: &Options) -> Self {
        let now = Instant::now();
        let seconds = |seconds: u64| Some(Duration::from_secs(seconds)).filter(|_| stream);
        Self {
            now,
            epoch: (now, since_epoch()),
            started: now,
            sent: now,
            waiting: now,
            written: now,
            answer_written: None,
            next_report: now + REPORT_INTERVAL,
            spoken: false,
            committed: !stream,
            paused: None,
            outputs: None,
            total: if stream {
                *timeouts.total_stream
            } else {
                *timeouts.total_whole
            },
            first_token: *timeouts.first_token,
            inter_token: *timeouts.inter_token,
            commit_after: seconds(options.commit_after_seconds),
            keepalive: seconds(options.keepalive_seconds).filter(|pause| !pause.is_zero()),
            armed: None,
            sleep: None,
        }
    }

    /// Restarts the engine's timers for another attempt.
    pub(in crate::server) fn restart_attempt(&mut self) {
        self.update();
        (self.sent, self.waiting, self.paused, self.spoken) = (self.now, self.now, None, false);
    }

    /// Stops the engine's timers: it has ended its answer, and the outputs of the calls in it may take this long.
    pub(in crate::server) fn wait_for_outputs(&mut self, limit: Duration) {
        self.restart_attempt();
        self.outputs = Some(limit);
    }

    /// Starts all timers of the engine for the request that follows the outputs.
    pub(in crate::server) fn begin_round(&mut self) {
        self.restart_attempt();
        (self.started, self.outputs, self.answer_written) = (self.now, None, None);
    }

    /// Returns true if at least half of the total time is left.
    pub(in crate::server) fn has_half(&self) -> bool {
        self.started.elapsed() <= self.total / 2
    }

    /// Notes that reading from the engine begins. The time since bytes were handed to the client does not count
    /// for the engine; the time before does, also if the client only received a keep-alive (faults U09).
    pub(in crate::server) fn reads(&mut self) {
        // Nothing is due before the timer fires.
        let has_fired = self.sleep.as_ref().is_none_or(|sleep| sleep.is_elapsed());
        if !has_fired && self.paused.is_none() {
            return;
        }
        self.update();
        if let Some(since) = self.paused.take() {
            self.waiting += self.now.saturating_duration_since(since);
        }
    }

    /// Reads the time, and returns it.
    pub(in crate::server) fn update(&mut self) -> Instant {
        self.now = Instant::now();
        self.now
    }

    /// Returns the time as last read in Unix seconds. Steps of the system's clock during the request do not show.
    pub(in crate::server) fn unix_seconds(&self) -> u64 {
        let (begun, since_epoch) = self.epoch;
        (since_epoch + self.now.saturating_duration_since(begun)).as_secs()
    }

    /// Notes that the engine has sent something. Returns true at the first content, and once a second.
    pub(in crate::server) fn heard(&mut self, now: Instant, spoken: bool) -> bool {
        let tells = spoken && !self.spoken || now >= self.next_report;
        if tells {
            self.next_report = now + REPORT_INTERVAL;
        }
        self.now = now;
        self.waiting = now;
        self.spoken |= spoken;
        tells
    }

    /// Notes that bytes are handed to the client: part of the answer, or a keep-alive comment.
    pub(in crate::server) fn wrote(&mut self) {
        self.written = self.now;
        self.paused.get_or_insert(self.now);
        self.committed = true;
    }

    /// Notes that part of the answer is handed to the client. Returns the time since the part before, `None` the first
    /// time. Comments between the two do not count.
    pub(in crate::server) fn wrote_answer(&mut self) -> Option<Duration> {
        self.wrote();
        let before = self.answer_written.replace(self.now)?;
        Some(self.now.saturating_duration_since(before))
    }

    /// Turns off comments, and treats the status as sent.
    pub(in crate::server) fn run_without_client(&mut self) {
        self.committed = true;
        self.disable_keepalive();
    }

    /// Turns off comments and the early status.
    pub(in crate::server) fn disable_keepalive(&mut self) {
        self.commit_after = None;
        self.keepalive = None;
    }

    /// Notes that the status has been sent; the next comment is timed from now on.
    pub(in crate::server) fn committed(&mut self) {
        self.committed = true;
        self.written = self.now;
    }

    fn next(&self) -> (Instant, Due) {
        let patience = if self.spoken {
            self.waiting + self.inter_token
        } else {
            self.sent + self.first_token
        };
        let end = match self.outputs {
            Some(limit) => self.sent + limit,
            None => patience.min(self.started + self.total),
        };
        let timeout = (end, Due::Timeout);
        let commit = self
            .commit_after
            .filter(|_| !self.committed)
            .map(|after| (self.started + after, Due::ClientOutput));
        let keepalive = self
            .keepalive
            .filter(|_| self.committed)
            .map(|pause| (self.written + pause, Due::ClientOutput));
        [commit, keepalive]
            .into_iter()
            .flatten()
            .fold(
                timeout,
                |first, other| if other.0 < first.0 { other } else { first },
            )
    }

    /// Checks the timers. If the thread was blocked for long, all starts move by that time, so that nobody is late
    /// because of it (faults O12).
    pub(in crate::server) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Due> {
        loop {
            let (at, due) = self.next();
            if at <= self.now {
                let Some(more) = late_timer_extension(at, self.now) else {
                    return Poll::Ready(due);
                };
                let since = [
                    &mut self.started,
                    &mut self.sent,
                    &mut self.waiting,
                    &mut self.written,
                ];
                since
                    .into_iter()
                    .chain(&mut self.answer_written)
                    .for_each(|since| *since += more);
                continue;
            }
            // The task's waker never changes: a running timer will wake it.
            if self
                .armed
                .is_some_and(|armed| self.now < armed && armed <= at)
            {
                return Poll::Pending;
            }
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
            sleep.as_mut().reset(at);
            self.armed = Some(at);
            ready!(sleep.as_mut().poll(cx));
            self.update();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Advances the clock as a read from the engine does.
    fn advance(clock: &mut RelayTimers, seconds: u64) {
        clock.heard(clock.now + Duration::from_secs(seconds), true);
    }

    #[test]
    fn each_attempt_has_the_time_of_a_first_token() {
        let timeouts = Timeouts::default();
        let mut clock = RelayTimers::new(false, &timeouts, &Options::default());
        clock.heard(clock.now, true);
        assert_eq!(clock.next().0, clock.waiting + *timeouts.inter_token);
        clock.restart_attempt();
        assert_eq!(clock.next().0, clock.sent + *timeouts.first_token);
    }

    #[test]
    fn comments_start_the_keepalive_anew_and_do_not_count_as_part_of_the_answer() {
        let options = Options {
            keepalive_seconds: 3,
            ..Options::default()
        };
        let mut clock = RelayTimers::new(true, &Timeouts::default(), &options);
        let keepalive = Duration::from_secs(3);
        clock.wrote();
        assert_eq!(clock.wrote_answer(), None, "a comment came before");
        for _ in 0..2 {
            advance(&mut clock, 3);
            assert_eq!(clock.next(), (clock.now, Due::ClientOutput));
            clock.committed();
            clock.wrote();
            assert_eq!(clock.next(), (clock.now + keepalive, Due::ClientOutput));
        }
        advance(&mut clock, 1);
        assert_eq!(clock.wrote_answer(), Some(Duration::from_secs(7)));
        advance(&mut clock, 2);
        assert_eq!(clock.wrote_answer(), Some(Duration::from_secs(2)));
    }
}
