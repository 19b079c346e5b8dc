//! Second, independent implementation of the canonical stream, for comparison byte for byte.

use crate::sim::prelude::*;

/// Builder of a canonical chat stream with one choice. Add the frames in order and compare [`Self::text`].
#[derive(Clone)]
pub struct Canonical {
    id: String,
    usage_asked: bool,
    text: String,
}

/// Error code and message for a stream that broke off.
pub const INCOMPLETE: (&str, &str) = (
    "upstream_incomplete",
    "Upstream connection closed before the answer was complete (stream ended without finish_reason).",
);

/// Error code and message for an engine that aborted.
pub const ABORTED: (&str, &str) = (
    "upstream_aborted",
    "Server error: the upstream engine aborted the request before it was complete.",
);

/// Error code and message for an event that cannot be parsed.
pub const INVALID_EVENT: (&str, &str) = (
    "upstream_invalid_event",
    "Server error: the upstream engine sent an event that cannot be read.",
);

impl Canonical {
    /// Starts a stream for a client that did not request usage.
    pub fn new() -> Self {
        Self::with_id("chatcmpl-1")
    }

    /// Starts a stream with another id.
    pub fn with_id(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            usage_asked: false,
            text: String::new(),
        }
    }

    /// Starts a stream for a client that requested usage.
    pub fn with_usage() -> Self {
        Self {
            usage_asked: true,
            ..Self::new()
        }
    }

    /// Appends a frame with this `delta` and this `finish_reason`, both given as JSON.
    pub fn delta(mut self, delta: &str, finish: &str) -> Self {
        let usage = if self.usage_asked {
            r#","usage":null"#
        } else {
            ""
        };
        let id = &self.id;
        let frame = format!(
            r#"{{"id":"{id}","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}]{usage}}}"#
        );
        self.text.push_str(&format!("data: {frame}\n\n"));
        self
    }

    /// Appends the role frame.
    pub fn role(self) -> Self {
        self.delta(r#"{"role":"assistant"}"#, "null")
    }

    /// Appends a content frame.
    pub fn content(self, text: &str) -> Self {
        self.delta(&format!(r#"{{"content":{}}}"#, json_string(text)), "null")
    }

    /// Appends a reasoning frame.
    pub fn reasoning(self, text: &str) -> Self {
        let text = json_string(text);
        self.delta(
            &format!(r#"{{"reasoning_content":{text},"reasoning":{text}}}"#),
            "null",
        )
    }

    /// Appends the tokens that [`Script::tok`] sends.
    pub fn tok(self, name: &str, n: usize) -> Self {
        (0..n).fold(self, |this, i| this.content(&format!("{name}.{i} ")))
    }

    /// Appends the finish frame.
    pub fn finish(self, reason: &str) -> Self {
        self.delta("{}", &json_string(reason))
    }

    /// Appends the usage frame.
    pub fn usage(mut self, prompt: u32, completion: u32) -> Self {
        let (id, usage) = (&self.id, usage_object(prompt, completion));
        let frame = format!(
            r#"{{"id":"{id}","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{usage}}}"#
        );
        self.text.push_str(&format!("data: {frame}\n\n"));
        self
    }

    /// Appends the end of a successful stream.
    pub fn done(mut self) -> Self {
        self.text.push_str("data: [DONE]\n\n");
        self
    }

    /// Appends the end of a failed stream.
    pub fn error(self, (code, message): (&str, &str)) -> Self {
        self.error_as(message, "server_error", &format!("\"{code}\""))
    }

    /// Appends the end of a failed stream, with the engine's own message, type and code.
    pub fn error_as(mut self, message: &str, kind: &str, code: &str) -> Self {
        self.text.push_str("event: error\ndata: ");
        self.text.push_str(&format!(
            "{{\"error\":{{\"message\":{},\"type\":\"{kind}\",\"param\":null,\"code\":{code}}}}}\n\n",
            json_string(message)
        ));
        self
    }

    /// Returns the whole stream.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns a complete answer with one content frame.
    pub fn answer_of(text: &str) -> Self {
        Self::new().role().content(text).finish("stop").done()
    }

    /// Returns the canonical form of [`Script::answer`].
    pub fn answer(name: &str, n: usize) -> Self {
        Self::new().role().tok(name, n).finish("stop").done()
    }
}

/// Returns the canonical usage object without details.
pub fn usage_object(prompt: u32, completion: u32) -> String {
    let total = prompt + completion;
    format!(
        r#"{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":0,"audio_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}}"#
    )
}

/// Checks the framing of a stream and that it ends exactly once. Returns its events without comments.
pub fn grammar(text: &str) -> Vec<&str> {
    assert!(!text.contains('\r'), "no CR in a stream");
    let text = text
        .strip_suffix("\n\n")
        .unwrap_or_else(|| panic!("the last event has its blank line: {text:?}"));
    let blocks: Vec<_> = text
        .split("\n\n")
        .filter(|block| *block != ": keepalive")
        .collect();
    for block in &blocks {
        let data = block.strip_prefix("event: error\n").unwrap_or(block);
        let data = data
            .strip_prefix("data: ")
            .unwrap_or_else(|| panic!("not a frame: {block:?}"));
        assert!(!data.contains('\n'), "one line of data: {block:?}");
        assert!(
            data == "[DONE]" || serde_json::from_str::<serde::de::IgnoredAny>(data).is_ok(),
            "{data:?}"
        );
    }
    let is_end = |block: &&&str| **block == "data: [DONE]" || block.starts_with("event: error");
    assert_eq!(
        blocks.iter().filter(is_end).count(),
        1,
        "one end: {blocks:?}"
    );
    assert!(
        blocks.last().is_some_and(|last| is_end(&last)),
        "the end is last: {blocks:?}"
    );
    blocks
}
