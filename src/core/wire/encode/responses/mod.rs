//! Encoder for the Responses API: numbered events, or the object at the end (wire-format 4.4–4.7).
//!
//! ```text
//! created ─→ in_progress ─→ { item added ─→ deltas ─→ done } ─→ completed | incomplete | failed
//! ```
//!
//! Takes: the events of one choice. Gives: numbered events, or the final object; both from the same items.
//! Remembers: the text of every item, once. Never: gives an item another id, name or index than it began with.

mod call;
mod dialects;
mod event;
mod finished;
mod foreign;
mod item;
mod object;
mod reasoning;
mod recovered;
mod text_events;

pub(super) use call::input as input_of;
pub use call::{NameMeaning, OutputCall, OutputCalls};
pub use dialects::in_dialect;
pub use event::write_error;
pub use event::{EventFraming, LimitUse};
pub use finished::{Finished, OutputItem, Persisted};
pub use object::Echo;
pub use recovered::RecoveredItems;

use super::Encode;
use crate::json::{Members, Raw, Text, compacted};
use crate::wire::event::{
    Delta, Event, FrameExtras, Head, ItemStage, Logprobs, Reason, TokenLogprob, ToolKind, Usage,
};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::{ResponsesDialect, ResponsesReasoning};
use crate::wire::{OutputBuffer, Stamp, ident};
use call::CallItem;
use event::EventWriter;
use foreign::Foreign;
use item::{Item, OutputKind, OutputPart};
use object::{Object, ResponseEnding};
use text_events::EventText;

/// Function that encrypts a reasoning item's text into its `encrypted_content` (wire-format 4.5). Returns `None` if
/// it cannot.
pub type Seal = Box<dyn Fn(&str) -> Option<String> + Send>;

/// Source of `encrypted_content` in reasoning items. Clients send it back with the next request, so that reasoning
/// survives without a store.
#[derive(Default)]
pub enum Sealing {
    /// Passed on from the engine, if it sends any.
    #[default]
    Engine,
    /// Made by samewire. The engine's own is dropped, since samewire could not decrypt it later.
    Own(Seal),
    /// Left out: the client has not asked for it.
    None,
}

/// Parameters of a Responses answer that come from the request: what to repeat, which events to send, and how to
/// name calls.
#[derive(Default)]
pub struct Reply {
    /// Model that the client asked for, used until the engine's answer names one.
    pub model: String,
    /// Members of the object that repeat the request.
    pub echo: Echo,
    /// Client's tools that the names in the engine's calls stand for.
    pub calls: OutputCalls,
    /// Place of reasoning text: content, summary, both or none.
    pub reasoning: ResponsesReasoning,
    /// Dialect, which decides on the events that a stream has.
    pub dialect: ResponsesDialect,
    /// True if the client asked for logprobs.
    pub logprobs: bool,
    /// Source of encrypted reasoning.
    pub sealing: Sealing,
    /// True for a stream of events, false for one object.
    pub stream: bool,
    /// Form of the answer, as its reader needs it.
    pub form: StreamForm,
}

/// Form of an answer as its reader needs it.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamForm {
    /// Form of a stream's events.
    pub framing: EventFraming,
    /// True if a stream pauses after calls, to wait for their outputs, instead of ending.
    pub pauses: bool,
    /// True if the end waits for [`Response::write_end`], because it states if the answer has been stored.
    pub awaits_store: bool,
}

/// Encoder state of one Responses answer. Only the first choice counts, since the API has one.
pub struct Response {
    /// Parameters of the answer; the object has the members of `echo`.
    reply: Reply,
    object: Object,
    events: EventWriter,
    items: Vec<Item>,
    /// Indices of the open items, ascending. There are few, however many items the answer has.
    open: Vec<usize>,
    /// Index of the message or reasoning item that the next text continues.
    current: Option<usize>,
    finish: Option<Reason>,
    /// Number of items and token counts when the answer was last paused. Those of its continuation are added.
    at_last_pause: (usize, Option<Usage>),
    /// Items of a pause that the server has not taken yet.
    paused: Option<Vec<OutputItem>>,
    /// End of the answer, once it has ended.
    ended: Option<EndedResponse>,
    /// Opening events sent so far.
    opening: BeginStage,
    /// Stamp of 32 hex digits, for an answer that fails or is queued before it has an id.
    id: String,
}

/// Opening events sent so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BeginStage {
    Nothing,
    Queued,
    All,
}

/// End of an answer, with the number of its last event.
struct EndedResponse {
    ending: ResponseEnding,
    number: u64,
}

impl Response {
    /// Returns the encoder for one answer, in its initial state. `stamp`: the time, and an id for answers that have
    /// none.
    pub fn new(mut reply: Reply, stamp: &Stamp) -> Self {
        Self {
            object: Object::new(std::mem::take(&mut reply.echo), stamp),
            events: EventWriter::new(reply.stream.then_some(reply.form.framing), reply.dialect),
            items: Vec::new(),
            open: Vec::new(),
            current: None,
            finish: None,
            at_last_pause: (0, None),
            paused: None,
            ended: None,
            opening: BeginStage::Nothing,
            id: stamp.id.to_string(),
            reply,
        }
    }

    /// Writes all events of a response without items and usage, for a request that asks for no generation.
    pub fn write_empty(&mut self, out: &mut OutputBuffer) {
        self.object.begin_without_head(&self.id, &self.reply.model);
        self.begin(out);
        self.end(out);
    }

    /// Sets the share of its rate limit that the client has used, which streams report (wire-format 4.9).
    pub fn limits(&mut self, limits: LimitUse) {
        self.events.limits = Some(limits);
    }

    /// Sets the current time in Unix seconds. An answer that ends afterwards has this time as `completed_at`.
    pub fn clock(&mut self, now: u64) {
        // The object that is sent has the times of the one that is stored.
        if self.ended.is_none() {
            self.object.clock(now);
        }
    }

    /// Writes the events of a background response that waits for its turn, before an engine has answered (wire-format
    /// 4.6 rule 1). Returns its object as JSON.
    pub fn queue(&mut self, out: &mut OutputBuffer) -> Option<String> {
        self.object.begin_without_head(&self.id, &self.reply.model);
        self.events.begin(self.object.id());
        for kind in ["response.created", "response.queued"] {
            self.lifecycle(kind, &ResponseEnding::Queued, out);
        }
        self.opening = BeginStage::Queued;
        self.object_as(&ResponseEnding::Queued)
    }

    /// Writes the opening events of an answer. Without an engine's answer it has an id that samewire has made.
    pub fn begin_without_engine(&mut self, out: &mut OutputBuffer) {
        if self.object.id().is_empty() {
            self.object.begin_without_head(&self.id, &self.reply.model);
        }
        self.begin(out);
    }

    /// Returns the id under which the answer can be stored; `None` before its first event.
    pub fn response_id(&self) -> Option<&str> {
        Some(self.object.id()).filter(|id| !id.is_empty())
    }

    /// Returns the object of an answer in progress as JSON, without items.
    pub fn object_in_progress(&self) -> Option<String> {
        self.object_as(&ResponseEnding::None)
    }

    /// Returns true if the answer has paused to wait for the outputs of its calls, and [`Self::take_pause`] has not been
    /// called.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Takes the items since the last pause, if the answer has paused to wait for the outputs of its calls. Another
    /// engine answer then continues it, with the same encoder.
    pub fn take_pause(&mut self) -> Option<Vec<OutputItem>> {
        self.paused.take()
    }

    /// Returns the answer once it has ended, for the store; `None` before.
    pub fn finished(&self) -> Option<Finished> {
        let EndedResponse { ending, .. } = self.ended.as_ref()?;
        let mut object = OutputBuffer::default();
        self.object
            .write_before_conversation(ending, &self.items, &mut object);
        Some(Finished {
            id: self.object.id().to_owned(),
            status: ending.status(),
            stored: self.object.is_stored(),
            items: self.items.iter().map(OutputItem::of).collect(),
            object,
            conversation: self.object.conversation().cloned(),
        })
    }

    /// Writes the end of an answer that has ended: the last event, or the whole object. Called by the server if the end
    /// waits for the store, else by the encoder itself. Called once more, it writes the same events anew.
    pub fn write_end(&mut self, persisted: Persisted, out: &mut OutputBuffer) {
        let Self {
            object,
            events,
            items,
            ended,
            reply,
            ..
        } = self;
        let Some(EndedResponse { ending, number }) = ended else {
            return;
        };
        object.correct(persisted);
        events.go_back_to(*number);
        if reply.stream {
            events.write_event(ending.last_event(), out, |out| {
                out.extend_from_slice(b",\"response\":");
                object.write(ending, items, out);
            });
            events.after_last(out);
        } else {
            object.write(ending, items, out);
        }
    }
}

impl Encode for Response {
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        match event {
            Event::Head(head) => self.head(&head, out),
            Event::Delta {
                choice: 0,
                delta,
                extras,
            } => self.delta(&delta, &extras, out),
            Event::Usage { usage, .. } => self.add_usage(usage),
            Event::Foreign {
                name,
                slot,
                stage,
                data,
            } => self.foreign(name, slot, stage, data, out),
            Event::Limits(limits) => self.events.engine_limits = Some(compacted(limits)),
            Event::Delta { .. } => {}
            Event::Fail(failure) => self.fail(&failure, out),
            Event::End => self.end(out),
        }
    }

    fn response(&self) -> Option<&Response> {
        Some(self)
    }

    fn response_mut(&mut self) -> Option<&mut Response> {
        Some(self)
    }
}

impl Response {
    fn head(&mut self, head: &Head<'_>, out: &mut OutputBuffer) {
        self.object.begin(head);
        self.begin(out);
    }

    fn begin(&mut self, out: &mut OutputBuffer) {
        let kinds: &[_] = match self.opening {
            BeginStage::Nothing => &["response.created", "response.in_progress"],
            BeginStage::Queued => &["response.in_progress"],
            BeginStage::All => return,
        };
        self.opening = BeginStage::All;
        self.events.begin(self.object.id());
        for kind in kinds {
            self.lifecycle(kind, &ResponseEnding::None, out);
        }
    }

    fn delta(&mut self, delta: &Delta<'_>, extras: &FrameExtras<'_>, out: &mut OutputBuffer) {
        match delta {
            Delta::Reasoning(text) => self.push_reasoning(text, out),
            Delta::Summary(text) => self.push_summary(text, out),
            Delta::Sealed { text, late } => self.store_encrypted(text, *late, out),
            Delta::Annotation(annotation) => self.annotate(*annotation, out),
            Delta::Tokens(entries) => self.add_token_bytes(entries),
            Delta::Content(text) => {
                let logprobs = extras.logprobs.as_ref().filter(|_| self.reply.logprobs);
                self.push_message_text(false, text, logprobs, out);
            }
            Delta::Refusal(text) => self.push_message_text(true, text, None, out),
            Delta::ToolStart {
                slot,
                id,
                name,
                namespace,
                kind,
            } => {
                let mut called = self.reply.calls.meaning_of(name);
                called.namespace = called.namespace.or_else(|| namespace.map(str::to_owned));
                self.call(CallItem::new(*slot, id, called, *kind), out);
            }
            Delta::ToolArgs { slot, args } => self.push_arguments(*slot, args, out),
            Delta::FunctionCall { name, arguments } => {
                self.legacy_call(name.as_ref(), arguments.as_ref(), out)
            }
            Delta::Break => self.close_items(false, out),
            Delta::Done { slot, cut } => self.done(*slot, *cut, out),
            Delta::Finish(finish) => {
                self.object.extend(&extras.chunk_extensions);
                self.finish(finish.reason, out);
            }
            // Parts occur only in whole chat answers.
            Delta::Part { .. } | Delta::Role | Delta::Bare => {}
        }
    }

    // === items ===

    /// Closes the items that end here and opens a new one. Returns its index.
    fn open(&mut self, kind: OutputKind, out: &mut OutputBuffer) -> usize {
        self.close_items(false, out);
        let index = self.items.len();
        let item = Item::new(kind, self.object.id(), index);
        self.events.begin_item(&item, out);
        self.items.push(item);
        self.open.push(index);
        index
    }

    /// Adds an annotation to the current answer text; ignored if there is none.
    fn annotate(&mut self, annotation: Raw<'_>, out: &mut OutputBuffer) {
        let Self {
            items,
            events,
            current,
            ..
        } = self;
        let item = current.and_then(|at| items.get_mut(at));
        let Some(Item {
            kind: OutputKind::Message(parts),
            place,
            ..
        }) = item
        else {
            return;
        };
        let Some((at, part)) = parts
            .iter_mut()
            .enumerate()
            .next_back()
            .filter(|(_, part)| !part.refusal)
        else {
            return;
        };
        let json = compacted(annotation);
        let (entries, count) = &mut part.annotations;
        events.annotation(place, at, *count, &json, out);
        if !entries.is_empty() {
            entries.extend_from_slice(b",");
        }
        entries.extend_from_slice(json.as_bytes());
        *count += 1;
    }

    /// Adds the bytes of its tokens to the current answer text.
    fn add_token_bytes(&mut self, entries: &[TokenLogprob<'_>]) {
        let item = self.current.and_then(|at| self.items.get_mut(at));
        if let Some(Item {
            kind: OutputKind::Message(parts),
            ..
        }) = item
            && let Some(part) = parts.last_mut()
        {
            part.add_token_bytes(entries);
        }
    }

    fn push_message_text(
        &mut self,
        refusal: bool,
        text: &Text<'_>,
        logprobs: Option<&Logprobs<'_>>,
        out: &mut OutputBuffer,
    ) {
        let goes_on = |at: &usize| {
            matches!(
                self.items.get(*at),
                Some(Item {
                    kind: OutputKind::Message(_),
                    ..
                })
            )
        };
        let at = match self.current.filter(goes_on) {
            Some(at) => at,
            None => self.open(OutputKind::Message(Vec::new()), out),
        };
        self.current = Some(at);
        let Self { items, events, .. } = self;
        let Some(Item {
            kind: OutputKind::Message(parts),
            place,
            ..
        }) = items.get_mut(at)
        else {
            return;
        };
        if parts.last().is_none_or(|part| part.refusal != refusal) {
            if let Some((index, last)) = parts.iter_mut().enumerate().next_back() {
                last.close();
                events.end_part(last.text_events(), place, index, last.event_text(), out);
            }
            let part = OutputPart::new(refusal);
            events.begin_part(part.text_events(), place, parts.len(), out);
            parts.push(part);
        }
        let index = parts.len() - 1;
        let Some(part) = parts.last_mut() else { return };
        let voice = part.text_events();
        let (text, plain_logprobs) = part.take(text, logprobs);
        events.delta(
            voice,
            place,
            index,
            EventText {
                plain_logprobs,
                ..EventText::piece(text)
            },
            out,
        );
    }

    fn call(&mut self, call: CallItem, out: &mut OutputBuffer) {
        self.open(OutputKind::Call(call), out);
        self.current = None;
    }

    fn push_arguments(&mut self, slot: u32, args: &Text<'_>, out: &mut OutputBuffer) {
        let Self { items, events, .. } = self;
        for item in items.iter_mut().rev() {
            let Item {
                kind: OutputKind::Call(call),
                place,
                open,
                ..
            } = item
            else {
                continue;
            };
            if call.slot == slot {
                // The engine has already marked the arguments as complete.
                if !*open {
                    return;
                }
                let voice = call.text_events();
                if let Some(piece) = call.take(args) {
                    events.delta(voice, place, 0, EventText::piece(piece), out);
                }
                return;
            }
        }
    }

    /// Writes a call in the deprecated form `function_call`, which has no id: one is derived.
    fn legacy_call(
        &mut self,
        name: Option<&Text<'_>>,
        arguments: Option<&Text<'_>>,
        out: &mut OutputBuffer,
    ) {
        const SLOT: u32 = u32::MAX;
        let (start, _) = self.at_last_pause;
        let new = self.items.get(start..).unwrap_or_default();
        let is_known = new
            .iter()
            .any(|item| matches!(&item.kind, OutputKind::Call(call) if call.slot == SLOT));
        if let Some(name) = name.filter(|_| !is_known) {
            let nth = u32::try_from(start).unwrap_or(0);
            let id = ident::derived_call(self.object.id(), 0, nth);
            let called = self.reply.calls.meaning_of(&name.decoded());
            self.call(CallItem::new(SLOT, &id, called, ToolKind::Function), out);
        }
        if let Some(arguments) = arguments.filter(|arguments| !arguments.is_empty()) {
            self.push_arguments(SLOT, arguments, out);
        }
    }

    /// Writes a foreign item, or an event of one. Drops events of items that are not open and of types that clients
    /// do not know.
    fn foreign(
        &mut self,
        name: &str,
        slot: Option<u32>,
        stage: ItemStage,
        data: Raw<'_>,
        out: &mut OutputBuffer,
    ) {
        let known = |item: &Item| match &item.kind {
            OutputKind::Foreign(foreign) => item.open && slot.is_some() && foreign.slot == slot,
            _ => false,
        };
        let at = match stage {
            ItemStage::Added | ItemStage::Whole => {
                let at = self.open(OutputKind::Foreign(Foreign::new(slot, name, data)), out);
                self.current = None;
                Some(at)
            }
            ItemStage::Told | ItemStage::Done => self
                .open
                .iter()
                .rev()
                .copied()
                .find(|at| self.items.get(*at).is_some_and(known)),
        };
        let Some(at) = at else { return };
        let Self { items, events, .. } = self;
        let Some(item) = items.get_mut(at) else {
            return;
        };
        let Item {
            kind: OutputKind::Foreign(foreign),
            place,
            ..
        } = item
        else {
            return;
        };
        match stage {
            ItemStage::Added => return,
            ItemStage::Told => {
                let Some((name, key)) = foreign::event(name) else {
                    return;
                };
                let members = Members::of(data.get()).unwrap_or_default().0;
                let value =
                    key.and_then(|key| Some((key, members.iter().rfind(|(own, _)| own == key)?.1)));
                if let Some((key, value)) = value {
                    foreign.complete_member(key, value);
                }
                return events.foreign(name, place, value, out);
            }
            ItemStage::Done => foreign.read(data),
            ItemStage::Whole => {
                for step in foreign.preceding_events() {
                    events.foreign(step, place, None, out);
                }
            }
        }
        foreign.complete = true;
        self.close(at, out);
    }

    /// Ends an item that the engine marks as complete: the call of `slot`, or the current text with `None`. `cut`:
    /// it ended too early.
    fn done(&mut self, slot: Option<u32>, cut: bool, out: &mut OutputBuffer) {
        let is_meant =
            |item: &Item| matches!(&item.kind, OutputKind::Call(call) if Some(call.slot) == slot);
        let at = match slot {
            Some(_) => self.items.iter().rposition(is_meant),
            None => self.current.take(),
        };
        if let Some((at, item)) = at.and_then(|at| Some((at, self.items.get_mut(at)?))) {
            item.cut |= cut && item.open;
            self.close(at, out);
        }
    }

    /// Closes the open items in order. `all`: also foreign items and calls whose arguments may continue.
    fn close_items(&mut self, all: bool, out: &mut OutputBuffer) {
        self.current = None;
        for at in self.open.clone() {
            let stays = match self.items.get(at).map(|item| &item.kind) {
                Some(OutputKind::Call(call)) => !call.is_complete(),
                Some(OutputKind::Foreign(_)) => true,
                _ => false,
            };
            if all || !stays {
                self.close(at, out);
            }
        }
    }

    /// Closes an item: encrypts its reasoning if configured, and writes its done events. Does nothing if it is
    /// closed.
    fn close(&mut self, at: usize, out: &mut OutputBuffer) {
        let Self {
            items,
            events,
            reply,
            ..
        } = self;
        let Some(item) = items.get_mut(at).filter(|item| item.open) else {
            return;
        };
        item.open = false;
        item.cut |= matches!(&item.kind, OutputKind::Call(call) if call.is_cut());
        self.open.retain(|open| *open != at);
        item.kind.close();
        if let (OutputKind::Reasoning(thought), Sealing::Own(seal)) =
            (&mut item.kind, &reply.sealing)
        {
            thought.sealed = seal(&thought.text());
        }
        events.end_item(item, out);
    }

    // === the end ===

    fn finish(&mut self, reason: Reason, out: &mut OutputBuffer) {
        self.finish = Some(reason);
        if let Some(last) = self.items.last_mut().filter(|item| item.open) {
            last.cut = matches!(reason, Reason::Length | Reason::ContentFilter);
        }
        self.close_items(true, out);
    }

    fn add_usage(&mut self, usage: Usage) {
        self.object.usage = Some(match &self.at_last_pause.1 {
            Some(before) => before.plus(&usage),
            None => usage,
        });
    }

    /// Pauses the answer if it is a stream with new calls that was not cut short, and the client sends their
    /// outputs separately (wire-format 4.10). Returns true if it did; the end is then not written.
    fn pause_for_outputs(&mut self) -> bool {
        let cut = matches!(self.finish, Some(Reason::Length | Reason::ContentFilter));
        let new = self.items.get(self.at_last_pause.0..).unwrap_or_default();
        let calls = new
            .iter()
            .any(|item| matches!(item.kind, OutputKind::Call(_)));
        if !(self.reply.form.pauses && self.reply.stream && calls && !cut) {
            return false;
        }
        self.paused = Some(new.iter().map(OutputItem::of).collect());
        self.at_last_pause = (self.items.len(), self.object.usage);
        self.finish = None;
        true
    }

    fn end(&mut self, out: &mut OutputBuffer) {
        if self.pause_for_outputs() {
            return;
        }
        let ending = match self.finish {
            Some(Reason::Length) => ResponseEnding::Incomplete("max_output_tokens"),
            Some(Reason::ContentFilter) => ResponseEnding::Incomplete("content_filter"),
            _ => ResponseEnding::Completed,
        };
        self.end_with(ending, out);
    }

    /// Ends a stream with an error: open items get no done event and appear as incomplete in the terminal event
    /// (wire-format 4.7).
    fn fail(&mut self, failure: &Failure, out: &mut OutputBuffer) {
        // Nothing of an object is written before the end, so the server answers a failure with an HTTP error.
        if !self.reply.stream {
            return;
        }
        self.begin_without_engine(out);
        for item in &mut self.items {
            item.cut |= item.open;
            item.kind.close();
            if let OutputKind::Reasoning(thought) = &mut item.kind {
                thought.sealed.take_if(|_| thought.late);
            }
        }
        if failure.fault == Fault::Cancelled {
            return self.end_with(ResponseEnding::Cancelled, out);
        }
        self.events.error(failure, out);
        self.end_with(ResponseEnding::Failed(Box::new(failure.clone())), out);
    }

    /// Ends the answer, and writes its end unless that waits for the store.
    fn end_with(&mut self, ending: ResponseEnding, out: &mut OutputBuffer) {
        self.ended = Some(EndedResponse {
            ending,
            number: self.events.next(),
        });
        if !self.reply.form.awaits_store {
            self.write_end(Persisted::ALL, out);
        }
    }

    /// Returns the object of an answer that has no items yet, as JSON.
    fn object_as(&self, ending: &ResponseEnding) -> Option<String> {
        let mut object = OutputBuffer::default();
        self.object.write(ending, &[], &mut object);
        String::from_utf8(object.to_vec()).ok()
    }

    fn lifecycle(&mut self, kind: &'static str, ending: &ResponseEnding, out: &mut OutputBuffer) {
        let Self {
            events,
            object,
            items,
            ..
        } = self;
        events.write_event(kind, out, |out| {
            out.extend_from_slice(b",\"response\":");
            object.write(ending, items, out);
        });
    }
}
