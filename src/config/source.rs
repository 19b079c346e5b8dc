//! Sources of a configuration, kept so that it can be reloaded while the process runs (faults O05, O06).

use super::{Config, File, Layers, Mistakes, Overrides, keys};
use crate::file_watch::FileStamps;
use std::path::{Path, PathBuf};

/// Flags of the process, which determine the configuration file; kept to load the configuration again.
#[derive(Clone, Debug)]
pub struct Source(Overrides);

impl Source {
    /// Creates a source from the flags. The file is the one that they or the environment name.
    pub fn new(flags: Overrides) -> Self {
        Self(flags)
    }

    /// Loads the configuration, including all files that it refers to.
    ///
    /// # Errors
    /// Fails with all mistakes that were found.
    pub fn load(&self) -> Result<Config, Mistakes> {
        Config::load(&self.0)
    }
}

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
    pub fn restore_fixed(&mut self, before: &Self) -> Result<Vec<&'static str>, Mistakes> {
        let mut kept = RestoredKeys(Vec::new());
        let (now, old) = (&mut self.file, &before.file);
        kept.restore("listen", &mut now.listen, &old.listen);
        kept.restore("admin_listen", &mut now.admin_listen, &old.admin_listen);
        kept.restore("threads", &mut now.threads, &old.threads);
        kept.restore("root_path", &mut now.root_path, &old.root_path);
        kept.restore("tls", &mut now.tls, &old.tls);
        kept.restore("log.level", &mut now.log.level, &old.log.level);
        kept.restore("log.format", &mut now.log.format, &old.log.format);
        kept.restore("trace", &mut now.trace, &old.trace);
        // Tables that need a store change together with its place.
        let is_other_store = now.store.place != old.store.place;
        if is_other_store {
            kept.restore("shared_limits", &mut now.shared_limits, &old.shared_limits);
            kept.restore("batch", &mut now.batch, &old.batch);
        }
        kept.restore("store", &mut now.store, &old.store);
        kept.restore("seal.keys_file", &mut now.seal.keys_file, &old.seal.keys_file);
        let (times, old_times) = (&mut now.timeouts, &old.timeouts);
        kept.restore("timeouts.store_call", &mut times.store_call, &old_times.store_call);
        kept.restore("timeouts.background_lease", &mut times.background_lease, &old_times.background_lease);
        let heartbeat = "timeouts.background_heartbeat";
        kept.restore(heartbeat, &mut times.background_heartbeat, &old_times.background_heartbeat);
        let (now, old) = (&mut now.limits, &old.limits);
        kept.restore("limits.connections", &mut now.connections, &old.connections);
        kept.restore("limits.max_head_bytes", &mut now.max_head_bytes, &old.max_head_bytes);
        kept.restore("limits.max_headers", &mut now.max_headers, &old.max_headers);
        let bodies = "limits.bodies_in_flight_bytes";
        kept.restore(bodies, &mut now.bodies_in_flight_bytes, &old.bodies_in_flight_bytes);
        kept.restore("limits.memory_bytes", &mut now.memory_bytes, &old.memory_bytes);
        kept.restore("limits.background_running", &mut now.background_running, &old.background_running);
        kept.restore("limits.background_queued", &mut now.background_queued, &old.background_queued);
        (self.limits, self.timeouts) = (self.file.limits.clone(), self.file.timeouts.clone());
        (self.listen, self.admin_listen, self.threads) = (before.listen, before.admin_listen, before.threads);
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
        mistakes.into_result(kept.0).map_err(|mistakes| mistakes.located(&self.origins))
    }
}

/// Returns the current metadata of all files that a configuration is read from.
pub(super) fn marks(path: Option<&Path>, file: &File) -> FileStamps {
    let named = file.upstream.iter().flat_map(|upstream| {
        [&upstream.api_key_file, &upstream.ca_file, &upstream.client_cert_file, &upstream.client_key_file]
    });
    let named = named.chain([&file.harmony.vocabulary_file]);
    let named = named.map(PathBuf::as_path).filter(|path| !path.as_os_str().is_empty());
    FileStamps::of(path.into_iter().chain(named))
}

/// Keys that were restored because they cannot change while the process runs.
struct RestoredKeys(Vec<&'static str>);

impl RestoredKeys {
    fn restore<T: Clone + PartialEq>(&mut self, key: &'static str, now: &mut T, old: &T) {
        if now != old {
            now.clone_from(old);
            self.0.push(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_need_a_store_wait_for_the_restart_with_it() {
        let read = |text: &str| {
            Config::read(&format!("[[upstream]]\nurl = \"http://a:1\"\n{text}"), &[&Overrides::default()])
                .unwrap()
        };
        let before = read("[store]\nplace = \"off\"");
        let mut shared = read(
            "[store]\nplace = \"postgres://u@h/d\"\n[shared_limits]\nenabled = true\n[batch]\nenabled = true\nmax_lines = 7",
        );
        assert_eq!(shared.restore_fixed(&before).unwrap(), ["shared_limits", "batch", "store"]);
        assert_eq!((shared.shared_limits, shared.batch.enabled), (None, false));
        assert_eq!(shared.store.place, before.store.place);
        // With the same store they change at once.
        let before = read("[store]\nplace = \"postgres://u@h/d\"");
        let mut shared = read(
            "[store]\nplace = \"postgres://u@h/d\"\n[shared_limits]\nenabled = true\n[batch]\nmax_lines = 7",
        );
        assert_eq!(shared.restore_fixed(&before).unwrap(), [""; 0]);
        assert_eq!((shared.shared_limits.is_some(), shared.batch.max_lines), (true, 7));
    }
}
