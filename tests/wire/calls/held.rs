//! Calls whose arguments the model writes as JSON: held until they have ended, and text unless they are an object (wire-format
//! 7.2), as they are or repaired.

use super::{both, call};
use crate::slow::random::garbled;
use crate::texts::{AnswerParts, cut, said, stream};
use proptest::prelude::*;

/// Returns the output of a stream cut at each character and of a whole answer. Both are the same.
fn parsed(parser: &str, text: &str, finish: &str) -> AnswerParts {
    let letters: Vec<&str> = text.split_inclusive(|_: char| true).collect();
    let [streamed, whole] = both(parser, &letters, finish).map(|case| said(&case));
    assert_eq!(streamed, whole, "{parser}: {text}");
    whole
}

fn hermes(arguments: &str) -> String {
    format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {arguments}}}\n</tool_call>")
}

fn kimi(arguments: &str) -> String {
    format!(
        "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"
    )
}

#[test]
fn a_value_that_is_no_object_leaves_its_call_text() {
    for bad in [
        "{a: 1}",
        "{\"a\": 1 b}",
        "{\"a\": Yes}",
        "[1]",
        "12",
        "true",
        "{a}",
        "\"{a: 1}\"",
        "{\"a\": ",
    ] {
        let texts = [
            ("hermes", hermes(bad)),
            ("qwen3", hermes(bad)),
            ("mistral", format!("[TOOL_CALLS]f[ARGS]{bad}")),
            (
                "deepseek_v31",
                format!(
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{bad}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
                ),
            ),
            ("kimi_k2", kimi(bad)),
            (
                "granite",
                format!("<|tool_call|>[{{\"name\": \"f\", \"arguments\": {bad}}}]<tool_call>"),
            ),
            (
                "qwen3_coder",
                format!(
                    "<tool_call>\n<function=f>\n{}\n</function>\n</tool_call>",
                    if bad.starts_with('{') { bad } else { "{1}" }
                ),
            ),
        ];
        for (parser, text) in texts {
            // A bracket that is missing inside of others, and the end of a word, are not noticed before the text ends.
            let has_end = ["kimi_k2", "deepseek_v31", "qwen3_coder"].contains(&parser);
            if bad == "{\"a\": " && !has_end || parser == "mistral" && ["12", "true"].contains(&bad)
            {
                continue;
            }
            let found = parsed(parser, &text, "stop");
            assert_eq!(
                (found.content.as_str(), found.calls.len()),
                (text.as_str(), 0),
                "{parser}: {bad}"
            );
            assert_eq!(found.finish, "stop", "{parser}: {bad}");
        }
    }
    // Markup after the name is no value either.
    let text = kimi("}!}!");
    assert_eq!(parsed("kimi_k2", &text, "stop").content, text);
}

#[test]
fn calls_beside_such_text() {
    let (good, bad) = (hermes("{\"a\": 1}"), hermes("{a: 1}"));
    let f = || call("f", "{\"a\": 1}");
    for (parser, text, content, calls) in [
        ("hermes", format!("x {bad} {good} {bad}"), format!("x {bad}  {bad}"), vec![f()]),
        ("hermes", format!("{bad}{bad}"), format!("{bad}{bad}"), vec![]),
        ("hermes", format!("{good}\n{bad}"), format!("\n{bad}"), vec![f()]),
        // A call inside of such text.
        ("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {x</tool_call>".to_owned() + &good, "<tool_call>{\"name\": \"f\", \"arguments\": {x</tool_call>".to_owned(), vec![f()]),
        // In a list, the text begins after the separator.
        (
            "mistral",
            "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"f\", \"arguments\": [1]}]".to_owned(),
            " {\"name\": \"f\", \"arguments\": [1]}]".to_owned(),
            vec![f()],
        ),
        ("kimi_k2", kimi("{x}") + &kimi("{\"a\": 1}"), kimi("{x}"), vec![f()]),
        ("qwen3", format!("<think>r{bad}"), bad, vec![]),
        ("qwen3", format!("<think>r{good}"), String::new(), vec![f()]),
    ] {
        let found = parsed(parser, &text, "stop");
        assert_eq!((found.content, found.calls), (content, calls), "{parser}: {text}");
    }
}

#[test]
fn a_call_that_is_cut_comes_as_far_as_it_was_written() {
    let text = hermes("{\"a\": [1, \"b c\"]}");
    let begins = text.find(": {").unwrap() + 2;
    let ends = text.find("]}").unwrap() + 2;
    for at in begins + 1..ends {
        for finish in ["length", "stop"] {
            let found = parsed("hermes", &text[..at], finish);
            assert_eq!(
                (found.content.as_str(), found.calls),
                ("", vec![call("f", &text[begins..at])])
            );
            assert_eq!(found.finish, "length");
        }
        let found = parsed("hermes", &text[..at], "length");
        assert_eq!(
            (found.calls, found.finish.as_str()),
            (vec![call("f", &text[begins..at])], "length")
        );
    }
}

#[test]
fn a_held_call_is_sent_when_its_arguments_end() {
    let text = hermes("{\"a\": \"b c\"}");
    let (before, behind) = text.split_at(text.find("}}").unwrap() + 1);
    let case = stream("hermes", &["x", before, behind], "stop");
    let answer = case.run(&crate::cases::Cut::Whole).body;
    let frames: Vec<&str> = answer
        .split("\n\n")
        .filter(|frame| frame.contains("tool_calls\":["))
        .collect();
    assert_eq!(frames.len(), 2, "{answer}");
    assert!(
        frames[1].contains(r#""arguments":"{\"a\": \"b c\"}""#),
        "{answer}"
    );
}

#[test]
fn arguments_beyond_the_limit_pass_as_they_are() {
    for (bytes, calls) in [(520_000, 0), (530_000, 1)] {
        let arguments = format!("{{a: \"{}\"}}", "b".repeat(bytes));
        let text = hermes(&arguments);
        let pieces: Vec<&str> = cut(&text, &[])
            .into_iter()
            .flat_map(|text| [&text[..300_000], &text[300_000..]])
            .collect();
        for case in both("hermes", &pieces, "stop") {
            let found = said(&case);
            assert_eq!(found.calls.len(), calls, "{bytes}");
            match found.calls.first() {
                Some((_, said)) => assert!(*said == arguments, "{bytes}"),
                None => assert!(found.content == text, "{bytes}"),
            }
        }
    }
}

#[test]
fn repaired_arguments_make_a_call() {
    for (parser, text, calls) in [
        (
            "hermes",
            hermes("{'a': True,}"),
            vec![call("f", "{\"a\": true}")],
        ),
        (
            "hermes",
            hermes("{\"a\": \"b\nc\"}"),
            vec![call("f", "{\"a\": \"b\\nc\"}")],
        ),
        (
            "hermes",
            hermes("\"{\\\"a\\\": 1}</tool_call>\""),
            vec![call("f", "{\"a\": 1}")],
        ),
        (
            "kimi_k2",
            kimi("{\"a\": [1"),
            vec![call("f", "{\"a\": [1]}")],
        ),
        ("kimi_k2", kimi("{\"a\": [1, "), vec![]),
        ("kimi_k2", kimi("[1,]"), vec![]),
    ] {
        let found = parsed(parser, &text, "stop");
        let content = if calls.is_empty() { text.as_str() } else { "" };
        assert_eq!(
            (found.content.as_str(), found.calls),
            (content, calls),
            "{parser}: {text}"
        );
    }
}

/// A cut within a mark leaves the call open, whatever the engine says of its end.
#[test]
fn a_call_that_is_cut_within_a_mark_is_not_finished() {
    let m3 = |inner: &str| {
        let marks = format!("<tool_call>@<invoke name=\"f\">@<number>7@</number>{inner}");
        format!("@{marks}").replace('@', "]<]minimax[>[")
    };
    let coder = "<tool_call>\n<function=f>\n<parameter=number>\n7\n</para".to_owned();
    for (parser, text) in [
        ("qwen3_coder", coder),
        ("minimax_m3", m3("@<te")),
        ("minimax_m3", m3("@a@</te")),
    ] {
        let found = parsed(parser, &text, "stop");
        let expected = vec![("f".to_owned(), "{\"number\": 7".to_owned())];
        assert_eq!(
            (found.calls, found.finish.as_str()),
            (expected, "length"),
            "{text}"
        );
    }
}

proptest! {
    #![proptest_config(crate::seeded::seeded(1_500))]

    /// A garbled call comes out the same however it is cut; if it is no call, its text is complete.
    #[test]
    fn garbled_arguments_are_the_same_wherever_they_are_cut(
        arguments in garbled(),
        written in prop::sample::select(vec!["hermes", "kimi_k2", "mistral", "llama3_json"]),
        finish in prop::sample::select(vec!["stop", "length", "tool_calls"]),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let text = match written {
            "hermes" => hermes(&arguments),
            "kimi_k2" => kimi(&arguments),
            "mistral" => format!("[TOOL_CALLS]f[ARGS]{arguments}[TOOL_CALLS]g[ARGS]{{}}"),
            _ => format!("{{\"name\": \"f\", \"parameters\": {arguments}}}"),
        };
        let [streamed, whole] = both(written, &cut(&text, &places), finish).map(|case| said(&case));
        prop_assert_eq!(&streamed, &whole, "{}", text);
        if whole.calls.is_empty() {
            prop_assert_eq!(&whole.content, &text);
        }
    }
}

/// A text full of such calls is read in linear time: after 64 of them no more are looked for.
#[test]
fn many_rejected_calls_are_few_to_read() {
    let (bad, good) = (hermes("{a: 1}"), hermes("{\"a\": 1}"));
    for (count, calls) in [(63, 1), (64, 0)] {
        let text = bad.repeat(count) + &good;
        let found = parsed("hermes", &text, "stop");
        assert_eq!(found.calls.len(), calls, "{count}");
        assert_eq!(
            found.content,
            if calls == 0 { text } else { bad.repeat(count) }
        );
    }
}
