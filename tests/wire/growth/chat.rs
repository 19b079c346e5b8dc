//! Answers that the engine has parsed itself, for clients of Chat Completions.

use super::{
    DELTAS, FACTOR, Form, PIECE, arguments, begun_call, case, chunk, chunk_of, end, event,
    grow_evenly, of_chat,
};
use crate::cases::Case;
use samewire::wire::{AnswerId, AnswerReader, AnswerWriter, Api, OutputBuffer, Shape, Stamp};
use serde_json::{Value, json};
use std::sync::Arc;

fn chat(engine: &str, request: &Value) -> Case {
    case(Api::Chat, Api::Chat, engine, request, json!({}))
}

fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
}

#[test]
fn texts() {
    let plain = |name: &str, key: &'static str, request: Value| {
        of_chat(
            name,
            chat("vllm", &request),
            &[json!({"role": "assistant"})],
            move |_| json!({key: PIECE}),
        )
    };
    let with_escapes = of_chat(
        "escapes",
        chat("vllm", &json!({})),
        &[],
        |_| json!({"content": format!("{PIECE}\n\"é\u{1}")}),
    );
    let logprobs = Form {
        delta: Box::new(|_| {
            let token = json!({"token": PIECE, "logprob": -0.5, "bytes": [97], "top_logprobs": []});
            let choice =
                json!({"index": 0, "delta": {"content": PIECE}, "logprobs": {"content": [token]}});
            event(&json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]}))
        }),
        ..plain(
            "logprobs",
            "content",
            json!({"logprobs": true, "top_logprobs": 1}),
        )
    };
    let unknown = Form {
        delta: Box::new(|at| {
            let choice = json!({"index": 0, "delta": {"content": PIECE, "x": at}, "y": at});
            let key = format!("key_{at}");
            event(
                &json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice], key: at}),
            )
        }),
        ..plain("unknown fields", "content", json!({}))
    };
    grow_evenly(vec![
        plain("content", "content", json!({})),
        plain("reasoning", "reasoning_content", json!({})),
        plain("refusal", "refusal", json!({})),
        with_escapes,
        logprobs,
        unknown,
    ]);
}

#[test]
fn events_in_many_reads() {
    let (head, tail) = (
        "data: {\"id\":\"a\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"",
        "\"}}]}\n\n",
    );
    let one_line = Form {
        before: vec![head.to_owned()],
        delta: Box::new(|_| PIECE.to_owned()),
        after: [vec![tail.to_owned()], end("stop")].concat(),
        deltas: 4 * DELTAS,
        ..of_chat(
            "one event in many reads",
            chat("vllm", &json!({})),
            &[],
            |_| json!({}),
        )
    };
    let lines = Form {
        before: vec!["data: {\"id\":\"a\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"twenty four letters each\",\"x\":[0\n".to_owned()],
        delta: Box::new(|_| "data: ,1\ndata: ,2\n".to_owned()),
        after: [vec!["data: ]}}]}\n\n".to_owned()], end("stop")].concat(),
        ..of_chat("one event of many lines", chat("vllm", &json!({})), &[], |_| json!({}))
    };
    grow_evenly(vec![one_line, lines]);
}

#[test]
fn tool_calls() {
    let with_tool = json!({"tools": [tool("f")]});
    let piece = |at: usize| {
        if at == 0 {
            format!("{{\"text\":\"{PIECE}")
        } else {
            PIECE.to_owned()
        }
    };
    let one = |engine: &str| {
        of_chat(
            &format!("a call of {engine}"),
            chat(engine, &with_tool),
            &[begun_call(0, "f")],
            move |at| arguments(0, &piece(at)),
        )
    };
    let begun: Vec<_> = (0..8).map(|index| begun_call(index, "f")).collect();
    let in_turns = |engine: &str| {
        of_chat(
            &format!("calls in turns of {engine}"),
            chat(engine, &with_tool),
            &begun,
            move |at| arguments(at % 8, &piece(at / 8)),
        )
    };
    let unnamed = Form {
        after: [vec![chunk(&begun_call(0, "f"))], end("tool_calls")].concat(),
        ..of_chat(
            "arguments before the name",
            chat("vllm", &with_tool),
            &[],
            move |at| arguments(0, &piece(at)),
        )
    };
    let many = Form {
        deltas: 1_024 / FACTOR,
        shows: "call_7",
        // The id of each new call is compared with those of all others, of which there may be a thousand.
        bound: 14.0,
        ..of_chat("many calls", chat("vllm", &with_tool), &[], |at| {
            let mut call = begun_call(at, "f");
            call["tool_calls"][0]["function"]["arguments"] = "{}".into();
            call
        })
    };
    let custom = json!({"tools": [{"type": "custom", "custom": {"name": "f"}}]});
    let input = |at: usize| {
        if at == 0 {
            format!("{{\"input\":\"{PIECE}")
        } else {
            PIECE.to_owned()
        }
    };
    let custom = Form {
        after: [vec![chunk(&arguments(0, "\"}"))], end("tool_calls")].concat(),
        shows: "\"custom\"",
        ..of_chat(
            "a custom tool",
            chat("vllm", &custom),
            &[begun_call(0, "f")],
            move |at| arguments(0, &input(at)),
        )
    };
    let legacy = json!({"functions": [{"name": "f", "parameters": {"type": "object"}}]});
    let legacy = of_chat(
        "function_call",
        chat("vllm", &legacy),
        &[begun_call(0, "f")],
        move |at| arguments(0, &piece(at)),
    );
    grow_evenly(vec![
        one("vllm"),
        one("sglang"),
        one("generic"),
        in_turns("vllm"),
        in_turns("sglang"),
        unnamed,
        many,
        custom,
        legacy,
    ]);
}

/// Returns the end of a stream of eight choices.
fn ends() -> Vec<String> {
    let mut all: Vec<_> = (0..8)
        .map(|choice| chunk_of(choice, &json!({}), &"stop".into()))
        .collect();
    all.push("data: [DONE]\n\n".to_owned());
    all
}

#[test]
fn several_choices() {
    let request = json!({"n": 8, "tools": [tool("f")]});
    let content = Form {
        delta: Box::new(|at| chunk_of(at % 8, &json!({"content": PIECE}), &Value::Null)),
        after: ends(),
        ..of_chat("eight choices", chat("vllm", &request), &[], |_| json!({}))
    };
    let calls = Form {
        before: (0..8)
            .map(|choice| chunk_of(choice, &begun_call(0, "f"), &Value::Null))
            .collect(),
        delta: Box::new(|at| chunk_of(at % 8, &arguments(0, PIECE), &Value::Null)),
        after: ends(),
        ..of_chat(
            "calls of eight choices",
            chat("vllm", &request),
            &[],
            |_| json!({}),
        )
    };
    grow_evenly(vec![content, calls]);
}

#[test]
fn whole_answers_of_streams() {
    let whole = |name: &str, mut request: Value, before: &[Value], delta: fn(usize) -> Value| {
        request["stream"] = false.into();
        of_chat(name, chat("vllm", &request), before, delta)
    };
    let call = json!({"tools": [tool("f")]});
    let logprobs = Form {
        delta: Box::new(|_| {
            let token = json!({"token": PIECE, "logprob": -0.5, "bytes": [97], "top_logprobs": []});
            let choice = json!({"index": 0, "delta": {"content": PIECE}, "logprobs": {"content": [token]}, "token_ids": [1]});
            let key = "x";
            event(
                &json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice], key: 1}),
            )
        }),
        ..whole(
            "whole: logprobs",
            json!({"logprobs": true, "return_token_ids": true}),
            &[],
            |_| json!({}),
        )
    };
    let unknown = Form {
        delta: Box::new(|at| {
            let choice = json!({"index": 0, "delta": {"content": PIECE, format!("d_{at}"): at}, format!("c_{at}"): at});
            event(
                &json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice], format!("k_{at}"): at}),
            )
        }),
        ..whole("whole: unknown fields", json!({}), &[], |_| json!({}))
    };
    grow_evenly(vec![
        whole(
            "whole: content",
            json!({}),
            &[],
            |_| json!({"content": PIECE}),
        ),
        whole(
            "whole: reasoning",
            json!({}),
            &[],
            |_| json!({"reasoning_content": PIECE}),
        ),
        whole("whole: a call", call, &[begun_call(0, "f")], |_| {
            arguments(0, PIECE)
        }),
        logprobs,
        unknown,
    ]);
}

/// Checks an answer that is merged from one engine answer for each choice, read in turns.
#[test]
fn merged_choices() {
    let time = |deltas: usize| {
        let shape = Shape {
            choices: 8,
            ..Shape::new(Api::Chat, true, Arc::default())
        };
        let stamp = Stamp {
            id: AnswerId(u128::MAX),
            ..Stamp::default()
        };
        let mut writer = AnswerWriter::merging(&shape, &stamp);
        let mut readers: Vec<_> = (0..8)
            .map(|choice| AnswerReader::of_choice(choice, shape.clone(), stamp.clone()))
            .collect();
        let (read, mut out) = (chunk(&json!({"content": PIECE})), OutputBuffer::default());
        let start = super::processor_time();
        for at in 0..deltas {
            readers[at % 8].push(read.as_bytes(), &mut writer, &mut out);
            out.clear();
        }
        super::processor_time().saturating_sub(start)
    };
    let ratio = super::growth(time, DELTAS, super::BOUND);
    eprintln!("{ratio:>8.1} times for merged choices");
    assert!(ratio < super::BOUND, "{ratio}");
}
