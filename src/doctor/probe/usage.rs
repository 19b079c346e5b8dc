//! Checks of usage.

use super::require;
use crate::conform::Frame;
use crate::doctor::chat::{Chat, error, usage};
use crate::doctor::check::{Check, Topic, checks};
use crate::doctor::outcome::{Judged, Outcome};
use crate::doctor::question::Question;
use crate::doctor::seen::Seen;
use crate::tree::{Value, View};

/// Checks of usage.
pub(super) const CHECKS: &[Check] = checks! { Usage:
    "usage-stream", Stream, ["clients that count tokens or costs of streams (LangChain, Langfuse)"],
        mends "sends usage last, in a chunk without choices, where the engine tells it at all" => stream;
    "usage-unasked", StreamPlain, ["clients that take the first choice of every chunk: they fail on a chunk without choices"],
        mends "sends usage only where it is asked for" => unasked;
    "usage-sum", Whole, ["clients that count tokens or costs"],
        mends "completes the counts" => sum;
    "usage-cached", Whole, ["people who want to see what the prefix cache saves"] => cached;
    "usage-reasoning", Whole, ["people who want to see what reasoning costs"],
        mends "puts `reasoning_tokens` into `completion_tokens_details` where the engine tells it elsewhere"
            => reasoning;
};

fn stream(seen: &Seen) -> Judged {
    let answer = seen.good(Question::Stream)?;
    require(
        error(answer).is_none() && !answer.frames.is_empty(),
        "there is no complete stream",
    )?;
    let Some((_, raw)) = usage(answer) else {
        let last = answer.chunks().next_back().map_or("", |frame| &frame.raw);
        return Ok(Outcome::warning(
            "The stream has no usage, although `stream_options` asks for it.",
            last,
        ));
    };
    let counted = answer
        .chunks()
        .filter(|frame| frame.json.member("usage").is_object())
        .count();
    let is_apart = |frame: &Frame| {
        frame
            .json
            .member("choices")
            .as_array()
            .is_some_and(Vec::is_empty)
    };
    let last = answer.chunks().next_back();
    if counted > 1 {
        return Ok(Outcome::note(
            format!("{counted} chunks of the stream have usage, not the last alone."),
            raw,
        ));
    }
    if !last.is_some_and(|frame| frame.raw == raw && is_apart(frame)) {
        return Ok(Outcome::note(
            "Usage is on a chunk with a choice, or not on the last chunk.",
            raw,
        ));
    }
    Outcome::fine("Usage comes last, in a chunk of its own.")
}

fn unasked(seen: &Seen) -> Judged {
    let answer = seen.good(Question::StreamPlain)?;
    require(
        error(answer).is_none() && !answer.frames.is_empty(),
        "there is no complete stream",
    )?;
    let empty = |frame: &&Frame| {
        frame
            .json
            .member("choices")
            .as_array()
            .is_some_and(Vec::is_empty)
    };
    if let Some(frame) = answer.chunks().find(empty) {
        let says = "A stream without `stream_options` has a chunk without choices.";
        return Ok(Outcome::warning(says, &frame.raw));
    }
    match answer
        .chunks()
        .find(|frame| frame.json.member("usage").is_object())
    {
        Some(frame) => Ok(Outcome::note(
            "A stream without `stream_options` has usage.",
            &frame.raw,
        )),
        None => Outcome::fine("There is no usage where it is not asked for."),
    }
}

fn sum(seen: &Seen) -> Judged {
    let answer = seen.good(Question::Whole)?;
    let Some((usage, raw)) = usage(answer) else {
        return Ok(Outcome::warning(
            "A whole answer has no usage.",
            &answer.raw,
        ));
    };
    let count = |key| usage.member(key).as_u64();
    match (
        count("prompt_tokens"),
        count("completion_tokens"),
        count("total_tokens"),
    ) {
        (Some(prompt), Some(completion), Some(total))
            if prompt.saturating_add(completion) == total =>
        {
            Outcome::fine("The counts of tokens add up.")
        }
        _ => {
            let at = raw
                .find("\"usage\"")
                .and_then(|at| raw.get(at..))
                .unwrap_or(raw);
            Ok(Outcome::warning(
                "The counts of tokens are missing, or do not add up.",
                at,
            ))
        }
    }
}

/// Returns the usage of the stream or of the whole answer, from its key on.
fn any_usage(seen: &Seen) -> Judged<(&Value, &str)> {
    let answers = [Question::Whole, Question::Stream]
        .into_iter()
        .filter_map(|question| seen.good(question).ok());
    let found = answers.into_iter().find_map(usage);
    let (usage, raw) = found.ok_or_else(|| Outcome::not_seen("no answer has usage"))?;
    Ok((
        usage,
        raw.rfind("\"usage\"")
            .and_then(|at| raw.get(at..))
            .unwrap_or(raw),
    ))
}

fn cached(seen: &Seen) -> Judged {
    let (own, raw) = any_usage(seen)?;
    let of = |usage: &Value| {
        usage
            .pointer("/prompt_tokens_details/cached_tokens")
            .and_then(Value::as_u64)
    };
    if of(own).is_some() {
        // Each of these asks what another has asked before.
        let questions = [
            Question::Stream,
            Question::Whole,
            Question::ToolStream,
            Question::ToolWhole,
        ];
        let mut told = questions
            .iter()
            .filter_map(|question| of(usage(seen.good(*question).ok()?)?.0));
        require(
            told.any(|count| count > 0),
            "it is 0 in every answer: nothing came from the cache, or 0 stands in for what is not told",
        )?;
        return Outcome::fine("Usage tells how many tokens of the prompt came from the cache.");
    }
    let says =
        "Usage does not tell how many tokens of the prompt came from the cache (`cached_tokens`).";
    Ok(Outcome::note(says, raw).with_flag(seen.server.flags().cached_tokens.map(str::to_owned)))
}

fn reasoning(seen: &Seen) -> Judged {
    let (usage, raw) = any_usage(seen)?;
    let questions = [Question::Whole, Question::Stream];
    let reasons = questions.iter().any(|question| {
        seen.good(*question)
            .is_ok_and(|answer| !Chat::of(answer, 0).reasoning.is_empty())
    });
    if !reasons {
        return Err(super::reasoning::none(seen));
    }
    if usage
        .pointer("/completion_tokens_details/reasoning_tokens")
        .is_some_and(Value::is_u64)
    {
        return Outcome::fine("Usage tells the tokens of reasoning.");
    }
    let says = match usage.member("reasoning_tokens").is_u64() {
        true => "Usage tells the tokens of reasoning outside of `completion_tokens_details`.",
        false => "Usage does not tell the tokens of reasoning.",
    };
    Ok(Outcome::note(says, raw))
}
