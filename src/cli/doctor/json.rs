//! Report for programs.

use super::Examined;
use crate::doctor::{self, Advice, Finding, Report, Setting, Table};
use crate::json::members;
use crate::visible::visible_strings;
use serde::Serialize;

/// Returns the report as JSON.
pub(super) fn text(direct: &Examined, through: Option<&Examined>, advice: &Advice) -> String {
    let report: &Report = &direct.report;
    let server = report.server();
    let parsers = server.parsers.as_ref();
    let model = server.model(report.model());
    let all = members! {
        url: &*report.url,
        model: report.model(),
        engine: server.identity.map(|identity| identity.engine.name),
        version: server.identity.and_then(|identity| identity.version).map(|version| version.to_string()),
        front_end: server.identity.map(|identity| identity.front.name()),
        known_by: &*server.evidence,
        context_length: model.and_then(|model| model.context_length.or(model.max_model_len)),
        reasoning_parser: parsers.and_then(|parsers| parsers.reasoning.as_deref()),
        tool_parser: parsers.and_then(|parsers| parsers.tools.as_deref()),
        template: (!server.template.is_empty()).then_some(server.template),
        max_tokens: doctor::tokens(),
        findings: direct.findings.iter().map(|finding| told(finding, through)).collect::<Vec<_>>(),
        not_asked: report.not_asked().into_iter().map(doctor::Question::name).collect::<Vec<_>>(),
        stopped: report.stopped.as_deref(),
        advice: members! { engine: &*advice.engine, config: &*advice.config },
    };
    // Texts and numbers are always JSON.
    visible_strings(&serde_json::to_string_pretty(&all).unwrap_or_default()).into_owned() + "\n"
}

fn told<'r>(finding: &'r Finding, through: Option<&'r Examined>) -> impl Serialize + use<'r> {
    let check = finding.check;
    let found = finding.found();
    let affected = if found.is_some() { check.affected } else { &[] };
    let same = through.and_then(|through| {
        through
            .findings
            .iter()
            .find(|other| other.check.id == check.id)
    });
    members! {
        id: check.id,
        topic: check.topic.name(),
        question: check.question.name(),
        severity: word(finding),
        says: finding.outcome.says(),
        evidence: found.map(|found| found.evidence.as_str()),
        affected,
        samewire: finding.mends.filter(|_| found.is_some()),
        engine: found.and_then(|found| found.remedy.engine.as_deref()),
        config: found.map_or_else(Vec::new, |found| found.remedy.settings.iter().map(setting).collect()),
        through: same.map(|other| members! {
            severity: word(other),
            says: other.outcome.says(),
            evidence: other.found().map(|found| found.evidence.as_str()),
        }),
    }
}

fn word(finding: &Finding) -> String {
    finding.severity().name().replace(' ', "_")
}

fn setting(setting: &Setting) -> impl Serialize {
    let table = match setting.table {
        Table::Timeouts => "timeouts",
        Table::Upstream => "upstream",
        Table::Wire => "upstream.wire",
    };
    members! { table, key: setting.key, value: &*setting.value }
}
