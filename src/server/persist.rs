//! Storing a response that was answered while its client waited: once, when it is over.
//!
//! Its last event goes out when the record is durable, and every other event as soon as it is there (wire-format 4.11).
//! If it cannot be stored, its object says `"store": false`: a response never claims to be stored that is not.
//!
//! A response with an answer is added to its conversation in the same moment, input and output in one piece, also when it
//! is not stored itself. One that failed or was cancelled adds nothing: it can be asked again, and the conversation has
//! the question once. If the conversation is gone by then, or full, the object names none.

use crate::json::{self, Members, Raw, Text};
use crate::request::stored_items;
use crate::store::{Error, Item, Json, Key, New, State, Store};
use crate::wire::OutputBuffer;
use bytes::Bytes;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What is stored of a response besides its answer.
pub(super) struct ResponseWriter {
    pub(super) store: Arc<Store>,
    pub(super) tenant: Arc<str>,
    /// This process.
    pub(super) owner: Arc<str>,
    /// Milliseconds by which the store's clock is ahead.
    pub(super) ahead: i64,
    /// The response itself is stored, not only what it adds to its conversation.
    pub(super) whole: bool,
    pub(super) previous: Option<Arc<str>>,
    pub(super) conversation: Option<Arc<str>>,
    /// What others go on with, not its input.
    pub(super) request: Json,
    /// The items of the input, as the client wrote them.
    pub(super) input: Vec<Bytes>,
}

/// Bytes of a stored item besides what the client wrote: its id, its status, and what the store counts for each.
const ITEM: usize = 400;

/// A record on its way into the store.
pub(super) type PendingWrite = Pin<Box<dyn Future<Output = StoreOutcome> + Send>>;

/// What became of a response that was to be stored.
#[derive(Debug, Default)]
pub(super) struct StoreOutcome {
    /// Why it is not stored, if it should be.
    unstored: Option<Error>,
    /// Why its conversation does not have it, if it should.
    apart: Option<Error>,
}

impl StoreOutcome {
    /// The end of an answer with an object that claims no more than is true.
    pub(super) fn honest(&self, mut end: OutputBuffer, request_id: &str) -> OutputBuffer {
        if let Some(error) = &self.unstored {
            tracing::warn!(request_id, %error, "a response was not stored");
        }
        if let Some(error) = &self.apart {
            tracing::warn!(request_id, %error, "a response was not added to its conversation");
        }
        if self.unstored.is_some() {
            end.rewrite(unstored);
        }
        if self.apart.is_some() {
            end.rewrite(apart);
        }
        end
    }
}

impl ResponseWriter {
    /// What the response weighs in the store at least: what is kept of its request stands in its object, too.
    pub(super) fn weight(&self) -> u64 {
        let input = self.input.iter().map(|item| item.len() + ITEM).sum::<usize>();
        (self.request.len() * 2 + input) as u64
    }

    /// Begins to store the response with this final object.
    pub(super) fn keep(self, object: &str) -> PendingWrite {
        self.keep_behind(object, Vec::new())
    }

    /// The same for an answer whose stored output is `said`, and the items of this object that are not among it.
    pub(super) fn keep_behind(self, object: &str, said: Vec<Item>) -> PendingWrite {
        let ended = FinalState::of(object).map(|ended| {
            let is_new = |item: &Item| !said.iter().any(|known| known.id == item.id);
            let new: Vec<_> = ended.output.iter().filter(|item| is_new(item)).cloned().collect();
            FinalState { output: [said, new].concat(), ..ended }
        });
        let object = Json::from(object);
        Box::pin(async move {
            match ended {
                Some(ended) => self.store(ended, object).await,
                None => StoreOutcome { unstored: Some(Error::Conflict), apart: Some(Error::Conflict) },
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
            return StoreOutcome { unstored: None, apart: added.err() };
        }
        let new = New {
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
            return StoreOutcome { unstored: self.store.create(new, now).await.err(), apart: None };
        };
        match self.store.create_in(conversation, new.clone(), now).await {
            Err(Error::NoConversation) => {
                let response = without_conversation(&new.response);
                let alone = New { conversation: None, response, ..new };
                StoreOutcome {
                    unstored: self.store.create(alone, now).await.err(),
                    apart: Some(Error::NoConversation),
                }
            }
            both => StoreOutcome { unstored: both.clone().err(), apart: both.err() },
        }
    }

    /// The record of a response that is yet to be made.
    pub(super) fn queued(self, id: &str, object: &str) -> (Arc<Store>, New) {
        let new = New {
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

/// The items of an input as they are stored.
pub(super) fn items(input: Vec<Bytes>, response: &str) -> Vec<Item> {
    let text = |(at, text): (usize, Bytes)| item(std::str::from_utf8(&text).ok()?, response, at);
    input.into_iter().enumerate().filter_map(text).collect()
}

/// The `at`th of them.
pub(super) fn item(text: &str, response: &str, at: usize) -> Option<Item> {
    stored_items::item(text, response, at).map(|(id, body)| Item::new(&id, &body))
}

/// What a final object says of its response.
pub(super) struct FinalState {
    pub(super) id: String,
    pub(super) state: State,
    pub(super) output: Vec<Item>,
}

impl FinalState {
    pub(super) fn of(object: &str) -> Option<Self> {
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

/// Now, as the store counts: what the clock said at first, and the time since then. If the clock is set meanwhile, not
/// everything has expired, and nothing that runs is lost (faults O13).
pub(super) fn milliseconds() -> u64 {
    static FIRST: LazyLock<(Duration, Instant)> = LazyLock::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        (since.unwrap_or_default(), Instant::now())
    });
    let (since, at) = *FIRST;
    u64::try_from(since.saturating_add(at.elapsed()).as_millis()).unwrap_or(u64::MAX)
}

/// The same bytes with an object that does not claim to be stored, if it does.
fn unstored(bytes: &[u8]) -> Option<Bytes> {
    const CLAIM: &[u8] = b",\"store\":true,\"temperature\":";
    const TRUTH: &[u8] = b",\"store\":false,\"temperature\":";
    // Before it there are only strings, in which quotes are escaped.
    let at = memchr::memmem::find(bytes, CLAIM)?;
    let (before, claim) = bytes.split_at(at);
    Some([before, TRUTH, claim.get(CLAIM.len()..)?].concat().into())
}

/// The same bytes with an object that names no conversation, if it does.
fn apart(bytes: &[u8]) -> Option<Bytes> {
    const CLAIM: &[u8] = b",\"conversation\":{\"id\":\"";
    // It is the object's last key, and behind the object there is no text of anybody's. Ids of conversations are plain.
    let at = memchr::memmem::rfind(bytes, CLAIM)?;
    let (before, claim) = bytes.split_at(at);
    let end = memchr::memmem::find(claim, b"}")?;
    Some([before, claim.get(end + 1..)?].concat().into())
}

/// The same of an object or an event by itself.
pub(super) fn without_conversation(text: &str) -> Json {
    let apart = apart(text.as_bytes());
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
        let honest = unstored(event.as_bytes()).unwrap();
        assert_eq!(honest, event.replace("\"store\":true,", "\"store\":false,"));
        assert!(unstored(&honest).is_none());
    }

    #[test]
    fn a_conversation_that_is_gone_is_not_named() {
        let tools = r#"{"tools":[{"parameters":{"a":1,"conversation":{"id":"x"}}}],"metadata":{"a":",\"conversation\":{\"id\":\""}"#;
        let event = format!(
            "data: {{\"response\":{tools},\"conversation\":{{\"id\":\"conv_1\"}}}}}}\n\ndata: [DONE]\n\n"
        );
        let expected = format!("data: {{\"response\":{tools}}}}}\n\ndata: [DONE]\n\n");
        assert_eq!(apart(event.as_bytes()).unwrap(), expected.as_bytes());
        assert_eq!(&*without_conversation("{}"), "{}");
    }
}
