//! Tables in the documents list exactly what exists.

use crate::markdown::{Document, ROOT, code, files, rows};
use samewire::engine::ENGINES;
use samewire::engine::fallback::Fallback;
use samewire::wire::rule::Rule;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn file(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the names of metrics in the source that writes them.
pub fn metrics() -> BTreeSet<String> {
    let mut sources = file("src/telemetry/mod.rs");
    files(&Path::new(ROOT).join("src/telemetry"), &mut |path| {
        sources.push_str(&std::fs::read_to_string(path).unwrap());
    });
    let mut found = BTreeSet::new();
    for text in sources.split('"') {
        let name: String = text
            .chars()
            .take_while(|c| c.is_ascii_lowercase() || *c == '_')
            .collect();
        let rest = &text[name.len()..];
        let is_whole = rest.is_empty() || rest.starts_with([' ', '{']);
        if is_whole && (name.starts_with("samewire_") || name.starts_with("process_")) {
            found.insert(name);
        }
    }
    found
}

#[test]
fn the_table_names_every_metric() {
    let document = Document::read("docs/watch.md");
    let section = document.section("## Metrics");
    let mut told = BTreeSet::new();
    for row in rows(section).iter().filter(|row| row.len() == 4) {
        for name in code(&row[0]) {
            assert!(told.insert(name.to_owned()), "{name} is there twice");
        }
    }
    let there = metrics();
    assert!(there.len() > 30, "{there:?}");
    assert_eq!(told, there);
}

/// Collects the keys of a table with their defaults; keys of nested tables follow a dot.
fn flat(table: &toml::Table, before: &str, found: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => flat(inner, &format!("{before}{key}."), found),
            toml::Value::String(text) if !text.is_empty() => {
                found.insert(format!("{before}{key}"), text.clone());
            }
            other => {
                found.insert(format!("{before}{key}"), other.to_string());
            }
        }
    }
}

#[test]
fn the_wire_format_names_every_option() {
    let example: toml::Table = file("config/samewire.toml").parse().unwrap();
    let mut there = BTreeMap::new();
    flat(example["wire"].as_table().unwrap(), "", &mut there);
    let document = Document::read("docs/wire-format.md");
    let mut told = BTreeMap::new();
    for row in rows(document.section("### 1.9 Options")) {
        let (names, defaults): (Vec<_>, Vec<_>) =
            (code(&row[0]).collect(), code(&row[1]).collect());
        assert_eq!(names.len(), defaults.len(), "{row:?}");
        for (name, default) in names.into_iter().zip(defaults) {
            assert!(
                told.insert(name.to_owned(), default.to_owned()).is_none(),
                "{name} is there twice"
            );
        }
    }
    assert!(there.len() > 30, "{there:?}");
    assert_eq!(told, there);
}

/// The index of rules lists each label of `samewire_rewrites_total` once.
#[test]
fn the_index_of_rules_names_every_rule() {
    let document = Document::read("docs/engines.md");
    let listed = |heading: &str, cell: usize| {
        let mut told = BTreeSet::new();
        for row in rows(document.section(heading)) {
            // Options and keys are named in parentheses.
            let names = row[cell]
                .split('(')
                .map(|part| part.rsplit(')').next().unwrap_or_default());
            for name in names.flat_map(code) {
                assert!(told.insert(name.to_owned()), "{name} is listed twice");
            }
        }
        told
    };
    let of_answers = Rule::ALL
        .iter()
        .map(|rule| rule.name().to_owned())
        .collect();
    assert_eq!(listed("### L.1 Rules for answers", 0), of_answers);
    let of_engines = ENGINES
        .iter()
        .flat_map(|engine| engine.rules())
        .chain(Fallback::rules());
    let of_requests = of_engines.map(|rule| rule.name.to_owned()).collect();
    assert_eq!(listed("### L.2 Rules for requests", 1), of_requests);
}

/// The documented client versions are those that the tests install.
#[test]
fn versions_of_clients_are_those_that_are_tested() {
    let pins = |path: &str, line: &str, what: &str| {
        let text = file(path);
        let found = text
            .lines()
            .find_map(|text| text.trim().strip_prefix(line).map(str::to_owned));
        let found = found.unwrap_or_else(|| panic!("{path} pins no {what}"));
        (
            what.to_owned(),
            found.trim_matches([' ', '"', ',']).to_owned(),
        )
    };
    let (python, node) = (
        "tests/clients/python/requirements.txt",
        "tests/clients/node/package.json",
    );
    let (agents, agents_node) = (
        "tests/agents/python/requirements.txt",
        "tests/agents/node/package.json",
    );
    let pins = [
        pins(python, "openai==", "openai for Python"),
        pins(node, "\"openai\":", "for Node"),
        pins(python, "anthropic==", "anthropic for Python"),
        pins(node, "\"@anthropic-ai/sdk\":", "`@anthropic-ai/sdk`"),
        pins(agents_node, "\"@anthropic-ai/claude-code\":", "Claude Code"),
        pins(agents, "langchain-anthropic==", "`langchain-anthropic`"),
        pins(agents_node, "\"@ai-sdk/anthropic\":", "`@ai-sdk/anthropic`"),
        pins(agents_node, "\"@openai/codex\":", "Codex CLI"),
        pins(agents, "openai-agents==", "OpenAI Agents"),
        pins(agents, "langchain-openai==", "`langchain-openai`"),
        pins(agents_node, "\"ai\":", "AI SDK"),
        pins(agents_node, "\"@ai-sdk/openai\":", "`@ai-sdk/openai`"),
    ];
    for path in ["README.md", "docs/guarantees.md"] {
        let document = Document::read(path);
        let rows = rows(&document.prose);
        for (what, version) in &pins {
            let named = |row: &&Vec<String>| row[0].contains(what.as_str());
            let told = |row: &Vec<String>| row[1].split(", ").any(|told| told == version);
            assert!(
                rows.iter().filter(named).any(told),
                "{path}: {what} {version}"
            );
        }
    }
}
