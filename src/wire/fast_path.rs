//! Frames that differ from the one before in nothing but their text.
//!
//! An engine spells hundreds of chunks of an answer alike, and all of them come out alike. Once two in a row have shown
//! it, the next ones are not taken apart: their text is checked and put between what stood around it.
//!
//! Takes: the data of a frame. Gives: its canonical frame. Remembers: the surroundings of the last text, in and out.
//! Never: guesses. A frame that differs in one other byte goes the long way, and the stencil is made anew.

use super::OutputBuffer;
use super::event::{Delta, Event, Riders};
use super::parse::TextRoute;
use super::rule::{Rule, Tally};
use super::sse::Frame;
use crate::json::{Text, leading_text};
use bytes::BytesMut;
use std::ops::Range;

/// Bytes around a text, beyond which it is not worth while.
const SURROUNDINGS: usize = 2048;
/// Stencils made in vain before it is given up.
const PATIENCE: u8 = 16;
/// A character of no text, to find where the encoder writes it. U+10FFFF is no character at all.
const MARK: &str = "\u{10ffff}";

/// What is known of the frame before.
#[derive(Debug, Default)]
pub(super) struct FastPath {
    template: Option<Template>,
    /// How many in a row were of no use.
    vain: u8,
}

/// The surroundings of a text.
#[derive(Debug, PartialEq, Eq)]
struct Template {
    choice: u32,
    /// How the text goes through what parses it.
    route: TextRoute,
    /// In the engine's frame, quotes included.
    before: Box<[u8]>,
    behind: Box<[u8]>,
    /// In the engine's frame, between the text and the same text once more; `None`: it is there once.
    repeats: Option<Box<[u8]>>,
    /// In the client's.
    front: Box<[u8]>,
    back: Box<[u8]>,
    /// In the client's, between the text and the same text once more (`reasoning_field = "both"`).
    again: Option<Box<[u8]>>,
    /// What each such frame counts.
    counts: Box<[(Rule, u32)]>,
    /// Two in a row were like this.
    proven: bool,
}

/// What a frame said on the long way.
#[derive(Debug, Default)]
pub(super) struct FrameShape {
    text: Option<(u32, TextField, Range<usize>)>,
    /// It said something that a stencil does not hold.
    more: bool,
}

/// Whose text it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextField {
    Content,
    Reasoning,
}

impl FrameShape {
    /// The frame says this in a choice.
    pub(super) fn delta(&mut self, data: &[u8], choice: u32, delta: &Delta<'_>) {
        let (voice, text) = match delta {
            Delta::Content(text) => (TextField::Content, text),
            Delta::Reasoning(text) => (TextField::Reasoning, text),
            // Its frame, if there is one, shows in what comes out.
            Delta::Role => return,
            _ => return self.more(),
        };
        match text.place_in(data) {
            Some(place) if self.text.is_none() => self.text = Some((choice, voice, place)),
            _ => self.more = true,
        }
    }

    /// The frame says this of the whole answer.
    pub(super) fn event(&mut self, event: &Event<'_>) {
        self.more |= !matches!(event, Event::Head(_));
    }

    /// The frame says something else.
    pub(super) fn more(&mut self) {
        self.more = true;
    }
}

impl FastPath {
    /// Writes the frame if it is like those before, and counts what it counts. `lane`: how the text of a choice goes through
    /// what parses it.
    #[inline]
    pub(super) fn fill(
        &self,
        frame: &Frame<'_>,
        out: &mut BytesMut,
        tally: &mut Tally,
        route: impl FnOnce(u32, &str) -> Option<TextRoute>,
    ) -> bool {
        let Some(template) = self.template.as_ref().filter(|template| template.proven && !frame.error) else {
            return false;
        };
        let Some(text) = template.text_in(frame.data) else { return false };
        if route(template.choice, text) != Some(template.route) {
            return false;
        }
        let again = template.again.as_ref().map_or(0, |again| again.len() + text.len());
        out.reserve(template.front.len() + text.len() + again + template.back.len());
        out.extend_from_slice(&template.front);
        Text::json(text).write(out);
        if let Some(again) = &template.again {
            out.extend_from_slice(again);
            Text::json(text).write(out);
        }
        out.extend_from_slice(&template.back);
        for (rule, times) in &template.counts {
            tally.add(*rule, *times);
        }
        true
    }

    /// Whether it is still worth while to look at frames that went the long way.
    pub(super) fn is_learning(&self) -> bool {
        self.vain < PATIENCE
    }

    /// A frame has gone the long way: it said this, `written` came out, and it counted so much. `encode`: what the encoder
    /// writes for a delta, where the delta alone decides that.
    pub(super) fn learn(
        &mut self,
        frame: &Frame<'_>,
        said: &FrameShape,
        written: &[u8],
        counts: impl Iterator<Item = (Rule, u32)>,
        route: impl FnOnce(u32, &str) -> Option<TextRoute>,
        encode: impl FnOnce(Event<'_>, &mut OutputBuffer),
    ) {
        let known = self.template.take();
        let Some(mut template) = Template::of(frame.data, said, written, route, encode) else { return };
        template.counts = counts.collect();
        template.proven = known.is_some_and(|known| Template { proven: false, ..known } == template);
        self.vain = if template.proven { 0 } else { self.vain + 1 };
        self.template = Some(template);
    }
}

impl Template {
    fn of(
        data: &[u8],
        said: &FrameShape,
        written: &[u8],
        route: impl FnOnce(u32, &str) -> Option<TextRoute>,
        encode: impl FnOnce(Event<'_>, &mut OutputBuffer),
    ) -> Option<Self> {
        let (choice, voice, place) = said.text.clone().filter(|_| !said.more)?;
        let (before, text, behind) =
            (data.get(..place.start)?, data.get(place.clone())?, data.get(place.end..)?);
        if before.len() + behind.len() > SURROUNDINGS
            || !before.ends_with(b"\"")
            || !behind.starts_with(b"\"")
        {
            return None;
        }
        let mark = Text::plain(MARK);
        let text = std::str::from_utf8(text).ok()?;
        let route = route(choice, text)?;
        let delta = match (voice, route) {
            (TextField::Content, TextRoute::Plain | TextRoute::Content) => Delta::Content(mark),
            (TextField::Reasoning, TextRoute::Plain) | (TextField::Content, TextRoute::Reasoning) => {
                Delta::Reasoning(mark)
            }
            (TextField::Reasoning, _) => return None,
        };
        let mut frame = OutputBuffer::default();
        encode(Event::Delta { choice, delta, riders: Riders::default() }, &mut frame);
        let frame = frame.join();
        let Marked { front, again, back } = around_marks(&frame)?;
        let mut spelled = BytesMut::new();
        Text::json(text).write(&mut spelled);
        let mut expected = vec![front, &spelled];
        again.into_iter().for_each(|again| expected.extend([again, &spelled]));
        expected.push(back);
        let (repeats, behind) = match voice {
            TextField::Reasoning => repeated(behind, text),
            TextField::Content => (None, behind),
        };
        (written == expected.concat()).then(|| Self {
            choice,
            route,
            before: before.into(),
            behind: behind.into(),
            repeats: repeats.map(Into::into),
            front: front.into(),
            back: back.into(),
            again: again.map(Into::into),
            counts: Box::default(),
            proven: false,
        })
    }

    /// The text, in JSON spelling, of a frame that differs in nothing else.
    #[inline]
    fn text_in<'a>(&self, data: &'a [u8]) -> Option<&'a str> {
        let rest = std::str::from_utf8(data.strip_prefix(&*self.before)?).ok()?;
        let text = leading_text(rest).filter(|text| !text.is_empty())?;
        let mut behind = rest.as_bytes().get(text.len()..)?;
        if let Some(repeats) = &self.repeats {
            behind = behind.strip_prefix(&**repeats)?.strip_prefix(text.as_bytes())?;
        }
        (behind == &*self.behind).then_some(text)
    }
}

/// A written frame around the marks that stand for its text.
struct Marked<'f> {
    front: &'f [u8],
    /// The bytes between the marks, where the text is written twice.
    again: Option<&'f [u8]>,
    back: &'f [u8],
}

/// Splits what the encoder wrote at its one or two marks.
fn around_marks(frame: &[u8]) -> Option<Marked<'_>> {
    let mut marks = memchr::memmem::find_iter(frame, MARK);
    let (first, second) = (marks.next()?, marks.next());
    if marks.next().is_some() {
        return None;
    }
    let again = second.and_then(|second| frame.get(first + MARK.len()..second));
    let back = frame.get(second.unwrap_or(first) + MARK.len()..)?;
    Some(Marked { front: frame.get(..first)?, again, back })
}

/// Splits what stands behind reasoning text if the same text follows directly under the other name: an engine, or another
/// samewire, may write both.
fn repeated<'d>(behind: &'d [u8], text: &str) -> (Option<&'d [u8]>, &'d [u8]) {
    const OTHER: &[u8] = b"\",\"reasoning\":\"";
    let once_more = behind.strip_prefix(OTHER).and_then(|rest| rest.strip_prefix(text.as_bytes()));
    match once_more.filter(|rest| rest.starts_with(b"\"")) {
        Some(rest) => (behind.get(..OTHER.len()), rest),
        None => (None, behind),
    }
}

#[cfg(test)]
mod tests {
    use crate::wire::options::Options;
    use crate::wire::{Api, EngineParsers, Offer, OutputBuffer, Rewriter, Script, Shape, Stamp};
    use std::sync::Arc;

    /// Whether the next frame like the last would take the short way.
    fn is_ready(rewriter: &Rewriter) -> bool {
        rewriter.core.fast_path.template.as_ref().is_some_and(|template| template.proven)
    }

    #[test]
    fn the_third_of_a_kind_takes_the_short_way() {
        let mut rewriter = Rewriter::new(Shape::new(Api::Chat, true, Default::default()), Stamp::default());
        let mut out = OutputBuffer::default();
        let chunk = |delta: &str| {
            format!("data: {{\"id\":\"a\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}}}}]}}\n\n")
        };
        let mut ready = |delta: &str| {
            rewriter.push(chunk(delta).as_bytes(), &mut out);
            is_ready(&rewriter)
        };
        // The first one brings the role with it.
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

    /// A short way writes what the long way does, under however many names.
    #[test]
    fn reasoning_under_each_name_is_the_same_on_the_short_way() {
        use crate::wire::options::ReasoningField;
        for (field, expected) in [
            (ReasoningField::ReasoningContent, r#"{"reasoning_content":"é\n"}"#),
            (ReasoningField::Reasoning, r#"{"reasoning":"é\n"}"#),
            (ReasoningField::Both, r#"{"reasoning_content":"é\n","reasoning":"é\n"}"#),
        ] {
            for delta in [r#""reasoning":"é\n""#, r#""reasoning_content":"é\n","reasoning":"é\n""#] {
                let options = Options { reasoning_field: field, ..Options::default() };
                let mut rewriter =
                    Rewriter::new(Shape::new(Api::Chat, true, Arc::new(options)), Stamp::default());
                let mut out = OutputBuffer::default();
                for _ in 0..6 {
                    let chunk = format!(
                        "data: {{\"id\":\"a\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}}}}]}}\n\n"
                    );
                    rewriter.push(chunk.as_bytes(), &mut out);
                }
                assert!(is_ready(&rewriter), "{field:?} {delta}");
                let text = String::from_utf8(out.copied()).unwrap();
                assert_eq!(text.matches(expected).count(), 6, "{text}");
            }
        }
    }

    /// Text that is parsed takes it where there is nothing to look at.
    #[test]
    fn parsed_text_takes_the_short_way_between_its_marks() {
        let parser = "qwen3".to_owned().try_into().unwrap();
        let options = Options { parser, ..Options::default() };
        let offer = Offer { tools: r#"[{"function":{"name":"f"}}]"#, ..Offer::default() };
        let script = Script::of(&options, "m", offer, EngineParsers::default()).map(Arc::new);
        let shape = Shape { script, ..Shape::new(Api::Chat, true, Arc::new(options)) };
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
            let all = String::from_utf8(out.copied()).unwrap();
            let new = all.strip_prefix(&said).unwrap();
            assert!(
                new.contains(becomes) && (becomes.is_empty() || new.matches("data:").count() > 0),
                "{text}: {new}"
            );
            said = all;
        }
    }
}
