//! Rows of Anthropic's Messages.

use super::answer::{Answer, Frame};
use super::ask::Ask;
use super::row::{Row, always, row};
use super::verdict::Verdict;
use crate::tree::Value;

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
