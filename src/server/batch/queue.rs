//! Lines of a batch that have been read and wait: for room at an engine, or for the time of another attempt
//! (faults O35).
//!
//! Remembers: a bounded part of the input. Never: has a line wait for the engines of another line's model.

use super::line::RunningLine;
use std::collections::VecDeque;
use tokio::time::Instant;

/// Most lines that wait, and the bytes from which no more than can run at once do.
const FULL: (usize, usize) = (256, 1 << 20);

/// Queue of the lines of one batch.
#[derive(Default)]
pub(super) struct LineQueue {
    /// Lines that wait for another attempt.
    tried: VecDeque<RunningLine>,
    /// Lines without an attempt, in the order of the input.
    untried: VecDeque<RunningLine>,
}

impl LineQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.tried.is_empty() && self.untried.is_empty()
    }

    /// Returns true if no more lines are to be read. `free` is the number of lines that could run beside those that do.
    pub(super) fn is_full(&self, free: usize) -> bool {
        let lines = self.tried.len() + self.untried.len();
        let bytes = || {
            self.tried
                .iter()
                .chain(&self.untried)
                .map(RunningLine::bytes)
                .sum::<usize>()
        };
        lines >= FULL.0 || lines >= free && bytes() >= FULL.1
    }

    pub(super) fn push(&mut self, line: RunningLine) {
        self.of(&line).push_back(line);
    }

    /// Puts a line back that was taken, before all others.
    pub(super) fn put_back(&mut self, line: RunningLine) {
        self.of(&line).push_front(line);
    }

    /// Returns the lines among which a line waits.
    fn of(&mut self, line: &RunningLine) -> &mut VecDeque<RunningLine> {
        if line.attempts.is_some() {
            &mut self.tried
        } else {
            &mut self.untried
        }
    }

    /// Removes the first line that may be sent now, if there is one. `target` gives what it would be sent to, and
    /// `has_room` is called once for each of these. While `most` lines of a model wait for another attempt, no new
    /// ones of it begin.
    pub(super) fn take<T: PartialEq>(
        &mut self,
        most: usize,
        target: impl Fn(&RunningLine) -> T,
        has_room: impl Fn(&T) -> bool,
    ) -> Option<RunningLine> {
        let (now, mut full) = (Instant::now(), Vec::new());
        let mut has_room = |line: &RunningLine| {
            let target = target(line);
            if full.contains(&target) {
                return false;
            }
            let has_room = has_room(&target);
            if !has_room {
                full.push(target);
            }
            has_room
        };
        let is_due = |line: &RunningLine| {
            line.attempts
                .as_ref()
                .is_none_or(|attempts| attempts.due <= now)
        };
        if let Some(at) = self
            .tried
            .iter()
            .position(|line| is_due(line) && has_room(line))
        {
            return self.tried.remove(at);
        }
        let retries = |line: &RunningLine| {
            self.tried
                .iter()
                .filter(|tried| tried.model == line.model)
                .count()
        };
        let at = self
            .untried
            .iter()
            .position(|line| retries(line) < most && has_room(line));
        self.untried.remove(at?)
    }

    /// Removes the lines that wait for another attempt.
    pub(super) fn take_tried(&mut self) -> VecDeque<RunningLine> {
        std::mem::take(&mut self.tried)
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::Attempts;
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;

    fn line(number: u64, model: &str) -> RunningLine {
        let (custom_id, model, body) = (String::new(), model.to_owned(), "0123456789".into());
        RunningLine {
            number,
            custom_id,
            model,
            body,
            seed: number,
            attempts: None,
        }
    }

    fn tried(number: u64, model: &str, due: Instant) -> RunningLine {
        let attempts = Attempts {
            broken: 0,
            pause: Duration::ZERO,
            due,
            answer: None,
        };
        RunningLine {
            attempts: Some(Box::new(attempts)),
            ..line(number, model)
        }
    }

    fn model(line: &RunningLine) -> String {
        line.model.clone()
    }

    /// Returns the numbers of the lines that may begin, if these models have room.
    fn taken(queue: &mut LineQueue, most: usize, models: &[&str]) -> Vec<u64> {
        std::iter::from_fn(|| queue.take(most, model, |model| models.contains(&&**model)))
            .map(|line| line.number)
            .collect()
    }

    #[test]
    fn a_model_without_room_holds_no_other_back() {
        let mut queue = LineQueue::default();
        for number in 0..6 {
            queue.push(line(number, if number % 2 == 0 { "busy" } else { "free" }));
        }
        let calls = Cell::new(0);
        let has_room = |model: &String| {
            calls.set(calls.get() + 1);
            model == "free"
        };
        assert_eq!(
            queue.take(9, model, has_room).map(|line| line.number),
            Some(1)
        );
        assert_eq!(calls.get(), 2, "each model once");
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
        assert_eq!(
            taken(&mut queue, 1, &["m"]),
            [2],
            "one waits, so that no new one begins"
        );
        assert_eq!(taken(&mut queue, 2, &["m"]), [0]);
        assert_eq!(queue.take_tried().len(), 1);
        assert!(queue.is_empty());
    }

    #[test]
    fn it_is_full_by_number_and_by_bytes() {
        let mut queue = LineQueue::default();
        (0..255).for_each(|number| queue.push(line(number, "m")));
        assert!(!queue.is_full(1));
        queue.push(line(255, "m"));
        assert!(queue.is_full(1_000));
        let first = queue.take(9, model, |_| true).unwrap();
        assert!(!queue.is_full(1));
        let large = |line: RunningLine| RunningLine {
            body: vec![b'x'; 1 << 20].into(),
            ..line
        };
        queue.put_back(large(first));
        let first = queue.take(9, model, |_| true).unwrap();
        assert_eq!(first.number, 0);
        queue = LineQueue::default();
        queue.push(first);
        assert!(
            queue.is_full(1) && !queue.is_full(2),
            "slots that are free are filled"
        );
        queue.push(line(1, "m"));
        assert!(queue.is_full(2));
    }
}
