//! Kernel counters of a process and its children: processor time in nanoseconds, and memory.

use std::fs;
use std::io;
use std::time::Duration;

/// Returns the process ids of a process and its children.
fn family(pid: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let member = entry.file_name().to_str()?.parse().ok()?;
            // The name in parentheses before it may contain anything.
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let parent = stat
                .rsplit_once(')')?
                .1
                .split_whitespace()
                .nth(1)?
                .parse()
                .ok()?;
            Some((member, parent))
        })
        .collect();
    let mut members = vec![pid];
    let mut seen = 0;
    while let Some(&member) = members.get(seen) {
        seen += 1;
        members.extend(
            parents
                .iter()
                .filter(|(_, parent)| *parent == member)
                .map(|(child, _)| *child),
        );
    }
    members
}

/// Returns the processor time of a process, its threads and its children, from the scheduler's own count. The count
/// in `stat` is sampled at ticks of several milliseconds and misses most of a proxy that wakes for microseconds.
pub(crate) fn cpu(pid: u32) -> Duration {
    let mut nanoseconds = 0_u64;
    for member in family(pid) {
        let Ok(tasks) = fs::read_dir(format!("/proc/{member}/task")) else {
            continue;
        };
        for task in tasks.flatten() {
            let counts = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            nanoseconds += counts
                .split_whitespace()
                .next()
                .and_then(|word| word.parse::<u64>().ok())
                .unwrap_or(0);
        }
    }
    Duration::from_nanos(nanoseconds)
}

/// Returns the same in steps of ten milliseconds, threads that have ended included: the scheduler's own count leaves
/// with its thread.
pub(crate) fn cpu_of_ended_too(pid: u32) -> Duration {
    let ticks = |member: u32| {
        let stat = fs::read_to_string(format!("/proc/{member}/stat")).ok()?;
        let mut words = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        Some(words.next()?.parse::<u64>().ok()? + words.next()?.parse::<u64>().ok()?)
    };
    Duration::from_millis(10 * family(pid).into_iter().filter_map(ticks).sum::<u64>())
}

/// Returns resident and proportional memory in bytes.
pub(crate) fn memory(pid: u32) -> io::Result<(u64, u64)> {
    let mut sums = (0, 0);
    for member in family(pid) {
        let rollup = fs::read_to_string(format!("/proc/{member}/smaps_rollup"))?;
        let kib = |name: &str| {
            let line = rollup
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default();
            line.split_whitespace()
                .next()
                .and_then(|word| word.parse::<u64>().ok())
                .unwrap_or(0)
        };
        sums.0 += kib("Rss:") * 1024;
        sums.1 += kib("Pss:") * 1024;
    }
    Ok(sums)
}
