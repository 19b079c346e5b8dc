//! `system` and `messages`: what engines get of them (messages 3.2, 3.3, 6).

use super::{Sent, message_form, options, planned, request, sent, talk};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use samewire::request::messages::{MessagesMode, Purpose};
use samewire::wire::encode::ThinkingProof;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};

fn sha256(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text))
}

/// Returns the messages that the engine gets.
fn messages(members: &str) -> Value {
    sent(members).body["messages"].clone()
}

#[test]
fn system_prompts() {
    let hi = r#""messages":[{"role":"user","content":"hi"}]"#;
    for (system, expected) in [
        (r#""be kind""#, json!("be kind")),
        (
            r#"[{"type":"text","text":"be"},{"type":"text","text":"kind","cache_control":{"type":"ephemeral"}}]"#,
            json!("be\nkind"),
        ),
        (
            r#"[{"type":"text","text":"x-anthropic-billing-header: cc_version=2"},{"type":"text","text":"a"}]"#,
            json!("a"),
        ),
        (
            r#"[{"type":"text","text":"a x-anthropic-billing-header: b"}]"#,
            json!("a x-anthropic-billing-header: b"),
        ),
    ] {
        let got = messages(&format!("\"system\":{system},{hi}"));
        assert_eq!(
            got[0],
            json!({"role": "system", "content": expected}),
            "{system}"
        );
        assert_eq!(got[1]["role"], "user", "{system}");
    }
    for system in [
        "null",
        "[]",
        r#""""#,
        r#"[{"type":"text","text":""}]"#,
        r#"[{"type":"text","text":"x-anthropic-billing-header: b"}]"#,
    ] {
        let got = messages(&format!("\"system\":{system},{hi}"));
        assert_eq!(got, json!([{"role": "user", "content": "hi"}]), "{system}");
    }
}

#[test]
fn billing_text_is_counted_and_can_be_kept() {
    let body = request(
        r#""system":[{"type":"text","text":"x-anthropic-billing-header: b"}],"messages":[{"role":"user","content":"hi"}]"#,
    );
    let dropped = planned("vllm", "{}", &body, None).unwrap();
    assert_eq!(dropped.asked.adapted, ["billing_block"]);
    let kept = planned("vllm", r#"{"billing_block":"keep"}"#, &body, None).unwrap();
    assert_eq!(kept.asked.adapted, [""; 0]);
    assert_eq!(
        kept.body["messages"][0]["content"],
        "x-anthropic-billing-header: b"
    );
}

/// OpenAI's name for the role means the same.
#[test]
fn system_messages_among_the_others() {
    for role in ["system", "developer"] {
        let early = messages(&format!(
            r#""system":"a","messages":[{{"role":"user","content":"hi"}},{{"role":"{role}","content":"b"}},{{"role":"assistant","content":"yes"}}]"#
        ));
        assert_eq!(
            early,
            json!([
                {"role": "system", "content": "a\n\nb"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "yes"},
            ])
        );
        let late = messages(&talk(&format!(
            r#"{{"role":"user","content":"hi"}},{{"role":"assistant","content":"yes"}},{{"role":"{role}","content":"b"}}"#
        )));
        assert_eq!(late[2], json!({"role": "system", "content": "b"}), "{role}");
    }
}

#[test]
fn system_text_that_is_cleared() {
    let of = |rest: &str| {
        messages(&talk(&format!(
            r#"{{"role":"user","content":"a"}},{{"role":"system","content":"now","clear_at":"next_user_message"}}{rest}"#
        )))
    };
    assert_eq!(of("")[0], json!({"role": "system", "content": "now"}));
    assert_eq!(
        of(r#",{"role":"assistant","content":"b"}"#)[0],
        json!({"role": "system", "content": "now"})
    );
    let later = of(r#",{"role":"assistant","content":"b"},{"role":"user","content":"c"}"#);
    assert!(
        later
            .as_array()
            .unwrap()
            .iter()
            .all(|message| message["role"] != "system"),
        "{later}"
    );
}

/// Blocks of billing text go with their commas, wherever they are.
#[test]
fn billing_text_between_other_blocks() {
    let billing = r#"{"type":"text","text":"x-anthropic-billing-header: b"}"#;
    let block = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
    for (system, expected) in [
        (vec![billing.to_owned(), block("a")], json!(["a"])),
        (vec![block("a"), billing.to_owned()], json!(["a"])),
        (
            vec![
                billing.to_owned(),
                billing.to_owned(),
                block("a"),
                billing.to_owned(),
                block("b"),
                billing.to_owned(),
                billing.to_owned(),
            ],
            json!(["a", "b"]),
        ),
        (vec![billing.to_owned(), billing.to_owned()], json!([])),
    ] {
        let body = request(&format!(
            r#""system":[ {} ],"messages":[{{"role":"user","content":"a"}}]"#,
            system.join(" , ")
        ));
        let asked = message_form::read(
            &Bytes::from(body),
            &options("{}"),
            None,
            MessagesMode::Native,
            Purpose::Answer,
        )
        .unwrap();
        let sent: Value = serde_json::from_slice(&asked.body).unwrap();
        let texts: Vec<_> = sent["system"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| block["text"].clone())
            .collect();
        assert_eq!(json!(texts), expected);
    }
}

/// Each message is read once, however many there are.
#[test]
fn system_messages_without_end() {
    let text = "x".repeat(2_000);
    let system = format!(r#"{{"role":"system","content":"{text}"}}"#);
    let all = vec![system; 9_000].join(",");
    let start = Instant::now();
    let sent = sent(&talk(&format!(r#"{all},{{"role":"user","content":"a"}}"#)));
    assert_eq!(sent.body["messages"].as_array().unwrap().len(), 2);
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
}

/// Messages of one role in a row are one turn.
#[test]
fn turns_of_several_messages() {
    assert_eq!(
        messages(&talk(&format!(
            r#"{{"role":"user","content":"a"}},{{"role":"user","content":[{{"type":"text","text":"b"}}]}},{},{},
            {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c2","content":"two"}},{{"type":"text","text":"x"}}]}},
            {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c1","content":"one"}}]}}"#,
            calls(&[("c1", "{}")]),
            calls(&[("c2", "{}")])
        ))),
        json!([
            {"role": "user", "content": "a\nb"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "one"},
            {"role": "tool", "tool_call_id": "c2", "content": "two"},
            {"role": "user", "content": "x"},
        ])
    );
    let same_id_twice = talk(&format!(
        "{},{}",
        calls(&[("c1", "{}")]),
        calls(&[("c1", "{}")])
    ));
    let failure = planned("vllm", "{}", &request(&same_id_twice), None)
        .map(|sent| sent.body)
        .unwrap_err();
    assert_eq!(failure.param.as_deref(), Some("messages.1.content.0.id"));
}

#[test]
fn user_blocks() {
    let of = |blocks: &str| {
        messages(&talk(&format!(
            "{{\"role\":\"user\",\"content\":[{blocks}]}}"
        )))[0]["content"]
            .clone()
    };
    assert_eq!(
        of(r#"{"type":"text","text":"a"},{"type":"text","text":"b"}"#),
        "a\nb"
    );
    let image =
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}"#;
    assert_eq!(
        of(&format!("{{\"type\":\"text\",\"text\":\"a\"}},{image}")),
        json!([
            {"type": "text", "text": "a"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        ])
    );
    assert_eq!(
        of(
            r#"{"type":"document","title":"T","context":"C","source":{"type":"text","media_type":"text/plain","data":"d"}}"#
        ),
        "T\nC\nd"
    );
    assert_eq!(
        of(
            r#"{"type":"document","source":{"type":"content","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}"#
        ),
        "a\nb"
    );
    assert_eq!(
        of(
            r#"{"type":"search_result","title":"T","source":"s","content":[{"type":"text","text":"a"}]}"#
        ),
        "T\ns\na"
    );
}

/// Returns an assistant message with these calls, each as `(id, input)`.
fn calls(all: &[(&str, &str)]) -> String {
    let call = |(id, input): &(&str, &str)| {
        format!("{{\"type\":\"tool_use\",\"id\":\"{id}\",\"name\":\"f\",\"input\":{input}}}")
    };
    let calls: Vec<_> = all.iter().map(call).collect();
    format!(
        "{{\"role\":\"assistant\",\"content\":[{}]}}",
        calls.join(",")
    )
}

#[test]
fn results_come_first_and_in_the_order_of_their_calls() {
    let two = calls(&[("c1", r#"{"a": 1}"#), ("c2", "{}")]);
    let got = messages(&talk(&format!(
        r#"{{"role":"user","content":"x"}},{two},{{"role":"user","content":[
            {{"type":"text","text":"and"}},
            {{"type":"tool_result","tool_use_id":"c2","content":"two"}},
            {{"type":"tool_result","tool_use_id":"c1","content":[{{"type":"text","text":"one"}},{{"type":"text","text":"more"}}],"is_error":true}},
            {{"type":"text","text":"then"}}]}}"#
    )));
    assert_eq!(
        got,
        json!([
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": r#"{"a":1}"#}},
                {"id": "c2", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "Error: one\nmore"},
            {"role": "tool", "tool_call_id": "c2", "content": "two"},
            {"role": "user", "content": "and\nthen"},
        ])
    );
}

#[test]
fn images_of_results_follow_in_the_users_message() {
    let got = messages(&talk(&format!(
        r#"{},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c1","content":[
            {{"type":"text","text":"seen"}},
            {{"type":"image","source":{{"type":"url","url":"https://example.com/a.png"}}}}]}}]}}"#,
        calls(&[("c1", "{}")])
    )));
    assert_eq!(
        got[1],
        json!({"role": "tool", "tool_call_id": "c1", "content": "seen\n[image 1]"})
    );
    assert_eq!(
        got[2],
        json!({"role": "user", "content": [
            {"type": "text", "text": "[image 1]"},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        ]})
    );
}

#[test]
fn empty_results_are_results() {
    for content in [
        "",
        r#","content":"""#,
        r#","content":[]"#,
        r#","content":null"#,
    ] {
        let got = messages(&talk(&format!(
            r#"{},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c1"{content}}}]}}"#,
            calls(&[("c1", "{}")])
        )));
        assert_eq!(
            got[1],
            json!({"role": "tool", "tool_call_id": "c1", "content": ""}),
            "{content}"
        );
        assert_eq!(got.as_array().unwrap().len(), 2, "{content}");
    }
}

#[test]
fn the_ids_of_calls_are_known() {
    let asked = sent(&talk(&calls(&[("c1", "{}"), ("c2", "{}")]))).asked;
    assert_eq!(asked.used_ids, ["c1", "c2"].map(str::to_owned).into());
}

/// Returns the request that is sent with thinking of this text and signature.
fn thinking(engine: &str, block: &Value) -> Sent {
    let body = request(&talk(&format!(
        r#"{{"role":"assistant","content":[{block},{{"type":"text","text":"a"}}]}},{{"role":"user","content":"b"}}"#
    )));
    planned(engine, "{}", &body, None).unwrap()
}

#[test]
fn thinking_goes_back_where_its_signature_holds() {
    let signed = message_form::sign(ThinkingProof::Hash(&sha256("hm"))).unwrap();
    let sealed = message_form::sign(ThinkingProof::Text("hm")).unwrap();
    for (text, signature) in [("hm", &signed), ("", &sealed), ("hm", &sealed)] {
        let got = thinking(
            "sglang",
            &json!({"type": "thinking", "thinking": text, "signature": signature}),
        );
        assert_eq!(
            got.body["messages"][0]["reasoning_content"], "hm",
            "{text} {signature}"
        );
        assert_eq!(got.asked.adapted, [""; 0], "{text} {signature}");
    }
}

#[test]
fn thinking_goes_back_however_the_client_spells_it() {
    let signed =
        message_form::sign(ThinkingProof::Hash(&sha256(r#"say \"é\"\n\u2028😀/"#))).unwrap();
    for spelled in [
        r#"say \"é\"\n\u2028😀/"#,
        r#"\u0073ay \u0022\u00e9\"\u000A\u2028\ud83d\ude00\/"#,
    ] {
        let block =
            format!(r#"{{"type":"thinking","thinking":"{spelled}","signature":"{signed}"}}"#);
        let body = request(&talk(&format!(
            r#"{{"role":"assistant","content":[{block}]}},{{"role":"user","content":"b"}}"#
        )));
        let got = planned("sglang", "{}", &body, None).unwrap();
        assert_eq!(
            got.body["messages"][0]["reasoning_content"], "say \"é\"\n\u{2028}😀/",
            "{spelled}"
        );
        assert_eq!(got.asked.adapted, [""; 0], "{spelled}");
    }
}

#[test]
fn fault_c47_thinking_of_others_is_dropped_and_counted() {
    let signed = message_form::sign(ThinkingProof::Hash(&sha256("hm"))).unwrap();
    for block in [
        json!({"type": "thinking", "thinking": "hm!", "signature": signed}),
        json!({"type": "thinking", "thinking": "hm", "signature": "EqQBCkYIBBgCKkD"}),
        json!({"type": "thinking", "thinking": "hm", "signature": ""}),
        json!({"type": "thinking", "thinking": "hm"}),
        json!({"type": "redacted_thinking", "data": "EmwKAhgBEgy3"}),
        json!({"type": "thinking", "thinking": 5, "signature": {}}),
        json!({"type": "thinking"}),
    ] {
        let got = thinking("sglang", &block);
        assert_eq!(
            got.body["messages"][0],
            json!({"role": "assistant", "content": "a"}),
            "{block}"
        );
        assert_eq!(got.asked.adapted, ["thinking_dropped"], "{block}");
        assert_eq!(got.asked.dropped, [""; 0], "{block}");
    }
}

#[test]
fn unsupported_blocks_are_dropped_where_the_option_says_so() {
    let pdf = r#"{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AA=="}}"#;
    let body = request(&talk(&format!(
        r#"{{"role":"user","content":[{pdf},{{"type":"text","text":"a"}}]}},{},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c1","content":[{pdf}]}}]}}"#,
        calls(&[("c1", "{}")])
    )));
    let got = planned("vllm", r#"{"unsupported_content":"drop"}"#, &body, None).unwrap();
    assert_eq!(got.body["messages"][0]["content"], "a");
    assert_eq!(
        got.asked.dropped,
        [
            "messages.0.content.0.document",
            "messages.2.content.0.content.0.document"
        ]
    );
}

/// The engine's own route gets the client's words, whatever they are.
#[test]
fn native_requests_stay_as_they_are() {
    let read = |set: &str, body: &str, purpose: Purpose| {
        message_form::read(
            &Bytes::from(body.to_owned()),
            &options(set),
            None,
            MessagesMode::Native,
            purpose,
        )
    };
    let same = request(
        r#""system":[{"type":"text","text":"a"}],"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AA=="}}, {"type":"later"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{}}]}],"tools":[{"type":"web_search_20250305","name":"web_search"}],"later":1"#,
    );
    let asked = read("{}", &same, Purpose::Answer).unwrap();
    assert_eq!(asked.body, same.as_bytes());
    assert_eq!(asked.used_ids, ["c1".to_owned()].into());
    assert_eq!(asked.beginning()[0], "a");

    let billed = request(
        r#""system":[{"type":"text","text":"x-anthropic-billing-header: b"}, {"type":"text","text":"a"}],"messages":[{"role":"user","content":"x"}]"#,
    );
    let asked = read("{}", &billed, Purpose::Answer).unwrap();
    assert_eq!(asked.adapted, ["billing_block"]);
    assert!(
        String::from_utf8(asked.body.to_vec())
            .unwrap()
            .contains(r#""system":[{"type":"text","text":"a"}],"#)
    );
    assert_eq!(
        read(r#"{"billing_block":"keep"}"#, &billed, Purpose::Answer)
            .unwrap()
            .body,
        billed.as_bytes()
    );

    let sealed = message_form::sign(ThinkingProof::Text("hm")).unwrap();
    let omitted = request(&talk(&format!(
        r#"{{"role":"assistant","content":[{{"type":"thinking","thinking":"","signature":"{sealed}"}}]}}"#
    )));
    let asked = read("{}", &omitted, Purpose::Answer).unwrap();
    assert!(
        String::from_utf8(asked.body.to_vec())
            .unwrap()
            .contains(r#""thinking":"hm""#)
    );

    for url in ["http://169.254.169.254/latest", "file:///etc/passwd"] {
        let source = format!(r#"{{"type":"url","url":"{url}","content":[]}}"#);
        let image = format!(r#"{{"type":"image","source":{source}}}"#);
        for (block, at) in [
            (image.clone(), "source.url"),
            (
                format!(r#"{{"type":"later","source":{source}}}"#),
                "source.url",
            ),
            (
                format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#),
                "image_url.url",
            ),
            (
                format!(r#"{{"type":"tool_result","tool_use_id":"c","content":[{image}]}}"#),
                "content.0.source.url",
            ),
            (
                format!(
                    r#"{{"type":"document","source":{{"type":"content","content":[{image}]}}}}"#
                ),
                "source.content.0.source.url",
            ),
        ] {
            let fetched = request(&talk(&format!(r#"{{"role":"user","content":[{block}]}}"#)));
            let failure = read("{}", &fetched, Purpose::Answer).unwrap_err();
            assert_eq!(
                failure.param,
                Some(format!("messages.0.content.0.{at}")),
                "{block}: {failure:?}"
            );
        }
        let system = request(&format!(
            r#""system":[{image}],"messages":[{{"role":"user","content":"a"}}]"#
        ));
        let failure = read("{}", &system, Purpose::Answer).unwrap_err();
        assert_eq!(
            failure.param.as_deref(),
            Some("system.0.source.url"),
            "{failure:?}"
        );
    }

    let counted = request(r#""messages":[{"role":"user","content":"a"}],"stream":true"#);
    let asked = read("{}", &counted, Purpose::Count).unwrap();
    assert!(
        !String::from_utf8(asked.body.to_vec())
            .unwrap()
            .contains("stream"),
        "{:?}",
        asked.body
    );
    let effort = request(
        r#""messages":[{"role":"system","output_config":{"effort":"low"}},{"role":"user","content":"a"}]"#,
    );
    assert_eq!(
        read("{}", &effort, Purpose::Answer).unwrap().body,
        effort.as_bytes()
    );
}
