//! An engine's answer through the rewriter: properties P1 to P4, P7, P8 and P16, and comparison with the slow
//! implementation.

use super::feed::generated;
use super::made;
use crate::laws::{answer, differential, lossless};
use crate::random;

/// First byte from which an input is a seed for the slow implementation's own random exchanges.
const GROWN: u8 = 0xf0;

pub fn run(data: &[u8]) {
    match data.split_first() {
        Some((GROWN.., chance)) => drop(generated(random::case(), chance).map(|case| {
            let sizes = [chance.len() + 1, 7];
            let judged = answer::check(&case, &sizes)
                .and_then(|()| lossless::check(&case))
                .and_then(|()| differential::both(&case));
            judged.unwrap_or_else(|wrong| panic!("{wrong}"));
        })),
        _ => {
            let made = made::exchange(data);
            answer::check(&made.case, &made.sizes).unwrap_or_else(|wrong| panic!("{wrong}"));
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = made::seeds(&made::exchanges());
    all.extend(made::regressions());
    all.extend((0..16).map(|seed| vec![GROWN, seed]));
    all
}
