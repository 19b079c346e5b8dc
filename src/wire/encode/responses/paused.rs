//! Answers that wait for the outputs of their calls instead of ending (wire-format 4.10).

use std::sync::{Mutex, PoisonError};

/// Slot shared between an encoder and the server. When the engine's answer ends with calls, the encoder puts them
/// here instead of ending; the server continues the same encoder with the next engine answer.
#[derive(Debug, Default)]
pub struct PauseSlot(Mutex<Option<Pause>>);

/// Pause of an answer, with what the server needs to ask the engine again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// JSON of the items added since the answer began or was last paused.
    pub items: Vec<String>,
}

impl PauseSlot {
    /// Takes the pause out of the slot; `None` if the answer has not paused.
    pub fn take(&self) -> Option<Pause> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Marks the answer as paused.
    pub(super) fn put(&self, held: Pause) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
    }
}
