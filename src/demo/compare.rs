//! Comparison of two engines' answers: pairs the frames with the same meaning, marks what samewire changes in
//! them, and counts the equal canonical frames.
//!
//! Takes: both raw streams and both canonical ones. Gives: a [`Comparison`]. Never: depends on the output,
//! terminal or browser.

use super::NAMES;
use super::frame::{Change, Frame, Phase, events, read};
use crate::json::{self, Members, Raw};
use std::fmt::Write as _;

/// Frames of a long phase that are shown; the rest are only counted.
const SHOWN: usize = 2;
/// Number of frames in a phase above which it counts as long, so that not all are shown.
const MANY: usize = 4;

/// Side of a row: a frame or a note for one engine, or nothing.
#[derive(Clone, Debug)]
pub enum Cell {
    /// Frame of the engine's stream, prepared for display.
    Frame(Frame),
    /// Text in place of a frame, such as a count of omitted frames.
    Note(String),
    /// Empty side, because the other answer has more frames of this phase.
    Empty,
}

/// Row of canonical frames, classified by how far both sides agree.
#[derive(Clone, Debug)]
pub enum Match {
    /// Equal bytes on both sides, except for ids and times.
    Same(Frame),
    /// Note about omitted frames that are equal as well.
    SameNote(String),
    /// Equal frames, except for the text and the counts of the model.
    Alike(Frame, Frame),
    /// Frames with other differences, or a frame on one side only.
    Different(Cell, Cell),
}

/// Result of a comparison: everything that the pages show about one request.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Frames as the engines sent them, in rows that pair frames of the same phase.
    pub raw: Vec<[Cell; 2]>,
    /// Frames as clients receive them, in rows that pair frames of the same phase.
    pub canonical: Vec<Match>,
    /// First canonical frame in full, as an example.
    pub first: String,
    /// Changes that occur, with their number for each engine.
    pub changes: Vec<(Change, [usize; 2])>,
    /// Number of canonical frames in each engine's answer.
    pub frames: [usize; 2],
    /// Number of pairs of canonical frames with equal bytes, except for ids and times.
    pub same: usize,
    /// Number of pairs that differ only in the text or the counts of the model.
    pub alike: usize,
}

/// Streams of one engine's answer, before and after rewriting, as SSE text.
#[derive(Clone, Copy, Debug)]
pub struct Streams<'a> {
    /// Stream as the engine sent it.
    pub raw: &'a str,
    /// Stream as a client of the proxy receives it.
    pub canonical: &'a str,
}

impl Comparison {
    /// Returns the number of a change: a circled digit up to 20, otherwise digits in brackets.
    pub fn number(&self, change: Change) -> String {
        let at = self
            .changes
            .iter()
            .position(|(one, _)| *one == change)
            .unwrap_or(0);
        let circled = u32::try_from(at)
            .ok()
            .filter(|at| *at < 20)
            .and_then(|at| char::from_u32(0x2460 + at));
        circled.map_or_else(|| format!("({})", at + 1), String::from)
    }

    /// Returns a sentence for the page that states how many canonical frames are equal.
    pub fn verdict(&self) -> String {
        let Self {
            frames: [left, right],
            same,
            alike,
            ..
        } = self;
        let others = left.max(right) - same - alike;
        let (one, other) = (NAMES[0], NAMES[1]);
        let mut text = format!("{left} canonical frames from {one}, {right} from {other}: ");
        text += &match left == right && same == left {
            true => "all of them the same byte for byte (ids and times apart)".to_owned(),
            false => format!("{same} are the same byte for byte (ids and times apart)"),
        };
        if *alike > 0 {
            let _ = write!(text, ", {alike} differ only in what is said or counted");
        }
        if others > 0 {
            let _ = write!(
                text,
                ", and {others} are there because one engine cuts the text into more pieces"
            );
        }
        text.push('.');
        text
    }
}

/// Compares two engines' answers to one request, and prepares the result for display.
pub fn compare(sides: [Streams<'_>; 2]) -> Comparison {
    let raw = sides.map(|side| read(side.raw, false));
    let canonical = sides.map(|side| read(side.canonical, true));
    let changes = Change::ALL.map(|(change, _)| {
        let count = |frames: &Vec<Frame>| {
            frames
                .iter()
                .flat_map(Frame::changes)
                .filter(|one| *one == change)
                .count()
        };
        (change, [count(&raw[0]), count(&raw[1])])
    });
    let frames = [canonical[0].len(), canonical[1].len()];
    let (mut same, mut alike) = (0, 0);
    for phase in Phase::ALL {
        let [left, right] = [of(&canonical[0], phase), of(&canonical[1], phase)];
        for (left, right) in left.iter().zip(&right) {
            if masked(&left.data, false) == masked(&right.data, false) {
                same += 1;
            } else if masked(&left.data, true) == masked(&right.data, true) {
                alike += 1;
            }
        }
    }
    let all_same = frames == [same, same];
    let matched = |row| match matched(row) {
        Match::Different(Cell::Note(left), Cell::Note(right)) if all_same && left == right => {
            Match::SameNote(left)
        }
        row => row,
    };
    Comparison {
        first: events(sides[0].canonical).next().unwrap_or("").to_owned(),
        raw: rows(&raw),
        canonical: rows(&canonical).into_iter().map(matched).collect(),
        changes: changes
            .into_iter()
            .filter(|(_, counts)| counts.iter().sum::<usize>() > 0)
            .collect(),
        frames,
        same,
        alike,
    }
}

/// Returns the frames whose first phase is this one.
fn of(frames: &[Frame], phase: Phase) -> Vec<&Frame> {
    frames
        .iter()
        .filter(|frame| frame.phases.first() == Some(&phase))
        .collect()
}

fn rows(sides: &[Vec<Frame>; 2]) -> Vec<[Cell; 2]> {
    let mut rows = Vec::new();
    for phase in Phase::ALL {
        let many = sides.iter().any(|frames| of(frames, phase).len() > MANY);
        let [left, right] = [cells(&sides[0], phase, many), cells(&sides[1], phase, many)];
        let count = left.len().max(right.len());
        let fill = |cells: Vec<Cell>| {
            cells
                .into_iter()
                .chain(std::iter::repeat(Cell::Empty))
                .take(count)
        };
        rows.extend(
            fill(left)
                .zip(fill(right))
                .map(|(left, right)| [left, right]),
        );
    }
    rows
}

/// Returns one side's cells for a phase. `many`: show the first frames and count the rest.
fn cells(frames: &[Frame], phase: Phase, many: bool) -> Vec<Cell> {
    let found = of(frames, phase);
    if found.is_empty() {
        let within = frames.iter().any(|frame| frame.phases.contains(&phase));
        let note = "(it came with the last token, above)".to_owned();
        return if within {
            vec![Cell::Note(note)]
        } else {
            Vec::new()
        };
    }
    let frame = |frame: &&Frame| Cell::Frame((*frame).clone());
    if !many || found.len() <= SHOWN + 1 {
        return found.iter().map(frame).collect();
    }
    // Frames of several phases are always shown.
    let (plain, merged): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|frame| frame.phases.len() == 1);
    let note = format!(
        "… {} more frames like these",
        plain.len().saturating_sub(SHOWN)
    );
    let shown = plain.iter().take(SHOWN).map(frame);
    shown
        .chain([Cell::Note(note)])
        .chain(merged.iter().map(frame))
        .collect()
}

fn matched([left, right]: [Cell; 2]) -> Match {
    match (left, right) {
        (Cell::Frame(left), Cell::Frame(right)) => {
            if masked(&left.data, false) == masked(&right.data, false) {
                Match::Same(left)
            } else if masked(&left.data, true) == masked(&right.data, true) {
                Match::Alike(left, right)
            } else {
                Match::Different(Cell::Frame(left), Cell::Frame(right))
            }
        }
        (left, right) => Match::Different(left, right),
    }
}

/// Returns the frame without ids and times. `words`: also without the text and the counts of the model.
fn masked(data: &str, words: bool) -> String {
    let mut out = String::new();
    match Raw::of(data) {
        Some(raw) => mask(raw, words, &mut out),
        None => out.push_str(data),
    }
    out
}

fn mask(raw: Raw<'_>, words: bool, out: &mut String) {
    let text = raw.get();
    if let Ok(Members(members)) = json::read(text) {
        out.push('{');
        for (key, value) in members {
            out.push_str(&key);
            out.push(':');
            let drawn = ["id", "created"].contains(&key.as_ref());
            let said = words
                && ["content", "reasoning_content", "reasoning", "arguments"]
                    .contains(&key.as_ref());
            match drawn || said {
                true => out.push('…'),
                false => mask(value, words, out),
            }
            out.push(',');
        }
        out.push('}');
    } else if let Ok(elements) = json::read::<Vec<Raw<'_>>>(text) {
        out.push('[');
        elements
            .into_iter()
            .for_each(|element| mask(element, words, out));
        out.push(']');
    } else {
        out.push_str(
            if words && text.starts_with(|first: char| first.is_ascii_digit()) {
                "0"
            } else {
                text
            },
        );
    }
}
