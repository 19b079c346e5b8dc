//! Properties that hold for any engine output: no panic, grammatical output that does not depend on how the input
//! was cut and is its own canonical form, bounded memory, and no truncated answer that looks finished (properties
//! P2, P3, P4, P7, P8, P15, P16).

mod mangle;
mod memory;
mod prefixes;
mod regressions;

use crate::laws::answer::{LIMIT, check, check_small_limit};
use crate::random;
use crate::seeded::seeded;
use proptest::prelude::*;

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(1usize..90, 1..8)
}

proptest! {
    #![proptest_config(seeded(5_000))]

    #[test]
    fn mangled_fixtures(case in mangle::fixture(), sizes in sizes()) {
        // Text that is parsed is not parsed in the same way twice.
        check_small_limit(&case, LIMIT, &sizes).map_err(TestCaseError::fail)?;
        check(&case.unparsed(), &sizes).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn any_bytes(case in mangle::bytes(), sizes in sizes()) {
        check(&case, &sizes).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn random_answers(case in random::case(), sizes in sizes()) {
        check(&case, &sizes).map_err(TestCaseError::fail)?;
    }

    /// The laws also hold for events at or slightly above the size limit.
    #[test]
    fn laws_hold_at_the_event_size_limit(case in mangle::fixture(), limit in 1usize..500, sizes in sizes()) {
        check_small_limit(&case, limit, &sizes).map_err(TestCaseError::fail)?;
    }
}
