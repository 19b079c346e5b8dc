//! What of a request is changed for the engine that it goes to: one pass over what was read of it, with the engine's rules
//! (`engine::rule`) as data.
//!
//! Takes: an [`Ask`], the body's text, a route. Gives: edits, and the rules that made them. Remembers: drafts of the request
//! and of its messages that are more than a text. Never: touches what no rule names.

use super::object_edit::ObjectEdit;
use super::{Route, messages, parts, settings, tools};
use crate::engine::fallback::{CALLS_IN_TEXT, Fallback, SYSTEM_MERGED};
use crate::engine::rule::{Change, RequestRule};
use crate::json::{self, Elements};
use crate::request::fields::{self, Edits, MemberSpan};
use crate::request::{ChatRequest, NumberedMessage};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::{Options, RequestUnknown, SystemMessages};
use crate::wire::{Api, Script};

/// A request for one engine.
pub(super) struct RequestAdapter<'t> {
    pub(super) ask: &'t ChatRequest,
    pub(super) text: &'t str,
    pub(super) options: &'t Options,
    /// It was a Responses request: its messages are finished items.
    pub(super) items: bool,
    pub(super) top: ObjectEdit<'t>,
    pub(super) messages: Vec<Message<'t>>,
    /// Changes within members and messages.
    pub(super) edits: Edits,
}

/// A message that is more than a text.
pub(super) struct Message<'t> {
    /// Its number.
    pub(super) at: usize,
    /// As JSON, quotes included.
    pub(super) role: &'t str,
    pub(super) edit: ObjectEdit<'t>,
}

/// The edits that fit a request to the engine of `route`, and the rules that made them. `script`: how the text of the answer is
/// read.
///
/// # Errors
/// Something in it cannot be said to this engine.
pub(super) fn adapter(
    ask: &ChatRequest,
    text: &str,
    route: &Route,
    items: bool,
    script: Option<&Script>,
) -> Result<(Edits, Vec<&'static RequestRule>), Failure> {
    let mut used = Vec::new();
    let mut adapter = RequestAdapter::new(ask, text, &route.options, items);
    if let Some(choice) = ask.choice {
        settings::one_of_several(&mut adapter, choice);
    }
    let of_chat = ask.api == Api::Chat;
    // Before the rules: what is merged needs no other change.
    if of_chat && merges_system(route) && adapter.change(SYSTEM_MERGED.change)? {
        used.push(&SYSTEM_MERGED);
    }
    if ask.api == Api::Completions {
        settings::logprobs_flag(&mut adapter);
    }
    for rule in route.identity.requests().filter(|rule| of_chat || !rule.change.is_of_chat()) {
        if adapter.change(rule.change)? {
            used.push(rule);
        }
    }
    // The request was good for an engine that gives several: where each takes one of its own it may stay as it is.
    let fans_out = |rule: &&RequestRule| matches!(rule.change, Change::FanOut { .. });
    if route.fallbacks.has(Fallback::FanOut) && ask.choice.is_none() && !used.iter().any(fans_out) {
        let rule = Fallback::FanOut.rule();
        if adapter.change(rule.change).unwrap_or(false) {
            used.push(rule);
        }
    }
    // Behind the rules: to them it would be what the client wants.
    let script = script.filter(|_| of_chat);
    if route.fallbacks.has(Fallback::CallsInText) && script.is_some_and(Script::can_read_calls) {
        if adapter.change(CALLS_IN_TEXT.change)? {
            used.push(&CALLS_IN_TEXT);
        }
    } else if route.takes().wants_parser && script.is_some_and(Script::reads_calls) {
        tools::hide_calls(&mut adapter);
    }
    // A chat that was made here has what it is to have.
    if route.options.request_unknown == RequestUnknown::Drop && !items {
        ask.places.unknown.iter().for_each(|key| _ = adapter.top.remove(key));
    }
    Ok((adapter.finish(), used))
}

/// Whether several choices are asked for that can be asked for one by one.
pub(super) fn can_fan_out(ask: &ChatRequest, body: &[u8]) -> bool {
    let text = body.get(ask.places.offset..).and_then(|text| std::str::from_utf8(text).ok());
    text.filter(|_| ask.choices > 1).is_some_and(|text| {
        let options = Options::default();
        let mut adapter = RequestAdapter::new(ask, text, &options, false);
        settings::fan_out(&mut adapter, false).unwrap_or(false)
    })
}

/// Whether the texts of all system messages are put into one message.
pub(super) fn merges_system(route: &Route) -> bool {
    match route.options.system_messages {
        SystemMessages::Auto => route.fallbacks.has(Fallback::SystemMerged),
        SystemMessages::Keep => false,
        SystemMessages::Merge => true,
    }
}

impl<'t> RequestAdapter<'t> {
    fn new(ask: &'t ChatRequest, text: &'t str, options: &'t Options, items: bool) -> Self {
        let places = &ask.places;
        let message = |(at, range): &NumberedMessage| {
            let object = text.get(range.clone())?;
            let members = fields::read(text, object).ok()?;
            let role = members.iter().find(|member| member.key == "role")?.value.get();
            let spans: Vec<_> = members.iter().map(MemberSpan::from).collect();
            Some(Message { at: *at, role, edit: ObjectEdit::new(text, spans, range.end - 1) })
        };
        Self {
            ask,
            text,
            options,
            items,
            top: ObjectEdit::new(text, &*places.members, places.end),
            messages: places.notable.iter().filter_map(message).collect(),
            edits: Edits::default(),
        }
    }

    /// Makes a change; says whether there was anything to change.
    fn change(&mut self, change: Change) -> Result<bool, Failure> {
        Ok(match change {
            Change::Rename(from, to) => settings::rename(self, from, to),
            Change::Copy(from, to) => settings::copy(self, from, to),
            Change::Supersede(newer, older) => settings::supersede(self, newer, older),
            Change::Range { key, least, why } => settings::range(self, key, least, why)?,
            Change::Drop(keys) => keys.iter().filter(|key| self.top.remove(key)).count() > 0,
            Change::Refuse { key, but, why } => settings::refuse(self, key, but, why)?,
            // It is not asked for, either.
            Change::NoStreamOptions => self.top.remove("stream_options"),
            Change::Nulls => settings::nulls(self),
            Change::EmptyStops => settings::empty_stops(self),
            Change::Constrain(constraints) => settings::constrain(self, constraints),
            Change::FanOut { calls } => settings::fan_out(self, calls)?,
            Change::SchemaName => settings::schema_name(self),
            Change::ReasoningObject { is_read } => settings::reasoning_object(self, is_read),
            Change::NoReasoning => settings::no_reasoning(self),
            Change::Efforts(known) => settings::effort(self, known),
            Change::HarmonyEfforts(known) => self.is_gpt_oss() && settings::effort(self, known),
            Change::MergeSystem => messages::merge_system(self),
            Change::Developer { always } => messages::developer(self, always),
            Change::Legacy => tools::legacy(self) | messages::legacy(self),
            Change::EmptyTools => tools::empty(self),
            Change::ChoiceAlone => tools::choice_alone(self),
            Change::ChoiceNone => tools::choice_none(self),
            Change::AllowedTools => tools::allowed(self)?,
            Change::CustomTools => tools::custom(self)? | messages::custom(self),
            Change::CallsInText => tools::calls_in_text(self),
            // It is the answer that is changed.
            Change::OneCall => false,
            Change::ReasoningKey(key) => messages::reasoning_key(self, key),
            Change::DropOfAssistant(keys) => messages::drop_of_assistant(self, keys),
            Change::NoCalls => messages::no_calls(self),
            Change::ContentBesideCalls => messages::content_beside_calls(self),
            Change::Arguments => messages::arguments(self),
            Change::ToolText => parts::tool_text(self),
            Change::Part(kind, becomes) => parts::part(self, kind, becomes)?,
            Change::GoOn { members, items } => messages::go_on(self, members, items),
        })
    }

    fn finish(self) -> Edits {
        let mut edits = self.edits;
        self.top.finish(&mut edits);
        self.messages.into_iter().for_each(|message| message.edit.finish(&mut edits));
        edits
    }

    /// It is a model that is spoken to in Harmony: nothing of it goes through a chat template.
    pub(super) fn is_gpt_oss(&self) -> bool {
        const NAME: &[u8] = b"gpt-oss";
        self.ask.model.as_bytes().windows(NAME.len()).any(|part| part.eq_ignore_ascii_case(NAME))
    }

    /// The elements of a list, as JSON, one after the other.
    pub(super) fn list(json: &str) -> Option<Elements<'_>> {
        json::elements(json)
    }
}

/// A value that this engine cannot be given.
pub(super) fn unsupported(param: impl Into<String>, why: &str) -> Failure {
    let param = param.into();
    let message = format!("Unsupported value for '{param}': {why}.");
    Failure::from(Fault::UnsupportedValue).with_message(message).with_param(param)
}
