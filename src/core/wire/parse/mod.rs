//! Parser for model output that an engine left in the text: separates reasoning, tool calls and Harmony messages
//! from the answer.
//!
//! Takes: the events of a decoder. Gives: the same events, except that `Content` is split into `Reasoning`,
//! `Content`, tool entries and items. Remembers: one parser (a [`Reader`]) per choice. Never: looks for reasoning
//! once the engine has sent reasoning or calls itself. It still looks for calls then: the engine may have a parser
//! for one and not for the other, and the normaliser compares the calls that both have found.
//!
//! A reader takes text cut anywhere and emits [`Piece`]s. There are two kinds: the Harmony parser, and the parser for
//! reasoning and calls between markers.

mod browser;
mod calls;
mod emitter;
mod facts;
mod families;
mod family;
mod harmony;
mod header;
mod held;
mod held_call;
mod marker;
mod marks;
mod message_form;
mod messages;
pub(super) mod names;
mod reader;
mod reasoning;
mod script;
mod suffix;
mod text;
mod think;
mod tokens;
mod unparsed;
mod unread;
mod vocabulary;
mod wrapper;

use super::decode::EventSink;
use super::event::{
    CallSource, Delta, Event, Finish, FrameExtras, Logprobs, Reason, TokenLogprob, ToolEntry,
};
use super::options::MissingFinish;
use super::rule::Rule;
use super::{PROMPT_TEXT, Shape};
use crate::json::Text;
use emitter::{PieceEmitter, Waiting};
pub use facts::{Effort, TemplateFacts};
use families::GPT_OSS;
pub use marks::format_marks;
use reader::{Reader, Undecided};
use reasoning::{EngineReasoning, ReasoningBuffer};
pub use script::{EngineFacts, OutputConstraints, TextFormat};
use std::sync::Arc;
use text::TextParser;
pub use unparsed::Unparsed;
use unparsed::UnparsedKinds;
pub(super) use unread::Beginning;
pub use unread::Unread;
pub use vocabulary::Vocabulary;

/// Unit of parser output. The readers emit pieces, and the stage turns each of them into a delta, a tool entry or an
/// event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'p> {
    /// The parser recognised unparsed output of this kind; the rule is counted in the statistics.
    Recognised(Rule),
    /// The text shows that the template had opened a block of reasoning.
    Opened,
    /// Text that is reasoning.
    Reasoning(&'p str),
    /// Answer text for the user.
    Content(&'p str),
    /// Start of a tool call.
    Call {
        /// Name of the called function.
        name: &'p str,
        /// Call id as the model wrote it, if any.
        id: Option<&'p str>,
    },
    /// Arguments of the most recent call: a fragment of JSON.
    Arguments(&'p str),
    /// Complete item of a hosted tool, as JSON.
    Item(&'p str),
    /// End of a Harmony message.
    MessageEnd,
}

/// Callback that receives the pieces in order.
type Emit<'e> = &'e mut dyn FnMut(Piece<'_>);

/// Parsing stage between decoder and normaliser. Exists only for answers whose text the engine may have left
/// unparsed.
#[derive(Debug)]
pub(super) struct Parsing {
    script: Arc<TextFormat>,
    /// Parser state of each choice whose text has to be parsed.
    choices: Vec<Option<Box<Choice>>>,
    /// Choices that have had content and no parser yet, one bit for each of the first 64.
    begun: u64,
    /// Hint about the next text of a choice, which is whole.
    expected: Option<(u32, WholeText)>,
    /// Number of choices requested; deltas of a higher index are not parsed.
    max_choices: usize,
    /// True if the client's API has output items (Responses), so that each Harmony message becomes an item of its
    /// own.
    items: bool,
    /// True if reasoning text is dropped.
    hide_reasoning: bool,
    /// True if the text continues an answer, so that no block of reasoning is open.
    continues_text: bool,
    /// True if an end of stream without a finish reason counts as a finish (option `missing_finish`).
    supplies_finish: bool,
    /// True if the answer is one JSON body instead of a stream.
    whole: bool,
    /// Kinds of unparsed output seen so far.
    found: UnparsedKinds,
}

/// Treatment of a text in which nothing has to be parsed, so that the fast path can write it without this stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextRoute {
    /// Parsing is off for the choice: the text stays in whatever field the engine sent it.
    Plain,
    /// Content remains content.
    Content,
    /// Content is reasoning.
    Reasoning,
}

/// Hint about a whole text, given before the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WholeText {
    /// The text is the model's entire output, and generation ended by itself.
    Only,
    /// A limit has cut the text.
    Cut,
}

/// Field of the delta that a text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextField {
    Content,
    Reasoning,
}

/// Parser state of one choice.
#[derive(Debug)]
struct Choice {
    reader: Reader,
    reasoning: EngineReasoning,
    /// Text that the reader holds.
    waiting: Option<Waiting>,
    /// True while the last call has neither arguments nor an end.
    is_bare: bool,
    /// End of the text's item (Responses, Messages), until the next event tells how the text ends.
    item_end: Option<Delta<'static>>,
}

impl Parsing {
    /// Creates the stage for an answer of this shape; `None` if its text is not parsed. `items`: the client's API
    /// has output items.
    ///
    /// Clients of the legacy Completions API get the text unchanged, because that API has no field for reasoning or
    /// calls.
    pub(super) fn of(shape: &Shape, items: bool) -> Option<Self> {
        shape.text_format().map(|script| Self {
            script: Arc::clone(script),
            choices: Vec::new(),
            begun: 0,
            expected: None,
            max_choices: shape.choices as usize,
            items,
            hide_reasoning: shape.hide_reasoning,
            continues_text: shape.continues_text,
            supplies_finish: shape.options.missing_finish == MissingFinish::Stop,
            whole: false,
            found: UnparsedKinds::default(),
        })
    }

    /// Announces that the answer is one JSON body, so that each text is complete when it arrives.
    pub(super) fn expect_whole_body(&mut self) {
        self.whole = true;
    }

    /// Returns how a text of this choice can bypass the parser; `None` if it has to be parsed. `spelled` is the text
    /// as written in JSON, escapes included; `field` is the one in which the engine sent it.
    pub(super) fn route(&self, choice: u32, field: TextField, spelled: &str) -> Option<TextRoute> {
        // The search for markers works on unescaped text, and an escape may stand for any part of a marker.
        if memchr::memchr(b'\\', spelled.as_bytes()).is_some()
            && !self.script.has_no_marker(spelled)
        {
            return None;
        }
        let Some(Choice {
            reader,
            reasoning,
            item_end,
            ..
        }) = self.choices.get(choice as usize).and_then(Option::as_deref)
        else {
            let passes = field == TextField::Content
                && self.has_begun(choice as usize)
                && self.script.passes(spelled, false);
            return passes.then_some(TextRoute::Content);
        };
        if item_end.is_some() {
            return None;
        }
        match (reader, field, reasoning) {
            (Reader::Off, ..) => Some(TextRoute::Plain),
            (_, TextField::Reasoning, EngineReasoning::Reading(reading)) => {
                reading.passes(spelled).then_some(TextRoute::Plain)
            }
            (_, TextField::Reasoning, EngineReasoning::Past) => Some(TextRoute::Plain),
            (_, TextField::Reasoning, EngineReasoning::Unseen { .. })
            | (_, TextField::Content, EngineReasoning::Reading(_))
            | (Reader::Harmony(_, Some(_)) | Reader::Undecided(_), ..) => None,
            (Reader::Harmony(reader, None), ..) => reader.route(spelled),
            (Reader::Text(reader), ..) => reader.route(spelled),
            (Reader::Messages(reader), ..) => reader.route(spelled),
        }
    }

    /// Returns the unparsed output found so far that no configuration had announced; `None` if there is none.
    pub(super) fn unparsed(&self) -> Option<Unparsed> {
        let found = self.found;
        if let Some(family) = self.script.refused_family() {
            return Some(Unparsed {
                family,
                found: UnparsedKinds {
                    calls: true,
                    ..found
                },
            });
        }
        let family = self
            .script
            .guessed_family()
            .filter(|_| found.reasoning || found.calls)?;
        Some(Unparsed {
            family: if found.harmony { &GPT_OSS } else { family },
            found,
        })
    }

    /// Returns true if the engine itself has sent reasoning separately from the text.
    pub(super) fn engine_sent_reasoning(&self) -> bool {
        self.found.engine_sent_reasoning
    }

    /// Returns what the answer shows of the model's chat template.
    pub(super) fn template(&self) -> TemplateFacts {
        let opened = self.found.opened;
        opened.map_or(TemplateFacts::UNKNOWN, |opened| self.script.shown(opened))
    }

    /// Reads the prompt that samewire has requested, which comes before the text and is not passed on.
    fn take_prompt(&mut self, extras: &mut FrameExtras<'_>) {
        if !self.script.wants_prompt() {
            return;
        }
        let (requested, unknown) = (&extras.chunk_extensions, &extras.chunk);
        let prompt = requested
            .iter()
            .chain(unknown.iter())
            .filter(|(key, _)| *key == PROMPT_TEXT)
            .find_map(|(_, prompt)| Text::of(prompt));
        if let Some(prompt) = prompt.filter(|_| self.choices.is_empty()) {
            self.script = Arc::new(self.script.with_prompt(&prompt.decoded()));
        }
        extras.chunk.take(PROMPT_TEXT);
    }

    /// Passes on an event that concerns the whole answer. An end or a failure first releases the text held for each
    /// choice.
    pub(super) fn event(&mut self, mut event: Event<'_>, to: &mut dyn EventSink) {
        if let Event::Usage { extras, .. } = &mut event {
            self.take_prompt(extras);
        }
        match event {
            Event::End => self.end(true, to),
            Event::Fail(_) => self.end(false, to),
            Event::Foreign { .. } => {
                for choice in 0..self.choices.len() {
                    self.end_item(choice, FrameExtras::default(), to);
                }
            }
            _ => {}
        }
        to.event(event);
    }

    /// Releases the text held for every choice, because no more input follows. `said`: the stream ended regularly
    /// rather than by a failure.
    pub(super) fn end(&mut self, said: bool, to: &mut dyn EventSink) {
        let complete = said && self.supplies_finish;
        for choice in 0..self.choices.len() {
            self.flush(choice, complete, FrameExtras::default(), to);
        }
    }

    /// Parses the delta if it is content, else passes it on after the text held before it. Returns the extras that
    /// no frame has carried yet.
    pub(super) fn delta<'a>(
        &mut self,
        choice: u32,
        delta: Delta<'_>,
        mut extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
    ) -> FrameExtras<'a> {
        let at = choice as usize;
        self.take_prompt(&mut extras);
        let mut extras = match &delta {
            Delta::Role | Delta::Bare | Delta::Finish(_) => extras,
            _ => self.end_item(at, extras, to),
        };
        if let Delta::Content(text) = &delta
            && self.passes_unread(at, text)
        {
            return to.delta(choice, delta, extras);
        }
        let extras = match &delta {
            Delta::Content(text) => {
                let extras = match text.is_empty() {
                    true => extras,
                    false => self.end_reasoning(at, true, extras, to),
                };
                match self.reader(at) {
                    Some(Reader::Off) | None => extras,
                    Some(_) => return self.read(at, text, extras, to),
                }
            }
            Delta::Reasoning(text) => {
                self.found.engine_sent_reasoning = true;
                let extras = self.begin_reasoning(at, extras, to);
                match self.choice(at).map(|choice| &mut choice.reasoning) {
                    Some(EngineReasoning::Reading(_)) => {
                        return self.read_reasoning(at, text, extras, to);
                    }
                    _ => extras,
                }
            }
            Delta::FunctionCall { .. } => self.turn_off(at, extras, to),
            Delta::Refusal(_) => self.flush(at, false, extras, to),
            Delta::Annotation(_) | Delta::Tokens(_) => self.flush(at, false, extras, to),
            Delta::Break | Delta::Done { slot: None, .. } => {
                if let Some(choice) = self.choice(at) {
                    choice.item_end = Some(match delta {
                        Delta::Done { slot, cut } => Delta::Done { slot, cut },
                        _ => Delta::Break,
                    });
                    return extras;
                }
                if let Some(bit) = 1_u64.checked_shl(choice) {
                    self.begun &= !bit;
                }
                extras
            }
            Delta::Finish(Finish { reason, .. }) => {
                let complete = !matches!(reason, Reason::Length | Reason::ContentFilter);
                self.queue_tokens(at, &mut extras);
                let extras = self.flush(at, complete, extras, to);
                let is_unopened = complete
                    && !self.found.calls
                    && self
                        .existing_reader(at)
                        .is_some_and(|reader| reader.lacks_tags());
                if is_unopened && self.found.opened.is_none() {
                    self.found.opened = Some(false);
                }
                extras
            }
            Delta::Role | Delta::Bare => {
                self.queue_tokens(at, &mut extras);
                extras
            }
            _ => extras,
        };
        to.delta(choice, delta, extras)
    }

    /// Prepares a choice for reasoning that the engine reports itself.
    fn begin_reasoning<'a>(
        &mut self,
        choice: usize,
        extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
    ) -> FrameExtras<'a> {
        self.reader(choice);
        let known = self.choice(choice).map(|choice| &choice.reasoning);
        let Some(&EngineReasoning::Unseen { is_late }) = known else {
            return extras;
        };
        let extras = self.leave_reasoning(choice, extras, to, TextParser::leave_reasoning);
        let calls = self.script.trailing_calls().filter(|_| !is_late);
        if let Some(choice) = self.choice(choice) {
            let calls =
                calls.filter(|_| matches!(choice.reader, Reader::Text(_) | Reader::Undecided(_)));
            choice.reasoning = calls.map_or(EngineReasoning::Past, |calls| {
                EngineReasoning::Reading(Box::new(ReasoningBuffer::new(calls)))
            });
        }
        extras
    }

    /// Reads a text of the engine's reasoning, of which only reasoning has come so far.
    fn read_reasoning<'a>(
        &mut self,
        choice: usize,
        text: &Text<'_>,
        extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
    ) -> FrameExtras<'a> {
        let text = text.decoded();
        self.emit_with_extras(choice, text.len(), extras, to, |choice, emit| {
            choice.reasoning.read(&text, emit);
        })
    }

    /// Ends the engine's reasoning, whose calls count if nothing else `follows` them.
    fn end_reasoning<'a>(
        &mut self,
        choice: usize,
        follows: bool,
        extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
    ) -> FrameExtras<'a> {
        if follows {
            self.reader(choice);
        }
        let Some(known) = self.choice(choice) else {
            return extras;
        };
        if let EngineReasoning::Unseen { is_late } = &mut known.reasoning {
            *is_late |= follows;
            return extras;
        }
        if matches!(known.reasoning, EngineReasoning::Past) {
            return extras;
        }
        self.release(choice, extras, to, |choice, emit| {
            choice.reasoning.end(!follows, emit);
        })
    }

    /// Passes on an entry of the engine's own `tool_calls`. Returns the extras that no frame has carried yet.
    pub(super) fn tool<'a>(
        &mut self,
        choice: u32,
        entry: ToolEntry<'_>,
        extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
    ) -> FrameExtras<'a> {
        let extras = self.end_reasoning(choice as usize, true, extras, to);
        let extras = self.leave_reasoning(choice as usize, extras, to, TextParser::leave_to_call);
        self.pass_item_end(choice as usize, to);
        to.tool(choice, entry, extras)
    }

    /// Announces that the next text of a choice is the model's entire output and that generation ended by itself (no
    /// other field in the message, finish reason `stop`).
    pub(super) fn only_text(&mut self, choice: u32) {
        self.expected = Some((choice, WholeText::Only));
    }

    /// Announces that the next text of a choice, which is whole, was cut by a limit.
    pub(super) fn cut_text(&mut self, choice: u32) {
        self.expected = Some((choice, WholeText::Cut));
    }

    /// Returns true if content of a choice has passed without a parser.
    fn has_begun(&self, choice: usize) -> bool {
        choice < u64::BITS as usize && self.begun & (1 << choice) != 0
    }

    /// Returns true if a text of a choice without a parser is content, and notes it.
    fn passes_unread(&mut self, choice: usize, text: &Text<'_>) -> bool {
        let is_new =
            choice < self.max_choices.min(u64::BITS as usize) && self.choice(choice).is_none();
        let passes = is_new
            && self.script.passes(
                &text.decoded(),
                !self.has_begun(choice) && !self.continues_text,
            );
        if passes {
            self.begun |= 1 << choice;
        }
        passes
    }

    /// Returns the reader of a choice and creates it if needed; `None` if the index exceeds the number of choices
    /// requested.
    fn reader(&mut self, choice: usize) -> Option<&mut Reader> {
        if choice < self.max_choices && self.choice(choice).is_none() {
            let has_begun = self.has_begun(choice);
            let mut reader = self.script.reader(self.items, has_begun);
            if self.continues_text
                && let Reader::Text(text) | Reader::Undecided(Undecided { text, .. }) = &mut reader
            {
                text.expect_answer();
            }
            if choice >= self.choices.len() {
                self.choices.resize_with(choice + 1, || None);
            }
            *self.choices.get_mut(choice)? = Some(Box::new(Choice {
                reader,
                reasoning: EngineReasoning::Unseen { is_late: has_begun },
                waiting: None,
                is_bare: false,
                item_end: None,
            }));
        }
        self.existing_reader(choice)
    }

    /// Returns the reader of a choice that has been created before, else `None`.
    fn existing_reader(&mut self, choice: usize) -> Option<&mut Reader> {
        self.choice(choice).map(|choice| &mut choice.reader)
    }

    /// Returns the state of a choice that has come, else `None`.
    fn choice(&mut self, choice: usize) -> Option<&mut Choice> {
        self.choices.get_mut(choice)?.as_deref_mut()
    }

    /// Queues the token ids of a chunk without text until content or the end of the choice arrives.
    fn queue_tokens(&mut self, choice: usize, extras: &mut FrameExtras<'_>) {
        if !extras.tokens_read
            && self.script.has_tokens()
            && let Some(Reader::Harmony(_, Some(tokens))) = self.reader(choice)
        {
            tokens.wait(extras);
            extras.tokens_read = true;
        }
    }

    /// Turns parsing off for a choice that the engine parses itself, after releasing the text held so far.
    fn turn_off<'a>(
        &mut self,
        choice: usize,
        extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
    ) -> FrameExtras<'a> {
        if let Some(Reader::Harmony(_, tokens)) = self.existing_reader(choice) {
            *tokens = None;
        }
        let extras = self.end_reasoning(choice, true, extras, to);
        let extras = self.flush(choice, true, extras, to);
        if let Some(reader) = self.reader(choice) {
            *reader = Reader::Off;
        }
        extras
    }

    /// Stops looking for reasoning in a choice for which the engine has sent reasoning or calls itself. Calls are still
    /// looked for: they may remain in the text. `leave` ends what the reader holds.
    fn leave_reasoning<'a>(
        &mut self,
        choice: usize,
        extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
        leave: fn(&mut TextParser, Emit<'_>),
    ) -> FrameExtras<'a> {
        let finds_calls = self.script.finds_calls();
        let reads_on = match self.reader(choice) {
            Some(Reader::Undecided(_)) => true,
            Some(Reader::Text(_) | Reader::Messages(_) | Reader::Harmony(..)) => finds_calls,
            Some(Reader::Off) | None => false,
        };
        if !reads_on {
            return self.turn_off(choice, extras, to);
        }
        let extras = self.release(choice, extras, to, |choice, emit| {
            choice.reader.leave_reasoning(emit, leave);
        });
        self.break_off(choice, extras, to)
    }

    /// Parses a text. If the logprobs or token ids of its tokens are known, each token is parsed separately, so that
    /// its logprobs stay with the piece it became.
    fn read<'a>(
        &mut self,
        choice: usize,
        text: &Text<'_>,
        mut extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
    ) -> FrameExtras<'a> {
        let text = text.decoded();
        let is_whole = self.whole;
        if let Some(reader) = self.existing_reader(choice)
            && let Reader::Undecided(undecided) = &mut *reader
            && undecided.held.is_empty()
            && let Some(decided) = undecided
                .decided(&text)
                .or_else(|| is_whole.then(|| undecided.settled()))
        {
            *reader = decided;
        }
        if let Some(Reader::Harmony(_, Some(tokens))) = self.existing_reader(choice)
            && let Some(all) = tokens.read(&extras)
        {
            extras.tokens_read = true;
            return self.emit_with_extras(choice, text.len(), extras, to, |choice, emit| {
                if let Reader::Harmony(reader, _) = &mut choice.reader {
                    all.into_iter()
                        .for_each(|meant| reader.read_token(meant, emit));
                }
            });
        }
        if self.whole
            && let known = self
                .expected
                .take()
                .filter(|(of, _)| *of as usize == choice)
            && let Some(Reader::Text(reader)) = self.existing_reader(choice)
            && reader.prepare_whole(&text, known.map(|(_, known)| known))
        {
            to.count_rule(Rule::ReasoningPromoted);
        }
        let tokens = match extras.logprobs.take() {
            Some(Logprobs::Tokens {
                content: Some(tokens),
                refusal: None,
            }) if concatenate_to(&tokens, &text) && !self.passes(choice, &text) => tokens,
            logprobs => {
                return self.read_piece(choice, &text, FrameExtras { logprobs, ..extras }, to);
            }
        };
        for token in tokens {
            let text = token.token.decoded();
            let logprobs = Some(Logprobs::Tokens {
                content: Some(vec![token]),
                refusal: None,
            });
            extras = self.read_piece(choice, &text, FrameExtras { logprobs, ..extras }, to);
            if extras.logprobs.is_some() {
                // The token produced no piece yet. Its logprobs go out on a bare delta, as for its own chunk;
                // otherwise those of the next token would replace them.
                let (logprobs, usage) = (extras.logprobs.take(), extras.usage.clone());
                let alone = FrameExtras {
                    logprobs,
                    usage,
                    ..FrameExtras::default()
                };
                to.delta(
                    u32::try_from(choice).unwrap_or(u32::MAX),
                    Delta::Bare,
                    alone,
                );
            }
        }
        extras
    }

    /// Returns true if a text passes unchanged, all of it as content or as reasoning.
    fn passes(&mut self, choice: usize, text: &str) -> bool {
        match self.existing_reader(choice) {
            Some(Reader::Text(reader)) => reader.whole_route(text).is_some(),
            _ => false,
        }
    }

    fn read_piece<'a>(
        &mut self,
        choice: usize,
        text: &str,
        extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
    ) -> FrameExtras<'a> {
        self.emit_with_extras(choice, text.len(), extras, to, |choice, emit| {
            choice.reader.read(text, emit);
        })
    }

    /// Runs `read` on the reader of a choice and passes on the pieces it makes of a text of `length` bytes; the extras go
    /// with the first of them.
    fn emit_with_extras<'a>(
        &mut self,
        choice: usize,
        length: usize,
        extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
        read: impl FnOnce(&mut Choice, Emit<'_>),
    ) -> FrameExtras<'a> {
        let mut emitter = self.emitter(choice, extras, to);
        if let Some(choice) = self.choices.get_mut(choice).and_then(Option::as_deref_mut) {
            read(choice, &mut |piece| emitter.say(piece));
            choice.is_bare = emitter.is_bare;
            choice.waiting = match emitter.has_emitted {
                true => emitter.waiting.take(),
                false => emitter.wait(length),
            };
        }
        self.found = emitter.found;
        emitter.extras
    }

    /// Ends the reader of a choice and passes on the text it held. The extras are kept for what follows.
    fn flush<'a>(
        &mut self,
        choice: usize,
        complete: bool,
        extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
    ) -> FrameExtras<'a> {
        if self.choice(choice).is_none() {
            return extras;
        }
        let extras = self.end_reasoning(choice, !complete, extras, to);
        let extras = self.release(choice, extras, to, |choice, emit| {
            choice.reader.end(complete, emit);
        });
        let extras = self.break_off(choice, extras, to);
        self.pass_item_end(choice, to);
        extras
    }

    /// Ends the text of an item that has ended, because something else than the end of the answer follows.
    fn end_item<'a>(
        &mut self,
        choice: usize,
        extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
    ) -> FrameExtras<'a> {
        match self.choice(choice) {
            Some(Choice {
                item_end: Some(_), ..
            }) => self.flush(choice, false, extras, to),
            _ => extras,
        }
    }

    /// Passes on the end of the last item, after the text that was held.
    fn pass_item_end(&mut self, choice: usize, to: &mut dyn EventSink) {
        if let Some(end) = self
            .choice(choice)
            .and_then(|choice| choice.item_end.take())
        {
            let choice = u32::try_from(choice).unwrap_or(u32::MAX);
            to.delta(choice, end, FrameExtras::default());
        }
    }

    /// Marks a call as broken off if the text has ended before its arguments.
    fn break_off<'a>(
        &mut self,
        choice: usize,
        extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
    ) -> FrameExtras<'a> {
        // Harmony's mark at the end of a call is a stop token, which engines leave out.
        let breaks_off = |choice: &Choice| {
            choice.is_bare && matches!(choice.reader, Reader::Text(_) | Reader::Messages(_))
        };
        if self.choice(choice).is_some_and(|choice| breaks_off(choice)) {
            // An open object says so.
            return self.release(choice, extras, to, |_, emit| emit(Piece::Arguments("{")));
        }
        extras
    }

    /// Passes on text that the reader held back, without attaching the extras: they belong to the delta that
    /// follows.
    fn release<'a>(
        &mut self,
        choice: usize,
        extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
        release: impl FnOnce(&mut Choice, Emit<'_>),
    ) -> FrameExtras<'a> {
        let usage = extras.usage.clone();
        let mut emitter = self.emitter(
            choice,
            FrameExtras {
                usage,
                ..FrameExtras::default()
            },
            to,
        );
        if let Some(choice) = self.choices.get_mut(choice).and_then(Option::as_deref_mut) {
            release(choice, &mut |piece| emitter.say(piece));
            emitter.release_waiting();
            choice.is_bare = emitter.is_bare;
        }
        self.found = emitter.found;
        extras
    }

    fn emitter<'a, 'to>(
        &mut self,
        choice: usize,
        extras: FrameExtras<'a>,
        to: &'to mut dyn EventSink,
    ) -> PieceEmitter<'a, 'to> {
        let known = self.choice(choice);
        let is_bare = known.as_ref().is_some_and(|choice| choice.is_bare);
        let waiting = known.and_then(|choice| choice.waiting.take());
        PieceEmitter {
            to,
            choice: u32::try_from(choice).unwrap_or(u32::MAX),
            usage: extras.usage.clone(),
            extras,
            waiting,
            hide_reasoning: self.hide_reasoning,
            items: self.items,
            found: self.found,
            // Among output items, a call keeps its place.
            source: match self.whole && !self.items {
                true => CallSource::WholeText,
                false => CallSource::Text,
            },
            is_bare,
            has_emitted: false,
        }
    }
}

/// Returns true if there are at least two tokens and their concatenation is exactly `text`.
fn concatenate_to(tokens: &[TokenLogprob<'_>], text: &str) -> bool {
    let mut rest = Some(text);
    for token in tokens {
        rest = rest.and_then(|rest| rest.strip_prefix(&*token.token.decoded()));
    }
    tokens.len() > 1 && rest.is_some_and(str::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::options::{Options, Parser};

    const TOOLS: &str = r#"[{"function":{"name":"f","parameters":{"properties":{"a":{"type":"integer"},"b":{"type":"string"}}}}},{"function":{"name":"g"}}]"#;

    fn reader(parser: &str, tools: &str) -> Reader {
        let options = Options {
            parser: Parser::Family(parser.to_owned()),
            ..Options::default()
        };
        let offer = OutputConstraints {
            tools,
            ..OutputConstraints::default()
        };
        TextFormat::of(&options, "", offer, EngineFacts::default())
            .unwrap()
            .reader(false, false)
    }

    /// Adds a piece: reasoning in `(…)`, content as it is, a call's name in `[…]` and its arguments after it.
    fn add(said: &mut String, piece: Piece<'_>) {
        match piece {
            Piece::Reasoning(text) => *said += &format!("({text})"),
            Piece::Content(text) | Piece::Arguments(text) => *said += text,
            Piece::Call { name, .. } => *said += &format!("[{name}]"),
            Piece::Recognised(_) | Piece::Opened | Piece::Item(_) | Piece::MessageEnd => {}
        }
    }

    /// Returns what a text is parsed to. Its reasoning and content may come in pieces, its meaning may not differ.
    fn parsed(parser: &str, text: &str) -> String {
        parsed_with(TOOLS, parser, text)
    }

    fn parsed_with(tools: &str, parser: &str, text: &str) -> String {
        let parse = |pieces: &mut dyn Iterator<Item = &str>| {
            let (mut reader, mut said) = (reader(parser, tools), String::new());
            pieces.for_each(|piece| reader.read(piece, &mut |piece| add(&mut said, piece)));
            reader.end(true, &mut |piece| add(&mut said, piece));
            said.replace(")(", "")
        };
        let whole = parse(&mut std::iter::once(text));
        assert_eq!(
            parse(&mut text.split_inclusive(|_: char| true)),
            whole,
            "{parser}: {text}"
        );
        whole
    }

    #[test]
    fn calls_in_json() {
        let (f, g) = (
            r#"{"name": "f", "arguments": {"a": 1}}"#,
            r#"{"name": "g", "arguments": {}}"#,
        );
        for (parser, text, expected) in [
            (
                "hermes",
                format!("<tool_call>{f}</tool_call>"),
                r#"[f]{"a": 1}"#,
            ),
            ("hermes", format!("<tool_call>{f}"), r#"[f]{"a": 1}"#),
            (
                "hermes",
                format!("<tool_call>{f}</tool_c"),
                r#"[f]{"a": 1}"#,
            ),
            (
                "hermes",
                format!("<tool_call>{f}</tool_call> and"),
                r#"[f]{"a": 1} and"#,
            ),
            (
                "hermes",
                r#"<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>"#.to_owned(),
                r#"[f]{"a": 1}"#,
            ),
            (
                "hermes",
                r#"<tool_call>{"name": "f", "arguments": {"a": 1"#.to_owned(),
                r#"[f]{"a": 1"#,
            ),
            (
                "hermes",
                r#"<tool_call>{"name": "f"}</tool_call>"#.to_owned(),
                "[f]{}",
            ),
            // The text ends within the end marker.
            (
                "hermes",
                r#"<tool_call>{"name": "f", "arguments": {"a": 1</tool_c"#.to_owned(),
                r#"[f]{"a": 1"#,
            ),
            (
                "hermes",
                r#"<tool_call>{"name": "f", "arguments": {"b": "</tool_c"#.to_owned(),
                r#"[f]{"b": "</tool_c"#,
            ),
            // These are no calls.
            (
                "hermes",
                r#"<tool_call>{"name": "f""#.to_owned(),
                r#"<tool_call>{"name": "f""#,
            ),
            (
                "hermes",
                r#"<tool_call>{"name": 1}</tool_call>"#.to_owned(),
                r#"<tool_call>{"name": 1}</tool_call>"#,
            ),
            ("hermes", "<tool_call>".to_owned(), "<tool_call>"),
            (
                "mistral",
                format!("[TOOL_CALLS][{f}, {g}]"),
                r#"[f]{"a": 1}[g]{}"#,
            ),
            ("mistral", format!("[TOOL_CALLS][{f},]"), r#"[f]{"a": 1}"#),
            ("mistral", format!("[TOOL_CALLS][{f}"), r#"[f]{"a": 1}"#),
            ("llama3_json", format!("{f}; {g}"), r#"[f]{"a": 1}[g]{}"#),
            (
                "llama3_json",
                format!("{f}! {g}"),
                &format!(r#"[f]{{"a": 1}}! {g}"#),
            ),
            ("llama3_json", format!("{f};"), r#"[f]{"a": 1};"#),
            (
                "llama3_json",
                r#"{"name": "f", "description": "x"}"#.to_owned(),
                r#"{"name": "f", "description": "x"}"#,
            ),
        ] {
            assert_eq!(parsed(parser, &text), expected, "{parser}: {text}");
        }
    }

    /// Checks what is no call: one that does not end, and tags and headers that lead nowhere.
    #[test]
    fn what_only_begins_like_a_call() {
        for (parser, text) in [
            ("hermes", "<tool_call>{'name': 'f', 'arguments': {'b': 'x'"),
            ("hermes", "<tool_call>{'name': 'f'}"),
            ("glm45", "Use <tool_call>fb</arg_key> to begin."),
            ("gpt_oss", "to=functions.f {x} is how a tool is addressed."),
            (
                "gpt_oss",
                "commentary to=functions.f json {\"a\"} and so on",
            ),
        ] {
            assert_eq!(parsed(parser, text), text);
        }
        assert_eq!(
            parsed("gpt_oss", "to=functions.f json{\"a\": 1}"),
            r#"[f]{"a": 1}"#
        );
        let glm = "<tool_call>fb</arg_key>\n<arg_value>x</arg_value></tool_call>";
        assert_eq!(parsed("glm45", glm), r#"[f]{"b": "x"}"#);
    }

    #[test]
    fn calls_in_python() {
        for (text, expected) in [
            (r#"[f(a=1, b="x"), g()]"#, r#"[f]{"a": 1, "b": "x"}[g]{}"#),
            ("[f(a=1),]", r#"[f]{"a": 1}"#),
            ("[f(a=1)", r#"[f]{"a": 1}"#),
            (r#"[f(a=1, b="x"#, r#"[f]{"a": 1, "b": "x"#),
            ("[f(a=1)] and", r#"[f]{"a": 1} and"#),
            // These are no calls.
            ("[f", "[f"),
            ("[f]", "[f]"),
            ("[(a=1)]", "[(a=1)]"),
            ("[1, 2]", "[1, 2]"),
        ] {
            assert_eq!(parsed("pythonic", text), expected, "{text}");
        }
    }

    /// Checks that text after a call that no list contains keeps its comma and its white space.
    #[test]
    fn text_behind_a_call_in_python() {
        for (text, expected) in [
            ("f(a=1), and more", r#"[f]{"a": 1}, and more"#),
            ("f(a=1),", r#"[f]{"a": 1},"#),
            ("f(a=1)\nand more", "[f]{\"a\": 1}\nand more"),
            ("f(a=1) (g)", r#"[f]{"a": 1} (g)"#),
            ("f(a=1), g()", r#"[f]{"a": 1}[g]{}"#),
            ("f(a=1)\ng()\n</function_calls>", r#"[f]{"a": 1}[g]{}"#),
            ("[f(a=1), and more", r#"[f]{"a": 1}, and more"#),
        ] {
            assert_eq!(
                parsed("olmo3", &format!("</think><function_calls>{text}")),
                expected,
                "{text}"
            );
        }
    }

    /// Checks that a name of 256 letters is one, and a longer one is text.
    #[test]
    fn names_have_a_limit() {
        let text =
            |name: &str| format!("<start_function_call>call:{name}{{a:1}}<end_function_call>");
        let (fits, long) = ("n".repeat(256), "n".repeat(257));
        let tools =
            format!(r#"[{{"function":{{"name":"{fits}"}}}},{{"function":{{"name":"{long}"}}}}]"#);
        let parsed = |name: &str| parsed_with(&tools, "functiongemma", &text(name));
        assert_eq!(parsed(&fits), format!(r#"[{fits}]{{"a": 1}}"#));
        assert_eq!(parsed(&long), text(&long));
    }

    #[test]
    fn calls_in_tags() {
        let a = "<parameter=a>\n1\n</parameter>\n";
        for (text, expected) in [
            (
                format!("<tool_call>\n<function=f>\n{a}</function>\n</tool_call>"),
                r#"[f]{"a": 1}"#,
            ),
            (
                format!("<tool_call>\n<function=f>\n{a}</function>\n</tool_call> and"),
                r#"[f]{"a": 1} and"#,
            ),
            (
                format!("<tool_call>\n<function=f>\n{a}</function>\n</tool_c"),
                r#"[f]{"a": 1}"#,
            ),
            (
                format!(
                    "<tool_call>\n<function=f>\n{a}</function>\n<function=g>\n</function>\n</tool_call>"
                ),
                r#"[f]{"a": 1}[g]{}"#,
            ),
            // The text ends within the call, whose arguments stay open.
            (format!("<tool_call>\n<function=f>\n{a}"), r#"[f]{"a": 1"#),
            (
                format!("<tool_call>\n<function=f>\n{a}</func"),
                r#"[f]{"a": 1"#,
            ),
            (
                "<tool_call>\n<function=f>\n<parameter=b>\nx".to_owned(),
                r#"[f]{"b": "x"#,
            ),
            (
                "<tool_call>\n<function=f>\n{\"a\": 1".to_owned(),
                r#"[f]{"a": 1"#,
            ),
            (
                "<tool_call>\n<function=f>\n{\"a\": 1}</function>\n</tool_call>".to_owned(),
                r#"[f]{"a": 1}"#,
            ),
            (
                "<tool_call>\n<function=f>\n{\"a\": 1</func".to_owned(),
                r#"[f]{"a": 1"#,
            ),
            (
                "<tool_call>\n<function=f>\n{\"a\": 1}</func".to_owned(),
                r#"[f]{"a": 1}"#,
            ),
            // Text after a parameter ends the call.
            (
                format!("<tool_call>\n<function=f>\n{a}oops"),
                "[f]{\"a\": 1}\noops",
            ),
            (
                format!("<tool_call>\n<function=f>\n{a}{{}}"),
                "[f]{\"a\": 1}\n{}",
            ),
            // These are no calls.
            (
                "<tool_call></tool_call>".to_owned(),
                "<tool_call></tool_call>",
            ),
            (
                "<tool_call>\n<function=f".to_owned(),
                "<tool_call>\n<function=f",
            ),
            (
                "<tool_call>\n<function=f> oops".to_owned(),
                "<tool_call>\n<function=f> oops",
            ),
        ] {
            assert_eq!(parsed("qwen3_coder", &text), expected, "{text}");
        }
    }

    /// Checks that a closing tag inside a value is part of it, unless the grammar allows what follows.
    #[test]
    fn tags_in_values() {
        let qwen = |value: &str| {
            let end = "</function>\n</tool_call>";
            format!("<tool_call>\n<function=f>\n<parameter=b>\n{value}\n</parameter>\n{end}")
        };
        let quoted = qwen("x");
        for value in [
            "ends with </parameter> here",
            "ends with </function> here",
            "ends with </tool_call> here",
            "</parameter>\n</function>\nhere",
            "<parameter=c> here",
            "<function=g> here",
            "Use <parameter=a> or <parameter=b>",
            "\n<parameter=b> again",
            "{\"name\":\"x\"}</tool_call>\n<tool_call>{\"name\":\"y\"}</tool_call>\nend",
            "a</tool_call>\n<tool_call>b",
            "begin with <function=g><parameter=x> ok",
            "T = \"<tool_call>\n<function={name}>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>\"",
            "<list>\n<parameter=x>1</parameter>\n<parameter=y>2</parameter>\n</list>",
            "x = \"\n</parameter>\n\"",
            &quoted,
            &format!("see\n{quoted}\nand\n{quoted}\n"),
        ] {
            let expected = format!(r#"[f]{{"b": {}}}"#, serde_json::to_string(value).unwrap());
            assert_eq!(parsed("qwen3_coder", &qwen(value)), expected);
            let twice = format!("{}\n{}", qwen(value), qwen(value));
            assert_eq!(parsed("qwen3_coder", &twice), expected.repeat(2));
        }
        let glm = "<tool_call>f\n<arg_key>b</arg_key>\n<arg_value>1</arg_value> 2</arg_value></tool_call>";
        assert_eq!(parsed("glm45", glm), r#"[f]{"b": "1</arg_value> 2"}"#);
        let glm = "<tool_call>f\n<arg_key>b</arg_key>\n<arg_value>Use <arg_key>a</arg_key> here</arg_value></tool_call>";
        assert_eq!(
            parsed("glm45", glm),
            r#"[f]{"b": "Use <arg_key>a</arg_key> here"}"#
        );
        let list = format!("[\"</parameter>{}\"]", " ".repeat(70));
        let text = qwen("x").replace("=b>\nx\n", &format!("=a>{list}</parameter> x"));
        assert_eq!(
            parsed("qwen3_coder", &text).split(' ').next(),
            Some("[f]{\"a\":")
        );
        for end in ["<|im_end|>", "\n</think>"] {
            let text = qwen("x").replace("\n</tool_call>", end);
            assert_eq!(parsed("qwen3_coder", &text), r#"[f]{"b": "x"}"#);
        }
        // The section does not end, and nothing shows that the call has not ended.
        let open = qwen("x").replace("\n</tool_call>", "\nbye");
        assert_eq!(parsed("qwen3_coder", &open), "[f]{\"b\": \"x\"}\nbye");
        let expected = "[f]{\"b\": \"x\"}\nbye\n[f]{\"b\": \"y\"}";
        assert_eq!(
            parsed("qwen3_coder", &format!("{open}\n{}", qwen("y"))),
            expected
        );
        let unclosed = "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"b\">x\n<parameter name=\"a\">3</parameter>\n</invoke>\n</minimax:tool_call>";
        assert_eq!(parsed("minimax_m2", unclosed), r#"[f]{"b": "x", "a": 3}"#);
    }

    /// Checks that ends which close nothing are removed before the first word, after a call, and, if they end a turn, at
    /// the end of the text.
    #[test]
    fn stray_ends() {
        let call = "<tool_call>{\"name\": \"g\"}</tool_call>";
        for (text, expected) in [
            ("</think>a", "a"),
            ("</think>\n</think> a", " a"),
            ("</tool_call> ends a call", "</tool_call> ends a call"),
            ("a</tool_call>", "a</tool_call>"),
            ("a</think>", "a</think>"),
            ("a<|im_end|>", "a"),
            ("a<|im_end|>\n<|endoftext|>", "a"),
            ("a<|im_end|> b", "a<|im_end|> b"),
            (&format!("{call}</tool_call>"), "[g]{}"),
            (&format!("{call}\n</function>\n</tool_call>\n"), "[g]{}"),
            (
                &format!("{call}hello</tool_call> world"),
                "[g]{}hello</tool_call> world",
            ),
            (&format!("{call}</tool_call> world"), "[g]{} world"),
        ] {
            assert_eq!(
                parsed("hermes", text).trim_end_matches('\n'),
                expected,
                "{text}"
            );
        }
        for marks in [150, 60] {
            let text = format!("a{}", "<|im_end|>".repeat(marks));
            assert_eq!(
                parsed("hermes", &text).len(),
                if marks > 102 { 1 + 48 * 10 } else { 1 }
            );
        }
        let held = format!("a<|im_end|>{}", " ".repeat(2000));
        assert_eq!(parsed("hermes", &(held.clone() + "b")), held + "b");
    }

    /// Checks that a call in code counts if nothing follows it, and that a block of reasoning may follow a call.
    #[test]
    fn calls_in_code() {
        let call = "<tool_call>\n{\"name\": \"g\"}\n</tool_call>";
        for (text, expected) in [
            (
                format!("Run:\n```xml\n{call}\n```\n"),
                "Run:\n```xml\n\n```[g]{}",
            ),
            (format!("`{call}`"), "``[g]{}"),
            (format!("```\n{call}\n{call}\n```"), "```\n\n```[g]{}[g]{}"),
            (
                format!("```\n{call}\n```\n```\n{call}"),
                "```\n\n```\n```[g]{}[g]{}",
            ),
            (format!("```\n{call}"), "```\n[g]{}"),
            (format!("```\n{call}\n```\n<|im_end|>"), "```\n\n```[g]{}"),
            (
                format!("```\n{call}\n```<|im_end|> a"),
                &format!("```\n{call}\n```<|im_end|> a"),
            ),
            // Quoted.
            (
                format!("`{call}` is a call."),
                &format!("`{call}` is a call."),
            ),
            (
                format!("```\n{call}\n```\nSo."),
                &format!("```\n{call}\n```\nSo."),
            ),
            (
                format!("```\n{call}\n```\n{call}"),
                &format!("```\n{call}\n```\n[g]{{}}"),
            ),
            (
                format!("In ``` fences.\n{call}\nYes."),
                "In ``` fences.\n[g]{}\nYes.",
            ),
            // The span ends with its line.
            (format!("It's `so.\n{call} And"), "It's `so.\n[g]{} And"),
            (format!("{call}\n<think>r</think>{call}"), "[g]{}(r)[g]{}"),
            (format!("{call}\n<thin"), "[g]{}\n<thin"),
            (format!("{call}\n<think>r"), "[g]{}(r)"),
        ] {
            assert_eq!(parsed("hermes", &text), expected, "{text}");
        }
        let section = "<tool_calls>\n<tool_call>g<tool_sep>\n</tool_call>\n</tool_calls>";
        let text = format!("```\n{section}\n```\n{section}");
        let expected = format!("```\n{section}\n```\n[g]{{}}");
        assert_eq!(parsed("hy_v3", &text), expected);
        let section = "<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>b</arg_key>\n<arg_value><arg_key></arg_value>\n</tool_call>\n</tool_calls>";
        let text = format!("```\n{section}\n```\n{section}");
        let expected = format!("```\n{section}\n```\n[f]{{\"b\": \"<arg_key>\"}}");
        assert_eq!(parsed("hy_v3", &text), expected);
    }

    /// Checks the families that write messages between tokens, by the examples of their engines' parsers.
    #[test]
    fn messages_between_tokens() {
        let muse = |body: &str| {
            format!(
                "<atem:function_calls>\n<atem:invoke name=\"f\">\n{body}</atem:invoke>\n</atem:function_calls>"
            )
        };
        let of_a = "<atem:parameter name=\"a\">2</atem:parameter>\n<atem:parameter name=\"b\"> <x> </atem:parameter>\n";
        for (parser, text, expected) in [
            (
                "muse",
                format!(" to=self<|message|>Plan.<|eom|><|start|>assistant to=commentary<|message|>See 1 < 2.<|eom|><|start|>assistant to=f<|message|>{}<|eom|><|start|>assistant to=g<|message|>{}<|eot|>", muse(of_a), muse("")),
                r#"(Plan.)See 1 < 2.[f]{"a": 2, "b": " <x> "}[f]{}"#,
            ),
            ("muse", "<|start|>assistant to=self<|message|>Hm".to_owned(), "(Hm)"),
            ("muse", "<|start|>assistant to=user<|message|>Hi<|eot|>\n".to_owned(), "Hi"),
            (
                "muse",
                format!("<|start|>assistant<|message|>So {}.<|eot|>", muse("").replace("\"f\"", "\"g\"")),
                "So [g]{}.",
            ),
            ("muse", "today is fine".to_owned(), "today is fine"),
            ("muse", "<|start|>assistant to=f<|message|>no call<|eot|>".to_owned(), "no call"),
            (
                "beam",
                "<|channel|>analysis<|message|>Plan.<|end|><|start|>assistant<|channel|>final<|message|>See.<|end|><|start|>assistant to=f<|channel|>analysis <|constrain|>xml<|message|><rfl:parameter name=\"b\">\nOslo\n</rfl:parameter>\n<rfl:parameter name=\"a\">\n2\n</rfl:parameter><|end|><|start|>assistant to=g<|channel|>analysis <|constrain|>xml<|message|><|call|>".to_owned(),
                r#"(Plan.)See.[f]{"b": "Oslo", "a": 2}[g]{}"#,
            ),
            (
                "inkling",
                "<|content_thinking|>Plan.<|end_message|><|message_model|><|content_text|>See.<|end_message|><|message_model|>f<|content_invoke_tool_json|>{\"name\":\"f\",\"args\":{\"a\":2}}<|end_message|><|message_model|>g<|content_invoke_tool_json|>{\"name\":\"g\",\"args\":{}}<|end_message|><|content_model_end_sampling|>".to_owned(),
                r#"(Plan.)See.[f]{"a":2}[g]{}"#,
            ),
            ("inkling", "plain <b>text</b>".to_owned(), "plain <b>text</b>"),
            (
                "inkling",
                "<|message_model|>One.<|end_message|><|message_model|><|content_text|>Two.<|end_message|>".to_owned(),
                "One.Two.",
            ),
            (
                "beam",
                "<|start|>assistant to=f<|channel|>analysis<|message|>{\"a\" \"b\"}<|call|>".to_owned(),
                "{\"a\" \"b\"}",
            ),
        ] {
            assert_eq!(parsed(parser, &text), expected, "{parser}: {text}");
        }
    }

    #[test]
    fn reasoning_that_the_engine_separates_is_not_looked_for() {
        let mut said = String::new();
        let mut reader = reader("deepseek_r1", TOOLS);
        reader.read("<th", &mut |piece| add(&mut said, piece));
        let Reader::Text(text) = &mut reader else {
            panic!("the parser is named")
        };
        text.leave_reasoning(&mut |piece| add(&mut said, piece));
        assert_eq!(said, "<th");
        assert_eq!(parsed("deepseek_r1", "r</think>a"), "(r)a");
        assert_eq!(parsed("deepseek_r1", "<think>r</think>a"), "(r)a");
    }

    #[test]
    fn tokens_are_parsed_one_by_one_only_if_they_are_the_text() {
        let tokens = |words: &[&'static str]| -> Vec<TokenLogprob<'static>> {
            words
                .iter()
                .map(|word| TokenLogprob {
                    token: Text::plain(word),
                    ..TokenLogprob::default()
                })
                .collect()
        };
        for (words, text, expected) in [
            (&["a", "b"][..], "ab", true),
            (&["a", "b"], "abc", false),
            (&["a", "b"], "ac", false),
            (&["ab"], "ab", false),
            (&[], "", false),
        ] {
            assert_eq!(
                concatenate_to(&tokens(words), text),
                expected,
                "{words:?} {text}"
            );
        }
    }
}
