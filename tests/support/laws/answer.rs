//! Laws that hold for every answer, whatever an engine sent (properties P2, P3, P4, P8, P16).
#![allow(dead_code, reason = "each test crate uses its part")]

use crate::canonical::{self, End, Frame, frames};
use crate::cases::{Answer, Case, Cut};

/// Value of `max_event_bytes` in tests that are not about that limit.
pub const LIMIT: usize = 4 << 20;

/// Checks a case with the usual limit: canonical output, independent of how the input is cut into reads, and its
/// own fixed point.
pub fn check(case: &Case, sizes: &[usize]) -> Result<(), String> {
    check_within(LIMIT, case, sizes)
}

/// Checks the same as [`check`], with another `max_event_bytes`.
pub fn check_within(limit: usize, case: &Case, sizes: &[usize]) -> Result<(), String> {
    let answer = case.run_within(limit, &Cut::Whole);
    let told = |what: &str, seen: &str| {
        let (request, options) = (&case.request, &case.options);
        let input = case.input.escape_ascii();
        format!(
            "{what}\n  {} {} {request} {options} {:?}\n  input {input}\n  output {} {}\n  {seen}",
            case.name, case.engine, case.ending, answer.status, answer.body
        )
    };
    let end = canonical::check(case, &answer).map_err(|wrong| told(&wrong, ""))?;
    for cut in [Cut::Sizes(sizes), Cut::Bytes] {
        let other = case.run_within(limit, &cut);
        if other != answer {
            return Err(told("the cut matters", &other.body));
        }
    }
    let second = rewritten_again(case, &answer);
    let exempt = || {
        loses_finish(case, &answer, end)
            || gains_code(&answer, &second)
            || gains_count(&answer, &second)
    };
    if second != answer && !exempt() {
        return Err(told("not a fixed point", &second.body));
    }
    Ok(())
}

/// Returns the answer to a case whose engine sends `answer` unchanged.
fn rewritten_again(case: &Case, answer: &Answer) -> Answer {
    let status = answer.status;
    let events = case.streams() && status == 200;
    Case {
        status,
        events,
        ..case.fed_back(&answer.body)
    }
    .run(&Cut::Whole)
}

/// True for the one kind of answer that is not a fixed point: an error right after a finish. In the engine's
/// stream, something between the two released the finish (2.3 rule 7) and was not forwarded. Without it the finish
/// is still held when the error comes, and is dropped (3.2).
fn loses_finish(case: &Case, answer: &Answer, end: End) -> bool {
    if end != End::Failed || !case.streams() || answer.status != 200 {
        return false;
    }
    let frames = frames(&answer.body).unwrap();
    let error = frames
        .iter()
        .position(|frame| matches!(frame, Frame::Error(_)))
        .unwrap();
    let before = error.checked_sub(1).and_then(|at| frames.get(at));
    matches!(before, Some(Frame::Chunk(chunk)) if !chunk["choices"][0]["finish_reason"].is_null())
}

/// True for the one kind of error that is not a fixed point: its message yields a code that the original error type
/// did not (3.4: `NotFoundError` rules the context length out; `invalid_request_error`, the only type left, does
/// not).
fn gains_code(answer: &Answer, second: &Answer) -> bool {
    let gained = |code| answer.body.replace("\"code\":null", code) == second.body;
    gained("\"code\":\"context_length_exceeded\"") || gained("\"code\":\"model_not_found\"")
}

/// True for the one finish that is not a fixed point: an engine sends two different usage counts. The first one
/// releases the finish (2.3 rule 7), the second is the one reported (2.8), and by it the answer was cut (2.6).
fn gains_count(answer: &Answer, second: &Answer) -> bool {
    let cut = |word: &str| {
        let said = format!("\"finish_reason\":\"{word}\"");
        answer.body.replace(&said, "\"finish_reason\":\"length\"") == second.body
    };
    cut("tool_calls") || cut("stop")
}

/// Checks a case with a small `max_event_bytes`. The fixed point is left out: an answer may be larger than the
/// limit for the input.
pub fn check_small_limit(case: &Case, limit: usize, sizes: &[usize]) -> Result<(), String> {
    let answer = case.run_within(limit, &Cut::Whole);
    canonical::check(case, &answer)?;
    for cut in [Cut::Sizes(sizes), Cut::Bytes] {
        let other = case.run_within(limit, &cut);
        fail_if!(
            other != answer,
            "the cut matters at {limit}\n{}\n{}",
            answer.body,
            other.body
        );
    }
    Ok(())
}
