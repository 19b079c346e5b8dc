//! The wire: engine bytes in, canonical bytes out (wire-format 1–3, 8).
//!
//! ```text
//! bytes ─→ sse::Framer ─→ decode ─→ [parse] ─→ normalise ─→ encode ─→ bytes
//!          frames         events               grammar      one client API
//! ```
//!
//! Takes: bytes of an answer, cut anywhere, and how they ended. Gives: canonical bytes, a [`Summary`]. Remembers:
//! what the stages list. Never: waits, reads a clock, draws a random number, panics, returns an error.
//!
//! [`Rewriter`] joins the stages. Frames that equal the two before them except for their text skip those between
//! framer and output (`fast_path`).
//!
//! Parsers for text that an engine left unparsed (Harmony, reasoning between tags, calls) run between decode and
//! normalise, if an option asks for them. They turn `Content` events into `Reasoning`, `Content`, tool entries and
//! items, so neither neighbour has to know about them. With a parser, only text without anything to parse takes the
//! fast path.
//!
//! If an engine gives only one choice per request, each choice has an [`AnswerReader`], and the [`AnswerWriter`] merges
//! their events before the encoder (`normalise/merge.rs`).

mod api;
mod arguments;
pub mod decode;
pub mod disclosure;
pub mod embeddings;
pub mod encode;
pub mod event;
mod fast_path;
pub mod fault;
mod held_extras;
mod held_reasoning;
pub mod ident;
mod naming;
mod normalise;
pub mod options;
mod output;
pub mod overflow;
mod parse;
mod refusal;
mod repair;
mod rewriter;
pub mod rule;
#[cfg(test)]
#[path = "../../../tests/support/cases/shown.rs"]
mod shown;
pub mod sse;
mod stages;
pub mod tools;

pub use api::{
    AnswerId, Api, BodyForm, Ending, Extensions, MissingChoices, Models, Progress, Quirks, Shape,
    Stamp, Summary,
};
pub(crate) use event::{PROMPT_TEXT, PROMPT_TOKEN_IDS, TOKEN_IDS};
pub use normalise::AnswerWriter;
pub use output::{OutputBuffer, OutputMark};
pub(crate) use output::{Rope, Spelled};
pub use parse::{
    Effort, EngineFacts, OutputConstraints, TemplateFacts, TextFormat, Unparsed, Unread,
    Vocabulary, format_marks,
};
pub use rewriter::{AnswerReader, Rewriter};
