//! Foreign items: items of the engine that are not modelled. They pass unchanged, except for id, index and status
//! (wire-format 4.4, 4.8).
//!
//! Keys: `id, type, status`, then the engine's own in their order.

use crate::json::{Members, Raw, Text, compacted, write_string};
use bytes::{BufMut, BytesMut};

/// Keys of events that some engines also leave in items. They are dropped.
const STRAY: [&str; 3] = ["item_id", "output_index", "sequence_number"];

/// Events specific to foreign items, each with the member that it carries. Others are dropped, since client
/// libraries fail on unknown types.
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

/// Events that precede the end of a web search that the engine sends only when it is complete.
const SEARCH: [&str; 3] = [EVENTS[0].0, EVENTS[1].0, EVENTS[2].0];

/// Looks up an event of a foreign item. Returns its name and the key of the member that it carries; `None` if
/// clients do not know the event.
pub(super) fn event(name: &str) -> Option<(&'static str, Option<&'static str>)> {
    EVENTS.iter().find(|(known, _)| *known == name).copied()
}

/// Foreign item. Its members are stored as compact JSON, since nothing in them has to be understood.
#[derive(Debug)]
pub(super) struct Foreign {
    /// Number that identifies the item among the engine's open items; `None` if it came complete.
    pub(super) slot: Option<u32>,
    kind: String,
    status: Option<String>,
    /// Members other than id, type and status, each as `,"key":value`.
    members: BytesMut,
    /// True if the item has reached its final form.
    pub(super) complete: bool,
}

impl Foreign {
    pub(super) fn new(slot: Option<u32>, kind: &str, data: Raw<'_>) -> Self {
        let mut foreign = Self {
            slot,
            kind: kind.to_owned(),
            status: None,
            members: BytesMut::new(),
            complete: false,
        };
        foreign.read(data);
        foreign
    }

    /// Replaces status and members by those of a newer version of the item.
    pub(super) fn read(&mut self, data: Raw<'_>) {
        let Some(Members(members)) = Members::of(data.get()) else {
            return;
        };
        self.status = None;
        self.members = BytesMut::with_capacity(data.get().len());
        for (key, value) in members {
            match key.as_ref() {
                "status" => {
                    self.status = Text::of(value).map(|status| status.decoded().into_owned())
                }
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

    /// Returns the names of the events to send before the end of an item that came complete; none except for web
    /// searches.
    pub(super) fn preceding_events(&self) -> &'static [&'static str] {
        if self.kind == "web_search_call" {
            &SEARCH
        } else {
            &[]
        }
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

    pub(super) fn item_type(&self) -> &str {
        &self.kind
    }

    /// Returns the engine's status of a complete item. `None` if there is none, or if it names a step that is over
    /// by then.
    pub(super) fn status(&self) -> Option<&str> {
        let known = self.status.as_deref().filter(|_| self.complete)?;
        (![
            "",
            "in_progress",
            "queued",
            "searching",
            "interpreting",
            "calling",
        ]
        .contains(&known))
        .then_some(known)
    }

    /// Appends the members after `status`, each preceded by a comma.
    pub(super) fn write(&self, out: &mut BytesMut) {
        out.extend_from_slice(&self.members);
    }
}
