//! What calls may begin with, and whether one does: a mark that is only named is not a call.

use super::super::Piece;
use super::super::format::{Form, Format};
use super::json::JsonGrammar;
use super::literal::LiteralGrammar;
use super::named::NamedGrammar;
use super::tagged::TaggedGrammar;
use super::{Grammar, Step, near};
use crate::wire::tools::Tools;
use std::sync::Arc;

/// Bytes from a mark on in which a call is told that begins there.
const LOOK: usize = 4 << 10;

/// What the calls of a choice may begin with, and how they may then be read; first of all what needs no mark.
#[derive(Debug)]
pub(in super::super) struct Starts {
    pub(super) tools: Arc<Tools>,
    all: Box<[Start]>,
}

/// What a call may begin with.
#[derive(Debug)]
struct Start {
    mark: &'static str,
    /// Signs, at the beginning of an answer, that may begin a call without a mark.
    bare: &'static str,
    /// It stands in reasoning as well.
    fence: bool,
    forms: Vec<&'static Form>,
}

/// Which form is tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Try {
    pub(super) start: usize,
    pub(super) form: usize,
}

impl Starts {
    /// Those of these formats; none, if nothing may be called.
    pub(in super::super) fn of(formats: &[&'static Format], tools: &Arc<Tools>) -> Self {
        let all = if tools.is_empty() { Vec::new() } else { starts(formats) };
        Self { tools: Arc::clone(tools), all: all.into() }
    }

    /// How many there are.
    pub(in super::super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The marks by their numbers; empty: it has none.
    pub(super) fn marks(&self) -> impl Iterator<Item = &'static str> {
        self.all.iter().map(|start| start.mark)
    }

    /// The same, but for those that stand in reasoning as well.
    pub(in super::super) fn marks_of_calls(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|start| if start.fence { "" } else { start.mark })
    }

    /// The mark of this number.
    pub(super) fn mark(&self, start: usize) -> Option<&'static str> {
        self.all.get(start).map(|start| start.mark)
    }

    pub(super) fn grammar(&self, tried: Try) -> Option<Box<dyn Grammar>> {
        let start = self.all.get(tried.start)?;
        Some(match start.forms.get(tried.form)? {
            Form::Json(form) => Box::new(JsonGrammar::new(form, start.mark.len())),
            Form::Named(form) => Box::new(NamedGrammar::new(form)),
            Form::Tagged(form) => Box::new(TaggedGrammar::new(form)),
            Form::Literal(form) => Box::new(LiteralGrammar::new(form, start.mark.len())),
        })
    }

    /// What may begin without a mark where the first word of this text is, from a place on.
    pub(super) fn bare(&self, text: &str, from: usize) -> Option<usize> {
        let first = text.trim_start().chars().next()?;
        let later = self.all.iter().enumerate().skip(from);
        later.filter(|(_, start)| start.bare.contains(first)).map(|(place, _)| place).next()
    }

    /// As much of a text that begins with a mark as is looked at for whether a call begins there.
    pub(in super::super) fn looked_at(text: &str) -> &str {
        near(text, LOOK)
    }

    /// Whether a call begins with a text that begins with the mark of this number; `None`: more of it is needed. `last`:
    /// nothing follows.
    pub(in super::super) fn begins(&self, text: &str, start: usize, last: bool) -> Option<bool> {
        let looked = Self::looked_at(text);
        let is_all = looked.len() == text.len();
        let grammars = (0..).map_while(|form| self.grammar(Try { start, form }));
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

/// What calls in these formats begin with, each mark once.
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
