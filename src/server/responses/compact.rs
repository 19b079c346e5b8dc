//! Compaction of conversations: the user's messages stay, the rest becomes a sealed summary that only samewire can
//! read (wire-format 4.13).
//!
//! Takes: an admitted request and its body. Gives: the compacted conversation. Never: stores anything.

use super::history::{load_history, response_selection};
use super::{ParsedRequest, parse_request, seal};
use crate::json::{self, Members, Raw, write_number, write_string};
use crate::plan;
use crate::request::responses::summary;
use crate::seal::SealKind;
use crate::server::admit::body::Body;
use crate::server::admitted::Admitted;
use crate::server::headers::with_dropped;
use crate::server::relay::attempt::{AttemptTarget, request_object};
use crate::server::reply::ClientReply;
use crate::server::request_body::RequestBody;
use crate::wire::encode::Response as Encoder;
use crate::wire::fault::{Failure, Fault};
use crate::wire::{AnswerId, OutputBuffer, Rewriter};
use bytes::{Bytes, BytesMut};
use http::Response;

/// Lets the engine summarise a conversation and returns its compacted form. Fails if the engine fails or does
/// not complete the summary.
pub(in crate::server) async fn compact(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
) -> Result<Response<Body>, Failure> {
    let app = admitted.app;
    let bytes = body
        .read(app.config.limits.max_body_bytes, admitted, reply)
        .await?;
    // Parsed twice: as the client sent it, then with the instruction to summarise.
    let request = parse_request(admitted, reply, body, bytes.clone(), None)
        .await?
        .request;
    let bytes = summary::request(&bytes, &request, &app.config.file.compaction.instructions)?;
    let mut parsed = parse_request(admitted, reply, body, bytes, None).await?;
    let history = load_history(admitted, &mut parsed).await?;
    let ParsedRequest {
        request,
        read_for,
        tenant,
        sender,
        ..
    } = parsed;
    reply.label(&request.model);
    let mut selection = response_selection(admitted, reply, &request, &history, read_for);
    let mut reader = None;
    let outgoing = |to: &AttemptTarget<'_>| {
        let route = sender.route(to, &request.model);
        let (path, shape, form) = plan::response(&request, &route);
        let adapted = history.body(&request, &tenant, &app.store_handle.keys(), &route, 0)?;
        reader = Some((adapted.shape(shape), form));
        Ok(sender.outgoing(to, "POST", path, adapted.body))
    };
    let limit = app.config.limits.max_answer_bytes;
    let answer = request_object(reply, &sender, &mut selection, limit, outgoing).await?;
    let (shape, form) = reader.ok_or(Fault::Proxy)?;
    let stamp = admitted.stamp();
    let encoder = Box::new(Encoder::new(form, &stamp));
    let mut rewriter = Rewriter::with_encoder(shape, stamp.clone(), encoder);
    let mut object = OutputBuffer::default();
    rewriter.whole(&answer, &mut object);
    if let Some(failure) = rewriter.reader.failure() {
        return Err(failure.clone());
    }
    reply.note(|record| record.summarised(rewriter.reader.summary()));
    let summary = CompactSummary::of(&object.join()).ok_or_else(|| {
        Failure::from(Fault::Incomplete)
            .with_message("The upstream engine did not complete the summary.")
    })?;
    let seal = seal(
        &app.store_handle.keys(),
        SealKind::Compaction,
        tenant,
        stamp.now,
    );
    let sealed = seal(&summary.text).ok_or(Fault::Proxy)?;
    // The last item is the instruction to summarise.
    let mut said: Vec<_> = history.all(&request).collect();
    said.pop();
    let said = said
        .into_iter()
        .filter(|item| summary::is_user_message(item));
    let object = write(stamp.id, stamp.now, said, &sealed, &summary.usage);
    Ok(with_dropped(reply.object(object), &request.dropped, ","))
}

/// Summary written by the engine, with the usage that it cost.
struct CompactSummary {
    text: String,
    /// Usage object as JSON, or `null`.
    usage: String,
}

impl CompactSummary {
    /// Reads the summary from a final response object; `None` unless it is completed and has text.
    fn of(object: &[u8]) -> Option<Self> {
        let members = Members::of(std::str::from_utf8(object).ok()?)?;
        members
            .get("status")
            .filter(|status| status.get() == "\"completed\"")?;
        let items: Vec<Raw<'_>> = json::read(members.get("output")?.get()).ok()?;
        let mut text = String::new();
        for item in items {
            let item = Members::of(item.get())?;
            if item
                .get("type")
                .is_none_or(|kind| kind.get() != "\"message\"")
            {
                continue;
            }
            let parts: Vec<Raw<'_>> = json::read(item.get("content")?.get()).ok()?;
            text.extend(
                parts
                    .iter()
                    .filter_map(|part| json::member(part.get(), "text")),
            );
        }
        let text = text.trim().to_owned();
        (!text.is_empty()).then(|| Self {
            text,
            usage: members
                .get("usage")
                .map_or("null", |usage| usage.get())
                .to_owned(),
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
    let mut out = BytesMut::from(
        format!("{{\"id\":\"resp_{id}\",\"object\":\"response.compaction\"").as_bytes(),
    );
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
