//! Random cases that are the same in every run, so that a failure is somebody's change and not somebody's luck.
//!
//! `PROPTEST_RNG_SEED=<number>` tries others.

use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;

/// So many cases.
pub(crate) fn seeded(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let rng_seed = match default.rng_seed {
        RngSeed::Random => RngSeed::Fixed(1),
        given => given,
    };
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..default }
}
