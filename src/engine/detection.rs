//! By what an engine is known, and what it tells of itself: data in each engine's file, and how it is read (engine-quirks G).
//!
//! Takes: answers to probes, pieces of answers to requests. Gives: which engine it is, of which version, behind which front
//! end, with which parsers, and how much it has to do. Remembers: nothing. Never: asks.

use super::{ENGINES, Engine, Front, Version, Versions};
use crate::json::{self, Members, Raw, Text};
use memchr::memmem;
use std::time::Duration;

/// What one engine is known by.
#[derive(Debug)]
pub struct Detection {
    /// `owned_by` in its list of models.
    pub owned_by: Option<&'static str>,
    /// Where it tells more, in this order: what an earlier one has told, the others are not asked for.
    pub places: &'static [Place],
    /// What its answers have.
    pub marks: &'static [Mark],
    /// The front end that is not its usual one.
    pub other_front: Option<OtherFront>,
    /// Where it says how much it has to do, in this order: the first that answers is asked from then on.
    pub loads: &'static [Load],
    /// How long its health check may take at least: some let the model work for it, behind all that it has to do.
    pub patience: Duration,
}

impl Detection {
    /// Nothing.
    pub const NONE: Self = Self {
        owned_by: None,
        places: &[],
        marks: &[],
        other_front: None,
        loads: &[],
        patience: Duration::ZERO,
    };

    /// Whether an answer may tell its version.
    pub fn tells_version_in_answers(&self) -> bool {
        self.marks.iter().any(|mark| mark.version)
    }
}

/// The engine that lists its models with this `owned_by`.
pub fn recognised(owned_by: &str) -> Option<&'static Engine> {
    ENGINES.iter().copied().find(|engine| engine.detection.owned_by == Some(owned_by))
}

// === Place ===

/// A route by which an engine tells what it is.
#[derive(Debug)]
pub struct Place {
    /// Its path.
    pub path: &'static str,
    /// What of it only this engine says; `None`: others have the like, and it proves nothing.
    pub proof: Option<Proof>,
    /// The key of its version.
    pub version: Option<&'static str>,
    /// The keys of its parsers: of reasoning, of tool calls.
    pub parsers: Option<(&'static str, &'static str)>,
}

impl Place {
    /// Nothing of a path but that it is there.
    pub const fn at(path: &'static str) -> Self {
        Self { path, proof: None, version: None, parsers: None }
    }

    /// Whether only this engine answers so.
    pub fn proves(&self, body: &[u8]) -> bool {
        match self.proof {
            None => false,
            Some(Proof::Text(text)) => memmem::find(body, text.as_bytes()).is_some(),
            Some(Proof::Key(key)) => members(body).is_some_and(|all| all.get(key).is_some()),
        }
    }

    /// What it tells.
    pub fn told(&self, body: &[u8]) -> PlaceReport {
        let Some(all) = members(body) else { return PlaceReport::default() };
        let text =
            |key: Option<&str>| all.get(key?).and_then(Text::of).map(|text| text.decoded().into_owned());
        let version = text(self.version);
        PlaceReport {
            says_version: version.is_some(),
            version: version.and_then(|text| text.parse().ok()),
            parsers: self.parsers.map(|(reasoning, tools)| Parsers {
                reasoning: text(Some(reasoning)).filter(|name| is_name(name)),
                tools: text(Some(tools)).filter(|name| is_name(name)),
            }),
        }
    }
}

/// What proves an engine.
#[derive(Clone, Copy, Debug)]
pub enum Proof {
    /// A key of its JSON object.
    Key(&'static str),
    /// A text.
    Text(&'static str),
}

/// What a place has told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceReport {
    /// It has named a version.
    pub says_version: bool,
    /// Which; `None`: no release.
    pub version: Option<Version>,
    /// The parsers that run, where it tells of them.
    pub parsers: Option<Parsers>,
}

/// What an engine makes reasoning and calls of its model's text with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsers {
    /// The parser of reasoning, by its name.
    pub reasoning: Option<String>,
    /// That of tool calls.
    pub tools: Option<String>,
}

/// A parser's name, and not just anything.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=64).contains(&name.len()) && name.bytes().all(fits)
}

// === Mark ===

/// What stands in answers of one engine.
#[derive(Debug)]
pub struct Mark {
    /// All of these are there, spelled as in the JSON: a quote that a model says has a backslash before it, so that no
    /// text makes a mark.
    pub texts: &'static [&'static str],
    /// Behind the first of them stands its version, up to a hyphen or the end of the string.
    pub version: bool,
    /// Others have it, too, beside marks of their own.
    pub weak: bool,
}

/// The engine that has given an answer, as a mark in it shows.
#[derive(Clone, Copy, Debug)]
pub struct Recognised {
    /// Which one.
    pub engine: &'static Engine,
    /// Its version, if that stands in the answer.
    pub version: Option<Version>,
    /// The mark.
    pub mark: &'static Mark,
}

/// The engine that has given this piece of an answer, and the mark that shows it.
pub fn recognised_in(piece: &[u8]) -> Option<Recognised> {
    let find = |weak: bool| {
        let marks = |engine: &'static Engine| engine.detection.marks.iter().map(move |mark| (engine, mark));
        let mut all = ENGINES.iter().copied().flat_map(marks).filter(|(_, mark)| mark.weak == weak);
        all.find_map(|(engine, mark)| Some(Recognised { engine, version: mark.found(piece)?, mark }))
    };
    find(false).or_else(|| find(true))
}

/// The engine that has given this piece of an answer, and its version if that stands in it.
pub fn of_answer(piece: &[u8]) -> Option<(&'static Engine, Option<Version>)> {
    recognised_in(piece).map(|found| (found.engine, found.version))
}

impl Mark {
    /// A text that no other engine's answers have.
    pub const fn sure(texts: &'static [&'static str]) -> Self {
        Self { texts, version: false, weak: false }
    }

    /// The version, if there is one, where the mark is there.
    fn found(&self, piece: &[u8]) -> Option<Option<Version>> {
        let find = |text: &&str| memmem::find(piece, text.as_bytes());
        let (first, others) = self.texts.split_first()?;
        let at = find(first)? + first.len();
        if !others.iter().all(|text| find(text).is_some()) {
            return None;
        }
        let rest = piece.get(at..).filter(|_| self.version).unwrap_or_default();
        let end = rest.iter().position(|byte| matches!(byte, b'-' | b'"')).unwrap_or(0);
        Some(rest.get(..end).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()))
    }
}

// === OtherFront ===

/// How a front end is told from the usual one of its engine.
#[derive(Debug)]
pub struct OtherFront {
    /// Which one it is.
    pub front: Front,
    /// The versions of the engine that have it.
    pub versions: Versions,
    /// What the usual one says in the header `server`.
    pub usual_server: &'static str,
    /// A route that only the usual one has.
    pub lacks: &'static str,
}

/// What a route that may be missing answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAnswer {
    /// There is none, and FastAPI says so.
    FastApiHasNone,
    /// There is none.
    None,
    /// There is one.
    Some,
    /// Nobody is told.
    Hidden,
}

impl RouteAnswer {
    /// By the answer to a GET.
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
    /// Whether what is known leaves it open which one it is. `server`: that header.
    pub fn may_be(&self, version: Option<Version>, server: Option<&str>) -> bool {
        self.versions.has(version) && server.is_none_or(|server| !server.contains(self.usual_server))
    }

    /// Which one it is, where [`OtherFront::may_be`]. A gateway may have put a `server` of its own in the place of the
    /// engine's.
    pub fn judged(&self, server: Option<&str>, route: RouteAnswer) -> Front {
        match route {
            RouteAnswer::None => self.front,
            RouteAnswer::Hidden if server.is_none() => self.front,
            _ => Front::Own,
        }
    }
}

// === Load ===

/// Where an engine says how much it has to do.
#[derive(Debug)]
pub struct Load {
    /// The path.
    pub path: &'static str,
    /// How it is written.
    pub form: LoadForm,
    /// Names of the count of requests that it works on: the first of them that is there counts.
    pub running: &'static [&'static str],
    /// The same for those that wait.
    pub waiting: &'static [&'static str],
    /// The same for the part of its cache that is in use, from 0 to 1.
    pub cache: &'static [&'static str],
}

/// How a load is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadForm {
    /// Prometheus's text: the series of a name are added up, of the cache the fullest counts.
    Prometheus,
    /// A JSON list of objects, one for each rank, under this key or as the whole; what they count as running has those that
    /// wait in it, too, if so said.
    Json {
        /// The key.
        list: Option<&'static str>,
        /// Those that wait are counted as running, too.
        together: bool,
    },
}

/// How much an engine has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// Requests that it works on.
    pub running: u64,
    /// Requests that wait for that.
    pub waiting: u64,
    /// The part of its cache that is in use.
    pub cache: Option<f64>,
}

impl Load {
    /// How much it has to do, if this says so.
    pub fn busy(&self, body: &[u8]) -> Option<Busy> {
        let text = std::str::from_utf8(body).ok()?;
        let values = match self.form {
            LoadForm::Prometheus => series,
            LoadForm::Json { .. } => entries,
        };
        let find = |names: &[&str]| {
            names.iter().find_map(|name| Some(values(self, text, name)).filter(|all| !all.is_empty()))
        };
        let sum = |values: Vec<f64>| count(values.iter().sum());
        let (all, waiting) = (find(self.running).map(sum)?, find(self.waiting).map(sum).unwrap_or(0));
        let together = matches!(self.form, LoadForm::Json { together: true, .. });
        Some(Busy {
            running: if together { all.saturating_sub(waiting) } else { all },
            waiting,
            cache: find(self.cache).and_then(|parts| parts.into_iter().reduce(f64::max)),
        })
    }
}

/// A sum that is a count.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
fn count(sum: f64) -> u64 {
    sum.clamp(0.0, 1e9).round() as u64
}

fn is_sane(value: &f64) -> bool {
    value.is_finite() && *value >= 0.0
}

/// The values of the series of this name.
fn series(_: &Load, text: &str, name: &str) -> Vec<f64> {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let behind = match rest.as_bytes().first()? {
            b'{' => rest.split(" # ").next()?.rsplit_once('}')?.1,
            b' ' | b'\t' => rest,
            _ => return None,
        };
        behind.split_ascii_whitespace().next()?.parse().ok()
    };
    text.lines().filter_map(value).filter(is_sane).collect()
}

/// The values of this key in the objects of a list.
fn entries(load: &Load, text: &str, name: &str) -> Vec<f64> {
    let LoadForm::Json { list, .. } = load.form else { return Vec::new() };
    let whole = Raw::of(text.trim());
    let list = match list {
        Some(key) => members(text.as_bytes()).and_then(|all| all.get(key)),
        None => whole,
    };
    let objects: Vec<Raw<'_>> = list.and_then(|list| json::read(list.get()).ok()).unwrap_or_default();
    let value = |object: Raw<'_>| members(object.get().as_bytes())?.get(name)?.get().parse().ok();
    objects.into_iter().filter_map(value).filter(is_sane).collect()
}

// === JSON ===

/// The members of an object.
fn members(body: &[u8]) -> Option<Members<'_>> {
    Members::of(std::str::from_utf8(body).ok()?.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::named;

    fn version(text: &str) -> Option<Version> {
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
            (r#"{"choices":[],"system_fingerprint":"vllm-0.1.dev1+g1-0536b55b"}"#, "vllm", None),
            (
                r#"{"id":"chatcmpl-b8","choices":[{"index":0,"finish_reason":"stop","stop_reason":null}]}"#,
                "vllm",
                None,
            ),
            (r#"{"id":"8d94","choices":[{"delta":{"content":"a"},"matched_stop":null}]}"#, "sglang", None),
            (r#"{"choices":[],"timings":{"prompt_n":1}}"#, "llamacpp", None),
            (r#"{"choices":[],"system_fingerprint":"b5432-1a2b3c4"}"#, "llamacpp", None),
            (
                r#"{"id":"chatcmpl-1","choices":[{"stop_reason":null,"avg_decoded_tokens_per_iter":1.0}]}"#,
                "tensorrt_llm",
                None,
            ),
            (r#"{"choices":[],"system_fingerprint":"fp_ollama"}"#, "ollama", None),
            (r#"{"choices":[],"id":"","prompt_filter_results":[{"prompt_index":0}]}"#, "openai", None),
            (r#"{"choices":[],"service_tier":"default","obfuscation":"a1"}"#, "openai", None),
            // Of two marks that of one engine alone counts.
            (r#"{"id":"chatcmpl-b8","choices":[{"stop_reason":null,"matched_stop":null}]}"#, "sglang", None),
        ] {
            let found = of_answer(piece.as_bytes()).map(|(engine, version)| (engine.name, version));
            assert_eq!(found, Some((engine, of.and_then(version))), "{piece}");
        }
        for piece in [
            "",
            r#"{"id":"chatcmpl-1","choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
            // Only the service itself says both.
            r#"{"choices":[],"service_tier":null,"obfuscation":"a1"}"#,
            // Cut short, or said by a model.
            r#"{"id":"chatcmpl-b8","matched_sto"#,
            r#"{"content":"\"matched_stop\":1,\"system_fingerprint\":\"vllm-0.21.0-1\""}"#,
        ] {
            assert!(of_answer(piece.as_bytes()).is_none(), "{piece}");
        }
    }

    #[test]
    fn loads_of_both_engines_are_read() {
        let busy = |engine: &str, at: usize, body: &str| {
            named(engine).unwrap().detection.loads[at].busy(body.as_bytes())
        };
        let told = |running, waiting, cache| Some(Busy { running, waiting, cache });
        let vllm = "# HELP vllm:num_requests_running Number of requests in model execution batches.\n\
                    # TYPE vllm:num_requests_running gauge\n\
                    vllm:num_requests_running{engine=\"0\",model_name=\"a} 9\"} 3.0\n\
                    vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 4.0\n\
                    vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 2.0 1795234510\n\
                    vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 50.0\n";
        assert_eq!(busy("vllm", 0, vllm), told(7, 2, None));
        let cache =
            |name: &str| format!("{vllm}vllm:{name}{{engine=\"0\"}} 0.25\nvllm:{name}{{engine=\"1\"}} 0.5\n");
        assert_eq!(busy("vllm", 0, &cache("kv_cache_usage_perc")), told(7, 2, Some(0.5)));
        assert_eq!(busy("vllm", 0, &cache("gpu_cache_usage_perc")), told(7, 2, Some(0.5)));
        let sglang = "sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\"} 5.0\nsglang:num_queue_reqs 1.0\nsglang:token_usage 0.75\n";
        assert_eq!(busy("sglang", 0, sglang), told(5, 1, Some(0.75)));
        let llamacpp = "llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n";
        assert_eq!(busy("llamacpp", 0, llamacpp), told(2, 1, None));
        let loads = r#"{"loads":[{"num_running_reqs":2,"num_waiting_reqs":1,"token_usage":0.5},{"num_running_reqs":1,"token_usage":0.75}]}"#;
        assert_eq!(busy("sglang", 1, loads), told(3, 1, Some(0.75)));
        // The capture of 0.5.12, and one with something to do.
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
        assert_eq!(busy("vllm", 0, "vllm:num_requests_running 1e300"), told(1_000_000_000, 0, None));
    }

    #[test]
    fn engines_are_known_by_their_lists() {
        let owners: Vec<_> = ENGINES.iter().filter_map(|engine| engine.detection.owned_by).collect();
        for owner in &owners {
            let known = ENGINES.iter().filter(|engine| engine.detection.owned_by == Some(*owner));
            assert_eq!(known.count(), 1, "{owner}");
            assert!(recognised(owner).is_some_and(Engine::is_known));
        }
        assert_eq!(owners.len(), 6);
        assert!(recognised("openai").is_none() && recognised("").is_none());
    }

    #[test]
    fn only_what_nobody_else_says_proves_an_engine() {
        let [version, metrics] = named("vllm").unwrap().detection.places else { panic!("two places") };
        assert!(!version.proves(br#"{"version":"1.2.0"}"#), "others have that, too");
        assert!(metrics.proves(b"vllm:num_requests_running 1") && !metrics.proves(b"[]"));
        let [info, _] = named("sglang").unwrap().detection.places else { panic!("two places") };
        assert!(info.proves(br#"{"tool_call_parser":null,"version":"0.5.12"}"#));
        assert!(!info.proves(br#"{"disaggregated_params":{}}"#) && !info.proves(b"tool_call_parser"));
    }
}
