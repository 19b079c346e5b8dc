//! Decoder of Anthropic's Messages, for engines whose own route is used (messages 9).
//!
//! Takes: events, or a whole message. Gives: text, thinking with its signatures, calls, and blocks that samewire does
//! not model. Remembers: the open calls and the blocks of the last kind, and the counts so far. Never: invents a
//! finish.
//!
//! Evidence: captures `other-anthropic-messages-stream` of vLLM 0.21.0 and SGLang 0.5.12.

use super::members::object;
use super::{
    BadField, Decode, EventSink, FinishWord, FrameText, ReadOptions, classify, known_reason,
    read_finish,
};
use crate::json::{Raw, Text, compacted, integer, object, read};
use crate::wire::event::{
    CallSource, ChunkUsage, Delta, Event, Finish, FrameExtras, Head, ItemStage, Reason, ToolEntry,
    ToolKind, Usage,
};
use crate::wire::fault::{Failure, Fault, is_error_object};
use crate::wire::options::PromoteReasoning;
use crate::wire::rule::Rule;
use crate::wire::sse::Frame;

/// Most open calls of one message, and most blocks that are neither text, thinking nor a call.
const MAX_BLOCKS: usize = 4096;

object! {
    /// Event of a stream.
    struct MessagesEvent<'a> {
        kind: Raw<'a> = "type",
        object: Raw<'a> = "object",
        error: Raw<'a> = "error",
        message: Raw<'a> = "message",
        index: Raw<'a> = "index",
        content_block: Raw<'a> = "content_block",
        delta: Raw<'a> = "delta",
        usage: Raw<'a> = "usage",
    }
}
object! {
    /// Message, whole or as it begins; also the object `delta` of `message_delta`.
    struct MessageBody<'a> {
        id: Raw<'a> = "id",
        model: Raw<'a> = "model",
        content: Raw<'a> = "content",
        stop_reason: Raw<'a> = "stop_reason",
        stop_sequence: Raw<'a> = "stop_sequence",
        usage: Raw<'a> = "usage",
    }
}
object! {
    /// Content block, or a delta of one.
    struct BlockBody<'a> {
        kind: Raw<'a> = "type",
        text: Text<'a> = "text",
        thinking: Text<'a> = "thinking",
        signature: Text<'a> = "signature",
        id: Text<'a> = "id",
        name: Text<'a> = "name",
        input: Raw<'a> = "input",
        partial_json: Text<'a> = "partial_json",
    }
}
object! {
    struct MessagesUsage<'a> {
        input: Raw<'a> = "input_tokens",
        output: Raw<'a> = "output_tokens",
        cache_read: Raw<'a> = "cache_read_input_tokens",
        cache_write: Raw<'a> = "cache_creation_input_tokens",
        details: Raw<'a> = "output_tokens_details",
    }
}
object! {
    struct OutputDetails<'a> { thinking: Raw<'a> = "thinking_tokens", }
}

/// Decoder state of one message.
pub(super) struct MessagesDecoder {
    reading: ReadOptions,
    /// Counts so far: `message_start` has those of the prompt, `message_delta` all.
    counted: Usage,
    /// True while the counts of `message_start` wait for the first delta, whose frame carries them.
    has_new_counts: bool,
    /// Indices of the open calls, each with the input that came with its start. Some engines repeat it in deltas.
    calls: Vec<(u64, Option<String>)>,
    /// Indices of the open blocks that samewire does not model, with their slots.
    foreign: Vec<(u64, u32)>,
    /// Number of blocks that samewire does not model.
    slots: u32,
}

impl Decode for MessagesDecoder {
    fn frame(&mut self, frame: Frame<'_>, to: &mut dyn EventSink) {
        let (name, whole, is_error) = (frame.name, frame.whole, frame.error);
        if is_error {
            return fail(std::str::from_utf8(frame.data).unwrap_or_default(), to);
        }
        let read = match classify(frame) {
            FrameText::Done => return to.event(Event::End),
            FrameText::Fail(failure) => {
                to.count_rule(Rule::ErrorShape);
                return to.event(Event::Fail(failure));
            }
            FrameText::Chunk(text) if whole => self.whole(text, to),
            FrameText::Chunk(text) => self.event(text, name, to),
        };
        if read.is_err() {
            to.event(Event::Fail(Fault::InvalidEvent.into()));
        }
    }
}

/// Reports the failure that an error object describes, with the engine's type as samewire's own.
fn fail(data: &str, to: &mut dyn EventSink) {
    to.count_rule(Rule::ErrorShape);
    let told: MessagesEvent<'_> = read(data).unwrap_or_default();
    let inner: BlockBody<'_> = told
        .error
        .and_then(|error| read(error.get()).ok())
        .unwrap_or_default();
    let fault = match word(inner.kind).as_deref() {
        Some("invalid_request_error") => Some(Fault::InvalidRequest),
        Some("authentication_error") => Some(Fault::Upstream),
        Some("rate_limit_error") => Some(Fault::RateLimit),
        Some("timeout_error") => Some(Fault::Timeout),
        Some("overloaded_error") => Some(Fault::EngineOverloaded),
        _ => None,
    };
    let read = Failure::of_event(data, true).unwrap_or_else(|| Fault::Internal.into());
    let failure = match fault {
        Some(fault) if read.code.as_deref() == Some("internal_error") => {
            let Failure {
                message, engine, ..
            } = read;
            let mut failure = Failure::from(fault).with_message(message);
            failure.engine = engine;
            failure
        }
        _ => read,
    };
    to.event(Event::Fail(failure));
}

/// Returns the decoded characters of a string, which may be empty; `None` for anything else.
fn word(raw: Option<Raw<'_>>) -> Option<String> {
    raw.and_then(Text::of)
        .map(|text| text.decoded().into_owned())
}

impl MessagesDecoder {
    pub(super) fn new(reading: ReadOptions) -> Self {
        Self {
            reading,
            counted: Usage::default(),
            has_new_counts: false,
            calls: Vec::new(),
            foreign: Vec::new(),
            slots: 0,
        }
    }

    fn event(&mut self, data: &str, name: &[u8], to: &mut dyn EventSink) -> Result<(), BadField> {
        let told: MessagesEvent<'_> = read(data).map_err(|_| BadField)?;
        let kind = word(told.kind).unwrap_or_else(|| String::from_utf8_lossy(name).into_owned());
        let index = told.index.and_then(integer);
        match kind.as_str() {
            "message_start" => self.start(told.message, to)?,
            "content_block_start" => {
                let raw = told.content_block.ok_or(BadField)?;
                self.block_start(index.ok_or(BadField)?, raw, to)?;
            }
            "content_block_delta" => {
                let raw = told.delta.ok_or(BadField)?;
                self.block_delta(index.ok_or(BadField)?, raw, to)?;
            }
            "content_block_stop" => self.block_stop(index.ok_or(BadField)?, to),
            "message_delta" => {
                self.count(told.usage);
                let delta: MessageBody<'_> = object(told.delta);
                self.finish(&delta, to)?;
                to.event(Event::Usage {
                    usage: self.counted,
                    alone: false,
                    extras: FrameExtras::default(),
                });
            }
            "message_stop" => to.event(Event::End),
            "ping" => {}
            _ if told.error.is_some() || is_error_object(told.object, told.kind) => fail(data, to),
            _ => to.count_rule(Rule::EventDropped),
        }
        Ok(())
    }

    fn whole(&mut self, data: &str, to: &mut dyn EventSink) -> Result<(), BadField> {
        let told: MessagesEvent<'_> = read(data).map_err(|_| BadField)?;
        if told.error.is_some() {
            fail(data, to);
            return Ok(());
        }
        let message: MessageBody<'_> = read(data).map_err(|_| BadField)?;
        let blocks: Vec<Raw<'_>> =
            read(message.content.ok_or(BadField)?.get()).map_err(|_| BadField)?;
        head(&message, to);
        self.count(message.usage);
        let promotes = self.reading.promote_reasoning == PromoteReasoning::Always;
        match known_reason(message.stop_reason) {
            Some(Reason::Length) => to.cut_text(0),
            Some(Reason::Stop) if promotes && blocks.len() == 1 => to.only_text(0),
            _ => {}
        }
        for (index, raw) in (0..).zip(blocks) {
            self.block_start(index, raw, to)?;
            self.block_stop(index, to);
        }
        self.finish(&message, to)?;
        to.event(Event::Usage {
            usage: self.counted,
            alone: false,
            extras: FrameExtras::default(),
        });
        Ok(())
    }

    fn start(&mut self, message: Option<Raw<'_>>, to: &mut dyn EventSink) -> Result<(), BadField> {
        let message: MessageBody<'_> =
            read(message.ok_or(BadField)?.get()).map_err(|_| BadField)?;
        head(&message, to);
        self.count(message.usage);
        self.has_new_counts = true;
        self.emit(Delta::Role, to);
        Ok(())
    }

    fn block_start(
        &mut self,
        index: u64,
        raw: Raw<'_>,
        to: &mut dyn EventSink,
    ) -> Result<(), BadField> {
        let block: BlockBody<'_> = read(raw.get()).map_err(|_| BadField)?;
        match word(block.kind).as_deref() {
            Some("text") => self.emit_text(block.text, Delta::Content, to),
            Some("thinking") => self.emit_thinking(&block, to),
            Some("tool_use") => {
                let (id, name) = (block.id, Some(block.name.ok_or(BadField)?));
                let early = block
                    .input
                    .map(compacted)
                    .filter(|input| input != "{}" && input != "null");
                if self.calls.len() >= MAX_BLOCKS {
                    return Err(BadField);
                }
                self.calls.push((index, early));
                self.emit_call(
                    ToolEntry {
                        index: Some(index),
                        id,
                        name,
                        ..NO_ENTRY
                    },
                    to,
                );
            }
            Some(kind) => {
                if self.slots as usize >= MAX_BLOCKS {
                    return Err(BadField);
                }
                self.foreign.push((index, self.slots));
                let slot = Some(self.slots);
                self.slots += 1;
                to.event(Event::Foreign {
                    name: kind,
                    slot,
                    stage: ItemStage::Added,
                    data: raw,
                });
            }
            None => return Err(BadField),
        }
        Ok(())
    }

    fn block_delta(
        &mut self,
        index: u64,
        raw: Raw<'_>,
        to: &mut dyn EventSink,
    ) -> Result<(), BadField> {
        let delta: BlockBody<'_> = read(raw.get()).map_err(|_| BadField)?;
        let kind = word(delta.kind).unwrap_or_default();
        if let Some((_, slot)) = self.foreign.iter().find(|(open, _)| *open == index) {
            let slot = Some(*slot);
            to.event(Event::Foreign {
                name: &kind,
                slot,
                stage: ItemStage::Told,
                data: raw,
            });
            return Ok(());
        }
        // Some proxies number a call's input apart from its start.
        let index = match self.calls.last() {
            Some((last, _)) if !self.calls.iter().any(|(call, _)| *call == index) => *last,
            _ => index,
        };
        match kind.as_str() {
            "text_delta" => self.emit_text(Some(delta.text.ok_or(BadField)?), Delta::Content, to),
            "thinking_delta" | "signature_delta" => self.emit_thinking(&delta, to),
            "input_json_delta" => {
                let args = delta.partial_json.ok_or(BadField)?;
                if args.is_empty() {
                    return Ok(());
                }
                if let Some((_, early)) = self.calls.iter_mut().find(|(call, _)| *call == index) {
                    *early = None;
                }
                self.emit_call(
                    ToolEntry {
                        index: Some(index),
                        args: Some(args),
                        ..NO_ENTRY
                    },
                    to,
                );
            }
            _ => to.count_rule(Rule::EventDropped),
        }
        Ok(())
    }

    /// Ends a block: a block of the same kind that follows is a new one.
    fn block_stop(&mut self, index: u64, to: &mut dyn EventSink) {
        if let Some(at) = self.foreign.iter().position(|(open, _)| *open == index) {
            let (_, slot) = self.foreign.remove(at);
            let data = Raw::of("null").unwrap_or_default();
            to.event(Event::Foreign {
                name: "",
                slot: Some(slot),
                stage: ItemStage::Done,
                data,
            });
            return;
        }
        if let Some(at) = self.calls.iter().position(|(call, _)| *call == index) {
            let (_, early) = self.calls.remove(at);
            if let Some(input) = early {
                let args = Some(Text::plain(&input));
                self.emit_call(
                    ToolEntry {
                        index: Some(index),
                        args,
                        ..NO_ENTRY
                    },
                    to,
                );
            }
            to.delta(
                0,
                Delta::Done {
                    slot: u32::try_from(index).ok(),
                    cut: false,
                },
                FrameExtras::default(),
            );
            return;
        }
        to.delta(0, Delta::Break, FrameExtras::default());
    }

    fn emit_thinking(&mut self, block: &BlockBody<'_>, to: &mut dyn EventSink) {
        if self.reading.hide_reasoning {
            return;
        }
        // Some proxies write the thinking of a delta under `text`.
        let thinking = block
            .thinking
            .filter(|thinking| !thinking.is_empty())
            .or(block.text);
        self.emit_text(thinking, Delta::Reasoning, to);
        self.emit_text(
            block.signature,
            |text| Delta::Sealed { text, late: false },
            to,
        );
    }

    fn emit_text<'a>(
        &mut self,
        text: Option<Text<'a>>,
        delta: impl FnOnce(Text<'a>) -> Delta<'a>,
        to: &mut dyn EventSink,
    ) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.emit(delta(text), to);
        }
    }

    fn emit(&mut self, delta: Delta<'_>, to: &mut dyn EventSink) {
        let extras = self.extras();
        let left = to.delta(0, delta, extras);
        self.has_new_counts = left.usage.is_some();
    }

    fn emit_call(&mut self, entry: ToolEntry<'_>, to: &mut dyn EventSink) {
        let extras = self.extras();
        to.tool(0, entry, extras);
        self.has_new_counts = false;
    }

    /// Returns extras with the counts of `message_start`, if no frame has carried them yet.
    fn extras(&self) -> FrameExtras<'static> {
        let usage = self.has_new_counts.then(|| {
            Box::new(ChunkUsage {
                usage: self.counted,
                last: false,
            })
        });
        FrameExtras {
            usage,
            ..FrameExtras::default()
        }
    }

    /// Adds counts. Later ones replace earlier ones, but a zero at the end does not undo a count from the start.
    fn count(&mut self, usage: Option<Raw<'_>>) {
        let usage: MessagesUsage<'_> = object(usage);
        let number = |raw: Option<Raw<'_>>| raw.and_then(integer);
        let written = self.counted.cache_write.unwrap_or(0);
        let uncached = self
            .counted
            .prompt
            .saturating_sub(self.counted.cached)
            .saturating_sub(written);
        let input = number(usage.input)
            .filter(|count| *count > 0)
            .unwrap_or(uncached);
        let cached = number(usage.cache_read)
            .filter(|count| *count > 0)
            .unwrap_or(self.counted.cached);
        let cache_write = number(usage.cache_write)
            .filter(|count| *count > 0)
            .or(self.counted.cache_write);
        let prompt = input
            .saturating_add(cached)
            .saturating_add(cache_write.unwrap_or(0));
        let completion = number(usage.output).unwrap_or(self.counted.completion);
        let total = prompt.saturating_add(completion);
        let details: OutputDetails<'_> = object(usage.details);
        let reasoning = number(details.thinking).or(self.counted.reasoning);
        self.counted = Usage {
            prompt,
            completion,
            total,
            cached,
            cache_write,
            reasoning,
            ..self.counted
        };
    }

    fn finish(
        &mut self,
        message: &MessageBody<'_>,
        to: &mut dyn EventSink,
    ) -> Result<(), BadField> {
        let (finish, _) = read_finish(message.stop_reason)?;
        match finish {
            FinishWord::No => {}
            FinishWord::Aborted => to.event(Event::Fail(Fault::Aborted.into())),
            FinishWord::Finish(reason) => {
                let finish = Finish {
                    reason,
                    stop: message.stop_sequence,
                };
                to.delta(0, Delta::Finish(finish), FrameExtras::default());
            }
        }
        Ok(())
    }
}

/// Entry of a call with nothing in it.
const NO_ENTRY: ToolEntry<'static> = ToolEntry {
    index: None,
    id: None,
    name: None,
    namespace: None,
    args: None,
    kind: ToolKind::Function,
    whole: false,
    source: CallSource::Engine,
};

fn head(message: &MessageBody<'_>, to: &mut dyn EventSink) {
    let id = word(message.id).unwrap_or_default();
    let id = id.strip_prefix("msg_").unwrap_or(&id);
    to.event(Event::Head(Head {
        id: Some(Text::plain(id)).filter(|id| !id.is_empty()),
        model: message.model.and_then(Text::of),
        ..Head::default()
    }));
}
