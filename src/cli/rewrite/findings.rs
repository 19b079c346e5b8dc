//! Output of `--explain` on standard error: lines for people, or JSON lines.

use crate::cli::print_error;
use crate::config::Terminal;
use crate::filter::{Change, Field, Finding, Kind, Place, Recognition, Verdict};
use crate::json::members;
use crate::visible::{visible, visible_strings};
use clap::ValueEnum;
use serde::Serialize;
use std::io::{self, IsTerminal};

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

/// Writer of findings and notes to standard error, in the format that `--format` selects.
pub(super) struct Reporter {
    format: Format,
    has_colour: bool,
}

/// Terminal colours, as the numbers in their escape sequences.
const DIM: &str = "2";
const RULE: &str = "33";
const GOOD: &str = "1;32";
const BAD: &str = "1;31";
const HINT: &str = "1;36";

impl Reporter {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            has_colour: !Terminal::environment().plain && io::stderr().is_terminal(),
        }
    }

    /// Writes a remark about the input, such as missing blank lines between events.
    pub(super) fn note(&self, text: &str) {
        match self.format {
            Format::Text => print_error(visible(text)),
            Format::Json => write(&members! { kind: "note", text }),
        }
    }

    pub(super) fn finding(&self, finding: &Finding) {
        match (self.format, finding) {
            (Format::Text, finding) => print_error(self.text(finding)),
            (Format::Json, Finding::Change(change)) => write(&json_change(change)),
            (Format::Json, Finding::Engine(engine)) => write(&json_engine(engine)),
            (Format::Json, Finding::Verdict(verdict)) => write(&json_summary(verdict)),
        }
    }

    fn text(&self, finding: &Finding) -> String {
        match finding {
            Finding::Change(change) => {
                let rule = change.rule.unwrap_or("-");
                format!(
                    "{}  {}  {}",
                    self.painted(&change.range(), DIM),
                    self.painted(rule, RULE),
                    visible(&change.effect.to_string())
                )
            }
            Finding::Engine(engine) => format!("{}  {engine}", self.painted("engine", DIM)),
            Finding::Verdict(verdict) => {
                let colour = if verdict.outcome.failure().is_none() {
                    GOOD
                } else {
                    BAD
                };
                let summary = self.painted(&visible(&verdict.to_string()), colour);
                let mut text = format!("{}  {summary}", self.painted("summary", DIM));
                if let Some(hint) = verdict.hint() {
                    text += &format!(
                        "\n{}  {}",
                        self.painted("hint", DIM),
                        self.painted(&visible(&hint), HINT)
                    );
                }
                text
            }
        }
    }

    fn painted(&self, text: &str, colour: &str) -> String {
        if self.has_colour {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// JSON line of a change.
#[derive(Serialize)]
struct ChangeLine<'a> {
    kind: &'static str,
    place: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<u64>,
    times: u32,
    rule: Option<&'static str>,
    change: Kind,
    fields: Vec<&'a str>,
    into: Vec<&'a str>,
    before: Option<&'a str>,
    after: Option<&'a str>,
    text: String,
}

/// Writes the JSON line of a finding. Part of the public interface: members may be added, but not removed or given another
/// meaning.
fn write(line: &impl Serialize) {
    if let Ok(text) = serde_json::to_string(line) {
        print_error(visible_strings(&text));
    }
}

fn json_change(change: &Change) -> ChangeLine<'_> {
    let Change {
        place,
        rule,
        effect,
        times,
    } = change;
    let (first, last) = match *place {
        Place::Frames { first, last } => (Some(first), Some(last)),
        Place::Request | Place::Object => (None, None),
    };
    let is_one = matches!(
        effect.kind,
        Kind::Replaced | Kind::Became | Kind::Held | Kind::Released
    );
    ChangeLine {
        kind: "change",
        place: place.name(),
        first,
        last,
        times: *times,
        rule: *rule,
        change: effect.kind,
        fields: names(&effect.fields),
        into: names(&effect.into),
        before: value(&effect.fields).filter(|_| is_one),
        after: value(&effect.into).filter(|_| is_one),
        text: effect.to_string(),
    }
}

fn names(fields: &[Field]) -> Vec<&str> {
    fields.iter().map(|field| field.path.as_str()).collect()
}

/// Returns the value of the first field, if it has one.
fn value(fields: &[Field]) -> Option<&str> {
    fields.first().and_then(|field| field.value.as_deref())
}

fn json_engine(engine: &Recognition) -> impl Serialize {
    let given = engine.taken.engine;
    let version = engine.version.or(engine.taken.version);
    members! {
        kind: "engine",
        given: given.is_known().then_some(given.name),
        recognised: engine.seen.map(|seen| seen.name),
        version: version.map(|version| version.to_string()),
        evidence: engine.evidence.map_or(&[][..], |(texts, _)| texts),
        frame: engine.evidence.map(|(_, frame)| frame).filter(|frame| *frame > 0),
        text: engine.to_string(),
    }
}

fn json_summary(verdict: &Verdict) -> impl Serialize {
    members! {
        kind: "summary",
        outcome: verdict.outcome.name(),
        error: verdict.outcome.failure().map(|failure| members! {
            status: failure.status,
            code: failure.code.as_deref(),
            message: &*failure.message,
        }),
        finish_reasons: &*verdict.finishes,
        frames_in: verdict.frames,
        frames_out: verdict.written,
        rules: verdict.rules,
        characters_in: verdict.engine_characters,
        characters_out: verdict.canonical_characters,
        family: verdict.unparsed.map(|unparsed| unparsed.family()),
        flags: verdict.flags.as_deref(),
        text: verdict.to_string(),
    }
}
