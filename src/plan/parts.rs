//! Changes of the parts of messages (engine-quirks E.3).

use super::draft::Draft;
use super::fit::{Fit, Message, unsupported};
use super::messages::joined;
use crate::engine::rule::Becomes;
use crate::json::{self, Raw, Text};
use crate::request::fields::{self, Edits, Spot, place};
use crate::wire::fault::Failure;
use bytes::BytesMut;

/// The text of a tool's answer as one string.
pub(super) fn tool_text(fit: &mut Fit<'_>) -> bool {
    let mut any = false;
    for message in fit.messages.iter_mut().filter(|message| message.role == "\"tool\"") {
        let content = message.draft.said("content").filter(|content| content.starts_with('['));
        let Some(text) = content.and_then(|content| joined(content, "\n")) else { continue };
        message.draft.set("content", format!("\"{text}\""));
        any = true;
    }
    any
}

/// Changes the parts of this type.
pub(super) fn part(fit: &mut Fit<'_>, kind: &str, becomes: Becomes) -> Result<bool, Failure> {
    // The file of an item is a file of the chat (wire-format 4.3).
    if fit.items && becomes == Becomes::Refused {
        return Ok(false);
    }
    let Fit { messages, edits, text, .. } = fit;
    let mut any = false;
    for message in messages.iter_mut() {
        any |= within(message, kind, becomes, text, edits)?;
    }
    Ok(any)
}

/// What becomes text is one string with the text beside it, if there is nothing else.
fn flat(message: &mut Message<'_>, kind: &str, key: &str) -> bool {
    let between = if message.role == "\"assistant\"" { "" } else { "\n" };
    let text = message.draft.original("content").and_then(|content| {
        let mut out = BytesMut::new();
        for (at, part) in Fit::list(content)?.enumerate() {
            if at > 0 {
                Text::plain(between).write(&mut out);
            }
            let own = json::member(part.get(), "type").filter(|own| own == "text" || own == kind)?;
            let key = if own == kind { key } else { "text" };
            Text::of(json::raw_member(part.get(), key)?)?.write(&mut out);
        }
        String::from_utf8(out.to_vec()).ok()
    });
    if let Some(text) = &text {
        message.draft.set("content", format!("\"{text}\""));
    }
    text.is_some()
}

fn within(
    message: &mut Message<'_>,
    kind: &str,
    becomes: Becomes,
    text: &str,
    edits: &mut Edits,
) -> Result<bool, Failure> {
    let content = message.draft.original("content").filter(|content| content.starts_with('['));
    // A look at the bytes first: most parts are those that everybody knows.
    let Some(content) = content.filter(|content| content.contains(kind)) else { return Ok(false) };
    let quoted = format!("\"{kind}\"");
    let has_it = |part: Raw<'_>| json::member(part.get(), "type").as_deref() == Some(kind);
    if !Fit::list(content).into_iter().flatten().any(has_it) {
        return Ok(false);
    }
    if let Becomes::Text(key) = becomes
        && flat(message, kind, key)
    {
        return Ok(true);
    }
    let mut any = false;
    for (at, part) in Fit::list(content).into_iter().flatten().enumerate() {
        let Ok(members) = fields::read(text, part.get()) else { continue };
        let is_it =
            |key: &str| members.iter().any(|member| member.key == "type" && member.value.get() == key);
        if !is_it(&quoted) {
            continue;
        }
        let spots: Vec<_> = members.iter().map(Spot::from).collect();
        let mut draft = Draft::new(text, spots, place(text, part.get()).end - 1);
        match becomes {
            Becomes::Text(key) => {
                draft.set("type", "\"text\"");
                if key != "text" {
                    draft.rename(key, "text");
                }
            }
            Becomes::ImageUrl => image(&mut draft, edits, text),
            Becomes::Refused => {
                let param = format!("messages[{}].content[{at}].type", message.at);
                return Err(unsupported(param, &format!("the engine takes no parts of type {kind}")));
            }
        }
        draft.finish(edits);
        any = true;
    }
    Ok(any)
}

/// The address goes into an object, and how closely to look at it goes along.
fn image(draft: &mut Draft<'_>, edits: &mut Edits, text: &str) {
    draft.set("type", "\"image_url\"");
    let Some(address) = draft.original("image_url").filter(|address| address.starts_with('"')) else {
        return;
    };
    let detail = draft.said("detail").map(ToOwned::to_owned);
    draft.remove("detail");
    let at = place(text, address);
    // Around the address, which may be spelled anew itself.
    edits.replace(at.start..at.start, "{\"url\":");
    let detail = detail.map_or_else(String::new, |detail| format!(",\"detail\":{detail}"));
    edits.replace(at.end..at.end, format!("{detail}}}"));
}
