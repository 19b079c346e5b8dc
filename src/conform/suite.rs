//! Run of the suite: the requests one after another, and the verdict of each row.

use super::answer::{Answer, text};
use super::ask::{Ask, Model};
use super::row::{Group, Row, Verdict};
use super::{chat, completions, errors, messages, responses};
use crate::exchange::{Exchange, Failure, Sender};

/// Row with its verdict.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Row that was judged.
    pub row: Row,
    /// Verdict of the row.
    pub verdict: Verdict,
}

/// Results of a run.
#[derive(Debug)]
pub struct Report {
    /// Root of the API that was asked.
    pub url: String,
    /// Model that was asked.
    pub model: String,
    /// Rows with their verdicts, in the order of the groups.
    pub rows: Vec<Verified>,
    /// Exchanges, each with the request that it belongs to.
    pub exchanges: Vec<(Ask, Exchange)>,
}

impl Report {
    /// Returns the number of rows with a verdict's word.
    pub fn count(&self, word: &str) -> usize {
        self.rows.iter().filter(|row| row.verdict.word() == word).count()
    }
}

/// Returns all rows in the order of the groups.
pub fn catalogue() -> impl Iterator<Item = &'static Row> {
    let all = [chat::ROWS, completions::ROWS, responses::ROWS, messages::ROWS, errors::ROWS];
    all.into_iter().flatten()
}

/// Returns the requests of some groups; of all groups if none is given. The list of models is among them if no model
/// is named.
pub fn asks(only: &[Group], model: Option<&str>) -> Vec<Ask> {
    let wanted = |ask: &Ask| {
        only.is_empty() || only.contains(&Group::of(*ask)) || *ask == Ask::Models && model.is_none()
    };
    Ask::ALL.into_iter().filter(wanted).collect()
}

/// Returns the most tokens that a server may generate for some requests.
pub fn tokens(asks: &[Ask]) -> u32 {
    asks.iter().map(|ask| ask.tokens()).sum()
}

/// Sends the requests and judges the answers. Without a model, the first that the server lists is asked.
///
/// # Errors
/// Fails if no connection to the server can be made, or if no model is named and none is listed.
pub async fn run(
    sender: &Sender,
    asks: &[Ask],
    model: Option<&str>,
    mut progress: impl FnMut(Ask),
) -> Result<Report, Failure> {
    let mut model = model.map(str::to_owned);
    let mut report = Report {
        url: sender.target().base().to_owned(),
        model: String::new(),
        rows: Vec::new(),
        exchanges: Vec::new(),
    };
    let mut refused: Option<Failure> = None;
    for ask in asks.iter().copied() {
        progress(ask);
        // Without a list of models, a server of one model often takes any name.
        let name = model.as_deref().unwrap_or("default").to_owned();
        let outcome = match &refused {
            Some(failure) => Err(failure.clone()),
            None => sender.send(ask.request(Model(&name))).await,
        };
        match outcome {
            Ok(exchange) => {
                let answer = Answer::new(&exchange);
                if ask == Ask::Models && model.is_none() {
                    model =
                        Some(text(&answer.whole, "/data/0/id").to_owned()).filter(|name| !name.is_empty());
                }
                report.rows.extend(judge(ask, &answer));
                report.exchanges.push((ask, exchange));
            }
            Err(failure) if failure.unreachable && report.rows.is_empty() => return Err(failure),
            Err(failure) => {
                report.rows.extend(unanswered(ask, &failure));
                if failure.unreachable {
                    refused = Some(failure);
                }
            }
        }
    }
    report.model = model.unwrap_or_else(|| "default".to_owned());
    Ok(report)
}

/// Returns the rows of a request.
fn of(ask: Ask) -> impl Iterator<Item = &'static Row> {
    catalogue().filter(move |row| row.ask == ask)
}

/// Returns the rows of a request that got no answer: the first fails, and the others cannot be judged.
fn unanswered(ask: Ask, failure: &Failure) -> impl Iterator<Item = Verified> {
    let failed = Verdict::fail(&failure.why);
    of(ask).enumerate().map(move |(at, row)| {
        let verdict =
            if at == 0 { failed.clone() } else { Verdict::Skipped("there was no answer".to_owned()) };
        Verified { row: *row, verdict }
    })
}

/// Judges an answer by the rows of its request.
pub(super) fn judge(ask: Ask, answer: &Answer) -> impl Iterator<Item = Verified> {
    let absent = ask.optional()
        && matches!(answer.status, 404 | 405 | 501)
        && text(&answer.whole, "/error/code") != "model_not_found"
        && text(&answer.whole, "/error/param") != "model";
    let obstacle = match answer.status {
        200 if ask.streams() && answer.frames.is_empty() => Some("the answer has no events".to_owned()),
        200 if !ask.streams() && !answer.whole.is_object() => Some("the answer is no JSON object".to_owned()),
        200 => None,
        status => Some(format!("the answer has status {status}")),
    };
    of(ask).map(move |row| {
        let verdict = match &obstacle {
            _ if absent => Verdict::NotOffered,
            Some(why) if !row.always && !is_judged(row, answer) => Verdict::Skipped(why.clone()),
            _ => (row.judge)(answer),
        };
        Verified { row: *row, verdict }
    })
}

/// Returns true if a row about the form of a body judges a successful answer that has another form.
fn is_judged(row: &Row, answer: &Answer) -> bool {
    let forms = ["-content-type", "-framing", "-object", "-list"];
    answer.status == 200 && forms.iter().any(|form| row.id.ends_with(form))
}
