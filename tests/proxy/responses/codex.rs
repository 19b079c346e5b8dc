//! Requests of the Codex CLI beyond functions: its search for tools, calls of the tools that the API names, and data
//! about its session.

use crate::official::Schemas;
use crate::responses::over_chat::{ask, chunk, events, last, object};
use crate::sim::prelude::*;

const SEARCH: &str = r#"{"type":"tool_search","execution":"client","description":"find tools","parameters":{"type":"object","properties":{"query":{"type":"string"}},"required":["query"],"additionalProperties":false}}"#;
const WEATHER: &str = r#"{"type":"function","name":"get_weather","description":"d","parameters":{"type":"object"},"strict":false}"#;

/// Answers with a call of `name` whose arguments come in two pieces.
fn call(id: &str, name: &str, arguments: [&str; 2]) -> Script {
    let [first, rest] = arguments.map(|piece| Value::from(piece).to_string());
    let start = format!(
        r#"{{"tool_calls":[{{"index":0,"id":"c1","type":"function","function":{{"name":"{name}","arguments":{first}}}}}]}}"#
    );
    let rest = format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{rest}}}}}]}}"#);
    let pieces = [
        (start.as_str(), "null"),
        (&rest, "null"),
        ("{}", r#""tool_calls""#),
    ];
    let script = Script::new().head_sse();
    pieces
        .iter()
        .fold(script, |all, (delta, finish)| {
            all.ev(&chunk(id, delta, finish))
        })
        .done()
        .end()
}

fn sent(world: &World, at: usize) -> Value {
    world.engine.attempts()[at].json()
}

fn names(request: &Value) -> Vec<&str> {
    request["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn the_search_for_tools_is_a_function_of_the_engine() {
    let scripts = vec![
        call("a1", "tool_search", ["{\"query\":", "\"x\"}"]),
        call("a2", "tool_search", ["{\"que", ""]),
        call("a3", "crm__find", ["{", "}"]),
    ];
    let world = World::start(Engine::in_turn(scripts), Setup::new()).await;
    let tools = format!(r#""tools":[{WEATHER},{SEARCH}]"#);
    let answer = world
        .request(&ask(&format!(
            r#""model":"m","input":"hi","stream":true,{tools}"#
        )))
        .await;
    assert_eq!(answer.head.header("x-samewire-dropped"), None);
    assert_eq!(names(&sent(&world, 0)), ["get_weather", "tool_search"]);
    let parameters: Value = serde_json::from_str(SEARCH).unwrap();
    assert_eq!(
        sent(&world, 0)["tools"][1]["function"]["parameters"],
        parameters["parameters"]
    );
    let streamed = events(&answer);
    let types: Vec<_> = streamed
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        types[2..],
        [
            "response.output_item.added",
            "response.output_item.done",
            "response.completed"
        ]
    );
    let item = |status: &str, arguments: Value| {
        let id = &streamed[2]["item"]["id"];
        json!({"id": id, "type": "tool_search_call", "status": status, "call_id": "c1", "execution": "client", "arguments": arguments})
    };
    assert!(
        streamed[2]["item"]["id"]
            .as_str()
            .unwrap()
            .starts_with("tsc_")
    );
    assert_eq!(streamed[2]["item"], item("in_progress", json!({})));
    let mut schemas = Schemas::load();
    streamed
        .iter()
        .for_each(|event| schemas.event(event).unwrap());
    let done = item("completed", json!({"query": "x"}));
    assert_eq!(streamed[3]["item"], done);
    assert_eq!(last(&streamed)["output"], json!([done]));
    // Arguments that break off are a text.
    let answer = world
        .request(&ask(&format!(
            r#""model":"m","input":"hi","stream":true,{tools}"#
        )))
        .await;
    let cut = last(&events(&answer))["output"][0].clone();
    assert_eq!(
        (&cut["status"], &cut["arguments"]),
        (&json!("incomplete"), &json!("{\"que"))
    );
    // The tools that the search has found are offered, once, and the model reads their names.
    let found = format!(
        r#"{{"type":"tool_search_output","call_id":"c1","execution":"client","status":"completed","tools":[{{"type":"namespace","name":"crm","description":"d","tools":[{{"type":"function","name":"find","defer_loading":true,"parameters":{{"type":"object"}}}}]}},{WEATHER}]}}"#
    );
    let input = format!(r#"[{{"role":"user","content":"hi"}},{done},{found}]"#);
    let answer = object(
        &world
            .request(&ask(&format!(r#""model":"m","input":{input},{tools}"#)))
            .await,
    );
    let request = sent(&world, 2);
    assert_eq!(names(&request), ["get_weather", "tool_search", "crm__find"]);
    assert_eq!(
        request["messages"],
        json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "tool_search", "arguments": "{\"query\":\"x\"}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "Tools found: crm__find, get_weather"},
        ])
    );
    let call = &answer["output"][0];
    assert_members(
        call,
        &json!({"type": "function_call", "name": "find", "namespace": "crm"}),
    );
    world.end().await;
}

/// A stored search is continued, and its tools stay on offer.
#[tokio::test]
async fn found_tools_stay_on_offer_in_a_stored_conversation() {
    let scripts = vec![
        call("a4", "tool_search", ["{}", ""]),
        call("a5", "find", ["{}", ""]),
        call("a6", "find", ["{}", ""]),
    ];
    let world = World::start(Engine::in_turn(scripts), Setup::new()).await;
    let first = object(
        &world
            .request(&ask(&format!(
                r#""model":"m","input":"hi","tools":[{SEARCH}]"#
            )))
            .await,
    );
    let onward = |previous: &Value, input: &str| {
        ask(&format!(
            r#""model":"m","previous_response_id":{},"input":{input},"tools":[{SEARCH}]"#,
            previous["id"]
        ))
    };
    let found = r#"[{"type":"tool_search_output","call_id":"c1","tools":[{"type":"function","name":"find","parameters":{"type":"object"}}]}]"#;
    let second = object(&world.request(&onward(&first, found)).await);
    let output = r#"[{"type":"function_call_output","call_id":"c1","output":"o"}]"#;
    object(&world.request(&onward(&second, output)).await);
    for at in [1, 2] {
        assert_eq!(names(&sent(&world, at)), ["tool_search", "find"]);
    }
    world.end().await;
}

#[tokio::test]
async fn calls_of_the_tools_that_the_api_names_are_calls_of_functions() {
    let world = World::start(
        Engine::in_turn(vec![call("a7", "f", ["{}", ""])]),
        Setup::new(),
    )
    .await;
    let input = [
        r#"{"role":"user","content":"hi"}"#,
        r#"{"type":"local_shell_call","id":"lsh_1","call_id":"c1","status":"completed","action":{"type":"exec","command":["ls"],"env":{}}}"#,
        r#"{"type":"local_shell_call_output","id":"c1","output":"a\n"}"#,
        r#"{"type":"shell_call","call_id":"c2","action":{"commands":["ls"],"timeout_ms":7}}"#,
        r#"{"type":"shell_call_output","call_id":"c2","output":[{"stdout":"a","stderr":"","outcome":{"type":"exit","exit_code":0}}]}"#,
        r#"{"type":"apply_patch_call","call_id":"c3","status":"completed","operation":{"type":"delete_file","path":"a"}}"#,
        r#"{"type":"apply_patch_call_output","call_id":"c3","status":"failed","output":"no such file"}"#,
        r#"{"type":"apply_patch_call","call_id":"c4","status":"completed","operation":{"type":"delete_file","path":"b"}}"#,
        r#"{"type":"apply_patch_call_output","call_id":"c4","status":"completed"}"#,
        r#"{"type":"tool_search_call","call_id":null,"execution":"server","arguments":{"paths":[]}}"#,
        r#"{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}}"#,
    ]
    .join(",");
    let body = format!(
        r#""model":"m","instructions":"","input":[{input}],"client_metadata":{{"x-codex-installation-id":"7"}}"#
    );
    let answer = world.request(&ask(&body)).await;
    object(&answer);
    let dropped = "input[9].tool_search_call,input[10].web_search_call";
    assert_eq!(answer.head.header("x-samewire-dropped"), Some(dropped));
    let request = sent(&world, 0);
    assert_eq!(request.get("client_metadata"), None);
    let call = |id: &str, name: &str, arguments: &str| json!({"role": "assistant", "tool_calls": [{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]});
    let output =
        |id: &str, content: &str| json!({"role": "tool", "tool_call_id": id, "content": content});
    assert_eq!(
        request["messages"],
        json!([
            {"role": "user", "content": "hi"},
            call("c1", "local_shell", r#"{"type":"exec","command":["ls"],"env":{}}"#),
            output("c1", "a\n"),
            call("c2", "shell", r#"{"commands":["ls"],"timeout_ms":7}"#),
            output("c2", r#"[{"stdout":"a","stderr":"","outcome":{"type":"exit","exit_code":0}}]"#),
            call("c3", "apply_patch", r#"{"type":"delete_file","path":"a"}"#),
            output("c3", "failed\nno such file"),
            call("c4", "apply_patch", r#"{"type":"delete_file","path":"b"}"#),
            output("c4", "completed"),
        ])
    );
    world.end().await;
}
