//! Token count of an input, determined by the engine (wire-format 4.1).

use super::history::{load_history, response_selection};
use super::{ParsedRequest, parse_request};
use crate::json::write_number;
use crate::plan::Route;
use crate::request::responses::ResponsesMode;
use crate::server::admit::body::Body;
use crate::server::admitted::Admitted;
use crate::server::headers::with_dropped;
use crate::server::relay::attempt::{AttemptTarget, request_object};
use crate::server::reply::ClientReply;
use crate::server::request_body::RequestBody;
use crate::server::tokenize;
use crate::wire::fault::{Failure, Fault};
use bytes::{BufMut, BytesMut};
use http::Response;

/// Returns the number of tokens that the request would send to the engine. Fails if the engine has no route
/// that counts the tokens of a chat.
pub(in crate::server) async fn input_tokens(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
) -> Result<Response<Body>, Failure> {
    let app = admitted.app;
    let limits = &app.config.limits;
    let bytes = body.read(limits.max_body_bytes, admitted, reply).await?;
    // Engines count only the tokens of a chat, so the request is read for the chat mode.
    let mut parsed = parse_request(admitted, reply, body, bytes, Some(ResponsesMode::Chat)).await?;
    let history = load_history(admitted, &mut parsed).await?;
    parsed.request.add_earlier_tools(history.history())?;
    let ParsedRequest {
        request,
        read_for,
        tenant,
        sender,
        ..
    } = parsed;
    reply.label(&request.model);
    let mut selection = response_selection(admitted, reply, &request, &history, read_for);
    let outgoing = |to: &AttemptTarget<'_>| {
        let route = Route {
            responses: ResponsesMode::Chat,
            ..sender.route(to, &request.model)
        };
        let chat = history.body(&request, &tenant, &app.store_handle.keys(), &route, 0)?;
        let (path, body) = tokenize::request(route.identity.engine, chat.body);
        Ok(sender.outgoing(to, "POST", path, body))
    };
    let answer = request_object(
        reply,
        &sender,
        &mut selection,
        limits.max_answer_bytes,
        outgoing,
    )
    .await;
    let answer = answer.map_err(map_failure)?;
    let count = tokenize::counted(&answer)?.ok_or_else(cannot_count)?;
    let mut out = BytesMut::from(&b"{\"object\":\"response.input_tokens\",\"input_tokens\":"[..]);
    write_number(count, &mut out);
    out.put_u8(b'}');
    Ok(with_dropped(
        reply.object(out.freeze()),
        &request.dropped,
        ",",
    ))
}

/// Maps the failure of an engine that has no such route to [`Fault::NotImplemented`].
fn map_failure(failure: Failure) -> Failure {
    if tokenize::is_missing(&failure) {
        cannot_count()
    } else {
        failure
    }
}

fn cannot_count() -> Failure {
    Failure::from(Fault::NotImplemented)
        .with_message("The upstream engine cannot count the tokens of a conversation.")
}
