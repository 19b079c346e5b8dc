//! Decisions derived from the fuzzer's bytes, so that a change of the input changes the decisions.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sha2::{Digest, Sha256};

/// Rest of an input, from which a target takes its decisions byte by byte.
pub(crate) struct Feed<'a>(pub(crate) &'a [u8]);

impl<'a> Feed<'a> {
    /// Returns the next byte; 0 after the end.
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// Returns the next bytes; fewer at the end.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        front
    }

    /// Returns the next bytes as text; a byte before them gives their number.
    pub(crate) fn text(&mut self) -> String {
        let count = self.byte();
        String::from_utf8_lossy(self.take(count.into())).into_owned()
    }

    /// Returns one of these, selected by the next byte.
    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    /// Returns all remaining bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Generates a value of a strategy with a hash of these bytes as its seed. Returns `None` if the strategy finds no
/// value. (The bytes cannot be the source of randomness itself: each choice takes half of the rest.)
pub(crate) fn generated<S: Strategy>(strategy: S, data: &[u8]) -> Option<S::Value> {
    let chance = TestRng::from_seed(RngAlgorithm::ChaCha, &Sha256::digest(data));
    let config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    let tree = strategy
        .new_tree(&mut TestRunner::new_with_rng(config, chance))
        .ok()?;
    Some(tree.current())
}

/// Returns at most `most` values, evenly spaced, so that seeds stay few.
pub(crate) fn some<T>(all: Vec<T>, most: usize) -> Vec<T> {
    let step = all.len().div_ceil(most).max(1);
    all.into_iter().step_by(step).collect()
}
