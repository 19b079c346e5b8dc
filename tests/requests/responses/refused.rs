//! Requests that are refused, each with the path to the mistake.

use super::{read, read_as_published, refusal, request};
use crate::table::rows;

/// Members of a request; below them, `param` and the mistake, as [`check`] takes them.
const ROWS: &str = r#"
"stream":true
    input: missing
"input":7
    input: it must be a string or a list of items.
"input":[]
    input: it must not be empty.
"input":"a","instructions":["b"]
    instructions: it must be a string.
"input":"a","max_output_tokens":0
    max_output_tokens: it must be an integer from 1 to 100000000.
"input":"a","max_tool_calls":-1
    max_tool_calls: it must be an integer from 0 to 100000000.
"input":"a","temperature":2.5
    temperature: it must be a number from 0 to 2.
"input":"a","top_p":"1"
    top_p: it must be a number from 0 to 1.
"input":"a","frequency_penalty":3
    frequency_penalty: it must be a number from -2 to 2.
"input":"a","presence_penalty":-3
    presence_penalty: it must be a number from -2 to 2.
"input":"a","top_logprobs":21
    top_logprobs: it must be an integer from 0 to 20.
"input":"a","parallel_tool_calls":"no"
    parallel_tool_calls: it must be true or false.
"input":"a","text":{"format":{"type":"xml"}}
    text.format.type: it must be text, json_object or json_schema.
"input":"a","text":{"format":{}}
    text.format.type: missing
"input":"a","text":{"format":{"type":"json_schema","schema":{}}}
    text.format.name: missing
"input":"a","text":{"format":{"type":"json_schema","name":"n"}}
    text.format.schema: missing
"input":"a","text":{"format":{"type":"json_schema","name":"n","schema":[]}}
    text.format.schema: it must be an object.
"input":"a","text":{"format":{"type":"json_schema","name":"n","schema":{},"strict":1}}
    text.format.strict: it must be true or false.
"input":"a","text":{"verbosity":"loud"}
    text.verbosity: it must be low, medium or high.
"input":"a","text":"json"
    text: it must be an object.
"input":"a","reasoning":{"effort":3}
    reasoning.effort: it must be a string.
"input":"a","reasoning":"low"
    reasoning: it must be an object.
"input":"a","include":"reasoning.encrypted_content"
    include: it must be a list.
"input":"a","stream":"yes"
    stream: it must be true or false.
"input":"a","stream_options":{}
    stream_options: it is only allowed together with stream.
"input":"a","stream":true,"stream_options":{"include_obfuscation":1}
    stream_options.include_obfuscation: it must be true or false.
"input":"a","store":"x"
    store: it must be true or false.
"input":"a","background":true,"store":false
    background: a response that is made in the background must be stored.
"input":"a","previous_response_id":1
    previous_response_id: it must be a string.
"input":"a","conversation":["conv_1"]
    conversation: it must be a string or an object with an id.
"input":"a","conversation":""
    conversation: it must not be empty.
"input":"a","conversation":{"id":""}
    conversation.id: it must not be empty.
"input":"a","conversation":{}
    conversation.id: missing
"input":"a","conversation":"c","previous_response_id":"r"
    previous_response_id: it excludes conversation; send one of the two.
"input":"a","truncation":"middle"
    truncation: it must be auto or disabled.
"input":"a","metadata":{"a":1}
    metadata.a: it must be a string.
"input":"a","metadata":{"a":"","a":""}
    metadata.a: twice
"input":"a","user":1
    user: it must be a string.
"input":"a","safety_identifier":1
    safety_identifier: it must be a string.
"input":"a","prompt_cache_key":1
    prompt_cache_key: it must be a string.
"input":"a","service_tier":1
    service_tier: it must be a string.
"prompt":{"id":"p"}
    prompt: unsupported: prompt templates are not stored; send 'input'.
"input":"a","n":2
    n: unsupported: a response is one answer.
"messages":[]
    messages: unsupported: in the Responses API, this parameter has moved to 'input'.
"input":"a","max_tokens":5
    max_tokens: unsupported: in the Responses API, this parameter has moved to 'max_output_tokens'.
"input":"a","response_format":{}
    response_format: unsupported: in the Responses API, this parameter has moved to 'text.format'.
"input":"a","reasoning_effort":"low"
    reasoning_effort: unsupported: in the Responses API, this parameter has moved to 'reasoning.effort'.
"input":"a","request_id":"x"
    request_id: forbidden
"input":"a","store":true,"store":false
    store: twice
"input":"a","text":{"verbosity":"low","verbosity":"high"}
    text.verbosity: twice
"#;

/// Refused input items, each at the third position.
const ITEMS: &str = r#"
7
    input[2]: it must be an object.
{}
    input[2].type: missing
{"type":"poem"}
    input[2].type: it must be the type of an item.
{"type":1}
    input[2].type: it must be a string.
{"type":"message","content":"a"}
    input[2].role: missing
{"role":"tool","content":"a"}
    input[2].role: it must be system, developer, user or assistant.
{"role":"user"}
    input[2].content: missing
{"role":"user","content":{}}
    input[2].content: it must be a string or a list of parts.
{"role":"user","content":["a"]}
    input[2].content[0]: it must be an object.
{"role":"user","content":[{"text":"a"}]}
    input[2].content[0].type: missing
{"role":"user","content":[{"type":"text","text":"a"}]}
    input[2].content[0].type: it must be input_text, output_text, input_image, input_file, input_audio or refusal.
{"role":"user","content":[{"type":"input_text"}]}
    input[2].content[0].text: missing
{"role":"user","content":[{"type":"input_image"}]}
    input[2].content[0].image_url: missing
{"role":"user","content":[{"type":"input_image","image_url":{"url":"x"}}]}
    input[2].content[0].image_url: it must be a string.
{"role":"user","content":[{"type":"input_image","file_id":"f"}]}
    input[2].content[0].file_id: unsupported: send the image in 'image_url'.
{"role":"user","content":[{"type":"input_file","filename":"f"}]}
    input[2].content[0].file_data: missing
{"role":"user","content":[{"type":"input_file","file_url":"u"}]}
    input[2].content[0].file_url: unsupported: send the file in 'file_data'.
{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"d"}}]}
    input[2].content[0].input_audio.format: missing
{"role":"user","content":[{"type":"input_text","text":"a","text":"b"}]}
    input[2].content[0].text: twice
{"type":"reasoning","summary":[{"type":"text","text":"a"}]}
    input[2].summary[0].type: it must be summary_text.
{"type":"reasoning","content":"a"}
    input[2].content: it must be a list.
{"type":"reasoning","encrypted_content":1}
    input[2].encrypted_content: it must be a string.
{"type":"function_call","name":"f","arguments":"{}"}
    input[2].call_id: missing
{"type":"function_call","call_id":"c","arguments":"{}"}
    input[2].name: missing
{"type":"function_call","call_id":"c","name":"f","arguments":{}}
    input[2].arguments: it must be a string.
{"type":"custom_tool_call","call_id":"c","name":"f"}
    input[2].input: missing
{"type":"function_call_output","call_id":"","output":"o"}
    input[2].call_id: it must not be empty.
{"type":"function_call_output","call_id":"c"}
    input[2].output: missing
{"type":"function_call_output","call_id":"c","output":[{"type":"refusal","refusal":"no"}]}
    input[2].output[0].type: it must be input_text, output_text, input_image, input_file or input_audio.
{"type":"item_reference"}
    input[2].id: missing
{"type":"compaction"}
    input[2].encrypted_content: missing
"#;

/// Refused tools and tool choices, after a function `f` and a custom tool `c`.
const TOOLS: &str = r#"
,7]
    tools[2]: it must be an object.
,{"name":"g"}]
    tools[2].type: missing
,{"type":"Web Search\r\n"}]
    tools[2].type: it must be the type of a tool.
,{"type":"function","function":{"name":"g"}}]
    tools[2].name: missing
,{"type":"function","name":""}]
    tools[2].name: it must not be empty.
,{"type":"function","name":"g","parameters":"{}"}]
    tools[2].parameters: it must be an object.
,{"type":"function","name":"g","strict":"yes"}]
    tools[2].strict: it must be true or false.
,{"type":"function","name":"g","description":1}]
    tools[2].description: it must be a string.
,{"type":"custom","name":"f"}]
    tools[2].name: a tool of another type has this name.
,{"type":"custom","name":"g","format":{"type":"xml"}}]
    tools[2].format.type: it must be text or grammar.
,{"type":"custom","name":"g","format":{"type":"grammar","syntax":"lark"}}]
    tools[2].format.definition: missing
,{"type":"namespace","name":"n"}]
    tools[2].tools: missing
,{"type":"namespace","tools":[]}]
    tools[2].name: missing
,{"type":"namespace","name":"n","tools":[{"type":"function"}]}]
    tools[2].tools[0].name: missing
,{"type":"namespace","name":"n","tools":[{"type":"namespace","name":"o","tools":[]}]}]
    tools[2].tools[0].type: it must be the type of a tool.
],"tool_choice":"any"
    tool_choice: it must be none, auto, required or an object.
],"tool_choice":3
    tool_choice: it must be an object.
],"tool_choice":{"name":"f"}
    tool_choice.type: missing
],"tool_choice":{"type":"function"}
    tool_choice.name: missing
],"tool_choice":{"type":"allowed_tools","tools":[]}
    tool_choice.mode: missing
],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]}
    tool_choice.tools: it must not be empty.
"#;

/// Checks that a request is refused for `fault`: the parameter, and what is wrong with its value unless it is
/// missing, given twice, forbidden or unsupported.
fn check(body: &str, fault: &str) {
    let (param, what) = fault.split_once(": ").unwrap();
    let (code, message) = match (what, what.strip_prefix("unsupported: ")) {
        (_, Some(why)) => (
            "unsupported_parameter",
            format!("Unsupported parameter: '{param}'; {why}"),
        ),
        ("missing", _) => (
            "missing_required_parameter",
            format!("Missing required parameter: '{param}'."),
        ),
        ("twice", _) => ("duplicate_key", format!("The key '{param}' occurs twice.")),
        ("forbidden", _) => (
            "forbidden_parameter",
            format!(
                "The parameter '{param}' is not allowed. Who runs this service can allow it: allowed_fields = [\"{param}\"] in [requests]."
            ),
        ),
        _ => (
            "invalid_value",
            format!("Invalid value for '{param}': {what}"),
        ),
    };
    let expected = (Some(param.to_owned()), Some(code.to_owned()), message);
    assert_eq!(refusal(read_as_published(body)), expected, "{body}");
}

#[test]
fn invalid_parameters_are_refused() {
    for (members, [fault]) in rows(ROWS) {
        check(&request(members), fault);
    }
    let (param, code, message) = refusal(read(&request(
        r#""input":"a","include":["message.output_text.logprobs","x"]"#,
    )));
    assert_eq!(
        (param.as_deref(), code.as_deref()),
        (Some("include[1]"), Some("invalid_value"))
    );
    let start = "Invalid value for 'include[1]': it must be file_search_call.results, ";
    assert!(message.starts_with(start), "{message}");
}

#[test]
fn invalid_items_are_refused() {
    for (item, [fault]) in rows(ITEMS) {
        let before = r#"{"role":"user","content":"a"},{"role":"assistant","content":"b"}"#;
        check(&request(&format!("\"input\":[{before},{item}]")), fault);
    }
}

#[test]
fn invalid_tools_are_refused() {
    for (tools, [fault]) in rows(TOOLS) {
        let before = r#"{"type":"function","name":"f"},{"type":"custom","name":"c"}"#;
        check(
            &request(&format!("\"input\":\"a\",\"tools\":[{before}{tools}")),
            fault,
        );
    }
    // A choice of an undeclared tool gets the API's own error, without a code.
    for (choice, param, name) in [
        (r#"{"type":"function","name":"g"}"#, "tool_choice", "g"),
        (r#"{"type":"custom","name":"f"}"#, "tool_choice", "f"),
        (
            r#"{"type":"function","namespace":"n","name":"f2"}"#,
            "tool_choice",
            "f2",
        ),
        (r#"{"type":"web_search"}"#, "tool_choice", "web_search"),
        (
            r#"{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]}"#,
            "tool_choice.tools[0]",
            "g",
        ),
    ] {
        let body = request(&format!(
            r#""input":"a","tools":[{{"type":"function","name":"f"}}],"tool_choice":{choice}"#
        ));
        let message = format!("Tool choice '{name}' not found in 'tools' parameter.");
        assert_eq!(
            refusal(read(&body)),
            (Some(param.to_owned()), None, message)
        );
    }
    let body = request(r#""input":"a","tool_choice":"required""#);
    check(
        &body,
        "tool_choice: it requires a call, but the request has no tools.",
    );
}

/// Limits on counts: the largest allowed number, and one more.
#[test]
fn counts_over_their_limits_are_refused() {
    let items = |count| {
        request(&format!(
            "\"input\":[{}]",
            vec![r#"{"role":"user","content":"a"}"#; count].join(",")
        ))
    };
    read(&items(10_000)).unwrap();
    check(
        &items(10_001),
        "input: it may have at most 10000 elements (`limits.max_messages`).",
    );
    let tools = |count: usize| {
        let all: Vec<_> = (0..count)
            .map(|at| format!(r#"{{"type":"function","name":"f{at}"}}"#))
            .collect();
        request(&format!("\"input\":\"a\",\"tools\":[{}]", all.join(",")))
    };
    read(&tools(1024)).unwrap();
    check(
        &tools(1025),
        "tools: it may have at most 1024 elements (`limits.max_tools`).",
    );
    let nested = |count: usize| {
        let all: Vec<_> = (0..count)
            .map(|at| format!(r#"{{"type":"function","name":"f{at}"}}"#))
            .collect();
        let space = |name: &str| {
            format!(
                r#"{{"type":"namespace","name":"{name}","tools":[{}]}}"#,
                all.join(",")
            )
        };
        request(&format!(
            "\"input\":\"a\",\"tools\":[{},{}]",
            space("a"),
            space("b")
        ))
    };
    read(&nested(512)).unwrap();
    check(
        &nested(513),
        "tools: it may have at most 1024 tools, those of namespaces included.",
    );
    let pairs: Vec<_> = (0..17).map(|at| format!("\"k{at}\":\"v\"")).collect();
    let metadata = |count: usize| {
        request(&format!(
            "\"input\":\"a\",\"metadata\":{{{}}}",
            pairs[..count].join(",")
        ))
    };
    read(&metadata(16)).unwrap();
    check(
        &metadata(17),
        "metadata: it may have at most 16 pairs (`limits.max_metadata_pairs`).",
    );
}
