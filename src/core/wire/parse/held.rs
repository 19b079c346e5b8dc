//! Text that a parser holds because it cannot be decided yet.
//!
//! Takes: text, and whether white space decides anything where the parser is. Gives: the text so far. Never:
//! reads white space anew that decides nothing, however much of it comes.

/// Held text of one parser.
#[derive(Debug, Default)]
pub(super) struct Held {
    text: String,
    /// True if the text is white space, and more of it decides nothing either.
    waits: bool,
    /// Number of bytes that were held when the text was last taken out.
    taken: usize,
}

impl Held {
    /// Returns true if nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the number of bytes held.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Adds a text that decides nothing: white space after white space. Returns false if it may decide something,
    /// so that all of it has to be parsed.
    pub(super) fn add_blank(&mut self, text: &str) -> bool {
        let adds = self.waits && text.trim_start().is_empty();
        if adds {
            self.text.push_str(text);
        }
        adds
    }

    /// Takes the text out, to parse it.
    pub(super) fn take(&mut self) -> String {
        self.waits = false;
        self.taken = self.text.len();
        std::mem::take(&mut self.text)
    }

    /// Returns the length of the white space at the beginning of a text that came before the newest piece. It is emitted
    /// alone, as it came.
    pub(super) fn take_blank(&mut self, text: &str) -> usize {
        let blank = text.len() - text.trim_start().len();
        std::mem::take(&mut self.taken).min(blank)
    }

    /// Holds what a parser has left of a text. `ignores_blank`: white space alone decides nothing at this place.
    pub(super) fn keep(&mut self, rest: String, ignores_blank: bool) {
        self.waits = ignores_blank && !rest.is_empty() && rest.trim_start().is_empty();
        self.text = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_added_to_white_space_that_decides_nothing() {
        for (rest, ignores_blank, text, expected) in [
            (" ", true, "\n", true),
            (" ", true, "", true),
            (" ", true, " x", false),
            (" ", false, "\n", false),
            ("x", true, "\n", false),
            ("", true, "\n", false),
        ] {
            let mut held = Held::default();
            held.keep(rest.to_owned(), ignores_blank);
            assert_eq!(held.add_blank(text), expected, "{rest:?} {text:?}");
            assert_eq!(
                held.take(),
                if expected {
                    rest.to_owned() + text
                } else {
                    rest.to_owned()
                }
            );
            assert!(!held.add_blank(" "), "nothing is held");
        }
    }
}
