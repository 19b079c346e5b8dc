//! Reasoning of an answer: text, summary and encrypted content of its reasoning items.

use super::item::{Item, OutputKind, ReasoningItem};
use super::text_events::{EventText, REASONING, SUMMARY, TextEvents};
use super::{Response, Sealing};
use crate::json::Text;
use crate::wire::OutputBuffer;
use crate::wire::options::ResponsesReasoning;
use bytes::BytesMut;

impl Response {
    pub(super) fn push_reasoning(&mut self, text: &Text<'_>, out: &mut OutputBuffer) {
        match self.reply.reasoning {
            ResponsesReasoning::Content => self.push_thought(&[REASONING], text, out),
            ResponsesReasoning::Summary => self.push_thought(&[SUMMARY], text, out),
            // A summary that the engine sends itself must not be mixed with a copy of the text.
            ResponsesReasoning::Both => {
                let mirrored = self
                    .current_reasoning()
                    .is_none_or(|thought| thought.takes_mirror());
                self.push_thought(
                    if mirrored {
                        &[REASONING, SUMMARY]
                    } else {
                        &[REASONING]
                    },
                    text,
                    out,
                );
            }
            ResponsesReasoning::None => {}
        }
    }

    /// Appends text of the engine's own summary. Dropped if the summary is already a copy of the text, which it
    /// would repeat.
    pub(super) fn push_summary(&mut self, text: &Text<'_>, out: &mut OutputBuffer) {
        let mirrored = self
            .current_reasoning()
            .is_some_and(|thought| thought.mirrored);
        if self.reply.reasoning != ResponsesReasoning::None && !mirrored {
            self.push_thought(&[SUMMARY], text, out);
        }
    }

    /// Returns the reasoning item that the next text continues, if any.
    fn current_reasoning(&mut self) -> Option<&mut ReasoningItem> {
        match self.items.get_mut(self.current?)? {
            Item {
                kind: OutputKind::Reasoning(thought),
                ..
            } => Some(thought),
            _ => None,
        }
    }

    /// Stores the engine's `encrypted_content` in a reasoning item. `late`: in the last one, even if it has ended.
    /// Ignored unless the engine is its source.
    pub(super) fn store_encrypted(&mut self, text: &Text<'_>, late: bool, out: &mut OutputBuffer) {
        if !matches!(self.reply.sealing, Sealing::Engine) {
            return;
        }
        let is_reasoning = |item: &Item| matches!(item.kind, OutputKind::Reasoning(_));
        let at = match late {
            true => self.items.iter().rposition(is_reasoning),
            false => self
                .current
                .filter(|at| self.items.get(*at).is_some_and(is_reasoning)),
        };
        let at = match at {
            Some(at) => at,
            None if late || self.reply.reasoning == ResponsesReasoning::None => return,
            None => self.open(OutputKind::Reasoning(ReasoningItem::default()), out),
        };
        if !late {
            self.current = Some(at);
        }
        if let Some(Item {
            kind: OutputKind::Reasoning(thought),
            open,
            ..
        }) = self.items.get_mut(at)
            && thought.sealed.is_none()
        {
            thought.late = !*open;
            let mut spelled = BytesMut::new();
            text.write(&mut spelled);
            thought.sealed = Some(String::from_utf8_lossy(&spelled).into_owned());
        }
    }

    /// Appends text to the current reasoning item, or opens one, and writes it in these voices. In two, the summary is
    /// a copy of the content.
    fn push_thought(&mut self, voices: &[TextEvents], text: &Text<'_>, out: &mut OutputBuffer) {
        let goes_on = |at: &usize| {
            matches!(
                self.items.get(*at),
                Some(Item {
                    kind: OutputKind::Reasoning(_),
                    ..
                })
            )
        };
        let at = match self.current.filter(goes_on) {
            Some(at) => at,
            None => self.open(OutputKind::Reasoning(ReasoningItem::default()), out),
        };
        self.current = Some(at);
        let Self { items, events, .. } = self;
        let Some(Item {
            kind: OutputKind::Reasoning(thought),
            place,
            ..
        }) = items.get_mut(at)
        else {
            return;
        };
        thought.mirrored |= voices.len() > 1;
        let held = match voices {
            [only] if only.kind == SUMMARY.kind => &mut thought.own_summary,
            _ => &mut thought.content,
        };
        let first = held.is_none();
        let piece = held.get_or_insert_default().append(|out| text.write(out));
        for voice in voices {
            if first {
                events.begin_part(voice, place, 0, out);
            }
            events.delta(voice, place, 0, EventText::piece(piece), out);
        }
    }
}
