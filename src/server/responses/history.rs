//! What went before a request: the responses or the conversation it goes on with, and the items it refers to.

use super::{ParsedRequest, conversations, shown};
use crate::json::{self, Members, Raw, Text};
use crate::plan::{self, AdaptedBody, Route};
use crate::request::responses::{ChatInputs, ResponsesRequest};
use crate::seal::{Keys, Kind};
use crate::server::routes::RequestContext;
use crate::store::{Error, Item, Key, Store};
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Bytes of the conversation that a response continues.
pub(super) const PAST: u64 = 32 << 20;

/// What went before a request.
#[derive(Clone, Default)]
pub(super) struct History {
    pub(super) history: Vec<Item>,
    pub(super) resolved: Vec<(usize, Item)>,
}

impl History {
    /// The items of the conversation that went before.
    pub(super) fn history(&self) -> impl Iterator<Item = &str> {
        self.history.iter().map(|item| &*item.body)
    }

    /// All that was said, oldest first, and what is said now.
    pub(super) fn all<'a>(&'a self, asked: &'a ResponsesRequest) -> impl Iterator<Item = &'a str> {
        self.history().chain(self.items(asked))
    }

    /// What a user said first.
    pub(super) fn beginning(&self, asked: &ResponsesRequest) -> Vec<String> {
        let is_users = |item: &&str| json::member(item, "role").as_deref() == Some("user");
        self.all(asked).find(is_users).map(texts).unwrap_or_default()
    }

    /// The items of the input; what is referred to in place of the reference, which says nothing to a later turn.
    pub(super) fn items<'a>(&'a self, asked: &'a ResponsesRequest) -> impl Iterator<Item = &'a str> {
        asked.input().enumerate().map(|(at, item)| {
            let found = self.resolved.iter().find(|(place, _)| *place == at);
            found.map_or(item, |(_, found)| &*found.body)
        })
    }

    /// The same, after the conversation that went before if that is wanted too, as bytes that are shared.
    pub(super) fn shared<'a>(
        &'a self,
        asked: &'a ResponsesRequest,
        whole: bool,
    ) -> impl Iterator<Item = Bytes> + 'a {
        let stored = |item: &Item| Bytes::from_owner(Arc::<[u8]>::from(Arc::clone(&item.body)));
        let before = self.history.iter().filter(move |_| whole).map(stored);
        before.chain(asked.shared_input().enumerate().map(move |(at, item)| {
            let found = self.resolved.iter().find(|(place, _)| *place == at);
            found.map_or_else(|| item.clone(), |(_, found)| stored(found))
        }))
    }

    /// The engine's request, without its `forget` oldest messages.
    pub(super) fn body(
        &self,
        asked: &ResponsesRequest,
        tenant: &str,
        keys: &Keys,
        route: &Route,
        forget: usize,
    ) -> Result<AdaptedBody, Failure> {
        let open = |sealed: &str| {
            let kind = if sealed.starts_with("swc1.") { Kind::Compaction } else { Kind::Reasoning };
            keys.open(kind, tenant, sealed)
        };
        let history: Vec<_> = self.history().collect();
        let resolved: Vec<_> = self.resolved.iter().map(|(at, item)| (*at, &*item.body)).collect();
        let inputs = ChatInputs {
            history: &history,
            resolved: &resolved,
            unseal: &open,
            model_alias: route.model_alias.as_deref(),
            forget,
        };
        plan::response_body(asked, &inputs, route)
    }
}

/// The texts of a message, which say the same however they are written.
fn texts(message: &str) -> Vec<String> {
    let Some(content) = json::raw_member(message, "content") else { return Vec::new() };
    if let Some(text) = Text::of(content) {
        return vec![text.decoded().into_owned()];
    }
    let parts: Vec<Raw<'_>> = json::read(content.get()).unwrap_or_default();
    parts.iter().filter_map(|part| json::member(part.get(), "text")).collect()
}

impl RequestContext {
    /// The conversation that a request goes on with, and the items it refers to.
    pub(super) async fn history(&self, parsed: &ParsedRequest) -> Result<History, Failure> {
        let ParsedRequest { asked, known, .. } = parsed;
        let history = known.as_ref().map(|known| known.items.clone()).unwrap_or_default();
        let mut history = History { history, ..History::default() };
        let references: Vec<_> = asked.references().map(|(at, id)| (at, Arc::<str>::from(id))).collect();
        let previous = asked.previous_response_id.as_ref().filter(|_| known.is_none());
        if previous.is_none() && asked.conversation.is_none() && references.is_empty() {
            return Ok(history);
        }
        let store_handle = &self.app.store_handle;
        let store = store_handle.store();
        if store.is_none() && !store_handle.is_off() {
            return Err(Fault::StoreUnavailable.into());
        }
        if let Some(id) = previous {
            history.history = self.chain(store.as_ref(), parsed, id).await?;
        }
        if let Some(id) = &asked.conversation {
            history.history = self.transcript(store.as_ref(), parsed, id).await?;
            new_to(&history.history, asked)?;
        }
        if !references.is_empty() {
            history.resolved = self.resolved(store.as_ref(), parsed, references).await?;
        }
        Ok(history)
    }

    /// What went before a response, and the response.
    async fn chain(
        &self,
        store: Option<&Arc<Store>>,
        parsed: &ParsedRequest,
        id: &str,
    ) -> Result<Vec<Item>, Failure> {
        let about = |fault: Fault, message: String| {
            Failure::from(fault).with_message(message).with_param("previous_response_id")
        };
        let shown = shown(id);
        let missing =
            || about(Fault::PreviousNotFound, format!("Previous response with id '{shown}' not found."));
        let store = store.ok_or_else(missing)?;
        let key = Key { tenant: Arc::clone(&parsed.tenant), id: id.into() };
        let chain = store.chain(key.clone(), PAST, self.app.store_handle.now()).await;
        let items = chain.map_err(|error| match error {
            Error::NotFound => missing(),
            Error::InConversation => about(
                Fault::InvalidValue,
                format!("The response '{shown}' is one of a conversation; go on with 'conversation'."),
            ),
            Error::Conflict => {
                about(Fault::InvalidValue, format!("The response '{shown}' has not ended yet."))
            }
            Error::Full => about(
                Fault::ContextLength,
                "The conversation that this response continues is too long.".to_owned(),
            ),
            other => self.unavailable(&other),
        })?;
        self.refresh(store, key);
        Ok(items)
    }

    /// All items of a conversation.
    async fn transcript(
        &self,
        store: Option<&Arc<Store>>,
        parsed: &ParsedRequest,
        id: &str,
    ) -> Result<Vec<Item>, Failure> {
        let Some(store) = store else {
            parsed.asked.without_conversations()?;
            return Err(Fault::StoreUnavailable.into());
        };
        let key = Key { tenant: Arc::clone(&parsed.tenant), id: id.into() };
        let items = store.transcript(key, PAST, self.app.store_handle.now()).await;
        items.map_err(|error| match error {
            Error::NotFound => conversations::missing(id).with_param("conversation"),
            Error::Full => Failure::from(Fault::ContextLength)
                .with_message("The conversation is too long.")
                .with_param("conversation"),
            other => self.unavailable(&other),
        })
    }

    /// What the input refers to, with the places of the references.
    async fn resolved(
        &self,
        store: Option<&Arc<Store>>,
        parsed: &ParsedRequest,
        references: Vec<(usize, Arc<str>)>,
    ) -> Result<Vec<(usize, Item)>, Failure> {
        let mut found = Vec::new();
        if let Some(store) = store {
            let ids = references.iter().map(|(_, id)| Arc::clone(id)).collect();
            let items = store.resolve(Arc::clone(&parsed.tenant), ids, self.app.store_handle.now()).await;
            found = items.map_err(|error| self.unavailable(&error))?;
        }
        let known = &parsed.known;
        let mut found = found.into_iter();
        let item = |(at, id): (usize, Arc<str>)| {
            let remembered =
                || known.iter().flat_map(|known| &known.items).find(|item| item.id == id).cloned();
            let missing = || conversations::missing_item(&id).with_param(format!("input[{at}].id"));
            Ok((at, found.next().flatten().or_else(remembered).ok_or_else(missing)?))
        };
        references.into_iter().map(item).collect()
    }

    /// What is gone on with lives on. Nobody waits for that.
    pub(super) fn refresh(&self, store: &Arc<Store>, key: Key) {
        let (store, now) = (Arc::clone(store), self.app.store_handle.now());
        #[expect(clippy::disallowed_methods, reason = "it ends within the deadline of the store")]
        tokio::spawn(async move {
            if let Err(error) = store.refresh(key, now).await {
                tracing::debug!(%error, "a conversation was not made young again");
            }
        });
    }
}

/// Fails on an item of the input whose id another item of the conversation has: it would not be added. The same item once
/// more is fine, however it is spelled.
fn new_to(history: &[Item], asked: &ResponsesRequest) -> Result<(), Failure> {
    let references: HashSet<_> = asked.references().map(|(at, _)| at).collect();
    let mut known: HashMap<String, String> =
        history.iter().map(|item| (item.id.to_string(), gist(&item.body))).collect();
    for (at, item) in asked.input().enumerate().filter(|(at, _)| !references.contains(at)) {
        let Some(id) = json::member(item, "id").filter(|id| !id.is_empty()) else { continue };
        let gist = gist(item);
        if known.get(&id).is_some_and(|known| *known != gist) {
            let param = format!("input[{at}].id");
            let message =
                format!("Invalid value for '{param}': another item of the conversation has this id.");
            return Err(Failure::from(Fault::InvalidValue).with_message(message).with_param(param));
        }
        known.insert(id, gist);
    }
    Ok(())
}

/// What an item says, whatever the order of its keys.
fn gist(item: &str) -> String {
    let members = Members::of(item).unwrap_or_default();
    let kind = members.get("type").and_then(Text::of).map(|kind| kind.decoded().into_owned());
    let mut gist = kind.unwrap_or_else(|| "message".to_owned());
    for key in ["role", "call_id", "name", "arguments", "input", "output", "content"] {
        let Some(value) = members.get(key) else { continue };
        gist.push('\0');
        let parts = json::read::<Vec<Raw<'_>>>(value.get()).unwrap_or_default();
        gist.extend(Text::of(value).map(|text| text.decoded().into_owned()));
        gist.extend(parts.iter().filter_map(|part| json::member(part.get(), "text")));
    }
    gist
}
