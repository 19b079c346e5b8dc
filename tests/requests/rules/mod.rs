//! Requests as engines receive them: for each rule of each engine, a request that it changes in a version that
//! needs it, and the same request unchanged in versions that do not.

mod rows;

use bytes::Bytes;
use rows::{Row, rows};
use samewire::engine::rule::{RequestRule, RuleChange, rules_for};
use samewire::engine::{ENGINES, EngineIdentity, EngineVersion, Front, named};
use samewire::plan::{Plan, Route, plan};
use samewire::request::{ChatRequest, EngineBody, Rules};
use samewire::wire::fault::Failure;
use samewire::wire::options::{DeveloperRole, Options, PromoteReasoning, SystemMessages};
use samewire::wire::{AnswerId, Api, Ending, OutputBuffer, Rewriter, Stamp};
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

/// Parses an engine's identity, such as `sglang 0.4.6`, `vllm rust 0.22.0` or `auto`.
fn identity(text: &str) -> EngineIdentity {
    let mut words = text.split(' ');
    let mut identity = EngineIdentity::from(named(words.next().unwrap()).unwrap());
    for word in words {
        match word {
            "rust" => identity.front = Front::Rust,
            version => identity.version = Some(version.parse().unwrap()),
        }
    }
    identity
}

fn read(api: Api, body: &Bytes) -> Result<ChatRequest, Failure> {
    ChatRequest::read_for(api, body, None, &Rules::ANSWERED)
}

fn planned(
    api: Api,
    identity: EngineIdentity,
    options: Options,
    body: &str,
) -> Result<Plan, Failure> {
    let body = Bytes::from(body.to_owned());
    let ask = read(api, &body).unwrap_or_else(|failure| panic!("{failure:?}: {body:?}"));
    plan(
        &ask,
        &body,
        &Route::new(identity, Arc::new(options), 1 << 20),
    )
}

/// Returns the body that the engine receives, and the names of the rules that changed it.
fn sent(api: Api, to: &str, body: &str) -> Result<(String, Vec<&'static str>), Failure> {
    let plan = planned(api, identity(to), Options::default(), body)?;
    let text = String::from_utf8(plan.body.joined().to_vec()).unwrap();
    serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    Ok((text, plan.shape.adapted))
}

/// Returns a request with `"messages":[…]` and what belongs to it.
fn chat(members: &str) -> String {
    match members.contains("\"messages\"") {
        true if members.contains("\"model\"") => format!("{{{members}}}"),
        true => format!("{{\"model\":\"m\",{members}}}"),
        false => {
            format!(
                "{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":\"a\"}}],{members}}}"
            )
        }
    }
}

/// Returns a request with this message.
fn told(message: &str) -> String {
    format!(r#"{{"model":"m","messages":[{message},{{"role":"user","content":"b"}}]}}"#)
}

impl Row {
    fn request(&self, text: &str) -> String {
        if text.starts_with("{\"role\"") {
            told(text)
        } else {
            chat(text)
        }
    }
}

#[test]
fn each_row_is_changed_within_its_versions_and_nowhere_else() {
    for row in rows() {
        let (before, after) = (row.request(row.before), row.request(row.after));
        for to in row.within {
            let (got, rules) =
                sent(Api::Chat, to, &before).unwrap_or_else(|why| panic!("{to} {before}: {why:?}"));
            assert_eq!(got, after, "{} {to}", row.rule);
            assert!(rules.contains(&row.rule), "{} {to}: {rules:?}", row.rule);
            // The rewritten request is not changed again.
            let (again, _) =
                sent(Api::Chat, to, &after).unwrap_or_else(|why| panic!("{to} {after}: {why:?}"));
            assert_eq!(again, after, "{} {to}, once more", row.rule);
        }
        for to in row.outside {
            let (got, rules) =
                sent(Api::Chat, to, &before).unwrap_or_else(|why| panic!("{to} {before}: {why:?}"));
            assert_eq!(
                (got, rules),
                (before.clone(), Vec::new()),
                "{} {to}",
                row.rule
            );
        }
    }
}

/// Engines that answer with text only, and cannot search the web.
const TEXT_ALONE: &[&str] = &[
    "vllm",
    "vllm 0.6.3",
    "sglang",
    "llamacpp",
    "tensorrt_llm",
    "lmdeploy",
    "transformers",
    "ollama",
];

/// Refused members, the engines that refuse them, and the parameter that the error names.
const REFUSED: &[(&str, &[&str], &str, &str)] = &[
    (
        "part_file",
        &["vllm", "sglang", "llamacpp", "ollama", "lmdeploy"],
        r#""messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0xLjQ="}}]}]"#,
        "messages[0].content[1].type",
    ),
    (
        "part_input_file",
        &["vllm", "sglang", "llamacpp", "ollama", "lmdeploy"],
        r#""messages":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]"#,
        "messages[0].content[0].type",
    ),
    (
        "custom_tools",
        &["vllm"],
        r#""tools":[{"type":"custom","custom":{"name":"c","format":{"type":"grammar","grammar":{"syntax":"lark","definition":"x"}}}}]"#,
        "tools[0].custom.format",
    ),
    (
        "allowed_tools",
        &["sglang"],
        r#""tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"g"}}]}}"#,
        "tool_choice.allowed_tools.tools",
    ),
    (
        "allowed_tools",
        &["sglang"],
        r#""tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"some","tools":[]}}"#,
        "tool_choice.allowed_tools.mode",
    ),
    (
        "limit_of_nothing",
        &["sglang 0.5.11", "sglang 0.4.6"],
        r#""max_tokens":0"#,
        "max_tokens",
    ),
    (
        "limit_of_nothing",
        &["sglang 0.5.11"],
        r#""max_completion_tokens":0"#,
        "max_completion_tokens",
    ),
    (
        "audio",
        TEXT_ALONE,
        r#""audio":{"voice":"alloy","format":"wav"}"#,
        "audio",
    ),
    (
        "modalities",
        TEXT_ALONE,
        r#""modalities":["text","audio"]"#,
        "modalities",
    ),
    (
        "modalities",
        TEXT_ALONE,
        r#""modalities":["image"]"#,
        "modalities",
    ),
];

#[test]
fn what_an_engine_cannot_be_told_is_refused() {
    for (rule, all, members, param) in REFUSED {
        for to in *all {
            let failure = sent(Api::Chat, to, &chat(members)).unwrap_err();
            assert_eq!(failure.param.as_deref(), Some(*param), "{rule} {to}");
            assert_eq!(
                (failure.status, &*failure.kind),
                (400, "invalid_request_error"),
                "{rule}"
            );
        }
        let (same, rules) = sent(Api::Chat, "generic", &chat(members)).unwrap();
        assert_eq!((same, rules), (chat(members), Vec::new()), "{rule}");
    }
    for (to, members) in [
        (
            "vllm 0.33.0",
            r#""n":2,"temperature":0,"use_beam_search":true"#,
        ),
        ("vllm 0.33.0", r#""n":2,"temperature":0.5"#),
        ("vllm 0.33.0", r#""n":1,"temperature":0"#),
        ("vllm rust 0.22.0", r#""n":1"#),
    ] {
        assert_eq!(
            sent(Api::Chat, to, &chat(members)).unwrap().0,
            chat(members),
            "{to}"
        );
    }
}

/// Every rule has an example, except those that change only the answer, which have their own tests.
#[test]
fn every_rule_has_an_example() {
    let shown: HashSet<_> = rows()
        .into_iter()
        .map(|row| row.rule)
        .chain(REFUSED.iter().map(|row| row.0))
        .collect();
    let all = ENGINES.iter().flat_map(|engine| engine.rules());
    let answers = |rule: &&RequestRule| rule.change == RuleChange::OneCall;
    let missing: BTreeSet<_> = all
        .filter(|rule| !answers(rule) && !shown.contains(rule.name))
        .map(|rule| rule.name)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    // Each rule also has an example for each engine that needs it, in one of its versions.
    let mut missing = Vec::new();
    for engine in ENGINES {
        for rule in engine.rules().filter(|rule| !answers(rule)) {
            let is_one = |to: &str| {
                let identity = identity(to);
                identity.engine == *engine && rule.is_for(&identity)
            };
            let rows = rows()
                .into_iter()
                .filter(|row| row.rule == rule.name)
                .flat_map(|row| row.within);
            let refused = REFUSED
                .iter()
                .filter(|row| row.0 == rule.name)
                .flat_map(|row| row.1.iter().copied());
            if !rows.chain(refused).any(is_one) {
                missing.push((rule.name, engine.name, rule.versions));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_rule_says_what_it_does_and_why() {
    let mut words = HashSet::new();
    for rule in ENGINES.iter().flat_map(|engine| engine.rules()) {
        let is_name = rule
            .name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(is_name && !rule.what.is_empty(), "{rule:?}");
        assert!(!rule.evidence.is_empty(), "{rule:?}");
        if rule.evidence.starts_with("fixtures/") {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(rule.evidence);
            assert!(path.exists(), "{rule:?}");
        }
        words.insert(rule.name);
    }
    let of_answers: HashSet<_> = samewire::wire::rule::Rule::ALL
        .iter()
        .map(|rule| rule.name())
        .collect();
    assert!(
        words.is_disjoint(&of_answers),
        "names tell requests and answers apart"
    );
}

/// An unknown version is treated as the newest.
#[test]
fn versions_decide() {
    let rule = |to: &str| {
        rules_for(&identity(to))
            .map(|rule| rule.name)
            .collect::<Vec<_>>()
    };
    assert!(!rule("vllm").contains(&"developer_role"));
    assert!(rule("vllm 0.21.0").contains(&"developer_role"));
    assert!(!rule("vllm").contains(&"fan_out") && rule("vllm rust 0.25.0").contains(&"fan_out"));
    assert_eq!(
        rule("generic"),
        ["max_tokens_twice"],
        "an engine that keeps to the API needs nothing else"
    );
}

/// The role `developer` stays if the operator configures it, and for models that know it.
#[test]
fn developer_stays_where_it_is_wanted() {
    let body = r#"{"model":"openai/gpt-oss-20b","messages":[{"role":"developer","content":"d"},{"role":"user","content":"a"}]}"#;
    assert_eq!(sent(Api::Chat, "vllm 0.21.0", body).unwrap().0, body);
    let body = body.replace("openai/gpt-oss-20b", "m");
    let options = || Options {
        developer_role: DeveloperRole::Developer,
        ..Options::default()
    };
    let kept = planned(Api::Chat, identity("vllm 0.21.0"), options(), &body).unwrap();
    assert_eq!(kept.body.joined(), body.as_bytes());
    let refused = planned(Api::Chat, identity("sglang 0.5.6"), options(), &body).unwrap();
    assert_eq!(
        refused.body.joined(),
        body.replace("developer", "system").as_bytes()
    );
}

/// Merging puts all texts of system and developer into one first message, whatever else is changed (wire-format
/// 2.10).
#[test]
fn system_messages_are_merged_where_that_is_wanted() {
    let merged = |to: &str, messages: &str| {
        let options = Options {
            system_messages: SystemMessages::Merge,
            ..Options::default()
        };
        let body = format!(r#"{{"model":"m","messages":[{messages}],"n":1}}"#);
        let plan = planned(Api::Chat, identity(to), options, &body).unwrap();
        let text = String::from_utf8(plan.body.joined().to_vec()).unwrap();
        let list = text
            .strip_prefix(r#"{"model":"m","messages":["#)
            .and_then(|rest| rest.strip_suffix(r#"],"n":1}"#));
        (
            list.unwrap_or_else(|| panic!("{text}")).to_owned(),
            plan.shape.adapted.contains(&"system_merged"),
        )
    };
    let user = r#"{"role":"user","content":"u"}"#;
    for (messages, expected) in [
        // A late system message, several at the start, and both; white space between messages stays.
        (
            r#"USER, {"role":"system","content":"a"}"#,
            r#"{"role":"system","content":"a"},USER"#,
        ),
        (
            r#"{"role":"system","content":"a"}, {"role":"system","content":"b\u00e9"} ,USER"#,
            r#"{"role":"system","content":"aNEXTbé"} ,USER"#,
        ),
        (
            r#"{"role":"system","content":"a"},USER,{"role":"developer","name":"n","content":"b"},USER,{"role":"system","content":"c"}"#,
            r#"{"role":"system","content":"aNEXTbNEXTc"},USER,USER"#,
        ),
        // Text parts are merged as text; empty texts leave no gap.
        (
            r#"USER,{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"system","content":""},{"role":"system","content":null},{"role":"developer","content":"c"}"#,
            r#"{"role":"system","content":"a\nbNEXTc"},USER"#,
        ),
        (
            r#"{"role":"developer","content":"a"},USER"#,
            r#"{"role":"system","content":"a"},USER"#,
        ),
    ] {
        let of = |text: &str| text.replace("USER", user).replace("NEXT", r"\n\n");
        for to in [
            "vllm 0.33.0",
            "vllm 0.9.0",
            "sglang 0.5.6",
            "auto",
            "generic",
        ] {
            assert_eq!(
                merged(to, &of(messages)),
                (of(expected), true),
                "{to} {messages}"
            );
            assert_eq!(
                merged(to, &of(expected)),
                (of(expected), false),
                "{to} {messages}, once more"
            );
        }
    }
    // Nothing to merge, and content that is not text.
    for messages in [
        user.to_owned(),
        format!(
            r#"{user},{{"role":"system","content":[{{"type":"image_url","image_url":{{"url":"data:,"}}}}]}}"#
        ),
    ] {
        assert_eq!(merged("generic", &messages), (messages, false));
    }
}

/// OpenAI's own service receives its own API unchanged; members it could not honour are refused by name.
#[test]
fn the_service_itself_is_asked_in_its_own_words() {
    for members in [
        r#""messages":[{"role":"developer","content":"d"},{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}],"max_completion_tokens":5,"store":true,"metadata":{"a":"b"},"verbosity":"low""#,
        r#""tools":[{"type":"custom","custom":{"name":"c"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"custom","custom":{"name":"c"}}]}},"parallel_tool_calls":false"#,
        r#""functions":[{"name":"f"}],"function_call":"auto","stop":[""],"reasoning_effort":"minimal","n":2"#,
        r#""guided_regex":"a+","min_tokens":5,"stop_token_ids":[1],"structured_outputs":{"regex":"a+"}"#,
    ] {
        assert_eq!(
            sent(Api::Chat, "openai", &chat(members)).unwrap().0,
            chat(members)
        );
    }
}

/// A request for text only is within what every engine gives; members that the operator lets through are the
/// engine's responsibility.
#[test]
fn what_engines_do_not_have_is_refused_and_nothing_else() {
    for members in [r#""modalities":["text"]"#, r#""modalities":[],"seed":1"#] {
        for to in [
            "vllm", "sglang", "llamacpp", "lmdeploy", "ollama", "openai", "auto",
        ] {
            assert_eq!(
                sent(Api::Chat, to, &chat(members)).unwrap().0,
                chat(members),
                "{to}"
            );
        }
        assert!(
            !sent(Api::Chat, "transformers", &chat(members))
                .unwrap()
                .0
                .contains("modalities")
        );
    }
    for (rule, members, name) in [
        ("audio", r#""audio":null,"modalities":null"#, ""),
        ("audio", r#""audio":{"voice":"a"}"#, "audio"),
        ("modalities", r#""modalities":["audio"]"#, "modalities"),
    ] {
        let body = Bytes::from(chat(members));
        let sent = |allowed: Vec<String>| {
            let rules = Rules {
                allowed,
                ..Rules::default()
            };
            let ask = ChatRequest::read_for(Api::Chat, &body, None, &rules).unwrap();
            let route = Route::new(identity("vllm"), Arc::new(Options::default()), 1 << 20);
            plan(&ask, &body, &route).map(|plan| plan.body.joined())
        };
        assert_eq!(sent(Vec::new()).is_ok(), name.is_empty(), "{rule}");
        let sent = sent(vec![name.to_owned()]).unwrap();
        assert_eq!(sent == body, !name.is_empty(), "{rule}: {sent:?}");
    }
    let failure = sent(
        Api::Chat,
        "sglang",
        &chat(r#""modalities":["text","audio"]"#),
    )
    .unwrap_err();
    assert_eq!(
        failure.message,
        "Unsupported value for 'modalities': this engine answers with text alone."
    );
}

/// Deprecated functions combined with the newer tool choice.
#[test]
fn old_functions_may_be_allowed() {
    let functions = r#""functions":[{"name":"f"},{"name":"g"}],"function_call":"none""#;
    let tool = |name: &str| format!(r#"{{"type":"function","function":{{"name":"{name}"}}}}"#);
    let choice = |mode: &str| {
        let allowed = format!(r#"{{"mode":"{mode}","tools":[{}]}}"#, tool("g"));
        format!(r#""tool_choice":{{"type":"allowed_tools","allowed_tools":{allowed}}}"#)
    };
    for mode in ["auto", "required"] {
        let body = chat(&format!("{functions},{}", choice(mode)));
        for to in ["vllm", "sglang", "llamacpp", "auto"] {
            let expected = chat(&format!(
                r#""tool_choice":"{mode}","tools":[{}]"#,
                tool("g")
            ));
            assert_eq!(sent(Api::Chat, to, &body).unwrap().0, expected, "{to}");
        }
        // Text that the model writes is parsed as a call of an allowed function only.
        for (name, is_called) in [("g", true), ("f", false)] {
            let call = format!("[{{\"name\": \"{name}\", \"arguments\": {{}}}}]");
            let text = serde_json::to_string(&call).unwrap();
            let text = format!(
                r#""message":{{"role":"assistant","content":{text}}},"finish_reason":"stop""#
            );
            let options = Options {
                parser: "xlam".to_owned().try_into().unwrap(),
                ..Options::default()
            };
            let answer: Value =
                serde_json::from_str(&answered_with(options, "vllm", &body, &[&text])).unwrap();
            let message = &answer["choices"][0]["message"];
            assert_eq!(
                message["function_call"]["name"] == name,
                is_called,
                "{message}"
            );
        }
    }
}

/// Reasoning under both names: the one with text is sent, the engine's own name first.
#[test]
fn reasoning_under_two_names_is_sent_once() {
    for (to, own, other) in [
        ("vllm", "reasoning", "reasoning_content"),
        ("sglang", "reasoning_content", "reasoning"),
        ("llamacpp", "reasoning_content", "reasoning"),
        ("lmdeploy", "reasoning_content", "reasoning"),
        ("ollama", "reasoning", "reasoning_content"),
    ] {
        for (before, after) in [
            // The members are in the order in which a previous answer had them.
            (r#""OWN":"a","OTHER":"a""#, r#""OWN":"a""#),
            (r#""OTHER":"a","OWN":"a""#, r#""OWN":"a""#),
            (r#""OWN":null,"OTHER":"a""#, r#""OWN":"a""#),
            (r#""OWN":"","OTHER":"a""#, r#""OWN":"a""#),
            (r#""OTHER":"a","OWN":"""#, r#""OWN":"a""#),
            (r#""OWN":"b","OTHER":"a""#, r#""OWN":"b""#),
            (r#""OTHER":null,"OWN":"b""#, r#""OWN":"b""#),
            (r#""OWN":"b","OTHER":"""#, r#""OWN":"b""#),
            (r#""OWN":null,"OTHER":"""#, r#""OWN":null"#),
        ] {
            let body = |members: &str| {
                let members = members.replace("OWN", own).replace("OTHER", other);
                told(&format!(
                    r#"{{"role":"assistant","content":"c",{members}}}"#
                ))
            };
            assert_eq!(
                sent(Api::Chat, to, &body(before)).unwrap().0,
                body(after),
                "{to} {before}"
            );
        }
    }
}

/// Clients send a boolean where the old API has a number, and engines read it so (wire-format 2.11).
#[test]
fn a_flag_asks_completions_for_one_logprob_or_none() {
    let body = |members: &str| format!(r#"{{"model":"m","prompt":"a"{members},"n":1}}"#);
    for to in [
        "vllm", "sglang", "llamacpp", "lmdeploy", "ollama", "generic",
    ] {
        for (said, sent_on, asked) in [
            (r#","logprobs":true"#, r#","logprobs":1"#, true),
            (r#","logprobs":false"#, "", false),
            (r#","logprobs":2"#, r#","logprobs":2"#, true),
            (r#","logprobs":0"#, r#","logprobs":0"#, true),
        ] {
            assert_eq!(
                sent(Api::Completions, to, &body(said)).unwrap().0,
                body(sent_on),
                "{to} {said}"
            );
            let ask = read(Api::Completions, &Bytes::from(body(said))).unwrap();
            assert_eq!(ask.logprobs, asked, "{said}");
        }
    }
    for said in [r#","logprobs":"true""#, r#","logprobs":{}"#] {
        let failure = read(Api::Completions, &Bytes::from(body(said))).unwrap_err();
        assert_eq!(failure.param.as_deref(), Some("logprobs"), "{said}");
    }
}

/// Edits of one request that are adjacent to each other.
#[test]
fn changes_that_stand_side_by_side() {
    for (to, before, after) in [
        (
            "vllm 0.21.0",
            r#"{"n":null,"seed":null,"model":"m","stop":null,"messages":[{"role":"developer","content":"d","tool_calls":null},{"role":"assistant","tool_calls":[],"reasoning_content":"r","content":"c"},{"role":"user","content":"a"}],"user":null,"tools":[],"tool_choice":"auto","top_k":null}"#,
            r#"{"model":"m","messages":[{"role":"system","content":"d","tool_calls":null},{"role":"assistant","reasoning":"r","content":"c"},{"role":"user","content":"a"}],"top_k":null}"#,
        ),
        (
            "vllm 0.6.3",
            r#"{"max_tokens":null,"max_completion_tokens":5,"store":true,"metadata":{"a":"b"},"model":"m","messages":[{"role":"user","content":"a"}],"stream":true}"#,
            r#"{"max_tokens":5,"model":"m","messages":[{"role":"user","content":"a"}],"stream":true,"stream_options":{"include_usage":true}}"#,
        ),
        (
            "sglang",
            r#"{"model":"m","messages":[{"role":"user","content":"a"}],"stream":true,"stream_options":null,"stop":["","b",""]}"#,
            r#"{"model":"m","messages":[{"role":"user","content":"a"}],"stream":true,"stream_options":{"include_usage":true},"stop":["b"]}"#,
        ),
        (
            "sglang",
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"input_image","detail":"low","image_url":"HTTP://a"},{"type":"input_text","text":"b"}]}]}"#,
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"HTTP://a","detail":"low"}},{"type":"text","text":"b"}]}]}"#,
        ),
        (
            "sglang 0.5.0",
            r#"{"model":"m","messages":[{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b\u0021"}]},{"role":"system","content":"c"},{"role":"user","content":"d"}]}"#,
            r#"{"model":"m","messages":[{"role":"system","content":"a\nb!\n\nc"},{"role":"user","content":"d"}]}"#,
        ),
        (
            "sglang 0.5.0",
            r#"{"model":"m","messages":[{"role":"system","content":"c","name":"n"},{"role":"developer","content":"d"},{"role":"user","content":"d"}]}"#,
            r#"{"model":"m","messages":[{"role":"system","content":"c","name":"n"},{"role":"system","content":"d"},{"role":"user","content":"d"}]}"#,
        ),
    ] {
        assert_eq!(sent(Api::Chat, to, before).unwrap().0, after, "{to}");
    }
}

#[test]
fn completions_are_changed_as_far_as_they_are_concerned() {
    for (to, before, after) in [
        (
            "vllm 0.6.3",
            r#""max_completion_tokens":5"#,
            r#""max_tokens":5"#,
        ),
        (
            "vllm",
            r#""guided_regex":"a+""#,
            r#""structured_outputs":{"regex":"a+"}"#,
        ),
        (
            "sglang",
            r#""guided_json":{"type":"object"},"n":null"#,
            r#""json_schema":"{\"type\":\"object\"}""#,
        ),
        (
            "sglang",
            r#""guided_choice":["a.b","c"]"#,
            r#""regex":"(a\\.b|c)""#,
        ),
        (
            "sglang",
            r#""tools":[],"response_format":{"json_schema":{}}"#,
            r#""tools":[],"response_format":{"json_schema":{}}"#,
        ),
    ] {
        let body = |members: &str| format!(r#"{{"model":"m","prompt":"a",{members}}}"#);
        assert_eq!(
            sent(Api::Completions, to, &body(before)).unwrap().0,
            body(after),
            "{to}"
        );
    }
}

/// An engine that gives one choice receives one request for each choice.
#[test]
fn each_choice_is_asked_for_by_itself() {
    let bodies = |api, to: &str, body: &str| {
        let Plan {
            body,
            others,
            shape,
            ..
        } = planned(api, identity(to), Options::default(), body)
            .map_err(|failure| failure.param)?;
        let text = |body: EngineBody| String::from_utf8(body.joined().to_vec()).unwrap();
        let all = std::iter::once(body)
            .chain(others)
            .map(text)
            .collect::<Vec<_>>();
        assert_eq!(
            shape.adapted.contains(&"fan_out"),
            all.len() > 1,
            "{:?}",
            shape.adapted
        );
        Ok::<_, Option<String>>(all)
    };
    let of_chat = |to, members: &str| bodies(Api::Chat, to, &chat(members)).unwrap();
    let chats = |all: &[&str]| all.iter().map(|members| chat(members)).collect::<Vec<_>>();
    // Each request has another seed, so that the choices differ as those of an engine that gives several.
    assert_eq!(of_chat("vllm rust", r#""n":3"#), chats(&[r#""n":1"#; 3]));
    assert_eq!(
        of_chat("vllm rust", r#""seed": 7, "n": 3"#),
        chats(&[
            r#""seed": 7, "n": 1"#,
            r#""seed": 8, "n": 1"#,
            r#""seed": 9, "n": 1"#
        ])
    );
    let most = i64::MAX;
    assert_eq!(
        of_chat("transformers", &format!(r#""n":2,"seed":{most}"#)),
        chats(&[
            &format!(r#""seed":{most}"#),
            &format!(r#""seed":{}"#, i64::MIN)
        ])
    );
    assert_eq!(
        of_chat("vllm rust", r#""n":2,"seed":null"#),
        chats(&[r#""n":1"#; 2])
    );
    assert_eq!(
        of_chat("ollama", r#""n":2,"seed":7"#),
        chats(&[r#""n":1,"seed":7"#, r#""n":1,"seed":8"#])
    );
    // Old versions mix up tool calls in streams, and only those.
    let tools = r#""tools":[{"type":"function","function":{"name":"f"}}]"#;
    let stream = r#""stream":true,"stream_options":{"include_usage":true}"#;
    for (to, members, requests) in [
        ("vllm 0.19.1", format!(r#""n":2,{tools},{stream}"#), 2),
        ("vllm 0.19.1", format!(r#""n":2,{tools}"#), 1),
        ("vllm 0.19.1", format!(r#""n":2,{stream}"#), 1),
        (
            "vllm 0.19.1",
            format!(r#""n":2,{tools},"tool_choice":"none",{stream}"#),
            1,
        ),
        ("vllm 0.19.1", format!(r#""n":1,{tools},{stream}"#), 1),
        ("vllm 0.20.0", format!(r#""n":2,{tools},{stream}"#), 1),
        ("vllm", format!(r#""n":2,{tools},{stream}"#), 1),
    ] {
        assert_eq!(of_chat(to, &members).len(), requests, "{to} {members}");
    }
    let prompt = |members: &str| format!(r#"{{"model":"m",{members}}}"#);
    let of_prompt = |members: &str| bodies(Api::Completions, "vllm rust", &prompt(members));
    let once = prompt(r#""prompt":"a","n":1"#);
    assert_eq!(
        of_prompt(r#""prompt":"a","n":2"#),
        Ok(vec![once.clone(); 2])
    );
    let body = prompt(r#""prompt":"a","n":2"#);
    assert_eq!(
        bodies(Api::Completions, "ollama", &body),
        Ok(vec![once.clone(); 2])
    );
    assert_eq!(
        of_prompt(r#""prompt":"a","n":2,"best_of":2"#),
        Ok(vec![once; 2])
    );
    let two = r#""prompt":["a","b"],"n":1"#;
    assert_eq!(of_prompt(two), Ok(vec![prompt(two)]));
    assert_eq!(
        of_prompt(r#""prompt":["a","b"],"n":2"#),
        Err(Some("n".to_owned()))
    );
    assert_eq!(
        of_prompt(r#""prompt":"a","n":2,"best_of":3"#),
        Err(Some("best_of".to_owned()))
    );
}

/// Returns the engine's answer to a request as the client reads it: frames, or one object.
fn answered(to: &str, body: &str, answer: &[&str]) -> String {
    answered_with(Options::default(), to, body, answer)
}

/// Returns the answer under these options.
fn answered_with(options: Options, to: &str, body: &str, answer: &[&str]) -> String {
    let plan = planned(Api::Chat, identity(to), options, body).unwrap();
    let stream = plan.shape.stream;
    let mut rewriter = Rewriter::new(
        plan.shape,
        Stamp {
            id: AnswerId(0),
            now: 1,
            seed: 1,
            ..Stamp::default()
        },
    );
    let mut out = OutputBuffer::default();
    if stream {
        for chunk in answer {
            let chunk = format!(
                "data: {{\"id\":\"x\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,{chunk}}}]}}\n\n"
            );
            rewriter.push(chunk.as_bytes(), &mut out);
        }
        rewriter.push(b"data: [DONE]\n\n", &mut out);
        rewriter.finish(Ending::Clean, &mut out);
    } else {
        let whole = format!(
            "{{\"id\":\"x\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,{}}}]}}",
            answer[0]
        );
        rewriter.whole(whole.as_bytes(), &mut out);
    }
    assert_eq!(
        rewriter
            .reader
            .failure()
            .map(|failure| failure.message.clone()),
        None
    );
    String::from_utf8(out.join().to_vec()).unwrap()
}

const CALL: &str = r#"{"index":0,"id":"call_1","type":"function","function":{"name":"c","arguments":"{\"input\""}}"#;
const REST: &str = r#"{"index":0,"function":{"arguments":": \"a\\n\"}"}}"#;
const SECOND: &str = r#"{"index":1,"id":"call_2","type":"function","function":{"name":"c","arguments":"{\"input\":\"b\"}"}}"#;

fn chunks() -> [String; 4] {
    let delta = |calls: &str| format!(r#""delta":{{"tool_calls":[{calls}]}},"finish_reason":null"#);
    [
        delta(CALL),
        delta(REST),
        delta(SECOND),
        r#""delta":{},"finish_reason":"tool_calls""#.to_owned(),
    ]
}

fn whole() -> String {
    let call = |id: &str, input: &str| {
        format!(
            r#"{{"id":"{id}","type":"function","function":{{"name":"c","arguments":"{{\"input\":\"{input}\"}}"}}}}"#
        )
    };
    format!(
        r#""message":{{"role":"assistant","content":null,"tool_calls":[{},{}]}},"finish_reason":"tool_calls""#,
        call("call_1", "a"),
        call("call_2", "b")
    )
}

/// Returns the deltas of frames.
fn deltas(stream: &str) -> Vec<String> {
    let frames = stream
        .split("\n\n")
        .filter_map(|frame| frame.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]");
    let value = |frame: &str| serde_json::from_str::<Value>(frame).unwrap();
    frames
        .map(|frame| value(frame)["choices"][0]["delta"].to_string())
        .collect()
}

#[test]
fn one_call_where_the_client_wants_one() {
    let chunks = chunks();
    let chunks: Vec<_> = chunks.iter().map(String::as_str).collect();
    let tools = r#""tools":[{"type":"function","function":{"name":"c"}}],"stream":true"#;
    let count = |to: &str, parallel: &str| {
        let stream = answered(to, &chat(&format!("{tools}{parallel}")), &chunks);
        stream.matches("\"type\":\"function\"").count()
    };
    for to in ["vllm", "vllm 0.11.0", "sglang", "auto"] {
        assert_eq!(count(to, r#","parallel_tool_calls":false"#), 1, "{to}");
        assert_eq!(count(to, r#","parallel_tool_calls":true"#), 2, "{to}");
        assert_eq!(count(to, ""), 2, "{to}");
    }
    assert_eq!(count("generic", r#","parallel_tool_calls":false"#), 2);
    let tools = tools.replace("true", "false");
    let whole = answered(
        "sglang",
        &chat(&format!(r#"{tools},"parallel_tool_calls":false"#)),
        &[&whole()],
    );
    assert_eq!(whole.matches("\"type\":\"function\"").count(), 1);
}

#[test]
fn custom_tools_come_back_as_such() {
    let chunks = chunks();
    let chunks: Vec<_> = chunks.iter().map(String::as_str).collect();
    let tools = r#""tools":[{"type":"custom","custom":{"name":"c"}}]"#;
    let stream = answered("vllm", &chat(&format!(r#"{tools},"stream":true"#)), &chunks);
    let expected = [
        r#"{"role":"assistant"}"#,
        r#"{"tool_calls":[{"custom":{"input":"","name":"c"},"id":"call_1","index":0,"type":"custom"}]}"#,
        r#"{"tool_calls":[{"custom":{"input":"a\n"},"index":0}]}"#,
        r#"{"tool_calls":[{"custom":{"input":"","name":"c"},"id":"call_2","index":1,"type":"custom"}]}"#,
        r#"{"tool_calls":[{"custom":{"input":"b"},"index":1}]}"#,
        "{}",
    ];
    assert_eq!(deltas(&stream), expected);
    let object: Value = serde_json::from_str(&answered("vllm", &chat(tools), &[&whole()])).unwrap();
    let calls = object["choices"][0]["message"]["tool_calls"]
        .as_array()
        .unwrap();
    let inputs: Vec<_> = calls
        .iter()
        .map(|call| (call["type"].as_str(), call["custom"]["input"].as_str()))
        .collect();
    assert_eq!(
        inputs,
        [(Some("custom"), Some("a")), (Some("custom"), Some("b"))]
    );
}

#[test]
fn old_functions_come_back_as_such() {
    let chunks = chunks();
    let chunks: Vec<_> = chunks.iter().map(String::as_str).collect();
    let functions = r#""functions":[{"name":"c"}]"#;
    let stream = answered(
        "vllm",
        &chat(&format!(r#"{functions},"stream":true"#)),
        &chunks,
    );
    let expected = [
        r#"{"role":"assistant"}"#,
        r#"{"function_call":{"arguments":"","name":"c"}}"#,
        r#"{"function_call":{"arguments":"{\"input\""}}"#,
        r#"{"function_call":{"arguments":": \"a\\n\"}"}}"#,
        "{}",
    ];
    assert_eq!(deltas(&stream), expected);
    assert!(
        stream.contains(r#""finish_reason":"function_call""#),
        "{stream}"
    );
    let object: Value =
        serde_json::from_str(&answered("vllm", &chat(functions), &[&whole()])).unwrap();
    let choice = &object["choices"][0];
    assert_eq!(
        choice["message"]["function_call"]["arguments"],
        r#"{"input":"a"}"#
    );
    assert_eq!(choice["finish_reason"], "function_call");
}

/// Tool calls left in the text are parsed for every form in which the client declares functions.
#[test]
fn calls_in_the_text_are_read_for_every_form_of_tools() {
    let text = |name: &str, arguments: &str| {
        let call =
            format!("<tool_call>{{\"name\": \"{name}\", \"arguments\": {arguments}}}</tool_call>");
        let text = serde_json::to_string(&call).unwrap();
        format!(r#""message":{{"role":"assistant","content":{text}}},"finish_reason":"stop""#)
    };
    let message = |members: &str, text: &str| {
        let options = Options {
            parser: "hermes".to_owned().try_into().unwrap(),
            ..Options::default()
        };
        let answer: Value =
            serde_json::from_str(&answered_with(options, "vllm", &chat(members), &[text])).unwrap();
        answer["choices"][0]["message"].clone()
    };
    let called = message(r#""functions":[{"name":"f"}]"#, &text("f", "{}"));
    assert_eq!(called["function_call"]["name"], "f", "{called}");
    let custom = message(
        r#""tools":[{"type":"custom","custom":{"name":"c"}}]"#,
        &text("c", r#"{"input": "a"}"#),
    );
    assert_eq!(custom["tool_calls"][0]["custom"]["input"], "a", "{custom}");
    let function = |name: &str| format!(r#"{{"type":"function","function":{{"name":"{name}"}}}}"#);
    let allowed = format!(
        r#""tools":[{},{}],"tool_choice":{{"type":"allowed_tools","allowed_tools":{{"mode":"auto","tools":[{}]}}}}"#,
        function("f"),
        function("g"),
        function("g")
    );
    let called = message(&allowed, &text("g", "{}"));
    assert_eq!(called["tool_calls"][0]["function"]["name"], "g", "{called}");
    let none = message(
        r#""functions":[{"name":"f"}],"function_call":"none""#,
        &text("f", "{}"),
    );
    assert!(
        none.get("function_call").is_none() && none["content"] != Value::Null,
        "{none}"
    );
}

/// Reasoning is hidden if the client says so, whether the engine or samewire separates it (captures of vLLM 0.21.0,
/// `chat-include-reasoning-false-stream`).
#[test]
fn reasoning_is_left_out_where_the_client_says_so() {
    let delta =
        |key: &str, text: &str| format!(r#""delta":{{"{key}":"{text}"}},"finish_reason":null"#);
    let end = r#""delta":{},"finish_reason":"stop""#.to_owned();
    let parsed = [
        delta("reasoning", "a"),
        delta("reasoning", "b"),
        delta("content", "c"),
        end.clone(),
    ];
    let tagged = [
        delta("content", "<think>a"),
        delta("content", "b</think>"),
        delta("content", "c"),
        end,
    ];
    let parser = || Options {
        parser: "qwen3".to_owned().try_into().unwrap(),
        ..Options::default()
    };
    for (options, chunks) in [
        (Options::default(), &parsed),
        (parser(), &parsed),
        (parser(), &tagged),
    ] {
        let chunks: Vec<_> = chunks.iter().map(String::as_str).collect();
        for (says, reasons) in [
            ("false", false),
            ("true", true),
            ("null", true),
            ("0", true),
        ] {
            let body = chat(&format!(r#""stream":true,"include_reasoning":{says}"#));
            let stream = answered_with(options.clone(), "vllm", &body, &chunks);
            assert_eq!(
                stream.contains("reasoning_content"),
                reasons,
                "{says}: {stream}"
            );
            assert!(stream.contains(r#""content":"c""#), "{stream}");
        }
    }
    let body = chat(r#""include_reasoning":false"#);
    let whole = |message: &str, options: Options| {
        let message =
            format!(r#""message":{{"role":"assistant",{message}}},"finish_reason":"stop""#);
        let answer: Value =
            serde_json::from_str(&answered_with(options, "vllm", &body, &[&message])).unwrap();
        let message = answer["choices"][0]["message"].clone();
        assert!(message.get("reasoning_content").is_none(), "{message}");
        message["content"].clone()
    };
    assert_eq!(
        whole(r#""reasoning":"a","content":"c""#, Options::default()),
        "c"
    );
    assert_eq!(whole(r#""content":"<think>a</think>c""#, parser()), "c");
    let promoting = Options {
        promote_reasoning: PromoteReasoning::Always,
        ..Options::default()
    };
    assert_eq!(whole(r#""reasoning":"a","content":null"#, promoting), "a");
}

/// Limits of the ranges, where off-by-one errors are likely.
#[test]
fn a_range_ends_before_its_end() {
    let version = |text: &str| text.parse::<EngineVersion>().unwrap();
    let at = |name: &str, engine: &str, text: &str| {
        let identity = EngineIdentity {
            version: Some(version(text)),
            ..EngineIdentity::from(named(engine).unwrap())
        };
        rules_for(&identity).any(|rule| rule.name == name)
    };
    assert!(at("max_tokens", "vllm", "0.6.3") && !at("max_tokens", "vllm", "0.6.4"));
    assert!(at("no_reasoning", "sglang", "0.5.9.post1") && !at("no_reasoning", "sglang", "0.5.10"));
}
