//! Changes of tools and of the choice among them, most of which return true if they altered the request
//! (engines E.2).

use super::adapt::RequestAdapter;
use crate::json::{self, Raw, quoted, raw_member};
use crate::request::{invalid, tool_name as name, unsupported_value};
use crate::wire::fault::Failure;
use std::collections::HashSet;

/// Members that are invalid without `tools`.
const BESIDE: [&str; 2] = ["tool_choice", "parallel_tool_calls"];

fn without_tools(adapter: &mut RequestAdapter<'_>) -> bool {
    BESIDE.iter().for_each(|key| _ = adapter.top.remove(key));
    adapter.top.remove("tools")
}

pub(super) fn empty(adapter: &mut RequestAdapter<'_>) -> bool {
    let is_empty = adapter
        .top
        .non_null("tools")
        .and_then(json::elements)
        .is_some_and(|mut tools| tools.next().is_none());
    is_empty && without_tools(adapter)
}

pub(super) fn choice_alone(adapter: &mut RequestAdapter<'_>) -> bool {
    adapter.top.non_null("tools").is_none()
        && adapter.top.non_null("tool_choice").is_some()
        && adapter.top.remove("tool_choice")
}

pub(super) fn choice_none(adapter: &mut RequestAdapter<'_>) -> bool {
    adapter.top.non_null("tools").is_some()
        && adapter.top.non_null("tool_choice") == Some("\"none\"")
        && without_tools(adapter)
}

/// Sets `tool_choice` to `none`, so that the engine leaves calls in the text, where samewire parses them.
pub(super) fn hide_calls(adapter: &mut RequestAdapter<'_>) {
    if adapter.request.may_call() && adapter.top.non_null("tools").is_some() {
        adapter.top.set("tool_choice", "\"none\"");
    }
}

/// Prepares a request whose calls are parsed from the text, even if a call is required: the model sees the named
/// tool, or all of them, and `tool_choice` becomes `none`.
pub(super) fn calls_in_text(adapter: &mut RequestAdapter<'_>) -> bool {
    if adapter.request.offered_tools.is_none() || adapter.top.non_null("tools").is_none() {
        return false;
    }
    let named = choice(adapter, "function").and_then(|function| json::member(function, "name"));
    if let Some(named) = named {
        let one = adapter
            .top
            .elements("tools")
            .find(|tool| name(tool.get()).as_ref() == Some(&named));
        if let Some(one) = one.map(|tool| format!("[{}]", tool.get())) {
            adapter.top.set("tools", one);
        }
    }
    adapter.top.set("tool_choice", "\"none\"");
    true
}

/// Converts the legacy members `functions` and `function_call` to `tools` and `tool_choice`.
pub(super) fn legacy(adapter: &mut RequestAdapter<'_>) -> bool {
    let Some(functions) = adapter.top.non_null("functions").and_then(json::elements) else {
        return adapter.top.non_null("function_call").is_some()
            && adapter.top.remove("function_call");
    };
    let choice =
        adapter
            .top
            .non_null("function_call")
            .map(|choice| match choice.starts_with('{') {
                true => format!("{{\"type\":\"function\",\"function\":{choice}}}"),
                false => choice.to_owned(),
            });
    // The newer form wins if the client sends both.
    if adapter.top.non_null("tools").is_none() {
        let mut tools = String::from("[");
        for function in functions {
            separate(&mut tools);
            tools.extend(["{\"type\":\"function\",\"function\":", function.get(), "}"]);
        }
        tools.push(']');
        adapter.top.remove("tools");
        adapter.top.set("tools", tools);
        if let Some(choice) = choice.filter(|_| adapter.top.non_null("tool_choice").is_none()) {
            adapter.top.remove("tool_choice");
            adapter.top.set("tool_choice", choice);
        }
    }
    adapter.top.remove("function_call");
    adapter.top.remove("functions")
}

/// Returns the object under the key `kind` in `tool_choice`, if the choice is an object of that type.
fn choice<'d>(adapter: &'d RequestAdapter<'_>, kind: &str) -> Option<&'d str> {
    let choice = adapter
        .top
        .non_null("tool_choice")
        .filter(|json| json.starts_with('{'))?;
    if json::member(choice, "type").as_deref() != Some(kind) {
        return None;
    }
    raw_member(choice, kind).map(Raw::get)
}

pub(super) fn allowed(adapter: &mut RequestAdapter<'_>) -> Result<bool, Failure> {
    let Some(allowed) = choice(adapter, "allowed_tools") else {
        return Ok(false);
    };
    const MODE: &str = "tool_choice.allowed_tools.mode";
    let mode = match json::member(allowed, "mode").as_deref() {
        Some("auto") => "\"auto\"",
        Some("required") => "\"required\"",
        _ => return Err(invalid(MODE, "it must be auto or required")),
    };
    let names = raw_member(allowed, "tools")
        .map(Raw::get)
        .and_then(json::elements)
        .into_iter()
        .flatten();
    let names: HashSet<_> = names.filter_map(|tool| name(tool.get())).collect();
    let tools = || adapter.top.elements("tools");
    let is_allowed = |tool: &Raw<'_>| name(tool.get()).is_some_and(|name| names.contains(&name));
    let (kept, all) = (tools().filter(is_allowed).count(), tools().count());
    if kept == 0 {
        let must = "it must name at least one of the tools";
        return Err(invalid("tool_choice.allowed_tools.tools", must));
    }
    if kept < all {
        let mut written = String::from("[");
        for tool in tools().filter(is_allowed) {
            separate(&mut written);
            written.push_str(tool.get());
        }
        written.push(']');
        adapter.top.set("tools", written);
    }
    adapter.top.set("tool_choice", mode);
    Ok(true)
}

pub(super) fn custom(adapter: &mut RequestAdapter<'_>) -> Result<bool, Failure> {
    let mut any = false;
    if let Some(name) = choice(adapter, "custom").and_then(|custom| json::member(custom, "name")) {
        let name = quoted(&name);
        adapter.top.set(
            "tool_choice",
            format!("{{\"type\":\"function\",\"function\":{{\"name\":{name}}}}}"),
        );
        any = true;
    }
    if adapter.request.custom_tools.is_empty() {
        return Ok(any);
    }
    let mut written = String::from("[");
    let mut count = 0;
    for (at, tool) in adapter.top.elements("tools").enumerate() {
        separate(&mut written);
        match raw_member(tool.get(), "custom") {
            Some(custom) => {
                count += 1;
                function(custom.get(), at, &mut written)?;
            }
            None => written.push_str(tool.get()),
        }
    }
    if count > 0 {
        written.push(']');
        adapter.top.set("tools", written);
    }
    Ok(any || count > 0)
}

/// Appends a comma unless `list` is still empty after its opening bracket.
fn separate(list: &mut String) {
    if list.len() > 1 {
        list.push(',');
    }
}

/// Writes a custom tool as a function with one string parameter. Fails on a tool whose input format is a grammar.
fn function(custom: &str, at: usize, out: &mut String) -> Result<(), Failure> {
    let format = raw_member(custom, "format").and_then(|format| json::member(format.get(), "type"));
    if format.is_some_and(|format| format != "text") {
        let param = format!("tools[{at}].custom.format");
        return Err(unsupported_value(
            param,
            "the engine cannot keep a tool's input to a grammar",
        ));
    }
    let name = json::member(custom, "name").unwrap_or_default();
    out.extend([
        "{\"type\":\"function\",\"function\":{\"name\":",
        &quoted(&name),
    ]);
    if let Some(told) = raw_member(custom, "description")
        .map(Raw::get)
        .filter(|json| *json != "null")
    {
        out.extend([",\"description\":", told]);
    }
    out.extend([",\"parameters\":", INPUT, "}}"]);
    Ok(())
}

/// Parameter schema of a converted custom tool: an object with one string, `input`.
const INPUT: &str = r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}"#;
