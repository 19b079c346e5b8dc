//! What has been handed in for the calls of a response: kept in the store, under a tenant's name that no client has.

use crate::json;
use crate::request::responses::outputs::Output;
use crate::store::{Error, Item, Key, PageRequest, Store};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The item that says who goes on.
const CLAIM: &str = "claim";

/// The outputs of one response's calls.
pub(super) struct ToolOutputStore {
    store: Arc<Store>,
    key: Key,
    /// This request, among all.
    by: String,
}

impl ToolOutputStore {
    pub(super) fn of(store: Arc<Store>, response: &Key, by: String) -> Self {
        // Nobody's name has a blank in it.
        let tenant = format!("outputs of {}", response.tenant).into();
        Self { store, key: Key { tenant, id: Arc::clone(&response.id) }, by }
    }

    /// Puts outputs in; gives all that are there. `Conflict`: one of them is there already.
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
        // Another request was quicker: what is there already stays.
        if !given.iter().all(|(at, _)| ours(*at)) {
            return Err(Error::Conflict);
        }
        let output = |item: &Item| Some((item.id.parse().ok()?, outputs_of(&item.body)?));
        Ok(there.iter().filter_map(output).collect())
    }

    /// All outputs have been handed in elsewhere, for these calls: none is taken any more.
    pub(super) async fn close(&self, calls: &[usize], now: u64) -> Result<(), Error> {
        let ids = calls.iter().map(usize::to_string).chain([CLAIM.to_owned()]);
        let items = ids.map(|id| self.item(&id, "null")).collect();
        self.store.create_conversation(self.key.clone(), "{}".into(), items, now).await
    }

    /// Whether this request is the one that goes on.
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
        Item::new(id, &format!("{{\"by\":\"{}\",\"output\":{output}}}", self.by))
    }

    fn is_ours(&self, item: &Item) -> bool {
        json::member(&item.body, "by").is_some_and(|by| by == self.by)
    }
}

/// Forgets what was handed in for a response that is gone.
pub(super) async fn forget(store: &Arc<Store>, response: &Key, now: u64) {
    let output_store = ToolOutputStore::of(Arc::clone(store), response, String::new());
    // There mostly is none; what stays goes in its time.
    let _ = output_store.store.delete_conversation(output_store.key, now).await;
}

/// The output in an item, as JSON.
fn outputs_of(item: &str) -> Option<String> {
    let output = json::raw_member(item, "output")?.get();
    (output != "null").then(|| output.to_owned())
}

/// Outputs that one request has put in to go on with. Dropped, it takes them out again.
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

    /// Something has come of them.
    pub(super) fn stay(mut self) {
        self.ids.clear();
    }

    /// Nothing has: they may be handed in again.
    pub(super) async fn take_back(mut self) {
        let ids = std::mem::take(&mut self.ids);
        self.output_store.remove(&ids, self.now).await;
    }
}

impl Drop for SubmittedOutputs {
    fn drop(&mut self) {
        let ids = std::mem::take(&mut self.ids);
        // At the end of the process there is nobody to do it, and nobody to hand anything in.
        let Some(runtime) = Handle::try_current().ok().filter(|_| !ids.is_empty()) else { return };
        let (output_store, now) = (Arc::clone(&self.output_store), self.now);
        runtime.spawn(async move { output_store.remove(&ids, now).await });
    }
}
