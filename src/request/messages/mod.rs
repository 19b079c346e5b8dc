//! Requests of Anthropic's Messages API: parsed and checked once, then converted to the chat request that answers
//! them (messages 3).
//!
//! Takes: a body. Gives: a [`MessagesRequest`] with its chat request, or the failure that names the parameter.
//! Remembers: what the answer needs of the request. Never: fails on thinking that it does not recognise.

mod blocks;
mod conversation;
mod native;
mod settings;
mod tools;

use super::check::Checked;
use super::refusals::{self, missing};
use super::{ChatRequest, OfferedTools, Rules, fields};
use crate::wire::encode::{THREAD_UNSUPPORTED, ThinkingDisplay};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::{MessagesThinking, Options, RequestUnknown};
use bytes::{BufMut, Bytes, BytesMut};
use conversation::MessagesConversation;
use serde::{Deserialize, Serialize};
use settings::MessagesSettings;
use std::collections::HashSet;
use tools::MessagesTools;

/// Fields that the API names.
const KNOWN: &[&str] = &[
    "model",
    "messages",
    "max_tokens",
    "system",
    "stream",
    "metadata",
    "stop_sequences",
    "temperature",
    "top_p",
    "top_k",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "output_format",
    "service_tier",
    "cache_control",
    "container",
    "context_management",
    "mcp_servers",
    "inference_geo",
    "speed",
    "diagnostics",
    "user_profile_id",
    "fallbacks",
    "thread",
    "compaction",
    "billing_policy",
    "fallback_credit_token",
];

/// Fields without a counterpart in chat whose loss changes the meaning of a request, so that the client is told.
const DROPPED_AND_NAMED: &[&str] = &["context_management", "container"];

/// Fields of Chat Completions that samewire writes itself, and what takes their place in this API.
const MOVED: &[(&str, &str)] = &[
    ("max_completion_tokens", "'max_tokens'"),
    ("stop", "'stop_sequences'"),
    ("response_format", "'output_config.format'"),
    ("reasoning_effort", "'output_config.effort'"),
    (
        "parallel_tool_calls",
        "'tool_choice.disable_parallel_tool_use'",
    ),
    ("user", "'metadata.user_id'"),
    ("functions", "'tools'"),
    ("function_call", "'tool_choice'"),
    ("stream_options", "nothing: usage is always sent"),
    ("logprobs", "nothing: a message has no log probabilities"),
    (
        "top_logprobs",
        "nothing: a message has no log probabilities",
    ),
    ("n", "nothing: a message is one answer"),
];

/// Defaults of chat for which a message has no place, or which the client's own request decides on.
const NO_PLACE: &[&str] = &["n", "logprobs", "top_logprobs", "stream", "stream_options"];

/// Name of the rule that drops a block of billing or attribution text, for the log and the metrics.
const BILLING_BLOCK: &str = "billing_block";
/// Name of the rule that drops thinking whose signature does not hold, for the log and the metrics.
const THINKING_DROPPED: &str = "thinking_dropped";

/// Content of a signature that has been opened (messages 6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenedThinking {
    /// SHA-256 of the block's text as hex digits.
    Hash(String),
    /// The text of a block that was sent without it.
    Text(String),
}

/// Opens a signature; `None` if it is not ours, was altered, or belongs to another tenant.
pub type OpenSignature<'a> = &'a dyn Fn(&str) -> Option<OpenedThinking>;

/// Route of an engine on which Messages requests are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MessagesMode {
    /// Chat Completions; samewire generates the message itself.
    #[default]
    Chat,
    /// The engine's own Messages route; samewire repairs the engine's events.
    Native,
}

/// Purpose for which a request is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The request is to be answered: all required fields must be there.
    #[default]
    Answer,
    /// The tokens of the prompt are to be counted: there is no limit on the answer.
    Count,
    /// The request has been answered, as in a recording: missing fields are accepted.
    Recall,
}

/// Circumstances under which a request is read.
#[derive(Clone, Copy)]
pub struct MessagesContext<'a> {
    /// Operator's rules for requests.
    pub rules: &'a Rules,
    /// Wire options in force.
    pub options: &'a Options,
    /// Model from the URL or the configuration, which overrides the one in the body.
    pub model: Option<&'a str>,
    /// Opens the signatures of thinking in the history.
    pub open: OpenSignature<'a>,
    /// Members for chat requests without them, as key and JSON; for the engine's own route members of that.
    pub defaults: &'a [(String, String)],
    /// Number of tokens that the model's context holds, if it is known.
    pub context_length: Option<u64>,
    /// Route on which the engine answers.
    pub mode: MessagesMode,
    /// Purpose of reading it.
    pub purpose: Purpose,
}

/// Request that answers a Messages request, before it is planned for one engine.
#[derive(Clone, Debug)]
pub enum EngineRequest {
    /// Chat request.
    Chat(Box<ChatRequest>),
    /// Request on the engine's own Messages route.
    Native {
        /// Texts of the system prompt and of the first message, which are equal in all turns of a conversation.
        beginning: Vec<String>,
    },
}

/// Messages request after parsing, with the request that answers it.
#[derive(Clone, Debug)]
pub struct MessagesRequest {
    /// Model name; empty if the client names none.
    pub model: String,
    /// True for a stream of events, false for one object.
    pub stream: bool,
    /// Request that is planned for an engine.
    pub engine_request: EngineRequest,
    /// Body of that request, in the form of its API.
    pub body: Bytes,
    /// Maximum number of output tokens that the client asked for.
    pub limit: Option<u64>,
    /// Stop sequences that the client asked for.
    pub stop_sequences: Vec<String>,
    /// Share of the thinking that the client sees.
    pub display: ThinkingDisplay,
    /// Tools by which calls are found in the text of the engine's own route; `None` if none are looked for. A chat
    /// request has its own.
    pub(crate) offered_tools: Option<Box<OfferedTools>>,
    /// Ids of the calls in the history, which no new call may have.
    pub used_ids: HashSet<String>,
    /// Parts of the request that are left out and change its meaning, such as `tools[3].web_search_20250305`.
    pub dropped: Vec<String>,
    /// Names of the rules by which parts were left out, for the log and the metrics.
    pub adapted: Vec<&'static str>,
}

impl MessagesRequest {
    /// Fields that this API names and chat does not, so that the chat request may have them.
    pub(crate) const NAMED: &[&str] = &["top_k"];

    /// Parses and checks a request, and converts it.
    ///
    /// # Errors
    /// Fails on the first invalid field; the message begins with the field's path.
    pub fn read(body: &Bytes, context: &MessagesContext<'_>) -> Result<Self, Failure> {
        Self::parse(body, context).map_err(with_path)
    }

    fn parse(body: &Bytes, context: &MessagesContext<'_>) -> Result<Self, Failure> {
        let MessagesContext { rules, options, .. } = *context;
        let from = Checked::of(body, KNOWN, rules)?;
        refuse_thread(&from)?;
        refuse_compaction(&from)?;
        if context.mode == MessagesMode::Native {
            return native::read(body, &from, context);
        }
        refuse_moved(&from)?;
        if let Some(key) = from
            .unknown()
            .next()
            .filter(|_| options.request_unknown == RequestUnknown::Reject)
        {
            return Err(refusals::unknown(key));
        }
        let mut dropped = Vec::new();
        let conversation = MessagesConversation::read(&from, context, &mut dropped)?;
        let tools = MessagesTools::read(&from, options, &conversation.tool_changes, &mut dropped)?;
        let settings = MessagesSettings::read(&from, context, conversation.effort.as_deref())?;
        dropped.extend(
            DROPPED_AND_NAMED
                .iter()
                .filter(|key| from.get(key).is_some())
                .map(|key| (*key).to_owned()),
        );
        let servers = from.list("mcp_servers", 1000)?.unwrap_or_default();
        dropped.extend((0..servers.len()).map(|at| format!("mcp_servers[{at}]")));
        let chat = write_chat(&from, context, &conversation, &tools, &settings)?;
        let has_place = |(key, _): &&(String, String)| !NO_PLACE.contains(&key.as_str());
        let defaults: Vec<_> = context.defaults.iter().filter(has_place).cloned().collect();
        let chat = fields::with_defaults(chat, &defaults);
        let mut request = ChatRequest::of_generated(&chat, rules, Self::NAMED)?;
        if context.purpose != Purpose::Count {
            request.reasoning_budget = settings
                .budget
                .and_then(|budget| u32::try_from(budget).ok());
        }
        Ok(Self {
            model: request.model.clone(),
            stream: request.stream,
            engine_request: EngineRequest::Chat(Box::new(request)),
            body: chat,
            limit: settings.limit,
            stop_sequences: settings.stop_sequences,
            display: display(settings.display, options.messages_thinking),
            offered_tools: None,
            used_ids: conversation.used_ids,
            dropped,
            adapted: conversation.adapted,
        })
    }

    /// Returns the beginning of the conversation, which is equal in all its turns.
    pub fn beginning(&self) -> Vec<&str> {
        match &self.engine_request {
            EngineRequest::Chat(chat) => chat.leading_messages(&self.body),
            EngineRequest::Native { beginning } => beginning.iter().map(String::as_str).collect(),
        }
    }

    /// Returns the texts of the prompt; of a request on the engine's own route, its beginning alone.
    pub fn prompt(&self) -> Vec<&str> {
        match &self.engine_request {
            EngineRequest::Chat(chat) => chat.prompt(&self.body),
            EngineRequest::Native { .. } => self.beginning(),
        }
    }
}

/// Returns the share of the thinking that the client sees: what it asked for, unless the option overrides that. A
/// client that switched thinking off does not expect any.
fn display(requested: ThinkingDisplay, option: MessagesThinking) -> ThinkingDisplay {
    match (requested, option) {
        (ThinkingDisplay::Hidden, _) | (_, MessagesThinking::None) => ThinkingDisplay::Hidden,
        (requested, MessagesThinking::Request) => requested,
        (_, MessagesThinking::Shown) => ThinkingDisplay::Shown,
        (_, MessagesThinking::Omitted) => ThinkingDisplay::Omitted,
    }
}

/// Writes the chat request. Fields that neither API names are copied.
fn write_chat(
    from: &Checked<'_>,
    context: &MessagesContext<'_>,
    conversation: &MessagesConversation<'_>,
    tools: &MessagesTools<'_>,
    settings: &MessagesSettings,
) -> Result<Bytes, Failure> {
    let mut out = BytesMut::with_capacity(from.text.len() + 1024);
    out.put_u8(b'{');
    let named = from.string("model")?;
    let model = context
        .model
        .map(ToOwned::to_owned)
        .or(named)
        .unwrap_or_default();
    // Only a recorded request can lack both.
    let has_model = !model.is_empty() || conversation.is_empty();
    if has_model {
        out.extend_from_slice(b"\"model\":");
        crate::json::write_string(&model, &mut out);
    }
    if !conversation.is_empty() {
        out.extend_from_slice(if has_model {
            b",\"messages\":["
        } else {
            b"\"messages\":["
        });
        conversation.write(&mut out);
        out.put_u8(b']');
    }
    tools.write(&mut out);
    for (key, json) in &settings.members {
        out.extend_from_slice(format!(",\"{key}\":{json}").as_bytes());
    }
    if from.flag("stream")? && context.purpose != Purpose::Count {
        out.extend_from_slice(b",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    }
    for field in from.extras().filter(|field| field.value.get() != "null") {
        out.put_u8(b',');
        crate::json::write_string(&field.key, &mut out);
        out.put_u8(b':');
        out.extend_from_slice(field.value.get().as_bytes());
    }
    out.put_u8(b'}');
    Ok(out.freeze())
}

/// Fails on a request that begins or continues a thread. Its later requests would not hold the whole conversation, and
/// engines keep none. The official libraries then repeat the request without `thread`.
fn refuse_thread(from: &Checked<'_>) -> Result<(), Failure> {
    match from.get("thread").map(|field| field.value.get()) {
        None | Some("null" | "false") => Ok(()),
        Some(_) => {
            let why = "threads are not supported; send the whole conversation in `messages`";
            let mut failure = refuse(Fault::UnsupportedParameter, "thread", why);
            failure.code = Some(THREAD_UNSUPPORTED.into());
            Err(failure)
        }
    }
}

/// Fails on a request for a compaction, whose answer would be a block that no engine writes.
fn refuse_compaction(from: &Checked<'_>) -> Result<(), Failure> {
    match from
        .get("compaction")
        .is_some_and(|field| field.value.get() != "null")
    {
        true => {
            let why = "this is not supported; ask for a summary in a message";
            Err(refuse(Fault::UnsupportedParameter, "compaction", why))
        }
        false => Ok(()),
    }
}

/// Fails on a field of Chat Completions that this API does not have.
fn refuse_moved(from: &Checked<'_>) -> Result<(), Failure> {
    for field in from.extras().filter(|field| field.value.get() != "null") {
        if field.key == "n" && field.value.get() == "1" {
            continue;
        }
        if let Some((key, to)) = MOVED.iter().find(|(key, _)| field.key == *key) {
            let why = format!("this is no parameter of the Messages API; it has {to}");
            return Err(refuse(Fault::UnsupportedParameter, *key, &why));
        }
    }
    Ok(())
}

/// Builds a failure whose message begins with the path of the field at fault.
fn refuse(fault: Fault, path: impl Into<String>, why: &str) -> Failure {
    let path = path.into();
    Failure::from(fault)
        .with_message(format!("{path}: {why}"))
        .with_param(path)
}

/// Returns samewire's own failure with a message that begins with the path of the field at fault, as messages of this
/// API do.
pub(crate) fn with_path(failure: Failure) -> Failure {
    let Some(param) = failure.param.clone().filter(|_| failure.engine.is_none()) else {
        return failure;
    };
    let fronts = [
        (format!("Invalid value for '{param}': "), ""),
        (format!("Unsupported value for '{param}': "), ""),
        (format!("Unsupported parameter: '{param}'; "), ""),
        (
            format!("Missing required parameter: '{param}'"),
            "Field required",
        ),
    ];
    let found = fronts.iter().find_map(|(front, instead)| {
        let rest = failure.message.strip_prefix(front.as_str())?;
        Some(format!("{param}: {instead}{}", rest.trim_end_matches('.')))
    });
    match found {
        Some(message) => failure.with_message(message),
        None if failure.message.contains(&param) => failure,
        None => {
            let message = format!("{param}: {}", failure.message);
            failure.with_message(message)
        }
    }
}

/// Fails if a required field is missing, unless the purpose does not need it.
fn require(from: &Checked<'_>, key: &str, purpose: Purpose) -> Result<(), Failure> {
    match from.get(key) {
        None if purpose != Purpose::Recall => Err(missing(key)),
        _ => Ok(()),
    }
}
