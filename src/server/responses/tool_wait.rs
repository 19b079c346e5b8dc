//! Streams that stay open until the client posts the outputs of their tool calls, and then continue (wire-format
//! 4.10).
//!
//! ```text
//! relay ─→ calls, and the engine has ended ─→ outputs ─→ the next relay, with the same encoder ─→ … ─→ the last event
//! ```
//!
//! Only the process that has the client's connection can take the outputs.

use super::relay_to_client;
use super::submit_outputs;
use super::tool_outputs::ToolOutputStore;
use super::truncation::TruncatableRequest;
use crate::auth::Caller;
use crate::plan::{self, Route};
use crate::request::responses::outputs::{self as given, Output, PendingCall};
use crate::server::App;
use crate::server::admit::body::Body;
use crate::server::admit::quota::{Admission, Ticket};
use crate::server::admitted::Admitted;
use crate::server::ids::IdSource;
use crate::server::record::Record;
use crate::server::relay::Relay;
use crate::server::relay::attempt::{Attempt, AttemptTarget, EngineSender, PendingRequest};
use crate::server::relay::planned::Planned;
use crate::server::storage::persist::{self, ResponseWriter};
use crate::store::{Item, Key};
use crate::telemetry;
use crate::upstream::{Pool, Upstream};
use crate::wire::encode::{Encode, Finished, OutputItem, Persisted, Response as Encoder};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::ResponsesDialect;
use crate::wire::sse::KEEPALIVE;
use crate::wire::{OutputBuffer, Rewriter, Stamp};
use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, HeaderValue, Response};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
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

    /// Waits until all outputs are there, a keep-alive is due, the time limit counted from `since` has passed, or
    /// the process shuts down.
    async fn wait(&self, app: &App, since: Instant, keepalive: Option<Duration>) -> WakeReason {
        let left = app
            .config
            .timeouts
            .tool_hold
            .saturating_sub(since.elapsed());
        tokio::select! {
            () = self.full.notified() => WakeReason::Full,
            () = app.cut() => WakeReason::Fault(Fault::Draining),
            () = tokio::time::sleep(keepalive.unwrap_or(left).min(left)) => {
                match keepalive.is_some_and(|pause| left > pause) {
                    true => WakeReason::Silence,
                    false => WakeReason::Fault(Fault::OutputsMissing),
                }
            }
        }
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

/// Context that all engine requests of one held stream share, from which each continuation is built.
pub(super) struct ContinuationContext {
    pub(super) truncatable: TruncatableRequest,
    pub(super) sender: EngineSender,
    /// Upstream of the last engine request, to which the next one goes as well.
    pub(super) upstream: Arc<Upstream>,
    /// Model that is requested from this upstream.
    pub(super) model: Arc<str>,
    /// Engines' name of that model, if the client's name stands for others.
    pub(super) served: Option<Arc<str>>,
    /// Caller, where keys are checked.
    pub(super) caller: Option<Arc<Caller>>,
    /// Quota admission of the first engine request, where the key has a quota.
    pub(super) admission: Option<Admission>,
}

impl ContinuationContext {
    /// Returns the context for what follows the first engine request.
    pub(super) fn of(
        truncatable: TruncatableRequest,
        sender: EngineSender,
        planned: &Planned,
        record: &Record,
    ) -> Self {
        let upstream = Arc::clone(planned.attempt.chosen.upstream());
        Self {
            model: planned.model().unwrap_or_default(),
            truncatable,
            sender,
            upstream,
            served: record.served.clone(),
            caller: record.caller.clone(),
            admission: record.ticket.as_ref().map(Ticket::admission),
        }
    }

    fn route(&self) -> Route {
        self.sender.route(
            &AttemptTarget::first(&self.upstream, &self.model),
            &self.truncatable.request.model,
        )
    }

    /// Returns the silence after which a keep-alive comment is sent; `None` if keep-alives are off.
    fn keepalive(&self) -> Option<Duration> {
        let options = self.sender.options(&self.upstream, &self.model);
        Some(Duration::from_secs(options.keepalive_seconds)).filter(|pause| !pause.is_zero())
    }
}

/// Relays the response to a waiting client and holds the stream open through all tool calls. The whole answer
/// is stored at its end.
pub(super) async fn relay_and_hold(
    admitted: &Admitted<'_>,
    mut planned: Planned,
    record: Record,
    continuation: ContinuationContext,
    (stamp, since): (Stamp, Instant),
) -> Response<Body> {
    // Stored here and not by a relay: each relay has only a part of the answer.
    let writer = planned.writer.take();
    let request_id = Arc::clone(&admitted.request_id);
    let model = Arc::clone(&record.model);
    let (app, thread) = (Arc::clone(admitted.app), admitted.worker.thread);
    let stream = move |relay: Box<Relay>| {
        let stage = WaitStage::Relays(relay);
        let held = WaitingStream {
            app,
            thread,
            continuation,
            stamp,
            writer,
            request_id,
            model,
            key: None,
            items: Vec::new(),
            answered: Vec::new(),
            stage,
        };
        Body::stream(held.stream())
    };
    relay_to_client(admitted, planned, record, since, stream).await
}

/// Held stream of one client. It runs one relay after another and waits for outputs between them.
struct WaitingStream {
    app: Arc<App>,
    thread: usize,
    continuation: ContinuationContext,
    stamp: Stamp,
    writer: Option<Box<ResponseWriter>>,
    request_id: Arc<str>,
    model: Arc<str>,
    /// Key in [`ToolWaits`], once the response has an id.
    key: Option<Key>,
    /// Items of the answer before the current relay, with the tool outputs among them.
    items: Vec<Item>,
    /// Ids of the calls whose outputs the client has posted.
    answered: Vec<String>,
    stage: WaitStage,
}

/// Stage of a held stream: a relay runs, outputs are waited for, or the stream has ended.
enum WaitStage {
    Relays(Box<Relay>),
    Waits(OutputsWait),
    /// Outputs have not arrived: the last event is left to write.
    Failed(Box<Rewriter>),
    Over,
}

/// State of a stream that waits for outputs; the encoder is kept for the next relay.
struct OutputsWait {
    encoder: Box<dyn Encode>,
    calls: Arc<PendingCalls>,
    since: Instant,
}

/// Reason why a wait for outputs ended: all have arrived, a keep-alive is due, or the stream must fail.
enum WakeReason {
    Full,
    Silence,
    Fault(Fault),
}

impl Drop for WaitingStream {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.app.responses.tool_waits.end(key);
        }
    }
}

impl WaitingStream {
    fn stream(self) -> impl Stream<Item = Bytes> + Send {
        futures::stream::unfold(
            self,
            |mut held| async move { Some((held.next().await?, held)) },
        )
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match std::mem::replace(&mut self.stage, WaitStage::Over) {
                WaitStage::Over => return None,
                WaitStage::Failed(mut rewriter) => {
                    let finished = self
                        .writer
                        .as_ref()
                        .and_then(|_| rewriter.writer.response()?.finished());
                    let write_end = |persisted| {
                        let mut end = OutputBuffer::default();
                        if let Some(response) = rewriter.writer.response_mut() {
                            response.write_end(persisted, &mut end);
                        }
                        end.join()
                    };
                    return self.end(finished, write_end).await;
                }
                WaitStage::Relays(mut relay) => {
                    let frame = std::future::poll_fn(|cx| relay.poll_frame(cx)).await;
                    if let Some(bytes) = frame
                        .and_then(Result::ok)
                        .and_then(|frame| frame.into_data().ok())
                    {
                        // A comment may come before an attempt that is discarded.
                        if bytes != KEEPALIVE {
                            self.begin(&relay);
                        }
                        self.stage = WaitStage::Relays(relay);
                        return Some(bytes);
                    }
                    if let Some(end) = self.end_relay(relay).await {
                        return Some(end);
                    }
                }
                WaitStage::Waits(wait) => {
                    let (calls, app) = (Arc::clone(&wait.calls), Arc::clone(&self.app));
                    let since = wait.since;
                    match calls.wait(&app, since, self.continuation.keepalive()).await {
                        WakeReason::Full => self.start_next_relay(wait),
                        WakeReason::Silence => {
                            self.stage = WaitStage::Waits(wait);
                            return Some(Bytes::from_static(KEEPALIVE));
                        }
                        WakeReason::Fault(fault) => {
                            return Some(self.fail(wait.encoder, fault.into()));
                        }
                    }
                }
            }
        }
    }

    /// Notes the id of the response with its first bytes: from now on its outputs find this stream.
    fn begin(&mut self, relay: &Relay) {
        if self.key.is_some() {
            return;
        }
        let tenant = &self.continuation.truncatable.tenant;
        let id = relay.response().and_then(Encoder::response_id);
        self.key = id.map(|id| Key {
            tenant: Arc::clone(tenant),
            id: id.into(),
        });
        if let Some(key) = &self.key {
            self.app.responses.tool_waits.begin(key);
        }
    }

    /// Handles the end of the engine's answer: the stream waits for outputs if there are open calls, else the
    /// answer is stored. Returns the end of the stream, if that is not sent yet.
    async fn end_relay(&mut self, mut relay: Box<Relay>) -> Option<Bytes> {
        self.continuation.upstream = Arc::clone(relay.upstream());
        if let Some(served) = relay.served() {
            (self.continuation.model, self.continuation.served) =
                (Arc::clone(served), Some(Arc::clone(served)));
        }
        let Some((paused, key)) = relay.take_pause().zip(self.key.as_ref()) else {
            let finished = self.writer.as_ref().and_then(|_| relay.finished());
            return self
                .end(finished, |persisted| relay.write_end(persisted))
                .await;
        };
        let encoder = relay.into_encoder();
        let items: Vec<_> = paused.iter().map(persist::stored_item).collect();
        let calls = pending_calls(&paused);
        let outputs = Mutex::new(vec![None; calls.len()]);
        let waiting = Arc::new(PendingCalls {
            calls,
            outputs,
            full: Notify::new(),
        });
        self.items.extend(items.iter().cloned());
        self.continuation
            .truncatable
            .continue_with(items.into_iter());
        self.app
            .responses
            .tool_waits
            .wait(key, Some(Arc::clone(&waiting)));
        self.stage = WaitStage::Waits(OutputsWait {
            encoder,
            calls: waiting,
            since: Instant::now(),
        });
        None
    }

    /// Stores the answer that has ended, and returns the end of its stream, which states if it is stored. `None`
    /// without a store: the end is then sent already.
    async fn end(
        &mut self,
        finished: Option<Finished>,
        write_end: impl FnOnce(Persisted) -> Bytes,
    ) -> Option<Bytes> {
        let (finished, writer) = finished.zip(self.writer.take())?;
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
        let stored = writer
            .store_final_after(finished, std::mem::take(&mut self.items))
            .await;
        Some(write_end(stored.persisted(&self.request_id)))
    }

    /// Starts the next relay once all outputs have arrived.
    fn start_next_relay(&mut self, wait: OutputsWait) {
        if let Some(key) = &self.key {
            self.app.responses.tool_waits.wait(key, None);
        }
        let items: Vec<_> = wait.calls.items();
        self.answered
            .extend(wait.calls.calls.iter().map(|call| call.call_id.clone()));
        let at = self.items.len();
        let response = self.key.as_ref().map_or("", |key| &key.id);
        let response = format!("{response}_held");
        let items: Vec<_> = items
            .iter()
            .enumerate()
            .filter_map(|(nth, item)| persist::item(item, &response, at + nth))
            .collect();
        self.items.extend(items.iter().cloned());
        let continuation = &mut self.continuation;
        continuation.truncatable.continue_with(items.into_iter());
        let mut record = Record::new(
            &self.app,
            telemetry::RouteLabel::Responses,
            self.request_id.clone(),
        );
        record.authenticated(continuation.caller.clone());
        record.ticket = continuation
            .admission
            .as_ref()
            .map(Admission::continuation_ticket);
        record.trace = continuation.sender.continue_trace();
        record.model = Arc::clone(&self.model);
        record.served = continuation.served.clone();
        let route = continuation.route();
        let (path, shape, _) = plan::response(&continuation.truncatable.request, &route);
        let body = continuation.truncatable.body(&route, 0);
        let failed = body.as_ref().err().cloned();
        let body = body.unwrap_or_default();
        let (shape, fallbacks) = (body.shape(shape), body.fallbacks());
        let to = AttemptTarget::first(&continuation.upstream, &continuation.model);
        let outgoing = continuation.sender.outgoing(&to, "POST", path, body.body);
        let mut outgoing = outgoing.rewritten_by(&route);
        outgoing.accept = HeaderValue::from_static("text/event-stream");
        // A new stamp, so that the ids generated for this part differ from those of the earlier ones.
        let request_id = self.stamp.request_id.clone();
        let stamp = IdSource::draw().map_or_else(
            |_| self.stamp.clone(),
            |chance| Stamp {
                request_id,
                ..chance.stamp()
            },
        );
        let options = Arc::clone(&route.options);
        let answer = Arc::new(continuation.truncatable.clone()).send_or_truncate(
            &continuation.sender,
            &continuation.upstream,
            outgoing,
            route,
        );
        let rewriter = Rewriter::with_encoder(shape, stamp, wait.encoder);
        let attempt = Attempt {
            chosen: Pool::same_upstream(&continuation.upstream),
            request: PendingRequest::single(answer, rewriter, fallbacks),
        };
        let planned = Planned {
            attempt,
            resend: None,
            options,
            stream: true,
            writer: None,
        };
        let mut relay = Relay::new(planned, record, self.thread);
        relay.mark_committed();
        if let Some(failure) = failed {
            relay.give_up(failure);
        }
        self.stage = WaitStage::Relays(relay);
    }

    /// Ends the stream with a failure because the outputs did not arrive. The last event follows once the answer is
    /// stored.
    fn fail(&mut self, encoder: Box<dyn Encode>, failure: Failure) -> Bytes {
        let (_, shape, _) = plan::response(
            &self.continuation.truncatable.request,
            &self.continuation.route(),
        );
        let mut rewriter = Rewriter::with_encoder(shape, self.stamp.clone(), encoder);
        let mut out = OutputBuffer::default();
        rewriter.writer.commit();
        rewriter.fail(failure, &mut out);
        self.stage = WaitStage::Failed(Box::new(rewriter));
        out.join()
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
