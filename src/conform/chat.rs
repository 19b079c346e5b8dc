//! Rows of models and Chat Completions: streams, whole answers, functions, reasoning, usage.

use super::answer::{Answer, Frame};
use super::ask::Ask;
use super::row::{Row, always, row};
use super::verdict::Verdict;
use crate::tree::Value;
use std::collections::{BTreeMap, BTreeSet};

const CHUNK: &str = "openapi: CreateChatCompletionStreamResponse; wire 2.1";
const WHOLE: &str = "openapi: CreateChatCompletionResponse; wire 2.1";

/// Rows of models and Chat Completions.
pub(super) const ROWS: &[Row] = &[
    always("models-status", Ask::Models, "GET /v1/models answers 200", "wire 2.12", Answer::succeeds),
    always("models-end", Ask::Models, "the body is complete", "HTTP", Answer::ends),
    row(
        "models-list",
        Ask::Models,
        "the list has object \"list\", and each model an id and object \"model\"",
        "openapi: ListModelsResponse; wire 2.12",
        models,
    ),
    always("chat-stream-status", Ask::ChatStream, "a chat stream answers 200", "wire 2.3", Answer::succeeds),
    always(
        "chat-stream-end",
        Ask::ChatStream,
        "the stream ends by itself, and HTTP says so",
        "wire 3.3",
        Answer::ends,
    ),
    row(
        "chat-stream-content-type",
        Ask::ChatStream,
        "the content type is text/event-stream",
        "wire 8.2",
        Answer::is_stream,
    ),
    row(
        "chat-stream-framing",
        Ask::ChatStream,
        "the data of each event is one JSON object, or [DONE]",
        "wire 8.2",
        Answer::is_framed,
    ),
    row("chat-stream-done", Ask::ChatStream, "[DONE] comes once, and last", "wire 2.3; official SDKs", done),
    row(
        "chat-stream-object",
        Ask::ChatStream,
        "each chunk has object \"chat.completion.chunk\"",
        CHUNK,
        object,
    ),
    row(
        "chat-stream-id",
        Ask::ChatStream,
        "each chunk has the same id, which is not empty",
        "wire 1.7; AI SDK",
        same_id,
    ),
    row(
        "chat-stream-created",
        Ask::ChatStream,
        "each chunk has the same time in seconds",
        "wire 1.7",
        same_created,
    ),
    row("chat-stream-model", Ask::ChatStream, "each chunk has the same model", "wire 1.7", same_model),
    row(
        "chat-stream-role-first",
        Ask::ChatStream,
        "the first frame of a choice has the role, and no later one does",
        "wire 2.3 rule 1",
        role,
    ),
    row(
        "chat-stream-choices",
        Ask::ChatStream,
        "each choice has an index, a delta and the key finish_reason",
        CHUNK,
        choices,
    ),
    row(
        "chat-stream-one-finish",
        Ask::ChatStream,
        "each choice has one finish_reason, a known one",
        "wire 2.3, 2.6",
        one_finish,
    ),
    row(
        "chat-stream-finish-apart",
        Ask::ChatStream,
        "the frame with the finish_reason carries no text",
        "wire 2.3 rule 8; clients stop reading there",
        finish_apart,
    ),
    row(
        "chat-stream-reasoning",
        Ask::ChatStream,
        "reasoning has the names reasoning_content and reasoning, apart from content",
        "wire 2.4; AI SDK",
        reasoning,
    ),
    row(
        "chat-stream-usage-last",
        Ask::ChatStream,
        "usage comes once, with empty choices, in the last chunk",
        "wire 2.8; openapi: ChatCompletionStreamOptions",
        usage_last,
    ),
    row(
        "chat-stream-usage-sum",
        Ask::ChatStream,
        "prompt_tokens and completion_tokens add up to total_tokens",
        "openapi: CompletionUsage",
        usage_sum,
    ),
    always(
        "chat-plain-status",
        Ask::ChatPlain,
        "a chat stream without stream_options answers 200",
        "wire 2.3",
        Answer::succeeds,
    ),
    always(
        "chat-plain-end",
        Ask::ChatPlain,
        "the stream ends by itself, and HTTP says so",
        "wire 3.3",
        Answer::ends,
    ),
    row(
        "chat-plain-no-usage",
        Ask::ChatPlain,
        "no chunk has usage or empty choices, where usage was not asked for",
        "wire 2.8",
        no_usage,
    ),
    row("chat-plain-done", Ask::ChatPlain, "[DONE] comes once, and last", "wire 2.3", done),
    always("chat-whole-status", Ask::ChatWhole, "a whole chat answers 200", "wire 2.1", Answer::succeeds),
    always("chat-whole-end", Ask::ChatWhole, "the body is complete", "HTTP", Answer::ends),
    row(
        "chat-whole-content-type",
        Ask::ChatWhole,
        "the body is one object of type application/json",
        WHOLE,
        Answer::is_object,
    ),
    row(
        "chat-whole-envelope",
        Ask::ChatWhole,
        "id, object \"chat.completion\", created and model are there",
        WHOLE,
        whole_envelope,
    ),
    row(
        "chat-whole-message",
        Ask::ChatWhole,
        "the message has the role assistant, and content that is text or null",
        WHOLE,
        whole_message,
    ),
    row(
        "chat-whole-finish",
        Ask::ChatWhole,
        "the choice has a known finish_reason",
        "wire 2.6",
        whole_finish,
    ),
    row(
        "chat-whole-usage",
        Ask::ChatWhole,
        "usage is there and adds up",
        "openapi: CompletionUsage; wire 2.8",
        whole_usage,
    ),
    always(
        "tools-stream-status",
        Ask::ToolStream,
        "a chat stream with tools answers 200",
        "wire 2.5",
        Answer::succeeds,
    ),
    always(
        "tools-stream-end",
        Ask::ToolStream,
        "the stream ends by itself, and HTTP says so",
        "wire 3.3",
        Answer::ends,
    ),
    row(
        "tools-stream-header-once",
        Ask::ToolStream,
        "id, type and name of a call come once, in its first frame",
        "wire 2.5 rule 3; openai-python adds up strings",
        call_header,
    ),
    row(
        "tools-stream-index",
        Ask::ToolStream,
        "the indices of calls count from 0 without gaps",
        "wire 2.5 rule 1",
        call_index,
    ),
    row("tools-stream-ids", Ask::ToolStream, "each call has an id of its own", "wire 2.5 rule 8", call_ids),
    row(
        "tools-stream-arguments",
        Ask::ToolStream,
        "the pieces of the arguments add up to one JSON object",
        "wire 2.5; AI SDK",
        call_arguments,
    ),
    row(
        "tools-stream-finish",
        Ask::ToolStream,
        "the finish_reason after calls is tool_calls",
        "wire 2.6",
        call_finish,
    ),
    row(
        "tools-stream-one-finish",
        Ask::ToolStream,
        "each choice has one finish_reason, a known one",
        "wire 2.6",
        one_finish,
    ),
    row(
        "tools-stream-role-first",
        Ask::ToolStream,
        "the first frame of a choice has the role, and no later one does",
        "wire 2.3 rule 1",
        role,
    ),
    always(
        "tools-whole-status",
        Ask::ToolWhole,
        "a whole chat with tools answers 200",
        "wire 2.5",
        Answer::succeeds,
    ),
    always("tools-whole-end", Ask::ToolWhole, "the body is complete", "HTTP", Answer::ends),
    row(
        "tools-whole-calls",
        Ask::ToolWhole,
        "each call has id, type, name, arguments that are JSON text, and no index",
        "wire 2.1",
        whole_calls,
    ),
    row(
        "tools-whole-finish",
        Ask::ToolWhole,
        "the finish_reason beside calls is tool_calls",
        "wire 2.6",
        whole_call_finish,
    ),
];

const FINISHES: [&str; 5] = ["stop", "length", "tool_calls", "content_filter", "function_call"];
const TEXTS: [&str; 6] =
    ["content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call"];

fn models(answer: &Answer) -> Verdict {
    let data = answer.whole.get("data").and_then(Value::as_list);
    let good = |model: &Value| !model.text("/id").is_empty() && model.text("/object") == "model";
    let list = answer.whole.text("/object") == "list";
    Verdict::check(list && data.is_some_and(|data| data.iter().all(good)), &answer.raw)
}

/// Returns a pass if `[DONE]` is the last event, and the only one of its kind.
pub(super) fn done(answer: &Answer) -> Verdict {
    let count = answer.frames.iter().filter(|frame| frame.is_done()).count();
    let last = answer.frames.last();
    let holds = count == 1 && last.is_some_and(Frame::is_done);
    let evidence = last.map_or("", |last| &last.raw);
    Verdict::check(holds, &format!("[DONE] comes {count} times; the last event: {evidence}"))
}

fn object(answer: &Answer) -> Verdict {
    answer.none(|frame| frame.text("/object") != "chat.completion.chunk")
}

/// Returns a pass if every chunk has the same string under a key.
pub(super) fn same(answer: &Answer, key: &str) -> Verdict {
    let first = answer.chunks().next().map_or("", |frame| frame.text(key));
    answer.none(|frame| first.is_empty() || frame.text(key) != first)
}

fn same_id(answer: &Answer) -> Verdict {
    same(answer, "/id")
}

fn same_model(answer: &Answer) -> Verdict {
    same(answer, "/model")
}

/// Returns a pass if every chunk has the same time in seconds.
pub(super) fn same_created(answer: &Answer) -> Verdict {
    let created = |frame: &Frame| frame.json.get("created").and_then(Value::as_whole);
    let first = answer.chunks().next().and_then(created);
    answer.none(|frame| created(frame) != first || created(frame).is_none_or(|time| time > 100_000_000_000))
}

/// Returns each choice of a frame with its index.
fn indexed(frame: &Frame) -> impl Iterator<Item = (u64, &Value)> {
    let choices = frame.json.get("choices").and_then(Value::as_list).into_iter().flatten();
    choices.map(|choice| (choice.get("index").and_then(Value::as_whole).unwrap_or(u64::MAX), choice))
}

fn role(answer: &Answer) -> Verdict {
    let mut seen = BTreeSet::new();
    answer.none(|frame| {
        indexed(frame).any(|(index, choice)| {
            let has = choice.text("/delta/role") == "assistant";
            seen.insert(index) != has
        })
    })
}

fn choices(answer: &Answer) -> Verdict {
    answer.none(|frame| {
        let list = frame.json.get("choices").and_then(Value::as_list);
        let bad = |choice: &Value| {
            let finish = choice.get("finish_reason");
            !choice.get("index").is_some_and(Value::is_whole)
                || !choice.get("delta").is_some_and(Value::is_object)
                || !finish.is_some_and(|finish| finish.is_null() || finish.is_text())
        };
        list.is_none_or(|list| list.iter().any(bad))
    })
}

/// Returns a pass if every choice has exactly one finish reason, a known one.
pub(super) fn one_finish(answer: &Answer) -> Verdict {
    let mut finishes: BTreeMap<u64, usize> = BTreeMap::new();
    let repeated = answer.none(|frame| {
        indexed(frame).any(|(index, choice)| {
            let count = finishes.entry(index).or_default();
            let Some(finish) = choice.get("finish_reason").and_then(Value::as_text) else { return false };
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
    answer.none(|frame| {
        indexed(frame).any(|(_, choice)| {
            let finished = choice.get("finish_reason").is_some_and(Value::is_text);
            let delta = choice.get("delta");
            finished
                && TEXTS.iter().any(|key| delta.and_then(|delta| delta.get(key)).is_some_and(Value::says))
        })
    })
}

fn reasoning(answer: &Answer) -> Verdict {
    let both = |frame: &Frame| {
        ["reasoning_content", "reasoning"]
            .map(|key| frame.text(&format!("/choices/0/delta/{key}")).to_owned())
    };
    if answer.chunks().all(|frame| both(frame).iter().all(String::is_empty)) {
        return Verdict::Skipped("the model did not reason".to_owned());
    }
    answer.none(|frame| {
        let [one, other] = both(frame);
        one != other || !one.is_empty() && !frame.text("/choices/0/delta/content").is_empty()
    })
}

/// Returns a pass if usage comes once, in the last chunk, with empty choices.
pub(super) fn usage_last(answer: &Answer) -> Verdict {
    let has = |frame: &Frame| frame.json.get("usage").is_some_and(Value::is_object);
    let Some(last) = answer.chunks().next_back() else { return Verdict::fail("") };
    let empty = last.json.get("choices").and_then(Value::as_list).is_some_and(<[Value]>::is_empty);
    if !has(last) || !empty {
        return Verdict::fail(&last.raw);
    }
    answer.none(|frame| has(frame) && !std::ptr::eq(frame, last))
}

/// Returns true if the counts of a usage object are there and add up.
pub(super) fn adds_up(usage: Option<&Value>) -> bool {
    let count = |key| usage.and_then(|usage| usage.get(key)).and_then(Value::as_whole);
    let sum = count("prompt_tokens").zip(count("completion_tokens"));
    let sum = sum.and_then(|(prompt, completion)| prompt.checked_add(completion));
    sum.is_some() && sum == count("total_tokens")
}

/// Returns a pass if the usage of the stream adds up.
pub(super) fn usage_sum(answer: &Answer) -> Verdict {
    let last = answer.chunks().rev().find(|frame| frame.json.get("usage").is_some_and(Value::is_object));
    match last {
        Some(frame) => Verdict::check(adds_up(frame.json.get("usage")), &frame.raw),
        None => Verdict::fail("no chunk has usage"),
    }
}

fn no_usage(answer: &Answer) -> Verdict {
    answer.none(|frame| {
        frame.json.get("usage").is_some_and(|usage| !usage.is_null()) || frame.choice().is_none()
    })
}

fn whole_envelope(answer: &Answer) -> Verdict {
    let whole = &answer.whole;
    let holds = !whole.text("/id").is_empty()
        && whole.text("/object") == "chat.completion"
        && whole.get("created").is_some_and(Value::is_whole)
        && !whole.text("/model").is_empty();
    Verdict::check(holds, &answer.raw)
}

fn whole_message(answer: &Answer) -> Verdict {
    let message = answer.whole.at("/choices/0/message");
    let content = message.and_then(|message| message.get("content"));
    let role = message.is_some_and(|message| message.text("/role") == "assistant");
    Verdict::check(role && content.is_some_and(|content| content.is_null() || content.is_text()), &answer.raw)
}

fn whole_finish(answer: &Answer) -> Verdict {
    Verdict::check(FINISHES.contains(&answer.whole.text("/choices/0/finish_reason")), &answer.raw)
}

fn whole_usage(answer: &Answer) -> Verdict {
    Verdict::check(adds_up(answer.whole.get("usage")), &answer.raw)
}

/// Returns the entries of `tool_calls` of a frame.
fn entries(frame: &Frame) -> impl Iterator<Item = &Value> {
    let list = frame.json.at("/choices/0/delta/tool_calls").and_then(Value::as_list);
    list.into_iter().flatten()
}

/// Judges the calls of a stream; skips if there are none.
fn with_calls(answer: &Answer, judge: impl FnOnce() -> Verdict) -> Verdict {
    if answer.chunks().all(|frame| entries(frame).next().is_none()) {
        return Verdict::Skipped("the model called no function".to_owned());
    }
    judge()
}

fn index(entry: &Value) -> u64 {
    entry.get("index").and_then(Value::as_whole).unwrap_or(u64::MAX)
}

fn call_header(answer: &Answer) -> Verdict {
    let mut seen = BTreeSet::new();
    with_calls(answer, || {
        answer.none(|frame| {
            entries(frame).any(|entry| {
                let parts = ["/id", "/type", "/function/name"].map(|key| entry.at(key));
                match seen.insert(index(entry)) {
                    true => parts.iter().any(|part| part.and_then(Value::as_text).is_none_or(str::is_empty)),
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
            entries(frame).filter(|entry| !entry.text("/id").is_empty()).any(|entry| {
                *ids.entry(entry.text("/id").to_owned()).or_insert_with(|| index(entry)) != index(entry)
            })
        })
    })
}

fn call_arguments(answer: &Answer) -> Verdict {
    let mut calls: BTreeMap<u64, String> = BTreeMap::new();
    with_calls(answer, || {
        for entry in answer.chunks().flat_map(entries) {
            calls.entry(index(entry)).or_default().push_str(entry.text("/function/arguments"));
        }
        let cut = answer.chunks().any(|frame| frame.text("/choices/0/finish_reason") == "length");
        match calls.values().find(|text| !is_object(text)) {
            Some(_) if cut => Verdict::Skipped("the answer was cut at the most tokens".to_owned()),
            Some(text) => Verdict::fail(text),
            None => Verdict::Pass,
        }
    })
}

/// Returns true if a text is a JSON object.
pub(super) fn is_object(text: &str) -> bool {
    Value::read(text).is_object()
}

fn call_finish(answer: &Answer) -> Verdict {
    with_calls(answer, || {
        answer.none(|frame| !matches!(frame.text("/choices/0/finish_reason"), "" | "tool_calls" | "length"))
    })
}

/// Judges the calls of a whole answer; skips if there are none.
fn with_whole_calls(answer: &Answer, holds: impl FnOnce(&[Value]) -> bool) -> Verdict {
    let calls = answer.whole.at("/choices/0/message/tool_calls").and_then(Value::as_list);
    match calls.filter(|calls| !calls.is_empty()) {
        Some(calls) => Verdict::check(holds(calls), &answer.raw),
        None => Verdict::Skipped("the model called no function".to_owned()),
    }
}

fn whole_calls(answer: &Answer) -> Verdict {
    let cut = answer.whole.text("/choices/0/finish_reason") == "length";
    with_whole_calls(answer, |calls| {
        calls.iter().all(|call| {
            let arguments = call.text("/function/arguments");
            !call.text("/id").is_empty()
                && call.text("/type") == "function"
                && !call.text("/function/name").is_empty()
                && (cut || is_object(arguments))
                && call.get("index").is_none()
        })
    })
}

fn whole_call_finish(answer: &Answer) -> Verdict {
    let finish = answer.whole.text("/choices/0/finish_reason");
    with_whole_calls(answer, |_| matches!(finish, "tool_calls" | "length"))
}
