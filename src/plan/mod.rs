//! Planning of upstream requests: derives the engine's request, and how to read its answer, from a client's
//! request and the route it takes.
//!
//! Takes: a [`ChatRequest`], the body, a [`Route`]. Gives: a [`Plan`]. Never: touches a byte that wire-format 2.10
//! does not name.

mod adapt;
mod changed_messages;
mod files;
mod messages;
mod object_edit;
mod parts;
mod record;
mod rules;
mod settings;
mod tools;

use crate::engine::EngineIdentity;
use crate::engine::fallback::{Fallback, Fallbacks};
use crate::engine::rule::{RequestRule, RuleChange, rules_for};
use crate::request::fields::{self, Edits};
use crate::request::messages::{EngineRequest, MessagesMode, MessagesRequest};
use crate::request::responses::{Capabilities, ChatInputs, ResponsesMode, ResponsesRequest};
use crate::request::{
    ChatRequest, EngineBody, MOST_FOR_PROMPT, RETURN_PROMPT_TEXT, RETURN_TOKEN_IDS,
    SKIP_SPECIAL_TOKENS, opens_thinking,
};
use crate::wire::encode::{
    MessageEncoder, MessageReply, NameMeaning, OutputCalls, Reply, Sealing, StopRules, StreamForm,
    ThinkingDisplay,
};
use crate::wire::fault::Failure;
use crate::wire::options::{Harmony, Options, ReasoningField, RequestUnknown};
use crate::wire::tools::Tools;
use crate::wire::{
    Api, EngineFacts, Models, OutputConstraints, Shape, TemplateFacts, TextFormat, Vocabulary,
};
use bytes::Bytes;
use std::cell::RefCell;
use std::sync::Arc;

/// Destination of a request, reduced to the facts that shape the request body and the reading of the answer.
#[derive(Clone, Debug)]
pub struct Route {
    /// Identity (engine, version, front end) of the server behind the upstream.
    pub identity: EngineIdentity,
    /// The options in force for this request.
    pub options: Arc<Options>,
    /// Largest size of one engine event, in bytes.
    pub max_event_bytes: usize,
    /// Model name sent to the engine, where it differs from the client's name.
    pub model_alias: Option<String>,
    /// API in which the engine serves Responses requests.
    pub responses: ResponsesMode,
    /// Route on which the engine answers Messages requests.
    pub messages: MessagesMode,
    /// Model names that the answer may carry besides the one the client used; `None`: any name.
    pub models: Option<Models>,
    /// Vocabulary that decodes Harmony token ids to text.
    pub vocabulary: Option<Arc<Vocabulary>>,
    /// Request forms that this upstream needs because it has refused the usual ones.
    pub fallbacks: Fallbacks,
    /// True if the engine returns reasoning separately from the text.
    pub separates_reasoning: bool,
    /// Facts about the model's chat template.
    pub template: TemplateFacts,
    /// True if the engine has rendered no prompt of the model by itself, and can return one with an answer.
    pub shows_prompt: bool,
}

impl Route {
    /// Returns a route with default settings: model names pass unchanged, and Responses requests use the default
    /// mode.
    pub fn new(
        identity: impl Into<EngineIdentity>,
        options: Arc<Options>,
        max_event_bytes: usize,
    ) -> Self {
        let identity = identity.into();
        Self {
            identity,
            options,
            max_event_bytes,
            model_alias: None,
            responses: ResponsesMode::default(),
            messages: MessagesMode::default(),
            models: None,
            vocabulary: None,
            fallbacks: Fallbacks::default(),
            separates_reasoning: false,
            template: TemplateFacts::UNKNOWN,
            shows_prompt: false,
        }
    }

    /// Returns the engine's capabilities, restricted by this route: token ids are usable only with a vocabulary.
    fn capabilities(&self) -> Capabilities {
        let takes = self.identity.engine.takes;
        let token_ids = takes.token_ids && self.vocabulary.is_some();
        Capabilities {
            token_ids,
            facts: self.facts(),
            ..takes
        }
    }

    /// Returns the facts about the engine's treatment of the model.
    pub fn facts(&self) -> EngineFacts {
        let leaves_calls = self.fallbacks.has(Fallback::CallsInText);
        let takes = self.identity.engine.takes.facts;
        EngineFacts {
            tells_reasoning: self.separates_reasoning || takes.tells_reasoning,
            hides_reasoning: false,
            leaves_calls,
            effort_thinks: self.identity.effort_thinks(),
            shows_prompt: self.shows_prompt && !self.fallbacks.has(Fallback::PromptNotRequested),
            refuses_special: takes.refuses_special,
            template: self.template,
        }
    }
}

/// Request to an engine: API, path and body, together with the shape that tells the rewriter how to read the
/// answer.
#[derive(Clone, Debug)]
pub struct Plan {
    /// API of the upstream request.
    pub api: Api,
    /// URL path of the API, a constant.
    pub path: &'static str,
    /// Request body as the engine receives it.
    pub body: EngineBody,
    /// Bodies of the requests for the second and later choices, where the engine returns a single choice per
    /// request.
    pub others: Vec<EngineBody>,
    /// Rewriter settings for this answer: client API, quirks, limits, script.
    pub shape: Shape,
    /// Fallbacks that changed the form of this request.
    pub fallbacks: Fallbacks,
    /// True if the engine is unknown and may return fewer choices than requested, while each missing choice can be
    /// requested separately.
    pub may_return_fewer: bool,
}

/// Request body adapted to one engine, with the rules that changed it, so that the changes can be logged and
/// explained.
#[derive(Clone, Debug, Default)]
pub struct AdaptedBody {
    /// Body as the engine receives it.
    pub body: EngineBody,
    /// Request rules that changed the body.
    pub rules: Vec<&'static RequestRule>,
}

impl AdaptedBody {
    /// Returns true if the body requests only the first of several choices, so that each other choice needs its
    /// own request.
    pub fn fans_out(&self) -> bool {
        self.rules
            .iter()
            .any(|rule| matches!(rule.change, RuleChange::FanOut { .. }))
    }

    /// Returns the fallbacks among the applied rules.
    pub fn fallbacks(&self) -> Fallbacks {
        self.rules
            .iter()
            .filter_map(|rule| Fallback::of_rule(rule))
            .collect()
    }

    /// Returns the shape of the answer to this body: `shape`, that of the client's request, with the changes of the
    /// request that the answer shows.
    #[must_use]
    pub fn shape(&self, shape: Shape) -> Shape {
        let is_continued = self
            .rules
            .iter()
            .any(|rule| matches!(rule.change, RuleChange::ContinueMessage { .. }));
        let continues_text =
            shape.continues_text || is_continued && !opens_thinking(&self.body.joined());
        Shape {
            adapted: self.names(),
            continues_text,
            ..shape
        }
    }

    /// Returns the names of the applied rules, as logs show them.
    fn names(&self) -> Vec<&'static str> {
        self.rules.iter().map(|rule| rule.name).collect()
    }
}

/// Plans the upstream request for a Chat Completions or Completions request: body, path, fan-out and answer shape.
///
/// # Errors
/// Fails on a field that the API does not name, where unknown fields are refused, and on a value that this engine
/// does not support.
pub fn plan(request: &ChatRequest, body: &Bytes, route: &Route) -> Result<Plan, Failure> {
    request.check_unknown(route.options.request_unknown)?;
    let script = script(request, route);
    let adapted = upstream_body(request, body, route, script.as_deref())?;
    let shape = adapted.shape(shape_of(request, route, script));
    let others = if adapted.fans_out() {
        others(request, body, &adapted, route)?
    } else {
        Vec::new()
    };
    let fallbacks = adapted.fallbacks();
    let is_unknown = !route.identity.engine.is_known();
    let may_lack = is_unknown
        && !adapted.fans_out()
        && request.choice.is_none()
        && rules::can_fan_out(request, body);
    Ok(Plan {
        api: request.api,
        path: path(request.api),
        body: adapted.body,
        others,
        shape,
        fallbacks,
        may_return_fewer: may_lack,
    })
}

/// Builds the bodies for all choices but the first. They are identical unless the client sends a seed, which then
/// differs for each choice.
fn others(
    request: &ChatRequest,
    body: &Bytes,
    first: &AdaptedBody,
    route: &Route,
) -> Result<Vec<EngineBody>, Failure> {
    let text = body
        .get(request.places.offset..)
        .and_then(|text| simdutf8::basic::from_utf8(text).ok())
        .unwrap_or("");
    let is_seeded = request
        .places
        .members
        .iter()
        .any(|member| member.key(text) == "seed");
    let other = |choice| match is_seeded {
        true => Ok(adapted(&request.one_of_several(choice), body, route)?.body),
        false => Ok(first.body.clone()),
    };
    (1..request.choices).map(other).collect()
}

/// Returns the adapted body alone, without the rest of the plan; used to explain what samewire changes in a
/// request.
///
/// # Errors
/// Fails under the same conditions as [`plan`].
pub fn adapted(request: &ChatRequest, body: &Bytes, route: &Route) -> Result<AdaptedBody, Failure> {
    request.check_unknown(route.options.request_unknown)?;
    upstream_body(request, body, route, script(request, route).as_deref())
}

fn path(api: Api) -> &'static str {
    match api {
        Api::Chat => "/v1/chat/completions",
        Api::Completions => "/v1/completions",
        Api::Responses => "/v1/responses",
        Api::Messages => "/v1/messages",
    }
}

/// Returns the shape alone: the settings with which the rewriter reads the answer to `request`.
pub fn shape(request: &ChatRequest, route: &Route) -> Shape {
    shape_of(request, route, script(request, route))
}

fn shape_of(request: &ChatRequest, route: &Route, script: Option<Arc<TextFormat>>) -> Shape {
    let plain = Shape::new(request.api, request.stream, route.options.clone());
    Shape {
        model: request.model.clone(),
        choices: request.choices,
        include_usage: request.include_usage || route.options.force_usage,
        continuous_usage: request.continuous_usage,
        logprobs: request.logprobs,
        extensions: request.extensions,
        include_obfuscation: request.include_obfuscation,
        limit: request.limit,
        forced_function: request.forced_function.clone(),
        one_call: request.legacy_functions
            || request.one_call
                && rules_for(&route.identity)
                    .any(|rule| matches!(rule.change, RuleChange::OneCall)),
        is_constrained: request.constrained,
        continues_text: request.continues_text && !request.is_gpt_oss(),
        thinking_is_off: request.reasons == Some(false) && !request.is_gpt_oss(),
        functions: Tools::names_in(request.offer().tools),
        custom_tools: request.custom_tools.clone(),
        legacy_functions: request.legacy_functions,
        max_event_bytes: route.max_event_bytes,
        quirks: route.identity.engine.quirks,
        models: route.models.clone(),
        script: script.or_else(|| cut_header(request)),
        hide_reasoning: request.hides_reasoning || plain.hide_reasoning,
        ..plain
    }
}

/// Returns the script for an answer of gpt-oss with a limit of two tokens: it ends within its header, which vLLM's parser
/// leaves in the text (engines A.1.5).
fn cut_header(request: &ChatRequest) -> Option<Arc<TextFormat>> {
    let is_cut = request.is_gpt_oss() && request.limit.is_some_and(|limit| limit <= 2);
    is_cut.then(|| Arc::new(TextFormat::gpt_oss()))
}

/// Inputs that decide the script of a request without tools.
struct ScriptInputs {
    options: Arc<Options>,
    model: String,
    offer: OutputConstraints<'static>,
    facts: EngineFacts,
}

/// Returns the script that parses reasoning and calls out of the text, or `None` if the engine leaves none there.
fn script(request: &ChatRequest, route: &Route) -> Option<Arc<TextFormat>> {
    thread_local! {
        /// Script of the last request without tools. The next one is mostly alike.
        static LAST: RefCell<Option<(ScriptInputs, Option<Arc<TextFormat>>)>> = const { RefCell::new(None) };
    }
    // vLLM parses reasoning and omits it, or the options hide it from the client: either way none is in the text.
    let hides = request.hides_reasoning || route.options.reasoning_field == ReasoningField::None;
    let facts = EngineFacts {
        hides_reasoning: hides,
        ..route.facts()
    };
    let model = route.model_alias.as_ref().unwrap_or(&request.model);
    let (options, offer) = (&route.options, request.offer());
    if !offer.tools.is_empty() || options.harmony == Harmony::Tokens {
        let script = TextFormat::of(options, model, offer, facts)?;
        return Some(Arc::new(
            script.with_tokens(options, route.vocabulary.as_ref()),
        ));
    }
    let offer = OutputConstraints { tools: "", ..offer };
    LAST.with_borrow_mut(|last| {
        let is_alike = |of: &ScriptInputs| {
            Arc::ptr_eq(&of.options, options)
                && of.model == *model
                && (of.offer, of.facts) == (offer, facts)
        };
        if let Some((_, script)) = last.as_ref().filter(|(of, _)| is_alike(of)) {
            return script.clone();
        }
        let script = TextFormat::of(options, model, offer, facts).map(Arc::new);
        let of = ScriptInputs {
            options: Arc::clone(options),
            model: model.clone(),
            offer,
            facts,
        };
        *last = Some((of, script.clone()));
        script
    })
}

/// Adds the fields that make the engine return special tokens, token ids or the prompt, which the script needs to parse
/// the text.
fn request_text_fields(
    request: &ChatRequest,
    text: &str,
    route: &Route,
    script: &TextFormat,
    edits: &mut Edits,
) {
    let passes = route.options.request_unknown == RequestUnknown::Pass;
    if script.needs_special_tokens() {
        request.append_unless_set((SKIP_SPECIAL_TOKENS, "false"), text, passes, edits);
    }
    if route.capabilities().token_ids && route.options.harmony == Harmony::Tokens {
        request.append_unless_set((RETURN_TOKEN_IDS, "true"), text, passes, edits);
    }
    if script.wants_prompt() && text.len() <= MOST_FOR_PROMPT {
        request.append_unless_set((RETURN_PROMPT_TEXT, "true"), text, passes, edits);
    }
}

/// Builds the engine's body for a Responses request. A chat body is generated in the API's form first, then
/// adapted by the engine's rules like any other chat request.
///
/// # Errors
/// Fails like [`ResponsesRequest::chat`], and on a value that this engine does not support.
pub fn response_body(
    request: &ResponsesRequest,
    inputs: &ChatInputs<'_>,
    route: &Route,
) -> Result<AdaptedBody, Failure> {
    let takes = &route.capabilities();
    if route.responses == ResponsesMode::Native {
        return Ok(AdaptedBody {
            body: request.native(inputs, takes, &route.options)?.into(),
            rules: Vec::new(),
        });
    }
    let body = request.chat(inputs, takes, &route.options)?;
    let is_plain = rules_for(&route.identity).next().is_none() && route.fallbacks.is_empty();
    if is_plain && !rules::merges_system(route) {
        return Ok(AdaptedBody {
            body: body.into(),
            rules: Vec::new(),
        });
    }
    let text = simdutf8::basic::from_utf8(&body).unwrap_or_default();
    let chat = ChatRequest::read_generated(text, request.rules())?;
    let script = request.script(route.model_alias.as_deref(), takes, &route.options);
    let (edits, rules) = rules::adapted(&chat, text, route, true, script.as_ref())?;
    Ok(changed_messages::changed(
        AdaptedBody {
            body: edits.apply_in_place(&body)?,
            rules,
        },
        route.fallbacks,
    ))
}

/// Returns the upstream path, the answer's shape and the reply settings (echoed request fields, tool names,
/// reasoning form) for a Responses request.
pub fn response(request: &ResponsesRequest, route: &Route) -> (&'static str, Shape, Reply) {
    // `responses_reasoning` decides where reasoning goes; `reasoning_field` must not remove it before.
    let options = Options {
        reasoning_field: ReasoningField::ReasoningContent,
        ..(*route.options).clone()
    };
    let way = route.responses;
    let api = if way == ResponsesMode::Native {
        Api::Responses
    } else {
        Api::Chat
    };
    let route = Route {
        options: Arc::new(options),
        ..route.clone()
    };
    let script = request.script(
        route.model_alias.as_deref(),
        &route.capabilities(),
        &route.options,
    );
    let script = script
        .map(|script| Arc::new(script.with_tokens(&route.options, route.vocabulary.as_ref())));
    let shape = shape_of(&request.as_chat(), &route, script);
    let mut shape = Shape {
        client: api,
        upstream: api,
        include_usage: true,
        ..shape
    };
    let mut calls = OutputCalls::default();
    for (name, called) in request.tools.iter() {
        if way == ResponsesMode::Chat {
            shape.functions.push(name.to_owned());
        }
        let (namespace, own) = (called.namespace.clone(), called.name.clone());
        calls.keep(
            name.to_owned(),
            NameMeaning {
                namespace,
                name: own,
                kind: called.kind,
            },
        );
    }
    let reply = Reply {
        echo: request.echo(),
        calls,
        reasoning: request.reasoning_place(route.options.responses_reasoning),
        dialect: route.options.responses_dialect,
        logprobs: request.settings.include.output_text_logprobs,
        sealing: Sealing::default(),
        form: StreamForm::default(),
        stream: request.stream,
        model: request.model.clone(),
    };
    (path(api), shape, reply)
}

/// Plans the chat request for a Messages request, and returns the parameters of the message that its answer becomes.
/// The caller adds the function that signs thinking.
///
/// # Errors
/// Fails like [`plan`].
pub fn message(request: &MessagesRequest, route: &Route) -> Result<(Plan, MessageReply), Failure> {
    let route = message_route(route);
    let plan = match &request.engine_request {
        EngineRequest::Chat(chat) => plan(chat, &request.body, &route)?,
        EngineRequest::Native { .. } => native_message(request, &route)?,
    };
    let shape = Shape {
        include_usage: true,
        hide_reasoning: request.display == ThinkingDisplay::Hidden,
        adapted: plan
            .shape
            .adapted
            .iter()
            .chain(&request.adapted)
            .copied()
            .collect(),
        ..plan.shape
    };
    let reply = MessageReply {
        model: request.model.clone(),
        stream: request.stream,
        display: request.display,
        sign: None,
        stop: StopRules {
            limit: request.limit,
            sequences: Some(request.stop_sequences.clone()),
        },
        used_ids: request.used_ids.clone(),
    };
    Ok((Plan { shape, ..plan }, reply))
}

/// Plans a request on the engine's own Messages route. Of the engine's rules only the model's name applies.
fn native_message(request: &MessagesRequest, route: &Route) -> Result<Plan, Failure> {
    let chat = ChatRequest::of_message(request);
    Ok(Plan {
        api: Api::Messages,
        path: path(Api::Messages),
        body: native_body(request, route).into(),
        others: Vec::new(),
        shape: shape_of(&chat, route, script(&chat, route)),
        fallbacks: Fallbacks::default(),
        may_return_fewer: false,
    })
}

fn native_body(request: &MessagesRequest, route: &Route) -> Bytes {
    let Some(name) = &route.model_alias else {
        return request.body.clone();
    };
    let text = simdutf8::basic::from_utf8(&request.body).unwrap_or_default();
    let mut edits = Edits::default();
    edits.name_model(text, fields::member_place(text, "model"), name);
    edits.apply(&request.body)
}

/// Returns the body alone of the request that answers a Messages request.
///
/// # Errors
/// Fails like [`plan`].
pub fn message_body(request: &MessagesRequest, route: &Route) -> Result<AdaptedBody, Failure> {
    match &request.engine_request {
        EngineRequest::Chat(chat) => adapted(chat, &request.body, &message_route(route)),
        EngineRequest::Native { .. } => Ok(AdaptedBody {
            body: native_body(request, route).into(),
            rules: Vec::new(),
        }),
    }
}

/// Returns the route with the options that an answer needs to become a message. `messages_thinking` decides on
/// thinking; `reasoning_field` must not remove it before.
fn message_route(route: &Route) -> Route {
    let options = Options {
        reasoning_field: ReasoningField::ReasoningContent,
        ..MessageEncoder::options(&route.options)
    };
    Route {
        options: Arc::new(options),
        ..route.clone()
    }
}

fn upstream_body(
    request: &ChatRequest,
    body: &Bytes,
    route: &Route,
    script: Option<&TextFormat>,
) -> Result<AdaptedBody, Failure> {
    let body = body.slice(request.places.offset.min(body.len())..);
    let Ok(text) = simdutf8::basic::from_utf8(&body) else {
        return Ok(AdaptedBody {
            body: body.into(),
            rules: Vec::new(),
        });
    };
    let mut edits = request.places.media.clone();
    let refuses_options =
        || rules_for(&route.identity).any(|rule| rule.change == RuleChange::NoStreamOptions);
    if request.stream && !refuses_options() {
        request.stream_edits(text, &mut edits);
    }
    let named = request.overrides_model.then_some(&request.model);
    if let Some(name) = route.model_alias.as_ref().or(named) {
        edits.name_model(text, request.places.model.clone(), name);
    }
    if let Some(script) = script.filter(|_| request.api == Api::Chat) {
        request_text_fields(request, text, route, script, &mut edits);
    }
    let (changes, rules) = rules::adapted(request, text, route, false, script)?;
    edits.extend(changes);
    let adapted = AdaptedBody {
        body: edits.apply_in_place(&body)?,
        rules,
    };
    Ok(if request.api == Api::Chat {
        changed_messages::changed(adapted, route.fallbacks)
    } else {
        adapted
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::named;
    use crate::request::{Caps, Rules};
    use crate::wire::OutputConstraints;

    fn sent(engine: &str, options: Options, body: &'static str) -> String {
        let body = Bytes::from_static(body.as_bytes());
        let request = ChatRequest::recall(Api::Chat, &body).unwrap();
        let engine = named(engine).unwrap();
        let route = Route::new(engine, Arc::new(options), 1 << 20);
        String::from_utf8(
            plan(&request, &body, &route)
                .unwrap()
                .body
                .joined()
                .to_vec(),
        )
        .unwrap()
    }

    /// Checks the fields added for engines without parsers, so that samewire can parse reasoning and calls from
    /// the text.
    #[test]
    fn engines_without_parsers_are_asked_for_the_text() {
        let parser = |name: &str| Options {
            parser: name.to_owned().try_into().unwrap(),
            ..Options::default()
        };
        let tools = r#"{"tools":[{"function":{"name":"f"}}]}"#;
        let required = r#"{"tools":[{"function":{"name":"f"}}],"tool_choice":"required"}"#;
        for (engine, options, body, expected) in [
            ("vllm", parser("hermes"), "{\"n\":1}", "{\"n\":1}"),
            (
                "vllm",
                parser("hermes"),
                tools,
                r#"{"tools":[{"function":{"name":"f"}}],"tool_choice":"none"}"#,
            ),
            (
                "vllm",
                parser("hermes"),
                r#"{"tool_choice": "auto","tools":[{"function":{"name":"f"}}]}"#,
                r#"{"tool_choice": "none","tools":[{"function":{"name":"f"}}]}"#,
            ),
            ("vllm", parser("hermes"), required, required),
            (
                "vllm",
                parser("hermes"),
                r#"{"tool_choice":null,"tools":[{"function":{"name":"f"}}]}"#,
                r#"{"tools":[{"function":{"name":"f"}}],"tool_choice":"none"}"#,
            ),
            (
                "vllm",
                parser("hermes"),
                r#"{"tools":[{"function":{"name":"f"}},{"function":{"name":"g"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"function":{"name":"g"}}]}}}"#,
                r#"{"tools":[{"function":{"name":"g"}}],"tool_choice":"none"}"#,
            ),
            (
                "vllm",
                parser("hermes"),
                r#"{"functions":[{"name":"f"}],"n":1}"#,
                r#"{"n":1,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none"}"#,
            ),
            (
                "vllm",
                parser("hermes"),
                r#"{"tools":[{"custom":{"name":"c"}}],"tool_choice":"auto"}"#,
                r#"{"tools":[{"type":"function","function":{"name":"c","parameters":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}}}],"tool_choice":"none"}"#,
            ),
            // The client states with `function_call` that nothing, or this function, is called.
            (
                "vllm",
                parser("hermes"),
                r#"{"functions":[{"name":"f"}],"function_call":{"name":"f"}}"#,
                r#"{"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}}"#,
            ),
            (
                "vllm",
                parser("hermes"),
                r#"{"n":1,"functions":[{"name":"f"}],"function_call":"none"}"#,
                r#"{"n":1}"#,
            ),
            ("sglang", parser("hermes"), tools, tools),
            // The options do not state that the engine lacks a parser.
            ("vllm", parser("auto"), tools, tools),
            ("sglang", parser("kimi_k2"), "{\"n\":1}", "{\"n\":1}"),
            (
                "sglang",
                parser("kimi_k2"),
                tools,
                r#"{"tools":[{"function":{"name":"f"}}],"skip_special_tokens":false}"#,
            ),
            (
                "sglang",
                parser("mistral"),
                "{\"n\":1}",
                r#"{"n":1,"skip_special_tokens":false}"#,
            ),
        ] {
            assert_eq!(sent(engine, options, body), expected);
        }
    }

    /// Checks where special tokens are requested though only the model's name tells its family.
    #[test]
    fn special_tokens_are_requested_where_they_are_accepted() {
        for (engine, model, is_requested) in [
            ("vllm", "google/gemma-4-31b", true),
            ("sglang", "google/gemma-4-31b", true),
            // These may refuse the field.
            ("generic", "google/gemma-4-31b", false),
            ("vllm", "mistralai/Magistral-Small", false),
            ("sglang", "mistralai/Magistral-Small", true),
            // The engine keeps them by itself.
            ("sglang", "openai/gpt-oss-20b", false),
            ("sglang", "moonshotai/Kimi-K2-Instruct", false),
            ("sglang", "m", false),
        ] {
            let body =
                format!(r#"{{"model":"{model}","tools":[{{"function":{{"name":"f"}}}}]}}"#).leak();
            let sent = sent(engine, Options::default(), body);
            assert_eq!(
                sent.contains(r#","skip_special_tokens":false}"#),
                is_requested,
                "{engine} {model}"
            );
        }
    }

    #[test]
    fn tokens_are_asked_for_where_they_are_understood() {
        let both = r#"{"n":1,"skip_special_tokens":false,"return_token_ids":true}"#;
        let text = r#"{"n":1,"skip_special_tokens":false}"#;
        let vocabulary = Arc::new(Vocabulary::read("IQ== 0").unwrap());
        for (engine, vocabulary, expected) in [
            ("vllm", Some(&vocabulary), both),
            ("vllm", None, text),
            ("sglang", Some(&vocabulary), text),
        ] {
            let body = Bytes::from_static(b"{\"n\":1}");
            let request = ChatRequest::recall(Api::Chat, &body).unwrap();
            let options = Arc::new(Options {
                harmony: Harmony::Tokens,
                ..Options::default()
            });
            let route = Route::new(named(engine).unwrap(), options, 1 << 20);
            let route = Route {
                vocabulary: vocabulary.cloned(),
                ..route
            };
            assert_eq!(
                plan(&request, &body, &route).unwrap().body.joined(),
                expected
            );
        }
    }

    #[test]
    fn only_the_named_patches_are_made() {
        let plain = Options::default;
        let harmony = || Options {
            harmony: Harmony::Text,
            ..plain()
        };
        for (engine, options, body, expected) in [
            (
                "auto",
                plain(),
                "{ \"n\" :1,  \"x\": 1.50 }",
                "{ \"n\" :1,  \"x\": 1.50 }",
            ),
            ("auto", plain(), "\u{feff}{\"n\":1}", "{\"n\":1}"),
            (
                "auto",
                plain(),
                r#"{"stream":true}"#,
                r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
            ),
            (
                "auto",
                plain(),
                r#"{"stream":true,"stream_options":{}}"#,
                r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
            ),
            (
                "auto",
                plain(),
                r#"{"stream":true,"stream_options":{ "include_usage": false , "include_obfuscation":true}, "a":1}"#,
                r#"{"stream":true,"stream_options":{ "include_usage": true}, "a":1}"#,
            ),
            (
                "auto",
                plain(),
                r#"{"stream":true,"stream_options":{"include_obfuscation":true}}"#,
                r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
            ),
            (
                "auto",
                plain(),
                r#"{"stream":true,"stream_options":{"include_obfuscation":true,"x":1}}"#,
                r#"{"stream":true,"stream_options":{"include_usage":true,"x":1}}"#,
            ),
            (
                "vllm",
                plain(),
                r#"{"messages":[{"role":"assistant","reasoning_content":"a","content":null},{"role":"user","content":"\"reasoning_content\""}]}"#,
                r#"{"messages":[{"role":"assistant","reasoning":"a","content":null},{"role":"user","content":"\"reasoning_content\""}]}"#,
            ),
            (
                "sglang",
                plain(),
                r#"{"messages":[{"role":"assistant","reasoning":"a","reasoning_content":"a"}]}"#,
                r#"{"messages":[{"role":"assistant","reasoning_content":"a"}]}"#,
            ),
            (
                "generic",
                Options {
                    request_unknown: RequestUnknown::Drop,
                    ..plain()
                },
                r#"{"top_k":5,"n":1,"min_p":0.1,"zz":{}}"#,
                r#"{"n":1}"#,
            ),
            (
                "vllm",
                harmony(),
                r#"{"n":1}"#,
                r#"{"n":1,"skip_special_tokens":false}"#,
            ),
            ("vllm", harmony(), "{}", r#"{"skip_special_tokens":false}"#),
            (
                "generic",
                harmony(),
                r#"{"stream":true}"#,
                r#"{"stream":true,"stream_options":{"include_usage":true},"skip_special_tokens":false}"#,
            ),
            (
                "sglang",
                harmony(),
                r#"{"skip_special_tokens":true}"#,
                r#"{"skip_special_tokens":true}"#,
            ),
            (
                "sglang",
                Options {
                    request_unknown: RequestUnknown::Drop,
                    ..harmony()
                },
                r#"{"skip_special_tokens":true,"n":1}"#,
                r#"{"n":1,"skip_special_tokens":false}"#,
            ),
        ] {
            assert_eq!(sent(engine, options, body), expected);
        }
    }

    fn route(to: &str, options: Options) -> Route {
        Route::new(named(to).unwrap(), Arc::new(options), 1 << 20)
    }

    fn planned(api: Api, body: &str, route: &Route) -> Plan {
        let body = Bytes::from(body.to_owned());
        plan(&ChatRequest::recall(api, &body).unwrap(), &body, route).unwrap()
    }

    fn text(body: &EngineBody) -> String {
        String::from_utf8(body.joined().to_vec()).unwrap()
    }

    #[test]
    fn the_model_and_the_usage_option_are_written_in_their_place() {
        for (api, body, path, expected) in [
            (
                Api::Chat,
                r#"{"model":"a","stream":true,"stream_options":{"include_usage":false},"n":1}"#,
                "/v1/chat/completions",
                r#"{"model":"b","stream":true,"stream_options":{"include_usage":true},"n":1}"#,
            ),
            (
                Api::Completions,
                r#"{"model":"a","stream":true,"stream_options":{"include_usage":false},"prompt":"p"}"#,
                "/v1/completions",
                r#"{"model":"b","stream":true,"stream_options":{"include_usage":true},"prompt":"p"}"#,
            ),
            (
                Api::Completions,
                r#"{"prompt":"p"}"#,
                "/v1/completions",
                r#"{"model":"b","prompt":"p"}"#,
            ),
        ] {
            let route = Route {
                model_alias: Some("b".to_owned()),
                ..route("generic", Options::default())
            };
            let plan = planned(api, body, &route);
            assert_eq!((text(&plan.body), plan.path), (expected.to_owned(), path));
        }
    }

    #[test]
    fn fault_c34_the_engine_reads_the_address_that_was_judged() {
        let body = Bytes::from_static(
            br#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"HTTPS://EXAMPLE.com"}}]}]}"#,
        );
        let request = ChatRequest::read_for(Api::Chat, &body, None, &Rules::default()).unwrap();
        assert_eq!(
            text(
                &plan(&request, &body, &route("generic", Options::default()))
                    .unwrap()
                    .body
            ),
            r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.com/"}}]}]}"#
        );
    }

    /// An upstream is remembered to need a form only if the form changed the request.
    #[test]
    fn a_plan_names_the_fallbacks_that_changed_it() {
        let all = [Fallback::SystemMerged, Fallback::FanOut]
            .into_iter()
            .collect();
        for (body, used) in [
            (r#"{"messages":[{"role":"user","content":"a"}]}"#, &[][..]),
            (
                r#"{"messages":[{"role":"user","content":"a"},{"role":"system","content":"b"}]}"#,
                &[Fallback::SystemMerged],
            ),
            (
                r#"{"messages":[{"role":"user","content":"a"}],"n":2}"#,
                &[Fallback::FanOut],
            ),
        ] {
            for (known, used) in [(all, used), (Fallbacks::default(), &[])] {
                let route = Route {
                    fallbacks: known,
                    ..route("generic", Options::default())
                };
                let plan = planned(Api::Chat, body, &route);
                assert_eq!(plan.fallbacks, used.iter().copied().collect(), "{body}");
            }
        }
    }

    #[test]
    fn only_an_unknown_engine_may_return_fewer_choices_than_asked() {
        let learned = || Fallbacks::default().with(Fallback::FanOut);
        for (to, known, body, may) in [
            ("auto", Fallbacks::default(), r#"{"n":2}"#, true),
            ("auto", Fallbacks::default(), r#"{"n":1}"#, false),
            ("auto", Fallbacks::default(), "{}", false),
            (
                "auto",
                Fallbacks::default(),
                r#"{"n":3,"best_of":4}"#,
                false,
            ),
            ("auto", learned(), r#"{"n":2}"#, false),
            ("vllm", Fallbacks::default(), r#"{"n":2}"#, false),
            ("generic", Fallbacks::default(), r#"{"n":2}"#, false),
        ] {
            let route = Route {
                fallbacks: known,
                ..route(to, Options::default())
            };
            assert_eq!(
                planned(Api::Chat, body, &route).may_return_fewer,
                may,
                "{to} {body}"
            );
        }
        let body = Bytes::from_static(br#"{"n":2}"#);
        let one = ChatRequest::recall(Api::Chat, &body)
            .unwrap()
            .one_of_several(1);
        assert!(
            !plan(&one, &body, &route("auto", Options::default()))
                .unwrap()
                .may_return_fewer
        );
    }

    /// Reasoning that the engine separates, or that nobody is to see, is not looked for in the text.
    #[test]
    fn the_format_of_the_text_knows_who_separates_reasoning() {
        const MODEL: &str = "thinking-2507";
        let auto = |reasoning_field| Options {
            parser: "auto".to_owned().try_into().unwrap(),
            reasoning_field,
            ..Options::default()
        };
        let expected = |options: &Options, tells_reasoning| {
            let facts = EngineFacts {
                tells_reasoning,
                leaves_calls: false,
                ..EngineFacts::default()
            };
            format!(
                "{:?}",
                TextFormat::of(options, MODEL, OutputConstraints::default(), facts)
            )
        };
        let options = auto(ReasoningField::Both);
        assert_ne!(expected(&options, true), expected(&options, false));
        for (field, separates, member, tells) in [
            (ReasoningField::Both, false, "", false),
            (ReasoningField::Both, true, "", true),
            (
                ReasoningField::Both,
                false,
                r#","include_reasoning":false"#,
                true,
            ),
            (ReasoningField::None, false, "", true),
        ] {
            let options = auto(field);
            let route = Route {
                separates_reasoning: separates,
                ..route("generic", options.clone())
            };
            let plan = planned(
                Api::Chat,
                &format!(r#"{{"model":"{MODEL}"{member}}}"#),
                &route,
            );
            assert_eq!(
                format!("{:?}", plan.shape.script),
                expected(&options, tells),
                "{field:?} {member}"
            );
        }
        // In the Responses API, a separate option says where reasoning goes: it is not hidden.
        for (field, separates) in [(ReasoningField::Both, true), (ReasoningField::None, false)] {
            let options = auto(field);
            let route = Route {
                separates_reasoning: separates,
                ..route("generic", options.clone())
            };
            let body = Bytes::from(format!(r#"{{"model":"{MODEL}","input":"a"}}"#));
            let request = ResponsesRequest::recall(&body, &options, ResponsesMode::Chat).unwrap();
            let (path, shape, _) = response(&request, &route);
            assert_eq!(
                format!("{:?}", shape.script),
                expected(&options, separates),
                "{field:?}"
            );
            assert_eq!(
                (path, shape.hide_reasoning),
                ("/v1/chat/completions", false),
                "{field:?}"
            );
            let native = Route {
                responses: ResponsesMode::Native,
                ..route
            };
            assert_eq!(response(&request, &native).0, "/v1/responses");
        }
    }

    /// The generated request is under the operator's rules, but for limits that the client's own request has kept.
    #[test]
    fn a_generated_request_is_under_the_rules_of_the_one_it_came_from() {
        let caps = Caps {
            messages: 1,
            tools: 1,
            ..Caps::PLAIN
        };
        let rules = Arc::new(Rules {
            allowed: vec!["rid".to_owned()],
            caps,
            ..Rules::default()
        });
        let route = route("vllm", Options::default());
        let body = Bytes::from_static(
            br#"{"model":"m","instructions":"i","input":"a","tools":[{"type":"function","name":"f"}],"rid":"x"}"#,
        );
        let mut request =
            ResponsesRequest::read_for(&body, &route.options, ResponsesMode::Chat, None, &rules)
                .unwrap();
        let earlier = r#"{"type":"additional_tools","tools":[{"type":"function","name":"g"}]}"#;
        request.add_earlier_tools(std::iter::once(earlier)).unwrap();
        assert_eq!(
            text(
                &response_body(&request, &ChatInputs::default(), &route)
                    .unwrap()
                    .body
            ),
            r#"{"model":"m","messages":[{"role":"system","content":"i"},{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],"rid":"x"}"#
        );
    }
}
