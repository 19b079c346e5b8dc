//! Exchange as a folder in the form of the fixtures, which `samewire replay` serves.

use super::{Ended, Exchange};
use crate::capture::{RecordedMessage, head_text, scenario};
use std::io;
use std::path::Path;

/// Files that an earlier run may have left, and that would be read instead.
const STALE: [&str; 5] = [
    "upstream.sse",
    "upstream.json",
    "upstream.txt",
    "eof",
    "request.bin",
];

/// Writes an exchange to a folder, which is created: the files of a scenario, and `about.md` with the text `about`.
/// Values of headers that may be secret are redacted.
///
/// # Errors
/// Fails if the folder or a file cannot be written.
pub fn save(exchange: &Exchange, folder: &Path, about: &str) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for name in STALE {
        match std::fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let mut files = scenario(
        &request(exchange),
        Some(&answer(exchange)),
        exchange.ended != Ended::Clean,
    );
    files.push((
        "about.md".to_owned(),
        format!("{about} {}.\n", exchange.ended.name()).into_bytes(),
    ));
    files
        .iter()
        .try_for_each(|(name, content)| std::fs::write(folder.join(name), content))
}

fn request(exchange: &Exchange) -> RecordedMessage {
    let request = &exchange.request;
    let first = format!("{} {} HTTP/1.1", request.method, request.path);
    RecordedMessage {
        head: head_text(&first, &request.headers),
        body: request.body.to_vec(),
        ..RecordedMessage::default()
    }
}

fn answer(exchange: &Exchange) -> RecordedMessage {
    let head = head_text(&format!("HTTP/1.1 {}", exchange.status), &exchange.headers);
    RecordedMessage {
        head,
        body: exchange.body.clone(),
        pieces: exchange.pieces.clone(),
    }
}
