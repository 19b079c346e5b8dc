//! Calls that an answer has twice: in its text, and in the engine's own report (wire-format 7.2).
//!
//! Takes: the calls of a choice. Gives: whether one of them has to wait, and which other call is the same. Remembers:
//! nothing; each call has its [`TwinState`]. Never: compares two calls of one source.

use super::answer_writer::NO_ARGUMENTS;
use super::calls::{OpenCall, TwinState};
use crate::json::Text;
use crate::wire::event::CallSource;

/// Returns true if the call must wait: a call of the other source has its name, or its text is whole, so that the
/// engine's report follows, whose ids count.
pub(super) fn waits(all: &[OpenCall], slot: usize) -> bool {
    all.get(slot).is_some_and(|call| {
        call.source == CallSource::WholeText || all.iter().any(|other| may_be_equal(call, other))
    })
}

/// Returns the position of the call that is the same as this one: of the other source, with its name and the same
/// JSON value. A call that the engine reports with no arguments, or with an empty object, is any call of its name.
pub(super) fn find(all: &[OpenCall], slot: usize) -> Option<usize> {
    let call = all.get(slot)?;
    let position = |is_equal: &dyn Fn(&OpenCall) -> bool| {
        all.iter()
            .position(|other| may_be_equal(call, other) && is_equal(other))
    };
    let is_bare = || call.arguments.is_absent() || call.resent.is_again(&Text::plain(NO_ARGUMENTS));
    position(&|other| other.arguments.is_closed() && other.resent.is_same(&call.resent))
        .or_else(|| position(&|_| call.source == CallSource::Engine && is_bare()))
}

fn may_be_equal(call: &OpenCall, other: &OpenCall) -> bool {
    let is_engine = |call: &OpenCall| call.source == CallSource::Engine;
    is_engine(call) != is_engine(other) && other.twin != TwinState::Found && other.name == call.name
}
