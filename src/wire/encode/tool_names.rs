//! Calls under the names and in the forms that the client knows: custom tools that the engine knows as functions of one
//! string, and functions in the old form (wire-format 2.5).
//!
//! Takes: grammatical events. Gives: the same to another encoder. Remembers: the arguments of a custom tool's call until they
//! are all there. Never: drops what is not as it was agreed upon.

use super::responses::input_of;
use super::{Encode, Limits};
use crate::json::Text;
use crate::wire::event::{Delta, Event, Finish, Reason, Riders, ToolKind};
use crate::wire::{OutputBuffer, Shape};
use bytes::BytesMut;

/// An encoder behind which calls have other forms.
pub(super) struct ToolNames {
    inner: Box<dyn Encode>,
    custom: Vec<String>,
    legacy: bool,
    open: Vec<Wrapped>,
}

/// A call of a custom tool that is not complete.
struct Wrapped {
    choice: u32,
    slot: u32,
    /// In JSON spelling.
    arguments: BytesMut,
}

impl ToolNames {
    /// The encoder itself where every call has its own form.
    pub(super) fn over(inner: Box<dyn Encode>, shape: &Shape) -> Box<dyn Encode> {
        if shape.custom_tools.is_empty() && !shape.legacy_functions {
            return inner;
        }
        let (custom, legacy) = (shape.custom_tools.clone(), shape.legacy_functions);
        Box::new(Self { inner, custom, legacy, open: Vec::new() })
    }

    fn delta(&mut self, choice: u32, delta: Delta<'_>, riders: Riders<'_>, out: &mut OutputBuffer) {
        match delta {
            Delta::ToolStart { slot, id, name, namespace, kind: ToolKind::Function }
                if self.custom.iter().any(|custom| custom == name) =>
            {
                self.close(Some(choice), out);
                self.open.push(Wrapped { choice, slot, arguments: BytesMut::new() });
                let delta = Delta::ToolStart { slot, id, name, namespace, kind: ToolKind::Custom };
                self.pass(choice, delta, riders, out);
            }
            Delta::ToolArgs { slot, args } => {
                let is_it = |open: &&mut Wrapped| open.choice == choice && open.slot == slot;
                match self.open.iter_mut().find(is_it) {
                    Some(open) => {
                        args.write(&mut open.arguments);
                        if !riders.is_empty() {
                            self.pass(choice, Delta::Bare, riders, out);
                        }
                    }
                    None if self.legacy => {
                        let delta = Delta::FunctionCall { name: None, arguments: Some(args) };
                        self.pass(choice, delta, riders, out);
                    }
                    None => self.pass(choice, Delta::ToolArgs { slot, args }, riders, out),
                }
            }
            // There is room for one, and there is no other.
            Delta::ToolStart { name, .. } if self.legacy => {
                let arguments = Some(Text::default());
                let delta = Delta::FunctionCall { name: Some(Text::plain(name)), arguments };
                self.pass(choice, delta, riders, out);
            }
            Delta::Finish(Finish { reason: Reason::ToolCalls, stop }) if self.legacy => {
                let delta = Delta::Finish(Finish { reason: Reason::FunctionCall, stop });
                self.pass(choice, delta, riders, out);
            }
            delta => {
                if matches!(delta, Delta::Finish(_) | Delta::ToolStart { .. }) {
                    self.close(Some(choice), out);
                }
                self.pass(choice, delta, riders, out);
            }
        }
    }

    fn pass(&mut self, choice: u32, delta: Delta<'_>, riders: Riders<'_>, out: &mut OutputBuffer) {
        self.inner.event(Event::Delta { choice, delta, riders }, out);
    }

    /// Gives the inputs of a choice's calls, or of all.
    fn close(&mut self, choice: Option<u32>, out: &mut OutputBuffer) {
        let is_due = |open: &Wrapped| choice.is_none_or(|choice| choice == open.choice);
        let (due, open) = std::mem::take(&mut self.open).into_iter().partition(is_due);
        self.open = open;
        for Wrapped { choice, slot, arguments } in due {
            let spelled = String::from_utf8_lossy(&arguments);
            let wrapped = Text::json(&spelled).decoded();
            let args = input_of(&wrapped).unwrap_or_else(|| Text::json(&spelled));
            if !args.is_empty() {
                self.pass(choice, Delta::ToolArgs { slot, args }, Riders::default(), out);
            }
        }
    }
}

impl Encode for ToolNames {
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        match event {
            Event::Delta { choice, delta, riders } => self.delta(choice, delta, riders, out),
            event => {
                if matches!(event, Event::Fail(_) | Event::End) {
                    self.close(None, out);
                }
                self.inner.event(event, out);
            }
        }
    }

    fn limits(&mut self, limits: Limits) {
        self.inner.limits(limits);
    }

    fn clock(&mut self, now: u64) {
        self.inner.clock(now);
    }

    fn is_waiting(&self) -> bool {
        self.inner.is_waiting()
    }

    fn is_plain(&self) -> bool {
        self.inner.is_plain()
    }

    fn has_items(&self) -> bool {
        self.inner.has_items()
    }
}
