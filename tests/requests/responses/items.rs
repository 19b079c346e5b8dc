//! Every row of the table of items (wire-format 4.3), for each engine.

use super::{chat, options, read, refusal, request, sent};
use crate::table::rows;
use samewire::engine::named;
use samewire::request::responses::{ChatInputs, UnreadableReasoning};

fn unseal(sealed: &str) -> Option<String> {
    sealed
        .strip_prefix("swr1.")
        .or_else(|| sealed.strip_prefix("swc1."))
        .map(|text| format!("«{text}»\n"))
}

fn material() -> ChatInputs<'static> {
    ChatInputs {
        unseal: &unseal,
        ..ChatInputs::default()
    }
}

/// Items, and below them the messages that they become for every engine. Of reasoning, its text is taken, else the
/// sealed text, else the summary. Adjacent items of the assistant form one message; a tool's output starts another.
const SAME: &str = r#"
{"type":"message","role":"user","content":"a\u00e9\n\/\u2028\ud83d\ude00"}
    {"role":"user","content":"aé\n/\u2028😀"}
{"role":"user","content":[]}
    {"role":"user","content":""}
{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}
    {"role":"user","content":"a\nb"}
{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:x","detail":"low"},{"type":"input_image","image_url":"https://x","detail":null}]}
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:x","detail":"low"}},{"type":"image_url","image_url":{"url":"https://x"}}]}
{"role":"user","content":[{"type":"input_audio","input_audio":{"format":"wav","data":"d"}}]}
    {"role":"user","content":[{"type":"input_audio","input_audio":{"data":"d","format":"wav"}}]}
{"role":"system","content":"s"}
    {"role":"system","content":"s"}
{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]},{"type":"output_text","text":"b"}]}
    {"role":"assistant","content":"ab"}
{"type":"message","role":"assistant","content":"a"},{"type":"message","role":"assistant","content":"b"},{"role":"user","content":"c"}
    {"role":"assistant","content":"ab"},{"role":"user","content":"c"}
{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\": \"é\\n\"}"},{"type":"function_call_output","call_id":"c1","output":"o\"\n"}
    {"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\": \"é\\n\"}"}}]CONTENT},{"role":"tool","tool_call_id":"c1","content":"o\"\n"}
{"type":"function_call","call_id":"c1","name":"f","arguments":""},{"type":"function_call","call_id":"c2","name":"g","arguments":"no\"t"},{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"a"},{"type":"output_text","text":"b"}]},{"type":"function_call_output","call_id":"c1","output":[{"type":"input_image","image_url":"u"}]}
    {"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{\"_raw\":\"no\\\"t\"}"}}]CONTENT},{"role":"tool","tool_call_id":"c2","content":"a\nb"},{"role":"tool","tool_call_id":"c1","content":[{"type":"image_url","image_url":{"url":"u"}}]}
{"type":"custom_tool_call","call_id":"c1","name":"p","input":"a\n\"é\u2028"},{"type":"custom_tool_call_output","call_id":"c1","output":"done"}
    {"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"p","arguments":"{\"input\":\"a\\n\\\"é\\u2028\"}"}}]CONTENT},{"role":"tool","tool_call_id":"c1","content":"done"}
{"type":"function_call","namespace":"ns","call_id":"c1","name":"f","arguments":"{}"},{"type":"custom_tool_call","namespace":"ns","call_id":"c2","name":"g","input":""}
    {"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"ns__f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"ns__g","arguments":"{\"input\":\"\"}"}}]CONTENT}
{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s"}],"content":[{"type":"reasoning_text","text":"a"},{"type":"reasoning_text","text":"b"}],"encrypted_content":"foreign"},{"role":"assistant","content":"t"}
    {"role":"assistant","content":"t","REASONING":"ab"}
{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"content":null,"encrypted_content":"swr1.x"},{"role":"assistant","content":"t"}
    {"role":"assistant","content":"t","REASONING":"«x»\n"}
{"type":"reasoning","summary":[{"type":"summary_text","text":"s"},{"type":"summary_text","text":"u"}]},{"role":"assistant","content":"t"}
    {"role":"assistant","content":"t","REASONING":"s\n\nu"}
{"type":"reasoning","summary":[]},{"role":"user","content":"t"}
    {"role":"user","content":"t"}
{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"r"}]},{"role":"assistant","content":"t"},{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"web_search_call","id":"ws_1"},{"type":"function_call","call_id":"c2","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":""},{"type":"function_call_output","call_id":"c2","output":"2"},{"type":"reasoning","content":[{"type":"reasoning_text","text":"q"}]},{"role":"assistant","content":"u"}
    {"role":"assistant","content":"t","REASONING":"r","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":""},{"role":"tool","tool_call_id":"c2","content":"2"},{"role":"assistant","content":"u","REASONING":"q"}
{"type":"reasoning","content":[{"type":"reasoning_text","text":"r"}]},{"role":"user","content":"t"}
    {"role":"assistant","content":"","REASONING":"r"},{"role":"user","content":"t"}
{"type":"compaction","id":"cmp_1","encrypted_content":"swc1.x"}
    {"role":"system","content":"«x»\n"}
"#;

#[test]
fn each_row_for_every_engine() {
    for (items, [messages]) in rows(SAME) {
        for (engine, key, content) in [
            ("auto", "reasoning_content", r#","content":"""#),
            ("vllm", "reasoning", ""),
            ("sglang", "reasoning_content", r#","content":"""#),
            ("generic", "reasoning_content", ""),
        ] {
            let messages = messages
                .replace("REASONING", key)
                .replace("CONTENT", content);
            let sent = sent(
                engine,
                "{}",
                &request(&format!("\"input\":[{items}]")),
                &material(),
            );
            // SGLang would treat the assistant's last message as the user's (engines E.3).
            let goes_on = engine == "sglang" && sent.as_ref().unwrap().ends_with(GOES_ON);
            let rest = if goes_on {
                GOES_ON.trim_end_matches('}')
            } else {
                ""
            };
            assert_eq!(sent.unwrap(), chat(&messages, rest), "{engine} {items}");
        }
    }
}

/// Files pass to an engine that may take them. Others get the text of a file that has one.
#[test]
fn files_are_text_where_the_engine_takes_none() {
    let files = |parts: &str| {
        request(&format!(
            r#""input":[{{"role":"user","content":[{parts}]}}]"#
        ))
    };
    let text = r#"{"type":"input_file","filename":"f.md","file_data":"data:text/markdown;base64,IyBh","detail":"low"}"#;
    let id = r#"{"type":"input_file","file_id":"i"}"#;
    let both = files(&format!("{text},{id}"));
    let passed = r#"{"role":"user","content":[{"type":"file","file":{"filename":"f.md","file_data":"data:text/markdown;base64,IyBh"}},{"type":"file","file":{"file_id":"i"}}]}"#;
    for engine in ["auto", "generic"] {
        assert_eq!(
            sent(engine, "{}", &both, &material()).unwrap(),
            chat(passed, ""),
            "{engine}"
        );
    }
    for engine in ["vllm", "sglang", "llamacpp", "lmdeploy", "ollama"] {
        let read = r##"{"role":"user","content":[{"type":"text","text":"f.md\n# a"}]}"##;
        assert_eq!(
            sent(engine, "{}", &files(text), &material()).unwrap(),
            chat(read, ""),
            "{engine}"
        );
        let (param, code, message) = refusal(sent(engine, "{}", &both, &material()));
        assert_eq!(
            (param.as_deref(), code.as_deref()),
            (Some("input"), Some("unsupported_value"))
        );
        let expected = "Unsupported value for 'input': the engine takes no parts of type input_file, and this one is \
            neither text nor a file of /v1/files.";
        assert_eq!(message, expected, "{engine}");
    }
}

const GOES_ON: &str = r#","continue_final_message":true}"#;

#[test]
fn refusals_are_parts_where_they_can_be() {
    let body = request(
        r#""input":[{"role":"assistant","content":[{"type":"output_text","text":"a"},{"type":"refusal","refusal":"no"}]}]"#,
    );
    let parts = r#"{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"refusal","refusal":"no"}]}"#;
    let text = r#"{"role":"assistant","content":"ano"}"#;
    for (engine, message, rest) in [
        ("vllm", parts, ""),
        ("sglang", text, GOES_ON.trim_end_matches('}')),
    ] {
        assert_eq!(
            sent(engine, "{}", &body, &material()).unwrap(),
            chat(message, rest)
        );
    }
}

/// Items that a chat engine cannot be sent are left out, and reported.
#[test]
fn hosted_items_are_left_out() {
    for kind in [
        "file_search_call",
        "computer_call",
        "computer_call_output",
        "web_search_call",
        "tool_search_call",
        "tool_search_output",
        "image_generation_call",
        "code_interpreter_call",
        "local_shell_call",
        "local_shell_call_output",
        "shell_call",
        "shell_call_output",
        "apply_patch_call",
        "apply_patch_call_output",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "compaction_trigger",
        "program",
        "program_output",
    ] {
        let body = request(&format!(
            r#""input":[{{"role":"user","content":"a"}},{{"type":"{kind}","call_id":"c"}}]"#
        ));
        assert_eq!(
            sent("auto", "{}", &body, &material()).unwrap(),
            chat(r#"{"role":"user","content":"a"}"#, "")
        );
        assert_eq!(read(&body).unwrap().dropped, [format!("input[1].{kind}")]);
    }
}

/// Items of earlier responses precede the new ones, and the calls among them are known.
#[test]
fn history_comes_first() {
    let history = [
        r#"{"role":"user","content":"a"}"#,
        r#"{"id":"rs_1","type":"reasoning","status":"completed","summary":[],"content":[{"type":"reasoning_text","text":"r"}]}"#,
        r#"{"id":"fc_1","type":"function_call","status":"completed","call_id":"c1","name":"f","arguments":"{}"}"#,
    ];
    let body = request(
        r#""instructions":"i","previous_response_id":"resp_1","input":[{"type":"function_call_output","call_id":"c1","output":"o"}]"#,
    );
    let sent = sent(
        "vllm",
        "{}",
        &body,
        &ChatInputs {
            history: &history,
            ..material()
        },
    )
    .unwrap();
    let expected = r#"{"role":"system","content":"i"},{"role":"user","content":"a"},{"role":"assistant","reasoning":"r","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"o"}"#;
    assert_eq!(sent, chat(expected, ""));
    // An output whose call was removed from the conversation.
    let body = request(r#""conversation":"conv_1","input":"hi""#);
    let history = [r#"{"type":"function_call_output","call_id":"c1","output":"o"}"#];
    let (failed, code, message) = refusal(self::sent(
        "vllm",
        "{}",
        &body,
        &ChatInputs {
            history: &history,
            ..material()
        },
    ));
    assert_eq!((failed.as_deref(), code), (Some("conversation"), None));
    assert_eq!(
        message,
        "No tool call found for function call output with call_id c1."
    );
}

#[test]
fn references_are_resolved() {
    let body = request(
        r#""input":[{"type":"item_reference","id":"msg_1"},{"id":"fc_1"},{"type":"function_call_output","call_id":"c1","output":"o"}]"#,
    );
    let resolved = [
        (0, r#"{"type":"message","role":"user","content":"a"}"#),
        (
            1,
            r#"{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}"#,
        ),
    ];
    let sent_with = |resolved: &[(usize, &str)]| {
        sent(
            "vllm",
            "{}",
            &body,
            &ChatInputs {
                resolved,
                ..material()
            },
        )
    };
    let expected = r#"{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"o"}"#;
    assert_eq!(sent_with(&resolved).unwrap(), chat(expected, ""));
    let failure = sent_with(&resolved[..1]).unwrap_err();
    assert_eq!(
        (failure.status, failure.param.as_deref(), failure.code),
        (404, Some("input"), None)
    );
    assert_eq!(failure.message, "Item with id 'fc_1' not found.");
}

#[test]
fn a_sealed_summary_must_open() {
    // Content sealed for one purpose is not valid for another.
    for item in [
        r#"{"type":"compaction","encrypted_content":"swr1.x"}"#,
        r#"{"type":"compaction","encrypted_content":"swc2.x"}"#,
    ] {
        let body = request(&format!(
            r#""input":[{{"role":"user","content":"a"}},{item}]"#
        ));
        let (param, code, _) = refusal(sent("auto", "{}", &body, &material()));
        assert_eq!(param.as_deref(), Some("input[1].encrypted_content"));
        assert_eq!(code.as_deref(), Some("invalid_encrypted_content"));
        // For stored items the error is not attributed to the input.
        for key in ["previous_response_id", "conversation"] {
            let body = request(&format!(r#""input":"a","{key}":"r""#));
            let material = ChatInputs {
                history: &[item],
                ..material()
            };
            assert_eq!(
                refusal(sent("auto", "{}", &body, &material)).0.as_deref(),
                Some(key)
            );
        }
    }
}

/// Reasoning that does not open is left out and named, wherever it comes from; its summary replaces it.
#[test]
fn sealed_reasoning_that_does_not_open_is_left_out() {
    const OTHERS: &str = r#"{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}"#;
    const OF_SUMMARY: &str = r#"{"type":"reasoning","summary":[],"encrypted_content":"swc1.x"}"#;
    const WITH_SUMMARY: &str = r#"{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"gAAA"}"#;
    const WITH_TEXT: &str = r#"{"type":"reasoning","content":[{"type":"reasoning_text","text":"t"}],"encrypted_content":"gAAA"}"#;
    const OWN: &str = r#"{"type":"reasoning","summary":[],"encrypted_content":"swr1.x"}"#;
    for (item, before, dropped) in [
        (OTHERS, "", true),
        (OF_SUMMARY, "", true),
        (
            WITH_SUMMARY,
            r#"{"role":"assistant","content":"","reasoning_content":"s"},"#,
            true,
        ),
        (
            WITH_TEXT,
            r#"{"role":"assistant","content":"","reasoning_content":"t"},"#,
            false,
        ),
        (
            OWN,
            r#"{"role":"assistant","content":"","reasoning_content":"«x»\n"},"#,
            false,
        ),
    ] {
        let expected = chat(&format!(r#"{before}{{"role":"user","content":"a"}}"#), "");
        let own = request(&format!(
            r#""input":[{item},{{"role":"user","content":"a"}}]"#
        ));
        let reference = request(r#""input":[{"id":"rs_1"},{"role":"user","content":"a"}]"#);
        let continued = request(r#""input":"a","previous_response_id":"r""#);
        for (body, history, resolved, name) in [
            (&own, &[][..], &[][..], "input[0].encrypted_content"),
            (&reference, &[], &[(0, item)], "input[0].encrypted_content"),
            (
                &continued,
                &[item, item],
                &[],
                "previous_response_id.encrypted_content",
            ),
        ] {
            let inputs = ChatInputs {
                history,
                resolved,
                ..material()
            };
            let mut asked = read(body).unwrap();
            let refused = asked
                .clone()
                .drop_unreadable(&inputs, UnreadableReasoning::Refuse);
            let count = asked
                .drop_unreadable(&inputs, UnreadableReasoning::Drop)
                .unwrap();
            if dropped {
                assert_eq!(
                    (count, &asked.dropped[..]),
                    (history.len().max(1), &[name.to_owned()][..])
                );
                let (param, code, _) = refusal(refused);
                let own = name.starts_with("input");
                assert_eq!(
                    param.as_deref(),
                    Some(if own { name } else { "previous_response_id" })
                );
                assert_eq!(code.as_deref(), Some("invalid_encrypted_content"));
            } else {
                assert_eq!(
                    (count, asked.dropped.len(), refused),
                    (0, 0, Ok(0)),
                    "{body}"
                );
            }
            if history.is_empty() {
                assert_eq!(
                    sent("auto", "{}", body, &inputs).unwrap(),
                    expected,
                    "{body}"
                );
            }
        }
    }
}

/// Tool outputs need their call, in the input or before it.
#[test]
fn outputs_without_a_call() {
    for kind in ["function_call_output", "custom_tool_call_output"] {
        let item = format!(r#"{{"type":"{kind}","call_id":"call_x","output":"o"}}"#);
        let body = request(&format!(
            r#""input":[{{"role":"user","content":"a"}},{item}]"#
        ));
        let message = "No tool call found for function call output with call_id call_x.".to_owned();
        let expected = (Some("input[1].call_id".to_owned()), None, message);
        assert_eq!(refusal(sent("auto", "{}", &body, &material())), expected);
    }
}

/// `truncation: "auto"`: the oldest messages are removed, each call with its output; system messages and the last
/// message stay.
#[test]
fn the_oldest_can_be_left_out() {
    let body = request(
        r#""instructions":"i","input":[{"role":"developer","content":"d"},{"role":"user","content":"a"},{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"role":"user","content":"b"},{"type":"function_call_output","call_id":"c1","output":"o"},{"role":"assistant","content":"x"},{"role":"user","content":"c"}]"#,
    );
    let asked = read(&body).unwrap();
    let left = |forget| -> Result<String, samewire::wire::fault::Failure> {
        let chat = asked.chat(
            &ChatInputs {
                skip_oldest: forget,
                ..material()
            },
            &named("vllm").unwrap().takes,
            &options("{}"),
        )?;
        let chat: serde_json::Value = serde_json::from_slice(&chat).unwrap();
        let said =
            |message: &serde_json::Value| message["content"].as_str().unwrap_or("call").to_owned();
        Ok(chat["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(said)
            .collect::<Vec<_>>()
            .join(" ")
            .replace("\n\n", "+"))
    };
    for (forget, expected) in [
        (0, "i+d a call b o x c"),
        (1, "i+d call b o x c"),
        (2, "i+d b x c"),
        (3, "i+d x c"),
        (4, "i+d c"),
    ] {
        assert_eq!(left(forget).unwrap(), expected, "{forget}");
    }
    let (param, code, _) = refusal(left(5));
    assert_eq!(
        (param, code.as_deref()),
        (None, Some("context_length_exceeded"))
    );
}
