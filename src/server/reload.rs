//! Reload of the configuration when one of its files has changed or on SIGHUP (faults O05, O06), and of its upstreams
//! when the pods behind them have changed (faults O38).
//!
//! An invalid configuration changes nothing. A valid one applies as a whole to requests that arrive afterwards.

use super::App;
use super::active_config::ActiveConfig;
use super::file_reading::{UNREAD, in_time};
use super::net::service_manager;
use crate::config::{CaptureFile, Config, Mistakes, Overrides};
use crate::discovery::Discovery;
use crate::file_watch::ChangeDetector;
use crate::telemetry::{CAPTURE_ON, CONTENT_LOGGED};
use crate::upstream::{Upstream, health};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::Signal;

/// Interval at which the files are checked for changes.
const GLANCE: Duration = Duration::from_secs(1);

/// Source of the active configuration and the watch on its files.
pub(super) struct Reload {
    present: Arc<ActiveConfig>,
    flags: Overrides,
    watch: ChangeDetector,
    hangup: Signal,
    /// Configuration as it was read last, without the upstreams of pods.
    read: Config,
    discovery: Discovery,
}

/// Reason to look at the configuration again.
enum Occasion {
    Hangup,
    /// The files may have changed.
    Glance,
    /// Other pods are ready than before.
    Pods,
}

impl Reload {
    /// Creates the reloader of this process. `hangup` is the signal, which no longer ends the process once
    /// registered.
    pub(super) fn new(present: &Arc<ActiveConfig>, flags: Overrides, hangup: Signal) -> Self {
        let app = present.app();
        let watch = ChangeDetector::new(app.config.read.clone());
        let read = Config::clone(&app.config);
        let mut discovery = Discovery::default();
        discovery.follow(&read, &app.metrics);
        Self {
            present: Arc::clone(present),
            flags,
            watch,
            hangup,
            read,
            discovery,
        }
    }

    /// Watches the files, the signal and the pods without end, and reloads on a change.
    pub(super) async fn tend(mut self) {
        loop {
            let occasion = tokio::select! {
                signal = self.hangup.recv() => if signal.is_some() { Occasion::Hangup } else { Occasion::Glance },
                () = tokio::time::sleep(GLANCE) => Occasion::Glance,
                () = self.discovery.changed() => Occasion::Pods,
            };
            let app = self.present.app();
            let marks = app.config.stamps();
            match occasion {
                Occasion::Hangup => self.watch = ChangeDetector::new(marks),
                Occasion::Glance if !self.watch.poll(marks) => continue,
                Occasion::Glance => {}
                Occasion::Pods => {
                    self.take_pods(&app);
                    continue;
                }
            }
            self.reload(&app, self.flags.clone()).await;
        }
    }

    /// Replaces the upstreams of pods by those of the pods that are ready now.
    fn take_pods(&mut self, before: &App) {
        match self.put_in_force(before, self.read.clone()) {
            Ok(FileChange {
                upstreams,
                new,
                gone,
            }) => {
                tracing::info!(
                    upstreams,
                    new,
                    gone,
                    "the pods behind upstreams have changed"
                );
            }
            Err(mistakes) => {
                let mistakes = mistakes.to_string();
                tracing::error!(mistakes, "the pods behind upstreams are not taken");
            }
        }
    }

    async fn reload(&mut self, app: &App, flags: Overrides) {
        service_manager::reloading();
        let loaded = in_time(move || Config::load(&flags)).await;
        let loaded = loaded.unwrap_or_else(|| Err(Mistakes::one("the configuration", UNREAD)));
        let taken = loaded.and_then(|config| self.take(app, config));
        app.metrics.reloaded.set(taken.is_ok().into());
        service_manager::reloaded(taken.is_ok());
        if let Err(mistakes) = taken {
            let mistakes = mistakes.to_string();
            tracing::error!(
                mistakes,
                "the configuration is not taken: the one before stays in force"
            );
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
        let capture = config.file.capture.clone();
        let FileChange {
            upstreams,
            new,
            gone,
        } = self.put_in_force(before, config)?;
        recapture(before, &capture);
        tracing::info!(
            upstreams,
            new,
            gone,
            "the configuration was read again and is in force"
        );
        Ok(())
    }

    /// Makes a configuration the active one, with the upstreams of all pods that are known.
    fn put_in_force(&mut self, before: &App, config: Config) -> Result<FileChange, Mistakes> {
        let app = before.reconfigured(config.clone().with_pods(&self.discovery.pods()))?;
        self.discovery.follow(&config, &app.metrics);
        self.read = config;
        let new = app
            .pool
            .missing_from(&before.pool)
            .cloned()
            .collect::<Vec<_>>();
        let gone = before
            .pool
            .missing_from(&app.pool)
            .cloned()
            .collect::<Vec<_>>();
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
        Ok(FileChange {
            upstreams,
            new: new.len(),
            gone: gone.len(),
        })
    }
}

/// Numbers of upstreams after a change: of all, and of those that came and went.
struct FileChange {
    upstreams: usize,
    new: usize,
    gone: usize,
}

/// Applies changes of `[capture]`. Without one, the switch stays as an operator has set it.
fn recapture(app: &App, capture: &CaptureFile) {
    if *capture == app.config.file.capture {
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
    let settings = || {
        let app = present.app();
        health::WatchSettings {
            health: app.config.file.health.clone(),
            reads_text: app.pool.reads_text(&upstream),
        }
    };
    health::watch(&upstream, settings).await;
}
