//! Verdict on a finished answer: which engine wrote it, whether it is complete, what could be better.
//!
//! Takes: pieces of the answer, the rewriter's summary. Gives: [`Recognition`] and [`Verdict`]. Remembers: the
//! best evidence.

use crate::engine::{Engine, EngineIdentity, EngineVersion, Recognised, recognised_in};
use crate::wire::Unparsed;
use crate::wire::fault::Failure;
use std::fmt;

/// Recognition of the engine behind an answer: the identity assumed, the engine detected, and the evidence for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Recognition {
    /// Identity assumed for the rewrite, from `--engine` or the default.
    pub taken: EngineIdentity,
    /// Engine detected from the answer's bytes.
    pub seen: Option<&'static Engine>,
    /// Version of the detected engine, if the bytes contain it.
    pub version: Option<EngineVersion>,
    /// Texts that identify the engine, and the number of their frame; 0 if the answer is a single object.
    pub evidence: Option<(&'static [&'static str], u64)>,
}

impl Recognition {
    pub(super) fn new(taken: EngineIdentity) -> Self {
        Self {
            taken,
            seen: None,
            version: None,
            evidence: None,
        }
    }

    /// Searches a piece of the answer for evidence, until a version is known.
    pub(super) fn search(&mut self, piece: &str, frame: u64) {
        if self.version.is_some() {
            return;
        }
        let Some(Recognised {
            engine,
            version,
            mark,
        }) = recognised_in(piece.as_bytes())
        else {
            return;
        };
        if self.seen.is_none() || version.is_some() {
            (self.seen, self.version, self.evidence) =
                (Some(engine), version, Some((mark.texts, frame)));
        }
    }

    /// Returns the engine name to look flags up by: the assumed engine if it is known, else the detected one.
    pub fn name(&self) -> &'static str {
        match self.seen {
            Some(seen) if !self.taken.engine.is_known() => seen.name,
            _ => self.taken.engine.name,
        }
    }

    /// Returns the evidence as a phrase for the user, if there is any.
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
            self.version
                .map_or(Ok(()), |version| write!(f, " {version}"))
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

/// Outcome of an answer, as the verdict reports it: it separates errors of the engine from answers that broke off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer is complete.
    Complete,
    /// The answer is truncated or cannot be parsed.
    Broken(Failure),
    /// The engine returned an error.
    Error(Failure),
}

impl Outcome {
    /// Returns the name of the outcome in the JSON output of `explain`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Broken(_) => "broken",
            Self::Error(_) => "error",
        }
    }

    /// Returns the failure of a broken answer or an error; `None` for a complete answer.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Complete => None,
            Self::Broken(failure) | Self::Error(failure) => Some(failure),
        }
    }
}

/// Summary of a rewritten answer, the last finding: outcome, counts, text balance and advice for the operator.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Outcome of the answer: complete, broken or an error of the engine.
    pub outcome: Outcome,
    /// Finish reasons of the choices, as words of the API.
    pub finishes: Vec<&'static str>,
    /// True if the engine's answer is a single object.
    pub is_object: bool,
    /// Number of frames received from the engine.
    pub frames: u64,
    /// Number of frames written; `None` if the output is a single object.
    pub written: Option<u64>,
    /// Number of rules that changed the request or the answer.
    pub rules: usize,
    /// Characters of model output in the engine's answer.
    pub engine_characters: usize,
    /// Characters of model output in the canonical answer; `None` if they were not counted.
    pub canonical_characters: Option<usize>,
    /// True if markers of reasoning or calls were parsed, and so removed from the text.
    pub is_parsed: bool,
    /// True if the answer was stopped because the model repeated itself.
    pub is_stopped: bool,
    /// Markup that the engine has left unparsed in the text.
    pub unparsed: Option<Unparsed>,
    /// Engine flags that would enable its own parser for this markup.
    pub flags: Option<String>,
}

impl Verdict {
    /// Returns a phrase on the text balance: nothing lost, markers removed, or text missing.
    fn text(&self) -> Option<String> {
        let missing = self
            .engine_characters
            .saturating_sub(self.canonical_characters?);
        Some(match missing {
            _ if self.is_stopped => {
                "the model repeated itself, and the rest was left out".to_owned()
            }
            0 => "no text was lost".to_owned(),
            _ if self.is_parsed => {
                format!("{missing} characters were marks of reasoning and calls")
            }
            _ => format!("{missing} characters of text are not in it"),
        })
    }

    /// Returns advice for the operator if markup was left unparsed, with the engine flags that avoid it.
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
            write!(
                f,
                "the answer is {how}: {message}; clients get error {code}"
            )
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
