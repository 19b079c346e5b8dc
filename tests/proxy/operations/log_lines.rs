//! The log as operators read it: its first line, the members of a request's line, its levels and its two formats.

use crate::clients::keys::{entry, with};
use crate::pool::PATIENT;
use crate::sim::prelude::*;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_samewire");

/// Returns the log line of the request with this id.
async fn line(samewire: &Samewire, request_id: &str) -> Value {
    let find = || {
        samewire
            .request_lines()
            .into_iter()
            .find(|line| line.contains(request_id))
    };
    until("the request's line", || find().is_some()).await;
    serde_json::from_str(&find().unwrap()).unwrap()
}

/// Returns these members of a log line as one object.
fn members(line: &Value, names: &[&str]) -> Value {
    names
        .iter()
        .map(|name| ((*name).to_owned(), line[*name].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn named(request: Request, id: &str) -> Request {
    request.header("x-request-id", id)
}

#[tokio::test]
async fn the_first_line_says_where_clients_point_to() {
    for (config, path) in [("", "/v1"), ("root_path = \"/llm\"", "/llm/v1")] {
        let world = World::configured(config).await;
        let first: Value = serde_json::from_str(&world.samewire.logs()[0]).unwrap();
        let url = format!("http://{}{path}", world.proxy());
        assert_eq!(first["base_url"], url.as_str());
        assert_eq!(first["message"], format!("clients use the base URL {url}"));
        world.end().await;
    }
}

#[tokio::test]
async fn the_line_of_a_request_says_what_was_asked_and_what_became_of_it() {
    let world = World::start_as(Script::answer("a", 2), "vllm", Setup::new()).await;
    world.request(&named(Request::stream(""), "good-1")).await;
    let line = line(&world.samewire, "good-1").await;
    let expected = json!({
        "level": "INFO", "method": "POST", "path": "/v1/chat/completions", "model": "m", "status": 200, "end": "complete",
        "attempts": 1, "upstreams": null, "error": null, "param": null, "engine_status": null, "engine_error": null,
        "peer": null
    });
    let names: Vec<_> = expected
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(members(&line, &names), expected, "{line}");
    let rules = line["rules"].as_str().unwrap();
    let sum: u64 = rules
        .split(", ")
        .map(|rule| {
            rule.split(' ')
                .nth(1)
                .map_or(1, |times| times.parse().unwrap())
        })
        .sum();
    assert!(
        rules.split(", ").any(|rule| rule.starts_with("role_")) || sum > 0,
        "{rules}"
    );
    assert_eq!(line["rewrites"], sum, "{rules}");
    world.end().await;
}

#[tokio::test]
async fn refusals_of_samewires_own_say_why() {
    let world = World::plain(Setup::new()).await;
    let bad =
        Request::chat(r#"{"model":"m","messages":[{"role":"user","content":"CANARY"}],"n":0}"#);
    world.request(&named(bad, "bad-1")).await;
    let of_value = line(&world.samewire, "bad-1").await;
    assert_members(&of_value, &json!({"status": 400, "param": "n"}));
    assert!(
        of_value["error"].as_str().unwrap().contains("'n'"),
        "{of_value}"
    );
    // Unknown paths and models are logged as received, as far as a line has room, and are in no metric.
    let long = format!("/v1/{}%1b%0a", "x".repeat(400));
    for (path, id) in [("/v1/chat/complete", "path-1"), (long.as_str(), "path-2")] {
        world.request(&named(Request::post(path, "{}"), id)).await;
        let of_path = line(&world.samewire, id).await;
        let told = of_path["path"].as_str().unwrap();
        assert!(
            path.starts_with(told.trim_end_matches('…')) && told.chars().count() <= 257,
            "{of_path}"
        );
        assert_eq!(of_path["route"], "unknown");
    }
    let metrics = world.samewire.metrics().await;
    assert!(
        !metrics.contains("complete\",upstream") && !metrics.contains("xxxx"),
        "{metrics}"
    );
    world.end().await;
}

#[tokio::test]
async fn unknown_models_are_told_as_they_were_written() {
    let models = r#"{"object":"list","data":[{"id":"known","object":"model"}]}"#;
    let mut engines = Vec::new();
    for _ in 0..2 {
        let engine = Engine::script(Script::answer("a", 1)).await;
        engine.set_models(Script::ok(models));
        engines.push(engine);
    }
    let world = World::fleet_up(engines, Setup::new(), &[]).await;
    let model = "no\\u001b[31m-such-\\n";
    let body =
        format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"CANARY"}}]}}"#);
    world.request(&named(Request::chat(body), "model-1")).await;
    let of_model = line(&world.samewire, "model-1").await;
    let text = world.samewire.request_lines().pop().unwrap();
    assert_eq!(of_model["model"], "no\u{1b}[31m-such-\n");
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(!world.samewire.metrics().await.contains("such"));
    world.end().await;
}

/// Warnings about refused keys have the client's address, even where addresses are not logged otherwise.
#[tokio::test]
async fn refused_keys_are_warned_of_with_the_address_they_came_from() {
    for (log, logged) in [("", false), ("[log]\npeer = true\n", true)] {
        let engine = Engine::script(Script::answer("a", 1)).await;
        let world = World::start(
            engine,
            Setup::new().config(&format!("{log}{}", entry("good", "name = \"laptop\""))),
        )
        .await;
        world
            .request(&named(with(&Request::stream(""), "wrong"), "wrong-1"))
            .await;
        let refused = line(&world.samewire, "wrong-1").await;
        assert_members(&refused, &json!({"level": "WARN", "status": 401}));
        assert!(
            refused["peer"].as_str().unwrap().starts_with("127.0.0.1:"),
            "{refused}"
        );
        assert_eq!(
            refused["error"],
            Value::Null,
            "it would have letters of the key: {refused}"
        );
        world
            .request(&named(with(&Request::stream(""), "good"), "right-1"))
            .await;
        let served = line(&world.samewire, "right-1").await;
        assert_eq!(served["key"], "laptop");
        assert_eq!(served["peer"].is_string(), logged, "{served}");
        world.end().await;
    }
}

/// The log line lists every attempt with its cause: the first engine fails, the second one answers.
#[tokio::test]
async fn every_attempt_is_told_with_its_cause() {
    let busy = r#"{"error":{"message":"busy"}}"#;
    for (script, told) in [
        (
            Script::new().rst(),
            "e0: upstream_reset (Connection reset by peer (os error 104)), e1: ok",
        ),
        (
            Script::new().json("503 Busy", busy),
            "e0: server_is_overloaded (HTTP 503), e1: ok",
        ),
    ] {
        let engines = [script, Script::answer("a", 1)];
        let world =
            World::fleet_up(engines, Setup::new().allow_errors().config(PATIENT), &[]).await;
        // Either engine may be first.
        let mut tried = 0;
        let line = loop {
            let id = format!("tried-{tried}");
            world.request(&named(Request::plain(""), &id)).await;
            let line = line(&world.samewire, &id).await;
            if line["attempts"] != 1 {
                break line;
            }
            assert_eq!(line["upstreams"], Value::Null, "{line}");
            tried += 1;
            assert!(tried < 60, "the first engine gets no request");
        };
        assert_eq!(
            (&line["attempts"], &line["status"]),
            (&Value::from(2), &Value::from(200)),
            "{line}"
        );
        assert_eq!(line["upstreams"], told, "{line}");
        assert!(
            line["cause"].is_null() && line["engine_status"].is_null(),
            "{line}"
        );
        world.end().await;
    }
}

/// The flag, its variables and the file each set the level. More verbose levels log more, and never content.
#[tokio::test]
async fn levels_say_more_and_never_what_was_said() {
    // Returns the log up to the request's line and the first of each of these.
    let lines = async |setup: Setup, wanted: &[&str]| {
        let world = World::start(Script::answer("CANARY-ANSWER", 2), setup).await;
        world.request(&named(Request::stream(""), "level-1")).await;
        line(&world.samewire, "level-1").await;
        for what in wanted {
            until(what, || world.samewire.count_logged(what) > 0).await;
        }
        let logs = world.samewire.logs().join("\n");
        assert!(!logs.contains("CANARY"), "{logs}");
        world.end().await;
        logs
    };
    let flag = |level: &str| Setup::new().args(&["--log-level", level]);
    let debug = [
        "an attempt is over",
        "an engine answers",
        "a probe has come back",
        "a probe has read a route",
        "an engine was looked at",
    ];
    let trace = ["a connection was tried"];
    let has = |logs: &str, what: &[&str]| what.iter().filter(|what| logs.contains(**what)).count();
    let info = lines(flag("info"), &[]).await;
    assert_eq!((has(&info, &debug), has(&info, &trace)), (0, 0), "{info}");
    for setup in [
        flag("debug"),
        Setup::new().environment("SAMEWIRE_LOG", "debug"),
        Setup::new().environment("SAMEWIRE_LOG_LEVEL", "debug"),
        Setup::new().config("[log]\nlevel = \"debug\""),
    ] {
        let more = lines(setup, &debug).await;
        assert_eq!(
            (has(&more, &debug), has(&more, &trace)),
            (debug.len(), 0),
            "{more}"
        );
    }
    let all = [&debug[..], &trace].concat();
    let most = lines(flag("trace").environment("SAMEWIRE_LOG", "off"), &all).await;
    assert_eq!(
        (has(&most, &debug), has(&most, &trace)),
        (debug.len(), trace.len()),
        "{most}"
    );
}

/// Starts samewire by this command. Returns its output up to the line that contains `last`.
fn said(command: &mut Command, last: &str) -> Vec<String> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let (out, errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (to, from) = std::sync::mpsc::channel();
    for stream in [
        Box::new(out) as Box<dyn std::io::Read + Send>,
        Box::new(errors),
    ] {
        let to = to.clone();
        std::thread::spawn(move || {
            BufReader::new(stream)
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| to.send(line))
        });
    }
    let mut lines = Vec::new();
    while let Ok(line) = from.recv_timeout(Duration::from_secs(20)) {
        let is_last = line.contains(last);
        lines.push(line);
        if is_last {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    lines
}

/// The default format depends on whether stderr is a terminal; the program `script` provides one.
#[test]
fn at_a_terminal_lines_are_for_people() {
    let serve =
        "serve --upstream http://127.0.0.1:1 --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0";
    let arguments: Vec<_> = serve.split(' ').collect();
    let command = |more: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(&arguments).args(more).env_clear();
        command
    };
    let json = said(&mut command(&[]), "\"admin\"");
    assert!(
        json.iter()
            .all(|line| serde_json::from_str::<Value>(line).is_ok()),
        "{json:#?}"
    );
    let text = said(&mut command(&["--log-format", "text"]), "listener=admin");
    let first = text.first().unwrap();
    let is_time =
        |text: &str| text.len() == 13 && text.ends_with('Z') && text.matches(':').count() == 2;
    assert!(first.split(' ').next().is_some_and(is_time), "{first}");
    assert!(
        first.contains(" INFO  clients use the base URL http://127.0.0.1:")
            && !first.contains('\u{1b}'),
        "{first}"
    );
    let at_terminal = |variable: (&str, &str)| {
        // samewire ends with `script`: the end of a terminal is a SIGHUP, which to samewire means a reload.
        let ends = format!("exec setpriv --pdeathsig KILL {BINARY} {serve}");
        let mut command = Command::new("script");
        command
            .args(["-qec", &ends, "/dev/null"])
            .env_clear()
            .env(variable.0, variable.1);
        said(&mut command, "listening").concat()
    };
    let coloured = at_terminal(("TERM", "xterm"));
    assert!(
        coloured.contains("INFO")
            && coloured.contains("\u{1b}[32m")
            && !coloured.contains("{\"timestamp"),
        "{coloured}"
    );
    let plain = at_terminal(("NO_COLOR", "1"));
    assert!(
        plain.contains(" INFO  clients use") && !plain.contains('\u{1b}'),
        "{plain}"
    );
    let wrong = command(&["--log-format", "xml", "--log-level", "loud"])
        .output()
        .unwrap();
    let complaint = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        complaint.contains("--log-level: expected ")
            && complaint.contains("--log-format: expected ")
            && !complaint.contains("loud"),
        "{complaint}"
    );
}
