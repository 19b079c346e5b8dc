//! Retry rules: which failures are retried on another upstream, how often, and how many in all (faults 7).

use super::UpstreamId;
use crate::config::Retry;
use crate::error::RetryClass;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Upper limit for the upstreams that are tried for one request.
const MAX_UPSTREAMS: usize = 4;
/// Seconds over which the budget is counted.
const BUDGET_SECONDS: usize = 10;

/// State of the attempts for one request. Decides after each failure whether another upstream may be tried.
#[derive(Clone, Debug, Default)]
pub struct RetryState {
    /// Ids of the upstreams that were tried.
    pub visited: Vec<UpstreamId>,
    /// Number of attempts in which the engine has received the request.
    sent: u32,
    /// True if an engine may have worked on the request.
    may_have_worked: bool,
    /// Number of attempts in which the engine broke off.
    resets: u32,
}

impl RetryState {
    /// Records an attempt at this upstream.
    pub fn visit(&mut self, upstream: UpstreamId) {
        self.visited.push(upstream);
    }

    /// Returns true if two engines have broken off on this request: it may have killed them, and must not reach a
    /// third (faults U42).
    pub fn has_two_resets(&self) -> bool {
        self.resets > 1
    }

    /// Records that the last attempt failed, and returns the pause before the next one; `None` if there must be
    /// none. After a failure in which an engine may have worked on the request, there is at most one more attempt
    /// at an engine that receives it, whatever the configuration says.
    pub fn next_pause(&mut self, class: RetryClass, retry: &Retry) -> Option<Duration> {
        if class != RetryClass::Unsent {
            self.sent += 1;
        }
        let goes_on = match class {
            RetryClass::Never => false,
            RetryClass::Unsent => true,
            RetryClass::Overloaded | RetryClass::MaybeProcessed | RetryClass::Reset => {
                !self.may_have_worked && self.sent < retry.max_attempts
            }
        };
        self.resets += u32::from(class == RetryClass::Reset);
        self.may_have_worked |= matches!(class, RetryClass::MaybeProcessed | RetryClass::Reset);
        let pause = match class {
            RetryClass::MaybeProcessed | RetryClass::Reset => jitter(),
            _ => Duration::ZERO,
        };
        (goes_on && self.visited.len() < MAX_UPSTREAMS).then_some(pause)
    }
}

/// Returns a random pause from 25 to 250 ms.
fn jitter() -> Duration {
    let chance = u64::from(getrandom::u32().unwrap_or(0));
    Duration::from_millis(25 + chance % 226)
}

/// Retry budget of the process: a percentage of the requests of the last ten seconds, and a fixed number per
/// second. Limits the extra load when many engines fail at once.
#[derive(Debug)]
pub(super) struct RetryBudget {
    seconds: Mutex<[Second; BUDGET_SECONDS]>,
    since: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Second {
    number: u64,
    requests: u32,
    retries: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self {
            seconds: Mutex::default(),
            since: Instant::now(),
        }
    }
}

impl RetryBudget {
    /// Counts a new request.
    pub(super) fn request(&self, now: Instant) {
        self.at(now, |second, _| second.requests += 1);
    }

    /// Returns true if the budget allows one more retry, and counts it if so.
    pub(super) fn take(&self, now: Instant, retry: &Retry) -> bool {
        self.at(now, |second, (requests, retries)| {
            let seconds = u64::try_from(BUDGET_SECONDS).unwrap_or(1);
            let share = u64::from(retry.budget_percent) * requests / 100;
            let may = retries < share + u64::from(retry.budget_per_second) * seconds;
            second.retries += u32::from(may);
            may
        })
    }

    /// Calls `act` with the current second, and the requests and retries of the last ten seconds.
    fn at<T>(&self, now: Instant, act: impl FnOnce(&mut Second, (u64, u64)) -> T) -> T {
        let number = now.saturating_duration_since(self.since).as_secs();
        let mut seconds = self.seconds.lock();
        let recent = |second: &&Second| second.number + BUDGET_SECONDS as u64 > number;
        let spent = seconds
            .iter()
            .filter(recent)
            .fold((0, 0), |(requests, retries), second| {
                (
                    requests + u64::from(second.requests),
                    retries + u64::from(second.retries),
                )
            });
        let place = usize::try_from(number).unwrap_or(0) % BUDGET_SECONDS;
        let mut none = Second::default();
        let second = seconds.get_mut(place).unwrap_or(&mut none);
        if second.number != number {
            *second = Second {
                number,
                ..Second::default()
            };
        }
        act(second, spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of attempts that this series of failures leads to.
    fn course(classes: &[RetryClass], max_attempts: u32) -> usize {
        let retry = Retry {
            max_attempts,
            ..Retry::default()
        };
        let mut retries = RetryState::default();
        for (at, class) in classes.iter().enumerate() {
            retries.visit(UpstreamId::new());
            if retries.next_pause(*class, &retry).is_none() {
                return at + 1;
            }
        }
        classes.len() + 1
    }

    #[test]
    fn attempts_by_class() {
        use RetryClass::{MaybeProcessed, Never, Overloaded, Reset, Unsent};
        for (classes, most, attempts) in [
            (&[Never][..], 4, 1),
            (&[MaybeProcessed, MaybeProcessed], 4, 2),
            (&[Reset, Reset], 4, 2),
            (&[MaybeProcessed], 1, 1),
            (&[Overloaded, Overloaded, Overloaded], 2, 2),
            (&[Overloaded, Overloaded, Overloaded, Overloaded], 4, 4),
            (&[Overloaded, MaybeProcessed, MaybeProcessed], 4, 3),
            (&[Unsent, Unsent, Unsent, Unsent], 2, 4),
            (&[Unsent, Unsent, Overloaded, Overloaded], 2, 4),
            (&[Reset, Unsent, Reset], 2, 3),
            (&[Reset, Unsent, Reset, Never], 4, 3),
        ] {
            assert_eq!(course(classes, most), attempts, "{classes:?} {most}");
        }
    }

    #[test]
    fn pauses() {
        let mut retries = RetryState::default();
        retries.visit(UpstreamId::new());
        assert_eq!(
            retries.next_pause(RetryClass::Unsent, &Retry::default()),
            Some(Duration::ZERO)
        );
        retries.visit(UpstreamId::new());
        let pause = retries
            .next_pause(RetryClass::Reset, &Retry::default())
            .unwrap();
        assert!((25..=250).contains(&pause.as_millis()), "{pause:?}");
        let pauses: Vec<_> = (0..200).map(|_| jitter().as_millis()).collect();
        assert!(
            pauses.iter().all(|pause| (25..=250).contains(pause)),
            "{pauses:?}"
        );
        assert!(!retries.has_two_resets());
        retries.visit(UpstreamId::new());
        assert_eq!(
            retries.next_pause(RetryClass::Reset, &Retry::default()),
            None
        );
        assert!(retries.has_two_resets());
    }

    #[test]
    fn the_budget_is_a_part_of_the_traffic() {
        let (budget, retry) = (RetryBudget::default(), Retry::default());
        let start = budget.since;
        let takes = |at: Instant| (0..1000).take_while(|_| budget.take(at, &retry)).count();
        assert_eq!(takes(start), 30);
        for _ in 0..2 {
            assert_eq!(
                takes(start + Duration::from_secs(1)),
                0,
                "the next second has no budget of its own"
            );
        }
        assert_eq!(
            takes(start + Duration::from_secs(9)),
            0,
            "they count for ten seconds"
        );
        assert_eq!(takes(start + Duration::from_secs(10)), 30);
        let later = start + Duration::from_secs(30);
        (0..500).for_each(|_| budget.request(later));
        assert_eq!(takes(later), 130);
        assert_eq!(
            takes(later + Duration::from_secs(60)),
            30,
            "what was long ago counts no more"
        );
    }

    #[test]
    fn the_budget_is_counted_alike_at_any_age_of_the_process() {
        for age in [0, 99, 1_000_003] {
            let (budget, retry) = (RetryBudget::default(), Retry::default());
            let start = budget.since + Duration::from_secs(age);
            let takes = |at: Instant| (0..1000).take_while(|_| budget.take(at, &retry)).count();
            (0..100).for_each(|_| budget.request(start));
            (0..100).for_each(|_| budget.request(start + Duration::from_secs(1)));
            assert_eq!(
                takes(start + Duration::from_secs(2)),
                70,
                "{age}: 30, and a fifth of 200"
            );
            assert_eq!(takes(start + Duration::from_secs(3)), 0, "{age}");
        }
    }
}
