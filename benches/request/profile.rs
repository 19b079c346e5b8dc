//! Counts of the files of a dump in callgrind's format (`Callgrind Format Specification` of valgrind's manual).

use std::collections::HashMap;

/// Counts of a program.
pub(crate) struct Profile {
    functions: HashMap<String, Counts>,
    /// Number of calls, by caller and called function.
    calls: HashMap<(String, String), u64>,
    total: u64,
}

/// Counts of one function.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Instructions of the function itself.
    pub(crate) own: u64,
    /// Instructions of the function and of all that it calls, over all calls.
    pub(crate) with_callees: u64,
    pub(crate) calls: u64,
}

impl Profile {
    pub(crate) fn read(text: &str) -> Self {
        let mut this = Self {
            functions: HashMap::new(),
            calls: HashMap::new(),
            total: 0,
        };
        let (mut function, mut callee) = (String::new(), String::new());
        // Number of calls whose cost the next line tells.
        let mut calls: Option<u64> = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn=") {
                function = plain(name);
            } else if let Some(name) = line.strip_prefix("cfn=") {
                callee = plain(name);
            } else if let Some(rest) = line.strip_prefix("calls=") {
                calls = rest
                    .split_whitespace()
                    .next()
                    .and_then(|count| count.parse().ok());
            } else if line.starts_with(|first: char| first.is_ascii_digit()) {
                let cost: u64 = line
                    .split_whitespace()
                    .nth(1)
                    .and_then(|cost| cost.parse().ok())
                    .unwrap_or(0);
                match calls.take() {
                    Some(count) => {
                        let counts = this.functions.entry(callee.clone()).or_default();
                        counts.calls += count;
                        *this
                            .calls
                            .entry((function.clone(), callee.clone()))
                            .or_default() += count;
                        // A function that calls itself counts once.
                        counts.with_callees += if callee == function { 0 } else { cost };
                    }
                    None => {
                        this.functions.entry(function.clone()).or_default().own += cost;
                        this.total += cost;
                    }
                }
            }
        }
        this
    }

    /// Instructions of the whole program.
    pub(crate) fn instructions(&self) -> u64 {
        self.total
    }

    /// Number of calls of these functions.
    pub(crate) fn calls(&self, names: &[&str]) -> u64 {
        names
            .iter()
            .filter_map(|name| self.functions.get(*name))
            .map(|counts| counts.calls)
            .sum()
    }

    /// Callers of the functions that are meant, with their numbers of calls, the most first.
    pub(crate) fn callers(&self, is_meant: impl Fn(&str) -> bool) -> Vec<(&str, u64)> {
        let mut all: HashMap<&str, u64> = HashMap::new();
        for ((caller, _), count) in self
            .calls
            .iter()
            .filter(|((_, called), _)| is_meant(called))
        {
            *all.entry(caller).or_default() += count;
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        all
    }

    /// Counts of the functions whose names contain one of these parts.
    pub(crate) fn sum(&self, parts: &[&str]) -> Counts {
        let is_meant = |name: &&String| parts.iter().any(|part| name.contains(part));
        self.functions
            .iter()
            .filter(|(name, _)| is_meant(name))
            .fold(Counts::default(), |sum, (_, counts)| Counts {
                own: sum.own + counts.own,
                with_callees: sum.with_callees + counts.with_callees,
                calls: sum.calls + counts.calls,
            })
    }

    /// Functions with the most instructions, as `key` counts them.
    pub(crate) fn heaviest(
        &self,
        count: usize,
        key: impl Fn(&Counts) -> u64,
    ) -> Vec<(&str, Counts)> {
        let mut all: Vec<_> = self
            .functions
            .iter()
            .map(|(name, counts)| (name.as_str(), *counts))
            .collect();
        all.sort_by_key(|(_, counts)| std::cmp::Reverse(key(counts)));
        all.truncate(count);
        all
    }
}

/// Returns the name of a function without the marks of recursion and of the compiler's hash.
fn plain(name: &str) -> String {
    let name = name.split('\'').next().unwrap_or(name);
    match name.rsplit_once("::h") {
        Some((front, hash))
            if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            front.to_owned()
        }
        _ => name.to_owned(),
    }
}
