//! Handler of `GET /v1/usage`: the use of the caller's quotas.

use crate::server::admit::body::Body;
use crate::server::admitted::Admitted;
use crate::server::reply::ClientReply;
use crate::wire::fault::{Failure, Fault};
use http::Response;

/// Answers with the use of the caller's key.
pub(in crate::server) async fn answer(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
) -> Result<Response<Body>, Failure> {
    let app = admitted.app;
    let report = app
        .admit
        .quotas
        .used_by(admitted.identity.caller.as_deref(), app)
        .await;
    let text = serde_json::to_vec(&report).map_err(|_| Failure::from(Fault::Proxy))?;
    Ok(reply.object(text.into()))
}
