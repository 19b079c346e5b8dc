//! Handler of the list of models, of one of them (`/models/{id}`), and of the list in the format of the Codex CLI.
//!
//! Takes: the lists of the available upstreams, and the configured aliases. Gives: the models that the caller's key
//! may use.

use crate::request::invalid;
use crate::server::admit::auth::{ClientIdentity, no_such_model};
use crate::server::admit::body::Body;
use crate::server::admitted::Admitted;
use crate::server::headers;
use crate::server::models::lists;
use crate::server::protocol::Protocol;
use crate::server::reply::ClientReply;
use crate::upstream::models::{self, ListedModel, ModelPage};
use crate::wire::fault::Failure;
use bytes::BytesMut;
use http::{Response, request};
use percent_encoding::percent_decode_str;

/// Answers a request for the list of models, or for one of them. Fails if no upstream answers, or if there is no
/// such model.
pub(in crate::server) async fn answer(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
) -> Result<Response<Body>, Failure> {
    let (head, identity) = (admitted.head, &admitted.identity);
    let listed = lists::all_models(admitted, reply).await?;
    let mut out = BytesMut::new();
    let id = head.uri.path().split_once("/models/").map(|(_, id)| id);
    if reply
        .record()
        .is_some_and(|record| record.protocol == Protocol::Anthropic)
    {
        match id {
            None => models::write_page(&usable(identity, listed), &page(head)?, &mut out),
            Some(id) => usable_model(admitted, &listed, id)?.write_info(&mut out),
        }
        return Ok(reply.object(out.freeze()));
    }
    match id {
        // The Codex CLI sends its version, and reads a list in its own format.
        None if headers::query(head, "client_version").is_some() => {
            models::write_catalogue(
                &usable(identity, listed),
                &admitted.app.config.file.codex.instructions,
                &mut out,
            );
        }
        None => models::write(&usable(identity, listed), &mut out),
        Some(id) => usable_model(admitted, &listed, id)?.write(&mut out),
    }
    Ok(reply.object(out.freeze()))
}

/// Returns the page that a client of Anthropic's API requests. Fails on a limit out of range.
fn page(head: &request::Parts) -> Result<ModelPage<'_>, Failure> {
    const USUAL: usize = 20;
    const MOST: usize = 1000;
    let limit = match headers::query(head, "limit") {
        None => USUAL,
        Some(text) => text
            .parse()
            .ok()
            .filter(|limit| (1..=MOST).contains(limit))
            .ok_or_else(|| invalid("limit", &format!("it must be an integer from 1 to {MOST}")))?,
    };
    let id = |name| headers::query(head, name).map(|id| percent_decode_str(id).decode_utf8_lossy());
    Ok(ModelPage {
        limit,
        after: id("after_id"),
        before: id("before_id"),
    })
}

/// Returns the models that the caller may use.
fn usable(identity: &ClientIdentity, mut listed: Vec<ListedModel>) -> Vec<ListedModel> {
    listed.retain(|model| identity.may_use(&model.id));
    listed
}

/// Returns the model with the name in a path, which may be percent-encoded; slashes in it are common either way.
/// A name that only a pattern covers is not listed, but requests may use it. Fails if there is none, or the caller
/// may not use it.
fn usable_model(
    admitted: &Admitted<'_>,
    listed: &[ListedModel],
    id: &str,
) -> Result<ListedModel, Failure> {
    let name = percent_decode_str(id).decode_utf8_lossy();
    let listed_as = |name: &str| listed.iter().find(|model| model.id == name).cloned();
    let covered = || {
        let (_, configured) = admitted.app.pool.model(&name)?;
        Some(ListedModel {
            id: name.as_ref().to_owned(),
            ..listed_as(&configured.name)?
        })
    };
    let found = listed_as(&name)
        .or_else(covered)
        .filter(|_| admitted.identity.may_use(&name));
    found.ok_or_else(|| no_such_model(&name))
}
