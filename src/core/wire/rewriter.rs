//! Rewriter: the stages joined, from an engine's bytes to the client's.
//!
//! ```text
//! bytes ─→ AnswerReader { Framer → FastPath | Stages } ─→ AnswerWriter { Encode } ─→ bytes
//! ```

use super::disclosure::EngineKey;
use super::encode::{Encode, encoder};
use super::fast_path::FastPath;
use super::fault::{Failure, Fault};
use super::normalise::{AnswerWriter, EncoderOutput};
use super::parse::{Beginning, Parsing};
use super::rule::Rule;
use super::sse::{Frame, Framer, FramerOutput};
use super::stages::Stages;
use super::{Ending, MissingChoices, OutputBuffer, Progress, Shape, Stamp, Summary, TemplateFacts};
use crate::json::Raw;

/// Rewriter: the pipeline for one answer, from engine bytes to canonical bytes.
pub struct Rewriter {
    /// Reader of the engine's answer.
    pub reader: AnswerReader,
    /// Writer of the client's answer.
    pub writer: AnswerWriter,
}

/// Reader of one engine's answer: the stages before the encoder. A merged answer has several, one for each choice.
pub struct AnswerReader {
    framer: Framer,
    pub(super) frames: FrameReader,
    /// Index of the only choice, if the other choices come from separate answers; else 0.
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
            reader: AnswerReader::new(shape, stamp, encoder.response().is_some()),
            writer: AnswerWriter::new(encoder),
        }
    }

    /// See [`AnswerReader::push`].
    pub fn push(&mut self, bytes: &[u8], out: &mut OutputBuffer) -> Progress {
        self.reader.push(bytes, &mut self.writer, out);
        self.progress()
    }

    /// See [`AnswerReader::finish`].
    pub fn finish(&mut self, ending: Ending, out: &mut OutputBuffer) -> Progress {
        self.reader.finish(ending, &mut self.writer, out);
        self.progress()
    }

    /// See [`AnswerReader::whole`].
    pub fn whole(&mut self, body: &[u8], out: &mut OutputBuffer) -> Progress {
        self.reader.whole(body, &mut self.writer, out);
        self.progress()
    }

    /// See [`AnswerReader::fail`].
    pub fn fail(&mut self, failure: Failure, out: &mut OutputBuffer) -> Progress {
        self.reader.fail(failure, &mut self.writer, out);
        self.progress()
    }

    /// Returns the progress of the answer: whether content has come, and whether it has ended.
    pub fn progress(&self) -> Progress {
        self.writer.progress(self.reader.progress())
    }
}

impl AnswerReader {
    /// Creates the reader for the engine answer that gives this choice. `shape`: that of the whole answer, or of this
    /// choice.
    pub fn of_choice(choice: u32, shape: Shape, stamp: Stamp) -> Self {
        // Only Chat Completions and Completions have several choices, and neither has items.
        Self::new(shape.of_choice(choice), stamp, false)
    }

    /// Reads the next bytes of the engine's event stream and writes all output that is certain by now.
    pub fn push(&mut self, bytes: &[u8], writer: &mut AnswerWriter, out: &mut OutputBuffer) {
        let Self {
            framer,
            frames,
            choice,
            ..
        } = self;
        let to = &mut EncoderOutput {
            writer,
            out,
            choice: *choice,
        };
        framer.push(bytes, |found| frames.read(found, to));
        self.note_content(writer);
    }

    /// Ends the engine's event stream: handles an unterminated last event and writes the end of the answer, or a
    /// failure.
    pub fn finish(&mut self, ending: Ending, writer: &mut AnswerWriter, out: &mut OutputBuffer) {
        let Self {
            framer,
            frames,
            choice,
            ..
        } = self;
        let to = &mut EncoderOutput {
            writer,
            out,
            choice: *choice,
        };
        let complete = |data: &[u8]| {
            data.trim_ascii() == b"[DONE]"
                || std::str::from_utf8(data).is_ok_and(|text| Raw::of(text).is_some())
        };
        framer.finish(complete, |found| frames.read(found, to));
        frames.stages.end_of_input(ending, to);
        self.note_content(writer);
    }

    /// Rewrites an answer that is one complete JSON object instead of an event stream.
    pub fn whole(&mut self, body: &[u8], writer: &mut AnswerWriter, out: &mut OutputBuffer) {
        let Self { frames, choice, .. } = self;
        let (before, committed) = (out.mark(), writer.committed);
        let to = &mut EncoderOutput {
            writer,
            out,
            choice: *choice,
        };
        if let Some(parsing) = &mut frames.stages.parsing {
            parsing.expect_whole_body();
        }
        frames.read(
            FramerOutput::Frame(Frame {
                error: false,
                name: b"",
                data: body,
                whole: true,
            }),
            to,
        );
        frames.stages.end_of_input(Ending::Whole, to);
        // The whole answer is here: if it is broken, and nothing was sent before, nothing of it is written.
        if let Some(failure) = frames.stages.normaliser.failure().filter(|_| !committed) {
            drop(to.out.split_off(before));
            to.writer.committed = false;
            to.writer.failure = Some(failure.clone());
        }
        self.note_content(writer);
    }

    /// Fails the answer for a reason that the engine's bytes do not show, such as a timeout.
    pub fn fail(&mut self, failure: Failure, writer: &mut AnswerWriter, out: &mut OutputBuffer) {
        let choice = self.choice;
        self.frames.stages.fail(
            failure,
            &mut EncoderOutput {
                writer,
                out,
                choice,
            },
        );
    }

    /// Sets the key that the engine was sent.
    pub fn hide_key(&mut self, key: EngineKey) {
        self.frames.stages.normaliser.engine_key = Some(key);
    }

    /// Returns the failure of this engine answer, whether it became the HTTP answer or an error frame.
    pub fn failure(&self) -> Option<&Failure> {
        self.frames.stages.normaliser.failure()
    }

    /// Returns true if the engine may give fewer choices than requested, and the missing ones may be requested.
    pub fn may_lack(&self) -> bool {
        self.frames.stages.normaliser.may_lack()
    }

    /// Returns the part of an answer that ended with fewer choices than the client requested, until the end of the
    /// answer has been written.
    pub fn missing_choices(&self) -> Option<MissingChoices> {
        self.frames.stages.normaliser.lacks()
    }

    /// Fails an answer that the engine has ended and that is incomplete without what would follow: choices that are
    /// missing, or an answer to the outputs of its calls.
    pub fn fail_after_end(
        &mut self,
        failure: Failure,
        writer: &mut AnswerWriter,
        out: &mut OutputBuffer,
    ) {
        self.frames.stages.normaliser.reopen();
        self.fail(failure, writer, out);
    }

    /// Tells a merged answer that one of its parts has content.
    fn note_content(&self, writer: &mut AnswerWriter) {
        if let Some(merge) = &mut writer.merge {
            merge.has_content |= self.progress().has_content;
        }
    }

    /// Returns the progress of this engine answer.
    pub fn progress(&self) -> Progress {
        let normaliser = &self.frames.stages.normaliser;
        Progress {
            has_content: normaliser.spoken,
            ended: normaliser.is_ended(),
        }
    }

    /// Returns the index of the only choice, if the other choices come from separate answers; else 0.
    pub fn choice(&self) -> u32 {
        self.choice
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

    /// Returns the summary of this engine answer so far.
    pub fn summary(&self) -> Summary {
        let Self {
            frames: FrameReader { stages, events, .. },
            adapted,
            ..
        } = self;
        let parsing = stages.parsing.as_ref();
        Summary {
            usage: stages.normaliser.usage(),
            finishes: stages.normaliser.finishes().collect(),
            tally: stages.normaliser.tally.clone(),
            adapted: adapted.clone(),
            events: *events,
            unparsed: parsing.and_then(Parsing::unparsed),
            unread: stages.beginning.as_ref().and_then(Beginning::unread),
            reasoning_was_separate: parsing.is_some_and(Parsing::engine_sent_reasoning),
            template: parsing.map_or(TemplateFacts::UNKNOWN, Parsing::template),
        }
    }
}

impl FrameReader {
    fn read(&mut self, found: FramerOutput<'_>, to: &mut EncoderOutput<'_>) {
        let Self {
            fast_path,
            stages,
            events,
        } = self;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::options::{ContinuousUsage, Options};
    use crate::wire::{AnswerId, Api, Extensions};
    use std::sync::Arc;

    fn two() -> (AnswerWriter, impl Fn(u32) -> AnswerReader) {
        let shape = Shape {
            choices: 2,
            ..Shape::new(Api::Chat, true, Arc::default())
        };
        let stamp = Stamp {
            id: AnswerId(u128::MAX),
            ..Stamp::default()
        };
        let writer = AnswerWriter::merging(&shape, &stamp);
        (writer, move |choice| {
            AnswerReader::of_choice(choice, shape.clone(), stamp.clone())
        })
    }

    fn chunk(id: &str, delta: &str) -> Vec<u8> {
        format!("data: {{{id}\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n").into_bytes()
    }

    /// Checks that answers and calls without ids get different derived ids.
    #[test]
    fn what_is_made_of_an_id_is_not_made_twice() {
        let (mut writer, reader) = two();
        let mut out = OutputBuffer::default();
        let call = chunk(
            "",
            r#"{"tool_calls":[{"index":0,"function":{"name":"f"}}]}"#,
        );
        reader(0).push(&call, &mut writer, &mut out);
        reader(1).push(&call, &mut writer, &mut out);
        let text = String::from_utf8(out.to_vec()).unwrap();
        let ids: Vec<_> = text
            .match_indices("call_")
            .map(|(at, _)| &text[at..at + 33])
            .collect();
        assert!(ids.len() == 2 && ids[0] != ids[1], "{text}");
    }

    /// Checks that the first head stays when the answer that gave it is requested again and has another one.
    #[test]
    fn the_head_stays() {
        let (mut writer, reader) = two();
        let mut out = OutputBuffer::default();
        reader(0).push(
            &chunk("\"id\":\"a\",", r#"{"role":"assistant"}"#),
            &mut writer,
            &mut out,
        );
        for (choice, id) in [(0, "\"id\":\"b\","), (1, "\"id\":\"c\",")] {
            writer.restart(choice);
            let mut reader = reader(choice);
            reader.push(&chunk(id, r#"{"role":"assistant"}"#), &mut writer, &mut out);
            reader.push(&chunk(id, r#"{"content":"x"}"#), &mut writer, &mut out);
        }
        let text = String::from_utf8(out.to_vec()).unwrap();
        assert_eq!(text.matches("\"id\":\"chatcmpl-a\"").count(), 4, "{text}");
        assert_eq!(
            text.matches("data:").count(),
            4,
            "one role for each: {text}"
        );
    }

    /// Checks that the prompt's ids are sent once, and the counts of each chunk with its role frame.
    #[test]
    fn what_comes_with_the_roles() {
        let options = Options {
            continuous_usage: ContinuousUsage::Always,
            ..Options::default()
        };
        let shape = Shape {
            extensions: Extensions {
                token_ids: true,
                ..Extensions::default()
            },
            include_usage: true,
            choices: 2,
            ..Shape::new(Api::Chat, true, Arc::new(options))
        };
        let stamp = Stamp {
            id: AnswerId(u128::MAX),
            ..Stamp::default()
        };
        let mut writer = AnswerWriter::merging(&shape, &stamp);
        let usage = r#""prompt_token_ids":[7],"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5},"#;
        let mut out = OutputBuffer::default();
        for choice in 0..2 {
            let mut reader = AnswerReader::of_choice(choice, shape.clone(), stamp.clone());
            reader.push(&chunk(usage, r#"{"content":"x"}"#), &mut writer, &mut out);
        }
        let text = String::from_utf8(out.to_vec()).unwrap();
        let frames: Vec<_> = text.split_terminator("\n\n").collect();
        let ids: Vec<_> = frames
            .iter()
            .map(|frame| frame.contains(r#""prompt_token_ids":[7]"#))
            .collect();
        assert_eq!(ids, [true, false, false, false], "{text}");
        assert_eq!(
            text.matches(r#""completion_tokens":3"#).count(),
            4,
            "{text}"
        );
    }
}
