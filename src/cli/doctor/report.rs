//! Report for people: what the server is, what differs, and what helps.

use super::Examined;
use crate::cli::table::{self, BAD, BOLD, DIM, GOOD, LEFT, Look, PLAIN, RIGHT, wrapped};
use crate::doctor::{Advice, Finding, Report, Setting, Severity, Table};
use crate::visible::{excerpt, visible};
use std::fmt::Write;

/// Columns before the text of a finding's lines.
const INDENT: usize = 12;

/// Returns the report.
pub(super) fn text(
    direct: &Examined,
    through: Option<&Examined>,
    advice: &Advice,
    look: Look,
) -> String {
    let mut text = String::new();
    head(&direct.report, look, &mut text);
    counts("\nresult", direct, look, &mut text);
    if let Some(through) = through {
        counts("through samewire", through, look, &mut text);
        text.push('\n');
        columns(direct, through, look, &mut text);
    }
    for severity in [Severity::Broken, Severity::Warning, Severity::Note] {
        for finding in direct
            .findings
            .iter()
            .filter(|finding| finding.severity() == severity)
        {
            block(
                finding,
                through.and_then(|through| same(through, finding)),
                look,
                &mut text,
            );
        }
    }
    if let Some(through) = through {
        for finding in through
            .findings
            .iter()
            .filter(|finding| is_new(direct, finding))
        {
            let _ = writeln!(text, "\n{}", look.painted("only through samewire", BOLD));
            block(finding, None, look, &mut text);
        }
    }
    lists(direct, look, &mut text);
    helps(advice, look, &mut text);
    unasked(&direct.report, look, &mut text);
    text
}

/// Returns the finding of the same check.
fn same<'e>(other: &'e Examined, finding: &Finding) -> Option<&'e Finding> {
    other
        .findings
        .iter()
        .find(|one| one.check.id == finding.check.id)
}

/// Returns true if something is wrong that was not wrong directly.
fn is_new(direct: &Examined, finding: &Finding) -> bool {
    let before = same(direct, finding).map_or(Severity::NotSeen, Finding::severity);
    finding.severity() >= Severity::Note && before < Severity::Note
}

fn colour(severity: Severity) -> &'static str {
    match severity {
        Severity::Broken => BAD,
        Severity::Warning => LEFT,
        Severity::Note => RIGHT,
        Severity::NotSeen => DIM,
        Severity::Fine => GOOD,
    }
}

/// Writes what the server is.
fn head(report: &Report, look: Look, text: &mut String) {
    let server = report.server();
    let name = server.title();
    let name = name
        .as_deref()
        .unwrap_or("an engine or gateway that samewire does not know");
    for part in wrapped(&format!("{name} at {}", visible(&report.url)), look.width) {
        let _ = writeln!(text, "{}", look.painted(&part, BOLD));
    }
    if !server.evidence.is_empty() {
        line("known by", &server.evidence.join(", "), look, text);
    }
    if let Some(route) = server.lacks {
        line("has no", route, look, text);
    }
    let context = server
        .model(report.model())
        .and_then(|model| model.context_length.or(model.max_model_len));
    let context = context
        .map(|tokens| format!(", {tokens} tokens of context"))
        .unwrap_or_default();
    let listed = match server.models.len() {
        0 => "not listed".to_owned(),
        1 => "the only one listed".to_owned(),
        count => format!("one of {count} listed"),
    };
    line(
        "model",
        &format!("{} ({listed}{context})", excerpt(report.model(), MODEL)),
        look,
        text,
    );
    if let Some(parsers) = &server.parsers {
        let name = |parser: &Option<String>| parser.clone().unwrap_or_else(|| "none".to_owned());
        let told = format!(
            "reasoning {}, calls {}",
            name(&parsers.reasoning),
            name(&parsers.tools)
        );
        line("parsers", &told, look, text);
    }
    if !server.template.is_empty() {
        line("template", &server.template.to_string(), look, text);
    }
}

/// Most characters of a model's name.
const MODEL: usize = 100;

/// Writes a label and a text that is wrapped beside it.
fn line(label: &str, words: &str, look: Look, text: &mut String) {
    listed(&format!("  {label}"), words, DIM, look, text);
}

fn counts(label: &str, examined: &Examined, look: Look, text: &mut String) {
    let count = |severity: Severity| {
        let count = examined
            .findings
            .iter()
            .filter(|finding| finding.severity() == severity)
            .count();
        let is_many = count != 1 && matches!(severity, Severity::Warning | Severity::Note);
        let told = format!(
            "{count} {}{}",
            severity.name(),
            if is_many { "s" } else { "" }
        );
        if count == 0 {
            told
        } else {
            look.painted(&told, colour(severity))
        }
    };
    let mut counts = Severity::ALL.map(count);
    counts.reverse();
    let _ = writeln!(text, "{label}: {}", counts.join(", "));
}

/// Writes both columns: each check that is not fine in one of them.
fn columns(direct: &Examined, through: &Examined, look: Look, text: &mut String) {
    let rows: Vec<[String; 4]> = direct
        .findings
        .iter()
        .filter_map(|finding| {
            let other = same(through, finding)?;
            let words = [finding.severity(), other.severity()];
            let is_told = words.iter().any(|severity| *severity >= Severity::Note);
            let says = if finding.severity() >= Severity::Note {
                finding
            } else {
                other
            }
            .outcome
            .says();
            let [one, two] = words.map(|severity| severity.name().to_owned());
            is_told.then(|| [finding.check.id.to_owned(), one, two, says.to_owned()])
        })
        .collect();
    let head = [
        ("check", PLAIN),
        ("direct", LEFT),
        ("samewire", RIGHT),
        ("what", PLAIN),
    ];
    table::write(head, &rows, look, text);
}

/// Writes one finding: what it is, the bytes that show it, whom it affects, and what helps.
fn block(finding: &Finding, through: Option<&Finding>, look: Look, text: &mut String) {
    let Some(found) = finding.found() else { return };
    let word = look.painted(
        &format!("{:<10}", finding.severity().name()),
        colour(finding.severity()),
    );
    let _ = writeln!(text, "\n{word}  {}", look.painted(finding.check.id, BOLD));
    for part in wrapped(&found.says, look.width.saturating_sub(INDENT)) {
        let _ = writeln!(text, "{:INDENT$}{part}", "");
    }
    line("got", &found.evidence, look, text);
    line("affects", &finding.check.affected.join("; "), look, text);
    if let Some(mends) = finding.mends {
        line("samewire", mends, look, text);
    }
    if let Some(through) = through {
        let is_same = through.outcome.says() == found.says;
        let told = match is_same {
            true => format!("{}, too", through.severity().name()),
            false => format!("{}: {}", through.severity().name(), through.outcome.says()),
        };
        line("through", &told, look, text);
    }
    if let Some(flag) = &found.remedy.engine {
        line("engine", flag, look, text);
    }
    for setting in &found.remedy.settings {
        line("config", &told(setting), look, text);
    }
}

/// Returns a key of samewire's configuration with its place.
fn told(setting: &Setting) -> String {
    let place = match setting.table {
        Table::Timeouts => "[timeouts]",
        Table::Upstream => "[[upstream]]",
        Table::Wire => "wire of [[upstream]]",
    };
    format!("{} = {} in {place}", setting.key, setting.value)
}

/// Writes what is fine and what was not seen.
fn lists(direct: &Examined, look: Look, text: &mut String) {
    let of = |severity: Severity| {
        direct
            .findings
            .iter()
            .filter(move |finding| finding.severity() == severity)
    };
    let fine: Vec<_> = of(Severity::Fine).map(|finding| finding.check.id).collect();
    if !fine.is_empty() {
        text.push('\n');
        listed("fine", &fine.join(", "), GOOD, look, text);
    }
    // Checks that have one reason share a line.
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for finding in of(Severity::NotSeen) {
        let why = finding.outcome.says();
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, ids)) => ids.push(finding.check.id),
            None => reasons.push((why, vec![finding.check.id])),
        }
    }
    let mut label = "not seen";
    for (why, ids) in reasons {
        if !label.is_empty() {
            text.push('\n');
        }
        listed(
            label,
            &format!("{}: {why}", ids.join(", ")),
            DIM,
            look,
            text,
        );
        label = "";
    }
}

fn listed(label: &str, words: &str, colour: &str, look: Look, text: &mut String) {
    let mut label = label.to_owned();
    for part in wrapped(&visible(words), look.width.saturating_sub(INDENT)) {
        let _ = writeln!(
            text,
            "{}{part}",
            look.painted(&format!("{label:<INDENT$}"), colour)
        );
        label.clear();
    }
}

/// Writes the flags of the engine and the configuration.
fn helps(advice: &Advice, look: Look, text: &mut String) {
    if !advice.engine.is_empty() {
        let _ = writeln!(
            text,
            "\n{}",
            look.painted("Flags that let the engine do better:", BOLD)
        );
        for flag in &advice.engine {
            let _ = writeln!(text, "  {}", visible(flag));
        }
    }
    // Nothing was answered from which advice could follow.
    if advice.config.is_empty() {
        return;
    }
    let title = "samewire in front of it does better with this samewire.toml (samewire serve --config samewire.toml):";
    text.push('\n');
    for part in wrapped(title, look.width) {
        let _ = writeln!(text, "{}", look.painted(&part, BOLD));
    }
    // The text is TOML, in which strings have their control characters escaped.
    let _ = writeln!(text, "\n{}", advice.config.trim_end());
}

/// Writes which questions were not asked, and why.
fn unasked(report: &Report, look: Look, text: &mut String) {
    let Some(why) = &report.stopped else { return };
    let names: Vec<_> = report
        .not_asked()
        .into_iter()
        .map(|question| question.name())
        .collect();
    *text += &table::unasked(&names, why, "Not everything was asked:", look);
}
