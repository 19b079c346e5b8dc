//! From what a client asks and where it goes to what the engine is sent and how its answer is read.
//!
//! Takes: an [`Ask`], the body, a [`Route`]. Gives: a [`Plan`]. Never: touches a byte that wire-format 2.10 does not name.

mod adapt;
mod messages;
mod object_edit;
mod parts;
mod settings;
mod tools;

use crate::engine::Identity;
use crate::engine::fallback::{Fallback, Fallbacks};
use crate::engine::rule::{Change, RequestRule};
use crate::request::fields::Edits;
use crate::request::responses::{Capabilities, ChatInputs, ResponsesMode, ResponsesRequest};
use crate::request::{ChatRequest, RETURN_TOKEN_IDS, SKIP_SPECIAL_TOKENS};
use crate::wire::encode::{Calls, NameMeaning, Reply, Sealing};
use crate::wire::event::ToolKind;
use crate::wire::fault::Failure;
use crate::wire::options::{Harmony, Options, ReasoningField, RequestUnknown};
use crate::wire::{Api, EngineParsers, Models, Script, Shape, Vocabulary};
use bytes::Bytes;
use std::sync::Arc;

/// Where a request goes, as far as it matters to its bytes.
#[derive(Clone, Debug)]
pub struct Route {
    /// What is behind the upstream.
    pub identity: Identity,
    /// The options in force for this request.
    pub options: Arc<Options>,
    /// Bytes of one engine event.
    pub max_event_bytes: usize,
    /// The name under which the engine knows the model, if another one.
    pub model_alias: Option<String>,
    /// How Responses reaches the engine.
    pub responses: ResponsesMode,
    /// What the answer's model may be called besides what the client called it; `None`: anything.
    pub models: Option<Models>,
    /// What the tokens of Harmony stand for.
    pub vocabulary: Option<Arc<Vocabulary>>,
    /// The forms in which the engine is asked because it refuses others.
    pub fallbacks: Fallbacks,
    /// The engine tells reasoning apart from the text.
    pub tells_reasoning: bool,
}

impl Route {
    /// The way to an engine that knows models by their own names and is asked for Responses as Chat Completions.
    pub fn new(identity: impl Into<Identity>, options: Arc<Options>, max_event_bytes: usize) -> Self {
        let identity = identity.into();
        Self {
            identity,
            options,
            max_event_bytes,
            model_alias: None,
            responses: ResponsesMode::default(),
            models: None,
            vocabulary: None,
            fallbacks: Fallbacks::default(),
            tells_reasoning: false,
        }
    }

    /// What the engine takes.
    fn takes(&self) -> Capabilities {
        let takes = self.identity.engine.takes;
        let token_ids = takes.token_ids && self.vocabulary.is_some();
        Capabilities { token_ids, parsers: self.parsers(), ..takes }
    }

    /// Returns the facts known about the engine's parsers.
    fn parsers(&self) -> EngineParsers {
        let leaves_calls = self.fallbacks.has(Fallback::CallsInText);
        EngineParsers { tells_reasoning: self.tells_reasoning, leaves_calls }
    }
}

/// One request to an engine.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The API it is asked in.
    pub api: Api,
    /// The path, a constant.
    pub path: &'static str,
    /// The body.
    pub body: Bytes,
    /// The bodies of the requests for the other choices, where the engine gives one: it is asked once for each.
    pub others: Vec<Bytes>,
    /// How the answer is read and written.
    pub shape: Shape,
    /// The fallbacks that gave the request its form.
    pub fallbacks: Fallbacks,
    /// The engine, of which nothing is known, may give fewer choices than it is asked for, and each of the others can be
    /// asked for by a request of its own.
    pub may_lack: bool,
}

/// A body for an engine, and what was changed in it for that one.
#[derive(Clone, Debug, Default)]
pub struct AdaptedBody {
    /// The body.
    pub body: Bytes,
    /// The rules that changed it.
    pub rules: Vec<&'static RequestRule>,
}

impl AdaptedBody {
    /// It asks for the first of several choices: each of the others takes a request of its own.
    pub fn fans_out(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.change, Change::FanOut { .. }))
    }

    /// The fallbacks among the rules.
    pub fn fallbacks(&self) -> Fallbacks {
        self.rules.iter().filter_map(|rule| Fallback::of_change(rule.change)).collect()
    }

    /// The names of the rules.
    pub fn names(&self) -> Vec<&'static str> {
        self.rules.iter().map(|rule| rule.name).collect()
    }
}

/// Makes the plan.
///
/// # Errors
/// A field that the API does not name, where these are refused; what cannot be said to this engine.
pub fn plan(ask: &ChatRequest, body: &Bytes, route: &Route) -> Result<Plan, Failure> {
    ask.known(route.options.request_unknown)?;
    let script = script(ask, route);
    let adapted = upstream_body(ask, body, route, script.as_deref())?;
    let shape = Shape { adapted: adapted.names(), ..shape_of(ask, route, script) };
    let others = if adapted.fans_out() { others(ask, body, &adapted, route)? } else { Vec::new() };
    let fallbacks = adapted.fallbacks();
    let is_unknown = !route.identity.engine.is_known();
    let may_lack = is_unknown && !adapted.fans_out() && ask.choice.is_none() && adapt::can_fan_out(ask, body);
    Ok(Plan { api: ask.api, path: path(ask.api), body: adapted.body, others, shape, fallbacks, may_lack })
}

/// The bodies for all choices but the first. Without a seed they are all the same.
fn others(
    ask: &ChatRequest,
    body: &Bytes,
    first: &AdaptedBody,
    route: &Route,
) -> Result<Vec<Bytes>, Failure> {
    let text = body.get(ask.places.offset..).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or("");
    let is_seeded = ask.places.members.iter().any(|member| member.key(text) == "seed");
    let other = |choice| match is_seeded {
        true => Ok(adapted(&ask.one_of_several(choice), body, route)?.body),
        false => Ok(first.body.clone()),
    };
    (1..ask.choices).map(other).collect()
}

/// The body for the engine.
///
/// # Errors
/// As [`plan`].
pub fn adapted(ask: &ChatRequest, body: &Bytes, route: &Route) -> Result<AdaptedBody, Failure> {
    ask.known(route.options.request_unknown)?;
    upstream_body(ask, body, route, script(ask, route).as_deref())
}

fn path(api: Api) -> &'static str {
    match api {
        Api::Chat => "/v1/chat/completions",
        Api::Completions => "/v1/completions",
        Api::Responses => "/v1/responses",
    }
}

/// How the answer to `ask` is read and written.
pub fn shape(ask: &ChatRequest, route: &Route) -> Shape {
    shape_of(ask, route, script(ask, route))
}

fn shape_of(ask: &ChatRequest, route: &Route, script: Option<Arc<Script>>) -> Shape {
    let plain = Shape::new(ask.api, ask.stream, route.options.clone());
    Shape {
        model: ask.model.clone(),
        choices: ask.choices,
        include_usage: ask.include_usage || route.options.force_usage,
        continuous_usage: ask.continuous_usage,
        logprobs: ask.logprobs,
        extensions: ask.extensions,
        include_obfuscation: ask.include_obfuscation,
        limit: ask.limit,
        forced_function: ask.forced_function.clone(),
        one_call: ask.legacy_functions
            || ask.one_call && route.identity.requests().any(|rule| matches!(rule.change, Change::OneCall)),
        custom_tools: ask.custom_tools.clone(),
        legacy_functions: ask.legacy_functions,
        max_event_bytes: route.max_event_bytes,
        quirks: route.identity.engine.quirks,
        models: route.models.clone(),
        script,
        hide_reasoning: ask.hides_reasoning || plain.hide_reasoning,
        ..plain
    }
}

/// How the model writes what an engine may leave in the text.
fn script(ask: &ChatRequest, route: &Route) -> Option<Arc<Script>> {
    let mut parsers = route.parsers();
    // vLLM parses reasoning and leaves it out; or nobody sees here what it tells.
    let hides = ask.hides_reasoning || route.options.reasoning_field == ReasoningField::None;
    parsers.tells_reasoning |= hides;
    let model = route.model_alias.as_ref().unwrap_or(&ask.model);
    let script = Script::of(&route.options, model, ask.offer(), parsers)?;
    Some(Arc::new(script.with_tokens(&route.options, route.vocabulary.as_ref())))
}

/// What the engine must be asked for, so that what it leaves in the text can be read here.
fn ask_for_text(ask: &ChatRequest, text: &str, route: &Route, script: &Script, edits: &mut Edits) {
    let passes = route.options.request_unknown == RequestUnknown::Pass;
    if script.needs_special_tokens() {
        ask.say_unsaid((SKIP_SPECIAL_TOKENS, "false"), text, passes, edits);
    }
    if route.takes().token_ids && route.options.harmony == Harmony::Tokens {
        ask.say_unsaid((RETURN_TOKEN_IDS, "true"), text, passes, edits);
    }
}

/// The engine's request for a Responses request. As Chat Completions it is made as the API has it, and fitted like any
/// other.
///
/// # Errors
/// As [`Asked::chat`], and what cannot be said to this engine.
pub fn response_body(
    asked: &ResponsesRequest,
    inputs: &ChatInputs<'_>,
    route: &Route,
) -> Result<AdaptedBody, Failure> {
    let takes = &route.takes();
    if route.responses == ResponsesMode::Native {
        return Ok(AdaptedBody { body: asked.native(inputs, takes, &route.options)?, rules: Vec::new() });
    }
    let body = asked.chat(inputs, takes, &route.options)?;
    let is_plain = route.identity.requests().next().is_none() && route.fallbacks.is_empty();
    if is_plain && !adapt::merges_system(route) {
        return Ok(AdaptedBody { body, rules: Vec::new() });
    }
    let text = std::str::from_utf8(&body).unwrap_or_default();
    let ask = ChatRequest::of_ours(text, asked.rules())?;
    let script = asked.script(route.model_alias.as_deref(), takes, &route.options);
    let (edits, rules) = adapt::adapter(&ask, text, route, true, script.as_ref())?;
    Ok(AdaptedBody { body: edits.apply_within_limit(&body)?, rules })
}

/// Where a Responses request goes, how its answer is read, and what that says of itself.
pub fn response(asked: &ResponsesRequest, route: &Route) -> (&'static str, Shape, Reply) {
    // Where reasoning goes is said by another option, and it must get there.
    let options = Options { reasoning_field: ReasoningField::ReasoningContent, ..(*route.options).clone() };
    let way = route.responses;
    let api = if way == ResponsesMode::Native { Api::Responses } else { Api::Chat };
    let route = Route { options: Arc::new(options), ..route.clone() };
    let script = asked.script(route.model_alias.as_deref(), &route.takes(), &route.options);
    let script = script.map(|script| Arc::new(script.with_tokens(&route.options, route.vocabulary.as_ref())));
    let shape = shape_of(&asked.ask(), &route, script);
    let shape = Shape { client: api, upstream: api, include_usage: true, ..shape };
    let mut calls = Calls::default();
    for (name, called) in asked.tools.iter() {
        let custom = called.kind == ToolKind::Custom;
        let (namespace, own) = (called.namespace.clone(), called.name.clone());
        calls.keep(name.to_owned(), NameMeaning { namespace, name: own, custom });
    }
    let reply = Reply {
        echo: asked.echo(),
        calls,
        reasoning: asked.reasoning_place(route.options.responses_reasoning),
        dialect: route.options.responses_dialect,
        logprobs: asked.include.output_text_logprobs,
        sealing: Sealing::default(),
        hold: None,
        stream: asked.stream,
        model: asked.model.clone(),
    };
    (path(api), shape, reply)
}

fn upstream_body(
    ask: &ChatRequest,
    body: &Bytes,
    route: &Route,
    script: Option<&Script>,
) -> Result<AdaptedBody, Failure> {
    let body = body.slice(ask.places.offset.min(body.len())..);
    let Ok(text) = std::str::from_utf8(&body) else { return Ok(AdaptedBody { body, rules: Vec::new() }) };
    let mut edits = ask.places.media.clone();
    if !route.identity.requests().any(|rule| matches!(rule.change, Change::NoStreamOptions)) {
        ask.stream_edits(text, &mut edits);
    }
    let named = ask.overrides_model.then_some(&ask.model);
    if let Some(name) = route.model_alias.as_ref().or(named) {
        edits.name_model(text, ask.places.model.clone(), name);
    }
    if let Some(script) = script.filter(|_| ask.api == Api::Chat) {
        ask_for_text(ask, text, route, script, &mut edits);
    }
    let (changes, rules) = adapt::adapter(ask, text, route, false, script)?;
    edits.extend(changes);
    Ok(AdaptedBody { body: edits.apply_within_limit(&body)?, rules })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::named;

    fn sent(engine: &str, options: Options, body: &'static str) -> String {
        let body = Bytes::from_static(body.as_bytes());
        let ask = ChatRequest::recall(Api::Chat, &body).unwrap();
        let engine = named(engine).unwrap();
        let route = Route::new(engine, Arc::new(options), 1 << 20);
        String::from_utf8(plan(&ask, &body, &route).unwrap().body.to_vec()).unwrap()
    }

    /// What an engine is asked for besides, so that what it leaves in the text can be read here.
    #[test]
    fn engines_without_parsers_are_asked_for_the_text() {
        let parser =
            |name: &str| Options { parser: name.to_owned().try_into().unwrap(), ..Options::default() };
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
            // The client has its own way to say that nothing, or this one, is called.
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
            // Nobody has said that the engine does not parse.
            (
                "vllm",
                parser("auto"),
                tools,
                r#"{"tools":[{"function":{"name":"f"}}],"skip_special_tokens":false}"#,
            ),
            ("sglang", parser("kimi_k2"), "{\"n\":1}", "{\"n\":1}"),
            (
                "sglang",
                parser("kimi_k2"),
                tools,
                r#"{"tools":[{"function":{"name":"f"}}],"skip_special_tokens":false}"#,
            ),
            ("sglang", parser("mistral"), "{\"n\":1}", r#"{"n":1,"skip_special_tokens":false}"#),
        ] {
            assert_eq!(sent(engine, options, body), expected);
        }
    }

    #[test]
    fn tokens_are_asked_for_where_they_are_understood() {
        let both = r#"{"n":1,"skip_special_tokens":false,"return_token_ids":true}"#;
        let text = r#"{"n":1,"skip_special_tokens":false}"#;
        let vocabulary = Arc::new(Vocabulary::read("IQ== 0").unwrap());
        for (engine, vocabulary, expected) in
            [("vllm", Some(&vocabulary), both), ("vllm", None, text), ("sglang", Some(&vocabulary), text)]
        {
            let body = Bytes::from_static(b"{\"n\":1}");
            let ask = ChatRequest::recall(Api::Chat, &body).unwrap();
            let options = Arc::new(Options { harmony: Harmony::Tokens, ..Options::default() });
            let route = Route::new(named(engine).unwrap(), options, 1 << 20);
            let route = Route { vocabulary: vocabulary.cloned(), ..route };
            assert_eq!(plan(&ask, &body, &route).unwrap().body, expected);
        }
    }

    #[test]
    fn only_the_named_patches_are_made() {
        let plain = Options::default;
        let harmony = || Options { harmony: Harmony::Text, ..plain() };
        for (engine, options, body, expected) in [
            ("auto", plain(), "{ \"n\" :1,  \"x\": 1.50 }", "{ \"n\" :1,  \"x\": 1.50 }"),
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
                Options { request_unknown: RequestUnknown::Drop, ..plain() },
                r#"{"top_k":5,"n":1,"min_p":0.1,"zz":{}}"#,
                r#"{"n":1}"#,
            ),
            ("vllm", harmony(), r#"{"n":1}"#, r#"{"n":1,"skip_special_tokens":false}"#),
            ("vllm", harmony(), "{}", r#"{"skip_special_tokens":false}"#),
            (
                "generic",
                harmony(),
                r#"{"stream":true}"#,
                r#"{"stream":true,"stream_options":{"include_usage":true},"skip_special_tokens":false}"#,
            ),
            ("sglang", harmony(), r#"{"skip_special_tokens":true}"#, r#"{"skip_special_tokens":true}"#),
            (
                "sglang",
                Options { request_unknown: RequestUnknown::Drop, ..harmony() },
                r#"{"skip_special_tokens":true,"n":1}"#,
                r#"{"n":1,"skip_special_tokens":false}"#,
            ),
        ] {
            assert_eq!(sent(engine, options, body), expected);
        }
    }
}
