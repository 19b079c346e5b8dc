//! Slow and obvious checker of the canonical form: what a client's answer must look like (wire-format 2.1, 2.3,
//! 2.11, 3, 8.2), and what it must contain.
#![allow(dead_code, reason = "each test crate uses its part")]

pub mod said;

use crate::cases::{Answer, Case};
use bytes::Bytes;
use samewire::request::ChatRequest;
use samewire::wire::{Api, Extensions};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Event of a canonical stream: a chunk, an error frame or the end mark.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    Chunk(Value),
    Error(Value),
    Done,
}

/// Ending of a grammatical answer: complete, or with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Complete,
    /// Error frame, or HTTP error.
    Failed,
}

/// Splits a canonical stream into frames (P3): each one line of JSON with LF, and nothing else.
pub fn frames(body: &str) -> Result<Vec<Frame>, String> {
    let mut frames = Vec::new();
    if body.is_empty() {
        return Ok(frames);
    }
    let events = body
        .strip_suffix("\n\n")
        .ok_or("the last event is not followed by its blank line")?;
    for event in events.split("\n\n") {
        let (error, data) = match event.strip_prefix("event: error\n") {
            Some(rest) => (true, rest),
            None => (false, event),
        };
        let data = data
            .strip_prefix("data: ")
            .ok_or_else(|| format!("not an event: {event:?}"))?;
        fail_if!(
            data.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']),
            "a line end inside an event: {data:?}"
        );
        frames.push(match (error, data) {
            (false, "[DONE]") => Frame::Done,
            (error, data) => {
                let value =
                    serde_json::from_str(data).map_err(|wrong| format!("{wrong}: {data}"))?;
                if error {
                    Frame::Error(value)
                } else {
                    Frame::Chunk(value)
                }
            }
        });
    }
    Ok(frames)
}

/// Parts of the client's request on which the grammar depends.
pub struct GrammarRequest {
    api: Api,
    stream: bool,
    choices: u64,
    usage: bool,
    logprobs: bool,
    /// True if the client requested extensions of the engine.
    extensions: bool,
    options: Value,
    named: bool,
}

impl GrammarRequest {
    pub fn of(case: &Case) -> Self {
        let request =
            ChatRequest::recall(case.api, &Bytes::from(case.request.to_string())).unwrap();
        Self {
            api: case.api,
            stream: case.streams(),
            choices: u64::from(request.choices),
            usage: request.include_usage || case.options["force_usage"] == true,
            logprobs: request.logprobs,
            extensions: request.extensions != Extensions::default(),
            options: case.options.clone(),
            named: request.forced_function.is_some(),
        }
    }

    fn option(&self, name: &str, value: &str) -> bool {
        self.options[name] == value
    }
}

/// Checks a whole answer of any kind.
pub fn check(case: &Case, answer: &Answer) -> Result<End, String> {
    let request = GrammarRequest::of(case);
    if answer.status != 200 {
        let body = serde_json::from_str(&answer.body).map_err(|wrong| wrong.to_string())?;
        error_object(&body, false)?;
        return match answer.status {
            400..=599 => Ok(End::Failed),
            status => Err(format!("HTTP {status}")),
        };
    }
    if request.stream {
        return Stream::new(&request).check(&frames(&answer.body)?);
    }
    let body = serde_json::from_str(&answer.body).map_err(|wrong| wrong.to_string())?;
    whole(&request, &body).map(|()| End::Complete)
}

/// Checks an error object: `{"error":{message, type, param, code}}` and nothing else (3.4).
fn error_object(body: &Value, flat: bool) -> Result<(), String> {
    let error = body["error"].as_object().ok_or("no error object")?;
    let top: &[&str] = if flat {
        &["error", "message", "type"]
    } else {
        &["error"]
    };
    only(body.as_object().unwrap(), top, &[])?;
    only(
        error,
        &["message", "type", "param", "code"],
        &["plan_type", "resets_at"],
    )?;
    let text = |key: &str| error[key].is_string();
    let text_or_null = |key: &str| error[key].is_string() || error[key].is_null();
    let good = text("message") && text("type") && text_or_null("param") && text_or_null("code");
    good.then_some(())
        .ok_or_else(|| format!("wrong types: {body}"))
}

/// Fails unless every key of `must` is present, and no others but those of `may`.
fn only(object: &Map<String, Value>, must: &[&str], may: &[&str]) -> Result<(), String> {
    if let Some(missing) = must.iter().find(|key| !object.contains_key(**key)) {
        return Err(format!("`{missing}` is missing"));
    }
    let known = |key: &String| must.contains(&key.as_str()) || may.contains(&key.as_str());
    match object.keys().find(|key| !known(key)) {
        Some(odd) => Err(format!("`{odd}` has no place here")),
        None => Ok(()),
    }
}

/// Optional members of a chunk or a whole object, and those of a choice.
const CHUNK_EXTRAS: [&str; 7] = [
    "token_ids",
    "service_tier",
    "system_fingerprint",
    "obfuscation",
    "x_upstream",
    "prompt_logprobs",
    "prompt_token_ids",
];
const CHOICE_EXTRAS: [&str; 5] = [
    "stop_reason",
    "x_upstream",
    "token_ids",
    "prompt_logprobs",
    "prompt_token_ids",
];

const REASONS: [&str; 5] = [
    "stop",
    "length",
    "tool_calls",
    "content_filter",
    "function_call",
];

/// Progress of one choice in a stream, for checking what may follow.
#[derive(Default)]
struct Progress {
    finished: bool,
    /// True for each custom tool call, in the order of the calls so far.
    calls: Vec<bool>,
}

/// State of a stream, for checking its grammar frame by frame.
struct Stream<'a> {
    request: &'a GrammarRequest,
    envelope: Option<[Value; 3]>,
    /// Service tier and fingerprint: constant once they are known.
    late: [Value; 2],
    choices: BTreeMap<u64, Progress>,
    usage_seen: bool,
    ended: Option<End>,
    done: bool,
}

impl<'a> Stream<'a> {
    fn new(request: &'a GrammarRequest) -> Self {
        Self {
            request,
            envelope: None,
            late: [Value::Null, Value::Null],
            choices: BTreeMap::new(),
            usage_seen: false,
            ended: None,
            done: false,
        }
    }

    fn check(mut self, frames: &[Frame]) -> Result<End, String> {
        for (at, frame) in frames.iter().enumerate() {
            self.frame(frame)
                .map_err(|wrong| format!("frame {at}: {wrong}"))?;
        }
        let done_due =
            self.ended == Some(End::Complete) || self.request.options["done_after_error"] == true;
        match self.ended {
            None => Err("the stream has no end".to_owned()),
            Some(_) if self.done != done_due => Err(format!("[DONE]: {}", self.done)),
            Some(end) => Ok(end),
        }
    }

    fn frame(&mut self, frame: &Frame) -> Result<(), String> {
        fail_if!(self.done, "after [DONE]");
        match frame {
            Frame::Done => {
                self.done = true;
                if self.ended.is_none() {
                    self.ended = Some(End::Complete);
                    let finished = self
                        .choices
                        .values()
                        .filter(|choice| choice.finished)
                        .count() as u64;
                    fail_if!(
                        finished != self.request.choices,
                        "[DONE] after {finished} finishes"
                    );
                }
                Ok(())
            }
            _ if self.ended.is_some() => Err("after the error frame".to_owned()),
            Frame::Error(error) => {
                self.ended = Some(End::Failed);
                fail_if!(self.usage_seen, "an error after the usage frame");
                error_object(error, self.request.option("error_frame", "flat+nested"))
            }
            Frame::Chunk(chunk) => self.chunk(chunk),
        }
    }

    fn chunk(&mut self, chunk: &Value) -> Result<(), String> {
        let members = chunk.as_object().ok_or("not an object")?;
        let mut must = vec!["id", "object", "created", "model", "choices"];
        if self.request.usage {
            must.push("usage");
        }
        only(members, &must, &CHUNK_EXTRAS)?;
        let object = if self.request.api == Api::Chat {
            "chat.completion.chunk"
        } else {
            "text_completion"
        };
        fail_if!(chunk["object"] != object, "object {}", chunk["object"]);
        self.envelope(chunk)?;
        fail_if!(self.usage_seen, "a frame after the usage frame");
        let choices = chunk["choices"].as_array().ok_or("choices is not a list")?;
        match choices.as_slice() {
            [] => {
                self.usage_seen = true;
                usage(&chunk["usage"])?;
                let unfinished = self.choices.values().any(|choice| !choice.finished);
                if unfinished {
                    Err("usage before the last finish".to_owned())
                } else {
                    Ok(())
                }
            }
            [choice] => {
                let running = self.request.option("continuous_usage", "pass");
                fail_if!(
                    !chunk["usage"].is_null() && !running,
                    "usage on a frame that is not the usage frame"
                );
                let index = choice["index"].as_u64().ok_or("no index")?;
                fail_if!(
                    index >= self.request.choices,
                    "choice {index} was not requested"
                );
                logprobs(&choice["logprobs"], self.request)?;
                match self.request.api {
                    Api::Chat => self.chat(index, choice, !chunk["usage"].is_null()),
                    Api::Completions => self.completion(index, choice, !chunk["usage"].is_null()),
                    Api::Responses | Api::Messages => Err("a frame of another API".to_owned()),
                }
            }
            more => Err(format!("{} choices in one frame", more.len())),
        }
    }

    fn envelope(&mut self, chunk: &Value) -> Result<(), String> {
        let own = ["id", "created", "model"].map(|key| chunk[key].clone());
        let typed = own[0].is_string() && own[1].is_u64() && own[2].is_string();
        let first = self.envelope.get_or_insert_with(|| own.clone());
        fail_if!(!typed || own != *first, "the envelope changed: {own:?}");
        for (known, key) in self
            .late
            .iter_mut()
            .zip(["service_tier", "system_fingerprint"])
        {
            fail_if!(!known.is_null() && chunk[key] != *known, "`{key}` changed");
            *known = chunk[key].clone();
        }
        Ok(())
    }

    fn open(&mut self, index: u64) -> Result<&mut Progress, String> {
        match self.choices.get_mut(&index) {
            None => Err("no role frame".to_owned()),
            Some(choice) if choice.finished => {
                Err(format!("choice {index} goes on after its finish"))
            }
            Some(choice) => Ok(choice),
        }
    }

    /// Checks a chat frame. `counted` is true if it has a usage count for both its text and the finish, which are
    /// then adjacent.
    fn chat(&mut self, index: u64, choice: &Value, counted: bool) -> Result<(), String> {
        let may = CHOICE_EXTRAS;
        only(
            choice.as_object().unwrap(),
            &["index", "delta", "logprobs", "finish_reason"],
            &may,
        )?;
        let delta = choice["delta"].as_object().ok_or("no delta")?;
        if delta.contains_key("role") {
            return self.role(index, choice);
        }
        let stop_details = self.request.options["stop_details"] == true;
        let named_stops =
            self.request.named && self.request.option("named_tool_choice_finish", "openai");
        let field = &self.request.options["reasoning_field"];
        let both = field.is_null() || field == "both";
        let extensions = self.request.extensions;
        let state = self.open(index)?;
        let finishes = !choice["finish_reason"].is_null();
        fail_if!(
            !finishes && choice.get("stop_reason").is_some(),
            "stop_reason before the finish"
        );
        let keys: Vec<&str> = delta.keys().map(String::as_str).collect();
        match keys.as_slice() {
            [] if finishes => Ok(()),
            _ if finishes && !counted => Err("a delta on the finish frame".to_owned()),
            [] if choice["logprobs"].is_null() && !extensions => {
                Err("a frame that says nothing".to_owned())
            }
            [] => Ok(()),
            ["reasoning", "reasoning_content"]
                if both && delta["reasoning"] == delta["reasoning_content"] =>
            {
                text(&delta["reasoning"])
            }
            [key @ ("content" | "refusal")] => text(&delta[*key]),
            [key @ ("reasoning_content" | "reasoning")] if !both => text(&delta[*key]),
            ["tool_calls"] => tool_call(&delta["tool_calls"], &mut state.calls),
            ["function_call"] => Ok(()),
            keys => Err(format!("a delta with {keys:?}")),
        }?;
        if !finishes {
            return Ok(());
        }
        state.finished = true;
        let called = !state.calls.is_empty();
        let reason = reason(choice, stop_details, counted)?;
        let fits = match reason.as_str() {
            "tool_calls" => called,
            "stop" => !called || named_stops,
            _ => true,
        };
        if fits {
            Ok(())
        } else {
            Err(format!("finish {reason}: {choice}"))
        }
    }

    fn role(&mut self, index: u64, choice: &Value) -> Result<(), String> {
        fail_if!(
            self.choices.len() as u64 != index,
            "role frame of choice {index} after {}",
            self.choices.len()
        );
        self.choices.insert(index, Progress::default());
        let expected = match self.request.option("role_frame", "openai") {
            true => json!({"role": "assistant", "content": "", "refusal": null}),
            false => json!({"role": "assistant"}),
        };
        let bare = choice["delta"] == expected
            && choice["logprobs"].is_null()
            && choice["finish_reason"].is_null()
            && choice.as_object().unwrap().len() == 4;
        if bare {
            Ok(())
        } else {
            Err(format!("role frame {choice}"))
        }
    }

    fn completion(&mut self, index: u64, choice: &Value, counted: bool) -> Result<(), String> {
        let may = CHOICE_EXTRAS;
        only(
            choice.as_object().unwrap(),
            &["text", "index", "logprobs", "finish_reason"],
            &may,
        )?;
        let stop_details = self.request.options["stop_details"] == true;
        self.choices.entry(index).or_default();
        let state = self.open(index)?;
        if !choice["finish_reason"].is_null() {
            state.finished = true;
            reason(choice, stop_details, counted)?;
            let fits = counted || choice["text"] == "";
            return if fits {
                Ok(())
            } else {
                Err("text on the finish frame".to_owned())
            };
        }
        let may_be_empty = !choice["logprobs"].is_null() || self.request.extensions;
        if may_be_empty {
            Ok(())
        } else {
            text(&choice["text"])
        }
    }
}

fn text(value: &Value) -> Result<(), String> {
    match value.as_str() {
        Some("") | None => Err(format!("not a text: {value}")),
        Some(_) => Ok(()),
    }
}

fn reason(choice: &Value, stop_details: bool, counted: bool) -> Result<String, String> {
    let reason = choice["finish_reason"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    fail_if!(
        !REASONS.contains(&reason.as_str()),
        "finish_reason {}",
        choice["finish_reason"]
    );
    let bare = counted || choice["logprobs"].is_null();
    fail_if!(
        choice.get("stop_reason").is_some() != stop_details || !bare,
        "finish frame {choice}"
    );
    Ok(reason)
}

/// Checks one element of `tool_calls`: the header of the next call, or a fragment of a call that has its header.
fn tool_call(list: &Value, calls: &mut Vec<bool>) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{what}: {list}"));
    let [call] = list.as_array().map(Vec::as_slice).unwrap_or_default() else {
        return wrong("not one tool call");
    };
    let Some(index) = call["index"].as_u64() else {
        return wrong("no index");
    };
    let kind = call["type"].as_str();
    let expected = match kind {
        Some("custom") => {
            let custom = json!({"name": call["custom"]["name"], "input": ""});
            json!({"index": calls.len(), "id": call["id"], "type": "custom", "custom": custom})
        }
        Some(_) => {
            let function = json!({"name": call["function"]["name"], "arguments": ""});
            json!({"index": calls.len(), "id": call["id"], "type": "function", "function": function})
        }
        None => {
            let Some(custom) = usize::try_from(index)
                .ok()
                .and_then(|index| calls.get(index))
            else {
                return wrong("arguments before the header");
            };
            let (kind, key) = if *custom {
                ("custom", "input")
            } else {
                ("function", "arguments")
            };
            text(&call[kind][key])?;
            json!({"index": index, kind: {key: call[kind][key]}})
        }
    };
    if *call != expected {
        return wrong("not canonical");
    }
    if let Some(kind) = kind {
        calls.push(kind == "custom");
        text(&call["id"])?;
        text(&call[kind]["name"])?;
    }
    Ok(())
}

fn logprobs(value: &Value, request: &GrammarRequest) -> Result<(), String> {
    let Some(lists) = value.as_object() else {
        return if value.is_null() {
            Ok(())
        } else {
            Err("logprobs".to_owned())
        };
    };
    fail_if!(!request.logprobs, "logprobs without a request for them");
    if request.api == Api::Completions {
        return Ok(());
    }
    only(lists, &["content", "refusal"], &[])?;
    for entry in lists.values().filter_map(Value::as_array).flatten() {
        let entry = entry.as_object().ok_or("an entry that is not an object")?;
        only(entry, &["token", "logprob", "bytes", "top_logprobs"], &[])?;
    }
    Ok(())
}

fn usage(usage: &Value) -> Result<(), String> {
    let members = usage.as_object().ok_or("no usage on the usage frame")?;
    let must = [
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
    ];
    only(members, &must, &[])
}

/// Checks a whole object: every requested choice, in order, each with a finish reason.
fn whole(request: &GrammarRequest, body: &Value) -> Result<(), String> {
    let may: Vec<&str> = CHUNK_EXTRAS.into_iter().chain(["usage"]).collect();
    only(
        body.as_object().ok_or("not an object")?,
        &["id", "object", "created", "model", "choices"],
        &may,
    )?;
    if let Some(given) = body.get("usage") {
        usage(given)?;
    }
    let choices = body["choices"].as_array().ok_or("no choices")?;
    fail_if!(
        choices.len() as u64 != request.choices,
        "{} choices",
        choices.len()
    );
    for (at, choice) in choices.iter().enumerate() {
        let inner = if request.api == Api::Chat {
            "message"
        } else {
            "text"
        };
        let must = ["index", inner, "logprobs", "finish_reason"];
        only(choice.as_object().ok_or("a choice")?, &must, &CHOICE_EXTRAS)?;
        let finished = choice["finish_reason"]
            .as_str()
            .is_some_and(|reason| REASONS.contains(&reason));
        fail_if!(choice["index"] != at || !finished, "choice {at}: {choice}");
        logprobs(&choice["logprobs"], request)?;
        if request.api == Api::Chat {
            message(&choice["message"])?;
        }
    }
    Ok(())
}

fn message(message: &Value) -> Result<(), String> {
    let may = [
        "reasoning_content",
        "reasoning",
        "audio",
        "function_call",
        "tool_calls",
    ];
    only(
        message.as_object().ok_or("a message")?,
        &["role", "content", "refusal", "annotations"],
        &may,
    )?;
    let Some(calls) = message.get("tool_calls") else {
        return Ok(());
    };
    let calls = calls.as_array().ok_or("tool_calls")?;
    for call in calls {
        let kind = call["type"].as_str().unwrap_or_default();
        only(
            call.as_object().ok_or("a call")?,
            &["id", "type", kind],
            &[],
        )?;
        text(&call["id"])?;
        text(&call[kind]["name"])?;
    }
    if calls.is_empty() {
        Err("an empty list of calls".to_owned())
    } else {
        Ok(())
    }
}
