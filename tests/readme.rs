//! The README keeps its word: every code block is run, every file it names is there.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, missing_docs, reason = "tests")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_samewire");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn readme() -> String {
    std::fs::read_to_string(Path::new(ROOT).join("README.md")).expect("the README is there")
}

/// The code blocks with their language, in order.
fn blocks() -> Vec<(String, String)> {
    let readme = readme();
    let mut parts = readme.split("\n```");
    parts.next();
    let mut all = Vec::new();
    while let Some(block) = parts.next() {
        let (language, text) = block.split_once('\n').expect("a block has lines");
        all.push((language.to_owned(), format!("{text}\n")));
        parts.next().expect("a block ends");
    }
    all
}

/// Runs lines of a block as a shell does, in the repository's root, with the binary on its path.
fn shell(text: &str) -> Output {
    let folder = Path::new(BINARY).parent().expect("the binary lies in a folder");
    let text = format!("PATH=\"$0:$PATH\"; {text}");
    let output = Command::new("sh").args(["-euc", &text]).arg(folder).current_dir(ROOT).output();
    output.expect("there is a shell")
}

/// A server of the binary, killed when dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts it and waits until this listener listens.
    fn start(arguments: &[&str], listener: &str) -> Self {
        let mut command = Command::new(BINARY);
        let mut child = command
            .args(arguments)
            .current_dir(ROOT)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is a pipe")).lines();
        let wanted = format!("\"listener\":\"{listener}\"");
        let line = lines.by_ref().map(|line| line.expect("text")).find(|line| line.contains(&wanted));
        let line = line.unwrap_or_else(|| panic!("{arguments:?} ended without listening"));
        let address = line.split("\"address\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let address = address.expect("the line has an address").to_owned();
        // Somebody has to read on, or the process would be told that nobody does.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_code_block_is_run() {
    let engine =
        Server::start(&["replay", "fixtures/vllm", "fixtures/sglang", "--listen", "127.0.0.1:0"], "replay");
    let mut proxy = None;
    for (language, text) in blocks() {
        let first = text.lines().next().unwrap_or_default();
        match (language.as_str(), first) {
            // Run by tests/demo.rs, and by what runs this test.
            ("sh", "cargo run --release -- demo") => assert_eq!(text.lines().count(), 1),
            ("sh", "tests/run.sh") => assert_eq!(text.lines().count(), 1),
            ("sh", serve) if serve.starts_with("samewire serve ") => {
                let command = serve.replace("127.0.0.1:8000", &engine.address);
                let mut arguments: Vec<_> = command.split(' ').skip(1).collect();
                arguments.extend(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
                proxy = Some(Server::start(&arguments, "proxy"));
            }
            ("sh", curl) if curl.starts_with("curl ") => {
                let proxy: &Server = proxy.as_ref().expect("serve stands before curl");
                let output = shell(&text.replace("127.0.0.1:8080", &proxy.address));
                let answer = String::from_utf8_lossy(&output.stdout);
                assert!(answer.ends_with("data: [DONE]\n\n"), "{answer}\n{output:?}");
            }
            ("sh", rewrite) if rewrite.starts_with("samewire rewrite ") => {
                let output = shell(&text);
                assert_eq!(output.status.code(), Some(0), "{output:?}");
                let golden = std::fs::read(Path::new(ROOT).join("fixtures/vllm/tool/chat.sse")).unwrap();
                assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&golden));
            }
            ("sh", key) if key.starts_with("samewire key new ") => make_key(&text),
            ("sh", "cd config") => compose(&text),
            ("sh", "kubectl apply -f config/kubernetes.yaml") => assert_eq!(text.lines().count(), 1),
            ("toml", _) => configuration(&text),
            // Run by tests/clients.sh.
            ("python", "from openai import OpenAI") => {}
            // The map; the modules it names are in src/lib.rs.
            ("text", map) if map.starts_with("client ──→ server::routes") => {
                let lib = std::fs::read_to_string(Path::new(ROOT).join("src/lib.rs")).unwrap();
                for line in text.lines() {
                    assert!(lib.contains(line.trim()), "{line}");
                }
            }
            (language, first) => panic!("nobody runs this {language} block: {first}"),
        }
    }
    assert!(proxy.is_some(), "the README shows how to serve");
}

/// No Docker engine is needed to see that the profiles exist.
fn compose(text: &str) {
    let file = std::fs::read_to_string(Path::new(ROOT).join("config/compose.yaml")).unwrap();
    for line in text.lines().skip(1) {
        let profile = line.split_once("--profile ").and_then(|(_, rest)| rest.split(' ').next()).unwrap();
        assert!(file.contains(&format!("profiles: [{profile}]")), "{line}");
        let port = line.rsplit(':').next().and_then(|rest| rest.split('/').next()).unwrap();
        assert!(file.contains(&format!("127.0.0.1:{port}:8080")), "{line}");
    }
}

fn make_key(text: &str) {
    let file = std::env::temp_dir().join(format!("samewire-readme-key-{}.toml", std::process::id()));
    let output = shell(&text.replace("samewire.toml", file.to_str().unwrap()));
    let key = String::from_utf8(output.stdout).unwrap();
    assert!(key.starts_with("sk-") && key.lines().count() == 1, "{key}");
    let written = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(written.contains("[[auth.key]]") && written.contains("tenant = \"alice\""), "{written}");
}

fn configuration(text: &str) {
    let file = std::env::temp_dir().join(format!("samewire-readme-{}.toml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let output = Command::new(BINARY).arg("check").arg("--config").arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = String::from_utf8_lossy(&output.stdout);
    let table = |text: &str| toml::Value::Table(text.parse().expect("TOML"));
    assert!(is_in(&table(text), &table(&shown)), "{text} in\n{shown}");
}

/// Whether all that one says is what the other says, too.
fn is_in(one: &toml::Value, other: &toml::Value) -> bool {
    match (one, other) {
        (toml::Value::Table(one), toml::Value::Table(other)) => {
            one.iter().all(|(key, value)| other.get(key).is_some_and(|other| is_in(value, other)))
        }
        (toml::Value::Array(one), toml::Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_in(one, other))
        }
        (one, other) => one == other,
    }
}

#[test]
fn every_file_it_names_is_there() {
    let readme = readme();
    let code = readme.split('`').skip(1).step_by(2);
    let paths = code.filter(|word| {
        ["tests/", "src/", "config/", "fixtures/", "benches/"].iter().any(|top| word.starts_with(top))
            && !word.contains(['<', ' '])
    });
    let links = readme.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let mut count = 0;
    for path in paths.chain(links.filter(|link| !link.contains("://"))) {
        assert!(Path::new(ROOT).join(path).exists(), "{path}");
        count += 1;
    }
    assert!(count > 20, "{count} paths");
}

/// What the three lines at the top show was recorded.
#[test]
fn the_example_is_real() {
    let lines = readme();
    let shown = |name: &str| {
        let line = lines.lines().find(|line| line.starts_with(&format!("    {name}"))).expect("an example");
        line.split_once('"').map(|(_, rest)| format!("\"{rest}")).expect("JSON")
    };
    for (name, file) in [
        ("vLLM", "fixtures/vllm/reasoning/upstream.sse"),
        ("SGLang", "fixtures/sglang/reasoning/upstream.sse"),
        ("samewire", "fixtures/vllm/reasoning/chat.sse"),
        ("samewire", "fixtures/sglang/reasoning/chat.sse"),
    ] {
        let recorded = std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap();
        assert!(recorded.contains(&shown(name)), "{name}: {file}");
    }
}
