//! Working state of a request that is being adapted to its engine, which the changes of `settings`, `messages`,
//! `parts` and `tools` share.
//!
//! Takes: a [`ChatRequest`], the body's text, the options. Gives: edits. Remembers: pending edits of the request
//! object and of its structured messages.

use super::object_edit::ObjectEdit;
use crate::engine::efforts::Efforts;
use crate::engine::rule::Subject;
use crate::json::{self, Raw, Text, raw_member};
use crate::request::fields::{self, Edits, MemberSpan};
use crate::request::{ChatRequest, NumberedMessage};
use crate::wire::options::Options;
use bytes::BytesMut;

/// Working state while a request is adapted to one engine: the parsed request and the edits that the rules have
/// made so far.
pub(super) struct RequestAdapter<'t> {
    pub(super) request: &'t ChatRequest,
    pub(super) text: &'t str,
    pub(super) options: &'t Options,
    /// Efforts that the model takes; none if that is not known.
    pub(super) efforts: Efforts,
    /// True if the body was generated from a Responses request, so that its roles already follow the options.
    pub(super) is_generated: bool,
    pub(super) top: ObjectEdit<'t>,
    pub(super) messages: Vec<AdaptedMessage<'t>>,
    /// Edits inside members and messages, beside those of `top` and `messages`.
    pub(super) edits: Edits,
}

/// Structured message: one with more than plain text, which a rule may have to change.
pub(super) struct AdaptedMessage<'t> {
    /// Index in `messages`.
    pub(super) at: usize,
    /// Role as JSON, quotes included.
    pub(super) role: &'t str,
    pub(super) edit: ObjectEdit<'t>,
}

impl<'t> RequestAdapter<'t> {
    pub(super) fn new(
        request: &'t ChatRequest,
        text: &'t str,
        options: &'t Options,
        items: bool,
    ) -> Self {
        let places = &request.places;
        let message = |(at, range): &NumberedMessage| {
            let object = text.get(range.clone())?;
            let members = fields::read_part(object).ok()?;
            let role = members
                .iter()
                .find(|member| member.key == "role")?
                .value
                .get();
            let spans: Vec<_> = members
                .iter()
                .map(|member| MemberSpan::of(member, text))
                .collect();
            Some(AdaptedMessage {
                at: *at,
                role,
                edit: ObjectEdit::new(text, spans, range.end - 1),
            })
        };
        Self {
            request,
            text,
            options,
            efforts: Efforts::NONE,
            is_generated: items,
            top: ObjectEdit::new(text, &*places.members, places.end),
            messages: places.structured.iter().filter_map(message).collect(),
            edits: Edits::default(),
        }
    }

    /// Returns false if the request has nothing that a change of this subject looks at.
    pub(super) fn may_change(&self, subject: Subject) -> bool {
        self.top.may_have(subject.members) || subject.messages && !self.messages.is_empty()
    }

    pub(super) fn finish(self) -> Edits {
        let mut edits = self.edits;
        self.top.finish(&mut edits);
        self.messages
            .into_iter()
            .for_each(|message| message.edit.finish(&mut edits));
        edits
    }

    /// Iterates over the structured messages of this role, given as JSON with its quotes.
    pub(super) fn of_role(
        &mut self,
        role: &'static str,
    ) -> impl Iterator<Item = &mut AdaptedMessage<'t>> {
        self.messages
            .iter_mut()
            .filter(move |message| message.role == role)
    }

    /// Returns all messages of the body, plain ones too.
    pub(super) fn all_messages(&self) -> Vec<Raw<'t>> {
        let all = self
            .request
            .places
            .messages
            .clone()
            .and_then(|at| self.text.get(at));
        all.and_then(json::elements).into_iter().flatten().collect()
    }
}

/// Returns the text of content that consists of text only, JSON-escaped without quotes, with `between` between its
/// parts; `None` if there are other parts.
pub(super) fn joined(content: &str, between: &str) -> Option<String> {
    if let Some(text) = Text::of(Raw::of(content)?) {
        let mut out = BytesMut::new();
        text.write(&mut out);
        return String::from_utf8(out.to_vec()).ok();
    }
    joined_parts(content, between, |part| {
        Text::of(raw_member(part.get(), "text")?)
    })
}

/// Joins the texts that `text_of` finds in the elements of a list, with `between` after each but the last. The result
/// is JSON-escaped without quotes. `None` if `parts` is not a list, or if `text_of` finds no text in an element.
pub(super) fn joined_parts<'c>(
    parts: &'c str,
    between: &str,
    text_of: impl Fn(Raw<'c>) -> Option<Text<'c>>,
) -> Option<String> {
    let mut out = BytesMut::new();
    for (at, part) in json::elements(parts)?.enumerate() {
        if at > 0 {
            Text::plain(between).write(&mut out);
        }
        text_of(part)?.write(&mut out);
    }
    String::from_utf8(out.to_vec()).ok()
}
