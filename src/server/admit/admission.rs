//! Admission of a request under the quota of its key. Touches only the context of the request and its record: the
//! quota's ticket and status, `retry-after`, and the protocol of errors.

use crate::server::context::RequestContext;
use crate::server::protocol::Protocol;
use crate::telemetry::Route;
use crate::wire::fault::Failure;
use crate::wire::options::ResponsesDialect;
use http::header::RETRY_AFTER;
use http::request;
use std::sync::Arc;

impl RequestContext {
    /// Counts a request against the quota of its key. Fails if a limit is used up, with `retry-after` set in the
    /// headers.
    pub(in crate::server) async fn count(&mut self, head: &request::Parts) -> Result<(), Failure> {
        self.note_dialect(head);
        let app = Arc::clone(&self.app);
        let Some(caller) = &self.caller else { return Ok(()) };
        let entered = app.quotas.admit(&caller.name, &mut self.standing, &app).await;
        let Some(entered) = entered else { return Ok(()) };
        let ticket = entered.map_err(|(failure, wait)| {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            self.passed.insert(RETRY_AFTER, seconds.into());
            failure
        })?;
        if let Some(record) = &mut self.record {
            record.ticket = Some(ticket);
        }
        Ok(())
    }

    /// Sets the protocol of a client whose dialect of Responses has errors of its own.
    fn note_dialect(&mut self, head: &request::Parts) {
        let is_legacy = matches!(self.dialect(head), Ok(ResponsesDialect::CodexLegacy));
        if let Some(record) =
            self.record.as_mut().filter(|record| record.route == Route::Responses && is_legacy)
        {
            record.protocol = Protocol::CodexLegacy;
        }
    }
}
