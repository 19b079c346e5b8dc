//! Committed costs, so that a change that makes requests dearer is noticed.

use crate::Cost;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

/// Part by which a cost may exceed the baseline: counts differ a little between runs and processors.
const SLACK: f64 = 0.05;
/// Allocations by which a cost may exceed the baseline.
const ALLOCATIONS: f64 = 0.5;

/// Baseline of all scenarios.
pub(crate) struct Baseline {
    comment: String,
    /// Compiler with which it was measured, as `rustc --version` says it.
    compiler: String,
    costs: Vec<(String, Cost)>,
}

fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/request/baseline.txt")
}

impl Baseline {
    pub(crate) fn read() -> Result<Self, String> {
        let text =
            std::fs::read_to_string(path()).map_err(|error| format!("baseline.txt: {error}"))?;
        let mut this = Self {
            comment: String::new(),
            compiler: String::new(),
            costs: Vec::new(),
        };
        for line in text.lines() {
            if line.starts_with('#') {
                let _ = writeln!(this.comment, "{line}");
                continue;
            }
            if line.starts_with("rustc ") {
                line.clone_into(&mut this.compiler);
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, instructions, allocations] = words[..] else {
                return Err(format!("baseline.txt: not three words: {line}"));
            };
            let number = |word: &str| {
                word.parse()
                    .map_err(|error| format!("baseline.txt: {word}: {error}"))
            };
            let cost = Cost {
                instructions: number(instructions)?,
                allocations: number(allocations)?,
            };
            this.costs.push((name.to_owned(), cost));
        }
        Ok(this)
    }

    /// Returns true if instructions can be compared: another compiler makes others.
    pub(crate) fn is_of_this_compiler(&self) -> bool {
        self.compiler == compiler()
    }

    /// Returns true if a cost is more than this baseline allows, or is not in it.
    pub(crate) fn is_exceeded_by(&self, name: &str, cost: &Cost) -> bool {
        self.get(name).is_none_or(|base| {
            let more = cost.instructions > base.instructions * (1.0 + SLACK);
            more && self.is_of_this_compiler() || cost.allocations > base.allocations + ALLOCATIONS
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<Cost> {
        self.costs
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, cost)| *cost)
    }

    pub(crate) fn set(&mut self, name: &str, cost: Cost) {
        self.costs.retain(|(own, _)| own != name);
        self.costs.push((name.to_owned(), cost));
    }

    pub(crate) fn write(&self) -> Result<(), String> {
        let mut text = format!("{}{}\n", self.comment, compiler());
        for (name, cost) in &self.costs {
            let _ = writeln!(
                text,
                "{name} {:.0} {:.2}",
                cost.instructions, cost.allocations
            );
        }
        std::fs::write(path(), text).map_err(|error| format!("baseline.txt: {error}"))
    }
}
