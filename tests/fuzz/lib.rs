//! The fuzz targets and the laws they check, for libFuzzer.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests, each of which uses its part")]

#[macro_use]
#[path = "../support/fail/mod.rs"]
mod fail;
#[path = "../support/canonical/mod.rs"]
mod canonical;
#[path = "../support/cases/mod.rs"]
mod cases;
#[path = "../support/events/mod.rs"]
mod events;
#[path = "../support/laws/mod.rs"]
mod laws;
#[path = "../support/random/mod.rs"]
mod random;
#[path = "../support/slow/mod.rs"]
mod slow;
#[path = "../support/texts/mod.rs"]
mod texts;
pub mod targets;

/// Runs a target on an input, within the time limit for one input.
pub fn run_within_limit(name: &str, data: &[u8]) {
    targets::Target::named(name).within(targets::FUZZED, data);
}
