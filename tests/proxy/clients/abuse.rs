//! Clients that try to influence what lies between them and the engine, and clients that retry by themselves.

use crate::clients::keys::{entry, with};
use crate::sim::prelude::*;

/// Returns the lines of the head that reached an engine, without those that differ from request to request.
fn lines(attempt: &Attempt) -> Vec<String> {
    let head = String::from_utf8(attempt.head.clone()).expect("ASCII");
    let stable = |line: &&str| !line.to_ascii_lowercase().starts_with("x-request-id:");
    head.lines().filter(stable).map(str::to_owned).collect()
}

/// Headers about the connection or about intermediaries. None of them may reach the engine.
const ABUSE: [&[(&str, &str)]; 40] = [
    &[("connection", "authorization, x-request-id")],
    &[("connection", "host")],
    &[("connection", "content-length")],
    &[("connection", "content-type, accept, user-agent")],
    &[("connection", "keep-alive, x-secret"), ("x-secret", "1")],
    &[("connection", "close, authorization")],
    &[("connection", "transfer-encoding")],
    &[("connection", "")],
    &[("connection", ", ,")],
    &[
        ("connection", "keep-alive"),
        ("connection", "authorization"),
    ],
    &[("keep-alive", "timeout=100000, max=100000")],
    &[("proxy-connection", "keep-alive")],
    &[("te", "trailers")],
    &[("te", "gzip;q=1, trailers")],
    &[("connection", "te"), ("te", "trailers")],
    &[("trailer", "content-length")],
    &[("proxy-authorization", "Basic Zm9vOmJhcg==")],
    &[("proxy-authenticate", "Basic")],
    &[("x-forwarded-for", "127.0.0.1")],
    &[("x-forwarded-host", "evil.example")],
    &[
        ("x-forwarded-proto", "https"),
        ("x-forwarded-prefix", "/admin"),
    ],
    &[
        ("x-real-ip", "127.0.0.1"),
        ("x-original-url", "/admin"),
        ("x-rewrite-url", "/admin"),
    ],
    &[("x-http-method-override", "DELETE")],
    &[("forwarded", "for=127.0.0.1;host=evil.example;proto=https")],
    &[("via", "1.1 evil")],
    &[("max-forwards", "0")],
    &[("traceparent", "garbage")],
    &[(
        "traceparent",
        "00-00000000000000000000000000000000-0000000000000000-00",
    )],
    &[(
        "traceparent",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )],
    &[(
        "traceparent",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
    )],
    &[("tracestate", "a=b")],
    &[("tracestate", "a=b"), ("traceparent", "00-short-01")],
    &[("baggage", "user=1")],
    &[("cookie", "session=1"), ("cookie", "b=2")],
    &[("www-authenticate", "Basic"), ("authentication-info", "x")],
    &[("x-api-key", "sk-CANARY-1"), ("api-key", "sk-CANARY-2")],
    &[
        ("range", "bytes=0-1"),
        ("if-range", "x"),
        ("if-none-match", "*"),
        ("if-modified-since", "x"),
    ],
    &[
        ("accept-encoding", "gzip, br, zstd"),
        ("accept-language", "de"),
        ("accept-charset", "utf-7"),
    ],
    &[
        ("x-request-id", "../../etc/passwd"),
        ("x-correlation-id", "a"),
        ("x-stainless-retry-count", "3"),
    ],
    &[
        ("content-language", "de"),
        ("content-md5", "x"),
        ("content-disposition", "attachment"),
        ("origin", "null"),
    ],
];

#[tokio::test]
async fn fault_c21_headers_about_the_connection_end_here() {
    for keys in [false, true] {
        let setup = if keys {
            Setup::new().config(&entry(KEY, ""))
        } else {
            Setup::new()
        };
        let world = World::plain(setup).await;
        let plain = if keys {
            Request::stream("")
        } else {
            Request::stream("").without("authorization")
        };
        assert_eq!(world.request(&plain).await.head.status, 200);
        let expected = lines(&world.engine.attempts()[0]);
        assert!(
            !expected.iter().any(|line| line.contains("CANARY")),
            "{expected:#?}"
        );
        for headers in ABUSE {
            let request = headers
                .iter()
                .fold(plain.clone(), |request, (name, value)| {
                    request.header(name, value)
                });
            let n = world.engine.attempt_count();
            let answer = world.request(&request).await;
            assert_eq!(answer.head.status, 200, "{headers:?}: {}", answer.text());
            let attempts = world.engine.attempts();
            assert_eq!(attempts.len(), n + 1, "{headers:?}");
            assert_eq!(lines(&attempts[n]), expected, "{headers:?}");
            assert!(
                !answer
                    .head
                    .headers
                    .iter()
                    .any(|(_, value)| value.contains("passwd")),
                "{headers:?}"
            );
            if keys {
                // A header must neither switch off the key check nor carry a key under another name.
                for refused in [
                    request.clone().without("authorization"),
                    with(&request, "sk-CANARY-wrong"),
                ] {
                    assert_eq!(
                        world.request(&refused).await.head.status,
                        401,
                        "{headers:?}"
                    );
                }
                assert_eq!(world.engine.attempt_count(), n + 1, "{headers:?}");
            }
        }
        world.end().await;
    }
}

/// Statuses that the official libraries retry, and how often they do.
const REPEATED: [u16; 5] = [408, 409, 429, 500, 503];
const RETRIES: usize = 3;

/// Sends a request as these libraries do, with up to three retries. Returns how many requests were sent.
async fn send_with_retries(world: &World, request: &Request) -> usize {
    let mut client = Client::connect(world.proxy()).await;
    for asked in 1..=RETRIES {
        if !client.try_send(&request.bytes()).await {
            client = Client::connect(world.proxy()).await;
            client.send(&request.bytes()).await;
        }
        let answer = client.answer().await;
        let status = answer.head.status;
        let wanted = answer.head.header("x-should-retry");
        let repeated = REPEATED.contains(&status) || status > 500;
        if !repeated || wanted == Some("false") {
            return asked;
        }
        if answer.head.header("connection") == Some("close") {
            client = Client::connect(world.proxy()).await;
        }
    }
    RETRIES
}

#[tokio::test]
async fn fault_c40_clients_that_ask_again_by_themselves() {
    let failing = [
        (
            "500 Internal Server Error",
            r#"{"error":{"message":"x","type":"InternalServerError","code":500}}"#,
        ),
        (
            "503 Service Unavailable",
            r#"{"error":{"message":"x","type":"ServiceUnavailable","code":503}}"#,
        ),
        (
            "429 Too Many Requests",
            r#"{"error":{"message":"x","type":"RateLimit","code":429}}"#,
        ),
        ("502 Bad Gateway", "<html>"),
    ];
    for (status, body) in failing {
        let engines = (0..3).map(|_| Script::new().json(status, body));
        // A single client: each of its three requests is handled separately, and none reaches more than two
        // engines.
        let world = World::fleet_up(engines, Setup::new().allow_errors(), &[]).await;
        for request in [Request::stream(""), Request::plain("")] {
            let before: usize = world.attempt_counts().iter().sum();
            let asked = send_with_retries(&world, &request).await;
            let sent = world.attempt_counts().iter().sum::<usize>() - before;
            assert!((1..=RETRIES).contains(&asked), "{status}");
            assert!(sent <= asked * 2, "{status}: {sent} for {asked}");
        }
        world.end().await;
    }
}

/// Many retrying clients at once: samewire's own retries stay within their budget.
#[tokio::test]
async fn fault_c40_many_of_them_stay_within_the_budget() {
    const CLIENTS: usize = 60;
    let body = r#"{"error":{"message":"x","type":"InternalServerError","code":500}}"#;
    let engines = (0..3).map(|_| Script::new().json("500 Internal Server Error", body));
    let world = World::fleet_up(engines, Setup::new().allow_errors(), &[]).await;
    let start = Instant::now();
    let asked = futures::future::join_all(
        (0..CLIENTS).map(|_| async { send_with_retries(&world, &Request::plain("")).await }),
    )
    .await;
    let asked: usize = asked.iter().sum();
    let sent: usize = world.attempt_counts().iter().sum();
    let took = start.elapsed();
    // The budget: 20 % of the requests of the last ten seconds, and three per second.
    let budget = asked / 5 + 3 * (usize::try_from(took.as_secs()).expect("short") + 11);
    println!("{asked} requests in {took:?} became {sent} attempts; {budget} more are allowed");
    assert_eq!(
        asked,
        CLIENTS * RETRIES,
        "what may help is worth another try"
    );
    assert!(
        sent <= asked + budget,
        "{asked} requests became {sent} attempts"
    );
    world.end().await;
}

/// Almost valid keys, and keys for other services, are all refused with the same text.
#[tokio::test]
async fn fault_c30_nearly_a_key_is_none() {
    let world = World::plain(Setup::new().config(&entry(KEY, ""))).await;
    let mut wrong = vec![
        "' OR 1=1--".to_owned(),
        "\" OR \"\"=\"".into(),
        "%".into(),
        "*".into(),
        "%00".into(),
        "${jndi:ldap://127.0.0.1/a}".into(),
        "{{7*7}}".into(),
        "../../etc/passwd".into(),
        format!("{KEY}x"),
        format!("x{KEY}"),
        format!("{KEY},{KEY}"),
        KEY.to_ascii_uppercase(),
        KEY.replace('-', "_"),
        KEY.chars().rev().collect(),
    ];
    wrong.extend((1..KEY.len()).map(|end| KEY[..end].to_owned()));
    for at in 0..KEY.len() {
        for bit in 0..7 {
            let mut bytes = KEY.as_bytes().to_vec();
            bytes[at] ^= 1 << bit;
            // Bytes that end a line, or are white space at its end, would make another request and not another key.
            if bytes[at] > b' ' && bytes[at] < 0x7f {
                wrong.push(String::from_utf8(bytes).expect("ASCII"));
            }
        }
    }
    let mut bodies = std::collections::BTreeSet::new();
    for key in &wrong {
        let answer = world.request(&with(&Request::stream(""), key)).await;
        assert_eq!(answer.head.status, 401, "{key}");
        // The error contains the first and last characters of the key, and nothing else that depends on it.
        let text = answer.text();
        let (before, said) = text
            .split_once("provided: ")
            .expect("the words of the refusal");
        let (shown, after) = said.split_once(". ").expect("the end of the shown part");
        let ends = shown.split_once("***").expect("a mask");
        assert!(ends.0.len() <= 5 && ends.1.len() <= 4, "{text}");
        bodies.insert(format!("{before}{after}"));
    }
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    assert_eq!(world.engine.attempt_count(), 0);
    assert_eq!(world.stream("").await.head.status, 200);
    world.samewire.finished(wrong.len() + 1).await;
    let (logs, metrics) = (
        world.samewire.logs().join("\n"),
        world.samewire.metrics().await,
    );
    for text in ["1=1", "jndi", "passwd", "7*7"] {
        assert!(!logs.contains(text) && !metrics.contains(text), "{text}");
    }
    world.end().await;
}
