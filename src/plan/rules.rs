//! Application of an engine's rules to one request: one pass over the parsed request, with the rules
//! (`engine::rule`) as data.
//!
//! Takes: a request, its text, a route. Gives: edits, and the rules that made them. Never: touches what no rule
//! names.

use super::adapt::RequestAdapter;
use super::{Route, messages, parts, settings, tools};
use crate::engine::efforts::Efforts;
use crate::engine::fallback::Fallback;
use crate::engine::rule::{RequestRule, RuleChange, rules_for};
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
    request: &ChatRequest,
    text: &str,
    route: &Route,
    items: bool,
    script: Option<&TextFormat>,
) -> Result<(Edits, Vec<&'static RequestRule>), Failure> {
    let mut used = Vec::new();
    let mut adapter = RequestAdapter::new(request, text, &route.options, items);
    adapter.efforts = route.fallbacks.efforts();
    if let Some(choice) = request.choice {
        settings::one_of_several(&mut adapter, choice);
    }
    let of_chat = request.api == Api::Chat;
    // Merging comes before the rules: merged messages need no other change.
    if of_chat && merges_system(route) {
        apply_fallback(&mut adapter, Fallback::SystemMerged, &mut used)?;
    }
    // The limit is left out before the rules, too, which could copy it.
    if of_chat && route.fallbacks.has(Fallback::LimitLeftOut) {
        apply_fallback(&mut adapter, Fallback::LimitLeftOut, &mut used)?;
    }
    if request.api == Api::Completions {
        settings::logprobs_flag(&mut adapter);
    }
    for rule in rules_for(&route.identity).filter(|rule| of_chat || !rule.change.is_of_chat()) {
        if adapter.may_change(rule.subject) && apply(&mut adapter, rule.change)? {
            used.push(rule);
        }
    }
    if of_chat {
        // They change what the engine's own rules have left.
        let of_values = [
            Fallback::Effort(Efforts::NONE),
            Fallback::EffortLeftOut,
            Fallback::BudgetLeftOut,
        ];
        for fallback in of_values
            .into_iter()
            .filter(|fallback| route.fallbacks.has(*fallback))
        {
            apply_fallback(&mut adapter, fallback, &mut used)?;
        }
    }
    // The field is not added then; one of the client's own stays.
    if route.shows_prompt && route.fallbacks.has(Fallback::PromptNotRequested) {
        used.push(Fallback::PromptNotRequested.rule());
    }
    // A learned fan-out is optional: if the request cannot be split, it stays as it is.
    let fans_out = |rule: &&RequestRule| matches!(rule.change, RuleChange::FanOut { .. });
    if route.fallbacks.has(Fallback::FanOut)
        && request.choice.is_none()
        && !used.iter().any(fans_out)
    {
        let rule = Fallback::FanOut.rule();
        if apply(&mut adapter, rule.change).unwrap_or(false) {
            used.push(rule);
        }
    }
    // After the rules, which would take the added `tool_choice` for the client's own.
    let script = script.filter(|_| of_chat);
    if route.fallbacks.has(Fallback::CallsInText) && script.is_some_and(TextFormat::can_read_calls)
    {
        apply_fallback(&mut adapter, Fallback::CallsInText, &mut used)?;
    } else if route.capabilities().wants_parser && script.is_some_and(TextFormat::reads_calls) {
        tools::hide_calls(&mut adapter);
    }
    // The body of a Responses request was generated without these fields.
    if route.options.request_unknown == RequestUnknown::Drop && !items {
        request
            .places
            .unknown
            .iter()
            .for_each(|key| _ = adapter.top.remove(key));
    }
    Ok((adapter.finish(), used))
}

/// Applies the change of a fallback, and adds its rule to `used` if it altered the request.
fn apply_fallback(
    adapter: &mut RequestAdapter<'_>,
    fallback: Fallback,
    used: &mut Vec<&'static RequestRule>,
) -> Result<(), Failure> {
    let rule = fallback.rule();
    if apply(adapter, rule.change)? {
        used.push(rule);
    }
    Ok(())
}

/// Returns true if the request asks for several choices and can be split into one request for each.
pub(super) fn can_fan_out(request: &ChatRequest, body: &[u8]) -> bool {
    let text = body
        .get(request.places.offset..)
        .and_then(|text| simdutf8::basic::from_utf8(text).ok());
    text.filter(|_| request.choices > 1).is_some_and(|text| {
        let options = Options::default();
        let mut adapter = RequestAdapter::new(request, text, &options, false);
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

fn efforts(words: &[&str]) -> Efforts {
    Efforts::of(words.iter().copied()).unwrap_or_default()
}

/// Applies one change, and returns true if it altered the request. Fails where the change refuses a value.
fn apply(adapter: &mut RequestAdapter<'_>, change: RuleChange) -> Result<bool, Failure> {
    Ok(match change {
        RuleChange::Rename(from, to) => settings::rename(adapter, from, to),
        RuleChange::Copy(from, to) => settings::copy(adapter, from, to),
        RuleChange::Supersede(newer, older) => settings::supersede(adapter, newer, older),
        RuleChange::Range { key, least, why } => settings::range(adapter, key, least, why)?,
        RuleChange::Drop(keys) => keys.iter().filter(|key| adapter.top.remove(key)).count() > 0,
        RuleChange::Refuse {
            key,
            supported: but,
            why,
        } => settings::refuse(adapter, key, but, why)?,
        // The same rule keeps `upstream_body` from adding the member.
        RuleChange::NoStreamOptions => adapter.top.remove("stream_options"),
        RuleChange::Nulls => settings::nulls(adapter),
        RuleChange::EmptyStops => settings::empty_stops(adapter),
        RuleChange::Constrain { unread, read } => settings::constrain(adapter, unread, read),
        RuleChange::FanOut { calls } => settings::fan_out(adapter, calls)?,
        RuleChange::SchemaName => settings::schema_name(adapter),
        RuleChange::ReasoningObject { is_read } => settings::reasoning_object(adapter, is_read),
        RuleChange::NoReasoning => settings::no_reasoning(adapter),
        RuleChange::ThinkingSwitch { budget } => settings::thinking_switch(adapter, budget),
        RuleChange::BudgetLeftOut => settings::budget_left_out(adapter),
        RuleChange::Efforts(known) => settings::effort(adapter, efforts(known)),
        RuleChange::HarmonyEfforts(known) => {
            adapter.request.is_gpt_oss() && settings::effort(adapter, efforts(known))
        }
        RuleChange::MergeSystem => messages::merge_system(adapter),
        RuleChange::Developer { always } => messages::developer(adapter, always),
        RuleChange::LegacyFunctions => tools::legacy(adapter) | messages::legacy(adapter),
        RuleChange::EmptyTools => tools::empty(adapter),
        RuleChange::ChoiceAlone => tools::choice_alone(adapter),
        RuleChange::ChoiceNone => tools::choice_none(adapter),
        RuleChange::AllowedTools => tools::allowed(adapter)?,
        RuleChange::CustomTools => tools::custom(adapter)? | messages::custom(adapter),
        RuleChange::CallsInText => tools::calls_in_text(adapter),
        RuleChange::LearnedEffort => settings::effort(adapter, adapter.efforts),
        // They alter the answer, or the finished body.
        RuleChange::OneCall | RuleChange::OfFinishedBody => false,
        RuleChange::ReasoningKey(key) => messages::reasoning_key(adapter, key),
        RuleChange::DropOfAssistant(keys) => messages::drop_of_assistant(adapter, keys),
        RuleChange::NoCalls => messages::no_calls(adapter),
        RuleChange::ContentBesideCalls => messages::content_beside_calls(adapter),
        RuleChange::Arguments => messages::arguments(adapter),
        RuleChange::ToolText => parts::tool_text(adapter),
        RuleChange::Part(kind, becomes) => parts::part(adapter, kind, becomes)?,
        RuleChange::ContinueMessage { members, items } => {
            messages::continue_final_message(adapter, members, items)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{ENGINES, EngineIdentity, named};
    use crate::plan::plan;
    use bytes::Bytes;
    use std::sync::Arc;

    /// Parses an engine with its version, such as `sglang 0.5.0`.
    fn identity(text: &str) -> EngineIdentity {
        let (name, version) = text
            .split_once(' ')
            .map_or((text, None), |(name, version)| (name, Some(version)));
        let version = version.map(|version| version.parse().unwrap());
        EngineIdentity {
            version,
            ..EngineIdentity::from(named(name).unwrap())
        }
    }

    /// Returns the body that the engine receives, and the names of the rules that changed it.
    fn sent(to: &str, options: Options, body: &str) -> (String, Vec<&'static str>) {
        let body = Bytes::from(body.to_owned());
        let request = ChatRequest::recall(Api::Chat, &body).unwrap();
        let plan = plan(
            &request,
            &body,
            &Route::new(identity(to), Arc::new(options), 1 << 20),
        )
        .unwrap();
        (
            String::from_utf8(plan.body.joined().to_vec()).unwrap(),
            plan.shape.adapted,
        )
    }

    /// Engine, the client's body, the body that the engine receives, and the rules that are named.
    const CHANGES: &[(&str, &str, &str, &[&str])] = &[
        // A stop string, a limit and a message that need no change.
        (
            "sglang",
            r#"{"stop":["a", "b"]}"#,
            r#"{"stop":["a", "b"]}"#,
            &[],
        ),
        (
            "sglang 0.5.11",
            r#"{"max_tokens":1}"#,
            r#"{"max_tokens":1}"#,
            &[],
        ),
        (
            "openai",
            r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"x"}]}"#,
            r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"x"}]}"#,
            &[],
        ),
        // An empty message is not gone on with.
        (
            "vllm",
            r#"{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":""}]}"#,
            r#"{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":""}]}"#,
            &[],
        ),
        (
            "vllm",
            r#"{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":[]}]}"#,
            r#"{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":[]}]}"#,
            &[],
        ),
        // Three messages become one, and later ones are changed too.
        (
            "sglang 0.5.0",
            r#"{"messages":[{"role":"system","content":"a"},{"role":"developer","content":"b"},{"role":"system","content":"c"},{"role":"user","content":"u"},{"role":"assistant","content":"d","reasoning":"r"},{"role":"user","content":"v"}]}"#,
            r#"{"messages":[{"role":"system","content":"a\n\nb\n\nc"},{"role":"user","content":"u"},{"role":"assistant","content":"d","reasoning_content":"r"},{"role":"user","content":"v"}]}"#,
            &["reasoning_key", "developer_role"],
        ),
        (
            "sglang 0.5.0",
            r#"{"messages":[{"role": "developer", "content": "d"},{"role":"user","content":"u"}]}"#,
            r#"{"messages":[{"role": "system", "content": "d"},{"role":"user","content":"u"}]}"#,
            &["developer_role"],
        ),
        // A key with an escape is written anew, inside its own part.
        (
            "sglang",
            r#"{"messages":[{"role":"user","content":[{"type":"refusal","refus\u0061l":"no"},{"type":"image_url","image_url":{"url":"data:,"}}]}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"no"},{"type":"image_url","image_url":{"url":"data:,"}}]}]}"#,
            &["part_refusal"],
        ),
        // The same rule changes tools and messages.
        (
            "vllm",
            r#"{"functions":[{"name":"f"}],"messages":[{"role":"user","content":"u"},{"role":"function","name":"f","content":"x"}]}"#,
            r#"{"messages":[{"role":"user","content":"u"},{"role":"tool","name":"f","content":"x","tool_call_id":"call00001"}],"tools":[{"type":"function","function":{"name":"f"}}]}"#,
            &["legacy_functions"],
        ),
        (
            "vllm",
            r#"{"messages":[{"role":"assistant","content":"d","tool_calls":[{"id":"1","type":"custom","custom":{"name":"c","input":"i"}}]},{"role":"tool","tool_call_id":"1","content":"x"}],"tools":[{"type":"custom","custom":{"name":"c"}}]}"#,
            r#"{"messages":[{"role":"assistant","content":"d","tool_calls":[{"id":"1","type":"function","function":{"name":"c","arguments":"{\"input\":\"i\"}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}],"tools":[{"type":"function","function":{"name":"c","parameters":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}}}]}"#,
            &["custom_tools"],
        ),
        // Its arguments are an object already.
        (
            "vllm",
            r#"{"messages":[{"role":"assistant","content":"d","function_call":{"name":"f","arguments":"{}"}},{"role":"function","name":"f","content":"x"}]}"#,
            r#"{"messages":[{"role":"assistant","content":"d","tool_calls":[{"id":"call00000","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","name":"f","content":"x","tool_call_id":"call00000"}]}"#,
            &["legacy_functions"],
        ),
        (
            "vllm",
            r#"{"function_call":"auto","n":1}"#,
            r#"{"n":1}"#,
            &["legacy_functions"],
        ),
        // Once the custom tool is left out, there is none to convert; a list of allowed tools alone stays.
        (
            "vllm",
            r#"{"tools":[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"c"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}}}"#,
            r#"{"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto"}"#,
            &["allowed_tools"],
        ),
        (
            "vllm",
            r#"{"tools":[ {"type":"function","function":{"name":"f"}} ],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"f"}}]}}}"#,
            r#"{"tools":[ {"type":"function","function":{"name":"f"}} ],"tool_choice":"required"}"#,
            &["allowed_tools"],
        ),
        // The client's values in the engine's own words win.
        (
            "vllm",
            r#"{"guided_regex":"a","structured_outputs":{"json":{}}}"#,
            r#"{"structured_outputs":{"json":{}}}"#,
            &["constraints"],
        ),
        // The rest of the object is for the engine.
        (
            "sglang",
            r#"{"reasoning":{"effort":"low","summary":"auto"}}"#,
            r#"{"reasoning":{"effort":"low","summary":"auto"},"reasoning_effort":"low"}"#,
            &["reasoning_object"],
        ),
    ];

    #[test]
    fn rules_are_named_that_changed_something_and_no_others() {
        for (to, before, after, rules) in CHANGES {
            let (sent, used) = sent(to, Options::default(), before);
            assert_eq!(sent, *after, "{to}");
            assert_eq!(used, *rules, "{to} {before}");
        }
    }

    /// A rule is not tried on a request without its subject; here it is tried all the same.
    #[test]
    fn rules_leave_a_request_without_their_subject_alone() {
        let options = Options::default();
        let mut spared = 0;
        for body in CHANGES.iter().map(|(_, body, ..)| *body) {
            let request = ChatRequest::recall(Api::Chat, &Bytes::from(body)).unwrap();
            for rule in ENGINES.iter().flat_map(|engine| engine.rules()) {
                let mut adapter = RequestAdapter::new(&request, body, &options, false);
                if !adapter.may_change(rule.subject) {
                    assert_eq!(
                        apply(&mut adapter, rule.change),
                        Ok(false),
                        "{rule:?} {body}"
                    );
                    spared += 1;
                }
            }
        }
        assert!(spared > 1000, "{spared}");
    }

    /// Merging leaves the other messages to the rules of the engine.
    #[test]
    fn merged_system_messages_leave_the_others_to_be_adapted() {
        let options = Options {
            system_messages: SystemMessages::Merge,
            ..Options::default()
        };
        let (sent, used) = sent(
            "vllm",
            options,
            r#"{"messages":[{"role":"user","content":"u"},{"role":"assistant","reasoning_content":"r","content":"c"},{"role":"system","content":"s"}]}"#,
        );
        assert_eq!(
            sent,
            r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","reasoning":"r","content":"c"}]}"#
        );
        assert_eq!(used, ["system_merged", "reasoning_key"]);
    }
}
