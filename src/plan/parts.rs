//! Changes of the content parts of messages, such as images, files and tool results (engines E.3).

use super::adapt::{AdaptedMessage, RequestAdapter, joined, joined_parts};
use super::files;
use super::object_edit::ObjectEdit;
use crate::engine::rule::Becomes;
use crate::json::{self, Raw, Text};
use crate::request::fields::{self, Edits, MemberSpan, place};
use crate::request::unsupported_value;
use crate::wire::fault::Failure;

/// Flattens the content parts of tool results into one string, separated by line breaks. Returns true if any
/// message changed.
pub(super) fn tool_text(adapter: &mut RequestAdapter<'_>) -> bool {
    let mut any = false;
    for message in adapter
        .messages
        .iter_mut()
        .filter(|message| message.role == "\"tool\"")
    {
        let content = message
            .edit
            .non_null("content")
            .filter(|content| content.starts_with('['));
        let Some(text) = content.and_then(|content| joined(content, "\n")) else {
            continue;
        };
        message.edit.set("content", format!("\"{text}\""));
        any = true;
    }
    any
}

/// Converts or refuses all content parts of type `kind` in structured messages. Fails if the engine supports no
/// such parts.
pub(super) fn part(
    adapter: &mut RequestAdapter<'_>,
    kind: &str,
    becomes: Becomes,
) -> Result<bool, Failure> {
    let RequestAdapter {
        messages,
        edits,
        text,
        is_generated,
        ..
    } = adapter;
    let mut any = false;
    for message in messages.iter_mut() {
        let at = message.at;
        any |= convert_in_message(message, kind, becomes, text, edits).map_err(|part| {
            // The messages of a Responses request are generated from its items, which have other places.
            let (param, kind) = match is_generated {
                true => ("input".to_owned(), "input_file"),
                false => (format!("messages[{at}].content[{part}].type"), kind),
            };
            let fate = match becomes {
                Becomes::FileText => ", and this one is neither text nor a file of /v1/files",
                _ => "",
            };
            unsupported_value(
                param,
                &format!("the engine takes no parts of type {kind}{fate}"),
            )
        })?;
    }
    Ok(any)
}

/// Flattens content into one string if all of its parts are text or of type `kind`, whose text is under `key`.
/// Returns true on success.
fn flatten(message: &mut AdaptedMessage<'_>, kind: &str, key: &str) -> bool {
    let between = if message.role == "\"assistant\"" {
        ""
    } else {
        "\n"
    };
    let text = message.edit.original("content").and_then(|content| {
        joined_parts(content, between, |part| {
            let own =
                json::member(part.get(), "type").filter(|own| own == "text" || own == kind)?;
            Text::of(json::raw_member(
                part.get(),
                if own == kind { key } else { "text" },
            )?)
        })
    });
    if let Some(text) = &text {
        message.edit.set("content", format!("\"{text}\""));
    }
    text.is_some()
}

/// Converts the parts of one message. Returns true if there were any, or the index of the part that the engine does
/// not support.
fn convert_in_message(
    message: &mut AdaptedMessage<'_>,
    kind: &str,
    becomes: Becomes,
    text: &str,
    edits: &mut Edits,
) -> Result<bool, usize> {
    let content = message
        .edit
        .original("content")
        .filter(|content| content.starts_with('['));
    // Search the bytes before parsing: most messages have no part of this kind.
    let Some(content) = content.filter(|content| content.contains(kind)) else {
        return Ok(false);
    };
    let quoted = format!("\"{kind}\"");
    let has_it = |part: Raw<'_>| json::member(part.get(), "type").as_deref() == Some(kind);
    if !json::elements(content).into_iter().flatten().any(has_it) {
        return Ok(false);
    }
    if let Becomes::Text(key) = becomes
        && flatten(message, kind, key)
    {
        return Ok(true);
    }
    let mut any = false;
    for (at, part) in json::elements(content).into_iter().flatten().enumerate() {
        let Ok(members) = fields::read_part(part.get()) else {
            continue;
        };
        let is_it = |key: &str| {
            members
                .iter()
                .any(|member| member.key == "type" && member.value.get() == key)
        };
        if !is_it(&quoted) {
            continue;
        }
        if becomes == Becomes::FileText {
            edits.replace(place(text, part.get()), files::text_part(part).ok_or(at)?);
            any = true;
            continue;
        }
        let spans: Vec<_> = members
            .iter()
            .map(|member| MemberSpan::of(member, text))
            .collect();
        let mut edit = ObjectEdit::new(text, spans, place(text, part.get()).end - 1);
        match becomes {
            Becomes::Text(key) => {
                edit.set("type", "\"text\"");
                if key != "text" {
                    edit.rename(key, "text");
                }
            }
            Becomes::ImageUrl => image(&mut edit, edits, text),
            Becomes::FileText => {}
        }
        edit.finish(edits);
        any = true;
    }
    Ok(any)
}

/// Moves a bare image address into the object that `image_url` requires, together with its `detail`.
fn image(edit: &mut ObjectEdit<'_>, edits: &mut Edits, text: &str) {
    edit.set("type", "\"image_url\"");
    let Some(address) = edit
        .original("image_url")
        .filter(|address| address.starts_with('"'))
    else {
        return;
    };
    let detail = edit.non_null("detail").map(ToOwned::to_owned);
    edit.remove("detail");
    let at = place(text, address);
    // Insert around the address, which another edit may rewrite.
    edits.replace(at.start..at.start, "{\"url\":");
    let detail = detail.map_or_else(String::new, |detail| format!(",\"detail\":{detail}"));
    edits.replace(at.end..at.end, format!("{detail}}}"));
}
