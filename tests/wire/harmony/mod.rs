//! Harmony text that an engine left unparsed (`harmony = "text"`, wire-format 6): its result in chat and in
//! Responses, in streams and in whole answers, however it is cut.

mod any;
mod messages;
mod tokens;

use crate::cases::{Case, Cut, captures};
use samewire::wire::{Api, Ending};
use serde_json::{Value, json};

const MARKERS: [&str; 7] = [
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|constrain|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
];

/// Returns an engine's answer to a client of this API.
fn case(api: Api, stream: bool, input: String) -> Case {
    Case {
        name: "harmony".to_owned(),
        api,
        engine: "generic".to_owned(),
        request: json!({"model": "m", "stream": stream}),
        options: json!({"harmony": "text"}),
        input: input.into_bytes(),
        events: stream,
        now: 7,
        ..Case::default()
    }
}

fn chunk(delta: &Value, finish: &Value) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    format!(
        "data: {}\n\n",
        json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]})
    )
}

/// Returns a stream whose chunks have these deltas.
fn stream_of(api: Api, deltas: &[Value], finish: &str) -> Case {
    let chunks: String = deltas
        .iter()
        .map(|delta| chunk(delta, &Value::Null))
        .collect();
    case(
        api,
        true,
        format!(
            "{chunks}{}data: [DONE]\n\n",
            chunk(&json!({}), &finish.into())
        ),
    )
}

/// Returns a stream whose content comes in these pieces.
fn stream(api: Api, pieces: &[&str], finish: &str) -> Case {
    let deltas: Vec<_> = pieces
        .iter()
        .map(|piece| json!({"content": piece}))
        .collect();
    stream_of(api, &deltas, finish)
}

/// Returns a whole answer with this content.
fn whole(api: Api, content: &str, finish: &str) -> Case {
    let choice = json!({"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish});
    let input = json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]});
    case(api, false, input.to_string())
}

/// Returns the data of an answer's events, except `[DONE]`.
fn data(body: &str) -> impl Iterator<Item = Value> {
    let lines = body.lines().filter_map(|line| line.strip_prefix("data: "));
    lines
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).expect("frames are JSON"))
}

/// Returns the frames of a chat stream after the role, each as one word with a prefix: `r:`easoning, `c:`ontent,
/// `f:`unction, `a:`rguments; and the finish reason.
fn said(case: &Case) -> Vec<String> {
    let answer = case.run(&Cut::Whole);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.body.ends_with("data: [DONE]\n\n"), "{}", answer.body);
    let frames = data(&answer.body).filter(|chunk| chunk["choices"] != json!([]));
    let mut frames = frames.map(|chunk| chunk["choices"][0].clone());
    assert_eq!(
        frames.next().unwrap()["delta"],
        json!({"role": "assistant"})
    );
    frames.map(|choice| word(&choice)).collect()
}

fn word(choice: &Value) -> String {
    let delta = choice["delta"].as_object().unwrap();
    let text = |key: &str| delta[key].as_str().unwrap();
    match delta.keys().next().map(String::as_str) {
        Some("reasoning") => {
            assert_eq!(delta["reasoning"], delta["reasoning_content"], "{choice}");
            format!("r:{}", text("reasoning"))
        }
        Some("content") => format!("c:{}", text("content")),
        Some("tool_calls") => {
            let call = &delta["tool_calls"][0];
            let at = &call["index"];
            match call["function"].get("name") {
                Some(name) => format!("f{at}:{}", name.as_str().unwrap()),
                None => format!("a{at}:{}", call["function"]["arguments"].as_str().unwrap()),
            }
        }
        None => choice["finish_reason"].as_str().unwrap_or("-").to_owned(),
        Some(other) => panic!("{other}"),
    }
}

/// Returns the items of a Responses answer, each as its type, its status and its content.
fn items(case: &Case) -> Vec<[String; 3]> {
    let answer = case.run(&Cut::Whole);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let response: Value = match case.streams() {
        true => data(&answer.body).last().unwrap()["response"].clone(),
        false => serde_json::from_str(&answer.body).unwrap(),
    };
    let item = |item: &Value| {
        let word = |key: &str| item[key].as_str().unwrap().to_owned();
        let says = match item["type"].as_str().unwrap() {
            "function_call" => format!("{} {}", word("name"), word("arguments")),
            "web_search_call" => item["action"].to_string(),
            _ => item["content"][0]["text"].as_str().unwrap().to_owned(),
        };
        [word("type"), word("status"), says]
    };
    response["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(item)
        .collect()
}

#[test]
fn chat_frames_of_each_message() {
    for (pieces, finish, expected) in [
        // Each message keeps its kind; nothing is inserted between two, and the cuts stay.
        (
            &[
                "<|channel|>analysis<|message|>A",
                "B<|end|><|start|>assistant<|channel|>analysis<|message|>C",
            ][..],
            "stop",
            &["r:A", "r:B", "r:C", "stop"][..],
        ),
        (
            &["<|channel|>commentary to=python<|message|>1+1<|call|>"],
            "stop",
            &["r:1+1", "stop"],
        ),
        (
            &[
                "<|channel|>analysis to=browser.search code<|message|>{\"query\"",
                ":1}",
            ],
            "length",
            &["r:{\"query\"", "r::1}", "length"],
        ),
        (
            &["<|channel|>new<|message|>x<|end|>", "<|message|>y"],
            "stop",
            &["c:x", "c:y", "stop"],
        ),
        (
            &["<|start|>user<|message|>x<|end|><|channel|>final<|message|>y"],
            "stop",
            &["c:y", "stop"],
        ),
        (
            &[
                "<|start|>functions.f to=assistant<|channel|>commentary<|message|>x<|end|><|channel|>final<|message|>y",
            ],
            "stop",
            &["c:y", "stop"],
        ),
        // Missing markers between messages.
        (
            &[
                "<|channel|>analysis<|message|>A<|channel|>final<|message|>B<|start|>assistant to=functions.f<|channel|>commentary<|message|>{}",
            ],
            "stop",
            &["r:A", "c:B", "f0:f", "a0:{}", "tool_calls"],
        ),
        (
            &[
                "assistant<|channel|>analysis<|message|>A<|end|>assistant<|channel|>final<|message|>B",
            ],
            "stop",
            &["r:A", "c:B", "stop"],
        ),
        (
            &[
                " to=functions.f<|channel|>commentary json<|message|>{",
                "}<|call|>",
            ],
            "tool_calls",
            &["f0:f", "a0:{}", "tool_calls"],
        ),
        // A name with dots; two calls.
        (
            &[
                "<|channel|>commentary to=functions.a.b<|message|>{\"x\":1}<|call|><|channel|>analysis to=functions.c<|message|><|call|>",
            ],
            "stop",
            &["f0:a.b", "a0:{\"x\":1}", "f1:c", "a1:{}", "tool_calls"],
        ),
        // Arguments that are no object are text, as without a recipient; open ones are a cut call at the end alone.
        (
            &[
                "<|channel|>commentary to=functions.f<|message|>{x<|call|>",
                "<|channel|>analysis to=functions.f<|message|>[1]",
            ],
            "stop",
            &["c:{x", "r:[1]", "stop"],
        ),
        (
            &[
                "<|channel|>commentary to=functions.f<|message|>{\"a\":1<|call|>",
                "<|channel|>commentary to=functions.f<|message|>{\"a\":",
            ],
            "stop",
            &["c:{\"a\":1", "f0:f", "a0:{\"a\":", "length"],
        ),
        // No arguments, and a value that is said twice, are a call as an engine's would be.
        (
            &[
                "<|channel|>commentary to=functions.f<|message|>null<|call|>",
                "<|channel|>commentary to=functions.g<|message|>{\"a\":1}{\"a\":1}<|call|>",
            ],
            "stop",
            &["f0:f", "a0:null", "f1:g", "a1:{\"a\":1}", "tool_calls"],
        ),
        // A text that the limit cuts goes out as far as it was written.
        (
            &["<|channel|>commentary to=functions.f<|message|>{'a'"],
            "length",
            &["f0:f", "a0:{'a'", "length"],
        ),
        // The possible beginning of a marker is held, and becomes a separate frame.
        (
            &["a <", "b and <|en", "d| x"],
            "stop",
            &["c:a ", "c:<", "c:b and ", "c:<|en", "c:d| x", "stop"],
        ),
        (
            &["<|channel|>final<|message|>x<", "|en", "d|>"],
            "stop",
            &["c:x", "stop"],
        ),
        (
            &["<|channel|>final<|message|>x<|e"],
            "length",
            &["c:x", "c:<|e", "length"],
        ),
        // The possible beginning of a header is held.
        (&["a", " cat"], "stop", &["c:a", "c: cat", "stop"]),
        (&["assis", "tant"], "stop", &["c:assis", "c:tant", "stop"]),
        (
            &[" ", "to=", "5"],
            "length",
            &["c: ", "c:to=", "c:5", "length"],
        ),
        (
            &["Hello<|channel|>final<|message|>x"],
            "stop",
            &["c:Hello", "c:x", "stop"],
        ),
        // Truncated text.
        (
            &["<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>fin"],
            "length",
            &["r:A", "length"],
        ),
        (
            &["<|channel|>commentary to=functions.f<|message|>{\"a"],
            "length",
            &["f0:f", "a0:{\"a", "length"],
        ),
        // A header that ends too early: the rest of it is text.
        (
            &["<|channel|>analysis We need<|end|><|channel|>final"],
            "stop",
            &["r:We need", "stop"],
        ),
        (
            &[
                "<|channel|>commentary to=functions.f <|constrain|>",
                "{}<|call|>",
            ],
            "stop",
            &["f0:f", "a0:{}", "tool_calls"],
        ),
        (
            &["<|start|>assistant<|channel|>final Hi"],
            "stop",
            &["c:Hi", "stop"],
        ),
        (
            &["<|channel|>analysis A<|channel|>final<|message|>B"],
            "stop",
            &["r:A", "c:B", "stop"],
        ),
        // Markers in wrong places.
        (
            &["<|channel|>final<|message|>x<|constrain|>y<|message|>z<|return|>\n"],
            "stop",
            &["c:x", "c:y", "c:z", "stop"],
        ),
        (
            &["<|end|><|end|>\n<|start|>", "<|start|>"],
            "stop",
            &["stop"],
        ),
        (&[" \n"], "stop", &["c: \n", "stop"]),
        // Words that are not markers.
        (
            &["analysisWe needassistantfinalHello"],
            "stop",
            &["c:analysisWe needassistantfinalHello", "stop"],
        ),
    ] {
        let case = stream(Api::Chat, pieces, finish);
        assert_eq!(said(&case), expected, "{pieces:?}");
        let answer = case.run(&Cut::Whole);
        assert_eq!(case.run(&Cut::Bytes), answer, "{pieces:?}");
        assert_eq!(
            case.fed_back(&answer.body).run(&Cut::Whole),
            answer,
            "{pieces:?} again"
        );
    }
}

#[test]
fn whole_answers_say_the_same() {
    let content = "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>analysis<|message|>B<|end|><|start|>assistant<|channel|>commentary<|message|>C<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>";
    let answer = whole(Api::Chat, content, "stop").run(&Cut::Whole);
    let expected = r#"{"id":"chatcmpl-1","object":"chat.completion","created":5,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"C","reasoning_content":"AB","reasoning":"AB","refusal":null,"annotations":[],"tool_calls":[{"id":"call_1_0_0","type":"function","function":{"name":"f","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls"}]}"#;
    assert_eq!(answer.body, expected);
    let cut = whole(
        Api::Chat,
        "<|channel|>analysis<|message|>A<|end|><|start|>assistant",
        "length",
    );
    let answer: Value = serde_json::from_str(&cut.run(&Cut::Whole).body).unwrap();
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["content"], Value::Null);
    assert_eq!(
        [
            &choice["message"]["reasoning_content"],
            &choice["finish_reason"]
        ],
        ["A", "length"]
    );
}

#[test]
fn calls_of_tools_that_are_not_offered_are_text() {
    let call = |name: &str| {
        format!(
            "<|start|>assistant<|channel|>commentary to=functions.{name}<|message|>{{}}<|call|>"
        )
    };
    let pieces = [
        call("f"),
        call("g"),
        "<|channel|>analysis to=functions.g<|message|>{\"a\":1}".to_owned(),
    ];
    let pieces: Vec<_> = pieces.iter().map(String::as_str).collect();
    let mut case = stream(Api::Chat, &pieces, "stop");
    case.request["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
    let answer = case.run(&Cut::Whole);
    assert_eq!(
        said(&case),
        ["f0:f", "a0:{}", "c:{}", "r:{\"a\":1}", "tool_calls"]
    );
    assert_eq!(case.run(&Cut::Bytes), answer);
}

#[test]
fn arguments_are_repaired_as_the_option_says() {
    for (repair, end, expected) in [
        ("off", "<|call|>", &["c:{\"a\":1,}", "stop"][..]),
        ("json", "<|call|>", &["f0:f", "a0:{\"a\":1}", "tool_calls"]),
        ("json", "", &["f0:f", "a0:{\"a\":1}", "tool_calls"]),
    ] {
        let text = format!("<|channel|>commentary to=functions.f<|message|>{{\"a\":1,}}{end}");
        let mut case = stream(Api::Chat, &[&text], "stop");
        case.options["repair_arguments"] = repair.into();
        assert_eq!(said(&case), expected, "{repair} {end}");
    }
}

#[test]
fn text_is_unchanged_without_the_option() {
    let text = "<|channel|>analysis<|message|>A";
    let off = Case {
        options: json!({"parser": "off"}),
        ..stream(Api::Chat, &[text], "stop")
    };
    assert_eq!(said(&off), [&format!("c:{text}"), "stop"]);
    // A completions client gets the text unparsed.
    let input = format!(
        "data: {}\n\ndata: [DONE]\n\n",
        json!({"id": "cmpl-1", "choices": [{"index": 0, "text": text, "finish_reason": "stop"}]})
    );
    let case = Case {
        upstream: Api::Completions,
        ..case(Api::Completions, true, input)
    };
    assert_eq!(
        data(&case.run(&Cut::Whole).body).next().unwrap()["choices"][0]["text"],
        text
    );
}

/// An engine that sends reasoning or calls in their own fields has parsed the text, so the text stays unchanged.
#[test]
fn an_engine_that_parses_is_left_alone() {
    let raw = "<|channel|>final<|message|>x";
    let call = json!({"tool_calls": [{"index": 0, "id": "call_a", "function": {"name": "f", "arguments": "{}"}}]});
    for (deltas, expected) in [
        (
            vec![json!({"reasoning_content": "A"}), json!({"content": raw})],
            vec!["r:A".to_owned(), format!("c:{raw}"), "stop".to_owned()],
        ),
        (
            vec![json!({"content": "a"}), call, json!({"content": raw})],
            ["c:a", "f0:f", "a0:{}", &format!("c:{raw}"), "tool_calls"]
                .map(str::to_owned)
                .to_vec(),
        ),
        // Held text is not lost.
        (
            vec![
                json!({"content": "<|channel|>analysis A"}),
                json!({"reasoning": "B"}),
                json!({"content": "<|end|>"}),
            ],
            ["r:A", "r:B", "c:<|end|>", "stop"]
                .map(str::to_owned)
                .to_vec(),
        ),
        // Nulls and empty members have no effect.
        (
            vec![
                json!({"reasoning_content": null, "tool_calls": [], "content": raw}),
                json!({"reasoning": ""}),
            ],
            ["c:x", "stop"].map(str::to_owned).to_vec(),
        ),
        (
            vec![json!({"content": "x<"}), json!({"refusal": "no"})],
            ["c:x", "c:<"].map(str::to_owned).to_vec(),
        ),
    ] {
        let case = stream_of(Api::Chat, &deltas, "stop");
        if deltas.iter().any(|delta| delta.get("refusal").is_some()) {
            let frames: Vec<_> = data(&case.run(&Cut::Whole).body)
                .map(|chunk| chunk["choices"][0]["delta"].clone())
                .collect();
            let expected = json!([{"role": "assistant"}, {"content": "x"}, {"content": "<"}, {"refusal": "no"}, {}]);
            assert_eq!(Value::from(frames), expected);
            continue;
        }
        assert_eq!(said(&case), expected, "{deltas:?}");
    }
}

#[test]
fn logprobs_stay_with_their_chunk() {
    let entry =
        |token: &str| json!({"token": token, "logprob": -1.0, "bytes": null, "top_logprobs": []});
    let chunks: String = ["<|channel|>", "final", "<|message|>", "x<|end|>y", "<", "b"]
        .iter()
        .map(|text| {
            let logprobs = json!({"content": [entry(text)]});
            let choice = json!({"index": 0, "delta": {"content": text}, "logprobs": logprobs});
            format!(
                "data: {}\n\n",
                json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]})
            )
        })
        .collect();
    let input = format!(
        "{chunks}{}data: [DONE]\n\n",
        chunk(&json!({}), &"stop".into())
    );
    let request = json!({"model": "m", "stream": true, "logprobs": true});
    let case = Case {
        request,
        ..case(Api::Chat, true, input)
    };
    let frames: Vec<_> = data(&case.run(&Cut::Whole).body)
        .skip(1)
        .map(|chunk| {
            let choice = &chunk["choices"][0];
            let tokens = choice["logprobs"]["content"]
                .as_array()
                .into_iter()
                .flatten();
            let tokens: Vec<_> = tokens
                .map(|entry| entry["token"].as_str().unwrap().to_owned())
                .collect();
            format!("{} {}", word(choice), tokens.join(","))
        })
        .collect();
    let expected = [
        "- <|channel|>",
        "- final",
        "- <|message|>",
        "c:x x<|end|>y",
        "c:y ",
        "- <",
        "c:< ",
        "c:b b",
        "stop ",
    ];
    assert_eq!(frames, expected);
}

/// A whole answer has all its tokens at once; each message made from it has the logprobs of its own tokens.
#[test]
fn logprobs_of_a_whole_answer_are_those_of_the_stream() {
    let entry =
        |token: &str| json!({"token": token, "logprob": -1.0, "bytes": null, "top_logprobs": []});
    let tokens = [
        "<|channel|>",
        "analysis",
        "<|message|>",
        "A",
        "<|end|>",
        "<|start|>",
        "assistant",
        "<|channel|>",
        "final",
        "<|message|>",
        "Hel",
        "lo",
        "<|return|>",
    ];
    let request = |stream: bool| json!({"model": "m", "input": "hi", "stream": stream, "include": ["message.output_text.logprobs"], "logprobs": true});
    let choice = |tokens: &[&str], part: &str, finish: &Value| {
        let content: Vec<_> = tokens.iter().map(|token| entry(token)).collect();
        json!({"index": 0, part: {"content": tokens.concat()}, "logprobs": {"content": content}, "finish_reason": finish})
    };
    let answer = |choice: Value| json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]});
    let chunks: String = tokens
        .iter()
        .map(|token| {
            format!(
                "data: {}\n\n",
                answer(choice(&[token], "delta", &Value::Null))
            )
        })
        .collect();
    let end = chunk(&json!({}), &"stop".into());
    let streamed = Case {
        request: request(true),
        ..case(
            Api::Responses,
            true,
            format!("{chunks}{end}data: [DONE]\n\n"),
        )
    };
    let streamed =
        data(&streamed.run(&Cut::Whole).body).last().unwrap()["response"]["output"].clone();
    let whole = answer(choice(&tokens, "message", &"stop".into())).to_string();
    let whole = Case {
        request: request(false),
        ..case(Api::Responses, false, whole)
    };
    let whole: Value = serde_json::from_str(&whole.run(&Cut::Whole).body).unwrap();
    let said = whole["output"][1]["content"][0]["logprobs"]
        .as_array()
        .unwrap();
    let said: Vec<_> = said
        .iter()
        .map(|entry| entry["token"].as_str().unwrap())
        .collect();
    assert_eq!(said, ["Hel", "lo"]);
    assert_eq!(whole["output"], streamed);
}

#[test]
fn no_reasoning_where_none_is_wanted() {
    let options = json!({"harmony": "text", "reasoning_field": "none"});
    let text =
        "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>final<|message|>B";
    let case = Case {
        options,
        ..stream(Api::Chat, &[text], "stop")
    };
    assert_eq!(said(&case), ["c:B", "stop"]);
}

#[test]
fn several_choices_are_read_apart() {
    let one = |index: u32, text: &str| {
        let choice = json!({"index": index, "delta": {"content": text}, "finish_reason": null});
        format!(
            "data: {}\n\n",
            json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]})
        )
    };
    let end = |index: u32| {
        let choice = json!({"index": index, "delta": {}, "finish_reason": "stop"});
        format!(
            "data: {}\n\n",
            json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]})
        )
    };
    let input = [
        one(0, "<|channel|>analysis<|mess"),
        one(1, "Hi <"),
        one(0, "age|>A"),
        one(1, "|"),
        end(0),
        end(1),
        "data: [DONE]\n\n".to_owned(),
    ];
    let request = json!({"model": "m", "stream": true, "n": 2});
    let case = Case {
        request,
        ..case(Api::Chat, true, input.concat())
    };
    let frames: Vec<_> = data(&case.run(&Cut::Whole).body)
        .filter(|chunk| chunk["choices"][0]["delta"].get("role").is_none())
        .map(|chunk| {
            format!(
                "{} {}",
                chunk["choices"][0]["index"],
                word(&chunk["choices"][0])
            )
        })
        .collect();
    assert_eq!(
        frames,
        ["1 c:Hi ", "0 r:A", "0 stop", "1 c:<", "1 c:|", "1 stop"]
    );
}

/// Held text is sent before the error when a stream breaks off.
#[test]
fn what_was_held_is_said_before_an_error() {
    let input = chunk(
        &json!({"content": "<|channel|>final<|message|>x <|"}),
        &Value::Null,
    );
    for (rest, ending) in [
        ("", Ending::Reset),
        (
            "data: {\"error\":{\"message\":\"gone\",\"code\":500}}\n\n",
            Ending::Clean,
        ),
        ("data: {\n\n", Ending::Clean),
    ] {
        let case = Case {
            ending,
            ..case(Api::Chat, true, format!("{input}{rest}"))
        };
        let body = case.run(&Cut::Whole).body;
        let words: Vec<_> = data(&body)
            .skip(1)
            .take(2)
            .map(|chunk| word(&chunk["choices"][0]))
            .collect();
        assert_eq!(words, ["c:x ", "c:<|"]);
        assert!(body.contains("event: error"), "{body}");
    }
}

/// A header without an end, and a text that could become a header, do not grow without limit.
#[test]
fn nothing_grows_without_bounds() {
    let long = "x".repeat(100_000);
    for (start, end, expected) in [
        ("<|channel|>analysis ", "", "r:"),
        ("<|channel|>analysis ", "<|message|>", "r:"),
        ("<|start|>assistant<|channel|>final to=", "", "c:"),
        ("to=", "", "c:"),
        (
            "<|channel|>analysis to=browser.search<|message|>",
            "<|call|>",
            "r:",
        ),
    ] {
        let said = said(&stream(Api::Chat, &[start, &long, end], "stop"));
        let text: String = said
            .iter()
            .filter_map(|word| word.strip_prefix(expected))
            .collect();
        let taken = if start.ends_with("final to=") {
            900..1024
        } else {
            0..1
        };
        let lost = long.len() - text.matches('x').count();
        assert!(taken.contains(&lost), "{start} loses {lost}");
    }
    let markers = "<|channel|>a<|constrain|>".repeat(10_000);
    assert_eq!(
        said(&stream(Api::Chat, &[&markers], "length"))
            .last()
            .unwrap(),
        "length"
    );
}

#[test]
fn items_of_responses() {
    let item = |kind: &str, status: &str, says: &str| [kind, status, says].map(str::to_owned);
    let done = |kind: &str, says: &str| item(kind, "completed", says);
    let search = |url: &str| format!("<|channel|>analysis to=browser.{url}");
    for (text, finish, expected) in [
        (
            "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>analysis<|message|>B<|end|><|start|>assistant<|channel|>commentary<|message|>C<|end|><|start|>assistant<|channel|>final<|message|>D<|return|>".to_owned(),
            "stop",
            vec![done("reasoning", "A"), done("reasoning", "B"), done("message", "C"), done("message", "D")],
        ),
        (
            "<|channel|>commentary to=functions.f<|message|>{}<|call|><|start|>assistant<|channel|>commentary to=functions.g<|message|>{\"a\":1}<|call|>".to_owned(),
            "stop",
            vec![done("function_call", "f {}"), done("function_call", "g {\"a\":1}")],
        ),
        (
            search("open code<|message|>{\"cursor\": 2, \"id\": 4}<|call|>x"),
            "stop",
            vec![done("web_search_call", r#"{"type":"open_page","url":"cursor:2"}"#), done("message", "x")],
        ),
        // The model ended by itself, so the end of the text is the end of the message.
        (
            search("find<|message|>{\"pattern\": \"p\", \"url\": \"http://a\"}"),
            "stop",
            vec![done("web_search_call", r#"{"pattern":"p","type":"find_in_page","url":"http://a"}"#)],
        ),
        (search("search<|message|>news<|call|>"), "stop", vec![done("reasoning", "news")]),
        (search("search<|message|><|call|>"), "stop", vec![]),
        // Truncated: an open browser call is dropped, a complete one is kept.
        (search("search<|message|>{\"query\": \"a\"}"), "length", vec![]),
        (
            "<|channel|>final<|message|>A<|end|><|start|>assistant<|channel|>fin".to_owned(),
            "length",
            vec![done("message", "A")],
        ),
        (
            "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>final<|message|>B".to_owned(),
            "length",
            vec![done("reasoning", "A"), item("message", "incomplete", "B")],
        ),
        (
            "<|channel|>commentary to=functions.f<|message|>{\"a".to_owned(),
            "length",
            vec![item("function_call", "incomplete", "f {\"a")],
        ),
    ] {
        let streamed = stream(Api::Responses, &[&text], finish);
        assert_eq!(items(&streamed), expected, "{text}");
        assert_eq!(items(&whole(Api::Responses, &text, finish)), expected, "{text}");
        let cut: Vec<_> = text.split_inclusive(|_| true).collect();
        assert_eq!(items(&stream(Api::Responses, &cut, finish)), expected, "{text}");
        let answer = streamed.run(&Cut::Whole);
        assert_eq!(streamed.fed_back(&answer.body).run(&Cut::Whole), answer, "{text} again");
    }
}

/// The text of an engine that gets Responses requests itself is parsed, too.
#[test]
fn native_responses_are_parsed() {
    let text = "<|channel|>analysis<|message|>A";
    let events = [
        json!({"type": "response.created", "response": {"id": "resp_1", "created_at": 5, "model": "m"}}),
        json!({"type": "response.output_text.delta", "item_id": "a", "output_index": 0, "content_index": 0, "delta": text}),
        json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": []}}),
    ];
    let input = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    let case = Case {
        upstream: Api::Responses,
        ..case(Api::Responses, true, input)
    };
    assert_eq!(items(&case), [["reasoning", "completed", "A"]]);
}

/// Text that SGLang really sends without a parser.
#[test]
fn captured_text_of_sglang_is_parsed() {
    let parsed = |name: &str| {
        let fixture = captures()
            .into_iter()
            .find(|fixture| fixture.case.name == name)
            .expect(name);
        Case {
            options: json!({"harmony": "text"}),
            ..fixture.case
        }
    };
    let text = |said: &[String], kind: &str| -> String {
        said.iter()
            .filter_map(|word| word.strip_prefix(kind))
            .collect()
    };
    let case = parsed("sglang/gptoss-markup-raw");
    let words = said(&case);
    let answer = case.run(&Cut::Whole);
    assert!(!answer.body.contains("<|"), "{}", answer.body);
    let reasoning = "The user asks a simple question. Two plus two makes four, so I will say that.";
    assert_eq!(
        (text(&words, "r:"), text(&words, "c:")),
        (reasoning.to_owned(), "Two plus two is **four**.".to_owned())
    );
    assert_eq!(case.fed_back(&answer.body).run(&Cut::Whole), answer);
    // Here the engine parsed the reasoning and sent it as such. The call after it is parsed all the same.
    let case = parsed("sglang/gptoss-tool-role-raw-whole");
    let answer: Value = serde_json::from_str(&case.run(&Cut::Whole).body).unwrap();
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], "Recipient in the role.");
    let function = json!({"name": "get_weather", "arguments": "{\"city\": \"Tokyo\"}"});
    assert_eq!(message["tool_calls"][0]["function"], function);
}
