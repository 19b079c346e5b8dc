//! Changes of messages, each of which returns true if it altered the request (engines E.3).

use super::adapt::{AdaptedMessage, RequestAdapter, joined};
use super::object_edit::ObjectEdit;
use crate::json::{self, Members, Raw, Text, quoted, raw_member};
use crate::request::fields::{Edits, place};
use crate::request::responses::arguments as object_of;
use crate::wire::event::ToolKind;
use crate::wire::options::DeveloperRole;
use bytes::Bytes;

const ASSISTANT: &str = "\"assistant\"";

/// Applies `change` to every message, and returns true if it altered any of them.
fn any<'m, 't: 'm>(
    messages: impl Iterator<Item = &'m mut AdaptedMessage<'t>>,
    mut change: impl FnMut(&mut AdaptedMessage<'t>) -> bool,
) -> bool {
    let mut any = false;
    messages.for_each(|message| any |= change(message));
    any
}

/// Renames the role `developer` to `system`. gpt-oss is exempt unless `always`: it supports the role and keeps it
/// apart from its system message.
pub(super) fn developer(adapter: &mut RequestAdapter<'_>, always: bool) -> bool {
    // Roles in a body generated from Responses items already follow the options.
    let is_configured = adapter.options.developer_role == DeveloperRole::System
        && !adapter.request.is_gpt_oss()
        && !adapter.is_generated;
    if !(always || is_configured) {
        return false;
    }
    let renamed = any(adapter.of_role("\"developer\""), |message| {
        message.edit.set("role", "\"system\"");
        true
    });
    if renamed {
        join_leading(adapter);
    }
    renamed
}

/// Joins the system and developer messages at the beginning into one, since many chat templates allow only a
/// single one there.
fn join_leading(adapter: &mut RequestAdapter<'_>) {
    let all = adapter.all_messages();
    let mut texts = Vec::new();
    for message in &all {
        let Some(members) = Members::of(message.get()) else {
            break;
        };
        if !matches!(
            members.get("role").map(Raw::get),
            Some("\"system\"" | "\"developer\"")
        ) {
            break;
        }
        match members
            .get("content")
            .and_then(|content| joined(content.get(), "\n"))
        {
            Some(text) if members.0.len() == 2 => texts.push(text),
            _ => return,
        }
    }
    let Some([first, .., last]) = all.get(..texts.len()) else {
        return;
    };
    let range = place(adapter.text, first.get()).start..place(adapter.text, last.get()).end;
    adapter.messages.retain(|message| message.at >= texts.len());
    let text = texts.join("\\n\\n");
    adapter.edits.replace(
        range,
        format!("{{\"role\":\"system\",\"content\":\"{text}\"}}"),
    );
}

/// Merges the texts of all system and developer messages into one system message, the first, separated by blank
/// lines (wire-format 2.10). Leaves the request unchanged if the only such message already comes first, or if one
/// of them has content other than text.
pub(super) fn merge_system(adapter: &mut RequestAdapter<'_>) -> bool {
    let all = adapter.all_messages();
    let (mut texts, mut merged) = (Vec::new(), Vec::new());
    let mut is_in_order = true;
    for (at, message) in all.iter().enumerate() {
        let Some(members) = Members::of(message.get()) else {
            return false;
        };
        let role = members
            .get("role")
            .and_then(Text::of)
            .map(|role| role.decoded())
            .unwrap_or_default();
        if !matches!(role.as_ref(), "system" | "developer") {
            continue;
        }
        let content = members
            .get("content")
            .filter(|content| content.get() != "null");
        match content.map_or_else(
            || Some(String::new()),
            |content| joined(content.get(), "\n"),
        ) {
            Some(text) => texts.push(text),
            None => return false,
        }
        is_in_order &= at == 0 && role == "system";
        merged.push(at);
    }
    let Some(first) = all.first().filter(|_| !is_in_order) else {
        return false;
    };
    texts.retain(|text| !text.is_empty());
    let message = format!(
        "{{\"role\":\"system\",\"content\":\"{}\"}}",
        texts.join("\\n\\n")
    );
    let first = place(adapter.text, first.get());
    match merged.first() == Some(&0) {
        true => adapter.edits.replace(first, message),
        false => adapter
            .edits
            .replace(first.start..first.start, format!("{message},")),
    }
    for at in merged.iter().copied().filter(|at| *at > 0) {
        // Each message goes together with the comma before it.
        let Some([before, this]) = all.get(at - 1..=at) else {
            continue;
        };
        adapter.edits.replace(
            place(adapter.text, before.get()).end..place(adapter.text, this.get()).end,
            "",
        );
    }
    adapter
        .messages
        .retain(|message| !merged.contains(&message.at));
    true
}

/// Converts the legacy role `function` and `function_call` members to tools. A result gets the id generated for
/// the call that it answers.
pub(super) fn legacy(adapter: &mut RequestAdapter<'_>) -> bool {
    let mut last = None;
    any(adapter.messages.iter_mut(), |message| {
        if message.role == ASSISTANT && message.edit.non_null("tool_calls").is_none() {
            let Some(call) = message
                .edit
                .non_null("function_call")
                .map(ToOwned::to_owned)
            else {
                return false;
            };
            // Nine letters and digits: some tokenizers accept no other ids.
            let id = format!("call{:05}", message.at % 100_000);
            let json = format!("[{{\"id\":\"{id}\",\"type\":\"function\",\"function\":{call}}}]");
            message.edit.remove("function_call");
            message.edit.set("tool_calls", json);
            last = Some(id);
            return true;
        }
        if message.role != "\"function\"" {
            return false;
        }
        message.edit.set("role", "\"tool\"");
        if message.edit.non_null("tool_call_id").is_none() {
            let id = last
                .clone()
                .unwrap_or_else(|| format!("call{:05}", message.at % 100_000));
            message.edit.set("tool_call_id", quoted(&id));
        }
        true
    })
}

/// Renames the reasoning member of assistant messages to the key that the engine reads (wire-format 2.4).
pub(super) fn reasoning_key(adapter: &mut RequestAdapter<'_>, key: &'static str) -> bool {
    let other = if key == "reasoning" {
        "reasoning_content"
    } else {
        "reasoning"
    };
    any(adapter.of_role(ASSISTANT), |message| {
        let edit = &mut message.edit;
        let is_there = edit.get(other).is_some();
        let says = |key: &str| {
            edit.non_null(key)
                .is_some_and(|reasoning| reasoning != "\"\"")
        };
        // An empty string counts as absent, so the other key wins.
        let is_told = says(key) || edit.get(key).is_some() && !says(other);
        match is_there {
            true if is_told => _ = edit.remove(other),
            true => {
                edit.remove(key);
                edit.rename(other, key);
            }
            false => {}
        }
        is_there
    })
}

pub(super) fn drop_of_assistant(adapter: &mut RequestAdapter<'_>, keys: &[&str]) -> bool {
    any(adapter.of_role(ASSISTANT), |message| {
        keys.iter().filter(|key| message.edit.remove(key)).count() > 0
    })
}

fn has_calls(message: &AdaptedMessage<'_>) -> bool {
    message.edit.elements("tool_calls").next().is_some()
}

pub(super) fn no_calls(adapter: &mut RequestAdapter<'_>) -> bool {
    any(adapter.of_role(ASSISTANT), |message| {
        !has_calls(message) && message.edit.remove("tool_calls")
    })
}

pub(super) fn content_beside_calls(adapter: &mut RequestAdapter<'_>) -> bool {
    any(adapter.of_role(ASSISTANT), |message| {
        let is_alone = message.edit.get("content").is_none() && has_calls(message);
        if is_alone {
            message.edit.set("content", "\"\"");
        }
        is_alone
    })
}

/// Replaces tool calls in assistant messages, or parts of them: `change` returns, for each call, the slice to
/// replace and its replacement. Returns true if anything was replaced.
fn each_call(
    adapter: &mut RequestAdapter<'_>,
    change: impl for<'c> Fn(Raw<'c>) -> Option<(Raw<'c>, String)>,
) -> bool {
    let RequestAdapter {
        messages,
        edits,
        text,
        ..
    } = adapter;
    any(
        messages
            .iter_mut()
            .filter(|message| message.role == ASSISTANT),
        |message| {
            let Some(json) = message.edit.original("tool_calls") else {
                return each_rewritten_call(&mut message.edit, &change);
            };
            let mut any = false;
            for (part, becomes) in json::elements(json)
                .into_iter()
                .flatten()
                .filter_map(&change)
            {
                edits.replace(place(text, part.get()), becomes);
                any = true;
            }
            any
        },
    )
}

/// Replaces parts of calls that an earlier rule has rewritten: their offsets are not offsets in the body.
fn each_rewritten_call(
    edit: &mut ObjectEdit<'_>,
    change: impl for<'c> Fn(Raw<'c>) -> Option<(Raw<'c>, String)>,
) -> bool {
    let Some(json) = edit.non_null("tool_calls") else {
        return false;
    };
    let mut edits = Edits::default();
    for (part, becomes) in json::elements(json)
        .into_iter()
        .flatten()
        .filter_map(change)
    {
        edits.replace(place(json, part.get()), becomes);
    }
    let any = !edits.is_empty();
    if any {
        let changed = edits.apply(&Bytes::copy_from_slice(json.as_bytes()));
        edit.set("tool_calls", String::from_utf8_lossy(&changed));
    }
    any
}

pub(super) fn arguments(adapter: &mut RequestAdapter<'_>) -> bool {
    each_call(adapter, |call| {
        let raw = raw_member(raw_member(call.get(), "function")?.get(), "arguments")?;
        let said = Text::of(raw)?;
        let object = object_of(said, ToolKind::Function);
        (object != said.decoded()).then(|| (raw, quoted(&object)))
    })
}

/// Converts calls of custom tools in assistant messages to function calls, the form in which the engine knows
/// these tools.
pub(super) fn custom(adapter: &mut RequestAdapter<'_>) -> bool {
    each_call(adapter, |call| {
        let custom = raw_member(call.get(), "custom").filter(|custom| custom.get() != "null")?;
        let input = raw_member(custom.get(), "input")
            .and_then(Text::of)
            .unwrap_or_default();
        let name = json::member(custom.get(), "name").unwrap_or_default();
        let id = raw_member(call.get(), "id").map_or("\"\"", Raw::get);
        let function = format!(
            "{{\"id\":{id},\"type\":\"function\",\"function\":{{\"name\":{},\"arguments\":{}}}}}",
            quoted(&name),
            quoted(&object_of(input, ToolKind::Custom))
        );
        Some((call, function))
    })
}

/// Adds the members that make the engine continue the last assistant message. Applies only if that message is text
/// and the model uses a chat template.
pub(super) fn continue_final_message(
    adapter: &mut RequestAdapter<'_>,
    members: &[(&str, &str)],
    items: bool,
) -> bool {
    if adapter.request.is_gpt_oss() || adapter.is_generated && !items {
        return false;
    }
    let places = &adapter.request.places;
    let list = places
        .messages
        .clone()
        .and_then(|at| adapter.text.get(at))
        .unwrap_or("");
    let Some(last) = adapter
        .messages
        .last()
        .filter(|last| last.role == ASSISTANT)
    else {
        return false;
    };
    // `messages` holds only structured messages: the check finds out whether it is the last of the whole list.
    let end = last.edit.end() + 1;
    let after = places
        .messages
        .clone()
        .and_then(|at| adapter.text.get(end..at.end))
        .unwrap_or("");
    let has_text = last
        .edit
        .non_null("content")
        .is_some_and(|content| content != "\"\"" && content != "[]");
    let is_last = !list.is_empty() && after.trim_start() == "]";
    if !is_last || !has_text || has_calls(last) {
        return false;
    }
    if members
        .iter()
        .any(|(key, _)| adapter.top.non_null(key).is_some())
    {
        return false;
    }
    members
        .iter()
        .for_each(|(key, json)| adapter.top.set(key, *json));
    true
}
