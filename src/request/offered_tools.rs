//! Tools that a chat request offers the model, in any of the forms that the API has for them.

use super::ChatRequest;
use super::check::Checked;
use super::turn::member;
use crate::json::{self, Raw, Text, elements, raw_member};
use bytes::{Bytes, BytesMut};
use std::collections::HashSet;
use std::ops::Range;

/// Tools that the model may call, and whether it must. The text parser needs both to recognise calls.
#[derive(Clone, Debug)]
pub(crate) struct OfferedTools {
    /// List of functions as JSON, in the form of `tools` or `functions`.
    pub(super) tools: Bytes,
    /// Range of that list in the body, if it appears there unchanged.
    pub(super) place: Option<Range<usize>>,
    /// True if the model must call a tool.
    pub(super) must_call: bool,
    /// True if the model may choose whether to call.
    pub(super) may_call: bool,
}

impl OfferedTools {
    /// Creates an offer of functions, given as JSON in the form of `tools`.
    pub(super) fn of_functions(tools: String, must_call: bool) -> Self {
        Self {
            tools: tools.into(),
            place: None,
            must_call,
            may_call: !must_call,
        }
    }

    /// Returns the tools on offer in a body, of which `request` has been parsed; `None` if nothing may be called.
    pub(super) fn read(from: &Checked<'_>, request: &ChatRequest) -> Option<Self> {
        let said = |key: &str| from.get(key).map(|field| field.value.get());
        // The newer form wins if the client sends both.
        let (key, old) = if said("tools").is_some() {
            ("tools", None)
        } else {
            ("functions", said("function_call"))
        };
        let all = said(key)?;
        let choice = said("tool_choice").or(old);
        if choice == Some("\"none\"") {
            return None;
        }
        let allowed = choice.and_then(allowed);
        let mode = match allowed {
            Some(allowed) => Some(raw_member(allowed, "mode").map_or("", Raw::get)),
            None => choice,
        };
        let is_one = said("tool_choice").is_none() && old.is_some_and(is_object);
        let must = mode == Some("\"required\"") || is_one || request.forced_function.is_some();
        let is_plain = allowed.is_none() && request.custom_tools.is_empty();
        Some(Self {
            tools: if is_plain {
                Bytes::new()
            } else {
                write_allowed(all, allowed, key).into()
            },
            place: from.place(key).filter(|_| is_plain),
            must_call: must,
            may_call: matches!(mode, None | Some("\"auto\"")),
        })
    }
}

fn is_object(json: &str) -> bool {
    json.starts_with('{')
}

/// Returns the `allowed_tools` object of a tool choice of that type.
fn allowed(choice: &str) -> Option<&str> {
    let is_one =
        is_object(choice) && json::member(choice, "type").as_deref() == Some("allowed_tools");
    raw_member(choice, "allowed_tools")
        .map(Raw::get)
        .filter(|_| is_one)
}

/// Returns the name of a tool, or of the tool that a choice names.
pub(crate) fn name(tool: &str) -> Option<String> {
    let inner = raw_member(tool, "function").or_else(|| raw_member(tool, "custom"))?;
    json::member(inner.get(), "name")
}

/// Appends the members after a function's name. The schema stays byte for byte.
pub(super) fn write_rest(
    description: Option<Text<'_>>,
    parameters: Option<Raw<'_>>,
    strict: Option<Raw<'_>>,
    out: &mut BytesMut,
) {
    // One reservation, since they may be most of the request.
    let length = |raw: Option<Raw<'_>>| raw.map_or(0, |raw| raw.get().len());
    let text = description.map_or(0, |text| text.length());
    out.reserve(text + length(parameters) + length(strict) + 64);
    if let Some(description) = description {
        member(",\"description\"", description, out);
    }
    for (key, raw) in [(",\"parameters\":", parameters), (",\"strict\":", strict)] {
        if let Some(raw) = raw {
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(raw.get().as_bytes());
        }
    }
}

/// Writes the list of allowed tools, with custom tools as functions of one string, as engines know them. `key` is
/// the list's member name: legacy `functions` carry their names at the top level.
fn write_allowed(all: &str, allowed: Option<&str>, key: &str) -> String {
    let names = allowed.map(|allowed| {
        let tools = raw_member(allowed, "tools").and_then(|tools| elements(tools.get()));
        tools
            .into_iter()
            .flatten()
            .filter_map(|tool| name(tool.get()))
            .collect::<HashSet<_>>()
    });
    let mut written = String::from("[");
    for tool in elements(all).into_iter().flatten() {
        let own = || {
            if key == "functions" {
                json::member(tool.get(), "name")
            } else {
                name(tool.get())
            }
        };
        let is_allowed = |names: &HashSet<String>| own().is_some_and(|name| names.contains(&name));
        if !names.as_ref().is_none_or(is_allowed) {
            continue;
        }
        if written.len() > 1 {
            written.push(',');
        }
        match raw_member(tool.get(), "custom").and_then(|custom| raw_member(custom.get(), "name")) {
            Some(name) => {
                let parameters = "{\"properties\":{\"input\":{\"type\":\"string\"}}}";
                written.extend([
                    "{\"function\":{\"name\":",
                    name.get(),
                    ",\"parameters\":",
                    parameters,
                    "}}",
                ]);
            }
            None => written.push_str(tool.get()),
        }
    }
    written.push(']');
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Api;

    #[test]
    fn what_may_and_must_be_called_follows_from_every_form_of_the_choice() {
        let custom = |name: &str| {
            format!(
                r#"{{"function":{{"name":"{name}","parameters":{{"properties":{{"input":{{"type":"string"}}}}}}}}}}"#
            )
        };
        let customs = format!("[{},{}]", custom("c"), custom("d"));
        let function = r#"[{"type":"function","function":{"name":"f"}}]"#;
        for (body, tools, must, may) in [
            (
                r#"{"functions":[{"name":"f"}]}"#,
                r#"[{"name":"f"}]"#,
                false,
                true,
            ),
            (
                r#"{"functions":[{"name":"f"}],"function_call":"auto"}"#,
                r#"[{"name":"f"}]"#,
                false,
                true,
            ),
            (
                r#"{"functions":[{"name":"f"}],"function_call":{"name":"f"}}"#,
                r#"[{"name":"f"}]"#,
                true,
                false,
            ),
            (
                r#"{"functions":[{"name":"f"}],"function_call":"none"}"#,
                "",
                false,
                false,
            ),
            (
                r#"{"tools":[{"type":"custom","custom":{"name":"c"}},{"type":"custom","custom":{"name":"d"}}]}"#,
                customs.as_str(),
                false,
                true,
            ),
            // The type decides which member of the choice counts.
            (
                r#"{"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"},"allowed_tools":{"mode":"auto","tools":[]}}}"#,
                function,
                true,
                false,
            ),
            (
                r#"{"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"f"}}]}}}"#,
                function,
                true,
                false,
            ),
        ] {
            let request = ChatRequest::recall(Api::Chat, &Bytes::from(body)).unwrap();
            let offer = request.offer();
            assert_eq!(
                (offer.tools, offer.required, request.may_call()),
                (tools, must, may),
                "{body}"
            );
        }
    }
}
