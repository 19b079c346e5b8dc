//! Lines of a batch that have been read and wait: for room at an engine, or for the time of another attempt
//! (faults O35).
//!
//! Remembers: a bounded part of the input. Never: has a line wait for the engines of another line's model.

use super::line::Line;
use std::collections::VecDeque;
use tokio::time::Instant;

/// Lines of which no more are read while they wait, and the same in bytes of their bodies.
const FULL: (usize, usize) = (256, 1 << 20);

/// Queue of the lines of one batch.
#[derive(Default)]
pub(super) struct LineQueue {
    /// Lines that wait for another attempt.
    tried: VecDeque<Line>,
    /// Lines without an attempt, in the order of the input.
    untried: VecDeque<Line>,
}

impl LineQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.tried.is_empty() && self.untried.is_empty()
    }

    /// Returns true if no more lines are to be read.
    pub(super) fn is_full(&self) -> bool {
        let bytes = || self.tried.iter().chain(&self.untried).map(|line| line.body.len()).sum::<usize>();
        self.tried.len() + self.untried.len() >= FULL.0 || bytes() >= FULL.1
    }

    pub(super) fn push(&mut self, line: Line) {
        let lines = if line.attempts.is_some() { &mut self.tried } else { &mut self.untried };
        lines.push_back(line);
    }

    /// Puts the line back that was taken last.
    pub(super) fn put_back(&mut self, line: Line) {
        let lines = if line.attempts.is_some() { &mut self.tried } else { &mut self.untried };
        lines.push_front(line);
    }

    /// Removes the first line that may be sent now, if there is one. `has_room` is asked about the first line of each
    /// model. While `most` lines of a model wait for another attempt, no new ones of it begin.
    pub(super) fn take(&mut self, most: usize, has_room: impl Fn(&Line) -> bool) -> Option<Line> {
        let (now, mut full) = (Instant::now(), Vec::new());
        let is_due = |line: &Line| line.attempts.as_ref().is_none_or(|attempts| attempts.due <= now);
        let at = first(&self.tried, &mut full, |line| is_due(line).then(|| has_room(line)));
        if let Some(at) = at {
            return self.tried.remove(at);
        }
        let retries = |line: &Line| self.tried.iter().filter(|tried| tried.model == line.model).count();
        let at = first(&self.untried, &mut full, |line| Some(retries(line) < most && has_room(line)));
        self.untried.remove(at?)
    }

    /// Removes the lines that wait for another attempt.
    pub(super) fn take_tried(&mut self) -> VecDeque<Line> {
        std::mem::take(&mut self.tried)
    }
}

/// Returns the index of the first line that may begin. `may_begin` gives `None` for a line that has to wait for itself,
/// and false for one whose model has no room: the model is then among `full`, and its other lines are passed over.
fn first<'a>(
    lines: &'a VecDeque<Line>,
    full: &mut Vec<&'a str>,
    may_begin: impl Fn(&Line) -> Option<bool>,
) -> Option<usize> {
    lines.iter().position(|line| {
        if full.contains(&&*line.model) {
            return false;
        }
        let may_begin = may_begin(line);
        if may_begin == Some(false) {
            full.push(&line.model);
        }
        may_begin == Some(true)
    })
}

#[cfg(test)]
mod tests {
    use super::super::line::Attempts;
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;

    fn line(number: u64, model: &str) -> Line {
        Line {
            number,
            custom_id: String::new(),
            model: model.to_owned(),
            body: "0123456789".into(),
            attempts: None,
        }
    }

    fn tried(number: u64, model: &str, due: Instant) -> Line {
        let attempts = Attempts { count: 1, pause: Duration::ZERO, due, answer: None };
        Line { attempts: Some(Box::new(attempts)), ..line(number, model) }
    }

    /// Returns the numbers of the lines that may begin, if these models have room.
    fn taken(queue: &mut LineQueue, most: usize, models: &[&str]) -> Vec<u64> {
        std::iter::from_fn(|| queue.take(most, |line| models.contains(&&*line.model)))
            .map(|line| line.number)
            .collect()
    }

    #[test]
    fn a_model_without_room_holds_no_other_back() {
        let mut queue = LineQueue::default();
        for number in 0..6 {
            queue.push(line(number, if number % 2 == 0 { "busy" } else { "free" }));
        }
        let asked = Cell::new(0);
        let count = |line: &Line| {
            asked.set(asked.get() + 1);
            line.model == "free"
        };
        assert_eq!(queue.take(9, count).map(|line| line.number), Some(1));
        assert_eq!(asked.get(), 2, "each model once");
        assert_eq!(taken(&mut queue, 9, &["free"]), [3, 5]);
        assert_eq!(taken(&mut queue, 9, &["busy"]), [0, 2, 4]);
        assert!(queue.is_empty());
    }

    #[test]
    fn lines_are_tried_again_when_their_time_has_come() {
        let (mut queue, now) = (LineQueue::default(), Instant::now());
        queue.push(line(0, "m"));
        queue.push(tried(1, "m", now + Duration::from_secs(600)));
        queue.push(tried(2, "m", now));
        assert_eq!(taken(&mut queue, 1, &["m"]), [2], "one waits, so that no new one begins");
        assert_eq!(taken(&mut queue, 2, &["m"]), [0]);
        assert_eq!(queue.take_tried().len(), 1);
        assert!(queue.is_empty());
    }

    #[test]
    fn it_is_full_by_number_and_by_bytes() {
        let mut queue = LineQueue::default();
        (0..255).for_each(|number| queue.push(line(number, "m")));
        assert!(!queue.is_full());
        queue.push(line(255, "m"));
        assert!(queue.is_full());
        let first = queue.take(9, |_| true).unwrap();
        assert!(!queue.is_full());
        queue.put_back(Line { body: vec![b'x'; 1 << 20].into(), ..first });
        let first = queue.take(9, |_| true).unwrap();
        assert_eq!(first.number, 0, "the order is kept");
        queue = LineQueue::default();
        queue.push(first);
        assert!(queue.is_full());
    }
}
