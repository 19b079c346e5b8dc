//! Random texts of models that write calls between `<tool_call>` and `</tool_call>`: whole and broken markup in prose and in
//! code. The library and the slow reader of texts get the same of them.

use super::{AnswerParts, cut, said, stream, tools, whole};
use crate::slow::text::{Arguments, Tool, read};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

/// Text of an answer, and how it comes.
#[derive(Clone, Debug)]
pub struct Mixed {
    parser: &'static str,
    text: String,
    finish: &'static str,
    places: Vec<Index>,
}

/// Returns the tools of these tests, as the slow reader knows them.
fn known() -> Vec<Tool> {
    let all = tools();
    let typed = |(key, schema): (&String, &Value)| {
        (key.clone(), schema["type"].as_str().unwrap().to_owned())
    };
    let tool = |tool: &Value| Tool {
        name: tool["function"]["name"].as_str().unwrap().to_owned(),
        types: tool["function"]["parameters"]["properties"]
            .as_object()
            .unwrap()
            .iter()
            .map(typed)
            .collect(),
    };
    all.as_array().unwrap().iter().map(tool).collect()
}

/// Text that a value or a code span may hold.
fn quoted() -> impl Strategy<Value = String> {
    let part = select(vec![
        "a",
        " ",
        "\n",
        "é",
        "<",
        "</",
        "</parameter>.",
        "</parameter>\n</function>.",
        "</function>.",
        "</tool_call>.",
        "<think>",
        "</think>",
        "<tool_call>",
        "<function=f>.",
        "<parameter=x>.",
        "\"",
        "\\",
        "{",
        "}",
        "<|im_end|>",
        "😀",
    ]);
    prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

fn name() -> impl Strategy<Value = &'static str> {
    select(vec!["f", "g", "a.b-c", "get_weather", "unknown"])
}

fn in_json() -> impl Strategy<Value = String> {
    (name(), quoted(), any::<i8>(), any::<bool>()).prop_map(|(name, text, number, is_first)| {
        // In reasoning, an end tag before the name comes before what tells the call.
        let text = if is_first {
            text
        } else {
            text.replace("</think>", "")
        };
        let arguments = json!({"text": text, "number": number});
        let object = match is_first {
            true => format!("{{\"name\": \"{name}\", \"arguments\": {arguments}}}"),
            false => format!("{{\"arguments\": {arguments}, \"name\": \"{name}\"}}"),
        };
        format!("<tool_call>\n{object}\n</tool_call>")
    })
}

/// Generates a call in tags, without `<tool_call>` around it if `bare`.
fn in_tags(bare: bool) -> impl Strategy<Value = String> {
    let value = prop_oneof![
        quoted().prop_map(|text| ("text", text)),
        any::<i8>().prop_map(|number| ("number", number.to_string())),
        Just(("number", "many".to_owned())),
        select(vec!["true", "false"]).prop_map(|yes| ("yes", yes.to_owned())),
        prop::collection::vec(quoted(), 0..3)
            .prop_map(|list| ("list", Value::from(list).to_string())),
        quoted().prop_map(|text| ("thing", json!({"x": text}).to_string())),
    ];
    (name(), prop::collection::vec(value, 0..3)).prop_map(move |(name, mut values)| {
        values.sort();
        values.dedup_by(|one, other| one.0 == other.0);
        let values: String = values
            .iter()
            .map(|(key, value)| format!("<parameter={key}>\n{value}\n</parameter>\n"))
            .collect();
        let (start, end) = if bare {
            ("", "")
        } else {
            ("<tool_call>\n", "\n</tool_call>")
        };
        format!("{start}<function={name}>\n{values}</function>{end}")
    })
}

/// Generates a call whose values have no closing tags: the next parameter ends the first, the next call in tags the last.
fn unclosed() -> impl Strategy<Value = String> {
    let text = select(vec![
        "a",
        "a < b",
        "</b>",
        "a\n\nb",
        "the <parameter=number> is",
    ]);
    (any::<i8>(), text, any::<bool>()).prop_map(|(number, text, is_first)| {
        let (number, text) = (
            format!("<parameter=number>\n{number}\n"),
            format!("<parameter=text>\n{text}\n"),
        );
        let values = if is_first {
            number + &text
        } else {
            text + &number
        };
        let next = "<tool_call>\n<function=g>\n</function>\n</tool_call>";
        format!("<tool_call>\n<function=f>\n{values}</function>\n</tool_call>\n{next}")
    })
}

fn call() -> impl Strategy<Value = String> {
    prop_oneof![in_json(), in_tags(false)]
}

/// Returns text in Markdown code, a span in one line: the library ends spans at the end of their line.
fn code(text: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (any::<bool>(), text).prop_map(|(is_span, text)| match is_span {
        true => format!("`{}`", text.replace('\n', " ")),
        false => format!("\n```\n{text}\n```\n"),
    })
}

/// Generates words and marks. A start tag is after a word, so that it opens no block after a call.
fn words() -> impl Strategy<Value = String> {
    let words = select(vec![
        "a",
        " ",
        "\n",
        "Let me see. ",
        "1 < 2",
        "é",
        "x = {1}",
        "\n\n",
        "The tag <think> ",
    ]);
    let marks = select(vec![
        "<tool_call>",
        "</tool_call>",
        "</think>",
        "<|im_end|>",
        "<function= is",
        "<function=f> is",
        "</function>",
        "</parameter>",
        "<tool_",
        "</thi",
        "<|im",
    ]);
    prop_oneof![4 => words, 3 => marks].prop_map(ToOwned::to_owned)
}

/// Generates a call that the end of the text cuts, but not in a closing tag of a value: such a tag comes out in the value.
fn cut_call() -> impl Strategy<Value = String> {
    (call(), any::<Index>()).prop_map(|(call, end)| {
        // Where the end of a call is cut, what tags its values hold is not specified.
        let mut call = call
            .replace("<parameter=x>.", "")
            .replace("</parameter>\n</function>.", "");
        call.truncate(call.floor_char_boundary(end.index(call.len() + 1)));
        let close = "\n</parameter>";
        while let Some(cut) = (2..close.len()).find(|cut| call.ends_with(&close[..*cut])) {
            call.truncate(call.len() - cut);
        }
        call
    })
}

/// Generates a block of reasoning: its start, what is in it, its end.
fn block(opened: bool) -> impl Strategy<Value = String> {
    let starts = match opened {
        true => vec!["", "<think>", "\n<think>\n"],
        false => vec!["<think>", "\n<think>\n", "<think> <think>"],
    };
    let named = select(vec!["a", "<think>", "</tool_call>"]).prop_map(ToOwned::to_owned);
    // An end tag ends the block in code, too.
    let quoted = code(call()).prop_map(|code| code.replace("</think>", ""));
    let thought = prop_oneof![6 => words(), 1 => call(), 1 => code(named), 1 => quoted];
    let ends = select(vec!["</think>", "\n</think>\n", "</think></think>"]);
    let thoughts = prop::collection::vec(thought, 0..4);
    (select(starts), thoughts, ends)
        .prop_map(|(start, thoughts, end)| format!("{start}{}{end}", thoughts.concat()))
}

/// Generates what follows a block: any pieces, of which a limit may have cut the last one.
fn answer() -> impl Strategy<Value = (String, &'static str)> {
    let block = prop::collection::vec(words(), 0..3)
        .prop_map(|words| format!("\n<think>{}</think>", words.concat()));
    let piece = prop_oneof![
        6 => words(),
        4 => call(),
        // A later block holds no calls: the library reads none there.
        1 => (call(), block).prop_map(|(call, block)| call + &block),
        1 => unclosed(),
        // After a bare call, a beginning of a mark at the end of the text is lost.
        1 => in_tags(true).prop_map(|call| format!("so {call} so")),
        1 => code(quoted().prop_map(|text| text + ".")),
        1 => code(call()).prop_map(|code| code + " so\n"),
        1 => (code(call()), call()).prop_map(|(code, call)| code + " " + &call),
    ];
    let last = prop_oneof![
        2 => Just((String::new(), "stop")),
        1 => code(call()).prop_map(|code| (code, "stop")),
        2 => cut_call().prop_map(|call| {
            // With `stop`, a number that is none and has no end hides the cut.
            let hides = call.contains("<parameter=number>");
            (call, if hides { "length" } else { "stop" })
        }),
    ];
    let pieces = prop::collection::vec(piece, 0..6);
    (pieces, last).prop_map(|(pieces, (last, finish))| (pieces.concat() + &last, finish))
}

/// Generates a text of any pieces. Where the library and the specification differ, or the latter is silent, the generator
/// says so.
pub fn mixed() -> impl Strategy<Value = Mixed> {
    let places = || prop::collection::vec(any::<Index>(), 0..30);
    let unopened = (
        select(vec!["qwen3", "hermes", "auto"]),
        prop::option::of(block(false)),
    );
    let unopened = unopened.prop_map(|(parser, block)| (parser, block.unwrap_or_default()));
    let opened = block(true).prop_map(|block| ("qwen3_5", block));
    // A block that is not closed has no more than a call after it, and no end of a turn in it.
    let endless = (block(true), cut_call()).prop_map(|(block, call)| {
        let text = format!("{}hm{call}", block.replace("</think>", "")).replace("<|im_end|>", "");
        ("qwen3_5", text, "length")
    });
    let begun = (prop_oneof![unopened, opened], answer());
    let begun =
        begun.prop_map(|((parser, block), (answer, finish))| (parser, block + &answer, finish));
    let text = prop_oneof![9 => begun, 1 => endless];
    (text, places()).prop_map(|((parser, text, finish), places)| Mixed {
        parser,
        text,
        finish,
        places,
    })
}

/// Checks that the library gets of a text what the slow reader does; `Err`: what they got.
pub fn check(mixed: &Mixed) -> Result<(), String> {
    let Mixed {
        parser,
        text,
        finish,
        places,
    } = mixed;
    let wanted = read(text, &known(), *parser == "qwen3_5");
    let cases = [
        whole(parser, text, finish),
        stream(parser, &[text], finish),
        stream(parser, &cut(text, places), finish),
    ];
    for case in cases {
        let AnswerParts {
            reasoning,
            content,
            calls,
            finish: end,
        } = said(&case);
        let argued = |(name, text): (String, String)| match serde_json::from_str(&text) {
            Ok(value) => (name, Arguments::Complete(value)),
            Err(_) => (name, Arguments::Open(text)),
        };
        let calls: Vec<_> = calls.into_iter().map(argued).collect();
        let is_open = wanted
            .calls
            .iter()
            .any(|(_, arguments)| matches!(arguments, Arguments::Open(_)));
        let due = match (*finish, is_open) {
            ("stop", false) if !calls.is_empty() => "tool_calls",
            ("stop", false) => "stop",
            _ => "length",
        };
        let told = (reasoning.as_str(), content.as_str(), &calls, end.as_str());
        let expected = (
            wanted.reasoning.as_str(),
            wanted.content.as_str(),
            &wanted.calls,
            due,
        );
        if told != expected {
            return Err(format!(
                "{told:?}\ninstead of {expected:?}\n{parser}, stream {}: {text:?}",
                case.events
            ));
        }
    }
    Ok(())
}
