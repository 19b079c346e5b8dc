//! Tool outputs posted for the calls of a response. They are kept in the store as the items of a conversation,
//! under a tenant name that no client can have.

use crate::json;
use crate::request::responses::outputs::Output;
use crate::store::{Item, Key, PageRequest, Store, StoreError};
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
        Self {
            store,
            key: Key {
                tenant,
                id: Arc::clone(&response.id),
            },
            writer_id: by,
        }
    }

    /// Makes sure that there is a list of outputs. Fails with `Conflict` if one of these calls has an output already.
    async fn begin(&self, given: &[(usize, &Output)], now: u64) -> Result<(), StoreError> {
        match self
            .store
            .create_conversation(self.key.clone(), "{}".into(), Vec::new(), now)
            .await
        {
            Ok(()) | Err(StoreError::Conflict) => {}
            Err(error) => return Err(error),
        }
        let there = self.all(now).await?;
        let is_there = |at: usize| there.iter().any(|item| *item.id == *at.to_string());
        if given.iter().any(|(at, _)| is_there(*at)) {
            Err(StoreError::Conflict)
        } else {
            Ok(())
        }
    }

    /// Stores outputs and returns all that are stored, by the index of their call. Fails with `Conflict` if a concurrent
    /// request has stored one for the same call: its outputs stay.
    async fn add(
        &self,
        given: &[(usize, &Output)],
        now: u64,
    ) -> Result<HashMap<usize, String>, StoreError> {
        let items = given
            .iter()
            .map(|(at, output)| self.item(&at.to_string(), &output.output))
            .collect();
        self.store.add_items(self.key.clone(), items, now).await?;
        let there = self.all(now).await?;
        let ours = |at: usize| {
            there
                .iter()
                .any(|item| *item.id == *at.to_string() && self.is_ours(item))
        };
        if !given.iter().all(|(at, _)| ours(*at)) {
            return Err(StoreError::Conflict);
        }
        let output = |item: &Item| Some((item.id.parse().ok()?, outputs_of(&item.body)?));
        Ok(there.iter().filter_map(output).collect())
    }

    /// Closes the calls whose outputs came by the held stream, so that the store accepts no further outputs for
    /// them. Fails if the store fails.
    pub(super) async fn close(&self, calls: &[usize], now: u64) -> Result<(), StoreError> {
        let ids = calls.iter().map(usize::to_string).chain([CLAIM.to_owned()]);
        let items = ids.map(|id| self.item(&id, "null")).collect();
        self.store
            .create_conversation(self.key.clone(), "{}".into(), items, now)
            .await
    }

    /// Returns true if this request is the one that continues the response; of several concurrent ones exactly one
    /// is.
    pub(super) async fn claim(&self, now: u64) -> Result<bool, StoreError> {
        self.store
            .add_items(self.key.clone(), vec![self.item(CLAIM, "null")], now)
            .await?;
        let claim = self
            .store
            .conversation_item(self.key.clone(), CLAIM.into(), now)
            .await?;
        Ok(self.is_ours(&claim))
    }

    async fn remove(&self, ids: &[String], now: u64) {
        for id in ids {
            let item = self
                .store
                .conversation_item(self.key.clone(), id.as_str().into(), now)
                .await;
            if !item.is_ok_and(|item| self.is_ours(&item)) {
                continue;
            }
            if let Err(error) = self
                .store
                .delete_item(self.key.clone(), id.as_str().into(), now)
                .await
            {
                tracing::warn!(%error, "outputs of tools could not be given back");
            }
        }
    }

    async fn all(&self, now: u64) -> Result<Vec<Item>, StoreError> {
        let mut all: Vec<Item> = Vec::new();
        loop {
            let after = all.last().map(|item| Arc::clone(&item.id));
            let range = PageRequest {
                after,
                limit: 100,
                descending: false,
            };
            let page = self
                .store
                .conversation_items(self.key.clone(), range, now)
                .await?;
            all.extend(page.items);
            if !page.more {
                return Ok(all);
            }
        }
    }

    fn item(&self, id: &str, output: &str) -> Item {
        Item::new(
            id,
            &format!("{{\"by\":\"{}\",\"output\":{output}}}", self.writer_id),
        )
    }

    fn is_ours(&self, item: &Item) -> bool {
        json::member(&item.body, "by").is_some_and(|by| by == *self.writer_id)
    }
}

/// Removes the outputs posted for a deleted response. Errors are ignored, since the entries expire anyway.
pub(super) async fn forget(store: &Arc<Store>, response: &Key, now: u64) {
    let output_store = ToolOutputStore::of(Arc::clone(store), response, "".into());
    // Usually there are none; leftovers expire.
    let _ = output_store
        .store
        .delete_conversation(output_store.key, now)
        .await;
}

/// Returns the output in a stored item as JSON; `None` if the call is merely closed.
fn outputs_of(item: &str) -> Option<String> {
    let output = json::raw_member(item, "output")?.get();
    (output != "null").then(|| output.to_owned())
}

/// Outputs that one request has stored. Dropping the value removes them again, so that the client can post them once
/// more, unless [`Self::keep`] was called.
pub(super) struct SubmittedOutputs {
    pub(super) output_store: Arc<ToolOutputStore>,
    ids: Vec<String>,
    now: u64,
}

impl SubmittedOutputs {
    /// Stores outputs. Returns them, and all outputs that the response has by now, by the index of their call. Fails with
    /// `Conflict` if a call has an output already; nothing of this request is stored then.
    pub(super) async fn store(
        output_store: ToolOutputStore,
        given: &[(usize, &Output)],
        now: u64,
    ) -> Result<(Self, HashMap<usize, String>), StoreError> {
        output_store.begin(given, now).await?;
        // From here on, a client that leaves has stored nothing.
        let submitted = Self::of(output_store, given, now);
        match submitted.output_store.add(given, now).await {
            Ok(stored) => Ok((submitted, stored)),
            Err(error) => {
                submitted.take_back().await;
                Err(error)
            }
        }
    }

    fn of(output_store: ToolOutputStore, given: &[(usize, &Output)], now: u64) -> Self {
        let ids = given
            .iter()
            .map(|(at, _)| at.to_string())
            .chain([CLAIM.to_owned()])
            .collect();
        Self {
            output_store: Arc::new(output_store),
            ids,
            now,
        }
    }

    /// Keeps the outputs in the store: further ones are pending, or the response has been continued.
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
        let Some(runtime) = Handle::try_current().ok().filter(|_| !ids.is_empty()) else {
            return;
        };
        let (output_store, now) = (Arc::clone(&self.output_store), self.now);
        runtime.spawn(async move { output_store.remove(&ids, now).await });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{StoreCaps, StoreLocation};

    /// Checks that of two requests with an output for the same call, the later one leaves nothing.
    #[tokio::test]
    async fn a_request_that_comes_second_stores_none_of_its_outputs() {
        let store = Store::open(&StoreLocation::Memory, StoreCaps::MEMORY)
            .await
            .unwrap()
            .unwrap();
        let (store, key) = (Arc::new(store), Key::new("tenant", "resp_1"));
        let by = |id: &str| ToolOutputStore::of(Arc::clone(&store), &key, id.into());
        let output = Output {
            call_id: "call".into(),
            param: String::new(),
            output: "\"a\"".into(),
        };
        let given = [(0, &output), (1, &output)];
        let late = by("late");
        late.begin(&given, 1).await.unwrap();
        let (quick, stored) = SubmittedOutputs::store(by("quick"), &given[..1], 1)
            .await
            .unwrap();
        assert_eq!(stored.len(), 1);
        quick.keep();
        let late = SubmittedOutputs::of(late, &given, 1);
        assert_eq!(
            late.output_store.add(&given, 1).await,
            Err(StoreError::Conflict)
        );
        late.take_back().await;
        let (_, stored) = SubmittedOutputs::store(by("third"), &given[1..], 1)
            .await
            .unwrap();
        assert_eq!(
            stored.len(),
            2,
            "the output of the quick request is still there"
        );
    }
}
