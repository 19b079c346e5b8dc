//! Laws that hold for every answer to a Responses client (properties P2, P4, P8, P10, P16).

use crate::cases::{Case, Cut};
use crate::events::fold;
use serde_json::Value;

/// Checks the answer of a case, streamed or whole.
pub(crate) fn check(case: &Case, sizes: &[usize]) -> Result<(), String> {
    let answer = case.run(&Cut::Whole);
    let told = |what: &str, seen: &str| {
        let (request, options, input) = (&case.request, &case.options, case.input.escape_ascii());
        format!(
            "{what}\n  {request} {options} {:?}\n  input {input}\n  {}\n  {seen}",
            case.ending, answer.body
        )
    };
    if case.events {
        for cut in [Cut::Sizes(sizes), Cut::Bytes] {
            let other = case.run(&cut);
            if other != answer {
                return Err(told("the cut matters", &other.body));
            }
        }
    }
    if answer.status != 200 {
        let body: Value =
            serde_json::from_str(&answer.body).map_err(|wrong| told(&wrong.to_string(), ""))?;
        let good = body["error"]["message"].is_string() && (400..600).contains(&answer.status);
        return if good {
            Ok(())
        } else {
            Err(told("not an error", ""))
        };
    }
    let object = match case.streams() {
        true => fold(&answer.body).map_err(|wrong| told(&wrong, ""))?,
        false => {
            serde_json::from_str(&answer.body).map_err(|wrong| told(&wrong.to_string(), ""))?
        }
    };
    let ended = object["status"] == "completed" || object["status"] == "incomplete";
    // Any input that marks an answer as complete contains one of these words, or is spelled with escapes.
    let says = |word: &[u8]| case.input.windows(word.len()).any(|window| window == word);
    let words: [&[u8]; 4] = [b"complete", b"finish_reason", b"status", b"\\u"];
    if ended && !words.iter().any(|word| says(word)) {
        return Err(told("an end that nobody told", ""));
    }
    let again = case.fed_back(&answer.body).run(&Cut::Whole);
    // In an answer that breaks off, the error precedes the final object, which alone has the bytes of the last
    // tokens.
    let same = match ended || !case.streams() {
        true => again == answer,
        false => {
            again.status == answer.status
                && without_bytes(&again.body) == without_bytes(&answer.body)
        }
    };
    if !same {
        return Err(told("not a fixed point", &again.body));
    }
    Ok(())
}

/// Returns an answer without the `bytes` of its tokens.
fn without_bytes(body: &str) -> String {
    const BYTES: &str = "\"bytes\":[";
    let mut pieces = body.split(BYTES);
    let mut kept = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        kept.push_str(BYTES);
        kept.push_str(piece.find(']').map_or(piece, |end| &piece[end..]));
    }
    kept
}
