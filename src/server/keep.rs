//! Storing a response that was answered while its client waited: once, when it is over.
//!
//! Its last event goes out when the record is durable, and every other event as soon as it is there (wire-format 4.11).
//! If it cannot be stored, its object says `"store": false`: a response never claims to be stored that is not.

use crate::json::{self, Members, Raw, Text};
use crate::request::listed;
use crate::store::{Error, Item, Json, Key, New, State, Store};
use bytes::BytesMut;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is stored of a response besides its answer.
pub(super) struct Keeper {
    pub(super) store: Arc<Store>,
    pub(super) tenant: Arc<str>,
    /// This process.
    pub(super) owner: Arc<str>,
    pub(super) previous: Option<Arc<str>>,
    pub(super) request: Json,
    /// The items of the input, as the client wrote them.
    pub(super) input: Vec<String>,
}

/// A record on its way into the store.
pub(super) type Keeping = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

impl Keeper {
    /// Begins to store the response with this final object.
    pub(super) fn keep(self, object: &str) -> Keeping {
        let new = self.record(object);
        Box::pin(async move {
            let (store, new) = new.ok_or(Error::Conflict)?;
            store.create(new, milliseconds()).await
        })
    }

    /// The same for an answer whose stored output is `said`, and the items of this object that are not among it.
    pub(super) fn keep_behind(self, object: &str, said: Vec<Item>) -> Keeping {
        let new = self.record(object).map(|(store, new)| {
            let is_new = |item: &Item| !said.iter().any(|known| known.id == item.id);
            let output: Vec<_> = new.output.iter().filter(|item| is_new(item)).cloned().collect();
            (store, New { output: [said, output].concat(), ..new })
        });
        Box::pin(async move {
            let (store, new) = new.ok_or(Error::Conflict)?;
            store.create(new, milliseconds()).await
        })
    }

    /// The record of a response that is yet to be made.
    pub(super) fn queued(self, id: &str, object: &str) -> (Arc<Store>, New) {
        let new = New {
            key: Key { tenant: self.tenant, id: id.into() },
            state: State::Queued,
            owner: self.owner,
            background: true,
            previous: self.previous,
            conversation: None,
            request: self.request,
            response: object.into(),
            input: items(&self.input, id),
            output: Vec::new(),
        };
        (self.store, new)
    }

    fn record(self, object: &str) -> Option<(Arc<Store>, New)> {
        let Ended { id, state, output } = Ended::of(object)?;
        let new = New {
            key: Key { tenant: self.tenant, id: id.as_str().into() },
            state,
            owner: self.owner,
            background: false,
            previous: self.previous,
            conversation: None,
            request: self.request,
            response: object.into(),
            input: items(&self.input, &id),
            output,
        };
        Some((self.store, new))
    }
}

/// The items of an input as they are stored.
pub(super) fn items(input: &[String], response: &str) -> Vec<Item> {
    input.iter().enumerate().filter_map(|(at, text)| item(text, response, at)).collect()
}

/// The `at`th of them.
pub(super) fn item(text: &str, response: &str, at: usize) -> Option<Item> {
    listed::item(text, response, at).map(|(id, body)| Item::new(&id, &body))
}

/// What a final object says of its response.
pub(super) struct Ended {
    pub(super) id: String,
    pub(super) state: State,
    pub(super) output: Vec<Item>,
}

impl Ended {
    pub(super) fn of(object: &str) -> Option<Self> {
        let Members(members) = json::read(object).ok()?;
        let get = |key: &str| members.iter().find(|(known, _)| known == key).map(|(_, value)| *value);
        let text = |key: &str| get(key).and_then(Text::of).map(|text| text.decoded().into_owned());
        let word = text("status")?;
        let output: Vec<Raw<'_>> = json::read(get("output")?.get()).ok()?;
        let item = |raw: &Raw<'_>| Some(Item::new(&json::member(raw.get(), "id")?, raw.get()));
        Some(Self {
            id: text("id")?,
            state: State::ALL.into_iter().find(|state| state.name() == word)?,
            output: output.iter().filter_map(item).collect(),
        })
    }
}

/// Now, as the store counts.
pub(super) fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Where the event that ends a stream begins.
pub(super) fn last_event(out: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"event: response.";
    let ends = |at: &usize| {
        let name = out.get(at + NAME.len()..).unwrap_or_default();
        ["completed\n", "incomplete\n", "failed\n"].iter().any(|end| name.starts_with(end.as_bytes()))
    };
    // No text can look like an event: line ends are escaped in it.
    memchr::memmem::rfind_iter(out, NAME).find(ends)
}

/// The response in the event that ends a stream.
pub(super) fn response_in(event: &[u8]) -> Option<&str> {
    let (_, data) = std::str::from_utf8(event).ok()?.split_once("\ndata: ")?;
    let (data, _) = data.split_once('\n')?;
    let Members(members) = json::read(data).ok()?;
    members.into_iter().find(|(key, _)| key == "response").map(|(_, response)| response.get())
}

/// The same bytes with an object that does not claim to be stored.
pub(super) fn unstored(bytes: &[u8]) -> BytesMut {
    const CLAIM: &[u8] = b",\"store\":true,\"temperature\":";
    const TRUTH: &[u8] = b",\"store\":false,\"temperature\":";
    // Before it there are only strings, in which quotes are escaped.
    let Some(at) = memchr::memmem::find(bytes, CLAIM) else { return bytes.into() };
    let mut out = BytesMut::with_capacity(bytes.len() + 1);
    out.extend_from_slice(bytes.get(..at).unwrap_or_default());
    out.extend_from_slice(TRUTH);
    out.extend_from_slice(bytes.get(at + CLAIM.len()..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_event_and_its_claim() {
        let object = r#"{"id":"resp_1","output":[{"text":"\",\"store\":true,\"temperature\":"}],"service_tier":"default","store":true,"temperature":1.0}"#;
        let events = format!(
            "event: response.created\ndata: {{}}\n\nevent: response.completed\ndata: {{\"type\":\"response.completed\",\"response\":{object}}}\n\ndata: [DONE]\n\n"
        );
        let at = last_event(events.as_bytes()).unwrap();
        let event = &events.as_bytes()[at..];
        assert!(event.starts_with(b"event: response.completed"));
        assert_eq!(response_in(event), Some(object));
        let honest = unstored(event);
        assert_eq!(response_in(&honest).unwrap(), object.replace("\"store\":true,", "\"store\":false,"));
        assert_eq!(last_event(b"event: response.created\ndata: {}\n\n"), None);
    }
}
