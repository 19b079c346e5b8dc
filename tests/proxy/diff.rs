//! `samewire diff --ask`: the same request to two servers.

use crate::sim::prelude::*;
use std::path::PathBuf;
use std::process::{Command, Output};

const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}"#;

/// Text whose finish comes together with its last piece.
fn merged() -> Script {
    let chunk = |delta: &str, finish: &str| {
        format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}]}}"#
        )
    };
    Script::new()
        .head_sse()
        .ev(&chunk(r#"{"role":"assistant"}"#, "null"))
        .ev(&chunk(r#"{"content":"Hel"}"#, "null"))
        .ev(&chunk(r#"{"content":"lo"}"#, "\"stop\""))
        .done()
        .end()
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("samewire-ask-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

async fn ask(request: &PathBuf, servers: [&str; 2], more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command.arg("diff").arg("--ask").arg(request).args(servers).args(more);
    // The engines run on the test's own thread.
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

#[tokio::test]
async fn two_servers_are_asked_the_same() {
    let world = World::start(merged(), Setup::new()).await;
    let (engine, proxy) =
        (format!("http://{}", world.engine.address), format!("http://{}/v1", world.proxy()));
    let recorded = format!(r#"{{"method":"POST","path":"/v1/chat/completions","body":{BODY}}}"#);
    for request in [file("body.json", BODY), file("recorded.json", &recorded)] {
        let output = ask(&request, [&engine, &proxy], &["--json"]).await;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&report["a"], &report["b"]), (&Value::from(engine.clone()), &Value::from(proxy.clone())));
        let shape = report["pairs"][0]["shape"].as_array().unwrap();
        assert!(shape.iter().any(|one| one["path"].as_str().unwrap().contains("finish_reason")), "{report}");
        let same = ask(&request, [&proxy, &proxy], &[]).await;
        assert_eq!(same.status.code(), Some(0), "{same:?}");
        std::fs::remove_file(request).unwrap();
    }
    for attempt in world.engine.attempts() {
        let body = attempt.json();
        assert_eq!(body["messages"][0]["content"], "hi");
    }
    world.end().await;
}

#[tokio::test]
async fn keys_are_sent_and_never_printed_and_mistakes_are_named() {
    let engine = Engine::script(merged()).await;
    let url = format!("http://{}", engine.address);
    let request = file("keyed.json", BODY);
    let key = file("key.txt", KEY);
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let key_file = key.to_str().unwrap();
    let output = ask(&request, [&url, &url], &["--key-file", key_file, "--header", "x-more: yes"]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!format!("{output:?}").contains(KEY));
    let attempts = engine.attempts();
    assert_eq!(attempts.len(), 2);
    for attempt in attempts {
        assert_eq!(attempt.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
        assert_eq!(attempt.header("x-more"), Some("yes"));
    }
    let wrong = file("wrong.json", r#"{"model":"m"}"#);
    for (request, server, code, words) in [
        (&wrong, url.as_str(), 2, "must have `messages`, `input` or `prompt`"),
        (&request, "nonsense", 2, "is not a URL"),
        (&request, "http://127.0.0.1:1", 3, "127.0.0.1:1"),
        (&PathBuf::from("/none.json"), url.as_str(), 2, "--ask /none.json"),
    ] {
        let output = ask(request, [&url, server], &[]).await;
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{output:?}");
    }
    for path in [request, key, wrong] {
        std::fs::remove_file(path).unwrap();
    }
}

/// Two answers that broke off alike have the same shape, which does not make them whole.
#[tokio::test]
async fn an_answer_that_broke_off_is_told() {
    let engine = Engine::script(Script::stream().text("Hel").fin()).await;
    let (url, request) = (engine.url(), file("broken.json", BODY));
    let output = ask(&request, [&url, &url], &[]).await;
    let told = String::from_utf8(output.stderr).unwrap();
    let line = format!("{url}: the connection broke before the answer ended.\n");
    assert_eq!((output.status.code(), told), (Some(0), line.repeat(2)));
    let _ = std::fs::remove_file(&request);
}
