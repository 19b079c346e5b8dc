//! Report of a run: a table for terminals, JSON, and JUnit XML.

use crate::cli::table::{self, BOLD, DIM, Look, wrapped};
use crate::conform::{Group, Report, SuiteRequest, Verdict, Verified};
use crate::json::members;
use crate::visible::{visible, visible_strings};
use serde::Serialize;
use std::fmt::Write;

/// Returns the report: the table, what was not asked, and the numbers of rows.
pub(super) fn text(report: &Report, look: Look) -> String {
    table(report, look) + &unasked(report, look) + &summary(report, look)
}

/// Returns the table: a line for each row that was judged, and beneath a failed one its citation and the evidence.
fn table(report: &Report, look: Look) -> String {
    let mut text = String::new();
    for group in Group::ALL {
        let rows: Vec<_> = report
            .rows
            .iter()
            .filter(|row| row.row.group() == group && row.verdict != Verdict::NotAsked)
            .collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{}", look.painted(group.name(), BOLD));
        for row in rows {
            line(row, look, &mut text);
        }
    }
    text
}

/// Columns before the statement: the verdict and the id.
const VERDICT: usize = 12;
const ID: usize = 32;

fn line(row: &Verified, look: Look, text: &mut String) {
    let word = row.verdict.word();
    let colour = match row.verdict {
        Verdict::Pass => "32",
        Verdict::Fail(_) => "31",
        Verdict::Skipped(_) | Verdict::NotOffered | Verdict::NotAsked => "33",
    };
    let indent = VERDICT + ID;
    let mut lines = wrapped(row.row.statement, look.width.saturating_sub(indent)).into_iter();
    let first = lines.next().unwrap_or_default();
    let word = look.painted(&format!("{word:<11}"), colour);
    let _ = writeln!(text, "{word} {:<31} {first}", row.row.id);
    for line in lines {
        let _ = writeln!(text, "{:indent$}{line}", "");
    }
    let detail = match &row.verdict {
        Verdict::Fail(evidence) => format!("[{}] got: {evidence}", row.row.citation),
        Verdict::Skipped(why) => why.clone(),
        Verdict::Pass | Verdict::NotOffered | Verdict::NotAsked => return,
    };
    for line in wrapped(&detail, look.width.saturating_sub(VERDICT + 2)) {
        let _ = writeln!(text, "{:VERDICT$}  {}", "", look.painted(&line, DIM));
    }
}

/// Returns which requests were not sent, and why; nothing if all were.
fn unasked(report: &Report, look: Look) -> String {
    let Some(why) = &report.stopped else {
        return String::new();
    };
    let names: Vec<_> = report
        .not_asked()
        .into_iter()
        .map(SuiteRequest::name)
        .collect();
    table::unasked(&names, why, "The run ended because", look)
}

/// Returns the line at the end of the table.
fn summary(report: &Report, look: Look) -> String {
    let [pass, fail, skipped, absent] =
        ["pass", "fail", "skipped", "not offered"].map(|word| report.count(word));
    let mut text = format!("{pass} passed, {fail} failed, {skipped} skipped, {absent} not offered");
    let not_asked = report.count("not asked");
    if not_asked > 0 {
        let _ = write!(text, ", {not_asked} not asked");
    }
    let place = format!(
        "({}, model {})",
        visible(&report.url),
        visible(&report.model)
    );
    let fits = text.chars().count() + 1 + place.chars().count() <= look.width;
    let counts = look.painted(&text, if fail == 0 { "32" } else { "31" });
    match fits {
        true => format!("\n{counts} {place}\n"),
        false => format!("\n{counts}\n{}\n", wrapped(&place, look.width).join("\n")),
    }
}

fn told(Verified { row, verdict }: &Verified) -> impl Serialize {
    members! {
        id: row.id,
        group: row.group().name(),
        request: row.request.name(),
        statement: row.statement,
        citation: row.citation,
        verdict: verdict.word().replace(' ', "_"),
        detail: verdict.detail(),
    }
}

/// Returns the results as JSON.
pub(super) fn json(report: &Report) -> String {
    let all = members! {
        url: &*report.url,
        model: &*report.model,
        counts: members! {
            pass: report.count("pass"),
            fail: report.count("fail"),
            skipped: report.count("skipped"),
            not_offered: report.count("not offered"),
            not_asked: report.count("not asked"),
        },
        rows: report.rows.iter().map(told).collect::<Vec<_>>(),
        stopped: report.stopped.as_deref(),
    };
    // Texts and numbers are always JSON.
    visible_strings(&serde_json::to_string_pretty(&all).unwrap_or_default()).into_owned() + "\n"
}

/// Returns the results as JUnit XML.
pub(super) fn junit(report: &Report) -> String {
    let (all, failed) = (report.rows.len(), report.count("fail"));
    let skipped = report.count("skipped") + report.count("not offered") + report.count("not asked");
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"samewire conform {}\" tests=\"{all}\" \
         failures=\"{failed}\" errors=\"0\" skipped=\"{skipped}\">\n",
        escaped(&report.url)
    );
    for Verified { row, verdict } in &report.rows {
        let name = escaped(&format!("{}: {}", row.id, row.statement));
        let group = row.group().name();
        let inside = match verdict {
            Verdict::Pass => String::new(),
            Verdict::Fail(evidence) => {
                format!(
                    "<failure message=\"{}\">{}</failure>",
                    escaped(row.citation),
                    escaped(evidence)
                )
            }
            Verdict::Skipped(why) => format!("<skipped message=\"{}\"/>", escaped(why)),
            Verdict::NotOffered => "<skipped message=\"the server has no such route\"/>".to_owned(),
            Verdict::NotAsked => "<skipped message=\"it was not asked\"/>".to_owned(),
        };
        let _ = writeln!(
            text,
            "  <testcase classname=\"{group}\" name=\"{name}\">{inside}</testcase>"
        );
    }
    text.push_str("</testsuite>\n");
    text
}

/// Escapes text for XML. Characters that XML 1.0 does not have become U+FFFD.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => {
                let _ = write!(escaped, "&#{};", u32::from(c));
            }
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
