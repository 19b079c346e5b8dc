//! Circuit breaker: health of an upstream as shown by the answers to requests, beside what its probes show (faults
//! 8). An upstream that fails is ejected, tried with a single request, and then ramped up; one that sends 429 or
//! 503 is left alone for as long as it asks.

use std::time::Duration;
use tokio::time::Instant;

/// Number of failures in a row that eject an upstream.
const IN_A_ROW: u32 = 5;
/// Number of answers within [`WINDOW`] from which a majority of failures ejects, too.
const ENOUGH: u32 = 10;
const WINDOW: Duration = Duration::from_secs(30);
/// Number of steps in which the window advances.
const STEPS: usize = 6;
/// Duration of the first ejection; each further one lasts twice as long as the one before.
const EJECTED: Duration = Duration::from_secs(10);
const EJECTED_MOST: Duration = Duration::from_secs(300);
/// Time after which an upstream that has returned gets its full share of the requests.
const RAMP: Duration = Duration::from_secs(10);
/// Share of its weight that an upstream gets at the start of the ramp.
const FIRST_SHARE: f64 = 0.1;
/// Upper limit for the pause that an upstream can request with 429 or 503.
const PUSHED_MOST: Duration = Duration::from_secs(60);

/// Outcome of an exchange, as far as it says something about the health of the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The engine answered properly.
    Good,
    /// The engine could not be reached, broke off, failed, or sent an answer that cannot be read.
    Bad,
    /// The engine refused the request, which proves neither that it is healthy nor that it fails.
    Refused,
    /// The engine is overloaded.
    Pushed {
        /// Status of the answer: 429 or 503.
        status: u16,
        /// Pause that the engine asks for.
        wait: Duration,
    },
}

/// Availability of an upstream for the next request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Availability {
    /// Available for this share of its weight, from 0 to 1.
    Good(f64),
    /// Ejection is over: one request may test whether the upstream has recovered.
    Trial,
    /// Overloaded: gets no request for the time `left`, as the engine asked.
    Pushed { status: u16, left: Duration },
    /// Ejected for its failures, for the time `left`; zero while a test request is under way.
    Ejected { left: Duration },
}

/// Circuit breaker of one upstream. Holds the counts that lead to an ejection, and the state of the ejection and of
/// the ramp after it.
#[derive(Debug, Default)]
pub(super) struct CircuitBreaker {
    in_a_row: u32,
    /// Counts of the last steps of the window, each with its number.
    steps: [BreakerStep; STEPS],
    ejected: Option<Ejection>,
    /// Number of ejections in a row, which sets how long the next one lasts.
    times: u32,
    pushed: Option<(u16, Instant)>,
    /// Start of the ramp after the last return.
    back: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct BreakerStep {
    number: u64,
    all: u32,
    bad: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ejection {
    until: Instant,
    /// True while the test request is under way.
    tried: bool,
}

impl CircuitBreaker {
    pub(super) fn availability(&self, now: Instant) -> Availability {
        if let Some(ejected) = &self.ejected {
            let left = ejected.until.saturating_duration_since(now);
            return match left.is_zero() && !ejected.tried {
                // An upstream that asked for time in answer to its test gets that time before the next one.
                true => self.pushed_back(now).unwrap_or(Availability::Trial),
                false => Availability::Ejected { left },
            };
        }
        if let Some(pushed) = self.pushed_back(now) {
            return pushed;
        }
        let share = self.back.map_or(1.0, |since| {
            let part = now.saturating_duration_since(since).as_secs_f64() / RAMP.as_secs_f64();
            part.clamp(FIRST_SHARE, 1.0)
        });
        Availability::Good(share)
    }

    /// Returns the rest of the time that the upstream has asked for, if there is any.
    fn pushed_back(&self, now: Instant) -> Option<Availability> {
        let (status, until) = self.pushed.filter(|(_, until)| now < *until)?;
        Some(Availability::Pushed {
            status,
            left: until.saturating_duration_since(now),
        })
    }

    pub(super) fn is_ejected(&self) -> bool {
        self.ejected.is_some()
    }

    /// Records that the request that tests an ejected upstream has been sent.
    pub(super) fn start_trial(&mut self) {
        if let Some(ejected) = &mut self.ejected {
            ejected.tried = true;
        }
    }

    /// Records that the test request showed nothing, so that another one may be sent.
    pub(super) fn cancel_trial(&mut self) {
        if let Some(ejected) = &mut self.ejected {
            ejected.tried = false;
        }
    }

    /// Clears all failures and starts the ramp: the upstream was down, is new, or has passed its test. Only the
    /// number of ejections stays.
    pub(super) fn come_back(&mut self, now: Instant) {
        *self = Self {
            back: Some(now),
            times: self.times,
            ..Self::default()
        };
    }

    /// Takes the outcome of a request. `since`: zero point of the step numbers; `may_eject` is called before the
    /// first ejection, and can prevent it.
    pub(super) fn record(
        &mut self,
        outcome: AttemptOutcome,
        now: Instant,
        since: Instant,
        may_eject: impl FnOnce() -> bool,
    ) {
        match (outcome, self.ejected) {
            (AttemptOutcome::Pushed { status, wait }, _) => {
                self.cancel_trial();
                self.pushed = Some((status, now + wait.min(PUSHED_MOST)));
            }
            (AttemptOutcome::Good | AttemptOutcome::Refused, Some(ejected)) if ejected.tried => {
                self.come_back(now)
            }
            (AttemptOutcome::Bad, Some(ejected)) if ejected.tried => self.eject(now),
            // Answers to requests that were sent before the ejection do not count.
            (_, Some(_)) | (AttemptOutcome::Refused, None) => {}
            (AttemptOutcome::Good, None) => {
                self.in_a_row = 0;
                self.count(now, since, false);
            }
            (AttemptOutcome::Bad, None) => {
                self.in_a_row += 1;
                self.count(now, since, true);
                if (self.in_a_row >= IN_A_ROW || self.mostly_bad(now, since)) && may_eject() {
                    self.eject(now);
                }
            }
        }
    }

    fn eject(&mut self, now: Instant) {
        let time = EJECTED
            .saturating_mul(1 << self.times.min(5))
            .min(EJECTED_MOST);
        let times = self.times.saturating_add(1);
        let ejected = Some(Ejection {
            until: now + super::health::spread(time),
            tried: false,
        });
        *self = Self {
            ejected,
            times,
            ..Self::default()
        };
    }

    fn step_number(now: Instant, since: Instant) -> u64 {
        let step = WINDOW / u32::try_from(STEPS).unwrap_or(1);
        u64::try_from(now.saturating_duration_since(since).as_millis() / step.as_millis().max(1))
            .unwrap_or(0)
    }

    fn count(&mut self, now: Instant, since: Instant, bad: bool) {
        let number = Self::step_number(now, since);
        let Some(step) = usize::try_from(number)
            .ok()
            .and_then(|number| self.steps.get_mut(number % STEPS))
        else {
            return;
        };
        if step.number != number {
            *step = BreakerStep {
                number,
                ..BreakerStep::default()
            };
        }
        step.all += 1;
        step.bad += u32::from(bad);
        if !bad
            && self
                .back
                .is_some_and(|back| now.saturating_duration_since(back) > EJECTED_MOST)
        {
            self.times = 0;
        }
    }

    fn mostly_bad(&self, now: Instant, since: Instant) -> bool {
        let number = Self::step_number(now, since);
        let recent = self
            .steps
            .iter()
            .filter(|step| step.number + (STEPS as u64) > number);
        let (all, bad) = recent.fold((0, 0), |(all, bad), step| (all + step.all, bad + step.bad));
        all >= ENOUGH && bad * 2 > all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUSHED: AttemptOutcome = AttemptOutcome::Pushed {
        status: 503,
        wait: Duration::from_secs(4),
    };

    struct Scenario {
        breaker: CircuitBreaker,
        since: Instant,
        now: Instant,
    }

    impl Scenario {
        fn new() -> Self {
            let now = Instant::now();
            Self {
                breaker: CircuitBreaker::default(),
                since: now,
                now,
            }
        }

        fn after(&mut self, outcomes: &[AttemptOutcome]) -> Availability {
            for outcome in outcomes {
                self.breaker.record(*outcome, self.now, self.since, || true);
            }
            self.breaker.availability(self.now)
        }

        fn wait(&mut self, seconds: u64) -> Availability {
            self.now += Duration::from_secs(seconds);
            self.breaker.availability(self.now)
        }
    }

    #[test]
    fn five_failures_in_a_row_eject_and_one_request_decides() {
        let mut course = Scenario::new();
        assert_eq!(
            course.after(&[AttemptOutcome::Bad; 4]),
            Availability::Good(1.0)
        );
        assert_eq!(
            course.after(&[AttemptOutcome::Good]),
            Availability::Good(1.0)
        );
        assert_eq!(
            course.after(&[AttemptOutcome::Refused, AttemptOutcome::Refused]),
            Availability::Good(1.0)
        );
        assert!(matches!(
            course.after(&[AttemptOutcome::Bad; 5]),
            Availability::Ejected { .. }
        ));
        assert!(
            matches!(course.wait(7), Availability::Ejected { .. }),
            "10 s, a fifth more or less"
        );
        assert_eq!(course.wait(6), Availability::Trial);
        course.breaker.start_trial();
        assert!(
            matches!(course.wait(0), Availability::Ejected { .. }),
            "one request at a time"
        );
        course.breaker.cancel_trial();
        assert_eq!(course.wait(0), Availability::Trial);
        course.breaker.start_trial();
        assert!(matches!(
            course.after(&[AttemptOutcome::Bad]),
            Availability::Ejected { .. }
        ));
        assert!(
            matches!(course.wait(14), Availability::Ejected { .. }),
            "twice as long"
        );
        assert_eq!(course.wait(12), Availability::Trial);
        course.breaker.start_trial();
        assert_eq!(
            course.after(&[AttemptOutcome::Good]),
            Availability::Good(FIRST_SHARE)
        );
        assert_eq!(course.wait(5), Availability::Good(0.5));
        assert_eq!(course.wait(10), Availability::Good(1.0));
    }

    #[test]
    fn more_than_half_of_ten_within_half_a_minute_eject() {
        let (good, bad) = (AttemptOutcome::Good, AttemptOutcome::Bad);
        let mut course = Scenario::new();
        assert_eq!(
            course.after(&[good, bad, good, bad, good, bad, good, bad, good, bad]),
            Availability::Good(1.0)
        );
        assert!(matches!(course.after(&[bad]), Availability::Ejected { .. }));
        let mut course = Scenario::new();
        course.after(&[good, bad, good, bad, good, bad, good, bad, good, bad]);
        course.wait(40);
        assert_eq!(
            course.after(&[bad]),
            Availability::Good(1.0),
            "that was long ago"
        );
    }

    #[test]
    fn refusals_and_pressure_are_no_failures() {
        let mut course = Scenario::new();
        assert_eq!(
            course.after(&[AttemptOutcome::Refused; 1000]),
            Availability::Good(1.0)
        );
        let left = Duration::from_secs(4);
        assert_eq!(
            course.after(&[PUSHED; 50]),
            Availability::Pushed { status: 503, left }
        );
        assert_eq!(
            course.wait(4),
            Availability::Good(1.0),
            "nothing ramps after that"
        );
        let year = AttemptOutcome::Pushed {
            status: 429,
            wait: Duration::from_secs(31_536_000),
        };
        assert_eq!(
            course.after(&[year]),
            Availability::Pushed {
                status: 429,
                left: PUSHED_MOST
            }
        );
    }

    #[test]
    fn pressure_in_answer_to_a_test_puts_the_next_test_off() {
        let mut course = Scenario::new();
        course.after(&[AttemptOutcome::Bad; 5]);
        assert_eq!(course.wait(13), Availability::Trial);
        course.breaker.start_trial();
        let left = Duration::from_secs(4);
        assert_eq!(
            course.after(&[PUSHED]),
            Availability::Pushed { status: 503, left }
        );
        assert_eq!(course.wait(4), Availability::Trial, "it is still ejected");
        course.breaker.start_trial();
        assert_eq!(
            course.after(&[AttemptOutcome::Good]),
            Availability::Good(FIRST_SHARE)
        );
    }

    #[test]
    fn ejections_grow_to_five_minutes_and_are_forgotten() {
        let mut course = Scenario::new();
        course.after(&[AttemptOutcome::Bad; 5]);
        for _ in 0..40 {
            course.wait(400);
            course.breaker.start_trial();
            let Availability::Ejected { left } = course.after(&[AttemptOutcome::Bad]) else {
                panic!("it is back")
            };
            assert!(left <= EJECTED_MOST.mul_f64(1.21), "{left:?}");
        }
        course.wait(400);
        course.breaker.start_trial();
        course.after(&[AttemptOutcome::Good]);
        course.wait(400);
        course.after(&[AttemptOutcome::Good]);
        course.after(&[AttemptOutcome::Bad; 5]);
        assert!(
            matches!(course.wait(13), Availability::Trial),
            "as short as the first"
        );
    }

    #[test]
    fn the_last_ones_stay() {
        let mut course = Scenario::new();
        for _ in 0..100 {
            course
                .breaker
                .record(AttemptOutcome::Bad, course.now, course.since, || false);
        }
        assert_eq!(course.wait(0), Availability::Good(1.0));
    }

    /// Answers to requests that were sent before the ejection neither end nor extend it.
    #[test]
    fn late_answers_do_not_decide_about_an_ejected_upstream() {
        let mut course = Scenario::new();
        course.after(&[AttemptOutcome::Bad; 5]);
        for late in [
            AttemptOutcome::Good,
            AttemptOutcome::Refused,
            AttemptOutcome::Bad,
            AttemptOutcome::Bad,
            AttemptOutcome::Bad,
        ] {
            assert!(
                matches!(course.after(&[late]), Availability::Ejected { .. }),
                "{late:?}"
            );
        }
        assert_eq!(
            course.wait(13),
            Availability::Trial,
            "10 s, a fifth more or less"
        );
    }

    /// Ejects an upstream and lets it return.
    fn returned() -> Scenario {
        let mut course = Scenario::new();
        course.after(&[AttemptOutcome::Bad; 5]);
        course.wait(13);
        course.breaker.start_trial();
        assert_eq!(
            course.after(&[AttemptOutcome::Good]),
            Availability::Good(FIRST_SHARE)
        );
        course
    }

    /// A good answer more than 300 s after the return sets the count of ejections back, and nothing else does
    /// (faults 8).
    #[test]
    fn a_return_is_not_yet_a_recovery() {
        let (good, bad) = (AttemptOutcome::Good, AttemptOutcome::Bad);
        for (wait, outcomes, is_longer) in [
            (1, &[good, bad, bad, bad, bad, bad][..], true),
            (300, &[good, bad, bad, bad, bad, bad], true),
            (301, &[bad, bad, bad, bad, bad], true),
            (301, &[good, bad, bad, bad, bad, bad], false),
        ] {
            let mut course = returned();
            course.wait(wait);
            assert!(matches!(
                course.after(outcomes),
                Availability::Ejected { .. }
            ));
            // The first ejection lasts from 8 to 12 s, the second from 16 to 24 s.
            let still = matches!(course.wait(14), Availability::Ejected { .. });
            assert_eq!(still, is_longer, "{wait} s, {outcomes:?}");
            assert_eq!(
                course.wait(11),
                Availability::Trial,
                "{wait} s, {outcomes:?}"
            );
        }
    }

    #[test]
    fn answers_within_half_a_minute_count_together() {
        let (good, bad) = (AttemptOutcome::Good, AttemptOutcome::Bad);
        for start in [0, 60, 3_600] {
            let mut course = Scenario::new();
            course.wait(start);
            for outcome in [bad, bad, good, bad, bad, good, bad, good, bad] {
                assert_eq!(
                    course.after(&[outcome]),
                    Availability::Good(1.0),
                    "from {start} s on"
                );
                course.wait(2);
            }
            assert!(
                matches!(course.after(&[bad]), Availability::Ejected { .. }),
                "from {start} s on"
            );
        }
    }
}
