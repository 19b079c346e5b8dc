//! Exchange with an engine: the pending request, its answer and the form in which its body is read.

use super::answer_buffer::AnswerBuffer;
use super::attempt::FirstRefusal;
use super::clock::RelayTimers;
use crate::config::Limits;
use crate::engine::fallback::{Fallback, Fallbacks};
use crate::error::RetryClass;
use crate::server::admit::budget::make_room;
use crate::server::net::pending_answer::PendingAnswer;
use crate::upstream::{Answer, ChosenUpstream, ResponseHead, Upstream};
use crate::wire::fault::Unusable;
use crate::wire::{AnswerReader, BodyForm};
use bytes::BytesMut;
use http::HeaderMap;
use std::time::Duration;
use tokio::time::Instant;

/// Limit for the white space before the first significant byte of a body, in bytes.
const BLANK: usize = 64;

/// State of an exchange: what the relay does next with the engine.
pub(super) enum EngineStep {
    /// Waiting for the head of the answer.
    Pending(PendingAnswer),
    /// Reading the body.
    Reading(Box<Answer>, BodyKind),
    /// Finished or cancelled.
    Done,
}

/// Exchange with one upstream. Dropping it before its end cancels the engine's work.
pub(super) struct EngineExchange {
    pub(super) step: EngineStep,
    /// Upstream of the request.
    pub(super) chosen: ChosenUpstream,
    /// True once its outcome has been logged and reported, or if it was never sent.
    pub(super) is_reported: bool,
    /// Class of a failure, where the failure itself does not tell.
    pub(super) class: Option<RetryClass>,
    /// Headers of the engine's answer that are passed to the client.
    pub(super) passed: HeaderMap,
    /// Fallbacks that shaped the request.
    pub(super) fallbacks: Fallbacks,
    /// First refusal by the engine, if this request repeats a refused one in another form.
    pub(super) refused: Option<Box<FirstRefusal>>,
    /// Fallback that the refusal calls for but the request cannot take.
    pub(super) missing_fallback: Option<Fallback>,
}

impl EngineExchange {
    /// Begins an exchange with a pending request.
    pub(super) fn begin(
        chosen: ChosenUpstream,
        answer: PendingAnswer,
        fallbacks: Fallbacks,
    ) -> Self {
        let (step, passed) = (EngineStep::Pending(answer), HeaderMap::new());
        Self {
            step,
            chosen,
            is_reported: false,
            class: None,
            passed,
            fallbacks,
            refused: None,
            missing_fallback: None,
        }
    }

    /// Withdraws a request that has not been sent.
    pub(super) fn withdraw(&mut self) {
        (self.step, self.is_reported) = (EngineStep::Done, true);
    }

    /// Returns true if the exchange is finished or cancelled.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.step, EngineStep::Done)
    }

    /// Notes that the engine has accepted the request. If it had refused another form, it is sent this one from
    /// now on.
    pub(super) fn note_accepted_form(&mut self) {
        if let Some(refused) = self.refused.take() {
            self.chosen
                .upstream()
                .answers_to(&refused.model, self.fallbacks);
        }
    }

    /// Ends the exchange, and counts a cancellation if the engine was still at work.
    pub(super) fn cancel(&mut self) {
        let is_working = match std::mem::replace(&mut self.step, EngineStep::Done) {
            EngineStep::Pending(_) => true,
            EngineStep::Reading(answer, _) => !answer.has_ended(),
            EngineStep::Done => false,
        };
        self.chosen
            .upstream()
            .figures
            .cancels
            .add(is_working.into());
    }
}

impl Drop for EngineExchange {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Form in which a body is read, decided by the status, the content type and the first significant byte.
pub(super) enum BodyKind {
    /// Unknown until the first significant byte.
    Unknown(UnreadBody),
    /// An event stream.
    Events,
    /// A single JSON object, collected until its end.
    Whole(BytesMut),
    /// An error, collected up to `max_error_bytes`.
    Error(BytesMut),
}

/// Body whose form is not known yet, because no significant byte has arrived.
pub(super) struct UnreadBody {
    /// Bytes of white space so far.
    blanks: usize,
    /// True if the content type is that of an event stream.
    says_events: bool,
}

/// Returns the form in which the body after this head is read.
///
/// # Errors
/// The answer cannot be used, for this reason.
pub(super) fn body_kind(head: &ResponseHead) -> Result<BodyKind, Unusable> {
    match head.status {
        400..=599 => Ok(BodyKind::Error(BytesMut::new())),
        200..=299 if head.status != 204 => match head.is_encoded() {
            true => Err(Unusable::Compressed),
            false => Ok(BodyKind::Unknown(UnreadBody {
                blanks: 0,
                says_events: says_events(head),
            })),
        },
        _ => Err(Unusable::Status),
    }
}

pub(super) fn says_events(head: &ResponseHead) -> bool {
    const EVENTS: &[u8] = b"text/event-stream";
    let label = head
        .headers
        .get(http::header::CONTENT_TYPE)
        .map_or(&b""[..], http::HeaderValue::as_bytes);
    label
        .get(..EVENTS.len())
        .is_some_and(|label| label.eq_ignore_ascii_case(EVENTS))
}

/// Receiver for the bytes of one read: passes them to the buffer according to the form of the body, and notes the
/// outcome.
pub(super) struct BodyReader<'r> {
    pub(super) buffer: &'r mut AnswerBuffer,
    pub(super) reader: &'r mut AnswerReader,
    pub(super) received: &'r mut usize,
    pub(super) body_kind: &'r mut BodyKind,
    pub(super) limits: &'r Limits,
    pub(super) upstream: &'r Upstream,
    pub(super) clock: &'r mut RelayTimers,
    /// Reason why the body cannot be used, once there is one.
    pub(super) wrong: Option<Unusable>,
    /// Time at which the rewriter received its first bytes.
    pub(super) began: Option<Instant>,
}

impl BodyReader<'_> {
    /// Receives the next bytes; one read may have several chunks. Bytes after wrong bytes are discarded.
    pub(super) fn bytes(&mut self, mut bytes: &[u8]) {
        if self.wrong.is_some() {
            return;
        }
        *self.received += bytes.len();
        if let BodyKind::Unknown(UnreadBody {
            blanks,
            says_events,
        }) = self.body_kind
        {
            let text = bytes.trim_ascii_start();
            *blanks += bytes.len() - text.len();
            if *blanks > BLANK {
                self.wrong = Some(Unusable::Foreign);
                return;
            }
            let Some(first) = text.first() else { return };
            *self.body_kind = match BodyForm::of(*first, *says_events) {
                Some(BodyForm::Object) => BodyKind::Whole(BytesMut::new()),
                Some(BodyForm::Events) => BodyKind::Events,
                None => {
                    self.wrong = Some(Unusable::Foreign);
                    return;
                }
            };
            bytes = text;
        }
        match self.body_kind {
            BodyKind::Events => {
                if self.began.is_none() {
                    self.began = Some(self.clock.update());
                    self.buffer.writer.clock(self.clock.unix_seconds());
                }
                self.buffer.push(self.reader, bytes);
            }
            BodyKind::Whole(body) => {
                make_room(body, bytes.len(), self.limits.max_answer_bytes);
                body.extend_from_slice(bytes);
            }
            BodyKind::Error(body) => {
                let room = self.limits.max_error_bytes.saturating_sub(body.len());
                body.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
                return;
            }
            BodyKind::Unknown(_) => {}
        }
        self.upstream.scan_answer(bytes);
        let is_too_large =
            *self.received > self.limits.max_answer_bytes && !self.buffer.ended(self.reader);
        self.wrong = is_too_large.then_some(Unusable::TooLarge);
    }
}

/// Returns a future that sends the request after a pause, once it is polled.
pub(super) fn prepare_after(pause: Duration, answer: PendingAnswer) -> PendingAnswer {
    if pause.is_zero() {
        return answer;
    }
    Box::pin(async move {
        tokio::time::sleep(pause).await;
        answer.await
    })
}
