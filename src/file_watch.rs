//! By what files are known to have changed, without reading them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What some files looked like. Also a link that leads elsewhere makes another one of a file, as in mounted volumes of
/// Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStamps(Vec<Option<FileStamp>>);

/// Device, inode, size, and the time of the last change, be it of who may read it.
type FileStamp = (u64, u64, u64, (i64, i64));

impl FileStamps {
    /// As they are now. One that cannot be looked at is as good as none.
    pub fn of<'p>(files: impl IntoIterator<Item = &'p Path>) -> Self {
        let mark = |path: &Path| {
            let data = std::fs::metadata(path).ok()?;
            let changed = (data.ctime(), data.ctime_nsec());
            Some((data.dev(), data.ino(), data.size(), changed))
        };
        Self(files.into_iter().map(mark).collect())
    }

    /// These, with others before them.
    #[must_use]
    pub fn behind(self, mut others: Self) -> Self {
        others.0.extend(self.0);
        others
    }
}

/// Looks at files again and again. One that is being written is not read: a change counts when the next look finds
/// nothing new.
#[derive(Debug)]
pub struct Watch {
    /// As they were read.
    read: FileStamps,
    /// As they were at the last look.
    seen: Option<FileStamps>,
}

impl Watch {
    /// Of files that were read when they looked like this.
    pub fn new(read: FileStamps) -> Self {
        Self { read, seen: None }
    }

    /// One more look; gives whether they are to be read again. If so, they are taken as read.
    pub fn look(&mut self, now: FileStamps) -> bool {
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
        let mut watch = Watch::new(mark(1));
        let looks = [1, 2, 3, 3, 3, 1, 1, 1].map(|size| watch.look(mark(size)));
        assert_eq!(looks, [false, false, false, true, false, false, true, false]);
    }
}
