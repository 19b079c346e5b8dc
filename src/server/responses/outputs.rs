//! Outputs of tools, handed in one by one; with the last of them the response is gone on with (wire-format 4.10).
//!
//! What has been handed in lies in the store, under a tenant's name that no client has, so that any process can take the
//! next one. Of several that hand in at once, one goes on.

use super::stored::missing;
use crate::json::{self, write_string};
use crate::request::responses::outputs::{self, After, Output, Outputs, Pending};
use crate::server::body::Body;
use crate::server::routes::Handling;
use crate::store::{Ask, Error, Item, Key, Store};
use crate::wire::fault::{Failure, Fault};
use axum::body::Body as Incoming;
use bytes::{BufMut, BytesMut};
use http::header::ACCEPT;
use http::{Response, StatusCode, request};
use std::collections::HashMap;
use std::sync::Arc;

/// The item that says who goes on.
const CLAIM: &str = "claim";

impl Handling {
    /// Takes outputs of a response's calls.
    pub(in crate::server) async fn tool_outputs(
        &mut self,
        head: &request::Parts,
        body: Option<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        let limit = self.worker.app.config.limits.max_body_bytes;
        let body = self.body(body, limit).await?;
        let outputs = Outputs::read(&body)?;
        let (store, key) = self.named(head)?;
        if let Some(pending) = Arc::clone(&self.worker.app).holds.put(&key, &outputs.all).await {
            return Ok(self.waiting(&key.id, pending?.iter()));
        }
        let now = self.worker.app.shelf.now();
        let record = store.get(key.clone(), now).await.map_err(|error| match error {
            Error::NotFound => missing(&key.id),
            other => self.unavailable(&other),
        })?;
        let calls = outputs::calls(&record.response);
        if !record.state.is_terminal() {
            let message = format!("The response '{}' has not ended yet.", key.id);
            return Err(Failure::from(Fault::InvalidRequest).with_message(message));
        }
        let given = places(&key.id, &calls, &outputs.all)?;
        let basket = Basket::of(store, &key, self.chance.request_id());
        let full = basket.put(&given, now).await.map_err(|error| match error {
            Error::Conflict => answered(given.first().map(|(_, output)| *output)),
            other => self.unavailable(&other),
        })?;
        let pending: Vec<_> = (0..calls.len()).filter(|at| !full.contains_key(at)).collect();
        let goes_on =
            pending.is_empty() && basket.claim(now).await.map_err(|error| self.unavailable(&error))?;
        if !goes_on {
            let pending = pending.iter().filter_map(|at| calls.get(*at));
            return Ok(self.waiting(&key.id, pending));
        }
        let answered =
            calls.iter().enumerate().filter_map(|(at, call)| Some((call, full.get(&at)?.as_str())));
        let input = outputs::items(answered);
        let conversation = outputs::conversation(&record.response);
        let after = match &conversation {
            Some(conversation) => After::Conversation(conversation),
            None => After::Response(&key.id),
        };
        let model = json::member(&record.response, "model").unwrap_or_default();
        let stream =
            outputs.stream || head.headers.get(ACCEPT).is_some_and(|accept| accept == "text/event-stream");
        let body = outputs::going_on(&record.request, &model, after, &input, stream);
        let result = self.create(head, body).await;
        if result.as_ref().map_or(true, |response| !response.status().is_success()) {
            // Nothing has come of them: they may be handed in again.
            basket.take_back(&given, now).await;
        }
        result
    }

    fn waiting<'a>(&mut self, id: &str, pending: impl Iterator<Item = &'a Pending>) -> Response<Body> {
        let mut out = BytesMut::from(&b"{\"object\":\"response.tool_outputs\",\"response_id\":"[..]);
        write_string(id, &mut out);
        out.extend_from_slice(b",\"status\":\"waiting\",\"pending\":[");
        for (at, call) in pending.enumerate() {
            if at > 0 {
                out.put_u8(b',');
            }
            write_string(&call.call_id, &mut out);
        }
        out.extend_from_slice(b"]}");
        let mut response = self.object(out.freeze());
        *response.status_mut() = StatusCode::ACCEPTED;
        if let Some(record) = &mut self.record {
            record.answered(StatusCode::ACCEPTED.as_u16());
        }
        response
    }
}

/// The outputs with the places of their calls.
pub(super) fn places<'o>(
    id: &str,
    calls: &[Pending],
    given: &'o [Output],
) -> Result<Vec<(usize, &'o Output)>, Failure> {
    if calls.is_empty() {
        let message = format!("The response '{id}' has no tool calls.");
        return Err(Failure::from(Fault::InvalidRequest).with_message(message));
    }
    let mut told: Vec<(usize, &Output)> = Vec::with_capacity(given.len());
    for output in given {
        let at = calls.iter().position(|call| call.call_id == output.call_id).ok_or_else(|| {
            let message =
                format!("Invalid value for '{}': the response has no such tool call.", output.param);
            Failure::from(Fault::InvalidValue).with_message(message).with_param(output.param.as_str())
        })?;
        if told.iter().any(|(other, _)| *other == at) {
            return Err(answered(Some(output)));
        }
        told.push((at, output));
    }
    Ok(told)
}

pub(super) fn answered(output: Option<&Output>) -> Failure {
    let failure = Failure::from(Fault::Conflict).with_message("The tool call has an output already.");
    match output {
        Some(output) => failure.with_param(output.param.as_str()),
        None => failure,
    }
}

/// The outputs of one response's calls.
struct Basket {
    store: Arc<Store>,
    key: Key,
    /// This request, among all.
    by: String,
}

impl Basket {
    fn of(store: Arc<Store>, response: &Key, by: String) -> Self {
        // Tenants of clients are hashes: none is named like this.
        let tenant = format!("outputs of {}", response.tenant).into();
        Self { store, key: Key { tenant, id: Arc::clone(&response.id) }, by }
    }

    /// Puts outputs in; gives all that are there. `Conflict`: one of them is there already.
    async fn put(&self, given: &[(usize, &Output)], now: u64) -> Result<HashMap<usize, String>, Error> {
        match self.store.create_conversation(self.key.clone(), "{}".into(), Vec::new(), now).await {
            Ok(()) | Err(Error::Conflict) => {}
            Err(error) => return Err(error),
        }
        let there = self.all(now).await?;
        if given.iter().any(|(at, _)| there.iter().any(|item| *item.id == *at.to_string())) {
            return Err(Error::Conflict);
        }
        let items = given.iter().map(|(at, output)| self.item(&at.to_string(), &output.output)).collect();
        self.store.add_items(self.key.clone(), items, now).await?;
        let there = self.all(now).await?;
        let ours = |at: usize| there.iter().any(|item| *item.id == *at.to_string() && self.is_ours(item));
        // Another request was quicker: what is there already stays.
        if !given.iter().all(|(at, _)| ours(*at)) {
            return Err(Error::Conflict);
        }
        let output = |item: &Item| Some((item.id.parse().ok()?, outputs_of(&item.body)?));
        Ok(there.iter().filter_map(output).collect())
    }

    /// Whether this request is the one that goes on.
    async fn claim(&self, now: u64) -> Result<bool, Error> {
        self.store.add_items(self.key.clone(), vec![self.item(CLAIM, "null")], now).await?;
        let claim = self.store.conversation_item(self.key.clone(), CLAIM.into(), now).await?;
        Ok(self.is_ours(&claim))
    }

    async fn take_back(&self, given: &[(usize, &Output)], now: u64) {
        let ours = given.iter().map(|(at, _)| at.to_string()).chain([CLAIM.to_owned()]);
        for id in ours {
            if let Err(error) = self.store.delete_item(self.key.clone(), id.into(), now).await {
                tracing::warn!(%error, "outputs of tools could not be given back");
            }
        }
    }

    async fn all(&self, now: u64) -> Result<Vec<Item>, Error> {
        let mut all: Vec<Item> = Vec::new();
        loop {
            let after = all.last().map(|item| Arc::clone(&item.id));
            let ask = Ask { after, limit: 100, descending: false };
            let page = self.store.conversation_items(self.key.clone(), ask, now).await?;
            all.extend(page.items);
            if !page.more {
                return Ok(all);
            }
        }
    }

    fn item(&self, id: &str, output: &str) -> Item {
        Item::new(id, &format!("{{\"by\":\"{}\",\"output\":{output}}}", self.by))
    }

    fn is_ours(&self, item: &Item) -> bool {
        json::member(&item.body, "by").is_some_and(|by| by == self.by)
    }
}

/// Forgets what was handed in for a response that is gone.
pub(super) async fn forget(store: &Arc<Store>, response: &Key, now: u64) {
    let basket = Basket::of(Arc::clone(store), response, String::new());
    // There mostly is none; what stays goes in its time.
    let _ = basket.store.delete_conversation(basket.key, now).await;
}

/// The output in an item, as JSON.
fn outputs_of(item: &str) -> Option<String> {
    let json::Members(members) = json::Members::of(item)?;
    let (_, output) = members.into_iter().find(|(key, _)| key == "output")?;
    Some(output.get().to_owned()).filter(|output| output != "null")
}
