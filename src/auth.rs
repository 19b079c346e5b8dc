//! Authentication of clients by their keys, of which only hashes are stored (faults 10).
//!
//! Takes: the key that a client presents. Gives: the [`Caller`] it belongs to. Remembers: hashes. Never: stores a
//! key, compares keys before they are hashed, or ends a comparison early.

use crate::model_name;
use crate::wire::ident;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// Random bytes in a new key: 256 bits, far too many to guess.
pub const KEY_BYTES: usize = 32;
/// Longest name of a tenant, key or plan, in bytes; the shortest has one.
const MAX_NAME_BYTES: usize = 64;

/// Returns a new key: `sk-` and 32 random bytes in base64url. A key of this length cannot be guessed, so its
/// unsalted hash reveals nothing about it.
pub fn new_key(chance: &[u8; KEY_BYTES]) -> String {
    format!("sk-{}", URL_SAFE_NO_PAD.encode(chance))
}

/// Shortest key, in bytes, that [`masked`] shows a part of: the hidden rest is then still too long to guess.
const SHOWN_FROM: usize = 24;
/// Bytes that [`masked`] shows at the start and at the end of a key.
const SHOWN: (usize, usize) = (5, 4);

/// Returns a refused key in a form that its owner recognises and that cannot be used: `sk-ab***wxyz`. Short keys,
/// and keys with bytes other than visible ASCII, become `***`.
pub fn masked(key: &[u8]) -> String {
    const HIDDEN: &str = "***";
    let is_plain = key.len() >= SHOWN_FROM && key.iter().all(u8::is_ascii_graphic);
    let shown = std::str::from_utf8(key).ok().filter(|_| is_plain);
    let ends = shown.and_then(|key| key.get(..SHOWN.0).zip(key.get(key.len() - SHOWN.1..)));
    ends.map_or_else(
        || HIDDEN.to_owned(),
        |(first, last)| format!("{first}{HIDDEN}{last}"),
    )
}

/// Returns true if the text is a valid name for a key, tenant or plan: 1 to 64 ASCII letters, digits, dots, dashes
/// and underscores. Names generated here contain other characters, so they never equal a configured name.
pub fn is_name(text: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// SHA-256 hash of a client's key. The proxy stores and compares hashes only, and `Debug` output hides them.
#[derive(Clone, Copy)]
pub struct Hash([u8; 32]);

impl Hash {
    /// Returns the hash of a key, as the client presents it.
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// Parses 64 hex digits, in either case. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let hash = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        hash.try_into().ok().map(Self)
    }

    /// Returns the hash as 64 lower-case hex digits, as `sha256sum` prints it.
    pub fn digits(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// Returns true if both hashes are equal, that is, if both are of the same key. The comparison takes constant
    /// time.
    pub fn equals(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// Returns the tenant of a key that names no tenant. It is unique to the key, and the hash cannot be derived
    /// from it.
    pub fn tenant(&self) -> String {
        format!(
            "key:{}",
            ident::sha256_hex(&[b"samewire/tenant".as_slice(), &self.0].concat(), 32)
        )
    }

    /// Returns the name of the quota counters of a key. It is unique to the key, and the hash cannot be derived
    /// from it.
    pub fn counters(&self) -> String {
        format!(
            "key:{}",
            ident::sha256_hex(&[b"samewire/counters".as_slice(), &self.0].concat(), 32)
        )
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Client that a key authenticates: its tenant, the models it may use, and its limits.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Name of the key in logs and metrics; `auth.key[N]` where the configuration gives none.
    pub name: Arc<str>,
    /// Tenant: keys of one tenant share responses and conversations.
    pub tenant: Arc<str>,
    /// True if the configuration names the tenant. Generated tenants are internal and must not be shown.
    pub has_named_tenant: bool,
    /// Models that the client may use, by name or pattern; empty: all models.
    pub models: Vec<String>,
    /// Index of the key in the configuration, which selects its wire options.
    pub index: usize,
    /// Limits per minute, and on concurrent requests; enforced in memory.
    pub allowance: Allowance,
    /// Limits per day and per month, counted in the store.
    pub quota: Quota,
    /// Models that are not part of the client's plan; a pattern stands for every model that `models` does not name.
    pub not_included: Vec<String>,
    /// True if the client may have single requests captured, by a header.
    pub may_capture: bool,
    /// Rule for the engines' field `priority`.
    pub priority: PriorityRule,
}

/// Limits on how much a key may request per minute and at the same time; 0 in a field: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Requests per minute, counted on arrival.
    pub requests_per_minute: u32,
    /// Prompt and completion tokens per minute, as the engine counts them.
    pub tokens_per_minute: u32,
    /// Requests in progress at the same time.
    pub concurrency: usize,
}

/// Quota of a key per day and per month (calendar, UTC), counted in the store; 0 in a field: no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Requests to engines per day.
    pub requests_per_day: u64,
    /// Requests to engines per month.
    pub requests_per_month: u64,
    /// Prompt and completion tokens per day.
    pub tokens_per_day: u64,
    /// Prompt and completion tokens per month.
    pub tokens_per_month: u64,
    /// Error that clients get once one of these limits is reached.
    pub when_used_up: WhenUsedUp,
    /// Name of the plan as clients see it; `None`: no name is shown.
    pub plan: Option<Arc<str>>,
}

impl Quota {
    /// Returns true if at least one of the four numbers is limited.
    pub fn limits(&self) -> bool {
        [
            self.requests_per_day,
            self.requests_per_month,
            self.tokens_per_day,
            self.tokens_per_month,
        ]
        .iter()
        .any(|limit| *limit > 0)
    }
}

/// Rule for the field `priority` in the engines' requests of a key. Values count upwards: the larger, the more urgent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PriorityRule {
    /// The client's own passes, as any field of engines: no key of the configuration has a priority.
    #[default]
    Client,
    /// This value takes the place of the client's own; 0: none is sent.
    Fixed(i32),
    /// This value is for requests without one of the client's own, which passes; 0: none.
    Usual(i32),
}

/// Kind of error that a client gets once its quota is used up (wire-format 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenUsedUp {
    /// `insufficient_quota`: the error of an account without credit.
    #[default]
    InsufficientQuota,
    /// `usage_limit_reached`: states when the quota starts again.
    UsageLimitReached,
}

impl Caller {
    /// Returns true if the client may use the model: it is listed, or no list exists, and the plan includes it.
    pub fn may_use(&self, model: &str) -> bool {
        (self.models.is_empty() || self.names(model)) && !self.excludes(model)
    }

    /// Returns true if the client's plan excludes the model, either by name or by a pattern such as `*`.
    pub fn excludes(&self, model: &str) -> bool {
        let mut lacking = self.not_included.iter();
        lacking.any(|one| one == model || model_name::covers(one, model) && !self.names(model))
    }

    fn names(&self, model: &str) -> bool {
        self.models
            .iter()
            .any(|allowed| model_name::covers(allowed, model))
    }
}

/// Set of active client keys. Disabled keys are left out, so they behave exactly like unknown keys.
#[derive(Clone, Debug, Default)]
pub struct Keyring(Vec<(Hash, Arc<Caller>)>);

impl Keyring {
    /// Returns the client of a key, or `None` if the key is unknown. The search takes the same time wherever the
    /// matching hash is: it compares all hashes.
    pub fn caller(&self, key: &[u8]) -> Option<&Arc<Caller>> {
        let shown = Hash::of(key);
        let mut place = u32::MAX;
        for (at, (hash, _)) in (0..u32::MAX).zip(&self.0) {
            place.conditional_assign(&at, hash.0.ct_eq(&shown.0));
        }
        self.0
            .get(usize::try_from(place).ok()?)
            .map(|(_, caller)| caller)
    }

    /// Returns the client whose quota counters have this name; `None` if its key is not active.
    pub fn caller_with_counters(&self, name: &str) -> Option<&Arc<Caller>> {
        self.0
            .iter()
            .find(|(hash, _)| hash.counters() == name)
            .map(|(_, caller)| caller)
    }

    /// Returns the name of a client's quota counters; `None` if its key is not active.
    pub fn counters_of(&self, caller: &Arc<Caller>) -> Option<String> {
        self.0
            .iter()
            .find(|(_, own)| Arc::ptr_eq(own, caller))
            .map(|(hash, _)| hash.counters())
    }

    /// Returns all active clients with the hashes of their keys, in the order of the configuration.
    pub fn callers(&self) -> impl Iterator<Item = (&Hash, &Caller)> {
        self.0.iter().map(|(hash, caller)| (hash, &**caller))
    }
}

impl FromIterator<(Hash, Caller)> for Keyring {
    fn from_iter<I: IntoIterator<Item = (Hash, Caller)>>(all: I) -> Self {
        Self(
            all.into_iter()
                .map(|(hash, caller)| (hash, Arc::new(caller)))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str) -> Caller {
        Caller {
            name: name.into(),
            tenant: "t".into(),
            has_named_tenant: true,
            models: Vec::new(),
            index: 0,
            allowance: Allowance::default(),
            quota: Quota::default(),
            may_capture: false,
            priority: PriorityRule::default(),
            not_included: Vec::new(),
        }
    }

    #[test]
    fn a_key_is_found_by_all_of_it() {
        let ring: Keyring = ["sk-a", "sk-b", "sk-c"]
            .map(|key| (Hash::of(key.as_bytes()), caller(key)))
            .into_iter()
            .collect();
        let name = |key: &str| {
            ring.caller(key.as_bytes())
                .map(|caller| Arc::clone(&caller.name))
        };
        for key in ["sk-a", "sk-b", "sk-c"] {
            assert_eq!(name(key).as_deref(), Some(key));
        }
        for key in [
            "",
            "sk-",
            "sk-d",
            "sk-a ",
            "sk-aa",
            "SK-A",
            "' OR 1=1--",
            &Hash::of(b"sk-a").digits(),
        ] {
            assert_eq!(name(key), None, "{key}");
        }
        assert!(Keyring::default().caller(b"sk-a").is_none());
    }

    #[test]
    fn hashes_are_those_that_other_programs_print() {
        let digits = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Hash::of(b"abc").digits(), digits);
        assert!(
            Hash::parse(&digits.to_uppercase()).is_some_and(|hash| hash.equals(&Hash::of(b"abc")))
        );
        for wrong in [
            "",
            "abc",
            &digits[1..],
            &format!("{digits}0"),
            &digits.replace('b', "g"),
            "sk-abc",
        ] {
            assert!(Hash::parse(wrong).is_none(), "{wrong}");
        }
        assert!(!format!("{:?}", Hash::of(b"abc")).contains("ba78"));
    }

    #[test]
    fn tenants_of_their_own() {
        let (one, other) = (Hash::of(b"abc"), Hash::of(b"abd"));
        assert_eq!(one.tenant(), Hash::of(b"abc").tenant());
        assert_ne!(one.tenant(), other.tenant());
        assert!(
            !one.digits()
                .contains(one.tenant().trim_start_matches("key:"))
        );
        assert!(!is_name(&one.tenant()), "nobody can give this name");
        for (name, good) in [
            ("acme", true),
            ("a.b_c-1", true),
            ("", false),
            ("a b", false),
            ("ä", false),
            ("a/b", false),
        ] {
            assert_eq!(is_name(name), good, "{name}");
        }
        assert!(is_name(&"x".repeat(64)) && !is_name(&"x".repeat(65)));
    }

    #[test]
    fn keys_are_long_and_need_no_quotes() {
        let key = new_key(&[0xfb; KEY_BYTES]);
        assert_eq!(key.len(), 46);
        assert!(key.starts_with("sk-") && is_name(&key));
        assert_ne!(key, new_key(&[0; KEY_BYTES]));
    }

    #[test]
    fn a_refused_key_is_recognised_and_not_told() {
        let new = new_key(&[0xfb; KEY_BYTES]);
        assert_eq!(
            masked(new.as_bytes()),
            format!("{}***{}", &new[..5], &new[42..])
        );
        for (key, expected) in [
            ("", "***"),
            ("sk-short", "***"),
            ("sk-23-bytes-are-too-few", "***"),
            ("sk-abcdefghijklmnop-wxyz", "sk-ab***wxyz"),
            ("sk-with a space in it, which is no key", "***"),
            ("sk-\u{e4}\u{f6}\u{fc}-letters-that-are-no-ascii", "***"),
        ] {
            assert_eq!(masked(key.as_bytes()), expected, "{key}");
        }
        assert_eq!(masked(&[0xff; 40]), "***");
        assert!(masked(&[b'k'; 8 << 10]).len() <= 12);
    }

    #[test]
    fn models_are_named_in_full() {
        let mut caller = caller("a");
        assert!(caller.may_use("anything"));
        caller.models = vec!["qwen".to_owned()];
        for (model, may) in [
            ("qwen", true),
            ("qwen3", false),
            ("Qwen", false),
            ("", false),
        ] {
            assert_eq!(caller.may_use(model), may, "{model}");
        }
        caller.models = vec!["qwen*".to_owned()];
        for (model, may) in [
            ("qwen", true),
            ("qwen3", true),
            ("Qwen", false),
            ("", false),
        ] {
            assert_eq!(caller.may_use(model), may, "{model}");
        }
    }

    #[test]
    fn models_that_a_plan_lacks() {
        let rows: [(&[&str], &[&str], _, _); 8] = [
            (&[], &["big"], "big", (false, true)),
            (&[], &["big"], "small", (true, false)),
            (&["small"], &["*"], "small", (true, false)),
            (&["small"], &["*"], "big", (false, true)),
            (&["small"], &["big"], "other", (false, false)),
            (&[], &["*"], "any", (false, true)),
            (&["small-1"], &["small-*"], "small-1", (true, false)),
            (&[], &["small-*"], "small-2", (false, true)),
        ];
        for (models, not_included, model, expected) in rows {
            let mut caller = caller("a");
            caller.models = models.iter().map(|&model| model.to_owned()).collect();
            caller.not_included = not_included.iter().map(|&model| model.to_owned()).collect();
            assert_eq!(
                (caller.may_use(model), caller.excludes(model)),
                expected,
                "{models:?} {not_included:?} {model}"
            );
        }
    }
}
