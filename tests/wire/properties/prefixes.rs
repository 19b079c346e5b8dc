//! A truncated answer never looks finished: every stream, cut at any byte (P2, P7, P8; wire-format 3.3).

use crate::cases::{Case, captures, vectors};
use crate::laws::cut::{cut_short, cuts};
use samewire::wire::Ending;

#[test]
fn captures_that_end_anywhere() {
    end_anywhere(
        captures().into_iter().map(|fixture| fixture.case),
        Ending::Clean,
    );
}

#[test]
fn captures_that_are_reset_anywhere() {
    end_anywhere(
        captures().into_iter().map(|fixture| fixture.case),
        Ending::Reset,
    );
}

#[test]
fn vectors_that_end_anywhere() {
    end_anywhere(vectors().into_iter().map(|(case, _)| case), Ending::Clean);
}

#[test]
fn vectors_that_are_reset_anywhere() {
    end_anywhere(vectors().into_iter().map(|(case, _)| case), Ending::Reset);
}

fn end_anywhere(cases: impl Iterator<Item = Case>, ending: Ending) {
    let mut seen = 0;
    for case in cases.filter(|case| case.events && case.status == 200) {
        for at in cuts(&case.input) {
            seen += 1;
            cut_short(&case, at, ending).unwrap_or_else(|wrong| panic!("{wrong}"));
        }
    }
    assert!(seen > 5_000, "{seen} cuts");
}
