//! Checks of reasoning: its name, its place, and whether a parser is on.

use super::{parser_flags, require, unparsed};
use crate::doctor::chat::Chat;
use crate::doctor::check::{Check, Topic, checks};
use crate::doctor::outcome::{Judged, Outcome, Table, quoted};
use crate::doctor::question::Question;
use crate::doctor::seen::Seen;

/// Checks of reasoning.
pub(super) const CHECKS: &[Check] = checks! { Reasoning:
    "reasoning-name", Stream, ["clients that know the other name: `reasoning_content` is read by Cline and others, `reasoning` by openai-agents-js and others"],
        mends "sends both names with the same text (`reasoning_field`)" => name;
    "reasoning-parser", Whole, ["every client: users see the model's thoughts as its answer, and histories keep them"],
        mends "splits reasoning from the text" => tags;
    "reasoning-only", Whole, ["every client: the answer is empty"],
        mends "makes such reasoning the answer with the option `promote_reasoning`, and reads the calls in it"
            => only;
    "reasoning-only-stream", Stream, ["every client that streams: the answer is empty"]
            => |seen| all_reasoning(seen, Question::Stream, "A stream");
};

/// Questions whose answers may have reasoning.
const ASKED: [Question; 5] = [
    Question::Stream,
    Question::Whole,
    Question::ToolStream,
    Question::ToolWhole,
    Question::Limit,
];

/// Tags around reasoning that a model writes itself.
const TAGS: [(&str, &str); 6] = [
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("◁think▷", "◁/think▷"),
];
/// Marker of reasoning in gpt-oss's own notation.
const ANALYSIS: &str = "<|channel|>analysis";

/// Returns true if a text has a tag of reasoning.
pub(super) fn has_tag(text: &str) -> bool {
    text.contains(ANALYSIS)
        || TAGS
            .iter()
            .any(|(start, end)| text.contains(start) || text.contains(end))
}

/// Returns the tags of a block that a text ends and does not begin: the chat template has begun it.
fn opened(text: &str) -> Option<(&'static str, &'static str)> {
    TAGS.into_iter().find(|(start, end)| {
        text.find(end)
            .is_some_and(|at| text.get(..at).is_some_and(|before| !before.contains(start)))
    })
}

/// Returns the reason why nothing is to be said about reasoning.
pub(super) fn none(seen: &Seen) -> Outcome {
    Outcome::not_seen(
        match chats(seen).iter().any(|chat| has_tag(&chat.content)) {
            true => "the reasoning is left in the text",
            false => "no answer has reasoning",
        },
    )
}

fn chats(seen: &Seen) -> Vec<Chat> {
    let answers = ASKED
        .into_iter()
        .filter_map(|question| seen.any(question).ok());
    answers
        .filter(|answer| answer.status == 200)
        .map(|answer| Chat::of(answer, 0))
        .collect()
}

fn name(seen: &Seen) -> Judged {
    let chats = chats(seen);
    let chat = chats.iter().find(|chat| !chat.reasoning.is_empty());
    let chat = chat.ok_or_else(|| none(seen))?;
    let names: Vec<_> = chat.names.iter().copied().collect();
    match names.as_slice() {
        [name] => {
            let says = format!("Reasoning has the name `{name}` alone.");
            Ok(Outcome::warning(says, &chat.reasoning_raw))
        }
        _ => Outcome::fine("Reasoning has both names that clients read."),
    }
}

fn tags(seen: &Seen) -> Judged {
    let chats = chats(seen);
    require(
        chats.iter().any(|chat| !chat.is_empty()),
        "no answer has text",
    )?;
    if let Some(chat) = chats.iter().find(|chat| has_tag(&chat.content)) {
        let says = "Reasoning is left in the text: the engine runs without a parser of reasoning for this model.";
        let outcome =
            Outcome::broken(says, &chat.content).with_flag(parser_flags(seen, true, false));
        let begins = chats
            .iter()
            .any(|chat| TAGS.iter().any(|(start, _)| chat.content.contains(start)));
        let opened = chats
            .iter()
            .find_map(|chat| opened(&chat.content))
            .filter(|_| !begins);
        // samewire goes by the template where the engine shows it.
        let is_known = !seen.server.template.is_empty() || unparsed(seen).opens_reasoning();
        return Ok(match opened.filter(|_| !is_known) {
            Some((start, end)) => {
                let think = format!(
                    "{{ mode = \"forced\", start = {}, end = {} }}",
                    quoted(start),
                    quoted(end)
                );
                outcome.with(Table::Wire, "think", think)
            }
            None => outcome,
        });
    }
    match chats.iter().any(|chat| !chat.reasoning.is_empty()) {
        true => Outcome::fine("Reasoning is apart from the text: a parser is on."),
        false => Err(none(seen)),
    }
}

/// Judges whether the answer to a question is nothing but reasoning, although it ended of itself.
fn all_reasoning(seen: &Seen, question: Question, kind: &str) -> Judged {
    let chat = Chat::of(seen.good(question)?, 0);
    let has_text = !chat.content.trim().is_empty();
    if has_tag(&chat.content) || !has_text && chat.reasoning.is_empty() {
        return Err(none(seen));
    }
    if has_text || !chat.calls.is_empty() {
        return Outcome::fine("The answer is not all reasoning.");
    }
    require(
        chat.finish() == "stop",
        "the answer was cut within its reasoning",
    )?;
    let says = format!(
        "{kind} that ended of itself is nothing but reasoning: the parser takes the text of a model that did not think for reasoning."
    );
    Ok(Outcome::broken(says, &chat.reasoning_raw).with_flag(parser_flags(seen, true, false)))
}

fn only(seen: &Seen) -> Judged {
    let outcome = all_reasoning(seen, Question::Whole, "A whole answer")?;
    Ok(outcome.with(Table::Wire, "promote_reasoning", "true"))
}
