//! Rows of Anthropic's Messages.

use super::answer::{Answer, Frame};
use super::ask::Ask;
use super::row::{Row, always, row};
use super::verdict::Verdict;
use crate::tree::{Members, Value};
use std::collections::BTreeMap;

const SDK: &str = "messages 4; Anthropic's SDKs";

/// Rows of Messages.
pub(super) const ROWS: &[Row] = &[
    always("messages-stream-status", Ask::MessagesStream, "a stream answers 200", SDK, Answer::succeeds),
    always(
        "messages-stream-end",
        Ask::MessagesStream,
        "the stream ends by itself, and HTTP says so",
        "messages 7.2",
        Answer::ends,
    ),
    row(
        "messages-stream-content-type",
        Ask::MessagesStream,
        "the content type is text/event-stream",
        SDK,
        Answer::is_stream,
    ),
    row(
        "messages-stream-framing",
        Ask::MessagesStream,
        "the data of each event is one JSON object",
        SDK,
        framing,
    ),
    row("messages-stream-names", Ask::MessagesStream, "the name of each event is its type", SDK, names),
    row(
        "messages-stream-start",
        Ask::MessagesStream,
        "message_start comes first and once, with an empty message",
        SDK,
        start,
    ),
    row(
        "messages-stream-blocks",
        Ask::MessagesStream,
        "blocks count from 0, one is open at a time, and deltas belong to it",
        "messages 4.2",
        blocks,
    ),
    row(
        "messages-stream-stop-reason",
        Ask::MessagesStream,
        "message_delta comes once, with a stop_reason and output_tokens",
        "messages 4.5, 4.6",
        stop_reason,
    ),
    row("messages-stream-stop", Ask::MessagesStream, "message_stop comes once, and last", "messages 4", stop),
    always(
        "messages-tool-status",
        Ask::MessagesTool,
        "a stream with a tool answers 200",
        SDK,
        Answer::succeeds,
    ),
    always(
        "messages-tool-end",
        Ask::MessagesTool,
        "the stream ends by itself, and HTTP says so",
        "messages 7.2",
        Answer::ends,
    ),
    row(
        "messages-tool-blocks",
        Ask::MessagesTool,
        "blocks count from 0, one is open at a time, and deltas belong to it",
        "messages 4.2",
        blocks,
    ),
    row(
        "messages-tool-calls",
        Ask::MessagesTool,
        "each tool_use begins with an id, a name and an empty input, and its pieces are one JSON object",
        "messages 4.4",
        calls,
    ),
    row(
        "messages-tool-stop-reason",
        Ask::MessagesTool,
        "the stop_reason behind a tool_use is tool_use",
        "messages 4.5",
        call_stop_reason,
    ),
    always("messages-whole-status", Ask::MessagesWhole, "a whole message answers 200", SDK, Answer::succeeds),
    always("messages-whole-end", Ask::MessagesWhole, "the body is complete", "HTTP", Answer::ends),
    row(
        "messages-whole-object",
        Ask::MessagesWhole,
        "the message has id, type, role, model, content and the key stop_sequence",
        SDK,
        object,
    ),
    row(
        "messages-whole-content",
        Ask::MessagesWhole,
        "each block has a type, and each text block its text",
        SDK,
        content,
    ),
    row(
        "messages-whole-stop-reason",
        Ask::MessagesWhole,
        "the stop_reason is a known one",
        "messages 4.5",
        whole_stop_reason,
    ),
    row(
        "messages-whole-usage",
        Ask::MessagesWhole,
        "usage has input_tokens and output_tokens",
        "messages 4.6",
        usage,
    ),
    always(
        "messages-tool-whole-status",
        Ask::MessagesToolWhole,
        "a whole message with a tool answers 200",
        SDK,
        Answer::succeeds,
    ),
    always("messages-tool-whole-end", Ask::MessagesToolWhole, "the body is complete", "HTTP", Answer::ends),
    row(
        "messages-tool-whole-calls",
        Ask::MessagesToolWhole,
        "each tool_use has an id, a name and an input that is an object",
        "messages 5",
        whole_calls,
    ),
    row(
        "messages-tool-whole-stop-reason",
        Ask::MessagesToolWhole,
        "the stop_reason beside a tool_use is tool_use",
        "messages 4.5",
        whole_call_stop_reason,
    ),
];

const STOP_REASONS: [&str; 7] = [
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
];

fn framing(answer: &Answer) -> Verdict {
    match answer.frames.iter().find(|frame| frame.is_done()) {
        Some(frame) => Verdict::fail(&frame.raw),
        None => answer.is_framed(),
    }
}

fn names(answer: &Answer) -> Verdict {
    answer.none(|frame| frame.name != frame.text("/type"))
}

/// Returns the number of events of a type.
fn count(answer: &Answer, kind: &str) -> usize {
    answer.chunks().filter(|frame| frame.text("/type") == kind).count()
}

fn start(answer: &Answer) -> Verdict {
    let Some(first) = answer.chunks().next() else { return Verdict::fail("") };
    let empty = first.json.at("/message/content").and_then(Value::as_list).is_some_and(<[Value]>::is_empty);
    let holds = first.text("/type") == "message_start"
        && count(answer, "message_start") == 1
        && first.text("/message/role") == "assistant"
        && !first.text("/message/id").is_empty()
        && empty
        && first.json.at("/message/usage/input_tokens").is_some_and(Value::is_whole);
    Verdict::check(holds, &first.raw)
}

fn blocks(answer: &Answer) -> Verdict {
    let (mut next, mut open) = (0, None);
    let verdict = answer.none(|frame| {
        let index = frame.json.get("index").and_then(Value::as_whole);
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
        Verdict::Pass if open.is_some() => Verdict::fail("a block is open at the end of the stream"),
        verdict => verdict,
    }
}

fn stop_reason(answer: &Answer) -> Verdict {
    let delta = answer.chunks().find(|frame| frame.text("/type") == "message_delta");
    let Some(delta) = delta else { return Verdict::fail("there is no message_delta") };
    let holds = count(answer, "message_delta") == 1
        && !delta.text("/delta/stop_reason").is_empty()
        && delta.json.at("/usage/output_tokens").is_some_and(Value::is_whole);
    Verdict::check(holds, &delta.raw)
}

fn stop(answer: &Answer) -> Verdict {
    let last = answer.frames.last();
    let holds = last.is_some_and(|last: &Frame| last.text("/type") == "message_stop");
    Verdict::check(holds && count(answer, "message_stop") == 1, last.map_or("", |last| &last.raw))
}

/// Returns a skip if the model called no function.
fn no_call() -> Verdict {
    Verdict::Skipped("the model called no function".to_owned())
}

fn calls(answer: &Answer) -> Verdict {
    let cut = answer.chunks().any(|frame| frame.text("/delta/stop_reason") == "max_tokens");
    let mut arguments: BTreeMap<u64, String> = BTreeMap::new();
    let headers = answer.none(|frame| {
        let index = frame.json.get("index").and_then(Value::as_whole).unwrap_or(u64::MAX);
        match (frame.text("/type"), frame.text("/content_block/type")) {
            ("content_block_start", "tool_use") => {
                arguments.insert(index, String::new());
                let input = frame.json.at("/content_block/input");
                !is_call(frame.json.member("content_block"))
                    || input != Some(&Value::Object(Members::default()))
            }
            ("content_block_delta", _) => {
                let Some(text) = arguments.get_mut(&index) else { return false };
                text.push_str(frame.text("/delta/partial_json"));
                frame.text("/delta/type") != "input_json_delta"
            }
            _ => false,
        }
    });
    // No piece at all means no arguments.
    let broken = arguments.values().find(|text| !text.is_empty() && !Value::read(text).is_object());
    match (headers, broken) {
        (Verdict::Pass, _) if arguments.is_empty() => no_call(),
        (Verdict::Pass, Some(text)) if !cut => Verdict::fail(text),
        (verdict, _) => verdict,
    }
}

fn call_stop_reason(answer: &Answer) -> Verdict {
    if answer.chunks().all(|frame| frame.text("/content_block/type") != "tool_use") {
        return no_call();
    }
    answer.none(|frame| !matches!(frame.text("/delta/stop_reason"), "" | "tool_use" | "max_tokens"))
}

/// Returns true if a block has what a call needs.
fn is_call(block: &Value) -> bool {
    !block.text("/id").is_empty()
        && !block.text("/name").is_empty()
        && block.get("input").is_some_and(Value::is_object)
}

/// Returns the blocks of a whole message.
fn whole_blocks(answer: &Answer) -> impl Iterator<Item = &Value> {
    answer.whole.get("content").and_then(Value::as_list).into_iter().flatten()
}

fn object(answer: &Answer) -> Verdict {
    let whole = &answer.whole;
    let holds = whole.text("/type") == "message"
        && whole.text("/role") == "assistant"
        && !whole.text("/id").is_empty()
        && !whole.text("/model").is_empty()
        && whole.get("content").is_some_and(Value::is_list)
        && whole.get("stop_sequence").is_some();
    Verdict::check(holds, &answer.beginning())
}

fn content(answer: &Answer) -> Verdict {
    let holds = whole_blocks(answer).all(|block| match block.text("/type") {
        "" => false,
        "text" => block.get("text").is_some_and(Value::is_text),
        _ => true,
    });
    Verdict::check(holds, &answer.raw)
}

fn whole_stop_reason(answer: &Answer) -> Verdict {
    Verdict::check(STOP_REASONS.contains(&answer.whole.text("/stop_reason")), &answer.raw)
}

fn usage(answer: &Answer) -> Verdict {
    let is_counted = |key| answer.whole.member("usage").get(key).is_some_and(Value::is_whole);
    Verdict::check(is_counted("input_tokens") && is_counted("output_tokens"), &answer.raw)
}

/// Judges a whole answer with calls; skips if there are none.
fn with_whole_calls(answer: &Answer, holds: impl FnOnce(&[&Value]) -> bool) -> Verdict {
    let calls: Vec<_> = whole_blocks(answer).filter(|block| block.text("/type") == "tool_use").collect();
    if calls.is_empty() { no_call() } else { Verdict::check(holds(&calls), &answer.raw) }
}

fn whole_calls(answer: &Answer) -> Verdict {
    with_whole_calls(answer, |calls| calls.iter().all(|call| is_call(call)))
}

fn whole_call_stop_reason(answer: &Answer) -> Verdict {
    with_whole_calls(answer, |_| matches!(answer.whole.text("/stop_reason"), "tool_use" | "max_tokens"))
}
