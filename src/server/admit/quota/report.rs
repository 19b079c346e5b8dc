//! Report of what keys have used of their quotas of a day and a month, for their owners and for operators.

use super::window::Period;
use super::{KeyQuota, Quotas};
use crate::auth::{Caller, Keyring};
use crate::json::members;
use crate::server::App;
use crate::store::Millis;
use serde::Serialize;

impl Quotas {
    /// Returns the use of a caller's key, with that by other processes as of the last seconds. Without a caller there
    /// is no quota.
    pub(in crate::server) async fn used_by(
        &self,
        caller: Option<&Caller>,
        app: &App,
    ) -> impl Serialize {
        let quota = caller.and_then(|caller| self.of_key(caller));
        if let Some((_, usage)) = quota.and_then(|quota| quota.budget.as_ref()) {
            app.admit
                .usages
                .refresh(usage, &app.store_handle, &app.metrics)
                .await;
        }
        report(caller, quota, app.store_handle.now())
    }

    /// Returns the use of all keys, in the order of their names.
    pub(in crate::server) async fn used_by_all(
        &self,
        keys: Option<&Keyring>,
        app: &App,
    ) -> Vec<impl Serialize> {
        let budgets = self
            .0
            .values()
            .filter_map(|(_, quota)| quota.budget.as_ref());
        budgets.for_each(|(_, usage)| usage.mark_queried());
        app.admit.usages.sync(&app.store_handle, &app.metrics).await;
        let mut callers: Vec<_> = keys
            .into_iter()
            .flat_map(Keyring::callers)
            .map(|(_, caller)| caller)
            .collect();
        callers.sort_by(|one, other| one.name.cmp(&other.name));
        let now = app.store_handle.now();
        callers
            .into_iter()
            .map(|caller| report(Some(caller), self.of_key(caller), now))
            .collect()
    }

    fn of_key(&self, caller: &Caller) -> Option<&KeyQuota> {
        self.0.get(&caller.name).map(|(_, quota)| &**quota)
    }
}

/// Returns the use of one key. A period is null where the key has no quota of a day or a month, since nothing is counted
/// then; so is the name if samewire checks no keys.
fn report(
    caller: Option<&Caller>,
    quota: Option<&KeyQuota>,
    now: Millis,
) -> impl Serialize + use<> {
    let period = |period| quota.and_then(|quota| quota.used(period, now));
    members! {
        object: "usage",
        key: caller.map(|caller| caller.name.to_string()),
        plan: caller.and_then(|caller| caller.quota.plan.as_ref()).map(ToString::to_string),
        day: period(Period::Day),
        month: period(Period::Month),
    }
}

impl KeyQuota {
    /// Returns the use in the current day or month, with its begin and end in Unix seconds; `None` if it is not counted. A
    /// limit is null if there is none.
    fn used(&self, period: Period, now: Millis) -> Option<impl Serialize + use<>> {
        let (quota, usage) = self.budget.as_ref()?;
        let (requests, tokens) = match period {
            Period::Day => (quota.requests_per_day, quota.tokens_per_day),
            _ => (quota.requests_per_month, quota.tokens_per_month),
        };
        let (window, used) = usage.used(period, now);
        let amount = |used, limit| members! { used, limit: Some(limit).filter(|limit| *limit > 0) };
        Some(members! {
            begins_at: window.begins / 1000,
            resets_at: window.resets_at(),
            requests: amount(used.requests, requests),
            tokens: amount(used.tokens, tokens),
        })
    }
}
