//! Operations on conversations. A conversation is a row that has always ended; its items have their own side.

use super::row::MemoryRow;
use super::{Memory, placed};
use crate::store::record::{
    Conversation, FinalState, Item, Json, Key, Kind, Millis, NewResponse, Page, PageRequest, Side,
    StoreError, Stored, StoredResponse, weight_of_items, without_known,
};
use std::sync::Arc;

impl Memory {
    pub(in crate::store) fn create_conversation(
        &mut self,
        key: &Key,
        metadata: &Json,
        items: &[Item],
        now: &Millis,
    ) -> Stored {
        let items = without_known(items, |_| false);
        let record = StoredResponse::conversation(key, metadata, &items, &self.caps, *now);
        let sides = [(Side::Conversation, placed(&items, 0))].into();
        self.insert(MemoryRow {
            record,
            kind: Kind::Conversation,
            touched: *now,
            sides,
            events: Vec::new(),
        })
    }

    pub(in crate::store) fn conversation(
        &mut self,
        key: &Key,
        now: &Millis,
    ) -> Stored<Conversation> {
        let record = &self.row(key, Kind::Conversation, *now)?.record;
        Ok(Conversation {
            key: key.clone(),
            created: record.created,
            metadata: record.response.clone(),
        })
    }

    /// Changes a conversation, and extends its life.
    fn renew(
        &mut self,
        key: &Key,
        bytes: u64,
        now: Millis,
        change: impl FnOnce(&mut MemoryRow),
    ) -> Stored {
        self.make_room(key, bytes, false)?;
        let expires = now.saturating_add(self.caps.ttl);
        self.change_items(key, |row| {
            row.record.bytes = bytes;
            row.record.expires = expires;
            row.touched = now;
            change(row);
        });
        Ok(())
    }

    pub(in crate::store) fn update_conversation(
        &mut self,
        key: &Key,
        metadata: &Json,
        now: &Millis,
    ) -> Stored {
        let record = &self.row(key, Kind::Conversation, *now)?.record;
        let bytes = record.bytes - record.response.len() as u64 + metadata.len() as u64;
        self.renew(key, bytes, *now, |row| {
            row.record.response = metadata.clone()
        })
    }

    pub(in crate::store) fn delete_conversation(&mut self, key: &Key, now: &Millis) -> Stored {
        self.row(key, Kind::Conversation, *now)?;
        self.remove_with_items(key);
        Ok(())
    }

    pub(in crate::store) fn add_items(
        &mut self,
        key: &Key,
        items: &[Item],
        now: &Millis,
    ) -> Stored {
        let row = self.row(key, Kind::Conversation, *now)?;
        let fresh = without_known(items, |id| {
            row.items(Side::Conversation).any(|item| item.id == *id)
        });
        let next = row
            .side(Side::Conversation)
            .next_back()
            .map_or(0, |(place, _)| place + 1);
        let bytes = row.record.bytes + weight_of_items(&fresh);
        self.renew(key, bytes, *now, |row| {
            row.sides
                .entry(Side::Conversation)
                .or_default()
                .extend(placed(&fresh, next));
        })
    }

    /// Appends items to a conversation and runs the operation on the response: both succeed, or neither changes
    /// anything.
    fn with_conversation(
        &mut self,
        conversation: &Arc<str>,
        key: &Key,
        items: &[Item],
        now: &Millis,
        work: impl FnOnce(&mut Self) -> Stored,
    ) -> Stored {
        let conversation = Key {
            tenant: key.tenant.clone(),
            id: conversation.clone(),
        };
        let before = [&conversation, key].map(|key| self.rows.get(key).cloned());
        self.undo = Some(Vec::new());
        // The items come first, so that room for the response is not made by evicting the conversation.
        let done = self
            .add_items(&conversation, items, now)
            .map_err(StoreError::of_conversation)
            .and_then(|()| work(self))
            .and_then(|()| {
                let there = self.row(&conversation, Kind::Conversation, *now);
                there.map(drop).map_err(StoreError::of_conversation)
            });
        let gone = self.undo.take().unwrap_or_default();
        if done.is_err() {
            for key in [&conversation, key] {
                self.remove_with_items(key);
            }
            // The rows as they were before come first: one of them may have been changed and then evicted. Both are one
            // if a response has the id of its conversation.
            for row in before.into_iter().flatten().chain(gone) {
                if !self.rows.contains_key(&row.record.key) {
                    self.put(row);
                }
            }
        }
        done
    }

    pub(in crate::store) fn create_in(
        &mut self,
        conversation: &Arc<str>,
        new: &NewResponse,
        now: &Millis,
    ) -> Stored {
        let items = [&*new.input, &*new.output].concat();
        self.with_conversation(conversation, &new.key, &items, now, |this| {
            this.create(new, now)
        })
    }

    pub(in crate::store) fn finish_in(
        &mut self,
        conversation: &Arc<str>,
        key: &Key,
        term: &u64,
        finish: &FinalState,
        now: &Millis,
    ) -> Stored {
        let row = self.owned(key, *term, *now)?;
        if row.record.state.is_terminal() {
            return self.finish(key, term, finish, now);
        }
        let items: Vec<Item> = row
            .items(Side::Input)
            .chain(&finish.output)
            .cloned()
            .collect();
        self.with_conversation(conversation, key, &items, now, |this| {
            this.finish(key, term, finish, now)
        })
    }

    pub(in crate::store) fn transcript(
        &mut self,
        key: &Key,
        bytes: &u64,
        now: &Millis,
    ) -> Stored<Vec<Item>> {
        let row = self.row(key, Kind::Conversation, *now)?;
        let weight: u64 = row
            .items(Side::Conversation)
            .map(|item| item.body.len() as u64)
            .sum();
        if weight > *bytes {
            return Err(StoreError::Full);
        }
        Ok(row.items(Side::Conversation).cloned().collect())
    }

    pub(in crate::store) fn conversation_items(
        &mut self,
        key: &Key,
        range: &PageRequest,
        now: &Millis,
    ) -> Stored<Page> {
        self.row(key, Kind::Conversation, *now)?
            .page(Side::Conversation, range)
    }

    pub(in crate::store) fn conversation_item(
        &mut self,
        key: &Key,
        id: &Arc<str>,
        now: &Millis,
    ) -> Stored<Item> {
        let row = self.row(key, Kind::Conversation, *now)?;
        row.items(Side::Conversation)
            .find(|item| item.id == *id)
            .cloned()
            .ok_or(StoreError::NotFound)
    }

    pub(in crate::store) fn delete_item(
        &mut self,
        key: &Key,
        id: &Arc<str>,
        now: &Millis,
    ) -> Stored {
        let row = self.row(key, Kind::Conversation, *now)?;
        let found = row
            .side(Side::Conversation)
            .find(|(_, item)| item.id == *id);
        let (place, item) = found.ok_or(StoreError::NotFound)?;
        let bytes = row.record.bytes - weight_of_items(std::slice::from_ref(item));
        self.renew(key, bytes, *now, |row| {
            row.sides
                .entry(Side::Conversation)
                .or_default()
                .remove(&place);
        })
    }
}
