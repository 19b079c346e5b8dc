//! The log as seen from outside: what it may contain, how long its lines are, and that it never blocks the process.

use crate::sim::prelude::*;
use samewire::config::{LogFormat, LogLevel};
use samewire::telemetry::start_logging;
use std::process::Command;

/// Configuration that ends the process without waiting for load balancers to notice.
const AT_ONCE: &str = "[timeouts]\nsettle = 0";

/// Largest size of a line in bytes, with its line end.
const LONGEST: usize = 8 << 10;

/// Returns a request that is refused, and whose line in the log is nearly as long as one may be.
fn refused() -> Request {
    Request::get(&format!("/v1/{}", "n".repeat(5_000)))
}

/// Far more lines than the pipe and the queue before it hold: the process keeps serving, and ends when signalled.
#[tokio::test]
async fn fault_o21_nobody_reads_the_log() {
    const DROPPED: &str = "samewire_log_lines_dropped_total";
    let engine = Engine::script(Script::answer("a", 1)).await;
    let setup = Setup::new()
        .pause_log()
        .in_front_of(&engine)
        .config(AT_ONCE);
    let mut samewire = Samewire::start(&setup).await;
    assert_eq!(samewire.metric(DROPPED).await, 0);
    let mut client = Client::connect(samewire.proxy).await;
    let request = refused().bytes();
    for asked in 1.. {
        client.send(&request).await;
        assert_eq!(client.answer().await.head.status, 404);
        if asked % 50 == 0 && samewire.metric(DROPPED).await > 0 {
            break;
        }
        assert!(asked < 2_000, "lines are neither read nor dropped");
    }
    assert_eq!(
        Request::stream("").answer(samewire.proxy).await.head.status,
        200,
        "it goes on serving"
    );
    // When the log is read again, every line is intact.
    samewire.resume_log();
    let later = Request::get("/v1/nothing")
        .header("x-request-id", "later")
        .bytes();
    let start = Instant::now();
    while !samewire.logs().iter().any(|line| line.contains("later")) {
        assert!(start.elapsed() < PATIENCE, "the log goes on");
        client.send(&later).await;
        client.answer().await;
    }
    // With room in the queue again, no line is dropped.
    let at_rest = samewire.metric(DROPPED).await;
    client.send(&later).await;
    client.answer().await;
    assert_eq!(samewire.metric(DROPPED).await, at_rest);
    samewire.logs().iter().for_each(|text| drop(parsed(text)));
    samewire.stop().await;
}

#[tokio::test]
async fn fault_o21_nobody_reads_the_log_of_a_process_that_ends() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let mut samewire = Samewire::start(
        &Setup::new()
            .pause_log()
            .upstream(&engine.url())
            .config(AT_ONCE),
    )
    .await;
    let mut client = Client::connect(samewire.proxy).await;
    // More than a pipe holds.
    for _ in 0..50 {
        client.send(&refused().bytes()).await;
        client.answer().await;
    }
    drop(client);
    samewire.stop().await;
}

/// Returns requests with long values, in characters that need long escapes.
fn long_requests() -> Vec<Request> {
    let body = |text: &str| {
        let content = serde_json::to_string(&text.repeat(40_000)).unwrap();
        format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":{content}}}],"stream":true}}"#
        )
    };
    let mut all: Vec<_> = ["a", "\"", "\\", "\n", "\u{1}", "\u{1f600}é"]
        .map(|text| Request::chat(body(text)))
        .into();
    all.push(Request::chat(vec![0xff; 100_000]));
    all.push(Request::chat(vec![b'"'; 100_000]));
    all.push(Request::stream(&format!(
        r#","user":"{}""#,
        "u".repeat(100_000)
    )));
    let odd = |request: Request| {
        request
            .header("x-request-id", &"i".repeat(128))
            .header("user-agent", &"a".repeat(8000))
    };
    all.into_iter().map(odd).collect()
}

#[tokio::test]
async fn fault_o21_a_line_is_never_long() {
    let long = "x".repeat(60_000);
    let refused =
        format!(r#"{{"error":{{"message":"{long}","type":"BadRequestError","code":"{long}"}}}}"#);
    for config in [
        "[log]\nlevel = \"trace\"\n",
        "[log]\nlevel = \"trace\"\ncontent = true\n",
    ] {
        let scripts = vec![
            Script::answer("a", 1),
            Script::new().json("400 Bad Request", &refused),
        ];
        let engine = Engine::in_turn(scripts).await;
        let samewire = Samewire::start(&Setup::new().config(config).upstream(&engine.url())).await;
        let requests = long_requests();
        for request in &requests {
            request.answer(samewire.proxy).await;
        }
        until("a line for each", || {
            samewire.request_lines().len() >= requests.len()
        })
        .await;
        for text in samewire.logs() {
            assert!(text.len() < LONGEST, "{} bytes: {text}", text.len() + 1);
            parsed(&text);
        }
        let with_content = samewire
            .request_lines()
            .iter()
            .filter(|text| text.len() > 5000)
            .count();
        assert_eq!(
            with_content,
            if config.contains("content") {
                requests.len()
            } else {
                0
            }
        );
    }
}

/// Request content is logged only if configured. That setting is then reported at the start and in each line.
#[tokio::test]
async fn content_is_logged_where_that_is_wanted() {
    for (config, logged) in [
        ("", false),
        ("[log]\ncontent = false\n", false),
        ("[log]\ncontent = true\n", true),
    ] {
        let engine = Engine::script(Script::answer("CANARY-ANSWER", 2)).await;
        let mut setup = Setup::new().upstream(&engine.url());
        if !config.is_empty() {
            setup = setup.config(config);
        }
        let samewire = Samewire::start(&setup).await;
        Request::stream("").answer(samewire.proxy).await;
        Request::get("/v1/models").answer(samewire.proxy).await;
        Request::chat("{\"CANARY-BROKEN\"")
            .answer(samewire.proxy)
            .await;
        until("three lines", || samewire.request_lines().len() >= 3).await;
        let lines: Vec<_> = samewire
            .request_lines()
            .iter()
            .map(|text| parsed(text))
            .collect();
        for (line, said) in lines
            .iter()
            .zip([Some(PROMPT), None, Some("CANARY-BROKEN")])
        {
            assert_eq!(
                line.get("content_logged"),
                logged.then_some(&Value::Bool(true)),
                "{line}"
            );
            let content = line.get("content").and_then(Value::as_str);
            assert_eq!(content.is_some(), logged && said.is_some(), "{line}");
            assert!(
                content
                    .zip(said)
                    .is_none_or(|(content, said)| content.contains(said)),
                "{line}"
            );
        }
        let logs = samewire.logs();
        let warned = |text: &String| text.contains("WARN") && text.contains("[log] content is on");
        assert_eq!(logs.iter().any(warned), logged, "{logs:#?}");
        assert_eq!(logs.iter().any(|text| text.contains(PROMPT)), logged);
        // Answers and headers are never logged.
        assert!(
            logs.iter()
                .all(|text| !text.contains("CANARY-ANSWER") && !text.contains(KEY)),
            "{logs:#?}"
        );
    }
}

/// A panic's message may contain anything, so only its location is logged. This test runs itself as a child to see
/// the output.
#[test]
fn fault_o21_a_panic_tells_where_and_not_what() {
    const CHILD: &str = "SAMEWIRE_TEST_PANICS";
    if std::env::var_os(CHILD).is_some() {
        let logging = start_logging(LogLevel::Trace, LogFormat::Json).unwrap();
        samewire::telemetry::watch_panics();
        let said = format!("CANARY-PANIC {}", std::process::id());
        assert!(std::thread::spawn(move || panic!("{said}")).join().is_err());
        let wrong = "CANARY-PANIC".parse::<u8>().map_err(|_| "CANARY-PANIC");
        assert!(std::thread::spawn(move || wrong.unwrap()).join().is_err());
        drop(logging);
        return;
    }
    let itself = std::env::current_exe().unwrap();
    let mut command = Command::new(itself);
    command
        .args([
            "--exact",
            "operations::logs::fault_o21_a_panic_tells_where_and_not_what",
            "--nocapture",
        ])
        .env(CHILD, "1");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("a bug ended a request").count(), 2, "{text}");
    assert!(
        text.contains("logs.rs:") && !text.contains("CANARY"),
        "{text}"
    );
}
