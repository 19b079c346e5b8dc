//! Rewriter: the stages joined, from an engine's bytes to the client's.
//!
//! ```text
//! bytes ─→ AnswerReader { Framer → FastPath | Stages } ─→ AnswerWriter { Encode } ─→ bytes
//! ```

use super::encode::{Encode, Limits, encoder};
use super::fast_path::FastPath;
use super::fault::{Failure, Fault};
use super::normalise::{AnswerWriter, Normaliser, Output};
use super::parse::Parsing;
use super::rule::Rule;
use super::sse::{Frame, Framer, FramerOutput};
use super::stages::Stages;
use super::{Ending, MissingChoices, OutputBuffer, Progress, Shape, Stamp, Summary};
use crate::json::Raw;

/// Rewriter: the pipeline for one answer, from engine bytes to canonical bytes.
pub struct Rewriter {
    pub(super) reader: AnswerReader,
    pub(super) writer: AnswerWriter,
}

/// Reader of one engine's answer: the stages before the encoder.
pub(super) struct AnswerReader {
    framer: Framer,
    pub(super) frames: FrameReader,
    /// Names of the rules that changed the request.
    adapted: Vec<&'static str>,
}

/// Reader of frames: the fast path, and the stages for the frames that it does not know.
pub(super) struct FrameReader {
    pub(super) fast_path: FastPath,
    stages: Stages,
    /// Number of frames read.
    events: u64,
}

impl Rewriter {
    /// Creates the pipeline for an answer of this shape.
    pub fn new(shape: Shape, stamp: Stamp) -> Self {
        let encoder = encoder(&shape, &stamp);
        Self::with_encoder(shape, stamp, encoder)
    }

    /// Creates the pipeline with a given encoder, which may have begun the client's answer.
    pub fn with_encoder(shape: Shape, stamp: Stamp, encoder: Box<dyn Encode>) -> Self {
        Self {
            reader: AnswerReader::new(shape, stamp, encoder.has_items()),
            writer: AnswerWriter::new(encoder),
        }
    }

    /// Reads the next bytes of the engine's event stream and writes all output that is certain by now.
    pub fn push(&mut self, bytes: &[u8], out: &mut OutputBuffer) -> Progress {
        let Self { reader: AnswerReader { framer, frames, .. }, writer } = self;
        let to = &mut Output { writer, out };
        framer.push(bytes, |found| frames.read(found, to));
        self.progress()
    }

    /// Ends the engine's event stream: handles an unterminated last event and writes the end of the answer, or a
    /// failure.
    pub fn finish(&mut self, ending: Ending, out: &mut OutputBuffer) -> Progress {
        let Self { reader: AnswerReader { framer, frames, .. }, writer } = self;
        let to = &mut Output { writer, out };
        let complete = |data: &[u8]| {
            data.trim_ascii() == b"[DONE]"
                || std::str::from_utf8(data).is_ok_and(|text| Raw::of(text).is_some())
        };
        framer.finish(complete, |found| frames.read(found, to));
        frames.stages.end_of_input(ending, to);
        self.progress()
    }

    /// Rewrites an answer that is one complete JSON object instead of an event stream.
    pub fn whole(&mut self, body: &[u8], out: &mut OutputBuffer) -> Progress {
        let Self { reader: AnswerReader { frames, .. }, writer } = self;
        let (before, committed) = (out.mark(), writer.committed);
        let to = &mut Output { writer, out };
        if let Some(parsing) = &mut frames.stages.parsing {
            parsing.expect_whole_body();
        }
        frames.read(FramerOutput::Frame(Frame { error: false, name: b"", data: body, whole: true }), to);
        frames.stages.end_of_input(Ending::Whole, to);
        // The whole answer is here: if it is broken, and nothing was sent before, nothing of it is written.
        if let Some(failure) = frames.stages.normaliser.failure().filter(|_| !committed) {
            drop(to.out.split_off(before));
            to.writer.committed = false;
            to.writer.failure = Some(failure.clone());
        }
        self.progress()
    }

    /// Fails the answer for a reason that the engine's bytes do not show, such as a timeout.
    pub fn fail(&mut self, failure: Failure, out: &mut OutputBuffer) -> Progress {
        let Self { reader, writer } = self;
        reader.frames.stages.fail(failure, &mut Output { writer, out });
        self.progress()
    }

    /// Sets the share of the client's limits that is used up, for dialects that report it.
    pub fn limits(&mut self, limits: Limits) {
        self.writer.encoder.limits(limits);
    }

    /// Sets the time, in Unix seconds, for output until the next call.
    pub fn clock(&mut self, now: u64) {
        self.writer.encoder.clock(now);
    }

    /// Returns the encoder, which knows more of the answer than the bytes that it has written.
    pub fn encoder(&self) -> &dyn Encode {
        &*self.writer.encoder
    }

    /// Returns the encoder, to write the end of an answer that waits for the store.
    pub fn encoder_mut(&mut self) -> &mut dyn Encode {
        &mut *self.writer.encoder
    }

    /// Returns the encoder, so that another answer can continue with it.
    pub fn into_encoder(self) -> Box<dyn Encode> {
        self.writer.encoder
    }

    /// Returns true if the engine may give fewer choices than requested, and the missing ones may be requested.
    pub fn may_lack(&self) -> bool {
        self.normaliser().may_lack()
    }

    /// Returns the part of an answer that ended with fewer choices than the client requested, until the end of the
    /// answer has been written.
    pub fn missing_choices(&self) -> Option<MissingChoices> {
        self.normaliser().lacks()
    }

    /// Fails an answer whose missing choices cannot be requested: it is incomplete.
    pub fn fail_missing_choices(&mut self, out: &mut OutputBuffer) {
        self.reader.frames.stages.normaliser.reopen();
        self.fail(Fault::Incomplete.into(), out);
    }

    /// Marks the status as sent: from now on a failure becomes an error frame in the stream.
    pub fn commit(&mut self) {
        self.writer.committed = true;
    }

    /// Returns the failure that must become the HTTP answer, because nothing has been sent yet.
    pub fn failure(&self) -> Option<&Failure> {
        self.writer.failure.as_ref()
    }

    /// Returns the failure of the answer, whether it became the HTTP answer or an error frame.
    pub fn any_failure(&self) -> Option<&Failure> {
        self.normaliser().failure()
    }

    /// Returns the progress of the answer: whether content has come, and whether it has ended.
    pub fn progress(&self) -> Progress {
        let normaliser = self.normaliser();
        Progress { has_content: normaliser.spoken, ended: normaliser.is_ended() }
    }

    /// Returns the summary of the answer so far, for logs and metrics.
    pub fn summary(&self) -> Summary {
        let AnswerReader { frames: FrameReader { stages, events, .. }, adapted, .. } = &self.reader;
        let parsing = stages.parsing.as_deref();
        Summary {
            usage: stages.normaliser.usage(),
            finishes: stages.normaliser.finishes().collect(),
            tally: stages.normaliser.tally.clone(),
            adapted: adapted.clone(),
            events: *events,
            unparsed: parsing.and_then(Parsing::unparsed),
            reasoning_was_separate: parsing.is_some_and(Parsing::engine_sent_reasoning),
        }
    }

    fn normaliser(&self) -> &Normaliser {
        &self.reader.frames.stages.normaliser
    }
}

impl AnswerReader {
    fn new(mut shape: Shape, stamp: Stamp, items: bool) -> Self {
        Self {
            framer: Framer::new(shape.max_event_bytes),
            adapted: std::mem::take(&mut shape.adapted),
            frames: FrameReader {
                fast_path: FastPath::default(),
                stages: Stages::new(shape, stamp, items),
                events: 0,
            },
        }
    }
}

impl FrameReader {
    fn read(&mut self, found: FramerOutput<'_>, to: &mut Output<'_>) {
        let Self { fast_path, stages, events } = self;
        let normaliser = &mut stages.normaliser;
        if normaliser.is_ended() {
            return normaliser.tally.count(Rule::AfterDone);
        }
        match found {
            FramerOutput::Comment => normaliser.tally.count(Rule::Comment),
            FramerOutput::TooLarge => stages.fail(Fault::InvalidEvent.into(), to),
            FramerOutput::Frame(frame) => {
                *events += 1;
                fast_path.frame(frame, stages, to);
            }
        }
    }
}

impl std::fmt::Debug for Rewriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rewriter").field("progress", &self.progress()).finish_non_exhaustive()
    }
}
