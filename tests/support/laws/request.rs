//! A Responses request is either refused with a reason, or becomes a chat request that contains all of it.

use samewire::engine::ENGINES;
use samewire::request::Rules;
use samewire::request::responses::{ChatInputs, ResponsesMode, ResponsesRequest};
use samewire::wire::options::Options;
use serde_json::{Value, json};
use std::sync::Arc;

/// Checks a request body against every engine. Returns true if it became a chat request, false if it was refused.
pub(crate) fn check(body: &Value) -> Result<bool, String> {
    let bytes = body.to_string().into();
    let (options, rules) = (Options::default(), Arc::new(Rules::ANSWERED));
    let unseal = |sealed: &str| sealed.strip_prefix("swr1.").map(str::to_owned);
    for engine in ENGINES {
        let material = ChatInputs {
            unseal: &unseal,
            ..ChatInputs::default()
        };
        let sent = ResponsesRequest::read_for(&bytes, &options, ResponsesMode::Chat, None, &rules)
            .and_then(|request| request.chat(&material, &engine.takes, &options));
        let sent = match sent {
            Ok(sent) => sent,
            Err(failure)
                if failure.code.as_deref() == Some("invalid_json") && !body.is_object() =>
            {
                return Ok(false);
            }
            Err(failure) if failure.param.is_some() && failure.status < 500 => return Ok(false),
            Err(failure) => return Err(format!("{failure:?}")),
        };
        let chat: Value =
            serde_json::from_slice(&sent).map_err(|error| format!("{error}: {sent:?}"))?;
        check_contains(body, &chat)?;
    }
    Ok(true)
}

/// Checks that every text of the input is in the chat messages, and that nulls are only in values passed on unread.
fn check_contains(body: &Value, chat: &Value) -> Result<(), String> {
    let messages = chat["messages"]
        .as_array()
        .filter(|messages| !messages.is_empty())
        .ok_or("no messages")?;
    let written = Value::from(messages.clone()).to_string();
    fail_if!(written.contains(":null"), "a null: {written}");
    fail_if!(
        chat.as_object().unwrap().values().any(Value::is_null),
        "a null: {chat}"
    );
    let all = body["input"].as_array().cloned().unwrap_or_default();
    for text in all
        .iter()
        .filter(|item| item["role"].is_string())
        .filter_map(|item| item["content"].as_str())
    {
        let inner = Value::from(text).to_string();
        fail_if!(
            !written.contains(inner.trim_matches('"')),
            "{inner} is missing: {written}"
        );
    }
    let calls = all.iter().filter(|item| item["type"] == "custom_tool_call");
    let told: Vec<_> = messages
        .iter()
        .filter_map(|message| message["tool_calls"].as_array())
        .flatten()
        .collect();
    for input in calls.filter_map(|item| item["input"].as_str()) {
        let is = |call: &&&Value| {
            let arguments: Result<Value, _> =
                serde_json::from_str(call["function"]["arguments"].as_str().unwrap());
            arguments.is_ok_and(|arguments| arguments == json!({ "input": input }))
        };
        told.iter()
            .find(is)
            .ok_or_else(|| format!("no call with {input:?}: {written}"))?;
    }
    Ok(())
}
