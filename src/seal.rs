//! Encryption of text that a client stores and must not read: reasoning and conversation summaries (wire-format
//! 4.5, 4.13).
//!
//! ```text
//! swr1.<key id>.<base64url of nonce and ciphertext>      reasoning
//! swc1.<key id>.<base64url of nonce and ciphertext>      summary of a compacted conversation
//! swt1.<key id>.<base64url of nonce and ciphertext>      signature of thinking (messages 6)
//! ```
//!
//! Takes: text, the tenant, a nonce and the time. Gives: a sealed text, or the content of one. Remembers: the
//! keys. Never: opens text that was sealed for another tenant, or as another kind.

use crate::json::{self, object, write_number, write_string};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::BytesMut;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use std::borrow::Cow;
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of a nonce (XChaCha20-Poly1305).
pub const NONCE: usize = 24;
/// Bytes of a key (XChaCha20-Poly1305).
pub const KEY: usize = 32;
/// Longest sealed text that is decoded, in bytes; bounds the work on a client's input.
const LONGEST: usize = 16 << 20;

/// Kind of a sealed text. Kind and tenant are authenticated, so a text opens only as what it was sealed as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealKind {
    /// Text of a reasoning item.
    Reasoning,
    /// Summary in a compaction item.
    Compaction,
    /// Signature of a thinking block.
    Thinking,
}

impl SealKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Reasoning => "swr1.",
            Self::Compaction => "swc1.",
            Self::Thinking => "swt1.",
        }
    }

    fn associated_data(self, tenant: &str) -> Vec<u8> {
        let purpose = match self {
            Self::Reasoning => "samewire/reasoning/v1",
            Self::Compaction => "samewire/compaction/v1",
            Self::Thinking => "samewire/thinking/v1",
        };
        [purpose.as_bytes(), tenant.as_bytes()].concat()
    }
}

/// Encryption keys by id, wiped on drop. The first key seals and all keys open, so that keys can be rotated.
pub struct SealKeys(Vec<(String, XChaCha20Poly1305)>);

impl SealKeys {
    /// Creates a set of one key, as for a process that generates its own.
    pub fn of(id: impl Into<String>, key: &[u8; KEY]) -> Self {
        Self(vec![(id.into(), XChaCha20Poly1305::new(key.into()))])
    }

    /// Returns these keys and another one, which seals from now on.
    #[must_use]
    pub fn preceded_by(&self, id: impl Into<String>, key: &[u8; KEY]) -> Self {
        let first = (id.into(), XChaCha20Poly1305::new(key.into()));
        Self(
            std::iter::once(first)
                .chain(self.0.iter().cloned())
                .collect(),
        )
    }

    /// Parses a key file: on each line an id of letters, digits, `_` and `-`, white space, and 32 bytes in base64.
    /// Empty lines and lines that start with `#` are skipped.
    ///
    /// # Errors
    /// Fails on the first invalid line, on a repeated id, and if there is no key. The message never contains the
    /// key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut keys: Vec<(String, XChaCha20Poly1305)> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: &str| format!("line {}: {what}", at + 1);
            let (id, key) = line
                .split_once(char::is_whitespace)
                .ok_or_else(|| wrong("an id and a key"))?;
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            if id.is_empty() || id.len() > 32 || !id.bytes().all(plain) {
                return Err(wrong("an id has 1 to 32 letters, digits, _ and -"));
            }
            let key = Zeroizing::new(
                STANDARD
                    .decode(key.trim())
                    .map_err(|_| wrong("the key is not base64"))?,
            );
            let key: &[u8; KEY] = key
                .as_slice()
                .try_into()
                .map_err(|_| wrong("the key must have 32 bytes"))?;
            if keys.iter().any(|(known, _)| known == id) {
                return Err(wrong("the id is there already"));
            }
            keys.push((id.to_owned(), XChaCha20Poly1305::new(key.into())));
        }
        if keys.is_empty() {
            Err("there is no key".to_owned())
        } else {
            Ok(Self(keys))
        }
    }

    /// Encrypts a text for a tenant, with the current time in Unix seconds. The nonce must be random: reusing one
    /// breaks the encryption.
    pub fn seal(
        &self,
        kind: SealKind,
        tenant: &str,
        text: &str,
        now: u64,
        nonce: [u8; NONCE],
    ) -> String {
        let mut plain = BytesMut::from(&b"{\"v\":1,\"t\":"[..]);
        write_string(text, &mut plain);
        plain.extend_from_slice(b",\"iat\":");
        write_number(now, &mut plain);
        plain.extend_from_slice(b"}");
        let Some((id, key)) = self.0.first() else {
            return String::new();
        };
        let payload = Payload {
            msg: &plain,
            aad: &kind.associated_data(tenant),
        };
        // Encryption fails only for texts of more than 256 GiB.
        let ciphertext = key
            .encrypt(&XNonce::from(nonce), payload)
            .unwrap_or_default();
        let bytes = [&nonce[..], &ciphertext].concat();
        format!("{}{id}.{}", kind.prefix(), URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Returns the content of a sealed text. Returns `None` if it was sealed as another kind or for another
    /// tenant, if its key is gone, or if it was altered.
    pub fn open(&self, kind: SealKind, tenant: &str, sealed: &str) -> Option<String> {
        let (id, body) = sealed.strip_prefix(kind.prefix())?.split_once('.')?;
        let (_, key) = self.0.iter().find(|(known, _)| known == id)?;
        if body.len() > LONGEST {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(body).ok()?;
        let (nonce, ciphertext) = bytes.split_first_chunk::<NONCE>()?;
        let payload = Payload {
            msg: ciphertext,
            aad: &kind.associated_data(tenant),
        };
        let plain = key.decrypt(&XNonce::from(*nonce), payload).ok()?;
        let content: SealedContent<'_> = json::read(std::str::from_utf8(&plain).ok()?).ok()?;
        content.v.filter(|version| *version == 1)?;
        content.t.map(|text| text.decoded()).map(Cow::into_owned)
    }
}

object! {
    /// JSON inside a sealed text: version, text, and time of sealing.
    struct SealedContent<'a> {
        v: u64 = "v",
        t: json::Text<'a> = "t",
        iat: u64 = "iat",
    }
}

impl fmt::Debug for SealKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(id, _)| id))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a \"thought\"\n\u{1f600}";

    #[test]
    fn opens_what_it_has_sealed_and_nothing_else() {
        let keys = SealKeys::of("k1", &[7; KEY]);
        let sealed = keys.seal(SealKind::Reasoning, "tenant", TEXT, 5, [1; NONCE]);
        assert!(sealed.starts_with("swr1.k1."), "{sealed}");
        assert_eq!(
            keys.open(SealKind::Reasoning, "tenant", &sealed).as_deref(),
            Some(TEXT)
        );
        assert_eq!(keys.open(SealKind::Reasoning, "other", &sealed), None);
        assert_eq!(
            keys.open(
                SealKind::Compaction,
                "tenant",
                &sealed.replace("swr1", "swc1")
            ),
            None
        );
        assert_eq!(
            SealKeys::of("k1", &[8; KEY]).open(SealKind::Reasoning, "tenant", &sealed),
            None
        );
        for at in 0..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(
                keys.open(SealKind::Reasoning, "tenant", &changed),
                None,
                "byte {at}"
            );
            assert_eq!(
                keys.open(SealKind::Reasoning, "tenant", &sealed[..at]),
                None,
                "{at} bytes"
            );
        }
        assert_ne!(
            sealed,
            keys.seal(SealKind::Reasoning, "tenant", TEXT, 5, [2; NONCE])
        );
    }

    #[test]
    fn keys_follow_one_another() {
        let [old, new] = [[1; KEY], [2; KEY]].map(|key| STANDARD.encode(key));
        let sealed = SealKeys::parse(&format!("2025 {old}\n")).unwrap().seal(
            SealKind::Compaction,
            "",
            TEXT,
            1,
            [0; NONCE],
        );
        let both = SealKeys::parse(&format!("# first\n\n2026 {new}\n2025\t{old}\n")).unwrap();
        assert_eq!(
            both.open(SealKind::Compaction, "", &sealed).as_deref(),
            Some(TEXT)
        );
        assert!(
            both.seal(SealKind::Compaction, "", TEXT, 1, [0; NONCE])
                .starts_with("swc1.2026.")
        );
        assert_eq!(format!("{both:?}"), r#"["2026", "2025"]"#);
        for (text, wrong) in [
            ("", "there is no key"),
            ("k", "line 1: an id and a key"),
            ("\nk AA==", "line 2: the key must have 32 bytes"),
            ("k !", "line 1: the key is not base64"),
            (
                "a.b AA==",
                "line 1: an id has 1 to 32 letters, digits, _ and -",
            ),
        ] {
            assert_eq!(SealKeys::parse(text).unwrap_err(), wrong);
        }
        assert_eq!(
            SealKeys::parse(&format!("k {old}\nk {new}")).unwrap_err(),
            "line 2: the id is there already"
        );
    }

    #[test]
    fn a_key_that_comes_later_seals_and_the_earlier_one_still_opens() {
        let first = SealKeys::of("a", &[1; KEY]);
        let sealed = first.seal(SealKind::Reasoning, "", TEXT, 1, [0; NONCE]);
        let both = first.preceded_by("b", &[2; KEY]);
        assert_eq!(
            both.open(SealKind::Reasoning, "", &sealed).as_deref(),
            Some(TEXT)
        );
        assert!(
            both.seal(SealKind::Reasoning, "", TEXT, 1, [0; NONCE])
                .starts_with("swr1.b.")
        );
    }
}
