//! Report of what keys have used of their quotas of a day and a month, for their owners and for operators.

use super::window::Period;
use super::{KeyQuota, Quotas};
use crate::auth::{Caller, Keyring};
use crate::server::App;
use crate::store::Millis;
use serde::Serialize;

/// Use of one key. A period is null where the key has no quota of a day or a month, since nothing is counted then.
#[derive(Serialize)]
pub(in crate::server) struct UsageReport {
    object: &'static str,
    /// Name of the key; null if samewire checks no keys.
    key: Option<String>,
    plan: Option<String>,
    day: Option<PeriodUse>,
    month: Option<PeriodUse>,
}

/// Use in one period, with its begin and end in Unix seconds.
#[derive(Serialize)]
struct PeriodUse {
    begins_at: u64,
    resets_at: u64,
    requests: AmountUse,
    tokens: AmountUse,
}

#[derive(Serialize)]
struct AmountUse {
    used: u64,
    /// Null: no limit.
    limit: Option<u64>,
}

impl Quotas {
    /// Returns the use of a caller's key, with that by other processes as of the last seconds. Without a caller there
    /// is no quota.
    pub(in crate::server) async fn used_by(&self, caller: Option<&Caller>, app: &App) -> UsageReport {
        let quota = caller.and_then(|caller| self.of_key(caller));
        if let Some((_, usage)) = quota.and_then(|quota| quota.budget.as_ref()) {
            app.admit.usages.refresh(usage, &app.store_handle, &app.metrics).await;
        }
        UsageReport::of(caller, quota, app.store_handle.now())
    }

    /// Returns the use of all keys, in the order of their names.
    pub(in crate::server) async fn used_by_all(&self, keys: Option<&Keyring>, app: &App) -> Vec<UsageReport> {
        let budgets = self.0.values().filter_map(|(_, quota)| quota.budget.as_ref());
        budgets.for_each(|(_, usage)| usage.mark_queried());
        app.admit.usages.sync(&app.store_handle, &app.metrics).await;
        let callers = keys.into_iter().flat_map(Keyring::callers).map(|(_, caller)| caller);
        let report = |caller| UsageReport::of(Some(caller), self.of_key(caller), app.store_handle.now());
        let mut all: Vec<_> = callers.map(report).collect();
        all.sort_by(|one, other| one.key.cmp(&other.key));
        all
    }

    fn of_key(&self, caller: &Caller) -> Option<&KeyQuota> {
        self.0.get(&caller.name).map(|(_, quota)| &**quota)
    }
}

impl UsageReport {
    fn of(caller: Option<&Caller>, quota: Option<&KeyQuota>, now: Millis) -> Self {
        let period = |period| quota.and_then(|quota| quota.used(period, now));
        Self {
            object: "usage",
            key: caller.map(|caller| caller.name.to_string()),
            plan: caller.and_then(|caller| caller.quota.plan.as_ref()).map(ToString::to_string),
            day: period(Period::Day),
            month: period(Period::Month),
        }
    }
}

impl KeyQuota {
    /// Returns the use in the current day or month; `None` if it is not counted.
    fn used(&self, period: Period, now: Millis) -> Option<PeriodUse> {
        let (quota, usage) = self.budget.as_ref()?;
        let (requests, tokens) = match period {
            Period::Day => (quota.requests_per_day, quota.tokens_per_day),
            _ => (quota.requests_per_month, quota.tokens_per_month),
        };
        let (window, used) = usage.used(period, now);
        let amount = |used, limit| AmountUse { used, limit: Some(limit).filter(|limit| *limit > 0) };
        Some(PeriodUse {
            begins_at: window.begins / 1000,
            resets_at: window.resets_at(),
            requests: amount(used.requests, requests),
            tokens: amount(used.tokens, tokens),
        })
    }
}
