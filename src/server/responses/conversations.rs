//! Conversations API: clients create, change, read and delete conversations and their items (wire-format 4.1).

use super::stored::{Query, write_page};
use super::unavailable;
use crate::json::write_string;
use crate::request::invalid;
use crate::request::responses::conversations::{self, NewItem};
use crate::server::admit::body::Body;
use crate::server::admitted::Admitted;
use crate::server::batch::named_files::with_files;
use crate::server::reply::ClientReply;
use crate::server::request_body::RequestBody;
use crate::server::storage::objects::{decoded, not_found};
use crate::server::storage::persist;
use crate::store::{Conversation, Item, Json, Key, Page, Store, StoreError};
use crate::wire::fault::{Failure, Fault};
use bytes::{Bytes, BytesMut};
use http::{Method, Response};
use std::sync::Arc;

/// Object that a path of the Conversations API names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum ConversationPath {
    /// The collection, to which a new conversation is posted.
    New,
    /// A conversation.
    One,
    /// The items of a conversation.
    Items,
    /// A single item of a conversation.
    Item,
}

/// Serves the Conversations API. Fails if the body or query is invalid, the object does not exist or the store
/// fails.
pub(in crate::server) async fn serve_conversations(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
    what: ConversationPath,
) -> Result<Response<Body>, Failure> {
    let head = admitted.head;
    let bytes = match head.method {
        Method::POST => {
            let bytes = body
                .read(admitted.app.config.limits.max_body_bytes, admitted, reply)
                .await?;
            with_files(admitted, body, bytes).await?
        }
        _ => Bytes::new(),
    };
    body.active_request.begin_answer();
    let subject = ConversationTarget::of(admitted, what)?;
    let mut out = BytesMut::new();
    match (what, &head.method) {
        (ConversationPath::New, _) => subject.create(&bytes, &mut out).await?,
        (ConversationPath::One, &Method::DELETE) => subject.delete(&mut out).await?,
        (ConversationPath::One, &Method::POST) => subject.update(&bytes, &mut out).await?,
        (ConversationPath::One, _) => subject.show(&mut out).await?,
        (ConversationPath::Items, &Method::POST) => {
            Query::of(head).include()?;
            subject.add(&bytes, &mut out).await?;
        }
        (ConversationPath::Items, _) => subject.list(&Query::of(head), &mut out).await?,
        (ConversationPath::Item, method) => {
            Query::of(head).include()?;
            subject.item(method == Method::DELETE, &mut out).await?;
        }
    }
    Ok(reply.object(out.freeze()))
}

/// Target of a Conversations request: the store, the conversation's key and, for a path with an item, its id.
struct ConversationTarget<'h> {
    admitted: &'h Admitted<'h>,
    store: Arc<Store>,
    key: Key,
    /// Id of the item in the path; empty if the path names none.
    item: String,
}

impl<'h> ConversationTarget<'h> {
    /// Resolves the path to a conversation and an item; a new conversation gets a new id. Fails if there is no
    /// store.
    fn of(admitted: &'h Admitted<'h>, what: ConversationPath) -> Result<Self, Failure> {
        let owned = |segment| decoded(segment).into_owned();
        let mut path = admitted
            .head
            .uri
            .path()
            .split_once("/conversations/")
            .map_or("", |(_, path)| path)
            .split('/');
        let id = match what {
            ConversationPath::New => format!("conv_{}", admitted.ids.stamp().id),
            _ => path.next().map(owned).unwrap_or_default(),
        };
        let store = match admitted.app.store_handle.opened()? {
            Some(store) => store,
            None if what == ConversationPath::New => {
                let why = "Conversations are not stored here; send the whole of it as 'input'.";
                return Err(Failure::from(Fault::InvalidRequest).with_message(why));
            }
            None => return Err(not_found("Conversation", &id)),
        };
        let key = Key {
            tenant: admitted.tenant(),
            id: id.into(),
        };
        Ok(Self {
            admitted,
            store,
            key,
            item: path.nth(1).map(owned).unwrap_or_default(),
        })
    }

    fn key(&self) -> Key {
        self.key.clone()
    }

    fn now(&self) -> u64 {
        self.admitted.app.store_handle.now()
    }

    fn failure(&self, error: StoreError) -> Failure {
        match error {
            StoreError::NotFound => not_found("Conversation", &self.key.id),
            StoreError::NoCursor => invalid("after", "the conversation has no such item"),
            other => unavailable(self.admitted, &other),
        }
    }

    async fn create(&self, body: &[u8], out: &mut BytesMut) -> Result<(), Failure> {
        let (metadata, sent) = conversations::creation(body, &self.admitted.app.config.rules)?;
        let (metadata, now) = (Json::from(metadata), self.now());
        let items = self.resolved_items(&sent).await?;
        let created = self
            .store
            .create_conversation(self.key(), Arc::clone(&metadata), items, now)
            .await;
        created.map_err(|error| self.failure(error))?;
        write(
            &Conversation {
                key: self.key(),
                created: now,
                metadata,
            },
            out,
        );
        Ok(())
    }

    async fn delete(&self, out: &mut BytesMut) -> Result<(), Failure> {
        let deleted = self.store.delete_conversation(self.key(), self.now()).await;
        deleted.map_err(|error| self.failure(error))?;
        out.extend_from_slice(b"{\"id\":");
        write_string(&self.key.id, out);
        out.extend_from_slice(b",\"object\":\"conversation.deleted\",\"deleted\":true}");
        Ok(())
    }

    async fn update(&self, body: &[u8], out: &mut BytesMut) -> Result<(), Failure> {
        let metadata = conversations::update(body, &self.admitted.app.config.rules)?;
        let changed = self
            .store
            .update_conversation(self.key(), metadata.into(), self.now())
            .await;
        changed.map_err(|error| self.failure(error))?;
        self.show(out).await
    }

    /// Appends the conversation object to `out`.
    async fn show(&self, out: &mut BytesMut) -> Result<(), Failure> {
        let found = self.store.conversation(self.key(), self.now()).await;
        write(&found.map_err(|error| self.failure(error))?, out);
        Ok(())
    }

    async fn list(&self, query: &Query<'_>, out: &mut BytesMut) -> Result<(), Failure> {
        query.include()?;
        let page = self
            .store
            .conversation_items(self.key(), query.page()?, self.now())
            .await;
        write_page(&page.map_err(|error| self.failure(error))?, out);
        Ok(())
    }

    async fn add(&self, body: &[u8], out: &mut BytesMut) -> Result<(), Failure> {
        let sent = conversations::addition(body, &self.admitted.app.config.rules)?;
        let now = self.now();
        self.store
            .conversation(self.key(), now)
            .await
            .map_err(|error| self.failure(error))?;
        for (at, id) in sent
            .iter()
            .enumerate()
            .filter_map(|(at, sent)| Some((at, sent.id.as_ref()?)))
        {
            match self
                .store
                .conversation_item(self.key(), id.as_str().into(), now)
                .await
            {
                Err(StoreError::NotFound) => {}
                Ok(_) => {
                    return Err(invalid(
                        format!("items[{at}].id"),
                        "the conversation has such an item",
                    ));
                }
                Err(error) => return Err(self.failure(error)),
            }
        }
        let items = self.resolved_items(&sent).await?;
        let added = self.store.add_items(self.key(), items.clone(), now).await;
        added.map_err(|error| self.failure(error))?;
        write_page(&Page { items, more: false }, out);
        Ok(())
    }

    /// Appends the item to `out`; with `delete` it removes the item and appends the conversation instead.
    async fn item(&self, delete: bool, out: &mut BytesMut) -> Result<(), Failure> {
        let (id, now) = (Arc::<str>::from(self.item.as_str()), self.now());
        // The conversation first: the error message names which of the two does not exist.
        self.store
            .conversation(self.key(), now)
            .await
            .map_err(|error| self.failure(error))?;
        let told = |error| match error {
            StoreError::NotFound => not_found("Item", &self.item),
            other => self.failure(other),
        };
        if delete {
            self.store
                .delete_item(self.key(), id, now)
                .await
                .map_err(told)?;
            return self.show(out).await;
        }
        let found = self
            .store
            .conversation_item(self.key(), id, now)
            .await
            .map_err(told)?;
        out.extend_from_slice(found.body.as_bytes());
        Ok(())
    }

    /// Converts items to their stored form: with ids, references replaced by the items they name. Fails if a
    /// referenced item does not exist.
    async fn resolved_items(&self, sent: &[NewItem]) -> Result<Vec<Item>, Failure> {
        let refers = sent.iter().filter(|sent| sent.refers);
        let ids: Vec<_> = refers
            .filter_map(|sent| sent.id.as_deref())
            .map(Arc::<str>::from)
            .collect();
        let mut found = Vec::new();
        if !ids.is_empty() {
            let resolved = self
                .store
                .resolve(Arc::clone(&self.key.tenant), ids, self.now())
                .await;
            found = resolved.map_err(|error| self.failure(error))?;
        }
        let mut found = found.into_iter();
        let id = self.admitted.ids.stamp().id.to_string();
        let mut items = Vec::with_capacity(sent.len());
        for (at, sent) in sent.iter().enumerate() {
            if sent.refers {
                let id = sent.id.as_deref().unwrap_or_default();
                let missing = || not_found("Item", id).with_param(format!("items[{at}].id"));
                items.push(found.next().flatten().ok_or_else(missing)?);
            } else {
                items.extend(persist::item(&sent.json, &id, at));
            }
        }
        Ok(items)
    }
}

fn write(conversation: &Conversation, out: &mut BytesMut) {
    let Conversation {
        key,
        created,
        metadata,
    } = conversation;
    out.extend_from_slice(b"{\"id\":");
    write_string(&key.id, out);
    let rest = format!(
        ",\"object\":\"conversation\",\"created_at\":{},\"metadata\":{metadata}}}",
        created / 1000
    );
    out.extend_from_slice(rest.as_bytes());
}
