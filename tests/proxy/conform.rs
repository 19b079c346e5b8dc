//! `samewire conform` as users run it: against samewire in front of engines of each recorded shape, against such an
//! engine itself, and against servers that stall, flood or send garbage.

use crate::replay::fixtures;
use crate::sim::prelude::*;
use crate::sim::refusing;
use crate::sim::tls::{Authority, file_key_line};
use std::process::Command;

/// Result of a command: exit code, standard output, standard error.
pub struct Outcome {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Outcome {
    /// Returns the rows with a verdict, by the JSON on standard output.
    pub fn rows(&self, verdict: &str) -> Vec<String> {
        let report = self.json();
        let rows = report["rows"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|row| row["verdict"] == verdict);
        rows.map(|row| format!("{}: {}", row["id"].as_str().unwrap(), row["detail"]))
            .collect()
    }

    /// Returns the report on standard output.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{}{}", self.out, self.err))
    }

    /// Returns the check of the doctor with this id, by the JSON on standard output.
    pub fn check(&self, id: &str) -> Value {
        let report = self.json();
        let found = report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|finding| finding["id"] == id);
        found
            .unwrap_or_else(|| panic!("no {id}: {}", self.out))
            .clone()
    }

    /// Returns the severity of this check.
    pub fn severity(&self, id: &str) -> String {
        self.check(id)["severity"].as_str().unwrap().to_owned()
    }
}

/// Runs the command with these arguments.
pub async fn conform(arguments: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command.arg("conform").args(arguments);
    run(command).await
}

/// Runs a command.
pub async fn run(mut command: Command) -> Outcome {
    // The engines run on the test's own thread.
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Outcome {
        code: output.status.code().unwrap(),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// Returns the script of a recording.
pub fn recorded(name: &str) -> Script {
    let folder = fixtures().join(name);
    let sse = folder.join("upstream.sse");
    if sse.exists() {
        return Script::new()
            .head_sse()
            .chunk(std::fs::read(sse).unwrap())
            .raw("0\r\n\r\n");
    }
    let head = std::fs::read_to_string(folder.join("upstream.http")).unwrap();
    let status = head
        .lines()
        .next()
        .unwrap()
        .split_once(' ')
        .unwrap()
        .1
        .to_owned();
    Script::new().json(
        &status,
        &std::fs::read_to_string(folder.join("upstream.json")).unwrap(),
    )
}

/// Starts an engine that answers each request of the suite by a recording of this engine.
async fn engine(kind: &'static str) -> Engine {
    Engine::answering(move |attempt| {
        let body: Value = serde_json::from_slice(&attempt.body).unwrap_or_default();
        let (stream, tools) = (body["stream"] == true, body["tools"].is_array());
        let name = match attempt.target.as_str() {
            _ if body["model"] == "samewire-conform/no-such-model" => {
                return Script::new().json(
                    "404 Not Found",
                    r#"{"error":{"message":"The model does not exist.","type":"NotFoundError","param":"model","code":404}}"#,
                );
            }
            "/v1/completions" if stream => "completions-usage",
            "/v1/completions" => "completions-whole",
            "/v1/chat/completions" => match (stream, tools) {
                (true, true) => "tool",
                (false, true) => "tool-whole",
                (true, false) if body["stream_options"].is_object() => "text-usage",
                (true, false) => "reasoning",
                (false, false) => "text-whole",
            },
            // SGLang calls no function through Responses.
            "/v1/responses" => match (stream, tools) {
                (true, true) if kind == "vllm" => "responses-tool",
                (true, _) => "responses-reasoning",
                (false, _) => "responses-reasoning-whole",
            },
            _ => return Script::new().json("404 Not Found", r#"{"detail":"Not Found"}"#),
        };
        recorded(&format!("{kind}/{name}"))
    })
    .await
}

/// SGLang and llama.cpp take any name for their one model, and so does samewire in front of them.
#[tokio::test]
async fn samewire_passes_in_front_of_an_engine_that_takes_any_name() {
    let engine = Engine::answering(|attempt| {
        let body: Value = serde_json::from_slice(&attempt.body).unwrap_or_default();
        let name = if body["stream"] == true {
            "text-usage"
        } else {
            "unknown-model-accepted"
        };
        recorded(&format!("sglang/{name}"))
    })
    .await;
    let world = World::start(engine, Setup::new()).await;
    let url = format!("http://{}", world.proxy());
    let outcome = conform(&[&url, "--json", "--only", "errors"]).await;
    assert_eq!(
        (outcome.code, outcome.rows("fail")),
        (0, vec![]),
        "{}",
        outcome.err
    );
    let skipped = outcome.rows("skipped");
    assert!(
        skipped.len() == 2 && skipped.iter().all(|row| row.contains("any name")),
        "{skipped:?}"
    );
    world.end().await;
}

#[tokio::test]
async fn samewire_passes_every_row_on_recorded_engines() {
    for kind in ["vllm", "sglang"] {
        let world = World::start(engine(kind), Setup::new()).await;
        let folder = Folder::new();
        let (saved, junit) = (folder.path("saved"), folder.path("junit.xml"));
        let url = format!("http://{}", world.proxy());
        let options = ["--json", "--header", "x-api-key: sk-hidden"];
        let files = [
            "--save",
            saved.to_str().unwrap(),
            "--junit",
            junit.to_str().unwrap(),
        ];
        let outcome = conform(&[&[url.as_str()][..], &options, &files].concat()).await;
        assert_eq!(outcome.rows("fail"), Vec::<String>::new(), "{kind}");
        assert_eq!(outcome.rows("not_offered"), Vec::<String>::new(), "{kind}");
        assert_eq!(outcome.code, 0, "{}", outcome.err);
        assert!(
            outcome.rows("pass").len() > 105,
            "{:?}",
            outcome.rows("skipped")
        );
        assert!(outcome.err.contains("19 requests"), "{}", outcome.err);
        let text = std::fs::read_to_string(junit).unwrap();
        assert_eq!(
            text.matches("<testcase ").count(),
            text.matches("</testcase>").count()
        );
        for name in ["request.json", "upstream.http", "timing.txt", "about.md"] {
            let text = std::fs::read_to_string(saved.join("chat-stream").join(name)).unwrap();
            assert!(!text.contains("sk-hidden"), "{name}: {text}");
        }
        let loaded = samewire::replay::load(&[saved]).unwrap();
        assert_eq!(loaded.len(), 19);
        world.end().await;
    }
}

#[tokio::test]
async fn samewire_passes_with_the_engines_own_responses() {
    for kind in ["vllm", "sglang"] {
        let world = World::start(
            engine(kind),
            Setup::new().upstream_keys("responses = \"native\""),
        )
        .await;
        let url = format!("http://{}", world.proxy());
        let only = ["--only", "responses-stream", "--only", "responses-whole"];
        let outcome =
            conform(&[&[url.as_str(), "--json", "--model", "m"][..], &only].concat()).await;
        assert_eq!(outcome.rows("fail"), Vec::<String>::new(), "{kind}");
        assert_eq!(outcome.rows("not_offered"), Vec::<String>::new(), "{kind}");
        assert!(
            outcome.rows("pass").len() > 20,
            "{kind}: {:?}",
            outcome.rows("skipped")
        );
        world.end().await;
    }
}

#[tokio::test]
async fn servers_with_tls_are_asked_where_their_authority_is_trusted() {
    let (authority, folder) = (Authority::new("tests"), Folder::new());
    let pair = authority.sign("localhost", 300);
    let certificate = folder.write("tls.crt", &pair.certificate);
    let key = folder.write("tls.key", &pair.key);
    let config = format!(
        "[tls]\n{}{}",
        file_key_line("cert_file", &certificate),
        file_key_line("key_file", &key)
    );
    let world = World::start(engine("vllm"), Setup::new().config(&config).allow_errors()).await;
    let url = format!("https://localhost:{}", world.proxy().port());
    let base = [
        url.as_str(),
        "--json",
        "--only",
        "chat-whole",
        "--model",
        "m",
    ];
    let unknown = conform(&base).await;
    assert_eq!(
        (unknown.code, unknown.out.as_str()),
        (3, ""),
        "{}",
        unknown.err
    );
    assert!(unknown.err.contains("--ca-file"), "{}", unknown.err);
    let ca = folder.write("ca.pem", &authority.pem());
    let known = conform(&[&base[..], &["--ca-file", ca.to_str().unwrap()]].concat()).await;
    assert_eq!(known.rows("fail"), Vec::<String>::new());
    assert!(
        known.code == 0 && known.rows("pass").len() > 3,
        "{}",
        known.err
    );
    let missing = conform(&[&base[..], &["--ca-file", "/none.pem"]].concat()).await;
    assert_eq!(missing.code, 3, "{}", missing.err);
    assert!(missing.err.contains("/none.pem"), "{}", missing.err);
    world.end().await;
}

#[tokio::test]
async fn engines_fail_where_they_differ() {
    for (kind, ids) in [
        // vLLM has the status as a number in `code`.
        ("vllm", &["error-unknown-model-shape"][..]),
        // SGLang's time changes; it repeats id and name of a call as null, and gives whole calls an index.
        (
            "sglang",
            &[
                "chat-stream-created",
                "tools-stream-header-once",
                "tools-whole-calls",
            ],
        ),
    ] {
        let engine = engine(kind).await;
        let outcome = conform(&[&engine.url(), "--json", "--model", "m"]).await;
        let failed = outcome.rows("fail");
        for id in ids {
            assert!(
                failed.iter().any(|row| row.starts_with(id)),
                "{kind} {id}: {failed:?}"
            );
        }
        assert_eq!(outcome.code, 1);
        assert!(!outcome.rows("not_offered").is_empty());
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
    for (script, id, timeout) in [
        (flood, "chat-stream-end", "1m"),
        (stall, "chat-stream-end", "1s"),
        (Script::new().hang(), "chat-stream-status", "500ms"),
        (garbage, "chat-stream-framing", "1m"),
        (
            Script::new().raw("\u{1b}[31mnonsense"),
            "chat-stream-status",
            "2s",
        ),
    ] {
        let engine = Engine::script(script).await;
        let base = [
            &engine.url(),
            "--model",
            "m",
            "--only",
            "chat-stream",
            "--timeout",
            timeout,
        ];
        let outcome = conform(&[&base[..], &["--json"]].concat()).await;
        assert_eq!(outcome.code, 1, "{id}: {}", outcome.err);
        assert!(
            outcome.rows("fail").iter().any(|row| row.starts_with(id)),
            "{id}: {}",
            outcome.out
        );
        let table = conform(&base).await.out;
        assert!(table.contains("failed"), "{table}");
        assert!(
            !table.chars().any(|c| c.is_control() && c != '\n'),
            "{table:?}"
        );
    }
}

/// A server that has never answered is not waited for again and again.
#[tokio::test]
async fn a_silent_server_is_asked_twice() {
    let engine = Engine::script(Script::new().hang()).await;
    engine.set_models(Script::new().hang());
    let outcome = conform(&[&engine.url(), "--json", "--timeout", "1s"]).await;
    assert_eq!(outcome.code, 1, "{}", outcome.err);
    assert!(engine.attempt_count() <= 2, "{}", engine.attempt_count());
    assert!(
        outcome
            .rows("fail")
            .iter()
            .all(|row| row.contains("no answer within 1 s")),
        "{}",
        outcome.out
    );
}

#[tokio::test]
async fn exit_codes_tell_usage_from_environment() {
    let (url, _reserved) = refusing();
    for (arguments, code, expected) in [
        (&[url.as_str()][..], 3, "refused"),
        (&["nonsense"], 2, "not a URL"),
        (&[&url, "--only", "nothing"], 2, "chat-stream"),
        (&[&url, "--key-file", "/nowhere"], 2, "--key-file"),
        (&[], 2, "URL"),
    ] {
        let outcome = conform(arguments).await;
        assert_eq!(outcome.code, code, "{arguments:?}: {}", outcome.err);
        assert!(
            outcome.err.contains(expected),
            "{arguments:?}: {}",
            outcome.err
        );
    }
    let list = conform(&["--list", "--only", "models"]).await;
    assert_eq!(
        (list.code, list.out.lines().count()),
        (0, 3),
        "{}",
        list.out
    );
}
