//! Advice at the end of a report: flags for the engine, and a configuration for samewire in front of it.

use super::check::{Finding, Setting, Table};
use super::run::Report;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Advice that follows from all findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// Flags and environment variables for the engine.
    pub engine: Vec<String>,
    /// Configuration of samewire, complete and ready to be written to `samewire.toml`.
    pub config: String,
}

/// Returns the advice of a report. `key_file`: absolute path of the file with the engine's key, if it needs one.
pub fn advice(report: &Report, findings: &[Finding], key_file: Option<&str>) -> Advice {
    let remedies = findings.iter().filter_map(|finding| Some(&finding.found()?.remedy));
    let mut engine: Vec<String> = Vec::new();
    let mut tables: BTreeMap<Table, BTreeMap<&str, &Setting>> = BTreeMap::new();
    for remedy in remedies {
        engine
            .extend(remedy.engine.iter().filter(|flag| !engine.contains(flag)).cloned().collect::<Vec<_>>());
        for setting in &remedy.settings {
            tables.entry(setting.table).or_default().insert(setting.key, setting);
        }
    }
    Advice { engine: without_parts(engine), config: config(report, &tables, key_file) }
}

/// Leaves out flags that another entry has among others.
fn without_parts(flags: Vec<String>) -> Vec<String> {
    let is_part = |one: &String| flags.iter().any(|other| other != one && other.contains(one.as_str()));
    flags.iter().filter(|flag| !is_part(flag)).cloned().collect()
}

fn config(
    report: &Report,
    tables: &BTreeMap<Table, BTreeMap<&str, &Setting>>,
    key_file: Option<&str>,
) -> String {
    let lines = |table: Table| {
        let settings = tables.get(&table).into_iter().flat_map(BTreeMap::values);
        settings.map(|setting| format!("{} = {}", setting.key, setting.value)).collect::<Vec<_>>()
    };
    let mut text = String::new();
    let timeouts = lines(Table::Timeouts);
    if !timeouts.is_empty() {
        let _ = writeln!(text, "[timeouts]\n{}\n", timeouts.join("\n"));
    }
    let url = report.url.strip_suffix("/v1").unwrap_or(&report.url);
    let _ = writeln!(text, "[[upstream]]\nurl = {}", quoted(url));
    if !report.server().engine().is_empty() {
        let _ = writeln!(text, "engine = {}", quoted(report.server().engine()));
    }
    if let Some(path) = key_file {
        let _ = writeln!(text, "api_key_file = {}", quoted(path));
    }
    for line in lines(Table::Upstream) {
        let _ = writeln!(text, "{line}");
    }
    let wire = lines(Table::Wire);
    if !wire.is_empty() {
        let _ = writeln!(text, "wire = {{ {} }}", wire.join(", "));
    }
    text
}

/// Returns a text as TOML.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
