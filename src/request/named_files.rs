//! Files that the parts of messages name by an id instead of carrying them (docs/batch.md).
//!
//! Takes: a body of Chat Completions or Responses, and the files. Gives: the body with the files in it. Never: reads a
//! store.

use super::fields::place;
use crate::json::{self, Raw, write_string};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use std::ops::Range;

/// Bytes of a file that are encoded at once: a multiple of three, so that only the last piece is padded.
const PIECE: usize = 48 << 10;

/// Part of a message that names a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedFile {
    /// Value of `file_id`.
    pub(crate) id: String,
    /// Place of the object with `file_id`: the part's `file` in chat, the part itself in Responses.
    at: Range<usize>,
    is_part: bool,
    /// Name that the part itself gives the file.
    filename: Option<String>,
}

/// Returns the files that a body names by ids, in their order. Those whose content is there as well are left out.
pub(crate) fn named_files(body: &[u8]) -> Vec<NamedFile> {
    // Most bodies name none, and are not parsed for it.
    if memchr::memmem::find(body, b"\"file_id\"").is_none() {
        return Vec::new();
    }
    let Ok(text) = simdutf8::basic::from_utf8(body) else {
        return Vec::new();
    };
    let lists = ["messages", "input", "items"]
        .into_iter()
        .filter_map(|key| json::raw_member(text, key));
    let messages = lists
        .filter_map(|list| json::elements(list.get()))
        .flatten();
    let lists = messages.flat_map(|message| {
        ["content", "output"]
            .into_iter()
            .filter_map(move |key| json::raw_member(message.get(), key))
    });
    let parts = lists
        .filter_map(|list| json::elements(list.get()))
        .flatten();
    let mut named: Vec<_> = parts.filter_map(|part| named(text, part)).collect();
    named.sort_by_key(|file| file.at.start);
    named
}

fn named(text: &str, part: Raw<'_>) -> Option<NamedFile> {
    let is_part = json::member(part.get(), "type")? == "input_file";
    let file = if is_part {
        part
    } else {
        json::raw_member(part.get(), "file")?
    };
    let member = |key: &str| json::member(file.get(), key).filter(|value| !value.is_empty());
    let (id, filename) = (member("file_id")?, member("filename"));
    member("file_data").is_none().then(|| NamedFile {
        id,
        at: place(text, file.get()),
        is_part,
        filename,
    })
}

/// Puts files into a body: their names, and their content as a data URL. `files` are in the order of
/// [`named_files`], each with what it names. `size`: the bytes that are expected of the result.
pub(crate) fn with_files<'f>(
    body: &[u8],
    files: impl IntoIterator<Item = (&'f NamedFile, &'f (String, String))>,
    size: usize,
) -> Bytes {
    let mut out = BytesMut::with_capacity(size);
    let mut end = 0;
    for (named, (name, content)) in files {
        out.extend_from_slice(body.get(end..named.at.start).unwrap_or_default());
        out.extend_from_slice(if named.is_part {
            b"{\"type\":\"input_file\",\"filename\":"
        } else {
            b"{\"filename\":"
        });
        write_string(named.filename.as_ref().unwrap_or(name), &mut out);
        out.extend_from_slice(b",\"file_data\":\"data:text/plain;base64,");
        // A few kilobytes at a time, without a copy of the whole.
        for piece in content.as_bytes().chunks(PIECE) {
            out.extend_from_slice(STANDARD.encode(piece).as_bytes());
        }
        out.extend_from_slice(b"\"}");
        end = named.at.end;
    }
    out.extend_from_slice(body.get(end..).unwrap_or_default());
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_take_the_places_of_their_ids() {
        let files = |body: &str| {
            let named = named_files(body.as_bytes());
            let file = ("n.md".to_owned(), "a\n".to_owned());
            let files = named.iter().map(|named| (named, &file));
            String::from_utf8(with_files(body.as_bytes(), files, body.len()).to_vec()).unwrap()
        };
        for (body, expected) in [
            (
                r#"{"messages":[{"role":"user","content":[{"type":"file", "file":{"file_id":"file-1"}},{"type":"text","text":"b"}]}]}"#,
                r#"{"messages":[{"role":"user","content":[{"type":"file", "file":{"filename":"n.md","file_data":"data:text/plain;base64,YQo="}},{"type":"text","text":"b"}]}]}"#,
            ),
            (
                r#"{"input":[{"role":"user","content":[{"type":"input_file","file_id":"file-1","filename":"o"}]},{"type":"function_call_output","output":[{"file_id":"file-2","type":"input_file"}]}]}"#,
                r#"{"input":[{"role":"user","content":[{"type":"input_file","filename":"o","file_data":"data:text/plain;base64,YQo="}]},{"type":"function_call_output","output":[{"type":"input_file","filename":"n.md","file_data":"data:text/plain;base64,YQo="}]}]}"#,
            ),
        ] {
            assert_eq!(files(body), expected);
        }
        let order = files(
            r#"{"input":[{"output":[{"type":"input_file","file_id":"a"}],"content":[{"type":"input_file","file_id":"b"}]}],"messages":[{"content":[{"type":"file","file":{"file_id":"c"}}]}]}"#,
        );
        assert!(
            !order.contains("file_id") && order.ends_with("}}]}]}"),
            "{order}"
        );
        for body in [
            r#"{"messages":[{"role":"user","content":"\"file_id\""}]}"#,
            r#"{"input":"the \"file_id\""}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"","file_data":"x"}}]}]}"#,
            r#"{"messages":[{"content":[{"type":"input_image","file_id":"file-1"}]}]}"#,
            r#"{"file_id""#,
        ] {
            assert_eq!(files(body), body);
        }
    }
}
