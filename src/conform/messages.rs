//! Rows of Anthropic's Messages.

use super::answer::{Answer, Frame};
use super::requests::SuiteRequest;
use super::row::{Row, rows};
use super::verdict::Verdict;
use crate::tree::{Value, View, read};
use std::collections::BTreeMap;

/// Shapes of a whole message.
const OBJECT: &str =
    "/type =message, /role =assistant, /id text, /model text, /content list, /stop_sequence there";
const SDK: &str = "messages 4; Anthropic's SDKs";

/// Rows of Messages.
pub(super) const ROWS: &[Row] = rows! {
    MessagesStream "messages-stream" {
        "status", "a stream answers 200", SDK, Answer::succeeds;
        "end", "the stream ends by itself, and HTTP says so", "messages 7.2", Answer::ends;
        "content-type", "the content type is text/event-stream", SDK, Answer::is_stream;
        "framing", "the data of each event is one JSON object", SDK, Answer::is_framed_as_events;
        "names", "the name of each event is its type", SDK, Answer::is_named;
        "start", "message_start comes first and once, with an empty message", SDK, start;
        "blocks", "blocks count from 0, one is open at a time, and deltas belong to it",
            "messages 4.2", blocks;
        "stop-reason", "message_delta comes once, with a stop_reason and output_tokens",
            "messages 4.5, 4.6", stop_reason;
        "stop", "message_stop comes once, and last", "messages 4", stop;
    }
    MessagesTool "messages-tool" {
        "status", "a stream with a tool answers 200", SDK, Answer::succeeds;
        "end", "the stream ends by itself, and HTTP says so", "messages 7.2", Answer::ends;
        "blocks", "blocks count from 0, one is open at a time, and deltas belong to it",
            "messages 4.2", blocks;
        "calls", "each tool_use begins with an id, a name and an empty input, and its pieces are one JSON object",
            "messages 4.4", calls;
        "stop-reason", "the stop_reason behind a tool_use is tool_use", "messages 4.5", call_stop_reason;
    }
    MessagesWhole "messages-whole" {
        "status", "a whole message answers 200", SDK, Answer::succeeds;
        "end", "the body is complete", "HTTP", Answer::ends;
        "object", "the message has id, type, role, model, content and the key stop_sequence", SDK,
            |answer| Verdict::check(answer.whole.fits(OBJECT), &answer.beginning());
        "content", "each block has a type, and each text block its text", SDK, content;
        "stop-reason", "the stop_reason is a known one", "messages 4.5",
            |answer| Verdict::check(STOP_REASONS.contains(&answer.whole.text("/stop_reason")), &answer.raw);
        "usage", "usage has input_tokens and output_tokens", "messages 4.6",
            |answer| answer.fits("/usage/input_tokens whole, /usage/output_tokens whole");
    }
    MessagesToolWhole "messages-tool-whole" {
        "status", "a whole message with a tool answers 200", SDK, Answer::succeeds;
        "end", "the body is complete", "HTTP", Answer::ends;
        "calls", "each tool_use has an id, a name and an input that is an object", "messages 5",
            |answer| with_whole_calls(answer, |calls| calls.iter().all(|call| is_call(call)));
        "stop-reason", "the stop_reason beside a tool_use is tool_use",
            "messages 4.5", whole_call_stop_reason;
    }
};

const STOP_REASONS: [&str; 7] = [
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
];

/// Returns the number of events of a type.
fn count(answer: &Answer, kind: &str) -> usize {
    answer
        .chunks()
        .filter(|frame| frame.text("/type") == kind)
        .count()
}

fn start(answer: &Answer) -> Verdict {
    let Some(first) = answer.chunks().next() else {
        return Verdict::fail("");
    };
    let shapes = "/type =message_start, /message/role =assistant, /message/id text, /message/content empty, \
                  /message/usage/input_tokens whole";
    Verdict::check(
        first.json.fits(shapes) && count(answer, "message_start") == 1,
        &first.raw,
    )
}

fn blocks(answer: &Answer) -> Verdict {
    let (mut next, mut open) = (0, None);
    let verdict = answer.none(|frame| {
        let index = frame.json.member("index").as_u64();
        match frame.text("/type") {
            "content_block_start" => {
                let good = open.is_none() && index == Some(next);
                (open, next) = (index, next + 1);
                !good
            }
            "content_block_delta" => open.is_none() || index != open,
            "content_block_stop" => open.take() != index || index.is_none(),
            _ => false,
        }
    });
    match verdict {
        Verdict::Pass if open.is_some() => {
            Verdict::fail("a block is open at the end of the stream")
        }
        verdict => verdict,
    }
}

fn stop_reason(answer: &Answer) -> Verdict {
    let delta = answer
        .chunks()
        .find(|frame| frame.text("/type") == "message_delta");
    let Some(delta) = delta else {
        return Verdict::fail("there is no message_delta");
    };
    let fits = delta
        .json
        .fits("/delta/stop_reason text, /usage/output_tokens whole");
    Verdict::check(fits && count(answer, "message_delta") == 1, &delta.raw)
}

fn stop(answer: &Answer) -> Verdict {
    let last = answer.frames.last();
    let holds = last.is_some_and(|last: &Frame| last.text("/type") == "message_stop");
    Verdict::check(
        holds && count(answer, "message_stop") == 1,
        last.map_or("", |last| &last.raw),
    )
}

/// Returns a skip if the model called no function.
fn no_call() -> Verdict {
    Verdict::Skipped("the model called no function".to_owned())
}

fn calls(answer: &Answer) -> Verdict {
    let cut = answer
        .chunks()
        .any(|frame| frame.text("/delta/stop_reason") == "max_tokens");
    let mut arguments: BTreeMap<u64, String> = BTreeMap::new();
    let headers = answer.none(|frame| {
        let index = frame.json.member("index").as_u64().unwrap_or(u64::MAX);
        match (frame.text("/type"), frame.text("/content_block/type")) {
            ("content_block_start", "tool_use") => {
                arguments.insert(index, String::new());
                !is_call(frame.json.member("content_block"))
                    || frame
                        .json
                        .member("content_block")
                        .member("input")
                        .as_object()
                        .is_none_or(|input| !input.is_empty())
            }
            ("content_block_delta", _) => {
                let Some(text) = arguments.get_mut(&index) else {
                    return false;
                };
                text.push_str(frame.text("/delta/partial_json"));
                frame.text("/delta/type") != "input_json_delta"
            }
            _ => false,
        }
    });
    // No piece at all means no arguments.
    let broken = arguments
        .values()
        .find(|text| !text.is_empty() && !read(text).is_object());
    match (headers, broken) {
        (Verdict::Pass, _) if arguments.is_empty() => no_call(),
        (Verdict::Pass, Some(text)) if !cut => Verdict::fail(text),
        (verdict, _) => verdict,
    }
}

fn call_stop_reason(answer: &Answer) -> Verdict {
    if answer
        .chunks()
        .all(|frame| frame.text("/content_block/type") != "tool_use")
    {
        return no_call();
    }
    answer.none(|frame| {
        !matches!(
            frame.text("/delta/stop_reason"),
            "" | "tool_use" | "max_tokens"
        )
    })
}

/// Returns true if a block has what a call needs.
fn is_call(block: &Value) -> bool {
    block.fits("/id text, /name text, /input object")
}

/// Returns the blocks of a whole message.
fn whole_blocks(answer: &Answer) -> impl Iterator<Item = &Value> {
    answer.whole.list("/content").iter()
}

fn content(answer: &Answer) -> Verdict {
    let holds = whole_blocks(answer).all(|block| match block.text("/type") {
        "" => false,
        "text" => block.get("text").is_some_and(Value::is_string),
        _ => true,
    });
    Verdict::check(holds, &answer.raw)
}

/// Judges a whole answer with calls; skips if there are none.
fn with_whole_calls(answer: &Answer, holds: impl FnOnce(&[&Value]) -> bool) -> Verdict {
    let calls: Vec<_> = whole_blocks(answer)
        .filter(|block| block.text("/type") == "tool_use")
        .collect();
    if calls.is_empty() {
        no_call()
    } else {
        Verdict::check(holds(&calls), &answer.raw)
    }
}

fn whole_call_stop_reason(answer: &Answer) -> Verdict {
    with_whole_calls(answer, |_| {
        matches!(answer.whole.text("/stop_reason"), "tool_use" | "max_tokens")
    })
}
