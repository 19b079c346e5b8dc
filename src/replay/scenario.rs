//! Scenarios: recorded exchanges, each from the files of one folder.
//!
//! Takes: folders, or the texts of the files in one. Gives: a named [`Scenario`] for each. Never: changes a byte
//! of a body.

use super::request::RecordedRequest;
use super::timing;
use crate::engine::{ENGINES, Engine, EngineVersion};
use crate::json::{self, Raw, object};
use crate::plan::Route;
use crate::visible::visible;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Stems of an answer's files: those of the fixtures, and those of plain captures.
const STEMS: [&str; 2] = ["upstream", "response"];
/// File with the request: its method, path, headers and body.
const REQUEST: &str = "request.json";
/// File with the end of the connection.
const EOF: &str = "eof";
/// File with the times at which the pieces of the body arrived.
const TIMING: &str = "timing.txt";
/// File with the body of a request that was no text; `body_raw` has it with replacement characters.
const BINARY: &str = "request.bin";
/// Kinds of bodies, with the content type to use if the head was not recorded.
const KINDS: [(&str, &str); 3] = [
    ("sse", "text/event-stream; charset=utf-8"),
    ("json", "application/json"),
    ("txt", "text/plain"),
];

/// Recorded exchange: the facts by which a request selects it, and the answer.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name, unique among the scenarios that are served together.
    pub name: String,
    /// Engine of the recording, if `rewrite.json` names one, or the folder or one above it is named after one.
    pub engine: Option<&'static Engine>,
    /// Version of that engine, if `rewrite.json` gives it.
    pub version: Option<EngineVersion>,
    /// HTTP method of the recorded request; `POST` if not recorded.
    pub method: String,
    /// Path of the recorded request, without its query.
    pub path: String,
    /// True if the request asked for a stream.
    pub stream: bool,
    /// HTTP status of the answer.
    pub status: StatusCode,
    /// Headers of the answer, without those of the connection.
    pub headers: HeaderMap,
    /// Body, split into the pieces that are written separately.
    pub frames: Vec<Bytes>,
    /// True if the body consists of events (SSE).
    pub events: bool,
    /// True if the connection broke after the body.
    pub reset: bool,
}

/// Texts of one scenario, from its files or embedded in the binary.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// Content of `request.json`: method, path and body.
    pub request: &'a str,
    /// Content of `upstream.http`, if that exists: status line and headers.
    pub head: Option<&'a str>,
    /// Extension of the body's file: `sse`, `json` or `txt`.
    pub kind: &'a str,
    /// Body of the answer.
    pub body: &'a [u8],
    /// True if the connection broke after the body.
    pub reset: bool,
}

/// Reason why scenarios cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// File or folder that cannot be read, and the error.
    #[error("{0}: {1}")]
    Unreadable(PathBuf, std::io::Error),
    /// File with invalid content, and the reason.
    #[error("{0}: {1}")]
    Malformed(PathBuf, String),
    /// Path without a scenario, neither in the folder nor below it.
    #[error(
        "{0}: no scenario is there; a scenario is a folder with request.json and upstream.sse, .json or .txt"
    )]
    Nothing(PathBuf),
    /// Link that leads out of the folder that was named.
    #[error(
        "{0}: it leads out of the folder, so that a file from elsewhere would be read; name the folder it leads to"
    )]
    Outside(PathBuf),
    /// Name that two scenarios share, with the folders of both.
    #[error("two scenarios are named {0}: {1} and {2}; name a folder above them instead")]
    Twice(String, PathBuf, PathBuf),
}

/// Loads the scenarios of all paths, in the order of the paths; those of one path in the order of their names.
///
/// # Errors
/// Fails with the first mistake.
pub fn load(paths: &[PathBuf]) -> Result<Vec<Scenario>, LoadError> {
    let mut folders: Vec<(String, PathBuf)> = Vec::new();
    for path in paths {
        let unreadable = |error| LoadError::Unreadable(path.clone(), error);
        let root = path.canonicalize().map_err(unreadable)?;
        let before = folders.len();
        let mut walk = Walk {
            root: &root,
            seen: HashSet::new(),
            found: Vec::new(),
        };
        walk.search(&root)?;
        folders.extend(walk.found.into_iter().map(|folder| {
            let name = folder
                .strip_prefix(root.parent().unwrap_or(&root))
                .unwrap_or(&folder);
            (name.to_string_lossy().into_owned(), folder)
        }));
        if folders.len() == before {
            return Err(LoadError::Nothing(path.clone()));
        }
    }
    for (at, (name, folder)) in folders.iter().enumerate() {
        if let Some((_, other)) = folders.iter().take(at).find(|(other, _)| other == name) {
            return Err(LoadError::Twice(
                name.clone(),
                other.clone(),
                folder.clone(),
            ));
        }
    }
    folders
        .into_iter()
        .map(|(name, folder)| read(name, &folder))
        .collect()
}

/// Checks that a scenario and its files are within the root: the folder may be somebody else's.
fn check_links(root: &Path, folder: &Path) -> Result<(), LoadError> {
    let stems = STEMS
        .iter()
        .flat_map(|stem| ["http", "sse", "json", "txt"].map(|kind| format!("{stem}.{kind}")));
    let others = ["", REQUEST, BINARY, ROUTE, EOF, TIMING].map(str::to_owned);
    for path in others
        .into_iter()
        .chain(stems)
        .map(|file| folder.join(file))
        .filter(|path| path.exists())
    {
        let real = path
            .canonicalize()
            .map_err(|error| LoadError::Unreadable(path.clone(), error))?;
        if !real.starts_with(root) {
            return Err(LoadError::Outside(path));
        }
    }
    Ok(())
}

/// Search for the scenarios below a folder.
struct Walk<'r> {
    root: &'r Path,
    /// Real paths of the folders that were searched: links may form a cycle.
    seen: HashSet<PathBuf>,
    found: Vec<PathBuf>,
}

impl Walk<'_> {
    /// Finds each scenario in a folder or below it.
    fn search(&mut self, folder: &Path) -> Result<(), LoadError> {
        let unreadable = |error| LoadError::Unreadable(folder.to_owned(), error);
        let real = folder.canonicalize().map_err(unreadable)?;
        if !real.starts_with(self.root) {
            return Err(LoadError::Outside(folder.to_owned()));
        }
        if !self.seen.insert(real) {
            return Ok(());
        }
        if folder.join(REQUEST).is_file() {
            self.found.push(folder.to_owned());
            return check_links(self.root, folder);
        }
        let mut below = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let hidden = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if path.is_dir() && !hidden {
                below.push(path);
            }
        }
        below.sort();
        below.iter().try_for_each(|path| self.search(path))
    }
}

fn read(name: String, folder: &Path) -> Result<Scenario, LoadError> {
    let text = |file: &str| {
        let path = folder.join(file);
        let bytes =
            std::fs::read(&path).map_err(|error| LoadError::Unreadable(path.clone(), error))?;
        String::from_utf8(bytes)
            .map_err(|_| LoadError::Malformed(path, "it is not UTF-8".to_owned()))
    };
    let optional = |file: &str| folder.join(file).is_file().then(|| text(file)).transpose();
    let malformed = |file: &str, why: String| LoadError::Malformed(folder.join(file), why);
    let request = text(REQUEST)?;
    let (stem, kind, body) = body(folder)?;
    let head_file = format!("{stem}.http");
    let head = optional(&head_file)?;
    let reset = match optional(EOF)?.as_deref().map(str::trim) {
        None | Some("clean") => false,
        Some("reset") => true,
        Some(_) => return Err(malformed(EOF, "it must hold the word reset".to_owned())),
    };
    if let Some(text) = optional(TIMING)? {
        let sum = timing::check(&text).map_err(|why| malformed(TIMING, why))?;
        if let Some(why) = timing::difference(&body, sum) {
            return Err(malformed(&format!("{stem}.{kind}"), why));
        }
    }
    if let Some(bytes) = binary(folder)? {
        let raw = RecordedRequest::read(&request)
            .ok()
            .and_then(|request| request.body_raw);
        if raw.is_some_and(|raw| raw != String::from_utf8_lossy(&bytes)) {
            return Err(malformed(
                BINARY,
                "it is not the body_raw of request.json".to_owned(),
            ));
        }
    }
    let route = optional(ROUTE)?
        .map(|text| Route::of_record(&text))
        .transpose();
    let identity = route
        .map_err(|why| malformed(ROUTE, visible(&why)))?
        .map(|route| route.identity);
    let engine = identity
        .map(|identity| identity.engine)
        .filter(|engine| engine.is_known());
    let recorded = Recorded {
        request: &request,
        head: head.as_deref(),
        kind,
        body: &body,
        reset,
    };
    let scenario = Scenario::new(name, engine.or_else(|| engine_of(folder)), &recorded);
    let scenario = scenario
        .map_err(|(file, why)| malformed(if file == HEAD { &head_file } else { file }, why))?;
    Ok(Scenario {
        version: identity.and_then(|identity| identity.version),
        ..scenario
    })
}

/// Returns the body of a request that was no text.
fn binary(folder: &Path) -> Result<Option<Vec<u8>>, LoadError> {
    let path = folder.join(BINARY);
    let read = path.is_file().then(|| std::fs::read(&path));
    read.transpose()
        .map_err(|error| LoadError::Unreadable(path, error))
}

/// Returns the body of the answer, with the stem and the extension of its file.
fn body(folder: &Path) -> Result<(&'static str, &'static str, Vec<u8>), LoadError> {
    let all = STEMS
        .iter()
        .flat_map(|stem| KINDS.map(|(kind, _)| (*stem, kind, format!("{stem}.{kind}"))));
    let mut found = all.filter(|(_, _, file)| folder.join(file).is_file());
    if let Some((stem, kind, name)) = found.next() {
        if let Some((.., other)) = found.next() {
            let why = format!("{name} is there as well; one of them must go");
            return Err(LoadError::Malformed(folder.join(other), why));
        }
        let file = folder.join(name);
        let body = std::fs::read(&file).map_err(|error| LoadError::Unreadable(file, error))?;
        return Ok((stem, kind, body));
    }
    // Plain captures omit empty bodies.
    if folder.join("response.http").is_file() {
        return Ok(("response", "txt", Vec::new()));
    }
    let why =
        "the engine's answer is missing: upstream.sse, upstream.json or upstream.txt".to_owned();
    Err(LoadError::Malformed(folder.to_owned(), why))
}

/// Returns the engine after which the folder or one above it is named: `vllm`, `vllm-0.21.0`.
fn engine_of(folder: &Path) -> Option<&'static Engine> {
    folder
        .ancestors()
        .filter_map(|above| above.file_name()?.to_str())
        .find_map(|name| {
            let of = |engine: &&&Engine| {
                let rest = name.strip_prefix(engine.name);
                engine.detection.owned_by.is_some()
                    && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            };
            ENGINES.iter().find(of).copied()
        })
}

object! {
    struct Body<'a> {
        stream: Raw<'a> = "stream",
    }
}

/// File name of a head, as mistakes refer to it.
const HEAD: &str = "upstream.http";
/// File with what a captured answer was rewritten by.
pub const ROUTE: &str = "rewrite.json";

/// File name, and the mistake in it.
type FileError = (&'static str, String);

impl Scenario {
    /// Creates a scenario from its texts.
    ///
    /// # Errors
    /// Fails with the name of the invalid file, and the reason.
    pub fn new(
        name: impl Into<String>,
        engine: Option<&'static Engine>,
        recorded: &Recorded<'_>,
    ) -> Result<Self, FileError> {
        let request =
            RecordedRequest::read(recorded.request).map_err(|why| ("request.json", why))?;
        let body = request
            .body
            .and_then(|body| json::read::<Body<'_>>(body.get()).ok());
        let (status, headers) = head(recorded)?;
        let events = recorded.kind == "sse";
        let bytes = Bytes::copy_from_slice(recorded.body);
        Ok(Self {
            name: name.into(),
            engine,
            version: None,
            method: request.method,
            // Requests are told apart without their queries.
            path: request
                .path
                .split('?')
                .next()
                .unwrap_or_default()
                .to_owned(),
            stream: body
                .and_then(|body| body.stream)
                .is_some_and(|stream| stream.get() == "true"),
            status,
            headers,
            frames: if events { frames(&bytes) } else { vec![bytes] },
            events,
            reset: recorded.reset,
        })
    }
}

/// Returns the recorded status and headers. Headers of the connection are left to the server.
fn head(recorded: &Recorded<'_>) -> Result<(StatusCode, HeaderMap), FileError> {
    let mut headers = HeaderMap::new();
    let Some(text) = recorded.head else {
        let label = KINDS
            .iter()
            .find(|(kind, _)| *kind == recorded.kind)
            .map_or("text/plain", |(_, label)| label);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(label));
        return Ok((StatusCode::OK, headers));
    };
    let mut lines = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("");
    let status = first
        .split(' ')
        .nth(1)
        .filter(|_| first.starts_with("HTTP/"));
    let status = status
        .and_then(|word| StatusCode::from_bytes(word.as_bytes()).ok())
        .filter(|status| !status.is_informational())
        .ok_or_else(|| {
            (
                HEAD,
                "line 1: it must be a status line such as HTTP/1.1 200 OK".to_owned(),
            )
        })?;
    for (at, line) in lines.enumerate() {
        let field = line.split_once(':').and_then(|(name, value)| {
            Some((
                name.parse::<HeaderName>().ok()?,
                HeaderValue::from_str(value.trim()).ok()?,
            ))
        });
        let Some((name, value)) = field else {
            return Err((
                HEAD,
                format!(
                    "line {}: it must be a header such as content-type: text/plain",
                    at + 2
                ),
            ));
        };
        if ![CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(&name) && name != "keep-alive"
        {
            headers.append(name, value);
        }
    }
    Ok((status, headers))
}

/// Splits a body into events, each with the blank line after it. Concatenated, they are the body.
fn frames(body: &Bytes) -> Vec<Bytes> {
    let mut frames = Vec::new();
    let (mut from, mut at, mut line) = (0, 0, 0);
    while let Some(byte) = body.get(at) {
        at += 1;
        match byte {
            b'\r' if body.get(at) == Some(&b'\n') => continue,
            b'\r' | b'\n' => {}
            _ => continue,
        }
        let end = body.get(line..at).unwrap_or_default();
        line = at;
        if end.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
            frames.push(body.slice(from..at));
            from = at;
        }
    }
    if from < body.len() {
        frames.push(body.slice(from..));
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_behind_their_blank_line() {
        for (body, expected) in [
            ("", &[][..]),
            ("data: a\n\ndata: b\n\n", &["data: a\n\n", "data: b\n\n"]),
            ("data: a\r\n\r\nb", &["data: a\r\n\r\n", "b"]),
            ("data: a\r\rb\r", &["data: a\r\r", "b\r"]),
            ("a\nb\n\n\nc", &["a\nb\n\n", "\n", "c"]),
        ] {
            let got = frames(&Bytes::from(body));
            assert_eq!(got, expected, "{body:?}");
        }
    }

    #[test]
    fn engines_are_known_by_their_folders() {
        let name = |path: &str| engine_of(Path::new(path)).map(|engine| engine.name);
        assert_eq!(name("/a/vllm/tool"), Some("vllm"));
        assert_eq!(name("/vllm/sglang-0.5.12/vllmish"), Some("sglang"));
        assert_eq!(name("/a/auto/b"), None);
    }

    #[test]
    fn mistakes_name_file_and_field() {
        let new = |request: &str, head: &str| {
            let recorded = Recorded {
                request,
                head: Some(head),
                kind: "txt",
                body: b"",
                reset: false,
            };
            Scenario::new("a", None, &recorded).map(|scenario| scenario.status.as_u16())
        };
        let ok = "HTTP/1.1 404 Not Found\r\nX-A: b\r\n";
        assert_eq!(new(r#"{"path":"/a"}"#, ok), Ok(404));
        for (request, head, file, why) in [
            ("[", ok, "request.json", "not a JSON object"),
            ("{}", ok, "request.json", "path: missing"),
            (
                r#"{"path":1}"#,
                ok,
                "request.json",
                "path: it must be a string",
            ),
            (r#"{"path":"a"}"#, ok, "request.json", "path: it must begin"),
            (
                r#"{"path":"/a","method":1}"#,
                ok,
                "request.json",
                "method: it must be a string",
            ),
            (r#"{"path":"/a"}"#, "nonsense", "upstream.http", "line 1"),
            (
                r#"{"path":"/a"}"#,
                "HTTP/1.1 200 OK\nx",
                "upstream.http",
                "line 2",
            ),
        ] {
            let (at, text) = new(request, head).unwrap_err();
            assert_eq!(at, file, "{request} {head}");
            assert!(text.contains(why), "{request} {head}: {text}");
        }
    }
}
