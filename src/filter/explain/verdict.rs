//! What an answer was, in the end: which engine wrote it, whether it is complete, what could be better.
//!
//! Takes: pieces of the answer, the rewriter's summary. Gives: [`Recognition`] and [`Verdict`]. Remembers: the best evidence.

use crate::engine::{Engine, Identity, Recognised, Version, recognised_in};
use crate::wire::Unparsed;
use crate::wire::fault::Failure;
use std::fmt;

/// Which engine has given an answer, and by what that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Recognition {
    /// The engine that the bytes were taken to be of.
    pub taken: Identity,
    /// The engine that the bytes give away.
    pub seen: Option<&'static Engine>,
    /// Its version, if it stands in them.
    pub version: Option<Version>,
    /// The text that gives it away, and the frame in which it stands; 0: an answer of one piece.
    pub evidence: Option<(&'static [&'static str], u64)>,
}

impl Recognition {
    pub(super) fn new(taken: Identity) -> Self {
        Self { taken, seen: None, version: None, evidence: None }
    }

    /// Looks for evidence in a piece of the answer, until nothing better can be found.
    pub(super) fn look(&mut self, piece: &str, frame: u64) {
        if self.version.is_some() {
            return;
        }
        let Some(Recognised { engine, version, mark }) = recognised_in(piece.as_bytes()) else { return };
        if self.seen.is_none() || version.is_some() {
            (self.seen, self.version, self.evidence) = (Some(engine), version, Some((mark.texts, frame)));
        }
    }

    /// The engine's name for flags: what was said of it, or else what was seen.
    pub fn name(&self) -> &'static str {
        match self.seen {
            Some(seen) if !self.taken.engine.is_known() => seen.name,
            _ => self.taken.engine.name,
        }
    }

    /// The evidence in words.
    pub fn why(&self) -> Option<String> {
        let (texts, frame) = self.evidence?;
        let texts = texts.join(" and ");
        Some(if frame == 0 {
            format!("its answer has {texts}")
        } else {
            format!("frame {frame} has {texts}")
        })
    }
}

impl fmt::Display for Recognition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = |f: &mut fmt::Formatter<'_>, engine: &Engine| {
            f.write_str(engine.name)?;
            self.version.map_or(Ok(()), |version| write!(f, " {version}"))
        };
        match (self.taken.engine.is_known(), self.seen) {
            (false, None) => f.write_str(
                "not recognised: the answer has no field that only one engine writes; name it with --engine",
            )?,
            (false, Some(engine)) => seen(f, engine)?,
            (true, Some(engine)) if *engine != *self.taken.engine => {
                write!(f, "{}, as --engine says, but the answer looks like one of ", self.taken)?;
                seen(f, engine)?;
            }
            (true, _) => write!(f, "{}, as --engine says", self.taken)?,
        }
        self.why().map_or(Ok(()), |why| write!(f, ": {why}"))
    }
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has its end.
    Complete,
    /// Something is missing, or it cannot be read.
    Broken(Failure),
    /// The engine has answered with an error.
    Error(Failure),
}

impl Outcome {
    /// The name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Broken(_) => "broken",
            Self::Error(_) => "error",
        }
    }

    /// The failure, where there is one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Complete => None,
            Self::Broken(failure) | Self::Error(failure) => Some(failure),
        }
    }
}

/// The summary of an answer.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// How it ended.
    pub outcome: Outcome,
    /// Why its choices ended.
    pub finishes: Vec<&'static str>,
    /// The engine's answer is one object.
    pub is_object: bool,
    /// Frames that the engine sent.
    pub frames: u64,
    /// Frames that were written; `None`: it is one object.
    pub written: Option<u64>,
    /// Rules that changed something, in the request and in the answer.
    pub rules: usize,
    /// Characters that the engine's model said.
    pub said: usize,
    /// Characters of that in the canonical answer; `None`: they were not counted.
    pub told: Option<usize>,
    /// Marks of reasoning or calls were read, and are text no more.
    pub is_parsed: bool,
    /// What the engine has left in the text.
    pub unparsed: Option<Unparsed>,
    /// The flags with which the engine would have parsed it.
    pub flags: Option<String>,
}

impl Verdict {
    /// What became of the text.
    fn text(&self) -> Option<String> {
        let missing = self.said.saturating_sub(self.told?);
        Some(match missing {
            0 => "no text was lost".to_owned(),
            _ if self.is_parsed => format!("{missing} characters were marks of reasoning and calls"),
            _ => format!("{missing} characters of text are not in it"),
        })
    }

    /// What could be better, in words.
    pub fn hint(&self) -> Option<String> {
        self.unparsed?;
        let message = Unparsed::MESSAGE;
        Some(match &self.flags {
            Some(flags) => format!("{message}; {}: {flags}", Unparsed::REMEDY),
            None => message.to_owned(),
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = |f: &mut fmt::Formatter<'_>, how: &str, failure: &Failure| {
            let code = failure.code.as_deref().unwrap_or(&failure.kind);
            let message = failure.message.trim_end_matches('.');
            write!(f, "the answer is {how}: {message}; clients get error {code}")
        };
        match &self.outcome {
            Outcome::Complete => f.write_str("the answer is complete: ")?,
            Outcome::Broken(failure) => {
                failed(f, "broken", failure)?;
                f.write_str("; ")?;
            }
            Outcome::Error(failure) => {
                failed(f, "an error", failure)?;
                return write!(f, " (HTTP {})", failure.status);
            }
        }
        match (self.is_object, self.written) {
            (false, Some(written)) => write!(f, "{} frames in, {written} out", self.frames)?,
            (true, Some(written)) => write!(f, "one object in, {written} frames out")?,
            (false, None) => write!(f, "{} frames in, one object out", self.frames)?,
            (true, None) => f.write_str("one object in, one out")?,
        }
        match self.rules {
            0 => f.write_str(", nothing changed")?,
            1 => f.write_str(", 1 rule changed something")?,
            rules => write!(f, ", {rules} rules changed something")?,
        }
        self.text().map_or(Ok(()), |text| write!(f, ", {text}"))?;
        if !self.finishes.is_empty() {
            write!(f, "; finish_reason {}", self.finishes.join(", "))?;
        }
        Ok(())
    }
}
