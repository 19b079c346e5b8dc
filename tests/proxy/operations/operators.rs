//! The operator's view: health, metrics, logs, and the shutdown of the process.

use crate::canonical::Canonical;
use crate::sim::prelude::*;
use crate::sim::{IN_FORCE, LINES_OF_ONE_REQUEST};
use std::collections::BTreeMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Top-level members of a log line, values as text.
type Line = BTreeMap<String, Box<serde_json::value::RawValue>>;

fn line(text: &str) -> Line {
    serde_json::from_str(text)
        .unwrap_or_else(|e| panic!("{e}: a log line is one JSON object: {text}"))
}

#[tokio::test]
async fn health_of_a_good_engine() {
    let world = World::plain(Setup::new()).await;
    assert_eq!(world.samewire.admin("/livez").await.head.status, 200);
    world.samewire.admin_becomes("/readyz", 200).await;
    for target in ["/v1/models", "/v1/chat/completions", "/nothing"] {
        assert_eq!(
            world.samewire.admin(target).await.head.status,
            404,
            "{target} is not for the admin listener"
        );
    }
    world.end().await;
}

/// Start page of the admin listener, for browsers and for `curl`; names from the configuration are escaped.
#[tokio::test]
async fn the_start_page_tells_what_runs() {
    let world = World::plain(Setup::new().upstream_keys("name = \"<b>a&'\\\"</b>\"")).await;
    world.samewire.admin_becomes("/readyz", 200).await;
    let browser = Request::get("/").header("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    let page = browser
        .clone()
        .answer(world.samewire.admin)
        .await
        .with_status(200);
    assert_eq!(
        page.head.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let policy = page.head.header("content-security-policy").unwrap();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("script-src 'none'"),
        "{policy}"
    );
    let (html, url) = (page.text(), format!("http://{}/v1", world.proxy()));
    assert!(
        html.contains("&lt;b&gt;a&amp;&#39;&quot;&lt;/b&gt;") && !html.contains("<b>a"),
        "{html}"
    );
    for word in [
        env!("CARGO_PKG_VERSION"),
        ">ready<",
        &url,
        "href=\"/livez\"",
        "href=\"/readyz?verbose\"",
        "href=\"/metrics\"",
    ] {
        assert!(html.contains(word), "{word}: {html}");
    }
    assert!(!html.contains("{{") && !html.contains("<script"), "{html}");

    let text = world.samewire.admin("/").await;
    assert_eq!(
        text.head.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    for word in [
        "\nready\n",
        "upstream <b>a&'\"</b>: ",
        ", ready, 0 in flight\n",
        &format!("clients: {url}\n"),
        "\n/metrics  ",
    ] {
        assert!(text.text().contains(word), "{word}: {}", text.text());
    }
    // As on the other routes: no foreign page, no other host name, no method but GET.
    for (name, value) in [
        ("host", "evil.example:9090"),
        ("sec-fetch-site", "cross-site"),
        ("origin", "http://evil.example"),
    ] {
        let refused = browser
            .clone()
            .without(name)
            .header(name, value)
            .answer(world.samewire.admin)
            .await;
        assert_eq!(refused.head.status, 403, "{name}");
        assert!(!refused.text().contains(&url), "{name}: {}", refused.text());
    }
    for (method, target, allow) in [
        ("POST", "/", "GET,HEAD"),
        ("GET", "/drain", "POST"),
        ("PUT", "/captures/x", "GET,HEAD,DELETE"),
    ] {
        let refused = Request::new(method, target)
            .answer(world.samewire.admin)
            .await;
        assert_eq!(
            (refused.head.status, refused.head.header("allow")),
            (405, Some(allow)),
            "{method} {target}"
        );
        assert_eq!(refused.text(), format!("{method} is not allowed here\n"));
    }
    world.end().await;
}

#[tokio::test]
async fn the_start_page_tells_what_is_missing() {
    let (url, _held) = crate::sim::refusing();
    let world = World::start(Script::new(), Setup::new().upstream(&url).allow_errors()).await;
    world.samewire.admin_becomes("/readyz", 503).await;
    let page = Request::get("/")
        .header("accept", "text/html")
        .answer(world.samewire.admin)
        .await
        .with_status(200);
    assert!(
        page.text().contains("not ready</strong>: upstream "),
        "{}",
        page.text()
    );
    let text = world.samewire.admin("/").await;
    assert!(
        text.text().contains("\nnot ready: upstream "),
        "{}",
        text.text()
    );
    world.end().await;
}

#[tokio::test]
async fn fault_o18_not_ready_without_an_engine() {
    let (url, _held) = crate::sim::refusing();
    let world = World::start(Script::new(), Setup::new().upstream(&url).allow_errors()).await;
    world.samewire.admin_becomes("/readyz", 503).await;
    assert_eq!(
        world.samewire.admin("/livez").await.head.status,
        200,
        "a restart would not help"
    );
    world.end().await;
}

#[tokio::test]
async fn metrics_have_their_names_after_traffic() {
    let engine = Engine::in_turn(vec![Script::answer("a", 5), Script::stream().fin()]).await;
    let world = World::start(engine, Setup::new().allow_errors()).await;
    world.stream("").await;
    world.stream("").await;
    world.get("/v1/models").await;
    until("lines of both", || {
        world.samewire.request_lines().len() >= 2
    })
    .await;
    let metrics = world.samewire.metrics().await;
    let rows = [
        (
            "samewire_requests_total",
            &["route", "upstream", "status", "end"][..],
        ),
        ("samewire_requests_in_flight", &["route"]),
        ("samewire_time_to_first_token_seconds", &["upstream"]),
        ("samewire_inter_token_seconds", &["upstream"]),
        ("samewire_request_seconds", &["route", "upstream"]),
        ("samewire_overhead_seconds", &["stage"]),
        ("samewire_tokens_total", &["upstream", "model", "kind"]),
        ("samewire_rewrites_total", &["engine", "rule"]),
        ("samewire_upstream_up", &["upstream"]),
        ("samewire_upstream_circuit_open", &["upstream"]),
        ("samewire_build_info", &["version", "commit", "date"]),
        ("samewire_upstream_attempts_total", &["upstream", "outcome"]),
        ("samewire_upstream_active_streams", &["upstream"]),
        ("samewire_panics_total", &[]),
        ("process_", &[]),
    ];
    for (name, labels) in rows {
        let series: Vec<_> = metrics
            .lines()
            .filter(|line| line.starts_with(name))
            .collect();
        assert!(!series.is_empty(), "no {name} in {metrics}");
        for label in labels {
            assert!(
                series.iter().all(|s| s.contains(&format!("{label}=\""))),
                "{name} without {label}: {series:?}"
            );
        }
    }
    for part in [r#"end="complete""#, r#"end="error""#, r#"status="2"#] {
        let has = |line: &str| line.starts_with("samewire_requests_total") && line.contains(part);
        assert!(
            metrics.lines().any(has),
            "no request with {part}: {metrics}"
        );
    }
    assert!(metrics.contains("kind=\"cached\"} 0\n"), "{metrics}");
    for (kind, count) in [("kind=\"prompt\"", 3), ("kind=\"completion\"", 5)] {
        assert_eq!(
            world.samewire.sum("samewire_tokens_total", &[kind]).await,
            count,
            "{kind}"
        );
    }
    world.end().await;
}

#[tokio::test]
async fn operations_of_the_store_are_timed_by_name() {
    let world = World::start(crate::responses::over_chat::engine(), Setup::new()).await;
    let made = crate::responses::over_chat::object(
        &world
            .request(&crate::responses::over_chat::prompt("text", ""))
            .await,
    );
    let at = format!("/v1/responses/{}", made["id"].as_str().expect("an id"));
    for target in [
        &at,
        &at,
        "/v1/responses/resp_invented",
        &format!("{at}/input_items"),
    ] {
        world.get(target).await;
    }
    world.request(&Request::new("DELETE", &at)).await;
    let metrics = world.samewire.metrics().await;
    for (op, times) in [("create", 1), ("get", 3), ("input_items", 1), ("delete", 1)] {
        for part in ["count{op=\"OP\"}", "bucket{op=\"OP\",le=\"+Inf\"}"] {
            let series = format!(
                "samewire_store_seconds_{} {times}\n",
                part.replace("OP", op)
            );
            assert!(metrics.contains(&series), "{series}: {metrics}");
        }
    }
    assert!(
        !metrics.contains("samewire_store_seconds_count{op=\"finish\"}"),
        "nothing ran in the background"
    );
    assert!(
        !metrics.contains("invented") && !metrics.contains(&at[14..]),
        "{metrics}"
    );
    world.end().await;
}

#[tokio::test]
async fn fault_o20_labels_come_from_closed_sets() {
    let world = World::plain(Setup::new()).await;
    for n in 0..50 {
        let body = format!(
            r#"{{"model":"invented-{n}","messages":[{{"role":"user","content":"a"}}],"stream":true}}"#
        );
        world.chat(body).await;
        world.get(&format!("/v1/invented-{n}")).await;
        world.get(&format!("/v1/models/invented-{n}")).await;
        world
            .request(&Request::new(&format!("INVENTED{n}"), "/v1/models"))
            .await;
    }
    let metrics = world.samewire.metrics().await;
    assert!(!metrics.to_lowercase().contains("invented"), "{metrics}");
    assert!(
        metrics
            .lines()
            .filter(|line| !line.starts_with('#'))
            .count()
            < 2000
    );
    world.end().await;
}

#[tokio::test]
async fn every_request_leaves_one_structured_line() {
    let scripts = vec![
        Script::answer("a", 5),
        Script::new().json("400 Bad Request", r#"{"detail":"no"}"#),
    ];
    let world = World::start(Engine::in_turn(scripts), Setup::new()).await;
    world
        .request(&Request::stream("").header("x-request-id", "mine-1"))
        .await;
    world
        .request(&Request::stream("").header("x-request-id", "mine-2"))
        .await;
    world
        .request(&Request::chat("{").header("x-request-id", "mine-3"))
        .await;
    let lines: Vec<Line> = world
        .samewire
        .finished(3)
        .await
        .iter()
        .map(|text| line(text))
        .collect();
    let rows = [
        ("mine-1", "200", "complete", "1"),
        ("mine-2", "400", "error", "1"),
        ("mine-3", "400", "error", "0"),
    ];
    for (line, (id, status, end, attempts)) in lines.iter().zip(rows) {
        let value = |name: &str| {
            line.get(name)
                .unwrap_or_else(|| panic!("{name} in {line:?}"))
                .get()
                .trim_matches('"')
        };
        assert_eq!(
            (value("request_id"), value("status"), value("end")),
            (id, status, end),
            "{line:?}"
        );
        assert_eq!(value("attempts"), attempts, "{line:?}");
        for name in [
            "timestamp",
            "level",
            "route",
            "code",
            "upstream",
            "bytes",
            "total_ms",
        ] {
            assert!(
                line.contains_key(name)
                    || (attempts == "0" && name == "upstream")
                    || (end == "complete" && name == "code"),
                "{name} in {line:?}"
            );
        }
    }
    for name in [
        "model",
        "prompt_tokens",
        "completion_tokens",
        "first_token_ms",
    ] {
        assert!(lines[0].contains_key(name), "{name} in {:?}", lines[0]);
    }
    world.end().await;
}

#[tokio::test]
async fn fault_o21_nothing_confidential_at_level_trace() {
    let scripts = vec![
        Script::answer("CANARY-ANSWER", 3),
        Script::stream()
            .tok("CANARY-ANSWER", 2, Duration::ZERO)
            .chunk("data: {CANARY-BROKEN\n\n")
            .end(),
        Script::new().json(
            "400 Bad Request",
            r#"{"error":{"message":"said-by-the-engine","type":"BadRequestError","code":400}}"#,
        ),
        Script::new().whole("500 Oops", "text/html", "<html>said-by-the-engine</html>"),
        Script::new()
            .head_sse()
            .ev(r#"{"error":{"message":"said-by-the-engine","type":"x","code":500}}"#)
            .end(),
        Script::new().rst(),
    ];
    let n = scripts.len();
    let setup = Setup::new()
        .allow_errors()
        .config("[log]\nlevel = \"trace\"");
    let world = World::start(Engine::in_turn(scripts), setup).await;
    let more = r#","user":"CANARY-USER","metadata":{"CANARY-KEY":"CANARY-VALUE"},"tools":[{"type":"function","function":{"name":"CANARY_TOOL"}}]"#;
    for _ in 0..n {
        world
            .request(
                &Request::stream(more)
                    .header("cookie", "CANARY-COOKIE")
                    .header("x-a", "CANARY-HEADER"),
            )
            .await;
    }
    for body in [
        "{\"model\":\"CANARY-MODEL\",",
        "CANARY",
        "{\"model\":\"m\",\"messages\":\"CANARY-PROMPT\"}",
    ] {
        world.chat(body).await;
    }
    world.get("/v1/no-such-path?key=CANARY-QUERY").await;
    until("a line for each", || {
        world.samewire.request_lines().len() >= n + 4
    })
    .await;
    let logs = world.samewire.logs().join("\n");
    assert_eq!(
        logs.matches("\"engine_error\":\"said-by-the-engine\"")
            .count(),
        2,
        "{logs}"
    );
    assert!(logs.contains("\"path\":\"/v1/no-such-path\""), "{logs}");
    // The end of every world checks that no other text of a request is in a log line or a metric.
    world.end().await;
}

/// An unknown finish reason becomes `stop`, and a warning is logged (wire-format 2.6).
#[tokio::test]
async fn unknown_finish_word_leaves_a_warning() {
    let world = World::start(
        Script::stream().text("a").finish("whim").done().end(),
        Setup::new(),
    )
    .await;
    let answer = world
        .request(&Request::stream("").header("x-request-id", "odd-1"))
        .await;
    assert_eq!(
        answer.text(),
        Canonical::new()
            .role()
            .content("a")
            .finish("stop")
            .done()
            .text()
    );
    let warned = |text: &String| text.contains("not known") && text.contains("odd-1");
    until("a warning", || world.samewire.logs().iter().any(warned)).await;
    world.end().await;
}

#[tokio::test]
async fn every_log_line_is_json_with_time_and_level() {
    let world = World::plain(Setup::new()).await;
    world.stream("").await;
    until("a line", || !world.samewire.request_lines().is_empty()).await;
    for text in world.samewire.logs() {
        let line = line(&text);
        assert!(
            line.contains_key("timestamp")
                && line.contains_key("level")
                && line.contains_key("message"),
            "{text}"
        );
    }
    world.end().await;
}

#[tokio::test]
async fn fault_o01_running_stream_ends_before_the_process() {
    for signal in ["TERM", "INT"] {
        let gate = Gate::default();
        let script = Script::stream().text("a").wait(&gate).text("b").stop();
        let engine = Engine::script(script).await;
        let setup = Setup::before(&engine);
        let mut samewire = Samewire::start(&setup.config("[timeouts]\nsettle = 0.3")).await;
        let mut client = Client::connect(samewire.proxy).await;
        // An idle connection and an incomplete head must not delay the shutdown.
        let _idle = Client::sending(samewire.proxy, b"POST /v1/chat/comp").await;
        let _silent = Client::connect(samewire.proxy).await;
        client.send(&Request::stream("").bytes()).await;
        client.event_with_head("\"a\"").await;
        samewire.signal(signal);
        samewire.admin_becomes("/readyz", 503).await;
        assert!(samewire.running(), "a stream is running");
        gate.open();
        client.event_with("\"b\"").await;
        client.event_with("[DONE]").await;
        assert_eq!(client.event().await, None);
        let status = samewire.exit(PATIENCE).await;
        assert_eq!(
            status.code(),
            Some(0),
            "after SIG{signal}: {:#?}",
            samewire.logs()
        );
        assert!(
            samewire
                .logs()
                .iter()
                .any(|line| line.contains(LINES_OF_ONE_REQUEST) && line.contains("complete"))
        );
    }
}

#[tokio::test]
async fn idle_process_ends_soon() {
    let engine = Engine::script(Script::new()).await;
    let setup = Setup::new()
        .upstream(&engine.url())
        .config("[timeouts]\nsettle = 0");
    let mut samewire = Samewire::start(&setup).await;
    samewire.stop().await;
}

/// Opens requests of every kind that waits: half a body, an embedding, a whole answer, a stream.
async fn waiting(samewire: &Samewire, engine: &Engine) -> Vec<Client> {
    let requests = [
        Request::post("/v1/embeddings", r#"{"model":"m","input":"x"}"#),
        Request::plain(""),
        Request::stream(""),
    ];
    let mut clients = Vec::new();
    for request in &requests {
        clients.push(request.send(samewire.proxy).await);
    }
    let mut half = Client::connect(samewire.proxy).await;
    let whole = Request::plain("").bytes();
    half.send(&whole[..whole.len() - 10]).await;
    clients.push(half);
    until("the requests wait", || {
        engine.attempt_count() >= requests.len()
    })
    .await;
    clients
}

/// Every waiting request gets an error at the drain deadline, and its log line is written.
#[tokio::test]
async fn fault_o02_everything_that_waits_is_told_at_the_deadline() {
    let engine = Engine::script(Script::new().hang()).await;
    let setup = Setup::new()
        .upstream(&engine.url())
        .config("[timeouts]\nsettle = 0\ndrain = 1\n");
    let mut samewire = Samewire::start(&setup).await;
    let clients = waiting(&samewire, &engine).await;
    samewire.signal("TERM");
    for mut client in clients {
        let answer = client.answer().await;
        assert_eq!(
            (answer.head.status, answer.fault().code.as_deref()),
            (503, Some("draining"))
        );
    }
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
    let lines = samewire.request_lines();
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.contains(r#""end":"draining""#))
            .count(),
        4,
        "{lines:#?}"
    );
}

#[tokio::test]
async fn fault_o03_a_second_interrupt_ends_it_at_once() {
    let engine = Engine::script(Script::new().hang()).await;
    let mut samewire = Samewire::start(&Setup::new().upstream(&engine.url())).await;
    let clients = waiting(&samewire, &engine).await;
    samewire.signal("INT");
    until("it drains", || {
        samewire.logs().iter().any(|line| line.contains("draining"))
    })
    .await;
    samewire.signal("INT");
    for mut client in clients {
        assert_eq!(client.answer().await.head.status, 503);
    }
    // The drain time of 20 s is not waited for.
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
}

/// Running responses get an error at a second signal; an idle connection, half a head and a scrape do not delay the
/// end.
#[tokio::test]
async fn fault_o03_a_second_interrupt_tells_what_has_begun() {
    let engine = Engine::script(Script::stream().tok("a", 2, Duration::ZERO).hang()).await;
    let setup = Setup::before(&engine);
    let mut samewire = Samewire::start(&setup.config("[timeouts]\nsettle = 60")).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(Request::stream("").begin_until(samewire.proxy, "a.1").await);
    }
    let _idle = Client::connect(samewire.proxy).await;
    let _half = Client::sending(samewire.proxy, b"POST /v1/chat/comp").await;
    let _scrape = Client::sending(
        samewire.admin,
        b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n",
    )
    .await;
    samewire.signal("INT");
    until("it drains", || samewire.count_logged("draining") > 0).await;
    samewire.signal("INT");
    let start = Instant::now();
    for mut client in streams {
        let last = client.event().await.expect("an error frame");
        assert!(
            last.starts_with("event: error\n") && last.contains(r#""code":"draining""#),
            "{last}"
        );
        assert_eq!(
            (client.event().await, client.ended()),
            (None, Ended::LastChunk)
        );
    }
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
    // The fault's row allows 2 s; neither the settle time (60 s) nor the drain time (300 s) is waited for.
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
}

/// A broken pipe or connection (SIGPIPE) does not end the process.
#[tokio::test]
async fn fault_o03_a_broken_pipe_ends_nothing() {
    let world = World::plain(Setup::new()).await;
    for _ in 0..20 {
        world.samewire.signal("PIPE");
        assert_eq!(
            world.stream("").await.text(),
            Canonical::answer("a", 1).text()
        );
    }
    world.end().await;
}

#[tokio::test]
async fn fault_o03_a_hangup_ends_nothing() {
    let gate = Gate::default();
    let world = World::start(
        Script::stream().text("a").wait(&gate).text("b").stop(),
        Setup::new(),
    )
    .await;
    let mut client = world.begin_until(&Request::stream(""), "\"a\"").await;
    for _ in 0..20 {
        world.samewire.signal("HUP");
    }
    until("it is said", || world.samewire.count_logged(IN_FORCE) > 0).await;
    gate.open();
    client.event_with("\"b\"").await;
    client.event_with("[DONE]").await;
    world.end().await;
}

/// A signal ends a process that has not begun to serve: it waits for a database that accepts connections and sends
/// nothing.
#[tokio::test]
async fn fault_o03_a_signal_while_it_starts_ends_it() {
    for name in ["TERM", "INT"] {
        let database = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = database.local_addr().expect("bound").port();
        let store = format!("postgres://samewire@127.0.0.1:{port}/samewire?sslmode=disable");
        let setup = Setup::new()
            .args(&["--store", &store])
            .upstream("http://127.0.0.1:9");
        let mut samewire = Samewire::spawn(&setup);
        let held = within("it opens its store", database.accept())
            .await
            .expect("a connection");
        samewire.signal("HUP");
        samewire.signal(name);
        assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0), "{name}");
        drop(held);
    }
}

/// Requests and tokens are counted by the names of keys, never by keys. Without keys there are no such metrics.
#[tokio::test]
async fn requests_and_tokens_are_counted_by_key() {
    let setup = Setup::new().config(&crate::clients::keys::entry(KEY, "name = \"laptop\""));
    let world = World::plain(setup).await;
    world.stream("").await;
    world.stream("").await;
    world.samewire.finished(2).await;
    assert_eq!(
        world
            .samewire
            .sum("samewire_key_requests_total", &["{key=\"laptop\"}"])
            .await,
        2
    );
    for kind in ["kind=\"prompt\"", "kind=\"completion\""] {
        assert_ne!(
            world
                .samewire
                .sum("samewire_key_tokens_total", &["key=\"laptop\"", kind])
                .await,
            0,
            "{kind}"
        );
    }
    world.end().await;
}

/// Connections that say nothing, or half of a request, make room on the admin listener.
#[tokio::test]
async fn fault_c41_idle_connections_of_operators_make_room() {
    let world = World::plain(Setup::new()).await;
    let host = world.samewire.admin;
    for sent in [
        String::new(),
        format!("GET /livez HTTP/1.1\r\nhost: {host}\r\n\r\n"),
        "GET /livez HTTP/1.1\r\nx: ".to_owned(),
        format!("POST /captures/start HTTP/1.1\r\nhost: {host}\r\ncontent-length: 99\r\n\r\n{{"),
    ] {
        let mut open = Vec::new();
        for _ in 0..64 {
            let mut stream = TcpStream::connect(host).await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
            open.push(stream);
        }
        assert_eq!(
            world.samewire.admin("/livez").await.head.status,
            200,
            "{sent}"
        );
    }
    world.end().await;
}

/// Starts a samewire with a captured exchange `large`. Returns it, and the length of the exchange's archive.
async fn with_large_exchange() -> (World, usize) {
    let world = World::configured("[capture]\nenabled = true\n").await;
    let prompt = "x".repeat(2 << 20);
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{prompt}"}}]}}"#);
    let request = Request::post("/v1/chat/completions", body).header("x-request-id", "large");
    assert_eq!(world.request(&request).await.head.status, 200);
    world.samewire.admin_becomes("/captures/large", 200).await;
    let length = world.samewire.admin("/captures/large").await.body.len();
    assert!(length > 4 << 20, "{length}");
    (world, length)
}

/// Asks for the archive of `large`, of which the kernel takes little.
async fn get_large(admin: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut reader = socket.connect(admin).await.unwrap();
    let head =
        format!("GET /captures/large HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
    reader.write_all(head.as_bytes()).await.unwrap();
    reader
}

/// An answer of which nothing is taken makes room on the admin listener.
#[tokio::test]
async fn fault_c41_operators_who_do_not_read_make_room() {
    let (world, _) = with_large_exchange().await;
    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(get_large(world.samewire.admin).await);
    }
    assert_eq!(world.samewire.admin("/livez").await.head.status, 200);
    world.end().await;
}

/// An answer of the admin listener that is being written does not make room.
#[tokio::test]
async fn fault_c41_an_answer_to_an_operator_does_not_make_room() {
    let (world, length) = with_large_exchange().await;
    let admin = world.samewire.admin;
    let mut reader = get_large(admin).await;
    let mut first = [0; 1024];
    reader.read_exact(&mut first).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..80 {
        silent.push(TcpStream::connect(admin).await.unwrap());
    }
    assert_eq!(world.samewire.admin("/livez").await.head.status, 200);
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).await.unwrap();
    assert!(first.len() + rest.len() > length, "{}", rest.len());
    world.end().await;
}
