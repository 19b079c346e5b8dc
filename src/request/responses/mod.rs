//! Responses requests: parsed and checked once, then converted to the chat request that answers them
//! (wire-format 4.2, 4.3).
//!
//! Takes: a body. Gives: a [`ResponsesRequest`], or the failure that names the parameter; from it, a body of Chat
//! Completions. Remembers: the items as the client wrote them. Never: ignores a parameter without reporting it.

mod approvals;
mod chat;
mod content;
pub mod conversations;
mod echo;
mod function_names;
mod input;
mod inputs;
mod item;
mod native;
pub mod outputs;
mod sealed;
mod server_tools;
mod settings;
mod substitutes;
pub mod summary;
mod tools;
mod turns;

pub use approvals::approved_calls;
pub use inputs::{Capabilities, ChatInputs, PriorityOrder};
pub use sealed::UnreadableReasoning;
pub use settings::ResponsesSettings;
pub use tools::{CalledTool, ResponsesTools};
pub(crate) use turns::arguments;

use super::check::Checked;
use super::fields::Field;
use super::object::RequestObject;
use super::refusals::{self, invalid, missing, unsupported_parameter};
use super::{ChatRequest, Rules};
use crate::json::{Raw, Text, compacted};
use crate::wire::Extensions;
use crate::wire::encode::Echo;
use crate::wire::fault::Failure;
use crate::wire::options::{Options, RequestUnknown, ResponsesReasoning};
use bytes::{BufMut, Bytes, BytesMut};
use item::Item;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Fields that the API names.
const KNOWN: &[&str] = &[
    "model",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "top_logprobs",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "include",
    "stream",
    "stream_options",
    "store",
    "background",
    "previous_response_id",
    "conversation",
    "truncation",
    "metadata",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "service_tier",
    "prompt",
    "context_management",
    "moderation",
    // Of Codex, about its installation and session; nothing for an engine.
    "client_metadata",
];

/// Fields of Chat Completions that samewire writes itself, and their names in this API.
const MOVED: &[(&str, &str)] = &[
    ("messages", "input"),
    ("max_tokens", "max_output_tokens"),
    ("max_completion_tokens", "max_output_tokens"),
    ("response_format", "text.format"),
    ("verbosity", "text.verbosity"),
    ("reasoning_effort", "reasoning.effort"),
    ("logprobs", "include"),
    ("functions", "tools"),
    ("function_call", "tool_choice"),
];

/// API in which an engine serves Responses requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ResponsesMode {
    /// Chat Completions; samewire generates the Responses events itself.
    #[default]
    Chat,
    /// The engine's own Responses API; samewire repairs the engine's events.
    Native,
}

/// Responses request after parsing and checks: items, tools and settings, from which the engine's request is
/// generated.
#[derive(Clone, Debug)]
pub struct ResponsesRequest {
    /// Model name; empty if the client names none.
    pub model: String,
    /// True for an event stream, false for a single object.
    pub stream: bool,
    /// True if the client asked for padding (`include_obfuscation`).
    pub include_obfuscation: bool,
    /// True if the response is to be stored.
    pub store: bool,
    /// True if the response is generated in the background, without the client waiting.
    pub background: bool,
    /// Id of the response that this one continues.
    pub previous_response_id: Option<String>,
    /// Id of the conversation that this response belongs to.
    pub conversation: Option<String>,
    /// Settings that are checked individually.
    pub settings: ResponsesSettings,
    /// Maximum number of output tokens.
    pub limit: Option<u64>,
    /// Tools on offer, with the mapping between the engine's tool names and the client's.
    pub tools: ResponsesTools,
    /// Parts of the request that the engine does not get, reported to the client: `tools[3].web_search`,
    /// `input[2].web_search_call`.
    pub dropped: Vec<String>,
    /// Other fields without effect, for the log: `moderation`.
    pub ignored: Vec<String>,
    /// Input items, as the client wrote them.
    input: Vec<Bytes>,
    /// Indices of `item_reference` items, with the ids that they refer to.
    references: Vec<(usize, String)>,
    /// Request fields that the answer echoes, as JSON.
    echoed: Vec<(&'static str, Bytes)>,
    parallel: Option<bool>,
    cache_key: Option<String>,
    /// Fields that an engine with its own Responses API receives as the client wrote them.
    carried: Vec<(&'static str, Bytes)>,
    /// True if the client asks for an engine's own messages (`enable_response_messages`).
    response_messages: bool,
    /// Fields that the API does not name, as the client wrote them.
    unknown: Vec<(String, Bytes)>,
    /// Operator's rules, which stored items of earlier turns must satisfy too.
    rules: Arc<Rules>,
}

/// Values of `include` that samewire can provide with a chat engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Include {
    /// `reasoning.encrypted_content`
    pub encrypted_reasoning: bool,
    /// `message.output_text.logprobs`
    pub output_text_logprobs: bool,
    /// `message.input_image.image_url`
    pub input_image_urls: bool,
}

impl Include {
    /// Adds one value of `include`. Returns `false` if the API does not define it.
    pub fn as_chat_request(&mut self, word: &str) -> bool {
        match word {
            "reasoning.encrypted_content" => self.encrypted_reasoning = true,
            "message.output_text.logprobs" => self.output_text_logprobs = true,
            "message.input_image.image_url" => self.input_image_urls = true,
            other => return settings::INCLUDE.contains(&other),
        }
        true
    }
}

impl ResponsesRequest {
    /// Parses and checks a request for an engine that is used in this mode, under an operator's rules. A `model`
    /// from the URL path overrides the one in the body.
    ///
    /// # Errors
    /// Fails on the first invalid field, with its `param`, and on a request that the rules refuse.
    pub fn read_for(
        body: &Bytes,
        options: &Options,
        way: ResponsesMode,
        model: Option<String>,
        rules: &Arc<Rules>,
    ) -> Result<Self, Failure> {
        Self::parse(body, options, way, true, model, Arc::clone(rules))
    }

    /// Parses a request that has already been answered in this mode, as in a recording: missing and unsupported
    /// parameters are accepted.
    ///
    /// # Errors
    /// Fails like [`ResponsesRequest::read_for`], except for missing and unsupported parameters.
    pub fn recall(body: &Bytes, options: &Options, way: ResponsesMode) -> Result<Self, Failure> {
        Self::parse(body, options, way, false, None, Arc::new(Rules::ANSWERED))
    }

    fn parse(
        body: &Bytes,
        options: &Options,
        way: ResponsesMode,
        complete: bool,
        model: Option<String>,
        rules: Arc<Rules>,
    ) -> Result<Self, Failure> {
        let from = Checked::of(body, KNOWN, &rules)?;
        if complete {
            unsupported(&from)?;
            refused(&from, options.request_unknown)?;
        }
        let streaming = from.streaming()?;
        let settings = settings::read(&from)?;
        let Items {
            input,
            references,
            dropped,
            tools,
        } = items(&from, body, complete)?;
        let tools = ResponsesTools::read(&from, &tools, options.unsupported_tools, way)?;
        let ignored = ["context_management", "moderation"]
            .into_iter()
            .filter(|key| from.get(key).is_some());
        let conversation = settings::conversation(&from)?;
        let previous_response_id = from.string("previous_response_id")?;
        if conversation.is_some() && previous_response_id.is_some() {
            return Err(invalid(
                "previous_response_id",
                "it excludes conversation; send one of the two",
            ));
        }
        let store = from.get("store").is_none() || from.flag("store")?;
        let background = from.flag("background")?;
        if background && !store {
            return Err(invalid(
                "background",
                "a response that is made in the background must be stored",
            ));
        }
        let dropped_places = tools.dropped_places();
        Ok(Self {
            model: model.map_or_else(|| from.string("model").map(Option::unwrap_or_default), Ok)?,
            stream: streaming.stream,
            include_obfuscation: streaming.include_obfuscation,
            store,
            background,
            previous_response_id,
            conversation,
            settings,
            limit: from.whole("max_output_tokens", 1..=100_000_000)?,
            dropped: tools.dropped().chain(dropped).collect(),
            tools,
            ignored: ignored.map(ToOwned::to_owned).collect(),
            input,
            references,
            echoed: echo::echoed_fields(
                body,
                |key| from.get(key).map(|field| field.value),
                &dropped_places,
            ),
            parallel: from
                .get("parallel_tool_calls")
                .map(|_| from.flag("parallel_tool_calls"))
                .transpose()?,
            cache_key: from.string("prompt_cache_key")?,
            carried: native::CARRIED
                .iter()
                .filter_map(|key| {
                    from.get(key)
                        .map(|field| (*key, shared_value(body, field.value)))
                })
                .collect(),
            response_messages: from.extensions().response_messages,
            unknown: from
                .extras()
                .filter(|field| may_pass_to_engine(field))
                .map(|field| (field.key.to_string(), shared_value(body, field.value)))
                .collect(),
            rules: Arc::clone(&rules),
        })
    }

    /// Returns the operator's rules under which the request was read.
    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the fields that come before all items in the engine's prompt, tools and instructions, as JSON.
    pub(crate) fn leading_fields(&self) -> impl Iterator<Item = &str> {
        let field = |key: &str| self.echoed.iter().find(|(known, _)| *known == key);
        let fields = ["tools", "instructions"].into_iter().filter_map(field);
        fields.filter_map(|(_, json)| std::str::from_utf8(json).ok())
    }

    /// Returns true if the client sets `store: true` itself, or asks for background mode, which requires storage.
    pub fn insists_on_store(&self) -> bool {
        self.background
            || self
                .echoed
                .iter()
                .any(|(key, json)| *key == "store" && json == "true")
    }

    /// Adds the tools that earlier items of the conversation have introduced.
    ///
    /// # Errors
    /// Fails if a tool of another type has the name of one of them.
    pub fn add_earlier_tools<'a>(
        &mut self,
        history: impl Iterator<Item = &'a str>,
    ) -> Result<(), Failure> {
        let introduces =
            |item: &&str| item.contains("additional_tools") || item.contains("tool_search_output");
        for item in history.filter(introduces) {
            let Some(raw) = Raw::of(item) else { continue };
            let item = input::item("previous_response_id".to_owned(), raw, &self.rules);
            if let Some(tools) = item.ok().and_then(Item::introduced) {
                self.tools.recall(&tools)?;
            }
        }
        Ok(())
    }

    /// Leaves the choice of tools to the model, which has called one.
    pub fn release_tool_choice(&mut self) {
        self.tools.release_choice();
    }

    /// Clears the input after it has been answered: the caller keeps it in the history from now on.
    pub fn clear_input(&mut self) {
        self.input.clear();
        self.references.clear();
    }

    /// Removes hosted items from what is dropped, for an engine that reads them.
    pub fn accept_hosted_items(&mut self) {
        // Tools that an item introduces have longer names: `input[2].tools[0].mcp`.
        self.dropped
            .retain(|what| !what.starts_with("input[") || what.contains("].tools["));
    }

    /// Stores the response if possible, whatever the client asked.
    pub fn force_store(&mut self) {
        self.store = true;
        self.echoed
            .retain(|(key, json)| *key != "store" || json == "true");
    }

    /// Removes a field that the API does not name, so that it does not reach the engine.
    pub fn remove_unknown(&mut self, key: &str) {
        self.unknown.retain(|(known, _)| known != key);
    }

    /// Turns storage off, whatever the client asked, where the proxy has no store.
    ///
    /// # Errors
    /// Fails on background mode, which requires a store.
    pub fn disable_store(&mut self) -> Result<(), Failure> {
        if self.background {
            return Err(invalid(
                "background",
                "responses are not stored, which it needs",
            ));
        }
        self.store = false;
        self.echoed.retain(|(key, _)| *key != "store");
        self.echoed.push(("store", Bytes::from_static(b"false")));
        Ok(())
    }

    /// Checks that the request works without stored conversations.
    ///
    /// # Errors
    /// Fails if the request names a conversation.
    pub fn without_conversations(&self) -> Result<(), Failure> {
        match self.conversation {
            Some(_) => Err(unsupported_parameter(
                "conversation",
                "conversations are not stored here",
            )),
            None => Ok(()),
        }
    }

    /// Returns true if the client wants no reasoning (`include_reasoning`).
    pub(super) fn hides_reasoning(&self) -> bool {
        self.unknown
            .iter()
            .any(|(key, json)| key == "include_reasoning" && json == "false")
    }

    /// Returns the request in the form of a chat request, reduced to the settings that affect how the answer is
    /// read.
    pub fn as_chat(&self) -> ChatRequest {
        ChatRequest {
            model: self.model.clone(),
            stream: self.stream,
            choices: 1,
            include_usage: true,
            include_obfuscation: self.include_obfuscation,
            logprobs: self.settings.include.output_text_logprobs,
            limit: self.limit,
            forced_function: self.tools.forced().map(ToOwned::to_owned),
            one_call: self.parallel == Some(false),
            hides_reasoning: self.hides_reasoning(),
            constrained: self.is_constrained(),
            reasons: self.thinks(),
            extensions: Extensions {
                response_messages: self.response_messages,
                ..Extensions::default()
            },
            ..ChatRequest::default()
        }
    }

    /// Returns where the answer carries its reasoning: a client that asks for summaries gets them beside the text
    /// (wire-format 4.5).
    pub fn reasoning_place(&self, option: ResponsesReasoning) -> ResponsesReasoning {
        match option {
            ResponsesReasoning::Content if self.settings.summary => ResponsesReasoning::Both,
            option => option,
        }
    }

    /// Returns `instructions` as a JSON string, if there are any.
    fn instructions(&self) -> Option<&Bytes> {
        let given = self
            .echoed
            .iter()
            .find(|(key, _)| *key == "instructions")
            .map(|(_, json)| json);
        given.filter(|json| json.as_ref() != b"\"\"")
    }

    /// Returns the request fields that the answer echoes.
    pub fn echo(&self) -> Echo {
        let mut echo = Echo::default();
        for (key, json) in &self.echoed {
            echo.keep(key, json.clone());
        }
        echo
    }

    /// Iterates over the input items as JSON, as the client wrote them; input given as a string is one message.
    pub fn input(&self) -> impl Iterator<Item = &str> {
        self.input
            .iter()
            .map(|item| std::str::from_utf8(item).unwrap_or_default())
    }

    /// Iterates over the input items like [`Self::input`], as shared buffers.
    pub fn shared_input(&self) -> impl Iterator<Item = &Bytes> {
        self.input.iter()
    }

    /// Iterates over the `item_reference` items: index in the input, and id referred to. The caller must resolve
    /// them in the store before a chat request can be generated.
    pub fn references(&self) -> impl Iterator<Item = (usize, &str)> {
        self.references.iter().map(|(at, id)| (*at, id.as_str()))
    }
}

/// Returns a value of the body unchanged. A small one is copied, so that it does not keep the whole body in
/// memory.
fn shared_value(body: &Bytes, value: Raw<'_>) -> Bytes {
    const SMALL: usize = 4096;
    let value = value.get().as_bytes();
    if value.len() < SMALL {
        Bytes::copy_from_slice(value)
    } else {
        body.slice_ref(value)
    }
}

/// Fails on a parameter that this proxy does not support.
fn unsupported(from: &Checked<'_>) -> Result<(), Failure> {
    if from.get("prompt").is_some() {
        return Err(unsupported_parameter(
            "prompt",
            "prompt templates are not stored; send 'input'",
        ));
    }
    for field in from.extras().filter(|field| field.value.get() != "null") {
        if field.key == "n" && field.value.get() != "1" {
            return Err(unsupported_parameter("n", "a response is one answer"));
        }
        if let Some((key, to)) = MOVED.iter().find(|(key, _)| field.key == *key) {
            let why = format!("in the Responses API, this parameter has moved to '{to}'");
            return Err(unsupported_parameter(*key, &why));
        }
    }
    Ok(())
}

/// Fails on a field that neither the API nor the operator names, where such fields are refused. The extra fields
/// of a WebSocket message belong to the API (wire-format 4.12).
fn refused(from: &Checked<'_>, unknown: RequestUnknown) -> Result<(), Failure> {
    let is_message = from
        .get("type")
        .is_some_and(|kind| kind.value.get() == "\"response.create\"");
    let mut others = from
        .unknown()
        .filter(|key| !(is_message && matches!(*key, "type" | "generate")));
    match others.next() {
        Some(key) if unknown == RequestUnknown::Reject => Err(refusals::unknown(key)),
        _ => Ok(()),
    }
}

/// Returns true if an unknown field may pass to the engine: not one that samewire writes itself and would
/// duplicate, and not the type of a message that carries a request (wire-format 4.12).
fn may_pass_to_engine(field: &Field<'_>) -> bool {
    let (key, value) = (field.key.as_ref(), field.value.get());
    let ours = key == "n" || MOVED.iter().any(|(moved, _)| *moved == key);
    value != "null" && !ours && (key, value) != ("type", "\"response.create\"")
}

/// Result of parsing the input: items, references and the tools they introduce.
#[derive(Default)]
struct Items<'a> {
    input: Vec<Bytes>,
    references: Vec<(usize, String)>,
    /// Items that a chat engine is not sent.
    dropped: Vec<String>,
    /// Tools introduced by items.
    tools: Vec<RequestObject<'a>>,
}

fn items<'a>(from: &'a Checked<'_>, body: &Bytes, complete: bool) -> Result<Items<'a>, Failure> {
    let mut items = Items::default();
    let continues =
        from.get("previous_response_id").is_some() || from.get("conversation").is_some();
    let Some(field) = from.get("input") else {
        return if continues || !complete {
            Ok(items)
        } else {
            Err(missing("input"))
        };
    };
    if Text::of(field.value).is_some() {
        let mut item = BytesMut::from(
            &br#"{"type":"message","role":"user","content":[{"type":"input_text","text":"#[..],
        );
        item.extend_from_slice(compacted(field.value).as_bytes());
        item.put_slice(b"}]}");
        items.input.push(item.freeze());
        return Ok(items);
    }
    if !field.value.get().starts_with('[') {
        return Err(invalid("input", "it must be a string or a list of items"));
    }
    let all = from
        .limited("input", from.caps().messages, "max_messages")?
        .unwrap_or_default();
    if all.is_empty() && complete && !continues && from.get("instructions").is_none() {
        return Err(invalid("input", "it must not be empty"));
    }
    for (at, raw) in all.into_iter().enumerate() {
        match input::item(format!("input[{at}]"), raw, from.rules)? {
            Item::Reference(id) => items.references.push((at, id.decoded().into_owned())),
            Item::Hosted {
                kind, substitutes, ..
            } if substitutes.is_empty()
                && (from.rules.tools.0.is_empty() || !kind.starts_with("mcp_")) =>
            {
                items.dropped.push(format!("input[{at}].{kind}"))
            }
            item => items.tools.extend(item.introduced().unwrap_or_default()),
        }
        items.input.push(body.slice_ref(raw.get().as_bytes()));
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(members: &str, unknown: RequestUnknown) -> Result<ResponsesRequest, Failure> {
        let options = Options {
            request_unknown: unknown,
            ..Options::default()
        };
        let body = Bytes::from(format!(r#"{{"model":"m","input":"a",{members}}}"#));
        ResponsesRequest::read_for(
            &body,
            &options,
            ResponsesMode::Chat,
            None,
            &Arc::new(Rules::ANSWERED),
        )
    }

    #[test]
    fn unknown_fields_are_refused_where_the_options_say_so() {
        for (members, param) in [
            (r#""top_k":1"#, Some("top_k")),
            (r#""type":"other""#, Some("type")),
            (r#""generate":false"#, Some("generate")),
            // A WebSocket message has a type, and may say whether to generate.
            (r#""type":"response.create""#, None),
            (r#""type":"response.create","generate":false"#, None),
            (r#""type":"response.create","top_k":1"#, Some("top_k")),
        ] {
            match (read(members, RequestUnknown::Reject), param) {
                (Ok(_), None) => {}
                (Err(failure), Some(param)) => {
                    assert_eq!(
                        failure.code.as_deref(),
                        Some("unknown_parameter"),
                        "{members}"
                    );
                    assert_eq!(failure.param.as_deref(), Some(param), "{members}");
                }
                (result, _) => panic!("{members}: {result:?}"),
            }
            assert!(read(members, RequestUnknown::Pass).is_ok(), "{members}");
            assert!(read(members, RequestUnknown::Drop).is_ok(), "{members}");
        }
    }

    #[test]
    fn without_a_store_the_answer_says_that_nothing_is_stored() {
        for members in [
            r#""user":"u","store":true"#,
            r#""user":"u","store":false"#,
            r#""user":"u""#,
        ] {
            let mut request = read(members, RequestUnknown::Pass).unwrap();
            request.disable_store().unwrap();
            assert!(!request.store, "{members}");
            let mut echoed: Vec<_> = request
                .echoed
                .iter()
                .map(|(key, json)| (*key, json.as_ref()))
                .collect();
            echoed.sort_unstable();
            assert_eq!(
                echoed,
                [("store", &b"false"[..]), ("user", b"\"u\"")],
                "{members}"
            );
        }
        let failure = read(r#""background":true"#, RequestUnknown::Pass)
            .unwrap()
            .disable_store()
            .unwrap_err();
        assert_eq!(failure.param.as_deref(), Some("background"));
    }

    /// A client that asks for summaries gets them beside the text (wire-format 4.5).
    #[test]
    fn summaries_come_beside_the_text_of_the_reasoning() {
        use ResponsesReasoning::{Both, Content, Summary};
        for (members, places) in [
            (
                r#""reasoning":{"summary":"auto"}"#,
                [(Content, Both), (Summary, Summary), (Both, Both)],
            ),
            (
                r#""reasoning":{"effort":"low"}"#,
                [(Content, Content), (Summary, Summary), (Both, Both)],
            ),
        ] {
            let request = read(members, RequestUnknown::Pass).unwrap();
            for (option, place) in places {
                assert_eq!(request.reasoning_place(option), place, "{members}");
            }
        }
    }
}
