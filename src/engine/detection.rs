//! Engine detection: the data by which an engine is recognised, and the code that reads it (engines G). Each
//! engine's own file holds its data.
//!
//! Takes: answers to probes, pieces of answers to requests. Gives: the engine, its version, its front end, its
//! parsers and its load. Remembers: nothing. Never: sends a request.

use super::{ENGINES, Engine, EngineVersion, Front, Versions};
use crate::json::{self, Members, Raw, Text};
use memchr::memmem::{self, Finder};
use std::sync::LazyLock;
use std::time::Duration;

/// Detection data of one engine: how to recognise it, and where it reports its version and load.
#[derive(Debug)]
pub struct Detection {
    /// Value of `owned_by` in the engine's list of models.
    pub owned_by: Option<&'static str>,
    /// Routes that report more, in the order in which they are tried; the first one with a version ends the search.
    pub places: &'static [InfoRoute],
    /// Texts by which the engine's answers are recognised.
    pub marks: &'static [Mark],
    /// Front end other than the engine's usual one.
    pub other_front: Option<OtherFront>,
    /// Routes that report the load, in the order in which they are tried; the first that answers is used from then
    /// on.
    pub loads: &'static [LoadRoute],
    /// Route of its health check, which costs nothing that is paid for; `None`: its list of models is the health check.
    pub health: Option<&'static str>,
    /// Minimum timeout of a health check. Some engines run the model for it, after all queued requests.
    pub min_health_timeout: Duration,
    /// Flags with which the engine tells more.
    pub flags: Flags,
}

/// Flags and environment variables with which an engine tells more or keeps connections for longer, for operators.
#[derive(Clone, Copy, Debug)]
pub struct Flags {
    /// Has the usage tell the tokens that came from the cache; `None`: it does so anyway, or never.
    pub cached_tokens: Option<&'static str>,
    /// Keeps unused connections for longer than load balancers do.
    pub keep_alive: Option<&'static str>,
    /// Opens the first of the routes that report the load.
    pub load: Option<&'static str>,
    /// Sets how many tokens prompt and answer may have together.
    pub context: Option<&'static str>,
}

impl Flags {
    /// No such flags.
    pub const NONE: Self = Self {
        cached_tokens: None,
        keep_alive: None,
        load: None,
        context: None,
    };
}

impl Detection {
    /// Route of the health check of most engines.
    pub const HEALTH: Option<&'static str> = Some("/health");

    /// No detection data: the engine is never recognised.
    pub const NONE: Self = Self {
        owned_by: None,
        places: &[],
        marks: &[],
        other_front: None,
        loads: &[],
        health: None,
        min_health_timeout: Duration::ZERO,
        flags: Flags::NONE,
    };

    /// Returns true if the engine's answers may contain its version.
    pub fn tells_version_in_answers(&self) -> bool {
        self.marks.iter().any(|mark| mark.version)
    }
}

/// Returns the engine whose list of models has this `owned_by`, or `None` if no engine uses it.
pub fn recognised(owned_by: &str) -> Option<&'static Engine> {
    ENGINES
        .iter()
        .copied()
        .find(|engine| engine.detection.owned_by == Some(owned_by))
}

// === Place ===

/// Route by which an engine identifies itself, and the keys to read in its answer, a JSON object.
#[derive(Debug)]
pub struct InfoRoute {
    /// Path of the route.
    pub path: &'static str,
    /// Content that only this engine's answer has; `None`: other engines answer alike, so the route proves nothing.
    pub proof: Option<Proof>,
    /// Key of the version.
    pub version: Option<&'static str>,
    /// Keys of the names of the reasoning parser and of the tool-call parser.
    pub parsers: Option<(&'static str, &'static str)>,
    /// Key that is true if the server takes HTTP/2, too.
    pub http2: Option<&'static str>,
}

impl InfoRoute {
    /// Creates a place with this path that proves nothing and reports nothing.
    pub const fn at(path: &'static str) -> Self {
        Self {
            path,
            proof: None,
            version: None,
            parsers: None,
            http2: None,
        }
    }

    /// Returns true if the body has content that only this engine sends.
    pub fn proves(&self, body: &[u8]) -> bool {
        match self.proof {
            None => false,
            Some(Proof::Text(text)) => memmem::find(body, text.as_bytes()).is_some(),
            Some(Proof::Key(key)) => members(body).is_some_and(|all| all.get(key).is_some()),
        }
    }

    /// Reads version, parsers and protocol from the body; everything is absent if the body is not a JSON object.
    pub fn read(&self, body: &[u8]) -> InfoReport {
        let Some(all) = members(body) else {
            return InfoReport::default();
        };
        let text = |key: Option<&str>| {
            all.get(key?)
                .and_then(Text::of)
                .map(|text| text.decoded().into_owned())
        };
        let version = text(self.version);
        InfoReport {
            says_version: version.is_some(),
            http2: self
                .http2
                .and_then(|key| all.get(key))
                .is_some_and(|value| value.get() == "true"),
            version: version.and_then(|text| text.parse().ok()),
            parsers: self.parsers.map(|(reasoning, tools)| DetectedParsers {
                reasoning: text(Some(reasoning)).filter(|name| is_name(name)),
                tools: text(Some(tools)).filter(|name| is_name(name)),
            }),
        }
    }
}

/// Content of an answer that proves which engine sent it.
#[derive(Clone, Copy, Debug)]
pub enum Proof {
    /// A key of the JSON object.
    Key(&'static str),
    /// A text anywhere in the body.
    Text(&'static str),
}

/// Information read from an [`InfoRoute`]: the engine's version and its parsers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InfoReport {
    /// True if the answer names a version, even one that is no release.
    pub says_version: bool,
    /// The version; `None`: none, or not a release.
    pub version: Option<EngineVersion>,
    /// Parsers in use, if this place reports them.
    pub parsers: Option<DetectedParsers>,
    /// True if the server says that it takes HTTP/2.
    pub http2: bool,
}

/// Names of the parsers that an engine runs to split reasoning and tool calls from the model's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DetectedParsers {
    /// Reasoning parser; `None`: none is configured.
    pub reasoning: Option<String>,
    /// Tool-call parser; `None`: none is configured.
    pub tools: Option<String>,
}

/// Returns true if the text looks like a parser's name: 1 to 64 letters, digits, `_`, `-` and `.`.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=64).contains(&name.len()) && name.bytes().all(fits)
}

// === Mark ===

/// Mark: texts in an answer that show which engine sent it.
#[derive(Debug)]
pub struct Mark {
    /// Texts that must all be present, spelled as in the JSON. A model cannot fake them: quotes inside a string are
    /// escaped with a backslash.
    pub texts: &'static [&'static str],
    /// True if the version follows the first text, up to a hyphen or the closing quote.
    pub version: bool,
    /// True if other engines have this mark too, but also their own marks, which are tried first.
    pub weak: bool,
}

/// Engine recognised by a mark in one of its answers, together with the mark as evidence.
#[derive(Clone, Copy, Debug)]
pub struct Recognised {
    /// The engine.
    pub engine: &'static Engine,
    /// The engine's version, if it is in the answer.
    pub version: Option<EngineVersion>,
    /// The mark that was found.
    pub mark: &'static Mark,
}

/// Returns the engine that sent this piece of an answer and the mark that shows it, or `None` if no mark is present.
/// Marks of one engine alone take precedence over weak ones.
pub fn recognised_in(piece: &[u8]) -> Option<Recognised> {
    MARKS.iter().find_map(|found| {
        let version = found.version_in(piece)?;
        Some(Recognised {
            engine: found.engine,
            version,
            mark: found.mark,
        })
    })
}

/// Returns the engine that sent this piece of an answer, and its version if it is in the piece.
pub fn of_answer(piece: &[u8]) -> Option<(&'static Engine, Option<EngineVersion>)> {
    recognised_in(piece).map(|found| (found.engine, found.version))
}

impl Mark {
    /// Creates a mark of one text that no other engine's answers have.
    pub const fn sure(texts: &'static [&'static str]) -> Self {
        Self {
            texts,
            version: false,
            weak: false,
        }
    }
}

/// Marks of all engines, in the order in which they are tried.
static MARKS: LazyLock<Vec<SearchedMark>> = LazyLock::new(|| {
    let all = || {
        ENGINES
            .iter()
            .flat_map(|engine| engine.detection.marks.iter().map(|mark| (*engine, mark)))
    };
    let of_kind = |weak| all().filter(move |(_, mark)| mark.weak == weak);
    of_kind(false)
        .chain(of_kind(true))
        .map(|(engine, mark)| SearchedMark::new(engine, mark))
        .collect()
});

/// Mark with searchers for its texts. To make a searcher costs many times a search.
struct SearchedMark {
    engine: &'static Engine,
    mark: &'static Mark,
    texts: Vec<Finder<'static>>,
}

impl SearchedMark {
    fn new(engine: &'static Engine, mark: &'static Mark) -> Self {
        Self {
            engine,
            mark,
            texts: mark.texts.iter().map(Finder::new).collect(),
        }
    }

    /// Returns `Some` if the mark is present, with the version if it has one.
    fn version_in(&self, piece: &[u8]) -> Option<Option<EngineVersion>> {
        let (first, others) = self.texts.split_first()?;
        let at = first.find(piece)? + first.needle().len();
        if !others.iter().all(|text| text.find(piece).is_some()) {
            return None;
        }
        let rest = piece
            .get(at..)
            .filter(|_| self.mark.version)
            .unwrap_or_default();
        let end = rest
            .iter()
            .position(|byte| matches!(byte, b'-' | b'"'))
            .unwrap_or(0);
        Some(
            rest.get(..end)
                .and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()),
        )
    }
}

// === OtherFront ===

/// Front end that must be told apart from the usual one of its engine: by its `server` header and a missing route.
#[derive(Debug)]
pub struct OtherFront {
    /// The other front end.
    pub front: Front,
    /// Versions of the engine that may have it.
    pub versions: Versions,
    /// Text in the `server` header of the usual front end.
    pub usual_server: &'static str,
    /// Route that only the usual front end has.
    pub missing_route: &'static str,
}

/// Result of a GET to a route that may be missing; it tells front ends apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAnswer {
    /// Route missing, reported by FastAPI (404 with `detail`): the usual front end in Python.
    FastApiHasNone,
    /// Route missing (404 without `detail`).
    None,
    /// Route present.
    Some,
    /// Route not disclosed (401 or 403).
    Hidden,
}

impl RouteAnswer {
    /// Classifies the answer to a GET by its status and body.
    pub fn of(status: u16, body: &[u8]) -> Self {
        match status {
            404 if memmem::find(body, b"\"detail\"").is_some() => Self::FastApiHasNone,
            404 => Self::None,
            401 | 403 => Self::Hidden,
            _ => Self::Some,
        }
    }
}

impl OtherFront {
    /// Returns true if version and `server` header leave open which front end it is, so that the route must be
    /// requested.
    pub fn is_possible(&self, version: Option<EngineVersion>, server: Option<&str>) -> bool {
        self.versions.has(version)
            && server.is_none_or(|server| !server.contains(self.usual_server))
    }

    /// Returns the front end, given the answer of the route in `lacks`. Call it only if [`OtherFront::is_possible`]
    /// returned true. With a `server` header, a hidden route counts as the usual front end's, because a gateway
    /// may have replaced the engine's header.
    pub fn decide(&self, server: Option<&str>, route: RouteAnswer) -> Front {
        match route {
            RouteAnswer::None => self.front,
            RouteAnswer::Hidden if server.is_none() => self.front,
            _ => Front::Own,
        }
    }
}

// === Load ===

/// Route by which an engine reports its load, and the names of the values to read.
#[derive(Debug)]
pub struct LoadRoute {
    /// Path of the route.
    pub path: &'static str,
    /// Format of the answer.
    pub form: LoadForm,
    /// Names of the number of running requests; the first name present is used.
    pub running: &'static [&'static str],
    /// Names of the number of queued requests; the first name present is used.
    pub waiting: &'static [&'static str],
    /// Names of the share of the cache in use, from 0 to 1; the first name present is used.
    pub cache: &'static [&'static str],
}

/// Format of a load report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadForm {
    /// Prometheus text. Counts of several series of one name are added up; for the cache, the highest value is used.
    Prometheus,
    /// JSON list of objects, one for each rank, either under a key or as the whole body.
    Json {
        /// Key of the list; `None`: the body is the list.
        list: Option<&'static str>,
        /// True if the running count includes the queued requests.
        includes_waiting: bool,
    },
}

/// Load of an engine at one moment, as it reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineLoad {
    /// Number of running requests.
    pub running: u64,
    /// Number of queued requests.
    pub waiting: u64,
    /// Share of the cache in use, from 0 to 1; `None`: not reported.
    pub cache: Option<f64>,
}

impl LoadRoute {
    /// Reads the load from the body; `None` if the number of running requests is missing or unreadable.
    pub fn read(&self, body: &[u8]) -> Option<EngineLoad> {
        let text = std::str::from_utf8(body).ok()?;
        let values = match self.form {
            LoadForm::Prometheus => series,
            LoadForm::Json { .. } => entries,
        };
        let find = |names: &[&str]| {
            names
                .iter()
                .find_map(|name| Some(values(self, text, name)).filter(|all| !all.is_empty()))
        };
        let sum = |values: Vec<f64>| count(values.iter().sum());
        let (all, waiting) = (
            find(self.running).map(sum)?,
            find(self.waiting).map(sum).unwrap_or(0),
        );
        let together = matches!(
            self.form,
            LoadForm::Json {
                includes_waiting: true,
                ..
            }
        );
        Some(EngineLoad {
            running: if together {
                all.saturating_sub(waiting)
            } else {
                all
            },
            waiting,
            cache: find(self.cache).and_then(|parts| parts.into_iter().reduce(f64::max)),
        })
    }
}

/// Converts a sum to a count, clamped to a range that is safe for arithmetic.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is clamped"
)]
fn count(sum: f64) -> u64 {
    sum.clamp(0.0, 1e9).round() as u64
}

fn is_sane(value: &f64) -> bool {
    value.is_finite() && *value >= 0.0
}

/// Returns the values of all series of this name in Prometheus text.
fn series(_: &LoadRoute, text: &str, name: &str) -> Vec<f64> {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let after = match rest.as_bytes().first()? {
            b'{' => rest.split(" # ").next()?.rsplit_once('}')?.1,
            b' ' | b'\t' => rest,
            _ => return None,
        };
        after.split_ascii_whitespace().next()?.parse().ok()
    };
    text.lines().filter_map(value).filter(is_sane).collect()
}

/// Returns the values of this key in all objects of the JSON list.
fn entries(load: &LoadRoute, text: &str, name: &str) -> Vec<f64> {
    let LoadForm::Json { list, .. } = load.form else {
        return Vec::new();
    };
    let whole = Raw::of(text.trim());
    let list = match list {
        Some(key) => members(text.as_bytes()).and_then(|all| all.get(key)),
        None => whole,
    };
    let objects: Vec<Raw<'_>> = list
        .and_then(|list| json::read(list.get()).ok())
        .unwrap_or_default();
    let value = |object: Raw<'_>| {
        members(object.get().as_bytes())?
            .get(name)?
            .get()
            .parse()
            .ok()
    };
    objects
        .into_iter()
        .filter_map(value)
        .filter(is_sane)
        .collect()
}

// === JSON ===

/// Returns the members of a JSON object, or `None` if the body is not one.
fn members(body: &[u8]) -> Option<Members<'_>> {
    Members::of(std::str::from_utf8(body).ok()?.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::named;

    fn version(text: &str) -> Option<EngineVersion> {
        text.parse().ok()
    }

    #[test]
    fn answers_give_their_engine_away() {
        for (piece, engine, of) in [
            // Captures of 0.21.0 and 0.5.12.
            (
                r#"data: {"id":"chatcmpl-b8","choices":[],"system_fingerprint":"vllm-0.21.0-0536b55b"}"#,
                "vllm",
                Some("0.21.0"),
            ),
            (
                r#"{"choices":[],"system_fingerprint":"vllm-0.1.dev1+g1-0536b55b"}"#,
                "vllm",
                None,
            ),
            (
                r#"{"id":"chatcmpl-b8","choices":[{"index":0,"finish_reason":"stop","stop_reason":null}]}"#,
                "vllm",
                None,
            ),
            (
                r#"{"id":"8d94","choices":[{"delta":{"content":"a"},"matched_stop":null}]}"#,
                "sglang",
                None,
            ),
            (
                r#"{"choices":[],"timings":{"prompt_n":1}}"#,
                "llamacpp",
                None,
            ),
            (
                r#"{"choices":[],"system_fingerprint":"b5432-1a2b3c4"}"#,
                "llamacpp",
                None,
            ),
            (
                r#"{"id":"chatcmpl-1","choices":[{"stop_reason":null,"avg_decoded_tokens_per_iter":1.0}]}"#,
                "tensorrt_llm",
                None,
            ),
            (
                r#"{"choices":[],"system_fingerprint":"fp_ollama"}"#,
                "ollama",
                None,
            ),
            (
                r#"{"choices":[],"id":"","prompt_filter_results":[{"prompt_index":0}]}"#,
                "openai",
                None,
            ),
            (
                r#"{"choices":[],"service_tier":"default","obfuscation":"a1"}"#,
                "openai",
                None,
            ),
            // A mark of one engine alone wins over a weak one.
            (
                r#"{"id":"chatcmpl-b8","choices":[{"stop_reason":null,"matched_stop":null}]}"#,
                "sglang",
                None,
            ),
        ] {
            let found = of_answer(piece.as_bytes()).map(|(engine, version)| (engine.name, version));
            assert_eq!(found, Some((engine, of.and_then(version))), "{piece}");
        }
        for piece in [
            "",
            r#"{"id":"chatcmpl-1","choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
            // Only the service sends a non-null value for both.
            r#"{"choices":[],"service_tier":null,"obfuscation":"a1"}"#,
            // A truncated mark, and marks inside a model's text.
            r#"{"id":"chatcmpl-b8","matched_sto"#,
            r#"{"content":"\"matched_stop\":1,\"system_fingerprint\":\"vllm-0.21.0-1\""}"#,
        ] {
            assert!(of_answer(piece.as_bytes()).is_none(), "{piece}");
        }
    }

    #[test]
    fn loads_of_both_engines_are_read() {
        let busy = |engine: &str, at: usize, body: &str| {
            named(engine).unwrap().detection.loads[at].read(body.as_bytes())
        };
        let told = |running, waiting, cache| {
            Some(EngineLoad {
                running,
                waiting,
                cache,
            })
        };
        let vllm = "# HELP vllm:num_requests_running Number of requests in model execution batches.\n\
                    # TYPE vllm:num_requests_running gauge\n\
                    vllm:num_requests_running{engine=\"0\",model_name=\"a} 9\"} 3.0\n\
                    vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 4.0\n\
                    vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 2.0 1795234510\n\
                    vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 50.0\n";
        assert_eq!(busy("vllm", 0, vllm), told(7, 2, None));
        let cache = |name: &str| {
            format!("{vllm}vllm:{name}{{engine=\"0\"}} 0.25\nvllm:{name}{{engine=\"1\"}} 0.5\n")
        };
        assert_eq!(
            busy("vllm", 0, &cache("kv_cache_usage_perc")),
            told(7, 2, Some(0.5))
        );
        assert_eq!(
            busy("vllm", 0, &cache("gpu_cache_usage_perc")),
            told(7, 2, Some(0.5))
        );
        let sglang = "sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\"} 5.0\nsglang:num_queue_reqs 1.0\nsglang:token_usage 0.75\n";
        assert_eq!(busy("sglang", 0, sglang), told(5, 1, Some(0.75)));
        let llamacpp = "llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n";
        assert_eq!(busy("llamacpp", 0, llamacpp), told(2, 1, None));
        let loads = r#"{"loads":[{"num_running_reqs":2,"num_waiting_reqs":1,"token_usage":0.5},{"num_running_reqs":1,"token_usage":0.75}]}"#;
        assert_eq!(busy("sglang", 1, loads), told(3, 1, Some(0.75)));
        // The capture of 0.5.12, and a variant with load.
        let none = r#"[{"dp_rank":null,"num_reqs":0,"num_waiting_reqs":0,"num_tokens":0,"num_pending_tokens":0,"ts_tic":2602.614878759}]"#;
        assert_eq!(busy("sglang", 2, none), told(0, 0, None));
        let some = r#"[{"num_reqs":4,"num_waiting_reqs":3},{"num_reqs":1,"num_waiting_reqs":0}]"#;
        assert_eq!(busy("sglang", 2, some), told(2, 3, None));
        for odd in [
            "",
            "vllm:num_requests_running",
            "vllm:num_requests_running NaN",
            "vllm:num_requests_running -1",
            "{}",
            "[1]",
            "\u{0}",
        ] {
            assert_eq!(busy("vllm", 0, odd), None, "{odd}");
            assert!((0..3).all(|at| busy("sglang", at, odd).is_none()), "{odd}");
        }
        assert_eq!(
            busy("vllm", 0, "vllm:num_requests_running 1e300"),
            told(1_000_000_000, 0, None)
        );
    }

    #[test]
    fn engines_are_known_by_their_lists() {
        let owners: Vec<_> = ENGINES
            .iter()
            .filter_map(|engine| engine.detection.owned_by)
            .collect();
        for owner in &owners {
            let known = ENGINES
                .iter()
                .filter(|engine| engine.detection.owned_by == Some(*owner));
            assert_eq!(known.count(), 1, "{owner}");
            assert!(recognised(owner).is_some_and(Engine::is_known));
        }
        assert_eq!(owners.len(), 6);
        assert!(recognised("openai").is_none() && recognised("").is_none());
    }

    #[test]
    fn a_server_says_whether_it_takes_http2() {
        let [place, ..] = named("sglang").unwrap().detection.places else {
            panic!("a place")
        };
        for (value, expected) in [
            ("true", true),
            ("false", false),
            ("null", false),
            ("\"true\"", false),
        ] {
            let body = format!("{{\"version\":\"0.5.23\",\"enable_http2\":{value}}}");
            assert_eq!(place.read(body.as_bytes()).http2, expected, "{value}");
        }
        assert!(!place.read(br#"{"version":"0.5.8"}"#).http2);
    }

    #[test]
    fn only_what_nobody_else_says_proves_an_engine() {
        let [version, metrics] = named("vllm").unwrap().detection.places else {
            panic!("two places")
        };
        assert!(
            !version.proves(br#"{"version":"1.2.0"}"#),
            "others have that, too"
        );
        assert!(metrics.proves(b"vllm:num_requests_running 1") && !metrics.proves(b"[]"));
        let [info, _] = named("sglang").unwrap().detection.places else {
            panic!("two places")
        };
        assert!(info.proves(br#"{"tool_call_parser":null,"version":"0.5.12"}"#));
        assert!(
            !info.proves(br#"{"disaggregated_params":{}}"#) && !info.proves(b"tool_call_parser")
        );
    }
}
