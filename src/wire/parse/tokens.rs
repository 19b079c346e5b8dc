//! The tokens of an answer in Harmony, where the engine tells them (wire-format 6): the same messages as in its text, but
//! characters that look like a marker are text.
//!
//! Takes: the tokens of one chunk after another. Gives: markers, and text that is none. Remembers: bytes that are no
//! character yet, and tokens of chunks without text, which count only once the engine has shown that it does not parse.

use super::harmony::Marker;
use super::vocabulary::Vocabulary;
use crate::json::{self, Raw, integer};
use crate::wire::TOKEN_IDS;
use crate::wire::event::Riders;
use std::sync::Arc;

/// Tokens that may wait.
const WAITING: usize = 4096;

/// Beyond the ordinary tokens: those that are no markers of messages say nothing.
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

/// What a choice's tokens stand for.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    vocabulary: Arc<Vocabulary>,
    waiting: Vec<u32>,
    /// Bytes of a character that is not complete.
    bytes: Vec<u8>,
    /// The engine tells no tokens.
    none: bool,
    /// There were some.
    some: bool,
}

/// What a token is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TokenMeaning {
    Marker(Marker),
    Text(String),
}

impl Tokens {
    pub(super) fn new(vocabulary: Arc<Vocabulary>) -> Self {
        Self { vocabulary, waiting: Vec::new(), bytes: Vec::new(), none: false, some: false }
    }

    /// A chunk has no text, or text that is not the model's: its tokens wait.
    pub(super) fn wait(&mut self, riders: &Riders<'_>) {
        let room = WAITING.saturating_sub(self.waiting.len());
        self.waiting.extend(of(riders).into_iter().flatten().take(room));
    }

    /// A chunk has text: what its tokens and those that waited are. `None`: the text is all there is.
    pub(super) fn read(&mut self, riders: &Riders<'_>) -> Option<Vec<TokenMeaning>> {
        let own = of(riders).filter(|own| !own.is_empty());
        self.none |= own.is_none() && !self.some;
        let own = own.filter(|_| !self.none)?;
        self.some = true;
        let mut all = std::mem::take(&mut self.waiting);
        all.extend(own);
        Some(self.meant(&all))
    }

    /// There are no more chunks: what the tokens are that waited.
    pub(super) fn end(&mut self) -> Vec<TokenMeaning> {
        let waiting = std::mem::take(&mut self.waiting);
        if !self.some {
            return Vec::new();
        }
        let mut all = self.meant(&waiting);
        all.extend(self.incomplete());
        all
    }

    fn meant(&mut self, tokens: &[u32]) -> Vec<TokenMeaning> {
        let mut all = Vec::new();
        for token in tokens {
            let marker = MARKERS.iter().find(|(id, _)| id == token).map(|(_, marker)| *marker);
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

    /// The text that the bytes are, but for an end that may become a character.
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

    /// An end that has become no character.
    fn incomplete(&mut self) -> Option<TokenMeaning> {
        let is_some = !self.bytes.is_empty();
        self.bytes.clear();
        is_some.then(|| TokenMeaning::Text("\u{fffd}".to_owned()))
    }
}

/// Whether these bytes, which are no character, are the beginning of one.
fn is_cut(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

/// The tokens that a choice of a chunk tells, whether the client has asked for them or not.
fn of(riders: &Riders<'_>) -> Option<Vec<u32>> {
    let mut all = riders.choice_extensions.iter().chain(riders.choice.iter());
    let (_, list) = all.find(|(key, _)| *key == TOKEN_IDS)?;
    let all: Vec<Raw<'_>> = json::read(list.get()).ok()?;
    all.into_iter().map(|id| integer(id).and_then(|id| u32::try_from(id).ok())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> TokenMeaning {
        TokenMeaning::Text(text.to_owned())
    }

    #[test]
    fn tokens_become_text_and_markers() {
        // a, <|end|> in letters, and the two halves of é.
        let vocabulary = Vocabulary::read("YQ== 0\nPHxlbmR8Pg== 1\nww== 2\nqQ== 3\n").unwrap();
        let mut tokens = Tokens::new(Arc::new(vocabulary));
        let mut meant = |ids: &[u32]| tokens.meant(ids);
        assert_eq!(
            meant(&[200_008, 0, 1, 200_007]),
            [TokenMeaning::Marker(Marker::Message), text("a<|end|>"), TokenMeaning::Marker(Marker::Stop)]
        );
        assert_eq!(meant(&[0, 2]), [text("a")]);
        assert_eq!(meant(&[3, 2]), [text("é")]);
        assert_eq!(meant(&[200_007]), [text("\u{fffd}"), TokenMeaning::Marker(Marker::Stop)]);
        // A half that nothing follows, one that is no half, a special token, and one that there is not.
        assert_eq!(meant(&[2, 0, 3, 0]), [text("\u{fffd}a\u{fffd}a")]);
        assert_eq!(meant(&[199_998, 0, 150_000]), [text("a\u{fffd}")]);
    }
}
