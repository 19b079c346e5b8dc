//! Calls that an answer has twice: in its text, and in the engine's own report (wire-format 7.2).
//!
//! Takes: the calls of a choice. Gives: whether one of them has to wait, and which other call is the same. Remembers:
//! nothing; each call has its [`DuplicateState`]. Never: compares two calls of one source.

use super::answer_writer::NO_ARGUMENTS;
use super::calls::{DuplicateState, OpenCall};
use crate::json::Text;
use crate::wire::event::CallSource;

/// Returns true if the call must wait: a call of the other source has its name, an earlier call waits, or its text is
/// whole, so that the engine's report follows, whose ids count.
pub(super) fn waits(all: &[OpenCall], slot: usize) -> bool {
    let (before, rest) = all.split_at_checked(slot).unwrap_or((all, &[]));
    rest.first().is_some_and(|call| {
        call.source == CallSource::WholeText
            || before.iter().any(is_undecided)
            || all.iter().any(|other| may_be_equal(call, other))
    })
}

/// Returns true if a call waits for its own arguments, not only for the end of a whole text.
fn is_undecided(call: &OpenCall) -> bool {
    call.duplicate == DuplicateState::Awaited && call.source != CallSource::WholeText
}

/// Returns the position of the next call to be decided; `None` if there is none. Those that have a duplicate come
/// first, then the first that waits. `at_end`: nothing follows.
pub(super) fn next(all: &[OpenCall], at_end: bool) -> Option<usize> {
    let has_duplicate = |slot: &usize| {
        let is_complete = |call: &OpenCall| is_undecided(call) && call.arguments.is_closed();
        all.get(*slot).is_some_and(is_complete) && find(all, *slot, false).is_some()
    };
    if let Some(slot) = (0..all.len()).find(has_duplicate) {
        return Some(slot);
    }
    let waits = |call: &OpenCall| match at_end {
        true => call.duplicate == DuplicateState::Awaited,
        false => is_undecided(call),
    };
    let slot = all.iter().position(waits)?;
    let is_decided = |call: &OpenCall| at_end || call.arguments.is_closed() && !is_empty(call);
    all.get(slot).is_some_and(is_decided).then_some(slot)
}

/// Returns the position of the call that is the same as this one: of the other source, with its name and the same
/// JSON value. At the end, a call that the engine reports with no arguments, or with an empty object, is any call of
/// its name.
pub(super) fn find(all: &[OpenCall], slot: usize, at_end: bool) -> Option<usize> {
    let call = all.get(slot)?;
    let position = |is_equal: &dyn Fn(&OpenCall) -> bool| {
        all.iter()
            .position(|other| may_be_equal(call, other) && is_equal(other))
    };
    position(&|other| other.arguments.is_closed() && other.resent.is_same(&call.resent))
        .or_else(|| position(&|_| at_end && is_empty(call)))
}

/// Returns true if the engine reports the call without arguments.
fn is_empty(call: &OpenCall) -> bool {
    let is_engine = call.source == CallSource::Engine;
    is_engine && (call.arguments.is_absent() || call.resent.is_again(&Text::plain(NO_ARGUMENTS)))
}

fn may_be_equal(call: &OpenCall, other: &OpenCall) -> bool {
    let is_engine = |call: &OpenCall| call.source == CallSource::Engine;
    is_engine(call) != is_engine(other)
        && other.duplicate != DuplicateState::Found
        && other.name == call.name
}
