//! Handler of `GET /v1/usage`: what the caller's key has used of its quotas.

use crate::server::admit::body::Body;
use crate::server::context::RequestContext;
use crate::wire::fault::{Failure, Fault};
use http::Response;
use std::sync::Arc;

/// Answers with the use of the caller's key.
pub(in crate::server) async fn answer(context: &mut RequestContext) -> Result<Response<Body>, Failure> {
    context.active_request.begin_answer();
    let app = Arc::clone(&context.app);
    let report = app.quotas.used_by(context.caller.as_deref(), &app).await;
    let text = serde_json::to_vec(&report).map_err(|_| Failure::from(Fault::Proxy))?;
    Ok(context.object_response(text.into()))
}
