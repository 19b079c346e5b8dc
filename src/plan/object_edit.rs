//! One object of a request as it is to be: what stays, what goes, what is said anew.
//!
//! Takes: the members and their places. Gives: edits of the whole body. Remembers: every change until all are known, so
//! that members that go together lose the right commas.

use crate::request::fields::{Edits, MemberSpan};
use std::borrow::Cow;

/// An object that is being changed.
#[derive(Debug)]
pub(super) struct ObjectEdit<'t> {
    text: &'t str,
    spans: Cow<'t, [MemberSpan]>,
    /// What becomes of its members, each by its number; the others stay as they are.
    changes: Vec<(usize, MemberChange)>,
    /// A bit for each key that it may have, so that most that are asked for need not be looked for.
    bits: u64,
    /// Members that it gets, at its end.
    more: Vec<(String, String)>,
    /// The place of its closing brace.
    end: usize,
}

/// What becomes of a member.
#[derive(Debug, Default)]
struct MemberChange {
    gone: bool,
    /// Its key now, if another one.
    key: Option<&'static str>,
    /// Its value now, if another one.
    value: Option<String>,
    /// What stands behind it now: members with their commas.
    behind: String,
}

impl<'t> ObjectEdit<'t> {
    /// Of the object with these members in `text`, its closing brace at `end`.
    pub(super) fn new(text: &'t str, spans: impl Into<Cow<'t, [MemberSpan]>>, end: usize) -> Self {
        let spans = spans.into();
        let bits = spans.iter().fold(0, |bits, span| bits | bit(span.key(text)));
        Self { text, spans, changes: Vec::new(), bits, more: Vec::new(), end }
    }

    fn change(&self, at: usize) -> Option<&MemberChange> {
        self.changes.iter().find(|(own, _)| *own == at).map(|(_, change)| change)
    }

    /// What becomes of the member of this number, to be said.
    fn change_mut(&mut self, at: usize) -> Option<&mut MemberChange> {
        let place = self.changes.iter().position(|(own, _)| *own == at).unwrap_or_else(|| {
            self.changes.push((at, MemberChange::default()));
            self.changes.len() - 1
        });
        self.changes.get_mut(place).map(|(_, change)| change)
    }

    /// What has not gone: number, key, place.
    fn kept(&self) -> impl Iterator<Item = (usize, &str, &MemberSpan)> {
        self.spans.iter().enumerate().filter_map(|(at, span)| {
            let change = self.change(at);
            let key = || change.and_then(|change| change.key).unwrap_or_else(|| span.key(self.text));
            (!change.is_some_and(|change| change.gone)).then(|| (at, key(), span))
        })
    }

    fn find(&self, key: &str) -> Option<(usize, &MemberSpan)> {
        if self.bits & bit(key) == 0 {
            return None;
        }
        self.kept().find(|(_, own, _)| *own == key).map(|(at, _, span)| (at, span))
    }

    /// The JSON of a member, `null` or not.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let Some((at, span)) = self.find(key) else {
            return self.more.iter().find(|(own, _)| own == key).map(|(_, json)| json.as_str());
        };
        let value = self.change(at).and_then(|change| change.value.as_deref());
        value.or_else(|| self.text.get(span.at.clone()))
    }

    /// The same if it is not null.
    pub(super) fn said(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|json| *json != "null")
    }

    /// The JSON of a member as it stands in the text: places in it are places in the body.
    pub(super) fn original(&self, key: &str) -> Option<&'t str> {
        let (at, span) = self.find(key)?;
        let is_new = self.change(at).is_some_and(|change| change.value.is_some());
        self.text.get(span.at.clone()).filter(|_| !is_new)
    }

    /// Keys and values as they stand in the text, of what has not gone.
    pub(super) fn originals(&self) -> impl Iterator<Item = (&str, &'t str)> {
        self.kept().filter_map(|(_, key, span)| Some((key, self.text.get(span.at.clone())?)))
    }

    /// Says a member, in its old place if it has one.
    pub(super) fn set(&mut self, key: &str, json: impl Into<String>) {
        let at = self.find(key).map(|(at, _)| at);
        match at.and_then(|at| self.change_mut(at)) {
            Some(change) => change.value = Some(json.into()),
            None => {
                self.more.retain(|(own, _)| own != key);
                self.more.push((key.to_owned(), json.into()));
            }
        }
    }

    /// Says a member right behind another one.
    pub(super) fn set_behind(&mut self, other: &str, key: &str, json: &str) {
        let place = if self.find(key).is_none() { self.find(other).map(|(at, _)| at) } else { None };
        match place.and_then(|at| self.change_mut(at)) {
            Some(change) => change.behind = format!(",\"{key}\":{json}"),
            None => self.set(key, json),
        }
    }

    /// The place of its closing brace.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Takes a member out; says whether it was there.
    pub(super) fn remove(&mut self, key: &str) -> bool {
        let mut any = false;
        while let Some((at, _)) = self.find(key) {
            let Some(change) = self.change_mut(at) else { break };
            (change.gone, any) = (true, true);
        }
        let before = self.more.len();
        self.more.retain(|(own, _)| own != key);
        any || self.more.len() < before
    }

    /// Gives a member another key; where something is said under that one already, it counts.
    pub(super) fn rename(&mut self, from: &str, to: &'static str) {
        if self.said(to).is_some() {
            self.remove(from);
            return;
        }
        // A null would say the same key twice.
        self.remove(to);
        let Some((at, span)) = self.find(from) else { return };
        match span.key_at {
            Some(_) => {
                if let Some(change) = self.change_mut(at) {
                    change.key = Some(to);
                    self.bits |= bit(to);
                }
            }
            // Its characters stand nowhere as they are.
            None => {
                let json = self.get(from).unwrap_or("null").to_owned();
                self.remove(from);
                self.set(to, json);
            }
        }
    }

    /// Writes down all changes.
    pub(super) fn finish(self, edits: &mut Edits) {
        let mut removed = Edits::default();
        if self.changes.iter().any(|(_, change)| change.gone) {
            let is_gone = |at| self.change(at).is_some_and(|change| change.gone);
            removed.remove_spots(self.text, &self.spans, is_gone);
        }
        let mut any = self.kept().next().is_some();
        // What is written is handed over, not copied: it may be as long as the body.
        for (at, change) in self.changes {
            let Some(span) = self.spans.get(at) else { continue };
            if let (Some(key), Some(at), false) = (change.key, span.key_at.clone(), change.gone) {
                edits.replace(at, key);
            }
            if let (Some(value), false) = (change.value, change.gone) {
                edits.replace(span.at.clone(), value);
            }
            if !change.behind.is_empty() {
                let end = span.at.end;
                edits.replace(end..end, change.behind);
            }
        }
        edits.extend(removed);
        for (key, json) in self.more {
            let comma = if any { "," } else { "" };
            edits.replace(self.end..self.end, format!("{comma}\"{key}\":"));
            edits.replace(self.end..self.end, json);
            any = true;
        }
    }
}

/// The bit of a key, which others share.
fn bit(key: &str) -> u64 {
    let first = key.bytes().next().unwrap_or(0);
    1 << ((key.len() * 7 + usize::from(first)) % 64)
}
