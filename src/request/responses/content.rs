//! Content of messages and of tool outputs in a Responses request (wire-format 4.3).
//!
//! Takes: a string or a list of parts. Gives: the parts. Never: drops a part.

use crate::json::{Raw, Text};
use crate::request::check::list;
use crate::request::media::{Address, Media, MediaKind};
use crate::request::object::{RequestObject, alternatives};
use crate::request::refusals::{invalid, missing, unsupported_parameter};
use crate::request::turn::ContentPart;
use crate::wire::fault::Failure;

/// Maximum number of parts in one message.
const MOST: usize = 10_000;

/// Part types allowed in a message.
const MESSAGE: &[&str] = &[
    "input_text",
    "output_text",
    "input_image",
    "input_file",
    "input_audio",
    "refusal",
];
/// Part types allowed in the output of a tool.
const OUTPUT: &[&str] = &[
    "input_text",
    "output_text",
    "input_image",
    "input_file",
    "input_audio",
];

/// Position of content, which decides the part types allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentPlace {
    Message,
    Output,
}

/// Parses the parts of the member `key` of `object`. Fails on an unknown part type or a forbidden media address.
pub(super) fn parts<'a>(
    object: &RequestObject<'a>,
    key: &str,
    place: ContentPlace,
    media: &Media,
) -> Result<Vec<ContentPart<'a>>, Failure> {
    let raw = object.required(key)?;
    if let Some(text) = Text::of(raw) {
        return Ok(vec![ContentPart::Text(text)]);
    }
    let path = object.path(key);
    if !raw.get().starts_with('[') {
        return Err(invalid(path, "it must be a string or a list of parts"));
    }
    let all = list(&path, raw, MOST)?;
    all.into_iter()
        .enumerate()
        .map(|(at, raw)| part(format!("{path}[{at}]"), raw, place, media))
        .collect()
}

fn part<'a>(
    path: String,
    raw: Raw<'a>,
    place: ContentPlace,
    media: &Media,
) -> Result<ContentPart<'a>, Failure> {
    let part = RequestObject::of(path, raw)?;
    let words = if place == ContentPlace::Message {
        MESSAGE
    } else {
        OUTPUT
    };
    let kind = part.required_text("type")?.decoded();
    match kind.as_ref() {
        "input_text" | "output_text" => part.required_text("text").map(ContentPart::Text),
        "input_image" => image(&part, media),
        "input_file" => file(&part, media),
        "input_audio" => audio(&part, media),
        "refusal" if place == ContentPlace::Message => {
            part.required_text("refusal").map(ContentPart::Refusal)
        }
        _ => Err(invalid(
            part.path("type"),
            &format!("it must be {}", alternatives(words)),
        )),
    }
}

fn image<'a>(part: &RequestObject<'a>, media: &Media) -> Result<ContentPart<'a>, Failure> {
    let detail = part.text("detail")?;
    if let Some(url) = part.text("image_url")? {
        let url = media.judge(url, MediaKind::Image, || part.path("image_url"))?;
        return Ok(ContentPart::Image { url, detail });
    }
    match part.text("file_id")? {
        Some(_) => Err(unsupported_parameter(
            part.path("file_id"),
            "send the image in 'image_url'",
        )),
        None => Err(missing(&part.path("image_url"))),
    }
}

/// Parses a file part. Chat engines accept a file's content or its id, and fetch nothing, so a URL alone is
/// refused.
fn file<'a>(part: &RequestObject<'a>, media: &Media) -> Result<ContentPart<'a>, Failure> {
    let mut members = Vec::new();
    for key in ["file_id", "filename", "file_data"] {
        let Some(text) = part.text(key)? else {
            continue;
        };
        let judged = match key {
            "file_data" => media.judge_content(text, MediaKind::File, || part.path(key))?,
            _ => Address::Unchanged(text),
        };
        members.push((key, judged));
    }
    if members.iter().any(|(key, _)| *key != "filename") {
        return Ok(ContentPart::File(members));
    }
    match part.text("file_url")? {
        Some(_) => Err(unsupported_parameter(
            part.path("file_url"),
            "send the file in 'file_data'",
        )),
        None => Err(missing(&part.path("file_data"))),
    }
}

fn audio<'a>(part: &RequestObject<'a>, media: &Media) -> Result<ContentPart<'a>, Failure> {
    part.required("input_audio")?;
    let audio = part
        .object("input_audio")?
        .ok_or_else(|| missing(&part.path("input_audio")))?;
    let data = audio.required_text("data")?;
    let data = media.judge_content(data, MediaKind::Audio, || audio.path("data"))?;
    Ok(ContentPart::Audio {
        data,
        format: audio.required_text("format")?,
    })
}

#[cfg(test)]
mod tests {
    use crate::request::Rules;
    use crate::request::responses::{ResponsesMode, ResponsesRequest};
    use crate::wire::options::Options;
    use bytes::Bytes;
    use std::sync::Arc;

    #[test]
    fn fault_c34_every_address_in_a_part_is_judged() {
        let rules = Arc::new(Rules::default());
        let read = |part: &str| {
            let body = format!(r#"{{"input":[{{"role":"user","content":[{part}]}}]}}"#);
            let options = Options::default();
            ResponsesRequest::read_for(
                &Bytes::from(body),
                &options,
                ResponsesMode::Chat,
                None,
                &rules,
            )
            .map(|_| ())
            .map_err(|failure| (failure.code.unwrap().into_owned(), failure.param.unwrap()))
        };
        for (part, key) in [
            (r#"{"type":"input_image","image_url":"URL"}"#, "image_url"),
            (
                r#"{"type":"input_file","filename":"a","file_data":"URL"}"#,
                "file_data",
            ),
            (
                r#"{"type":"input_audio","input_audio":{"data":"URL","format":"wav"}}"#,
                "input_audio.data",
            ),
        ] {
            for (url, is_good) in [
                ("https://example.com/a", true),
                ("http://10.0.0.1/", false),
                ("file:///etc/passwd", false),
            ] {
                let param = format!("input[0].content[0].{key}");
                let expected = if is_good {
                    Ok(())
                } else {
                    Err(("forbidden_media_url".to_owned(), param))
                };
                assert_eq!(read(&part.replace("URL", url)), expected, "{part} {url}");
            }
        }
        assert_eq!(
            read(r#"{"type":"input_file","file_data":"iVBORw0="}"#),
            Ok(())
        );
    }
}
