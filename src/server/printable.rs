//! Text of clients made safe for messages and the log.

/// Makes foreign bytes safe for a message: at most `most` bytes, with question marks for all but printable ASCII.
pub(in crate::server) fn printable(bytes: &[u8], most: usize) -> String {
    let shown = bytes.iter().take(most).map(|byte| match byte {
        b' '..=b'~' => char::from(*byte),
        _ => '?',
    });
    let mut text: String = shown.collect();
    if bytes.len() > most {
        text.push_str("...");
    }
    text
}

/// Returns a client's name or id made safe for a message: without control characters, cut after 64 characters.
pub(in crate::server) fn printable_name(name: &str) -> String {
    name.chars()
        .filter(|character| !character.is_control())
        .take(64)
        .collect()
}
