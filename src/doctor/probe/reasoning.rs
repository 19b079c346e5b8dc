//! Checks of reasoning: its name, its place, and whether a parser is on.

use super::{parser, parser_flags, require};
use crate::doctor::chat::Chat;
use crate::doctor::check::{Check, Judged, Outcome, Table, Topic};
use crate::doctor::question::Question;
use crate::doctor::seen::{NotSeen, Seen};

const TOPIC: Topic = Topic::Reasoning;

/// Checks of reasoning.
pub(super) const CHECKS: &[Check] = &[
    TOPIC.check(
        "reasoning-name",
        Question::Stream,
        &[
            "clients that know the other name: `reasoning_content` is read by Cline and others, `reasoning` by openai-agents-js and others",
        ],
        Some("sends both names with the same text (`reasoning_field`)"),
        name,
    ),
    TOPIC.check(
        "reasoning-parser",
        Question::Whole,
        &["every client: users see the model's thoughts as its answer, and histories keep them"],
        Some("splits reasoning from the text with the option `parser`"),
        tags,
    ),
    TOPIC.check(
        "reasoning-only",
        Question::Whole,
        &["every client: the answer is empty"],
        Some(
            "makes such reasoning the answer with the option `promote_reasoning`, where the answer is no stream; of an engine without `--reasoning-parser`, it reads both with the option `parser`",
        ),
        only,
    ),
];

/// Questions whose answers may have reasoning.
const ASKED: [Question; 5] =
    [Question::Stream, Question::Whole, Question::ToolStream, Question::ToolWhole, Question::Limit];

/// Tags of reasoning that a model writes itself.
const TAGS: [&str; 8] = [
    "<think>",
    "</think>",
    "[THINK]",
    "<seed:think>",
    "<mm:think>",
    "<|START_THINKING|>",
    "<|channel|>analysis",
    "◁think▷",
];

fn chats(seen: &Seen) -> Vec<Chat> {
    let answers = ASKED.into_iter().filter_map(|question| seen.any(question).ok());
    answers.filter(|answer| answer.status == 200).map(|answer| Chat::of(answer, 0)).collect()
}

fn name(seen: &Seen) -> Judged {
    let chats = chats(seen);
    let chat = chats.iter().find(|chat| !chat.reasoning.is_empty());
    let chat = chat.ok_or_else(|| NotSeen::because("no answer has reasoning"))?;
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
    require(chats.iter().any(|chat| !chat.is_empty()), "no answer has text")?;
    let tagged = |chat: &&Chat| TAGS.iter().any(|tag| chat.content.contains(tag));
    if let Some(chat) = chats.iter().find(tagged) {
        let says =
            "Reasoning is left in the text: the engine runs without a parser of reasoning for this model.";
        return Ok(Outcome::broken(says, &chat.content).with_flag(parser_flags(seen, true, false)).with(
            Table::Wire,
            "parser",
            parser(seen),
        ));
    }
    match chats.iter().any(|chat| !chat.reasoning.is_empty()) {
        true => Outcome::fine("Reasoning is apart from the text: a parser is on."),
        false => Err(NotSeen::because("no answer has reasoning")),
    }
}

fn only(seen: &Seen) -> Judged {
    let answers =
        [Question::Stream, Question::Whole].into_iter().filter_map(|question| seen.good(question).ok());
    let chats: Vec<_> = answers.map(|answer| (Chat::of(answer, 0), answer)).collect();
    require(chats.iter().any(|(chat, _)| !chat.reasoning.is_empty()), "no answer has reasoning")?;
    let swallowed = |(chat, _): &&(Chat, _)| {
        !chat.reasoning.is_empty()
            && chat.content.trim().is_empty()
            && chat.calls.is_empty()
            && chat.finish() == "stop"
    };
    if let Some((chat, _)) = chats.iter().find(swallowed) {
        let says = "An answer that ended of itself is nothing but reasoning: the parser takes the text of a model that did not think for reasoning.";
        let outcome = Outcome::broken(says, &chat.reasoning_raw);
        return Ok(outcome.with(Table::Wire, "promote_reasoning", "true"));
    }
    require(
        chats.iter().any(|(chat, _)| !chat.content.trim().is_empty()),
        "every answer was cut within its reasoning",
    )?;
    Outcome::fine("Text follows the reasoning.")
}
