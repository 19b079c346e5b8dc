//! Oddities of engines: tool calls with strange indices, interleaved choices, usage in odd places, changing names,
//! and text that looks like framing. Each comes out in canonical form.

use crate::canonical::{Canonical, INVALID_EVENT, grammar};
use crate::sim::prelude::*;

/// Returns the client's stream for these chunks, which are followed by `[DONE]`.
async fn client_stream(chunks: &[String], request: &Request, setup: Setup) -> String {
    let script = chunks
        .iter()
        .fold(Script::new().head_sse(), |script, chunk| script.ev(chunk));
    let answer = World::answer(script.done().end(), setup, request)
        .await
        .with_status(200);
    let text = answer.text().to_owned();
    grammar(&text);
    text
}

/// Returns a chunk with these choices, followed by these members.
fn chunk(choices: &str, more: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{choices}]{more}}}"#
    )
}

fn choice(index: u32, delta: &str, finish: &str) -> String {
    format!(r#"{{"index":{index},"delta":{delta},"logprobs":null,"finish_reason":{finish}}}"#)
}

/// Returns a chunk of the only choice.
fn delta(delta: &str) -> String {
    chunk(&choice(0, delta, "null"), "")
}

fn finish(reason: &str) -> String {
    chunk(&choice(0, "{}", &json_string(reason)), "")
}

/// Returns a chunk with a tool call, or with a piece of one.
fn call(inner: &str) -> String {
    delta(&format!(r#"{{"tool_calls":[{{{inner}}}]}}"#))
}

/// Collects the tool calls of a stream as clients do: id, name and arguments, in the order of their indices. Checks
/// that no part comes twice.
fn calls(text: &str) -> Vec<(String, String, String)> {
    let mut calls: Vec<(String, String, String)> = Vec::new();
    for block in grammar(text) {
        let Some(data) = block
            .strip_prefix("data: ")
            .filter(|data| *data != "[DONE]")
        else {
            continue;
        };
        let frame: Value = serde_json::from_str(data).unwrap();
        let Some(list) = frame["choices"][0]["delta"].get("tool_calls") else {
            continue;
        };
        assert_eq!(list.as_array().unwrap().len(), 1, "{block}");
        let (call, index) = (
            &list[0],
            usize::try_from(list[0]["index"].as_u64().unwrap()).unwrap(),
        );
        let function = &call["function"];
        let piece = function["arguments"].as_str().unwrap();
        if let Some(known) = calls.get_mut(index) {
            assert!(
                call.get("id").is_none() && function.get("name").is_none(),
                "once is enough: {block}"
            );
            known.2.push_str(piece);
            continue;
        }
        assert_eq!(index, calls.len(), "no gaps: {block}");
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        calls.push((word(&call["id"]), word(&function["name"]), piece.to_owned()));
    }
    calls
}

/// Checks that a stream of these pieces yields these tool calls, and ends well.
async fn check_calls(pieces: &[&str], expected: &[(&str, &str, &str)], what: &str) {
    let role = delta(r#"{"role":"assistant","content":""}"#);
    let chunks = std::iter::once(role)
        .chain(pieces.iter().map(|piece| call(piece)))
        .chain([finish("tool_calls")]);
    let text = client_stream(
        &chunks.collect::<Vec<_>>(),
        &Request::stream(""),
        Setup::new(),
    )
    .await;
    let got = calls(&text);
    let got: Vec<_> = got
        .iter()
        .map(|(id, name, text)| (id.as_str(), name.as_str(), text.as_str()))
        .collect();
    assert_eq!(got, expected, "{what}: {text}");
    assert!(
        text.contains(r#""finish_reason":"tool_calls""#) && text.ends_with("data: [DONE]\n\n"),
        "{what}"
    );
}

#[tokio::test]
async fn fault_u26_text_that_looks_like_framing() {
    let texts = [
        "[DONE]",
        "data: [DONE]",
        "\n\ndata: [DONE]\n\n",
        "\r\n\r\nevent: error\r\ndata: {}\r\n\r\n",
        ": keepalive\n\n",
        "id: 7\nretry: 1\n",
        "\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        "{\"error\":{\"message\":\"no\"}}",
        "<think>[DONE]</think>",
        "\u{2028}\u{2029}\u{85}\u{feff}",
        "\\n\\n\\u005bDONE]",
    ];
    let mut chunks = vec![delta(r#"{"role":"assistant","content":""}"#)];
    for kind in ["reasoning", "content"] {
        chunks.extend(texts.map(|text| delta(&format!(r#"{{"{kind}":{}}}"#, json_string(text)))));
    }
    chunks.push(call(
        r#""index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}"#,
    ));
    chunks.extend(texts.map(|text| {
        call(&format!(
            r#""index":0,"function":{{"arguments":{}}}"#,
            json_string(text)
        ))
    }));
    chunks.push(finish("tool_calls"));
    let got = client_stream(&chunks, &Request::stream(""), Setup::new()).await;
    assert!(
        got.ends_with(Canonical::new().finish("tool_calls").done().text()),
        "{got}"
    );
    let deltas: Vec<Value> = grammar(&got)
        .into_iter()
        .filter_map(|block| serde_json::from_str::<Value>(block.strip_prefix("data: ")?).ok())
        .map(|frame| frame["choices"][0]["delta"].clone())
        .collect();
    for kind in ["reasoning_content", "content"] {
        let said: Vec<_> = deltas
            .iter()
            .filter_map(|delta| delta[kind].as_str())
            .collect();
        assert_eq!(said, texts, "one frame for each {kind}");
    }
    assert_eq!(calls(&got)[0].2, texts.concat());
}

#[tokio::test]
async fn fault_u29_broken_at_each_position() {
    const TOKENS: usize = 4;
    for at in 0..=TOKENS + 1 {
        let mut script = Script::stream();
        let mut expected = Canonical::new().role();
        for n in 0..=TOKENS {
            if n == at {
                script = script
                    .ev(r#"{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"lost"}"#);
            }
            if n < TOKENS {
                let text = format!("a.{n} ");
                script = script.text(&text);
                expected = if n < at {
                    expected.content(&text)
                } else {
                    expected
                };
            }
        }
        script = script.finish("stop");
        if at == TOKENS + 1 {
            script = script.ev("{");
        }
        let setup = Setup::new().allow_errors();
        let answer = World::answer(
            script.text("late").done().end(),
            setup,
            &Request::stream(""),
        )
        .await;
        // A finish that was held back until then is dropped.
        assert_eq!(
            answer.text(),
            expected.error(INVALID_EVENT).text(),
            "broken at {at}"
        );
    }
}

#[tokio::test]
async fn fault_u31_calls_numbered_in_strange_ways() {
    let two = [("a", "f", r#"{"x":1}"#), ("b", "g", "[2]")];
    let open = |index: &str, id: &str, name: &str, text: &str| {
        let text = json_string(text);
        format!(
            r#"{index}"id":"{id}","type":"function","function":{{"name":"{name}","arguments":{text}}}"#
        )
    };
    let more = |index: &str, text: &str| {
        format!(r#"{index}"function":{{"arguments":{}}}"#, json_string(text))
    };
    for (first, second, what) in [
        ("", "", "missing"),
        (r#""index":0,"#, r#""index":1,"#, "plain"),
        (r#""index":0,"#, r#""index":2,"#, "a gap"),
        (r#""index":7,"#, r#""index":90000,"#, "a large gap"),
        (r#""index":1,"#, r#""index":0,"#, "out of order"),
        (r#""index":0,"#, r#""index":0,"#, "always 0 with new ids"),
        (r#""index":null,"#, r#""index":null,"#, "null"),
    ] {
        // One call after the other, in pieces.
        let pieces = [
            open(first, "a", "f", ""),
            more(first, r#"{"x""#),
            more(first, ":1}"),
            open(second, "b", "g", "["),
            more(second, "2]"),
        ];
        check_calls(&pieces.each_ref().map(String::as_str), &two, what).await;
        // Each call in one piece.
        let pieces = [
            open(first, "a", "f", r#"{"x":1}"#),
            open(second, "b", "g", "[2]"),
        ];
        check_calls(&pieces.each_ref().map(String::as_str), &two, what).await;
    }
    // The id is repeated in every piece, and pieces of two calls alternate.
    let zero = r#""index":0,"#;
    let again = |index: &str, id: &str, text: &str| {
        format!(
            r#"{index}"id":"{id}","function":{{"arguments":{}}}"#,
            json_string(text)
        )
    };
    let pieces = [
        open(zero, "a", "f", ""),
        again(zero, "a", r#"{"x""#),
        again(zero, "a", ":1}"),
    ];
    check_calls(
        &pieces.each_ref().map(String::as_str),
        &two[..1],
        "a repeated id",
    )
    .await;
    let one = r#""index":1,"#;
    let pieces = [
        open(zero, "a", "f", r#"{"x""#),
        open(one, "b", "g", "["),
        more(zero, ":1}"),
        more(one, "2]"),
    ];
    check_calls(&pieces.each_ref().map(String::as_str), &two, "in turn").await;
    let pieces = [
        open("", "a", "f", r#"{"x""#),
        open("", "b", "g", "["),
        again("", "a", ":1}"),
        again("", "b", "2]"),
    ];
    check_calls(
        &pieces.each_ref().map(String::as_str),
        &two,
        "in turn, by id",
    )
    .await;
}

#[tokio::test]
async fn fault_u32_calls_told_in_strange_ways() {
    type Row<'r> = (&'r [&'r str], &'r [(&'r str, &'r str, &'r str)], &'r str);
    let rows: [Row<'_>; 9] = [
        (
            &[
                r#""index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{"}"#,
                r#""index":0,"id":"a","type":"function","function":{"name":"f","arguments":"}"}"#,
            ],
            &[("a", "f", "{}")],
            "the name repeated",
        ),
        (
            &[
                r#""index":0,"id":"a","function":{"name":"f"}"#,
                r#""index":0,"id":"other","function":{"arguments":"{}"}"#,
            ],
            &[("a", "f", "{}")],
            "another id without a name is no other call",
        ),
        (
            &[r#""index":0,"id":"a","function":{"name":"f","arguments":{"x":1.50,"b":[null]}}"#],
            &[("a", "f", r#"{"x":1.50,"b":[null]}"#)],
            "arguments as an object",
        ),
        (
            &[
                r#""index":0,"id":"a","function":{"arguments":"{\"x\""}"#,
                r#""index":0,"function":{"arguments":":1}"}"#,
                r#""index":0,"function":{"name":"f"}"#,
            ],
            &[("a", "f", r#"{"x":1}"#)],
            "arguments before the name",
        ),
        (
            &[r#""index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":trux"}"#],
            &[("a", "f", r#"{"x":trux"#)],
            "arguments that are no JSON",
        ),
        (
            &[r#""index":0,"id":"a","function":{"name":"f","arguments":"} \u0000 'x'"}"#],
            &[("a", "f", "} \0 'x'")],
            "arguments that are anything",
        ),
        (
            &[r#""index":0,"id":"a","function":{"name":"f","arguments":null}"#],
            &[("a", "f", "{}")],
            "no arguments",
        ),
        (
            &[r#""index":0,"id":null,"function":{"name":"f","arguments":"1"}"#],
            &[("call_1_0_0", "f", "1")],
            "no id",
        ),
        (
            &[
                r#""index":0,"id":"a","type":null,"function":{"name":"f","arguments":""}"#,
                r#""index":0,"id":"","type":"function","function":{"name":null,"arguments":"{}"}"#,
            ],
            &[("a", "f", "{}")],
            "empty and null later on",
        ),
    ];
    for (pieces, expected, what) in rows {
        check_calls(pieces, expected, what).await;
    }
    // The name never arrives: there is no call, and no name is invented.
    let chunks = [
        delta(r#"{"role":"assistant"}"#),
        call(r#""index":0,"id":"a","function":{"arguments":"{}"}"#),
        finish("tool_calls"),
    ];
    let text = client_stream(&chunks, &Request::stream(""), Setup::new().allow_errors()).await;
    let expected = (
        "upstream_invalid_tool_call",
        "Server error: the upstream engine sent a tool call without a function name.",
    );
    assert_eq!(text, Canonical::new().role().error(expected).text());
}

/// Returns the text of each choice, its finish reason and its number of role frames.
fn choices(text: &str) -> Vec<(String, Option<String>, usize)> {
    let mut choices: Vec<(String, Option<String>, usize)> = Vec::new();
    for block in grammar(text) {
        let Some(data) = block
            .strip_prefix("data: ")
            .filter(|data| *data != "[DONE]")
        else {
            continue;
        };
        let frame: Value = serde_json::from_str(data).unwrap();
        let Some(choice) = frame["choices"].get(0) else {
            continue;
        };
        let index = usize::try_from(choice["index"].as_u64().unwrap()).unwrap();
        assert!(index <= choices.len(), "{block}");
        if index == choices.len() {
            choices.push(Default::default());
        }
        let known = &mut choices[index];
        assert!(known.1.is_none(), "nothing after the finish: {block}");
        known.2 += usize::from(choice["delta"].get("role").is_some());
        known
            .0
            .push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        known.1 = choice["finish_reason"].as_str().map(str::to_owned);
    }
    choices
}

#[tokio::test]
async fn fault_u33_choices_mixed_up() {
    let three = Request::stream(r#","n":3"#);
    let text = |index, text: &str| choice(index, &format!(r#"{{"content":"{text}"}}"#), "null");
    let end = |index, reason: &str| choice(index, "{}", &json_string(reason));
    let one = |choice: String| chunk(&choice, "");
    // In any order, several in a chunk, one finished early, empty deltas after its finish.
    let chunks = [
        one(text(2, "c1")),
        chunk(&[text(0, "a1"), text(1, "b1")].join(","), ""),
        one(end(1, "length")),
        chunk(
            &[
                text(2, "c2"),
                choice(1, r#"{"content":""}"#, "null"),
                text(0, "a2"),
            ]
            .join(","),
            "",
        ),
        one(choice(1, "{}", "null")),
        one(choice(0, r#"{"content":"a3"}"#, "\"stop\"")),
        one(end(2, "stop")),
    ];
    let told_of = client_stream(&chunks, &three, Setup::new()).await;
    let expected = [("a1a2a3", "stop"), ("b1", "length"), ("c1c2", "stop")];
    let expected = expected.map(|(text, end)| (text.to_owned(), Some(end.to_owned()), 1));
    assert_eq!(choices(&told_of), expected);
    assert!(told_of.ends_with("data: [DONE]\n\n"));
    // A choice that was not requested, and text after a finish.
    let rows = [
        vec![one(text(0, "a")), one(text(3, "d"))],
        vec![one(text(0, "a")), one(text(4_000_000, "d"))],
        vec![
            one(text(0, "a")),
            one(end(0, "stop")),
            one(text(1, "b")),
            one(text(0, "late")),
        ],
    ];
    for chunks in rows {
        let text = client_stream(&chunks, &three, Setup::new().allow_errors()).await;
        let last = *grammar(&text).last().expect("an end");
        assert!(
            last.contains(r#""code":"upstream_invalid_event""#),
            "{text}"
        );
        assert!(!text.contains("late") && !text.contains("\"d\""), "{text}");
        assert_eq!(choices(&text)[0].0, "a");
    }
}

/// The same answer in forms that differ without a difference in meaning.
#[tokio::test]
async fn fault_u34_the_same_in_other_words() {
    let expected = Canonical::new()
        .role()
        .reasoning("why")
        .content("a")
        .content("b")
        .finish("stop")
        .done();
    let role = || delta(r#"{"role":"assistant","content":""}"#);
    let pair = |inner: &str, finish: &str| chunk(&choice(0, inner, finish), "");
    let why = || delta(r#"{"reasoning_content":"why"}"#);
    let (a, b) = (
        || delta(r#"{"content":"a"}"#),
        || delta(r#"{"content":"b"}"#),
    );
    let rows = [
        vec![role(), why(), a(), b(), finish("stop")],
        vec![role(), role(), why(), role(), a(), b(), finish("stop")],
        vec![why(), a(), b(), finish("stop")],
        vec![role(), why(), a(), pair(r#"{"content":"b"}"#, "\"stop\"")],
        vec![
            role(),
            delta("{}"),
            why(),
            delta(r#"{"content":null}"#),
            a(),
            delta(r#"{"content":""}"#),
            b(),
            finish("stop"),
        ],
        vec![
            role(),
            delta(r#"{"reasoning":"why"}"#),
            a(),
            b(),
            finish("stop"),
        ],
        vec![
            role(),
            delta(r#"{"reasoning":"why","reasoning_content":"why"}"#),
            a(),
            b(),
            finish("stop"),
        ],
        vec![
            role(),
            delta(r#"{"reasoning":"why","content":"a"}"#),
            b(),
            finish("stop"),
        ],
        vec![
            pair(
                r#"{"role":"assistant","reasoning":"why","content":"a"}"#,
                "null",
            ),
            pair(r#"{"role":"assistant","content":"b"}"#, "\"stop\""),
        ],
        vec![
            role(),
            why(),
            a(),
            b(),
            finish("stop"),
            finish("stop"),
            delta(r#"{"content":""}"#),
        ],
        vec![role(), why(), a(), finish("stop"), b()],
        vec![
            role(),
            why(),
            a(),
            b(),
            pair(
                r#"{"content":null,"reasoning_content":null,"tool_calls":[]}"#,
                "\"stop\"",
            ),
        ],
    ];
    for (n, chunks) in rows.iter().enumerate() {
        let text = client_stream(chunks, &Request::stream(""), Setup::new()).await;
        assert_eq!(text, expected.text(), "row {n}");
    }
}

#[tokio::test]
async fn fault_u35_usage_wherever_it_stands() {
    let usage = |prompt: &str, completion: &str| {
        format!(
            r#","usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":8}}"#
        )
    };
    let with = |choices: &str, usage: &str| chunk(choices, usage);
    let (role, text) = (
        choice(0, r#"{"role":"assistant"}"#, "null"),
        choice(0, r#"{"content":"a"}"#, "null"),
    );
    let end = choice(0, "{}", "\"stop\"");
    let good = usage("3", "5");
    let rows = [
        (
            "on every chunk",
            vec![
                with(&role, &usage("3", "0")),
                with(&text, &usage("3", "1")),
                with(&end, &good),
                with("", &good),
            ],
        ),
        (
            "twice",
            vec![
                with(&role, ""),
                with(&text, ""),
                with(&end, ""),
                with("", &good),
                with("", &good),
            ],
        ),
        (
            "before the finish",
            vec![
                with(&role, ""),
                with(&text, ""),
                with("", &good),
                with(&end, ""),
            ],
        ),
        (
            "with the finish",
            vec![with(&role, ""), with(&text, ""), with(&end, &good)],
        ),
        (
            "early and empty",
            vec![
                with("", ""),
                with("", r#","usage":null"#),
                with(&role, ""),
                with(&text, ""),
                with(&end, ""),
                with("", &good),
            ],
        ),
    ];
    let asked = Request::stream(r#","stream_options":{"include_usage":true}"#);
    let plain = Canonical::new().role().content("a").finish("stop").done();
    let counted = Canonical::with_usage()
        .role()
        .content("a")
        .finish("stop")
        .usage(3, 5)
        .done();
    for (what, chunks) in &rows {
        assert_eq!(
            client_stream(chunks, &asked, Setup::new()).await,
            counted.text(),
            "{what}"
        );
        assert_eq!(
            client_stream(chunks, &Request::stream(""), Setup::new()).await,
            plain.text(),
            "{what}, not requested"
        );
    }
    // No usage at all: the stream is complete anyway, no usage is invented, and the gap is counted.
    let without = Canonical::with_usage()
        .role()
        .content("a")
        .finish("stop")
        .done();
    let chunks = [with(&role, ""), with(&text, ""), with(&end, "")];
    assert_eq!(
        client_stream(&chunks, &asked, Setup::new()).await,
        without.text()
    );
    // Invalid numbers: there is at most one usage frame, and a regular end.
    for (prompt, completion) in [
        ("-1", "5"),
        ("3", "99999999999999999999999"),
        ("1e3", "5"),
        ("null", "5"),
        ("3", "\"5\""),
    ] {
        let chunks = [
            with(&role, ""),
            with(&text, ""),
            with(&end, ""),
            with("", &usage(prompt, completion)),
        ];
        let text = client_stream(&chunks, &asked, Setup::new().allow_errors()).await;
        assert!(text.matches(r#""usage":{"#).count() <= 1, "{text}");
        assert!(!text.contains(":-1"), "{prompt} {completion}: {text}");
    }
}

/// Missing usage is counted where it was requested, and only there.
#[tokio::test]
async fn fault_u35_usage_that_never_comes_is_counted() {
    const COUNTED: &str = "samewire_rewrites_total{engine=\"vllm\",rule=\"usage_missing\"}";
    let world = World::start(Script::stream().text("a").stop(), Setup::new()).await;
    for asked in ["", r#","stream_options":{"include_usage":true}"#] {
        let answer = world.stream(asked).await;
        assert!(
            answer.text().ends_with("data: [DONE]\n\n"),
            "{}",
            answer.text()
        );
    }
    world.samewire.metric_becomes(COUNTED, 1).await;
    world.end().await;
}

#[tokio::test]
async fn fault_u36_names_that_change() {
    let envelope = |id: &str, created: &str, model: &str, choices: &str| {
        format!(
            r#"{{"id":{id},"object":"chat.completion.chunk","created":{created},"model":{model},"system_fingerprint":"fp-secret","build":"10.0.0.7","choices":[{choices}]}}"#
        )
    };
    let (role, text) = (
        choice(0, r#"{"role":"assistant"}"#, "null"),
        choice(0, r#"{"content":"a"}"#, "null"),
    );
    let end = choice(0, "{}", "\"stop\"");
    let long = format!("\"{}\"", "x".repeat(1 << 20));
    let other = "\"http://10.0.0.7:8000/models/m\"";
    let rows = [
        (
            ("\"chatcmpl-1\"", "1", "\"m\""),
            ("\"chatcmpl-2\"", "2", "\"m\""),
        ),
        (("\"chatcmpl-1\"", "1", "\"m\""), ("\"\"", "0", "\"m\"")),
        (("\"chatcmpl-1\"", "1", "\"m\""), ("null", "null", "null")),
        (
            ("\"chatcmpl-1\"", "1", "\"m\""),
            (long.as_str(), "1", "\"m\""),
        ),
        (
            ("\"chatcmpl-1\"", "1", "\"m\""),
            (other, "99999999999999", "\"m\""),
        ),
        (("\"1\"", "1", "\"m\""), ("\"chatcmpl-1\"", "1", "\"m\"")),
        (
            ("\"chatcmpl-1\"", "1", "\"m\""),
            ("\"chatcmpl-1\"", "1", "\"other\""),
        ),
    ];
    for ((id, created, model), (late_id, late, late_model)) in rows {
        let chunks = [
            envelope(id, created, model, &role),
            envelope(late_id, late, late_model, &text),
            envelope(late_id, late, late_model, &end),
        ];
        let got = client_stream(&chunks, &Request::stream(""), Setup::new()).await;
        assert_eq!(
            got,
            Canonical::answer_of("a").text(),
            "{late_id:.60} {late}"
        );
    }
    // An invalid id from the start: it is replaced by another one, the same in every frame, that reveals nothing.
    for id in [other, "\"\"", "null", "\"a b\\n\"", "\"\u{1f600}\""] {
        let chunks = [
            envelope(id, "1", "\"m\"", &role),
            envelope(id, "1", "\"m\"", &text),
            envelope(id, "1", "\"m\"", &end),
        ];
        let got = client_stream(&chunks, &Request::stream(""), Setup::new()).await;
        let ids: std::collections::BTreeSet<_> = grammar(&got)
            .into_iter()
            .filter_map(|block| serde_json::from_str::<Value>(block.strip_prefix("data: ")?).ok())
            .map(|frame| frame["id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(ids.len(), 1, "{ids:?}");
        let id = ids.first().unwrap();
        assert!(
            id.strip_prefix("chatcmpl-")
                .is_some_and(|rest| rest.len() == 32),
            "{id:.100}"
        );
        assert!(
            !got.contains("10.0.0.7") && !got.contains("secret"),
            "{got:.2000}"
        );
    }
}

/// Calls that the API permits although no client can run them: they pass as they are, and each kind is counted (wire-format
/// 2.5 rule 14; reports engines-127, 206, 437).
#[tokio::test]
async fn calls_that_no_client_can_run_are_counted() {
    for (name, arguments, rule) in [
        ("shell", "}!}!", "tool_arguments_invalid"),
        ("shell", "{'command': 'ls'}", "tool_arguments_invalid"),
        ("shell</think>", "{}", "tool_name_markup"),
        (
            "get_time</tool_call><tool_call>shell",
            "{}",
            "tool_name_markup",
        ),
        ("shel", "{}", "tool_unknown"),
    ] {
        let function = format!(
            r#""function":{{"name":{},"arguments":{}}}"#,
            json_string(name),
            json_string(arguments)
        );
        let entry = format!(r#""index":0,"id":"call_1","type":"function",{function}"#);
        let chunks = [call(&entry), finish("tool_calls")];
        let script = chunks
            .iter()
            .fold(Script::new().head_sse(), |script, chunk| script.ev(chunk))
            .done()
            .end();
        let world = World::start_as(script, "vllm", Setup::new()).await;
        let schema = r#"{"type":"object","properties":{}}"#;
        for request in [
            Request::chat(format!(
                r#"{{"model":"m","stream":true,"messages":[{{"role":"user","content":"a"}}],"tools":[{{"type":"function","function":{{"name":"shell","parameters":{schema}}}}}]}}"#
            )),
            Request::post(
                "/v1/responses",
                format!(
                    r#"{{"model":"m","stream":true,"input":"a","tools":[{{"type":"function","name":"shell","parameters":{schema}}}]}}"#
                ),
            ),
        ] {
            let answer = world.request(&request).await;
            let passed = json_string(name);
            assert!(
                answer.text().contains(&format!("\"name\":{passed}")),
                "{}",
                answer.text()
            );
            let passed = json_string(arguments);
            assert!(
                answer.text().contains(&format!("\"arguments\":{passed}")),
                "{}",
                answer.text()
            );
        }
        let counted = format!("samewire_rewrites_total{{engine=\"vllm\",rule=\"{rule}\"}}");
        world.samewire.metric_becomes(&counted, 2).await;
        let metrics = world.samewire.admin("/metrics").await.text().to_owned();
        assert_eq!(
            metrics.matches("rule=\"tool_unknown").count(),
            usize::from(rule == "tool_unknown")
        );
        world.end().await;
    }
}
