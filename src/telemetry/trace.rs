//! Traces of requests: the trace context of client and engine (W3C Trace Context), and the facts that a finished
//! request exports.
//!
//! Takes: the client's trace headers, and random bytes. Gives: the trace headers for engines, and one
//! [`FinishedRequest`] per traced request. Remembers: nothing that grows. Never: waits for a trace collector, or
//! adds work per token.

use super::{End, Gauge, RouteLabel};
use crate::wire::event::Usage;
use data_encoding::HEXLOWER;
use http::{HeaderMap, HeaderValue, Method};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Longest `tracestate` that is forwarded, in bytes.
const STATE: usize = 512;
/// Maximum number of vendors' members in `tracestate`.
const MEMBERS: usize = 32;

/// Spans that the collector accepted, and spans that were lost. Static, because there is one exporter per process.
pub(super) static EXPORTED: Gauge = Gauge::of(0);
pub(super) static DROPPED: Gauge = Gauge::of(0);

/// Content of a `traceparent` header: trace id, span id of the sender, and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    trace: [u8; 16],
    span: [u8; 8],
    flags: u8,
}

/// Flag: the trace is recorded.
const SAMPLED: u8 = 1;
/// Known flags: recorded, and trace id drawn at random. Others are cleared.
const FLAGS: u8 = 3;

impl Parent {
    /// Parses `<2 hex>-<32 hex>-<16 hex>-<2 hex>` with ids that are not all zero. Versions after 00 may append
    /// further fields.
    pub fn read(text: &[u8]) -> Option<Self> {
        let (known, more) = text.split_at_checked(55)?;
        let mut parts = known.split(|byte| *byte == b'-');
        let version: [u8; 1] = hex(parts.next()?)?;
        let trace = hex(parts.next()?)?;
        let span = hex(parts.next()?)?;
        let [flags] = hex(parts.next()?)?;
        let good = match version {
            [0] => more.is_empty(),
            [0xff] => false,
            _ => more.is_empty() || more.starts_with(b"-"),
        };
        let named = trace != [0; 16] && span != [0; 8] && parts.next().is_none();
        (good && named).then_some(Self {
            trace,
            span,
            flags: flags & FLAGS,
        })
    }

    /// Returns the content of `traceparent` if the client sent exactly one and it is valid.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut all = headers.get_all("traceparent").iter();
        let (Some(only), None) = (all.next(), all.next()) else {
            return None;
        };
        Self::read(only.as_bytes())
    }

    /// Returns the header's value in version 00.
    fn text(&self) -> String {
        let hex = |id: &[u8]| HEXLOWER.encode(id);
        format!(
            "00-{}-{}-{}",
            hex(&self.trace),
            hex(&self.span),
            hex(&[self.flags])
        )
    }
}

/// Parses exactly `2 * N` lower-case hex digits.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    HEXLOWER.decode(text).ok()?.try_into().ok()
}

/// Returns the client's `tracestate` if it is a valid list of `key=value` within the limits. Meaningful only with
/// a valid `traceparent`.
fn state(headers: &HeaderMap) -> Option<HeaderValue> {
    let lines: Option<Vec<_>> = headers
        .get_all("tracestate")
        .iter()
        .map(|line| line.to_str().ok())
        .collect();
    let text = lines?.join(",");
    let members = text
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']))
        .filter(|member| !member.is_empty());
    let pair = |member: &str| {
        member.split_once('=').is_some_and(|(key, value)| {
            !key.is_empty() && !value.is_empty() && !value.contains('=')
        })
    };
    let good = (1..=STATE).contains(&text.len())
        && (1..=MEMBERS).contains(&members.clone().count())
        && members.clone().all(pair);
    HeaderValue::from_str(&text).ok().filter(|_| good)
}

/// Trace headers that engines receive with a request, depending on whether it is traced here.
#[derive(Clone, Debug)]
pub enum Propagation {
    /// Client's own headers, if valid. The request is not traced here.
    Passed(Vec<(&'static str, HeaderValue)>),
    /// Headers that make the attempt a span of this request's trace.
    Traced(Arc<Trace>),
}

impl Propagation {
    /// Selects the headers for a request: its trace if it has one, else those of the client.
    pub fn of(trace: Option<&Arc<Trace>>, headers: &HeaderMap) -> Self {
        match trace {
            Some(trace) => Self::Traced(Arc::clone(trace)),
            None => {
                let parent = Parent::of(headers);
                Self::Passed(parent.map_or_else(Vec::new, |parent| lines(&parent, state(headers))))
            }
        }
    }

    /// Records the start of an attempt if the request is traced, and returns the trace headers to send.
    pub fn begin(&self, peer: &Arc<Peer>) -> Vec<(&'static str, HeaderValue)> {
        match self {
            Self::Passed(lines) => lines.clone(),
            Self::Traced(trace) => trace.attempt(peer),
        }
    }

    /// Marks further attempts as parallel, so that none ends where the next begins.
    pub fn mark_parallel(&self) {
        if let Self::Traced(trace) = self {
            trace.parallel.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the same trace with new span ids, for another request of the client on the same connection.
    pub fn for_next_request(&self) -> Option<Arc<Trace>> {
        match self {
            Self::Passed(_) => None,
            Self::Traced(trace) => {
                let mut spans = [0; 16];
                getrandom::fill(&mut spans).ok()?;
                let (span, first) = span_ids(spans);
                let (state, attempts) = (trace.state.clone(), Mutex::default());
                let parallel = AtomicBool::new(false);
                Some(Arc::new(Trace {
                    span,
                    first,
                    state,
                    attempts,
                    parallel,
                    ..**trace
                }))
            }
        }
    }
}

fn lines(parent: &Parent, state: Option<HeaderValue>) -> Vec<(&'static str, HeaderValue)> {
    let parent = HeaderValue::from_str(&parent.text()).ok();
    [("traceparent", parent), ("tracestate", state)]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// Trace of one request: ids, the client's trace state, and the attempts so far.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "otlp"),
    expect(dead_code, reason = "the exporter reads it")
)]
pub struct Trace {
    pub(super) trace: [u8; 16],
    /// Span id of the client.
    pub(super) parent: Option<[u8; 8]>,
    /// Span id of this server.
    pub(super) span: [u8; 8],
    /// Span id of the first attempt; later attempts count up from it.
    first: u64,
    pub(super) flags: u8,
    state: Option<HeaderValue>,
    pub(super) method: &'static str,
    attempts: Mutex<Vec<TracedAttempt>>,
    /// True if several attempts ran in parallel.
    parallel: AtomicBool,
}

/// Network address and name of the upstream of an attempt, as span attributes.
#[derive(Debug, Default)]
pub struct Peer {
    /// Name of the upstream.
    pub name: String,
    /// Host, as configured.
    pub host: String,
    /// Port of the upstream.
    pub port: u16,
}

/// Attempt at an engine: its start time and its upstream. It ends with the next one or with the request.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "otlp"),
    expect(dead_code, reason = "the exporter reads it")
)]
pub(super) struct TracedAttempt {
    pub(super) began: Instant,
    pub(super) peer: Arc<Peer>,
}

/// Returns the ids of the server span and of the first attempt's span. The latter leaves room to count up, and is
/// never zero.
fn span_ids(chance: [u8; 16]) -> ([u8; 8], u64) {
    let chance = u128::from_be_bytes(chance);
    let [span, first] = [chance >> 64, chance].map(|half| half as u64);
    (span.to_be_bytes(), first >> 1 | 1)
}

impl Trace {
    pub(super) fn begin(
        headers: &HeaderMap,
        method: &Method,
        sample: f64,
        [trace, spans]: [[u8; 16]; 2],
    ) -> Self {
        let (span, first) = span_ids(spans);
        let parent = Parent::of(headers);
        let flags = match &parent {
            Some(parent) => parent.flags,
            None => {
                FLAGS
                    ^ if is_sampled(&trace, sample) {
                        0
                    } else {
                        SAMPLED
                    }
            }
        };
        Self {
            trace: parent.map_or(trace, |parent| parent.trace),
            parent: parent.map(|parent| parent.span),
            span,
            first,
            flags,
            state: parent.and_then(|_| state(headers)),
            method: method_label(method),
            attempts: Mutex::default(),
            parallel: AtomicBool::new(false),
        }
    }

    /// Returns true if the trace is recorded, by the decision of the client or of this proxy.
    pub(super) fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    fn of_attempt(&self, attempt: usize) -> [u8; 8] {
        self.first
            .saturating_add(u64::try_from(attempt).unwrap_or(0))
            .to_be_bytes()
    }

    /// Records the start of a further attempt, and returns the trace headers that the engine gets.
    fn attempt(&self, peer: &Arc<Peer>) -> Vec<(&'static str, HeaderValue)> {
        let mut attempts = self.attempts.lock();
        let span = self.of_attempt(attempts.len());
        attempts.push(TracedAttempt {
            began: Instant::now(),
            peer: Arc::clone(peer),
        });
        lines(
            &Parent {
                trace: self.trace,
                span,
                flags: self.flags,
            },
            self.state.clone(),
        )
    }

    /// Returns the trace id as 32 hex digits, so that log lines can be matched with traces.
    pub fn id(&self) -> String {
        HEXLOWER.encode(&self.trace)
    }
}

/// Decides from the trace id if the trace is recorded. Every process with the same rate decides the same.
fn is_sampled(trace: &[u8; 16], sample: f64) -> bool {
    let chance = trace
        .last_chunk()
        .map_or(0, |last| u64::from_be_bytes(*last));
    // An `f64` represents 53 bits exactly.
    #[expect(
        clippy::cast_precision_loss,
        reason = "just those that are kept are asked"
    )]
    let chance = (chance & ((1 << 53) - 1)) as f64;
    chance < sample * 2_f64.powi(53)
}

/// Returns the method as a word of a closed set, so that no client text enters a span.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "_OTHER",
    }
}

/// Finished request as it is exported. Contains no text of the client or of the answer, except the request's id.
#[derive(Debug)]
pub struct FinishedRequest {
    /// Trace of the request, with its attempts.
    pub trace: Arc<Trace>,
    /// Route of the request.
    pub route: RouteLabel,
    /// Id of the request.
    pub request_id: Arc<str>,
    /// HTTP status that the client received; 499 if the client left before one.
    pub status: u16,
    /// Outcome of the request.
    pub end: End,
    /// Error code from the fault table, if the request failed.
    pub code: Option<&'static str>,
    /// True if the failure is the engine's, or of the connection to it.
    pub by_engine: bool,
    /// Model name, as a label value.
    pub model: Arc<str>,
    /// Name of the last attempt's engine; `none` without an attempt.
    pub engine: &'static str,
    /// Token counts of the engine.
    pub usage: Option<Usage>,
    /// Finish reasons of the choices.
    pub finishes: Vec<&'static str>,
    /// Time from the request's arrival to the first text of the engine.
    pub first_token: Option<Duration>,
    /// Time at which the request arrived.
    pub started: Instant,
    /// Time at which the request ended, by the monotonic and by the wall clock.
    pub ended: (Instant, SystemTime),
}

impl FinishedRequest {
    /// Returns the number of spans: one for the server, and one for each attempt.
    pub(super) fn spans(&self) -> i64 {
        i64::try_from(1 + self.trace.attempts.lock().len()).unwrap_or(i64::MAX)
    }
}

impl Trace {
    /// Returns the attempts with their span ids.
    #[cfg(feature = "otlp")]
    pub(super) fn attempts(&self) -> Vec<([u8; 8], TracedAttempt)> {
        let attempts = self.attempts.lock();
        attempts
            .iter()
            .enumerate()
            .map(|(at, attempt)| (self.of_attempt(at), attempt.clone()))
            .collect()
    }

    /// Returns true if the attempts ran in parallel, not one after the other.
    #[cfg(feature = "otlp")]
    pub(super) fn were_at_once(&self) -> bool {
        self.parallel.load(Ordering::Relaxed)
    }

    /// Returns the forwarded `tracestate`; empty if there is none.
    #[cfg(feature = "otlp")]
    pub(super) fn state(&self) -> &str {
        self.state
            .as_ref()
            .and_then(|state| state.to_str().ok())
            .unwrap_or("")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tracer;
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn parents_are_read_as_w3c_says() {
        assert_eq!(Parent::read(GOOD.as_bytes()).unwrap().text(), GOOD);
        for (text, written) in [
            (GOOD.replace("-01", "-00"), Some("-00")),
            (GOOD.replace("-01", "-ff"), Some("-03")),
            (GOOD.replace("00-0", "cc-0"), Some("-01")),
            (GOOD.replace("00-0", "cc-0") + "-more", Some("-01")),
            (GOOD.replace("00-0", "01-0") + "-", Some("-01")),
            (GOOD.replace("00-0", "cc-0") + ".more", None),
            (GOOD.to_owned() + "-more", None),
            (GOOD.to_owned() + "-", None),
            (GOOD.replace("00-0", "ff-0"), None),
            (GOOD.to_uppercase(), None),
            (
                GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
                None,
            ),
            (GOOD.replace("b7ad6b7169203331", &"0".repeat(16)), None),
            (GOOD.replace("0af7", "0ag7"), None),
            (GOOD.replace("-01", "-0"), None),
            (GOOD.replace("-01", "-0x"), None),
            (GOOD.replace("-b7", "b7-"), None),
            (GOOD.replace('-', "_"), None),
            (GOOD.replace("00-0", "0-00"), None),
            (format!(" {GOOD}"), None),
            (String::new(), None),
            ("00".to_owned(), None),
            ("-".repeat(55), None),
        ] {
            let read = Parent::read(text.as_bytes()).map(|parent| parent.text());
            assert_eq!(
                read,
                written.map(|flags| GOOD.replace("-01", flags)),
                "{text}"
            );
        }
    }

    #[test]
    fn states_are_lists_of_pairs() {
        let state = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("tracestate", HeaderValue::from_str(line).unwrap());
            }
            state(&headers).map(|state| state.to_str().unwrap().to_owned())
        };
        let long = format!("a={}", "b".repeat(STATE));
        let many = "a=b,".repeat(MEMBERS + 1);
        for (lines, expected) in [
            (&["a=b"][..], Some("a=b")),
            (&["a=b, c@d=e f"], Some("a=b, c@d=e f")),
            (&["a=b", "c=d"], Some("a=b,c=d")),
            (&["a=b,,c=d"], Some("a=b,,c=d")),
            (&[], None),
            (&[""], None),
            (&[","], None),
            (&["garbage"], None),
            (&["a=b=c"], None),
            (&["=b"], None),
            (&[&long], None),
            (&[&many], None),
        ] {
            assert_eq!(state(lines).as_deref(), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_share_of_new_traces_is_recorded_and_the_client_decides_of_its_own() {
        let begin = |parent: Option<&str>, sample: f64, last: u64| {
            let mut headers = HeaderMap::new();
            if let Some(parent) = parent {
                headers.insert("traceparent", HeaderValue::from_str(parent).unwrap());
            }
            let mut trace = [7; 16];
            trace[8..].copy_from_slice(&last.to_be_bytes());
            Trace::begin(&headers, &Method::POST, sample, [trace, [7; 16]])
        };
        let unsampled = GOOD.replace("-01", "-00");
        for (parent, sample, last, recorded) in [
            (None, 1.0, u64::MAX, true),
            (None, 0.0, 0, false),
            (None, 0.5, (1 << 52) - 1, true),
            (None, 0.5, 1 << 52, false),
            (Some(GOOD), 0.0, 0, true),
            (Some(unsampled.as_str()), 1.0, 0, false),
            (Some("garbage"), 1.0, 0, true),
        ] {
            let (trace, peer) = (begin(parent, sample, last), Arc::default());
            assert_eq!(trace.is_sampled(), recorded, "{parent:?} {sample} {last}");
            let told = trace.attempt(&peer);
            let parent_told = Parent::read(told[0].1.as_bytes()).unwrap();
            assert_eq!(
                (parent_told.flags & SAMPLED != 0, told.len()),
                (recorded, 1)
            );
            assert_eq!(
                trace.parent.is_some(),
                parent.is_some_and(|parent| parent != "garbage")
            );
            let second = Parent::read(trace.attempt(&peer)[0].1.as_bytes()).unwrap();
            assert_eq!(
                (second.trace, trace.trace),
                (parent_told.trace, parent_told.trace)
            );
            assert!(
                second.span != parent_told.span && trace.span != second.span,
                "spans of their own"
            );
        }
    }

    #[test]
    fn nothing_is_traced_unless_asked_for() {
        let tracer = Tracer::start(None).unwrap();
        assert!(tracer.begin(&HeaderMap::new(), &Method::GET).is_none());
    }
}
