//! Configurable fields and counts: the operator lists fields that are forwarded, and sets limits on counts (faults
//! 6, 11).

use crate::responses::over_chat::{ask, engine};
use crate::responses::socket::create;
use crate::sim::prelude::*;
use crate::table::rows;

/// Starts an engine that answers every request.
async fn any_engine() -> Engine {
    Engine::answering(|attempt| match attempt.target.as_str() {
        "/v1/embeddings" => Script::ok(r#"{"object":"list","model":"m","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"usage":{"prompt_tokens":1,"total_tokens":1}}"#),
        "/v1/completions" => Script::ok(r#"{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"x","logprobs":null,"finish_reason":"stop"}]}"#),
        _ => Script::completion("x"),
    })
    .await
}

/// Returns one request of each API with these members.
fn each(more: &str) -> [Request; 4] {
    [
        Request::chat(format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"a"}}]{more}}}"#
        )),
        Request::post(
            "/v1/completions",
            format!(r#"{{"model":"m","prompt":"a"{more}}}"#),
        ),
        Request::post(
            "/v1/embeddings",
            format!(r#"{{"model":"m","input":"a"{more}}}"#),
        ),
        ask(&format!(r#""model":"m","input":"a","store":false{more}"#)),
    ]
}

/// Returns the code and the parameter of an error.
async fn refused(world: &World, request: &Request) -> (String, Option<String>) {
    let answer = world.request(request).await;
    assert_eq!(
        answer.head.status,
        400,
        "{}: {}",
        request.path(),
        answer.text()
    );
    let fault = answer.fault();
    (fault.code.unwrap_or_default(), fault.param)
}

#[tokio::test]
async fn fault_c33_fields_that_the_operator_names_pass() {
    let lines = "[requests]\nallowed_fields = [\"rid\", \"chat_template_kwargs.tools\"]\n";
    let world = World::start(any_engine(), Setup::new().config(lines)).await;
    let more = r#","rid":"x","chat_template_kwargs":{"tools":[],"enable_thinking":false}"#;
    for (at, request) in each(more).iter().enumerate() {
        world.request(request).await.with_status(200);
        assert!(
            world.engine.attempts()[at].text().contains(more),
            "{}",
            request.path()
        );
    }
    for (more, param) in [
        (r#","request_id":"x""#, "request_id"),
        (
            r#","chat_template_kwargs":{"tools":[],"documents":[]}"#,
            "chat_template_kwargs.documents",
        ),
        (r#","extra_body":{"rid":"x"}"#, "extra_body.rid"),
    ] {
        for request in each(more) {
            let expected = ("forbidden_parameter".to_owned(), Some(param.to_owned()));
            assert_eq!(
                refused(&world, &request).await,
                expected,
                "{}",
                request.path()
            );
        }
    }
    world.end_after(4).await;
}

#[tokio::test]
async fn fields_outside_the_api_pass_are_dropped_or_are_refused() {
    let more = r#","top_k":5,"min_p":0.10,"zz":{"a":null}"#;
    let named = "[requests]\nallowed_fields = [\"top_k\"]\n";
    for (word, sent) in [
        ("pass", more),
        ("drop", r#","top_k":5"#),
        ("reject", r#","top_k":5"#),
    ] {
        let setup = Setup::new()
            .set(&format!("request_unknown={word}"))
            .config(named);
        let world = World::start(any_engine(), setup).await;
        for (at, request) in each(if word == "reject" {
            r#","top_k":5"#
        } else {
            more
        })
        .iter()
        .enumerate()
        {
            assert_eq!(
                world.request(request).await.head.status,
                200,
                "{word} {}",
                request.path()
            );
            let text = world.engine.attempts()[at].text().to_owned();
            let got: Value = serde_json::from_str(&text).unwrap();
            let keys = ["top_k", "min_p", "zz"].map(|key| got.get(key).is_some());
            assert_eq!(
                keys,
                if word == "pass" {
                    [true; 3]
                } else {
                    [true, false, false]
                },
                "{word}"
            );
            assert!(
                text.ends_with(&format!("{sent}}}")),
                "{word} {}: {text}",
                request.path()
            );
        }
        let count = world.engine.attempt_count();
        for request in each(more).iter().filter(|_| word == "reject") {
            let expected = ("unknown_parameter".to_owned(), Some("min_p".to_owned()));
            assert_eq!(
                refused(&world, request).await,
                expected,
                "{}",
                request.path()
            );
        }
        world.end_after(count).await;
    }
}

/// A URL inside a dropped field is dropped with it.
#[tokio::test]
async fn what_is_dropped_is_not_written_anew() {
    let world = World::start(any_engine(), Setup::new().set("request_unknown=drop")).await;
    let more = r#""messages":[{"role":"user","content":[{"type":"image_url","image_url":"HTTPS://example.com"}]}]"#;
    let body = format!(r#"{{"model":"m",{more},"input":[{{"image":"HTTPS://example.com"}}]}}"#);
    assert_eq!(world.post("/v1/embeddings", body).await.head.status, 200);
    let sent = r#"{"model":"m","input":[{"image":"https://example.com/"}]}"#;
    assert_eq!(world.engine.only().text(), sent);
    world.end().await;
}

#[tokio::test]
async fn a_websocket_refuses_the_same_and_no_field_of_its_own() {
    let world = World::start(engine(), Setup::new().set("request_unknown=reject")).await;
    let mut socket = Socket::open(world.proxy()).await;
    for (more, code, param) in [
        (r#","top_k":5"#, "unknown_parameter", "top_k"),
        (r#","rid":"x""#, "forbidden_parameter", "rid"),
    ] {
        socket
            .send(&create(&format!(r#""model":"text","input":"a"{more}"#)))
            .await;
        assert_eq!(
            socket.refused().await,
            (400, code.to_owned(), param.to_owned())
        );
    }
    socket
        .exchange(&create(r#""model":"text","input":"a","generate":true"#))
        .await;
    world.end_after(1).await;
}

/// A limit, the parameter that is named above it, and a route; below, a body, with as many elements as counted in
/// place of `«…»`.
const COUNTED: &str = r#"
max_messages messages /v1/chat/completions
    {"model":"m","messages":[«{"role":"user","content":"a"}»]}
max_messages input /v1/responses
    {"model":"m","store":false,"input":[«{"role":"user","content":"a"}»]}
max_messages messages /v1/embeddings
    {"model":"m","input":"a","messages":[«{"role":"user","content":"a"}»]}
max_tools tools /v1/chat/completions
    {"model":"m","messages":[{"role":"user","content":"a"}],"tools":[«{"type":"function","function":{"name":"f"}}»]}
max_tools tools /v1/responses
    {"model":"m","input":"a","store":false,"tools":[«{"type":"function","name":"f#"}»]}
max_tools input[1].tools /v1/responses
    {"model":"m","store":false,"input":[{"role":"user","content":"a"},{"type":"additional_tools","tools":[«{"type":"function","name":"f#"}»]}]}
max_stop_strings stop /v1/chat/completions
    {"model":"m","messages":[{"role":"user","content":"a"}],"stop":[«"a"»]}
max_stop_strings stop /v1/completions
    {"model":"m","prompt":"a","stop":[«"a"»]}
max_metadata_pairs metadata /v1/chat/completions
    {"model":"m","messages":[{"role":"user","content":"a"}],"metadata":{«"k#":"v"»}}
max_metadata_pairs metadata /v1/responses
    {"model":"m","input":"a","store":false,"metadata":{«"k#":"v"»}}
max_metadata_pairs metadata /v1/conversations
    {"metadata":{«"k#":"v"»}}
max_choices n /v1/chat/completions
    {"model":"m","messages":[{"role":"user","content":"a"}],"n":COUNT}
max_choices n /v1/completions
    {"model":"m","prompt":"a","n":COUNT}
max_choices best_of /v1/completions
    {"model":"m","prompt":"a","best_of":COUNT}
max_logprobs top_logprobs /v1/chat/completions
    {"model":"m","messages":[{"role":"user","content":"a"}],"logprobs":true,"top_logprobs":COUNT}
max_logprobs logprobs /v1/completions
    {"model":"m","prompt":"a","logprobs":COUNT}
max_logprobs top_logprobs /v1/responses
    {"model":"m","input":"a","store":false,"top_logprobs":COUNT}
"#;

fn counted(route: &str, body: &str, count: usize) -> Request {
    let Some((before, (element, after))) = body
        .split_once('«')
        .and_then(|(before, rest)| Some((before, rest.split_once('»')?)))
    else {
        return Request::post(route, body.replace("COUNT", &count.to_string()));
    };
    let all: Vec<_> = (0..count)
        .map(|at| element.replace('#', &at.to_string()))
        .collect();
    Request::post(route, format!("{before}{}{after}", all.join(",")))
}

/// A request at each limit is served, and one above it is refused before the engine sees it, both with the default
/// limit and with a configured one.
#[tokio::test]
async fn fault_c35_counts_have_bounds_that_are_the_operators() {
    let defaults = [
        ("max_messages", 10_000),
        ("max_tools", 1024),
        ("max_stop_strings", 1024),
        ("max_metadata_pairs", 16),
        ("max_choices", 128),
        ("max_logprobs", 1_000_000),
    ];
    let three = defaults.map(|(limit, _)| (limit, 3));
    let lines: String = three
        .iter()
        .map(|(limit, bound)| format!("{limit} = {bound}\n"))
        .collect();
    let set = Setup::new().config(&format!("[limits]\n{lines}"));
    for (setup, bounds) in [(Setup::new(), defaults), (set, three)] {
        let world = World::start(any_engine(), setup).await;
        for (head, [body]) in rows(COUNTED) {
            let [limit, param, route] = *head.split(' ').collect::<Vec<_>>() else {
                panic!("{head}")
            };
            let bound = bounds
                .iter()
                .find(|(other, _)| *other == limit)
                .expect("a limit")
                .1;
            let answer = world.request(&counted(route, body, bound)).await;
            // The engine gives one choice, however many were requested.
            let served = matches!((answer.head.status, limit), (200, _) | (502, "max_choices"));
            assert!(served, "{head}: {}", answer.text());
            let count = world.engine.attempt_count();
            let expected = ("invalid_value".to_owned(), Some(param.to_owned()));
            assert_eq!(
                refused(&world, &counted(route, body, bound + 1)).await,
                expected,
                "{head}"
            );
            assert_eq!(world.engine.attempt_count(), count, "{head}");
        }
        world.end().await;
    }
}

#[tokio::test]
async fn fault_c02_the_depth_is_the_operators() {
    let world = World::start(
        any_engine(),
        Setup::new().config("[limits]\nmax_json_depth = 9\n"),
    )
    .await;
    // The body itself is the first level.
    let deep = |levels: usize| {
        format!(
            r#","zz":{}{}"#,
            "[".repeat(levels - 1),
            "]".repeat(levels - 1)
        )
    };
    for request in each(&deep(9)) {
        assert_eq!(
            world.request(&request).await.head.status,
            200,
            "{}",
            request.path()
        );
    }
    for request in each(&deep(10)) {
        let answer = world.request(&request).await;
        let fault = answer.fault();
        assert_eq!(
            fault.code.as_deref(),
            Some("json_too_deep"),
            "{}",
            request.path()
        );
        assert!(fault.message.contains(" 9 levels"), "{}", fault.message);
    }
    world.end().await;
}
