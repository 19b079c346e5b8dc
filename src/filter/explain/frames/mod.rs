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

use super::{Change, Judge, Place, data, events};
use crate::filter::{FilterError, FilterParams};
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
    /// Bytes of the frame as text, with the blank lines after it.
    pub text: Cow<'a, str>,
}

/// Engine frame with what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameRow<'a> {
    /// Engine frame; `None` for frames that no engine frame has produced, such as keep-alive comments.
    pub engine: Option<TimedFrame<'a>>,
    /// Frames that the client received for it.
    pub client: Vec<TimedFrame<'a>>,
    /// Changes by the rewriter.
    pub changes: Vec<Change>,
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
        let (engine, client) = (text_of(&table.engine), text_of(&table.client));
        let changes =
            Judge::default().changes(&engine, Some(&[&client]), true, &[], false, place(0));
        table.note(changes);
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
    let same = |(row, block): (usize, &Block<'_>)| Expected {
        row,
        text: Bytes::copy_from_slice(block.text),
    };
    let expected: Vec<_> = table.engine.iter().enumerate().map(same).collect();
    table.align(&expected);
    table.rows()
}

/// Frames of both sides with their rows. The row after the engine's last frame is for the frames
/// that are written at the end of the answer.
struct Table<'a> {
    engine: Vec<Block<'a>>,
    client: Vec<Block<'a>>,
    is_client_stream: bool,
    /// Row of each client frame.
    places: Vec<Option<usize>>,
    /// Changes in each row.
    changes: Vec<Vec<Change>>,
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

    /// Finds the row of each client frame. A body that is no stream, and what no engine frame is expected to produce,
    /// belong to the engine's last frame.
    fn align(&mut self, expected: &[Expected]) {
        if !self.is_client_stream {
            return self.join_all();
        }
        let times: Vec<_> = self.engine.iter().map(|block| block.at).collect();
        self.places = Aligner {
            rows: &times,
            expected,
            client: &self.client,
        }
        .rows();
    }

    /// Puts all client frames beside the engine's answer, for an answer that is no stream of the engine.
    fn join_all(&mut self) {
        let last = self.engine.len().saturating_sub(1);
        self.places.fill(Some(last));
    }

    /// Finds the changes in each row.
    fn explain(&mut self, rerun: &Rerun, max_event_bytes: usize) {
        let mut judge = Judge::default();
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
            let written = rerun
                .is_comparable(self.is_client_stream)
                .then_some(lines.as_slice());
            let refuses = rerun.refused == Some(row);
            self.note(judge.changes(&frame, written, rerun.is_object, used, refuses, place(row)));
        }
        self.note(judge.claims.rest());
    }

    /// Returns the client frames of a row. Where the client received none, such as after it left, these are the ones
    /// that the rewriter makes. `next`: the first frames of both lists after the row before.
    fn texts<'t>(&self, row: usize, rerun: &'t Rerun, next: [&mut usize; 2]) -> Vec<Cow<'t, str>>
    where
        'a: 't,
    {
        let [next, next_expected] = next;
        let received = take_row(next, &self.places, |place| {
            place.is_none_or(|own| own <= row)
        });
        let frames = self.client.get(received.clone()).unwrap_or_default();
        let places = self.places.get(received).unwrap_or_default();
        let own = frames
            .iter()
            .zip(places)
            .filter(|(_, place)| place.is_some());
        let texts: Vec<_> = own.map(|(block, _)| block.text()).collect();
        let made = take_row(next_expected, &rerun.expected, |frame| frame.row <= row);
        if !texts.is_empty() {
            return texts;
        }
        let made = rerun.expected.get(made).unwrap_or_default();
        made.iter()
            .map(|frame| String::from_utf8_lossy(&frame.text))
            .collect()
    }

    /// Returns the data of the event in a row; empty if there is none, as in a comment.
    fn frame_data(&self, row: usize, rerun: &Rerun, framer: &mut Framer) -> String {
        let Some(block) = self.engine.get(row) else {
            return String::new();
        };
        if rerun.is_object {
            return block.text().into_owned();
        }
        let mut found = None;
        framer.push(block.text, |output| {
            found = found.take().or_else(|| data(output))
        });
        if rerun.end.is_some_and(|end| row > end) {
            // Nothing is read after the end of the answer.
            return String::new();
        }
        if row + 1 == self.engine.len() && rerun.reads_unfinished_event {
            framer.finish(
                |_| true,
                |output| found = found.take().or_else(|| data(output)),
            );
        }
        found.unwrap_or_default()
    }

    /// Adds changes to their rows.
    fn note(&mut self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            let Place::Frames { first, .. } = change.place else {
                continue;
            };
            let row = usize::try_from(first)
                .ok()
                .and_then(|row| self.changes.get_mut(row));
            if let Some(row) = row {
                row.push(change);
            }
        }
    }

    /// Returns the rows: each engine frame, the client frames of no row between them, and those of the end in one row.
    fn rows(self) -> Vec<FrameRow<'a>> {
        let following = self.following_rows();
        let lone = |frame: &Block<'a>| FrameRow {
            client: vec![frame.timed()],
            ..FrameRow::default()
        };
        let mut rows = Vec::with_capacity(self.changes.len());
        let mut frames = self
            .client
            .iter()
            .zip(self.places.iter().zip(following))
            .peekable();
        let mut rest = Vec::new();
        let blocks = self.engine.iter().map(Some).chain([None]);
        for (row, (block, changes)) in blocks.zip(self.changes).enumerate() {
            let arrived = block.map_or(Duration::ZERO, |block| block.at);
            while let Some((frame, _)) = frames.next_if(|(frame, (place, following))| {
                place.is_none() && (*following <= row || frame.at < arrived)
            }) {
                rows.push(lone(frame));
            }
            let mut client = Vec::new();
            while let Some((frame, _)) = frames.next_if(|(_, (place, _))| **place == Some(row)) {
                client.push(frame.timed());
            }
            match block.map(Block::timed) {
                None if client.is_empty() => rest = changes,
                engine => rows.push(FrameRow {
                    engine,
                    client,
                    changes,
                }),
            }
        }
        rows.extend(frames.map(|(frame, _)| lone(frame)));
        match rows.last_mut() {
            Some(last) => last.changes.extend(rest),
            None if rest.is_empty() => {}
            None => rows.push(FrameRow {
                changes: rest,
                ..FrameRow::default()
            }),
        }
        rows
    }

    /// Returns for each client frame the row of the next one that has a row.
    fn following_rows(&self) -> Vec<usize> {
        let mut next = usize::MAX;
        let mut rows = vec![next; self.places.len()];
        for (row, place) in rows.iter_mut().zip(&self.places).rev() {
            next = place.unwrap_or(next);
            *row = next;
        }
        rows
    }
}

/// Returns the place of the changes in a row.
fn place(row: usize) -> Place {
    Place::Frames {
        first: row as u64,
        last: row as u64,
    }
}

fn text_of(blocks: &[Block<'_>]) -> String {
    blocks.iter().map(|block| block.text()).collect()
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
