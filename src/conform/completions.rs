//! Rows of Completions.

use super::answer::Answer;
use super::chat::{COUNTS, adds_up, done, one_finish, same, same_created, usage_last, usage_sum};
use super::requests::SuiteRequest;
use super::row::{Row, rows};
use super::verdict::Verdict;
use crate::tree::{Value, View};

const SCHEMA: &str = "openapi: CreateCompletionResponse; wire 2.11";

/// Rows of Completions.
pub(super) const ROWS: &[Row] = rows! {
    CompletionsStream "completions-stream" {
        "status", "a stream answers 200", SCHEMA, Answer::succeeds;
        "end", "the stream ends by itself, and HTTP says so", "wire 3.3", Answer::ends;
        "content-type", "the content type is text/event-stream", "wire 8.2", Answer::is_stream;
        "framing", "the data of each event is one JSON object, or [DONE]", "wire 8.2", Answer::is_framed;
        "done", "[DONE] comes once, and last", "wire 2.11", done;
        "object", "each chunk has object \"text_completion\"", SCHEMA,
            |answer| answer.each_fits("/object =text_completion");
        "id", "each chunk has the same id, which is not empty", "wire 1.7", |answer| same(answer, "/id");
        "created", "each chunk has the same time in seconds", "wire 1.7", same_created;
        "text", "each choice has text that is a string", SCHEMA, texts;
        "one-finish", "each choice has one finish_reason, a known one", "wire 2.11", one_finish;
        "usage-last", "usage comes once, with empty choices, in the last chunk", "wire 2.8", usage_last;
        "usage-sum", "the counts of usage add up", "openapi: CompletionUsage", usage_sum;
    }
    CompletionsWhole "completions-whole" {
        "status", "a whole answer has status 200", SCHEMA, Answer::succeeds;
        "end", "the body is complete", "HTTP", Answer::ends;
        "object", "id, object \"text_completion\", text and finish_reason are there", SCHEMA,
            |answer| answer.fits("/id text, /object =text_completion, /choices/0/text string, /choices/0/finish_reason text");
        "usage", "usage is there and adds up", "openapi: CompletionUsage",
            |answer| Verdict::check(adds_up(answer.whole.member("usage"), COUNTS), &answer.raw);
    }
};

fn texts(answer: &Answer) -> Verdict {
    let is_good = |choice: &Value| choice.member("text").is_string();
    answer.none(|frame| {
        !frame.json.member("choices").is_array() || !frame.json.list("/choices").iter().all(is_good)
    })
}
