//! Text that an engine left unparsed: what is reasoning, a tool call or another message in it becomes what it is.
//!
//! Takes: what a decoder says. Gives: the same, but for `Content`, which becomes `Reasoning`, `Content`, tool entries and
//! items. Remembers: a reader for each choice. Never: touches the text of a choice for which the engine itself says what
//! is a call; such a choice is left alone from there on. Where it says what is reasoning, that is no longer looked for,
//! and calls are only if somebody has named the parser: then the engine may have none of its own.
//!
//! A reader takes text, cut anywhere, and gives [`Piece`]s: Harmony's, or that of reasoning and calls between marks.

mod browser;
mod calls;
mod family;
mod format;
mod harmony;
mod header;
mod marker;
mod script;
mod text;
mod think;
mod tokens;
mod vocabulary;
mod wrapper;

use super::Shape;
use super::decode::Sink;
use super::event::{
    Delta, Event, Finish, Logprobs, Reason, Riders, Running, Stage, TokenLogprob, ToolEntry, ToolKind,
};
use super::options::MissingFinish;
use super::rule::Rule;
use crate::json::{Raw, Text};
use family::{FAMILIES, Family, GPT_OSS};
use harmony::Harmony;
pub use script::{EngineParsers, Offer, Script};
use std::sync::Arc;
use text::Plain;
use tokens::Tokens;
pub use vocabulary::Vocabulary;

/// What a reader finds in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'p> {
    /// Markup that is gone, and what it was.
    Opened(Rule),
    /// Reasoning.
    Reasoning(&'p str),
    /// Text for the user.
    Content(&'p str),
    /// A call begins.
    Call {
        /// Of this function.
        name: &'p str,
        /// The model's own id for it.
        id: Option<&'p str>,
    },
    /// Arguments of the last call.
    Arguments(&'p str),
    /// A whole item of a hosted tool, as JSON.
    Item(&'p str),
    /// The message is complete.
    Closed,
}

/// Where the pieces go.
type Emit<'e> = &'e mut dyn FnMut(Piece<'_>);

/// Whether there is a parser of this name.
pub(super) fn knows(name: &str) -> bool {
    Family::named(name).is_some()
}

/// The names of all parsers.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|family| family.names).copied()
}

/// Some of their names, as examples; config/samewire.toml has all of them.
pub(super) const EXAMPLES: &str = "qwen3, hermes, qwen3_coder, deepseek_r1, deepseek_v31, kimi_k2, glm45, mistral, llama3_json, pythonic, gemma4, \u{2026}";

/// The stage between decoder and normaliser, where one is needed.
#[derive(Debug)]
pub(super) struct Parsing {
    script: Arc<Script>,
    choices: Vec<Choice>,
    /// How many choices there may be.
    most: usize,
    /// The client has items, so that messages stand apart.
    items: bool,
    /// Reasoning text is left out.
    hide_reasoning: bool,
    /// The engine may forget to say that it is done.
    supplies_finish: bool,
    /// The answer comes in one piece.
    whole: bool,
    /// What was found.
    found: Found,
}

/// What was found in the text.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    reasoning: bool,
    calls: bool,
    harmony: bool,
    /// The engine itself has told what is reasoning.
    told: bool,
}

/// How text goes through that holds nothing to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextRoute {
    /// Nobody looks.
    Plain,
    /// Content stays content.
    Content,
    /// Content is reasoning.
    Reasoning,
}

/// One choice.
#[derive(Debug)]
struct Choice {
    reader: Reader,
    /// How many calls there were.
    calls: u64,
}

/// What reads a choice.
#[derive(Debug)]
enum Reader {
    /// With the tokens of its text, where they count.
    Harmony(Box<Harmony>, Option<Tokens>),
    Text(Box<Plain>),
    /// The format is unknown, and the first words have not come yet.
    Undecided(Undecided),
    /// The engine has parsed it.
    Off,
}

/// A text of which it is not known yet whether it is Harmony.
#[derive(Debug)]
struct Undecided {
    /// Its reader if it is not.
    text: Box<Plain>,
    /// The client has items.
    items: bool,
    /// Text that may be the beginning of Harmony.
    held: String,
}

impl Undecided {
    /// With what Harmony begins where the engine shows special tokens.
    const BEGINNINGS: [&'static str; 2] = [harmony::CHANNEL, "<|start|>assistant"];

    /// The reader that the beginning of the text asks for; `None`: it may be either.
    fn decided(&mut self, beginning: &str) -> Option<Reader> {
        if Self::BEGINNINGS.iter().any(|harmony| beginning.starts_with(harmony)) {
            return Some(Reader::Harmony(Box::new(Harmony::new(self.items)), None));
        }
        let is_open = Self::BEGINNINGS.iter().any(|harmony| harmony.starts_with(beginning));
        (!is_open).then(|| self.settled())
    }

    /// The reader of a text that is not Harmony.
    fn settled(&mut self) -> Reader {
        Reader::Text(std::mem::take(&mut self.text))
    }
}

/// What an engine left in the text, and nobody had said that it would.
#[derive(Clone, Copy, Debug)]
pub struct Unparsed {
    family: &'static Family,
    found: Found,
}

impl Unparsed {
    /// What operators are told of it.
    pub const MESSAGE: &str = "reasoning or calls are left in the text and parsed here";
    /// What they are told before [`Unparsed::flags`].
    pub const REMEDY: &str = "the engine parses them with these flags";

    /// The family of models that writes so.
    pub fn family(&self) -> &'static str {
        self.family.names.first().copied().unwrap_or_default()
    }

    /// Whether the other one has all that this one has.
    pub fn is_within(&self, other: &Self) -> bool {
        let has = |own: bool, other: bool| !own || other;
        self.family() == other.family()
            && has(self.found.reasoning, other.found.reasoning)
            && has(self.found.calls, other.found.calls)
    }

    /// The flags with which an engine of this name would have parsed it.
    pub fn flags(&self, engine: &str) -> Option<String> {
        self.family.flags(engine, self.found.reasoning, self.found.calls)
    }
}

impl Parsing {
    /// The stage for an answer of this shape. `items`: its client has items.
    ///
    /// A client of the legacy Completions asks for the text as it is, and has no place for anything else.
    pub(super) fn of(shape: &Shape, items: bool) -> Option<Self> {
        shape.read_by().map(|script| Self {
            script: Arc::clone(script),
            choices: Vec::new(),
            most: shape.choices as usize,
            items,
            hide_reasoning: shape.hide_reasoning,
            supplies_finish: shape.options.missing_finish == MissingFinish::Stop,
            whole: false,
            found: Found::default(),
        })
    }

    /// The answer comes in one piece.
    pub(super) fn comes_whole(&mut self) {
        self.whole = true;
    }

    /// How a text, spelled as in JSON, goes through; nothing, if that takes a closer look.
    pub(super) fn route(&self, choice: u32, spelled: &str) -> Option<TextRoute> {
        // Marks are looked for as they read, and a backslash may stand for any part of one.
        if memchr::memchr(b'\\', spelled.as_bytes()).is_some() {
            return None;
        }
        match &self.choices.get(choice as usize)?.reader {
            Reader::Harmony(reader, None) => reader.route(spelled),
            Reader::Harmony(_, Some(_)) => None,
            Reader::Text(reader) => reader.route(spelled),
            Reader::Undecided(_) => None,
            Reader::Off => Some(TextRoute::Plain),
        }
    }

    /// What the engine left in the text although nobody had said so.
    pub(super) fn unparsed(&self) -> Option<Unparsed> {
        let found = self.found;
        if let Some(family) = self.script.left() {
            return Some(Unparsed { family, found: Found { calls: true, ..found } });
        }
        let family = self.script.family().filter(|_| found.reasoning || found.calls)?;
        Some(Unparsed { family: if found.harmony { &GPT_OSS } else { family }, found })
    }

    /// The engine itself has told what is reasoning.
    pub(super) fn was_told_reasoning(&self) -> bool {
        self.found.told
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
        mut riders: Riders<'a>,
        to: &mut dyn Sink,
    ) -> Riders<'a> {
        let at = choice as usize;
        let riders = match &delta {
            Delta::Content(text) => match self.reader(at) {
                Some(Reader::Off) | None => riders,
                Some(_) => return self.read(at, text, riders, to),
            },
            Delta::Reasoning(_) => {
                self.found.told = true;
                self.leave_reasoning(at, riders, to)
            }
            Delta::FunctionCall { .. } => self.leave(at, riders, to),
            Delta::Refusal(_) => self.flush(at, false, riders, to),
            Delta::Finish(Finish { reason, .. }) => {
                let complete = !matches!(reason, Reason::Length | Reason::ContentFilter);
                self.wait(at, &mut riders);
                self.flush(at, complete, riders, to)
            }
            Delta::Role | Delta::Bare => {
                self.wait(at, &mut riders);
                riders
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

    /// What comes next in a choice is all that its model said, and it ended of itself.
    pub(super) fn only_text(&mut self, choice: u32) {
        if let Some(Reader::Text(reader) | Reader::Undecided(Undecided { text: reader, .. })) =
            self.reader(choice as usize)
        {
            reader.only_text();
        }
    }

    /// The reader of a choice, if there can be such a choice.
    fn reader(&mut self, choice: usize) -> Option<&mut Reader> {
        if choice < self.most && choice >= self.choices.len() {
            let Self { script, items, .. } = self;
            let new = || Choice { reader: script.reader(*items), calls: 0 };
            self.choices.resize_with(choice + 1, new);
        }
        self.known(choice)
    }

    /// The same, if it has been there.
    fn known(&mut self, choice: usize) -> Option<&mut Reader> {
        self.choices.get_mut(choice).map(|choice| &mut choice.reader)
    }

    /// Tokens of a chunk without text.
    fn wait(&mut self, choice: usize, riders: &mut Riders<'_>) {
        if !riders.tokens_read
            && self.script.has_tokens()
            && let Some(Reader::Harmony(_, Some(tokens))) = self.reader(choice)
        {
            tokens.wait(riders);
            riders.tokens_read = true;
        }
    }

    /// The engine parses the choice itself: what is held goes, and the rest is left alone.
    fn leave<'a>(&mut self, choice: usize, riders: Riders<'a>, to: &mut dyn Sink) -> Riders<'a> {
        if let Some(Reader::Harmony(_, tokens)) = self.known(choice) {
            *tokens = None;
        }
        let riders = self.flush(choice, true, riders, to);
        if let Some(reader) = self.reader(choice) {
            *reader = Reader::Off;
        }
        riders
    }

    /// The engine says itself what is reasoning. It has parsed the choice, unless somebody has named the parser of calls: they
    /// may still stand in the text then.
    fn leave_reasoning<'a>(&mut self, choice: usize, riders: Riders<'a>, to: &mut dyn Sink) -> Riders<'a> {
        if !self.script.reads_calls() || !matches!(self.reader(choice), Some(Reader::Text(_))) {
            return self.leave(choice, riders, to);
        }
        self.release(choice, riders, to, |reader, emit| {
            if let Reader::Text(reader) = reader {
                reader.leave_reasoning(emit);
            }
        })
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
        if let Some(reader) = self.known(choice)
            && let Reader::Undecided(undecided) = &mut *reader
            && undecided.held.is_empty()
            && let Some(decided) = undecided.decided(&text)
        {
            *reader = decided;
        }
        if let Some(Reader::Harmony(_, Some(tokens))) = self.known(choice)
            && let Some(all) = tokens.read(&riders)
        {
            riders.tokens_read = true;
            return self.speak(choice, riders, to, |reader, emit| {
                if let Reader::Harmony(reader, _) = reader {
                    all.into_iter().for_each(|meant| reader.read_meant(meant, emit));
                }
            });
        }
        if self.whole
            && let Some(Reader::Text(reader)) = self.known(choice)
            && reader.foresee(&text)
        {
            to.mended(Rule::ReasoningPromoted);
        }
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
            if riders.logprobs.is_some() {
                // Nothing was made of it, as of a chunk of its own: the next one's would stand in its place.
                let (logprobs, usage) = (riders.logprobs.take(), riders.usage.clone());
                let alone = Riders { logprobs, usage, ..Riders::default() };
                to.delta(u32::try_from(choice).unwrap_or(u32::MAX), Delta::Bare, alone);
            }
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
        self.speak(choice, riders, to, |reader, emit| reader.read(text, emit))
    }

    /// Says what a choice's reader makes of something.
    fn speak<'a>(
        &mut self,
        choice: usize,
        riders: Riders<'a>,
        to: &mut dyn Sink,
        read: impl FnOnce(&mut Reader, Emit<'_>),
    ) -> Riders<'a> {
        let mut emitter = self.emitter(choice, riders, to);
        if let Some(choice) = self.choices.get_mut(choice) {
            read(&mut choice.reader, &mut |piece| emitter.say(piece));
            choice.calls = emitter.calls;
        }
        if !emitter.spoken {
            // The choice exists, whatever comes of it.
            let riders = std::mem::take(&mut emitter.riders);
            emitter.riders = emitter.to.delta(emitter.choice, Delta::Role, riders);
        }
        self.found = emitter.found;
        emitter.riders
    }

    /// Says what is held.
    fn flush<'a>(
        &mut self,
        choice: usize,
        complete: bool,
        riders: Riders<'a>,
        to: &mut dyn Sink,
    ) -> Riders<'a> {
        self.release(choice, riders, to, |reader, emit| reader.end(complete, emit))
    }

    /// Says some of what is held; the riders are those of what comes next.
    fn release<'a>(
        &mut self,
        choice: usize,
        riders: Riders<'a>,
        to: &mut dyn Sink,
        release: impl FnOnce(&mut Reader, Emit<'_>),
    ) -> Riders<'a> {
        let usage = riders.usage.clone();
        let mut emitter = self.emitter(choice, Riders { usage, ..Riders::default() }, to);
        if let Some(choice) = self.choices.get_mut(choice) {
            release(&mut choice.reader, &mut |piece| emitter.say(piece));
            choice.calls = emitter.calls;
        }
        self.found = emitter.found;
        riders
    }

    fn emitter<'a, 'to>(
        &self,
        choice: usize,
        riders: Riders<'a>,
        to: &'to mut dyn Sink,
    ) -> PieceEmitter<'a, 'to> {
        PieceEmitter {
            to,
            choice: u32::try_from(choice).unwrap_or(u32::MAX),
            usage: riders.usage.clone(),
            riders,
            hide_reasoning: self.hide_reasoning,
            items: self.items,
            found: self.found,
            calls: self.choices.get(choice).map_or(0, |choice| choice.calls),
            spoken: false,
        }
    }
}

impl Reader {
    /// Reads on.
    fn read(&mut self, text: &str, emit: Emit<'_>) {
        match self {
            Self::Harmony(reader, _) => reader.read(text, emit),
            Self::Text(reader) => reader.read(text, emit),
            Self::Undecided(undecided) => {
                undecided.held.push_str(text);
                let held = std::mem::take(&mut undecided.held);
                match undecided.decided(&held) {
                    Some(decided) => {
                        *self = decided;
                        self.read(&held, emit);
                    }
                    None => undecided.held = held,
                }
            }
            Self::Off => {}
        }
    }

    /// There is no more text. `complete`: the model was done.
    fn end(&mut self, complete: bool, emit: Emit<'_>) {
        match self {
            Self::Harmony(reader, tokens) => {
                let waiting = tokens.as_mut().map(Tokens::end);
                waiting.into_iter().flatten().for_each(|meant| reader.read_meant(meant, emit));
                reader.end(complete, emit);
            }
            Self::Text(reader) => reader.end(emit),
            Self::Undecided(undecided) => {
                let held = std::mem::take(&mut undecided.held);
                *self = undecided.settled();
                if !held.is_empty() {
                    self.read(&held, emit);
                }
                self.end(complete, emit);
            }
            Self::Off => {}
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
struct PieceEmitter<'a, 'to> {
    to: &'to mut dyn Sink,
    choice: u32,
    riders: Riders<'a>,
    usage: Option<Box<Running>>,
    hide_reasoning: bool,
    items: bool,
    found: Found,
    calls: u64,
    /// Something was made of the text.
    spoken: bool,
}

impl<'a> PieceEmitter<'a, '_> {
    fn say(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Opened(rule) => {
                self.found.reasoning |= rule == Rule::Think;
                self.found.calls |= rule == Rule::ToolText;
                self.found.harmony |= rule == Rule::Harmony;
                self.found.reasoning |= rule == Rule::Harmony;
                self.to.mended(rule);
            }
            Piece::Reasoning(_) if self.hide_reasoning => {}
            Piece::Reasoning(text) => self.delta(Delta::Reasoning(Text::plain(text))),
            Piece::Content(text) => self.delta(Delta::Content(Text::plain(text))),
            Piece::Call { name, id } => {
                self.calls += 1;
                self.found.calls |= self.found.harmony;
                self.tool(Some(name), id, None);
            }
            Piece::Arguments(text) => self.tool(None, None, Some(text)),
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

    fn tool(&mut self, name: Option<&str>, id: Option<&str>, args: Option<&str>) {
        let riders = self.board();
        let (name, id, args) = (name.map(Text::plain), id.map(Text::plain), args.map(Text::plain));
        let kind = ToolKind::Function;
        // A call of its own, whatever id the model gives it.
        let index = self.calls.checked_sub(1);
        let entry = ToolEntry { index, id, name, namespace: None, args, kind, whole: false };
        self.riders = self.to.tool(self.choice, entry, riders);
    }

    fn board(&mut self) -> Riders<'a> {
        self.spoken = true;
        Riders { usage: self.usage.clone(), ..std::mem::take(&mut self.riders) }
    }
}
