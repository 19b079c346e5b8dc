//! Items of the input and of stored answers, parsed for conversion to a chat (wire-format 4.3).
//!
//! Takes: one item's JSON. Gives: an [`Item`], borrowed from it. Remembers: nothing.

use super::content::{self, ContentPlace};
use super::item::{Item, ItemArguments};
use super::substitutes::{ran, substitute};
use crate::json::{Raw, Text};
use crate::request::Rules;
use crate::request::check::list;
use crate::request::media::Media;
use crate::request::object::{RequestObject, alternatives};
use crate::request::parts;
use crate::request::refusals::{invalid, missing};
use crate::request::turn::Author;
use crate::wire::event::ToolKind;
use crate::wire::fault::Failure;

/// Item types of built-in tools and of the API itself, which a chat engine cannot receive.
const HOSTED: &[&str] = &[
    "file_search_call",
    "computer_call",
    "computer_call_output",
    "web_search_call",
    "tool_search_call",
    "tool_search_output",
    "image_generation_call",
    "code_interpreter_call",
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "compaction_trigger",
    "program",
    "program_output",
];

/// Maximum length of an id, in bytes, as the store can hold it.
const LONGEST_ID: usize = 512;

/// Parses an item; `path` is its place for error messages. Fails on an unknown type or a missing member.
pub(super) fn item<'a>(path: String, raw: Raw<'a>, rules: &Rules) -> Result<Item<'a>, Failure> {
    let item = RequestObject::of(path, raw)?;
    let kind = item.text("type")?.map(|kind| kind.decoded());
    if item
        .text("id")?
        .is_some_and(|id| id.decoded().len() > LONGEST_ID || id.decoded().contains('\0'))
    {
        return Err(invalid(
            item.path("id"),
            "it must have at most 512 bytes, and no NUL",
        ));
    }
    match kind.as_deref() {
        Some("message") => message(&item, &rules.media),
        None if item.get("role").is_some() => message(&item, &rules.media),
        None if item.get("id").is_some() => item.required_name("id").map(Item::Reference),
        None => Err(missing(&item.path("type"))),
        Some("item_reference") => item.required_name("id").map(Item::Reference),
        Some("reasoning") => reasoning(&item),
        Some("function_call") => call(&item, "arguments", ToolKind::Function),
        Some("custom_tool_call") => call(&item, "input", ToolKind::Custom),
        Some("function_call_output" | "custom_tool_call_output") => Ok(Item::Output {
            call: item.required_name("call_id")?,
            parts: content::parts(&item, "output", ContentPlace::Output, &rules.media)?,
        }),
        Some("additional_tools") => {
            item.required("tools")?;
            item.objects("tools", rules.caps.tools).map(Item::Tools)
        }
        Some("compaction") => item
            .required_text("encrypted_content")
            .map(Item::Compaction),
        Some(kind) => match HOSTED.iter().find(|hosted| **hosted == kind) {
            Some(kind) => match substitute(&item, kind, rules)? {
                // The engine knows this search as a function.
                Some(item @ Item::FoundTools { call: Some(_), .. }) => Ok(item),
                Some(item @ Item::Call { .. }) if *kind == "tool_search_call" => Ok(item),
                substitute => Ok(Item::Hosted {
                    kind,
                    raw: parts::hosted(raw, &rules.media, item.here())?,
                    substitutes: match *kind {
                        "mcp_call" if !rules.tools.0.is_empty() => ran(&item)?,
                        _ => substitute.into_iter().collect(),
                    },
                }),
            },
            None => Err(invalid(item.path("type"), "it must be the type of an item")),
        },
    }
}

fn message<'a>(item: &RequestObject<'a>, media: &Media) -> Result<Item<'a>, Failure> {
    let role = match item.required_text("role")?.decoded().as_ref() {
        "system" => Author::System,
        "developer" => Author::Developer,
        "user" => Author::User,
        "assistant" => Author::Assistant,
        _ => {
            let must = format!(
                "it must be {}",
                alternatives(&["system", "developer", "user", "assistant"])
            );
            return Err(invalid(item.path("role"), &must));
        }
    };
    Ok(Item::Message {
        role,
        parts: content::parts(item, "content", ContentPlace::Message, media)?,
    })
}

fn reasoning<'a>(item: &RequestObject<'a>) -> Result<Item<'a>, Failure> {
    Ok(Item::Reasoning {
        content: texts(item, "content", &["reasoning_text", "text"])?,
        sealed: item.text("encrypted_content")?,
        summary: texts(item, "summary", &["summary_text"])?,
    })
}

/// Returns the texts of a list of parts that must all be text.
fn texts<'a>(
    item: &RequestObject<'a>,
    key: &str,
    kinds: &[&str],
) -> Result<Vec<Text<'a>>, Failure> {
    let Some(raw) = item.get(key) else {
        return Ok(Vec::new());
    };
    let path = item.path(key);
    let mut texts = Vec::new();
    for (at, raw) in list(&path, raw, 10_000)?.into_iter().enumerate() {
        let part = RequestObject::of(format!("{path}[{at}]"), raw)?;
        part.word("type", kinds)?
            .ok_or_else(|| missing(&part.path("type")))?;
        texts.push(part.required_text("text")?);
    }
    Ok(texts)
}

fn call<'a>(item: &RequestObject<'a>, key: &str, kind: ToolKind) -> Result<Item<'a>, Failure> {
    Ok(Item::Call {
        id: item.required_name("call_id")?,
        namespace: item
            .text("namespace")?
            .filter(|namespace| !namespace.is_empty()),
        name: item.required_name("name")?,
        arguments: ItemArguments::Text(item.required_text(key)?, kind),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_at_most_512_bytes_and_no_nul() {
        let read = |id: &str| {
            let json = format!(r#"{{"role":"user","content":"x","id":"{id}"}}"#);
            let item = item(
                "input[0]".to_owned(),
                Raw::of(&json).unwrap(),
                &Rules::ANSWERED,
            );
            item.map(|_| ())
                .map_err(|failure| (failure.param.unwrap(), failure.message.into_owned()))
        };
        assert_eq!(read(&"x".repeat(512)), Ok(()));
        let message =
            "Invalid value for 'input[0].id': it must have at most 512 bytes, and no NUL.";
        for id in ["x".repeat(513), "é".repeat(257), r"a\u0000".to_owned()] {
            assert_eq!(
                read(&id),
                Err(("input[0].id".to_owned(), message.to_owned())),
                "{id}"
            );
        }
    }
}
