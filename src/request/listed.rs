//! Items of a Responses input as they are stored, listed and given to a later turn: with an id, a type, a status, and
//! content in parts (wire-format 4.1, 4.3, 4.4).

use crate::json::{self, Members, Text, write_compact, write_string};
use crate::wire::ident;
use bytes::{BufMut, BytesMut};

/// Id and text of the `at`th item of the input of `response`; nothing if it is no object.
pub fn item(item: &str, response: &str, at: usize) -> Option<(String, String)> {
    let Members(members) = json::read(item).ok()?;
    let get = |key: &str| members.iter().find(|(known, _)| known == key).map(|(_, value)| *value);
    let text = |key: &str| get(key).and_then(Text::of).map(|text| text.decoded().into_owned());
    let kind = text("type").unwrap_or_else(|| "message".to_owned());
    let derived = || format!("{}_{}_in{at}", prefix(&kind), ident::compact(response));
    let id = text("id").filter(|id| !id.is_empty()).unwrap_or_else(derived);
    let mut out = BytesMut::from(&b"{\"id\":"[..]);
    write_string(&id, &mut out);
    out.extend_from_slice(b",\"type\":");
    write_string(&kind, &mut out);
    let has_status = HAVE_STATUS.contains(&kind.as_str());
    if has_status {
        out.extend_from_slice(b",\"status\":");
        write_string(text("status").as_deref().unwrap_or("completed"), &mut out);
    }
    for (key, value) in &members {
        if matches!(key.as_ref(), "id" | "type") || has_status && key == "status" {
            continue;
        }
        out.put_u8(b',');
        write_string(key, &mut out);
        out.put_u8(b':');
        match Text::of(*value) {
            Some(text) if kind == "message" && key == "content" => {
                let assistant = get("role").is_some_and(|role| role.get() == "\"assistant\"");
                out.extend_from_slice(match assistant {
                    true => b"[{\"type\":\"output_text\",\"text\":\"",
                    false => b"[{\"type\":\"input_text\",\"text\":\"",
                });
                text.write(&mut out);
                out.extend_from_slice(match assistant {
                    true => b"\",\"annotations\":[],\"logprobs\":[]}]",
                    false => b"\"}]",
                });
            }
            _ => write_compact(value.get(), &mut out),
        }
    }
    out.put_u8(b'}');
    Some((id, String::from_utf8(out.to_vec()).ok()?))
}

/// The kinds of which every item says how far it is; what a client sends is complete unless it says otherwise.
const HAVE_STATUS: &[&str] = &[
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
];

/// What the ids of items of a kind begin with.
fn prefix(kind: &str) -> &'static str {
    match kind {
        "message" => "msg",
        "reasoning" => "rs",
        "function_call" => "fc",
        "function_call_output" => "fco",
        "custom_tool_call" => "ctc",
        "custom_tool_call_output" => "ctco",
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
                r#"{"type":"message","id":"mine","role":"assistant","content":"x","status":"incomplete"}"#,
                r#"{"id":"mine","type":"message","status":"incomplete","role":"assistant","content":[{"type":"output_text","text":"x","annotations":[],"logprobs":[]}]}"#,
            ),
            (
                r#"{"type":"function_call_output", "call_id":"c","output": "content"}"#,
                r#"{"id":"fco_12_in3","type":"function_call_output","status":"completed","call_id":"c","output":"content"}"#,
            ),
            (
                r#"{"type":"web_search_call","action":null}"#,
                r#"{"id":"item_12_in3","type":"web_search_call","action":null}"#,
            ),
        ] {
            let (id, text) = item(given, "resp_1-2", 3).unwrap();
            assert_eq!(text, expected);
            assert!(text.starts_with(&format!("{{\"id\":\"{id}\"")));
        }
        assert_eq!(item("[]", "resp_1", 0), None);
    }
}
