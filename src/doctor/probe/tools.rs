//! Checks of tool calls: accepted, parsed, well formed, forced, parallel, the same in streams and whole.

use super::{AGENTS, SDKS, parser_flags, refusal, require};
use crate::conform::Answer;
use crate::doctor::chat::{Call, Chat, error, usage};
use crate::doctor::check::{Check, Topic, checks};
use crate::doctor::outcome::{Judged, Outcome, Table};
use crate::doctor::question::{FUNCTION, Question};
use crate::doctor::seen::Seen;
use crate::tree::{Value, View};
use std::collections::BTreeSet;

/// Checks of tools.
pub(super) const CHECKS: &[Check] = checks! { Tools:
    "tools-accepted", ToolStream, [AGENTS],
        mends "asks a vLLM without a parser in another way, and reads the calls in the text, where it knows the model's family"
            => accepted;
    "tools-parsed", ToolStream, [AGENTS],
        mends "reads the calls in the text" => parsed;
    "tools-swallowed", ToolWhole, [AGENTS] => swallowed;
    "tools-ids", ToolStream, [SDKS, AGENTS],
        mends "gives each call an id of its own" => ids;
    "tools-index", ToolStream, [SDKS],
        mends "numbers the calls of a stream" => index;
    "tools-name-once", ToolStream, ["clients that join repeated strings, such as openai-python: the function is called get_weatherget_weather"],
        mends "sends id and name once" => name_once;
    "tools-arguments", ToolStream, [AGENTS],
        mends "leaves out arguments that come twice, and reports a call that was cut as `length`" => arguments;
    "tools-pieces", ToolStream, ["clients that show arguments as they are written"] => pieces;
    "tools-finish", ToolStream, ["agents that look for `tool_calls`: they do not run the call"],
        mends "sends `tool_calls` wherever there is a call" => finish;
    "tools-whole", ToolWhole, [AGENTS],
        mends "reads both forms in the same way" => whole;
    "tools-named", ToolNamed, ["clients that force a function, such as structured output of LangChain and Instructor"]
        => |seen| forced(seen, Question::ToolNamed, "Requests for a call of one named function");
    "tools-required", ToolRequired, ["agents that require a call, such as OpenAI Agents with tool_choice=\"required\""]
        => |seen| forced(seen, Question::ToolRequired, "Requests for a call with tool_choice \"required\"");
    "tools-two-calls", ToolParallel, [AGENTS],
        mends "gives each call an index and an id of its own" => two;
};

/// Marks of calls that a model writes into its text.
const MARKS: [&str; 13] = [
    "<tool_call>",
    "<function=",
    "<tool_calls>",
    "<function_calls>",
    "<|tool_call",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "<｜tool▁call",
    "<｜DSML｜",
    "<minimax:tool_call>",
    "<|action_start|>",
    "<seed:tool_call>",
    "to=functions.",
];

/// Returns true if a text has a call of the function that was offered. A call of another function
/// stays text with any parser.
fn has_call(text: &str) -> bool {
    text.contains(FUNCTION) && MARKS.iter().any(|mark| text.contains(mark))
}

/// Returns true if an error says that the engine runs without a parser of calls: vLLM, by its front end in Python and by
/// that in Rust.
fn wants_parser(error: &str) -> bool {
    error.contains("tool-call-parser") || error.contains("tool parsing is disabled")
}

/// Returns the answer to a question with tools and its choice, if it is a complete success.
fn chat(seen: &Seen, question: Question) -> Judged<(&Answer, Chat)> {
    let answer = seen.good(question)?;
    require(error(answer).is_none(), "the answer is an error")?;
    Ok((answer, Chat::of(answer, 0)))
}

/// Returns the calls of the streams.
fn calls(seen: &Seen) -> Judged<Vec<(Call, bool)>> {
    let questions = [
        Question::ToolStream,
        Question::ToolParallel,
        Question::ToolNamed,
    ];
    let chats = questions
        .into_iter()
        .filter_map(|question| chat(seen, question).ok());
    let calls = chats.flat_map(|(_, chat)| {
        let is_cut = chat.is_cut();
        chat.calls.into_iter().map(move |call| (call, is_cut))
    });
    let calls: Vec<_> = calls.collect();
    require(
        !calls.is_empty(),
        "the model called no function in a stream",
    )?;
    Ok(calls)
}

fn accepted(seen: &Seen) -> Judged {
    let answers = [Question::ToolStream, Question::ToolWhole]
        .into_iter()
        .filter_map(|questions| seen.any(questions).ok());
    let answers: Vec<_> = answers.collect();
    require(!answers.is_empty(), "it was not asked")?;
    seen.good(Question::Stream)?;
    if let Some(answer) = answers.iter().find(|answer| error(answer).is_some()) {
        let outcome = Outcome::broken(
            format!("Requests with tools {}.", refusal(answer)),
            &answer.beginning(),
        );
        let by_parser = error(answer).is_some_and(wants_parser);
        return Ok(match by_parser {
            true => outcome.with_flag(parser_flags(seen, false, true)),
            false => outcome,
        });
    }
    Outcome::fine("Requests with tools are taken.")
}

fn parsed(seen: &Seen) -> Judged {
    let questions = [
        Question::ToolStream,
        Question::ToolWhole,
        Question::ToolParallel,
    ];
    let chats: Vec<_> = questions
        .into_iter()
        .filter_map(|question| chat(seen, question).ok())
        .collect();
    // A cut call stays in the text also where a parser is on.
    let raw =
        |(_, chat): &&(_, Chat)| chat.calls.is_empty() && has_call(&chat.content) && !chat.is_cut();
    if let Some((_, chat)) = chats.iter().find(raw) {
        let says = "A call is left in the text: the engine runs without the parser of calls for this model.";
        return Ok(Outcome::broken(says, &chat.content).with_flag(parser_flags(seen, false, true)));
    }
    require(
        chats.iter().any(|(_, chat)| !chat.calls.is_empty()),
        "the model called no function",
    )?;
    Outcome::fine("Calls are apart from the text.")
}

/// Tokens that an answer may have beyond its text: tags that a parser removes, white space, the end of the turn; and the
/// part by which a text may have more tokens than another of its length.
const UNSEEN: f64 = 12.0;
const SPREAD: f64 = 1.25;

/// Judges whether answers have more tokens than their text accounts for, at as many for each character as the answer to
/// the plain question has. A parser that is one for another model may take a call for its own, and give none.
fn swallowed(seen: &Seen) -> Judged {
    let questions = [Question::ToolWhole, Question::ToolStream];
    let chats: Vec<_> = questions
        .into_iter()
        .filter_map(|question| chat(seen, question).ok())
        .collect();
    if chats.iter().any(|(_, chat)| !chat.calls.is_empty()) {
        return Outcome::fine("Answers have the calls that the model wrote.");
    }
    let plain = seen.good(Question::Whole)?;
    let (tokens, length) = account(plain, &Chat::of(plain, 0)).unwrap_or_default();
    require(
        tokens > 0.0 && length > 0.0,
        "no plain answer shows how many characters a token has",
    )?;
    let rate = tokens / length;
    let ended = chats.iter().filter(|(_, chat)| chat.finish() == "stop");
    let counted: Vec<_> = ended
        .filter_map(|(answer, chat)| Some((*answer, account(answer, chat)?)))
        .collect();
    require(
        !counted.is_empty(),
        "the model called no function, and no answer that ended of itself tells its tokens",
    )?;
    let is_short =
        |(_, (tokens, length)): &&(&Answer, (f64, f64))| *tokens > length * rate * SPREAD + UNSEEN;
    let Some((answer, (tokens, length))) = counted.iter().find(is_short) else {
        return Outcome::fine("The text of answers with tools accounts for their tokens.");
    };
    let says = format!(
        "An answer to a request with tools has {tokens} tokens for which its text has room for some {:.0}: the engine's parser of calls is one for another model and swallows them.",
        length * rate
    );
    Ok(Outcome::broken(says, &answer.raw).with_flag(parser_flags(seen, false, true)))
}

/// Returns the number of tokens of an answer, and that of the characters they make up. Reasoning is left out where the
/// engine counts its tokens.
fn account(answer: &Answer, chat: &Chat) -> Option<(f64, f64)> {
    let (usage, _) = usage(answer)?;
    let reasoning = usage
        .pointer("/completion_tokens_details/reasoning_tokens")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    let all = usage.member("completion_tokens").as_u64()?;
    let text = if reasoning > 0 {
        ""
    } else {
        chat.reasoning.as_str()
    };
    let characters = chat.content.chars().count() + text.chars().count();
    let number = |count: u64| u32::try_from(count).ok().map(f64::from);
    Some((
        number(all.saturating_sub(reasoning))?,
        number(u64::try_from(characters).ok()?)?,
    ))
}

fn ids(seen: &Seen) -> Judged {
    let questions = [
        Question::ToolStream,
        Question::ToolParallel,
        Question::ToolNamed,
        Question::ToolWhole,
    ];
    let chats = questions
        .into_iter()
        .filter_map(|question| chat(seen, question).ok());
    let mut is_called = false;
    for (_, chat) in chats {
        // Some models number the calls of a conversation, so that answers have the same ids.
        let mut known = BTreeSet::new();
        for call in &chat.calls {
            is_called = true;
            if call.id.is_empty() {
                return Ok(Outcome::broken("A call has no id.", &call.raw));
            }
            if !known.insert(&call.id) {
                return Ok(Outcome::broken(
                    format!("Two calls of one answer have the id {}.", call.id),
                    &call.raw,
                ));
            }
        }
    }
    require(is_called, "the model called no function")?;
    Outcome::fine("Each call has an id of its own.")
}

fn index(seen: &Seen) -> Judged {
    match calls(seen)?.iter().find(|(call, _)| call.index.is_none()) {
        Some((call, _)) => Ok(Outcome::broken(
            "A call in a stream has no index.",
            &call.raw,
        )),
        None => Outcome::fine("Calls in streams have an index."),
    }
}

fn name_once(seen: &Seen) -> Judged {
    match calls(seen)?.iter().find(|(call, _)| call.names > 1) {
        Some((call, _)) => Ok(Outcome::broken(
            "The pieces of a call repeat the function's name.",
            &call.raw,
        )),
        None => Outcome::fine("A call's name comes once."),
    }
}

fn arguments(seen: &Seen) -> Judged {
    let calls = calls(seen)?;
    let whole: Vec<_> = calls
        .iter()
        .filter(|(_, is_cut)| !is_cut)
        .map(|(call, _)| call)
        .collect();
    require(
        !whole.is_empty(),
        "every call was cut by the limit of the answer",
    )?;
    match whole.iter().find(|call| !call.is_complete()) {
        Some(call) => {
            let says = "The arguments of a call are no JSON object: the model wrote them so, or the engine broke them.";
            Ok(Outcome::broken(
                says,
                &format!("{} {}", call.name, call.arguments),
            ))
        }
        None => Outcome::fine("The arguments of calls are JSON objects."),
    }
}

fn pieces(seen: &Seen) -> Judged {
    let calls = calls(seen)?;
    let most = calls.iter().map(|(call, _)| call.pieces).max().unwrap_or(0);
    match calls
        .iter()
        .map(|(call, _)| call)
        .find(|call| call.pieces == 1)
    {
        Some(call) if most <= 1 => Ok(Outcome::note(
            "The arguments of a call come in one piece.",
            &call.raw,
        )),
        _ => {
            require(most > 1, "no call has arguments")?;
            Outcome::fine("The arguments of calls come in pieces.")
        }
    }
}

fn finish(seen: &Seen) -> Judged {
    let questions = [
        Question::ToolStream,
        Question::ToolWhole,
        Question::ToolParallel,
        Question::ToolRequired,
    ];
    let chats: Vec<_> = questions
        .into_iter()
        .filter_map(|question| chat(seen, question).ok())
        .collect();
    let mut called = chats
        .iter()
        .filter(|(_, chat)| !chat.calls.is_empty() && !chat.is_cut())
        .peekable();
    require(called.peek().is_some(), "the model called no function")?;
    match called.find(|(_, chat)| chat.finish() != "tool_calls") {
        Some((_, chat)) => {
            let evidence = chat
                .finishes
                .last()
                .map_or("no finish_reason", |(_, raw)| raw);
            let says = format!(
                "An answer with a call has the finish_reason {:?}.",
                chat.finish()
            );
            Ok(Outcome::warning(says, evidence))
        }
        None => Outcome::fine("Answers with a call have the finish_reason tool_calls."),
    }
}

fn whole(seen: &Seen) -> Judged {
    let (_, stream) = chat(seen, Question::ToolStream)?;
    let (answer, whole) = chat(seen, Question::ToolWhole)?;
    let calls = (stream.calls.is_empty(), whole.calls.is_empty());
    match calls {
        (false, false) => Outcome::fine("A stream and a whole answer both have the call."),
        (false, true) if has_call(&whole.content) && !whole.is_cut() => {
            let says = "A stream has the call, and a whole answer has it left in its text.";
            Ok(Outcome::broken(says, &answer.raw))
        }
        (true, false) if has_call(&stream.content) && !stream.is_cut() => {
            let says = "A whole answer has the call, and a stream has it left in its text.";
            Ok(Outcome::broken(says, &stream.content_raw))
        }
        _ => Err(Outcome::not_seen(
            "the model did not call the function both times",
        )),
    }
}

/// Judges an answer for which a call was forced, by requests of a kind that is named in the plural.
fn forced(seen: &Seen, question: Question, kind: &str) -> Judged {
    let answer = seen.any(question)?;
    seen.good(Question::Stream)?;
    if let Some(text) = error(answer) {
        let flag = if wants_parser(text) {
            parser_flags(seen, false, true)
        } else {
            None
        };
        let says = format!("{kind} {}.", refusal(answer));
        return Ok(Outcome::broken(says, &answer.beginning()).with_flag(flag));
    }
    let (answer, chat) = chat(seen, question)?;
    match chat.calls.first() {
        Some(call) if call.name == FUNCTION => Outcome::fine(format!("{kind} bring one.")),
        Some(call) => Ok(Outcome::broken(
            format!("{kind} bring a call of {:?}.", call.name),
            &call.raw,
        )),
        None => {
            require(!chat.is_cut(), "the answer was cut before a call")?;
            require(!chat.finish().is_empty(), "the answer has no finish_reason")?;
            Ok(misplaced(seen, answer, &chat, kind).unwrap_or_else(|| {
                let says = format!("{kind} bring none, although the answer ended of itself.");
                let text = if chat.content.is_empty() {
                    &answer.raw
                } else {
                    &chat.content
                };
                Outcome::broken(says, text)
            }))
        }
    }
}

/// Judges an answer whose call is somewhere else; `None`: there is none.
fn misplaced(seen: &Seen, answer: &Answer, chat: &Chat, kind: &str) -> Option<Outcome> {
    if has_call(&chat.content) {
        let outcome = Outcome::broken(format!("{kind} bring it within the text."), &chat.content);
        return Some(outcome.with_flag(parser_flags(seen, false, true)));
    }
    // In a stream reasoning has been sent before anybody knows that nothing follows.
    if answer.whole.is_object() && has_call(&chat.reasoning) {
        let outcome = Outcome::broken(
            format!("{kind} bring it within the reasoning."),
            &chat.reasoning,
        );
        let outcome = outcome.with_flag(parser_flags(seen, true, false));
        return Some(outcome.with(Table::Wire, "promote_reasoning", "true"));
    }
    None
}

fn two(seen: &Seen) -> Judged {
    let (_, chat) = chat(seen, Question::ToolParallel)?;
    let calls = &chat.calls;
    if let Some(call) = calls.iter().find(|call| joined(call)) {
        let says =
            "A call has the arguments of two: calls are mixed up, or the arguments came twice.";
        return Ok(Outcome::broken(
            says,
            &format!("{} {}", call.name, call.arguments),
        ));
    }
    require(calls.len() > 1, "the model called one function at most")?;
    Outcome::fine(format!("{} calls of one answer are apart.", calls.len()))
}

/// Returns true if the arguments are several JSON objects, one after the other.
fn joined(call: &Call) -> bool {
    let mut objects =
        serde_json::Deserializer::from_str(&call.arguments).into_iter::<serde::de::IgnoredAny>();
    objects.by_ref().take(2).filter(Result::is_ok).count() == 2
}
