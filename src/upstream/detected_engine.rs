//! Identity of the engine behind an upstream, and the evidence for it (engines G).
//!
//! Takes: the configured engine, replies to probes, and hints in answers. Gives: a [`DetectedEngine`].
//! Remembers: that engine, with the evidence. Never: sends a request; that is the task of the module `identify`.

use crate::engine::{DetectedParsers, Engine, EngineIdentity, EngineVersion, Front};
use std::fmt;

/// Evidence by which the engine was identified, ordered from weak to strong; the order among routes has no meaning.
/// Better evidence replaces weaker evidence, never the reverse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// No evidence: the engine is not known.
    #[default]
    Nothing,
    /// Answers to ordinary requests contain its marks.
    Answer,
    /// Reply to a probe on this route.
    Route(&'static str),
    /// Name of the engine in the configuration.
    Configuration,
}

impl Evidence {
    /// Returns the evidence as a word for logs: a route's path, or what the evidence consists of.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Answer => "answers",
            Self::Route(path) => path,
            Self::Configuration => "configuration",
        }
    }
}

/// Engine behind an upstream, as far as it is known, with the evidence. The adaptation of requests and answers
/// depends on it.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectedEngine {
    /// Engine, version and front end.
    pub identity: EngineIdentity,
    /// Evidence for the engine.
    pub evidence: Evidence,
    /// Evidence for the version.
    pub version_evidence: Evidence,
    /// Names of the parsers that the engine runs, if it reports them.
    pub parsers: Option<DetectedParsers>,
    /// True if the engine says that it takes HTTP/2 (`http = "2"` of the upstream).
    pub http2: bool,
}

impl DetectedEngine {
    /// Returns the identity that follows from the configuration alone.
    pub(super) fn configured(engine: &'static Engine) -> Self {
        let by = if engine.is_known() {
            Evidence::Configuration
        } else {
            Evidence::Nothing
        };
        Self {
            identity: engine.into(),
            evidence: by,
            version_evidence: Evidence::Nothing,
            parsers: None,
            http2: false,
        }
    }

    /// Returns this identity under a changed configuration: a configured engine wins, and a finding that rested on
    /// the former configuration is dropped.
    pub(super) fn reconfigured(&self, engine: &'static Engine) -> Self {
        let changes = if engine.is_known() {
            engine != self.identity.engine
        } else {
            self.evidence == Evidence::Configuration
        };
        if changes {
            Self::configured(engine)
        } else if engine.is_known() {
            Self {
                evidence: Evidence::Configuration,
                ..self.clone()
            }
        } else {
            self.clone()
        }
    }

    /// Sets the engine and the evidence for it, unless the configuration names the engine. Does not compare the
    /// evidence otherwise: the caller does. A change of the engine discards the version, the front end and the parsers.
    pub(super) fn set_engine(&mut self, engine: &'static Engine, by: Evidence) {
        if self.evidence == Evidence::Configuration {
            return;
        }
        if self.identity.engine != engine {
            *self = Self::configured(engine);
        }
        self.evidence = by;
    }

    /// Sets the version and the evidence for it. `None`: the engine reports a version that is not a release.
    pub(super) fn set_version(&mut self, version: Option<EngineVersion>, by: Evidence) {
        (self.identity.version, self.version_evidence) = (version, by);
    }

    /// Sets the front end that serves the engine's API.
    pub(super) fn set_front(&mut self, front: Front) {
        self.identity.front = front;
    }

    /// Takes a hint at the engine, and perhaps at its version, from an answer. The hint counts only if no better
    /// evidence exists.
    pub(super) fn take_hint(&mut self, engine: &'static Engine, version: Option<EngineVersion>) {
        if self.evidence <= Evidence::Answer {
            self.set_engine(engine, Evidence::Answer);
        }
        if self.identity.engine == engine
            && version.is_some()
            && self.version_evidence <= Evidence::Answer
        {
            self.set_version(version, Evidence::Answer);
        }
    }

    /// Returns true if [`Self::take_hint`] would change anything.
    pub(super) fn learns_from(
        &self,
        engine: &'static Engine,
        version: Option<EngineVersion>,
    ) -> bool {
        let mut with_hint = self.clone();
        with_hint.take_hint(engine, version);
        with_hint != *self
    }

    /// Adds to this result of probes what `current` has learned from answers meanwhile, where the probes found no
    /// better evidence.
    pub(super) fn merged_with_hints(mut self, current: &Self) -> Self {
        let heard = current.identity;
        if current.evidence == Evidence::Answer && self.evidence <= Evidence::Answer {
            self.set_engine(heard.engine, Evidence::Answer);
        }
        let is_same = self.identity.engine == heard.engine;
        if is_same
            && current.version_evidence == Evidence::Answer
            && self.version_evidence <= Evidence::Answer
        {
            self.set_version(heard.version, Evidence::Answer);
        }
        self
    }

    /// Returns true if answers could still show something that is unknown: the engine, or its version.
    pub(super) fn is_incomplete(&self) -> bool {
        self.evidence == Evidence::Nothing
            || self.identity.version.is_none()
                && self.version_evidence == Evidence::Nothing
                && self.identity.engine.detection.tells_version_in_answers()
    }

    /// Returns true if the engine or its version rests on answers alone, so that other answers may correct it.
    pub(super) fn rests_on_answers(&self) -> bool {
        self.evidence == Evidence::Answer || self.version_evidence == Evidence::Answer
    }

    /// Returns true if the identity, the parsers or the protocol differ from `before`: a change that operators should see in the
    /// log.
    pub(super) fn differs_from(&self, before: &Self) -> bool {
        self.identity != before.identity
            || self.parsers != before.parsers
            || self.http2 != before.http2
    }
}

impl fmt::Display for DetectedEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EngineIdentity {
            engine,
            front,
            version,
        } = self.identity;
        write!(
            f,
            "engine={} found_by={}",
            engine.name,
            self.evidence.name()
        )?;
        match (version, self.version_evidence) {
            (None, Evidence::Nothing) => write!(f, " version=unknown")?,
            (None, by) => write!(f, " version=unreleased version_by={}", by.name())?,
            (Some(version), by) => write!(f, " version={version} version_by={}", by.name())?,
        }
        write!(f, " front_end={}", front.name())?;
        if self.http2 {
            f.write_str(" http2=offered")?;
        }
        let Some(parsers) = &self.parsers else {
            return Ok(());
        };
        let none = "none";
        write!(
            f,
            " reasoning_parser={}",
            parsers.reasoning.as_deref().unwrap_or(none)
        )?;
        write!(
            f,
            " tool_call_parser={}",
            parsers.tools.as_deref().unwrap_or(none)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::named;

    fn engine(name: &str) -> &'static Engine {
        named(name).unwrap()
    }

    /// Identification takes time; what an answer shows in the meantime must survive it.
    #[test]
    fn what_is_overheard_while_probes_look_stays() {
        let nothing = || DetectedEngine::configured(engine("auto"));
        let mut heard = nothing();
        heard.take_hint(engine("sglang"), None);
        let looked = nothing().merged_with_hints(&heard);
        assert_eq!(
            (looked.identity.engine.name, looked.evidence),
            ("sglang", Evidence::Answer)
        );
        let version = Some(EngineVersion::new(0, 21, 0));
        heard.take_hint(engine("vllm"), version);
        let mut looked = nothing();
        looked.set_engine(engine("vllm"), Evidence::Route("/metrics"));
        let looked = looked.merged_with_hints(&heard);
        assert_eq!(
            (looked.evidence, looked.version_evidence),
            (Evidence::Route("/metrics"), Evidence::Answer)
        );
        assert_eq!(looked.identity.version, version);
        let mut looked = nothing();
        looked.set_engine(engine("sglang"), Evidence::Route("/server_info"));
        assert_eq!(
            looked.clone().merged_with_hints(&heard),
            looked,
            "what the engine itself says is better"
        );
    }

    /// The last answer replaces what an earlier one has shown before the probes began to look.
    #[test]
    fn the_last_answer_counts_while_probes_look() {
        let mut heard = DetectedEngine::configured(engine("auto"));
        for (name, version) in [("sglang", (0, 5)), ("vllm", (21, 0)), ("vllm", (22, 0))] {
            let looked = heard.clone();
            heard.take_hint(
                engine(name),
                Some(EngineVersion::new(0, version.0, version.1)),
            );
            assert_eq!(
                looked.merged_with_hints(&heard).identity,
                heard.identity,
                "{name} {version:?}"
            );
        }
    }

    /// A hint changes the version only of the engine that it is about, and only by a version.
    #[test]
    fn a_hint_is_about_one_engine() {
        let version = Some(EngineVersion::new(0, 21, 0));
        let mut known = DetectedEngine::configured(engine("vllm"));
        known.take_hint(engine("sglang"), Some(EngineVersion::new(0, 5, 0)));
        assert_eq!(
            (known.identity.engine.name, known.identity.version),
            ("vllm", None),
            "of another engine"
        );
        known.take_hint(engine("vllm"), version);
        known.take_hint(engine("vllm"), None);
        assert_eq!(
            (known.identity.version, known.version_evidence),
            (version, Evidence::Answer)
        );
        known.take_hint(engine("vllm"), Some(EngineVersion::new(0, 22, 0)));
        assert_eq!(
            known.identity.version,
            Some(EngineVersion::new(0, 22, 0)),
            "the last answer counts"
        );
        known.set_version(version, Evidence::Route("/version"));
        known.take_hint(engine("vllm"), Some(EngineVersion::new(0, 5, 0)));
        assert_eq!(
            (known.identity.version, known.version_evidence),
            (version, Evidence::Route("/version"))
        );
    }

    /// Knowledge of an engine stays under another configuration, unless that names another engine, or no longer
    /// names the one that is known only from it.
    #[test]
    fn a_changed_configuration_keeps_what_it_does_not_contradict() {
        let version = Some(EngineVersion::new(0, 21, 0));
        let known = |by: Evidence| {
            let mut known = DetectedEngine::configured(engine("auto"));
            known.set_engine(engine("vllm"), by);
            known.set_version(version, Evidence::Route("/version"));
            known
        };
        let probed = Evidence::Route("/metrics");
        for (before, configured, name, evidence, is_kept) in [
            (probed, "auto", "vllm", probed, true),
            (probed, "vllm", "vllm", Evidence::Configuration, true),
            (probed, "sglang", "sglang", Evidence::Configuration, false),
            (
                Evidence::Configuration,
                "vllm",
                "vllm",
                Evidence::Configuration,
                true,
            ),
            (
                Evidence::Configuration,
                "auto",
                "auto",
                Evidence::Nothing,
                false,
            ),
        ] {
            let after = known(before).reconfigured(engine(configured));
            assert_eq!(
                (after.identity.engine.name, after.evidence),
                (name, evidence),
                "{before:?} {configured}"
            );
            assert_eq!(
                after.identity.version.is_some(),
                is_kept,
                "{before:?} {configured}"
            );
        }
    }

    #[test]
    fn another_engine_has_another_version_but_a_configured_one_stays() {
        let mut known = DetectedEngine::configured(engine("auto"));
        known.set_engine(engine("vllm"), Evidence::Answer);
        known.set_version(Some(EngineVersion::new(0, 21, 0)), Evidence::Answer);
        known.set_front(Front::Rust);
        assert_eq!(known.identity.front, Front::Rust);
        known.parsers = Some(DetectedParsers::default());
        let before = known.clone();
        known.set_engine(engine("vllm"), Evidence::Route("/version"));
        assert_eq!(
            (known.identity, &known.parsers),
            (before.identity, &before.parsers)
        );
        assert_eq!(
            (known.evidence, known.differs_from(&before)),
            (Evidence::Route("/version"), false)
        );
        known.set_engine(engine("sglang"), Evidence::Answer);
        assert_eq!(
            (known.identity, known.parsers.is_none()),
            (engine("sglang").into(), true)
        );
        assert!(known.differs_from(&before));
        let parsers = DetectedEngine {
            parsers: None,
            ..before
        };
        assert!(parsers.differs_from(&before), "the parsers are others");
        let http2 = DetectedEngine {
            http2: true,
            ..before.clone()
        };
        assert!(
            http2.differs_from(&before) && http2.to_string().contains(" http2=offered"),
            "{http2}"
        );
        let mut configured = DetectedEngine::configured(engine("vllm"));
        configured.set_engine(engine("sglang"), Evidence::Route("/server_info"));
        assert_eq!(
            (configured.identity.engine.name, configured.evidence),
            ("vllm", Evidence::Configuration)
        );
    }

    #[test]
    fn hints_are_wanted_for_what_is_unknown_or_rests_on_hints() {
        let (route, answer) = (Evidence::Route("/version"), Evidence::Answer);
        let version = Some(EngineVersion::new(0, 21, 0));
        for (name, by, version, version_by, is_incomplete, rests_on_answers) in [
            (
                "auto",
                Evidence::Nothing,
                None,
                Evidence::Nothing,
                true,
                false,
            ),
            ("vllm", route, version, route, false, false),
            ("vllm", route, None, Evidence::Nothing, true, false),
            // The engine has told that its version is no release.
            ("vllm", route, None, route, false, false),
            ("vllm", route, version, answer, false, true),
            ("vllm", answer, version, route, false, true),
            // Its answers tell no version.
            ("sglang", route, None, Evidence::Nothing, false, false),
        ] {
            let identity = EngineIdentity {
                version,
                ..engine(name).into()
            };
            let known = DetectedEngine {
                identity,
                evidence: by,
                version_evidence: version_by,
                parsers: None,
                http2: false,
            };
            let found = (known.is_incomplete(), known.rests_on_answers());
            assert_eq!(found, (is_incomplete, rests_on_answers), "{known}");
        }
    }
}
