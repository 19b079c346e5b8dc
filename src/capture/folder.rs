//! Files of a captured exchange, in the form of a scenario (`fixtures/README.md`): `replay`, `rewrite` and `diff` read
//! them as they are.
//!
//! | file | holds |
//! |---|---|
//! | `request.json`, `upstream.http`, `upstream.sse` (`.json`, `.txt`), `eof`, `timing.txt` | last attempt |
//! | `rewrite.json` | what its answer was rewritten by: engine, version, options |
//! | `attempt-1/…` | attempts before it, in the same form |
//! | `request.bin` | body of the request where it is no text; `request.json` has it with replacement characters |
//! | `client/…` | exchange with the client, in the same form |
//! | `about.md` | model, engine, outcome, rules |

use super::exchange::{Captured, RecordedMessage};
use crate::json::{Raw, quoted};
use crate::visible::visible;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

/// Returns the files of an exchange: the path within the folder, and the content of each.
pub fn files(exchange: &Captured) -> Vec<(String, Vec<u8>)> {
    let mut files = vec![("about.md".to_owned(), about(exchange).into_bytes())];
    let mut add = |folder: &str, scenario: Vec<(String, Vec<u8>)>| {
        files.extend(
            scenario
                .into_iter()
                .map(|(name, content)| (format!("{folder}{name}"), content)),
        );
    };
    let last = exchange.attempts.len().saturating_sub(1);
    for (at, attempt) in exchange.attempts.iter().enumerate() {
        let folder = if at == last {
            String::new()
        } else {
            format!("attempt-{}/", at + 1)
        };
        add(
            &folder,
            scenario(
                &attempt.request,
                attempt.answer.as_ref(),
                !attempt.is_complete,
            ),
        );
        if let Some(route) = attempt.route.as_ref().and_then(|route| route.record()) {
            add(
                &folder,
                vec![("rewrite.json".to_owned(), route.into_bytes())],
            );
        }
    }
    let is_broken = exchange.outcome.end == "client_closed";
    add(
        "client/",
        scenario(&exchange.request, exchange.answer.as_ref(), is_broken),
    );
    files
}

/// Returns the files of one request and its answer, each with its name. `is_broken`: the connection broke before the
/// answer was complete.
pub fn scenario(
    request: &RecordedMessage,
    answer: Option<&RecordedMessage>,
    is_broken: bool,
) -> Vec<(String, Vec<u8>)> {
    let mut files = vec![(
        "request.json".to_owned(),
        request_json(request).into_bytes(),
    )];
    if std::str::from_utf8(&request.body).is_err() {
        files.push(("request.bin".to_owned(), request.body.clone()));
    }
    let Some(answer) = answer else { return files };
    files.push((
        "upstream.http".to_owned(),
        format!("{}\r\n", answer.head).into_bytes(),
    ));
    files.push((body_file(answer), answer.body.clone()));
    files.push(("timing.txt".to_owned(), timing(answer).into_bytes()));
    if is_broken {
        files.push(("eof".to_owned(), b"reset\n".to_vec()));
    }
    files
}

/// Returns the request as JSON: the body as it is where it is JSON, else as text.
fn request_json(request: &RecordedMessage) -> String {
    let mut lines = request.head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (
        first.next().unwrap_or_default(),
        first.next().unwrap_or_default(),
    );
    let mut text = format!(
        "{{\n \"method\": {},\n \"path\": {}",
        quoted(method),
        quoted(path)
    );
    let headers: Vec<String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| format!("\n  {}: {}", quoted(name), quoted(value)))
        .collect();
    if !headers.is_empty() {
        let _ = write!(text, ",\n \"headers\": {{{}\n }}", headers.join(","));
    }
    let body = String::from_utf8_lossy(&request.body);
    if let Some(json) = Raw::of(body.trim()) {
        let _ = write!(text, ",\n \"body\": {json}");
    } else if !body.is_empty() {
        let _ = write!(text, ",\n \"body_raw\": {}", quoted(&body));
    }
    text.push_str("\n}\n");
    text
}

/// Returns the name of the file with an answer's body, by its content type.
pub fn body_file(answer: &RecordedMessage) -> String {
    let kind = match answer.content_type().as_str() {
        "text/event-stream" => "sse",
        "application/json" => "json",
        _ => "txt",
    };
    format!("upstream.{kind}")
}

/// Returns a line for each piece: milliseconds since the request, and bytes.
fn timing(message: &RecordedMessage) -> String {
    let mut text = "# one line per read: ms since the request, bytes\n".to_owned();
    let mut start = 0;
    for piece in &message.pieces {
        let _ = writeln!(text, "{:.3} {}", milliseconds(piece.at), piece.end - start);
        start = piece.end;
    }
    text
}

/// Returns the facts in lines. Names that clients and engines choose can neither forge a line nor steer a terminal.
fn about(exchange: &Captured) -> String {
    let Captured { info, outcome, .. } = exchange;
    let began = exchange
        .began
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut text = format!("# {}\n\n", visible(&info.id));
    let mut line = |name: &str, value: &str| _ = writeln!(text, "- {name}: {}", visible(value));
    line(
        "began",
        &format!(
            "{}.{:03} (Unix seconds)",
            began.as_secs(),
            began.subsec_millis()
        ),
    );
    line("request", &format!("`{} {}`", info.method, info.path));
    line("model", &format!("`{}`", info.model));
    for (at, attempt) in exchange.attempts.iter().enumerate() {
        line(
            &format!("attempt {}", at + 1),
            &format!("upstream `{}`, engine {}", attempt.upstream, attempt.engine),
        );
    }
    let code = outcome
        .code
        .as_deref()
        .map(|code| format!(", code {code}"))
        .unwrap_or_default();
    line(
        "outcome",
        &format!(
            "{}, status {}{code}, after {:.3} ms",
            outcome.end,
            outcome.status,
            milliseconds(exchange.took)
        ),
    );
    let rules: Vec<String> = outcome
        .rules
        .iter()
        .map(|(rule, times)| format!("{rule} {times}"))
        .collect();
    let rules = if rules.is_empty() {
        "none".to_owned()
    } else {
        rules.join(", ")
    };
    line("rules", &rules);
    if exchange.is_cut {
        line(
            "cut",
            "bytes are missing: the exchange reached a limit of [capture]",
        );
    }
    text
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
