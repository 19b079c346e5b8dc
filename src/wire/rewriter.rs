//! Rewriter: the stages joined, from an engine's bytes to the client's.
//!
//! ```text
//! bytes ─→ AnswerReader { Framer → FastPath | Stages } ─→ AnswerWriter { Encode } ─→ bytes
//! ```

use super::disclosure::EngineKey;
use super::encode::{Encode, Limits, encoder};
use super::fast_path::FastPath;
use super::fault::{Failure, Fault};
use super::normalise::{AnswerWriter, EncoderOutput, Merge, Normaliser};
use super::parse::{Beginning, Parsing};
use super::rule::Rule;
use super::sse::{Frame, Framer, FramerOutput};
use super::stages::Stages;
use super::{Ending, MissingChoices, OutputBuffer, Progress, Shape, Stamp, Summary};
use crate::json::Raw;

/// Rewriter: the pipeline for one answer, from engine bytes to canonical bytes.
pub struct Rewriter {
    pub(super) reader: AnswerReader,
    writer: AnswerWriter,
}

/// Reader of one engine's answer: the stages before the encoder. A merged answer has several, one for each choice.
pub struct AnswerReader {
    framer: Framer,
    pub(super) frames: FrameReader,
    /// Index of the only choice, if the other choices come from answers of their own; else 0.
    choice: u32,
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
        let Self { reader: AnswerReader { framer, frames, choice, .. }, writer } = self;
        let to = &mut EncoderOutput { writer, out, choice: *choice };
        framer.push(bytes, |found| frames.read(found, to));
        self.progress()
    }

    /// Ends the engine's event stream: handles an unterminated last event and writes the end of the answer, or a
    /// failure.
    pub fn finish(&mut self, ending: Ending, out: &mut OutputBuffer) -> Progress {
        let Self { reader: AnswerReader { framer, frames, choice, .. }, writer } = self;
        let to = &mut EncoderOutput { writer, out, choice: *choice };
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
        let Self { reader: AnswerReader { frames, choice, .. }, writer } = self;
        let (before, committed) = (out.mark(), writer.committed);
        let to = &mut EncoderOutput { writer, out, choice: *choice };
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
        let choice = reader.choice;
        reader.frames.stages.fail(failure, &mut EncoderOutput { writer, out, choice });
        self.progress()
    }

    /// Sets the share of the client's limits that is used up, for dialects that report it.
    pub fn limits(&mut self, limits: Limits) {
        self.writer.encoder.limits(limits);
    }

    /// Sets the key that the engine was sent.
    pub fn hide_key(&mut self, key: EngineKey) {
        self.reader.frames.stages.normaliser.engine_key = Some(key);
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

    /// Fails the answer in place of its last `frames` frames, which have not been sent and must not be. An answer that
    /// has ended can fail so, too.
    pub fn withdraw(&mut self, frames: u64, failure: Failure, out: &mut OutputBuffer) {
        self.writer.encoder.withdraw(frames);
        let Self { reader: AnswerReader { frames, choice, .. }, writer } = self;
        let normaliser = &mut frames.stages.normaliser;
        normaliser.reopen();
        normaliser.fail(failure, &mut EncoderOutput { writer, out, choice: *choice });
        if let Some(merge) = &mut self.writer.merge {
            merge.reopen();
            self.give_up(out);
        }
    }

    /// Marks the status as sent: from now on a failure becomes an error frame in the stream.
    pub fn commit(&mut self) {
        self.writer.committed = true;
    }

    /// Returns the failure that must become the HTTP answer, because nothing has been sent yet.
    pub fn failure(&self) -> Option<&Failure> {
        self.writer.failure.as_ref()
    }

    /// Returns the failure of the engine's answer that is being read, whether it became the HTTP answer or an error
    /// frame.
    pub fn any_failure(&self) -> Option<&Failure> {
        self.normaliser().failure()
    }

    /// Returns the progress of the answer: whether content has come, and whether it has ended.
    pub fn progress(&self) -> Progress {
        let Progress { has_content, ended } = self.reader.progress();
        match &self.writer.merge {
            Some(merge) => Progress { has_content: has_content || merge.has_content, ended: merge.ended },
            None => Progress { has_content, ended },
        }
    }

    /// Returns the summary of the answer so far, for logs and metrics.
    pub fn summary(&self) -> Summary {
        let mut summary = self.reader.summary();
        if let Some(merge) = &self.writer.merge {
            summary.add(merge.past.clone());
        }
        summary
    }

    fn normaliser(&self) -> &Normaliser {
        &self.reader.frames.stages.normaliser
    }

    // === one engine answer for each choice ===

    /// Creates the pipeline for an answer that is merged from one engine answer for each choice. It reads that of the
    /// first choice; the others have a reader each, which takes its turn by [`Rewriter::swap_reader`].
    pub fn merging(shape: &Shape, stamp: &Stamp) -> Self {
        let mut writer = AnswerWriter::new(encoder(shape, stamp));
        writer.merge_with(Merge::new(shape.choices));
        Self { reader: AnswerReader::of_choice(0, shape.clone(), stamp.clone()), writer }
    }

    /// Merges engine answers from now on: the one that has ended gave fewer choices than requested, and each missing
    /// one comes from an answer of its own. `rule`: the rule by which they are requested, for the summary.
    pub fn merge_missing(&mut self, missing: MissingChoices, rule: &'static str) {
        let mut past = self.reader.summary();
        past.adapted.push(rule);
        self.writer.merge_with(Merge::after(missing, self.writer.prompt_sent, past));
    }

    /// Returns true if the answer is merged from several engine answers.
    pub fn is_merged(&self) -> bool {
        self.writer.merge.is_some()
    }

    /// Returns the reader of the engine answer that is being read.
    pub fn reader(&self) -> &AnswerReader {
        &self.reader
    }

    /// Returns the reader alone, so that a merged answer can read with it.
    pub fn into_reader(self) -> AnswerReader {
        self.reader
    }

    /// Reads another engine answer from now on. The reader of the present one takes the place of the other.
    pub fn swap_reader(&mut self, other: &mut AnswerReader) {
        if let Some(merge) = &mut self.writer.merge {
            merge.has_content |= self.reader.progress().has_content;
        }
        std::mem::swap(&mut self.reader, other);
    }

    /// Reads another engine answer in the place of the present one, which has failed.
    pub fn replace_reader(&mut self, reader: AnswerReader) {
        if let Some(merge) = &mut self.writer.merge {
            merge.restart(reader.choice);
        }
        self.reader = reader;
    }

    /// Adds the summary of an engine answer that has ended, and is not the one being read.
    pub fn add_summary_of(&mut self, reader: &AnswerReader) {
        if let Some(merge) = &mut self.writer.merge {
            merge.past.add(reader.summary());
        }
    }

    /// Fails the whole merged answer, because the engine answer that is being read has failed for good.
    pub fn give_up(&mut self, out: &mut OutputBuffer) {
        let failure = self.reader.frames.stages.normaliser.failure();
        if let (Some(merge), Some(failure)) = (&mut self.writer.merge, failure) {
            merge.fail(failure.clone(), &mut *self.writer.encoder, out);
        }
    }
}

impl AnswerReader {
    /// Creates the reader for the engine answer that gives this choice. `shape`: that of the whole answer, or of this
    /// choice.
    pub fn of_choice(choice: u32, shape: Shape, stamp: Stamp) -> Self {
        // Only Chat Completions and Completions have several choices, and neither has items.
        Self::new(shape.of_choice(choice), stamp, false)
    }

    /// Returns the progress of this engine answer.
    pub fn progress(&self) -> Progress {
        let normaliser = &self.frames.stages.normaliser;
        Progress { has_content: normaliser.spoken, ended: normaliser.is_ended() }
    }

    /// Returns the number of events that have been read.
    pub fn events(&self) -> u64 {
        self.frames.events
    }

    fn new(mut shape: Shape, stamp: Stamp, items: bool) -> Self {
        Self {
            framer: Framer::new(shape.max_event_bytes),
            choice: shape.choice,
            adapted: std::mem::take(&mut shape.adapted),
            frames: FrameReader {
                fast_path: FastPath::default(),
                stages: Stages::new(shape, stamp, items),
                events: 0,
            },
        }
    }

    fn summary(&self) -> Summary {
        let Self { frames: FrameReader { stages, events, .. }, adapted, .. } = self;
        let parsing = stages.parsing.as_deref();
        Summary {
            usage: stages.normaliser.usage(),
            finishes: stages.normaliser.finishes().collect(),
            tally: stages.normaliser.tally.clone(),
            adapted: adapted.clone(),
            events: *events,
            unparsed: parsing.and_then(Parsing::unparsed),
            unread: stages.beginning.as_ref().and_then(Beginning::unread),
            reasoning_was_separate: parsing.is_some_and(Parsing::engine_sent_reasoning),
        }
    }
}

impl FrameReader {
    fn read(&mut self, found: FramerOutput<'_>, to: &mut EncoderOutput<'_>) {
        let Self { fast_path, stages, events } = self;
        let normaliser = &mut stages.normaliser;
        if normaliser.is_ended() {
            // An engine that was stopped goes on until it notices.
            if normaliser.tally.times(Rule::Repetition) == 0 {
                normaliser.tally.count(Rule::AfterDone);
            }
            return;
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

impl std::fmt::Debug for AnswerReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnswerReader").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::options::{ContinuousUsage, Options};
    use crate::wire::{AnswerId, Api, Extensions};
    use std::sync::Arc;

    fn two() -> (Rewriter, impl Fn(u32) -> AnswerReader) {
        let shape = Shape { choices: 2, ..Shape::new(Api::Chat, true, Arc::default()) };
        let stamp = Stamp { id: AnswerId(u128::MAX), ..Stamp::default() };
        let rewriter = Rewriter::merging(&shape, &stamp);
        (rewriter, move |choice| AnswerReader::of_choice(choice, shape.clone(), stamp.clone()))
    }

    fn chunk(id: &str, delta: &str) -> Vec<u8> {
        format!("data: {{{id}\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n").into_bytes()
    }

    /// Checks that answers and calls without ids get different derived ids.
    #[test]
    fn what_is_made_of_an_id_is_not_made_twice() {
        let (mut rewriter, reader) = two();
        let mut out = OutputBuffer::default();
        let call = chunk("", r#"{"tool_calls":[{"index":0,"function":{"name":"f"}}]}"#);
        rewriter.push(&call, &mut out);
        rewriter.swap_reader(&mut reader(1));
        rewriter.push(&call, &mut out);
        let text = String::from_utf8(out.to_vec()).unwrap();
        let ids: Vec<_> = text.match_indices("call_").map(|(at, _)| &text[at..at + 33]).collect();
        assert!(ids.len() == 2 && ids[0] != ids[1], "{text}");
    }

    /// Checks that the first head stays when the answer that gave it is requested again and has another one.
    #[test]
    fn the_head_stays() {
        let (mut rewriter, reader) = two();
        let mut out = OutputBuffer::default();
        rewriter.push(&chunk("\"id\":\"a\",", r#"{"role":"assistant"}"#), &mut out);
        for (choice, id) in [(0, "\"id\":\"b\","), (1, "\"id\":\"c\",")] {
            rewriter.replace_reader(reader(choice));
            rewriter.push(&chunk(id, r#"{"role":"assistant"}"#), &mut out);
            rewriter.push(&chunk(id, r#"{"content":"x"}"#), &mut out);
        }
        let text = String::from_utf8(out.to_vec()).unwrap();
        assert_eq!(text.matches("\"id\":\"chatcmpl-a\"").count(), 4, "{text}");
        assert_eq!(text.matches("data:").count(), 4, "one role for each: {text}");
    }

    /// Checks that the prompt's ids are sent once, and the counts of each chunk with its role frame.
    #[test]
    fn what_comes_with_the_roles() {
        let options = Options { continuous_usage: ContinuousUsage::Always, ..Options::default() };
        let shape = Shape {
            extensions: Extensions { token_ids: true, ..Extensions::default() },
            include_usage: true,
            choices: 2,
            ..Shape::new(Api::Chat, true, Arc::new(options))
        };
        let stamp = Stamp { id: AnswerId(u128::MAX), ..Stamp::default() };
        let mut rewriter = Rewriter::merging(&shape, &stamp);
        let usage =
            r#""prompt_token_ids":[7],"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5},"#;
        let mut out = OutputBuffer::default();
        rewriter.push(&chunk(usage, r#"{"content":"x"}"#), &mut out);
        rewriter.swap_reader(&mut AnswerReader::of_choice(1, shape, stamp));
        rewriter.push(&chunk(usage, r#"{"content":"x"}"#), &mut out);
        let text = String::from_utf8(out.to_vec()).unwrap();
        let frames: Vec<_> = text.split_terminator("\n\n").collect();
        let ids: Vec<_> = frames.iter().map(|frame| frame.contains(r#""prompt_token_ids":[7]"#)).collect();
        assert_eq!(ids, [true, false, false, false], "{text}");
        assert_eq!(text.matches(r#""completion_tokens":3"#).count(), 4, "{text}");
    }
}
