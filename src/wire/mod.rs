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
//! Frames that equal the two before them except for their text skip the stages between framer and output
//! (`fast_path`).
//!
//! Parsers for text that an engine left unparsed (Harmony, reasoning between tags, calls) run between decode and
//! normalise, if an option asks for them. They turn `Content` events into `Reasoning`, `Content`, tool entries and
//! items, so neither neighbour has to know about them. With a parser, only text without anything to parse takes the
//! fast path.
//!
//! Several rewriters share one encoder ([`Gather`]) if an engine gives only one choice per request.

mod api;
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
pub use api::{
    Api, BodyForm, Ending, Extensions, MissingChoices, Models, Progress, Quirks, Shape, Stamp, Summary,
};
pub(crate) use api::{PROMPT_TOKEN_IDS, TOKEN_IDS};
use decode::{Decode, ReadOptions, Sink};
use encode::{Encode, Limits};
use event::{Delta, Event, Riders, ToolEntry};
use fast_path::{FastPath, FrameShape};
use fault::{Failure, Fault};
pub use gather::Gather;
use normalise::{Normaliser, Output};
use options::InvalidEvent;
pub use output::OutputBuffer;
pub(crate) use output::{Rope, Spelled};
pub use parse::{EngineParsers, OutputConstraints, TextFormat, Unparsed, Vocabulary};
use parse::{Parsing, TextRoute};
use rule::Rule;
use sse::{Frame, Framer, FramerOutput};

/// Rewriter: the pipeline for one answer, from engine bytes to canonical bytes.
pub struct Rewriter {
    framer: Framer,
    core: Core,
}

/// Stages behind the framer, with the state that connects them.
struct Core {
    decoder: Box<dyn Decode>,
    parsing: Option<Box<Parsing>>,
    normaliser: Normaliser,
    encoder: Box<dyn Encode>,
    fast_path: FastPath,
    skip_invalid: bool,
    whole: bool,
    /// True once the status or bytes have been sent: a failure then becomes an error frame.
    committed: bool,
    /// True once the prompt's token ids have been sent; they are sent only once.
    prompt_sent: bool,
    /// Failure before anything was sent; it becomes the HTTP answer.
    failure: Option<Failure>,
    events: u64,
    /// Accepted names for the answer's model, until the first head with a name has been checked.
    models: Option<Models>,
    /// Client's name for the model, which is always accepted.
    asked: String,
    /// Names of the rules that changed the request.
    adapted: Vec<&'static str>,
}

impl Rewriter {
    /// Creates the pipeline for an answer of this shape.
    pub fn new(shape: Shape, stamp: Stamp) -> Self {
        let encoder = encode::encoder(&shape, &stamp);
        Self::with_encoder(shape, stamp, encoder)
    }

    /// Creates the pipeline with a given encoder, as [`Gather`] needs it.
    pub fn with_encoder(mut shape: Shape, stamp: Stamp, encoder: Box<dyn Encode>) -> Self {
        let reading = ReadOptions {
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
                decoder: decode::decoder(shape.upstream, reading),
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
                prompt_sent: false,
                failure: None,
                events: 0,
            },
        }
    }

    /// Reads the next bytes of the engine's event stream and writes all output that is certain by now.
    pub fn push(&mut self, bytes: &[u8], out: &mut OutputBuffer) -> Progress {
        let Self { framer, core } = self;
        framer.push(bytes, |found| core.handle(found, out));
        self.progress()
    }

    /// Ends the engine's event stream: handles an unterminated last event and writes the end of the answer, or a
    /// failure.
    pub fn finish(&mut self, ending: Ending, out: &mut OutputBuffer) -> Progress {
        let Self { framer, core } = self;
        let complete = |data: &[u8]| {
            data.trim_ascii() == b"[DONE]"
                || std::str::from_utf8(data).is_ok_and(|text| Raw::of(text).is_some())
        };
        framer.finish(complete, |found| core.handle(found, out));
        core.end_of_input(ending, out);
        self.progress()
    }

    /// Rewrites an answer that is one complete JSON object instead of an event stream.
    pub fn whole(&mut self, body: &[u8], out: &mut OutputBuffer) -> Progress {
        let (before, committed) = (out.mark(), self.core.committed);
        self.core.whole = true;
        if let Some(parsing) = &mut self.core.parsing {
            parsing.expect_whole_body();
        }
        self.core
            .handle(FramerOutput::Frame(Frame { error: false, name: b"", data: body, whole: true }), out);
        self.core.end_of_input(Ending::Whole, out);
        // The whole answer is here: if it is broken, and nothing was sent before, nothing of it is written.
        if let Some(failure) = self.core.normaliser.failure().filter(|_| !committed) {
            drop(out.split_off(before));
            self.core.committed = false;
            self.core.failure = Some(failure.clone());
        }
        self.progress()
    }

    /// Fails the answer for a reason that the engine's bytes do not show, such as a timeout.
    pub fn fail(&mut self, failure: Failure, out: &mut OutputBuffer) -> Progress {
        self.core.fail(failure, out);
        self.progress()
    }

    /// Sets the share of the client's limits that is used up, for dialects that report it.
    pub fn limits(&mut self, limits: Limits) {
        self.core.encoder.limits(limits);
    }

    /// Sets the time, in Unix seconds, for output until the next call.
    pub fn clock(&mut self, now: u64) {
        self.core.encoder.clock(now);
    }

    /// Returns the encoder, so that another answer can continue with it.
    pub fn into_encoder(self) -> Box<dyn Encode> {
        self.core.encoder
    }

    /// Returns true if the engine may give fewer choices than requested, and the missing ones may be requested.
    pub fn may_lack(&self) -> bool {
        self.core.normaliser.may_lack()
    }

    /// Returns the part of an answer that ended with fewer choices than the client requested, until the end of the
    /// answer has been written.
    pub fn missing_choices(&self) -> Option<MissingChoices> {
        self.core.normaliser.lacks()
    }

    /// Fails an answer whose missing choices cannot be requested: it is incomplete.
    pub fn fail_missing_choices(&mut self, out: &mut OutputBuffer) {
        self.core.normaliser.reopen();
        self.core.fail(Fault::Incomplete.into(), out);
    }

    /// Marks the status as sent: from now on a failure becomes an error frame in the stream.
    pub fn commit(&mut self) {
        self.core.committed = true;
    }

    /// Returns the failure that must become the HTTP answer, because nothing has been sent yet.
    pub fn failure(&self) -> Option<&Failure> {
        self.core.failure.as_ref()
    }

    /// Returns the failure of the answer, whether it became the HTTP answer or an error frame.
    pub fn any_failure(&self) -> Option<&Failure> {
        self.core.normaliser.failure()
    }

    /// Returns the progress of the answer: whether content has come, and whether it has ended.
    pub fn progress(&self) -> Progress {
        Progress { has_content: self.core.normaliser.spoken, ended: self.core.normaliser.is_ended() }
    }

    /// Returns the summary of the answer so far, for logs and metrics.
    pub fn summary(&self) -> Summary {
        Summary {
            usage: self.core.normaliser.usage(),
            finishes: self.core.normaliser.finishes().collect(),
            tally: self.core.normaliser.tally.clone(),
            adapted: self.core.adapted.clone(),
            events: self.core.events,
            unparsed: self.core.parsing.as_deref().and_then(Parsing::unparsed),
            reasoning_was_separate: self.core.parsing.as_deref().is_some_and(Parsing::engine_sent_reasoning),
        }
    }
}

impl Core {
    fn handle(&mut self, found: FramerOutput<'_>, out: &mut OutputBuffer) {
        if self.normaliser.is_ended() {
            return self.normaliser.tally.count(Rule::AfterDone);
        }
        match found {
            FramerOutput::Comment => self.normaliser.tally.count(Rule::Comment),
            FramerOutput::TooLarge => self.fail(Fault::InvalidEvent.into(), out),
            FramerOutput::Frame(frame) => {
                self.events += 1;
                let route = route(self.parsing.as_deref());
                if !self.fast_path.fill(&frame, out.open(), &mut self.normaliser.tally, route) {
                    self.read(frame, out);
                }
            }
        }
    }

    /// Decodes a frame that the fast path did not handle, and lets the fast path learn from it.
    fn read(&mut self, frame: Frame<'_>, out: &mut OutputBuffer) {
        let (skip_invalid, whole) = (self.skip_invalid, self.whole);
        let learns = self.encoder.is_plain() && self.fast_path.is_learning();
        let known = learns.then(|| self.normaliser.tally.clone());
        let start = out.open().len();
        let mut said = FrameShape::default();
        let mut expected = self.models.take().map(|models| (models, std::mem::take(&mut self.asked)));
        let (decoder, parsing, on) = self.stages(out);
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
        let (_, parsing, mut on) = self.stages(out);
        if let Some(parsing) = parsing {
            parsing.end(ending == Ending::Whole, &mut on);
        }
        on.normaliser.end_of_input(ending, &mut on.to);
    }

    fn fail(&mut self, failure: Failure, out: &mut OutputBuffer) {
        let (_, parsing, mut on) = self.stages(out);
        if let Some(parsing) = parsing {
            parsing.end(false, &mut on);
        }
        on.normaliser.fail(failure, &mut on.to);
    }

    fn stages<'a>(
        &'a mut self,
        out: &'a mut OutputBuffer,
    ) -> (&'a mut dyn Decode, Option<&'a mut Parsing>, Downstream<'a>) {
        let Self {
            decoder, parsing, normaliser, encoder, committed, prompt_sent: prompt_told, failure, ..
        } = self;
        let to = Output { encoder: encoder.as_mut(), out, committed, prompt_sent: prompt_told, failure };
        (decoder.as_mut(), parsing.as_deref_mut(), Downstream { normaliser, to })
    }
}

/// Returns the function that decides the route of a choice's text, given in JSON spelling, through the parser.
fn route(parsing: Option<&Parsing>) -> impl FnOnce(u32, &str) -> Option<TextRoute> {
    move |choice, spelled| parsing.map_or(Some(TextRoute::Plain), |parsing| parsing.route(choice, spelled))
}

/// Normaliser and encoder, as one sink for the decoder or the parser before them.
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

    fn count_rule(&mut self, rule: Rule) {
        self.normaliser.tally.count(rule);
    }
}

/// Stages behind the decoder, as its sink; the model name is checked here.
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
                    return self.count_rule(Rule::InvalidSkipped);
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
        self.said.note_other_content();
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

    fn count_rule(&mut self, rule: Rule) {
        self.on.count_rule(rule);
    }
}

impl std::fmt::Debug for Rewriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rewriter").field("progress", &self.progress()).finish_non_exhaustive()
    }
}
