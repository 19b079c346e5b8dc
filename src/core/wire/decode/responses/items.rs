//! Items of the engine's answer: assigns events to items, and records how much of each has been emitted.
//!
//! Neither `item_id` nor `output_index` can be trusted: SGLang gives all items of an answer one id and counts
//! `done` one further than `added`; vLLM leaves out ids and numbers anew at the end (engines D). An event
//! therefore belongs to the open item of its type that has its id, or else to the open item of its type.

use super::body::ItemBody;
use crate::wire::decode::members::string;

/// Kind of an item, which decides on the events that can belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    Message,
    Reasoning,
    Function,
    Custom,
    /// Item of a type that is not modelled; the text is its type.
    Foreign(Box<str>),
}

impl ItemKind {
    /// Returns the kind by the item's type. vLLM reports a call of a client function as one of an MCP server if
    /// gpt-oss makes the call in its analysis (fixtures/vllm/responses-gptoss-tool-on-analysis).
    pub(super) fn of(body: &ItemBody<'_>) -> Option<Self> {
        Some(match string(body.kind).as_deref() {
            Some("message") => Self::Message,
            Some("reasoning") => Self::Reasoning,
            Some("function_call") => Self::Function,
            Some("mcp_call") if string(body.server_label).as_deref() == Some("functions") => {
                Self::Function
            }
            Some("custom_tool_call") => Self::Custom,
            Some(other) => Self::Foreign(other.into()),
            None => return body.role.map(|_| Self::Message),
        })
    }

    pub(super) fn is_call(&self) -> bool {
        matches!(self, Self::Function | Self::Custom)
    }
}

/// Length and hash of the text emitted so far. They suffice to find the new part of a longer text, so the text
/// itself is not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EmittedText {
    length: usize,
    hash: u64,
}

impl EmittedText {
    /// Adds text, hashed with FNV-1a. Collisions are no risk: the text is the engine's own.
    pub(super) fn add(&mut self, spelled: &[u8]) {
        self.length += spelled.len();
        for byte in spelled {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self.length == 0
    }

    /// Returns the part of `whole` that has not been emitted; `None` if `whole` begins differently.
    pub(super) fn rest(self, whole: &str) -> Option<&str> {
        let (said, rest) = whole.split_at_checked(self.length)?;
        let mut seen = Self::default();
        seen.add(said.as_bytes());
        (seen == self).then_some(rest)
    }
}

/// Progress of one kind of text in an item.
#[derive(Debug, Default)]
pub(super) struct TextProgress {
    /// Text of all parts.
    pub(super) total: EmittedText,
    /// Text of the current part.
    pub(super) part: EmittedText,
    /// Name of the events that carry this text. Events of another name repeat it and are ignored (codex-legacy).
    pub(super) name: Option<&'static str>,
}

/// Item of the engine's answer, with the progress of its texts.
#[derive(Debug)]
pub(super) struct AnswerItem {
    pub(super) kind: ItemKind,
    id: Option<Box<str>>,
    pub(super) call_id: Option<Box<str>>,
    pub(super) name: Option<Box<str>>,
    /// Number of a call or foreign item among them, from 0. Unused for messages and reasoning.
    pub(super) slot: u32,
    /// True until the engine marks the item as complete.
    pub(super) open: bool,
    /// True if any of the item has been emitted.
    pub(super) emitted: bool,
    /// Content, arguments or input.
    pub(super) text: TextProgress,
    pub(super) summary: TextProgress,
    pub(super) refusal: TextProgress,
    pub(super) annotations: usize,
    pub(super) sealed: bool,
    /// True once an item of the terminal object has been matched with it.
    matched: bool,
}

impl AnswerItem {
    pub(super) fn new(kind: ItemKind, id: Option<&str>, slot: u32) -> Self {
        Self {
            kind,
            id: id.map(Into::into),
            call_id: None,
            name: None,
            slot,
            open: true,
            emitted: false,
            text: TextProgress::default(),
            summary: TextProgress::default(),
            refusal: TextProgress::default(),
            annotations: 0,
            sealed: false,
            matched: false,
        }
    }
}

/// Items of one answer, in the order in which they were first seen.
#[derive(Debug, Default)]
pub(super) struct AnswerItems(pub(super) Vec<AnswerItem>);

impl AnswerItems {
    /// Finds the item of this kind that an event belongs to: the open one with this id, or else the latest open
    /// one.
    pub(super) fn open(&self, kind: &ItemKind, id: Option<&str>) -> Option<usize> {
        let mut fallback = None;
        for (at, item) in self.0.iter().enumerate().rev() {
            if !item.open || item.kind != *kind {
                continue;
            }
            if item.id.as_deref() == id {
                return Some(at);
            }
            fallback = fallback.or(Some(at));
        }
        fallback
    }

    /// Finds the open foreign item that an event belongs to. `family`: the event's name up to the first dot.
    pub(super) fn foreign(&self, family: &str, id: Option<&str>) -> Option<usize> {
        let matches = |item: &AnswerItem| match &item.kind {
            ItemKind::Foreign(kind) => {
                item.open
                    && family.starts_with(&**kind)
                    && id.is_none_or(|id| item.id.as_deref() == Some(id))
            }
            _ => false,
        };
        self.0.iter().rposition(matches)
    }

    /// Returns the kind of the latest item with this id.
    pub(super) fn kind_of(&self, id: Option<&str>) -> Option<&ItemKind> {
        let id = id?;
        self.0
            .iter()
            .rev()
            .find(|item| item.id.as_deref() == Some(id))
            .map(|item| &item.kind)
    }

    /// Finds the call with this call id. If several have it, prefers that of the item with `id`.
    pub(super) fn call(&self, id: Option<&str>, call_id: Option<&str>) -> Option<usize> {
        let call_id = call_id?;
        let has =
            |item: &AnswerItem| item.kind.is_call() && item.call_id.as_deref() == Some(call_id);
        let own = self
            .0
            .iter()
            .rposition(|item| has(item) && item.id.as_deref() == id);
        own.or_else(|| self.0.iter().rposition(has))
    }

    /// Finds the item that `output_item.added` announces, if it is already known.
    pub(super) fn find_announced(
        &self,
        kind: &ItemKind,
        id: Option<&str>,
        call_id: Option<&str>,
    ) -> Option<usize> {
        // A call with its own item id is a new call.
        let is_other = |at: &usize| {
            self.0
                .get(*at)
                .is_some_and(|item| item.id.is_some() && item.id.as_deref() != id)
        };
        self.call(id, call_id)
            .filter(|at| id.is_none() || !is_other(at))
            .or_else(|| {
                let at = self.open(kind, id)?;
                let item = self.0.get(at)?;
                (item.id.as_deref() == id && !item.emitted && item.text.total.is_empty())
                    .then_some(at)
            })
    }

    /// Finds the item that `output_item.done` completes. Calls without a distinguishing id complete in the order of
    /// their beginning.
    pub(super) fn find_completed(
        &self,
        kind: &ItemKind,
        id: Option<&str>,
        call_id: Option<&str>,
    ) -> Option<usize> {
        self.call(id, call_id)
            .or_else(|| match self.open(kind, id) {
                Some(at)
                    if kind.is_call()
                        && self.0.get(at).is_none_or(|item| item.id.as_deref() != id) =>
                {
                    self.0
                        .iter()
                        .position(|item| item.open && item.kind == *kind)
                }
                at => at,
            })
    }

    /// Matches each item of a terminal object with a known item: first by kind and text, then by kind and order.
    /// Each known item matches once.
    pub(super) fn match_terminal(&mut self, listed: &[TerminalItem]) -> Vec<Option<usize>> {
        let mut found = vec![None; listed.len()];
        for exactly in [true, false] {
            for (listed, found) in listed
                .iter()
                .zip(&mut found)
                .filter(|(_, found)| found.is_none())
            {
                let is = |item: &AnswerItem| !item.matched && listed.matches(item, exactly);
                *found = self.0.iter().position(is);
                if let Some(item) = found.and_then(|at| self.0.get_mut(at)) {
                    item.matched = true;
                }
            }
        }
        found
    }
}

/// Item of a terminal object: the properties by which it is matched with a known item.
#[derive(Debug)]
pub(super) struct TerminalItem {
    pub(super) kind: ItemKind,
    pub(super) id: Option<String>,
    pub(super) call_id: Option<String>,
    pub(super) name: Option<String>,
    /// Content, arguments or input, in JSON spelling.
    pub(super) text: String,
}

impl TerminalItem {
    fn matches(&self, item: &AnswerItem, exactly: bool) -> bool {
        if item.kind != self.kind {
            return false;
        }
        let same = |own: &Option<Box<str>>, listed: &Option<String>| {
            own.is_some() && own.as_deref() == listed.as_deref()
        };
        if self.kind.is_call() {
            let named = same(&item.name, &self.name);
            return same(&item.call_id, &self.call_id)
                || named && (!exactly || item.text.total.rest(&self.text) == Some(""));
        }
        if matches!(self.kind, ItemKind::Foreign(_)) {
            return !exactly || same(&item.id, &self.id);
        }
        !exactly || (!item.text.total.is_empty() && item.text.total.rest(&self.text).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_said() {
        let mut seen = EmittedText::default();
        assert_eq!(seen.rest("ab"), Some("ab"));
        seen.add(b"a");
        seen.add("\u{e9}".as_bytes());
        assert_eq!(seen.rest("a\u{e9}b"), Some("b"));
        assert_eq!(seen.rest("a\u{e9}"), Some(""));
        for other in ["ab", "aec", "\u{e9}a", "a"] {
            assert_eq!(seen.rest(other), None, "{other}");
        }
    }

    #[test]
    fn nothing_was_said_at_first() {
        let mut seen = EmittedText::default();
        assert!(seen.is_empty());
        seen.add(b"a");
        assert!(!seen.is_empty());
    }

    /// Checks that only calls of the client's functions are calls; those of other MCP servers stay what they are.
    #[test]
    fn calls_of_mcp_servers() {
        for (label, expected) in [
            ("functions", ItemKind::Function),
            ("deepwiki", ItemKind::Foreign("mcp_call".into())),
        ] {
            let json = format!(r#"{{"type":"mcp_call","server_label":"{label}"}}"#);
            let body: ItemBody<'_> = crate::json::read(&json).unwrap();
            assert_eq!(ItemKind::of(&body), Some(expected));
        }
    }

    fn search() -> ItemKind {
        ItemKind::Foreign("web_search_call".into())
    }

    fn item(kind: ItemKind, id: Option<&str>, call_id: Option<&str>) -> AnswerItem {
        AnswerItem {
            call_id: call_id.map(Into::into),
            ..AnswerItem::new(kind, id, 0)
        }
    }

    fn several() -> AnswerItems {
        AnswerItems(vec![
            item(ItemKind::Message, Some("m"), None),
            item(search(), Some("w1"), None),
            item(search(), Some("w2"), None),
            item(ItemKind::Function, Some("f1"), Some("c")),
            item(ItemKind::Function, Some("f2"), Some("c")),
            item(ItemKind::Function, None, None),
        ])
    }

    #[test]
    fn events_find_the_open_item_of_their_type() {
        let mut items = several();
        for (kind, id, expected) in [
            (ItemKind::Message, Some("m"), Some(0)),
            (ItemKind::Message, Some("x"), Some(0)),
            (ItemKind::Function, Some("f1"), Some(3)),
            (ItemKind::Function, Some("x"), Some(5)),
            (ItemKind::Custom, Some("m"), None),
        ] {
            assert_eq!(items.open(&kind, id), expected, "{kind:?} {id:?}");
        }
        for (family, id, expected) in [
            ("web_search_call", None, Some(2)),
            ("web_search_call", Some("w1"), Some(1)),
            ("web_search_call", Some("x"), None),
            ("file_search_call", None, None),
            ("file_search_call", Some("w1"), None),
        ] {
            assert_eq!(items.foreign(family, id), expected, "{family} {id:?}");
        }
        items.0[0].open = false;
        items.0[2].open = false;
        assert_eq!(items.open(&ItemKind::Message, Some("m")), None);
        assert_eq!(items.foreign("web_search_call", None), Some(1));
        assert_eq!(items.kind_of(Some("m")), Some(&ItemKind::Message));
        assert_eq!(items.kind_of(Some("f1")), Some(&ItemKind::Function));
        assert_eq!(
            (items.kind_of(Some("x")), items.kind_of(None)),
            (None, None)
        );
    }

    #[test]
    fn calls_are_found_by_their_call_id() {
        let items = several();
        for (id, call_id, expected) in [
            (Some("f1"), Some("c"), Some(3)),
            (Some("f2"), Some("c"), Some(4)),
            (Some("x"), Some("c"), Some(4)),
            (None, Some("c"), Some(4)),
            (Some("f1"), Some("x"), None),
            (Some("f1"), None, None),
        ] {
            assert_eq!(items.call(id, call_id), expected, "{id:?} {call_id:?}");
        }
    }

    #[test]
    fn an_announced_item_may_be_known() {
        let mut items = several();
        let announced = |items: &AnswerItems, id, call_id| {
            items.find_announced(&ItemKind::Function, id, call_id)
        };
        assert_eq!(announced(&items, Some("f1"), Some("c")), Some(3));
        // With its own item id it is another call, although the call id is the same.
        assert_eq!(announced(&items, Some("f9"), Some("c")), None);
        assert_eq!(announced(&items, None, Some("c")), Some(4));
        // An item that has said nothing yet is the one that is announced.
        assert_eq!(announced(&items, None, None), Some(5));
        items.0[5].text.total.add(b"{");
        assert_eq!(announced(&items, None, None), None);
        items.0[5].text.total = EmittedText::default();
        items.0[5].emitted = true;
        assert_eq!(announced(&items, None, None), None);
    }

    #[test]
    fn calls_without_a_known_id_complete_in_order() {
        let call = |id| item(ItemKind::Function, Some(id), None);
        let message = |id| item(ItemKind::Message, Some(id), None);
        let items = AnswerItems(vec![call("f1"), call("f2"), message("m1"), message("m2")]);
        assert_eq!(
            items.find_completed(&ItemKind::Function, Some("x"), None),
            Some(0)
        );
        assert_eq!(
            items.find_completed(&ItemKind::Function, Some("f2"), None),
            Some(1)
        );
        assert_eq!(
            items.find_completed(&ItemKind::Message, Some("x"), None),
            Some(3)
        );
    }

    #[test]
    fn items_of_the_end_match_those_of_the_events() {
        let known = |kind: ItemKind, id: &str, call_id: &str, name: &str, text: &str| {
            let own = |text: &str| Some(text).filter(|text| !text.is_empty()).map(Into::into);
            let mut known = AnswerItem {
                call_id: own(call_id),
                name: own(name),
                ..AnswerItem::new(kind, Some(id), 0)
            };
            known.text.total.add(text.as_bytes());
            known
        };
        let listed = |kind: ItemKind, id: &str, call_id: &str, name: &str, text: &str| {
            let own = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            TerminalItem {
                kind,
                id: own(id),
                call_id: own(call_id),
                name: own(name),
                text: text.into(),
            }
        };
        let (function, message) = (ItemKind::Function, ItemKind::Message);
        // The last two: whether they match exactly, and whether they match by kind and order.
        for (item, at_end, exactly, at_all) in [
            (
                known(message.clone(), "a", "", "", "ab"),
                listed(function.clone(), "a", "", "", "ab"),
                false,
                false,
            ),
            (
                known(function.clone(), "a", "c", "f", "x"),
                listed(function.clone(), "b", "c", "g", "y"),
                true,
                true,
            ),
            (
                known(function.clone(), "a", "c", "f", "x"),
                listed(function.clone(), "a", "d", "f", "x"),
                true,
                true,
            ),
            (
                known(function.clone(), "a", "c", "f", "x"),
                listed(function.clone(), "a", "d", "f", "y"),
                false,
                true,
            ),
            (
                known(function.clone(), "a", "c", "f", "x"),
                listed(function.clone(), "a", "d", "g", "x"),
                false,
                false,
            ),
            (
                known(function.clone(), "a", "", "", "x"),
                listed(function, "a", "", "", "x"),
                false,
                false,
            ),
            (
                known(search(), "w", "", "", ""),
                listed(search(), "w", "", "", ""),
                true,
                true,
            ),
            (
                known(search(), "w", "", "", ""),
                listed(search(), "v", "", "", ""),
                false,
                true,
            ),
            (
                known(message.clone(), "a", "", "", "ab"),
                listed(message.clone(), "b", "", "", "abc"),
                true,
                true,
            ),
            (
                known(message.clone(), "a", "", "", "ab"),
                listed(message.clone(), "a", "", "", "xb"),
                false,
                true,
            ),
            (
                known(message.clone(), "a", "", "", ""),
                listed(message, "a", "", "", "abc"),
                false,
                true,
            ),
        ] {
            assert_eq!(
                (at_end.matches(&item, true), at_end.matches(&item, false)),
                (exactly, at_all),
                "{at_end:?}"
            );
        }
    }
}
