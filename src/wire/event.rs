//! The vocabulary between decoders and encoders.
//!
//! Decoders may say these events in any order the engine dictates. What the `Normaliser`
//! passes on follows this grammar, whatever came in:
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
use std::fmt;

/// One thing that happened in the engine's answer.
#[derive(Debug)]
pub enum Event<'a> {
    /// The envelope: who answers.
    Head(Head<'a>),
    /// Something in one choice.
    Delta {
        /// The choice's index.
        choice: u32,
        /// What happened in it.
        delta: Delta<'a>,
        /// What travels along.
        riders: Riders<'a>,
    },
    /// Token counts. The last one counts.
    Usage {
        /// The counts.
        usage: Usage,
        /// Whether it came on a chunk of its own (`choices: []`).
        alone: bool,
        /// What travels along.
        riders: Riders<'a>,
    },
    /// An item of the engine that is not modelled (Responses).
    Foreign {
        /// Its type; for [`Stage::Told`] that of the event.
        name: &'a str,
        /// What tells it from the engine's other items; `None` if nothing else will be said of it.
        slot: Option<u32>,
        /// How far it is.
        stage: Stage,
        /// Its JSON; for [`Stage::Told`] that of the event.
        data: Raw<'a>,
    },
    /// The engine's word on the client's limits (Responses): the value of `limits`, an object.
    Limits(Raw<'a>),
    /// The answer is broken.
    Fail(Failure),
    /// The answer is complete.
    End,
}

/// How far an item is that is not modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It begins.
    Added,
    /// An event of its own.
    Told,
    /// It is complete.
    Done,
    /// It comes complete, without a beginning.
    Whole,
}

/// The envelope of an answer. From a decoder: as the engine says it. From the normaliser: canonical.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head<'a> {
    /// Completion id.
    pub id: Option<Text<'a>>,
    /// Unix time, seconds.
    pub created: Option<u64>,
    /// Model name.
    pub model: Option<Text<'a>>,
    /// Service tier.
    pub tier: Option<Text<'a>>,
    /// `system_fingerprint`.
    pub fingerprint: Option<Text<'a>>,
}

/// What happened in a choice.
#[derive(Debug)]
pub enum Delta<'a> {
    /// The choice exists.
    Role,
    /// Reasoning text.
    Reasoning(Text<'a>),
    /// Summary of reasoning (Responses).
    Summary(Text<'a>),
    /// `encrypted_content` of reasoning (Responses): of the reasoning that goes on, or of a new item.
    Sealed {
        /// What it is.
        text: Text<'a>,
        /// Of the last reasoning item instead, whatever came after it.
        late: bool,
    },
    /// Answer text.
    Content(Text<'a>),
    /// An annotation of the answer text that goes on (Responses).
    Annotation(Raw<'a>),
    /// All tokens of the answer text that goes on, once more, with their bytes, of which its deltas say nothing (Responses).
    Tokens(Vec<TokenLogprob<'a>>),
    /// Refusal text.
    Refusal(Text<'a>),
    /// Deprecated function call, name and arguments as sent.
    FunctionCall {
        /// The function's name.
        name: Option<Text<'a>>,
        /// A piece of its arguments.
        arguments: Option<Text<'a>>,
    },
    /// A tool call begins.
    ToolStart {
        /// Its place among the choice's calls, from 0 without gaps.
        slot: u32,
        /// Its id.
        id: &'a str,
        /// The function's or tool's name.
        name: &'a str,
        /// The namespace the name is of, if the engine knows namespaces (Responses).
        namespace: Option<&'a str>,
        /// What is called.
        kind: ToolKind,
    },
    /// A piece of a tool call's arguments, or of a custom tool's input.
    ToolArgs {
        /// The call's place.
        slot: u32,
        /// The piece, never empty.
        args: Text<'a>,
    },
    /// A part of a whole message that is carried as it is.
    Part {
        /// Its key in the message.
        name: PartName,
        /// Its value.
        data: Option<Raw<'a>>,
    },
    /// The next text opens a new item.
    Break,
    /// An item is complete (Responses).
    Done {
        /// The call. From a decoder: by the engine's index; from the normaliser: by its place. `None`: the text that
        /// goes on.
        slot: Option<u32>,
        /// It ended too early.
        cut: bool,
    },
    /// The choice is complete.
    Finish(Finish<'a>),
    /// Nothing but riders.
    Bare,
}

/// Keys of a whole message that are carried unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartName {
    /// `annotations`
    Annotations,
    /// `audio`
    Audio,
    /// `content` that is the empty string, which a whole message tells from null.
    EmptyContent,
}

/// What a tool call calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ToolKind {
    /// A function with JSON arguments.
    #[default]
    Function,
    /// A custom tool with free text input.
    Custom,
}

/// One element of `tool_calls`, before it is known which call it belongs to.
#[derive(Debug)]
pub struct ToolEntry<'a> {
    /// The engine's index, if it sends one.
    pub index: Option<u64>,
    /// The engine's id, if it sends one.
    pub id: Option<Text<'a>>,
    /// The name, if it sends one.
    pub name: Option<Text<'a>>,
    /// The namespace of the name, if it sends one.
    pub namespace: Option<Text<'a>>,
    /// Arguments or input, if any.
    pub args: Option<Text<'a>>,
    /// What is called.
    pub kind: ToolKind,
    /// The entry is a call of its own, complete.
    pub whole: bool,
}

/// The end of a choice.
#[derive(Clone, Copy, Debug)]
pub struct Finish<'a> {
    /// Why it ended.
    pub reason: Reason,
    /// `stop_reason` or `matched_stop`, as sent.
    pub stop: Option<Raw<'a>>,
}

/// Canonical finish reasons (2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The model was done.
    Stop,
    /// The token limit.
    Length,
    /// The model calls tools.
    ToolCalls,
    /// The model calls a function, deprecated form.
    FunctionCall,
    /// The answer was filtered.
    ContentFilter,
}

impl Reason {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::FunctionCall => "function_call",
            Self::ContentFilter => "content_filter",
        }
    }
}

/// What travels with a delta: it boards the first frame made from its chunk (1.6, 2.2).
#[derive(Debug, Default)]
pub struct Riders<'a> {
    /// Logprobs of the chunk, if the client asked for them.
    pub logprobs: Option<Logprobs<'a>>,
    /// Usage that stays on the frames (option `continuous_usage`).
    pub usage: Option<Box<Running>>,
    /// Extensions of the chunk that the client asked for ([`super::Extensions`]).
    pub chunk_extensions: Extras<'a>,
    /// Extensions of the choice that the client asked for.
    pub choice_extensions: Extras<'a>,
    /// Unknown keys of the chunk.
    pub chunk: Extras<'a>,
    /// Unknown keys of the choice.
    pub choice: Extras<'a>,
    /// Unknown keys of the delta or message.
    pub delta: Extras<'a>,
    /// The chunk's own `x_upstream`, which then stands alone.
    pub chunk_upstream: Option<Raw<'a>>,
    /// The choice's own `x_upstream`, which then stands alone.
    pub choice_upstream: Option<Raw<'a>>,
    /// The tokens of the choice have been parsed: what is said next of its chunk brings no new ones.
    pub tokens_read: bool,
}

impl Riders<'_> {
    /// Nobody aboard.
    pub fn is_empty(&self) -> bool {
        let has_extensions = !self.chunk_extensions.is_empty() || !self.choice_extensions.is_empty();
        self.logprobs.is_none() && !has_extensions && !self.has_extras()
    }

    /// Anything for `x_upstream`.
    pub fn has_extras(&self) -> bool {
        self.has_choice_extras() || self.has_chunk_extras()
    }

    pub(crate) fn has_choice_extras(&self) -> bool {
        self.choice_upstream.is_some() || !self.choice.is_empty() || !self.delta.is_empty()
    }

    pub(crate) fn has_chunk_extras(&self) -> bool {
        self.chunk_upstream.is_some() || !self.chunk.is_empty()
    }
}

/// Log probabilities in the shape of the upstream's API.
#[derive(Debug)]
pub enum Logprobs<'a> {
    /// Chat, and engines that write chat's shape in completions: an entry for each token.
    Tokens {
        /// Tokens of the content.
        content: Option<Vec<TokenLogprob<'a>>>,
        /// Tokens of the refusal.
        refusal: Option<Vec<TokenLogprob<'a>>>,
    },
    /// Legacy completions: parallel arrays, carried as they are, in canonical key order
    /// (`tokens`, `token_logprobs`, `top_logprobs`, `text_offset`).
    Legacy([Option<Raw<'a>>; 4]),
}

/// One token with its probability.
#[derive(Debug, Default)]
pub struct TokenLogprob<'a> {
    /// The token.
    pub token: Text<'a>,
    /// Its log probability, as sent.
    pub logprob: Option<Raw<'a>>,
    /// Its bytes, an array, if known.
    pub bytes: Option<Raw<'a>>,
    /// The alternatives.
    pub top: Vec<Self>,
}

/// The count of a chunk, for the frames that are made of it.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    /// The count.
    pub usage: Usage,
    /// The chunk also ends the choice.
    pub last: bool,
}

/// Token counts (2.8). Absent counts are 0, except those that are written only when present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens of the answer, reasoning included.
    pub completion: u64,
    /// Their sum, or what the engine says.
    pub total: u64,
    /// Prompt tokens found in the cache.
    pub cached: u64,
    /// Audio tokens of the prompt.
    pub prompt_audio: u64,
    /// Image tokens of the prompt.
    pub prompt_image: Option<u64>,
    /// Text tokens of the prompt.
    pub prompt_text: Option<u64>,
    /// Prompt tokens written to the cache.
    pub cache_write: Option<u64>,
    /// Tokens of reasoning.
    pub reasoning: u64,
    /// Audio tokens of the answer.
    pub completion_audio: u64,
    /// Accepted prediction tokens.
    pub accepted: u64,
    /// Rejected prediction tokens.
    pub rejected: u64,
}

impl Usage {
    /// Of two choices for the same prompt: that counts once.
    #[must_use]
    pub fn beside(&self, other: &Self) -> Self {
        let completion = self.completion.saturating_add(other.completion);
        Self {
            completion,
            total: self.prompt.saturating_add(completion),
            reasoning: self.reasoning.saturating_add(other.reasoning),
            completion_audio: self.completion_audio.saturating_add(other.completion_audio),
            accepted: self.accepted.saturating_add(other.accepted),
            rejected: self.rejected.saturating_add(other.rejected),
            // Whoever came later may have found what the first one left there.
            cached: self.cached.min(other.cached),
            ..*self
        }
    }

    /// The two together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let both = |one: Option<u64>, two: Option<u64>| match (one, two) {
            (None, None) => None,
            _ => Some(one.unwrap_or(0) + two.unwrap_or(0)),
        };
        Self {
            prompt: self.prompt + other.prompt,
            completion: self.completion + other.completion,
            total: self.total + other.total,
            cached: self.cached + other.cached,
            prompt_audio: self.prompt_audio + other.prompt_audio,
            prompt_image: both(self.prompt_image, other.prompt_image),
            prompt_text: both(self.prompt_text, other.prompt_text),
            cache_write: both(self.cache_write, other.cache_write),
            reasoning: self.reasoning + other.reasoning,
            completion_audio: self.completion_audio + other.completion_audio,
            accepted: self.accepted + other.accepted,
            rejected: self.rejected + other.rejected,
        }
    }
}

/// The printed form that the event logs of the fixtures show.
impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(head) => {
                write!(f, "head")?;
                let texts = [
                    ("id", head.id),
                    ("model", head.model),
                    ("tier", head.tier),
                    ("fingerprint", head.fingerprint),
                ];
                for (name, text) in texts {
                    if let Some(text) = text {
                        write!(f, " {name}={:?}", text.decoded())?;
                    }
                }
                head.created.map_or(Ok(()), |created| write!(f, " created={created}"))
            }
            Self::Delta { choice, delta, riders } => write!(f, "{choice} {delta}{riders}"),
            Self::Usage { usage, .. } => {
                write!(
                    f,
                    "usage prompt={} completion={} total={}",
                    usage.prompt, usage.completion, usage.total
                )?;
                write!(f, " cached={} reasoning={}", usage.cached, usage.reasoning)
            }
            Self::Foreign { name, slot, stage, data } => {
                write!(f, "foreign {stage:?} {name}")?;
                slot.map_or(Ok(()), |slot| write!(f, " {slot}"))?;
                write!(f, " {data}")
            }
            Self::Limits(limits) => write!(f, "limits {limits}"),
            Self::Fail(failure) => {
                write!(
                    f,
                    "fail {} {} {:?}",
                    failure.status,
                    failure.code.as_deref().unwrap_or("-"),
                    failure.message
                )
            }
            Self::End => write!(f, "end"),
        }
    }
}

impl fmt::Display for Delta<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &Option<Text<'_>>| {
            text.map_or_else(|| "-".to_owned(), |text| format!("{:?}", text.decoded()))
        };
        match self {
            Self::Role => write!(f, "role"),
            Self::Reasoning(text) => write!(f, "reasoning {:?}", text.decoded()),
            Self::Summary(text) => write!(f, "summary {:?}", text.decoded()),
            Self::Content(text) => write!(f, "content {:?}", text.decoded()),
            Self::Refusal(text) => write!(f, "refusal {:?}", text.decoded()),
            Self::FunctionCall { name, arguments } => {
                write!(f, "function-call {} {}", shown(name), shown(arguments))
            }
            Self::ToolStart { slot, id, name, namespace, kind } => {
                write!(f, "tool-start {slot} {id:?} {name:?} {kind:?}")?;
                namespace.map_or(Ok(()), |namespace| write!(f, " {namespace:?}"))
            }
            Self::ToolArgs { slot, args } => write!(f, "tool-args {slot} {:?}", args.decoded()),
            Self::Part { name, data } => {
                write!(f, "part {name:?}")?;
                data.map_or(Ok(()), |data| write!(f, " {data}"))
            }
            Self::Sealed { text, .. } => write!(f, "sealed {:?}", text.decoded()),
            Self::Annotation(data) => write!(f, "annotation {data}"),
            Self::Tokens(entries) => write!(f, "tokens {}", entries.len()),
            Self::Break => write!(f, "break"),
            Self::Done { slot, cut } => {
                write!(f, "done")?;
                slot.map_or(Ok(()), |slot| write!(f, " {slot}"))?;
                if *cut { write!(f, " cut") } else { Ok(()) }
            }
            Self::Finish(finish) => {
                write!(f, "finish {}", finish.reason.word())?;
                finish.stop.map_or(Ok(()), |stop| write!(f, " stop={stop}"))
            }
            Self::Bare => write!(f, "bare"),
        }
    }
}

impl fmt::Display for Riders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.logprobs {
            Some(Logprobs::Tokens { content, refusal }) => {
                for entry in content.iter().chain(refusal).flatten() {
                    write!(f, " logprob({:?})", entry.token.decoded())?;
                }
            }
            Some(Logprobs::Legacy(arrays)) => {
                for array in arrays.iter().flatten() {
                    write!(f, " logprobs={array}")?;
                }
            }
            None => {}
        }
        let levels = [
            ("asked.chunk", &self.chunk_extensions),
            ("asked.choice", &self.choice_extensions),
            ("chunk", &self.chunk),
            ("choice", &self.choice),
            ("delta", &self.delta),
        ];
        for (level, extras) in levels {
            for (key, value) in extras.iter() {
                write!(f, " {level}.{key}={value}")?;
            }
        }
        Ok(())
    }
}
