//! Messages request for an engine whose own route is used (messages 9).
//!
//! Takes: a body. Gives: the body for the engine: the client's own, without text that only serves billing, and with
//! addresses of media that the operator permits. Never: refuses what the engine may know and chat does not.

use super::blocks::{Block, BlockContent, content};
use super::conversation::BILLING;
use super::{
    BILLING_BLOCK, EngineRequest, MessagesContext, MessagesRequest, OpenedThinking, Purpose,
    display, require, settings,
};
use crate::json::{self, Raw, Text, quoted};
use crate::request::OfferedTools;
use crate::request::check::Checked;
use crate::request::fields::{self, Edits, place};
use crate::request::media::{Address, MediaKind};
use crate::request::object::RequestObject;
use crate::wire::fault::Failure;
use crate::wire::options::{BillingBlock, Parser};
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
    let messages = from
        .limited("messages", most, "max_messages")?
        .unwrap_or_default();
    let mut history = NativeHistory {
        text: from.text,
        context,
        edits: Edits::default(),
        used_ids: HashSet::new(),
    };
    for (at, raw) in messages.iter().enumerate() {
        let message = RequestObject::of(format!("messages.{at}"), *raw)?;
        if let Some(content) = message.get("content") {
            history.content(&message.path("content"), content)?;
        }
    }
    let system = from.get("system").map(|field| field.value);
    if let Some(system) = system.filter(|raw| raw.get().starts_with('[')) {
        history.content("system", system)?;
    }
    for (at, raw) in from
        .list("mcp_servers", 1000)?
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        history.address(
            &RequestObject::of(format!("mcp_servers.{at}"), raw)?,
            MediaKind::File,
        )?;
    }
    let NativeHistory {
        mut edits,
        used_ids,
        ..
    } = history;
    let drops_billing = context.options.billing_block == BillingBlock::Drop;
    let has_billing =
        drops_billing && system.is_some_and(|system| drop_billing(from.text, system, &mut edits));
    if let Some(model) = context.model {
        edits.name_model(from.text, from.place("model"), model);
    }
    let edited = edits.apply_within_limit(&body.slice_ref(from.text.as_bytes()))?;
    let edited = fields::with_defaults(edited, context.defaults);
    let counts = context.purpose == Purpose::Count;
    let named = from.string("model")?.unwrap_or_default();
    let first = messages
        .first()
        .and_then(|raw| RequestObject::of(String::new(), *raw).ok()?.get("content"));
    let beginning = system.into_iter().chain(first).map(lasting).collect();
    let offered_tools = if context.options.parser == Parser::Off {
        None
    } else {
        offered_tools(from)
    };
    Ok(MessagesRequest {
        model: context.model.map_or(named, ToOwned::to_owned),
        stream: from.flag("stream")? && !counts,
        body: if counts {
            fields::without(&edited, "stream").unwrap_or(edited)
        } else {
            edited
        },
        engine_request: EngineRequest::Native { beginning },
        limit: settings::limit(from)?,
        stop_sequences: settings::stop_sequences(from)?,
        display: display(
            settings::thinking(from)?.display,
            context.options.messages_thinking,
        ),
        offered_tools,
        used_ids,
        dropped: Vec::new(),
        adapted: if has_billing {
            vec![BILLING_BLOCK]
        } else {
            Vec::new()
        },
    })
}

/// Returns the tools by which calls are found in text, as functions of a chat; `None` if nothing may be called. Tools
/// of the service have no schema, and the engine calls them by other means.
fn offered_tools(from: &Checked<'_>) -> Option<Box<OfferedTools>> {
    let said = |key: &str| from.get(key).map(|field| field.value.get());
    let choice = said("tool_choice").and_then(|choice| json::member(choice, "type"));
    let mut tools = String::from("[");
    for tool in json::elements(said("tools")?).into_iter().flatten() {
        let member = |key: &str| json::raw_member(tool.get(), key).map(Raw::get);
        if let (Some(name), Some(schema)) = (member("name"), member("input_schema")) {
            let comma = if tools.len() > 1 { "," } else { "" };
            tools.extend([
                comma,
                "{\"function\":{\"name\":",
                name,
                ",\"parameters\":",
                schema,
                "}}",
            ]);
        }
    }
    tools.push(']');
    match choice.as_deref() {
        Some("none") => None,
        choice => Some(Box::new(OfferedTools::of_functions(
            tools,
            matches!(choice, Some("any" | "tool")),
        ))),
    }
}

/// Reader of the messages: finds the ids of calls and the addresses of media.
struct NativeHistory<'c, 'a> {
    text: &'a str,
    context: &'c MessagesContext<'c>,
    edits: Edits,
    used_ids: HashSet<String>,
}

impl<'a> NativeHistory<'_, 'a> {
    fn content(&mut self, path: &str, raw: Raw<'a>) -> Result<(), Failure> {
        let BlockContent::Blocks(blocks) = content(path, raw)? else {
            return Ok(());
        };
        blocks.iter().try_for_each(|block| self.block(block))
    }

    /// Reads a block of any kind: a block with its own address or content is searched.
    fn block(&mut self, block: &Block<'a>) -> Result<(), Failure> {
        let object = &block.object;
        match block.kind.as_ref() {
            "tool_use" => {
                let id = object.required_name("id")?;
                self.used_ids.insert(id.decoded().into_owned());
                return Ok(());
            }
            "thinking" => return self.thinking(object),
            _ => {}
        }
        self.nested(
            object,
            if block.kind == "image" {
                MediaKind::Image
            } else {
                MediaKind::File
            },
        )
    }

    /// Judges the addresses in an object, and in those of its members that may have some.
    fn nested(&mut self, object: &RequestObject<'a>, kind: MediaKind) -> Result<(), Failure> {
        self.address(object, kind)?;
        for key in ["source", "image_url"] {
            if let Some(raw) = object.get(key).filter(|raw| raw.get().starts_with('{')) {
                self.address(&RequestObject::of(object.path(key), raw)?, kind)?;
            }
        }
        Ok(())
    }

    /// Judges the address in an object, which the engine would fetch, and searches its content.
    fn address(&mut self, object: &RequestObject<'a>, kind: MediaKind) -> Result<(), Failure> {
        if let Some((raw, url)) = object
            .get("url")
            .and_then(|raw| Some((raw, Text::of(raw)?)))
        {
            let judged = self
                .context
                .rules
                .media
                .judge(url, kind, || object.path("url"))?;
            if let Address::Rewritten(..) = &judged {
                let mut spelled = BytesMut::from(&b"\""[..]);
                judged.write(&mut spelled);
                spelled.put_u8(b'"');
                self.edits
                    .replace(place(self.text, raw.get()), spelled.to_vec());
            }
        }
        match object.get("content") {
            Some(raw) if raw.get().starts_with('[') => self.content(&object.path("content"), raw),
            Some(raw) if raw.get().starts_with('{') => {
                self.nested(&RequestObject::of(object.path("content"), raw)?, kind)
            }
            _ => Ok(()),
        }
    }

    /// Puts the text back into thinking that was sent without it. The engine checks all other thinking itself.
    fn thinking(&mut self, object: &RequestObject<'a>) -> Result<(), Failure> {
        let member = |key: &str| object.get(key).and_then(Text::of);
        let (Some(text), Some(signature)) = (member("thinking"), member("signature")) else {
            return Ok(());
        };
        if let (true, Some(OpenedThinking::Text(sealed)), Some(raw)) = (
            text.is_empty(),
            (self.context.open)(&signature.decoded()),
            object.get("thinking"),
        ) {
            self.edits
                .replace(place(self.text, raw.get()), quoted(&sealed));
        }
        Ok(())
    }
}

/// Returns what stays the same of a content in all turns of a conversation: clients move their marks for caching from
/// turn to turn, and billing text changes with each request.
fn lasting(raw: Raw<'_>) -> String {
    let lasting = |block: &Block<'_>| match block.object.text("text") {
        Ok(Some(text)) => text.decoded().into_owned(),
        _ => block
            .object
            .get("source")
            .map_or_else(String::new, |source| source.get().to_owned()),
    };
    match content("", raw) {
        Ok(BlockContent::Text(text)) => text.decoded().into_owned(),
        Ok(BlockContent::Blocks(blocks)) => blocks
            .iter()
            .filter(|block| !is_billing(block))
            .map(lasting)
            .collect::<Vec<_>>()
            .join("\n"),
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
    let Ok(BlockContent::Blocks(blocks)) = content("system", system) else {
        return false;
    };
    let elements: Vec<Raw<'_>> = json::elements(system.get()).into_iter().flatten().collect();
    let all: Vec<_> = elements
        .iter()
        .zip(&blocks)
        .map(|(raw, block)| (place(text, raw.get()), is_billing(block)))
        .collect();
    let mut is_found = false;
    for run in all.chunk_by(|(_, one), (_, other)| one == other) {
        let (Some((first, true)), Some((last, _))) = (run.first(), run.last()) else {
            continue;
        };
        is_found = true;
        // A run goes with the comma after it, and the last one with the comma before it.
        let before = all.iter().rfind(|(at, _)| at.end <= first.start);
        let range = match (all.iter().find(|(at, _)| at.start >= last.end), before) {
            (Some((next, _)), _) => first.start..next.start,
            (None, Some((before, _))) => before.end..last.end,
            (None, None) => first.start..last.end,
        };
        edits.replace(range, "");
    }
    is_found
}
