//! Checks of streams of Chat Completions.

use super::{REFUSED, require, tail};
use crate::conform::Answer;
use crate::doctor::chat::{Chat, error};
use crate::doctor::check::{Check, Judged, Outcome, Table, Topic};
use crate::doctor::question::Question;
use crate::doctor::seen::{NotSeen, Seen};
use crate::exchange::Ended;
use crate::tree::Value;
use std::collections::BTreeSet;

const TOPIC: Topic = Topic::Streams;

/// Checks of streams.
pub(super) const CHECKS: &[Check] = &[
    TOPIC.check(
        "stream",
        Question::Stream,
        &["every client that streams"],
        Some("turns errors into the API's form, and ends a broken stream with an error"),
        stream,
    ),
    TOPIC.check(
        "whole",
        Question::Whole,
        &["every client that does not stream"],
        Some("turns errors into the API's form, and ends a broken answer with an error"),
        whole,
    ),
    TOPIC.check(
        "finish-missing",
        Question::Stream,
        &["clients that tell a complete answer from one that broke off by its finish_reason"],
        Some("ends such a stream with an error, or with `missing_finish = \"stop\"` as complete"),
        finish_missing,
    ),
    TOPIC.check(
        "done-missing",
        Question::Stream,
        &["clients that wait for [DONE]"],
        Some("adds [DONE] where every choice has its finish_reason"),
        done_missing,
    ),
    TOPIC.check(
        "finish-merged",
        Question::Stream,
        &["clients that stop reading at finish_reason: they lose the last words"],
        Some("sends the text first, and the finish_reason in a chunk of its own"),
        merged,
    ),
    TOPIC.check(
        "finish-merged-at-once",
        Question::Eight,
        &["clients that stop reading at finish_reason: they lose the last words"],
        Some("sends the text first, and the finish_reason in a chunk of its own"),
        merged_at_once,
    ),
    TOPIC.check(
        "finish-repeated",
        Question::Stream,
        &["clients that stop reading at the first finish_reason, or count them"],
        Some("sends one finish_reason, behind all text"),
        repeated,
    ),
    TOPIC.check(
        "at-once",
        Question::Eight,
        &["clients that send requests at once"],
        Some("asks another engine where there are several, and answers 429 or 503 in the API's form"),
        at_once,
    ),
    TOPIC.check(
        "role-first",
        Question::Stream,
        &["clients that take the role from the first chunk"],
        Some("sends the role first, and once"),
        role_first,
    ),
    TOPIC.check(
        "envelope",
        Question::Stream,
        &["clients that group chunks by their id or time"],
        Some("gives every chunk the id, time and model of the first"),
        envelope,
    ),
    TOPIC.check(
        "extra-keys",
        Question::Stream,
        &["strict readers that are generated from the published schema"],
        Some("removes keys outside the API (`unknown_fields`)"),
        extra_keys,
    ),
];

fn stream(seen: &Seen) -> Judged {
    if let Some(failure) = seen.failure(Question::Stream) {
        return Ok(Outcome::broken("A chat stream gets no answer.", &failure.why));
    }
    let answer = seen.any(Question::Stream)?;
    require(!matches!(answer.status, 401 | 403), REFUSED)?;
    let broken = |says: &str, evidence: &str| Ok(Outcome::broken(says, evidence));
    if let Some(redirect) = &answer.redirect {
        return broken(&format!("A chat stream is redirected: {redirect}."), &answer.beginning());
    }
    match () {
        () if answer.status != 200 => {
            broken(&format!("A chat stream is refused with status {}.", answer.status), &answer.beginning())
        }
        () if !answer.content_type.starts_with("text/event-stream") => {
            broken("A chat stream has another content type than text/event-stream.", &answer.beginning())
        }
        () if error(answer).is_some() => {
            broken("A chat stream ends with an error.", error(answer).unwrap_or_default())
        }
        () if answer.ended != Ended::Clean => {
            // Of a stream that never began, the head is all there is to show.
            let shown = if answer.raw.is_empty() { answer.beginning() } else { tail(&answer.raw) };
            broken(&format!("A chat stream breaks off: {}.", answer.ended.words()), &shown)
        }
        () if answer.unreadable.is_some() => broken(
            "A chat stream cannot be read as events.",
            answer.unreadable.as_deref().unwrap_or_default(),
        ),
        () if answer.frames.is_empty() => broken("A chat stream has no events.", &answer.beginning()),
        () if answer.chunks().any(|frame| !frame.json.is_object()) => {
            let bad = answer.chunks().find(|frame| !frame.json.is_object());
            broken("A chat stream has an event that is no JSON object.", bad.map_or("", |frame| &frame.raw))
        }
        () => Outcome::fine("Chat streams work."),
    }
}

fn whole(seen: &Seen) -> Judged {
    if let Some(failure) = seen.failure(Question::Whole) {
        seen.good(Question::Stream)?;
        return Ok(Outcome::broken("A whole answer does not come, although a stream does.", &failure.why));
    }
    let answer = seen.any(Question::Whole)?;
    let broken = |says: &str| Ok(Outcome::broken(says, &answer.beginning()));
    match () {
        () if answer.status != 200 => {
            broken(&format!("A chat without a stream is refused with status {}.", answer.status))
        }
        () if answer.ended != Ended::Clean => {
            broken(&format!("A whole answer breaks off: {}.", answer.ended.words()))
        }
        () if answer.unreadable.is_some() => broken(&format!(
            "A whole answer cannot be read: {}.",
            answer.unreadable.as_deref().unwrap_or_default()
        )),
        () if !answer.whole.is_object() => broken("A whole answer is no JSON object."),
        () if answer.whole.at("/choices/0/message").is_none() => broken("A whole answer has no message."),
        () => Outcome::fine("Whole answers work."),
    }
}

/// Returns the stream and its choice, if it is a complete one without an error.
fn complete(seen: &Seen) -> Result<(&Answer, Chat), NotSeen> {
    let answer = seen.good(Question::Stream)?;
    require(error(answer).is_none(), "the stream ended with an error")?;
    require(answer.chunks().next().is_some(), "there is no stream to look at")?;
    Ok((answer, Chat::of(answer, 0)))
}

fn finish_missing(seen: &Seen) -> Judged {
    let (answer, chat) = complete(seen)?;
    if chat.finishes.is_empty() {
        let says = "The stream ends without a finish_reason.";
        let outcome = Outcome::broken(says, &tail(&answer.raw));
        return Ok(outcome.with(Table::Wire, "missing_finish", "\"stop\""));
    }
    Outcome::fine("The stream ends with a finish_reason.")
}

fn done_missing(seen: &Seen) -> Judged {
    let (answer, _) = complete(seen)?;
    match answer.frames.last() {
        Some(frame) if frame.is_done() => Outcome::fine("[DONE] comes last."),
        _ => Ok(Outcome::warning("The stream does not end with [DONE].", &tail(&answer.raw))),
    }
}

fn merged(seen: &Seen) -> Judged {
    let (_, chat) = complete(seen)?;
    require(!chat.finishes.is_empty() && !chat.is_empty(), "the stream has no text or no finish_reason")?;
    match chat.merged {
        Some(raw) => {
            let says = "The last text and the finish_reason come in one chunk.";
            Ok(Outcome::warning(says, &raw))
        }
        None => Outcome::fine("The finish_reason has a chunk of its own."),
    }
}

fn merged_at_once(seen: &Seen) -> Judged {
    let answers = seen.all(Question::Eight).filter_map(|answer| answer.as_ref().ok());
    let chats: Vec<_> =
        answers.filter(|answer| answer.status == 200).map(|answer| Chat::of(answer, 0)).collect();
    let count = chats.iter().filter(|chat| !chat.finishes.is_empty() && !chat.is_empty()).count();
    require(count > 0, "no stream has text and a finish_reason")?;
    let merged: Vec<_> = chats.iter().filter_map(|chat| chat.merged.as_deref()).collect();
    match merged.first() {
        Some(raw) => {
            let says = format!(
                "Of {count} streams at once, {} have the last text and the finish_reason in one chunk.",
                merged.len()
            );
            Ok(Outcome::warning(says, raw))
        }
        None => Outcome::fine("The finish_reason has a chunk of its own under eight streams at once, too."),
    }
}

fn repeated(seen: &Seen) -> Judged {
    let (_, chat) = complete(seen)?;
    match chat.finishes.as_slice() {
        [] => Err(NotSeen::because("there is no finish_reason")),
        [_] => Outcome::fine("There is one finish_reason."),
        [_, (_, second), ..] => {
            Ok(Outcome::warning(format!("There are {} finish reasons.", chat.finishes.len()), second))
        }
    }
}

fn at_once(seen: &Seen) -> Judged {
    let answers: Vec<_> = seen.all(Question::Eight).collect();
    require(!answers.is_empty(), "it was not asked")?;
    seen.good(Question::Stream)?;
    let bad: Vec<_> = answers.iter().filter_map(|answer| trouble(answer.as_ref().ok())).collect();
    match bad.first() {
        None => Outcome::fine(format!("{} streams at once are all answered.", answers.len())),
        Some(evidence) => {
            let says =
                format!("Of {} streams at once, {} are not answered to their end.", answers.len(), bad.len());
            Ok(Outcome::warning(says, evidence))
        }
    }
}

/// Returns what is wrong with one of several streams, if anything is.
fn trouble(answer: Option<&Answer>) -> Option<String> {
    let Some(answer) = answer else { return Some("no answer".to_owned()) };
    match error(answer) {
        Some(error) => Some(format!("{} {error}", answer.status)),
        None if answer.ended != Ended::Clean => Some(answer.ended.words().to_owned()),
        None => None,
    }
}

fn role_first(seen: &Seen) -> Judged {
    let (answer, _) = complete(seen)?;
    let first = answer.chunks().find(|frame| frame.choice().is_some());
    let first = first.ok_or_else(|| NotSeen::because("no chunk has a choice"))?;
    match first.text("/choices/0/delta/role") {
        "assistant" => Outcome::fine("The first chunk has the role."),
        _ => Ok(Outcome::note("The first chunk of the stream has no role.", &first.raw)),
    }
}

fn envelope(seen: &Seen) -> Judged {
    let (answer, _) = complete(seen)?;
    let mut changing = Vec::new();
    for key in ["id", "created", "model"] {
        let mut values: Vec<&Value> = answer.chunks().filter_map(|frame| frame.json.get(key)).collect();
        values.dedup();
        if let [first, second, ..] = values.as_slice() {
            changing.push((key, format!("{key}: {} and then {}", plain(first), plain(second))));
        }
    }
    if changing.is_empty() {
        return Outcome::fine("Every chunk has the same id, time and model.");
    }
    let (keys, values): (Vec<_>, Vec<_>) = changing.into_iter().unzip();
    Ok(Outcome::note(format!("Within one stream, {} changes.", keys.join(" and ")), &values.join("; ")))
}

/// Returns a text or a number for people.
fn plain(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("{text:?}"),
        Value::Whole(number) => number.to_string(),
        Value::Number(number) => number.to_string(),
        _ => "no text or number".to_owned(),
    }
}

/// Keys of chunks, choices and deltas that the API has, and the two names of reasoning, which have their own check.
const CHUNK: &[&str] = &[
    "id",
    "object",
    "created",
    "model",
    "choices",
    "usage",
    "system_fingerprint",
    "service_tier",
    "obfuscation",
];
const CHOICE: &[&str] = &["index", "delta", "finish_reason", "logprobs"];
const DELTA: &[&str] =
    &["role", "content", "refusal", "tool_calls", "function_call", "reasoning_content", "reasoning"];

fn extra_keys(seen: &Seen) -> Judged {
    let (answer, _) = complete(seen)?;
    let mut extra = BTreeSet::new();
    let mut raw = "";
    for frame in answer.chunks() {
        let before = extra.len();
        collect(&frame.json, CHUNK, "", &mut extra);
        if let Some(choice) = frame.choice() {
            collect(choice, CHOICE, "choices[].", &mut extra);
            collect(choice.member("delta"), DELTA, "choices[].delta.", &mut extra);
        }
        if before == 0 && !extra.is_empty() {
            raw = &frame.raw;
        }
    }
    if extra.is_empty() {
        return Outcome::fine("No chunk has keys outside the API.");
    }
    let names: Vec<_> = extra.iter().take(8).map(String::as_str).collect();
    Ok(Outcome::note(format!("Chunks have keys outside the API: {}.", names.join(", ")), raw))
}

/// Adds the keys of an object that are not among the known ones.
fn collect(value: &Value, known: &[&str], path: &str, extra: &mut BTreeSet<String>) {
    let Value::Object(members) = value else { return };
    let unknown = members.iter().filter(|(key, _)| !known.contains(key));
    extra.extend(unknown.map(|(key, _)| format!("{path}{key}")));
}
