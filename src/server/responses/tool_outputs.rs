//! Tool outputs posted for the calls of a response. They are kept in the store as the items of a conversation,
//! under a tenant name that no client can have.

use crate::json;
use crate::request::responses::outputs::Output;
use crate::store::{Error, Item, Key, PageRequest, Store};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Id of the item that marks which request continues the response.
const CLAIM: &str = "claim";

/// Outputs posted so far for the calls of one response. The store is shared by all processes, so any of them can
/// take the next output.
pub(super) struct ToolOutputStore {
    store: Arc<Store>,
    key: Key,
    /// Id of the writing request, which tells its items from those of concurrent requests.
    writer_id: Arc<str>,
}

impl ToolOutputStore {
    pub(super) fn of(store: Arc<Store>, response: &Key, by: Arc<str>) -> Self {
        // Tenant names of clients contain no blank.
        let tenant = format!("outputs of {}", response.tenant).into();
        Self { store, key: Key { tenant, id: Arc::clone(&response.id) }, writer_id: by }
    }

    /// Stores outputs and returns all that are stored, by the index of their call. Fails with `Conflict` if a call
    /// has an output already.
    pub(super) async fn put(
        &self,
        given: &[(usize, &Output)],
        now: u64,
    ) -> Result<HashMap<usize, String>, Error> {
        match self.store.create_conversation(self.key.clone(), "{}".into(), Vec::new(), now).await {
            Ok(()) | Err(Error::Conflict) => {}
            Err(error) => return Err(error),
        }
        let there = self.all(now).await?;
        if given.iter().any(|(at, _)| there.iter().any(|item| *item.id == *at.to_string())) {
            return Err(Error::Conflict);
        }
        let items = given.iter().map(|(at, output)| self.item(&at.to_string(), &output.output)).collect();
        self.store.add_items(self.key.clone(), items, now).await?;
        let there = self.all(now).await?;
        let ours = |at: usize| there.iter().any(|item| *item.id == *at.to_string() && self.is_ours(item));
        // A concurrent request was quicker: its outputs stay.
        if !given.iter().all(|(at, _)| ours(*at)) {
            return Err(Error::Conflict);
        }
        let output = |item: &Item| Some((item.id.parse().ok()?, outputs_of(&item.body)?));
        Ok(there.iter().filter_map(output).collect())
    }

    /// Closes the calls whose outputs came by the held stream, so that the store accepts no further outputs for
    /// them. Fails if the store fails.
    pub(super) async fn close(&self, calls: &[usize], now: u64) -> Result<(), Error> {
        let ids = calls.iter().map(usize::to_string).chain([CLAIM.to_owned()]);
        let items = ids.map(|id| self.item(&id, "null")).collect();
        self.store.create_conversation(self.key.clone(), "{}".into(), items, now).await
    }

    /// Returns true if this request is the one that continues the response; of several concurrent ones exactly one
    /// is.
    pub(super) async fn claim(&self, now: u64) -> Result<bool, Error> {
        self.store.add_items(self.key.clone(), vec![self.item(CLAIM, "null")], now).await?;
        let claim = self.store.conversation_item(self.key.clone(), CLAIM.into(), now).await?;
        Ok(self.is_ours(&claim))
    }

    async fn remove(&self, ids: &[String], now: u64) {
        for id in ids {
            let item = self.store.conversation_item(self.key.clone(), id.as_str().into(), now).await;
            if item.is_ok_and(|item| !self.is_ours(&item)) {
                continue;
            }
            if let Err(error) = self.store.delete_item(self.key.clone(), id.as_str().into(), now).await {
                tracing::warn!(%error, "outputs of tools could not be given back");
            }
        }
    }

    async fn all(&self, now: u64) -> Result<Vec<Item>, Error> {
        let mut all: Vec<Item> = Vec::new();
        loop {
            let after = all.last().map(|item| Arc::clone(&item.id));
            let ask = PageRequest { after, limit: 100, descending: false };
            let page = self.store.conversation_items(self.key.clone(), ask, now).await?;
            all.extend(page.items);
            if !page.more {
                return Ok(all);
            }
        }
    }

    fn item(&self, id: &str, output: &str) -> Item {
        Item::new(id, &format!("{{\"by\":\"{}\",\"output\":{output}}}", self.writer_id))
    }

    fn is_ours(&self, item: &Item) -> bool {
        json::member(&item.body, "by").is_some_and(|by| by == *self.writer_id)
    }
}

/// Removes the outputs posted for a deleted response. Errors are ignored, since the entries expire anyway.
pub(super) async fn forget(store: &Arc<Store>, response: &Key, now: u64) {
    let output_store = ToolOutputStore::of(Arc::clone(store), response, "".into());
    // Usually there are none; leftovers expire.
    let _ = output_store.store.delete_conversation(output_store.key, now).await;
}

/// Returns the output in a stored item as JSON; `None` if the call is merely closed.
fn outputs_of(item: &str) -> Option<String> {
    let output = json::raw_member(item, "output")?.get();
    (output != "null").then(|| output.to_owned())
}

/// Outputs that one request has stored in order to continue a response. Dropping the value removes them again, so
/// that the client can post them once more, unless [`Self::keep`] was called.
pub(super) struct SubmittedOutputs {
    pub(super) output_store: Arc<ToolOutputStore>,
    ids: Vec<String>,
    now: u64,
}

impl SubmittedOutputs {
    pub(super) fn new(output_store: ToolOutputStore, given: &[(usize, &Output)], now: u64) -> Self {
        let ids = given.iter().map(|(at, _)| at.to_string()).chain([CLAIM.to_owned()]).collect();
        Self { output_store: Arc::new(output_store), ids, now }
    }

    /// Keeps the outputs in the store, because the response has been continued.
    pub(super) fn keep(mut self) {
        self.ids.clear();
    }

    /// Removes the outputs from the store, so that the client can post them again.
    pub(super) async fn take_back(mut self) {
        let ids = std::mem::take(&mut self.ids);
        self.output_store.remove(&ids, self.now).await;
    }
}

impl Drop for SubmittedOutputs {
    fn drop(&mut self) {
        let ids = std::mem::take(&mut self.ids);
        // Without a runtime the process is ending, and no client can post outputs to it.
        let Some(runtime) = Handle::try_current().ok().filter(|_| !ids.is_empty()) else { return };
        let (output_store, now) = (Arc::clone(&self.output_store), self.now);
        runtime.spawn(async move { output_store.remove(&ids, now).await });
    }
}
