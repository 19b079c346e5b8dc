//! Streams that stay open until the outputs of their calls are handed in, and then go on (wire-format 4.10).
//!
//! ```text
//! relay ─→ calls, and the engine has ended ─→ outputs ─→ the next relay, with the same encoder ─→ … ─→ the last event
//! ```
//!
//! Only the process that has the client's connection can take the outputs.

use super::tool_outputs::ToolOutputStore;
use super::truncation::TruncatableRequest;
use super::{GenerationRequest, submit_outputs};
use crate::auth::Caller;
use crate::json;
use crate::plan::{self, AdaptedBody, Route};
use crate::request::responses::outputs::{self as given, Output, Pending};
use crate::server::App;
use crate::server::attempt::{Attempt, AttemptTarget, Sender, SentRequest};
use crate::server::body::Body;
use crate::server::event;
use crate::server::persist::{self, ResponseWriter};
use crate::server::quota::Admission;
use crate::server::record::Record;
use crate::server::relay::{Relay, RelayParams};
use crate::server::routes::{IdSource, RequestContext};
use crate::store::{Item, Key};
use crate::telemetry;
use crate::upstream::{Pool, Upstream};
use crate::wire::encode::{Encode, PausedAnswer};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::ResponsesDialect;
use crate::wire::{OutputBuffer, Rewriter, Stamp};
use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, HeaderValue, Response};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

const HOLD: &str = "x-samewire-tool-hold";
/// How long outputs that come early wait for the end of what they belong to.
const EARLY: Duration = Duration::from_secs(60);

/// Whether the client wants its stream held.
pub(super) fn is_wanted(headers: &HeaderMap, stream: bool, route: &Route) -> bool {
    let asked = headers.get(HOLD).is_some_and(|hold| hold == "1");
    asked && stream && route.options.responses_dialect == ResponsesDialect::CodexLegacy
}

/// The streams that are held here.
#[derive(Default)]
pub(in crate::server) struct ToolWaits(Mutex<HashMap<Key, watch::Sender<Option<Arc<PendingCalls>>>>>);

/// Calls whose outputs are waited for.
struct PendingCalls {
    calls: Vec<Pending>,
    outputs: Mutex<Vec<Option<String>>>,
    full: Notify,
}

impl ToolWaits {
    fn begin(&self, key: &Key) {
        let sender = watch::Sender::new(None);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), sender);
    }

    fn wait(&self, key: &Key, waiting: Option<Arc<PendingCalls>>) {
        if let Some(sender) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            sender.send_replace(waiting);
        }
    }

    fn end(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Hands outputs in to a held stream; nothing if none of this name is here. Gives the calls that still wait.
    pub(super) async fn put(&self, key: &Key, all: &[Output]) -> Option<Result<Vec<Pending>, Failure>> {
        let mut stage = {
            let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            held.get(key)?.subscribe()
        };
        // A client that sees a call may be quicker than the engine's end.
        let waits = tokio::time::timeout(EARLY, stage.wait_for(Option::is_some)).await.ok()?.ok()?.clone()?;
        Some(waits.take(key, all))
    }
}

impl PendingCalls {
    fn take(&self, key: &Key, all: &[Output]) -> Result<Vec<Pending>, Failure> {
        let places = submit_outputs::places(&key.id, &self.calls, all)?;
        let mut slots = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = |at: &usize| slots.get(*at).is_some_and(Option::is_some);
        if let Some((_, output)) = places.iter().find(|(at, _)| taken(at)) {
            return Err(submit_outputs::answered(Some(output)));
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

    /// Waits for the outputs, which are asked for since then.
    async fn wait(&self, app: &App, since: Instant, keepalive: Option<Duration>) -> WakeReason {
        let left = app.config.timeouts.tool_hold.saturating_sub(since.elapsed());
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

    /// The items that the outputs are.
    fn items(&self) -> Vec<String> {
        let slots = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        given::items(self.calls.iter().zip(&*slots).filter_map(|(call, slot)| Some((call, slot.as_deref()?))))
    }
}

/// What the requests of one stream have in common.
pub(super) struct ContinuationContext {
    pub(super) truncatable: TruncatableRequest,
    pub(super) sender: Sender,
    /// Who was asked last, and is asked again.
    pub(super) upstream: Arc<Upstream>,
    pub(super) hold: Arc<PausedAnswer>,
    /// Who asks, where keys are checked.
    pub(super) caller: Option<Arc<Caller>>,
    /// Admission of the first of them, where the key has a quota.
    pub(super) admission: Option<Admission>,
}

impl ContinuationContext {
    fn route(&self) -> Route {
        self.sender.route(&AttemptTarget::first(&self.upstream), &self.truncatable.asked.model)
    }

    /// After so much silence the client hears that it is not forgotten.
    fn keepalive(&self) -> Option<Duration> {
        let options = self.sender.options(&self.upstream, &self.truncatable.asked.model);
        Some(Duration::from_secs(options.keepalive_seconds)).filter(|pause| !pause.is_zero())
    }
}

impl RequestContext {
    /// The client waits for the answer, through all calls.
    pub(super) async fn held(
        &self,
        mut generation: GenerationRequest,
        continuation: ContinuationContext,
        stamp: Stamp,
        since: Instant,
    ) -> Response<Body> {
        // The end is stored here: no relay has all of it.
        let writer = generation.writer.take();
        let request_id = generation.record.request_id.clone();
        let model = Arc::clone(&generation.record.model);
        let (app, thread) = (Arc::clone(&self.app), self.worker.thread);
        let response = self.at_once(generation, since).await;
        response.map(|body| {
            body.relayed(move |mut relay| {
                relay.by_events();
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
                    said: Vec::new(),
                    answered: Vec::new(),
                    end: None,
                    stage,
                };
                held.stream()
            })
        })
    }
}

/// One stream.
struct WaitingStream {
    app: Arc<App>,
    thread: usize,
    continuation: ContinuationContext,
    stamp: Stamp,
    writer: Option<Box<ResponseWriter>>,
    request_id: String,
    model: Arc<str>,
    /// Its name among [`Holds`], once it has one.
    key: Option<Key>,
    /// What was said before the present relay: the items of the answer, and the outputs among them.
    said: Vec<Item>,
    /// The calls whose outputs were handed in.
    answered: Vec<String>,
    /// The last event, behind what has been sent.
    end: Option<Bytes>,
    stage: WaitStage,
}

enum WaitStage {
    Relays(Box<Relay>),
    Waits(OutputsWait),
    Over,
}

/// Outputs are waited for.
struct OutputsWait {
    encoder: Box<dyn Encode>,
    calls: Arc<PendingCalls>,
    since: Instant,
}

/// What ends a wait.
enum WakeReason {
    Full,
    Silence,
    Fault(Fault),
}

impl Drop for WaitingStream {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.app.tool_waits.end(key);
        }
    }
}

impl WaitingStream {
    fn stream(self) -> impl Stream<Item = Bytes> + Send {
        futures::stream::unfold(self, |mut held| async move { Some((held.next().await?, held)) })
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Some(end) = self.end.take() {
            return Some(self.told(end).await);
        }
        loop {
            match std::mem::replace(&mut self.stage, WaitStage::Over) {
                WaitStage::Over => return None,
                WaitStage::Relays(mut relay) => {
                    let frame = std::future::poll_fn(|cx| relay.poll_frame(cx)).await;
                    if let Some(bytes) = frame.and_then(Result::ok).and_then(|frame| frame.into_data().ok()) {
                        self.stage = WaitStage::Relays(relay);
                        return Some(self.told(bytes).await);
                    }
                    self.lay_down(relay);
                }
                WaitStage::Waits(wait) => {
                    let (calls, app) = (Arc::clone(&wait.calls), Arc::clone(&self.app));
                    let since = wait.since;
                    match calls.wait(&app, since, self.continuation.keepalive()).await {
                        WakeReason::Full => self.go_on(wait),
                        WakeReason::Silence => {
                            self.stage = WaitStage::Waits(wait);
                            return Some(Bytes::from_static(b": keepalive\n\n"));
                        }
                        WakeReason::Fault(fault) => return Some(self.fail(wait.encoder, fault.into()).await),
                    }
                }
            }
        }
    }

    /// Bytes for the client; the last event of all waits until the answer is stored.
    async fn told(&mut self, bytes: Bytes) -> Bytes {
        if self.key.is_none() {
            let id = event::response_in(&bytes).and_then(|response| json::member(response, "id"));
            self.key =
                id.map(|id| Key { tenant: Arc::clone(&self.continuation.truncatable.tenant), id: id.into() });
            if let Some(key) = &self.key {
                self.app.tool_waits.begin(key);
            }
        }
        let Some((at, writer)) = event::last(&bytes).and_then(|at| Some((at, self.writer.take()?))) else {
            return bytes;
        };
        if at > 0 {
            // Nothing else waits for the store.
            self.writer = Some(writer);
            self.end = Some(bytes.slice(at..));
            return bytes.slice(..at);
        }
        let end = bytes;
        let object = event::response_in(&end).unwrap_or_default();
        if let Some(key) = self.key.as_ref().filter(|_| !self.answered.is_empty()) {
            // Before anybody can know that it is stored.
            let calls = given::calls(object).into_iter().enumerate();
            let calls: Vec<_> =
                calls.filter(|(_, call)| self.answered.contains(&call.call_id)).map(|(at, _)| at).collect();
            let output_store = ToolOutputStore::of(Arc::clone(&writer.store), key, self.request_id.clone());
            if let Err(error) = output_store.close(&calls, self.app.store_handle.now()).await {
                tracing::warn!(request_id = self.request_id, %error, "outputs may be handed in once more");
            }
        }
        let kept = writer.keep_behind(object, std::mem::take(&mut self.said)).await;
        kept.honest(end.into(), &self.request_id).join()
    }

    /// The engine has ended: the stream is over, or waits.
    fn lay_down(&mut self, relay: Box<Relay>) {
        self.continuation.upstream = Arc::clone(relay.upstream());
        let encoder = relay.into_encoder();
        let (Some(held), Some(key)) = (self.continuation.hold.take(), &self.key) else { return };
        let items: Vec<_> = held.items.iter().map(|item| stored(item)).collect();
        let calls = given::calls(&format!("{{\"output\":[{}]}}", held.items.join(",")));
        let outputs = Mutex::new(vec![None; calls.len()]);
        let waiting = Arc::new(PendingCalls { calls, outputs, full: Notify::new() });
        self.said.extend(items.iter().cloned());
        self.continuation.truncatable.go_on(items.into_iter());
        self.app.tool_waits.wait(key, Some(Arc::clone(&waiting)));
        self.stage = WaitStage::Waits(OutputsWait { encoder, calls: waiting, since: Instant::now() });
    }

    /// All outputs are there.
    fn go_on(&mut self, wait: OutputsWait) {
        if let Some(key) = &self.key {
            self.app.tool_waits.wait(key, None);
        }
        let items: Vec<_> = wait.calls.items();
        self.answered.extend(wait.calls.calls.iter().map(|call| call.call_id.clone()));
        let at = self.said.len();
        let response = self.key.as_ref().map_or("", |key| &key.id);
        let response = format!("{response}_held");
        let items: Vec<_> = items
            .iter()
            .enumerate()
            .filter_map(|(nth, item)| persist::item(item, &response, at + nth))
            .collect();
        self.said.extend(items.iter().cloned());
        let continuation = &mut self.continuation;
        continuation.truncatable.go_on(items.into_iter());
        let mut record = Record::new(&self.app, telemetry::Route::Responses, self.request_id.clone());
        record.caller.clone_from(&continuation.caller);
        record.ticket = continuation.admission.as_ref().map(Admission::go_on);
        record.trace = continuation.sender.again();
        record.model = Arc::clone(&self.model);
        let route = continuation.route();
        let (path, mut shape, _) = plan::response(&continuation.truncatable.asked, &route);
        let body = continuation.truncatable.body(&route, 0);
        let failed = body.as_ref().err().cloned();
        shape.adapted = body.as_ref().map(AdaptedBody::names).unwrap_or_default();
        let fallbacks = body.as_ref().map(AdaptedBody::fallbacks).unwrap_or_default();
        let to = AttemptTarget::first(&continuation.upstream);
        let mut request = continuation.sender.outgoing(&to, "POST", path, body.unwrap_or_default().body);
        request.accept = HeaderValue::from_static("text/event-stream");
        // Ids that are made here must not come twice.
        let request_id = self.stamp.request_id.clone();
        let stamp = IdSource::draw()
            .map_or_else(|_| self.stamp.clone(), |chance| Stamp { request_id, ..chance.stamp() });
        let options = Arc::clone(&route.options);
        let asking = Arc::new(continuation.truncatable.clone()).asking(
            &continuation.sender,
            &continuation.upstream,
            request,
            route,
        );
        let rewriter = Rewriter::with_encoder(shape, stamp, wait.encoder);
        let attempt = Attempt {
            chosen: Pool::again(&continuation.upstream),
            sent: SentRequest::alone(asking, rewriter, fallbacks),
        };
        let mut relay = Relay::new(RelayParams {
            attempt,
            again: None,
            thread: self.thread,
            options,
            stream: true,
            record,
            writer: None,
            numbered: true,
        });
        relay.go_on();
        relay.by_events();
        if let Some(failure) = failed {
            relay.give_up(failure);
        }
        self.stage = WaitStage::Relays(relay);
    }

    /// The stream ends without the outputs.
    async fn fail(&mut self, encoder: Box<dyn Encode>, failure: Failure) -> Bytes {
        let (_, shape, _) = plan::response(&self.continuation.truncatable.asked, &self.continuation.route());
        let mut rewriter = Rewriter::with_encoder(shape, self.stamp.clone(), encoder);
        let mut out = OutputBuffer::default();
        rewriter.commit();
        rewriter.fail(failure, &mut out);
        self.told(out.join()).await
    }
}

fn stored(item: &str) -> Item {
    Item::new(&json::member(item, "id").unwrap_or_default(), item)
}
