//! Servers that speak the Model Context Protocol, by its official SDK: over streamable HTTP, or as programs on stdio.
//!
//! A task for each server connects, reads its list of tools, reads it again when the server says that it has changed,
//! and connects anew after a failure. The SDK declines what servers may ask of clients (sampling, elicitation, roots).

use super::resolver::PublicAddresses;
use crate::config::{McpConfig, McpEndpoint};
use crate::error::innermost_cause;
use crate::request::server_tools::{ListedTool, ServerToolList};
use crate::tls::{client_config, roots, trusting_nobody};
use crate::wire::disclosure::is_private_name;
use crate::wire::encode::CallOutcome;
use reqwest::redirect::Policy;
use rmcp::ClientHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ContentBlock,
    Implementation, ResourceContents, Tool,
};
use rmcp::service::{
    NotificationContext, Peer, RoleClient, RunningService, ServiceError, ServiceExt,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// Code of JSON-RPC for an internal error.
const INTERNAL_ERROR: i64 = -32_603;
/// Largest number of tools that a server may list.
const MOST_TOOLS: usize = 1_000;
/// Largest message of a server, in bytes.
const MESSAGE_BYTES: usize = 16 << 20;
/// Largest number of requests to one server at once.
const MOST_CALLS: usize = 4096;
/// Shortest pause before a connection is tried again, however much the server is needed.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause before a connection is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Server, with the task that keeps its connection.
pub(super) struct McpServer {
    pub(super) config: Arc<McpConfig>,
    state: watch::Receiver<ServerState>,
    /// Wakes the task from its pause: the server is needed now.
    wanted: Arc<Notify>,
}

/// State of a server's connection.
#[derive(Clone)]
enum ServerState {
    /// The first connection is under way.
    Starting,
    /// Connected, with the tools that may be called.
    Up(Peer<RoleClient>, Arc<[ListedTool]>),
    /// Not connected, for this reason, which clients may read.
    Down(Arc<str>),
}

/// Handler of the notifications of a server.
struct ListChanges(Arc<Notify>);

impl ClientHandler for ListChanges {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.notify_one();
    }
}

type Connection = RunningService<RoleClient, ListChanges>;

impl McpServer {
    pub(super) fn start(config: Arc<McpConfig>) -> Arc<Self> {
        let (states, state) = watch::channel(ServerState::Starting);
        let wanted = Arc::new(Notify::new());
        #[expect(
            clippy::disallowed_methods,
            reason = "one task for each configured server of tools"
        )]
        tokio::spawn(keep_connected(
            Arc::clone(&config),
            states,
            Arc::clone(&wanted),
        ));
        Arc::new(Self {
            config,
            state,
            wanted,
        })
    }

    /// Waits until the server has connected or failed since the start. A server that is not connected is tried again.
    pub(super) async fn want(&self) {
        let mut state = self.state.clone();
        let is_settled = |state: &ServerState| !matches!(state, ServerState::Starting);
        if let Ok(state) = state.wait_for(is_settled).await
            && matches!(*state, ServerState::Down(_))
        {
            self.wanted.notify_one();
        }
    }

    /// Returns the list of the server's tools, or the reason why it is not known.
    pub(super) fn list(&self) -> ServerToolList {
        let tools = match &*self.state.borrow() {
            ServerState::Up(_, tools) => Ok(Arc::clone(tools)),
            ServerState::Down(why) => Err(Arc::clone(why)),
            ServerState::Starting => Err("it is not connected yet".into()),
        };
        let url = match &self.config.endpoint {
            McpEndpoint::Http { url, .. } => Some(url.as_str().into()),
            McpEndpoint::Command { .. } => None,
        };
        ServerToolList {
            label: Arc::clone(&self.config.label),
            url,
            tools,
        }
    }

    /// Calls a tool with arguments as the model wrote them.
    pub(super) async fn call(&self, tool: &str, arguments: &str) -> CallOutcome {
        let arguments = match arguments.trim() {
            "" => None,
            text => match serde_json::from_str(text) {
                Ok(arguments) => Some(arguments),
                Err(_) => return failed("the arguments are no JSON object"),
            },
        };
        let peer = match &*self.state.borrow() {
            ServerState::Up(peer, _) => peer.clone(),
            ServerState::Down(why) => return failed(why),
            ServerState::Starting => return failed("the server is not connected yet"),
        };
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = arguments;
        match timeout(self.config.call, peer.call_tool(params)).await {
            Ok(Ok(result)) => outcome(result),
            Ok(Err(error)) => failure(&self.config.label, error),
            Err(_) => failed(&format!(
                "the tool has not answered within {} s",
                self.config.call.as_secs_f32()
            )),
        }
    }
}

/// Returns the outcome of a call that the server or samewire could not complete.
pub(super) fn failed(why: &str) -> CallOutcome {
    CallOutcome::Failed {
        code: INTERNAL_ERROR,
        message: why.to_owned(),
    }
}

/// Returns the outcome of a call that the server refuses or that does not reach it. In the latter case only the log has
/// the cause, which names addresses.
fn failure(server: &str, error: ServiceError) -> CallOutcome {
    if let ServiceError::McpError(error) = error {
        return CallOutcome::Failed {
            code: error.code.0.into(),
            message: error.message.into_owned(),
        };
    }
    let why = innermost_cause(&error);
    tracing::warn!(server, why, "a call of a tool has failed");
    failed("the server has not answered the call")
}

/// Returns the text of a result, in which media are named.
fn outcome(result: CallToolResult) -> CallOutcome {
    let mut texts: Vec<String> = result.content.into_iter().map(text).collect();
    if texts.is_empty() {
        texts.extend(result.structured_content.map(|json| json.to_string()));
    }
    let text = texts.join("\n");
    match result.is_error {
        Some(true) => CallOutcome::ToolError(text),
        _ => CallOutcome::Output(text),
    }
}

fn text(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => format!("[an image of type {}]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[a sound of type {}]", audio.mime_type),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text,
            ResourceContents::BlobResourceContents { uri, .. } => format!("[the data of {uri}]"),
            _ => "[a resource]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[{}]({})", link.name, link.uri),
        _ => "[content of an unknown type]".to_owned(),
    }
}

async fn keep_connected(
    config: Arc<McpConfig>,
    states: watch::Sender<ServerState>,
    wanted: Arc<Notify>,
) {
    let mut pause = SHORTEST_PAUSE;
    while !states.is_closed() {
        let changed = Arc::new(Notify::new());
        let connected = async {
            let connection = connect(&config, &changed).await?;
            let tools = listed(&config, connection.peer()).await?;
            Ok::<_, String>((connection, tools))
        };
        let (public, why) = match timeout(config.connect, connected).await {
            Ok(Ok((connection, tools))) => {
                pause = SHORTEST_PAUSE;
                tracing::info!(
                    server = &*config.label,
                    tools = tools.len(),
                    "a server of tools is connected"
                );
                states.send_replace(ServerState::Up(connection.peer().clone(), tools));
                let why = watch_connection(&config, connection, &changed, &states).await;
                ("its connection has ended", why)
            }
            Ok(Err(why)) => ("it cannot be reached", why),
            Err(_) => (
                "it does not answer in time",
                "it does not answer in time".to_owned(),
            ),
        };
        tracing::warn!(
            server = &*config.label,
            why,
            "a server of tools is not connected"
        );
        states.send_replace(ServerState::Down(public.into()));
        tokio::time::sleep(SHORTEST_PAUSE).await;
        tokio::select! {
            () = wanted.notified() => {}
            () = tokio::time::sleep(pause - SHORTEST_PAUSE) => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Keeps the list of tools current until the connection ends. Returns why it has.
async fn watch_connection(
    config: &McpConfig,
    connection: Connection,
    changed: &Notify,
    states: &watch::Sender<ServerState>,
) -> String {
    let peer = connection.peer().clone();
    let ended = connection.waiting();
    tokio::pin!(ended);
    loop {
        tokio::select! {
            _ = &mut ended => return "the connection has ended".to_owned(),
            () = changed.notified() => match timeout(config.connect, listed(config, &peer)).await {
                Ok(Ok(tools)) => {
                    states.send_replace(ServerState::Up(peer.clone(), tools));
                }
                Ok(Err(why)) => return why,
                Err(_) => return "its list of tools does not come in time".to_owned(),
            },
        }
    }
}

async fn connect(config: &McpConfig, changed: &Arc<Notify>) -> Result<Connection, String> {
    let handler = ListChanges(Arc::clone(changed));
    let served = match &config.endpoint {
        McpEndpoint::Http {
            url,
            headers,
            private_addresses,
        } => {
            let client = http_client(url, *private_addresses, config.connect)?;
            let headers = headers.iter();
            let headers = headers.map(|(name, value)| (name.clone(), value.value()));
            let mut transport = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                .custom_headers(headers.collect())
                .max_sse_event_size(MESSAGE_BYTES);
            transport.max_json_response_size = MESSAGE_BYTES;
            transport.max_concurrent_requests = MOST_CALLS;
            let transport = StreamableHttpClientTransport::with_client(client, transport);
            handler.serve(transport).await
        }
        McpEndpoint::Command {
            program,
            arguments,
            environment,
        } => {
            let mut command = Command::new(program);
            let environment = environment.iter().map(|(name, value)| (*name, value));
            command.args(arguments).env_clear().envs(environment);
            let builder = TokioChildProcess::builder(command).stderr(Stdio::null());
            let (transport, _) = builder.spawn().map_err(|error| error.to_string())?;
            handler.serve(transport).await
        }
    };
    served.map_err(|error| innermost_cause(&error))
}

/// Returns a client that contacts no address but that of this URL: it follows no redirect and uses no proxy.
fn http_client(
    url: &str,
    private_addresses: bool,
    connect: Duration,
) -> Result<reqwest::Client, String> {
    let host = url.parse::<http::Uri>().ok();
    let host = host.as_ref().and_then(http::Uri::host).unwrap_or_default();
    let tls = match url.starts_with("https:") {
        true => client_config(roots(None)?),
        false => trusting_nobody(),
    };
    let mut client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls.map_err(|error| error.to_string())?)
        .redirect(Policy::none())
        .no_proxy()
        .pool_max_idle_per_host(0)
        .connect_timeout(connect);
    if !private_addresses && !is_private_name(host) {
        client = client.dns_resolver(PublicAddresses);
    }
    client.build().map_err(|error| error.to_string())
}

async fn listed(config: &McpConfig, peer: &Peer<RoleClient>) -> Result<Arc<[ListedTool]>, String> {
    let all = peer
        .list_all_tools()
        .await
        .map_err(|error| innermost_cause(&error))?;
    if all.len() > MOST_TOOLS {
        return Err(format!(
            "it lists {} tools; at most {MOST_TOOLS} are used",
            all.len()
        ));
    }
    let allowed = all.into_iter().filter(|tool| config.allows(&tool.name));
    Ok(allowed.map(|tool| listed_tool(config, tool)).collect())
}

fn listed_tool(config: &McpConfig, tool: Tool) -> ListedTool {
    let annotations = tool.annotations.as_ref();
    ListedTool {
        needs_approval: config.needs_approval(&tool.name),
        is_read_only: annotations.and_then(|told| told.read_only_hint) == Some(true),
        annotations: annotations.and_then(|told| serde_json::to_string(told).ok()),
        description: tool.description.map(|text| text.into_owned()),
        schema: serde_json::to_string(&*tool.input_schema).unwrap_or_else(|_| "{}".to_owned()),
        name: tool.name.into_owned(),
    }
}
