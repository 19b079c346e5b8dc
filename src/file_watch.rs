//! Detects changed files by their metadata (device, inode, size, ctime), without reading them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Metadata of several files at one moment. A symbolic link that now points elsewhere counts as a change, as in
/// volumes that Kubernetes mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStamps(Vec<Option<FileStamp>>);

/// Device, inode, size, and ctime (which covers permission changes too).
type FileStamp = (u64, u64, u64, (i64, i64));

impl FileStamps {
    /// Reads the metadata of the files as they are now. A file whose metadata cannot be read counts as missing.
    pub fn of<'p>(files: impl IntoIterator<Item = &'p Path>) -> Self {
        let mark = |path: &Path| {
            let data = std::fs::metadata(path).ok()?;
            let changed = (data.ctime(), data.ctime_nsec());
            Some((data.dev(), data.ino(), data.size(), changed))
        };
        Self(files.into_iter().map(mark).collect())
    }

    /// Returns these stamps with `others` placed before them.
    #[must_use]
    pub fn prepend(self, mut others: Self) -> Self {
        others.0.extend(self.0);
        others
    }
}

/// Change detector that is polled. A file may be in the middle of a write, so a change is reported only once two
/// polls in a row see the same metadata.
#[derive(Debug)]
pub struct ChangeDetector {
    /// Metadata when the files were last read.
    read: FileStamps,
    /// Metadata at the previous poll.
    seen: Option<FileStamps>,
}

impl ChangeDetector {
    /// Creates a detector for files that had this metadata when they were read.
    pub fn new(read: FileStamps) -> Self {
        Self { read, seen: None }
    }

    /// Compares the current metadata with the previous poll. Returns true if the files have to be read again, and
    /// then treats `now` as their state when read.
    pub fn poll(&mut self, now: FileStamps) -> bool {
        let changed = now != self.read && self.seen.as_ref() == Some(&now);
        if changed {
            self.read.clone_from(&now);
        }
        self.seen = Some(now);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_once_it_stays() {
        let mark = |size| FileStamps(vec![Some((1, 2, size, (3, 4)))]);
        let mut watch = ChangeDetector::new(mark(1));
        let looks = [1, 2, 3, 3, 3, 1, 1, 1].map(|size| watch.poll(mark(size)));
        assert_eq!(
            looks,
            [false, false, false, true, false, false, true, false]
        );
    }
}
