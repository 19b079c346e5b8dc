//! Storage of a response whose client waited for it: once, at its end.
//!
//! The last event is sent when the record is durable, every other event as soon as it is there (wire-format 4.11).
//! If the response cannot be stored, its object has `"store": false`: a failed write is never reported as stored.
//!
//! A response with an answer is added to its conversation in the same operation, input and output together, even
//! if it is not stored itself. A failed or cancelled response adds nothing: the request can be repeated, and the
//! conversation then has the question once. If the conversation was deleted meanwhile or is full, the object does
//! not name it.

use crate::request::stored_items;
use crate::store::{Item, Key, NewResponse, State, Store, StoreError};
use crate::wire::encode::{Finished, OutputItem, Persisted};
use bytes::Bytes;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Data of a response that is stored along with its answer, collected when the request is read.
pub(in crate::server) struct ResponseWriter {
    pub(in crate::server) store: Arc<Store>,
    pub(in crate::server) tenant: Arc<str>,
    /// Name of this process in the store.
    pub(in crate::server) owner: Arc<str>,
    /// Milliseconds by which the store's clock is ahead of the local one.
    pub(in crate::server) ahead: i64,
    /// True if the response itself is stored, not only the items it adds to its conversation.
    pub(in crate::server) whole: bool,
    pub(in crate::server) previous: Option<Arc<str>>,
    pub(in crate::server) conversation: Option<Arc<str>>,
    /// Parts of the request that continuations need, without its input. The store's copy is made once the client's
    /// body is gone.
    pub(in crate::server) request: String,
    /// Items of the input, as the client wrote them.
    pub(in crate::server) input: Vec<Bytes>,
}

/// Overhead of a stored item beyond the client's text, in bytes: its id, its status, and what the store counts for
/// each.
const ITEM: usize = 400;

/// Future of a write to the store.
pub(in crate::server) type PendingWrite = Pin<Box<dyn Future<Output = StoreOutcome> + Send>>;

/// Outcome of storing a response, which its last event states.
#[derive(Debug, Default)]
pub(in crate::server) struct StoreOutcome {
    /// Error for which the response is not stored.
    store_error: Option<StoreError>,
    /// Error for which it is not in its conversation.
    conversation_error: Option<StoreError>,
}

impl StoreOutcome {
    /// Logs why a response is not stored as its client asked, and returns what its object may claim.
    pub(in crate::server) fn persisted(&self, request_id: &str) -> Persisted {
        if let Some(error) = &self.store_error {
            tracing::warn!(request_id, %error, "a response was not stored");
        }
        if let Some(error) = &self.conversation_error {
            tracing::warn!(request_id, %error, "a response was not added to its conversation");
        }
        Persisted {
            response: self.store_error.is_none(),
            conversation: self.conversation_error.is_none(),
        }
    }
}

impl ResponseWriter {
    /// Returns the least size of the record in bytes. The stored part of the request counts twice, since the
    /// response object repeats it.
    pub(in crate::server) fn weight(&self) -> u64 {
        let input = self
            .input
            .iter()
            .map(|item| item.len() + ITEM)
            .sum::<usize>();
        (self.request.len() * 2 + input) as u64
    }

    /// Starts to store an answer that has ended.
    pub(in crate::server) fn store_final(self, finished: Finished) -> PendingWrite {
        self.store_final_after(finished, Vec::new())
    }

    /// Starts to store an answer that has ended, with the items `said`, followed by those of the answer that are
    /// not among them.
    pub(in crate::server) fn store_final_after(
        self,
        finished: Finished,
        said: Vec<Item>,
    ) -> PendingWrite {
        let is_new = |item: &Item| !said.iter().any(|known| known.id == item.id);
        let new: Vec<_> = stored_output(&finished).filter(is_new).collect();
        let output = [said, new].concat();
        Box::pin(self.store(finished, output))
    }

    async fn store(self, finished: Finished, output: Vec<Item>) -> StoreOutcome {
        let state = final_state(&finished);
        let input = items(self.input, &finished.id);
        let joined = self.conversation.clone().filter(|_| state.has_answered());
        let now = milliseconds().saturating_add_signed(self.ahead);
        if !self.whole {
            let Some(conversation) = joined else {
                return StoreOutcome::default();
            };
            let key = Key {
                tenant: self.tenant,
                id: conversation,
            };
            let added = self
                .store
                .add_items(key, [input, output].concat(), now)
                .await;
            return StoreOutcome {
                store_error: None,
                conversation_error: added.err(),
            };
        }
        let new = NewResponse {
            key: Key {
                tenant: self.tenant,
                id: finished.id.as_str().into(),
            },
            state,
            owner: self.owner,
            background: false,
            previous: self.previous,
            conversation: self.conversation,
            request: self.request.into(),
            response: finished.object(true).into(),
            input,
            output,
        };
        let Some(conversation) = joined else {
            return StoreOutcome {
                store_error: self.store.create(new, now).await.err(),
                conversation_error: None,
            };
        };
        match self.store.create_in(conversation, new.clone(), now).await {
            Err(StoreError::NoConversation) => {
                let response = finished.object(false).into();
                let alone = NewResponse {
                    conversation: None,
                    response,
                    ..new
                };
                StoreOutcome {
                    store_error: self.store.create(alone, now).await.err(),
                    conversation_error: Some(StoreError::NoConversation),
                }
            }
            both => StoreOutcome {
                store_error: both.clone().err(),
                conversation_error: both.err(),
            },
        }
    }

    /// Returns the store and the record of a queued response that is yet to be generated.
    pub(in crate::server) fn queued(self, id: &str, object: &str) -> (Arc<Store>, NewResponse) {
        let new = NewResponse {
            key: Key {
                tenant: self.tenant,
                id: id.into(),
            },
            state: State::Queued,
            owner: self.owner,
            background: true,
            previous: self.previous,
            conversation: self.conversation,
            request: self.request.into(),
            response: object.into(),
            input: items(self.input, id),
            output: Vec::new(),
        };
        (self.store, new)
    }
}

/// Converts the items of an input to their stored form; unreadable ones are left out.
pub(in crate::server) fn items(input: Vec<Bytes>, response: &str) -> Vec<Item> {
    let text = |(at, text): (usize, Bytes)| item(std::str::from_utf8(&text).ok()?, response, at);
    input.into_iter().enumerate().filter_map(text).collect()
}

/// Converts the item at index `at` to its stored form, with an id derived from the response's if it has none.
pub(in crate::server) fn item(text: &str, response: &str, at: usize) -> Option<Item> {
    stored_items::normalised(text, response, at).map(|(id, body)| Item::new(&id, &body))
}

/// Returns the state of an answer that has ended.
pub(in crate::server) fn final_state(finished: &Finished) -> State {
    State::named(finished.status).unwrap_or(State::Failed)
}

/// Returns an item of an answer in its stored form.
pub(in crate::server) fn stored_item(item: &OutputItem) -> Item {
    Item {
        id: Arc::clone(&item.id),
        body: Arc::clone(&item.json),
    }
}

/// Returns the output of an answer in its stored form.
pub(in crate::server) fn stored_output(finished: &Finished) -> impl Iterator<Item = Item> {
    finished.items.iter().map(stored_item)
}

/// Returns the current time in milliseconds since 1970: the clock at the first call plus the time elapsed since.
/// If the clock is set meanwhile, stored records do not all expire and running jobs are not lost (faults O13).
pub(in crate::server) fn milliseconds() -> u64 {
    static FIRST: LazyLock<(Duration, Instant)> = LazyLock::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        (since.unwrap_or_default(), Instant::now())
    });
    let (since, at) = *FIRST;
    u64::try_from(since.saturating_add(at.elapsed()).as_millis()).unwrap_or(u64::MAX)
}
