//! Text of others, such as a server's answer, with every character visible: nothing in it steers a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns a text in which every character is seen: those that steer a terminal, change the direction of writing or
/// have no width are written as escapes.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars()
        .for_each(|character| push_visible(character, &mut out));
    out
}

/// Returns the begin of a text in which every character is seen: at most `most` characters, the last one `…` if
/// something was cut.
pub fn excerpt(text: &str, most: usize) -> String {
    let (mut shown, mut length) = (String::new(), 0);
    for character in text.chars() {
        let before = shown.len();
        push_visible(character, &mut shown);
        length += shown.get(before..).map_or(0, |added| added.chars().count());
        if length >= most {
            shown.truncate(before);
            shown.push('…');
            break;
        }
    }
    shown
}

/// Returns the first characters of a text, and `…` if there are more.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or(text)),
        None => text.to_owned(),
    }
}

/// Returns the last characters of a text.
pub fn tail(text: &str, most: usize) -> &str {
    let at = text
        .char_indices()
        .nth_back(most.saturating_sub(1))
        .map_or(0, |(at, _)| at);
    text.get(at..).unwrap_or(text)
}

/// Appends a character, or its escape.
pub fn push_visible(character: char, out: &mut String) {
    match character {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        _ if is_hidden(character) => {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(character));
        }
        _ => out.push(character),
    }
}

/// Returns a text in which every character is seen, except that its line breaks stay.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    if text.contains(|character: char| is_hidden(character) && character != '\n') {
        let lines: Vec<_> = text.split('\n').map(visible).collect();
        return Cow::Owned(lines.join("\n"));
    }
    Cow::Borrowed(text)
}

/// Returns JSON in which every character within a string is seen: as `\uXXXX`, which means the character there.
/// Line breaks and tabs between values stay.
pub fn visible_strings(text: &str) -> Cow<'_, str> {
    with_escapes(text, push_utf16)
}

/// Returns TOML in which every character within a string is seen: as `\uXXXX` or `\UXXXXXXXX`, which means the
/// character in a string with double quotes. Line breaks and tabs stay.
pub fn visible_toml(text: &str) -> Cow<'_, str> {
    with_escapes(text, |character, out| {
        let code = u32::from(character);
        let _ = match code {
            0..=0xffff => write!(out, "\\u{code:04X}"),
            _ => write!(out, "\\U{code:08X}"),
        };
    })
}

fn with_escapes(text: &str, push: impl Fn(char, &mut String)) -> Cow<'_, str> {
    let is_escaped = |character| is_hidden(character) && !matches!(character, '\n' | '\t');
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_escaped(character) {
            true => push(character, &mut out),
            false => out.push(character),
        }
    }
    Cow::Owned(out)
}

/// Appends a character as `\uXXXX`, twice for one that takes two units of UTF-16.
pub fn push_utf16(character: char, out: &mut String) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        let _ = write!(out, "\\u{unit:04x}");
    }
}

/// Returns true for a character that steers a terminal, changes the direction of writing or shows nothing: controls,
/// separators of lines, Unicode's *Default_Ignorable_Code_Point*, the marks of annotations and the blank of Braille. Marks
/// that only join or style emoji are among them: a text such as a key or a name means its bytes. The inspector's page,
/// which knows the same list (`ui/visible.js`), leaves them between emoji.
pub fn is_hidden(character: char) -> bool {
    let is_mark = matches!(
        character,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    is_mark || character.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_show_nothing_are_escaped() {
        for hidden in [
            "\u{34f}",
            "\u{3164}",
            "\u{fe0f}",
            "\u{e0100}",
            "\u{180f}",
            "\u{fff9}",
            "\u{1d173}",
            "\u{2800}",
        ] {
            assert_eq!(
                visible(&format!("a{hidden}b")),
                format!("a{}b", hidden.escape_unicode())
            );
        }
        // Spaces of any width, marks on letters and letters of any script are text.
        let text = "e\u{301} \u{a0}\u{3000}क\u{93f}\u{1f468}한😀\u{fffd}";
        assert_eq!(visible(text), text);
    }

    #[test]
    fn strings_of_json_and_toml_show_every_character() {
        for (text, expected) in [
            ("{\"a\": \"b\"}\n\t", "{\"a\": \"b\"}\n\t"),
            (
                "\"\u{202e}é\u{7f}\u{9b}\"\n",
                "\"\\u202eé\\u007f\\u009b\"\n",
            ),
            ("\"\u{e0041}\"", "\"\\udb40\\udc41\""),
        ] {
            assert_eq!(visible_strings(text), expected, "{text:?}");
        }
        for text in ["a = \"\u{202e}é\u{9b}\u{e0041}\"\n", "a = \"\"\n"] {
            let seen = visible_toml(text);
            assert!(
                !seen.contains(|character| character != '\n' && is_hidden(character)),
                "{seen}"
            );
            assert_eq!(
                toml::from_str::<toml::Table>(&seen),
                toml::from_str(text),
                "{seen}"
            );
        }
    }
}
