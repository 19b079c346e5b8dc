//! Fields of a batch object that the store does not interpret: kept as one JSON text, and written for clients.

use super::seconds;
use crate::json::members;
use crate::store::{Batch, BatchStatus};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Facts of a batch, kept in its record. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Facts {
    pub(super) endpoint: String,
    /// Metadata as a JSON object.
    pub(super) metadata: Option<String>,
    /// Seconds for which the results are kept, if the client says so.
    pub(super) results_expire_after: Option<u64>,
    pub(super) in_progress_at: Option<u64>,
    pub(super) finalizing_at: Option<u64>,
    /// Time of the end, which the status names.
    pub(super) ended_at: Option<u64>,
    pub(super) counts: LineCounts,
    /// True if the output file has lines.
    pub(super) has_output: bool,
    /// True if the file of errors has lines.
    pub(super) has_errors: bool,
    pub(super) errors: Vec<LineError>,
    pub(super) usage: LineUsage,
}

/// Numbers of lines.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct LineCounts {
    pub(super) total: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
}

/// Mistake in the input.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct LineError {
    pub(super) code: String,
    pub(super) message: String,
    pub(super) param: Option<String>,
    /// Number of the line, from 1 on.
    pub(super) line: Option<u64>,
}

/// Tokens of all lines, as the engines count them.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct LineUsage {
    pub(super) input: u64,
    pub(super) cached: u64,
    pub(super) output: u64,
    pub(super) reasoning: u64,
}

impl Facts {
    /// Takes back the results that were not there before.
    pub(super) fn forget_results_since(&mut self, before: &Self) {
        (self.counts, self.usage) = (before.counts, before.usage);
        (self.has_output, self.has_errors) = (before.has_output, before.has_errors);
    }

    /// Reads the facts of a record; those that cannot be read are empty.
    pub(super) fn of(batch: &Batch) -> Self {
        serde_json::from_str(&batch.facts).unwrap_or_default()
    }

    /// Returns the facts as the text that is stored.
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Returns the batch object, as clients read it.
pub(super) fn object(batch: &Batch) -> String {
    let facts = Facts::of(batch);
    let is_over = batch.status.is_terminal();
    let ended_as = |status| facts.ended_at.filter(|_| batch.status == status);
    let usage = facts.usage;
    let object = members! {
        id: &*batch.key.id,
        object: "batch",
        endpoint: &*facts.endpoint,
        errors: (!facts.errors.is_empty()).then(|| members! { object: "list", data: &facts.errors }),
        input_file_id: &*batch.input,
        completion_window: "24h",
        status: if batch.cancel > 0 && !is_over { "cancelling" } else { batch.status.name() },
        output_file_id: (is_over && facts.has_output).then_some(&*batch.output),
        error_file_id: (is_over && facts.has_errors).then_some(&*batch.errors),
        created_at: seconds(batch.created),
        in_progress_at: facts.in_progress_at,
        expires_at: seconds(batch.expires),
        // A batch that was cancelled in its last moment was about to complete.
        finalizing_at: facts.finalizing_at.filter(|_| batch.status != BatchStatus::Cancelled),
        completed_at: ended_as(BatchStatus::Completed),
        failed_at: ended_as(BatchStatus::Failed),
        expired_at: ended_as(BatchStatus::Expired),
        cancelling_at: Some(batch.cancel).filter(|cancel| *cancel > 0).map(seconds),
        cancelled_at: ended_as(BatchStatus::Cancelled),
        request_counts: facts.counts,
        usage: members! {
            input_tokens: usage.input,
            input_tokens_details: members! { cached_tokens: usage.cached },
            output_tokens: usage.output,
            output_tokens_details: members! { reasoning_tokens: usage.reasoning },
            total_tokens: usage.input.saturating_add(usage.output),
        },
        metadata: facts.metadata.as_deref().and_then(|text| serde_json::from_str::<&RawValue>(text).ok()),
    };
    serde_json::to_string(&object).unwrap_or_default()
}
