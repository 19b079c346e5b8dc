//! Table `[batch]`: files and batches, and their limits.

use super::StoreConfig;
use super::limits::NUMBER;
use super::mistakes::Mistakes;
use super::values::Seconds;
use crate::quantity::read_size;
use crate::store::{FileLimits, StoreLocation};
use serde::{Deserialize, Serialize};

/// Longest time that batches and files are kept or may take: ten years.
const LONGEST: u64 = 10 * 365 * 86_400;

/// Table `[batch]`: whether files and batches are served, and their limits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct BatchFile {
    pub enabled: bool,
    pub concurrency: usize,
    pub upstream_requests: usize,
    pub completion_window: Seconds,
    pub retention: Seconds,
    #[serde(deserialize_with = "read_size")]
    pub max_file_bytes: u64,
    pub max_lines: u64,
    pub tenant_batches: u64,
    pub tenant_files: u64,
    #[serde(deserialize_with = "read_size")]
    pub tenant_bytes: u64,
    #[serde(deserialize_with = "read_size")]
    pub max_bytes: u64,
}

impl Default for BatchFile {
    fn default() -> Self {
        Self {
            enabled: false,
            concurrency: 16,
            upstream_requests: 32,
            completion_window: Seconds::of(86_400),
            retention: Seconds::of(30 * 86_400),
            max_file_bytes: 512 << 20,
            max_lines: 1_000_000,
            tenant_batches: 16,
            tenant_files: 1_000,
            tenant_bytes: 4 << 30,
            max_bytes: 16 << 30,
        }
    }
}

impl BatchFile {
    /// Returns the limits on stored files.
    pub fn file_limits(&self) -> FileLimits {
        FileLimits {
            tenant_files: self.tenant_files,
            tenant_bytes: self.tenant_bytes,
            total_bytes: self.max_bytes,
        }
    }

    /// Returns the settings for a store: in memory, files take no more than `store.max_bytes`. Reports values outside
    /// their range, and batches without a store.
    pub(super) fn within(&self, store: Option<&StoreConfig>, mistakes: &mut Mistakes) -> Self {
        self.check(mistakes);
        let place = store.map(|store| &store.place);
        if self.enabled && place == Some(&StoreLocation::Off) {
            mistakes.add("batch.enabled", "needs a store, and store.place is off");
        }
        let most = match store {
            Some(store) if store.place == StoreLocation::Memory => self.max_bytes.min(store.caps.bytes),
            _ => self.max_bytes,
        };
        Self { max_bytes: most, ..self.clone() }
    }

    fn check(&self, mistakes: &mut Mistakes) {
        for (key, value) in [("concurrency", self.concurrency), ("upstream_requests", self.upstream_requests)]
        {
            if !(1..=NUMBER).contains(&value) {
                mistakes.add(format!("batch.{key}"), format!("must be from 1 to {NUMBER}"));
            }
        }
        for (key, value) in [("completion_window", self.completion_window), ("retention", self.retention)] {
            if value.is_zero() || value.as_secs() > LONGEST {
                mistakes.add(format!("batch.{key}"), format!("must be more than 0 and at most {LONGEST}"));
            }
        }
        for (key, value) in [
            ("max_file_bytes", self.max_file_bytes),
            ("max_lines", self.max_lines),
            ("tenant_batches", self.tenant_batches),
            ("tenant_files", self.tenant_files),
            ("tenant_bytes", self.tenant_bytes),
            ("max_bytes", self.max_bytes),
        ] {
            if value == 0 {
                mistakes.add(format!("batch.{key}"), "must be at least 1");
            }
        }
        if self.max_lines > 100_000_000 {
            mistakes.add("batch.max_lines", "must be at most 100000000");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Overrides};

    fn read(text: &str) -> Result<Config, String> {
        let text = format!("{text}\n[[upstream]]\nurl = \"http://a\"");
        Config::read(&text, &[&Overrides::default()]).map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn batches_are_off_and_need_a_store() {
        let default = read("").unwrap().batch;
        // In memory, files share the limit of the store.
        assert_eq!((default.enabled, default.max_bytes), (false, 256 << 20));
        assert_eq!(read("[store]\nplace = \"sqlite:a\"").unwrap().batch.max_bytes, 16 << 30);
        let why = read("[batch]\nenabled = true\n[store]\nplace = \"off\"").unwrap_err();
        assert!(why.contains("batch.enabled"), "{why}");
        for wrong in ["concurrency = 0", "completion_window = 0", "max_lines = 0", "max_file_bytes = 0"] {
            let why = read(&format!("[batch]\n{wrong}")).unwrap_err();
            assert!(why.contains(&format!("batch.{}", wrong.split(' ').next().unwrap())), "{why}");
        }
    }
}
