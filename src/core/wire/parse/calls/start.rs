//! Possible starts of calls, and the check that a call really begins there: a marker that is merely mentioned is not
//! a call.
//!
//! Takes: the formats of calls, and text that begins with a marker. Gives: the markers, the grammar of each form, and
//! whether a call begins. Remembers: nothing of the text. Never: reads further than a lookahead.

use super::super::Piece;
use super::format::{Form, Format};
use super::json::JsonGrammar;
use super::literal::LiteralGrammar;
use super::named::NamedGrammar;
use super::tagged::TaggedGrammar;
use super::{Grammar, Step, prefix};
use crate::wire::tools::Tools;
use std::sync::Arc;

/// Lookahead limit in bytes: a call must be recognisable within this much text from its marker on.
const LOOKAHEAD: usize = 4 << 10;

/// Starts of calls in one choice, each with the forms that may follow. Those of formats without a marker are
/// included.
#[derive(Debug)]
pub(in super::super) struct Starts {
    pub(super) tools: Arc<Tools>,
    all: Box<[Start]>,
}

/// Start of a call: its marker, and the forms in which the call may be written.
#[derive(Debug)]
struct Start {
    /// Text of the marker; empty if the format has none.
    marker: &'static str,
    /// Characters that may begin a call without a marker, at the start of an answer only.
    bare_characters: &'static str,
    /// True if the marker also occurs in reasoning (a code fence) and therefore does not end it.
    fence: bool,
    forms: Vec<&'static Form>,
}

/// Candidate for a call: the indices of a start and of one of its forms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) start_index: usize,
    pub(super) form_index: usize,
}

impl Candidate {
    /// Returns the candidate for the next form of the same start.
    pub(super) fn next_form(self) -> Self {
        Self {
            form_index: self.form_index + 1,
            ..self
        }
    }
}

impl Starts {
    /// Collects the starts of these formats; none if the request has no tools.
    pub(in super::super) fn of(formats: &[&'static Format], tools: &Arc<Tools>) -> Self {
        let all = if tools.is_empty() {
            Vec::new()
        } else {
            collect_starts(formats)
        };
        Self {
            tools: Arc::clone(tools),
            all: all.into(),
        }
    }

    /// Returns the number of starts, which is also the number of items of [`Starts::markers`].
    pub(in super::super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the marker of each start, by index; empty for a start without one.
    pub(super) fn markers(&self) -> impl Iterator<Item = &'static str> {
        self.all.iter().map(|start| start.marker)
    }

    /// Returns the markers that end reasoning, by index; empty for a start without a marker, and for code fences.
    pub(in super::super) fn markers_that_end_reasoning(
        &self,
    ) -> impl Iterator<Item = &'static str> {
        self.all
            .iter()
            .map(|start| if start.fence { "" } else { start.marker })
    }

    /// Returns the marker of one start; `None` if the index is out of range.
    pub(super) fn marker(&self, start_index: usize) -> Option<&'static str> {
        self.all.get(start_index).map(|start| start.marker)
    }

    /// Returns a new grammar that parses a candidate's form; `None` if its start has no such form.
    pub(super) fn grammar(&self, candidate: Candidate) -> Option<Box<dyn Grammar>> {
        let start = self.all.get(candidate.start_index)?;
        Some(match start.forms.get(candidate.form_index)? {
            Form::Json(form) => Box::new(JsonGrammar::new(form, start.marker.len())),
            Form::Named(form) => Box::new(NamedGrammar::new(form)),
            Form::Tagged(form) => Box::new(TaggedGrammar::new(form)),
            Form::Literal(form) => Box::new(LiteralGrammar::new(form, start.marker.len())),
        })
    }

    /// Returns the first start, from index `from` on, that needs no marker and fits the first character of the text.
    pub(super) fn find_bare(&self, text: &str, from: usize) -> Option<usize> {
        let first = text.trim_start().chars().next()?;
        let later = self.all.iter().enumerate().skip(from);
        later
            .filter(|(_, start)| start.bare_characters.contains(first))
            .map(|(index, _)| index)
            .next()
    }

    /// Returns the part of a text that is examined to decide if a call begins at its start: at most `LOOKAHEAD` bytes.
    pub(in super::super) fn lookahead(text: &str) -> &str {
        prefix(text, LOOKAHEAD)
    }

    /// Returns true if the text, which begins with the marker of this start, begins a call; `None` if more text is
    /// needed. `last`: no more text follows.
    pub(in super::super) fn begins(
        &self,
        text: &str,
        start_index: usize,
        last: bool,
    ) -> Option<bool> {
        let looked = Self::lookahead(text);
        let is_all = looked.len() == text.len();
        // Forms are tried in order: a later one may not decide before an earlier one has.
        let grammars = (0..).map_while(|form_index| {
            self.grammar(Candidate {
                start_index,
                form_index,
            })
        });
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

/// Returns the markers that end values, calls and sections of these formats.
pub(super) fn ends(formats: &[&'static Format]) -> Vec<&'static str> {
    let forms = formats.iter().flat_map(|format| format.forms);
    let mut all: Vec<_> = forms.flat_map(Form::ends).collect();
    all.sort_unstable();
    all.dedup();
    // A fence also ends other blocks.
    all.retain(|end| *end != "```");
    all
}

/// Collects the starts of calls in these formats. Formats that share a marker share one start.
fn collect_starts(formats: &[&'static Format]) -> Vec<Start> {
    let mut all: Vec<Start> = Vec::new();
    let mut add = |marker, bare_characters, fence, forms: &'static [Form]| {
        // No marker is a fence in one format and not in another.
        let same =
            |start: &&mut Start| start.marker == marker && start.bare_characters == bare_characters;
        match all.iter_mut().find(same) {
            Some(start) => start.forms.extend(forms),
            None => all.push(Start {
                marker,
                bare_characters,
                fence,
                forms: forms.iter().collect(),
            }),
        }
    };
    for format in formats {
        if !format.bare.is_empty() {
            add("", format.bare, false, format.forms);
        }
        format
            .starts
            .iter()
            .for_each(|marker| add(marker, "", false, format.forms));
        format
            .fences
            .iter()
            .for_each(|marker| add(marker, "", true, format.forms));
    }
    all
}
