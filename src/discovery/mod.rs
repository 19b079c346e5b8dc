//! Discovery of engines: the ready pods behind Services, as the Kubernetes API lists them and reports their changes.
//!
//! Takes: the settings and label selectors of the configuration. Gives: the pods by selector, whenever they change.
//! Remembers: the last pods that the API has named, also while it is away. Never: changes the configuration.

mod api;
mod slices;

use crate::config::{Config, DiscoveryFile, Pod, Pods};
use crate::telemetry::{DiscoveryMetrics, Metrics};
use api::ApiServer;
use slices::{Broken, MOST, Slices};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// Pause after a failure: the first one, and the longest after repeated doubling.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Time in which further changes are waited for, so that a rollout is not a reload for each pod.
const GATHER: Duration = Duration::from_millis(200);

/// Watches of all selectors of the configuration. Dropping it ends them.
#[derive(Debug)]
pub struct Discovery {
    known: watch::Sender<Pods>,
    news: watch::Receiver<Pods>,
    /// True if other pods are known than those that were seen last.
    is_changed: bool,
    tasks: JoinSet<()>,
    /// Tasks by selector, with the settings that they were started with.
    running: BTreeMap<String, (DiscoveryFile, AbortHandle)>,
}

impl Default for Discovery {
    fn default() -> Self {
        let (known, news) = watch::channel(Pods::new());
        Self {
            known,
            news,
            is_changed: false,
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
        }
    }
}

impl Discovery {
    /// Watches the selectors of this configuration from now on, and no others. A selector of which nothing has changed
    /// keeps its watch and its pods.
    pub fn follow(&mut self, config: &Config, metrics: &Metrics) {
        let selectors: Vec<&str> = config.selectors().collect();
        self.running.retain(|selector, (settings, task)| {
            let stays =
                selectors.contains(&selector.as_str()) && *settings == config.file.discovery;
            if !stays {
                task.abort();
            }
            stays
        });
        self.known.send_if_modified(|known| {
            known.retain(|selector, _| selectors.contains(&selector.as_str()));
            false
        });
        for selector in selectors {
            if self.running.contains_key(selector) {
                continue;
            }
            let (settings, figures) = (config.file.discovery.clone(), metrics.discovery(selector));
            let watch = Selector {
                selector: selector.to_owned(),
                settings,
                figures,
                known: self.known.clone(),
            };
            let task = self.tasks.spawn(watch.tend());
            self.running
                .insert(selector.to_owned(), (config.file.discovery.clone(), task));
        }
    }

    /// Returns the pods that are known now, and marks them as seen.
    pub fn pods(&mut self) -> Pods {
        self.is_changed = false;
        self.news.borrow_and_update().clone()
    }

    /// Waits until other pods are known than those that were seen last. The future may be dropped; nothing is lost.
    pub async fn changed(&mut self) {
        if !self.is_changed {
            // It cannot fail: the sender is kept here.
            let _ = self.news.changed().await;
            self.is_changed = true;
        }
        tokio::time::sleep(GATHER).await;
    }
}

/// Watch of one selector.
struct Selector {
    selector: String,
    settings: DiscoveryFile,
    figures: Arc<DiscoveryMetrics>,
    known: watch::Sender<Pods>,
}

impl Selector {
    /// Lists and watches without end. A failure changes nothing in the pods that are known.
    async fn tend(self) {
        let (mut pause, mut is_told) = (PAUSES.0, false);
        loop {
            let lived = tokio::time::Instant::now();
            let ended = self.list_and_watch(&mut is_told).await;
            if let Err(Broken::Error(why)) = ended {
                if !std::mem::replace(&mut is_told, true) {
                    let selector = &*self.selector;
                    tracing::warn!(
                        selector,
                        why,
                        "the Kubernetes API names no pods: those known stay in use"
                    );
                }
                self.figures.failures.add(1);
                self.figures.up.set(0);
            }
            if lived.elapsed() > PAUSES.1 {
                pause = PAUSES.0;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Returns a client of the API with the token as it is now: tokens expire and are replaced.
    async fn api(&self) -> Result<ApiServer, Broken> {
        let (settings, selector) = (self.settings.clone(), self.selector.clone());
        // Files are read, which may take long.
        let api = tokio::task::spawn_blocking(move || ApiServer::new(&settings, &selector)).await;
        api.map_err(|error| Broken::Error(error.to_string()))?
    }

    /// Reads the list, then applies changes to it for as long as the API sends them. Failures may be told again once a
    /// watch has begun.
    async fn list_and_watch(&self, is_told: &mut bool) -> Result<(), Broken> {
        let (mut slices, mut version) = Slices::read(&self.api().await?.list().await?)?;
        self.publish(slices.pods());
        loop {
            let mut watch = self.api().await?.watch(&version).await?;
            self.figures.up.set(1);
            if std::mem::take(is_told) {
                tracing::info!(
                    selector = &*self.selector,
                    "the Kubernetes API answers: the pods that it names are used"
                );
            }
            while let Some(line) = watch.next().await? {
                slices.apply(&line, &mut version)?;
                self.publish(slices.pods());
            }
            // The API ends watches from time to time. Nothing is lost between two.
            tokio::time::sleep(PAUSES.0).await;
        }
    }

    fn publish(&self, pods: Vec<Pod>) {
        let (selector, count) = (&*self.selector, pods.len());
        self.figures
            .pods
            .set(i64::try_from(count).unwrap_or(i64::MAX));
        let is_new = self.known.send_if_modified(|known| {
            if known.get(selector) == Some(&pods) {
                return false;
            }
            known.insert(selector.to_owned(), pods);
            true
        });
        if is_new && count == MOST {
            tracing::warn!(selector, pods = count, "no more pods than these are used");
        }
    }
}
