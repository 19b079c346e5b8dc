//! Parts of a request that no engine can use: left out and told of, or refused, as the operator wants.

use crate::messages::{count, engine, fault, message, object, post, sent, stream, streamed};
use crate::sim::prelude::*;

const SERVER_TOOLS: &str = r#","tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"f","input_schema":{"type":"object"}},{"type":"code_execution_20250825","name":"code_execution"}]"#;

/// Text by which Claude Code reports its version, which differs in each request.
const BILLING: &str = "x-anthropic-billing-header: cc_version=2.1.330.572; cc_entrypoint=sdk-cli;";

fn talk(content: Value) -> Request {
    let body =
        json!({"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": content}]});
    post(body.to_string())
}

#[tokio::test]
async fn tools_of_the_service_are_left_out_and_named() {
    let world = World::start(engine(), Setup::new()).await;
    let named = "tools[0].web_search_20250305, tools[2].code_execution_20250825";
    for request in [message(SERVER_TOOLS), stream(SERVER_TOOLS)] {
        let answer = world.request(&request).await.with_status(200);
        assert_eq!(answer.head.header("x-samewire-dropped"), Some(named));
        let tools = sent(&world.engine, world.engine.attempt_count() - 1)["tools"].clone();
        assert_eq!(
            tools,
            json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])
        );
    }
    let servers = r#","mcp_servers":[{"type":"url","url":"https://example.com/mcp","name":"x"}],"container":"c1","context_management":{"edits":[]}"#;
    let answer = world.request(&stream(servers)).await;
    assert_eq!(streamed(&answer)["stop_reason"], "end_turn");
    let told = answer.head.header("x-samewire-dropped").expect("told");
    for part in ["context_management", "container", "mcp_servers[0]"] {
        assert!(told.split(", ").any(|one| one == part), "{told}");
    }
    let plain = world.request(&message("")).await;
    assert_eq!(plain.head.header("x-samewire-dropped"), None);
    let many = vec![r#"{"type":"web_search_20250305","name":"w"}"#; 900].join(",");
    let answer = world
        .request(&message(&format!(r#","tools":[{many}]"#)))
        .await;
    let told = answer.head.header("x-samewire-dropped").expect("told");
    assert!(
        told.len() <= 4096 && told.ends_with("..."),
        "clients take heads of 16 KiB: {}",
        told.len()
    );
    world.end().await;
}

#[tokio::test]
async fn tools_of_the_service_are_refused_where_the_operator_wants_it() {
    let world = World::start(engine(), Setup::new().set("unsupported_tools=reject")).await;
    for request in [message(SERVER_TOOLS), stream(SERVER_TOOLS)] {
        let told = fault(&world.request(&request).await);
        assert_eq!(
            (told.status, told.kind.as_str()),
            (400, "invalid_request_error")
        );
        assert!(
            told.message.starts_with("tools.0") && told.message.contains("web_search"),
            "{told:?}"
        );
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn content_that_no_engine_reads_is_refused_or_left_out() {
    let pdf = json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}});
    let content = json!([{"type": "text", "text": PROMPT}, pdf, {"type": "container_upload", "file_id": "f"}]);
    let world = World::start(engine(), Setup::new()).await;
    for request in [talk(content.clone()), count(&talk(content.clone()))] {
        let told = fault(&world.request(&request).await);
        assert_eq!(
            (told.status, told.kind.as_str()),
            (400, "invalid_request_error")
        );
        assert!(
            told.message
                .starts_with("messages.0.content.1.source.type: "),
            "{told:?}"
        );
        assert!(
            told.message.contains(r#"unsupported_content = "drop""#),
            "{told:?}"
        );
    }
    world.end_after(0).await;
    let world = World::start(engine(), Setup::new().set("unsupported_content=drop")).await;
    let answer = world.request(&talk(content)).await;
    assert_eq!(object(&answer)["stop_reason"], "end_turn");
    let told = answer.head.header("x-samewire-dropped");
    assert_eq!(
        told,
        Some("messages.0.content.1.document, messages.0.content.2.container_upload")
    );
    assert_eq!(
        sent(&world.engine, 0)["messages"],
        json!([{"role": "user", "content": PROMPT}])
    );
    // A message of which nothing is left, and blocks inside of a tool's result.
    let history = json!([
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [pdf, {"type": "text", "text": "y"}]}]},
    ]);
    let body = json!({"model": "m", "max_tokens": 64, "messages": history});
    let answer = world.request(&post(body.to_string())).await;
    assert_eq!(
        answer.head.header("x-samewire-dropped"),
        Some("messages.2.content.0.content.0.document"),
        "{}",
        answer.text()
    );
    assert_eq!(
        sent(&world.engine, 1)["messages"][2],
        json!({"role": "tool", "tool_call_id": "c1", "content": "y"})
    );
    world.end().await;
}

/// Text that changes with each request would spoil the engine's prefix cache.
#[tokio::test]
async fn billing_text_is_left_out_and_counted() {
    let system = |text: &str| {
        format!(
            r#","system":[{{"type":"text","text":"{text}"}},{{"type":"text","text":"Be brief."}}]"#
        )
    };
    for (mode, option, is_kept) in [
        ("chat", "drop", false),
        ("chat", "keep", true),
        ("native", "drop", false),
        ("native", "keep", true),
    ] {
        let setup = Setup::new()
            .set(&format!("billing_block={option}"))
            .allow_errors();
        let setup = setup.upstream_keys(&format!("messages = \"{mode}\""));
        let world = World::start(engine(), setup).await;
        world.request(&message(&system(BILLING))).await;
        world
            .request(&message(&system(&BILLING.replace("572", "573"))))
            .await;
        world.request(&message(&system("You are an agent."))).await;
        let attempts = world.engine.attempts();
        let has = |n: usize| attempts[n].text().contains("x-anthropic-billing-header");
        assert_eq!(
            [has(0), has(1), has(2)],
            [is_kept, is_kept, false],
            "{mode} {option}"
        );
        assert_eq!(
            attempts[0].body == attempts[1].body,
            !is_kept,
            "{mode} {option}"
        );
        let body = sent(&world.engine, 0);
        let system = if mode == "chat" {
            &body["messages"][0]["content"]
        } else {
            &body["system"]
        };
        assert!(system.to_string().contains("Be brief."), "{body}");
        let dropped = world
            .samewire
            .sum("samewire_rewrites_total", &["rule=\"billing_block\""])
            .await;
        assert_eq!(dropped, if is_kept { 0 } else { 2 }, "{mode} {option}");
        world.end().await;
    }
}

/// Fields that only steer Anthropic's own service are taken and change nothing.
#[tokio::test]
async fn fields_without_a_meaning_here_are_taken() {
    let world = World::start(engine(), Setup::new()).await;
    let more = r#","cache_control":{"type":"ephemeral"},"service_tier":"auto","inference_geo":"us","diagnostics":{},"speed":"fast","system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral","ttl":"1h"}}]"#;
    let answer = world.request(&message(more)).await;
    assert_eq!(object(&answer)["stop_reason"], "end_turn");
    assert_eq!(answer.head.header("x-samewire-dropped"), None);
    let body = sent(&world.engine, 0);
    let expected = json!({"model": "m", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}], "max_completion_tokens": 64});
    assert_eq!(body, expected);
    world.end().await;
}

/// Fields that the API does not name are the engine's, such as those of its sampling; the operator may refuse them.
#[tokio::test]
async fn unknown_fields_pass_unless_they_are_refused() {
    let more = r#","min_p":0.1,"chat_template_kwargs":{"enable_thinking":false},"repetition_penalty":null"#;
    let world = World::start(engine(), Setup::new()).await;
    object(&world.request(&message(more)).await);
    let body = sent(&world.engine, 0);
    assert_eq!(
        (
            &body["min_p"],
            &body["chat_template_kwargs"]["enable_thinking"]
        ),
        (&json!(0.1), &json!(false))
    );
    world.end().await;
    let world = World::start(engine(), Setup::new().set("request_unknown=reject")).await;
    let told = fault(&world.request(&message(more)).await);
    assert_eq!(
        told.name(),
        (400, "invalid_request_error", Some("unknown_parameter"))
    );
    assert!(told.message.contains("min_p"), "{told:?}");
    world.end_after(0).await;
}

/// Fields that engines and routers use among themselves are nobody's to send from outside.
#[tokio::test]
async fn fault_c33_internal_fields_are_refused() {
    for setup in [
        Setup::new(),
        Setup::new().upstream_keys("messages = \"native\""),
    ] {
        let world = World::start(engine(), setup).await;
        for request in [
            message(r#","kv_transfer_params":{"x":1}"#),
            stream(r#","bootstrap_host":"10.0.0.7""#),
        ] {
            let told = fault(&world.request(&request).await);
            assert_eq!(
                told.name(),
                (400, "invalid_request_error", Some("forbidden_parameter"))
            );
        }
        world.end_after(0).await;
    }
}
