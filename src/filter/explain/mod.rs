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
pub use frames::{FrameRow, Side, TimedFrame, explained_rows, relayed_rows};
pub use verdict::{Outcome, Recognition, Verdict};
pub use words::rule_words;

use super::{Input, Writer};
use crate::engine::EngineIdentity;
use crate::plan::AdaptedBody;
use crate::wire::Summary;
use crate::wire::fault::{Failure, Fault};
use crate::wire::rule::Rule;
use crate::wire::sse::{Framer, FramerOutput};
use bytes::Bytes;
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

/// Step of the rewriter: what it made of one input.
struct Step {
    written: Bytes,
    /// Rules that it used, with their counts.
    used: Vec<(Rule, u32)>,
    /// Number of engine events that it read, and of all events until then.
    read: u64,
    events: u64,
    /// True if it refused the event that it read: the answer has failed, and neither by an error that the engine reports
    /// nor by its end.
    refuses: bool,
}

impl Step {
    fn of(writer: &mut Writer, input: Input<'_>) -> Self {
        let before = writer.rewriter.reader.summary();
        let earlier = std::mem::take(&mut writer.out);
        writer.rewrite(input);
        let written = std::mem::replace(&mut writer.out, earlier).join();
        let summary = writer.rewriter.reader.summary();
        let refuses = writer.rewriter.reader.failure().is_some_and(|failure| {
            failure.engine.is_none() && !matches!(failure.fault, Fault::Aborted | Fault::Incomplete)
        });
        let used = summary.tally.since(&before.tally).collect();
        Self {
            written,
            used,
            read: summary.events - before.events,
            events: summary.events,
            refuses,
        }
    }
}

/// Judge of one answer: compares each frame with what the rewriter made of it, and names the rule of each difference.
#[derive(Default)]
struct Judge {
    comparer: Comparer,
    claims: RuleMatcher,
}

impl Judge {
    /// Returns the changes of a frame. `written`: the data of the canonical frames; `None` if they cannot be compared.
    /// `is_whole`: they are written at once, so that nothing is held back.
    fn changes(
        &mut self,
        frame: &str,
        written: Option<&[&str]>,
        is_whole: bool,
        used: &[(Rule, u32)],
        refuses: bool,
        place: Place,
    ) -> Vec<Change> {
        let effects = match written {
            Some(_) if refuses && !frame.is_empty() => vec![Effect::words(REFUSED)],
            Some(written) => self.comparer.compare(frame, written, is_whole),
            None => Vec::new(),
        };
        let used = used.iter().map(|(rule, times)| Used {
            rule: *rule,
            times: *times,
            place,
        });
        self.claims
            .changes(effects, used, place, self.comparer.is_waiting())
    }
}

/// Collector of findings: observes the rewriter's input and output, and passes each finding to the callback.
pub(super) struct Explainer<'t> {
    report: &'t mut dyn FnMut(Finding),
    framer: Framer,
    judge: Judge,
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
    pub(super) fn new(
        tell: &'t mut dyn FnMut(Finding),
        engine: EngineIdentity,
        max_event_bytes: usize,
    ) -> Self {
        Self {
            report: tell,
            framer: Framer::new(max_event_bytes),
            judge: Judge::default(),
            gathered: RunMerger::default(),
            engine: Recognition::new(engine),
            adapted: 0,
            is_object: false,
            written: 0,
        }
    }

    /// Reports the changes made to the request. Fields are compared only if the request keeps its API.
    pub(super) fn request(&mut self, text: &str, adapted: &AdaptedBody, is_same_api: bool) {
        self.adapted = adapted.rules.len();
        let words = adapted
            .rules
            .iter()
            .map(|rule| (Some(rule.name), Effect::words(rule.what)));
        let body = adapted.body.joined();
        let body = std::str::from_utf8(&body).unwrap_or_default();
        let fields = match is_same_api {
            true => Comparer::default().compare(text, &[body], true),
            false => Vec::new(),
        };
        let words = words.map(|(rule, effect)| Change {
            place: Place::Request,
            rule,
            effect,
            times: 1,
        });
        let fields =
            RuleMatcher::default().changes(fields, std::iter::empty(), Place::Request, false);
        words
            .chain(fields)
            .for_each(|change| (self.report)(Finding::Change(change)));
    }

    /// Gives the rewriter its next input, and reports the changes.
    pub(super) fn take(&mut self, writer: &mut Writer, input: Input<'_>) {
        let mut frames = Vec::new();
        match input {
            // Line by line, since each event is complete at the end of a line.
            Input::Bytes(bytes) => {
                for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                    self.framer.push(line, |found| frames.extend(data(found)));
                    if writer.ended() {
                        frames.clear();
                    }
                    self.observe(writer, Input::Bytes(line), &frames);
                    frames.clear();
                }
            }
            Input::End(_) => {
                self.framer
                    .finish(|_| true, |found| frames.extend(data(found)));
                self.observe(writer, input, &frames);
            }
            Input::Whole(body) => {
                let step = Self::step(writer, input);
                let (body, text) = (
                    String::from_utf8_lossy(body),
                    String::from_utf8_lossy(&step.written),
                );
                let events = if writer.stream {
                    events(&text)
                } else {
                    vec![&*text]
                };
                self.written += if writer.stream {
                    events.len() as u64
                } else {
                    0
                };
                self.engine.search(&body, 0);
                self.is_object = true;
                self.found(&body, Some(&events), &step, Place::Object);
            }
            Input::Failure(_) => self.observe(writer, input, &[]),
        }
    }

    /// Returns the next step, whose bytes go to the output.
    fn step(writer: &mut Writer, input: Input<'_>) -> Step {
        let step = Step::of(writer, input);
        writer.out.open().extend_from_slice(&step.written);
        step
    }

    /// Reports the changes of a step. In a stream, output events correspond to input frames.
    fn observe(&mut self, writer: &mut Writer, input: Input<'_>, frames: &[String]) {
        let is_end = matches!(input, Input::End(_));
        let step = Self::step(writer, input);
        // A truncated event is not read.
        let frames = if is_end && step.read == 0 {
            &[]
        } else {
            frames
        };
        if frames.is_empty() && step.written.is_empty() && step.used.is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(&step.written);
        let events = writer.stream.then(|| events(&text));
        self.written += events.as_ref().map_or(0, |events| events.len() as u64);
        let frame = frames.first().map_or("", String::as_str);
        self.engine.search(frame, step.events);
        let place = Place::Frames {
            first: step.events,
            last: step.events,
        };
        self.found(frame, events.as_deref(), &step, place);
        self.gathered
            .ended(step.events)
            .into_iter()
            .for_each(|change| (self.report)(Finding::Change(change)));
    }

    fn found(&mut self, frame: &str, written: Option<&[&str]>, step: &Step, place: Place) {
        let is_whole = place == Place::Object;
        let refuses = step.refuses && !is_whole;
        let changes = self
            .judge
            .changes(frame, written, is_whole, &step.used, refuses, place);
        changes
            .into_iter()
            .for_each(|change| self.gathered.add(change));
    }

    /// Ends the explanation: reports pending changes, engine and verdict. `summary` is `None` if nothing was
    /// rewritten; `stream`: the output is an event stream; `failure` holds true for an error response of the
    /// engine.
    pub(super) fn end(
        mut self,
        summary: Option<Summary>,
        stream: bool,
        failure: Option<(bool, Failure)>,
    ) {
        self.judge
            .claims
            .rest()
            .for_each(|change| self.gathered.add(change));
        self.gathered
            .rest()
            .into_iter()
            .for_each(|change| (self.report)(Finding::Change(change)));
        let outcome = match failure {
            None => Outcome::Complete,
            Some((true, failure)) => Outcome::Error(failure),
            Some((false, failure)) => Outcome::Broken(failure),
        };
        let has_answer = summary.is_some();
        let summary = summary.unwrap_or_default();
        let used = |rule| summary.tally.times(rule) > 0;
        let flags = summary
            .unparsed
            .and_then(|unparsed| unparsed.flags(self.engine.name()));
        let verdict = Verdict {
            outcome,
            finishes: summary
                .finishes
                .iter()
                .map(|reason| reason.as_str())
                .collect(),
            is_object: self.is_object,
            frames: summary.events,
            written: stream.then_some(self.written),
            rules: self.adapted + summary.tally.iter().count(),
            engine_characters: self.judge.comparer.engine_characters,
            canonical_characters: (stream || self.is_object)
                .then_some(self.judge.comparer.canonical_characters),
            is_stopped: used(Rule::Repetition),
            is_parsed: [
                Rule::Think,
                Rule::ThinkByName,
                Rule::ToolText,
                Rule::Harmony,
                Rule::ToolArgumentsTail,
            ]
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

/// Returns the data of an event as text; `None` for a comment or an oversized event.
fn data(found: FramerOutput<'_>) -> Option<String> {
    match found {
        FramerOutput::Frame(frame) => Some(String::from_utf8_lossy(frame.data).into_owned()),
        FramerOutput::Comment | FramerOutput::TooLarge => None,
    }
}

/// Returns the data lines of canonical events, each of which is a single line.
fn events(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect()
}
