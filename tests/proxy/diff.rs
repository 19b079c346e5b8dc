//! `samewire diff --ask`: the same request to two servers.

use crate::conform::{Outcome, run};
use crate::sim::prelude::*;
use std::process::Command;

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

async fn ask(request: &str, servers: [&str; 2], more: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command
        .arg("diff")
        .arg("--ask")
        .arg(request)
        .args(servers)
        .args(more);
    run(command).await
}

#[tokio::test]
async fn two_servers_are_asked_the_same() {
    let world = World::start(merged(), Setup::new()).await;
    let (engine, proxy) = (
        format!("http://{}", world.engine.address),
        format!("http://{}/v1", world.proxy()),
    );
    let recorded = format!(r#"{{"method":"POST","path":"/v1/chat/completions","body":{BODY}}}"#);
    let folder = Folder::new();
    for text in [BODY, &recorded] {
        let request = folder.file("request.json", text);
        let output = ask(&request, [&engine, &proxy], &["--json"]).await;
        assert_eq!(output.code, 1, "{}", output.err);
        let report = output.json();
        assert_eq!(
            (&report["a"], &report["b"]),
            (&Value::from(engine.clone()), &Value::from(proxy.clone()))
        );
        let shape = report["pairs"][0]["shape"].as_array().unwrap();
        assert!(
            shape
                .iter()
                .any(|one| one["path"].as_str().unwrap().contains("finish_reason")),
            "{report}"
        );
        let same = ask(&request, [&proxy, &proxy], &[]).await;
        assert_eq!(same.code, 0, "{}", same.err);
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
    let folder = Folder::new();
    let (request, key) = (
        folder.file("keyed.json", BODY),
        folder.write("key.txt", KEY),
    );
    let more = [
        "--key-file",
        key.to_str().unwrap(),
        "--header",
        "x-more: yes",
    ];
    let Outcome { code, out, err } = ask(&request, [&url, &url], &more).await;
    assert_eq!(code, 0, "{err}");
    assert!(!out.contains(KEY) && !err.contains(KEY));
    let attempts = engine.attempts();
    assert_eq!(attempts.len(), 2);
    for attempt in attempts {
        assert_eq!(
            attempt.header("authorization"),
            Some(format!("Bearer {KEY}").as_str())
        );
        assert_eq!(attempt.header("x-more"), Some("yes"));
    }
    let wrong = folder.file("wrong.json", r#"{"model":"m"}"#);
    for (request, server, code, words) in [
        (
            wrong.as_str(),
            url.as_str(),
            2,
            "must have `messages`, `input` or `prompt`",
        ),
        (&request, "nonsense", 2, "is not a URL"),
        (&request, "http://127.0.0.1:1", 3, "127.0.0.1:1"),
        ("/none.json", url.as_str(), 2, "--ask /none.json"),
    ] {
        let output = ask(request, [&url, server], &[]).await;
        assert_eq!(output.code, code, "{}", output.err);
        assert!(output.err.contains(words), "{}", output.err);
    }
}

/// Two answers that broke off alike have the same shape, which does not make them whole.
#[tokio::test]
async fn an_answer_that_broke_off_is_told() {
    let engine = Engine::script(Script::stream().text("Hel").fin()).await;
    let (url, folder) = (engine.url(), Folder::new());
    let output = ask(&folder.file("broken.json", BODY), [&url, &url], &[]).await;
    let line = format!("{url}: the connection broke before the answer ended.\n");
    assert_eq!((output.code, output.err), (0, line.repeat(2)));
}
