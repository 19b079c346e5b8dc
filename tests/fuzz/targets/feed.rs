//! Bytes as choices: what a fuzzer changes, it changes here.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sha2::{Digest, Sha256};

/// What is left of an input.
pub(crate) struct Feed<'a>(pub(crate) &'a [u8]);

impl<'a> Feed<'a> {
    /// The next byte; 0 behind the end.
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// The next bytes; fewer at the end.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        front
    }

    /// The next bytes as text, their number told by a byte.
    pub(crate) fn text(&mut self) -> String {
        let count = self.byte();
        String::from_utf8_lossy(self.take(count.into())).into_owned()
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    /// Everything that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// What a strategy makes with these bytes as its seed; nothing if it finds nothing there. (As its chance itself they will
/// not do: each choice takes half of what is left of them.)
pub(crate) fn grown<S: Strategy>(strategy: S, data: &[u8]) -> Option<S::Value> {
    let chance = TestRng::from_seed(RngAlgorithm::ChaCha, &Sha256::digest(data));
    let config = Config { failure_persistence: None, ..Config::default() };
    let tree = strategy.new_tree(&mut TestRunner::new_with_rng(config, chance)).ok()?;
    Some(tree.current())
}

/// Some of many, evenly, so that seeds stay few.
pub(crate) fn some<T>(all: Vec<T>, most: usize) -> Vec<T> {
    let step = all.len().div_ceil(most).max(1);
    all.into_iter().step_by(step).collect()
}
