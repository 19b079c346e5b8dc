//! Secrets: read from files that not everybody can read, kept where nothing prints them, and wiped when they go.
//!
//! Takes: a file, or text. Gives: a [`Secret`], which can only become a header's value. Remembers: nothing.
//! Never: tells what it holds, in whatever form.

use bytes::Bytes;
use http::HeaderValue;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use zeroize::Zeroizing;

/// Bytes of a file that are read.
const LONGEST: u64 = 1 << 20;
/// What people who are neither owner nor of the group may not do.
const EVERYBODY: u32 = 0o006;

/// A key that is held. All its copies are one, and it is wiped with the last of them.
#[derive(Clone)]
pub struct Secret(Bytes);

/// Whether a key has changed, which whoever wrote both files may know.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Secret {
    /// One that stands behind this word; `None`: no header can carry it, or there is none.
    pub fn behind(word: &str, text: &str) -> Option<Self> {
        let mut owned = Zeroizing::new(Vec::with_capacity(word.len() + text.len()));
        owned.extend_from_slice(word.as_bytes());
        owned.extend_from_slice(text.as_bytes());
        let this = Self(Bytes::from_owner(owned));
        (!text.is_empty() && HeaderValue::from_maybe_shared(this.0.clone()).is_ok()).then_some(this)
    }

    /// The header's value, marked so that libraries do not print it either.
    pub fn value(&self) -> HeaderValue {
        // It has been one before.
        let value = HeaderValue::from_maybe_shared(self.0.clone());
        let mut value = value.unwrap_or_else(|_| HeaderValue::from_static(""));
        value.set_sensitive(true);
        value
    }
}

/// Reads a file that holds secrets.
///
/// # Errors
/// Why not; neither what stands there nor the file's name, which may itself be a secret that went astray.
pub fn read(path: &Path) -> Result<Zeroizing<String>, String> {
    let file = std::fs::File::open(path).map_err(|error| unreadable(&error))?;
    // Of what is open, wherever a link led to.
    let metadata = file.metadata().map_err(|error| unreadable(&error))?;
    let mode = metadata.permissions().mode() & 0o777;
    if metadata.is_file() && mode & EVERYBODY != 0 {
        return Err(format!(
            "everybody on this machine can read or change the file (mode {mode:04o}); chmod 0600 it, or mount it with \
             mode 0440 (Kubernetes: defaultMode)"
        ));
    }
    let size = usize::try_from(metadata.len().min(LONGEST)).unwrap_or(0);
    // Long enough at once: what is copied to a larger place would not be wiped.
    let mut text = Zeroizing::new(String::with_capacity(size + 1));
    file.take(LONGEST).read_to_string(&mut text).map_err(|error| unreadable(&error))?;
    Ok(text)
}

fn unreadable(error: &io::Error) -> String {
    format!("the file cannot be read: {error}")
}

/// From now on no core is dumped of this process, and only the system's own may look into its memory.
///
/// # Errors
/// The system does not allow that.
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
        let secret = Secret::behind("Bearer ", "sk-1").unwrap();
        let value = secret.value();
        assert_eq!((value.as_bytes(), value.is_sensitive()), (&b"Bearer sk-1"[..], true));
        assert!(!format!("{value:?}").contains("sk-1"));
        assert_eq!(secret.value().as_bytes().as_ptr(), value.as_bytes().as_ptr(), "one copy");
        for wrong in ["", "a\nb", "a\0"] {
            assert!(Secret::behind("Bearer ", wrong).is_none(), "{wrong:?}");
        }
    }

    /// What lies in memory where a secret was is looked at from outside, as whoever finds a core dump would.
    #[test]
    fn a_secret_is_wiped_with_its_last_copy() {
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let text = "CANARY-".repeat(200);
        let secret = Secret::behind("", &text).unwrap();
        let place = u64::try_from(secret.0.as_ptr().addr()).unwrap();
        let mut there = vec![0; text.len()];
        let value = secret.value();
        drop(secret);
        memory.read_exact_at(&mut there, place).unwrap();
        assert_eq!(there, text.as_bytes(), "a copy is left");
        drop(value);
        // If the place is not even there any more, so much the better.
        let read = memory.read_exact_at(&mut there, place);
        assert!(read.is_err() || !there.windows(7).any(|part| part == b"CANARY-"));
    }
}
