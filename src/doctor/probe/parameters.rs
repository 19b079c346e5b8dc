//! Checks of parameters that shape the answer: stop strings, log probabilities, choices, limits, schemas.

use super::reasoning::has_tag;
use super::{refusal, require};
use crate::conform::Answer;
use crate::doctor::chat::{Chat, error, usage};
use crate::doctor::check::{Check, Topic, checks};
use crate::doctor::outcome::{Judged, Outcome};
use crate::doctor::question::{LIMIT, Question, STOP};
use crate::doctor::seen::Seen;
use crate::exchange::Ended;
use crate::tree::{Value, View, read};

/// Checks of parameters.
pub(super) const CHECKS: &[Check] = checks! { Parameters:
    "stop-string", Stop, ["clients that end answers by a string"] => stop;
    "logprobs", Logprobs, ["evaluations, such as lm-evaluation-harness"],
        mends "gives log probabilities the shape of the API, where there are any" => logprobs;
    "two-choices", Choices, ["clients that ask for several answers (`n`)"],
        mends "sends one request for each choice to engines that give only one" => choices;
    "max-completion-tokens", Limit, ["clients that limit answers by the newer name, such as openai-python's examples and LangChain"],
        mends "sends the name that the engine reads, where it knows the engine" => limit;
    "json-schema", Schema, ["clients of structured output (OpenAI's parse, Instructor, LangChain)"]
        => schema;
};

/// Returns the answer to a question, or what is wrong with it if it is refused.
fn taken<'s>(seen: &'s Seen, question: Question, name: &str) -> Judged<&'s Answer> {
    seen.good(Question::Stream)?;
    let answer = seen.any(question)?;
    require(
        answer.status != 429 && answer.status != 503,
        "the server was busy",
    )?;
    if error(answer).is_some() {
        let says = format!("Requests with `{name}` {}.", refusal(answer));
        return Err(Outcome::warning(says, &answer.beginning()));
    }
    let has_form = answer.whole.is_object() || question == Question::Limit;
    require(has_form, "the answer is no JSON object")?;
    Ok(answer)
}

fn stop(seen: &Seen) -> Judged {
    let answer = taken(seen, Question::Stop, "stop")?;
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
    let answer = taken(seen, Question::Logprobs, "logprobs")?;
    let entries = answer.whole.list("/choices/0/logprobs/content");
    let is_entry =
        |entry: &Value| entry.member("token").is_string() && entry.member("logprob").is_number();
    match entries.first() {
        Some(_) if entries.iter().all(is_entry) => Outcome::fine("Log probabilities are there."),
        Some(_) => Ok(Outcome::warning(
            "Log probabilities have another shape.",
            &answer.raw,
        )),
        None => {
            require(!Chat::of(answer, 0).is_empty(), "the answer has no text")?;
            Ok(Outcome::warning(
                "Log probabilities are missing, although they are asked for.",
                &answer.raw,
            ))
        }
    }
}

fn choices(seen: &Seen) -> Judged {
    let answer = taken(seen, Question::Choices, "n")?;
    let count = answer.whole.list("/choices").len();
    match count {
        2 => Outcome::fine("Two choices are given where two are asked for."),
        _ => Ok(Outcome::broken(
            format!("With n = 2 the answer has {count} choices."),
            &answer.raw,
        )),
    }
}

fn limit(seen: &Seen) -> Judged {
    let answer = taken(seen, Question::Limit, "max_completion_tokens")?;
    let counted = usage(answer).and_then(|(usage, _)| usage.member("completion_tokens").as_u64());
    let texts = answer
        .chunks()
        .filter(|frame| frame.choice().is_some())
        .count();
    let is_beyond = counted.map_or(
        answer.ended == Ended::TooLong && texts as u64 > 2 * LIMIT,
        |count| count > LIMIT,
    );
    if is_beyond {
        let says =
            format!("`max_completion_tokens` is ignored: the answer goes beyond {LIMIT} tokens.");
        let last = answer.chunks().next_back().map_or("", |frame| &frame.raw);
        return Ok(Outcome::broken(says, last));
    }
    require(
        Chat::of(answer, 0).is_cut(),
        "the answer ended before the limit",
    )?;
    Outcome::fine("`max_completion_tokens` limits the answer.")
}

fn schema(seen: &Seen) -> Judged {
    let answer = taken(seen, Question::Schema, "response_format")?;
    let chat = Chat::of(answer, 0);
    let text = chat.content.trim();
    let ended = chat.finish() == "stop" && !text.is_empty();
    require(ended, "the answer was cut, or has no text")?;
    require(
        !text.starts_with('<') && !has_tag(text),
        "reasoning is left in the text",
    )?;
    let value = read(text);
    let is_alone = matches!(&value, Value::Object(members) if members.len() == 1);
    // -5 and 1969.0 are integers to JSON Schema.
    match is_alone
        && value
            .member("year")
            .as_f64()
            .is_some_and(|year| year.fract() == 0.0)
    {
        true => Outcome::fine("An answer keeps to a JSON schema."),
        false => Ok(Outcome::broken(
            "An answer does not keep to the JSON schema that was asked for.",
            &chat.content,
        )),
    }
}
