//! Checks of requests that clients send, and that a server may refuse.

use super::{refusal, require};
use crate::doctor::chat::error;
use crate::doctor::check::{Check, Topic, checks};
use crate::doctor::outcome::{Judged, Outcome, Table};
use crate::doctor::question::Question;
use crate::doctor::seen::Seen;

/// Checks of requests.
pub(super) const CHECKS: &[Check] = checks! { Requests:
    "system-late", SystemLate, ["clients that add a system message later, such as Claude Code"],
        mends "asks once more with all of them in the first message, and so from then on (`system_messages`)"
            => |seen| system(seen, Question::SystemLate, "System messages after other messages");
    "system-twice", SystemTwice, ["clients that send several system messages"],
        mends "asks once more with all of them in the first message, and so from then on (`system_messages`)"
            => |seen| system(seen, Question::SystemTwice, "Two system messages at the beginning");
    "role-developer", Developer, ["clients that send the role developer, as OpenAI's reasoning models want it"],
        mends "sends the role system in its place" by "developer_role"
            => |seen| taken(seen, Question::Developer, "Messages of the role developer");
    "tools-empty", ToolsEmpty, ["clients that send an empty list where they have no tools"],
        mends "leaves out an empty list of tools" by "empty_tools"
            => |seen| taken(seen, Question::ToolsEmpty, "Requests with an empty list of tools");
    "null-members", Nulls, ["clients that send null for what is not set"],
        mends "leaves out members that are null" by "null_members"
            => |seen| taken(seen, Question::Nulls, "Requests with optional members that are null");
    "service-fields", ServiceFields, ["clients that send fields of the service, such as store, metadata or prompt_cache_key"],
        mends "leaves out fields that the engine does not know" by "fields_of_the_service"
            => |seen| taken(seen, Question::ServiceFields, "Requests with fields that only the service knows");
    "part-input-text", InputText, ["clients that send parts in the form of Responses"],
        mends "sends such parts as `text`" by "part_input_text"
            => |seen| taken(seen, Question::InputText, "Parts of the type input_text");
};

/// Judges whether requests of a kind, named in the plural, are taken. The plain chat has to work, so that a refusal is
/// due to what is new in the request.
fn taken(seen: &Seen, question: Question, kind: &str) -> Judged {
    seen.good(Question::Stream)?;
    let answer = seen.any(question)?;
    if error(answer).is_none() {
        return Outcome::fine(format!("{kind} are taken."));
    }
    // A limit of requests, or a failure of the server, says nothing about the request.
    require(
        answer.status != 429 && answer.status != 503,
        "the server was busy",
    )?;
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
