//! Faults: everything that can be wrong with an answer or a request, the one table of status, type and code that
//! clients see (wire-format 3.4, faults 1), and the reader of engines' error bodies.
//!
//! Takes: an engine's error body in any of its shapes, or a [`Fault`]. Gives: a [`Failure`]. Never: a numeric code,
//! a server's file path, more than 2 KiB of an engine's text.

use super::refusal::{is_about_context, is_about_request};
use crate::json::{Members, Raw, Text, compacted, integer, object, quoted, read, write_string};
use bytes::{BufMut, BytesMut};
use std::borrow::Cow;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $status:literal $kind:literal $code:expr, $message:literal;)*) => {
        /// Fault: everything that can go wrong, as a row of the table of status, type, code and default message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault { $($(#[$doc])* $name,)* }

        impl Fault {
            const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub(super) fn row(self) -> (u16, &'static str, Option<&'static str>, &'static str) {
                match self { $(Self::$name => ($status, $kind, $code, $message),)* }
            }
        }
    };
}

faults! {
    // Reported by engines about a request, and by samewire where it refuses one for the same reason.
    /// Request refused, for no reason that has its own row.
    InvalidRequest = 400 "invalid_request_error" None, "The engine refused the request.";
    /// Prompt too long for the model's context, recognised by words in the engine's message.
    ContextLength = 400 "invalid_request_error" Some("context_length_exceeded"), "The prompt is too long for the model.";
    /// Key not accepted, by samewire or by the engine.
    InvalidApiKey = 401 "invalid_request_error" Some("invalid_api_key"), "Incorrect API key provided.";
    /// Request not permitted, because of its key or of the page that sent it.
    Permission = 403 "permission_error" None, "The API key has no permission for this.";
    /// Resource not found, such as a stored response or a conversation, or a 404 of the engine.
    NotFound = 404 "invalid_request_error" None, "Not found.";
    /// Model not known, to samewire or to the engine.
    ModelNotFound = 404 "invalid_request_error" Some("model_not_found"), "The model does not exist.";
    /// Method not allowed by the route of the engine, which answered 405.
    MethodNotAllowed = 405 "invalid_request_error" Some("method_not_allowed"), "The engine does not allow this method.";
    /// Conflict with the current state, such as a second output for one tool call.
    Conflict = 409 "invalid_request_error" Some("conflict"), "The request conflicts with the engine's state.";
    /// Body larger than the limit of samewire or of the engine.
    TooLarge = 413 "invalid_request_error" Some("request_too_large"), "The request body is too large.";
    /// Rate limit reached, of the engine or of the client's key.
    RateLimit = 429 "rate_limit_error" Some("rate_limit_exceeded"), "Too many requests.";
    /// More concurrent requests than the limit of the client's key allows.
    ConcurrencyLimit = 429 "rate_limit_error" Some("concurrency_limit"), "Too many requests at once.";
    /// Daily or monthly quota of the key used up; repeating the request does not help.
    InsufficientQuota = 429 "insufficient_quota" Some("insufficient_quota"), "You exceeded your current quota.";
    /// Quota of the key used up, in the form that also states when it resets.
    UsageLimit = 429 "usage_limit_reached" Some("usage_limit_reached"), "The usage limit has been reached.";
    /// Model not included in the plan of the client's key.
    UsageNotIncluded = 403 "usage_not_included" Some("usage_not_included"), "Your plan does not include this model.";
    /// Tools of a server not known, because it does not answer.
    ToolServer = 424 "external_connector_error" Some("tool_server_unavailable"), "A server of tools does not answer.";
    /// Internal error of the engine, or an error of it that has no other row.
    Internal = 500 "server_error" Some("internal_error"), "Server error: the upstream engine reported an internal error.";
    /// Feature not implemented by the engine, or by samewire for this engine.
    NotImplemented = 501 "server_error" Some("not_implemented"), "The upstream engine does not implement this.";
    /// Engine overloaded, or still loading its model; it answered 503.
    EngineOverloaded = 503 "server_error" Some("server_is_overloaded"), "The upstream engine is overloaded.";

    // Failures of the connection to the engine and of its answer.
    /// No connection to the engine could be opened, so the request was not sent.
    Unreachable = 502 "server_error" Some("upstream_unreachable"), "Connection error: the upstream engine cannot be reached.";
    /// Connection closed by the engine before it sent an answer.
    Reset = 502 "server_error" Some("upstream_reset"), "Connection error: the upstream engine closed the connection without an answer.";
    /// Engine refuses the proxy's own key, which is not the client's fault.
    Upstream = 502 "server_error" Some("upstream_error"), "The upstream engine refused the proxy.";
    /// Request sent by this same process: an upstream leads back to samewire.
    UpstreamLoop = 508 "server_error" Some("upstream_loop"), "The request has come back to samewire: an upstream in its configuration leads to samewire itself.";
    /// Answer of the engine not readable, or without an error although its status is one.
    InvalidResponse = 502 "server_error" Some("upstream_invalid_response"), "Server error: the upstream engine returned an invalid response.";
    /// Answer from a model that is neither the requested one nor among the accepted names (faults U50).
    WrongModel = 502 "server_error" Some("upstream_invalid_response"), "The upstream engine answered as another model.";
    /// Time limit of samewire expired while it waited for the engine.
    Timeout = 504 "server_error" Some("upstream_timeout"), "The request timed out: the upstream engine did not answer in time.";
    /// Request aborted by the engine before the answer was complete.
    Aborted = 502 "server_error" Some("upstream_aborted"), "Server error: the upstream engine aborted the request before it was complete.";
    /// Answer ended before it was complete: no finish, or no end of the stream.
    Incomplete = 502 "server_error" Some("upstream_incomplete"), "Upstream connection closed before the answer was complete (stream ended without finish_reason).";
    /// Event that is not valid JSON, or does not fit the API.
    InvalidEvent = 502 "server_error" Some("upstream_invalid_event"), "Server error: the upstream engine sent an event that cannot be read.";
    /// Tool call without a function name in the engine's answer.
    InvalidToolCall = 502 "server_error" Some("upstream_invalid_tool_call"), "Server error: the upstream engine sent a tool call without a function name.";

    // Errors in a client's request.
    /// Request body that is not valid JSON, or not an object.
    InvalidJson = 400 "invalid_request_error" Some("invalid_json"), "The request body is not valid JSON.";
    /// Request body nested deeper than 128 levels.
    TooDeep = 400 "invalid_request_error" Some("json_too_deep"), "The request body is nested more than 128 levels deep.";
    /// Duplicate of a key that samewire acts on, which would make the request ambiguous.
    DuplicateKey = 400 "invalid_request_error" Some("duplicate_key"), "A key occurs twice.";
    /// Body that is not UTF-8, or has a lone surrogate.
    InvalidUtf8 = 400 "invalid_request_error" Some("invalid_utf8"), "The request body is not valid UTF-8.";
    /// Required field of the request missing.
    MissingParameter = 400 "invalid_request_error" Some("missing_required_parameter"), "A required parameter is missing.";
    /// Field of the request with the wrong type, or out of range.
    InvalidValue = 400 "invalid_request_error" Some("invalid_value"), "A parameter has an invalid value.";
    /// Field that clients may not set, because the operator does not allow it.
    ForbiddenParameter = 400 "invalid_request_error" Some("forbidden_parameter"), "This parameter is not allowed.";
    /// Field unknown to the API, under an option that refuses these.
    UnknownParameter = 400 "invalid_request_error" Some("unknown_parameter"), "The API has no such parameter.";
    /// Media address or data not allowed in this place, such as an address in a private network.
    ForbiddenMediaUrl = 400 "invalid_request_error" Some("forbidden_media_url"), "This address is not allowed.";
    /// Media address of any kind, under an option that allows none.
    RemoteMediaDisabled = 400 "invalid_request_error" Some("remote_media_disabled"), "Addresses are not fetched here; send the data.";
    /// Field of the request that samewire or the engine cannot support.
    UnsupportedParameter = 400 "invalid_request_error" Some("unsupported_parameter"), "A parameter is not supported.";
    /// Value of a field that samewire or the engine cannot support.
    UnsupportedValue = 400 "invalid_request_error" Some("unsupported_value"), "A value is not supported.";
    /// Sealed content in a Responses request that cannot be opened, because of a wrong key or a change.
    InvalidEncryptedContent = 400 "invalid_request_error" Some("invalid_encrypted_content"), "The encrypted content could not be opened.";
    /// Key missing in a request to a service that requires one.
    MissingApiKey = 401 "invalid_request_error" Some("invalid_api_key"), "You didn't provide an API key. Send it in an Authorization header, as 'Authorization: Bearer YOUR_KEY'.";
    /// Previous response not found, or stored for another client.
    PreviousNotFound = 400 "invalid_request_error" Some("previous_response_not_found"), "The previous response was not found.";
    /// URL of the request not among the routes of samewire.
    UnknownUrl = 404 "invalid_request_error" Some("unknown_url"), "Unknown request URL.";
    /// Method not supported by this route of samewire.
    MethodNotSupported = 405 "invalid_request_error" Some("method_not_supported"), "This URL does not support this method.";
    /// WebSocket route requested without an upgrade of the connection.
    UpgradeRequired = 426 "invalid_request_error" Some("upgrade_required"), "This URL is a WebSocket: send GET with 'Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13' and a key, or POST for HTTP.";
    /// WebSocket open for the maximum time; the client must open another one.
    SocketTooOld = 400 "invalid_request_error" Some("websocket_connection_limit_reached"), "This WebSocket has been open for as long as one may be; open another one.";
    /// API version of the route (a date) missing or not supported.
    UnsupportedApiVersion = 400 "invalid_request_error" Some("unsupported_api_version"), "This API version is not supported.";
    /// Client accepts neither JSON nor SSE in its `accept` header.
    NotAcceptable = 406 "invalid_request_error" Some("not_acceptable"), "The answer is application/json or text/event-stream; the request accepts neither.";
    /// Request body not received within the time limit.
    RequestTimeout = 408 "invalid_request_error" Some("request_timeout"), "The request body was not received in time.";
    /// Content type of the request other than JSON in UTF-8.
    UnsupportedMediaType = 415 "invalid_request_error" Some("unsupported_media_type"), "The request body must be application/json in UTF-8.";
    /// Request body with a `content-encoding`, such as gzip.
    UnsupportedEncoding = 415 "invalid_request_error" Some("unsupported_content_encoding"), "Compressed request bodies are not supported.";
    /// Expectation other than 100-continue in the `expect` header.
    ExpectationFailed = 417 "invalid_request_error" Some("expectation_failed"), "The only expectation that can be met is 100-continue.";

    // Errors of the proxy.
    /// Internal error of samewire itself.
    Proxy = 500 "server_error" Some("internal_error"), "The proxy failed to handle the request.";
    /// Proxy at its limit of concurrent requests; the client may try again.
    Overloaded = 503 "server_error" Some("overloaded"), "The proxy is at its limit of concurrent requests.";
    /// No healthy engine that serves the requested model is available.
    NoUpstream = 503 "server_error" Some("no_healthy_upstream"), "No upstream engine is available.";
    /// Store needed by the request, but unavailable or full.
    StoreUnavailable = 503 "server_error" Some("store_unavailable"), "Responses cannot be stored or read at the moment.";
    /// Response cancelled by the client before it was complete.
    Cancelled = 499 "invalid_request_error" Some("cancelled"), "The response was cancelled.";
    /// Tool outputs, for which a held stream waited, not received in time.
    OutputsMissing = 408 "invalid_request_error" Some("tool_outputs_missing"), "The outputs of the tool calls were not handed in in time.";
    /// Process that ran a background response is gone, so the response cannot complete.
    ReplicaLost = 500 "server_error" Some("server_error"), "[replica_lost] The process that ran this response is gone.";
    /// Proxy shutting down; it takes no new requests.
    Draining = 503 "server_error" Some("draining"), "The proxy is shutting down.";
}

impl Fault {
    /// Returns the first fault in the table with this code, or `None`.
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|fault| fault.row().2 == Some(code))
            .copied()
    }

    /// Returns the default messages of all faults, to recognise them in another samewire's answers.
    pub(crate) fn messages() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|fault| fault.message())
    }

    /// Returns the default message of the fault, from its row.
    pub(crate) fn message(self) -> &'static str {
        self.row().3
    }

    /// Returns the `error.code`, if the fault has one.
    pub fn code(self) -> Option<&'static str> {
        self.row().2
    }

    /// Returns true if the answer broke off without an engine event that gives the reason.
    pub fn is_broken_off(self) -> bool {
        use Fault::{
            Aborted, Draining, Incomplete, InvalidResponse, Proxy, Reset, Timeout, Unreachable,
        };
        matches!(
            self,
            Aborted
                | Incomplete
                | InvalidResponse
                | Reset
                | Timeout
                | Unreachable
                | Draining
                | Proxy
        )
    }
}

/// Most bytes of an engine's message that are passed on to clients and to the log.
const MESSAGE_LIMIT: usize = 2048;

/// Failure as a client sees it: the body of an error answer or an error frame. `status` matters only before the
/// status line is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Row of the table, which decides how samewire treats the failure.
    pub fault: Fault,
    /// HTTP status of the answer, if none has been sent yet.
    pub status: u16,
    /// Text of `error.message`.
    pub message: Cow<'static, str>,
    /// Value of `error.type`.
    pub kind: Cow<'static, str>,
    /// Value of `error.param`: the field at fault, if known.
    pub param: Option<String>,
    /// Value of `error.code`, which clients test; `None` is written as null.
    pub code: Option<Cow<'static, str>>,
    /// Engine's own report for the log, if the engine caused the failure.
    pub engine: Option<Box<EngineReport>>,
    /// Cause in samewire's or the system's words, for the log alone.
    pub cause: Option<Box<Cow<'static, str>>>,
    /// `plan_type` and `resets_at` of `usage_limit_reached`, as JSON members.
    pub(super) limits: Vec<(&'static str, String)>,
}

/// Engine's report of a failure, for the log; the client's message may hide a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineReport {
    /// Status of the engine's answer; `None`: the error came in a stream.
    pub status: Option<u16>,
    /// Text of the error, or of the body if it holds no error; at most 2 KiB.
    pub text: String,
    /// True if the client's message was taken from this text.
    pub is_message: bool,
}

impl EngineReport {
    fn of(status: Option<u16>, text: &str, is_message: bool) -> Option<Box<Self>> {
        Some(Box::new(Self {
            status,
            text: limited(text.to_owned()),
            is_message,
        }))
    }
}

/// Reason why an engine's answer cannot be used, for the log: `upstream_invalid_response` alone does not tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Head that is none.
    Head,
    /// Status without a body that could be read.
    Status,
    /// Body with a content coding.
    Compressed,
    /// Body that is neither JSON nor events.
    Foreign,
    /// JSON of another API.
    Unreadable,
    /// Body that breaks the rules of HTTP.
    Malformed,
    /// Body above the limit.
    TooLarge,
}

impl Unusable {
    fn text(self) -> &'static str {
        match self {
            Self::Head => "what it sends is no head of an answer",
            Self::Status => "its status is neither an error nor a success with a body",
            Self::Compressed => "its body is compressed, which was not requested",
            Self::Foreign => "its body is neither a JSON object nor an event stream",
            Self::Unreadable => "the JSON of its answer is not what this route answers",
            Self::Malformed => "its body breaks the rules of HTTP",
            Self::TooLarge => "its body is larger than its limit",
        }
    }
}

impl From<Unusable> for Failure {
    fn from(why: Unusable) -> Self {
        Self::from(Fault::InvalidResponse).with_cause(why.text())
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let (status, kind, code, message) = fault.row();
        Self {
            fault,
            status,
            message: message.into(),
            kind: kind.into(),
            param: None,
            code: code.map(Into::into),
            engine: None,
            cause: None,
            limits: Vec::new(),
        }
    }
}

impl Failure {
    /// Returns the engine's own text if it is the message's source, else the message.
    pub fn original(&self) -> &str {
        match &self.engine {
            Some(engine) if engine.is_message => &engine.text,
            _ => &self.message,
        }
    }

    /// Returns the failure with another message; status, type and code stay.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = message.into();
        self
    }

    /// Returns the failure with its cause for the log.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Cow<'static, str>>) -> Self {
        self.cause = Some(Box::new(cause.into()));
        self
    }

    /// Returns the failure with the name of the field that caused it.
    #[must_use]
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Returns the failure with the extra fields of `usage_limit_reached`: the name of the plan, if there is one,
    /// and the time when the limit resets, in seconds since 1970.
    #[must_use]
    pub fn with_usage_limit(mut self, plan: Option<&str>, resets_at: u64) -> Self {
        self.limits
            .extend(plan.map(|plan| ("plan_type", quoted(plan))));
        self.limits.push(("resets_at", resets_at.to_string()));
        self
    }

    /// Reads the failure from an engine's answer with an error status. `own_key`: the proxy used its own key, so a
    /// refused key is not the client's fault (wire-format 3.4, faults U19).
    pub fn of_answer(status: u16, body: &[u8], own_key: bool) -> Self {
        let read = std::str::from_utf8(body)
            .ok()
            .and_then(|text| Report::read(text, false));
        if own_key && (status == 401 || status == 403) {
            let text = read.map(|report| report.message).unwrap_or_default();
            let engine = EngineReport::of(Some(status), &text, false);
            return Self {
                engine,
                ..Fault::Upstream.into()
            };
        }
        match read {
            Some(report) => report.failure(Some(status)),
            None => Self {
                status: if status >= 500 { status } else { 502 },
                engine: EngineReport::of(Some(status), &body_start(body), false),
                ..Self::of_invalid_response(status)
            },
        }
    }

    /// Returns the failure of an answer that cannot be read. `status`: that of the answer.
    pub(crate) fn of_invalid_response(status: u16) -> Self {
        let message = format!(
            "Server error: the upstream engine returned an invalid response (HTTP {status})."
        );
        Self::from(Fault::InvalidResponse)
            .with_message(message)
            .with_cause(Unusable::Unreadable.text())
    }

    /// Reads the failure from an error event of a stream; `None` if the data is no error. `named`: the event was
    /// named `error`, so any data is an error.
    pub fn of_event(data: &str, named: bool) -> Option<Self> {
        match Report::read(data, named) {
            Some(report) => Some(report.failure(None)),
            None if named && data.trim().is_empty() => Some(Fault::Internal.into()),
            None if named => Some(Self {
                engine: EngineReport::of(None, data.trim(), true),
                ..Self::from(Fault::Internal).with_message(cut(data.trim()))
            }),
            None => None,
        }
    }

    /// Appends `{"error":{…}}`; `flat`: repeats `message` and `type` at the top (option `error_frame`).
    pub fn write(&self, flat: bool, out: &mut BytesMut) {
        out.extend_from_slice(b"{\"error\":{\"message\":");
        write_string(&self.message, out);
        out.extend_from_slice(b",\"type\":");
        write_string(&self.kind, out);
        out.extend_from_slice(b",\"param\":");
        write_or_null(self.param.as_deref(), out);
        out.extend_from_slice(b",\"code\":");
        write_or_null(self.code.as_deref(), out);
        for (name, value) in &self.limits {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            out.extend_from_slice(value.as_bytes());
        }
        out.put_u8(b'}');
        if flat {
            out.extend_from_slice(b",\"message\":");
            write_string(&self.message, out);
            out.extend_from_slice(b",\"type\":");
            write_string(&self.kind, out);
        }
        out.put_u8(b'}');
    }

    /// Returns true if repeating the request cannot help (`x-should-retry: false`).
    pub fn is_final(&self) -> bool {
        use Fault::{InsufficientQuota, NotImplemented, TooLarge, UsageLimit};
        matches!(
            self.fault,
            NotImplemented | TooLarge | InsufficientQuota | UsageLimit
        )
    }
}

/// Appends a JSON string, or null.
pub(crate) fn write_or_null(text: Option<&str>, out: &mut BytesMut) {
    match text {
        Some(text) => write_string(text, out),
        None => out.extend_from_slice(b"null"),
    }
}

object! {
    /// Keys under which engines report errors, at the top or inside `error`.
    struct ErrorBody<'a> {
        error: Raw<'a> = "error",
        object: Raw<'a> = "object",
        kind: Raw<'a> = "type",
        message: Raw<'a> = "message",
        param: Raw<'a> = "param",
        code: Raw<'a> = "code",
        detail: Raw<'a> = "detail",
        response: Raw<'a> = "response",
        plan_type: Raw<'a> = "plan_type",
        resets_at: Raw<'a> = "resets_at",
    }
}

/// Engine's error as read, before it is mapped to the table.
#[derive(Debug, Default)]
struct Report {
    message: String,
    kind: Option<String>,
    param: Option<String>,
    code: Option<String>,
    status: Option<u16>,
    limits: Vec<(&'static str, String)>,
}

impl Report {
    /// Reads the shapes in the order of engines H: `error` object, `error` text, flat object, `detail` text or
    /// list.
    fn read(text: &str, named: bool) -> Option<Self> {
        let body: ErrorBody<'_> = read(text).ok()?;
        if let Some(error) = body.error {
            return Self::inner(error);
        }
        let is = |raw: Option<Raw<'_>>, word: &str| {
            raw.and_then(Text::of).is_some_and(|text| text == word)
        };
        if is(body.kind, "response.failed") {
            let response: ErrorBody<'_> = read(body.response?.get()).ok()?;
            return Self::inner(response.error?);
        }
        if let Some(detail) = body.detail {
            return Some(Self::of_detail(detail));
        }
        let flat =
            is(body.object, "error") || is(body.kind, "error") || named || body.message.is_some();
        flat.then(|| Self::of_body(&body))
    }

    fn inner(error: Raw<'_>) -> Option<Self> {
        match error.get().as_bytes().first() {
            Some(b'{') => read(error.get()).ok().map(|body| Self::of_body(&body)),
            Some(b'"') => Some(Self {
                message: string_or_json(error),
                ..Self::default()
            }),
            _ => Some(Self {
                message: error.get().to_owned(),
                ..Self::default()
            }),
        }
    }

    fn of_body(body: &ErrorBody<'_>) -> Self {
        let words = |raw: Option<Raw<'_>>| {
            raw.and_then(Text::of)
                .map(|text| text.decoded().into_owned())
        };
        let number = |raw: Option<Raw<'_>>| {
            raw.and_then(integer)
                .and_then(|number| u16::try_from(number).ok())
        };
        let kind = words(body.kind);
        let status =
            number(body.code).or_else(|| kind.as_deref().and_then(|kind| kind.parse().ok()));
        let limits = [("plan_type", body.plan_type), ("resets_at", body.resets_at)];
        Self {
            message: body.message.map(string_or_json).unwrap_or_default(),
            param: words(body.param),
            code: words(body.code).filter(|code| !code.is_empty()),
            status: status.filter(|status| (400..600).contains(status)),
            limits: match kind.as_deref() {
                Some("usage_limit_reached") => limits
                    .iter()
                    .filter_map(|(name, raw)| Some((*name, raw.as_ref()?.get().to_owned())))
                    .collect(),
                _ => Vec::new(),
            },
            kind,
        }
    }

    /// Reads FastAPI's `detail`: a text, or a list of `{loc, msg}`.
    fn of_detail(detail: Raw<'_>) -> Self {
        let Ok(entries) = read::<Vec<Members<'_>>>(detail.get()) else {
            return Self {
                message: string_or_json(detail),
                ..Self::default()
            };
        };
        let mut report = Self::default();
        for Members(entry) in entries {
            let find = |name: &str| {
                entry
                    .iter()
                    .find(|(key, _)| key == name)
                    .map(|(_, raw)| *raw)
            };
            let place = find("loc").and_then(|loc| read::<Vec<Raw<'_>>>(loc.get()).ok());
            let field = place.and_then(|place| place.last().copied().map(string_or_json));
            let message = find("msg").map(string_or_json).unwrap_or_default();
            if !report.message.is_empty() {
                report.message.push_str("; ");
            }
            if let Some(field) = &field {
                report.message.push_str(field);
                report.message.push_str(": ");
            }
            report.message.push_str(&message);
            report.param = report.param.or(field);
        }
        report
    }

    fn failure(self, http: Option<u16>) -> Failure {
        let fault = self.fault(http);
        let mut failure = Failure::from(fault);
        if let (Some(kind), Some(code)) = (&self.kind, &self.code)
            && CANONICAL_TYPES.contains(&kind.as_str())
        {
            failure.kind = kind.clone().into();
            failure.code = Some(code.clone().into());
            failure.status = http
                .filter(|status| *status >= 400)
                .unwrap_or_else(|| status_of(code, fault));
        }
        let has_message = !self.message.is_empty();
        if has_message {
            failure.message = cut(&self.message).into();
        }
        failure.engine = EngineReport::of(http, &self.message, has_message);
        failure.param = self.param.map(|param| {
            param
                .strip_prefix("body.")
                .map(ToOwned::to_owned)
                .unwrap_or(param)
        });
        failure.limits = self.limits;
        failure
    }

    fn fault(&self, http: Option<u16>) -> Fault {
        let status = http
            .filter(|status| *status >= 400)
            .or(self.status)
            .or_else(|| self.kind_status())
            .unwrap_or(500);
        match status {
            401 => Fault::InvalidApiKey,
            403 => Fault::Permission,
            404 if self.is_about_model() => Fault::ModelNotFound,
            404 => Fault::NotFound,
            405 => Fault::MethodNotAllowed,
            409 => Fault::Conflict,
            413 => Fault::TooLarge,
            429 => Fault::RateLimit,
            501 => Fault::NotImplemented,
            // 529: engines with Anthropic's API, and proxies before them.
            503 | 529 => Fault::EngineOverloaded,
            _ if is_about_context(&self.message) => Fault::ContextLength,
            400..=499 => Fault::InvalidRequest,
            _ if is_about_request(&self.message) => Fault::InvalidRequest,
            _ => Fault::Internal,
        }
    }

    /// Returns the status for an error type; engines spell each type in several ways.
    fn kind_status(&self) -> Option<u16> {
        let kind: String = self
            .kind
            .as_deref()?
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect();
        Some(match kind.to_ascii_lowercase().trim_end_matches("error") {
            "badrequest" | "validation" | "value" | "invalidrequest" | "exceedcontextsize" => 400,
            "authentication" => 401,
            "permissiondenied" | "permission" => 403,
            "notfound" => 404,
            "conflict" => 409,
            "ratelimit" | "toomanyrequests" | "insufficientquota" | "usagelimitreached" => 429,
            "usagenotincluded" => 403,
            "notimplemented" => 501,
            "serviceunavailable" | "unavailable" | "overloaded" => 503,
            _ => return None,
        })
    }

    fn is_about_model(&self) -> bool {
        self.param.as_deref() == Some("model")
            || self.message.to_ascii_lowercase().contains("model")
    }
}

/// `error.type` values of the official API: an error with one of them and a string code is passed on unchanged.
const CANONICAL_TYPES: &[&str] = &[
    "invalid_request_error",
    "permission_error",
    "rate_limit_error",
    "server_error",
    "insufficient_quota",
    "usage_limit_reached",
    "usage_not_included",
];

/// Returns the status for a canonical error inside a stream, where no status line gives it: that of the code's row.
fn status_of(code: &str, otherwise: Fault) -> u16 {
    Fault::of_code(code).unwrap_or(otherwise).row().0
}

fn string_or_json(raw: Raw<'_>) -> String {
    Text::of(raw).map_or_else(|| compacted(raw), |text| text.decoded().into_owned())
}

/// Returns an engine's text without file paths, cut at the limit (engines H.4).
fn cut(message: &str) -> String {
    limited(without_paths(message))
}

/// Cuts a text to [`MESSAGE_LIMIT`] bytes, and marks the cut with an ellipsis behind them.
fn limited(mut text: String) -> String {
    if text.len() > MESSAGE_LIMIT {
        text.truncate(text.floor_char_boundary(MESSAGE_LIMIT));
        text.push('…');
    }
    text
}

/// Returns the beginning of a body that holds no error, as text for the log.
fn body_start(body: &[u8]) -> String {
    let front = body.get(..MESSAGE_LIMIT + 1).unwrap_or(body);
    String::from_utf8_lossy(front).trim().to_owned()
}

/// Removes file names from Python tracebacks, which name files of the server: `File "/usr/…/serving.py", line 12`.
fn without_paths(message: &str) -> String {
    let mut text = String::with_capacity(message.len().min(2 * MESSAGE_LIMIT));
    let mut rest = message;
    const MARK: &str = "File \"";
    while let Some(at) = rest.find(MARK) {
        let (before, after) = rest.split_at(at + MARK.len());
        text.push_str(before);
        text.push('…');
        // A truncated message may name the next file before this name has ended.
        let (path, next) = after.split_at(after.find(MARK).unwrap_or(after.len()));
        rest = match path.find('"') {
            Some(end) => after.get(end..).unwrap_or(""),
            None => next,
        };
        if text.len() > MESSAGE_LIMIT {
            return text;
        }
    }
    text.push_str(rest);
    text
}

/// Returns true if a chunk of a stream is an error, by values of `object` and `type` that no chunk has.
pub(crate) fn is_error_object(object: Option<Raw<'_>>, kind: Option<Raw<'_>>) -> bool {
    let is = |raw: Option<Raw<'_>>, words: &[&str]| {
        raw.and_then(Text::of)
            .is_some_and(|text| words.iter().any(|word| text == *word))
    };
    is(object, &["error"]) || is(kind, &["error", "response.failed", "response.error"])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that clients look for in a streamed error before they ask again (reports, clients-010).
    #[test]
    fn faults_that_may_pass_have_words_that_clients_know() {
        let words = [
            "connection error",
            "connection closed",
            "timed out",
            "server error",
            "overloaded",
        ];
        for fault in [
            Fault::Internal,
            Fault::EngineOverloaded,
            Fault::Unreachable,
            Fault::Reset,
            Fault::InvalidResponse,
            Fault::Timeout,
            Fault::Aborted,
            Fault::Incomplete,
            Fault::InvalidEvent,
            Fault::InvalidToolCall,
        ] {
            let message = fault.message().to_lowercase();
            assert!(words.iter().any(|word| message.contains(word)), "{message}");
        }
    }

    #[test]
    fn shapes_of_engines() {
        for (status, body, expected) in [
            (
                401,
                r#"{"error":"Unauthorized"}"#,
                r#"{"error":{"message":"Unauthorized","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
            ),
            (
                404,
                r#"{"detail":"Not Found"}"#,
                r#"{"error":{"message":"Not Found","type":"invalid_request_error","param":null,"code":null}}"#,
            ),
            (
                500,
                "Internal Server Error",
                r#"{"error":{"message":"Server error: the upstream engine returned an invalid response (HTTP 500).","type":"server_error","param":null,"code":"upstream_invalid_response"}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"x","type":"BadRequestError","param":"body.messages.0","code":400}}"#,
                r#"{"error":{"message":"x","type":"invalid_request_error","param":"messages.0","code":null}}"#,
            ),
            (
                400,
                r#"{"object":"error","message":"bad File \"/opt/a.py\", line 3","type":"400","param":null,"code":400}"#,
                r#"{"error":{"message":"bad File \"…\", line 3","type":"invalid_request_error","param":null,"code":null}}"#,
            ),
            (
                429,
                r#"{"error":{"message":"m","type":"usage_limit_reached","code":"usage_limit_reached","plan_type":"pro","resets_at":5}}"#,
                r#"{"error":{"message":"m","type":"usage_limit_reached","param":null,"code":"usage_limit_reached","plan_type":"pro","resets_at":5}}"#,
            ),
            (
                500,
                r#"{"error":{"message":{"a": 1},"type":null,"code":null}}"#,
                r#"{"error":{"message":"{\"a\":1}","type":"server_error","param":null,"code":"internal_error"}}"#,
            ),
        ] {
            let mut out = BytesMut::new();
            Failure::of_answer(status, body.as_bytes(), false).write(false, &mut out);
            assert_eq!(std::str::from_utf8(&out).unwrap(), expected);
        }
    }

    #[test]
    fn a_refused_key_of_our_own_is_not_the_clients_fault() {
        let failure = Failure::of_answer(401, b"{\"error\":\"Unauthorized\"}", true);
        assert_eq!(
            (failure.status, failure.code.as_deref()),
            (502, Some("upstream_error"))
        );
    }

    #[test]
    fn the_engines_own_text_stays_known() {
        let body = br#"{"error":{"message":"gpu-7 burns"}}"#;
        let failure = Failure::of_answer(500, body, false).with_message("masked");
        assert_eq!(failure.original(), "gpu-7 burns");
        // A body without an error is for the log alone.
        let failure = Failure::of_answer(502, b"<html>nginx", false);
        assert_eq!(
            failure.original(),
            "Server error: the upstream engine returned an invalid response (HTTP 502)."
        );
        let failure = Failure::of_answer(401, br#"{"error":"Unauthorized"}"#, true);
        assert_eq!(failure.original(), "The upstream engine refused the proxy.");
        assert_eq!(failure.engine.unwrap().text, "Unauthorized");
    }

    #[test]
    fn data_of_an_event_that_may_be_an_error() {
        let internal = "Server error: the upstream engine reported an internal error.";
        // Data, whether the event is named `error`, the message; none if it is no error.
        for (data, named, expected) in [
            ("", true, Some(internal)),
            (" \n", true, Some(internal)),
            ("CUDA error", true, Some("CUDA error")),
            ("CUDA error", false, None),
            (r#"{"id":"x"}"#, false, None),
            (r#"{"id":"x"}"#, true, Some(internal)),
            (r#"{"object":"error"}"#, false, Some(internal)),
            (r#"{"type":"error"}"#, false, Some(internal)),
            (r#"{"message":"m"}"#, false, Some("m")),
        ] {
            let failure = Failure::of_event(data, named);
            assert_eq!(
                failure.as_ref().map(|failure| &*failure.message),
                expected,
                "{data} {named}"
            );
        }
        let failure = Failure::of_event("CUDA error", true).unwrap();
        assert_eq!(failure.engine.unwrap().text, "CUDA error");
    }

    #[test]
    fn types_of_errors_tell_the_status() {
        for (kind, status) in [
            ("BadRequestError", 400),
            ("invalid_request_error", 400),
            ("exceed_context_size_error", 400),
            ("AuthenticationError", 401),
            ("PermissionDeniedError", 403),
            ("usage_not_included", 403),
            ("NotFoundError", 404),
            ("ConflictError", 409),
            ("rate_limit_error", 429),
            ("TooManyRequestsError", 429),
            ("insufficient_quota", 429),
            ("usage_limit_reached", 429),
            ("NotImplementedError", 501),
            ("ServiceUnavailableError", 503),
            ("OddError", 500),
        ] {
            let failure = Failure::of_event(
                &format!(r#"{{"error":{{"message":"m","type":"{kind}"}}}}"#),
                false,
            );
            assert_eq!(
                failure.map(|failure| failure.status),
                Some(status),
                "{kind}"
            );
        }
    }

    #[test]
    fn an_official_error_keeps_its_status_and_code() {
        let error = |kind: &str, code: &str| {
            format!(r#"{{"error":{{"message":"m","type":"{kind}","code":"{code}"}}}}"#)
        };
        for (kind, code, status) in [
            ("rate_limit_error", "rate_limit_exceeded", 429),
            ("invalid_request_error", "model_not_found", 404),
            ("invalid_request_error", "odd", 400),
        ] {
            let failure = Failure::of_event(&error(kind, code), false).unwrap();
            assert_eq!(
                (failure.status, failure.code.as_deref()),
                (status, Some(code))
            );
        }
        let failure = Failure::of_answer(402, error("insufficient_quota", "odd").as_bytes(), false);
        assert_eq!(
            (failure.status, failure.code.as_deref()),
            (402, Some("odd"))
        );
    }

    #[test]
    fn long_texts_are_cut_with_a_mark() {
        let (fits, long) = ("a".repeat(2048), "a".repeat(2049));
        let cut = format!("{fits}…");
        for (text, expected) in [(&fits, &fits), (&long, &cut)] {
            assert_eq!(&Failure::of_event(text, true).unwrap().message, expected);
            let failure = Failure::of_answer(500, text.as_bytes(), false);
            assert_eq!(&failure.engine.unwrap().text, expected);
        }
    }
}
