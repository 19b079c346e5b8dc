//! Rounds of an answer whose calls samewire runs (wire-format 4.14).

use super::history::LoadedHistory;
use crate::request::responses::{ResponsesRequest, approved_calls};
use crate::server::App;
use crate::server::relay::rounds::{PendingOutputs, Resumed, Rounds};
use crate::server::storage::persist::{PendingWrite, ResponseWriter};
use crate::store::Item;
use crate::tools::ToolServers;
use crate::wire::encode::{CallOutcome, Encode, Finished, ServerCall, ServerCalls, ServerTool};
use crate::wire::fault::{Failure, Fault};
use crate::wire::{AnswerWriter, OutputBuffer};
use futures::StreamExt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Tools of one request that samewire runs, and what is known of them before the first engine request.
#[derive(Clone)]
pub(super) struct ToolPlan {
    servers: Arc<ToolServers>,
    /// Tools by the engine's names.
    tools: HashMap<String, Arc<ServerTool>>,
    /// Items that begin the answer, as JSON.
    lists: Vec<String>,
    /// Calls that the client has approved.
    approved: Vec<ServerCall>,
    /// Largest number of calls.
    most_calls: usize,
}

impl ToolPlan {
    /// Returns the plan of a request; `None` if it asks for no tool of samewire's. Fails if it approves a call that nobody
    /// has asked for.
    pub(super) fn of(
        app: &App,
        request: &ResponsesRequest,
        history: &LoadedHistory,
    ) -> Result<Option<Self>, Failure> {
        let Some(servers) = &app.tools else {
            return Ok(None);
        };
        let tools = request.tools.server_tools();
        let (earlier, input) = (history.history(), history.items(request));
        let approved = approved_calls(&tools, earlier, input)?;
        if !request.tools.names_servers() {
            return Ok(None);
        }
        let most = servers.config().max_calls;
        let wanted = request.settings.max_tool_calls;
        let wanted = wanted.and_then(|most| usize::try_from(most).ok());
        Ok(Some(Self {
            servers: Arc::clone(servers),
            lists: request.tool_lists(history.all(request)),
            approved,
            tools,
            most_calls: wanted.map_or(most, |wanted| wanted.min(most)),
        }))
    }

    /// Wraps the encoder of an answer.
    pub(super) fn wrap(&self, encoder: Box<dyn Encode>) -> Box<dyn Encode> {
        Box::new(ServerCalls::new(
            encoder,
            self.tools.clone(),
            self.lists.clone(),
            self.approved.clone(),
        ))
    }

    /// Returns the rounds of the answer.
    pub(super) fn rounds(&self, app: &Arc<App>, request_id: &Arc<str>) -> ToolRuns {
        ToolRuns {
            app: Arc::clone(app),
            servers: Arc::clone(&self.servers),
            request_id: Arc::clone(request_id),
            requests: usize::from(self.approved.is_empty()),
            calls_left: self.most_calls,
            outcomes: Arc::default(),
        }
    }
}

/// Rounds of one answer.
pub(super) struct ToolRuns {
    app: Arc<App>,
    servers: Arc<ToolServers>,
    request_id: Arc<str>,
    /// Number of engine requests so far.
    requests: usize,
    calls_left: usize,
    /// Outcomes of the calls of the current pause, in their order.
    outcomes: Arc<Mutex<Vec<Option<CallOutcome>>>>,
}

impl Rounds for ToolRuns {
    fn begin(&mut self, _: &str) {}

    fn pause(&mut self, writer: &mut AnswerWriter, out: &mut OutputBuffer) -> PendingOutputs {
        let calls = writer.server_calls().map(|calls| calls.begin_calls(out));
        let mut calls = calls.unwrap_or_default();
        let count = calls.len();
        let runs = count.min(self.calls_left);
        self.calls_left -= runs;
        calls.truncate(runs);
        let outcomes = Arc::new(Mutex::new(vec![None; count]));
        self.outcomes = Arc::clone(&outcomes);
        let (app, servers) = (Arc::clone(&self.app), Arc::clone(&self.servers));
        let request_id = Arc::clone(&self.request_id);
        Box::pin(async move {
            let most = servers.config().concurrency;
            let calls = futures::stream::iter(calls.iter().enumerate());
            let all = calls.for_each_concurrent(most, |(at, call)| {
                let (servers, outcomes, request_id) = (&servers, &outcomes, &request_id);
                async move {
                    let outcome = servers.call(call, request_id).await;
                    if let Some(place) = outcomes.lock().get_mut(at) {
                        *place = Some(outcome);
                    }
                }
            });
            tokio::select! {
                () = all => {}
                () = app.cut() => {}
            }
        })
    }

    fn limit(&self) -> Duration {
        self.servers.limit(self.outcomes.lock().len())
    }

    fn resume(
        &mut self,
        writer: &mut AnswerWriter,
        out: &mut OutputBuffer,
    ) -> Result<Resumed, Failure> {
        let outcomes = std::mem::take(&mut *self.outcomes.lock());
        let refused =
            || CallOutcome::ToolError("The limit of calls of tools is reached.".to_owned());
        let outcomes = outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or_else(refused));
        let outcomes: Vec<_> = outcomes.collect();
        let calls = writer.server_calls().ok_or(Fault::Proxy)?;
        let Some(items) = calls.resume(&outcomes, out) else {
            return Ok(Resumed::Ended);
        };
        let most = self.servers.config().max_rounds;
        self.requests += 1;
        if self.requests > most {
            let message =
                format!("The model still calls tools after {most} requests (tools.max_rounds).");
            return Err(Failure::from(Fault::ToolServer).with_message(message));
        }
        Ok(Resumed::Continues(
            items.iter().map(|item| Item::new("", item)).collect(),
        ))
    }

    fn store(self: Box<Self>, writer: ResponseWriter, finished: Finished) -> PendingWrite {
        writer.store_final(finished)
    }
}
