//! Encoder adapter that renders tool calls in the form the client asked for: custom tools, which the engine knows
//! as functions of one string, and legacy `function_call` (wire-format 2.5).
//!
//! Takes: grammatical events. Gives: the same events, with these calls rewritten, to another encoder. Remembers:
//! the arguments of a custom tool's call until they are complete. Never: drops arguments that do not have the
//! expected form.

use super::Encode;
use super::responses::input_of;
use crate::json::Text;
use crate::wire::event::{Delta, Event, Finish, FrameExtras, Reason, ToolKind};
use crate::wire::{OutputBuffer, Shape};
use bytes::BytesMut;

/// Adapter around an encoder. Rewrites calls before the inner encoder writes them.
pub(super) struct ToolNames {
    inner: Box<dyn Encode>,
    custom: Vec<String>,
    legacy: bool,
    open: Vec<OpenCustomCall>,
}

/// Open call of a custom tool. Its arguments are buffered, since the input can be unwrapped only once they are
/// complete.
struct OpenCustomCall {
    choice: u32,
    slot: u32,
    /// Arguments so far, in JSON spelling.
    arguments: BytesMut,
}

impl ToolNames {
    /// Wraps `inner` if the shape has custom tools or legacy functions; otherwise returns `inner` unchanged.
    pub(super) fn wrap(inner: Box<dyn Encode>, shape: &Shape) -> Box<dyn Encode> {
        if shape.custom_tools.is_empty() && !shape.legacy_functions {
            return inner;
        }
        let (custom, legacy) = (shape.custom_tools.clone(), shape.legacy_functions);
        Box::new(Self {
            inner,
            custom,
            legacy,
            open: Vec::new(),
        })
    }

    fn delta(
        &mut self,
        choice: u32,
        delta: Delta<'_>,
        extras: FrameExtras<'_>,
        out: &mut OutputBuffer,
    ) {
        match delta {
            Delta::ToolStart {
                slot,
                id,
                name,
                namespace,
                kind: ToolKind::Function,
            } if self.custom.iter().any(|custom| custom == name) => {
                self.close(Some(choice), out);
                self.open.push(OpenCustomCall {
                    choice,
                    slot,
                    arguments: BytesMut::new(),
                });
                let delta = Delta::ToolStart {
                    slot,
                    id,
                    name,
                    namespace,
                    kind: ToolKind::Custom,
                };
                self.pass(choice, delta, extras, out);
            }
            Delta::ToolArgs { slot, args } => {
                let is_it = |open: &&mut OpenCustomCall| open.choice == choice && open.slot == slot;
                match self.open.iter_mut().find(is_it) {
                    Some(open) => {
                        args.write(&mut open.arguments);
                        if !extras.is_empty() {
                            self.pass(choice, Delta::Bare, extras, out);
                        }
                    }
                    None if self.legacy => {
                        let delta = Delta::FunctionCall {
                            name: None,
                            arguments: Some(args),
                        };
                        self.pass(choice, delta, extras, out);
                    }
                    None => self.pass(choice, Delta::ToolArgs { slot, args }, extras, out),
                }
            }
            // The legacy form has room for one call; the normaliser has dropped the others (`Shape::one_call`).
            Delta::ToolStart { name, .. } if self.legacy => {
                let arguments = Some(Text::default());
                let delta = Delta::FunctionCall {
                    name: Some(Text::plain(name)),
                    arguments,
                };
                self.pass(choice, delta, extras, out);
            }
            Delta::Finish(Finish {
                reason: Reason::ToolCalls,
                stop,
            }) if self.legacy => {
                let delta = Delta::Finish(Finish {
                    reason: Reason::FunctionCall,
                    stop,
                });
                self.pass(choice, delta, extras, out);
            }
            delta => {
                if matches!(delta, Delta::Finish(_) | Delta::ToolStart { .. }) {
                    self.close(Some(choice), out);
                }
                self.pass(choice, delta, extras, out);
            }
        }
    }

    fn pass(
        &mut self,
        choice: u32,
        delta: Delta<'_>,
        extras: FrameExtras<'_>,
        out: &mut OutputBuffer,
    ) {
        self.inner.event(
            Event::Delta {
                choice,
                delta,
                extras,
            },
            out,
        );
    }

    /// Passes on the unwrapped input of the open calls of one choice, or of all choices with `None`. Arguments that
    /// are not an object with a string `input` are passed on as they are.
    fn close(&mut self, choice: Option<u32>, out: &mut OutputBuffer) {
        let is_due = |open: &OpenCustomCall| choice.is_none_or(|choice| choice == open.choice);
        let (due, open) = std::mem::take(&mut self.open).into_iter().partition(is_due);
        self.open = open;
        for OpenCustomCall {
            choice,
            slot,
            arguments,
        } in due
        {
            let spelled = String::from_utf8_lossy(&arguments);
            let wrapped = Text::json(&spelled).decoded();
            let args = input_of(&wrapped).unwrap_or_else(|| Text::json(&spelled));
            if !args.is_empty() {
                self.pass(
                    choice,
                    Delta::ToolArgs { slot, args },
                    FrameExtras::default(),
                    out,
                );
            }
        }
    }
}

impl Encode for ToolNames {
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        match event {
            Event::Delta {
                choice,
                delta,
                extras,
            } => self.delta(choice, delta, extras, out),
            event => {
                if matches!(event, Event::Fail(_) | Event::End) {
                    self.close(None, out);
                }
                self.inner.event(event, out);
            }
        }
    }

    fn is_waiting(&self) -> bool {
        self.inner.is_waiting()
    }

    fn is_plain(&self) -> bool {
        self.inner.is_plain()
    }
}
