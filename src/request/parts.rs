//! The media in what a request says, whatever an engine calls its parts (faults C34).
//!
//! Takes: the content of a message, or an item that an engine is sent as it is. Gives: what has to be written anew in it.
//! Never: reads a byte twice, changes what is no address.

use super::check::invalid;
use super::fields::{Edits, place};
use super::media::{Address, Kind, Media};
use crate::json::{self, Raw, Scanner, Text};
use crate::wire::fault::{Failure, Fault};
use bytes::{Bytes, BytesMut};
use std::borrow::Cow;
use std::fmt::Write;

/// Characters of a key that an answer repeats.
const SHOWN: usize = 64;

/// What a member's name says of its value.
#[derive(Clone, Copy, Debug)]
struct Key {
    kind: Kind,
    /// The value may be the content itself.
    content: bool,
}

impl Key {
    /// `inside`: what the object is that has the member.
    fn of(name: &str, inside: Option<Kind>) -> Option<Self> {
        let (kind, content) = match name {
            "image_url" => (Kind::Image, false),
            "video_url" => (Kind::Video, false),
            "audio_url" => (Kind::Audio, false),
            "image" => (Kind::Image, true),
            "video" => (Kind::Video, true),
            "audio" | "input_audio" => (Kind::Audio, true),
            "file" | "file_data" => (Kind::File, true),
            "data" => (inside?, true),
            "url" | "uri" => (inside.unwrap_or(Kind::File), false),
            _ if name.ends_with("_url") => (inside.unwrap_or(Kind::File), false),
            _ => return None,
        };
        Some(Self { kind, content })
    }

    /// The same where pages that a tool has read and servers that it asks are no media.
    fn of_hosted(name: &str, inside: Option<Kind>) -> Option<Self> {
        let is_url = name.ends_with("_url") && name != "server_url";
        let is_media = inside.is_some() || is_url || name == "file_data";
        if is_media { Self::of(name, inside) } else { None }
    }
}

/// Bytes of addresses that one request may have in another spelling than ours: they are kept until it is sent.
const RESPELLED: usize = 1 << 20;

/// Judges addresses, and collects what has to be written anew.
pub(super) struct AddressCheck<'t, 'm> {
    text: &'t str,
    media: &'m Media,
    pub(super) edits: Edits,
    /// Bytes of what is written anew.
    respelled: usize,
}

impl<'t, 'm> AddressCheck<'t, 'm> {
    /// `text`: what the edits are of.
    pub(super) fn new(text: &'t str, media: &'m Media) -> Self {
        Self { text, media, edits: Edits::default(), respelled: 0 }
    }

    /// Judges content, if it is a list of parts; `path` leads to it.
    pub(super) fn content(&mut self, content: Raw<'_>, path: impl Fn() -> String) -> Result<(), Failure> {
        if !content.get().starts_with('[') || *self.media == Media::Unjudged {
            return Ok(());
        }
        self.search(content, path(), false)
    }

    /// Judges each address in a value as it comes; `anywhere`: media may be anywhere, not only in the parts of a list.
    fn search(&mut self, value: Raw<'_>, path: String, anywhere: bool) -> Result<(), Failure> {
        let mut failure = None;
        let see = |path: &str, key: Key, text: Text<'_>| {
            failure = self.address(path, key, text).err();
            failure.is_none().then_some(())
        };
        let mut search = AddressWalk { anywhere, path, see };
        let passed = json::pass(value.get(), |from| search.value(from, None));
        match failure {
            Some(failure) => Err(failure),
            None => passed.map_err(|_| Fault::InvalidJson.into()),
        }
    }

    fn address(&mut self, path: &str, key: Key, text: Text<'_>) -> Result<(), Failure> {
        let path = || path.to_owned();
        let judged = match key.content {
            true => self.media.judge_content(text, key.kind, path)?,
            false => self.media.judge(text, key.kind, path)?,
        };
        let Address::Ours(front, rest) = &judged else { return Ok(()) };
        let written = place(self.text, text.spelled());
        let mut ours = BytesMut::new();
        Text::plain(front).write(&mut ours);
        self.respelled += ours.len();
        if self.respelled > RESPELLED {
            return Err(invalid(path(), "there are too many addresses that are not in their usual spelling"));
        }
        self.edits.replace(written.start..written.end - rest.spelled().len(), ours.to_vec());
        Ok(())
    }
}

/// A walk through a value: addresses, each with the way to it, are given to `see`, which may end the walk.
struct AddressWalk<S> {
    /// Media may be anywhere, not only in the parts of a list.
    anywhere: bool,
    path: String,
    see: S,
}

impl<S> AddressWalk<S> {
    /// Passes a value; `key`: what it is that it belongs to.
    fn value<'a>(&mut self, from: &mut Scanner<'a>, key: Option<Key>) -> Option<()>
    where
        S: FnMut(&str, Key, Text<'a>) -> Option<()>,
    {
        let here = self.path.len();
        match from.peek()? {
            b'"' => {
                let text = from.read()?;
                if let Some(key) = key {
                    (self.see)(&self.path, key, text)?;
                }
            }
            b'[' => {
                let mut at = 0;
                from.each_element(|from| {
                    write!(self.path, "[{at}]").ok()?;
                    at += 1;
                    self.value(from, key)?;
                    self.path.truncate(here);
                    Some(())
                })?;
            }
            b'{' => from.each_member(|from, name| {
                let (name, inside) = (name.name()?, key.map(|key| key.kind));
                let key = if self.anywhere { Key::of_hosted(&name, inside) } else { Key::of(&name, inside) };
                if key.is_none() && !self.anywhere {
                    return from.read::<Raw<'_>>().map(|_| ());
                }
                self.path.push('.');
                self.path.extend(name.chars().take(SHOWN));
                self.value(from, key)?;
                self.path.truncate(here);
                Some(())
            })?,
            _ => {
                from.read::<Raw<'_>>()?;
            }
        }
        Some(())
    }
}

/// An item or a tool that an engine is sent as it is, its addresses judged and in our spelling; `path` leads to it.
pub(super) fn hosted<'a>(item: Raw<'a>, media: &Media, path: &str) -> Result<Cow<'a, str>, Failure> {
    let mut judge = AddressCheck::new(item.get(), media);
    if *media != Media::Unjudged {
        judge.search(item, path.to_owned(), true)?;
    }
    if judge.edits.is_empty() {
        return Ok(Cow::Borrowed(item.get()));
    }
    let edited = judge.edits.apply_within_limit(&Bytes::copy_from_slice(item.get().as_bytes()))?;
    Ok(Cow::Owned(String::from_utf8_lossy(&edited).into_owned()))
}
