//! One object of a request as it is to be: what stays, what goes, what is said anew.
//!
//! Takes: the members and their places. Gives: edits of the whole body. Remembers: every change until all are known, so
//! that members that go together lose the right commas.

use crate::request::fields::{Edits, Spot};

/// An object that is being changed.
#[derive(Debug)]
pub(super) struct Draft<'t> {
    text: &'t str,
    members: Vec<Member>,
    /// Members that it gets, at its end.
    more: Vec<(String, String)>,
    /// The place of its closing brace.
    end: usize,
}

#[derive(Debug)]
struct Member {
    spot: Spot,
    gone: bool,
    /// Its key now, if another one.
    key: Option<&'static str>,
    /// Its value now, if another one.
    value: Option<String>,
    /// What stands behind it now: members with their commas.
    behind: String,
}

impl Member {
    fn key(&self) -> &str {
        self.key.unwrap_or(&self.spot.key)
    }
}

impl<'t> Draft<'t> {
    /// Of the object with these members in `text`, its closing brace at `end`.
    pub(super) fn new(text: &'t str, spots: Vec<Spot>, end: usize) -> Self {
        let member = |spot| Member { spot, gone: false, key: None, value: None, behind: String::new() };
        Self { text, members: spots.into_iter().map(member).collect(), more: Vec::new(), end }
    }

    fn find(&self, key: &str) -> Option<usize> {
        self.members.iter().position(|member| !member.gone && member.key() == key)
    }

    /// The JSON of a member, `null` or not.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        match self.find(key).and_then(|at| self.members.get(at)) {
            Some(Member { value: Some(value), .. }) => Some(value),
            Some(member) => self.text.get(member.spot.at.clone()),
            None => self.more.iter().find(|(own, _)| own == key).map(|(_, json)| json.as_str()),
        }
    }

    /// The same if it is not null.
    pub(super) fn said(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|json| *json != "null")
    }

    /// The JSON of a member as it stands in the text: places in it are places in the body.
    pub(super) fn original(&self, key: &str) -> Option<&'t str> {
        let member = self.members.get(self.find(key)?).filter(|member| member.value.is_none())?;
        self.text.get(member.spot.at.clone())
    }

    /// Keys and values as they stand in the text, of what has not gone.
    pub(super) fn originals(&self) -> impl Iterator<Item = (&str, &'t str)> {
        let kept = self.members.iter().filter(|member| !member.gone);
        kept.filter_map(|member| Some((member.key(), self.text.get(member.spot.at.clone())?)))
    }

    /// Says a member, in its old place if it has one.
    pub(super) fn set(&mut self, key: &str, json: impl Into<String>) {
        match self.find(key).and_then(|at| self.members.get_mut(at)) {
            Some(member) => member.value = Some(json.into()),
            None => {
                self.more.retain(|(own, _)| own != key);
                self.more.push((key.to_owned(), json.into()));
            }
        }
    }

    /// Says a member right behind another one.
    pub(super) fn set_behind(&mut self, other: &str, key: &str, json: &str) {
        let is_there = self.find(key).is_some();
        match self.find(other).and_then(|at| self.members.get_mut(at)) {
            Some(member) if !is_there => member.behind = format!(",\"{key}\":{json}"),
            _ => self.set(key, json),
        }
    }

    /// The place of its closing brace.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Takes a member out; says whether it was there.
    pub(super) fn remove(&mut self, key: &str) -> bool {
        let mut any = false;
        while let Some(member) = self.find(key).and_then(|at| self.members.get_mut(at)) {
            (member.gone, any) = (true, true);
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
        let Some(member) = self.find(from).and_then(|at| self.members.get_mut(at)) else { return };
        match member.spot.key_at {
            Some(_) => member.key = Some(to),
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
        for member in &self.members {
            if let (Some(key), Some(at), false) = (member.key, member.spot.key_at.clone(), member.gone) {
                edits.replace(at, key);
            }
            if let (Some(value), false) = (&member.value, member.gone) {
                edits.replace(member.spot.at.clone(), value.as_str());
            }
            if !member.behind.is_empty() {
                let end = member.spot.at.end;
                edits.replace(end..end, member.behind.as_str());
            }
        }
        let (spots, gone): (Vec<_>, Vec<_>) =
            self.members.into_iter().map(|member| (member.spot, member.gone)).unzip();
        edits.remove_spots(self.text, &spots, |at| gone.get(at).copied().unwrap_or(false));
        let mut any = gone.iter().any(|gone| !gone);
        for (key, json) in &self.more {
            let comma = if any { "," } else { "" };
            edits.replace(self.end..self.end, format!("{comma}\"{key}\":{json}"));
            any = true;
        }
    }
}
