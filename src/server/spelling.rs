//! Spelling of bytes: as hex digits, and as percent-escapes in paths. Pure functions without state.

use data_encoding::HEXLOWER;

/// Returns a part of a path with its percent-escapes resolved. Invalid escapes stay as they are; invalid UTF-8 is
/// replaced.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let escape = behind.first_chunk::<2>().filter(|_| *first == b'%');
        let byte = escape.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Appends bytes to `out` as lower-case hex digits, two for each byte.
pub(super) fn hex(bytes: &[u8], out: &mut String) {
    HEXLOWER.encode_append(bytes, out);
}
