//! Answers for clients of Responses and Messages, from engines of each API.

use super::{Form, PIECE, arguments, begun_call, case, event, grow_evenly, of_chat};
use samewire::wire::Api;
use serde_json::{Value, json};

const CLIENTS: [(Api, &str); 2] = [(Api::Responses, "Responses"), (Api::Messages, "Messages")];

fn tools(client: Api) -> Value {
    let schema = json!({"type": "object"});
    match client {
        Api::Responses => json!([{"type": "function", "name": "f", "parameters": schema}]),
        _ => json!([{"name": "f", "input_schema": schema}]),
    }
}

/// Returns forms of an engine of Chat Completions for a client, streamed or whole.
fn from_chat((client, name): (Api, &str), stream: bool) -> Vec<Form> {
    let form = |what: &str, request: Value, before: &[Value], delta: fn(usize) -> Value| {
        let mut request = request;
        request["stream"] = stream.into();
        let case = case(client, Api::Chat, "vllm", &request, json!({}));
        let how = if stream { "" } else { ", whole" };
        of_chat(&format!("{name}: {what}{how}"), case, before, delta)
    };
    let with_tools = json!({"tools": tools(client)});
    let calls = [
        begun_call(0, "f"),
        begun_call(1, "f"),
        begun_call(2, "f"),
        begun_call(3, "f"),
    ];
    let text = |_| json!({"content": PIECE});
    vec![
        form("content", json!({}), &[], text),
        form(
            "reasoning",
            json!({}),
            &[],
            |_| json!({"reasoning_content": PIECE}),
        ),
        form("refusal", json!({}), &[], |_| json!({"refusal": PIECE})),
        form(
            "a call",
            with_tools.clone(),
            &[begun_call(0, "f")],
            |at| match at {
                0 => arguments(0, "{\"text\":\""),
                _ => arguments(0, PIECE),
            },
        ),
        form("calls in turns", with_tools, &calls, |at| match at {
            0..4 => arguments(at, "{\"text\":\""),
            _ => arguments(at % 4, PIECE),
        }),
    ]
}

#[test]
fn engines_of_chat() {
    grow_evenly(
        CLIENTS
            .into_iter()
            .flat_map(|client| from_chat(client, true))
            .collect(),
    );
}

#[test]
fn whole_answers() {
    grow_evenly(
        CLIENTS
            .into_iter()
            .flat_map(|client| from_chat(client, false))
            .collect(),
    );
}

#[test]
fn custom_tools() {
    let request = json!({"tools": [{"type": "custom", "name": "f"}]});
    let case = case(Api::Responses, Api::Chat, "vllm", &request, json!({}));
    let mut form = of_chat(
        "Responses: a custom tool",
        case,
        &[begun_call(0, "f")],
        |at| match at {
            0 => arguments(0, "{\"input\":\""),
            _ => arguments(0, PIECE),
        },
    );
    form.after.insert(0, super::chunk(&arguments(0, "\"}")));
    grow_evenly(vec![Form {
        shows: "custom_tool_call",
        ..form
    }]);
}

/// Returns a form of an engine of Responses, whose only item has these events.
fn of_responses(name: &str, item: Value, delta: impl Fn(usize) -> Value + 'static) -> Form {
    let response = |status: &str| json!({"id": "resp_1", "object": "response", "created_at": 5, "model": "m", "status": status, "output": []});
    let request = json!({"tools": tools(Api::Responses)});
    let case = case(Api::Responses, Api::Responses, "vllm", &request, json!({}));
    Form {
        before: vec![
            event(&json!({"type": "response.created", "response": response("in_progress")})),
            event(&json!({"type": "response.output_item.added", "output_index": 0, "item": item})),
        ],
        delta: Box::new(move |at| event(&delta(at))),
        after: vec![event(
            &json!({"type": "response.completed", "response": response("completed")}),
        )],
        ..of_chat(name, case, &[], |_| json!({}))
    }
}

#[test]
fn engines_of_responses() {
    let text = |kind: &'static str| move |_| json!({"type": kind, "item_id": "i_1", "output_index": 0, "content_index": 0, "delta": PIECE});
    let message = json!({"id": "i_1", "type": "message", "role": "assistant", "content": []});
    let reasoning = json!({"id": "i_1", "type": "reasoning", "summary": [], "content": []});
    let call = json!({"id": "i_1", "type": "function_call", "call_id": "c_1", "name": "f", "arguments": ""});
    let many = of_responses(
        "Responses of an engine: many items",
        reasoning.clone(),
        |at| {
            let (kind, id) = ("response.output_item.done", format!("i_{at}"));
            let content = json!([{"type": "output_text", "text": PIECE, "annotations": []}]);
            json!({"type": kind, "item": {"id": id, "type": "message", "role": "assistant", "content": content}})
        },
    );
    grow_evenly(vec![
        of_responses(
            "Responses of an engine: text",
            message,
            text("response.output_text.delta"),
        ),
        of_responses(
            "Responses of an engine: reasoning",
            reasoning,
            text("response.reasoning_text.delta"),
        ),
        of_responses(
            "Responses of an engine: a call",
            call,
            text("response.function_call_arguments.delta"),
        ),
        Form {
            deltas: 128,
            ..many
        },
    ]);
}

/// Returns a form of an engine of Messages, whose only block has these deltas.
fn of_messages(name: &str, block: Value, delta: Value) -> Form {
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
        "usage": {"input_tokens": 1, "output_tokens": 1}});
    let request = json!({"tools": tools(Api::Messages)});
    let case = case(Api::Messages, Api::Messages, "vllm", &request, json!({}));
    let ends = [
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}),
        json!({"type": "message_stop"}),
    ];
    Form {
        before: vec![
            event(&json!({"type": "message_start", "message": message})),
            event(&json!({"type": "content_block_start", "index": 0, "content_block": block})),
        ],
        delta: Box::new(move |_| {
            event(&json!({"type": "content_block_delta", "index": 0, "delta": delta}))
        }),
        after: ends.iter().map(event).collect(),
        ..of_chat(name, case, &[], |_| json!({}))
    }
}

#[test]
fn engines_of_messages() {
    grow_evenly(vec![
        of_messages(
            "Messages of an engine: text",
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": PIECE}),
        ),
        of_messages(
            "Messages of an engine: thinking",
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            json!({"type": "thinking_delta", "thinking": PIECE}),
        ),
        of_messages(
            "Messages of an engine: a call",
            json!({"type": "tool_use", "id": "c_1", "name": "f", "input": {}}),
            json!({"type": "input_json_delta", "partial_json": PIECE}),
        ),
    ]);
}
