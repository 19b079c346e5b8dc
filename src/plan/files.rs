//! Files in the parts of messages, as text for engines that take none (engines E.3).

use crate::json::{self, Raw, write_string};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::BytesMut;

/// Words in the subtype of a media type, such as `application/ld+json`, whose content is text.
const TEXTS: &[&str] = &[
    "json",
    "jsonl",
    "ndjson",
    "xml",
    "yaml",
    "toml",
    "csv",
    "sql",
    "sh",
    "javascript",
    "typescript",
    "python",
];

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns a text part with the name and the content of a file, one under the other; `None` if the content is not
/// in the part, or is no text. `part` has the members of the file under `file`, or is of type `input_file` and has
/// them itself.
pub(super) fn text_part(part: Raw<'_>) -> Option<Vec<u8>> {
    let inner = json::raw_member(part.get(), "file").filter(|inner| inner.get().starts_with('{'));
    let file = inner.unwrap_or(part).get();
    let mut text = json::member(file, "filename")
        .filter(|name| !name.is_empty())
        .unwrap_or_default();
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(&content(&json::member(file, "file_data")?)?);
    let mut out = BytesMut::from(&b"{\"type\":\"text\",\"text\":"[..]);
    write_string(&text, &mut out);
    out.extend_from_slice(b"}");
    Some(out.into())
}

/// Returns the text in a data URL or in base64; `None` if it is something else.
fn content(data: &str) -> Option<String> {
    let is_url = data
        .get(..5)
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"));
    let (label, data) = match data.get(5..).filter(|_| is_url) {
        Some(rest) => rest.split_once(',')?,
        None => ("application/octet-stream;base64", data),
    };
    let label = label.to_ascii_lowercase();
    let kind = label
        .strip_suffix(";base64")?
        .split(';')
        .next()
        .unwrap_or_default();
    let bytes = BASE64.decode(data.trim()).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    // A type that says nothing, and a PDF that has only letters.
    let looks_like_text = || kind == "application/octet-stream" && !text.starts_with("%PDF-");
    let is_plain = !text.contains(|c: char| c.is_control() && !c.is_whitespace());
    (is_plain && (is_text(kind) || looks_like_text())).then_some(text)
}

fn is_text(kind: &str) -> bool {
    let Some((family, subtype)) = kind.split_once('/') else {
        return false;
    };
    family == "text"
        || family == "application"
            && subtype
                .split(['+', '-', '.'])
                .any(|word| TEXTS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_text_become_text() {
        // "é\n", "%PDF-1.4", and bytes that are no text.
        for (data, text) in [
            ("data:text/markdown;base64,w6kK", Some("é\n")),
            ("data:text/plain;charset=utf-8;base64,w6kK", Some("é\n")),
            ("data:application/ld+json;base64,e30=", Some("{}")),
            ("DATA:application/X-yaml;base64,e30", Some("{}")),
            ("data:application/octet-stream;base64,w6kK", Some("é\n")),
            ("w6kK", Some("é\n")),
            ("JVBERi0xLjQ=", None),
            ("data:application/pdf;base64,e30=", None),
            (
                "data:application/vnd.openxmlformats-officedocument.wordprocessingml.document;base64,e30=",
                None,
            ),
            ("data:text/plain;base64,/w==", None),
            ("data:text/plain;base64,AA==", None),
            ("data:text/plain,a", None),
            ("data:text/plain;base64", None),
            ("%", None),
        ] {
            assert_eq!(content(data).as_deref(), text, "{data}");
        }
    }

    #[test]
    fn the_name_stands_above_the_text() {
        for (part, text) in [
            (
                r#"{"type":"file","file":{"filename":"a.md","file_data":"w6kK"}}"#,
                Some(r#"a.md\né\n"#),
            ),
            (r#"{"type":"input_file","file_data":"w6kK"}"#, Some(r"é\n")),
            (r#"{"type":"file","file":{"file_id":"f"}}"#, None),
            (r#"{"type":"file"}"#, None),
        ] {
            let expected =
                text.map(|text| format!(r#"{{"type":"text","text":"{text}"}}"#).into_bytes());
            assert_eq!(text_part(Raw::of(part).unwrap()), expected, "{part}");
        }
    }
}
