//! OTLP encoding of finished requests: protobuf, with the attribute names of OpenTelemetry's semantic conventions
//! for HTTP and generative models.
//!
//! Only the few messages needed here are defined, of the many in the protocol (opentelemetry-proto, `trace/v1`).
//! Tests decode them with the protocol's own definitions.

use super::trace::{FinishedRequest, Peer};
use super::{End, RouteLabel};
use prost::{Message, Oneof};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Span kinds: server and client.
const SERVER: i32 = 2;
const CLIENT: i32 = 3;
/// Status code of a failed span.
const ERROR: i32 = 2;
/// Bits of `flags`: the origin of the parent span is known, and the parent is in another process.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceSpans>,
}

/// Answer of a collector.
#[derive(Clone, PartialEq, Message)]
struct Exported {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// Returns how many spans a collector rejects by its answer, and its reason; `None` if it rejects none.
pub(super) fn rejected(answer: &[u8]) -> Option<(i64, String)> {
    let PartialSuccess {
        rejected_spans,
        error_message,
    } = Exported::decode(answer).ok()?.partial_success?;
    (rejected_spans > 0).then_some((rejected_spans, error_message))
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<OtlpSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<Attribute>,
    #[prost(message, optional, tag = "15")]
    status: Option<SpanStatus>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct SpanStatus {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AttributeValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AttributeValue {
    #[prost(oneof = "SpanKind", tags = "1, 3, 4, 5")]
    kind: Option<SpanKind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum SpanKind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
    #[prost(double, tag = "4")]
    Real(f64),
    #[prost(message, tag = "5")]
    List(AttributeList),
}

#[derive(Clone, PartialEq, Message)]
struct AttributeList {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AttributeValue>,
}

impl From<&str> for SpanKind {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for SpanKind {
    fn from(number: u64) -> Self {
        Self::Number(number.try_into().unwrap_or(i64::MAX))
    }
}

/// Builder for a list of attributes.
#[derive(Default)]
struct Attributes(Vec<Attribute>);

impl Attributes {
    fn add(&mut self, key: &str, kind: impl Into<SpanKind>) {
        let value = Some(AttributeValue {
            kind: Some(kind.into()),
        });
        self.0.push(Attribute {
            key: key.to_owned(),
            value,
        });
    }
}

/// Returns the protobuf body of one post, with the spans of all these requests.
pub(super) fn encoded(all: &[FinishedRequest]) -> Vec<u8> {
    let mut resource = Attributes::default();
    resource.add("service.name", env!("CARGO_PKG_NAME"));
    resource.add("service.version", env!("CARGO_PKG_VERSION"));
    let scope = Scope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let spans = all.iter().flat_map(spans).collect();
    let of_scope = ScopeSpans {
        scope: Some(scope),
        spans,
    };
    let resource = Some(Resource {
        attributes: resource.0,
    });
    Export {
        resources: vec![ResourceSpans {
            resource,
            scopes: vec![of_scope],
        }],
    }
    .encode_to_vec()
}

/// Returns the server span of a request, and one client span for each attempt.
fn spans(told: &FinishedRequest) -> Vec<OtlpSpan> {
    let attempts = told.trace.attempts();
    let all = (0..).zip(&attempts).map(|(at, (id, attempt))| {
        // Attempts follow one another, so each ends where the next begins. Model lists are fetched from all
        // upstreams at once, and the choices of one answer may be requested in parallel.
        let at_once = told.route == RouteLabel::Models || told.trace.were_at_once();
        let next = attempts.get(at + 1).filter(|_| !at_once);
        let tells =
            next.is_none() && (at + 1 == attempts.len() || told.route == RouteLabel::Models);
        let failed = next.is_some() || told.by_engine;
        OtlpSpan {
            span_id: id.to_vec(),
            parent_span_id: told.trace.span.to_vec(),
            name: name(told, CLIENT),
            kind: CLIENT,
            start: nanoseconds(told, attempt.began),
            end: nanoseconds(told, next.map_or(told.ended.0, |(_, next)| next.began)),
            attributes: of_attempt(told, at, &attempt.peer, (next.is_some(), tells)),
            status: failed.then_some(SpanStatus { code: ERROR }),
            flags: u32::from(told.trace.flags) | HAS_IS_REMOTE,
            ..common(told)
        }
    });
    [of_server(told)].into_iter().chain(all).collect()
}

fn common(told: &FinishedRequest) -> OtlpSpan {
    let (trace_id, trace_state) = (told.trace.trace.to_vec(), told.trace.state().to_owned());
    OtlpSpan {
        trace_id,
        trace_state,
        ..OtlpSpan::default()
    }
}

fn of_server(told: &FinishedRequest) -> OtlpSpan {
    let ids = &*told.trace;
    let remote = if ids.parent.is_some() { IS_REMOTE } else { 0 };
    let mut attributes = Attributes::default();
    attributes.add("http.request.method", ids.method);
    attributes.add("http.response.status_code", u64::from(told.status));
    attributes.add("url.scheme", "http");
    if let Some(route) = route(told.route) {
        attributes.add("http.route", route);
    }
    of_model(told, &mut attributes);
    attributes.add("samewire.request_id", &*told.request_id);
    attributes.add("samewire.end", told.end.name());
    if let Some(code) = told.code {
        attributes.add("error.type", code);
    }
    // Client errors are not failures of the server.
    let failed = told.status >= 500 || told.by_engine;
    OtlpSpan {
        span_id: ids.span.to_vec(),
        parent_span_id: ids.parent.map_or_else(Vec::new, |parent| parent.to_vec()),
        name: name(told, SERVER),
        kind: SERVER,
        start: nanoseconds(told, told.started),
        end: nanoseconds(told, told.ended.0),
        attributes: attributes.0,
        status: failed.then_some(SpanStatus { code: ERROR }),
        flags: u32::from(ids.flags) | HAS_IS_REMOTE | remote,
        ..common(told)
    }
}

/// Returns the attributes of one attempt. Attributes of the answer appear on the last attempt only, or on all of
/// them if they fetched model lists.
fn of_attempt(
    told: &FinishedRequest,
    at: usize,
    peer: &Peer,
    (failed, tells): (bool, bool),
) -> Vec<Attribute> {
    let mut attributes = Attributes::default();
    of_model(told, &mut attributes);
    attributes.add(
        "server.address",
        peer.host.trim_start_matches('[').trim_end_matches(']'),
    );
    attributes.add("server.port", u64::from(peer.port));
    attributes.add("samewire.upstream", peer.name.as_str());
    attributes.add(
        "samewire.attempt",
        u64::try_from(at + 1).unwrap_or(u64::MAX),
    );
    if failed {
        attributes.add("error.type", "_OTHER");
    }
    if !tells {
        return attributes.0;
    }
    attributes.add("gen_ai.provider.name", told.engine);
    if let Some(usage) = &told.usage {
        attributes.add("gen_ai.usage.input_tokens", usage.prompt);
        attributes.add("gen_ai.usage.output_tokens", usage.completion);
        if usage.cached > 0 {
            attributes.add("gen_ai.usage.cache_read.input_tokens", usage.cached);
        }
    }
    if !told.finishes.is_empty() {
        let value = |finish: &&str| AttributeValue {
            kind: Some((*finish).into()),
        };
        let values = told.finishes.iter().map(value).collect();
        attributes.add(
            "gen_ai.response.finish_reasons",
            SpanKind::List(AttributeList { values }),
        );
    }
    if let Some(wait) = told.first_token {
        attributes.add(
            "samewire.time_to_first_token",
            SpanKind::Real(wait.as_secs_f64()),
        );
    }
    if let Some(code) = told.code.filter(|_| told.end == End::Error) {
        attributes.add("error.type", code);
    }
    attributes.0
}

fn of_model(told: &FinishedRequest, attributes: &mut Attributes) {
    if let Some(operation) = operation(told.route) {
        attributes.add("gen_ai.operation.name", operation);
        attributes.add("gen_ai.request.model", &*told.model);
    }
}

/// Returns the span's name: the operation and the model, or the method and the route.
fn name(told: &FinishedRequest, kind: i32) -> String {
    match (operation(told.route), route(told.route)) {
        (Some(operation), _) if kind == CLIENT => format!("{operation} {}", told.model),
        (_, Some(route)) => format!("{} {route}", told.trace.method),
        (_, None) => told.trace.method.to_owned(),
    }
}

fn operation(route: RouteLabel) -> Option<&'static str> {
    match route {
        RouteLabel::Chat | RouteLabel::Responses | RouteLabel::Messages => Some("chat"),
        RouteLabel::Completions => Some("text_completion"),
        RouteLabel::Embeddings => Some("embeddings"),
        RouteLabel::Conversations
        | RouteLabel::Batch
        | RouteLabel::Relay
        | RouteLabel::Models
        | RouteLabel::Usage
        | RouteLabel::Unknown => None,
    }
}

fn route(route: RouteLabel) -> Option<&'static str> {
    Some(match route {
        RouteLabel::Chat => "/v1/chat/completions",
        RouteLabel::Completions => "/v1/completions",
        RouteLabel::Responses => "/v1/responses",
        RouteLabel::Messages => "/v1/messages",
        RouteLabel::Conversations => "/v1/conversations",
        RouteLabel::Embeddings => "/v1/embeddings",
        RouteLabel::Models => "/v1/models",
        RouteLabel::Usage => "/v1/usage",
        RouteLabel::Batch => "/v1/batches",
        // Operators may configure any number of relayed paths, but span names must be few.
        RouteLabel::Relay => "/{relayed}",
        RouteLabel::Unknown => return None,
    })
}

/// Returns an instant as wall-clock time in nanoseconds since 1970. Spans are measured with the monotonic clock,
/// and converted here relative to the end of the request.
fn nanoseconds(told: &FinishedRequest, at: Instant) -> u64 {
    let (end, wall) = told.ended;
    let then = wall
        .checked_sub(end.saturating_duration_since(at))
        .unwrap_or(SystemTime::UNIX_EPOCH);
    let since = then
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    u64::try_from(since).unwrap_or(u64::MAX)
}
