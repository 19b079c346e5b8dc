//! The library against the slow, obvious reading of the wire format (`tests/slow`): all fixtures and random streams
//! through both.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_types,
    missing_docs,
    unreachable_pub,
    reason = "tests"
)]

mod cases;
mod random;
mod seeded;
mod slow;

use cases::{Case, Cut, captures, vectors};
use proptest::prelude::*;
use random::library_case;
use samewire::wire::{Api, Ending};
use seeded::seeded;

/// A case of the library as one of the reference.
fn slow_case(case: &Case) -> slow::Case {
    let api = match case.api {
        Api::Chat => "chat.completions",
        Api::Completions => "completions",
    };
    let content_type = if case.events { "text/event-stream" } else { "application/json" };
    slow::Case {
        client_api: api.to_owned(),
        upstream_api: api.to_owned(),
        request: case.request.clone(),
        options: case.options.clone(),
        upstream_status: case.status,
        upstream_headers: [("content-type".to_owned(), content_type.to_owned())].into(),
        input: case.input.clone(),
        eof_reset: case.ending == Ending::Reset,
        now: case.now,
    }
}

fn both(case: &Case) -> Result<(), String> {
    let fast = case.run(&Cut::Whole);
    let slow = slow::rewrite(&slow_case(case));
    let body = String::from_utf8(slow.body).unwrap();
    if (fast.status, fast.body.as_str()) == (slow.status, body.as_str()) {
        return Ok(());
    }
    // Which of several faults of one whole body is named is nobody's business.
    if !case.events && fast.status >= 500 && slow.status >= 500 {
        return Ok(());
    }
    // A whole choice without text and without a finish gives no event that its leftovers could ride on.
    let supplied = case.options["missing_finish"] == "stop" && case.options["unknown_fields"] == "pass";
    if supplied && !case.events && !case.streams() {
        return Ok(());
    }
    let at = fast.body.lines().zip(body.lines()).position(|(fast, slow)| fast != slow);
    let line = |text: &str| at.and_then(|at| text.lines().nth(at)).unwrap_or(text).to_owned();
    let input = String::from_utf8_lossy(&case.input);
    Err(format!(
        "{}\n  library   {} {}\n  reference {} {}\n  request {}\n  options {}\n  {}\n{input}",
        case.name,
        fast.status,
        line(&fast.body),
        slow.status,
        line(&body),
        case.request,
        case.options,
        if case.ending == Ending::Reset { "reset" } else { "" },
    ))
}

#[test]
fn fixtures_and_vectors() {
    let captures = captures().into_iter().map(|fixture| fixture.case);
    let vectors = vectors().into_iter().map(|(case, _)| case);
    let wrong: Vec<String> = captures.chain(vectors).filter_map(|case| both(&case).err()).collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

proptest! {
    #![proptest_config(seeded(20_000))]

    #[test]
    fn random_streams(case in slow::random::case()) {
        if let Err(difference) = both(&library_case(&case)) {
            return Err(TestCaseError::fail(difference));
        }
    }
}
