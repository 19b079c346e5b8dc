//! A truncated answer never looks finished: every stream, cut at any byte (P2, P7, P8; wire-format 3.3).

use crate::cases::{captures, vectors};
use crate::laws::cut::{cut_short, cuts};
use samewire::wire::Ending;

#[test]
fn cut_anywhere() {
    let captures = captures().into_iter().map(|fixture| fixture.case);
    let cases = captures.chain(vectors().into_iter().map(|(case, _)| case));
    let mut seen = 0;
    for case in cases.filter(|case| case.events && case.status == 200) {
        for at in cuts(&case.input) {
            for ending in [Ending::Clean, Ending::Reset] {
                seen += 1;
                cut_short(&case, at, ending).unwrap_or_else(|wrong| panic!("{wrong}"));
            }
        }
    }
    assert!(seen > 10_000, "{seen} cuts");
}
