//! How the text of an answer is written, as far as an engine may leave it unparsed: what the options, the model's name and
//! the request say of it.

use super::calls::{Calls, Starts};
use super::family::{Family, GPT_OSS, Opened, Special};
use super::format::{Format, REQUIRED};
use super::harmony::Harmony;
use super::text::Plain;
use super::think::Think;
use super::tokens::Tokens;
use super::vocabulary::Vocabulary;
use super::wrapper::Wrapper;
use super::{Reader, Shape, Undecided};
use crate::json::Members;
use crate::wire::Api;
use crate::wire::options::{self, Options, Parser, ThinkMode};
use crate::wire::tools::Tools;
use std::sync::Arc;

/// What may be called, as a request says it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer<'a> {
    /// `tools` of a chat request, as JSON; empty: nothing.
    pub tools: &'a str,
    /// Something must be called.
    pub required: bool,
    /// The model is told to reason, or not to; if not, the template opens no block.
    pub thinks: Option<bool>,
    /// The engine keeps the answer to a format from its first word on, unless it parses reasoning itself.
    pub constrained: bool,
}

/// The facts known about the parsers that an engine runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineParsers {
    /// Whether the engine separates reasoning from the text, or leaves it out.
    pub tells_reasoning: bool,
    /// Whether the engine has no parser of calls, and refuses requests that need one.
    pub leaves_calls: bool,
}

impl Offer<'_> {
    /// Whether this `response_format` keeps an answer to a format.
    pub fn is_format(json: &str) -> bool {
        crate::json::member(json, "type").is_some_and(|kind| kind != "text")
    }

    /// Whether these `chat_template_kwargs` tell a model to reason, or not to, if they say anything of it.
    pub fn thinking(kwargs: &str) -> Option<bool> {
        let Members(all) = Members::of(kwargs)?;
        let said = all.iter().filter(|(key, _)| ["enable_thinking", "thinking"].contains(&&**key));
        let said: Vec<_> = said.map(|(_, value)| value.get()).collect();
        let says = |word: &str| said.contains(&word);
        if says("false") { Some(false) } else { says("true").then_some(true) }
    }
}

/// How text is read.
#[derive(Clone, Debug, Default)]
pub struct Script {
    harmony: bool,
    /// What its tokens stand for, where they count.
    vocabulary: Option<Arc<Vocabulary>>,
    think: options::Think,
    /// In a whole answer, an end without a start ends reasoning.
    unopened: bool,
    /// Whether only the model's name says that the template opens the block.
    assumed: bool,
    /// What stands around the answer.
    answer: (&'static str, &'static str),
    calls: Vec<&'static Format>,
    turns: &'static [&'static str],
    tools: Arc<Tools>,
    special: bool,
    /// What is said of it where it was not known before.
    found: Option<&'static Family>,
    /// The family whose calls the engine does not parse, where it has refused to.
    left: Option<&'static Family>,
}

impl Script {
    /// What is known of the text of a model of this name; `None`: nothing, it stays as it is.
    pub fn of(options: &Options, model: &str, offer: Offer<'_>, engine: EngineParsers) -> Option<Self> {
        let left = |family| Some(family).filter(|_| engine.leaves_calls);
        if options.harmony != options::Harmony::Off {
            return Some(Self::harmony(None, left(&GPT_OSS)));
        }
        let family = Family::of_model(model);
        let (family, auto) = match &options.parser {
            Parser::Family(name) => (Family::named(name)?, false),
            // The engine leaves calls in the text for whoever knows the family.
            Parser::Off | Parser::Auto if engine.leaves_calls && family.is_known() => (family, false),
            Parser::Off if options.think.mode == ThinkMode::Off => return None,
            Parser::Off => return Some(Self { think: options.think.clone(), ..Self::default() }),
            Parser::Auto => (family, true),
        };
        if family.harmony {
            return Some(Self::harmony(auto.then_some(family), left(family)));
        }
        let tools = Tools::read(offer.tools);
        let mut calls = if tools.is_empty() { Vec::new() } else { family.calls.to_vec() };
        if offer.required && !tools.is_empty() {
            calls.push(&REQUIRED);
        }
        let special = match family.special {
            Special::None => false,
            Special::Calls => !tools.is_empty(),
            Special::All => true,
        };
        let opened = family.think.map_or(Opened::Never, |tags| tags.opened);
        // Where nobody has named the family, the engine may parse reasoning itself.
        let sure = !auto || !engine.tells_reasoning && !offer.constrained;
        Some(Self {
            harmony: false,
            vocabulary: None,
            think: think(&options.think, family, sure && is_opened(opened, offer.thinks)),
            assumed: auto && options.think.mode == ThinkMode::Off,
            unopened: offer.thinks != Some(false)
                && (opened == Opened::Perhaps || auto && opened == Opened::Always),
            answer: family.answer,
            left: left(family).filter(|_| !calls.is_empty()),
            calls,
            turns: if special { family.turns } else { &[] },
            tools: Arc::new(tools),
            special,
            found: auto.then_some(family),
        })
    }

    /// The text of gpt-oss.
    fn harmony(found: Option<&'static Family>, left: Option<&'static Family>) -> Self {
        Self { harmony: true, special: true, found, left, ..Self::default() }
    }

    /// What is looked for are special tokens, which engines leave out of text unless they are asked not to.
    pub fn needs_special_tokens(&self) -> bool {
        self.special
    }

    /// The same with the tokens that count where the option says so.
    #[must_use]
    pub fn with_tokens(mut self, options: &Options, vocabulary: Option<&Arc<Vocabulary>>) -> Self {
        self.vocabulary = vocabulary.filter(|_| options.harmony == options::Harmony::Tokens).cloned();
        self
    }

    /// The engine's tokens count, as far as it tells them.
    pub fn has_tokens(&self) -> bool {
        self.vocabulary.is_some()
    }

    /// Calls are read by the parser that somebody has named: the engine has none.
    pub fn reads_calls(&self) -> bool {
        !self.calls.is_empty() && self.found.is_none()
    }

    /// Calls that the engine refuses to parse can be read here.
    pub fn can_read_calls(&self) -> bool {
        self.harmony || self.reads_calls()
    }

    /// The family whose calls the engine has refused to parse.
    pub(super) fn left(&self) -> Option<&'static Family> {
        self.left
    }

    /// The family whose marks are looked for, where nobody has named it.
    pub(super) fn family(&self) -> Option<&'static Family> {
        self.found
    }

    /// The reader of a choice. `items`: the client has items.
    pub(super) fn reader(&self, items: bool) -> Reader {
        if self.harmony {
            let tokens = self.vocabulary.clone().map(Tokens::new);
            return Reader::Harmony(Box::new(Harmony::new(items)), tokens);
        }
        let starts = Arc::new(Starts::of(&self.calls, &self.tools));
        let text = Box::new(Plain::new(
            Think::of(&self.think, self.unopened, &starts).map(|think| think.assumed(self.assumed)),
            Wrapper::of(self.answer, &starts),
            Calls::of(&starts, self.turns),
        ));
        // A name may hide a model that writes Harmony.
        match self.found {
            Some(_) => Reader::Undecided(Undecided { text, items, held: String::new() }),
            None => Reader::Text(text),
        }
    }
}

/// Whether the template has opened a block. `thinks`: what the model is told.
fn is_opened(opened: Opened, thinks: Option<bool>) -> bool {
    match opened {
        Opened::Never => false,
        Opened::Perhaps => thinks == Some(true),
        Opened::Always => thinks != Some(false),
    }
}

/// What is said of reasoning: by the option, else by the family. `opened`: it is known that the template has opened a block.
fn think(option: &options::Think, family: &Family, opened: bool) -> options::Think {
    let mut think = option.clone();
    let Some(tags) = family.think.filter(|_| think.mode == ThinkMode::Off) else { return think };
    // Where nobody has named the family, or the model may not reason, what is seen decides; a block that the template has
    // opened cannot be seen.
    think.mode = if opened { ThinkMode::Forced } else { ThinkMode::Auto };
    tags.start.clone_into(&mut think.start);
    tags.end.clone_into(&mut think.end);
    think
}

impl Shape {
    /// How the text of the answer is read, if it is.
    pub(super) fn read_by(&self) -> Option<&Arc<Script>> {
        self.script.as_ref().filter(|_| self.upstream != Api::Responses && self.client != Api::Completions)
    }
}
