//! Checks of parameters that shape the answer: stop strings, log probabilities, choices, limits, schemas.

use super::reasoning::has_tag;
use super::{refusal, require};
use crate::conform::Answer;
use crate::doctor::chat::{Chat, error, usage};
use crate::doctor::check::{Check, Judged, Outcome, Topic};
use crate::doctor::question::{LIMIT, Question, STOP};
use crate::doctor::seen::{NotSeen, Seen};
use crate::exchange::Ended;
use crate::tree::Value;

const TOPIC: Topic = Topic::Parameters;

/// Checks of parameters.
pub(super) const CHECKS: &[Check] = &[
    TOPIC.check("stop-string", Question::Stop, &["clients that end answers by a string"], None, stop),
    TOPIC.check(
        "logprobs",
        Question::Logprobs,
        &["evaluations, such as lm-evaluation-harness"],
        Some("gives log probabilities the shape of the API, where there are any"),
        logprobs,
    ),
    TOPIC.check(
        "two-choices",
        Question::Choices,
        &["clients that ask for several answers (`n`)"],
        Some("sends one request for each choice to engines that give only one"),
        choices,
    ),
    TOPIC.check(
        "max-completion-tokens",
        Question::Limit,
        &["clients that limit answers by the newer name, such as openai-python's examples and LangChain"],
        Some("sends the name that the engine reads, where it knows the engine"),
        limit,
    ),
    TOPIC.check(
        "json-schema",
        Question::Schema,
        &["clients of structured output (OpenAI's parse, Instructor, LangChain)"],
        None,
        schema,
    ),
];

/// Returns the answer to a question, or what is wrong with it if it is refused.
fn taken<'s>(seen: &'s Seen, question: Question, name: &str) -> Result<Result<&'s Answer, Outcome>, NotSeen> {
    seen.good(Question::Stream)?;
    let answer = seen.any(question)?;
    require(answer.status != 429 && answer.status != 503, "the server was busy")?;
    if error(answer).is_some() {
        let says = format!("Requests with `{name}` {}.", refusal(answer));
        return Ok(Err(Outcome::warning(says, &answer.beginning())));
    }
    let has_form = answer.whole.is_object() || question == Question::Limit;
    require(has_form, "the answer is no JSON object")?;
    Ok(Ok(answer))
}

fn stop(seen: &Seen) -> Judged {
    let answer = match taken(seen, Question::Stop, "stop")? {
        Ok(answer) => answer,
        Err(refused) => return Ok(refused),
    };
    let chat = Chat::of(answer, 0);
    if chat.content.contains(STOP) {
        let says = format!("The stop string {STOP:?} is in the answer.");
        return Ok(Outcome::broken(says, &answer.raw));
    }
    require(
        chat.content.contains('4') && chat.finish() == "stop",
        "the answer did not come to the stop string",
    )?;
    Outcome::fine("The answer ends before the stop string.")
}

fn logprobs(seen: &Seen) -> Judged {
    let answer = match taken(seen, Question::Logprobs, "logprobs")? {
        Ok(answer) => answer,
        Err(refused) => return Ok(refused),
    };
    let entries = answer.whole.at("/choices/0/logprobs/content").and_then(Value::as_list).unwrap_or_default();
    let is_entry = |entry: &Value| entry.member("token").is_text() && entry.member("logprob").is_number();
    match entries.first() {
        Some(_) if entries.iter().all(is_entry) => Outcome::fine("Log probabilities are there."),
        Some(_) => Ok(Outcome::warning("Log probabilities have another shape.", &answer.raw)),
        None => {
            require(!Chat::of(answer, 0).is_empty(), "the answer has no text")?;
            Ok(Outcome::warning("Log probabilities are missing, although they are asked for.", &answer.raw))
        }
    }
}

fn choices(seen: &Seen) -> Judged {
    let answer = match taken(seen, Question::Choices, "n")? {
        Ok(answer) => answer,
        Err(refused) => return Ok(refused),
    };
    let count = answer.whole.at("/choices").and_then(Value::as_list).map_or(0, <[Value]>::len);
    match count {
        2 => Outcome::fine("Two choices are given where two are asked for."),
        _ => Ok(Outcome::broken(format!("With n = 2 the answer has {count} choices."), &answer.raw)),
    }
}

fn limit(seen: &Seen) -> Judged {
    let answer = match taken(seen, Question::Limit, "max_completion_tokens")? {
        Ok(answer) => answer,
        Err(refused) => return Ok(refused),
    };
    let counted = usage(answer).and_then(|(usage, _)| usage.member("completion_tokens").as_whole());
    let texts = answer.chunks().filter(|frame| frame.choice().is_some()).count();
    let is_beyond =
        counted.map_or(answer.ended == Ended::TooLong && texts as u64 > 2 * LIMIT, |count| count > LIMIT);
    if is_beyond {
        let says = format!("`max_completion_tokens` is ignored: the answer goes beyond {LIMIT} tokens.");
        let last = answer.chunks().next_back().map_or("", |frame| &frame.raw);
        return Ok(Outcome::broken(says, last));
    }
    require(Chat::of(answer, 0).is_cut(), "the answer ended before the limit")?;
    Outcome::fine("`max_completion_tokens` limits the answer.")
}

/// Returns true if a value is an integer to JSON Schema, which counts -5 and 1969.0 among them.
fn is_integer(value: &Value) -> bool {
    match value {
        Value::Whole(_) => true,
        Value::Number(number) => number.fract() == 0.0,
        _ => false,
    }
}

fn schema(seen: &Seen) -> Judged {
    let answer = match taken(seen, Question::Schema, "response_format")? {
        Ok(answer) => answer,
        Err(refused) => return Ok(refused),
    };
    let chat = Chat::of(answer, 0);
    let text = chat.content.trim();
    let ended = chat.finish() == "stop" && !text.is_empty();
    require(ended, "the answer was cut, or has no text")?;
    require(!text.starts_with('<') && !has_tag(text), "reasoning is left in the text")?;
    let value = Value::read(text);
    let is_alone = matches!(&value, Value::Object(members) if members.len() == 1);
    match is_alone && is_integer(value.member("year")) {
        true => Outcome::fine("An answer keeps to a JSON schema."),
        false => Ok(Outcome::broken(
            "An answer does not keep to the JSON schema that was asked for.",
            &chat.content,
        )),
    }
}
