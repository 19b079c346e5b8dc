//! Calls as a name, a separator and JSON, each between tokens (DeepSeek V3 and V3.1, Kimi K2, new Mistral).
//!
//! ```text
//! section ─→ call ─→ name ─→ separator ─→ arguments ─→ end of the call ─→ end of the section
//! ```
//!
//! What opens another call is a start of its own, with the end of the section behind it.

use super::super::marker::{Found, Markers, begins};
use super::super::{Emit, Piece};
use super::value::{Arguments, Part};
use super::{Grammar, Step, Tools, is_name, name_length, near, steps};

/// Bytes of a name with what belongs to it.
const NAME: usize = 512;

/// What differs between formats. What is empty is not there.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Form {
    /// What opens the section.
    pub(in super::super) section: &'static str,
    /// What opens a call.
    pub(in super::super) call: &'static str,
    /// What stands before the name.
    pub(in super::super) prefix: &'static str,
    /// What ends the name.
    pub(in super::super) separator: &'static str,
    /// What ends the name where an id follows, up to `separator`.
    pub(in super::super) id: &'static str,
    /// The name is a part of the id: `functions.NAME:0`.
    pub(in super::super) numbered: bool,
    /// The arguments' brace ends the name where there is no separator.
    pub(in super::super) brace: bool,
    /// Arguments stand in a fenced block.
    pub(in super::super) fenced: bool,
    /// What closes a call.
    pub(in super::super) end: &'static str,
    /// What closes the section.
    pub(in super::super) close: &'static str,
}

/// The reader of one section.
#[derive(Debug)]
pub(super) struct NamedGrammar {
    form: &'static Form,
    state: State,
    called: bool,
    /// What ends a name.
    separators: Markers,
    stops: Markers,
}

#[derive(Debug)]
enum State {
    /// Before the first call: `section` may stand there.
    Opening,
    /// Before a call, or the end.
    Call,
    Name,
    Arguments(Arguments),
    /// Behind arguments.
    Ending,
}

/// What stands before a name that is a part of an id.
const NUMBERED: &str = "functions.";

const FENCE: &str = "```";
const FENCES: [&str; 2] = ["```json", FENCE];

impl NamedGrammar {
    pub(super) fn new(form: &'static Form) -> Self {
        let stops = Markers::new([form.end, form.close, if form.end.is_empty() { form.call } else { "" }]);
        let separators = Markers::new([form.separator, if form.brace { "{" } else { "" }]);
        Self { form, state: State::Opening, called: false, separators, stops }
    }

    fn stop(&self, at: usize) -> Step {
        if self.called { Step::Done(at) } else { Step::No }
    }

    /// A name, its separator and what belongs to them; gives how much that is.
    fn name(&mut self, text: &str, tools: &Tools, emit: Emit<'_>) -> Result<Option<usize>, ()> {
        let Form { separator, prefix, .. } = *self.form;
        let begun = text.trim_start();
        let blank = text.len() - begun.len();
        if !begun.starts_with(prefix) {
            return if prefix.starts_with(begun) { Ok(None) } else { Err(()) };
        }
        // A mark that ends a name in time stands in this.
        let begun = near(begun, prefix.len() + NAME + self.separators.longest());
        let found = self.separators.find(begun);
        let head = begun.get(prefix.len()..found.before(begun)).unwrap_or("");
        if head.len() > NAME || !self.may_be_name(head, tools) {
            return Err(());
        }
        let Found::At { at, marker } = found else { return Ok(None) };
        let head = head.trim();
        let (head, id) = match head.split_once(self.form.id).filter(|_| !self.form.id.is_empty()) {
            Some((head, id)) => (head.trim(), Some(id.trim())),
            None => (head, None),
        };
        let (name, id) = if self.form.numbered { numbered(head, tools) } else { (head, id) };
        if !is_name(name, tools) {
            return Err(());
        }
        self.called = true;
        emit(Piece::Call { name, id: id.filter(|id| !id.is_empty()) });
        self.state = State::Arguments(Arguments::default());
        let behind = if marker == 0 { separator.len() } else { 0 };
        Ok(Some(blank + at + behind))
    }

    /// Whether a name may begin so: behind its first word there is nothing, or what an id follows.
    fn may_be_name(&self, text: &str, tools: &Tools) -> bool {
        let text = text.trim_start();
        let own = if self.form.numbered { text.strip_prefix(NUMBERED).unwrap_or(text) } else { text };
        let Some(length) = name_length(own, tools) else { return true };
        let rest = own.get(length..).unwrap_or("").trim_start();
        rest.is_empty() || begins(rest, &[self.form.id]) != Found::Nowhere
    }
}

/// `functions.NAME:0`, where `functions.` may be missing; a bare number says nothing of the name, unless there is but one.
fn numbered<'h>(head: &'h str, tools: &'h Tools) -> (&'h str, Option<&'h str>) {
    let own = head.strip_prefix(NUMBERED).unwrap_or(head);
    let name = own.rsplit_once(':').map_or(own, |(name, _)| name);
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return (tools.only().unwrap_or(name), None);
    }
    (name, Some(head))
}

impl NamedGrammar {
    /// Reads some of the text: gives how much, or how it ends there.
    fn step(&mut self, text: &str, last: bool, tools: &Tools, emit: Emit<'_>) -> Result<usize, Step> {
        let begun = text.trim_start();
        let blank = text.len() - begun.len();
        let Form { section, call, close, end, fenced, .. } = *self.form;
        match &mut self.state {
            State::Opening => {
                let found = begins(begun, &[section]);
                if matches!(found, Found::Perhaps(_)) && !last {
                    return Err(Step::More(0));
                }
                self.state = State::Call;
                Ok(if matches!(found, Found::At { .. }) { blank + section.len() } else { 0 })
            }
            State::Call => match begins(begun, &[call, close]) {
                // Whether another one follows is seen from its mark on, which is text if none does.
                Found::At { marker: 0, .. } if self.called => Err(Step::Done(0)),
                Found::At { marker: 0, .. } => {
                    self.state = State::Name;
                    Ok(blank + call.len())
                }
                Found::At { .. } if self.called => Err(Step::Done(blank + close.len())),
                Found::Perhaps(_) if !last => Err(Step::More(0)),
                Found::Perhaps(_) if self.called => Err(Step::Done(text.len())),
                _ => Err(self.stop(0)),
            },
            State::Name => match self.name(text, tools, emit) {
                Ok(Some(read)) => Ok(read),
                Ok(None) if !last => Err(Step::More(0)),
                _ => Err(self.stop(0)),
            },
            State::Arguments(_) => self.arguments(text, last, emit),
            State::Ending => match begins(begun, &[if fenced { FENCE } else { "" }, end]) {
                Found::At { marker: 0, .. } => Ok(blank + FENCE.len()),
                Found::Perhaps(_) if !last => Err(Step::More(0)),
                found => {
                    self.state = State::Call;
                    Ok(if matches!(found, Found::At { .. }) { blank + end.len() } else { 0 })
                }
            },
        }
    }

    /// Arguments, and the fence before them.
    fn arguments(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Result<usize, Step> {
        let State::Arguments(arguments) = &mut self.state else { return Ok(0) };
        if self.form.fenced && !arguments.are_said() {
            let begun = text.trim_start();
            match begins(begun, &FENCES) {
                Found::At { marker, .. } => {
                    return Ok(text.len() - begun.len() + FENCES.get(marker).map_or(0, |fence| fence.len()));
                }
                Found::Perhaps(_) if !last => return Err(Step::More(0)),
                _ => {}
            }
        }
        match arguments.read(text, &self.stops, emit) {
            Part::All(read) => {
                if !arguments.are_said() {
                    emit(Piece::Arguments("{}"));
                }
                self.state = State::Ending;
                Ok(read)
            }
            Part::Some(read) if last => {
                arguments.end(text.get(read..).unwrap_or(""), emit);
                Err(Step::Done(text.len()))
            }
            Part::Some(read) => Err(Step::More(read)),
        }
    }
}

impl Grammar for NamedGrammar {
    fn read(&mut self, text: &str, last: bool, tools: &Tools, emit: Emit<'_>) -> Step {
        steps(text, 0, |text| self.step(text, last, tools, emit))
    }
}
