//! Checks of the routes beside Chat Completions: there, right, or wrong.

use crate::conform::{Verdict, judge};
use crate::doctor::check::{Check, Judged, Outcome, Topic};
use crate::doctor::question::Question;
use crate::doctor::seen::{NotSeen, Seen};
use crate::tree::Value;

const TOPIC: Topic = Topic::Routes;

/// Checks of routes.
pub(super) const CHECKS: &[Check] = &[
    TOPIC.check(
        "completions",
        Question::CompletionsStream,
        &["editors that complete code, evaluations"],
        Some("gives streams of Completions their canonical form"),
        completions,
    ),
    TOPIC.check(
        "responses",
        Question::ResponsesStream,
        &["Codex, OpenAI Agents, the AI SDK, LangChain with use_responses_api"],
        Some("makes Responses of Chat Completions, with stored responses and conversations"),
        responses,
    ),
    TOPIC.check(
        "messages",
        Question::MessagesStream,
        &["Claude Code, Anthropic's SDKs"],
        Some("makes Messages of Chat Completions"),
        messages,
    ),
    TOPIC.check(
        "embeddings",
        Question::Embeddings,
        &["clients of embeddings"],
        Some("completes ids and usage"),
        embeddings,
    ),
];

/// Judges the answers to some questions by the conformance suite.
fn route(seen: &Seen, questions: &[Question], name: &str) -> Judged {
    let (mut failed, mut judged) = (Vec::new(), 0);
    for question in questions {
        let answer = seen.any(*question)?;
        let Some(ask) = question.contract() else { continue };
        let rows = judge(ask, answer);
        if rows.iter().any(|row| row.verdict == Verdict::NotOffered) {
            return Ok(Outcome::note(format!("There is no route for {name}."), &answer.beginning()));
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
    let told: Vec<_> = failed.iter().take(4).map(|(statement, _)| *statement).collect();
    let says = format!(
        "{name} do not keep {} of {} rules of the API. These ought to hold: {}.",
        failed.len(),
        failed.len() + judged,
        told.join("; ")
    );
    Ok(Outcome::warning(says, evidence))
}

fn completions(seen: &Seen) -> Judged {
    route(seen, &[Question::CompletionsStream, Question::CompletionsWhole], "Completions")
}

fn responses(seen: &Seen) -> Judged {
    route(seen, &[Question::ResponsesStream], "Responses")
}

fn messages(seen: &Seen) -> Judged {
    route(seen, &[Question::MessagesStream], "Messages")
}

fn embeddings(seen: &Seen) -> Judged {
    let answer = seen.any(Question::Embeddings)?;
    if answer.status != 200 {
        return Err(NotSeen(format!("this model gives no embeddings (status {})", answer.status)));
    }
    let vector = answer.whole.at("/data/0/embedding").and_then(Value::as_list).unwrap_or_default();
    match !vector.is_empty() && vector.iter().all(Value::is_number) {
        true => Outcome::fine("Embeddings are as the API has them."),
        false => Ok(Outcome::warning("The answer to a request for embeddings has no vector.", &answer.raw)),
    }
}
