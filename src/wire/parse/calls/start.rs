//! Possible beginnings of calls, and the check that a call really begins there: a marker that is merely mentioned is
//! not a call.

use super::super::Piece;
use super::super::format::{Form, Format};
use super::json::JsonGrammar;
use super::literal::LiteralGrammar;
use super::named::NamedGrammar;
use super::tagged::TaggedGrammar;
use super::{Grammar, Step, prefix};
use crate::wire::tools::Tools;
use std::sync::Arc;

/// Lookahead limit in bytes: a call must be recognisable within this much text from its marker on.
const LOOKAHEAD: usize = 4 << 10;

/// Beginnings of calls in one choice, each with the forms that may follow. Those of formats without a marker are
/// included.
#[derive(Debug)]
pub(in super::super) struct Starts {
    pub(super) tools: Arc<Tools>,
    all: Box<[Start]>,
}

/// Beginning of a call, and the forms in which the call may be written.
#[derive(Debug)]
struct Start {
    mark: &'static str,
    /// Characters that may begin a call without a marker, at the start of an answer only.
    bare: &'static str,
    /// True if the marker also occurs in reasoning (a code fence) and therefore does not end it.
    fence: bool,
    forms: Vec<&'static Form>,
}

/// Candidate for a call: the indices of a beginning and of one of its forms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) start: usize,
    pub(super) form: usize,
}

impl Starts {
    /// Collects the beginnings of these formats; none if the request has no tools.
    pub(in super::super) fn of(formats: &[&'static Format], tools: &Arc<Tools>) -> Self {
        let all = if tools.is_empty() { Vec::new() } else { starts(formats) };
        Self { tools: Arc::clone(tools), all: all.into() }
    }

    /// Returns the number of beginnings, which is also the number of items of [`Starts::marks`].
    pub(in super::super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the marker of each beginning, by index; empty for a beginning without a marker.
    pub(super) fn marks(&self) -> impl Iterator<Item = &'static str> {
        self.all.iter().map(|start| start.mark)
    }

    /// Returns the markers that end reasoning, by index; empty for a beginning without a marker, and for code
    /// fences.
    pub(in super::super) fn marks_of_calls(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|start| if start.fence { "" } else { start.mark })
    }

    /// Returns the marker of one beginning; `None` if the index is out of range.
    pub(super) fn mark(&self, start: usize) -> Option<&'static str> {
        self.all.get(start).map(|start| start.mark)
    }

    pub(super) fn grammar(&self, tried: Candidate) -> Option<Box<dyn Grammar>> {
        let start = self.all.get(tried.start)?;
        Some(match start.forms.get(tried.form)? {
            Form::Json(form) => Box::new(JsonGrammar::new(form, start.mark.len())),
            Form::Named(form) => Box::new(NamedGrammar::new(form)),
            Form::Tagged(form) => Box::new(TaggedGrammar::new(form)),
            Form::Literal(form) => Box::new(LiteralGrammar::new(form, start.mark.len())),
        })
    }

    /// Returns the first beginning, from index `from` on, that needs no marker and fits the first character of the
    /// text.
    pub(super) fn bare(&self, text: &str, from: usize) -> Option<usize> {
        let first = text.trim_start().chars().next()?;
        let later = self.all.iter().enumerate().skip(from);
        later.filter(|(_, start)| start.bare.contains(first)).map(|(place, _)| place).next()
    }

    /// Returns the part of a text that is examined to decide if a call begins at its start: at most `LOOKAHEAD` bytes.
    pub(in super::super) fn lookahead(text: &str) -> &str {
        prefix(text, LOOKAHEAD)
    }

    /// Returns true if the text, which begins with the marker of beginning `start`, begins a call; `None` if more
    /// text is needed. `last`: no more text follows.
    pub(in super::super) fn begins(&self, text: &str, start: usize, last: bool) -> Option<bool> {
        let looked = Self::lookahead(text);
        let is_all = looked.len() == text.len();
        let grammars = (0..).map_while(|form| self.grammar(Candidate { start, form }));
        for mut grammar in grammars {
            let mut called = false;
            let step = grammar.read(looked, last && is_all, &self.tools, &mut |piece| {
                called |= matches!(piece, Piece::Call { .. });
            });
            match step {
                _ if called => return Some(true),
                Step::More(_) if is_all && !last => return None,
                _ => {}
            }
        }
        Some(false)
    }
}

/// Collects the beginnings of calls in these formats. Formats that share a marker share one beginning.
fn starts(formats: &[&'static Format]) -> Vec<Start> {
    let mut all: Vec<Start> = Vec::new();
    let mut add = |mark, bare, fence, forms: &'static [Form]| {
        let known = all.iter_mut().find(|start| start.mark == mark && start.bare == bare);
        match known {
            Some(start) => start.forms.extend(forms),
            None => all.push(Start { mark, bare, fence, forms: forms.iter().collect() }),
        }
    };
    for format in formats {
        if !format.bare.is_empty() {
            add("", format.bare, false, format.forms);
        }
        format.starts.iter().for_each(|mark| add(mark, "", false, format.forms));
        format.fences.iter().for_each(|mark| add(mark, "", true, format.forms));
    }
    all
}
