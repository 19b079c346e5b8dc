//! Content of messages and of tool outputs: the parts of the Responses API and what Chat Completions calls them
//! (wire-format 4.3).
//!
//! Takes: a string or a list of parts. Gives: parts, and their text as an engine reads it. Never: drops a part.

use super::object::{Object, alternatives};
use crate::json::{Raw, Text, write_string};
use crate::request::check::{invalid, list, missing};
use crate::request::media::{Address, Kind, Media};
use crate::wire::fault::{Failure, Fault};
use bytes::{BufMut, BytesMut};

/// Parts of one message.
const MOST: usize = 10_000;

/// What a part may be, in a message.
const MESSAGE: &[&str] =
    &["input_text", "output_text", "input_image", "input_file", "input_audio", "refusal"];
/// The same in the output of a tool.
const OUTPUT: &[&str] = &["input_text", "output_text", "input_image", "input_file", "input_audio"];

/// A part, borrowed from its request.
#[derive(Debug)]
pub(super) enum Part<'a> {
    Text(Text<'a>),
    Refusal(Text<'a>),
    Image {
        url: Address<'a>,
        detail: Option<Text<'a>>,
    },
    /// Members of `file`, in order.
    File(Vec<(&'static str, Address<'a>)>),
    Audio {
        data: Address<'a>,
        format: Text<'a>,
    },
    /// A text that was not the client's.
    Own(String),
}

/// Where content stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Message,
    Output,
}

/// The parts of `raw`, which stands at `key` of `object`.
pub(super) fn parts<'a>(
    object: &Object<'a>,
    key: &str,
    place: Place,
    media: &Media,
) -> Result<Vec<Part<'a>>, Failure> {
    let raw = object.required(key)?;
    if let Some(text) = Text::of(raw) {
        return Ok(vec![Part::Text(text)]);
    }
    let path = object.path(key);
    if !raw.get().starts_with('[') {
        return Err(invalid(path, "it must be a string or a list of parts"));
    }
    let all = list(&path, raw, MOST)?;
    all.into_iter().enumerate().map(|(at, raw)| part(format!("{path}[{at}]"), raw, place, media)).collect()
}

fn part<'a>(path: String, raw: Raw<'a>, place: Place, media: &Media) -> Result<Part<'a>, Failure> {
    let part = Object::of(path, raw)?;
    let words = if place == Place::Message { MESSAGE } else { OUTPUT };
    let kind = part.required_text("type")?.decoded();
    match kind.as_ref() {
        "input_text" | "output_text" => part.required_text("text").map(Part::Text),
        "input_image" => image(&part, media),
        "input_file" => file(&part, media),
        "input_audio" => audio(&part, media),
        "refusal" if place == Place::Message => part.required_text("refusal").map(Part::Refusal),
        _ => Err(invalid(part.path("type"), &format!("it must be {}", alternatives(words)))),
    }
}

fn image<'a>(part: &Object<'a>, media: &Media) -> Result<Part<'a>, Failure> {
    let detail = part.text("detail")?;
    if let Some(url) = part.text("image_url")? {
        let url = media.judge(url, Kind::Image, || part.path("image_url"))?;
        return Ok(Part::Image { url, detail });
    }
    match part.text("file_id")? {
        Some(_) => Err(unsupported(part, "file_id", "send the image in 'image_url'")),
        None => Err(missing(&part.path("image_url"))),
    }
}

/// An engine's chat takes a file's content or its id, and fetches nothing.
fn file<'a>(part: &Object<'a>, media: &Media) -> Result<Part<'a>, Failure> {
    let mut members = Vec::new();
    for key in ["file_id", "filename", "file_data"] {
        let Some(text) = part.text(key)? else { continue };
        let judged = match key {
            "file_data" => media.judge_content(text, Kind::File, || part.path(key))?,
            _ => Address::Same(text),
        };
        members.push((key, judged));
    }
    if members.iter().any(|(key, _)| *key != "filename") {
        return Ok(Part::File(members));
    }
    match part.text("file_url")? {
        Some(_) => Err(unsupported(part, "file_url", "send the file in 'file_data'")),
        None => Err(missing(&part.path("file_data"))),
    }
}

fn audio<'a>(part: &Object<'a>, media: &Media) -> Result<Part<'a>, Failure> {
    part.required("input_audio")?;
    let audio = part.object("input_audio")?.ok_or_else(|| missing(&part.path("input_audio")))?;
    let data = audio.required_text("data")?;
    let data = media.judge_content(data, Kind::Audio, || audio.path("data"))?;
    Ok(Part::Audio { data, format: audio.required_text("format")? })
}

fn unsupported(part: &Object<'_>, key: &str, instead: &str) -> Failure {
    let param = part.path(key);
    let message = format!("Unsupported parameter: '{param}'; {instead}.");
    Failure::from(Fault::UnsupportedParameter).with_message(message).with_param(param)
}

impl Part<'_> {
    /// The text, if the engine can be given this part as text.
    fn text(&self, refusal_parts: bool) -> Option<Text<'_>> {
        match self {
            Part::Text(text) => Some(*text),
            Part::Refusal(text) if !refusal_parts => Some(*text),
            Part::Own(text) => Some(Text::plain(text)),
            _ => None,
        }
    }

    fn write(&self, refusal_parts: bool, out: &mut BytesMut) {
        if let Some(text) = self.text(refusal_parts) {
            member("{\"type\":\"text\",\"text\"", text, out);
            return out.put_u8(b'}');
        }
        match self {
            Part::Refusal(text) => {
                member("{\"type\":\"refusal\",\"refusal\"", *text, out);
                out.put_u8(b'}');
            }
            Part::Image { url, detail } => {
                address("{\"type\":\"image_url\",\"image_url\":{\"url\"", url, out);
                if let Some(detail) = detail {
                    member(",\"detail\"", *detail, out);
                }
                out.extend_from_slice(b"}}");
            }
            Part::File(members) => {
                out.extend_from_slice(b"{\"type\":\"file\",\"file\":{");
                for (at, (key, text)) in members.iter().enumerate() {
                    address(&format!("{}\"{key}\"", if at > 0 { "," } else { "" }), text, out);
                }
                out.extend_from_slice(b"}}");
            }
            Part::Audio { data, format } => {
                address("{\"type\":\"input_audio\",\"input_audio\":{\"data\"", data, out);
                member(",\"format\"", *format, out);
                out.extend_from_slice(b"}}");
            }
            Part::Text(_) | Part::Own(_) => {}
        }
    }

    /// Appends the part as the Responses API spells it.
    fn write_item(&self, out: &mut BytesMut) {
        if let Some(text) = self.text(false) {
            member("{\"type\":\"input_text\",\"text\"", text, out);
            return out.put_u8(b'}');
        }
        match self {
            Part::Image { url, detail } => {
                address("{\"type\":\"input_image\",\"image_url\"", url, out);
                match detail {
                    Some(detail) => member(",\"detail\"", *detail, out),
                    None => out.extend_from_slice(b",\"detail\":\"auto\""),
                }
            }
            Part::File(members) => {
                out.extend_from_slice(b"{\"type\":\"input_file\"");
                for (key, text) in members {
                    address(&format!(",\"{key}\""), text, out);
                }
            }
            Part::Audio { data, format } => {
                address("{\"type\":\"input_audio\",\"input_audio\":{\"data\"", data, out);
                member(",\"format\"", *format, out);
                out.put_u8(b'}');
            }
            Part::Text(_) | Part::Own(_) | Part::Refusal(_) => {}
        }
        out.put_u8(b'}');
    }
}

/// Whether all of it is text.
pub(super) fn is_text(parts: &[Part<'_>]) -> bool {
    parts.iter().all(|part| part.text(false).is_some())
}

/// Appends content: one string where all of it is text (many templates know no other), else a list of parts.
pub(super) fn write(parts: &[Part<'_>], between: &str, refusal_parts: bool, out: &mut BytesMut) {
    write_each(parts, between, refusal_parts, |part, out| part.write(refusal_parts, out), out);
}

/// The same in the spelling of the Responses API.
pub(super) fn write_items(parts: &[Part<'_>], between: &str, out: &mut BytesMut) {
    write_each(parts, between, false, |part, out| part.write_item(out), out);
}

fn write_each(
    parts: &[Part<'_>],
    between: &str,
    refusal_parts: bool,
    write: impl Fn(&Part<'_>, &mut BytesMut),
    out: &mut BytesMut,
) {
    let texts: Option<Vec<Text<'_>>> = parts.iter().map(|part| part.text(refusal_parts)).collect();
    let Some(texts) = texts else {
        for (at, part) in parts.iter().enumerate() {
            out.put_u8(if at > 0 { b',' } else { b'[' });
            write(part, out);
        }
        return out.put_u8(b']');
    };
    out.put_u8(b'"');
    for (at, text) in texts.iter().enumerate() {
        if at > 0 {
            Text::plain(between).write(out);
        }
        text.write(out);
    }
    out.put_u8(b'"');
}

/// Appends a text behind its key, which is written as it stands.
pub(super) fn member(key: &str, text: Text<'_>, out: &mut BytesMut) {
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b":\"");
    text.write(out);
    out.put_u8(b'"');
}

fn address(key: &str, address: &Address<'_>, out: &mut BytesMut) {
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b":\"");
    address.write(out);
    out.put_u8(b'"');
}

/// Appends a member whose value is no text of a request.
pub(super) fn own_member(key: &str, text: &str, out: &mut BytesMut) {
    out.extend_from_slice(key.as_bytes());
    out.put_u8(b':');
    write_string(text, out);
}
