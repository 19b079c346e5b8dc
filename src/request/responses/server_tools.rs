//! Servers of tools that a Responses request names, of which samewire runs the tools (wire-format 4.14).

use crate::json::{Members, Raw, Text, separated, write_compact, write_string};
use crate::request::check::list;
use crate::request::object::RequestObject;
use crate::request::offered_tools::write_rest;
use crate::request::refusals::invalid;
use crate::request::server_tools::{ListedTool, ServerToolLists};
use crate::wire::encode::ServerTool;
use crate::wire::fault::{Failure, Fault};
use bytes::BytesMut;
use std::sync::Arc;

/// Type of the tool that names a server.
pub(super) const MCP: &str = "mcp";
/// Members with a client's credentials for a server. They reach no server; it gets the operator's.
const CREDENTIALS: [&str; 2] = ["authorization", "headers"];
/// Maximum number of names in a filter.
const MOST: usize = 1024;

/// Server that a request asks for.
#[derive(Clone, Debug)]
pub(super) struct UsedServer {
    /// Label that the client gives it.
    pub(super) label: Arc<str>,
    /// Tools that the model may call, each with what samewire does with a call.
    pub(super) tools: Vec<(ListedTool, Arc<ServerTool>)>,
    /// Members without effect, as paths.
    pub(super) ignored: Vec<String>,
}

impl UsedServer {
    /// Reads a tool of type `mcp`; `None` if it names no server of the operator's.
    ///
    /// # Errors
    /// Fails on a member of the wrong type, and if the server's tools are not known.
    pub(super) fn read(
        tool: &RequestObject<'_>,
        servers: &ServerToolLists,
    ) -> Result<Option<Self>, Failure> {
        if tool.required_text("type")?.decoded() != MCP || servers.0.is_empty() {
            return Ok(None);
        }
        let label: Arc<str> = tool.required_name("server_label")?.decoded().into();
        let url = tool
            .text("server_url")?
            .map(|url| url.decoded().into_owned());
        let Some(server) = servers.find(&label, url.as_deref()) else {
            return Ok(None);
        };
        let listed = server.tools.as_ref().map_err(|why| {
            let message = format!("The tools of the server '{label}' are not known: {why}.");
            Failure::from(Fault::ToolServer)
                .with_message(message)
                .with_param(tool.here())
        })?;
        let allowed = ToolFilter::read(tool, "allowed_tools")?;
        let approval = ApprovalPolicy::read(tool)?;
        let used = listed
            .iter()
            .filter(|listed| allowed.as_ref().is_none_or(|filter| filter.has(listed)));
        let used = used.map(|listed| {
            let tool = ServerTool {
                server: Arc::clone(&server.label),
                label: Arc::clone(&label),
                name: listed.name.clone(),
                needs_approval: listed.needs_approval || approval.covers(listed),
            };
            (listed.clone(), Arc::new(tool))
        });
        let ignored = CREDENTIALS.iter().filter(|key| tool.get(key).is_some());
        Ok(Some(Self {
            tools: used.collect(),
            ignored: ignored.map(|key| tool.path(key)).collect(),
            label,
        }))
    }

    /// Returns the item with the list of the server's tools for the client, as JSON.
    pub(super) fn list_item(&self) -> String {
        let mut out = BytesMut::from(&b"{\"server_label\":"[..]);
        write_string(&self.label, &mut out);
        out.extend_from_slice(b",\"tools\":[");
        separated(&self.tools, &mut out, |(listed, _), out| listed.write(out));
        out.extend_from_slice(b"],\"error\":null}");
        String::from_utf8(out.into()).unwrap_or_default()
    }
}

/// Returns the members of a function after its name, as engines know the tool.
pub(super) fn function(tool: &ListedTool) -> String {
    let mut out = BytesMut::new();
    let description = tool.description.as_deref().map(Text::plain);
    write_rest(description, Raw::of(&tool.schema), None, &mut out);
    String::from_utf8(out.into()).unwrap_or_default()
}

/// Filter of a server's tools: a list of names, or an object.
#[derive(Default)]
struct ToolFilter {
    names: Option<Vec<String>>,
    read_only: Option<bool>,
}

impl ToolFilter {
    fn read(of: &RequestObject<'_>, key: &str) -> Result<Option<Self>, Failure> {
        let Some(raw) = of.get(key) else {
            return Ok(None);
        };
        let names = |path: &str, raw: Raw<'_>| {
            let must = || invalid(path, "it must be a list of names of tools");
            let names = list(path, raw, MOST)?.into_iter();
            let names = names.map(|name| Some(Text::of(name)?.decoded().into_owned()));
            names.collect::<Option<Vec<_>>>().ok_or_else(must)
        };
        let path = of.path(key);
        if raw.get().starts_with('[') {
            let names = Some(names(&path, raw)?);
            return Ok(Some(Self {
                names,
                read_only: None,
            }));
        }
        let filter = RequestObject::of(path, raw)?;
        let named = filter
            .get("tool_names")
            .map(|raw| names(&filter.path("tool_names"), raw));
        Ok(Some(Self {
            names: named.transpose()?,
            read_only: filter.flag("read_only")?.map(|flag| flag.get() == "true"),
        }))
    }

    /// Returns true if the filter is not empty and the tool passes it.
    fn names_some(&self, tool: &ListedTool) -> bool {
        (self.names.is_some() || self.read_only.is_some()) && self.has(tool)
    }

    fn has(&self, tool: &ListedTool) -> bool {
        let is_named = |names: &Vec<String>| names.contains(&tool.name);
        self.names.as_ref().is_none_or(is_named)
            && self.read_only.is_none_or(|is| is == tool.is_read_only)
    }
}

/// Calls that the client wants to approve; by default, all.
enum ApprovalPolicy {
    All,
    None,
    /// All but those of the tools of one filter, unless the other has them, too.
    Except {
        never: ToolFilter,
        always: Option<ToolFilter>,
    },
    /// Only those of these tools.
    Only(ToolFilter),
}

impl ApprovalPolicy {
    fn read(tool: &RequestObject<'_>) -> Result<Self, Failure> {
        const KEY: &str = "require_approval";
        let Some(raw) = tool.get(KEY) else {
            return Ok(Self::All);
        };
        if raw.get().starts_with('"') {
            return Ok(match tool.word(KEY, &["always", "never"])?.as_deref() {
                Some("never") => Self::None,
                _ => Self::All,
            });
        }
        let filters = RequestObject::of(tool.path(KEY), raw)?;
        let never = ToolFilter::read(&filters, "never")?;
        let always = ToolFilter::read(&filters, "always")?;
        Ok(match never {
            Some(never) => Self::Except { never, always },
            None => always.map_or(Self::All, Self::Only),
        })
    }

    fn covers(&self, tool: &ListedTool) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Except { never, always } => {
                !never.names_some(tool)
                    || always
                        .as_ref()
                        .is_some_and(|always| always.names_some(tool))
            }
            Self::Only(filter) => filter.names_some(tool),
        }
    }
}

/// Returns a tool of type `mcp` without the client's credentials, which neither the answer nor the store may have; `None`
/// if it has none.
pub(super) fn without_credentials(tool: Raw<'_>) -> Option<String> {
    let Members(members) = Members::of(tool.get())?;
    let is_server = |(key, value): &(_, Raw<'_>)| *key == "type" && value.get() == "\"mcp\"";
    let is_hidden = |(key, _): &(std::borrow::Cow<'_, str>, Raw<'_>)| CREDENTIALS.contains(&&**key);
    if !members.iter().any(is_server) || !members.iter().any(is_hidden) {
        return None;
    }
    let mut out = BytesMut::from(&b"{"[..]);
    let shown = members.into_iter().filter(|member| !is_hidden(member));
    separated(shown, &mut out, |(key, value), out| {
        write_string(&key, out);
        out.extend_from_slice(b":");
        write_compact(value.get(), out);
    });
    out.extend_from_slice(b"}");
    String::from_utf8(out.into()).ok()
}
