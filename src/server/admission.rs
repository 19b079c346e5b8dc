//! Admission of a request: the room that the process has, and the quota of the key.

use super::App;
use super::admit::auth::ClientIdentity;
use super::admit::azure::RouteFamily;
use super::admitted::Admitted;
use super::protocol::Protocol;
use super::reply::ClientReply;
use crate::telemetry::RouteLabel;
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::ResponsesDialect;
use http::header::RETRY_AFTER;
use http::request;

/// Authenticates the client of a request, notes it in the record, and begins to record the exchange if it is captured.
/// Fails as [`ClientIdentity::of`] does.
pub(super) fn identify(
    head: &request::Parts,
    family: RouteFamily,
    app: &App,
    reply: &mut ClientReply,
) -> Result<ClientIdentity, Failure> {
    let identity = ClientIdentity::of(head, family, app.config.auth.as_deref())?;
    reply.note(|record| {
        record.authenticated(identity.caller.clone());
        record.capture(head, identity.wants_capture(head));
    });
    reply.recording = reply.record().and_then(|record| record.recording.clone());
    Ok(identity)
}

/// Fails if the process ends, or has no room for another request.
pub(super) fn check_room(app: &App) -> Result<(), Fault> {
    if app.refuses_requests() {
        return Err(Fault::Draining);
    }
    let most = i64::try_from(app.config.limits.requests).unwrap_or(i64::MAX);
    // Background responses have their own limits, and an answer from the store needs no engine.
    let waiting = app.running.requests.value()
        - app.responses.background_jobs.places()
        - app.running.stored_answers.value();
    if waiting > most || app.admit.budget.is_short() {
        Err(Fault::Overloaded)
    } else {
        Ok(())
    }
}

/// Counts a request against the quota of its key. Fails if a limit is used up, with `retry-after` set in the headers.
pub(super) async fn count(admitted: &Admitted<'_>, reply: &mut ClientReply) -> Result<(), Failure> {
    if matches!(admitted.dialect(), Ok(ResponsesDialect::CodexLegacy)) {
        // This dialect has its own errors.
        reply.note(|record| {
            if record.route == RouteLabel::Responses {
                record.protocol = Protocol::CodexLegacy;
            }
        });
    }
    let app = admitted.app;
    let Some(caller) = &admitted.identity.caller else {
        return Ok(());
    };
    let Some(admitted) = app
        .admit
        .quotas
        .admit(&caller.name, &mut reply.quota, app)
        .await
    else {
        return Ok(());
    };
    let ticket = admitted.map_err(|(failure, wait)| {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        reply.passed.insert(RETRY_AFTER, seconds.into());
        failure
    })?;
    reply.note(|record| record.ticket = Some(ticket));
    Ok(())
}
