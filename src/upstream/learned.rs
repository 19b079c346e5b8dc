//! Facts learnt from the refusals and answers of an upstream: the fallbacks that requests for each of its models
//! need, and whether it separates reasoning from the text.
//!
//! Takes: a model's name, and the fallbacks with which the engine has answered for it. Gives: the same again, for
//! later requests. Remembers: them, for a bounded number of models, until the engine may be another one. Never:
//! expires by time.

use crate::engine::fallback::Fallbacks;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Upper limit for the models of one upstream for which facts are kept.
const MODELS: usize = 256;
/// Upper limit for the bytes of a model's name.
const NAME: usize = 256;

/// Facts learnt about one upstream, so that later requests avoid a form that its engine has refused before.
#[derive(Debug, Default)]
pub(super) struct Learnt {
    /// Fallbacks that the engine needs, by model.
    fallbacks: RwLock<HashMap<Box<str>, Fallbacks>>,
    /// True once an answer has separated reasoning from the text.
    tells_reasoning: AtomicBool,
}

impl Learnt {
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
            let now = before.and(fallbacks);
            return std::mem::replace(before, now) != now;
        }
        let may = known.len() < MODELS && model.len() <= NAME;
        if may {
            known.insert(model.into(), fallbacks);
        }
        may
    }

    /// Records that an answer has separated reasoning from the text.
    pub(super) fn tell_reasoning(&self) {
        self.tells_reasoning.store(true, Ordering::Relaxed);
    }

    /// Returns true if an answer has separated reasoning from the text.
    pub(super) fn tells_reasoning(&self) -> bool {
        self.tells_reasoning.load(Ordering::Relaxed)
    }

    /// Forgets everything, since the engine may have been replaced.
    pub(super) fn clear(&self) {
        self.tells_reasoning.store(false, Ordering::Relaxed);
        let mut known = self.fallbacks.write();
        if !known.is_empty() {
            known.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fallback::Fallback;

    #[test]
    fn what_is_learnt_is_bounded_and_of_one_model() {
        let (learnt, merged) = (Learnt::default(), Fallbacks::default().with(Fallback::SystemMerged));
        assert!(learnt.add("m", merged) && !learnt.add("m", merged), "it is new once");
        assert_eq!((learnt.fallbacks("m"), learnt.fallbacks("n")), (merged, Fallbacks::default()));
        assert!(!learnt.add(&"n".repeat(NAME + 1), merged));
        for number in 0..2 * MODELS {
            learnt.add(&number.to_string(), merged);
        }
        assert_eq!(learnt.fallbacks.read().len(), MODELS);
        learnt.clear();
        assert!(learnt.fallbacks("m").is_empty());
    }
}
