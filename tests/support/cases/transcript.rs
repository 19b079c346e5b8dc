//! Encoder that writes one line of text per event instead of frames, to compare with the fixtures' event logs.

use super::shown;
use samewire::wire::OutputBuffer;
use samewire::wire::encode::Encode;
use samewire::wire::event::Event;

/// Encoder that writes each event as one line of text.
#[derive(Debug, Default)]
pub struct Transcript;

impl Encode for Transcript {
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        let line = shown::event(&event) + "\n";
        out.open().extend_from_slice(line.as_bytes());
    }
}
