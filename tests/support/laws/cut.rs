//! A truncated answer never looks finished (properties P2, P7, P8; wire-format 3.3).

use crate::canonical::said::{AnswerContent, read};
use crate::canonical::{End, Frame, check, frames};
use crate::cases::{Case, Cut};
use samewire::wire::Ending;

/// Returns true if a naive reading of the engine's bytes contains everything the client waits for.
fn is_complete(case: &Case, told: &AnswerContent, choices: u64) -> bool {
    let finished = |index: u64| told.choices.get(&index).is_some_and(|said| said.finished);
    let supplied = told.done && case.options["missing_finish"] == "stop";
    let started = |index: u64| told.choices.contains_key(&index);
    !told.failed && (0..choices).all(|index| finished(index) || supplied && started(index))
}

/// Lines at the beginning and at the end of a stream that are cut each. Between them one in `FEWER` is: they are alike.
const EDGE: usize = 12;
const FEWER: usize = 8;

/// Returns the positions at which a stream is cut: every byte of a short one; else around line ends and in the middle
/// of lines.
pub fn cuts(input: &[u8]) -> Vec<usize> {
    if input.len() < 1_500 {
        return (0..=input.len()).collect();
    }
    let ends: Vec<_> = (0..input.len())
        .filter(|&at| matches!(input[at], b'\n' | b'\r'))
        .collect();
    let mut cuts = vec![0, input.len()];
    for (line, &at) in ends.iter().enumerate() {
        if line < EDGE || line + EDGE >= ends.len() || line % FEWER < 2 {
            let start = line.checked_sub(1).map_or(0, |before| ends[before]);
            cuts.extend([usize::midpoint(start, at), at.saturating_sub(1), at, at + 1]);
        }
    }
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// Checks that a stream cut at byte `at` ends in an error, unless the part before `at` is already complete.
pub fn cut_short(case: &Case, at: usize, ending: Ending) -> Result<(), String> {
    let broken = Case {
        input: case.input[..at].to_vec(),
        ending,
        ..case.clone()
    };
    let skip = case.options["invalid_event"] == "skip";
    let told = read(case.api, &broken.input, true, skip);
    let choices = choices(case);
    let answer = broken.run(&Cut::Whole);
    let wrong = |what: &str| {
        format!(
            "{} cut at {at}, {ending:?}: {what}\n{}",
            case.name, answer.body
        )
    };
    let end = check(&broken, &answer).map_err(|what| wrong(&what))?;
    let complete = is_complete(&broken, &told, choices);
    // 2.5 rule 4: a call without a name cannot be executed, however complete the answer is.
    let nameless = answer.body.contains("\"upstream_invalid_tool_call\"");
    if complete != (end == End::Complete) && !(complete && nameless) {
        return Err(wrong(if complete {
            "complete, and an error"
        } else {
            "broken, and a success"
        }));
    }
    if answer.status != 200 || !case.streams() {
        return Ok(());
    }
    for frame in frames(&answer.body).unwrap() {
        let Frame::Chunk(chunk) = frame else { continue };
        let choice = &chunk["choices"][0];
        let finished = |index| told.choices.get(&index).is_some_and(|said| said.finished);
        if choice["finish_reason"].is_string()
            && !complete
            && !finished(choice["index"].as_u64().unwrap())
        {
            return Err(wrong("a finish that nobody sent"));
        }
        if !chunk["usage"].is_null() && !complete && case.options["continuous_usage"] != "pass" {
            return Err(wrong("usage of an answer that is not complete"));
        }
    }
    Ok(())
}

fn choices(case: &Case) -> u64 {
    let n = case.request["n"].as_u64().unwrap_or(1);
    let prompts = case.request["prompt"]
        .as_array()
        .filter(|prompts| prompts.iter().any(|prompt| !prompt.is_number()));
    n * prompts.map_or(1, |prompts| prompts.len() as u64)
}
