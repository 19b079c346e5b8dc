//! Facts learned from the refusals and answers of an upstream: the fallbacks that requests for each of its models
//! need, and whether it separates reasoning from the text.
//!
//! Takes: a model's name with the fallbacks with which the engine has answered for it, and that an answer has
//! separated reasoning. Gives: those fallbacks, and that fact, for later requests. Remembers: them, the fallbacks for
//! at most 256 models, until the engine may have been replaced. Never: expires by time.

use crate::engine::fallback::Fallbacks;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Upper limit for the models of one upstream for which facts are kept.
const MODELS: usize = 256;
/// Upper limit for the bytes of a model's name.
const NAME: usize = 256;

/// Facts learned about one upstream, so that later requests avoid a form that its engine has refused before.
#[derive(Debug, Default)]
pub(super) struct LearnedFacts {
    /// Fallbacks that the engine needs, by model.
    fallbacks: RwLock<HashMap<Box<str>, Fallbacks>>,
    /// True once an answer has separated reasoning from the text.
    separates_reasoning: AtomicBool,
}

impl LearnedFacts {
    /// Returns the fallbacks to apply to requests for this model.
    pub(super) fn fallbacks(&self, model: &str) -> Fallbacks {
        let known = self.fallbacks.read();
        known.get(model).copied().unwrap_or_default()
    }

    /// Adds fallbacks with which the engine has answered for this model. Returns true if any of them is new and was
    /// kept.
    pub(super) fn add(&self, model: &str, fallbacks: Fallbacks) -> bool {
        let mut known = self.fallbacks.write();
        if let Some(before) = known.get_mut(model) {
            let now = before.union(fallbacks);
            return std::mem::replace(before, now) != now;
        }
        let has_room = known.len() < MODELS && model.len() <= NAME;
        if has_room {
            known.insert(model.into(), fallbacks);
        }
        has_room
    }

    /// Records that an answer has separated reasoning from the text.
    pub(super) fn note_separate_reasoning(&self) {
        self.separates_reasoning.store(true, Ordering::Relaxed);
    }

    /// Returns true if an answer has separated reasoning from the text.
    pub(super) fn separates_reasoning(&self) -> bool {
        self.separates_reasoning.load(Ordering::Relaxed)
    }

    /// Forgets everything, since the engine may have been replaced.
    pub(super) fn clear(&self) {
        self.separates_reasoning.store(false, Ordering::Relaxed);
        self.fallbacks.write().clear();
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
            (facts.fallbacks("m"), facts.fallbacks("n")),
            (merged, Fallbacks::default())
        );
        assert!(!facts.add(&"n".repeat(NAME + 1), merged));
        for number in 0..2 * MODELS {
            facts.add(&number.to_string(), merged);
        }
        assert_eq!(facts.fallbacks.read().len(), MODELS);
        facts.clear();
        assert!(facts.fallbacks("m").is_empty());
    }

    #[test]
    fn reasoning_that_was_separated_is_remembered_until_the_engine_may_be_another() {
        let facts = LearnedFacts::default();
        assert!(!facts.separates_reasoning());
        facts.note_separate_reasoning();
        assert!(facts.separates_reasoning());
        facts.clear();
        assert!(!facts.separates_reasoning());
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
        assert_eq!(facts.fallbacks(&name), one.union(other));
    }
}
