//! Which rule is behind a difference: the rules that were counted while a frame was read, matched with the fields that differ.
//!
//! Takes: effects and rules. Gives: each effect with its rule; a rule that no field shows gets its own words.

use super::compare::{Effect, Kind};
use super::leaves::{is_text, name};
use super::{Change, Place};
use crate::wire::rule::{NULL_FIELDS, Rule};

/// A rule that was used, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) rule: Rule,
    pub(super) times: u32,
    pub(super) place: Place,
}

/// Matches effects with rules.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Rules that no effect has shown yet.
    open: Vec<Used>,
    /// Rules that are counted once and go on for the rest of an answer.
    lasting: Vec<Rule>,
}

impl Claims {
    /// Takes up the rules that were used, and returns the effects of a frame, each with its rule. Fields that went or came by one
    /// rule are one effect. `is_waiting`: what a rule did may show in the next frame.
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
            // An id that got its form at the beginning differs for that in each frame, whatever else changes in them.
            let has_form = self.lasting.contains(&Rule::Id)
                && effect.fields.first().is_some_and(|field| field.path == "id");
            let may_be = |rule: Rule| !(has_form && rule == Rule::Envelope) && is_behind(rule, &effect);
            let behind: Vec<Used> = self.open.iter().copied().filter(|used| may_be(used.rule)).collect();
            let rule = behind.first().map(|used| used.rule);
            let place = behind.first().map_or(here, |used| used.place);
            // Two rules can name the same: a frame that was split because text stood in the one that finishes.
            shown.extend(
                behind
                    .iter()
                    .map(|used| used.rule)
                    .filter(|one| Some(*one) == rule || effect.kind == Kind::Split),
            );
            self.lasting.extend(rule.filter(|rule| lasts(*rule) && !self.lasting.contains(rule)));
            let rule = rule.or_else(|| self.lasting.iter().copied().find(|rule| is_behind(*rule, &effect)));
            if effect.kind == Kind::Held && rule.is_some_and(loses) {
                effect.kind = Kind::Dropped;
            }
            let name = rule.map(Rule::name).or_else(|| effect.is_of_nothing().then_some(NULL_FIELDS));
            let is_list =
                matches!(effect.kind, Kind::Dropped | Kind::DroppedNull | Kind::Added | Kind::AddedNull);
            let same = changes.iter_mut().find(|one| {
                is_list && one.effect.kind == effect.kind && one.rule == name && one.place == place
            });
            match same {
                Some(one) => one.effect.fields.append(&mut effect.fields),
                None => changes.push(Change { place, rule: name, effect, times: 1 }),
            }
        }
        self.open.retain(|used| !shown.contains(&used.rule));
        if !is_waiting {
            changes.extend(self.rest());
        }
        changes
    }

    /// Returns the rules that no effect shows, in their own words.
    pub(super) fn rest(&mut self) -> impl Iterator<Item = Change> + use<> {
        std::mem::take(&mut self.open).into_iter().map(|Used { rule, times, place }| Change {
            place,
            rule: Some(rule.name()),
            effect: Effect::words(rule.what()),
            times,
        })
    }
}

/// Whether a rule is counted once for an answer and may be behind what differs later in it.
fn lasts(rule: Rule) -> bool {
    matches!(rule, Rule::Id | Rule::Think | Rule::ToolText | Rule::Harmony | Rule::Fingerprint)
}

/// Whether what this rule takes away does not come later.
fn loses(rule: Rule) -> bool {
    use Rule::{
        Fingerprint, FinishRepeated, LateDelta, StopDetails, ToolArgumentsResent, ToolSecond, UnknownField,
    };
    matches!(
        rule,
        FinishRepeated
            | Fingerprint
            | LateDelta
            | StopDetails
            | ToolArgumentsResent
            | ToolSecond
            | UnknownField
    )
}

/// Whether a rule, which was used, can be behind a difference.
fn is_behind(rule: Rule, effect: &Effect) -> bool {
    let Some(field) = effect.fields.first() else { return false };
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
        Rule::ReasoningPromoted => is_reasoning || last == "content",
        Rule::FinishMerged | Rule::Split => effect.kind == Kind::Split,
        Rule::FinishRepeated
        | Rule::FinishWord
        | Rule::FinishUnknown
        | Rule::HiddenTruncation
        | Rule::FinishSupplied => effect.kind != Kind::Split && last == "finish_reason",
        Rule::LateDelta => is_dropped && (is_text(path) || is_call),
        Rule::ToolId => is_call && last == "id",
        Rule::ToolIndex => is_call && last == "index",
        Rule::ToolRepeat => is_call && is_dropped && matches!(last, "id" | "type" | "name"),
        Rule::ToolName => is_call && last == "name",
        Rule::ToolSecond => is_call && is_dropped,
        Rule::ToolArguments => is_call && path.contains("arguments"),
        Rule::ToolArgumentsResent => is_call && is_dropped && last == "arguments",
        Rule::Logprobs | Rule::LogprobsUnasked => last == "logprobs",
        Rule::Usage | Rule::UsageMoved | Rule::UsageMissing => {
            path.starts_with("usage") && effect.kind != Kind::AddedNull
        }
        Rule::Fingerprint => path == "system_fingerprint",
        Rule::StopDetails => matches!(last, "stop_reason" | "matched_stop"),
        Rule::UnknownField => matches!(effect.kind, Kind::Dropped | Kind::Held) && !is_text(path),
        Rule::ErrorShape => {
            path.starts_with("error") || matches!(last, "message" | "code" | "param" | "detail")
        }
        Rule::Think | Rule::ToolText | Rule::Harmony => {
            effect.kind != Kind::Split && (is_text(path) && !is_reasoning || is_call)
        }
        Rule::EmptyChunk
        | Rule::Comment
        | Rule::DoneAdded
        | Rule::AfterDone
        | Rule::InvalidSkipped
        | Rule::EventDropped
        | Rule::ItemLate => false,
    }
}
