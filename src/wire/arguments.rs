//! Following the JSON text of a tool call's arguments, to know when it is complete.

use crate::json::Text;

/// Where the argument text of one call stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    stage: Stage,
    depth: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing but white space.
    #[default]
    Empty,
    /// Inside an object, array or bare word, outside strings.
    Open,
    InString,
    /// After a backslash inside a string.
    Escaped,
    /// A bare number or word: complete as far as one can tell.
    Word,
    /// The text is one complete JSON value.
    Complete,
}

impl Arguments {
    /// Reads a piece. If a second value starts after the first complete object or array, says after how many
    /// characters it does.
    pub(super) fn read(&mut self, piece: &Text<'_>) -> Option<usize> {
        let mut second = None;
        let mut at = 0;
        piece.each_ascii(|byte| {
            if second.is_none() {
                if self.stage == Stage::Complete && !byte.is_ascii_whitespace() {
                    second = Some(at);
                } else {
                    self.step(byte);
                }
            }
            at += 1;
        });
        second
    }

    fn step(&mut self, byte: u8) {
        self.stage = match (self.stage, byte) {
            (Stage::Escaped, _) => Stage::InString,
            (Stage::InString, b'\\') => Stage::Escaped,
            (Stage::InString, b'"') if self.depth == 0 => Stage::Word,
            (Stage::InString, b'"') => Stage::Open,
            (Stage::InString, _) | (Stage::Empty | Stage::Open, b'"') => Stage::InString,
            (Stage::Empty | Stage::Open, b'{' | b'[') => {
                self.depth += 1;
                Stage::Open
            }
            (Stage::Open, b'}' | b']') => {
                self.depth -= 1;
                if self.depth == 0 { Stage::Complete } else { Stage::Open }
            }
            (Stage::Empty, byte) if !byte.is_ascii_whitespace() => Stage::Word,
            (stage, _) => stage,
        };
    }

    /// Whether the text read so far is one complete JSON value.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Complete | Stage::Word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completeness() {
        for (pieces, complete, second) in [
            (&["{\\\"a\\\": [1, \\\"}\\\"]", "}"][..], true, None),
            (&["{\\\"city\\\": \\\"Par"], false, None),
            (&[""], false, None),
            (&["  12 "], true, None),
            (&["{\\\"k\\\": \\\"\\\\\\\"}\\\"}"], true, None),
            (&["{}", " \\n", "{\\\"a\\\""], true, Some(0)),
            (&["{} {}"], true, Some(3)),
        ] {
            let mut arguments = Arguments::default();
            let found = pieces.iter().map(|piece| arguments.read(&Text::json(piece))).fold(None, Option::or);
            assert_eq!((arguments.is_complete(), found), (complete, second), "{pieces:?}");
        }
    }
}
