//! Answers as models write them, in any format: they come out as they were written, cut anywhere. Texts of whole and broken
//! markup come out as the slow reader reads them.

use super::feed::generated;
use crate::texts::{answers, mixed};

pub fn run(data: &[u8]) {
    if let Some(answer) = generated(answers::written(), data) {
        answers::check(&answer).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    if let Some(text) = generated(mixed::mixed(), data) {
        mixed::check(&text).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    (0..64_u8).map(|seed| vec![seed; 2]).collect()
}
