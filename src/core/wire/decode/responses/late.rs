//! Content that the engine sends only at the end: the rest of a text, items without events, or a whole answer.

use super::body::{self, Body, Incomplete, ItemBody, ItemPart, TurnUsage};
use super::items::{EmittedText, ItemKind, TerminalItem};
use super::{MAX_ITEMS, ResponsesDecoder, TextKind, json_spelling};
use crate::json::{Extras, Raw, Text, read};
use crate::wire::decode::members::{list, object, string, text};
use crate::wire::decode::{BadField, EventSink, UsageBody};
use crate::wire::event::{
    Delta, Event, Finish, FrameExtras, INPUT_PER_TURN, OUTPUT_PER_TURN, RESPONSE_MESSAGES, Reason,
    Usage,
};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::PromoteReasoning;
use crate::wire::rule::Rule;

/// Outcome of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LateOutcome {
    Completed,
    Incomplete(Reason),
    Failed,
    Cancelled,
    /// Unknown: the object's status is none of a final answer.
    No,
}

impl LateOutcome {
    /// Determines the outcome from the object's status and the name of its event. `cut`: true if an item is marked
    /// as incomplete.
    fn terminal_item(body: &Body<'_>, event: &str, cut: bool) -> Self {
        let status = string(body.status);
        match (event, status.as_deref()) {
            ("failed", _) | (_, Some("failed")) => Self::Failed,
            ("cancelled", _) | (_, Some("cancelled")) => Self::Cancelled,
            // vLLM ends with the event `completed` even where the status is another
            // (fixtures/vllm/responses-length).
            ("incomplete", _) | (_, Some("incomplete")) => {
                let incomplete: Incomplete<'_> = object(body.incomplete);
                Self::Incomplete(match string(incomplete.reason).as_deref() {
                    Some("content_filter") => Reason::ContentFilter,
                    _ => Reason::Length,
                })
            }
            // The item is more precise than the status (fixtures/vllm/responses-gptoss-length).
            ("completed", _) | (_, Some("completed")) if cut => Self::Incomplete(Reason::Length),
            ("completed", _) | (_, Some("completed")) => Self::Completed,
            _ => Self::No,
        }
    }
}

impl ResponsesDecoder {
    /// Reads an answer that is one object. Fails if it is not JSON or has no final status.
    pub(super) fn whole(&mut self, data: &str, to: &mut dyn EventSink) -> Result<(), BadField> {
        let body: Body<'_> = read(data).map_err(|_| BadField)?;
        let told: body::EventBody<'_> = read(data).map_err(|_| BadField)?;
        if told.error.is_some() || crate::wire::fault::is_error_object(told.object, told.kind) {
            self.fail(data, to);
            return Ok(());
        }
        self.terminal(&body, "", data, to)
    }

    /// Reads the terminal event: emits the content that earlier events lacked, the finish and the usage. Fails if
    /// the status is not final or the object has too many items.
    pub(super) fn terminal(
        &mut self,
        body: &Body<'_>,
        event: &str,
        data: &str,
        to: &mut dyn EventSink,
    ) -> Result<(), BadField> {
        let output: Vec<Raw<'_>> = list(body.output);
        let is_cut = |raw: &Raw<'_>| {
            let item: ItemBody<'_> = object(Some(*raw));
            string(item.status).as_deref() == Some("incomplete")
        };
        let ended = LateOutcome::terminal_item(body, event, self.cut || output.iter().any(is_cut));
        if ended == LateOutcome::No || output.len() > MAX_ITEMS {
            return Err(BadField);
        }
        if !self.has_head || body.id.is_some() {
            self.head(body, to);
        }
        // A terminal event ends a stream, which has already sent its reasoning.
        let promotes = match event.is_empty() && ended == LateOutcome::Completed {
            true => self.reading.promote_reasoning,
            false => PromoteReasoning::Never,
        };
        match ended {
            LateOutcome::Incomplete(Reason::Length) if event.is_empty() => to.cut_text(0),
            _ if promotes == PromoteReasoning::Always && output.len() == 1 => to.only_text(0),
            _ => {}
        }
        self.complete_items(output, ended, promotes, to)?;
        let reason = match ended {
            LateOutcome::Failed => {
                self.fail(data, to);
                return Ok(());
            }
            LateOutcome::Cancelled | LateOutcome::No => {
                to.event(Event::Fail(Failure::from(Fault::Aborted)));
                return Ok(());
            }
            LateOutcome::Incomplete(reason) => reason,
            LateOutcome::Completed => Reason::Stop,
        };
        let extras = FrameExtras {
            chunk_extensions: self.extensions(body),
            ..FrameExtras::default()
        };
        to.delta(0, Delta::Finish(Finish { reason, stop: None }), extras);
        if let Some(usage) = body.usage.and_then(|raw| usage(raw, to)) {
            to.event(Event::Usage {
                usage,
                alone: true,
                extras: FrameExtras::default(),
            });
        }
        // An event for rate limits can follow a terminal event, but not a whole object.
        self.awaits_limits = self.reading.limits && !event.is_empty();
        if !self.awaits_limits {
            to.event(Event::End);
        }
        Ok(())
    }

    /// Returns what the client asked for by an engine's extension. Only lists count.
    fn extensions<'a>(&self, body: &Body<'a>) -> Extras<'a> {
        let mut found = Extras::default();
        if !self.reading.extensions.response_messages {
            return found;
        }
        let usage: TurnUsage<'a> = object(body.usage);
        let (input, output) = (
            usage.input.unwrap_or_default(),
            usage.output.unwrap_or_default(),
        );
        let messages = RESPONSE_MESSAGES
            .into_iter()
            .zip([body.input_messages, body.output_messages]);
        let read = INPUT_PER_TURN.into_iter().zip([input.input, input.cached]);
        let written = OUTPUT_PER_TURN
            .into_iter()
            .zip([output.output, output.tool_output]);
        for (key, raw) in messages.chain(read).chain(written) {
            if let Some(raw) = raw.filter(|raw| raw.get().starts_with('[')) {
                found.keep(key.into(), raw);
            }
        }
        found
    }

    fn complete_items(
        &mut self,
        output: Vec<Raw<'_>>,
        ended: LateOutcome,
        promotes: PromoteReasoning,
        to: &mut dyn EventSink,
    ) -> Result<(), BadField> {
        let mut bodies: Vec<(Raw<'_>, ItemBody<'_>, ItemKind)> = output
            .into_iter()
            .filter_map(|raw| {
                let body: ItemBody<'_> = object(Some(raw));
                let kind = ItemKind::of(&body)?;
                Some((raw, body, kind))
            })
            .collect();
        let is_promoted = |body: &ItemBody<'_>, kind: &ItemKind| {
            is_plain_reasoning(body, kind) && promotes.takes(&joined(&body::parts(body.content)))
        };
        if !bodies.is_empty() && bodies.iter().all(|(_, body, kind)| is_promoted(body, kind)) {
            to.count_rule(Rule::ReasoningPromoted);
            bodies
                .iter_mut()
                .for_each(|(_, _, kind)| *kind = ItemKind::Message);
        }
        let listed: Vec<_> = bodies
            .iter()
            .map(|(_, body, kind)| of(body, kind))
            .collect();
        let found = self.items.match_terminal(&listed);
        let last = bodies.len().saturating_sub(1);
        for (nth, ((raw, body, kind), found)) in bodies.iter().zip(found).enumerate() {
            let is_new = found.is_none();
            let at = match found {
                Some(at) => at,
                None => self.begin(kind.clone(), string(body.id).as_deref())?,
            };
            if !self.items.0.get(at).is_some_and(|item| item.open) {
                if let Some(sealed) = text(body.encrypted).filter(|_| *kind == ItemKind::Reasoning)
                {
                    self.seal(at, sealed, to);
                }
                continue;
            }
            if let ItemKind::Foreign(_) = kind {
                self.end_foreign(at, *raw, to);
                continue;
            }
            self.complete(at, body, to);
            let status = string(body.status);
            let cut = status.as_deref() == Some("incomplete");
            // The finish ends the last item of an answer that was cut short.
            let is_last =
                nth == last && status.is_none() && matches!(ended, LateOutcome::Incomplete(_));
            if ended != LateOutcome::Failed && (cut || is_new && !is_last) {
                self.close(at, cut, to);
            }
        }
        Ok(())
    }

    /// Emits the content of an item that has not been emitted yet.
    pub(super) fn complete(&mut self, at: usize, body: &ItemBody<'_>, to: &mut dyn EventSink) {
        let Some(item) = self.items.0.get(at) else {
            return;
        };
        match item.kind {
            ItemKind::Message => self.complete_message(at, &body::parts(body.content), to),
            ItemKind::Reasoning => {
                let content = joined(&reasoning_parts(body));
                let summary = joined(&body::parts(body.summary));
                for (voice, whole) in [(TextKind::Reasoning, content), (TextKind::Summary, summary)]
                {
                    self.emit_missing(at, voice, &whole, to);
                }
                if let Some(sealed) = text(body.encrypted) {
                    self.seal(at, sealed, to);
                }
            }
            ItemKind::Function | ItemKind::Custom => {
                self.emit_name(at, body, to);
                self.emit_rest_of_arguments(at, body.arguments, to);
            }
            ItemKind::Foreign(_) => {}
        }
    }

    fn complete_message(&mut self, at: usize, parts: &[ItemPart<'_>], to: &mut dyn EventSink) {
        let (is_refusal, is_text) = (
            |part: &&ItemPart<'_>| refuses(part),
            |part: &&ItemPart<'_>| !refuses(part),
        );
        if self.items.0.get(at).is_some_and(|item| item.emitted) {
            for (voice, parts) in [
                (
                    TextKind::Content,
                    parts.iter().filter(is_text).collect::<Vec<_>>(),
                ),
                (TextKind::Refusal, parts.iter().filter(is_refusal).collect()),
            ] {
                let whole: String = parts
                    .iter()
                    .filter_map(|part| part.text)
                    .map(json_spelling)
                    .collect();
                self.emit_missing(at, voice, &whole, to);
            }
        } else {
            for part in parts {
                let voice = if refuses(part) {
                    TextKind::Refusal
                } else {
                    TextKind::Content
                };
                let extras = self.logprobs(part.logprobs, to);
                if let Some(text) = text(part.text) {
                    self.emit_text(at, voice, text, extras, to);
                }
                self.annotations_of(at, list(part.annotations), to);
            }
            return;
        }
        let annotations: Vec<_> = parts
            .iter()
            .flat_map(|part| list(part.annotations))
            .collect();
        self.annotations(at, &annotations, to);
        self.emit_tokens(at, parts, to);
    }

    /// Emits the annotations of an item that have not been emitted yet. `all`: all of its annotations.
    pub(super) fn annotations(&mut self, at: usize, all: &[Raw<'_>], to: &mut dyn EventSink) {
        let said = self.items.0.get(at).map_or(0, |item| item.annotations);
        self.annotations_of(at, all.get(said..).unwrap_or_default().to_vec(), to);
    }

    fn annotations_of(&mut self, at: usize, annotations: Vec<Raw<'_>>, to: &mut dyn EventSink) {
        for annotation in annotations {
            self.annotate(at, annotation, to);
        }
    }

    /// Emits the part of an item's whole text that has not been emitted.
    fn emit_missing(&mut self, at: usize, voice: TextKind, whole: &str, to: &mut dyn EventSink) {
        let seen = self
            .items
            .0
            .get_mut(at)
            .map(|item| voice.channel(item).total)
            .unwrap_or_default();
        self.emit_rest(at, voice, whole, seen, to);
    }

    /// Emits the part of `whole` after the text in `seen`; nothing if `whole` begins differently.
    pub(super) fn emit_rest(
        &mut self,
        at: usize,
        voice: TextKind,
        whole: &str,
        seen: EmittedText,
        to: &mut dyn EventSink,
    ) {
        if let Some(rest) = seen.rest(whole).filter(|rest| !rest.is_empty()) {
            to.count_rule(Rule::ItemLate);
            self.emit_text(at, voice, Text::json(rest), FrameExtras::default(), to);
        }
    }

    /// Emits the part of a call's arguments or input that has not been emitted.
    pub(super) fn emit_rest_of_arguments(
        &mut self,
        at: usize,
        whole: Option<Raw<'_>>,
        to: &mut dyn EventSink,
    ) {
        let seen = self
            .items
            .0
            .get(at)
            .map(|item| item.text.total)
            .unwrap_or_default();
        let whole = whole.map(json_spelling).unwrap_or_default();
        if let Some(rest) = seen.rest(&whole).filter(|rest| !rest.is_empty()) {
            to.count_rule(Rule::ItemLate);
            self.emit_arguments(at, rest, to);
        }
    }
}

/// Returns true if an item is reasoning with text, and has neither summary nor encrypted content.
fn is_plain_reasoning(body: &ItemBody<'_>, kind: &ItemKind) -> bool {
    *kind == ItemKind::Reasoning
        && !joined(&body::parts(body.content)).is_empty()
        && body::parts(body.summary).is_empty()
        && text(body.encrypted).is_none()
}

/// Returns the properties by which an item of a terminal object is matched.
fn of(body: &ItemBody<'_>, kind: &ItemKind) -> TerminalItem {
    let text = match kind {
        ItemKind::Message => joined(&body::parts(body.content)),
        ItemKind::Reasoning => joined(&reasoning_parts(body)),
        ItemKind::Function | ItemKind::Custom => {
            body.arguments.map(json_spelling).unwrap_or_default()
        }
        ItemKind::Foreign(_) => String::new(),
    };
    TerminalItem {
        kind: kind.clone(),
        id: string(body.id),
        call_id: string(body.call_id),
        name: string(body.name),
        text,
    }
}

/// Returns the parts of reasoning text. vLLM 0.10.0 has the text in the item itself.
fn reasoning_parts<'a>(body: &ItemBody<'a>) -> Vec<ItemPart<'a>> {
    match body::parts(body.content) {
        none if none.is_empty() => body::parts(body.text),
        parts => parts,
    }
}

fn joined(parts: &[ItemPart<'_>]) -> String {
    parts
        .iter()
        .filter(|part| !refuses(part))
        .filter_map(|part| part.text)
        .map(json_spelling)
        .collect()
}

fn refuses(part: &ItemPart<'_>) -> bool {
    string(part.kind).as_deref() == Some("refusal")
}

/// Reads token counts under the names of either API: SGLang's objects use those of chat.
fn usage(raw: Raw<'_>, to: &mut dyn EventSink) -> Option<Usage> {
    let body: UsageBody<'_> = read(raw.get()).ok()?;
    if body.is_wrong() {
        to.count_rule(Rule::Usage);
    }
    let mut usage = body.read()?;
    let details = body
        .input_details
        .as_ref()
        .and_then(|details| details.cache_write);
    usage.cache_write = usage
        .cache_write
        .or_else(|| details.and_then(crate::json::integer));
    Some(usage)
}
