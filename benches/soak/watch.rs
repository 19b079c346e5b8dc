//! Observation of the process during the run: memory, descriptors, orphaned generations, attempts.

use crate::samewire::Samewire;
use crate::tally::Tally;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time for which a generation may go on after its client has left.
const GRACE: Duration = Duration::from_millis(200);
const WINDOW: Duration = Duration::from_secs(10);
/// Number of requests below which a ratio is meaningless.
const FEW: u64 = 50;

#[derive(Default)]
pub(crate) struct Watch {
    /// Samples of seconds since the start and resident bytes.
    pub(crate) rss: Vec<(f64, f64)>,
    pub(crate) descriptors: Vec<usize>,
    pub(crate) threads: Vec<usize>,
    pub(crate) orphans: u64,
    /// Largest ratio of attempts to requests within ten seconds.
    pub(crate) worst_window: f64,
    pub(crate) most_active: u64,
}

impl Watch {
    /// Samples the process until `until`. Fails if samewire ends.
    pub(crate) fn run(
        &mut self,
        samewire: &mut Samewire,
        tally: &Tally,
        start: Instant,
        until: Instant,
    ) -> io::Result<()> {
        let (mut window, mut before, mut look) = (Instant::now(), counts(tally), Instant::now());
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(100));
            if !samewire.runs() {
                return Err(io::Error::other("samewire has ended"));
            }
            if !tally.is_paused() {
                self.orphans += tally.registry.orphans(GRACE);
            }
            self.most_active = self
                .most_active
                .max(tally.registry.active.load(Ordering::Relaxed));
            if window.elapsed() >= WINDOW {
                let now = counts(tally);
                let (requests, attempts) = (now.0 - before.0, now.1 - before.1);
                if requests >= FEW {
                    self.worst_window = self.worst_window.max(attempts as f64 / requests as f64);
                }
                (window, before) = (Instant::now(), now);
            }
            if look.elapsed() >= Duration::from_secs(1) && !tally.is_paused() {
                look = Instant::now();
                self.rss
                    .push((start.elapsed().as_secs_f64(), samewire.rss()? as f64));
                self.descriptors.push(samewire.descriptors()?);
                self.threads.push(samewire.threads()?);
            }
        }
        Ok(())
    }

    pub(crate) fn peak(&self) -> f64 {
        self.rss.iter().map(|(_, bytes)| *bytes).fold(0.0, f64::max)
    }

    /// Returns the growth of memory in bytes per hour after the warm-up, or in the second half of a shorter run,
    /// and the upper end of its 95 % interval.
    pub(crate) fn slope(&self, warm_up: Duration) -> (f64, f64) {
        let length = self.rss.last().map_or(0.0, |(time, _)| *time);
        let from = (length / 2.0).min(warm_up.as_secs_f64());
        // Adjacent samples are correlated, so only one in ten is used.
        let points: Vec<_> = self
            .rss
            .iter()
            .filter(|(time, _)| *time >= from)
            .step_by(10)
            .collect();
        let n = points.len() as f64;
        if n < 4.0 {
            return (0.0, f64::INFINITY);
        }
        let mean =
            |of: fn(&(f64, f64)) -> f64| points.iter().map(|point| of(point)).sum::<f64>() / n;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let slope = points
            .iter()
            .map(|point| (point.0 - x) * (point.1 - y))
            .sum::<f64>()
            / spread;
        let rest: f64 = points
            .iter()
            .map(|point| (point.1 - y - slope * (point.0 - x)).powi(2))
            .sum();
        let error = (rest / (n - 2.0) / spread).sqrt();
        (slope * 3_600.0, (slope + 1.96 * error) * 3_600.0)
    }

    /// Returns how much the maximum of the last third of the values exceeds that of the middle third.
    pub(crate) fn growth(values: &[usize]) -> i64 {
        let third = values.len() / 3;
        let most = |values: &[usize]| values.iter().copied().max().unwrap_or(0) as i64;
        most(&values[2 * third..]) - most(&values[third..2 * third])
    }
}

/// Returns the numbers of requests and of attempts at engines that went through the proxy.
fn counts(tally: &Tally) -> (u64, u64) {
    let direct = tally.direct.load(Ordering::Relaxed);
    let attempts = tally
        .registry
        .attempts
        .load(Ordering::Relaxed)
        .saturating_sub(direct);
    (tally.requests.load(Ordering::Relaxed), attempts)
}

/// Returns the number of attempts per request over the whole run.
pub(crate) fn ratio(tally: &Tally) -> f64 {
    let (requests, attempts) = counts(tally);
    attempts as f64 / requests.max(1) as f64
}
