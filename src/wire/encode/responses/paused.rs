//! Answers that wait for the outputs of their calls instead of ending (wire-format 4.10).

use std::sync::{Mutex, PoisonError};

/// Where an answer with calls is laid down when its engine has ended: the encoder has not, and goes on with what the
/// engine says to the outputs.
#[derive(Debug, Default)]
pub struct PausedAnswer(Mutex<Option<PausedEncoder>>);

/// An answer that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PausedEncoder {
    /// The JSON of the items since it was last laid down.
    pub items: Vec<String>,
}

impl PausedAnswer {
    /// Takes it up again, if it waits.
    pub fn take(&self) -> Option<PausedEncoder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn put(&self, held: PausedEncoder) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
    }
}
