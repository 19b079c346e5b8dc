//! Choice between Harmony and a family's own format, where the model's name leaves it open.
//!
//! Takes: the beginning of a text. Gives: its reader. Remembers: text that may be the beginning of Harmony.
//! Never: emits text.

use super::harmony::{Harmony, HarmonyCalls};
use super::text::TextParser;
use super::{Reader, header};

/// Start of a text whose model name is ambiguous: decides between Harmony and the family's own format by the first
/// characters.
#[derive(Debug)]
pub(super) struct Undecided {
    /// Parser to continue with if the text is not Harmony.
    pub(super) text: Box<TextParser>,
    /// Calls for the Harmony parser.
    pub(super) calls: HarmonyCalls,
    /// Buffered text that may be the beginning of Harmony.
    pub(super) held: String,
}

impl Undecided {
    /// Beginnings of Harmony output where the engine shows special tokens.
    pub(super) const BEGINNINGS: [&'static str; 2] = [header::CHANNEL, "<|start|>assistant"];
    /// Continuations of each beginning that make it a header.
    const HEADERS: [&'static [&'static str]; 2] = [
        &["analysis", "commentary", "final"],
        &[header::CHANNEL, " to=", "<|message|>"],
    ];

    /// Selects the reader by the beginning of the text; `None` if more text is needed.
    pub(super) fn decided(&mut self, beginning: &str) -> Option<Reader> {
        Some(match Self::is_harmony(beginning)? {
            true => {
                let calls = std::mem::take(&mut self.calls);
                Reader::Harmony(Box::new(Harmony::new(calls)), None)
            }
            false => self.settled(),
        })
    }

    /// Returns true if a text begins with a header of Harmony; `None` if more text is needed.
    fn is_harmony(text: &str) -> Option<bool> {
        for (mark, next) in Self::BEGINNINGS.into_iter().zip(Self::HEADERS) {
            if let Some(rest) = text.strip_prefix(mark) {
                let is_header = next.iter().any(|next| rest.starts_with(next));
                let may_be = next.iter().any(|next| next.starts_with(rest));
                return (is_header || !may_be).then_some(is_header);
            }
        }
        let may_be = Self::BEGINNINGS.iter().any(|mark| mark.starts_with(text));
        (!may_be).then_some(false)
    }

    /// Returns the reader for a text that is not Harmony.
    pub(super) fn settled(&mut self) -> Reader {
        Reader::Text(std::mem::take(&mut self.text))
    }
}
