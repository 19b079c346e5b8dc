//! Event vocabulary between decoders and encoders.
//!
//! Decoders may emit these events in any order, as the engine dictates. The `Normaliser` passes on a sequence that
//! follows this grammar, whatever it received:
//!
//! ```text
//! stream = Head { choice(i) | Foreign } [Usage] (End | Fail)      choices may interleave; Fail may come anywhere,
//!                                                                 Head again when tier or fingerprint become known
//! choice = Role { Reasoning | Summary | Sealed | Content | Annotation | Tokens | Refusal | FunctionCall
//!               | ToolStart | ToolArgs | Break | Done | Bare } Finish
//!          no empty text; ToolStart(slot) before ToolArgs(slot); one Finish, last; after Fail or End nothing
//! Foreign(slot) = (Added Told* [Done]) | Whole                    of one item, among others
//! ```
//!
//! Events borrow from the frame they were read from and are consumed at once.

use super::fault::Failure;
use crate::json::{Extras, Raw, Text};

/// Key of the token ids of a choice's text, among the extras of a delta.
pub(crate) const TOKEN_IDS: &str = "token_ids";
/// Key of the token ids of the prompt, among the extras of a chunk.
pub(crate) const PROMPT_TOKEN_IDS: &str = "prompt_token_ids";
/// Key of the rendered prompt, at the top of a chunk or answer.
pub(crate) const PROMPT_TEXT: &str = "prompt_text";
/// Keys of a Responses object that `enable_response_messages` asks for: what the model has read, and what it wrote.
pub(crate) const RESPONSE_MESSAGES: [&str; 2] = ["input_messages", "output_messages"];
/// Keys of `input_tokens_details` that it asks for: the counts of each turn of the engine with its tools.
pub(crate) const INPUT_PER_TURN: [&str; 2] = ["input_tokens_per_turn", "cached_tokens_per_turn"];
/// Keys of `output_tokens_details` that it asks for.
pub(crate) const OUTPUT_PER_TURN: [&str; 2] =
    ["output_tokens_per_turn", "tool_output_tokens_per_turn"];

/// Event: one thing that happened in an engine's answer, independent of its API.
#[derive(Debug)]
pub enum Event<'a> {
    /// Envelope of the answer: id, creation time, model, tier and fingerprint.
    Head(Head<'a>),
    /// Change in one choice, with the data attached to it.
    Delta {
        /// Index of the choice in the answer.
        choice: u32,
        /// The change itself, such as a piece of text.
        delta: Delta<'a>,
        /// Data attached to the change, such as logprobs.
        extras: FrameExtras<'a>,
    },
    /// Token counts of the answer so far; later ones replace earlier ones.
    Usage {
        /// The token counts, as far as the engine gives them.
        usage: Usage,
        /// True if the counts came on their own chunk (`choices: []`).
        alone: bool,
        /// Data attached to the chunk, such as unknown fields.
        extras: FrameExtras<'a>,
    },
    /// Item of the engine that samewire does not model (Responses); it is passed through.
    Foreign {
        /// Type of the item; for [`ItemStage::Told`] the type of the event.
        name: &'a str,
        /// Number that identifies the item among the engine's others; `None` if no more events follow for it.
        slot: Option<u32>,
        /// Stage of the item: begun, in progress, or complete.
        stage: ItemStage,
        /// JSON of the item; for [`ItemStage::Told`] of the event.
        data: Raw<'a>,
    },
    /// Client's limits as the engine reports them (Responses): the value of `limits`, an object.
    Limits(Raw<'a>),
    /// Failure: the answer is broken, and nothing follows; the client gets an error.
    Fail(Failure),
    /// End: the answer is complete, and nothing follows; in a chat stream this is `[DONE]`.
    End,
}

/// Stage of an item that samewire does not model, from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemStage {
    /// The item begins; more events about it follow.
    Added,
    /// An event about the item, between its beginning and its end.
    Told,
    /// The item is complete; no more events about it follow.
    Done,
    /// The item comes complete, without a beginning.
    Whole,
}

/// Envelope of an answer. A decoder gives it as the engine sent it, the normaliser in canonical form.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head<'a> {
    /// Completion id, with or without a prefix; `None` if the engine gives none.
    pub id: Option<Text<'a>>,
    /// Creation time of the answer as Unix time in seconds.
    pub created: Option<u64>,
    /// Name of the model that answers, as the engine calls it.
    pub model: Option<Text<'a>>,
    /// Service tier that served the request.
    pub tier: Option<Text<'a>>,
    /// `system_fingerprint`, which identifies the engine's build and configuration.
    pub fingerprint: Option<Text<'a>>,
}

/// Change in a choice: a role, a piece of text, a tool call or its arguments, an end.
#[derive(Debug)]
pub enum Delta<'a> {
    /// The choice exists; becomes the role frame, which comes before all others of the choice.
    Role,
    /// Piece of reasoning text, whatever key the engine uses.
    Reasoning(Text<'a>),
    /// Piece of a summary of reasoning (Responses).
    Summary(Text<'a>),
    /// `encrypted_content` of reasoning (Responses); belongs to the current reasoning, or starts a new item.
    Sealed {
        /// Text of `encrypted_content`.
        text: Text<'a>,
        /// True if it belongs to the last reasoning item instead, whatever followed that item.
        late: bool,
    },
    /// Piece of answer text, never empty after the normaliser.
    Content(Text<'a>),
    /// Annotation of the current answer text, such as a citation (Responses).
    Annotation(Raw<'a>),
    /// Tokens of the whole current answer text, repeated with their bytes, which the deltas lack (Responses).
    Tokens(Vec<TokenLogprob<'a>>),
    /// Piece of refusal text, which clients get instead of an answer.
    Refusal(Text<'a>),
    /// Deprecated function call, name and arguments as sent.
    FunctionCall {
        /// Name of the function, if this piece has it.
        name: Option<Text<'a>>,
        /// Piece of the arguments, if this piece has one.
        arguments: Option<Text<'a>>,
    },
    /// Start of a tool call; its arguments follow in [`Delta::ToolArgs`].
    ToolStart {
        /// Position among the choice's calls, from 0 without gaps.
        slot: u32,
        /// Id of the call, in canonical form.
        id: &'a str,
        /// Name of the function or tool.
        name: &'a str,
        /// Namespace of the name, if the engine knows namespaces (Responses).
        namespace: Option<&'a str>,
        /// Kind of the tool.
        kind: ToolKind,
    },
    /// Piece of a tool call's arguments, or of a custom tool's input.
    ToolArgs {
        /// Position of the call among the choice's calls.
        slot: u32,
        /// The piece of arguments or input, never empty.
        args: Text<'a>,
    },
    /// Part of a whole message that is passed through unchanged; streams have none.
    Part {
        /// Key of the part in the message.
        name: PartName,
        /// Value as JSON; `None` if the key says it all.
        data: Option<Raw<'a>>,
    },
    /// Boundary between items: the next text opens a new item.
    Break,
    /// End of an item (Responses), before the choice as a whole ends.
    Done {
        /// Call that ended: a decoder gives the engine's index, the normaliser the position. `None`: the current
        /// text.
        slot: Option<u32>,
        /// True if the item ended too early, so that it is incomplete.
        cut: bool,
    },
    /// End of the choice, with its finish reason.
    Finish(Finish<'a>),
    /// Empty change: the event only carries extras.
    Bare,
}

/// Keys of a whole message that are passed through unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartName {
    /// `annotations`, a list of citations and the like.
    Annotations,
    /// `audio`, an object with the spoken answer.
    Audio,
    /// `content` that is the empty string; whole messages distinguish it from null.
    EmptyContent,
}

/// Kind of a tool, which decides whether its input is JSON or free text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ToolKind {
    /// Function, which takes a JSON object as its arguments.
    #[default]
    Function,
    /// Custom tool, which takes free text as its input.
    Custom,
    /// Search for tools that the client runs (Responses). Engines know it as a function.
    Search,
}

/// Tool entry: one element of `tool_calls` as decoded, before the normaliser knows which call it belongs to.
#[derive(Debug)]
pub struct ToolEntry<'a> {
    /// Engine's index of the call, if the entry has one.
    pub index: Option<u64>,
    /// Engine's id of the call, if the entry has one.
    pub id: Option<Text<'a>>,
    /// Name of the function or tool, if the entry has one.
    pub name: Option<Text<'a>>,
    /// Namespace of the name, if the entry has one (Responses).
    pub namespace: Option<Text<'a>>,
    /// Piece of the arguments or of the input, if any.
    pub args: Option<Text<'a>>,
    /// Kind of the tool, function or custom.
    pub kind: ToolKind,
    /// True if the entry is a complete, separate call.
    pub whole: bool,
    /// Place in the answer where the call was found.
    pub source: CallSource,
}

/// Place in an answer where a call was found: the engine's report or the text. A call may be in both (7.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallSource {
    /// The engine's own report of calls.
    #[default]
    Engine,
    /// Text of a stream.
    Text,
    /// Text of a whole answer, in which the engine's report of calls may follow.
    WholeText,
}

/// Finish of a choice: the canonical reason, and the engine's details about the stop.
#[derive(Clone, Copy, Debug)]
pub struct Finish<'a> {
    /// Reason for the end, in canonical form.
    pub reason: Reason,
    /// `stop_reason` (vLLM) or `matched_stop` (SGLang), as the engine sent it.
    pub stop: Option<Raw<'a>>,
}

/// Canonical finish reasons (2.6). Decoders map the engine's words to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The model stopped by itself, or at a stop string.
    Stop,
    /// The token limit of the request or of the model was reached.
    Length,
    /// The model calls tools and waits for their outputs.
    ToolCalls,
    /// The model calls a function, in the deprecated form.
    FunctionCall,
    /// A content filter removed the answer or cut it short.
    ContentFilter,
}

impl Reason {
    /// Returns the reason as the value of `finish_reason` on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::FunctionCall => "function_call",
            Self::ContentFilter => "content_filter",
        }
    }
}

/// Extras of a frame: data attached to a delta, such as logprobs and unknown fields. The first frame made from the chunk
/// carries them (1.6, 2.2).
#[derive(Debug, Default)]
pub struct FrameExtras<'a> {
    /// Logprobs of the chunk, if the client requested them.
    pub logprobs: Option<Logprobs<'a>>,
    /// Usage that stays on the frames (option `continuous_usage`).
    pub usage: Option<Box<ChunkUsage>>,
    /// Extensions of the chunk that the client requested ([`super::Extensions`]).
    pub chunk_extensions: Extras<'a>,
    /// Extensions of the choice that the client requested, such as `token_ids`.
    pub choice_extensions: Extras<'a>,
    /// Unknown keys of the chunk, for its `x_upstream`.
    pub chunk: Extras<'a>,
    /// Unknown keys of the choice, for its `x_upstream`.
    pub choice: Extras<'a>,
    /// Unknown keys of the delta or message, for the choice's `x_upstream`.
    pub delta: Extras<'a>,
    /// The chunk's own `x_upstream`, which is then written alone.
    pub chunk_upstream: Option<Raw<'a>>,
    /// The choice's own `x_upstream`, which is then written alone.
    pub choice_upstream: Option<Raw<'a>>,
    /// True if the choice's tokens have been parsed already: later deltas of the same chunk bring no new ones.
    pub tokens_read: bool,
}

impl FrameExtras<'_> {
    /// Returns true if there are no logprobs, extensions or unknown fields; usage does not count.
    pub fn is_empty(&self) -> bool {
        let has_extensions =
            !self.chunk_extensions.is_empty() || !self.choice_extensions.is_empty();
        self.logprobs.is_none() && !has_extensions && !self.has_unknown()
    }

    /// Returns true if there are unknown fields of the chunk, the choice or the delta, for `x_upstream`.
    pub fn has_unknown(&self) -> bool {
        self.has_unknown_of_choice() || self.has_unknown_of_chunk()
    }

    pub(crate) fn has_unknown_of_choice(&self) -> bool {
        self.choice_upstream.is_some() || !self.choice.is_empty() || !self.delta.is_empty()
    }

    pub(crate) fn has_unknown_of_chunk(&self) -> bool {
        self.chunk_upstream.is_some() || !self.chunk.is_empty()
    }
}

/// Log probabilities of a chunk or a whole answer, in the shape of the upstream's API.
#[derive(Debug)]
pub enum Logprobs<'a> {
    /// An entry for each token: Chat Completions, and engines that use its shape in Completions.
    Tokens {
        /// Tokens of the content, if the engine lists them.
        content: Option<Vec<TokenLogprob<'a>>>,
        /// Tokens of the refusal, if the engine lists them.
        refusal: Option<Vec<TokenLogprob<'a>>>,
    },
    /// Legacy Completions: parallel arrays, passed through in canonical key order (`tokens`, `token_logprobs`,
    /// `top_logprobs`, `text_offset`).
    Legacy([Option<Raw<'a>>; 4]),
}

/// Log probability of one token, with the bytes and the alternatives that the engine gave.
#[derive(Debug, Default)]
pub struct TokenLogprob<'a> {
    /// Text of the token, as the engine sent it.
    pub token: Text<'a>,
    /// Log probability, as the engine sent it; `None` if it sent none.
    pub logprob: Option<Raw<'a>>,
    /// Bytes of the token, a JSON array, if known.
    pub bytes: Option<Raw<'a>>,
    /// Alternatives at this position, with their own log probabilities.
    pub top: Vec<Self>,
}

/// Usage of a chunk, for the frames that are made from it.
#[derive(Clone, Copy, Debug)]
pub struct ChunkUsage {
    /// Token counts of the answer up to this chunk.
    pub usage: Usage,
    /// True if the chunk also carries the finish of the choice.
    pub last: bool,
}

/// Token counts (2.8). Absent counts are 0, except those that are written only when present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of tokens of the prompt (`prompt_tokens`).
    pub prompt: u64,
    /// Number of tokens of the answer, reasoning included (`completion_tokens`).
    pub completion: u64,
    /// Sum of both counts, or the engine's own total (`total_tokens`).
    pub total: u64,
    /// Number of prompt tokens read from the cache (`cached_tokens`).
    pub cached: u64,
    /// Number of audio tokens in the prompt.
    pub prompt_audio: u64,
    /// Number of image tokens in the prompt, if the engine counts them.
    pub prompt_image: Option<u64>,
    /// Number of text tokens in the prompt, if the engine counts them.
    pub prompt_text: Option<u64>,
    /// Number of prompt tokens written to the cache, if the engine counts them.
    pub cache_write: Option<u64>,
    /// Number of reasoning tokens in the answer (`reasoning_tokens`), if the engine counts them; written as 0 if not.
    pub reasoning: Option<u64>,
    /// Number of audio tokens in the answer.
    pub completion_audio: u64,
    /// Number of tokens of a predicted output that the model accepted (`accepted_prediction_tokens`).
    pub accepted: u64,
    /// Number of tokens of a predicted output that the model rejected (`rejected_prediction_tokens`).
    pub rejected: u64,
}

impl Usage {
    /// Returns the usage of two choices for the same prompt, whose tokens are counted once.
    #[must_use]
    pub fn with_shared_prompt(&self, other: &Self) -> Self {
        let completion = self.completion.saturating_add(other.completion);
        Self {
            completion,
            total: self.prompt.saturating_add(completion),
            reasoning: sum(self.reasoning, other.reasoning),
            completion_audio: self.completion_audio.saturating_add(other.completion_audio),
            accepted: self.accepted.saturating_add(other.accepted),
            rejected: self.rejected.saturating_add(other.rejected),
            // The later request may have found in the cache what the first one stored there.
            cached: self.cached.min(other.cached),
            ..*self
        }
    }

    /// Returns the sum of two usages of consecutive requests, each of which processed its own prompt.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            prompt: self.prompt.saturating_add(other.prompt),
            completion: self.completion.saturating_add(other.completion),
            total: self.total.saturating_add(other.total),
            cached: self.cached.saturating_add(other.cached),
            prompt_audio: self.prompt_audio.saturating_add(other.prompt_audio),
            prompt_image: sum(self.prompt_image, other.prompt_image),
            prompt_text: sum(self.prompt_text, other.prompt_text),
            cache_write: sum(self.cache_write, other.cache_write),
            reasoning: sum(self.reasoning, other.reasoning),
            completion_audio: self.completion_audio.saturating_add(other.completion_audio),
            accepted: self.accepted.saturating_add(other.accepted),
            rejected: self.rejected.saturating_add(other.rejected),
        }
    }
}

/// Returns the sum of two counts; `None` if neither is there.
fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (None, None) => None,
        _ => Some(one.unwrap_or(0).saturating_add(other.unwrap_or(0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usages_beyond_all_numbers_are_added() {
        let most = Usage {
            prompt: u64::MAX,
            cache_write: Some(u64::MAX),
            ..Usage::default()
        };
        let sum = most.plus(&Usage {
            prompt: 2,
            total: 3,
            cache_write: Some(1),
            ..Usage::default()
        });
        assert_eq!(
            (sum.prompt, sum.total, sum.cache_write),
            (u64::MAX, 3, Some(u64::MAX))
        );
    }

    #[test]
    fn counts_that_nobody_gave_stay_unknown() {
        let known = Usage {
            prompt_text: Some(2),
            ..Usage::default()
        };
        let sum = Usage {
            cache_write: Some(1),
            ..Usage::default()
        }
        .plus(&known);
        assert_eq!(
            (sum.prompt_image, sum.prompt_text, sum.cache_write),
            (None, Some(2), Some(1))
        );
    }

    #[test]
    fn extras_are_told_apart() {
        let field = || {
            let mut extras = Extras::default();
            extras.keep("x".into(), Raw::NULL);
            extras
        };
        let none = FrameExtras::default;
        // Whether there are any extras, fields of any level, of the choice, and of the chunk.
        for (extras, expected) in [
            (none(), [false; 4]),
            (
                FrameExtras {
                    usage: Some(Box::new(ChunkUsage {
                        usage: Usage::default(),
                        last: true,
                    })),
                    ..none()
                },
                [false; 4],
            ),
            (
                FrameExtras {
                    logprobs: Some(Logprobs::Legacy([None; 4])),
                    ..none()
                },
                [true, false, false, false],
            ),
            (
                FrameExtras {
                    chunk_extensions: field(),
                    ..none()
                },
                [true, false, false, false],
            ),
            (
                FrameExtras {
                    choice_extensions: field(),
                    ..none()
                },
                [true, false, false, false],
            ),
            (
                FrameExtras {
                    chunk: field(),
                    ..none()
                },
                [true, true, false, true],
            ),
            (
                FrameExtras {
                    chunk_upstream: Some(Raw::NULL),
                    ..none()
                },
                [true, true, false, true],
            ),
            (
                FrameExtras {
                    choice: field(),
                    ..none()
                },
                [true, true, true, false],
            ),
            (
                FrameExtras {
                    delta: field(),
                    ..none()
                },
                [true, true, true, false],
            ),
            (
                FrameExtras {
                    choice_upstream: Some(Raw::NULL),
                    ..none()
                },
                [true, true, true, false],
            ),
        ] {
            let found = [
                !extras.is_empty(),
                extras.has_unknown(),
                extras.has_unknown_of_choice(),
                extras.has_unknown_of_chunk(),
            ];
            assert_eq!(found, expected, "{extras:?}");
        }
    }
}
