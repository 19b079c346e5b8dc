//! Comparison as text for a terminal of any width.
//!
//! Takes: a [`Comparison`], and the terminal's properties ([`TerminalProfile`]). Gives: lines. Never: a line wider than the
//! terminal, or information in colour only.

use super::compare::{Cell, Comparison, Match};
use super::frame::{Frame, Word, is_open};
use super::{NAMES, SOURCE, Scene, VERSIONS};
use std::fmt::Write as _;

/// Properties of the terminal that the page is rendered for: width and colours.
#[derive(Clone, Copy, Debug)]
pub struct TerminalProfile {
    /// Width in columns.
    pub width: usize,
    /// True if the terminal shows colours.
    pub colour: bool,
}

/// Style of a text: the numbers in its escape sequence, or empty for the terminal's own style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tint(&'static str);

const PLAIN: Tint = Tint("");
const BOLD: Tint = Tint("1");
const DIM: Tint = Tint("2");
/// Text that samewire changes, in the engine's frames.
const CHANGED: Tint = Tint("31");
/// Number that refers to the explanation of a change.
const NUMBER: Tint = Tint("1;33");
const GOOD: Tint = Tint("1;32");

/// Builder of a line, in parts of one style each.
#[derive(Clone, Debug, Default)]
struct Line(Vec<(String, Tint)>);

impl Line {
    fn of(text: impl Into<String>, tint: Tint) -> Self {
        Self(vec![(text.into(), tint)])
    }

    fn put(&mut self, text: impl Into<String>, tint: Tint) {
        self.0.push((text.into(), tint));
    }

    fn width(&self) -> usize {
        self.0.iter().map(|(text, _)| text.chars().count()).sum()
    }

    /// Returns true if the next word follows without a space.
    fn opens(&self) -> bool {
        self.0.last().is_some_and(|(text, _)| is_open(text))
    }

    fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    fn pad(&mut self, width: usize) {
        let missing = width.saturating_sub(self.width());
        self.put(" ".repeat(missing), PLAIN);
    }

    /// Shortens the longest part to fit the width, so that a mark after it stays visible.
    fn shortened(mut self, width: usize) -> Self {
        let excess = self.width().saturating_sub(width);
        let longest = self
            .0
            .iter_mut()
            .max_by_key(|(text, _)| text.chars().count());
        if let Some((text, _)) = longest.filter(|_| excess > 0) {
            let kept = text.chars().count().saturating_sub(excess + 1);
            *text = text.chars().take(kept).chain(['…']).collect();
        }
        self.cut(width)
    }

    /// Cuts the line to the width, with an ellipsis if something is missing.
    fn cut(self, width: usize) -> Self {
        if self.width() <= width {
            return self;
        }
        let mut cut = Self::default();
        for (text, tint) in self.0 {
            let room = width.saturating_sub(cut.width() + 1);
            if text.chars().count() > room {
                let mut short: String = text.chars().take(room).collect();
                short.push('…');
                cut.put(short, tint);
                break;
            }
            cut.put(text, tint);
        }
        cut
    }
}

/// Renders the page: the request, the engines' frames, the canonical frames, and the changes.
pub fn render(scene: &Scene, comparison: &Comparison, look: TerminalProfile) -> String {
    let mut page = Page {
        look,
        out: String::new(),
        comparison,
    };
    page.head(scene);
    page.raw();
    page.canonical(scene);
    page.changes();
    page.out
}

/// Returns a heading in the style of the page, for text that follows it.
pub fn heading(title: &str, look: TerminalProfile) -> String {
    let mut out = String::new();
    draw(ruled(title, look.width), look, &mut out);
    out
}

/// Returns a title in a line across the terminal.
fn ruled(title: &str, width: usize) -> Line {
    let mut line = Line::of("── ", DIM);
    line.put(title, BOLD);
    line.put(" ", PLAIN);
    let rest = width.saturating_sub(line.width());
    line.put("─".repeat(rest), DIM);
    line
}

/// Appends a line, with colours if the terminal shows them.
fn draw(line: Line, look: TerminalProfile, out: &mut String) {
    let start = out.len();
    for (part, tint) in line.cut(look.width).0 {
        if look.colour && tint != PLAIN {
            let _ = write!(out, "\x1b[{}m{part}\x1b[0m", tint.0);
        } else {
            out.push_str(&part);
        }
    }
    let end = out
        .get(start..)
        .map_or(out.len(), |line| start + line.trim_end().len());
    out.truncate(end);
    out.push('\n');
}

struct Page<'c> {
    look: TerminalProfile,
    out: String,
    comparison: &'c Comparison,
}

impl Page<'_> {
    fn line(&mut self, line: Line) {
        draw(line, self.look, &mut self.out);
    }

    fn blank(&mut self) {
        self.out.push('\n');
    }

    /// Appends text after `first`, wrapped, with later lines indented to the same column.
    fn text(&mut self, first: Line, text: &str, tint: Tint) {
        let indent = first.width();
        let room = self.look.width.saturating_sub(indent).max(20);
        let mut line = first;
        let mut used = 0;
        for word in text.split(' ') {
            let length = word.chars().count();
            if used > 0 && used + 1 + length > room {
                self.line(std::mem::replace(
                    &mut line,
                    Line::of(" ".repeat(indent), PLAIN),
                ));
                used = 0;
            }
            if used > 0 {
                line.put(" ", tint);
                used += 1;
            }
            line.put(word, tint);
            used += length;
        }
        self.line(line);
    }

    fn rule(&mut self, title: &str) {
        self.line(ruled(title, self.look.width));
    }

    fn head(&mut self, scene: &Scene) {
        self.text(
            Line::of("samewire demo: ", BOLD),
            "one request, two engines, one answer format",
            BOLD,
        );
        self.blank();
        self.text(
            Line::of("Request   ", DIM),
            &scene.request.replace(",\"", ", \""),
            PLAIN,
        );
        self.text(
            Line::of("Answers   ", DIM),
            &format!("{} ({SOURCE})", scene.about),
            PLAIN,
        );
        self.blank();
    }

    /// Appends the engines' frames, side by side.
    fn raw(&mut self) {
        self.rule("What the engines send");
        let legend = "Each frame without what is the same in all of them (…). A number marks what samewire changes.";
        self.text(Line::default(), legend, DIM);
        let half = self.half();
        let mut line = Line::of(VERSIONS[0], BOLD);
        line.pad(half);
        line.put(" │ ", DIM);
        line.put(VERSIONS[1], BOLD);
        self.line(line);
        for row in &self.comparison.raw {
            let [left, right] = [self.cell(&row[0], half), self.cell(&row[1], half)];
            for at in 0..left.len().max(right.len()) {
                let mut line = left.get(at).cloned().unwrap_or_default();
                line.pad(half);
                line.put(" │ ", DIM);
                line.join(right.get(at).cloned().unwrap_or_default());
                self.line(line);
            }
        }
        self.blank();
    }

    fn half(&self) -> usize {
        self.look.width.saturating_sub(3) / 2
    }

    fn cell(&self, cell: &Cell, width: usize) -> Vec<Line> {
        match cell {
            Cell::Frame(frame) => self.frame(frame, width),
            Cell::Note(note) => vec![Line::of(note.as_str(), DIM).cut(width)],
            Cell::Empty => Vec::new(),
        }
    }

    /// Returns a frame's words in lines of this width, indented after the first. Keeps an opening bracket together
    /// with its content if possible.
    fn frame(&self, frame: &Frame, width: usize) -> Vec<Line> {
        let words: Vec<_> = frame
            .words
            .iter()
            .map(|word| self.word(word).shortened(width.saturating_sub(2)))
            .collect();
        let mut lines = vec![Line::default()];
        for (at, word) in words.iter().enumerate() {
            let held = words
                .get(at + 1)
                .filter(|_| word.opens())
                .map_or(0, Line::width);
            let needed = if word.width() + held + 2 <= width {
                word.width() + held
            } else {
                word.width()
            };
            let alone = lines.len() == 1 && at < 2;
            let Some(line) = lines.last_mut() else { break };
            let space = usize::from(!line.opens() && line.width() > 0);
            let room = width.saturating_sub(line.width() + space);
            if needed <= room || alone && word.width() <= room {
                line.put(" ".repeat(space), PLAIN);
                line.join(word.clone());
            } else {
                let mut line = Line::of("  ", PLAIN);
                line.join(word.clone());
                lines.push(line);
            }
        }
        lines
    }

    fn word(&self, word: &Word) -> Line {
        let mut line = Line::default();
        for piece in word {
            match piece.change {
                Some(change) => {
                    line.put(piece.text.as_str(), CHANGED);
                    line.put(self.comparison.number(change), NUMBER);
                }
                None => line.put(piece.text.as_str(), PLAIN),
            }
        }
        line
    }

    /// Appends the canonical frames, the first one in full, and the verdict.
    fn canonical(&mut self, scene: &Scene) {
        self.rule("What clients of samewire receive");
        let alike = if self.comparison.alike > 0 {
            " ≈ the same but for what is said or counted."
        } else {
            ""
        };
        let legend = &format!(
            "= the same bytes, whichever engine answered.{alike} The first frame in full:"
        );
        self.text(Line::default(), legend, DIM);
        let first = format!("data: {}", self.comparison.first);
        for line in chunks(&first, self.look.width) {
            self.line(Line::of(line, PLAIN));
        }
        let width = self.look.width.saturating_sub(10);
        for row in &self.comparison.canonical {
            match row {
                Match::Same(frame) => self.labelled("=", "both", &self.frame(frame, width)),
                Match::SameNote(note) => {
                    self.labelled("=", "both", &[Line::of(note.as_str(), DIM).cut(width)]);
                }
                Match::Alike(left, right) => {
                    self.labelled("≈", NAMES[0], &self.frame(left, width));
                    self.labelled(" ", NAMES[1], &self.frame(right, width));
                }
                Match::Different(left, right) => {
                    self.labelled(" ", NAMES[0], &self.cell(left, width));
                    self.labelled(" ", NAMES[1], &self.cell(right, width));
                }
            }
        }
        self.blank();
        self.text(Line::default(), &self.comparison.verdict(), GOOD);
        if let Some(differs) = scene.differs {
            self.text(Line::default(), differs, DIM);
        }
        self.blank();
    }

    fn labelled(&mut self, mark: &str, name: &str, lines: &[Line]) {
        for (at, frame) in lines.iter().enumerate() {
            let mut line = Line::default();
            let first = at == 0;
            line.put(if first { mark } else { " " }, GOOD);
            line.put(format!(" {:<7} ", if first { name } else { "" }), DIM);
            line.join(frame.clone());
            self.line(line);
        }
    }

    /// Appends the changes with their numbers, counts and reasons.
    fn changes(&mut self) {
        self.rule("What samewire changed");
        for (change, counts) in &self.comparison.changes {
            let mut line = Line::of(self.comparison.number(*change), NUMBER);
            line.put(format!("  {:<15}", change.rule()), BOLD);
            for (name, count) in NAMES.iter().zip(counts) {
                let count = if *count == 0 {
                    "–".to_owned()
                } else {
                    format!("{count}×")
                };
                line.put(
                    format!(" {name} {count:<3}"),
                    if count == "–" { DIM } else { PLAIN },
                );
            }
            line.put("  ", PLAIN);
            if self.look.width >= 110 {
                self.text(line, change.explained(), PLAIN);
            } else {
                self.line(line);
                self.text(Line::of("   ", PLAIN), change.explained(), PLAIN);
            }
        }
        self.blank();
    }
}

/// Splits the text into pieces of this width.
fn chunks(text: &str, width: usize) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters
        .chunks(width.max(1))
        .map(|chunk| chunk.iter().collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::compare::{Streams, compare};
    use super::*;

    #[test]
    fn colour_adds_nothing_but_colour() {
        let raw = "data: {\"id\":\"1\",\"choices\":[{\"delta\":{\"reasoning\":\"a\"}}]}\n\ndata: [DONE]\n\n";
        let canonical = "data: {\"id\":\"1\",\"choices\":[{\"delta\":{\"reasoning_content\":\"a\",\"reasoning\":\"a\"}}]}\n\ndata: [DONE]\n\n";
        let comparison = compare([
            Streams { raw, canonical },
            Streams {
                raw: canonical,
                canonical,
            },
        ]);
        let shown = |colour| {
            render(
                &super::super::REASONING,
                &comparison,
                TerminalProfile { width: 80, colour },
            )
        };
        let (plain, coloured) = (shown(false), shown(true));
        assert!(
            !plain.contains('\x1b') && plain.contains("\"reasoning\"②"),
            "{plain}"
        );
        assert!(
            coloured.contains("\x1b[31m\"reasoning\"\x1b[0m\x1b[1;33m②\x1b[0m"),
            "{coloured}"
        );
        let mut parts = coloured.split('\x1b');
        let mut stripped = parts.next().unwrap().to_owned();
        parts.for_each(|part| stripped.push_str(part.split_once('m').unwrap().1));
        // Spaces after a coloured part remain on the line, but are invisible.
        let lines = |text: &str| {
            text.lines()
                .map(|line| line.trim_end().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(&stripped), lines(&plain));
    }
}
