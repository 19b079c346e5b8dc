//! Stages between framer and encoder for one engine's answer: decoder, parser of unparsed text, and normaliser.
//!
//! Takes: frames, and how the bytes ended. Gives: grammatical events. Remembers: what the stages remember. Never:
//! encodes.
//!
//! The events of a chunk pass nested sinks in this order:
//!
//! ```text
//! ChoiceEmitter → Checked → Observer → ParserSink → NormaliserSink → EncoderOutput
//! ```

use super::decode::{CheckedDecoder, Sink};
use super::event::{Delta, Event, Riders, ToolEntry};
use super::fault::Failure;
use super::normalise::{EncoderOutput, Normaliser};
use super::parse::{Parsing, TextRoute};
use super::rule::Rule;
use super::{Ending, Shape, Stamp};

/// Stages of one engine's answer, joined.
pub(super) struct Stages {
    decoder: CheckedDecoder,
    /// Parser of text that the engine may have left unparsed; `None` if nothing is parsed.
    pub(super) parsing: Option<Box<Parsing>>,
    pub(super) normaliser: Normaliser,
}

impl Stages {
    /// Creates the stages for an answer of this shape. `items`: the client's API has output items.
    pub(super) fn new(shape: Shape, stamp: Stamp, items: bool) -> Self {
        Self {
            decoder: CheckedDecoder::new(&shape),
            parsing: Parsing::of(&shape, items).map(Box::new),
            normaliser: Normaliser::new(shape, stamp),
        }
    }

    /// Splits the stages into the decoder and the sink for its events, which go on to this output.
    pub(super) fn split<'s, 'o>(
        &'s mut self,
        to: &'s mut EncoderOutput<'o>,
    ) -> (&'s mut CheckedDecoder, ParserSink<'s, 'o>) {
        let Self { decoder, parsing, normaliser } = self;
        let next = NormaliserSink { normaliser, to };
        (decoder, ParserSink { parsing: parsing.as_deref_mut(), next })
    }

    /// Returns the route of a choice's text, given in JSON spelling, past the parser; `None` if it must be parsed.
    #[inline]
    pub(super) fn route(&self, choice: u32, spelled: &str) -> Option<TextRoute> {
        self.parsing.as_deref().map_or(Some(TextRoute::Plain), |parsing| parsing.route(choice, spelled))
    }

    /// Releases the text that the parser holds, and lets the normaliser handle the end of the engine's bytes.
    pub(super) fn end_of_input(&mut self, ending: Ending, to: &mut EncoderOutput<'_>) {
        self.end_parsing(ending == Ending::Whole, to);
        self.normaliser.end_of_input(ending, to);
    }

    /// Releases the text that the parser holds, and fails the answer.
    pub(super) fn fail(&mut self, failure: Failure, to: &mut EncoderOutput<'_>) {
        self.end_parsing(false, to);
        self.normaliser.fail(failure, to);
    }

    fn end_parsing(&mut self, complete: bool, to: &mut EncoderOutput<'_>) {
        let Self { parsing, normaliser, .. } = self;
        if let Some(parsing) = parsing {
            parsing.end(complete, &mut NormaliserSink { normaliser, to });
        }
    }
}

/// Sink for events that need no parsing, or have been parsed.
struct NormaliserSink<'s, 'o> {
    normaliser: &'s mut Normaliser,
    to: &'s mut EncoderOutput<'o>,
}

impl Sink for NormaliserSink<'_, '_> {
    fn event(&mut self, event: Event<'_>) {
        self.normaliser.event(event, self.to);
    }

    fn delta<'a>(&mut self, choice: u32, delta: Delta<'_>, riders: Riders<'a>) -> Riders<'a> {
        self.normaliser.delta(choice, delta, riders, self.to)
    }

    fn tool<'a>(&mut self, choice: u32, entry: ToolEntry<'_>, riders: Riders<'a>) -> Riders<'a> {
        self.normaliser.tool(choice, entry, riders, self.to)
    }

    fn count_rule(&mut self, rule: Rule) {
        self.normaliser.tally.count(rule);
    }
}

/// Sink for the decoder's events: the parser, if the answer has one, and the normaliser behind it.
pub(super) struct ParserSink<'s, 'o> {
    parsing: Option<&'s mut Parsing>,
    next: NormaliserSink<'s, 'o>,
}

impl Sink for ParserSink<'_, '_> {
    fn event(&mut self, event: Event<'_>) {
        match &mut self.parsing {
            Some(parsing) => parsing.event(event, &mut self.next),
            None => self.next.event(event),
        }
    }

    fn delta<'a>(&mut self, choice: u32, delta: Delta<'_>, riders: Riders<'a>) -> Riders<'a> {
        match &mut self.parsing {
            Some(parsing) => parsing.delta(choice, delta, riders, &mut self.next),
            None => self.next.delta(choice, delta, riders),
        }
    }

    fn tool<'a>(&mut self, choice: u32, entry: ToolEntry<'_>, riders: Riders<'a>) -> Riders<'a> {
        match &mut self.parsing {
            Some(parsing) => parsing.tool(choice, entry, riders, &mut self.next),
            None => self.next.tool(choice, entry, riders),
        }
    }

    fn only_text(&mut self, choice: u32) {
        if let Some(parsing) = &mut self.parsing {
            parsing.only_text(choice);
        }
    }

    fn count_rule(&mut self, rule: Rule) {
        self.next.count_rule(rule);
    }
}
