//! Call of a tool that samewire runs, and its outcome: what the engine and the client get of them (wire-format 4.14).

use crate::json::write_string;
use bytes::BytesMut;
use std::sync::Arc;

/// Tool that samewire runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTool {
    /// Label of the tool's server in the configuration.
    pub server: Arc<str>,
    /// Label that the client gives the server.
    pub label: Arc<str>,
    /// Name of the tool at its server.
    pub name: String,
    /// True if the client has to approve each call.
    pub needs_approval: bool,
}

/// Call of a tool that samewire runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCall {
    /// Id of the call.
    pub id: String,
    /// Name of the tool as the engine knows it.
    pub function: String,
    /// Tool that is called.
    pub tool: Arc<ServerTool>,
    /// Arguments as the model wrote them, mostly a JSON object.
    pub arguments: String,
    /// Id of the item in which the client has approved the call, if an approval was needed.
    pub approval: Option<String>,
}

/// Outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// Output of the tool.
    Output(String),
    /// Error that the tool reports.
    ToolError(String),
    /// Error of the tool's server, or on the way to it.
    Failed {
        /// Code of JSON-RPC.
        code: i64,
        /// Message for the model and the client.
        message: String,
    },
}

impl CallOutcome {
    /// Returns the text that the model reads.
    pub fn text(&self) -> &str {
        match self {
            Self::Output(text) | Self::ToolError(text) | Self::Failed { message: text, .. } => text,
        }
    }

    /// Returns the outcome with another text.
    #[must_use]
    pub fn with_text(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Output(text) => Self::Output(change(text)),
            Self::ToolError(text) => Self::ToolError(change(text)),
            Self::Failed { code, message } => Self::Failed {
                code,
                message: change(message),
            },
        }
    }

    /// Returns the error as JSON; `None` for an output.
    fn error(&self) -> Option<String> {
        match self {
            Self::Output(_) => None,
            Self::ToolError(text) => {
                let part = object(&[("type", Text("text")), ("text", Text(text))]);
                let content = format!("[{part}]");
                let kind = Text("mcp_tool_execution_error");
                Some(object(&[("type", kind), ("content", Json(&content))]))
            }
            Self::Failed { code, message } => Some(object(&[
                ("type", Text("mcp_protocol_error")),
                ("code", Json(&code.to_string())),
                ("message", Text(message)),
            ])),
        }
    }
}

/// State of a call for its item.
#[derive(Clone, Copy)]
pub(super) enum CallState<'a> {
    /// The arguments are not complete.
    Begun,
    /// The answer ended before the arguments were complete.
    Cut,
    /// The call has run.
    Ran(&'a CallOutcome),
}

impl ServerCall {
    /// Returns the call as an engine reads it.
    pub(super) fn item(&self) -> String {
        object(&[
            ("type", Text("function_call")),
            ("call_id", Text(&self.id)),
            ("name", Text(&self.function)),
            ("arguments", Text(&self.arguments)),
        ])
    }

    /// Returns the outcome as an engine reads it.
    pub(super) fn output_item(&self, outcome: &CallOutcome) -> String {
        object(&[
            ("type", Text("function_call_output")),
            ("call_id", Text(&self.id)),
            ("output", Text(outcome.text())),
        ])
    }

    /// Returns the members of the item that the client sees.
    pub(super) fn shown(&self, state: CallState<'_>) -> String {
        let outcome = match state {
            CallState::Ran(outcome) => Some(outcome),
            CallState::Begun | CallState::Cut => None,
        };
        let error = outcome.and_then(CallOutcome::error);
        let output = outcome
            .filter(|_| error.is_none())
            .map_or(Json("null"), |outcome| Text(outcome.text()));
        let status = match state {
            CallState::Cut => "incomplete",
            _ if error.is_some() => "failed",
            _ => "completed",
        };
        let arguments = match state {
            CallState::Begun => "",
            _ => &self.arguments,
        };
        object(&[
            ("status", Text(status)),
            ("server_label", Text(&self.tool.label)),
            ("name", Text(&self.tool.name)),
            ("arguments", Text(arguments)),
            ("output", output),
            ("error", Json(error.as_deref().unwrap_or("null"))),
            (
                "approval_request_id",
                self.approval.as_deref().map_or(Json("null"), Text),
            ),
        ])
    }

    /// Returns the members of the item that asks the client for its approval.
    pub(super) fn approval_request(&self) -> String {
        object(&[
            ("server_label", Text(&self.tool.label)),
            ("name", Text(&self.tool.name)),
            ("arguments", Text(&self.arguments)),
        ])
    }
}

/// Value of a member.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Json(&'a str),
}

use Value::{Json, Text};

/// Returns an object of these members as JSON.
pub(super) fn object(members: &[(&str, Value<'_>)]) -> String {
    let mut out = BytesMut::new();
    for (key, value) in members {
        out.extend_from_slice(if out.is_empty() { b"{" } else { b"," });
        write_string(key, &mut out);
        out.extend_from_slice(b":");
        match value {
            Text(text) => write_string(text, &mut out),
            Json(json) => out.extend_from_slice(json.as_bytes()),
        }
    }
    out.extend_from_slice(b"}");
    // The encoder writes text only, so it is valid UTF-8.
    String::from_utf8(out.into()).unwrap_or_default()
}
