//! Suffix that checkpoints of Hunyuan's models put into their tags, such as `<tool_call:opensource>`.
//!
//! Takes: text, cut anywhere. Gives: the same text without suffixes. Remembers: text that may be a tag with one. Never:
//! changes other tags.

use std::borrow::Cow;

/// Names of the tags that have a suffix.
const NAMES: [&str; 6] = [
    "think",
    "tool_calls",
    "tool_call",
    "tool_sep",
    "arg_key",
    "arg_value",
];
/// Limit on a suffix in bytes.
const LONGEST: usize = 32;

/// Text that may be a tag with a suffix.
#[derive(Debug, Default)]
pub(super) struct Suffixes {
    held: String,
}

/// Result of a look at a text that begins with `<`.
enum Tag {
    /// No tag with a suffix.
    No,
    /// Text that may become one.
    Partial,
    /// Tag with a suffix: the bytes before it, and those of the whole tag.
    Suffixed(usize, usize),
}

impl Tag {
    fn of(text: &str) -> Self {
        let rest = text.get(1..).unwrap_or("");
        let name = rest.strip_prefix('/').unwrap_or(rest);
        let is_named = |known: &&&str| {
            name.strip_prefix(**known)
                .is_some_and(|rest| rest.starts_with(':'))
        };
        let Some(known) = NAMES.iter().find(is_named) else {
            return match NAMES.iter().any(|known| known.starts_with(name)) {
                true => Self::Partial,
                false => Self::No,
            };
        };
        let before = text.len() - name.len() + known.len();
        let suffix = text.get(before + 1..).unwrap_or("");
        let is_of_suffix = |sign: char| sign.is_ascii_alphanumeric() || "_-.".contains(sign);
        let length = suffix
            .find(|sign| !is_of_suffix(sign))
            .unwrap_or(suffix.len());
        match suffix.get(length..) {
            _ if length > LONGEST => Self::No,
            Some("") => Self::Partial,
            Some(rest) if rest.starts_with('>') && length > 0 => {
                Self::Suffixed(before, before + 1 + length)
            }
            _ => Self::No,
        }
    }
}

impl Suffixes {
    /// Returns true if a text passes unchanged.
    pub(super) fn passes(&self, text: &str) -> bool {
        self.held.is_empty() && memchr::memchr(b'<', text.as_bytes()).is_none()
    }

    /// Reads the next text. Returns what is certain, without suffixes.
    pub(super) fn read<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        if self.passes(text) {
            return Cow::Borrowed(text);
        }
        self.held.push_str(text);
        let held = std::mem::take(&mut self.held);
        let (read, said) = without(&held);
        held.get(read..).unwrap_or("").clone_into(&mut self.held);
        Cow::Owned(said)
    }

    /// Ends the text. Returns what was held.
    pub(super) fn end(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Returns a whole text without suffixes.
pub(super) fn removed(text: &str) -> String {
    let (read, said) = without(text);
    said + text.get(read..).unwrap_or("")
}

/// Returns how much of a text is certain, and that without suffixes.
fn without(text: &str) -> (usize, String) {
    let (mut said, mut at) = (String::new(), 0);
    while let Some(found) = memchr::memchr(b'<', text.as_bytes().get(at..).unwrap_or_default()) {
        let tag = at + found;
        said.push_str(text.get(at..tag).unwrap_or(""));
        at = match Tag::of(text.get(tag..).unwrap_or("")) {
            Tag::Partial => return (tag, said),
            Tag::No => {
                said.push('<');
                tag + 1
            }
            Tag::Suffixed(before, length) => {
                said.push_str(text.get(tag..tag + before).unwrap_or(""));
                tag + length
            }
        };
    }
    said.push_str(text.get(at..).unwrap_or(""));
    (text.len(), said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_removed_however_the_text_is_cut() {
        for (text, expected) in [
            (
                "a<think:opensource>b</think:6124c78e>c",
                "a<think>b</think>c",
            ),
            (
                "<tool_calls:x>\n<tool_call:x>f<tool_sep:x>",
                "<tool_calls>\n<tool_call>f<tool_sep>",
            ),
            (
                "<arg_key:x>k</arg_key:x><arg_value:x>v</arg_value:x>",
                "<arg_key>k</arg_key><arg_value>v</arg_value>",
            ),
            (
                "<think><thinks:x><a:b><think:>< think:x>",
                "<think><thinks:x><a:b><think:>< think:x>",
            ),
            (
                "<think:a b> <think:é> <<think:a>",
                "<think:a b> <think:é> <<think>",
            ),
            ("1 < 2 <tool_c", "1 < 2 <tool_c"),
            ("<think:opensource", "<think:opensource"),
        ] {
            let mut suffixes = Suffixes::default();
            let letters = text.split_inclusive(|_: char| true);
            let mut cut: String = letters
                .map(|letter| suffixes.read(letter).into_owned())
                .collect();
            cut += &suffixes.end();
            assert_eq!([&*cut, &*removed(text)], [expected; 2], "{text}");
        }
        let long = format!("<think:{}>", "a".repeat(33));
        assert_eq!(removed(&long), long);
    }
}
