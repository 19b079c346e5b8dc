//! Facts about a model's chat template, which prompts show that the engine has rendered with it (engines G.12).
//!
//! Takes: rendered prompts, or the facts as JSON. Gives: [`TemplateFacts`]. Never: keeps a prompt.

use super::families::FAMILIES;
use super::family::{Family, Tags};
use super::names;
use super::suffix;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// Facts about a model's chat template, as far as they are known. As JSON:
///
/// ```json
/// {"thinking_unset": "<think>", "thinking_on": "<think>", "thinking_off": "", "calls": "qwen3_coder"}
/// ```
///
/// The first three are the tag with which the prompt ends if a request says nothing of thinking, switches it on, or
/// switches it off; empty if no block is open. `thinking_high`, `thinking_medium` and `thinking_low` are the same for an
/// effort, if the template knows efforts. `calls` is the name of the parser whose calls the template teaches. What
/// is not known is missing or null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "BTreeMap<String, Option<String>>", into = "FactsText")]
pub struct TemplateFacts {
    unset: PromptEnd,
    on: PromptEnd,
    off: PromptEnd,
    /// Ends for the efforts, in the order of [`Effort::KNOWN`].
    efforts: [PromptEnd; 3],
    /// Family whose calls the template teaches.
    taught: Option<&'static Family>,
}

/// Effort of reasoning that a request sets, other than `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// `high`
    High,
    /// `medium`
    Medium,
    /// `low`
    Low,
    /// Another word, such as `minimal`.
    Other,
}

impl Effort {
    /// Efforts for which a prompt is rendered, the most common one first.
    pub const KNOWN: [Self; 3] = [Self::High, Self::Medium, Self::Low];

    /// Returns the effort of this word.
    pub fn of(word: &str) -> Self {
        let mut known = Self::KNOWN.into_iter();
        known
            .find(|known| known.name() == word)
            .unwrap_or(Self::Other)
    }

    /// Returns the word for the effort; empty if it is none of [`Effort::KNOWN`].
    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
            Self::Other => "",
        }
    }
}

/// End of a rendered prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PromptEnd {
    #[default]
    Unknown,
    /// No block of reasoning is open.
    Closed,
    /// A block of reasoning with these tags is open.
    Open(&'static Tags),
}

impl PromptEnd {
    /// Reads the end of a prompt; it is unknown if the prompt is empty.
    pub(super) fn of(prompt: &str) -> Self {
        let prompt = suffix::removed(prompt.trim_end());
        if prompt.is_empty() {
            return Self::Unknown;
        }
        Self::opened_by(|tag| prompt.ends_with(tag)).unwrap_or(Self::Closed)
    }

    fn or(self, other: Self) -> Self {
        match self {
            Self::Unknown => other,
            Self::Closed | Self::Open(_) => self,
        }
    }

    /// Returns an open block of the first tags whose start tag, without white space at its ends, meets a condition.
    fn opened_by(is_tag: impl Fn(&str) -> bool) -> Option<Self> {
        let all = FAMILIES.iter().map(|family| &family.think);
        let mut all = all.filter(|tags| !tags.start.trim().is_empty());
        all.find(|tags| is_tag(tags.start.trim())).map(Self::Open)
    }
}

impl TemplateFacts {
    /// Facts of a template of which nothing is known.
    pub const UNKNOWN: Self = Self {
        unset: PromptEnd::Unknown,
        on: PromptEnd::Unknown,
        off: PromptEnd::Unknown,
        efforts: [PromptEnd::Unknown; 3],
        taught: None,
    };

    /// Switches of thinking for which a prompt is rendered: unset, on, off.
    pub const SWITCHES: [Option<bool>; 3] = [None, Some(true), Some(false)];

    /// Adds what the end of the prompt of a request shows that has this switch of thinking.
    #[must_use]
    pub fn with_prompt(mut self, thinks: Option<bool>, prompt: &str) -> Self {
        *self.end_mut(thinks) = PromptEnd::of(prompt);
        self
    }

    /// Adds what the end of the prompt of a request shows that has this effort.
    #[must_use]
    pub fn with_effort(mut self, effort: Effort, prompt: &str) -> Self {
        let known = Effort::KNOWN.into_iter().zip(&mut self.efforts);
        for (_, end) in known.filter(|(known, _)| *known == effort) {
            *end = PromptEnd::of(prompt);
        }
        self
    }

    /// Adds what an answer shows of the prompt of a request with this switch of thinking. `opened`: the tags of a block that the
    /// prompt had opened.
    #[must_use]
    pub(super) fn with_answer(
        mut self,
        thinks: Option<bool>,
        opened: Option<&'static Tags>,
    ) -> Self {
        *self.end_mut(thinks) = opened.map_or(PromptEnd::Closed, PromptEnd::Open);
        self
    }

    /// Adds what is unknown from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            unset: self.unset.or(other.unset),
            on: self.on.or(other.on),
            off: self.off.or(other.off),
            efforts: std::array::from_fn(|at| {
                let of = |facts: &Self| facts.efforts.get(at).copied().unwrap_or_default();
                of(&self).or(of(&other))
            }),
            taught: self.taught.or(other.taught),
        }
    }

    /// Adds which calls the template teaches: those whose marks are in a prompt with a tool, and not in the same prompt
    /// without it. Several families may have the same marks: that of the `model` comes first, then the one with the most
    /// ends of turns in the prompt.
    #[must_use]
    pub fn with_tool(self, model: &str, with: &str, without: &str) -> Self {
        let [with, without] = [with, without].map(suffix::removed);
        let is_shown = |mark: &str| with.matches(mark).count() > without.matches(mark).count();
        let calls = |family: &Family| {
            let formats = family.calls.iter();
            formats.map(|format| format.shown(is_shown)).max()
        };
        let most = FAMILIES.iter().filter_map(calls).max().unwrap_or(0);
        if most == 0 {
            return self;
        }
        let turns = |family: &Family| {
            let turns = family.turns.iter();
            turns.filter(|turn| with.contains(**turn)).count()
        };
        let mut all: Vec<_> = FAMILIES
            .iter()
            .filter(|family| calls(family) == Some(most))
            .collect();
        let own = names::of_model(model);
        // Of equals the one counts whose models think the least often, and of these the first one.
        all.sort_by_key(|family| (*family != own, Reverse(turns(family)), family.think.opened));
        Self {
            taught: all.first().copied(),
            ..self
        }
    }

    /// Returns true if nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::UNKNOWN
    }

    /// Returns the end of the prompt of a request with this switch of thinking and this effort. An effort does not close a
    /// block that a switch opens.
    pub(super) fn end(&self, thinks: Option<bool>, effort: Option<Effort>) -> PromptEnd {
        let known = Effort::KNOWN.into_iter().zip(self.efforts);
        let of_effort = known
            .filter(|(known, _)| Some(*known) == effort && thinks != Some(false))
            .map(|(_, end)| end)
            .find(|end| matches!(end, PromptEnd::Open(_)) || thinks.is_none());
        of_effort.unwrap_or_default().or(self.of_switch(thinks))
    }

    fn of_switch(&self, thinks: Option<bool>) -> PromptEnd {
        match thinks {
            None => self.unset,
            Some(true) => self.on,
            Some(false) => self.off,
        }
    }

    fn end_mut(&mut self, thinks: Option<bool>) -> &mut PromptEnd {
        match thinks {
            None => &mut self.unset,
            Some(true) => &mut self.on,
            Some(false) => &mut self.off,
        }
    }

    /// Returns the family whose calls the template teaches.
    pub(super) fn taught(&self) -> Option<&'static Family> {
        self.taught
    }
}

/// Writes the facts as a sentence.
impl fmt::Display for TemplateFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = [self.unset, self.on, self.off];
        let are_same = ends.iter().all(|end| *end == self.unset);
        let mut separator = match self.unset {
            PromptEnd::Open(tags) if are_same => {
                write!(f, "always opens {}", tags.start.trim())?;
                "; "
            }
            PromptEnd::Closed if are_same => {
                f.write_str("opens no block of reasoning")?;
                "; "
            }
            _ => "",
        };
        let whens = ["by default", "with thinking on", "with thinking off"];
        for (end, when) in ends.into_iter().zip(whens).filter(|_| !are_same) {
            let tag = match end {
                PromptEnd::Unknown => continue,
                PromptEnd::Closed => "nothing",
                PromptEnd::Open(tags) => tags.start.trim(),
            };
            let before = if separator.is_empty() { "opens " } else { ", " };
            write!(f, "{before}{tag} {when}")?;
            separator = "; ";
        }
        for (effort, end) in Effort::KNOWN.into_iter().zip(self.efforts) {
            if let PromptEnd::Open(tags) = end {
                let before = if separator.is_empty() { "opens " } else { ", " };
                write!(
                    f,
                    "{before}{} with the effort {}",
                    tags.start.trim(),
                    effort.name()
                )?;
                separator = "; ";
            }
        }
        match self.taught.and_then(Family::name) {
            Some(name) => write!(f, "{separator}teaches calls that {name} reads"),
            None => Ok(()),
        }
    }
}

/// Text form of [`TemplateFacts`].
#[derive(Serialize)]
struct FactsText {
    thinking_unset: Option<String>,
    thinking_on: Option<String>,
    thinking_off: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_high: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_medium: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_low: Option<String>,
    calls: Option<String>,
}

impl From<TemplateFacts> for FactsText {
    fn from(facts: TemplateFacts) -> Self {
        let tag = |end| match end {
            PromptEnd::Unknown => None,
            PromptEnd::Closed => Some(String::new()),
            PromptEnd::Open(tags) => Some(tags.start.trim().to_owned()),
        };
        let [high, medium, low] = facts.efforts;
        Self {
            thinking_unset: tag(facts.unset),
            thinking_on: tag(facts.on),
            thinking_off: tag(facts.off),
            thinking_high: tag(high),
            thinking_medium: tag(medium),
            thinking_low: tag(low),
            calls: facts.taught.and_then(Family::name).map(str::to_owned),
        }
    }
}

impl TryFrom<BTreeMap<String, Option<String>>> for TemplateFacts {
    type Error = String;

    fn try_from(members: BTreeMap<String, Option<String>>) -> Result<Self, String> {
        let mut facts = Self::UNKNOWN;
        for (key, value) in members {
            let [high, medium, low] = &mut facts.efforts;
            let end = match key.as_str() {
                "thinking_high" => high,
                "thinking_medium" => medium,
                "thinking_low" => low,
                "thinking_unset" => &mut facts.unset,
                "thinking_on" => &mut facts.on,
                "thinking_off" => &mut facts.off,
                "calls" => {
                    facts.taught = value.as_deref().map(taught).transpose()?;
                    continue;
                }
                _ => {
                    let known = "thinking_unset, thinking_on, thinking_off, thinking_high, thinking_medium, thinking_low, calls";
                    return Err(format!("unknown field `{key}`; known are {known}"));
                }
            };
            *end = match value.as_deref() {
                None => PromptEnd::Unknown,
                Some("") => PromptEnd::Closed,
                Some(tag) => PromptEnd::opened_by(|known| known == tag)
                    .ok_or_else(|| format!("{key}: no model's reasoning begins with {tag:?}"))?,
            };
        }
        Ok(facts)
    }
}

/// Returns the family with calls of which `name` is a name of the parser.
fn taught(name: &str) -> Result<&'static Family, String> {
    let family = names::named(name).filter(|family| !family.calls.is_empty());
    family.ok_or_else(|| format!("calls: there is no parser {name:?} of calls"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(json: &str) -> TemplateFacts {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_end_of_a_prompt_tells_if_a_block_is_open() {
        for (prompt, expected) in [
            ("<|im_start|>assistant\n<think>\n", r#""<think>""#),
            ("<｜Assistant｜><think>", r#""<think>""#),
            (
                "<|CHATBOT_TOKEN|><|START_THINKING|>",
                r#""<|START_THINKING|>""#,
            ),
            ("<|im_start|>assistant\n<think>\n\n</think>\n\n", r#""""#),
            ("<｜Assistant｜></think>", r#""""#),
            (
                "Think between <think> and </think>.<|im_start|>assistant\n",
                r#""""#,
            ),
            (" \n", "null"),
            ("", "null"),
        ] {
            let told = TemplateFacts::UNKNOWN.with_prompt(Some(true), prompt);
            let json = serde_json::to_string(&told).unwrap();
            let on = format!("\"thinking_on\":{expected}");
            assert!(json.contains(&on), "{prompt}: {json}");
            assert_eq!(facts(&json), told);
            assert_eq!(told.is_empty(), expected == "null");
            assert_eq!(told.end(None, None), PromptEnd::Unknown);
        }
    }

    /// Checks that an effort counts unless thinking is switched off, and does not close what a switch opens. Its tags may have
    /// a suffix.
    #[test]
    fn efforts_open_blocks() {
        let facts = TemplateFacts::UNKNOWN
            .with_prompt(None, "x")
            .with_prompt(Some(true), "<think>")
            .with_effort(Effort::High, "<think:opensource>")
            .with_effort(Effort::Low, "x");
        let is_open = |thinks, effort| matches!(facts.end(thinks, effort), PromptEnd::Open(_));
        for (thinks, word, expected) in [
            (None, "high", true),
            (None, "low", false),
            (None, "medium", false),
            (None, "max", false),
            (Some(true), "low", true),
            (Some(false), "high", false),
        ] {
            assert_eq!(
                is_open(thinks, Some(Effort::of(word))),
                expected,
                "{thinks:?} {word}"
            );
        }
    }

    /// Parts of the prompts of published templates, with one tool.
    #[test]
    fn marks_that_come_with_a_tool_are_taught() {
        const QWEN3: &str = "return a json object within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";
        const CODER: &str = "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n</function>\n</tool_call>";
        const GLM: &str = "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>\n</tool_call>";
        const MINIMAX: &str = "<minimax:tool_call>\n<invoke name=\"tool-name-1\">\n<parameter name=\"param-key-1\">param-value-1</parameter>\n</invoke>\n</minimax:tool_call>";
        const DSML: &str = "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"$FUNCTION_NAME\">\n<｜DSML｜parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>";
        for (model, prompt, expected) in [
            ("Qwen/Qwen3-8B", QWEN3, Some("qwen3")),
            ("served", QWEN3, Some("qwen3_coder")),
            ("Qwen/Qwen3-Coder-30B", CODER, Some("qwen3_coder")),
            ("XiaomiMiMo/MiMo-V2", CODER, Some("mimo")),
            // A name of the other form of the family.
            ("Qwen/Qwen3-8B", CODER, Some("qwen3")),
            ("zai-org/GLM-4.6", GLM, Some("glm45")),
            (
                "served",
                &format!("[gMASK]<sop><|user|>{GLM}<|assistant|>"),
                Some("glm45"),
            ),
            // The name says otherwise.
            ("deepseek-ai/DeepSeek-V3", MINIMAX, Some("minimax_m2")),
            ("served", DSML, Some("deepseek_v4")),
            ("served", "Tools: look_up", None),
            ("Qwen/Qwen3-8B", "", None),
        ] {
            let told = TemplateFacts::UNKNOWN.with_tool(model, prompt, "");
            assert_eq!(
                told.taught().and_then(Family::name),
                expected,
                "{model}: {prompt}"
            );
            let both = TemplateFacts::UNKNOWN.with_tool(model, prompt, prompt);
            assert!(both.is_empty(), "it does not come with the tool: {prompt}");
        }
    }

    #[test]
    fn facts_are_written_for_people_and_read_back() {
        let all = r#"{"thinking_unset":"<think>","thinking_on":"<think>","thinking_off":"","calls":"hermes"}"#;
        for (json, sentence) in [
            (
                all,
                "opens <think> by default, <think> with thinking on, nothing with thinking off; teaches calls that hermes reads",
            ),
            (r#"{"thinking_off":""}"#, "opens nothing with thinking off"),
            (
                r#"{"thinking_unset":"","thinking_on":"","thinking_off":"","thinking_high":"<think>","thinking_low":""}"#,
                "opens no block of reasoning, <think> with the effort high",
            ),
            (
                r#"{"thinking_unset":"<think>","thinking_on":"<think>","thinking_off":"<think>","calls":"hermes"}"#,
                "always opens <think>; teaches calls that hermes reads",
            ),
            (
                r#"{"thinking_unset":"","thinking_on":"","thinking_off":""}"#,
                "opens no block of reasoning",
            ),
            (r#"{"calls":"hermes"}"#, "teaches calls that hermes reads"),
            ("{}", ""),
        ] {
            assert_eq!(facts(json).to_string(), sentence);
        }
        assert_eq!(serde_json::to_string(&facts(all)).unwrap(), all);
        for (json, why) in [
            (
                r#"{"thinking_on":"<thinking>"}"#,
                "thinking_on: no model's reasoning begins with \"<thinking>\"",
            ),
            (
                r#"{"calls":"hermis"}"#,
                "calls: there is no parser \"hermis\" of calls",
            ),
            (r#"{"thinks":""}"#, "unknown field `thinks`"),
            ("[]", "invalid type: sequence, expected a map"),
            (
                r#"{"calls":"gpt_oss"}"#,
                "calls: there is no parser \"gpt_oss\" of calls",
            ),
        ] {
            let error = serde_json::from_str::<TemplateFacts>(json)
                .unwrap_err()
                .to_string();
            assert!(error.contains(why), "{json}: {error}");
        }
    }
}
