//! Content blocks that become parts of a chat message: text, images, documents and search results (messages 3.3).
//!
//! Takes: a block with its path. Gives: a part, or the failure that names the block. Never: drops a block unless an
//! option says so.

use super::refuse;
use crate::json::{Raw, Text};
use crate::request::check::list;
use crate::request::media::{Address, Media, MediaKind};
use crate::request::object::RequestObject;
use crate::request::refusals::{invalid, shown};
use crate::request::turn::ContentPart;
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::UnsupportedContent;
use bytes::BytesMut;
use std::borrow::Cow;

/// Maximum number of blocks in one message.
const MOST: usize = 10_000;

/// Block of a message, with its type.
pub(super) struct Block<'a> {
    pub(super) object: RequestObject<'a>,
    pub(super) kind: Cow<'a, str>,
}

/// Content as a client may write it.
pub(super) enum BlockContent<'a> {
    Text(Text<'a>),
    Blocks(Vec<Block<'a>>),
}

/// Reads the content of a message, of a tool's result or of the system prompt, found at `path`.
pub(super) fn content<'a>(path: &str, raw: Raw<'a>) -> Result<BlockContent<'a>, Failure> {
    if let Some(text) = Text::of(raw) {
        return Ok(BlockContent::Text(text));
    }
    if !raw.get().starts_with('[') {
        return Err(invalid(path, "it must be a string or a list of blocks"));
    }
    let all = list(path, raw, MOST)?.into_iter().enumerate();
    let blocks = all.map(|(at, raw)| {
        let object = RequestObject::of(format!("{path}.{at}"), raw)?;
        let kind = object.required_text("type")?.decoded();
        Ok(Block { object, kind })
    });
    blocks.collect::<Result<_, _>>().map(BlockContent::Blocks)
}

/// Reader of blocks that become parts.
pub(super) struct BlockReader<'r> {
    pub(super) media: &'r Media,
    pub(super) unsupported: UnsupportedContent,
    /// Blocks that were left out.
    pub(super) dropped: &'r mut Vec<String>,
}

impl BlockReader<'_> {
    /// Reads a block as a part; `None` if no engine can read it and the option says to drop it.
    pub(super) fn part<'a>(
        &mut self,
        block: &Block<'a>,
    ) -> Result<Option<ContentPart<'a>>, Failure> {
        match part(block, self.media) {
            Err(failure) if failure.fault == Fault::UnsupportedValue => match self.unsupported {
                UnsupportedContent::Drop => {
                    self.dropped
                        .push(format!("{}.{}", block.object.here(), shown(&block.kind)));
                    Ok(None)
                }
                UnsupportedContent::Reject => {
                    let message = format!(
                        "{}; unsupported_content = \"drop\" leaves such blocks out",
                        failure.message
                    );
                    Err(failure.with_message(message))
                }
            },
            part => part.map(Some),
        }
    }
}

/// Reads a block that becomes a part. Fails with [`Fault::UnsupportedValue`] on a block that no engine can read.
pub(super) fn part<'a>(block: &Block<'a>, media: &Media) -> Result<ContentPart<'a>, Failure> {
    let Block { object, kind } = block;
    match kind.as_ref() {
        "text" => object.required_text("text").map(ContentPart::Text),
        "image" => image(object, media),
        "document" => document(object),
        "search_result" => search_result(object),
        kind => {
            let why = format!("`{}` blocks are not supported", shown(kind));
            Err(refuse(Fault::UnsupportedValue, object.path("type"), &why))
        }
    }
}

fn image<'a>(object: &RequestObject<'a>, media: &Media) -> Result<ContentPart<'a>, Failure> {
    let source = source(object)?;
    let param = |key: &str| source.path(key);
    let address = match source.required_text("type")?.decoded().as_ref() {
        "base64" => {
            let kind = source.required_text("media_type")?.decoded();
            format!(
                "data:{kind};base64,{}",
                source.required_text("data")?.decoded()
            )
        }
        "url" => source.required_text("url")?.decoded().into_owned(),
        other => {
            let why = format!("{} images are not supported", shown(other));
            return Err(refuse(Fault::InvalidValue, param("type"), &why));
        }
    };
    let address = match media.judge(Text::plain(&address), MediaKind::Image, || param("url"))? {
        Address::Unchanged(_) => address,
        rewritten @ Address::Rewritten(..) => {
            let mut spelled = BytesMut::new();
            rewritten.write(&mut spelled);
            Text::json(&String::from_utf8_lossy(&spelled))
                .decoded()
                .into_owned()
        }
    };
    Ok(ContentPart::Image {
        url: Address::Rewritten(address, Text::default()),
        detail: None,
    })
}

fn source<'a>(object: &RequestObject<'a>) -> Result<RequestObject<'a>, Failure> {
    object.required("source")?;
    object
        .object("source")?
        .ok_or_else(|| invalid(object.path("source"), "it must be an object"))
}

/// Reads a document of text: its title, its context and its text, each on its own line.
fn document<'a>(object: &RequestObject<'a>) -> Result<ContentPart<'a>, Failure> {
    let source = source(object)?;
    let text = match source.required_text("type")?.decoded().as_ref() {
        "text" => source.required_text("data")?.decoded().into_owned(),
        "content" => texts(&source, "content")?,
        other => {
            let why = format!("{} documents are not supported", shown(other));
            return Err(refuse(Fault::UnsupportedValue, source.path("type"), &why));
        }
    };
    joined(object, &["title", "context"], text)
}

fn search_result<'a>(object: &RequestObject<'a>) -> Result<ContentPart<'a>, Failure> {
    let text = texts(object, "content")?;
    joined(object, &["title", "source"], text)
}

/// Returns a part of the named members and a text, each on its own line.
fn joined<'a>(
    object: &RequestObject<'a>,
    keys: &[&str],
    text: String,
) -> Result<ContentPart<'a>, Failure> {
    let mut lines = Vec::new();
    for key in keys {
        lines.extend(object.text(key)?.map(|text| text.decoded().into_owned()));
    }
    lines.push(text);
    Ok(ContentPart::Generated(lines.join("\n")))
}

/// Returns the text blocks of a member, each on its own line.
fn texts(object: &RequestObject<'_>, key: &str) -> Result<String, Failure> {
    let blocks = match content(&object.path(key), object.required(key)?)? {
        BlockContent::Text(text) => return Ok(text.decoded().into_owned()),
        BlockContent::Blocks(blocks) => blocks,
    };
    let text = |block: &Block<'_>| match block.kind.as_ref() {
        "text" => block
            .object
            .required_text("text")
            .map(|text| text.decoded().into_owned()),
        kind => {
            let why = format!("`{}` blocks are not supported here", shown(kind));
            Err(refuse(
                Fault::UnsupportedValue,
                block.object.path("type"),
                &why,
            ))
        }
    };
    let all: Vec<_> = blocks.iter().map(text).collect::<Result<_, _>>()?;
    Ok(all.join("\n"))
}

/// Returns the texts of parts, each on its own line.
pub(super) fn joined_text(parts: &[ContentPart<'_>]) -> String {
    let texts = parts
        .iter()
        .map(|part| part.text(false).unwrap_or_default().decoded().into_owned());
    texts.collect::<Vec<_>>().join("\n")
}
