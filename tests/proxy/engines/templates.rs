//! Facts about chat templates, learned from prompts that the engine renders (engines G.12), and what clients get then.

use crate::canonical::Canonical;
use crate::sim::prelude::*;

const PROMPT_ROUTE: &str = "/apply-template";

/// Returns the reply of llama.cpp's route, whatever it is asked for.
fn prompt(end: &str) -> Script {
    Script::ok(json!({"prompt": format!("<|im_start|>assistant\n{end}")}))
}

/// Starts an engine whose model writes this, in pieces, and which answers this route to probes.
async fn engine(pieces: &'static [&'static str], route: &str, reply: Script) -> Engine {
    let engine = Engine::answering(|_| {
        let script = pieces
            .iter()
            .fold(Script::stream(), |script, piece| script.text(piece));
        script.finish("stop").usage(3, 9).done().end()
    })
    .await;
    engine.set_route(route, reply);
    engine
}

/// Returns the canonical stream with these pieces.
fn expected(reasoning: &[&str], content: &[&str]) -> String {
    let answer = Canonical::new().role();
    let answer = reasoning
        .iter()
        .fold(answer, |answer, piece| answer.reasoning(piece));
    let answer = content
        .iter()
        .fold(answer, |answer, piece| answer.content(piece));
    answer.finish("stop").done().text().to_owned()
}

/// Returns the requests of probes for a path.
fn probes(world: &World, path: &str) -> Vec<Attempt> {
    let mut all = world.engine.probes();
    all.retain(|probe| probe.target == path);
    all
}

async fn templates(world: &World) -> Value {
    world.samewire.admin("/status").await.json()["upstreams"][0]["templates"].take()
}

/// The model's name says nothing, and the answer has no start tag.
#[tokio::test]
async fn a_block_that_the_template_opens_is_reasoning_from_the_first_word_on() {
    let engine = engine(
        &["I ", "look.</th", "ink>Hi"],
        PROMPT_ROUTE,
        prompt("<think>\n"),
    );
    let world = World::start_as(engine, "llamacpp", Setup::new()).await;
    world.samewire.admin_becomes("/readyz", 200).await;
    let answer = expected(&["I ", "look."], &["Hi"]);
    assert_eq!(world.stream("").await.text(), answer);
    let prompts = probes(&world, PROMPT_ROUTE);
    let shown = |probe: &Attempt| {
        let body = probe.json();
        (
            body["chat_template_kwargs"].clone(),
            body["tools"].is_array(),
        )
    };
    let switch = |on: bool| json!({"enable_thinking": on, "thinking": on});
    assert_eq!(
        prompts.iter().map(shown).collect::<Vec<_>>(),
        [
            (Value::Null, false),
            (switch(true), false),
            (switch(false), false),
            (Value::Null, true),
            // The template knows no efforts.
            (json!({"reasoning_effort": "high"}), false),
        ]
    );
    assert!(prompts.iter().all(|probe| probe.json()["model"] == "m"));
    assert_eq!(
        templates(&world).await,
        json!([{
            "model": "m",
            "facts": {"thinking_unset": "<think>", "thinking_on": "<think>", "thinking_off": "<think>", "calls": null},
            "says": "always opens <think>",
            "from": PROMPT_ROUTE
        }])
    );
    world.stream("").await;
    assert_eq!(probes(&world, PROMPT_ROUTE).len(), 5, "once is enough");
    world.end().await;
}

/// A parser that is configured is for models that think by default; this one's template does not.
#[tokio::test]
async fn a_closed_prompt_is_not_reasoning_whatever_the_family() {
    let engine = engine(
        &["Hel", "lo"],
        PROMPT_ROUTE,
        prompt("<think>\n\n</think>\n\n"),
    );
    let world = World::start_as(engine, "llamacpp", Setup::new().set("parser=qwen3_5")).await;
    world.samewire.admin_becomes("/readyz", 200).await;
    let answer = expected(&[], &["Hel", "lo"]);
    assert_eq!(world.stream("").await.text(), answer);
    world.end().await;
}

#[tokio::test]
async fn no_prompt_is_rendered_where_no_text_is_parsed() {
    let engine = engine(&["Hi"], PROMPT_ROUTE, prompt("<think>\n"));
    let setup = Setup::new()
        .config("[health]\ninterval = 0.05")
        .set("parser=off");
    let world = World::start_as(engine, "llamacpp", setup).await;
    world.stream("").await;
    world.engine.wait_probes("/v1/models", 2).await;
    assert!(probes(&world, PROMPT_ROUTE).is_empty());
    assert_eq!(templates(&world).await, json!([]));
    world.end().await;
}

/// samewire has no key of its own, and the engine wants one: the first client's key is used, for all clients.
#[tokio::test]
async fn the_prompts_are_rendered_with_the_key_of_a_client() {
    const TOKENIZE: &str = "/v1/tokenize";
    let refusal = Script::new().json("401 Unauthorized", r#"{"error":"Unauthorized"}"#);
    let engine = engine(&["I look.</think>Hi"], TOKENIZE, refusal);
    let world = World::start_as(engine, "sglang", Setup::new()).await;
    world.samewire.admin_becomes("/readyz", 200).await;
    assert_eq!(
        probes(&world, TOKENIZE).len(),
        1,
        "the others would be refused, too"
    );
    world
        .engine
        .set_route(TOKENIZE, Script::ok(json!({"tokens": [7, 8]})));
    world
        .engine
        .set_route("/v1/detokenize", Script::ok(json!({"text": "<think>"})));
    let by_name = expected(&[], &["I look.</think>", "Hi"]);
    let without_key = Request::stream("").without("authorization");
    assert_eq!(world.request(&without_key).await.text(), by_name);
    assert_eq!(probes(&world, TOKENIZE).len(), 1, "there is still no key");
    let with_key = without_key
        .clone()
        .header("authorization", "Bearer sk-client");
    world.request(&with_key).await;
    until("the facts are known", || {
        probes(&world, "/v1/detokenize").len() == 5
    })
    .await;
    let all = probes(&world, TOKENIZE).into_iter().skip(1);
    for probe in all.chain(probes(&world, "/v1/detokenize")) {
        assert_eq!(probe.header("authorization"), Some("Bearer sk-client"));
    }
    world
        .samewire
        .logged("what the chat template does", 1)
        .await;
    let by_prompt = expected(&["I look."], &["Hi"]);
    assert_eq!(
        world.request(&without_key).await.text(),
        by_prompt,
        "a client without a key has the facts, too"
    );
    world.end().await;
}

/// The model's name says that the template opens a block, the engine shows no prompt, and its answers tell.
#[tokio::test]
async fn answers_tell_if_the_template_opens_the_block() {
    let engine = Engine::answering(|attempt| {
        let said = [
            ("think first", "I look.</think>Hi"),
            ("explain", "R1 writes <think>x</think> first."),
            ("", "Hello."),
        ];
        let said = said.iter().find(|(of, _)| attempt.text().contains(of));
        let script = said.map_or_else(Script::stream, |(_, text)| Script::stream().text(text));
        script.finish("stop").usage(3, 9).done().end()
    })
    .await;
    engine.set_models(Script::models(&["deepseek-r1"]));
    let world = World::start_as(engine, "generic", Setup::new()).await;
    world.samewire.admin_becomes("/readyz", 200).await;
    let ask = async |question: &str, stop: Value| {
        let messages = json!([{"role": "user", "content": question}]);
        let body =
            json!({"model": "deepseek-r1", "stream": true, "messages": messages, "stop": stop});
        world.chat(body.to_string()).await.text().to_owned()
    };
    let stream = async |question: &str| ask(question, Value::Null).await;
    let shown = async || {
        let mut all = templates(&world).await;
        (
            all[0]["facts"]["thinking_unset"].take(),
            all[0]["from"].take(),
        )
    };
    let (closed, open) = (
        (json!(""), json!("answers")),
        (json!("<think>"), json!("answers")),
    );
    let [hello, thought] = [expected(&["Hello."], &[]), expected(&["I look."], &["Hi"])];
    assert_eq!(ask("hello", json!(["x"])).await, hello);
    assert_eq!(templates(&world).await, json!([]), "its end may be missing");
    assert_eq!(stream("hello").await, hello);
    assert_eq!(shown().await, closed);
    assert_eq!(stream("hello").await, expected(&[], &["Hello."]));
    stream("explain").await;
    assert_eq!(shown().await, closed, "the text is about tags");
    stream("think first").await;
    assert_eq!(shown().await, open);
    for _ in 0..2 {
        assert_eq!(stream("think first").await, thought);
    }
    assert_eq!(stream("hello").await, hello);
    assert_eq!(shown().await, closed, "the last answer tells");
    world.end().await;
}

/// An engine of an older version lacks the route.
#[tokio::test]
async fn without_the_route_the_names_count() {
    let world = World::start_as(
        engine(&["<think>I look.</think>Hi"], "/none", Script::new()),
        "vllm",
        Setup::new(),
    )
    .await;
    world.samewire.admin_becomes("/readyz", 200).await;
    let answer = expected(&["I look."], &["Hi"]);
    for _ in 0..2 {
        assert_eq!(world.stream("").await.text(), answer);
    }
    assert_eq!(probes(&world, "/tokenize").len(), 1);
    world.end().await;
}

/// Sixteen models whose prompts hang cost no more time than one probe.
#[tokio::test]
async fn a_route_that_hangs_delays_nothing_for_long() {
    let engine = engine(&["Hi"], PROMPT_ROUTE, Script::new().hang());
    let model = |number: u32| json!({"id": format!("m{number}"), "object": "model", "created": 1, "owned_by": "llamacpp"});
    let models: Vec<_> = (0..16).map(model).collect();
    let setup = Setup::new()
        .set("parser=auto")
        .config("[health]\ntimeout = 0.2\ninterval = 0.05");
    let engine = engine.await;
    engine.set_models(Script::ok(json!({"object": "list", "data": models})));
    let world = World::start_as(engine, "llamacpp", setup).await;
    world.samewire.admin_becomes("/readyz", 200).await;
    assert_eq!(
        probes(&world, PROMPT_ROUTE).len(),
        1,
        "the others had no time left"
    );
    world.engine.wait_probes("/health", 3).await;
    world.end().await;
}

/// After a failure the engine may be another one, but until its prompts are rendered the facts count.
#[tokio::test]
async fn facts_outlast_a_failure_of_the_engine() {
    let engine = Engine::answering(|attempt| match attempt.text().contains("fail") {
        true => Script::new().json("500 Internal Server Error", r#"{"error":{"message":"no"}}"#),
        false => Script::stream()
            .text("I look.</think>Hi")
            .finish("stop")
            .usage(3, 9)
            .done()
            .end(),
    })
    .await;
    engine.set_route(PROMPT_ROUTE, prompt("<think>\n"));
    let setup = Setup::new()
        .set("parser=auto")
        .config("[health]\ninterval = 0.05\n[retry]\nmax_attempts = 1");
    let world = World::start_as(engine, "llamacpp", setup).await;
    world.samewire.admin_becomes("/readyz", 200).await;
    assert_eq!(probes(&world, PROMPT_ROUTE).len(), 5);
    let busy = Script::new().json("503 Service Unavailable", "{}");
    world.engine.set_route(PROMPT_ROUTE, busy);
    let failed = world.stream(r#","user":"fail""#).await;
    assert_eq!(failed.head.status, 500);
    until("the prompts are requested again", || {
        probes(&world, PROMPT_ROUTE).len() > 5
    })
    .await;
    world.engine.wait_probes("/health", 2).await;
    let answer = expected(&["I look."], &["Hi"]);
    assert_eq!(world.stream("").await.text(), answer);
    assert_eq!(
        probes(&world, PROMPT_ROUTE).len(),
        6,
        "a failure waits for a minute"
    );
    world.end().await;
}

/// An engine that renders no prompt by itself may return one with an answer: that is requested, kept from the client, and
/// counts for this answer alone.
#[tokio::test]
async fn a_prompt_that_comes_with_an_answer_tells_how_it_begins() {
    let engine = Engine::answering(|attempt| {
        let body = attempt.json();
        let (end, text) = match body["chat_template_kwargs"]["enable_thinking"] == false {
            true => ("</think>", "Hi"),
            false => ("<think>", "I look.</think>Hi"),
        };
        let prompt = match body["return_prompt_text"] == true {
            true => format!(r#""prompt_text":"assistant\n{end}\n","#),
            false => String::new(),
        };
        let first = r#""choices":[{"index":0,"delta":{"role":"assistant","content":""}}]"#;
        let head = r#""id":"chatcmpl-1","created":1,"model":"m""#;
        Script::stream()
            .ev(&format!("{{{head},{prompt}{first}}}"))
            .text(text)
            .finish("stop")
            .ev(&format!(r#"{{{head},{prompt}"choices":[],"usage":{{"prompt_tokens":3,"completion_tokens":9}}}}"#))
            .done()
            .end()
    })
    .await;
    engine.set_route("/version", Script::ok(json!({"version": "0.33.0"})));
    let world = World::start_as(engine, "vllm", Setup::new().set("unknown_fields=pass")).await;
    world.samewire.admin_becomes("/readyz", 200).await;
    assert_eq!(probes(&world, "/tokenize").len(), 1, "it has failed");
    let thoughtful = expected(&["I look."], &["Hi"]);
    let off = r#","chat_template_kwargs":{"enable_thinking":false}"#;
    for (more, expected) in [
        ("", &thoughtful),
        (off, &expected(&[], &["Hi"])),
        ("", &thoughtful),
    ] {
        assert_eq!(world.stream(more).await.text(), *expected);
        let sent = world.engine.attempts().last().unwrap().json();
        assert_eq!(sent["return_prompt_text"], true);
    }
    let usage = world
        .stream(r#","stream_options":{"include_usage":true}"#)
        .await;
    assert!(!usage.text().contains("prompt_text"), "{}", usage.text());
    let own = world.stream(r#","return_prompt_text":true"#).await;
    assert!(
        own.text().contains(r#""prompt_text":"assistant"#),
        "{}",
        own.text()
    );
    world
        .stream(&format!(r#","user":"{}""#, "u".repeat(256 << 10)))
        .await;
    let sent = world.engine.attempts().last().unwrap().json();
    assert!(
        sent["return_prompt_text"].is_null(),
        "the prompt is too long"
    );
    world.end().await;
}

/// A gateway in front of vLLM may know no such field: it refuses one request, and gets the others without it.
#[tokio::test]
async fn an_engine_that_refuses_to_return_the_prompt_is_not_requested_again() {
    let engine = Engine::answering(|attempt| match attempt.json().get("return_prompt_text") {
        Some(_) => Script::new().json(
            "400 Bad Request",
            r#"{"error":{"message":"unknown parameter return_prompt_text"}}"#,
        ),
        None => Script::stream().text("Hi").finish("stop").done().end(),
    })
    .await;
    engine.set_route("/version", Script::ok(json!({"version": "0.33.0"})));
    let world = World::start_as(engine, "vllm", Setup::new().allow_errors()).await;
    world.samewire.admin_becomes("/readyz", 200).await;
    for requests in [2, 3] {
        assert!(world.stream("").await.text().contains("Hi"));
        assert_eq!(world.engine.attempt_count(), requests);
    }
    let own = world.stream(r#","return_prompt_text":true"#).await;
    assert_eq!(own.head.status, 400, "the client's own field");
    world.end().await;
}
