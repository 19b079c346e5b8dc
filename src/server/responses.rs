//! Responses: made through Chat Completions, stored, and what is asked of stored ones (wire-format 4.1, 4.11).

use super::background::{self, Job};
use super::body::Body;
use super::headers;
use super::keep::Keeper;
use super::record::Record;
use super::relay::{Order, Relay};
use super::routes::{Handling, decoded};
use crate::config::Credentials;
use crate::json::write_string;
use crate::plan::{self, Route};
use crate::request::responses::{Asked, Material};
use crate::seal::{Keys, Kind, NONCE};
use crate::store::{Ask, Error, Item, Key, Page, Record as StoredRecord, Store};
use crate::upstream::Outgoing;
use crate::wire::encode::{Response as Encoder, Seal};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::{Options, ResponsesDialect};
use crate::wire::{Rewriter, Shape, Stamp};
use axum::body::Body as Incoming;
use bytes::{BufMut, Bytes, BytesMut};
use futures::Stream;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, request};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const DIALECT: &str = "x-samewire-dialect";
const DROPPED: HeaderName = HeaderName::from_static("x-samewire-dropped");
/// How long a client that cancels waits for the end.
const CANCELLED: Duration = Duration::from_secs(3);
/// Bytes of names in that header and in the log. Clients take heads of 16 KiB and less.
const DROPPED_BYTES: usize = 4000;
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

/// A request on its way to the engine.
struct Errand {
    asked: Asked,
    encoder: Box<Encoder>,
    shape: Shape,
    stamp: Stamp,
    request: Outgoing,
    record: Record,
    keeper: Option<Box<Keeper>>,
}

/// What went before a request.
#[derive(Default)]
struct Past {
    history: Vec<Item>,
    resolved: Vec<(usize, Item)>,
}

impl Past {
    /// The items of the input; what is referred to in place of the reference, which says nothing to a later turn.
    fn items<'a>(&'a self, asked: &'a Asked) -> impl Iterator<Item = &'a str> {
        asked.input().enumerate().map(|(at, item)| {
            let found = self.resolved.iter().find(|(place, _)| *place == at);
            found.map_or(item, |(_, found)| &*found.body)
        })
    }

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
        if self.door.is_dated() && app.config.azure.force_store {
            asked.with_store();
        }
        let tenant = self.door.tenant(&head.headers);
        let past = self.past(&asked, &tenant).await?;
        let keeper = self.keeper(&mut asked, &tenant, &body, &past)?;
        if let Some(keeper) = keeper.as_ref().filter(|_| asked.insists_on_store()) {
            // Before the engine works for an answer that could not be kept (faults O14, O15).
            keeper.store.totals().await.map_err(|error| self.unavailable(&error))?;
        }
        let dropped = HeaderValue::from_str(&named(&asked.dropped)).ok().filter(|all| !all.is_empty());
        let chat = past.chat(&asked, &tenant, &app.shelf.keys, &route)?;
        let stamp = self.chance.stamp();
        let (shape, mut reply) = plan::response(&asked, &route);
        reply.seal = asked.include.encrypted_reasoning.then(|| self.seal(Arc::clone(&tenant), stamp.now));
        let shape = if asked.background { Shape { stream: true, ..shape } } else { shape };
        reply.stream |= asked.background;
        let streams = reply.stream;
        let encoder = Box::new(Encoder::new(reply, &stamp));
        let accept = if streams { "text/event-stream" } else { "application/json" };
        let request = self.outgoing("POST", "/v1/chat/completions", accept, &head.headers, chat);
        let Some(mut record) = self.record.take() else { return Err(Fault::Proxy.into()) };
        record.model = app.upstream.label(&asked.model);
        if !asked.dropped.is_empty() || !asked.ignored.is_empty() {
            let (dropped, ignored) = (named(&asked.dropped), named(&asked.ignored));
            tracing::info!(
                request_id = record.request_id,
                dropped,
                ignored,
                "left out of the engine's request"
            );
        }
        let errand = Errand { asked, encoder, shape, stamp, request, record, keeper };
        let mut response = match errand.asked.background {
            true => self.in_background(errand).await?,
            false => self.at_once(errand, start).await,
        };
        if let Some(dropped) = dropped {
            response.headers_mut().insert(DROPPED, dropped);
        }
        Ok(response)
    }

    /// The client waits for the answer.
    async fn at_once(&self, errand: Errand, start: Instant) -> Response<Body> {
        let mut relay = Relay::new(self.order(errand));
        relay.planned(start.elapsed());
        relay.answer().await
    }

    fn order(&self, errand: Errand) -> Order {
        let Errand { asked, encoder, shape, stamp, request, record, keeper } = errand;
        Order {
            request,
            client: Arc::clone(&self.worker.client),
            stream: shape.stream,
            rewriter: Rewriter::with_encoder(shape, stamp, encoder),
            own_key: matches!(self.worker.app.upstream.config.auth, Credentials::Own(_)),
            record,
            keeper: keeper.filter(|_| !asked.background),
            numbered: true,
        }
    }

    /// The answer is made without the client: it is told that it will be.
    async fn in_background(&mut self, mut errand: Errand) -> Result<Response<Body>, Failure> {
        let app = Arc::clone(&self.worker.app);
        let mut first = BytesMut::new();
        let (id, object) = errand.encoder.queue(&mut first);
        let streams = errand.asked.stream;
        let Some(keeper) = errand.keeper.take() else { return Err(Fault::StoreUnavailable.into()) };
        let (store, new) = keeper.queued(&id, &object);
        let key = new.key.clone();
        if let Err(error) = store.create(new, app.shelf.now()).await {
            self.record = Some(errand.record);
            return Err(self.unavailable(&error));
        }
        let request_id = errand.record.request_id.clone();
        let started = errand.record.started;
        let relay = Relay::new(self.order(errand));
        let (worker, first) = (Arc::clone(&self.worker), first.freeze());
        let job = Job { app: Arc::clone(&app), store: Arc::clone(&store), key: key.clone(), relay, first };
        worker.background.fetch_add(1, Ordering::Relaxed);
        #[expect(
            clippy::disallowed_methods,
            reason = "one task for each response in the background, counted"
        )]
        tokio::spawn(async move {
            job.run().await;
            worker.background.fetch_sub(1, Ordering::Relaxed);
        });
        let head = headers::Success { request_id: &request_id, passed: &HeaderMap::new() };
        Ok(match streams {
            true => head.stream().map(|()| Body::stream(background::follow(app, store, key, None))),
            false => head.object(started.elapsed()).map(|()| Body::full(object.into())),
        })
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
                store.chain(Key { tenant: Arc::clone(tenant), id: id.as_str().into() }, PAST, shelf.now());
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
                    let found = store.resolve(Arc::clone(tenant), ids, shelf.now()).await;
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
        past: &Past,
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
            input: past.items(asked).map(ToOwned::to_owned).collect(),
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
        let now = self.worker.app.shelf.now();
        match what {
            Stored::Itself if head.method == Method::DELETE => {
                store.delete(key, now).await.map_err(told)?;
                out.extend_from_slice(b"{\"id\":");
                write_string(&id, &mut out);
                out.extend_from_slice(b",\"object\":\"response\",\"deleted\":true}");
            }
            Stored::Itself => {
                let record = store.get(key.clone(), now).await.map_err(told)?;
                let query = Query::of(head);
                let after = query.number("starting_after")?;
                if query.flag("stream")? {
                    if !record.background {
                        let what = "Only responses that were made in the background can be streamed again.";
                        return Err(Failure::from(Fault::InvalidValue)
                            .with_message(what)
                            .with_param("stream"));
                    }
                    return Ok(self.replay(background::follow(
                        Arc::clone(&self.worker.app),
                        store,
                        key,
                        after,
                    )));
                }
                out.extend_from_slice(record.response.as_bytes());
            }
            Stored::InputItems => {
                let ask = Query::of(head).page()?;
                let page = store.input_items(key, ask, now).await.map_err(told)?;
                write_page(&page, &mut out);
            }
            Stored::Cancel => {
                let record = store.get(key.clone(), now).await.map_err(told)?;
                if !record.background {
                    let what = "Cannot cancel a synchronous response.";
                    return Err(Failure::from(Fault::InvalidRequest).with_message(what));
                }
                let ended = self.cancel(&store, &key).await.map_err(told)?;
                out.extend_from_slice(ended.response.as_bytes());
            }
        }
        Ok(self.object(out.freeze()))
    }

    /// Ends a response in the background, wherever it is made, and gives how it ended.
    async fn cancel(&self, store: &Store, key: &Key) -> Result<StoredRecord, Error> {
        let app = &self.worker.app;
        if !store.request_cancel(key.clone(), app.shelf.now()).await?.is_terminal() {
            app.runs.cancel(key);
        }
        let start = Instant::now();
        loop {
            let record = store.get(key.clone(), app.shelf.now()).await?;
            // Its process may have died: then it is closed within half a minute, and the client need not wait for that.
            if record.state.is_terminal() || start.elapsed() >= CANCELLED {
                return Ok(record);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Events that are told once more.
    fn replay(&mut self, events: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
        let response = match &mut self.record {
            Some(record) => {
                record.answered(200);
                record.completed();
                headers::Success { request_id: &record.request_id, passed: &self.passed }.stream()
            }
            None => Response::new(()),
        };
        response.map(|()| Body::stream(events))
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
/// What was left out, for the head of the answer and the log: whole names, as many as there is room for.
fn named(dropped: &[String]) -> String {
    let mut all = String::new();
    for name in dropped {
        if all.len() + name.len() >= DROPPED_BYTES {
            all.push_str(",...");
            break;
        }
        if !all.is_empty() {
            all.push(',');
        }
        all.push_str(name);
    }
    all
}

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

    fn number(&self, key: &'static str) -> Result<Option<u64>, Failure> {
        let number = self
            .get(key)
            .map(|text| text.parse().map_err(|_| wrong(key, "it must be a whole number, 0 or more")));
        number.transpose()
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
