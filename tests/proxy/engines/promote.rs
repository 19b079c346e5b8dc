//! Answers that a parser classified completely as reasoning although the model did not think (`promote_reasoning`;
//! the captures `text-as-reasoning*` of both engines): converted to text where the whole answer is known, left
//! unchanged in streams.

use crate::responses::over_chat::{object, prompt};
use crate::sim::prelude::*;

const VLLM: &str = include_str!("../../../fixtures/vllm/text-as-reasoning-whole/upstream.json");
const SGLANG: &str = include_str!("../../../fixtures/sglang/text-as-reasoning-whole/upstream.json");
const VLLM_STREAM: &str = include_str!("../../../fixtures/vllm/text-as-reasoning/upstream.sse");
const SGLANG_STREAM: &str = include_str!("../../../fixtures/sglang/text-as-reasoning/upstream.sse");

const CONTINUED: &str = include_str!("../../../fixtures/sglang/continued-whole/upstream.json");
const CONTINUED_STREAM: &str = include_str!("../../../fixtures/sglang/continued/upstream.sse");

/// Starts samewire in front of an engine with this one answer.
async fn behind(answer: &str, promotes: bool) -> World {
    let setup = Setup::new().set(&format!("promote_reasoning={promotes}"));
    World::start_as(Script::ok(answer), "auto", setup).await
}

async fn streaming(events: &str, promotes: bool) -> World {
    let script = Script::new().head_sse().chunk(events).end();
    let setup = Setup::new().set(&format!("promote_reasoning={promotes}"));
    World::start_as(script, "auto", setup).await
}

/// Returns how often the rule was applied.
async fn times(world: &World) -> u64 {
    world
        .samewire
        .sum("samewire_rewrites_total", &["rule=\"reasoning_promoted\""])
        .await
}

#[tokio::test]
async fn a_whole_answer_that_is_all_reasoning_is_text_if_that_is_wanted() {
    for (answer, text) in [
        (VLLM, "Hello! How can I help you today?"),
        (SGLANG, "Hello! Two plus two is four."),
    ] {
        let world = behind(answer, true).await;
        let chat = object(&world.request(&Request::plain("")).await);
        let message = &chat["choices"][0]["message"];
        assert_eq!(
            (&message["content"], message.get("reasoning_content")),
            (&json!(text), None),
            "{chat}"
        );
        assert_eq!(chat["choices"][0]["finish_reason"], "stop");
        let response = object(&world.request(&prompt("m", "")).await);
        let output = response["output"].as_array().unwrap();
        assert_eq!(
            (output.len(), &output[0]["type"]),
            (1, &json!("message")),
            "{response}"
        );
        assert_eq!(output[0]["content"][0]["text"], text);
        let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
        assert_eq!(
            object(&world.get(&path).await)["output"],
            response["output"],
            "as stored"
        );
        // A client that wants a stream, from an engine that sends a whole answer.
        let events = world.stream("").await;
        assert!(
            events.text().contains(&format!(r#""content":"{text}""#)),
            "{}",
            events.text()
        );
        assert_eq!(times(&world).await, 3);
        world.end().await;
        // Unchanged unless the option is set.
        let world = behind(answer, false).await;
        let chat = object(&world.request(&Request::plain("")).await);
        let message = &chat["choices"][0]["message"];
        assert_members(
            message,
            &json!({"content": null, "reasoning_content": text}),
        );
        assert_eq!(times(&world).await, 0);
        world.end().await;
    }
}

/// JSON is text without the option if the request wants it (clients-023), unless the option forbids it.
#[tokio::test]
async fn json_that_was_asked_for_is_text() {
    let whole = |reasoning: &str| {
        json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [
            {"index": 0, "message": {"role": "assistant", "content": null, "reasoning": reasoning}, "finish_reason": "stop"}]})
        .to_string()
    };
    let schema = r#"{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}}"#;
    let chat = |format: &str| {
        let more = format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"a"}}],"include_reasoning":false{format}}}"#
        );
        Request::chat(more)
    };
    let asked = format!(r#","response_format":{schema}"#);
    let response = prompt(
        "m",
        r#","text":{"format":{"type":"json_schema","name":"x","schema":{"type":"object"}}}"#,
    );
    for (reasoning, format, option, text) in [
        (
            r#"{"answer": 42}"#,
            asked.as_str(),
            "",
            json!(r#"{"answer": 42}"#),
        ),
        (r#"{"answer": 42}"#, "", "", Value::Null),
        ("I think", asked.as_str(), "", Value::Null),
        (
            r#"{"answer": 42}"#,
            asked.as_str(),
            "promote_reasoning=false",
            Value::Null,
        ),
    ] {
        let setup = if option.is_empty() {
            Setup::new()
        } else {
            Setup::new().set(option)
        };
        let world = World::start(Script::ok(whole(reasoning)), setup).await;
        let answer = object(&world.request(&chat(format)).await);
        assert_eq!(answer["choices"][0]["message"]["content"], text, "{answer}");
        let output = object(&world.request(&response).await)["output"].clone();
        let is_text = text.is_string() || format.is_empty();
        assert_eq!(
            output[0]["type"],
            if is_text { "message" } else { "reasoning" },
            "{output}"
        );
        world.end().await;
    }
}

/// An engine that parsed nothing, with a template that opens a reasoning block: samewire's own parser makes the
/// classification.
#[tokio::test]
async fn what_our_own_parser_would_file_is_text_too() {
    for (promotes, kind) in [(true, "message"), (false, "reasoning")] {
        let setup = Setup::new()
            .set(&format!("promote_reasoning={promotes}"))
            .set("parser=deepseek_r1");
        let world = World::start(Script::completion("Hello!"), setup).await;
        let chat = object(&world.request(&Request::plain("")).await);
        let (is_said, is_filed) = (
            "/choices/0/message/content",
            "/choices/0/message/reasoning_content",
        );
        let there = if promotes { is_said } else { is_filed };
        assert_eq!(chat.pointer(there), Some(&json!("Hello!")), "{chat}");
        let response = object(&world.request(&prompt("m", "")).await);
        assert_eq!(response["output"][0]["type"], kind, "{response}");
        assert_eq!(times(&world).await, if promotes { 2 } else { 0 });
        world.end().await;
    }
}

/// Promoted text is kept even if reasoning is hidden from clients.
#[tokio::test]
async fn what_is_text_is_not_hidden_with_the_reasoning() {
    let setup = Setup::new()
        .set("promote_reasoning=true")
        .set("reasoning_field=none");
    let chat =
        object(&World::answer_as(Script::ok(VLLM), "auto", setup, &Request::plain("")).await);
    assert_eq!(
        chat["choices"][0]["message"]["content"],
        "Hello! How can I help you today?"
    );
}

/// Truncated reasoning, and answers with other content, are not promoted.
#[tokio::test]
async fn nothing_else_is_taken_for_text() {
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut answer: Value = serde_json::from_str(SGLANG).unwrap();
        change(&mut answer["choices"][0]);
        answer.to_string()
    };
    let call =
        json!([{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    for answer in [
        changed(&|choice| choice["finish_reason"] = json!("length")),
        changed(&|choice| choice["finish_reason"] = json!("content_filter")),
        changed(&|choice| choice["finish_reason"] = json!("tool_calls")),
        changed(&|choice| choice["finish_reason"] = json!("ran_out_of_words")),
        changed(&|choice| choice["message"]["tool_calls"] = call.clone()),
        changed(&|choice| {
            choice["message"]["function_call"] = json!({"name": "f", "arguments": "{}"})
        }),
        changed(&|choice| choice["message"]["content"] = json!("4")),
        changed(&|choice| choice["message"]["refusal"] = json!("No.")),
        changed(&|choice| choice["message"]["audio"] = json!({"id": "a"})),
    ] {
        let mut said = Vec::new();
        for promotes in [true, false] {
            let world = behind(&answer, promotes).await;
            let answer = world.request(&Request::plain("")).await;
            said.push(object(&answer)["choices"].clone());
            world.end().await;
        }
        assert_eq!(said[0], said[1], "{answer}");
        assert!(
            said[0][0]["message"]["reasoning_content"].is_string(),
            "{}",
            said[0]
        );
    }
}

/// The reasoning of a stream has already been sent when its end shows that it was text: it is neither repeated nor
/// held back.
#[tokio::test]
async fn a_stream_stays_as_it_comes() {
    for events in [VLLM_STREAM, SGLANG_STREAM] {
        let mut said = Vec::new();
        for promotes in [true, false] {
            let world = streaming(events, promotes).await;
            let chat = world.stream("").await;
            assert!(chat.text().contains("reasoning_content") && chat.text().contains("[DONE]"));
            said.push(chat.text().to_owned());
            assert_eq!(times(&world).await, 0);
            world.end().await;
        }
        assert_eq!(said[0], said[1]);
    }
}

/// An engine that gets Responses requests itself (the capture `resp-plain` of vLLM).
#[tokio::test]
async fn an_engines_own_response_is_read_the_same() {
    let reasoning = |content: &str| {
        json!({"id": "rs_9a7a6c8ee62e5a44", "summary": [], "type": "reasoning",
        "content": [{"text": content, "type": "reasoning_text"}], "encrypted_content": null, "status": null})
    };
    let answer = |status: &str, output: Value| {
        json!({"id": "resp_89f77e40ea2d9ccf", "created_at": 1_795_236_427, "model": "m", "object": "response",
            "status": status, "incomplete_details": null, "output": output,
            "usage": {"input_tokens": 13, "output_tokens": 10, "total_tokens": 23}})
        .to_string()
    };
    let plain = reasoning("Hello! How can I help you today?");
    let sealed = {
        let mut sealed = plain.clone();
        sealed["encrypted_content"] = json!("opaque");
        sealed
    };
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "4", "annotations": []}]});
    for (answer, kinds) in [
        (answer("completed", json!([plain])), &["message"][..]),
        (answer("incomplete", json!([plain])), &["reasoning"]),
        (answer("completed", json!([sealed])), &["reasoning"]),
        (
            answer("completed", json!([plain, message])),
            &["reasoning", "message"],
        ),
    ] {
        let setup = Setup::new()
            .set("promote_reasoning=true")
            .upstream_keys("responses = \"native\"");
        let response = object(&World::answer(Script::ok(&answer), setup, &prompt("m", "")).await);
        let output = response["output"].as_array().unwrap();
        let found: Vec<_> = output
            .iter()
            .map(|item| item["type"].as_str().unwrap())
            .collect();
        assert_eq!(found, kinds, "{response}");
        if kinds == ["message"] {
            assert_eq!(
                output[0]["content"][0]["text"],
                "Hello! How can I help you today?"
            );
        }
    }
}

/// What continues the text of a prefilled message is text. SGLang's parser takes the beginning of its answer for
/// thinking, and samewire has it continue.
#[tokio::test]
async fn what_continues_a_text_is_text() {
    let engine = Engine::answering(|attempt| match attempt.text().contains("\"stream\":true") {
        true => Script::new().head_sse().chunk(CONTINUED_STREAM).end(),
        false => Script::ok(CONTINUED),
    });
    let world = World::start_as(engine.await, "sglang", Setup::new()).await;
    let body = |prefill: &str, more: &str| {
        let messages = json!([{"role": "user", "content": "think"}, {"role": "assistant", "content": prefill}]);
        format!(r#"{{"model":"tiny-qwen3","max_tokens":30,"messages":{messages}{more}}}"#)
    };
    let chat =
        |prefill: &str, more: &str| Request::post("/v1/chat/completions", body(prefill, more));
    let whole = object(&world.request(&chat("The answer", "")).await);
    let expected =
        json!({"role": "assistant", "content": " is 4.", "refusal": null, "annotations": []});
    assert_eq!(whole["choices"][0]["message"], expected);
    let streamed = world
        .request(&chat("The answer", r#","stream":true"#))
        .await;
    let text = streamed.text();
    assert!(
        text.contains(r#""delta":{"content":" is"}"#) && !text.contains("reasoning"),
        "{text}"
    );
    let own = world
        .request(&chat(
            "The answer",
            r#","stream":true,"continue_final_message":true"#,
        ))
        .await;
    assert!(
        own.text().contains(r#""delta":{"content":" is"}"#),
        "{}",
        own.text()
    );
    let message = object(&world.post("/v1/messages", body("The answer", "")).await);
    assert_eq!(
        message["content"],
        json!([{"type": "text", "text": " is 4."}])
    );
    let events = world
        .post("/v1/messages", body("The answer", r#","stream":true"#))
        .await;
    let events = events.text();
    assert!(
        events.contains(r#""type":"text_delta","text":" is""#) && !events.contains("thinking"),
        "{events}"
    );
    // Thinking that is begun is continued as such.
    for more in ["", r#","continue_final_message":true"#] {
        let whole = object(
            &world
                .request(&chat("<think>\nLet me see. The answer", more))
                .await,
        );
        assert_eq!(
            whole["choices"][0]["message"]["reasoning_content"], " is 4.",
            "{whole}"
        );
    }
    world.end().await;
}
