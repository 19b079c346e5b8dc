//! The fuzz targets and the laws they check, for libFuzzer.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests, each of which uses its part")]

#[path = "../canonical/mod.rs"]
mod canonical;
#[path = "../cases/mod.rs"]
mod cases;
#[path = "../events/mod.rs"]
mod events;
#[path = "../laws/mod.rs"]
mod laws;
#[path = "../random/mod.rs"]
mod random;
#[path = "../slow/mod.rs"]
mod slow;
pub mod targets;

/// Runs a target on an input, within the time limit for one input.
pub fn look(name: &str, data: &[u8]) {
    targets::Target::named(name).within(targets::FUZZED, data);
}
