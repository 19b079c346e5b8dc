//! Secrets: read from files that only their owner and group may access, kept out of all output, and wiped from
//! memory on drop.
//!
//! Takes: a file, or text. Gives: a [`Secret`], a header's value. Remembers: nothing. Never: prints a secret.

use bytes::Bytes;
use http::HeaderValue;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use zeroize::Zeroizing;

/// Longest part of a file that is read, in bytes.
const LONGEST: u64 = 1 << 20;
/// Permission bits of users who are neither owner nor in the group; a secret's file must have none of them.
const OTHER_USERS: u32 = 0o006;

/// Secret header value, such as an engine's API key. Clones share one buffer, which is wiped when the last clone
/// is dropped.
///
/// Comparing contents detects a changed key on reload. The time this takes reveals nothing: both values come from
/// the operator's own files.
#[derive(Clone, PartialEq)]
pub struct Secret(Bytes);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Secret {
    /// Creates a secret from a prefix such as `Bearer ` and a text. Returns `None` if the text is empty or invalid
    /// in a header.
    pub fn with_prefix(word: &str, text: &str) -> Option<Self> {
        let mut owned = Zeroizing::new(Vec::with_capacity(word.len() + text.len()));
        owned.extend_from_slice(word.as_bytes());
        owned.extend_from_slice(text.as_bytes());
        let this = Self(Bytes::from_owner(owned));
        (!text.is_empty() && HeaderValue::from_maybe_shared(this.0.clone()).is_ok()).then_some(this)
    }

    /// Returns the bytes of the header value, to find them in texts.
    pub fn bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// Returns the header value, marked as sensitive so that HTTP libraries do not print it either.
    pub fn value(&self) -> HeaderValue {
        // The same bytes were a valid header value in `with_prefix`, so the fallback is never used.
        let value = HeaderValue::from_maybe_shared(self.0.clone());
        let mut value = value.unwrap_or_else(|_| HeaderValue::from_static(""));
        value.set_sensitive(true);
        value
    }
}

/// Reads a file that holds secrets, up to 1 MiB.
///
/// # Errors
/// Fails if the file cannot be read, is not UTF-8, or other users may read or write it. The message contains
/// neither the content nor the file's name, which may itself be a misplaced secret.
pub fn read(path: &Path) -> Result<Zeroizing<String>, String> {
    let file = std::fs::File::open(path).map_err(|error| unreadable(&error))?;
    // Metadata of the opened file, so a symbolic link cannot be swapped between check and read.
    let metadata = file.metadata().map_err(|error| unreadable(&error))?;
    let mode = metadata.permissions().mode() & 0o777;
    if metadata.is_file() && mode & OTHER_USERS != 0 {
        return Err(format!(
            "everybody on this machine can read or change the file (mode {mode:04o}); chmod 0600 it, or mount it with \
             mode 0440 (Kubernetes: defaultMode)"
        ));
    }
    let size = usize::try_from(metadata.len().min(LONGEST)).unwrap_or(0);
    // Allocated at full size at once: growing would leave an unwiped copy behind.
    let mut text = Zeroizing::new(String::with_capacity(size + 1));
    file.take(LONGEST)
        .read_to_string(&mut text)
        .map_err(|error| unreadable(&error))?;
    Ok(text)
}

/// Describes why a file cannot be read, without its name and content.
pub(crate) fn unreadable(error: &io::Error) -> String {
    format!("the file cannot be read: {error}")
}

/// Disables core dumps of this process, and access to its memory by other processes of the same user.
///
/// # Errors
/// Fails if the system refuses.
pub fn hide_memory() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_secret_is_a_header_and_nothing_else() {
        let secret = Secret::with_prefix("Bearer ", "sk-1").unwrap();
        let value = secret.value();
        assert_eq!(
            (value.as_bytes(), value.is_sensitive()),
            (&b"Bearer sk-1"[..], true)
        );
        assert!(!format!("{value:?}").contains("sk-1"));
        assert_eq!(
            secret.value().as_bytes().as_ptr(),
            value.as_bytes().as_ptr(),
            "one copy"
        );
        for wrong in ["", "a\nb", "a\0"] {
            assert!(Secret::with_prefix("Bearer ", wrong).is_none(), "{wrong:?}");
        }
    }

    /// Reads the freed memory from outside, as an attacker with a core dump would.
    #[test]
    fn a_secret_is_wiped_with_its_last_copy() {
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let text = "CANARY-".repeat(200);
        let secret = Secret::with_prefix("", &text).unwrap();
        let place = u64::try_from(secret.0.as_ptr().addr()).unwrap();
        let mut there = vec![0; text.len()];
        let value = secret.value();
        drop(secret);
        memory.read_exact_at(&mut there, place).unwrap();
        assert_eq!(there, text.as_bytes(), "a copy is left");
        drop(value);
        // Failing to read is fine as well: the memory is then unmapped.
        let read = memory.read_exact_at(&mut there, place);
        assert!(read.is_err() || !there.windows(7).any(|part| part == b"CANARY-"));
    }
}
