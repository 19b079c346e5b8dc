//! Media addresses inside request content, whatever names an engine gives its parts (faults C34).
//!
//! Takes: the content of a message, or an item sent to the engine unchanged. Gives: edits that rewrite addresses
//! in canonical spelling. Never: reads a byte twice, changes anything but an address.

use super::fields::{Edits, place};
use super::media::{Address, Media, MediaKind};
use super::refusals::invalid;
use crate::json::{LongStrings, Raw, Scanner, Text};
use crate::wire::fault::{Failure, Fault};
use bytes::{Bytes, BytesMut};
use std::borrow::Cow;
use std::fmt::Write;

/// Maximum number of characters of a key repeated in an error message.
const SHOWN: usize = 64;

/// Meaning of a member, derived from its name: the kind of media, and whether an address or content.
#[derive(Clone, Copy, Debug)]
struct PartKey {
    kind: MediaKind,
    /// True if the value may be the content itself, in base64.
    content: bool,
}

impl PartKey {
    /// Returns the meaning of a member, or `None` if it holds no media. `inside`: kind of media of the enclosing
    /// object.
    fn of(name: &str, inside: Option<MediaKind>) -> Option<Self> {
        let (kind, content) = match name {
            "image_url" => (MediaKind::Image, false),
            "video_url" => (MediaKind::Video, false),
            "audio_url" => (MediaKind::Audio, false),
            "image" => (MediaKind::Image, true),
            "video" => (MediaKind::Video, true),
            "audio" | "input_audio" => (MediaKind::Audio, true),
            "file" | "file_data" => (MediaKind::File, true),
            "data" => (inside?, true),
            "url" | "uri" => (inside.unwrap_or(MediaKind::File), false),
            _ if name.ends_with("_url") => (inside.unwrap_or(MediaKind::File), false),
            _ => return None,
        };
        Some(Self { kind, content })
    }

    /// Returns the meaning of a member of a hosted tool's item, where page addresses and server addresses are not
    /// media.
    fn of_hosted(name: &str, inside: Option<MediaKind>) -> Option<Self> {
        let is_url = name.ends_with("_url") && name != "server_url";
        let is_media = inside.is_some() || is_url || name == "file_data";
        if is_media {
            Self::of(name, inside)
        } else {
            None
        }
    }
}

/// Maximum number of bytes of rewritten addresses in one request, since they stay in memory until it is sent.
const RESPELLED: usize = 1 << 20;

/// Judges the media addresses in a text, and collects the edits that rewrite them in canonical spelling.
pub(super) struct AddressCheck<'t, 'm> {
    text: &'t str,
    strings: &'t LongStrings,
    media: &'m Media,
    pub(super) edits: Edits,
    /// Bytes of rewritten addresses so far.
    respelled: usize,
    /// Path of the value that is being searched.
    path: String,
    /// True if media may be in any member, not only in the parts of a list.
    anywhere: bool,
    /// Failure for the address at which the search has stopped.
    failure: Option<Failure>,
}

impl<'t, 'm> AddressCheck<'t, 'm> {
    /// Creates a check whose edits apply to `text`, which has these long strings.
    pub(super) fn new(text: &'t str, strings: &'t LongStrings, media: &'m Media) -> Self {
        let edits = Edits::default();
        Self {
            text,
            strings,
            media,
            edits,
            respelled: 0,
            path: String::new(),
            anywhere: false,
            failure: None,
        }
    }

    /// Judges the addresses in content, if it is a list of parts; `path` is its place for error messages. Fails on
    /// a forbidden address.
    pub(super) fn content(
        &mut self,
        content: Raw<'_>,
        path: impl Fn() -> String,
    ) -> Result<(), Failure> {
        if !content.get().starts_with('[') || *self.media == Media::Unchecked {
            return Ok(());
        }
        self.search(content, path(), false)
    }

    /// Judges each address in a value as the walk reaches it. `anywhere`: search all members, not only the parts
    /// of a list.
    fn search(&mut self, value: Raw<'_>, path: String, anywhere: bool) -> Result<(), Failure> {
        (self.path, self.anywhere) = (path, anywhere);
        let passed = self
            .strings
            .pass_part(value.get(), |from| self.value(from, None));
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => passed.map_err(|_| Fault::InvalidJson.into()),
        }
    }

    fn address(&mut self, key: PartKey, text: Text<'_>) -> Result<(), Failure> {
        let path = || self.path.clone();
        let judged = match key.content {
            true => self.media.judge_content(text, key.kind, path)?,
            false => self.media.judge(text, key.kind, path)?,
        };
        let Address::Rewritten(front, rest) = &judged else {
            return Ok(());
        };
        let written = place(self.text, text.spelled());
        let mut ours = BytesMut::new();
        Text::plain(front).write(&mut ours);
        self.respelled += ours.len();
        if self.respelled > RESPELLED {
            let path = self.path.clone();
            return Err(invalid(
                path,
                "there are too many addresses that are not in their usual spelling",
            ));
        }
        self.edits.replace(
            written.start..written.end - rest.spelled().len(),
            ours.to_vec(),
        );
        Ok(())
    }

    /// Reads one value; `key` is the meaning of the member that holds it. Stops at an address that is forbidden.
    fn value(&mut self, from: &mut Scanner<'_>, key: Option<PartKey>) -> Option<()> {
        let here = self.path.len();
        match from.peek()? {
            b'"' => {
                let text = from.read()?;
                self.failure = key.and_then(|key| self.address(key, text).err());
                if self.failure.is_some() {
                    return None;
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
                let key = if self.anywhere {
                    PartKey::of_hosted(&name, inside)
                } else {
                    PartKey::of(&name, inside)
                };
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

/// Returns an item or tool that is sent to the engine unchanged, except for addresses, which are judged and
/// rewritten in canonical spelling. Fails on a forbidden address; `path` is its place for error messages.
pub(super) fn hosted<'a>(
    item: Raw<'a>,
    media: &Media,
    path: &str,
) -> Result<Cow<'a, str>, Failure> {
    let mut judge = AddressCheck::new(item.get(), LongStrings::UNKNOWN, media);
    if *media != Media::Unchecked {
        judge.search(item, path.to_owned(), true)?;
    }
    if judge.edits.is_empty() {
        return Ok(Cow::Borrowed(item.get()));
    }
    let edited = judge
        .edits
        .apply_within_limit(&Bytes::copy_from_slice(item.get().as_bytes()))?;
    Ok(Cow::Owned(String::from_utf8_lossy(&edited).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{ChatRequest, Rules};
    use crate::wire::Api;

    const SCREEN: &str = r#"{"type":"computer_call_output","output":{"image_url":"URL"}}"#;

    #[test]
    fn fault_c34_addresses_in_messages_are_judged_where_a_policy_is_set() {
        let read = |content: &str, rules: &Rules| {
            let body = format!(r#"{{"messages":[{{"role":"user","content":{content}}}]}}"#);
            let request = ChatRequest::read_for(Api::Chat, &Bytes::from(body), None, rules);
            request
                .map(|_| ())
                .map_err(|failure| (failure.code.unwrap().into_owned(), failure.param.unwrap()))
        };
        let forbidden = |param: &str| Err(("forbidden_media_url".to_owned(), param.to_owned()));
        for (content, param) in [
            (
                r#"[{"type":"image_url","image_url":{"url":"http://10.0.0.1/"}}]"#,
                "image_url.url",
            ),
            (
                r#"[{"type":"image_url","image_url":"file:///etc/passwd"}]"#,
                "image_url",
            ),
            (
                r#"[{"type":"input_audio","input_audio":{"data":"http://10.0.0.1/"}}]"#,
                "input_audio.data",
            ),
        ] {
            let param = format!("messages[0].content[0].{param}");
            assert_eq!(
                read(content, &Rules::default()),
                forbidden(&param),
                "{content}"
            );
            assert_eq!(read(content, &Rules::ANSWERED), Ok(()), "{content}");
        }
        for content in [
            r#""http://10.0.0.1/""#,
            r#"[{"type":"text","text":"http://10.0.0.1/"}]"#,
        ] {
            assert_eq!(read(content, &Rules::default()), Ok(()), "{content}");
        }
    }

    #[test]
    fn fault_c34_addresses_in_hosted_items_are_judged_where_a_policy_is_set() {
        let item = |url: &str| SCREEN.replace("URL", url);
        let sent = |url: &str, media: &Media| {
            let item = item(url);
            let sent = hosted(Raw::of(&item).unwrap(), media, "input[0]").map(Cow::into_owned);
            sent.map_err(|failure| failure.param.unwrap())
        };
        let private = "http://10.0.0.1/";
        assert_eq!(
            sent(private, &Media::Public),
            Err("input[0].output.image_url".to_owned())
        );
        assert_eq!(sent(private, &Media::Unchecked), Ok(item(private)));
        assert_eq!(
            sent("HTTPS://EXAMPLE.com", &Media::Public),
            Ok(item("https://example.com/"))
        );
        assert_eq!(
            sent("https://example.com/", &Media::Public),
            Ok(item("https://example.com/"))
        );
    }
}
