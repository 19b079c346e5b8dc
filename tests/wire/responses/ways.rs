//! The same model answer from an engine as Chat Completions, and as Responses in the shapes of several engines: the
//! client cannot tell the difference.

use crate::cases::{Answer, Case, Cut, response_vectors};
use crate::events::fold;
use crate::seeded::seeded;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use samewire::wire::Api;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Model answer in pieces, independent of the API and of the engine.
#[derive(Clone, Debug)]
struct ModelAnswer {
    thoughts: Vec<String>,
    text: Vec<String>,
    calls: Vec<Vec<String>>,
    /// True if the token limit cut the text.
    cut: bool,
}

/// Engine whose shape of Responses is used (engines D).
#[derive(Clone, Copy, Debug, PartialEq)]
enum EngineShape {
    /// Shape of the published API.
    Plain,
    /// vLLM 0.21: bare ids, other ones at the end, its own part event, running content indices.
    Vllm21,
    /// vLLM 0.33.
    Vllm33,
    /// SGLang with gpt-oss: one id for all items, `done` under the next index, calls only at the end.
    SglangHarmony,
    /// SGLang 0.5.12: everything at the end.
    Sglang12,
}

const STREAMED: [EngineShape; 3] = [EngineShape::Plain, EngineShape::Vllm21, EngineShape::Vllm33];

impl ModelAnswer {
    fn arguments(call: &[String]) -> String {
        call.concat()
    }

    fn finish(&self) -> &'static str {
        match (self.cut, self.calls.is_empty()) {
            (true, _) => "length",
            (false, true) => "stop",
            (false, false) => "tool_calls",
        }
    }

    fn chat(&self) -> String {
        let chunk = |delta: Value, finish: Value| {
            json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 5, "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        };
        let mut chunks = vec![chunk(
            json!({"role": "assistant", "content": ""}),
            Value::Null,
        )];
        chunks.extend(
            self.thoughts
                .iter()
                .map(|text| chunk(json!({"reasoning": text}), Value::Null)),
        );
        chunks.extend(
            self.text
                .iter()
                .map(|text| chunk(json!({"content": text}), Value::Null)),
        );
        for (at, call) in self.calls.iter().enumerate() {
            let header = json!([{"index": at, "id": format!("call_{at}"), "type": "function",
                "function": {"name": format!("f{at}"), "arguments": ""}}]);
            chunks.push(chunk(json!({"tool_calls": header}), Value::Null));
            for piece in call {
                let piece = json!([{"index": at, "function": {"arguments": piece}}]);
                chunks.push(chunk(json!({"tool_calls": piece}), Value::Null));
            }
        }
        chunks.push(chunk(json!({}), json!(self.finish())));
        chunks.push(json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 5, "model": "m",
            "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16,
                "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}}));
        chunks
            .iter()
            .map(|chunk| format!("data: {chunk}\n\n"))
            .collect::<String>()
            + "data: [DONE]\n\n"
    }

    fn chat_whole(&self) -> String {
        let calls = self.calls.iter().enumerate().map(|(at, call)| {
            json!({"id": format!("call_{at}"), "type": "function",
                "function": {"name": format!("f{at}"), "arguments": Self::arguments(call)}})
        });
        let message = json!({"role": "assistant", "reasoning": self.thoughts.concat(),
            "content": self.text.concat(), "tool_calls": calls.collect::<Vec<_>>()});
        json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 5, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish()}]})
        .to_string()
    }

    /// Returns the items of the final object.
    fn output(&self, teller: EngineShape) -> Vec<Value> {
        let mut output = Vec::new();
        let id = |at: usize| {
            if teller == EngineShape::Plain {
                format!("i{at}")
            } else {
                format!("late{at}")
            }
        };
        if !self.thoughts.is_empty() {
            output.push(json!({"id": id(0), "type": "reasoning", "summary": [], "encrypted_content": null,
                "content": [{"type": "reasoning_text", "text": self.thoughts.concat()}], "status": null}));
        }
        if !self.text.is_empty() {
            let status = if self.cut { "incomplete" } else { "completed" };
            output.push(json!({"id": id(1), "type": "message", "role": "assistant", "status": status, "phase": null,
                "content": [{"type": "output_text", "text": self.text.concat(), "annotations": [], "logprobs": null}]}));
        }
        for (at, call) in self.calls.iter().enumerate() {
            output.push(json!({"id": id(2 + at), "type": "function_call", "call_id": format!("call_{at}"),
                "name": format!("f{at}"), "arguments": Self::arguments(call), "status": "completed"}));
        }
        output
    }

    fn object(&self, teller: EngineShape, status: &str) -> Value {
        let over = status != "in_progress";
        let reason = json!({"reason": "max_output_tokens"});
        json!({"id": "resp_1", "object": "response", "created_at": 5, "model": "m", "status": status,
            "incomplete_details": if status == "incomplete" { reason } else { Value::Null },
            "output": if over { self.output(teller) } else { Vec::new() },
            "input_messages": null, "kv_transfer_params": null, "temperature": 0.01,
            "usage": if over { json!({"input_tokens": 7, "output_tokens": 9, "total_tokens": 16,
                "input_tokens_details": {"cached_tokens": 4, "input_tokens_per_turn": []},
                "output_tokens_details": {"reasoning_tokens": 2, "tool_output_tokens": 0}}) } else { Value::Null }})
    }

    fn native(&self, teller: EngineShape) -> String {
        let mut out = NativeEvents {
            teller,
            events: Vec::new(),
            items: 0,
            parts: 0,
        };
        for kind in ["created", "in_progress"] {
            out.say(
                kind,
                json!({"response": self.object(teller, "in_progress")}),
            );
        }
        if teller != EngineShape::Sglang12 {
            out.texts("reasoning", &self.thoughts, false);
            out.texts("message", &self.text, self.cut);
        }
        if STREAMED.contains(&teller) {
            for (at, call) in self.calls.iter().enumerate() {
                out.call(at, call);
            }
        }
        let (kind, status) = match (self.cut, teller) {
            (false, _) => ("completed", "completed"),
            (true, EngineShape::Vllm21) => ("completed", "incomplete"),
            (true, _) => ("incomplete", "incomplete"),
        };
        out.say(kind, json!({"response": self.object(teller, status)}));
        out.events.concat()
    }
}

/// Events of an engine that gets Responses requests, in its own shape.
struct NativeEvents {
    teller: EngineShape,
    events: Vec<String>,
    items: usize,
    parts: usize,
}

impl NativeEvents {
    fn say(&mut self, kind: &str, mut more: Value) {
        let kind = format!("response.{kind}");
        more["type"] = json!(kind);
        more["sequence_number"] = json!(self.events.len());
        self.events.push(format!("event: {kind}\ndata: {more}\n\n"));
    }

    /// Returns the index with which the engine ends an item.
    fn done_index(&self, at: usize) -> usize {
        if self.teller == EngineShape::SglangHarmony {
            at + 1
        } else {
            at
        }
    }

    fn id(&self) -> String {
        if self.teller == EngineShape::SglangHarmony {
            "item_0".to_owned()
        } else {
            format!("{:032x}", self.items)
        }
    }

    fn texts(&mut self, kind: &str, pieces: &[String], cut: bool) {
        if pieces.is_empty() {
            return;
        }
        let (at, id, whole) = (self.items, self.id(), pieces.concat());
        let part = if self.teller == EngineShape::Vllm21 {
            self.parts
        } else {
            0
        };
        self.items += 1;
        self.parts += 1;
        let thinks = kind == "reasoning";
        let stem = if thinks {
            "reasoning_text"
        } else {
            "output_text"
        };
        let part_stem = if thinks && self.teller == EngineShape::Vllm21 {
            "reasoning_part"
        } else {
            "content_part"
        };
        let part_kind = if thinks && self.teller != EngineShape::SglangHarmony {
            "reasoning_text"
        } else {
            "output_text"
        };
        let item = |status: &str, content: Value| json!({"id": id, "type": kind, "role": "assistant", "status": status, "summary": [], "content": content});
        let place = json!({"item_id": id, "output_index": at, "content_index": part});
        let with = |more: Value| {
            let mut all = place.clone();
            all.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            all
        };
        self.say(
            "output_item.added",
            json!({"output_index": at, "item": item("in_progress", json!([]))}),
        );
        let empty = json!({"type": part_kind, "text": ""});
        self.say(&format!("{part_stem}.added"), with(json!({"part": empty})));
        for piece in pieces {
            self.say(
                &format!("{stem}.delta"),
                with(json!({"delta": piece, "logprobs": []})),
            );
        }
        let done = json!({"output_index": self.done_index(at)});
        let ends = |mut event: Value| {
            event["output_index"] = done["output_index"].clone();
            event
        };
        self.say(&format!("{stem}.done"), ends(with(json!({"text": whole}))));
        let full = json!({"type": part_kind, "text": whole});
        self.say(
            &format!("{part_stem}.done"),
            ends(with(json!({"part": full}))),
        );
        let status = if cut && self.teller != EngineShape::Vllm21 {
            "incomplete"
        } else {
            "completed"
        };
        let content =
            json!([{"type": if thinks { "reasoning_text" } else { "output_text" }, "text": whole}]);
        self.say(
            "output_item.done",
            ends(json!({"item": item(status, content)})),
        );
    }

    fn call(&mut self, at: usize, pieces: &[String]) {
        let (index, id) = (self.items, self.id());
        self.items += 1;
        let item = |arguments: &str, status: &str| {
            json!({"id": id, "type": "function_call", "call_id": format!("call_{at}"), "name": format!("f{at}"),
                "arguments": arguments, "status": status})
        };
        self.say(
            "output_item.added",
            json!({"output_index": index, "item": item("", "in_progress")}),
        );
        let place =
            |key: &str, text: &str| json!({"item_id": id, "output_index": index, key: text});
        for piece in pieces {
            self.say("function_call_arguments.delta", place("delta", piece));
        }
        let all = pieces.concat();
        self.say("function_call_arguments.done", place("arguments", &all));
        let mut done = item(&all, "completed");
        if self.teller == EngineShape::Vllm33 {
            // vLLM 0.33 repeats keys of the event inside the item.
            done["output_index"] = json!(index);
            done["sequence_number"] = json!(-1);
        }
        self.say(
            "output_item.done",
            json!({"output_index": index, "item": done}),
        );
    }
}

fn case(input: String, upstream: Api, stream: bool, events: bool) -> Case {
    static BASE: LazyLock<Case> = LazyLock::new(|| response_vectors().remove(0).0);
    let request = json!({"model": "m", "stream": stream});
    let case = Case {
        input: input.into_bytes(),
        request,
        events,
        options: json!({}),
        ..BASE.clone()
    };
    case.upstream_of(upstream)
}

fn run(input: String, upstream: Api, stream: bool, events: bool) -> Answer {
    let answer = case(input, upstream, stream, events)
        .unparsed()
        .run(&Cut::Whole);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer
}

/// Returns the stream that this engine's answer should become. vLLM up to 0.32 marks an item cut by the limit as
/// completed (fixtures/vllm/responses-length), and when it is sent it is not yet known to be the last one. The
/// response itself is incomplete in either case.
fn as_engine_sends(teller: EngineShape, body: &str) -> String {
    match teller {
        EngineShape::Vllm21 => body.replace(
            r#""status":"incomplete","role""#,
            r#""status":"completed","role""#,
        ),
        _ => body.to_owned(),
    }
}

fn said() -> impl Strategy<Value = ModelAnswer> {
    let words = || {
        select(vec![
            "a", " word", "\n\n", "é", "世界", "\"q\"", "\\", "</think>", "{",
        ])
        .prop_map(str::to_owned)
    };
    let call = select(vec![
        vec!["{}"],
        vec!["{\"city\":", "\"Bern\"}"],
        vec!["{\"a\":{\"b\":[1,2.50", ",\"}\"]},\"c\":null", "}"],
    ]);
    let call = call.prop_map(|pieces| pieces.into_iter().map(str::to_owned).collect::<Vec<_>>());
    (
        vec(words(), 0..4),
        vec(words(), 0..4),
        vec(call, 0..3),
        any::<bool>(),
    )
        .prop_map(|(thoughts, text, mut calls, cut)| {
            let cut = cut && !text.is_empty();
            if cut {
                calls.clear();
            }
            ModelAnswer {
                thoughts,
                text,
                calls,
                cut,
            }
        })
}

proptest! {
    #![proptest_config(seeded(1_000))]

    /// Answers that engines stream completely are the same to the byte.
    #[test]
    fn native_streams_equal_those_made_of_chat(said in said()) {
        let chat = run(said.chat(), Api::Chat, true, true);
        for teller in STREAMED {
            let native = run(said.native(teller), Api::Responses, true, true);
            prop_assert_eq!(as_engine_sends(teller, &chat.body), native.body, "{:?}", teller);
        }
    }

    /// Answers that engines send late, or at once, are the same when collected.
    #[test]
    fn collected_native_answers_equal_those_made_of_chat(said in said()) {
        let mut object = fold(&run(said.chat(), Api::Chat, true, true).body).unwrap();
        for teller in [EngineShape::SglangHarmony, EngineShape::Sglang12] {
            let native = fold(&run(said.native(teller), Api::Responses, true, true).body).unwrap();
            prop_assert_eq!(&object, &native, "{:?}", teller);
        }
        for teller in STREAMED {
            let collected = run(said.native(teller), Api::Responses, false, true);
            let chat = run(said.chat(), Api::Chat, false, true);
            prop_assert_eq!(as_engine_sends(teller, &chat.body), collected.body, "{:?}", teller);
            let status = if said.cut { "incomplete" } else { "completed" };
            let whole = run(said.object(teller, status).to_string(), Api::Responses, false, false);
            prop_assert_eq!(&object, &serde_json::from_str::<Value>(&whole.body).unwrap(), "{:?} whole", teller);
        }
        let whole = run(said.chat_whole(), Api::Chat, false, false);
        object["usage"] = Value::Null;
        prop_assert_eq!(&object, &serde_json::from_str::<Value>(&whole.body).unwrap(), "whole chat");
    }
}
