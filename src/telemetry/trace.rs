//! Traces: which one a request belongs to (W3C Trace Context), and what is told of it once it is over.
//!
//! Takes: what a client says of its trace, and chance. Gives: what engines are told, and one [`Told`] for each finished
//! request. Remembers: nothing that grows. Never: waits for whoever collects traces, or costs a token anything.

use super::{End, Route};
use crate::config::TraceConfig;
use crate::wire::event::Usage;
use http::{HeaderMap, HeaderValue, Method};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Bytes of `tracestate` that go on.
const STATE: usize = 512;
/// Vendors in it.
const MEMBERS: usize = 32;

/// Spans that were taken by the collector, and such that were not: the exporter belongs to the process.
static EXPORTED: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Spans exported and dropped since the start.
pub(super) fn counts() -> (u64, u64) {
    (EXPORTED.load(Ordering::Relaxed), DROPPED.load(Ordering::Relaxed))
}

/// So many spans are lost.
pub(super) fn dropped(spans: usize) {
    DROPPED.fetch_add(u64::try_from(spans).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// So many spans are where they should be.
#[cfg(feature = "otlp")]
pub(super) fn exported(spans: usize) {
    EXPORTED.fetch_add(u64::try_from(spans).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// What `traceparent` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    trace: [u8; 16],
    span: [u8; 8],
    flags: u8,
}

/// The trace is recorded.
const SAMPLED: u8 = 1;
/// Flags that are known: sampled, and that the trace's id was drawn at random.
const FLAGS: u8 = 3;

impl Parent {
    /// Reads `<2 hex>-<32 hex>-<16 hex>-<2 hex>`, ids not all zero. Later versions than 00 may have more behind that.
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
        (good && named).then_some(Self { trace, span, flags: flags & FLAGS })
    }

    /// What a client's head says, if that is one thing, and can be read.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut all = headers.get_all("traceparent").iter();
        let (Some(only), None) = (all.next(), all.next()) else { return None };
        Self::read(only.as_bytes())
    }

    /// As it is written.
    fn text(&self) -> String {
        let mut text = String::with_capacity(55);
        text.push_str("00-");
        self.trace.iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
        text.push('-');
        self.span.iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
        let _ = write!(text, "-{:02x}", self.flags);
        text
    }
}

/// Lower-case hex digits of just this many bytes.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = pair.iter().try_fold(0, |byte, letter| Some(byte << 4 | digit(*letter)?))?;
    }
    Some(bytes)
}

/// What `tracestate` says, if it is a list of `key=value`; of use only with a parent.
fn state(headers: &HeaderMap) -> Option<HeaderValue> {
    let lines: Option<Vec<_>> = headers.get_all("tracestate").iter().map(|line| line.to_str().ok()).collect();
    let text = lines?.join(",");
    let members =
        text.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty());
    let pair = |member: &str| {
        member
            .split_once('=')
            .is_some_and(|(key, value)| !key.is_empty() && !value.is_empty() && !value.contains('='))
    };
    let good = (1..=STATE).contains(&text.len())
        && (1..=MEMBERS).contains(&members.clone().count())
        && members.clone().all(pair);
    HeaderValue::from_str(&text).ok().filter(|_| good)
}

/// What engines are told of a request's trace.
#[derive(Clone, Debug)]
pub enum Propagation {
    /// What the client says, if that can be read: nothing is traced here.
    Passed(Vec<(&'static str, HeaderValue)>),
    /// That they are part of ours.
    Traced(Arc<Trace>),
}

impl Propagation {
    /// Of a request that is traced, or is not.
    pub fn of(trace: Option<&Arc<Trace>>, headers: &HeaderMap) -> Self {
        match trace {
            Some(trace) => Self::Traced(Arc::clone(trace)),
            None => {
                let parent = Parent::of(headers);
                Self::Passed(parent.map_or_else(Vec::new, |parent| lines(&parent, state(headers))))
            }
        }
    }

    /// An attempt begins: the lines of its head.
    pub fn begin(&self, peer: &Arc<Peer>) -> Vec<(&'static str, HeaderValue)> {
        match self {
            Self::Passed(lines) => lines.clone(),
            Self::Traced(trace) => trace.attempt(peer),
        }
    }

    /// From now on attempts begin beside each other.
    pub fn at_once(&self) {
        if let Self::Traced(trace) = self {
            trace.at_once.store(true, Ordering::Relaxed);
        }
    }

    /// The same trace for a further request that the same client makes by the same connection.
    pub fn again(&self) -> Option<Arc<Trace>> {
        match self {
            Self::Passed(_) => None,
            Self::Traced(trace) => {
                let mut spans = [0; 16];
                getrandom::fill(&mut spans).ok()?;
                let (span, first) = spans_of(&spans);
                let (state, attempts) = (trace.state.clone(), Mutex::default());
                let at_once = AtomicBool::new(false);
                Some(Arc::new(Trace { span, first, state, attempts, at_once, ..**trace }))
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

/// Random bytes that a trace takes: its id, that of our span, and that of the first attempt's.
const CHANCE: usize = 32;

/// The trace of one request.
#[derive(Debug)]
#[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "the exporter reads it"))]
pub struct Trace {
    trace: [u8; 16],
    /// The client's span.
    parent: Option<[u8; 8]>,
    /// Ours.
    span: [u8; 8],
    /// The first attempt's; others follow it.
    first: u64,
    flags: u8,
    state: Option<HeaderValue>,
    method: &'static str,
    attempts: Mutex<Vec<Attempt>>,
    /// Several of them were under way at the same time.
    at_once: AtomicBool,
}

/// Who is asked.
#[derive(Debug, Default)]
pub struct Peer {
    /// The upstream's name.
    pub name: String,
    /// Its host, as written.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Once that an engine was asked: when, and which.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "the exporter reads it"))]
pub(super) struct Attempt {
    pub(super) began: Instant,
    pub(super) peer: Arc<Peer>,
}

/// Ids of our span, and of the first attempt's, which is never zero, however many follow.
fn spans_of(chance: &[u8; 16]) -> ([u8; 8], u64) {
    let [mut span, mut first] = [[0; 8]; 2];
    for (to, from) in [&mut span, &mut first].into_iter().zip(chance.chunks_exact(8)) {
        to.copy_from_slice(from);
    }
    (span, u64::from_be_bytes(first) >> 1 | 1)
}

impl Trace {
    fn begin(headers: &HeaderMap, method: &Method, sample: f64, chance: &[u8; CHANCE]) -> Self {
        let mut trace = [0; 16];
        let mut spans = [0; 16];
        for (to, from) in [&mut trace, &mut spans].into_iter().zip(chance.chunks_exact(16)) {
            to.copy_from_slice(from);
        }
        let (span, first) = spans_of(&spans);
        let parent = Parent::of(headers);
        let flags = match &parent {
            Some(parent) => parent.flags,
            None => FLAGS ^ if is_sampled(&trace, sample) { 0 } else { SAMPLED },
        };
        Self {
            trace: parent.map_or(trace, |parent| parent.trace),
            parent: parent.map(|parent| parent.span),
            span,
            first,
            flags,
            state: parent.and_then(|_| state(headers)),
            method: known(method),
            attempts: Mutex::default(),
            at_once: AtomicBool::new(false),
        }
    }

    /// Whether it is recorded.
    fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    fn of_attempt(&self, attempt: usize) -> [u8; 8] {
        self.first.saturating_add(u64::try_from(attempt).unwrap_or(0)).to_be_bytes()
    }

    /// The engine is asked, once more: what it is told.
    fn attempt(&self, peer: &Arc<Peer>) -> Vec<(&'static str, HeaderValue)> {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let span = self.of_attempt(attempts.len());
        attempts.push(Attempt { began: Instant::now(), peer: Arc::clone(peer) });
        lines(&Parent { trace: self.trace, span, flags: self.flags }, self.state.clone())
    }

    /// The trace's id, for the log.
    pub fn id(&self) -> String {
        self.trace.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Whether a trace of this id is among those that are recorded; the same everywhere for the same id.
fn is_sampled(trace: &[u8; 16], sample: f64) -> bool {
    let chance = trace.last_chunk().map_or(0, |last| u64::from_be_bytes(*last));
    // 53 bits, which is what the number holds.
    #[expect(clippy::cast_precision_loss, reason = "just those that are kept are asked")]
    let chance = (chance & ((1 << 53) - 1)) as f64;
    chance < sample * 2_f64.powi(53)
}

/// The method as a word of a closed set.
fn known(method: &Method) -> &'static str {
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

/// A finished request, as its trace tells it. Nothing in it is a client's or an answer's text, except the request's id.
#[derive(Debug)]
pub struct FinishedRequest {
    /// Its trace.
    pub trace: Arc<Trace>,
    /// What was asked for.
    pub route: Route,
    /// Its id.
    pub request_id: String,
    /// The status that the client saw; 499 if it left before one.
    pub status: u16,
    /// How it ended.
    pub end: End,
    /// Why, if not well: a code of the closed table.
    pub code: Option<&'static str>,
    /// The fault is the engine's, or on the way to it.
    pub by_engine: bool,
    /// The model, as a label.
    pub model: Arc<str>,
    /// The engine's name, if one was asked.
    pub engine: &'static str,
    /// Tokens, as the engine counted them.
    pub usage: Option<Usage>,
    /// How the choices finished.
    pub finishes: Vec<&'static str>,
    /// From the request's arrival to the engine's first word.
    pub first_token: Option<Duration>,
    /// When the request came.
    pub started: Instant,
    /// When it was over.
    pub ended: (Instant, SystemTime),
}

impl FinishedRequest {
    /// How many spans it is.
    pub(super) fn spans(&self) -> usize {
        1 + self.trace.attempts.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// What begins and takes traces. Without a collector, nothing.
#[derive(Debug, Default)]
pub struct Tracer(Option<Tracing>);

#[derive(Debug)]
struct Tracing {
    sample: f64,
    #[cfg(feature = "otlp")]
    exporter: super::export::Exporter,
}

impl Tracer {
    /// Starts what the configuration asks for.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(config: Option<&Arc<TraceConfig>>) -> std::io::Result<Self> {
        let tracing = config.map(|config| {
            std::io::Result::Ok(Tracing {
                sample: config.sample,
                #[cfg(feature = "otlp")]
                exporter: super::export::Exporter::start(Arc::clone(config))?,
            })
        });
        tracing.transpose().map(Self)
    }

    /// The trace of a request that has just come; `None`: nothing is traced.
    pub fn begin(&self, headers: &HeaderMap, method: &Method) -> Option<Arc<Trace>> {
        let tracing = self.0.as_ref()?;
        let mut chance = [0; CHANCE];
        getrandom::fill(&mut chance).ok()?;
        Some(Arc::new(Trace::begin(headers, method, tracing.sample, &chance)))
    }

    /// A request is over.
    pub fn finished(&self, trace: &Arc<Trace>, told: impl FnOnce(Arc<Trace>) -> FinishedRequest) {
        if let Some(tracing) = self.0.as_ref().filter(|_| trace.is_sampled()) {
            tracing.take(told(Arc::clone(trace)));
        }
    }

    /// Gives what waits to the collector, which has no more than a moment for that.
    pub async fn close(&self) {
        #[cfg(feature = "otlp")]
        if let Some(tracing) = &self.0 {
            tracing.exporter.close().await;
        }
    }
}

impl Tracing {
    #[cfg(feature = "otlp")]
    fn take(&self, told: FinishedRequest) {
        self.exporter.take(told);
    }

    /// The configuration asks for none in a build that has no exporter.
    #[cfg(not(feature = "otlp"))]
    fn take(&self, told: FinishedRequest) {
        dropped(told.spans());
    }
}

impl Trace {
    /// Ids, for the exporter.
    #[cfg(feature = "otlp")]
    pub(super) fn ids(&self) -> Ids<'_> {
        Ids {
            trace: &self.trace,
            span: &self.span,
            parent: self.parent.as_ref(),
            flags: self.flags,
            method: self.method,
        }
    }

    /// Each attempt with its id.
    #[cfg(feature = "otlp")]
    pub(super) fn attempts(&self) -> Vec<([u8; 8], Attempt)> {
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.iter().enumerate().map(|(at, attempt)| (self.of_attempt(at), attempt.clone())).collect()
    }

    /// Whether they were under way at the same time, not one after the other.
    #[cfg(feature = "otlp")]
    pub(super) fn were_at_once(&self) -> bool {
        self.at_once.load(Ordering::Relaxed)
    }

    /// What else the trace carries.
    #[cfg(feature = "otlp")]
    pub(super) fn state(&self) -> &str {
        self.state.as_ref().and_then(|state| state.to_str().ok()).unwrap_or("")
    }
}

/// Who is who in a trace.
#[cfg(feature = "otlp")]
pub(super) struct Ids<'t> {
    pub(super) trace: &'t [u8; 16],
    pub(super) span: &'t [u8; 8],
    pub(super) parent: Option<&'t [u8; 8]>,
    pub(super) flags: u8,
    pub(super) method: &'static str,
}

#[cfg(test)]
mod tests {
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
            (GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)), None),
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
            assert_eq!(read, written.map(|flags| GOOD.replace("-01", flags)), "{text}");
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
            let mut chance = [7; CHANCE];
            chance[8..16].copy_from_slice(&last.to_be_bytes());
            Trace::begin(&headers, &Method::POST, sample, &chance)
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
            assert_eq!((parent_told.flags & SAMPLED != 0, told.len()), (recorded, 1));
            assert_eq!(trace.parent.is_some(), parent.is_some_and(|parent| parent != "garbage"));
            let second = Parent::read(trace.attempt(&peer)[0].1.as_bytes()).unwrap();
            assert_eq!((second.trace, trace.trace), (parent_told.trace, parent_told.trace));
            assert!(second.span != parent_told.span && trace.span != second.span, "spans of their own");
        }
    }

    #[test]
    fn nothing_is_traced_unless_asked_for() {
        let tracer = Tracer::start(None).unwrap();
        assert!(tracer.begin(&HeaderMap::new(), &Method::GET).is_none());
    }
}
