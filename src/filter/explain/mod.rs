//! Explanation of a rewrite: reports each change while the answer passes, and a verdict at the end.
//!
//! Takes: the engine's input and the canonical output, line by line. Gives: [`Finding`]s. Remembers: how often
//! each rule had been used, and equal changes of recent frames. Never: reaches into the rewriter, which therefore
//! bears no cost for it.

mod claims;
mod compare;
mod frames;
mod gather;
mod leaves;
mod verdict;
mod words;

pub use compare::{Effect, Field, Kind};
pub use frames::{FrameRow, RowChange, Side, TimedFrame, explained_rows, relayed_rows};
pub use verdict::{Outcome, Recognition, Verdict};
pub use words::rule_words;

use super::Writer;
use crate::engine::Identity;
use crate::plan::AdaptedBody;
use crate::wire::fault::{Failure, Fault};
use crate::wire::rule::{Rule, Tally};
use crate::wire::sse::{Framer, FramerOutput};
use crate::wire::{Ending, OutputBuffer, Rewriter, Summary};
use claims::{RuleMatcher, Used};
use compare::Comparer;
use gather::RunMerger;
use std::fmt;

/// Finding about an answer, as `explain` reports it to the user.
#[derive(Clone, Debug)]
pub enum Finding {
    /// A change made to the request or the answer.
    Change(Change),
    /// The engine that produced the answer, with the evidence.
    Engine(Recognition),
    /// The verdict on the answer, always the last finding.
    Verdict(Box<Verdict>),
}

/// Change made by the rewriter, in one place or repeated over several frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Place of the change: request, frames or object.
    pub place: Place,
    /// Name of the rule; `None` if no counted rule made the change.
    pub rule: Option<&'static str>,
    /// Difference that the change makes between the engine's bytes and the canonical ones.
    pub effect: Effect,
    /// Number of times the change was made.
    pub times: u32,
}

/// Place of a change: the request, a range of frames, or an answer that is one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The request sent to the engine.
    Request,
    /// A range of the answer's events, counted from 1.
    Frames {
        /// First event with the change.
        first: u64,
        /// Last event with the change.
        last: u64,
    },
    /// An answer that is a single object.
    Object,
}

impl Place {
    /// Returns the name of the place in the JSON output of `explain`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Frames { .. } => "frames",
            Self::Object => "answer",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frames { first, last } if first == last => write!(f, "frame {first}"),
            Self::Frames { first, last } => write!(f, "frames {first}-{last}"),
            other => f.write_str(other.name()),
        }
    }
}

impl Change {
    /// Returns place and count as text: `frames 2-57 (56 times)`.
    pub fn range(&self) -> String {
        match self.times {
            0 | 1 => self.place.to_string(),
            times => format!("{} ({times} times)", self.place),
        }
    }
}

/// Collector of findings: observes the rewriter's input and output, and passes each finding to the callback.
pub(super) struct Explainer<'t> {
    report: &'t mut dyn FnMut(Finding),
    framer: Framer,
    known: Tally,
    comparer: Comparer,
    claims: RuleMatcher,
    gathered: RunMerger,
    engine: Recognition,
    /// Number of rules that changed the request.
    adapted: usize,
    /// True if the engine's answer is a single object.
    is_object: bool,
    /// Number of canonical events written.
    written: u64,
}

impl<'t> Explainer<'t> {
    pub(super) fn new(tell: &'t mut dyn FnMut(Finding), engine: Identity, max_event_bytes: usize) -> Self {
        Self {
            report: tell,
            framer: Framer::new(max_event_bytes),
            known: Tally::default(),
            comparer: Comparer::default(),
            claims: RuleMatcher::default(),
            gathered: RunMerger::default(),
            engine: Recognition::new(engine),
            adapted: 0,
            is_object: false,
            written: 0,
        }
    }

    /// Reports the changes made to the request. Fields are compared only if the request keeps its API.
    pub(super) fn request(&mut self, asked: &str, adapted: &AdaptedBody, is_same_api: bool) {
        self.adapted = adapted.rules.len();
        let words = adapted.rules.iter().map(|rule| (Some(rule.name), Effect::words(rule.what)));
        let body = adapted.body.joined();
        let body = std::str::from_utf8(&body).unwrap_or_default();
        let fields = match is_same_api {
            true => Comparer::default().compare(asked, &[body], true),
            false => Vec::new(),
        };
        let words = words.map(|(rule, effect)| Change { place: Place::Request, rule, effect, times: 1 });
        let fields = RuleMatcher::default().changes(fields, std::iter::empty(), Place::Request, false);
        words.chain(fields).for_each(|change| (self.report)(Finding::Change(change)));
    }

    /// Feeds bytes to the rewriter line by line, since each event is complete at the end of a line.
    pub(super) fn push(&mut self, writer: &mut Writer, bytes: &[u8]) {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut frames = Vec::new();
            self.framer.push(line, |found| frames.extend(data(found)));
            if writer.ended() {
                frames.clear();
            }
            let written = apart(writer, |rewriter, out| _ = rewriter.push(line, out));
            self.observe(writer, &frames, &written);
        }
    }

    /// Ends the engine's event stream and reports the last changes.
    pub(super) fn finish(&mut self, writer: &mut Writer, ending: Ending) {
        let mut frames = Vec::new();
        self.framer.finish(|_| true, |found| frames.extend(data(found)));
        let before = writer.rewriter.summary().events;
        let written = apart(writer, |rewriter, out| _ = rewriter.finish(ending, out));
        // A truncated event is not counted.
        frames.truncate(usize::try_from(writer.rewriter.summary().events - before).unwrap_or(0));
        self.observe(writer, &frames, &written);
    }

    /// Rewrites an answer that is a single object, and reports its changes.
    pub(super) fn whole(&mut self, writer: &mut Writer, body: &[u8]) {
        let written = apart(writer, |rewriter, out| _ = rewriter.whole(body, out));
        let (body, text) = (String::from_utf8_lossy(body), String::from_utf8_lossy(&written));
        let events = if writer.stream { events(&text) } else { vec![&*text] };
        self.written += if writer.stream { events.len() as u64 } else { 0 };
        self.engine.search(&body, 0);
        self.is_object = true;
        let effects = self.comparer.compare(&body, &events, true);
        self.found(&writer.rewriter.summary(), Place::Object, effects);
    }

    /// Ends the answer with a failure whose cause is not in the engine's bytes, such as a size limit.
    pub(super) fn fail(&mut self, writer: &mut Writer, failure: Failure) {
        let written = apart(writer, |rewriter, out| _ = rewriter.fail(failure, out));
        self.observe(writer, &[], &written);
    }

    /// Reports the changes since the last call. In a stream, output events correspond to input frames.
    fn observe(&mut self, writer: &Writer, frames: &[String], written: &[u8]) {
        let summary = writer.rewriter.summary();
        let is_quiet = frames.is_empty() && written.is_empty();
        if is_quiet && summary.tally.since(&self.known).next().is_none() {
            return;
        }
        let number = summary.events;
        let text = String::from_utf8_lossy(written);
        let events = if writer.stream { events(&text) } else { Vec::new() };
        self.written += events.len() as u64;
        let frame = frames.first().map_or("", String::as_str);
        self.engine.search(frame, number);
        let effects = match writer.stream {
            true if !frame.is_empty() && refuses(&writer.rewriter) => vec![Effect::words(REFUSED)],
            true => self.comparer.compare(frame, &events, false),
            false => Vec::new(),
        };
        self.found(&summary, Place::Frames { first: number, last: number }, effects);
        self.gathered.ended(number).into_iter().for_each(|change| (self.report)(Finding::Change(change)));
    }

    fn found(&mut self, summary: &Summary, place: Place, effects: Vec<Effect>) {
        let before = std::mem::replace(&mut self.known, summary.tally.clone());
        let used = summary.tally.since(&before).map(|(rule, times)| Used { rule, times, place });
        let is_waiting = self.comparer.is_waiting();
        for change in self.claims.changes(effects, used, place, is_waiting) {
            self.gathered.add(change);
        }
    }

    /// Ends the explanation: reports pending changes, engine and verdict. `summary` is `None` if nothing was
    /// rewritten; `stream`: the output is an event stream; `failure` holds true for an error response of the
    /// engine.
    pub(super) fn end(mut self, summary: Option<Summary>, stream: bool, failure: Option<(bool, Failure)>) {
        self.claims.rest().for_each(|change| self.gathered.add(change));
        self.gathered.rest().into_iter().for_each(|change| (self.report)(Finding::Change(change)));
        let outcome = match failure {
            None => Outcome::Complete,
            Some((true, failure)) => Outcome::Error(failure),
            Some((false, failure)) => Outcome::Broken(failure),
        };
        let has_answer = summary.is_some();
        let summary = summary.unwrap_or_default();
        let used = |rule| summary.tally.times(rule) > 0;
        let flags = summary.unparsed.and_then(|unparsed| unparsed.flags(self.engine.name()));
        let verdict = Verdict {
            outcome,
            finishes: summary.finishes.iter().map(|reason| reason.as_str()).collect(),
            is_object: self.is_object,
            frames: summary.events,
            written: stream.then_some(self.written),
            rules: self.adapted + summary.tally.iter().count(),
            engine_characters: self.comparer.engine_characters,
            canonical_characters: (stream || self.is_object).then_some(self.comparer.canonical_characters),
            is_stopped: used(Rule::Repetition),
            is_parsed: [Rule::Think, Rule::ToolText, Rule::Harmony, Rule::ToolArgumentsTail]
                .into_iter()
                .any(used),
            unparsed: summary.unparsed,
            flags,
        };
        if has_answer {
            (self.report)(Finding::Engine(self.engine));
        }
        (self.report)(Finding::Verdict(Box::new(verdict)));
    }
}

/// Words for an event, or a whole answer, that is none of the API or not of this request.
const REFUSED: &str = "refused: the answer failed here";

/// Returns true if the last event that was read has been refused: the answer has failed, and neither by an error that
/// the engine reports nor by its end.
fn refuses(rewriter: &Rewriter) -> bool {
    rewriter.any_failure().is_some_and(|failure| {
        failure.engine.is_none() && !matches!(failure.fault, Fault::Aborted | Fault::Incomplete)
    })
}

/// Returns the data of an event as text; `None` for a comment or an oversized event.
fn data(found: FramerOutput<'_>) -> Option<String> {
    match found {
        FramerOutput::Frame(frame) => Some(String::from_utf8_lossy(frame.data).into_owned()),
        FramerOutput::Comment | FramerOutput::TooLarge => None,
    }
}

/// Returns what `write` produces, after appending it to the writer's output.
fn apart(writer: &mut Writer, write: impl FnOnce(&mut Rewriter, &mut OutputBuffer)) -> bytes::Bytes {
    let written = output(&mut writer.rewriter, write);
    writer.out.open().extend_from_slice(&written);
    written
}

/// Returns what `write` produces.
fn output(rewriter: &mut Rewriter, write: impl FnOnce(&mut Rewriter, &mut OutputBuffer)) -> bytes::Bytes {
    let mut own = OutputBuffer::default();
    write(rewriter, &mut own);
    own.join()
}

/// Returns the data lines of canonical events, each of which is a single line.
fn events(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
}
