//! Slow, obvious and independent implementation of the wire format, for comparison with the library.
//!
//! Takes: everything about one exchange, complete ([`Case`]). Gives: the client's answer, byte for byte
//! ([`Answer`]). Remembers: nothing. Never: uses the library it judges, streams, or saves work. If it and the
//! library differ, one of them misreads the format.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_types,
    clippy::result_large_err,
    reason = "a reference shared by several test crates, each of which uses a part of it"
)]

mod body;
mod chunk;
mod failure;
mod frame;
pub mod json;
mod machine;
pub mod random;
mod repair;
mod sse;
pub mod text;

use std::collections::BTreeMap;
use std::fmt;

use failure::Failure;
use json::Json;
use serde_json::Value;

/// Exchange: the client's request, the options, and the engine's complete answer.
#[derive(Clone)]
pub struct Case {
    /// `chat.completions` or `completions`.
    pub client_api: String,
    /// The same as `client_api`: the reference does not cross from one to another.
    pub upstream_api: String,
    /// The client's request body.
    pub request: Value,
    /// The options that differ from their defaults.
    pub options: Value,
    /// The engine's HTTP status.
    pub upstream_status: u16,
    /// The engine's HTTP headers, names in lower case.
    pub upstream_headers: BTreeMap<String, String>,
    /// The engine's whole body.
    pub input: Vec<u8>,
    /// True if the connection was reset after the body instead of closed.
    pub eof_reset: bool,
    /// The clock, in seconds.
    pub now: u64,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} -> {}, now {}",
            self.upstream_api, self.client_api, self.now
        )?;
        writeln!(f, "request {}", self.request)?;
        writeln!(f, "options {}", self.options)?;
        let end = if self.eof_reset { "reset" } else { "clean" };
        writeln!(
            f,
            "engine  {} {:?}, {end} end",
            self.upstream_status, self.upstream_headers
        )?;
        // Shows each line of the input on its own line, with its line end escaped.
        for line in self.input.split_inclusive(|byte| *byte == b'\n') {
            writeln!(f, "    {}", line.escape_ascii())?;
        }
        Ok(())
    }
}

/// Response that the client receives, complete and byte for byte.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// `retry-after`, `retry-after-ms` and `x-should-retry`, each only when due.
    pub headers: BTreeMap<String, String>,
    /// SSE text, or JSON text of a whole object or an HTTP error.
    pub body: Vec<u8>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {:?}", self.status, self.headers)?;
        writeln!(f, "{}", String::from_utf8_lossy(&self.body))
    }
}

/// Returns the answer that the wire format requires.
pub fn rewrite(case: &Case) -> Answer {
    let status = case.upstream_status;
    if !(200..300).contains(&status) {
        return refuse(case, &Failure::from_http(status, &case.input));
    }
    let encoding = header(case, "content-encoding");
    if !encoding.is_empty() && encoding != "identity" {
        return refuse(case, &Failure::unreadable(status));
    }
    let kind = header(case, "content-type");
    let whole = if kind.contains("application/json") {
        true
    } else if kind.contains("text/event-stream") {
        false
    } else {
        !wants_stream(case)
    };
    match (whole, wants_stream(case)) {
        (true, false) => match body::whole(case) {
            Ok(text) => serve(text),
            Err(failure) => refuse(case, &failure),
        },
        (true, true) => {
            let events = match body::as_events(case) {
                Ok(events) => events,
                Err(failure) => return refuse(case, &failure),
            };
            let run = machine::run(case, events);
            match &run.failure {
                // A whole body is checked completely before anything is written.
                Some(failure) => refuse(case, failure),
                None => serve(frame::stream_text(case, &run)),
            }
        }
        (false, true) => {
            let run = machine::run(case, machine::decode(case));
            match &run.failure {
                Some(failure) if run.frames.is_empty() => refuse(case, failure),
                _ => serve(frame::stream_text(case, &run)),
            }
        }
        (false, false) => {
            let run = machine::run(case, machine::decode(case));
            match &run.failure {
                Some(failure) => refuse(case, failure),
                None => serve(body::collected(case, &run)),
            }
        }
    }
}

fn serve(text: String) -> Answer {
    Answer {
        status: 200,
        headers: BTreeMap::new(),
        body: text.into_bytes(),
    }
}

/// Returns an HTTP error (3.1, 3.4).
fn refuse(case: &Case, failure: &Failure) -> Answer {
    let mut headers = BTreeMap::new();
    for name in ["retry-after", "retry-after-ms"] {
        let value = header(case, name);
        if (failure.status == 429 || failure.status == 503) && !value.is_empty() {
            headers.insert(name.to_owned(), value);
        }
    }
    if failure.code.as_deref() == Some("not_implemented") {
        headers.insert("x-should-retry".to_owned(), "false".to_owned());
    }
    Answer {
        status: failure.status,
        headers,
        body: failure.body().into_bytes(),
    }
}

fn header(case: &Case, name: &str) -> String {
    let found = case
        .upstream_headers
        .iter()
        .find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

// === what the case requests ===

fn wants_stream(case: &Case) -> bool {
    case.request["stream"] == Value::Bool(true)
}

fn is_chat(case: &Case) -> bool {
    case.client_api == "chat.completions"
}

/// Returns an option's value, `""` if it has its default.
fn option(case: &Case, name: &str) -> String {
    case.options[name].as_str().unwrap_or_default().to_owned()
}

fn switch(case: &Case, name: &str) -> bool {
    case.options[name] == Value::Bool(true)
}

/// Returns true if the client requested the usage frame, or always gets it (2.8).
fn wants_usage(case: &Case) -> bool {
    case.request["stream_options"]["include_usage"] == Value::Bool(true)
        || switch(case, "force_usage")
}

fn wants_continuous_usage(case: &Case) -> bool {
    wants_usage(case)
        && option(case, "continuous_usage") == "pass"
        && case.request["stream_options"]["continuous_usage_stats"] == Value::Bool(true)
}

fn wants_logprobs(case: &Case) -> bool {
    match &case.request["logprobs"] {
        Value::Null => false,
        asked if is_chat(case) => *asked == Value::Bool(true),
        _ => true,
    }
}

/// Returns the engine's extensions that the client requested, in the order in which they are written (2.10).
fn wanted_extensions(case: &Case) -> Vec<&'static str> {
    let asks = |key: &str| !matches!(case.request[key], Value::Null | Value::Bool(false));
    let (tokens, prompt) = (asks("return_token_ids"), asks("prompt_logprobs"));
    [
        ("token_ids", tokens),
        ("prompt_logprobs", prompt),
        ("prompt_token_ids", tokens),
    ]
    .into_iter()
    .filter(|(_, asked)| *asked)
    .map(|(key, _)| key)
    .collect()
}

fn passes_unknown(case: &Case) -> bool {
    option(case, "unknown_fields") == "pass"
}

/// Returns the number of choices in a complete answer.
fn choices(case: &Case) -> usize {
    let each = case.request["n"].as_u64().unwrap_or(1).max(1) as usize;
    if is_chat(case) {
        return each;
    }
    // A list of numbers is one prompt, given as tokens.
    let prompts = match case.request["prompt"].as_array() {
        Some(list) if !list.is_empty() && !list[0].is_number() => list.len(),
        _ => 1,
    };
    each * prompts
}

/// Returns the first choice index that is invalid.
fn index_limit(case: &Case) -> usize {
    let best_of = case.request["best_of"].as_u64().unwrap_or(0) as usize;
    if is_chat(case) {
        choices(case)
    } else {
        choices(case).max(best_of)
    }
}

/// Returns the function that `tool_choice` forces.
fn forced_function(case: &Case) -> Option<String> {
    let name = case.request["tool_choice"]["function"]["name"].as_str()?;
    Some(name.to_owned())
}

/// Returns the request's limit on the answer's tokens.
fn token_limit(case: &Case) -> Option<u64> {
    let request = &case.request;
    request["max_completion_tokens"]
        .as_u64()
        .or_else(|| request["max_tokens"].as_u64())
}

// === the envelope (2.1, 2.7) ===

/// Members `id`, `created` and `model`, the same in every frame of a stream.
#[derive(Clone, Debug)]
struct Envelope {
    id: String,
    created: u64,
    model: String,
}

impl Envelope {
    fn of(case: &Case, id: &str, created: u64, model: &str) -> Self {
        let created = match created {
            0 => case.now,
            milliseconds if milliseconds > 100_000_000_000 => milliseconds / 1000,
            seconds => seconds,
        };
        let requested = case.request["model"].as_str().unwrap_or_default();
        let model = match option(case, "model_name").as_str() {
            "" | "upstream" if model.is_empty() => requested.to_owned(),
            "" | "upstream" => model.to_owned(),
            "requested" => requested.to_owned(),
            alias => alias.to_owned(),
        };
        Self {
            id: completion_id(case, id),
            created,
            model,
        }
    }
}

fn prefix(case: &Case) -> &'static str {
    if is_chat(case) { "chatcmpl-" } else { "cmpl-" }
}

fn completion_id(case: &Case, id: &str) -> String {
    let prefix = prefix(case);
    let plain = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    if id.is_empty() {
        // A constant id is enough for the tests: an answer needs at most one.
        return format!("{prefix}{:032x}", 1);
    }
    if let Some(rest) = id.strip_prefix(prefix)
        && plain(rest)
    {
        return id.to_owned();
    }
    // A chat id becomes a completion id.
    if let Some(rest) = id.strip_prefix("chatcmpl-")
        && plain(rest)
    {
        return format!("{prefix}{rest}");
    }
    if plain(id) {
        format!("{prefix}{id}")
    } else {
        format!("{prefix}{}", &sha256(id)[..32])
    }
}

/// Returns the id that replaces the engine's id of a call (2.5 rule 8).
fn call_id(case: &Case, envelope: &Envelope, choice: usize, index: usize, engine: &str) -> String {
    if engine.is_empty() {
        let bare = envelope
            .id
            .strip_prefix(prefix(case))
            .unwrap_or(&envelope.id);
        let mut compact: String = bare
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .take(24)
            .collect();
        if compact.is_empty() {
            compact = sha256(&envelope.id)[..24].to_owned();
        }
        return format!("call_{compact}_{choice}_{index}");
    }
    match option(case, "tool_call_ids").as_str() {
        "preserve" => engine.to_owned(),
        "strict" => {
            let rest = engine.strip_prefix("call_").unwrap_or_default();
            let plain = rest
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
            if plain && (1..=59).contains(&rest.len()) {
                return engine.to_owned();
            }
            let whole = format!("{}_{choice}_{index}_{engine}", envelope.id);
            format!("call_{}", &sha256(&whole)[..24])
        }
        _ => match engine.strip_prefix("chatcmpl-tool-") {
            Some(rest) => format!("call_{rest}"),
            None => engine.to_owned(),
        },
    }
}

fn service_tier(given: Option<&str>) -> Option<String> {
    let known = ["auto", "default", "flex", "scale", "priority", "fast"];
    given.filter(|tier| known.contains(tier)).map(str::to_owned)
}

fn fingerprint(case: &Case, given: Option<&str>) -> Option<String> {
    let given = given.filter(|text| !text.is_empty())?;
    match option(case, "system_fingerprint").as_str() {
        "pass" => Some(given.to_owned()),
        "hash" => {
            let rest = given.strip_prefix("fp_").unwrap_or_default();
            let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
            if rest.len() == 10 && rest.chars().all(hex) {
                return Some(given.to_owned());
            }
            let salted = format!("{}{given}", option(case, "fingerprint_salt"));
            Some(format!("fp_{}", &sha256(&salted)[..10]))
        }
        _ => None,
    }
}

fn sha256(text: &str) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

// === finish words (2.6) ===

/// Meaning of an engine's finish reason, whichever word it uses (2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FinishWord {
    Stop,
    Length,
    ToolCalls,
    FunctionCall,
    ContentFilter,
    Abort,
}

impl FinishWord {
    fn of(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "length" | "max_tokens" | "max_new_tokens" | "model_length" | "repetition" => {
                Self::Length
            }
            "tool_calls" | "tool_call" | "tool_use" => Self::ToolCalls,
            "function_call" => Self::FunctionCall,
            "content_filter" | "content-filter" | "safety" | "sensitive" | "refusal" => {
                Self::ContentFilter
            }
            "abort" | "aborted" | "cancelled" | "canceled" | "unknown" => Self::Abort,
            word if word.ends_with("error") || word == "insufficient_system_resource" => {
                Self::Abort
            }
            _ => Self::Stop,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::FunctionCall => "function_call",
            Self::ContentFilter => "content_filter",
            Self::Abort => unreachable!("an abort is no finish"),
        }
    }
}

/// Returns the finish reason of a choice that sent these calls, given as their argument texts.
fn finish_reason(
    case: &Case,
    said: FinishWord,
    calls: &[String],
    completion_tokens: Option<u64>,
) -> &'static str {
    let keeps_stop =
        option(case, "named_tool_choice_finish") == "openai" && forced_function(case).is_some();
    let word = match said {
        FinishWord::Stop if !calls.is_empty() && !keeps_stop => FinishWord::ToolCalls,
        FinishWord::ToolCalls if calls.is_empty() => FinishWord::Stop,
        other => other,
    };
    let cut_call = calls
        .last()
        .is_some_and(|arguments| Json::parse(arguments).is_none());
    let lost_call = said == FinishWord::ToolCalls && calls.is_empty();
    let limit_reached = is_at_limit(case, completion_tokens);
    let is_cut = calls.last().is_some_and(|arguments| is_open(arguments));
    let could_hide = [
        FinishWord::ToolCalls,
        FinishWord::Stop,
        FinishWord::FunctionCall,
    ]
    .contains(&word);
    if could_hide && (is_cut || (cut_call || lost_call) && limit_reached && choices(case) == 1) {
        return FinishWord::Length.text();
    }
    word.text()
}

fn is_at_limit(case: &Case, completion_tokens: Option<u64>) -> bool {
    match (completion_tokens, token_limit(case)) {
        (Some(used), Some(limit)) => used >= limit,
        _ => false,
    }
}

/// Returns true if this end of a choice may have cut its calls, so that they are not completed.
fn may_be_cut(case: &Case, said: FinishWord, completion_tokens: Option<u64>) -> bool {
    is_at_limit(case, completion_tokens)
        || [FinishWord::Length, FinishWord::ContentFilter].contains(&said)
}

/// Returns true if a JSON value has begun that more text could complete.
fn is_open(text: &str) -> bool {
    !text.trim_matches([' ', '\t', '\r', '\n']).is_empty() && may_continue(text)
}

/// Returns true if a text is no JSON, but may be the beginning of some. The parser takes the end of a text in the middle
/// of a number for a mistake.
fn may_continue(text: &str) -> bool {
    let read = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text);
    let with_digit = format!("{text}0");
    let is_eof = |text: &str| read(text).is_err_and(|error| error.is_eof());
    read(text).is_err() && (is_eof(text) || is_eof(&with_digit) || read(&with_digit).is_ok())
}
