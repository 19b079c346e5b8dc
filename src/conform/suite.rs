//! Run of the suite: the requests one after another, and the verdict of each row.

use super::address::check_address;
use super::answer::Answer;
use super::group::Group;
use super::requests::SuiteRequest;
use super::row::Row;
use super::verdict::Verdict;
use super::{chat, completions, errors, messages, responses};
use crate::exchange::{Exchange, Failure, Sender};
use crate::tree::View;

/// Requests without any answer, at the beginning, after which no more are sent.
const SILENT: u32 = 2;
/// Requests in a row that a server has no room for, after which no more are sent.
const BUSY: u32 = 2;

/// Row with its verdict.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Row that was judged.
    pub row: Row,
    /// Verdict of the row.
    pub verdict: Verdict,
}

/// Results of a run, as far as it has come.
#[derive(Debug)]
pub struct Report {
    /// Root of the API that was tested.
    pub url: String,
    /// Model that was tested.
    pub model: String,
    /// True if the server lists models, and none of them has a name.
    pub is_nameless: bool,
    /// Rows with their verdicts, in the order of the requests.
    pub rows: Vec<Verified>,
    /// Exchanges, each with the request that it belongs to; none unless they are kept.
    pub exchanges: Vec<(SuiteRequest, Exchange)>,
    /// Reason why not everything was asked; `None`: all was.
    pub stopped: Option<String>,
    keeps_exchanges: bool,
}

impl Report {
    /// Creates the report of a run that has sent nothing yet. `keeps_exchanges`: the exchanges are wanted, too, and
    /// not the verdicts alone.
    pub fn new(requests: &[SuiteRequest], keeps_exchanges: bool) -> Self {
        let rows = requests.iter().flat_map(|request| of(*request));
        Self {
            url: String::new(),
            model: String::new(),
            is_nameless: false,
            rows: rows
                .map(|row| Verified {
                    row: *row,
                    verdict: Verdict::NotAsked,
                })
                .collect(),
            exchanges: Vec::new(),
            stopped: None,
            keeps_exchanges,
        }
    }

    /// Returns the number of rows with a verdict's word.
    pub fn count(&self, word: &str) -> usize {
        self.rows
            .iter()
            .filter(|row| row.verdict.word() == word)
            .count()
    }

    /// Returns the requests that were not sent.
    pub fn not_asked(&self) -> Vec<SuiteRequest> {
        let rows = self
            .rows
            .iter()
            .filter(|row| row.verdict == Verdict::NotAsked);
        let mut requests: Vec<_> = rows.map(|row| row.row.request).collect();
        requests.dedup();
        requests
    }

    fn put(&mut self, judged: impl IntoIterator<Item = Verified>) {
        for Verified { row, verdict } in judged {
            if let Some(known) = self.rows.iter_mut().find(|known| known.row.id == row.id) {
                known.verdict = verdict;
            }
        }
    }

    /// Takes the list of models, and the first that has a name where no model is named.
    fn take_models(&mut self, list: &Answer) {
        let models = list.whole.list("/data");
        let first = models
            .iter()
            .map(|model| model.text("/id"))
            .find(|id| !id.trim().is_empty());
        self.is_nameless = first.is_none() && !models.is_empty();
        if let Some(name) = first {
            name.clone_into(&mut self.model);
        }
    }
}

/// Returns all rows in the order of the groups.
pub fn catalogue() -> impl Iterator<Item = &'static Row> {
    let all = [
        chat::ROWS,
        completions::ROWS,
        responses::ROWS,
        messages::ROWS,
        errors::ROWS,
    ];
    all.into_iter().flatten()
}

/// Returns the requests of some groups; of all groups if none is given. The list of models is among them if no model
/// is named.
pub fn requests(only: &[Group], model: Option<&str>) -> Vec<SuiteRequest> {
    let is_selected = |request: &SuiteRequest| {
        only.is_empty()
            || only.contains(&request.group())
            || *request == SuiteRequest::Models && model.is_none()
    };
    SuiteRequest::ALL.into_iter().filter(is_selected).collect()
}

/// Returns the most tokens that a server may generate for some requests.
pub fn tokens(requests: &[SuiteRequest]) -> u32 {
    requests.iter().map(|request| request.tokens()).sum()
}

/// Sends the requests and judges the answers, which fills the report. Without a model, the first that the server lists
/// is tested.
///
/// # Errors
/// Fails if no connection to the server can be made, or if its answers are those of no such server.
pub async fn run(
    sender: &Sender,
    requests: &[SuiteRequest],
    model: Option<&str>,
    report: &mut Report,
    mut progress: impl FnMut(SuiteRequest),
) -> Result<(), Failure> {
    sender.target().base().clone_into(&mut report.url);
    // Without a list of models, a server of one model often takes any name.
    model.unwrap_or("default").clone_into(&mut report.model);
    let mut refused: Option<Failure> = None;
    let (mut answered, mut silent, mut busy) = (false, 0, 0);
    let (mut list, mut is_known) = (None, false);
    for request in requests.iter().copied() {
        progress(request);
        let outcome = match &refused {
            Some(failure) => Err(failure.clone()),
            None => sender.send(request.for_model(&report.model)).await,
        };
        match outcome {
            Ok(exchange) => {
                let answer = Answer::new(&exchange);
                if request == SuiteRequest::Models && model.is_none() {
                    report.take_models(&answer);
                }
                report.put(judge(request, &answer));
                answered = true;
                if report.keeps_exchanges {
                    report.exchanges.push((request, exchange));
                }
                if request.is_chat() && !is_known {
                    check_address(sender, list.as_ref(), &answer).await?;
                    (list, is_known) = (None, true);
                }
                let why = answer.busy();
                busy = if why.is_some() { busy + 1 } else { 0 };
                if busy >= BUSY {
                    report.stopped = why;
                    return Ok(());
                }
                if request == SuiteRequest::Models {
                    list = Some(answer);
                }
            }
            Err(failure) if failure.unreachable && !answered && silent == 0 => return Err(failure),
            Err(failure) => {
                report.put(unanswered(request, &failure));
                silent += 1;
                // A server that has never answered is not waited for again and again.
                if failure.unreachable || silent >= SILENT && !answered {
                    refused = Some(failure);
                }
            }
        }
    }
    Ok(())
}

/// Returns the rows of a request.
fn of(request: SuiteRequest) -> impl Iterator<Item = &'static Row> {
    catalogue().filter(move |row| row.request == request)
}

/// Returns the rows of a request that got no answer: the first fails, and the others cannot be judged.
fn unanswered(request: SuiteRequest, failure: &Failure) -> impl Iterator<Item = Verified> {
    let failed = Verdict::fail(&failure.why);
    of(request).enumerate().map(move |(at, row)| {
        let verdict = if at == 0 {
            failed.clone()
        } else {
            Verdict::Skipped("there was no answer".to_owned())
        };
        Verified { row: *row, verdict }
    })
}

/// Judges an answer by the rows of its request.
pub(crate) fn judge(request: SuiteRequest, answer: &Answer) -> Vec<Verified> {
    let absent = request.optional()
        && matches!(answer.status, 404 | 405 | 501)
        && answer.whole.text("/error/code") != "model_not_found"
        && answer.whole.text("/error/param") != "model";
    let obstacle = match answer.status {
        200 if answer.unreadable.is_some() && answer.frames.is_empty() => answer.unreadable.clone(),
        200 if request.streams() && answer.frames.is_empty() => {
            Some("the answer has no events".to_owned())
        }
        200 if !request.streams() && !answer.whole.is_object() => {
            Some("the answer is no JSON object".to_owned())
        }
        200 => None,
        status => Some(format!("the answer has status {status}")),
    };
    let verified = |row: &Row| {
        let verdict = match &obstacle {
            _ if absent => Verdict::NotOffered,
            // Otherwise a body of another form would leave nothing but skipped rows.
            Some(why) if answer.status == 200 && row.id.ends_with("-end") => {
                Verdict::fail(&format!("{why}: {}", answer.beginning()))
            }
            Some(why) if !row.judges_all() && !is_judged(row, answer) => {
                Verdict::Skipped(why.clone())
            }
            _ => (row.judge)(answer),
        };
        Verified { row: *row, verdict }
    };
    of(request).map(verified).collect()
}

/// Returns true if a row about the form of a body judges a successful answer that has another form.
fn is_judged(row: &Row, answer: &Answer) -> bool {
    let forms = match row.request.streams() {
        true => ["-content-type", "-framing"],
        false => ["-object", "-list"],
    };
    answer.status == 200 && forms.iter().any(|form| row.id.ends_with(form))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{ERROR, JSON, WRONG, good};
    use super::*;
    use crate::exchange::{Ended, Request};
    use http::{HeaderMap, HeaderValue, Method, StatusCode};
    use std::collections::BTreeSet;

    fn answer(
        request: SuiteRequest,
        status: u16,
        kind: &'static str,
        body: &str,
        ended: Ended,
    ) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static(kind));
        let sent = request.for_model("m");
        let request = Request {
            method: Method::POST,
            ..sent
        };
        let status = StatusCode::from_u16(status).unwrap();
        let (body, pieces) = (body.as_bytes().to_vec(), Vec::new());
        Answer::new(&Exchange {
            request,
            status,
            headers,
            body,
            pieces,
            ended,
        })
    }

    #[test]
    fn good_answers_pass_every_row() {
        for request in SuiteRequest::ALL {
            let (status, kind, body) = good(request);
            let rows = judge(request, &answer(request, status, kind, &body, Ended::Clean));
            assert!(!rows.is_empty(), "{request:?}");
            for row in rows {
                assert_eq!(row.verdict, Verdict::Pass, "{}: {body}", row.row.id);
            }
        }
    }

    #[test]
    fn wrong_answers_fail_their_row() {
        for (id, from, to) in WRONG {
            let row = catalogue()
                .find(|row| row.id == *id)
                .unwrap_or_else(|| panic!("no row {id}"));
            let (status, kind, body) = good(row.request);
            assert!(body.contains(from), "{id}: {body}");
            let body = body.replace(from, to);
            let judged = judge(
                row.request,
                &answer(row.request, status, kind, &body, Ended::Clean),
            );
            let verdict = judged
                .into_iter()
                .find(|judged| judged.row.id == *id)
                .unwrap()
                .verdict;
            assert!(
                matches!(verdict, Verdict::Fail(_)),
                "{id}: {verdict:?}: {body}"
            );
        }
    }

    #[test]
    fn wrong_statuses_ends_and_types_fail_their_row() {
        let mut judged = BTreeSet::new();
        for row in catalogue() {
            let (status, kind, body) = good(row.request);
            let (status, kind, ended) = match row.id {
                id if id.ends_with("-status") => (500, kind, Ended::Clean),
                id if id.ends_with("-end") => (status, kind, Ended::Stalled),
                id if id.ends_with("-content-type") => (status, "text/plain", Ended::Clean),
                _ => continue,
            };
            let rows = judge(
                row.request,
                &answer(row.request, status, kind, &body, ended),
            );
            let verdict = rows
                .into_iter()
                .find(|judged| judged.row.id == row.id)
                .unwrap()
                .verdict;
            assert!(
                matches!(verdict, Verdict::Fail(_)),
                "{}: {verdict:?}",
                row.id
            );
            judged.insert(row.id);
        }
        let all: BTreeSet<_> = catalogue().map(|row| row.id).collect();
        assert_eq!(all.len(), catalogue().count(), "an id is there twice");
        judged.extend(WRONG.iter().map(|(id, ..)| *id));
        assert_eq!(judged, all, "each row has a wrong answer");
    }

    #[test]
    fn bodies_of_another_form_fail() {
        for request in SuiteRequest::ALL {
            let (status, kind, _) = good(request);
            for body in ["", "nonsense"] {
                let judged = judge(request, &answer(request, status, kind, body, Ended::Clean));
                assert!(
                    judged
                        .into_iter()
                        .any(|row| matches!(row.verdict, Verdict::Fail(_))),
                    "{request:?} {body:?}"
                );
            }
        }
    }

    #[test]
    fn missing_routes_are_not_offered_and_broken_ones_fail() {
        for (status, word) in [(404, "not offered"), (500, "fail")] {
            let answer = answer(
                SuiteRequest::ResponsesWhole,
                status,
                JSON,
                ERROR,
                Ended::Clean,
            );
            assert_eq!(
                judge(SuiteRequest::ResponsesWhole, &answer)
                    .first()
                    .unwrap()
                    .verdict
                    .word(),
                word
            );
        }
        let answer = answer(SuiteRequest::ChatWhole, 404, JSON, ERROR, Ended::Clean);
        assert_eq!(
            judge(SuiteRequest::ChatWhole, &answer)
                .first()
                .unwrap()
                .verdict
                .word(),
            "fail"
        );
    }
}
