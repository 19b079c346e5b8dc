//! Tools that samewire runs, as requests name and use them.

use crate::json::write_string;
use bytes::BytesMut;
use std::sync::Arc;

/// Lists of the servers' tools, in the order of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerToolLists(pub Vec<ServerToolList>);

/// List of one server's tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerToolList {
    /// Label by which requests name the server.
    pub label: Arc<str>,
    /// Address by which requests may name it; `None` for a program.
    pub url: Option<Arc<str>>,
    /// Tools that may be called, or why they are not known.
    pub tools: Result<Arc<[ListedTool]>, Arc<str>>,
}

/// Tool of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTool {
    /// Name at the server.
    pub name: String,
    /// Text for the model.
    pub description: Option<String>,
    /// JSON schema of the arguments.
    pub schema: String,
    /// The server's hints about the tool, as JSON.
    pub annotations: Option<String>,
    /// True if the operator wants each call approved.
    pub needs_approval: bool,
    /// True if the server says that the tool changes nothing.
    pub is_read_only: bool,
}

impl ServerToolLists {
    /// Returns the server with this address, or with this label where no address is given.
    pub(crate) fn find(&self, label: &str, url: Option<&str>) -> Option<&ServerToolList> {
        let is_meant = |list: &&ServerToolList| match url {
            Some(url) => list
                .url
                .as_deref()
                .is_some_and(|own| same_address(own, url)),
            None => *list.label == *label,
        };
        self.0.iter().find(is_meant)
    }
}

/// Returns true if both are the same address, whether they end in a slash or not.
fn same_address(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

impl ListedTool {
    /// Appends the tool as the item `mcp_list_tools` has it.
    pub(crate) fn write(&self, out: &mut BytesMut) {
        out.extend_from_slice(b"{\"name\":");
        write_string(&self.name, out);
        out.extend_from_slice(b",\"description\":");
        match &self.description {
            Some(text) => write_string(text, out),
            None => out.extend_from_slice(b"null"),
        }
        for (key, json) in [
            ("input_schema", self.schema.as_str()),
            ("annotations", self.annotations.as_deref().unwrap_or("null")),
        ] {
            out.extend_from_slice(format!(",\"{key}\":{json}").as_bytes());
        }
        out.extend_from_slice(b"}");
    }
}
