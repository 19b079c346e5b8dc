//! Forms in which families write messages, as data for their reader (engines F).

use super::calls::format::{ATEM, Format, INKLING_CALLS, RFL};

/// Form in which a family writes messages.
#[derive(Debug)]
pub(super) struct MessageForm {
    /// Marker that begins a header.
    pub(super) start: &'static str,
    /// Markers that end a header, with the kind of the message; `None`: the words of the header tell.
    pub(super) heads: &'static [(&'static str, Option<MessageKind>)],
    /// Markers that end a message.
    pub(super) stops: &'static [&'static str],
    /// Format of the calls in a message for a tool.
    pub(super) calls: &'static Format,
    /// Text before and after the text of such a message, which make it a call of that format, around the tool's name; empty
    /// if the model writes the name itself.
    pub(super) wrap: [&'static str; 3],
}

/// Form of Muse. The prompt ends within the header of the first message.
pub(super) static MUSE: MessageForm = MessageForm {
    start: "<|start|>assistant",
    heads: &[("<|message|>", None)],
    stops: &["<|eom|>", "<|eot|>"],
    calls: &ATEM,
    wrap: ["", "", ""],
};

/// Form of Beam.
pub(super) static BEAM: MessageForm = MessageForm {
    start: "<|start|>assistant",
    heads: &[("<|message|>", None)],
    stops: &["<|end|>", "<|return|>", "<|call|>"],
    calls: &RFL,
    wrap: ["<rfl:call name=\"", "\">", "</rfl:call>"],
};

/// Form of Inkling.
pub(super) static INKLING: MessageForm = MessageForm {
    start: "<|message_model|>",
    heads: &[
        ("<|content_thinking|>", Some(MessageKind::Reasoning)),
        ("<|content_text|>", Some(MessageKind::Content)),
        ("<|content_invoke_tool_json|>", Some(MessageKind::Calls)),
        ("<|content_invoke_tool_text|>", Some(MessageKind::Content)),
        ("<|content_tool_error|>", Some(MessageKind::Content)),
    ],
    stops: &["<|end_message|>", "<|content_model_end_sampling|>"],
    calls: &INKLING_CALLS,
    wrap: ["", "", ""],
};

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    Reasoning,
    Content,
    Calls,
}
