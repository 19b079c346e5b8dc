//! Requests: what a client wants, read and checked once.
//!
//! Takes: a body. Gives: an [`Ask`], or the failure that names the parameter. Remembers: nothing.
//! Never: changes what it does not understand.

mod chat;
mod check;
mod completions;
pub mod embeddings;
pub mod fields;
mod media;
mod offered_tools;
mod parts;
pub mod relayed;
pub mod responses;
mod rules;
pub mod stored_items;

pub(crate) use check::invalid;
pub use media::Media;
pub(crate) use offered_tools::{OfferedTools, name as tool_name};
pub use rules::{Caps, Ranges, Rules};

use crate::json::{self, Raw, Text};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::RequestUnknown;
use crate::wire::{Api, Extensions, Offer};
use bytes::Bytes;
use check::Checked;
use fields::{Edits, MemberSpan};
use std::ops::Range;

/// What engines call it to leave special tokens out of text (engine-quirks F).
pub(crate) const SKIP_SPECIAL_TOKENS: &str = "skip_special_tokens";
/// The field that makes an engine tell the tokens of its text.
pub(crate) const RETURN_TOKEN_IDS: &str = "return_token_ids";

/// Engines' own fields that keep an answer to a format.
const CONSTRAINTS: [&str; 8] = [
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "regex",
    "ebnf",
    "json_schema",
];

/// Bytes of an effort, as JSON: what is longer is no word of any engine.
const WORD: usize = 64;

/// The effort that `reasoning` of other services asks for: `none` where it switches reasoning off.
pub(crate) fn effort(reasoning: &str) -> Option<String> {
    let is_off = json::raw_member(reasoning, "enabled").is_some_and(|json| json.get() == "false");
    if is_off {
        return Some("none".to_owned());
    }
    json::raw_member(reasoning, "effort")
        .filter(|json| json.get().len() <= WORD)
        .and_then(Text::of)
        .map(|text| text.decoded().into_owned())
}

/// What a client asks for, as far as it matters to the answer.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// The API.
    pub api: Api,
    /// The model's name; empty: the client names none (wire-format 2.10).
    pub model: String,
    /// An event stream, or one object.
    pub stream: bool,
    /// How many choices the answer must have.
    pub choices: u32,
    /// It asks for this one of several, each of which takes a request of its own.
    pub(crate) choice: Option<u32>,
    /// The client asked for usage.
    pub include_usage: bool,
    /// The client asked for usage on every chunk.
    pub continuous_usage: bool,
    /// The client asked for padding.
    pub include_obfuscation: bool,
    /// The client asked for logprobs.
    pub logprobs: bool,
    /// The client asked for these extensions of the engine.
    pub extensions: Extensions,
    /// The token limit.
    pub limit: Option<u64>,
    /// The function that `tool_choice` forces.
    pub forced_function: Option<String>,
    /// The client wants no more than one tool call.
    pub one_call: bool,
    /// The names of custom tools, which some engines know as functions.
    pub custom_tools: Vec<String>,
    /// The client offers functions in the old form, and reads calls in it.
    pub legacy_functions: bool,
    /// What may be called, if anything.
    pub(crate) offered_tools: Option<Box<OfferedTools>>,
    /// The model is told to reason, or not to.
    pub thinks: Option<bool>,
    /// The client wants no reasoning (`include_reasoning`, a field of vLLM, which streams keep to in no version that was
    /// captured).
    pub hides_reasoning: bool,
    /// The answer is kept to a format.
    pub(crate) constrained: bool,
    /// The engine is told the model by this name: the body names another one, or none.
    pub(crate) overrides_model: bool,
    /// Where the parts stand that may have to be changed.
    pub(crate) places: TextSpans,
}

/// A message's number, and its place in the body's text.
pub(crate) type NumberedMessage = (usize, Range<usize>);

/// Places in the body's text.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextSpans {
    /// Bytes before the text (a byte-order mark).
    pub(crate) offset: usize,
    pub(crate) model: Option<Range<usize>>,
    pub(crate) messages: Option<Range<usize>>,
    pub(crate) stream_options: Option<Range<usize>>,
    /// All members.
    pub(crate) members: Vec<MemberSpan>,
    /// The messages that are more than a text, with their numbers.
    pub(crate) notable: Vec<NumberedMessage>,
    /// The closing brace.
    pub(crate) end: usize,
    /// Addresses that have to be written anew.
    pub(crate) media: Edits,
    /// Fields that the operator names, and the API does not.
    pub(crate) allowed: Vec<String>,
    /// Fields of the API that the operator names.
    pub(crate) let_through: Vec<String>,
    /// Fields that neither names.
    pub(crate) unknown: Vec<String>,
}

impl ChatRequest {
    /// Reads and checks a request.
    ///
    /// # Errors
    /// The first thing that is wrong, with its `param` (faults C01–C04, C12, C13, C33, C35, C36).
    pub fn read(api: Api, body: &Bytes) -> Result<Self, Failure> {
        Self::parse(api, body, true, None, &Rules::ANSWERED)
    }

    /// The same under an operator's rules. Where the path names the model, what the body says of it does not count.
    ///
    /// # Errors
    /// As [`Ask::read`], and what the rules refuse.
    pub fn read_for(api: Api, body: &Bytes, model: Option<&str>, rules: &Rules) -> Result<Self, Failure> {
        Self::parse(api, body, true, model, rules)
    }

    /// Reads a request that has been answered already: what is missing in it is not complained of.
    ///
    /// # Errors
    /// As [`Ask::read`], but for missing parameters.
    pub fn recall(api: Api, body: &Bytes) -> Result<Self, Failure> {
        Self::parse(api, body, false, None, &Rules::ANSWERED)
    }

    fn parse(
        api: Api,
        body: &Bytes,
        complete: bool,
        model: Option<&str>,
        rules: &Rules,
    ) -> Result<Self, Failure> {
        let text = fields::text_within(body, rules.caps.depth)?;
        let offset = body.len() - text.len();
        let mut ask = Self::of_text(api, text, offset, complete, model, rules)?;
        if let Some(offered_tools) = &mut ask.offered_tools
            && let Some(place) = offered_tools.place.clone()
        {
            offered_tools.tools = body.slice(offset..).slice(place);
        }
        Ok(ask)
    }

    /// Reads a chat request that was made here of another one, which kept to these rules.
    pub(crate) fn of_ours(text: &str, rules: &Rules) -> Result<Self, Failure> {
        // Its own limits were those of the other one.
        let caps = Caps { messages: usize::MAX, tools: usize::MAX, ..rules.caps };
        let rules =
            Rules { media: Media::Unjudged, allowed: rules.allowed.clone(), ranges: rules.ranges, caps };
        Self::of_text(Api::Chat, text, 0, false, None, &rules)
    }

    fn of_text(
        api: Api,
        text: &str,
        offset: usize,
        complete: bool,
        model: Option<&str>,
        rules: &Rules,
    ) -> Result<Self, Failure> {
        let fields = fields::read(text, text)?;
        type Reading = fn(&Checked<'_>, bool) -> Result<ChatRequest, Failure>;
        let (known, read): (_, Reading) = match api {
            Api::Chat => (chat::KNOWN, chat::read),
            Api::Completions => (completions::KNOWN, completions::read),
            Api::Responses => return Err(Fault::NotImplemented.into()),
        };
        let checked = Checked::new(text, fields, known, rules)?;
        let mut ask = read(&checked, complete)?;
        if let Some(model) = model {
            ask.name_model(model);
        }
        ask.places.offset = offset;
        ask.places.members = checked.all().iter().map(MemberSpan::from).collect();
        let field = |name: &str| checked.get(name).map(|field| field.value.get());
        let is_off = match field("reasoning_effort") {
            Some(effort) => effort == "\"none\"",
            None => field("reasoning").and_then(effort).as_deref() == Some("none"),
        };
        let told = || field("chat_template_kwargs").and_then(Offer::thinking);
        ask.thinks = if is_off { Some(false) } else { told() };
        let is_said = |key: &&str| field(key).is_some_and(|json| json != "null");
        ask.constrained =
            field("response_format").is_some_and(Offer::is_format) || CONSTRAINTS.iter().any(is_said);
        ask.offered_tools =
            if api == Api::Chat { OfferedTools::read(&checked, &ask).map(Box::new) } else { None };
        ask.places.end = text.trim_end().len().saturating_sub(1);
        let own = checked.all().iter().map(|field| &field.key);
        let own = own.filter(|key| rules.allows(key) && known.contains(&key.as_ref()));
        ask.places.let_through = own.map(|key| key.clone().into_owned()).collect();
        let extras = checked.extras().map(|field| field.key.clone().into_owned());
        (ask.places.allowed, ask.places.unknown) = extras.partition(|key| rules.allows(key));
        Ok(ask)
    }

    /// Names the model, whatever the body says of it.
    pub fn name_model(&mut self, model: &str) {
        model.clone_into(&mut self.model);
        self.overrides_model = true;
    }

    /// The same for one of its choices.
    #[must_use]
    pub fn one_of_several(&self, choice: u32) -> Self {
        Self { choices: 1, choice: Some(choice), ..self.clone() }
    }

    /// What may be called.
    pub fn offer(&self) -> Offer<'_> {
        let offered_tools = self.offered_tools.as_ref();
        let tools =
            offered_tools.map_or("", |offered_tools| std::str::from_utf8(&offered_tools.tools).unwrap_or(""));
        let required = offered_tools.is_some_and(|offered_tools| offered_tools.must);
        Offer { tools, required, thinks: self.thinks, constrained: self.constrained }
    }

    /// How the conversation begins, up to the first thing that a user says: the same for each of its turns. Nothing if it
    /// is no conversation.
    pub fn beginning<'b>(&self, body: &'b [u8]) -> Vec<&'b str> {
        let text = body.get(self.places.offset..).and_then(|body| std::str::from_utf8(body).ok());
        let messages = self.places.messages.clone().and_then(|place| text?.get(place));
        let mut is_begun = false;
        let all = messages.and_then(json::elements).into_iter().flatten();
        let until = all.take_while(|message| {
            let is_first = !is_begun;
            is_begun |= json::member(message.get(), "role").as_deref() == Some("user");
            is_first
        });
        until.map(Raw::get).collect()
    }

    /// Writes one more member at the end of the body.
    fn append(&self, text: &str, member: &str, edits: &mut Edits) {
        let end = self.places.end;
        let empty = text.get(..end).is_some_and(|head| head.trim_end().ends_with('{'));
        edits.replace(end..end, format!("{}{member}", if empty { "" } else { "," }));
    }

    /// The edit that says something to the engine, unless the client says what it wants. `passes`: what the client says goes
    /// on to the engine.
    pub(crate) fn say_unsaid(&self, (key, json): (&str, &str), text: &str, passes: bool, edits: &mut Edits) {
        let said = |fields: &[String]| fields.iter().any(|field| field == key);
        if !(said(&self.places.allowed) || passes && said(&self.places.unknown)) {
            self.append(text, &format!("\"{key}\":{json}"), edits);
        }
    }

    /// The model chooses whether to call something.
    pub(crate) fn may_call(&self) -> bool {
        self.offered_tools.as_ref().is_some_and(|offered_tools| offered_tools.may)
    }

    /// Fails on a field that neither the API nor the operator names, where these are refused.
    ///
    /// # Errors
    /// `unknown_parameter`
    pub(crate) fn known(&self, unknown: RequestUnknown) -> Result<(), Failure> {
        match self.places.unknown.first() {
            Some(key) if unknown == RequestUnknown::Reject => Err(check::unknown(key)),
            _ => Ok(()),
        }
    }

    /// The edits that make the engine send usage in a stream and keep from it what it does not know (2.10).
    pub(crate) fn stream_edits(&self, text: &str, edits: &mut Edits) {
        if !self.stream {
            return;
        }
        let Some(at) = self.places.stream_options.clone() else {
            return self.append(text, "\"stream_options\":{\"include_usage\":true}", edits);
        };
        let object = text.get(at.clone()).unwrap_or("");
        let Ok(options) = fields::read(text, object) else {
            return edits.replace(at, r#"{"include_usage":true}"#);
        };
        let mut asked = false;
        for option in options.iter().filter(|option| option.key == "include_usage") {
            asked = true;
            if option.value.get() != "true" {
                edits.replace(option.at.clone(), "true");
            }
        }
        edits.remove(text, &options, |option| option.key == "include_obfuscation");
        if !asked {
            let left = options.iter().any(|option| option.key != "include_obfuscation");
            let comma = if left { "," } else { "" };
            edits.replace(at.start..at.start + 1, format!("{{\"include_usage\":true{comma}"));
        }
    }
}
