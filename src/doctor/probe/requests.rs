//! Checks of requests that clients send, and that a server may refuse.

use super::{refusal, require};
use crate::doctor::chat::error;
use crate::doctor::check::{Check, Judged, Outcome, Table, Topic};
use crate::doctor::question::Question;
use crate::doctor::seen::Seen;

const TOPIC: Topic = Topic::Requests;

/// Checks of requests.
pub(super) const CHECKS: &[Check] = &[
    TOPIC.check(
        "system-late",
        Question::SystemLate,
        &["clients that add a system message later, such as Claude Code"],
        Some("asks once more with all of them in the first message, and so from then on (`system_messages`)"),
        system_late,
    ),
    TOPIC.check(
        "system-twice",
        Question::SystemTwice,
        &["clients that send several system messages"],
        Some("asks once more with all of them in the first message, and so from then on (`system_messages`)"),
        system_twice,
    ),
    TOPIC
        .check(
            "role-developer",
            Question::Developer,
            &["clients that send the role developer, as OpenAI's reasoning models want it"],
            Some("sends the role system in its place"),
            developer,
        )
        .by_rule("developer_role"),
    TOPIC
        .check(
            "tools-empty",
            Question::ToolsEmpty,
            &["clients that send an empty list where they have no tools"],
            Some("leaves out an empty list of tools"),
            tools_empty,
        )
        .by_rule("empty_tools"),
    TOPIC
        .check(
            "null-members",
            Question::Nulls,
            &["clients that send null for what is not set"],
            Some("leaves out members that are null"),
            nulls,
        )
        .by_rule("null_members"),
    TOPIC
        .check(
            "service-fields",
            Question::ServiceFields,
            &["clients that send fields of the service, such as store, metadata or prompt_cache_key"],
            Some("leaves out fields that the engine does not know"),
            service_fields,
        )
        .by_rule("fields_of_the_service"),
    TOPIC
        .check(
            "part-input-text",
            Question::InputText,
            &["clients that send parts in the form of Responses"],
            Some("sends such parts as `text`"),
            input_text,
        )
        .by_rule("part_input_text"),
];

/// Judges whether requests of a kind, named in the plural, are taken. The plain chat has to work, so that a refusal is
/// due to what is new in the request.
fn taken(seen: &Seen, question: Question, kind: &str) -> Judged {
    seen.good(Question::Stream)?;
    let answer = seen.any(question)?;
    if error(answer).is_none() {
        return Outcome::fine(format!("{kind} are taken."));
    }
    // A limit of requests, or a failure of the server, says nothing about the request.
    require(answer.status != 429 && answer.status != 503, "the server was busy")?;
    let says = format!("{kind} {}.", refusal(answer));
    Ok(Outcome::warning(says, &answer.beginning()))
}

/// Judges requests with system messages, which samewire can merge from the start.
fn system(seen: &Seen, question: Question, kind: &str) -> Judged {
    let outcome = taken(seen, question, kind)?;
    Ok(match &outcome {
        Outcome::Found(_) => outcome.with(Table::Wire, "system_messages", "\"merge\""),
        _ => outcome,
    })
}

fn system_late(seen: &Seen) -> Judged {
    system(seen, Question::SystemLate, "System messages behind other messages")
}

fn system_twice(seen: &Seen) -> Judged {
    system(seen, Question::SystemTwice, "Two system messages at the beginning")
}

fn developer(seen: &Seen) -> Judged {
    taken(seen, Question::Developer, "Messages of the role developer")
}

fn tools_empty(seen: &Seen) -> Judged {
    taken(seen, Question::ToolsEmpty, "Requests with an empty list of tools")
}

fn nulls(seen: &Seen) -> Judged {
    taken(seen, Question::Nulls, "Requests with optional members that are null")
}

fn service_fields(seen: &Seen) -> Judged {
    taken(seen, Question::ServiceFields, "Requests with fields that only the service knows")
}

fn input_text(seen: &Seen) -> Judged {
    taken(seen, Question::InputText, "Parts of the type input_text")
}
