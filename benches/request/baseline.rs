//! Committed costs, so that a change that makes requests dearer is noticed.

use crate::Cost;
use std::fmt::Write;
use std::path::PathBuf;

/// Part by which a cost may exceed the baseline: counts differ a little between runs.
const SLACK: f64 = 0.03;
/// Allocations by which a cost may exceed the baseline.
const ALLOCATIONS: f64 = 0.5;

impl Cost {
    /// Returns true if `now` is more than this baseline allows.
    pub(crate) fn is_exceeded_by(&self, now: &Self) -> bool {
        now.instructions > self.instructions * (1.0 + SLACK)
            || now.allocations > self.allocations + ALLOCATIONS
    }
}

/// Baseline of all scenarios.
pub(crate) struct Baseline {
    comment: String,
    costs: Vec<(String, Cost)>,
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/request/baseline.txt")
}

impl Baseline {
    pub(crate) fn read() -> Result<Self, String> {
        let text = std::fs::read_to_string(path()).map_err(|error| format!("baseline.txt: {error}"))?;
        let mut this = Self { comment: String::new(), costs: Vec::new() };
        for line in text.lines() {
            if line.starts_with('#') {
                let _ = writeln!(this.comment, "{line}");
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, instructions, allocations] = words[..] else {
                return Err(format!("baseline.txt: not three words: {line}"));
            };
            let number = |word: &str| word.parse().map_err(|error| format!("baseline.txt: {word}: {error}"));
            let cost = Cost { instructions: number(instructions)?, allocations: number(allocations)? };
            this.costs.push((name.to_owned(), cost));
        }
        Ok(this)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Cost> {
        self.costs.iter().find(|(own, _)| own == name).map(|(_, cost)| *cost)
    }

    pub(crate) fn set(&mut self, name: &str, cost: Cost) {
        self.costs.retain(|(own, _)| own != name);
        self.costs.push((name.to_owned(), cost));
    }

    pub(crate) fn write(&self) -> Result<(), String> {
        let mut text = self.comment.clone();
        for (name, cost) in &self.costs {
            let _ = writeln!(text, "{name} {:.0} {:.2}", cost.instructions, cost.allocations);
        }
        std::fs::write(path(), text).map_err(|error| format!("baseline.txt: {error}"))
    }
}
