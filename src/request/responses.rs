//! Responses requests: what their answer repeats of them (wire-format 4.2, 4.4).

use super::fields::{self, Field};
use crate::json::{self, Raw, Text, compacted};
use crate::wire::encode::Echo;
use crate::wire::fault::Failure;
use bytes::Bytes;

/// Keys that are repeated as they are.
const REPEATED: &[&str] = &[
    "background",
    "frequency_penalty",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "parallel_tool_calls",
    "presence_penalty",
    "previous_response_id",
    "prompt_cache_key",
    "safety_identifier",
    "store",
    "temperature",
    "tool_choice",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
    "metadata",
];

/// What the answer repeats of the request.
///
/// # Errors
/// The body is no JSON object.
pub fn echo(body: &Bytes) -> Result<Echo, Failure> {
    let text = fields::text(body)?;
    let request = Object(fields::read(text, text)?);
    let mut echo = Echo::default();
    for key in REPEATED {
        if let Some(json) = request.compact(key) {
            echo.keep(key, json);
        }
    }
    if let Some(tier) = request.compact("service_tier").filter(|tier| tier != "\"auto\"") {
        echo.keep("service_tier", tier);
    }
    if let Some(reasoning) = request.object("reasoning") {
        echo.keep("reasoning", reasoning.filled(&[("effort", "null"), ("summary", "null")]));
    }
    if let Some(text) = request.object("text") {
        echo.keep("text", text.filled(&[("format", r#"{"type":"text"}"#), ("verbosity", "\"medium\"")]));
    }
    if let Some(tools) = request.get("tools").and_then(|raw| json::read::<Vec<Raw<'_>>>(raw.get()).ok()) {
        let tools: Vec<_> = tools.into_iter().map(tool).collect();
        echo.keep("tools", format!("[{}]", tools.join(",")));
    }
    Ok(echo)
}

/// Whether the answer is to be an event stream.
///
/// # Errors
/// The body is no JSON object.
pub fn streams(body: &Bytes) -> Result<bool, Failure> {
    let text = fields::text(body)?;
    Ok(Object(fields::read(text, text)?).compact("stream").as_deref() == Some("true"))
}

/// A tool, with the members that its kind always shows.
fn tool(raw: Raw<'_>) -> String {
    let Some(tool) = Object::of(raw) else { return compacted(raw) };
    let kind = tool.get("type").and_then(Text::of);
    match kind.map(|kind| kind.decoded()).as_deref() {
        Some("function") => tool.filled(&[
            ("type", "null"),
            ("name", "null"),
            ("description", "null"),
            ("parameters", "null"),
            ("strict", "null"),
        ]),
        Some("custom") if tool.get("description").is_some() => tool.filled(&[
            ("type", "null"),
            ("name", "null"),
            ("description", "null"),
            ("format", r#"{"type":"text"}"#),
        ]),
        Some("custom") => {
            tool.filled(&[("type", "null"), ("name", "null"), ("format", r#"{"type":"text"}"#)])
        }
        _ => compacted(raw),
    }
}

/// The members of an object.
struct Object<'a>(Vec<Field<'a>>);

impl<'a> Object<'a> {
    fn of(raw: Raw<'a>) -> Option<Self> {
        fields::read(raw.get(), raw.get()).ok().map(Self)
    }

    /// A member that is there and not null.
    fn get(&self, key: &str) -> Option<Raw<'a>> {
        let found = self.0.iter().rfind(|field| field.key == key).map(|field| field.value);
        found.filter(|value| value.get() != "null")
    }

    fn object(&self, key: &str) -> Option<Self> {
        self.get(key).and_then(Self::of)
    }

    fn compact(&self, key: &str) -> Option<String> {
        self.get(key).map(compacted)
    }

    /// An object of just these members, each as it stands here or with its default.
    fn filled(&self, members: &[(&str, &str)]) -> String {
        let written = members.iter().map(|(key, default)| {
            format!("\"{key}\":{}", self.compact(key).unwrap_or_else(|| (*default).to_owned()))
        });
        format!("{{{}}}", written.collect::<Vec<_>>().join(","))
    }
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
            (r#"{"name":"c","type":"custom"}"#, r#"{"type":"custom","name":"c","format":{"type":"text"}}"#),
            (r#"{ "type" : "web_search", "z": 1.50 }"#, r#"{"type":"web_search","z":1.50}"#),
        ] {
            assert_eq!(tool(Raw::of(sent).unwrap()), shown);
        }
    }
}
