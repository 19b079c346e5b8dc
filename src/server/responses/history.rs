//! History of a request: the responses or the conversation that it continues, and the items that its input
//! references.

use super::{ParsedRequest, unavailable};
use crate::json::{self, Members, Raw, Text};
use crate::plan::{self, AdaptedBody, Route};
use crate::request::invalid;
use crate::request::responses::{ChatInputs, ResponsesRequest, UnreadableReasoning};
use crate::seal::{SealKeys, SealKind};
use crate::server::App;
use crate::server::admitted::Admitted;
use crate::server::printable::printable_name;
use crate::server::relay::selection::UpstreamSelection;
use crate::server::reply::ClientReply;
use crate::server::storage::objects::not_found;
use crate::store::{Item, Key, Store, StoreError};
use crate::upstream::ReadFor;
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Limit for the size of a continued conversation, in bytes.
pub(super) const HISTORY_BYTES: u64 = 32 << 20;

/// Items that precede a request, loaded from the store or the connection, from which the engine's request is
/// built.
#[derive(Clone, Default)]
pub(super) struct LoadedHistory {
    pub(super) history: Vec<Item>,
    pub(super) resolved: Vec<(usize, Item)>,
}

impl LoadedHistory {
    /// Returns the earlier items of the conversation, oldest first, as JSON.
    pub(super) fn history(&self) -> impl Iterator<Item = &str> {
        self.history.iter().map(|item| &*item.body)
    }

    /// Returns the whole conversation, oldest item first: the history, then the input of the request.
    pub(super) fn all<'a>(
        &'a self,
        request: &'a ResponsesRequest,
    ) -> impl Iterator<Item = &'a str> {
        self.history().chain(self.items(request))
    }

    /// Returns the texts of the first user message, by which related requests are routed to the same upstream.
    fn first_user_texts(&self, request: &ResponsesRequest) -> Vec<String> {
        let is_users = |item: &&str| json::member(item, "role").as_deref() == Some("user");
        self.all(request)
            .find(is_users)
            .map(texts)
            .unwrap_or_default()
    }

    /// Returns the texts of the prompt, what engines put first in front: tools and instructions, then the items. An item
    /// has the same texts whether the client or the store gives it.
    fn prompt(&self, request: &ResponsesRequest) -> Vec<String> {
        let front = request.leading_fields().map(str::to_owned);
        let items = self.all(request).flat_map(|item| {
            let of_call = ["name", "arguments", "output"].map(|key| json::member(item, key));
            texts(item).into_iter().chain(of_call.into_iter().flatten())
        });
        front.chain(items).collect()
    }

    /// Returns the items of the input. References are replaced by the items they name, since a later turn could
    /// not resolve them.
    pub(super) fn items<'a>(
        &'a self,
        request: &'a ResponsesRequest,
    ) -> impl Iterator<Item = &'a str> {
        request.input().enumerate().map(|(at, item)| {
            let found = self.resolved.iter().find(|(place, _)| *place == at);
            found.map_or(item, |(_, found)| &*found.body)
        })
    }

    /// Returns the items of the input as shared bytes, preceded by the history if `whole` is true.
    pub(super) fn shared<'a>(
        &'a self,
        request: &'a ResponsesRequest,
        whole: bool,
    ) -> impl Iterator<Item = Bytes> + 'a {
        let stored = |item: &Item| Bytes::from_owner(Arc::<[u8]>::from(Arc::clone(&item.body)));
        let before = self.history.iter().filter(move |_| whole).map(stored);
        before.chain(request.shared_input().enumerate().map(move |(at, item)| {
            let found = self.resolved.iter().find(|(place, _)| *place == at);
            found.map_or_else(|| item.clone(), |(_, found)| stored(found))
        }))
    }

    /// Builds the body of the engine's request, without the `forget` oldest messages. Fails if the conversation
    /// cannot be expressed for the engine or sealed text cannot be opened.
    pub(super) fn body(
        &self,
        request: &ResponsesRequest,
        tenant: &str,
        keys: &SealKeys,
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
        plan::response_body(request, &inputs, route)
    }

    /// Adds sealed reasoning that cannot be opened to what the request drops, and returns the number of these items.
    /// Fails if they are refused.
    fn drop_unreadable(
        &self,
        request: &mut ResponsesRequest,
        tenant: &str,
        keys: &SealKeys,
        rule: UnreadableReasoning,
    ) -> Result<usize, Failure> {
        let (history, resolved) = self.bodies();
        let inputs = ChatInputs {
            history: &history,
            resolved: &resolved,
            unseal: &|sealed| unseal(keys, tenant, sealed),
            ..ChatInputs::default()
        };
        request.drop_unreadable(&inputs, rule)
    }

    /// Returns the items as JSON: the history, and the resolved references.
    fn bodies(&self) -> (Vec<&str>, Vec<(usize, &str)>) {
        (
            self.history().collect(),
            self.resolved
                .iter()
                .map(|(at, item)| (*at, &*item.body))
                .collect(),
        )
    }
}

fn unseal(keys: &SealKeys, tenant: &str, sealed: &str) -> Option<String> {
    let kind = if sealed.starts_with("swc1.") {
        SealKind::Compaction
    } else {
        SealKind::Reasoning
    };
    keys.open(kind, tenant, sealed)
}

/// Returns the texts of a message, whether its content is a string or a list of parts.
fn texts(message: &str) -> Vec<String> {
    let Some(content) = json::raw_member(message, "content") else {
        return Vec::new();
    };
    if let Some(text) = Text::of(content) {
        return vec![text.decoded().into_owned()];
    }
    let parts: Vec<Raw<'_>> = json::read(content.get()).unwrap_or_default();
    parts
        .iter()
        .filter_map(|part| json::member(part.get(), "text"))
        .collect()
}

/// Returns a selection among the upstreams of a Responses request, which go by its conversation or its prompt.
pub(super) fn response_selection(
    admitted: &Admitted<'_>,
    reply: &ClientReply,
    request: &ResponsesRequest,
    history: &LoadedHistory,
    read_for: ReadFor,
) -> UpstreamSelection {
    UpstreamSelection::new(
        admitted,
        reply,
        &request.model,
        Some(read_for),
        || history.first_user_texts(request),
        || history.prompt(request),
    )
}

/// Loads the conversation that the request continues and the items it references, and reports reasoning in them
/// or in the input that cannot be opened. Fails if one of them is missing or too long, such reasoning is refused,
/// or the store is unavailable.
pub(super) async fn load_history(
    admitted: &Admitted<'_>,
    parsed: &mut ParsedRequest,
) -> Result<LoadedHistory, Failure> {
    let app = admitted.app;
    let history = load(admitted, parsed).await?;
    let rule = app.config.unreadable_reasoning;
    let keys = app.store_handle.keys();
    let unread = history.drop_unreadable(&mut parsed.request, &parsed.tenant, &keys, rule)?;
    if unread > 0 {
        tracing::warn!(
            request_id = &*admitted.request_id,
            items = unread,
            "sealed reasoning cannot be opened and is left out; see [seal] in the configuration"
        );
    }
    Ok(history)
}

async fn load(admitted: &Admitted<'_>, parsed: &ParsedRequest) -> Result<LoadedHistory, Failure> {
    let ParsedRequest {
        request,
        remembered: known,
        ..
    } = parsed;
    let history = known
        .as_ref()
        .map(|known| known.items.clone())
        .unwrap_or_default();
    let mut history = LoadedHistory {
        history,
        ..LoadedHistory::default()
    };
    let references: Vec<_> = request
        .references()
        .map(|(at, id)| (at, Arc::<str>::from(id)))
        .collect();
    let previous = request
        .previous_response_id
        .as_ref()
        .filter(|_| known.is_none());
    if previous.is_none() && request.conversation.is_none() && references.is_empty() {
        return Ok(history);
    }
    let store = admitted.app.store_handle.opened()?;
    if let Some(id) = previous {
        history.history = chain(admitted, store.as_ref(), parsed, id).await?;
    }
    if let Some(id) = &request.conversation {
        history.history = transcript(admitted, store.as_ref(), parsed, id).await?;
        check_new_ids(&history.history, request)?;
    }
    if !references.is_empty() {
        history.resolved = resolved(admitted, store.as_ref(), parsed, references).await?;
    }
    Ok(history)
}

/// Loads the chain of stored responses up to and including `id`. Fails if it is missing, unfinished, part of a
/// conversation or too long.
async fn chain(
    admitted: &Admitted<'_>,
    store: Option<&Arc<Store>>,
    parsed: &ParsedRequest,
    id: &str,
) -> Result<Vec<Item>, Failure> {
    let about = |fault: Fault, message: String| {
        Failure::from(fault)
            .with_message(message)
            .with_param("previous_response_id")
    };
    let shown = printable_name(id);
    let missing = || {
        about(
            Fault::PreviousNotFound,
            format!("Previous response with id '{shown}' not found."),
        )
    };
    let store = store.ok_or_else(missing)?;
    let key = Key {
        tenant: Arc::clone(&parsed.tenant),
        id: id.into(),
    };
    let chain = store
        .chain(key.clone(), HISTORY_BYTES, admitted.app.store_handle.now())
        .await;
    let items = chain.map_err(|error| match error {
        StoreError::NotFound => missing(),
        StoreError::InConversation => about(
            Fault::InvalidValue,
            format!("The response '{shown}' is one of a conversation; go on with 'conversation'."),
        ),
        StoreError::Conflict => about(
            Fault::InvalidValue,
            format!("The response '{shown}' has not ended yet."),
        ),
        StoreError::Full => about(
            Fault::ContextLength,
            "The conversation that this response continues is too long.".to_owned(),
        ),
        other => unavailable(admitted, &other),
    })?;
    refresh(admitted.app, store, key);
    Ok(items)
}

/// Loads the items of a conversation. Fails if it does not exist or is too long.
async fn transcript(
    admitted: &Admitted<'_>,
    store: Option<&Arc<Store>>,
    parsed: &ParsedRequest,
    id: &str,
) -> Result<Vec<Item>, Failure> {
    let Some(store) = store else {
        parsed.request.without_conversations()?;
        return Err(Fault::StoreUnavailable.into());
    };
    let key = Key {
        tenant: Arc::clone(&parsed.tenant),
        id: id.into(),
    };
    let items = store
        .transcript(key, HISTORY_BYTES, admitted.app.store_handle.now())
        .await;
    items.map_err(|error| match error {
        StoreError::NotFound => not_found("Conversation", id).with_param("conversation"),
        StoreError::Full => Failure::from(Fault::ContextLength)
            .with_message("The conversation is too long.")
            .with_param("conversation"),
        other => unavailable(admitted, &other),
    })
}

/// Loads the items that the input references, each with the index of its reference. Fails if one does not
/// exist.
async fn resolved(
    admitted: &Admitted<'_>,
    store: Option<&Arc<Store>>,
    parsed: &ParsedRequest,
    references: Vec<(usize, Arc<str>)>,
) -> Result<Vec<(usize, Item)>, Failure> {
    let mut found = Vec::new();
    if let Some(store) = store {
        let ids = references.iter().map(|(_, id)| Arc::clone(id)).collect();
        let items = store
            .resolve(
                Arc::clone(&parsed.tenant),
                ids,
                admitted.app.store_handle.now(),
            )
            .await;
        found = items.map_err(|error| unavailable(admitted, &error))?;
    }
    let known = &parsed.remembered;
    let mut found = found.into_iter();
    let item = |(at, id): (usize, Arc<str>)| {
        let remembered = || {
            known
                .iter()
                .flat_map(|known| &known.items)
                .find(|item| item.id == id)
                .cloned()
        };
        let missing = || not_found("Item", &id).with_param(format!("input[{at}].id"));
        Ok((
            at,
            found
                .next()
                .flatten()
                .or_else(remembered)
                .ok_or_else(missing)?,
        ))
    };
    references.into_iter().map(item).collect()
}

/// Extends the life of a stored response that is being continued, in its own task so that no request
/// waits for it.
pub(super) fn refresh(app: &App, store: &Arc<Store>, key: Key) {
    let (store, now) = (Arc::clone(store), app.store_handle.now());
    #[expect(
        clippy::disallowed_methods,
        reason = "it ends within the deadline of the store"
    )]
    tokio::spawn(async move {
        if let Err(error) = store.refresh(key, now).await {
            tracing::debug!(%error, "a conversation was not made young again");
        }
    });
}

/// Fails if an input item has the id of another, different item of the conversation: it would not be added. An
/// identical item is accepted again, however its JSON is spelled.
fn check_new_ids(history: &[Item], request: &ResponsesRequest) -> Result<(), Failure> {
    let references: HashSet<_> = request.references().map(|(at, _)| at).collect();
    let mut known: HashMap<String, String> = history
        .iter()
        .map(|item| (item.id.to_string(), content_of(&item.body)))
        .collect();
    for (at, item) in request
        .input()
        .enumerate()
        .filter(|(at, _)| !references.contains(at))
    {
        let Some(id) = json::member(item, "id").filter(|id| !id.is_empty()) else {
            continue;
        };
        let gist = content_of(item);
        if known.get(&id).is_some_and(|known| *known != gist) {
            let param = format!("input[{at}].id");
            return Err(invalid(
                param,
                "another item of the conversation has this id",
            ));
        }
        known.insert(id, gist);
    }
    Ok(())
}

/// Returns the content of an item in a form independent of key order and spelling, to compare two items.
fn content_of(item: &str) -> String {
    let members = Members::of(item).unwrap_or_default();
    let kind = members
        .get("type")
        .and_then(Text::of)
        .map(|kind| kind.decoded().into_owned());
    let mut gist = kind.unwrap_or_else(|| "message".to_owned());
    for key in [
        "role",
        "call_id",
        "name",
        "arguments",
        "input",
        "output",
        "content",
    ] {
        let Some(value) = members.get(key) else {
            continue;
        };
        gist.push('\0');
        let parts = json::read::<Vec<Raw<'_>>>(value.get()).unwrap_or_default();
        gist.extend(Text::of(value).map(|text| text.decoded().into_owned()));
        gist.extend(
            parts
                .iter()
                .filter_map(|part| json::member(part.get(), "text")),
        );
    }
    gist
}
