//! The library and the slow, obvious implementation of the wire format (`tests/support/slow`) write the same bytes.

use crate::cases::{Case, Cut};
use crate::slow;
use samewire::wire::{Api, Ending};

/// Converts a case of the library into one of the slow implementation.
fn slow_case(case: &Case) -> slow::Case {
    let api = match case.api {
        Api::Chat => "chat.completions",
        Api::Completions => "completions",
        Api::Responses | Api::Messages => {
            panic!("the reference knows neither Responses nor Messages")
        }
    };
    let content_type = if case.events {
        "text/event-stream"
    } else {
        "application/json"
    };
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

/// Runs a case through both implementations. Fails with the first difference.
pub fn both(case: &Case) -> Result<(), String> {
    let fast = case.run(&Cut::Whole);
    let slow = slow::rewrite(&slow_case(case));
    let body = String::from_utf8(slow.body).unwrap();
    if (fast.status, fast.body.as_str()) == (slow.status, body.as_str()) {
        return Ok(());
    }
    // If a whole body has several faults, either may be reported.
    if !case.events && fast.status >= 500 && slow.status >= 500 {
        return Ok(());
    }
    // A whole choice without text and without a finish yields no event that could carry its unknown members.
    let supplied =
        case.options["missing_finish"] == "stop" && case.options["unknown_fields"] == "pass";
    if supplied && !case.events && !case.streams() {
        return Ok(());
    }
    let at = fast
        .body
        .lines()
        .zip(body.lines())
        .position(|(fast, slow)| fast != slow);
    let line = |text: &str| {
        at.and_then(|at| text.lines().nth(at))
            .unwrap_or(text)
            .to_owned()
    };
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
        if case.ending == Ending::Reset {
            "reset"
        } else {
            ""
        },
    ))
}
