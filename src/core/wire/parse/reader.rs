//! Readers of the text of one choice: Harmony, a family's own format, or what its beginning tells.
//!
//! Takes: text, cut anywhere. Gives: pieces. Remembers: which reader it is, and text that may be the beginning of Harmony.
//! Never: chooses again.

use super::harmony::{Harmony, HarmonyCalls};
use super::messages::MessageReader;
use super::text::TextParser;
use super::tokens::Tokens;
use super::{Emit, header};

/// Parser of one choice, selected by the model's format.
#[derive(Debug)]
pub(super) enum Reader {
    /// Parser for Harmony. The tokens are present if token ids decide what is a marker (option `harmony`).
    Harmony(Box<Harmony>, Option<Tokens>),
    Text(Box<TextParser>),
    Messages(Box<MessageReader>),
    /// Undetermined format: the beginning of the text has not arrived yet.
    Undecided(Undecided),
    /// Parsing is off, because the engine has parsed this choice itself and no calls are looked for.
    Off,
}

impl Reader {
    /// Parses the next text of the choice and emits the pieces that are certain; the rest stays buffered.
    pub(super) fn read(&mut self, text: &str, emit: Emit<'_>) {
        match self {
            Self::Harmony(reader, _) => reader.read(text, emit),
            Self::Text(reader) => reader.read(text, emit),
            Self::Messages(reader) => reader.read(text, emit),
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

    /// Decides that the text is not Harmony, if that is undecided.
    pub(super) fn settle(&mut self, emit: Emit<'_>) {
        if let Self::Undecided(undecided) = self {
            let held = std::mem::take(&mut undecided.held);
            *self = undecided.settled();
            if !held.is_empty() {
                self.read(&held, emit);
            }
        }
    }

    /// Returns true if the text has no tag, though templates of the model's family open the block of reasoning.
    pub(super) fn lacks_tags(&self) -> bool {
        matches!(self, Self::Text(text) if text.lacks_tags())
    }

    /// Stops looking for reasoning. Calls are looked for, and what follows may be Harmony if it begins so. `leave` ends what
    /// the parser of text holds.
    pub(super) fn leave_reasoning(&mut self, emit: Emit<'_>, leave: fn(&mut TextParser, Emit<'_>)) {
        if let Self::Messages(reader) = self {
            return reader.end(true, emit);
        }
        if let Self::Harmony(reader, tokens) = self {
            *tokens = None;
            reader.end(true, emit);
            let calls = reader.take_calls();
            *self = Self::Undecided(Undecided {
                text: Box::default(),
                calls,
                held: String::new(),
            });
        }
        if !matches!(self, Self::Undecided(undecided) if undecided.held.is_empty()) {
            self.settle(emit);
        }
        if let Self::Text(text) | Self::Undecided(Undecided { text, .. }) = self {
            leave(text, emit);
        }
    }

    /// Ends the text and emits whatever is still buffered. `complete`: the model finished by itself, so that open
    /// messages count as complete.
    pub(super) fn end(&mut self, complete: bool, emit: Emit<'_>) {
        match self {
            Self::Harmony(reader, tokens) => {
                let waiting = tokens.as_mut().map(Tokens::end);
                waiting
                    .into_iter()
                    .flatten()
                    .for_each(|meant| reader.read_token(meant, emit));
                reader.end(complete, emit);
            }
            Self::Text(reader) => reader.end(complete, emit),
            Self::Messages(reader) => reader.end(complete, emit),
            Self::Undecided(_) => {
                self.settle(emit);
                self.end(complete, emit);
            }
            Self::Off => {}
        }
    }
}

/// Start of a text whose model name is ambiguous: decides between Harmony and the family's own format by the first
/// characters.
#[derive(Debug)]
pub(super) struct Undecided {
    /// Parser to continue with if the text is not Harmony.
    pub(super) text: Box<TextParser>,
    /// Calls for the Harmony parser.
    pub(super) calls: HarmonyCalls,
    /// Buffered text that may be the beginning of Harmony.
    pub(super) held: String,
}

impl Undecided {
    /// Beginnings of Harmony output where the engine shows special tokens.
    pub(super) const BEGINNINGS: [&'static str; 2] = [header::CHANNEL, "<|start|>assistant"];
    /// Continuations of each beginning that make it a header.
    const HEADERS: [&'static [&'static str]; 2] = [
        &["analysis", "commentary", "final"],
        &[header::CHANNEL, " to=", "<|message|>"],
    ];

    /// Selects the reader by the beginning of the text; `None` if more text is needed.
    pub(super) fn decided(&mut self, beginning: &str) -> Option<Reader> {
        Some(match Self::is_harmony(beginning)? {
            true => {
                let calls = std::mem::take(&mut self.calls);
                Reader::Harmony(Box::new(Harmony::new(calls)), None)
            }
            false => self.settled(),
        })
    }

    /// Returns true if a text begins with a header of Harmony; `None` if more text is needed.
    fn is_harmony(text: &str) -> Option<bool> {
        for (mark, next) in Self::BEGINNINGS.into_iter().zip(Self::HEADERS) {
            if let Some(rest) = text.strip_prefix(mark) {
                let is_header = next.iter().any(|next| rest.starts_with(next));
                let may_be = next.iter().any(|next| next.starts_with(rest));
                return (is_header || !may_be).then_some(is_header);
            }
        }
        let may_be = Self::BEGINNINGS.iter().any(|mark| mark.starts_with(text));
        (!may_be).then_some(false)
    }

    /// Returns the reader for a text that is not Harmony.
    pub(super) fn settled(&mut self) -> Reader {
        Reader::Text(std::mem::take(&mut self.text))
    }
}
