//! The plot of the costs is drawn from `docs/figures/cost.json`, and the tables in the documents quote that file.

use crate::markdown::{Document, ROOT, code, rows};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Rows of the README's table, by words in their first cell, with the scenario that each quotes.
const README: [(&str, &str); 4] = [
    ("processor time for each chunk", "flat64"),
    ("processor time for a small complete answer", "whole"),
    ("time to the first token", "short"),
    ("open streams", "open2000"),
];

/// Proxies by column of the tables. The page on performance has only the first two.
const PROXIES: [&str; 5] = ["nginx", "samewire", "vllm-router", "smg", "litellm"];

/// Figures as `benches/plot.py` takes them from runs, as far as tables quote them.
#[derive(Deserialize)]
struct Costs {
    figures: Vec<Figure>,
}

#[derive(Deserialize)]
struct Figure {
    scenario: String,
    what: String,
    unit: String,
    /// Medians by proxy.
    values: BTreeMap<String, f64>,
}

impl Costs {
    fn read() -> Self {
        serde_json::from_str(&file("docs/figures/cost.json")).expect("the figures are JSON")
    }

    /// Fails unless the cells quote a scenario's figures in their unit, rounded to the digits that they show. A row
    /// whose words have "p99" quotes a figure of that kind. The cell of a proxy without a figure is empty.
    fn assert_quoted(&self, scenario: &str, words: &str, cells: &[String]) {
        let unit = cells
            .first()
            .and_then(|cell| cell.split_once(' '))
            .unwrap_or_else(|| panic!("{scenario}: no unit in {cells:?}"))
            .1;
        let figure = self.figures.iter().find(|figure| {
            (figure.scenario.as_str(), figure.unit.as_str()) == (scenario, unit)
                && figure.what.contains("p99") == words.contains("p99")
        });
        let figure = figure.unwrap_or_else(|| panic!("{scenario}: no figure in {unit}"));
        for (proxy, cell) in PROXIES.iter().zip(cells) {
            let expected = figure.values.get(*proxy).map(|value| {
                let number = cell.split(' ').next().unwrap_or_default();
                let decimals = number
                    .split_once('.')
                    .map_or(0, |(_, decimals)| decimals.len());
                format!("{value:.decimals$} {unit}")
            });
            assert_eq!(
                cell.replace(',', ""),
                expected.unwrap_or_default(),
                "{scenario}: {proxy}"
            );
        }
    }
}

fn file(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_plot_is_drawn_from_the_figures() {
    let mut command = Command::new("python3");
    let output = command
        .args(["benches/plot.py", "--svg", "-"])
        .current_dir(ROOT)
        .output();
    let output = output.expect("python3 is there");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let is_current = output.stdout == file("docs/figures/cost.svg").as_bytes();
    assert!(
        is_current,
        "docs/figures/cost.svg is not of these figures: run benches/plot.py"
    );
    assert!(
        file("README.md").contains("](docs/figures/cost.svg)"),
        "the README does not show the plot"
    );
}

#[test]
fn the_readme_quotes_the_figures() {
    let (costs, readme) = (Costs::read(), Document::read("README.md"));
    let rows = rows(readme.section("## What it costs"));
    assert_eq!(rows.len(), README.len(), "{rows:?}");
    for (words, scenario) in README {
        let row = rows.iter().find(|row| row[0].contains(words));
        let row = row.unwrap_or_else(|| panic!("no row has {words:?}"));
        costs.assert_quoted(scenario, words, &row[1..]);
    }
}

/// Every figure is quoted: scenarios are distinct but for `open2000`, which has two figures in different units, and
/// `delay200`, which has a median and a p99.
#[test]
fn the_page_on_performance_quotes_the_figures() {
    let (costs, page) = (Costs::read(), Document::read("docs/performance.md"));
    let mut quoted = 0;
    for row in rows(page.section("## Beside nginx"))
        .iter()
        .filter(|row| row.len() == 6)
    {
        if let Some(scenario) = code(&row[0]).next() {
            costs.assert_quoted(scenario, &row[1], &row[2..4]);
            quoted += 1;
        }
    }
    assert_eq!(quoted, costs.figures.len());
}
