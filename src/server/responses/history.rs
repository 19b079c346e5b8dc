//! History of a request: the responses or the conversation that it continues, and the items that its input
//! references.

use super::ParsedRequest;
use super::stored::not_found;
use crate::json::{self, Members, Raw, Text};
use crate::plan::{self, AdaptedBody, Route};
use crate::request::invalid;
use crate::request::responses::{ChatInputs, ResponsesRequest, UnreadableReasoning};
use crate::seal::{Keys, SealKind};
use crate::server::admit::auth::printable_name;
use crate::server::context::RequestContext;
use crate::server::relay::selection::UpstreamSelection;
use crate::store::{Error, Item, Key, Store};
use crate::upstream::ReadFor;
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use http::HeaderMap;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Limit for the size of a continued conversation, in bytes.
pub(super) const HISTORY_BYTES: u64 = 32 << 20;

/// Items that precede a request, loaded from the store or the connection, from which the engine's request is
/// built.
#[derive(Clone, Default)]
pub(super) struct History {
    pub(super) history: Vec<Item>,
    pub(super) resolved: Vec<(usize, Item)>,
}

impl History {
    /// Returns the earlier items of the conversation, oldest first, as JSON.
    pub(super) fn history(&self) -> impl Iterator<Item = &str> {
        self.history.iter().map(|item| &*item.body)
    }

    /// Returns the whole conversation, oldest item first: the history, then the input of the request.
    pub(super) fn all<'a>(&'a self, asked: &'a ResponsesRequest) -> impl Iterator<Item = &'a str> {
        self.history().chain(self.items(asked))
    }

    /// Returns the texts of the first user message, by which related requests are routed to the same upstream.
    fn first_user_texts(&self, asked: &ResponsesRequest) -> Vec<String> {
        let is_users = |item: &&str| json::member(item, "role").as_deref() == Some("user");
        self.all(asked).find(is_users).map(texts).unwrap_or_default()
    }

    /// Returns the texts of the prompt, what engines put first in front: tools and instructions, then the items. An item
    /// has the same texts whether the client or the store gives it.
    fn prompt(&self, asked: &ResponsesRequest) -> Vec<String> {
        let front = asked.leading_fields().map(str::to_owned);
        let items = self.all(asked).flat_map(|item| {
            let of_call = ["name", "arguments", "output"].map(|key| json::member(item, key));
            texts(item).into_iter().chain(of_call.into_iter().flatten())
        });
        front.chain(items).collect()
    }

    /// Returns the items of the input. References are replaced by the items they name, since a later turn could
    /// not resolve them.
    pub(super) fn items<'a>(&'a self, asked: &'a ResponsesRequest) -> impl Iterator<Item = &'a str> {
        asked.input().enumerate().map(|(at, item)| {
            let found = self.resolved.iter().find(|(place, _)| *place == at);
            found.map_or(item, |(_, found)| &*found.body)
        })
    }

    /// Returns the items of the input as shared bytes, preceded by the history if `whole` is true.
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

    /// Builds the body of the engine's request, without the `forget` oldest messages. Fails if the conversation
    /// cannot be expressed for the engine or sealed text cannot be opened.
    pub(super) fn body(
        &self,
        asked: &ResponsesRequest,
        tenant: &str,
        keys: &Keys,
        route: &Route,
        forget: usize,
    ) -> Result<AdaptedBody, Failure> {
        let (history, resolved) = self.bodies();
        let inputs = ChatInputs {
            history: &history,
            resolved: &resolved,
            unseal: &|sealed| unseal(keys, tenant, sealed),
            model_alias: route.model_alias.as_deref(),
            skip_oldest: forget,
        };
        plan::response_body(asked, &inputs, route)
    }

    /// Adds sealed reasoning that cannot be opened to what the request drops, and returns the number of these items.
    /// Fails if they are refused.
    fn drop_unreadable(
        &self,
        asked: &mut ResponsesRequest,
        tenant: &str,
        keys: &Keys,
        rule: UnreadableReasoning,
    ) -> Result<usize, Failure> {
        let (history, resolved) = self.bodies();
        let inputs = ChatInputs {
            history: &history,
            resolved: &resolved,
            unseal: &|sealed| unseal(keys, tenant, sealed),
            ..ChatInputs::default()
        };
        asked.drop_unreadable(&inputs, rule)
    }

    /// Returns the items as JSON: the history, and the resolved references.
    fn bodies(&self) -> (Vec<&str>, Vec<(usize, &str)>) {
        (self.history().collect(), self.resolved.iter().map(|(at, item)| (*at, &*item.body)).collect())
    }
}

fn unseal(keys: &Keys, tenant: &str, sealed: &str) -> Option<String> {
    let kind = if sealed.starts_with("swc1.") { SealKind::Compaction } else { SealKind::Reasoning };
    keys.open(kind, tenant, sealed)
}

/// Returns the texts of a message, whether its content is a string or a list of parts.
fn texts(message: &str) -> Vec<String> {
    let Some(content) = json::raw_member(message, "content") else { return Vec::new() };
    if let Some(text) = Text::of(content) {
        return vec![text.decoded().into_owned()];
    }
    let parts: Vec<Raw<'_>> = json::read(content.get()).unwrap_or_default();
    parts.iter().filter_map(|part| json::member(part.get(), "text")).collect()
}

impl RequestContext {
    /// Returns a selection among the upstreams of a Responses request, which go by its conversation or its prompt.
    pub(super) fn response_selection(
        &self,
        asked: &ResponsesRequest,
        history: &History,
        headers: &HeaderMap,
        read_for: ReadFor,
    ) -> UpstreamSelection {
        self.selection(
            &asked.model,
            headers,
            Some(read_for),
            || history.first_user_texts(asked),
            || history.prompt(asked),
        )
    }

    /// Loads the conversation that the request continues and the items it references, and reports reasoning in them
    /// or in the input that cannot be opened. Fails if one of them is missing or too long, such reasoning is refused,
    /// or the store is unavailable.
    pub(super) async fn history(&self, parsed: &mut ParsedRequest) -> Result<History, Failure> {
        let history = self.load(parsed).await?;
        let rule = self.app.config.unreadable_reasoning;
        let keys = self.app.store_handle.keys();
        let unread = history.drop_unreadable(&mut parsed.asked, &parsed.tenant, &keys, rule)?;
        if unread > 0 {
            let request_id = self.record.as_ref().map(|record| &*record.request_id);
            tracing::warn!(
                request_id,
                items = unread,
                "sealed reasoning cannot be opened and is left out; see [seal] in the configuration"
            );
        }
        Ok(history)
    }

    async fn load(&self, parsed: &ParsedRequest) -> Result<History, Failure> {
        let ParsedRequest { asked, remembered: known, .. } = parsed;
        let history = known.as_ref().map(|known| known.items.clone()).unwrap_or_default();
        let mut history = History { history, ..History::default() };
        let references: Vec<_> = asked.references().map(|(at, id)| (at, Arc::<str>::from(id))).collect();
        let previous = asked.previous_response_id.as_ref().filter(|_| known.is_none());
        if previous.is_none() && asked.conversation.is_none() && references.is_empty() {
            return Ok(history);
        }
        let store = self.app.store_handle.opened()?;
        if let Some(id) = previous {
            history.history = self.chain(store.as_ref(), parsed, id).await?;
        }
        if let Some(id) = &asked.conversation {
            history.history = self.transcript(store.as_ref(), parsed, id).await?;
            check_new_ids(&history.history, asked)?;
        }
        if !references.is_empty() {
            history.resolved = self.resolved(store.as_ref(), parsed, references).await?;
        }
        Ok(history)
    }

    /// Loads the chain of stored responses up to and including `id`. Fails if it is missing, unfinished, part of a
    /// conversation or too long.
    async fn chain(
        &self,
        store: Option<&Arc<Store>>,
        parsed: &ParsedRequest,
        id: &str,
    ) -> Result<Vec<Item>, Failure> {
        let about = |fault: Fault, message: String| {
            Failure::from(fault).with_message(message).with_param("previous_response_id")
        };
        let shown = printable_name(id);
        let missing =
            || about(Fault::PreviousNotFound, format!("Previous response with id '{shown}' not found."));
        let store = store.ok_or_else(missing)?;
        let key = Key { tenant: Arc::clone(&parsed.tenant), id: id.into() };
        let chain = store.chain(key.clone(), HISTORY_BYTES, self.app.store_handle.now()).await;
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

    /// Loads the items of a conversation. Fails if it does not exist or is too long.
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
        let items = store.transcript(key, HISTORY_BYTES, self.app.store_handle.now()).await;
        items.map_err(|error| match error {
            Error::NotFound => not_found("Conversation", id).with_param("conversation"),
            Error::Full => Failure::from(Fault::ContextLength)
                .with_message("The conversation is too long.")
                .with_param("conversation"),
            other => self.unavailable(&other),
        })
    }

    /// Loads the items that the input references, each with the index of its reference. Fails if one does not
    /// exist.
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
        let known = &parsed.remembered;
        let mut found = found.into_iter();
        let item = |(at, id): (usize, Arc<str>)| {
            let remembered =
                || known.iter().flat_map(|known| &known.items).find(|item| item.id == id).cloned();
            let missing = || not_found("Item", &id).with_param(format!("input[{at}].id"));
            Ok((at, found.next().flatten().or_else(remembered).ok_or_else(missing)?))
        };
        references.into_iter().map(item).collect()
    }

    /// Extends the life of a stored response that is being continued, in a task of its own so that no request
    /// waits for it.
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

/// Fails if an input item has the id of another, different item of the conversation: it would not be added. An
/// identical item is accepted again, however its JSON is spelled.
fn check_new_ids(history: &[Item], asked: &ResponsesRequest) -> Result<(), Failure> {
    let references: HashSet<_> = asked.references().map(|(at, _)| at).collect();
    let mut known: HashMap<String, String> =
        history.iter().map(|item| (item.id.to_string(), content_of(&item.body))).collect();
    for (at, item) in asked.input().enumerate().filter(|(at, _)| !references.contains(at)) {
        let Some(id) = json::member(item, "id").filter(|id| !id.is_empty()) else { continue };
        let gist = content_of(item);
        if known.get(&id).is_some_and(|known| *known != gist) {
            let param = format!("input[{at}].id");
            return Err(invalid(param, "another item of the conversation has this id"));
        }
        known.insert(id, gist);
    }
    Ok(())
}

/// Returns the content of an item in a form independent of key order and spelling, to compare two items.
fn content_of(item: &str) -> String {
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
