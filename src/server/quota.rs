//! What a key may ask for in a minute and at once, and what its answers say of that in their heads.
//!
//! Requests are taken when they come. What an answer will cost is not known before it ends: a request is let in while
//! any tokens are left, and the engine's count is charged when the answer is over, also beyond what was left. Nothing is
//! let in then until that has been made up for.

use super::routes::Handling;
use crate::auth::{Allowance, Caller, Hash, Keyring};
use crate::wire::fault::{Failure, Fault};
use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota as Pace, RateLimiter};
use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const PREFIX: &str = "x-ratelimit-";

/// The quotas of all keys that have one, by the keys' names.
#[derive(Default)]
pub(super) struct Quotas(HashMap<Arc<str>, (Hash, Arc<Quota>)>);

impl Quotas {
    /// Those of all keys; a key that may ask for as much as before goes on counting from where it was.
    pub(super) fn of(keys: Option<&Keyring>, before: &Self) -> Self {
        let limited = keys.into_iter().flat_map(Keyring::callers);
        let limited = limited.filter(|(_, caller)| caller.allowance != Allowance::default());
        // Names may be another key's now.
        let quota = |hash: &Hash, caller: &Caller| {
            let mut known = before.0.values();
            let known = known.find(|(of, known)| of.is(hash) && known.allowance == caller.allowance);
            known.map_or_else(|| Arc::new(Quota::new(caller.allowance)), |(_, known)| Arc::clone(known))
        };
        Self(limited.map(|(hash, caller)| (Arc::clone(&caller.name), (*hash, quota(hash, caller)))).collect())
    }
}

/// One key's.
struct Quota {
    allowance: Allowance,
    requests: Option<Meter>,
    tokens: Option<Meter>,
    /// Tokens that were used and are not taken yet.
    debt: Mutex<u64>,
    at_once: Option<usize>,
    running: AtomicUsize,
}

/// So many in a minute.
struct Meter {
    limiter: RateLimiter<NotKeyed, InMemoryState, DefaultClock, StateInformationMiddleware>,
    limit: NonZeroU32,
}

impl Meter {
    fn new(limit: NonZeroU32) -> Self {
        let limiter = RateLimiter::direct(Pace::per_minute(limit));
        Self { limiter: limiter.with_middleware::<StateInformationMiddleware>(), limit }
    }

    /// Takes so many, and gives what is left; or how long until they can be had.
    fn take(&self, count: NonZeroU32) -> Result<u32, Duration> {
        match self.limiter.check_n(count) {
            Ok(Ok(snapshot)) => Ok(snapshot.remaining_burst_capacity()),
            Ok(Err(early)) => Err(early.wait_time_from(self.limiter.clock().now())),
            Err(_) => Err(MINUTE),
        }
    }

    /// How long it takes until there are so many more.
    fn time_for(&self, count: u64) -> Duration {
        let each = MINUTE.as_nanos() / u128::from(self.limit.get());
        let nanoseconds = each.saturating_mul(u128::from(count));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    fn reading(&self, left: u32) -> Reading {
        let reset = self.time_for(self.limit.get().saturating_sub(left).into());
        Reading { limit: self.limit.get(), left, reset }
    }
}

/// What a meter showed when a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    limit: u32,
    left: u32,
    /// Until it is full.
    reset: Duration,
}

/// What there was of a key's quota when a request came.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    requests: Option<Reading>,
    tokens: Option<Reading>,
}

impl Standing {
    /// Says it as OpenAI does. What the engine, or whatever stands before it, says of its own limits is not the client's.
    pub(super) fn sign(&self, headers: &mut HeaderMap) {
        let others: Vec<_> =
            headers.keys().filter(|name| name.as_str().starts_with(PREFIX)).cloned().collect();
        for name in others {
            headers.remove(name);
        }
        for (what, reading) in [("requests", self.requests), ("tokens", self.tokens)] {
            let Some(Reading { limit, left, reset }) = reading else { continue };
            for (part, value) in
                [("limit", limit.to_string()), ("remaining", left.to_string()), ("reset", span(reset))]
            {
                let name = HeaderName::try_from(format!("{PREFIX}{part}-{what}"));
                if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
                    headers.insert(name, value);
                }
            }
        }
    }
}

/// `20ms`, `1.5s`, `6m0s`.
fn span(time: Duration) -> String {
    let milliseconds = time.as_millis();
    if milliseconds < 1000 {
        return format!("{milliseconds}ms");
    }
    let (minutes, rest) = (milliseconds / 60_000, milliseconds % 60_000);
    let seconds = match rest % 1000 {
        0 => format!("{}s", rest / 1000),
        part => format!("{}.{}s", rest / 1000, format!("{part:03}").trim_end_matches('0')),
    };
    if minutes == 0 { seconds } else { format!("{minutes}m{seconds}") }
}

impl Quota {
    fn new(allowance: Allowance) -> Self {
        Self {
            allowance,
            requests: NonZeroU32::new(allowance.requests_per_minute).map(Meter::new),
            tokens: NonZeroU32::new(allowance.tokens_per_minute).map(Meter::new),
            debt: Mutex::default(),
            at_once: Some(allowance.concurrency).filter(|most| *most > 0),
            running: AtomicUsize::new(0),
        }
    }

    /// Lets a request in; or says why not, and how long that will be so.
    fn enter(self: &Arc<Self>, standing: &mut Standing) -> Result<Ticket, (Failure, Duration)> {
        let ticket = self.begin()?;
        if let Some(meter) = &self.requests {
            let left = meter.take(NonZeroU32::MIN);
            standing.requests = Some(meter.reading(left.unwrap_or(0)));
            left.map_err(|wait| (refused("requests", meter), wait))?;
        }
        if let Some(meter) = &self.tokens {
            let left = self.settle(meter).and_then(|()| meter.take(NonZeroU32::MIN));
            standing.tokens = Some(meter.reading(left.unwrap_or(0)));
            left.map_err(|wait| (refused("tokens", meter), wait))?;
        }
        Ok(ticket)
    }

    fn begin(self: &Arc<Self>) -> Result<Ticket, (Failure, Duration)> {
        let most = self.at_once.unwrap_or(usize::MAX);
        let room = |running: usize| (running < most).then_some(running + 1);
        if self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_err() {
            let what = format!("This key may have {most} requests at once.");
            return Err((Failure::from(Fault::ConcurrencyLimit).with_message(what), Duration::ZERO));
        }
        Ok(Ticket(Arc::clone(self)))
    }

    /// Takes what is owed, as far as it is there; or says how long it will take until it is.
    fn settle(&self, meter: &Meter) -> Result<(), Duration> {
        let mut debt = self.debt.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(owed) = NonZeroU32::new(u32::try_from(*debt).unwrap_or(u32::MAX)) {
            let part = owed.min(meter.limit);
            if meter.take(part).is_ok() {
                *debt -= u64::from(part.get());
                continue;
            }
            // Not all of it: one tells how many more there are.
            let left = meter.take(NonZeroU32::MIN).inspect(|_| *debt -= 1).unwrap_or(0);
            if let Some(rest) = NonZeroU32::new(left.min(part.get() - 1))
                && meter.take(rest).is_ok()
            {
                *debt -= u64::from(rest.get());
            }
            return Err(meter.time_for(debt.saturating_add(1)));
        }
        Ok(())
    }
}

fn refused(what: &str, meter: &Meter) -> Failure {
    let message = format!("This key may use {} {what} a minute.", meter.limit);
    Failure::from(Fault::RateLimit).with_message(message)
}

/// A request of a key that is under way; until dropped.
pub(super) struct Ticket(Arc<Quota>);

impl Ticket {
    /// It is over, and has cost so many tokens.
    pub(super) fn charge(&self, tokens: u64) {
        let Some(meter) = &self.0.tokens else { return };
        // One was taken when it came.
        *self.0.debt.lock().unwrap_or_else(PoisonError::into_inner) += tokens.saturating_sub(1);
        let _ = self.0.settle(meter);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Handling {
    /// Counts a request against its key's quota.
    pub(super) fn count(&mut self) -> Result<(), Failure> {
        let quotas = &self.app.quotas.0;
        let Some((_, quota)) = self.caller.as_ref().and_then(|caller| quotas.get(&caller.name)) else {
            return Ok(());
        };
        let entered = quota.enter(self.standing.insert(Standing::default()));
        let ticket = entered.map_err(|(failure, wait)| {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            self.passed.insert(RETRY_AFTER, seconds.into());
            failure
        })?;
        if let Some(record) = &mut self.record {
            record.ticket = Some(ticket);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (milliseconds, text) in [
            (0, "0ms"),
            (20, "20ms"),
            (1000, "1s"),
            (1500, "1.5s"),
            (59_999, "59.999s"),
            (60_000, "1m0s"),
            (360_000, "6m0s"),
            (61_050, "1m1.05s"),
        ] {
            assert_eq!(span(Duration::from_millis(milliseconds)), text);
        }
    }

    #[test]
    fn tokens_are_charged_beyond_what_is_left_and_made_up_for() {
        let allowance = Allowance { tokens_per_minute: 600, ..Allowance::default() };
        let quota = Arc::new(Quota::new(allowance));
        let enter = || {
            let mut standing = Standing::default();
            quota
                .enter(&mut standing)
                .map_err(|(failure, wait)| (failure.fault, wait))
                .map(|ticket| (ticket, standing))
        };
        let (first, standing) = enter().map_err(|refused| format!("{refused:?}")).unwrap();
        assert_eq!(standing.tokens.map(|reading| (reading.limit, reading.left)), Some((600, 599)));
        first.charge(100);
        let (second, standing) = enter().map_err(|refused| format!("{refused:?}")).unwrap();
        // A moment may have given one back.
        assert!(standing.tokens.is_some_and(|reading| (499..=502).contains(&reading.left)), "{standing:?}");
        second.charge(5_000);
        let (fault, wait) = enter().map(|_| ()).unwrap_err();
        assert_eq!(fault, Fault::RateLimit);
        // 4,500 are owed, at ten a second.
        assert!((440..=451).contains(&wait.as_secs()), "{wait:?}");
        let (_, again) = enter().map(|_| ()).unwrap_err();
        assert!(again <= wait, "asking does not make it more");
    }

    #[test]
    fn so_many_at_once() {
        let allowance = Allowance { concurrency: 2, ..Allowance::default() };
        let quota = Arc::new(Quota::new(allowance));
        let enter = || quota.enter(&mut Standing::default()).map_err(|(failure, _)| failure.fault);
        let held = (enter(), enter());
        assert_eq!(enter().map(|_| ()), Err(Fault::ConcurrencyLimit));
        drop(held);
        assert!(enter().is_ok());
    }
}
