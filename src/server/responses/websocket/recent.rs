//! Memory of a connection: its last responses with the conversations before them, so that a request can continue a
//! response that is not in the store (wire-format 4.12).

use crate::store::{Item, LINKS};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Number of responses that a connection remembers.
const MOST: usize = 16;
/// Limit for the size of the remembered conversations in bytes; items shared by several are counted once.
const BYTES: usize = 64 << 20;
/// Overhead of an item beyond its id and text, in bytes.
const ITEM: usize = 128;

/// Items that one response added to a conversation: its input and its output.
#[derive(Debug)]
struct ThreadPart {
    items: Vec<Item>,
    bytes: usize,
}

/// A conversation up to one response. Conversations with a common beginning share its turns.
#[derive(Clone, Debug, Default)]
pub(super) struct ConversationThread {
    turns: Vec<Arc<ThreadPart>>,
    /// True if the last response is in the store.
    pub(super) stored: bool,
}

impl ConversationThread {
    /// Returns all items, oldest first.
    pub(super) fn items(&self) -> Vec<Item> {
        self.turns
            .iter()
            .flat_map(|turn| turn.items.iter().cloned())
            .collect()
    }

    /// Returns the conversation with one more turn; `stored` tells if that turn's response is in the store.
    pub(super) fn with(mut self, items: Vec<Item>, stored: bool) -> Self {
        self.stored = stored;
        if items.is_empty() {
            return self;
        }
        let bytes = items
            .iter()
            .map(|item| item.id.len() + item.body.len() + ITEM)
            .sum();
        if self.turns.len() >= LINKS {
            // The store follows no longer chains either. Joining all turns into one costs a single copy.
            let items = self.items();
            let bytes = self.turns.iter().map(|turn| turn.bytes).sum();
            self.turns = vec![Arc::new(ThreadPart { items, bytes })];
        }
        self.turns.push(Arc::new(ThreadPart { items, bytes }));
        self
    }
}

/// Last responses of a connection, oldest first, limited in number and bytes.
#[derive(Debug, Default)]
pub(super) struct RecentResponses(VecDeque<(String, ConversationThread)>);

impl RecentResponses {
    /// Returns the conversation up to and including this response, if it is remembered.
    pub(super) fn thread(&self, id: &str) -> Option<ConversationThread> {
        self.0
            .iter()
            .find(|(known, _)| known == id)
            .map(|(_, thread)| thread.clone())
    }

    /// Remembers a response; the oldest are dropped to keep the limits.
    pub(super) fn keep(&mut self, id: String, thread: ConversationThread) {
        self.forget(&id);
        self.0.push_back((id, thread));
        while self.0.len() > MOST || self.bytes() > BYTES {
            self.0.pop_front();
        }
    }

    /// Forgets a response; responses that continue it are kept.
    pub(super) fn forget(&mut self, id: &str) {
        self.0.retain(|(known, _)| known != id);
    }

    fn bytes(&self) -> usize {
        let mut seen = HashSet::new();
        let turns = self.0.iter().flat_map(|(_, thread)| &thread.turns);
        turns
            .filter(|turn| seen.insert(Arc::as_ptr(turn)))
            .map(|turn| turn.bytes)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(id: &str, bytes: usize) -> Vec<Item> {
        vec![Item::new(id, &"x".repeat(bytes))]
    }

    fn known(memory: &RecentResponses) -> Vec<&str> {
        memory.0.iter().map(|(id, _)| id.as_str()).collect()
    }

    #[test]
    fn the_last_sixteen_stay_with_all_that_went_before() {
        let mut memory = RecentResponses::default();
        let mut thread = ConversationThread::default();
        for n in 0..20 {
            thread = thread.with(turn(&format!("item{n}"), 10), false);
            memory.keep(format!("resp{n}"), thread.clone());
        }
        assert_eq!(known(&memory).len(), MOST);
        assert!(memory.thread("resp3").is_none());
        let ids: Vec<_> = memory
            .thread("resp19")
            .unwrap()
            .items()
            .iter()
            .map(|item| item.id.clone())
            .collect();
        assert_eq!(ids.len(), 20);
        assert_eq!([&*ids[0], &*ids[19]], ["item0", "item19"]);
        memory.forget("resp18");
        assert!(memory.thread("resp18").is_none() && memory.thread("resp19").is_some());
    }

    #[test]
    fn what_is_shared_counts_once_and_the_rest_is_bounded() {
        let mut memory = RecentResponses::default();
        let long = ConversationThread::default().with(turn("a", 40 << 20), false);
        memory.keep("long".to_owned(), long.clone());
        for n in 0..5 {
            memory.keep(
                format!("on{n}"),
                long.clone().with(turn("b", 1 << 20), false),
            );
        }
        assert_eq!(known(&memory), ["long", "on0", "on1", "on2", "on3", "on4"]);
        memory.keep(
            "other".to_owned(),
            ConversationThread::default().with(turn("c", 30 << 20), false),
        );
        assert_eq!(known(&memory), ["other"]);
        memory.keep(
            "huge".to_owned(),
            ConversationThread::default().with(turn("d", BYTES), false),
        );
        assert!(known(&memory).is_empty());
    }

    #[test]
    fn many_turns_become_one() {
        let mut thread = ConversationThread::default();
        for n in 0..=2 * LINKS {
            thread = thread.with(turn(&format!("item{n}"), 1), false);
        }
        assert!(thread.turns.len() <= LINKS);
        let items = thread.items();
        assert_eq!(
            (items.len(), &*items[2 * LINKS].id),
            (2 * LINKS + 1, &*format!("item{}", 2 * LINKS))
        );
    }
}
