//! `samewire replay` as users run it: the built binary serves recorded traffic, alone and behind `samewire serve`.

use crate::sim::prelude::*;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

/// Returns the repository's folder of recordings.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command
        .arg("replay")
        .args(arguments)
        .current_dir(fixtures());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Running `samewire replay` process and its address. Dropping it kills the process.
struct Replay {
    child: Child,
    address: SocketAddr,
    /// Kept open, so that the process can always write its log.
    stderr: BufReader<ChildStderr>,
}

impl Drop for Replay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Replay {
    /// Starts the process in the fixtures' folder and waits until its address is printed.
    fn start(arguments: &[&str]) -> Self {
        let mut child = command(arguments).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let logged: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("not a log line: {line}"));
        assert_eq!(
            (&logged["message"], &logged["listener"]),
            (&json!("listening"), &json!("replay"))
        );
        let address = logged["address"].as_str().unwrap().parse().unwrap();
        Self {
            child,
            address,
            stderr,
        }
    }

    async fn request(&self, request: &Request) -> Answer {
        request.answer(self.address).await
    }
}

/// Recorded scenario, read from its files independently of samewire, for comparison with the replay.
struct Scenario {
    name: String,
    folder: PathBuf,
    request: Value,
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    reset: bool,
}

impl Scenario {
    fn read(name: &str) -> Self {
        let folder = fixtures().join(name);
        let read = |file: &str| std::fs::read(folder.join(file)).ok();
        let body = ["upstream.sse", "upstream.json", "upstream.txt"]
            .into_iter()
            .find_map(read)
            .unwrap();
        let head = String::from_utf8(read("upstream.http").unwrap_or_default()).unwrap();
        let status = head
            .split(' ')
            .nth(1)
            .map_or(200, |status| status.parse().unwrap());
        let fields = head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        let headers = fields
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Self {
            name: name.to_owned(),
            request: serde_json::from_slice(&read("request.json").unwrap()).unwrap(),
            status,
            headers,
            body,
            reset: read("eof").is_some(),
            folder,
        }
    }

    fn all() -> Vec<Self> {
        let folders = ["vllm", "sglang"].into_iter().flat_map(|engine| {
            let entries = std::fs::read_dir(fixtures().join(engine)).unwrap();
            entries.map(move |entry| {
                format!("{engine}/{}", entry.unwrap().file_name().to_str().unwrap())
            })
        });
        folders.map(|name| Self::read(&name)).collect()
    }

    /// Returns the recorded request, with the scenario's name as the model.
    fn named(&self) -> Request {
        let mut body = if self.request["body"].is_object() {
            self.request["body"].clone()
        } else {
            json!({})
        };
        body["model"] = self.name.as_str().into();
        Request::post(self.request["path"].as_str().unwrap(), body.to_string())
    }

    /// Returns the canonical answer, if the scenario is a success.
    fn golden(&self) -> Option<String> {
        let names = [
            "chat.sse",
            "chat.json",
            "completions.sse",
            "completions.json",
        ];
        names
            .into_iter()
            .find_map(|name| std::fs::read_to_string(self.folder.join(name)).ok())
    }
}

/// Returns a request that names no scenario.
fn unnamed(path: &str, model: &str, stream: bool) -> Request {
    let message = json!({"role": "user", "content": "a"});
    let body = json!({"model": model, "messages": [message], "prompt": "a", "stream": stream});
    Request::post(path, body.to_string())
}

#[tokio::test]
async fn every_scenario_comes_back_byte_for_byte() {
    let replay = Replay::start(&["vllm", "sglang"]);
    let all = Scenario::all();
    assert!(all.len() > 150, "the scenarios are there");
    for scenario in &all {
        let answer = replay.request(&scenario.named()).await;
        let name = &scenario.name;
        assert_eq!(answer.head.status, scenario.status, "{name}");
        assert!(
            answer.body == scenario.body,
            "{name}: {}",
            String::from_utf8_lossy(&answer.body)
        );
        let ended = match (
            scenario.reset,
            scenario.folder.join("upstream.sse").is_file(),
        ) {
            (true, _) => Ended::Short,
            (false, true) => Ended::LastChunk,
            (false, false) => Ended::Length,
        };
        assert_eq!(answer.ended, ended, "{name}");
        for (header, value) in &scenario.headers {
            if !["content-length", "transfer-encoding", "connection"].contains(&header.as_str()) {
                assert_eq!(answer.head.header(header), Some(value.as_str()), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn behind_the_proxy_every_kind_of_answer_is_as_kept() {
    let replay = Replay::start(&["vllm", "sglang"]);
    let samewire =
        Samewire::start(&Setup::new().upstream(&format!("http://{}", replay.address))).await;
    for name in [
        "vllm/reasoning",
        "sglang/reasoning",
        "vllm/tool",
        "sglang/tool",
        "vllm/text-usage",
        "sglang/text-usage",
        "vllm/n2",
        "sglang/n2-tool",
        "vllm/reasoning-whole",
        "sglang/tool-whole",
        "vllm/logprobs",
        "sglang/emoji",
        "vllm/completions-usage",
        "sglang/completions-n2",
        "vllm/gptoss-tool",
        "sglang/engine-killed-reset",
    ] {
        let scenario = Scenario::read(name);
        let answer = scenario.named().answer(samewire.proxy).await;
        assert_eq!(answer.head.status, 200, "{name}: {}", answer.text());
        assert_eq!(answer.text(), scenario.golden().unwrap(), "{name}");
    }
    for name in ["vllm/error-too-long", "sglang/error-too-long"] {
        let scenario = Scenario::read(name);
        let answer = scenario.named().answer(samewire.proxy).await;
        let kept = std::fs::read_to_string(scenario.folder.join("error.json")).unwrap();
        assert_eq!(
            format!("HTTP {}\n{}\n", answer.head.status, answer.text()),
            kept,
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_reset_is_a_reset() {
    let replay = Replay::start(&["sglang/engine-killed-reset"]);
    let answer = replay
        .request(&unnamed(
            "/v1/chat/completions",
            "engine-killed-reset",
            true,
        ))
        .await;
    assert_eq!(answer.ended, Ended::Short, "the body has no end");
    assert!(
        answer.body == Scenario::read("sglang/engine-killed-reset").body,
        "all of it came"
    );
    let samewire =
        Samewire::start(&Setup::new().upstream(&format!("http://{}", replay.address))).await;
    let canonical = unnamed("/v1/chat/completions", "any", true)
        .answer(samewire.proxy)
        .await;
    assert!(
        canonical.text().contains("upstream_incomplete"),
        "{}",
        canonical.text()
    );
}

#[tokio::test]
async fn scenarios_are_found_by_name_and_else_by_what_is_asked() {
    let replay = Replay::start(&["vllm", "sglang"]);
    let chat = "/v1/chat/completions";
    let body = |name: &str| Scenario::read(name).body;
    // The end of a name is enough if only one scenario ends that way.
    let answer = replay.request(&unnamed(chat, "gptoss-twice", true)).await;
    assert!(
        answer.body == body("vllm/gptoss-twice"),
        "{}",
        answer.text()
    );
    let answer = replay
        .request(&unnamed(chat, "tool", true))
        .await
        .with_status(400);
    assert!(
        answer.text().contains("vllm/tool, sglang/tool"),
        "{}",
        answer.text()
    );
    // A part of a word, or an empty text, is not accepted as the end of a name.
    for (model, stream, found) in [
        ("wice", true, "vllm/client-request-id"),
        ("", true, "vllm/client-request-id"),
        ("tiny-qwen3", false, "vllm/cached-tokens-whole"),
    ] {
        let answer = replay.request(&unnamed(chat, model, stream)).await;
        assert!(answer.body == body(found), "{model}: {}", answer.text());
    }
    let answer = replay.request(&unnamed("/v1/completions", "m", true)).await;
    assert!(answer.body == body("vllm/completions"), "{}", answer.text());
    // No recording for this route.
    let answer = replay
        .request(&unnamed("/v1/rerank", "m", false))
        .await
        .with_status(404);
    assert!(
        answer
            .text()
            .contains("POST /v1/rerank with stream = false"),
        "{}",
        answer.text()
    );
    let answer = replay
        .request(&unnamed("/v1/completions", "vllm/tool", true))
        .await
        .with_status(400);
    assert!(
        answer.text().contains("/v1/chat/completions"),
        "{}",
        answer.text()
    );
    replay
        .request(&Request::get("/v1/nowhere"))
        .await
        .with_status(404);
}

#[tokio::test]
async fn it_answers_what_is_asked_of_an_engine() {
    for (path, owner, version) in [("vllm", "vllm", 200), ("sglang", "sglang", 404)] {
        let replay = Replay::start(&[path]);
        let models = replay.request(&Request::get("/v1/models")).await;
        let models = models.json();
        let tool = models["data"]
            .as_array()
            .unwrap()
            .iter()
            .find(|model| model["id"] == format!("{path}/tool"));
        assert_eq!(tool.unwrap()["owned_by"], owner);
        assert_eq!(models["object"], "list");
        assert_eq!(
            replay.request(&Request::get("/version")).await.head.status,
            version
        );
        let health = replay.request(&Request::get("/health")).await;
        assert_eq!((health.head.status, health.body.len()), (200, 0));
    }
}

#[tokio::test]
async fn frames_are_written_one_by_one_at_the_pace_that_is_asked_for() {
    // So slow that the first frame is read long before the second is written.
    let replay = Replay::start(&["vllm/reasoning", "--pace", "1m"]);
    let body = Scenario::read("vllm/reasoning").body;
    let first = body.windows(2).position(|two| two == b"\n\n").unwrap() + 2;
    let mut client = unnamed("/v1/chat/completions", "reasoning", true)
        .begin(replay.address)
        .await;
    assert!(client.piece().await == Some(body[..first].to_vec()));
}

#[tokio::test]
async fn other_layouts_of_captures_are_read() {
    let folder = Folder::new();
    let write = |path: &str, text: &str| folder.file(&format!("vllm-9.9/{path}"), text);
    let request = r#"{"path":"/v1/chat/completions","body":{"stream":true}}"#;
    write("plain/request.json", request);
    write(
        "plain/response.http",
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 7\r\nContent-Length: 99\r\n",
    );
    write("plain/response.txt", "no");
    write("bare/request.json", request);
    write("bare/upstream.sse", "data: [DONE]\r\n\r\n");
    write(
        "bare/rewrite.json",
        r#"{"engine":"vllm","version":"0.33.0","max_event_bytes":4194304}"#,
    );
    write("bare/timing.txt", "# ms, bytes\r\n1.5 16\r\n");
    let replay = Replay::start(&[folder.path("vllm-9.9").to_str().unwrap()]);
    let answer = replay
        .request(&unnamed("/v1/chat/completions", "vllm-9.9/plain", true))
        .await;
    assert_eq!((answer.head.status, answer.text()), (503, "no"));
    assert_eq!(answer.head.header("retry-after"), Some("7"));
    let answer = replay
        .request(&unnamed("/v1/chat/completions", "bare", true))
        .await;
    assert_eq!(
        (answer.head.status, answer.text()),
        (200, "data: [DONE]\r\n\r\n")
    );
    assert_eq!(
        answer.head.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    let models = replay.request(&Request::get("/v1/models")).await;
    assert!(
        models.text().contains(r#""owned_by":"vllm""#),
        "{}",
        models.text()
    );
    let version = replay.request(&Request::get("/version")).await;
    assert_eq!(version.text(), r#"{"version":"0.33.0"}"#);
}

#[test]
fn mistakes_are_told() {
    let folder = Folder::new();
    let write = |path: &str, text: &str| folder.file(path, text);
    write("no-path/request.json", "{}");
    write("no-path/upstream.sse", "");
    write("no-body/request.json", r#"{"path":"/a"}"#);
    write("bad-eof/request.json", r#"{"path":"/a"}"#);
    write("bad-eof/upstream.json", "{}");
    write("bad-eof/eof", "maybe");
    write(
        "misspelt/request.json",
        "{\"path\":\"/a\",\n\"methd\":\"GET\"}",
    );
    write("misspelt/upstream.sse", "");
    for (name, file, text) in [
        ("bad-timing", "timing.txt", "# ms, bytes\n1.5 6\nsoon 4\n"),
        ("cut", "timing.txt", "1.5 6\n2.5 12\n"),
        ("two-bodies", "upstream.json", "{}"),
        (
            "bad-route",
            "rewrite.json",
            "{\"engine\":\"vllm\",\n\"max_event_bytes\":1,\n\"optoins\":{}}",
        ),
        (
            "bad-head",
            "upstream.http",
            "HTTP/1.1 200 OK\r\nnonsense\r\n",
        ),
        ("other-bytes", "request.bin", "other"),
    ] {
        write(
            &format!("{name}/request.json"),
            r#"{"path":"/a","body_raw":"some"}"#,
        );
        write(&format!("{name}/upstream.sse"), "data: a\n\nda");
        write(&format!("{name}/{file}"), text);
    }
    std::fs::create_dir_all(folder.path("empty/below")).unwrap();
    let at = |name: &str| folder.path(name).to_str().unwrap().to_owned();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    for (arguments, code, expected) in [
        (&[at("missing")][..], 3, "missing: No such file"),
        (&[at("empty")], 2, "empty: no scenario is there"),
        (&[at("no-path")], 2, "no-path/request.json: path: missing"),
        (
            &[at("no-body")],
            2,
            "no-body: the engine's answer is missing",
        ),
        (
            &[at("bad-eof")],
            2,
            "bad-eof/eof: it must hold the word reset",
        ),
        (
            &[at("misspelt")],
            2,
            "misspelt/request.json: line 2: methd: unknown; is method meant?",
        ),
        (
            &[at("bad-timing")],
            2,
            "bad-timing/timing.txt: line 3: it must be milliseconds and a number of bytes",
        ),
        (
            &[at("cut")],
            2,
            "cut/upstream.sse: line 3: it ends here with 11 bytes, and the reads in timing.txt have 18",
        ),
        (
            &[at("two-bodies")],
            2,
            "two-bodies/upstream.json: upstream.sse is there as well",
        ),
        (
            &[at("bad-route")],
            2,
            "bad-route/rewrite.json: unknown field `optoins`",
        ),
        (
            &[at("bad-head")],
            2,
            "bad-head/upstream.http: line 2: it must be a header",
        ),
        (
            &[at("other-bytes")],
            2,
            "other-bytes/request.bin: it is not the body_raw of request.json",
        ),
        (
            &["vllm/tool".into(), "sglang/tool".into()],
            2,
            "two scenarios are named tool: ",
        ),
        (
            &["vllm".into(), "--listen".into(), port],
            3,
            "cannot listen on 127.0.0.1:",
        ),
        (
            &["vllm".into(), "--listen".into(), "nowhere".into()],
            2,
            "--listen",
        ),
        (&[], 2, "PATH"),
    ] {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let output = command(&arguments).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(told.contains(expected), "{arguments:?}: {told}");
    }
}

#[test]
fn signals_end_it() {
    for signal in ["TERM", "INT"] {
        let mut replay = Replay::start(&["vllm/tool"]);
        let pid = replay.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([&format!("-{signal}"), &pid])
                .status()
                .unwrap()
                .success()
        );
        let start = Instant::now();
        let status = loop {
            match replay.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(start.elapsed() < PATIENCE, "SIG{signal} does not end it"),
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        assert_eq!(status.code(), Some(0), "SIG{signal}");
    }
}

#[test]
fn help_explains_itself() {
    let output = command(&["--help"])
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    for word in [
        "PATH",
        "--listen",
        "--pace",
        "request.json",
        "samewire serve --upstream",
        "Exit codes",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
}
