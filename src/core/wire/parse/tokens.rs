//! Token ids of an answer in Harmony, if the engine sends them (wire-format 6). They yield the same messages as the
//! text, except that characters that only look like a marker remain text.
//!
//! Takes: the token ids of one chunk after another. Gives: markers and ordinary text. Remembers: bytes of an
//! incomplete character, and token ids of chunks without text, which count only after a chunk with text has shown
//! that the engine does not parse the answer itself.

use super::vocabulary::Vocabulary;
use crate::json::{self, Raw, integer};
use crate::wire::TOKEN_IDS;
use crate::wire::event::FrameExtras;
use std::sync::Arc;

/// Marker of the Harmony format, as one of its special tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Start,
    Channel,
    Constrain,
    Message,
    Stop,
}

/// Queue limit for token ids of chunks without text; further ones are dropped.
const WAITING: usize = 4096;

/// Token ids above the ordinary ones. Those that are no message markers produce no text.
const SPECIAL: std::ops::Range<u32> = 199_998..201_088;

const MARKERS: [(u32, Marker); 8] = [
    (199_999, Marker::Stop),
    (200_002, Marker::Stop),
    (200_003, Marker::Constrain),
    (200_005, Marker::Channel),
    (200_006, Marker::Start),
    (200_007, Marker::Stop),
    (200_008, Marker::Message),
    (200_012, Marker::Stop),
];

/// Translator from the token ids of one choice to text and markers.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    vocabulary: Arc<Vocabulary>,
    waiting: Vec<u32>,
    /// Bytes of a character that is not yet complete.
    bytes: Vec<u8>,
    /// True if the first chunk with text had no token ids: the text alone counts from then on.
    has_none: bool,
    /// True once a chunk with text has had token ids.
    has_some: bool,
}

/// Meaning of one or more tokens.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TokenMeaning {
    Marker(Marker),
    Text(String),
}

impl Tokens {
    pub(super) fn new(vocabulary: Arc<Vocabulary>) -> Self {
        Self {
            vocabulary,
            waiting: Vec::new(),
            bytes: Vec::new(),
            has_none: false,
            has_some: false,
        }
    }

    /// Queues the token ids of a chunk that has no text, or text that the model did not write.
    pub(super) fn wait(&mut self, extras: &FrameExtras<'_>) {
        let room = WAITING.saturating_sub(self.waiting.len());
        self.waiting
            .extend(token_ids(extras).into_iter().flatten().take(room));
    }

    /// Translates the token ids of a chunk with text, preceded by the queued ones. Returns `None` if the engine
    /// sends no token ids, so that the text itself has to be parsed.
    pub(super) fn read(&mut self, extras: &FrameExtras<'_>) -> Option<Vec<TokenMeaning>> {
        let own = token_ids(extras).filter(|own| !own.is_empty());
        self.has_none |= own.is_none() && !self.has_some;
        let own = own.filter(|_| !self.has_none)?;
        self.has_some = true;
        let mut all = std::mem::take(&mut self.waiting);
        all.extend(own);
        Some(self.translate(&all))
    }

    /// Translates the queued token ids at the end of the answer. Returns nothing if no chunk with text had token
    /// ids.
    pub(super) fn end(&mut self) -> Vec<TokenMeaning> {
        let waiting = std::mem::take(&mut self.waiting);
        if !self.has_some {
            return Vec::new();
        }
        let mut all = self.translate(&waiting);
        all.extend(self.incomplete());
        all
    }

    fn translate(&mut self, tokens: &[u32]) -> Vec<TokenMeaning> {
        let mut all = Vec::new();
        for token in tokens {
            let marker = MARKERS
                .iter()
                .find(|(id, _)| id == token)
                .map(|(_, marker)| *marker);
            if let Some(marker) = marker {
                all.extend(self.complete());
                all.extend(self.incomplete());
                all.push(TokenMeaning::Marker(marker));
            } else if let Some(bytes) = self.vocabulary.token(*token) {
                self.bytes.extend_from_slice(bytes);
            } else if !SPECIAL.contains(token) {
                self.bytes.extend_from_slice("\u{fffd}".as_bytes());
            }
        }
        all.extend(self.complete());
        all
    }

    /// Takes the buffered bytes as text, except for an incomplete character at their end. Invalid bytes become
    /// U+FFFD.
    fn complete(&mut self) -> Option<TokenMeaning> {
        let mut text = String::new();
        let mut kept = 0;
        for chunk in self.bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            let end = kept + chunk.valid().len() + chunk.invalid().len();
            let cut = end == self.bytes.len() && is_cut(chunk.invalid());
            if !chunk.invalid().is_empty() && !cut {
                text.push('\u{fffd}');
            }
            kept = if cut { kept + chunk.valid().len() } else { end };
        }
        self.bytes.drain(..kept);
        (!text.is_empty()).then_some(TokenMeaning::Text(text))
    }

    /// Takes an incomplete character that can no longer be completed, as U+FFFD.
    fn incomplete(&mut self) -> Option<TokenMeaning> {
        let is_some = !self.bytes.is_empty();
        self.bytes.clear();
        is_some.then(|| TokenMeaning::Text("\u{fffd}".to_owned()))
    }
}

/// Returns true if these invalid bytes are the beginning of a valid character.
fn is_cut(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

/// Reads the `token_ids` of a chunk's choice, whether or not the client has asked for them; `None` if missing or
/// invalid.
fn token_ids(extras: &FrameExtras<'_>) -> Option<Vec<u32>> {
    let mut all = extras.choice_extensions.iter().chain(extras.choice.iter());
    let (_, list) = all.find(|(key, _)| *key == TOKEN_IDS)?;
    let all: Vec<Raw<'_>> = json::read(list.get()).ok()?;
    all.into_iter()
        .map(|id| integer(id).and_then(|id| u32::try_from(id).ok()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> TokenMeaning {
        TokenMeaning::Text(text.to_owned())
    }

    #[test]
    fn tokens_become_text_and_markers() {
        // Token 0 is `a`, token 1 is `<|end|>` as plain characters, tokens 2 and 3 are the two halves of é.
        let vocabulary = Vocabulary::read("YQ== 0\nPHxlbmR8Pg== 1\nww== 2\nqQ== 3\n").unwrap();
        let mut tokens = Tokens::new(Arc::new(vocabulary));
        let mut meant = |ids: &[u32]| tokens.translate(ids);
        assert_eq!(
            meant(&[200_008, 0, 1, 200_007]),
            [
                TokenMeaning::Marker(Marker::Message),
                text("a<|end|>"),
                TokenMeaning::Marker(Marker::Stop)
            ]
        );
        assert_eq!(meant(&[0, 2]), [text("a")]);
        assert_eq!(meant(&[3, 2]), [text("é")]);
        assert_eq!(
            meant(&[200_007]),
            [text("\u{fffd}"), TokenMeaning::Marker(Marker::Stop)]
        );
        // Incomplete first half, stray second half; then a special token and an unknown one.
        assert_eq!(meant(&[2, 0, 3, 0]), [text("\u{fffd}a\u{fffd}a")]);
        assert_eq!(meant(&[199_998, 0, 150_000]), [text("a\u{fffd}")]);
    }

    fn extras(ids: Option<&'static str>) -> FrameExtras<'static> {
        let mut extras = FrameExtras::default();
        if let Some(ids) = ids {
            extras.choice.keep(TOKEN_IDS.into(), Raw::of(ids).unwrap());
        }
        extras
    }

    fn tokens() -> Tokens {
        let vocabulary = Vocabulary::read("YQ== 0\nYg== 1\nww== 2\nqQ== 3\n").unwrap();
        Tokens::new(Arc::new(vocabulary))
    }

    #[test]
    fn an_engine_that_sends_ids_late_sends_none() {
        let mut late = tokens();
        assert_eq!(late.read(&extras(None)), None);
        assert_eq!(late.read(&extras(Some("[0]"))), None);
        let mut gaps = tokens();
        assert_eq!(gaps.read(&extras(Some("[0]"))), Some(vec![text("a")]));
        assert_eq!(gaps.read(&extras(None)), None);
        assert_eq!(gaps.read(&extras(Some("[0]"))), Some(vec![text("a")]));
        assert_eq!(gaps.read(&extras(Some("[]"))), None);
    }

    #[test]
    fn ids_without_text_wait_for_the_next_or_the_end() {
        let mut waiting = tokens();
        waiting.wait(&extras(Some("[0,0]")));
        assert_eq!(waiting.read(&extras(Some("[0]"))), Some(vec![text("aaa")]));
        waiting.wait(&extras(Some("[0,2]")));
        assert_eq!(waiting.end(), [text("a"), text("\u{fffd}")]);
        let mut textless = tokens();
        textless.wait(&extras(Some("[0]")));
        assert_eq!(textless.end(), [], "the text itself is parsed");
    }

    #[test]
    fn only_the_beginning_of_a_character_waits() {
        let mut halves = tokens();
        assert_eq!(halves.translate(&[2]), []);
        assert_eq!(halves.translate(&[3]), [text("é")]);
        assert_eq!(
            halves.translate(&[3]),
            [text("\u{fffd}")],
            "a second half alone never becomes one"
        );
    }
}
