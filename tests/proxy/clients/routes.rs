//! Paths and methods that exist. All others are refused before the body is read.

use crate::sim::prelude::*;

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn fault_c27_paths_that_only_look_like_a_route() {
    let world = World::plain(Setup::new()).await;
    let targets = [
        "/",
        "/v1",
        "/v1/",
        "//v1/chat/completions",
        "/v1//chat/completions",
        "/v1/chat/completions/",
        "/v1/chat/completions//",
        "/V1/chat/completions",
        "/v1/Chat/Completions",
        "/v1/../admin",
        "/v1/../v1/chat/completions",
        "/v1/./chat/completions",
        "/v1/%2e%2e/metrics",
        "/v1/chat%2fcompletions",
        "/v1/chat%2Fcompletions",
        "/v1/%63hat/completions",
        "/v1/chat/completions;x",
        "/v1;x/chat/completions",
        "/v1/chat\\completions",
        "/v1/chat/completions%00",
        "/v1/chat/completions%20",
        "/v1/chat/completions.json",
        "/chat/completions",
        "/metrics",
        "/health/",
        "/readyz",
        "/livez",
        "/drain",
        "/generate/",
        "/v1/load_lora_adapter",
        "/flush_cache",
        "/get_server_info",
        "/v1/audio/speech/",
        "/v1/models/",
        "http://localhost/metrics",
    ];
    for target in targets {
        for method in ["POST", "GET"] {
            let request = Request::stream("").target(target);
            let request = if method == "GET" {
                Request::get(target)
            } else {
                request
            };
            let answer = world.request(&request).await;
            let (status, code) = (answer.head.status, answer.fault().code);
            let is_unknown = code.as_deref() == Some("unknown_url") || target == "/v1/models/";
            assert!(
                status == 404 && is_unknown,
                "{method} {target}: {status} {}",
                answer.text()
            );
        }
    }
    world.end_after(0).await;
}

/// The error has the method, the path and a suggestion, and nothing that may be a secret.
#[tokio::test]
async fn an_unknown_path_is_told_with_what_was_probably_meant() {
    let world = World::plain(Setup::new()).await;
    let base = "The client's base URL should end in /v1.";
    let long = format!("/{}", "x".repeat(3000));
    for (target, expected) in [
        ("/chat/completions", format!("Unknown request URL: POST /chat/completions. Did you mean {CHAT}? {base}")),
        (
            "/v1/v1/chat/completions?key=sk-CANARY-query",
            format!(
                "Unknown request URL: POST /v1/v1/chat/completions. Did you mean {CHAT}? It has /v1 twice: the client's \
                 base URL, or what the client adds to it, has one too many."
            ),
        ),
        ("/v1/chat/completions/", format!("Unknown request URL: POST {CHAT}/. Did you mean {CHAT}?")),
        ("//v1/chat/completions", format!("Unknown request URL: POST /{CHAT}. Did you mean {CHAT}?")),
        ("/v1/chat/completion", format!("Unknown request URL: POST /v1/chat/completion. Did you mean {CHAT}?")),
        ("/v1/response", "Unknown request URL: POST /v1/response. Did you mean /v1/responses?".to_owned()),
        ("/v1/tokenize", "Unknown request URL: POST /v1/tokenize. Did you mean /tokenize?".to_owned()),
        (
            "/v1",
            "Unknown request URL: POST /v1. The API is below /v1, as POST /v1/chat/completions and GET /v1/models: a \
             client's base URL ends in /v1."
                .to_owned(),
        ),
        ("/sleep?level=1", "Unknown request URL: POST /sleep.".to_owned()),
        (&long, format!("Unknown request URL: POST {}....", &long[..120])),
    ] {
        let answer = world.request(&Request::stream("").target(target)).await;
        assert_eq!((answer.head.status, answer.fault().message), (404, expected), "{target}");
    }
    let answer = world
        .request(&Request::new("PUT", CHAT).header("content-length", "0"))
        .await;
    assert_eq!(
        answer.fault().message,
        format!("{CHAT} takes POST, not PUT.")
    );
    let answer = world
        .request(&Request::new("DELETE", "/v1/responses").header("content-length", "0"))
        .await;
    assert_eq!(
        answer.fault().message,
        "/v1/responses takes GET and POST, not DELETE."
    );
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c27_the_path_upstream_is_never_the_clients() {
    let world = World::plain(Setup::new()).await;
    let table = [
        (format!("{CHAT}?api-version=1&x=/../y"), 200),
        (format!("{CHAT}?"), 200),
        (format!("http://169.254.169.254{CHAT}"), 200),
    ];
    for (target, status) in table {
        let answer = world.request(&Request::stream("").target(&target)).await;
        assert!(
            answer.head.status == status || answer.head.status == 404,
            "{target}: {}",
            answer.text()
        );
    }
    let other_host = Request::stream("")
        .without("host")
        .header("host", "evil.internal");
    let answer = world.request(&other_host).await;
    assert_eq!(
        answer.head.status, 200,
        "any host name of a private network is ours"
    );
    for attempt in world.engine.attempts() {
        assert_eq!(attempt.target, CHAT);
        assert_eq!(
            attempt.header("host"),
            Some(world.engine.address.to_string().as_str())
        );
    }
    world.end().await;
}

#[tokio::test]
async fn fault_c27_missing_or_repeated_host() {
    let world = World::plain(Setup::new()).await;
    let requests = [
        Request::stream("").without("host"),
        Request::stream("").header("host", "localhost"),
        Request::stream("").header("host", "other"),
        Request::get("/v1/models").without("host"),
    ];
    for request in requests {
        assert_eq!(world.request(&request).await.head.status, 400);
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c28_methods() {
    let world = World::plain(Setup::new()).await;
    let rows = [
        (
            CHAT,
            ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"],
            "POST",
        ),
        (
            "/v1/completions",
            ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"],
            "POST",
        ),
        (
            "/v1/embeddings",
            ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"],
            "POST",
        ),
        (
            "/v1/models",
            ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"],
            "GET",
        ),
        (
            "/v1/models/m",
            ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"],
            "GET",
        ),
    ];
    for (target, methods, allowed) in rows {
        for method in methods {
            let answer = world
                .request(&Request::new(method, target).header("content-length", "0"))
                .await;
            assert_eq!(
                answer.failure(),
                "405 invalid_request_error method_not_supported",
                "{method} {target}"
            );
            let allow = answer
                .head
                .header("allow")
                .expect("405 has the allowed methods");
            assert!(
                allow.split(',').any(|m| m.trim() == allowed),
                "{target}: {allow}"
            );
            assert!(!allow.contains(method), "{method} {target}: {allow}");
        }
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c17_upgrades_and_tunnels() {
    let world = World::plain(Setup::new()).await;
    for protocol in ["websocket", "h2c"] {
        let request = Request::stream("")
            .header("connection", "Upgrade, HTTP2-Settings")
            .header("upgrade", protocol)
            .header("http2-settings", "AAMAAABkAAQAoAAAAAIAAAAA")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("sec-websocket-version", "13");
        let answer = world.request(&request).await;
        assert_eq!(answer.head.status, 200, "{protocol}");
        assert_eq!(answer.head.header("upgrade"), None);
    }
    for attempt in world.engine.attempts() {
        assert!(
            attempt
                .headers
                .iter()
                .all(|(name, _)| !name.contains("upgrade") && !name.starts_with("sec-"))
        );
    }
    let before = world.engine.attempt_count();
    for target in ["example.com:443", "127.0.0.1:22", CHAT] {
        let mut client = world.send(&Request::new("CONNECT", target)).await;
        let status = client.try_head().await.map(|head| head.status);
        assert!(
            matches!(status, Some(400 | 404 | 405)),
            "CONNECT {target}: {status:?}"
        );
    }
    world.end_after(before).await;
}

/// Every route exists with and without `root_path`, because a reverse proxy may keep its prefix, and nowhere else.
#[tokio::test]
async fn every_route_is_under_the_root_path_too() {
    let world = World::configured("root_path = \"/llm/\"").await;
    world.wait_until_up().await;
    for before in ["", "/llm"] {
        let chat = Request::stream("").target(&format!("{before}/v1/chat/completions"));
        assert_eq!(world.request(&chat).await.head.status, 200, "{before}");
        for path in ["/v1/models", "/health"] {
            let path = format!("{before}{path}");
            assert_eq!(world.get(&path).await.head.status, 200, "{path}");
        }
    }
    for path in [
        "/llm",
        "/llm/",
        "/llmv1/models",
        "/llm/llm/v1/models",
        "/llm/v1/nothing",
        "/other/v1/models",
    ] {
        assert_eq!(world.get(path).await.head.status, 404, "{path}");
    }
    // The engine gets the path without the prefix.
    let targets: Vec<_> = world
        .engine
        .attempts()
        .into_iter()
        .map(|attempt| attempt.target)
        .collect();
    assert!(
        targets.iter().all(|target| target.starts_with("/v1/")),
        "{targets:?}"
    );
    world.end().await;
}
