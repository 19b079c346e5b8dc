//! Quotas of keys: concurrent requests, requests and tokens per minute, day and month, and the response headers
//! and events that report them.
//!
//! Requests are counted on arrival. The cost of an answer is unknown until it ends, so a request is admitted while
//! any tokens are left, and the engine's count is charged at the end of the answer, even beyond the limit. No
//! request is admitted afterwards until that excess has been made up for. Daily and monthly requests are charged
//! at the end as well, if an engine was contacted; until then each running request counts as one.
//!
//! Limits of a minute may be shared with other processes (`[shared_limits]`): what these have counted is charged here
//! as well, as of about a second ago.

mod report;
mod usage;
mod window;

pub(in crate::server) use usage::{SYNC, Usages};

use crate::auth::{Allowance, Caller, Hash, Keyring, Quota, WhenUsedUp};
use crate::config::WhenAway;
use crate::server::App;
use crate::store::Millis;
use crate::wire::encode::LimitUse;
use crate::wire::fault::{Failure, Fault};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use usage::{Amounts, KeyUsage};
use window::{Period, Window};

const MINUTE: Duration = Duration::from_secs(60);
/// Time after which a client may ask again whose limits could not be checked.
const RETRY_AFTER: Duration = Duration::from_secs(5);
const PREFIX: &str = "x-ratelimit-";

/// Quotas of all keys that have one, by the name of the key. Built anew on each reload of the configuration.
#[derive(Default)]
pub(in crate::server) struct Quotas(HashMap<Arc<str>, (Hash, Arc<KeyQuota>)>);

/// Quota of one key, shared by its requests: the limits per minute and, if set, the daily and monthly budget.
struct KeyQuota {
    meters: Arc<Meters>,
    /// Daily and monthly quota, with the usage counted against it.
    budget: Option<(Quota, Arc<KeyUsage>)>,
    /// Counts by which the limits per minute are shared, and the rule for a store that does not answer.
    shared: Option<(Arc<KeyUsage>, WhenAway)>,
}

impl Quotas {
    /// Returns the quotas of all keys. A key with the same allowance as before keeps its counters of the minute;
    /// the usage of the day and the month is kept in any case.
    pub(in crate::server) fn of(
        keys: Option<&Keyring>,
        shared: Option<WhenAway>,
        before: &Self,
        usages: &Usages,
    ) -> Self {
        let limited = keys.into_iter().flat_map(Keyring::callers);
        let limited = limited.filter(|(_, caller)| {
            caller.allowance != Allowance::default() || caller.quota.limits()
        });
        // Compare by hash: after a reload a name may belong to another key.
        let meters = |hash: &Hash, caller: &Caller| {
            let mut known = before.0.values();
            let is_same = |of: &Hash, quota: &KeyQuota| {
                of.equals(hash) && quota.meters.allowance == caller.allowance
            };
            let known = known.find(|(of, quota)| is_same(of, quota));
            known.map_or_else(
                || Arc::new(Meters::new(caller.allowance)),
                |(_, quota)| Arc::clone(&quota.meters),
            )
        };
        let quota = |hash: &Hash, caller: &Caller| {
            let budget = caller
                .quota
                .limits()
                .then(|| (caller.quota.clone(), usages.of(hash)));
            let is_paced =
                caller.allowance.requests_per_minute > 0 || caller.allowance.tokens_per_minute > 0;
            let shared = shared
                .filter(|_| is_paced)
                .map(|when_away| (usages.of(hash), when_away));
            Arc::new(KeyQuota {
                meters: meters(hash, caller),
                budget,
                shared,
            })
        };
        Self(
            limited
                .map(|(hash, caller)| (Arc::clone(&caller.name), (*hash, quota(hash, caller))))
                .collect(),
        )
    }

    /// Enters a request under the quota of the key of this name, with the use by other processes up to date. Returns
    /// `None` if the key has no quota; fails if a limit is used up.
    pub(in crate::server) async fn admit(
        &self,
        name: &str,
        state: &mut Option<QuotaState>,
        app: &App,
    ) -> Option<Result<Ticket, Refused>> {
        let (_, quota) = self.0.get(name)?;
        if let Some((_, usage)) = &quota.budget {
            app.admit
                .usages
                .refresh(usage, &app.store_handle, &app.metrics)
                .await;
        }
        if let Some((usage, WhenAway::Closed)) = &quota.shared {
            app.admit
                .usages
                .refresh(usage, &app.store_handle, &app.metrics)
                .await;
            if !usage.is_shared() {
                usage.mark_queried();
                return Some(Err((store_is_away(), RETRY_AFTER)));
            }
        }
        Some(quota.enter(state.insert(QuotaState::default()), app.store_handle.now()))
    }
}

/// Limits of one key on concurrent requests and on requests and tokens per minute.
struct Meters {
    allowance: Allowance,
    requests: Option<Meter>,
    tokens: Option<Meter>,
    at_once: Option<usize>,
    running: AtomicUsize,
}

/// Limit per minute, refilled continuously rather than at the start of each minute.
struct Meter {
    limit: NonZeroU32,
    /// Time in which one unit is refilled.
    each: Duration,
    /// Time at which all units are available again. It is more than a minute ahead when units are owed.
    full_at: Mutex<Instant>,
}

impl Meter {
    fn new(limit: NonZeroU32) -> Self {
        Self {
            limit,
            each: MINUTE / limit.get(),
            full_at: Mutex::new(Instant::now()),
        }
    }

    /// Takes one unit and returns how many are left. Fails with the time until one is available, which is whole units
    /// while units are owed.
    fn take(&self) -> Result<u32, Duration> {
        let (mut full_at, now) = (self.full_at.lock(), Instant::now());
        let (all, used) = (
            self.each * self.limit.get(),
            full_at.saturating_duration_since(now) + self.each,
        );
        let wait = used.saturating_sub(all);
        if wait > self.each {
            let units = wait.as_nanos().div_ceil(self.each.as_nanos());
            return Err(self.each * u32::try_from(units).unwrap_or(u32::MAX));
        }
        if !wait.is_zero() {
            return Err(wait);
        }
        *full_at = now + used;
        Ok(u32::try_from((all - used).as_nanos() / self.each.as_nanos()).unwrap_or(u32::MAX))
    }

    /// Takes units whether they are available or not.
    fn owe(&self, count: u64) {
        let mut full_at = self.full_at.lock();
        let time = self.each * u32::try_from(count).unwrap_or(u32::MAX);
        *full_at = (*full_at)
            .max(Instant::now())
            .checked_add(time)
            .unwrap_or(*full_at);
    }

    fn reading(&self, left: u32) -> Reading {
        let reset = self.each * self.limit.get().saturating_sub(left);
        Reading {
            limit: self.limit.get().into(),
            left: left.into(),
            reset,
            minutes: 1,
        }
    }
}

/// State of one limit when a request arrived, as reported in headers and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    limit: u64,
    left: u64,
    /// Time until the limit is available in full again.
    reset: Duration,
    /// Length of the limit's period in minutes.
    minutes: u64,
}

impl Reading {
    /// Returns true if a larger share of this limit is used than of the other.
    fn is_nearer(&self, other: &Self) -> bool {
        let share = |one: &Self, of: &Self| u128::from(one.limit - one.left) * u128::from(of.limit);
        share(self, other) > share(other, self)
    }

    /// Returns the reading with the largest used share.
    fn nearest(readings: impl Iterator<Item = Self>) -> Option<Self> {
        readings.reduce(|nearest, reading| {
            if reading.is_nearer(&nearest) {
                reading
            } else {
                nearest
            }
        })
    }
}

/// State of a key's limits when a request arrived: for requests and for tokens, the limit with the largest used
/// share.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::server) struct QuotaState {
    requests: Option<Reading>,
    tokens: Option<Reading>,
}

impl QuotaState {
    /// Returns the limit that events report: the one with the largest used share (wire-format 4.9).
    pub(in crate::server) fn limits(&self) -> Option<LimitUse> {
        let nearest = Reading::nearest([self.requests, self.tokens].into_iter().flatten())?;
        let used =
            u128::from(nearest.limit - nearest.left) * 100 / u128::from(nearest.limit.max(1));
        let used_percent = u64::try_from(used).unwrap_or(100);
        Some(LimitUse {
            used_percent,
            window_minutes: nearest.minutes,
        })
    }

    fn note(&mut self, requests: Option<Reading>, tokens: Option<Reading>) {
        self.requests = Reading::nearest([self.requests, requests].into_iter().flatten());
        self.tokens = Reading::nearest([self.tokens, tokens].into_iter().flatten());
    }

    /// Sets the `x-ratelimit-` headers in OpenAI's form. Those of the engine, or of a proxy before it, are
    /// removed: they describe limits that are not the client's.
    pub(in crate::server) fn set_headers(&self, headers: &mut HeaderMap) {
        let others: Vec<_> = headers
            .keys()
            .filter(|name| name.as_str().starts_with(PREFIX))
            .cloned()
            .collect();
        for name in others {
            headers.remove(name);
        }
        for (what, reading) in [("requests", self.requests), ("tokens", self.tokens)] {
            let Some(Reading {
                limit, left, reset, ..
            }) = reading
            else {
                continue;
            };
            for (part, value) in [
                ("limit", limit.to_string()),
                ("remaining", left.to_string()),
                ("reset", span(reset)),
            ] {
                let name = HeaderName::try_from(format!("{PREFIX}{part}-{what}"));
                if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
                    headers.insert(name, value);
                }
            }
        }
    }
}

/// Formats a duration as OpenAI's headers do: `20ms`, `1.5s`, `6m0s`, `1h0m0s`.
fn span(time: Duration) -> String {
    let milliseconds = time.as_millis();
    if milliseconds < 1000 {
        return format!("{milliseconds}ms");
    }
    let (minutes, rest) = (milliseconds / 60_000, milliseconds % 60_000);
    let seconds = match rest % 1000 {
        0 => format!("{}s", rest / 1000),
        part => format!(
            "{}.{}s",
            rest / 1000,
            format!("{part:03}").trim_end_matches('0')
        ),
    };
    match (minutes / 60, minutes % 60) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

/// Error of a refused request, with the time until a retry can succeed.
type Refused = (Failure, Duration);

impl Meters {
    fn new(allowance: Allowance) -> Self {
        Self {
            allowance,
            requests: NonZeroU32::new(allowance.requests_per_minute).map(Meter::new),
            tokens: NonZeroU32::new(allowance.tokens_per_minute).map(Meter::new),
            at_once: Some(allowance.concurrency).filter(|most| *most > 0),
            running: AtomicUsize::new(0),
        }
    }

    /// Takes one request and one token of the minute. Fails with the time to wait if either is used up.
    fn take(&self, state: &mut QuotaState) -> Result<(), Refused> {
        if let Some(meter) = &self.requests {
            let left = meter.take();
            state.note(Some(meter.reading(left.unwrap_or(0))), None);
            left.map_err(|wait| (refused("requests", meter), wait))?;
        }
        if let Some(meter) = &self.tokens {
            let left = meter.take();
            state.note(None, Some(meter.reading(left.unwrap_or(0))));
            left.map_err(|wait| (refused("tokens", meter), wait))?;
        }
        Ok(())
    }

    /// Counts one more running request and returns how many there were before. Fails if the limit is reached.
    fn begin(&self) -> Result<usize, Refused> {
        let most = self.at_once.unwrap_or(usize::MAX);
        let room = |running: usize| (running < most).then_some(running + 1);
        self.running
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
            .map_err(|_| {
                let what = format!("This key may have {most} requests at once.");
                (
                    Failure::from(Fault::ConcurrencyLimit).with_message(what),
                    Duration::ZERO,
                )
            })
    }

    /// Charges what other processes have let in and used.
    fn charge_foreign(&self, amounts: Amounts) {
        for (meter, amount) in [
            (&self.requests, amounts.requests),
            (&self.tokens, amounts.tokens),
        ] {
            if let Some(meter) = meter.as_ref().filter(|_| amount > 0) {
                meter.owe(amount);
            }
        }
    }
}

/// Returns the refusal of a request whose shared limits cannot be checked.
fn store_is_away() -> Failure {
    let message =
        "The limits of this key cannot be checked now, because the store does not answer.";
    Failure::from(Fault::StoreUnavailable).with_message(message)
}

fn refused(what: &str, meter: &Meter) -> Failure {
    let message = format!("This key may use {} {what} a minute.", meter.limit);
    Failure::from(Fault::RateLimit).with_message(message)
}

/// Daily or monthly limit on requests or tokens, with the window and the amount left in it.
struct Limit {
    period: Period,
    what: &'static str,
    window: Window,
    reading: Reading,
}

impl Limit {
    /// Returns the limits that are set. `before` is the number of running requests, each of which may still be
    /// charged.
    fn all(quota: &Quota, usage: &KeyUsage, before: u64, now: Millis) -> Vec<Self> {
        let mut all = Vec::with_capacity(4);
        for (period, requests, tokens) in [
            (Period::Day, quota.requests_per_day, quota.tokens_per_day),
            (
                Period::Month,
                quota.requests_per_month,
                quota.tokens_per_month,
            ),
        ] {
            let (window, used) = usage.used(period, now);
            let reset = Duration::from_millis(window.ends.saturating_sub(now));
            for (what, limit, used) in [
                ("requests", requests, used.requests.saturating_add(before)),
                ("tokens", tokens, used.tokens),
            ] {
                if limit > 0 {
                    let left = limit.saturating_sub(used);
                    let reading = Reading {
                        limit,
                        left,
                        reset,
                        minutes: window.minutes(),
                    };
                    all.push(Self {
                        period,
                        what,
                        window,
                        reading,
                    });
                }
            }
        }
        all
    }

    /// Returns the failure for a request when this limit is used up (wire-format 3.4).
    fn failure(&self, quota: &Quota) -> Failure {
        let Self {
            period,
            what,
            window,
            reading,
        } = self;
        let (limit, period, end) = (reading.limit, period.name(), window.end());
        let what = format!(
            "this key may use {limit} {what} a {period}, and has used them. The next {period} begins at {end}."
        );
        match quota.when_used_up {
            WhenUsedUp::InsufficientQuota => {
                let message = format!("You exceeded your current quota: {what}");
                Failure::from(Fault::InsufficientQuota).with_message(message)
            }
            WhenUsedUp::UsageLimitReached => Failure::from(Fault::UsageLimit)
                .with_message(format!("The usage limit has been reached: {what}"))
                .with_usage_limit(quota.plan.as_deref(), window.resets_at()),
        }
    }
}

impl KeyQuota {
    /// Admits a request and returns its ticket. Fails with the time to wait if a limit is used up.
    fn enter(self: &Arc<Self>, state: &mut QuotaState, now: Millis) -> Result<Ticket, Refused> {
        let before = self.meters.begin()?;
        let mut ticket = Ticket(Admission {
            quota: Arc::clone(self),
            limits: None,
        });
        if let Some((quota, usage)) = &self.budget {
            let limits = Limit::all(quota, usage, u64::try_from(before).unwrap_or(u64::MAX), now);
            // If several are used up, the client has to wait for the last to reset.
            let used_up = limits.iter().filter(|limit| limit.reading.left == 0);
            let used_up = used_up.max_by_key(|limit| limit.window.ends);
            for limit in &limits {
                // This request counts as one of the requests.
                let own = u64::from(limit.what == "requests");
                let left = limit.reading.left.saturating_sub(own);
                let reading = Some(Reading {
                    left,
                    ..limit.reading
                });
                if own == 1 {
                    state.note(reading, None)
                } else {
                    state.note(None, reading)
                }
            }
            if let Some(limit) = used_up {
                return Err((limit.failure(quota), limit.reading.reset));
            }
        }
        if let Some((usage, _)) = &self.shared {
            self.meters.charge_foreign(usage.take_foreign(now));
        }
        self.meters.take(state)?;
        if let Some((usage, _)) = &self.shared {
            usage.count_rate(
                Amounts {
                    requests: 1,
                    tokens: 0,
                },
                now,
            );
        }
        ticket.0.limits = state.limits();
        Ok(ticket)
    }
}

/// Admission of a request, from which continuations of the request get their own tickets.
#[derive(Clone)]
pub(in crate::server) struct Admission {
    quota: Arc<KeyQuota>,
    /// State of the limits that its events report.
    limits: Option<LimitUse>,
}

impl Admission {
    /// Returns a ticket for a continuation of the same request, whatever is left of the quota.
    pub(in crate::server) fn continuation_ticket(&self) -> Ticket {
        self.quota.meters.running.fetch_add(1, Ordering::Relaxed);
        Ticket(self.clone())
    }
}

/// Running request of a key. Dropping the ticket ends the request for the limit on concurrent requests.
pub(in crate::server) struct Ticket(Admission);

impl Ticket {
    /// Charges a finished request with its tokens. `contacted` is true if an engine was contacted for it.
    pub(in crate::server) fn charge(&self, tokens: u64, contacted: bool, now: Millis) {
        let KeyQuota {
            meters,
            budget,
            shared,
        } = &*self.0.quota;
        if let Some((_, usage)) = budget.as_ref().filter(|_| contacted || tokens > 0) {
            usage.charge(
                Amounts {
                    requests: 1,
                    tokens,
                },
                now,
            );
        }
        if let Some((usage, _)) = shared.as_ref().filter(|_| tokens > 0) {
            usage.count_rate(
                Amounts {
                    requests: 0,
                    tokens,
                },
                now,
            );
        }
        let Some(meter) = &meters.tokens else { return };
        // One token was taken on arrival.
        meter.owe(tokens.saturating_sub(1));
    }

    /// Returns the admission, for continuations of the request.
    pub(in crate::server) fn admission(&self) -> Admission {
        self.0.clone()
    }

    /// Returns the state of the key's limits that its events report.
    pub(in crate::server) fn limits(&self) -> Option<LimitUse> {
        self.0.limits
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.quota.meters.running.fetch_sub(1, Ordering::Relaxed);
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
            (3_600_000, "1h0m0s"),
            (86_399_500, "23h59m59.5s"),
        ] {
            assert_eq!(span(Duration::from_millis(milliseconds)), text);
        }
    }

    /// Start time of the tests: 2026-11-23 12:00 UTC, in milliseconds.
    const NOON: Millis = 1_795_435_200_000;
    const HALF_A_DAY: Millis = 43_200_000;

    fn of(allowance: Allowance, quota: Quota) -> Arc<KeyQuota> {
        let usage = quota
            .limits()
            .then(|| Arc::new(KeyUsage::new("key".into())));
        Arc::new(KeyQuota {
            meters: Arc::new(Meters::new(allowance)),
            budget: usage.map(|usage| (quota, usage)),
            shared: None,
        })
    }

    /// Admits one request with a fresh standing.
    fn enter(
        quota: &Arc<KeyQuota>,
        now: Millis,
    ) -> Result<(Ticket, QuotaState), (Failure, Duration)> {
        let mut state = QuotaState::default();
        quota.enter(&mut state, now).map(|ticket| (ticket, state))
    }

    fn fault<T>(entered: Result<T, (Failure, Duration)>) -> Option<Fault> {
        entered.err().map(|(failure, _)| failure.fault)
    }

    #[test]
    fn tokens_are_charged_beyond_what_is_left_and_made_up_for() {
        let quota = of(
            Allowance {
                tokens_per_minute: 600,
                ..Allowance::default()
            },
            Quota::default(),
        );
        let (first, state) = enter(&quota, NOON)
            .map_err(|refused| format!("{refused:?}"))
            .unwrap();
        assert_eq!(
            state.tokens.map(|reading| (reading.limit, reading.left)),
            Some((600, 599))
        );
        first.charge(100, true, NOON);
        let (second, state) = enter(&quota, NOON)
            .map_err(|refused| format!("{refused:?}"))
            .unwrap();
        // The time since then may have refilled one.
        assert!(
            state
                .tokens
                .is_some_and(|reading| (499..=502).contains(&reading.left)),
            "{state:?}"
        );
        second.charge(5_000, true, NOON);
        let (failure, wait) = enter(&quota, NOON).map(|_| ()).unwrap_err();
        assert_eq!(failure.fault, Fault::RateLimit);
        // 4,500 are owed, at ten a second.
        assert!((440..=451).contains(&wait.as_secs()), "{wait:?}");
        let (_, again) = enter(&quota, NOON).map(|_| ()).unwrap_err();
        assert!(again <= wait, "asking does not make it more");
    }

    #[test]
    fn so_many_at_once() {
        let quota = of(
            Allowance {
                concurrency: 2,
                ..Allowance::default()
            },
            Quota::default(),
        );
        let held = (enter(&quota, NOON), enter(&quota, NOON));
        assert_eq!(fault(enter(&quota, NOON)), Some(Fault::ConcurrencyLimit));
        drop(held);
        assert!(enter(&quota, NOON).is_ok());
    }

    #[test]
    fn requests_of_a_day_are_charged_at_their_end_and_held_until_then() {
        let quota = of(
            Allowance::default(),
            Quota {
                requests_per_day: 2,
                ..Quota::default()
            },
        );
        let (first, state) = enter(&quota, NOON)
            .map_err(|refused| format!("{refused:?}"))
            .unwrap();
        assert_eq!(
            state.requests,
            Some(Reading {
                limit: 2,
                left: 1,
                reset: Duration::from_secs(43_200),
                minutes: 1_440
            })
        );
        let (second, state) = enter(&quota, NOON)
            .map_err(|refused| format!("{refused:?}"))
            .unwrap();
        assert_eq!(state.requests.map(|reading| reading.left), Some(0));
        assert_eq!(fault(enter(&quota, NOON)), Some(Fault::InsufficientQuota));
        // A request for which no engine was contacted costs nothing.
        first.charge(0, false, NOON);
        drop(first);
        second.charge(7, true, NOON);
        drop(second);
        let (third, _) = enter(&quota, NOON)
            .map_err(|refused| format!("{refused:?}"))
            .unwrap();
        third.charge(0, true, NOON);
        drop(third);
        let (failure, wait) = enter(&quota, NOON).map(|_| ()).unwrap_err();
        assert_eq!(
            (failure.fault, wait),
            (Fault::InsufficientQuota, Duration::from_secs(43_200))
        );
        assert_eq!(
            failure.message,
            "You exceeded your current quota: this key may use 2 requests a day, and has used them. The next day begins at \
             2026-11-24 00:00 UTC."
        );
        assert!(enter(&quota, NOON + HALF_A_DAY).is_ok(), "the next day");
    }

    #[test]
    fn of_several_limits_the_last_to_begin_anew_is_told() {
        let limits = Quota {
            tokens_per_day: 100,
            tokens_per_month: 150,
            when_used_up: WhenUsedUp::UsageLimitReached,
            plan: Some("team".into()),
            ..Quota::default()
        };
        let quota = of(Allowance::default(), limits);
        let told = |now| {
            let (failure, _) = enter(&quota, now).map(|_| ()).unwrap_err();
            let mut out = bytes::BytesMut::new();
            failure.write(false, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        };
        enter(&quota, NOON)
            .map(|(ticket, _)| ticket.charge(120, true, NOON))
            .map_err(drop)
            .unwrap();
        let today = told(NOON);
        assert!(today.contains("100 tokens a day"), "{today}");
        assert!(
            today.ends_with(
                r#""type":"usage_limit_reached","param":null,"code":"usage_limit_reached","plan_type":"team","resets_at":1795478400}}"#
            ),
            "{today}"
        );
        let tomorrow = NOON + HALF_A_DAY;
        enter(&quota, tomorrow)
            .map(|(ticket, _)| ticket.charge(120, true, tomorrow))
            .map_err(drop)
            .unwrap();
        let month = told(tomorrow);
        assert!(
            month.contains("150 tokens a month") && month.ends_with(r#""resets_at":1796083200}}"#),
            "{month}"
        );
    }

    #[test]
    fn the_limit_of_which_most_is_used_is_told() {
        let limits = Quota {
            requests_per_day: 100,
            tokens_per_month: 1_000,
            ..Quota::default()
        };
        let quota = of(
            Allowance {
                requests_per_minute: 4,
                ..Allowance::default()
            },
            limits,
        );
        let told = || {
            enter(&quota, NOON).ok().and_then(|(ticket, state)| {
                ticket.charge(300, true, NOON);
                state
                    .limits()
                    .map(|limits| (limits.used_percent, limits.window_minutes))
            })
        };
        // A quarter of the minute's requests, half of them, then 60 % of the month's tokens beside three quarters.
        assert_eq!(told(), Some((25, 1)));
        assert_eq!(told(), Some((50, 1)));
        assert_eq!(told(), Some((75, 1)));
        assert_eq!(told(), Some((100, 1)));
        assert_eq!(fault(enter(&quota, NOON)), Some(Fault::InsufficientQuota));
        let mut state = QuotaState::default();
        assert!(quota.enter(&mut state, NOON).is_err());
        let limits = state
            .limits()
            .map(|limits| (limits.used_percent, limits.window_minutes));
        assert_eq!(
            limits,
            Some((100, 30 * 1_440)),
            "a refusal tells what is used up"
        );
    }
}
