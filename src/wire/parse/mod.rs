//! Text that an engine left unparsed: what is reasoning, a tool call or another message in it becomes what it is.
//!
//! Takes: what a decoder says. Gives: the same, but for `Content`, which becomes `Reasoning`, `Content`, tool entries and
//! items. Remembers: a reader for each choice. Never: touches the text of a choice for which the engine itself says what
//! is reasoning or a call; such a choice is left alone from there on.
//!
//! A reader takes text, cut anywhere, and gives [`Piece`]s; Harmony's is the only one so far.

mod browser;
mod harmony;
mod header;

use super::decode::Sink;
use super::event::{
    Delta, Event, Finish, Logprobs, Reason, Riders, Stage, TokenLogprob, ToolEntry, ToolKind, Usage,
};
use super::options::{MissingFinish, ReasoningField};
use super::rule::Rule;
use super::{Api, Shape, options};
use crate::json::{Raw, Text};
use harmony::Harmony;

/// What a reader finds in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'p> {
    /// A message begins in markup, which is gone.
    Opened,
    /// Reasoning.
    Reasoning(&'p str),
    /// Text for the user.
    Content(&'p str),
    /// A call of this function begins.
    Call(&'p str),
    /// Arguments of the last call.
    Arguments(&'p str),
    /// A whole item of a hosted tool, as JSON.
    Item(&'p str),
    /// The message is complete.
    Closed,
}

/// The stage between decoder and normaliser, where one is needed.
#[derive(Debug)]
pub(super) struct Parsing {
    choices: Vec<Reader>,
    /// How many choices there may be.
    most: usize,
    /// The client has items, so that messages stand apart.
    items: bool,
    /// Reasoning text is left out.
    hide_reasoning: bool,
    /// The engine may forget to say that it is done.
    supplies_finish: bool,
}

/// What reads a choice.
#[derive(Debug)]
enum Reader {
    On(Harmony),
    /// The engine has parsed it.
    Off,
}

impl Parsing {
    /// The stage for an answer of this shape. `items`: its client has items.
    ///
    /// A client of the legacy Completions asks for the text as it is, and has no place for anything else.
    pub(super) fn of(shape: &Shape, items: bool) -> Option<Self> {
        let applies = shape.upstream != Api::Responses && shape.client != Api::Completions;
        let wanted = shape.options.harmony == options::Harmony::Text;
        (applies && wanted).then(|| Self {
            choices: Vec::new(),
            most: shape.choices as usize,
            items,
            hide_reasoning: shape.options.reasoning_field == ReasoningField::None,
            supplies_finish: shape.options.missing_finish == MissingFinish::Stop,
        })
    }

    /// Something happened to the whole answer.
    pub(super) fn event(&mut self, event: Event<'_>, to: &mut dyn Sink) {
        match event {
            Event::End => self.end(true, to),
            Event::Fail(_) => self.end(false, to),
            _ => {}
        }
        to.event(event);
    }

    /// Nothing more comes. `said`: the engine has said so.
    pub(super) fn end(&mut self, said: bool, to: &mut dyn Sink) {
        let complete = said && self.supplies_finish;
        for choice in 0..self.choices.len() {
            self.flush(choice, complete, Riders::default(), to);
        }
    }

    /// Something happened in a choice; gives back riders that found no frame.
    pub(super) fn delta<'a>(
        &mut self,
        choice: u32,
        delta: Delta<'_>,
        riders: Riders<'a>,
        to: &mut dyn Sink,
    ) -> Riders<'a> {
        let at = choice as usize;
        let riders = match &delta {
            Delta::Content(text) => match self.reader(at) {
                Some(Reader::On(_)) => return self.read(at, text, riders, to),
                _ => riders,
            },
            Delta::Reasoning(_) | Delta::FunctionCall { .. } => self.leave(at, riders, to),
            Delta::Refusal(_) => self.flush(at, false, riders, to),
            Delta::Finish(Finish { reason, .. }) => {
                let complete = !matches!(reason, Reason::Length | Reason::ContentFilter);
                self.flush(at, complete, riders, to)
            }
            _ => riders,
        };
        to.delta(choice, delta, riders)
    }

    /// An entry of `tool_calls` of the engine's own; riders as before.
    pub(super) fn tool<'a>(
        &mut self,
        choice: u32,
        entry: ToolEntry<'_>,
        riders: Riders<'a>,
        to: &mut dyn Sink,
    ) -> Riders<'a> {
        let riders = self.leave(choice as usize, riders, to);
        to.tool(choice, entry, riders)
    }

    /// The reader of a choice, if there can be such a choice.
    fn reader(&mut self, choice: usize) -> Option<&mut Reader> {
        if choice < self.most && choice >= self.choices.len() {
            let items = self.items;
            self.choices.resize_with(choice + 1, || Reader::On(Harmony::new(items)));
        }
        self.choices.get_mut(choice)
    }

    /// The engine parses the choice itself: what is held goes, and the rest is left alone.
    fn leave<'a>(&mut self, choice: usize, riders: Riders<'a>, to: &mut dyn Sink) -> Riders<'a> {
        let riders = self.flush(choice, true, riders, to);
        if let Some(reader) = self.reader(choice) {
            *reader = Reader::Off;
        }
        riders
    }

    /// Reads a text; token by token where they are known, so that each stays with what it says.
    fn read<'a>(
        &mut self,
        choice: usize,
        text: &Text<'_>,
        mut riders: Riders<'a>,
        to: &mut dyn Sink,
    ) -> Riders<'a> {
        let text = text.decoded();
        let tokens = match riders.logprobs.take() {
            Some(Logprobs::Tokens { content: Some(tokens), refusal: None }) if make_up(&tokens, &text) => {
                tokens
            }
            logprobs => return self.read_piece(choice, &text, Riders { logprobs, ..riders }, to),
        };
        for token in tokens {
            let text = token.token.decoded();
            let logprobs = Some(Logprobs::Tokens { content: Some(vec![token]), refusal: None });
            riders = self.read_piece(choice, &text, Riders { logprobs, ..riders }, to);
        }
        riders
    }

    fn read_piece<'a>(
        &mut self,
        choice: usize,
        text: &str,
        riders: Riders<'a>,
        to: &mut dyn Sink,
    ) -> Riders<'a> {
        let mut speaker = self.speaker(choice, riders, to);
        if let Some(Reader::On(reader)) = self.choices.get_mut(choice) {
            reader.read(text, &mut |piece| speaker.say(piece));
        }
        if !speaker.spoken {
            // The choice exists, whatever comes of it.
            let riders = std::mem::take(&mut speaker.riders);
            speaker.riders = speaker.to.delta(speaker.choice, Delta::Role, riders);
        }
        speaker.riders
    }

    /// Says what is held.
    fn flush<'a>(
        &mut self,
        choice: usize,
        complete: bool,
        riders: Riders<'a>,
        to: &mut dyn Sink,
    ) -> Riders<'a> {
        let usage = riders.usage.clone();
        let mut speaker = self.speaker(choice, Riders { usage, ..Riders::default() }, to);
        if let Some(Reader::On(reader)) = self.choices.get_mut(choice) {
            reader.end(complete, &mut |piece| speaker.say(piece));
        }
        riders
    }

    fn speaker<'a, 'to>(&self, choice: usize, riders: Riders<'a>, to: &'to mut dyn Sink) -> Speaker<'a, 'to> {
        Speaker {
            to,
            choice: u32::try_from(choice).unwrap_or(u32::MAX),
            usage: riders.usage.clone(),
            riders,
            hide_reasoning: self.hide_reasoning,
            items: self.items,
            spoken: false,
        }
    }
}

/// Whether there are several tokens, and they are this text.
fn make_up(tokens: &[TokenLogprob<'_>], text: &str) -> bool {
    let mut rest = Some(text);
    for token in tokens {
        rest = rest.and_then(|rest| rest.strip_prefix(&*token.token.decoded()));
    }
    tokens.len() > 1 && rest.is_some_and(str::is_empty)
}

/// Says the pieces of one text; its riders board the first of them.
struct Speaker<'a, 'to> {
    to: &'to mut dyn Sink,
    choice: u32,
    riders: Riders<'a>,
    usage: Option<Box<Usage>>,
    hide_reasoning: bool,
    items: bool,
    /// Something was made of the text.
    spoken: bool,
}

impl<'a> Speaker<'a, '_> {
    fn say(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Opened => self.to.mended(Rule::Harmony),
            Piece::Reasoning(_) if self.hide_reasoning => {}
            Piece::Reasoning(text) => self.delta(Delta::Reasoning(Text::plain(text))),
            Piece::Content(text) => self.delta(Delta::Content(Text::plain(text))),
            Piece::Call(name) => self.tool(Some(name), None),
            Piece::Arguments(text) => self.tool(None, Some(text)),
            Piece::Item(json) => {
                let Some(data) = Raw::of(json) else { return };
                self.to.event(Event::Foreign {
                    name: "web_search_call",
                    slot: None,
                    stage: Stage::Whole,
                    data,
                });
            }
            Piece::Closed if self.items => {
                self.to.delta(self.choice, Delta::Break, Riders::default());
            }
            Piece::Closed => {}
        }
    }

    fn delta(&mut self, delta: Delta<'_>) {
        let riders = self.board();
        self.riders = self.to.delta(self.choice, delta, riders);
    }

    fn tool(&mut self, name: Option<&str>, args: Option<&str>) {
        let riders = self.board();
        let (name, args) = (name.map(Text::plain), args.map(Text::plain));
        let kind = ToolKind::Function;
        let entry = ToolEntry { index: None, id: None, name, namespace: None, args, kind, whole: false };
        self.riders = self.to.tool(self.choice, entry, riders);
    }

    fn board(&mut self) -> Riders<'a> {
        self.spoken = true;
        Riders { usage: self.usage.clone(), ..std::mem::take(&mut self.riders) }
    }
}
