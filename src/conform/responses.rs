//! Rows of Responses: order and numbers of the events, and the object that they add up to.

use super::answer::{Answer, Frame};
use super::ask::Ask;
use super::chat::is_object;
use super::row::{Row, always, row};
use super::verdict::Verdict;
use crate::tree::Value;
use std::collections::BTreeMap;

const SCHEMA: &str = "openapi: ResponseStreamEvent; wire 4.6";
const OBJECT: &str = "openapi: Response; wire 4.4";

/// Rows of Responses.
pub(super) const ROWS: &[Row] = &[
    always("responses-stream-status", Ask::ResponsesStream, "a stream answers 200", SCHEMA, Answer::succeeds),
    always(
        "responses-stream-end",
        Ask::ResponsesStream,
        "the stream ends by itself, and HTTP says so",
        "wire 4.7",
        Answer::ends,
    ),
    row(
        "responses-stream-content-type",
        Ask::ResponsesStream,
        "the content type is text/event-stream",
        "wire 8.2",
        Answer::is_stream,
    ),
    row(
        "responses-stream-framing",
        Ask::ResponsesStream,
        "the data of each event is one JSON object",
        SCHEMA,
        framing,
    ),
    row("responses-stream-names", Ask::ResponsesStream, "the name of each event is its type", SCHEMA, names),
    row(
        "responses-stream-sequence",
        Ask::ResponsesStream,
        "sequence_number counts from 0 without gaps",
        SCHEMA,
        sequence,
    ),
    row(
        "responses-stream-start",
        Ask::ResponsesStream,
        "response.created comes first, then response.in_progress",
        "wire 4.6 rule 1; Codex",
        start,
    ),
    row(
        "responses-stream-id",
        Ask::ResponsesStream,
        "each response object has the same id",
        "wire 4.6 rule 1; Codex",
        same_id,
    ),
    row(
        "responses-stream-items",
        Ask::ResponsesStream,
        "items count from 0, and each is added once before its events",
        "wire 4.6 rule 2",
        items,
    ),
    row(
        "responses-stream-item-ids",
        Ask::ResponsesStream,
        "the id of an item is the same in all its events",
        "wire 4.6 rule 8",
        item_ids,
    ),
    row(
        "responses-stream-parts",
        Ask::ResponsesStream,
        "parts count from 0 in each item, and are added before their deltas",
        "wire 4.6 rules 3 to 5; openai-node",
        parts,
    ),
    row(
        "responses-stream-deltas",
        Ask::ResponsesStream,
        "the deltas add up to the text of the event that ends them",
        "wire 4.6; openai-node",
        deltas,
    ),
    row(
        "responses-stream-terminal",
        Ask::ResponsesStream,
        "one terminal event comes, and last",
        "wire 4.6 rule 9",
        terminal,
    ),
    row(
        "responses-stream-fold",
        Ask::ResponsesStream,
        "the finished items are the output of the final response",
        "wire 4.6 rule 9",
        fold,
    ),
    row(
        "responses-stream-usage",
        Ask::ResponsesStream,
        "the final response has usage that adds up",
        "openapi: ResponseUsage; Codex",
        stream_usage,
    ),
    always(
        "responses-tool-status",
        Ask::ResponsesTool,
        "a stream with a function answers 200",
        SCHEMA,
        Answer::succeeds,
    ),
    always(
        "responses-tool-end",
        Ask::ResponsesTool,
        "the stream ends by itself, and HTTP says so",
        "wire 4.7",
        Answer::ends,
    ),
    row(
        "responses-tool-sequence",
        Ask::ResponsesTool,
        "sequence_number counts from 0 without gaps",
        SCHEMA,
        sequence,
    ),
    row(
        "responses-tool-items",
        Ask::ResponsesTool,
        "items count from 0, and each is added once before its events",
        "wire 4.6 rule 2",
        items,
    ),
    row(
        "responses-tool-deltas",
        Ask::ResponsesTool,
        "the deltas add up to the arguments of the event that ends them",
        "wire 4.6 rule 6",
        deltas,
    ),
    row(
        "responses-tool-call",
        Ask::ResponsesTool,
        "a finished call has call_id, name and arguments that are a JSON object",
        "openapi: FunctionToolCall; Codex",
        call,
    ),
    row(
        "responses-tool-terminal",
        Ask::ResponsesTool,
        "one terminal event comes, and last",
        "wire 4.6 rule 9",
        terminal,
    ),
    row(
        "responses-tool-fold",
        Ask::ResponsesTool,
        "the finished items are the output of the final response",
        "wire 4.6 rule 9",
        fold,
    ),
    always(
        "responses-whole-status",
        Ask::ResponsesWhole,
        "a whole response answers 200",
        OBJECT,
        Answer::succeeds,
    ),
    always("responses-whole-end", Ask::ResponsesWhole, "the body is complete", "HTTP", Answer::ends),
    row(
        "responses-whole-object",
        Ask::ResponsesWhole,
        "id, object \"response\", created_at, model, status and output are there",
        OBJECT,
        whole,
    ),
    row(
        "responses-whole-items",
        Ask::ResponsesWhole,
        "each item has an id and a type, and messages have text parts",
        OBJECT,
        whole_items,
    ),
    row(
        "responses-whole-usage",
        Ask::ResponsesWhole,
        "usage is there and adds up",
        "openapi: ResponseUsage",
        whole_usage,
    ),
];

const TERMINAL: [&str; 3] = ["response.completed", "response.incomplete", "response.failed"];

fn framing(answer: &Answer) -> Verdict {
    match answer.frames.iter().find(|frame| frame.is_done()) {
        Some(frame) => Verdict::fail(&frame.raw),
        None => answer.is_framed(),
    }
}

fn names(answer: &Answer) -> Verdict {
    answer.none(|frame| frame.name != frame.text("/type"))
}

fn number(frame: &Frame, key: &str) -> Option<u64> {
    frame.json.get(key).and_then(Value::as_whole)
}

fn sequence(answer: &Answer) -> Verdict {
    let mut expected = 0..;
    answer.none(|frame| number(frame, "sequence_number") != expected.next())
}

fn start(answer: &Answer) -> Verdict {
    let mut expected = ["response.created", "response.in_progress"].into_iter();
    answer.none(|frame| match expected.next() {
        Some(kind) => frame.text("/type") != kind,
        None => frame.text("/type") == "response.created",
    })
}

fn same_id(answer: &Answer) -> Verdict {
    let first = answer.chunks().find(|frame| frame.json.get("response").is_some());
    let first = first.map_or("", |frame| frame.text("/response/id"));
    answer.none(|frame| {
        frame.json.get("response").is_some() && (first.is_empty() || frame.text("/response/id") != first)
    })
}

fn items(answer: &Answer) -> Verdict {
    let mut count = 0;
    answer.none(|frame| {
        let Some(index) = number(frame, "output_index") else { return false };
        match frame.text("/type") {
            "response.output_item.added" => {
                count += 1;
                index != count - 1
            }
            _ => index >= count,
        }
    })
}

fn item_ids(answer: &Answer) -> Verdict {
    let mut ids: BTreeMap<u64, String> = BTreeMap::new();
    answer.none(|frame| {
        let Some(index) = number(frame, "output_index") else { return false };
        let id = match frame.json.get("item") {
            Some(item) => item.text("/id"),
            None => frame.text("/item_id"),
        };
        id.is_empty() || ids.entry(index).or_insert_with(|| id.to_owned()) != id
    })
}

fn parts(answer: &Answer) -> Verdict {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    answer.none(|frame| {
        let Some((item, part)) = number(frame, "output_index").zip(number(frame, "content_index")) else {
            return false;
        };
        let count = counts.entry(item).or_default();
        if frame.text("/type") == "response.content_part.added" {
            *count += 1;
            return part != *count - 1;
        }
        part >= *count
    })
}

fn deltas(answer: &Answer) -> Verdict {
    let mut texts: BTreeMap<(String, String, Option<u64>), String> = BTreeMap::new();
    answer.none(|frame| {
        let kind = frame.text("/type");
        let at = number(frame, "content_index").or_else(|| number(frame, "summary_index"));
        let key = |kind: &str| (kind.to_owned(), frame.text("/item_id").to_owned(), at);
        if let Some(kind) = kind.strip_suffix(".delta") {
            texts.entry(key(kind)).or_default().push_str(frame.text("/delta"));
            return false;
        }
        let Some(kind) = kind.strip_suffix(".done") else { return false };
        let ended = ["text", "refusal", "arguments", "input"].iter().find_map(|name| frame.json.get(name));
        ended.is_some_and(|ended| ended.as_text() != Some(texts.remove(&key(kind)).as_deref().unwrap_or("")))
    })
}

/// Returns the terminal event.
fn end(answer: &Answer) -> Option<&Frame> {
    answer.chunks().find(|frame| TERMINAL.contains(&frame.text("/type")))
}

fn terminal(answer: &Answer) -> Verdict {
    let count = answer.chunks().filter(|frame| TERMINAL.contains(&frame.text("/type"))).count();
    let last = answer.chunks().next_back();
    let holds = count == 1 && last.is_some_and(|last| TERMINAL.contains(&last.text("/type")));
    let evidence = last.map_or("", |last| &last.raw);
    Verdict::check(holds, &format!("{count} terminal events; the last event: {evidence}"))
}

fn fold(answer: &Answer) -> Verdict {
    let Some(end) = end(answer) else { return Verdict::fail("there is no terminal event") };
    let done = answer.chunks().filter(|frame| frame.text("/type") == "response.output_item.done");
    let items: BTreeMap<_, _> =
        done.map(|frame| (number(frame, "output_index"), frame.json.get("item"))).collect();
    let output = end.json.at("/response/output").and_then(Value::as_list);
    let equal = output.is_some_and(|output| output.iter().map(Some).eq(items.into_values()));
    Verdict::check(equal, &end.raw)
}

fn adds_up(usage: Option<&Value>) -> bool {
    let count = |key| usage.and_then(|usage| usage.get(key)).and_then(Value::as_whole);
    let sum = count("input_tokens").zip(count("output_tokens"));
    let sum = sum.and_then(|(input, output)| input.checked_add(output));
    sum.is_some() && sum == count("total_tokens")
}

fn stream_usage(answer: &Answer) -> Verdict {
    let Some(end) = end(answer) else { return Verdict::fail("there is no terminal event") };
    Verdict::check(adds_up(end.json.at("/response/usage")), &end.raw)
}

fn call(answer: &Answer) -> Verdict {
    let is_call = |frame: &Frame| {
        frame.text("/type") == "response.output_item.done" && frame.text("/item/type") == "function_call"
    };
    if !answer.chunks().any(is_call) {
        return Verdict::Skipped("the model called no function".to_owned());
    }
    answer.none(|frame| {
        is_call(frame)
            && frame.text("/item/status") != "incomplete"
            && (frame.text("/item/call_id").is_empty()
                || frame.text("/item/name").is_empty()
                || !is_object(frame.text("/item/arguments")))
    })
}

fn whole(answer: &Answer) -> Verdict {
    let whole = &answer.whole;
    let texts = ["/id", "/model", "/status"].iter().all(|key| !whole.text(key).is_empty());
    let holds = texts
        && whole.text("/object") == "response"
        && whole.get("created_at").is_some_and(Value::is_number)
        && whole.get("output").is_some_and(Value::is_list);
    Verdict::check(holds, &answer.raw)
}

fn whole_items(answer: &Answer) -> Verdict {
    let output = answer.whole.get("output").and_then(Value::as_list);
    let good = |item: &Value| {
        let parts = item.get("content").and_then(Value::as_list);
        let message = item.text("/type") != "message"
            || parts.is_some_and(|parts| parts.iter().all(|part| !part.text("/type").is_empty()));
        !item.text("/id").is_empty() && !item.text("/type").is_empty() && message
    };
    Verdict::check(output.is_some_and(|output| output.iter().all(good)), &answer.raw)
}

fn whole_usage(answer: &Answer) -> Verdict {
    Verdict::check(adds_up(answer.whole.get("usage")), &answer.raw)
}
