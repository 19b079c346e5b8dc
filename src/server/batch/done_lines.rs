//! Lines of a batch that are done, as its progress in the store tells them.
//!
//! Remembers: ranges of numbers, of which there are never more than lines that run or wait. Never: forgets a line.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Numbers of lines: all before the cursor, and ranges after it.
#[derive(Debug, Default)]
pub(super) struct DoneLines {
    cursor: u64,
    /// First number of each range after the cursor, with the first one after the range. No two ranges touch.
    ranges: BTreeMap<u64, u64>,
}

impl DoneLines {
    /// Reads stored progress. `ahead` is as [`Self::ahead`] returns it.
    pub(super) fn read(cursor: u64, ahead: &str) -> Self {
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last) = (first.parse().ok()?, last.parse::<u64>().ok()?);
            Some((first, last.checked_add(1)?))
        };
        Self {
            cursor,
            ranges: ahead.split(',').filter_map(range).collect(),
        }
    }

    /// Returns the number of the first line that is not done.
    pub(super) fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Returns the ranges after the cursor, for instance `7-9,11`.
    pub(super) fn ahead(&self) -> String {
        let mut text = String::new();
        for (first, end) in &self.ranges {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = match end - 1 {
                last if last == *first => write!(text, "{comma}{first}"),
                last => write!(text, "{comma}{first}-{last}"),
            };
        }
        text
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        let range = self.ranges.range(..=number).next_back();
        number < self.cursor || range.is_some_and(|(_, end)| number < *end)
    }

    /// Adds a line that was not done.
    pub(super) fn insert(&mut self, number: u64) {
        let end = self.ranges.remove(&(number + 1)).unwrap_or(number + 1);
        if number == self.cursor {
            self.cursor = end;
            return;
        }
        match self.ranges.range_mut(..number).next_back() {
            Some((_, before)) if *before == number => *before = end,
            _ => _ = self.ranges.insert(number, end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_together() {
        let mut done = DoneLines::default();
        for (number, cursor, ahead) in [
            (3, 0, "3"),
            (5, 0, "3,5"),
            (4, 0, "3-5"),
            (0, 1, "3-5"),
            (7, 1, "3-5,7"),
            (1, 2, "3-5,7"),
            (2, 6, "7"),
        ] {
            assert!(!done.contains(number));
            done.insert(number);
            assert_eq!(
                (done.cursor(), &*done.ahead()),
                (cursor, ahead),
                "after {number}"
            );
            assert!(done.contains(number));
        }
        assert!(!done.contains(6) && !done.contains(8));
    }

    /// Whatever the order, each line is done once, and the stored ranges say the same.
    #[test]
    fn it_is_read_as_it_was_stored() {
        let mut done = DoneLines::default();
        for step in 0..1_000_u64 {
            // 7 and 1,000 have no common factor: each number comes once.
            let number = step * 7 % 1_000;
            let stored = DoneLines::read(done.cursor(), &done.ahead());
            assert!(
                !stored.contains(number) && !done.contains(number),
                "{number}"
            );
            assert!(
                (0..step).all(|step| stored.contains(step * 7 % 1_000)),
                "{number}"
            );
            done.insert(number);
        }
        assert_eq!((done.cursor(), &*done.ahead()), (1_000, ""));
    }

    #[test]
    fn a_range_that_cannot_be_read_is_not_done() {
        let done = DoneLines::read(2, "4,x,6-y,8-9,18446744073709551615");
        assert_eq!(
            (0..12)
                .filter(|number| done.contains(*number))
                .collect::<Vec<_>>(),
            [0, 1, 4, 8, 9]
        );
    }
}
