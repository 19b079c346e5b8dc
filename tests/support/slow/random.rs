//! Random exchanges: answers of the two engines, in every shape they were seen to send, and worse.
//!
//! Takes: nothing. Gives: whole [`Case`]s. Remembers: nothing. Never: a stream whose answer the wire format leaves
//! open.
//!
//! Engine bodies are built as text, not as values: the order of keys, the spelling of numbers and the escapes in
//! strings are part of the test.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::Case;

/// Generates an exchange of any kind.
pub fn case() -> impl Strategy<Value = Case> {
    prop_oneof![
        10 => stream_case(true),
        4 => stream_case(false),
        3 => whole_case(true),
        2 => whole_case(false),
        2 => refused_case(),
    ]
}

/// Generates a streamed answer; one in eight to a request without a stream.
fn stream_case(chat: bool) -> impl Strategy<Value = Case> {
    let plan =
        (1usize..=3).prop_flat_map(move |n| (vec(choice_plan(chat), n), vec(any::<u8>(), 1..12)));
    (
        plan,
        request(chat),
        options(),
        envelope(),
        extras(),
        ending(),
        framing(),
        weighted(0.25, (any::<u8>(), noise())),
    )
        .prop_map(
            move |(
                (choices, picks),
                request,
                options,
                envelope,
                extras,
                ending,
                framing,
                noise,
            )| {
                let n = choices.len();
                let mut options = options;
                let mut request = request;
                request["n"] = json!(n);
                if request["stream"] == Value::Bool(false) {
                    // The format leaves open which unknown members a collected object keeps.
                    options["unknown_fields"] = json!("strip");
                }
                let mut events = interleave(chat, choices, &picks, &envelope, &extras);
                events.extend(
                    ending
                        .usage
                        .iter()
                        .map(|usage| envelope.chunk(chat, "", Some(usage), &extras.last)),
                );
                if let Some((at, noise)) = noise {
                    let noise = noise.text(options["invalid_event"] == "skip");
                    events.insert(usize::from(at) % (events.len() + 1), noise);
                }
                let input = framing.bytes(events, &ending);
                make(
                    chat,
                    request,
                    options,
                    200,
                    "text/event-stream",
                    input,
                    ending.reset,
                )
            },
        )
}

/// Generates a whole JSON body; half of them to a request with a stream.
fn whole_case(chat: bool) -> impl Strategy<Value = Case> {
    let plan = (1usize..=3).prop_flat_map(move |n| vec(whole_choice(chat), n));
    let broken = select(vec![
        "",
        "{}",
        "[]",
        "<html></html>",
        "{\"choices\":[]}",
        "{\"choices\":null}",
        "{\"choices\":[",
    ]);
    let broken = prop_oneof![
        3 => broken.prop_map(str::to_owned),
        1 => error_text(),
    ];
    (
        plan,
        request(chat),
        any::<bool>(),
        options(),
        envelope(),
        extras(),
        weighted(0.8, usage()),
        weighted(0.1, broken),
    )
        .prop_map(
            move |(choices, request, stream, options, envelope, extras, usage, broken)| {
                let mut request = request;
                request["stream"] = json!(stream);
                request["n"] = json!(choices.len());
                let texts: Vec<String> = choices
                    .iter()
                    .enumerate()
                    .map(|(index, choice)| choice.text(chat, index, stream))
                    .collect();
                let object = if chat {
                    "chat.completion"
                } else {
                    "text_completion"
                };
                let body = envelope.body(object, &texts.join(","), usage.as_deref(), &extras.first);
                let body = envelope.space(&broken.unwrap_or(body)).into_bytes();
                make(chat, request, options, 200, "application/json", body, false)
            },
        )
}

/// Generates an answer that is an HTTP error.
fn refused_case() -> impl Strategy<Value = Case> {
    let status = select(vec![
        400, 401, 403, 404, 405, 409, 413, 418, 422, 429, 500, 501, 502, 503, 504, 529,
    ]);
    let detail = select(vec![
        r#"{"detail":"Not Found"}"#,
        r#"{"detail":[{"loc":["body","max_tokens"],"msg":"Input should be a valid integer","type":"int_parsing"}]}"#,
        r#"{"detail":[{"loc":["body","messages",0,"role"],"msg":"bad"},{"loc":["body","n"],"msg":"worse"}]}"#,
        "<html>502 Bad Gateway</html>",
        "",
        "Internal Server Error",
        "{",
    ]);
    let body = prop_oneof![3 => error_text(), 2 => detail.prop_map(str::to_owned)];
    let retry = weighted(0.5, select(vec!["2", "Wed, 21 Oct 2026 07:28:00 GMT"]));
    (status, body, retry, request(true), options()).prop_map(
        |(status, body, retry, request, options)| {
            let mut case = make(
                true,
                request,
                options,
                status,
                "application/json",
                body.into_bytes(),
                false,
            );
            case.upstream_headers
                .extend(retry.map(|value| ("retry-after".to_owned(), value.to_owned())));
            case
        },
    )
}

fn make(
    chat: bool,
    request: Value,
    options: Value,
    status: u16,
    kind: &str,
    input: Vec<u8>,
    reset: bool,
) -> Case {
    let api = if chat {
        "chat.completions"
    } else {
        "completions"
    };
    Case {
        client_api: api.to_owned(),
        upstream_api: api.to_owned(),
        request,
        options,
        upstream_status: status,
        upstream_headers: BTreeMap::from([("content-type".to_owned(), kind.to_owned())]),
        input,
        eof_reset: reset,
        now: 1_795_000_000,
    }
}

// === the client's request ===

fn request(chat: bool) -> impl Strategy<Value = Value> {
    let stream = prop_oneof![7 => Just(true), 1 => Just(false)];
    let usage = select(vec![
        json!(null),
        json!({}),
        json!({"include_usage": false}),
        json!({"include_usage": true}),
        json!({"include_usage": true, "continuous_usage_stats": true}),
    ]);
    let named = json!({"type": "function", "function": {"name": "forced"}});
    let tool_choice = select(vec![
        json!(null),
        json!(null),
        json!("auto"),
        json!("required"),
        named,
    ]);
    let limit = weighted(0.3, (any::<bool>(), 3u64..8));
    let extensions = select(vec![0, 0, 0, 1, 2, 3]);
    (stream, usage, any::<bool>(), tool_choice, limit, extensions).prop_map(
        move |(stream, usage, logprobs, tool_choice, limit, extensions)| {
            let mut request = json!({"model": "asked-model", "stream": stream});
            if !usage.is_null() {
                request["stream_options"] = usage;
            }
            if chat {
                request["logprobs"] = json!(logprobs);
                if !tool_choice.is_null() {
                    request["tool_choice"] = tool_choice;
                }
            } else {
                request["prompt"] = json!("Once");
                if logprobs {
                    request["logprobs"] = json!(0);
                }
            }
            if extensions & 1 != 0 {
                request["return_token_ids"] = json!(true);
            }
            if extensions & 2 != 0 {
                request["prompt_logprobs"] = json!(1);
            }
            if let Some((new, limit)) = limit {
                request[if new {
                    "max_completion_tokens"
                } else {
                    "max_tokens"
                }] = json!(limit);
            }
            request
        },
    )
}

/// Generates options, each at its default most of the time.
pub fn options() -> impl Strategy<Value = Value> {
    let words: [(&str, &[&str]); 10] = [
        (
            "reasoning_field",
            &["reasoning_content", "reasoning", "both", "none"],
        ),
        ("role_frame", &["bare", "openai"]),
        ("named_tool_choice_finish", &["tool_calls", "openai"]),
        ("missing_finish", &["error", "stop"]),
        ("error_frame", &["nested", "flat+nested"]),
        ("invalid_event", &["error", "skip"]),
        ("system_fingerprint", &["strip", "hash", "pass"]),
        ("tool_call_ids", &["canonical", "preserve"]),
        ("model_name", &["upstream", "requested", "an-alias"]),
        ("continuous_usage", &["strip", "pass"]),
    ];
    let words: Vec<_> = words
        .into_iter()
        .map(|(name, values)| {
            weighted(0.3, select(values.to_vec())).prop_map(move |value| (name, value))
        })
        .collect();
    let switches: Vec<_> = [
        "done_after_error",
        "stop_details",
        "force_usage",
        "unknown_fields",
    ]
    .into_iter()
    .map(|name| proptest::bool::weighted(0.25).prop_map(move |on| (name, on)))
    .collect();
    (words, switches).prop_map(|(words, switches)| {
        let mut options = json!({});
        for (name, value) in words {
            if let Some(value) = value {
                options[name] = json!(value);
            }
        }
        for (name, on) in switches {
            match name {
                "unknown_fields" if on => options[name] = json!("pass"),
                "unknown_fields" => {}
                _ if on => options[name] = json!(true),
                _ => {}
            }
        }
        if options["system_fingerprint"] == "hash" {
            options["fingerprint_salt"] = json!("salt");
        }
        options
    })
}

// === texts ===

/// Generates a non-empty JSON string, with its quotes.
fn literal() -> impl Strategy<Value = String> {
    let plain = select(vec![
        "Hello",
        " world",
        "é",
        "世界",
        "🎉",
        "\u{2028}",
        "a\u{85}b",
        "\u{2029}",
        "\u{feff}",
        "say \"hi\"\\",
        "\n\n",
        "\t",
        "\u{0}\u{1b}\u{7f}",
        "<think>",
        "</",
        "data: [DONE]",
        "e\u{301}",
        "\r\n",
    ]);
    let plain = vec(plain, 1..3).prop_map(|parts| parts.concat());
    prop_oneof![
        8 => (plain, any::<bool>()).prop_map(|(text, ascii)| quote(&text, ascii)),
        // Unusual but valid escapes, and unpaired surrogates, which are not text.
        1 => select(vec![r#""a\/b""#, r#""\u0041""#, r#""x\ud83d""#, r#""\ude00y""#, r#""\ud83d\ud83d\ude00""#])
            .prop_map(str::to_owned),
    ]
}

/// Quotes a JSON string, with everything beyond ASCII escaped as Python does by default, or unescaped.
fn quote(text: &str, ascii: bool) -> String {
    let quoted = serde_json::to_string(text).unwrap();
    if !ascii {
        return quoted;
    }
    let mut out = String::new();
    for unit in quoted.encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\u{unit:04x}")),
        }
    }
    out
}

// === one choice of a stream ===

/// Content of one chunk for one choice, as JSON members, before the chunk is put together.
#[derive(Clone, Debug, Default)]
struct Step {
    /// Members of the delta, or of the completion's choice; `None` if there is no delta.
    delta: Option<Vec<String>>,
    null_delta: bool,
    logprobs: Option<String>,
    finish: Option<&'static str>,
    /// Members of the choice.
    extras: Vec<&'static str>,
}

fn choice_plan(chat: bool) -> BoxedStrategy<Vec<Step>> {
    let texts = vec(text_step(chat), 0..4);
    let old_call = if chat {
        weighted(0.05, Just(function_call_steps())).boxed()
    } else {
        Just(None).boxed()
    };
    let calls = if chat {
        prop_oneof![1 => Just(Vec::new()), 1 => call_steps()].boxed()
    } else {
        Just(Vec::new()).boxed()
    };
    let logprobs = vec(weighted(0.3, logprobs(chat)), 1..6);
    let extras = vec(choice_extra(), 1..6);
    (
        weighted(0.9, role_step(chat)),
        texts.clone(),
        calls,
        old_call,
        texts,
        logprobs,
        extras,
        finish(),
    )
        .prop_map(
            move |(role, before, calls, old_call, after, logprobs, extras, finish)| {
                let calls = calls.into_iter().chain(old_call.unwrap_or_default());
                let mut steps: Vec<Step> = role
                    .into_iter()
                    .chain(before)
                    .chain(calls)
                    .chain(after)
                    .collect();
                for (at, step) in steps.iter_mut().enumerate() {
                    step.logprobs = logprobs[at % logprobs.len()].clone();
                    step.extras.clone_from(&extras[at % extras.len()]);
                }
                finish.put(chat, &mut steps);
                steps
            },
        )
        .boxed()
}

/// Returns steps of a call in the deprecated form.
fn function_call_steps() -> Vec<Step> {
    let pieces = [
        r#""function_call":{"name":"old","arguments":""}"#,
        r#""function_call":{"arguments":"{\"a\":"}"#,
        r#""content":null,"function_call":{"arguments":"1}"}"#,
        r#""function_call":null"#,
    ];
    pieces.map(|member| step(vec![member.to_owned()])).to_vec()
}

fn role_step(chat: bool) -> impl Strategy<Value = Step> {
    let shapes: Vec<&'static [&'static str]> = if chat {
        vec![
            &[r#""role":"assistant""#, r#""content":"""#],
            &[r#""role":"assistant""#],
            &[r#""role":"assistant""#, r#""content":null"#],
            &[
                r#""reasoning_content":null"#,
                r#""role":"assistant""#,
                r#""content":"""#,
            ],
            &[
                r#""role":"assistant""#,
                r#""content":"""#,
                r#""refusal":null"#,
                r#""tool_calls":[]"#,
            ],
        ]
    } else {
        vec![&[r#""text":"""#]]
    };
    select(shapes)
        .prop_map(|members| step(members.iter().map(|member| (*member).to_owned()).collect()))
}

fn step(delta: Vec<String>) -> Step {
    Step {
        delta: Some(delta),
        ..Step::default()
    }
}

fn text_step(chat: bool) -> BoxedStrategy<Step> {
    if !chat {
        let text = literal().prop_map(|text| step(vec![format!("\"text\":{text}")]));
        let empty = select(vec![r#""text":"""#, r#""text":null"#]);
        return prop_oneof![6 => text, 1 => empty.prop_map(|member| step(vec![member.to_owned()]))]
            .boxed();
    }
    let member = |key: &'static str| literal().prop_map(move |text| format!("\"{key}\":{text}"));
    let content = member("content").prop_map(|content| step(vec![content]));
    let dressed = member("content").prop_map(|content| {
        let nulls = [
            "\"role\":null",
            "\"reasoning_content\":null",
            "\"tool_calls\":null",
        ]
        .map(str::to_owned);
        step([&nulls[..], &[content]].concat())
    });
    let repeated = member("content")
        .prop_map(|content| step(vec!["\"role\":\"assistant\"".to_owned(), content]));
    let names = select(vec![
        "reasoning_content",
        "reasoning",
        "thinking",
        "reasoning_text",
    ]);
    let reasoning =
        (names, literal()).prop_map(|(key, text)| step(vec![format!("\"{key}\":{text}")]));
    let both = literal().prop_map(|text| {
        step(vec![
            format!("\"reasoning\":{text}"),
            format!("\"reasoning_content\":{text}"),
        ])
    });
    let differ = (literal(), literal()).prop_map(|(a, b)| {
        step(vec![
            format!("\"thinking\":{a}"),
            format!("\"reasoning\":{b}"),
        ])
    });
    let object = (select(vec!["text", "content"]), literal())
        .prop_map(|(key, text)| step(vec![format!("\"reasoning\":{{\"{key}\":{text}}}")]));
    let listed = (literal(), literal())
        .prop_map(|(a, b)| step(vec![parts(&a, &b)]))
        .boxed();
    let details = (literal(), any::<bool>())
        .prop_map(|(text, repeats)| {
            let entry = format!("{{\"type\":\"reasoning.text\",\"text\":{text},\"index\":0}}");
            let details =
                format!("\"reasoning_details\":[{entry},{{\"type\":\"reasoning.encrypted\"}}]");
            let again = if repeats {
                vec![format!("\"reasoning\":{text}")]
            } else {
                Vec::new()
            };
            step([again, vec![details]].concat())
        })
        .boxed();
    let boundary = (member("content"), member("reasoning"))
        .prop_map(|(content, reasoning)| step(vec![content, reasoning]));
    let refusal = member("refusal").prop_map(|refusal| step(vec![refusal]));
    let extra = member("content").prop_map(|content| {
        step(vec![
            "\"bar\":{\"b\": 1, \"a\":[1.0, 2]}".to_owned(),
            content,
            "\"hidden_states\":null".to_owned(),
        ])
    });
    prop_oneof![
        6 => content,
        2 => dressed,
        1 => repeated,
        3 => reasoning,
        1 => both,
        1 => differ,
        1 => object,
        1 => listed,
        1 => details,
        1 => boundary,
        1 => refusal,
        1 => extra,
        3 => empty_step(),
    ]
    .boxed()
}

/// Returns content as a list of parts with this reasoning and this text, both in JSON spelling.
fn parts(reasoning: &str, text: &str) -> String {
    let thinking = format!(
        "{{\"type\":\"thinking\",\"thinking\":[{{\"type\":\"text\",\"text\":{reasoning}}}]}}"
    );
    let reference = "{\"type\":\"reference\",\"reference_ids\":[1]}";
    format!("\"content\":[{thinking},{reference},{{\"type\":\"text\",\"text\":{text}}}]")
}

fn empty_step() -> impl Strategy<Value = Step> {
    let shapes: Vec<&'static [&'static str]> = vec![
        &[],
        &[r#""content":"""#],
        &[r#""content":null"#],
        &[r#""reasoning_content":"""#, r#""content":"""#],
        &[r#""content":"""#, r#""tool_calls":[]"#],
        &[r#""reasoning_content":null"#],
        &[r#""content":[]"#, r#""reasoning_details":[]"#],
    ];
    let given = select(shapes)
        .prop_map(|members| step(members.iter().map(|member| (*member).to_owned()).collect()));
    prop_oneof![
        6 => given,
        1 => Just(Step::default()),
        1 => Just(Step { null_delta: true, ..Step::default() }),
    ]
}

fn choice_extra() -> impl Strategy<Value = Vec<&'static str>> {
    select(vec![
        vec![],
        vec![],
        vec![r#""token_ids":null"#],
        vec![r#""token_ids":[5, 6]"#, r#""weight_versions":null"#],
        vec![r#""matched_stop":null"#],
        vec![r#""stop_reason":null"#, r#""routed_experts":"AA==""#],
        vec![
            r#""x_upstream":{"kept": [1.50, {"z":0,"a":1e2}]}"#,
            r#""token_ids":[7]"#,
        ],
    ])
}

// === finishes ===

/// Finish of a choice, in the forms and places in which engines send it.
#[derive(Clone, Debug)]
struct Finish {
    word: Option<&'static str>,
    stop: &'static str,
    /// True if the finish is on the last chunk with text.
    merged: bool,
    /// True if the finish is sent twice.
    twice: bool,
    /// Text after the finish.
    late: Option<Step>,
}

fn finish() -> impl Strategy<Value = Finish> {
    let word = prop_oneof![
        8 => select(vec!["stop", "length", "tool_calls", "content_filter", "function_call"]),
        2 => select(vec!["eos", "eos_token", "end_turn", "COMPLETE", "max_tokens", "MAX_TOKENS", "tool_use", "SAFETY", "repetition", "sensitive"]),
        1 => select(vec!["abort", "error", "cancelled", "network_error", "insufficient_system_resource", "Error"]),
    ];
    let stop = select(vec![
        "",
        r#""stop_reason":"END""#,
        r#""stop_reason":128001"#,
        r#""matched_stop":200012"#,
        r#""stop_reason":null,"matched_stop":"x""#,
    ]);
    let twice = proptest::bool::weighted(0.15);
    (
        weighted(0.93, word),
        stop,
        any::<bool>(),
        twice,
        weighted(0.1, text_step(true)),
    )
        .prop_map(|(word, stop, merged, twice, late)| Finish {
            word,
            stop,
            merged,
            twice,
            late,
        })
}

impl Finish {
    fn put(self, chat: bool, steps: &mut Vec<Step>) {
        let Some(word) = self.word else { return };
        let stop = Some(self.stop).filter(|stop| !stop.is_empty());
        let own_step = || {
            let members = if chat {
                Vec::new()
            } else {
                vec!["\"text\":\"\"".to_owned()]
            };
            Step {
                finish: Some(word),
                extras: stop.into_iter().collect(),
                ..step(members)
            }
        };
        match steps.last_mut() {
            Some(last) if self.merged => {
                last.finish = Some(word);
                last.extras = stop.into_iter().collect();
            }
            _ => steps.push(own_step()),
        }
        if self.twice {
            steps.push(own_step());
        }
        if chat {
            steps.extend(self.late);
        }
    }
}

// === tool calls ===

/// Numbering of the calls in one choice: correct, or in a way that some engine uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbering {
    Right,
    /// Indices from five on.
    Shifted,
    /// Index zero for all, told apart by id and name.
    Same,
    /// Absent index.
    Absent,
}

#[derive(Clone, Debug)]
struct CallPlan {
    id: &'static str,
    name: Naming,
    /// Arguments as the engine sends them, cut at these places.
    arguments: &'static str,
    cuts: Vec<u8>,
    /// True if the arguments are an object instead of text.
    as_object: bool,
    /// True if every piece has the id and the type.
    repeats_id: bool,
    /// Data sent after the complete arguments.
    after_arguments: AfterArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterArguments {
    Nothing,
    /// The whole arguments again.
    Again,
    /// Another value.
    Other,
    /// The beginning of a value.
    Cut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naming {
    First,
    /// Name alone on the first piece, the arguments after it.
    Alone,
    Late,
    Repeated,
    Missing,
}

fn call_plan() -> impl Strategy<Value = CallPlan> {
    let id = select(vec![
        "chatcmpl-tool-9f0c",
        "call_x1",
        "functions.f:0",
        "aB3dE5gH7",
        "",
        "",
        "null",
    ]);
    let name = prop_oneof![
        4 => Just(Naming::First),
        2 => Just(Naming::Alone),
        1 => Just(Naming::Late),
        1 => Just(Naming::Repeated),
        1 => Just(Naming::Missing),
    ];
    let arguments = select(vec![
        "{}",
        r#"{"city": "Paris"}"#,
        r#"{"city":"Zürich","n":[1,2.50,{"deep":"}"}]}"#,
        r#"[{"a":"\"]"}]"#,
        r#"{"query": "ru"#,
        "",
    ]);
    (
        id,
        name,
        arguments,
        vec(any::<u8>(), 0..4),
        proptest::bool::weighted(0.15),
        any::<bool>(),
        prop_oneof![
            14 => Just(AfterArguments::Nothing),
            4 => Just(AfterArguments::Again),
            1 => Just(AfterArguments::Other),
            1 => Just(AfterArguments::Cut),
        ],
    )
        .prop_map(
            |(id, name, arguments, cuts, as_object, repeats_id, behind)| CallPlan {
                id,
                name,
                arguments,
                cuts,
                as_object,
                repeats_id,
                after_arguments: behind,
            },
        )
}

/// Generates arguments that are mostly no JSON.
pub fn garbled() -> impl Strategy<Value = String> {
    let begin = select(vec![
        "{",
        "{\"a\":1",
        "{'a': 'b'",
        "{\"a\":[1,2]}",
        "[1",
        " ",
    ]);
    let part = select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ", ",
        ":",
        "'",
        "\"",
        "\"a\"",
        "'it\\'s'",
        "1",
        "-",
        "True",
        "None",
        "false",
        "\n",
        " ",
        "é",
        "\\",
        "x",
        "</tool_call>",
        "<|im_end|>",
        "<|im",
        "]<]minimax[>[</invoke>",
        "\"b\": 2.5",
        "\"c\nd\"",
    ]);
    let end = select(vec![
        "",
        "}",
        ",}",
        "]}",
        "}}",
        "</tool_call>",
        "}</tool_call>",
        "}\"}",
        "\n",
    ]);
    (begin, vec(part, 0..7), end)
        .prop_map(|(begin, parts, end)| format!("{begin}{}{end}", parts.concat()))
}

/// Generates the chunks of up to three calls, one after the other, or all entries in one delta.
fn call_steps() -> impl Strategy<Value = Vec<Step>> {
    let numbering = select(vec![
        Numbering::Right,
        Numbering::Right,
        Numbering::Shifted,
        Numbering::Same,
        Numbering::Absent,
    ]);
    (
        numbering,
        vec(call_plan(), 1..4),
        proptest::bool::weighted(0.25),
        any::<bool>(),
    )
        .prop_map(|(numbering, plans, at_once, dressed)| {
            let several = plans.len() > 1;
            let mut pieces = Vec::new();
            for (position, mut plan) in plans.into_iter().enumerate() {
                if several && plan.name == Naming::Missing {
                    // The format leaves open the position of a call that is named last among others.
                    plan.name = Naming::First;
                }
                pieces.extend(plan.pieces(numbering, position));
            }
            let delta = |pieces: &[String]| {
                let mut members = vec![format!("\"tool_calls\":[{}]", pieces.join(","))];
                if dressed {
                    members.insert(0, "\"role\":null,\"content\":null".to_owned());
                }
                step(members)
            };
            if at_once {
                vec![delta(&pieces)]
            } else {
                pieces
                    .iter()
                    .map(|piece| delta(std::slice::from_ref(piece)))
                    .collect()
            }
        })
}

impl CallPlan {
    /// Returns the entries of `tool_calls` that make this call.
    fn pieces(&self, numbering: Numbering, position: usize) -> Vec<String> {
        let index = match numbering {
            Numbering::Right => Some(position),
            Numbering::Shifted => Some(position + 5),
            Numbering::Same => Some(0),
            Numbering::Absent => None,
        };
        let told_apart = numbering == Numbering::Same || numbering == Numbering::Absent;
        let id = match self.id {
            // Only the ids distinguish these calls.
            "" | "null" if told_apart => format!("\"call_{position}\""),
            "null" => "null".to_owned(),
            "" => "\"\"".to_owned(),
            id => format!("\"{id}{position}\""),
        };
        let name = if self.name == Naming::Missing {
            String::new()
        } else {
            format!("f{position}")
        };
        let mut texts = self.fragments();
        match self.name {
            // The name comes before or after the first text.
            Naming::Alone => texts.insert(0, None),
            Naming::Late if texts.len() == 1 => texts.push(None),
            _ => {}
        }
        let mut pieces = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            let mut members: Vec<String> = index
                .iter()
                .map(|index| format!("\"index\":{index}"))
                .collect();
            if at == 0 || self.repeats_id {
                members.push(format!("\"id\":{id}"));
                members.push("\"type\":\"function\"".to_owned());
            }
            let named = match self.name {
                Naming::First | Naming::Alone => at == 0,
                Naming::Late => at == 1,
                // Without an index, a name alone would open another call.
                Naming::Repeated => at == 0 || numbering != Numbering::Absent || self.repeats_id,
                Naming::Missing => false,
            };
            let mut function: Vec<String> = Vec::new();
            if named {
                function.push(format!("\"name\":\"{name}\""));
            }
            function.extend(text.iter().map(|text| format!("\"arguments\":{text}")));
            members.push(format!("\"function\":{{{}}}", function.join(",")));
            pieces.push(format!("{{{}}}", members.join(",")));
        }
        pieces
    }

    /// Returns the values of `arguments`, piece by piece; `None` if the key is absent.
    fn fragments(&self) -> Vec<Option<String>> {
        let complete =
            !self.arguments.is_empty() && serde_json::from_str::<Value>(self.arguments).is_ok();
        if self.as_object && complete {
            return vec![Some(self.arguments.to_owned())];
        }
        let mut ends: Vec<usize> = self
            .cuts
            .iter()
            .map(|cut| usize::from(*cut) % (self.arguments.len() + 1))
            .collect();
        ends.retain(|end| self.arguments.is_char_boundary(*end));
        ends.push(self.arguments.len());
        ends.sort_unstable();
        let mut fragments = Vec::new();
        let mut start = 0;
        for end in ends {
            fragments.push(Some(quote(&self.arguments[start..end], false)));
            start = end;
        }
        let second = match self.after_arguments {
            AfterArguments::Nothing => "",
            AfterArguments::Again => self.arguments,
            AfterArguments::Other => r#"{"other":[1]}"#,
            AfterArguments::Cut => r#"{"ot"#,
        };
        if complete && !second.is_empty() {
            fragments.push(Some("\" \\n\"".to_owned()));
            let half = second.char_indices().nth(1).map_or(0, |(at, _)| at);
            fragments.push(Some(quote(&second[..half], false)));
            fragments.push(Some(quote(&second[half..], false)));
        }
        fragments
    }
}

// === logprobs ===

fn logprobs(chat: bool) -> BoxedStrategy<String> {
    let number = || {
        select(vec![
            "-1.5",
            "-9999.0",
            "0.0",
            "-0.10000000149011612",
            "-2",
            "-1e-05",
        ])
    };
    if !chat {
        let token = (literal(), number()).prop_map(|(token, number)| {
            format!(
                "{{\"tokens\":[{token}],\"token_logprobs\":[{number}],\"top_logprobs\":[{{\"b\":{number}, \"a\":-3}}],\"text_offset\":[4]}}"
            )
        });
        return token.boxed();
    }
    let bytes = || select(vec!["", r#","bytes":null"#, r#","bytes":[104, 105]"#]);
    let bare = move || {
        (literal(), number(), bytes()).prop_map(|(token, number, bytes)| {
            format!("\"token\":{token},\"logprob\":{number}{bytes}")
        })
    };
    let entry = move || {
        (bare(), weighted(0.6, vec(bare(), 0..3)), any::<bool>()).prop_map(|(entry, top, odd)| {
            let top = top.map_or_else(String::new, |top| {
                let top: Vec<String> = top.iter().map(|other| format!("{{{other}}}")).collect();
                format!(",\"top_logprobs\":[{}]", top.join(","))
            });
            let odd = if odd { ",\"id\":5" } else { "" };
            format!("{{{entry}{top}{odd}}}")
        })
    };
    let content =
        vec(entry(), 0..3).prop_map(|entries| format!("{{\"content\":[{}]}}", entries.join(",")));
    let refusal = entry().prop_map(|entry| format!("{{\"content\":null,\"refusal\":[{entry}]}}"));
    prop_oneof![5 => content, 1 => refusal, 1 => Just("{\"content\":null}".to_owned())].boxed()
}

// === the envelope ===

/// Members around the choices, the same in every chunk, each in its own spelling.
#[derive(Clone, Debug)]
struct EnvelopeText {
    id: &'static str,
    created: &'static str,
    model: &'static str,
    tier: &'static str,
    /// True if `usage` is null in chunks without one.
    null_usage: bool,
    spaced: bool,
}

fn envelope() -> impl Strategy<Value = EnvelopeText> {
    let id = select(vec![
        r#""id":"chatcmpl-6ca2ec78-dac2-4759-8ffc","#,
        r#""id":"d3b406a9b33a435cb7a7bcc2266e48ac","#,
        r#""id":"cmpl-77","#,
        r#""id":"né/1","#,
        r#""id":"","#,
        r#""id":null,"#,
        "",
    ]);
    let created = select(vec![
        r#""created":1779866853,"#,
        r#""created":1779866853123,"#,
        r#""created":0,"#,
        "",
    ]);
    let model = select(vec![r#""model":"org/model","#, r#""model":"","#, ""]);
    let tier = select(vec![
        "",
        "",
        r#""service_tier":null,"#,
        r#""service_tier":"priority","#,
        r#""service_tier":"odd","#,
    ]);
    (
        id,
        created,
        model,
        tier,
        any::<bool>(),
        proptest::bool::weighted(0.2),
    )
        .prop_map(
            |(id, created, model, tier, null_usage, spaced)| EnvelopeText {
                id,
                created,
                model,
                tier,
                null_usage,
                spaced,
            },
        )
}

impl EnvelopeText {
    fn chunk(&self, chat: bool, choices: &str, usage: Option<&String>, extras: &[&str]) -> String {
        let object = if chat {
            "chat.completion.chunk"
        } else {
            "text_completion"
        };
        self.space(&self.body(object, choices, usage.map(String::as_str), extras))
    }

    fn body(&self, object: &str, choices: &str, usage: Option<&str>, extras: &[&str]) -> String {
        let Self {
            id,
            created,
            model,
            tier,
            ..
        } = self;
        let usage = match usage {
            Some(usage) => format!(",\"usage\":{usage}"),
            None if self.null_usage => ",\"usage\":null".to_owned(),
            None => String::new(),
        };
        let extras: String = extras.iter().map(|extra| format!(",{extra}")).collect();
        format!(
            "{{{id}\"object\":\"{object}\",{created}{model}{tier}\"choices\":[{choices}]{usage}{extras}}}"
        )
    }

    /// Adds Python's spacing outside strings.
    fn space(&self, json: &str) -> String {
        if !self.spaced {
            return json.to_owned();
        }
        let mut out = String::new();
        let mut in_string = false;
        let mut escaped = false;
        for c in json.chars() {
            out.push(c);
            if in_string {
                in_string = escaped || c != '"';
                escaped = !escaped && c == '\\';
            } else if c == '"' {
                in_string = true;
            } else if c == ',' || c == ':' {
                out.push(' ');
            }
        }
        out
    }
}

/// Members of the first, a middle and the last chunk.
#[derive(Clone, Debug)]
struct Extras {
    first: Vec<&'static str>,
    middle: Vec<&'static str>,
    last: Vec<&'static str>,
}

fn extras() -> impl Strategy<Value = Extras> {
    let one = || {
        select(vec![
            vec![],
            vec![],
            vec![r#""prompt_token_ids":null"#, r#""prompt_text":null"#],
            vec![
                r#""prompt_token_ids":[1, 2]"#,
                r#""prompt_logprobs":[null,{"2":{"logprob":-0.5}}]"#,
            ],
            vec![r#""system_fingerprint":"vllm-0.21.0-tp2""#],
            vec![
                r#""system_fingerprint":"fp_0123456789""#,
                r#""metrics":{"ttft": 0.50, "a":[]}"#,
            ],
            vec![r#""obfuscation":"abc""#, r#""weight_version":"default""#],
            vec![
                r#""x_upstream":{"given": true}"#,
                r#""weight_version":"default""#,
            ],
        ])
    };
    (one(), one(), one()).prop_map(|(first, middle, last)| Extras {
        first,
        middle,
        last,
    })
}

fn usage() -> impl Strategy<Value = String> {
    let shapes = select(vec![
        r#"{"prompt_tokens":12,"total_tokens":17,"completion_tokens":5}"#,
        r#"{"prompt_tokens":12,"total_tokens":15,"completion_tokens":3,"prompt_tokens_details":null,"reasoning_tokens":2}"#,
        r#"{"prompt_tokens":4,"completion_tokens":null,"total_tokens":4}"#,
        r#"{"input_tokens":7,"output_tokens":6,"input_tokens_details":{"cached_tokens":3},"output_tokens_details":{"reasoning_tokens":1}}"#,
        r#"{"prompt_tokens":10,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":8,"created_tokens":1,"image_tokens":2},"completion_tokens_details":{"reasoning_tokens":5},"reasoning_tokens":4}"#,
        r#"{"prompt_tokens":10.0,"completion_tokens":-1,"total_tokens":"many","prompt_cache_hit_tokens":2}"#,
        r#"{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":1,"cache_write_tokens":9,"text_tokens":0},"completion_tokens_details":{"reasoning_tokens":null,"accepted_prediction_tokens":1,"rejected_prediction_tokens":0}}"#,
    ]);
    shapes.prop_map(str::to_owned)
}

// === putting a stream together ===

/// Merges the chunks of all choices in the order of the picks; each choice's own chunks stay in order.
fn interleave(
    chat: bool,
    choices: Vec<Vec<Step>>,
    picks: &[u8],
    envelope: &EnvelopeText,
    extras: &Extras,
) -> Vec<String> {
    let mut queues: Vec<_> = choices.into_iter().map(Vec::into_iter).collect();
    let mut left: Vec<usize> = (0..queues.len()).collect();
    let mut events = Vec::new();
    let mut picks = picks.iter().cycle();
    while !left.is_empty() {
        let pick = usize::from(*picks.next().unwrap());
        let at = left[pick % left.len()];
        let Some(step) = queues[at].next() else {
            left.retain(|other| *other != at);
            continue;
        };
        let mut texts = vec![step.text(chat, at)];
        // Occasionally two choices share a chunk.
        let other = left[(pick / 7) % left.len()];
        if pick % 5 == 0
            && other != at
            && let Some(step) = queues[other].next()
        {
            texts.push(step.text(chat, other));
        }
        let extras = if events.is_empty() {
            &extras.first
        } else {
            &extras.middle
        };
        // Usage on some chunks; engines send it on every chunk if the request wants it.
        let running = r#"{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}"#.to_owned();
        let usage = Some(&running).filter(|_| pick % 11 == 3);
        events.push(envelope.chunk(chat, &texts.join(","), usage, extras));
    }
    events
}

impl Step {
    fn text(&self, chat: bool, index: usize) -> String {
        let mut members = vec![format!("\"index\":{index}")];
        match &self.delta {
            Some(delta) if chat => members.push(format!("\"delta\":{{{}}}", delta.join(","))),
            Some(delta) => members.extend(delta.iter().cloned()),
            None if self.null_delta => members.push("\"delta\":null".to_owned()),
            None => {}
        }
        match &self.logprobs {
            Some(logprobs) => members.push(format!("\"logprobs\":{logprobs}")),
            None if index == 0 => members.push("\"logprobs\":null".to_owned()),
            None => {}
        }
        match self.finish {
            Some(word) => members.push(format!("\"finish_reason\":\"{word}\"")),
            None if index == 0 => members.push("\"finish_reason\":null".to_owned()),
            None => {}
        }
        members.extend(self.extras.iter().map(|extra| (*extra).to_owned()));
        format!("{{{}}}", members.join(","))
    }
}

/// End of a stream's bytes: usage, end mark, and whether a part of the body is lost.
#[derive(Clone, Debug)]
struct Ending {
    usage: Option<String>,
    done: &'static str,
    /// Part of the body that is lost, in 255ths.
    cut: Option<u8>,
    reset: bool,
}

fn ending() -> impl Strategy<Value = Ending> {
    let done = select(vec!["[DONE]", "[DONE]", "[DONE]", " [DONE] ", ""]);
    (
        weighted(0.6, usage()),
        done,
        weighted(0.1, any::<u8>()),
        proptest::bool::weighted(0.2),
    )
        .prop_map(|(usage, done, cut, reset)| Ending {
            usage,
            done,
            cut,
            reset,
        })
}

/// Spelling of events: line ends, comments, byte order mark, and bytes after the end.
#[derive(Clone, Debug)]
struct Framing {
    end: &'static str,
    before: &'static str,
    field: &'static str,
    mark: bool,
    unterminated: bool,
    after_done: bool,
}

fn framing() -> impl Strategy<Value = Framing> {
    let end = select(vec!["\n", "\n", "\n", "\r\n", "\r"]);
    let before = select(vec![
        "",
        "",
        "",
        ": keep-alive\n\n",
        "event: message\n",
        "id: 7\nretry: 10\n",
        "event: nothing\n\n",
    ]);
    let field = select(vec!["data: ", "data: ", "data:"]);
    let rare = || proptest::bool::weighted(0.1);
    (end, before, field, rare(), rare(), rare()).prop_map(
        |(end, before, field, mark, unterminated, after_done)| Framing {
            end,
            before,
            field,
            mark,
            unterminated,
            after_done,
        },
    )
}

impl Framing {
    fn bytes(&self, mut events: Vec<String>, ending: &Ending) -> Vec<u8> {
        if !ending.done.is_empty() {
            events.push(ending.done.to_owned());
            if self.after_done {
                events.push("{\"x\":1}".to_owned());
            }
        }
        let mut text = String::new();
        for event in events {
            // Noise has its own lines.
            if event.starts_with("event:") || event.starts_with("error:") {
                text.push_str(&event);
            } else {
                text.push_str(&format!("{}{}{event}\n\n", self.before, self.field));
            }
        }
        if self.unterminated {
            text.truncate(text.trim_end_matches('\n').len());
        }
        let mut bytes = Vec::new();
        if self.mark {
            bytes.extend(b"\xef\xbb\xbf");
        }
        for c in text.chars() {
            match c {
                '\n' => bytes.extend(self.end.as_bytes()),
                BAD_BYTE => bytes.push(0xff),
                other => bytes.extend(other.to_string().as_bytes()),
            }
        }
        if let Some(cut) = ending.cut {
            bytes.truncate(bytes.len() * usize::from(cut) / 255);
        }
        bytes
    }
}

// === things that are not chunks ===

/// Placeholder for a byte that is not UTF-8, until the bytes are made.
const BAD_BYTE: char = '\u{10fffd}';

/// Event in the middle of a stream that belongs to no answer.
#[derive(Clone, Debug)]
enum Noise {
    Error(String),
    Named(String),
    /// Error in a separate field, as old builds of llama.cpp write it.
    Field(String),
    /// Data that is not a JSON object.
    Nonsense(&'static str),
    /// JSON object with a wrong type in it.
    Wrong(&'static str),
    Empty(&'static str),
}

fn noise() -> BoxedStrategy<Noise> {
    let named = prop_oneof![
        2 => error_text(),
        1 => Just("{\"message\":\"flat\",\"type\":\"RateLimitError\"}".to_owned()),
        1 => Just("only words".to_owned()),
    ];
    let nonsense = select(vec![
        "{\"id\":\"chatcmpl-6ca2",
        "12",
        "[]",
        "null",
        "",
        "\"[DONE]\"",
        "{\"a\":\"\u{1}\"}",
        "{\"a\":\"\u{10fffd}\"}",
    ]);
    let wrong = select(vec![
        r#"{"choices":"no"}"#,
        r#"{"choices":[{"index":0,"delta":{"content":5},"text":5}]}"#,
        r#"{"choices":[{"index":0,"delta":[],"text":[]}]}"#,
        r#"{"choices":[{"index":"0"}]}"#,
        r#"{"choices":[{"index":0,"finish_reason":7}]}"#,
        r#"{"choices":[],"usage":"none"}"#,
        r#"{"choices":[7]}"#,
    ]);
    let beyond = Just(Noise::Empty(
        r#"{"choices":[{"index":3,"delta":{"content":"x"},"text":"x"}]}"#,
    ));
    let empty = select(vec![
        r#"{"id":"","object":"","created":0,"model":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#,
        r#"{"id":"other","choices":[],"sglext":{"a":1}}"#,
        r#"{"error":null,"choices":[]}"#,
        "{}",
    ]);
    prop_oneof![
        4 => error_text().prop_map(Noise::Error),
        1 => error_text().prop_map(Noise::Field),
        1 => named.prop_map(Noise::Named),
        2 => nonsense.prop_map(Noise::Nonsense),
        2 => wrong.prop_map(Noise::Wrong),
        1 => beyond,
        3 => empty.prop_map(Noise::Empty),
    ]
    .boxed()
}

impl Noise {
    fn text(&self, skipping: bool) -> String {
        match self {
            Self::Error(text) => text.clone(),
            Self::Named(text) => format!("event: error\ndata: {text}\n\n"),
            Self::Field(text) => format!("error: {text}\n\n"),
            // The format leaves open whether a wrong type is skipped like invalid JSON.
            Self::Wrong(_) if skipping => "nonsense".to_owned(),
            Self::Nonsense(text) | Self::Wrong(text) | Self::Empty(text) => (*text).to_owned(),
        }
    }
}

/// Generates an engine's error, in any of its dialects.
fn error_text() -> impl Strategy<Value = String> {
    let kind = select(vec![
        "BadRequestError",
        "BAD_REQUEST",
        "NotFoundError",
        "AuthenticationError",
        "PermissionDeniedError",
        "RateLimitError",
        "Too Many Requests",
        "InternalServerError",
        "NotImplementedError",
        "SERVICE_UNAVAILABLE",
        "whatever",
        "invalid_request_error",
        "server_error",
    ]);
    let long = "é".repeat(1100);
    let message = select(vec![
        "boom".to_owned(),
        "The model `x` does not exist.".to_owned(),
        "No such route".to_owned(),
        "This model's maximum context length is 4096 tokens.".to_owned(),
        "The input exceeds the allowed context length".to_owned(),
        "line\u{2028}end".to_owned(),
        format!("x{long}"),
    ]);
    let param = select(vec![
        "null",
        "\"temperature\"",
        "\"body.messages.0\"",
        "\"model\"",
        "3",
    ]);
    let code = select(vec![
        "400", "401", "403", "404", "422", "429", "500", "501", "503", "418", "null", "0",
    ]);
    let object = (kind, message, param, code).prop_map(|(kind, message, param, code)| {
        format!(
            "\"message\":{},\"type\":\"{kind}\",\"param\":{param},\"code\":{code}",
            quote(&message, false)
        )
    });
    let canonical = select(vec![
        r#"{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
        r#"{"error":{"message":"m","type":"server_error","param":null,"code":"server_is_overloaded"}}"#,
        r#"{"error":{"message":"m","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}"#,
    ]);
    prop_oneof![
        3 => object.clone().prop_map(|members| format!("{{\"error\":{{{members}}}}}")),
        1 => object.clone().prop_map(|members| format!("{{\"error\":{{\"object\":\"error\",{members}}}}}")),
        2 => object.prop_map(|members| format!("{{\"object\":\"error\",{members}}}")),
        1 => Just("{\"error\":\"Unauthorized\"}".to_owned()),
        1 => Just("{\"error\":{\"message\":{\"b\": 1, \"a\":[2]},\"type\":\"x\",\"code\":500}}".to_owned()),
        1 => canonical.prop_map(str::to_owned),
    ]
}

// === whole bodies ===

/// Choice of a whole body, with members that a stream can or cannot carry.
#[derive(Clone, Debug)]
struct WholeChoice {
    /// Members of the message that a stream can carry as well.
    message: Vec<String>,
    /// Members that only a whole message has.
    only_whole: Vec<&'static str>,
    text: String,
    logprobs: Option<String>,
    finish: &'static str,
    stop: &'static str,
}

fn whole_choice(chat: bool) -> impl Strategy<Value = WholeChoice> {
    let content = prop_oneof![
        4 => literal().prop_map(|text| format!("\"content\":{text}")),
        1 => Just("\"content\":null".to_owned()),
        1 => Just("\"content\":\"\"".to_owned()),
        1 => (literal(), literal()).prop_map(|(a, b)| parts(&a, &b)),
    ];
    let reasoning = prop_oneof![
        2 => Just("\"reasoning_content\":null".to_owned()),
        1 => literal().prop_map(|text| format!("\"reasoning_content\":{text}")),
        1 => literal().prop_map(|text| format!("\"reasoning\":{text},\"reasoning_content\":{text}")),
    ];
    let refusal = prop_oneof![
        4 => Just("\"refusal\":null".to_owned()),
        1 => literal().prop_map(|text| format!("\"refusal\":{text}")),
    ];
    let call = (call_plan(), any::<bool>());
    let calls = prop_oneof![
        2 => select(vec!["", "\"tool_calls\":[]", "\"tool_calls\":null"]).prop_map(str::to_owned),
        2 => vec(call, 1..3).prop_map(|calls| {
            let calls: Vec<String> =
                calls.iter().enumerate().map(|(at, (plan, indexed))| plan.whole(at, *indexed)).collect();
            format!("\"tool_calls\":[{}]", calls.join(","))
        }),
    ];
    let only_whole = select(vec![
        vec![],
        vec![
            r#""annotations":null"#,
            r#""audio":null"#,
            r#""function_call":null"#,
        ],
        vec![r#""annotations":[{"type":"url_citation", "n":1.0}]"#],
        vec![r#""reasoning_details":[{"type":"reasoning.summary", "summary":"Short"}]"#],
        vec![
            r#""function_call":{"name":"old","arguments":"{}"}"#,
            r#""odd":{"b":1,"a":2}"#,
        ],
    ]);
    let finish = select(vec![
        "\"stop\"",
        "\"stop\"",
        "\"length\"",
        "\"tool_calls\"",
        "\"eos\"",
        "\"abort\"",
        "null",
    ]);
    let stop = select(vec![
        "",
        r#","stop_reason":null"#,
        r#","matched_stop":"END""#,
        r#","stop_reason":128001,"token_ids":[1]"#,
    ]);
    let text = prop_oneof![4 => literal(), 1 => Just("\"\"".to_owned())];
    let message =
        (content, reasoning, refusal, calls).prop_map(|(content, reasoning, refusal, calls)| {
            let members = [
                "\"role\":\"assistant\"".to_owned(),
                content,
                reasoning,
                refusal,
                calls,
            ];
            members
                .into_iter()
                .filter(|member| !member.is_empty())
                .collect()
        });
    (
        message,
        only_whole,
        text,
        weighted(0.4, logprobs(chat)),
        finish,
        stop,
    )
        .prop_map(
            |(message, only_whole, text, logprobs, finish, stop)| WholeChoice {
                message,
                only_whole,
                text,
                logprobs,
                finish,
                stop,
            },
        )
}

impl WholeChoice {
    fn text(&self, chat: bool, index: usize, stream: bool) -> String {
        let mut message = self.message.clone();
        if !stream {
            message.extend(self.only_whole.iter().map(|member| (*member).to_owned()));
        }
        let said = if chat {
            format!("\"message\":{{{}}}", message.join(","))
        } else {
            format!("\"text\":{}", self.text)
        };
        let logprobs = self.logprobs.as_deref().unwrap_or("null");
        let Self { finish, stop, .. } = self;
        format!(
            "{{\"index\":{index},{said},\"logprobs\":{logprobs},\"finish_reason\":{finish}{stop}}}"
        )
    }
}

impl CallPlan {
    /// Returns the call in one entry.
    fn whole(&self, position: usize, indexed: bool) -> String {
        let whole = Self {
            cuts: Vec::new(),
            after_arguments: AfterArguments::Nothing,
            name: if self.name == Naming::Missing {
                Naming::Missing
            } else {
                Naming::First
            },
            ..self.clone()
        };
        let numbering = if indexed {
            Numbering::Right
        } else {
            Numbering::Absent
        };
        let pieces = whole.pieces(numbering, position);
        pieces.into_iter().next().unwrap()
    }
}
