//! The Responses object (wire-format 4.4).
//!
//! Keys: `id, object, created_at, status, background, completed_at, error, frequency_penalty, incomplete_details,
//! instructions, max_output_tokens, max_tool_calls, model, output, parallel_tool_calls, presence_penalty,
//! previous_response_id, prompt_cache_key, reasoning, safety_identifier, service_tier, store, temperature, text,
//! tool_choice, tools, top_logprobs, top_p, truncation, usage, user, metadata`, then `input_messages` and
//! `output_messages` where the client asked for them, and `conversation` where there is one.

use super::finished::Persisted;
use super::item::{Item, WrittenState};
use crate::json::{Extras, Text, write_number, write_string};
use crate::wire::encode::frame::ExtensionLists;
use crate::wire::event::{Head, INPUT_PER_TURN, OUTPUT_PER_TURN, RESPONSE_MESSAGES, Usage};
use crate::wire::fault::Failure;
use crate::wire::{OutputBuffer, Stamp, ident};
use bytes::{Bytes, BytesMut};

/// Members of a Responses object that repeat the request: canonical JSON by key. Members that the request lacks get
/// the API's default.
#[derive(Clone, Debug, Default)]
pub struct Echo(Vec<(&'static str, Bytes)>);

impl Echo {
    /// Adds a member of the request. Large values are shared with the output, not copied.
    pub fn keep(&mut self, key: &'static str, json: Bytes) {
        self.0.push((key, json));
    }

    fn replace(&mut self, key: &'static str, json: &'static [u8]) {
        self.remove(key);
        self.keep(key, Bytes::from_static(json));
    }

    fn remove(&mut self, key: &str) {
        self.0.retain(|(kept, _)| *kept != key);
    }

    fn get(&self, key: &str) -> Option<&Bytes> {
        self.0
            .iter()
            .find(|(kept, _)| *kept == key)
            .map(|(_, json)| json)
    }

    fn write(&self, members: &[(&'static str, &'static str)], out: &mut OutputBuffer) {
        for (key, default) in members {
            match self.get(key) {
                Some(json) => {
                    begin_member(key, out);
                    out.share(json);
                }
                None => member(key, default, out),
            }
        }
    }
}

/// Status of the answer, which decides on the object's `status`, its items and its error.
#[derive(Clone, Debug)]
pub(super) enum ResponseEnding {
    /// Waiting for an engine, in the background.
    Queued,
    /// In progress.
    None,
    /// Complete.
    Completed,
    /// Ended early; the text is `incomplete_details.reason`.
    Incomplete(&'static str),
    /// Failed.
    Failed(Box<Failure>),
    /// Cancelled by the client.
    Cancelled,
}

impl ResponseEnding {
    /// Returns the value of the object's `status`.
    pub(super) fn status(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::None => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete(_) => "incomplete",
            Self::Failed(_) => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the name of the stream's last event.
    pub(super) fn last_event(&self) -> &'static str {
        match self {
            Self::Failed(_) => "response.failed",
            Self::Incomplete(_) | Self::Cancelled => "response.incomplete",
            _ => "response.completed",
        }
    }

    fn incomplete_reason(&self) -> Option<&'static str> {
        match self {
            Self::Incomplete(reason) => Some(reason),
            _ => None,
        }
    }
}

/// Error codes that clients of the API know in a failed response. All others become `server_error`.
const CODES: [&str; 6] = [
    "rate_limit_exceeded",
    "invalid_prompt",
    "context_length_exceeded",
    "insufficient_quota",
    "usage_not_included",
    "server_is_overloaded",
];

/// Members of the Responses object other than its items.
#[derive(Debug)]
pub(super) struct Object {
    echo: Echo,
    /// Last time passed to the encoder, Unix seconds.
    now: u64,
    id: String,
    created: u64,
    /// Model name, in JSON spelling.
    model: BytesMut,
    pub(super) usage: Option<Usage>,
    /// Values of the engine's extensions that the client asked for; present only after the answer has ended.
    extensions: ExtensionLists,
}

impl Object {
    pub(super) fn new(echo: Echo, stamp: &Stamp) -> Self {
        Self {
            echo,
            now: stamp.now,
            id: String::new(),
            created: 0,
            model: BytesMut::new(),
            usage: None,
            extensions: ExtensionLists::default(),
        }
    }

    /// Sets the values that the client requested by an engine's extension. Those of a continuation replace the earlier
    /// ones: its input has all that was before.
    pub(super) fn extend(&mut self, extensions: &Extras<'_>) {
        self.extensions = ExtensionLists::default();
        self.extensions.add(extensions);
    }

    /// Sets id, creation time and model from the head of an answer. An id set before stays; a newer model replaces
    /// the old one.
    pub(super) fn begin(&mut self, head: &Head<'_>) {
        if self.id.is_empty() {
            let id = head
                .id
                .map(|id| ident::compact(&id.decoded()))
                .unwrap_or_default();
            self.id = format!("resp_{id}");
            self.created = head.created.unwrap_or(self.now);
        }
        if let Some(model) = head.model {
            self.model.clear();
            model.write(&mut self.model);
        }
    }

    /// Sets id, creation time and model before an engine has answered. `id`: hex digits without prefix.
    pub(super) fn begin_without_head(&mut self, id: &str, model: &str) {
        self.id = format!("resp_{id}");
        self.created = self.now;
        Text::plain(model).write(&mut self.model);
    }

    /// Sets the current time, Unix seconds.
    pub(super) fn clock(&mut self, now: u64) {
        self.now = now;
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the conversation as JSON; `None` if the object names none.
    pub(super) fn conversation(&self) -> Option<&Bytes> {
        self.echo.get("conversation")
    }

    /// Returns true if the object has `"store":true`.
    pub(super) fn is_stored(&self) -> bool {
        self.echo
            .get("store")
            .is_none_or(|store| store.as_ref() == b"true")
    }

    /// Removes from the object what it would claim wrongly: its storage, or its conversation.
    pub(super) fn correct(&mut self, persisted: Persisted) {
        if !persisted.response && self.is_stored() {
            self.echo.replace("store", b"false");
        }
        if !persisted.conversation {
            self.echo.remove("conversation");
        }
    }

    /// Appends the object. It has items and usage only if the answer has ended.
    pub(super) fn write(&self, ending: &ResponseEnding, items: &[Item], out: &mut OutputBuffer) {
        self.write_before_conversation(ending, items, out);
        if let Some(conversation) = self.conversation() {
            begin_member("conversation", out);
            out.share(conversation);
        }
        out.put_u8(b'}');
    }

    /// Appends the object up to its last member, the conversation.
    pub(super) fn write_before_conversation(
        &self,
        ending: &ResponseEnding,
        items: &[Item],
        out: &mut OutputBuffer,
    ) {
        out.extend_from_slice(b"{\"id\":\"");
        out.extend_from_slice(self.id.as_bytes());
        out.extend_from_slice(b"\",\"object\":\"response\",\"created_at\":");
        write_number(self.created, out.open());
        begin_member("status", out);
        write_string(ending.status(), out.open());
        self.echo.write(&[("background", "false")], out);
        match ending {
            // The engine's clock may be ahead of this one.
            ResponseEnding::Completed => {
                member("completed_at", &self.now.max(self.created).to_string(), out)
            }
            _ => member("completed_at", "null", out),
        }
        write_error(ending, out);
        self.echo.write(&[("frequency_penalty", "0.0")], out);
        match ending.incomplete_reason() {
            Some(reason) => member(
                "incomplete_details",
                &format!("{{\"reason\":\"{reason}\"}}"),
                out,
            ),
            None => member("incomplete_details", "null", out),
        }
        self.echo.write(
            &[
                ("instructions", "null"),
                ("max_output_tokens", "null"),
                ("max_tool_calls", "null"),
            ],
            out,
        );
        out.extend_from_slice(b",\"model\":\"");
        out.extend_from_slice(&self.model);
        out.extend_from_slice(b"\",\"output\":[");
        let runs = matches!(ending, ResponseEnding::None | ResponseEnding::Queued);
        let said = if runs { &[] } else { items };
        for (at, item) in said.iter().enumerate() {
            if at > 0 {
                out.put_u8(b',');
            }
            item.write(WrittenState::Present, out);
        }
        out.put_u8(b']');
        self.echo.write(BEHIND_OUTPUT, out);
        out.extend_from_slice(b",\"usage\":");
        let usage = self.usage.as_ref().filter(|_| !runs);
        write_usage(usage, &self.extensions, out);
        self.echo
            .write(&[("user", "null"), ("metadata", "{}")], out);
        self.extensions.write_keys(RESPONSE_MESSAGES, out.open());
    }
}

fn write_error(ending: &ResponseEnding, out: &mut OutputBuffer) {
    let ResponseEnding::Failed(failure) = ending else {
        return member("error", "null", out);
    };
    let code = failure
        .code
        .as_deref()
        .filter(|code| CODES.contains(code))
        .unwrap_or("server_error");
    out.extend_from_slice(b",\"error\":{\"code\":");
    write_string(code, out.open());
    out.extend_from_slice(b",\"message\":");
    write_string(&failure.message, out.open());
    out.put_u8(b'}');
}

/// Members between `output` and `usage` that repeat the request, with their defaults.
const BEHIND_OUTPUT: &[(&str, &str)] = &[
    ("parallel_tool_calls", "true"),
    ("presence_penalty", "0.0"),
    ("previous_response_id", "null"),
    ("prompt_cache_key", "null"),
    ("reasoning", r#"{"effort":null,"summary":null}"#),
    ("safety_identifier", "null"),
    ("service_tier", "\"default\""),
    ("store", "true"),
    ("temperature", "1.0"),
    ("text", r#"{"format":{"type":"text"},"verbosity":"medium"}"#),
    ("tool_choice", "\"auto\""),
    ("tools", "[]"),
    ("top_logprobs", "0"),
    ("top_p", "1.0"),
    ("truncation", "\"disabled\""),
];

fn member(key: &str, json: &str, out: &mut OutputBuffer) {
    begin_member(key, out);
    out.extend_from_slice(json.as_bytes());
}

fn begin_member(key: &str, out: &mut OutputBuffer) {
    out.put_u8(b',');
    write_string(key, out.open());
    out.put_u8(b':');
}

fn write_usage(usage: Option<&Usage>, extensions: &ExtensionLists, out: &mut OutputBuffer) {
    let Some(usage) = usage else {
        return out.extend_from_slice(b"null");
    };
    let input = format!(
        "{{\"input_tokens\":{},\"input_tokens_details\":{{\"cached_tokens\":{},\"cache_write_tokens\":{}",
        usage.prompt,
        usage.cached,
        usage.cache_write.unwrap_or(0)
    );
    out.extend_from_slice(input.as_bytes());
    extensions.write_keys(INPUT_PER_TURN, out.open());
    let output = format!(
        "}},\"output_tokens\":{},\"output_tokens_details\":{{\"reasoning_tokens\":{}",
        usage.completion,
        usage.reasoning.unwrap_or(0)
    );
    out.extend_from_slice(output.as_bytes());
    extensions.write_keys(OUTPUT_PER_TURN, out.open());
    out.extend_from_slice(format!("}},\"total_tokens\":{}}}", usage.total).as_bytes());
}
