//! Rows of Completions.

use super::answer::Answer;
use super::ask::Ask;
use super::chat::{adds_up, done, one_finish, same, same_created, usage_last, usage_sum};
use super::row::{Row, always, row};
use super::verdict::Verdict;
use crate::tree::Value;

const SCHEMA: &str = "openapi: CreateCompletionResponse; wire 2.11";

/// Rows of Completions.
pub(super) const ROWS: &[Row] = &[
    always(
        "completions-stream-status",
        Ask::CompletionsStream,
        "a stream answers 200",
        SCHEMA,
        Answer::succeeds,
    ),
    always(
        "completions-stream-end",
        Ask::CompletionsStream,
        "the stream ends by itself, and HTTP says so",
        "wire 3.3",
        Answer::ends,
    ),
    row(
        "completions-stream-content-type",
        Ask::CompletionsStream,
        "the content type is text/event-stream",
        "wire 8.2",
        Answer::is_stream,
    ),
    row(
        "completions-stream-framing",
        Ask::CompletionsStream,
        "the data of each event is one JSON object, or [DONE]",
        "wire 8.2",
        Answer::is_framed,
    ),
    row("completions-stream-done", Ask::CompletionsStream, "[DONE] comes once, and last", "wire 2.11", done),
    row(
        "completions-stream-object",
        Ask::CompletionsStream,
        "each chunk has object \"text_completion\"",
        SCHEMA,
        object,
    ),
    row(
        "completions-stream-id",
        Ask::CompletionsStream,
        "each chunk has the same id, which is not empty",
        "wire 1.7",
        same_id,
    ),
    row(
        "completions-stream-created",
        Ask::CompletionsStream,
        "each chunk has the same time in seconds",
        "wire 1.7",
        same_created,
    ),
    row(
        "completions-stream-text",
        Ask::CompletionsStream,
        "each choice has text that is a string",
        SCHEMA,
        texts,
    ),
    row(
        "completions-stream-one-finish",
        Ask::CompletionsStream,
        "each choice has one finish_reason, a known one",
        "wire 2.11",
        one_finish,
    ),
    row(
        "completions-stream-usage-last",
        Ask::CompletionsStream,
        "usage comes once, with empty choices, in the last chunk",
        "wire 2.8",
        usage_last,
    ),
    row(
        "completions-stream-usage-sum",
        Ask::CompletionsStream,
        "the counts of usage add up",
        "openapi: CompletionUsage",
        usage_sum,
    ),
    always(
        "completions-whole-status",
        Ask::CompletionsWhole,
        "a whole answer has status 200",
        SCHEMA,
        Answer::succeeds,
    ),
    always("completions-whole-end", Ask::CompletionsWhole, "the body is complete", "HTTP", Answer::ends),
    row(
        "completions-whole-object",
        Ask::CompletionsWhole,
        "id, object \"text_completion\", text and finish_reason are there",
        SCHEMA,
        whole,
    ),
    row(
        "completions-whole-usage",
        Ask::CompletionsWhole,
        "usage is there and adds up",
        "openapi: CompletionUsage",
        usage,
    ),
];

fn object(answer: &Answer) -> Verdict {
    answer.none(|frame| frame.text("/object") != "text_completion")
}

fn same_id(answer: &Answer) -> Verdict {
    same(answer, "/id")
}

fn texts(answer: &Answer) -> Verdict {
    answer.none(|frame| {
        let choices = frame.json.get("choices").and_then(Value::as_list);
        choices.is_none_or(|list| list.iter().any(|choice| !choice.get("text").is_some_and(Value::is_text)))
    })
}

fn whole(answer: &Answer) -> Verdict {
    let whole = &answer.whole;
    let holds = !whole.text("/id").is_empty()
        && whole.text("/object") == "text_completion"
        && whole.at("/choices/0/text").is_some_and(Value::is_text)
        && !whole.text("/choices/0/finish_reason").is_empty();
    Verdict::check(holds, &answer.raw)
}

fn usage(answer: &Answer) -> Verdict {
    Verdict::check(adds_up(answer.whole.get("usage")), &answer.raw)
}
