//! Every captured exchange: engine bytes -> event log -> canonical bytes, as reviewed and stored beside the
//! capture. `UPDATE_GOLDEN=1 cargo test --test wire golden::` rewrites the stored files; the difference is then
//! reviewed like code.

use crate::cases::{Answer, Case, Cut, captures, responses};
use samewire::wire::Api;
use std::path::Path;

/// Returns the file name of a case's canonical answer: by API and form, or that of errors.
fn kept_as(case: &Case, answer: &Answer) -> &'static str {
    match (answer.status, case.api, case.streams()) {
        (200, Api::Chat, true) => "chat.sse",
        (200, Api::Chat, false) => "chat.json",
        (200, Api::Completions, true) => "completions.sse",
        (200, Api::Completions, false) => "completions.json",
        (200, Api::Responses, true) => "responses.sse",
        (200, Api::Responses, false) => "responses.json",
        _ => "error.json",
    }
}

fn check(folder: &Path, name: &str, got: &str, wrong: &mut Vec<String>) {
    let path = folder.join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return std::fs::write(path, got).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if kept != got {
        let at = kept
            .lines()
            .zip(got.lines())
            .position(|(kept, got)| kept != got)
            .unwrap_or(0);
        let line = |text: &str| text.lines().nth(at).unwrap_or("").to_owned();
        wrong.push(format!(
            "{}: line {}\n  kept {}\n  got  {}",
            path.display(),
            at + 1,
            line(&kept),
            line(got)
        ));
    }
}

#[test]
fn every_capture_as_kept() {
    let mut wrong = Vec::new();
    for fixture in captures().into_iter().chain(responses()) {
        let answer = fixture.case.run(&Cut::Whole);
        let name = kept_as(&fixture.case, &answer);
        let body = match answer.status {
            200 => answer.body,
            status => format!("HTTP {status}\n{}\n", answer.body),
        };
        check(&fixture.folder, name, &body, &mut wrong);
        if (200..300).contains(&fixture.case.status) {
            check(
                &fixture.folder,
                "events.txt",
                &fixture.case.transcript(),
                &mut wrong,
            );
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
