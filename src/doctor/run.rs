//! Run: the questions one after another, within bounds of time, and what is known at any moment.

use super::check::Finding;
use super::cut::{self, Cut};
use super::probe;
use super::question::{CUT_PIECES, LIMIT_PIECES, Question};
use super::seen::Seen;
use super::server::{self, Routes, Server};
use crate::conform::{self, Answer};
use crate::exchange::{Bounds, Ended, Exchange, Failure, Idle, Sender, idle};
use futures::future::{join_all, try_join};
use std::fmt::Write;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Bounds of a run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time for one answer.
    pub answer: Duration,
    /// Time for all questions.
    pub total: Duration,
    /// Time for which an unused connection is watched; zero: it is not.
    pub idle: Duration,
}

impl Limits {
    /// Returns the bounds of one answer to a question.
    pub fn bounds(self) -> Bounds {
        Bounds {
            bytes: BYTES,
            pieces: PIECES,
            ..Bounds::within(self.answer)
        }
    }

    /// Returns the bounds of an answer for which no model has to work. It may stall for as long as an unused connection
    /// is watched.
    fn quick(self) -> Bounds {
        let bounds = Bounds::within(self.answer.min(QUICK));
        let stall = self.idle.max(LEAST_STALL);
        let (head, idle) = (bounds.head.min(stall), bounds.idle.min(stall));
        Bounds {
            head,
            idle,
            bytes: QUICK_BYTES,
            pieces: PIECES,
            ..bounds
        }
    }
}

/// Bytes and pieces of one answer; more is given up. Lists of models and metrics are longer than answers.
const BYTES: usize = 256 << 10;
const QUICK_BYTES: usize = 2 << 20;
const PIECES: usize = 8192;
/// Events and values of an answer to a question: they take more memory than its bytes, and all answers are kept.
const VALUES: usize = 16_384;
const LISTED: usize = 50_000;
/// Time for the list of models and for the engine's own routes.
const QUICK: Duration = Duration::from_secs(10);
/// Time for which such an answer may stall at least, as a busy server is no broken one.
const LEAST_STALL: Duration = Duration::from_secs(2);
/// Questions in a row without an answer after which no more are asked.
const SILENT: usize = 2;
/// Questions in a row that a server has no room for, after which no more are asked.
const BUSY: usize = 2;
/// Looks at the load of an engine whose client has left, and the time before the first; each waits twice as long as the
/// one before. SGLang takes four seconds to notice.
const LOOKS: u16 = 5;
const LOOK: Duration = Duration::from_millis(200);

/// Returns the most requests beside the questions: to the engine's own routes, and over the connection that is watched.
pub fn own_requests() -> u16 {
    server::most_requests(LOOKS) + 1
}

/// Report of a run, as far as it has come.
#[derive(Debug, Default)]
pub struct Report {
    /// Root of the API that was tested.
    pub url: String,
    /// Everything that was seen.
    pub(super) seen: Seen,
    /// Exchanges, each with the name of its folder; none unless they are kept.
    pub exchanges: Vec<(String, Exchange)>,
    /// Reason why not all questions were asked; `None`: all were.
    pub stopped: Option<String>,
    pub(super) keeps_exchanges: bool,
}

impl Report {
    /// Creates an empty report. `keeps_exchanges`: the exchanges are wanted, too, and not what follows from them alone.
    pub fn new(keeps_exchanges: bool) -> Self {
        Self {
            keeps_exchanges,
            ..Self::default()
        }
    }

    /// Returns true if the server has answered anything from which advice can follow.
    pub fn is_answered(&self) -> bool {
        self.seen.is_useful()
    }

    /// Returns the server, as far as it says what it is.
    pub fn server(&self) -> &Server {
        &self.seen.server
    }

    /// Returns the model that was tested.
    pub fn model(&self) -> &str {
        &self.seen.model
    }

    /// Returns the results of all checks, in the order of the topics.
    pub fn findings(&self) -> Vec<Finding> {
        probe::checks()
            .map(|check| Finding::of(check, &self.seen))
            .collect()
    }

    /// Returns the questions that were not asked.
    pub fn not_asked(&self) -> Vec<Question> {
        Question::ALL
            .into_iter()
            .filter(|question| !self.seen.has(*question))
            .collect()
    }

    /// Takes the answer to a question; returns true if the server has said something and come to an end.
    fn take(
        &mut self,
        question: Question,
        at: Option<usize>,
        answer: Result<Exchange, Failure>,
    ) -> bool {
        let is_silent = match &answer {
            Ok(exchange) if matches!(question, Question::Limit | Question::Cut) => {
                exchange.ended == Ended::Stalled
            }
            Ok(exchange) => matches!(exchange.ended, Ended::Stalled | Ended::TooLong),
            Err(_) => true,
        };
        let answer = answer.map(|exchange| {
            let values = if question == Question::Models {
                LISTED
            } else {
                VALUES
            };
            let read = Answer::within(&exchange, values);
            if !self.keeps_exchanges {
                return read;
            }
            let mut name = question.name().to_owned();
            if let Some(at) = at {
                let _ = write!(name, "-{at}");
            }
            self.exchanges.push((name, exchange));
            read
        });
        self.seen.add(question, answer);
        !is_silent
    }
}

/// Asks all questions, and fills the report as the answers come. Without a model, the first that the server lists is
/// tested.
///
/// # Errors
/// Fails if the server does not answer the first question.
pub async fn run(
    sender: &Sender,
    model: Option<&str>,
    limits: Limits,
    report: &mut Report,
    progress: impl FnMut(&str),
) -> Result<(), Failure> {
    sender.target().base().clone_into(&mut report.url);
    let target = sender.target().clone();
    let watched = async {
        Ok(match limits.idle {
            Duration::ZERO => None,
            limit => Some(idle(&target, limit).await),
        })
    };
    let mut run = Run {
        sender,
        limits,
        report,
        progress,
    };
    // The connection is watched beside the questions, which take longer.
    let ended = timeout(limits.total, try_join(watched, run.send_all(model))).await;
    match ended {
        Ok(Ok((idle, ()))) => {
            run.report.seen.idle = idle;
            Ok(())
        }
        Ok(Err(failure)) => Err(failure),
        Err(_) => {
            run.report.seen.idle = Some(Idle::Unknown("the time was up".to_owned()));
            run.report.stopped = Some(format!(
                "the {} s for all questions were up",
                limits.total.as_secs_f32()
            ));
            Ok(())
        }
    }
}

/// Run under way.
struct Run<'r, P> {
    sender: &'r Sender,
    limits: Limits,
    report: &'r mut Report,
    progress: P,
}

impl<P: FnMut(&str)> Run<'_, P> {
    async fn send_all(&mut self, model: Option<&str>) -> Result<(), Failure> {
        let quick = self.sender.with_bounds(self.limits.quick());
        let server_header = self.first(&quick, model).await?;
        if self.is_locked(Question::Models) {
            return Ok(());
        }
        (self.progress)("what the server is");
        let mut routes = Routes::new(&quick);
        // A gateway may not answer such routes at all. The facts found until then stay.
        let _ = routes
            .identify(&mut self.report.seen.server, server_header.as_deref())
            .await;
        let seen = &mut self.report.seen;
        seen.server.look_at_template(&quick, &seen.model).await;
        let mut silent = 0;
        let mut busy = usize::from(self.report.seen.busy(Question::Models).is_some());
        for question in Question::ALL.into_iter().skip(1) {
            silent = if self.send_one(question).await {
                0
            } else {
                silent + 1
            };
            if question == Question::Stream && self.is_pointless().await? {
                return Ok(());
            }
            let why = self.report.seen.busy(question);
            busy = if why.is_some() { busy + 1 } else { 0 };
            if busy >= BUSY {
                self.report.stopped = why;
                return Ok(());
            }
            if silent >= SILENT || silent > 0 && question == Question::Stream {
                self.report.stopped = Some(format!(
                    "the server does not answer, or without an end ({})",
                    question.name()
                ));
                return Ok(());
            }
        }
        Ok(())
    }

    /// Looks at the answer to the first chat. Returns true, and says so in the report, if no other question would get a
    /// better one.
    async fn is_pointless(&mut self) -> Result<bool, Failure> {
        let seen = &mut self.report.seen;
        seen.take_hint(Question::Stream);
        let answer = |question| {
            seen.all(question)
                .next()
                .and_then(|answer| answer.as_ref().ok())
        };
        let Some(chat) = answer(Question::Stream) else {
            return Ok(false);
        };
        conform::check_address(self.sender, answer(Question::Models), chat).await?;
        if let Some(redirect) = &chat.redirect {
            let why = format!("the server redirects its clients ({redirect})");
            self.report.stopped = Some(why);
            return Ok(true);
        }
        Ok(self.is_locked(Question::Stream))
    }

    /// Requests the list of models and decides which model is tested. Returns the `server` header.
    async fn first(
        &mut self,
        quick: &Sender,
        model: Option<&str>,
    ) -> Result<Option<String>, Failure> {
        (self.progress)(Question::Models.name());
        let exchange = quick.send(Question::Models.for_model("")).await?;
        let header = exchange.headers.get(http::header::SERVER);
        let header = header
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        self.report.seen.server.take_models(&exchange.body);
        let listed = || {
            self.report
                .seen
                .server
                .models
                .first()
                .map(|model| model.id.clone())
        };
        // Without a list of models, a server of one model often takes any name.
        self.report.seen.model = model
            .map(str::to_owned)
            .or_else(listed)
            .unwrap_or_else(|| "default".to_owned());
        self.report.take(Question::Models, None, Ok(exchange));
        Ok(header)
    }

    /// Returns true, and says so in the report, if the server refuses the key.
    fn is_locked(&mut self, question: Question) -> bool {
        let status = self.report.seen.any(question).map(|answer| answer.status);
        let locked = matches!(status, Ok(401 | 403));
        if locked {
            self.report.stopped =
                Some("the server needs a key, or another one (--key-file)".to_owned());
        }
        locked
    }

    /// Asks a question. Returns true if the server has said something.
    async fn send_one(&mut self, question: Question) -> bool {
        (self.progress)(question.name());
        match question {
            Question::Eight => self.eight().await,
            Question::Cut => self.cut().await,
            _ => {
                let bounds = self.limits.bounds();
                let pieces = if question == Question::Limit {
                    LIMIT_PIECES
                } else {
                    bounds.pieces
                };
                let answer = self.send(question, Bounds { pieces, ..bounds }).await;
                self.report.take(question, None, answer)
            }
        }
    }

    async fn send(&self, question: Question, bounds: Bounds) -> Result<Exchange, Failure> {
        self.sender
            .with_bounds(bounds)
            .send(question.for_model(&self.report.seen.model))
            .await
    }

    async fn eight(&mut self) -> bool {
        let question = Question::Eight;
        let requests = (0..question.requests()).map(|_| self.send(question, self.limits.bounds()));
        let answers = join_all(requests).await;
        let mut says = false;
        for (answer, at) in answers.into_iter().zip(1..) {
            says |= self.report.take(question, Some(at), answer);
        }
        says
    }

    /// Cuts off a long stream, and looks how long the engine goes on to work for it.
    async fn cut(&mut self) -> bool {
        let engine = self.report.seen.server.engine();
        let quick = self.sender.with_bounds(self.limits.quick());
        let before = server::load(&quick, engine, None).await;
        let bounds = Bounds {
            pieces: CUT_PIECES,
            ..self.limits.bounds()
        };
        let answer = self.send(Question::Cut, bounds).await;
        let left = Instant::now();
        if let (Some((before, route)), Ok(exchange)) = (before, &answer) {
            let natural = cut::natural(exchange, Question::Cut.tokens());
            let mut cut = Cut {
                before,
                after: before,
                time: Duration::ZERO,
                natural,
                route,
            };
            if exchange.ended == Ended::TooLong && self.watch(&quick, engine, left, &mut cut).await
            {
                self.report.seen.cut = Some(cut);
            }
        }
        self.report.take(Question::Cut, None, answer)
    }

    /// Reads the load until it is no higher than before. Returns false if it can no longer be read.
    async fn watch(&self, quick: &Sender, engine: &str, left: Instant, cut: &mut Cut) -> bool {
        for look in 0..u32::from(LOOKS) {
            sleep(LOOK * 2_u32.pow(look)).await;
            let Some((after, _)) = server::load(quick, engine, Some(cut.route)).await else {
                return false;
            };
            (cut.after, cut.time) = (after, left.elapsed());
            if cut.is_free() {
                return true;
            }
        }
        true
    }
}
