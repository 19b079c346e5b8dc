//! Requests that are refused: the message begins with the path of the field (messages 7.1).

use super::{message_form, planned, refusal, request, talk};

const HI: &str = r#""messages":[{"role":"user","content":"hi"}]"#;

#[test]
fn settings() {
    for (members, expected) in [
        (r#","temperature":"warm""#, "temperature: "),
        (r#","top_p":"x""#, "top_p: "),
        (r#","top_k":-1"#, "top_k: "),
        (r#","stop_sequences":"a""#, "stop_sequences: "),
        (
            r#","stop_sequences":[1]"#,
            "stop_sequences.0: it must be a string",
        ),
        (r#","stream":"yes""#, "stream: it must be true or false"),
        (r#","metadata":1"#, "metadata: it must be an object"),
        (
            r#","metadata":{"user_id":1}"#,
            "metadata.user_id: it must be a string",
        ),
        (r#","thinking":{}"#, "thinking.type: Field required"),
        (r#","thinking":{"type":"on"}"#, "thinking.type: it must be "),
        (
            r#","thinking":{"type":"enabled"}"#,
            "thinking.budget_tokens: Field required",
        ),
        (
            r#","thinking":{"type":"enabled","budget_tokens":0}"#,
            "thinking.budget_tokens: it must be a positive integer",
        ),
        (
            r#","thinking":{"type":"enabled","budget_tokens":"x"}"#,
            "thinking.budget_tokens: it must be ",
        ),
        (
            r#","output_config":{"effort":"huge"}"#,
            "output_config.effort: it must be low, medium, high, xhigh or max",
        ),
        (
            r#","output_config":{"format":{"type":"regex"}}"#,
            "output_config.format.type: it must be json_schema",
        ),
        (
            r#","output_config":{"format":{"type":"json_schema"}}"#,
            "output_config.format.schema: Field required",
        ),
        (
            r#","output_format":{"schema":{}}"#,
            "output_format.type: Field required",
        ),
        (
            r#","compaction":{"type":"auto"}"#,
            "compaction: this is not supported; ask for a summary in a message",
        ),
        (r#","model":"m""#, "The key 'model' occurs twice."),
        (
            r#","kv_transfer_params":{}"#,
            "The parameter 'kv_transfer_params' is not allowed. ",
        ),
    ] {
        let got = refusal(&format!("{HI}{members}"));
        assert!(got.starts_with(expected), "{members}: {got}");
    }
    for (body, expected) in [
        (
            format!(r#"{{"model":"m","max_tokens":-1,{HI}}}"#),
            "max_tokens: it must be an integer from 0 to ",
        ),
        (
            format!(r#"{{"model":"m","max_tokens":"9",{HI}}}"#),
            "max_tokens: it must be ",
        ),
        (
            format!(r#"{{"model":1,"max_tokens":9,{HI}}}"#),
            "model: it must be a string",
        ),
        (
            "[]".to_owned(),
            "The request body is not valid JSON for this API: it must be an object.",
        ),
        ("{".to_owned(), "The request body is not valid JSON"),
    ] {
        let got = planned("vllm", "{}", &body, None)
            .map(|sent| sent.body)
            .unwrap_err();
        assert!(got.message.starts_with(expected), "{body}: {}", got.message);
    }
}

/// Parameters of Chat Completions would be lost, so the message says what takes their place.
#[test]
fn parameters_of_another_api() {
    for (member, instead) in [
        (
            r#""stop":["a"]"#,
            "stop: this is no parameter of the Messages API; it has 'stop_sequences'",
        ),
        (
            r#""max_completion_tokens":9"#,
            "max_completion_tokens: this is no parameter of the Messages API; it has 'max_tokens'",
        ),
        (r#""response_format":{}"#, "response_format: "),
        (r#""reasoning_effort":"low""#, "reasoning_effort: "),
        (
            r#""logprobs":true"#,
            "logprobs: this is no parameter of the Messages API; it has nothing: ",
        ),
        (r#""n":2"#, "n: "),
        (r#""functions":[]"#, "functions: "),
    ] {
        let got = refusal(&format!("{HI},{member}"));
        assert!(got.starts_with(instead), "{member}: {got}");
    }
    for harmless in [r#""n":1"#, r#""stop":null"#] {
        assert!(
            planned("vllm", "{}", &request(&format!("{HI},{harmless}")), None).is_ok(),
            "{harmless}"
        );
    }
}

#[test]
fn messages() {
    for (messages, expected) in [
        ("", "messages: at least one message is required"),
        (r#""x""#, "messages.0: it must be an object"),
        (r#"{"content":"a"}"#, "messages.0.role: Field required"),
        (
            r#"{"role":"tool","content":"a"}"#,
            "messages.0.role: it must be user, assistant, system or developer",
        ),
        (r#"{"role":"user"}"#, "messages.0.content: Field required"),
        (
            r#"{"role":"user","content":1}"#,
            "messages.0.content: it must be a string or a list of blocks",
        ),
        (
            r#"{"role":"user","content":[1]}"#,
            "messages.0.content.0: it must be an object",
        ),
        (
            r#"{"role":"user","content":[{"text":"a"}]}"#,
            "messages.0.content.0.type: Field required",
        ),
        (
            r#"{"role":"user","content":[{"type":"text"}]}"#,
            "messages.0.content.0.text: Field required",
        ),
        (
            r#"{"role":"user","content":[{"type":"video"}]}"#,
            "messages.0.content.0.type: `video` blocks are not supported",
        ),
        (
            r#"{"role":"user","content":[{"type":"image"}]}"#,
            "messages.0.content.0.source: Field required",
        ),
        (
            r#"{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"f"}}]}"#,
            "messages.0.content.0.source.type: file images are not supported",
        ),
        (
            r#"{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://127.0.0.1/a"}}]}"#,
            "messages.0.content.0.source.url: ",
        ),
        (
            r#"{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AA=="}}]}"#,
            "messages.0.content.0.source.type: base64 documents are not supported; unsupported_content = \"drop\" leaves such blocks out",
        ),
        (
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c9"}]}"#,
            "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: c9. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
        ),
        (
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{}},{"type":"tool_use","id":"c1","name":"f","input":{}}]}"#,
            "messages.0.content.1.id: `tool_use` ids must be unique",
        ),
        (
            r#"{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{}}]}"#,
            "messages.0.content.0.id: Field required",
        ),
    ] {
        let got = refusal(&talk(messages));
        assert!(got.starts_with(expected), "{messages}: {got}");
    }
    assert!(
        refusal(r#""system":1,"messages":[]"#)
            .starts_with("system: it must be a string or a list of blocks")
    );
}

/// The official libraries continue without a thread where the error has this code.
#[test]
fn fault_c48_threads_are_refused() {
    for thread in [
        r#"{"type":"create"}"#,
        r#"{"type":"continue","previous_message_id":"msg_1"}"#,
        "true",
    ] {
        let failure = planned(
            "vllm",
            "{}",
            &request(&format!("{HI},\"thread\":{thread}")),
            None,
        );
        let (status, body) = message_form::error(&failure.map(|sent| sent.body).unwrap_err());
        assert_eq!(status, 400, "{thread}");
        let details =
            r#""details":{"error_code":"thread_unsupported_request","unsupported":["thread"]}"#;
        assert!(body.contains(details), "{thread}: {body}");
    }
    for thread in ["null", "false"] {
        let sent = planned(
            "vllm",
            "{}",
            &request(&format!("{HI},\"thread\":{thread}")),
            None,
        )
        .unwrap();
        assert_eq!(sent.body["thread"], serde_json::Value::Null, "{thread}");
    }
}

#[test]
fn tools() {
    for (members, expected) in [
        (r#","tools":{}"#, "tools: "),
        (
            r#","tools":[{"input_schema":{}}]"#,
            "tools.0.name: Field required",
        ),
        (
            r#","tools":[{"name":"f"}]"#,
            "tools.0.input_schema: Field required",
        ),
        (
            r#","tool_choice":"auto""#,
            "tool_choice: it must be an object",
        ),
        (r#","tool_choice":{}"#, "tool_choice.type: Field required"),
        (
            r#","tool_choice":{"type":"some"}"#,
            "tool_choice.type: it must be auto, any, tool or none",
        ),
        (
            r#","tool_choice":{"type":"tool"}"#,
            "tool_choice.name: Field required",
        ),
        (
            r#","tool_choice":{"type":"tool","name":"g"}"#,
            "tool_choice.name: Tool 'g' not found in provided tools",
        ),
        (
            r#","tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"tool","name":"web_search"}"#,
            "tool_choice.name: Tool 'web_search' was left out: only Anthropic's service has it",
        ),
    ] {
        let got = refusal(&format!("{HI}{members}"));
        assert!(got.starts_with(expected), "{members}: {got}");
    }
}

/// Fields that neither API names reach the engine, unless the operator refuses them.
#[test]
fn unknown_fields() {
    let body = request(&format!("{HI},\"min_p\":0.1"));
    let got = planned("vllm", r#"{"request_unknown":"reject"}"#, &body, None)
        .map(|sent| sent.body)
        .unwrap_err();
    assert!(got.message.contains("min_p"), "{}", got.message);
}
