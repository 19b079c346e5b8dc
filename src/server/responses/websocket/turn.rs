//! Turn on a WebSocket connection: a response generated as over HTTP and sent as messages.

use super::super::history::{HISTORY_BYTES, LoadedHistory, load_history, refresh};
use super::super::{ParsedRequest, RememberedConversation, generate, parse_request};
use super::message;
use super::recent::{ConversationThread, RecentResponses};
use super::{ConnectionContext, MessageRequest};
use crate::capture::Recording;
use crate::plan;
use crate::request::invalid;
use crate::server::App;
use crate::server::admission::{check_room, count};
use crate::server::admit::body::Body;
use crate::server::admit::budget::BudgetShare;
use crate::server::admit::quota::QuotaState;
use crate::server::admitted::Admitted;
use crate::server::net::connection_state::{ActiveRequest, ConnectionState};
use crate::server::relay::Relay;
use crate::server::reply::ClientReply;
use crate::server::request_body::RequestBody;
use crate::server::storage::persist::{items, stored_output};
use crate::store::{Key, StoreError};
use crate::wire::OutputBuffer;
use crate::wire::encode::{EventFraming, Finished, Response as Encoder};
use crate::wire::fault::{Failure, Fault};
use axum::extract::ws::Message;
use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Collected};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Message of the client that waits for its turn. Binary messages are kept in order too, and answered with an
/// error.
pub(super) enum ClientMessage {
    Text(MessageText),
    Binary,
}

/// Text of a message, with its share of the memory for bodies.
pub(super) struct MessageText {
    pub(super) text: Bytes,
    pub(super) share: BudgetShare,
}

impl ClientMessage {
    /// Returns the size of the message in bytes, for the limit on waiting messages.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(message) => message.text.len(),
            Self::Binary => 0,
        }
    }
}

/// Response that is being generated and sent on a connection.
pub(super) struct SocketTurn {
    step: TurnStep,
    /// Id of the response that it continues.
    previous: Option<String>,
    /// Input and earlier conversation, to be remembered with the output at the end.
    record: Option<TurnRecord>,
    /// The response, if it has ended without an error.
    ended: Option<Finished>,
    /// Recording of the exchange, if it is captured.
    recording: Option<Arc<Recording>>,
}

/// Step of a turn: the response is awaited, or its body is sent.
enum TurnStep {
    /// The response has not begun yet.
    Preparing(Pin<Box<dyn Future<Output = TurnAnswer> + Send>>),
    /// The events of the response are being sent.
    Relaying(Box<Relay>),
    /// Everything has been sent.
    Done,
}

/// Response that has begun or needs no engine, or an error.
enum TurnAnswer {
    Begun {
        relay: Box<Relay>,
        record: TurnRecord,
    },
    Written {
        events: Bytes,
        ended: Finished,
        record: TurnRecord,
    },
    Refused(Option<Message>),
}

/// Input of a response and the conversation before it.
struct TurnRecord {
    thread: ConversationThread,
    input: Vec<Bytes>,
}

impl SocketTurn {
    /// Starts the response to a message; an invalid message yields an error as its response. Fails if the caller's
    /// key is no longer valid.
    pub(super) fn begin(
        line: &Arc<ConnectionContext>,
        request_id: Arc<str>,
        said: ClientMessage,
        memory: &RecentResponses,
    ) -> Result<Self, Failure> {
        let begun = line.begin(request_id)?;
        let (previous, message) = match said {
            ClientMessage::Text(message) => {
                let (previous, generates) = message::read(&message.text, line.sends_stream_flag);
                (previous, generates.map(|generates| (generates, message)))
            }
            ClientMessage::Binary => {
                let failure =
                    Failure::from(Fault::InvalidJson).with_message("A message must be text.");
                (None, Err(failure))
            }
        };
        let thread = previous.as_deref().and_then(|id| memory.thread(id));
        let recording = begun.reply.recording.clone();
        if let Some(recording) = &recording {
            recording.answer_head("HTTP/1.1 101 Switching Protocols", &HeaderMap::new());
        }
        let making = make(begun, Arc::clone(line), message, thread);
        Ok(Self {
            step: TurnStep::Preparing(Box::pin(making)),
            previous,
            record: None,
            ended: None,
            recording,
        })
    }

    /// Appends messages that are ready to `out`; ready with false at the end of the response.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, out: &mut VecDeque<Message>) -> Poll<bool> {
        let before = out.len();
        let polled = self.poll_step(cx, out);
        if let Some(recording) = &self.recording {
            for message in out.iter().skip(before) {
                // One message a line: that is how they are kept.
                message
                    .to_text()
                    .into_iter()
                    .for_each(|text| recording.answer_body(format!("{text}\n").as_bytes()));
            }
        }
        polled
    }

    fn poll_step(&mut self, cx: &mut Context<'_>, out: &mut VecDeque<Message>) -> Poll<bool> {
        loop {
            match &mut self.step {
                TurnStep::Preparing(making) => match ready!(making.as_mut().poll(cx)) {
                    TurnAnswer::Begun { relay, record } => {
                        self.record = Some(record);
                        self.step = TurnStep::Relaying(relay);
                    }
                    TurnAnswer::Written {
                        events,
                        ended,
                        record,
                    } => {
                        (self.record, self.ended) = (Some(record), Some(ended));
                        self.step = TurnStep::Done;
                        out.extend(message::messages(&events));
                    }
                    TurnAnswer::Refused(message) => {
                        self.step = TurnStep::Done;
                        out.extend(message);
                    }
                },
                TurnStep::Relaying(relay) => match bytes_of(ready!(relay.poll_frame(cx))) {
                    Some(lines) => out.extend(message::messages(&lines)),
                    None => {
                        self.ended = relay
                            .finished()
                            .filter(|finished| finished.status != "failed");
                        self.step = TurnStep::Done;
                    }
                },
                TurnStep::Done => return Poll::Ready(false),
            }
            if !out.is_empty() {
                return Poll::Ready(true);
            }
        }
    }

    /// Ends the response and updates the connection's memory. After a failure the response that it continued is
    /// forgotten as well: the client must start anew, or the store must have it.
    pub(super) fn end(self, memory: &mut RecentResponses) {
        let Self {
            previous,
            record,
            ended,
            ..
        } = self;
        match (ended, record) {
            (Some(ended), Some(TurnRecord { thread, input })) => {
                let mut turn = items(input, &ended.id);
                turn.extend(stored_output(&ended));
                memory.keep(ended.id, thread.with(turn, ended.stored));
            }
            _ => {
                if let Some(previous) = previous {
                    memory.forget(&previous);
                }
            }
        }
    }
}

fn bytes_of<E>(frame: Option<Result<Frame<Bytes>, E>>) -> Option<Bytes> {
    frame?.ok()?.into_data().ok()
}

async fn make(
    begun: MessageRequest,
    line: Arc<ConnectionContext>,
    message: Result<(bool, MessageText), Failure>,
    thread: Option<ConversationThread>,
) -> TurnAnswer {
    let MessageRequest {
        app,
        request_id,
        ids,
        identity,
        mut reply,
    } = begun;
    let admitted = Admitted {
        app: &app,
        worker: &line.worker,
        head: &line.head,
        request_id,
        ids,
        identity,
        by_socket: true,
    };
    let result = match message {
        Ok((generate, message)) => {
            Box::pin(begin_response(
                &admitted, &mut reply, message, generate, thread,
            ))
            .await
        }
        Err(failure) => Err(failure),
    };
    match result {
        Ok(answer) => answer,
        Err(failure) => refused(reply.refuse(&failure)).await,
    }
}

/// Returns the answer with an error, which has the status that it would have over HTTP.
async fn refused(response: Response<Body>) -> TurnAnswer {
    let (head, body) = response.into_parts();
    let body = body
        .collect()
        .await
        .map(Collected::to_bytes)
        .unwrap_or_default();
    TurnAnswer::Refused((!body.is_empty()).then(|| message::error(head.status.as_u16(), &body)))
}

async fn begin_response(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    message: MessageText,
    generates: bool,
    thread: Option<ConversationThread>,
) -> Result<TurnAnswer, Failure> {
    check_room(admitted.app)?;
    count(admitted, reply).await?;
    // An upgraded connection is busy anyway: this request needs no further connection.
    let mut body = RequestBody::new(None, ActiveRequest::begin(&ConnectionState::default()));
    let bytes = body.hold(message.text, message.share);
    reply.note(|record| record.has_read(&bytes));
    let mut parsed = parse_request(admitted, reply, &mut body, bytes, None).await?;
    parsed.request.stream = true;
    parsed.request.remove_unknown("generate");
    if let Some(thread) = &thread {
        let stored = thread.stored && still_stored(admitted.app, &parsed).await;
        parsed.remembered = Some(RememberedConversation {
            items: thread.items(),
            stored,
        });
    }
    let history = load_history(admitted, &mut parsed).await?;
    let thread =
        thread.unwrap_or_else(|| ConversationThread::default().with(history.history.clone(), true));
    let record = TurnRecord {
        thread,
        input: history.shared(&parsed.request, false).collect(),
    };
    if !generates {
        return answer_without_engine(admitted, reply, parsed, &history, record);
    }
    let mut begun = None;
    let stream = |relay| {
        begun = Some(relay);
        Body::full(Bytes::new())
    };
    // Boxed because the future is large.
    let response = Box::pin(generate(admitted, reply, parsed, history, stream)).await?;
    Ok(match begun {
        Some(relay) => TurnAnswer::Begun { relay, record },
        None => refused(response).await,
    })
}

/// Returns true if the store still has the continued response: only then can a new record refer to it.
async fn still_stored(app: &App, parsed: &ParsedRequest) -> bool {
    let store_handle = &app.store_handle;
    let store = store_handle.store().filter(|_| parsed.request.store);
    let Some((store, id)) = store.zip(parsed.request.previous_response_id.as_deref()) else {
        return false;
    };
    let key = Key {
        tenant: Arc::clone(&parsed.tenant),
        id: id.into(),
    };
    let there = !matches!(
        store
            .chain(key.clone(), HISTORY_BYTES, store_handle.now())
            .await,
        Err(StoreError::NotFound)
    );
    if there {
        refresh(app, &store, key);
    }
    there
}

/// Answers without an engine: the input is remembered for a later message, and an empty response is returned.
/// The response is never stored. Fails if the request names a conversation or its input is invalid.
fn answer_without_engine(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    parsed: ParsedRequest,
    history: &LoadedHistory,
    record: TurnRecord,
) -> Result<TurnAnswer, Failure> {
    let ParsedRequest {
        mut request,
        route,
        tenant,
        ..
    } = parsed;
    if request.conversation.is_some() {
        return Err(invalid(
            "conversation",
            "nothing is added to it without a response",
        ));
    }
    request.disable_store()?;
    let app = admitted.app;
    // Check the input now, so that its errors are reported with this message.
    history.body(&request, &tenant, &app.store_handle.keys(), &route, 0)?;
    let (_, _, mut form) = plan::response(&request, &route);
    form.form.framing = EventFraming::Lines;
    let mut out = OutputBuffer::default();
    let mut encoder = Encoder::new(form, &admitted.ids.stamp());
    if let Some(limits) = reply.quota.as_ref().and_then(QuotaState::limits) {
        encoder.limits(limits);
    }
    encoder.write_empty(&mut out);
    reply.label(&request.model);
    reply.note(|record| {
        record.answered(200);
        record.completed();
        record.bytes = out.len();
    });
    let ended = encoder.finished().ok_or(Fault::Proxy)?;
    Ok(TurnAnswer::Written {
        events: out.join(),
        ended,
        record,
    })
}
