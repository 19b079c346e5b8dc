//! Advice at the end of a report: flags for the engine, and a configuration for samewire in front of it.

use super::check::Finding;
use super::outcome::{Setting, Table, quoted};
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

/// Absolute paths of files that the configuration names, where the engine needs them.
#[derive(Clone, Debug, Default)]
pub struct AdvisedFiles {
    /// File with the engine's key.
    pub key: Option<String>,
    /// File of the authorities that have signed the engine's certificate.
    pub ca: Option<String>,
}

/// Returns the advice of a report.
pub fn advice(report: &Report, findings: &[Finding], files: &AdvisedFiles) -> Advice {
    let remedies = findings
        .iter()
        .filter_map(|finding| Some(&finding.found()?.remedy));
    let mut engine: Vec<String> = Vec::new();
    let mut tables: BTreeMap<Table, BTreeMap<&str, &Setting>> = BTreeMap::new();
    for remedy in remedies {
        engine.extend(
            remedy
                .engine
                .iter()
                .filter(|flag| !engine.contains(flag))
                .cloned()
                .collect::<Vec<_>>(),
        );
        for setting in &remedy.settings {
            tables
                .entry(setting.table)
                .or_default()
                .insert(setting.key, setting);
        }
    }
    Advice {
        engine: without_parts(engine),
        config: config(report, &tables, files),
    }
}

/// Leaves out flags that another entry has among others.
fn without_parts(flags: Vec<String>) -> Vec<String> {
    let is_part = |one: &String| {
        flags
            .iter()
            .any(|other| other != one && other.contains(one.as_str()))
    };
    flags
        .iter()
        .filter(|flag| !is_part(flag))
        .cloned()
        .collect()
}

fn config(
    report: &Report,
    tables: &BTreeMap<Table, BTreeMap<&str, &Setting>>,
    files: &AdvisedFiles,
) -> String {
    let lines = |table: Table| {
        let settings = tables.get(&table).into_iter().flat_map(BTreeMap::values);
        settings
            .map(|setting| format!("{} = {}", setting.key, setting.value))
            .collect::<Vec<_>>()
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
    for (key, path) in [("api_key_file", &files.key), ("ca_file", &files.ca)] {
        path.iter()
            .for_each(|path| _ = writeln!(text, "{key} = {}", quoted(path)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::doctor::check::{Check, Topic};
    use crate::doctor::outcome::{Found, Outcome, Remedy, Severity};
    use crate::doctor::question::Question;

    static CHECK: Check = Check {
        id: "a",
        topic: Topic::Server,
        question: Question::Models,
        affected: &[],
        mends: None,
        rule: None,
        judge: |_| Outcome::fine("a"),
    };

    fn finding(engine: Option<&str>, settings: &[(Table, &'static str, &str)]) -> Finding {
        let setting = |(table, key, value): &(Table, &'static str, &str)| Setting {
            table: *table,
            key,
            value: (*value).to_owned(),
        };
        let settings = settings.iter().map(setting).collect();
        let remedy = Remedy {
            engine: engine.map(str::to_owned),
            settings,
        };
        let found = Found {
            severity: Severity::Note,
            says: String::new(),
            evidence: String::new(),
            remedy,
        };
        Finding {
            check: &CHECK,
            outcome: Outcome::Found(Box::new(found)),
            mends: None,
        }
    }

    #[test]
    fn every_remedy_is_in_one_configuration() {
        let report = Report {
            url: "http://127.0.0.1:8000/v1".to_owned(),
            ..Report::default()
        };
        let findings = [
            finding(Some("--b 2"), &[(Table::Wire, "parser", "\"qwen3\"")]),
            finding(Some("--a 1 --b 2"), &[(Table::Wire, "parser", "\"qwen3\"")]),
            finding(
                None,
                &[
                    (Table::Wire, "missing_finish", "\"stop\""),
                    (Table::Timeouts, "pool_idle", "0.5"),
                ],
            ),
            finding(None, &[(Table::Wire, "promote_reasoning", "true")]),
            finding(None, &[(Table::Wire, "system_messages", "\"merge\"")]),
            finding(
                None,
                &[(
                    Table::Upstream,
                    "models",
                    &format!("[{}]", quoted("a\"b\n\u{202e}")),
                )],
            ),
        ];
        let advice = advice(&report, &findings, &AdvisedFiles::default());
        assert_eq!(advice.engine, ["--a 1 --b 2"]);
        assert_eq!(
            advice.config.matches("parser").count(),
            1,
            "{}",
            advice.config
        );
        assert!(
            advice
                .config
                .contains(r#"models = ["a\"b\U0000000a\U0000202e"]"#),
            "{}",
            advice.config
        );
        assert!(
            Config::read(&advice.config, &[]).is_ok(),
            "{}",
            advice.config
        );
    }

    #[test]
    fn a_configuration_without_remedies_is_complete() {
        let report = Report {
            url: "https://api.example/v1".to_owned(),
            ..Report::default()
        };
        let advice = advice(&report, &[], &AdvisedFiles::default());
        assert_eq!(
            advice.config,
            "[[upstream]]\nurl = \"https://api.example\"\n"
        );
        assert!(Config::read(&advice.config, &[]).is_ok());
    }
}
