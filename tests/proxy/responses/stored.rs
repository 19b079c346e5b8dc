//! Stored responses: when each is readable, for which keys, and what happens when storing fails.

use crate::responses::over_chat::{
    TOOLS, ask, chunk, engine, event, events, last, object, prompt, scripted,
};
use crate::sim::prelude::*;
use std::path::Path;
use std::process::{Command, Stdio};

async fn get(world: &World, id: &str) -> Answer {
    world.get(&format!("/v1/responses/{id}")).await
}

/// Returns the id of an object.
pub fn id(response: &Value) -> &str {
    response["id"].as_str().unwrap()
}

/// Returns the messages in the `n`th request to the engine.
pub fn messages(world: &World, n: usize) -> Value {
    let body = world.engine.attempts()[n].json();
    body["messages"].clone()
}

/// Returns the items of a list that is read in pages of eleven, and the id of the last one.
pub async fn paged(world: &World, list: &str) -> (Vec<Value>, String) {
    let (mut all, mut after, mut last) = (Vec::new(), String::new(), String::new());
    loop {
        let page = object(&world.get(&format!("{list}&limit=11{after}")).await);
        all.extend(page["data"].as_array().unwrap().clone());
        page["last_id"].as_str().unwrap().clone_into(&mut last);
        after = format!("&after={last}");
        if page["has_more"] == false {
            return (all, last);
        }
    }
}

/// Checks for the 404 that is the same for every kind of missing object.
pub fn not_found(answer: &Answer) {
    assert_eq!(
        answer.failure(),
        "404 invalid_request_error",
        "{}",
        answer.text()
    );
    assert_eq!(answer.fault().param, None);
}

async fn readable_at_once(setup: Setup) {
    let world = World::start(engine(), setup).await;
    let mut reader = Client::connect(world.proxy()).await;
    for _ in 0..200 {
        let mut client = world.begin(&prompt("text", r#","stream":true"#)).await;
        let ended = event(&client.event_with("event: response.completed").await);
        reader
            .send(&Request::get(&format!("/v1/responses/{}", id(&ended["response"]))).bytes())
            .await;
        assert_eq!(object(&reader.answer().await), ended["response"]);
    }
    for _ in 0..50 {
        let response = object(&world.request(&prompt("text", "")).await);
        assert_eq!(object(&get(&world, id(&response)).await), response);
    }
    world.end().await;
}

#[tokio::test]
async fn a_response_is_readable_as_soon_as_it_has_ended() {
    readable_at_once(Setup::new()).await;
}

#[tokio::test]
async fn a_response_is_readable_as_soon_as_it_has_ended_in_a_file() {
    let folder = Folder::new();
    readable_at_once(Setup::stored(&folder)).await;
}

#[tokio::test]
async fn what_is_not_to_be_stored_is_not() {
    let world = World::start(engine(), Setup::new()).await;
    for stream in ["", r#","stream":true"#] {
        let answer = world
            .request(&prompt("text", &format!(r#","store":false{stream}"#)))
            .await;
        let response = if stream.is_empty() {
            object(&answer)
        } else {
            last(&events(&answer)).clone()
        };
        assert_eq!(response["store"], false);
        not_found(&get(&world, id(&response)).await);
        let next = world
            .request(&prompt(
                "text",
                &format!(r#","previous_response_id":"{}""#, id(&response)),
            ))
            .await;
        assert_eq!(
            next.fault().code.as_deref(),
            Some("previous_response_not_found")
        );
    }
    world.end_after(2).await;
}

#[tokio::test]
async fn routes_with_a_date_store_whatever_is_asked() {
    let dated = |store: &str| {
        let target = "/openai/responses?api-version=2025-04-01-preview";
        prompt("text", &format!(r#","store":{store}"#)).target(target)
    };
    let at = |response: &Value| {
        Request::get(&format!(
            "/openai/responses/{}?api-version=2025-04-01-preview",
            id(response)
        ))
    };
    let world = World::start(engine(), Setup::new()).await;
    for store in ["false", "true"] {
        let response = object(&world.request(&dated(store)).await);
        assert_eq!(response["store"], true);
        assert_eq!(object(&world.request(&at(&response)).await), response);
    }
    let undated = prompt("text", r#","store":false"#).target("/openai/v1/responses");
    assert_eq!(object(&world.request(&undated).await)["store"], false);
    world.end().await;
    let world = World::start(
        engine(),
        Setup::new().config("[azure]\nforce_store = false"),
    )
    .await;
    let response = object(&world.request(&dated("false")).await);
    assert_eq!(response["store"], false);
    not_found(&world.request(&at(&response)).await);
    world.end().await;
}

/// Returns the engine's messages after the tools of the scene have been called, answered and followed by a question.
pub fn three_turns() -> Value {
    let call = |id: &str, name: &str, arguments: &str| json!({"id":id,"type":"function","function":{"name":name,"arguments":arguments}});
    json!([
        {"role":"user","content":PROMPT},
        {"role":"assistant","content":"Looking.","reasoning":"I ask.","tool_calls":[
            call("call_1", "weather", "{\"city\":\"Bern\"}"),
            call("call_2", "patch", "{\"input\":\"*** \\\"Begin\\\"\"}"),
            call("call_3", "crm__find", "{\"id\": 7}"),
        ]},
        {"role":"tool","tool_call_id":"call_1","content":"rain"},
        {"role":"tool","tool_call_id":"call_2","content":"done"},
        {"role":"tool","tool_call_id":"call_3","content":"Ada"},
        {"role":"assistant","content":"Four.","reasoning":"Two and two."},
        {"role":"user","content":"and now?"},
    ])
}

#[tokio::test]
async fn three_turns_reach_the_engine_in_order() {
    let world = World::start(engine(), Setup::new()).await;
    let first = object(
        &world
            .request(&prompt(
                "tools",
                &format!(r#","instructions":"once",{TOOLS}"#),
            ))
            .await,
    );
    let outputs = r#"[{"type":"function_call_output","call_id":"call_1","output":"rain"},{"type":"custom_tool_call_output","call_id":"call_2","output":"done"},{"type":"function_call_output","call_id":"call_3","output":[{"type":"input_text","text":"Ada"}]}]"#;
    let second = ask(&format!(
        r#""model":"reason","stream":true,"previous_response_id":"{}","input":{outputs},{TOOLS}"#,
        id(&first)
    ));
    let second = last(&events(&world.request(&second).await)).clone();
    assert_eq!(second["previous_response_id"], first["id"]);
    let third = format!(
        r#""model":"text","previous_response_id":"{}","input":"and now?""#,
        id(&second)
    );
    assert_eq!(
        object(&world.request(&ask(&third)).await)["instructions"],
        Value::Null
    );
    let expected = three_turns();
    let all = expected.as_array().unwrap();
    assert_eq!(messages(&world, 1), json!(all[..5]));
    assert_eq!(messages(&world, 2), expected);
    world.end().await;
}

#[tokio::test]
async fn a_reference_stands_for_its_item_in_later_turns_too() {
    let world = World::start(engine(), Setup::new()).await;
    let first = object(&world.request(&prompt("text", "")).await);
    let item = first["output"][0]["id"].as_str().unwrap();
    let input = format!(
        r#"[{{"type":"item_reference","id":"{item}"}},{{"role":"user","content":"go on"}}]"#
    );
    let second = object(
        &world
            .request(&ask(&format!(r#""model":"text","input":{input}"#)))
            .await,
    );
    let expected =
        json!([{"role":"assistant","content":"Hello wörld\n"},{"role":"user","content":"go on"}]);
    assert_eq!(messages(&world, 1), expected);
    let third = format!(
        r#""model":"text","input":"more","previous_response_id":"{}""#,
        id(&second)
    );
    object(&world.request(&ask(&third)).await);
    assert_eq!(
        messages(&world, 2).as_array().unwrap()[..2],
        expected.as_array().unwrap()[..]
    );
    assert_eq!(messages(&world, 2).as_array().unwrap().len(), 4);
    world.end().await;
}

#[tokio::test]
async fn fault_c32_what_is_not_yours_is_not_there() {
    let world = World::start(engine(), Setup::new()).await;
    let response = object(&world.request(&prompt("text", "")).await);
    let (mine, item) = (id(&response), response["output"][0]["id"].as_str().unwrap());
    let other = |request: Request| {
        request
            .without("authorization")
            .header("authorization", "Bearer other")
    };
    let none = |request: Request| request.without("authorization");
    let routes = |id: &str, item: &str| {
        let post = |more: &str| ask(&format!(r#""model":"text",{more}"#));
        [
            Request::get(&format!("/v1/responses/{id}")),
            Request::get(&format!("/openai/v1/responses/{id}")),
            Request::get(&format!("/openai/responses/{id}?api-version=2024-10-21")),
            Request::get(&format!("/v1/responses/{id}?stream=true")),
            Request::new("DELETE", &format!("/v1/responses/{id}")),
            Request::get(&format!("/v1/responses/{id}/input_items")),
            Request::get(&format!("/v1/responses/{id}/input_items?after={item}")),
            Request::post(&format!("/v1/responses/{id}/cancel"), ""),
            post(&format!(r#""input":"x","previous_response_id":"{id}""#)),
            post(&format!(
                r#""input":[{{"type":"item_reference","id":"{item}"}}]"#
            )),
        ]
    };
    let never = ["resp_zzzzzz", "msg_zzzzzz"];
    for (theirs, nobodys) in routes(mine, item)
        .into_iter()
        .zip(routes(never[0], never[1]))
    {
        for who in [&other as &dyn Fn(Request) -> Request, &none] {
            let [theirs, nobodys] = [
                world.request(&who(theirs.clone())).await,
                world.request(&who(nobodys.clone())).await,
            ];
            assert!(matches!(theirs.head.status, 400 | 404), "{}", theirs.text());
            assert_eq!(theirs.head.status, nobodys.head.status);
            assert_eq!(
                theirs
                    .text()
                    .replace(mine, never[0])
                    .replace(item, never[1]),
                nobodys.text()
            );
        }
    }
    for path in [
        "..",
        "%2e%2e",
        "resp_1%00",
        "a%2Finput_items",
        &"x".repeat(600),
        "%ff",
        "*",
    ] {
        let answer = get(&world, path).await;
        assert!(
            matches!(answer.head.status, 400 | 404),
            "{path}: {}",
            answer.text()
        );
    }
    assert_eq!(object(&get(&world, mine).await), response);
    world.end_after(1).await;
}

#[tokio::test]
async fn deleted_is_gone_and_synchronous_is_not_cancelled() {
    let world = World::start(engine(), Setup::new()).await;
    let response = object(&world.request(&prompt("text", "")).await);
    let id = id(&response);
    let cancelled = world
        .post(&format!("/v1/responses/{id}/cancel"), "")
        .await
        .with_status(400);
    assert_eq!(
        cancelled.fault().message,
        "Cannot cancel a synchronous response."
    );
    let bare = world
        .request(&Request::new("POST", &format!("/v1/responses/{id}/cancel")))
        .await;
    assert_eq!(
        bare.fault().message,
        "Cannot cancel a synchronous response."
    );
    let deleted = world
        .request(&Request::new("DELETE", &format!("/v1/responses/{id}")))
        .await;
    assert_eq!(
        deleted.text(),
        format!(r#"{{"id":"{id}","object":"response","deleted":true}}"#)
    );
    for again in [
        Request::new("DELETE", &format!("/v1/responses/{id}")),
        Request::get(&format!("/v1/responses/{id}")),
    ] {
        let answer = world.request(&again).await;
        not_found(&answer);
        assert_eq!(
            answer.fault().message,
            format!("Response with id '{id}' not found.")
        );
    }
    world.end().await;
}

#[tokio::test]
async fn input_items_come_in_pages() {
    let world = World::start(engine(), Setup::new()).await;
    let input: Vec<_> = (0..45)
        .map(|n| json!({"role":"user","content":format!("n{n}")}))
        .collect();
    let body = json!({"model":"text","input":input}).to_string();
    let response = object(&world.post("/v1/responses", body).await);
    let at = format!("/v1/responses/{}/input_items", id(&response));
    let page = async |query: &str| object(&world.get(&format!("{at}{query}")).await);
    let texts = |page: &Value| -> Vec<String> {
        let data = page["data"].as_array().unwrap();
        data.iter()
            .map(|item| item["content"][0]["text"].as_str().unwrap().to_owned())
            .collect()
    };
    let names = |range: std::ops::Range<usize>| range.map(|n| format!("n{n}")).collect::<Vec<_>>();
    let first = page("").await;
    assert_eq!(
        texts(&first),
        names(25..45).into_iter().rev().collect::<Vec<_>>()
    );
    assert_eq!(
        [&first["object"], &first["has_more"]],
        [&json!("list"), &json!(true)]
    );
    assert_eq!(first["first_id"], first["data"][0]["id"]);
    let (all, last) = paged(&world, &format!("{at}?order=asc")).await;
    assert_eq!(texts(&json!({"data": all})), names(0..45));
    assert_eq!(
        page("?limit=100").await["data"].as_array().unwrap().len(),
        45
    );
    let end = page(&format!("?order=asc&after={last}")).await;
    assert_eq!(
        end,
        json!({"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false})
    );
    for (query, param) in [
        ("?limit=0", "limit"),
        ("?limit=101", "limit"),
        ("?limit=-1", "limit"),
        ("?limit=x", "limit"),
        ("?order=up", "order"),
        ("?after=msg_none", "after"),
    ] {
        let answer = world.get(&format!("{at}{query}")).await;
        assert_eq!(answer.head.status, 400, "{query}");
        let fault = answer.fault();
        assert_eq!(
            (fault.code.as_deref(), fault.param.as_deref()),
            (Some("invalid_value"), Some(param)),
            "{query}"
        );
    }
    world.end().await;
}

#[tokio::test]
async fn without_a_store_nothing_is_claimed() {
    let world = World::start(engine(), Setup::new().args(&["--store", "off"])).await;
    for store in ["", r#","store":true"#, r#","store":false"#] {
        let response = object(&world.request(&prompt("text", store)).await);
        assert_eq!(response["store"], false);
        not_found(&get(&world, id(&response)).await);
    }
    let next = world
        .request(&prompt("text", r#","previous_response_id":"resp_1""#))
        .await;
    assert_eq!(
        next.fault().code.as_deref(),
        Some("previous_response_not_found")
    );
    world.end_after(3).await;
}

#[tokio::test]
async fn fault_o15_a_store_that_cannot_be_opened_is_not_pretended() {
    let folder = Folder::new();
    let damaged = folder.file("damaged.db", "this is no database, and it stays as it is");
    let missing = folder.path("missing/store.db");
    for path in [
        &missing,
        folder.folder(),
        Path::new("/proc/store.db"),
        Path::new(&damaged),
    ] {
        let place = format!("sqlite:{}", path.display());
        let world = World::start(engine(), Setup::new().args(&["--store", &place])).await;
        for stream in ["", r#","stream":true"#] {
            let answer = world.request(&prompt("text", stream)).await;
            let all = if stream.is_empty() {
                vec![json!({"response":object(&answer)})]
            } else {
                events(&answer)
            };
            for event in all.iter().filter(|event| event["response"].is_object()) {
                assert_eq!(event["response"]["store"], false, "{}", path.display());
            }
        }
        let unavailable = "503 server_error store_unavailable";
        for request in [
            prompt("text", r#","store":true"#),
            prompt("text", r#","previous_response_id":"resp_1""#),
            Request::get("/v1/responses/resp_1"),
            Request::new("DELETE", "/v1/responses/resp_1"),
        ] {
            assert_eq!(
                world.request(&request).await.failure(),
                unavailable,
                "{}",
                path.display()
            );
        }
        assert_eq!(world.engine.attempt_count(), 2);
        assert_eq!(
            object(&world.request(&prompt("text", r#","store":false"#)).await)["store"],
            false
        );
        world.end().await;
    }
    assert_eq!(
        std::fs::read_to_string(&damaged).unwrap(),
        "this is no database, and it stays as it is"
    );
}

#[tokio::test]
async fn fault_o15_a_store_that_is_lost_is_found_out_before_the_engine_works() {
    let folder = Folder::new();
    let world = World::start(engine(), Setup::stored(&folder)).await;
    assert_eq!(
        object(&world.request(&prompt("text", r#","store":true"#)).await)["store"],
        true
    );
    std::fs::remove_file(folder.path("store.db")).unwrap();
    let answer = world.request(&prompt("text", r#","store":true"#)).await;
    assert_eq!(answer.failure(), "503 server_error store_unavailable");
    assert_eq!(world.engine.attempt_count(), 1);
    assert_eq!(
        object(&world.request(&prompt("text", "")).await)["store"],
        false
    );
    world.end().await;
}

#[tokio::test]
async fn fault_o15_a_store_that_is_required_and_cannot_be_opened_ends_the_start() {
    let folder = Folder::new();
    let place = folder.path("missing/store.db");
    let lines = format!(
        "[store]\nplace = \"sqlite:{}\"\nrequired = true\n",
        place.display()
    );
    let config = folder.file("samewire.toml", &lines);
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
    ]);
    command
        .args(["--upstream", "http://127.0.0.1:1", "--config"])
        .arg(&config)
        .env_clear();
    let output = command.stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(
        told.contains("the store ") && told.contains("missing/store.db"),
        "{told}"
    );
    assert!(!told.contains("\"message\":\"listening\""), "{told}");
}

#[tokio::test]
async fn what_was_stored_outlives_a_kill() {
    let folder = Folder::new();
    let engine = engine().await;
    let setup = Setup::stored(&folder).in_front_of(&engine);
    let mut kept = Vec::new();
    for round in 0..5 {
        let mut samewire = Samewire::start(&setup).await;
        for response in &kept {
            let path = format!("/v1/responses/{}", id(response));
            assert_eq!(
                &object(&Request::get(&path).answer(samewire.proxy).await),
                response
            );
        }
        let previous = kept.last().map_or(String::new(), |last| {
            format!(r#","previous_response_id":"{}""#, id(last))
        });
        let request = prompt("text", &format!(r#","stream":true{previous}"#));
        let mut client = request.begin(samewire.proxy).await;
        kept.push(event(&client.event_with("event: response.completed").await)["response"].clone());
        samewire.signal("KILL");
        samewire.exit(PATIENCE).await;
        let body = engine.attempts()[round].json();
        assert_eq!(body["messages"].as_array().unwrap().len(), 2 * round + 1);
    }
}

#[tokio::test]
async fn an_id_that_the_engine_gives_twice_is_stored_once() {
    let engine = Engine::answering(|attempt| {
        let body = attempt.json();
        scripted(
            body["model"].as_str().unwrap(),
            "chatcmpl-same",
            body["stream"] == true,
        )
    });
    let folder = Folder::new();
    let world = World::start(engine.await, Setup::stored(&folder)).await;
    let first = object(&world.request(&prompt("text", "")).await);
    assert_eq!(first["store"], true);
    let second = last(&events(
        &world.request(&prompt("reason", r#","stream":true"#)).await,
    ))
    .clone();
    let third = object(&world.request(&prompt("limit", "")).await);
    assert_eq!([&second["id"], &third["id"]], [&first["id"], &first["id"]]);
    assert_eq!([&second["store"], &third["store"]], [false, false]);
    assert_eq!(object(&get(&world, id(&first)).await), first);
    let other = prompt("text", "")
        .without("authorization")
        .header("authorization", "Bearer other");
    assert_eq!(object(&world.request(&other).await)["store"], true);
    world.end().await;
}

/// Engines whose ids repeat are recognised by their kind: samewire uses its own ids instead.
#[tokio::test]
async fn ids_that_come_again_by_design_are_not_taken() {
    for kind in ["ollama", "transformers"] {
        let engine = Engine::answering(|attempt| {
            let body = attempt.json();
            scripted(
                body["model"].as_str().unwrap(),
                "chatcmpl-417-again",
                body["stream"] == true,
            )
        });
        let folder = Folder::new();
        let world = World::start_as(engine.await, kind, Setup::stored(&folder)).await;
        let first = object(&world.request(&prompt("text", "")).await);
        let second = last(&events(
            &world.request(&prompt("reason", r#","stream":true"#)).await,
        ))
        .clone();
        assert_eq!([&first["store"], &second["store"]], [true, true], "{kind}");
        assert_ne!(first["id"], second["id"], "{kind}");
        for response in [&first, &second] {
            assert!(!id(response).contains("again"), "{kind}: {response}");
            assert_eq!(
                &object(&get(&world, id(response)).await),
                response,
                "{kind}"
            );
        }
        world.end().await;
    }
}

#[tokio::test]
async fn fault_o15_a_slow_store_delays_nothing_but_the_end() {
    let folder = Folder::new();
    let gate = Gate::default();
    let script = Script::new()
        .head_sse()
        .ev(&chunk(
            "chatcmpl-1",
            r#"{"role":"assistant","content":""}"#,
            "null",
        ))
        .ev(&chunk("chatcmpl-1", r#"{"content":"one"}"#, "null"))
        .wait(&gate)
        .ev(&chunk("chatcmpl-1", r#"{"content":"two"}"#, "null"))
        .ev(&chunk("chatcmpl-1", "{}", "\"stop\""))
        .done()
        .end();
    let world = World::start(script, Setup::stored(&folder)).await;
    let lock = rusqlite::Connection::open(folder.path("store.db")).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut client = world
        .begin_until(&prompt("m", r#","stream":true"#), r#""delta":"one""#)
        .await;
    let opened = Instant::now();
    gate.open();
    client.event_with(r#""delta":"two""#).await;
    client.event_with("event: response.output_item.done").await;
    let item = opened.elapsed();
    let ended = event(&client.event_with("event: response.completed").await);
    let took = opened.elapsed();
    assert!(
        (Duration::from_secs(1)..PATIENCE).contains(&took),
        "{took:?}"
    );
    assert!(
        took - item > Duration::from_millis(500),
        "the item waits for the store: {item:?} of {took:?}"
    );
    assert_eq!(ended["response"]["store"], false);
    assert!(client.event().await.is_none());
    lock.execute_batch("ROLLBACK").unwrap();
    // A response with store false must not be stored.
    let get = Request::get("/v1/responses/resp_1");
    get.answer_until(world.proxy(), |answer| answer.head.status == 404)
        .await;
    world.end().await;
}

fn sealed(response: &Value) -> String {
    let item = &response["output"][0];
    assert_eq!(item["type"], "reasoning", "{response}");
    item["encrypted_content"]
        .as_str()
        .unwrap_or_else(|| panic!("{response}"))
        .to_owned()
}

/// Returns the second request of a client that keeps its own history.
fn second_turn(sealed: &str) -> Request {
    ask(&format!(
        r#""model":"text","store":false,"include":["reasoning.encrypted_content"],"input":[{{"role":"user","content":"a"}},{{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"{sealed}"}},{{"role":"assistant","content":"Four."}},{{"role":"user","content":"b"}}]"#
    ))
}

const INCLUDE: &str = r#","store":false,"include":["reasoning.encrypted_content"]"#;

#[tokio::test]
async fn reasoning_that_clients_keep_is_opened_for_them_alone() {
    let world = World::start(engine(), Setup::new()).await;
    let streamed = events(
        &world
            .request(&prompt("reason", &format!(r#"{INCLUDE},"stream":true"#)))
            .await,
    );
    let whole = object(&world.request(&prompt("reason", INCLUDE)).await);
    let plain = object(&world.request(&prompt("reason", "")).await);
    assert!(plain["output"][0].get("encrypted_content").is_none());
    let of = |kind: &str| streamed.iter().find(|event| event["type"] == kind).unwrap();
    assert!(
        of("response.output_item.added")["item"]
            .get("encrypted_content")
            .is_none()
    );
    let text = sealed(last(&streamed));
    assert_eq!(
        of("response.output_item.done")["item"]["encrypted_content"],
        text.as_str()
    );
    assert!(text.starts_with("swr1."), "{text}");
    for text in [&text, &sealed(&whole)] {
        let n = world.engine.attempt_count();
        object(&world.request(&second_turn(text)).await);
        assert_eq!(
            messages(&world, n),
            json!([{"role":"user","content":"a"},{"role":"assistant","content":"Four.","reasoning":"Two and two."},{"role":"user","content":"b"}])
        );
    }
    let changed = format!("{}A", &text[..text.len() - 1]);
    let changed = if changed == text {
        format!("{}B", &text[..text.len() - 1])
    } else {
        changed
    };
    let theirs = second_turn(&text)
        .without("authorization")
        .header("authorization", "Bearer other");
    // The last one is of a samewire that has been started anew.
    let of_others = [
        &changed,
        &text.replace("swr1.", "swc1."),
        "gAAA",
        "swr1.process.AAAA",
    ]
    .map(second_turn);
    for request in std::iter::once(theirs).chain(of_others) {
        let n = world.engine.attempt_count();
        let answer = world.request(&request).await;
        assert_eq!(
            answer.head.header("x-samewire-dropped"),
            Some("input[1].encrypted_content")
        );
        object(&answer);
        assert_eq!(
            messages(&world, n),
            json!([{"role":"user","content":"a"},{"role":"assistant","content":"Four."},{"role":"user","content":"b"}])
        );
    }
    world.samewire.logged("cannot be opened", 5).await;
    world.end().await;
}

#[tokio::test]
async fn sealed_reasoning_that_cannot_be_opened_is_refused_by_option() {
    let setup = Setup::new().config("[seal]\nunreadable_reasoning = \"refuse\"");
    let world = World::start(engine(), setup).await;
    let fault = world
        .request(&second_turn("swr1.process.AAAA"))
        .await
        .fault();
    assert_eq!(
        fault.name(),
        ("invalid_request_error", Some("invalid_encrypted_content"))
    );
    assert_eq!(fault.param.as_deref(), Some("input[1].encrypted_content"));
    world.end_after(0).await;
}

/// A file of keys, or a store that outlives the process, keeps the key; memory does not.
#[tokio::test]
async fn sealed_reasoning_lives_as_long_as_its_key() {
    let folder = Folder::new();
    let keys = folder.write("keys", "k1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n");
    let engine = engine().await;
    let process = Setup::before(&engine);
    let named = process
        .clone()
        .config(&format!("[seal]\nkeys_file = \"{}\"", keys.display()));
    let stored = process
        .clone()
        .config(&format!("[store]\nplace = \"{}\"", folder.store()));
    for (setup, opens) in [(named, true), (stored, true), (process, false)] {
        let first = Samewire::start(&setup).await;
        let text = sealed(&object(
            &prompt("reason", INCLUDE).answer(first.proxy).await,
        ));
        drop(first);
        let second = Samewire::start(&setup).await;
        let answer = second_turn(&text).answer(second.proxy).await;
        assert_eq!(
            answer.head.header("x-samewire-dropped").is_none(),
            opens,
            "{}",
            answer.text()
        );
        object(&answer);
        second.finished(1).await;
        assert!(!second.logs().join("\n").contains(KEY));
    }
}

#[tokio::test]
async fn many_at_once_are_all_stored() {
    let folder = Folder::new();
    let world = World::start(engine(), Setup::stored(&folder)).await;
    let mut clients = Vec::new();
    for _ in 0..64 {
        clients.push(world.send(&prompt("text", r#","stream":true"#)).await);
    }
    for mut client in clients {
        let response = last(&events(&client.answer().await)).clone();
        assert_eq!(response["store"], true);
        assert_eq!(object(&get(&world, id(&response)).await), response);
    }
    world.end().await;
}

#[tokio::test]
async fn fault_o14_a_full_store_loses_the_oldest_and_claims_nothing() {
    let world = World::start(engine(), Setup::new().config("[store]\nmax_bytes = 20000")).await;
    let mut kept = Vec::new();
    for _ in 0..20 {
        let response = object(&world.request(&prompt("text", "")).await);
        assert_eq!(response["store"], true);
        assert_eq!(object(&get(&world, id(&response)).await), response);
        kept.push(response);
    }
    not_found(&get(&world, id(&kept[0])).await);
    let large = format!(
        r#""model":"text","stream":true,"input":"{}""#,
        "x".repeat(30_000)
    );
    let response = last(&events(&world.request(&ask(&large)).await)).clone();
    assert_eq!(
        [&response["status"], &response["store"]],
        [&json!("completed"), &json!(false)]
    );
    not_found(&get(&world, id(&response)).await);
    world.end().await;
}

/// A disk of 1 MiB. Stored responses stay readable, a response that cannot be stored does not claim to be, and chat
/// is unaffected.
#[tokio::test]
async fn fault_o14_a_full_disk() {
    let folder = Folder::new();
    let engine = engine().await;
    let mut command = Command::new("unshare");
    command.args([
        "-rm",
        "/bin/sh",
        "-c",
        "mount -t tmpfs -o size=1m tmpfs \"$0\" && exec \"$@\"",
    ]);
    command
        .arg(folder.folder())
        .arg(env!("CARGO_BIN_EXE_samewire"));
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
        "--engine",
        "vllm",
    ]);
    command.args(["--upstream", &engine.url(), "--store", &folder.store()]);
    let mut samewire = Samewire::spawn_as(command);
    samewire.wait_until_it_listens().await;
    let small = |more: &str| {
        ask(&format!(
            r#""model":"text",{more}"input":"{}""#,
            "x".repeat(30_000)
        ))
    };
    let mut stored = Vec::new();
    for _ in 0..100 {
        let response = object(&small("").answer(samewire.proxy).await);
        assert_eq!(
            [&response["status"], &response["store"]],
            [&json!("completed"), &json!(true)]
        );
        stored.push(response);
    }
    let get = async |response: &Value| {
        Request::get(&format!("/v1/responses/{}", id(response)))
            .answer(samewire.proxy)
            .await
    };
    // The oldest responses were evicted for the newest.
    let mut gone = 0;
    while get(&stored[gone]).await.head.status == 404 {
        gone += 1;
    }
    println!("{gone} of {} are gone", stored.len());
    assert!((50..98).contains(&gone), "{gone}");
    for response in &stored[gone..] {
        assert_eq!(object(&get(response).await), *response);
    }
    // A response larger than the disk is not stored and says so; a request that requires storing is refused at
    // once.
    let large = |more: &str| {
        ask(&format!(
            r#""model":"text",{more}"input":"{}""#,
            "x".repeat(2_000_000)
        ))
    };
    let response = object(&large("").answer(samewire.proxy).await);
    assert_eq!(
        [&response["status"], &response["store"]],
        [&json!("completed"), &json!(false)]
    );
    not_found(&get(&response).await);
    let asked = engine.attempt_count();
    let refused = large(r#""store":true,"#).answer(samewire.proxy).await;
    assert_eq!(refused.fault().code.as_deref(), Some("store_unavailable"));
    assert_eq!(
        (refused.head.status, engine.attempt_count()),
        (503, asked),
        "the engine got no request"
    );
    // The latest responses are still there, and others can be stored.
    assert_eq!(object(&get(&stored[99]).await), stored[99]);
    assert_eq!(
        object(&small(r#""store":true,"#).answer(samewire.proxy).await)["store"],
        true
    );
    let chat = Request::chat(
        r#"{"model":"text","messages":[{"role":"user","content":"x"}],"stream":true}"#,
    );
    assert_eq!(
        chat.answer(samewire.proxy).await.head.status,
        200,
        "chat needs no store"
    );
}

/// Running responses are never evicted. If they leave no room, a request whose response must be stored is refused
/// before an engine works for it.
#[tokio::test]
async fn fault_o14_what_needs_a_full_store_is_refused_before_the_engine_works() {
    let gate = Gate::default();
    let script = Script::new().wait(&gate).head_sse().role().text("a").stop();
    let world = World::start(script, Setup::new().config("[store]\nmax_bytes = 20000")).await;
    let ask = |more: &str, length: usize| {
        ask(&format!(
            r#""model":"m",{more}"input":"{}""#,
            "x".repeat(length)
        ))
    };
    let mut running = Vec::new();
    for _ in 0..2 {
        let response = object(&world.request(&ask(r#""background":true,"#, 4_000)).await);
        running.push(id(&response).to_owned());
    }
    until("the engine works for both", || {
        world.engine.attempt_count() == 2
    })
    .await;
    let refused = world.request(&ask(r#""store":true,"#, 15_000)).await;
    assert_eq!(
        (refused.head.status, refused.fault().code.as_deref()),
        (503, Some("store_unavailable"))
    );
    assert_eq!(world.engine.attempt_count(), 2, "the engine got no request");
    for id in &running {
        assert_eq!(get(&world, id).await.head.status, 200, "what runs is there");
    }
    gate.open();
    let response = last(&events(
        &world.request(&ask(r#""stream":true,"#, 30_000)).await,
    ))
    .clone();
    assert_eq!(
        [&response["status"], &response["store"]],
        [&json!("completed"), &json!(false)]
    );
    assert_eq!(
        world.stream("").await.head.status,
        200,
        "chat needs no store"
    );
    world.end().await;
}

#[tokio::test]
async fn fault_o02_what_a_shutdown_cuts_off_is_stored_as_failed() {
    let folder = Folder::new();
    let begun = Script::new()
        .head_sse()
        .ev(&chunk(
            "chatcmpl-1",
            r#"{"role":"assistant","content":""}"#,
            "null",
        ))
        .ev(&chunk("chatcmpl-1", r#"{"content":"Half"}"#, "null"))
        .hang();
    let engine = Engine::script(begun).await;
    let setup = Setup::stored(&folder).in_front_of(&engine);
    let mut first =
        Samewire::start(&setup.clone().config("[timeouts]\nsettle = 0\ndrain = 1")).await;
    let mut client = prompt("m", r#","stream":true"#)
        .begin_until(first.proxy, r#""delta":"Half""#)
        .await;
    first.signal("TERM");
    let error = event(&client.event_with("event: error").await);
    assert_eq!(error["code"], "draining");
    let failed = event(&client.event_with("event: response.failed").await)["response"].clone();
    assert_eq!(failed["status"], "failed");
    assert_eq!(first.exit(PATIENCE).await.code(), Some(0));
    let second = Samewire::start(&setup).await;
    let request = Request::get(&format!("/v1/responses/{}", id(&failed)));
    assert_eq!(object(&request.answer(second.proxy).await), failed);
}
