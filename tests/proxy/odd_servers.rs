//! `doctor`, `conform` and `diff --ask` against servers that are old, busy, locked, somewhere else, slow, or none.

use crate::conform::{Outcome, conform, recorded, run};
use crate::doctor::{doctor, examine};
use crate::sim::prelude::*;
use crate::sim::tls::{Authority, Tunnel};
use std::process::Command;

const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

/// Returns an answer whose head does not name the server, as behind a gateway.
fn nameless(status: &str, body: &str) -> Script {
    let length = body.len();
    Script::new().raw(format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    ))
}

/// Runs `diff --ask` for one server on both sides.
async fn ask(url: &str) -> Outcome {
    let folder = Folder::new();
    let request = folder.file("request.json", CHAT);
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command
        .args(["diff", "--ask"])
        .arg(request)
        .args([url, url]);
    command.args(["--header", "authorization: Bearer sk-CANARY-12345"]);
    run(command).await
}

#[tokio::test]
async fn an_old_vllm_is_not_taken_for_the_front_end_in_rust() {
    let chunk = |finish: &str| {
        format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{{"content":"a"}}{finish}}}]}}"#
        )
    };
    for (finish, front, is_rust) in [
        (r#","finish_reason":null"#, "own", false),
        ("", "rust", true),
    ] {
        let engine = Engine::script(Script::new().head_sse().ev(&chunk(finish)).stop()).await;
        let models = r#"{"object":"list","data":[{"id":"m","owned_by":"vllm"}]}"#;
        engine.set_models(nameless("200 OK", models));
        // A gateway answers in its own way, and hides the version.
        for route in ["/version", "/v1/responses"] {
            engine.set_route(route, nameless("404 Not Found", ""));
        }
        let told = examine(&engine, &["--json"]).await.json();
        assert_eq!(
            (&told["engine"], &told["front_end"]),
            (&"vllm".into(), &front.into()),
            "{told}"
        );
        let table = examine(&engine, &[]).await.out;
        assert!(table.contains("has no    /v1/responses\n"), "{table}");
        let front = if is_rust {
            "(front end in Rust)"
        } else {
            "(front end in Python)"
        };
        assert!(table.starts_with(&format!("vllm {front}")), "{table}");
    }
}

#[tokio::test]
async fn redirects_name_their_target() {
    let lines = "location: https://elsewhere.example/v1/chat/completions\r\n";
    let moved = Script::new().whole_with(
        "308 Permanent Redirect",
        "text/html",
        lines,
        "<html>moved</html>",
    );
    let engine = Engine::script(moved.clone()).await;
    engine.set_models(moved);
    let url = engine.url();
    let words = [
        "status 308",
        "https://elsewhere.example/v1/chat/completions",
        "use that address as URL, without /chat/completions",
    ];
    let outcome = examine(&engine, &["--json"]).await;
    let told = outcome.json();
    let found: Vec<_> = told["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["severity"] == "broken")
        .collect();
    assert!(found.len() == 1 && found[0]["id"] == "stream", "{found:?}");
    assert_eq!(
        (outcome.code, engine.attempt_count()),
        (1, 1),
        "{}",
        outcome.err
    );
    let tested = conform(&[&url, "--json", "--only", "chat-stream"]).await;
    let row = tested
        .rows("fail")
        .into_iter()
        .find(|row| row.starts_with("chat-stream-status"))
        .unwrap();
    let compared = ask(&url).await;
    assert_eq!(
        (compared.code, compared.out.as_str()),
        (3, ""),
        "{}",
        compared.err
    );
    for text in [found[0]["says"].as_str().unwrap(), &row, &compared.err] {
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}

#[tokio::test]
async fn the_target_of_a_redirect_shows_no_key_and_steers_no_terminal() {
    let lines = "location: http://a/?key=sk-CANARY-12345\r\n";
    let moved = Script::new().whole_with("302 Found", "text/html", lines, "");
    let engine = Engine::script(moved).await;
    let told = ask(&engine.url()).await.err;
    assert!(
        told.contains("status 302") && told.contains("[redacted]") && !told.contains("CANARY"),
        "{told}"
    );
    let lines = "location: http://a/\u{1b}[2J\u{e9}\r\n";
    let moved =
        Script::new().whole_with("302 Found", "text/html", &lines.replace('\u{1b}', "\t"), "");
    let engine = Engine::script(moved).await;
    let told = ask(&engine.url()).await.err;
    assert!(
        told.contains("\\t[2J") && !told.trim_end().contains(char::is_control),
        "{told:?}"
    );
}

/// PHP and .NET escape characters in JSON that a key may have.
#[tokio::test]
async fn a_key_is_not_shown_however_a_server_spells_it() {
    let refused = r#"{"error":{"message":"CANARY\/12+45 CANARY/12\u002B45 {\"a\":\"CANARY\\/12\\u002b45\"}"}}"#;
    let engine = Engine::script(Script::new().json("400 Bad Request", refused)).await;
    let folder = Folder::new();
    let save = folder.folder();
    let key = [
        "--header",
        "authorization: Bearer CANARY/12+45",
        "--save",
        save.to_str().unwrap(),
    ];
    for form in [&["--json"][..], &[]] {
        let outcome = examine(&engine, &[form, &key].concat()).await;
        assert!(
            !outcome.out.contains("CANARY") && outcome.out.contains("*********"),
            "{}",
            outcome.out
        );
    }
    let saved = std::fs::read_to_string(save.join("chat-whole/upstream.json")).unwrap();
    assert!(
        !saved.contains("CANARY") && serde_json::from_str::<Value>(&saved).is_ok(),
        "{saved}"
    );
}

#[tokio::test]
async fn busy_servers_are_asked_twice() {
    for (status, lines, when) in [
        (
            "429 Too Many Requests",
            "retry-after: 7\r\n",
            "(status 429, retry-after: 7)",
        ),
        (
            "503 Service Unavailable",
            "",
            "(status 503, without retry-after)",
        ),
    ] {
        let body = r#"{"error":{"message":"busy"}}"#;
        let busy = Script::new().whole_with(status, "application/json", lines, body);
        let engine = Engine::script(busy.clone()).await;
        let outcome = examine(&engine, &["--json"]).await;
        assert_eq!(
            (outcome.code, engine.attempt_count()),
            (1, 2),
            "{}",
            outcome.err
        );
        let told = outcome.json();
        let stopped = format!("the server takes no more requests for now {when}");
        assert_eq!(told["stopped"], stopped.as_str());
        assert_eq!(told["advice"]["config"], "");
        assert_eq!(outcome.severity("models-list"), "fine");
        let table = examine(&engine, &[]).await.out;
        let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains(&format!("Not asked, because {stopped}: chat-whole, ")),
            "{table}"
        );

        let engine = Engine::script(busy).await;
        let url = engine.url();
        let outcome = conform(&[&url, "--json"]).await;
        assert_eq!(
            (outcome.code, engine.attempt_count()),
            (1, 2),
            "{}",
            outcome.err
        );
        let told = outcome.json();
        assert_eq!(told["stopped"], stopped.as_str());
        assert!(
            outcome.rows("pass").len() == 5 && outcome.rows("not_asked").len() > 80,
            "{}",
            told["counts"]
        );
        let table = conform(&[&url]).await.out;
        let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains(&format!("Not asked, because {stopped}: chat-whole, ")),
            "{table}"
        );
        assert!(words.contains(" not asked (http"), "{table}");
        assert!(table.lines().count() < 70, "{table}");
    }
}

/// One refusal between others is no reason to stop.
#[tokio::test]
async fn a_server_that_is_busy_now_and_then_is_asked_on() {
    let busy = || Script::new().json("429 Too Many Requests", r#"{"error":{"message":"busy"}}"#);
    let engine = Engine::answering(move |attempt| match () {
        () if attempt.text().contains("\"stop\":[") => busy(),
        () if attempt.text().contains("\"stream\":true") => recorded("vllm/text-usage"),
        () => recorded("vllm/text-whole"),
    })
    .await;
    let outcome = examine(&engine, &["--json"]).await;
    assert_eq!(outcome.json()["stopped"], Value::Null, "{}", outcome.out);
}

#[tokio::test]
async fn addresses_of_other_servers_are_named_in_one_line() {
    let page = Script::new().whole(
        "200 OK",
        "text/html; charset=utf-8",
        "<html>\n<title>Welcome</title></html>",
    );
    let none = Script::new().json("404 Not Found", r#"{"detail":"Not Found"}"#);
    let status = Script::ok(r#"{"status":"ok"}"#);
    let models = Script::ok(r#"{"object":"list","data":[{"id":"m"}]}"#);
    for (script, gave) in [
        (page, "gave 200 text/html; charset=utf-8 <html>\\n<title>"),
        (none.clone(), "gave 404 application/json {\"detail\""),
        (status, "gave 200 application/json {\"status\""),
    ] {
        let engine = Engine::script(script.clone()).await;
        engine.set_models(script);
        let url = engine.url();
        let line = format!(
            "{url} is not the address of an OpenAI-compatible server: GET /v1/models {gave}"
        );
        let examined = examine(&engine, &[]).await;
        let tested = conform(&[&url]).await;
        let named = conform(&[&url, "--model", "m", "--only", "chat-whole"]).await;
        for Outcome { code, out, err } in [examined, tested, named] {
            assert_eq!((code, out.as_str()), (3, ""), "{err}");
            // The first line names the server and the request.
            assert_eq!(err.lines().count(), 2, "{err}");
            assert!(err.contains(&line), "{err}");
        }
    }
    // The API is there, but without /v1.
    let engine = Engine::script(none.clone()).await;
    engine.set_models(none.clone());
    engine.set_route("/models", models);
    let url = engine.url();
    let hint = format!("GET {url}/models lists models: this API has no /v1");
    let told = conform(&[&url]).await.err;
    assert!(told.contains(&hint), "{told}");
    // The API is there, but the URL has a path.
    let engine = Engine::script(none).await;
    let url = engine.url();
    let told = doctor(&[&format!("{url}/docs"), "--idle", "100ms"])
        .await
        .err;
    assert!(told.contains(&format!("use {url} as URL")), "{told}");
}

/// A server that does not know the model is one.
#[tokio::test]
async fn an_unknown_model_is_no_wrong_address() {
    let unknown = r#"{"error":{"message":"The model `n` does not exist.","type":"NotFoundError","param":"model","code":404}}"#;
    let unknown = Script::new().json("404 Not Found", unknown);
    let engine = Engine::script(unknown.clone()).await;
    engine.set_models(unknown);
    let outcome = examine(&engine, &["--model", "n", "--json"]).await;
    assert_eq!(outcome.code, 1, "{}", outcome.err);
    assert_eq!(outcome.severity("stream"), "broken");
}

#[tokio::test]
async fn a_refused_key_is_one_finding_without_a_configuration() {
    let locked = Script::new().json("401 Unauthorized", r#"{"error":{"message":"no key"}}"#);
    for is_list_open in [true, false] {
        let engine = Engine::script(locked.clone()).await;
        if !is_list_open {
            engine.set_models(locked.clone());
        }
        let told = examine(&engine, &["--json"]).await.json();
        let found = told["findings"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["severity"] == "broken");
        assert_eq!(found.map(|one| &one["id"]).collect::<Vec<_>>(), ["key"]);
        assert_eq!(told["advice"]["config"], "");
        let table = examine(&engine, &[]).await.out;
        assert!(
            !table.contains("samewire.toml") && !table.contains("[[upstream]]"),
            "{table}"
        );
    }
}

#[tokio::test]
async fn routes_that_stall_are_not_waited_for_one_after_the_other() {
    let engine = Engine::script(recorded("vllm/text-whole")).await;
    engine.set_models(Script::ok(r#"{"object":"list","data":[{"id":"m"}]}"#));
    let stall = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    for route in [
        "/metrics",
        "/server_info",
        "/get_server_info",
        "/props",
        "/api/version",
        "/version",
    ] {
        engine.set_route(route, Script::new().raw(stall).hang());
    }
    let started = Instant::now();
    let outcome = examine(&engine, &["--json"]).await;
    assert_eq!(outcome.json()["stopped"], Value::Null, "{}", outcome.out);
    // The second is the look at the load, before the stream that is cut off.
    let stalled = engine
        .probes()
        .iter()
        .filter(|probe| !probe.target.starts_with("/v1/"))
        .count();
    assert!(stalled <= 2, "{stalled}");
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn wrong_key_files_and_times_are_named() {
    let folder = Folder::new();
    let file = |name: &str, text: &str| folder.write(name, text).display().to_string();
    let two = file("two.txt", "sk-CANARY-1\nsk-CANARY-2\n");
    let long = file("long.txt", &"x".repeat(3 << 20));
    let (request, url) = (folder.file("request.json", CHAT), "http://127.0.0.1:1");
    for command in [
        &["doctor", url][..],
        &["conform", url],
        &["diff", "--ask", &request, url, url],
    ] {
        for (flag, value, words) in [
            (
                "--key-file",
                two.as_str(),
                "--key-file: the file has several lines; it must hold the key alone",
            ),
            (
                "--key-file",
                &long,
                "--key-file: the file is too long for a key",
            ),
            ("--timeout", "0", "longer than 0 and up to 10m"),
        ] {
            let mut samewire = Command::new(env!("CARGO_BIN_EXE_samewire"));
            samewire.args(command).args([flag, value]);
            let Outcome { code, out, err } = run(samewire).await;
            assert_eq!((code, out.as_str()), (2, ""), "{command:?} {flag}: {err}");
            assert!(
                err.contains(words) && !err.contains("CANARY"),
                "{command:?} {flag}: {err}"
            );
        }
    }
    let idle = doctor(&[url, "--idle", "0"]).await;
    assert!(
        idle.code == 2 && idle.err.contains("longer than 0 and up to 10m"),
        "{}",
        idle.err
    );
    // Without --ask there is no server that such a flag is about.
    let mut samewire = Command::new(env!("CARGO_BIN_EXE_samewire"));
    samewire.args(["diff", "a", "b", "--key-file", &two]);
    let Outcome { code, err, .. } = run(samewire).await;
    assert!(code == 2 && err.contains("--ask <FILE>"), "{err}");
}

#[tokio::test]
async fn models_without_a_name_are_left_out() {
    for (list, model, is_nameless) in [
        (
            r#"{"object":"list","data":[{"id":""},{"id":" "},{"id":"b"}]}"#,
            "b",
            false,
        ),
        (r#"{"object":"list","data":[{"id":""}]}"#, "default", true),
    ] {
        let engine = Engine::script(recorded("vllm/text-whole")).await;
        engine.set_models(Script::ok(list));
        let url = engine.url();
        let outcome = examine(&engine, &["--json"]).await;
        assert_eq!(outcome.json()["model"], model);
        let says = outcome.check("models-list")["says"]
            .as_str()
            .unwrap()
            .to_owned();
        assert_eq!(
            says.contains("none of them has a name"),
            is_nameless,
            "{says}"
        );
        let outcome = conform(&[&url, "--json", "--only", "chat-whole"]).await;
        let report = outcome.json();
        assert_eq!(report["model"], model);
        let says = "No model of the server's list has a name; default was asked.";
        assert_eq!(outcome.err.contains(says), is_nameless, "{}", outcome.err);
        let asked = engine.attempts().last().unwrap().json();
        assert_eq!(asked["model"], model);
    }
}

/// A certificate that is its own authority counts for the names that it has.
#[tokio::test]
async fn certificates_of_authorities_are_taken_for_their_names() {
    let engine = Engine::script(recorded("vllm/text-whole")).await;
    for (authority, is_named) in [
        (Authority::new("tests"), false),
        (Authority::for_host("localhost", 9), true),
    ] {
        let folder = Folder::new();
        let tunnel = Tunnel::out_of_tls(engine.address, authority.own().server(None)).await;
        let ca = folder.write("ca.pem", &authority.pem());
        let outcome = conform(&[
            &tunnel.url(),
            "--only",
            "chat-whole",
            "--ca-file",
            ca.to_str().unwrap(),
        ])
        .await;
        assert_eq!(outcome.code == 3, !is_named, "{}", outcome.err);
        assert_eq!(
            outcome.err.contains("certificate not valid for name"),
            !is_named,
            "{}",
            outcome.err
        );
    }
}

#[tokio::test]
async fn an_interrupt_of_conform_prints_partial_results() {
    let engine = Engine::script(Script::new().hang()).await;
    let url = engine.url();
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command
        .args(["conform", &url, "--json"])
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
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["stopped"], "it was interrupted");
    assert_eq!(report["counts"]["pass"], 3);
}
