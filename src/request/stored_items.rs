//! Normal form of Responses input items for storage, listing and later turns: with an id, a type and a status, and
//! content as complete parts (wire-format 4.1, 4.3, 4.4).

use crate::json::{self, Members, Raw, Text, write_compact, write_string};
use crate::wire::ident;
use bytes::{BufMut, BytesMut};

/// Returns id and normalised JSON of input item number `at` of `response`; `None` if the item is no object.
pub fn normalised(item: &str, response: &str, at: usize) -> Option<(String, String)> {
    let members = Members::of(item)?;
    let text = |key: &str| {
        members
            .get(key)
            .and_then(Text::of)
            .map(|text| text.decoded().into_owned())
    };
    let kind = text("type").unwrap_or_else(|| "message".to_owned());
    let derived = || format!("{}_{}_in{at}", prefix(&kind), ident::compact(response));
    let id = text("id")
        .filter(|id| !id.is_empty())
        .unwrap_or_else(derived);
    let known = HAVE_STATUS.contains(&kind.as_str());
    let mut out = BytesMut::from(&b"{\"id\":"[..]);
    write_string(&id, &mut out);
    member("type", &mut out);
    write_string(&kind, &mut out);
    if known {
        member("status", &mut out);
        write_string(text("status").as_deref().unwrap_or("completed"), &mut out);
    }
    let assistant = members
        .get("role")
        .is_some_and(|role| role.get() == "\"assistant\"");
    for (key, value) in &members.0 {
        // Clients that serialise every field send null for members that the item lacks.
        let dropped = matches!(key.as_ref(), "id" | "type")
            || known && (key == "status" || value.get() == "null");
        if dropped {
            continue;
        }
        member(key, &mut out);
        match Text::of(*value) {
            Some(text) if kind == "message" && key == "content" => {
                write_text(&text, assistant, &mut out)
            }
            _ if known && matches!(key.as_ref(), "content" | "output") => {
                write_parts(*value, &mut out)
            }
            _ => write_compact(value.get(), &mut out),
        }
    }
    out.put_u8(b'}');
    Some((id, String::from_utf8(out.into()).ok()?))
}

fn member(key: &str, out: &mut BytesMut) {
    out.put_u8(b',');
    write_string(key, out);
    out.put_u8(b':');
}

/// Writes content given as a string as a list of one part.
fn write_text(text: &Text<'_>, assistant: bool, out: &mut BytesMut) {
    let (kind, end): (&[u8], &[u8]) = match assistant {
        true => (b"output_text", b"\",\"annotations\":[],\"logprobs\":[]}]"),
        false => (b"input_text", b"\"}]"),
    };
    out.extend_from_slice(b"[{\"type\":\"");
    out.extend_from_slice(kind);
    out.extend_from_slice(b"\",\"text\":\"");
    text.write(out);
    out.extend_from_slice(end);
}

/// Writes a list of parts, and adds members that are optional in a request but required in an answer.
fn write_parts(list: Raw<'_>, out: &mut BytesMut) {
    let Ok(parts) = json::read::<Vec<Raw<'_>>>(list.get()) else {
        return write_compact(list.get(), out);
    };
    out.put_u8(b'[');
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        let lacks = |key: &str| {
            Members::of(part.get())
                .is_some_and(|members| !members.0.iter().any(|(known, _)| known == key))
        };
        let owed: &[(&str, &str)] = match json::member(part.get(), "type").as_deref() {
            Some("output_text") => &[("annotations", "[]"), ("logprobs", "[]")],
            Some("input_image") => &[("detail", "\"auto\"")],
            _ => &[],
        };
        write_compact(part.get(), out);
        for (key, value) in owed.iter().filter(|(key, _)| lacks(key)) {
            out.truncate(out.len() - 1);
            member(key, out);
            out.extend_from_slice(value.as_bytes());
            out.put_u8(b'}');
        }
    }
    out.put_u8(b']');
}

/// Item types that always carry a status; a client's item without one counts as completed.
const HAVE_STATUS: &[&str] = &[
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
];

/// Returns the id prefix for an item type.
fn prefix(kind: &str) -> &'static str {
    match kind {
        "message" => "msg",
        "reasoning" => "rs",
        "function_call" => "fc",
        "function_call_output" => "fco",
        "custom_tool_call" => "ctc",
        "custom_tool_call_output" => "ctco",
        "tool_search_call" => "tsc",
        "tool_search_output" => "tso",
        "compaction" => "cmp",
        _ => "item",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_get_what_they_lack() {
        for (given, expected) in [
            (
                r#"{"role":"user","content":"a \u0041"}"#,
                r#"{"id":"msg_12_in3","type":"message","status":"completed","role":"user","content":[{"type":"input_text","text":"a A"}]}"#,
            ),
            (
                r#"{"role":"user","content":[{"type":"input_image","image_url":"u"}, {"type":"input_text","text":""}],"phase":null}"#,
                r#"{"id":"msg_12_in3","type":"message","status":"completed","role":"user","content":[{"type":"input_image","image_url":"u","detail":"auto"},{"type":"input_text","text":""}]}"#,
            ),
            (
                r#"{"type":"message","id":"mine","role":"assistant","content":"x"}"#,
                r#"{"id":"mine","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"x","annotations":[],"logprobs":[]}]}"#,
            ),
            (
                r#"{"type":"message","id":"mine","status":"incomplete","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"x"}]}"#,
                r#"{"id":"mine","type":"message","status":"incomplete","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"x","logprobs":[]}]}"#,
            ),
            (
                r#"{"type":"function_call_output", "call_id":"c","output": "content"}"#,
                r#"{"id":"fco_12_in3","type":"function_call_output","status":"completed","call_id":"c","output":"content"}"#,
            ),
            (
                r#"{"type":"web_search_call","action":null}"#,
                r#"{"id":"item_12_in3","type":"web_search_call","action":null}"#,
            ),
            (
                r#"{"type":"computer_call_output","output":[{"type":"input_image","image_url":"u"}]}"#,
                r#"{"id":"item_12_in3","type":"computer_call_output","output":[{"type":"input_image","image_url":"u"}]}"#,
            ),
            (
                r#"{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"u"}],"more":[{"type":"input_image"}]}"#,
                r#"{"id":"fco_12_in3","type":"function_call_output","status":"completed","call_id":"c","output":[{"type":"input_image","image_url":"u","detail":"auto"}],"more":[{"type":"input_image"}]}"#,
            ),
            (
                r#"{"type":"compaction","id":"cmp_1","encrypted_content":"e"}"#,
                r#"{"id":"cmp_1","type":"compaction","encrypted_content":"e"}"#,
            ),
        ] {
            let (id, text) = normalised(given, "resp_1-2", 3).unwrap();
            assert_eq!(text, expected);
            assert!(text.starts_with(&format!("{{\"id\":\"{id}\"")));
        }
        assert_eq!(normalised("[]", "resp_1", 0), None);
    }
}
