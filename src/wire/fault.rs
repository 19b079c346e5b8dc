//! What can be wrong with an answer or a request, and how a client is told: the one table of status, type and code
//! (wire-format 3.4, faults 1), and the reading of engines' error bodies.
//!
//! Takes: an engine's error body in any of its shapes, or a [`Fault`]. Gives: a [`Failure`].
//! Never: a numeric code, a server's file path, more than 2 KiB of an engine's text.

use crate::json::{Members, Raw, Text, integer, object, read, write_string};
use bytes::{BufMut, BytesMut};
use std::borrow::Cow;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $status:literal $kind:literal $code:expr, $message:literal;)*) => {
        /// Everything that can go wrong, by its row in the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault { $($(#[$doc])* $name,)* }

        impl Fault {
            const ALL: &'static [Self] = &[$(Self::$name,)*];

            fn row(self) -> (u16, &'static str, Option<&'static str>, &'static str) {
                match self { $(Self::$name => ($status, $kind, $code, $message),)* }
            }
        }
    };
}

faults! {
    // What engines say of a request.
    /// The engine refuses the request.
    InvalidRequest = 400 "invalid_request_error" None, "The engine refused the request.";
    /// The prompt is too long for the model.
    ContextLength = 400 "invalid_request_error" Some("context_length_exceeded"), "The prompt is too long for the model.";
    /// The key is not accepted.
    InvalidApiKey = 401 "invalid_request_error" Some("invalid_api_key"), "Incorrect API key provided.";
    /// The key may not do this.
    Permission = 403 "permission_error" None, "The API key has no permission for this.";
    /// Nothing there.
    NotFound = 404 "invalid_request_error" None, "Not found.";
    /// No such model.
    ModelNotFound = 404 "invalid_request_error" Some("model_not_found"), "The model does not exist.";
    /// The engine's route takes another method.
    MethodNotAllowed = 405 "invalid_request_error" Some("method_not_allowed"), "The engine does not allow this method.";
    /// The engine reports a conflict.
    Conflict = 409 "invalid_request_error" Some("conflict"), "The request conflicts with the engine's state.";
    /// Larger than the body limit, ours or the engine's.
    TooLarge = 413 "invalid_request_error" Some("request_too_large"), "The request body is too large.";
    /// The engine pushes back.
    RateLimit = 429 "rate_limit_error" Some("rate_limit_exceeded"), "Too many requests.";
    /// More at once than are allowed.
    ConcurrencyLimit = 429 "rate_limit_error" Some("concurrency_limit"), "Too many requests at once.";
    /// The key's quota of a day or a month is used up.
    InsufficientQuota = 429 "insufficient_quota" Some("insufficient_quota"), "You exceeded your current quota.";
    /// The key's quota is used up, in the words that tell when it begins anew.
    UsageLimit = 429 "usage_limit_reached" Some("usage_limit_reached"), "The usage limit has been reached.";
    /// The key's plan does not have the model.
    UsageNotIncluded = 403 "usage_not_included" Some("usage_not_included"), "Your plan does not include this model.";
    /// The engine failed.
    Internal = 500 "server_error" Some("internal_error"), "The upstream engine reported an internal error.";
    /// The engine does not have this.
    NotImplemented = 501 "server_error" Some("not_implemented"), "The upstream engine does not implement this.";
    /// The engine is overloaded or loading.
    EngineOverloaded = 503 "server_error" Some("server_is_overloaded"), "The upstream engine is overloaded.";

    // What becomes of the way to the engine and of its answer.
    /// No connection.
    Unreachable = 502 "server_error" Some("upstream_unreachable"), "The upstream engine cannot be reached.";
    /// The connection broke before an answer.
    Reset = 502 "server_error" Some("upstream_reset"), "The upstream engine closed the connection without an answer.";
    /// The engine does not accept the proxy's own key.
    Upstream = 502 "server_error" Some("upstream_error"), "The upstream engine refused the proxy.";
    /// The request came from this very process.
    UpstreamLoop = 508 "server_error" Some("upstream_loop"), "The request has come back to samewire: an upstream in its configuration leads to samewire itself.";
    /// The answer cannot be read.
    InvalidResponse = 502 "server_error" Some("upstream_invalid_response"), "The upstream engine returned an invalid response.";
    /// The engine answered as another model than it says it has.
    WrongModel = 502 "server_error" Some("upstream_invalid_response"), "The upstream engine answered as another model.";
    /// A time limit ran out while waiting for the engine.
    Timeout = 504 "server_error" Some("upstream_timeout"), "The upstream engine did not answer in time.";
    /// The engine gave up.
    Aborted = 502 "server_error" Some("upstream_aborted"), "The upstream engine aborted the request before it was complete.";
    /// The answer ends too early.
    Incomplete = 502 "server_error" Some("upstream_incomplete"), "The upstream engine closed the stream before it was complete.";
    /// An event is not valid JSON, or not of the API's shape.
    InvalidEvent = 502 "server_error" Some("upstream_invalid_event"), "The upstream engine sent an event that is not valid JSON.";
    /// A tool call without a name.
    InvalidToolCall = 502 "server_error" Some("upstream_invalid_tool_call"), "The upstream engine sent a tool call without a function name.";

    // What is wrong with a client's request.
    /// Not JSON.
    InvalidJson = 400 "invalid_request_error" Some("invalid_json"), "The request body is not valid JSON.";
    /// Nested too deeply.
    TooDeep = 400 "invalid_request_error" Some("json_too_deep"), "The request body is nested more than 128 levels deep.";
    /// A key that is acted on stands there twice.
    DuplicateKey = 400 "invalid_request_error" Some("duplicate_key"), "A key occurs twice.";
    /// Not UTF-8, or a lone surrogate.
    InvalidUtf8 = 400 "invalid_request_error" Some("invalid_utf8"), "The request body is not valid UTF-8.";
    /// A field is missing.
    MissingParameter = 400 "invalid_request_error" Some("missing_required_parameter"), "A required parameter is missing.";
    /// A field has the wrong type or is out of range.
    InvalidValue = 400 "invalid_request_error" Some("invalid_value"), "A parameter has an invalid value.";
    /// A field that clients may not set.
    ForbiddenParameter = 400 "invalid_request_error" Some("forbidden_parameter"), "This parameter is not allowed.";
    /// A field that the API does not name, where these are refused.
    UnknownParameter = 400 "invalid_request_error" Some("unknown_parameter"), "The API has no such parameter.";
    /// An address that an engine may not be told to fetch.
    ForbiddenMediaUrl = 400 "invalid_request_error" Some("forbidden_media_url"), "This address is not allowed.";
    /// Any address, where none may be fetched.
    RemoteMediaDisabled = 400 "invalid_request_error" Some("remote_media_disabled"), "Addresses are not fetched here; send the data.";
    /// A field that cannot be served.
    UnsupportedParameter = 400 "invalid_request_error" Some("unsupported_parameter"), "A parameter is not supported.";
    /// A value that cannot be served.
    UnsupportedValue = 400 "invalid_request_error" Some("unsupported_value"), "A value is not supported.";
    /// Sealed content that cannot be opened.
    InvalidEncryptedContent = 400 "invalid_request_error" Some("invalid_encrypted_content"), "The encrypted content could not be opened.";
    /// No key given.
    MissingApiKey = 401 "invalid_request_error" Some("invalid_api_key"), "You didn't provide an API key. Send it in an Authorization header, as 'Authorization: Bearer YOUR_KEY'.";
    /// The response that this one continues is not there, or not this client's.
    PreviousNotFound = 400 "invalid_request_error" Some("previous_response_not_found"), "The previous response was not found.";
    /// No such route.
    UnknownUrl = 404 "invalid_request_error" Some("unknown_url"), "Unknown request URL.";
    /// The route takes another method.
    MethodNotSupported = 405 "invalid_request_error" Some("method_not_supported"), "This URL does not support this method.";
    /// The route is a WebSocket, and the request does not ask for one.
    UpgradeRequired = 426 "invalid_request_error" Some("upgrade_required"), "This URL is a WebSocket: send GET with 'Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13' and a key, or POST for HTTP.";
    /// A WebSocket has lived for as long as one may.
    SocketTooOld = 400 "invalid_request_error" Some("websocket_connection_limit_reached"), "This WebSocket has been open for as long as one may be; open another one.";
    /// The route's date is missing or not among the supported ones.
    UnsupportedApiVersion = 400 "invalid_request_error" Some("unsupported_api_version"), "This API version is not supported.";
    /// The client accepts neither JSON nor SSE.
    NotAcceptable = 406 "invalid_request_error" Some("not_acceptable"), "The answer is application/json or text/event-stream; the request accepts neither.";
    /// The body did not come in time.
    RequestTimeout = 408 "invalid_request_error" Some("request_timeout"), "The request body was not received in time.";
    /// Not JSON by its label.
    UnsupportedMediaType = 415 "invalid_request_error" Some("unsupported_media_type"), "The request body must be application/json in UTF-8.";
    /// A compressed body.
    UnsupportedEncoding = 415 "invalid_request_error" Some("unsupported_content_encoding"), "Compressed request bodies are not supported.";
    /// An expectation other than 100-continue.
    ExpectationFailed = 417 "invalid_request_error" Some("expectation_failed"), "The only expectation that can be met is 100-continue.";

    // What is wrong with the proxy.
    /// Our own fault.
    Proxy = 500 "server_error" Some("internal_error"), "The proxy failed to handle the request.";
    /// No capacity left.
    Overloaded = 503 "server_error" Some("overloaded"), "The proxy is at its limit of concurrent requests.";
    /// No engine that could be asked is well.
    NoUpstream = 503 "server_error" Some("no_healthy_upstream"), "No upstream engine is available.";
    /// The store is needed and not there, or full.
    StoreUnavailable = 503 "server_error" Some("store_unavailable"), "Responses cannot be stored or read at the moment.";
    /// The client gave the response up.
    Cancelled = 499 "invalid_request_error" Some("cancelled"), "The response was cancelled.";
    /// Nobody handed in what a held stream waited for.
    OutputsMissing = 408 "invalid_request_error" Some("tool_outputs_missing"), "The outputs of the tool calls were not handed in in time.";
    /// The process that ran a response is gone.
    ReplicaLost = 500 "server_error" Some("server_error"), "[replica_lost] The process that ran this response is gone.";
    /// Shutting down.
    Draining = 503 "server_error" Some("draining"), "The proxy is shutting down.";
}

impl Fault {
    /// The first that this code tells.
    pub(crate) fn of_code(code: &str) -> Option<Self> {
        Self::ALL.iter().find(|fault| fault.row().2 == Some(code)).copied()
    }

    /// The messages of all of them.
    pub(crate) fn messages() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|fault| fault.message())
    }

    /// Its message.
    pub(crate) fn message(self) -> &'static str {
        self.row().3
    }

    /// Its `code`, if it has one.
    pub(crate) fn code(self) -> Option<&'static str> {
        self.row().2
    }

    /// The answer broke off, and no event of the engine says why.
    pub fn breaks_off(self) -> bool {
        use Fault::{Aborted, Draining, Incomplete, InvalidResponse, Proxy, Reset, Timeout, Unreachable};
        matches!(
            self,
            Aborted | Incomplete | InvalidResponse | Reset | Timeout | Unreachable | Draining | Proxy
        )
    }
}

/// Bytes of an engine's message that are passed on.
const MESSAGE_LIMIT: usize = 2048;

/// What a client is told. `status` counts only before the status line is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which row of the table.
    pub fault: Fault,
    /// HTTP status.
    pub status: u16,
    /// The text.
    pub message: Cow<'static, str>,
    /// `error.type`.
    pub kind: Cow<'static, str>,
    /// `error.param`.
    pub param: Option<String>,
    /// `error.code`.
    pub code: Option<Cow<'static, str>>,
    /// The engine's own report, where the failure is one of the engine's.
    pub engine: Option<Box<EngineReport>>,
    /// `plan_type` and `resets_at` of `usage_limit_reached`, as JSON members.
    limits: Vec<(&'static str, String)>,
}

/// The report of an engine on a failure, as the log gets it: the client's message may hide a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineReport {
    /// The status of the engine's answer; `None`: the error came in a stream.
    pub status: Option<u16>,
    /// The text, at most 2 KiB of it; of a body without an error in it, the body.
    pub text: String,
    /// Whether the client's message is this text.
    pub is_message: bool,
}

impl EngineReport {
    fn of(status: Option<u16>, text: &str, is_message: bool) -> Option<Box<Self>> {
        Some(Box::new(Self { status, text: limited(text.to_owned()), is_message }))
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
            limits: Vec::new(),
        }
    }
}

impl Failure {
    /// Returns the engine's own text, where it gave one, else the message.
    pub fn original(&self) -> &str {
        match &self.engine {
            Some(engine) if engine.is_message => &engine.text,
            _ => &self.message,
        }
    }

    /// The same with another text.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = message.into();
        self
    }

    /// The same with the parameter that is at fault.
    #[must_use]
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Returns the same with what `usage_limit_reached` says beside its message: the name of the plan, if it has one, and
    /// when the limit begins anew, in seconds since 1970.
    #[must_use]
    pub fn with_usage_limit(mut self, plan: Option<&str>, resets_at: u64) -> Self {
        if let Some(plan) = plan {
            let mut spelled = BytesMut::new();
            write_string(plan, &mut spelled);
            self.limits.push(("plan_type", String::from_utf8_lossy(&spelled).into_owned()));
        }
        self.limits.push(("resets_at", resets_at.to_string()));
        self
    }

    /// An engine's answer with a status that is not a success. `own_key`: the proxy used a key of its own, so that a
    /// refusal of it is not the client's fault (wire-format 3.4, faults U19).
    pub fn of_answer(status: u16, body: &[u8], own_key: bool) -> Self {
        let read = std::str::from_utf8(body).ok().and_then(|text| Report::read(text, false));
        if own_key && (status == 401 || status == 403) {
            let text = read.map(|report| report.message).unwrap_or_default();
            let engine = EngineReport::of(Some(status), &text, false);
            return Self { engine, ..Fault::Upstream.into() };
        }
        match read {
            Some(report) => report.failure(Some(status)),
            None => Self {
                status: if status >= 500 { status } else { 502 },
                engine: EngineReport::of(Some(status), &front(body), false),
                ..Self::from(Fault::InvalidResponse).with_message(format!(
                    "The upstream engine returned an invalid response (HTTP {status})."
                ))
            },
        }
    }

    /// An error event of a stream; `named`: it came under `event: error`, so that any data is an error.
    pub(crate) fn of_event(data: &str, named: bool) -> Option<Self> {
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

    /// Appends `{"error":{…}}`; `flat`: with `message` and `type` repeated (option `error_frame`).
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

    /// Whether repeating the request cannot help (`x-should-retry: false`).
    pub fn is_final(&self) -> bool {
        use Fault::{InsufficientQuota, NotImplemented, TooLarge, UsageLimit};
        matches!(self.fault, NotImplemented | TooLarge | InsufficientQuota | UsageLimit)
    }
}

/// Appends a string, or null.
pub(crate) fn write_or_null(text: Option<&str>, out: &mut BytesMut) {
    match text {
        Some(text) => write_string(text, out),
        None => out.extend_from_slice(b"null"),
    }
}

object! {
    /// Every key under which engines report errors, at the top or inside `error`.
    struct Body<'a> {
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

/// An engine's error as read, before it is brought into the table.
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
    /// Shapes in the order of engine-quirks H: `error` object, `error` text, flat object, `detail` text or list.
    fn read(text: &str, named: bool) -> Option<Self> {
        let body: Body<'_> = read(text).ok()?;
        if let Some(error) = body.error {
            return Self::inner(error);
        }
        let is = |raw: Option<Raw<'_>>, word: &str| raw.and_then(Text::of).is_some_and(|text| text == word);
        if is(body.kind, "response.failed") {
            let response: Body<'_> = read(body.response?.get()).ok()?;
            return Self::inner(response.error?);
        }
        if let Some(detail) = body.detail {
            return Some(Self::of_detail(detail));
        }
        let flat = is(body.object, "error") || is(body.kind, "error") || named || body.message.is_some();
        flat.then(|| Self::of_body(&body))
    }

    fn inner(error: Raw<'_>) -> Option<Self> {
        match error.get().as_bytes().first() {
            Some(b'{') => read(error.get()).ok().map(|body| Self::of_body(&body)),
            Some(b'"') => Some(Self { message: string_or_json(error), ..Self::default() }),
            _ => Some(Self { message: error.get().to_owned(), ..Self::default() }),
        }
    }

    fn of_body(body: &Body<'_>) -> Self {
        let words = |raw: Option<Raw<'_>>| raw.and_then(Text::of).map(|text| text.decoded().into_owned());
        let number =
            |raw: Option<Raw<'_>>| raw.and_then(integer).and_then(|number| u16::try_from(number).ok());
        let kind = words(body.kind);
        let status = number(body.code).or_else(|| kind.as_deref().and_then(|kind| kind.parse().ok()));
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

    /// FastAPI: a text, or a list of `{loc, msg}`.
    fn of_detail(detail: Raw<'_>) -> Self {
        let Ok(entries) = read::<Vec<Members<'_>>>(detail.get()) else {
            return Self { message: string_or_json(detail), ..Self::default() };
        };
        let mut report = Self::default();
        for Members(entry) in entries {
            let find = |name: &str| entry.iter().find(|(key, _)| key == name).map(|(_, raw)| *raw);
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
            failure.status = http.filter(|status| *status >= 400).unwrap_or_else(|| status_of(code, fault));
        }
        let has_message = !self.message.is_empty();
        if has_message {
            failure.message = cut(&self.message).into();
        }
        failure.engine = EngineReport::of(http, &self.message, has_message);
        failure.param =
            self.param.map(|param| param.strip_prefix("body.").map(ToOwned::to_owned).unwrap_or(param));
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
            503 => Fault::EngineOverloaded,
            400..=499 if self.is_about_context() => Fault::ContextLength,
            400..=499 => Fault::InvalidRequest,
            _ => Fault::Internal,
        }
    }

    /// Types by which engines name a status, spelled in several ways each.
    fn kind_status(&self) -> Option<u16> {
        let kind: String = self.kind.as_deref()?.chars().filter(char::is_ascii_alphanumeric).collect();
        Some(match kind.to_ascii_lowercase().trim_end_matches("error") {
            "badrequest" | "validation" | "value" | "invalidrequest" | "exceedcontextsize" => 400,
            "authentication" => 401,
            "permissiondenied" | "permission" => 403,
            "notfound" => 404,
            "conflict" => 409,
            "ratelimit" | "toomanyrequests" | "insufficientquota" | "usagelimitreached" => 429,
            "usagenotincluded" => 403,
            "notimplemented" => 501,
            "serviceunavailable" | "unavailable" => 503,
            _ => return None,
        })
    }

    fn is_about_model(&self) -> bool {
        self.param.as_deref() == Some("model") || self.message.to_ascii_lowercase().contains("model")
    }

    fn is_about_context(&self) -> bool {
        let message = self.message.to_ascii_lowercase();
        let exceeds = message.find("exceeds").and_then(|at| message.get(at..));
        message.contains("maximum context length")
            || message.contains("longer than the model's context")
            // LMDeploy: "must be smaller than".
            || message.contains("smaller than the model context length")
            // llama.cpp: "the available context size".
            || exceeds.is_some_and(|rest| rest.contains("context length") || rest.contains("context size"))
    }
}

/// `error.type` values of the official API: with a string code such an error is passed on as it is.
const CANONICAL_TYPES: &[&str] = &[
    "invalid_request_error",
    "permission_error",
    "rate_limit_error",
    "server_error",
    "insufficient_quota",
    "usage_limit_reached",
    "usage_not_included",
];

/// The status for a canonical error inside a stream, where no status line says it: that of the code's own row.
fn status_of(code: &str, otherwise: Fault) -> u16 {
    Fault::of_code(code).unwrap_or(otherwise).row().0
}

fn string_or_json(raw: Raw<'_>) -> String {
    Text::of(raw).map_or_else(
        || {
            let mut out = BytesMut::new();
            crate::json::write_compact(raw.get(), &mut out);
            String::from_utf8_lossy(&out).into_owned()
        },
        |text| text.decoded().into_owned(),
    )
}

/// An engine's text, cut at the limit and without the paths of its files (engine-quirks H.4).
fn cut(message: &str) -> String {
    limited(without_paths(message))
}

/// At most [`MESSAGE_LIMIT`] bytes of a text.
fn limited(mut text: String) -> String {
    if text.len() > MESSAGE_LIMIT {
        text.truncate(text.floor_char_boundary(MESSAGE_LIMIT));
        text.push('…');
    }
    text
}

/// The beginning of a body that holds no error.
fn front(body: &[u8]) -> String {
    let front = body.get(..MESSAGE_LIMIT + 1).unwrap_or(body);
    String::from_utf8_lossy(front).trim().to_owned()
}

/// Python tracebacks name files of the server: `File "/usr/…/serving.py", line 12`. The name is taken out.
fn without_paths(message: &str) -> String {
    let mut text = String::with_capacity(message.len().min(2 * MESSAGE_LIMIT));
    let mut rest = message;
    const MARK: &str = "File \"";
    while let Some(at) = rest.find(MARK) {
        let (before, behind) = rest.split_at(at + MARK.len());
        text.push_str(before);
        text.push('…');
        // A message that was cut may name the next file before this one's name has ended.
        let (path, next) = behind.split_at(behind.find(MARK).unwrap_or(behind.len()));
        rest = match path.find('"') {
            Some(end) => behind.get(end..).unwrap_or(""),
            None => next,
        };
        if text.len() > MESSAGE_LIMIT {
            return text;
        }
    }
    text.push_str(rest);
    text
}

/// Whether a chunk of a stream is an error in disguise: keys that no chunk has.
pub(crate) fn is_error_object(object: Option<Raw<'_>>, kind: Option<Raw<'_>>) -> bool {
    let is = |raw: Option<Raw<'_>>, words: &[&str]| {
        raw.and_then(Text::of).is_some_and(|text| words.iter().any(|word| text == *word))
    };
    is(object, &["error"]) || is(kind, &["error", "response.failed", "response.error"])
}

#[cfg(test)]
mod tests {
    use super::*;

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
                r#"{"error":{"message":"The upstream engine returned an invalid response (HTTP 500).","type":"server_error","param":null,"code":"upstream_invalid_response"}}"#,
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
        assert_eq!((failure.status, failure.code.as_deref()), (502, Some("upstream_error")));
    }
}
