//! Printed form of events, for the logs beside the fixtures and for people who debug a stream.

use super::Encode;
use crate::wire::OutputBuffer;
use crate::wire::event::Event;
use std::fmt::Write as _;

/// Encoder that writes one line of text per event instead of frames. Tests compare these lines with the fixtures'
/// event logs.
#[derive(Debug, Default)]
pub struct Transcript;

impl Encode for Transcript {
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        let _ = writeln!(out.open(), "{event}");
    }
}
