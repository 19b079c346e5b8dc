//! Facts learned about an upstream's models: the fallbacks that requests need, whether the engine separates reasoning
//! from the text, and what the chat template does.
//!
//! Takes: a model's name with the fallbacks with which the engine has answered for it, that an answer of it has
//! separated reasoning, and what its rendered prompts and its answers show. Gives: those facts, for later requests. Remembers: them, for
//! at most 256 models, until the engine may have been replaced. Never: sends a request.

use crate::engine::fallback::Fallbacks;
use crate::wire::TemplateFacts;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Upper limit for the models of one upstream for which facts are kept.
const MODELS: usize = 256;
/// Upper limit for the models of one upstream whose prompts are requested, and for those whose answers show facts. Clients may
/// invent names.
const TEMPLATES: usize = 64;
/// Upper limit for the bytes of a model's name.
const NAME: usize = 256;
/// Time after which prompts that could not be rendered are requested again.
const RETRY: Duration = Duration::from_secs(60);

/// Facts learned about the models of one upstream.
#[derive(Debug, Default)]
pub(super) struct LearnedFacts {
    models: RwLock<HashMap<Box<str>, ModelFacts>>,
}

/// Facts learned about one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ModelFacts {
    /// Fallbacks that the engine needs, so that later requests avoid a form that it has refused before.
    pub(super) fallbacks: Fallbacks,
    /// True once an answer has separated reasoning from the text.
    pub(super) separates_reasoning: bool,
    /// Facts about the chat template that rendered prompts have shown.
    pub(super) template: TemplateFacts,
    /// Facts about the chat template that answers have shown.
    shown: TemplateFacts,
    /// Whether the prompts that show them have been requested.
    pub(super) prompts: Prompts,
}

impl ModelFacts {
    /// Returns what is known of the chat template. Prompts are the better evidence.
    pub(super) fn template(&self) -> TemplateFacts {
        self.template.or(self.shown)
    }
}

/// State of the requests for a model's prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Prompts {
    /// Prompts that nobody has requested.
    #[default]
    NotRequested,
    /// Prompts that are requested, or about to be.
    Requested,
    /// Prompts for which the engine wants a key, and there was none.
    Unauthorized,
    /// Prompts of which not all were rendered, with the time of the attempt.
    Failed(Instant),
    /// Prompts that have shown the facts.
    Rendered,
}

impl Prompts {
    /// Returns true if the prompts are to be requested. `has_key`: now there is a key.
    fn are_due(self, has_key: bool) -> bool {
        match self {
            Self::NotRequested => true,
            Self::Requested | Self::Rendered => false,
            Self::Unauthorized => has_key,
            Self::Failed(at) => at.elapsed() >= RETRY,
        }
    }
}

impl LearnedFacts {
    /// Returns what is known of a model.
    pub(super) fn of(&self, model: &str) -> ModelFacts {
        self.models.read().get(model).copied().unwrap_or_default()
    }

    /// Adds fallbacks with which the engine has answered for this model. Returns true if any of them is new and was
    /// kept.
    pub(super) fn add(&self, model: &str, fallbacks: Fallbacks) -> bool {
        self.change(model, |facts| {
            facts.fallbacks = facts.fallbacks.union(fallbacks);
        })
    }

    /// Records that an answer of this model has separated reasoning from the text.
    pub(super) fn note_separate_reasoning(&self, model: &str) {
        if !self.of(model).separates_reasoning {
            self.change(model, |facts| facts.separates_reasoning = true);
        }
    }

    /// Records what an answer of this model has shown of its chat template.
    pub(super) fn note_template(&self, model: &str, shown: TemplateFacts) {
        let known = self.of(model).shown;
        let is_shown = |facts: &&ModelFacts| !facts.shown.is_empty();
        let is_full = || self.models.read().values().filter(is_shown).count() >= TEMPLATES;
        if shown.or(known) != known && (!known.is_empty() || !is_full()) {
            self.change(model, |facts| facts.shown = shown.or(facts.shown));
        }
    }

    /// Returns true if the prompts of a model are to be requested, which counts as done from now on. `has_key`: the
    /// engine will get a key.
    pub(super) fn begin_prompts(&self, model: &str, has_key: bool) -> bool {
        let known = self.of(model).prompts;
        if !known.are_due(has_key) {
            return false;
        }
        let is_requested = |facts: &&ModelFacts| facts.prompts != Prompts::NotRequested;
        let is_full = || self.models.read().values().filter(is_requested).count() >= TEMPLATES;
        (known != Prompts::NotRequested || !is_full())
            && self.change(model, |facts| facts.prompts = Prompts::Requested)
    }

    /// Records what became of the request for a model's prompts, and what they have shown, if anything.
    pub(super) fn end_prompts(&self, model: &str, prompts: Prompts, template: TemplateFacts) {
        self.change(model, |facts| {
            facts.prompts = prompts;
            if !template.is_empty() {
                facts.template = template;
            }
        });
    }

    /// Returns the models of whose template something is known, sorted by name.
    pub(super) fn templates(&self) -> Vec<(Box<str>, ModelFacts)> {
        let models = self.models.read();
        let known = models
            .iter()
            .filter(|(_, facts)| !facts.template().is_empty());
        let mut all: Vec<_> = known.map(|(name, facts)| (name.clone(), *facts)).collect();
        all.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        all
    }

    /// Changes the facts of a model. Returns true if they are others now and were kept.
    fn change(&self, model: &str, change: impl FnOnce(&mut ModelFacts)) -> bool {
        let mut models = self.models.write();
        if !models.contains_key(model) && (models.len() >= MODELS || model.len() > NAME) {
            return false;
        }
        let facts = models.entry(model.into()).or_default();
        let before = *facts;
        change(facts);
        before != *facts
    }

    /// Forgets everything, since the engine has been replaced.
    pub(super) fn clear(&self) {
        self.models.write().clear();
    }

    /// Forgets what answers have taught, since the engine may have been replaced. What is known of a template counts until
    /// its prompts are rendered again.
    pub(super) fn doubt(&self) {
        self.models.write().retain(|_, facts| {
            *facts = ModelFacts {
                template: facts.template,
                ..ModelFacts::default()
            };
            !facts.template.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fallback::Fallback;

    #[test]
    fn what_is_learned_is_bounded_and_of_one_model() {
        let (facts, merged) = (
            LearnedFacts::default(),
            Fallbacks::default().with(Fallback::SystemMerged),
        );
        assert!(
            facts.add("m", merged) && !facts.add("m", merged),
            "it is new once"
        );
        assert_eq!(
            (facts.of("m").fallbacks, facts.of("n").fallbacks),
            (merged, Fallbacks::default())
        );
        assert!(!facts.add(&"n".repeat(NAME + 1), merged));
        for number in 0..2 * MODELS {
            facts.add(&number.to_string(), merged);
        }
        assert_eq!(facts.models.read().len(), MODELS);
        facts.clear();
        assert_eq!(facts.of("m"), ModelFacts::default());
    }

    #[test]
    fn reasoning_that_was_separated_is_remembered_until_the_engine_may_be_another() {
        let facts = LearnedFacts::default();
        assert!(!facts.of("m").separates_reasoning);
        facts.note_separate_reasoning("m");
        assert!(facts.of("m").separates_reasoning && !facts.of("n").separates_reasoning);
        facts.clear();
        assert!(!facts.of("m").separates_reasoning);
    }

    /// Returns what is known of templates.
    fn shown(facts: &LearnedFacts) -> Vec<(Box<str>, TemplateFacts)> {
        let all = facts.templates().into_iter();
        all.map(|(model, facts)| (model, facts.template()))
            .collect()
    }

    #[test]
    fn answers_show_what_prompts_do_not() {
        let told = |json: &str| serde_json::from_str::<TemplateFacts>(json).unwrap();
        let facts = LearnedFacts::default();
        for (answer, expected) in [
            (r#"{"thinking_unset":""}"#, r#"{"thinking_unset":""}"#),
            (
                r#"{"thinking_on":"<think>"}"#,
                r#"{"thinking_unset":"","thinking_on":"<think>"}"#,
            ),
            (
                r#"{"thinking_unset":"<think>"}"#,
                r#"{"thinking_unset":"<think>","thinking_on":"<think>"}"#,
            ),
        ] {
            facts.note_template("m", told(answer));
            assert_eq!(shown(&facts), [("m".into(), told(expected))], "{answer}");
        }
        let prompt = TemplateFacts::UNKNOWN.with_prompt(None, "assistant:");
        facts.end_prompts("m", Prompts::Rendered, prompt);
        let both = r#"{"thinking_unset":"","thinking_on":"<think>"}"#;
        assert_eq!(shown(&facts), [("m".into(), told(both))]);
        facts.doubt();
        assert_eq!(
            shown(&facts),
            [("m".into(), prompt)],
            "the engine may be another one"
        );
        for number in 0..2 * TEMPLATES {
            facts.note_template(&number.to_string(), told(both));
        }
        assert_eq!(shown(&facts).len(), TEMPLATES + 1);
    }

    #[test]
    fn prompts_are_requested_once_and_again_after_a_failure() {
        let facts = LearnedFacts::default();
        assert!(facts.begin_prompts("m", false) && !facts.begin_prompts("m", true));
        let end = |prompts| facts.end_prompts("m", prompts, TemplateFacts::UNKNOWN);
        end(Prompts::Unauthorized);
        assert!(!facts.begin_prompts("m", false) && facts.begin_prompts("m", true));
        end(Prompts::Failed(Instant::now()));
        assert!(!facts.begin_prompts("m", true) && shown(&facts).is_empty());
        end(Prompts::Failed(Instant::now() - RETRY));
        assert!(facts.begin_prompts("m", false));
        let told = TemplateFacts::UNKNOWN.with_prompt(None, "x<think>");
        facts.end_prompts("m", Prompts::Rendered, told);
        assert!(!facts.begin_prompts("m", true));
        assert_eq!(shown(&facts), [("m".into(), told)]);
        facts.doubt();
        assert_eq!(shown(&facts), [("m".into(), told)]);
        assert!(
            facts.begin_prompts("m", false),
            "the engine may be another one"
        );
        facts.end_prompts("m", Prompts::Failed(Instant::now()), TemplateFacts::UNKNOWN);
        assert_eq!(
            shown(&facts),
            [("m".into(), told)],
            "nothing better is known"
        );
        facts.clear();
        assert!(shown(&facts).is_empty());
        let begun = (0..MODELS).filter(|number| facts.begin_prompts(&number.to_string(), true));
        assert_eq!(begun.count(), TEMPLATES);
        assert!(
            !facts.begin_prompts(&"n".repeat(NAME + 1), true),
            "no name of that length is kept"
        );
    }

    #[test]
    fn fallbacks_of_one_model_add_up() {
        let (facts, name) = (LearnedFacts::default(), "n".repeat(NAME));
        let (one, other) = (
            Fallbacks::default().with(Fallback::SystemMerged),
            Fallbacks::default().with(Fallback::FanOut),
        );
        assert!(
            facts.add(&name, one) && facts.add(&name, other),
            "each is new"
        );
        assert!(
            !facts.add(&name, one) && !facts.add(&name, one.union(other)),
            "both are known"
        );
        assert_eq!(facts.of(&name).fallbacks, one.union(other));
    }
}
