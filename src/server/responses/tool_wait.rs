//! Streams that stay open until the client posts the outputs of their tool calls, and then continue (wire-format
//! 4.10).
//!
//! ```text
//! round ─→ calls, and the engine has ended ─→ outputs ─→ the next round of the same relay ─→ … ─→ the last event
//! ```
//!
//! Only the process that has the client's connection can take the outputs.

use super::submit_outputs;
use super::tool_outputs::ToolOutputStore;
use crate::plan::Route;
use crate::request::responses::outputs::{self as given, Output, PendingCall};
use crate::server::App;
use crate::server::admitted::Admitted;
use crate::server::relay::rounds::{PendingOutputs, Resumed, Rounds};
use crate::server::storage::persist::{self, PendingWrite, ResponseWriter};
use crate::store::{Item, Key};
use crate::wire::encode::{Finished, OutputItem, Response};
use crate::wire::fault::Failure;
use crate::wire::options::ResponsesDialect;
use crate::wire::{AnswerWriter, OutputBuffer};
use http::HeaderMap;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

const HOLD: &str = "x-samewire-tool-hold";
/// Time that outputs which arrive early wait for the engine's answer to end.
const EARLY_WAIT: Duration = Duration::from_secs(60);

/// Returns true if the client asks for its stream to be held while tools run (`x-samewire-tool-hold: 1`), which
/// only streams of the legacy Codex dialect support.
pub(super) fn is_requested(headers: &HeaderMap, stream: bool, route: &Route) -> bool {
    let has_header = headers.get(HOLD).is_some_and(|hold| hold == "1");
    has_header && stream && route.options.responses_dialect == ResponsesDialect::CodexLegacy
}

/// Streams held open by this process, by response key. The value is the set of pending calls once the engine has
/// ended.
#[derive(Default)]
pub(in crate::server) struct ToolWaits(
    Mutex<HashMap<Key, watch::Sender<Option<Arc<PendingCalls>>>>>,
);

/// Calls of one response whose outputs the client has yet to post, with the outputs received so far.
#[derive(Default)]
struct PendingCalls {
    calls: Vec<PendingCall>,
    outputs: Mutex<Vec<Option<String>>>,
    full: Notify,
}

impl ToolWaits {
    fn begin(&self, key: &Key) {
        let sender = watch::Sender::new(None);
        self.0.lock().insert(key.clone(), sender);
    }

    fn wait(&self, key: &Key, waiting: Option<Arc<PendingCalls>>) {
        if let Some(sender) = self.0.lock().get(key) {
            sender.send_replace(waiting);
        }
    }

    fn end(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    /// Gives outputs to the held stream of this response and returns the calls that are still pending; `None` if
    /// this process holds no such stream. Fails if an output matches no call or its call has an output already.
    pub(super) async fn put(
        &self,
        key: &Key,
        all: &[Output],
    ) -> Option<Result<Vec<PendingCall>, Failure>> {
        let mut stage = {
            let held = self.0.lock();
            held.get(key)?.subscribe()
        };
        // A client that sees a call may post its output before the engine's answer has ended.
        let waits = tokio::time::timeout(EARLY_WAIT, stage.wait_for(Option::is_some))
            .await
            .ok()?
            .ok()?
            .clone()?;
        Some(waits.take(key, all))
    }
}

impl PendingCalls {
    fn of(calls: Vec<PendingCall>) -> Self {
        Self {
            outputs: Mutex::new(vec![None; calls.len()]),
            calls,
            full: Notify::new(),
        }
    }

    fn take(&self, key: &Key, all: &[Output]) -> Result<Vec<PendingCall>, Failure> {
        let places = submit_outputs::with_call_indexes(&key.id, &self.calls, all)?;
        let mut slots = self.outputs.lock();
        let taken = |at: &usize| slots.get(*at).is_some_and(Option::is_some);
        if let Some((_, output)) = places.iter().find(|(at, _)| taken(at)) {
            return Err(submit_outputs::already_answered(Some(output)));
        }
        for (at, output) in places {
            if let Some(slot) = slots.get_mut(at) {
                *slot = Some(output.output.clone());
            }
        }
        let left: Vec<_> = self
            .calls
            .iter()
            .zip(&*slots)
            .filter(|(_, slot)| slot.is_none())
            .map(|(call, _)| call.clone())
            .collect();
        if left.is_empty() {
            self.full.notify_one();
        }
        Ok(left)
    }

    /// Returns the outputs received so far as input items.
    fn items(&self) -> Vec<String> {
        let slots = self.outputs.lock();
        given::items(
            self.calls
                .iter()
                .zip(&*slots)
                .filter_map(|(call, slot)| Some((call, slot.as_deref()?))),
        )
    }
}

/// Rounds of a stream whose client posts the outputs of its calls.
pub(super) struct HeldStream {
    app: Arc<App>,
    tenant: Arc<str>,
    request_id: Arc<str>,
    /// Key in [`ToolWaits`], once the response has an id.
    key: Option<Key>,
    /// Items of the answer up to the last pause, with the outputs of their calls.
    items: Vec<Item>,
    /// Number of these items that the conversation had before the current pause.
    known: usize,
    /// Ids of the calls whose outputs the client has posted.
    answered: Vec<String>,
    /// Calls of the current pause.
    pending: Arc<PendingCalls>,
}

impl Drop for HeldStream {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.app.responses.tool_waits.end(key);
        }
    }
}

impl HeldStream {
    /// Returns the rounds of an answer that has not begun.
    pub(super) fn new(admitted: &Admitted<'_>) -> Self {
        Self {
            app: Arc::clone(admitted.app),
            tenant: admitted.tenant(),
            request_id: Arc::clone(&admitted.request_id),
            key: None,
            items: Vec::new(),
            known: 0,
            answered: Vec::new(),
            pending: Arc::default(),
        }
    }
}

impl Rounds for HeldStream {
    fn begin(&mut self, id: &str) {
        let key = Key {
            tenant: Arc::clone(&self.tenant),
            id: id.into(),
        };
        self.app.responses.tool_waits.begin(&key);
        self.key = Some(key);
    }

    fn pause(&mut self, writer: &mut AnswerWriter, _: &mut OutputBuffer) -> PendingOutputs {
        let items = writer.response_mut().and_then(Response::take_pause);
        let items = items.unwrap_or_default();
        self.items.extend(items.iter().map(persist::stored_item));
        let pending = Arc::new(PendingCalls::of(pending_calls(&items)));
        self.pending = Arc::clone(&pending);
        if let Some(key) = &self.key {
            let waiting = Some(Arc::clone(&pending));
            self.app.responses.tool_waits.wait(key, waiting);
        }
        let app = Arc::clone(&self.app);
        Box::pin(async move {
            tokio::select! {
                () = pending.full.notified() => {}
                () = app.cut() => {}
            }
        })
    }

    fn limit(&self) -> Duration {
        *self.app.config.timeouts.tool_hold
    }

    fn resume(&mut self, _: &mut AnswerWriter, _: &mut OutputBuffer) -> Result<Resumed, Failure> {
        if let Some(key) = &self.key {
            self.app.responses.tool_waits.wait(key, None);
        }
        let answered = self.pending.calls.iter().map(|call| call.call_id.clone());
        self.answered.extend(answered);
        let response = self.key.as_ref().map_or("", |key| &key.id);
        let (response, at) = (format!("{response}_held"), self.items.len());
        let outputs = self.pending.items();
        let outputs = outputs.iter().enumerate();
        self.items
            .extend(outputs.filter_map(|(nth, item)| persist::item(item, &response, at + nth)));
        let gained = self.items.split_at(self.known).1.to_vec();
        self.known = self.items.len();
        Ok(Resumed::Continues(gained))
    }

    fn store(mut self: Box<Self>, writer: ResponseWriter, finished: Finished) -> PendingWrite {
        Box::pin(async move {
            if let Some(key) = self.key.as_ref().filter(|_| !self.answered.is_empty()) {
                // Close the calls before the client can learn that the response is stored.
                let calls = pending_calls(&finished.items).into_iter().enumerate();
                let calls: Vec<_> = calls
                    .filter(|(_, call)| self.answered.contains(&call.call_id))
                    .map(|(at, _)| at)
                    .collect();
                let output_store =
                    ToolOutputStore::of(Arc::clone(&writer.store), key, self.request_id.clone());
                if let Err(error) = output_store
                    .close(&calls, self.app.store_handle.now())
                    .await
                {
                    tracing::warn!(request_id = &*self.request_id, %error, "outputs may be handed in once more");
                }
            }
            writer
                .store_final_after(finished, std::mem::take(&mut self.items))
                .await
        })
    }
}

/// Returns the calls among these items whose outputs the client has to post.
fn pending_calls(items: &[OutputItem]) -> Vec<PendingCall> {
    let calls = items.iter().filter_map(|item| item.call.clone());
    given::distinct(calls.map(|call| PendingCall {
        call_id: call.call_id,
        custom: call.custom,
    }))
}
