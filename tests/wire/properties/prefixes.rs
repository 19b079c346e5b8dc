//! A truncated answer never looks finished: every stream, cut at any byte (P2, P7, P8; wire-format 3.3).

use crate::cases::{captures, vectors};
use crate::laws::cut::cut_short;
use samewire::wire::Ending;

/// Returns the positions at which a stream is cut: every byte of a short one; else around every line end and in the
/// middle of every line.
fn cuts(input: &[u8]) -> Vec<usize> {
    if input.len() < 1_500 {
        return (0..=input.len()).collect();
    }
    let mut cuts = vec![0, input.len()];
    let mut start = 0;
    for (at, _) in input.iter().enumerate().filter(|(_, byte)| matches!(byte, b'\n' | b'\r')) {
        cuts.extend([(start + at) / 2, at.saturating_sub(1), at, at + 1]);
        start = at;
    }
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

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
