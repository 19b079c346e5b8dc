//! Admission of a request under the quota of its key. Touches only the context of the request and its record: the
//! quota's ticket and status, and `retry-after`.

use crate::server::context::RequestContext;
use crate::telemetry::Route;
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::ResponsesDialect;
use http::header::RETRY_AFTER;
use http::request;
use std::sync::Arc;

impl RequestContext {
    /// Counts a request against the quota of its key. Fails if a limit is used up, with `retry-after` set in the
    /// headers.
    pub(in crate::server) async fn count(&mut self, head: &request::Parts) -> Result<(), Failure> {
        let app = Arc::clone(&self.app);
        let Some(caller) = &self.caller else { return Ok(()) };
        let entered = app.quotas.admit(&caller.name, &mut self.standing, &app).await;
        let Some(entered) = entered else { return Ok(()) };
        let ticket = entered.map_err(|(failure, wait)| {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            self.passed.insert(RETRY_AFTER, seconds.into());
            self.in_dialect(failure, head)
        })?;
        if let Some(record) = &mut self.record {
            record.ticket = Some(ticket);
        }
        Ok(())
    }

    /// Sets the error code that the older description of the Responses API has for a used-up quota (wire-format
    /// 3.4).
    fn in_dialect(&self, mut failure: Failure, head: &request::Parts) -> Failure {
        let is_responses = self.record.as_ref().is_some_and(|record| record.route == Route::Responses);
        let is_legacy = || matches!(self.dialect(head), Ok(ResponsesDialect::CodexLegacy));
        if failure.fault == Fault::InsufficientQuota && is_responses && is_legacy() {
            failure.code = Some("quota_exceeded".into());
        }
        failure
    }
}
