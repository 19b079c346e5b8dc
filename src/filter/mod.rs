//! Command-line filter around the whole rewriter: engine bytes in, canonical bytes out.
//!
//! Takes: a reader, and the facts that the bytes do not contain ([`FilterParams`]). Gives: canonical bytes as soon
//! as they are certain, in the forms of the proxy. Remembers: an object until it is complete, and events until
//! their API is known. Never: holds more than the proxy's limits allow.

mod explain;
mod separate;

pub use explain::{
    Change, Effect, Field, Finding, FrameRow, Kind, Outcome, Place, Recognition, Side, TimedFrame,
    Verdict, explained_rows, relayed_rows, rule_words,
};

use crate::config::Limits;
use crate::json::{self, Raw, Text, object};
use crate::plan::{self, AdaptedBody, Plan, Route};
use crate::request::fields::without;
use crate::request::messages::{MessagesContext, MessagesMode, MessagesRequest, Purpose};
use crate::request::responses::{ChatInputs, ResponsesMode, ResponsesRequest};
use crate::request::{ChatRequest, Rules};
use crate::wire::disclosure::disclosed;
use crate::wire::encode::{MessageEncoder, Response, StopRules, write_messages_error};
use crate::wire::fault::{Failure, Fault, Unusable};
use crate::wire::sse::{Framer, FramerOutput};
use crate::wire::{
    Api, BodyForm, Ending, OutputBuffer, OutputConstraints, Rewriter, Shape, Stamp, TextFormat,
};
use bytes::{Bytes, BytesMut};
use explain::Explainer;
use separate::Separator;
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Limit on leading white space, in bytes, before the first byte that shows whether the answer is events or an
/// object.
const BLANKS: usize = 64;
/// Note to the user about input that no engine writes.
const FOREIGN: &str = "The input is neither server-sent events (data: {…}) nor a JSON object.";
/// Note to the user about an event stream without blank lines between its events.
const JAMMED: &str = "There are no blank lines between the events: each line that begins with data: is taken for one.";
/// Size of the read buffer, in bytes.
const READ: usize = 64 << 10;

/// Parameters of one filter run: the facts about an answer that the engine's bytes do not contain, such as HTTP
/// status, request and route.
#[derive(Clone, Debug)]
pub struct FilterParams {
    /// API of the input; `None`: detected from the first event or the object.
    pub api: Option<Api>,
    /// API of the output; `None`: the API of the input. Only a Chat Completions answer can change its API, to Responses or
    /// Messages.
    pub to: Option<Api>,
    /// Client's request; `None`: a minimal one, streamed if the input is an event stream.
    pub request: Option<Bytes>,
    /// Route to assume: engine identity and options.
    pub route: Route,
    /// HTTP status of the engine's answer.
    pub status: u16,
    /// Ending to assume when the input ends: clean or cut off.
    pub ending: Ending,
    /// Id and creation time for the canonical answer.
    pub stamp: Stamp,
    /// Limits of the proxy on the size of answers and errors, enforced here as well.
    pub limits: Limits,
    /// True if a person reads the output: a single object then ends with a line break.
    pub shown: bool,
}

/// Reason why the filter wrote no answer, not even an error object.
#[derive(Debug)]
pub enum FilterError {
    /// Reading the input failed.
    Input(io::Error),
    /// Writing the output failed, as when its reader has closed the pipe.
    Output(io::Error),
    /// The filter cannot process this input or request; the text explains why.
    Refused(String),
}

/// Rewrites an answer from `input` to `output`. Returns false if the result is an error, which is written as well.
/// `note` receives messages for the user about the input.
///
/// # Errors
/// Fails if reading or writing fails, or if the input or the request cannot be processed as `params` demands.
pub fn run(
    params: FilterParams,
    input: &mut dyn Read,
    output: &mut dyn Write,
    note: &mut dyn FnMut(&str),
) -> Result<bool, FilterError> {
    Filter::new(params, None, note).run(input, output)
}

/// Rewrites an answer like [`run`] and calls `tell` with each [`Finding`]: first the changes of the request, if
/// there is one, then each change of the answer once its run of equal changes has ended, and finally the verdict.
///
/// # Errors
/// Fails under the same conditions as [`run`].
pub fn explained(
    params: FilterParams,
    input: &mut dyn Read,
    output: &mut dyn Write,
    note: &mut dyn FnMut(&str),
    tell: &mut dyn FnMut(Finding),
) -> Result<bool, FilterError> {
    let mut explain = Explainer::new(tell, params.route.identity, params.route.max_event_bytes);
    // A refused request produces a note later, when the answer begins.
    if let Some((request, adapted)) = params
        .request
        .as_ref()
        .and_then(|request| Some((request, params.adapted(request).ok()?)))
    {
        let text = std::str::from_utf8(request).unwrap_or_default();
        explain.request(
            text,
            &adapted,
            !matches!(params.to, Some(Api::Responses | Api::Messages)),
        );
    }
    Filter::new(params, Some(explain), note).run(input, output)
}

impl FilterParams {
    /// Returns the request as the engine receives it, with the rules that changed it. Fails like the proxy would.
    fn adapted(&self, body: &Bytes) -> Result<AdaptedBody, Failure> {
        let Self { route, .. } = self;
        if self.to == Some(Api::Responses) {
            let request = ResponsesRequest::recall(body, &route.options, route.responses)?;
            return plan::response_body(&request, &ChatInputs::default(), route);
        }
        if self.to == Some(Api::Messages) {
            return plan::message_body(&self.messages_request(body)?, route);
        }
        let request = ChatRequest::recall(self.api.unwrap_or(Api::Chat), body)?;
        plan::adapted(&request, body, route)
    }

    /// Returns the engine's failure with as much of its text as a client would read.
    fn disclosed(&self, failure: Failure) -> Failure {
        let Some(request_id) = &self.stamp.request_id else {
            return failure;
        };
        let request = self
            .request
            .as_ref()
            .and_then(|request| std::str::from_utf8(request).ok());
        let glance: Option<Glance<'_>> = request.and_then(|request| json::read(request).ok());
        let model = glance
            .and_then(|glance| glance.model)
            .and_then(Text::of)
            .map(|model| model.decoded());
        disclosed(
            failure,
            self.route.options.engine_errors,
            &model.unwrap_or_default(),
            request_id,
        )
    }

    /// Reads a Messages request that has been answered. There are no keys here, so no signature can be opened.
    fn messages_request(&self, request: &Bytes) -> Result<MessagesRequest, Failure> {
        let context = MessagesContext {
            rules: &Rules::ANSWERED,
            options: &self.route.options,
            model: None,
            open: &|_| None,
            defaults: &[],
            context_length: None,
            mode: self.route.messages,
            purpose: Purpose::Recall,
        };
        MessagesRequest::read(request, &context)
    }
}

impl Filter<'_> {
    fn run(mut self, input: &mut dyn Read, output: &mut dyn Write) -> Result<bool, FilterError> {
        let mut buffer = vec![0; READ];
        while !self.is_over() {
            let count = match input.read(&mut buffer) {
                Ok(0) => {
                    self.end()?;
                    break;
                }
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(FilterError::Input(error)),
            };
            self.take(buffer.get(..count).unwrap_or_default())?;
            self.write_available(output).map_err(FilterError::Output)?;
        }
        self.close(output).map_err(FilterError::Output)
    }
}

/// State of the input body: detected as events, an object or an error from the status and the first byte.
enum InputState {
    /// Only white space so far; holds the number of its bytes.
    Unknown(usize),
    /// Events buffered until the first one shows their API.
    Undetected(Vec<u8>),
    /// Input that goes through the rewriter.
    Events(Box<Writer>),
    /// Single object, buffered until it is complete.
    Object(Vec<u8>),
    /// Text of an error response (status 400 to 599).
    Error(Vec<u8>),
    /// Failed: the output will be this error.
    Failed(Failure),
}

impl InputState {
    /// Chooses the initial state by status, as the proxy does: a status other than 2xx, 4xx and 5xx (and 204)
    /// cannot carry an answer.
    fn begin(params: &FilterParams) -> Self {
        match params.status {
            400..=599 => Self::Error(Vec::new()),
            200..=299 if params.status != 204 => Self::Unknown(0),
            _ => Self::Failed(Unusable::Status.into()),
        }
    }
}

/// Input of the rewriter.
enum Input<'a> {
    /// Bytes of an event stream.
    Bytes(&'a [u8]),
    /// End of the stream.
    End(Ending),
    /// Whole answer that is no stream.
    Whole(&'a [u8]),
    /// Failure whose cause is not in the engine's bytes, such as a size limit.
    Failure(Failure),
}

/// Rewriter together with its output buffer.
struct Writer {
    rewriter: Rewriter,
    /// Canonical bytes not yet written to the output.
    out: OutputBuffer,
    /// True for canonical events; a single object is written only when it is complete.
    stream: bool,
}

impl Writer {
    /// Gives the rewriter its next input, and reports to `explain` where it is active.
    fn take(&mut self, input: Input<'_>, explain: &mut Option<Explainer<'_>>) {
        match explain {
            Some(explain) => explain.take(self, input),
            None => self.rewrite(input),
        }
    }

    fn rewrite(&mut self, input: Input<'_>) {
        let Self { rewriter, out, .. } = self;
        match input {
            Input::Bytes(bytes) => _ = rewriter.push(bytes, out),
            Input::End(ending) => _ = rewriter.finish(ending, out),
            Input::Whole(body) => _ = rewriter.whole(body, out),
            Input::Failure(failure) => _ = rewriter.fail(failure, out),
        }
    }

    fn ended(&self) -> bool {
        self.rewriter.progress().ended
    }

    /// Returns the error that replaces the whole answer: no event has been written yet, or the output is a single
    /// object.
    fn error_response(&self) -> Option<&Failure> {
        if self.stream {
            self.rewriter.writer.failure()
        } else {
            self.rewriter.reader.failure()
        }
    }
}

struct Filter<'t> {
    params: FilterParams,
    body: InputState,
    separator: Separator,
    received: usize,
    explain: Option<Explainer<'t>>,
    note: &'t mut dyn FnMut(&str),
    /// True if the input is not an engine's answer: the error object then ends with a line break.
    foreign: bool,
}

impl<'t> Filter<'t> {
    fn new(
        params: FilterParams,
        explain: Option<Explainer<'t>>,
        note: &'t mut dyn FnMut(&str),
    ) -> Self {
        let body = InputState::begin(&params);
        Self {
            body,
            params,
            separator: Separator::default(),
            received: 0,
            explain,
            note,
            foreign: false,
        }
    }

    /// Tells the user why the input is no answer of an engine.
    fn refuse_input(&mut self, why: &str) {
        (self.note)(why);
        self.foreign = true;
    }

    /// Parses the request with `read`. Fields that samewire would refuse are removed, each with a note, since the
    /// answer exists all the same.
    fn read_request<T>(
        &mut self,
        request: &Bytes,
        read: impl Fn(&Bytes) -> Result<T, Failure>,
    ) -> Result<T, FilterError> {
        let mut request = request.clone();
        loop {
            let failure = match read(&request) {
                Ok(parsed) => return Ok(parsed),
                Err(failure) => failure,
            };
            let param = failure.param.as_deref().unwrap_or_default();
            let key = param.split(['.', '[']).next().unwrap_or_default();
            let Some(rest) = without(&request, key) else {
                return Err(FilterError::Refused(format!(
                    "The request: {}",
                    failure.message
                )));
            };
            (self.note)(&format!(
                "samewire would refuse the request: {} Read without '{key}'.",
                failure.message
            ));
            request = rest;
        }
    }

    fn is_over(&self) -> bool {
        match &self.body {
            InputState::Events(writer) => writer.ended(),
            InputState::Error(text) => text.len() >= self.params.limits.max_error_bytes,
            InputState::Failed(_) => true,
            _ => false,
        }
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), FilterError> {
        self.received += bytes.len();
        if let InputState::Unknown(blanks) = &mut self.body {
            let text = bytes.trim_ascii_start();
            *blanks += bytes.len() - text.len();
            let form = match text.first() {
                _ if *blanks > BLANKS => None,
                None => return Ok(()),
                Some(first) => BodyForm::of(*first, false),
            };
            self.body = match form {
                Some(BodyForm::Object) => InputState::Object(Vec::new()),
                Some(BodyForm::Events) => InputState::Undetected(Vec::new()),
                None => {
                    self.refuse_input(FOREIGN);
                    InputState::Failed(Unusable::Foreign.into())
                }
            };
            bytes = text;
        }
        match &mut self.body {
            InputState::Undetected(_) | InputState::Events(_) => self.take_events(bytes)?,
            InputState::Object(body) => body.extend_from_slice(bytes),
            InputState::Error(text) => {
                let room = self
                    .params
                    .limits
                    .max_error_bytes
                    .saturating_sub(text.len());
                text.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
            }
            InputState::Unknown(_) | InputState::Failed(_) => {}
        }
        if self.received > self.params.limits.max_answer_bytes && !self.is_over() {
            self.fail(Unusable::TooLarge.into());
        }
        Ok(())
    }

    /// Takes bytes of an event stream, and inserts missing blank lines between events.
    fn take_events(&mut self, bytes: &[u8]) -> Result<(), FilterError> {
        let mut separated = Vec::new();
        let was_jammed = self.separator.is_jammed();
        self.separator.push(bytes, &mut separated);
        if self.separator.is_jammed() && !was_jammed {
            (self.note)(JAMMED);
        }
        self.push_events(&separated)
    }

    fn push_events(&mut self, bytes: &[u8]) -> Result<(), FilterError> {
        match &mut self.body {
            InputState::Undetected(held) => {
                held.extend_from_slice(bytes);
                let most = self.params.route.max_event_bytes;
                let given = self.params.api.map(Some);
                let api = given.or_else(|| first_event(held, most, false));
                if api.is_some() || held.len() > most {
                    self.begin_events(api.flatten())?;
                }
            }
            InputState::Events(writer) => writer.take(Input::Bytes(bytes), &mut self.explain),
            _ => {}
        }
        Ok(())
    }

    /// Starts the rewriter with the buffered events, whose API is that of Chat Completions if they do not show it.
    fn begin_events(&mut self, api: Option<Api>) -> Result<(), FilterError> {
        let InputState::Undetected(held) = &mut self.body else {
            return Ok(());
        };
        let held = std::mem::take(held);
        let mut writer = Box::new(self.writer(api.unwrap_or(Api::Chat), true)?);
        writer.take(Input::Bytes(&held), &mut self.explain);
        self.body = InputState::Events(writer);
        Ok(())
    }

    fn fail(&mut self, failure: Failure) {
        match &mut self.body {
            InputState::Events(writer) => writer.take(Input::Failure(failure), &mut self.explain),
            body => *body = InputState::Failed(failure),
        }
    }

    /// Handles the end of the input: completes the pending event or object.
    fn end(&mut self) -> Result<(), FilterError> {
        let mut rest = Vec::new();
        self.separator.finish(&mut rest);
        self.push_events(&rest)?;
        if let InputState::Undetected(held) = &self.body {
            let api = first_event(held, self.params.route.max_event_bytes, true);
            if api.is_none() {
                self.refuse_input(FOREIGN);
            }
            self.begin_events(api.flatten())?;
        }
        let ending = self.params.ending;
        match &mut self.body {
            InputState::Unknown(_) => {
                self.refuse_input(
                    "The input is empty: there is no answer of an engine to rewrite.",
                );
                self.body = InputState::Failed(Unusable::Foreign.into());
            }
            InputState::Events(writer) => writer.take(Input::End(ending), &mut self.explain),
            InputState::Object(body) => {
                let body = std::mem::take(body);
                let mut writer = self.writer(detect_api(&body).unwrap_or(Api::Chat), false)?;
                match ending {
                    Ending::Clean => writer.take(Input::Whole(&body), &mut self.explain),
                    _ => writer.take(Input::End(ending), &mut self.explain),
                }
                self.body = InputState::Events(Box::new(writer));
            }
            _ => {}
        }
        Ok(())
    }

    fn writer(&mut self, seen: Api, events: bool) -> Result<Writer, FilterError> {
        let params = self.params.clone();
        let api = params.api.unwrap_or(seen);
        let refused = |text: &str| FilterError::Refused(text.to_owned());
        match params.to.unwrap_or(api) {
            Api::Responses if !matches!(api, Api::Chat | Api::Responses) => {
                return Err(refused(
                    "Only an answer of Chat Completions can become one of Responses.",
                ));
            }
            Api::Messages if !matches!(api, Api::Chat | Api::Messages) => {
                return Err(refused(
                    "Only an answer of Chat Completions can become one of Messages.",
                ));
            }
            Api::Responses => return self.response(api, events),
            Api::Messages => {
                self.params.to = Some(Api::Messages);
                return self.message(api, events);
            }
            to if to != api => {
                let text = "The answer cannot become one of that API: leave --to away, or give it the value of --api.";
                return Err(refused(text));
            }
            _ => {}
        }
        let shape = match &params.request {
            Some(body) => {
                let request = self.read_request(body, |body| ChatRequest::recall(api, body))?;
                // Such a request is sent once for each choice: this answer is for one of them.
                let adapted = plan::adapted(&request, body, &params.route).unwrap_or_default();
                let request = if adapted.fans_out() {
                    request.one_of_several(0)
                } else {
                    request
                };
                adapted.shape(plan::shape(&request, &params.route))
            }
            None => Shape {
                quirks: params.route.identity.engine.quirks,
                max_event_bytes: params.route.max_event_bytes,
                script: TextFormat::of(
                    &params.route.options,
                    "",
                    OutputConstraints::default(),
                    params.route.facts(),
                )
                .map(Arc::new),
                ..Shape::new(api, events, params.route.options.clone())
            },
        };
        let stream = shape.stream;
        Ok(Writer {
            rewriter: Rewriter::new(shape, params.stamp.clone()),
            out: OutputBuffer::default(),
            stream,
        })
    }

    /// Creates a writer whose output is a Responses answer.
    fn response(&mut self, api: Api, events: bool) -> Result<Writer, FilterError> {
        let FilterParams {
            request: body,
            route,
            stamp,
            ..
        } = &self.params.clone();
        let plain = Bytes::from(format!("{{\"stream\":{events}}}"));
        let way = if api == Api::Responses {
            ResponsesMode::Native
        } else {
            ResponsesMode::Chat
        };
        let body = body.as_ref().unwrap_or(&plain);
        let request = self.read_request(body, |body| {
            ResponsesRequest::recall(body, &route.options, way)
        })?;
        let (_, shape, reply) = plan::response(&request, route);
        let adapted =
            plan::response_body(&request, &ChatInputs::default(), route).unwrap_or_default();
        let stream = reply.stream;
        let shape = Shape {
            client: api,
            upstream: api,
            ..adapted.shape(shape)
        };
        let encoder = Box::new(Response::new(reply, stamp));
        let rewriter = Rewriter::with_encoder(shape, stamp.clone(), encoder);
        Ok(Writer {
            rewriter,
            out: OutputBuffer::default(),
            stream,
        })
    }

    /// Creates a writer whose output is a message of Anthropic's API. Its thinking has no signatures.
    fn message(&mut self, api: Api, events: bool) -> Result<Writer, FilterError> {
        let mut params = self.params.clone();
        if api == Api::Messages {
            params.route.messages = MessagesMode::Native;
        }
        let plain = Bytes::from(format!("{{\"stream\":{events}}}"));
        let body = params.request.as_ref().unwrap_or(&plain);
        let (Plan { shape, .. }, mut reply) = self.read_request(body, |body| {
            let request = params.messages_request(body)?;
            plan::message(&request, &params.route)
        })?;
        if params.request.is_none() {
            reply.stop = StopRules::default();
        }
        let stream = reply.stream;
        let shape = Shape {
            upstream: api,
            ..shape
        };
        let encoder = Box::new(MessageEncoder::new(reply, &params.stamp));
        let rewriter = Rewriter::with_encoder(shape, params.stamp, encoder);
        Ok(Writer {
            rewriter,
            out: OutputBuffer::default(),
            stream,
        })
    }

    /// Writes the available events to the output, unless the answer is a single object or an error.
    fn write_available(&mut self, output: &mut dyn Write) -> io::Result<()> {
        let InputState::Events(writer) = &mut self.body else {
            return Ok(());
        };
        if !writer.stream || writer.out.is_empty() || writer.error_response().is_some() {
            return Ok(());
        }
        while !writer.out.is_empty() {
            output.write_all(&writer.out.take())?;
        }
        output.flush()
    }

    /// Writes the rest, reports the verdict, and returns true if the answer is a success.
    fn close(mut self, output: &mut dyn Write) -> io::Result<bool> {
        let error = match &self.body {
            InputState::Events(writer) => writer.error_response().cloned(),
            InputState::Error(text) => Some(self.params.disclosed(Failure::of_answer(
                self.params.status,
                text,
                false,
            ))),
            InputState::Failed(failure) => Some(failure.clone()),
            InputState::Unknown(_) | InputState::Undetected(_) | InputState::Object(_) => {
                Some(Fault::Proxy.into())
            }
        };
        let is_error = matches!(self.body, InputState::Error(_));
        let (summary, any, stream) = match &self.body {
            InputState::Events(writer) => (
                Some(writer.rewriter.reader.summary()),
                writer.rewriter.reader.failure().cloned(),
                writer.stream,
            ),
            _ => (None, None, false),
        };
        let failure = error.clone().or(any);
        let explain = self.explain.take();
        let written = self.write_rest(error, output)?;
        if let Some(explain) = explain {
            explain.end(summary, stream, failure.map(|failure| (is_error, failure)));
        }
        Ok(written)
    }

    /// Writes the rest of the answer, or the error that replaces it. Returns true for a success.
    fn write_rest(&mut self, error: Option<Failure>, output: &mut dyn Write) -> io::Result<bool> {
        if let Some(failure) = error {
            let mut out = BytesMut::new();
            match self.params.to {
                Some(Api::Messages) => write_messages_error(
                    &failure,
                    self.params.stamp.request_id.as_deref(),
                    &mut out,
                ),
                _ => failure.write(false, &mut out),
            }
            self.end_line(&mut out);
            output.write_all(&out)?;
            output.flush()?;
            return Ok(false);
        }
        let InputState::Events(writer) = &mut self.body else {
            return Ok(false);
        };
        let (mut out, success) = (
            std::mem::take(&mut writer.out),
            writer.rewriter.reader.failure().is_none(),
        );
        if !writer.stream {
            self.end_line(out.open());
        }
        while !out.is_empty() {
            output.write_all(&out.take())?;
        }
        output.flush()?;
        Ok(success)
    }

    fn end_line(&self, out: &mut BytesMut) {
        if self.params.shown || self.foreign {
            out.extend_from_slice(b"\n");
        }
    }
}

/// Detects the API of an event or object by its `object` or `type` member.
fn detect_api(json: &[u8]) -> Option<Api> {
    let glance: Glance<'_> = json::read(std::str::from_utf8(json).ok()?).ok()?;
    let word = |raw: Option<Raw<'_>>| {
        raw.and_then(Text::of)
            .map(|text| text.decoded().into_owned())
    };
    match word(glance.object).as_deref() {
        Some("chat.completion" | "chat.completion.chunk") => Some(Api::Chat),
        Some("text_completion") => Some(Api::Completions),
        Some("response") => Some(Api::Responses),
        // Events of Responses and Messages have `type` and no `object`.
        _ => match word(glance.kind)?.as_str() {
            "message" | "message_start" => Some(Api::Messages),
            kind => kind.starts_with("response.").then_some(Api::Responses),
        },
    }
}

object! {
    struct Glance<'a> {
        object: Raw<'a> = "object",
        kind: Raw<'a> = "type",
        model: Raw<'a> = "model",
    }
}

/// Returns the API of the first complete event, if the event shows it; `None` while there is no event. `most`: the size
/// limit of one event. `is_end`: nothing follows.
fn first_event(held: &[u8], most: usize, is_end: bool) -> Option<Option<Api>> {
    let mut first = None;
    let mut note = |found: FramerOutput<'_>| {
        first = first.or_else(|| match found {
            FramerOutput::Comment => None,
            FramerOutput::TooLarge => Some(None),
            FramerOutput::Frame(frame) => Some(detect_api(frame.data)),
        });
    };
    let mut framer = Framer::new(most);
    framer.push(held, &mut note);
    if is_end {
        framer.finish(|_| true, &mut note);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::named;

    /// Checks that the first event is looked at even if one read has more bytes than one event may have.
    #[test]
    fn the_first_event_shows_the_api_however_much_is_read_with_it() {
        let event = r#"data: {"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"a"}]}"#;
        let input = format!("{}data: [DONE]\n\n", format!("{event}\n\n").repeat(100));
        let params = FilterParams {
            api: None,
            to: None,
            request: None,
            route: Route::new(named("auto").unwrap(), Arc::default(), 1 << 10),
            status: 200,
            ending: Ending::Clean,
            stamp: Stamp::default(),
            limits: Limits::default(),
            shown: false,
        };
        let mut output = Vec::new();
        let _ = run(params, &mut input.as_bytes(), &mut output, &mut |_| {}).unwrap();
        let output = String::from_utf8(output).unwrap();
        assert!(output.contains(r#""object":"text_completion""#), "{output}");
    }
}
