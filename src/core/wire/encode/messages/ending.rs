//! End of a message: its stop reason and its usage (messages 4.5, 4.6).
//!
//! Takes: the finish of the answer, its usage, the limits of the request. Gives: the members that follow `content`.
//! Never: `end_turn` for an answer that was cut.

use crate::json::{Kept, Text, write_number, write_string};
use crate::wire::event::{Finish, Reason, Usage};
use bytes::BytesMut;

/// Facts of the request that decide on the stop reason.
#[derive(Clone, Debug, Default)]
pub struct StopRules {
    /// Token limit that the client asked for; `None` if it is not known.
    pub limit: Option<u64>,
    /// Stop sequences of the request; `None` if the request is not known, so that any text counts.
    pub sequences: Option<Vec<String>>,
}

/// Finish of an answer, kept until its usage is known.
#[derive(Clone, Debug)]
pub(super) struct MessageEnding {
    reason: Reason,
    /// Text at which the engine stopped, if it says so.
    stop: Option<String>,
    /// True if the answer has refusal text.
    pub(super) is_refusal: bool,
}

impl MessageEnding {
    /// `has_call`: the message has a call, without which no reason says that there is one.
    pub(super) fn of(finish: &Finish<'_>, is_refusal: bool, has_call: bool) -> Self {
        let reason = match finish.reason {
            Reason::ToolCalls | Reason::FunctionCall if !has_call => Reason::Stop,
            // An engine that knows only the deprecated form may end it like text.
            Reason::Stop if has_call => Reason::ToolCalls,
            reason => reason,
        };
        let stop = finish.stop.map(|stop| stop.keep());
        let stop = stop
            .as_ref()
            .map(Kept::raw)
            .and_then(Text::of)
            .map(|text| text.decoded().into_owned());
        Self {
            reason,
            stop,
            is_refusal,
        }
    }

    /// Returns the value of `stop_reason`, and the stop sequence if one was met.
    fn reason(&self, rules: &StopRules, usage: Option<&Usage>) -> (&'static str, Option<&str>) {
        let is_own = |text: &&str| match &rules.sequences {
            Some(own) => own.iter().any(|own| own == text),
            None => true,
        };
        let is_short = || matches!((usage, rules.limit), (Some(usage), Some(limit)) if usage.completion < limit);
        match self.reason {
            _ if rules.limit == Some(0) => ("max_tokens", None),
            _ if self.is_refusal => ("refusal", None),
            Reason::ContentFilter => ("refusal", None),
            Reason::ToolCalls | Reason::FunctionCall => ("tool_use", None),
            Reason::Length if is_short() => ("model_context_window_exceeded", None),
            Reason::Length => ("max_tokens", None),
            Reason::Stop => match self.stop.as_deref().filter(is_own) {
                Some(text) => ("stop_sequence", Some(text)),
                None => ("end_turn", None),
            },
        }
    }
}

/// Appends `"stop_reason":…,"stop_sequence":…,"stop_details":…`; null before the end.
pub(super) fn write_stop(
    ending: Option<&MessageEnding>,
    rules: &StopRules,
    usage: Option<&Usage>,
    out: &mut BytesMut,
) {
    let (reason, sequence) = ending.map(|ending| ending.reason(rules, usage)).unzip();
    for (key, text) in [
        ("\"stop_reason\":", reason),
        (",\"stop_sequence\":", sequence.flatten()),
    ] {
        out.extend_from_slice(key.as_bytes());
        match text {
            Some(text) => write_string(text, out),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.extend_from_slice(match reason {
        Some("refusal") => {
            &b",\"stop_details\":{\"type\":\"refusal\",\"category\":null,\"explanation\":null}"[..]
        }
        _ => b",\"stop_details\":null",
    });
}

/// Appends the four counts, and that of the thinking where the engine gives it. Tokens read from the cache, or written
/// to it, are not counted as input once more.
pub(super) fn write_usage(usage: Option<&Usage>, output: u64, out: &mut BytesMut) {
    let usage = usage.copied().unwrap_or_default();
    let written = usage.cache_write.unwrap_or(0);
    let input = usage
        .prompt
        .saturating_sub(usage.cached)
        .saturating_sub(written);
    for (key, count) in [
        ("{\"input_tokens\":", input),
        (",\"cache_creation_input_tokens\":", written),
        (",\"cache_read_input_tokens\":", usage.cached),
        (",\"output_tokens\":", output),
    ] {
        out.extend_from_slice(key.as_bytes());
        write_number(count, out);
    }
    if let Some(reasoning) = usage.reasoning.filter(|count| *count > 0) {
        out.extend_from_slice(b",\"output_tokens_details\":{\"thinking_tokens\":");
        write_number(reasoning, out);
        out.extend_from_slice(b"}");
    }
    out.extend_from_slice(b"}");
}
