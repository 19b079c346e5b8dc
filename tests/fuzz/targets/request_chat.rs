//! A request of Chat Completions or Completions is either refused with a reason, or becomes a request to the engine
//! with the same meaning.

use super::feed::{Feed, some};
use super::made;
use bytes::{Bytes, BytesMut};
use samewire::engine::ENGINES;
use samewire::plan::{Plan, Route, plan};
use samewire::request::{ChatRequest, Rules};
use samewire::wire::Api;
use samewire::wire::fault::{Failure, Fault};
use samewire::wire::options::{Harmony, Options, RequestUnknown};
use serde_json::{Map, Value};
use std::sync::Arc;

pub fn run(data: &[u8]) {
    let mut feed = Feed(data);
    let (way, set) = (feed.byte(), feed.byte());
    let api = if way & 1 == 0 { Api::Chat } else { Api::Completions };
    let engine = ENGINES[usize::from(way >> 1 & 3) % ENGINES.len()];
    let unknown = [RequestUnknown::Pass, RequestUnknown::Drop, RequestUnknown::Reject, RequestUnknown::Pass];
    let options = Options {
        harmony: if set & 1 == 1 { Harmony::Text } else { Harmony::Off },
        request_unknown: unknown[usize::from(set >> 1 & 3)],
        ..Options::default()
    };
    let mut route = Route::new(engine, Arc::new(options), 1 << 20);
    route.model_alias = (set >> 3 & 1 == 1).then(|| "an \"alias\"".to_owned());
    let body = Bytes::copy_from_slice(feed.rest());
    let ask = match ChatRequest::read_for(api, &body, None, &Rules::default()) {
        Ok(ask) => ask,
        Err(failure) => return refused(&failure),
    };
    let sent = match plan(&ask, &body, &route) {
        Ok(sent) => sent,
        // A refused field, or one that this engine does not support.
        Err(failure) => return refused(&failure),
    };
    same(&ask, &sent, &route);
    if sent.shape.adapted.is_empty() {
        carried(&body, &sent.body.joined(), &route);
    }
}

/// Checks the error for a refused request.
pub(crate) fn refused(failure: &Failure) {
    // An item reference in the input may not exist.
    let status = if failure.fault == Fault::NotFound { 404 } else { 400 };
    assert_eq!((failure.status, &*failure.kind), (status, "invalid_request_error"), "{failure:?}");
    assert!(failure.code.is_some() || failure.param.is_some(), "{failure:?}");
    let mut out = BytesMut::new();
    failure.write(false, &mut out);
    let told: Value = serde_json::from_slice(&out).expect("an error is JSON");
    assert_eq!(told["error"]["message"], *failure.message);
    assert!(!out.contains(&b'\n'));
}

/// Checks that the engine reads the same request, and that adapting it again changes nothing.
fn same(ask: &ChatRequest, sent: &Plan, route: &Route) {
    let rules = Rules::default();
    let body = sent.body.joined();
    let read = ChatRequest::read_for(ask.api, &body, None, &rules);
    let read = read.unwrap_or_else(|failure| panic!("{failure:?}: {body:?}"));
    assert_eq!(read.model, *route.model_alias.as_ref().unwrap_or(&ask.model));
    assert_eq!((read.stream, read.choices, read.logprobs), (ask.stream, ask.choices, ask.logprobs));
    assert_eq!(read.limit, ask.limit);
    if sent.shape.adapted.is_empty() {
        assert_eq!(read.forced_function, ask.forced_function);
    }
    assert_eq!(read.continuous_usage, ask.continuous_usage);
    assert!(read.include_usage || !ask.stream, "no usage: {body:?}");
    assert!(!read.include_obfuscation, "padding: {body:?}");
    // Members that samewire adds are not fields of the API.
    let mut route = route.clone();
    if route.options.request_unknown == RequestUnknown::Reject {
        route.options = Arc::new(Options { request_unknown: RequestUnknown::Pass, ..(*route.options).clone() });
    }
    let once_more = plan(&read, &body, &route).expect("a planned request can be planned again");
    assert_eq!(once_more.body, sent.body);
}

/// Checks that nothing is lost, and that nothing else is written.
fn carried(body: &Bytes, sent: &Bytes, route: &Route) {
    let sent_text = std::str::from_utf8(sent).expect("UTF-8");
    let text = std::str::from_utf8(body).expect("UTF-8").trim_start_matches('\u{feff}');
    let own = ["model", "stream_options", "skip_special_tokens"];
    // Numbers and depths beyond the reference's limits are not compared.
    let (Ok(mut was), Ok(mut is)) = (object(text), object(sent_text)) else { return };
    for key in own {
        was.remove(key);
        is.remove(key);
    }
    // Reasoning members are renamed and URLs are normalised.
    if !["reasoning", "url", "\\u"].iter().any(|word| text.contains(word)) {
        if route.options.request_unknown == RequestUnknown::Drop {
            was.retain(|key, _| is.contains_key(key));
        }
        assert_eq!(is, was, "{text}\n{sent_text}");
    }
}

fn object(text: &str) -> serde_json::Result<Map<String, Value>> {
    serde_json::from_str(text)
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut bodies: Vec<(u8, String)> = Vec::new();
    for case in made::exchanges() {
        bodies.push((u8::from(case.api == Api::Completions), case.request.to_string()));
    }
    bodies.sort();
    bodies.dedup();
    for (at, (api, body)) in (0_u8..).zip(some(bodies, 150)) {
        all.push([&[api | (at % 4) << 1, at % 16], body.as_bytes()].concat());
    }
    for body in [
        "{\"model\":\"m\",\"messages\":[{\"role\":\"assistant\",\"reasoning_content\":\"a\",\"content\":null}],\"top_k\":5}",
        "\u{feff}{ \"model\":\"m\" , \"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"HTTPS://example.com\"}}]}],\"stream\":true,\"stream_options\":{\"include_obfuscation\":true,\"x\":1}}",
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}},\"n\":2,\"max_tokens\":5,\"stop\":[\"a\"],\"metadata\":{\"a\":\"b\"},\"chat_template_kwargs\":{\"enable_thinking\":true}}",
        "{\"model\":\"m\",\"model\":\"n\"}",
        "{\"a\":\"\\ud800\"}",
    ] {
        for way in 0..4 {
            all.push([&[way << 1, way * 5], body.as_bytes()].concat());
        }
    }
    all
}
