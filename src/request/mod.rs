//! Requests of clients, parsed and checked once before anything else uses them.
//!
//! Takes: a body. Gives: a [`ChatRequest`], or the failure that names the parameter. Remembers: nothing. Never:
//! changes a field that it does not know.

pub mod batch;
mod chat;
mod check;
mod completions;
pub mod embeddings;
mod engine_body;
pub mod fields;
pub mod form;
mod key_set;
pub mod media;
pub mod messages;
pub(crate) mod named_files;
mod object;
mod offered_tools;
mod parts;
mod refusals;
pub mod relayed;
pub mod responses;
mod rules;
pub mod server_tools;
pub mod stored_items;
mod turn;

pub use engine_body::EngineBody;
pub(crate) use key_set::KeySet;
pub use media::Media;
pub(crate) use offered_tools::{OfferedTools, name as tool_name};
pub(crate) use refusals::{invalid, missing, unsupported_parameter, unsupported_value};
pub use rules::{Caps, Ranges, Rules};

use crate::json::{self, Raw, Text};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::RequestUnknown;
use crate::wire::{Api, Effort, Extensions, OutputConstraints};
use bytes::Bytes;
use check::Checked;
use fields::{Edits, MemberSpan};
use server_tools::ServerToolLists;
use std::ops::Range;

/// Request field with which engines leave special tokens out of the text (engines F).
pub(crate) const SKIP_SPECIAL_TOKENS: &str = "skip_special_tokens";
/// Request field that makes an engine return the token ids of its text.
pub(crate) const RETURN_TOKEN_IDS: &str = "return_token_ids";
/// Request field that makes an engine return the prompt with the answer.
pub(crate) const RETURN_PROMPT_TEXT: &str = "return_prompt_text";
/// Upper limit in bytes for a request whose prompt samewire has returned: it comes in one event.
pub(crate) const MOST_FOR_PROMPT: usize = 256 << 10;

/// Engine-specific request fields that constrain the output to a format.
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

/// Longest effort word, in bytes of JSON; no engine defines a longer one.
const WORD: usize = 64;

/// Returns the effort requested by a `reasoning` object in the style of other services, or `none` if the object
/// switches reasoning off.
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

/// Members by which other services switch reasoning on and off: DeepSeek's, Z.ai's and Anthropic's, Qwen's, Ollama's.
pub(crate) const THINKING_SWITCHES: [&str; 3] = ["thinking", "enable_thinking", "think"];

/// Meaning of one of [`THINKING_SWITCHES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThinkingSwitch {
    On,
    Off,
    /// The model decides.
    Open,
}

/// Returns what a switch says, of which this is the value as JSON; `None` if it is no value of a switch.
pub(crate) fn switch_of(key: &str, json: &str) -> Option<ThinkingSwitch> {
    let of_word = |word: &str| match word {
        "true" | "on" | "enabled" => Some(ThinkingSwitch::On),
        "false" | "off" | "none" | "disabled" => Some(ThinkingSwitch::Off),
        "auto" | "adaptive" => Some(ThinkingSwitch::Open),
        _ => None,
    };
    match json.as_bytes().first()? {
        b't' | b'f' => of_word(json),
        b'{' => of_word(json::member(json, "type")?.as_ref()),
        b'"' => {
            let word = Text::of(Raw::of(json)?)?.decoded();
            // Only Ollama's has efforts.
            let is_effort = key == "think" && !word.is_empty();
            if is_effort {
                of_word(&word).or(Some(ThinkingSwitch::On))
            } else {
                of_word(&word)
            }
        }
        _ => None,
    }
}

/// Returns true or false if one of [`THINKING_SWITCHES`] switches reasoning on or off; `get` returns their values.
pub(crate) fn thinks<'a>(get: impl Fn(&'static str) -> Option<&'a str>) -> Option<bool> {
    THINKING_SWITCHES
        .iter()
        .find_map(|key| match switch_of(key, get(key)?)? {
            ThinkingSwitch::On => Some(true),
            ThinkingSwitch::Off => Some(false),
            ThinkingSwitch::Open => None,
        })
}

/// Returns true or false if a request switches reasoning on or off; `get` returns the values of its fields.
pub(crate) fn reasons<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Option<bool> {
    let is_off = match get("reasoning_effort") {
        Some(effort) => effort == "\"none\"",
        None => get("reasoning").and_then(effort).as_deref() == Some("none"),
    };
    let of_template = || get("chat_template_kwargs").and_then(OutputConstraints::thinking);
    if is_off {
        Some(false)
    } else {
        of_template().or_else(|| thinks(&get))
    }
}

/// Returns the effort of reasoning that a request sets, other than `none`; `get` returns the values of its fields.
pub(crate) fn set_effort<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Option<Effort> {
    let word = match get("reasoning_effort") {
        Some(effort) => Raw::of(effort)
            .and_then(Text::of)
            .map(|text| text.decoded().into_owned()),
        None => get("reasoning").and_then(effort),
    };
    word.filter(|word| word != "none")
        .map(|word| Effort::of(&word))
}

/// Chat Completions or Completions request after parsing: the settings that affect the answer, and the places in
/// the body that adaptation may edit.
#[derive(Clone, Debug, Default)]
pub struct ChatRequest {
    /// API of the request.
    pub api: Api,
    /// Model name; empty if the client names none (wire-format 2.10).
    pub model: String,
    /// True for an event stream, false for a single object.
    pub stream: bool,
    /// Number of choices that the answer must contain.
    pub choices: u32,
    /// Index of the choice that this request is for, where each choice takes its own request.
    pub(crate) choice: Option<u32>,
    /// True if the client asked for usage.
    pub include_usage: bool,
    /// True if the client asked for usage on every chunk.
    pub continuous_usage: bool,
    /// True if the client asked for padding (`include_obfuscation`).
    pub include_obfuscation: bool,
    /// True if the client asked for logprobs.
    pub logprobs: bool,
    /// Engine extensions that the client asked for.
    pub extensions: Extensions,
    /// Maximum number of output tokens.
    pub limit: Option<u64>,
    /// Function or custom tool that `tool_choice` forces.
    pub forced_function: Option<String>,
    /// True if the client allows at most one tool call (`parallel_tool_calls: false`).
    pub one_call: bool,
    /// Names of custom tools, which some engines support only as functions.
    pub custom_tools: Vec<String>,
    /// True if the client sends legacy `functions`, and so expects calls as `function_call`.
    pub legacy_functions: bool,
    /// Tools that the model may call; `None` if there are none.
    pub(crate) offered_tools: Option<Box<OfferedTools>>,
    /// Reasoning switched on or off by the client; `None` if the request leaves it open.
    pub reasons: Option<bool>,
    /// True if the client sets an effort of reasoning other than `none`.
    pub(crate) effort: Option<Effort>,
    /// True if the answer may be part of a text: the request begins the text, or has strings that end it.
    pub(crate) is_part: bool,
    /// Limit on the tokens of reasoning, where it is no member of the body: a Messages request's `budget_tokens`.
    pub(crate) reasoning_budget: Option<u32>,
    /// True if the client wants no reasoning (`include_reasoning`, a field of vLLM, whose streams ignore it in
    /// every captured version).
    pub hides_reasoning: bool,
    /// True if the client asks the engine to go on with the text of the last message (`continue_final_message`).
    pub(crate) continues_text: bool,
    /// True if the output is constrained to a format.
    pub(crate) constrained: bool,
    /// True if `model` replaces the name in the body, or supplies a missing one.
    pub(crate) overrides_model: bool,
    /// Places in the body's text that may need an edit.
    pub(crate) places: TextSpans,
}

/// Index of a message, and its range in the body's text.
pub(crate) type NumberedMessage = (usize, Range<usize>);

/// Ranges in the body's text, recorded while parsing so that edits need no second search.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextSpans {
    /// Bytes before the text (a byte-order mark).
    pub(crate) offset: usize,
    pub(crate) model: Option<Range<usize>>,
    pub(crate) messages: Option<Range<usize>>,
    pub(crate) prompt: Option<Range<usize>>,
    pub(crate) stream_options: Option<Range<usize>>,
    /// Top-level members of the body.
    pub(crate) members: Vec<MemberSpan>,
    /// Structured messages, those with more than plain text, with their indices.
    pub(crate) structured: Vec<NumberedMessage>,
    /// Offset of the closing brace.
    pub(crate) end: usize,
    /// Edits that rewrite media addresses in canonical spelling.
    pub(crate) media: Edits,
    /// Fields allowed by the operator that the API does not name.
    pub(crate) allowed: Vec<String>,
    /// Fields allowed by the operator that the API does name.
    pub(crate) allowed_api_fields: Vec<String>,
    /// Fields named by neither the API nor the operator.
    pub(crate) unknown: Vec<String>,
}

impl ChatRequest {
    /// Parses and checks a request under an operator's rules. A `model` from the URL path overrides the one in the
    /// body.
    ///
    /// # Errors
    /// Fails on the first invalid field, with its `param` (faults C01–C04, C12, C13, C33, C35, C36), and on a request
    /// that the rules refuse.
    pub fn read_for(
        api: Api,
        body: &Bytes,
        model: Option<&str>,
        rules: &Rules,
    ) -> Result<Self, Failure> {
        Self::parse(api, body, true, model, rules)
    }

    /// Parses a request that has already been answered, as in a recording: missing required parameters are
    /// accepted.
    ///
    /// # Errors
    /// Fails like [`ChatRequest::read_for`], except for missing parameters.
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
        let text = fields::utf8(body)?;
        let offset = body.len() - text.len();
        let mut request = Self::of_text(api, text, offset, complete, model, rules)?;
        request.share_tools(body);
        Ok(request)
    }

    /// Returns a request of which only those settings are set that tell how to read the answer to a Messages request
    /// on the engine's own route.
    pub(crate) fn of_message(request: &messages::MessagesRequest) -> Self {
        Self {
            api: Api::Messages,
            model: request.model.clone(),
            stream: request.stream,
            choices: 1,
            limit: request.limit,
            offered_tools: request.offered_tools.clone(),
            ..Self::default()
        }
    }

    /// Parses a chat request that samewire generated from a client's request, which has passed these rules.
    pub(crate) fn read_generated(text: &str, rules: &Rules) -> Result<Self, Failure> {
        // The original request was within its own limits; the generated one may have more messages.
        let caps = Caps {
            messages: usize::MAX,
            tools: usize::MAX,
            depth: usize::MAX,
            ..rules.caps
        };
        let rules = Rules {
            media: Media::Unchecked,
            allowed: rules.allowed.clone(),
            ranges: rules.ranges,
            caps,
            tools: ServerToolLists::default(),
        };
        Self::of_text(Api::Chat, text, 0, false, None, &rules)
    }

    /// Parses a chat request like [`Self::read_generated`], for requests that are planned like a client's own.
    /// `named`: fields outside the chat API that the client's own API names.
    pub(crate) fn of_generated(
        body: &Bytes,
        rules: &Rules,
        named: &[&str],
    ) -> Result<Self, Failure> {
        let text = simdutf8::basic::from_utf8(body).map_err(|_| Fault::InvalidUtf8)?;
        let mut request = Self::read_generated(text, rules)?;
        request.share_tools(body);
        request
            .places
            .unknown
            .retain(|key| !named.contains(&key.as_str()));
        Ok(request)
    }

    /// Lets the tools on offer share the bytes of the body, where they appear there unchanged.
    fn share_tools(&mut self, body: &Bytes) {
        if let Some(offered_tools) = &mut self.offered_tools
            && let Some(place) = offered_tools.place.clone()
        {
            let offset = self.places.offset;
            offered_tools.tools = body.slice(place.start + offset..place.end + offset);
        }
    }

    fn of_text(
        api: Api,
        text: &str,
        offset: usize,
        complete: bool,
        model: Option<&str>,
        rules: &Rules,
    ) -> Result<Self, Failure> {
        type Reading = fn(&Checked<'_>, bool) -> Result<ChatRequest, Failure>;
        let (known, read): (_, Reading) = match api {
            Api::Chat => (chat::KNOWN, chat::read),
            Api::Completions => (completions::KNOWN, completions::read),
            Api::Responses | Api::Messages => return Err(Fault::NotImplemented.into()),
        };
        let checked = Checked::new(text, known, rules)?;
        let mut request = read(&checked, complete)?;
        if let Some(model) = model {
            request.name_model(model);
        }
        request.places.offset = offset;
        request.places.members = checked
            .all()
            .iter()
            .map(|field| MemberSpan::of(field, text))
            .collect();
        let field = |name: &str| checked.get(name).map(|field| field.value.get());
        request.reasons = reasons(field);
        request.effort = set_effort(field);
        let continues = field("continue_final_message") == Some("true");
        request.is_part = continues || field("stop").is_some_and(|stop| stop != "null");
        request.continues_text = continues
            && !field("messages").is_some_and(|messages| opens_thinking(messages.as_bytes()));
        let is_said = |key: &&str| field(key).is_some_and(|json| json != "null");
        request.constrained = field("response_format").is_some_and(OutputConstraints::is_format)
            || CONSTRAINTS.iter().any(is_said);
        request.offered_tools = if api == Api::Chat {
            OfferedTools::read(&checked, &request).map(Box::new)
        } else {
            None
        };
        request.places.end = text.trim_end().len().saturating_sub(1);
        let own = checked.all().iter().map(|field| &field.key);
        let own = own.filter(|key| rules.allows(key) && known.contains(&key.as_ref()));
        request.places.allowed_api_fields = own.map(|key| key.clone().into_owned()).collect();
        let extras = checked.extras().map(|field| field.key.clone().into_owned());
        (request.places.allowed, request.places.unknown) =
            extras.partition(|key| rules.allows(key));
        Ok(request)
    }

    /// Overrides the model name, whatever the body contains.
    pub fn name_model(&mut self, model: &str) {
        model.clone_into(&mut self.model);
        self.overrides_model = true;
    }

    /// Returns true for gpt-oss models, which use the Harmony format and always think.
    pub(crate) fn is_gpt_oss(&self) -> bool {
        const NAME: &[u8] = b"gpt-oss";
        self.model
            .as_bytes()
            .windows(NAME.len())
            .any(|part| part.eq_ignore_ascii_case(NAME))
    }

    /// Returns a copy of the request for one of its choices.
    #[must_use]
    pub fn one_of_several(&self, choice: u32) -> Self {
        Self {
            choices: 1,
            choice: Some(choice),
            ..self.clone()
        }
    }

    /// Returns the tools on offer and the constraints that tell how to parse the answer's text.
    pub fn offer(&self) -> OutputConstraints<'_> {
        let offered_tools = self.offered_tools.as_ref();
        let tools = offered_tools.map_or("", |offered_tools| {
            std::str::from_utf8(&offered_tools.tools).unwrap_or("")
        });
        let required = offered_tools.is_some_and(|offered_tools| offered_tools.must_call);
        OutputConstraints {
            tools,
            required,
            thinks: self.reasons,
            effort: self.effort,
            is_part: self.is_part,
            constrained: self.constrained,
        }
    }

    /// Returns the messages up to and including the first user message, as JSON. They are equal in all turns of a
    /// conversation, so they identify it. Empty if the request has no messages.
    pub fn leading_messages<'b>(&self, body: &'b [u8]) -> Vec<&'b str> {
        let text = body
            .get(self.places.offset..)
            .and_then(|body| simdutf8::basic::from_utf8(body).ok());
        let messages = self
            .places
            .messages
            .clone()
            .and_then(|place| text?.get(place));
        let mut is_begun = false;
        let all = messages.and_then(json::elements).into_iter().flatten();
        let until = all.take_while(|message| {
            let is_first = !is_begun;
            is_begun |= json::member(message.get(), "role").as_deref() == Some("user");
            is_first
        });
        until.map(Raw::get).collect()
    }

    /// Returns the texts of the prompt as the client wrote them, what engines put first in front: the tools, then the
    /// messages; of Completions, the prompt.
    pub fn prompt<'b>(&self, body: &'b [u8]) -> Vec<&'b str> {
        let text = body
            .get(self.places.offset..)
            .and_then(|body| simdutf8::basic::from_utf8(body).ok());
        let tools = self
            .offered_tools
            .as_ref()
            .and_then(|offered| offered.place.clone());
        let places = [
            tools,
            self.places.messages.clone(),
            self.places.prompt.clone(),
        ]
        .into_iter()
        .flatten();
        places.filter_map(|place| text?.get(place)).collect()
    }

    /// Appends a member at the end of the body.
    fn append(&self, text: &str, member: &str, edits: &mut Edits) {
        let end = self.places.end;
        let empty = text
            .get(..end)
            .is_some_and(|head| head.trim_end().ends_with('{'));
        edits.replace(
            end..end,
            format!("{}{member}", if empty { "" } else { "," }),
        );
    }

    /// Appends a member unless the client sets it. `passes`: unknown fields reach the engine.
    pub(crate) fn append_unless_set(
        &self,
        (key, json): (&str, &str),
        text: &str,
        passes: bool,
        edits: &mut Edits,
    ) {
        let said = |fields: &[String]| fields.iter().any(|field| field == key);
        if !(said(&self.places.allowed) || passes && said(&self.places.unknown)) {
            self.append(text, &format!("\"{key}\":{json}"), edits);
        }
    }

    /// Returns true if the model may choose whether to call a tool.
    pub(crate) fn may_call(&self) -> bool {
        self.offered_tools
            .as_ref()
            .is_some_and(|offered_tools| offered_tools.may_call)
    }

    /// Fails on a field that neither the API nor the operator names, if `unknown` is set to reject such fields.
    ///
    /// # Errors
    /// `unknown_parameter`
    pub(crate) fn check_unknown(&self, unknown: RequestUnknown) -> Result<(), Failure> {
        match self.places.unknown.first() {
            Some(key) if unknown == RequestUnknown::Reject => Err(refusals::unknown(key)),
            _ => Ok(()),
        }
    }

    /// Adds the edits to `stream_options` that make the engine send usage, and removes options it does not know
    /// (2.10).
    pub(crate) fn stream_edits(&self, text: &str, edits: &mut Edits) {
        if !self.stream {
            return;
        }
        let Some(at) = self.places.stream_options.clone() else {
            return self.append(text, "\"stream_options\":{\"include_usage\":true}", edits);
        };
        let object = text.get(at.clone()).unwrap_or("");
        let Ok(options) = fields::read_part(object) else {
            return edits.replace(at, r#"{"include_usage":true}"#);
        };
        let mut is_named = false;
        for option in options
            .iter()
            .filter(|option| option.key == "include_usage")
        {
            is_named = true;
            if option.value.get() != "true" {
                edits.replace(fields::place(text, option.value.get()), "true");
            }
        }
        edits.remove(text, &options, |option| option.key == "include_obfuscation");
        if !is_named {
            let left = options
                .iter()
                .any(|option| option.key != "include_obfuscation");
            let comma = if left { "," } else { "" };
            edits.replace(
                at.start..at.start + 1,
                format!("{{\"include_usage\":true{comma}"),
            );
        }
    }
}

/// Returns true if the messages, as JSON, end within a block of thinking: what continues it is no text.
pub(crate) fn opens_thinking(messages: &[u8]) -> bool {
    let last = |tag: &str| memchr::memmem::rfind(messages, tag.as_bytes());
    last("<think>") > last("</think>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_or_a_grammar_constrains_the_output() {
        for (body, constrained) in [
            ("{}", false),
            (r#"{"response_format":{"type":"text"}}"#, false),
            (r#"{"response_format":{"type":"json_object"}}"#, true),
            (r#"{"guided_regex":"a+"}"#, true),
            (r#"{"structured_outputs":{"json":{}}}"#, true),
            (r#"{"guided_regex":null,"ebnf":null}"#, false),
            (r#"{"response_format":{"type":"text"},"regex":"a"}"#, true),
        ] {
            let request = ChatRequest::recall(Api::Chat, &Bytes::from(body)).unwrap();
            assert_eq!(request.offer().constrained, constrained, "{body}");
        }
    }

    #[test]
    fn unknown_fields_are_refused_where_the_options_say_so() {
        let body =
            Bytes::from_static(br#"{"messages":[{"role":"user","content":"a"}],"n":1,"top_k":1}"#);
        let read = |allowed: &[&str]| {
            let allowed = allowed.iter().map(|key| (*key).to_owned()).collect();
            ChatRequest::read_for(
                Api::Chat,
                &body,
                None,
                &Rules {
                    allowed,
                    ..Rules::default()
                },
            )
            .unwrap()
        };
        let failure = read(&[]).check_unknown(RequestUnknown::Reject).unwrap_err();
        assert_eq!(failure.message, "Unknown parameter: 'top_k'.");
        assert_eq!(
            (failure.code.as_deref(), failure.param.as_deref()),
            (Some("unknown_parameter"), Some("top_k"))
        );
        for unknown in [RequestUnknown::Pass, RequestUnknown::Drop] {
            assert_eq!(read(&[]).check_unknown(unknown), Ok(()));
        }
        assert_eq!(
            read(&["top_k"]).check_unknown(RequestUnknown::Reject),
            Ok(())
        );
    }
}
