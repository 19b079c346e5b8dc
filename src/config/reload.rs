//! Reload of the configuration while the process runs: its files, and the keys that need a restart (faults O05, O06).

use super::rows::{Rows, keep};
use super::{Config, File, Layers, Mistakes, keys};
use crate::file_watch::FileStamps;
use std::path::{Path, PathBuf};

impl Config {
    /// Returns the current metadata of the files that the configuration was read from, except those of `[tls]`,
    /// which are reloaded separately.
    pub fn stamps(&self) -> FileStamps {
        marks(self.path.as_deref(), &self.file)
    }

    /// Restores settings that cannot change while the process runs, and returns the keys that differ.
    ///
    /// # Errors
    /// Fails if the restored settings would allow access without keys where keys were required (faults O09).
    pub fn restore_fixed(&mut self, before: &Self) -> Result<Vec<String>, Mistakes> {
        let mut kept = Vec::new();
        let (now, old) = (&mut self.file, &before.file);
        // Tables that need a store change together with its place.
        let is_other_store = now.store.place != old.store.place;
        if is_other_store {
            keep(
                &mut now.shared_limits,
                &old.shared_limits,
                "shared_limits",
                &mut kept,
            );
            keep(&mut now.batch, &old.batch, "batch", &mut kept);
        }
        now.restore(old, "", &mut kept);
        (self.limits, self.timeouts) = (self.file.limits.clone(), self.file.timeouts.clone());
        (self.listen, self.admin_listen, self.threads) =
            (before.listen, before.admin_listen, before.threads);
        self.root_path.clone_from(&before.root_path);
        self.tls.clone_from(&before.tls);
        self.log = self.file.log.clone();
        self.trace.clone_from(&before.trace);
        self.store.clone_from(&before.store);
        if is_other_store {
            (self.shared_limits, self.batch) = (before.shared_limits, before.batch.clone());
        }
        self.seal.clone_from(&before.seal);
        let mut mistakes = Mistakes::default();
        self.layers = Layers::of(&self.file, Some(self.listen), &mut mistakes);
        keys::check_reach(&self.file, Some(self.listen), &mut mistakes);
        if before.auth.is_some() && self.auth.is_none() && !self.file.insecure_no_auth {
            let why = "there are none any more, and everybody who can connect could use the engine; if that is meant, say \
                       insecure_no_auth = true";
            mistakes.add("auth.key", why);
        }
        mistakes
            .into_result(kept)
            .map_err(|mistakes| mistakes.located(&self.origins))
    }
}

/// Returns the current metadata of all files that a configuration is read from.
pub(super) fn marks(path: Option<&Path>, file: &File) -> FileStamps {
    let named = file.upstream.iter().flat_map(|upstream| {
        [
            &upstream.api_key_file,
            &upstream.ca_file,
            &upstream.client_cert_file,
            &upstream.client_key_file,
        ]
    });
    let named = named.chain([&file.harmony.vocabulary_file]);
    let named = named
        .map(PathBuf::as_path)
        .filter(|path| !path.as_os_str().is_empty());
    FileStamps::of(path.into_iter().chain(named))
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Overrides};

    #[test]
    fn tables_that_need_a_store_wait_for_the_restart_with_it() {
        let read = |text: &str| {
            Config::read(
                &format!("[[upstream]]\nurl = \"http://a:1\"\n{text}"),
                &[&Overrides::default()],
            )
            .unwrap()
        };
        let before = read("[store]\nplace = \"off\"");
        let mut shared = read(
            "[store]\nplace = \"postgres://u@h/d\"\n[shared_limits]\nenabled = true\n[batch]\nenabled = true\nmax_lines = 7",
        );
        assert_eq!(
            shared.restore_fixed(&before).unwrap(),
            ["shared_limits", "batch", "store"]
        );
        assert_eq!((shared.shared_limits, shared.batch.enabled), (None, false));
        assert_eq!(shared.store.place, before.store.place);
        // With the same store they change at once.
        let before = read("[store]\nplace = \"postgres://u@h/d\"");
        let mut shared = read(
            "[store]\nplace = \"postgres://u@h/d\"\n[shared_limits]\nenabled = true\n[batch]\nmax_lines = 7",
        );
        assert_eq!(shared.restore_fixed(&before).unwrap(), [] as [&str; 0]);
        assert_eq!(
            (shared.shared_limits.is_some(), shared.batch.max_lines),
            (true, 7)
        );
    }
}
