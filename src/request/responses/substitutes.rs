//! Items of tools that the API names and a client runs itself (shell, patches, a search for tools), as the calls of
//! functions and the outputs that an engine can read (wire-format 4.3).
//!
//! Takes: one item's JSON. Gives: the call or the output that an engine gets instead. Remembers: nothing.

use super::item::{Item, ItemArguments};
use super::tools::TOOL_SEARCH;
use crate::json::{self, Raw, Text, compacted};
use crate::request::Rules;
use crate::request::object::RequestObject;
use crate::request::turn::ContentPart;
use crate::wire::event::ToolKind;
use crate::wire::fault::Failure;

/// Returns the call or the output that replaces an item; `None` if its type has none, or if the item lacks a member
/// that a call or an output needs. Fails on a member of the wrong type.
pub(super) fn substitute<'a>(
    item: &RequestObject<'a>,
    kind: &str,
    rules: &Rules,
) -> Result<Option<Item<'a>>, Failure> {
    match kind {
        "local_shell_call" => call(item, "local_shell", "action"),
        "shell_call" => call(item, "shell", "action"),
        "apply_patch_call" => call(item, "apply_patch", "operation"),
        "tool_search_call" if is_clients(item)? => call(item, TOOL_SEARCH, "arguments"),
        "local_shell_call_output" => {
            // The published schema has no `call_id` here: `id` is that of the call.
            let call = id(item, "call_id")?.map_or_else(|| id(item, "id"), |id| Ok(Some(id)))?;
            Ok(output(
                call,
                item.text("output")?.map(|text| text.decoded().into_owned()),
            ))
        }
        "shell_call_output" => Ok(output(
            id(item, "call_id")?,
            item.get("output").map(compacted),
        )),
        "apply_patch_call_output" => {
            let status = item
                .text("status")?
                .map(|status| status.decoded().into_owned());
            let log = item.text("output")?.filter(|log| !log.is_empty());
            let told = status.map(|status| match log {
                Some(log) => format!("{status}\n{}", log.decoded()),
                None => status,
            });
            Ok(output(id(item, "call_id")?, told))
        }
        "tool_search_output" if item.get("tools").is_some() => Ok(Some(Item::FoundTools {
            call: if is_clients(item)? {
                id(item, "call_id")?
            } else {
                None
            },
            tools: item.objects("tools", rules.caps.tools)?,
        })),
        _ => Ok(None),
    }
}

/// Returns the call of a tool that samewire has run, and its output; none if it has neither output nor error.
pub(super) fn ran<'a>(item: &RequestObject<'a>) -> Result<Vec<Item<'a>>, Failure> {
    let told = match (item.text("output")?, item.get("error")) {
        (Some(output), _) => output.decoded().into_owned(),
        (None, Some(error)) => error_text(error),
        (None, None) => return Ok(Vec::new()),
    };
    let id = item.required_name("id")?;
    let call = Item::Call {
        id,
        namespace: Some(item.required_name("server_label")?),
        name: item.required_name("name")?,
        arguments: ItemArguments::Text(item.required_text("arguments")?, ToolKind::Function),
    };
    Ok(std::iter::once(call)
        .chain(output(Some(id), Some(told)))
        .collect())
}

/// Returns what the model reads of an error: its message, its texts, or all of it.
fn error_text(error: Raw<'_>) -> String {
    let content = json::raw_member(error.get(), "content");
    let parts: Vec<Raw<'_>> = content
        .and_then(|content| json::read(content.get()).ok())
        .unwrap_or_default();
    let texts: Vec<_> = parts
        .iter()
        .filter_map(|part| json::member(part.get(), "text"))
        .collect();
    match json::member(error.get(), "message") {
        Some(message) => message,
        None if texts.is_empty() => compacted(error),
        None => texts.join("\n"),
    }
}

/// Returns true unless the service has run the search, whose tool no engine here is offered as a function.
fn is_clients(item: &RequestObject<'_>) -> Result<bool, Failure> {
    Ok(item.text("execution")?.is_none_or(|by| by == "client"))
}

/// Returns the call of a function with the object under `key` as its arguments.
fn call<'a>(
    item: &RequestObject<'a>,
    name: &'static str,
    key: &str,
) -> Result<Option<Item<'a>>, Failure> {
    let arguments = item.get(key).filter(|value| value.get().starts_with('{'));
    let call = |(id, arguments)| Item::Call {
        id,
        namespace: None,
        name: Text::plain(name),
        arguments: ItemArguments::Object(arguments),
    };
    Ok(id(item, "call_id")?.zip(arguments).map(call))
}

fn output<'a>(call: Option<Text<'a>>, told: Option<String>) -> Option<Item<'a>> {
    call.zip(told).map(|(call, told)| Item::Output {
        call,
        parts: vec![ContentPart::Generated(told)],
    })
}

fn id<'a>(item: &RequestObject<'a>, key: &str) -> Result<Option<Text<'a>>, Failure> {
    Ok(item.text(key)?.filter(|id| !id.is_empty()))
}
