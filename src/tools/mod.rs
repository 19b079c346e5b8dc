//! Tools that samewire runs: connections to the servers of the configuration, lists of their tools, and calls.
//!
//! Takes: a configuration, and calls. Gives: lists of tools, and the outcome of each call. Remembers: one connection to
//! each server, and its list. Never: contacts an address that the operator has not listed, sends a server anything of
//! the client but the arguments of a call, logs arguments or outputs.

mod mcp;
mod output;
mod resolver;

use crate::config::ToolsConfig;
use crate::request::server_tools::ServerToolLists;
use crate::telemetry::Metrics;
use crate::wire::encode::{CallOutcome, ServerCall};
use mcp::McpServer;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Servers of tools that run.
pub struct ToolServers {
    config: Arc<ToolsConfig>,
    metrics: Arc<Metrics>,
    servers: Vec<Arc<McpServer>>,
}

impl ToolServers {
    /// Connects to the servers, in tasks of the current runtime, which reconnect where a connection ends.
    pub fn start(config: &Arc<ToolsConfig>, metrics: &Arc<Metrics>) -> Self {
        let start = |server| McpServer::start(Arc::clone(server));
        Self {
            servers: config.servers.iter().map(start).collect(),
            config: Arc::clone(config),
            metrics: Arc::clone(metrics),
        }
    }

    /// Returns the configuration, with the limits of their use.
    pub fn config(&self) -> &ToolsConfig {
        &self.config
    }

    /// Waits until each server has connected or failed since the start, for a request that may name one.
    pub async fn want(&self) {
        for server in &self.servers {
            server.want().await;
        }
    }

    /// Returns the current lists of the servers' tools.
    pub fn lists(&self) -> ServerToolLists {
        ServerToolLists(self.servers.iter().map(|server| server.list()).collect())
    }

    /// Returns the longest time that so many calls of one answer may take.
    pub fn limit(&self, calls: usize) -> Duration {
        let longest = self.config.servers.iter().map(|server| server.call);
        let rounds = calls.div_ceil(self.config.concurrency).max(1);
        let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
        longest.max().unwrap_or_default().saturating_mul(rounds) + Duration::from_secs(5)
    }

    /// Runs a call and returns its outcome. Dropping the future cancels the call.
    pub async fn call(&self, call: &ServerCall, request_id: &str) -> CallOutcome {
        let started = Instant::now();
        let server = self
            .servers
            .iter()
            .find(|server| *server.config.label == *call.tool.server);
        let outcome = match server {
            Some(server) => server.call(&call.tool.name, &call.arguments).await,
            None => mcp::failed("the server is no longer configured"),
        };
        let outcome = output::bounded(outcome, self.config.output_bytes);
        let word = match &outcome {
            CallOutcome::Output(_) => "ok",
            CallOutcome::ToolError(_) => "tool_error",
            CallOutcome::Failed { .. } => "failed",
        };
        let took = started.elapsed();
        self.metrics
            .tool_call(&call.tool.server, &call.tool.name, word, took);
        tracing::info!(
            request_id,
            server = &*call.tool.server,
            tool = call.tool.name,
            duration_ms = took.as_secs_f64() * 1e3,
            bytes = outcome.text().len(),
            outcome = word,
            "a tool was called"
        );
        outcome
    }
}
