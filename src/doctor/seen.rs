//! Everything that was seen of a server: its answers, and what it says about itself.

use super::chat::error;
use super::cut::Cut;
use super::outcome::{Judged, Outcome};
use super::question::Question;
use super::server::Server;
use crate::conform::Answer;
use crate::exchange::{Ended, Failure, Idle};

/// Statuses of a server that is busy, or of a gateway whose server is: they say nothing about the request.
const UNAVAILABLE: [u16; 4] = [429, 502, 503, 504];

/// Observations of one server.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) server: Server,
    pub(super) model: String,
    pub(super) idle: Option<Idle>,
    pub(super) cut: Option<Cut>,
    answers: Vec<(Question, Result<Answer, Failure>)>,
}

impl Seen {
    pub(super) fn add(&mut self, question: Question, answer: Result<Answer, Failure>) {
        self.answers.push((question, answer));
    }

    /// Takes the answer to a question as a hint what the server is.
    pub(super) fn take_hint(&mut self, question: Question) {
        let answer = self.answers.iter().find(|(sent, _)| *sent == question);
        if let Some((_, Ok(answer))) = answer {
            self.server.take_answer(answer);
        }
    }

    /// Returns why no more ought to be asked, if every answer to a question says that the server is busy.
    pub(super) fn busy(&self, question: Question) -> Option<String> {
        let mut answers = self.all(question).peekable();
        answers.peek()?;
        answers
            .map(|answer| answer.as_ref().ok().and_then(Answer::busy))
            .collect::<Option<Vec<_>>>()?
            .pop()
    }

    /// Returns true if the server has answered a question other than that about its models, and not only by naming
    /// another address, refusing the key or being unavailable.
    pub(super) fn is_useful(&self) -> bool {
        let says = |answer: &Answer| {
            !matches!(answer.status, 300..=399 | 401 | 403) && !UNAVAILABLE.contains(&answer.status)
        };
        self.answers.iter().any(|(question, answer)| {
            *question != Question::Models && answer.as_ref().is_ok_and(says)
        })
    }

    /// Returns true if the question was asked, whatever came of it.
    pub(super) fn has(&self, question: Question) -> bool {
        self.answers.iter().any(|(sent, _)| *sent == question)
    }

    /// Returns the answers to a question that is asked several times at once.
    pub(super) fn all(&self, question: Question) -> impl Iterator<Item = &Result<Answer, Failure>> {
        self.answers
            .iter()
            .filter(move |(sent, _)| *sent == question)
            .map(|(_, answer)| answer)
    }

    /// Returns the failure of a question that got no answer.
    pub(super) fn failure(&self, question: Question) -> Option<&Failure> {
        self.all(question).find_map(|answer| answer.as_ref().err())
    }

    /// Returns the answer to a question, of any status that says something about the request, cut or not.
    pub(super) fn any(&self, question: Question) -> Judged<&Answer> {
        match self.all(question).next() {
            None => Err(Outcome::not_seen("it was not asked")),
            Some(Err(failure)) => Err(Outcome::not_seen(&failure.why)),
            Some(Ok(answer)) if UNAVAILABLE.contains(&answer.status) => {
                Err(Outcome::not_seen(format!(
                    "{} was answered with status {}",
                    question.name(),
                    answer.status
                )))
            }
            Some(Ok(answer)) => Ok(answer),
        }
    }

    /// Returns the number of all answers, and those with which the server or a gateway failed, whatever was asked:
    /// the status says so, or the connection broke.
    pub(super) fn failures(&self) -> (usize, Vec<(Question, &Answer)>) {
        let is_failure =
            |answer: &Answer| UNAVAILABLE.contains(&answer.status) || answer.ended == Ended::Reset;
        let answers = self
            .answers
            .iter()
            .filter_map(|(question, answer)| Some((*question, answer.as_ref().ok()?)));
        let answers: Vec<_> = answers
            .filter(|(question, _)| *question != Question::Cut)
            .collect();
        let count = answers.len();
        (
            count,
            answers
                .into_iter()
                .filter(|(_, answer)| is_failure(answer))
                .collect(),
        )
    }

    /// Returns the answer to a question, if it is a complete success.
    pub(super) fn good(&self, question: Question) -> Judged<&Answer> {
        let answer = self.any(question)?;
        match (answer.status, answer.ended) {
            (200, Ended::Clean) if error(answer).is_some() => Err(Outcome::not_seen(format!(
                "{} ended with an error",
                question.name()
            ))),
            (200, Ended::Clean) => Ok(answer),
            (200, ended) => Err(Outcome::not_seen(ended.name())),
            (status, _) => Err(Outcome::not_seen(format!(
                "{} was answered with status {status}",
                question.name()
            ))),
        }
    }
}
