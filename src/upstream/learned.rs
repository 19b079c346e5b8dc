//! Facts learned from the refusals and answers of an upstream, for each of its models: the fallbacks that requests
//! need, and whether the engine separates reasoning from the text.
//!
//! Takes: a model's name with the fallbacks with which the engine has answered for it, and that an answer of it has
//! separated reasoning. Gives: those facts, for later requests. Remembers: them, for at most 256 models, until the
//! engine may have been replaced. Never: expires by time.

use crate::engine::fallback::Fallbacks;
use parking_lot::RwLock;
use std::collections::HashMap;

/// Upper limit for the models of one upstream for which facts are kept.
const MODELS: usize = 256;
/// Upper limit for the bytes of a model's name.
const NAME: usize = 256;

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

    /// Forgets everything, since the engine may have been replaced.
    pub(super) fn clear(&self) {
        self.models.write().clear();
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
