//! Engines with and without a parser: the client cannot tell them apart.

use crate::cases::{Case, Cut, captures};
use crate::texts::{AnswerParts, case, said, stream, tools};
use proptest::prelude::*;
use proptest::sample::select;
use samewire::wire::{Api, Ending, OutputBuffer};
use serde_json::{Value, json};

fn chunk(delta: &Value, logprobs: &Value, finish: Value) -> String {
    let choice = json!({"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
    format!(
        "data: {}\n\n",
        json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]})
    )
}

/// Returns a stream of these deltas, each with its token if the client requested logprobs.
fn of_deltas(parser: &str, deltas: &[(Value, &str)], logprobs: bool) -> Case {
    let token = |token: &str| match logprobs {
        true => {
            json!({"content": [{"token": token, "logprob": -0.5, "bytes": null, "top_logprobs": []}]})
        }
        false => Value::Null,
    };
    let chunks = deltas
        .iter()
        .map(|(delta, text)| chunk(delta, &token(text), Value::Null));
    let input = chunks.collect::<String>() + &chunk(&json!({}), &Value::Null, "stop".into());
    let mut case = case(parser, true, input + "data: [DONE]\n\n", Ending::Clean);
    case.request["logprobs"] = logprobs.into();
    case
}

/// Answer of a model: reasoning, text and calls, each in pieces.
#[derive(Clone, Debug)]
struct Answer {
    reasoning: Vec<&'static str>,
    content: Vec<&'static str>,
    calls: Vec<Vec<&'static str>>,
}

fn answers() -> impl Strategy<Value = Answer> {
    let words = || prop::collection::vec(select(vec!["a", " b", "é\n", "1.", "\"x\""]), 1..5);
    let arguments = select(vec![
        vec!["{", "\"text\": ", "\"x", "y\"", "}"],
        vec!["{}"],
        vec!["{\"number\":", " 12}"],
    ]);
    (words(), words(), prop::collection::vec(arguments, 0..3)).prop_map(
        |(reasoning, content, calls)| Answer {
            reasoning,
            content,
            calls,
        },
    )
}

impl Answer {
    fn parsed(&self) -> Vec<(Value, &'static str)> {
        let reasoning = self
            .reasoning
            .iter()
            .map(|text| (json!({"reasoning": text}), *text));
        let content = self
            .content
            .iter()
            .map(|text| (json!({"content": text}), *text));
        let mut all: Vec<_> = reasoning.chain(content).collect();
        for (at, call) in self.calls.iter().enumerate() {
            let entry =
                |function: Value| json!({"tool_calls": [{"index": at, "function": function}]});
            all.push((entry(json!({"name": "f", "arguments": ""})), "f"));
            // Arguments in JSON are held to their end.
            all.push((entry(json!({"arguments": call.concat()})), ""));
        }
        all
    }

    fn unparsed(&self) -> Vec<(Value, &'static str)> {
        let mut pieces = vec!["<think>"];
        pieces.extend(&self.reasoning);
        pieces.push("</think>");
        pieces.extend(&self.content);
        for call in &self.calls {
            pieces.extend(["<tool_", "call>", "\n{\"name\": \"f\", \"arguments\": "]);
            pieces.extend(call);
            pieces.extend(["}\n</tool", "_call>\n"]);
        }
        pieces
            .into_iter()
            .map(|text| (json!({"content": text}), text))
            .collect()
    }
}

proptest! {
    #![proptest_config(crate::seeded::seeded(128))]

    #[test]
    fn both_give_the_same_stream(answer in answers(), parser in select(vec!["qwen3", "auto"])) {
        let parsed = of_deltas(parser, &answer.parsed(), false);
        let unparsed = of_deltas(parser, &answer.unparsed(), false);
        for api in [Api::Chat, Api::Responses] {
            let as_api = |case: &Case| match api {
                Api::Responses => {
                    let request = json!({"model": "m", "stream": true, "input": "hi", "tools": tools_of_responses()});
                    Case { api, request, ..case.clone() }.run(&Cut::Whole)
                }
                _ => case.run(&Cut::Whole),
            };
            prop_assert_eq!(as_api(&parsed), as_api(&unparsed));
        }
    }

    /// The logprobs of each chunk are on a frame made from it, or on a separate frame, in order.
    #[test]
    fn logprobs_stay_with_their_chunks(answer in answers()) {
        let pieces = answer.unparsed();
        let body = of_deltas("qwen3", &pieces, true).run(&Cut::Whole).body;
        let mut told = Vec::new();
        for line in body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|line| *line != "[DONE]") {
            let frame: Value = serde_json::from_str(line).unwrap();
            let choice = &frame["choices"][0];
            let tokens = choice["logprobs"]["content"].as_array().cloned().unwrap_or_default();
            let tokens: Vec<_> = tokens.iter().map(|entry| entry["token"].as_str().unwrap().to_owned()).collect();
            let delta = &choice["delta"];
            for key in ["reasoning_content", "content"] {
                if let Some(text) = delta[key].as_str() {
                    prop_assert_eq!(&tokens[..], [text], "{}", body);
                }
            }
            told.extend(tokens);
        }
        let due: Vec<_> = pieces.iter().map(|(_, text)| (*text).to_owned()).collect();
        prop_assert_eq!(told, due);
    }

    /// Each logprob is sent once and in order, however many tokens come at once and however many are held back.
    #[test]
    fn logprobs_of_many_tokens_at_once_are_all_told(answer in answers(), many in 1_usize..9, streams in any::<bool>()) {
        let pieces = answer.unparsed();
        let tokens: Vec<_> = pieces.iter().map(|(_, text)| *text).collect();
        let token = |token: &&str| json!({"token": token, "logprob": -0.5, "bytes": null, "top_logprobs": []});
        let listed = |tokens: &[&str]| json!({"content": tokens.iter().map(token).collect::<Vec<_>>()});
        let mut case = if streams {
            let of = |tokens: &[&str]| chunk(&json!({"content": tokens.concat()}), &listed(tokens), Value::Null);
            let input: String = tokens.chunks(many).map(of).collect();
            let end = chunk(&json!({}), &Value::Null, "stop".into());
            case("qwen3", true, format!("{input}{end}data: [DONE]\n\n"), Ending::Clean)
        } else {
            let message = json!({"role": "assistant", "content": tokens.concat()});
            let choice = json!({"index": 0, "message": message, "logprobs": listed(&tokens), "finish_reason": "stop"});
            let body = json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]});
            case("qwen3", false, body.to_string(), Ending::Whole)
        };
        case.request["logprobs"] = true.into();
        let body = case.run(&Cut::Whole).body;
        let lines = body.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
        let frames = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let told = frames.flat_map(|frame| frame["choices"][0]["logprobs"]["content"].as_array().cloned().unwrap_or_default());
        let told: Vec<_> = told.map(|entry| entry["token"].as_str().unwrap().to_owned()).collect();
        prop_assert_eq!(told, tokens, "{}", body);
    }
}

fn tools_of_responses() -> Value {
    let flat = |tool: &Value| {
        let mut tool = tool["function"].clone();
        tool["type"] = "function".into();
        tool
    };
    tools().as_array().unwrap().iter().map(flat).collect()
}

/// An engine that sends reasoning or calls in their own fields may have a parser for one of them only.
#[test]
fn an_engine_that_parses_reasoning_or_calls_is_read_for_calls_only() {
    let raw = "<think>x</think><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    let call = json!({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]});
    for first in [json!({"reasoning": "r"}), call] {
        let case = of_deltas("auto", &[(first, ""), (json!({"content": raw}), "")], false);
        let AnswerParts { content, calls, .. } = said(&case);
        assert_eq!(content, "<think>x</think>");
        assert_eq!(calls, [("f".to_owned(), "{}".to_owned())]);
    }
}

/// Checks that ends of reasoning that an engine's parser leaves before the answer, and ends of turns after it, are removed.
#[test]
fn ends_that_an_engine_leaves_are_removed() {
    let reasoning = || (json!({"reasoning": "r"}), "");
    let content = |text: &str| (json!({"content": text}), "");
    let call = json!({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]});
    for (model, parser, deltas, expected) in [
        (
            "MiniMax-M3",
            "auto",
            vec![reasoning(), content("</thinking>\n\nHi")],
            "\n\nHi",
        ),
        (
            "glm-5.1",
            "auto",
            vec![reasoning(), content("</think>Hi")],
            "Hi",
        ),
        (
            "x",
            "glm47",
            vec![reasoning(), content("a</thinking>")],
            "a</thinking>",
        ),
        (
            "Kimi-K3",
            "auto",
            vec![reasoning(), content("hi<|close|> response <|sep|>")],
            "hi",
        ),
        (
            "gemma4:12b",
            "auto",
            vec![content("a<channel|>"), (call, "")],
            "a",
        ),
    ] {
        let mut case = of_deltas(parser, &deltas, false);
        case.request["model"] = model.into();
        assert_eq!(said(&case).content, expected, "{model}");
    }
}

/// Calls in the text and in the engine's report, in the order in which they come: those of the second source that are
/// not among those of the first are further calls. If the engine is the second, its empty objects are any call of the
/// name that is left in the end.
fn united(
    first: &[(String, String)],
    second: &[(String, String)],
    of_engine: bool,
) -> Vec<(String, String)> {
    let mut unpaired = first.to_vec();
    let mut further = Vec::new();
    for call in second {
        match unpaired.iter().position(|known| known == call) {
            Some(at) => _ = unpaired.remove(at),
            None => further.push(call.clone()),
        }
    }
    further.retain(|call| {
        let named = |known: &(String, String)| known.0 == call.0;
        let equal = unpaired.iter().position(named);
        let equal = equal.filter(|_| of_engine && call.1 == "{}");
        equal.map(|at| unpaired.remove(at)).is_none()
    });
    [first.to_vec(), further].concat()
}

proptest! {
    #![proptest_config(crate::seeded::seeded(256))]

    #[test]
    fn a_call_in_text_and_report_is_one(
        in_text in few_calls(), reported in few_calls(), pieces in 1_usize..9,
        engine in select(vec!["vllm", "sglang", "generic"]), parser in select(vec!["qwen3", "auto"]),
    ) {
        let text: String = in_text
            .iter()
            .map(|(name, arguments)| format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>\n"))
            .collect();
        let text = text.trim_end();
        let letters: Vec<_> = text.chars().collect();
        let content = letters.chunks(pieces).map(|letters| (json!({"content": letters.iter().collect::<String>()}), ""));
        let content: Vec<_> = content.collect();
        let entries: Vec<_> = reported
            .iter()
            .enumerate()
            .flat_map(|(at, (name, arguments))| {
                let (start, end) = arguments.split_at(pieces.min(arguments.len()));
                let entry = |entry: Value| (json!({"tool_calls": [entry]}), "");
                [
                    entry(json!({"index": at, "id": format!("call_{at}"), "type": "function", "function": {"name": name, "arguments": start}})),
                    entry(json!({"index": at, "function": {"arguments": end}})),
                ]
            })
            .collect();
        for (deltas, expected) in [
            ([content.clone(), entries.clone()].concat(), united(&in_text, &reported, true)),
            ([entries, content].concat(), united(&reported, &in_text, false)),
        ] {
            let case = Case { engine: engine.to_owned(), ..of_deltas(parser, &deltas, false) };
            let answer = said(&case);
            prop_assert_eq!(answer.calls, expected);
            prop_assert_eq!(answer.content.trim(), "");
        }
        let calls: Vec<_> = reported
            .iter()
            .enumerate()
            .map(|(at, (name, arguments))| json!({"id": format!("call_{at}"), "type": "function", "function": {"name": name, "arguments": arguments}}))
            .collect();
        let message = json!({"role": "assistant", "content": text, "tool_calls": calls});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        let body = json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]});
        let whole = case(parser, false, body.to_string(), Ending::Whole);
        let answer = whole.run(&Cut::Whole).body;
        let ids = reported.iter().enumerate().map(|(at, _)| format!("\"call_{at}\""));
        if in_text == reported {
            prop_assert!(ids.into_iter().all(|id| answer.contains(&id)), "{}", answer);
        }
        prop_assert_eq!(said(&whole).calls, united(&in_text, &reported, true));
    }
}

proptest! {
    #![proptest_config(crate::seeded::seeded(256))]

    /// A complete call at the end of the reasoning that the engine reports is a call if nothing follows; else it is
    /// reasoning like all text before it.
    #[test]
    fn a_call_at_the_end_of_the_engines_reasoning_is_a_call(
        prose in prop::collection::vec(select(vec![
            "I look. ", "<tool_call> is a mark. ", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call> would do. ",
            "<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>\n", "<", "\n\n",
        ]), 0..5),
        calls in few_calls(), pieces in 1_usize..12, parser in select(vec!["qwen3", "hermes", "auto"]),
        whole in any::<bool>(),
    ) {
        let prose = prose.concat() + "So. ";
        let markup: String = calls
            .iter()
            .map(|(name, arguments)| format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>"))
            .collect();
        let text = format!("{prose}{markup}");
        let letters: Vec<_> = text.chars().collect();
        let deltas = letters.chunks(pieces).map(|letters| (json!({"reasoning": letters.iter().collect::<String>()}), ""));
        let deltas: Vec<_> = deltas.collect();
        for (after, finish) in [("", "stop"), ("Done.", "stop"), ("", "length")] {
            let is_call = after.is_empty() && finish == "stop" && !calls.is_empty();
            let case = if whole {
                let message = json!({"role": "assistant", "reasoning": text, "content": after});
                let choice = json!({"index": 0, "message": message, "finish_reason": finish});
                let body = json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]});
                case(parser, false, body.to_string(), Ending::Whole)
            } else {
                let chunks = deltas.iter().map(|(delta, _)| chunk(delta, &Value::Null, Value::Null));
                let content = chunk(&json!({"content": after}), &Value::Null, Value::Null);
                let end = chunk(&json!({}), &Value::Null, finish.into());
                case(parser, true, chunks.collect::<String>() + &content + &end + "data: [DONE]\n\n", Ending::Clean)
            };
            let answer = said(&case);
            prop_assert_eq!(answer.content, after);
            prop_assert_eq!(answer.finish, if is_call { "tool_calls" } else { finish });
            prop_assert_eq!(answer.calls, if is_call { calls.clone() } else { Vec::new() });
            prop_assert_eq!(&answer.reasoning, if is_call { &prose } else { &text });
        }
    }
}

fn few_calls() -> impl Strategy<Value = Vec<(String, String)>> {
    let arguments = select(vec!["{}", "{\"number\": 1}", "{\"text\": \"}{\"}"]);
    let call = (select(vec!["f", "g"]), arguments);
    prop::collection::vec(
        call.prop_map(|(name, json)| (name.to_owned(), json.to_owned())),
        0..4,
    )
}

/// Streams of calls in the text and of the engine's own, interleaved as no rule of the API forbids.
#[test]
fn calls_wait_for_their_arguments_and_keep_their_order() {
    let text = |name: &str, arguments: &str| json!({"content": format!("<tool_call>{{\"name\": \"{name}\", \"arguments\": {arguments}}}</tool_call>")});
    let entry = |index: u32, name: &str, arguments: &str| match name {
        "" => json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}),
        _ => {
            json!({"tool_calls": [{"index": index, "id": format!("c{index}"), "function": {"name": name, "arguments": arguments}}]})
        }
    };
    let (one, two) = ("{\"number\": 1}", "{\"number\": 2}");
    let blank = || json!({"content": "\n"});
    for (deltas, expected) in [
        // Text comes before the arguments.
        (
            vec![
                text("f", one),
                entry(0, "f", ""),
                blank(),
                entry(0, "", two),
            ],
            vec![("f", one), ("f", two)],
        ),
        (
            vec![
                text("f", one),
                entry(0, "f", "{\"num"),
                blank(),
                entry(0, "", "ber\": 1}"),
            ],
            vec![("f", one)],
        ),
        // A later call does not overtake one that waits.
        (
            vec![
                text("f", one),
                entry(0, "f", "{\"number\": 2"),
                entry(1, "g", "{}"),
                entry(0, "", "}"),
            ],
            vec![("f", one), ("f", two), ("g", "{}")],
        ),
        // The equal call goes before the empty one.
        (
            vec![text("f", one), entry(0, "f", "{}"), entry(1, "f", one)],
            vec![("f", one), ("f", "{}")],
        ),
        // An engine that reports a call and leaves its arguments in the text has made one call.
        (vec![text("f", one), entry(0, "f", "")], vec![("f", one)]),
        (vec![text("f", one), entry(0, "f", "{}")], vec![("f", one)]),
    ] {
        let deltas: Vec<_> = deltas.into_iter().map(|delta| (delta, "")).collect();
        let calls = said(&of_deltas("hermes", &deltas, false)).calls;
        let calls: Vec<_> = calls.iter().map(|(name, all)| (&**name, &**all)).collect();
        assert_eq!(calls, expected, "{deltas:?}");
    }
}

/// Text that looks like the beginning of a call, before a call at the end of the engine's reasoning, is reasoning. A
/// call that never ends does not keep the reasoning back.
#[test]
fn text_before_a_call_at_the_end_of_the_engines_reasoning_stays() {
    let call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    let open = "Plan: <tool_call>{\"q\": [";
    let answer = said(&of_deltas(
        "hermes",
        &[(json!({"reasoning": format!("{open}{call}")}), "")],
        false,
    ));
    assert_eq!((&*answer.reasoning, answer.calls.len()), (open, 1));
    let endless = "<tool_call>{\"name\": \"f\", \"arguments\": {\"text\": \"".to_owned()
        + &"a ".repeat(300_000);
    let answer = said(&of_deltas(
        "hermes",
        &[
            (json!({"reasoning": endless}), ""),
            (json!({"reasoning": call}), ""),
        ],
        false,
    ));
    assert_eq!((answer.reasoning, answer.calls.len()), (endless + call, 0));
}

/// An engine with only a reasoning parser leaves calls in the text, and the configured parser reads them.
#[test]
fn an_engine_that_parses_reasoning_may_leave_calls() {
    let call = "{\"name\": \"f\", \"arguments\": {\"number\": 1}}";
    let text = format!("\n\n<tool_call>\n{call}\n</tool_call>");
    let expected = AnswerParts {
        reasoning: "hm".to_owned(),
        content: "\n\n".to_owned(),
        calls: vec![("f".to_owned(), "{\"number\": 1}".to_owned())],
        finish: "tool_calls".to_owned(),
    };
    let tool = json!({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{\"number\": 1}"}}]});
    for parser in ["hermes", "qwen3", "qwen3_thinking"] {
        let letters = text
            .split_inclusive(|_: char| true)
            .map(|letter| (json!({"content": letter}), ""));
        for pieces in [vec![(json!({"content": text}), "")], letters.collect()] {
            let deltas = [
                vec![
                    (json!({"reasoning": "h"}), ""),
                    (json!({"reasoning": "m"}), ""),
                ],
                pieces,
            ]
            .concat();
            assert_eq!(
                said(&of_deltas(parser, &deltas, false)),
                expected,
                "{parser}"
            );
        }
        let message = json!({"role": "assistant", "reasoning": "hm", "content": text});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        let body = json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]});
        assert_eq!(
            said(&case(parser, false, body.to_string(), Ending::Whole)),
            expected,
            "{parser}"
        );
        // The same call in the text is not a second one; tags of reasoning before it are text.
        let tags = (json!({"content": "<think>x</think>"}), "");
        let deltas = [
            (json!({"reasoning": "hm"}), ""),
            tags,
            (tool.clone(), ""),
            (json!({"content": text}), ""),
        ];
        let said = said(&of_deltas(parser, &deltas, false));
        assert_eq!(
            (said.reasoning, said.calls),
            (expected.reasoning.clone(), expected.calls.clone()),
            "{parser}"
        );
        assert_eq!(said.content, "<think>x</think>", "{parser}");
    }
}

/// A parser of another family takes the object of a call, and leaves the marker in the text.
#[test]
fn the_marker_of_a_call_that_the_engine_reports_goes() {
    let tool = |at: u32| json!({"tool_calls": [{"index": at, "function": {"name": "f", "arguments": format!("{{\"number\": {at}}}")}}]});
    let text = |text: &str| (json!({"content": text}), "");
    let mark = "\n<tool_call>\n";
    for pieces in [
        vec![text(mark)],
        vec![text("\n<tool"), text("_call>"), text("\n")],
    ] {
        let deltas = [
            vec![text("So:")],
            pieces.clone(),
            vec![(tool(0), "")],
            pieces,
            vec![(tool(1), ""), text("\n</tool_call>")],
        ];
        let said = said(&of_deltas("auto", &deltas.concat(), false));
        assert_eq!(said.content, "So:\n");
        assert_eq!(said.calls.len(), 2);
    }
}

/// Engine flags that would make samewire's parser unnecessary are suggested after it has worked, if the operator
/// did not configure it.
#[test]
fn what_the_engine_left_is_known_afterwards() {
    let call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    let both = format!("<think>x</think>{call}");
    let vllm = "--enable-auto-tool-choice --tool-call-parser hermes";
    let all = format!("--reasoning-parser qwen3 {vllm}");
    for (parser, model, text, family, flags) in [
        ("auto", "Qwen3-8B", &*both, Some("qwen3"), Some(&*all)),
        ("auto", "Qwen3-8B", call, Some("qwen3"), Some(vllm)),
        (
            "auto",
            "Qwen3-8B",
            "<think>x</think>",
            Some("qwen3"),
            Some("--reasoning-parser qwen3"),
        ),
        ("auto", "Qwen3-8B", "plain", None, None),
        ("auto", "another", call, Some("auto"), None),
        ("qwen3", "Qwen3-8B", call, None, None),
    ] {
        let mut case = stream(parser, &[text], "stop");
        case.request["model"] = model.into();
        let mut rewriter = case.rewriter(false);
        let mut out = OutputBuffer::default();
        rewriter.push(&case.input, &mut out);
        rewriter.finish(case.ending, &mut out);
        let unparsed = rewriter.reader.summary().unparsed;
        assert_eq!(
            unparsed.map(|unparsed| unparsed.family()),
            family,
            "{parser} {model} {text}"
        );
        assert_eq!(
            unparsed
                .and_then(|unparsed| unparsed.flags("vllm"))
                .as_deref(),
            flags
        );
    }
}

/// Text from two real engines without parsers yields what the engines' own parsers read from the same model.
#[test]
fn what_real_engines_left_is_what_their_parsers_read() {
    let recorded = |name: &str| {
        let mut case = captures()
            .into_iter()
            .find(|fixture| fixture.case.name == name)
            .expect(name)
            .case;
        // The capture's own tool choice is removed: it had to be `none` because the engine would have refused
        // tools.
        case.request.as_object_mut().unwrap().remove("tool_choice");
        Case {
            options: json!({"parser": "qwen3"}),
            ..case
        }
    };
    let parsed = said(&recorded("sglang/reasoning-text-tool"));
    assert_eq!(
        parsed.calls,
        [(
            "get_weather".to_owned(),
            "{\"city\": \"Berlin\"}".to_owned()
        )]
    );
    for raw in [
        "vllm/reasoning-text-tool-raw",
        "sglang/reasoning-text-tool-raw",
    ] {
        let case = recorded(raw);
        assert!(
            !said(&Case {
                options: json!({}),
                ..case.clone()
            })
            .content
            .is_empty()
        );
        assert_eq!(said(&case), parsed, "{raw}");
    }
}
