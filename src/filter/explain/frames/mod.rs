//! Frames of a recorded exchange side by side: each engine frame with the frames that the client received for it,
//! and what was changed.
//!
//! Takes: the bodies of both sides with their times. Gives: [`FrameRow`]s, whose texts together are the two bodies.
//! Never: changes the order of a side, or leaves a byte out.
//!
//! The rewriter runs over the engine's bytes a second time (`rerun.rs`). This shows how many frames each engine frame
//! makes and which rules were used. The frames in the rows are the recorded ones (`align.rs`).

mod align;
mod rerun;
mod split;

pub use split::Side;

use super::claims::{RuleMatcher, Used};
use super::compare::{Comparer, Effect};
use super::{Change, Place, REFUSED, data, events};
use crate::filter::{FilterError, FilterParams};
use crate::wire::rule::Rule;
use crate::wire::sse::Framer;
use align::{Aligner, Expected};
use bytes::Bytes;
use rerun::Rerun;
use split::{Block, blocks};
use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

/// Frame of one side, as it went over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedFrame<'a> {
    /// Time since the request arrived.
    pub at: Duration,
    /// Bytes of the frame as text, with the blank lines behind it.
    pub text: Cow<'a, str>,
}

/// Change by the rewriter in one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange {
    /// Name of the rule; `None` if no counted rule made the change.
    pub rule: Option<&'static str>,
    /// Difference between the two sides, in words.
    pub text: String,
    /// Number of times the change was made.
    pub times: u32,
}

/// Engine frame with what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameRow<'a> {
    /// Engine frame; `None` for frames that no engine frame has produced, such as keep-alive comments.
    pub engine: Option<TimedFrame<'a>>,
    /// Frames that the client received for it.
    pub client: Vec<TimedFrame<'a>>,
    /// Changes by the rewriter.
    pub changes: Vec<RowChange>,
}

/// Aligns both sides of an exchange whose answer was rewritten, and explains the changes.
///
/// # Errors
/// Fails if the answer cannot be explained: it consists of an engine answer for each choice, or the filter cannot
/// process the request. [`relayed_rows`] still aligns it.
pub fn explained_rows<'a>(
    params: FilterParams,
    engine: &Side<'a>,
    client: &Side<'a>,
) -> Result<Vec<FrameRow<'a>>, FilterError> {
    let engine = &engine.sniffed();
    let mut table = Table::new(engine, client);
    if params.status >= 400 {
        table.join_all();
        let effects = Comparer::default().compare(&table.engine_text(), &[&table.client_text()], true);
        table.note(&mut RuleMatcher::default(), effects, &[], 0, false);
        return Ok(table.rows());
    }
    let max_event_bytes = params.route.max_event_bytes;
    let rerun = Rerun::new(params, engine.is_stream, &table.engine)?;
    table.align(&rerun.expected);
    table.explain(&rerun, max_event_bytes);
    Ok(table.rows())
}

/// Aligns both sides of an exchange whose answer was not rewritten.
pub fn relayed_rows<'a>(engine: &Side<'a>, client: &Side<'a>) -> Vec<FrameRow<'a>> {
    let mut table = Table::new(engine, client);
    let same = |(row, block): (usize, &Block<'_>)| Expected { row, text: Bytes::copy_from_slice(block.text) };
    let expected: Vec<_> = table.engine.iter().enumerate().map(same).collect();
    table.align(&expected);
    table.rows()
}

/// Frames of both sides with the rows in which they stand. The row behind the engine's last frame is for the frames
/// that are written at the end of the answer.
struct Table<'a> {
    engine: Vec<Block<'a>>,
    client: Vec<Block<'a>>,
    is_client_stream: bool,
    /// Row of each client frame.
    places: Vec<Option<usize>>,
    /// Changes in each row.
    changes: Vec<Vec<RowChange>>,
}

impl<'a> Table<'a> {
    fn new(engine: &Side<'a>, client: &Side<'a>) -> Self {
        let (engine, frames) = (blocks(engine), blocks(client));
        Self {
            places: vec![None; frames.len()],
            changes: vec![Vec::new(); engine.len() + 1],
            engine,
            client: frames,
            is_client_stream: client.is_stream,
        }
    }

    fn engine_text(&self) -> String {
        self.engine.iter().map(|block| block.text()).collect()
    }

    fn client_text(&self) -> String {
        self.client.iter().map(|block| block.text()).collect()
    }

    /// Finds the row of each client frame. A body that is no stream, and what no engine frame is expected to produce,
    /// belong to the engine's last frame.
    fn align(&mut self, expected: &[Expected]) {
        if !self.is_client_stream {
            return self.join_all();
        }
        let times: Vec<_> = self.engine.iter().map(|block| block.at).collect();
        self.places = Aligner { rows: &times, expected, client: &self.client }.rows();
    }

    /// Puts all client frames beside the engine's answer, for an answer that is no stream of the engine.
    fn join_all(&mut self) {
        let last = self.engine.len().saturating_sub(1);
        self.places.fill(Some(last));
    }

    /// Finds the changes in each row.
    fn explain(&mut self, rerun: &Rerun, max_event_bytes: usize) {
        let (mut comparer, mut matcher) = (Comparer::default(), RuleMatcher::default());
        let mut framer = Framer::new(max_event_bytes);
        let (mut next, mut next_expected) = (0, 0);
        for row in 0..self.changes.len() {
            let texts = self.texts(row, rerun, [&mut next, &mut next_expected]);
            let frame = self.frame_data(row, rerun, &mut framer);
            let used = rerun.used.get(row).map(Vec::as_slice).unwrap_or_default();
            if frame.is_empty() && texts.is_empty() && used.is_empty() {
                continue;
            }
            let lines: Vec<&str> = match self.is_client_stream {
                true => texts.iter().flat_map(|text| messages(text)).collect(),
                false => texts.iter().map(|text| &**text).collect(),
            };
            let effects = match rerun.is_comparable(self.is_client_stream) {
                true if rerun.refused == Some(row) && !frame.is_empty() => vec![Effect::words(REFUSED)],
                true => comparer.compare(&frame, &lines, rerun.is_object),
                false => Vec::new(),
            };
            self.note(&mut matcher, effects, used, row, comparer.is_waiting());
        }
        let rest: Vec<_> = matcher.rest().collect();
        rest.into_iter().for_each(|change| self.add(change));
    }

    /// Returns the client frames of a row. Where the client received none, such as after it left, these are the ones
    /// that the rewriter makes. `next`: the first frames of both lists behind the row before.
    fn texts<'t>(&self, row: usize, rerun: &'t Rerun, next: [&mut usize; 2]) -> Vec<Cow<'t, str>>
    where
        'a: 't,
    {
        let [next, next_expected] = next;
        let received = take_row(next, &self.places, |place| place.is_none_or(|own| own <= row));
        let frames = self.client.get(received.clone()).unwrap_or_default();
        let places = self.places.get(received).unwrap_or_default();
        let own = frames.iter().zip(places).filter(|(_, place)| place.is_some());
        let texts: Vec<_> = own.map(|(block, _)| block.text()).collect();
        let made = take_row(next_expected, &rerun.expected, |frame| frame.row <= row);
        if !texts.is_empty() {
            return texts;
        }
        let made = rerun.expected.get(made).unwrap_or_default();
        made.iter().map(|frame| String::from_utf8_lossy(&frame.text)).collect()
    }

    /// Returns the data of the event in a row; empty if there is none, as in a comment.
    fn frame_data(&self, row: usize, rerun: &Rerun, framer: &mut Framer) -> String {
        let Some(block) = self.engine.get(row) else { return String::new() };
        if rerun.is_object {
            return block.text().into_owned();
        }
        let mut found = None;
        framer.push(block.text, |output| found = found.take().or_else(|| data(output)));
        if rerun.end.is_some_and(|end| row > end) {
            // Nothing is read behind the end of the answer.
            return String::new();
        }
        if row + 1 == self.engine.len() && rerun.reads_unfinished_event {
            framer.finish(|_| true, |output| found = found.take().or_else(|| data(output)));
        }
        found.unwrap_or_default()
    }

    /// Adds the changes of a row, each with its rule.
    fn note(
        &mut self,
        matcher: &mut RuleMatcher,
        effects: Vec<Effect>,
        used: &[(Rule, u32)],
        row: usize,
        is_waiting: bool,
    ) {
        let number = row as u64;
        let place = Place::Frames { first: number, last: number };
        let used = used.iter().map(|(rule, times)| Used { rule: *rule, times: *times, place });
        let changes = matcher.changes(effects, used, place, is_waiting);
        changes.into_iter().for_each(|change| self.add(change));
    }

    fn add(&mut self, change: Change) {
        let Place::Frames { first, .. } = change.place else { return };
        if let Some(row) = usize::try_from(first).ok().and_then(|row| self.changes.get_mut(row)) {
            row.push(RowChange { rule: change.rule, text: change.effect.to_string(), times: change.times });
        }
    }

    /// Returns the rows: each engine frame, and the client frames of no row between them.
    fn rows(mut self) -> Vec<FrameRow<'a>> {
        let mut rows = Vec::with_capacity(self.changes.len());
        let at_end = self.changes.pop().unwrap_or_default();
        let following = self.following_rows();
        let mut next = 0;
        for (row, (block, changes)) in self.engine.iter().zip(self.changes).enumerate() {
            let is_before = |place: usize, frame: &Block<'_>| {
                following.get(place).is_some_and(|following| *following <= row) || frame.at < block.at
            };
            while let Some((None, frame)) =
                self.places.get(next).zip(self.client.get(next)).map(|(p, f)| (*p, f))
                && is_before(next, frame)
            {
                rows.push(FrameRow { client: vec![frame.timed()], ..FrameRow::default() });
                next += 1;
            }
            let mut client = Vec::new();
            while self.places.get(next) == Some(&Some(row)) {
                client.extend(self.client.get(next).map(Block::timed));
                next += 1;
            }
            rows.push(FrameRow { engine: Some(block.timed()), client, changes });
        }
        let rest = self.client.get(next..).unwrap_or_default();
        let places = self.places.get(next..).unwrap_or_default();
        add_end(&mut rows, rest.iter().zip(places), at_end);
        rows
    }

    /// Returns for each client frame the row of the next one that has a row.
    fn following_rows(&self) -> Vec<usize> {
        let mut row = usize::MAX;
        let mut rows: Vec<_> = self
            .places
            .iter()
            .rev()
            .map(|place| {
                row = place.unwrap_or(row);
                row
            })
            .collect();
        rows.reverse();
        rows
    }
}

/// Returns the data of the events in a client's frame, or the message that it is.
fn messages(text: &str) -> Vec<&str> {
    match text.starts_with('{') {
        true => vec![text.trim_end()],
        false => events(text),
    }
}

/// Takes the front elements of a list that belong to a row. Returns their range.
fn take_row<T>(next: &mut usize, list: &[T], is_of_row: impl Fn(&T) -> bool) -> Range<usize> {
    let start = *next;
    while list.get(*next).is_some_and(&is_of_row) {
        *next += 1;
    }
    start..*next
}

/// Adds the client frames behind the engine's last frame: those of the end in one row, with its changes.
fn add_end<'a, 'b>(
    rows: &mut Vec<FrameRow<'a>>,
    frames: impl Iterator<Item = (&'b Block<'a>, &'b Option<usize>)>,
    mut changes: Vec<RowChange>,
) where
    'a: 'b,
{
    let mut end: Option<FrameRow<'a>> = None;
    for (frame, place) in frames {
        match (place, &mut end) {
            (Some(_), Some(end)) => end.client.push(frame.timed()),
            (Some(_), None) => {
                let changes = std::mem::take(&mut changes);
                end = Some(FrameRow { engine: None, client: vec![frame.timed()], changes });
            }
            (None, _) => {
                rows.extend(end.take());
                rows.push(FrameRow { client: vec![frame.timed()], ..FrameRow::default() });
            }
        }
    }
    rows.extend(end);
    match rows.last_mut() {
        Some(last) => last.changes.extend(changes),
        None if changes.is_empty() => {}
        None => rows.push(FrameRow { changes, ..FrameRow::default() }),
    }
}
