//! Request for the summary of a conversation (wire-format 4.13).
//!
//! Takes: the request to compact a conversation. Gives: one of the same conversation with a last message that asks
//! for a summary. Never: stores, offers tools.

use super::ResponsesRequest;
use crate::json::{self, compacted, write_string};
use crate::request::Rules;
use crate::request::check::Checked;
use crate::request::refusals::invalid;
use crate::wire::fault::Failure;
use bytes::{Bytes, BytesMut};

/// Fields that the API names. Those after the first four have no effect on a summary.
const KNOWN: &[&str] = &[
    "model",
    "input",
    "instructions",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "service_tier",
];

/// Builds the body of the request for the summary; `request` is the parsed form of `body`, `instructions` the prompt
/// that asks for a summary.
///
/// # Errors
/// Fails on a parameter that the compaction request does not have, and if there is no conversation to summarise.
pub fn request(
    body: &Bytes,
    request: &ResponsesRequest,
    instructions: &str,
) -> Result<Bytes, Failure> {
    let rules = Rules::ANSWERED;
    let from = Checked::of(body, KNOWN, &rules)?;
    from.only_known()?;
    if request.input().next().is_none() && request.previous_response_id.is_none() {
        return Err(invalid("input", "there is no conversation in it"));
    }
    let mut out = BytesMut::from(&b"{\"model\":"[..]);
    write_string(&request.model, &mut out);
    for key in ["instructions", "previous_response_id"] {
        if let Some(field) = from.get(key) {
            out.extend_from_slice(format!(",\"{key}\":{}", compacted(field.value)).as_bytes());
        }
    }
    out.extend_from_slice(b",\"input\":[");
    for item in request.input() {
        out.extend_from_slice(item.as_bytes());
        out.extend_from_slice(b",");
    }
    out.extend_from_slice(b"{\"type\":\"message\",\"role\":\"user\",\"content\":");
    write_string(instructions, &mut out);
    out.extend_from_slice(b"}],\"reasoning\":{\"effort\":\"low\"},\"store\":false}");
    Ok(out.freeze())
}

/// Returns true if an item is a message of the user, which a compaction keeps.
pub fn is_user_message(item: &str) -> bool {
    let is = |key: &str, word: &str| json::member(item, key).map(|own| own == word);
    is("type", "message").unwrap_or(true) && is("role", "user").unwrap_or(false)
}
