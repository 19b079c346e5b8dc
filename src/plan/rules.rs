//! Application of an engine's rules to one request: one pass over the parsed request, with the rules
//! (`engine::rule`) as data.
//!
//! Takes: a request, its text, a route. Gives: edits, and the rules that made them. Never: touches what no rule
//! names.

use super::adapt::RequestAdapter;
use super::{Route, messages, parts, settings, tools};
use crate::engine::fallback::{CALLS_IN_TEXT, Fallback, SYSTEM_MERGED};
use crate::engine::rule::{Change, RequestRule};
use crate::request::ChatRequest;
use crate::request::fields::Edits;
use crate::wire::fault::Failure;
use crate::wire::options::{Options, RequestUnknown, SystemMessages};
use crate::wire::{Api, TextFormat};

/// Computes the edits that adapt a request to the engine of `route`, and the rules that made them. `script` is the
/// parser for the answer's text, if one is needed.
///
/// # Errors
/// Fails on a value that this engine does not support.
pub(super) fn adapted(
    ask: &ChatRequest,
    text: &str,
    route: &Route,
    items: bool,
    script: Option<&TextFormat>,
) -> Result<(Edits, Vec<&'static RequestRule>), Failure> {
    let mut used = Vec::new();
    let mut adapter = RequestAdapter::new(ask, text, &route.options, items);
    if let Some(choice) = ask.choice {
        settings::one_of_several(&mut adapter, choice);
    }
    let of_chat = ask.api == Api::Chat;
    // Merging comes before the rules: merged messages need no other change.
    if of_chat && merges_system(route) && apply(&mut adapter, SYSTEM_MERGED.change)? {
        used.push(&SYSTEM_MERGED);
    }
    if ask.api == Api::Completions {
        settings::logprobs_flag(&mut adapter);
    }
    for rule in route.identity.requests().filter(|rule| of_chat || !rule.change.is_of_chat()) {
        if apply(&mut adapter, rule.change)? {
            used.push(rule);
        }
    }
    // A learnt fan-out is optional: if the request cannot be split, it stays as it is.
    let fans_out = |rule: &&RequestRule| matches!(rule.change, Change::FanOut { .. });
    if route.fallbacks.has(Fallback::FanOut) && ask.choice.is_none() && !used.iter().any(fans_out) {
        let rule = Fallback::FanOut.rule();
        if apply(&mut adapter, rule.change).unwrap_or(false) {
            used.push(rule);
        }
    }
    // After the rules, which would take the added `tool_choice` for the client's own.
    let script = script.filter(|_| of_chat);
    if route.fallbacks.has(Fallback::CallsInText) && script.is_some_and(TextFormat::can_read_calls) {
        if apply(&mut adapter, CALLS_IN_TEXT.change)? {
            used.push(&CALLS_IN_TEXT);
        }
    } else if route.capabilities().wants_parser && script.is_some_and(TextFormat::reads_calls) {
        tools::hide_calls(&mut adapter);
    }
    // A generated chat body contains only fields that samewire wrote itself.
    if route.options.request_unknown == RequestUnknown::Drop && !items {
        ask.places.unknown.iter().for_each(|key| _ = adapter.top.remove(key));
    }
    Ok((adapter.finish(), used))
}

/// Returns true if the request asks for several choices and can be split into one request for each.
pub(super) fn can_fan_out(ask: &ChatRequest, body: &[u8]) -> bool {
    let text = body.get(ask.places.offset..).and_then(|text| std::str::from_utf8(text).ok());
    text.filter(|_| ask.choices > 1).is_some_and(|text| {
        let options = Options::default();
        let mut adapter = RequestAdapter::new(ask, text, &options, false);
        settings::fan_out(&mut adapter, false).unwrap_or(false)
    })
}

/// Returns true if the texts of all system messages are merged into one message on this route.
pub(super) fn merges_system(route: &Route) -> bool {
    match route.options.system_messages {
        SystemMessages::Auto => route.fallbacks.has(Fallback::SystemMerged),
        SystemMessages::Keep => false,
        SystemMessages::Merge => true,
    }
}

/// Applies one change, and returns true if it altered the request. Fails where the change refuses a value.
fn apply(adapter: &mut RequestAdapter<'_>, change: Change) -> Result<bool, Failure> {
    Ok(match change {
        Change::Rename(from, to) => settings::rename(adapter, from, to),
        Change::Copy(from, to) => settings::copy(adapter, from, to),
        Change::Supersede(newer, older) => settings::supersede(adapter, newer, older),
        Change::Range { key, least, why } => settings::range(adapter, key, least, why)?,
        Change::Drop(keys) => keys.iter().filter(|key| adapter.top.remove(key)).count() > 0,
        Change::Refuse { key, supported: but, why } => settings::refuse(adapter, key, but, why)?,
        // The same rule keeps `upstream_body` from adding the member.
        Change::NoStreamOptions => adapter.top.remove("stream_options"),
        Change::Nulls => settings::nulls(adapter),
        Change::EmptyStops => settings::empty_stops(adapter),
        Change::Constrain(constraints) => settings::constrain(adapter, constraints),
        Change::FanOut { calls } => settings::fan_out(adapter, calls)?,
        Change::SchemaName => settings::schema_name(adapter),
        Change::ReasoningObject { is_read } => settings::reasoning_object(adapter, is_read),
        Change::NoReasoning => settings::no_reasoning(adapter),
        Change::Efforts(known) => settings::effort(adapter, known),
        Change::HarmonyEfforts(known) => adapter.is_gpt_oss() && settings::effort(adapter, known),
        Change::MergeSystem => messages::merge_system(adapter),
        Change::Developer { always } => messages::developer(adapter, always),
        Change::LegacyFunctions => tools::legacy(adapter) | messages::legacy(adapter),
        Change::EmptyTools => tools::empty(adapter),
        Change::ChoiceAlone => tools::choice_alone(adapter),
        Change::ChoiceNone => tools::choice_none(adapter),
        Change::AllowedTools => tools::allowed(adapter)?,
        Change::CustomTools => tools::custom(adapter)? | messages::custom(adapter),
        Change::CallsInText => tools::calls_in_text(adapter),
        // `OneCall` alters only the answer.
        Change::OneCall => false,
        Change::ReasoningKey(key) => messages::reasoning_key(adapter, key),
        Change::DropOfAssistant(keys) => messages::drop_of_assistant(adapter, keys),
        Change::NoCalls => messages::no_calls(adapter),
        Change::ContentBesideCalls => messages::content_beside_calls(adapter),
        Change::Arguments => messages::arguments(adapter),
        Change::ToolText => parts::tool_text(adapter),
        Change::Part(kind, becomes) => parts::part(adapter, kind, becomes)?,
        Change::ContinueMessage { members, items } => {
            messages::continue_final_message(adapter, members, items)
        }
    })
}
