//! The wire: engine bytes in, canonical bytes out (wire-format 1–3, 8).
//!
//! ```text
//! bytes ─→ sse::Framer ─→ decode ─→ [parse] ─→ normalise ─→ encode ─→ bytes
//!          frames         events               grammar      one client API
//! ```
//!
//! Takes: bytes of an answer, cut anywhere, and how they ended. Gives: canonical bytes, a [`Summary`].
//! Remembers: what the stages name. Never: waits, reads a clock, draws a random number, panics, returns an error.
//!
//! Frames that are spelled like the two before them, but for their text, take a short way from the framer to the end
//! (`stencil`).
//!
//! Parsers of text that an engine left unparsed (Harmony, reasoning between tags, calls) stand between decode and
//! normalise, where an option asks for them: they take `Content` events and give `Reasoning`, `Content`, tool entries and items, so that neither side changes.
//! With one of them only text takes the short way in which it finds nothing to look at.
//!
//! Where an engine gives one choice alone, several of these ways end in one encoder ([`Gather`]).

mod arguments;
pub mod decode;
mod detached_riders;
pub mod disclosure;
pub mod embeddings;
pub mod encode;
pub mod event;
mod fast_path;
pub mod fault;
mod gather;
pub(crate) mod ident;
mod naming;
mod normalise;
pub mod options;
mod output;
mod parse;
pub mod rule;
pub mod sse;
pub mod tools;

use crate::json::Raw;
use decode::{Decode, Quirks, Reading, Sink};
use encode::{Encode, Limits};
use event::{Delta, Event, Reason, Riders, ToolEntry, Usage};
use fast_path::{FastPath, FrameShape};
use fault::{Failure, Fault};
pub use gather::Gather;
use normalise::{Normaliser, Output};
use options::{ContinuousUsage, InvalidEvent, Options};
pub use output::OutputBuffer;
pub(crate) use output::{Rope, Spelled};
pub use parse::{EngineParsers, Offer, Script, Unparsed, Vocabulary};
use parse::{Parsing, TextRoute};
use rule::{Rule, Tally};
use sse::{Found, Frame, Framer};
use std::sync::Arc;

/// The APIs whose answers are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Chat Completions.
    Chat,
    /// Legacy Completions.
    Completions,
    /// Responses.
    Responses,
}

impl Api {
    fn id_prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl-",
            Self::Completions => "cmpl-",
            Self::Responses => "resp_",
        }
    }
}

/// The extensions of the engine that the client asked for. They come back where the engine puts them, whatever becomes of other
/// unknown fields (wire-format 2.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// `return_token_ids`: `token_ids` and `prompt_token_ids`.
    pub token_ids: bool,
    /// `prompt_logprobs`: the same key.
    pub prompt_logprobs: bool,
}

impl Extensions {
    /// The keys under which they come back, in canonical order.
    pub(crate) fn keys(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (TOKEN_IDS, self.token_ids),
            ("prompt_logprobs", self.prompt_logprobs),
            (PROMPT_TOKEN_IDS, self.token_ids),
        ];
        all.into_iter().filter(|(_, asked)| *asked).map(|(key, _)| key)
    }
}

/// The tokens of a choice's text.
pub(crate) const TOKEN_IDS: &str = "token_ids";
/// The tokens of the prompt.
pub(crate) const PROMPT_TOKEN_IDS: &str = "prompt_token_ids";

/// What the answer to one request must look like, and how the engine's is to be read.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The API the client speaks.
    pub client: Api,
    /// The API the engine was asked in.
    pub upstream: Api,
    /// SSE for the client, or one object.
    pub stream: bool,
    /// The model the client named.
    pub model: String,
    /// How many choices were asked for.
    pub choices: u32,
    /// The number of the only one, where others have answers of their own.
    pub choice: u32,
    /// The client gets a usage frame.
    pub include_usage: bool,
    /// The client asked for `continuous_usage_stats`.
    pub continuous_usage: bool,
    /// The client asked for logprobs.
    pub logprobs: bool,
    /// The client asked for these extensions of the engine.
    pub extensions: Extensions,
    /// The client asked for obfuscation.
    pub include_obfuscation: bool,
    /// The token limit of the request, to see through hidden truncation.
    pub limit: Option<u64>,
    /// The function that `tool_choice` forces.
    pub forced_function: Option<String>,
    /// Calls after the first are left out: the client wants one, and the engine may give more.
    pub one_call: bool,
    /// Custom tools that the engine knows as functions of one string.
    pub custom_tools: Vec<String>,
    /// The client knows calls only as `function_call`.
    pub legacy_functions: bool,
    /// The client gets no reasoning.
    pub hide_reasoning: bool,
    /// The names of the rules that changed the request.
    pub adapted: Vec<&'static str>,
    /// Bytes of one engine event (`max_event_bytes`).
    pub max_event_bytes: usize,
    /// The engine may end fewer choices than were asked for: the others are asked for behind them.
    pub may_lack: bool,
    /// What is known of the engine.
    pub quirks: Quirks,
    /// What the answer's model may be called besides what the client called it; `None`: anything.
    pub models: Option<Models>,
    /// How the text is written, where the engine may leave it unparsed; `None`: it stays as it is.
    pub script: Option<Arc<Script>>,
    /// The options in force.
    pub options: Arc<Options>,
}

impl Shape {
    /// A plain request of one choice: the defaults from which a request's own shape departs.
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
            custom_tools: Vec::new(),
            legacy_functions: false,
            hide_reasoning: options.reasoning_field == options::ReasoningField::None,
            adapted: Vec::new(),
            may_lack: false,
            models: None,
            max_event_bytes: 4 << 20,
            quirks: Quirks::default(),
            script: None,
            options,
        }
    }
}

impl Shape {
    /// Whether usage stays on the frames on which the engine gives it.
    pub(crate) fn has_continuous_usage(&self) -> bool {
        match self.options.continuous_usage {
            ContinuousUsage::Strip => false,
            ContinuousUsage::Pass => self.continuous_usage,
            ContinuousUsage::Always => true,
        }
    }
}

/// What the core needs of clock and chance, drawn once by its caller.
#[derive(Clone, Debug, Default)]
pub struct Stamp {
    /// 32 hex digits for an answer that has no id.
    pub id: String,
    /// Unix time, seconds.
    pub now: u64,
    /// Seed of the obfuscation padding.
    pub seed: u64,
    /// Id of the client's request, which an error names in the place of the engine's own text; `None`: the engine's text
    /// is not hidden.
    pub request_id: Option<Box<str>>,
}

/// What the body of an engine's answer is, whatever its label says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Server-sent events.
    Events,
    /// One JSON object.
    Object,
}

impl Form {
    /// The form of a body whose first byte, white space aside, is this one; `None`: neither. `says_events`: its label
    /// is that of an event stream, which may begin with any field (wire-format 8.1).
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

/// How the engine's bytes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The body ended as HTTP says it should.
    Clean,
    /// The connection broke.
    Reset,
    /// A time limit of ours ran out.
    Timeout,
    /// The answer was one complete object.
    Whole,
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Text, a tool call or a finish has been seen.
    pub spoken: bool,
    /// Nothing more will be written.
    pub ended: bool,
}

/// What an answer was, for logs and metrics.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The last usage the engine gave.
    pub usage: Option<Usage>,
    /// How the choices finished.
    pub finishes: Vec<Reason>,
    /// What was mended.
    pub tally: Tally,
    /// The names of the rules that changed the request.
    pub adapted: Vec<&'static str>,
    /// Engine events read.
    pub events: u64,
    /// What the engine left in the text although nobody had said so.
    pub unparsed: Option<Unparsed>,
    /// The engine has told what is reasoning, where that was looked for in the text.
    pub told_reasoning: bool,
}

impl Summary {
    /// Adds that of the answer that gives another choice.
    pub fn add(&mut self, other: Self) {
        self.usage = match (self.usage, other.usage) {
            (Some(one), Some(other)) => Some(one.beside(&other)),
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
        self.told_reasoning |= other.told_reasoning;
    }
}

/// The choices of an answer that has fewer than were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingChoices {
    /// The number of choices that exist, counted from the first.
    pub choices: u32,
    /// The number of choices that the client asked for.
    pub asked: u32,
    /// The tokens that they used, where the client is told.
    pub usage: Option<Usage>,
}

/// The pipeline for one answer.
pub struct Rewriter {
    framer: Framer,
    core: Core,
}

/// Everything behind the framer.
struct Core {
    decoder: Box<dyn Decode>,
    parsing: Option<Box<Parsing>>,
    normaliser: Normaliser,
    encoder: Box<dyn Encode>,
    fast_path: FastPath,
    skip_invalid: bool,
    whole: bool,
    /// The status has gone out, or bytes have: a failure must be told in the stream.
    committed: bool,
    /// The tokens of the prompt have been told.
    prompt_told: bool,
    /// The failure that nothing came before.
    failure: Option<Failure>,
    events: u64,
    /// The names that the answer's model may have, until it has said which.
    models: Option<Models>,
    /// What the client called the model.
    asked: String,
    /// The names of the rules that changed the request.
    adapted: Vec<&'static str>,
}

/// What an answer's model may be called (faults U50).
#[derive(Clone, Debug)]
pub enum Models {
    /// One of these.
    OneOf(Arc<[Arc<str>]>),
    /// None of these: others are known to be called so.
    NoneOf(Arc<[Arc<str>]>),
}

impl Models {
    fn allow(&self, name: &str) -> bool {
        let is_among = |names: &[Arc<str>]| names.iter().any(|known| &**known == name);
        match self {
            Self::OneOf(names) => name.is_empty() || is_among(names),
            Self::NoneOf(names) => !is_among(names),
        }
    }
}

impl Rewriter {
    /// A pipeline for an answer of this shape.
    pub fn new(shape: Shape, stamp: Stamp) -> Self {
        let encoder = encode::encoder(&shape, &stamp);
        Self::with_encoder(shape, stamp, encoder)
    }

    /// The same with an encoder of one's own.
    pub fn with_encoder(mut shape: Shape, stamp: Stamp, encoder: Box<dyn Encode>) -> Self {
        let reading = Reading {
            logprobs: shape.logprobs,
            extensions: shape.extensions,
            continuous_usage: shape.has_continuous_usage(),
            keep_null: shape.options.unknown_fields == options::UnknownFields::InPlace,
            hide_reasoning: shape.hide_reasoning,
            promote_reasoning: shape.options.promote_reasoning,
            limits: shape.client == Api::Responses
                && shape.options.responses_dialect == options::ResponsesDialect::CodexLegacy,
        };
        Self {
            framer: Framer::new(shape.max_event_bytes),
            core: Core {
                decoder: decode::standard(shape.upstream, reading),
                parsing: Parsing::of(&shape, encoder.has_items()).map(Box::new),
                skip_invalid: shape.options.invalid_event == InvalidEvent::Skip,
                whole: false,
                models: shape.models.clone(),
                asked: shape.models.as_ref().map_or_else(String::new, |_| shape.model.clone()),
                adapted: std::mem::take(&mut shape.adapted),
                normaliser: Normaliser::new(shape, stamp),
                encoder,
                fast_path: FastPath::default(),
                committed: false,
                prompt_told: false,
                failure: None,
                events: 0,
            },
        }
    }

    /// Reads on in the engine's event stream and writes what has become certain.
    pub fn push(&mut self, bytes: &[u8], out: &mut OutputBuffer) -> Progress {
        let Self { framer, core } = self;
        framer.push(bytes, |found| core.found(found, out));
        self.progress()
    }

    /// The engine's event stream has ended.
    pub fn finish(&mut self, ending: Ending, out: &mut OutputBuffer) -> Progress {
        let Self { framer, core } = self;
        let complete = |data: &[u8]| {
            data.trim_ascii() == b"[DONE]"
                || std::str::from_utf8(data).is_ok_and(|text| Raw::of(text).is_some())
        };
        framer.finish(complete, |found| core.found(found, out));
        core.end_of_input(ending, out);
        self.progress()
    }

    /// The engine's answer is one complete JSON object instead of an event stream.
    pub fn whole(&mut self, body: &[u8], out: &mut OutputBuffer) -> Progress {
        let (before, committed) = (out.mark(), self.core.committed);
        self.core.whole = true;
        if let Some(parsing) = &mut self.core.parsing {
            parsing.comes_whole();
        }
        self.core.found(Found::Frame(Frame { error: false, name: b"", data: body, whole: true }), out);
        self.core.end_of_input(Ending::Whole, out);
        // All of it was there at once: a broken answer is judged before anything of it is written.
        if let Some(failure) = self.core.normaliser.failure().filter(|_| !committed) {
            drop(out.split_off(before));
            self.core.committed = false;
            self.core.failure = Some(failure.clone());
        }
        self.progress()
    }

    /// The answer fails for a reason the engine's bytes do not show.
    pub fn fail(&mut self, failure: Failure, out: &mut OutputBuffer) -> Progress {
        self.core.fail(failure, out);
        self.progress()
    }

    /// It is known how much the client has used up.
    pub fn limits(&mut self, limits: Limits) {
        self.core.encoder.limits(limits);
    }

    /// The clock says this, in Unix seconds. What is written until it is told again was written then.
    pub fn clock(&mut self, now: u64) {
        self.core.encoder.clock(now);
    }

    /// The encoder, which may go on with another answer.
    pub fn into_encoder(self) -> Box<dyn Encode> {
        self.core.encoder
    }

    /// The engine may end fewer choices than were asked for.
    pub fn may_lack(&self) -> bool {
        self.core.normaliser.may_lack()
    }

    /// Returns the part of an answer that ended with fewer choices than the client asked for, as long as the client has
    /// not been told of its end.
    pub fn lacks(&self) -> Option<MissingChoices> {
        self.core.normaliser.lacks()
    }

    /// The choices that it lacks do not come: the answer is incomplete.
    pub fn lacks_for_good(&mut self, out: &mut OutputBuffer) {
        self.core.normaliser.goes_on();
        self.core.fail(Fault::Incomplete.into(), out);
    }

    /// The status has gone out: from now on a failure is told in the stream.
    pub fn commit(&mut self) {
        self.core.committed = true;
    }

    /// The failure that must become the HTTP answer, because nothing has gone out yet.
    pub fn failure(&self) -> Option<&Failure> {
        self.core.failure.as_ref()
    }

    /// The failure, wherever it was told.
    pub fn any_failure(&self) -> Option<&Failure> {
        self.core.normaliser.failure()
    }

    /// How far the answer is.
    pub fn progress(&self) -> Progress {
        Progress { spoken: self.core.normaliser.spoken, ended: self.core.normaliser.is_ended() }
    }

    /// What the answer was.
    pub fn summary(&self) -> Summary {
        Summary {
            usage: self.core.normaliser.usage(),
            finishes: self.core.normaliser.finishes().collect(),
            tally: self.core.normaliser.tally.clone(),
            adapted: self.core.adapted.clone(),
            events: self.core.events,
            unparsed: self.core.parsing.as_deref().and_then(Parsing::unparsed),
            told_reasoning: self.core.parsing.as_deref().is_some_and(Parsing::was_told_reasoning),
        }
    }
}

impl Core {
    fn found(&mut self, found: Found<'_>, out: &mut OutputBuffer) {
        if self.normaliser.is_ended() {
            return self.normaliser.tally.count(Rule::AfterDone);
        }
        match found {
            Found::Comment => self.normaliser.tally.count(Rule::Comment),
            Found::TooLarge => self.fail(Fault::InvalidEvent.into(), out),
            Found::Frame(frame) => {
                self.events += 1;
                let route = route(self.parsing.as_deref());
                if !self.fast_path.fill(&frame, out.open(), &mut self.normaliser.tally, route) {
                    self.read(frame, out);
                }
            }
        }
    }

    /// Takes a frame apart.
    fn read(&mut self, frame: Frame<'_>, out: &mut OutputBuffer) {
        let (skip_invalid, whole) = (self.skip_invalid, self.whole);
        let learns = self.encoder.is_plain() && self.fast_path.is_learning();
        let known = learns.then(|| self.normaliser.tally.clone());
        let start = out.open().len();
        let mut said = FrameShape::default();
        let mut expected = self.models.take().map(|models| (models, std::mem::take(&mut self.asked)));
        let (decoder, parsing, on) = self.joined(out);
        let data = frame.data;
        let stage =
            &mut Stages { on, parsing, data, said: &mut said, expected: &mut expected, skip_invalid, whole };
        decoder.frame(frame, stage);
        if let Some((models, asked)) = expected {
            (self.models, self.asked) = (Some(models), asked);
        }
        if let Some(known) = known {
            let written = out.open().get(start..).unwrap_or_default();
            let counts = self.normaliser.tally.since(&known);
            let Self { fast_path, encoder, parsing, .. } = self;
            let encode = |event: Event<'_>, out: &mut OutputBuffer| encoder.event(event, out);
            fast_path.learn(&frame, &said, written, counts, route(parsing.as_deref()), encode);
        }
    }

    fn end_of_input(&mut self, ending: Ending, out: &mut OutputBuffer) {
        let (_, parsing, mut on) = self.joined(out);
        if let Some(parsing) = parsing {
            parsing.end(ending == Ending::Whole, &mut on);
        }
        on.normaliser.end_of_input(ending, &mut on.to);
    }

    fn fail(&mut self, failure: Failure, out: &mut OutputBuffer) {
        let (_, parsing, mut on) = self.joined(out);
        if let Some(parsing) = parsing {
            parsing.end(false, &mut on);
        }
        on.normaliser.fail(failure, &mut on.to);
    }

    fn joined<'a>(
        &'a mut self,
        out: &'a mut OutputBuffer,
    ) -> (&'a mut dyn Decode, Option<&'a mut Parsing>, Downstream<'a>) {
        let Self { decoder, parsing, normaliser, encoder, committed, prompt_told, failure, .. } = self;
        let to = Output { encoder: encoder.as_mut(), out, committed, prompt_told, failure };
        (decoder.as_mut(), parsing.as_deref_mut(), Downstream { normaliser, to })
    }
}

/// How the text of a choice goes through what parses it; it is spelled as in JSON.
fn route(parsing: Option<&Parsing>) -> impl FnOnce(u32, &str) -> Option<TextRoute> {
    move |choice, spelled| parsing.map_or(Some(TextRoute::Plain), |parsing| parsing.route(choice, spelled))
}

/// Normaliser and encoder as what stands before them sees them.
struct Downstream<'s> {
    normaliser: &'s mut Normaliser,
    to: Output<'s>,
}

impl Sink for Downstream<'_> {
    fn event(&mut self, event: Event<'_>) {
        self.normaliser.event(event, &mut self.to);
    }

    fn delta<'a>(&mut self, choice: u32, delta: Delta<'_>, riders: Riders<'a>) -> Riders<'a> {
        self.normaliser.delta(choice, delta, riders, &mut self.to)
    }

    fn tool<'a>(&mut self, choice: u32, entry: ToolEntry<'_>, riders: Riders<'a>) -> Riders<'a> {
        self.normaliser.tool(choice, entry, riders, &mut self.to)
    }

    fn mended(&mut self, rule: Rule) {
        self.normaliser.tally.count(rule);
    }
}

/// All that follows as the decoder sees it.
struct Stages<'s> {
    on: Downstream<'s>,
    parsing: Option<&'s mut Parsing>,
    data: &'s [u8],
    said: &'s mut FrameShape,
    expected: &'s mut Option<(Models, String)>,
    skip_invalid: bool,
    whole: bool,
}

impl Sink for Stages<'_> {
    fn event(&mut self, event: Event<'_>) {
        self.said.event(&event);
        let event = match event {
            Event::Head(head) if self.expected.is_some() && head.model.is_some() => {
                let name = head.model.map(|model| model.decoded()).unwrap_or_default();
                let is_other = |(models, asked): (Models, String)| *name != *asked && !models.allow(&name);
                match self.expected.take().is_some_and(is_other) {
                    true => Event::Fail(Fault::WrongModel.into()),
                    false => event,
                }
            }
            Event::Fail(failure) if failure.fault == Fault::InvalidEvent => {
                if self.whole {
                    let message = "The upstream engine returned an invalid response (HTTP 200).";
                    Event::Fail(Failure::from(Fault::InvalidResponse).with_message(message))
                } else if self.skip_invalid {
                    return self.mended(Rule::InvalidSkipped);
                } else {
                    Event::Fail(failure)
                }
            }
            event => event,
        };
        match &mut self.parsing {
            Some(parsing) => parsing.event(event, &mut self.on),
            None => self.on.event(event),
        }
    }

    fn delta<'a>(&mut self, choice: u32, delta: Delta<'_>, riders: Riders<'a>) -> Riders<'a> {
        self.said.delta(self.data, choice, &delta);
        match &mut self.parsing {
            Some(parsing) => parsing.delta(choice, delta, riders, &mut self.on),
            None => self.on.delta(choice, delta, riders),
        }
    }

    fn tool<'a>(&mut self, choice: u32, entry: ToolEntry<'_>, riders: Riders<'a>) -> Riders<'a> {
        self.said.more();
        match &mut self.parsing {
            Some(parsing) => parsing.tool(choice, entry, riders, &mut self.on),
            None => self.on.tool(choice, entry, riders),
        }
    }

    fn only_text(&mut self, choice: u32) {
        if let Some(parsing) = &mut self.parsing {
            parsing.only_text(choice);
        }
    }

    fn mended(&mut self, rule: Rule) {
        self.on.mended(rule);
    }
}

impl std::fmt::Debug for Rewriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rewriter").field("progress", &self.progress()).finish_non_exhaustive()
    }
}
