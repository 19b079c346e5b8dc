//! API keys of clients: which are accepted, and what each gives access to (faults 10).

use crate::responses::over_chat::{TOOLS, ask, engine, object, prompt};
use crate::responses::socket::prompted;
use crate::sim::LINES_OF_ONE_REQUEST;
use crate::sim::prelude::*;
use sha2::{Digest, Sha256};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// Another key of the tenant of [`KEY`].
pub const SECOND: &str = "sk-CANARY-second";
/// Key without a tenant.
pub const OTHER: &str = "sk-CANARY-other";
/// Disabled key.
const OFF: &str = "sk-CANARY-off";
/// API key of the engine.
const ENGINES: &str = "sk-CANARY-engine";

/// Error for a short key, of which nothing may be shown.
const WRONG: &str = r#"{"error":{"message":"Incorrect API key provided: ***. Check the key, or ask for one where this service is run.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#;
const MISSING: &str = r#"{"error":{"message":"You didn't provide an API key. Send it in an Authorization header, as 'Authorization: Bearer YOUR_KEY'.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#;

/// Returns the error for more than one key.
fn several() -> String {
    WRONG.replace("***", "the request has more than one")
}

fn hash(key: &str) -> String {
    Sha256::digest(key)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns the configuration entry of a key.
pub fn entry(key: &str, lines: &str) -> String {
    format!("[[auth.key]]\nhash = \"{}\"\n{lines}\n", hash(key))
}

/// Returns a setup with two keys of one tenant, one key without a tenant, and one disabled key.
fn keys() -> Setup {
    let entries = [
        entry(KEY, "name = \"laptop\"\ntenant = \"acme\""),
        entry(SECOND, "tenant = \"acme\""),
        entry(OTHER, ""),
        entry(OFF, "tenant = \"acme\"\ndisabled = true"),
    ];
    Setup::new().config(&entries.concat())
}

/// Returns the same request with another key.
pub fn with(request: &Request, key: &str) -> Request {
    request
        .clone()
        .without("authorization")
        .header("authorization", &format!("Bearer {key}"))
}

/// Checks that the request was refused for its key, and that the response reveals nothing else.
fn refused(answer: &Answer, body: &str, what: &str) {
    assert_eq!((answer.head.status, answer.text()), (401, body), "{what}");
    answer.fault();
}

#[tokio::test]
async fn fault_c29_without_a_key_there_is_nothing() {
    let world = World::start(engine(), keys()).await;
    let long = "k".repeat(8 << 10);
    let almost = &KEY[..KEY.len() - 1];
    let longer = format!("{KEY}x");
    let digits = hash(KEY);
    let shown = |what: &str| WRONG.replace("***", what);
    let (of_long, several) = (shown("kkkkk***kkkk"), several());
    let of_digits = shown(&format!("{}***{}", &digits[..5], &digits[60..]));
    let rows = [
        (vec![], MISSING),
        (vec![String::new()], MISSING),
        (vec!["Bearer".to_owned()], MISSING),
        (vec!["Bearer ".to_owned()], MISSING),
        (vec!["Basic c2stQ0FOQVJZLTc3YWE6".to_owned()], MISSING),
        (vec![KEY.to_owned()], MISSING),
        (vec![format!("Token {KEY}")], MISSING),
        (
            vec![format!("Bearer {KEY}"), format!("Bearer {KEY}")],
            &several,
        ),
        (vec![format!("Bearer {KEY}, Bearer {KEY}")], WRONG),
        (vec![format!("Bearer {KEY} {KEY}")], WRONG),
        (vec![format!("Bearer {almost}")], WRONG),
        (vec![format!("Bearer {longer}")], WRONG),
        (vec![format!("Bearer {long}")], &of_long),
        (vec![format!("Bearer {digits}")], &of_digits),
        (vec![format!("Bearer {OFF}")], WRONG),
        (vec!["Bearer ' OR 1=1--".to_owned()], WRONG),
    ];
    for (lines, body) in &rows {
        let mut request = Request::stream("").without("authorization");
        for line in lines {
            request = request.header("authorization", line);
        }
        refused(&world.request(&request).await, body, &format!("{lines:?}"));
    }
    for header in ["api-key", "x-api-key", "openai-api-key", "cookie"] {
        let request = Request::stream("")
            .without("authorization")
            .header(header, KEY);
        refused(&world.request(&request).await, MISSING, header);
    }
    for target in [
        "/v1/chat/completions?api_key=",
        "/v1/chat/completions?api-key=",
        "/v1/models?key=",
    ] {
        let request = Request::get(&format!("{target}{KEY}")).without("authorization");
        refused(&world.request(&request).await, MISSING, target);
    }
    assert_eq!(world.engine.attempt_count(), 0);
    let spelled = Request::stream("")
        .without("authorization")
        .header("Authorization", "bearer   sk-CANARY-77aa");
    let spelled = spelled
        .body(prompt("text", "").sent_body())
        .target("/v1/responses");
    assert_eq!(world.request(&spelled).await.head.status, 200);
    world.end().await;
}

/// Every path requires a key, even one that does not exist: without a key, routes cannot be enumerated.
#[tokio::test]
async fn fault_c28_paths_are_told_to_those_with_a_key() {
    let world = World::start(engine(), keys()).await;
    let dated = "?api-version=2024-10-21";
    let routes = [
        ("POST", "/v1/chat/completions".to_owned()),
        ("POST", "/v1/completions".to_owned()),
        ("POST", "/v1/embeddings".to_owned()),
        ("GET", "/v1/models".to_owned()),
        ("GET", "/v1/models/text".to_owned()),
        ("POST", "/v1/responses".to_owned()),
        ("GET", "/v1/responses".to_owned()),
        ("GET", "/v1/responses/resp_1".to_owned()),
        ("DELETE", "/v1/responses/resp_1".to_owned()),
        ("POST", "/v1/responses/resp_1/cancel".to_owned()),
        ("GET", "/v1/responses/resp_1/input_items".to_owned()),
        ("POST", "/v1/responses/resp_1/tool_outputs".to_owned()),
        ("POST", "/v1/responses/compact".to_owned()),
        ("POST", "/v1/responses/input_tokens".to_owned()),
        ("POST", "/v1/conversations".to_owned()),
        ("GET", "/v1/conversations/conv_1".to_owned()),
        ("GET", "/v1/conversations/conv_1/items".to_owned()),
        (
            "POST",
            format!("/openai/deployments/text/chat/completions{dated}"),
        ),
        (
            "POST",
            "/openai/deployments/text/chat/completions".to_owned(),
        ),
        ("POST", format!("/openai/responses{dated}")),
        ("POST", "/openai/v1/responses".to_owned()),
        ("POST", "//v1/chat/completions".to_owned()),
        ("GET", "/v1/%2e%2e/metrics".to_owned()),
        ("GET", "/openai/nothing".to_owned()),
        ("GET", "/metrics".to_owned()),
        ("GET", "/".to_owned()),
        ("PUT", "/v1/chat/completions".to_owned()),
        ("TRACE", "/v1/models".to_owned()),
        ("GET", "http://localhost/metrics".to_owned()),
    ];
    for (method, target) in &routes {
        for (key, body) in [
            (None, MISSING),
            (Some("sk-CANARY-guess"), WRONG),
            (Some(OFF), WRONG),
        ] {
            let request = Request::new(method, target).without("authorization");
            let request = match key {
                Some(key) => with(&request, key),
                None => request,
            };
            refused(
                &world.request(&request).await,
                body,
                &format!("{method} {target}"),
            );
        }
    }
    assert_eq!(world.engine.attempt_count(), 0);
    assert_eq!(
        world.get("/v1/nothing").await.fault().code.as_deref(),
        Some("unknown_url")
    );
    assert_eq!(
        world
            .request(&Request::new("PUT", "/v1/models"))
            .await
            .head
            .status,
        405
    );
    world.end().await;
}

#[tokio::test]
async fn fault_c29_nothing_is_read_before_the_key_is_known() {
    let world = World::start(engine(), keys()).await;
    for target in [
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/v1/conversations",
    ] {
        for more in [
            ("content-length", "1073741824"),
            ("transfer-encoding", "chunked"),
        ] {
            let request = Request::post(target, "")
                .without("content-length")
                .header(more.0, more.1);
            let request = with(&request, "sk-CANARY-guess").header("expect", "100-continue");
            let mut client = Client::sending(world.proxy(), &request.head_bytes()).await;
            // It does not wait for the body, which never comes.
            let answer = client.answer().await;
            refused(&answer, WRONG, target);
            assert_eq!(answer.head.header("connection"), Some("close"), "{target}");
        }
    }
    world.end().await;
}

#[tokio::test]
async fn azures_header_opens_azures_routes_alone() {
    let world = World::start(engine(), keys()).await;
    let body = format!(
        r#"{{"model":"text","stream":true,"messages":[{{"role":"user","content":"{PROMPT}"}}]}}"#
    );
    let dated = "/openai/deployments/text/chat/completions?api-version=2024-10-21";
    let several = several();
    for target in [dated, "/openai/v1/chat/completions", "/v1/chat/completions"] {
        let azure = target != "/v1/chat/completions";
        let bare = Request::post(target, body.as_str()).without("authorization");
        let by_header = bare.clone().header("api-key", KEY);
        match azure {
            true => assert_eq!(world.request(&by_header).await.head.status, 200, "{target}"),
            false => refused(&world.request(&by_header).await, MISSING, target),
        }
        assert_eq!(
            world.request(&with(&bare, KEY)).await.head.status,
            200,
            "{target}"
        );
        // On routes that accept both headers, Azure's own takes precedence.
        let both = world
            .request(&with(&bare, KEY).header("api-key", "sk-CANARY-guess"))
            .await;
        assert_eq!(both.head.status, if azure { 401 } else { 200 }, "{target}");
        let both = world
            .request(&with(&bare, "sk-CANARY-guess").header("api-key", KEY))
            .await;
        assert_eq!(both.head.status, if azure { 200 } else { 401 }, "{target}");
        let twice = world
            .request(&by_header.clone().header("api-key", KEY))
            .await;
        refused(&twice, if azure { &several } else { MISSING }, target);
    }
    // With a valid key, the error describes the mistake in the path.
    let nowhere = Request::get("/openai/nothing")
        .without("authorization")
        .header("api-key", KEY);
    assert_eq!(world.request(&nowhere).await.head.status, 404);
    world.end().await;
}

/// Returns a setup with two keys, each with its own dialect and shape.
fn dialects() -> Setup {
    let wire = "wire = { responses_dialect = \"openresponses\", reasoning_field = \"reasoning\" }";
    Setup::new()
        .config("[wire]\nresponses_dialect = \"codex-legacy\"\n")
        .config(
            &(entry(KEY, wire)
                + &entry(SECOND, "wire.responses_dialect = \"openai\"")
                + &entry(OTHER, "")),
        )
}

#[tokio::test]
async fn a_key_chooses_the_dialect_and_a_header_beats_it() {
    let world = World::start(engine(), dialects()).await;
    let request = prompt("reason", r#","stream":true"#);
    let (open, usual, legacy) = ((true, false), (false, true), (true, true));
    for (key, header, expected) in [
        (KEY, None, open),
        (SECOND, None, usual),
        (OTHER, None, legacy),
        (KEY, Some("openai"), usual),
        (SECOND, Some("openresponses"), open),
        (OTHER, Some("openai"), usual),
        (KEY, Some("codex-legacy"), legacy),
    ] {
        let mut request = with(&request, key);
        if let Some(header) = header {
            request = request.header("x-samewire-dialect", header);
        }
        let answer = world.request(&request).await.with_status(200);
        let has = |event: &str| answer.text().contains(&format!("event: {event}\n"));
        let told = (
            has("response.reasoning.delta"),
            has("response.reasoning_text.delta"),
        );
        assert_eq!(told, expected, "{key} {header:?}: {}", answer.text());
        assert_eq!(
            answer.text().ends_with("\n\ndata: [DONE]\n\n"),
            expected == open,
            "{key} {header:?}"
        );
    }
    // Also over a WebSocket, and for background responses that are read again.
    for (key, kind) in [
        (KEY, "response.reasoning.delta"),
        (SECOND, "response.reasoning_text.delta"),
    ] {
        let request = with(&Socket::request("/v1/responses"), key);
        let mut socket = Socket::open_with(world.proxy(), &request).await;
        let events = socket.exchange(&prompted("reason", "")).await;
        assert!(
            events.iter().any(|event| event["type"] == kind),
            "{events:?}"
        );
        let made = prompt("reason", r#","stream":true,"background":true"#);
        let made = world.request(&with(&made, key)).await;
        assert!(
            made.text().contains(&format!("event: {kind}\n")),
            "{}",
            made.text()
        );
        let (_, id) = made.text().split_once(r#""id":""#).unwrap();
        let id = id.split('"').next().unwrap();
        let again = with(
            &Request::get(&format!("/v1/responses/{id}?stream=true")),
            key,
        );
        assert_eq!(world.request(&again).await.text(), made.text());
    }
    world.end().await;
}

#[tokio::test]
async fn other_options_go_by_the_key_too() {
    let world = World::start(engine(), dialects()).await;
    let body = r#"{"model":"reason","messages":[{"role":"user","content":"x"}],"stream":true}"#;
    let plain = body.replace(",\"stream\":true", "");
    for (key, both) in [(KEY, false), (SECOND, true)] {
        for body in [body, &plain] {
            let answer = world.request(&with(&Request::chat(body), key)).await;
            assert!(
                answer.text().contains(r#""reasoning":"#),
                "{}",
                answer.text()
            );
            assert_eq!(
                answer.text().contains(r#""reasoning_content":"#),
                both,
                "{}",
                answer.text()
            );
        }
    }
    world.end().await;
}

/// Keepalives are set by key: one key wants comments in pauses, the other none, on the same engine.
#[tokio::test]
async fn pauses_go_by_the_key_too() {
    let gate = Gate::default();
    let script = Script::stream().text("a").wait(&gate).stop();
    let keys =
        entry(KEY, "wire.keepalive_seconds = 1") + &entry(SECOND, "wire.keepalive_seconds = 0");
    let world = World::start(script, Setup::new().config(&keys)).await;
    let mut waiting = Vec::new();
    for key in [SECOND, KEY] {
        waiting.push(
            world
                .begin_until(&with(&Request::stream(""), key), r#""content":"a""#)
                .await,
        );
    }
    let (mut told, mut quiet) = (waiting.pop().unwrap(), waiting.pop().unwrap());
    told.event_with(": keepalive").await;
    gate.open();
    let rest = String::from_utf8(quiet.rest().await).unwrap();
    assert!(
        rest.ends_with("data: [DONE]\n\n") && !rest.contains(": keepalive"),
        "{rest}"
    );
    told.rest().await;
    world.end().await;
}

#[tokio::test]
async fn a_websocket_is_opened_by_a_key() {
    let world = World::start(engine(), keys()).await;
    let request = Socket::request("/v1/responses").without("authorization");
    let protocol = request.clone().header(
        "sec-websocket-protocol",
        &format!("openai-insecure-api-key.{KEY}"),
    );
    for (request, body) in [
        (request.clone(), MISSING),
        (protocol, MISSING),
        (with(&request, OFF), WRONG),
        (with(&request, "sk-CANARY-guess"), WRONG),
        (request.clone().header("api-key", KEY), MISSING),
    ] {
        let refusal = Socket::over(Client::connect(world.proxy()).await, &request.bytes())
            .await
            .err();
        refused(&refusal.expect("no WebSocket"), body, "before the upgrade");
    }
    let mut socket = Socket::open_with(world.proxy(), &with(&request, SECOND)).await;
    let events = socket.exchange(&prompted("text", "")).await;
    // The response is stored for the whole tenant, and for no other.
    let id = events.last().unwrap()["response"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let stored = Request::get(&format!("/v1/responses/{id}"));
    assert_eq!(world.request(&stored).await.head.status, 200);
    assert_eq!(world.request(&with(&stored, OTHER)).await.head.status, 404);
    let azure = request
        .target("/openai/v1/responses")
        .header("api-key", OTHER);
    let mut other = Socket::open_with(world.proxy(), &azure).await;
    other
        .send(&prompted(
            "text",
            &format!(r#","previous_response_id":"{id}""#),
        ))
        .await;
    assert_eq!(other.refused().await.1, "previous_response_not_found");
    assert_eq!(world.engine.only().header("authorization"), None);
    world.end().await;
}

#[tokio::test]
async fn fault_c31_models_that_are_not_there_for_a_key() {
    let engine = engine().await;
    engine.set_models(Script::ok(r#"{"object":"list","data":[{"id":"text","object":"model","created":5,"owned_by":"vllm"},{"id":"org/reason","object":"model","created":5,"owned_by":"vllm"}]}"#));
    let config = entry(KEY, "models = [\"text\", \"nowhere\"]") + &entry(OTHER, "");
    let world = World::start(engine, Setup::new().config(&config)).await;
    let ids = |answer: &Answer| {
        let list = object(answer);
        let ids = list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|model| model["id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    let list = Request::get("/v1/models");
    assert_eq!(ids(&world.request(&list).await), ["text"]);
    assert_eq!(
        ids(&world.request(&with(&list, OTHER)).await),
        ["text", "org/reason"]
    );
    let hidden = world.get("/v1/models/org/reason").await;
    let absent = world.get("/v1/models/org/absent").await;
    assert_eq!(
        hidden.failure(),
        "404 invalid_request_error model_not_found"
    );
    assert_eq!(
        hidden.text().replace("org/reason", "org/absent"),
        absent.text()
    );
    let before = world.engine.attempt_count();
    let named = |model: &str| {
        let chat = format!(r#""model":"{model}","messages":[{{"role":"user","content":"x"}}]"#);
        let target = format!(
            "/openai/deployments/{}/chat/completions?api-version=2024-10-21",
            model.replace('/', "%2F")
        );
        [
            Request::chat(format!("{{{chat}}}")),
            Request::chat(format!(r#"{{{chat},"stream":true}}"#)),
            Request::post(
                &target,
                r#"{"model":"text","messages":[{"role":"user","content":"x"}]}"#,
            ),
            Request::post(
                "/v1/completions",
                format!(r#"{{"model":"{model}","prompt":"x"}}"#),
            ),
            Request::post(
                "/v1/embeddings",
                format!(r#"{{"model":"{model}","input":"x"}}"#),
            ),
            prompt(model, ""),
            prompt(model, r#","background":true"#),
            prompt(model, "").target("/v1/responses/input_tokens"),
            prompt(model, "").target("/v1/responses/compact"),
        ]
    };
    for (there, absent) in named("org/reason").iter().zip(&named("org/absent")) {
        let there = world.request(there).await;
        assert_eq!(there.failure(), "404 invalid_request_error model_not_found");
        assert_eq!(there.fault().param.as_deref(), Some("model"));
        assert_eq!(
            there.text().replace("org/reason", "org/absent"),
            world.request(absent).await.text()
        );
    }
    let mut socket = Socket::open(world.proxy()).await;
    socket.send(&prompted("reason", "")).await;
    assert_eq!(
        socket.refused().await,
        (404, "model_not_found".into(), "model".into())
    );
    let nasty = format!("a\\u0000\\r\\nx-injected: 1{}", "y".repeat(200));
    let told = world.request(&prompt(&nasty, "")).await.fault().message;
    assert!(
        told.len() < 100 && !told.contains(char::is_control),
        "{told}"
    );
    assert_eq!(
        world.engine.attempt_count(),
        before,
        "nothing of it went upstream"
    );
    assert_eq!(world.request(&prompt("text", "")).await.head.status, 200);
    assert_eq!(
        world
            .request(&with(&prompt("reason", ""), OTHER))
            .await
            .head
            .status,
        200
    );
    world.end().await;
}

/// Returns every request about a response, a conversation and the items of both.
fn about(response: &str, conversation: &str, item: &str) -> Vec<Request> {
    let post = |more: &str| ask(&format!(r#""model":"text",{more}"#));
    let at = format!("/v1/responses/{response}");
    let talk = format!("/v1/conversations/{conversation}");
    let output = r#"{"tool_call_id":"call_1","output":"x"}"#;
    vec![
        Request::get(&at),
        Request::get(&format!("{at}?stream=true")),
        Request::get(&format!("/openai/v1/responses/{response}")),
        Request::get(&format!(
            "/openai/responses/{response}?api-version=2024-10-21"
        )),
        Request::get(&format!("{at}/input_items")),
        Request::post(&format!("{at}/cancel"), ""),
        Request::post(&format!("{at}/tool_outputs"), output),
        post(&format!(
            r#""input":"x","previous_response_id":"{response}""#
        )),
        post(&format!(
            r#""input":"x","background":true,"previous_response_id":"{response}""#
        )),
        post(&format!(
            r#""input":[{{"type":"item_reference","id":"{item}"}}]"#
        )),
        post(&format!(
            r#""input":"x","previous_response_id":"{response}""#
        ))
        .target("/v1/responses/input_tokens"),
        post(&format!(
            r#""input":"x","previous_response_id":"{response}""#
        ))
        .target("/v1/responses/compact"),
        Request::get(&talk),
        Request::post(&talk, r#"{"metadata":{"a":"b"}}"#),
        Request::get(&format!("{talk}/items")),
        Request::post(
            &format!("{talk}/items"),
            r#"{"items":[{"role":"user","content":"x"}]}"#,
        ),
        Request::get(&format!("{talk}/items/{item}")),
        Request::new("DELETE", &format!("{talk}/items/{item}")),
        Request::post(
            "/v1/conversations",
            format!(r#"{{"items":[{{"type":"item_reference","id":"{item}"}}]}}"#),
        ),
        post(&format!(r#""input":"x","conversation":"{conversation}""#)),
        Request::new("DELETE", &talk),
        Request::new("DELETE", &at),
    ]
}

#[tokio::test]
async fn fault_c32_tenants_never_see_each_others() {
    let world = World::start(engine(), keys()).await;
    let made = object(&world.request(&prompt("tools", &format!(",{TOOLS}"))).await);
    let (response, item) = (
        made["id"].as_str().unwrap(),
        made["output"][0]["id"].as_str().unwrap(),
    );
    let new = Request::post(
        "/v1/conversations",
        r#"{"items":[{"role":"user","content":"x"}]}"#,
    );
    let talk = object(&world.request(&new).await);
    let conversation = talk["id"].as_str().unwrap();
    let never = ["resp_zzzzzz", "conv_zzzzzz", "msg_zzzzzz"];
    let attempts = world.engine.attempt_count();
    let rows = about(response, conversation, item)
        .into_iter()
        .zip(about(never[0], never[1], never[2]));
    for (theirs, nobodys) in rows {
        let what = format!(
            "{} {}",
            theirs.path(),
            String::from_utf8_lossy(theirs.sent_body())
        );
        let (theirs, nobodys) = (
            world.request(&with(&theirs, OTHER)).await,
            world.request(&with(&nobodys, OTHER)).await,
        );
        assert!(
            matches!(theirs.head.status, 400 | 404),
            "{what}: {}",
            theirs.text()
        );
        assert_eq!(theirs.head.status, nobodys.head.status, "{what}");
        let told = theirs.text().replace(response, never[0]);
        let told = told.replace(conversation, never[1]).replace(item, never[2]);
        assert_eq!(told, nobodys.text(), "{what}");
    }
    assert_eq!(world.engine.attempt_count(), attempts);
    // Everything still exists, for both keys of the tenant.
    for key in [KEY, SECOND] {
        let stored = world
            .request(&with(
                &Request::get(&format!("/v1/responses/{response}")),
                key,
            ))
            .await;
        assert_eq!(object(&stored), made);
        let stored = world
            .request(&with(
                &Request::get(&format!("/v1/conversations/{conversation}")),
                key,
            ))
            .await;
        assert_eq!(object(&stored), talk);
    }
    let onward = ask(&format!(
        r#""model":"text","input":"x","conversation":"{conversation}""#
    ));
    object(&world.request(&with(&onward, SECOND)).await);
    let items = object(
        &world
            .get(&format!("/v1/conversations/{conversation}/items"))
            .await,
    );
    assert_eq!(items["data"].as_array().unwrap().len(), 3);
    // Reasoning sealed for another tenant is not decrypted.
    let sealed = prompt(
        "reason",
        r#","store":false,"include":["reasoning.encrypted_content"]"#,
    );
    let mut reasoning = object(&world.request(&sealed).await)["output"][0].clone();
    reasoning["content"] = json!([]);
    let again =
        json!({"model":"text","store":false,"input":[reasoning,{"role":"user","content":"x"}]});
    let again = Request::post("/v1/responses", again.to_string());
    assert_eq!(world.request(&with(&again, SECOND)).await.head.status, 200);
    let answer = world.request(&with(&again, OTHER)).await;
    assert_eq!(
        answer.head.header("x-samewire-dropped"),
        Some("input[0].encrypted_content")
    );
    assert_eq!(answer.head.status, 200);
    world.end().await;
}

#[tokio::test]
async fn keys_that_are_all_disabled_leave_nobody() {
    let config = entry(KEY, "disabled = true");
    let world = World::start(engine(), Setup::new().config(&config)).await;
    refused(&world.request(&prompt("text", "")).await, WRONG, "disabled");
    let nobody = prompt("text", "").without("authorization");
    refused(&world.request(&nobody).await, MISSING, "no key");
    world.end().await;
}

/// Checks that each request to an engine has this authorization, and no other key.
pub fn sees(engine: &Engine, seen: Option<&str>, what: &str) {
    for attempt in engine.attempts() {
        assert_eq!(
            attempt.header("authorization"),
            seen,
            "{what}: {}",
            attempt.target
        );
        assert_eq!(attempt.header("x-api-key"), None, "{what}");
        let head = String::from_utf8_lossy(&attempt.head);
        let whole = head.replace(seen.unwrap_or("-"), "") + attempt.text();
        assert!(!whole.contains("sk-"), "{what}: {whole}");
    }
}

#[tokio::test]
async fn the_engine_sees_no_key_but_its_own() {
    let folder = Folder::new();
    let own = folder.key(ENGINES);
    let client = format!("Bearer {KEY}");
    let engines = format!("Bearer {ENGINES}");
    for (lines, seen) in [
        ("", None),
        ("auth = \"none\"", None),
        ("auth = \"pass\"", Some(client.as_str())),
        (own.as_str(), Some(engines.as_str())),
    ] {
        let setup = keys().upstream_keys(&format!("name = \"engine\"\n{lines}"));
        let world = World::start(engine(), setup).await;
        world.request(&prompt("text", "")).await;
        world.request(&prompt("text", r#","stream":true"#)).await;
        world
            .chat(r#"{"model":"text","messages":[{"role":"user","content":"x"}]}"#)
            .await;
        world.get("/v1/models").await;
        let mut socket = Socket::open(world.proxy()).await;
        socket.exchange(&prompted("text", "")).await;
        let azure = prompt("text", "")
            .target("/openai/v1/responses")
            .without("authorization");
        assert_eq!(
            world
                .request(&azure.header("api-key", KEY))
                .await
                .head
                .status,
            200
        );
        assert!(
            world.engine.attempt_count() >= 5,
            "{}",
            world.engine.attempt_count()
        );
        sees(&world.engine, seen, lines);
        drop(socket);
        world.end().await;
    }
}

/// An engine's refusal of a key is not the client's fault if samewire does not forward the client's key
/// (wire-format 3.4).
#[tokio::test]
async fn an_engine_that_wants_a_key_is_not_the_clients_fault() {
    for (lines, status, code) in [
        ("name = \"engine\"", 502, "upstream_error"),
        ("auth = \"pass\"", 401, "invalid_api_key"),
    ] {
        let script = Script::new().json("401 Unauthorized", r#"{"error":"Unauthorized"}"#);
        let setup = keys().upstream_keys(lines).allow_errors();
        let world = World::start(script, setup).await;
        for request in [
            Request::stream(""),
            Request::plain(""),
            prompt("m", ""),
            prompt("m", r#","stream":true"#),
        ] {
            let answer = world.request(&request).await;
            assert_eq!(
                (answer.head.status, answer.fault().code.as_deref()),
                (status, Some(code)),
                "{lines}"
            );
        }
        world.end().await;
    }
}

#[tokio::test]
async fn lines_name_tenants_and_keys_as_operators_do() {
    let world = World::start(engine(), keys()).await;
    for key in [KEY, SECOND, OTHER, OFF] {
        world.request(&with(&prompt("text", ""), key)).await;
        until("its line", || !world.samewire.request_lines().is_empty()).await;
    }
    let mut socket = Socket::open(world.proxy()).await;
    socket.exchange(&prompted("text", "")).await;
    world.samewire.finished(6).await;
    let logs = world.samewire.logs();
    let lines: Vec<Value> = logs
        .iter()
        .filter(|line| line.contains(LINES_OF_ONE_REQUEST))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut told: Vec<_> = lines
        .iter()
        .map(|line| (line["tenant"].as_str(), line["key"].as_str()))
        .collect();
    told.sort();
    let laptop = (Some("acme"), Some("laptop"));
    let (second, other) = (
        (Some("acme"), Some("auth.key[1]")),
        (None, Some("auth.key[2]")),
    );
    assert_eq!(told, [(None, None), other, second, laptop, laptop, laptop]);
    let all = logs.join("\n") + &world.samewire.metrics().await;
    for key in [KEY, SECOND, OTHER, OFF] {
        let hash = hash(key);
        assert!(!all.contains(&hash[..12]) && !all.contains("key:"), "{all}");
    }
    world.end().await;
}

fn samewire(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_samewire"))
        .args(arguments)
        .env_clear()
        .output()
        .unwrap()
}

#[tokio::test]
async fn a_key_that_key_new_made_is_accepted() {
    let made: Vec<_> = [
        &["key", "new"][..],
        &["key", "new", "--name", "laptop", "--tenant", "alice"],
    ]
    .into_iter()
    .map(|arguments| {
        let Output {
            status,
            stdout,
            stderr,
        } = samewire(arguments);
        assert_eq!(status.code(), Some(0));
        (
            String::from_utf8(stdout).unwrap(),
            String::from_utf8(stderr).unwrap(),
        )
    })
    .collect();
    let keys: Vec<_> = made
        .iter()
        .map(|(key, _)| key.strip_suffix('\n').unwrap())
        .collect();
    let lines: Vec<_> = made.iter().map(|(_, lines)| lines.as_str()).collect();
    for key in &keys {
        assert!(
            key.starts_with("sk-") && key.len() == 46 && !key.contains(char::is_whitespace),
            "{key}"
        );
    }
    assert_ne!(keys[0], keys[1]);
    assert_eq!(
        lines[0],
        format!("\n[[auth.key]]\nhash = \"{}\"\n", hash(keys[0]))
    );
    let named = format!(
        "\n[[auth.key]]\nhash = \"{}\"\nname = \"laptop\"\ntenant = \"alice\"\n",
        hash(keys[1])
    );
    assert_eq!(lines[1], named);
    // The printed lines can be appended to a configuration file, and allow listening on other addresses.
    let folder = Folder::new();
    let path = folder.file("samewire.toml", &lines.concat());
    let base = [
        "check",
        "--config",
        &path,
        "--upstream",
        "http://127.0.0.1:1",
        "--listen",
        "0.0.0.0:8080",
    ];
    let checked = samewire(&base);
    let shown = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(
        checked.status.code(),
        Some(0),
        "{:?}",
        String::from_utf8(checked.stderr)
    );
    assert!(
        shown.contains("# Keys: 2; tenants: alice (1), 1 without a tenant's name"),
        "{shown}"
    );
    assert!(
        !shown.contains(&hash(keys[0])) && !shown.contains(&hash(keys[1])),
        "{shown}"
    );
    let both = samewire(&[&base[..], &["--insecure-no-auth"]].concat());
    assert_eq!(both.status.code(), Some(2));
    assert!(
        String::from_utf8(both.stderr)
            .unwrap()
            .starts_with("--insecure-no-auth: there are keys")
    );
    let world = World::start(engine(), Setup::new().config(&lines.concat())).await;
    for key in &keys {
        assert_eq!(
            world
                .request(&with(&prompt("text", ""), key))
                .await
                .head
                .status,
            200
        );
    }
    refused(
        &world.request(&prompt("text", "")).await,
        WRONG,
        "another key",
    );
    world.end().await;
}

#[test]
fn the_lines_of_a_key_are_appended_or_the_key_is_not_told() {
    let folder = Folder::new();
    let path = folder.file("samewire.toml", "threads = 1\n");
    let file = path.as_str();
    let Output {
        status,
        stdout,
        stderr,
    } = samewire(&["key", "new", "--name", "a", "--append", file]);
    assert_eq!((status.code(), stderr.len()), (Some(0), 0));
    let key = String::from_utf8(stdout).unwrap();
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        written,
        format!(
            "threads = 1\n\n[[auth.key]]\nhash = \"{}\"\nname = \"a\"\n",
            hash(key.trim_end())
        )
    );
    // A killed command with the same process id, as in a container, has left its file.
    let again = r#"touch "$(dirname "$1")/.$(basename "$1").$$" && exec "$0" key new --name b --append "$1""#;
    let again = Command::new("sh")
        .args(["-c", again, env!("CARGO_BIN_EXE_samewire"), file])
        .output()
        .unwrap();
    assert_eq!(
        again.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&again.stderr)
    );
    let written = std::fs::read_to_string(&path).unwrap();
    let wrong = samewire(&["key", "new", "--name", "my laptop", "--append", file]);
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        written,
        "nothing else gets into the file"
    );
    let nowhere = samewire(&["key", "new", "--append", "/nowhere/samewire.toml"]);
    assert_eq!((nowhere.status.code(), nowhere.stdout.len()), (Some(3), 0));
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let full = Command::new(env!("CARGO_BIN_EXE_samewire"))
        .args(["key", "new"])
        .stderr(full)
        .output()
        .unwrap();
    assert_eq!(full.status.code(), Some(3), "a key without its hash");
}

/// `key new` leaves a file unchanged, and prints no key, if the file would be invalid with the new key.
#[test]
fn a_file_that_a_key_would_break_stays_as_it_is() {
    let folder = Folder::new();
    let path = folder.path("samewire.toml");
    let file = path.to_str().unwrap();
    let entry = |name: &str| {
        format!(
            "[[auth.key]]\nhash = \"{}\"\nname = \"{name}\"\n",
            hash(name)
        )
    };
    for (text, name, told) in [
        (
            entry("laptop"),
            "laptop",
            "--name: auth.key[0] of FILE has this name already",
        ),
        ("listen = ".to_owned(), "a", "FILE:1: "),
        ("model_name = \"\"\"an open text\n".to_owned(), "a", "FILE:"),
        (
            format!("auth.key = [{{ hash = \"{}\" }}]\n", hash("x")),
            "a",
            "does not load",
        ),
        ("auth = { key = [] }\n".to_owned(), "a", "does not load"),
        (
            "insecure_no_auth = true\n".to_owned(),
            "a",
            "FILE:1: insecure_no_auth: there are keys",
        ),
        (
            "[[auth.key]]\nname = \"b\"\n".to_owned(),
            "a",
            "FILE:1: auth.key[0].hash: missing",
        ),
        (
            "auth = 5\n".to_owned(),
            "a",
            "FILE:1: auth: expected a table",
        ),
    ] {
        std::fs::write(&path, &text).unwrap();
        let output = samewire(&["key", "new", "--name", name, "--append", file]);
        let said = String::from_utf8(output.stderr)
            .unwrap()
            .replace(file, "FILE");
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(2), 0),
            "{text}: {said}"
        );
        assert!(
            said.contains(told) && said.ends_with("Nothing was written, and no key was made.\n"),
            "{said}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    // Mistakes elsewhere in the file do not matter.
    std::fs::write(&path, "lisen = 1\n[log]\nlevel = 5").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let link = folder.path("link.toml");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    // Several commands at once: no key is lost.
    let names = ["a", "b", "c", "d", "e", "f"];
    let link = link.to_str().unwrap();
    std::thread::scope(|scope| {
        for name in names {
            scope.spawn(move || {
                assert!(
                    samewire(&["key", "new", "--name", name, "--append", link])
                        .status
                        .success()
                )
            });
        }
    });
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with("lisen = 1\n[log]\nlevel = 5\n[[auth.key]]\n"),
        "{text}"
    );
    for name in names {
        assert_eq!(
            text.matches(&format!("name = \"{name}\"\n")).count(),
            1,
            "{text}"
        );
    }
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o640
    );
    assert!(std::fs::symlink_metadata(link).unwrap().is_symlink());
    // If stdout cannot be written, the key is not added to the file, and no temporary file is left.
    let closed = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    let lost = command
        .args(["key", "new", "--append", file])
        .env_clear()
        .stdout(closed)
        .output()
        .unwrap();
    assert_eq!(lost.status.code(), Some(3));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    assert_eq!(std::fs::read_dir(folder.folder()).unwrap().count(), 2);
}

#[test]
fn wrong_usage_makes_no_key() {
    for (arguments, expected) in [
        (&["key"][..], "new"),
        (
            &["key", "new", "--tenant", "a b"],
            "letters, digits, dots, dashes and underscores",
        ),
        (
            &["key", "new", "--name", ""],
            "letters, digits, dots, dashes and underscores",
        ),
        (&["key", "old"], "old"),
    ] {
        let output = samewire(arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(expected), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    let help = String::from_utf8(samewire(&["key", "new", "--help"]).stdout).unwrap();
    for word in [
        "--name",
        "--tenant",
        "sha256sum",
        "Exit codes",
        "cannot be shown again",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
}
