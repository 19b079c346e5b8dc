//! The JSON reader and the checks of a body's text, compared with a strict reference: depth, UTF-8, surrogates,
//! duplicate keys.

use super::feed::some;
use super::made;
use crate::laws::json::agree;
use bytes::Bytes;
use samewire::json::Raw;
use samewire::request::{ChatRequest, fields};
use samewire::wire::Api;
use serde_json::Value;

/// Levels of nesting allowed in a body.
const DEPTH: usize = 128;

pub fn run(data: &[u8]) {
    let code = |bytes: &[u8]| {
        fields::text(bytes).map(str::to_owned).map_err(|failure| failure.code.expect("a code").into_owned())
    };
    let Ok(text) = std::str::from_utf8(data) else {
        assert_eq!(code(data), Err("invalid_utf8".to_owned()));
        return;
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // Beyond this depth the reference continues and the reader does not.
    let is_json = depth(text) <= DEPTH && agree(text);
    if !is_json {
        assert!(ChatRequest::recall(Api::Chat, &Bytes::copy_from_slice(data)).is_err());
        return;
    }
    let value = serde_json::from_str::<Value>(text);
    let why = value.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let expected = if depth(text) > DEPTH {
        Err("json_too_deep".to_owned())
    } else if why.contains("surrogate") || why.contains("hex escape") {
        Err("invalid_utf8".to_owned())
    } else {
        Ok(text.to_owned())
    };
    let got = code(data);
    // If there are two mistakes, either may be reported.
    assert!(got == expected || got.is_err() && expected.is_err(), "{got:?} {expected:?}");
    let asked = ChatRequest::recall(Api::Chat, &Bytes::copy_from_slice(data));
    match asked {
        Ok(_) => assert!(!twice(text, &|key| READ.contains(&key)) && got.is_ok() && text.trim_start().starts_with('{')),
        Err(failure) if failure.code.as_deref() == Some("duplicate_key") => {
            assert!(twice(text, &|_| true) || nested(text));
        },
        Err(failure) => assert_eq!(failure.status, 400),
    }
}

/// Returns the nesting depth of a JSON text.
fn depth(text: &str) -> usize {
    let (mut now, mut most, mut inside, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if std::mem::take(&mut escaped) => {}
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            b'{' | b'[' if !inside => {
                now += 1;
                most = most.max(now);
            }
            b'}' | b']' if !inside => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// Keys that samewire acts upon (C04).
const READ: [&str; 5] = ["model", "stream", "messages", "n", "max_tokens"];

/// Returns true if one of these keys occurs twice in the object.
fn twice(text: &str, of: &dyn Fn(&str) -> bool) -> bool {
    let Some(members) = samewire::json::Members::of(text) else { return false };
    let mut keys: Vec<_> = members.0.iter().map(|(key, _)| key.clone()).filter(|key| of(key)).collect();
    let all = keys.len();
    keys.sort();
    keys.dedup();
    keys.len() < all
}

/// Returns true if the object contains another one: duplicate keys may be refused there, too.
fn nested(text: &str) -> bool {
    Raw::of(text).is_some_and(|raw| raw.get().bytes().filter(|byte| *byte == b'{').count() > 1)
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> =
        some(made::objects(&made::exchanges()), 120).into_iter().map(String::into_bytes).collect();
    all.extend(some(made::objects(&made::answers()), 60).into_iter().map(String::into_bytes));
    let deep = |levels: usize| ["[".repeat(levels), "]".repeat(levels)].concat().into_bytes();
    all.extend([deep(127), deep(128), deep(129)]);
    for text in [
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"a":"\ud83d\ude00 \ud83d"}"#,
        r#"{"a":"\udc00\ud800"}"#,
        r#"[1e999,-0,0.10,1E+5,18446744073709551616,true,false,null]"#,
        "\u{feff} {\"\" : \"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}\n",
        "{\"model\":\"m\",\"stream_options\":{\"x\":1,\"x\":2},\"stream\":true}",
    ] {
        all.push(text.as_bytes().to_vec());
    }
    all.push(b"{\"a\":\"\xff\"}".to_vec());
    all
}
