//! `tools` and `tool_choice`: what engines get of them (messages 3.4).

use super::{planned, request, sent};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const HI: &str = r#""messages":[{"role":"user","content":"hi"}]"#;
const HI_OPEN: &str = r#""messages":[{"role":"user","content":"hi"}"#;
const F: &str = r#"{"name":"f","description":"does","input_schema":{"type":"object"}}"#;

/// Returns the engine's members for tools.
fn tools(members: &str) -> Value {
    let body = planned("generic", "{}", &request(&format!("{HI}{members}")), None)
        .unwrap()
        .body;
    json!([
        body["tools"],
        body["tool_choice"],
        body["parallel_tool_calls"]
    ])
}

fn function(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "does", "parameters": {"type": "object"}}})
}

#[test]
fn functions() {
    assert_eq!(
        tools(&format!(r#","tools":[{F}]"#)),
        json!([[function("f")], null, null])
    );
    let all = r#","tools":[{"type":"custom","name":"f","input_schema":{},"strict":true,"cache_control":{"type":"ephemeral"},"input_examples":[{}],"eager_input_streaming":true}]"#;
    let strict =
        json!({"type": "function", "function": {"name": "f", "parameters": {}, "strict": true}});
    assert_eq!(tools(all), json!([[strict], null, null]));
    assert_eq!(tools(r#","tools":[]"#), json!([null, null, null]));
}

#[test]
fn choices() {
    for (choice, expected) in [
        (r#"{"type":"auto"}"#, json!(["auto", null])),
        (r#"{"type":"any"}"#, json!(["required", null])),
        (r#"{"type":"none"}"#, json!(["none", null])),
        (
            r#"{"type":"tool","name":"f"}"#,
            json!([{"type": "function", "function": {"name": "f"}}, null]),
        ),
        (
            r#"{"type":"auto","disable_parallel_tool_use":true}"#,
            json!(["auto", false]),
        ),
        (
            r#"{"type":"any","disable_parallel_tool_use":false}"#,
            json!(["required", null]),
        ),
    ] {
        let got = tools(&format!(r#","tools":[{F}],"tool_choice":{choice}"#));
        assert_eq!(json!([got[1], got[2]]), expected, "{choice}");
    }
    assert_eq!(
        tools(r#","tool_choice":{"type":"auto"}"#),
        json!([null, null, null]),
        "a choice among nothing"
    );
}

#[test]
fn tools_of_the_service_are_dropped_and_named() {
    let members = format!(
        r#"{HI},"tools":[{F},{{"type":"web_search_20250305","name":"web_search"}},{{"type":"code_execution_20250825","name":"code_execution"}}],"mcp_servers":[{{"type":"url","url":"https://example.com","name":"m"}}],"container":"c","context_management":{{}}"#
    );
    let got = sent(&members);
    assert_eq!(got.body["tools"], json!([function("f")]));
    assert_eq!(
        got.asked.dropped,
        [
            "tools[1].web_search_20250305",
            "tools[2].code_execution_20250825",
            "context_management",
            "container",
            "mcp_servers[0]",
        ]
    );
    let failure = planned(
        "vllm",
        r#"{"unsupported_tools":"reject"}"#,
        &request(&members),
        None,
    )
    .map(|sent| sent.body)
    .unwrap_err();
    assert!(
        failure.message.starts_with("tools.1.type: "),
        "{}",
        failure.message
    );
}

/// Tools whose loading is deferred would fill the prompt. A search for tools names those that are wanted.
#[test]
fn deferred_tools_wait_until_a_search_finds_them() {
    let deferred = r#"{"name":"g","description":"does","input_schema":{"type":"object"},"defer_loading":true}"#;
    let offered = format!(r#","tools":[{F},{deferred}]"#);
    assert_eq!(tools(&offered)[0], json!([function("f")]));
    let found = r#""messages":[{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"tool_reference","tool_name":"g"}]}]}]"#;
    let got = sent(&format!("{found}{offered}"));
    assert_eq!(got.body["tools"], json!([function("f"), function("g")]));
    assert_eq!(got.body["messages"][1]["content"], "Tool: g");
    assert_eq!(got.asked.dropped, [""; 0]);
}

/// System messages may put tools on offer and take them away. The state at the end counts.
#[test]
fn tools_that_come_and_go() {
    let deferred = r#"{"name":"g","description":"does","input_schema":{"type":"object"},"defer_loading":true}"#;
    let with = |blocks: &str| {
        let members = format!(
            r#""messages":[{{"role":"user","content":"a"}},{{"role":"system","content":[{blocks}]}}],"tools":[{F},{deferred}]"#
        );
        let body = sent(&members).body;
        assert_eq!(
            body["messages"],
            json!([{"role": "user", "content": "a"}]),
            "{blocks}"
        );
        body["tools"].clone()
    };
    let add = |name: &str| {
        format!(r#"{{"type":"tool_addition","tool":{{"type":"tool_reference","name":"{name}"}}}}"#)
    };
    let remove = |name: &str| {
        format!(r#"{{"type":"tool_removal","tool":{{"type":"tool_reference","name":"{name}"}}}}"#)
    };
    assert_eq!(with(&add("g")), json!([function("f"), function("g")]));
    assert_eq!(with(&remove("f")), Value::Null);
    assert_eq!(
        with(&format!("{},{},{}", remove("f"), add("g"), add("f"))),
        json!([function("f"), function("g")])
    );
    let define = r#"{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"h","description":"does","input_schema":{"type":"object"}}}}"#;
    assert_eq!(with(define), json!([function("f"), function("h")]));
    let toolset =
        r#"{"type":"tool_addition","tool":{"type":"mcp_toolset_reference","mcp_server_name":"s"}}"#;
    assert_eq!(with(toolset), json!([function("f")]));
}

/// Toolsets have no name.
#[test]
fn toolsets_are_dropped_and_named() {
    let got = sent(&format!(
        r#"{HI},"tools":[{F},{{"type":"mcp_toolset","mcp_server_name":"x"}},{{"type":"browser_toolset_20260801"}}]"#
    ));
    assert_eq!(
        got.asked.dropped,
        ["tools[1].mcp_toolset", "tools[2].browser_toolset_20260801"]
    );
}

/// The operator's limit counts tools that the conversation defines. Changes without end take no time to speak of.
#[test]
fn tools_without_end() {
    let define = |at: usize| {
        format!(
            r#"{{"type":"tool_addition","tool":{{"type":"tool_definition","definition":{{"name":"h{at}","input_schema":{{}}}}}}}}"#
        )
    };
    let with = |blocks: Vec<String>| {
        let messages: Vec<_> = blocks
            .chunks(9_000)
            .map(|some| format!(r#"{{"role":"system","content":[{}]}}"#, some.join(",")))
            .collect();
        request(&format!(
            r#"{HI_OPEN},{}],"tools":[{F}]"#,
            messages.join(",")
        ))
    };
    let failure =
        planned("vllm", "{}", &with((0..2_000).map(define).collect()), None).map(|sent| sent.body);
    let failure = failure.unwrap_err();
    assert!(
        failure.message.contains("limits.max_tools"),
        "{}",
        failure.message
    );
    let again = (0..200_000).map(|at| {
        let kind = if at % 2 == 0 {
            "tool_removal"
        } else {
            "tool_addition"
        };
        format!(r#"{{"type":"{kind}","tool":{{"type":"tool_reference","name":"f"}}}}"#)
    });
    let body = with(again.collect());
    let start = Instant::now();
    assert_eq!(
        planned("vllm", "{}", &body, None).unwrap().body["tools"],
        json!([function("f")])
    );
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
}
