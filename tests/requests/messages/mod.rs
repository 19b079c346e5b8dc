//! Messages requests as engines receive them: the worked examples, and row by row of `docs/messages.md` what becomes of
//! a request or why it is refused.

use crate::message_form;
use bytes::Bytes;
use samewire::engine::named;
use samewire::plan::{Route, message};
use samewire::request::messages::{MessagesMode, MessagesRequest, Purpose};
use samewire::wire::fault::Failure;
use samewire::wire::options::Options;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

mod conversation;
mod refused;
mod settings;
mod tools;

/// Request after planning: the engine's body, and the request that it was made of.
struct Sent {
    body: Value,
    asked: MessagesRequest,
}

fn options(json: &str) -> Options {
    serde_json::from_str(json).unwrap()
}

/// Plans a request with these options for this engine, whose model has a context of this length.
fn planned(
    engine: &str,
    set: &str,
    body: &str,
    context_length: Option<u64>,
) -> Result<Sent, Failure> {
    planned_for(MessagesMode::Chat, engine, set, body, context_length)
}

/// Plans a request for this route of the engine.
fn planned_for(
    mode: MessagesMode,
    engine: &str,
    set: &str,
    body: &str,
    context_length: Option<u64>,
) -> Result<Sent, Failure> {
    let options = options(set);
    let body = Bytes::from(body.to_owned());
    let asked = message_form::read(&body, &options, context_length, mode, Purpose::Answer)?;
    let route = Route::new(named(engine).unwrap(), Arc::new(options), 1 << 20);
    let (plan, _) = message(&asked, &route)?;
    Ok(Sent {
        body: serde_json::from_slice(&plan.body.joined()).unwrap(),
        asked,
    })
}

/// Returns the engine's body for a request with these members, for vLLM under the usual options.
fn sent(members: &str) -> Sent {
    planned("vllm", "{}", &request(members), None)
        .unwrap_or_else(|failure| panic!("{members}: {failure:?}"))
}

/// Returns `{"model":"m","max_tokens":9,…}` with these members.
fn request(members: &str) -> String {
    format!("{{\"model\":\"m\",\"max_tokens\":9,{members}}}")
}

/// Returns a request with these messages.
fn talk(messages: &str) -> String {
    format!("\"messages\":[{messages}]")
}

/// Returns the message with which a request is refused.
fn refusal(members: &str) -> String {
    match planned("vllm", "{}", &request(members), None) {
        Ok(sent) => panic!("{members}: not refused, but sent as {}", sent.body),
        Err(failure) => {
            assert_eq!(failure.status, 400, "{members}: {failure:?}");
            failure.message.into_owned()
        }
    }
}

#[test]
fn the_worked_examples() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/vectors");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let vector: Value =
            serde_json::from_slice(&std::fs::read(entry.unwrap().path()).unwrap()).unwrap();
        if vector["client_api"] != "messages" {
            continue;
        }
        count += 1;
        let (name, engine) = (
            vector["name"].as_str().unwrap(),
            vector["engine"].as_str().unwrap(),
        );
        let context_length = vector["upstream_context"].as_u64();
        let set = vector["options"].to_string();
        let is_native = vector["upstream_api"] == "messages";
        let mode = if is_native {
            MessagesMode::Native
        } else {
            MessagesMode::Chat
        };
        match planned_for(
            mode,
            engine,
            &set,
            &vector["request"].to_string(),
            context_length,
        ) {
            Ok(sent) => {
                assert_eq!(sent.body, vector["engine_request"], "{name}");
                let dropped = vector["expected_headers"]["x-samewire-dropped"]
                    .as_str()
                    .unwrap_or("");
                assert_eq!(sent.asked.dropped.join(", "), dropped, "{name}");
            }
            Err(failure) => {
                assert_eq!(vector["engine_request"], Value::Null, "{name}: {failure:?}");
                let (status, body) = message_form::error(&failure);
                assert_eq!(vector["expected_status"], status, "{name}");
                assert_eq!(
                    vector["expected_body"],
                    serde_json::from_str::<Value>(&body).unwrap(),
                    "{name}"
                );
            }
        }
    }
    assert_eq!(count, 37);
}
