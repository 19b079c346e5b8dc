//! Code blocks of the README, the documents for operators and the one on Responses are run unchanged, except for addresses.
//! Those in Python and JavaScript are run by `tests/clients.sh`.

use crate::folder::Folder;
use crate::markdown::{Block, Document, ROOT};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_samewire");

/// Command by which the documents start a samewire; documents that start none themselves use it.
const SERVE: &str = "samewire serve --upstream http://127.0.0.1:8000";

/// Returns a command without the environment variables of this process.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SAMEWIRE_")) {
        command.env_remove(name);
    }
    command.current_dir(ROOT);
    command
}

/// Server process of the binary, killed when dropped.
struct Server {
    child: Child,
    /// Address of each listener, by name.
    addresses: BTreeMap<String, String>,
}

impl Server {
    /// Starts the process and waits until these listeners are open.
    fn start(arguments: &[&str], listeners: &[&str]) -> Self {
        let mut command = command(BINARY);
        // A short settle time, because no load balancer has to notice the drain.
        command
            .env("SAMEWIRE_TIMEOUTS__SETTLE", "100ms")
            .args(arguments);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is a pipe")).lines();
        let mut addresses = BTreeMap::new();
        while !listeners.iter().all(|name| addresses.contains_key(*name)) {
            let line = lines
                .next()
                .unwrap_or_else(|| panic!("{arguments:?} ended without listening"));
            let line = line.expect("text");
            let field = |name: &str| {
                let rest = line.split_once(&format!("\"{name}\":\""))?.1;
                rest.split('"').next().map(str::to_owned)
            };
            if let (Some(listener), Some(address)) = (field("listener"), field("address")) {
                addresses.insert(listener, address);
            }
        }
        // Keeps reading, or the process would get a broken pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, addresses }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Environment for a document's blocks: recorded engines, samewire in front of them, and a folder for files.
struct World {
    engine: Server,
    proxy: Option<Server>,
    folder: Folder,
}

impl World {
    fn new() -> Self {
        let arguments = [
            "replay",
            "fixtures/vllm",
            "fixtures/sglang",
            "--listen",
            "127.0.0.1:0",
        ];
        Self {
            engine: Server::start(&arguments, &["replay"]),
            proxy: None,
            folder: Folder::new(),
        }
    }

    /// Starts samewire by a command line from a document.
    fn serve(&mut self, line: &str) {
        let line = line.replace("127.0.0.1:8000", &self.engine.addresses["replay"]);
        let mut arguments: Vec<_> = line.split(' ').skip(1).collect();
        arguments.extend(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        self.proxy = Some(Server::start(&arguments, &["proxy", "admin"]));
    }

    /// Runs lines in a shell, in the root of the project, with the binary on the path and addresses replaced.
    fn shell(&mut self, text: &str) -> Output {
        if self.proxy.is_none() {
            self.serve(SERVE);
        }
        let proxy = self.proxy.as_ref().expect("it was started");
        let text = text
            .replace("127.0.0.1:8000", &self.engine.addresses["replay"])
            .replace("127.0.0.1:8080", &proxy.addresses["proxy"])
            .replace("127.0.0.1:9090", &proxy.addresses["admin"]);
        let folder = Path::new(BINARY)
            .parent()
            .expect("the binary is in a folder");
        let text = format!("PATH=\"$0:$PATH\"; {text}");
        command("sh")
            .args(["-euc", &text])
            .arg(folder)
            .output()
            .expect("there is a shell")
    }

    fn run(&mut self, block: &Block) {
        let text = block.text.as_str();
        let first = text.lines().next().unwrap_or_default();
        match (block.language.as_str(), first) {
            // Run by tests/proxy/demo.rs and by the script that runs this test; a cluster is not available.
            ("sh", "cargo demo" | "tests/run.sh" | "kubectl apply -f config/kubernetes.yaml") => {
                assert_eq!(text.lines().count(), 1);
            }
            ("sh", serve) if serve.starts_with("samewire serve ") => {
                assert_eq!(text.lines().count(), 1);
                self.serve(serve);
            }
            ("sh", curl) if curl.starts_with("curl ") => self.ask(text),
            ("sh", rewrite) if rewrite.starts_with("samewire rewrite ") => {
                let golden =
                    std::fs::read_to_string(Path::new(ROOT).join("fixtures/vllm/tool/chat.sse"))
                        .unwrap();
                assert_eq!(told(&self.shell(text)), golden);
            }
            ("sh", key) if key.starts_with("samewire key new ") => self.make_key(text),
            ("sh", seal) if seal.starts_with("printf 'k1 ") => self.make_seal_key(text),
            ("sh", drain) if drain.starts_with("samewire drain ") => self.drain(text),
            ("sh", check) if check.contains("samewire check") => {
                let shown = told(&self.shell(text));
                assert!(shown.parse::<toml::Table>().is_ok(), "{shown}");
            }
            ("sh", "cd config") => compose(text),
            ("toml", _) => self.configuration(text),
            ("python", "from openai import OpenAI") | ("js", "import OpenAI from \"openai\";") => {
                assert!(text.contains("\"http://127.0.0.1:8080/v1\""), "{text}");
            }
            ("text", _) => {}
            (language, first) => panic!("nobody runs this {language} block: {first}"),
        }
    }

    /// Sends the request of a block, which must succeed: a stream as a whole, or an object.
    fn ask(&mut self, text: &str) {
        // The default recorded answer breaks off, and a summary must be complete.
        let is_summary = text.contains("/v1/responses/compact");
        let model = if is_summary {
            "\"model\":\"vllm/text-whole\""
        } else {
            "\"model\":\"any\""
        };
        let answer = told(&self.shell(&text.replace("\"model\":\"any\"", model)));
        assert!(!answer.contains("\"error\":{"), "{answer}");
        if text.contains("\"stream\":true") {
            let last = answer.trim_end().rsplit("\n\n").next().unwrap_or_default();
            let complete =
                last == "data: [DONE]" || last.starts_with("event: response.completed\n");
            assert!(complete && answer.ends_with("\n\n"), "{answer}");
        } else {
            let object: serde_json::Value =
                serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
            assert!(object["object"].is_string(), "{answer}");
        }
    }

    fn make_key(&mut self, text: &str) {
        let file = self.folder.path("samewire.toml");
        let key = told(&self.shell(&text.replace("samewire.toml", file.to_str().unwrap())));
        assert!(key.starts_with("sk-") && key.lines().count() == 1, "{key}");
        let written = std::fs::read_to_string(&file).unwrap();
        assert!(
            written.contains("[[auth.key]]") && written.contains("tenant = \"alice\""),
            "{written}"
        );
    }

    /// Runs a block whose output must be a valid key file for `[seal]`.
    fn make_seal_key(&mut self, text: &str) {
        let lines = told(&self.shell(text));
        let file = self.folder.write("seal.keys", &lines);
        let upstream = "[[upstream]]\nurl = \"http://127.0.0.1:8000\"\n";
        self.configuration(&format!(
            "[seal]\nkeys_file = {:?}\n\n{upstream}",
            file.display().to_string()
        ));
    }

    /// Runs the drain command, which must finish, and cancels the drain.
    fn drain(&mut self, text: &str) {
        assert_eq!(text.lines().count(), 2);
        let lines: Vec<_> = text
            .lines()
            .map(|line| format!("{line} --admin-listen 127.0.0.1:9090\n"))
            .collect();
        let health = "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8080/health";
        let readiness = "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:9090/readyz";
        told(&self.shell(&lines[0]));
        assert_eq!(told(&self.shell(readiness)), "503");
        told(&self.shell(&lines[1]));
        assert_eq!(told(&self.shell(health)), "200");
    }

    fn configuration(&self, text: &str) {
        let file = self.folder.file("block.toml", text);
        let output = command(BINARY)
            .arg("check")
            .arg("--config")
            .arg(&file)
            .output()
            .unwrap();
        let shown = told(&output);
        let table = |text: &str| toml::Value::Table(text.parse().expect("TOML"));
        assert!(is_in(&table(text), &table(&shown)), "{text} in\n{shown}");
    }
}

/// Returns the output of a command, which must have succeeded.
fn told(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Checks that the compose profiles exist, without a Docker engine.
fn compose(text: &str) {
    let file = std::fs::read_to_string(Path::new(ROOT).join("config/compose.yaml")).unwrap();
    for line in text.lines().skip(1) {
        let profile = line
            .split_once("--profile ")
            .and_then(|(_, rest)| rest.split(' ').next())
            .unwrap();
        assert!(file.contains(&format!("profiles: [{profile}]")), "{line}");
        let port = line
            .rsplit(':')
            .next()
            .and_then(|rest| rest.split('/').next())
            .unwrap();
        assert!(file.contains(&format!("127.0.0.1:{port}:8080")), "{line}");
    }
}

/// Returns true if `other` contains everything in `one`.
fn is_in(one: &toml::Value, other: &toml::Value) -> bool {
    match (one, other) {
        (toml::Value::Table(one), toml::Value::Table(other)) => one
            .iter()
            .all(|(key, value)| other.get(key).is_some_and(|other| is_in(value, other))),
        (toml::Value::Array(one), toml::Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_in(one, other))
        }
        (one, other) => one == other,
    }
}

/// Runs all blocks of a document and checks that there are at least `least`.
fn run(path: &str, least: usize) {
    let document = Document::read(path);
    assert!(
        document.blocks.len() >= least,
        "{} blocks",
        document.blocks.len()
    );
    let mut world = World::new();
    for block in &document.blocks {
        println!("{path}:{}", block.line);
        world.run(block);
    }
}

#[test]
fn the_blocks_of_the_readme_are_run() {
    run("README.md", 4);
}

#[test]
fn the_blocks_about_installing_are_run() {
    run("docs/install.md", 6);
}

#[test]
fn the_blocks_about_configuration_are_run() {
    run("docs/configure.md", 12);
}

#[test]
fn the_blocks_about_deployment_are_run() {
    run("docs/deploy.md", 6);
}

#[test]
fn the_blocks_about_watching_are_run() {
    run("docs/watch.md", 3);
}

#[test]
fn the_blocks_about_troubleshooting_are_run() {
    run("docs/troubleshoot.md", 6);
}

#[test]
fn the_blocks_about_responses_are_run() {
    run("docs/responses.md", 15);
}
