//! Compaction of conversations: the user's messages stay, the rest becomes a sealed summary that only samewire can
//! read (wire-format 4.13).

use super::{ParsedRequest, seal};
use crate::json::{self, Members, Raw, write_number, write_string};
use crate::plan;
use crate::request::responses::summary;
use crate::seal::SealKind;
use crate::server::admit::body::Body;
use crate::server::admit::headers::with_dropped;
use crate::server::context::RequestContext;
use crate::server::relay::attempt::AttemptTarget;
use crate::wire::encode::Response as Encoder;
use crate::wire::fault::{Failure, Fault};
use crate::wire::{AnswerId, OutputBuffer, Rewriter};
use axum::body::Body as Incoming;
use bytes::{Bytes, BytesMut};
use http::{Response, request};
use std::sync::Arc;

impl RequestContext {
    /// Lets the engine summarise a conversation and returns its compacted form. Fails if the engine fails or does
    /// not complete the summary.
    pub(in crate::server) async fn compact(
        &mut self,
        head: &request::Parts,
        body: Option<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        let app = Arc::clone(&self.app);
        let body = self.body(body, app.config.limits.max_body_bytes).await?;
        let asked = self.parse_request(head, body.clone(), None).await?.asked;
        let body = summary::request(&body, &asked, &app.config.compaction.instructions)?;
        let mut parsed = self.parse_request(head, body, None).await?;
        let history = self.history(&mut parsed).await?;
        let ParsedRequest { asked, read_for, tenant, sender, .. } = parsed;
        if let Some(record) = &mut self.record {
            record.model = app.pool.label(&asked.model);
        }
        let mut selection = self.response_selection(&asked, &history, &head.headers, read_for);
        let mut reader = None;
        let request = |to: &AttemptTarget<'_>| {
            let route = sender.route(to, &asked.model);
            let (path, shape, reply) = plan::response(&asked, &route);
            let adapted = history.body(&asked, &tenant, &app.store_handle.keys(), &route, 0)?;
            reader = Some((adapted.shape(shape), reply));
            Ok(sender.outgoing(to, "POST", path, adapted.body))
        };
        let answer =
            self.request_object(&sender, &mut selection, app.config.limits.max_answer_bytes, request).await?;
        let (shape, reply) = reader.ok_or(Fault::Proxy)?;
        let stamp = self.stamp();
        let encoder = Box::new(Encoder::new(reply, &stamp));
        let mut rewriter = Rewriter::with_encoder(shape, stamp.clone(), encoder);
        let mut object = OutputBuffer::default();
        rewriter.whole(&answer, &mut object);
        if let Some(failure) = rewriter.any_failure() {
            return Err(failure.clone());
        }
        if let Some(record) = &mut self.record {
            record.summarised(rewriter.summary());
        }
        let summary = Summary::of(&object.join()).ok_or_else(|| {
            Failure::from(Fault::Incomplete).with_message("The upstream engine did not complete the summary.")
        })?;
        let seal = seal(&app.store_handle.keys(), SealKind::Compaction, tenant, stamp.now);
        let sealed = seal(&summary.text).ok_or(Fault::Proxy)?;
        // The last item is the instruction to summarise.
        let mut said: Vec<_> = history.all(&asked).collect();
        said.pop();
        let said = said.into_iter().filter(|item| summary::is_user_message(item));
        let object = write(stamp.id, stamp.now, said, &sealed, &summary.usage);
        Ok(with_dropped(self.object_response(object), &asked.dropped, ","))
    }
}

/// Summary written by the engine, with the usage that it cost.
struct Summary {
    text: String,
    /// Usage object as JSON, or `null`.
    usage: String,
}

impl Summary {
    /// Reads the summary from a final response object; `None` unless it is completed and has text.
    fn of(object: &[u8]) -> Option<Self> {
        let members = Members::of(std::str::from_utf8(object).ok()?)?;
        members.get("status").filter(|status| status.get() == "\"completed\"")?;
        let items: Vec<Raw<'_>> = json::read(members.get("output")?.get()).ok()?;
        let mut text = String::new();
        for item in items {
            let item = Members::of(item.get())?;
            if item.get("type").is_none_or(|kind| kind.get() != "\"message\"") {
                continue;
            }
            let parts: Vec<Raw<'_>> = json::read(item.get("content")?.get()).ok()?;
            text.extend(parts.iter().filter_map(|part| json::member(part.get(), "text")));
        }
        let text = text.trim().to_owned();
        (!text.is_empty()).then(|| Self {
            text,
            usage: members.get("usage").map_or("null", |usage| usage.get()).to_owned(),
        })
    }
}

fn write<'a>(
    id: AnswerId,
    now: u64,
    said: impl Iterator<Item = &'a str>,
    sealed: &str,
    usage: &str,
) -> Bytes {
    let mut out =
        BytesMut::from(format!("{{\"id\":\"resp_{id}\",\"object\":\"response.compaction\"").as_bytes());
    out.extend_from_slice(b",\"created_at\":");
    write_number(now, &mut out);
    out.extend_from_slice(b",\"output\":[");
    for item in said {
        json::write_compact(item, &mut out);
        out.extend_from_slice(b",");
    }
    out.extend_from_slice(
        format!("{{\"type\":\"compaction\",\"id\":\"cmp_{id}\",\"encrypted_content\":").as_bytes(),
    );
    write_string(sealed, &mut out);
    out.extend_from_slice(b"}],\"usage\":");
    out.extend_from_slice(usage.as_bytes());
    out.extend_from_slice(b"}");
    out.freeze()
}
