//! The printed form of events, for the logs beside the fixtures and for people who look into a stream.

use super::Encode;
use crate::wire::OutputBuffer;
use crate::wire::event::Event;
use std::fmt::Write as _;

/// Writes a line for each event instead of frames.
#[derive(Debug, Default)]
pub struct Transcript;

impl Encode for Transcript {
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        let _ = writeln!(out.open(), "{event}");
    }
}
