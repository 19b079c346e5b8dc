//! Background responses, generated without a waiting client (wire-format 4.11, faults C42, C43, O16).
//!
//! A task on the thread that took the request reads the engine's answer and stores its events in batches: events
//! that arrive during a write form the next batch. Readers in any process read the store; those in this process
//! are notified of new events. Each process reports to the store every few seconds that it is alive. A response
//! whose process is gone is closed by another process, or by this one after a restart.

mod follow;
mod recovery;

pub(in crate::server) use follow::{Following, follow};
pub(in crate::server) use recovery::{close_lost, heartbeat_and_compare, take_over};

use crate::config::Limits;
use crate::server::App;
use crate::server::admit::body::AbortedBody;
use crate::server::relay::Relay;
use crate::server::storage::persist::{final_state, stored_output};
use crate::server::task_registry::TaskRegistry;
use crate::store::{FinalState, Json, Key, Store, StoreError, StoredEvents};
use crate::wire::encode::{Persisted, Response as Encoder, write_error};
use crate::wire::fault::{Failure, Fault};
use bytes::{BufMut, Bytes, BytesMut};
use futures::future::OptionFuture;
use http_body::Frame;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// Limit for the size of events that wait for the store, in bytes.
const WAITING: usize = 16 << 20;
/// Pause before a failed store operation is repeated.
const RETRY: Duration = Duration::from_millis(250);
/// Events read at once.
const READ: usize = 256;

/// Background responses of this process, with the limits on how many may run and how many may wait.
pub(in crate::server) struct BackgroundJobs {
    /// Permits for the responses that may run at once; the others wait.
    running: Arc<Semaphore>,
    most: usize,
    /// Permits for the responses that may run or wait.
    places: Arc<Semaphore>,
    jobs: Arc<TaskRegistry<BackgroundJob>>,
    /// Responses that the store attributed to this process at the last check, although no task here runs them.
    orphaned: Mutex<HashSet<Key>>,
}

/// Signals of one background response, by which other tasks follow or end it.
pub(in crate::server) struct BackgroundJob {
    /// Number of its events that are stored.
    stored: watch::Sender<u64>,
    cancel: Notify,
    /// Notified when another process has taken the response over.
    lost: Notify,
}

impl BackgroundJobs {
    pub(in crate::server) fn new(limits: &Limits) -> Self {
        let (running, most) = (
            limits.background_running,
            limits.background_running + limits.background_queued,
        );
        Self {
            running: Arc::new(Semaphore::new(running)),
            most,
            places: Arc::new(Semaphore::new(most)),
            jobs: Arc::default(),
            orphaned: Mutex::default(),
        }
    }

    /// Takes the place of one more response, which is free again when dropped. Fails if all are taken.
    pub(in crate::server) fn place(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let message = "Too many responses are being made in the background.";
            Failure::from(Fault::ConcurrencyLimit).with_message(message)
        })
    }

    /// Returns the number of taken places.
    pub(in crate::server) fn places(&self) -> i64 {
        i64::try_from(self.most - self.places.available_permits()).unwrap_or(i64::MAX)
    }

    /// Returns the number of running and waiting responses.
    pub(in crate::server) fn count(&self) -> usize {
        self.jobs.count()
    }

    /// Returns the keys of `stored` that no task here runs, now and at the previous call. A response that is just
    /// being created is not registered yet, so one check alone is not enough.
    fn orphaned(&self, stored: impl Iterator<Item = Key>) -> Vec<Key> {
        let now: HashSet<Key> = stored.filter(|key| self.jobs.get(key).is_none()).collect();
        let mut before = self.orphaned.lock();
        let twice = now.intersection(&before).cloned().collect();
        *before = now;
        twice
    }

    /// Cancels a response, if it runs here.
    pub(in crate::server) fn cancel(&self, key: &Key) {
        if let Some(run) = self.jobs.get(key) {
            run.cancel.notify_one();
        }
    }
}

/// Background response that is ready to be generated: its record is in the store.
pub(in crate::server) struct PendingJob {
    pub(in crate::server) app: Arc<App>,
    pub(in crate::server) store: Arc<Store>,
    pub(in crate::server) key: Key,
    pub(in crate::server) place: OwnedSemaphorePermit,
    /// Creates the relay that sends the request, once a permit is free.
    pub(in crate::server) relay: Box<dyn FnOnce() -> Box<Relay> + Send>,
    /// Conversation to which its items are added.
    pub(in crate::server) conversation: Option<Arc<str>>,
    /// Events written before the engine was contacted.
    pub(in crate::server) first: Bytes,
}

impl PendingJob {
    /// Generates the response and stores its events, up to its end, a cancellation or the loss of its record.
    pub(in crate::server) async fn run(self) {
        let Self {
            app,
            store,
            key,
            place: _place,
            relay,
            conversation,
            first,
        } = self;
        let mut maker = Some(relay);
        let begin = |maker: &mut Option<Box<dyn FnOnce() -> Box<Relay> + Send>>| {
            maker.take().map(|make| {
                let mut relay = make();
                relay.run_without_client();
                relay.by_events();
                relay
            })
        };
        let mut relay: Option<Box<Relay>> = None;
        let mut _running = None;
        let signals = BackgroundJob {
            stored: watch::Sender::new(0),
            cancel: Notify::new(),
            lost: Notify::new(),
        };
        let (entry, _) = app.responses.background_jobs.jobs.begin(&key, signals);
        let run = &entry.signals;
        let mut log = EventLog {
            app: &app,
            store,
            key: key.clone(),
            conversation,
            run,
            waiting: UnstoredEvents::default(),
            next: 0,
            again: false,
            has_begun: false,
        };
        log.waiting.take(&first);
        let mut storing: Option<Storing> = None;
        let mut stopped = false;
        loop {
            // Once the answer has ended, `finish` stores all that is left in one transaction.
            if storing.is_none() && !relay.as_ref().is_some_and(|relay| relay.is_complete()) {
                storing = log.store_next();
            }
            let mut stop = None;
            tokio::select! {
                () = run.cancel.notified(), if !stopped => stop = Some(Fault::Cancelled),
                () = app.cut(), if !stopped => stop = Some(Fault::Draining),
                permit = Arc::clone(&app.responses.background_jobs.running).acquire_owned(), if relay.is_none() => {
                    _running = permit.ok();
                    relay = begin(&mut maker);
                }
                () = run.lost.notified() => {
                    log.lost(&StoreError::Fenced);
                    break;
                }
                Some(stored) = OptionFuture::from(storing.as_mut()) => {
                    storing = None;
                    if !log.stored(stored) {
                        break;
                    }
                }
                Some(frame) = OptionFuture::from(relay.as_mut().map(next)) => match frame {
                    Some(Ok(frame)) => {
                        if let Ok(bytes) = frame.into_data() {
                            log.waiting.take(&bytes);
                        }
                        log.note_begin(relay.as_deref());
                        if log.waiting.bytes > WAITING && !stopped {
                            stop = Some(Fault::StoreUnavailable);
                        }
                    }
                    Some(Err(_)) | None => {
                        if let Some(storing) = storing.take() {
                            let stored = storing.await;
                            log.stored(stored);
                        }
                        log.finish(relay.as_deref_mut()).await;
                        break;
                    }
                },
            }
            if let Some(fault) = stop {
                stopped = true;
                // A response that still waits for a permit ends with the same events, without an engine request.
                relay = relay.or_else(|| begin(&mut maker));
                relay.iter_mut().for_each(|relay| relay.give_up(fault));
            }
        }
    }
}

async fn next(relay: &mut Box<Relay>) -> Option<Result<Frame<Bytes>, AbortedBody>> {
    std::future::poll_fn(|cx| relay.poll_frame(cx)).await
}

/// Future of the write of a batch. It returns the batch with the result, so that it can be repeated.
type Storing = Pin<Box<dyn Future<Output = (Result<(), StoreError>, EventBatch)> + Send>>;

/// Events that are stored together, kept until the store has confirmed them.
struct EventBatch {
    /// Response object of `response.in_progress`, if that event is in the batch.
    begun: Option<Json>,
    events: StoredEvents,
}

/// Events that are not stored yet.
#[derive(Default)]
struct UnstoredEvents {
    events: Vec<Json>,
    /// Size of the events, and of those that are being written.
    bytes: usize,
    /// Object of the response in progress, until it is stored.
    begun: Option<Json>,
}

impl UnstoredEvents {
    /// Appends events, one a line.
    fn take(&mut self, bytes: &[u8]) {
        for event in std::str::from_utf8(bytes).unwrap_or_default().lines() {
            self.bytes += event.len();
            self.events.push(event.into());
        }
    }
}

/// Writer of one response's events to the store. It writes batch after batch and repeats those that fail.
struct EventLog<'a> {
    app: &'a App,
    store: Arc<Store>,
    key: Key,
    conversation: Option<Arc<str>>,
    run: &'a BackgroundJob,
    waiting: UnstoredEvents,
    /// Number of the next event.
    next: u64,
    /// True if the last batch could not be stored.
    again: bool,
    /// True once the response is in progress.
    has_begun: bool,
}

impl EventLog<'_> {
    /// Notes the response's object when its first events have come: the response is in progress.
    fn note_begin(&mut self, relay: Option<&Relay>) {
        if let Some(relay) = relay.filter(|_| !self.has_begun && !self.waiting.events.is_empty()) {
            self.has_begun = true;
            self.waiting.begun = relay
                .response()
                .and_then(Encoder::object_in_progress)
                .map(Json::from);
        }
    }

    /// Starts to write the waiting events, after a pause if the last write failed. The last event is not among
    /// them: [`Self::finish`] writes it.
    fn store_next(&mut self) -> Option<Storing> {
        if self.waiting.events.is_empty() {
            return None;
        }
        let (store, key) = (Arc::clone(&self.store), self.key.clone());
        let events = StoredEvents {
            from: self.next,
            bodies: std::mem::take(&mut self.waiting.events),
        };
        let batch = EventBatch {
            begun: self.waiting.begun.take(),
            events,
        };
        let now = self.app.store_handle.now();
        let again = std::mem::take(&mut self.again);
        Some(Box::pin(async move {
            if again {
                tokio::time::sleep(RETRY).await;
            }
            if let Some(response) = batch.begun.clone()
                && let Err(error) = store.start(key.clone(), 1, response, now).await
            {
                return (Err(error), batch);
            }
            (
                store.append_events(key, 1, batch.events.clone(), now).await,
                batch,
            )
        }))
    }

    /// Handles the result of a write; a failed batch is queued again. Returns false if another process owns the
    /// response now.
    fn stored(&mut self, (result, batch): (Result<(), StoreError>, EventBatch)) -> bool {
        let EventBatch { begun, mut events } = batch;
        match result {
            Ok(()) => {
                self.next = events.from + events.bodies.len() as u64;
                self.waiting.bytes -= events.bodies.iter().map(|body| body.len()).sum::<usize>();
                self.run.stored.send_replace(self.next);
                true
            }
            Err(StoreError::Slow | StoreError::Unavailable(_) | StoreError::Full) => {
                events.bodies.append(&mut self.waiting.events);
                self.waiting.events = events.bodies;
                self.waiting.begun = self.waiting.begun.take().or(begun);
                self.again = true;
                true
            }
            Err(error) => {
                self.lost(&error);
                false
            }
        }
    }

    fn lost(&self, error: &StoreError) {
        tracing::info!(response = &*self.key.id, %error, "a background response is not this process's any more");
    }

    /// Stores the remaining events and the final object, in a loop until it succeeds or the response is lost.
    async fn finish(&mut self, relay: Option<&mut Relay>) {
        let Some((relay, finished)) =
            relay.and_then(|relay| relay.finished().map(|finished| (relay, finished)))
        else {
            return self.close(&Fault::Proxy.into()).await;
        };
        let (from, waiting) = (self.next, std::mem::take(&mut self.waiting.events));
        let mut events_with = |persisted| {
            let mut last = UnstoredEvents {
                events: waiting.clone(),
                ..UnstoredEvents::default()
            };
            last.take(&relay.write_end(persisted));
            StoredEvents {
                from,
                bodies: last.events,
            }
        };
        let state = final_state(&finished);
        let events = events_with(Persisted::ALL);
        let total = events.from + events.bodies.len() as u64;
        let (response, output) = (
            finished.object(true).into(),
            stored_output(&finished).collect(),
        );
        let mut finish = FinalState {
            state,
            response,
            output,
            events,
        };
        let mut conversation = self.conversation.take().filter(|_| state.has_answered());
        // Repeated without a limit: while this process reports that it is alive, no other closes its responses.
        for tries in 1.. {
            let (key, now) = (self.key.clone(), self.app.store_handle.now());
            let stored = match &conversation {
                Some(id) => {
                    self.store
                        .finish_in(Arc::clone(id), key, 1, finish.clone(), now)
                        .await
                }
                None => self.store.finish(key, 1, finish.clone(), now).await,
            };
            match stored {
                Err(StoreError::Slow | StoreError::Unavailable(_)) => {
                    tokio::time::sleep(RETRY * u32::min(tries, 20)).await;
                }
                Err(error @ StoreError::NoConversation) => {
                    tracing::warn!(response = &*self.key.id, %error, "a response was not added to its conversation");
                    conversation = None;
                    finish.response = finished.object(false).into();
                    finish.events = events_with(Persisted {
                        conversation: false,
                        ..Persisted::ALL
                    });
                }
                Err(error @ (StoreError::Fenced | StoreError::NotFound)) => {
                    self.lost(&error);
                    break;
                }
                Err(error) => {
                    tracing::warn!(response = &*self.key.id, %error, "the end of a background response is not stored");
                    let mut failure = Failure::from(Fault::StoreUnavailable);
                    if error == StoreError::Full {
                        failure =
                            failure.with_message("There is no room for a response of this size.");
                    }
                    self.close(&failure).await;
                    break;
                }
                Ok(()) => break,
            }
        }
        self.run.stored.send_replace(total);
    }

    /// Ends the record with a failure that is short enough for the store to accept in any case.
    async fn close(&self, failure: &Failure) {
        for tries in 1.. {
            let now = self.app.store_handle.now();
            let closed = match self.store.get(self.key.clone(), now).await {
                Ok(record) if record.state.is_terminal() => return,
                Ok(record) => recovery::close(&self.store, &record, 1, failure, now).await,
                Err(error) => Err(error),
            };
            match closed {
                Err(StoreError::Slow | StoreError::Unavailable(_)) => {
                    tokio::time::sleep(RETRY * u32::min(tries, 20)).await;
                }
                Err(error) => {
                    tracing::warn!(response = &*self.key.id, %error, "a background response could not be closed");
                    return;
                }
                Ok(()) => return,
            }
        }
    }
}

/// Deletes the record of a response that will not be generated: it may exist although the store did not confirm
/// it.
pub(in crate::server) async fn delete_unstarted(app: &App, store: &Store, key: Key) {
    for tries in 1..=20 {
        tokio::time::sleep(RETRY * tries).await;
        match store.delete(key.clone(), app.store_handle.now()).await {
            Err(StoreError::Slow | StoreError::Unavailable(_)) => {}
            _ => return,
        }
    }
}

fn error_event(failure: &Failure, number: u64) -> Json {
    let mut out =
        BytesMut::from(format!("{{\"type\":\"error\",\"sequence_number\":{number}").as_bytes());
    write_error(failure, &mut out);
    out.put_u8(b'}');
    String::from_utf8_lossy(&out).into()
}
