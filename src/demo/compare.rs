//! The answers of two engines side by side: which frames stand for the same, what is changed in them, and how much of
//! the canonical answers is the same.
//!
//! Takes: two raw streams and what became of them. Gives: a [`Comparison`]. Never: knows of terminals.

use super::NAMES;
use super::frame::{Change, Frame, Phase, events, read};
use crate::json::{self, Members, Raw};
use std::fmt::Write as _;

/// Frames of one phase that are shown before the rest is only counted.
const SHOWN: usize = 2;
/// Of more than these the rest is counted.
const MANY: usize = 4;

/// One side of a row.
#[derive(Clone, Debug)]
pub enum Cell {
    /// A frame.
    Frame(Frame),
    /// Words instead of one.
    Note(String),
    /// Nothing.
    Empty,
}

/// A row of canonical frames.
#[derive(Clone, Debug)]
pub enum Match {
    /// The same bytes on both sides, ids and times apart.
    Same(Frame),
    /// Frames that are left out here, and are the same on both sides, too.
    SameNote(String),
    /// The same but for what the model said or counted.
    Alike(Frame, Frame),
    /// Something else.
    Different(Cell, Cell),
}

/// Everything the page shows of one request.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What the engines sent.
    pub raw: Vec<[Cell; 2]>,
    /// What clients receive.
    pub canonical: Vec<Match>,
    /// The first canonical frame as it is.
    pub first: String,
    /// How often each change was made, by engine.
    pub changes: Vec<(Change, [usize; 2])>,
    /// Canonical frames.
    pub frames: [usize; 2],
    /// Pairs of canonical frames with the same bytes, ids and times apart.
    pub same: usize,
    /// Pairs that differ in what the model said or counted.
    pub alike: usize,
}

/// The streams of one engine.
#[derive(Clone, Copy, Debug)]
pub struct Streams<'a> {
    /// As the engine sent it.
    pub raw: &'a str,
    /// As a client receives it.
    pub canonical: &'a str,
}

impl Comparison {
    /// The number of a change: circled, as long as there are such.
    pub fn number(&self, change: Change) -> String {
        let at = self.changes.iter().position(|(one, _)| *one == change).unwrap_or(0);
        let circled = u32::try_from(at).ok().filter(|at| *at < 20).and_then(|at| char::from_u32(0x2460 + at));
        circled.map_or_else(|| format!("({})", at + 1), String::from)
    }

    /// How much of the canonical answers is the same.
    pub fn verdict(&self) -> String {
        let Self { frames: [left, right], same, alike, .. } = self;
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
            let _ =
                write!(text, ", and {others} are there because one engine cuts the text into more pieces");
        }
        text.push('.');
        text
    }
}

/// Compares two engines' answers to one request.
pub fn compare(sides: [Streams<'_>; 2]) -> Comparison {
    let raw = sides.map(|side| read(side.raw, false));
    let canonical = sides.map(|side| read(side.canonical, true));
    let changes = Change::ALL.map(|change| {
        let count =
            |frames: &Vec<Frame>| frames.iter().flat_map(Frame::changes).filter(|one| *one == change).count();
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
        changes: changes.into_iter().filter(|(_, counts)| counts.iter().sum::<usize>() > 0).collect(),
        frames,
        same,
        alike,
    }
}

/// The frames that begin with this phase.
fn of(frames: &[Frame], phase: Phase) -> Vec<&Frame> {
    frames.iter().filter(|frame| frame.phases.first() == Some(&phase)).collect()
}

fn rows(sides: &[Vec<Frame>; 2]) -> Vec<[Cell; 2]> {
    let mut rows = Vec::new();
    for phase in Phase::ALL {
        let many = sides.iter().any(|frames| of(frames, phase).len() > MANY);
        let [left, right] = [cells(&sides[0], phase, many), cells(&sides[1], phase, many)];
        let count = left.len().max(right.len());
        let fill = |cells: Vec<Cell>| cells.into_iter().chain(std::iter::repeat(Cell::Empty)).take(count);
        rows.extend(fill(left).zip(fill(right)).map(|(left, right)| [left, right]));
    }
    rows
}

/// One side's cells for a phase; `many`: those of a kind are counted.
fn cells(frames: &[Frame], phase: Phase, many: bool) -> Vec<Cell> {
    let found = of(frames, phase);
    if found.is_empty() {
        let within = frames.iter().any(|frame| frame.phases.contains(&phase));
        let note = "(it came with the last token, above)".to_owned();
        return if within { vec![Cell::Note(note)] } else { Vec::new() };
    }
    let frame = |frame: &&Frame| Cell::Frame((*frame).clone());
    if !many || found.len() <= SHOWN + 1 {
        return found.iter().map(frame).collect();
    }
    // What tells more than its phase is always shown.
    let (plain, merged): (Vec<_>, Vec<_>) = found.into_iter().partition(|frame| frame.phases.len() == 1);
    let note = format!("… {} more frames like these", plain.len().saturating_sub(SHOWN));
    let shown = plain.iter().take(SHOWN).map(frame);
    shown.chain([Cell::Note(note)]).chain(merged.iter().map(frame)).collect()
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

/// The frame without ids and time; `words`: also without what the model said and counted.
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
            let said =
                words && ["content", "reasoning_content", "reasoning", "arguments"].contains(&key.as_ref());
            match drawn || said {
                true => out.push('…'),
                false => mask(value, words, out),
            }
            out.push(',');
        }
        out.push('}');
    } else if let Ok(elements) = json::read::<Vec<Raw<'_>>>(text) {
        out.push('[');
        elements.into_iter().for_each(|element| mask(element, words, out));
        out.push(']');
    } else {
        out.push_str(if words && text.starts_with(|first: char| first.is_ascii_digit()) {
            "0"
        } else {
            text
        });
    }
}
