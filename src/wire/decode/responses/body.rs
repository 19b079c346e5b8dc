//! What stands in events of the Responses API and in its objects, read leniently.

use crate::json::{Raw, Text, object, read};

object! {
    /// An event.
    pub(super) struct EventBody<'a> {
        kind: Raw<'a> = "type",
        response: Raw<'a> = "response",
        item: Raw<'a> = "item",
        item_id: Raw<'a> = "item_id",
        part: Raw<'a> = "part",
        delta: Raw<'a> = "delta",
        text: Raw<'a> = "text" | "refusal",
        arguments: Raw<'a> = "arguments" | "input",
        name: Raw<'a> = "name",
        logprobs: Raw<'a> = "logprobs",
        annotation: Raw<'a> = "annotation",
        context: Raw<'a> = "context",
        object: Raw<'a> = "object",
        error: Raw<'a> = "error",
        code: Raw<'a> = "code",
        limits: Raw<'a> = "limits",
    }
}

object! {
    /// A whole object, or what an event says of it.
    pub(super) struct Body<'a> {
        id: Raw<'a> = "id",
        created: Raw<'a> = "created_at",
        model: Raw<'a> = "model",
        status: Raw<'a> = "status",
        incomplete: Raw<'a> = "incomplete_details",
        output: Raw<'a> = "output",
        usage: Raw<'a> = "usage",
    }
}

object! {
    pub(super) struct Incomplete<'a> { reason: Raw<'a> = "reason", }
}

object! {
    /// An item. vLLM puts `item_id` into some, and leaves their `id` null.
    pub(super) struct ItemBody<'a> {
        kind: Raw<'a> = "type",
        id: Raw<'a> = "id",
        item_id: Raw<'a> = "item_id",
        status: Raw<'a> = "status",
        role: Raw<'a> = "role",
        call_id: Raw<'a> = "call_id",
        name: Raw<'a> = "name",
        namespace: Raw<'a> = "namespace",
        arguments: Raw<'a> = "arguments" | "input",
        content: Raw<'a> = "content",
        summary: Raw<'a> = "summary",
        text: Raw<'a> = "text",
        encrypted: Raw<'a> = "encrypted_content",
        server_label: Raw<'a> = "server_label",
    }
}

object! {
    /// A part of a message, of reasoning or of its summary.
    pub(super) struct Part<'a> {
        kind: Raw<'a> = "type",
        text: Raw<'a> = "text" | "refusal",
        annotations: Raw<'a> = "annotations",
        logprobs: Raw<'a> = "logprobs",
    }
}

object! {
    /// `delta` of the older `response.tool_call.delta`.
    pub(super) struct Calls<'a> { content: Raw<'a> = "content", }
}

object! {
    /// An entry of it.
    pub(super) struct OldCall<'a> {
        kind: Raw<'a> = "type",
        id: Raw<'a> = "id",
        name: Raw<'a> = "name",
        arguments: Raw<'a> = "arguments",
    }
}

object! {
    /// `context` of the older `response.additional_context`.
    pub(super) struct Context<'a> { encrypted: Raw<'a> = "reasoning.encrypted_content", }
}

/// A string that says something.
pub(super) fn text(raw: Option<Raw<'_>>) -> Option<Text<'_>> {
    raw.and_then(Text::of).filter(|text| !text.is_empty())
}

/// The same, its characters.
pub(super) fn word(raw: Option<Raw<'_>>) -> Option<String> {
    text(raw).map(|text| text.decoded().into_owned())
}

/// The elements of a list; none if it is not one.
pub(super) fn list<'a, T: crate::json::Read<'a>>(raw: Option<Raw<'a>>) -> Vec<T> {
    raw.and_then(|raw| read(raw.get()).ok()).unwrap_or_default()
}

/// An object; an empty one if it is not one.
pub(super) fn object<'a, T: crate::json::Read<'a>>(raw: Option<Raw<'a>>) -> T {
    raw.and_then(|raw| read(raw.get()).ok()).unwrap_or_default()
}

/// The parts of a text; a plain string is one.
pub(super) fn parts(raw: Option<Raw<'_>>) -> Vec<Part<'_>> {
    match text(raw) {
        Some(_) => vec![Part { text: raw, ..Part::default() }],
        None => list(raw),
    }
}
