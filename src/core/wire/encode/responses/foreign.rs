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
const EVENTS: [(&str, Option<&str>); 16] = [
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
    ("response.mcp_list_tools.in_progress", None),
    ("response.mcp_list_tools.completed", None),
    ("response.mcp_list_tools.failed", None),
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
    /// Members other than id, type and status, as keys and compact JSON.
    members: Vec<(String, String)>,
    /// True if the item has reached its final form.
    pub(super) complete: bool,
}

impl Foreign {
    pub(super) fn new(slot: Option<u32>, kind: &str, data: Raw<'_>) -> Self {
        let mut foreign = Self {
            slot,
            kind: kind.to_owned(),
            status: None,
            members: Vec::new(),
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
        self.members.clear();
        for (key, value) in members {
            match key.as_ref() {
                "status" => {
                    self.status = Text::of(value).map(|status| status.decoded().into_owned())
                }
                "id" | "type" => {}
                stray if STRAY.contains(&stray) => {}
                key => self.members.push((key.to_owned(), compacted(value))),
            }
        }
    }

    /// Replaces the value of a member that an event has completed; ignored if the item has no such member.
    pub(super) fn complete_member(&mut self, key: &str, value: Raw<'_>) {
        if let Some((_, known)) = self.members.iter_mut().find(|(known, _)| known == key) {
            *known = compacted(value);
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
            "mcp_list_tools" => "mcpl",
            "mcp_approval_request" => "mcpr",
            "compaction" => "cmp",
            kind => kind,
        }
    }

    /// Returns true if items of this type have a status.
    pub(super) fn has_status(&self) -> bool {
        !matches!(
            self.kind.as_str(),
            "mcp_list_tools" | "mcp_approval_request"
        )
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
        for (key, value) in &self.members {
            out.put_u8(b',');
            write_string(key, out);
            out.put_u8(b':');
            out.extend_from_slice(value.as_bytes());
        }
    }
}
