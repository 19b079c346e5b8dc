//! Memory limit of the process: configured, or taken from its cgroup (version 2).

use crate::config::Limits;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Mount point of cgroups, version 2.
const ROOT: &str = "/sys/fs/cgroup";

/// Memory limit of the process, and the source of its current use.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::server) enum MemorySource {
    /// Limit in bytes, compared with resident memory.
    Resident(u64),
    /// Limits of the process's own cgroup and of those around it, as far as they have one.
    Cgroups(Vec<PathBuf>),
}

impl MemorySource {
    /// Finds the limit; `None` if neither configuration nor cgroups set one.
    pub(in crate::server) fn of(limits: &Limits) -> Option<Self> {
        if limits.memory_bytes > 0 {
            return Some(Self::Resident(
                u64::try_from(limits.memory_bytes).unwrap_or(u64::MAX),
            ));
        }
        let own = read_to_string("/proc/self/cgroup").ok()?;
        let limited = limited(Path::new(ROOT), &own);
        (!limited.is_empty()).then_some(Self::Cgroups(limited))
    }

    /// Returns the lowest of the limits, in bytes.
    pub(in crate::server) fn limit(&self) -> Option<u64> {
        match self {
            Self::Resident(limit) => Some(*limit),
            Self::Cgroups(all) => all
                .iter()
                .filter_map(|one| number(&one.join("memory.max")))
                .min(),
        }
    }

    /// Returns used bytes and limit, from the cgroup that is nearest to its limit.
    pub(in crate::server) fn used_of_limit(&self) -> Option<(u64, u64)> {
        match self {
            Self::Resident(limit) => Some((resident()?, *limit)),
            Self::Cgroups(all) => {
                let each = all
                    .iter()
                    .filter_map(|one| Some((used(one)?, number(&one.join("memory.max"))?)));
                each.min_by_key(|(used, limit)| limit.saturating_sub(*used))
            }
        }
    }
}

/// Returns the comment about the memory limit that is printed with a configuration.
pub fn description(limits: &Limits) -> String {
    match MemorySource::of(limits) {
        Some(memory) => {
            let limit = memory.limit().unwrap_or(u64::MAX);
            let whose = if limits.memory_bytes > 0 { "limits.memory_bytes" } else { "cgroup" };
            format!("# Memory: {limit} bytes ({whose}); from 85 % of that on new requests are refused.\n")
        }
        None => "# Memory: no limit is known (limits.memory_bytes, or a cgroup of version 2), so samewire \
                 refuses no request for lack of memory.\n"
            .to_owned(),
    }
}

/// Returns the cgroup that `own` (`/proc/self/cgroup`) names and those around it, as far as they have a limit.
fn limited(root: &Path, own: &str) -> Vec<PathBuf> {
    let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    let all = root.join(path.trim_end());
    let around = all
        .ancestors()
        .take_while(|folder| folder.starts_with(root));
    around
        .filter(|folder| number(&folder.join("memory.max")).is_some())
        .map(Path::to_path_buf)
        .collect()
}

/// Returns the memory in use without file caches that the kernel can drop.
fn used(cgroup: &Path) -> Option<u64> {
    let all = number(&cgroup.join("memory.current"))?;
    let stat = read_to_string(cgroup.join("memory.stat")).unwrap_or_default();
    let cached = stat
        .lines()
        .find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse().ok());
    Some(all.saturating_sub(cached.unwrap_or(0)))
}

/// Reads a file that consists of a number.
fn number(file: &Path) -> Option<u64> {
    read_to_string(file).ok()?.trim().parse().ok()
}

fn resident() -> Option<u64> {
    let pages: u64 = read_to_string("/proc/self/statm")
        .ok()?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()?;
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    pages.checked_mul(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_are_found_with_those_around_them() {
        let root = std::env::temp_dir().join(format!("samewire-cgroups-{}", std::process::id()));
        let (outer, inner) = (root.join("a"), root.join("a/b"));
        std::fs::create_dir_all(&inner).unwrap();
        let write = |folder: &Path, file: &str, text: &str| {
            std::fs::write(folder.join(file), text).unwrap()
        };
        write(&outer, "memory.max", "1000\n");
        write(&outer, "memory.current", "900\n");
        write(&inner, "memory.max", "max\n");
        assert_eq!(
            limited(&root, "1:name=systemd:/x\n0::/a/b\n"),
            std::slice::from_ref(&outer)
        );
        write(&inner, "memory.max", "500\n");
        write(&inner, "memory.current", "450\n");
        write(
            &inner,
            "memory.stat",
            "anon 50\ninactive_file 400\nactive_file 3\n",
        );
        let memory = MemorySource::Cgroups(limited(&root, "0::/a/b"));
        assert_eq!(memory, MemorySource::Cgroups(vec![inner.clone(), outer]));
        assert_eq!(
            (memory.limit(), memory.used_of_limit()),
            (Some(500), Some((900, 1000)))
        );
        write(&inner, "memory.stat", "inactive_file 0\n");
        assert_eq!(memory.used_of_limit(), Some((450, 500)));
        for none in ["", "1:memory:/a\n", "0::/nowhere\n"] {
            assert_eq!(limited(&root, none), Vec::<PathBuf>::new(), "{none}");
        }
        std::fs::remove_dir_all(&root).unwrap();
        assert!(resident().is_some_and(|bytes| bytes > 100_000));
    }
}
