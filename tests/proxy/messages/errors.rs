//! Errors in Anthropic's shape: samewire's own, and those of engines.

use crate::clients::keys::entry;
use crate::messages::{count, engine, fault, hello, message, object, post, stream, streamed, told};
use crate::sim::prelude::*;
use crate::sim::refusing;

#[tokio::test]
async fn fault_u18_u22_u23_statuses_of_engines() {
    let nested = |message: &str| json!({"error": {"message": message, "type": "x", "param": null, "code": null}});
    let bad = "invalid_request_error";
    let rows = [
        ("400 Bad", "said", (400, bad, None)),
        ("422 Bad", "said", (400, bad, None)),
        ("403 Bad", "said", (403, "permission_error", None)),
        (
            "404 Bad",
            "The model `m` does not exist.",
            (404, "not_found_error", Some("model_not_found")),
        ),
        ("404 Bad", "said", (404, "not_found_error", None)),
        (
            "413 Bad",
            "said",
            (413, "request_too_large", Some("request_too_large")),
        ),
        (
            "429 Bad",
            "said",
            (429, "rate_limit_error", Some("rate_limit_exceeded")),
        ),
        (
            "500 Bad",
            "said",
            (500, "api_error", Some("internal_error")),
        ),
        (
            "501 Bad",
            "said",
            (501, "api_error", Some("not_implemented")),
        ),
        (
            "502 Bad",
            "said",
            (500, "api_error", Some("internal_error")),
        ),
        (
            "503 Bad",
            "said",
            (529, "overloaded_error", Some("server_is_overloaded")),
        ),
        (
            "529 Bad",
            "said",
            (529, "overloaded_error", Some("server_is_overloaded")),
        ),
        (
            "504 Bad",
            "said",
            (500, "api_error", Some("internal_error")),
        ),
    ];
    for (line, message_of_engine, expected) in rows {
        let script = Script::new().json(line, &nested(message_of_engine).to_string());
        let world = World::start(
            script,
            Setup::new().allow_errors().set("engine_errors=pass"),
        )
        .await;
        for request in [message(""), stream("")] {
            let told = fault(&world.request(&request).await);
            assert_eq!(told.name(), expected, "{line}: {told:?}");
        }
        world.end().await;
    }
}

#[tokio::test]
async fn fault_u18_answers_that_are_no_error_object() {
    for (line, kind, body) in [
        (
            "502 Bad Gateway",
            "text/html",
            "<html>nginx at 10.0.0.7</html>",
        ),
        (
            "500 Internal Server Error",
            "text/plain",
            "Internal Server Error",
        ),
        ("500 Internal Server Error", "application/json", ""),
        ("200 OK", "application/json", "[]"),
        ("200 OK", "text/html", "<html></html>"),
    ] {
        let world = World::start(
            Script::new().whole(line, kind, body),
            Setup::new().allow_errors(),
        )
        .await;
        for request in [message(""), stream("")] {
            let told = fault(&world.request(&request).await);
            assert_eq!(
                (told.status, told.kind.as_str()),
                (500, "api_error"),
                "{line} {body}: {told:?}"
            );
            assert!(!told.message.contains("nginx"), "{told:?}");
        }
        world.end().await;
    }
}

/// Claude Code compacts a conversation when it reads these words.
#[tokio::test]
async fn fault_u22_a_prompt_that_is_too_long() {
    let long = json!({"object": "error", "message": "This model's maximum context length is 2048 tokens. However, your request has 2513 input tokens. Please reduce the length of the input messages.", "type": "BadRequestError", "param": null, "code": 400});
    let answers = [
        Script::new().json("400 Bad Request", &long.to_string()),
        Script::new()
            .head_sse()
            .ev(&json!({"error": long}).to_string())
            .done()
            .end(),
    ];
    for script in answers {
        let told = fault(&World::answer(script, Setup::new().allow_errors(), &stream("")).await);
        assert_eq!(
            told.name(),
            (
                400,
                "invalid_request_error",
                Some("context_length_exceeded")
            )
        );
        assert_eq!(
            told.message,
            "prompt is too long: 2513 tokens > 2048 maximum"
        );
    }
}

/// Clients request more than models hold. The engine refuses that beside a prompt that is long; it answers without the
/// limit, and the next request has its limit again.
#[tokio::test]
async fn fault_u57_a_limit_that_does_not_fit_is_left_out() {
    let refusal = json!({"error": {"message": "This model's maximum context length is 2048 tokens. However, you requested 64 output tokens and your prompt contains at least 2000 input tokens, for a total of at least 2064 tokens.", "type": "BadRequestError", "param": null, "code": 400}});
    let limited = |text: &str| text.contains("max_completion_tokens");
    let engine = Engine::answering(move |attempt| match limited(attempt.text()) {
        true => Script::new().json("400 Bad Request", &refusal.to_string()),
        false => hello(attempt.text().contains(r#""stream":true"#)),
    })
    .await;
    let world = World::start(engine, Setup::new()).await;
    assert_eq!(
        streamed(&world.request(&stream("")).await)["content"][0]["text"],
        "Hello"
    );
    assert_eq!(
        object(&world.request(&message("")).await)["content"][0]["text"],
        "Hello"
    );
    let sent: Vec<bool> = world
        .engine
        .attempts()
        .iter()
        .map(|attempt| limited(attempt.text()))
        .collect();
    assert_eq!(
        sent,
        [true, false, true, false],
        "each request has its limit at first"
    );
    assert_eq!(
        world
            .samewire
            .sum("samewire_rewrites_total", &["rule=\"limit_left_out\""])
            .await,
        2
    );
    world.end().await;
}

#[tokio::test]
async fn fault_u01_u06_u11_engines_that_do_not_answer() {
    let (url, _held) = refusing();
    let gone = Setup::new().upstream(&url).allow_errors();
    let short = || {
        Setup::new()
            .allow_errors()
            .config("[timeouts]\nfirst_token = 0.4\ninter_token = 0.4")
    };
    let rows = [
        (
            Script::new(),
            gone,
            (500, "api_error", "upstream_unreachable"),
        ),
        (
            Script::new().rst(),
            Setup::new().allow_errors(),
            (500, "api_error", "upstream_reset"),
        ),
        (
            Script::new().hang(),
            short(),
            (504, "timeout_error", "upstream_timeout"),
        ),
        (
            Script::stream().hang(),
            short(),
            (504, "timeout_error", "upstream_timeout"),
        ),
    ];
    for (script, setup, (status, kind, code)) in rows {
        let world = World::start(script, setup).await;
        for request in [message(""), stream("")] {
            assert_eq!(
                fault(&world.request(&request).await).name(),
                (status, kind, Some(code))
            );
        }
        world.end().await;
    }
}

#[tokio::test]
async fn fault_c01_c02_c04_c11_c12_bodies_that_cannot_be_read() {
    let world = World::start(engine(), Setup::new()).await;
    let deep = format!(
        r#"{{"model":"m","x":{}{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    let bad = "invalid_request_error";
    let rows: [(&str, Vec<u8>, u16, &str); 9] = [
        ("cut", br#"{"model":"m""#.to_vec(), 400, "invalid_json"),
        ("empty", Vec::new(), 400, "invalid_json"),
        ("list", b"[]".to_vec(), 400, "invalid_json"),
        ("null", b"null".to_vec(), 400, "invalid_json"),
        ("comma", br#"{"model":"m",}"#.to_vec(), 400, "invalid_json"),
        ("deep", deep.into_bytes(), 400, "json_too_deep"),
        (
            "twice",
            br#"{"model":"m","model":"m","max_tokens":1,"messages":[]}"#.to_vec(),
            400,
            "duplicate_key",
        ),
        (
            "bytes",
            b"{\"model\":\"\xff\"}".to_vec(),
            400,
            "invalid_utf8",
        ),
        ("label", b"{}".to_vec(), 415, "unsupported_media_type"),
    ];
    for (what, body, status, code) in rows {
        for request in [post(body.clone()), count(&post(body.clone()))] {
            let request = match what {
                "label" => request
                    .without("content-type")
                    .header("content-type", "text/plain"),
                _ => request,
            };
            assert_eq!(
                fault(&world.request(&request).await).name(),
                (status, bad, Some(code)),
                "{what}"
            );
        }
    }
    world.end_after(0).await;
}

/// The path of the field at fault begins the message, as Anthropic writes it.
#[tokio::test]
async fn fault_c13_c35_c36_fields_that_are_wrong() {
    let world = World::start(engine(), Setup::new()).await;
    let with = |key: &str, value: Value| {
        let mut body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": PROMPT}]});
        match value {
            Value::Null => drop(body.as_object_mut().unwrap().remove(key)),
            value => body[key] = value,
        }
        body
    };
    let talk = |messages: Value| with("messages", messages);
    let user = |content: Value| talk(json!([{"role": "user", "content": content}]));
    let choosing = |name: &str, tool: Value| {
        let mut body = with("tools", json!([tool]));
        body["tool_choice"] = json!({"type": "tool", "name": name});
        body
    };
    let rows = [
        (
            with("max_tokens", Value::Null),
            "max_tokens: Field required",
        ),
        (with("messages", Value::Null), "messages: Field required"),
        (with("messages", json!("hi")), "messages: "),
        (with("messages", json!([])), "messages: "),
        (with("max_tokens", json!("9")), "max_tokens: "),
        (with("max_tokens", json!(-1)), "max_tokens: "),
        (with("max_tokens", json!(1.5)), "max_tokens: "),
        (with("stream", json!("true")), "stream: "),
        (with("temperature", json!("hot")), "temperature: "),
        (with("top_k", json!(-3)), "top_k: "),
        (with("stop_sequences", json!("x")), "stop_sequences: "),
        (with("stop_sequences", json!([1])), "stop_sequences.0: "),
        (with("model", json!(7)), "model: "),
        (with("system", json!(7)), "system: "),
        (with("system", json!([{"type": "image"}])), "system.0"),
        (
            with("thinking", json!({"type": "enabled"})),
            "thinking.budget_tokens: Field required",
        ),
        (
            with("thinking", json!({"type": "sometimes"})),
            "thinking.type: ",
        ),
        (with("tools", json!([{"name": 7}])), "tools.0.name: "),
        (
            with("tools", json!([{"name": "f", "input_schema": "x"}])),
            "tools.0.input_schema: ",
        ),
        (
            with("tool_choice", json!({"type": "tool", "name": "g"})),
            "tool_choice.name: Tool 'g' not found",
        ),
        (
            choosing(
                "web_search",
                json!({"type": "web_search_20250305", "name": "web_search"}),
            ),
            "tool_choice.name: Tool 'web_search' was left out: only Anthropic's service has it",
        ),
        (with("metadata", json!("me")), "metadata: "),
        (
            with("output_config", json!({"effort": "extreme"})),
            "output_config.effort: ",
        ),
        (with("stop", json!(["x"])), "stop: "),
        (with("n", json!(2)), "n: "),
        (with("logprobs", json!(true)), "logprobs: "),
        (
            talk(json!([{"role": "robot", "content": "x"}])),
            "messages.0.role: ",
        ),
        (
            talk(json!([{"role": "user"}])),
            "messages.0.content: Field required",
        ),
        (user(json!(7)), "messages.0.content: "),
        (
            user(json!([{"text": "x"}])),
            "messages.0.content.0.type: Field required",
        ),
        (
            user(json!([{"type": "text"}])),
            "messages.0.content.0.text: Field required",
        ),
        (
            user(json!([{"type": "hologram"}])),
            "messages.0.content.0.type: ",
        ),
        (
            user(json!([{"type": "image", "source": {"type": "base64"}}])),
            "messages.0.content.0.source.",
        ),
        (
            user(
                json!([{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}}]),
            ),
            "messages.0.content.0.source.type: base64 documents are not supported",
        ),
        (
            user(json!([{"type": "tool_result", "tool_use_id": "call_9", "content": "x"}])),
            "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: call_9",
        ),
    ];
    for (body, start) in rows {
        let answer = world.request(&post(body.to_string())).await;
        assert_eq!(answer.head.status, 400, "{start} {}", answer.text());
        let told = fault(&answer);
        assert_eq!(told.kind, "invalid_request_error", "{start} {told:?}");
        assert!(
            told.message.starts_with(start),
            "{start:?} should begin {:?}",
            told.message
        );
        assert!(told.code.is_some(), "{told:?}");
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c28_other_methods_and_unknown_paths() {
    let world = World::start(engine(), Setup::new()).await;
    // Without the header of the version, the path tells which API the client uses.
    for version in [true, false] {
        let named = |request: Request| match version {
            true => request.header("anthropic-version", "2023-06-01"),
            false => request,
        };
        for (method, target) in [
            ("GET", "/v1/messages"),
            ("PUT", "/v1/messages"),
            ("GET", "/v1/messages/count_tokens"),
        ] {
            let answer = world.request(&named(Request::new(method, target))).await;
            assert_eq!(
                fault(&answer).name(),
                (405, "invalid_request_error", Some("method_not_supported"))
            );
            assert_eq!(
                answer.head.header("allow"),
                Some("POST"),
                "{method} {target}"
            );
        }
        for target in [
            "/v1/messages/batches",
            "/v1/messages/",
            "/v1/messages/count_tokens/x",
            "/v1/messages/m/x",
        ] {
            let told = fault(&world.request(&named(Request::post(target, "{}"))).await);
            assert_eq!(
                told.name(),
                (404, "not_found_error", Some("unknown_url")),
                "{target}"
            );
            assert!(told.message.contains(target), "{told:?}");
        }
    }
    // Of other unknown paths, the header alone tells it.
    let elsewhere = Request::post("/v1/complete", "{}");
    world.request(&elsewhere).await.with_status(404).fault();
    let asked = elsewhere.header("anthropic-version", "2023-06-01");
    assert_eq!(
        fault(&world.request(&asked).await).name(),
        (404, "not_found_error", Some("unknown_url"))
    );
    let near = Request::post("/v1/messagesx", "{}");
    world.request(&near).await.with_status(404).fault();
    world.end_after(0).await;
}

/// A client that sends the header of the version everywhere still gets the errors of the route that it uses.
#[tokio::test]
async fn routes_of_openai_keep_their_errors() {
    let refusal = r#"{"error":{"message":"no","type":"x","param":null,"code":null}}"#;
    let world = World::start(
        Script::new().json("503 Busy", refusal),
        Setup::new().allow_errors(),
    )
    .await;
    for request in [Request::plain(""), Request::stream(""), Request::chat("{")] {
        let answer = world
            .request(&request.header("anthropic-version", "2023-06-01"))
            .await;
        answer.fault();
        assert!(
            [503, 400].contains(&answer.head.status),
            "{}",
            answer.text()
        );
        assert!(
            answer.head.header("openai-version").is_some()
                && answer.head.header("request-id").is_none()
        );
    }
    world.end().await;
}

#[tokio::test]
async fn fault_c05_limit_to_the_byte() {
    let good = message("");
    let limit = good.sent_body().len();
    let setup = Setup::new().config(&format!("[limits]\nmax_body_bytes = {limit}"));
    let world = World::start(engine(), setup).await;
    let longer = |n: usize| {
        good.clone()
            .body([good.sent_body(), " ".repeat(n).as_bytes()].concat())
    };
    assert_eq!(world.request(&longer(0)).await.head.status, 200);
    for n in [1, 100_000] {
        for request in [longer(n), longer(n).chunked(1 << 20), count(&longer(n))] {
            let mut client = Client::connect(world.proxy()).await;
            client.try_send(&request.bytes()).await;
            let told = fault(&client.answer().await);
            assert_eq!(
                told.name(),
                (413, "request_too_large", Some("request_too_large")),
                "{n} above"
            );
        }
    }
    world.end_after(1).await;
}

#[tokio::test]
async fn samewires_own_limit_is_an_overload() {
    let gate = Gate::default();
    let script = Script::stream().text("a").wait(&gate).stop();
    let world = World::start(script, Setup::new().config("[limits]\nrequests = 1")).await;
    let mut running = world.begin(&stream("")).await;
    for request in [message(""), stream(""), count(&message(""))] {
        let answer = world.request(&request).await;
        assert_eq!(
            fault(&answer).name(),
            (529, "overloaded_error", Some("overloaded"))
        );
        assert_eq!(
            answer.head.header("x-should-retry"),
            None,
            "clients try again by themselves"
        );
    }
    gate.open();
    running.event_with("message_stop").await;
    running.rest().await;
    world.end_after(1).await;
}

#[tokio::test]
async fn limits_of_a_key_are_told_in_this_api() {
    let key = entry(KEY, "requests_per_minute = 2");
    let world = World::start(engine(), Setup::new().config(&key)).await;
    for left in ["1", "0"] {
        let answer = world.request(&stream("")).await;
        assert_eq!(told(&answer).error, None);
        assert_eq!(
            answer.head.header("anthropic-ratelimit-requests-limit"),
            Some("2")
        );
        assert_eq!(
            answer.head.header("anthropic-ratelimit-requests-remaining"),
            Some(left)
        );
    }
    // A count of tokens makes the engine work, so that it is counted like the rest.
    for request in [message(""), stream(""), count(&message(""))] {
        let answer = world.request(&request).await;
        assert_eq!(
            fault(&answer).name(),
            (429, "rate_limit_error", Some("rate_limit_exceeded"))
        );
        assert_eq!(
            answer.head.header("anthropic-ratelimit-requests-remaining"),
            Some("0")
        );
    }
    world.end_after(2).await;
}

/// No client repeats a request whose quota is gone for the day.
#[tokio::test]
async fn a_used_up_quota_is_no_reason_to_try_again() {
    for lines in [
        "tokens_per_day = 10",
        "tokens_per_day = 10\nwhen_used_up = \"usage_limit_reached\"",
    ] {
        let world = World::start(engine(), Setup::new().config(&entry(KEY, lines))).await;
        assert_eq!(world.request(&message("")).await.head.status, 200);
        world.samewire.finished(1).await;
        let answer = world.request(&message("")).await;
        let told = fault(&answer);
        assert_eq!(
            (told.status, told.kind.as_str()),
            (429, "rate_limit_error"),
            "{told:?}"
        );
        assert_eq!(answer.head.header("x-should-retry"), Some("false"));
        assert_eq!(
            answer.head.header("anthropic-ratelimit-tokens-remaining"),
            Some("0")
        );
        world.end_after(1).await;
    }
}

#[tokio::test]
async fn requests_of_a_key_at_once() {
    let gate = Gate::default();
    let script = Script::stream().text("a").wait(&gate).stop();
    let world = World::start(script, Setup::new().config(&entry(KEY, "concurrency = 1"))).await;
    let mut running = world.begin(&stream("")).await;
    let told = fault(&world.request(&message("")).await);
    assert_eq!(
        told.name(),
        (429, "rate_limit_error", Some("concurrency_limit"))
    );
    gate.open();
    running.event_with("message_stop").await;
    running.rest().await;
    world.end().await;
}

/// Engines that list different models get no request for one that none of them lists.
#[tokio::test]
async fn fault_c31_a_model_that_nobody_has() {
    let mut engines = Vec::new();
    for model in ["small", "large"] {
        let engine = engine().await;
        let list = json!({"object": "list", "data": [{"id": model, "object": "model", "created": 1, "owned_by": "vllm"}]});
        engine.set_models(Script::ok(list));
        engines.push(engine);
    }
    let world = World::fleet_up(engines, Setup::new(), &[]).await;
    let of = |model: &str, messages: Value| {
        post(json!({"model": model, "max_tokens": 9, "messages": messages}).to_string())
    };
    let talk = json!([{"role": "user", "content": PROMPT}]);
    for request in [of("huge", talk.clone()), count(&of("huge", talk.clone()))] {
        let told = fault(&world.request(&request).await);
        assert_eq!(
            told.name(),
            (404, "not_found_error", Some("model_not_found"))
        );
        assert!(told.message.contains("huge"), "{told:?}");
    }
    assert_eq!(world.attempt_counts(), [0, 0]);
    assert_eq!(world.request(&of("large", talk)).await.head.status, 200);
    assert_eq!(world.attempt_counts(), [0, 1]);
    world.end().await;
}

/// An engine that is down is nobody's mistake: clients try again.
#[tokio::test]
async fn fault_o18_nobody_is_well() {
    let engine = Engine::script(hello(false)).await;
    let setup = Setup::new()
        .allow_errors()
        .config("[health]\ninterval = 0.02\ntimeout = 0.5\ndown_after = 1");
    let world = World::fleet_up(vec![engine], setup, &[]).await;
    world
        .engine
        .set_health(Script::new().whole("503 Service Unavailable", "", ""));
    world.samewire.admin_becomes("/readyz", 503).await;
    let fault = fault(&world.request(&message("")).await);
    assert_eq!(
        fault.name(),
        (503, "api_error", Some("no_healthy_upstream"))
    );
    world.end_after(0).await;
}
