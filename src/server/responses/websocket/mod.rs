//! Responses over a WebSocket: many on one connection, one at a time, each sent as messages (wire-format 4.12).
//!
//! ```text
//! GET + Upgrade ─→ Session ─→ waiting messages ─→ Turn: generate, send ─→ RecentResponses
//!                     ↑ ↓                          │
//!                    socket ←──────────────────────┘
//! ```
//!
//! A connection is served by a single task. The task reads more from the engine only when the client has taken
//! what was sent, and reads from the client at all times: a client that disconnects ends its response, one that stops reading stops
//! the engine, and its messages are read only while there is room for the answers to them.

mod incoming;
mod message;
mod recent;
mod turn;

use crate::auth::Caller;
use crate::server::admission::identify;
use crate::server::admit::auth::ClientIdentity;
use crate::server::admit::azure::RouteFamily;
use crate::server::admit::body::Body;
use crate::server::admit::browsers;
use crate::server::admitted::Admitted;
use crate::server::headers::{self, REQUEST_ID};
use crate::server::ids::IdSource;
use crate::server::net::connection_state::{ActiveRequest, Upgraded};
use crate::server::net::shutdown::Phase;
use crate::server::record::Record;
use crate::server::reply::ClientReply;
use crate::server::{App, Worker};
use crate::telemetry::RouteLabel;
use crate::wire::fault::{Failure, Fault};
use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use bytes::Bytes;
use futures::future::OptionFuture;
use futures::{Sink, Stream};
use http::header::HeaderValue;
use http::{HeaderMap, Response, request};
use incoming::IncomingMessage;
use recent::RecentResponses;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tungstenite::Error as Wrong;
use turn::{ClientMessage, MessageText, SocketTurn};

/// Client messages that may wait for the current response to end. Together they have at most the bytes of one
/// body.
const WAITING: usize = 16;
/// Queued messages to the client, and likewise pongs, at which reading from the client pauses.
const UNSENT: usize = 64;
/// Size of the read buffer in bytes. It is small because thousands of connections are open and idle.
const READ: usize = 4 << 10;
/// Bytes joined in one write.
const WRITE: usize = 16 << 10;
/// Rounds of one poll before the other tasks of the thread get their turn.
const ROUNDS: usize = 64;
/// Header and value by which clients of the service's own WebSocket mode are recognised. They always send
/// `"stream": true`, which is redundant here.
const STREAM_FLAG_CLIENT: (&str, &str) = ("openai-beta", "responses_websockets=");

/// Data that all messages of a connection share, taken from its upgrade request.
struct ConnectionContext {
    worker: Arc<Worker>,
    /// Head of the upgrade request.
    head: request::Parts,
    family: RouteFamily,
    /// Caller of the upgrade request, where keys are checked.
    caller: Option<Arc<Caller>>,
    /// Request id of the connection; each message's request has this id with a number appended.
    request_id: Arc<str>,
    /// True if the client is one that always sends `"stream": true`.
    sends_stream_flag: bool,
}

/// Request that arrived in a message, and whose client is known.
struct MessageRequest {
    app: Arc<App>,
    request_id: Arc<str>,
    ids: IdSource,
    identity: ClientIdentity,
    reply: ClientReply,
}

impl ConnectionContext {
    /// Begins a request that arrived in a message, with the credentials that opened the connection. Fails if these are no
    /// longer valid, or if the system provides no random bytes.
    fn begin(&self, request_id: Arc<str>) -> Result<MessageRequest, Failure> {
        let (app, head) = (self.worker.active_config.app(), &self.head);
        let record = Record::new(&app, RouteLabel::Responses, Arc::clone(&request_id))
            .traced(head)
            .with_request(head);
        let mut reply = ClientReply::new(record);
        let ids = IdSource::draw().map_err(|_| Fault::Proxy)?;
        let identity = identify(head, self.family, &app, &mut reply);
        let identity = identity.inspect_err(|failure| drop(reply.refuse(failure)))?;
        Ok(MessageRequest {
            app,
            request_id,
            ids,
            identity,
            reply,
        })
    }
}

/// Upgrades the connection to a WebSocket and starts its session. Fails if the dialect or the origin is not
/// allowed, or the request is not a WebSocket handshake.
pub(in crate::server) async fn upgrade(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    active_request: &ActiveRequest,
) -> Result<Response<Body>, Failure> {
    let app = admitted.app;
    headers::dialect(&admitted.head.headers)?;
    browsers::check_socket(&admitted.head.headers, &app.config.cors)?;
    let mut head = admitted.head.clone();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut head, &()).await;
    let Ok(upgrade) = upgrade else {
        return Err(Fault::UpgradeRequired.into());
    };
    let limit = app
        .config
        .limits
        .max_body_bytes
        .min(app.admit.budget.most());
    let line = ConnectionContext {
        worker: Arc::clone(admitted.worker),
        sends_stream_flag: sends_stream_flag(&head.headers),
        head,
        family: admitted.identity.family,
        caller: admitted.identity.caller.clone(),
        request_id: Arc::clone(&admitted.request_id),
    };
    reply.note(|record| {
        record.answered(101);
        record.completed();
    });
    let id = HeaderValue::from_str(&admitted.request_id);
    active_request.begin_answer();
    let upgraded = active_request.upgraded();
    let response = upgrade
        .read_buffer_size(READ)
        .write_buffer_size(WRITE)
        .max_message_size(limit)
        .max_frame_size(limit)
        .on_upgrade(move |socket| SocketSession::new(line, socket, upgraded).run());
    let (mut parts, _) = response.into_parts();
    parts.headers.extend(id.ok().map(|id| (REQUEST_ID, id)));
    Ok(Response::from_parts(parts, Body::full(Bytes::new())))
}

fn sends_stream_flag(headers: &HeaderMap) -> bool {
    let (name, word) = STREAM_FLAG_CLIENT;
    headers
        .get_all(name)
        .iter()
        .any(|value| value.to_str().is_ok_and(|value| value.contains(word)))
}

/// State of one WebSocket connection: its socket, the current response and the messages that wait in both
/// directions.
struct SocketSession {
    connection: Arc<ConnectionContext>,
    /// Number of messages that became requests so far.
    count: u64,
    waiting: VecDeque<ClientMessage>,
    turn: Option<SocketTurn>,
    memory: RecentResponses,
    incoming: IncomingMessage,
    /// True if the session waits for the client's next bytes, and not for room for its answers.
    is_reading: bool,
    /// Messages to be written to the client.
    out: VecDeque<Message>,
    /// True if written messages may not have been flushed yet.
    unflushed: bool,
    /// Pongs that the library has queued since the last complete flush.
    pongs: usize,
    socket: WebSocket,
    upgraded: Upgraded,
}

/// Event that the session reacts to next, found by one poll of socket and response.
enum NextAction {
    Message(Message),
    /// The current response has ended.
    TurnEnded,
    /// The client has disconnected.
    Disconnected,
    Wrong(Wrong),
    /// The budget has no room for the message that arrives.
    NoRoom(Failure),
    /// A timer is due or the shutdown phase has changed.
    Due,
}

impl SocketSession {
    fn new(line: ConnectionContext, socket: WebSocket, upgraded: Upgraded) -> Self {
        upgraded.begin();
        let app = line.worker.active_config.app();
        Self {
            incoming: IncomingMessage::new(&app.admit.budget, &app.config.timeouts),
            is_reading: false,
            connection: Arc::new(line),
            count: 0,
            waiting: VecDeque::new(),
            turn: None,
            memory: RecentResponses::default(),
            out: VecDeque::new(),
            unflushed: false,
            pongs: 0,
            socket,
            upgraded,
        }
    }

    fn app(&self) -> Arc<App> {
        self.connection.worker.active_config.app()
    }

    /// Serves the connection until it closes.
    async fn run(mut self) {
        let app = self.app();
        let options = app
            .pool
            .usual_options(self.connection.caller.as_ref().map(|caller| caller.index));
        let pause = Duration::from_secs(options.keepalive_seconds);
        let born = Instant::now();
        let end = born + *app.config.timeouts.socket_life;
        let mut ping = (!pause.is_zero()).then(|| born + pause);
        let mut phases = app.net.shutdown.subscribe();
        drop((app, options));
        loop {
            if let Some(code) = self.begin_next(end) {
                return self.leave(code).await;
            }
            // During a response the end of the connection's lifetime is not acted upon.
            let life = Some(end).filter(|_| self.turn.is_none());
            let wake = life
                .into_iter()
                .chain(ping)
                .chain(self.message_deadline())
                .min();
            let next = tokio::select! {
                biased;
                next = std::future::poll_fn(|cx| self.poll(cx)) => next,
                Some(()) = OptionFuture::from(wake.map(sleep_until)) => NextAction::Due,
                _ = phases.changed() => NextAction::Due,
            };
            match next {
                NextAction::Message(message) => self.take_message(message),
                NextAction::TurnEnded => self.end_turn(),
                NextAction::Disconnected => return,
                NextAction::Wrong(wrong) => match self.code_for(&wrong) {
                    Some(code) => return self.leave(code).await,
                    None => return,
                },
                NextAction::NoRoom(failure) => return self.refuse_message(&failure).await,
                NextAction::Due => {
                    let now = Instant::now();
                    if self.message_deadline().is_some()
                        && let Err(failure) = self.incoming.check(now)
                    {
                        return self.refuse_message(&failure).await;
                    }
                    if ping.is_some_and(|ping| ping <= now) {
                        ping = Some(now + pause);
                        // If the client is not reading, a ping would only lengthen the queue.
                        if self.out.is_empty() && !self.unflushed {
                            self.out.push_back(Message::Ping(Bytes::new()));
                        }
                    }
                }
            }
        }
    }

    /// Starts the next response if none is running; returns the close code if the connection has to end instead.
    fn begin_next(&mut self, end: Instant) -> Option<u16> {
        if self.turn.is_some() {
            return None;
        }
        if end <= Instant::now() {
            self.out
                .push_back(message::refusal(&Fault::SocketTooOld.into()));
            return Some(close_code::NORMAL);
        }
        let Some(said) = self.waiting.pop_front() else {
            return (self.app().phase() >= Phase::Draining).then_some(close_code::AWAY);
        };
        let id = self.next_id();
        match SocketTurn::begin(&self.connection, id, said, &self.memory) {
            Ok(turn) => self.turn = Some(turn),
            // The key has been revoked.
            Err(failure)
                if matches!(failure.fault, Fault::InvalidApiKey | Fault::MissingApiKey) =>
            {
                self.out.push_back(message::refusal(&failure));
                return Some(close_code::POLICY);
            }
            Err(_) => return Some(close_code::ERROR),
        }
        None
    }

    fn next_id(&mut self) -> Arc<str> {
        self.count += 1;
        format!("{}.{}", self.connection.request_id, self.count).into()
    }

    fn end_turn(&mut self) {
        if let Some(turn) = self.turn.take() {
            turn.end(&mut self.memory);
        }
    }

    /// Queues a message of the client, or refuses it if too many are waiting or the memory for bodies is taken.
    fn take_message(&mut self, message: Message) {
        let received = self.upgraded.received();
        let said = match message {
            Message::Text(text) => {
                let text = Bytes::from(text);
                let share = self.incoming.complete(received, text.len());
                share.map(|share| ClientMessage::Text(MessageText { text, share }))
            }
            Message::Binary(_) => self
                .incoming
                .complete(received, 0)
                .map(|_| ClientMessage::Binary),
            Message::Ping(payload) => {
                self.incoming.skip_control(payload.len());
                // The library has queued a pong.
                self.pongs += 1;
                self.unflushed = true;
                return;
            }
            Message::Pong(payload) => return self.incoming.skip_control(payload.len()),
            Message::Close(_) => return,
        };
        let queued = said.and_then(|said| {
            let bytes = self.waiting.iter().map(ClientMessage::len).sum::<usize>() + said.len();
            let room = self.app().config.limits.max_body_bytes;
            if self.waiting.len() < WAITING && (bytes <= room || self.waiting.is_empty()) {
                self.waiting.push_back(said);
                return Ok(());
            }
            let message = format!(
                "At most {WAITING} messages of {room} bytes in all may wait on a connection."
            );
            Err(Failure::from(Fault::RateLimit).with_message(message))
        });
        if let Err(failure) = queued {
            self.refuse(&failure);
        }
    }

    /// Answers a message with an error. The refusal counts as a request.
    fn refuse(&mut self, failure: &Failure) {
        let id = self.next_id();
        if let Ok(mut request) = self.connection.begin(id) {
            request.reply.refuse(failure);
        }
        self.out.push_back(message::refusal(failure));
    }

    /// Refuses a message that has arrived in part, and closes the connection: the rest of the message would still come.
    async fn refuse_message(mut self, failure: &Failure) {
        self.refuse(failure);
        self.leave(close_code::AGAIN).await;
    }

    /// Returns the time at which the message that is arriving is too slow; `None` while samewire does not read it.
    fn message_deadline(&self) -> Option<Instant> {
        self.incoming.deadline().filter(|_| self.is_reading)
    }

    /// Returns the close code for an error of the client; `None` if the connection is broken already.
    fn code_for(&mut self, wrong: &Wrong) -> Option<u16> {
        use tungstenite::error::ProtocolError::ResetWithoutClosingHandshake;
        Some(match wrong {
            Wrong::Capacity(_) => {
                self.refuse(&Fault::TooLarge.into());
                close_code::SIZE
            }
            Wrong::Utf8(_) => close_code::INVALID,
            Wrong::Protocol(ResetWithoutClosingHandshake) => return None,
            Wrong::Protocol(_) => close_code::PROTOCOL,
            _ => return None,
        })
    }

    /// Sends the queued messages, then a close frame with this code.
    async fn leave(mut self, code: u16) {
        // The rest of the engine's answer is not needed.
        self.turn = None;
        self.out.push_back(Message::Close(Some(CloseFrame {
            code,
            reason: Utf8Bytes::default(),
        })));
        if std::future::poll_fn(|cx| self.poll_write(cx)).await.is_ok() {
            self.upgraded.leave();
            let _ = std::future::poll_fn(|cx| Pin::new(&mut self.socket).poll_flush(cx)).await;
        }
    }

    /// Writes, reads and advances the response. Ready when an event needs a reaction.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<NextAction> {
        for _ in 0..ROUNDS {
            let written = self.poll_write(cx);
            if let Poll::Ready(Err(_)) = written {
                return Poll::Ready(NextAction::Disconnected);
            }
            if written.is_ready() {
                self.pongs = 0;
            }
            self.is_reading = false;
            // Each message read may need an answer, if only a pong (faults C44).
            if self.out.len() < UNSENT && self.pongs < UNSENT {
                match Pin::new(&mut self.socket).poll_next(cx) {
                    Poll::Ready(Some(Ok(message))) => {
                        return Poll::Ready(NextAction::Message(message));
                    }
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(next_action(error)),
                    Poll::Ready(None) => return Poll::Ready(NextAction::Disconnected),
                    Poll::Pending => {
                        self.is_reading = true;
                        if let Err(failure) = self.incoming.note_received(self.upgraded.received())
                        {
                            return Poll::Ready(NextAction::NoRoom(failure));
                        }
                    }
                }
            }
            let Some(turn) = self.turn.as_mut().filter(|_| written.is_ready()) else {
                return Poll::Pending;
            };
            if !ready!(turn.poll(cx, &mut self.out)) {
                return Poll::Ready(NextAction::TurnEnded);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes and flushes the queued messages. Ready when all have been flushed; fails if the connection is
    /// broken.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), axum::Error>> {
        let mut socket = Pin::new(&mut self.socket);
        while !self.out.is_empty() {
            ready!(socket.as_mut().poll_ready(cx))?;
            if let Some(message) = self.out.pop_front() {
                self.unflushed = true;
                socket.as_mut().start_send(message)?;
            }
        }
        if self.unflushed {
            ready!(socket.poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

fn next_action(error: axum::Error) -> NextAction {
    error
        .into_inner()
        .downcast()
        .map_or(NextAction::Disconnected, |wrong| NextAction::Wrong(*wrong))
}
