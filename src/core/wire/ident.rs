//! Ids: canonical forms of an engine's ids, and ids derived where the engine has none (wire-format 2.5 rule 8, 2.7).

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// Most characters of an engine's completion id after its prefix, and of a call's id. Ids are on every frame: longer
/// ones are hashed (faults U51).
const LONGEST_ID: usize = 128;
/// Most characters of a name from an engine: of a model, a function, a build. Longer names are cut (faults U51).
const LONGEST_NAME: usize = 256;

/// Cuts a name from an engine to [`LONGEST_NAME`] characters.
pub(super) fn bounded_name(name: &str) -> &str {
    name.char_indices()
        .nth(LONGEST_NAME)
        .and_then(|(end, _)| name.get(..end))
        .unwrap_or(name)
}

/// Returns a completion id in canonical form. `prefix` is `chatcmpl-` or `cmpl-`; callers handle empty ids.
pub(super) fn completion(engine: &str, prefix: &str) -> String {
    let plain = |text: &str| {
        (1..=LONGEST_ID).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    // llama.cpp uses chat ids for completions too.
    let of_chat = engine
        .strip_prefix("chatcmpl-")
        .filter(|rest| prefix == "cmpl-" && plain(rest));
    if engine.strip_prefix(prefix).is_some_and(plain) {
        engine.to_owned()
    } else if let Some(rest) = of_chat {
        format!("{prefix}{rest}")
    } else if plain(engine) {
        format!("{prefix}{engine}")
    } else {
        format!("{prefix}{}", sha256_hex(engine.as_bytes(), 32))
    }
}

/// Returns the letters and digits of a completion id without its prefix, or 32 digits of its hash if there are none.
/// Other ids are derived from the result.
pub fn compact(id: &str) -> String {
    let rest = ["chatcmpl-", "cmpl-", "resp_"]
        .iter()
        .find_map(|prefix| id.strip_prefix(prefix))
        .unwrap_or(id);
    let compact: String = rest.chars().filter(char::is_ascii_alphanumeric).collect();
    if compact.is_empty() {
        sha256_hex(id.as_bytes(), 32)
    } else {
        compact
    }
}

/// Returns the id for a tool call that came without one: unique by completion, choice and slot.
pub(super) fn derived_call(completion: &str, choice: u32, slot: u32) -> String {
    let mut id = compact(completion);
    id.truncate(24);
    format!("call_{id}_{choice}_{slot}")
}

/// Returns the engine's id of a call unchanged, or its hash if it is too long.
pub(super) fn preserved_call(engine: &str) -> String {
    if engine.len() > LONGEST_ID {
        format!("call_{}", sha256_hex(engine.as_bytes(), 32))
    } else {
        engine.to_owned()
    }
}

/// Returns the canonical id of a call. Only vLLM's generic prefix is replaced; every other id is opaque, because
/// some chat templates parse ids.
pub(super) fn canonical_call(engine: &str) -> String {
    if engine.len() > LONGEST_ID {
        return preserved_call(engine);
    }
    match engine.strip_prefix("chatcmpl-tool-") {
        Some(rest) if !rest.is_empty() => format!("call_{rest}"),
        _ => engine.to_owned(),
    }
}

/// Returns the id if it is `call_` and up to 59 letters, digits, `_` and `-`; else a hash of the id and the call's
/// position.
pub(super) fn strict_call(engine: &str, completion: &str, choice: u32, slot: u32) -> String {
    let fits = engine.strip_prefix("call_").is_some_and(|rest| {
        (1..=59).contains(&rest.len())
            && rest
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
    });
    if fits {
        return engine.to_owned();
    }
    format!(
        "call_{}",
        sha256_hex(
            format!("{completion}_{choice}_{slot}_{engine}").as_bytes(),
            24
        )
    )
}

/// Returns a salted hash of a fingerprint. A value in this form already stays, so rewriting is idempotent.
pub(super) fn fingerprint(engine: &str, salt: &str) -> String {
    let hashed = engine.strip_prefix("fp_").is_some_and(|rest| {
        rest.len() == 10
            && rest
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    });
    if hashed {
        engine.to_owned()
    } else {
        format!(
            "fp_{}",
            sha256_hex(format!("{salt}{engine}").as_bytes(), 10)
        )
    }
}

/// Returns the first `digits` hex digits of the SHA-256 hash.
pub fn sha256_hex(bytes: &[u8], digits: usize) -> String {
    let mut text = HEXLOWER.encode(&Sha256::digest(bytes));
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
        assert_eq!(completion("chatcmpl-...", "chatcmpl-"), "chatcmpl-...");
        assert_eq!(completion("-", "chatcmpl-"), "chatcmpl--");
        assert_eq!(completion("chatcmpl-", "chatcmpl-"), "chatcmpl-chatcmpl-");
        assert_eq!(completion("chatcmpl-x", "cmpl-"), "cmpl-x");
        assert_eq!(completion("chatcmpl-", "cmpl-"), "cmpl-chatcmpl-");
        assert_eq!(completion("cmpl-x", "chatcmpl-"), "chatcmpl-cmpl-x");
        let hashes = ["chatcmpl-...", "chatcmpl--"].map(compact);
        assert!(
            hashes.iter().all(|hash| hash.len() == 32) && hashes[0] != hashes[1],
            "{hashes:?}"
        );
        assert_eq!(compact("chatcmpl-a.b"), "ab");
        assert_eq!(
            completion("a b", "cmpl-"),
            "cmpl-c8687a08aa5d6ed2044328fa6a697ab8"
        );
        assert_eq!(
            derived_call("chatcmpl-6ca2ec78-dac2-4759-8ffc-aa13d8b470bf", 0, 1),
            "call_6ca2ec78dac247598ffcaa13_0_1"
        );
        assert_eq!(canonical_call("functions.f:0"), "functions.f:0");
        assert_eq!(canonical_call("chatcmpl-tool-a1"), "call_a1");
        assert_eq!(canonical_call("chatcmpl-tool-"), "chatcmpl-tool-");
        assert_eq!(strict_call("call_a-b", "c", 0, 0), "call_a-b");
        for other in ["call_a.b", "call_"] {
            assert_eq!(strict_call(other, "c", 0, 0).len(), 29, "{other}");
        }
        assert_eq!(
            strict_call(&format!("call_{}", "a".repeat(59)), "c", 0, 0).len(),
            64
        );
        assert_eq!(
            strict_call(&format!("call_{}", "a".repeat(60)), "c", 0, 0).len(),
            29
        );
        for other in ["fp_012345678z", "fp_01234567", "vllm-0.10"] {
            let hashed = fingerprint(other, "s");
            assert!(
                hashed != other && hashed.len() == 13 && hashed.starts_with("fp_"),
                "{hashed}"
            );
        }
        assert_eq!(strict_call("functions.f:0", "c", 0, 0).len(), 29);
        assert_eq!(fingerprint("fp_0123456789", "s"), "fp_0123456789");
    }

    #[test]
    fn fault_u51_what_engines_say_is_bounded() {
        let long = "a".repeat(128);
        assert_eq!(completion(&long, "chatcmpl-"), format!("chatcmpl-{long}"));
        assert_eq!(
            completion(&format!("chatcmpl-{long}"), "chatcmpl-"),
            format!("chatcmpl-{long}")
        );
        for id in [
            format!("{long}a"),
            format!("chatcmpl-{long}a"),
            "é".repeat(1 << 20),
        ] {
            let hashed = completion(&id, "chatcmpl-");
            assert_eq!(hashed.len(), "chatcmpl-".len() + 32, "{hashed}");
            assert_eq!(completion(&hashed, "chatcmpl-"), hashed);
        }
        for call in [canonical_call, preserved_call] {
            assert_eq!(call(&long), long);
            let hashed = call(&format!("{long}a"));
            assert_eq!(
                (hashed.len(), call(&hashed)),
                ("call_".len() + 32, hashed.clone())
            );
        }
        assert_eq!(bounded_name(&"é".repeat(257)), "é".repeat(256));
        assert_eq!(bounded_name("é"), "é");
    }
}
