//! Token count of an input, determined by the engine (wire-format 4.1).

use super::ParsedRequest;
use crate::json::write_number;
use crate::plan::Route;
use crate::request::responses::ResponsesMode;
use crate::server::admit::body::Body;
use crate::server::admit::headers::with_dropped;
use crate::server::context::RequestContext;
use crate::server::relay::attempt::AttemptTarget;
use crate::server::tokenize;
use crate::wire::fault::{Failure, Fault};
use axum::body::Body as Incoming;
use bytes::{BufMut, BytesMut};
use http::{Response, request};
use std::sync::Arc;

impl RequestContext {
    /// Returns the number of tokens that the request would send to the engine. Fails if the engine has no route
    /// that counts the tokens of a chat.
    pub(in crate::server) async fn input_tokens(
        &mut self,
        head: &request::Parts,
        body: Option<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        let limits = &self.app.config.limits;
        let (limit, answer_limit) = (limits.max_body_bytes, limits.max_answer_bytes);
        let body = self.body(body, limit).await?;
        // Engines count only the tokens of a chat, so the request is read for the chat mode.
        let mut parsed = self.parse_request(head, body, Some(ResponsesMode::Chat)).await?;
        let history = self.history(&mut parsed).await?;
        parsed.asked.add_earlier_tools(history.history())?;
        let ParsedRequest { asked, read_for, tenant, sender, .. } = parsed;
        let app = Arc::clone(&self.app);
        if let Some(record) = &mut self.record {
            record.model = app.pool.label(&asked.model);
        }
        let mut selection = self.response_selection(&asked, &history, &head.headers, read_for);
        let request = |to: &AttemptTarget<'_>| {
            let route = Route { responses: ResponsesMode::Chat, ..sender.route(to, &asked.model) };
            let chat = history.body(&asked, &tenant, &app.store_handle.keys(), &route, 0)?;
            let (path, body) = tokenize::request(route.identity.engine, chat.body);
            Ok(sender.outgoing(to, "POST", path, body))
        };
        let answer =
            self.request_object(&sender, &mut selection, answer_limit, request).await.map_err(map_failure)?;
        let count = tokenize::counted(&answer)?.ok_or_else(cannot_count)?;
        let mut out = BytesMut::from(&b"{\"object\":\"response.input_tokens\",\"input_tokens\":"[..]);
        write_number(count, &mut out);
        out.put_u8(b'}');
        Ok(with_dropped(self.object_response(out.freeze()), &asked.dropped, ","))
    }
}

/// Maps the failure of an engine that has no such route to [`Fault::NotImplemented`].
fn map_failure(failure: Failure) -> Failure {
    if tokenize::is_missing(&failure) { cannot_count() } else { failure }
}

fn cannot_count() -> Failure {
    Failure::from(Fault::NotImplemented)
        .with_message("The upstream engine cannot count the tokens of a conversation.")
}
