//! Ids: what becomes of an engine's, and those that are derived (wire-format 2.5 rule 8, 2.7).

use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// A completion id in canonical form. `prefix` is `chatcmpl-` or `cmpl-`; empty ids are the caller's business.
pub(super) fn completion(engine: &str, prefix: &str) -> String {
    // Other ids are made of its letters and digits: it has some.
    let plain = |text: &str| {
        text.bytes().any(|b| b.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    if engine.strip_prefix(prefix).is_some_and(plain) {
        engine.to_owned()
    } else if plain(engine) {
        format!("{prefix}{engine}")
    } else {
        format!("{prefix}{}", hex(engine.as_bytes(), 32))
    }
}

/// The letters and digits of a completion id without its prefix.
pub(crate) fn compact(id: &str) -> String {
    let rest =
        ["chatcmpl-", "cmpl-", "resp_"].iter().find_map(|prefix| id.strip_prefix(prefix)).unwrap_or(id);
    rest.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// The id of a tool call that came without one.
pub(super) fn derived_call(completion: &str, choice: u32, slot: u32) -> String {
    let mut id = compact(completion);
    id.truncate(24);
    format!("call_{id}_{choice}_{slot}")
}

/// vLLM's generic ids carry a prefix of their own; every other id is opaque, because chat templates parse some.
pub(super) fn canonical_call(engine: &str) -> String {
    match engine.strip_prefix("chatcmpl-tool-") {
        Some(rest) if !rest.is_empty() => format!("call_{rest}"),
        _ => engine.to_owned(),
    }
}

/// Only `call_` and up to 59 letters, digits, `_` and `-`; anything else is replaced by a hash of where it stands.
pub(super) fn strict_call(engine: &str, completion: &str, choice: u32, slot: u32) -> String {
    let fits = engine.strip_prefix("call_").is_some_and(|rest| {
        (1..=59).contains(&rest.len())
            && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
    });
    if fits {
        return engine.to_owned();
    }
    format!("call_{}", hex(format!("{completion}_{choice}_{slot}_{engine}").as_bytes(), 24))
}

/// A salted fingerprint. One that is in this form already stays, so that the rewriting is idempotent.
pub(super) fn fingerprint(engine: &str, salt: &str) -> String {
    let hashed = engine.strip_prefix("fp_").is_some_and(|rest| {
        rest.len() == 10 && rest.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    });
    if hashed { engine.to_owned() } else { format!("fp_{}", hex(format!("{salt}{engine}").as_bytes(), 10)) }
}

/// The first `digits` hex digits of SHA-256.
pub(crate) fn hex(bytes: &[u8], digits: usize) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text.truncate(digits);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        assert_eq!(completion("d3b4", "chatcmpl-"), "chatcmpl-d3b4");
        assert_eq!(completion("chatcmpl-x.y_z", "chatcmpl-"), "chatcmpl-x.y_z");
        assert_eq!(completion("a b", "cmpl-"), "cmpl-c8687a08aa5d6ed2044328fa6a697ab8");
        assert_eq!(
            derived_call("chatcmpl-6ca2ec78-dac2-4759-8ffc-aa13d8b470bf", 0, 1),
            "call_6ca2ec78dac247598ffcaa13_0_1"
        );
        assert_eq!(canonical_call("functions.f:0"), "functions.f:0");
        assert_eq!(strict_call("call_a-b", "c", 0, 0), "call_a-b");
        assert_eq!(strict_call("functions.f:0", "c", 0, 0).len(), 29);
        assert_eq!(fingerprint("fp_0123456789", "s"), "fp_0123456789");
    }
}
