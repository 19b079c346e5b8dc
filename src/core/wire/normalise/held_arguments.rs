//! Arguments of one call, held as far as the option `repair_arguments` may change them (wire-format 2.5 rule 15).
//!
//! Takes: the call's arguments in pieces, without repetitions. Gives: what can be sent. Remembers: with `tail` the text
//! after the value, with `json` all arguments, up to a limit. Never: holds anything after the end of the choice.

use crate::json::Text;
use crate::wire::arguments::Arguments;
use crate::wire::options::RepairArguments;
use crate::wire::repair::{self, ArgumentsEnd, Tail};
use crate::wire::rule::{Rule, Tally};

/// Limit in bytes on the text held after a closed value.
const LONGEST_TAIL: usize = 1 << 10;

/// Holder of one call's arguments.
#[derive(Debug)]
pub(super) struct HeldArguments {
    option: RepairArguments,
    /// Value that the tail follows, with `tail`.
    value: Arguments,
    text: String,
    /// True once a repair has been tried for an interrupted call: it is not tried for each piece of other calls.
    tried: bool,
    /// True once nothing is held any more: all further text passes.
    passes: bool,
}

/// State of a call, which decides whether its held arguments can be sent or repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallState {
    /// Something else follows; arguments of the call may follow, too.
    Interrupted,
    /// The engine said that the answer is complete.
    Ended,
    /// The call may have been cut, and nothing follows.
    Cut,
}

impl HeldArguments {
    /// Creates the holder; `None` if the option is off.
    pub(super) fn of(option: RepairArguments) -> Option<Box<Self>> {
        let (value, text) = (Arguments::default(), String::new());
        (option != RepairArguments::Off).then(|| {
            Box::new(Self {
                option,
                value,
                text,
                tried: false,
                passes: false,
            })
        })
    }

    /// Returns the number of bytes held.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Reads the next piece and returns what can be sent. `room`: number of bytes that may be held in addition.
    pub(super) fn read(&mut self, piece: &Text<'_>, room: usize) -> Option<String> {
        let piece = piece.decoded();
        if self.passes {
            return Some(piece.into_owned());
        }
        let end = match self.option {
            RepairArguments::Tail if self.value.is_closed() => 0,
            RepairArguments::Tail => match self.value.read_value(&piece) {
                Some(end) => end,
                None => return Some(piece.into_owned()),
            },
            RepairArguments::Json | RepairArguments::Off => 0,
        };
        let (own, after) = piece.split_at_checked(end).unwrap_or((&piece, ""));
        self.text.push_str(after);
        let is_text = self.option == RepairArguments::Tail
            && (self.text.len() > LONGEST_TAIL || Tail::of(&self.text) == Tail::Other);
        self.passes = is_text || after.len() > room;
        let more = if self.passes {
            std::mem::take(&mut self.text)
        } else {
            String::new()
        };
        Some(own.to_owned() + &more).filter(|sent| !sent.is_empty())
    }

    /// Returns the held text that can be sent now, repaired if it has to be and can be. A repair is counted, and
    /// `arguments`, the state of all the call's arguments, then tells of the repaired value. Held arguments of an
    /// interrupted call stay until they are JSON.
    pub(super) fn settle(
        &mut self,
        state: CallState,
        arguments: &mut Arguments,
        tally: &mut Tally,
    ) -> Option<String> {
        if self.text.is_empty() {
            return None;
        }
        if self.option == RepairArguments::Tail {
            self.passes = true;
            let tail = std::mem::take(&mut self.text);
            if Tail::of(&tail) != Tail::Marks {
                return Some(tail);
            }
            tally.count(Rule::ToolArgumentsTail);
            *arguments = std::mem::take(&mut self.value);
            return None;
        }
        let is_interrupted = state == CallState::Interrupted;
        let may_repair = !(arguments.is_complete() || is_interrupted && self.tried);
        self.tried = true;
        let end = if state == CallState::Ended {
            ArgumentsEnd::Said
        } else {
            ArgumentsEnd::Unknown
        };
        let found = may_repair
            .then(|| repair::repaired(&self.text, self.option, end))
            .flatten();
        if found.is_none() && is_interrupted && !arguments.is_complete() {
            return None;
        }
        self.passes = true;
        let text = std::mem::take(&mut self.text);
        let Some(found) = found else {
            return Some(text);
        };
        found.rules.iter().for_each(|rule| tally.count(*rule));
        *arguments = Arguments::default();
        arguments.read(&Text::plain(&found.text));
        Some(found.text)
    }
}
