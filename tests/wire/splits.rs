//! The output depends on the bytes, not on how they were cut into reads: every fixture is cut at every byte, and
//! fed byte by byte.

use crate::cases::{Case, Cut, captures, response_vectors, responses, vectors};

/// Distance between two cuts: a frame has one or two at a time.
const APART: usize = 127;

/// Cuts a case at every byte. A short input gets one cut per run; a long one gets several distant cuts, moved by
/// one byte from run to run, so that every byte is a cut in one of them.
fn check(case: &Case) {
    let whole = case.run(&Cut::Whole);
    assert_eq!(case.run(&Cut::Bytes), whole, "{} byte by byte", case.name);
    if case.input.len() <= 8 * APART {
        for at in 0..case.input.len() {
            assert_eq!(
                case.run(&Cut::At(at)),
                whole,
                "{} cut at byte {at}",
                case.name
            );
        }
        return;
    }
    for first in 1..=APART {
        assert_eq!(
            case.run(&Cut::Comb { first, step: APART }),
            whole,
            "{} cut at {first} + {APART} n",
            case.name
        );
    }
}

#[test]
fn captures_cut_anywhere() {
    captures()
        .iter()
        .chain(&responses())
        .map(|fixture| &fixture.case)
        .filter(|case| case.events)
        .for_each(check);
}

#[test]
fn vectors_cut_anywhere() {
    vectors()
        .iter()
        .chain(&response_vectors())
        .map(|(case, _)| case)
        .filter(|case| case.events)
        .for_each(check);
}
