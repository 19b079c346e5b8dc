//! Routes whose request and answer bodies pass through (docs/configure.md#relayed-routes); only the model's name may be
//! replaced. This module has their paths, the part of a body that is held before an engine is chosen, and the
//! attempts.
//!
//! A body is held until its model is known, and completely if it is short: then it can be sent to another
//! upstream. The rest is sent as it arrives, and once a piece of that has been sent the request stays with its
//! upstream.

mod client_body;

use super::pass_through::{ActiveExchange, PassThrough, StartedAnswer};
use crate::config::Relayed;
use crate::error::{Error, RetryClass};
use crate::request::relayed::Scan;
use crate::server::App;
use crate::server::admit::azure::RouteFamily;
use crate::server::admit::body::Body;
use crate::server::admit::browsers::single_value;
use crate::server::admitted::Admitted;
use crate::server::headers;
use crate::server::models::naming;
use crate::server::net::upload_progress::UploadProgress;
use crate::server::record::Record;
use crate::server::relay::attempt::{
    AttemptTarget, EngineSender, FailedAttempt, choose, next_upstream, report_outcome,
};
use crate::server::relay::selection::UpstreamSelection;
use crate::server::reply::ClientReply;
use crate::server::request_body::RequestBody;
use crate::upstream::{Outgoing, Read, Upload, Upstream};
use crate::wire::fault::{Failure, Fault};
use bytes::{Bytes, BytesMut};
use client_body::ClientBody;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Body as _;
use std::fmt::Write as _;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Largest body that is held completely, so that it can be sent again, in bytes.
const HELD_WHOLE_BYTES: usize = 256 << 10;
/// Bytes searched for the model where it does not affect the choice of an upstream.
const MODEL_SEARCH_BYTES: usize = 64 << 10;

/// Maps a path to the route family and the engine's path of a relayed route; `None` if it is not one.
pub(in crate::server) fn find(path: &str, relayed: &Relayed) -> Option<(RouteFamily, String)> {
    let of_deployment = || {
        path.strip_prefix("/openai/deployments/")?
            .split_once('/')
            .map(|(_, rest)| rest)
    };
    let below = |family, rest: Option<&str>| rest.map(|rest| (family, format!("/v1/{rest}")));
    let ways = [
        Some((RouteFamily::Plain, path.to_owned())),
        below(RouteFamily::Undated, path.strip_prefix("/openai/v1/")),
        below(RouteFamily::Deployment, of_deployment()),
        below(RouteFamily::Dated, path.strip_prefix("/openai/")),
    ];
    ways.into_iter()
        .flatten()
        .find(|(_, path)| relayed.has(path))
}

/// Held part of a request's body, and the rest that is still to come.
struct HeldBody {
    front: Bytes,
    scan: Scan,
    /// Rest of the body, still to come.
    rest: Option<ClientBody>,
    /// Bytes of the rest, if declared.
    rest_length: Option<u64>,
}

/// Model that a request is for, and whether the body sent to the engine must name it.
#[derive(Default)]
struct RequestedModel {
    /// Client's name for the model; empty if the engine chooses.
    model: String,
    /// True if the body sent to the engine must name the model.
    must_name: bool,
}

/// Serves a request for a relayed route. Fails if the body or its model is not acceptable, or all attempts
/// have failed.
pub(in crate::server) async fn relay(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
) -> Result<Response<Body>, Failure> {
    let head = admitted.head;
    headers::check_relayed(&head.headers)?;
    let Some((_, path)) = find(head.uri.path(), &admitted.app.config.relayed) else {
        return Err(Fault::UnknownUrl.into());
    };
    let mut held = hold_body(admitted, reply, body).await?;
    let RequestedModel { model, must_name } = find_model(admitted, reply, &mut held).await?;
    let HeldBody {
        front,
        scan,
        rest,
        rest_length,
    } = held;
    reply.label(&model);
    let progress = rest.as_ref().map(ClientBody::progress);
    let upload = rest.map(|rest| Upload::new(rest, rest_length));
    let sender = EngineSender::new(admitted, reply, body.share());
    let mut selection = UpstreamSelection::by_model(admitted, reply, &model);
    let path = format!(
        "{path}{}",
        query(head.uri.query(), admitted.identity.family)
    );
    let (accept, content_type) = (accept(&head.headers), content_type(&head.headers, &scan));
    let outgoing = |to: &AttemptTarget<'_>| {
        let route = sender.route(to, &model);
        let name = route.model_alias.as_deref().unwrap_or(&model);
        let is_named = !must_name || scan.named().is_some_and(|named| named.model == name);
        let renamed = if is_named {
            None
        } else {
            scan.renamed(&front, name)
        };
        let body = renamed.unwrap_or_else(|| front.clone());
        let outgoing = sender.outgoing(to, "POST", path.clone(), body);
        let (accept, content_type) = (accept.clone(), content_type.clone());
        let upload = upload
            .as_ref()
            .map(|rest| rest.recorded_by(outgoing.recorder.as_ref()));
        Ok(Outgoing {
            accept,
            content_type,
            upload,
            ..outgoing
        })
    };
    let result = pass_on(
        admitted,
        reply,
        &sender,
        &mut selection,
        progress.as_deref(),
        outgoing,
    )
    .await;
    if let Some(progress) = progress {
        body.unread = !progress.has_ended();
    }
    result
}

/// Reads as much of the body as is needed to choose an upstream, or all of it if it is short. Fails if it is
/// too large.
async fn hold_body(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
) -> Result<HeldBody, Failure> {
    let (app, identity) = (admitted.app, &admitted.identity);
    let label = admitted
        .head
        .headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    let scan = Scan::of(&String::from_utf8_lossy(label));
    let Some(incoming) = body.incoming.take() else {
        held_all(reply, body, &scan, b"");
        return Ok(HeldBody {
            front: Bytes::new(),
            scan,
            rest: None,
            rest_length: None,
        });
    };
    let limits = &app.config.limits;
    let declared = incoming.size_hint().exact();
    let length = declared.and_then(|length| usize::try_from(length).ok());
    if length.is_some_and(|length| length > limits.relay_body_bytes) {
        return Err(Fault::TooLarge.into());
    }
    let is_short = length.is_some_and(|length| length <= HELD_WHOLE_BYTES);
    let has_deployment = identity.family.deployment(admitted.head).is_some();
    let decides = identity.is_restricted() || app.pool.needs_model() || has_deployment;
    let most = if decides {
        limits.relay_buffer_bytes.max(MODEL_SEARCH_BYTES)
    } else {
        MODEL_SEARCH_BYTES
    };
    let recording = reply.recording.clone();
    let mut incoming = ClientBody::new(incoming, scan, app, &body.active_request, recording);
    reply.note(|record| record.uploaded = Some(incoming.progress()));
    let mut share = app.admit.budget.share(0)?;
    let mut front = BytesMut::new();
    loop {
        let is_enough = !is_short && (incoming.scan.is_settled() || front.len() >= most);
        if is_enough && (declared.is_some() || front.len() >= HELD_WHOLE_BYTES) {
            break;
        }
        let piece = tokio::select! {
            piece = std::future::poll_fn(|cx| match incoming.poll_next(cx) {
                // Bytes that are already there are held too: they may be the last.
                Poll::Pending if is_enough => Poll::Ready(None),
                piece => piece.map(Some),
            }) => piece,
            () = app.cut() => return Err(Fault::Draining.into()),
        };
        let Some(Some(piece)) = piece else { break };
        let piece = piece?;
        share.reach(front.len() + piece.len())?;
        front.extend_from_slice(&piece);
    }
    let front = body.hold(front.freeze(), share);
    let scan = incoming.scan.clone();
    if incoming.progress().has_ended() {
        held_all(reply, body, &scan, &front);
        return Ok(HeldBody {
            front,
            scan,
            rest: None,
            rest_length: None,
        });
    }
    let length = u64::try_from(front.len()).unwrap_or(u64::MAX);
    let rest_length = declared.map(|declared| declared.saturating_sub(length));
    Ok(HeldBody {
        front,
        scan,
        rest: Some(incoming),
        rest_length,
    })
}

/// Notes that the whole body has been read.
fn held_all(reply: &mut ClientReply, body: &mut RequestBody, scan: &Scan, bytes: &[u8]) {
    body.finish();
    // Other types of body are not text.
    reply.note(|record| record.note_body(if scan.is_json() { bytes } else { b"" }));
}

/// Returns the model that a request is for, by the client's name for it; empty if any will do. Fails if the
/// caller may not use it, or must name one and has not.
async fn find_model(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    held: &mut HeldBody,
) -> Result<RequestedModel, Failure> {
    let identity = &admitted.identity;
    let named = match (identity.family.deployment(admitted.head), held.scan.named()) {
        (Some(deployment), _) => RequestedModel {
            model: deployment,
            must_name: true,
        },
        (None, Some(in_body)) if !in_body.model.is_empty() => RequestedModel {
            model: in_body.model.clone(),
            must_name: true,
        },
        _ => default_model_for(admitted, reply, held.scan.is_settled()).await?,
    };
    if named.model.is_empty() {
        return Ok(named);
    }
    naming::check(admitted, reply, &named.model)?;
    if held.scan.named().is_none() && named.must_name {
        if identity.is_restricted() && !held.scan.can_name() {
            let message = "This key may use some models only, and no model can be named in a body of this form.";
            return Err(Failure::from(Fault::MissingParameter)
                .with_message(message)
                .with_param("model"));
        }
        if let Some(rest) = &mut held.rest {
            rest.scan.forbid();
        }
    }
    Ok(named)
}

/// Returns the model of a request that names none. `is_settled` is true if the rest of the body cannot name
/// one either. Fails if several could be meant.
async fn default_model_for(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    is_settled: bool,
) -> Result<RequestedModel, Failure> {
    let (pool, is_restricted) = (&admitted.app.pool, admitted.identity.is_restricted());
    if let Some([only]) = admitted
        .identity
        .caller
        .as_ref()
        .map(|caller| caller.models.as_slice())
    {
        return Ok(RequestedModel {
            model: only.clone(),
            must_name: true,
        });
    }
    if !is_restricted && !pool.needs_model() {
        return Ok(RequestedModel::default());
    }
    if !is_settled && (is_restricted || !pool.is_single()) {
        let message = "Missing required parameter: 'model'. Put it before the file and other long parts of the body.";
        return Err(Failure::from(Fault::MissingParameter)
            .with_message(message)
            .with_param("model"));
    }
    match naming::default_model(admitted, reply).await {
        Ok(Some(model)) => Ok(RequestedModel {
            model: model.to_string(),
            must_name: is_restricted,
        }),
        Ok(None) => Ok(RequestedModel::default()),
        // Equivalent engines choose by themselves.
        Err(_) if !is_restricted && pool.upstream_to_read_for("", admitted.ids.tie_breaker()).1 => {
            Ok(RequestedModel::default())
        }
        Err(failure) => Err(failure),
    }
}

/// Sends the request to one upstream after another, as retries allow, and passes on the first answer that
/// succeeds. Fails with the last error.
pub(in crate::server) async fn pass_on(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    sender: &EngineSender,
    selection: &mut UpstreamSelection,
    progress: Option<&UploadProgress>,
    mut outgoing: impl FnMut(&AttemptTarget<'_>) -> Result<Outgoing, Failure>,
) -> Result<Response<Body>, Failure> {
    let mut underway = ActiveExchange::begin(choose(admitted.app, reply, selection)?);
    let mut wait = None;
    loop {
        let upstream = Arc::clone(underway.chosen.upstream());
        let model = Arc::clone(selection.served());
        let first = AttemptTarget::first(&upstream, &model);
        let outgoing = outgoing(&AttemptTarget {
            attempt: selection.attempts(),
            ..first
        })?;
        reply.note(|record| record.sent_to(&upstream, selection.attempts()));
        underway.is_over = false;
        let refused = match open(admitted.app, sender, &upstream, &outgoing, progress).await {
            Ok(opened) => {
                let thread = admitted.worker.thread;
                let record = reply.take_record()?;
                return Ok(response_for(
                    opened,
                    underway,
                    record,
                    thread,
                    outgoing.upload,
                ));
            }
            Err(refused) => refused,
        };
        let FailedAttempt {
            error,
            status,
            passed,
        } = refused;
        report_outcome(&mut underway.chosen, Some(&error.public), status, &passed);
        reply.passed = passed;
        // A relayed body is not kept, so the error text cannot be compared with it.
        reply.note(|record| match outgoing.upload {
            None => record.ended(&upstream, Some(&error), &outgoing.body),
            Some(_) => record.attempted(&upstream, Some(&error.public)),
        });
        underway.is_over = !matches!(error.public.fault, Fault::Timeout | Fault::Draining);
        drop(underway);
        let has_begun = outgoing.upload.as_ref().is_some_and(Upload::has_begun);
        let error = if has_begun {
            error.with_class(RetryClass::Never)
        } else {
            error
        };
        underway = ActiveExchange::begin(
            next_upstream(admitted.app, reply, selection, error, &mut wait).await?,
        );
    }
}

/// Sends a request and waits until its status is decided: by the first byte of the body, or by
/// `commit_after_seconds` after the head. Fails on an error, on silence of the engine and on shutdown.
async fn open(
    app: &App,
    sender: &EngineSender,
    upstream: &Arc<Upstream>,
    outgoing: &Outgoing,
    progress: Option<&UploadProgress>,
) -> Result<StartedAnswer, FailedAttempt> {
    let patience = *app.config.timeouts.first_token;
    tokio::select! {
        opened = first_bytes(app, sender, upstream, outgoing) => opened,
        () = silence(patience, progress) => Err(Error::from(Fault::Timeout).with_class(RetryClass::MaybeProcessed).into()),
        () = app.cut() => Err(Error::from(Fault::Draining).into()),
    }
}

/// Sends a request and reads the first bytes of the answer's body, or waits for `commit_after_seconds` after its head.
async fn first_bytes(
    app: &App,
    sender: &EngineSender,
    upstream: &Arc<Upstream>,
    outgoing: &Outgoing,
) -> Result<StartedAnswer, FailedAttempt> {
    let (mut answer, passed) = sender.send(upstream, outgoing, true).await?;
    let (length, mut first) = (answer.length(), BytesMut::new());
    let reading = std::future::poll_fn(|cx| {
        loop {
            let read = answer.poll_read(cx, &mut |bytes| first.extend_from_slice(bytes));
            match read {
                Poll::Ready(Ok(Read::More)) if first.is_empty() => {}
                read => return read,
            }
        }
    });
    let longest = app.pool.usual_options(None).commit_after_seconds;
    let read = tokio::time::timeout(Duration::from_secs(longest), reading)
        .await
        .unwrap_or(Ok(Read::More));
    if read.is_err() && first.is_empty() {
        return Err(FailedAttempt {
            passed,
            ..Error::from(Fault::Reset).into()
        });
    }
    Ok(StartedAnswer {
        answer: Box::new(answer),
        length,
        first,
        read,
        passed,
    })
}

/// Builds the client's response from a started answer.
fn response_for(
    opened: StartedAnswer,
    underway: ActiveExchange,
    mut record: Record,
    thread: usize,
    upload: Option<Upload>,
) -> Response<Body> {
    let status = opened.answer.head.status;
    record.answered(status);
    record.first_token = (!opened.first.is_empty()).then(|| record.started.elapsed());
    let response = record
        .success(&opened.passed)
        .relayed(status, &opened.answer.head.headers);
    let body = PassThrough::new(opened, underway, (record, thread), upload);
    response.map(|()| Body::arriving(body))
}

/// Returns when the engine has neither sent a byte nor taken one of the body for `patience`.
async fn silence(patience: Duration, progress: Option<&UploadProgress>) {
    let mut until = Instant::now() + patience;
    loop {
        sleep_until(until).await;
        match progress.map(|progress| progress.moved() + patience) {
            Some(later) if later > until => until = later,
            _ => return,
        }
    }
}

/// Returns the query for the engine, with its question mark; `api-version` is left out on Azure's routes.
fn query(query: Option<&str>, family: RouteFamily) -> String {
    let mut out = String::new();
    for pair in query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        if family != RouteFamily::Plain && pair.split('=').next() == Some("api-version") {
            continue;
        }
        out.push(if out.is_empty() { '?' } else { '&' });
        for byte in pair.bytes() {
            match byte {
                b'!'..=b'~' if byte != b'#' => out.push(char::from(byte)),
                _ => _ = write!(out, "%{byte:02X}"),
            }
        }
    }
    out
}

/// Returns the client's `accept` header, or `*/*` if there is none or more than one.
pub(in crate::server) fn accept(headers: &HeaderMap) -> HeaderValue {
    single_value(headers, &ACCEPT)
        .cloned()
        .unwrap_or(HeaderValue::from_static("*/*"))
}

/// Returns the content type for the engine. JSON may come without one, or with the one that `curl -d` sends.
fn content_type(headers: &HeaderMap, scan: &Scan) -> Option<HeaderValue> {
    let given = headers.get(CONTENT_TYPE);
    let is_form = given.is_some_and(|label| {
        label
            .as_bytes()
            .starts_with(b"application/x-www-form-urlencoded")
    });
    if scan.is_json() && (given.is_none() || is_form) {
        Some(Outgoing::JSON)
    } else {
        given.cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_pass_as_they_are() {
        for (given, family, expected) in [
            (None, RouteFamily::Plain, ""),
            (Some(""), RouteFamily::Plain, ""),
            (Some("a=b&c=%20d"), RouteFamily::Plain, "?a=b&c=%20d"),
            (
                Some("a=b&&api-version=1"),
                RouteFamily::Plain,
                "?a=b&api-version=1",
            ),
            (
                Some("api-version=2024-10-21&a=b"),
                RouteFamily::Deployment,
                "?a=b",
            ),
            (Some("api-version=2024-10-21"), RouteFamily::Dated, ""),
            (Some("a=é"), RouteFamily::Plain, "?a=%C3%A9"),
        ] {
            assert_eq!(query(given, family), expected, "{given:?}");
        }
    }
}
