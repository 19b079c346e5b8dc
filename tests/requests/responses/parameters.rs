//! Every row of the table of parameters (wire-format 4.2).

use super::{chat, read, refusal, request, sent};
use samewire::request::responses::{
    Capabilities, ChatInputs, Include, ResponsesMode, ResponsesRequest,
};
use samewire::wire::Api;
use samewire::wire::options::Options;

const HI: &str = r#"{"role":"user","content":"hi"}"#;
const F: &str = r#"{"type":"function","name":"f"}"#;
const WIRE_F: &str = r#"{"type":"function","function":{"name":"f"}}"#;

/// Example for each row; rows of tools are in `tools.rs`. Members of the request, and members the engine gets
/// besides the message, the same for every engine.
const ROWS: &[(&str, &str)] = &[
    (r#""input":"hi""#, ""),
    (r#""input":[{"role":"user","content":"hi"}]"#, ""),
    (r#""input":"hi","max_tool_calls":3"#, ""),
    (
        r#""input":"hi","temperature":1,"top_p":0.50"#,
        r#","temperature":1,"top_p":0.50"#,
    ),
    (
        r#""input":"hi","frequency_penalty":-0.5,"presence_penalty":2"#,
        r#","frequency_penalty":-0.5,"presence_penalty":2"#,
    ),
    (r#""input":"hi","top_logprobs":3"#, ""),
    (
        r#""input":"hi","top_logprobs":3,"include":["message.output_text.logprobs"]"#,
        r#","logprobs":true,"top_logprobs":3"#,
    ),
    (
        r#""input":"hi","include":["message.output_text.logprobs"]"#,
        r#","logprobs":true"#,
    ),
    (r#""input":"hi","tools":[]"#, ""),
    (
        r#""input":"hi","tools":[],"tool_choice":"auto","parallel_tool_calls":false"#,
        "",
    ),
    (r#""input":"hi","tools":[],"tool_choice":"none""#, ""),
    (r#""input":"hi","text":{"format":{"type":"text"}}"#, ""),
    (
        r#""input":"hi","text":{"format":{"type":"json_object"}}"#,
        r#","response_format":{"type":"json_object"}"#,
    ),
    (
        r#""input":"hi","text":{"format":{"type":"json_schema","strict":true,"description":"d","schema":{ "z":1.50, "a":null },"name":"n"}}"#,
        r#","response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{ "z":1.50, "a":null },"strict":true,"description":"d"}}"#,
    ),
    (
        r#""input":"hi","text":{"format":{"type":"json_schema","schema":{},"name":"n","strict":null}}"#,
        r#","response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}}"#,
    ),
    (
        r#""input":"hi","reasoning":{"effort":"low"}"#,
        r#","reasoning_effort":"low""#,
    ),
    (
        r#""input":"hi","reasoning":{"effort":null,"summary":"auto","context":"all_turns"}"#,
        "",
    ),
    (
        r#""input":"hi","include":["reasoning.encrypted_content"]"#,
        "",
    ),
    (r#""input":"hi","stream":false"#, ""),
    (
        r#""input":"hi","stream":true"#,
        r#","stream":true,"stream_options":{"include_usage":true}"#,
    ),
    (
        r#""input":"hi","stream":true,"stream_options":{"include_obfuscation":true}"#,
        r#","stream":true,"stream_options":{"include_usage":true}"#,
    ),
    (r#""input":"hi","store":true"#, ""),
    // A background response is stored as it arrives, so the engine's answer is a stream.
    (
        r#""input":"hi","background":true"#,
        r#","stream":true,"stream_options":{"include_usage":true}"#,
    ),
    (r#""input":"hi","previous_response_id":"resp_1""#, ""),
    (r#""input":"hi","conversation":"conv_1""#, ""),
    (r#""input":"hi","conversation":{"id":"conv_1"}"#, ""),
    (r#""input":"hi","truncation":"auto""#, ""),
    (r#""input":"hi","metadata":{"a":"b"}"#, ""),
    (r#""input":"hi","user":"u""#, r#","user":"u""#),
    (r#""input":"hi","safety_identifier":"s""#, r#","user":"s""#),
    (
        r#""input":"hi","safety_identifier":"s","user":"u""#,
        r#","user":"u""#,
    ),
    (
        r#""input":"hi","prompt_cache_key":"k","prompt_cache_retention":"24h","prompt_cache_options":{"a":1}"#,
        "",
    ),
    (r#""input":"hi","service_tier":"flex""#, ""),
    (
        r#""input":"hi","context_management":[{"type":"compaction"}],"moderation":{"model":"x"}"#,
        "",
    ),
    (
        r#""input":"hi","top_k":5,"x":{ "y" : 1e2 },"z":null"#,
        r#","top_k":5,"x":{ "y" : 1e2 }"#,
    ),
    (r#""input":"hi","n":1"#, ""),
    (r#""type":"response.create","input":"hi""#, ""),
];

#[test]
fn each_row_for_every_engine() {
    for (members, rest) in ROWS {
        for engine in ["auto", "vllm", "sglang", "generic"] {
            let sent = sent(engine, "{}", &request(members), &ChatInputs::default());
            assert_eq!(sent.unwrap(), chat(HI, rest), "{engine} {members}");
        }
    }
}

/// Rows that depend on the engine or on options.
#[test]
fn rows_that_depend_on_engine_and_options() {
    let tools = format!(r#""input":"hi","tools":[{F}]"#);
    let tools = |rest: &str| format!("{tools}{rest}");
    let wired = |rest: &str| format!(r#","tools":[{WIRE_F}]{rest}"#);
    let limit = r#""input":"hi","max_output_tokens":20"#.to_owned();
    let verbosity = r#""input":"hi","text":{"verbosity":"low"}"#.to_owned();
    let key = r#""input":"hi","prompt_cache_key":"k""#.to_owned();
    let salted = r#"{"prompt_cache_key":"cache_salt"}"#;
    let hashed =
        r#","cache_salt":"c14cddc033f64b9dea80ea675cf280a015e672516090a5626781153dc68fea11""#;
    let unknown = r#""input":"hi","top_k":5"#.to_owned();
    for (engine, set, members, rest) in [
        (
            "vllm",
            "{}",
            limit.clone(),
            r#","max_completion_tokens":20"#,
        ),
        (
            "sglang",
            "{}",
            limit,
            r#","max_completion_tokens":20,"max_tokens":20"#,
        ),
        ("vllm", "{}", verbosity.clone(), ""),
        ("generic", "{}", verbosity, r#","verbosity":"low""#),
        ("vllm", salted, key.clone(), r#","cache_salt":"k""#),
        ("sglang", salted, key.clone(), r#","cache_salt":"k""#),
        ("generic", salted, key, ""),
        (
            "vllm",
            salted,
            r#""input":"hi","prompt_cache_key":"a/b""#.to_owned(),
            hashed,
        ),
        (
            "vllm",
            salted,
            r#""input":"hi","prompt_cache_key":"k","cache_salt":"own""#.to_owned(),
            r#","cache_salt":"own""#,
        ),
        ("auto", r#"{"request_unknown":"drop"}"#, unknown, ""),
        ("auto", "{}", tools(""), &wired("")),
        (
            "auto",
            "{}",
            tools(r#","parallel_tool_calls":false"#),
            &wired(r#","parallel_tool_calls":false"#),
        ),
        (
            "auto",
            "{}",
            tools(r#","parallel_tool_calls":null,"tool_choice":null"#),
            &wired(""),
        ),
    ] {
        let sent = sent(engine, set, &request(&members), &ChatInputs::default());
        assert_eq!(sent.unwrap(), chat(HI, rest), "{engine} {set} {members}");
    }
}

/// Leading messages of one role are merged: many templates accept only one.
#[test]
fn instructions_and_roles() {
    // Empty instructions are none.
    let none = request(r#""instructions":"","input":"hi""#);
    assert_eq!(
        sent("auto", "{}", &none, &ChatInputs::default()).unwrap(),
        chat(HI, "")
    );
    let lead = r#"{"role":"developer","content":[{"type":"input_text","text":"d"},{"type":"input_text","text":"e"}]},{"role":"system","content":"s"}"#;
    let messages = |list: &[(&str, &str)]| {
        let message =
            |(role, text): &(&str, &str)| format!(r#"{{"role":"{role}","content":"{text}"}}"#);
        chat(&list.iter().map(message).collect::<Vec<_>>().join(","), "")
    };
    let own = r#""instructions":"be\u0020\"kind\"","#;
    for (set, instructions, expected) in [
        ("{}", own, &[("system", r#"be \"kind\"\n\nd\ne\n\ns"#)][..]),
        (
            r#"{"instructions_role":"developer"}"#,
            own,
            &[
                ("developer", r#"be \"kind\""#),
                ("system", r"d\ne"),
                ("system", "s"),
            ],
        ),
        (
            r#"{"developer_role":"developer"}"#,
            own,
            &[
                ("system", r#"be \"kind\""#),
                ("developer", r"d\ne"),
                ("system", "s"),
            ],
        ),
        ("{}", "", &[("system", r"d\ne\n\ns")]),
        ("{}", r#""instructions":"","#, &[("system", r"d\ne\n\ns")]),
    ] {
        let body = request(&format!(
            r#"{instructions}"input":[{lead},{{"role":"user","content":"u"}},{{"role":"system","content":"later"}}]"#
        ));
        let all = [expected, &[("user", "u"), ("system", "later")]].concat();
        assert_eq!(
            sent("auto", set, &body, &ChatInputs::default()).unwrap(),
            messages(&all)
        );
    }
    // Content other than text is not merged.
    let image = r#"{"role":"system","content":[{"type":"input_image","image_url":"u"}]}"#;
    let body = request(&format!(r#""instructions":"i","input":[{image}]"#));
    let part = r#"[{"type":"image_url","image_url":{"url":"u"}}]"#;
    let expected =
        format!(r#"{{"role":"system","content":"i"}},{{"role":"system","content":{part}}}"#);
    assert_eq!(
        sent("auto", "{}", &body, &ChatInputs::default()).unwrap(),
        chat(&expected, "")
    );
}

#[test]
fn the_model_may_have_another_name() {
    let material = ChatInputs {
        model_alias: Some("a\"b"),
        ..ChatInputs::default()
    };
    let sent = sent("auto", "{}", &request(r#""input":"hi""#), &material).unwrap();
    assert_eq!(
        sent,
        format!("{{\"model\":\"a\\\"b\",\"messages\":[{HI}]}}")
    );
}

#[test]
fn defaults_of_a_minimal_request() {
    let asked = read(&request(r#""input":"hi""#)).unwrap();
    assert_eq!(asked.model, "m");
    assert!(asked.store && !asked.background && !asked.stream && !asked.settings.truncation_auto);
    assert!(
        !asked.include_obfuscation && asked.previous_response_id.is_none() && asked.limit.is_none()
    );
    assert_eq!(
        (
            asked.settings.include,
            asked.dropped.len(),
            asked.ignored.len()
        ),
        (Include::default(), 0, 0)
    );
    assert_eq!(
        asked.input().collect::<Vec<_>>(),
        [r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}"#]
    );
    let asked = read(&request(
        r#""input":[ {"role":"user","content":"a"} ,{"id":"msg_1"},{"type":"item_reference","id":"rs_1"},{"type":"web_search_call"}],
        "stream":true,"stream_options":{"include_obfuscation":true},"store":true,"background":true,
        "previous_response_id":"resp_1","truncation":"auto","max_output_tokens":7,"moderation":{},
        "context_management":[],
        "include":["reasoning.encrypted_content","message.output_text.logprobs","message.input_image.image_url","web_search_call.results"]"#,
    ))
    .unwrap();
    assert!(asked.stream && asked.include_obfuscation && asked.store && asked.background);
    assert!(asked.settings.truncation_auto);
    assert_eq!(asked.previous_response_id.as_deref(), Some("resp_1"));
    assert_eq!(asked.limit, Some(7));
    let all = Include {
        encrypted_reasoning: true,
        output_text_logprobs: true,
        input_image_urls: true,
    };
    assert_eq!(asked.settings.include, all);
    assert_eq!(asked.dropped, ["input[3].web_search_call"]);
    assert_eq!(asked.ignored, ["context_management", "moderation"]);
    assert_eq!(
        asked.references().collect::<Vec<_>>(),
        [(1, "msg_1"), (2, "rs_1")]
    );
    assert_eq!(
        asked.input().next().unwrap(),
        r#"{"role":"user","content":"a"}"#
    );
    assert!(
        !read(&request(r#""input":"hi","store":false"#))
            .unwrap()
            .store
    );
}

/// Parameters of the request that determine how the engine's answer is read.
#[test]
fn parameters_that_decide_how_the_answer_is_read() {
    let asked = read(&request(
        r#""input":"hi","stream":true,"max_output_tokens":9,"include":["message.output_text.logprobs"],
        "tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}],
        "tool_choice":{"type":"function","namespace":"n","name":"f"}"#,
    ));
    let ask = asked.unwrap().as_chat();
    assert_eq!(
        (ask.api, ask.model.as_str(), ask.choices, ask.limit),
        (Api::Chat, "m", 1, Some(9))
    );
    assert!(ask.stream && ask.include_usage && ask.logprobs && !ask.continuous_usage);
    assert_eq!(ask.forced_function.as_deref(), Some("n__f"));
}

/// A stored request is read again without the checks for missing or unsupported members, because it was answered
/// before.
#[test]
fn stored_requests_are_read_without_the_checks() {
    for body in [
        "{}",
        r#"{"input":[],"prompt":{"id":"p"}}"#,
        r#"{"prompt":{"id":"p"},"messages":[],"n":2}"#,
    ] {
        assert!(read(body).is_err());
        ResponsesRequest::recall(
            &body.to_owned().into(),
            &Options::default(),
            ResponsesMode::Chat,
        )
        .unwrap();
    }
    let body = r#"{"model":"m","input":"hi","messages":[],"n":2}"#.to_owned().into();
    let asked = ResponsesRequest::recall(&body, &Options::default(), ResponsesMode::Chat).unwrap();
    let chat_body = asked
        .chat(
            &ChatInputs::default(),
            &Capabilities::PLAIN,
            &Options::default(),
        )
        .unwrap();
    assert_eq!(
        chat_body,
        chat(HI, "").as_bytes(),
        "fields written here do not come twice"
    );
}

#[test]
fn requests_that_need_a_store_are_refused_without_one() {
    let mut asked = read(&request(r#""input":"hi","store":true"#)).unwrap();
    asked.disable_store().unwrap();
    assert!(!asked.store);
    assert!(format!("{:?}", asked.echo()).contains(r#"("store", b"false")"#));
    let mut asked = read(&request(r#""input":"hi","background":true"#)).unwrap();
    let (param, code, _) = refusal(asked.disable_store());
    assert_eq!(
        (param.as_deref(), code.as_deref()),
        (Some("background"), Some("invalid_value"))
    );
    read(&request(r#""input":"hi""#))
        .unwrap()
        .without_conversations()
        .unwrap();
    let asked = read(&request(r#""conversation":{"id":"conv_1"}"#)).unwrap();
    assert_eq!(asked.conversation.as_deref(), Some("conv_1"));
    assert!(format!("{:?}", asked.echo()).contains(r#"("conversation", b"{\"id\":\"conv_1\"}")"#));
    let (param, code, _) = refusal(asked.without_conversations());
    assert_eq!(
        (param.as_deref(), code.as_deref()),
        (Some("conversation"), Some("unsupported_parameter"))
    );
}

/// Parameters that the response object repeats (4.4).
#[test]
fn parameters_that_the_response_repeats() {
    let asked = read(&request(
        r#""input":"hi","temperature":1,"top_p":0,"presence_penalty":-1,"frequency_penalty":0.5,"service_tier":"auto",
        "metadata":{ "a" : "b" },"text":{"verbosity":"low"},"reasoning":{"effort":"high","context":"auto"},
        "tools":[{"type":"web_search"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}],"user":null,
        "tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"namespace","name":"n"}]}"#,
    ))
    .unwrap();
    let echo = format!("{:?}", asked.echo());
    for (key, json) in [
        ("temperature", "1.0"),
        ("top_p", "0.0"),
        ("presence_penalty", "-1.0"),
        ("frequency_penalty", "0.5"),
        ("metadata", r#"{"a":"b"}"#),
        ("text", r#"{"format":{"type":"text"},"verbosity":"low"}"#),
        ("reasoning", r#"{"effort":"high","summary":null}"#),
        (
            "tools",
            r#"[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]"#,
        ),
        (
            "tool_choice",
            r#"{"type":"allowed_tools","mode":"auto","tools":[{"type":"namespace","name":"n"}]}"#,
        ),
    ] {
        assert!(
            echo.contains(&format!("({key:?}, b{json:?})")),
            "{key}: {echo}"
        );
    }
    assert!(
        !echo.contains("service_tier") && !echo.contains("user"),
        "{echo}"
    );
}
