//! Operations on stored responses: read, list, replay, cancel and delete (wire-format 4.1, 4.11).

use super::background::{self, Following};
use super::{tool_outputs, unavailable};
use crate::json::{separated, write_string};
use crate::request::invalid;
use crate::request::responses::Include;
use crate::server::App;
use crate::server::admit::body::Body;
use crate::server::admitted::Admitted;
use crate::server::record;
use crate::server::reply::ClientReply;
use crate::server::storage::objects::{decoded, not_found};
use crate::store::{Key, Page, PageRequest, Store, StoreError, StoredResponse};
use crate::wire::fault::{Failure, Fault};
use bytes::BytesMut;
use http::{Method, Response, request};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time within which the process that generates a response must end it after a cancel request (faults C43). A
/// running process checks once a second.
const CANCEL_REACTION: Duration = Duration::from_secs(2);
/// A write that fails after this time or more may have waited for a lock, and is tried again.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// Time for which a blocked cancel request is retried.
const CANCEL_RETRY: Duration = Duration::from_secs(5);
/// Time that a cancelling client waits for the response to end.
const CANCEL_WAIT: Duration = Duration::from_secs(10);
/// Longest pause between two checks whether another process has ended the response.
const POLL_MAX: Duration = Duration::from_millis(100);

/// Kind of request for a stored response, according to its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum StoredAction {
    /// Read or delete the response itself.
    Itself,
    /// List the items of its input.
    InputItems,
    /// Cancel a background response.
    Cancel,
}

/// Serves a request for a stored response. Fails if the response does not exist, the query is invalid, the
/// operation applies only to background responses, or the store fails.
pub(in crate::server) async fn serve_stored(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    what: StoredAction,
) -> Result<Response<Body>, Failure> {
    let (app, head) = (admitted.app, admitted.head);
    let (store, key) = stored_key(admitted)?;
    let id = Arc::clone(&key.id);
    let told = |error: StoreError| match error {
        StoreError::NotFound => not_found("Response", &id),
        StoreError::NoCursor => invalid("after", "the response has no such item"),
        other => unavailable(admitted, &other),
    };
    let mut out = BytesMut::new();
    let now = app.store_handle.now();
    match what {
        StoredAction::Itself if head.method == Method::DELETE => {
            store.delete(key.clone(), now).await.map_err(told)?;
            tool_outputs::forget(&store, &key, now).await;
            out.extend_from_slice(b"{\"id\":");
            write_string(&id, &mut out);
            out.extend_from_slice(b",\"object\":\"response\",\"deleted\":true}");
        }
        StoredAction::Itself => {
            let record = store.get(key.clone(), now).await.map_err(told)?;
            let query = Query::of(head);
            query.include()?;
            let after = query.number("starting_after")?;
            if query.flag("stream")? {
                if !record.background {
                    let what =
                        "Only responses that were made in the background can be streamed again.";
                    return Err(Failure::from(Fault::InvalidValue)
                        .with_message(what)
                        .with_param("stream"));
                }
                let dialect = admitted.dialect()?;
                let keepalive = app
                    .pool
                    .usual_options(admitted.identity.key())
                    .keepalive_seconds;
                let (head, record) = replay(reply)?;
                let following = Following::Reader(Box::new(record));
                let told = background::follow(
                    Arc::clone(app),
                    store,
                    key,
                    after,
                    dialect,
                    keepalive,
                    following,
                );
                return Ok(head.map(|()| Body::stream(told)));
            }
            out.extend_from_slice(record.response.as_bytes());
        }
        StoredAction::InputItems => {
            let range = Query::of(head).page()?;
            let page = store.input_items(key, range, now).await.map_err(told)?;
            write_page(&page, &mut out);
        }
        StoredAction::Cancel => {
            let record = store.get(key.clone(), now).await.map_err(told)?;
            if !record.background {
                let what = "Cannot cancel a synchronous response.";
                return Err(Failure::from(Fault::InvalidRequest).with_message(what));
            }
            let ended = cancel(app, &store, &key).await.map_err(told)?;
            out.extend_from_slice(ended.response.as_bytes());
        }
    }
    Ok(reply.object(out.freeze()))
}

/// Returns the store and the key of the response in the path. Fails if there is no store.
pub(super) fn stored_key(admitted: &Admitted<'_>) -> Result<(Arc<Store>, Key), Failure> {
    let path = admitted.head.uri.path();
    let id = path
        .split_once("/responses/")
        .map_or("", |(_, rest)| rest.split('/').next().unwrap_or(rest));
    let id = decoded(id);
    let store = admitted
        .app
        .store_handle
        .opened()?
        .ok_or_else(|| not_found("Response", &id))?;
    Ok((
        store,
        Key {
            tenant: admitted.tenant(),
            id: id.into(),
        },
    ))
}

/// Cancels a background response, also one of another process, and returns its final record, or the current one
/// after [`CANCEL_WAIT`]. Fails if the store fails.
async fn cancel(app: &Arc<App>, store: &Store, key: &Key) -> Result<StoredResponse, StoreError> {
    let start = Instant::now();
    let found = loop {
        let tried = Instant::now();
        match store
            .request_cancel(key.clone(), app.store_handle.now())
            .await
        {
            // A stalled process may hold the write lock for a while. An error that comes at once has another
            // cause.
            Err(StoreError::Slow | StoreError::Unavailable(_))
                if tried.elapsed() >= LOCK_WAIT && start.elapsed() < CANCEL_RETRY => {}
            found => break found?,
        }
    };
    if !found.is_terminal() {
        app.responses.background_jobs.cancel(key);
    }
    let mut pause = Duration::from_millis(5);
    // Term of the owner at the last check, and the time since which it is known to be the same.
    let (mut term, mut since) = (None, Instant::now());
    loop {
        let record = store.get(key.clone(), app.store_handle.now()).await?;
        if record.state.is_terminal() || start.elapsed() >= CANCEL_WAIT {
            return Ok(record);
        }
        if term
            .replace(record.term)
            .is_some_and(|before| before != record.term)
        {
            since = Instant::now();
        } else if since.elapsed() >= CANCEL_REACTION {
            // The owning process is dead or stalled.
            match background::take_over(app, store, &record).await {
                Err(error @ (StoreError::Slow | StoreError::Unavailable(_))) => {
                    tracing::warn!(response = &*key.id, %error, "a response could not be taken over");
                }
                tried => tried?,
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_MAX);
    }
}

/// Returns the head of a stream of stored events, and the record that ends with the stream.
fn replay(reply: &mut ClientReply) -> Result<(Response<()>, record::Record), Failure> {
    let mut record = reply.take_record()?;
    record.answered_from_store();
    Ok((record.success(&reply.passed).stream(), record))
}

/// Appends a list object with one page of items.
pub(super) fn write_page(page: &Page, out: &mut BytesMut) {
    out.extend_from_slice(b"{\"object\":\"list\",\"data\":[");
    separated(&page.items, out, |item, out| {
        out.extend_from_slice(item.body.as_bytes())
    });
    for (key, item) in [
        ("],\"first_id\":", page.items.first()),
        (",\"last_id\":", page.items.last()),
    ] {
        out.extend_from_slice(key.as_bytes());
        match item {
            Some(item) => write_string(&item.id, out),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.extend_from_slice(if page.more {
        b",\"has_more\":true}"
    } else {
        b",\"has_more\":false}"
    });
}

/// Query string of a request, parsed on demand for each parameter.
pub(super) struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    pub(super) fn of(head: &'a request::Parts) -> Self {
        Self(head.uri.query().unwrap_or_default())
    }

    fn get(&self, key: &str) -> Option<String> {
        let pairs = form_urlencoded::parse(self.0.as_bytes()).filter(|(name, _)| name == key);
        pairs.last().map(|(_, value)| value.into_owned())
    }

    fn flag(&self, key: &'static str) -> Result<bool, Failure> {
        match self.get(key).as_deref() {
            None | Some("false" | "") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(invalid(key, "it must be true or false")),
        }
    }

    fn number(&self, key: &'static str) -> Result<Option<u64>, Failure> {
        let number = self.get(key).map(|text| {
            text.parse()
                .map_err(|_| invalid(key, "it must be a whole number, 0 or more"))
        });
        number.transpose()
    }

    /// Fails if `include` names a value that the API does not define. The values have no other effect: items are
    /// always shown whole.
    pub(super) fn include(&self) -> Result<(), Failure> {
        let pairs = form_urlencoded::parse(self.0.as_bytes());
        let words = pairs.filter(|(key, _)| matches!(key.as_ref(), "include" | "include[]"));
        match words
            .enumerate()
            .find(|(_, (_, word))| !Include::default().as_chat_request(word))
        {
            Some((at, _)) => Err(invalid(
                format!("include[{at}]"),
                "the API defines no such value",
            )),
            None => Ok(()),
        }
    }

    pub(super) fn page(&self) -> Result<PageRequest, Failure> {
        let limit = self
            .get("limit")
            .map(|limit| limit.parse().ok().filter(|limit| (1..=100).contains(limit)));
        Ok(PageRequest {
            after: self
                .get("after")
                .filter(|after| !after.is_empty())
                .map(Into::into),
            limit: limit
                .unwrap_or(Some(20))
                .ok_or_else(|| invalid("limit", "it must be from 1 to 100"))?,
            descending: match self.get("order").as_deref() {
                None | Some("desc") => true,
                Some("asc") => false,
                Some(_) => return Err(invalid("order", "it must be asc or desc")),
            },
        })
    }
}
