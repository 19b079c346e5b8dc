//! Encoder adapter for tools that samewire runs. The model's calls of these tools become items of the Responses API, and
//! the answer pauses after the calls until their outcomes are known (wire-format 4.14).
//!
//! ```text
//! engine's answer ─→ calls ─→ pause ─→ outcomes ─→ the next engine's answer ─→ … ─→ end
//! ```
//!
//! Takes: grammatical events of several engine answers. Gives: the events of one answer to another encoder. Remembers:
//! the calls and the text of the current round, the sum of the usage. Never: passes on a call of such a tool as the
//! client's.

use super::server_call::{CallOutcome, CallState, ServerCall, ServerTool, Value, object};
use super::{Encode, Response};
use crate::json::Raw;
use crate::wire::OutputBuffer;
use crate::wire::event::{Delta, Event, Finish, FrameExtras, ItemStage, Reason, Usage};
use crate::wire::fault::Failure;
use bytes::BytesMut;
use std::collections::HashMap;
use std::sync::Arc;

/// Adapter around an encoder of the Responses API.
pub struct ServerCalls {
    inner: Box<dyn Encode>,
    /// Tools by the name under which the engine knows them.
    tools: HashMap<String, Arc<ServerTool>>,
    /// Items with the tools of servers, which begin the answer, as JSON.
    lists: Vec<String>,
    /// True once the answer has begun.
    begun: bool,
    round: Round,
    /// Number of items begun so far. The inner encoder knows each by its number.
    items: u32,
    /// Usage of the earlier rounds, and of all rounds.
    before: Option<Usage>,
    usage: Option<Usage>,
    paused: bool,
}

/// Answer of one engine request.
#[derive(Default)]
struct Round {
    /// Reasoning and text, in JSON spelling.
    reasoning: BytesMut,
    text: BytesMut,
    calls: Vec<RoundCall>,
    /// Sides that run the calls, by the engine's slot.
    owners: Vec<(u32, CallOwner)>,
    /// Number of calls that the client runs.
    clients: u32,
    /// Finish and usage, if they wait for outcomes.
    finish: Option<(Reason, Option<String>)>,
    usage: Option<(bool, Usage)>,
}

/// Call of the current round.
struct RoundCall {
    call: ServerCall,
    /// Number of its item `mcp_call`; `None` for a call that needs an approval first.
    item: Option<u32>,
    /// True once its arguments are complete.
    is_complete: bool,
}

/// Side that runs a call.
#[derive(Clone, Copy)]
enum CallOwner {
    /// Samewire: index in the calls of the round.
    Server(usize),
    /// Client: slot under which it knows the call.
    Client(u32),
}

impl ServerCalls {
    /// Wraps an encoder that has written nothing. `tools`: by the engine's names. `lists`: items that begin the answer,
    /// as JSON. `approved`: calls that run before the first engine request.
    pub fn new(
        inner: Box<dyn Encode>,
        tools: HashMap<String, Arc<ServerTool>>,
        lists: Vec<String>,
        approved: Vec<ServerCall>,
    ) -> Self {
        let call = |call| RoundCall {
            call,
            item: None,
            is_complete: false,
        };
        let calls: Vec<_> = approved.into_iter().map(call).collect();
        Self {
            inner,
            tools,
            lists,
            begun: false,
            paused: !calls.is_empty(),
            round: Round {
                calls,
                ..Round::default()
            },
            items: 0,
            before: None,
            usage: None,
        }
    }

    /// Returns true while the answer waits for the outcomes of its calls.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns the calls whose outcomes the answer waits for.
    pub fn begin_calls(&mut self, out: &mut OutputBuffer) -> Vec<ServerCall> {
        self.begin(out);
        for at in 0..self.round.calls.len() {
            if let Some(call) = self.round.calls.get(at)
                && call.call.approval.is_some()
            {
                let arguments = call.call.arguments.clone();
                self.begin_item(at, out);
                self.tell_arguments(at, &arguments, out);
                self.complete(at, out);
            }
        }
        let runs = self.round.calls.iter().filter(|call| call.item.is_some());
        runs.map(|call| call.call.clone()).collect()
    }

    /// Writes the outcomes of the calls, in their order. Returns the items with which the conversation goes on, as JSON:
    /// those of the round, and the outcomes. Ends the answer and returns `None` if the client has to do something first.
    pub fn resume(
        &mut self,
        outcomes: &[CallOutcome],
        out: &mut OutputBuffer,
    ) -> Option<Vec<String>> {
        self.paused = false;
        let round = std::mem::take(&mut self.round);
        let ran = round.calls.iter().filter(|call| call.item.is_some());
        let ran: Vec<_> = ran.zip(outcomes).collect();
        for (call, outcome) in &ran {
            let event = match outcome {
                CallOutcome::Output(_) => "response.mcp_call.completed",
                _ => "response.mcp_call.failed",
            };
            self.item(call.item, ItemStage::Told, event, "{}", out);
            let json = call.call.shown(CallState::Ran(outcome));
            self.item(call.item, ItemStage::Done, "mcp_call", &json, out);
        }
        if round.waits_for_client() {
            self.end(round, out);
            return None;
        }
        if let Some((alone, usage)) = round.usage {
            // The next answer may fail, or have no counts.
            self.pass_usage(usage, alone, FrameExtras::default(), out);
        }
        self.before = self.usage;
        let mut items = round.items();
        items.extend(ran.iter().map(|(call, _)| call.call.item()));
        items.extend(
            ran.iter()
                .map(|(call, outcome)| call.call.output_item(outcome)),
        );
        Some(items)
    }

    fn delta(&mut self, delta: Delta<'_>, extras: FrameExtras<'_>, out: &mut OutputBuffer) {
        match delta {
            // Each engine answer has one.
            Delta::Role if self.before.is_some() => self.pass_extras(extras, out),
            Delta::Reasoning(text) => {
                text.write(&mut self.round.reasoning);
                self.pass(Delta::Reasoning(text), extras, out);
            }
            Delta::Content(text) => {
                text.write(&mut self.round.text);
                self.pass(Delta::Content(text), extras, out);
            }
            Delta::ToolStart {
                slot,
                id,
                name,
                namespace,
                kind,
            } => match self.tools.get(name).cloned() {
                Some(tool) => {
                    self.start(slot, id, name, tool, out);
                    self.pass_extras(extras, out);
                }
                None => {
                    let own = self.round.clients;
                    self.round.clients += 1;
                    self.round.owners.push((slot, CallOwner::Client(own)));
                    let delta = Delta::ToolStart {
                        slot: own,
                        id,
                        name,
                        namespace,
                        kind,
                    };
                    self.pass(delta, extras, out);
                }
            },
            Delta::ToolArgs { slot, args } => match self.round.owner(slot) {
                Some(CallOwner::Server(at)) => {
                    self.add_arguments(at, &args.decoded(), out);
                    self.pass_extras(extras, out);
                }
                Some(CallOwner::Client(slot)) => {
                    self.pass(Delta::ToolArgs { slot, args }, extras, out)
                }
                None => {}
            },
            Delta::Done {
                slot: Some(slot),
                cut,
            } => match self.round.owner(slot) {
                Some(CallOwner::Server(at)) if !cut => self.complete(at, out),
                Some(CallOwner::Client(slot)) => {
                    let slot = Some(slot);
                    self.pass(Delta::Done { slot, cut }, extras, out);
                }
                _ => {}
            },
            Delta::Finish(finish) => self.finish(finish, extras, out),
            delta => self.pass(delta, extras, out),
        }
    }

    fn start(
        &mut self,
        slot: u32,
        id: &str,
        name: &str,
        tool: Arc<ServerTool>,
        out: &mut OutputBuffer,
    ) {
        let at = self.round.calls.len();
        let needs_approval = tool.needs_approval;
        self.round.owners.push((slot, CallOwner::Server(at)));
        self.round.calls.push(RoundCall {
            call: ServerCall {
                id: id.to_owned(),
                function: name.to_owned(),
                tool,
                arguments: String::new(),
                approval: None,
            },
            item: None,
            is_complete: false,
        });
        if !needs_approval {
            self.begin_item(at, out);
        }
    }

    fn begin_item(&mut self, at: usize, out: &mut OutputBuffer) {
        let number = self.items;
        let Some(call) = self.round.calls.get_mut(at) else {
            return;
        };
        call.item = Some(number);
        let json = call.call.shown(CallState::Begun);
        self.items += 1;
        self.item(Some(number), ItemStage::Added, "mcp_call", &json, out);
        let event = "response.mcp_call.in_progress";
        self.item(Some(number), ItemStage::Told, event, "{}", out);
    }

    fn add_arguments(&mut self, at: usize, piece: &str, out: &mut OutputBuffer) {
        if let Some(call) = self.round.calls.get_mut(at)
            && !call.is_complete
        {
            call.call.arguments.push_str(piece);
            self.tell_arguments(at, piece, out);
        }
    }

    fn tell_arguments(&mut self, at: usize, piece: &str, out: &mut OutputBuffer) {
        let call = self.round.calls.get(at);
        if let item @ Some(_) = call.and_then(|call| call.item) {
            let json = object(&[("delta", Value::Text(piece))]);
            let event = "response.mcp_call_arguments.delta";
            self.item(item, ItemStage::Told, event, &json, out);
        }
    }

    /// Marks the arguments of a call as complete. A call that needs an approval gets its item now.
    fn complete(&mut self, at: usize, out: &mut OutputBuffer) {
        let Some(call) = self
            .round
            .calls
            .get_mut(at)
            .filter(|call| !call.is_complete)
        else {
            return;
        };
        call.is_complete = true;
        let item = call.item;
        match item {
            Some(_) => {
                let json = object(&[("arguments", Value::Text(&call.call.arguments))]);
                let event = "response.mcp_call_arguments.done";
                self.item(item, ItemStage::Told, event, &json, out);
            }
            None => {
                let json = call.call.approval_request();
                self.item(None, ItemStage::Whole, "mcp_approval_request", &json, out);
            }
        }
    }

    /// Ends the engine's answer. If it has calls to run, the client learns of the end after them.
    fn finish(&mut self, finish: Finish<'_>, extras: FrameExtras<'_>, out: &mut OutputBuffer) {
        let is_cut = matches!(finish.reason, Reason::Length | Reason::ContentFilter);
        if is_cut {
            // None of the calls runs: the model might have gone on.
            for call in std::mem::take(&mut self.round.calls) {
                let json = call.call.shown(CallState::Cut);
                self.item(call.item, ItemStage::Done, "mcp_call", &json, out);
            }
        }
        if self.round.calls.is_empty() {
            return self.pass(Delta::Finish(finish), extras, out);
        }
        for at in 0..self.round.calls.len() {
            self.complete(at, out);
        }
        self.pass(Delta::Break, extras, out);
        let stop = finish.stop.map(|stop| stop.get().to_owned());
        self.round.finish = Some((finish.reason, stop));
    }

    /// Writes the end of the answer, which has waited for outcomes.
    fn end(&mut self, round: Round, out: &mut OutputBuffer) {
        if let Some((reason, stop)) = round.finish {
            let stop = stop.as_deref().and_then(Raw::of);
            let reason = match round.clients {
                0 => Reason::Stop,
                _ => reason,
            };
            let finish = Delta::Finish(Finish { reason, stop });
            self.pass(finish, FrameExtras::default(), out);
        }
        if let Some((alone, usage)) = round.usage {
            self.pass_usage(usage, alone, FrameExtras::default(), out);
        }
        self.inner.event(Event::End, out);
    }

    /// Writes what comes before the first event.
    fn begin(&mut self, out: &mut OutputBuffer) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        if let Some(response) = self.inner.response_mut() {
            response.begin_without_engine(out);
        }
        for list in std::mem::take(&mut self.lists) {
            let item = Some(self.items);
            self.items += 1;
            self.item(item, ItemStage::Added, "mcp_list_tools", &list, out);
            for event in [
                "response.mcp_list_tools.in_progress",
                "response.mcp_list_tools.completed",
            ] {
                self.item(item, ItemStage::Told, event, "{}", out);
            }
            self.item(item, ItemStage::Done, "mcp_list_tools", &list, out);
        }
    }

    fn item(
        &mut self,
        slot: Option<u32>,
        stage: ItemStage,
        name: &str,
        json: &str,
        out: &mut OutputBuffer,
    ) {
        if let Some(data) = Raw::of(json) {
            let event = Event::Foreign {
                name,
                slot,
                stage,
                data,
            };
            self.inner.event(event, out);
        }
    }

    fn pass(&mut self, delta: Delta<'_>, extras: FrameExtras<'_>, out: &mut OutputBuffer) {
        let choice = 0;
        let event = Event::Delta {
            choice,
            delta,
            extras,
        };
        self.inner.event(event, out);
    }

    fn pass_extras(&mut self, extras: FrameExtras<'_>, out: &mut OutputBuffer) {
        if !extras.is_empty() {
            self.pass(Delta::Bare, extras, out);
        }
    }

    fn pass_usage(
        &mut self,
        usage: Usage,
        alone: bool,
        extras: FrameExtras<'_>,
        out: &mut OutputBuffer,
    ) {
        let event = Event::Usage {
            usage,
            alone,
            extras,
        };
        self.inner.event(event, out);
    }
}

impl Round {
    fn owner(&self, slot: u32) -> Option<CallOwner> {
        let found = self.owners.iter().find(|(known, _)| *known == slot);
        found.map(|(_, owner)| *owner)
    }

    /// Returns true if the client has to run or approve a call before the conversation goes on.
    fn waits_for_client(&self) -> bool {
        self.clients > 0 || self.calls.iter().any(|call| call.item.is_none())
    }

    /// Returns the reasoning and the text of the round as items that an engine reads.
    fn items(&self) -> Vec<String> {
        let spelled = |text: &BytesMut| String::from_utf8_lossy(text).into_owned();
        let mut items = Vec::new();
        if !self.reasoning.is_empty() {
            let text = spelled(&self.reasoning);
            items.push(format!(
                r#"{{"type":"reasoning","summary":[],"content":[{{"type":"reasoning_text","text":"{text}"}}]}}"#
            ));
        }
        if !self.text.is_empty() {
            let text = spelled(&self.text);
            items.push(format!(
                r#"{{"type":"message","role":"assistant","content":[{{"type":"output_text","text":"{text}"}}]}}"#
            ));
        }
        items
    }
}

impl Encode for ServerCalls {
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        match event {
            Event::Head(head) => {
                // Later answers of engines belong to the same response.
                if !self.begun {
                    self.inner.event(Event::Head(head), out);
                    self.begin(out);
                }
            }
            Event::Delta {
                choice: 0,
                delta,
                extras,
            } => self.delta(delta, extras, out),
            Event::Usage {
                usage,
                alone,
                extras,
            } => {
                let sum = self.before.map_or(usage, |before| before.plus(&usage));
                self.usage = Some(sum);
                match self.round.finish {
                    Some(_) => self.round.usage = Some((alone, sum)),
                    None => self.pass_usage(sum, alone, extras, out),
                }
            }
            Event::End if self.round.calls.iter().any(|call| call.item.is_some()) => {
                self.paused = true;
            }
            Event::End => {
                let round = std::mem::take(&mut self.round);
                self.end(round, out);
            }
            Event::Fail(failure) => {
                self.paused = false;
                self.begin(out);
                self.inner.event(Event::Fail(failure), out);
            }
            event => self.inner.event(event, out),
        }
    }

    fn take_rejection(&mut self) -> Option<Failure> {
        self.inner.take_rejection()
    }

    fn is_waiting(&self) -> bool {
        self.inner.is_waiting()
    }

    fn response(&self) -> Option<&Response> {
        self.inner.response()
    }

    fn response_mut(&mut self) -> Option<&mut Response> {
        self.inner.response_mut()
    }

    fn server_calls(&mut self) -> Option<&mut ServerCalls> {
        Some(self)
    }
}
