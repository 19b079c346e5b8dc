//! Reasoning between tags, in every mode, against an obvious reading of the whole text.

use crate::cases::Case;
use crate::{cut, said, stream, whole};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::json;

const START: &str = "<think>";
const END: &str = "</think>";

/// Reasoning and content of a text.
fn reading(mode: &str, trim: bool, tool_start: &str, text: &str) -> (String, String) {
    let begun = text.trim_start();
    let (mut reasoning, mut content) = (String::new(), String::new());
    let mut rest = match mode {
        "auto" if !begun.starts_with(START) => return (reasoning, text.to_owned()),
        "anywhere" => {
            let Some((before, rest)) = text.split_once(START) else { return (reasoning, text.to_owned()) };
            content += before;
            rest
        }
        _ => begun.strip_prefix(START).unwrap_or(text),
    };
    loop {
        let tool = Some(tool_start).filter(|tool| !tool.is_empty()).and_then(|tool| rest.find(tool));
        let (inner, behind) = match (rest.find(END), tool) {
            (Some(end), tool) if tool.is_none_or(|tool| end < tool) => {
                (&rest[..end], &rest[end + END.len()..])
            }
            (_, Some(tool)) => rest.split_at(tool),
            _ => (rest, ""),
        };
        reasoning += if trim { inner.trim() } else { inner };
        let next = if mode == "anywhere" { behind.split_once(START) } else { None };
        let answer = next.map_or(behind, |(answer, _)| answer);
        content += if trim { answer.trim_start() } else { answer };
        match next {
            Some((_, behind)) => rest = behind,
            None => return (reasoning, content),
        }
    }
}

fn text() -> impl Strategy<Value = String> {
    let parts =
        ["<think>", "</think>", "<tool_call>", "<th", "ink>", "</", "<", "a", "é", " ", "\n", "b c", "<tool"];
    let begins = select(vec!["", "<think>", " \n<think>", "x", "\n"]);
    (begins, prop::collection::vec(select(parts.to_vec()), 0..14))
        .prop_map(|(begin, parts)| begin.to_owned() + &parts.concat())
}

proptest! {
    #![proptest_config(crate::seeded::seeded(512))]

    #[test]
    fn reasoning_stands_between_tags(
        mode in select(vec!["auto", "forced", "anywhere"]),
        trim in any::<bool>(),
        tool_start in select(vec!["", "<tool_call>"]),
        text in text(),
        finish in select(vec!["stop", "length"]),
        places in prop::collection::vec(any::<Index>(), 0..30),
    ) {
        let options = json!({"think": {"mode": mode, "trim": trim, "tool_start": tool_start}});
        let expected = reading(mode, trim, tool_start, &text);
        for case in [stream("off", &cut(&text, &places), finish), whole("off", &text, finish)] {
            let said = said(&Case { options: options.clone(), ..case });
            prop_assert_eq!((said.reasoning, said.content), expected.clone(), "{:?} as {}", text, mode);
            prop_assert_eq!(said.finish.as_str(), finish);
        }
    }
}

/// Of a whole answer the end of reasoning is seen before its beginning must be known.
#[test]
fn a_block_that_the_template_opened() {
    let text = "Hm\n</think>\n\nYes</think>";
    let unopened = ("Hm\n".to_owned(), "\n\nYes</think>".to_owned());
    let plain = (String::new(), text.to_owned());
    for (parser, model, streams, expected) in [
        ("auto", "deepseek-ai/DeepSeek-R1", false, &unopened),
        ("auto", "deepseek-ai/DeepSeek-V3.1", false, &unopened),
        ("auto", "Qwen/Qwen3-8B", false, &plain),
        // In a stream it would be too late, unless somebody has said so.
        ("auto", "deepseek-ai/DeepSeek-R1", true, &plain),
        ("deepseek_r1", "m", true, &unopened),
        ("deepseek_r1", "m", false, &unopened),
        ("deepseek_v31", "m", false, &unopened),
    ] {
        let mut case = if streams { stream(parser, &[text], "stop") } else { whole(parser, text, "stop") };
        case.request["model"] = model.into();
        let said = said(&case);
        assert_eq!(&(said.reasoning, said.content), expected, "{parser} {model} {streams}");
    }
    for text in ["a <think> b</think>", "no end"] {
        let mut case = whole("auto", text, "stop");
        case.request["model"] = "DeepSeek-R1".into();
        assert_eq!(said(&case).content, text);
    }
}

/// A model that is told not to reason begins with its answer.
#[test]
fn a_model_that_does_not_reason() {
    for (key, value) in [
        ("chat_template_kwargs", json!({"enable_thinking": false})),
        ("chat_template_kwargs", json!({"thinking": false})),
        ("reasoning_effort", json!("none")),
    ] {
        for mut case in [stream("qwen3_5", &["Yes"], "stop"), whole("qwen3_5", "Yes", "stop")] {
            assert_eq!(said(&case).reasoning, "Yes", "the template has opened the block");
            case.request[key] = value.clone();
            let said = said(&case);
            assert_eq!((said.reasoning.as_str(), said.content.as_str()), ("", "Yes"), "{key}");
        }
    }
}

/// What the option says counts, whatever the family.
#[test]
fn the_option_beats_the_family() {
    let case = stream("qwen3", &["[T]a[/T]b"], "stop");
    let think = json!({"mode": "auto", "start": "[T]", "end": "[/T]", "tool_start": null});
    let options = json!({"parser": "qwen3", "think": think});
    let said = said(&Case { options, ..case });
    assert_eq!((said.reasoning.as_str(), said.content.as_str()), ("a", "b"));
}

/// Tags may hold what JSON escapes, and an engine may cut them anywhere, in front of other text too.
#[test]
fn tags_of_letters_that_json_escapes() {
    let text = "one two three <t>\na\n</t>b";
    let letters: Vec<_> = text.split_inclusive(|_: char| true).collect();
    let lines: Vec<_> = ["one ", "two ", "three ", "<t>\n", "a", "\n</t>", "b"].to_vec();
    for pieces in [vec![text], letters, lines] {
        let case = stream("off", &pieces, "stop");
        let think = json!({"mode": "anywhere", "start": "<t>\n", "end": "\n</t>"});
        let said = said(&Case { options: json!({"think": think}), ..case });
        assert_eq!((said.reasoning.as_str(), said.content.as_str()), ("a", "one two three b"), "{pieces:?}");
    }
}
