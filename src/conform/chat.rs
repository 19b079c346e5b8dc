//! Rows of models and Chat Completions: streams, whole answers, functions, reasoning, usage.

use super::answer::{Answer, Frame};
use super::requests::SuiteRequest;
use super::row::{Row, rows};
use super::verdict::Verdict;
use crate::tree::{Value, View, read};
use std::collections::{BTreeMap, BTreeSet};

const CHUNK: &str = "openapi: CreateChatCompletionStreamResponse; wire 2.1";
const WHOLE: &str = "openapi: CreateChatCompletionResponse; wire 2.1";

/// Rows of models and Chat Completions.
pub(super) const ROWS: &[Row] = rows! {
    Models "models" {
        "status", "GET /v1/models answers 200", "wire 2.12", Answer::succeeds;
        "end", "the body is complete", "HTTP", Answer::ends;
        "list", "the list has object \"list\", and each model an id and object \"model\"",
            "openapi: ListModelsResponse; wire 2.12", models;
    }
    ChatStream "chat-stream" {
        "status", "a chat stream answers 200", "wire 2.3", Answer::succeeds;
        "end", "the stream ends by itself, and HTTP says so", "wire 3.3", Answer::ends;
        "content-type", "the content type is text/event-stream", "wire 8.2", Answer::is_stream;
        "framing", "the data of each event is one JSON object, or [DONE]", "wire 8.2", Answer::is_framed;
        "done", "[DONE] comes once, and last", "wire 2.3; official SDKs", done;
        "object", "each chunk has object \"chat.completion.chunk\"", CHUNK,
            |answer| answer.each_fits("/object =chat.completion.chunk");
        "id", "each chunk has the same id, which is not empty", "wire 1.7; AI SDK",
            |answer| same(answer, "/id");
        "created", "each chunk has the same time in seconds", "wire 1.7", same_created;
        "model", "each chunk has the same model", "wire 1.7", |answer| same(answer, "/model");
        "role-first", "the first frame of a choice has the role, and no later one does",
            "wire 2.3 rule 1", role;
        "choices", "each choice has an index, a delta and the key finish_reason", CHUNK, choices;
        "one-finish", "each choice has one finish_reason, a known one", "wire 2.3, 2.6", one_finish;
        "finish-apart", "the frame with the finish_reason carries no text",
            "wire 2.3 rule 8; clients stop reading there", finish_apart;
        "reasoning", "reasoning has the names reasoning_content and reasoning, apart from content",
            "wire 2.4; AI SDK", reasoning;
        "usage-last", "usage comes once, with empty choices, in the last chunk",
            "wire 2.8; openapi: ChatCompletionStreamOptions", usage_last;
        "usage-sum", "prompt_tokens and completion_tokens add up to total_tokens",
            "openapi: CompletionUsage", usage_sum;
    }
    ChatPlain "chat-plain" {
        "status", "a chat stream without stream_options answers 200", "wire 2.3", Answer::succeeds;
        "end", "the stream ends by itself, and HTTP says so", "wire 3.3", Answer::ends;
        "no-usage", "no chunk has usage or empty choices, where usage was not asked for",
            "wire 2.8", no_usage;
        "done", "[DONE] comes once, and last", "wire 2.3", done;
    }
    ChatWhole "chat-whole" {
        "status", "a whole chat answers 200", "wire 2.1", Answer::succeeds;
        "end", "the body is complete", "HTTP", Answer::ends;
        "content-type", "the body is one object of type application/json", WHOLE, Answer::is_object;
        "envelope", "id, object \"chat.completion\", created and model are there", WHOLE,
            |answer| answer.fits("/id text, /object =chat.completion, /created whole, /model text");
        "message", "the message has the role assistant, and content that is text or null",
            WHOLE,
            |answer| answer.fits("/choices/0/message/role =assistant, /choices/0/message/content string?");
        "finish", "the choice has a known finish_reason", "wire 2.6",
            |answer| Verdict::check(FINISHES.contains(&answer.whole.text("/choices/0/finish_reason")), &answer.raw);
        "usage", "usage is there and adds up", "openapi: CompletionUsage; wire 2.8",
            |answer| Verdict::check(adds_up(answer.whole.member("usage"), COUNTS), &answer.raw);
    }
    ToolStream "tools-stream" {
        "status", "a chat stream with tools answers 200", "wire 2.5", Answer::succeeds;
        "end", "the stream ends by itself, and HTTP says so", "wire 3.3", Answer::ends;
        "header-once", "id, type and name of a call come once, in its first frame",
            "wire 2.5 rule 3; openai-python adds up strings", call_header;
        "index", "the indices of calls count from 0 without gaps", "wire 2.5 rule 1", call_index;
        "ids", "each call has an id of its own", "wire 2.5 rule 8", call_ids;
        "arguments", "the pieces of the arguments add up to one JSON object",
            "wire 2.5; AI SDK", call_arguments;
        "finish", "the finish_reason after calls is tool_calls", "wire 2.6", call_finish;
        "one-finish", "each choice has one finish_reason, a known one", "wire 2.6", one_finish;
        "role-first", "the first frame of a choice has the role, and no later one does",
            "wire 2.3 rule 1", role;
    }
    ToolWhole "tools-whole" {
        "status", "a whole chat with tools answers 200", "wire 2.5", Answer::succeeds;
        "end", "the body is complete", "HTTP", Answer::ends;
        "calls", "each call has id, type, name, arguments that are JSON text, and no index",
            "wire 2.1", whole_calls;
        "finish", "the finish_reason beside calls is tool_calls", "wire 2.6", whole_call_finish;
    }
};

const FINISHES: [&str; 5] = [
    "stop",
    "length",
    "tool_calls",
    "content_filter",
    "function_call",
];
const TEXTS: [&str; 6] = [
    "content",
    "reasoning_content",
    "reasoning",
    "refusal",
    "tool_calls",
    "function_call",
];

fn models(answer: &Answer) -> Verdict {
    let is_good = |model: &Value| model.fits("/id text, /object =model");
    let holds = answer.whole.fits("/object =list, /data list")
        && answer.whole.list("/data").iter().all(is_good);
    Verdict::check(holds, &answer.raw)
}

/// Returns a pass if `[DONE]` is the last event, and the only one of its kind.
pub(super) fn done(answer: &Answer) -> Verdict {
    let count = answer.frames.iter().filter(|frame| frame.is_done()).count();
    let last = answer.frames.last();
    let holds = count == 1 && last.is_some_and(Frame::is_done);
    let evidence = last.map_or("", |last| &last.raw);
    Verdict::check(
        holds,
        &format!("[DONE] comes {count} times; the last event: {evidence}"),
    )
}

/// Returns a pass if every chunk has the same string under a key.
pub(super) fn same(answer: &Answer, key: &str) -> Verdict {
    let first = answer.chunks().next().map_or("", |frame| frame.text(key));
    answer.none(|frame| first.is_empty() || frame.text(key) != first)
}

/// Returns a pass if every chunk has the same time in seconds.
pub(super) fn same_created(answer: &Answer) -> Verdict {
    let created = |frame: &Frame| frame.json.member("created").as_u64();
    let first = answer.chunks().next().and_then(created);
    answer.none(|frame| {
        created(frame) != first || created(frame).is_none_or(|time| time > 100_000_000_000)
    })
}

/// Returns each choice of a frame with its index.
fn indexed(frame: &Frame) -> impl Iterator<Item = (u64, &Value)> {
    let choices = frame.json.list("/choices").iter();
    choices.map(|choice| (index(choice), choice))
}

fn role(answer: &Answer) -> Verdict {
    let mut seen = BTreeSet::new();
    let mut is_wrong = |(index, choice): (u64, &Value)| {
        seen.insert(index) != choice.fits("/delta/role =assistant")
    };
    answer.none(|frame| indexed(frame).any(&mut is_wrong))
}

fn choices(answer: &Answer) -> Verdict {
    let is_good =
        |choice: &Value| choice.fits("/index whole, /delta object, /finish_reason string?");
    answer.none(|frame| {
        !frame.json.member("choices").is_array() || !frame.json.list("/choices").iter().all(is_good)
    })
}

/// Returns a pass if every choice has exactly one finish reason, a known one.
pub(super) fn one_finish(answer: &Answer) -> Verdict {
    let mut finishes: BTreeMap<u64, usize> = BTreeMap::new();
    let repeated = answer.none(|frame| {
        indexed(frame).any(|(index, choice)| {
            let count = finishes.entry(index).or_default();
            let Some(finish) = choice.member("finish_reason").as_str() else {
                return false;
            };
            *count += 1;
            *count > 1 || !FINISHES.contains(&finish)
        })
    });
    let missing = finishes.is_empty() || finishes.values().any(|count| *count == 0);
    match repeated {
        Verdict::Pass if missing => {
            Verdict::fail("a choice has no finish_reason until the end of the stream")
        }
        verdict => verdict,
    }
}

fn finish_apart(answer: &Answer) -> Verdict {
    let says = |choice: &Value| {
        TEXTS
            .iter()
            .any(|key| choice.member("delta").member(key).says())
    };
    answer.none(|frame| {
        indexed(frame).any(|(_, choice)| choice.member("finish_reason").is_string() && says(choice))
    })
}

fn reasoning(answer: &Answer) -> Verdict {
    let both = |frame: &Frame| {
        ["reasoning_content", "reasoning"]
            .map(|key| frame.text(&format!("/choices/0/delta/{key}")).to_owned())
    };
    if answer
        .chunks()
        .all(|frame| both(frame).iter().all(String::is_empty))
    {
        return Verdict::Skipped("the model did not reason".to_owned());
    }
    answer.none(|frame| {
        let [one, other] = both(frame);
        one != other || !one.is_empty() && !frame.text("/choices/0/delta/content").is_empty()
    })
}

/// Returns a pass if usage comes once, in the last chunk, with empty choices.
pub(super) fn usage_last(answer: &Answer) -> Verdict {
    let has = |frame: &Frame| frame.json.member("usage").is_object();
    let Some(last) = answer.chunks().next_back() else {
        return Verdict::fail("");
    };
    if !last.json.fits("/usage object, /choices empty") {
        return Verdict::fail(&last.raw);
    }
    answer.none(|frame| has(frame) && !std::ptr::eq(frame, last))
}

/// Names of the counts of a usage object that make up the total.
pub(super) const COUNTS: [&str; 2] = ["prompt_tokens", "completion_tokens"];

/// Returns true if the counts of a usage object are there and add up.
pub(super) fn adds_up(usage: &Value, counts: [&str; 2]) -> bool {
    let [one, other] = counts.map(|name| usage.member(name).as_u64());
    let sum = one
        .zip(other)
        .and_then(|(one, other)| one.checked_add(other));
    sum.is_some() && sum == usage.member("total_tokens").as_u64()
}

/// Returns a pass if the usage of the stream adds up.
pub(super) fn usage_sum(answer: &Answer) -> Verdict {
    let last = answer
        .chunks()
        .rev()
        .find(|frame| frame.json.member("usage").is_object());
    match last {
        Some(frame) => Verdict::check(adds_up(frame.json.member("usage"), COUNTS), &frame.raw),
        None => Verdict::fail("no chunk has usage"),
    }
}

fn no_usage(answer: &Answer) -> Verdict {
    answer.none(|frame| !frame.json.member("usage").is_null() || frame.choice().is_none())
}

/// Returns the entries of `tool_calls` of a frame.
fn entries(frame: &Frame) -> impl Iterator<Item = &Value> {
    frame.json.list("/choices/0/delta/tool_calls").iter()
}

/// Judges the calls of a stream; skips if there are none.
fn with_calls(answer: &Answer, judge: impl FnOnce() -> Verdict) -> Verdict {
    if answer.chunks().all(|frame| entries(frame).next().is_none()) {
        return Verdict::Skipped("the model called no function".to_owned());
    }
    judge()
}

fn index(entry: &Value) -> u64 {
    entry.member("index").as_u64().unwrap_or(u64::MAX)
}

fn call_header(answer: &Answer) -> Verdict {
    let mut seen = BTreeSet::new();
    with_calls(answer, || {
        answer.none(|frame| {
            entries(frame).any(|entry| {
                let parts = ["/id", "/type", "/function/name"].map(|key| entry.pointer(key));
                match seen.insert(index(entry)) {
                    true => parts
                        .iter()
                        .any(|part| part.and_then(Value::as_str).is_none_or(str::is_empty)),
                    false => parts.iter().any(Option::is_some),
                }
            })
        })
    })
}

fn call_index(answer: &Answer) -> Verdict {
    let mut count = 0;
    with_calls(answer, || {
        answer.none(|frame| {
            entries(frame).any(|entry| {
                let index = index(entry);
                count += u64::from(index == count);
                index >= count
            })
        })
    })
}

fn call_ids(answer: &Answer) -> Verdict {
    let mut ids = BTreeMap::new();
    with_calls(answer, || {
        answer.none(|frame| {
            entries(frame)
                .filter(|entry| !entry.text("/id").is_empty())
                .any(|entry| {
                    *ids.entry(entry.text("/id").to_owned())
                        .or_insert_with(|| index(entry))
                        != index(entry)
                })
        })
    })
}

fn call_arguments(answer: &Answer) -> Verdict {
    let mut calls: BTreeMap<u64, String> = BTreeMap::new();
    with_calls(answer, || {
        for entry in answer.chunks().flat_map(entries) {
            calls
                .entry(index(entry))
                .or_default()
                .push_str(entry.text("/function/arguments"));
        }
        let cut = answer
            .chunks()
            .any(|frame| frame.text("/choices/0/finish_reason") == "length");
        match calls.values().find(|text| !is_object(text)) {
            Some(_) if cut => Verdict::Skipped("the answer was cut at the most tokens".to_owned()),
            Some(text) => Verdict::fail(text),
            None => Verdict::Pass,
        }
    })
}

/// Returns true if a text is a JSON object.
pub(super) fn is_object(text: &str) -> bool {
    read(text).is_object()
}

fn call_finish(answer: &Answer) -> Verdict {
    with_calls(answer, || {
        answer.none(|frame| {
            !matches!(
                frame.text("/choices/0/finish_reason"),
                "" | "tool_calls" | "length"
            )
        })
    })
}

/// Judges the calls of a whole answer; skips if there are none.
fn with_whole_calls(answer: &Answer, holds: impl FnOnce(&[Value]) -> bool) -> Verdict {
    match answer.whole.list("/choices/0/message/tool_calls") {
        [] => Verdict::Skipped("the model called no function".to_owned()),
        calls => Verdict::check(holds(calls), &answer.raw),
    }
}

fn whole_calls(answer: &Answer) -> Verdict {
    let cut = answer.whole.text("/choices/0/finish_reason") == "length";
    with_whole_calls(answer, |calls| {
        calls.iter().all(|call| {
            call.fits("/id text, /type =function, /function/name text, /index absent")
                && (cut || is_object(call.text("/function/arguments")))
        })
    })
}

fn whole_call_finish(answer: &Answer) -> Verdict {
    let finish = answer.whole.text("/choices/0/finish_reason");
    with_whole_calls(answer, |_| matches!(finish, "tool_calls" | "length"))
}
