//! Any text as a configuration: either all mistakes are reported, or the shown configuration has the same meaning.

use samewire::config::Config;
use std::net::SocketAddr;
use std::path::Path;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if reaches_out(text) {
        return;
    }
    let tells = |told: &str| stands_for_a_password(text) && told.contains(SECRET);
    match Config::read(text, &[]) {
        Err(mistakes) => {
            let told = mistakes.to_string();
            assert!(!told.trim().is_empty());
            assert!(!tells(&told), "{told}");
        }
        Ok(config) => {
            let shown = config.shown();
            assert!(!tells(&shown), "{shown}");
            assert!(!tells(&format!("{config:?}")));
            let again = Config::read(&shown, &[]);
            // Secrets are hidden, so a configuration that depends on them cannot be read again.
            if !shown.contains("hidden") {
                let again = again.unwrap_or_else(|mistakes| panic!("{mistakes}\n{shown}"));
                assert_eq!(again.shown(), shown);
            }
        }
    }
}

/// Password in the seeds. Must never be in any output.
const SECRET: &str = "CANARY-PASSWORD";

/// Returns true if the secret is only where a password belongs, not in a host or a path.
fn stands_for_a_password(text: &str) -> bool {
    let mut places = text.match_indices(SECRET).map(|(at, _)| &text[..at]);
    places.all(|before| before.ends_with(':') || before.ends_with("password="))
}

/// Returns true if a value makes the reader open a file or resolve a name: a fuzzer must do neither.
fn reaches_out(text: &str) -> bool {
    let Ok(table) = text.parse::<toml::Table>() else { return false };
    let mut left: Vec<(String, toml::Value)> = table.into_iter().collect();
    while let Some((key, value)) = left.pop() {
        match value {
            toml::Value::Table(inner) => left.extend(inner),
            toml::Value::Array(inner) => left.extend(inner.into_iter().map(|value| (key.clone(), value))),
            toml::Value::String(text) if key.ends_with("file") && !text.is_empty() => return true,
            toml::Value::String(text) if key.ends_with("listen") && text.parse::<SocketAddr>().is_err() => {
                return true;
            }
            _ => {}
        }
    }
    false
}

fn is_key(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

pub fn seeds() -> Vec<Vec<u8>> {
    let example = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|folder| folder.join("config/samewire.toml"))
        .find(|path| path.exists())
        .expect("the example");
    let example = std::fs::read_to_string(example).expect("text");
    let upstream = "[[upstream]]\nurl = \"http://127.0.0.1:8000\"\n";
    let mut all = vec![upstream.as_bytes().to_vec()];
    // The sections of the example, and each of their keys alone.
    let bare = |line: &str| line.trim_start_matches("# ").trim_start_matches('#').to_owned();
    let mut section = String::new();
    for line in example.lines() {
        let line = bare(line);
        if line.starts_with('[') {
            line.clone_into(&mut section);
        } else if line.split_once(" = ").is_some_and(|(key, _)| is_key(key)) {
            let own = if section == "[[upstream]]" {
                format!("{upstream}{line}\n")
            } else {
                format!("{upstream}{section}\n{line}\n")
            };
            all.push(own.into_bytes());
        }
    }
    for text in [
        "store = { place = \"postgres://u:CANARY-PASSWORD@127.0.0.1/db\" }\n",
        "[store]\nplace = \"postgres://127.0.0.1/db?password=CANARY-PASSWORD\"\n",
        "threads = 2\nlisten = \"127.0.0.1:0\"\n[limits]\nconnections = 0\n",
        "[wire]\nreasoning_field = \"both\"\n",
        "[auth]\n[[auth.key]]\nname = \"a\"\nsha256 = \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"\nmodels = [\"m\"]\n",
        "[media]\n",
        "x = 1\n",
    ] {
        all.push(format!("{text}{upstream}").into_bytes());
    }
    all
}
