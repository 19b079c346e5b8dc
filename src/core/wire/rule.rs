//! Rules: the names of departures from the canonical format that samewire fixes, counted for each stream.
//!
//! The names are a contract: `samewire_rewrites_total{engine,rule}` shows them, and so do `samewire rewrite
//! --explain` and `samewire demo`.

/// Name under which explanations list fields without a value that were added or removed. This changes no content, so
/// it is no rule and is not counted.
pub const NULL_FIELDS: &str = "null_fields";

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident = $label:literal,)*) => {
        /// Departure from the canonical format that was fixed. The comment on each variant is also the text of
        /// [`Rule::what`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule { $($(#[doc = $doc])+ $name,)* }

        impl Rule {
            /// List of all rules, in the order of the tally.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the name in metrics and explanations.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// Returns a description of the change: the comment on the variant, without its section.
            pub fn what(self) -> &'static str {
                without_section(match self { $(Self::$name => concat!($($doc),+),)* })
            }
        }
    };
}

/// Removes the full stop and the section of the wire format from a sentence.
fn without_section(sentence: &'static str) -> &'static str {
    let said = sentence.trim().trim_end_matches('.');
    match said.rfind(" (").filter(|_| said.ends_with(')')) {
        Some(section) => said.get(..section).unwrap_or(said),
        None => said,
    }
}

rules! {
    /// The completion id got its prefix, was hashed or was made (2.7).
    Id = "id",
    /// `id`, `created` or `model` changed during the stream (1.7).
    Envelope = "envelope",
    /// A repeated role was dropped or a missing one supplied (2.3 rule 1).
    Role = "role",
    /// The first chunk's empty content was dropped from the role frame (2.3 rule 2).
    RoleContent = "role_content",
    /// Reasoning came under another name (2.4).
    ReasoningName = "reasoning_name",
    /// Content came as a list of parts (2.3 rule 11).
    ContentParts = "content_parts",
    /// Reasoning that was the whole of an answer became its text (`promote_reasoning`).
    ReasoningPromoted = "reasoning_promoted",
    /// One engine chunk became several frames (2.3 rule 3).
    Split = "split",
    /// A chunk that carried nothing (2.3 rule 4).
    EmptyChunk = "empty_chunk",
    /// Text was in the chunk that finishes (2.3 rule 8).
    FinishMerged = "finish_merged",
    /// A second finish for the same choice (2.3 rule 7).
    FinishRepeated = "finish_repeated",
    /// A delta came after its choice's finish (2.3 rule 7).
    LateDelta = "late_delta",
    /// The finish word was another one (2.6).
    FinishWord = "finish_word",
    /// The finish word is not known; it was taken for `stop` (2.6).
    FinishUnknown = "finish_unknown",
    /// A truncation that the engine reported as a complete answer (2.6).
    HiddenTruncation = "hidden_truncation",
    /// A finish was supplied for an engine that sent none (`missing_finish = "stop"`).
    FinishSupplied = "finish_supplied",
    /// A tool call id was rewritten or derived (2.5 rule 8).
    ToolId = "tool_id",
    /// A tool call without arguments got an empty object (2.5 rule 13).
    ToolArgumentsAbsent = "tool_arguments_absent",
    /// A tool call got another index (2.5 rule 1).
    ToolIndex = "tool_index",
    /// Repeated or null id, type or name of a tool call (2.5 rule 3).
    ToolRepeat = "tool_repeat",
    /// A tool call's name came late or was supplied (2.5 rule 4).
    ToolName = "tool_name",
    /// A call after the first, where the client wants one (`parallel_tool_calls: false`).
    ToolSecond = "tool_second",
    /// A call was in the text and among the engine's own calls (7.2).
    ToolDuplicate = "tool_duplicate",
    /// Arguments came as a JSON value instead of a string (2.5 rule 6).
    ToolArguments = "tool_arguments",
    /// A tool call's arguments are no JSON; they pass as the model wrote them (2.5 rule 14).
    ToolArgumentsInvalid = "tool_arguments_invalid",
    /// Markup after a tool call's arguments was dropped (`repair_arguments`).
    ToolArgumentsTail = "tool_arguments_tail",
    /// The model repeated the same text without end, and was stopped (2.13).
    Repetition = "repetition",
    /// A comma before a closing bracket was dropped from a tool call's arguments (`repair_arguments`).
    ToolArgumentsComma = "tool_arguments_comma",
    /// Strings in single quotes in a tool call's arguments got double ones (`repair_arguments`).
    ToolArgumentsQuotes = "tool_arguments_quotes",
    /// `True`, `False` or `None` in a tool call's arguments became JSON (`repair_arguments`).
    ToolArgumentsWords = "tool_arguments_words",
    /// Closing brackets missing at the end of a tool call's arguments were added (`repair_arguments`).
    ToolArgumentsBrackets = "tool_arguments_brackets",
    /// Line breaks and other control characters in strings of a tool call's arguments were escaped (`repair_arguments`).
    ToolArgumentsControls = "tool_arguments_controls",
    /// A tool call's name has markup in it, such as `</think>`; it passes as it is (2.5 rule 14).
    ToolNameMarkup = "tool_name_markup",
    /// A tool call's name is that of no tool in the request; it passes as it is (2.5 rule 14).
    ToolUnknown = "tool_unknown",
    /// Arguments that were sent a second time after they were complete.
    ToolArgumentsResent = "tool_arguments_resent",
    /// Logprobs were completed or brought into order (2.2).
    Logprobs = "logprobs",
    /// Logprobs nobody asked for.
    LogprobsUnasked = "logprobs_unasked",
    /// Usage was completed, renamed or reordered (2.8).
    Usage = "usage",
    /// Usage that was not requested, or on another chunk than its own.
    UsageMoved = "usage_moved",
    /// Requested, never received.
    UsageMissing = "usage_missing",
    /// The answer has reasoning, and the engine's usage no count of it; clients get 0 (2.8).
    ReasoningUncounted = "reasoning_uncounted",
    /// `system_fingerprint` was removed or hashed (2.7).
    Fingerprint = "fingerprint",
    /// `stop_reason` or `matched_stop` was removed (2.9).
    StopDetails = "stop_details",
    /// A field the format does not name (1.6).
    UnknownField = "unknown_field",
    /// A comment of the engine (8.1).
    Comment = "comment",
    /// `[DONE]` was added (3.3).
    DoneAdded = "done_added",
    /// Bytes after the end of the answer: after `[DONE]`, or after a failure (2.3 rule 10).
    AfterDone = "after_done",
    /// An error came in another shape (3.2).
    ErrorShape = "error_shape",
    /// An event that is not JSON was skipped (`invalid_event = "skip"`).
    InvalidSkipped = "invalid_skipped",
    /// An event of a type the format does not name, or a second telling of the same (4.8).
    EventDropped = "event_dropped",
    /// Text or an item that the engine told only at the end (4.8).
    ItemLate = "item_late",
    /// Reasoning between tags that the engine left in the text (7).
    Think = "think",
    /// A text from its first word on, taken for reasoning by the model's name alone (7.1).
    ThinkByName = "think_by_name",
    /// Calls that the engine left in the text.
    ToolText = "tool_text",
    /// A message in Harmony text that the engine left unparsed (6).
    Harmony = "harmony",
    /// A text that begins with a mark of reasoning, a call or Harmony, which nothing reads; it passes (7).
    TextMarkup = "text_markup",
}

/// Tally: how often each rule changed something in one answer, for metrics and explanations.
#[derive(Clone, Debug)]
pub struct Tally([u32; Rule::ALL.len()]);

impl Default for Tally {
    fn default() -> Self {
        Self([0; Rule::ALL.len()])
    }
}

impl Tally {
    /// Counts one application of `rule`.
    pub fn count(&mut self, rule: Rule) {
        self.add(rule, 1);
    }

    /// Counts several applications of a rule at once.
    pub fn add(&mut self, rule: Rule, times: u32) {
        if let Some(slot) = self.0.get_mut(rule as usize) {
            *slot = slot.saturating_add(times);
        }
    }

    /// Returns how often this rule changed something.
    pub fn times(&self, rule: Rule) -> u32 {
        self.0.get(rule as usize).copied().unwrap_or(0)
    }

    /// Returns the counts added since `known`, an earlier copy of this tally.
    pub fn since(&self, known: &Self) -> impl Iterator<Item = (Rule, u32)> {
        Rule::ALL
            .iter()
            .copied()
            .zip(self.0.iter().zip(&known.0))
            .filter_map(|(rule, (now, before))| {
                let times = now.saturating_sub(*before);
                (times > 0).then_some((rule, times))
            })
    }

    /// Returns the rules that changed something, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Rule, u32)> {
        Rule::ALL
            .iter()
            .copied()
            .zip(self.0.iter().copied())
            .filter(|(_, times)| *times > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_have_no_section() {
        assert_eq!(
            without_section(" The id got its prefix (2.7)."),
            "The id got its prefix"
        );
        assert_eq!(
            without_section("The id (of a call) is new."),
            "The id (of a call) is new"
        );
        assert_eq!(
            Rule::Id.what(),
            "The completion id got its prefix, was hashed or was made"
        );
    }

    #[test]
    fn rules_are_counted_each_by_itself() {
        let mut tally = Tally::default();
        tally.count(Rule::Id);
        tally.add(Rule::Id, 2);
        assert_eq!((tally.times(Rule::Id), tally.times(Rule::Role)), (3, 0));
    }
}
