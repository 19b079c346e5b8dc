//! Run of one line: its request, attempts, and the line of the result.

use super::dispatch::{Dispatcher, LineAnswer};
use super::facts::{LineError, LineUsage};
use super::registry::{BatchSignals, Batches, LineSlot};
use crate::json::{self, Members, Raw, members};
use crate::server::admit::batch_line::LineIdentity;
use crate::server::{ActiveConfig, App};
use crate::upstream::ModelTarget;
use crate::wire::ident;
use axum::body::Body as Incoming;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{Method, Request};
use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Attempts at a line in which something broke.
const TRIES: u32 = 3;
/// Pause before another attempt: the first one, and the longest after repeated doubling.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Shortest pause, also if the answer asks for none.
const SHORTEST: Duration = Duration::from_millis(100);

/// Line that is ready to run.
pub(super) struct RunningLine {
    pub(super) number: u64,
    pub(super) custom_id: String,
    pub(super) model: String,
    pub(super) body: Bytes,
    /// Seed by which a model is drawn if the name stands for several.
    pub(super) seed: u64,
    /// Attempts so far; `None` before the first one.
    pub(super) attempts: Option<Box<Attempts>>,
}

impl RunningLine {
    /// Returns the bytes of its body, and of the answer that is kept.
    pub(super) fn bytes(&self) -> usize {
        let answer = self
            .attempts
            .as_ref()
            .and_then(|attempts| attempts.answer.as_ref()?.body.as_ref());
        self.body.len() + answer.map_or(0, Bytes::len)
    }
}

/// Attempts at a line that have not given a result.
pub(super) struct Attempts {
    /// Number of attempts in which something broke.
    pub(super) broken: u32,
    /// Pause after the next attempt, unless its answer says otherwise.
    pub(super) pause: Duration,
    /// Time from which the next attempt may begin.
    pub(super) due: Instant,
    /// Answer to the last attempt.
    pub(super) answer: Option<LineAnswer>,
}

/// End of an attempt.
pub(super) enum LineEnd {
    Result(LineOutcome),
    /// The line has to be tried again.
    Again(RunningLine),
}

/// Result of a line.
pub(super) struct LineOutcome {
    pub(super) number: u64,
    /// Line for the output file, or for the file of errors.
    pub(super) text: String,
    pub(super) is_success: bool,
    pub(super) usage: LineUsage,
}

/// Things that all lines of a batch share.
pub(super) struct LineContext {
    pub(super) present: Arc<ActiveConfig>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) batches: Arc<Batches>,
    pub(super) signals: Arc<BatchSignals>,
    pub(super) batch: Arc<str>,
    pub(super) endpoint: String,
    pub(super) identity: LineIdentity,
}

/// Returns the model to which a line would be sent now.
pub(super) fn target(app: &App, line: &RunningLine) -> ModelTarget {
    let model = match &app.config.default_model {
        Some(default) if line.model.is_empty() => default,
        _ => &*line.model,
    };
    app.pool.first_target(model, line.seed)
}

/// Returns true if a line may begin: an upstream of its target has room beside the requests of clients and the lines
/// that are about to be sent.
pub(super) fn has_room(app: &App, target: &ModelTarget) -> bool {
    let starting = app.batches.starting();
    app.pool.has_spare(
        target,
        app.config.batch.upstream_requests.saturating_sub(starting),
    )
}

impl LineContext {
    /// Sends a line to an engine.
    pub(super) async fn run(self: Arc<Self>, mut line: RunningLine, slot: LineSlot) -> LineEnd {
        let app = self.present.app();
        let answer = match self.request(&line, &slot) {
            Some(request) => {
                self.dispatcher
                    .dispatch(request, app.config.limits.max_answer_bytes)
                    .await
            }
            None => None,
        };
        let (mut broken, pause) = line
            .attempts
            .take()
            .map_or((0, PAUSES.0), |before| (before.broken, before.pause));
        let status = answer.as_ref().map_or(500, |answer| answer.status);
        let is_final = answer.as_ref().is_some_and(LineAnswer::is_final);
        let again = match status {
            // It says itself that it may be sent again, and that costs nobody anything.
            429 | 503 => !is_final,
            408 | 500 | 502 | 504 => {
                broken += 1;
                !is_final && broken < TRIES
            }
            _ => false,
        };
        if !again || self.signals.cancel.load(Ordering::Relaxed) {
            return LineEnd::Result(self.outcome(&line, answer.as_ref()));
        }
        let wait = answer
            .as_ref()
            .and_then(LineAnswer::retry_after)
            .unwrap_or(pause);
        let due = Instant::now() + wait.clamp(SHORTEST, PAUSES.1);
        let pause = (pause * 2).min(PAUSES.1);
        line.attempts = Some(Box::new(Attempts {
            broken,
            pause,
            due,
            answer,
        }));
        LineEnd::Again(line)
    }

    /// Returns the result of a line that is not tried again: its last answer.
    pub(super) fn result_without_retry(&self, line: &RunningLine) -> LineOutcome {
        self.outcome(
            line,
            line.attempts
                .as_ref()
                .and_then(|attempts| attempts.answer.as_ref()),
        )
    }

    fn request(&self, line: &RunningLine, slot: &LineSlot) -> Option<Request<Incoming>> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.endpoint)
            .header(HOST, "batch")
            .header(CONTENT_TYPE, "application/json")
            .header(CONTENT_LENGTH, line.body.len())
            .extension(self.identity.clone())
            .extension(Arc::clone(&slot.start));
        request.body(Incoming::from(line.body.clone())).ok()
    }

    fn outcome(&self, line: &RunningLine, answer: Option<&LineAnswer>) -> LineOutcome {
        let text = answer.and_then(|answer| std::str::from_utf8(answer.body.as_ref()?).ok());
        // A line of the file has no line end inside.
        let body = text.and_then(Raw::of).map(json::compacted);
        let body = body
            .as_deref()
            .and_then(|body| serde_json::from_str::<&RawValue>(body).ok());
        let Some((answer, body)) = answer.zip(body) else {
            let message = "The answer to this request broke off, or is not JSON.";
            return self.failed(line.number, &line.custom_id, "server_error", message);
        };
        let is_success = (200..300).contains(&answer.status);
        let response =
            members! { status_code: answer.status, request_id: answer.request_id(), body };
        let text = self.result(line.number, &line.custom_id, Some(response), None::<()>);
        let usage = if is_success {
            usage(body.get())
        } else {
            LineUsage::default()
        };
        LineOutcome {
            number: line.number,
            text,
            is_success,
            usage,
        }
    }

    /// Returns the result of a line that has no answer.
    pub(super) fn failed(
        &self,
        number: u64,
        custom_id: &str,
        code: &str,
        message: &str,
    ) -> LineOutcome {
        let text = self.result(
            number,
            custom_id,
            None::<()>,
            Some(members! { code, message: message }),
        );
        LineOutcome {
            number,
            text,
            is_success: false,
            usage: LineUsage::default(),
        }
    }

    fn result(
        &self,
        number: u64,
        custom_id: &str,
        response: Option<impl Serialize>,
        error: Option<impl Serialize>,
    ) -> String {
        let id = ident::sha256_hex(format!("{}/{number}", self.batch).as_bytes(), 32);
        let line = members! {
            id: format!("batch_req_{id}"),
            custom_id,
            response,
            error,
        };
        serde_json::to_string(&line).unwrap_or_default() + "\n"
    }
}

/// Returns the tokens that an answer says it took, by the names of either API.
fn usage(body: &str) -> LineUsage {
    let Some(usage) = Members::of(body).and_then(|body| Members::of(body.get("usage")?.get()))
    else {
        return LineUsage::default();
    };
    let number = |members: &Members<'_>, names: [&str; 2]| {
        names
            .into_iter()
            .find_map(|name| json::integer(members.get(name)?))
            .unwrap_or(0)
    };
    let detail = |names: [&str; 2], name| {
        let details = names
            .into_iter()
            .find_map(|name| Members::of(usage.get(name)?.get()));
        details.map_or(0, |details| number(&details, [name, name]))
    };
    LineUsage {
        input: number(&usage, ["prompt_tokens", "input_tokens"]),
        cached: detail(
            ["prompt_tokens_details", "input_tokens_details"],
            "cached_tokens",
        ),
        output: number(&usage, ["completion_tokens", "output_tokens"]),
        reasoning: detail(
            ["completion_tokens_details", "output_tokens_details"],
            "reasoning_tokens",
        ),
    }
}

/// Returns a mistake in a line, whose number counts from 0.
pub(super) fn mistake(
    code: &str,
    message: &str,
    param: Option<&str>,
    line: Option<u64>,
) -> LineError {
    LineError {
        code: code.to_owned(),
        message: message.to_owned(),
        param: param.map(ToOwned::to_owned),
        line: line.map(|line| line + 1),
    }
}
