//! Facts learnt from the refusals and answers of an upstream: the forms in which requests for its models are sent at
//! once, and whether it tells reasoning apart from the text.
//!
//! Takes: a model's name, and the fallbacks with which the engine answered for it. Gives: them again. Remembers: them, for a
//! bounded number of models, until the engine may be another one. Never: expires by time.

use crate::engine::fallback::Fallbacks;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

/// Most models of one upstream of which something is remembered.
const MODELS: usize = 256;
/// Bytes of a model's name, at most.
const NAME: usize = 256;

/// The facts learnt about one upstream.
#[derive(Debug, Default)]
pub(super) struct Learnt {
    /// The fallbacks that it needs, by model.
    fallbacks: RwLock<HashMap<Box<str>, Fallbacks>>,
    /// Whether one of its answers has told reasoning apart from the text.
    tells_reasoning: AtomicBool,
}

impl Learnt {
    /// The forms in which requests for this model are sent.
    pub(super) fn fallbacks(&self, model: &str) -> Fallbacks {
        let known = self.fallbacks.read().unwrap_or_else(PoisonError::into_inner);
        known.get(model).copied().unwrap_or_default()
    }

    /// Adds fallbacks with which the engine has answered for this model. Returns whether any of them is new.
    pub(super) fn add(&self, model: &str, fallbacks: Fallbacks) -> bool {
        let mut known = self.fallbacks.write().unwrap_or_else(PoisonError::into_inner);
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

    /// Notes that one of its answers has told reasoning apart from the text.
    pub(super) fn tell_reasoning(&self) {
        self.tells_reasoning.store(true, Ordering::Relaxed);
    }

    /// Whether one of its answers has done so.
    pub(super) fn tells_reasoning(&self) -> bool {
        self.tells_reasoning.load(Ordering::Relaxed)
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.tells_reasoning.store(false, Ordering::Relaxed);
        let mut known = self.fallbacks.write().unwrap_or_else(PoisonError::into_inner);
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
        assert_eq!(learnt.fallbacks.read().unwrap().len(), MODELS);
        learnt.clear();
        assert!(learnt.fallbacks("m").is_empty());
    }
}
