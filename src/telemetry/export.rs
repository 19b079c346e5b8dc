//! Export of traces to the collector: a bounded queue, and a thread that posts its content in batches.

use super::spans;
use super::trace::{self, FinishedRequest};
use crate::config::TraceConfig;
use crate::error::innermost_cause;
use crate::tls::trusting_nobody;
use crate::visible::excerpt;
use http::header::CONTENT_TYPE;
use parking_lot::Mutex;
use reqwest::Client;
use reqwest::redirect::Policy;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of finished requests in the queue; later ones are dropped.
const WAITING: usize = 2048;
/// Maximum number of finished requests in one post.
const BATCH: usize = 512;
/// Time to collect more requests before a post.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes of a collector's answer after which no more of it is read.
const ANSWER: usize = 8 << 10;
/// Most characters of a collector's reason in the log.
const REASON: usize = 200;
/// Time limit of the last posts at shutdown.
const LAST: Duration = Duration::from_millis(800);
/// Time that shutdown waits for the exporter thread.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Handle of the exporter thread. Handing over a finished request never blocks.
#[derive(Debug)]
pub(super) struct Exporter {
    queue: mpsc::Sender<FinishedRequest>,
    end: Mutex<Option<(oneshot::Sender<()>, oneshot::Receiver<()>)>>,
}

impl Exporter {
    pub(super) fn start(config: Arc<TraceConfig>) -> io::Result<Self> {
        let (queue, waiting) = mpsc::channel(WAITING);
        let (end, ended) = oneshot::channel();
        let (done, is_done) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = Client::builder()
            .no_proxy()
            .tls_backend_preconfigured(trusting_nobody()?);
        let client = client
            .redirect(Policy::none())
            .timeout(config.timeout)
            .build();
        let post = Post {
            client: client.map_err(io::Error::other)?,
            config,
            fails: false,
        };
        std::thread::Builder::new()
            .name("traces".to_owned())
            .spawn(move || {
                runtime.block_on(export(waiting, ended, post));
                // The receiver may be gone by now.
                let _ = done.send(());
            })?;
        Ok(Self {
            queue,
            end: Mutex::new(Some((end, is_done))),
        })
    }

    /// Queues a finished request without waiting. If the queue is full, drops it and counts its spans.
    pub(super) fn take(&self, told: FinishedRequest) {
        if let Err(full) = self.queue.try_send(told) {
            trace::DROPPED.add(full.into_inner().spans());
        }
    }

    pub(super) async fn close(&self) {
        let end = self.end.lock().take();
        if let Some((end, is_done)) = end {
            let _ = end.send(());
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, is_done).await;
        }
    }
}

/// Posts batches until shutdown, then posts what is left in the queue.
async fn export(
    mut waiting: mpsc::Receiver<FinishedRequest>,
    mut ended: oneshot::Receiver<()>,
    mut post: Post,
) {
    let mut batch = Vec::new();
    loop {
        let exporting = async {
            if batch.is_empty() {
                waiting.recv_many(&mut batch, BATCH).await;
            }
            if batch.len() < BATCH {
                tokio::time::sleep(PAUSE).await;
                fill(&mut batch, &mut waiting);
            }
            post.send(&batch).await;
        };
        tokio::select! {
            _ = &mut ended => break,
            () = exporting => batch.clear(),
        }
    }
    // A post that was cut off is repeated: the collector recognises the spans by their ids.
    let last = async {
        loop {
            fill(&mut batch, &mut waiting);
            if batch.is_empty() {
                return;
            }
            post.send(&batch).await;
            batch.clear();
        }
    };
    if tokio::time::timeout(LAST, last).await.is_err() {
        tracing::warn!("the collector of traces was too slow for the last of them");
    }
}

fn fill(batch: &mut Vec<FinishedRequest>, waiting: &mut mpsc::Receiver<FinishedRequest>) {
    while batch.len() < BATCH
        && let Ok(told) = waiting.try_recv()
    {
        batch.push(told);
    }
}

/// HTTP client that posts batches to the collector.
struct Post {
    client: Client,
    config: Arc<TraceConfig>,
    /// True if the last post failed. The failure has been logged, and is not logged again until a post succeeds.
    fails: bool,
}

impl Post {
    async fn send(&mut self, batch: &[FinishedRequest]) {
        let count = batch.iter().map(|told| told.spans()).sum();
        let (lost, why) = match self.post(spans::encoded(batch)).await {
            Ok(None) => (0, None),
            Ok(Some((rejected, why))) => (rejected.min(count), Some(why)),
            Err(why) => (count, Some(why)),
        };
        trace::EXPORTED.add(count - lost);
        trace::DROPPED.add(lost);
        match (&why, std::mem::replace(&mut self.fails, why.is_some())) {
            (Some(why), false) => {
                tracing::warn!(why, "the collector takes no traces; they are dropped")
            }
            (None, true) => tracing::info!("the collector takes traces again"),
            _ => {}
        }
    }

    /// Posts spans. Returns how many of them the collector rejects, if it rejects some, and its reason.
    async fn post(&self, body: Vec<u8>) -> Result<Option<(i64, String)>, String> {
        let mut request = self
            .client
            .post(&self.config.url)
            .header(CONTENT_TYPE, "application/x-protobuf");
        for (name, value) in &self.config.headers {
            request = request.header(name, value.value());
        }
        let why = |error: reqwest::Error| match error.is_timeout() {
            true => format!("no answer within {} s", self.config.timeout.as_secs_f64()),
            false => innermost_cause(&error),
        };
        let mut response = request.body(body).send().await.map_err(why)?;
        if !response.status().is_success() {
            return Err(format!("it answers {}", response.status().as_u16()));
        }
        let mut answer = Vec::new();
        while answer.len() < ANSWER
            && let Some(piece) = response.chunk().await.map_err(why)?
        {
            answer.extend_from_slice(&piece);
        }
        let rejected = spans::rejected(&answer);
        Ok(rejected.map(|(count, why)| {
            (
                count,
                format!("it rejects {count} spans: {}", excerpt(&why, REASON)),
            )
        }))
    }
}
