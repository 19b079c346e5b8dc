//! What is behind an upstream, and by what that is known (engine-quirks G).
//!
//! Takes: what the configuration says, what probes are told, what answers give away. Gives: [`Found`]. Remembers: that.
//! Never: asks; that is `look`'s.

use crate::engine::{Engine, Front, Identity, Parsers, Version};
use std::fmt;

/// By what an engine is known. What comes later is better evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// It is not.
    #[default]
    Nothing,
    /// Answers to requests gave it away.
    Answer,
    /// What it says on this route.
    Place(&'static str),
    /// The configuration says so.
    Configuration,
}

impl Evidence {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Answer => "answers",
            Self::Place(path) => path,
            Self::Configuration => "configuration",
        }
    }
}

/// What is behind an upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectedEngine {
    /// What it is.
    pub identity: Identity,
    /// By what the engine is known.
    pub by: Evidence,
    /// By what its version is.
    pub version_by: Evidence,
    /// The parsers that it runs, where it has said so.
    pub parsers: Option<Parsers>,
}

impl DetectedEngine {
    /// What the configuration says alone.
    pub(super) fn configured(engine: &'static Engine) -> Self {
        let by = if engine.is_known() { Evidence::Configuration } else { Evidence::Nothing };
        Self { identity: engine.into(), by, version_by: Evidence::Nothing, parsers: None }
    }

    /// The same behind a configuration that may say otherwise.
    pub(super) fn under(&self, engine: &'static Engine) -> Self {
        match engine.is_known() {
            true if engine != self.identity.engine => Self::configured(engine),
            true => Self { by: Evidence::Configuration, ..self.clone() },
            false if self.by == Evidence::Configuration => {
                Self { by: Evidence::Nothing, ..Self::configured(engine) }
            }
            false => self.clone(),
        }
    }

    /// It turns out to be this engine. What was known of another one is forgotten.
    pub(super) fn turn_out(&mut self, engine: &'static Engine, by: Evidence) {
        if self.by == Evidence::Configuration {
            return;
        }
        if self.identity.engine != engine {
            *self = Self { identity: engine.into(), by, version_by: Evidence::Nothing, parsers: None };
        }
        self.by = by;
    }

    /// It says that it is of this version; `None`: of no release.
    pub(super) fn set_version(&mut self, version: Option<Version>, by: Evidence) {
        (self.identity.version, self.version_by) = (version, by);
    }

    /// This is in front of it.
    pub(super) fn set_front(&mut self, front: Front) {
        self.identity.front = front;
    }

    /// An answer gives away the engine, and perhaps its version. It counts where nothing better is known.
    pub(super) fn overhear(&mut self, engine: &'static Engine, version: Option<Version>) {
        if self.by <= Evidence::Answer {
            self.turn_out(engine, Evidence::Answer);
        }
        if self.identity.engine == engine && version.is_some() && self.version_by <= Evidence::Answer {
            self.set_version(version, Evidence::Answer);
        }
    }

    /// What was found, and what answers have told by `now` where that is nothing better.
    pub(super) fn beside(mut self, now: &Self) -> Self {
        let heard = now.identity;
        if now.by == Evidence::Answer && self.by <= Evidence::Answer {
            self.turn_out(heard.engine, Evidence::Answer);
        }
        let is_same = self.identity.engine == heard.engine;
        if is_same && now.version_by == Evidence::Answer && self.version_by <= Evidence::Answer {
            self.set_version(heard.version, Evidence::Answer);
        }
        self
    }

    /// Something is not known that answers may tell.
    pub(super) fn lacks(&self) -> bool {
        self.by == Evidence::Nothing
            || self.identity.version.is_none()
                && self.version_by == Evidence::Nothing
                && self.identity.engine.detection.tells_version_in_answers()
    }

    /// Nothing but answers has told of it, so that others may tell otherwise.
    pub(super) fn is_overheard(&self) -> bool {
        self.by == Evidence::Answer || self.version_by == Evidence::Answer
    }

    /// Whether another look has told anything that an operator would want to know of.
    pub(super) fn says_other_than(&self, before: &Self) -> bool {
        self.identity != before.identity || self.parsers != before.parsers
    }
}

impl fmt::Display for DetectedEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { engine, front, version } = self.identity;
        write!(f, "engine={} found_by={}", engine.name, self.by.name())?;
        match (version, self.version_by) {
            (None, Evidence::Nothing) => write!(f, " version=unknown")?,
            (None, by) => write!(f, " version=unreleased version_by={}", by.name())?,
            (Some(version), by) => write!(f, " version={version} version_by={}", by.name())?,
        }
        write!(f, " front_end={}", front.name())?;
        let Some(parsers) = &self.parsers else { return Ok(()) };
        let none = "none";
        write!(f, " reasoning_parser={}", parsers.reasoning.as_deref().unwrap_or(none))?;
        write!(f, " tool_call_parser={}", parsers.tools.as_deref().unwrap_or(none))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::named;

    fn engine(name: &str) -> &'static Engine {
        named(name).unwrap()
    }

    /// A look takes its time; an answer that comes meanwhile is not forgotten at its end.
    #[test]
    fn what_is_overheard_while_probes_look_stays() {
        let nothing = || DetectedEngine::configured(engine("auto"));
        let mut heard = nothing();
        heard.overhear(engine("sglang"), None);
        let looked = nothing().beside(&heard);
        assert_eq!((looked.identity.engine.name, looked.by), ("sglang", Evidence::Answer));
        let version = Some(Version::new(0, 21, 0));
        heard.overhear(engine("vllm"), version);
        let mut looked = nothing();
        looked.turn_out(engine("vllm"), Evidence::Place("/metrics"));
        let looked = looked.beside(&heard);
        assert_eq!((looked.by, looked.version_by), (Evidence::Place("/metrics"), Evidence::Answer));
        assert_eq!(looked.identity.version, version);
        let mut looked = nothing();
        looked.turn_out(engine("sglang"), Evidence::Place("/server_info"));
        assert_eq!(looked.clone().beside(&heard), looked, "what the engine itself says is better");
    }
}
