//! Reload of the configuration when one of its files has changed or on SIGHUP (faults O05, O06).
//!
//! An invalid configuration changes nothing. A valid one applies as a whole to requests that arrive afterwards.

use super::App;
use super::active_config::ActiveConfig;
use super::net::service_manager;
use crate::config::{CaptureFile, Config, Mistakes, Source};
use crate::file_watch::ChangeDetector;
use crate::telemetry::{CAPTURE_ON, CONTENT_LOGGED};
use crate::upstream::{Upstream, health};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::Signal;

/// Interval at which the files are checked for changes.
const GLANCE: Duration = Duration::from_secs(1);

/// Time limit for reading files.
const READ: Duration = Duration::from_secs(10);
/// Error message for files that take longer.
pub(super) const UNREAD: &str = "a file of it cannot be read in time";

/// Runs a function that reads files, with a time limit: a read from a pipe or a lost disk may never end. `None` if
/// it takes too long.
pub(super) async fn in_time<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::time::timeout(READ, tokio::task::spawn_blocking(read)).await.ok()?.ok()
}

/// Source of the active configuration and the watch on its files.
pub(super) struct Reload {
    present: Arc<ActiveConfig>,
    source: Source,
    watch: ChangeDetector,
    hangup: Signal,
}

impl Reload {
    /// Creates the reloader of this process. `hangup` is the signal, which no longer ends the process once
    /// registered.
    pub(super) fn new(present: &Arc<ActiveConfig>, source: Source, hangup: Signal) -> Self {
        let watch = ChangeDetector::new(present.app().config.read.clone());
        Self { present: Arc::clone(present), source, watch, hangup }
    }

    /// Watches the files and the signal without end, and reloads on a change.
    pub(super) async fn tend(mut self) {
        loop {
            let asked = tokio::select! {
                asked = self.hangup.recv() => asked.is_some(),
                () = tokio::time::sleep(GLANCE) => false,
            };
            let app = self.present.app();
            let marks = app.config.stamps();
            if asked {
                self.watch = ChangeDetector::new(marks);
            } else if !self.watch.poll(marks) {
                continue;
            }
            self.reload(&app, self.source.clone()).await;
        }
    }

    async fn reload(&mut self, app: &App, source: Source) {
        service_manager::reloading();
        let loaded = in_time(move || source.load()).await;
        let loaded = loaded.unwrap_or_else(|| Err(Mistakes::one("the configuration", UNREAD)));
        let taken = loaded.and_then(|config| self.take(app, config));
        app.metrics.reloaded.set(taken.is_ok().into());
        service_manager::reloaded(taken.is_ok());
        if let Err(mistakes) = taken {
            let mistakes = mistakes.to_string();
            tracing::error!(mistakes, "the configuration is not taken: the one before stays in force");
        }
    }

    /// Makes a configuration the active one, except for settings that need a restart. Fails if no upstream is
    /// left, or if access without keys would be allowed where keys were required.
    fn take(&mut self, before: &App, mut config: Config) -> Result<(), Mistakes> {
        let kept = config.restore_fixed(&before.config)?;
        if config.log.content && !before.config.log.content {
            tracing::warn!("{CONTENT_LOGGED}");
        }
        if !kept.is_empty() {
            tracing::warn!(keys = kept.join(", "), "changes of these take a restart");
        }
        let app = before.reconfigured(config)?;
        recapture(before, &app.config.capture);
        let new = app.pool.missing_from(&before.pool).cloned().collect::<Vec<_>>();
        let gone = before.pool.missing_from(&app.pool).cloned().collect::<Vec<_>>();
        let upstreams = app.pool.upstreams().len();
        self.watch = ChangeDetector::new(app.config.read.clone());
        self.present.replace(app);
        // Running requests keep the upstreams that are retired here.
        gone.iter().for_each(|upstream| upstream.retire());
        for upstream in &new {
            #[expect(
                clippy::disallowed_methods,
                reason = "it serves the process, and ends with the upstream"
            )]
            tokio::spawn(watch(Arc::clone(&self.present), Arc::clone(upstream)));
        }
        let (new, gone) = (new.len(), gone.len());
        tracing::info!(upstreams, new, gone, "the configuration was read again and is in force");
        Ok(())
    }
}

/// Applies changes of `[capture]`. Without one, the switch stays as an operator has set it.
fn recapture(app: &App, capture: &CaptureFile) {
    if *capture == app.config.capture {
        return;
    }
    app.captures.limit(capture.limits());
    match capture.criteria() {
        Some(criteria) => {
            tracing::warn!("{CAPTURE_ON}");
            app.captures.switch_on(criteria, None);
        }
        None => app.captures.switch_off(),
    }
}

/// Probes an upstream until a reload removes it, always by the health settings in force.
pub(super) async fn watch(present: Arc<ActiveConfig>, upstream: Arc<Upstream>) {
    health::watch(&upstream, || present.app().config.health.clone()).await;
}
