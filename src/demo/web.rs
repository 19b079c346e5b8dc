//! Comparison as a page for a browser: the content of the terminal page, and a button that requests both answers
//! live.
//!
//! Takes: a [`Comparison`], and the URL of the demo. Gives: a [`Page`]. Never: loads anything from another host.

use super::compare::{Cell, Comparison, Match};
use super::frame::{Frame, is_open};
use super::{NAMES, SOURCE, Scene, VERSIONS, snippet};
use crate::html::{Page, Template, escaped};
use crate::telemetry::Build;
use std::fmt::Write as _;

const TEMPLATE: Template = Template {
    title: "samewire demo",
    style: include_str!("web.css"),
    body: include_str!("web.html"),
};

/// Renders the page. `url`: base URL for clients. `models`: model names of the recordings.
pub fn render(scene: &Scene, comparison: &Comparison, url: &str, models: &[String]) -> Page {
    let differs = scene.differs.unwrap_or_default();
    let values = [
        ("version", escaped(Build::CURRENT.line)),
        ("request", escaped(scene.request)),
        ("about", escaped(scene.about)),
        ("source", escaped(SOURCE)),
        ("left", escaped(VERSIONS[0])),
        ("right", escaped(VERSIONS[1])),
        ("left-name", escaped(NAMES[0])),
        ("right-name", escaped(NAMES[1])),
        ("left-model", escaped(&scene.served("vllm"))),
        ("right-model", escaped(&scene.served("sglang"))),
        ("raw", raw(comparison)),
        ("first", escaped(&comparison.first)),
        ("canonical", canonical(comparison)),
        ("verdict", escaped(&comparison.verdict())),
        ("differs", escaped(differs)),
        ("rules", rules(comparison)),
        ("url", escaped(url)),
        ("curl", escaped(&snippet::curl(url))),
        ("python", escaped(&snippet::python(url))),
        (
            "models",
            models
                .iter()
                .map(|name| format!("<li><code>{}</code></li>", escaped(name)))
                .collect(),
        ),
    ];
    Page::new(TEMPLATE, &values)
}

/// Returns the rows of the engines' frames, side by side.
fn raw(comparison: &Comparison) -> String {
    let row = |[left, right]: &[Cell; 2]| {
        format!(
            "<div class=\"row\">{}{}</div>\n",
            cell(left, NAMES[0], comparison),
            cell(right, NAMES[1], comparison)
        )
    };
    comparison.raw.iter().map(row).collect()
}

fn cell(cell: &Cell, name: &str, comparison: &Comparison) -> String {
    match cell {
        Cell::Frame(shown) => {
            format!(
                "<code class=\"frame\" data-engine=\"{}\">{}</code>",
                escaped(name),
                frame(shown, comparison)
            )
        }
        Cell::Note(note) => {
            format!(
                "<p class=\"note\" data-engine=\"{}\">{}</p>",
                escaped(name),
                escaped(note)
            )
        }
        Cell::Empty => "<p class=\"note empty\"></p>".to_owned(),
    }
}

fn frame(frame: &Frame, comparison: &Comparison) -> String {
    let mut out = String::new();
    let mut opens = true;
    for word in &frame.words {
        if !opens {
            out.push(' ');
        }
        for piece in word {
            let text = escaped(&piece.text);
            match piece.change {
                Some(change) => {
                    let (rule, number) = (change.rule(), comparison.number(change));
                    let _ = write!(
                        out,
                        "<mark title=\"{}\">{text}<sup>{number}</sup></mark>",
                        escaped(rule)
                    );
                }
                None => out.push_str(&text),
            }
        }
        opens = word.last().is_some_and(|piece| is_open(&piece.text));
    }
    out
}

/// Returns the rows of the canonical frames.
fn canonical(comparison: &Comparison) -> String {
    let both = |mark: &str, label: &str, name: &str, body: String| {
        format!(
            "<div class=\"line\"><b class=\"{label}\">{mark}</b><span>{}</span>{body}</div>\n",
            escaped(name)
        )
    };
    let code = |shown: &Frame| format!("<code class=\"frame\">{}</code>", frame(shown, comparison));
    let row = |row: &Match| match row {
        Match::Same(shown) => both("=", "same", "both", code(shown)),
        Match::SameNote(note) => both(
            "=",
            "same",
            "both",
            format!("<span class=\"note\">{}</span>", escaped(note)),
        ),
        Match::Alike(left, right) => {
            both("≈", "alike", NAMES[0], code(left)) + &both("", "alike", NAMES[1], code(right))
        }
        Match::Different(left, right) => {
            let line = |side: &Cell, name: &str| match side {
                Cell::Empty => String::new(),
                side => both("", "other", name, cell(side, name, comparison)),
            };
            line(left, NAMES[0]) + &line(right, NAMES[1])
        }
    };
    comparison.canonical.iter().map(row).collect()
}

/// Returns the table rows of the rules, with the number of changes by each.
fn rules(comparison: &Comparison) -> String {
    let count = |count: usize| {
        if count == 0 {
            "–".to_owned()
        } else {
            format!("{count}×")
        }
    };
    let row = |(change, [left, right]): &(super::frame::Change, [usize; 2])| {
        format!(
            "<tr><td>{}</td><th scope=\"row\"><code>{}</code></th><td data-engine=\"{}\">{}</td><td data-engine=\"{}\">{}</td><td>{}</td></tr>\n",
            comparison.number(*change),
            escaped(change.rule()),
            escaped(NAMES[0]),
            count(*left),
            escaped(NAMES[1]),
            count(*right),
            escaped(change.explained())
        )
    };
    comparison.changes.iter().map(row).collect()
}
