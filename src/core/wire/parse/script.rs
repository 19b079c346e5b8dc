//! Format of the text that an engine may leave unparsed, derived from the options, the model's name and the request.

use super::calls::format::{Format, REQUIRED};
use super::calls::{Calls, Starts, StrayEnds, TrailingCalls};
use super::facts::{Effort, PromptEnd, TemplateFacts};
use super::families::{GPT_OSS, UNKNOWN};
use super::family::{BlockOpening, Family, Special, Tags};
use super::harmony::{Harmony, HarmonyCalls};
use super::marker::FirstBytes;
use super::message_form::MessageForm;
use super::messages::MessageReader;
use super::names;
use super::reader::{Reader, Undecided};
use super::suffix::Suffixes;
use super::text::TextParser;
use super::think::{PLAIN, Think, ThinkFormat};
use super::tokens::Tokens;
use super::vocabulary::Vocabulary;
use super::wrapper::AnswerMarkers;
use crate::json::{Members, Text};
use crate::wire::options::{self, Options, Parser, RepairArguments, ThinkMode};
use crate::wire::tools::Tools;
use std::sync::{Arc, LazyLock};

/// Limit in bytes on the tools of a request whose calls are looked for by a guess: what is read of them takes several times
/// their text.
const MOST_TOOLS: usize = 1 << 20;
/// Tools of requests that have none.
static NO_TOOLS: LazyLock<Arc<Tools>> = LazyLock::new(Arc::default);

/// Tools and output constraints of a request, which decide what the model may write besides plain text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputConstraints<'a> {
    /// `tools` of a chat request, as JSON; empty if there are none.
    pub tools: &'a str,
    /// True if the request forces the model to call a tool.
    pub required: bool,
    /// Reasoning switched on or off by the request; `None` if it does not say, so that the template's default holds.
    pub thinks: Option<bool>,
    /// Effort of reasoning that the request sets, other than `none`.
    pub effort: Option<Effort>,
    /// True if the answer may be part of a text: the request begins the text, or has strings that end it.
    pub is_part: bool,
    /// True if the engine forces the output into a format from the first token on, unless it parses reasoning
    /// itself.
    pub constrained: bool,
}

/// Facts about an engine's treatment of a model: its parsers, and the model's chat template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineFacts {
    /// True if the text is expected to hold no reasoning.
    pub tells_reasoning: bool,
    /// True if the client gets no reasoning, which an engine that parses it leaves out.
    pub hides_reasoning: bool,
    /// True if the engine has no call parser and refuses requests that need one.
    pub leaves_calls: bool,
    /// True if an effort switches thinking on.
    pub effort_thinks: bool,
    /// True if the engine returns the prompt with an answer on request, and has rendered none by itself.
    pub shows_prompt: bool,
    /// Families for which the engine refuses `skip_special_tokens: false`, by their first names; it accepts the field for all
    /// others. `None` if it may not know the field.
    pub refuses_special: Option<&'static [&'static str]>,
    /// Facts about the chat template.
    pub template: TemplateFacts,
}

impl OutputConstraints<'_> {
    /// Returns true if this `response_format` constrains the output, which any type but `text` does.
    pub fn is_format(json: &str) -> bool {
        crate::json::member(json, "type").is_some_and(|kind| kind != "text")
    }

    /// Returns the reasoning switch in these `chat_template_kwargs` (`enable_thinking` or `thinking`); `None` if
    /// neither is a boolean.
    pub fn thinking(kwargs: &str) -> Option<bool> {
        let Members(all) = Members::of(kwargs)?;
        let said = all
            .iter()
            .filter(|(key, _)| ["enable_thinking", "thinking"].contains(&&**key));
        let said: Vec<_> = said.map(|(_, value)| value.get()).collect();
        let says = |word: &str| said.contains(&word);
        if says("false") {
            Some(false)
        } else {
            says("true").then_some(true)
        }
    }
}

/// Description of how the text of an answer is parsed: which markers to expect, and which tools calls may name.
/// Derived once per request and shared by its choices.
#[derive(Clone, Debug, Default)]
pub struct TextFormat {
    harmony: bool,
    /// Vocabulary of the token ids, present if these decide what is a marker.
    vocabulary: Option<Arc<Vocabulary>>,
    /// Form of the messages that the model writes, if it writes messages.
    messages: Option<&'static MessageForm>,
    think: ThinkFormat,
    /// True if, in a complete text, an end tag without a start tag ends reasoning.
    unopened: bool,
    /// True if only the model's name suggests that the template opens the block.
    assumed: bool,
    /// Reasoning switch of the request.
    switch: Option<bool>,
    /// Tags of the block that templates of the model's family open; `None` if answers cannot show whether this one does.
    named: Option<&'static Tags>,
    /// Facts that decide together with the prompt, which the engine is to return with the answer; `None` if the prompt is
    /// not needed.
    by_prompt: Option<Arc<BlockInputs>>,
    /// True if the tags are those of the family, not of the configuration.
    is_family_think: bool,
    /// Start and end marker of the answer; empty if the family has none.
    answer: (&'static str, &'static str),
    calls: Vec<&'static Format>,
    /// Ends of turns, and tags of reasoning, that the model may leave where they end nothing.
    turns: &'static [&'static str],
    tags: Tags,
    /// True if tags may have a suffix.
    is_suffixed: bool,
    /// First bytes of all markers, and of calls without one.
    firsts: FirstBytes,
    tools: Arc<Tools>,
    /// Repair of arguments in Harmony's calls that are no JSON.
    repair: RepairArguments,
    special: bool,
    /// Family guessed from the model's name; `None` if the configuration or a refusal of the engine selects it, or if
    /// calls are not parsed.
    guessed_family: Option<&'static Family>,
    /// Family whose calls the engine has refused to parse, if it has.
    refused_family: Option<&'static Family>,
}

impl TextFormat {
    /// Derives the description from options, model name, request and engine; `None` if the text is to stay unparsed.
    pub fn of(
        options: &Options,
        model: &str,
        offer: OutputConstraints<'_>,
        engine: EngineFacts,
    ) -> Option<Self> {
        let left = |family| Some(family).filter(|_| engine.leaves_calls);
        let harmony = |guessed: Option<_>, refused| {
            let tools = read_tools(offer.tools, guessed.is_some());
            Some(Self {
                tools,
                repair: options.repair_arguments,
                ..Self::harmony(guessed, refused)
            })
        };
        if options.harmony != options::Harmony::Off {
            return harmony(None, left(&GPT_OSS));
        }
        let taught = engine.template.taught();
        let own_family = Some(names::of_model(model))
            .filter(|family| names::is_known(family))
            .or(taught)
            .unwrap_or(&UNKNOWN);
        let (family, auto) = match &options.parser {
            Parser::Family(name) => (names::named(name)?, false),
            // The engine has no call parser, so calls of a known family are parsed here.
            Parser::Off | Parser::Auto if engine.leaves_calls && names::is_known(own_family) => {
                (own_family, false)
            }
            Parser::Off if options.think.mode == ThinkMode::Off => return None,
            Parser::Off => {
                let think = ThinkFormat::from(&options.think);
                return Some(Self {
                    firsts: first_bytes(&think, &[], &[]),
                    think,
                    ..Self::default()
                });
            }
            Parser::Auto => (own_family, true),
        };
        // Tags of the configuration count more than a name.
        if family.harmony && !(auto && options.think.mode != ThinkMode::Off) {
            return harmony(auto.then_some(family), left(family));
        }
        let tools = read_tools(offer.tools, auto);
        // The configuration knows better than the template, and the template better than the name.
        let is_named = matches!(options.parser, Parser::Family(_));
        let of_calls = taught.filter(|_| !is_named).unwrap_or(family);
        let calls = match tools.is_empty() {
            true => Vec::new(),
            false => formats(of_calls, offer, auto),
        };
        // An engine that has accepted tools keeps the tokens of their calls by itself.
        let special = match family.special == Special::All {
            true => !auto || keeps_special(engine, family),
            false => !auto && of_calls.special != Special::None && !tools.is_empty(),
        };
        let opening = match family.serves_several && own_family.shares_parser(family) {
            true => own_family.think.opened,
            false => family.think.opened,
        };
        let effort = (offer.effort.is_some() && engine.effort_thinks).then_some(true);
        let switch = offer.thinks.or(effort);
        // Where only the prompt or the model's name tells, the engine may parse reasoning itself, or hold the text to a
        // format from the first token on.
        let tells = engine.tells_reasoning || auto && engine.hides_reasoning;
        let is_free = !tells && !offer.constrained && !offer.required;
        let is_family_think = options.think.mode == ThinkMode::Off;
        // A part of a text may lack its tags.
        let may_show = opening.opens(offer.thinks) && !offer.is_part;
        let inputs = Arc::new(BlockInputs {
            option: options.think.clone(),
            tags: &family.think,
            opening,
            thinks: offer.thinks,
            auto,
            is_free,
        });
        let wants_prompt = engine.shows_prompt && !tells && is_family_think;
        let mut format = Self {
            messages: family.messages.filter(|_| is_family_think),
            switch,
            named: (may_show && auto && is_free && is_family_think).then_some(&family.think),
            by_prompt: wants_prompt.then(|| Arc::clone(&inputs)),
            is_family_think,
            answer: family.answer,
            refused_family: left(family).filter(|_| !calls.is_empty()),
            turns: family.turns,
            is_suffixed: of_calls.suffixed || family.suffixed,
            calls,
            tools,
            repair: options.repair_arguments,
            special,
            guessed_family: auto.then_some(family),
            ..Self::default()
        };
        inputs.decide(engine.template.end(switch, offer.effort), &mut format);
        Some(format)
    }

    /// Returns true if a text is content without being parsed: it has not even the first byte of a marker. `begins`: it is
    /// the beginning of an answer, where white space waits for what follows.
    pub(super) fn passes(&self, text: &str, begins: bool) -> bool {
        self.knows_marks()
            && self.think.mode != ThinkMode::Forced
            && self.firsts.find(text.as_bytes()).is_none()
            && !(begins && text.trim_start().is_empty())
    }

    /// Returns true if no marker begins in a text in JSON spelling, whatever its escapes stand for, so that it can be searched
    /// as it is spelled.
    pub(super) fn has_no_marker(&self, spelled: &str) -> bool {
        let mut is_free = self.knows_marks();
        Text::json(spelled).each_character(|sign| {
            let first = sign.encode_utf8(&mut [0; 4]).bytes().next();
            is_free &= !first.is_some_and(|first| self.firsts.contains(first));
        });
        is_free
    }

    /// Returns true if the first bytes are those of everything that the readers look for.
    fn knows_marks(&self) -> bool {
        !self.harmony && self.messages.is_none() && self.answer.0.is_empty()
    }

    /// Returns the description of an answer of gpt-oss.
    pub fn gpt_oss() -> Self {
        Self::harmony(None, None)
    }

    /// Returns the description of a Harmony answer (gpt-oss).
    fn harmony(found: Option<&'static Family>, left: Option<&'static Family>) -> Self {
        Self {
            harmony: true,
            // Engines that know a gpt-oss keep its special tokens by themselves.
            special: found.is_none(),
            guessed_family: found,
            refused_family: left,
            ..Self::default()
        }
    }

    /// Returns true if the markers are special tokens. Engines omit these from the text unless the request asks for
    /// them (`skip_special_tokens`).
    pub fn needs_special_tokens(&self) -> bool {
        self.special
    }

    /// Sets the vocabulary, or none unless the option `harmony` is `tokens`.
    #[must_use]
    pub fn with_tokens(mut self, options: &Options, vocabulary: Option<&Arc<Vocabulary>>) -> Self {
        self.vocabulary = vocabulary
            .filter(|_| options.harmony == options::Harmony::Tokens)
            .cloned();
        self
    }

    /// Returns true if token ids, where the engine sends them, decide what is a marker.
    pub fn has_tokens(&self) -> bool {
        self.vocabulary.is_some()
    }

    /// Returns true if calls are parsed by a parser that the configuration or the engine's refusal has selected, not
    /// by a guess.
    pub fn reads_calls(&self) -> bool {
        !self.calls.is_empty() && self.guessed_family.is_none()
    }

    /// Returns true if calls are looked for in the text.
    pub(super) fn finds_calls(&self) -> bool {
        !self.calls.is_empty() || self.harmony && !self.tools.is_empty()
    }

    /// Returns true if calls that the engine refuses to parse can be parsed here, so that the request
    /// can be rewritten instead of failing.
    pub fn can_read_calls(&self) -> bool {
        self.harmony || self.reads_calls()
    }

    /// Returns the family whose calls the engine has refused to parse.
    pub(super) fn refused_family(&self) -> Option<&'static Family> {
        self.refused_family
    }

    /// Returns what an answer shows of its template. `opened`: the template had opened the block of reasoning.
    pub(super) fn shown(&self, opened: bool) -> TemplateFacts {
        self.named.map_or(TemplateFacts::UNKNOWN, |tags| {
            TemplateFacts::UNKNOWN.with_answer(self.switch, opened.then_some(tags))
        })
    }

    /// Returns true if the engine is to return the prompt with the answer, since it renders none by itself.
    pub fn wants_prompt(&self) -> bool {
        self.by_prompt.is_some()
    }

    /// Returns the description for an answer to this prompt.
    pub(super) fn with_prompt(&self, prompt: &str) -> Self {
        let mut format = self.clone();
        if let Some(inputs) = &self.by_prompt {
            inputs.decide(PromptEnd::of(prompt), &mut format);
        }
        format
    }

    /// Returns the family that was guessed from the model's name; `None` if it is not a guess.
    pub(super) fn guessed_family(&self) -> Option<&'static Family> {
        self.guessed_family
    }

    /// Creates the parser for calls at the end of the engine's own reasoning; `None` if calls are not looked for.
    pub(super) fn trailing_calls(&self) -> Option<TrailingCalls> {
        let starts = Arc::new(Starts::of(&self.calls, &self.tools));
        (starts.len() > 0).then(|| TrailingCalls::of(&starts))
    }

    /// Creates the reader of a choice. `items`: the client's API has output items. `has_begun`: content precedes its text.
    pub(super) fn reader(&self, items: bool, has_begun: bool) -> Reader {
        let calls = HarmonyCalls {
            items,
            tools: Arc::clone(&self.tools),
            repair: self.repair,
        };
        // A gpt-oss that is only guessed may have an engine that parses it.
        if self.harmony && self.guessed_family.is_some() {
            return Reader::Undecided(Undecided {
                text: Box::default(),
                calls,
                held: String::new(),
            });
        }
        if self.harmony {
            let tokens = self.vocabulary.clone().map(Tokens::new);
            return Reader::Harmony(Box::new(Harmony::new(calls)), tokens);
        }
        if let Some(form) = self.messages {
            return Reader::Messages(Box::new(MessageReader::new(form, &self.tools)));
        }
        let starts = Arc::new(Starts::of(&self.calls, &self.tools));
        let mut text = Box::new(TextParser::new(
            self.is_suffixed.then(Suffixes::default),
            Think::of(
                &self.think,
                self.unopened,
                &starts,
                self.is_family_think,
                self.answer.0,
            )
            .map(|think| think.assumed(self.assumed, self.named.is_some())),
            AnswerMarkers::of(self.answer, &starts),
            Calls::of(
                &starts,
                StrayEnds::of(self.turns, self.tags.end, &self.calls),
                self.tags,
            ),
        ));
        if has_begun {
            text.follow_content();
            return Reader::Text(text);
        }
        // An alias may hide a gpt-oss model, so a guess is checked against the beginning of the text.
        match self.guessed_family {
            Some(_) => Reader::Undecided(Undecided {
                text,
                calls,
                held: String::new(),
            }),
            None => Reader::Text(text),
        }
    }
}

/// Returns the formats of calls that are looked for. `is_guess`: the configuration names no parser.
fn formats(
    family: &'static Family,
    offer: OutputConstraints<'_>,
    is_guess: bool,
) -> Vec<&'static Format> {
    // In an answer bound to a format, JSON without a marker is the answer.
    let is_answer = |format: &Format| is_guess && offer.constrained && !format.bare.is_empty();
    let own = family.calls.iter().filter(|format| !is_answer(format));
    let required = offer.required.then_some(&REQUIRED);
    own.copied().chain(required).collect()
}

/// Returns true if the engine is known to accept `skip_special_tokens: false` for a model of this family.
fn keeps_special(engine: EngineFacts, family: &Family) -> bool {
    let refused = |families: &[&str]| family.name().is_none_or(|name| families.contains(&name));
    names::is_known(family) && engine.refuses_special.is_some_and(|all| !refused(all))
}

/// Reads the tools of a request; none if its calls are looked for by a guess and there is too much to read.
fn read_tools(text: &str, is_guess: bool) -> Arc<Tools> {
    if text.is_empty() || is_guess && text.len() > MOST_TOOLS {
        return Arc::clone(&NO_TOOLS);
    }
    Arc::new(Tools::read(text))
}

/// Returns the first bytes of the markers of reasoning, of turns and of calls, and of calls without a marker. Harmony
/// begins with the first byte of the plain tags.
fn first_bytes(
    think: &ThinkFormat,
    turns: &[&'static str],
    calls: &[&'static Format],
) -> FirstBytes {
    FirstBytes::default()
        .with(PLAIN)
        .with([&*think.start, &think.end, &think.tool_start])
        .with(think.others.iter().copied())
        .with(turns.iter().copied())
        .with(calls.iter().flat_map(|format| format.beginnings()))
        // Code may quote calls.
        .with((!calls.is_empty()).then_some("`"))
}

/// Facts that decide, with the end of the prompt, if an answer begins inside reasoning.
#[derive(Debug)]
struct BlockInputs {
    option: options::Think,
    tags: &'static Tags,
    opening: BlockOpening,
    /// Reasoning switch of the request.
    thinks: Option<bool>,
    /// True if the family is that of the model's name.
    auto: bool,
    /// True if the engine leaves reasoning in the text, and does not hold it to a format.
    is_free: bool,
}

impl BlockInputs {
    /// Describes the beginning of an answer to a prompt with this end.
    fn decide(&self, end: PromptEnd, format: &mut TextFormat) {
        let block = Block::of(end, self.tags, self.opening, self.thinks, self.auto);
        let sure = self.is_free || !self.auto && block.is_guess;
        format.think = think(&self.option, block.tags, sure && block.is_open);
        format.assumed = self.auto && block.is_guess && format.is_family_think;
        format.unopened = block.may_be_open;
        format.tags = *block.tags;
        format.firsts = first_bytes(&format.think, format.turns, &format.calls);
    }
}

/// Block of reasoning in which an answer may begin, because the chat template has opened it.
struct Block {
    tags: &'static Tags,
    /// True if the template has opened the block, as far as is known.
    is_open: bool,
    /// True if an end tag without a start tag ends reasoning.
    may_be_open: bool,
    /// True if only the family suggests it.
    is_guess: bool,
}

impl Block {
    /// Decides by the end of the prompt if that is known, else by the family. `thinks`: the reasoning switch of the
    /// request; `auto`: the family is that of the model's name.
    fn of(
        end: PromptEnd,
        tags: &'static Tags,
        opening: BlockOpening,
        thinks: Option<bool>,
        auto: bool,
    ) -> Self {
        // The end tag itself is better evidence than a prompt of other messages.
        let may_be_open = thinks != Some(false)
            && (opening == BlockOpening::OnRequest || auto && opening == BlockOpening::Always);
        let (tags, is_open) = match end {
            PromptEnd::Open(tags) => (tags, true),
            PromptEnd::Closed => (tags, false),
            PromptEnd::Unknown => (tags, opening.opens(thinks)),
        };
        Self {
            tags,
            is_open,
            may_be_open: may_be_open || matches!(end, PromptEnd::Open(_)),
            is_guess: end == PromptEnd::Unknown,
        }
    }
}

/// Returns where reasoning is: as the configuration says if it does, else between these tags. `opened`: the template is
/// known to have opened the block.
fn think(option: &options::Think, tags: &'static Tags, opened: bool) -> ThinkFormat {
    if option.mode != ThinkMode::Off {
        return option.into();
    }
    ThinkFormat {
        // The text decides unless the block is known to be open: in mode `Auto` a start tag is required. A block that
        // the template has opened has no start tag in the text.
        mode: if opened {
            ThinkMode::Forced
        } else {
            ThinkMode::Auto
        },
        start: tags.start.into(),
        others: tags.others,
        end: tags.end.into(),
        trim: option.trim,
        tool_start: option.tool_start.clone().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::options::Parser;

    const TOOLS: &str = r#"[{"type":"function","function":{"name":"f"}}]"#;

    fn of(parser: Parser, model: &str, tools: &str, leaves_calls: bool) -> Option<TextFormat> {
        let options = Options {
            parser,
            ..Options::default()
        };
        let offer = OutputConstraints {
            tools,
            ..OutputConstraints::default()
        };
        TextFormat::of(
            &options,
            model,
            offer,
            EngineFacts {
                leaves_calls,
                ..EngineFacts::default()
            },
        )
    }

    #[test]
    fn formats_constrain_unless_they_are_text() {
        for (json, expected) in [
            (r#"{"type":"json_object"}"#, true),
            (r#"{"type":"json_schema"}"#, true),
            (r#"{"type":"text"}"#, false),
            ("{}", false),
        ] {
            assert_eq!(OutputConstraints::is_format(json), expected, "{json}");
        }
    }

    #[test]
    fn calls_that_an_engine_refuses_are_parsed_for_known_models() {
        assert!(of(Parser::Off, "qwen3-8b", TOOLS, false).is_none());
        assert!(of(Parser::Off, "unknown", TOOLS, true).is_none());
        let refused = of(Parser::Off, "qwen3-8b", TOOLS, true).unwrap();
        assert!(
            refused.can_read_calls()
                && refused.refused_family().is_some()
                && refused.guessed_family().is_none()
        );
        let named = of(Parser::Family("qwen3".to_owned()), "x", TOOLS, false).unwrap();
        assert!(named.can_read_calls() && named.refused_family().is_none());
        let toolless = of(Parser::Off, "qwen3-8b", "[]", true).unwrap();
        assert!(!toolless.can_read_calls() && toolless.refused_family().is_none());
    }

    #[test]
    fn gpt_oss_is_guessed_by_its_name() {
        let guessed = of(Parser::Auto, "gpt-oss-20b", TOOLS, false).unwrap();
        assert!(guessed.guessed_family().is_some() && guessed.refused_family().is_none());
        // An engine that refuses calls leaves nothing to guess: they are parsed here.
        let refused = of(Parser::Auto, "gpt-oss-20b", TOOLS, true).unwrap();
        assert!(refused.guessed_family().is_none() && refused.refused_family().is_some());
        let named = of(Parser::Family("gpt_oss".to_owned()), "x", TOOLS, false).unwrap();
        assert!(named.guessed_family().is_none() && named.refused_family().is_none());
        assert!(!named.has_tokens() && named.needs_special_tokens());
    }

    /// Checks in which texts a block of reasoning may lack its first tag.
    #[test]
    fn who_opens_the_block() {
        let reasoning = |parser: Parser, thinks, tells_reasoning, constrained| {
            let options = Options {
                parser,
                ..Options::default()
            };
            let offer = OutputConstraints {
                thinks,
                constrained,
                ..OutputConstraints::default()
            };
            let engine = EngineFacts {
                tells_reasoning,
                ..EngineFacts::default()
            };
            let format = TextFormat::of(&options, "deepseek-r1", offer, engine).unwrap();
            (format.think.mode, format.unopened)
        };
        let named = || Parser::Family("deepseek_r1".to_owned());
        for (parser, thinks, tells, constrained, expected) in [
            (named(), None, false, false, (ThinkMode::Forced, false)),
            (named(), None, true, true, (ThinkMode::Forced, false)),
            (named(), Some(false), false, false, (ThinkMode::Auto, false)),
            (Parser::Auto, None, false, false, (ThinkMode::Forced, true)),
            (Parser::Auto, None, true, false, (ThinkMode::Auto, true)),
            (Parser::Auto, None, false, true, (ThinkMode::Auto, true)),
            (
                Parser::Auto,
                Some(false),
                false,
                false,
                (ThinkMode::Auto, false),
            ),
        ] {
            let why = format!("{parser:?} {thinks:?} {tells} {constrained}");
            assert_eq!(
                reasoning(parser, thinks, tells, constrained),
                expected,
                "{why}"
            );
        }
    }

    /// Checks that a rendered prompt decides before the family does, with a named parser and without.
    #[test]
    fn the_prompt_tells_better_than_the_family() {
        let open = r#"{"thinking_unset":"<think>"}"#;
        let closed = r#"{"thinking_unset":""}"#;
        for (parser, model, facts, tells, expected) in [
            (
                "auto",
                "deepseek-r1",
                closed,
                false,
                (ThinkMode::Auto, true, false),
            ),
            (
                "deepseek_r1",
                "x",
                closed,
                false,
                (ThinkMode::Auto, false, false),
            ),
            ("qwen3", "x", open, false, (ThinkMode::Forced, true, false)),
            (
                "auto",
                "served",
                open,
                false,
                (ThinkMode::Forced, true, false),
            ),
            // The engine's own parser has the reasoning.
            ("auto", "served", open, true, (ThinkMode::Auto, true, false)),
            (
                "auto",
                "served",
                "{}",
                false,
                (ThinkMode::Auto, false, true),
            ),
            (
                "auto",
                "served",
                r#"{"thinking_on":"<think>"}"#,
                false,
                (ThinkMode::Auto, false, true),
            ),
        ] {
            let options = Options {
                parser: serde_json::from_value(parser.into()).unwrap(),
                ..Options::default()
            };
            let engine = EngineFacts {
                tells_reasoning: tells,
                template: serde_json::from_str(facts).unwrap(),
                ..EngineFacts::default()
            };
            let format =
                TextFormat::of(&options, model, OutputConstraints::default(), engine).unwrap();
            let found = (format.think.mode, format.unopened, format.assumed);
            assert_eq!(found, expected, "{parser} {model} {facts} {tells}");
        }
    }

    #[test]
    fn calls_are_those_that_the_template_teaches_unless_the_configuration_names_others() {
        let taught = r#"{"calls":"minimax_m2"}"#;
        for (parser, model, expected) in [
            ("auto", "served", "<minimax:tool_call>"),
            ("auto", "deepseek-v3", "<minimax:tool_call>"),
            ("deepseek_v3", "served", "<｜tool▁calls▁begin｜>"),
        ] {
            let options = Options {
                parser: serde_json::from_value(parser.into()).unwrap(),
                ..Options::default()
            };
            let engine = EngineFacts {
                template: serde_json::from_str(taught).unwrap(),
                ..EngineFacts::default()
            };
            let offer = OutputConstraints {
                tools: TOOLS,
                ..OutputConstraints::default()
            };
            let format = TextFormat::of(&options, model, offer, engine).unwrap();
            assert_eq!(format.calls[0].starts[0], expected, "{parser} {model}");
        }
    }
}
