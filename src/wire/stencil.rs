//! Frames that differ from the one before in nothing but their text.
//!
//! An engine spells hundreds of chunks of an answer alike, and all of them come out alike. Once two in a row have shown
//! it, the next ones are not taken apart: their text is checked and put between what stood around it.
//!
//! Takes: the data of a frame. Gives: its canonical frame. Remembers: the surroundings of the last text, in and out.
//! Never: guesses. A frame that differs in one other byte goes the long way, and the stencil is made anew.

use super::Out;
use super::event::{Delta, Event, Riders};
use super::parse::Lane;
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
pub(super) struct Stencil {
    cut: Option<Cut>,
    /// How many in a row were of no use.
    vain: u8,
}

/// The surroundings of a text.
#[derive(Debug, PartialEq, Eq)]
struct Cut {
    choice: u32,
    /// How the text goes through what parses it.
    lane: Lane,
    /// In the engine's frame, quotes included.
    before: Box<[u8]>,
    behind: Box<[u8]>,
    /// In the client's.
    front: Box<[u8]>,
    back: Box<[u8]>,
    /// What each such frame counts.
    counts: Box<[(Rule, u32)]>,
    /// Two in a row were like this.
    proven: bool,
}

/// What a frame said on the long way.
#[derive(Debug, Default)]
pub(super) struct Said {
    text: Option<(u32, Voice, Range<usize>)>,
    /// It said something that a stencil does not hold.
    more: bool,
}

/// Whose text it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    Content,
    Reasoning,
}

impl Said {
    /// The frame says this in a choice.
    pub(super) fn delta(&mut self, data: &[u8], choice: u32, delta: &Delta<'_>) {
        let (voice, text) = match delta {
            Delta::Content(text) => (Voice::Content, text),
            Delta::Reasoning(text) => (Voice::Reasoning, text),
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

impl Stencil {
    /// Writes the frame if it is like those before, and counts what it counts. `lane`: how the text of a choice goes through
    /// what parses it.
    #[inline]
    pub(super) fn fill(
        &self,
        frame: &Frame<'_>,
        out: &mut BytesMut,
        tally: &mut Tally,
        lane: impl FnOnce(u32, &str) -> Option<Lane>,
    ) -> bool {
        let Some(cut) = self.cut.as_ref().filter(|cut| cut.proven && !frame.error) else { return false };
        let Some(text) = cut.text_in(frame.data) else { return false };
        if lane(cut.choice, text) != Some(cut.lane) {
            return false;
        }
        out.reserve(cut.front.len() + text.len() + cut.back.len());
        out.extend_from_slice(&cut.front);
        Text::json(text).write(out);
        out.extend_from_slice(&cut.back);
        for (rule, times) in &cut.counts {
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
        said: &Said,
        written: &[u8],
        counts: impl Iterator<Item = (Rule, u32)>,
        lane: impl FnOnce(u32, &str) -> Option<Lane>,
        encode: impl FnOnce(Event<'_>, &mut Out),
    ) {
        let known = self.cut.take();
        let Some(mut cut) = Cut::of(frame.data, said, written, lane, encode) else { return };
        cut.counts = counts.collect();
        cut.proven = known.is_some_and(|known| Cut { proven: false, ..known } == cut);
        self.vain = if cut.proven { 0 } else { self.vain + 1 };
        self.cut = Some(cut);
    }
}

impl Cut {
    fn of(
        data: &[u8],
        said: &Said,
        written: &[u8],
        lane: impl FnOnce(u32, &str) -> Option<Lane>,
        encode: impl FnOnce(Event<'_>, &mut Out),
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
        let lane = lane(choice, text)?;
        let delta = match (voice, lane) {
            (Voice::Content, Lane::Plain | Lane::Content) => Delta::Content(mark),
            (Voice::Reasoning, Lane::Plain) | (Voice::Content, Lane::Reasoning) => Delta::Reasoning(mark),
            (Voice::Reasoning, _) => return None,
        };
        let mut frame = Out::default();
        encode(Event::Delta { choice, delta, riders: Riders::default() }, &mut frame);
        let frame = frame.join();
        let mut marks = memchr::memmem::find_iter(&frame, MARK);
        let at = marks.next().filter(|_| marks.next().is_none())?;
        let (front, back) = (frame.get(..at)?, frame.get(at + MARK.len()..)?);
        let mut spelled = BytesMut::new();
        Text::json(text).write(&mut spelled);
        let inner = written.strip_prefix(front)?.strip_suffix(back)?;
        (inner == &spelled[..]).then(|| Self {
            choice,
            lane,
            before: before.into(),
            behind: behind.into(),
            front: front.into(),
            back: back.into(),
            counts: Box::default(),
            proven: false,
        })
    }

    /// The text, in JSON spelling, of a frame that differs in nothing else.
    #[inline]
    fn text_in<'a>(&self, data: &'a [u8]) -> Option<&'a str> {
        let rest = std::str::from_utf8(data.strip_prefix(&*self.before)?).ok()?;
        let text = leading_text(rest).filter(|text| !text.is_empty())?;
        (rest.as_bytes().get(text.len()..)? == &*self.behind).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use crate::wire::options::Options;
    use crate::wire::{Api, EngineParsers, Offer, Out, Rewriter, Script, Shape, Stamp};
    use std::sync::Arc;

    /// Whether the next frame like the last would take the short way.
    fn is_ready(rewriter: &Rewriter) -> bool {
        rewriter.core.stencil.cut.as_ref().is_some_and(|cut| cut.proven)
    }

    #[test]
    fn the_third_of_a_kind_takes_the_short_way() {
        let mut rewriter = Rewriter::new(Shape::new(Api::Chat, true, Default::default()), Stamp::default());
        let mut out = Out::default();
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
        ] {
            assert_eq!(ready(delta), expected, "{delta}");
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
        let mut out = Out::default();
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
