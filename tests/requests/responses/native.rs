//! Requests for engines that get them in this API itself (wire-format 4.8, engines D).

use super::{options, request};
use bytes::Bytes;
use samewire::engine::named;
use samewire::request::Rules;
use samewire::request::responses::{ChatInputs, ResponsesMode, ResponsesRequest};
use samewire::wire::fault::Failure;
use serde_json::Value;
use std::sync::Arc;

fn unseal(sealed: &str) -> Option<String> {
    sealed
        .strip_prefix("swr1.")
        .or_else(|| sealed.strip_prefix("swc1."))
        .map(|text| format!("«{text}»"))
}

fn native(engine: &str, body: &str, material: &ChatInputs<'_>) -> Result<String, Failure> {
    let options = options("{}");
    let asked = ResponsesRequest::read_for(
        &Bytes::from(body.to_owned()),
        &options,
        ResponsesMode::Native,
        None,
        &Arc::new(Rules::ANSWERED),
    )?;
    let sent = asked.native(
        &ChatInputs {
            unseal: &unseal,
            ..*material
        },
        &named(engine).unwrap().takes,
        &options,
    )?;
    let text = String::from_utf8(sent.to_vec()).unwrap();
    serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    Ok(text)
}

fn sent(engine: &str, members: &str) -> String {
    native(engine, &request(members), &ChatInputs::default()).unwrap()
}

/// Returns the items that the engine receives for an input of these items.
fn items(engine: &str, list: &str) -> String {
    let sent = sent(engine, &format!("\"input\":[{list}]"));
    let input = sent.strip_prefix(r#"{"model":"m","input":["#).unwrap();
    input
        .strip_suffix(r#"],"store":false}"#)
        .unwrap()
        .to_owned()
}

#[test]
fn items_are_spelled_as_all_engines_read_them() {
    for (given, expected) in [
        (
            r#"{"role":"user","content":"a"}"#,
            r#"{"type":"message","role":"user","content":"a"}"#,
        ),
        (
            r#"{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:x"},{"type":"input_file","file_data":"d","filename":"f"},{"type":"input_audio","input_audio":{"data":"x","format":"wav"}}]}"#,
            r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:x","detail":"auto"},{"type":"input_file","filename":"f","file_data":"d"},{"type":"input_audio","input_audio":{"data":"x","format":"wav"}}]}"#,
        ),
        (
            r#"{"role":"developer","content":"a"}"#,
            r#"{"type":"message","role":"system","content":"a"}"#,
        ),
        // The items of one turn, in the order of a chat message; several parts are one text.
        (
            r#"{"type":"reasoning","id":"rs_x","summary":[],"content":[{"type":"reasoning_text","text":"r"},{"type":"reasoning_text","text":"s"}],"encrypted_content":"swr1.x"},{"type":"message","id":"msg_x","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a","annotations":[]},{"type":"output_text","text":"b"},{"type":"refusal","refusal":"c"}]},{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\":1}"},{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"o"}]}"#,
            r#"{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"rs"}]},{"type":"message","role":"assistant","content":"abc"},{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\":1}"},{"type":"function_call_output","call_id":"c1","output":"o"}"#,
        ),
        (
            r#"{"type":"custom_tool_call","call_id":"c1","name":"p","input":"x\n"},{"type":"custom_tool_call_output","call_id":"c1","output":[{"type":"input_image","image_url":"u"}]}"#,
            r#"{"type":"function_call","call_id":"c1","name":"p","arguments":"{\"input\":\"x\\n\"}"},{"type":"function_call_output","call_id":"c1","output":[{"type":"input_image","image_url":"u","detail":"auto"}]}"#,
        ),
        (
            r#"{"type":"reasoning","summary":[],"encrypted_content":"swr1.x"},{"role":"user","content":"a"}"#,
            r#"{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"«x»"}]},{"type":"message","role":"user","content":"a"}"#,
        ),
        (
            r#"{"type":"compaction","encrypted_content":"swc1.x"},{"role":"user","content":"a"}"#,
            r#"{"type":"message","role":"system","content":"«x»"},{"type":"message","role":"user","content":"a"}"#,
        ),
    ] {
        for engine in ["auto", "vllm", "sglang", "generic"] {
            assert_eq!(items(engine, given), expected, "{engine}");
        }
    }
    // Items of hosted tools: vLLM refuses them.
    let hosted = r#"{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}},{"role":"user","content":"a"}"#;
    let user = r#"{"type":"message","role":"user","content":"a"}"#;
    assert_eq!(items("vllm", hosted), user);
    assert!(items("generic", hosted).starts_with(r#"{"type":"web_search_call","id":"ws_1""#));
}

#[test]
fn history_and_references_are_written_out() {
    let material = ChatInputs {
        history: &[
            r#"{"id":"msg_1","type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}"#,
        ],
        resolved: &[(
            0,
            r#"{"id":"msg_2","type":"message","role":"assistant","content":[{"type":"output_text","text":"b"}]}"#,
        )],
        model_alias: Some("other"),
        ..ChatInputs::default()
    };
    let body = request(
        r#""previous_response_id":"resp_1","input":[{"type":"item_reference","id":"msg_2"},{"role":"user","content":"c"}]"#,
    );
    assert_eq!(
        native("vllm", &body, &material).unwrap(),
        r#"{"model":"other","input":[{"type":"message","role":"user","content":"a"},{"type":"message","role":"assistant","content":"b"},{"type":"message","role":"user","content":"c"}],"store":false}"#
    );
    let forgetful = ChatInputs {
        skip_oldest: 1,
        ..material
    };
    assert!(!native("vllm", &body, &forgetful).unwrap().contains("\"a\""));
}

#[test]
fn parameters_stay_and_state_does_not() {
    assert_eq!(
        sent("generic", r#""instructions":"","input":"a""#),
        sent("generic", r#""input":"a""#)
    );
    let all = r#""input":"a","instructions":"be \u00e9","max_output_tokens":16,"max_tool_calls":3,"temperature":0.50,"top_p":1,"frequency_penalty":0.1,"presence_penalty":0.2,"top_logprobs":2,"text":{"format":{"type":"json_object"},"verbosity":"low"},"reasoning":{"effort":"low","summary":"auto"},"user":"u","include":["reasoning.encrypted_content","message.output_text.logprobs","web_search_call.results","message.input_image.image_url"],"stream":true,"stream_options":{"include_obfuscation":true},"store":true,"truncation":"auto","metadata":{"a":"b"},"safety_identifier":"s","prompt_cache_key":"k","service_tier":"auto","parallel_tool_calls":false,"top_k":5"#;
    let expected = |limit: u32| {
        format!(
            r#"{{"model":"m","input":[{{"type":"message","role":"user","content":"a"}}],"store":false,"stream":true,"max_output_tokens":{limit},"instructions":"be \u00e9","max_tool_calls":3,"temperature":0.50,"top_p":1,"frequency_penalty":0.1,"presence_penalty":0.2,"top_logprobs":2,"text":{{"format":{{"type":"json_object"}},"verbosity":"low"}},"reasoning":{{"effort":"low","summary":"auto"}},"user":"u","include":["message.output_text.logprobs","web_search_call.results"],"top_k":5}}"#
        )
    };
    assert_eq!(sent("vllm", all), expected(16));
    // SGLang subtracts 2 from the limit.
    assert_eq!(sent("sglang", all), expected(18));
}

#[test]
fn tools_are_functions_and_hosted_ones_pass() {
    let tools = r#"{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true},{"type":"custom","name":"p"},{"type":"namespace","name":"ns","tools":[{"type":"function","name":"g","parameters":{}}]},{"type":"web_search_preview","x": 1},{"type":"mcp","server_label":"s"}"#;
    let function = r#"{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true}"#;
    let custom = r#"{"type":"function","name":"p","parameters":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}}"#;
    let inner = r#"{"type":"function","name":"ns__g","parameters":{}}"#;
    let (search, mcp) = (
        r#"{"type":"web_search_preview","x":1}"#,
        r#"{"type":"mcp","server_label":"s"}"#,
    );
    let all = format!("{function},{custom},{inner},{search},{mcp}");
    for (choice, offered, chosen) in [
        ("", all.clone(), ""),
        (
            r#","tool_choice":"required""#,
            all.clone(),
            r#","tool_choice":"required""#,
        ),
        (
            r#","tool_choice":{"type":"custom","name":"p"}"#,
            all.clone(),
            r#","tool_choice":{"type":"function","name":"p"}"#,
        ),
        (
            r#","tool_choice":{"type":"web_search_preview"}"#,
            all,
            r#","tool_choice":{"type":"web_search_preview"}"#,
        ),
        (
            r#","tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"},{"type":"mcp","server_label":"s"}]}"#,
            format!("{function},{mcp}"),
            r#","tool_choice":"auto""#,
        ),
    ] {
        let sent = sent(
            "vllm",
            &format!("\"input\":\"a\",\"tools\":[{tools}]{choice}"),
        );
        let rest = sent.split_once("\"store\":false").unwrap().1;
        assert_eq!(rest, format!(",\"tools\":[{offered}]{chosen}}}"));
    }
    let body = request(&format!("\"input\":\"a\",\"tools\":[{tools}]"));
    let asked = ResponsesRequest::read_for(
        &Bytes::from(body),
        &options("{}"),
        ResponsesMode::Native,
        None,
        &Arc::new(Rules::ANSWERED),
    )
    .unwrap();
    assert!(asked.dropped.is_empty());
    let reject = options(r#"{"unsupported_tools":"reject"}"#);
    let body = request(r#""input":"a","tools":[{"type":"web_search"}]"#);
    assert!(
        ResponsesRequest::read_for(
            &Bytes::from(body),
            &reject,
            ResponsesMode::Native,
            None,
            &Arc::new(Rules::ANSWERED)
        )
        .is_ok()
    );
}

#[test]
fn what_is_sealed_by_others_is_left_out() {
    let sealed = r#"{"role":"user","content":"a"},{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}"#;
    assert_eq!(
        items("sglang", sealed),
        r#"{"type":"message","role":"user","content":"a"}"#
    );
}
