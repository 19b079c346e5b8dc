//! Answers as models write them, in any format: they come out as they were written, cut anywhere.

use super::feed::generated;
use crate::texts::answers;

pub fn run(data: &[u8]) {
    if let Some(answer) = generated(answers::written(), data) {
        answers::check(&answer).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    (0..64_u8).map(|seed| vec![seed; 2]).collect()
}
