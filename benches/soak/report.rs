//! Report of the run, as a table for people and as JSON.

use serde_json::{Map, Value, json};
use std::path::Path;

#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<[String; 4]>,
    json: Map<String, Value>,
    pub(crate) failed: bool,
}

impl Report {
    /// Adds a figure with a limit that decides over success.
    pub(crate) fn row(&mut self, name: &str, value: &str, limit: &str, passed: bool) {
        let verdict = if passed { "pass" } else { "FAIL" };
        self.failed |= !passed;
        self.push(name, value, limit, verdict);
    }

    /// Adds a figure for information only.
    pub(crate) fn info_row(&mut self, name: &str, value: &str) {
        self.push(name, value, "", "");
    }

    fn push(&mut self, name: &str, value: &str, limit: &str, verdict: &str) {
        self.rows
            .push([name, value, limit, verdict].map(str::to_owned));
        self.json.insert(
            name.to_owned(),
            json!({"value": value, "limit": limit, "verdict": verdict}),
        );
    }

    pub(crate) fn print(&self) {
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let (a, b, c) = (width(0), width(1), width(2));
        println!();
        for [name, value, limit, verdict] in &self.rows {
            println!(
                "{}",
                format!("{name:<a$}  {value:>b$}  {limit:<c$}  {verdict}").trim_end()
            );
        }
    }

    pub(crate) fn write(&self, path: &Path) -> std::io::Result<()> {
        let all = json!({"passed": !self.failed, "figures": self.json});
        std::fs::write(path, serde_json::to_vec_pretty(&all)?)?;
        println!("\nThe figures: {}", path.display());
        Ok(())
    }
}
