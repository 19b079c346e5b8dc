//! Members of Responses events and objects. Almost all are raw values, so that a wrong type in one spoils no other.

use crate::json::{Raw, object};
use crate::wire::decode::members::{list, text};

object! {
    /// Responses event, with the members of all its types.
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
    /// Response object: a whole answer, or the one inside an event.
    pub(super) struct Body<'a> {
        id: Raw<'a> = "id",
        created: Raw<'a> = "created_at",
        model: Raw<'a> = "model",
        status: Raw<'a> = "status",
        incomplete: Raw<'a> = "incomplete_details",
        output: Raw<'a> = "output",
        usage: Raw<'a> = "usage",
        input_messages: Raw<'a> = "input_messages",
        output_messages: Raw<'a> = "output_messages",
    }
}

object! {
    /// Member `usage`, as far as it counts each turn.
    pub(super) struct TurnUsage<'a> {
        input: TurnCounts<'a> = "input_tokens_details",
        output: TurnCounts<'a> = "output_tokens_details",
    }
}

object! {
    /// Counts of each turn, those of `input_tokens_details` and of `output_tokens_details`.
    pub(super) struct TurnCounts<'a> {
        input: Raw<'a> = "input_tokens_per_turn",
        cached: Raw<'a> = "cached_tokens_per_turn",
        output: Raw<'a> = "output_tokens_per_turn",
        tool_output: Raw<'a> = "tool_output_tokens_per_turn",
    }
}

object! {
    pub(super) struct Incomplete<'a> { reason: Raw<'a> = "reason", }
}

object! {
    /// Item of the output. vLLM puts `item_id` into some items and leaves their `id` null.
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
    /// Part of a message, of reasoning or of its summary.
    pub(super) struct ItemPart<'a> {
        kind: Raw<'a> = "type",
        text: Raw<'a> = "text" | "refusal",
        annotations: Raw<'a> = "annotations",
        logprobs: Raw<'a> = "logprobs",
    }
}

object! {
    /// Member `delta` of the older event `response.tool_call.delta`.
    pub(super) struct CallItems<'a> { content: Raw<'a> = "content", }
}

object! {
    /// Call in the `content` of [`CallItems`].
    pub(super) struct OldCall<'a> {
        kind: Raw<'a> = "type",
        id: Raw<'a> = "id",
        name: Raw<'a> = "name",
        arguments: Raw<'a> = "arguments",
    }
}

object! {
    /// Member `context` of the older event `response.additional_context`.
    pub(super) struct Context<'a> { encrypted: Raw<'a> = "reasoning.encrypted_content", }
}

/// Reads the parts of a content; a plain string counts as one part.
pub(super) fn parts(raw: Option<Raw<'_>>) -> Vec<ItemPart<'_>> {
    match text(raw) {
        Some(_) => vec![ItemPart {
            text: raw,
            ..ItemPart::default()
        }],
        None => list(raw),
    }
}
