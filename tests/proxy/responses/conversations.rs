//! Conversations: their routes, and responses that belong to one.

use super::background::ended;
use crate::responses::over_chat::{
    TOOLS, ask, chunk, engine, event, events, last, object, scripted,
};
use crate::responses::stored::{id, messages, not_found, paged};
use crate::sim::prelude::*;

const CODE: Option<&str> = Some("invalid_value");

fn post(path: &str, body: &Value) -> Request {
    Request::post(path, body.to_string())
}

/// Creates a conversation with these items and returns its path.
async fn create_conversation(world: &World, items: Value) -> String {
    let made = object(
        &world
            .request(&post("/v1/conversations", &json!({"items":items})))
            .await,
    );
    format!("/v1/conversations/{}", id(&made))
}

fn user(text: &str) -> Value {
    json!({"role":"user","content":text})
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

/// Lists all items, oldest first.
async fn items(world: &World, path: &str) -> Vec<Value> {
    let listed = object(
        &world
            .get(&format!("{path}/items?order=asc&limit=100"))
            .await,
    );
    assert_eq!(listed["has_more"], false);
    listed["data"].as_array().unwrap().clone()
}

/// Returns a short form of each item.
fn short_forms(items: &[Value]) -> Vec<String> {
    let text = |item: &Value| match item["type"].as_str().unwrap() {
        "message" => format!(
            "{}: {}",
            item["role"].as_str().unwrap(),
            item["content"][0]["text"].as_str().unwrap().trim_end()
        ),
        kind => kind.to_owned(),
    };
    items.iter().map(text).collect()
}

/// Returns a request for a response in this conversation.
fn next(path: &str, model: &str, more: &str) -> Request {
    ask(&format!(
        r#""model":"{model}","conversation":"{}"{more}"#,
        name(path)
    ))
}

fn told(answer: &Answer) -> (u16, Option<String>, Option<String>) {
    let fault = answer.fault();
    (answer.head.status, fault.code, fault.param)
}

#[tokio::test]
async fn a_conversation_is_created_read_changed_and_deleted() {
    let world = World::start(engine(), Setup::new()).await;
    for (before, version) in [
        ("/v1", ""),
        ("/openai/v1", ""),
        ("/openai", "?api-version=2025-04-01-preview"),
    ] {
        let at = |path: &str| format!("{before}/conversations{path}{version}");
        let body = json!({"metadata":{"topic":"a b"},"items":[user(PROMPT)]});
        let answer = world.request(&post(&at(""), &body)).await;
        let made = object(&answer);
        let name = id(&made);
        let (created, shown) = (&made["created_at"], r#"{"topic":"a b"}"#);
        assert!(
            name.len() == 37
                && name.starts_with("conv_")
                && created.as_u64().unwrap() > 1_700_000_000
        );
        let whole = |metadata: &str| {
            format!(
                r#"{{"id":"{name}","object":"conversation","created_at":{created},"metadata":{metadata}}}"#
            )
        };
        assert_eq!(answer.text(), whole(shown));
        let one = at(&format!("/{name}"));
        assert_eq!(world.get(&one).await.text(), whole(shown));
        for (metadata, shown) in [
            (json!({"a":"b"}), r#"{"a":"b"}"#),
            (json!({}), "{}"),
            (Value::Null, "{}"),
        ] {
            assert_eq!(
                world
                    .request(&post(&one, &json!({"metadata":metadata})))
                    .await
                    .text(),
                whole(shown)
            );
            assert_eq!(world.get(&one).await.text(), whole(shown));
        }
        let deleted = world.request(&Request::new("DELETE", &one)).await;
        assert_eq!(
            deleted.text(),
            format!(r#"{{"id":"{name}","object":"conversation.deleted","deleted":true}}"#)
        );
        for gone in [
            Request::get(&one),
            Request::new("DELETE", &one),
            Request::get(&at(&format!("/{name}/items"))),
        ] {
            let answer = world.request(&gone).await;
            not_found(&answer);
            assert_eq!(
                answer.fault().message,
                format!("Conversation with id '{name}' not found.")
            );
        }
    }
    for body in ["", "{}", r#"{"items":[],"metadata":null}"#] {
        let empty = object(&world.post("/v1/conversations", body).await);
        assert_eq!(empty["metadata"], json!({}));
        let listed = world
            .get(&format!("/v1/conversations/{}/items", id(&empty)))
            .await;
        assert_eq!(
            listed.text(),
            r#"{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false}"#
        );
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn items_are_added_read_and_removed() {
    let world = World::start(engine(), Setup::new()).await;
    let path = create_conversation(&world, json!([user("first")])).await;
    let more = json!([
        {"type":"message","role":"assistant","content":"yes"},
        {"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"},
        {"type":"function_call_output","id":"mine","call_id":"call_1","output":[{"type":"input_text","text":"o"}]},
    ]);
    let added = object(
        &world
            .request(&post(&format!("{path}/items"), &json!({"items":more})))
            .await,
    );
    let data = added["data"].as_array().unwrap().clone();
    assert_eq!(
        [&added["object"], &added["has_more"]],
        [&json!("list"), &json!(false)]
    );
    assert_eq!(
        [&added["first_id"], &added["last_id"]],
        [&data[0]["id"], &json!("mine")]
    );
    let mut first = data[0].clone();
    let item = first["id"].take();
    assert!(item.as_str().unwrap().starts_with("msg_"));
    let content = json!([{"type":"output_text","text":"yes","annotations":[],"logprobs":[]}]);
    assert_eq!(
        first,
        json!({"id":null,"type":"message","status":"completed","role":"assistant","content":content})
    );
    assert_eq!(data[1]["status"], "completed");
    assert_eq!(items(&world, &path).await[1..], data);
    for item in &data {
        let at = format!("{path}/items/{}", id(item));
        assert_eq!(&object(&world.get(&at).await), item);
    }
    let again = json!({"items":[user("x"), {"type":"item_reference","id":"mine"}]});
    let refused = world.request(&post(&format!("{path}/items"), &again)).await;
    assert_eq!(
        told(&refused),
        (400, CODE.map(Into::into), Some("items[1].id".into()))
    );
    assert_eq!(items(&world, &path).await.len(), 4, "all or nothing");

    let at = format!("{path}/items/{}", item.as_str().unwrap());
    let left = object(&world.request(&Request::new("DELETE", &at)).await);
    assert_eq!(left, object(&world.get(&path).await));
    for gone in [Request::new("DELETE", &at), Request::get(&at)] {
        let answer = world.request(&gone).await;
        not_found(&answer);
        assert_eq!(
            answer.fault().message,
            format!("Item with id '{}' not found.", item.as_str().unwrap())
        );
    }
    assert_eq!(
        short_forms(&items(&world, &path).await),
        ["user: first", "function_call", "function_call_output"]
    );
    // Referenced items are copied.
    let other = create_conversation(&world, json!([{"type":"item_reference","id":"mine"}])).await;
    object(&world.request(&Request::new("DELETE", &path)).await);
    assert_eq!(items(&world, &other).await, data[2..]);
    world.end().await;
}

#[tokio::test]
async fn items_come_in_pages() {
    let world = World::start(engine(), Setup::new()).await;
    let path = create_conversation(&world, json!([])).await;
    let batch = |from: usize, to: usize| {
        (from..to)
            .map(|n| user(&format!("n{n}")))
            .collect::<Vec<_>>()
    };
    for (from, to) in [(0, 20), (20, 40), (40, 45)] {
        let body = json!({"items":batch(from, to)});
        object(&world.request(&post(&format!("{path}/items"), &body)).await);
    }
    let page = async |query: &str| object(&world.get(&format!("{path}/items{query}")).await);
    let texts = |page: &Value| short_forms(page["data"].as_array().unwrap());
    let names =
        |range: std::ops::Range<usize>| range.map(|n| format!("user: n{n}")).collect::<Vec<_>>();
    let first = page("").await;
    assert_eq!(
        texts(&first),
        names(25..45).into_iter().rev().collect::<Vec<_>>()
    );
    assert_eq!(
        (&first["has_more"], &first["first_id"]),
        (&json!(true), &first["data"][0]["id"])
    );
    for (order, expected) in [
        ("asc", names(0..45)),
        ("desc", names(0..45).into_iter().rev().collect()),
    ] {
        let list = format!("{path}/items?order={order}&include[]=message.output_text.logprobs");
        assert_eq!(short_forms(&paged(&world, &list).await.0), expected);
    }
    assert_eq!(
        page("?limit=100").await["data"].as_array().unwrap().len(),
        45
    );
    for (query, param) in [
        ("?limit=0", "limit"),
        ("?limit=101", "limit"),
        ("?order=up", "order"),
        ("?after=msg_none", "after"),
        ("?include=everything", "include[0]"),
        (
            "?include[]=reasoning.encrypted_content&include[]=x",
            "include[1]",
        ),
    ] {
        let answer = world.get(&format!("{path}/items{query}")).await;
        assert_eq!(
            told(&answer),
            (400, CODE.map(Into::into), Some(param.into())),
            "{query}"
        );
    }
    let one = world.get(&format!("{path}/items/x?include=y")).await;
    assert_eq!(told(&one).2.as_deref(), Some("include[0]"));
    world.end().await;
}

#[tokio::test]
async fn invalid_requests_name_the_parameter() {
    let world = World::start(engine(), Setup::new()).await;
    let path = create_conversation(&world, json!([])).await;
    let (new, added) = ("/v1/conversations".to_owned(), format!("{path}/items"));
    let many: Vec<_> = (0..21).map(|n| user(&n.to_string())).collect();
    let pairs: Value = (0..17)
        .map(|n| (format!("k{n}"), json!("v")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let missing = Some("missing_required_parameter");
    let wrong = [
        (&new, json!([]), Some("invalid_json"), None),
        (&new, json!({"metadata":"x"}), CODE, Some("metadata")),
        (&new, json!({"metadata":{"a":1}}), CODE, Some("metadata.a")),
        (&new, json!({"metadata":pairs}), CODE, Some("metadata")),
        (
            &new,
            json!({"metadata":{"k".repeat(65):"v"}}),
            CODE,
            Some("metadata"),
        ),
        (
            &new,
            json!({"metadata":{"k":"v".repeat(513)}}),
            CODE,
            Some("metadata.k"),
        ),
        (&new, json!({"items":"x"}), CODE, Some("items")),
        (&new, json!({"items":many}), CODE, Some("items")),
        (
            &new,
            json!({"items":[user("x"), {"content":"y"}]}),
            missing,
            Some("items[1].type"),
        ),
        (
            &new,
            json!({"items":[{"type":"item_reference","id":"msg_0"}]}),
            None,
            Some("items[0].id"),
        ),
        (&path, json!({}), missing, Some("metadata")),
        (
            &path,
            json!({"metadata":{"a":[]}}),
            CODE,
            Some("metadata.a"),
        ),
        (&added, json!({}), missing, Some("items")),
        (&added, json!({"items":many}), CODE, Some("items")),
        (
            &added,
            json!({"items":[user("x"), user("y"), user("z"), {"type":"magic"}]}),
            CODE,
            Some("items[3].type"),
        ),
        (
            &added,
            json!({"items":[{"role":"robot","content":"x"}]}),
            CODE,
            Some("items[0].role"),
        ),
        (
            &added,
            json!({"items":[{"role":"user","content":[{"type":"x"}]}]}),
            CODE,
            Some("items[0].content[0].type"),
        ),
        (
            &added,
            json!({"items":[{"type":"item_reference"}]}),
            missing,
            Some("items[0].id"),
        ),
    ];
    for (path, body, code, param) in wrong {
        let answer = world.request(&post(path, &body)).await;
        let status = if body.to_string().contains("msg_0") {
            404
        } else {
            400
        };
        let expected = (status, code.map(Into::into), param.map(Into::into));
        assert_eq!(told(&answer), expected, "{path} {body}: {}", answer.text());
    }
    let empty = world.post(&added, "").await;
    assert_eq!(told(&empty).1.as_deref(), Some("invalid_json"));
    for (method, target) in [
        ("GET", "/v1/conversations".to_owned()),
        ("PUT", path.clone()),
        ("DELETE", added.clone()),
        ("POST", format!("{added}/msg_0")),
    ] {
        assert_eq!(
            world
                .request(&Request::new(method, &target))
                .await
                .head
                .status,
            405,
            "{method} {target}"
        );
    }
    for target in [
        "/v1/conversations/",
        "/openai/deployments/text/conversations?api-version=2025-04-01-preview",
    ] {
        assert_eq!(
            world.post(target, "{}").await.fault().code.as_deref(),
            Some("unknown_url")
        );
    }
    assert!(items(&world, &path).await.is_empty());
    world.end().await;
}

#[tokio::test]
async fn fault_c32_what_is_not_yours_is_not_there() {
    let world = World::start(engine(), Setup::new()).await;
    let path = create_conversation(&world, json!([user("mine")])).await;
    let (mine, kept) = (name(&path), items(&world, &path).await);
    let item = id(&kept[0]);
    let routes = |name: &str, item: &str| {
        let path = format!("/v1/conversations/{name}");
        let text = |more: &str| ask(&format!(r#""model":"text",{more}"#));
        [
            Request::get(&path),
            Request::get(&format!("/openai/v1/conversations/{name}")),
            post(&path, &json!({"metadata":{}})),
            Request::new("DELETE", &path),
            Request::get(&format!("{path}/items")),
            Request::get(&format!("{path}/items?after={item}")),
            post(&format!("{path}/items"), &json!({"items":[user("x")]})),
            post(
                "/v1/conversations",
                &json!({"items":[{"type":"item_reference","id":item}]}),
            ),
            Request::get(&format!("{path}/items/{item}")),
            Request::new("DELETE", &format!("{path}/items/{item}")),
            text(&format!(r#""input":"x","conversation":"{name}""#)),
            text(&format!(
                r#""input":"x","background":true,"conversation":{{"id":"{name}"}}"#
            )),
            text(&format!(
                r#""input":[{{"type":"item_reference","id":"{item}"}}]"#
            )),
        ]
    };
    let never = ["conv_zzzzzz", "msg_zzzzzz"];
    for (theirs, nobodys) in routes(mine, item)
        .into_iter()
        .zip(routes(never[0], never[1]))
    {
        for key in [Some("Bearer other"), None] {
            let who = |request: Request| match key {
                Some(key) => request
                    .without("authorization")
                    .header("authorization", key),
                None => request.without("authorization"),
            };
            let theirs = world.request(&who(theirs.clone())).await;
            let nobodys = world.request(&who(nobodys.clone())).await;
            assert_eq!(
                (theirs.head.status, nobodys.head.status),
                (404, 404),
                "{}",
                theirs.text()
            );
            assert_eq!(
                theirs
                    .text()
                    .replace(mine, never[0])
                    .replace(item, never[1]),
                nobodys.text()
            );
        }
    }
    for name in [
        "..",
        "%2e%2e",
        "conv_1%00",
        "a%2Fitems",
        &"x".repeat(600),
        "%ff",
        "*",
    ] {
        assert_eq!(
            world
                .get(&format!("/v1/conversations/{name}"))
                .await
                .head
                .status,
            404,
            "{name}"
        );
    }
    // A response id is not a conversation id, and the reverse.
    let response = object(&world.request(&ask(r#""model":"text","input":"x""#)).await);
    not_found(
        &world
            .get(&format!("/v1/conversations/{}", id(&response)))
            .await,
    );
    not_found(&world.get(&format!("/v1/responses/{mine}")).await);
    assert_eq!(items(&world, &path).await, kept);
    world.end_after(1).await;
}

#[tokio::test]
async fn without_a_store_there_are_none() {
    let world = World::start(engine(), Setup::new().args(&["--store", "off"])).await;
    let refused = world.post("/v1/conversations", "{}").await;
    assert_eq!(refused.failure(), "400 invalid_request_error");
    for request in [
        Request::get("/v1/conversations/conv_1"),
        Request::new("DELETE", "/v1/conversations/conv_1"),
        Request::get("/v1/conversations/conv_1/items"),
        Request::get("/v1/conversations/conv_1/items/msg_1"),
        post(
            "/v1/conversations/conv_1/items",
            &json!({"items":[user("x")]}),
        ),
    ] {
        let answer = world.request(&request).await;
        not_found(&answer);
        assert_eq!(
            answer.fault().message,
            "Conversation with id 'conv_1' not found."
        );
    }
    for store in ["", r#","store":false"#] {
        let answer = world
            .request(&next("/conv_1", "text", &format!(r#","input":"x"{store}"#)))
            .await;
        let code = Some("unsupported_parameter".to_owned());
        assert_eq!(told(&answer), (400, code, Some("conversation".to_owned())));
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_o15_a_store_that_cannot_be_opened_is_not_pretended() {
    let folder = Folder::new();
    let place = format!("sqlite:{}", folder.path("store.db/missing").display());
    let world = World::start(engine(), Setup::new().args(&["--store", &place])).await;
    for request in [
        Request::post("/v1/conversations", "{}"),
        Request::get("/v1/conversations/conv_1"),
        Request::new("DELETE", "/v1/conversations/conv_1"),
        Request::get("/v1/conversations/conv_1/items"),
        post(
            "/v1/conversations/conv_1/items",
            &json!({"items":[user("x")]}),
        ),
        next("/conv_1", "text", r#","input":"x","store":false"#),
    ] {
        assert_eq!(
            world.request(&request).await.failure(),
            "503 server_error store_unavailable"
        );
    }
    world.end_after(0).await;
}

/// Whole, streamed, unstored and background responses: each turn sees all earlier ones, and is in the conversation
/// when it has ended.
#[tokio::test]
async fn responses_go_on_with_it() {
    let folder = Folder::new();
    for setup in [Setup::new(), Setup::stored(&folder)] {
        let world = World::start(engine(), setup).await;
        let path = create_conversation(
            &world,
            json!([{"role":"system","content":"be brief"}, user("hi")]),
        )
        .await;
        let named = json!({"id":name(&path)});
        let mut expected = vec!["system: be brief".to_owned(), "user: hi".to_owned()];
        for (n, more) in [
            "",
            r#","stream":true"#,
            r#","store":false"#,
            r#","background":true"#,
        ]
        .into_iter()
        .enumerate()
        {
            let request = next(&path, "text", &format!(r#","input":"turn {n}"{more}"#));
            let response = match more {
                r#","stream":true"# => {
                    let told = events(&world.request(&request).await);
                    let named = |event: &Value| event["response"]["conversation"] == named;
                    assert!(
                        told.iter()
                            .filter(|event| event["response"].is_object())
                            .all(named)
                    );
                    last(&told).clone()
                }
                r#","background":true"# => {
                    ended(world.proxy(), id(&object(&world.request(&request).await))).await
                }
                _ => object(&world.request(&request).await),
            };
            assert_eq!(
                (&response["status"], &response["conversation"]),
                (&json!("completed"), &named)
            );
            assert_eq!(response["store"], n != 2);
            let last_key = format!(
                r#""metadata":{{}},"conversation":{{"id":"{}"}}}}"#,
                name(&path)
            );
            if n != 2 {
                let stored = world.get(&format!("/v1/responses/{}", id(&response))).await;
                assert_eq!(object(&stored), response);
                assert!(stored.text().ends_with(&last_key), "{}", stored.text());
            }
            expected.extend([
                format!("user: turn {n}"),
                "assistant: Hello wörld".to_owned(),
            ]);
            let kept = items(&world, &path).await;
            assert_eq!(short_forms(&kept), expected);
            assert_eq!(kept.last().unwrap(), &response["output"][0]);
            let sent = messages(&world, n);
            let sent: Vec<_> = sent
                .as_array()
                .unwrap()
                .iter()
                .map(|message| {
                    format!(
                        "{}: {}",
                        message["role"].as_str().unwrap(),
                        message["content"].as_str().unwrap().trim_end()
                    )
                })
                .collect();
            // The last item is the model's answer.
            assert_eq!(sent, expected[..expected.len() - 1]);
        }
        world.end().await;
    }
}

/// Tool calls and their outputs are turns like others, as are reasoning, references, and requests without input.
#[tokio::test]
async fn tools_and_references_in_it() {
    let world = World::start(engine(), Setup::new()).await;
    let path = create_conversation(&world, json!([])).await;
    let nothing = world.request(&next(&path, "text", "")).await;
    assert_eq!(
        told(&nothing),
        (400, CODE.map(Into::into), Some("input".into()))
    );
    object(
        &world
            .request(&next(&path, "tools", &format!(r#","input":"go",{TOOLS}"#)))
            .await,
    );
    let early = format!(
        r#","input":[{{"type":"function_call_output","call_id":"call_9","output":"x"}}],{TOOLS}"#
    );
    let answer = world.request(&next(&path, "text", &early)).await;
    assert_eq!(told(&answer).2.as_deref(), Some("input[0].call_id"));
    let outputs = r#"[{"type":"function_call_output","call_id":"call_1","output":"rain"},{"type":"custom_tool_call_output","call_id":"call_2","output":"done"},{"type":"function_call_output","call_id":"call_3","output":"Ada"}]"#;
    let second = next(
        &path,
        "reason",
        &format!(r#","input":{outputs},"stream":true,{TOOLS}"#),
    );
    let second = last(&events(&world.request(&second).await)).clone();
    let sent = messages(&world, 1);
    let roles: Vec<_> = sent
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "tool"]);
    let item = second["output"][1]["id"].as_str().unwrap();
    let reference = format!(
        r#","input":[{{"type":"item_reference","id":"{item}"}},{{"role":"user","content":"?"}}]"#
    );
    object(&world.request(&next(&path, "text", &reference)).await);
    let sent = messages(&world, 2);
    assert_eq!(
        sent[5],
        json!({"role":"assistant","content":"Four.Four.","reasoning":"Two and two."})
    );
    assert_eq!(
        short_forms(&items(&world, &path).await),
        [
            "user: go",
            "reasoning",
            "assistant: Looking.",
            "function_call",
            "custom_tool_call",
            "function_call",
            "function_call_output",
            "custom_tool_call_output",
            "function_call_output",
            "reasoning",
            "assistant: Four.",
            "user: ?",
            "assistant: Hello wörld",
        ]
    );
    // Items added by clients need no further input.
    let body = json!({"items":[user("and?")]});
    object(&world.request(&post(&format!("{path}/items"), &body)).await);
    object(&world.request(&next(&path, "limit", "")).await);
    assert_eq!(
        short_forms(&items(&world, &path).await)[13..],
        ["user: and?", "assistant: Hel"],
        "incomplete, and said"
    );
    let excluded = world
        .request(&next(
            &path,
            "text",
            r#","previous_response_id":"resp_1","input":"x""#,
        ))
        .await;
    assert_eq!(
        told(&excluded),
        (
            400,
            CODE.map(Into::into),
            Some("previous_response_id".into())
        )
    );
    let unknown = world
        .request(&next("/conv_0", "text", r#","input":"x""#))
        .await;
    assert_eq!(told(&unknown), (404, None, Some("conversation".into())));
    assert_eq!(
        unknown.fault().message,
        "Conversation with id 'conv_0' not found."
    );
    world.end_after(4).await;
}

/// Outputs for all calls of the scene with tools.
const ALL: &str = r#"{"tool_outputs":[{"tool_call_id":"call_1","output":"rain"},{"tool_call_id":"call_2","output":"done"},{"tool_call_id":"call_3","output":"7"}]}"#;

/// A stream held open for tool outputs: its calls, their outputs and the rest are one turn of the conversation.
#[tokio::test]
async fn a_held_stream_is_one_turn_of_it() {
    let scripts =
        ["tools", "text"].map(|scene| scripted(scene, &format!("chatcmpl-{scene}"), true));
    let world = World::start(Engine::in_turn(scripts.into()), Setup::new()).await;
    let path = create_conversation(&world, json!([])).await;
    let request = next(
        &path,
        "m",
        &format!(r#","input":"go","stream":true,{TOOLS}"#),
    );
    let request = request
        .header("x-samewire-dialect", "codex-legacy")
        .header("x-samewire-tool-hold", "1");
    let mut client = world.begin(&request).await;
    let created = event(
        client
            .event_with("event: response.created")
            .await
            .trim_end(),
    );
    let outputs = Request::post(
        &format!("/v1/responses/{}/tool_outputs", id(&created["response"])),
        ALL,
    );
    assert_eq!(world.request(&outputs).await.head.status, 202);
    let response = event(
        client
            .event_with("event: response.completed")
            .await
            .trim_end(),
    );
    assert_eq!(response["response"]["conversation"]["id"], name(&path));
    let kept = short_forms(&items(&world, &path).await);
    assert_eq!(kept[..3], ["user: go", "reasoning", "assistant: Looking."]);
    assert_eq!(
        kept[6..],
        [
            "function_call_output",
            "custom_tool_call_output",
            "function_call_output",
            "assistant: Hello wörld"
        ]
    );
    world.end().await;
}

/// Tool outputs sent later continue the conversation; if the answer is not part of the conversation, they continue
/// the answer.
#[tokio::test]
async fn handed_in_outputs_go_on_with_it() {
    let (gate, held) = Gate::pair();
    let engine = Engine::answering(move |attempt| {
        let body = attempt.json();
        let (tools, count) = (
            body["messages"][1]["content"] == "go",
            body["messages"].as_array().unwrap().len(),
        );
        let id = format!(
            "chatcmpl-{}{count}",
            if attempt.text().contains("held") {
                "h"
            } else {
                ""
            }
        );
        let script = scripted(
            if tools && count == 2 { "tools" } else { "text" },
            &id,
            body["stream"] == true,
        );
        if !attempt.text().contains("held") || count > 2 {
            return script;
        }
        let mut steps = script.0;
        steps.insert(0, Step::Await(held.clone()));
        Script(steps)
    });
    let world = World::start(engine.await, Setup::new()).await;
    for (first, background) in [("before", false), ("held", true)] {
        let path = create_conversation(&world, json!([user(first)])).await;
        let request = next(
            &path,
            "tools",
            &format!(r#","input":"go","background":{background},{TOOLS}"#),
        );
        let mut response = object(&world.request(&request).await);
        if background {
            world.engine.wait_attempts(3).await;
            object(&world.request(&Request::new("DELETE", &path)).await);
            gate.open();
            response = ended(world.proxy(), id(&response)).await;
        }
        let outputs = Request::post(
            &format!("/v1/responses/{}/tool_outputs", id(&response)),
            ALL,
        );
        let after = object(&world.request(&outputs).await);
        if background {
            assert_eq!(
                (after.get("conversation"), &after["previous_response_id"]),
                (None, &response["id"])
            );
        } else {
            assert_eq!(after["conversation"]["id"], name(&path));
            let kept = short_forms(&items(&world, &path).await);
            assert_eq!(
                (kept.len(), kept.last().unwrap().as_str()),
                (11, "assistant: Hello wörld")
            );
        }
    }
    world.end().await;
}

fn broken() -> Script {
    Script::stream().text("Half").rst()
}

#[tokio::test]
async fn what_fails_adds_nothing() {
    let world = World::start(broken(), Setup::new().allow_errors()).await;
    let path = create_conversation(&world, json!([user("before")])).await;
    for more in ["", r#","store":false"#] {
        let told = events(
            &world
                .request(&next(
                    &path,
                    "m",
                    &format!(r#","input":"x","stream":true{more}"#),
                ))
                .await,
        );
        assert_eq!(last(&told)["status"], "failed");
    }
    world
        .request(&next(&path, "m", r#","input":"x""#))
        .await
        .with_status(502);
    let background = object(
        &world
            .request(&next(&path, "m", r#","input":"x","background":true"#))
            .await,
    );
    assert_eq!(
        ended(world.proxy(), id(&background)).await["status"],
        "failed"
    );
    assert_eq!(short_forms(&items(&world, &path).await), ["user: before"]);
    world.end().await;
}

#[tokio::test]
async fn what_is_cancelled_adds_nothing() {
    let world = World::start(Script::stream().text("Half").hang(), Setup::new()).await;
    let path = create_conversation(&world, json!([user("before")])).await;
    let background = object(
        &world
            .request(&next(&path, "m", r#","input":"x","background":true"#))
            .await,
    );
    world.engine.wait_attempts(1).await;
    let cancel = Request::post(&format!("/v1/responses/{}/cancel", id(&background)), "");
    assert_eq!(object(&world.request(&cancel).await)["status"], "cancelled");
    assert_eq!(short_forms(&items(&world, &path).await), ["user: before"]);
    world.end().await;
}

fn gated(gate: &Gate, id: &str) -> Script {
    Script::new()
        .head_sse()
        .ev(&chunk(id, r#"{"role":"assistant","content":""}"#, "null"))
        .ev(&chunk(id, r#"{"content":"one"}"#, "null"))
        .wait(gate)
        .ev(&chunk(id, r#"{"content":" two"}"#, "null"))
        .ev(&chunk(id, "{}", "\"stop\""))
        .done()
        .end()
}

/// The conversation is deleted while a response runs: the response is stored, and does not claim to belong to it.
#[tokio::test]
async fn a_conversation_that_is_deleted_meanwhile() {
    for store in [true, false] {
        let gate = Gate::default();
        let world = World::start(gated(&gate, "chatcmpl-1"), Setup::new()).await;
        let path = create_conversation(&world, json!([user("before")])).await;
        let mut client = Client::connect(world.proxy()).await;
        client
            .send(
                &next(
                    &path,
                    "m",
                    &format!(r#","input":"x","stream":true,"store":{store}"#),
                )
                .bytes(),
            )
            .await;
        client.event_with_head(r#""delta":"one""#).await;
        object(&world.request(&Request::new("DELETE", &path)).await);
        gate.open();
        let response =
            event(&client.event_with("event: response.completed").await)["response"].clone();
        assert!(client.event().await.is_none());
        assert_eq!(response["output"][0]["content"][0]["text"], "one two");
        assert_eq!(
            (response.get("conversation"), &response["store"]),
            (None, &json!(store))
        );
        let stored = world.get(&format!("/v1/responses/{}", id(&response))).await;
        if store {
            assert_eq!(object(&stored), response);
        } else {
            not_found(&stored);
        }
        not_found(&world.get(&path).await);
        world.end().await;
    }
}

#[tokio::test]
async fn a_conversation_that_is_deleted_while_nobody_waits() {
    let gate = Gate::default();
    let world = World::start(gated(&gate, "chatcmpl-1"), Setup::new()).await;
    let path = create_conversation(&world, json!([user("before")])).await;
    let response = object(
        &world
            .request(&next(&path, "m", r#","input":"x","background":true"#))
            .await,
    );
    assert_eq!(response["conversation"]["id"], name(&path));
    world.engine.wait_attempts(1).await;
    object(&world.request(&Request::new("DELETE", &path)).await);
    gate.open();
    let response = ended(world.proxy(), id(&response)).await;
    assert_eq!(
        (&response["status"], response.get("conversation")),
        (&json!("completed"), None)
    );
    let replay = Request::get(&format!("/v1/responses/{}?stream=true", id(&response)));
    assert_eq!(last(&events(&world.request(&replay).await)), &response);
    world.end().await;
}

#[tokio::test]
async fn fault_o14_a_full_conversation_takes_no_more_and_says_so() {
    let world = World::start(engine(), Setup::new().config("[store]\nmax_bytes = 20000")).await;
    let path = create_conversation(&world, json!([user(&"x".repeat(14_000))])).await;
    let response = object(&world.request(&next(&path, "text", r#","input":"x""#)).await);
    assert_eq!(response["conversation"]["id"], name(&path));
    let large = format!(r#","input":"{}""#, "y".repeat(4_000));
    let response = object(&world.request(&next(&path, "text", &large)).await);
    assert_eq!(
        (&response["status"], response.get("conversation")),
        (&json!("completed"), None)
    );
    let body = json!({"items":[user(&"z".repeat(6_000))]});
    for _ in 0..2 {
        let path = create_conversation(&world, json!([user(&"x".repeat(14_000))])).await;
        let full = world.request(&post(&format!("{path}/items"), &body)).await;
        assert_eq!(
            full.fault().code.as_deref(),
            Some("store_unavailable"),
            "{}",
            full.text()
        );
        assert_eq!(items(&world, &path).await.len(), 1);
    }
    world.end().await;
}

#[tokio::test]
async fn fault_o15_a_store_that_hangs_is_not_pretended() {
    for store in [true, false] {
        let (folder, gate) = (Folder::new(), Gate::default());
        let world = World::start(gated(&gate, "chatcmpl-1"), Setup::stored(&folder)).await;
        let path = create_conversation(&world, json!([user("before")])).await;
        let mut client = Client::connect(world.proxy()).await;
        let more = format!(r#","input":"x","stream":true,"store":{store}"#);
        client.send(&next(&path, "m", &more).bytes()).await;
        client.event_with_head(r#""delta":"one""#).await;
        let lock = rusqlite::Connection::open(folder.path("store.db")).unwrap();
        lock.execute_batch("BEGIN IMMEDIATE").unwrap();
        gate.open();
        let response =
            event(&client.event_with("event: response.completed").await)["response"].clone();
        assert_eq!(
            (response.get("conversation"), &response["store"]),
            (None, &json!(false))
        );
        lock.execute_batch("ROLLBACK").unwrap();
        assert_eq!(short_forms(&items(&world, &path).await), ["user: before"]);
        world.end().await;
    }
}

/// Concurrent responses in one conversation do not interleave their items.
#[tokio::test]
async fn concurrent_responses_do_not_interleave_items() {
    let folder = Folder::new();
    let world = World::start(engine(), Setup::stored(&folder)).await;
    let path = create_conversation(&world, json!([])).await;
    let mut clients = Vec::new();
    for n in 0..24 {
        let more = [
            r#","stream":true"#,
            "",
            r#","stream":true,"store":false"#,
            r#","background":true"#,
        ][n % 4];
        let input = format!(
            r#","input":[{{"role":"user","content":"{n}a"}},{{"role":"user","content":"{n}b"}}]{more}"#
        );
        clients.push(world.send(&next(&path, "reason", &input)).await);
    }
    for (n, mut client) in clients.into_iter().enumerate() {
        let answer = client.answer().await;
        match n % 4 {
            0 | 2 => assert_eq!(last(&events(&answer))["conversation"]["id"], name(&path)),
            1 => assert_eq!(object(&answer)["conversation"]["id"], name(&path)),
            _ => assert_eq!(
                ended(world.proxy(), id(&object(&answer))).await["conversation"]["id"],
                name(&path)
            ),
        }
    }
    let all = short_forms(&items(&world, &path).await);
    let mut seen: Vec<_> = all
        .chunks(4)
        .map(|turn| {
            let n = turn[0]
                .strip_prefix("user: ")
                .and_then(|text| text.strip_suffix('a'))
                .unwrap()
                .to_owned();
            assert_eq!(
                turn[1..],
                [
                    format!("user: {n}b"),
                    "reasoning".to_owned(),
                    "assistant: Four.".to_owned()
                ]
            );
            n.parse::<usize>().unwrap()
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..24).collect::<Vec<_>>());
    world.end().await;
}

#[tokio::test]
async fn what_was_said_outlives_a_kill() {
    let folder = Folder::new();
    let engine = engine().await;
    let setup = Setup::stored(&folder).in_front_of(&engine);
    let mut samewire = Samewire::start(&setup).await;
    let made = object(
        &post("/v1/conversations", &json!({"metadata":{"a":"b"}}))
            .answer(samewire.proxy)
            .await,
    );
    let path = format!("/v1/conversations/{}", id(&made));
    for round in 0..4 {
        let more = [r#","stream":true"#, r#","stream":true,"store":false"#][round % 2];
        let _client = next(&path, "text", &format!(r#","input":"{round}"{more}"#))
            .begin_until(samewire.proxy, "event: response.completed")
            .await;
        samewire.signal("KILL");
        samewire.exit(PATIENCE).await;
        samewire = Samewire::start(&setup).await;
        let listed = object(
            &Request::get(&format!("{path}/items"))
                .answer(samewire.proxy)
                .await,
        );
        assert_eq!(listed["data"].as_array().unwrap().len(), 2 * round + 2);
        assert_eq!(
            object(&Request::get(&path).answer(samewire.proxy).await),
            made
        );
    }
}

/// A response of a conversation can only be continued there, because the earlier items are in the conversation and
/// not in the response.
#[tokio::test]
async fn a_response_of_a_conversation_is_gone_on_with_there() {
    let world = World::start(engine(), Setup::new()).await;
    let path = create_conversation(&world, json!([user("before")])).await;
    let first = object(&world.request(&next(&path, "text", r#","input":"a""#)).await);
    let alone = |id: &str| {
        Request::post(
            "/v1/responses",
            json!({"model":"text","input":"b","previous_response_id":id}).to_string(),
        )
    };
    let refused = world.request(&alone(id(&first))).await;
    assert_eq!(
        told(&refused),
        (
            400,
            Some("invalid_value".into()),
            Some("previous_response_id".into())
        )
    );
    assert!(
        refused.text().contains("'conversation'"),
        "{}",
        refused.text()
    );
    // Once the conversation is deleted, the response can be continued by itself.
    object(&world.request(&Request::new("DELETE", &path)).await);
    assert_eq!(
        object(&world.request(&alone(id(&first))).await)["status"],
        "completed"
    );
    world.end().await;
}

/// A new item with an id already in use is refused, unless it is identical.
#[tokio::test]
async fn an_id_stands_for_one_item() {
    let world = World::start(engine(), Setup::new()).await;
    let path = create_conversation(&world, json!([])).await;
    let item = |text: &str| format!(r#"{{"id":"msg_u","role":"user","content":"{text}"}}"#);
    let input = |items: &str| next(&path, "text", &format!(r#","input":[{items}]"#));
    object(&world.request(&input(&item("first"))).await);
    object(&world.request(&input(&item("first"))).await);
    for (items, param) in [
        (item("second"), "input[0].id"),
        (
            r#"{"id":"a","role":"user","content":"x"},{"id":"a","role":"user","content":"y"}"#
                .to_owned(),
            "input[1].id",
        ),
        (
            r#"{"id":7,"role":"user","content":"x"}"#.to_owned(),
            "input[0].id",
        ),
        (
            format!(
                r#"{{"id":"{}","role":"user","content":"x"}}"#,
                "i".repeat(513)
            ),
            "input[0].id",
        ),
    ] {
        let refused = world.request(&input(&items)).await;
        assert_eq!(
            told(&refused),
            (400, Some("invalid_value".into()), Some(param.into())),
            "{}",
            refused.text()
        );
    }
    let kept = short_forms(&items(&world, &path).await);
    assert_eq!(
        kept,
        [
            "user: first",
            "assistant: Hello wörld",
            "assistant: Hello wörld"
        ]
    );
    world.end().await;
}

/// Content too large for the store is refused where storing is mandatory.
#[tokio::test]
async fn what_is_too_large_to_be_stored() {
    let world = World::start(
        engine(),
        Setup::new().config("[store]\nmax_record_bytes = 10000"),
    )
    .await;
    let path = create_conversation(&world, json!([])).await;
    let long = "x".repeat(12_000);
    for more in [
        r#","background":true"#,
        r#","store":true"#,
        &format!(r#","conversation":"{}""#, name(&path)),
    ] {
        let body = format!(r#"{{"model":"text","input":"{long}"{more}}}"#);
        let refused = world.post("/v1/responses", body).await;
        assert_eq!(
            told(&refused),
            (413, Some("request_too_large".into()), Some("input".into())),
            "{more}"
        );
    }
    // Input that the response repeats counts twice, and each item gets an id and a status.
    let small = vec![r#"{"role":"user","content":"x"}"#; 30].join(",");
    for rest in [
        format!(r#""input":"x","instructions":"{}""#, "x".repeat(6000)),
        format!(r#""input":[{small}]"#),
    ] {
        let body = format!(r#"{{"model":"text","background":true,{rest}}}"#);
        let refused = world.post("/v1/responses", body).await;
        assert_eq!(
            told(&refused),
            (413, Some("request_too_large".into()), Some("input".into())),
            "{rest}"
        );
    }
    let body = format!(r#"{{"model":"text","input":"{long}"}}"#);
    let answer = object(&world.post("/v1/responses", body).await);
    assert_eq!(
        (&answer["status"], &answer["store"]),
        (&json!("completed"), &json!(false))
    );
    world.end().await;
}
