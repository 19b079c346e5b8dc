//! Entries `[[auth.key]]`: checks the keys of clients, and resolves their tenants, models and limits.

use super::file::{AuthFile, File, KeyFile};
use super::merged::Merged;
use super::mistakes::Mistakes;
use super::paths::Folder;
use super::rows::Rows;
use super::{Credentials, UpstreamConfig};
use crate::auth::{Allowance, Caller, Hash, Keyring, PriorityRule, Quota, is_name};
use crate::store::StoreLocation;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

const NAMES: &str = "must be 1 to 64 letters, digits, dots, dashes and underscores";

/// Returns the active client keys; `None` if the file contains no keys, so that none are checked. If all keys are
/// disabled, every request is refused.
pub(super) fn keyring(file: &AuthFile, mistakes: &mut Mistakes) -> Option<Arc<Keyring>> {
    if file.key.is_empty() {
        return None;
    }
    let has_priorities = file
        .key
        .iter()
        .any(|key| key.priority != 0 || key.may_set_priority);
    let mut known: Vec<(usize, Hash)> = Vec::new();
    let mut all = Vec::new();
    for (at, key) in file.key.iter().enumerate() {
        let path = |part: &str| format!("auth.key[{at}].{part}");
        let Some(hash) = Hash::parse(&key.hash.0) else {
            // The value is not repeated: it may be a key instead of a hash.
            let why = match key.hash.0.is_empty() {
                true => "missing; the 64 hex digits that samewire key new prints",
                false => "must be 64 hex digits, as samewire key new prints them",
            };
            mistakes.add(path("hash"), why);
            continue;
        };
        if let Some((other, _)) = known.iter().find(|(_, other)| other.equals(&hash)) {
            mistakes.add(
                path("hash"),
                format!("the same as that of auth.key[{other}]"),
            );
        }
        known.push((at, hash));
        let same = |other: &&KeyFile| !key.name.is_empty() && other.name == key.name;
        if let Some(other) = file.key.iter().take(at).position(|other| same(&other)) {
            mistakes.add(
                path("name"),
                format!("the same as that of auth.key[{other}]"),
            );
        }
        let priority = match (has_priorities, key.may_set_priority) {
            (false, _) => PriorityRule::Client,
            (true, false) => PriorityRule::Fixed(key.priority),
            (true, true) => PriorityRule::Usual(key.priority),
        };
        let caller = Caller {
            priority,
            ..caller(at, key, &hash, path, mistakes)
        };
        all.extend((!key.disabled).then_some((hash, caller)));
    }
    Some(Arc::new(all.into_iter().collect()))
}

fn caller(
    at: usize,
    file: &KeyFile,
    hash: &Hash,
    path: impl Fn(&str) -> String,
    mistakes: &mut Mistakes,
) -> Caller {
    for (part, name) in [
        ("name", &file.name),
        ("tenant", &file.tenant),
        ("plan", &file.plan),
    ] {
        if !name.is_empty() && !is_name(name) {
            mistakes.add(path(part), NAMES);
        }
    }
    if file.models.iter().any(String::is_empty) {
        mistakes.add(path("models"), "a model without a name");
    }
    for model in &file.models_not_included {
        if model.is_empty() {
            mistakes.add(path("models_not_included"), "a model without a name");
        } else if file.models.contains(model) {
            mistakes.add(
                path("models_not_included"),
                format!("`{model}` stands in models, too"),
            );
        }
    }
    let named = !file.tenant.is_empty();
    Caller {
        name: file.name_at(at).into(),
        tenant: if named {
            file.tenant.as_str().into()
        } else {
            hash.tenant().into()
        },
        has_named_tenant: named,
        models: file.models.clone(),
        index: at,
        allowance: Allowance {
            requests_per_minute: file.requests_per_minute,
            tokens_per_minute: file.tokens_per_minute,
            concurrency: file.concurrency,
        },
        quota: Quota {
            requests_per_day: file.requests_per_day,
            requests_per_month: file.requests_per_month,
            tokens_per_day: file.tokens_per_day,
            tokens_per_month: file.tokens_per_month,
            when_used_up: file.when_used_up,
            plan: (!file.plan.is_empty()).then(|| file.plan.as_str().into()),
        },
        not_included: file.models_not_included.clone(),
        may_capture: file.capture,
        priority: PriorityRule::default(),
    }
}

/// Reports a mistake if the API would be open to other machines without keys, unless the operator has explicitly
/// allowed that; and the opposite contradiction.
pub(super) fn check_reach(file: &File, listen: Option<SocketAddr>, mistakes: &mut Mistakes) {
    match (file.insecure_no_auth, file.checks_keys(), listen) {
        (true, true, _) => mistakes.add(
            "insecure_no_auth",
            "there are keys in [auth], and they are checked; take one of the two out",
        ),
        (false, false, Some(listen)) if !listen.ip().is_loopback() => mistakes.add(
            "listen",
            format!(
                "{listen} can be reached from other machines and no keys are checked; listen on 127.0.0.1, make keys \
                 with samewire key new, or say --insecure-no-auth if everybody who can connect may use the engine"
            ),
        ),
        _ => {}
    }
}

/// Returns the names of all keys in a file, empty for keys without a name.
///
/// # Errors
/// Fails with the mistakes that prevent the keys from loading, with their lines: the file is not TOML, or an entry
/// is invalid. Mistakes in other keys of the file are ignored.
pub fn names_of_keys(file_name: &str, text: &str) -> Result<Vec<String>, Mistakes> {
    let merged = Merged::read(
        Some(file_name),
        text,
        &Folder::default(),
        Mistakes::default(),
    )?;
    let (file, origins, all) = merged.finish();
    let mut mistakes = all.below("auth");
    file.auth.check("auth", &mut mistakes);
    keyring(&file.auth, &mut mistakes);
    if file.insecure_no_auth {
        check_reach(&file, None, &mut mistakes);
    }
    let names = file.auth.key.into_iter().map(|key| key.name).collect();
    mistakes
        .into_result(names)
        .map_err(|mistakes| mistakes.located(&origins))
}

/// Returns a summary of the keys as TOML comments, for `samewire check`.
pub(super) fn summary(
    file: &AuthFile,
    keyring: &Keyring,
    store: &StoreLocation,
    upstreams: &[UpstreamConfig],
) -> String {
    let mut tenants: BTreeMap<&str, usize> = BTreeMap::new();
    for key in &file.key {
        *tenants.entry(&key.tenant).or_default() += 1;
    }
    let alone = tenants.remove("").unwrap_or_default();
    let mut whose: Vec<_> = tenants
        .iter()
        .map(|(tenant, keys)| format!("{tenant} ({keys})"))
        .collect();
    if alone > 0 {
        whose.push(format!("{alone} without a tenant's name, each for itself"));
    }
    let disabled = match file.key.iter().filter(|key| key.disabled).count() {
        0 => String::new(),
        disabled => format!(", {disabled} disabled"),
    };
    let sees = |upstream: &UpstreamConfig| {
        let whose = match upstream.auth {
            Credentials::None => "no key",
            Credentials::Pass => "the client's key",
            Credentials::Own(_) => "a key of samewire's own",
        };
        format!("# {} sees {whose}.\n", upstream.name)
    };
    let (keys, whose) = (file.key.len(), whose.join(", "));
    let engines: String = upstreams.iter().map(sees).collect();
    let limited = keyring.callers().any(|(_, caller)| caller.quota.limits());
    let mut quotas = "";
    if limited && matches!(store, StoreLocation::Off | StoreLocation::Memory) {
        quotas = "# What keys have used of a day or a month is kept in this process: a restart begins at 0 (store.place).\n";
    }
    format!("# Keys: {keys}{disabled}; tenants: {whose}.\n{quotas}{engines}\n")
}
