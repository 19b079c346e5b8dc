//! One exchange with an engine: the request on its way, its answer, and what the bytes of that are.

use super::answer_buffer::AnswerBuffer;
use crate::config::Limits;
use crate::engine::fallback::{Fallback, Fallbacks};
use crate::error::{Class, Error};
use crate::server::attempt::Refused;
use crate::server::budget::make_room;
use crate::upstream::{Answer, ChosenUpstream, Client, Head, Outgoing, Upstream};
use crate::wire::Form;
use bytes::BytesMut;
use http::HeaderMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes before the first one that tells what an answer is.
const BLANK: usize = 64;

/// What the relay does next with the engine.
pub(super) enum EngineStep {
    /// It waits for the head of the answer.
    Asked(PendingAnswer),
    /// It reads the body.
    Answers(Box<Answer>, BodyKind),
    /// It has let go of it.
    Done,
}

/// An exchange with one upstream. What is not over when it is dropped is broken off.
pub(super) struct Exchange {
    pub(super) engine: EngineStep,
    /// Who is asked.
    pub(super) chosen: ChosenUpstream,
    /// Of what choice it is, where each has an exchange of its own.
    pub(super) choice: u32,
    /// What kind of failure it was, where the failure does not say it.
    pub(super) class: Option<Class>,
    /// Headers of the engine's answer that pass.
    pub(super) passed: HeaderMap,
    /// The fallbacks that gave the request its form.
    pub(super) fallbacks: Fallbacks,
    /// The engine's refusal of another form of the request.
    pub(super) refused: Option<Box<Refused>>,
    /// The form that would have mended a refusal, and cannot be made.
    pub(super) lacks: Option<Fallback>,
}

impl Exchange {
    /// A request for this choice that is on its way.
    pub(super) fn begin(
        chosen: ChosenUpstream,
        asking: PendingAnswer,
        choice: u32,
        fallbacks: Fallbacks,
    ) -> Self {
        let (engine, passed) = (EngineStep::Asked(asking), HeaderMap::new());
        Self { engine, chosen, choice, class: None, passed, fallbacks, refused: None, lacks: None }
    }

    /// The engine has been let go of.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.engine, EngineStep::Done)
    }

    /// The engine is not to go on.
    pub(super) fn let_go(&mut self) {
        let goes_on = match std::mem::replace(&mut self.engine, EngineStep::Done) {
            EngineStep::Asked(_) => true,
            EngineStep::Answers(answer, _) => !answer.is_over(),
            EngineStep::Done => false,
        };
        self.chosen.upstream().figures.cancels.add(goes_on.into());
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// A request on its way, up to the head of its answer.
pub(in crate::server) type PendingAnswer = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

/// How a body is read.
pub(super) enum BodyKind {
    /// Not known before its first byte.
    Unknown(UnreadBody),
    /// As an event stream.
    Events,
    /// As one object.
    Whole(BytesMut),
    /// As an error.
    Refusal(BytesMut),
}

/// A body of which nothing has come.
pub(super) struct UnreadBody {
    /// Bytes of white space that have come.
    blanks: usize,
    /// Its label is that of an event stream.
    says_events: bool,
}

/// Sends a request as it is.
pub(in crate::server) fn asking(client: Arc<Client>, request: Outgoing) -> PendingAnswer {
    Box::pin(async move { client.send(&request).await })
}

/// How a body behind this head is read; `None`: not at all.
pub(super) fn body_kind(head: &Head) -> Option<BodyKind> {
    match head.status {
        400..=599 => Some(BodyKind::Refusal(BytesMut::new())),
        200..=299 if head.status != 204 && !head.is_encoded() => {
            Some(BodyKind::Unknown(UnreadBody { blanks: 0, says_events: says_events(head) }))
        }
        _ => None,
    }
}

pub(super) fn says_events(head: &Head) -> bool {
    let label = head.headers.get(http::header::CONTENT_TYPE).map_or(&b""[..], http::HeaderValue::as_bytes);
    label.to_ascii_lowercase().starts_with(b"text/event-stream")
}

/// What is done with the bytes of one read.
pub(super) struct ReadOutcome<'r> {
    pub(super) buffer: &'r mut AnswerBuffer,
    pub(super) received: &'r mut usize,
    pub(super) body_kind: &'r mut BodyKind,
    pub(super) limits: &'r Limits,
    pub(super) upstream: &'r Upstream,
    /// It is too much, or neither an object nor events.
    pub(super) wrong: bool,
    /// When the rewriter got the first of them.
    pub(super) began: Option<Instant>,
}

impl ReadOutcome<'_> {
    pub(super) fn bytes(&mut self, mut bytes: &[u8]) {
        *self.received += bytes.len();
        if let BodyKind::Unknown(UnreadBody { blanks, says_events }) = self.body_kind {
            let text = bytes.trim_ascii_start();
            *blanks += bytes.len() - text.len();
            let Some(first) = text.first() else {
                self.wrong |= *blanks > BLANK;
                return;
            };
            *self.body_kind = match Form::of(*first, *says_events) {
                Some(Form::Object) => BodyKind::Whole(BytesMut::new()),
                Some(Form::Events) => BodyKind::Events,
                None => {
                    self.wrong = true;
                    return;
                }
            };
            bytes = text;
        }
        match self.body_kind {
            BodyKind::Events => {
                self.began.get_or_insert_with(Instant::now);
                self.buffer.push(bytes);
            }
            BodyKind::Whole(body) => {
                make_room(body, bytes.len(), self.limits.max_answer_bytes);
                body.extend_from_slice(bytes);
            }
            BodyKind::Refusal(body) => {
                let room = self.limits.max_error_bytes.saturating_sub(body.len());
                body.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
                return;
            }
            BodyKind::Unknown(_) => {}
        }
        self.upstream.overhear(bytes);
        self.wrong |= *self.received > self.limits.max_answer_bytes && !self.buffer.ended();
    }
}

/// Asks after a pause.
pub(super) fn after(pause: Duration, asking: PendingAnswer) -> PendingAnswer {
    if pause.is_zero() {
        return asking;
    }
    Box::pin(async move {
        tokio::time::sleep(pause).await;
        asking.await
    })
}
