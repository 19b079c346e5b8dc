//! Vocabulary of the rewriter's callers: what they say of an answer before it comes, and what they learn of it.
//!
//! Takes and gives: plain data. Remembers: nothing. Never: reads or writes an answer.

use super::event::{PROMPT_TEXT, PROMPT_TOKEN_IDS, Reason, TOKEN_IDS, Usage};
use super::options::{ContinuousUsage, Options, ReasoningField};
use super::parse::{TemplateFacts, TextFormat, Unparsed, Unread};
use super::rule::Tally;
use std::fmt;
use std::sync::Arc;

/// API of an answer: the client's and the engine's may differ, and each has its own decoder and encoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Api {
    /// Chat Completions, `/v1/chat/completions`.
    #[default]
    Chat,
    /// Legacy Completions, `/v1/completions`.
    Completions,
    /// Responses, `/v1/responses`.
    Responses,
    /// Messages of Anthropic, `/v1/messages`.
    Messages,
}

impl Api {
    /// Returns the API of a route whose answers are rewritten, by the end of its path. `target`: the path, perhaps with a
    /// query.
    pub fn of_path(target: &str) -> Option<Self> {
        match target.split('?').next().unwrap_or_default() {
            path if path.ends_with("/chat/completions") => Some(Self::Chat),
            path if path.ends_with("/completions") => Some(Self::Completions),
            path if path.ends_with("/responses") => Some(Self::Responses),
            path if path.ends_with("/messages") => Some(Self::Messages),
            _ => None,
        }
    }

    pub(super) fn id_prefix(self) -> &'static str {
        match self {
            // The ids of messages are derived from those of chat.
            Self::Chat | Self::Messages => "chatcmpl-",
            Self::Completions => "cmpl-",
            Self::Responses => "resp_",
        }
    }
}

/// Engine extensions that the client requested. Their fields are returned where the engine puts them, whatever the
/// options say about other unknown fields (wire-format 2.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// `return_token_ids`: returns `token_ids` and `prompt_token_ids`.
    pub token_ids: bool,
    /// `prompt_logprobs`: returns a field of the same name.
    pub prompt_logprobs: bool,
    /// `return_prompt_text`: returns `prompt_text`.
    pub prompt_text: bool,
    /// `enable_response_messages` (an engine's own Responses): returns `input_messages` and `output_messages`, and in
    /// `usage` the counts of each turn.
    pub response_messages: bool,
}

impl Extensions {
    /// Returns the keys of the requested extensions in answers of chat and Completions, in canonical order.
    pub(crate) fn keys(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (TOKEN_IDS, self.token_ids),
            ("prompt_logprobs", self.prompt_logprobs),
            (PROMPT_TOKEN_IDS, self.token_ids),
            (PROMPT_TEXT, self.prompt_text),
        ];
        all.into_iter()
            .filter(|(_, is_requested)| *is_requested)
            .map(|(key, _)| key)
    }
}

/// Shape of the answer to one request: the form that the client expects, and the facts needed to read the engine's
/// bytes.
#[derive(Clone, Debug)]
pub struct Shape {
    /// API of the client's request, which decides the form of the answer.
    pub client: Api,
    /// API of the request to the engine, which decides the decoder.
    pub upstream: Api,
    /// True for an SSE stream to the client, false for one JSON object.
    pub stream: bool,
    /// Model name in the client's request, for answers whose model the engine does not name.
    pub model: String,
    /// Number of choices that the client requested (`n`).
    pub choices: u32,
    /// Index of the only choice, if the other choices come from separate requests; else 0.
    pub choice: u32,
    /// True if the client gets a usage frame at the end of a stream.
    pub include_usage: bool,
    /// True if the client requested `continuous_usage_stats`, usage on every frame.
    pub continuous_usage: bool,
    /// True if the client requested logprobs; unrequested ones are dropped.
    pub logprobs: bool,
    /// Engine extensions that the client requested, such as `return_token_ids`.
    pub extensions: Extensions,
    /// True if the client requested obfuscation, the padding of delta frames.
    pub include_obfuscation: bool,
    /// Token limit of the request, used to detect truncation that the engine reports as a normal stop.
    pub limit: Option<u64>,
    /// Name of the function that `tool_choice` forces, if it forces one.
    pub forced_function: Option<String>,
    /// True if calls after the first are dropped: the client wants one, and the engine may send more.
    pub one_call: bool,
    /// True if the request asks for an answer in a format, such as a JSON schema.
    pub is_constrained: bool,
    /// True if the answer continues the text of the last message, so that none of it is reasoning.
    pub continues_text: bool,
    /// True if the request has switched thinking off, for a model that has such a switch.
    pub thinking_is_off: bool,
    /// Names of the functions that a chat request offers; empty if there are none, or if they are not known.
    pub functions: Vec<String>,
    /// Names of custom tools that the engine was given as functions with one string parameter.
    pub custom_tools: Vec<String>,
    /// True if the client knows calls only as the deprecated `function_call`.
    pub legacy_functions: bool,
    /// True if reasoning is removed, by the options or by the request.
    pub hide_reasoning: bool,
    /// Names of the request rules that changed the request, for the summary.
    pub adapted: Vec<&'static str>,
    /// Size limit of one engine event in bytes (`max_event_bytes`); larger ones fail the answer.
    pub max_event_bytes: usize,
    /// True if the engine may give fewer choices than requested; the missing ones can be requested separately.
    pub may_lack: bool,
    /// Known quirks of the engine's answers, which the decoder and the normaliser handle.
    pub quirks: Quirks,
    /// Model names accepted in the answer, besides the client's own name for the model; `None`: any name.
    pub models: Option<Models>,
    /// Description of how to parse the text that the engine may leave unparsed; `None`: the text stays as it is.
    pub script: Option<Arc<TextFormat>>,
    /// Wire-format options in effect.
    pub options: Arc<Options>,
}

impl Shape {
    /// Creates the shape of a plain request for one choice, with defaults that callers override field by field.
    pub fn new(api: Api, stream: bool, options: Arc<Options>) -> Self {
        Self {
            client: api,
            upstream: api,
            stream,
            model: String::new(),
            choices: 1,
            choice: 0,
            include_usage: options.force_usage,
            continuous_usage: false,
            logprobs: false,
            extensions: Extensions::default(),
            include_obfuscation: false,
            limit: None,
            forced_function: None,
            one_call: false,
            is_constrained: false,
            continues_text: false,
            thinking_is_off: false,
            functions: Vec::new(),
            custom_tools: Vec::new(),
            legacy_functions: false,
            hide_reasoning: options.reasoning_field == ReasoningField::None,
            adapted: Vec::new(),
            may_lack: false,
            models: None,
            max_event_bytes: 4 << 20,
            quirks: Quirks::default(),
            script: None,
            options,
        }
    }

    /// Returns the shape of the engine answer that gives this choice alone.
    pub fn of_choice(self, choice: u32) -> Self {
        Self {
            choices: 1,
            choice,
            ..self
        }
    }

    /// Returns true if usage stays on each frame on which the engine sends it.
    pub(crate) fn has_continuous_usage(&self) -> bool {
        match self.options.continuous_usage {
            ContinuousUsage::Strip => false,
            ContinuousUsage::Pass => self.continuous_usage,
            ContinuousUsage::Always => true,
        }
    }

    /// Returns the description by which the text is parsed; `None` if it is not. Completions clients get the text
    /// unchanged.
    pub(super) fn text_format(&self) -> Option<&Arc<TextFormat>> {
        self.script
            .as_ref()
            .filter(|_| self.client != Api::Completions)
    }
}

/// Quirks of an engine's answers that the API does not show: data that the shared decoders and the normaliser read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quirks {
    /// True if the engine reuses ids of answers, so that they identify none: Ollama draws one of 999, TensorRT-LLM
    /// counts from its start, LMDeploy calls every completion `-1`, `transformers serve` repeats the request's
    /// `x-request-id`. Answers then get new ids, as if they had none (wire-format 2.7).
    pub recurring_ids: bool,
}

/// Names that the model may have in an answer, to detect engines that answer as another model (faults U50).
#[derive(Clone, Debug)]
pub enum Models {
    /// Any of these names, or an empty one.
    OneOf(Arc<[Arc<str>]>),
    /// Any name except these, which other upstreams list and this one does not.
    NoneOf(Arc<[Arc<str>]>),
}

impl Models {
    pub(super) fn allow(&self, name: &str) -> bool {
        let is_among = |names: &[Arc<str>]| names.iter().any(|known| &**known == name);
        match self {
            Self::OneOf(names) => name.is_empty() || is_among(names),
            Self::NoneOf(names) => !is_among(names),
        }
    }
}

/// Id of an answer, written as 32 hex digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerId(pub u128);

impl fmt::Display for AnswerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Values from the clock and the random number generator that one answer needs. The caller draws them once, so the
/// core stays deterministic.
#[derive(Clone, Debug, Default)]
pub struct Stamp {
    /// Id for an answer to which the engine gives none, without a prefix.
    pub id: AnswerId,
    /// Unix time in seconds, for times that the engine does not give.
    pub now: u64,
    /// Seed of the obfuscation padding, so that the padding of an answer is reproducible.
    pub seed: u64,
    /// Id of the client's request, which error messages name if the engine's own text is hidden; `None`: engine text
    /// is never hidden.
    pub request_id: Option<Arc<str>>,
}

/// Form of an engine's answer, found by looking at the body, because `content-type` may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
    /// Server-sent events, the form of a streamed answer, whatever its label.
    Events,
    /// A JSON object, the form of a whole answer.
    Object,
}

impl BodyForm {
    /// Returns the form of a body by its first byte after white space; `None`: neither form. `says_events`: the
    /// `content-type` is that of an event stream, which may begin with any field (wire-format 8.1).
    pub fn of(first: u8, says_events: bool) -> Option<Self> {
        match first {
            b'{' => Some(Self::Object),
            _ if says_events => Some(Self::Events),
            // `data`, `event`, `id`, `retry`, a comment, or a byte-order mark before one of them.
            b'd' | b'e' | b'i' | b'r' | b':' | 0xef => Some(Self::Events),
            _ => None,
        }
    }
}

/// End of an engine's bytes; it decides whether an unfinished answer is complete, incomplete or timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The body ended properly, by its length or its last chunk, as HTTP defines it.
    Clean,
    /// The connection broke before the body ended.
    Reset,
    /// A time limit of samewire expired before the body ended.
    Timeout,
    /// The answer was one complete object instead of a stream.
    Whole,
}

/// Progress of an answer, as the relay needs it to choose timeouts and to decide whether a retry is possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// True once text, a tool call or a finish has been seen; a role alone does not count.
    pub has_content: bool,
    /// True once the answer has ended or failed, so that nothing more will be written.
    pub ended: bool,
}

/// Summary of an answer for logs and metrics: usage, finish reasons, and counts of the rules that applied.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Last usage that the engine sent; `None` if it sent none.
    pub usage: Option<Usage>,
    /// Finish reasons of the choices that have finished.
    pub finishes: Vec<Reason>,
    /// Departures from the canonical format that were fixed, with their counts.
    pub tally: Tally,
    /// Names of the request rules that changed the request.
    pub adapted: Vec<&'static str>,
    /// Number of engine events read, the whole body of an unstreamed answer counting as one.
    pub events: u64,
    /// Reasoning or calls that the engine left in the text unexpectedly.
    pub unparsed: Option<Unparsed>,
    /// Mark with which a text begins that nothing reads.
    pub unread: Option<Unread>,
    /// True if the engine separated reasoning itself, in an answer whose text was searched for reasoning.
    pub reasoning_was_separate: bool,
    /// Facts about the model's chat template that the answer shows.
    pub template: TemplateFacts,
}

impl Summary {
    /// Adds the summary of an answer that gave another choice of the same request.
    pub fn add(&mut self, other: Self) {
        self.usage = match (self.usage, other.usage) {
            (Some(one), Some(other)) => Some(one.with_shared_prompt(&other)),
            (one, other) => one.or(other),
        };
        self.finishes.extend(other.finishes);
        for (rule, times) in other.tally.iter() {
            self.tally.add(rule, times);
        }
        for rule in other.adapted {
            if !self.adapted.contains(&rule) {
                self.adapted.push(rule);
            }
        }
        self.events += other.events;
        self.unparsed = self.unparsed.or(other.unparsed);
        self.unread = self.unread.or(other.unread);
        self.reasoning_was_separate |= other.reasoning_was_separate;
        self.template = self.template.or(other.template);
    }
}

/// Part of an answer that ended with fewer choices than the client requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingChoices {
    /// Number of choices that the answer has; their indices start at 0.
    pub choices: u32,
    /// Number of choices that the client requested (`n`), more than `choices`.
    pub requested: u32,
    /// Usage of the existing choices, if the client gets usage.
    pub usage: Option<Usage>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apis_are_known_by_their_paths() {
        for (path, expected) in [
            ("/v1/chat/completions", Some(Api::Chat)),
            (
                "/openai/deployments/m/chat/completions?api-version=1",
                Some(Api::Chat),
            ),
            ("/v1/completions", Some(Api::Completions)),
            ("/v1/responses", Some(Api::Responses)),
            ("/v1/messages?beta=true", Some(Api::Messages)),
            ("/v1/messages/count_tokens", None),
            ("/v1/embeddings", None),
        ] {
            assert_eq!(Api::of_path(path), expected, "{path}");
        }
    }

    #[test]
    fn the_first_byte_tells_the_form() {
        for (first, says_events, expected) in [
            (b'{', false, Some(BodyForm::Object)),
            (b'{', true, Some(BodyForm::Object)),
            (b'd', false, Some(BodyForm::Events)),
            (b':', false, Some(BodyForm::Events)),
            (b'x', true, Some(BodyForm::Events)),
            (b'x', false, None),
            (b'<', false, None),
        ] {
            assert_eq!(
                BodyForm::of(first, says_events),
                expected,
                "{first} {says_events}"
            );
        }
    }
}
