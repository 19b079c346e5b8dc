//! Reports of users as small requests and answers (`fixtures/clients.json`), each with the request that the engine must
//! get and the answer that the client must get.
//!
//! A case without a request is about the answer alone: each of the three APIs requests it, streamed if the engine's
//! answer is.

use crate::messages::told as message;
use crate::responses::over_chat::{events, last};
use crate::sim::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value, json};

const REPORTS: &str = include_str!("../../../fixtures/clients.json");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reports {
    cases: Vec<Case>,
    /// Inputs that another test has.
    elsewhere: Vec<Elsewhere>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Elsewhere {
    name: String,
    kind: String,
    file: String,
    test: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    kind: String,
    /// Requests, each to its own samewire; empty: one through each API.
    #[serde(default)]
    asks: Vec<Ask>,
    /// Tools that the requests through each API offer.
    #[serde(default)]
    tools: Vec<String>,
    /// Answers of the engine in turn, the last one for all that follow; none: it says "ok".
    #[serde(default)]
    answers: Vec<EngineAnswer>,
    /// For each attempt, values of the engine's request by their pointer; null: it is not there.
    #[serde(default)]
    sent: Vec<Map<String, Value>>,
    #[serde(default = "ok")]
    status: u16,
    /// Expected answer; see [`Told`]. None: "ok".
    told: Option<Told>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    path: String,
    body: Value,
}

/// Answer of the engine: events or a whole body; neither: "ok".
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct EngineAnswer {
    #[serde(default = "ok")]
    status: u16,
    body: Option<Value>,
    /// A text is the data of an event; an object has the delta of a chunk, and its finish.
    events: Option<Vec<Value>>,
}

fn ok() -> u16 {
    200
}

/// Answer in terms of no API.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
struct Told {
    content: String,
    reasoning: String,
    /// `id`, `name` and `arguments` of each call; `input` of a custom tool's.
    calls: Vec<Value>,
    /// The word of chat.
    finish: Option<String>,
    /// Tokens of the prompt and of the answer.
    usage: Option<[u64; 2]>,
    error: Option<ToldError>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct ToldError {
    code: String,
    /// Part of the message.
    message: String,
}

impl EngineAnswer {
    fn script(&self, attempt: &Attempt) -> Script {
        if let Some(events) = &self.events {
            let event = |script: Script, event: &Value| match event.as_str() {
                Some(data) => script.ev(data),
                None => script.delta(&event["delta"].to_string(), &event["finish"].to_string()),
            };
            return events.iter().fold(Script::new().head_sse(), event).end();
        }
        if let Some(body) = &self.body {
            return Script::new().json(&format!("{} Told", self.status), &body.to_string());
        }
        if attempt.text().contains(r#""stream":true"#) {
            return Script::stream()
                .text("ok")
                .finish("stop")
                .usage(3, 1)
                .done()
                .end();
        }
        let whole = json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}});
        Script::ok(whole)
    }
}

impl Case {
    /// Returns the requests: those of the case, or one through each API.
    fn asks(&self) -> Vec<(String, Value)> {
        if !self.asks.is_empty() {
            return self
                .asks
                .iter()
                .map(|ask| (ask.path.clone(), ask.body.clone()))
                .collect();
        }
        let stream = self.answers.iter().any(|answer| answer.events.is_some());
        let schema = json!({"type": "object"});
        let tools =
            |tool: &dyn Fn(&String) -> Value| self.tools.iter().map(tool).collect::<Vec<_>>();
        let messages = json!([{"role": "user", "content": "hi"}]);
        let mut chat = json!({"model": "m", "messages": messages, "stream": stream,
            "tools": tools(&|name| json!({"type": "function", "function": {"name": name, "parameters": schema}}))});
        if stream {
            chat["stream_options"] = json!({"include_usage": true});
        }
        let response = json!({"model": "m", "input": "hi", "stream": stream,
            "tools": tools(&|name| json!({"type": "function", "name": name, "parameters": schema}))});
        let message = json!({"model": "m", "max_tokens": 64, "messages": messages, "stream": stream,
            "thinking": {"type": "adaptive"},
            "tools": tools(&|name| json!({"name": name, "input_schema": schema}))});
        [
            ("/v1/chat/completions", chat),
            ("/v1/responses", response),
            ("/v1/messages", message),
        ]
        .map(|(path, body)| (path.to_owned(), body))
        .into()
    }

    async fn check(&self, path: &str, body: &Value) {
        let what = format!("{} ({}), {path}", self.name, self.kind);
        let answers = self.answers.clone();
        let said = EngineAnswer {
            status: 200,
            body: None,
            events: None,
        };
        let count = AtomicUsize::new(0);
        let engine = Engine::answering(move |attempt: &Attempt| {
            let at = count.fetch_add(1, Ordering::Relaxed);
            answers
                .get(at)
                .or_else(|| answers.last())
                .unwrap_or(&said)
                .script(attempt)
        });
        let setup = match self.told.as_ref().is_some_and(|told| told.error.is_some()) {
            true => Setup::new().allow_errors(),
            false => Setup::new(),
        };
        let world = World::start(engine.await, setup).await;
        let request =
            Request::post(path, body.to_string()).header("anthropic-version", "2023-06-01");
        let answer = world.request(&request).await;
        assert_eq!(answer.head.status, self.status, "{what}: {}", answer.text());
        let mut told = Told::of(path, &answer);
        let said = Told {
            content: "ok".to_owned(),
            finish: Some("stop".to_owned()),
            usage: (body["stream"] != true).then_some([3, 1]),
            ..Told::default()
        };
        let expected = self.told.as_ref();
        // The words that count are a part of the message.
        let words = expected.and_then(|told| Some(told.error.as_ref()?.message.clone()));
        if let Some((error, words)) = told.error.as_mut().zip(words)
            && error.message.contains(&words)
        {
            error.message = words;
        }
        assert_eq!(
            &told,
            expected.unwrap_or(&said),
            "{what}: {}",
            answer.text()
        );
        let attempts = world.engine.attempts();
        assert_eq!(
            attempts.len(),
            self.sent.len().max(1),
            "{what}: {attempts:?}"
        );
        for (attempt, members) in attempts.iter().zip(&self.sent) {
            let sent = attempt.json();
            for (pointer, value) in members {
                assert_eq!(
                    sent.pointer(pointer).unwrap_or(&Value::Null),
                    value,
                    "{what}: {pointer} of {sent}"
                );
            }
        }
        world.end().await;
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the joined texts of a list's members, at this key.
fn joined<'a>(all: impl IntoIterator<Item = &'a Value>, key: &str) -> String {
    all.into_iter().map(|one| text(&one[key])).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns both counts; `None` where nothing was counted, which Messages tells as zeros.
fn usage(usage: &Value, [prompt, answer]: [&str; 2]) -> Option<[u64; 2]> {
    Some([usage[prompt].as_u64()?, usage[answer].as_u64()?]).filter(|counts| *counts != [0, 0])
}

impl Told {
    fn of(path: &str, answer: &Answer) -> Self {
        let is_whole = answer.text().starts_with('{');
        let whole = || answer.json();
        if answer.head.status >= 400 {
            return Self {
                error: Some(ToldError::of(&whole()["error"])),
                ..Self::default()
            };
        }
        match path {
            "/v1/responses" if is_whole => Self::of_response(&whole()),
            "/v1/responses" => {
                let events = events(answer);
                // The object's error has only codes that clients of the API know.
                let error = events
                    .iter()
                    .find(|event| event["type"] == "error")
                    .map(ToldError::of);
                let told = Self {
                    error,
                    ..Self::of_response(last(&events))
                };
                let is_done =
                    |event: &&Value| event["type"] == "response.function_call_arguments.done";
                let done = events
                    .iter()
                    .filter(is_done)
                    .map(|event| &event["arguments"]);
                assert!(
                    done.eq(told.calls.iter().filter_map(|call| call.get("arguments"))),
                    "{events:#?}"
                );
                told
            }
            "/v1/messages" if is_whole => Self::of_message(&whole()),
            "/v1/messages" => {
                let folded = message(answer);
                let error = folded.error.map(|event| ToldError::of(&event["error"]));
                Self {
                    error,
                    ..Self::of_message(&folded.message)
                }
            }
            _ if is_whole => Self::of_chat(&[whole()]),
            _ => {
                let lines = answer
                    .text()
                    .lines()
                    .filter_map(|line| line.strip_prefix("data: "));
                let data = lines.filter(|data| *data != "[DONE]");
                let frames = data.map(|data| serde_json::from_str(data).expect("JSON"));
                Self::of_chat(&frames.collect::<Vec<_>>())
            }
        }
    }

    /// Reads a whole answer, or the frames of a stream.
    fn of_chat(frames: &[Value]) -> Self {
        let mut told = Self::default();
        for frame in frames {
            told.usage =
                usage(&frame["usage"], ["prompt_tokens", "completion_tokens"]).or(told.usage);
            if let Some(error) = frame.get("error") {
                told.error = Some(ToldError::of(error));
            }
            for choice in list(&frame["choices"]) {
                let said = choice.get("delta").unwrap_or_else(|| &choice["message"]);
                told.content += &text(&said["content"]);
                told.reasoning += &text(&said["reasoning_content"]);
                told.finish = choice["finish_reason"]
                    .as_str()
                    .map(ToOwned::to_owned)
                    .or(told.finish);
                for call in list(&said["tool_calls"]) {
                    let function = &call["function"];
                    // Frames number the calls, a whole answer does not.
                    let index = call["index"]
                        .as_u64()
                        .and_then(|index| usize::try_from(index).ok());
                    match index.and_then(|index| told.calls.get_mut(index)) {
                        Some(begun) => {
                            let so_far = text(&begun["arguments"]);
                            begun["arguments"] = (so_far + &text(&function["arguments"])).into();
                        }
                        None => {
                            assert_eq!(call["type"], "function");
                            let (name, arguments) = (&function["name"], &function["arguments"]);
                            told.calls.push(
                                json!({"id": call["id"], "name": name, "arguments": arguments}),
                            );
                        }
                    }
                }
            }
        }
        told
    }

    fn of_response(response: &Value) -> Self {
        let mut told = Self::default();
        for item in list(&response["output"]) {
            match item["type"].as_str() {
                Some("message") => told.content += &joined(list(&item["content"]), "text"),
                Some("reasoning") => told.reasoning += &joined(list(&item["content"]), "text"),
                Some(kind) => {
                    let key = if kind == "custom_tool_call" {
                        "input"
                    } else {
                        "arguments"
                    };
                    told.calls
                        .push(json!({"id": item["call_id"], "name": item["name"], key: item[key]}));
                }
                None => panic!("an item without a type: {item}"),
            }
        }
        let finish = match response["status"].as_str() {
            Some("completed") if !told.calls.is_empty() => Some("tool_calls"),
            Some("completed") => Some("stop"),
            Some("incomplete") => Some("length"),
            _ => None,
        };
        told.finish = finish.map(ToOwned::to_owned);
        told.usage = usage(&response["usage"], ["input_tokens", "output_tokens"]);
        told.error = response["error"]
            .is_object()
            .then(|| ToldError::of(&response["error"]));
        told
    }

    fn of_message(message: &Value) -> Self {
        let blocks = list(&message["content"]);
        let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
        let call = |call: &Value| json!({"id": call["id"], "name": call["name"], "arguments": call["input"].to_string()});
        let finish = match message["stop_reason"].as_str() {
            Some("end_turn") => Some("stop"),
            Some("tool_use") => Some("tool_calls"),
            Some("max_tokens") => Some("length"),
            _ => None,
        };
        Self {
            content: joined(blocks, "text"),
            reasoning: joined(blocks, "thinking"),
            calls: calls.map(call).collect(),
            finish: finish.map(ToOwned::to_owned),
            usage: usage(&message["usage"], ["input_tokens", "output_tokens"]),
            error: None,
        }
    }
}

impl ToldError {
    fn of(error: &Value) -> Self {
        let code = if error["code"].is_string() {
            &error["code"]
        } else {
            &error["details"]["error_code"]
        };
        Self {
            code: text(code),
            message: text(&error["message"]),
        }
    }
}

#[tokio::test]
async fn clients_get_what_reports_ask_for() {
    let reports: &Reports = Box::leak(Box::new(serde_json::from_str(REPORTS).expect("reports")));
    let mut failed = 0;
    for case in &reports.cases {
        for (path, body) in case.asks() {
            // A task for each, so that one failure does not hide the others.
            failed += usize::from(
                tokio::spawn(async move { case.check(&path, &body).await })
                    .await
                    .is_err(),
            );
        }
    }
    assert_eq!(failed, 0, "see above");
}

#[test]
fn reports_with_a_test_of_their_own_have_one() {
    let reports: Reports = serde_json::from_str(REPORTS).expect("reports");
    for Elsewhere {
        name,
        kind,
        file,
        test,
    } in &reports.elsewhere
    {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let has =
            std::fs::read_to_string(path).is_ok_and(|text| text.contains(&format!("fn {test}(")));
        assert!(has, "{name} ({kind}): {file} has no {test}");
    }
}
