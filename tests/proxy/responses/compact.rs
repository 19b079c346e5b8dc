//! Counting the tokens of an input, and compacting conversations (wire-format 4.1, 4.13).

use crate::responses::over_chat::object;
use crate::sim::prelude::*;

fn chat(content: &str, finish: &str) -> Script {
    let content = json!(content);
    Script::ok(format!(
        r#"{{"id":"c-1","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","reasoning":"hm","content":{content}}},"finish_reason":"{finish}"}}],"usage":{{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}}}"#
    ))
}

/// Starts an engine that counts one token for each message and tool, and writes a summary if the request wants one.
pub async fn engine() -> Engine {
    Engine::answering(|attempt: &Attempt| {
        let body = attempt.json();
        let messages = body["messages"].as_array().unwrap();
        if attempt.target == "/tokenize" {
            let count = messages.len() + body["tools"].as_array().map_or(0, Vec::len);
            return Script::ok(format!(
                r#"{{"count":{count},"max_model_len":2048,"tokens":[1],"token_strs":null}}"#
            ));
        }
        match messages.last().unwrap()["content"].as_str() {
            Some(text) if text.starts_with("Sum up") => chat(" They spoke of \"Bern\".\n", "stop"),
            _ => chat("fine", "stop"),
        }
    })
    .await
}

fn count(members: &str) -> Request {
    Request::post("/v1/responses/input_tokens", format!("{{{members}}}"))
}

fn compact(members: &str) -> Request {
    Request::post("/v1/responses/compact", format!("{{{members}}}"))
}

#[tokio::test]
async fn the_engine_counts_the_whole_chat() {
    let world = World::start(engine(), Setup::new()).await;
    let answer = world
        .request(&count(
            r#""model":"m","input":"a","instructions":"b","tools":[{"type":"function","name":"f"}]"#,
        ))
        .await
        .with_status(200);
    assert_eq!(
        answer.text(),
        r#"{"object":"response.input_tokens","input_tokens":3}"#
    );
    let first = object(
        &world
            .post("/v1/responses", r#"{"model":"m","input":"a"}"#)
            .await,
    );
    let more = format!(
        r#""model":"m","input":"b","previous_response_id":"{}""#,
        first["id"].as_str().unwrap()
    );
    assert_eq!(
        object(&world.request(&count(&more)).await)["input_tokens"],
        3
    );
    let attempts = world.engine.attempts();
    assert_eq!(
        [attempts[0].target.as_str(), attempts[2].target.as_str()],
        ["/tokenize"; 2]
    );
    // Azure's clients have a route for it, too.
    let azure = Request::post(
        "/openai/v1/responses/input_tokens",
        r#"{"model":"m","input":"a"}"#,
    );
    assert_eq!(object(&world.request(&azure).await)["input_tokens"], 1);
    for (body, param) in [
        (r#""model":5,"input":"a""#, "model"),
        (r#""model":"m""#, "input"),
        (r#""model":"m","input":3"#, "input"),
    ] {
        assert_eq!(
            world.request(&count(body)).await.with_status(400).json()["error"]["param"],
            param
        );
    }
    world.end().await;
}

#[tokio::test]
async fn an_engine_that_cannot_count_says_so() {
    let scripts = vec![
        Script::new().json("404 Not Found", r#"{"detail":"Not Found"}"#),
        // SGLang 0.5.12 counts only texts.
        Script::new().json(
            "400 Bad Request",
            r#"{"object":"error","message":"1 validation errors:\n  {'type': 'missing', 'loc': ('body', 'prompt'), 'msg': 'Field required'}","type":"Bad Request","param":null,"code":400}"#,
        ),
        // llama.cpp counts only texts too, and ignores a chat.
        Script::ok(r#"{"tokens":[]}"#),
        Script::ok("counted"),
        Script::new().json("400 Bad Request", r#"{"object":"error","message":"too many","type":"BadRequestError","param":null,"code":400}"#),
    ];
    let world = World::start(Engine::in_turn(scripts), Setup::new().allow_errors()).await;
    for (status, code) in [
        (501, Some("not_implemented")),
        (501, Some("not_implemented")),
        (501, Some("not_implemented")),
        (502, Some("upstream_invalid_response")),
        (400, None),
    ] {
        let answer = world.request(&count(r#""model":"m","input":"a""#)).await;
        assert_eq!(
            (answer.head.status, answer.fault().code.as_deref()),
            (status, code)
        );
    }
    world.end().await;
}

#[tokio::test]
async fn a_conversation_becomes_a_summary_that_goes_on() {
    let world = World::start(engine(), Setup::new()).await;
    let first = object(
        &world
            .post("/v1/responses", r#"{"model":"m","input":"Where is it?"}"#)
            .await,
    );
    let id = first["id"].as_str().unwrap();
    let input = r#"[{"role":"user","content":"In Bern? "},{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"yes"},{"role":"system","content":"s"},{"type":"message","role":"user","content":[{"type":"input_text","text":"And you?"},{"type":"input_image","image_url":"data:image/png;base64,eA=="}]}]"#;
    let answer = world
        .request(&compact(&format!(
            r#""model":"m","input":{input},"previous_response_id":"{id}","instructions":"Be brief.""#
        )))
        .await;
    let made = object(&answer);
    assert!(answer.text().starts_with(&format!(
        r#"{{"id":{},"object":"response.compaction","created_at":"#,
        made["id"]
    )));
    let output = made["output"].as_array().unwrap();
    assert_eq!(output[1], json!({"role": "user", "content": "In Bern? "}));
    assert_eq!(output[0]["content"][0]["text"], "Where is it?");
    assert_eq!(
        output[2]["content"][1]["image_url"],
        "data:image/png;base64,eA=="
    );
    assert_eq!(output.len(), 4);
    let sealed = output[3]["encrypted_content"].as_str().unwrap();
    assert!(
        sealed.starts_with("swc1.") && !answer.text().contains("They spoke"),
        "{sealed}"
    );
    assert_eq!(output[3]["type"], "compaction");
    assert!(output[3]["id"].as_str().unwrap().starts_with("cmp_"));
    assert_eq!(
        made["usage"],
        json!({"input_tokens":9,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":13})
    );
    // The engine got the whole conversation, with a low reasoning effort.
    let asked = world.engine.attempts()[1].json();
    let roles: Vec<_> = asked["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        [
            "system",
            "user",
            "assistant",
            "user",
            "assistant",
            "tool",
            "system",
            "user",
            "user"
        ]
    );
    assert_members(
        &asked,
        &json!({"reasoning_effort": "low", "stream": null, "tools": null}),
    );
    // The compacted items are the input of the next request, and of the next compaction.
    let next = format!(
        r#"{{"model":"m","input":[{}],"store":false}}"#,
        output
            .iter()
            .map(Value::to_string)
            .collect::<Vec<_>>()
            .join(",")
    );
    assert_eq!(
        object(&world.post("/v1/responses", next.clone()).await)["status"],
        "completed"
    );
    let sent = world.engine.attempts()[2].json();
    assert_eq!(
        sent["messages"][3],
        json!({"role": "system", "content": "They spoke of \"Bern\"."})
    );
    // No other tenant can decrypt the summary.
    let other = Request::post("/v1/responses", next)
        .without("authorization")
        .header("authorization", "Bearer other");
    assert_eq!(
        world.request(&other).await.fault().code.as_deref(),
        Some("invalid_encrypted_content")
    );
    let again = compact(&format!(
        r#""model":"m","input":[{},{{"role":"user","content":"x"}}]"#,
        output[3]
    ));
    let again = object(&world.request(&again).await);
    assert_eq!(again["output"].as_array().unwrap().len(), 2);
    // A compaction is not stored as a response.
    let get = Request::get(&format!("/v1/responses/{}", made["id"].as_str().unwrap()));
    assert_eq!(world.request(&get).await.head.status, 404);
    world.end().await;
}

#[tokio::test]
async fn invalid_requests_and_failed_summaries_are_errors() {
    let scripts = vec![
        chat("half a summ", "length"),
        chat(" \n", "stop"),
        Script::new().json("503 Service Unavailable", "{}"),
    ];
    let world = World::start(Engine::in_turn(scripts), Setup::new().allow_errors()).await;
    for (body, param) in [
        (r#""model":5,"input":"a""#, "model"),
        (r#""model":"m""#, "input"),
        (r#""model":"m","input":[]"#, "input"),
        (r#""model":"m","input":"a","stream":true"#, "stream"),
        (
            r#""model":"m","input":[{"type":"compaction","encrypted_content":"swc1.x.y"}]"#,
            "input[0].encrypted_content",
        ),
        (
            r#""model":"m","input":"a","previous_response_id":"resp_no""#,
            "previous_response_id",
        ),
    ] {
        let answer = world.request(&compact(body)).await;
        assert_eq!(answer.head.status, 400, "{body}: {}", answer.text());
        assert_eq!(answer.json()["error"]["param"], param);
    }
    // A truncated or empty summary is an error.
    for status in [502, 502, 503] {
        assert_eq!(
            world
                .request(&compact(r#""model":"m","input":"a""#))
                .await
                .head
                .status,
            status
        );
    }
    world.end().await;
}
