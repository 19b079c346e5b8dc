//! Request fields that an answer echoes (wire-format 4.2, 4.4).

use super::server_tools::without_credentials;
use super::shared_value;
use crate::json::{self, Raw, Text, compacted, write_compact, write_string};
use crate::request::object::RequestObject;
use bytes::{Bytes, BytesMut};

/// Fields that are echoed unchanged.
const REPEATED: &[&str] = &[
    "background",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "safety_identifier",
    "store",
    "tool_choice",
    "top_logprobs",
    "truncation",
    "user",
    "metadata",
];

/// Fields that are echoed with a decimal point (wire-format 1.5).
const DECIMAL: &[&str] = &[
    "frequency_penalty",
    "presence_penalty",
    "temperature",
    "top_p",
];

/// Returns a value of the body in canonical spelling, shared with the body if it already has that.
fn canonical(body: &Bytes, raw: Raw<'_>) -> Bytes {
    let text = compacted(raw);
    if text == raw.get() {
        shared_value(body, raw)
    } else {
        text.into()
    }
}

/// Returns the echoed fields as keys and JSON; `left_out` holds the indices of tools that are not echoed.
pub(super) fn echoed_fields<'a>(
    body: &Bytes,
    get: impl Fn(&str) -> Option<Raw<'a>>,
    left_out: &[usize],
) -> Vec<(&'static str, Bytes)> {
    let get = |key: &str| get(key).filter(|raw| raw.get() != "null");
    let object = |key: &str| get(key).and_then(|raw| RequestObject::of(key, raw).ok());
    let mut said = Vec::new();
    for key in REPEATED {
        said.extend(get(key).map(|raw| (*key, canonical(body, raw))));
    }
    for key in DECIMAL {
        said.extend(get(key).map(|raw| (*key, decimal(raw).into())));
    }
    let tier = get("service_tier")
        .map(compacted)
        .filter(|tier| tier != "\"auto\"");
    said.extend(tier.map(|tier| ("service_tier", tier.into())));
    if let Some(reasoning) = object("reasoning") {
        said.push((
            "reasoning",
            filled(&reasoning, &[("effort", "null"), ("summary", "null")]).into(),
        ));
    }
    if let Some(text) = object("text") {
        let members = [
            ("format", r#"{"type":"text"}"#),
            ("verbosity", "\"medium\""),
        ];
        said.push(("text", filled(&text, &members).into()));
    }
    if let Some(tools) = get("tools").and_then(|raw| json::read::<Vec<Raw<'_>>>(raw.get()).ok()) {
        // Allow room for the members that a tool may lack.
        let lacks = 128 * tools.len();
        let kept = tools
            .into_iter()
            .enumerate()
            .filter(|(at, _)| !left_out.contains(at));
        let mut tools =
            String::with_capacity(get("tools").map_or(0, |raw| raw.get().len()) + lacks);
        for (_, raw) in kept {
            tools.push(if tools.is_empty() { '[' } else { ',' });
            tools.push_str(&tool(raw));
        }
        tools.push_str(if tools.is_empty() { "[]" } else { "]" });
        said.push(("tools", tools.into()));
    }
    if let Some(raw) = get("conversation") {
        let id = RequestObject::of("conversation", raw)
            .ok()
            .and_then(|conversation| conversation.compact("id"));
        let conversation = format!("{{\"id\":{}}}", id.unwrap_or_else(|| compacted(raw)));
        said.push(("conversation", conversation.into()));
    }
    said
}

/// Returns a number, with a decimal point added if it was written as an integer.
fn decimal(raw: Raw<'_>) -> String {
    let number = compacted(raw);
    let whole = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'-');
    if whole { number + ".0" } else { number }
}

/// Returns a tool with all members that its type always shows.
fn tool(raw: Raw<'_>) -> String {
    let Ok(tool) = RequestObject::of("", raw) else {
        return compacted(raw);
    };
    let kind = tool.get("type").and_then(Text::of);
    match kind.map(|kind| kind.decoded()).as_deref() {
        Some("function") => filled(
            &tool,
            &[
                ("type", "null"),
                ("name", "null"),
                ("description", "null"),
                ("parameters", "null"),
                ("strict", "null"),
            ],
        ),
        Some("custom") if tool.get("description").is_some() => filled(
            &tool,
            &[
                ("type", "null"),
                ("name", "null"),
                ("description", "null"),
                ("format", r#"{"type":"text"}"#),
            ],
        ),
        Some("custom") => filled(
            &tool,
            &[
                ("type", "null"),
                ("name", "null"),
                ("format", r#"{"type":"text"}"#),
            ],
        ),
        Some("mcp") => without_credentials(raw).unwrap_or_else(|| compacted(raw)),
        _ => compacted(raw),
    }
}

/// Returns an object of exactly these members, each with its own value or its default.
fn filled(object: &RequestObject<'_>, members: &[(&str, &str)]) -> String {
    let known = |key: &str| object.get(key).map_or(0, |raw| raw.get().len());
    let length = members
        .iter()
        .map(|(key, default)| key.len() + 4 + default.len() + known(key))
        .sum::<usize>();
    let mut written = BytesMut::with_capacity(length + 2);
    for (key, default) in members {
        written.extend_from_slice(if written.is_empty() { b"{" } else { b"," });
        write_string(key, &mut written);
        written.extend_from_slice(b":");
        write_compact(object.get(key).map_or(*default, Raw::get), &mut written);
    }
    written.extend_from_slice(b"}");
    String::from_utf8(written.into()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_show_all_their_members() {
        for (sent, shown) in [
            (
                r#"{"type":"function","strict":true,"name":"f"}"#,
                r#"{"type":"function","name":"f","description":null,"parameters":null,"strict":true}"#,
            ),
            (
                r#"{"name":"c","type":"custom"}"#,
                r#"{"type":"custom","name":"c","format":{"type":"text"}}"#,
            ),
            (
                r#"{"type":"custom","name":"c","description":"d","format":{"type":"text"}}"#,
                r#"{"type":"custom","name":"c","description":"d","format":{"type":"text"}}"#,
            ),
            (
                r#"{ "type" : "web_search", "z": 1.50 }"#,
                r#"{"type":"web_search","z":1.50}"#,
            ),
        ] {
            assert_eq!(tool(Raw::of(sent).unwrap()), shown);
        }
    }

    #[test]
    fn rates_have_a_decimal_point() {
        for (sent, shown) in [
            ("1", "1.0"),
            ("-2", "-2.0"),
            ("0.70", "0.70"),
            ("1e0", "1e0"),
        ] {
            assert_eq!(decimal(Raw::of(sent).unwrap()), shown);
        }
    }
}
