//! Valid lists of messages: exactly their texts and calls come out.

use super::{MARKERS, items, said, stream, whole};
use crate::cases::{Case, Cut};
use crate::seeded::seeded;
use proptest::prelude::*;
use proptest::sample::select;
use samewire::wire::Api;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Content,
    Call,
    Search,
}

#[derive(Clone, Debug)]
struct Message {
    kind: Kind,
    /// Header after the role.
    header: &'static str,
    name: &'static str,
    text: String,
    /// True if `<|start|>assistant` precedes the message in a place where it may be missing.
    started: bool,
}

impl Message {
    /// Returns the arguments of a call, with the empty object that those without any get.
    fn arguments(&self) -> String {
        let absent = if self.text.trim_matches([' ', '\t', '\r', '\n']).is_empty() {
            "{}"
        } else {
            ""
        };
        format!("{}{absent}", self.text)
    }

    /// Returns true if the text is a JSON value that is still open.
    fn is_open(&self) -> bool {
        let read = serde_json::from_str::<serde::de::IgnoredAny>(&self.text);
        self.arguments() == self.text && read.is_err_and(|error| error.is_eof())
    }

    /// Returns true for a call whose arguments are a JSON value that is still open.
    fn is_cut(&self) -> bool {
        self.kind == Kind::Call && self.is_open()
    }

    /// Returns the message as a client gets it: a call needs an object, except that one without a marker after it may be
    /// open. `marked`: a marker follows.
    fn judged(mut self, marked: bool) -> Self {
        let is_object =
            serde_json::from_str::<serde_json::Map<String, Value>>(&self.arguments()).is_ok();
        if self.kind == Kind::Call && !is_object && (marked || !self.is_open()) {
            let is_thought = self.header.contains("analysis");
            self.kind = if is_thought {
                Kind::Reasoning
            } else {
                Kind::Content
            };
        }
        self
    }
}

const NAME: [&str; 3] = ["f", "get_weather", "a.b"];

fn text() -> impl Strategy<Value = String> {
    let word = select(vec![
        "a",
        " ",
        "é",
        "<",
        "|",
        "<|",
        "<|en",
        "end|>",
        "🙂",
        "\n",
        "to=",
        "assistant",
        "\\",
        "\"",
        "analysis",
        "final",
        "{\"a\":",
        "1}",
        "\u{2028}",
        "words and more words",
    ]);
    let text = proptest::collection::vec(word, 0..8).prop_map(|words| words.concat());
    text.prop_filter("markers are none of the text's", |text| {
        MARKERS.iter().all(|one| !text.contains(one))
    })
}

fn message() -> impl Strategy<Value = Message> {
    let header = select(vec![
        (Kind::Reasoning, "<|channel|>analysis"),
        (Kind::Reasoning, "<|channel|>commentary to=python code"),
        (Kind::Reasoning, "<|channel|>analysis to=container.exec"),
        (Kind::Content, "<|channel|>final"),
        (Kind::Content, "<|channel|>final <|constrain|>json"),
        (Kind::Content, "<|channel|>commentary"),
        (
            Kind::Call,
            "<|channel|>commentary to=functions.NAME <|constrain|>json",
        ),
        (
            Kind::Call,
            "<|channel|>commentary to=functions.NAME<|constrain|>json",
        ),
        (Kind::Call, "<|channel|>analysis to=functions.NAME json"),
        (Kind::Call, "<|channel|>commentary functions.NAME json"),
        (Kind::Call, " to=functions.NAME<|channel|>commentary json"),
        (Kind::Search, "<|channel|>commentary to=browser.search code"),
    ]);
    (header, select(NAME.to_vec()), text(), any::<[bool; 2]>()).prop_map(
        |((kind, header), name, text, [started, has_object])| {
            let is_object = kind == Kind::Call && has_object;
            let text = if is_object {
                serde_json::json!({"a": text}).to_string()
            } else {
                text
            };
            Message {
                kind,
                header,
                name,
                text,
                started,
            }
        },
    )
}

/// Returns the text that a model writes.
fn written(messages: &[Message], stop: bool) -> String {
    let mut out = String::new();
    for (at, message) in messages.iter().enumerate() {
        if message.started {
            out.push_str("<|start|>assistant");
        }
        out.push_str(&message.header.replace("NAME", message.name));
        out.push_str("<|message|>");
        out.push_str(&message.text);
        if stop || at + 1 < messages.len() {
            out.push_str(match message.kind {
                Kind::Call | Kind::Search => "<|call|>",
                _ if at + 1 == messages.len() => "<|return|>",
                _ => "<|end|>",
            });
        }
    }
    out
}

/// Cuts a text into pieces of these numbers of characters.
fn pieces(text: &str, sizes: &[usize]) -> Vec<String> {
    let mut characters = text.chars();
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        let piece: String = characters.by_ref().take(*size).collect();
        if piece.is_empty() {
            break;
        }
        pieces.push(piece);
    }
    pieces
}

/// Returns the expected chat content: adjacent texts of a kind joined, each call with its arguments.
fn expected(messages: &[Message]) -> Vec<(char, String)> {
    let mut all: Vec<(char, String)> = Vec::new();
    // Empty objects come at the end of the answer.
    let mut absent = String::new();
    for message in messages {
        let kind = match message.kind {
            Kind::Reasoning | Kind::Search => 'r',
            Kind::Content => 'c',
            Kind::Call => {
                all.push(('f', message.name.to_owned()));
                absent += message
                    .arguments()
                    .strip_prefix(&message.text)
                    .unwrap_or_default();
                'a'
            }
        };
        add(&mut all, kind, &message.text);
    }
    add(&mut all, 'a', &absent);
    all
}

fn add(all: &mut Vec<(char, String)>, kind: char, text: &str) {
    match all.last_mut() {
        _ if text.is_empty() => {}
        Some((last, before)) if *last == kind && kind != 'f' => before.push_str(text),
        _ => all.push((kind, text.to_owned())),
    }
}

/// Joins adjacent sent texts of a kind.
fn merged(said: &[String]) -> Vec<(char, String)> {
    let mut all = Vec::new();
    for word in said {
        let (kind, text) = word.split_once(':').unwrap();
        add(&mut all, kind.chars().next().unwrap(), text);
    }
    all
}

/// Returns the expected items of Responses: one for each message with content.
fn expected_items(messages: &[Message], stop: bool) -> Vec<[String; 3]> {
    let item = |kind: &str, says: String| Some([kind.to_owned(), "completed".to_owned(), says]);
    let says = |message: &Message| match message.kind {
        Kind::Call if message.is_cut() => Some([
            "function_call".to_owned(),
            "incomplete".to_owned(),
            format!("{} {}", message.name, message.text),
        ]),
        Kind::Call => item(
            "function_call",
            format!("{} {}", message.name, message.arguments()),
        ),
        _ if message.text.is_empty() => None,
        Kind::Content => item("message", message.text.clone()),
        Kind::Reasoning => item("reasoning", message.text.clone()),
        Kind::Search => match serde_json::from_str::<Value>(&message.text) {
            Ok(Value::Object(members)) if members.contains_key("query") => {
                unreachable!("no text has one")
            }
            _ => item("reasoning", message.text.clone()),
        },
    };
    let mut all: Vec<_> = messages.iter().filter_map(says).collect();
    // A last message without a mark of its end is open.
    if let Some(last) = all.last_mut().filter(|_| ends_cut(messages) && !stop) {
        last[1] = "incomplete".to_owned();
    }
    all
}

/// Returns true if the arguments of the last call break off.
fn ends_cut(messages: &[Message]) -> bool {
    messages
        .iter()
        .rfind(|message| message.kind == Kind::Call)
        .is_some_and(Message::is_cut)
}

fn check(
    messages: &[Message],
    stop: bool,
    sizes: &[usize],
    reads: &[usize],
) -> Result<(), TestCaseError> {
    let text = written(messages, stop);
    let pieces = pieces(&text, sizes);
    let pieces: Vec<_> = pieces.iter().map(String::as_str).collect();
    let judged = messages.iter().enumerate();
    let judged =
        judged.map(|(at, message)| message.clone().judged(stop || at + 1 < messages.len()));
    let judged: Vec<_> = judged.collect();
    let messages = judged.as_slice();
    let called = messages.iter().any(|message| message.kind == Kind::Call);
    let chat = stream(Api::Chat, &pieces, "stop");
    let mut frames = said(&chat);
    let finish = match (ends_cut(messages), called) {
        (true, _) => "length",
        (false, true) => "tool_calls",
        (false, false) => "stop",
    };
    prop_assert_eq!(frames.pop().unwrap(), finish);
    prop_assert_eq!(merged(&frames), expected(messages), "{}", text);
    let answer = chat.run(&Cut::Whole);
    prop_assert_eq!(&chat.run(&Cut::Sizes(reads)), &answer);
    let content: String = frames
        .iter()
        .filter_map(|word| word.strip_prefix("c:"))
        .collect();
    let joins = MARKERS.iter().any(|marker| content.contains(marker));
    if !joins {
        prop_assert_eq!(
            &chat.fed_back(&answer.body).run(&Cut::Whole),
            &answer,
            "again"
        );
    }
    whole_agrees(&whole(Api::Chat, &text, "stop"), messages)?;
    let expected = expected_items(messages, stop);
    prop_assert_eq!(
        &items(&stream(Api::Responses, &pieces, "stop")),
        &expected,
        "{}",
        text
    );
    prop_assert_eq!(
        &items(&whole(Api::Responses, &text, "stop")),
        &expected,
        "{}",
        text
    );
    Ok(())
}

fn whole_agrees(case: &Case, messages: &[Message]) -> Result<(), TestCaseError> {
    let answer: Value = serde_json::from_str(&case.run(&Cut::Whole).body).unwrap();
    let message = &answer["choices"][0]["message"];
    let expected = expected(messages);
    let joined = |wanted: char| -> String {
        expected
            .iter()
            .filter(|(kind, _)| *kind == wanted)
            .map(|(_, text)| text.as_str())
            .collect()
    };
    prop_assert_eq!(
        message["reasoning_content"].as_str().unwrap_or_default(),
        joined('r')
    );
    prop_assert_eq!(message["content"].as_str().unwrap_or_default(), joined('c'));
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let calls: Vec<_> = calls.map(|call| call["function"].clone()).collect();
    let wanted = messages.iter().filter(|message| message.kind == Kind::Call);
    let wanted: Vec<_> = wanted
        .map(|call| serde_json::json!({"name": call.name, "arguments": call.arguments()}))
        .collect();
    prop_assert_eq!(calls, wanted);
    Ok(())
}

proptest! {
    #![proptest_config(seeded(1_500))]

    #[test]
    fn messages_come_out_as_they_were_written(
        mut messages in proptest::collection::vec(message(), 1..6),
        stop in any::<bool>(),
        sizes in proptest::collection::vec(1usize..12, 1..6),
        reads in proptest::collection::vec(1usize..90, 1..6),
    ) {
        // Only the first message may lack its role if the header has no marker at its beginning.
        for message in messages.iter_mut().skip(1) {
            message.started |= message.header.starts_with(' ');
        }
        check(&messages, stop, &sizes, &reads)?;
    }
}
