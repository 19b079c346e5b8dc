//! Time within which a client has to take some of the data that waits for it (faults C44).
//!
//! A client that takes nothing stalls, and so does one that takes a byte now and then: the waiting data holds an
//! engine and memory. Clients that are merely slow are left alone, however slow their network is.

use std::time::Duration;
use tokio::time::Instant;

/// Bytes that a client has to take in its time; fewer are a stall.
const LEAST: usize = 1 << 10;
/// Pause without waiting data after which a client has caught up, and earlier stalls no longer count.
const CAUGHT_UP: Duration = Duration::from_secs(1);

/// Timer of a client that has kept data waiting and has not taken enough since.
#[derive(Debug)]
pub(in crate::server) struct Stall {
    patience: Duration,
    /// Time at which the client is given up, if data still waits then.
    end: Instant,
    /// Bytes taken since the wait began.
    taken: usize,
    /// Time at which it took all data. The clock stands still until data waits again.
    free: Option<Instant>,
}

impl Stall {
    /// Starts the timer for a client that takes nothing.
    pub(in crate::server) fn new(patience: Duration, now: Instant) -> Self {
        Self {
            patience,
            end: now + patience,
            taken: 0,
            free: None,
        }
    }

    /// Notes that the client has taken bytes. Returns true if they suffice to end the stall.
    pub(in crate::server) fn took(&mut self, bytes: usize, now: Instant) -> bool {
        self.taken = self.taken.saturating_add(bytes);
        self.free.get_or_insert(now);
        self.taken >= LEAST
    }

    /// Notes that data waits for the client. Returns true if it had taken some before, which moves the end.
    pub(in crate::server) fn waits(&mut self, now: Instant) -> bool {
        let Some(free) = self.free.take() else {
            return false;
        };
        let pause = now.saturating_duration_since(free);
        match pause > CAUGHT_UP {
            true => *self = Self::new(self.patience, now),
            false => self.end += pause,
        }
        true
    }

    /// Returns the time at which the client is given up.
    pub(in crate::server) fn end(&self) -> Instant {
        self.end
    }

    /// Extends the time, for a period in which the client was not watched.
    pub(in crate::server) fn prolong(&mut self, more: Duration) {
        self.end += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn fault_c44_a_trickle_is_a_stall() {
        let start = Instant::now();
        let mut stall = Stall::new(PATIENCE, start);
        for second in 1..60 {
            let now = start + Duration::from_secs(second);
            assert!(!stall.took(1, now));
            assert!(stall.waits(now));
            assert!(!stall.waits(now), "it is the same wait");
        }
        assert_eq!(stall.end(), start + PATIENCE);
    }

    #[test]
    fn a_slow_client_is_none() {
        let start = Instant::now();
        let mut stall = Stall::new(PATIENCE, start);
        for taken in 1..=10_u32 {
            let now = start + Duration::from_secs(5) * taken;
            assert_eq!(stall.took(103, now), taken == 10);
            stall.waits(now);
        }
    }

    #[test]
    fn time_in_which_nothing_waits_does_not_count() {
        let start = Instant::now();
        let mut stall = Stall::new(PATIENCE, start);
        stall.took(1, start);
        stall.took(1, start + Duration::from_millis(900));
        stall.waits(start + Duration::from_secs(1));
        assert_eq!(stall.end(), start + PATIENCE + Duration::from_secs(1));
        stall.took(1, start + Duration::from_secs(2));
        let later = start + Duration::from_millis(3001);
        stall.waits(later);
        assert_eq!(
            (stall.end(), stall.taken),
            (later + PATIENCE, 0),
            "it had caught up"
        );
    }
}
