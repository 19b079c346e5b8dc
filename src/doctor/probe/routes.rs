//! Checks of the routes beside Chat Completions: there, right, or wrong.

use crate::conform::{Verdict, judge};
use crate::doctor::check::{Check, Topic, checks};
use crate::doctor::outcome::{Judged, Outcome};
use crate::doctor::question::Question;
use crate::doctor::seen::Seen;
use crate::tree::{Value, View};

/// Checks of routes.
pub(super) const CHECKS: &[Check] = checks! { Routes:
    "completions", CompletionsStream, ["editors that complete code, evaluations"],
        mends "gives streams of Completions their canonical form"
            => |seen| route(seen, &[Question::CompletionsStream, Question::CompletionsWhole], "Completions");
    "responses", ResponsesStream, ["Codex, OpenAI Agents, the AI SDK, LangChain with use_responses_api"],
        mends "makes Responses of Chat Completions, with stored responses and conversations"
            => |seen| route(seen, &[Question::ResponsesStream], "Responses");
    "messages", MessagesStream, ["Claude Code, Anthropic's SDKs"],
        mends "makes Messages of Chat Completions"
            => |seen| route(seen, &[Question::MessagesStream], "Messages");
    "embeddings", Embeddings, ["clients of embeddings"],
        mends "completes ids and usage" => embeddings;
};

/// Judges the answers to some questions by the conformance suite.
fn route(seen: &Seen, questions: &[Question], name: &str) -> Judged {
    let (mut failed, mut judged) = (Vec::new(), 0);
    for question in questions {
        let answer = seen.any(*question)?;
        let Some(request) = question.contract() else {
            continue;
        };
        let rows = judge(request, answer);
        if rows.iter().any(|row| row.verdict == Verdict::NotOffered) {
            return Ok(Outcome::note(
                format!("There is no route for {name}."),
                &answer.beginning(),
            ));
        }
        if answer.status != 200 {
            let says = format!("{name} are refused (status {}).", answer.status);
            return Ok(Outcome::warning(says, &answer.beginning()));
        }
        for row in rows {
            match row.verdict {
                Verdict::Fail(evidence) => failed.push((row.row.statement, evidence)),
                Verdict::Pass => judged += 1,
                Verdict::Skipped(_) | Verdict::NotOffered | Verdict::NotAsked => {}
            }
        }
    }
    let Some((_, evidence)) = failed.first() else {
        return Outcome::fine(format!("{name} are as the API has them."));
    };
    let told: Vec<_> = failed
        .iter()
        .take(4)
        .map(|(statement, _)| *statement)
        .collect();
    let says = format!(
        "{name} do not keep {} of {} rules of the API. These ought to hold: {}.",
        failed.len(),
        failed.len() + judged,
        told.join("; ")
    );
    Ok(Outcome::warning(says, evidence))
}

fn embeddings(seen: &Seen) -> Judged {
    let answer = seen.any(Question::Embeddings)?;
    if answer.status != 200 {
        return Err(Outcome::not_seen(format!(
            "this model gives no embeddings (status {})",
            answer.status
        )));
    }
    let vector = answer.whole.list("/data/0/embedding");
    match !vector.is_empty() && vector.iter().all(Value::is_number) {
        true => Outcome::fine("Embeddings are as the API has them."),
        false => Ok(Outcome::warning(
            "The answer to a request for embeddings has no vector.",
            &answer.raw,
        )),
    }
}
