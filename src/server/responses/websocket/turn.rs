//! Turn on a WebSocket connection: a response generated as over HTTP and sent as messages.

use super::super::history::{HISTORY_BYTES, History};
use super::super::{ParsedRequest, RememberedConversation};
use super::ConnectionContext;
use super::message::{self, Create, Refused, StreamOutcome};
use super::recent::{ConversationThread, RecentResponses};
use crate::plan;
use crate::server::admit::body::Body;
use crate::server::admit::quota::QuotaState;
use crate::server::context::RequestContext;
use crate::server::responses::persist::{FinalState, items};
use crate::store::{Error, Key};
use crate::wire::OutputBuffer;
use crate::wire::encode::{Encode, Response as Encoder};
use crate::wire::fault::{Failure, Fault};
use axum::extract::ws::Message;
use bytes::Bytes;
use http::Response;
use http_body::Body as _;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Message of the client that waits for its turn. Binary messages are kept in order too, and answered with an
/// error.
#[derive(Debug)]
pub(super) enum ClientMessages {
    Text(Bytes),
    Binary,
}

impl ClientMessages {
    /// Returns the size of the message in bytes, for the limit on waiting messages.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary => 0,
        }
    }
}

/// Response that is being generated and sent on a connection.
pub(super) struct Turn {
    step: Step,
    /// Id of the response that it continues.
    previous: Option<String>,
    /// Input and earlier conversation, to be remembered with the output at the end.
    record: Option<TurnRecord>,
    outcome: StreamOutcome,
}

/// Step of a turn: the response is awaited, or its body is sent.
enum Step {
    /// The response has not begun yet.
    Preparing(Pin<Box<dyn Future<Output = TurnAnswer> + Send>>),
    /// The body of the response is being sent.
    Sending { status: u16, body: Body },
}

/// Response that has begun, or an error, with what is to be remembered of it.
struct TurnAnswer {
    response: Response<Body>,
    trace: Option<TurnRecord>,
}

/// Input of a response and the conversation before it.
struct TurnRecord {
    thread: ConversationThread,
    input: Vec<Bytes>,
}

impl Turn {
    /// Starts the response to a message; an invalid message yields an error as its response. Fails if the caller's
    /// key is no longer valid.
    pub(super) fn begin(
        line: &Arc<ConnectionContext>,
        request_id: String,
        said: ClientMessages,
        memory: &RecentResponses,
    ) -> Result<Self, Failure> {
        let context = line.context(request_id)?;
        let (body, read) = match said {
            ClientMessages::Text(text) => {
                let read = Create::read(&text, line.sends_stream_flag);
                (text, read)
            }
            ClientMessages::Binary => {
                let failure = Failure::from(Fault::InvalidJson).with_message("A message must be text.");
                (Bytes::new(), Err(Refused { failure, previous: None }))
            }
        };
        let (previous, criteria) = match read {
            Ok(Create { previous, generate }) => (previous, Ok(generate)),
            Err(Refused { previous, failure }) => (previous, Err(failure)),
        };
        let thread = previous.as_deref().and_then(|id| memory.thread(id));
        let making = make(context, Arc::clone(line), body, criteria, thread);
        Ok(Self {
            step: Step::Preparing(Box::pin(making)),
            previous,
            record: None,
            outcome: StreamOutcome::default(),
        })
    }

    /// Appends messages that are ready to `out`; ready with false at the end of the response.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, out: &mut VecDeque<Message>) -> Poll<bool> {
        loop {
            let (status, body) = match &mut self.step {
                Step::Preparing(making) => {
                    let TurnAnswer { response, trace } = ready!(making.as_mut().poll(cx));
                    self.record = trace;
                    let (head, body) = response.into_parts();
                    self.step = Step::Sending { status: head.status.as_u16(), body };
                    continue;
                }
                Step::Sending { status, body } => (*status, body),
            };
            let frame = ready!(Pin::new(body).poll_frame(cx));
            let Some(bytes) = frame.and_then(Result::ok).and_then(|frame| frame.into_data().ok()) else {
                return Poll::Ready(false);
            };
            if status >= 400 {
                self.outcome.failed = true;
                out.push_back(message::error(status, &bytes));
            } else {
                self.outcome.messages(&bytes, |message| out.push_back(message));
            }
            if !out.is_empty() {
                return Poll::Ready(true);
            }
        }
    }

    /// Ends the response and updates the connection's memory. After a failure the response that it continued is
    /// forgotten as well: the client must start anew, or the store must have it.
    pub(super) fn end(self, memory: &mut RecentResponses) {
        let Self { previous, record: trace, outcome: heard, .. } = self;
        match (heard.ended, trace) {
            (Some((FinalState { id, output, .. }, stored)), Some(TurnRecord { thread, input }))
                if !heard.failed =>
            {
                let mut turn = items(input, &id);
                turn.extend(output);
                memory.keep(id, thread.with(turn, stored));
            }
            _ => {
                if let Some(previous) = previous {
                    memory.forget(&previous);
                }
            }
        }
    }
}

async fn make(
    mut context: RequestContext,
    line: Arc<ConnectionContext>,
    body: Bytes,
    criteria: Result<bool, Failure>,
    thread: Option<ConversationThread>,
) -> TurnAnswer {
    let result = match criteria {
        Ok(generate) => Box::pin(context.begin_response(&line, body, generate, thread)).await,
        Err(failure) => Err(failure),
    };
    result.unwrap_or_else(|failure| TurnAnswer { response: context.refuse(&failure), trace: None })
}

impl RequestContext {
    async fn begin_response(
        &mut self,
        line: &ConnectionContext,
        body: Bytes,
        generate: bool,
        thread: Option<ConversationThread>,
    ) -> Result<TurnAnswer, Failure> {
        self.admit()?;
        self.count(&line.head).await?;
        let body = self.counted(body)?;
        if let Some(record) = &mut self.record {
            record.has_read(&body);
        }
        let mut parsed = self.parse_request(&line.head, body, None).await?;
        parsed.asked.stream = true;
        parsed.asked.remove_unknown("generate");
        if let Some(thread) = &thread {
            let stored = thread.stored && self.still_stored(&parsed).await;
            parsed.remembered = Some(RememberedConversation { items: thread.items(), stored });
        }
        let history = self.history(&parsed).await?;
        let thread =
            thread.unwrap_or_else(|| ConversationThread::default().with(history.history.clone(), true));
        let trace = TurnRecord { thread, input: history.shared(&parsed.asked, false).collect() };
        let response = match generate {
            // Boxed because the future is large.
            true => Box::pin(self.generate(&line.head, parsed, history)).await?,
            false => self.answer_without_engine(parsed, &history)?,
        };
        Ok(TurnAnswer { response, trace: Some(trace) })
    }

    /// Returns true if the store still has the continued response: only then can a new record refer to it.
    async fn still_stored(&self, parsed: &ParsedRequest) -> bool {
        let store_handle = &self.app.store_handle;
        let store = store_handle.store().filter(|_| parsed.asked.store);
        let Some((store, id)) = store.zip(parsed.asked.previous_response_id.as_deref()) else {
            return false;
        };
        let key = Key { tenant: Arc::clone(&parsed.tenant), id: id.into() };
        let there = !matches!(
            store.chain(key.clone(), HISTORY_BYTES, store_handle.now()).await,
            Err(Error::NotFound)
        );
        if there {
            self.refresh(&store, key);
        }
        there
    }

    /// Answers without an engine: the input is remembered for a later message, and an empty response is returned.
    /// The response is never stored. Fails if the request names a conversation or its input is invalid.
    fn answer_without_engine(
        &mut self,
        parsed: ParsedRequest,
        history: &History,
    ) -> Result<Response<Body>, Failure> {
        let ParsedRequest { mut asked, route, tenant, .. } = parsed;
        if asked.conversation.is_some() {
            return Err(Failure::from(Fault::InvalidValue)
                .with_message("Invalid value for 'conversation': nothing is added to it without a response.")
                .with_param("conversation"));
        }
        asked.disable_store()?;
        let app = &self.app;
        // Check the input now, so that its errors are reported with this message.
        history.body(&asked, &tenant, &app.store_handle.keys, &route, 0)?;
        let (_, _, reply) = plan::response(&asked, &route);
        let mut out = OutputBuffer::default();
        let mut encoder = Encoder::new(reply, &self.ids.stamp());
        if let Some(limits) = self.standing.as_ref().and_then(QuotaState::limits) {
            encoder.limits(limits);
        }
        encoder.write_empty(&mut out);
        if let Some(record) = &mut self.record {
            record.model = app.pool.label(&asked.model);
            record.answered(200);
            record.completed();
            record.bytes = out.len();
        }
        // The reader takes whole events.
        Ok(Response::new(Body::full(out.join())))
    }
}
