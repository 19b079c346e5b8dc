//! Calls in the notation of Python (Llama 4, OLMo 3, LFM2) or Gemma, converted to JSON while they arrive.
//!
//! ```text
//! start ─→ [ ─→ name ─→ ( key = value, … ) ─→ , ─→ … ─→ ] ─→ end
//! ```

use super::super::marker::{MarkerMatch, match_start};
use super::super::{Emit, Piece};
use super::notation::{Notation, Quotes, ReadArguments};
use super::{Grammar, Step, Tools};

/// Length limit of a function name in bytes.
const NAME: usize = 256;

/// Parameters of a literal format.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::wire::parse) struct LiteralForm {
    /// Text before a name, if there is any.
    pub(in crate::wire::parse) prefix: &'static str,
    /// Brackets around the arguments.
    pub(in crate::wire::parse) body: (char, char),
    /// Sign between a key and its value.
    pub(in crate::wire::parse) equals: char,
    /// Syntax of strings.
    pub(in crate::wire::parse) quotes: Quotes,
    /// Marker after the last call.
    pub(in crate::wire::parse) end: &'static str,
}

/// Parser for one section of literal calls.
#[derive(Debug)]
pub(super) struct LiteralGrammar {
    form: &'static LiteralForm,
    start: usize,
    state: LiteralState,
    /// True if the calls are in square brackets.
    listed: bool,
    called: bool,
}

#[derive(Debug)]
enum LiteralState {
    Opening,
    Name,
    /// Inside the arguments; holds the name until the arguments have proved that it is a call.
    Body(Notation, Option<String>),
    Between,
    Closing,
}

impl LiteralGrammar {
    /// Creates the parser for a section whose start marker has `start` bytes; these are skipped first.
    pub(super) fn new(form: &'static LiteralForm, start: usize) -> Self {
        Self {
            form,
            start,
            state: LiteralState::Opening,
            listed: false,
            called: false,
        }
    }

    fn stop(&self, at: usize) -> Step {
        if self.called {
            Step::Done(at)
        } else {
            Step::No
        }
    }

    /// Parses a name up to its arguments and returns the bytes read; `Ok(None)` if more text is needed. Fails if it
    /// is no name.
    fn name(&mut self, text: &str, tools: &Tools) -> Result<Option<usize>, ()> {
        let LiteralForm { prefix, body, .. } = *self.form;
        // Gemma 4 leaves out the word before the colon at times (vllm-project/vllm#53431).
        let short = prefix.trim_start_matches(char::is_alphabetic);
        let (prefix, rest) = match [prefix, short].map(|prefix| (prefix, text.strip_prefix(prefix)))
        {
            [(prefix, Some(rest)), _] | [_, (prefix, Some(rest))] => (prefix, rest),
            _ if prefix.starts_with(text) => return Ok(None),
            _ => return Err(()),
        };
        let is_of_name = |sign: char| sign.is_alphanumeric() || "_-.".contains(sign);
        let Some(length) = rest.find(|sign| !is_of_name(sign)) else {
            return if rest.len() > NAME { Err(()) } else { Ok(None) };
        };
        let name = rest.get(..length).unwrap_or("");
        if length > NAME
            || !tools.contains(name)
            || !rest
                .get(length..)
                .is_some_and(|rest| rest.starts_with(body.0))
        {
            return Err(());
        }
        let notation = Notation::new(self.form.quotes, self.form.equals, body.1);
        self.state = LiteralState::Body(notation, Some(name.to_owned()));
        Ok(Some(prefix.len() + length + body.0.len_utf8()))
    }

    /// Converts more of the arguments and emits their JSON, preceded by the call as soon as there is any.
    fn body(&mut self, text: &str, last: bool, emit: Emit<'_>) -> ReadArguments {
        let LiteralState::Body(notation, name) = &mut self.state else {
            return ReadArguments::Wrong(0);
        };
        let mut json = String::new();
        let noted = notation.read(text, last, &mut json);
        if !json.is_empty() {
            if let Some(name) = name.take() {
                self.called = true;
                emit(Piece::Call {
                    name: &name,
                    id: None,
                });
            }
            emit(Piece::Arguments(&json));
        }
        noted
    }

    /// Parses what follows a call: another call, or the end of the list. Returns the bytes read; nothing is read of
    /// text that is neither. Fails if more text is needed.
    fn between(&mut self, text: &str, last: bool, tools: &Tools) -> Result<usize, Step> {
        let begun = text.trim_start();
        let behind_comma = begun.strip_prefix(',');
        let rest = behind_comma.unwrap_or(begun).trim_start();
        let blank = text.len() - rest.len();
        // A comma may follow the last call.
        if self.listed && rest.starts_with(']') {
            self.state = LiteralState::Closing;
            return Ok(blank + 1);
        }
        // Calls outside of a list are one to a line.
        if behind_comma.is_some() || (!self.listed && self.form.prefix.is_empty()) {
            match self.name(rest, tools) {
                Ok(Some(read)) => return Ok(blank + read),
                Ok(None) if !last => return Err(Step::More(0)),
                _ => {}
            }
        }
        self.state = LiteralState::Closing;
        Ok(0)
    }
}

impl Grammar for LiteralGrammar {
    fn step(
        &mut self,
        text: &str,
        last: bool,
        tools: &Tools,
        emit: Emit<'_>,
    ) -> Result<usize, Step> {
        let begun = text.trim_start();
        let blank = text.len() - begun.len();
        if begun.is_empty() && !last {
            return Err(Step::More(0));
        }
        match &self.state {
            LiteralState::Opening => {
                self.listed = begun.starts_with('[');
                self.state = LiteralState::Name;
                Ok(blank + usize::from(self.listed))
            }
            LiteralState::Name => match self.name(begun, tools) {
                Ok(Some(read)) => Ok(blank + read),
                Ok(None) if !last => Err(Step::More(0)),
                _ => Err(self.stop(0)),
            },
            LiteralState::Body(..) => match self.body(text, last, emit) {
                ReadArguments::All(read) => {
                    self.state = LiteralState::Between;
                    Ok(read)
                }
                ReadArguments::Some(read) if !last => Err(Step::More(read)),
                ReadArguments::Some(read) | ReadArguments::Wrong(read) => Err(self.stop(read)),
            },
            LiteralState::Between => self.between(text, last, tools),
            LiteralState::Closing => Err(match match_start(begun, &[self.form.end]) {
                MarkerMatch::At { .. } => Step::Done(blank + self.form.end.len()),
                MarkerMatch::Partial(_) if !last => Step::More(0),
                MarkerMatch::Partial(_) => Step::Done(text.len()),
                MarkerMatch::Nowhere => Step::Done(0),
            }),
        }
    }

    fn ignores_blank(&self) -> bool {
        true
    }

    fn notation(&self) -> super::Notation {
        super::Notation::Other
    }

    fn take_marker_length(&mut self) -> usize {
        std::mem::take(&mut self.start)
    }
}
