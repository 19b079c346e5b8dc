//! Attribution of differences to rules: matches the rules counted while a frame was read with the fields that
//! differ.
//!
//! Takes: effects and rules. Gives: each effect with its rule; a rule without a visible field appears with its own
//! description.

use super::compare::{Effect, Kind};
use super::leaves::{is_text, name};
use super::{Change, Place};
use crate::wire::rule::{NULL_FIELDS, Rule};

/// Use of a rule: how often it was counted, and in which place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) rule: Rule,
    pub(super) times: u32,
    pub(super) place: Place,
}

/// Matches effects with the rules that caused them, also where the effect shows some frames after the rule was
/// counted.
#[derive(Debug, Default)]
pub(super) struct RuleMatcher {
    /// Rules used without a visible effect so far.
    open: Vec<Used>,
    /// Rules counted once whose effect lasts for the rest of an answer.
    lasting: Vec<Rule>,
}

impl RuleMatcher {
    /// Adds the rules just used, and returns the effects of a frame, each with its rule. Fields removed or added
    /// by one rule form one effect. `is_waiting`: the effect of a rule may show in the next frame.
    pub(super) fn changes(
        &mut self,
        effects: Vec<Effect>,
        used: impl Iterator<Item = Used>,
        here: Place,
        is_waiting: bool,
    ) -> Vec<Change> {
        self.open.extend(used);
        let mut changes: Vec<Change> = Vec::new();
        let mut shown = Vec::new();
        for mut effect in effects {
            // A reformatted id differs in each frame for that reason alone, whatever other rule is counted.
            let has_form = self.lasting.contains(&Rule::Id)
                && effect
                    .fields
                    .first()
                    .is_some_and(|field| field.path == "id");
            let may_be =
                |rule: Rule| !(has_form && rule == Rule::Envelope) && may_cause(rule, &effect);
            let after: Vec<Used> = self
                .open
                .iter()
                .copied()
                .filter(|used| may_be(used.rule))
                .collect();
            let rule = after.first().map(|used| used.rule);
            let place = after.first().map_or(here, |used| used.place);
            // Two rules may cause one effect: a frame is split because text came together with the finish reason.
            shown.extend(
                after
                    .iter()
                    .map(|used| used.rule)
                    .filter(|one| Some(*one) == rule || effect.kind == Kind::Split),
            );
            self.lasting
                .extend(rule.filter(|rule| lasts(*rule) && !self.lasting.contains(rule)));
            let rule = rule.or_else(|| {
                self.lasting
                    .iter()
                    .copied()
                    .find(|rule| may_cause(*rule, &effect))
            });
            if effect.kind == Kind::Held && rule.is_some_and(loses) {
                effect.kind = Kind::Dropped;
            }
            let name = rule
                .map(Rule::name)
                .or_else(|| effect.is_of_nothing().then_some(NULL_FIELDS));
            let is_list = matches!(
                effect.kind,
                Kind::Dropped | Kind::DroppedNull | Kind::Added | Kind::AddedNull
            );
            let same = changes.iter_mut().find(|one| {
                is_list && one.effect.kind == effect.kind && one.rule == name && one.place == place
            });
            match same {
                Some(one) => one.effect.fields.append(&mut effect.fields),
                None => changes.push(Change {
                    place,
                    rule: name,
                    effect,
                    times: 1,
                }),
            }
        }
        self.open.retain(|used| !shown.contains(&used.rule));
        if !is_waiting {
            changes.extend(self.rest());
        }
        changes
    }

    /// Returns the rules without a visible effect, each with its own description.
    pub(super) fn rest(&mut self) -> impl Iterator<Item = Change> + use<> {
        std::mem::take(&mut self.open)
            .into_iter()
            .map(|Used { rule, times, place }| Change {
                place,
                rule: Some(rule.name()),
                effect: Effect::words(rule.what()),
                times,
            })
    }
}

/// Returns true if a rule is counted once per answer but may cause differences in later frames.
fn lasts(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::Id
            | Rule::Think
            | Rule::ThinkByName
            | Rule::ToolText
            | Rule::Harmony
            | Rule::Fingerprint
    )
}

/// Returns true if the rule discards fields, so that they do not appear in a later frame.
fn loses(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::FinishRepeated
            | Rule::Fingerprint
            | Rule::LateDelta
            | Rule::StopDetails
            | Rule::ToolArgumentsResent
            | Rule::ToolArgumentsTail
            | Rule::ToolSecond
            | Rule::ToolDuplicate
            | Rule::UnknownField
            | Rule::InvalidSkipped
    )
}

/// Returns true if a rule, once used, can be the cause of this difference.
fn may_cause(rule: Rule, effect: &Effect) -> bool {
    let Some(field) = effect.fields.first() else {
        return false;
    };
    let path = field.path.as_str();
    let (last, is_call) = (name(path), path.starts_with("tool_calls"));
    let is_reasoning = matches!(last, "reasoning" | "reasoning_content");
    let is_dropped = matches!(effect.kind, Kind::Dropped | Kind::DroppedNull | Kind::Held);
    match rule {
        Rule::Id => path == "id",
        Rule::Envelope => matches!(path, "id" | "created" | "model"),
        Rule::Role => last == "role",
        Rule::RoleContent => effect.kind == Kind::Dropped && last == "content",
        Rule::ReasoningName => is_reasoning,
        Rule::ContentParts => {
            effect.kind != Kind::Split && (is_reasoning || path.starts_with("content"))
        }
        Rule::ReasoningPromoted => is_reasoning || last == "content",
        Rule::FinishMerged | Rule::Split => effect.kind == Kind::Split,
        Rule::FinishRepeated
        | Rule::FinishWord
        | Rule::FinishUnknown
        | Rule::HiddenTruncation
        | Rule::FinishSupplied
        | Rule::Repetition => effect.kind != Kind::Split && last == "finish_reason",
        Rule::LateDelta => is_dropped && (is_text(path) || is_call),
        Rule::ToolId => is_call && last == "id",
        Rule::ToolIndex => is_call && last == "index",
        Rule::ToolRepeat => is_call && is_dropped && matches!(last, "id" | "type" | "name"),
        Rule::ToolName => is_call && last == "name",
        Rule::ToolSecond | Rule::ToolDuplicate => is_call && is_dropped,
        Rule::ToolArguments => is_call && path.contains("arguments"),
        Rule::ToolArgumentsAbsent
        | Rule::ToolArgumentsTail
        | Rule::ToolArgumentsComma
        | Rule::ToolArgumentsQuotes
        | Rule::ToolArgumentsWords
        | Rule::ToolArgumentsBrackets
        | Rule::ToolArgumentsControls => is_call && last == "arguments",
        Rule::ToolArgumentsResent => is_call && is_dropped && last == "arguments",
        Rule::Logprobs | Rule::LogprobsUnasked => last == "logprobs",
        Rule::Usage | Rule::UsageMoved | Rule::UsageMissing => {
            path.starts_with("usage") && effect.kind != Kind::AddedNull
        }
        Rule::Fingerprint => path == "system_fingerprint",
        Rule::StopDetails => matches!(last, "stop_reason" | "matched_stop"),
        Rule::UnknownField => matches!(effect.kind, Kind::Dropped | Kind::Held) && !is_text(path),
        Rule::InvalidSkipped => is_dropped,
        Rule::ErrorShape => {
            path.starts_with("error") || matches!(last, "message" | "code" | "param" | "detail")
        }
        Rule::Think | Rule::ThinkByName | Rule::ToolText | Rule::Harmony => {
            effect.kind != Kind::Split && (is_text(path) && !is_reasoning || is_call)
        }
        Rule::EmptyChunk
        | Rule::Comment
        | Rule::DoneAdded
        | Rule::AfterDone
        | Rule::EventDropped
        | Rule::ItemLate
        | Rule::ToolArgumentsInvalid
        | Rule::ToolNameMarkup
        | Rule::ToolUnknown
        | Rule::TextMarkup
        | Rule::ReasoningUncounted => false,
    }
}
