//! Checks of streams of Chat Completions.

use super::{REFUSED, require, tail};
use crate::conform::Answer;
use crate::doctor::chat::{Chat, error};
use crate::doctor::check::{Check, Topic, checks};
use crate::doctor::outcome::{Judged, Outcome, Table};
use crate::doctor::question::Question;
use crate::doctor::seen::Seen;
use crate::exchange::Ended;
use crate::tree::{Value, View};
use std::collections::BTreeSet;

/// Checks of streams.
pub(super) const CHECKS: &[Check] = checks! { Streams:
    "stream", Stream, ["every client that streams"],
        mends "turns errors into the API's form, and ends a broken stream with an error" => stream;
    "whole", Whole, ["every client that does not stream"],
        mends "turns errors into the API's form, and ends a broken answer with an error" => whole;
    "finish-missing", Stream, ["clients that tell a complete answer from one that broke off by its finish_reason"],
        mends "ends such a stream with an error, or with `missing_finish = \"stop\"` as complete" => finish_missing;
    "done-missing", Stream, ["clients that wait for [DONE]"],
        mends "adds [DONE] where every choice has its finish_reason" => done_missing;
    "finish-merged", Stream, ["clients that stop reading at finish_reason: they lose the last words"],
        mends "sends the text first, and the finish_reason in a chunk of its own" => merged;
    "finish-merged-at-once", Eight, ["clients that stop reading at finish_reason: they lose the last words"],
        mends "sends the text first, and the finish_reason in a chunk of its own" => merged_at_once;
    "finish-repeated", Stream, ["clients that stop reading at the first finish_reason, or count them"],
        mends "sends one finish_reason, after all text" => repeated;
    "at-once", Eight, ["clients that send requests at once"],
        mends "asks another engine where there are several, and answers 429 or 503 in the API's form" => at_once;
    "role-first", Stream, ["clients that take the role from the first chunk"],
        mends "sends the role first, and once" => role_first;
    "envelope", Stream, ["clients that group chunks by their id or time"],
        mends "gives every chunk the id, time and model of the first" => envelope;
    "extra-keys", Stream, ["strict readers that are generated from the published schema"],
        mends "removes keys outside the API (`unknown_fields`)" => extra_keys;
};

fn stream(seen: &Seen) -> Judged {
    if let Some(failure) = seen.failure(Question::Stream) {
        return Ok(Outcome::broken(
            "A chat stream gets no answer.",
            &failure.why,
        ));
    }
    let answer = seen.any(Question::Stream)?;
    require(!matches!(answer.status, 401 | 403), REFUSED)?;
    let head = answer.beginning();
    // Of a stream that never began, the head is all there is to show.
    let end = if answer.raw.is_empty() {
        head.as_str()
    } else {
        tail(&answer.raw)
    };
    let is_stream = answer.content_type.starts_with("text/event-stream");
    let bad = answer.chunks().find(|frame| !frame.json.is_object());
    let faults = [
        answer
            .redirect
            .as_ref()
            .map(|redirect| (format!("is redirected: {redirect}"), head.as_str())),
        (answer.status != 200).then(|| {
            (
                format!("is refused with status {}", answer.status),
                head.as_str(),
            )
        }),
        (!is_stream).then(|| {
            (
                "has another content type than text/event-stream".to_owned(),
                head.as_str(),
            )
        }),
        error(answer).map(|error| ("ends with an error".to_owned(), error)),
        (answer.ended != Ended::Clean)
            .then(|| (format!("breaks off: {}", answer.ended.name()), end)),
        answer
            .unreadable
            .as_deref()
            .map(|why| ("cannot be read as events".to_owned(), why)),
        answer
            .frames
            .is_empty()
            .then(|| ("has no events".to_owned(), head.as_str())),
        bad.map(|frame| {
            (
                "has an event that is no JSON object".to_owned(),
                frame.raw.as_str(),
            )
        }),
    ];
    match faults.into_iter().flatten().next() {
        Some((says, shown)) => Ok(Outcome::broken(format!("A chat stream {says}."), shown)),
        None => Outcome::fine("Chat streams work."),
    }
}

fn whole(seen: &Seen) -> Judged {
    if let Some(failure) = seen.failure(Question::Whole) {
        seen.good(Question::Stream)?;
        return Ok(Outcome::broken(
            "A whole answer does not come, although a stream does.",
            &failure.why,
        ));
    }
    let answer = seen.any(Question::Whole)?;
    let refused = format!(
        "A chat without a stream is refused with status {}.",
        answer.status
    );
    let faults = [
        (answer.status != 200).then_some(refused),
        (answer.ended != Ended::Clean)
            .then(|| format!("A whole answer breaks off: {}.", answer.ended.name())),
        answer
            .unreadable
            .as_ref()
            .map(|why| format!("A whole answer cannot be read: {why}.")),
        (!answer.whole.is_object()).then(|| "A whole answer is no JSON object.".to_owned()),
        answer
            .whole
            .fits("/choices/0/message absent")
            .then(|| "A whole answer has no message.".to_owned()),
    ];
    match faults.into_iter().flatten().next() {
        Some(says) => Ok(Outcome::broken(says, &answer.beginning())),
        None => Outcome::fine("Whole answers work."),
    }
}

/// Returns the stream and its choice, if it is a complete one without an error.
fn complete(seen: &Seen) -> Judged<(&Answer, Chat)> {
    let answer = seen.good(Question::Stream)?;
    require(error(answer).is_none(), "the stream ended with an error")?;
    require(
        answer.chunks().next().is_some(),
        "there is no stream to look at",
    )?;
    Ok((answer, Chat::of(answer, 0)))
}

fn finish_missing(seen: &Seen) -> Judged {
    let (answer, chat) = complete(seen)?;
    if chat.finishes.is_empty() {
        let says = "The stream ends without a finish_reason.";
        let outcome = Outcome::broken(says, tail(&answer.raw));
        return Ok(outcome.with(Table::Wire, "missing_finish", "\"stop\""));
    }
    Outcome::fine("The stream ends with a finish_reason.")
}

fn done_missing(seen: &Seen) -> Judged {
    let (answer, _) = complete(seen)?;
    match answer.frames.last() {
        Some(frame) if frame.is_done() => Outcome::fine("[DONE] comes last."),
        _ => Ok(Outcome::warning(
            "The stream does not end with [DONE].",
            tail(&answer.raw),
        )),
    }
}

fn merged(seen: &Seen) -> Judged {
    let (_, chat) = complete(seen)?;
    require(
        !chat.finishes.is_empty() && !chat.is_empty(),
        "the stream has no text or no finish_reason",
    )?;
    match chat.merged {
        Some(raw) => {
            let says = "The last text and the finish_reason come in one chunk.";
            Ok(Outcome::warning(says, &raw))
        }
        None => Outcome::fine("The finish_reason has a chunk of its own."),
    }
}

fn merged_at_once(seen: &Seen) -> Judged {
    let answers = seen
        .all(Question::Eight)
        .filter_map(|answer| answer.as_ref().ok());
    let chats: Vec<_> = answers
        .filter(|answer| answer.status == 200)
        .map(|answer| Chat::of(answer, 0))
        .collect();
    let count = chats
        .iter()
        .filter(|chat| !chat.finishes.is_empty() && !chat.is_empty())
        .count();
    require(count > 0, "no stream has text and a finish_reason")?;
    let merged: Vec<_> = chats
        .iter()
        .filter_map(|chat| chat.merged.as_deref())
        .collect();
    match merged.first() {
        Some(raw) => {
            let says = format!(
                "Of {count} streams at once, {} have the last text and the finish_reason in one chunk.",
                merged.len()
            );
            Ok(Outcome::warning(says, raw))
        }
        None => Outcome::fine(
            "The finish_reason has a chunk of its own under eight streams at once, too.",
        ),
    }
}

fn repeated(seen: &Seen) -> Judged {
    let (_, chat) = complete(seen)?;
    match chat.finishes.as_slice() {
        [] => Err(Outcome::not_seen("there is no finish_reason")),
        [_] => Outcome::fine("There is one finish_reason."),
        [_, (_, second), ..] => Ok(Outcome::warning(
            format!("There are {} finish reasons.", chat.finishes.len()),
            second,
        )),
    }
}

fn at_once(seen: &Seen) -> Judged {
    let answers: Vec<_> = seen.all(Question::Eight).collect();
    require(!answers.is_empty(), "it was not asked")?;
    seen.good(Question::Stream)?;
    let bad: Vec<_> = answers
        .iter()
        .filter_map(|answer| trouble(answer.as_ref().ok()))
        .collect();
    match bad.first() {
        None => Outcome::fine(format!(
            "{} streams at once are all answered.",
            answers.len()
        )),
        Some(evidence) => {
            let says = format!(
                "Of {} streams at once, {} are not answered to their end.",
                answers.len(),
                bad.len()
            );
            Ok(Outcome::warning(says, evidence))
        }
    }
}

/// Returns what is wrong with one of several streams, if anything is.
fn trouble(answer: Option<&Answer>) -> Option<String> {
    let Some(answer) = answer else {
        return Some("no answer".to_owned());
    };
    match error(answer) {
        Some(error) => Some(format!("{} {error}", answer.status)),
        None if answer.ended != Ended::Clean => Some(answer.ended.name().to_owned()),
        None => None,
    }
}

fn role_first(seen: &Seen) -> Judged {
    let (answer, _) = complete(seen)?;
    let first = answer.chunks().find(|frame| frame.choice().is_some());
    let first = first.ok_or_else(|| Outcome::not_seen("no chunk has a choice"))?;
    match first.text("/choices/0/delta/role") {
        "assistant" => Outcome::fine("The first chunk has the role."),
        _ => Ok(Outcome::note(
            "The first chunk of the stream has no role.",
            &first.raw,
        )),
    }
}

fn envelope(seen: &Seen) -> Judged {
    let (answer, _) = complete(seen)?;
    let mut changing = Vec::new();
    for key in ["id", "created", "model"] {
        let mut values: Vec<&Value> = answer
            .chunks()
            .filter_map(|frame| frame.json.get(key))
            .collect();
        values.dedup();
        if let [first, second, ..] = values.as_slice() {
            changing.push((
                key,
                format!("{key}: {} and then {}", plain(first), plain(second)),
            ));
        }
    }
    if changing.is_empty() {
        return Outcome::fine("Every chunk has the same id, time and model.");
    }
    let (keys, values): (Vec<_>, Vec<_>) = changing.into_iter().unzip();
    Ok(Outcome::note(
        format!("Within one stream, {} changes.", keys.join(" and ")),
        &values.join("; "),
    ))
}

/// Returns a text or a number for people.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Number(number) => number.to_string(),
        _ => "no text or number".to_owned(),
    }
}

/// Keys of chunks, choices and deltas that the API has, and the two names of reasoning, which have their own check.
const CHUNK: &str =
    "id object created model choices usage system_fingerprint service_tier obfuscation";
const CHOICE: &str = "index delta finish_reason logprobs";
const DELTA: &str = "role content refusal tool_calls function_call reasoning_content reasoning";

fn extra_keys(seen: &Seen) -> Judged {
    let (answer, _) = complete(seen)?;
    let mut extra = BTreeSet::new();
    let mut raw = "";
    for frame in answer.chunks() {
        let before = extra.len();
        collect(&frame.json, CHUNK, "", &mut extra);
        if let Some(choice) = frame.choice() {
            collect(choice, CHOICE, "choices[].", &mut extra);
            collect(
                choice.member("delta"),
                DELTA,
                "choices[].delta.",
                &mut extra,
            );
        }
        if before == 0 && !extra.is_empty() {
            raw = &frame.raw;
        }
    }
    if extra.is_empty() {
        return Outcome::fine("No chunk has keys outside the API.");
    }
    let names: Vec<_> = extra.iter().take(8).map(String::as_str).collect();
    Ok(Outcome::note(
        format!("Chunks have keys outside the API: {}.", names.join(", ")),
        raw,
    ))
}

/// Adds the keys of an object that are not among the known ones.
fn collect(value: &Value, known: &str, path: &str, extra: &mut BTreeSet<String>) {
    let Value::Object(members) = value else {
        return;
    };
    let unknown = members
        .iter()
        .filter(|(key, _)| !known.split(' ').any(|name| name == *key));
    extra.extend(unknown.map(|(key, _)| format!("{path}{key}")));
}
