//! Rows of Responses: order and numbers of the events, and the object that they add up to.

use super::answer::{Answer, Frame};
use super::chat::{adds_up, is_object};
use super::requests::SuiteRequest;
use super::row::{Row, rows};
use super::verdict::Verdict;
use crate::tree::{Value, View};
use std::collections::BTreeMap;

const SCHEMA: &str = "openapi: ResponseStreamEvent; wire 4.6";
const OBJECT: &str = "openapi: Response; wire 4.4";

/// Rows of Responses.
pub(super) const ROWS: &[Row] = rows! {
    ResponsesStream "responses-stream" {
        "status", "a stream answers 200", SCHEMA, Answer::succeeds;
        "end", "the stream ends by itself, and HTTP says so", "wire 4.7", Answer::ends;
        "content-type", "the content type is text/event-stream", "wire 8.2", Answer::is_stream;
        "framing", "the data of each event is one JSON object", SCHEMA, Answer::is_framed_as_events;
        "names", "the name of each event is its type", SCHEMA, Answer::is_named;
        "sequence", "sequence_number counts from 0 without gaps", SCHEMA, sequence;
        "start", "response.created comes first, then response.in_progress", "wire 4.6 rule 1; Codex", start;
        "id", "each response object has the same id", "wire 4.6 rule 1; Codex", same_id;
        "items", "items count from 0, and each is added once before its events", "wire 4.6 rule 2", items;
        "item-ids", "the id of an item is the same in all its events", "wire 4.6 rule 8", item_ids;
        "parts", "parts count from 0 in each item, and are added before their deltas",
            "wire 4.6 rules 3 to 5; openai-node", parts;
        "deltas", "the deltas add up to the text of the event that ends them",
            "wire 4.6; openai-node", deltas;
        "terminal", "one terminal event comes, and last", "wire 4.6 rule 9", terminal;
        "fold", "the finished items are the output of the final response", "wire 4.6 rule 9", fold;
        "usage", "the final response has usage that adds up", "openapi: ResponseUsage; Codex", stream_usage;
    }
    ResponsesTool "responses-tool" {
        "status", "a stream with a function answers 200", SCHEMA, Answer::succeeds;
        "end", "the stream ends by itself, and HTTP says so", "wire 4.7", Answer::ends;
        "sequence", "sequence_number counts from 0 without gaps", SCHEMA, sequence;
        "items", "items count from 0, and each is added once before its events", "wire 4.6 rule 2", items;
        "deltas", "the deltas add up to the arguments of the event that ends them", "wire 4.6 rule 6", deltas;
        "call", "a finished call has call_id, name and arguments that are a JSON object",
            "openapi: FunctionToolCall; Codex", call;
        "terminal", "one terminal event comes, and last", "wire 4.6 rule 9", terminal;
        "fold", "the finished items are the output of the final response", "wire 4.6 rule 9", fold;
    }
    ResponsesWhole "responses-whole" {
        "status", "a whole response answers 200", OBJECT, Answer::succeeds;
        "end", "the body is complete", "HTTP", Answer::ends;
        "object", "id, object \"response\", created_at, model, status and output are there", OBJECT,
            |answer| answer.fits("/id text, /model text, /status text, /object =response, /created_at number, /output list");
        "items", "each item has an id and a type, and messages have text parts", OBJECT, whole_items;
        "usage", "usage is there and adds up", "openapi: ResponseUsage",
            |answer| Verdict::check(adds_up(answer.whole.member("usage"), COUNTS), &answer.raw);
    }
};

/// Names of the counts of a usage object that make up the total.
const COUNTS: [&str; 2] = ["input_tokens", "output_tokens"];

const TERMINAL: [&str; 3] = [
    "response.completed",
    "response.incomplete",
    "response.failed",
];

fn number(frame: &Frame, key: &str) -> Option<u64> {
    frame.json.member(key).as_u64()
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
    let first = answer
        .chunks()
        .find(|frame| frame.json.get("response").is_some());
    let first = first.map_or("", |frame| frame.text("/response/id"));
    answer.none(|frame| {
        frame.json.get("response").is_some()
            && (first.is_empty() || frame.text("/response/id") != first)
    })
}

fn items(answer: &Answer) -> Verdict {
    let mut count = 0;
    answer.none(|frame| {
        let Some(index) = number(frame, "output_index") else {
            return false;
        };
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
        let Some(index) = number(frame, "output_index") else {
            return false;
        };
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
        let Some((item, part)) = number(frame, "output_index").zip(number(frame, "content_index"))
        else {
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
            texts
                .entry(key(kind))
                .or_default()
                .push_str(frame.text("/delta"));
            return false;
        }
        let Some(kind) = kind.strip_suffix(".done") else {
            return false;
        };
        let ended = ["text", "refusal", "arguments", "input"]
            .iter()
            .find_map(|name| frame.json.get(name));
        ended.is_some_and(|ended| {
            ended.as_str() != Some(texts.remove(&key(kind)).as_deref().unwrap_or(""))
        })
    })
}

/// Returns the terminal event.
fn end(answer: &Answer) -> Option<&Frame> {
    answer
        .chunks()
        .find(|frame| TERMINAL.contains(&frame.text("/type")))
}

fn terminal(answer: &Answer) -> Verdict {
    let count = answer
        .chunks()
        .filter(|frame| TERMINAL.contains(&frame.text("/type")))
        .count();
    let last = answer.chunks().next_back();
    let holds = count == 1 && last.is_some_and(|last| TERMINAL.contains(&last.text("/type")));
    let evidence = last.map_or("", |last| &last.raw);
    Verdict::check(
        holds,
        &format!("{count} terminal events; the last event: {evidence}"),
    )
}

fn fold(answer: &Answer) -> Verdict {
    let Some(end) = end(answer) else {
        return Verdict::fail("there is no terminal event");
    };
    let done = answer
        .chunks()
        .filter(|frame| frame.text("/type") == "response.output_item.done");
    let items: BTreeMap<_, _> = done
        .map(|frame| (number(frame, "output_index"), frame.json.get("item")))
        .collect();
    let output = end
        .json
        .pointer("/response/output")
        .and_then(Value::as_array);
    let equal = output.is_some_and(|output| output.iter().map(Some).eq(items.into_values()));
    Verdict::check(equal, &end.raw)
}

fn stream_usage(answer: &Answer) -> Verdict {
    let Some(end) = end(answer) else {
        return Verdict::fail("there is no terminal event");
    };
    Verdict::check(
        adds_up(end.json.member("response").member("usage"), COUNTS),
        &end.raw,
    )
}

fn call(answer: &Answer) -> Verdict {
    let is_call = |frame: &Frame| {
        frame.text("/type") == "response.output_item.done"
            && frame.text("/item/type") == "function_call"
    };
    if !answer.chunks().any(is_call) {
        return Verdict::Skipped("the model called no function".to_owned());
    }
    answer.none(|frame| {
        is_call(frame)
            && frame.text("/item/status") != "incomplete"
            && !(frame.json.fits("/item/call_id text, /item/name text")
                && is_object(frame.text("/item/arguments")))
    })
}

fn whole_items(answer: &Answer) -> Verdict {
    let is_good = |item: &Value| {
        let are_typed = || {
            item.list("/content")
                .iter()
                .all(|part| part.fits("/type text"))
        };
        item.fits("/id text, /type text")
            && (item.text("/type") != "message" || item.member("content").is_array() && are_typed())
    };
    let holds = answer.whole.member("output").is_array()
        && answer.whole.list("/output").iter().all(is_good);
    Verdict::check(holds, &answer.raw)
}
