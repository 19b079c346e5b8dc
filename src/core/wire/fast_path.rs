//! Fast path: rewrites frames that differ from the one before in nothing but their text.
//!
//! An engine spells hundreds of chunks of an answer alike, and their canonical frames are alike too. Once two frames
//! in a row have confirmed a template, later frames are not decoded: their text is validated and copied into the
//! template.
//!
//! Takes: a frame, and the stages that decode it. Gives: its canonical frame. Remembers: the bytes around the last
//! text, in input and output. Never: guesses. A frame that differs in any other byte is decoded normally, and the
//! template is built anew.

use super::OutputBuffer;
use super::encode::Encode;
use super::event::Delta;
use super::normalise::EncoderOutput;
use super::parse::{TextField, TextRoute};
use super::rule::{Rule, Tally};
use super::sse::Frame;
use super::stages::{FrameShape, Stages};
use crate::json::{Text, leading_text};
use bytes::BytesMut;
use std::ops::Range;

/// Most bytes around a text, in the engine's frame, for which a template is worthwhile.
const TEMPLATE_LIMIT: usize = 2048;
/// Number of useless templates in a row after which the fast path is disabled for the answer.
const MAX_UNCONFIRMED: u8 = 16;
/// Placeholder for the text in an encoded frame, to find where the encoder writes it. U+10FFFF is a noncharacter,
/// which ordinary text never contains.
const PLACEHOLDER: &str = "\u{10ffff}";

/// Fast path of one answer: the template learned from the last frame, if it could be learned.
#[derive(Debug, Default)]
pub(super) struct FastPath {
    template: Option<FrameTemplate>,
    /// Number of templates in a row that were not confirmed.
    unconfirmed: u8,
}

/// Template: the bytes around a text, in the engine's frame and in the canonical one, and the conditions of its use.
#[derive(Debug)]
struct FrameTemplate {
    choice: u32,
    /// Field in which the engine sends the text.
    field: TextField,
    /// Route that the text must take through the parser of unparsed text.
    route: TextRoute,
    /// Bytes before the text in the engine's frame, and after it in `after`, quotes included.
    before: Box<[u8]>,
    after: Box<[u8]>,
    /// Bytes in the engine's frame between the text and its repetition; `None`: the text occurs once.
    repeats: Option<Box<[u8]>>,
    /// Bytes before the text in the client's frame, and after it in `output_after`.
    output_before: Box<[u8]>,
    output_after: Box<[u8]>,
    /// Bytes in the client's frame between the text and its repetition (`reasoning_field = "both"`).
    output_between: Option<Box<[u8]>>,
    /// Rules that each such frame counts in the tally, with how often.
    counts: Box<[(Rule, u32)]>,
    /// True once the next frame has confirmed the template.
    proven: bool,
}

impl FastPath {
    /// Writes what a frame means to the client: from the template if the frame fits it, else by the stages.
    #[inline]
    pub(super) fn frame(
        &mut self,
        frame: Frame<'_>,
        stages: &mut Stages,
        to: &mut EncoderOutput<'_>,
    ) {
        if !self.fill(&frame, stages, to) {
            self.decode(frame, stages, to);
        }
    }

    /// Writes the frame and counts its rules if the template fits; returns false if the frame must be decoded.
    #[inline]
    fn fill(&self, frame: &Frame<'_>, stages: &mut Stages, to: &mut EncoderOutput<'_>) -> bool {
        let Some(template) = self
            .template
            .as_ref()
            .filter(|template| template.proven && !frame.error)
        else {
            return false;
        };
        let Some(text) = template.text_in(frame.data) else {
            return false;
        };
        if stages.route(template.choice, template.field, text) != Some(template.route)
            || stages.normaliser.is_stopped(template.choice)
        {
            return false;
        }
        let out = to.out.open();
        let written = template.write(text, out);
        to.writer
            .encoder
            .filled(out.get(written).unwrap_or_default());
        for (rule, times) in &template.counts {
            stages.normaliser.tally.add(*rule, *times);
        }
        stages
            .normaliser
            .watch(template.choice, &Text::json(text), to);
        true
    }

    /// Decodes a frame, and learns a template from it while that is still worthwhile.
    fn decode(&mut self, frame: Frame<'_>, stages: &mut Stages, to: &mut EncoderOutput<'_>) {
        let learns = to.writer.is_plain() && self.unconfirmed < MAX_UNCONFIRMED;
        let known = learns.then(|| stages.normaliser.tally.clone());
        let start = to.out.open().len();
        let shape = stages.frame(frame, to);
        let Some(known) = known else { return };
        let written = to.out.open().get(start..).unwrap_or_default();
        if let Some(template) = &mut self.template
            && template.is_confirmed_by(frame.data, &shape, written, stages, &known)
        {
            (template.proven, self.unconfirmed) = (true, 0);
            return;
        }
        self.template =
            FrameTemplate::of(frame.data, &shape, written, stages, &mut *to.writer.encoder);
        if let Some(template) = &mut self.template {
            template.counts = stages.normaliser.tally.since(&known).collect();
            self.unconfirmed += 1;
        }
    }
}

impl FrameTemplate {
    /// Makes a template from a decoded frame and its output; `None` if the output is more than the frame's text.
    /// `encoder`: its output for a delta depends on the delta alone.
    fn of(
        data: &[u8],
        shape: &FrameShape,
        written: &[u8],
        stages: &Stages,
        encoder: &mut dyn Encode,
    ) -> Option<Self> {
        let (choice, field, place) = shape.text.clone().filter(|_| !shape.has_other_content)?;
        let (before, text, after) = (
            data.get(..place.start)?,
            data.get(place.clone())?,
            data.get(place.end..)?,
        );
        if before.len() + after.len() > TEMPLATE_LIMIT
            || !before.ends_with(b"\"")
            || !after.starts_with(b"\"")
        {
            return None;
        }
        let mark = Text::plain(PLACEHOLDER);
        let text = std::str::from_utf8(text).ok()?;
        let route = stages.route(choice, field, text)?;
        let delta = match (field, route) {
            (TextField::Content, TextRoute::Plain | TextRoute::Content) => Delta::Content(mark),
            (TextField::Reasoning, TextRoute::Plain)
            | (TextField::Content, TextRoute::Reasoning) => Delta::Reasoning(mark),
            (TextField::Reasoning, _) => return None,
        };
        let mut frame = OutputBuffer::default();
        encoder.template(choice, delta, &mut frame);
        let frame = frame.join();
        let SplitFrame { front, again, back } = around_marks(&frame)?;
        let mut spelled = BytesMut::new();
        Text::json(text).write(&mut spelled);
        let mut expected = vec![front, &spelled];
        again
            .into_iter()
            .for_each(|again| expected.extend([again, &spelled]));
        expected.push(back);
        let (repeats, after) = match field {
            TextField::Reasoning => repeated(after, text),
            TextField::Content => (None, after),
        };
        (written == expected.concat()).then(|| Self {
            choice,
            field,
            route,
            before: before.into(),
            after: after.into(),
            repeats: repeats.map(Into::into),
            output_before: front.into(),
            output_after: back.into(),
            output_between: again.map(Into::into),
            counts: Box::default(),
            proven: false,
        })
    }

    /// Returns true if the template would have written a decoded frame as the stages have, and counted the same.
    fn is_confirmed_by(
        &self,
        data: &[u8],
        shape: &FrameShape,
        written: &[u8],
        stages: &Stages,
        known: &Tally,
    ) -> bool {
        let is_alike = shape.text.as_ref().is_some_and(|(choice, _, place)| {
            (*choice, place.start) == (self.choice, self.before.len()) && !shape.has_other_content
        });
        let Some(text) = self.text_in(data).filter(|_| is_alike) else {
            return false;
        };
        let mut expected = BytesMut::new();
        self.write(text, &mut expected);
        expected == written
            && stages.route(self.choice, self.field, text) == Some(self.route)
            && self
                .counts
                .iter()
                .copied()
                .eq(stages.normaliser.tally.since(known))
    }

    /// Writes the client's frame with a text in JSON spelling, and returns where the text is.
    #[inline]
    fn write(&self, text: &str, out: &mut BytesMut) -> Range<usize> {
        let again = self
            .output_between
            .as_ref()
            .map_or(0, |again| again.len() + text.len());
        out.reserve(self.output_before.len() + text.len() + again + self.output_after.len());
        out.extend_from_slice(&self.output_before);
        let start = out.len();
        Text::json(text).write(out);
        let written = start..out.len();
        if let Some(again) = &self.output_between {
            out.extend_from_slice(again);
            Text::json(text).write(out);
        }
        out.extend_from_slice(&self.output_after);
        written
    }

    /// Returns the text, in JSON spelling, if the frame differs from the template in nothing else.
    #[inline]
    fn text_in<'a>(&self, data: &'a [u8]) -> Option<&'a str> {
        let rest = std::str::from_utf8(data.strip_prefix(&*self.before)?).ok()?;
        let text = leading_text(rest).filter(|text| !text.is_empty())?;
        let mut after = rest.as_bytes().get(text.len()..)?;
        if let Some(repeats) = &self.repeats {
            after = after
                .strip_prefix(&**repeats)?
                .strip_prefix(text.as_bytes())?;
        }
        (after == &*self.after).then_some(text)
    }
}

/// Parts of an encoded frame around the placeholders for its text.
struct SplitFrame<'f> {
    front: &'f [u8],
    /// Bytes between the two placeholders, if the text is written twice.
    again: Option<&'f [u8]>,
    back: &'f [u8],
}

/// Splits an encoded frame at its one or two placeholders; `None` if it has none, or more than two.
fn around_marks(frame: &[u8]) -> Option<SplitFrame<'_>> {
    let mut marks = memchr::memmem::find_iter(frame, PLACEHOLDER);
    let (first, second) = (marks.next()?, marks.next());
    if marks.next().is_some() {
        return None;
    }
    let again = second.and_then(|second| frame.get(first + PLACEHOLDER.len()..second));
    let back = frame.get(second.unwrap_or(first) + PLACEHOLDER.len()..)?;
    Some(SplitFrame {
        front: frame.get(..first)?,
        again,
        back,
    })
}

/// Splits the bytes after a reasoning text if the same text follows directly under the other name: an engine, or
/// another samewire, may write both.
fn repeated<'d>(after: &'d [u8], text: &str) -> (Option<&'d [u8]>, &'d [u8]) {
    const OTHER: &[u8] = b"\",\"reasoning\":\"";
    let once_more = after
        .strip_prefix(OTHER)
        .and_then(|rest| rest.strip_prefix(text.as_bytes()));
    match once_more.filter(|rest| rest.starts_with(b"\"")) {
        Some(rest) => (after.get(..OTHER.len()), rest),
        None => (None, after),
    }
}

#[cfg(test)]
mod tests {
    use crate::wire::options::{Options, ThinkMode};
    use crate::wire::{
        Api, EngineFacts, OutputBuffer, OutputConstraints, Rewriter, Shape, Stamp, TextFormat,
    };
    use std::sync::Arc;

    /// Returns true if the next frame like the last would take the fast path.
    fn is_ready(rewriter: &Rewriter) -> bool {
        rewriter
            .reader
            .frames
            .fast_path
            .template
            .as_ref()
            .is_some_and(|template| template.proven)
    }

    #[test]
    fn the_third_of_a_kind_takes_the_short_way() {
        let mut rewriter = Rewriter::new(
            Shape::new(Api::Chat, true, Default::default()),
            Stamp::default(),
        );
        let mut out = OutputBuffer::default();
        let chunk = |delta: &str| {
            format!(
                "data: {{\"id\":\"a\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}}}}]}}\n\n"
            )
        };
        let mut ready = |delta: &str| {
            rewriter.push(chunk(delta).as_bytes(), &mut out);
            is_ready(&rewriter)
        };
        // The first frame also causes a role frame.
        for (delta, expected) in [
            (r#""content":"a""#, false),
            (r#""content":"b""#, false),
            (r#""content":"\n""#, true),
            (r#""content":"c""#, true),
            (r#""reasoning":"c""#, false),
            (r#""reasoning":"d""#, true),
            (r#""reasoning":"""#, false),
            (r#""reasoning":"e""#, false),
            (r#""reasoning":"f""#, true),
            (r#""reasoning":"f","content":"g""#, false),
            (r#""reasoning":"f","content":"h""#, false),
            (r#""reasoning_content":"g","reasoning":"g""#, false),
            (r#""reasoning_content":"h","reasoning":"h""#, true),
            (r#""reasoning_content":"\"","reasoning":"\"""#, true),
            (r#""reasoning_content":"i","reasoning":"j""#, false),
        ] {
            assert_eq!(ready(delta), expected, "{delta}");
        }
    }

    /// Checks that the fast path writes the same as decoding does, under one name or both.
    #[test]
    fn reasoning_under_each_name_is_the_same_on_the_short_way() {
        use crate::wire::options::ReasoningField;
        for (field, expected) in [
            (
                ReasoningField::ReasoningContent,
                r#"{"reasoning_content":"é\n"}"#,
            ),
            (ReasoningField::Reasoning, r#"{"reasoning":"é\n"}"#),
            (
                ReasoningField::Both,
                r#"{"reasoning_content":"é\n","reasoning":"é\n"}"#,
            ),
        ] {
            for delta in [
                r#""reasoning":"é\n""#,
                r#""reasoning_content":"é\n","reasoning":"é\n""#,
            ] {
                let options = Options {
                    reasoning_field: field,
                    ..Options::default()
                };
                let mut rewriter = Rewriter::new(
                    Shape::new(Api::Chat, true, Arc::new(options)),
                    Stamp::default(),
                );
                let mut out = OutputBuffer::default();
                for _ in 0..6 {
                    let chunk = format!(
                        "data: {{\"id\":\"a\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}}}}]}}\n\n"
                    );
                    rewriter.push(chunk.as_bytes(), &mut out);
                }
                assert!(is_ready(&rewriter), "{field:?} {delta}");
                let text = String::from_utf8(out.to_vec()).unwrap();
                assert_eq!(text.matches(expected).count(), 6, "{text}");
            }
        }
    }

    /// Checks that parsed text takes the fast path if it holds nothing to parse.
    #[test]
    fn parsed_text_takes_the_short_way_between_its_marks() {
        let parser = "qwen3".to_owned().try_into().unwrap();
        let options = Options {
            parser,
            ..Options::default()
        };
        let offer = OutputConstraints {
            tools: r#"[{"function":{"name":"f"}}]"#,
            ..OutputConstraints::default()
        };
        let script = TextFormat::of(&options, "m", offer, EngineFacts::default()).map(Arc::new);
        let shape = Shape {
            script,
            ..Shape::new(Api::Chat, true, Arc::new(options))
        };
        let mut rewriter = Rewriter::new(shape, Stamp::default());
        let mut out = OutputBuffer::default();
        let mut said = String::new();
        for (text, expected, becomes) in [
            ("<think>", false, ""),
            ("a", false, "reasoning_content\":\"a\""),
            ("b", true, "reasoning_content\":\"b\""),
            ("c", true, "reasoning_content\":\"c\""),
            ("d", true, "reasoning_content\":\"d\""),
            ("\\u003c/think>", false, ""),
            ("e", false, "\"content\":\"e\""),
            ("f", true, "\"content\":\"f\""),
            ("g <", false, "\"content\":\"g \""),
            ("h", false, "\"content\":\"<h\""),
            ("i", false, "\"content\":\"i\""),
            ("j", true, "\"content\":\"j\""),
            ("<tool_call>{\\\"name\\\":\\\"f\\\"", false, ""),
            ("}", false, "\"arguments\":\"{}\""),
        ] {
            let chunk = format!(
                "data: {{\"id\":\"a\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"
            );
            rewriter.push(chunk.as_bytes(), &mut out);
            assert_eq!(is_ready(&rewriter), expected, "{text}");
            let all = String::from_utf8(out.to_vec()).unwrap();
            let new = all.strip_prefix(&said).unwrap();
            assert!(
                new.contains(becomes) && (becomes.is_empty() || new.matches("data:").count() > 0),
                "{text}: {new}"
            );
            said = all;
        }
    }

    /// Checks that an escape in a tag is read where only the option `think` looks for reasoning.
    #[test]
    fn an_escaped_tag_does_not_take_the_short_way() {
        let mut options = Options {
            parser: "off".to_owned().try_into().unwrap(),
            ..Options::default()
        };
        options.think.mode = ThinkMode::Auto;
        let offer = OutputConstraints::default();
        let script = TextFormat::of(&options, "m", offer, EngineFacts::default()).map(Arc::new);
        let shape = Shape {
            script,
            ..Shape::new(Api::Chat, true, Arc::new(options))
        };
        let mut rewriter = Rewriter::new(shape, Stamp::default());
        let mut out = OutputBuffer::default();
        for text in ["<think>", "a", "b", "c", "\\u003c/think>", "d"] {
            let chunk = format!(
                "data: {{\"id\":\"a\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"
            );
            rewriter.push(chunk.as_bytes(), &mut out);
        }
        let all = String::from_utf8(out.to_vec()).unwrap();
        assert!(
            all.contains(r#"{"content":"d"}"#) && !all.contains("think>"),
            "{all}"
        );
    }
}
