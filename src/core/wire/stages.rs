//! Stages between framer and encoder for one engine's answer: decoder, parser of unparsed text, and normaliser.
//!
//! Takes: frames, and how the bytes ended. Gives: grammatical events. Remembers: what the stages remember. Never:
//! encodes.
//!
//! The events of a chunk pass nested sinks in this order:
//!
//! ```text
//! ChoiceEmitter → DecodedSink → ParsingSink → NormaliserSink → EncoderOutput
//! ```

use super::decode::{Checks, Decode, EventSink, ReadOptions, decoder};
use super::event::{Delta, Event, FrameExtras, ToolEntry};
use super::fault::Failure;
use super::held_reasoning::HeldReasoning;
use super::normalise::{EncoderOutput, Normaliser};
use super::parse::{Beginning, Parsing, TextField, TextRoute};
use super::rule::Rule;
use super::sse::Frame;
use super::{Api, Ending, Shape, Stamp};
use std::ops::Range;

/// Stages of one engine's answer, joined.
pub(super) struct Stages {
    decoder: Box<dyn Decode>,
    checks: Checks,
    /// Reasoning that may be text; `None` unless the request has switched thinking off.
    held_reasoning: Option<Box<HeldReasoning>>,
    /// Parser of text that the engine may have left unparsed; `None` if nothing is parsed.
    pub(super) parsing: Option<Parsing>,
    /// Look at the beginning of a text that nothing parses, unless the client's API has no field for what is in it.
    pub(super) beginning: Option<Beginning>,
    pub(super) normaliser: Normaliser,
}

impl Stages {
    /// Creates the stages for an answer of this shape. `items`: the client's API has output items.
    pub(super) fn new(shape: Shape, stamp: Stamp, items: bool) -> Self {
        let reading = ReadOptions::of(&shape);
        let parsing = Parsing::of(&shape, items);
        let is_left = parsing.is_none() && shape.client != Api::Completions;
        Self {
            decoder: decoder(shape.upstream, reading),
            checks: Checks::new(&shape),
            held_reasoning: HeldReasoning::of(&shape, &reading).map(Box::new),
            beginning: is_left.then(Beginning::new),
            parsing,
            normaliser: Normaliser::new(shape, stamp),
        }
    }

    /// Decodes a frame, and lets the stages pass its events on to this output. Returns what was in the frame.
    pub(super) fn frame(&mut self, frame: Frame<'_>, to: &mut EncoderOutput<'_>) -> FrameShape {
        let Self {
            decoder,
            checks,
            held_reasoning,
            parsing,
            beginning,
            normaliser,
        } = self;
        let next = NormaliserSink { normaliser, to };
        let parsing = ParsingSink {
            parsing: parsing.as_mut(),
            beginning: beginning.as_mut(),
            next,
        };
        let held_reasoning = held_reasoning.as_deref_mut().filter(|_| !frame.whole);
        let shape = FrameShape::default();
        let mut sink = DecodedSink {
            data: frame.data,
            whole: frame.whole,
            shape,
            checks,
            held_reasoning,
            next: parsing,
        };
        decoder.frame(frame, &mut sink);
        sink.shape
    }

    /// Returns the route of a choice's text, given in JSON spelling, past the parser; `None` if it must be parsed.
    #[inline]
    pub(super) fn route(&self, choice: u32, field: TextField, spelled: &str) -> Option<TextRoute> {
        self.parsing
            .as_ref()
            .map_or(Some(TextRoute::Plain), |parsing| {
                parsing.route(choice, field, spelled)
            })
    }

    /// Releases the text that is held, and lets the normaliser handle the end of the engine's bytes.
    pub(super) fn end_of_input(&mut self, ending: Ending, to: &mut EncoderOutput<'_>) {
        self.end_parsing(ending == Ending::Whole, to);
        self.normaliser.end_of_input(ending, to);
        if let Some(failure) = &to.writer.rejection {
            self.normaliser.reject(failure);
        }
    }

    /// Releases the text that is held, and fails the answer.
    pub(super) fn fail(&mut self, failure: Failure, to: &mut EncoderOutput<'_>) {
        self.end_parsing(false, to);
        self.normaliser.fail(failure, to);
    }

    fn end_parsing(&mut self, complete: bool, to: &mut EncoderOutput<'_>) {
        let Self {
            held_reasoning,
            parsing,
            beginning,
            normaliser,
            ..
        } = self;
        let next = NormaliserSink { normaliser, to };
        let mut sink = ParsingSink {
            parsing: parsing.as_mut(),
            beginning: beginning.as_mut(),
            next,
        };
        if let Some(held) = held_reasoning {
            held.end(false, &mut sink);
        }
        if let Some(parsing) = sink.parsing {
            parsing.end(complete, &mut sink.next);
        }
    }
}

/// Sink for events that need no parsing, or have been parsed.
struct NormaliserSink<'s, 'o> {
    normaliser: &'s mut Normaliser,
    to: &'s mut EncoderOutput<'o>,
}

impl NormaliserSink<'_, '_> {
    /// Ends the answer if the encoder has rejected it.
    fn note_rejection(&mut self) {
        if let Some(failure) = &self.to.writer.rejection {
            self.normaliser.reject(failure);
        }
    }
}

impl EventSink for NormaliserSink<'_, '_> {
    fn event(&mut self, event: Event<'_>) {
        self.normaliser.event(event, self.to);
        self.note_rejection();
    }

    fn delta<'a>(
        &mut self,
        choice: u32,
        delta: Delta<'_>,
        extras: FrameExtras<'a>,
    ) -> FrameExtras<'a> {
        let left = self.normaliser.delta(choice, delta, extras, self.to);
        self.note_rejection();
        left
    }

    fn tool<'a>(
        &mut self,
        choice: u32,
        entry: ToolEntry<'_>,
        extras: FrameExtras<'a>,
    ) -> FrameExtras<'a> {
        let left = self.normaliser.tool(choice, entry, extras, self.to);
        self.note_rejection();
        left
    }

    fn count_rule(&mut self, rule: Rule) {
        self.normaliser.tally.count(rule);
    }
}

/// Content of a decoded frame, by which the fast path decides whether a template can be made from it.
#[derive(Debug, Default)]
pub(super) struct FrameShape {
    /// First text, as its choice, field and place in the frame.
    pub(super) text: Option<(u32, TextField, Range<usize>)>,
    /// True if the frame has content that a template cannot express.
    pub(super) has_other_content: bool,
}

impl FrameShape {
    /// Adds a delta of the frame: the first text is kept with its place in `data`, any other content rules a
    /// template out.
    fn add(&mut self, data: &[u8], choice: u32, delta: &Delta<'_>) {
        let (field, text) = match delta {
            Delta::Content(text) => (TextField::Content, Some(text)),
            Delta::Reasoning(text) => (TextField::Reasoning, Some(text)),
            // A role frame, if one is written, shows in the output and rules the template out there.
            Delta::Role => return,
            _ => (TextField::Content, None),
        };
        match text.and_then(|text| text.place_in(data)) {
            Some(place) if self.text.is_none() => self.text = Some((choice, field, place)),
            _ => self.has_other_content = true,
        }
    }
}

/// Sink for events whose text may have to be parsed: passes them to the parser, if the answer has one, and the
/// normaliser after it.
struct ParsingSink<'s, 'o> {
    parsing: Option<&'s mut Parsing>,
    beginning: Option<&'s mut Beginning>,
    next: NormaliserSink<'s, 'o>,
}

impl EventSink for ParsingSink<'_, '_> {
    fn event(&mut self, event: Event<'_>) {
        match &mut self.parsing {
            Some(parsing) => parsing.event(event, &mut self.next),
            None => self.next.event(event),
        }
    }

    fn delta<'a>(
        &mut self,
        choice: u32,
        delta: Delta<'_>,
        extras: FrameExtras<'a>,
    ) -> FrameExtras<'a> {
        if let (Delta::Content(text), Some(beginning)) = (&delta, &mut self.beginning)
            && beginning.look(text)
        {
            self.next.count_rule(Rule::TextMarkup);
        }
        match &mut self.parsing {
            Some(parsing) => parsing.delta(choice, delta, extras, &mut self.next),
            None => self.next.delta(choice, delta, extras),
        }
    }

    fn tool<'a>(
        &mut self,
        choice: u32,
        entry: ToolEntry<'_>,
        extras: FrameExtras<'a>,
    ) -> FrameExtras<'a> {
        match &mut self.parsing {
            Some(parsing) => parsing.tool(choice, entry, extras, &mut self.next),
            None => self.next.tool(choice, entry, extras),
        }
    }

    fn only_text(&mut self, choice: u32) {
        if let Some(parsing) = &mut self.parsing {
            parsing.only_text(choice);
        }
    }

    fn cut_text(&mut self, choice: u32) {
        if let Some(parsing) = &mut self.parsing {
            parsing.cut_text(choice);
        }
    }

    fn count_rule(&mut self, rule: Rule) {
        self.next.count_rule(rule);
    }
}

/// Sink for the decoder's events: checks them, notes them in the shape, and holds back reasoning that may be text.
struct DecodedSink<'s, 'o> {
    data: &'s [u8],
    whole: bool,
    shape: FrameShape,
    checks: &'s mut Checks,
    held_reasoning: Option<&'s mut HeldReasoning>,
    next: ParsingSink<'s, 'o>,
}

impl EventSink for DecodedSink<'_, '_> {
    fn event(&mut self, event: Event<'_>) {
        let event = match self.checks.check(event, self.whole) {
            Ok(event) => event,
            Err(rule) => return self.count_rule(rule),
        };
        // A head is repeated on every frame. Any other event of the whole answer rules a template out.
        self.shape.has_other_content |= !matches!(event, Event::Head(_));
        match &mut self.held_reasoning {
            Some(held) => held.event(event, &mut self.next),
            None => self.next.event(event),
        }
    }

    fn delta<'a>(
        &mut self,
        choice: u32,
        delta: Delta<'_>,
        extras: FrameExtras<'a>,
    ) -> FrameExtras<'a> {
        self.shape.add(self.data, choice, &delta);
        match &mut self.held_reasoning {
            Some(held) => {
                // A template shows neither held nor released text.
                self.shape.has_other_content |= held.holds(choice as usize);
                held.delta(choice, delta, extras, &mut self.next)
            }
            None => self.next.delta(choice, delta, extras),
        }
    }

    fn tool<'a>(
        &mut self,
        choice: u32,
        entry: ToolEntry<'_>,
        extras: FrameExtras<'a>,
    ) -> FrameExtras<'a> {
        self.shape.has_other_content = true;
        match &mut self.held_reasoning {
            Some(held) => held.tool(choice, entry, extras, &mut self.next),
            None => self.next.tool(choice, entry, extras),
        }
    }

    fn only_text(&mut self, choice: u32) {
        self.next.only_text(choice);
    }

    fn cut_text(&mut self, choice: u32) {
        self.next.cut_text(choice);
    }

    fn count_rule(&mut self, rule: Rule) {
        self.next.count_rule(rule);
    }
}
