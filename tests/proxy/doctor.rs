//! `samewire doctor` as users run it: against engines of each recorded shape, through samewire in front of them, and
//! against servers that stall, flood, reset or send garbage.

use crate::conform::{Outcome, recorded, run};
use crate::sim::prelude::*;
use crate::sim::refusing;
use std::process::Command;

/// Runs the command with these arguments.
pub async fn doctor(arguments: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command.arg("doctor").args(arguments);
    command.env("COLUMNS", "80");
    run(command).await
}

/// Runs the command for an engine with these further arguments, and a short wait for its idleness.
pub async fn examine(engine: &Engine, more: &[&str]) -> Outcome {
    doctor(&[&[engine.url().as_str(), "--idle", "100ms"], more].concat()).await
}

/// Starts an engine that answers each question by a recording of this engine.
async fn engine(kind: &'static str) -> Engine {
    let engine = Engine::answering(move |attempt| {
        let body: Value = serde_json::from_slice(&attempt.body).unwrap_or_default();
        let text = String::from_utf8_lossy(&attempt.body).into_owned();
        let stream = body["stream"] == true;
        let is_forced = body["tool_choice"].is_object();
        let name = match attempt.target.as_str() {
            "/v1/completions" if stream => "completions-usage",
            "/v1/completions" => "completions-whole",
            "/v1/chat/completions" if body.is_null() => "error-bad-json",
            "/v1/chat/completions" if body["messages"].is_string() => "error-empty-messages",
            "/v1/chat/completions" if text.contains("no-such-model") => match kind {
                "vllm" => "error-unknown-model",
                _ => "unknown-model-accepted",
            },
            "/v1/chat/completions" if is_forced => "tool-named",
            "/v1/chat/completions" if body["n"] == 2 => "n2-whole",
            "/v1/chat/completions" if text.contains("get_weather") => match stream {
                true => "tool",
                false => "tool-whole",
            },
            "/v1/chat/completions" if body["stream_options"].is_object() => "reasoning-usage",
            "/v1/chat/completions" if stream => "text",
            "/v1/chat/completions" => "reasoning-whole",
            _ => "error-wrong-route",
        };
        recorded(&format!("{kind}/{name}"))
    })
    .await;
    let models = format!(
        r#"{{"object":"list","data":[{{"id":"tiny-qwen3","object":"model","created":1,"owned_by":"{kind}","max_model_len":4096}}]}}"#
    );
    engine.set_models(Script::ok(&models));
    let (path, info) = match kind {
        "vllm" => ("/version", r#"{"version":"0.21.0"}"#),
        _ => (
            "/server_info",
            r#"{"version":"0.5.12","api_key":"sk-engine","reasoning_parser":"qwen3","tool_call_parser":null}"#,
        ),
    };
    engine.set_route(path, Script::ok(info));
    engine
}

#[tokio::test]
async fn engines_are_named_and_their_differences_found() {
    for (kind, version, found) in [
        (
            "vllm",
            "0.21.0",
            &[
                ("reasoning-name", "warning"),
                ("extra-keys", "note"),
                ("usage-cached", "note"),
                ("error-shape", "warning"),
                ("unknown-model", "fine"),
                ("tools-ids", "fine"),
                ("responses", "note"),
            ][..],
        ),
        (
            "sglang",
            "0.5.12",
            &[
                ("reasoning-name", "warning"),
                ("extra-keys", "note"),
                ("envelope", "note"),
                ("unknown-model", "warning"),
                ("usage-reasoning", "note"),
            ],
        ),
    ] {
        let engine = engine(kind).await;
        let outcome = examine(&engine, &["--json"]).await;
        let report = outcome.json();
        assert_eq!(
            (report["engine"].as_str(), report["version"].as_str()),
            (Some(kind), Some(version))
        );
        assert_eq!(report["model"], "tiny-qwen3");
        assert_eq!(report["context_length"], 4096);
        assert_eq!(report["not_asked"], json!([]), "{}", outcome.err);
        for (id, severity) in found {
            assert_eq!(
                outcome.severity(id),
                *severity,
                "{kind} {id}: {}",
                outcome.check(id)
            );
        }
        assert_eq!(outcome.code, 1);
        assert!(outcome.err.contains("at most 19"), "{}", outcome.err);
        // No more requests reach the engine than are announced.
        let told: Vec<usize> = outcome
            .err
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        let [questions, _, _, others, ..] = told[..] else {
            panic!("{}", outcome.err)
        };
        let probes = engine.probes().len();
        assert_eq!(
            engine.attempt_count() + 1,
            questions,
            "the list of models is a question"
        );
        assert!(
            (2..=1 + others).contains(&probes),
            "{probes} of {others}: {:?}",
            engine.probes()
        );
    }
}

/// The names of the members are relied on by scripts.
#[tokio::test]
async fn the_json_has_these_members() {
    let outcome = examine(&engine("vllm").await, &["--json"]).await;
    let report = outcome.json();
    let keys = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    let mut expected = [
        "url",
        "model",
        "engine",
        "version",
        "front_end",
        "known_by",
        "context_length",
        "reasoning_parser",
        "tool_parser",
        "max_tokens",
        "findings",
        "not_asked",
        "stopped",
        "template",
        "advice",
    ];
    expected.sort_unstable();
    let mut told = keys(&report);
    told.sort_unstable();
    assert_eq!(told, expected);
    let mut told = keys(&outcome.check("reasoning-name"));
    told.sort_unstable();
    let mut expected = [
        "id", "topic", "question", "severity", "says", "evidence", "affected", "samewire",
        "engine", "config", "through",
    ];
    expected.sort_unstable();
    assert_eq!(told, expected);
    assert_eq!(keys(&report["advice"]).len(), 2);
}

#[tokio::test]
async fn the_configuration_at_the_end_is_one() {
    let engine = Engine::answering(|attempt| {
        let body: Value = serde_json::from_slice(&attempt.body).unwrap_or_default();
        match (body["tools"].is_array(), body["stream"] == true) {
            (true, _) if body["tools"][0].is_object() => recorded("vllm/error-no-parser"),
            (_, true) => recorded("vllm/think-raw"),
            _ if body["messages"][2]["role"] == "system" => Script::new().json(
                "400 Bad Request",
                r#"{"error":{"message":"System message must be at the beginning."}}"#,
            ),
            _ => recorded("vllm/reasoning-whole"),
        }
    })
    .await;
    engine.set_models(Script::ok(
        r#"{"object":"list","data":[{"id":"Qwen3-8B","owned_by":"vllm"}]}"#,
    ));
    let folder = Folder::new();
    let key = folder.write("key.txt", "sk-very-hidden");
    let key = key.to_str().unwrap();
    let outcome = examine(&engine, &["--key-file", key, "--json"]).await;
    assert_eq!(outcome.severity("tools-accepted"), "broken");
    assert_eq!(outcome.severity("reasoning-parser"), "broken");
    let report = outcome.json();
    assert_eq!(
        report["advice"]["engine"],
        json!([
            "--reasoning-parser qwen3",
            "--enable-prompt-tokens-details",
            "--enable-auto-tool-choice --tool-call-parser hermes"
        ])
    );
    let config = report["advice"]["config"].as_str().unwrap();
    assert!(
        config.contains("wire = { system_messages = \"merge\" }"),
        "{config}"
    );
    let file = folder.file("samewire.toml", config);
    let config = samewire::config::Config::load(&samewire::config::Overrides {
        config: Some(file.into()),
        ..samewire::config::Overrides::default()
    });
    assert!(config.is_ok(), "{config:?}");
    assert!(
        engine
            .attempts()
            .iter()
            .all(|attempt| attempt.header("authorization") == Some("Bearer sk-very-hidden"))
    );
    // The same for people: at most as wide as the terminal, but for the configuration, which is to be pasted.
    let table = examine(&engine, &["--key-file", key]).await;
    assert_eq!(table.code, 1);
    let report = table.out.split("samewire.toml").next().unwrap();
    assert!(
        report.lines().all(|line| line.chars().count() <= 80),
        "{report}"
    );
    for text in [
        "broken      tools-accepted",
        "--enable-auto-tool-choice",
        "[[upstream]]",
        "api_key_file",
    ] {
        assert!(table.out.contains(text), "{text}: {}", table.out);
    }
    assert!(!format!("{}{}", table.out, table.err).contains("sk-very-hidden"));
}

#[tokio::test]
async fn exchanges_are_saved_without_secrets_and_can_be_replayed() {
    let engine = engine("sglang").await;
    let folder = Folder::new();
    let saved = folder.folder();
    let options = [
        "--save",
        saved.to_str().unwrap(),
        "--header",
        "x-api-key: sk-hidden",
    ];
    let outcome = examine(&engine, &options).await;
    assert!(outcome.err.contains("requests to"), "{}", outcome.err);
    let loaded = samewire::replay::load(&[saved.to_owned()]).unwrap();
    assert_eq!(loaded.len(), 39);
    for scenario in std::fs::read_dir(saved).unwrap() {
        for file in std::fs::read_dir(scenario.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            assert!(
                !text.contains("sk-hidden") && !text.contains("sk-engine"),
                "{}: {text}",
                path.display()
            );
        }
    }
    assert!(!outcome.out.contains("sk-engine"), "{}", outcome.out);
    let stream = folder.path("chat-stream");
    let rewritten = Command::new(env!("CARGO_BIN_EXE_samewire"))
        .args(["rewrite", "--request"])
        .arg(stream.join("request.json"))
        .stdin(std::fs::File::open(stream.join("upstream.sse")).unwrap())
        .output()
        .unwrap();
    assert!(rewritten.status.success(), "{rewritten:?}");
    assert!(
        String::from_utf8(rewritten.stdout)
            .unwrap()
            .ends_with("data: [DONE]\n\n")
    );
}

#[tokio::test]
async fn samewire_in_front_of_an_engine_mends_its_streams() {
    for kind in ["vllm", "sglang"] {
        let engine = engine(kind).await;
        let outcome = examine(&engine, &["--through", "--json"]).await;
        let through = |id: &str| {
            outcome.check(id)["through"]["severity"]
                .as_str()
                .unwrap_or("")
                .to_owned()
        };
        for id in [
            "stream",
            "whole",
            "reasoning-name",
            "extra-keys",
            "envelope",
            "error-shape",
            "responses",
            "messages",
        ] {
            assert_eq!(through(id), "fine", "{kind} {id}: {}", outcome.check(id));
        }
        let table = examine(&engine, &["--through"]).await;
        assert!(table.out.contains("  check "), "{}", table.out);
        let row = table
            .out
            .lines()
            .find(|line| line.starts_with("  reasoning-name"))
            .unwrap();
        assert!(row.contains("warning") && row.contains("fine"), "{row}");
    }
}

#[tokio::test]
async fn bad_servers_are_given_up_and_reported() {
    let flood = Script::new().head_sse().then(Step::Flood {
        events: 1_000_000,
        size: 65_536,
    });
    let stall = Script::stream().hang();
    let garbage = Script::new().whole(
        "200 OK",
        "text/event-stream",
        b"\x1b[2J\xff\xfe\0data\r\r\n: x",
    );
    let reset = Script::stream().rst();
    for (script, says, timeout) in [
        (flood, "too large", "1m"),
        (stall, "breaks off", "1s"),
        (Script::new().hang(), "no answer within", "1s"),
        (garbage, "events", "1m"),
        (reset, "broke", "1m"),
        (Script::new().raw("\u{1b}[31mnonsense"), "no answer", "2s"),
    ] {
        let engine = Engine::script(script).await;
        let started = Instant::now();
        let outcome = examine(&engine, &["--timeout", timeout, "--json"]).await;
        assert_eq!(outcome.code, 1, "{says}: {}", outcome.err);
        let stream = outcome.check("stream");
        assert_eq!(stream["severity"], "broken", "{says}: {stream}");
        let told = format!(
            "{} {}",
            stream["says"].as_str().unwrap(),
            stream["evidence"].as_str().unwrap()
        );
        assert!(told.contains(says), "{says}: {told}");
        assert!(outcome.out.len() < 100_000, "{says}: {}", outcome.out.len());
        assert!(started.elapsed() < Duration::from_secs(120), "{says}");
    }
}

#[tokio::test]
async fn a_server_that_stalls_is_not_asked_on() {
    let engine = Engine::script(Script::new().hang()).await;
    let outcome = examine(&engine, &["--timeout", "1s"]).await;
    assert_eq!(engine.attempt_count(), 1, "only the stream was requested");
    assert_eq!(outcome.code, 1);
    let text = outcome.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains(
            "Not asked, because the server does not answer, or without an end (chat-stream): "
        ),
        "{}",
        outcome.out
    );
    assert!(
        !outcome.out.chars().any(|c| c.is_control() && c != '\n'),
        "{:?}",
        outcome.out
    );
    // Not even a list of models.
    engine.set_models(Script::new().hang());
    let silent = examine(&engine, &["--timeout", "1s"]).await;
    assert_eq!(silent.code, 3, "{}", silent.out);
    assert!(silent.err.contains("no answer within"), "{}", silent.err);
}

#[tokio::test]
async fn partial_results_are_printed_when_the_time_is_up() {
    // Each piece comes in time, and the whole never.
    let slow = Script::new()
        .head_sse()
        .tok("a", 100_000, Duration::from_millis(20));
    let engine = Engine::script(slow).await;
    let outcome = examine(&engine, &["--within", "2s", "--timeout", "60s", "--json"]).await;
    let report = outcome.json();
    assert!(
        report["stopped"].as_str().unwrap().contains("were up"),
        "{report}"
    );
    assert_eq!(outcome.severity("models-list"), "fine");
    assert_eq!(outcome.severity("stream"), "not_seen");
    assert!(
        report["not_asked"].as_array().unwrap().len() > 25,
        "{report}"
    );
}

#[tokio::test]
async fn an_interrupt_prints_partial_results() {
    let engine = Engine::script(Script::new().hang()).await;
    let url = engine.url();
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command
        .args(["doctor", &url, "--json"])
        .stdout(std::process::Stdio::piped());
    let child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    engine.wait_attempts(1).await;
    let signalled = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(signalled.success());
    let output = tokio::task::spawn_blocking(move || child.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["stopped"], "it was interrupted");
    assert_eq!(
        output.status.code(),
        Some(130),
        "a script must not take it for a healthy server"
    );
}

/// A gateway may repeat the key that it refuses.
#[tokio::test]
async fn keys_that_a_server_repeats_are_not_shown() {
    let refusal = r#"{"error":{"message":"no key sk-CANARY-12345 HEADER-CANARY","type":"auth"}}"#;
    let engine = Engine::script(Script::new().json("403 Forbidden", refusal)).await;
    let folder = Folder::new();
    let saved = folder.folder();
    let headers = [
        "--header",
        "authorization: Bearer sk-CANARY-12345",
        "--header",
        "x-secret: HEADER-CANARY",
    ];
    let base = [&["--save", saved.to_str().unwrap()], &headers[..]].concat();
    for arguments in [base.clone(), [&base[..], &["--json"]].concat()] {
        let outcome = examine(&engine, &arguments).await;
        assert!(!outcome.out.contains("CANARY"), "{}", outcome.out);
        assert!(outcome.out.contains("no key *******"), "{}", outcome.out);
    }
    let stream = std::fs::read_to_string(saved.join("chat-stream/upstream.json")).unwrap();
    assert!(
        stream.contains("no key *******") && !stream.contains("CANARY"),
        "{stream}"
    );
}

#[tokio::test]
async fn exit_codes_tell_usage_from_environment() {
    let (url, _reserved) = refusing();
    for (arguments, code, expected) in [
        (&[url.as_str()][..], 3, "refused"),
        (&["nonsense"], 2, "not a URL"),
        (&[&url, "--key-file", "/nowhere"], 2, "--key-file"),
        (&[&url, "--timeout", "0s"], 2, "--timeout"),
        (&[], 2, "URL"),
    ] {
        let outcome = doctor(arguments).await;
        assert_eq!(outcome.code, code, "{arguments:?}: {}", outcome.err);
        assert!(
            outcome.err.contains(expected),
            "{arguments:?}: {}",
            outcome.err
        );
    }
    // A server that requires another key gets no further requests.
    let locked = Script::new().json("401 Unauthorized", r#"{"error":"Unauthorized"}"#);
    let engine = Engine::script(locked.clone()).await;
    engine.set_models(locked);
    let outcome = examine(&engine, &["--json"]).await;
    assert_eq!(
        (outcome.code, outcome.severity("key").as_str()),
        (1, "broken")
    );
    assert_eq!(engine.attempt_count(), 0);
}
