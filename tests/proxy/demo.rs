//! `samewire demo` as users run it: the built binary, its page read as a person would read it, and its snippets
//! executed.

use crate::sim::prelude::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

fn command(arguments: &[&str], columns: Option<&str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command.arg("demo").args(arguments).env_clear();
    if let Some(columns) = columns {
        command.env("COLUMNS", columns);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Returns the output of `demo --once`.
fn page(arguments: &[&str], columns: Option<&str>) -> String {
    let output = command(arguments, columns).arg("--once").output().unwrap();
    assert_eq!(
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap().as_str()
        ),
        (Some(0), "")
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the lines below a heading.
fn below<'p>(page: &'p str, heading: &str) -> Vec<&'p str> {
    let from = page
        .find(&format!("── {heading} "))
        .unwrap_or_else(|| panic!("no {heading} in {page}"));
    page[from..]
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with("── "))
        .collect()
}

#[test]
fn the_page_fits_any_terminal_and_tells_without_colour() {
    for columns in ["60", "80", "100", "120", "160", "200"] {
        for show in ["reasoning", "tool"] {
            let page = page(&["--show", show], Some(columns));
            assert!(!page.contains('\x1b'), "no colour in a pipe: {page}");
            let widest = page.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(
                widest <= columns.parse().unwrap(),
                "{widest} in {columns}: {page}"
            );
            // Each kind of change has a number, which marks a frame and is explained.
            let (raw, changed) = (
                below(&page, "What the engines send"),
                below(&page, "What samewire changed"),
            );
            let numbers: Vec<_> = changed
                .iter()
                .filter_map(|line| line.chars().next())
                .filter(|c| ('①'..='⑳').contains(c))
                .collect();
            assert!(numbers.len() >= 7, "{page}");
            for number in numbers {
                assert!(
                    raw.iter().any(|line| line.contains(number)),
                    "{number} at {columns}: {page}"
                );
            }
        }
    }
    let widest = |page: String| page.lines().map(|line| line.chars().count()).max().unwrap();
    assert_eq!(widest(page(&[], None)), 100, "without a terminal");
    assert_eq!(widest(page(&[], Some("80"))), 80);
}

/// Both engines give one canonical answer to a request: each line is shown once for both.
#[test]
fn both_canonical_answers_are_the_same() {
    let page = page(&[], Some("160"));
    let raw = below(&page, "What the engines send").join("\n");
    for word in [
        r#""reasoning"③:"\n""#,
        r#""matched_stop":null"#,
        "vLLM 0.21.0",
        "SGLang 0.5.12",
        "came with the last token",
    ] {
        assert!(raw.contains(word), "{word}: {page}");
    }
    let canonical = below(&page, "What clients of samewire receive");
    let first = canonical
        .iter()
        .position(|line| line.starts_with("data: "))
        .unwrap();
    let same = canonical
        .iter()
        .position(|line| line.starts_with("= both "))
        .unwrap();
    let lines: Vec<_> = canonical[same..]
        .iter()
        .take_while(|line| !line.is_empty())
        .collect();
    assert!(lines.len() >= 8, "{page}");
    for line in &lines {
        // The continuation lines of a frame are indented.
        let is_same = line.starts_with("= both ") || line.starts_with("   ");
        assert!(is_same, "{line}: {page}");
    }
    assert!(
        lines
            .iter()
            .any(|line| line.ends_with(r#""finish_reason":"length"}"#)),
        "{page}"
    );
    assert!(lines.iter().any(|line| line.ends_with("[DONE]")), "{page}");
    let verdict = canonical.join(" ");
    let expected = "22 canonical frames from vLLM, 22 from SGLang: all of them the same byte for byte (ids and times apart).";
    assert!(verdict.contains(expected), "{page}");
    // The frame shown in full is valid.
    let full: String = canonical[first..same].concat();
    let full: Value = serde_json::from_str(full.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(full["object"], "chat.completion.chunk");
}

/// The page says so if the engines cut the same answer into different pieces.
#[test]
fn what_differs_between_the_engines_is_told() {
    let page = page(&["--show", "tool"], Some("160"));
    let canonical = below(&page, "What clients of samewire receive").join(" ");
    for word in [
        "are the same byte for byte",
        "one engine cuts the text into more pieces",
        "only SGLang counts reasoning tokens",
    ] {
        assert!(canonical.contains(word), "{word}: {page}");
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn changes_are_counted_by_rule() {
    let page = page(&[], Some("120"));
    let changed = below(&page, "What samewire changed");
    for (rule, vllm, sglang) in [
        ("id", "–", "1×"),
        ("role_content", "1×", "1×"),
        ("reasoning_name", "14×", "–"),
        ("finish_merged", "1×", "–"),
        ("envelope", "–", "4×"),
        ("fingerprint", "1×", "–"),
    ] {
        let line = changed
            .iter()
            .find(|line| words(line).get(1) == Some(&rule))
            .unwrap();
        assert_eq!(
            words(line)[2..6],
            ["vLLM", vllm, "SGLang", sglang],
            "{rule}: {page}"
        );
    }
}

/// Rules have the names of the metric, and fields without a value the name that explanations use.
#[test]
fn rules_are_named_as_everywhere() {
    use samewire::wire::rule::{NULL_FIELDS, Rule};
    let known: Vec<_> = Rule::ALL
        .iter()
        .map(|rule| rule.name())
        .chain([NULL_FIELDS])
        .collect();
    for (change, _) in samewire::demo::frame::Change::ALL {
        assert!(
            known.contains(&change.rule()),
            "{change:?} is called {}",
            change.rule()
        );
    }
}

/// Running `samewire demo` server, with its output so far. Dropping it kills the process.
struct Demo {
    child: Child,
    /// Output so far.
    page: String,
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Demo {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(arguments: &[&str]) -> Self {
        let mut child = command(&[&["--listen", "127.0.0.1:0"], arguments].concat(), None)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut page = String::new();
        while !page.contains("samewire serve --upstream") {
            assert!(
                stdout.read_line(&mut page).unwrap() > 0,
                "it ends too early: {page}"
            );
        }
        Self { child, page }
    }

    fn url(&self) -> &str {
        self.page
            .split_whitespace()
            .find(|word| word.starts_with("http://") && word.ends_with("/v1"))
            .unwrap()
    }

    fn address(&self) -> SocketAddr {
        self.url()
            .strip_prefix("http://")
            .unwrap()
            .strip_suffix("/v1")
            .unwrap()
            .parse()
            .unwrap()
    }

    /// Returns the `curl` command that the demo prints.
    fn curl(&self) -> String {
        let from = self.page.find("curl ").unwrap();
        let end = self.page[from..].find("}'\n").unwrap();
        self.page[from..from + end + 2].to_owned()
    }
}

#[tokio::test]
async fn the_printed_curl_works() {
    let demo = Demo::start();
    let curl = demo.curl();
    assert!(
        curl.contains(&format!("{}/chat/completions ", demo.url())),
        "{curl}"
    );
    let body = curl
        .split("-d '")
        .nth(1)
        .unwrap()
        .strip_suffix('\'')
        .unwrap();
    let answer = Request::chat(body)
        .answer(demo.address())
        .await
        .with_status(200);
    for word in [
        r#""reasoning_content":"#,
        r#""content":"#,
        "data: [DONE]\n\n",
    ] {
        assert!(answer.text().contains(word), "{word}: {}", answer.text());
    }
    // Runs the command in a shell, if curl is installed.
    if let Ok(output) = Command::new("sh")
        .args(["-c", &format!("command -v curl >/dev/null && {curl}")])
        .output()
        && output.status.success()
    {
        assert_eq!(String::from_utf8(output.stdout).unwrap(), answer.text());
    }
}

#[tokio::test]
async fn every_name_is_answered() {
    let demo = Demo::start();
    let listed = Request::get("/v1/models").answer(demo.address()).await;
    let listed = listed.json();
    let names: Vec<_> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert!(names.len() >= 8, "{names:?}");
    assert!(
        names.iter().all(|name| demo.page.contains(name)),
        "{names:?}: {}",
        demo.page
    );
    let asked = names
        .iter()
        .chain(&["gpt-4o"])
        .flat_map(|name| [(*name, true), (*name, false)]);
    let check = async |(name, stream): (&str, bool)| {
        let messages = json!([{"role": "user", "content": "a"}]);
        let body = json!({"model": name, "stream": stream, "messages": messages});
        let answer = Request::chat(body.to_string()).answer(demo.address()).await;
        assert_eq!(
            answer.head.status,
            200,
            "{name}, stream {stream}: {}",
            answer.text()
        );
        assert_eq!(
            answer.text().starts_with("data: "),
            stream,
            "{name}: {}",
            answer.text()
        );
    };
    futures::future::join_all(asked.map(check)).await;
    // The Python snippet's request.
    assert!(
        demo.page
            .contains(&format!("OpenAI(base_url=\"{}\"", demo.url())),
        "{}",
        demo.page
    );
    assert!(
        names.contains(&"vllm/reasoning") && names.contains(&"sglang/reasoning"),
        "{names:?}"
    );
}

/// The page at the root has the same content as the terminal, and loads nothing from elsewhere.
#[tokio::test]
async fn the_page_in_a_browser_is_that_of_the_terminal() {
    let demo = Demo::start();
    let answer = Request::get("/")
        .answer(demo.address())
        .await
        .with_status(200);
    assert_eq!(
        answer.head.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let policy = answer
        .head
        .header("content-security-policy")
        .unwrap()
        .to_owned();
    for word in [
        "default-src 'none'",
        "style-src 'sha256-",
        "script-src 'sha256-",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(word), "{word}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(
        answer.head.header("x-content-type-options"),
        Some("nosniff")
    );
    let page = answer.text();
    assert!(!page.contains("{{"), "every placeholder is filled");
    for outside in ["src=", "@import", "url(", " onclick", "style=\""] {
        assert!(!page.contains(outside), "{outside}: {page}");
    }
    let rules = below(&demo.page, "What samewire changed");
    let rules: Vec<_> = rules
        .iter()
        .filter(|line| line.starts_with(|first: char| ('①'..='⑳').contains(&first)))
        .map(|line| line.split_whitespace().nth(1).unwrap())
        .collect();
    assert!(rules.len() >= 7, "{}", demo.page);
    for rule in rules {
        assert!(
            page.contains(&format!("<code>{rule}</code>")),
            "{rule}: {page}"
        );
    }
    for text in [
        "all of them the same byte for byte",
        demo.url(),
        "OpenAI(base_url=",
        "data-model=\"vllm/same-answer\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    // At the root, methods other than GET are handled by the proxy as before.
    Request::new("POST", "/")
        .answer(demo.address())
        .await
        .with_status(405);
}

/// Ctrl-C, SIGTERM and the end of the terminal stop the demo.
#[tokio::test]
async fn signals_end_it() {
    futures::future::join_all(["-INT", "-TERM", "-HUP"].map(ended_by)).await;
}

async fn ended_by(signal: &str) {
    let mut demo = Demo::start();
    // Once the server answers, it also handles signals.
    assert_eq!(
        Request::get("/v1/models")
            .answer(demo.address())
            .await
            .head
            .status,
        200
    );
    let pid = demo.child.id().to_string();
    assert!(
        Command::new("kill")
            .args([signal, &pid])
            .status()
            .unwrap()
            .success()
    );
    let mut status = None;
    until("its end", || {
        status = demo.child.try_wait().unwrap();
        status.is_some()
    })
    .await;
    assert_eq!(status.unwrap().code(), Some(0), "{signal}");
}

#[test]
fn a_taken_port_and_wrong_usage_are_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    for (arguments, code, expected) in [
        (&["--listen", port.as_str()][..], 3, "--listen"),
        (&["--listen", "nowhere"], 2, "listen: must be an address"),
        (&["--show", "everything"], 2, "reasoning, tool"),
    ] {
        let output = command(arguments, None).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(told.contains(expected), "{arguments:?}: {told}");
        assert!(
            output.stdout.is_empty(),
            "{arguments:?}: told before anything is shown"
        );
    }
}

#[test]
fn help_explains_itself() {
    let output = command(&["--help"], None).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for word in ["--listen", "--once", "NO_COLOR", "Ctrl-C", "Exit codes"] {
        assert!(help.contains(word), "{word}: {help}");
    }
}

/// The inspector of the demo shows the user's own requests, each with its frames.
#[tokio::test]
async fn the_inspector_shows_what_was_asked() {
    let demo = Demo::start();
    let is_inspector = |word: &&str| word.starts_with("http://") && word.ends_with("/ui/");
    let inspector = demo.page.split_whitespace().find(is_inspector).unwrap();
    let admin = inspector
        .strip_prefix("http://")
        .unwrap()
        .strip_suffix("/ui/")
        .unwrap();
    let admin: SocketAddr = admin.parse().unwrap();
    let page = Request::get("/ui/").answer(admin).await;
    assert!(page.text().contains("inspector"), "{}", page.text());
    let body =
        r#"{"model":"vllm/reasoning","messages":[{"role":"user","content":"a"}],"stream":true}"#;
    let answer = Request::chat(body)
        .header("x-request-id", "mine")
        .answer(demo.address())
        .await;
    let frames = Request::get("/captures/mine/frames");
    let frames = frames
        .answer_until(admin, |answer| answer.head.status == 200)
        .await
        .json();
    let rows = frames["rows"].as_array().unwrap().iter();
    let client: String = rows
        .flat_map(|row| row["client"].as_array().unwrap())
        .map(|frame| frame["text"].as_str().unwrap())
        .collect();
    assert_eq!(
        (&frames["is_explained"], client.as_str()),
        (&Value::Bool(true), answer.text())
    );
}

#[tokio::test]
async fn the_inspector_may_have_a_port_of_its_own() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let demo = Demo::start_with(&["--admin-listen", &free.to_string()]);
    assert!(
        demo.page
            .contains(&format!("http://{free}/ui/ is the inspector")),
        "{}",
        demo.page
    );
}
