//! Table `[batch]`: files and batches, and their limits.

use super::StoreConfig;
use super::limits::NUMBER;
use super::mistakes::Mistakes;
use super::rows::{self, table};
use super::values::Seconds;
use crate::quantity::read_size;
use crate::store::{FileLimits, StoreLocation};

table! {
    /// Table `[batch]`: whether files and batches are served, and their limits.
    BatchFile {
        enabled: bool;
        concurrency: usize = 16, from(1, NUMBER);
        upstream_requests: usize = 32, from(1, NUMBER);
        completion_window: Seconds = Seconds::of(86_400), positive;
        retention: Seconds = Seconds::of(30 * 86_400), positive;
        max_file_bytes: u64 as "read_size" = 512 << 20, within(1, u64::MAX);
        max_lines: u64 = 1_000_000, within(1, 100_000_000);
        tenant_batches: u64 = 16, within(1, u64::MAX);
        tenant_files: u64 = 1_000, within(1, u64::MAX);
        tenant_bytes: u64 as "read_size" = 4 << 30, within(1, u64::MAX);
        max_bytes: u64 as "read_size" = 16 << 30, within(1, u64::MAX);
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

    /// Returns the settings for a store: in memory, files take no more than `store.max_bytes`. Reports
    /// batches without a store.
    pub(super) fn within(&self, store: Option<&StoreConfig>, mistakes: &mut Mistakes) -> Self {
        let place = store.map(|store| &store.place);
        if self.enabled && place == Some(&StoreLocation::Off) {
            mistakes.add("batch.enabled", "needs a store, and store.place is off");
        }
        let most = match store {
            Some(store) if store.place == StoreLocation::Memory => {
                self.max_bytes.min(store.caps.bytes)
            }
            _ => self.max_bytes,
        };
        Self {
            max_bytes: most,
            ..self.clone()
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
        assert_eq!(
            read("[store]\nplace = \"sqlite:a\"")
                .unwrap()
                .batch
                .max_bytes,
            16 << 30
        );
        let why = read("[batch]\nenabled = true\n[store]\nplace = \"off\"").unwrap_err();
        assert!(why.contains("batch.enabled"), "{why}");
        for wrong in [
            "concurrency = 0",
            "completion_window = 0",
            "max_lines = 0",
            "max_file_bytes = 0",
        ] {
            let why = read(&format!("[batch]\n{wrong}")).unwrap_err();
            assert!(
                why.contains(&format!("batch.{}", wrong.split(' ').next().unwrap())),
                "{why}"
            );
        }
    }
}
