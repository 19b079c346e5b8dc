//! Responses requests as engines receive them, row by row of wire-format 4.2 and 4.3, and requests that are
//! refused.

mod any;
mod items;
mod native;
mod parameters;
mod refused;
mod tools;

use bytes::Bytes;
use samewire::engine::named;
use samewire::plan::{Route, response_body};
use samewire::request::responses::{ChatInputs, ResponsesMode, ResponsesRequest};
use samewire::request::{Ranges, Rules};
use samewire::wire::fault::Failure;
use samewire::wire::options::Options;
use serde_json::Value;
use std::sync::Arc;

/// Parses options by their names in the configuration.
fn options(json: &str) -> Options {
    serde_json::from_str(json).unwrap()
}

fn read(body: &str) -> Result<ResponsesRequest, Failure> {
    read_under(Rules::ANSWERED, &Options::default(), body)
}

/// Reads a request with the ranges of the published API, as an operator may configure.
fn read_as_published(body: &str) -> Result<ResponsesRequest, Failure> {
    read_under(
        Rules {
            ranges: Ranges::Api,
            ..Rules::ANSWERED
        },
        &Options::default(),
        body,
    )
}

fn read_under(rules: Rules, options: &Options, body: &str) -> Result<ResponsesRequest, Failure> {
    let body = Bytes::from(body.to_owned());
    ResponsesRequest::read_for(&body, options, ResponsesMode::Chat, None, &Arc::new(rules))
}

/// Returns the body that the engine receives.
fn sent(engine: &str, set: &str, body: &str, material: &ChatInputs<'_>) -> Result<String, Failure> {
    let options = options(set);
    let asked = read_under(Rules::ANSWERED, &options, body)?;
    let route = Route::new(named(engine).unwrap(), Arc::new(options), 1 << 20);
    let chat = response_body(&asked, material, &route)?;
    let text = String::from_utf8(chat.body.joined().to_vec()).unwrap();
    serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    Ok(text)
}

/// Returns `{"model":"m",…}` with these members.
fn request(members: &str) -> String {
    format!("{{\"model\":\"m\",{members}}}")
}

/// Returns the engine's request with these messages and the members after them.
fn chat(messages: &str, rest: &str) -> String {
    format!("{{\"model\":\"m\",\"messages\":[{messages}]{rest}}}")
}

/// Returns `param`, `code` and message of an error.
fn refusal(
    result: Result<impl std::fmt::Debug, Failure>,
) -> (Option<String>, Option<String>, String) {
    let failure = result.unwrap_err();
    assert_eq!(
        (failure.status, failure.kind.as_ref()),
        (400, "invalid_request_error"),
        "{failure:?}"
    );
    (
        failure.param,
        failure.code.map(Into::into),
        failure.message.into_owned(),
    )
}
