//! Disclosure: how much of an engine's own error text a client sees (option `engine_errors`).
//!
//! Engines write file paths, addresses and stack traces of their host into error messages. Clients do not need them,
//! and they would help an attacker. The log keeps the whole text ([`EngineReport`](super::fault::EngineReport)).
//!
//! Takes: a [`Failure`]. Gives: the same with a message that clients may see. Never: changes a message of samewire's
//! own, or the name of the model that the client asked for, which may be a path.

use super::fault::{Failure, Fault};
use super::options::EngineErrors;
use crate::json::places_of;
use bytes::Bytes;
use core::fmt;
use core::net::IpAddr;

/// Replacement for removed text.
const HIDDEN: &str = "…";
/// Replacement for a removed key.
const HIDDEN_KEY: &str = "[…]";
/// Shortest key that is removed, in bytes. Shorter ones are words that may occur anywhere.
const LEAST_KEY: usize = 8;

/// Sentence after the class of a failure if the engine's text is hidden; the request id follows it.
const LOG_HINT: &str = " The engine's own message is in the log, under request id ";

/// Line after the engine's text if a stack trace is cut off; the request id follows it.
const TRACE_HINT: &str = "\nThe rest of the engine's message is in the log, under request id ";

/// Texts at the beginning of stack traces, or between their lines.
const TRACES: [&str; 5] = [
    "Traceback (most recent call last)",
    "\n  File \"",
    "stack backtrace:",
    "\n    at ",
    "\n\tat ",
];

/// First segments of the paths that engines serve: an error about a route may name it.
const ROUTES: [&str; 6] = ["v1", "v2", "openai", "api", "generate", "inference"];

/// First segments of JSON pointers into a request.
const POINTERS: [&str; 9] = [
    "body",
    "messages",
    "input",
    "tools",
    "properties",
    "parameters",
    "response_format",
    "definitions",
    "$defs",
];

/// Endings of names that only a private network resolves, Kubernetes' own among them.
const PRIVATE_SUFFIXES: [&str; 6] = [
    ".local",
    ".internal",
    ".svc",
    ".lan",
    ".localdomain",
    ".home.arpa",
];

/// Returns the failure with as much of the engine's text as `policy` permits. `model`: the client's name for the
/// model, which is never hidden; `request_id`: named in the message if the text is hidden.
#[must_use]
pub fn disclosed(
    mut failure: Failure,
    policy: EngineErrors,
    model: &str,
    request_id: &str,
) -> Failure {
    if failure.engine.is_some() && policy.resolved(false) != EngineErrors::Pass {
        hide_labels(&mut failure, model);
    }
    let Some(engine) = failure.engine.as_ref().filter(|engine| engine.is_message) else {
        return failure;
    };
    if is_canonical(&engine.text) {
        return failure;
    }
    let told = before_trace(&failure.message);
    let shows_text = match policy.resolved(false) {
        EngineErrors::Pass => return failure,
        EngineErrors::Redact => true,
        EngineErrors::Redact4xx => failure.status < 500,
        EngineErrors::Auto | EngineErrors::Mask => false,
    };
    let message = match shows_text && !told.is_empty() {
        true if told.len() == failure.message.len() => without_host(told, model),
        true => format!("{}{TRACE_HINT}{request_id}.", without_host(told, model)),
        false => format!("{}{LOG_HINT}{request_id}.", failure.fault.message()),
    };
    failure.with_message(message)
}

/// Returns the failure without the key in a header's value, wherever the engine repeats it.
#[must_use]
pub fn hide_key(mut failure: Failure, header: &[u8]) -> Failure {
    let words = [&mut failure.message, &mut failure.kind]
        .into_iter()
        .chain(&mut failure.code);
    for word in words {
        *word = without_key(word, header).into();
    }
    let report = failure.engine.as_mut().map(|engine| &mut engine.text);
    let limits = failure.limits.iter_mut().map(|(_, value)| value);
    for text in failure.param.iter_mut().chain(report).chain(limits) {
        *text = without_key(text, header);
    }
    failure
}

/// Hides the engine's words beside the message where they reveal its host: they are names, and useless in part.
fn hide_labels(failure: &mut Failure, model: &str) {
    let is_safe = |text: &str| without_host(text, model) == text;
    let (_, kind, code, _) = failure.fault.row();
    failure.param = failure.param.take().filter(|param| is_safe(param));
    if !is_safe(&failure.kind) {
        failure.kind = kind.into();
    }
    if !failure.code.as_deref().is_none_or(is_safe) {
        failure.code = code.map(Into::into);
    }
    failure.limits.retain(|(_, json)| is_safe(json));
}

/// Returns the text before a stack trace; all of it if there is none. SGLang appends a line of its source to each
/// validation error (engines H.4).
fn before_trace(text: &str) -> &str {
    let start = TRACES.iter().filter_map(|mark| text.find(mark)).min();
    start
        .and_then(|start| text.get(..start))
        .map_or(text, str::trim_end)
}

/// Returns true if the text is a message of samewire's own, sent by another samewire between this one and the
/// engine.
fn is_canonical(text: &str) -> bool {
    Fault::messages().any(|message| {
        let rest = text.strip_prefix(message.trim_end_matches('.'));
        rest.is_some_and(|rest| {
            rest == "." || rest.starts_with(" (HTTP ") || rest.starts_with(&format!(".{LOG_HINT}"))
        })
    })
}

/// Returns true if a text names a path or an address of the engine's host.
pub fn names_host(text: &str) -> bool {
    without_host(text, "") != text
}

/// Returns the text without words that are paths or addresses of the engine's host.
fn without_host(text: &str, model: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = WordContext::Other;
    // Names in a path of Windows may have spaces.
    let mut after_windows_path = false;
    while !rest.is_empty() {
        let end = rest.find(is_delimiter).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let plain = word.trim_end_matches(['.', ':', '!', '?']);
        let reveals = reveals_host(plain)
            || before.reveals(plain)
            || after_windows_path && plain.contains('\\');
        if !word.is_empty() {
            before = WordContext::of(plain);
            after_windows_path |= is_windows_path(plain);
        }
        if reveals && !model.contains(plain) {
            out.push_str(HIDDEN);
            out.push_str(word.get(plain.len()..).unwrap_or_default());
        } else {
            out.push_str(word);
        }
        let delimiter = after.chars().next().map_or(0, char::len_utf8);
        let (delimiter, next) = after.split_at(delimiter);
        out.push_str(delimiter);
        rest = next;
    }
    out
}

/// Meaning of a word for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordContext {
    /// Word before the name of a host, as in `host a:8000`.
    BeforeHost,
    /// Key whose value is the name of a host, as in `host='a'`.
    HostKey,
    Other,
}

impl WordContext {
    fn of(word: &str) -> Self {
        let names_host = |word: &str| {
            const NAMES: [&str; 6] = [
                "host", "hostname", "server", "address", "endpoint", "worker",
            ];
            NAMES.iter().any(|name| word.eq_ignore_ascii_case(name))
        };
        match word.strip_suffix('=') {
            Some(key) if names_host(key) => Self::HostKey,
            None if names_host(word) => Self::BeforeHost,
            _ => Self::Other,
        }
    }

    /// Returns true if the word reveals the host after this one.
    fn reveals(self, word: &str) -> bool {
        let is_name = |host: &str| {
            host.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        let (host, port) = word
            .rsplit_once(':')
            .map_or((word, None), |(host, port)| (host, Some(port)));
        match self {
            Self::BeforeHost => port.is_some_and(is_high_port) && is_name(host),
            Self::HostKey => {
                is_name(host) && host.contains(|letter: char| letter.is_ascii_alphabetic())
            }
            Self::Other => false,
        }
    }
}

fn is_delimiter(letter: char) -> bool {
    const QUOTES: &str = "\"'`“”‘’«»";
    letter.is_whitespace() || QUOTES.contains(letter) || "()<>,;{}|".contains(letter)
}

/// Returns true if a word is a path, an address or a source file of the engine's host.
fn reveals_host(word: &str) -> bool {
    if let Some((scheme, rest)) = word.split_once("://") {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let is_web = scheme.ends_with("http") || scheme.ends_with("https");
        return !is_web || !is_public(authority);
    }
    // A path may follow a key, as in `path=/usr/lib/x` and `model:/srv/x`.
    let value = word.rsplit(['=', '@']).next().unwrap_or(word);
    let mut parts = word.split(['=', '@', '[', ']', ':']);
    let key = word
        .strip_suffix(value)
        .map_or(WordContext::Other, WordContext::of);
    parts.any(is_path)
        || key == WordContext::HostKey && key.reveals(value)
        || is_windows_path(value.trim_start_matches('['))
        || is_source(value.trim_matches(['[', ']']))
        || is_address(value)
}

/// Returns true if the host of a link is a name in the public network, without a port or a password.
fn is_public(authority: &str) -> bool {
    let host = authority.to_ascii_lowercase();
    let is_inside = is_private_name(&host) || !host.contains('.') || host.contains('@');
    !is_inside && !is_address(&host) && host.parse::<IpAddr>().is_err()
}

/// Returns true if the text is an absolute path of two segments or more and does not begin with a route's first
/// segment.
fn is_path(text: &str) -> bool {
    let path = text.strip_prefix('~').unwrap_or(text);
    let Some(path) = path.strip_prefix('/') else {
        return false;
    };
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let first = segments.next().unwrap_or_default();
    segments.next().is_some() && !ROUTES.contains(&first) && !POINTERS.contains(&first)
}

/// Returns true if the text is a path of Windows, with a drive or a server.
fn is_windows_path(text: &str) -> bool {
    let is_letter =
        |drive: &str| drive.len() == 1 && drive.bytes().all(|byte| byte.is_ascii_alphabetic());
    let drive = text.split_once(':').filter(|(drive, _)| is_letter(drive));
    let in_drive = drive.and_then(|(_, path)| path.strip_prefix(['\\', '/']));
    // Two backslashes are common in patterns, too: a server has a name, and one backslash after it.
    let on_server = text
        .strip_prefix("\\\\")
        .and_then(|path| path.split_once('\\'));
    let is_name = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    in_drive.is_some_and(|path| !path.is_empty())
        || on_server.is_some_and(|(server, path)| {
            !server.is_empty()
                && is_name(server)
                && path.starts_with(|first: char| first.is_alphanumeric())
        })
}

/// Value of the header with which samewire proves itself to an engine. Error texts for clients must not repeat it.
#[derive(Clone)]
pub struct EngineKey(pub Bytes);

impl fmt::Debug for EngineKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Returns the text without the key in a header's value, which may begin with a scheme, however the text spells it.
pub fn without_key(text: &str, header: &[u8]) -> String {
    let value = std::str::from_utf8(header).unwrap_or_default();
    let key = value.split_once(' ').map_or(value, |(_, key)| key).trim();
    if key.len() < LEAST_KEY {
        return text.to_owned();
    }
    let (mut out, mut kept) = (String::with_capacity(text.len()), 0);
    for place in places_of(key.as_bytes(), text.as_bytes()) {
        out.push_str(text.get(kept..place.start).unwrap_or_default());
        out.push_str(HIDDEN_KEY);
        kept = place.end;
    }
    out.push_str(text.get(kept..).unwrap_or_default());
    out
}

/// Returns true if the text is a host name, in lower case and with a dot, that only a private network resolves.
pub fn is_private_name(host: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    PRIVATE_SUFFIXES
        .iter()
        .any(|end| host.strip_suffix(end).is_some_and(is_name))
}

fn is_port(text: &str) -> bool {
    text.len() > 1 && text.parse::<u16>().is_ok()
}

/// Returns true for a port that needs no privileges: a smaller number after a colon is rather a count or a time.
fn is_high_port(text: &str) -> bool {
    text.parse::<u16>().is_ok_and(|port| port >= 1024)
}

/// Returns true if the text names a source file, with or without a line number.
fn is_source(text: &str) -> bool {
    let file = text.split(':').next().unwrap_or(text);
    let has_name = |end: &&str| file.strip_suffix(*end).is_some_and(|name| !name.is_empty());
    [".py", ".cu", ".cpp", ".rs"].iter().any(has_name)
}

/// Returns true if the text is an IP address, with or without a port, a host name with a port, or one that only the
/// engine's network resolves.
fn is_address(text: &str) -> bool {
    let bare = text.trim_start_matches('[');
    let (host, port) = match bare.split_once(']') {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    // An address of a link may name the interface: `fe80::1%eth0`.
    if host
        .split('%')
        .next()
        .is_some_and(|address| address.parse::<IpAddr>().is_ok())
    {
        // `a::b` is a name in a program, and `::` is punctuation.
        return host.contains(|letter: char| letter.is_ascii_digit());
    }
    let is_name = host.contains('.') && host.contains(|letter: char| letter.is_ascii_alphabetic());
    // The name of a machine, such as `vllm-0`: a word of prose has no digit after a hyphen.
    let is_machine = host.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && host.contains('-')
        && host.ends_with(|letter: char| letter.is_ascii_digit());
    // Without a port, `threading.local` is a name in a program.
    let is_deep = host.matches('.').count() > 1
        || host.contains(|letter: char| letter == '-' || letter.is_ascii_digit());
    port.is_some_and(is_port) && (is_name || host.eq_ignore_ascii_case("localhost"))
        || port.is_some_and(is_high_port) && is_machine
        || is_deep && is_private_name(&host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use EngineErrors::{Auto, Mask, Pass, Redact, Redact4xx};

    fn told(status: u16, message: &str, policy: EngineErrors) -> String {
        let body = format!("{{\"error\":{{\"message\":{message:?}}}}}");
        let failure = Failure::of_answer(status, body.as_bytes(), false);
        disclosed(failure, policy, "/models/qwen3", "req_1")
            .message
            .into_owned()
    }

    #[test]
    fn a_key_is_removed_wherever_it_occurs() {
        let told = "no such tenant: hunter2hunter2 (hunter2hunter2!)";
        for header in ["Bearer hunter2hunter2", "hunter2hunter2"] {
            assert_eq!(
                without_key(told, header.as_bytes()),
                "no such tenant: […] ([…]!)"
            );
        }
        assert_eq!(without_key("none of that", b"Bearer none"), "none of that");
    }

    /// Messages, and what clients get of them.
    const LOGGED: &[(&str, &str)] = &[
        (
            "max_tokens must be at least 1, got 0.",
            "max_tokens must be at least 1, got 0.",
        ),
        (
            "The model `/models/qwen3` does not exist.",
            "The model `/models/qwen3` does not exist.",
        ),
        (
            "The model `/models/other` does not exist.",
            "The model `…` does not exist.",
        ),
        (
            "No such file: '/usr/lib/python3/site.py'.",
            "No such file: '…'.",
        ),
        ("cache=/root/.cache/hub is full", "… is full"),
        ("serving.py:12 failed at 10.0.0.7:5000!", "… failed at …!"),
        ("connect to [fd00::1]:8000 or fd00::1", "connect to … or …"),
        ("vllm-0.vllm.svc:8000 and localhost:8000", "… and …"),
        ("tcp://127.0.0.1:5557 timed out", "… timed out"),
        ("http://prefill:8100/v1 is away", "… is away"),
        ("gemm.cu and x.cpp broke", "… and … broke"),
        ("a.py:3, k.cu and x.rs broke", "…, … and … broke"),
        (
            r"cannot open C:\Program Files\vllm\x.json or \\nas\models",
            "cannot open … … or …",
        ),
        (
            "tried [/srv/x/y], “/srv/x/z” and model:/srv/x/y",
            "tried …, “…” and …",
        ),
        (
            "worker prefill:8100 and vllm-0:8000 are away",
            "worker … and … are away",
        ),
        (
            "Pool(host='prefill', port=8100): no",
            "Pool(host='…', port=8100): no",
        ),
        (
            "host=decode.llm worker=3 endpoint='/v1/models'",
            "… worker=3 endpoint='/v1/models'",
        ),
        ("from fe80::1%eth0 port 8000", "from … port 8000"),
        (
            r"C:\Program Files\My App\a x b\c.bin is away",
            "… … … x … is away",
        ),
        (
            "vllm.llm.svc, a.cluster.local and gpu-1.internal",
            "…, … and …",
        ),
        ("/srv/models/x@main and /srv/m/y=z", "… and …"),
        ("https://bob:secret@models.example/x is away", "… is away"),
        (
            "no more than tokens:4096, limit-2:x, C: and a:b",
            "no more than tokens:4096, limit-2:x, C: and a:b",
        ),
        (
            r"regex '\\d{3}-\\d{4}' or `\\w+\\.\\w+` or \\frac",
            r"regex '\\d{3}-\\d{4}' or `\\w+\\.\\w+` or \\frac",
        ),
        (
            "limited to tokens:4096 at 10:30 from 22:00",
            "limited to tokens:4096 at 10:30 from 22:00",
        ),
        (
            "threading.local on cuda:10, gpt-4:32",
            "threading.local on cuda:10, gpt-4:32",
        ),
        ("window 2026-11-28T17:56", "window 2026-11-28T17:56"),
        (
            "Invalid value at body:/messages/0/content",
            "Invalid value at body:/messages/0/content",
        ),
        // What only looks like a file or an address.
        ("no .cpp and no .rs", "no .cpp and no .rs"),
        (
            "localhost:x, a.b:1, index:12, 3.5:10",
            "localhost:x, a.b:1, index:12, 3.5:10",
        ),
        (
            "See https://errors.pydantic.dev/2.11/v/missing.",
            "See https://errors.pydantic.dev/2.11/v/missing.",
        ),
        (
            "Use /v1/chat/completions, and/or a ratio of 1/2.",
            "Use /v1/chat/completions, and/or a ratio of 1/2.",
        ),
        (
            "at 12:30:45, a::b, x: 1, temperature:0.5",
            "at 12:30:45, a::b, x: 1, temperature:0.5",
        ),
        ("ünïcödé/wörds — “fine”", "ünïcödé/wörds — “fine”"),
    ];

    #[test]
    fn hosts_stay_in_the_log() {
        for &(message, expected) in LOGGED {
            for (status, policy) in [(400, Auto), (400, Redact4xx), (400, Redact), (500, Redact)] {
                assert_eq!(told(status, message, policy), expected);
            }
            assert_eq!(told(400, message, Pass), message);
        }
    }

    #[test]
    fn the_text_before_a_stack_trace_stays() {
        let validation = concat!(
            "1 validation error:\n  {'loc': ('body', 'logit_bias'), 'msg': 'Input should be a valid dictionary'}\n\n",
            "  File \"/opt/venv/sglang/http_server.py\", line 1870, in openai_v1\n    POST /v1/chat/completions",
        );
        let kept = concat!(
            "1 validation error:\n  {'loc': ('body', 'logit_bias'), 'msg': 'Input should be a valid dictionary'}\n",
            "The rest of the engine's message is in the log, under request id req_1.",
        );
        assert_eq!(told(400, validation, Auto), kept);
        assert_eq!(told(500, validation, Redact), kept);
        // Another samewire in front of this one leaves it as it is.
        assert_eq!(told(400, kept, Auto), kept);
        let hidden = "cannot open …\nThe rest of the engine's message is in the log, under request id req_1.";
        assert_eq!(
            told(
                400,
                "cannot open /opt/x/y\n    at z.js:1\nstack backtrace:",
                Auto
            ),
            hidden
        );
    }

    #[test]
    fn failures_of_the_engine_are_told_by_their_class() {
        let internal = "Server error: the upstream engine reported an internal error. The engine's own message is in the log, under request id req_1.";
        for policy in [Auto, Redact4xx, Mask] {
            assert_eq!(told(500, "CUDA out of memory on gpu-7", policy), internal);
        }
        assert_eq!(
            told(500, "CUDA out of memory on gpu-7", Pass),
            "CUDA out of memory on gpu-7"
        );
        let refused = "The engine refused the request. The engine's own message is in the log, under request id req_1.";
        assert_eq!(told(400, "bad input", Mask), refused);
        assert_eq!(
            told(400, "Traceback (most recent call last):\n x", Auto),
            refused
        );
        assert_eq!(
            told(500, "Traceback (most recent call last):\n x", Redact),
            internal
        );
        // Messages of another samewire in front of the engine stay unchanged too.
        assert_eq!(told(500, refused, Mask), refused);
        let incomplete = "Upstream connection closed before the answer was complete (stream ended without finish_reason).";
        assert_eq!(told(502, incomplete, Auto), incomplete);
        // samewire's own messages stay, because they contain no text of the engine.
        let failure = Failure::of_answer(502, b"<html>nginx at 10.0.0.7", false);
        assert_eq!(
            disclosed(failure.clone(), Mask, "", "req_1").message,
            failure.message
        );
        assert_eq!(failure.engine.unwrap().text, "<html>nginx at 10.0.0.7");
    }
}
