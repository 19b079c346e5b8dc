//! Responses, stored ones included, conform to the published schema, except for named departures.

use crate::official::Schemas;
use crate::responses::over_chat::{TOOLS, ask, engine, events, last, object, prompt};
use crate::sim::prelude::*;

fn good(told: Result<(), String>) {
    told.unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Returns one of every item that a client can send, with the items it depends on.
fn every_item() -> Value {
    json!([
        {"role": "user", "content": "hello"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be brief"}]},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "see"},
            {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"}]},
        {"role": "assistant", "content": "hm"},
        {"type": "message", "id": "msg_own", "role": "assistant", "status": "completed", "content": [
            {"type": "output_text", "text": "yes", "annotations": [], "logprobs": []}]},
        {"type": "reasoning", "id": "rs_own", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
        {"type": "function_call", "call_id": "call_a", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_a", "output": "rain"},
        {"type": "custom_tool_call", "call_id": "call_b", "name": "patch", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "call_b", "output": "done"},
        {"type": "function_call", "call_id": "call_c", "namespace": "crm", "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_c", "output": [{"type": "input_text", "text": "Ada"}]},
    ])
}

#[tokio::test]
async fn what_is_made_and_stored() {
    let mut schemas = Schemas::load();
    let world = World::start(engine(), Setup::new()).await;
    let tools = TOOLS.replace(r#""name":"crm""#, r#""name":"crm","description":"d""#);
    for model in ["text", "reason", "tools", "limit"] {
        for more in ["", r#","stream":true"#] {
            let body = format!(
                r#""model":"{model}","input":{},{tools}{more}"#,
                every_item()
            );
            let answer = world.request(&ask(&body)).await;
            let made = if more.is_empty() {
                object(&answer)
            } else {
                let events = events(&answer);
                events.iter().for_each(|event| good(schemas.event(event)));
                last(&events).clone()
            };
            good(schemas.response(&made));
            let at = format!("/v1/responses/{}", made["id"].as_str().unwrap());
            good(schemas.response(&object(&world.get(&at).await)));
            let items = async |query: &str| {
                let items = Request::get(&format!("{at}/input_items{query}"));
                object(&world.request(&items).await)
            };
            let list = items("?order=asc").await;
            assert_eq!(
                list["data"].as_array().unwrap().len(),
                every_item().as_array().unwrap().len()
            );
            good(schemas.list("ResponseItemList", &list));
            let after = format!("?after={}", list["first_id"].as_str().unwrap());
            good(schemas.list("ResponseItemList", &items(&after).await));
        }
    }
    for departure in ["CustomToolCall status", "ResponseItemList first_id"] {
        assert!(
            schemas.met.contains(departure),
            "nothing shows {departure}: {:?}",
            schemas.met
        );
    }
    world.end().await;
}

#[tokio::test]
async fn what_is_refused() {
    let mut schemas = Schemas::load();
    let world = World::start(engine(), Setup::new()).await;
    for request in [
        Request::get("/v1/responses/resp_none"),
        Request::new("DELETE", "/v1/responses/resp_none"),
        Request::get("/v1/responses/resp_none/input_items"),
        Request::post("/v1/responses/resp_none/cancel", ""),
        prompt("text", r#","previous_response_id":"resp_none""#),
        prompt("text", r#","temperature":"hot""#),
        ask(r#""input":5"#),
    ] {
        let answer = world.request(&request).await;
        assert!(answer.head.status >= 400, "{}", answer.text());
        good(schemas.check("ErrorResponse", &answer.json()));
    }
    world.end().await;
}

#[tokio::test]
async fn what_is_made_in_the_background() {
    let mut schemas = Schemas::load();
    let begun = || Script::stream().tok("a", 5, Duration::from_millis(5));
    let broken = Script::stream().tok("a", 3, Duration::ZERO).fin();
    let engine = Engine::in_turn(vec![begun().stop(), begun().hang(), broken]).await;
    let world = World::start(engine, Setup::new().allow_errors()).await;
    for (end, cancels) in [("completed", false), ("cancelled", true), ("failed", false)] {
        let made = object(&world.request(&prompt("m", r#","background":true"#)).await);
        good(schemas.response(&made));
        assert_eq!(made["status"], "queued");
        let at = format!("/v1/responses/{}", made["id"].as_str().unwrap());
        if cancels {
            good(schemas.response(&object(&world.post(&format!("{at}/cancel"), "").await)));
        }
        eventually(end, async || {
            let stored = object(&world.get(&at).await);
            good(schemas.response(&stored));
            stored["status"] == end
        })
        .await;
        let told = events(&world.get(&format!("{at}?stream=true")).await);
        assert_eq!(told[1]["type"], "response.queued");
        told.iter().for_each(|event| good(schemas.event(event)));
    }
    world.end().await;
}

/// Conversations, token counts and compacted conversations.
#[tokio::test]
async fn what_is_told_of_conversations() {
    let mut schemas = Schemas::load();
    let world = World::start(crate::responses::compact::engine(), Setup::new()).await;
    let post = async |path: &str, body: Value| object(&world.post(path, body.to_string()).await);
    let get = async |path: &str| object(&world.get(path).await);
    let items: Vec<_> = every_item().as_array().unwrap().clone();
    let made = post(
        "/v1/conversations",
        json!({"items": items[..6], "metadata": {"a": "b"}}),
    )
    .await;
    good(schemas.check("ConversationResource", &made));
    let path = format!("/v1/conversations/{}", made["id"].as_str().unwrap());
    good(schemas.list(
        "ConversationItemList",
        &post(&format!("{path}/items"), json!({"items": items[6..]})).await,
    ));
    good(schemas.check(
        "ConversationResource",
        &post(&path, json!({"metadata": {}})).await,
    ));
    good(schemas.check("ConversationResource", &get(&path).await));
    let list = get(&format!("{path}/items?order=asc")).await;
    assert_eq!(list["data"].as_array().unwrap().len(), items.len());
    good(schemas.list("ConversationItemList", &list));
    let made = post(
        "/v1/responses",
        json!({"model": "m", "input": "x", "conversation": made["id"]}),
    )
    .await;
    good(schemas.response(&made));
    let item = format!("{path}/items/{}", list["first_id"].as_str().unwrap());
    good(schemas.check("ConversationItem", &get(&item).await));
    let kept = object(&world.request(&Request::new("DELETE", &item)).await);
    good(schemas.check("ConversationResource", &kept));
    let gone = object(&world.request(&Request::new("DELETE", &path)).await);
    good(schemas.check("DeletedConversationResource", &gone));
    let input = json!({"model": "m", "input": items});
    good(schemas.check(
        "TokenCountsResource",
        &post("/v1/responses/input_tokens", input).await,
    ));
    // Items of the client stay as it wrote them (4.13): here in the form in which the API lists them.
    let listed = json!({"model": "m", "input": list["data"]});
    good(schemas.check(
        "CompactResource",
        &post("/v1/responses/compact", listed).await,
    ));
    world.end().await;
}
