//! Markdown code in an answer, which may quote a call.
//!
//! Takes: content, cut anywhere. Gives: whether code is open at its end. Remembers: which backticks close it. Never: text.

/// Number of backticks from which on they may enclose several lines.
const FENCE: usize = 3;

/// Code that is open at the end of the text so far.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Code {
    /// Number of backticks that close the open code; 0 if none is open.
    open: usize,
    /// Number of backticks at the end of the text.
    run: usize,
    /// True if the open code ends with its line: backticks between words are no fence.
    in_line: bool,
}

impl Code {
    /// Returns true if a text changes nothing.
    pub(in super::super) fn passes(self, text: &str) -> bool {
        let ends_with_line = self.open > 0 && self.in_line;
        self.run == 0 && !ends_with_line && memchr::memchr(b'`', text.as_bytes()).is_none()
    }

    /// Reads the next text.
    pub(in super::super) fn read(&mut self, text: &str) {
        if self.passes(text) {
            return;
        }
        for byte in text.bytes() {
            if byte == b'`' {
                self.run += 1;
                continue;
            }
            if self.end_run() {
                self.in_line = self.open < FENCE || byte == b' ';
            }
            if byte == b'\n' && self.in_line {
                self.open = 0;
            }
        }
    }

    /// Returns true if what follows is code.
    pub(in super::super) fn is_open(mut self) -> bool {
        self.end_run();
        self.open > 0
    }

    /// Returns the code that is open where a call begins, which ends a run of backticks; `None` if none is.
    pub(super) fn at_call(mut self) -> Option<Self> {
        if self.end_run() {
            self.in_line = self.open < FENCE;
        }
        Some(self).filter(|code| code.open > 0)
    }

    /// Ends a run of backticks. Returns true if it opens code.
    fn end_run(&mut self) -> bool {
        let run = std::mem::take(&mut self.run);
        let closes = run == self.open || self.open >= FENCE && run > self.open;
        self.open = match self.open {
            open if run == 0 => open,
            0 => run,
            _ if closes => 0,
            open => open,
        };
        run > 0 && self.open == run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_open_after_its_backticks() {
        for (text, expected) in [
            ("", false),
            ("a", false),
            ("`", true),
            ("`a", true),
            ("`a`", false),
            ("`a\nb", false),
            ("``a`b", true),
            ("``a`b``", false),
            ("```xml\na", true),
            ("```xml\na\n```", false),
            ("```xml\na\n````\n", false),
            ("````\n```\na", true),
            ("```a``` b", false),
            ("in ``` fences.\na", false),
            ("in ``` fences", true),
            ("```\n`a\n", true),
        ] {
            let (mut whole, mut letters) = (Code::default(), Code::default());
            whole.read(text);
            text.split_inclusive(|_: char| true)
                .for_each(|letter| letters.read(letter));
            assert_eq!(
                [whole.is_open(), letters.is_open()],
                [expected; 2],
                "{text}"
            );
        }
    }
}
