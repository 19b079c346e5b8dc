//! Storage of a response whose client waited for it: once, at its end.
//!
//! The last event is sent when the record is durable, every other event as soon as it is there (wire-format 4.11).
//! If the response cannot be stored, its object has `"store": false`: a failed write is never reported as stored.
//!
//! A response with an answer is added to its conversation in the same operation, input and output together, even
//! if it is not stored itself. A failed or cancelled response adds nothing: the request can be repeated, and the
//! conversation then has the question once. If the conversation was deleted meanwhile or is full, the object does
//! not name it.

use crate::json::{self, Members, Raw, Text};
use crate::request::stored_items;
use crate::store::{Error, Item, Json, Key, NewResponse, State, Store};
use crate::wire::OutputBuffer;
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
    /// Parts of the request that continuations need, without its input.
    pub(in crate::server) request: Json,
    /// Items of the input, as the client wrote them.
    pub(in crate::server) input: Vec<Bytes>,
}

/// Overhead of a stored item beyond the client's text, in bytes: its id, its status, and what the store counts for
/// each.
const ITEM: usize = 400;

/// Future of a write to the store.
pub(in crate::server) type PendingWrite = Pin<Box<dyn Future<Output = StoreOutcome> + Send>>;

/// Outcome of storing a response, from which the last event is corrected before it is sent.
#[derive(Debug, Default)]
pub(in crate::server) struct StoreOutcome {
    /// Error for which the response is not stored.
    store_error: Option<Error>,
    /// Error for which it is not in its conversation.
    conversation_error: Option<Error>,
}

impl StoreOutcome {
    /// Corrects the last event of an answer, so that its object claims neither storage nor a conversation if that
    /// failed.
    pub(in crate::server) fn corrected(&self, mut end: OutputBuffer, request_id: &str) -> OutputBuffer {
        if let Some(error) = &self.store_error {
            tracing::warn!(request_id, %error, "a response was not stored");
        }
        if let Some(error) = &self.conversation_error {
            tracing::warn!(request_id, %error, "a response was not added to its conversation");
        }
        if self.store_error.is_some() {
            end.rewrite(mark_unstored);
        }
        if self.conversation_error.is_some() {
            end.rewrite(remove_conversation);
        }
        end
    }
}

impl ResponseWriter {
    /// Returns the least size of the record in bytes. The stored part of the request counts twice, since the
    /// response object repeats it.
    pub(in crate::server) fn weight(&self) -> u64 {
        let input = self.input.iter().map(|item| item.len() + ITEM).sum::<usize>();
        (self.request.len() * 2 + input) as u64
    }

    /// Starts to store the response with this final object.
    pub(in crate::server) fn store_final(self, object: &str) -> PendingWrite {
        self.store_final_after(object, Vec::new())
    }

    /// Starts to store the response with the items `said`, followed by those items of the object that are not
    /// among them.
    pub(in crate::server) fn store_final_after(self, object: &str, said: Vec<Item>) -> PendingWrite {
        let ended = FinalState::of(object).map(|ended| {
            let is_new = |item: &Item| !said.iter().any(|known| known.id == item.id);
            let new: Vec<_> = ended.output.iter().filter(|item| is_new(item)).cloned().collect();
            FinalState { output: [said, new].concat(), ..ended }
        });
        let object = Json::from(object);
        Box::pin(async move {
            match ended {
                Some(ended) => self.store(ended, object).await,
                None => StoreOutcome {
                    store_error: Some(Error::Conflict),
                    conversation_error: Some(Error::Conflict),
                },
            }
        })
    }

    async fn store(self, ended: FinalState, object: Json) -> StoreOutcome {
        let FinalState { id, state, output } = ended;
        let input = items(self.input, &id);
        let joined = self.conversation.clone().filter(|_| state.has_answered());
        let now = milliseconds().saturating_add_signed(self.ahead);
        if !self.whole {
            let Some(conversation) = joined else { return StoreOutcome::default() };
            let key = Key { tenant: self.tenant, id: conversation };
            let added = self.store.add_items(key, [input, output].concat(), now).await;
            return StoreOutcome { store_error: None, conversation_error: added.err() };
        }
        let new = NewResponse {
            key: Key { tenant: self.tenant, id: id.as_str().into() },
            state,
            owner: self.owner,
            background: false,
            previous: self.previous,
            conversation: self.conversation,
            request: self.request,
            response: object,
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
            Err(Error::NoConversation) => {
                let response = without_conversation(&new.response);
                let alone = NewResponse { conversation: None, response, ..new };
                StoreOutcome {
                    store_error: self.store.create(alone, now).await.err(),
                    conversation_error: Some(Error::NoConversation),
                }
            }
            both => StoreOutcome { store_error: both.clone().err(), conversation_error: both.err() },
        }
    }

    /// Returns the store and the record of a queued response that is yet to be generated.
    pub(in crate::server) fn queued(self, id: &str, object: &str) -> (Arc<Store>, NewResponse) {
        let new = NewResponse {
            key: Key { tenant: self.tenant, id: id.into() },
            state: State::Queued,
            owner: self.owner,
            background: true,
            previous: self.previous,
            conversation: self.conversation,
            request: self.request,
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

/// Id, state and output of a response, read from its final object.
pub(in crate::server) struct FinalState {
    pub(in crate::server) id: String,
    pub(in crate::server) state: State,
    pub(in crate::server) output: Vec<Item>,
}

impl FinalState {
    pub(in crate::server) fn of(object: &str) -> Option<Self> {
        let members = Members::of(object)?;
        let text = |key: &str| members.get(key).and_then(Text::of).map(|text| text.decoded().into_owned());
        let word = text("status")?;
        let output: Vec<Raw<'_>> = json::read(members.get("output")?.get()).ok()?;
        let item = |raw: &Raw<'_>| Some(Item::new(&json::member(raw.get(), "id")?, raw.get()));
        Some(Self {
            id: text("id")?,
            state: State::ALL.into_iter().find(|state| state.name() == word)?,
            output: output.iter().filter_map(item).collect(),
        })
    }
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

/// Replaces `"store":true` in the object by false; `None` if it is not there.
fn mark_unstored(bytes: &[u8]) -> Option<Bytes> {
    const CLAIM: &[u8] = b",\"store\":true,\"temperature\":";
    const TRUTH: &[u8] = b",\"store\":false,\"temperature\":";
    // Only strings precede it, and quotes in strings are escaped.
    let at = memchr::memmem::find(bytes, CLAIM)?;
    let (before, claim) = bytes.split_at(at);
    Some([before, TRUTH, claim.get(CLAIM.len()..)?].concat().into())
}

/// Removes the conversation from the object; `None` if it names none.
fn remove_conversation(bytes: &[u8]) -> Option<Bytes> {
    const CLAIM: &[u8] = b",\"conversation\":{\"id\":\"";
    // It is the last key of the object, no client text follows the object, and ids of conversations need no
    // escapes.
    let at = memchr::memmem::rfind(bytes, CLAIM)?;
    let (before, claim) = bytes.split_at(at);
    let end = memchr::memmem::find(claim, b"}")?;
    Some([before, claim.get(end + 1..)?].concat().into())
}

/// Removes the conversation from an object or a single event.
pub(in crate::server) fn without_conversation(text: &str) -> Json {
    let apart = remove_conversation(text.as_bytes());
    apart.map_or_else(|| text.into(), |apart| String::from_utf8_lossy(&apart).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_stored_does_not_claim_to_be() {
        let object = r#"{"id":"resp_1","output":[{"text":"\",\"store\":true,\"temperature\":"}],"service_tier":"default","store":true,"temperature":1.0}"#;
        let event = format!(
            "event: response.completed\ndata: {{\"type\":\"response.completed\",\"response\":{object}}}\n\ndata: [DONE]\n\n"
        );
        let honest = mark_unstored(event.as_bytes()).unwrap();
        assert_eq!(honest, event.replace("\"store\":true,", "\"store\":false,"));
        assert!(mark_unstored(&honest).is_none());
    }

    #[test]
    fn a_conversation_that_is_gone_is_not_named() {
        let tools = r#"{"tools":[{"parameters":{"a":1,"conversation":{"id":"x"}}}],"metadata":{"a":",\"conversation\":{\"id\":\""}"#;
        let event = format!(
            "data: {{\"response\":{tools},\"conversation\":{{\"id\":\"conv_1\"}}}}}}\n\ndata: [DONE]\n\n"
        );
        let expected = format!("data: {{\"response\":{tools}}}}}\n\ndata: [DONE]\n\n");
        assert_eq!(remove_conversation(event.as_bytes()).unwrap(), expected.as_bytes());
        assert_eq!(&*without_conversation("{}"), "{}");
    }
}
