//! Items of the engine that are not modelled: carried as they are, but for id, index and status (wire-format 4.4, 4.8).
//!
//! Keys: `id, type, status`, then the engine's own in their order.

use crate::json::{Members, Raw, Text, compacted, write_string};
use bytes::{BufMut, BytesMut};

/// Keys that engines leave in items although they are none of theirs.
const STRAY: [&str; 3] = ["item_id", "output_index", "sequence_number"];

/// The events that such items have of their own, each with the member it carries.
const EVENTS: [(&str, Option<&str>); 13] = [
    ("response.web_search_call.in_progress", None),
    ("response.web_search_call.searching", None),
    ("response.web_search_call.completed", None),
    ("response.code_interpreter_call.in_progress", None),
    ("response.code_interpreter_call.interpreting", None),
    ("response.code_interpreter_call.completed", None),
    ("response.code_interpreter_call_code.delta", Some("delta")),
    ("response.code_interpreter_call_code.done", Some("code")),
    ("response.mcp_call.in_progress", None),
    ("response.mcp_call.completed", None),
    ("response.mcp_call.failed", None),
    ("response.mcp_call_arguments.delta", Some("delta")),
    ("response.mcp_call_arguments.done", Some("arguments")),
];

/// What a web search that comes complete has gone through.
const SEARCH: [&str; 3] = [EVENTS[0].0, EVENTS[1].0, EVENTS[2].0];

/// An event of such an item that clients know, with the member that it carries.
pub(super) fn event(name: &str) -> Option<(&'static str, Option<&'static str>)> {
    EVENTS.iter().find(|(known, _)| *known == name).copied()
}

/// One such item.
#[derive(Debug)]
pub(super) struct Foreign {
    /// What tells it from the others while it is open.
    pub(super) slot: Option<u32>,
    kind: String,
    status: Option<String>,
    /// Its other members, each `,"key":value`.
    members: BytesMut,
    /// It is as it was at its end.
    pub(super) complete: bool,
}

impl Foreign {
    pub(super) fn new(slot: Option<u32>, kind: &str, data: Raw<'_>) -> Self {
        let mut foreign =
            Self { slot, kind: kind.to_owned(), status: None, members: BytesMut::new(), complete: false };
        foreign.read(data);
        foreign
    }

    /// How it stands now.
    pub(super) fn read(&mut self, data: Raw<'_>) {
        let Some(Members(members)) = Members::of(data.get()) else { return };
        self.status = None;
        self.members = BytesMut::with_capacity(data.get().len());
        for (key, value) in members {
            match key.as_ref() {
                "status" => self.status = Text::of(value).map(|status| status.decoded().into_owned()),
                "id" | "type" => {}
                stray if STRAY.contains(&stray) => {}
                key => {
                    self.members.put_u8(b',');
                    write_string(key, &mut self.members);
                    self.members.put_u8(b':');
                    self.members.extend_from_slice(compacted(value).as_bytes());
                }
            }
        }
    }

    /// What an item that comes complete goes through.
    pub(super) fn steps(&self) -> &'static [&'static str] {
        if self.kind == "web_search_call" { &SEARCH } else { &[] }
    }

    pub(super) fn prefix(&self) -> &str {
        match self.kind.as_str() {
            "web_search_call" => "ws",
            "code_interpreter_call" => "ci",
            "mcp_call" => "mcp",
            "compaction" => "cmp",
            kind => kind,
        }
    }

    pub(super) fn word(&self) -> &str {
        &self.kind
    }

    /// What it says of itself, if that can be: an item that has ended is not under way.
    pub(super) fn status(&self) -> Option<&str> {
        let known = self.status.as_deref().filter(|_| self.complete)?;
        (!["", "in_progress", "queued", "searching", "interpreting", "calling"].contains(&known))
            .then_some(known)
    }

    /// The members behind `status`.
    pub(super) fn write(&self, out: &mut BytesMut) {
        out.extend_from_slice(&self.members);
    }
}
