//! `[contract] mode`: answers are checked against the contract of the API before they are sent.

use crate::responses::over_chat::{event, events, last, object, prompt};
use crate::responses::socket::prompted;
use crate::sim::{Client, Engine, Gate, Request, Script, Setup, Socket, World};
use serde_json::{Value, json};

const COUNTED: &str = r#"samewire_contract_violations_total{api="responses",rule="schema"}"#;
const TEXT: &str = r#"{"id":"x","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"SECRET words","annotations":[]}]}"#;
/// Item without an action, which the published schema requires. Items of hosted tools pass as they come.
const SEARCH: &str = r#"{"id":"ws_1","type":"web_search_call","status":"completed"}"#;

fn native(mode: &str) -> Setup {
    Setup::new().config(&format!("[contract]\nmode = \"{mode}\"")).upstream_keys("responses = \"native\"")
}

fn response(status: &str, output: &str) -> String {
    format!(
        r#"{{"id":"resp_9","object":"response","created_at":5,"model":"m","status":"{status}","output":[{output}],"usage":null}}"#
    )
}

/// Answer with a text, and an item that the schema does not allow.
fn wrong(stream: bool, gate: &Gate) -> Script {
    let output = format!("{TEXT},{SEARCH}");
    if !stream {
        return Script::new().json("200 OK", &response("completed", &output));
    }
    let lifecycle = |kind: &str, status: &str, output: &str| {
        format!(r#"{{"type":"response.{kind}","response":{}}}"#, response(status, output))
    };
    // In one write, so that the end is read together with what is wrong.
    let rest = [
        format!(r#"{{"type":"response.output_item.added","output_index":1,"item":{SEARCH}}}"#),
        format!(r#"{{"type":"response.output_item.done","output_index":1,"item":{SEARCH}}}"#),
        lifecycle("completed", "completed", &output),
    ];
    Script::new()
        .head_sse()
        .ev(&lifecycle("created", "in_progress", ""))
        .ev(r#"{"type":"response.output_text.delta","item_id":"x","output_index":0,"content_index":0,"delta":"SECRET words"}"#)
        .ev(&format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{TEXT}}}"#))
        .wait(gate)
        .chunk(rest.map(|event| format!("data: {event}\n\n")).concat())
        .end()
}

/// Engine that sends what is wrong in a stream once the gate is open.
async fn engine(gate: &Gate) -> Engine {
    let gate = gate.clone();
    Engine::answering(move |attempt| {
        let body: Value = serde_json::from_slice(&attempt.body).unwrap();
        wrong(body["stream"] == true, &gate)
    })
    .await
}

/// Gate that is open.
fn open() -> Gate {
    let gate = Gate::default();
    gate.open();
    gate
}

/// Returns the log line of the violation.
async fn logged(world: &World) -> Value {
    serde_json::from_str(&world.samewire.logged("violates the contract", 1).await[0]).unwrap()
}

#[tokio::test]
async fn violations_are_counted_and_logged_and_the_answer_goes_out() {
    let setup = native("count").config("[capture]\nenabled = true").allow_errors();
    let world = World::start(engine(&open()).await, setup).await;
    let streamed =
        events(&world.ask(&prompt("text", r#","stream":true"#).header("x-request-id", "told-1")).await);
    assert_eq!(last(&streamed)["status"], "completed");
    assert_eq!(last(&streamed)["output"][1]["type"], "web_search_call");
    let line = logged(&world).await;
    assert_eq!(
        [&line["level"], &line["request_id"], &line["capture"], &line["api"], &line["rule"]],
        ["WARN", "told-1", "told-1", "responses", "schema"]
    );
    assert!(!line.to_string().contains("SECRET"), "{line}");
    // The item is told when it is added, when it is done and in the output.
    assert_eq!(world.samewire.metric(COUNTED).await, 3);
    let whole = object(&world.ask(&prompt("text", "")).await);
    assert_eq!(whole["output"][1]["type"], "web_search_call");
    world.end().await;
}

#[tokio::test]
async fn strict_fails_a_stream_in_place_of_the_violation() {
    let gate = Gate::default();
    let world = World::start(engine(&gate).await, native("strict").allow_errors()).await;
    let mut client = Client::connect(world.proxy()).await;
    client.send(&prompt("text", r#","stream":true"#).bytes()).await;
    assert_eq!(client.head().await.status, 200);
    let mut streamed: Vec<Value> = Vec::new();
    while let Some(text) = client.event().await {
        streamed.push(event(&text));
        assert_eq!(streamed.last().unwrap()["sequence_number"], streamed.len() - 1);
        if text.contains("response.output_text.delta") {
            gate.open();
        }
    }
    let kinds: Vec<_> = streamed.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[kinds.len() - 2..], ["error", "response.failed"]);
    assert_eq!(streamed[streamed.len() - 2]["code"], "contract_violation");
    assert!(streamed.iter().all(|event| event["item"]["type"] != "web_search_call"), "{kinds:?}");
    assert!(kinds.contains(&"response.output_text.delta"), "what was right has gone out: {kinds:?}");
    // The failed response is what the store has, too.
    let id = last(&streamed)["id"].as_str().unwrap().to_owned();
    let stored = object(&world.ask(&Request::get(&format!("/v1/responses/{id}"))).await);
    assert_eq!((&stored["status"], &stored["error"]["code"]), (&json!("failed"), &json!("server_error")));
    assert_eq!(world.samewire.metric(COUNTED).await, 1);
    // It is not held against the engine.
    assert!(
        world
            .samewire
            .metrics()
            .await
            .lines()
            .any(|line| line.starts_with("samewire_upstream_up{") && line.ends_with(" 1"))
    );
    world.end().await;
}

/// The end mark of a dialect has no number, although it is withheld with the events before it.
#[tokio::test]
async fn events_are_numbered_without_gaps_in_a_dialect_with_an_end_mark() {
    let gate = Gate::default();
    let world = World::start(engine(&gate).await, native("strict").allow_errors()).await;
    let mut client = Client::connect(world.proxy()).await;
    let request =
        prompt("text", r#","stream":true,"store":false"#).header("x-samewire-dialect", "openresponses");
    client.send(&request.bytes()).await;
    assert_eq!(client.head().await.status, 200);
    let mut kinds: Vec<String> = Vec::new();
    while let Some(text) = client.event().await.filter(|text| text != "data: [DONE]") {
        let event = event(&text);
        assert_eq!(event["sequence_number"], kinds.len(), "{event}");
        kinds.push(event["type"].as_str().unwrap().to_owned());
        if text.contains("response.output_text.delta") {
            gate.open();
        }
    }
    assert_eq!(kinds[kinds.len() - 2..], ["error", "response.failed"]);
    world.end().await;
}

#[tokio::test]
async fn strict_answers_with_an_error_in_place_of_an_object() {
    let world = World::start(engine(&open()).await, native("strict").allow_errors()).await;
    for more in ["", r#","store":false"#] {
        let answer = world.ask(&prompt("text", more)).await;
        assert_eq!(answer.failure().0, 500, "{}", answer.text());
        assert_eq!(answer.failure().2.as_deref(), Some("contract_violation"), "{}", answer.text());
        assert!(!answer.text().contains("SECRET"));
    }
    world.end().await;
}

#[tokio::test]
async fn strict_lets_good_answers_pass_on_every_way() {
    let engine = Engine::answering(|attempt| {
        let body: Value = serde_json::from_slice(&attempt.body).unwrap();
        match body["stream"] == true {
            true => Script::new().head_sse().role().text("Hel").text("lo").finish("stop").usage(9, 2).done().end(),
            false => Script::new().json(
                "200 OK",
                r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#,
            ),
        }
    });
    let world = World::start(engine.await, Setup::new().config("[contract]\nmode = \"strict\"")).await;
    for request in [
        Request::stream(r#","stream_options":{"include_usage":true}"#),
        Request::plain(""),
        prompt("m", r#","stream":true"#),
        prompt("m", ""),
        Request::post(
            "/v1/messages",
            r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"stream":true}"#,
        ),
        Request::post(
            "/v1/messages",
            r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}"#,
        ),
    ] {
        let answer = world.ask(&request).await;
        assert_eq!(answer.head.status, 200, "{}", answer.text());
        assert!(
            answer.text().contains("Hel") && !answer.text().contains("contract_violation"),
            "{}",
            answer.text()
        );
    }
    let mut socket = Socket::open(world.proxy()).await;
    socket.send(&prompted("m", "")).await;
    assert_eq!(last(&socket.response().await)["status"], "completed");
    let metrics = world.samewire.metrics().await;
    assert!(!metrics.contains("samewire_contract_violations_total{"), "{metrics}");
    world.end().await;
}
