//! Who may ask: keys of clients, of which nothing is known but their hashes (faults 10).
//!
//! Takes: what a client shows. Gives: the [`Caller`] whose key that is. Remembers: hashes. Never: keeps a key, compares
//! one before it is hashed, or ends a comparison early.

use crate::wire::ident;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// Random bytes of a key.
pub const CHANCE: usize = 32;
/// Letters of a tenant's name, and of a key's.
const NAME: usize = 64;

/// A new key: long enough that nobody finds it by trying, so that a plain hash of it says nothing.
pub fn new_key(chance: &[u8; CHANCE]) -> String {
    format!("sk-{}", URL_SAFE_NO_PAD.encode(chance))
}

/// Bytes of a key from which on some of them are shown. The part that stays hidden cannot be guessed then.
const SHOWN_FROM: usize = 24;
/// Bytes shown at the beginning and at the end of such a key.
const SHOWN: (usize, usize) = (5, 4);

/// Returns a refused key so that its owner recognises it and nobody can use it: `sk-ab***wxyz`. Short keys, and those
/// with anything but visible ASCII in them, become `***`.
pub fn masked(key: &[u8]) -> String {
    const HIDDEN: &str = "***";
    let is_plain = key.len() >= SHOWN_FROM && key.iter().all(u8::is_ascii_graphic);
    let shown = std::str::from_utf8(key).ok().filter(|_| is_plain);
    let ends = shown.and_then(|key| key.get(..SHOWN.0).zip(key.get(key.len() - SHOWN.1..)));
    ends.map_or_else(|| HIDDEN.to_owned(), |(first, last)| format!("{first}{HIDDEN}{last}"))
}

/// Whether something may be called this: letters, digits, dots, dashes and underscores. Names that are made here have
/// other letters in them, so that none of them is a client's.
pub fn is_name(text: &str) -> bool {
    (1..=NAME).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// The SHA-256 of a key.
#[derive(Clone, Copy)]
pub struct Hash([u8; 32]);

impl Hash {
    /// That of this key.
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// The one that these 64 hex digits are; `None`: they are something else.
    pub fn read(text: &str) -> Option<Self> {
        let mut hash = [0; 32];
        let digits: Option<Vec<u8>> =
            text.chars().map(|digit| digit.to_digit(16).and_then(|digit| digit.try_into().ok())).collect();
        let digits = digits.filter(|digits| digits.len() == 2 * hash.len())?;
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
        }
        Some(Self(hash))
    }

    /// Its 64 hex digits.
    pub fn digits(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether both are of the same key.
    pub fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// The tenant of a key that names none: no other key has it, and the hash cannot be read from it.
    pub fn tenant(&self) -> String {
        format!("key:{}", ident::hex(&[b"samewire/tenant".as_slice(), &self.0].concat(), 32))
    }

    /// The name of the counters of what the key uses: no other key has it, and the hash cannot be read from it.
    pub fn counters(&self) -> String {
        format!("key:{}", ident::hex(&[b"samewire/counters".as_slice(), &self.0].concat(), 32))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Whom a key stands for.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The key's name in the log.
    pub name: Arc<str>,
    /// Whose responses and conversations it sees.
    pub tenant: Arc<str>,
    /// The tenant has a name that may be told.
    pub named: bool,
    /// The models that it may use; empty: all of them.
    pub models: Vec<String>,
    /// Its place among all keys, by which its options are found.
    pub place: usize,
    /// How much it may ask for.
    pub allowance: Allowance,
    /// Its quota of a day and of a month.
    pub quota: Quota,
    /// The models that its plan does not have; `*` stands for all that `models` does not name.
    pub not_included: Vec<String>,
}

/// How much a key may ask for; 0: as much as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Requests in a minute.
    pub requests_per_minute: u32,
    /// Tokens of prompts and answers in a minute.
    pub tokens_per_minute: u32,
    /// Requests at once.
    pub concurrency: usize,
}

/// Quota of a key in a day and in a month, both of UTC; 0: no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Requests to engines in a day.
    pub requests_per_day: u64,
    /// Requests to engines in a month.
    pub requests_per_month: u64,
    /// Tokens of prompts and answers in a day.
    pub tokens_per_day: u64,
    /// Tokens of prompts and answers in a month.
    pub tokens_per_month: u64,
    /// Error that clients get when one of them is used up.
    pub when_used_up: WhenUsedUp,
    /// The plan's name as clients are told it; `None`: they are not.
    pub plan: Option<Arc<str>>,
}

impl Quota {
    /// Returns whether anything is limited.
    pub fn limits(&self) -> bool {
        [self.requests_per_day, self.requests_per_month, self.tokens_per_day, self.tokens_per_month]
            .iter()
            .any(|limit| *limit > 0)
    }
}

/// Error for a quota that is used up (wire-format 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenUsedUp {
    /// `insufficient_quota`, as of an account without credit.
    #[default]
    InsufficientQuota,
    /// `usage_limit_reached`, which tells when the quota begins anew.
    UsageLimitReached,
}

impl Caller {
    /// Whether a model of this name is there for it.
    pub fn may_use(&self, model: &str) -> bool {
        (self.models.is_empty() || self.names(model)) && !self.lacks(model)
    }

    /// Returns whether its plan does not have this model.
    pub fn lacks(&self, model: &str) -> bool {
        let mut lacking = self.not_included.iter();
        lacking.any(|one| one == model || one == "*" && !self.names(model))
    }

    fn names(&self, model: &str) -> bool {
        self.models.iter().any(|allowed| allowed == model)
    }
}

/// All keys that open. One that is disabled is none of them, and so is no different from one that never was.
#[derive(Clone, Debug, Default)]
pub struct Keyring(Vec<(Hash, Arc<Caller>)>);

impl Keyring {
    /// Whose key this is. Every hash is looked at, whichever of them it is.
    pub fn caller(&self, key: &[u8]) -> Option<&Arc<Caller>> {
        let shown = Hash::of(key);
        let mut place = u32::MAX;
        for (at, (hash, _)) in (0..u32::MAX).zip(&self.0) {
            place.conditional_assign(&at, hash.0.ct_eq(&shown.0));
        }
        self.0.get(usize::try_from(place).ok()?).map(|(_, caller)| caller)
    }
}

impl Keyring {
    /// Everybody whose key opens.
    pub fn callers(&self) -> impl Iterator<Item = (&Hash, &Caller)> {
        self.0.iter().map(|(hash, caller)| (hash, &**caller))
    }
}

impl FromIterator<(Hash, Caller)> for Keyring {
    fn from_iter<I: IntoIterator<Item = (Hash, Caller)>>(all: I) -> Self {
        Self(all.into_iter().map(|(hash, caller)| (hash, Arc::new(caller))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str) -> Caller {
        Caller {
            name: name.into(),
            tenant: "t".into(),
            named: true,
            models: Vec::new(),
            place: 0,
            allowance: Allowance::default(),
            quota: Quota::default(),
            not_included: Vec::new(),
        }
    }

    #[test]
    fn a_key_is_found_by_all_of_it() {
        let ring: Keyring =
            ["sk-a", "sk-b", "sk-c"].map(|key| (Hash::of(key.as_bytes()), caller(key))).into_iter().collect();
        let name = |key: &str| ring.caller(key.as_bytes()).map(|caller| Arc::clone(&caller.name));
        for key in ["sk-a", "sk-b", "sk-c"] {
            assert_eq!(name(key).as_deref(), Some(key));
        }
        for key in ["", "sk-", "sk-d", "sk-a ", "sk-aa", "SK-A", "' OR 1=1--", &Hash::of(b"sk-a").digits()] {
            assert_eq!(name(key), None, "{key}");
        }
        assert!(Keyring::default().caller(b"sk-a").is_none());
    }

    #[test]
    fn hashes_are_those_that_other_programs_print() {
        let digits = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Hash::of(b"abc").digits(), digits);
        assert!(Hash::read(&digits.to_uppercase()).is_some_and(|hash| hash.is(&Hash::of(b"abc"))));
        for wrong in ["", "abc", &digits[1..], &format!("{digits}0"), &digits.replace('b', "g"), "sk-abc"] {
            assert!(Hash::read(wrong).is_none(), "{wrong}");
        }
        assert!(!format!("{:?}", Hash::of(b"abc")).contains("ba78"));
    }

    #[test]
    fn tenants_of_their_own() {
        let (one, other) = (Hash::of(b"abc"), Hash::of(b"abd"));
        assert_eq!(one.tenant(), Hash::of(b"abc").tenant());
        assert_ne!(one.tenant(), other.tenant());
        assert!(!one.digits().contains(one.tenant().trim_start_matches("key:")));
        assert!(!is_name(&one.tenant()), "nobody can give this name");
        for (name, good) in
            [("acme", true), ("a.b_c-1", true), ("", false), ("a b", false), ("ä", false), ("a/b", false)]
        {
            assert_eq!(is_name(name), good, "{name}");
        }
        assert!(is_name(&"x".repeat(64)) && !is_name(&"x".repeat(65)));
    }

    #[test]
    fn keys_are_long_and_need_no_quotes() {
        let key = new_key(&[0xfb; CHANCE]);
        assert_eq!(key.len(), 46);
        assert!(key.starts_with("sk-") && is_name(&key));
        assert_ne!(key, new_key(&[0; CHANCE]));
    }

    #[test]
    fn a_refused_key_is_recognised_and_not_told() {
        let new = new_key(&[0xfb; CHANCE]);
        assert_eq!(masked(new.as_bytes()), format!("{}***{}", &new[..5], &new[42..]));
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
        for (model, may) in [("qwen", true), ("qwen3", false), ("Qwen", false), ("", false)] {
            assert_eq!(caller.may_use(model), may, "{model}");
        }
    }

    #[test]
    fn models_that_a_plan_lacks() {
        let rows: [(&[&str], &[&str], _, _); 6] = [
            (&[], &["big"], "big", (false, true)),
            (&[], &["big"], "small", (true, false)),
            (&["small"], &["*"], "small", (true, false)),
            (&["small"], &["*"], "big", (false, true)),
            (&["small"], &["big"], "other", (false, false)),
            (&[], &["*"], "any", (false, true)),
        ];
        for (models, not_included, model, expected) in rows {
            let mut caller = caller("a");
            caller.models = models.iter().map(|&model| model.to_owned()).collect();
            caller.not_included = not_included.iter().map(|&model| model.to_owned()).collect();
            assert_eq!(
                (caller.may_use(model), caller.lacks(model)),
                expected,
                "{models:?} {not_included:?} {model}"
            );
        }
    }
}
