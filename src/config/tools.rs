//! Table `[tools]`: servers of tools that samewire runs itself, and the limits of their use.

use super::limits::{BYTES, NUMBER};
use super::mistakes::Mistakes;
use super::rows::{self, table};
use super::upstreams::server_url;
use super::values::Seconds;
use super::variable;
use crate::quantity::read_size;
use crate::secret::{self, Secret};
use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// URL of a server, as errors show it.
const EXAMPLE: &str = "https://tools.example/mcp";
/// Variables of the environment without which programs may not run.
const VARIABLES: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

table! {
    /// Table `[tools]`: the servers of tools, and how much of them one answer may use.
    ToolsFile {
        max_rounds: usize = 32, within(1, 1000);
        max_calls: usize = 128, within(1, NUMBER);
        concurrency: usize = 8, within(1, 1000);
        max_output_bytes: usize as "read_size" = 256 << 10, within(1 << 10, BYTES);
        mcp: Vec<McpFile>, table;
    }
}

table! {
    /// Entry `[[tools.mcp]]`: a server that speaks the Model Context Protocol, before it is checked.
    McpFile {
        label: String;
        url: String;
        command: Vec<String>;
        headers_file: PathBuf;
        private_addresses: bool;
        allowed_tools: Vec<String>;
        require_approval: ApprovalRule;
        without_approval: Vec<String>;
        connect: Seconds = Seconds::of(10), positive;
        call: Seconds = Seconds::of(60), positive;
    }
}

/// Rule for the calls that clients have to approve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalRule {
    /// Clients approve each call, except of tools in `without_approval`.
    #[default]
    Always,
    /// Clients approve no call, unless their request asks for approvals.
    Never,
}

/// Servers of tools and the limits of their use, checked.
#[derive(Clone, Debug)]
pub struct ToolsConfig {
    /// Largest number of engine requests for one answer.
    pub max_rounds: usize,
    /// Largest number of calls in one answer.
    pub max_calls: usize,
    /// Number of calls of one answer that run at once.
    pub concurrency: usize,
    /// Bytes of an output that the model and the client get; the rest is left out.
    pub output_bytes: usize,
    /// Servers, in the order of the file.
    pub servers: Vec<Arc<McpConfig>>,
}

/// Server of tools.
#[derive(Clone, Debug)]
pub struct McpConfig {
    /// Label by which requests name the server.
    pub label: Arc<str>,
    /// Endpoint of the server.
    pub endpoint: McpEndpoint,
    /// Tools that may be called; empty: all.
    pub allowed_tools: Vec<String>,
    /// Rule for the calls that clients have to approve.
    pub require_approval: ApprovalRule,
    /// Tools whose calls need no approval.
    pub without_approval: Vec<String>,
    /// Time limit for the connection and for the list of tools.
    pub connect: Duration,
    /// Time limit for one call.
    pub call: Duration,
}

/// Endpoint of a server of tools.
#[derive(Clone, Debug)]
pub enum McpEndpoint {
    /// Server over HTTP (streamable HTTP).
    Http {
        /// Address, such as `https://tools.example/mcp`.
        url: String,
        /// Headers that it gets.
        headers: Vec<(HeaderName, Secret)>,
        /// True if its name may resolve to a private address.
        private_addresses: bool,
    },
    /// Program that samewire starts.
    Command {
        /// Name or path of the program.
        program: String,
        /// Arguments of the program.
        arguments: Vec<String>,
        /// Variables that it gets; samewire's others may hold keys.
        environment: Vec<(&'static str, String)>,
    },
}

impl McpConfig {
    /// Returns true if the server's operator requires an approval for each call of this tool.
    pub fn needs_approval(&self, tool: &str) -> bool {
        self.require_approval == ApprovalRule::Always
            && !self.without_approval.iter().any(|exempt| exempt == tool)
    }

    /// Returns true if this tool may be called.
    pub fn allows(&self, tool: &str) -> bool {
        self.allowed_tools.is_empty() || self.allowed_tools.iter().any(|allowed| allowed == tool)
    }

    fn resolve(at: usize, file: &McpFile, mistakes: &mut Mistakes) -> Option<Arc<Self>> {
        let path = |key: &str| format!("tools.mcp[{at}].{key}");
        if !is_label(&file.label) {
            mistakes.add(
                path("label"),
                "must be 1 to 64 letters, digits, - or _, as requests name the server",
            );
        }
        let endpoint = endpoint(file, &path, mistakes)?;
        Some(Arc::new(Self {
            label: file.label.as_str().into(),
            endpoint,
            allowed_tools: file.allowed_tools.clone(),
            require_approval: file.require_approval,
            without_approval: file.without_approval.clone(),
            connect: *file.connect,
            call: *file.call,
        }))
    }
}

impl ToolsFile {
    /// Returns the tools that samewire runs; `None` if no server is configured.
    pub(super) fn resolve(&self, mistakes: &mut Mistakes) -> Option<ToolsConfig> {
        let servers = self.mcp.iter().enumerate();
        let servers: Vec<_> = servers
            .filter_map(|(at, file)| McpConfig::resolve(at, file, mistakes))
            .collect();
        for (at, one) in self.mcp.iter().enumerate() {
            let mut earlier = self.mcp.iter().take(at);
            if let Some(other) = earlier.position(|other| other.label == one.label) {
                let why = format!(
                    "\"{}\" is the label of tools.mcp[{other}] already",
                    one.label
                );
                mistakes.add(format!("tools.mcp[{at}].label"), why);
            }
        }
        (!servers.is_empty()).then(|| ToolsConfig {
            max_rounds: self.max_rounds,
            max_calls: self.max_calls,
            concurrency: self.concurrency,
            output_bytes: self.max_output_bytes,
            servers,
        })
    }
}

/// Returns comments that say whose tools samewire calls; empty without a server.
pub(super) fn summary(tools: Option<&ToolsConfig>) -> String {
    let mut lines = String::new();
    for server in tools.iter().flat_map(|tools| &tools.servers) {
        let place = match &server.endpoint {
            McpEndpoint::Http { url, .. } => url,
            McpEndpoint::Command { program, .. } => program,
        };
        let which = match server.allowed_tools.as_slice() {
            [] => "all tools".to_owned(),
            names => names.join(", "),
        };
        let approval = match (server.require_approval, server.without_approval.as_slice()) {
            (ApprovalRule::Never, _) => "without approval unless a request asks for it".to_owned(),
            (ApprovalRule::Always, []) => "each call approved by the client".to_owned(),
            (ApprovalRule::Always, names) => {
                format!(
                    "each call approved by the client, except of {}",
                    names.join(", ")
                )
            }
        };
        lines.push_str(&format!(
            "# Runs tools of {} ({place}): {which}; {approval}.\n",
            server.label
        ));
    }
    if !lines.is_empty() {
        lines.push('\n');
    }
    lines
}

fn is_label(label: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=64).contains(&label.len()) && label.bytes().all(is_allowed)
}

/// Returns the endpoint of a server: exactly one of `url` and `command` is set.
fn endpoint(
    file: &McpFile,
    path: &dyn Fn(&str) -> String,
    mistakes: &mut Mistakes,
) -> Option<McpEndpoint> {
    let headers = headers(&file.headers_file)
        .map_err(|why| mistakes.add(path("headers_file"), why))
        .ok();
    match (file.url.as_str(), file.command.split_first()) {
        ("", None) => mistakes.add_none(
            &path("url"),
            format!("missing; an address such as {EXAMPLE}, or command = [\"PROGRAM\", …]"),
        ),
        ("", Some((program, arguments))) => {
            if file.headers_file != Path::new("") {
                mistakes.add(
                    path("headers_file"),
                    "a program gets no headers; it needs url",
                );
            }
            let environment = VARIABLES.into_iter();
            let environment = environment.filter_map(|name| Some((name, variable(name)?)));
            Some(McpEndpoint::Command {
                program: program.clone(),
                arguments: arguments.to_vec(),
                environment: environment.collect(),
            })
        }
        (_, Some(_)) => mistakes.add_none(&path("command"), "excludes url; give one of the two"),
        (url, None) => {
            if let Err(why) = server_url(url, EXAMPLE, "headers_file") {
                return mistakes.add_none(&path("url"), why);
            }
            Some(McpEndpoint::Http {
                url: url.to_owned(),
                headers: headers?,
                private_addresses: file.private_addresses,
            })
        }
    }
}

/// Reads a file of headers: lines such as `authorization: Bearer KEY`. Empty without a file.
fn headers(path: &Path) -> Result<Vec<(HeaderName, Secret)>, String> {
    if path == Path::new("") {
        return Ok(Vec::new());
    }
    let text = secret::read(path)?;
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            header(line).ok_or_else(|| format!("line {} must be NAME: VALUE", at + 1))
        })
        .collect()
}

fn header(line: &str) -> Option<(HeaderName, Secret)> {
    let (name, value) = line.split_once(':')?;
    let name = HeaderName::try_from(name.trim()).ok()?;
    HeaderValue::try_from(value.trim()).ok()?;
    Some((name, Secret::with_prefix("", value.trim())?))
}
