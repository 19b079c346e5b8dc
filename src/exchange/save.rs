//! Exchange as a folder in the form of the fixtures, which `samewire replay` serves.

use super::{Ended, Exchange};
use http::{HeaderMap, HeaderValue};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

/// Headers whose values are never written.
const SECRET: [&str; 8] = [
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "cookie",
    "set-cookie",
    "x-goog-api-key",
    "www-authenticate",
];

/// Writes an exchange to a folder, which is created: `request.json`, `upstream.http`, the body as `upstream.sse`,
/// `.json` or `.txt`, `eof` if the connection broke, `timing.txt`, and `about.md` with the text `about`.
///
/// # Errors
/// Fails if the folder or a file cannot be written.
pub fn save(exchange: &Exchange, folder: &Path, about: &str) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let body = exchange.body();
    let kind = match exchange.content_type() {
        label if label.starts_with("text/event-stream") => "sse",
        label if label.starts_with("application/json") => "json",
        _ => "txt",
    };
    let file = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes);
    // What an earlier run has left would be read instead.
    for name in ["upstream.sse", "upstream.json", "upstream.txt", "eof"] {
        match std::fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    file("request.json", request(exchange).as_bytes())?;
    file("upstream.http", head(exchange).as_bytes())?;
    file(&format!("upstream.{kind}"), &body)?;
    if exchange.ended != Ended::Clean {
        file("eof", b"reset\n")?;
    }
    file("timing.txt", timing(exchange).as_bytes())?;
    file("about.md", format!("{about} {}.\n", exchange.ended.words()).as_bytes())
}

/// Request as `request.json` has it.
#[derive(Serialize)]
struct Recorded<'e> {
    method: &'e str,
    path: &'e str,
    headers: BTreeMap<&'e str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Body<'e>>,
}

/// Body as JSON, or as text if it is none.
#[derive(Serialize)]
#[serde(untagged)]
enum Body<'e> {
    Json(&'e RawValue),
    Text(String),
}

fn request(exchange: &Exchange) -> String {
    let request = &exchange.request;
    let body = match serde_json::from_slice(&request.body) {
        _ if request.body.is_empty() => None,
        Ok(body) => Some(Body::Json(body)),
        Err(_) => Some(Body::Text(String::from_utf8_lossy(&request.body).into_owned())),
    };
    let headers = request.headers.iter().map(|(name, value)| (name.as_str(), shown(name.as_str(), value)));
    let recorded =
        Recorded { method: request.method.as_str(), path: &request.path, headers: headers.collect(), body };
    // Texts and JSON are always JSON.
    serde_json::to_string_pretty(&recorded).unwrap_or_default() + "\n"
}

fn head(exchange: &Exchange) -> String {
    let status = exchange.status;
    let mut text = format!("HTTP/1.1 {} {}\n", status.as_u16(), status.canonical_reason().unwrap_or(""));
    write_headers(&exchange.headers, &mut text);
    text
}

fn write_headers(headers: &HeaderMap, text: &mut String) {
    for (name, value) in headers {
        let _ = writeln!(text, "{name}: {}", shown(name.as_str(), value));
    }
}

/// Returns the value of a header as it may be written.
fn shown(name: &str, value: &HeaderValue) -> String {
    if value.is_sensitive() || SECRET.contains(&name) {
        return "(redacted)".to_owned();
    }
    value.to_str().unwrap_or("(not text)").to_owned()
}

/// Returns a line for each piece: milliseconds since the request, and its bytes.
fn timing(exchange: &Exchange) -> String {
    let mut text = "# one line per read: ms since the request was sent, bytes\n".to_owned();
    for (at, piece) in &exchange.pieces {
        let _ = writeln!(text, "{:.3} {}", at.as_secs_f64() * 1000.0, piece.len());
    }
    text
}
