//! A collected canonical stream equals the canonical whole answer of the same engine (property P9).

use crate::canonical::{Frame, frames};
use crate::cases::{Answer, Case, Cut};
use serde_json::{Map, Value, json};

/// Content of an answer, whether streamed or whole; or the code of the error that ended it.
type Collected = Result<Value, Value>;

/// Requests the same answer streamed and whole, and compares the contents.
pub fn both_forms(case: &Case) -> Result<(), String> {
    let stream = with_form(
        case,
        json!({"stream": true, "stream_options": {"include_usage": true}}),
    );
    let whole = with_form(case, json!({"stream": false}));
    let (stream, whole) = (stream.run(&Cut::Whole), whole.run(&Cut::Whole));
    let (collected, object) = (collected(&stream)?, parts(&whole));
    match collected == object {
        true => Ok(()),
        false => Err(format!(
            "{}:\n{collected:?}\n{object:?}\n{}\n{}",
            case.name, stream.body, whole.body
        )),
    }
}

fn with_form(case: &Case, form: Value) -> Case {
    let mut request = case.request.as_object().cloned().unwrap_or_default();
    request.remove("stream_options");
    request.extend(form.as_object().cloned().unwrap_or_default());
    Case {
        request: Value::Object(request),
        ..case.clone()
    }
}

/// Extracts the content of a whole answer.
fn parts(answer: &Answer) -> Collected {
    let object: Value = serde_json::from_str(&answer.body).unwrap();
    if answer.status != 200 {
        return Err(object["error"]["code"].clone());
    }
    let choices = object["choices"].as_array().unwrap().iter().map(|choice| {
        let said = choice.get("message").unwrap_or(choice);
        let mut calls = said["tool_calls"].as_array().cloned().unwrap_or_default();
        for call in &mut calls {
            call["function"] = called(call);
            call.as_object_mut().unwrap().remove("custom");
        }
        json!({
            "index": choice["index"], "content": text(&said["content"]) + text(&said["text"]).as_str(),
            "reasoning": reasoning(said), "refusal": text(&said["refusal"]),
            "calls": calls, "function": said["function_call"],
            "finish": choice["finish_reason"], "logprobs": entries(&choice["logprobs"]),
        })
    });
    Ok(answer_of(&object, choices.collect(), &object["usage"]))
}

/// Returns the function that a tool call names; a custom tool is converted into a function.
fn called(call: &Value) -> Value {
    match &call["custom"] {
        Value::Object(custom) => {
            json!({"name": custom.get("name"), "arguments": custom.get("input")})
        }
        _ => call["function"].clone(),
    }
}

/// Extracts the content of a complete stream. Fails if the stream is malformed.
fn collected(answer: &Answer) -> Result<Collected, String> {
    if answer.status != 200 {
        return Ok(parts(answer));
    }
    let (mut choices, mut usage, mut head): (Vec<Value>, _, _) =
        (Vec::new(), Value::Null, Value::Null);
    for frame in frames(&answer.body)? {
        match frame {
            Frame::Done => {}
            Frame::Error(error) => return Ok(Err(error["error"]["code"].clone())),
            Frame::Chunk(chunk) => {
                for part in chunk["choices"].as_array().unwrap() {
                    take(part, &mut choices);
                }
                if chunk["choices"] == json!([]) {
                    usage = chunk["usage"].clone();
                }
                head = chunk;
            }
        }
    }
    choices.sort_by_key(|choice| choice["index"].as_u64());
    Ok(Ok(answer_of(&head, choices, &usage)))
}

fn answer_of(head: &Value, choices: Vec<Value>, usage: &Value) -> Value {
    json!({"id": head["id"], "created": head["created"], "model": head["model"], "choices": choices, "usage": usage})
}

fn take(part: &Value, choices: &mut Vec<Value>) {
    if !choices
        .iter()
        .any(|choice| choice["index"] == part["index"])
    {
        choices.push(json!({
            "index": part["index"], "content": "", "reasoning": "", "refusal": "", "calls": [], "function": null,
            "finish": null, "logprobs": entries(&Value::Null),
        }));
    }
    let choice = choices
        .iter_mut()
        .find(|choice| choice["index"] == part["index"])
        .unwrap();
    let said = part.get("delta").unwrap_or(part);
    for (key, more) in [
        ("content", text(&said["content"]) + &text(&said["text"])),
        ("reasoning", reasoning(said)),
        ("refusal", text(&said["refusal"])),
    ] {
        choice[key] = json!(text(&choice[key]) + &more);
    }
    for call in said["tool_calls"].as_array().into_iter().flatten() {
        let at = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
        let calls = choice["calls"].as_array_mut().unwrap();
        if calls.len() == at {
            let (id, kind, function) = (&call["id"], &call["type"], called(call));
            calls.push(
                json!({"id": id, "type": kind, "function": {"name": function["name"], "arguments": ""}}),
            );
        }
        let arguments = &mut calls[at]["function"]["arguments"];
        *arguments = json!(text(arguments) + &text(&called(call)["arguments"]));
    }
    if let Some(function) = said
        .get("function_call")
        .filter(|function| !function.is_null())
    {
        let before = choice["function"].clone();
        choice["function"] = json!({
            "name": text(&before["name"]) + &text(&function["name"]),
            "arguments": text(&before["arguments"]) + &text(&function["arguments"]),
        });
    }
    if !part["finish_reason"].is_null() {
        choice["finish"] = part["finish_reason"].clone();
    }
    let more = entries(&part["logprobs"]);
    for (key, list) in choice["logprobs"].as_object_mut().unwrap() {
        list.as_array_mut()
            .unwrap()
            .extend(more[key].as_array().cloned().unwrap_or_default());
    }
}

/// Returns the reasoning, which may be under either of two names.
fn reasoning(said: &Value) -> String {
    let name = if said["reasoning_content"].is_string() {
        "reasoning_content"
    } else {
        "reasoning"
    };
    text(&said[name])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the lists of log probabilities, in the form of either API.
fn entries(logprobs: &Value) -> Value {
    let keys = [
        "content",
        "refusal",
        "tokens",
        "token_logprobs",
        "top_logprobs",
    ];
    let list = |key: &str| logprobs[key].as_array().cloned().unwrap_or_default();
    Value::Object(
        keys.iter()
            .map(|key| ((*key).to_owned(), Value::Array(list(key))))
            .collect::<Map<_, _>>(),
    )
}
