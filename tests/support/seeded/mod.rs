//! Random cases with a fixed seed, the same in every run, so that a failure is caused by a change and not by
//! chance.
//!
//! `PROPTEST_RNG_SEED=<number>` selects other cases.

use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;

/// Returns a configuration for this number of cases.
pub(crate) fn seeded(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let rng_seed = match default.rng_seed {
        RngSeed::Random => RngSeed::Fixed(1),
        given => given,
    };
    ProptestConfig {
        cases,
        rng_seed,
        failure_persistence: None,
        ..default
    }
}
