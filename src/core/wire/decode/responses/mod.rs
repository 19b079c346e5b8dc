//! Decoder of Responses answers (wire-format 4.8).
//!
//! Takes: events, or a whole object, which is read like the object of the terminal event. Gives: text, calls and
//! foreign items, each once, however often and under however many ids the engine sends them. Remembers: the items,
//! and how much of each has been emitted. Never: uses an engine's number or id for more than to tell items apart.
//!
//! Evidence: fixtures `vllm/responses-*` and `sglang/responses-*`; other versions from engines D.

mod body;
mod items;
mod late;

use super::members::{list, object, string, text};
use super::{BadField, Decode, EventSink, FrameText, ReadOptions, classify, seconds};
use crate::json::{Raw, Text, compacted, integer, read};
use crate::wire::event::{
    CallSource, Delta, Event, FrameExtras, Head, ItemStage, Logprobs, TokenLogprob, ToolEntry,
    ToolKind,
};
use crate::wire::fault::{Failure, Fault, is_error_object};
use crate::wire::rule::Rule;
use crate::wire::sse::Frame;
use body::{Body, CallItems, Context, EventBody, ItemBody, ItemPart, OldCall};
use items::{AnswerItem, AnswerItems, EmittedText, ItemKind, TextProgress};

/// Limit on the items of one answer. Models make a handful; the cost of telling items apart grows with their
/// number.
const MAX_ITEMS: usize = 4096;

/// Decoder state of one Responses answer: its items, and how far it is.
pub(super) struct ResponsesDecoder {
    reading: ReadOptions,
    /// True once a head event has been emitted.
    has_head: bool,
    items: AnswerItems,
    /// Index of the item that the latest text belongs to.
    current: Option<usize>,
    /// True if an item has ended too early.
    cut: bool,
    /// Number of calls and foreign items, which is the slot of the next.
    slots: u32,
    /// True after the terminal event, if an event for rate limits may still follow.
    awaits_limits: bool,
}

/// Kind of text that an event carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextKind {
    Content,
    Refusal,
    Reasoning,
    Summary,
}

/// Kinds of text by the stem of the event names, including those of older descriptions of the API.
const TEXT_STEMS: [(&str, TextKind); 6] = [
    ("output_text", TextKind::Content),
    ("refusal", TextKind::Refusal),
    ("reasoning_text", TextKind::Reasoning),
    ("reasoning", TextKind::Reasoning),
    ("reasoning_summary_text", TextKind::Summary),
    ("reasoning.summary", TextKind::Summary),
];

impl TextKind {
    fn of(name: &str) -> Option<(&'static str, Self)> {
        TEXT_STEMS.iter().find(|(known, _)| *known == name).copied()
    }

    fn kind(self) -> ItemKind {
        match self {
            Self::Content | Self::Refusal => ItemKind::Message,
            Self::Reasoning | Self::Summary => ItemKind::Reasoning,
        }
    }

    fn channel(self, item: &mut AnswerItem) -> &mut TextProgress {
        match self {
            Self::Content | Self::Reasoning => &mut item.text,
            Self::Refusal => &mut item.refusal,
            Self::Summary => &mut item.summary,
        }
    }

    fn delta(self, text: Text<'_>) -> Delta<'_> {
        match self {
            Self::Content => Delta::Content(text),
            Self::Refusal => Delta::Refusal(text),
            Self::Reasoning => Delta::Reasoning(text),
            Self::Summary => Delta::Summary(text),
        }
    }
}

/// Emits the engine's rate limits if they are an object; counts the event as dropped otherwise.
fn limits(told: &EventBody<'_>, to: &mut dyn EventSink) {
    match told.limits.filter(|limits| limits.get().starts_with('{')) {
        Some(limits) => to.event(Event::Limits(limits)),
        None => to.count_rule(Rule::EventDropped),
    }
}

impl Decode for ResponsesDecoder {
    fn frame(&mut self, frame: Frame<'_>, to: &mut dyn EventSink) {
        let (name, whole) = (frame.name, frame.whole);
        let read = match classify(frame) {
            FrameText::Done => return to.event(Event::End),
            FrameText::Chunk(text) if self.awaits_limits => return self.last_limits(text, to),
            FrameText::Fail(_) if self.awaits_limits => return to.count_rule(Rule::AfterDone),
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

impl ResponsesDecoder {
    pub(super) fn new(reading: ReadOptions) -> Self {
        Self {
            reading,
            has_head: false,
            items: AnswerItems::default(),
            current: None,
            cut: false,
            slots: 0,
            awaits_limits: false,
        }
    }

    fn event(&mut self, data: &str, name: &[u8], to: &mut dyn EventSink) -> Result<(), BadField> {
        let told: EventBody<'_> = read(data).map_err(|_| BadField)?;
        let name = string(told.kind).unwrap_or_else(|| String::from_utf8_lossy(name).into_owned());
        let Some(name) = name
            .strip_prefix("response.")
            .filter(|name| *name != "error")
        else {
            if told.error.is_some()
                || name == "response.error"
                || is_error_object(told.object, told.kind)
            {
                self.fail(data, to);
            } else {
                to.count_rule(Rule::EventDropped);
            }
            return Ok(());
        };
        match name {
            "created" | "in_progress" | "queued" => {
                self.head(&object(told.response), to);
                return Ok(());
            }
            "completed" | "incomplete" | "failed" | "cancelled" => {
                return self.terminal(&object(told.response), name, data, to);
            }
            _ if !self.has_head => self.head(&Body::default(), to),
            _ => {}
        }
        match name.rsplit_once('.') {
            Some((stem, "delta")) => return self.delta(stem, &told, data, to),
            Some((stem, "done")) => return self.done(stem, &told, data, to),
            Some(("output_item", "added")) => return self.item_added(told.item, to),
            Some(("content_part" | "reasoning_summary_part", "added")) => self.part_added(&told),
            Some(("reasoning_part" | "reasoning.summary", "added")) => {}
            Some(("output_text.annotation", "added")) => self.annotation(&told, to),
            _ if name == "rate_limits.updated" => limits(&told, to),
            _ if name == "additional_context" => self.context(&object(told.context), to),
            _ => self.foreign(name, &told, data, to),
        }
        Ok(())
    }

    /// Reads an event after the terminal one. Ends the answer if it is that of the rate limits, and ignores others.
    fn last_limits(&mut self, data: &str, to: &mut dyn EventSink) {
        let told: EventBody<'_> = read(data).unwrap_or_default();
        if string(told.kind).as_deref() != Some("response.rate_limits.updated") {
            return to.count_rule(Rule::AfterDone);
        }
        limits(&told, to);
        to.event(Event::End);
    }

    fn fail(&mut self, data: &str, to: &mut dyn EventSink) {
        to.count_rule(Rule::ErrorShape);
        let mut failure = Failure::of_event(data, true).unwrap_or_else(|| Fault::Internal.into());
        // Errors of this API have a code and no type.
        let told: EventBody<'_> = read(data).unwrap_or_default();
        let of_response: EventBody<'_> = object(told.response);
        let inner: EventBody<'_> = object(told.error.or(of_response.error));
        let named = string(told.code.or(inner.code)).and_then(|code| Fault::of_code(&code));
        if let Some(fault) = named.filter(|_| failure.code.as_deref() == Some("internal_error")) {
            let Failure {
                message,
                param,
                engine,
                ..
            } = failure;
            failure = Failure::from(fault).with_message(message);
            (failure.param, failure.engine) = (param, engine);
        }
        to.event(Event::Fail(failure));
    }

    fn head(&mut self, body: &Body<'_>, to: &mut dyn EventSink) {
        self.has_head = true;
        to.event(Event::Head(Head {
            id: body.id.and_then(Text::of),
            created: body.created.and_then(integer).map(seconds),
            model: body.model.and_then(Text::of),
            ..Head::default()
        }));
    }

    // === events ===

    fn delta(
        &mut self,
        stem: &str,
        told: &EventBody<'_>,
        data: &str,
        to: &mut dyn EventSink,
    ) -> Result<(), BadField> {
        if stem == "tool_call" {
            return self.old_calls(told.delta, to);
        }
        let id = string(told.item_id);
        if let Some((stem, voice)) = TextKind::of(stem) {
            let text = told.delta.and_then(Text::of).ok_or(BadField)?;
            if text.is_empty() {
                return Ok(());
            }
            let at = self.open(&voice.kind(), id.as_deref())?;
            let logprobs = self.logprobs(told.logprobs.filter(|_| voice == TextKind::Content), to);
            if self.is_source(at, voice, stem) {
                self.emit_text(at, voice, text, logprobs, to);
            } else {
                to.count_rule(Rule::EventDropped);
            }
            return Ok(());
        }
        let Some(kind) = call_kind(stem) else {
            self.foreign(&format!("{stem}.delta"), told, data, to);
            return Ok(());
        };
        let at = self.open(&kind, id.as_deref())?;
        let piece = told.delta.map(json_spelling).unwrap_or_default();
        self.emit_arguments(at, &piece, to);
        Ok(())
    }

    fn done(
        &mut self,
        stem: &str,
        told: &EventBody<'_>,
        data: &str,
        to: &mut dyn EventSink,
    ) -> Result<(), BadField> {
        let id = string(told.item_id);
        if stem == "output_item" {
            return self.item_done(told.item, to);
        }
        if let Some((stem, voice)) = TextKind::of(stem) {
            return self.text_done(voice, Some(stem), id.as_deref(), told.text, to);
        }
        if let Some(kind) = call_kind(stem) {
            let Some(at) = self.item_of_whole_text(&kind, id.as_deref(), told.arguments)? else {
                return Ok(());
            };
            let named = ItemBody {
                name: told.name,
                ..ItemBody::default()
            };
            self.emit_name(at, &named, to);
            self.emit_rest_of_arguments(at, told.arguments, to);
            return Ok(());
        }
        let part: ItemPart<'_> = object(told.part);
        let voice = match (stem, string(part.kind).as_deref()) {
            ("reasoning_part", _) | ("content_part", Some("reasoning_text")) => TextKind::Reasoning,
            ("reasoning_summary_part", _) => TextKind::Summary,
            ("content_part", Some("refusal")) => TextKind::Refusal,
            // SGLang opens reasoning with a part of this type (fixtures/sglang/responses-gptoss-reasoning).
            ("content_part", _)
                if self.items.kind_of(id.as_deref()) == Some(&ItemKind::Reasoning) =>
            {
                TextKind::Reasoning
            }
            ("content_part", _) => TextKind::Content,
            _ => {
                self.foreign(&format!("{stem}.done"), told, data, to);
                return Ok(());
            }
        };
        self.text_done(voice, None, id.as_deref(), part.text, to)?;
        if let Some(at) = self.items.open(&voice.kind(), id.as_deref()) {
            self.annotations(at, &list(part.annotations), to);
            self.emit_tokens(at, &[part], to);
        }
        Ok(())
    }

    /// Notes that a part begins, so that earlier text does not count as its own.
    fn part_added(&mut self, told: &EventBody<'_>) {
        let id = string(told.item_id);
        let Some(kind) = self.items.kind_of(id.as_deref()) else {
            return;
        };
        let at = self.items.open(kind, id.as_deref());
        if let Some(item) = at.and_then(|at| self.items.0.get_mut(at)) {
            for channel in [&mut item.text, &mut item.refusal, &mut item.summary] {
                channel.part = EmittedText::default();
            }
        }
    }

    fn text_done(
        &mut self,
        voice: TextKind,
        stem: Option<&'static str>,
        id: Option<&str>,
        whole: Option<Raw<'_>>,
        to: &mut dyn EventSink,
    ) -> Result<(), BadField> {
        let Some(at) = self.item_of_whole_text(&voice.kind(), id, text(whole).and(whole))? else {
            return Ok(());
        };
        if stem.is_none_or(|stem| self.is_source(at, voice, stem)) {
            let Some(item) = self.items.0.get_mut(at) else {
                return Ok(());
            };
            let channel = voice.channel(item);
            let (part, total) = (channel.part, channel.total);
            let whole = whole.map(json_spelling).unwrap_or_default();
            if total.rest(&whole).is_none_or(|rest| !rest.is_empty()) {
                self.emit_rest(at, voice, &whole, part, to);
            }
        }
        Ok(())
    }

    fn annotation(&mut self, told: &EventBody<'_>, to: &mut dyn EventSink) {
        let at = self
            .items
            .open(&ItemKind::Message, string(told.item_id).as_deref());
        if let Some((at, annotation)) = at.zip(told.annotation) {
            self.annotate(at, annotation, to);
        }
    }

    /// Reads calls in the older form of the API, each complete. Ignores calls that are already known. Fails if
    /// there are too many items.
    fn old_calls(
        &mut self,
        delta: Option<Raw<'_>>,
        to: &mut dyn EventSink,
    ) -> Result<(), BadField> {
        let calls: CallItems<'_> = object(delta);
        for call in list::<OldCall<'_>>(calls.content) {
            let id = string(call.id);
            let known = self.items.call(None, id.as_deref()).is_some();
            if known || string(call.kind).is_some_and(|kind| kind != "tool_call") {
                to.count_rule(Rule::EventDropped);
                continue;
            }
            let body = ItemBody {
                call_id: call.id,
                name: call.name,
                arguments: call.arguments,
                ..ItemBody::default()
            };
            let at = self.begin(ItemKind::Function, None)?;
            self.complete(at, &body, to);
            self.close(at, false, to);
        }
        Ok(())
    }

    fn context(&mut self, context: &Context<'_>, to: &mut dyn EventSink) {
        let last = self
            .items
            .0
            .iter()
            .rposition(|item| item.kind == ItemKind::Reasoning && item.emitted);
        if let Some((at, sealed)) = last.zip(text(context.encrypted)) {
            self.seal(at, sealed, to);
        }
    }

    /// Emits an event of a foreign item; counts it as dropped if no such item is open.
    fn foreign(&mut self, name: &str, told: &EventBody<'_>, data: &str, to: &mut dyn EventSink) {
        let family = name.split('.').next().unwrap_or_default();
        let at = self.items.foreign(family, string(told.item_id).as_deref());
        let Some(item) = at.and_then(|at| self.items.0.get(at)) else {
            return to.count_rule(Rule::EventDropped);
        };
        let Some(data) = Raw::of(data) else { return };
        let name = format!("response.{name}");
        to.event(Event::Foreign {
            name: &name,
            slot: Some(item.slot),
            stage: ItemStage::Told,
            data,
        });
    }

    // === items ===

    fn item_added(&mut self, raw: Option<Raw<'_>>, to: &mut dyn EventSink) -> Result<(), BadField> {
        let body: ItemBody<'_> = object(raw);
        let Some((kind, raw)) = ItemKind::of(&body).zip(raw) else {
            return Ok(());
        };
        let (id, call_id) = (string(body.id.or(body.item_id)), string(body.call_id));
        let at = match self
            .items
            .find_announced(&kind, id.as_deref(), call_id.as_deref())
        {
            Some(at) => at,
            None => self.begin(kind.clone(), id.as_deref())?,
        };
        if let ItemKind::Foreign(_) = &kind {
            self.emit_foreign(at, ItemStage::Added, raw, to);
        }
        self.emit_name(at, &body, to);
        Ok(())
    }

    fn item_done(&mut self, raw: Option<Raw<'_>>, to: &mut dyn EventSink) -> Result<(), BadField> {
        let body: ItemBody<'_> = object(raw);
        let Some((kind, raw)) = ItemKind::of(&body).zip(raw) else {
            return Ok(());
        };
        let (id, call_id) = (string(body.id.or(body.item_id)), string(body.call_id));
        let at = match self
            .items
            .find_completed(&kind, id.as_deref(), call_id.as_deref())
        {
            Some(at) => at,
            None if self.items.kind_of(id.as_deref()) == Some(&kind) => {
                to.count_rule(Rule::EventDropped);
                return Ok(());
            }
            None => self.begin(kind.clone(), id.as_deref())?,
        };
        if let ItemKind::Foreign(_) = kind {
            self.end_foreign(at, raw, to);
            return Ok(());
        }
        self.complete(at, &body, to);
        self.close(at, string(body.status).as_deref() == Some("incomplete"), to);
        Ok(())
    }

    /// Returns the open item of a kind, or creates one. Fails if there are too many items.
    fn open(&mut self, kind: &ItemKind, id: Option<&str>) -> Result<usize, BadField> {
        match self.items.open(kind, id) {
            Some(at) => Ok(at),
            None => self.begin(kind.clone(), id),
        }
    }

    /// Returns the item whose complete text an event carries: the open one, or a new one. `None` if the text
    /// repeats that of an ended item. Fails if there are too many items.
    fn item_of_whole_text(
        &mut self,
        kind: &ItemKind,
        id: Option<&str>,
        whole: Option<Raw<'_>>,
    ) -> Result<Option<usize>, BadField> {
        if let Some(at) = self.items.open(kind, id) {
            return Ok(Some(at));
        }
        let Some(whole) = whole.map(json_spelling) else {
            return Ok(None);
        };
        let has = |item: &AnswerItem| {
            item.kind == *kind
                && [&item.text, &item.refusal, &item.summary]
                    .iter()
                    .any(|channel| channel.total.rest(&whole).is_some_and(str::is_empty))
        };
        if self.items.kind_of(id) == Some(kind) || self.items.0.iter().any(has) {
            return Ok(None);
        }
        self.begin(kind.clone(), id).map(Some)
    }

    fn begin(&mut self, kind: ItemKind, id: Option<&str>) -> Result<usize, BadField> {
        if self.items.0.len() >= MAX_ITEMS {
            return Err(BadField);
        }
        let slot = self.slots;
        if !matches!(kind, ItemKind::Message | ItemKind::Reasoning) {
            self.slots += 1;
        }
        self.items.0.push(AnswerItem::new(kind, id, slot));
        Ok(self.items.0.len() - 1)
    }

    fn close(&mut self, at: usize, cut: bool, to: &mut dyn EventSink) {
        let Some(item) = self.items.0.get_mut(at) else {
            return;
        };
        if !std::mem::replace(&mut item.open, false) {
            return;
        }
        self.cut |= cut;
        let slot = item.kind.is_call().then_some(item.slot);
        if slot.is_some() || self.current.take_if(|current| *current == at).is_some() {
            to.delta(0, Delta::Done { slot, cut }, FrameExtras::default());
        }
    }

    // === emitting ===

    /// Returns true if events with this stem carry the text. The first stem seen is the one; others repeat the
    /// text.
    fn is_source(&mut self, at: usize, voice: TextKind, stem: &'static str) -> bool {
        let Some(item) = self.items.0.get_mut(at) else {
            return false;
        };
        *voice.channel(item).name.get_or_insert(stem) == stem
    }

    /// Makes the item the current one. Emits a break if the previous one is of the same kind, so that their texts
    /// are not joined.
    fn make_current(&mut self, at: usize, to: &mut dyn EventSink) {
        let kind = |at: usize| self.items.0.get(at).map(|item| &item.kind);
        if let Some(before) = self.current.filter(|before| *before != at)
            && kind(before) == kind(at)
        {
            to.delta(0, Delta::Break, FrameExtras::default());
        }
        self.current = Some(at);
    }

    fn emit_text(
        &mut self,
        at: usize,
        voice: TextKind,
        text: Text<'_>,
        extras: FrameExtras<'_>,
        to: &mut dyn EventSink,
    ) {
        if text.is_empty() {
            return;
        }
        self.make_current(at, to);
        if let Some(item) = self.items.0.get_mut(at) {
            item.emitted = true;
            let mut spelled = Vec::new();
            text.append_to(&mut spelled);
            let channel = voice.channel(item);
            channel.total.add(&spelled);
            channel.part.add(&spelled);
        }
        to.delta(0, voice.delta(text), extras);
    }

    fn annotate(&mut self, at: usize, annotation: Raw<'_>, to: &mut dyn EventSink) {
        let Some(item) = self.items.0.get_mut(at).filter(|item| item.emitted) else {
            return;
        };
        if self.current == Some(at) {
            item.annotations += 1;
            to.delta(0, Delta::Annotation(annotation), FrameExtras::default());
        }
    }

    /// Emits all tokens of an item's text, if `parts` have their bytes and the client asked for logprobs.
    fn emit_tokens(&self, at: usize, parts: &[ItemPart<'_>], to: &mut dyn EventSink) {
        if !self.reading.logprobs || self.current != Some(at) {
            return;
        }
        let entries: Vec<TokenLogprob<'_>> =
            parts.iter().flat_map(|part| list(part.logprobs)).collect();
        if entries.iter().any(|entry| entry.bytes.is_some()) {
            to.delta(0, Delta::Tokens(entries), FrameExtras::default());
        }
    }

    fn seal(&mut self, at: usize, sealed: Text<'_>, to: &mut dyn EventSink) {
        let Some(item) = self.items.0.get_mut(at) else {
            return;
        };
        if std::mem::replace(&mut item.sealed, true) {
            return;
        }
        let late = item.emitted && self.current != Some(at);
        if !late {
            item.emitted = true;
            self.make_current(at, to);
        }
        to.delta(
            0,
            Delta::Sealed { text: sealed, late },
            FrameExtras::default(),
        );
    }

    fn emit_arguments(&mut self, at: usize, piece: &str, to: &mut dyn EventSink) {
        let Some(item) = self.items.0.get_mut(at).filter(|_| !piece.is_empty()) else {
            return;
        };
        item.text.total.add(piece.as_bytes());
        self.current = None;
        to.tool(
            0,
            entry(item, Some(Text::json(piece))),
            FrameExtras::default(),
        );
    }

    /// Emits a call's name and id, unless they have been emitted.
    fn emit_name(&mut self, at: usize, body: &ItemBody<'_>, to: &mut dyn EventSink) {
        let Some(item) = self
            .items
            .0
            .get_mut(at)
            .filter(|item| item.kind.is_call() && !item.emitted)
        else {
            return;
        };
        let own = |raw: Option<Raw<'_>>| string(raw).map(Into::into);
        item.call_id = item.call_id.take().or_else(|| own(body.call_id));
        item.name = own(body.name);
        let Some(name) = text(body.name) else { return };
        item.emitted = true;
        self.current = None;
        let id = item.call_id.as_deref().map(Text::plain);
        let news = ToolEntry {
            id,
            name: Some(name),
            namespace: text(body.namespace),
            ..entry(item, None)
        };
        to.tool(0, news, FrameExtras::default());
    }

    fn emit_foreign(&mut self, at: usize, stage: ItemStage, data: Raw<'_>, to: &mut dyn EventSink) {
        let Some(item) = self.items.0.get_mut(at) else {
            return;
        };
        let ItemKind::Foreign(name) = &item.kind else {
            return;
        };
        item.emitted = true;
        if stage != ItemStage::Done {
            self.current = None;
        }
        to.event(Event::Foreign {
            name,
            slot: Some(item.slot),
            stage,
            data,
        });
    }

    /// Emits a foreign item as complete.
    fn end_foreign(&mut self, at: usize, data: Raw<'_>, to: &mut dyn EventSink) {
        let Some(item) = self.items.0.get_mut(at).filter(|item| item.open) else {
            return;
        };
        item.open = false;
        let stage = if item.emitted {
            ItemStage::Done
        } else {
            ItemStage::Whole
        };
        self.emit_foreign(at, stage, data, to);
    }

    /// Reads log probabilities; empty extras if the client has not asked for them.
    fn logprobs<'a>(&self, raw: Option<Raw<'a>>, to: &mut dyn EventSink) -> FrameExtras<'a> {
        let entries: Vec<TokenLogprob<'a>> = list(raw);
        if entries.is_empty() {
            return FrameExtras::default();
        }
        if !self.reading.logprobs {
            to.count_rule(Rule::LogprobsUnasked);
            return FrameExtras::default();
        }
        let logprobs = Logprobs::Tokens {
            content: Some(entries),
            refusal: None,
        };
        FrameExtras {
            logprobs: Some(logprobs),
            ..FrameExtras::default()
        }
    }
}

/// Returns the kind of call whose arguments or input events with this stem carry; `None` for other events.
fn call_kind(stem: &str) -> Option<ItemKind> {
    match stem {
        "function_call_arguments" => Some(ItemKind::Function),
        "custom_tool_call_input" => Some(ItemKind::Custom),
        _ => None,
    }
}

/// Builds an entry for the call, with only the fields that every piece of it has.
fn entry<'a>(item: &AnswerItem, args: Option<Text<'a>>) -> ToolEntry<'a> {
    let kind = if item.kind == ItemKind::Custom {
        ToolKind::Custom
    } else {
        ToolKind::Function
    };
    ToolEntry {
        index: Some(u64::from(item.slot)),
        id: None,
        name: None,
        namespace: None,
        args,
        kind,
        whole: false,
        source: CallSource::Engine,
    }
}

/// Returns a text in JSON spelling. A value of another type is serialised, like arguments in chat.
fn json_spelling(raw: Raw<'_>) -> String {
    let mut bytes = Vec::new();
    match Text::of(raw) {
        Some(text) => text.append_to(&mut bytes),
        None => Text::plain(&compacted(raw)).append_to(&mut bytes),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Api;
    use crate::wire::decode::tests::{INVALID, decoded, event, whole};

    const CREATED: &str = r#"{"type":"response.created","response":{"id":"resp_1"}}"#;
    const COMPLETED: &str = r#"{"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[]}}"#;
    const MESSAGE: &str = r#"{"type":"response.output_text.delta","item_id":"m","delta":"a"}"#;
    const LIMITS: &str = r#"{"type":"response.rate_limits.updated","limits":{"a":1}}"#;

    /// Checks what the events after `response.created` report.
    fn check(reading: ReadOptions, events: &[&str], expected: &[&str]) {
        let frames: Vec<_> = std::iter::once(&CREATED)
            .chain(events)
            .map(|data| event(data))
            .collect();
        let found = decoded(Api::Responses, reading, &frames);
        assert_eq!(
            (found[0].as_str(), &found[1..]),
            ("head id=\"resp_1\"", &owned(expected)[..]),
            "{events:#?}"
        );
    }

    fn owned(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|&line| line.to_owned()).collect()
    }

    #[test]
    fn text_comes_once_however_often_it_is_sent() {
        check(
            ReadOptions::default(),
            &[
                r#"{"type":"response.output_item.added","item":{"type":"message","id":"m"}}"#,
                r#"{"type":"response.content_part.added","item_id":"m","part":{"type":"output_text"}}"#,
                r#"{"type":"response.output_text.delta","item_id":"m","delta":"ab"}"#,
                // The second part has its own text.
                r#"{"type":"response.content_part.added","item_id":"m","part":{"type":"output_text"}}"#,
                r#"{"type":"response.output_text.delta","item_id":"m","delta":"x"}"#,
                r#"{"type":"response.output_text.done","item_id":"m","text":"xy"}"#,
                r#"{"type":"response.output_item.done","item":{"type":"message","id":"m","content":[{"type":"output_text","text":"abxy"}]}}"#,
                // Everything of the item again, after it has ended.
                r#"{"type":"response.output_item.done","item":{"type":"message","id":"m","content":[{"type":"output_text","text":"abxy"}]}}"#,
                r#"{"type":"response.output_text.done","item_id":"other","text":"abxy"}"#,
                r#"{"type":"response.output_text.done","item_id":"m","text":"else"}"#,
            ],
            &[
                "0 content \"ab\"",
                "0 content \"x\"",
                "rule ItemLate",
                "0 content \"y\"",
                "0 done",
                "rule EventDropped",
            ],
        );
    }

    #[test]
    fn a_stream_may_begin_without_its_first_event() {
        assert_eq!(
            decoded(Api::Responses, ReadOptions::default(), &[event(MESSAGE)]),
            ["head", "0 content \"a\""]
        );
    }

    #[test]
    fn text_that_only_its_part_carries() {
        let reasoning =
            r#"{"type":"response.output_item.added","item":{"type":"reasoning","id":"r"}}"#;
        for (events, expected) in [
            (
                &[
                    r#"{"type":"response.reasoning_part.added","item_id":"r","part":{"type":"reasoning_text"}}"#,
                ][..],
                &[][..],
            ),
            (
                &[
                    r#"{"type":"response.reasoning_part.done","item_id":"r","part":{"type":"reasoning_text","text":"t"}}"#,
                ],
                &["rule ItemLate", "0 reasoning \"t\""],
            ),
            (
                &[
                    r#"{"type":"response.content_part.done","item_id":"r","part":{"type":"reasoning_text","text":"t"}}"#,
                ],
                &["rule ItemLate", "0 reasoning \"t\""],
            ),
            (
                &[
                    r#"{"type":"response.reasoning_summary_part.done","item_id":"r","part":{"type":"summary_text","text":"s"}}"#,
                ],
                &["rule ItemLate", "0 summary \"s\""],
            ),
            // SGLang calls a part of reasoning a text.
            (
                &[
                    reasoning,
                    r#"{"type":"response.content_part.done","item_id":"r","part":{"type":"output_text","text":"t"}}"#,
                ],
                &["rule ItemLate", "0 reasoning \"t\""],
            ),
        ] {
            check(ReadOptions::default(), events, expected);
        }
    }

    #[test]
    fn annotations_come_once() {
        check(
            ReadOptions::default(),
            &[
                MESSAGE,
                r#"{"type":"response.output_text.annotation.added","item_id":"m","annotation":{"n":1}}"#,
                r#"{"type":"response.content_part.done","item_id":"m","part":{"type":"output_text","text":"a","annotations":[{"n":1},{"n":2}]}}"#,
            ],
            &[
                "0 content \"a\"",
                "0 annotation {\"n\":1}",
                "0 annotation {\"n\":2}",
            ],
        );
    }

    #[test]
    fn rate_limits_come_before_or_after_the_end() {
        let limits = ReadOptions {
            limits: true,
            ..ReadOptions::default()
        };
        check(limits, &[LIMITS], &["limits {\"a\":1}"]);
        check(
            limits,
            &[r#"{"type":"response.rate_limits.updated","limits":[1]}"#],
            &["rule EventDropped"],
        );
        check(
            ReadOptions::default(),
            &[COMPLETED],
            &["head id=\"resp_1\"", "0 finish stop", "end"],
        );
        let error = Frame {
            error: true,
            name: b"error",
            ..event("gone")
        };
        assert_eq!(
            decoded(
                Api::Responses,
                limits,
                &[
                    event(CREATED),
                    event(COMPLETED),
                    error,
                    event(r#"{"type":"ping"}"#),
                    event(LIMITS)
                ]
            )[2..],
            [
                "0 finish stop",
                "rule AfterDone",
                "rule AfterDone",
                "limits {\"a\":1}",
                "end"
            ]
        );
        // Nothing follows an answer that is one object.
        let body = r#"{"status":"completed","output":[]}"#;
        assert_eq!(
            decoded(Api::Responses, limits, &[whole(body)]),
            ["head", "0 finish stop", "end"]
        );
    }

    #[test]
    fn errors_and_what_is_none() {
        let plain = ReadOptions::default();
        let failed = ["rule ErrorShape", "fail 500 internal_error \"m\""];
        check(
            plain,
            &[r#"{"type":"response.error","message":"m"}"#],
            &failed,
        );
        check(plain, &[r#"{"type":"error","message":"m"}"#], &failed);
        check(
            plain,
            &[r#"{"type":"odd","error":{"message":"m"}}"#],
            &failed,
        );
        check(plain, &[r#"{"type":"ping"}"#], &["rule EventDropped"]);
        check(
            plain,
            &[
                r#"{"type":"response.failed","response":{"status":"failed","error":{"message":"m"}}}"#,
            ],
            &failed,
        );
        for body in [
            r#"{"object":"error","message":"m"}"#,
            r#"{"error":{"message":"m"}}"#,
        ] {
            assert_eq!(
                decoded(Api::Responses, plain, &[whole(body)]),
                failed,
                "{body}"
            );
        }
        let unfinished = r#"{"status":"in_progress","output":[]}"#;
        assert_eq!(
            decoded(Api::Responses, plain, &[whole(unfinished)]),
            [INVALID]
        );
    }

    #[test]
    fn a_call_has_its_name_once() {
        check(
            ReadOptions::default(),
            &[
                r#"{"type":"response.output_item.added","item":{"type":"function_call","id":"f1","call_id":"c1","name":"f"}}"#,
                r#"{"type":"response.function_call_arguments.delta","item_id":"f1","delta":"{}"}"#,
                r#"{"type":"response.function_call_arguments.done","item_id":"f1","name":"f","arguments":"{}"}"#,
                r#"{"type":"response.output_item.done","item":{"type":"function_call","id":"f1","call_id":"c1","name":"f","arguments":"{}"}}"#,
            ],
            &["0 tool 0 id=c1 name=f", "0 tool 0 args={}", "0 done 0"],
        );
        check(
            ReadOptions::default(),
            &[
                r#"{"type":"response.function_call_arguments.done","item_id":"f1","name":"f","arguments":"{}"}"#,
            ],
            &["0 tool 0 name=f", "rule ItemLate", "0 tool 0 args={}"],
        );
        check(
            ReadOptions::default(),
            &[
                r#"{"type":"response.output_item.added","item":{"type":"custom_tool_call","id":"t1","call_id":"c1","name":"g"}}"#,
                r#"{"type":"response.custom_tool_call_input.delta","item_id":"t1","delta":"in"}"#,
            ],
            &["0 custom 0 id=c1 name=g", "0 custom 0 args=in"],
        );
    }

    #[test]
    fn older_calls_are_complete_and_come_once() {
        check(
            ReadOptions::default(),
            &[
                r#"{"type":"response.tool_call.delta","delta":{"content":[{"type":"tool_call","id":"c1","name":"f","arguments":"{}"},{"type":"tool_call","id":"c1","name":"f","arguments":"{}"},{"type":"odd","id":"c2","name":"f"}]}}"#,
            ],
            &[
                "0 tool 0 id=c1 name=f",
                "rule ItemLate",
                "0 tool 0 args={}",
                "0 done 0",
                "rule EventDropped",
                "rule EventDropped",
            ],
        );
    }

    #[test]
    fn sealed_reasoning_belongs_to_its_item() {
        check(
            ReadOptions::default(),
            &[
                r#"{"type":"response.reasoning_text.delta","item_id":"r","delta":"t"}"#,
                MESSAGE,
                r#"{"type":"response.additional_context","context":{"reasoning.encrypted_content":"s"}}"#,
                r#"{"type":"response.output_item.done","item":{"type":"message","id":"m"}}"#,
            ],
            &[
                "0 reasoning \"t\"",
                "0 content \"a\"",
                "0 sealed \"s\" late",
                "0 done",
            ],
        );
        check(
            ReadOptions::default(),
            &[
                r#"{"type":"response.output_item.done","item":{"type":"reasoning","id":"r","encrypted_content":"s"}}"#,
            ],
            &["0 sealed \"s\"", "0 done"],
        );
    }

    #[test]
    fn a_foreign_item_ends_the_text_before_it() {
        check(
            ReadOptions::default(),
            &[
                MESSAGE,
                r#"{"type":"response.output_item.added","item":{"type":"web_search_call","id":"w"}}"#,
                r#"{"type":"response.web_search_call.searching","item_id":"w"}"#,
                r#"{"type":"response.output_item.done","item":{"type":"message","id":"m"}}"#,
                r#"{"type":"response.output_item.done","item":{"type":"web_search_call","id":"w"}}"#,
                r#"{"type":"response.web_search_call.completed","item_id":"w"}"#,
            ],
            &[
                "0 content \"a\"",
                r#"foreign Added web_search_call 0 {"type":"web_search_call","id":"w"}"#,
                r#"foreign Told response.web_search_call.searching 0 {"type":"response.web_search_call.searching","item_id":"w"}"#,
                r#"foreign Done web_search_call 0 {"type":"web_search_call","id":"w"}"#,
                "rule EventDropped",
            ],
        );
    }

    #[test]
    fn an_incomplete_item_makes_an_incomplete_answer() {
        check(
            ReadOptions::default(),
            &[
                MESSAGE,
                r#"{"type":"response.output_item.done","item":{"type":"message","id":"m","status":"incomplete"}}"#,
                COMPLETED,
            ],
            &[
                "0 content \"a\"",
                "0 done cut",
                "head id=\"resp_1\"",
                "0 finish length",
                "end",
            ],
        );
    }

    #[test]
    fn logprobs_are_those_of_the_text_if_they_were_asked_for() {
        let with_logprobs = ReadOptions {
            logprobs: true,
            ..ReadOptions::default()
        };
        let list = r#""logprobs":[{"token":"a","logprob":-1,"bytes":[97]}]"#;
        let text =
            format!(r#"{{"type":"response.output_text.delta","item_id":"m","delta":"a",{list}}}"#);
        let refusal =
            format!(r#"{{"type":"response.refusal.delta","item_id":"m","delta":"n",{list}}}"#);
        let part = format!(
            r#"{{"type":"response.content_part.done","item_id":"m","part":{{"type":"output_text","text":"a",{list}}}}}"#
        );
        let reasoning = r#"{"type":"response.reasoning_text.delta","item_id":"r","delta":"t"}"#;
        check(
            with_logprobs,
            &[&text, &refusal, &part],
            &[
                "0 content \"a\" logprob(\"a\")",
                "0 refusal \"n\"",
                "0 tokens 1",
            ],
        );
        check(
            ReadOptions::default(),
            &[&text, &part],
            &["rule LogprobsUnasked", "0 content \"a\""],
        );
        check(
            with_logprobs,
            &[&text, reasoning, &part],
            &["0 content \"a\" logprob(\"a\")", "0 reasoning \"t\""],
        );
    }

    #[test]
    fn whole_objects() {
        let message = r#"{"type":"message","content":[{"type":"output_text","text":"a"}]}"#;
        // vLLM 0.10.0 has the text in the item itself.
        let reasoning = r#"{"type":"reasoning","text":"t"}"#;
        for (item, expected) in [
            (
                message,
                &["head", "0 content \"a\"", "0 done", "0 finish stop", "end"][..],
            ),
            (
                reasoning,
                &[
                    "head",
                    "rule ItemLate",
                    "0 reasoning \"t\"",
                    "0 done",
                    "0 finish stop",
                    "end",
                ],
            ),
        ] {
            let body = format!(r#"{{"status":"completed","output":[{item}]}}"#);
            assert_eq!(
                decoded(Api::Responses, ReadOptions::default(), &[whole(&body)]),
                expected
            );
        }
        for (items, last) in [(4096, "end"), (4097, INVALID)] {
            let list = vec![r#"{"type":"message"}"#; items].join(",");
            let body = format!(r#"{{"status":"completed","output":[{list}]}}"#);
            let found = decoded(Api::Responses, ReadOptions::default(), &[whole(&body)]);
            assert_eq!(
                found.last().map(String::as_str),
                Some(last),
                "{items} items"
            );
        }
    }
}
