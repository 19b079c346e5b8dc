//! Second run of the rewriter over an engine's answer, frame by frame.
//!
//! Takes: the engine's frames. Gives: the client frames that each of them makes, and the rules that it uses. Never:
//! shows these frames; ids and times differ from those that the client received.

use super::align::Expected;
use super::split::{Block, Side, blocks};
use crate::filter::explain::Step;
use crate::filter::{Filter, FilterError, FilterParams, Input, Writer, detect_api};
use crate::wire::Api;
use crate::wire::rule::Rule;

/// Result of the second run.
#[derive(Debug, Default)]
pub(super) struct Rerun {
    /// Client frames in order.
    pub(super) expected: Vec<Expected>,
    /// Rules used in each row, with their counts.
    pub(super) used: Vec<Vec<(Rule, u32)>>,
    /// True if the engine's answer is a single object.
    pub(super) is_object: bool,
    /// True if the engine's last event has no blank line after it and was still read.
    pub(super) reads_unfinished_event: bool,
    /// Row whose event was refused, if one was.
    pub(super) refused: Option<usize>,
    /// Row in which the answer ended.
    pub(super) end: Option<usize>,
    writes_events: bool,
}

impl Rerun {
    /// Runs the rewriter. `is_stream`: the engine's answer consists of events.
    pub(super) fn new(
        params: FilterParams,
        is_stream: bool,
        engine: &[Block<'_>],
    ) -> Result<Self, FilterError> {
        if let Some(request) = &params.request
            && params
                .adapted(request)
                .is_ok_and(|adapted| adapted.fans_out())
        {
            let why =
                "Each choice has an engine answer of its own, and only the last one is shown.";
            return Err(FilterError::Refused(why.to_owned()));
        }
        let ending = params.ending;
        let seen = engine
            .first()
            .and_then(|block| detect_api(block.text))
            .unwrap_or(Api::Chat);
        let mut ignore = |_: &str| {};
        let mut writer = Filter::new(params, None, &mut ignore).writer(seen, is_stream)?;
        let mut this = Self {
            is_object: !is_stream,
            writes_events: writer.stream,
            ..Self::default()
        };
        if let (false, [body, ..]) = (is_stream, engine) {
            this.step(&mut writer, 0, Input::Whole(body.text));
            return Ok(this);
        }
        for (row, block) in engine.iter().enumerate() {
            this.step(&mut writer, row, Input::Bytes(block.text));
        }
        let step = Step::of(&mut writer, Input::End(ending));
        this.reads_unfinished_event = step.read > 0;
        let last = engine.len() - usize::from(this.reads_unfinished_event);
        this.note(&writer, last, step);
        Ok(this)
    }

    /// Returns true if the frames of both sides can be compared field by field: the client has a stream, or both sides
    /// are objects.
    pub(super) fn is_comparable(&self, is_client_stream: bool) -> bool {
        self.writes_events == is_client_stream && (self.is_object || self.writes_events)
    }

    fn step(&mut self, writer: &mut Writer, row: usize, input: Input<'_>) {
        let step = Step::of(writer, input);
        self.note(writer, row, step);
    }

    /// Notes what a row has written, and the rules that it has used.
    fn note(&mut self, writer: &Writer, row: usize, step: Step) {
        let written = &step.written;
        let side = Side {
            body: written,
            pieces: &[],
            is_stream: self.writes_events,
            is_socket: false,
        };
        let frames = blocks(&side).into_iter();
        self.expected.extend(frames.map(|frame| Expected {
            row,
            text: written.slice_ref(frame.text),
        }));
        if self.end.is_none() && writer.ended() {
            self.end = Some(row);
            self.refused = self.end.filter(|_| step.refuses);
        }
        if self.used.len() <= row {
            self.used.resize(row + 1, Vec::new());
        }
        if let Some(used) = self.used.get_mut(row) {
            used.extend(step.used);
        }
    }
}
