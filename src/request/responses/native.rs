//! Responses request for an engine that has this API itself (wire-format 4.8).
//!
//! Takes: the request, stored items of earlier turns, the engine's capabilities. Gives: the engine's request: the
//! whole conversation, and nothing that would leave state in the engine. Never: a reference, a previous response
//! id, sealed text that samewire has sealed.

use super::inputs::{Capabilities, ChatInputs};
use super::{ResponsesMode, ResponsesRequest};
use crate::json::write_string;
use crate::request::refusals::invalid;
use crate::wire::fault::Failure;
use crate::wire::options::Options;
use bytes::{BufMut, Bytes, BytesMut};

/// Fields that pass to the engine as the client wrote them. Other fields are written by samewire, or do not
/// concern the engine (wire-format 4.2).
pub(super) const CARRIED: &[&str] = &[
    "instructions",
    "max_tool_calls",
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "top_logprobs",
    "text",
    "reasoning",
];

impl ResponsesRequest {
    /// Builds the body of the engine's request in its own Responses API.
    ///
    /// # Errors
    /// Fails like [`ResponsesRequest::chat`].
    pub fn native(
        &self,
        inputs: &ChatInputs<'_>,
        takes: &Capabilities,
        options: &Options,
    ) -> Result<Bytes, Failure> {
        let mut out =
            BytesMut::with_capacity(self.input.iter().map(Bytes::len).sum::<usize>() + 1024);
        self.write_model(inputs, &mut out);
        out.extend_from_slice(b"\"input\":[");
        let mut number = 0;
        for turn in &self.turns(inputs, takes.hosted_items)? {
            turn.write_items(options.developer_role, &mut number, &mut out);
        }
        if number == 0 && self.instructions().is_none() {
            return Err(invalid("input", "nothing in it is for the model"));
        }
        out.extend_from_slice(b"],\"store\":false");
        // A background response is stored while it is generated.
        if self.stream || self.background {
            out.extend_from_slice(b",\"stream\":true");
        }
        if let Some(limit) = self.limit {
            let limit = limit + takes.limit_taken_off;
            out.extend_from_slice(format!(",\"max_output_tokens\":{limit}").as_bytes());
        }
        for (key, json) in self
            .carried
            .iter()
            .filter(|(key, json)| *key != "instructions" || json != "\"\"")
        {
            out.extend_from_slice(format!(",\"{key}\":").as_bytes());
            out.extend_from_slice(json);
        }
        for (key, json) in self
            .settings
            .members
            .iter()
            .filter(|(key, _)| *key == "user")
        {
            out.extend_from_slice(format!(",\"{key}\":{json}").as_bytes());
        }
        for (at, word) in self.settings.include_of_engine.iter().enumerate() {
            out.extend_from_slice(if at == 0 { b",\"include\":[" } else { b"," });
            write_string(word, &mut out);
        }
        if !self.settings.include_of_engine.is_empty() {
            out.put_u8(b']');
        }
        if self.tools.write(ResponsesMode::Native, &mut out)
            && let Some(parallel) = self.parallel
        {
            out.extend_from_slice(format!(",\"parallel_tool_calls\":{parallel}").as_bytes());
        }
        self.write_cache_salt(takes, options, &mut out);
        self.write_unknown(options, &mut out);
        out.put_u8(b'}');
        Ok(out.freeze())
    }
}
