//! Responses over a WebSocket: many on one connection, one at a time, each told in messages (wire-format 4.12).
//!
//! ```text
//! GET + Upgrade ─→ Session ─→ waiting messages ─→ Turn: make it, tell it ─→ Memory
//!                     ↑ ↓                          │
//!                    socket ←──────────────────────┘
//! ```
//!
//! One task has all of a connection. It asks the engine for more only when the client has taken what there was, and
//! reads the client all the while: a client that leaves ends its response, one that stops reading stops the engine, and is
//! read no further than there is room for answers to what it sends.

mod message;
mod recent;
mod turn;

use super::dialect;
use crate::auth::Caller;
use crate::server::azure::RouteFamily;
use crate::server::body::Body;
use crate::server::browsers;
use crate::server::connection::Upgraded;
use crate::server::headers::REQUEST_ID;
use crate::server::routes::RequestContext;
use crate::server::{App, Phase, Worker};
use crate::wire::fault::{Failure, Fault};
use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use bytes::Bytes;
use futures::{Sink, Stream};
use http::header::HeaderValue;
use http::{HeaderMap, Response, request};
use recent::RecentResponses;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tungstenite::Error as Wrong;
use turn::{ClientMessages, Turn};

/// Messages that wait for their turn. All of them together have at most the bytes that one may have.
const WAITING: usize = 16;
/// Messages to the client, and pongs beside them, that may wait before the client is read no further.
const UNSENT: usize = 64;
/// Bytes read at once. Thousands of connections are open and say nothing.
const READ: usize = 4 << 10;
/// Bytes joined in one write.
const WRITE: usize = 16 << 10;
/// Rounds before other tasks of the thread have theirs.
const ROUNDS: usize = 64;
/// What a client sends that says so much more than it needs: the service's own mode, by its first name.
const HABIT: (&str, &str) = ("openai-beta", "responses_websockets=");

/// What all messages of a connection have in common.
struct ConnectionContext {
    worker: Arc<Worker>,
    /// The request that asked for the connection.
    head: request::Parts,
    family: RouteFamily,
    /// Who asked for it.
    caller: Option<Arc<Caller>>,
    /// Its id; what comes by messages has this id and a number.
    request_id: String,
    /// The client says `"stream": true`.
    has_habit: bool,
}

impl ConnectionContext {
    /// A request that has come by it, under this id.
    fn context(&self, id: String) -> Result<RequestContext, Failure> {
        RequestContext::of_message(&self.worker, self.family, (&self.head, id))
    }
}

impl RequestContext {
    /// Makes a WebSocket of the connection.
    pub(in crate::server) async fn upgrade(
        &mut self,
        head: &request::Parts,
    ) -> Result<Response<Body>, Failure> {
        dialect(&head.headers)?;
        browsers::check_socket(&head.headers, &self.app.config.cors)?;
        let mut head = head.clone();
        let upgrade = WebSocketUpgrade::from_request_parts(&mut head, &()).await;
        let Ok(upgrade) = upgrade else { return Err(Fault::UpgradeRequired.into()) };
        let Some(record) = &mut self.record else { return Err(Fault::Proxy.into()) };
        let limit = self.app.config.limits.max_body_bytes;
        let line = ConnectionContext {
            worker: Arc::clone(&self.worker),
            has_habit: has_habit(&head.headers),
            head,
            family: self.family,
            caller: self.caller.clone(),
            request_id: record.request_id.clone(),
        };
        record.answered(101);
        record.completed();
        let id = HeaderValue::from_str(&record.request_id);
        self.busy.has_read();
        let upgraded = self.busy.upgraded();
        let response = upgrade
            .read_buffer_size(READ)
            .write_buffer_size(WRITE)
            .max_message_size(limit)
            .max_frame_size(limit)
            .on_upgrade(move |socket| Session::new(line, socket, upgraded).run());
        let (mut parts, _) = response.into_parts();
        parts.headers.extend(id.ok().map(|id| (REQUEST_ID, id)));
        Ok(Response::from_parts(parts, Body::full(Bytes::new())))
    }
}

fn has_habit(headers: &HeaderMap) -> bool {
    let (name, word) = HABIT;
    headers.get_all(name).iter().any(|value| value.to_str().is_ok_and(|value| value.contains(word)))
}

/// One connection.
struct Session {
    line: Arc<ConnectionContext>,
    /// Messages that were read as requests so far.
    count: u64,
    waiting: VecDeque<ClientMessages>,
    turn: Option<Turn>,
    memory: RecentResponses,
    /// What is to be sent.
    out: VecDeque<Message>,
    /// Some of what was sent may not be with the client yet.
    unflushed: bool,
    /// Pongs that the library has made since all was with the client.
    pongs: usize,
    socket: WebSocket,
    upgraded: Upgraded,
}

/// What happens next.
enum NextAction {
    Said(Message),
    /// The response is over.
    Over,
    /// The client has left.
    Gone,
    Wrong(Wrong),
    /// It is time for something.
    Due,
}

impl Session {
    fn new(line: ConnectionContext, socket: WebSocket, upgraded: Upgraded) -> Self {
        upgraded.begin();
        Self {
            line: Arc::new(line),
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
        self.line.worker.present.app()
    }

    /// Serves the connection to its end.
    async fn run(mut self) {
        let app = self.app();
        let options = app.pool.usual_options(self.line.caller.as_ref().map(|caller| caller.place));
        let pause = Duration::from_secs(options.keepalive_seconds);
        let born = Instant::now();
        let end = born + *app.config.timeouts.socket_life;
        let mut ping = (!pause.is_zero()).then(|| born + pause);
        let mut phases = app.shutdown.subscribe();
        drop((app, options));
        loop {
            if let Some(code) = self.begin_next(end) {
                return self.leave(code).await;
            }
            // While there is a response, its end is waited for, and not the connection's.
            let wake = Some(end).filter(|_| self.turn.is_none()).into_iter().chain(ping).min();
            let due = async {
                match wake {
                    Some(wake) => sleep_until(wake).await,
                    None => std::future::pending().await,
                }
            };
            let next = tokio::select! {
                biased;
                next = std::future::poll_fn(|cx| self.poll(cx)) => next,
                () = due => NextAction::Due,
                _ = phases.changed() => NextAction::Due,
            };
            match next {
                NextAction::Said(message) => self.hear(message),
                NextAction::Over => self.end_turn(),
                NextAction::Gone => return,
                NextAction::Wrong(wrong) => match self.code_for(&wrong) {
                    Some(code) => return self.leave(code).await,
                    None => return,
                },
                NextAction::Due => {
                    let now = Instant::now();
                    if ping.is_some_and(|ping| ping <= now) {
                        ping = Some(now + pause);
                        // Behind what the client does not take, it would only be one message more.
                        if self.out.is_empty() && !self.unflushed {
                            self.out.push_back(Message::Ping(Bytes::new()));
                        }
                    }
                }
            }
        }
    }

    /// Between two responses: begins the next, or says with which code the connection is to end.
    fn begin_next(&mut self, end: Instant) -> Option<u16> {
        if self.turn.is_some() {
            return None;
        }
        if end <= Instant::now() {
            self.out.push_back(message::refusal(&Fault::SocketTooOld.into()));
            return Some(close_code::NORMAL);
        }
        let Some(said) = self.waiting.pop_front() else {
            return (self.app().phase() >= Phase::Draining).then_some(close_code::AWAY);
        };
        let id = self.next_id();
        match Turn::begin(&self.line, id, said, &self.memory) {
            Ok(turn) => self.turn = Some(turn),
            // Its key opens nothing any more.
            Err(failure) if matches!(failure.fault, Fault::InvalidApiKey | Fault::MissingApiKey) => {
                self.out.push_back(message::refusal(&failure));
                return Some(close_code::POLICY);
            }
            Err(_) => return Some(close_code::ERROR),
        }
        None
    }

    fn next_id(&mut self) -> String {
        self.count += 1;
        format!("{}.{}", self.line.request_id, self.count)
    }

    fn end_turn(&mut self) {
        if let Some(turn) = self.turn.take() {
            turn.end(&mut self.memory);
        }
    }

    /// Takes a message of the client.
    fn hear(&mut self, message: Message) {
        let said = match message {
            Message::Text(text) => ClientMessages::Text(text.into()),
            Message::Binary(_) => ClientMessages::Binary,
            // The library has put a pong behind what it has to write.
            Message::Ping(_) => {
                self.pongs += 1;
                self.unflushed = true;
                return;
            }
            Message::Pong(_) | Message::Close(_) => return,
        };
        let bytes = self.waiting.iter().map(ClientMessages::len).sum::<usize>() + said.len();
        let room = self.app().config.limits.max_body_bytes;
        if self.waiting.len() < WAITING && (bytes <= room || self.waiting.is_empty()) {
            self.waiting.push_back(said);
            return;
        }
        let message = format!("At most {WAITING} messages of {room} bytes in all may wait on a connection.");
        let failure = Failure::from(Fault::RateLimit).with_message(message);
        let id = self.next_id();
        if let Ok(mut context) = self.line.context(id) {
            context.refuse(&failure);
        }
        self.out.push_back(message::refusal(&failure));
    }

    /// The code that tells a client what it did wrong; none if nobody is there to be told.
    fn code_for(&mut self, wrong: &Wrong) -> Option<u16> {
        use tungstenite::error::ProtocolError::ResetWithoutClosingHandshake;
        Some(match wrong {
            Wrong::Capacity(_) => {
                self.out.push_back(message::refusal(&Fault::TooLarge.into()));
                close_code::SIZE
            }
            Wrong::Utf8(_) => close_code::INVALID,
            Wrong::Protocol(ResetWithoutClosingHandshake) => return None,
            Wrong::Protocol(_) => close_code::PROTOCOL,
            _ => return None,
        })
    }

    /// Says goodbye behind all that was to be said.
    async fn leave(mut self, code: u16) {
        // Nobody will read what the engine still says.
        self.turn = None;
        self.out.push_back(Message::Close(Some(CloseFrame { code, reason: Utf8Bytes::default() })));
        if std::future::poll_fn(|cx| self.poll_write(cx)).await.is_ok() {
            self.upgraded.leave();
            let _ = std::future::poll_fn(|cx| Pin::new(&mut self.socket).poll_flush(cx)).await;
        }
    }

    /// Ready when there is something to decide.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<NextAction> {
        for _ in 0..ROUNDS {
            let written = self.poll_write(cx);
            if let Poll::Ready(Err(_)) = written {
                return Poll::Ready(NextAction::Gone);
            }
            if written.is_ready() {
                self.pongs = 0;
            }
            // Each message that is read may have to be answered, if only by a pong (faults C44).
            if self.out.len() < UNSENT && self.pongs < UNSENT {
                match Pin::new(&mut self.socket).poll_next(cx) {
                    Poll::Ready(Some(Ok(message))) => return Poll::Ready(NextAction::Said(message)),
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(what(error)),
                    Poll::Ready(None) => return Poll::Ready(NextAction::Gone),
                    Poll::Pending => {}
                }
            }
            let Some(turn) = self.turn.as_mut().filter(|_| written.is_ready()) else { return Poll::Pending };
            if !ready!(turn.poll(cx, &mut self.out)) {
                return Poll::Ready(NextAction::Over);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Ready when the client has been sent all there is.
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

fn what(error: axum::Error) -> NextAction {
    error.into_inner().downcast().map_or(NextAction::Gone, |wrong| NextAction::Wrong(*wrong))
}
