//! Outputs of a client's tools for the calls of an answer, and the request that continues from there
//! (wire-format 4.10).
//!
//! Takes: a body, the answer's calls, the request that it answered. Gives: the outputs, and the body of a request
//! of the same kind. Never: accepts a parameter it does not know.

use super::content::{self, ContentPlace};
use super::server_tools::without_credentials;
use crate::json::{self, Members, Raw, Text, compacted, write_string};
use crate::request::Rules;
use crate::request::check::Checked;
use crate::request::object::RequestObject;
use crate::request::refusals::{invalid, missing};
use crate::request::turn::write_items;
use crate::wire::fault::{Failure, Fault};
use bytes::{BufMut, Bytes, BytesMut};
use std::fmt::Write as _;

const KNOWN: &[&str] = &["tool_call_id", "output", "tool_outputs", "stream"];
/// Maximum number of outputs in one request.
const MOST: usize = 1024;

/// Fields that a continuing request inherits from the one before it.
const KEPT: &[&str] = &[
    "instructions",
    "tools",
    "tool_choice",
    "reasoning",
    "text",
    "temperature",
    "top_p",
    "max_output_tokens",
    "metadata",
    "store",
];

/// Outputs of tools as a client submits them, for one or several calls of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs {
    /// Submitted outputs, in order.
    pub all: Vec<Output>,
    /// True if the client wants the answer as an event stream.
    pub stream: bool,
}

/// Output of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Id of the call (`call_id`).
    pub call_id: String,
    /// Path of the parameter that names the call, for error messages.
    pub param: String,
    /// Output as JSON: a string or a list of parts.
    pub output: String,
}

impl Outputs {
    /// Parses and checks the body that submits outputs.
    ///
    /// # Errors
    /// Fails on the first invalid field, with its `param`.
    pub fn read(body: &[u8], rules: &Rules) -> Result<Self, Failure> {
        let from = Checked::of(body, KNOWN, rules)?;
        from.only_known()?;
        let stream = from.flag("stream")?;
        let Some(list) = from.list("tool_outputs", MOST)? else {
            let whole = Raw::of(from.text.trim()).ok_or(Fault::InvalidJson)?;
            from.required("tool_call_id", true)?;
            return Ok(Self {
                all: vec![output(&RequestObject::of("", whole)?, rules)?],
                stream,
            });
        };
        if let Some(other) = ["tool_call_id", "output"]
            .into_iter()
            .find(|key| from.get(key).is_some())
        {
            return Err(invalid(
                other,
                "it excludes tool_outputs; send one of the two",
            ));
        }
        if list.is_empty() {
            return Err(missing("tool_outputs[0]"));
        }
        let all = list.into_iter().enumerate();
        let all = all.map(|(at, raw)| {
            output(
                &RequestObject::of(format!("tool_outputs[{at}]"), raw)?,
                rules,
            )
        });
        Ok(Self {
            all: all.collect::<Result<_, _>>()?,
            stream,
        })
    }
}

fn output(from: &RequestObject<'_>, rules: &Rules) -> Result<Output, Failure> {
    let rooted = |failure: Failure| match failure
        .param
        .as_deref()
        .and_then(|param| param.strip_prefix('.'))
    {
        Some(param) => {
            let (message, param) = (failure.message.replacen("'.", "'", 1), param.to_owned());
            failure.with_message(message).with_param(param)
        }
        None => failure,
    };
    let call_id = from
        .required_name("tool_call_id")
        .map_err(rooted)?
        .decoded()
        .into_owned();
    let parts =
        content::parts(from, "output", ContentPlace::Output, &rules.media).map_err(rooted)?;
    let mut json = BytesMut::new();
    write_items(&parts, "\n", &mut json);
    let param = from.path("tool_call_id").trim_start_matches('.').to_owned();
    Ok(Output {
        call_id,
        param,
        output: String::from_utf8_lossy(&json).into_owned(),
    })
}

/// Call at the end of an answer that still needs an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCall {
    /// Id of the call (`call_id`).
    pub call_id: String,
    /// True for a call of a custom tool.
    pub custom: bool,
}

/// Returns the calls in a final response object, in order and without duplicate ids.
pub fn calls(object: &str) -> Vec<PendingCall> {
    let output = json::raw_member(object, "output")
        .and_then(|raw| json::read::<Vec<Raw<'_>>>(raw.get()).ok());
    let call = |item: Raw<'_>| {
        let custom = match json::member(item.get(), "type")?.as_str() {
            "function_call" => false,
            "custom_tool_call" => true,
            _ => return None,
        };
        Some(PendingCall {
            call_id: json::member(item.get(), "call_id")?,
            custom,
        })
    };
    distinct(output.unwrap_or_default().into_iter().filter_map(call))
}

/// Returns the calls without duplicate ids: calls that share an id share one output.
pub fn distinct(all: impl Iterator<Item = PendingCall>) -> Vec<PendingCall> {
    let mut calls: Vec<PendingCall> = Vec::new();
    for call in all {
        if !calls.iter().any(|known| known.call_id == call.call_id) {
            calls.push(call);
        }
    }
    calls
}

/// Returns the id of the conversation that a final response object belongs to.
pub fn conversation(object: &str) -> Option<String> {
    json::member(json::raw_member(object, "conversation")?.get(), "id")
}

/// Returns the input items for these outputs, as JSON.
pub fn items<'a>(answered: impl Iterator<Item = (&'a PendingCall, &'a str)>) -> Vec<String> {
    let item = |(call, output): (&PendingCall, &str)| {
        let kind = if call.custom {
            "custom_tool_call_output"
        } else {
            "function_call_output"
        };
        let mut item = BytesMut::from(format!("{{\"type\":\"{kind}\",\"call_id\":").as_bytes());
        write_string(&call.call_id, &mut item);
        item.extend_from_slice(b",\"output\":");
        item.extend_from_slice(output.as_bytes());
        item.put_u8(b'}');
        String::from_utf8_lossy(&item).into_owned()
    };
    answered.map(item).collect()
}

/// Predecessor of a continuing request.
#[derive(Clone, Copy, Debug)]
pub enum Predecessor<'a> {
    /// Id of the response to continue.
    Response(&'a str),
    /// Id of a conversation that includes the response.
    Conversation(&'a str),
}

/// Returns the request fields to keep for continuing requests: the model and the settings. The input is stored
/// separately, as items.
pub fn inherited_fields(request: &str) -> String {
    let members = Members::of(request.trim_start_matches('\u{feff}')).unwrap_or_default();
    let kept = ["model"].iter().chain(KEPT);
    let kept: Vec<_> = kept
        .filter_map(|key| Some((key, members.get(key)?.get())))
        .collect();
    // Tools and instructions may be as long as the request: growth would copy them.
    let length = kept.iter().map(|(key, value)| key.len() + value.len() + 4);
    let mut out = String::with_capacity(length.sum::<usize>() + 2);
    out.push('{');
    for (key, value) in kept {
        let shown = (*key == "tools").then(|| tools_to_store(value)).flatten();
        let value = shown.as_deref().unwrap_or(value);
        let comma = if out.len() > 1 { "," } else { "" };
        let _ = write!(out, "{comma}\"{key}\":{value}");
    }
    out.push('}');
    out
}

/// Returns a list of tools without clients' credentials for servers; `None` if it has none.
fn tools_to_store(tools: &str) -> Option<String> {
    let tools: Vec<_> = json::elements(tools)?.collect();
    let shown: Vec<_> = tools
        .iter()
        .map(|tool| without_credentials(*tool))
        .collect();
    if shown.iter().all(Option::is_none) {
        return None;
    }
    let shown = shown.into_iter().zip(&tools);
    let shown: Vec<_> = shown
        .map(|(shown, tool)| shown.unwrap_or_else(|| tool.get().to_owned()))
        .collect();
    Some(format!("[{}]", shown.join(",")))
}

/// Builds the body of a request that continues an answer with `input`. `request` holds the fields returned by
/// [`inherited_fields`]; `model` is the model that answered, used if `request` names none.
pub fn continuing_body(
    request: &str,
    model: &str,
    after: Predecessor<'_>,
    input: &[String],
    stream: bool,
) -> Bytes {
    let mut out = BytesMut::from(&b"{\"model\":"[..]);
    match json::raw_member(request, "model").filter(|model| Text::of(*model).is_some()) {
        Some(model) => out.extend_from_slice(compacted(model).as_bytes()),
        None => write_string(model, &mut out),
    }
    for key in KEPT {
        if let Some(value) = json::raw_member(request, key).filter(|value| value.get() != "null") {
            out.extend_from_slice(format!(",\"{key}\":{}", value.get()).as_bytes());
        }
    }
    let (key, id) = match after {
        Predecessor::Response(id) => ("previous_response_id", id),
        Predecessor::Conversation(id) => ("conversation", id),
    };
    out.extend_from_slice(format!(",\"{key}\":").as_bytes());
    write_string(id, &mut out);
    out.extend_from_slice(
        format!(",\"input\":[{}],\"stream\":{stream}}}", input.join(",")).as_bytes(),
    );
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Vec<(String, String)>, Failure> {
        let pair = |output: Output| (output.call_id, output.output);
        Outputs::read(body.as_bytes(), &Rules::ANSWERED)
            .map(|outputs| outputs.all.into_iter().map(pair).collect())
    }

    #[test]
    fn one_output_or_several() {
        let pair = |call: &str, output: &str| (call.to_owned(), output.to_owned());
        for (body, expected) in [
            (
                r#"{"tool_call_id":"a","output":"x\u0041"}"#,
                vec![pair("a", "\"xA\"")],
            ),
            (
                r#" {"output":[{"type":"output_text","text":"x"},{"type":"output_text","text":"y"}],"tool_call_id":"a","stream":true}"#,
                vec![pair("a", r#""x\ny""#)],
            ),
            (
                r#"{"tool_outputs":[{"tool_call_id":"a","output":"1"},{"tool_call_id":"b","output":[{"type":"input_image","image_url":"u"}]}]}"#,
                vec![
                    pair("a", "\"1\""),
                    pair(
                        "b",
                        r#"[{"type":"input_image","image_url":"u","detail":"auto"}]"#,
                    ),
                ],
            ),
        ] {
            assert_eq!(read(body).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, param) in [
            ("{}", "tool_call_id"),
            (r#"{"tool_call_id":"a"}"#, "output"),
            (r#"{"tool_call_id":1,"output":"x"}"#, "tool_call_id"),
            (r#"{"tool_call_id":"","output":"x"}"#, "tool_call_id"),
            (r#"{"tool_call_id":"a","output":1}"#, "output"),
            (
                r#"{"tool_call_id":"a","output":[{"type":"refusal"}]}"#,
                "output[0].type",
            ),
            (r#"{"tool_outputs":[]}"#, "tool_outputs[0]"),
            (r#"{"tool_outputs":{}}"#, "tool_outputs"),
            (
                r#"{"tool_outputs":[{"output":"x"}]}"#,
                "tool_outputs[0].tool_call_id",
            ),
            (
                r#"{"tool_outputs":[{"tool_call_id":"a","output":"x"},{"tool_call_id":"b","output":{}}]}"#,
                "tool_outputs[1].output",
            ),
            (r#"{"tool_outputs":[],"tool_call_id":"a"}"#, "tool_call_id"),
            (r#"{"tool_call_id":"a","output":"x","stream":1}"#, "stream"),
            (r#"{"tool_call_id":"a","output":"x","model":"m"}"#, "model"),
        ] {
            let failure = read(body).unwrap_err();
            assert_eq!(failure.param.as_deref(), Some(param), "{body}");
            assert!(
                failure.message.contains(&format!("'{param}'")),
                "{}",
                failure.message
            );
        }
        assert_eq!(read("[").unwrap_err().param, None);
    }

    #[test]
    fn the_request_goes_on_as_it_began() {
        let object = r#"{"output":[{"type":"message"},{"type":"function_call","call_id":"a"},{"type":"custom_tool_call","call_id":"b"}]}"#;
        let calls = calls(object);
        let given = items(calls.iter().zip(["\"1\"", "[]"]));
        let request = r#"{"input":"x","model":"m\u0041","tools":[{"a": 1}],"stream":true,"include":[],"temperature":0.50,"text":null}"#;
        let kept = inherited_fields(request);
        assert_eq!(
            kept,
            r#"{"model":"m\u0041","tools":[{"a": 1}],"text":null,"temperature":0.50}"#
        );
        let body = continuing_body(
            &kept,
            "other",
            Predecessor::Response("resp_1"),
            &given,
            true,
        );
        assert_eq!(
            std::str::from_utf8(&body).unwrap(),
            r#"{"model":"mA","tools":[{"a": 1}],"temperature":0.50,"previous_response_id":"resp_1","input":[{"type":"function_call_output","call_id":"a","output":"1"},{"type":"custom_tool_call_output","call_id":"b","output":[]}],"stream":true}"#
        );
        let body = continuing_body(
            "{}",
            "other",
            Predecessor::Conversation("conv_1"),
            &[],
            false,
        );
        assert_eq!(
            std::str::from_utf8(&body).unwrap(),
            r#"{"model":"other","conversation":"conv_1","input":[],"stream":false}"#
        );
    }
}
