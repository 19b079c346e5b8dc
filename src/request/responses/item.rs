//! Items of the input and of stored answers, as they are read (wire-format 4.3).

use crate::json::{Raw, Text};
use crate::request::object::RequestObject;
use crate::request::turn::{Author, ContentPart};
use crate::wire::event::ToolKind;
use std::borrow::Cow;

/// Item of a conversation, borrowed from its JSON.
#[derive(Debug)]
pub(super) enum Item<'a> {
    Message {
        role: Author,
        parts: Vec<ContentPart<'a>>,
    },
    Reasoning {
        content: Vec<Text<'a>>,
        sealed: Option<Text<'a>>,
        summary: Vec<Text<'a>>,
    },
    Call {
        id: Text<'a>,
        namespace: Option<Text<'a>>,
        name: Text<'a>,
        arguments: ItemArguments<'a>,
    },
    Output {
        call: Text<'a>,
        parts: Vec<ContentPart<'a>>,
    },
    Compaction(Text<'a>),
    Reference(Text<'a>),
    /// Tools that the model may call from here on.
    Tools(Vec<RequestObject<'a>>),
    /// Tools that a search has found, with the id of its call. The model may call them from here on.
    FoundTools {
        call: Option<Text<'a>>,
        tools: Vec<RequestObject<'a>>,
    },
    /// Item of a tool that the API itself names.
    Hosted {
        kind: &'static str,
        /// Whole item with media addresses in canonical spelling, for an engine that reads it.
        raw: Cow<'a, str>,
        /// Items in its place for engines that do not read it.
        substitutes: Vec<Self>,
    },
}

impl<'a> Item<'a> {
    /// Returns the tools that the item introduces; `None` if it is not of such a type.
    pub(super) fn introduced(self) -> Option<Vec<RequestObject<'a>>> {
        match self {
            Self::Tools(tools) | Self::FoundTools { tools, .. } => Some(tools),
            Self::Hosted { substitutes, .. } => substitutes.into_iter().find_map(Self::introduced),
            _ => None,
        }
    }
}

/// Arguments of a call in the input.
#[derive(Clone, Copy, Debug)]
pub(super) enum ItemArguments<'a> {
    /// Text, of a function or of a custom tool.
    Text(Text<'a>, ToolKind),
    /// JSON object.
    Object(Raw<'a>),
}
