//! Calls as a name, a separator and JSON, each between tokens (DeepSeek V3 and V3.1, Kimi K2, new Mistral).
//!
//! ```text
//! section ─→ call ─→ name ─→ separator ─→ arguments ─→ end of the call ─→ end of the section
//! ```
//!
//! A marker that opens another call starts a new section, whose grammar also accepts the end of the section.

use super::super::marker::{MarkerMatch, Markers, match_start};
use super::super::{Emit, Piece};
use super::value::Arguments;
use super::{Grammar, Notation, Step, Tools, name_length};

/// Limit on a name with its id, in bytes.
const NAME: usize = 512;

/// Parameters of a named format. An empty marker does not occur in the format.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::wire::parse) struct NamedForm {
    /// Marker that opens the section.
    pub(in crate::wire::parse) section: &'static str,
    /// Marker that opens a call.
    pub(in crate::wire::parse) call: &'static str,
    /// Text before the name.
    pub(in crate::wire::parse) prefix: &'static str,
    /// Marker that ends the name.
    pub(in crate::wire::parse) separator: &'static str,
    /// Marker that ends the name if an id follows, which then extends to `separator`.
    pub(in crate::wire::parse) id: &'static str,
    /// True if the name is part of the id: `functions.NAME:0`.
    pub(in crate::wire::parse) numbered: bool,
    /// True if the opening brace of the arguments may end the name in place of the separator.
    pub(in crate::wire::parse) brace: bool,
    /// True if the arguments are in a fenced code block.
    pub(in crate::wire::parse) fenced: bool,
    /// Marker that closes a call.
    pub(in crate::wire::parse) end: &'static str,
    /// Marker that closes the section.
    pub(in crate::wire::parse) close: &'static str,
}

/// Parser for one section of named calls.
#[derive(Debug)]
pub(super) struct NamedGrammar {
    form: &'static NamedForm,
    state: NamedState,
    called: bool,
    /// Markers that end a name.
    separators: Markers,
    stops: Markers,
}

#[derive(Debug)]
enum NamedState {
    /// Before the first call, where the `section` marker may be.
    Opening,
    /// Before a call or the end of the section.
    Call,
    Name,
    Arguments(Arguments),
    /// After the arguments of a call.
    Ending,
}

/// Prefix of a name that is part of an id.
const NUMBERED: &str = "functions.";

const FENCE: &str = "```";
const FENCES: [&str; 2] = ["```json", FENCE];

impl NamedGrammar {
    pub(super) fn new(form: &'static NamedForm) -> Self {
        let stops = Markers::new([
            form.end,
            form.close,
            if form.end.is_empty() { form.call } else { "" },
        ]);
        let separators = Markers::new([form.separator, if form.brace { "{" } else { "" }]);
        Self {
            form,
            state: NamedState::Opening,
            called: false,
            separators,
            stops,
        }
    }

    fn stop(&self, at: usize) -> Step {
        if self.called {
            Step::Done(at)
        } else {
            Step::No
        }
    }

    /// Parses a name with its separator and id, and returns the bytes read; `Ok(None)` if more text is needed. Fails
    /// if it is no name.
    fn name(&mut self, text: &str, tools: &Tools, emit: Emit<'_>) -> Result<Option<usize>, ()> {
        let NamedForm {
            separator, prefix, ..
        } = *self.form;
        let begun = text.trim_start();
        let blank = text.len() - begun.len();
        if !begun.starts_with(prefix) {
            return if prefix.starts_with(begun) {
                Ok(None)
            } else {
                Err(())
            };
        }
        // The separator of a name within the limit begins and ends in this much text.
        let begun = super::prefix(begun, prefix.len() + NAME + self.separators.longest());
        let found = self.separators.find(begun);
        let head = begun.get(prefix.len()..found.before(begun)).unwrap_or("");
        if head.len() > NAME || !self.may_be_name(head, tools) {
            return Err(());
        }
        let MarkerMatch::At { at, marker } = found else {
            return Ok(None);
        };
        let head = head.trim();
        let (head, id) = match head
            .split_once(self.form.id)
            .filter(|_| !self.form.id.is_empty())
        {
            Some((head, id)) => (head.trim(), Some(id.trim())),
            None => (head, None),
        };
        let (name, id) = if self.form.numbered {
            numbered(head, tools)
        } else {
            (head, id)
        };
        if !tools.contains(name) {
            return Err(());
        }
        self.called = true;
        emit(Piece::Call {
            name,
            id: id.filter(|id| !id.is_empty()),
        });
        self.state = NamedState::Arguments(Arguments::default());
        let after = if marker == 0 { separator.len() } else { 0 };
        Ok(Some(blank + at + after))
    }

    /// Returns true if the text may begin a name: only the separator of an id may follow its first word.
    fn may_be_name(&self, text: &str, tools: &Tools) -> bool {
        let text = text.trim_start();
        let own = if self.form.numbered {
            text.strip_prefix(NUMBERED).unwrap_or(text)
        } else {
            text
        };
        let Some(length) = name_length(own, tools) else {
            return true;
        };
        let rest = own.get(length..).unwrap_or("").trim_start();
        rest.is_empty() || match_start(rest, &[self.form.id]) != MarkerMatch::Nowhere
    }
}

/// Splits `functions.NAME:0` into name and id; the prefix may be missing. A bare number is not a name: if the
/// request has only one tool, the call is for that tool.
fn numbered<'h>(head: &'h str, tools: &'h Tools) -> (&'h str, Option<&'h str>) {
    let own = head.strip_prefix(NUMBERED).unwrap_or(head);
    let name = own.rsplit_once(':').map_or(own, |(name, _)| name);
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return (tools.only().unwrap_or(name), None);
    }
    (name, Some(head))
}

impl NamedGrammar {
    /// Parses the arguments, and the opening fence before them. Returns the bytes read, or the step with which the
    /// section ends.
    fn arguments(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Result<usize, Step> {
        let NamedState::Arguments(arguments) = &mut self.state else {
            return Ok(0);
        };
        if self.form.fenced && !arguments.has_emitted() {
            let begun = text.trim_start();
            match match_start(begun, &FENCES) {
                MarkerMatch::At { marker, .. } => {
                    return Ok(text.len() - begun.len()
                        + FENCES.get(marker).map_or(0, |fence| fence.len()));
                }
                MarkerMatch::Partial(_) if !last => return Err(Step::More(0)),
                _ => {}
            }
        }
        let read = arguments.step(text, &self.stops, last, &mut *emit)?;
        // Without arguments a marker follows; anything else is no JSON.
        let rest = text.get(read..).unwrap_or("");
        if !arguments.has_emitted()
            && matches!(self.stops.match_at_start(rest), MarkerMatch::At { .. })
        {
            emit(Piece::Arguments("{}"));
        }
        self.state = NamedState::Ending;
        Ok(read)
    }
}

impl Grammar for NamedGrammar {
    fn step(
        &mut self,
        text: &str,
        last: bool,
        tools: &Tools,
        emit: Emit<'_>,
    ) -> Result<usize, Step> {
        let begun = text.trim_start();
        let blank = text.len() - begun.len();
        let NamedForm {
            section,
            call,
            close,
            end,
            fenced,
            ..
        } = *self.form;
        match &mut self.state {
            NamedState::Opening => {
                let found = match_start(begun, &[section]);
                if matches!(found, MarkerMatch::Partial(_)) && !last {
                    return Err(Step::More(0));
                }
                self.state = NamedState::Call;
                Ok(if matches!(found, MarkerMatch::At { .. }) {
                    blank + section.len()
                } else {
                    0
                })
            }
            NamedState::Call => match match_start(begun, &[call, close]) {
                // Another call is a separate candidate: if it turns out to be none, its marker is content.
                MarkerMatch::At { marker: 0, .. } if self.called => Err(Step::Done(0)),
                MarkerMatch::At { marker: 0, .. } => {
                    self.state = NamedState::Name;
                    Ok(blank + call.len())
                }
                MarkerMatch::At { .. } if self.called => Err(Step::Done(blank + close.len())),
                MarkerMatch::Partial(_) if !last => Err(Step::More(0)),
                MarkerMatch::Partial(_) if self.called => Err(Step::Done(text.len())),
                _ => Err(self.stop(0)),
            },
            NamedState::Name => match self.name(text, tools, emit) {
                Ok(Some(read)) => Ok(read),
                Ok(None) if !last => Err(Step::More(0)),
                _ => Err(self.stop(0)),
            },
            NamedState::Arguments(_) => self.arguments(text, last, emit),
            NamedState::Ending => match match_start(begun, &[if fenced { FENCE } else { "" }, end])
            {
                MarkerMatch::At { marker: 0, .. } => Ok(blank + FENCE.len()),
                MarkerMatch::Partial(_) if !last => Err(Step::More(0)),
                found => {
                    self.state = NamedState::Call;
                    Ok(if matches!(found, MarkerMatch::At { .. }) {
                        blank + end.len()
                    } else {
                        0
                    })
                }
            },
        }
    }

    fn ignores_blank(&self) -> bool {
        match &self.state {
            NamedState::Arguments(arguments) => self.form.fenced && !arguments.has_emitted(),
            _ => true,
        }
    }

    fn notation(&self) -> Notation {
        match self.state {
            NamedState::Arguments(_) => Notation::OpenJson,
            _ => Notation::EndedJson,
        }
    }
}
