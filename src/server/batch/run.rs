//! Run of one batch: its input is checked, its lines are run, and results and progress are stored together.
//!
//! Remembers: the lines under way and the results that are not stored yet, both bounded. A line counts as done only
//! once its result is stored, so that a killed process loses no line, and none is in the output twice (faults O32).

use super::chunk::Next;
use super::done_lines::DoneLines;
use super::facts::Facts;
use super::line::{LineContext, LineEnd, LineOutcome, RunningLine, has_room, mistake, target};
use super::queue::LineQueue;
use super::reader::{LineReader, LineText};
use super::registry::BatchSignals;
use super::seconds;
use crate::request::batch::BatchLine;
use crate::server::App;
use crate::server::admit::batch_line::LineIdentity;
use crate::server::task_registry::TaskEntry;
use crate::store::{Batch, BatchStatus, BatchStep, Key, ResultLines, Store, StoreError};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::collections::HashSet;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Results are stored once they have this many bytes, or the first of them is this old.
const STORED: (usize, Duration) = (256 << 10, Duration::from_millis(200));
/// Interval at which signals, room and time are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Pause before a failed operation of the store is repeated.
const RETRY: Duration = Duration::from_millis(500);
/// Mistakes in the input that are told.
const MISTAKES: usize = 50;

/// Reason why a batch stops before all of its lines have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Another process owns the batch, or it is gone.
    Lost,
    /// This process shuts down.
    Draining,
    Cancelled,
    Expired,
}

/// Lines of a batch between the input and their results.
struct ActiveLines {
    reader: LineReader,
    /// True once the input has been read.
    is_read: bool,
    queue: LineQueue,
    running: FuturesUnordered<Pin<Box<dyn Future<Output = LineEnd> + Send>>>,
}

/// Batch that runs here.
pub(super) struct BatchRun {
    context: Arc<LineContext>,
    store: Arc<Store>,
    entry: TaskEntry<BatchSignals>,
    batch: Batch,
    facts: Facts,
    version: u64,
    done: DoneLines,
    output: ResultLines,
    errors: ResultLines,
    /// Time of the first result that is not stored yet.
    since: Option<Instant>,
}

impl BatchRun {
    pub(super) fn new(
        context: LineContext,
        store: Arc<Store>,
        entry: TaskEntry<BatchSignals>,
        batch: Batch,
    ) -> Self {
        let facts = Facts::of(&batch);
        let done = DoneLines::read(batch.cursor, &batch.ahead);
        Self {
            context: Arc::new(LineContext {
                endpoint: facts.endpoint.clone(),
                ..context
            }),
            store,
            entry,
            version: batch.version,
            batch,
            facts,
            done,
            output: ResultLines::default(),
            errors: ResultLines::default(),
            since: None,
        }
    }

    /// Returns the client on whose behalf the lines of a batch run.
    pub(super) fn identity(batch: &Batch) -> LineIdentity {
        LineIdentity {
            caller: Arc::clone(&batch.caller),
            tenant: Arc::clone(&batch.key.tenant),
        }
    }

    /// Runs the batch until it has ended, or this process has to leave it.
    pub(super) async fn run(mut self) {
        let begun = Instant::now();
        let ended = match self.run_to_its_end().await {
            Ok(status) => self.end(status).await,
            Err(Stop::Cancelled) => self.end(BatchStatus::Cancelled).await,
            Err(Stop::Expired) => self.expire().await,
            Err(stop) => Err(stop),
        };
        let (id, counts) = (Arc::clone(&self.batch.key.id), self.facts.counts);
        let batch = &*id;
        let (total, completed, failed) = (counts.total, counts.completed, counts.failed);
        match ended {
            Ok(()) => {
                let (status, seconds) = (self.batch.status.name(), begun.elapsed().as_secs());
                tracing::info!(
                    batch,
                    status,
                    total,
                    completed,
                    failed,
                    seconds,
                    "a batch has ended"
                );
            }
            Err(Stop::Draining) => {
                let _ = self.save(self.batch.status).await;
                let released = self
                    .store
                    .release_batch(self.batch.key.clone(), self.batch.term)
                    .await;
                if let Err(error) = released {
                    tracing::warn!(batch, %error, "a batch was not given up; its lease expires");
                }
                tracing::info!(
                    batch,
                    total,
                    completed,
                    failed,
                    "a batch is left to another process"
                );
            }
            Err(_) => tracing::warn!(batch, "a batch has another owner by now, or is gone"),
        }
    }

    async fn run_to_its_end(&mut self) -> Result<BatchStatus, Stop> {
        if self.batch.status == BatchStatus::Validating && !self.validate().await? {
            return Ok(BatchStatus::Failed);
        }
        self.run_lines().await?;
        Ok(BatchStatus::Completed)
    }

    fn app(&self) -> Arc<App> {
        self.context.present.app()
    }

    fn now(&self) -> u64 {
        self.app().store_handle.now()
    }

    fn is_lost(&self) -> bool {
        self.entry.signals.lost.load(Ordering::Relaxed)
    }

    /// Returns the reason why no more lines may begin, if there is one.
    fn stop(&self) -> Option<Stop> {
        if self.is_lost() {
            return Some(Stop::Lost);
        }
        if self.app().is_shutting_down() || !self.app().config.batch.enabled {
            return Some(Stop::Draining);
        }
        if self.batch.cancel > 0 || self.entry.signals.cancel.load(Ordering::Relaxed) {
            return Some(Stop::Cancelled);
        }
        (self.now() >= self.batch.expires).then_some(Stop::Expired)
    }

    fn reader(&self) -> LineReader {
        let key = Key {
            tenant: self.batch.key.tenant.clone(),
            id: self.batch.input.clone(),
        };
        LineReader::new(
            Arc::clone(&self.store),
            key,
            Arc::clone(&self.app().admit.budget),
            self.done.cursor(),
        )
    }

    /// Reads the next line; repeats a read that fails.
    async fn read(&self, reader: &mut LineReader) -> Result<Next<(u64, LineText)>, Stop> {
        loop {
            match reader.next().await {
                Ok(line) => return Ok(line),
                Err(error) => {
                    tracing::warn!(batch = &*self.batch.key.id, %error, "a batch cannot be read on")
                }
            }
            tokio::time::sleep(RETRY).await;
            if let Some(stop @ (Stop::Lost | Stop::Draining)) = self.stop() {
                return Err(stop);
            }
        }
    }

    /// Reads the next line, once there is memory for it; `None` at the end.
    async fn read_in_time(&self, reader: &mut LineReader) -> Result<Option<(u64, LineText)>, Stop> {
        loop {
            match self.read(reader).await? {
                Next::Read(line) => return Ok(Some(line)),
                Next::End => return Ok(None),
                Next::NoRoom => tokio::time::sleep(LOOK).await,
            }
            match self.stop() {
                Some(Stop::Expired | Stop::Cancelled)
                    if self.batch.status != BatchStatus::Validating => {}
                Some(stop) => return Err(stop),
                None => {}
            }
        }
    }

    /// Checks all lines of the input. Returns false if there are mistakes, which are then among the facts.
    async fn validate(&mut self) -> Result<bool, Stop> {
        let most = self.app().config.batch.max_lines;
        let mut reader = self.reader();
        // Hashes with a random key take a fraction of the ids' memory; a collision of two is as good as impossible.
        let (hasher, mut seen) = (RandomState::new(), HashSet::new());
        let (mut total, mut mistakes) = (0, Vec::new());
        while let Some((number, text)) = self.read_in_time(&mut reader).await? {
            let text = text.as_str();
            if number % 1_000 == 0 {
                tokio::task::yield_now().await;
                if let Some(stop) = self.stop() {
                    return Err(stop);
                }
            }
            if text.trim().is_empty() {
                continue;
            }
            total += 1;
            if total > most {
                let message = format!("The file has more than {most} lines (batch.max_lines).");
                mistakes.push(mistake("too_many_tasks", &message, None, None));
                break;
            }
            match BatchLine::read(text, &self.context.endpoint) {
                Ok(line) if !seen.insert(hasher.hash_one(&*line.custom_id)) => {
                    let message = "The custom_id of this line is that of an earlier one.";
                    mistakes.push(mistake(
                        "duplicate_custom_id",
                        message,
                        Some("custom_id"),
                        Some(number),
                    ));
                }
                Ok(_) => {}
                Err(problem) => {
                    mistakes.push(mistake(
                        problem.code,
                        &problem.message,
                        problem.param,
                        Some(number),
                    ));
                }
            }
            if mistakes.len() >= MISTAKES {
                break;
            }
        }
        if total == 0 && mistakes.is_empty() {
            mistakes.push(mistake("empty_file", "The file has no lines.", None, None));
        }
        self.facts.errors = mistakes;
        if !self.facts.errors.is_empty() {
            return Ok(false);
        }
        self.facts.counts.total = total;
        self.facts.in_progress_at = Some(seconds(self.now()));
        self.save(BatchStatus::InProgress).await.map(|_| true)
    }

    /// Runs the lines that are not done. Returns once all are, or fails with the reason to stop; lines that have a
    /// result then are stored.
    async fn run_lines(&mut self) -> Result<(), Stop> {
        let (reader, queue) = (self.reader(), LineQueue::default());
        let mut lines = ActiveLines {
            reader,
            is_read: false,
            queue,
            running: FuturesUnordered::new(),
        };
        loop {
            let stop = self.stop();
            match stop {
                Some(Stop::Lost) => return Err(Stop::Lost),
                Some(Stop::Expired) => lines.running.clear(),
                Some(Stop::Cancelled) => self.give_up_retries(&mut lines),
                Some(Stop::Draining) if self.app().is_cut() => lines.running.clear(),
                Some(Stop::Draining) => {}
                None => self.begin_lines(&mut lines).await?,
            }
            let is_done = lines.is_read && lines.queue.is_empty();
            if lines.running.is_empty() && (stop.is_some() || is_done) {
                // A drain stores it with the status that the batch has. A batch that had to end without results is not
                // complete.
                let is_kept =
                    stop == Some(Stop::Draining) || self.save(BatchStatus::InProgress).await?;
                let stop = if is_kept { stop } else { self.stop() };
                return stop.map_or(Ok(()), Err);
            }
            let is_late = self.since.is_some_and(|since| since.elapsed() >= STORED.1);
            if is_late || self.output.text.len() + self.errors.text.len() >= STORED.0 {
                self.save_beside(&mut lines).await?;
            }
            tokio::select! {
                Some(end) = lines.running.next() => self.take(end, &mut lines),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    fn take(&mut self, end: LineEnd, lines: &mut ActiveLines) {
        match end {
            LineEnd::Result(outcome) => self.note(outcome),
            LineEnd::Again(line) => lines.queue.push(line),
        }
    }

    /// Stores results and progress while the lines under way go on: those that end meanwhile leave their slots to other
    /// batches, however long the store takes.
    async fn save_beside(&mut self, lines: &mut ActiveLines) -> Result<bool, Stop> {
        let mut ends = Vec::new();
        let saved = {
            let mut save = pin!(self.save(BatchStatus::InProgress));
            loop {
                tokio::select! {
                    saved = &mut save => break saved,
                    Some(end) = lines.running.next() => ends.push(end),
                }
            }
        };
        ends.into_iter().for_each(|end| self.take(end, lines));
        saved
    }

    /// Begins as many lines as may run now. Batches share the slots of this process evenly.
    async fn begin_lines(&mut self, lines: &mut ActiveLines) -> Result<(), Stop> {
        let app = self.app();
        let most = app.config.batch.concurrency;
        let share = most.div_ceil(self.context.batches.count().max(1));
        while lines.running.len() < share {
            let free = share - lines.running.len();
            let next = lines.queue.take(
                free,
                |line| target(&app, line),
                |target| has_room(&app, target),
            );
            let Some(line) = next else {
                if lines.is_read || lines.queue.is_full(free) {
                    return Ok(());
                }
                match self.read(&mut lines.reader).await? {
                    Next::Read((number, text)) => {
                        // There may be millions of lines that are done or blank.
                        if number % 1_000 == 0 {
                            tokio::task::yield_now().await;
                        }
                        self.line(number, &text)
                            .into_iter()
                            .for_each(|line| lines.queue.push(line));
                    }
                    // Lines under way make room.
                    Next::NoRoom => return Ok(()),
                    Next::End => lines.is_read = true,
                }
                continue;
            };
            let Some(slot) = self.context.batches.line(most, line.seed) else {
                lines.queue.put_back(line);
                return Ok(());
            };
            lines
                .running
                .push(Box::pin(Arc::clone(&self.context).run(line, slot)));
        }
        Ok(())
    }

    /// Makes the last answer of each line that waits for another attempt its result, and breaks off those that run once
    /// the time of the batch is over.
    fn give_up_retries(&mut self, lines: &mut ActiveLines) {
        for line in lines.queue.take_tried() {
            self.note(self.context.result_without_retry(&line));
        }
        if self.now() >= self.batch.expires {
            lines.running.clear();
        }
    }

    /// Returns a line of the input that is to be run; `None` if it is empty or has a result.
    fn line(&mut self, number: u64, text: &LineText) -> Option<RunningLine> {
        if self.done.contains(number) {
            return None;
        }
        let Ok(line) = BatchLine::read(text.as_str(), &self.context.endpoint) else {
            // All lines have been checked: this one is empty.
            self.done.insert(number);
            return None;
        };
        let mut hasher = DefaultHasher::new();
        (&self.batch.key.id, number).hash(&mut hasher);
        Some(RunningLine {
            number,
            custom_id: line.custom_id.into_owned(),
            model: line.model.into_owned(),
            body: text.part(line.body),
            seed: hasher.finish(),
            attempts: None,
        })
    }

    /// Notes the result of a line, to be stored with the next step.
    fn note(&mut self, outcome: LineOutcome) {
        let app = self.app();
        let (metrics, usage, more) = (&app.metrics, &mut self.facts.usage, outcome.usage);
        let lines = if outcome.is_success {
            self.facts.counts.completed += 1;
            self.facts.has_output = true;
            metrics.batch_lines_completed.add(1);
            &mut self.output
        } else {
            self.facts.counts.failed += 1;
            self.facts.has_errors = true;
            metrics.batch_lines_failed.add(1);
            &mut self.errors
        };
        lines.count += 1;
        lines.text.push_str(&outcome.text);
        usage.input += more.input;
        usage.cached += more.cached;
        usage.output += more.output;
        usage.reasoning += more.reasoning;
        self.since.get_or_insert_with(Instant::now);
        self.done.insert(outcome.number);
    }

    /// Stores the results and the progress so far, and repeats that until it succeeds. Returns false if the batch ends
    /// without these results, since there was no room for them. Fails if the batch is lost, or if the process ends
    /// meanwhile.
    async fn save(&mut self, status: BatchStatus) -> Result<bool, Stop> {
        let settings = self.app().config.batch.clone();
        let kept = u64::try_from(settings.retention.as_millis()).unwrap_or(u64::MAX);
        let files_kept = self
            .facts
            .results_expire_after
            .map_or(kept, |seconds| kept.min(seconds * 1_000));
        let now = self.now();
        let mut step = BatchStep {
            version: self.version + 1,
            status,
            cursor: self.done.cursor(),
            ahead: self.done.ahead().into(),
            facts: self.facts.text().into(),
            output: Arc::new(std::mem::take(&mut self.output)),
            errors: Arc::new(std::mem::take(&mut self.errors)),
            gone: now.saturating_add(kept),
            files_gone: now.saturating_add(files_kept),
        };
        let mut is_kept = true;
        let stored = loop {
            let (key, term, limits) = (
                self.batch.key.clone(),
                self.batch.term,
                settings.file_limits(),
            );
            let saved = self
                .store
                .advance_batch(key, term, step.clone(), limits, self.now())
                .await;
            match saved {
                Ok(status) => break status,
                Err(StoreError::Fenced | StoreError::NotFound | StoreError::Conflict) => {
                    return Err(Stop::Lost);
                }
                Err(error) => {
                    tracing::warn!(batch = &*self.batch.key.id, %error, "results of a batch are not stored yet");
                    // A batch without room waits for some until its end, and then ends without these results.
                    if error == StoreError::Full
                        && matches!(self.stop(), Some(Stop::Cancelled | Stop::Expired))
                    {
                        (step.output, step.errors, is_kept) =
                            (Arc::default(), Arc::default(), false);
                        self.facts.forget_results_since(&Facts::of(&self.batch));
                        step.facts = self.facts.text().into();
                    }
                }
            }
            if self.is_lost() {
                return Err(Stop::Lost);
            }
            if self.app().is_cut() {
                // Results and progress stay together, so that the lines of lost results are run again elsewhere.
                self.output = Arc::unwrap_or_clone(step.output);
                self.errors = Arc::unwrap_or_clone(step.errors);
                return Err(Stop::Draining);
            }
            tokio::time::sleep(RETRY).await;
        };
        self.version = step.version;
        (self.batch.status, self.batch.facts) = (stored, step.facts);
        self.since = None;
        Ok(is_kept)
    }

    /// Ends the batch.
    async fn end(&mut self, status: BatchStatus) -> Result<(), Stop> {
        let now = seconds(self.now());
        self.facts.ended_at = Some(now);
        if status == BatchStatus::Completed {
            self.facts.finalizing_at = Some(now);
        }
        self.save(status).await.map(|_| ())
    }

    /// Ends a batch whose time is over: lines without a result become errors.
    async fn expire(&mut self) -> Result<(), Stop> {
        if self.batch.status != BatchStatus::Validating {
            let mut reader = self.reader();
            while let Some((number, text)) = self.read_in_time(&mut reader).await? {
                if number % 1_000 == 0 {
                    tokio::task::yield_now().await;
                }
                let Some(line) = self.line(number, &text) else {
                    continue;
                };
                let message =
                    "This request could not be executed before the completion window expired.";
                let outcome =
                    self.context
                        .failed(line.number, &line.custom_id, "batch_expired", message);
                self.note(outcome);
                if self.errors.text.len() >= STORED.0 {
                    self.save(BatchStatus::InProgress).await?;
                    if let Some(stop @ (Stop::Lost | Stop::Draining)) = self.stop() {
                        return Err(stop);
                    }
                }
            }
        }
        self.end(BatchStatus::Expired).await
    }
}
