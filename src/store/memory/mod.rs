//! Memory backend: the records are lost when the process ends.
//!
//! Takes: operations, one after the other, under the caller's lock. Remembers: all records, by key, by age, by
//! item.

mod batches;
mod conversations;
mod row;

use super::counters::{Count, Counter};
use super::record::{
    CLOSING, FinalState, Item, Json, Key, Kind, LINKS, Millis, NewResponse, Owned, Page,
    PageRequest, Side, State, StoreCaps, StoreError, Stored, StoredEvents, StoredReplay,
    StoredResponse, Totals, weight_of_events, weight_of_items,
};
use batches::BatchTables;
use row::{Entry, MemoryRow, entries};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Tables of the records, with indexes for each kind of lookup.
pub(super) struct Memory {
    caps: StoreCaps,
    rows: BTreeMap<Key, MemoryRow>,
    running: BTreeSet<Key>,
    /// Records that may be evicted, oldest first.
    ended: BTreeSet<(Millis, Key)>,
    ids: BTreeSet<Entry>,
    bytes: u64,
    /// Evicted records, kept while a failure may still undo the eviction.
    undo: Option<Vec<MemoryRow>>,
    /// End of the window and total of each counter, by writer.
    counters: BTreeMap<(Counter, Arc<str>), (Millis, u64)>,
    /// Key that seals text, in the caller's form.
    seal_key: Option<Arc<str>>,
    batches: BatchTables,
}

impl Memory {
    pub(super) fn new(caps: StoreCaps) -> Self {
        Self {
            caps,
            rows: BTreeMap::new(),
            running: BTreeSet::new(),
            ended: BTreeSet::new(),
            ids: BTreeSet::new(),
            bytes: 0,
            undo: None,
            counters: BTreeMap::new(),
            seal_key: None,
            batches: BatchTables::default(),
        }
    }

    fn row(&self, key: &Key, kind: Kind, now: Millis) -> Stored<&MemoryRow> {
        self.rows
            .get(key)
            .filter(|row| row.kind == kind && row.is_alive(now))
            .ok_or(StoreError::NotFound)
    }

    /// Returns a running response for its owner. Fails with `Fenced` if the term is another one.
    fn owned(&self, key: &Key, term: u64, now: Millis) -> Stored<&MemoryRow> {
        let row = self.row(key, Kind::Response, now)?;
        if row.record.term == term {
            Ok(row)
        } else {
            Err(StoreError::Fenced)
        }
    }

    /// Changes a row except for its items, and updates the indexes.
    fn change(&mut self, key: &Key, change: impl FnOnce(&mut MemoryRow)) {
        let Some(mut row) = self.remove(key) else {
            return;
        };
        change(&mut row);
        self.add(row);
    }

    /// Changes a row including its items, and updates the indexes.
    fn change_items(&mut self, key: &Key, change: impl FnOnce(&mut MemoryRow)) {
        let Some(mut row) = self.remove_with_items(key) else {
            return;
        };
        change(&mut row);
        self.put(row);
    }

    fn put(&mut self, row: MemoryRow) {
        self.ids.extend(entries(&row));
        self.add(row);
    }

    fn add(&mut self, row: MemoryRow) {
        let key = row.record.key.clone();
        if row.record.state.is_terminal() {
            self.ended.insert((row.touched, key.clone()));
        } else {
            self.running.insert(key.clone());
        }
        self.bytes += row.record.bytes;
        self.rows.insert(key, row);
    }

    fn remove_with_items(&mut self, key: &Key) -> Option<MemoryRow> {
        let row = self.remove(key)?;
        for entry in entries(&row) {
            self.ids.remove(&entry);
        }
        Some(row)
    }

    fn remove(&mut self, key: &Key) -> Option<MemoryRow> {
        let row = self.rows.remove(key)?;
        self.running.remove(key);
        self.ended.remove(&(row.touched, key.clone()));
        self.bytes -= row.record.bytes;
        Some(row)
    }

    /// Evicts old records until `key` may have this weight. Changes nothing if that is impossible.
    fn make_room(&mut self, key: &Key, weight: u64, closing: bool) -> Stored {
        let before = self.rows.get(key).map_or(0, |row| row.record.bytes);
        let closing = closing && weight <= before + CLOSING;
        if weight > self.caps.record_bytes.max(before) && !closing {
            return Err(StoreError::Full);
        }
        let mut bytes = self.bytes - before + weight;
        let mut records = self.rows.len() as u64 + u64::from(!self.rows.contains_key(key));
        let mut oldest = self.ended.iter().filter(|(_, ended)| ended != key);
        let mut victims = Vec::new();
        while bytes > self.caps.bytes || records > self.caps.records {
            let Some((_, victim)) = oldest.next() else {
                if closing {
                    break;
                }
                return Err(StoreError::Full);
            };
            bytes -= self.rows.get(victim).map_or(0, |row| row.record.bytes);
            records -= 1;
            victims.push(victim.clone());
        }
        for victim in &victims {
            let row = self.remove_with_items(victim);
            if let Some(undo) = &mut self.undo {
                undo.extend(row);
            }
        }
        Ok(())
    }

    fn insert(&mut self, row: MemoryRow) -> Stored {
        let key = row.record.key.clone();
        if self.rows.contains_key(&key) {
            return Err(StoreError::Conflict);
        }
        self.make_room(&key, row.record.bytes, false)?;
        self.put(row);
        Ok(())
    }

    pub(super) fn create(&mut self, new: &NewResponse, now: &Millis) -> Stored {
        let record = StoredResponse::first(new, &self.caps, *now);
        let sides = [
            (Side::Input, placed(&new.input, 0)),
            (Side::Output, placed(&new.output, 0)),
        ]
        .into();
        self.insert(MemoryRow {
            record,
            kind: Kind::Response,
            touched: *now,
            sides,
            events: Vec::new(),
        })
    }

    pub(super) fn start(&mut self, key: &Key, term: &u64, response: &Json, now: &Millis) -> Stored {
        let record = &self.owned(key, *term, *now)?.record;
        match record.state {
            State::Queued => {}
            State::InProgress => return Ok(()),
            _ => return Err(StoreError::Conflict),
        }
        let bytes = record.bytes - record.response.len() as u64 + response.len() as u64;
        self.make_room(key, bytes, false)?;
        self.change(key, |row| {
            row.record.state = State::InProgress;
            row.record.response = response.clone();
            row.record.bytes = bytes;
            row.touched = *now;
        });
        Ok(())
    }

    pub(super) fn append_events(
        &mut self,
        key: &Key,
        term: &u64,
        events: &StoredEvents,
        now: &Millis,
    ) -> Stored {
        let record = &self.owned(key, *term, *now)?.record;
        if record.state.is_terminal() {
            return Err(StoreError::Conflict);
        }
        let fresh = events.fresh(record.events)?;
        let bytes = record.bytes + weight_of_events(fresh);
        self.make_room(key, bytes, false)?;
        let lease = now.saturating_add(self.caps.lease);
        self.change(key, |row| {
            row.record.lease = lease;
            row.events.extend_from_slice(fresh);
            row.record.events = row.events.len() as u64;
            row.record.bytes = bytes;
        });
        Ok(())
    }

    pub(super) fn finish(
        &mut self,
        key: &Key,
        term: &u64,
        finish: &FinalState,
        now: &Millis,
    ) -> Stored {
        let record = &self.owned(key, *term, *now)?.record;
        if record.state.is_terminal() {
            let same = record.state == finish.state && record.response == finish.response;
            return if same {
                Ok(())
            } else {
                Err(StoreError::Conflict)
            };
        }
        let fresh = finish.events.fresh(record.events)?;
        let bytes = record.bytes - record.response.len() as u64
            + finish.response.len() as u64
            + weight_of_items(&finish.output)
            + weight_of_events(fresh);
        self.make_room(key, bytes, true)?;
        let expires = now.saturating_add(self.caps.ttl);
        self.change_items(key, |row| {
            row.events.extend_from_slice(fresh);
            row.sides.insert(Side::Output, placed(&finish.output, 0));
            row.touched = *now;
            let record = &mut row.record;
            record.state = finish.state;
            record.response = finish.response.clone();
            record.expires = expires;
            record.events = row.events.len() as u64;
            record.bytes = bytes;
        });
        Ok(())
    }

    pub(super) fn get(&mut self, key: &Key, now: &Millis) -> Stored<StoredResponse> {
        self.row(key, Kind::Response, *now)
            .map(|row| row.record.clone())
    }

    pub(super) fn delete(&mut self, key: &Key, now: &Millis) -> Stored {
        self.row(key, Kind::Response, *now)?;
        self.remove_with_items(key);
        Ok(())
    }

    pub(super) fn input_items(
        &mut self,
        key: &Key,
        range: &PageRequest,
        now: &Millis,
    ) -> Stored<Page> {
        self.row(key, Kind::Response, *now)?
            .page(Side::Input, range)
    }

    pub(super) fn events_after(
        &mut self,
        key: &Key,
        after: &Option<u64>,
        limit: &usize,
        now: &Millis,
    ) -> Stored<StoredReplay> {
        let row = self.row(key, Kind::Response, *now)?;
        let from = after.map_or(0, |after| after.saturating_add(1));
        let start = usize::try_from(from).unwrap_or(usize::MAX);
        let bodies = row
            .events
            .iter()
            .skip(start)
            .take(*limit)
            .cloned()
            .collect();
        Ok(StoredReplay {
            events: StoredEvents { from, bodies },
            total: row.record.events,
            state: row.record.state,
        })
    }

    pub(super) fn request_cancel(&mut self, key: &Key, now: &Millis) -> Stored<State> {
        let state = self.row(key, Kind::Response, *now)?.record.state;
        if !state.is_terminal() {
            self.change(key, |row| row.record.cancel = true);
        }
        Ok(state)
    }

    fn running_of(&self, is_match: impl Fn(&StoredResponse) -> bool) -> Vec<Key> {
        let is_match = |key: &&Key| self.rows.get(*key).is_some_and(|row| is_match(&row.record));
        self.running.iter().filter(is_match).cloned().collect()
    }

    pub(super) fn running(&mut self, owner: &Arc<str>) -> Stored<Vec<Owned>> {
        let keys = self.running_of(|record| record.owner == *owner);
        let records = keys
            .into_iter()
            .filter_map(|key| Some(&self.rows.get(&key)?.record));
        let running = |record: &StoredResponse| Owned {
            key: record.key.clone(),
            term: record.term,
            cancel: record.cancel,
        };
        Ok(records.map(running).collect())
    }

    pub(super) fn heartbeat(&mut self, owner: &Arc<str>, now: &Millis) -> Stored<u64> {
        let keys = self.running_of(|record| record.owner == *owner);
        let lease = now.saturating_add(self.caps.lease);
        for key in &keys {
            self.change(key, |row| row.record.lease = lease);
        }
        Ok(keys.len() as u64)
    }

    pub(super) fn orphans(
        &mut self,
        owner: &Arc<str>,
        limit: &usize,
        now: &Millis,
    ) -> Stored<Vec<StoredResponse>> {
        let mut keys: Vec<(Millis, Key)> = self
            .running_of(|record| record.lease <= *now)
            .into_iter()
            .map(|key| (self.rows.get(&key).map_or(0, |row| row.record.lease), key))
            .collect();
        keys.sort();
        let keys = keys.into_iter().take(*limit);
        let lease = now.saturating_add(self.caps.lease);
        let mut claimed: Vec<_> = keys
            .filter_map(|(_, key)| self.hand_over(&key, owner, lease))
            .collect();
        claimed.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(claimed)
    }

    fn hand_over(&mut self, key: &Key, owner: &Arc<str>, lease: Millis) -> Option<StoredResponse> {
        self.change(key, |row| {
            row.record.owner = owner.clone();
            row.record.term += 1;
            row.record.lease = lease;
        });
        self.rows.get(key).map(|row| row.record.clone())
    }

    pub(super) fn take_over(
        &mut self,
        key: &Key,
        term: &u64,
        owner: &Arc<str>,
        now: &Millis,
    ) -> Stored<StoredResponse> {
        if self.owned(key, *term, *now)?.record.state.is_terminal() {
            return Err(StoreError::Conflict);
        }
        self.hand_over(key, owner, now.saturating_add(self.caps.lease))
            .ok_or(StoreError::NotFound)
    }

    pub(super) fn chain(&mut self, key: &Key, bytes: &u64, now: &Millis) -> Stored<Vec<Item>> {
        let mut rows = Vec::new();
        let mut next = Some(key.id.clone());
        while let Some(id) = next {
            let row = self.row(
                &Key {
                    tenant: key.tenant.clone(),
                    id,
                },
                Kind::Response,
                *now,
            )?;
            if !row.record.state.is_terminal() {
                return Err(StoreError::Conflict);
            }
            if rows.len() == LINKS {
                return Err(StoreError::Full);
            }
            let of = row.record.conversation.clone().map(|id| Key {
                tenant: key.tenant.clone(),
                id,
            });
            if of.is_some_and(|of| self.row(&of, Kind::Conversation, *now).is_ok()) {
                return Err(StoreError::InConversation);
            }
            next = row.record.previous.clone();
            rows.push(row);
        }
        let rows = rows.into_iter().rev();
        let items = rows.flat_map(|row| row.items(Side::Input).chain(row.items(Side::Output)));
        let items: Vec<Item> = items.cloned().collect();
        let weight: u64 = items.iter().map(|item| item.body.len() as u64).sum();
        if weight > *bytes {
            Err(StoreError::Full)
        } else {
            Ok(items)
        }
    }

    pub(super) fn refresh(&mut self, key: &Key, now: &Millis) -> Stored {
        let ttl = self.caps.ttl;
        let mut next = Some(key.id.clone());
        for _ in 0..LINKS {
            let Some(id) = next else { break };
            let key = Key {
                tenant: key.tenant.clone(),
                id,
            };
            let Ok(row) = self.row(&key, Kind::Response, *now) else {
                break;
            };
            next = row.record.previous.clone();
            if row.record.state.is_terminal() && row.record.expires <= now.saturating_add(ttl / 2) {
                self.change_items(&key, |row| {
                    row.record.expires = now.saturating_add(ttl);
                    row.touched = *now;
                });
            }
        }
        Ok(())
    }

    pub(super) fn resolve(
        &mut self,
        tenant: &Arc<str>,
        ids: &[Arc<str>],
        now: &Millis,
    ) -> Stored<Vec<Option<Item>>> {
        let find = |id: &Arc<str>| {
            let from = (tenant.clone(), id.clone(), Side::Output, Arc::from(""), 0);
            let same = self
                .ids
                .range(from..)
                .take_while(|entry| entry.0 == *tenant && entry.1 == *id);
            same.filter_map(|(_, _, side, holder, place)| {
                let row = self.rows.get(&Key {
                    tenant: tenant.clone(),
                    id: holder.clone(),
                })?;
                row.is_alive(*now)
                    .then_some(row.sides.get(side)?.get(place)?.clone())
            })
            .next()
        };
        Ok(ids.iter().map(find).collect())
    }

    pub(super) fn sweep(&mut self, now: &Millis) -> Stored<u64> {
        let keys = self.ended.iter().map(|(_, key)| key);
        let expired = keys.filter(|key| self.rows.get(*key).is_some_and(|row| !row.is_alive(*now)));
        let expired: Vec<Key> = expired.take(1_000).cloned().collect();
        for key in &expired {
            self.remove_with_items(key);
        }
        let counters = self.counters.len();
        self.counters.retain(|_, (ends, _)| *ends > *now);
        Ok((expired.len() + counters - self.counters.len()) as u64)
    }

    pub(super) fn totals(&mut self) -> Stored<Totals> {
        Ok(Totals {
            records: self.rows.len() as u64,
            bytes: self.bytes,
        })
    }

    pub(super) fn has_room(&mut self, bytes: &u64) -> Stored {
        let running = self.running.iter().filter_map(|key| self.rows.get(key));
        let (records, weight) = running.fold((0, 0), |(records, weight), row| {
            (records + 1, weight + row.record.bytes)
        });
        self.caps.check_fits(
            Totals {
                records,
                bytes: weight,
            },
            *bytes,
        )
    }
}

/// Returns items with their places, starting at `from`.
fn placed(items: &[Item], from: u64) -> BTreeMap<u64, Item> {
    (from..).zip(items.iter().cloned()).collect()
}

/// Operations on counters.
impl Memory {
    pub(super) fn seal_key(&mut self, key: &Arc<str>) -> Stored<Arc<str>> {
        Ok(Arc::clone(
            self.seal_key.get_or_insert_with(|| Arc::clone(key)),
        ))
    }

    pub(super) fn put_counts(&mut self, writer: &Arc<str>, counts: &[Count]) -> Stored {
        for Count {
            counter,
            ends,
            amount,
        } in counts
        {
            let row = self
                .counters
                .entry((counter.clone(), Arc::clone(writer)))
                .or_insert((*ends, 0));
            row.1 = row.1.max(*amount);
        }
        Ok(())
    }

    pub(super) fn counts_of_others(
        &mut self,
        names: &[Arc<str>],
        besides: &Arc<str>,
        now: &Millis,
    ) -> Stored<Vec<Count>> {
        let mut found: Vec<Count> = Vec::new();
        for name in names {
            let first = Counter {
                name: Arc::clone(name),
                kind: 0,
                begins: 0,
            };
            let rows = self.counters.range((first, Arc::from(""))..);
            for ((counter, writer), (ends, amount)) in
                rows.take_while(|((counter, _), _)| counter.name == *name)
            {
                if writer == besides || ends <= now {
                    continue;
                }
                match found.last_mut().filter(|last| last.counter == *counter) {
                    Some(last) => last.amount = last.amount.saturating_add(*amount),
                    None => found.push(Count {
                        counter: counter.clone(),
                        ends: *ends,
                        amount: *amount,
                    }),
                }
            }
        }
        Ok(found)
    }
}
