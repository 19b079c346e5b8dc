//! Record in memory: a response or a conversation with its items and events, and the index entries of its items.

use crate::store::record::{
    Item, Json, Key, Kind, Millis, Page, PageRequest, Side, StoreError, Stored, StoredResponse,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Record with its items and events.
#[derive(Clone)]
pub(super) struct MemoryRow {
    pub(super) record: StoredResponse,
    pub(super) kind: Kind,
    /// Time of the last change: the oldest record is evicted first.
    pub(super) touched: Millis,
    pub(super) sides: BTreeMap<Side, BTreeMap<u64, Item>>,
    pub(super) events: Vec<Json>,
}

impl MemoryRow {
    pub(super) fn is_alive(&self, now: Millis) -> bool {
        !self.record.state.is_terminal() || self.record.expires > now
    }

    pub(super) fn side(&self, side: Side) -> impl DoubleEndedIterator<Item = (u64, &Item)> {
        self.sides
            .get(&side)
            .into_iter()
            .flatten()
            .map(|(place, item)| (*place, item))
    }

    pub(super) fn items(&self, side: Side) -> impl Iterator<Item = &Item> {
        self.side(side).map(|(_, item)| item)
    }

    pub(super) fn page(&self, side: Side, range: &PageRequest) -> Stored<Page> {
        let mut all: Vec<&Item> = self.items(side).collect();
        if range.descending {
            all.reverse();
        }
        let start = match &range.after {
            // If two items share an id, the last one counts; otherwise the pages would start over.
            Some(id) => {
                all.iter()
                    .rposition(|item| item.id == *id)
                    .ok_or(StoreError::NoCursor)?
                    + 1
            }
            None => 0,
        };
        let rest = all.get(start..).unwrap_or_default();
        let items: Vec<Item> = rest
            .iter()
            .take(range.bounded())
            .map(|item| (*item).clone())
            .collect();
        Ok(Page {
            more: rest.len() > items.len(),
            items,
        })
    }
}

/// Location of an item: tenant, item id, side, record id, place.
pub(super) type Entry = (Arc<str>, Arc<str>, Side, Arc<str>, u64);

pub(super) fn entries(row: &MemoryRow) -> Vec<Entry> {
    let Key { tenant, id } = &row.record.key;
    let sides = row
        .sides
        .iter()
        .flat_map(|(side, items)| items.iter().map(|(place, item)| (*side, *place, item)));
    sides
        .map(|(side, place, item)| (tenant.clone(), item.id.clone(), side, id.clone(), place))
        .collect()
}
