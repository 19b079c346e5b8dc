//! Requests that are refused, each with the path to what is wrong.

use super::{read, read_as_published, refusal, request};

const VALUE: &str = "invalid_value";
const MISSING: &str = "missing_required_parameter";
const UNSUPPORTED: &str = "unsupported_parameter";
const TWICE: &str = "duplicate_key";

/// Members of a request, `param`, code and message.
const ROWS: &[(&str, &str, &str, &str)] = &[
    (r#""stream":true"#, "input", MISSING, "Missing required parameter: 'input'."),
    (r#""input":7"#, "input", VALUE, "Invalid value for 'input': it must be a string or a list of items."),
    (r#""input":[]"#, "input", VALUE, "Invalid value for 'input': it must not be empty."),
    (
        r#""input":"a","instructions":["b"]"#,
        "instructions",
        VALUE,
        "Invalid value for 'instructions': it must be a string.",
    ),
    (
        r#""input":"a","max_output_tokens":0"#,
        "max_output_tokens",
        VALUE,
        "Invalid value for 'max_output_tokens': it must be an integer from 1 to 100000000.",
    ),
    (
        r#""input":"a","max_tool_calls":-1"#,
        "max_tool_calls",
        VALUE,
        "Invalid value for 'max_tool_calls': it must be an integer from 0 to 100000000.",
    ),
    (
        r#""input":"a","temperature":2.5"#,
        "temperature",
        VALUE,
        "Invalid value for 'temperature': it must be a number from 0 to 2.",
    ),
    (
        r#""input":"a","top_p":"1""#,
        "top_p",
        VALUE,
        "Invalid value for 'top_p': it must be a number from 0 to 1.",
    ),
    (
        r#""input":"a","frequency_penalty":3"#,
        "frequency_penalty",
        VALUE,
        "Invalid value for 'frequency_penalty': it must be a number from -2 to 2.",
    ),
    (
        r#""input":"a","presence_penalty":-3"#,
        "presence_penalty",
        VALUE,
        "Invalid value for 'presence_penalty': it must be a number from -2 to 2.",
    ),
    (
        r#""input":"a","top_logprobs":21"#,
        "top_logprobs",
        VALUE,
        "Invalid value for 'top_logprobs': it must be an integer from 0 to 20.",
    ),
    (
        r#""input":"a","parallel_tool_calls":"no""#,
        "parallel_tool_calls",
        VALUE,
        "Invalid value for 'parallel_tool_calls': it must be true or false.",
    ),
    (
        r#""input":"a","text":{"format":{"type":"xml"}}"#,
        "text.format.type",
        VALUE,
        "Invalid value for 'text.format.type': it must be text, json_object or json_schema.",
    ),
    (
        r#""input":"a","text":{"format":{}}"#,
        "text.format.type",
        MISSING,
        "Missing required parameter: 'text.format.type'.",
    ),
    (
        r#""input":"a","text":{"format":{"type":"json_schema","schema":{}}}"#,
        "text.format.name",
        MISSING,
        "Missing required parameter: 'text.format.name'.",
    ),
    (
        r#""input":"a","text":{"format":{"type":"json_schema","name":"n"}}"#,
        "text.format.schema",
        MISSING,
        "Missing required parameter: 'text.format.schema'.",
    ),
    (
        r#""input":"a","text":{"format":{"type":"json_schema","name":"n","schema":[]}}"#,
        "text.format.schema",
        VALUE,
        "Invalid value for 'text.format.schema': it must be an object.",
    ),
    (
        r#""input":"a","text":{"format":{"type":"json_schema","name":"n","schema":{},"strict":1}}"#,
        "text.format.strict",
        VALUE,
        "Invalid value for 'text.format.strict': it must be true or false.",
    ),
    (
        r#""input":"a","text":{"verbosity":"loud"}"#,
        "text.verbosity",
        VALUE,
        "Invalid value for 'text.verbosity': it must be low, medium or high.",
    ),
    (r#""input":"a","text":"json""#, "text", VALUE, "Invalid value for 'text': it must be an object."),
    (
        r#""input":"a","reasoning":{"effort":3}"#,
        "reasoning.effort",
        VALUE,
        "Invalid value for 'reasoning.effort': it must be a string.",
    ),
    (
        r#""input":"a","reasoning":"low""#,
        "reasoning",
        VALUE,
        "Invalid value for 'reasoning': it must be an object.",
    ),
    (
        r#""input":"a","include":"reasoning.encrypted_content""#,
        "include",
        VALUE,
        "Invalid value for 'include': it must be a list.",
    ),
    (
        r#""input":"a","stream":"yes""#,
        "stream",
        VALUE,
        "Invalid value for 'stream': it must be true or false.",
    ),
    (
        r#""input":"a","stream_options":{}"#,
        "stream_options",
        VALUE,
        "Invalid value for 'stream_options': it is only allowed together with stream.",
    ),
    (
        r#""input":"a","stream":true,"stream_options":{"include_obfuscation":1}"#,
        "stream_options.include_obfuscation",
        VALUE,
        "Invalid value for 'stream_options.include_obfuscation': it must be true or false.",
    ),
    (r#""input":"a","store":"x""#, "store", VALUE, "Invalid value for 'store': it must be true or false."),
    (
        r#""input":"a","background":true,"store":false"#,
        "background",
        VALUE,
        "Invalid value for 'background': a response that is made in the background must be stored.",
    ),
    (
        r#""input":"a","previous_response_id":1"#,
        "previous_response_id",
        VALUE,
        "Invalid value for 'previous_response_id': it must be a string.",
    ),
    (
        r#""input":"a","conversation":["conv_1"]"#,
        "conversation",
        VALUE,
        "Invalid value for 'conversation': it must be a string or an object with an id.",
    ),
    (
        r#""input":"a","conversation":"""#,
        "conversation",
        VALUE,
        "Invalid value for 'conversation': it must not be empty.",
    ),
    (
        r#""input":"a","conversation":{"id":""}"#,
        "conversation.id",
        VALUE,
        "Invalid value for 'conversation.id': it must not be empty.",
    ),
    (
        r#""input":"a","conversation":{}"#,
        "conversation.id",
        MISSING,
        "Missing required parameter: 'conversation.id'.",
    ),
    (
        r#""input":"a","conversation":"c","previous_response_id":"r""#,
        "previous_response_id",
        VALUE,
        "Invalid value for 'previous_response_id': it excludes conversation; send one of the two.",
    ),
    (
        r#""input":"a","truncation":"middle""#,
        "truncation",
        VALUE,
        "Invalid value for 'truncation': it must be auto or disabled.",
    ),
    (
        r#""input":"a","metadata":{"a":1}"#,
        "metadata.a",
        VALUE,
        "Invalid value for 'metadata.a': it must be a string.",
    ),
    (r#""input":"a","metadata":{"a":"","a":""}"#, "metadata.a", TWICE, "The key 'metadata.a' occurs twice."),
    (r#""input":"a","user":1"#, "user", VALUE, "Invalid value for 'user': it must be a string."),
    (
        r#""input":"a","safety_identifier":1"#,
        "safety_identifier",
        VALUE,
        "Invalid value for 'safety_identifier': it must be a string.",
    ),
    (
        r#""input":"a","prompt_cache_key":1"#,
        "prompt_cache_key",
        VALUE,
        "Invalid value for 'prompt_cache_key': it must be a string.",
    ),
    (
        r#""input":"a","service_tier":1"#,
        "service_tier",
        VALUE,
        "Invalid value for 'service_tier': it must be a string.",
    ),
    (
        r#""prompt":{"id":"p"}"#,
        "prompt",
        UNSUPPORTED,
        "Unsupported parameter: 'prompt'; prompt templates are not stored; send 'input'.",
    ),
    (r#""input":"a","n":2"#, "n", UNSUPPORTED, "Unsupported parameter: 'n'; a response is one answer."),
    (
        r#""messages":[]"#,
        "messages",
        UNSUPPORTED,
        "Unsupported parameter: 'messages'; in the Responses API, this parameter has moved to 'input'.",
    ),
    (
        r#""input":"a","max_tokens":5"#,
        "max_tokens",
        UNSUPPORTED,
        "Unsupported parameter: 'max_tokens'; in the Responses API, this parameter has moved to 'max_output_tokens'.",
    ),
    (
        r#""input":"a","response_format":{}"#,
        "response_format",
        UNSUPPORTED,
        "Unsupported parameter: 'response_format'; in the Responses API, this parameter has moved to 'text.format'.",
    ),
    (
        r#""input":"a","reasoning_effort":"low""#,
        "reasoning_effort",
        UNSUPPORTED,
        "Unsupported parameter: 'reasoning_effort'; in the Responses API, this parameter has moved to 'reasoning.effort'.",
    ),
    (
        r#""input":"a","request_id":"x""#,
        "request_id",
        "forbidden_parameter",
        "The parameter 'request_id' is not allowed. Who runs this service can allow it: allowed_fields = [\"request_id\"] in [requests].",
    ),
    (r#""input":"a","store":true,"store":false"#, "store", TWICE, "The key 'store' occurs twice."),
    (
        r#""input":"a","text":{"verbosity":"low","verbosity":"high"}"#,
        "text.verbosity",
        TWICE,
        "The key 'text.verbosity' occurs twice.",
    ),
];

/// Refused input items, each at the third position.
const ITEMS: &[(&str, &str, &str, &str)] = &[
    ("7", "input[2]", VALUE, "Invalid value for 'input[2]': it must be an object."),
    ("{}", "input[2].type", MISSING, "Missing required parameter: 'input[2].type'."),
    (
        r#"{"type":"poem"}"#,
        "input[2].type",
        VALUE,
        "Invalid value for 'input[2].type': it must be the type of an item.",
    ),
    (r#"{"type":1}"#, "input[2].type", VALUE, "Invalid value for 'input[2].type': it must be a string."),
    (
        r#"{"type":"message","content":"a"}"#,
        "input[2].role",
        MISSING,
        "Missing required parameter: 'input[2].role'.",
    ),
    (
        r#"{"role":"tool","content":"a"}"#,
        "input[2].role",
        VALUE,
        "Invalid value for 'input[2].role': it must be system, developer, user or assistant.",
    ),
    (r#"{"role":"user"}"#, "input[2].content", MISSING, "Missing required parameter: 'input[2].content'."),
    (
        r#"{"role":"user","content":{}}"#,
        "input[2].content",
        VALUE,
        "Invalid value for 'input[2].content': it must be a string or a list of parts.",
    ),
    (
        r#"{"role":"user","content":["a"]}"#,
        "input[2].content[0]",
        VALUE,
        "Invalid value for 'input[2].content[0]': it must be an object.",
    ),
    (
        r#"{"role":"user","content":[{"text":"a"}]}"#,
        "input[2].content[0].type",
        MISSING,
        "Missing required parameter: 'input[2].content[0].type'.",
    ),
    (
        r#"{"role":"user","content":[{"type":"text","text":"a"}]}"#,
        "input[2].content[0].type",
        VALUE,
        "Invalid value for 'input[2].content[0].type': it must be input_text, output_text, input_image, input_file, input_audio or refusal.",
    ),
    (
        r#"{"role":"user","content":[{"type":"input_text"}]}"#,
        "input[2].content[0].text",
        MISSING,
        "Missing required parameter: 'input[2].content[0].text'.",
    ),
    (
        r#"{"role":"user","content":[{"type":"input_image"}]}"#,
        "input[2].content[0].image_url",
        MISSING,
        "Missing required parameter: 'input[2].content[0].image_url'.",
    ),
    (
        r#"{"role":"user","content":[{"type":"input_image","image_url":{"url":"x"}}]}"#,
        "input[2].content[0].image_url",
        VALUE,
        "Invalid value for 'input[2].content[0].image_url': it must be a string.",
    ),
    (
        r#"{"role":"user","content":[{"type":"input_image","file_id":"f"}]}"#,
        "input[2].content[0].file_id",
        UNSUPPORTED,
        "Unsupported parameter: 'input[2].content[0].file_id'; send the image in 'image_url'.",
    ),
    (
        r#"{"role":"user","content":[{"type":"input_file","filename":"f"}]}"#,
        "input[2].content[0].file_data",
        MISSING,
        "Missing required parameter: 'input[2].content[0].file_data'.",
    ),
    (
        r#"{"role":"user","content":[{"type":"input_file","file_url":"u"}]}"#,
        "input[2].content[0].file_url",
        UNSUPPORTED,
        "Unsupported parameter: 'input[2].content[0].file_url'; send the file in 'file_data'.",
    ),
    (
        r#"{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"d"}}]}"#,
        "input[2].content[0].input_audio.format",
        MISSING,
        "Missing required parameter: 'input[2].content[0].input_audio.format'.",
    ),
    (
        r#"{"role":"user","content":[{"type":"input_text","text":"a","text":"b"}]}"#,
        "input[2].content[0].text",
        TWICE,
        "The key 'input[2].content[0].text' occurs twice.",
    ),
    (
        r#"{"type":"reasoning","summary":[{"type":"text","text":"a"}]}"#,
        "input[2].summary[0].type",
        VALUE,
        "Invalid value for 'input[2].summary[0].type': it must be summary_text.",
    ),
    (
        r#"{"type":"reasoning","content":"a"}"#,
        "input[2].content",
        VALUE,
        "Invalid value for 'input[2].content': it must be a list.",
    ),
    (
        r#"{"type":"reasoning","encrypted_content":1}"#,
        "input[2].encrypted_content",
        VALUE,
        "Invalid value for 'input[2].encrypted_content': it must be a string.",
    ),
    (
        r#"{"type":"function_call","name":"f","arguments":"{}"}"#,
        "input[2].call_id",
        MISSING,
        "Missing required parameter: 'input[2].call_id'.",
    ),
    (
        r#"{"type":"function_call","call_id":"c","arguments":"{}"}"#,
        "input[2].name",
        MISSING,
        "Missing required parameter: 'input[2].name'.",
    ),
    (
        r#"{"type":"function_call","call_id":"c","name":"f","arguments":{}}"#,
        "input[2].arguments",
        VALUE,
        "Invalid value for 'input[2].arguments': it must be a string.",
    ),
    (
        r#"{"type":"custom_tool_call","call_id":"c","name":"f"}"#,
        "input[2].input",
        MISSING,
        "Missing required parameter: 'input[2].input'.",
    ),
    (
        r#"{"type":"function_call_output","call_id":"","output":"o"}"#,
        "input[2].call_id",
        VALUE,
        "Invalid value for 'input[2].call_id': it must not be empty.",
    ),
    (
        r#"{"type":"function_call_output","call_id":"c"}"#,
        "input[2].output",
        MISSING,
        "Missing required parameter: 'input[2].output'.",
    ),
    (
        r#"{"type":"function_call_output","call_id":"c","output":[{"type":"refusal","refusal":"no"}]}"#,
        "input[2].output[0].type",
        VALUE,
        "Invalid value for 'input[2].output[0].type': it must be input_text, output_text, input_image, input_file or input_audio.",
    ),
    (r#"{"type":"item_reference"}"#, "input[2].id", MISSING, "Missing required parameter: 'input[2].id'."),
    (
        r#"{"type":"compaction"}"#,
        "input[2].encrypted_content",
        MISSING,
        "Missing required parameter: 'input[2].encrypted_content'.",
    ),
];

/// Refused tools and tool choices, after a function `f` and a custom tool `c`.
const TOOLS: &[(&str, &str, &str, &str)] = &[
    (r#",7]"#, "tools[2]", VALUE, "Invalid value for 'tools[2]': it must be an object."),
    (r#",{"name":"g"}]"#, "tools[2].type", MISSING, "Missing required parameter: 'tools[2].type'."),
    (
        r#",{"type":"Web Search\r\n"}]"#,
        "tools[2].type",
        VALUE,
        "Invalid value for 'tools[2].type': it must be the type of a tool.",
    ),
    (
        r#",{"type":"function","function":{"name":"g"}}]"#,
        "tools[2].name",
        MISSING,
        "Missing required parameter: 'tools[2].name'.",
    ),
    (
        r#",{"type":"function","name":""}]"#,
        "tools[2].name",
        VALUE,
        "Invalid value for 'tools[2].name': it must not be empty.",
    ),
    (
        r#",{"type":"function","name":"g","parameters":"{}"}]"#,
        "tools[2].parameters",
        VALUE,
        "Invalid value for 'tools[2].parameters': it must be an object.",
    ),
    (
        r#",{"type":"function","name":"g","strict":"yes"}]"#,
        "tools[2].strict",
        VALUE,
        "Invalid value for 'tools[2].strict': it must be true or false.",
    ),
    (
        r#",{"type":"function","name":"g","description":1}]"#,
        "tools[2].description",
        VALUE,
        "Invalid value for 'tools[2].description': it must be a string.",
    ),
    (
        r#",{"type":"custom","name":"f"}]"#,
        "tools[2].name",
        VALUE,
        "Invalid value for 'tools[2].name': a tool of another type has this name.",
    ),
    (
        r#",{"type":"custom","name":"g","format":{"type":"xml"}}]"#,
        "tools[2].format.type",
        VALUE,
        "Invalid value for 'tools[2].format.type': it must be text or grammar.",
    ),
    (
        r#",{"type":"custom","name":"g","format":{"type":"grammar","syntax":"lark"}}]"#,
        "tools[2].format.definition",
        MISSING,
        "Missing required parameter: 'tools[2].format.definition'.",
    ),
    (
        r#",{"type":"namespace","name":"n"}]"#,
        "tools[2].tools",
        MISSING,
        "Missing required parameter: 'tools[2].tools'.",
    ),
    (
        r#",{"type":"namespace","tools":[]}]"#,
        "tools[2].name",
        MISSING,
        "Missing required parameter: 'tools[2].name'.",
    ),
    (
        r#",{"type":"namespace","name":"n","tools":[{"type":"function"}]}]"#,
        "tools[2].tools[0].name",
        MISSING,
        "Missing required parameter: 'tools[2].tools[0].name'.",
    ),
    (
        r#",{"type":"namespace","name":"n","tools":[{"type":"namespace","name":"o","tools":[]}]}]"#,
        "tools[2].tools[0].type",
        VALUE,
        "Invalid value for 'tools[2].tools[0].type': it must be the type of a tool.",
    ),
    (
        r#"],"tool_choice":"any""#,
        "tool_choice",
        VALUE,
        "Invalid value for 'tool_choice': it must be none, auto, required or an object.",
    ),
    (r#"],"tool_choice":3"#, "tool_choice", VALUE, "Invalid value for 'tool_choice': it must be an object."),
    (
        r#"],"tool_choice":{"name":"f"}"#,
        "tool_choice.type",
        MISSING,
        "Missing required parameter: 'tool_choice.type'.",
    ),
    (
        r#"],"tool_choice":{"type":"function"}"#,
        "tool_choice.name",
        MISSING,
        "Missing required parameter: 'tool_choice.name'.",
    ),
    (
        r#"],"tool_choice":{"type":"allowed_tools","tools":[]}"#,
        "tool_choice.mode",
        MISSING,
        "Missing required parameter: 'tool_choice.mode'.",
    ),
    (
        r#"],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]}"#,
        "tool_choice.tools",
        VALUE,
        "Invalid value for 'tool_choice.tools': it must not be empty.",
    ),
];

fn check(body: &str, (param, code, message): (&str, &str, &str)) {
    let expected = (Some(param.to_owned()), Some(code.to_owned()), message.to_owned());
    assert_eq!(refusal(read_as_published(body)), expected, "{body}");
}

#[test]
fn invalid_parameters_are_refused() {
    for (members, param, code, message) in ROWS {
        check(&request(members), (param, code, message));
    }
    let (param, code, message) =
        refusal(read(&request(r#""input":"a","include":["message.output_text.logprobs","x"]"#)));
    assert_eq!((param.as_deref(), code.as_deref()), (Some("include[1]"), Some(VALUE)));
    assert!(
        message.starts_with("Invalid value for 'include[1]': it must be file_search_call.results, "),
        "{message}"
    );
}

#[test]
fn invalid_items_are_refused() {
    for (item, param, code, message) in ITEMS {
        let before = r#"{"role":"user","content":"a"},{"role":"assistant","content":"b"}"#;
        check(&request(&format!("\"input\":[{before},{item}]")), (param, code, message));
    }
}

#[test]
fn invalid_tools_are_refused() {
    for (tools, param, code, message) in TOOLS {
        let before = r#"{"type":"function","name":"f"},{"type":"custom","name":"c"}"#;
        check(&request(&format!("\"input\":\"a\",\"tools\":[{before}{tools}")), (param, code, message));
    }
    // A choice of an undeclared tool gets the API's own error, without a code.
    for (choice, param, name) in [
        (r#"{"type":"function","name":"g"}"#, "tool_choice", "g"),
        (r#"{"type":"custom","name":"f"}"#, "tool_choice", "f"),
        (r#"{"type":"function","namespace":"n","name":"f2"}"#, "tool_choice", "f2"),
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
        assert_eq!(refusal(read(&body)), (Some(param.to_owned()), None, message));
    }
    let body = request(r#""input":"a","tool_choice":"required""#);
    check(
        &body,
        ("tool_choice", VALUE, "Invalid value for 'tool_choice': without tools none can be required."),
    );
}

/// Limits on counts: the largest allowed number, and one more.
#[test]
fn counts_over_their_limits_are_refused() {
    let items = |count| {
        request(&format!("\"input\":[{}]", vec![r#"{"role":"user","content":"a"}"#; count].join(",")))
    };
    read(&items(10_000)).unwrap();
    check(
        &items(10_001),
        (
            "input",
            VALUE,
            "Invalid value for 'input': it may have at most 10000 elements (`limits.max_messages`).",
        ),
    );
    let tools = |count: usize| {
        let all: Vec<_> = (0..count).map(|at| format!(r#"{{"type":"function","name":"f{at}"}}"#)).collect();
        request(&format!("\"input\":\"a\",\"tools\":[{}]", all.join(",")))
    };
    read(&tools(1024)).unwrap();
    check(
        &tools(1025),
        (
            "tools",
            VALUE,
            "Invalid value for 'tools': it may have at most 1024 elements (`limits.max_tools`).",
        ),
    );
    let nested = |count: usize| {
        let all: Vec<_> = (0..count).map(|at| format!(r#"{{"type":"function","name":"f{at}"}}"#)).collect();
        let space =
            |name: &str| format!(r#"{{"type":"namespace","name":"{name}","tools":[{}]}}"#, all.join(","));
        request(&format!("\"input\":\"a\",\"tools\":[{},{}]", space("a"), space("b")))
    };
    read(&nested(512)).unwrap();
    let message = "Invalid value for 'tools': it may have at most 1024 tools, those of namespaces included.";
    check(&nested(513), ("tools", VALUE, message));
    let pairs: Vec<_> = (0..17).map(|at| format!("\"k{at}\":\"v\"")).collect();
    let metadata =
        |count: usize| request(&format!("\"input\":\"a\",\"metadata\":{{{}}}", pairs[..count].join(",")));
    read(&metadata(16)).unwrap();
    check(
        &metadata(17),
        (
            "metadata",
            VALUE,
            "Invalid value for 'metadata': it may have at most 16 pairs (`limits.max_metadata_pairs`).",
        ),
    );
}
