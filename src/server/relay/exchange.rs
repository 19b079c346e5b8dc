//! One exchange with an engine: the request on its way, its answer, and what the bytes of that are.

use super::pen::Pen;
use crate::config::Limits;
use crate::engine::fallback::{Fallback, Fallbacks};
use crate::error::{Class, Error};
use crate::server::attempt::Refused;
use crate::server::budget::make_room;
use crate::upstream::{Answer, Chosen, Client, Head, Outgoing, Upstream};
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
pub(super) enum Engine {
    /// It waits for the head of the answer.
    Asked(Asking),
    /// It reads the body.
    Answers(Box<Answer>, Manner),
    /// It has let go of it.
    Done,
}

/// An exchange with one upstream. What is not over when it is dropped is broken off.
pub(super) struct Exchange {
    pub(super) engine: Engine,
    /// Who is asked.
    pub(super) chosen: Chosen,
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
    pub(super) fn begin(chosen: Chosen, asking: Asking, choice: u32, fallbacks: Fallbacks) -> Self {
        let (engine, passed) = (Engine::Asked(asking), HeaderMap::new());
        Self { engine, chosen, choice, class: None, passed, fallbacks, refused: None, lacks: None }
    }

    /// The engine has been let go of.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.engine, Engine::Done)
    }

    /// The engine is not to go on.
    pub(super) fn let_go(&mut self) {
        let goes_on = match std::mem::replace(&mut self.engine, Engine::Done) {
            Engine::Asked(_) => true,
            Engine::Answers(answer, _) => !answer.is_over(),
            Engine::Done => false,
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
pub(in crate::server) type Asking = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

/// How a body is read.
pub(super) enum Manner {
    /// Not known before its first byte.
    Unknown(Unseen),
    /// As an event stream.
    Events,
    /// As one object.
    Whole(BytesMut),
    /// As an error.
    Refusal(BytesMut),
}

/// A body of which nothing has come.
pub(super) struct Unseen {
    /// Bytes of white space that have come.
    blanks: usize,
    /// Its label is that of an event stream.
    says_events: bool,
}

/// Sends a request as it is.
pub(in crate::server) fn asking(client: Arc<Client>, request: Outgoing) -> Asking {
    Box::pin(async move { client.send(&request).await })
}

/// How a body behind this head is read; `None`: not at all.
pub(super) fn manner(head: &Head) -> Option<Manner> {
    match head.status {
        400..=599 => Some(Manner::Refusal(BytesMut::new())),
        200..=299 if head.status != 204 && !head.is_encoded() => {
            Some(Manner::Unknown(Unseen { blanks: 0, says_events: says_events(head) }))
        }
        _ => None,
    }
}

pub(super) fn says_events(head: &Head) -> bool {
    let label = head.headers.get(http::header::CONTENT_TYPE).map_or(&b""[..], http::HeaderValue::as_bytes);
    label.to_ascii_lowercase().starts_with(b"text/event-stream")
}

/// What is done with the bytes of one read.
pub(super) struct Reading<'r> {
    pub(super) pen: &'r mut Pen,
    pub(super) received: &'r mut usize,
    pub(super) manner: &'r mut Manner,
    pub(super) limits: &'r Limits,
    pub(super) upstream: &'r Upstream,
    /// It is too much, or neither an object nor events.
    pub(super) wrong: bool,
    /// When the rewriter got the first of them.
    pub(super) began: Option<Instant>,
}

impl Reading<'_> {
    pub(super) fn bytes(&mut self, mut bytes: &[u8]) {
        *self.received += bytes.len();
        if let Manner::Unknown(Unseen { blanks, says_events }) = self.manner {
            let text = bytes.trim_ascii_start();
            *blanks += bytes.len() - text.len();
            let Some(first) = text.first() else {
                self.wrong |= *blanks > BLANK;
                return;
            };
            *self.manner = match Form::of(*first, *says_events) {
                Some(Form::Object) => Manner::Whole(BytesMut::new()),
                Some(Form::Events) => Manner::Events,
                None => {
                    self.wrong = true;
                    return;
                }
            };
            bytes = text;
        }
        match self.manner {
            Manner::Events => {
                self.began.get_or_insert_with(Instant::now);
                self.pen.push(bytes);
            }
            Manner::Whole(body) => {
                make_room(body, bytes.len(), self.limits.max_answer_bytes);
                body.extend_from_slice(bytes);
            }
            Manner::Refusal(body) => {
                let room = self.limits.max_error_bytes.saturating_sub(body.len());
                body.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
                return;
            }
            Manner::Unknown(_) => {}
        }
        self.upstream.overhear(bytes);
        self.wrong |= *self.received > self.limits.max_answer_bytes && !self.pen.ended();
    }
}

/// Asks after a pause.
pub(super) fn after(pause: Duration, asking: Asking) -> Asking {
    if pause.is_zero() {
        return asking;
    }
    Box::pin(async move {
        tokio::time::sleep(pause).await;
        asking.await
    })
}
