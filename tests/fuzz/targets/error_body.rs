//! An engine's error becomes one in the canonical shape, which is unchanged when it is read again.

use super::feed::Feed;
use super::made;
use crate::cases::{Case, captures, vectors};
use crate::laws::differential::both;
use bytes::BytesMut;
use samewire::wire::fault::Failure;
use serde_json::{Value, json};

const STATUS: [u16; 16] =
    [400, 401, 403, 404, 405, 408, 409, 413, 418, 422, 429, 500, 501, 502, 503, 504];
/// Bytes of a message, and room for a prefix.
const MESSAGE: usize = 2048 + 128;

pub fn run(data: &[u8]) {
    let mut feed = Feed(data);
    let status = feed.pick(&STATUS);
    let ours = feed.byte() & 1 == 1;
    let body = feed.rest();
    let failure = Failure::of_answer(status, body, ours);
    assert!((400..600).contains(&failure.status), "{failure:?}");
    let told = written(&failure, false);
    shaped(&told, &["error"]);
    shaped(&written(&failure, true), &["error", "message", "type"]);
    let again = written(&Failure::of_answer(failure.status, told.as_bytes(), false), false);
    let read = |text: &str| serde_json::from_str::<Value>(text).expect("JSON")["error"].clone();
    let (mut first, mut second) = (read(&told), read(&again));
    // The message can yield a code that the original error type did not (3.4).
    if first["code"].is_null() {
        first["code"] = json!(null);
        second["code"] = json!(null);
    }
    assert_eq!(second, first, "{}", body.escape_ascii());
    // The result is unspecified for an error without a message, or in none of the known shapes.
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let flat = if said["object"] == "error" { &said["message"] } else { &Value::Null };
    let messages = [&said["error"]["message"], &said["error"], flat, &said["detail"]];
    if !ours && messages.iter().any(|message| message.as_str().is_some_and(|text| !text.is_empty())) {
        let case = Case { status, input: body.to_vec(), ..made::exchange(&[]).case };
        both(&case).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

fn written(failure: &Failure, flat: bool) -> String {
    let mut out = BytesMut::new();
    failure.write(flat, &mut out);
    String::from_utf8(out.to_vec()).expect("UTF-8")
}

fn shaped(text: &str, top: &[&str]) {
    assert!(!text.bytes().any(|byte| byte < 0x20), "{text}");
    let told: Value = serde_json::from_str(text).expect("JSON");
    let keys: Vec<_> = told.as_object().expect("an object").keys().map(String::as_str).collect();
    assert!(keys.len() == top.len() && top.iter().all(|key| keys.contains(key)), "{text}");
    let error = told["error"].as_object().expect("an object");
    assert!(["message", "type"].iter().all(|key| error[*key].is_string()), "{text}");
    assert!(["param", "code"].iter().all(|key| error[*key].is_string() || error[*key].is_null()), "{text}");
    assert!(error["message"].as_str().is_some_and(|message| message.len() <= MESSAGE), "{text}");
    let known = ["message", "type", "param", "code", "plan_type", "resets_at"];
    assert!(error.keys().all(|key| known.contains(&key.as_str())), "{text}");
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let captured = captures().into_iter().map(|fixture| fixture.case);
    for case in captured.chain(vectors().into_iter().map(|(case, _)| case)).filter(|case| case.status >= 400) {
        let at = STATUS.iter().position(|status| *status == case.status).unwrap_or(11);
        for ours in 0..2 {
            all.push([&[at as u8, ours], &case.input[..]].concat());
        }
    }
    let mut events = made::objects(&made::exchanges());
    events.retain(|event| event.contains("\"error\"") || event.contains("\"message\":"));
    for (at, event) in (0_u8..).zip(super::feed::some(events, 40)) {
        all.push([&[at % 16, 0], event.as_bytes()].concat());
    }
    for body in ["<html>502 Bad Gateway</html>", r#"{"detail":[{"loc":["body","n"],"msg":"worse"}]}"#, r#"{"detail":"Not Found"}"#] {
        all.push([&[3, 0], body.as_bytes()].concat());
    }
    all
}
