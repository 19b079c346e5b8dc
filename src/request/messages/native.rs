//! Messages request for an engine whose own route is used (messages 9).
//!
//! Takes: a body. Gives: the body for the engine: the client's own, without text that only serves billing, and with
//! addresses of media that the operator permits. Never: refuses what the engine may know and chat does not.

use super::blocks::{Block, Content, content};
use super::conversation::BILLING;
use super::{
    BILLING_BLOCK, EngineRequest, MessagesContext, MessagesRequest, OpenedThinking, Purpose, display,
    require, settings,
};
use crate::json::{Raw, quoted};
use crate::request::check::Checked;
use crate::request::fields::{Edits, place};
use crate::request::media::{Address, Kind};
use crate::request::object::Object;
use crate::wire::fault::Failure;
use crate::wire::options::BillingBlock;
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::HashSet;

/// Reads a request for the engine's own route. Checks only the parts that samewire itself reads.
pub(super) fn read(
    body: &Bytes,
    from: &Checked<'_>,
    context: &MessagesContext<'_>,
) -> Result<MessagesRequest, Failure> {
    require(from, "messages", context.purpose)?;
    let most = context.rules.caps.messages;
    let messages = from.limited("messages", most, "max_messages")?.unwrap_or_default();
    let mut history = History { text: from.text, context, edits: Edits::default(), used_ids: HashSet::new() };
    for (at, raw) in messages.iter().enumerate() {
        let message = Object::of(format!("messages.{at}"), *raw)?;
        history.content(&message.path("content"), message.required("content")?)?;
    }
    let History { mut edits, used_ids, .. } = history;
    let system = from.get("system").map(|field| field.value);
    let drops_billing = context.options.billing_block == BillingBlock::Drop;
    let has_billing =
        drops_billing && system.is_some_and(|system| drop_billing(from.text, system, &mut edits));
    if let Some(model) = context.model {
        let named = from.get("model").map(|field| place(from.text, field.value.get()));
        edits.name_model(from.text, named, model);
    }
    let named = from.string("model")?.unwrap_or_default();
    let first = messages.first().and_then(|raw| Object::of(String::new(), *raw).ok()?.get("content"));
    let beginning = system.into_iter().chain(first).map(lasting).collect();
    Ok(MessagesRequest {
        model: context.model.map_or(named, ToOwned::to_owned),
        stream: from.flag("stream")? && context.purpose != Purpose::Count,
        body: edits.apply_within_limit(&body.slice_ref(from.text.as_bytes()))?,
        engine_request: EngineRequest::Native { beginning },
        limit: settings::limit(from)?,
        stop_sequences: settings::stop_sequences(from)?,
        display: display(settings::thinking(from)?.display, context.options.messages_thinking),
        used_ids,
        dropped: Vec::new(),
        adapted: if has_billing { vec![BILLING_BLOCK] } else { Vec::new() },
    })
}

/// Reader of the messages: finds the ids of calls and the addresses of media.
struct History<'c, 'a> {
    text: &'a str,
    context: &'c MessagesContext<'c>,
    edits: Edits,
    used_ids: HashSet<String>,
}

impl<'a> History<'_, 'a> {
    fn content(&mut self, path: &str, raw: Raw<'a>) -> Result<(), Failure> {
        let Content::Blocks(blocks) = content(path, raw)? else { return Ok(()) };
        blocks.iter().try_for_each(|block| self.block(block))
    }

    fn block(&mut self, block: &Block<'a>) -> Result<(), Failure> {
        let object = &block.object;
        match block.kind.as_ref() {
            "tool_use" => {
                let id = object.required_name("id")?;
                self.used_ids.insert(id.decoded().into_owned());
            }
            "thinking" => self.thinking(object)?,
            "image" => self.source(object, Kind::Image)?,
            "document" => self.source(object, Kind::File)?,
            "tool_result" => {
                if let Some(raw) = object.get("content") {
                    self.content(&object.path("content"), raw)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Puts the text back into thinking that was sent without it. The engine checks all other thinking itself.
    fn thinking(&mut self, object: &Object<'a>) -> Result<(), Failure> {
        let (Some(text), Some(signature)) = (object.text("thinking")?, object.text("signature")?) else {
            return Ok(());
        };
        if let (true, Some(OpenedThinking::Text(sealed)), Some(raw)) =
            (text.is_empty(), (self.context.open)(&signature.decoded()), object.get("thinking"))
        {
            self.edits.replace(place(self.text, raw.get()), quoted(&sealed));
        }
        Ok(())
    }

    /// Judges the address of an image or a document, which the engine would fetch.
    fn source(&mut self, object: &Object<'a>, kind: Kind) -> Result<(), Failure> {
        let Some(source) = object.object("source")? else { return Ok(()) };
        if let Some(raw) = source.get("content").filter(|raw| raw.get().starts_with('[')) {
            return self.content(&source.path("content"), raw);
        }
        let Some(url) = source.text("url")? else { return Ok(()) };
        let judged = self.context.rules.media.judge(url, kind, || source.path("url"))?;
        if let (Address::Rewritten(..), Some(raw)) = (&judged, source.get("url")) {
            let mut spelled = BytesMut::from(&b"\""[..]);
            judged.write(&mut spelled);
            spelled.put_u8(b'"');
            self.edits.replace(place(self.text, raw.get()), spelled.to_vec());
        }
        Ok(())
    }
}

/// Returns what stays the same of a content in all turns of a conversation: clients move their marks for caching from
/// turn to turn, and billing text changes with each request.
fn lasting(raw: Raw<'_>) -> String {
    let lasting = |block: &Block<'_>| match block.object.text("text") {
        Ok(Some(text)) => text.decoded().into_owned(),
        _ => block.object.get("source").map_or_else(String::new, |source| source.get().to_owned()),
    };
    match content("", raw) {
        Ok(Content::Text(text)) => text.decoded().into_owned(),
        Ok(Content::Blocks(blocks)) => {
            blocks.iter().filter(|block| !is_billing(block)).map(lasting).collect::<Vec<_>>().join("\n")
        }
        Err(_) => raw.get().to_owned(),
    }
}

/// Returns true for a block of text that only serves billing.
fn is_billing(block: &Block<'_>) -> bool {
    let text = block.object.text("text").ok().flatten();
    text.is_some_and(|text| text.decoded().starts_with(BILLING))
}

/// Removes the blocks of a system prompt that only serve billing. Returns true if there are any.
fn drop_billing(text: &str, system: Raw<'_>, edits: &mut Edits) -> bool {
    let Ok(Content::Blocks(blocks)) = content("system", system) else { return false };
    if !blocks.iter().any(is_billing) {
        return false;
    }
    let raws: Vec<Raw<'_>> = crate::json::elements(system.get()).into_iter().flatten().collect();
    let kept = raws.iter().zip(&blocks).filter(|(_, block)| !is_billing(block));
    let kept: Vec<&str> = kept.map(|(raw, _)| raw.get()).collect();
    edits.replace(place(text, system.get()), format!("[{}]", kept.join(",")));
    true
}
