//! Checks of errors: their shape and their status.

use super::{SDKS, require};
use crate::conform::Answer;
use crate::doctor::check::{Check, Topic, checks};
use crate::doctor::outcome::{Judged, Outcome};
use crate::doctor::question::Question;
use crate::doctor::seen::Seen;
use crate::tree::{Value, View};

/// Checks of errors.
pub(super) const CHECKS: &[Check] = checks! { Errors:
    "error-shape", BadJson, [SDKS, "clients that decide by `error.code` whether to try again"],
        mends "gives every error the API's form, with the status, type and code that libraries know" => shape;
    "error-status", WrongType, ["clients that try again after a 5xx, and raise exceptions by status"],
        mends "checks requests itself and answers 400 and 404" => status;
    "unknown-model", UnknownModel, ["clients that notice a misspelled or missing model by its error"],
        mends "answers 404 with `model_not_found` to keys of its own that name their `models`" => unknown_model;
};

/// Questions that ought to be refused, each with the status for it.
const REFUSED: [(Question, u16); 3] = [
    (Question::BadJson, 400),
    (Question::WrongType, 400),
    (Question::UnknownRoute, 404),
];

fn shape(seen: &Seen) -> Judged {
    let questions = REFUSED
        .iter()
        .map(|(question, _)| *question)
        .chain([Question::UnknownModel]);
    let refusals: Vec<_> = questions
        .filter_map(|question| Some((question, seen.any(question).ok()?)))
        .filter(|(_, answer)| answer.status >= 400)
        .collect();
    require(!refusals.is_empty(), "no request was refused")?;
    let bad: Vec<_> = refusals
        .iter()
        .filter_map(|(question, answer)| Some((*question, wrong(answer)?)))
        .collect();
    let Some((first, _)) = bad.first() else {
        return Outcome::fine("Errors have the API's form.");
    };
    let told: Vec<_> = bad
        .iter()
        .map(|(question, why)| format!("{} ({why})", question.name()))
        .collect();
    let evidence = seen.any(*first).map(Answer::beginning)?;
    Ok(Outcome::warning(
        format!("Errors have another form: {}.", told.join(", ")),
        &evidence,
    ))
}

/// Returns what is wrong with the body of an error, if anything is.
fn wrong(answer: &Answer) -> Option<&'static str> {
    let error = answer.whole.member("error");
    let is_nullable = |key| matches!(error.member(key), Value::Null | Value::String(_));
    match () {
        () if error.is_string() => Some("`error` is a string"),
        () if !error.is_object() => Some("there is no object `error`"),
        () if error.text("/message").is_empty() => Some("there is no `message`"),
        () if error.text("/type").is_empty() => Some("there is no `type`"),
        () if !is_nullable("code") => Some("`code` is no string"),
        () if !is_nullable("param") => Some("`param` is no string"),
        () => None,
    }
}

fn status(seen: &Seen) -> Judged {
    let answers = REFUSED
        .into_iter()
        .filter_map(|(question, status)| Some((question, status, seen.any(question).ok()?)));
    let answers: Vec<_> = answers.collect();
    require(!answers.is_empty(), "it was not asked")?;
    // Libraries have an exception for 422, and a route that is missing may be a method that is missing.
    let bad = answers
        .iter()
        .find(|(_, status, answer)| ![*status, 405, 422].contains(&answer.status));
    match bad {
        Some((question, status, answer)) => {
            let says = format!(
                "{} is answered with status {}, not {status}.",
                question.name(),
                answer.status
            );
            Ok(Outcome::warning(says, &answer.beginning()))
        }
        None => Outcome::fine("Wrong requests get the status that the API has for them."),
    }
}

fn unknown_model(seen: &Seen) -> Judged {
    let answer = seen.any(Question::UnknownModel)?;
    match answer.status {
        404 => Outcome::fine("An unknown model gets 404."),
        200 => Ok(Outcome::warning(
            "An unknown model is answered as if it were there.",
            &answer.beginning(),
        )),
        status => Ok(Outcome::note(
            format!("An unknown model gets status {status}, not 404."),
            &answer.beginning(),
        )),
    }
}
