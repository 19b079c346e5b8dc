//! Items of the engine's answer: assigns events to items, and records how much of each has been emitted.
//!
//! Neither `item_id` nor `output_index` can be trusted: SGLang gives all items of an answer one id and counts
//! `done` one further than `added`; vLLM leaves out ids and numbers anew at the end (engines D). An event
//! therefore belongs to the open item of its type that has its id, or else to the open item of its type.

use super::body::{ItemBody, string};

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
            Some("mcp_call") if string(body.server_label).as_deref() == Some("functions") => Self::Function,
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
pub(super) struct Item {
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

impl Item {
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
pub(super) struct Items(pub(super) Vec<Item>);

impl Items {
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
        let matches = |item: &Item| match &item.kind {
            ItemKind::Foreign(kind) => {
                item.open && family.starts_with(&**kind) && id.is_none_or(|id| item.id.as_deref() == Some(id))
            }
            _ => false,
        };
        self.0.iter().rposition(matches)
    }

    /// Returns the kind of the latest item with this id.
    pub(super) fn kind_of(&self, id: Option<&str>) -> Option<&ItemKind> {
        let id = id?;
        self.0.iter().rev().find(|item| item.id.as_deref() == Some(id)).map(|item| &item.kind)
    }

    /// Finds the call with this call id. If several have it, prefers that of the item with `id`.
    pub(super) fn call(&self, id: Option<&str>, call_id: Option<&str>) -> Option<usize> {
        let call_id = call_id?;
        let has = |item: &Item| item.kind.is_call() && item.call_id.as_deref() == Some(call_id);
        let own = self.0.iter().rposition(|item| has(item) && item.id.as_deref() == id);
        own.or_else(|| self.0.iter().rposition(has))
    }

    /// Finds the item that `output_item.added` announces, if it is already known.
    pub(super) fn find_announced(
        &self,
        kind: &ItemKind,
        id: Option<&str>,
        call_id: Option<&str>,
    ) -> Option<usize> {
        // A call with an item id of its own is a new call.
        let is_other =
            |at: &usize| self.0.get(*at).is_some_and(|item| item.id.is_some() && item.id.as_deref() != id);
        self.call(id, call_id).filter(|at| id.is_none() || !is_other(at)).or_else(|| {
            let at = self.open(kind, id)?;
            let item = self.0.get(at)?;
            (item.id.as_deref() == id && !item.emitted && item.text.total.is_empty()).then_some(at)
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
        self.call(id, call_id).or_else(|| match self.open(kind, id) {
            Some(at) if kind.is_call() && self.0.get(at).is_none_or(|item| item.id.as_deref() != id) => {
                self.0.iter().position(|item| item.open && item.kind == *kind)
            }
            at => at,
        })
    }

    /// Matches each item of a terminal object with a known item: first by kind and text, then by kind and order.
    /// Each known item matches once.
    pub(super) fn match_terminal(&mut self, listed: &[TerminalItem]) -> Vec<Option<usize>> {
        let mut found = vec![None; listed.len()];
        for exactly in [true, false] {
            for (listed, found) in listed.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
                let is = |item: &Item| !item.matched && listed.matches(item, exactly);
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
    fn matches(&self, item: &Item, exactly: bool) -> bool {
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
}
