//! Responses: made through Chat Completions, stored, and what is asked of stored ones (wire-format 4.1, 4.11).

use super::body::Body;
use super::keep::{Keeper, milliseconds};
use super::relay::{Order, Relay};
use super::routes::{Handling, decoded};
use crate::config::Credentials;
use crate::json::write_string;
use crate::plan::{self, Route};
use crate::request::responses::{Asked, Material};
use crate::seal::{Keys, Kind, NONCE};
use crate::store::{Ask, Error, Item, Key, Page};
use crate::wire::Rewriter;
use crate::wire::encode::{Response as Encoder, Seal};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::{Options, ResponsesDialect};
use axum::body::Body as Incoming;
use bytes::{BufMut, Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, request};
use std::sync::Arc;
use std::time::Instant;

const DIALECT: &str = "x-samewire-dialect";
const DROPPED: HeaderName = HeaderName::from_static("x-samewire-dropped");
/// Bytes of the conversation that a response continues.
const PAST: u64 = 32 << 20;

/// What is asked of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// The response itself, or its removal.
    Itself,
    /// The items of its input.
    InputItems,
    /// That it be given up.
    Cancel,
}

/// What went before a request.
#[derive(Default)]
struct Past {
    history: Vec<Item>,
    resolved: Vec<(usize, Item)>,
}

impl Past {
    /// The engine's request.
    fn chat(&self, asked: &Asked, tenant: &str, keys: &Keys, route: &Route) -> Result<Bytes, Failure> {
        let open = |sealed: &str| {
            let kind = if sealed.starts_with("swc1.") { Kind::Compaction } else { Kind::Reasoning };
            keys.open(kind, tenant, sealed)
        };
        let history: Vec<_> = self.history.iter().map(|item| &*item.body).collect();
        let resolved: Vec<_> = self.resolved.iter().map(|(at, item)| (*at, &*item.body)).collect();
        let material = Material {
            history: &history,
            resolved: &resolved,
            unseal: &open,
            model_alias: route.model_alias.as_deref(),
            forget: 0,
        };
        asked.chat(&material, &route.engine.takes(), &route.options)
    }
}

impl Handling {
    /// Makes a response.
    pub(super) async fn respond(
        &mut self,
        head: &request::Parts,
        body: Option<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        let app = Arc::clone(&self.worker.app);
        let body = self.body(body, app.config.limits.max_body_bytes).await?;
        let start = Instant::now();
        let mut route = app.upstream.route();
        if let Some(dialect) = dialect(&head.headers)? {
            route.options = Arc::new(Options { responses_dialect: dialect, ..(*route.options).clone() });
        }
        let mut asked = Asked::read_for(&body, &route.options, self.door.deployment(head))?;
        if asked.background {
            let what = "Responses in the background are not supported yet.";
            return Err(Failure::from(Fault::UnsupportedParameter)
                .with_message(what)
                .with_param("background"));
        }
        let tenant = self.door.tenant(&head.headers);
        let past = self.past(&asked, &tenant).await?;
        let keeper = self.keeper(&mut asked, &tenant, &body)?;
        let chat = past.chat(&asked, &tenant, &app.shelf.keys, &route)?;
        let stamp = self.chance.stamp();
        let (shape, mut reply) = plan::response(&asked, &route);
        reply.seal = asked.include.encrypted_reasoning.then(|| self.seal(Arc::clone(&tenant), stamp.now));
        let encoder = Box::new(Encoder::new(reply, &stamp));
        let accept = if asked.stream { "text/event-stream" } else { "application/json" };
        let request = self.outgoing("POST", "/v1/chat/completions", accept, &head.headers, chat);
        let Some(mut record) = self.record.take() else { return Err(Fault::Proxy.into()) };
        record.model = app.upstream.label(&asked.model);
        if !asked.dropped.is_empty() || !asked.ignored.is_empty() {
            let (dropped, ignored) = (asked.dropped.join(","), asked.ignored.join(","));
            tracing::info!(
                request_id = record.request_id,
                dropped,
                ignored,
                "left out of the engine's request"
            );
        }
        let order = Order {
            request,
            client: Arc::clone(&self.worker.client),
            rewriter: Rewriter::with_encoder(shape, stamp, encoder),
            stream: asked.stream,
            own_key: matches!(app.upstream.config.auth, Credentials::Own(_)),
            record,
            keeper,
        };
        let dropped = HeaderValue::from_str(&asked.dropped.join(",")).ok().filter(|all| !all.is_empty());
        drop((asked, body, past));
        let mut relay = Relay::new(order);
        relay.planned(start.elapsed());
        let mut response = relay.answer().await;
        if let Some(dropped) = dropped {
            response.headers_mut().insert(DROPPED, dropped);
        }
        Ok(response)
    }

    /// The conversation that a request goes on with, and the items it refers to.
    async fn past(&self, asked: &Asked, tenant: &Arc<str>) -> Result<Past, Failure> {
        let mut past = Past::default();
        let references: Vec<_> = asked.references().map(|(at, id)| (at, Arc::<str>::from(id))).collect();
        if asked.previous_response_id.is_none() && references.is_empty() {
            return Ok(past);
        }
        let shelf = &self.worker.app.shelf;
        let store = shelf.store();
        if store.is_none() && !shelf.is_off() {
            return Err(Fault::StoreUnavailable.into());
        }
        if let Some(id) = &asked.previous_response_id {
            let missing = || {
                Failure::from(Fault::PreviousNotFound)
                    .with_message(format!("Previous response with id '{}' not found.", shown(id)))
                    .with_param("previous_response_id")
            };
            let store = store.as_ref().ok_or_else(missing)?;
            let chain =
                store.chain(Key { tenant: Arc::clone(tenant), id: id.as_str().into() }, PAST, milliseconds());
            past.history = chain.await.map_err(|error| match error {
                Error::NotFound => missing(),
                Error::Conflict => Failure::from(Fault::InvalidValue)
                    .with_message(format!("The response '{}' has not ended yet.", shown(id)))
                    .with_param("previous_response_id"),
                Error::Full => Failure::from(Fault::ContextLength)
                    .with_message("The conversation that this response continues is too long.")
                    .with_param("previous_response_id"),
                other => self.unavailable(&other),
            })?;
        }
        if !references.is_empty() {
            let ids: Vec<_> = references.iter().map(|(_, id)| Arc::clone(id)).collect();
            let found = match &store {
                Some(store) => {
                    let found = store.resolve(Arc::clone(tenant), ids, milliseconds()).await;
                    found.map_err(|error| self.unavailable(&error))?
                }
                None => Vec::new(),
            };
            let mut found = found.into_iter();
            for (at, id) in references {
                let item = found.next().flatten().ok_or_else(|| {
                    Failure::from(Fault::NotFound)
                        .with_message(format!("Item with id '{}' not found.", shown(&id)))
                        .with_param(format!("input[{at}].id"))
                })?;
                past.resolved.push((at, item));
            }
        }
        Ok(past)
    }

    /// What stores the answer, if it is to be stored and can be.
    fn keeper(
        &self,
        asked: &mut Asked,
        tenant: &Arc<str>,
        body: &Bytes,
    ) -> Result<Option<Box<Keeper>>, Failure> {
        if !asked.store {
            return Ok(None);
        }
        let shelf = &self.worker.app.shelf;
        let Some(store) = shelf.store() else {
            if asked.insists_on_store() && !shelf.is_off() {
                return Err(Fault::StoreUnavailable.into());
            }
            asked.without_store()?;
            return Ok(None);
        };
        Ok(Some(Box::new(Keeper {
            store,
            tenant: Arc::clone(tenant),
            owner: Arc::clone(&shelf.owner),
            previous: asked.previous_response_id.as_deref().map(Into::into),
            request: String::from_utf8_lossy(body).into(),
            input: asked.input().map(ToOwned::to_owned).collect(),
        })))
    }

    fn seal(&self, tenant: Arc<str>, now: u64) -> Seal {
        let keys = Arc::clone(&self.worker.app.shelf.keys);
        Box::new(move |text| {
            let mut nonce = [0; NONCE];
            getrandom::fill(&mut nonce).ok()?;
            Some(keys.seal(Kind::Reasoning, &tenant, text, now, nonce))
        })
    }

    fn unavailable(&self, error: &Error) -> Failure {
        let request_id = self.record.as_ref().map(|record| record.request_id.as_str());
        tracing::warn!(request_id, %error, "the store does not answer as it should");
        Fault::StoreUnavailable.into()
    }

    /// Answers what is asked of a stored response.
    pub(super) async fn stored(
        &mut self,
        head: &request::Parts,
        what: Stored,
    ) -> Result<Response<Body>, Failure> {
        self.busy.has_read();
        let path = head.uri.path();
        let id =
            path.split_once("/responses/").map_or("", |(_, rest)| rest.split('/').next().unwrap_or(rest));
        let id = decoded(id);
        let missing = || {
            Failure::from(Fault::NotFound)
                .with_message(format!("Response with id '{}' not found.", shown(&id)))
        };
        let shelf = &self.worker.app.shelf;
        let store = match shelf.store() {
            Some(store) => store,
            None if shelf.is_off() => return Err(missing()),
            None => return Err(Fault::StoreUnavailable.into()),
        };
        let key = Key { tenant: self.door.tenant(&head.headers), id: id.as_str().into() };
        let told = |error: Error| match error {
            Error::NotFound => missing(),
            Error::NoCursor => Failure::from(Fault::InvalidValue)
                .with_message("Invalid value for 'after': the response has no such item.")
                .with_param("after"),
            other => self.unavailable(&other),
        };
        let mut out = BytesMut::new();
        match what {
            Stored::Itself if head.method == Method::DELETE => {
                store.delete(key, milliseconds()).await.map_err(told)?;
                out.extend_from_slice(b"{\"id\":");
                write_string(&id, &mut out);
                out.extend_from_slice(b",\"object\":\"response\",\"deleted\":true}");
            }
            Stored::Itself => {
                let record = store.get(key, milliseconds()).await.map_err(told)?;
                if Query::of(head).flag("stream")? {
                    let what = "Only responses that were made in the background can be streamed again.";
                    return Err(Failure::from(Fault::InvalidValue).with_message(what).with_param("stream"));
                }
                out.extend_from_slice(record.response.as_bytes());
            }
            Stored::InputItems => {
                let ask = Query::of(head).page()?;
                let page = store.input_items(key, ask, milliseconds()).await.map_err(told)?;
                write_page(&page, &mut out);
            }
            Stored::Cancel => {
                let record = store.get(key, milliseconds()).await.map_err(told)?;
                if !record.background {
                    let what = "Cannot cancel a synchronous response.";
                    return Err(Failure::from(Fault::InvalidRequest).with_message(what));
                }
                out.extend_from_slice(record.response.as_bytes());
            }
        }
        Ok(self.object(out.freeze()))
    }
}

/// The dialect that a client asks for.
fn dialect(headers: &HeaderMap) -> Result<Option<ResponsesDialect>, Failure> {
    let Some(name) = headers.get(DIALECT) else { return Ok(None) };
    match name.as_bytes() {
        b"openai" => Ok(Some(ResponsesDialect::Openai)),
        b"openresponses" => Ok(Some(ResponsesDialect::Openresponses)),
        b"codex-legacy" => Ok(Some(ResponsesDialect::CodexLegacy)),
        _ => Err(Failure::from(Fault::InvalidValue)
            .with_message("Invalid value for 'x-samewire-dialect': openai, openresponses or codex-legacy.")
            .with_param(DIALECT)),
    }
}

/// A client's id as it may stand in a message.
fn shown(id: &str) -> String {
    id.chars().filter(|letter| !letter.is_control()).take(64).collect()
}

fn write_page(page: &Page, out: &mut BytesMut) {
    out.extend_from_slice(b"{\"object\":\"list\",\"data\":[");
    for (at, item) in page.items.iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        out.extend_from_slice(item.body.as_bytes());
    }
    for (key, item) in [("],\"first_id\":", page.items.first()), (",\"last_id\":", page.items.last())] {
        out.extend_from_slice(key.as_bytes());
        match item {
            Some(item) => write_string(&item.id, out),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.extend_from_slice(if page.more { b",\"has_more\":true}" } else { b",\"has_more\":false}" });
}

/// The query of a request.
struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    fn of(head: &'a request::Parts) -> Self {
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
            Some(_) => Err(wrong(key, "it must be true or false")),
        }
    }

    fn page(&self) -> Result<Ask, Failure> {
        let limit =
            self.get("limit").map(|limit| limit.parse().ok().filter(|limit| (1..=100).contains(limit)));
        Ok(Ask {
            after: self.get("after").filter(|after| !after.is_empty()).map(Into::into),
            limit: limit.unwrap_or(Some(20)).ok_or_else(|| wrong("limit", "it must be from 1 to 100"))?,
            descending: match self.get("order").as_deref() {
                None | Some("desc") => true,
                Some("asc") => false,
                Some(_) => return Err(wrong("order", "it must be asc or desc")),
            },
        })
    }
}

fn wrong(key: &'static str, must: &str) -> Failure {
    let message = format!("Invalid value for '{key}': {must}.");
    Failure::from(Fault::InvalidValue).with_message(message).with_param(key)
}
