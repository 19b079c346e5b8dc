//! Records of files and batches: what a client uploads, the batches that run over it, and what they give.
//!
//! The content of a file is a list of chunks of whole lines, so that nobody has to hold a file in memory. A batch
//! belongs to an owner for a term, as a running response does; another owner may take it over once the lease has
//! expired, and goes on from what is stored.

use super::record::{Json, Key, Millis, StoreError, Stored};
use crate::named::named;
use std::sync::Arc;

/// Time after which an upload that has stopped is removed.
pub(super) const ABANDONED: Millis = 3_600_000;

named! {
    /// Purpose of a file. The numbers are stored in databases.
    pub enum FilePurpose {
        /// Input of a batch, uploaded by a client.
        Batch = "batch",
        /// Output of a batch.
        BatchOutput = "batch_output",
        /// Text for the parts of messages, uploaded by a client.
        UserData = "user_data",
    }
}

impl FilePurpose {
    pub(super) fn of(number: i64) -> Self {
        match number {
            0 => Self::Batch,
            2 => Self::UserData,
            _ => Self::BatchOutput,
        }
    }
}

/// State of a file. The numbers are stored in databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileState {
    /// Chunks are still added; clients do not see the file.
    Writing = 0,
    /// Complete.
    Ready = 1,
    /// Deleted; its chunks are removed little by little.
    Deleted = 2,
}

/// Stored file without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// Key of the file: `file-…`
    pub key: Key,
    /// Purpose of the file.
    pub purpose: FilePurpose,
    /// Name that its client gave it.
    pub name: Arc<str>,
    /// Time at which the file was created.
    pub created: Millis,
    /// Time at which the file expires.
    pub expires: Millis,
    /// Length of the content in bytes.
    pub bytes: u64,
    /// Lines of the content.
    pub lines: u64,
    /// Number of chunks.
    pub chunks: u64,
}

/// File to be stored, before its content.
#[derive(Clone, Debug)]
pub struct NewFile {
    /// Key of the file.
    pub key: Key,
    /// Name that its client gave it.
    pub name: Arc<str>,
}

/// Piece of a file: whole lines, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChunk {
    /// Number of the chunk in its file, from 0 on.
    pub place: u64,
    /// Number of its first line in the file, from 0 on.
    pub first: u64,
    /// Number of its lines.
    pub lines: u64,
    /// Text of the lines.
    pub body: Arc<str>,
}

/// Limits on files. A write that runs beside others may exceed them by one chunk for each of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimits {
    /// Files of one tenant.
    pub tenant_files: u64,
    /// Bytes of all files of one tenant.
    pub tenant_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
}

named! {
    /// Status of a batch. The numbers are stored in databases.
    pub enum BatchStatus {
        /// The input is checked, or waits for that.
        Validating = "validating",
        /// Lines are run.
        InProgress = "in_progress",
        /// All lines have ended.
        Finalizing = "finalizing",
        /// Ended normally.
        Completed = "completed",
        /// The input is invalid.
        Failed = "failed",
        /// The completion window has passed.
        Expired = "expired",
        /// Cancelled by its client.
        Cancelled = "cancelled",
    }
}

impl BatchStatus {
    /// Returns true if the status is final.
    pub fn is_terminal(self) -> bool {
        self > Self::Finalizing
    }

    pub(super) fn of(number: i64) -> Option<Self> {
        usize::try_from(number)
            .ok()
            .and_then(|at| Self::ALL.get(at))
            .copied()
    }
}

/// Stored batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Key of the batch: `batch_…`
    pub key: Key,
    /// Status of the batch.
    pub status: BatchStatus,
    /// Time at which the batch was created.
    pub created: Millis,
    /// Time at which the completion window ends.
    pub expires: Millis,
    /// Time of the first request to cancel the batch; 0 without one.
    pub cancel: Millis,
    /// Process that runs the batch; empty before one does.
    pub owner: Arc<str>,
    /// Number of the current ownership. A write with another term is rejected.
    pub term: u64,
    /// Number of the last write of its owners, so that a repeated one is recognised.
    pub version: u64,
    /// Key of the client on whose behalf its lines run, as [`Hash::counters`](crate::auth::Hash::counters) names
    /// it; empty if keys are not checked.
    pub caller: Arc<str>,
    /// Id of the input file.
    pub input: Arc<str>,
    /// Id of the output file.
    pub output: Arc<str>,
    /// Id of the file of errors.
    pub errors: Arc<str>,
    /// Number of input lines that have all ended.
    pub cursor: u64,
    /// Numbers of further lines that have ended, separated by commas.
    pub ahead: Arc<str>,
    /// Everything else that the batch object says, which the store does not interpret.
    pub facts: Json,
}

/// Lines to be added to a file of results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultLines {
    /// Number of the lines.
    pub count: u64,
    /// Text of the lines, each with its end.
    pub text: String,
}

/// Step of a batch: results and progress, which are stored together or not at all.
#[derive(Clone, Debug)]
pub struct BatchStep {
    /// Number of this write, one above the last.
    pub version: u64,
    /// Status from now on.
    pub status: BatchStatus,
    /// Number of input lines that have all ended.
    pub cursor: u64,
    /// Numbers of further lines that have ended.
    pub ahead: Arc<str>,
    /// Everything else that the batch object says.
    pub facts: Json,
    /// Lines for the output file.
    pub output: Arc<ResultLines>,
    /// Lines for the file of errors.
    pub errors: Arc<ResultLines>,
    /// Time at which the batch is removed, once it has ended.
    pub gone: Millis,
    /// Time at which its files expire, once it has ended.
    pub files_gone: Millis,
}

impl Batch {
    /// Returns a new batch over no files, which has no owner until one claims it.
    pub fn new(key: Key, now: Millis) -> Self {
        let none = Arc::<str>::from("");
        Self {
            key,
            status: BatchStatus::Validating,
            created: now,
            expires: now,
            cancel: 0,
            owner: none.clone(),
            term: 0,
            version: 0,
            caller: none.clone(),
            input: none.clone(),
            output: none.clone(),
            errors: none.clone(),
            cursor: 0,
            ahead: none.clone(),
            facts: none,
        }
    }
}

impl BatchStep {
    /// Returns the lines with the ids of the files that they are added to.
    pub(super) fn results<'s>(&'s self, batch: &'s Batch) -> [(&'s Arc<str>, &'s ResultLines); 2] {
        [
            (&batch.output, &*self.output),
            (&batch.errors, &*self.errors),
        ]
    }

    /// Returns the status that the batch gets by this step: an end after a request to cancel it is its cancellation.
    pub(super) fn status_of(&self, batch: &Batch) -> BatchStatus {
        let is_cancelled = self.status.is_terminal() && batch.cancel > 0;
        if is_cancelled {
            BatchStatus::Cancelled
        } else {
            self.status
        }
    }

    /// Checks that this is the next step of a batch. Returns false if it was stored before.
    pub(super) fn follows(&self, batch: &Batch, term: u64) -> Stored<bool> {
        if batch.term != term {
            return Err(StoreError::Fenced);
        }
        if batch.version == self.version {
            return Ok(false);
        }
        let is_next = batch.version + 1 == self.version && !batch.status.is_terminal();
        if is_next {
            Ok(true)
        } else {
            Err(StoreError::Conflict)
        }
    }
}

impl FileLimits {
    /// Checks that a tenant may store more. Fails with `Full` if not.
    pub(super) fn check(&self, used: &FileUse, files: u64, bytes: u64) -> Stored {
        let fits = used.tenant_files + files <= self.tenant_files
            && used.tenant_bytes.saturating_add(bytes) <= self.tenant_bytes
            && used.total_bytes.saturating_add(bytes) <= self.total_bytes;
        if fits { Ok(()) } else { Err(StoreError::Full) }
    }
}

/// Amounts that are stored already.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileUse {
    pub(super) total_bytes: u64,
    pub(super) tenant_bytes: u64,
    pub(super) tenant_files: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::State;

    /// Databases hold these numbers: a variant keeps its place.
    #[test]
    fn stored_numbers_stay() {
        let states = State::ALL.map(|state| (state as i64, state.name()));
        let expected = [
            "queued",
            "in_progress",
            "completed",
            "incomplete",
            "failed",
            "cancelled",
        ];
        assert!((0..).zip(expected).eq(states), "{states:?}");
        let statuses = BatchStatus::ALL.map(|status| (status as i64, status.name()));
        let expected = [
            "validating",
            "in_progress",
            "finalizing",
            "completed",
            "failed",
            "expired",
            "cancelled",
        ];
        assert!((0..).zip(expected).eq(statuses), "{statuses:?}");
        let purposes = FilePurpose::ALL.map(|purpose| (purpose as i64, purpose.name()));
        assert!(
            (0..)
                .zip(["batch", "batch_output", "user_data"])
                .eq(purposes),
            "{purposes:?}"
        );
        assert!(
            FilePurpose::ALL
                .into_iter()
                .all(|purpose| FilePurpose::of(purpose as i64) == purpose)
        );
    }
}
