//! From what a client asks and where it goes to what the engine is sent and how its answer is read.
//!
//! Takes: an [`Ask`], the body, a [`Route`]. Gives: a [`Plan`]. Never: touches a byte that wire-format 2.10 does not name.

use crate::engine::Engine;
use crate::json::{self, Raw};
use crate::request::Ask;
use crate::request::fields::{self, Edits, Field};
use crate::request::responses::{Asked, Material, Way};
use crate::wire::encode::{Called, Calls, Reply, Sealing};
use crate::wire::event::ToolKind;
use crate::wire::fault::Failure;
use crate::wire::options::{Harmony, Options, ReasoningField, RequestUnknown};
use crate::wire::{Api, Models, Shape};
use bytes::Bytes;
use std::sync::Arc;

/// Where a request goes, as far as it matters to its bytes.
#[derive(Clone, Debug)]
pub struct Route {
    /// The engine behind the upstream.
    pub engine: &'static Engine,
    /// The options in force for this request.
    pub options: Arc<Options>,
    /// Bytes of one engine event.
    pub max_event_bytes: usize,
    /// The name under which the engine knows the model, if another one.
    pub model_alias: Option<String>,
    /// How Responses reaches the engine.
    pub responses: Way,
    /// What the answer's model may be called besides what the client called it; `None`: anything.
    pub models: Option<Models>,
}

impl Route {
    /// The way to an engine that knows models by their own names and is asked for Responses as Chat Completions.
    pub fn new(engine: &'static Engine, options: Arc<Options>, max_event_bytes: usize) -> Self {
        Self { engine, options, max_event_bytes, model_alias: None, responses: Way::default(), models: None }
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
    /// How the answer is read and written.
    pub shape: Shape,
}

/// Makes the plan.
///
/// # Errors
/// A field that the API does not name, where these are refused.
pub fn plan(ask: &Ask, body: &Bytes, route: &Route) -> Result<Plan, Failure> {
    ask.known(route.options.request_unknown)?;
    Ok(Plan {
        api: ask.api,
        path: path(ask.api),
        body: upstream_body(ask, body, route),
        shape: shape(ask, route),
    })
}

fn path(api: Api) -> &'static str {
    match api {
        Api::Chat => "/v1/chat/completions",
        Api::Completions => "/v1/completions",
        Api::Responses => "/v1/responses",
    }
}

/// How the answer to `ask` is read and written.
pub fn shape(ask: &Ask, route: &Route) -> Shape {
    Shape {
        model: ask.model.clone(),
        choices: ask.choices,
        include_usage: ask.include_usage || route.options.force_usage,
        continuous_usage: ask.continuous_usage,
        logprobs: ask.logprobs,
        include_obfuscation: ask.include_obfuscation,
        limit: ask.limit,
        forced_function: ask.forced_function.clone(),
        max_event_bytes: route.max_event_bytes,
        quirks: route.engine.quirks,
        models: route.models.clone(),
        ..Shape::new(ask.api, ask.stream, route.options.clone())
    }
}

/// The engine's request for a Responses request.
///
/// # Errors
/// As [`Asked::chat`].
pub fn response_body(asked: &Asked, material: &Material<'_>, route: &Route) -> Result<Bytes, Failure> {
    match route.responses {
        Way::Chat => asked.chat(material, &route.engine.takes(), &route.options),
        Way::Native => asked.native(material, &route.engine.takes(), &route.options),
    }
}

/// Where a Responses request goes, how its answer is read, and what that says of itself.
pub fn response(asked: &Asked, route: &Route) -> (&'static str, Shape, Reply) {
    // Where reasoning goes is said by another option, and it must get there.
    let options = Options { reasoning_field: ReasoningField::default(), ..(*route.options).clone() };
    let way = route.responses;
    let api = if way == Way::Native { Api::Responses } else { Api::Chat };
    let route = Route { options: Arc::new(options), ..route.clone() };
    let shape = Shape { client: api, upstream: api, include_usage: true, ..shape(&asked.ask(), &route) };
    let mut calls = Calls::default();
    for (name, called) in asked.tools.iter() {
        let custom = called.kind == ToolKind::Custom;
        let (namespace, own) = (called.namespace.clone(), called.name.clone());
        calls.keep(name.to_owned(), Called { namespace, name: own, custom });
    }
    let reply = Reply {
        echo: asked.echo(),
        calls,
        reasoning: route.options.responses_reasoning,
        dialect: route.options.responses_dialect,
        logprobs: asked.include.output_text_logprobs,
        sealing: Sealing::default(),
        hold: None,
        stream: asked.stream,
        model: asked.model.clone(),
    };
    (path(api), shape, reply)
}

fn upstream_body(ask: &Ask, body: &Bytes, route: &Route) -> Bytes {
    let body = body.slice(ask.places.offset.min(body.len())..);
    let Ok(text) = std::str::from_utf8(&body) else { return body };
    let mut edits = ask.places.media.clone();
    ask.stream_edits(text, &mut edits);
    let named = ask.named_by_path.then_some(&ask.model);
    if let Some(model) = route.model_alias.as_ref().or(named) {
        let name = serde_json::to_vec(model).unwrap_or_default();
        match ask.places.model.clone() {
            Some(place) => edits.replace(place, name),
            None => insert_model(text, &name, &mut edits),
        }
    }
    if let Some((key, place)) = route.engine.reasoning_key.zip(ask.places.messages.clone()) {
        rename_reasoning(text, text.get(place).unwrap_or(""), key, &mut edits);
    }
    let passes = route.options.request_unknown == RequestUnknown::Pass;
    if route.options.harmony == Harmony::Text && ask.api == Api::Chat {
        ask.keep_special_tokens(text, passes, &mut edits);
    }
    if !passes && !ask.places.unknown.is_empty() {
        drop_unknown(text, &ask.places.unknown, &mut edits);
    }
    edits.apply(&body)
}

/// Names the model at the front of a body that does not.
fn insert_model(text: &str, name: &[u8], edits: &mut Edits) {
    let Some(at) = text.find('{').map(|brace| brace + 1) else { return };
    let comma: &[u8] =
        if text.get(at..).is_some_and(|rest| rest.trim_start().starts_with('}')) { b"" } else { b"," };
    edits.replace(at..at, [b"\"model\":", name, comma].concat());
}

/// Gives the reasoning of assistant messages the name that the engine reads (wire-format 2.4).
fn rename_reasoning(text: &str, messages: &str, key: &str, edits: &mut Edits) {
    let other = if key == "reasoning" { "reasoning_content" } else { "reasoning" };
    // A look at the bytes first: most conversations carry no reasoning, and the list need not be read twice.
    if memchr::memmem::find(messages.as_bytes(), b"\"reasoning").is_none() {
        return;
    }
    let Ok(all) = json::read::<Vec<Raw<'_>>>(messages) else { return };
    for message in all {
        let Ok(members) = fields::read(text, message.get()) else { continue };
        let find = |key: &str| members.iter().find(|member: &&Field<'_>| member.key == key);
        if find("role").is_none_or(|role| role.value.get() != "\"assistant\"") {
            continue;
        }
        match (find(other), find(key)) {
            (Some(_), Some(_)) => edits.remove(text, &members, |member| member.key == other),
            (Some(wrong), None) => {
                if let Some(at) = wrong.key_at.clone() {
                    edits.replace(at, key);
                }
            }
            _ => {}
        }
    }
}

fn drop_unknown(text: &str, unknown: &[String], edits: &mut Edits) {
    let Ok(members) = fields::read(text, text) else { return };
    edits.remove(text, &members, |member| unknown.iter().any(|key| *key == member.key));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::named;

    fn sent(engine: &str, options: Options, body: &'static str) -> String {
        let body = Bytes::from_static(body.as_bytes());
        let ask = Ask::recall(Api::Chat, &body).unwrap();
        let engine = named(engine).unwrap();
        let route = Route::new(engine, Arc::new(options), 1 << 20);
        String::from_utf8(plan(&ask, &body, &route).unwrap().body.to_vec()).unwrap()
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
