//! Pending changes to one JSON object of a request: members kept, removed, renamed, replaced and added.
//!
//! Takes: the members and their places. Gives: edits of the whole body. Remembers: every change until all are
//! known, so that the commas between adjacent removed members come out right.

use crate::json::{self, Raw};
use crate::request::KeySet;
use crate::request::fields::{Edits, MemberSpan};
use std::borrow::Cow;

/// JSON object with pending changes. Reads see the changed state, except [`Self::original`] and [`Self::originals`].
#[derive(Debug)]
pub(super) struct ObjectEdit<'t> {
    text: &'t str,
    spans: Cow<'t, [MemberSpan]>,
    /// Changes by member index; members without an entry stay as they are.
    changes: Vec<(usize, MemberChange)>,
    /// Keys that the object has or had, so that most lookups of absent keys end without a search.
    keys: KeySet,
    /// Members to append at the end of the object, as key and JSON.
    appended: Vec<(String, String)>,
    /// Offset of the object's closing brace.
    end: usize,
}

/// Pending change of one existing member.
#[derive(Debug, Default)]
struct MemberChange {
    removed: bool,
    /// New key, if the member is renamed.
    key: Option<&'static str>,
    /// New value as JSON, if it is replaced.
    value: Option<String>,
}

impl<'t> ObjectEdit<'t> {
    /// Creates an unchanged edit of the object whose members are `spans` in `text`, with its closing brace at
    /// `end`.
    pub(super) fn new(text: &'t str, spans: impl Into<Cow<'t, [MemberSpan]>>, end: usize) -> Self {
        let spans = spans.into();
        let keys = spans.iter().fold(KeySet::NONE, |keys, span| {
            keys.with(KeySet::of(span.key(text)))
        });
        Self {
            text,
            spans,
            changes: Vec::new(),
            keys,
            appended: Vec::new(),
            end,
        }
    }

    /// Returns false if the object certainly has none of these keys.
    pub(super) fn may_have(&self, keys: KeySet) -> bool {
        self.keys.may_share(keys)
    }

    fn change(&self, at: usize) -> Option<&MemberChange> {
        self.changes
            .iter()
            .find(|(own, _)| *own == at)
            .map(|(_, change)| change)
    }

    /// Returns the pending change of the member at this index, and creates it if there is none.
    fn change_mut(&mut self, at: usize) -> Option<&mut MemberChange> {
        let place = self
            .changes
            .iter()
            .position(|(own, _)| *own == at)
            .unwrap_or_else(|| {
                self.changes.push((at, MemberChange::default()));
                self.changes.len() - 1
            });
        self.changes.get_mut(place).map(|(_, change)| change)
    }

    /// Iterates over the members that remain: index, current key, span.
    fn kept(&self) -> impl Iterator<Item = (usize, &str, &MemberSpan)> {
        self.spans.iter().enumerate().filter_map(|(at, span)| {
            let change = self.change(at);
            let key = || {
                change
                    .and_then(|change| change.key)
                    .unwrap_or_else(|| span.key(self.text))
            };
            (!change.is_some_and(|change| change.removed)).then(|| (at, key(), span))
        })
    }

    fn find(&self, key: &str) -> Option<(usize, &MemberSpan)> {
        if !self.may_have(KeySet::of(key)) {
            return None;
        }
        self.kept()
            .find(|(_, own, _)| *own == key)
            .map(|(at, _, span)| (at, span))
    }

    /// Returns the current JSON value of a member, `null` included, or `None` if the object lacks it.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let Some((at, span)) = self.find(key) else {
            return self
                .appended
                .iter()
                .find(|(own, _)| own == key)
                .map(|(_, json)| json.as_str());
        };
        let value = self.change(at).and_then(|change| change.value.as_deref());
        value.or_else(|| self.text.get(span.at.clone()))
    }

    /// Returns the current JSON value of a member, or `None` if it is absent or null.
    pub(super) fn non_null(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|json| *json != "null")
    }

    /// Iterates over the elements of a member that is a list. A member that is absent, null or not a list gives
    /// nothing.
    pub(super) fn elements(&self, key: &str) -> impl Iterator<Item = Raw<'_>> {
        self.non_null(key)
            .and_then(json::elements)
            .into_iter()
            .flatten()
    }

    /// Returns a member's value as a slice of the original text, so that offsets in it are offsets in the body.
    /// `None` if the value has been replaced.
    pub(super) fn original(&self, key: &str) -> Option<&'t str> {
        let (at, span) = self.find(key)?;
        let is_new = self.change(at).is_some_and(|change| change.value.is_some());
        self.text.get(span.at.clone()).filter(|_| !is_new)
    }

    /// Iterates over the remaining members with their original values, as slices of the body's text.
    pub(super) fn originals(&self) -> impl Iterator<Item = (&str, &'t str)> {
        self.kept()
            .filter_map(|(_, key, span)| Some((key, self.text.get(span.at.clone())?)))
    }

    /// Sets a member: replaces its value in place if it exists, else appends it to the object.
    pub(super) fn set(&mut self, key: &str, json: impl Into<String>) {
        let at = self.find(key).map(|(at, _)| at);
        match at.and_then(|at| self.change_mut(at)) {
            Some(change) => change.value = Some(json.into()),
            None => {
                self.appended.retain(|(own, _)| own != key);
                self.appended.push((key.to_owned(), json.into()));
                self.keys = self.keys.with(KeySet::of(key));
            }
        }
    }

    /// Returns the offset of the closing brace.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Removes every member of this key, and returns true if there was one.
    pub(super) fn remove(&mut self, key: &str) -> bool {
        let mut any = false;
        while let Some((at, _)) = self.find(key) {
            let Some(change) = self.change_mut(at) else {
                break;
            };
            (change.removed, any) = (true, true);
        }
        let before = self.appended.len();
        self.appended.retain(|(own, _)| own != key);
        any || self.appended.len() < before
    }

    /// Renames a member. If the new key already has a non-null value, that value wins and the old member is
    /// removed.
    pub(super) fn rename(&mut self, from: &str, to: &'static str) {
        if self.non_null(to).is_some() {
            self.remove(from);
            return;
        }
        // A null member under the new key would leave the key twice in the object.
        self.remove(to);
        let Some((at, span)) = self.find(from) else {
            return;
        };
        match span.key_at {
            Some(_) => {
                if let Some(change) = self.change_mut(at) {
                    change.key = Some(to);
                    self.keys = self.keys.with(KeySet::of(to));
                }
            }
            // An escaped key has no plain bytes to replace: remove the member and append it anew.
            None => {
                let json = self.get(from).unwrap_or("null").to_owned();
                self.remove(from);
                self.set(to, json);
            }
        }
    }

    /// Converts the pending changes into edits of the body.
    pub(super) fn finish(self, edits: &mut Edits) {
        let mut removed = Edits::default();
        if self.changes.iter().any(|(_, change)| change.removed) {
            let is_gone = |at| self.change(at).is_some_and(|change| change.removed);
            removed.remove_at(self.text, &self.spans, is_gone);
        }
        let mut any = self.kept().next().is_some();
        // Values move into the edits without a copy: they may be as long as the body.
        for (at, change) in self.changes {
            let Some(span) = self.spans.get(at) else {
                continue;
            };
            if let (Some(key), Some(at), false) = (change.key, span.key_at.clone(), change.removed)
            {
                edits.replace(at, key);
            }
            if let (Some(value), false) = (change.value, change.removed) {
                edits.replace(span.at.clone(), value);
            }
        }
        edits.extend(removed);
        for (key, json) in self.appended {
            let comma = if any { "," } else { "" };
            edits.replace(self.end..self.end, format!("{comma}\"{key}\":"));
            edits.replace(self.end..self.end, json);
            any = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_member_was_there_whether_written_or_appended() {
        let body = r#"{"a":1}"#;
        let fields = crate::request::fields::read(body).unwrap();
        let spans: Vec<_> = fields
            .iter()
            .map(|field| MemberSpan::of(field, body))
            .collect();
        let mut edit = ObjectEdit::new(body, spans, body.len() - 1);
        assert!(edit.remove("a") && !edit.remove("a"));
        edit.set("b", "2");
        assert!(edit.remove("b") && !edit.remove("b"));
        edit.set("c", "3");
        let mut edits = Edits::default();
        edit.finish(&mut edits);
        assert_eq!(edits.apply(&bytes::Bytes::from(body)), r#"{"c":3}"#);
    }
}
