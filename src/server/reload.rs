//! Reading the configuration again, when a file of it has changed or a SIGHUP comes (faults O05, O06).
//!
//! What is wrong changes nothing. What is right is in force for requests that come after that, all of it at once.

use super::{ActiveConfig, App, watch};
use crate::config::{Config, Mistakes, Source};
use crate::file_watch::Watch;
use crate::telemetry::CONTENT_LOGGED;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::Signal;

/// How often it is looked whether a file has changed.
const GLANCE: Duration = Duration::from_secs(1);

/// How long files may take to be read.
const READ: Duration = Duration::from_secs(10);
/// What is said of those that take longer.
pub(super) const UNREAD: &str = "a file of it cannot be read in time";

/// Reads files, which may stand where reading never ends: a pipe, or a disk that has gone. Nothing: it takes too long.
pub(super) async fn in_time<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::time::timeout(READ, tokio::task::spawn_blocking(read)).await.ok()?.ok()
}

/// What the configuration in force came from.
pub(super) struct Reload {
    present: Arc<ActiveConfig>,
    source: Source,
    watch: Watch,
    hangup: Signal,
}

impl Reload {
    /// That of this process. `hangup`: the signal, which does not end the process once it is taken.
    pub(super) fn new(present: &Arc<ActiveConfig>, source: Source, hangup: Signal) -> Self {
        let watch = Watch::new(present.app().config.read.clone());
        Self { present: Arc::clone(present), source, watch, hangup }
    }

    /// For ever.
    pub(super) async fn tend(mut self) {
        loop {
            let asked = tokio::select! {
                asked = self.hangup.recv() => asked.is_some(),
                () = tokio::time::sleep(GLANCE) => false,
            };
            let app = self.present.app();
            let marks = app.config.marks();
            if asked {
                self.watch = Watch::new(marks);
            } else if !self.watch.look(marks) {
                continue;
            }
            self.reload(&app, self.source.clone()).await;
        }
    }

    async fn reload(&mut self, app: &App, source: Source) {
        let loaded = in_time(move || source.load()).await;
        let loaded = loaded.unwrap_or_else(|| Err(Mistakes::one("the configuration", UNREAD)));
        let taken = loaded.and_then(|config| self.take(app, config));
        app.metrics.reloaded.set(taken.is_ok().into());
        if let Err(mistakes) = taken {
            let mistakes = mistakes.to_string();
            tracing::error!(mistakes, "the configuration is not taken: the one before stays in force");
        }
    }

    /// Makes it the one in force.
    fn take(&mut self, before: &App, mut config: Config) -> Result<(), Mistakes> {
        let kept = config.keep(&before.config)?;
        if config.log.content && !before.config.log.content {
            tracing::warn!("{CONTENT_LOGGED}");
        }
        if !kept.is_empty() {
            tracing::warn!(keys = kept.join(", "), "changes of these take a restart");
        }
        let app = before.with(config)?;
        let new = app.pool.left_by(&before.pool).cloned().collect::<Vec<_>>();
        let gone = before.pool.left_by(&app.pool).cloned().collect::<Vec<_>>();
        let upstreams = app.pool.upstreams().len();
        self.watch = Watch::new(app.config.read.clone());
        self.present.replace(app);
        // Whoever still has a request goes on with it.
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
