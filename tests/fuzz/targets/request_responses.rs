//! A Responses request is either refused with a reason, or becomes a request to the engine with the same meaning.

use super::feed::Feed;
use super::made;
use super::request_chat::refused;
use crate::cases::{response_vectors, responses};
use crate::laws::request;
use bytes::Bytes;
use samewire::engine::ENGINES;
use samewire::plan::{Route, plan, response_body};
use samewire::request::responses::{ResponsesRequest, ChatInputs, ResponsesMode};
use samewire::request::{ChatRequest, Rules};
use samewire::wire::Api;
use samewire::wire::options::Options;
use serde_json::Value;
use std::sync::Arc;

pub fn run(data: &[u8]) {
    let mut feed = Feed(data);
    let way = feed.byte();
    let engine = ENGINES[usize::from(way & 3) % ENGINES.len()];
    let native = way >> 2 & 1 == 1;
    let body = Bytes::copy_from_slice(feed.rest());
    let (options, rules) = (Options::default(), Arc::new(Rules::default()));
    let way = if native { ResponsesMode::Native } else { ResponsesMode::Chat };
    let unseal = |sealed: &str| sealed.strip_prefix("swr1.").map(str::to_owned);
    let material = ChatInputs { unseal: &unseal, ..ChatInputs::default() };
    let sent = ResponsesRequest::read_for(&body, &options, way, None, &rules).and_then(|asked| {
        let route = Route { responses: way, ..Route::new(engine, Arc::new(options.clone()), 1 << 20) };
        let sent = response_body(&asked, &material, &route)?;
        Ok((asked, sent.body.joined()))
    });
    let (asked, sent) = match sent {
        Ok(sent) => sent,
        Err(failure) => return refused(&failure),
    };
    let text = std::str::from_utf8(&sent).expect("UTF-8");
    assert!(samewire::json::Raw::of(text).is_some(), "{text}");
    if native {
        let again = ResponsesRequest::read_for(&sent, &options, way, None, &rules)
            .and_then(|asked| asked.native(&material, &engine.takes, &options));
        let again = again.unwrap_or_else(|failure| panic!("{failure:?}: {text}"));
        let limit = |body: &Bytes| {
            let mut object: Value = serde_json::from_slice(body).ok()?;
            // The limit grows each time, because it compensates for tokens that an engine subtracts.
            object.as_object_mut()?.remove("max_output_tokens");
            Some(object)
        };
        assert_eq!(limit(&again), limit(&sent), "{body:?}");
        return;
    }
    let ask = ChatRequest::recall(Api::Chat, &sent).unwrap_or_else(|failure| panic!("{failure:?}: {text}"));
    assert_eq!((&ask.model, ask.stream, ask.choices), (&asked.model, asked.stream || asked.background, 1));
    let route = Route::new(engine, Arc::new(options), 1 << 20);
    let again = plan(&ask, &sent, &route).expect("samewire knows its own fields");
    assert_eq!(again.body.joined(), sent);
    if let Ok(body) = serde_json::from_slice::<Value>(&body) {
        request::check(&body).unwrap_or_else(|wrong| panic!("{wrong}\n{body}"));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let captured = responses().into_iter().map(|fixture| fixture.case);
    let vectors = response_vectors().into_iter().map(|(case, _)| case);
    let mut bodies: Vec<_> = captured.chain(vectors).map(|case| case.request.to_string()).collect();
    bodies.sort();
    bodies.dedup();
    bodies.retain(|body| body.len() < 4_000);
    bodies.push(r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"low"}]},{"type":"reasoning","content":[{"type":"reasoning_text","text":"r"}],"encrypted_content":"swr1.x"},{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"o"},{"type":"custom_tool_call","namespace":"n","call_id":"c2","name":"g","input":"i"},{"type":"custom_tool_call_output","call_id":"c2","output":"o"}],"tools":[{"type":"function","name":"f"},{"type":"namespace","name":"n","tools":[{"type":"custom","name":"g"}]}],"instructions":"be","max_output_tokens":9,"reasoning":{"effort":"low"},"text":{"format":{"type":"json_schema","name":"s","schema":{}}}}"#.to_owned());
    bodies.push(r#"{"model":"m","input":"hello","stream":true,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]},"store":false}"#.to_owned());
    let mut all = Vec::new();
    for (at, body) in (0_u8..).zip(bodies) {
        all.push([&[at % 8], body.as_bytes()].concat());
    }
    assert!(!made::answers().is_empty());
    all
}
