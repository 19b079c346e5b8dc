//! Canonical finish reason of a choice (wire-format 2.6, after the table of words).
//!
//! Takes: the engine's reason, the calls of the choice, what the client asked for, the usage. Gives: the client's reason.
//! Never: changes `length` or `content_filter`.

use super::calls::OpenCalls;
use super::held_arguments::CallState;
use crate::wire::Shape;
use crate::wire::arguments::Arguments;
use crate::wire::event::{Reason, Usage};
use crate::wire::options::NamedToolChoiceFinish;
use crate::wire::rule::{Rule, Tally};

/// Returns the reason that the client gets.
pub(super) fn canonical(
    said: Reason,
    calls: &OpenCalls,
    shape: &Shape,
    usage: Option<&Usage>,
    tally: &mut Tally,
) -> Reason {
    let called = !calls.all.is_empty();
    let named = shape.forced_function.is_some()
        && shape.options.named_tool_choice_finish == NamedToolChoiceFinish::Openai;
    let reason = match said {
        Reason::Stop if called && !named => Reason::ToolCalls,
        Reason::ToolCalls if !called => Reason::Stop,
        other => other,
    };
    let is_cut = calls.last_arguments().is_some_and(Arguments::is_open);
    let is_whole = calls.last_arguments().is_none_or(Arguments::is_complete);
    let is_broken = !is_whole || !called && said == Reason::ToolCalls;
    let at_limit = is_at_limit(shape, usage);
    let reason = match reason {
        Reason::Stop | Reason::ToolCalls | Reason::FunctionCall
            if is_cut || is_broken && at_limit =>
        {
            tally.count(Rule::HiddenTruncation);
            Reason::Length
        }
        other => other,
    };
    if reason != said {
        tally.count(Rule::FinishWord);
    }
    reason
}

/// Returns what this reason says of calls: a cut answer may have cut one of them.
pub(super) fn state_of_calls(said: Reason, shape: &Shape, usage: Option<&Usage>) -> CallState {
    match said {
        Reason::Length | Reason::ContentFilter => CallState::Cut,
        // The usage of several choices does not tell which of them has reached the limit.
        _ if usage
            .zip(shape.limit)
            .is_some_and(|(usage, limit)| usage.completion >= limit) =>
        {
            CallState::Cut
        }
        _ => CallState::Ended,
    }
}

/// Returns true if the only choice has as many tokens as the client allowed.
fn is_at_limit(shape: &Shape, usage: Option<&Usage>) -> bool {
    let limit = shape.limit.filter(|_| shape.choices == 1);
    usage
        .zip(limit)
        .is_some_and(|(usage, limit)| usage.completion >= limit)
}
