//! The Responses API for a client: events, or the object at the end (wire-format 4.4–4.7).
//!
//! ```text
//! created ─→ in_progress ─→ { item added ─→ deltas ─→ done } ─→ completed | incomplete | failed
//! ```
//!
//! Takes: the events of one choice. Gives: numbered events, or the final object; both from the same items.
//! Remembers: the text of every item, once. Never: gives an item another id, name or index than it began with.

mod call;
mod event;
mod foreign;
mod item;
mod object;
mod paused;

pub(super) use call::input as input_of;
pub use call::{Calls, NameMeaning};
pub(crate) use event::write_error;
pub use object::Echo;
pub use paused::{PausedAnswer, PausedEncoder};

use super::{Encode, Limits};
use crate::json::{Members, Raw, Text, compacted};
use crate::wire::event::{
    Delta, Event, Head, Logprobs, Reason, Riders, Stage, TokenLogprob, ToolKind, Usage,
};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::{ResponsesDialect, ResponsesReasoning};
use crate::wire::{OutputBuffer, Stamp, ident};
use bytes::BytesMut;
use call::Call;
use event::{EventText, Events};
use foreign::Foreign;
use item::{Item, Kind, Part, ReasoningItem, State};
use object::{Ending, Object};
use std::sync::Arc;

/// Makes `encrypted_content` of a reasoning item's text (wire-format 4.5); nothing if it cannot.
pub type Seal = Box<dyn Fn(&str) -> Option<String> + Send>;

/// Where `encrypted_content` comes from.
#[derive(Default)]
pub enum Sealing {
    /// The engine, if it makes any.
    #[default]
    Engine,
    /// Here; what the engine makes is nothing that could be opened here again.
    Own(Seal),
    /// Nowhere: the client has not asked for it.
    None,
}

/// What a Responses request says of its answer.
#[derive(Default)]
pub struct Reply {
    /// The model that was asked for, until it is known who answers.
    pub model: String,
    /// What the object repeats of the request.
    pub echo: Echo,
    /// What the names in the engine's calls stand for.
    pub calls: Calls,
    /// Where reasoning goes.
    pub reasoning: ResponsesReasoning,
    /// Which events there are.
    pub dialect: ResponsesDialect,
    /// The client asked for logprobs.
    pub logprobs: bool,
    /// Encrypted reasoning.
    pub sealing: Sealing,
    /// Events, or one object.
    pub stream: bool,
    /// Where a stream waits for the outputs of its calls.
    pub hold: Option<Arc<PausedAnswer>>,
}

/// The answer to a Responses request. Only the first choice counts: the API has one.
pub struct Response {
    object: Object,
    events: Events,
    calls: Calls,
    reasoning: ResponsesReasoning,
    logprobs: bool,
    sealing: Sealing,
    stream: bool,
    items: Vec<Item>,
    /// Those of them to which more may come, in order: few, however many items there are.
    open: Vec<usize>,
    /// The message or the reasoning item that goes on.
    current: Option<usize>,
    finish: Option<Reason>,
    hold: Option<Arc<PausedAnswer>>,
    /// What it was when it was last laid down: the number of items, and the tokens.
    before: (usize, Option<Usage>),
    /// How much of the beginning has been said.
    begun: BeginStage,
    /// 32 hex digits, for an answer that fails before it has an id.
    id: String,
    /// The model that was asked for.
    model: String,
}

/// How much of the beginning has been said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BeginStage {
    Nothing,
    Queued,
    All,
}

impl Response {
    /// The encoder for a request that asks for this.
    pub fn new(reply: Reply, stamp: &Stamp) -> Self {
        Self {
            object: Object::new(reply.echo, stamp),
            events: Events::new(reply.stream, reply.dialect),
            calls: reply.calls,
            reasoning: reply.reasoning,
            logprobs: reply.logprobs,
            sealing: reply.sealing,
            stream: reply.stream,
            items: Vec::new(),
            open: Vec::new(),
            current: None,
            finish: None,
            hold: reply.hold,
            before: (0, None),
            begun: BeginStage::Nothing,
            id: stamp.id.clone(),
            model: reply.model,
        }
    }

    /// Says that the response is made and waits, before anybody has answered (wire-format 4.6 rule 1). Gives its id and
    /// the object as it stands.
    pub fn queue(&mut self, out: &mut OutputBuffer) -> (String, String) {
        self.object.make(&self.id, &self.model);
        self.events.begin(self.object.id());
        for kind in ["response.created", "response.queued"] {
            self.lifecycle(kind, Ending::Queued, out);
        }
        self.begun = BeginStage::Queued;
        let mut object = OutputBuffer::default();
        self.object.write(&Ending::Queued, &[], &mut object);
        (self.object.id().to_owned(), String::from_utf8_lossy(&object.join()).into_owned())
    }

    /// Says all of a response that nobody is asked to generate: it has no items, and no usage.
    pub fn leave_empty(&mut self, out: &mut OutputBuffer) {
        self.object.make(&self.id, &self.model);
        self.begin(out);
        self.end(out);
    }
}

impl Encode for Response {
    fn limits(&mut self, limits: Limits) {
        self.events.limits = Some(limits);
    }

    fn clock(&mut self, now: u64) {
        self.object.clock(now);
    }

    fn has_items(&self) -> bool {
        true
    }

    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        match event {
            Event::Head(head) => self.head(&head, out),
            Event::Delta { choice: 0, delta, riders } => self.delta(&delta, &riders, out),
            Event::Usage { usage, .. } => self.count(usage),
            Event::Foreign { name, slot, stage, data } => self.foreign(name, slot, stage, data, out),
            Event::Limits(limits) => self.events.engine_limits = Some(compacted(limits)),
            Event::Delta { .. } => {}
            Event::Fail(failure) => self.fail(&failure, out),
            Event::End => self.end(out),
        }
    }
}

impl Response {
    fn head(&mut self, head: &Head<'_>, out: &mut OutputBuffer) {
        self.object.begin(head);
        self.begin(out);
    }

    fn begin(&mut self, out: &mut OutputBuffer) {
        let kinds: &[_] = match self.begun {
            BeginStage::Nothing => &["response.created", "response.in_progress"],
            BeginStage::Queued => &["response.in_progress"],
            BeginStage::All => return,
        };
        self.begun = BeginStage::All;
        self.events.begin(self.object.id());
        for kind in kinds {
            self.lifecycle(kind, Ending::None, out);
        }
    }

    fn delta(&mut self, delta: &Delta<'_>, riders: &Riders<'_>, out: &mut OutputBuffer) {
        match delta {
            Delta::Reasoning(text) => self.reason(text, out),
            Delta::Summary(text) => self.summarise(text, out),
            Delta::Sealed { text, late } => self.keep_sealed(text, *late, out),
            Delta::Annotation(annotation) => self.annotate(*annotation, out),
            Delta::Tokens(entries) => self.spell(entries),
            Delta::Content(text) => {
                let logprobs = riders.logprobs.as_ref().filter(|_| self.logprobs);
                self.say(false, text, logprobs, out);
            }
            Delta::Refusal(text) => self.say(true, text, None, out),
            Delta::ToolStart { slot, id, name, namespace, kind } => {
                let mut called = self.calls.named(name);
                called.namespace = called.namespace.or_else(|| namespace.map(str::to_owned));
                self.call(Call::new(*slot, id, called, *kind), out);
            }
            Delta::ToolArgs { slot, args } => self.argue(*slot, args, out),
            Delta::FunctionCall { name, arguments } => {
                self.legacy_call(name.as_ref(), arguments.as_ref(), out)
            }
            Delta::Break => self.close_items(false, out),
            Delta::Done { slot, cut } => self.done(*slot, *cut, out),
            Delta::Finish(finish) => self.finish(finish.reason, out),
            // Parts are none of a stream's.
            Delta::Part { .. } | Delta::Role | Delta::Bare => {}
        }
    }

    // === items ===

    /// Opens an item behind those that end with it.
    fn open(&mut self, kind: Kind, out: &mut OutputBuffer) -> usize {
        self.close_items(false, out);
        let index = self.items.len();
        let item = Item::new(kind, self.object.id(), index);
        self.events.begin_item(&item, out);
        self.items.push(item);
        self.open.push(index);
        index
    }

    fn reason(&mut self, text: &Text<'_>, out: &mut OutputBuffer) {
        let (content, summary) = match self.reasoning {
            ResponsesReasoning::Content => (true, false),
            ResponsesReasoning::Summary => (false, true),
            // The engine's own summary is not the place for all of the text as well.
            ResponsesReasoning::Both => (true, self.thought().is_none_or(|thought| thought.takes_mirror())),
            ResponsesReasoning::None => (false, false),
        };
        self.think(content, summary, text, out);
        if let Some(thought) = self.thought() {
            thought.mirrored |= summary;
        }
    }

    /// The engine's own summary. Where the text already stands in its place, it would be there twice.
    fn summarise(&mut self, text: &Text<'_>, out: &mut OutputBuffer) {
        let mirrored = self.thought().is_some_and(|thought| thought.mirrored);
        self.think(false, self.reasoning != ResponsesReasoning::None && !mirrored, text, out);
    }

    /// The reasoning that goes on.
    fn thought(&mut self) -> Option<&mut ReasoningItem> {
        match self.items.get_mut(self.current?)? {
            Item { kind: Kind::Reasoning(thought), .. } => Some(thought),
            _ => None,
        }
    }

    /// What the engine made of reasoning to be sent back to it.
    fn keep_sealed(&mut self, text: &Text<'_>, late: bool, out: &mut OutputBuffer) {
        if !matches!(self.sealing, Sealing::Engine) {
            return;
        }
        let is_reasoning = |item: &Item| matches!(item.kind, Kind::Reasoning(_));
        let at = match late {
            true => self.items.iter().rposition(is_reasoning),
            false => self.current.filter(|at| self.items.get(*at).is_some_and(is_reasoning)),
        };
        let at = match at {
            Some(at) => at,
            None if late || self.reasoning == ResponsesReasoning::None => return,
            None => self.open(Kind::Reasoning(ReasoningItem::default()), out),
        };
        if !late {
            self.current = Some(at);
        }
        if let Some(Item { kind: Kind::Reasoning(thought), open, .. }) = self.items.get_mut(at)
            && thought.sealed.is_none()
        {
            thought.late = !*open;
            let mut spelled = BytesMut::new();
            text.write(&mut spelled);
            thought.sealed = Some(String::from_utf8_lossy(&spelled).into_owned());
        }
    }

    /// A note on the text that goes on.
    fn annotate(&mut self, annotation: Raw<'_>, out: &mut OutputBuffer) {
        let Self { items, events, current, .. } = self;
        let item = current.and_then(|at| items.get_mut(at));
        let Some(Item { kind: Kind::Message(parts), place, .. }) = item else { return };
        let Some((at, part)) = parts.iter_mut().enumerate().next_back().filter(|(_, part)| !part.refusal)
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

    /// What is known of the bytes of the text that goes on.
    fn spell(&mut self, entries: &[TokenLogprob<'_>]) {
        let item = self.current.and_then(|at| self.items.get_mut(at));
        if let Some(Item { kind: Kind::Message(parts), .. }) = item
            && let Some(part) = parts.last_mut()
        {
            part.spell(entries);
        }
    }

    fn think(&mut self, content: bool, summary: bool, text: &Text<'_>, out: &mut OutputBuffer) {
        if !content && !summary {
            return;
        }
        let goes_on = |at: &usize| matches!(self.items.get(*at), Some(Item { kind: Kind::Reasoning(_), .. }));
        let at = match self.current.filter(goes_on) {
            Some(at) => at,
            None => self.open(Kind::Reasoning(ReasoningItem::default()), out),
        };
        self.current = Some(at);
        let Self { items, events, .. } = self;
        let Some(Item { kind: Kind::Reasoning(thought), place, .. }) = items.get_mut(at) else { return };
        for (wanted, part, voice) in [
            (content, &mut thought.content, &event::REASONING),
            (summary, &mut thought.summary, &event::SUMMARY),
        ] {
            if !wanted {
                continue;
            }
            if part.is_none() {
                events.begin_part(voice, place, 0, out);
            }
            let part = part.get_or_insert_default();
            let piece = part.append(|out| text.write(out));
            events.delta(voice, place, 0, EventText::piece(piece), out);
        }
    }

    fn say(
        &mut self,
        refusal: bool,
        text: &Text<'_>,
        logprobs: Option<&Logprobs<'_>>,
        out: &mut OutputBuffer,
    ) {
        let goes_on = |at: &usize| matches!(self.items.get(*at), Some(Item { kind: Kind::Message(_), .. }));
        let at = match self.current.filter(goes_on) {
            Some(at) => at,
            None => self.open(Kind::Message(Vec::new()), out),
        };
        self.current = Some(at);
        let Self { items, events, .. } = self;
        let Some(Item { kind: Kind::Message(parts), place, .. }) = items.get_mut(at) else { return };
        if parts.last().is_none_or(|part| part.refusal != refusal) {
            if let Some((index, last)) = parts.iter_mut().enumerate().next_back() {
                last.close();
                events.end_part(last.voice(), place, index, last.told(), out);
            }
            let part = Part::new(refusal);
            events.begin_part(part.voice(), place, parts.len(), out);
            parts.push(part);
        }
        let index = parts.len() - 1;
        let Some(part) = parts.last_mut() else { return };
        let voice = part.voice();
        let (text, plain_logprobs) = part.take(text, logprobs);
        events.delta(voice, place, index, EventText { plain_logprobs, ..EventText::piece(text) }, out);
    }

    fn call(&mut self, call: Call, out: &mut OutputBuffer) {
        self.open(Kind::Call(call), out);
        self.current = None;
    }

    fn argue(&mut self, slot: u32, args: &Text<'_>, out: &mut OutputBuffer) {
        let Self { items, events, .. } = self;
        for item in items.iter_mut().rev() {
            let Item { kind: Kind::Call(call), place, open, .. } = item else { continue };
            if call.slot == slot {
                // Behind the end of complete arguments nothing means anything.
                if !*open {
                    return;
                }
                let voice = call.voice();
                if let Some(piece) = call.take(args) {
                    events.delta(voice, place, 0, EventText::piece(piece), out);
                }
                return;
            }
        }
    }

    /// The deprecated form of one call, which has no id.
    fn legacy_call(&mut self, name: Option<&Text<'_>>, arguments: Option<&Text<'_>>, out: &mut OutputBuffer) {
        const SLOT: u32 = u32::MAX;
        let (start, _) = self.before;
        let new = self.items.get(start..).unwrap_or_default();
        let is_known = new.iter().any(|item| matches!(&item.kind, Kind::Call(call) if call.slot == SLOT));
        if let Some(name) = name.filter(|_| !is_known) {
            let nth = u32::try_from(start).unwrap_or(0);
            let id = ident::derived_call(self.object.id(), 0, nth);
            let called = self.calls.named(&name.decoded());
            self.call(Call::new(SLOT, &id, called, ToolKind::Function), out);
        }
        if let Some(arguments) = arguments.filter(|arguments| !arguments.is_empty()) {
            self.argue(SLOT, arguments, out);
        }
    }

    /// An item that is not modelled, or an event of it.
    fn foreign(
        &mut self,
        name: &str,
        slot: Option<u32>,
        stage: Stage,
        data: Raw<'_>,
        out: &mut OutputBuffer,
    ) {
        let known = |item: &Item| match &item.kind {
            Kind::Foreign(foreign) => item.open && slot.is_some() && foreign.slot == slot,
            _ => false,
        };
        let at = match stage {
            Stage::Added | Stage::Whole => {
                let at = self.open(Kind::Foreign(Foreign::new(slot, name, data)), out);
                self.current = None;
                Some(at)
            }
            Stage::Told | Stage::Done => {
                self.open.iter().rev().copied().find(|at| self.items.get(*at).is_some_and(known))
            }
        };
        let Some(at) = at else { return };
        let Self { items, events, .. } = self;
        let Some(item) = items.get_mut(at) else { return };
        let Item { kind: Kind::Foreign(foreign), place, .. } = item else { return };
        match stage {
            Stage::Added => return,
            Stage::Told => {
                let Some((name, key)) = foreign::event(name) else { return };
                let members = Members::of(data.get()).unwrap_or_default().0;
                let value = key.and_then(|key| Some((key, members.iter().rfind(|(own, _)| own == key)?.1)));
                return events.foreign(name, place, value, out);
            }
            Stage::Done => foreign.read(data),
            Stage::Whole => {
                for step in foreign.steps() {
                    events.foreign(step, place, None, out);
                }
            }
        }
        foreign.complete = true;
        self.close(at, out);
    }

    /// The engine says that an item is complete.
    fn done(&mut self, slot: Option<u32>, cut: bool, out: &mut OutputBuffer) {
        let is_meant = |item: &Item| matches!(&item.kind, Kind::Call(call) if Some(call.slot) == slot);
        let at = match slot {
            Some(_) => self.items.iter().rposition(is_meant),
            None => self.current.take(),
        };
        if let Some((at, item)) = at.and_then(|at| Some((at, self.items.get_mut(at)?))) {
            item.cut |= cut && item.open;
            self.close(at, out);
        }
    }

    /// Closes what is open, in order; `all`: also what more may come of.
    fn close_items(&mut self, all: bool, out: &mut OutputBuffer) {
        self.current = None;
        for at in self.open.clone() {
            let stays = match self.items.get(at).map(|item| &item.kind) {
                Some(Kind::Call(call)) => !call.is_complete(),
                Some(Kind::Foreign(_)) => true,
                _ => false,
            };
            if all || !stays {
                self.close(at, out);
            }
        }
    }

    /// Closes an item, unless it is closed.
    fn close(&mut self, at: usize, out: &mut OutputBuffer) {
        let Self { items, events, sealing, .. } = self;
        let Some(item) = items.get_mut(at).filter(|item| item.open) else { return };
        item.open = false;
        self.open.retain(|open| *open != at);
        item.kind.close();
        if let (Kind::Reasoning(thought), Sealing::Own(seal)) = (&mut item.kind, sealing) {
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

    fn count(&mut self, usage: Usage) {
        self.object.usage = Some(match &self.before.1 {
            Some(before) => before.plus(&usage),
            None => usage,
        });
    }

    /// Lays the answer down if it ends with calls and their outputs are waited for.
    fn is_held(&mut self) -> bool {
        let cut = matches!(self.finish, Some(Reason::Length | Reason::ContentFilter));
        let new = self.items.get(self.before.0..).unwrap_or_default();
        let calls = new.iter().any(|item| matches!(item.kind, Kind::Call(_)));
        let Some(hold) = self.hold.as_ref().filter(|_| self.stream && calls && !cut) else { return false };
        let written = new.iter().map(|item| {
            let mut out = OutputBuffer::default();
            item.write(State::Present, &mut out);
            String::from_utf8_lossy(&out.join()).into_owned()
        });
        hold.put(PausedEncoder { items: written.collect() });
        self.before = (self.items.len(), self.object.usage);
        self.finish = None;
        true
    }

    fn end(&mut self, out: &mut OutputBuffer) {
        if self.is_held() {
            return;
        }
        let (kind, ending) = match self.finish {
            Some(Reason::Length) => ("response.incomplete", Ending::Incomplete("max_output_tokens")),
            Some(Reason::ContentFilter) => ("response.incomplete", Ending::Incomplete("content_filter")),
            _ => ("response.completed", Ending::Completed),
        };
        if self.stream {
            self.lifecycle(kind, ending, out);
            self.events.last(out);
        } else {
            self.object.write(&ending, &self.items, out);
        }
    }

    /// The answer breaks off: what is open stays open (wire-format 4.7).
    fn fail(&mut self, failure: &Failure, out: &mut OutputBuffer) {
        // Before the end nothing of an object has been written: a failure is the HTTP answer, which is not the encoder's.
        if !self.stream {
            return;
        }
        if self.object.id().is_empty() {
            self.object.make(&self.id, &self.model);
        }
        self.begin(out);
        for item in &mut self.items {
            item.cut |= item.open;
            item.kind.close();
            if let Kind::Reasoning(thought) = &mut item.kind {
                thought.sealed.take_if(|_| thought.late);
            }
        }
        if failure.fault == Fault::Cancelled {
            self.lifecycle("response.incomplete", Ending::Cancelled, out);
        } else {
            self.events.error(failure, out);
            self.lifecycle("response.failed", Ending::Failed(failure), out);
        }
        self.events.last(out);
    }

    fn lifecycle(&mut self, kind: &'static str, ending: Ending<'_>, out: &mut OutputBuffer) {
        let Self { events, object, items, .. } = self;
        if !matches!(ending, Ending::None | Ending::Queued) {
            out.begin_end();
        }
        events.say(kind, out, |out| {
            out.extend_from_slice(b",\"response\":");
            object.write(&ending, items, out);
        });
    }
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response").field("items", &self.items).finish_non_exhaustive()
    }
}
