//! Changes of tools and of the choice among them (engine-quirks E.2).

use super::fit::{Fit, unsupported};
use super::settings::quoted;
use crate::json::{self, Raw, raw_member};
use crate::request::{invalid, tool_name as name};
use crate::wire::fault::Failure;

/// What goes with tools.
const BESIDE: [&str; 2] = ["tool_choice", "parallel_tool_calls"];

fn without_tools(fit: &mut Fit<'_>) -> bool {
    BESIDE.iter().for_each(|key| _ = fit.top.remove(key));
    fit.top.remove("tools")
}

pub(super) fn empty(fit: &mut Fit<'_>) -> bool {
    let is_empty = fit.top.said("tools").and_then(Fit::list).is_some_and(|tools| tools.is_empty());
    is_empty && without_tools(fit)
}

pub(super) fn choice_alone(fit: &mut Fit<'_>) -> bool {
    fit.top.said("tools").is_none() && fit.top.said("tool_choice").is_some() && fit.top.remove("tool_choice")
}

pub(super) fn choice_none(fit: &mut Fit<'_>) -> bool {
    fit.top.said("tools").is_some() && fit.top.said("tool_choice") == Some("\"none\"") && without_tools(fit)
}

/// The engine is told that nothing is called: what the model calls is read in its text.
pub(super) fn hide_calls(fit: &mut Fit<'_>) {
    if fit.ask.may_call() && fit.top.said("tools").is_some() {
        fit.top.set("tool_choice", "\"none\"");
    }
}

/// Plans a request whose calls are read from the text, also where a call is required: the model sees the named tool, or all of
/// them.
pub(super) fn calls_in_text(fit: &mut Fit<'_>) -> bool {
    if fit.ask.callable.is_none() || fit.top.said("tools").is_none() {
        return false;
    }
    let named = choice(fit, "function").and_then(|function| json::member(function, "name"));
    if let Some(named) = named {
        let tools = fit.top.said("tools").and_then(Fit::list).unwrap_or_default();
        let one = tools.iter().find(|tool| name(tool.get()).as_ref() == Some(&named));
        if let Some(one) = one.map(|tool| format!("[{}]", tool.get())) {
            fit.top.set("tools", one);
        }
    }
    fit.top.set("tool_choice", "\"none\"");
    true
}

/// `functions` and `function_call`, as tools say it.
pub(super) fn legacy(fit: &mut Fit<'_>) -> bool {
    let Some(functions) = fit.top.said("functions").and_then(Fit::list) else {
        return fit.top.said("function_call").is_some() && fit.top.remove("function_call");
    };
    let tool = |function: &Raw<'_>| format!("{{\"type\":\"function\",\"function\":{function}}}");
    let tools: Vec<_> = functions.iter().map(tool).collect();
    let choice = fit.top.said("function_call").map(|choice| match choice.starts_with('{') {
        true => format!("{{\"type\":\"function\",\"function\":{choice}}}"),
        false => choice.to_owned(),
    });
    // Who says it both ways means the newer one.
    if fit.top.said("tools").is_none() {
        fit.top.remove("tools");
        fit.top.set("tools", format!("[{}]", tools.join(",")));
        if let Some(choice) = choice.filter(|_| fit.top.said("tool_choice").is_none()) {
            fit.top.remove("tool_choice");
            fit.top.set("tool_choice", choice);
        }
    }
    fit.top.remove("function_call");
    fit.top.remove("functions")
}

/// The choice as a type and what stands under the key of that name.
fn choice<'d>(fit: &'d Fit<'_>, kind: &str) -> Option<&'d str> {
    let choice = fit.top.said("tool_choice").filter(|json| json.starts_with('{'))?;
    if json::member(choice, "type").as_deref() != Some(kind) {
        return None;
    }
    raw_member(choice, kind).map(Raw::get)
}

pub(super) fn allowed(fit: &mut Fit<'_>) -> Result<bool, Failure> {
    let Some(allowed) = choice(fit, "allowed_tools") else { return Ok(false) };
    const MODE: &str = "tool_choice.allowed_tools.mode";
    let mode = match json::member(allowed, "mode").as_deref() {
        Some("auto") => "\"auto\"",
        Some("required") => "\"required\"",
        _ => return Err(invalid(MODE, "it must be auto or required")),
    };
    let names: Vec<_> = raw_member(allowed, "tools").map(Raw::get).and_then(Fit::list).unwrap_or_default();
    let names: Vec<_> = names.iter().filter_map(|tool| name(tool.get())).collect();
    let tools = fit.top.said("tools").and_then(Fit::list).unwrap_or_default();
    let is_allowed = |tool: &&Raw<'_>| name(tool.get()).is_some_and(|name| names.contains(&name));
    let kept: Vec<_> = tools.iter().filter(is_allowed).map(|tool| tool.get()).collect();
    if kept.is_empty() {
        let must = "it must name at least one of the tools";
        return Err(invalid("tool_choice.allowed_tools.tools", must));
    }
    if kept.len() < tools.len() {
        let kept = format!("[{}]", kept.join(","));
        fit.top.set("tools", kept);
    }
    fit.top.set("tool_choice", mode);
    Ok(true)
}

pub(super) fn custom(fit: &mut Fit<'_>) -> Result<bool, Failure> {
    let mut any = false;
    if let Some(name) = choice(fit, "custom").and_then(|custom| json::member(custom, "name")) {
        let name = quoted(&name);
        fit.top.set("tool_choice", format!("{{\"type\":\"function\",\"function\":{{\"name\":{name}}}}}"));
        any = true;
    }
    if fit.ask.custom_tools.is_empty() {
        return Ok(any);
    }
    let tools = fit.top.said("tools").and_then(Fit::list).unwrap_or_default();
    let mut written = Vec::with_capacity(tools.len());
    let mut count = 0;
    for (at, tool) in tools.iter().enumerate() {
        let custom = raw_member(tool.get(), "custom");
        count += usize::from(custom.is_some());
        written.push(match custom {
            Some(custom) => function(custom.get(), at)?,
            None => tool.get().to_owned(),
        });
    }
    if count > 0 {
        fit.top.set("tools", format!("[{}]", written.join(",")));
    }
    Ok(any || count > 0)
}

/// A custom tool as a function of one string.
fn function(custom: &str, at: usize) -> Result<String, Failure> {
    let format = raw_member(custom, "format").and_then(|format| json::member(format.get(), "type"));
    if format.is_some_and(|format| format != "text") {
        let param = format!("tools[{at}].custom.format");
        return Err(unsupported(param, "the engine cannot keep a tool's input to a grammar"));
    }
    let name = json::member(custom, "name").unwrap_or_default();
    let told = raw_member(custom, "description").map(Raw::get).filter(|json| *json != "null");
    let told = told.map_or_else(String::new, |json| format!(",\"description\":{json}"));
    Ok(format!(
        "{{\"type\":\"function\",\"function\":{{\"name\":{}{told},\"parameters\":{INPUT}}}}}",
        quoted(&name)
    ))
}

/// The schema of a custom tool's one string.
const INPUT: &str = r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}"#;
