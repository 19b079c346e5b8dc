//! Tables for a terminal of any width.
//!
//! Takes: cells. Gives: lines with aligned columns. Never: a line wider than the terminal, a cell that is cut, or a
//! character that steers the terminal.

use crate::visible::visible;
use std::fmt::Write as _;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Properties of the terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Width in columns.
    pub(super) width: usize,
    /// True if the terminal shows colours.
    pub(super) has_colour: bool,
}

/// Terminal colours, as the numbers in their escape sequences; empty for the terminal's own.
pub(super) const PLAIN: &str = "";
pub(super) const BOLD: &str = "1";
pub(super) const DIM: &str = "2";
pub(super) const BAD: &str = "1;31";
pub(super) const GOOD: &str = "1;32";
pub(super) const LEFT: &str = "33";
pub(super) const RIGHT: &str = "36";

/// Space between two columns, and before the first.
const GAP: usize = 2;
/// Width that a column keeps in a narrow terminal.
const NARROWEST: usize = 6;

impl Look {
    /// Returns a text in a colour, if the terminal shows colours.
    pub(super) fn painted(self, text: &str, colour: &str) -> String {
        if self.has_colour && colour != PLAIN {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Appends a table, or nothing if it has no rows. `head`: a title and a colour for each column.
pub(super) fn write<const N: usize>(
    head: [(&str, &str); N],
    rows: &[[String; N]],
    look: Look,
    out: &mut String,
) {
    if rows.is_empty() {
        return;
    }
    let rows: Vec<[String; N]> = rows
        .iter()
        .map(|row| row.each_ref().map(|cell| visible(cell)))
        .collect();
    let titles = head.map(|(title, _)| title.to_owned());
    let mut widths = titles.each_ref().map(|title| title.width());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.width().max(*width);
        }
    }
    fit(&mut widths, look.width.saturating_sub(N * GAP));
    write_row(&titles, &widths, &[DIM; N], look, out);
    for row in &rows {
        write_row(row, &widths, &head.map(|(_, colour)| colour), look, out);
    }
}

/// Makes the widest columns narrower until all fit.
fn fit(widths: &mut [usize], room: usize) {
    while widths.iter().sum::<usize>() > room {
        match widths.iter_mut().max() {
            Some(widest) if *widest > NARROWEST => *widest -= 1,
            _ => return,
        }
    }
}

fn write_row<const N: usize>(
    cells: &[String; N],
    widths: &[usize; N],
    colours: &[&str; N],
    look: Look,
    out: &mut String,
) {
    let mut lines: Vec<_> = cells
        .iter()
        .zip(widths)
        .map(|(cell, width)| wrapped(cell, *width).into_iter())
        .collect();
    loop {
        let parts: Vec<_> = lines.iter_mut().map(Iterator::next).collect();
        if parts.iter().all(Option::is_none) {
            return;
        }
        let start = out.len();
        // Spaces after the last cell of a line are left out.
        let mut missing = 0;
        for ((part, width), colour) in parts.into_iter().zip(widths).zip(colours) {
            let part = part.unwrap_or_default();
            missing += GAP;
            if !part.is_empty() {
                let _ = write!(out, "{:missing$}{}", "", look.painted(&part, colour));
                missing = 0;
            }
            missing += width.saturating_sub(part.width());
        }
        debug_assert!(
            look.has_colour
                || out.get(start..).unwrap_or_default().width()
                    <= look.width.max(N * (GAP + NARROWEST))
        );
        out.push('\n');
    }
}

/// Breaks a text into lines of a width, after a space where there is one, or else after a mark.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for character in text.chars() {
        if line.width() + character.width().unwrap_or(0) > width && !line.is_empty() {
            let after = |marks: &[char]| {
                line.rfind(marks)
                    .map(|at| at + 1)
                    .filter(|at| *at > line.len() / 2)
            };
            let at = after(&[' ']).or_else(|| after(&['.', ',', '_']));
            let rest = at.map(|at| line.split_off(at)).unwrap_or_default();
            lines.push(line.trim_end().to_owned());
            line = rest;
            if character == ' ' && line.is_empty() {
                continue;
            }
        }
        line.push(character);
    }
    lines.push(line.trim_end().to_owned());
    lines
}

/// Returns lines that say which requests were not sent, and why. `otherwise`: the words before the reason if all were.
pub(super) fn unasked(names: &[&str], why: &str, otherwise: &str, look: Look) -> String {
    let told = match names.is_empty() {
        true => format!("{otherwise} {why}."),
        false => format!("Not asked, because {why}: {}.", names.join(", ")),
    };
    let lines = wrapped(&visible(&told), look.width).into_iter();
    "\n".to_owned()
        + &lines
            .map(|line| look.painted(&line, LEFT) + "\n")
            .collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_fit() {
        let rows = [
            ["a".to_owned(), "one two three".to_owned()],
            ["bcd".to_owned(), "四五".to_owned()],
        ];
        let table = |width| {
            let mut out = String::new();
            write(
                [("x", PLAIN), ("y", PLAIN)],
                &rows,
                Look {
                    width,
                    has_colour: false,
                },
                &mut out,
            );
            out
        };
        assert_eq!(table(80), "  x    y\n  a    one two three\n  bcd  四五\n");
        assert_eq!(
            table(16),
            "  x    y\n  a    one two\n       three\n  bcd  四五\n"
        );
    }

    #[test]
    fn lines_break_at_spaces_before_marks() {
        assert_eq!(
            wrapped("the key finish_reason", 15),
            ["the key", "finish_reason"]
        );
        assert_eq!(
            wrapped("choices[].delta.content", 18),
            ["choices[].delta.", "content"]
        );
    }

    #[test]
    fn colours_are_written_where_the_terminal_has_them() {
        let mut out = String::new();
        write(
            [("x", BAD)],
            &[["a".to_owned()]],
            Look {
                width: 80,
                has_colour: true,
            },
            &mut out,
        );
        assert_eq!(out, "  \x1b[2mx\x1b[0m\n  \x1b[1;31ma\x1b[0m\n");
    }

    #[test]
    fn no_character_steers_the_terminal() {
        assert_eq!(
            visible("a\x1b[2J\u{202e}b\n\u{9b}é四"),
            "a\\u{1b}[2J\\u{202e}b\\n\\u{9b}é四"
        );
    }

    #[test]
    fn long_texts_are_wrapped_and_not_cut() {
        assert_eq!(
            wrapped("choices.delta.content", 14),
            ["choices.delta.", "content"]
        );
        assert_eq!(wrapped("aaaaaaa", 3), ["aaa", "aaa", "a"]);
        assert_eq!(wrapped("one two", 3), ["one", "two"]);
        assert_eq!(wrapped("", 3), [""]);
    }
}
