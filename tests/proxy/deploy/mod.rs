//! Deployment files, checked as far as possible without a container engine: their privileges, and that the built
//! binary knows every flag, variable, port and path in them; and the script that runs all tests.

mod compose;
mod dependencies;
mod image;
mod kubernetes;
mod scripts;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// User id in every file.
const UID: u32 = 65532;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    let full = root().join(path);
    std::fs::read_to_string(&full).unwrap_or_else(|error| panic!("{}: {error}", full.display()))
}

/// Returns all documents of a YAML file.
fn yaml(path: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the ports of the annotated example configuration: the client port and the admin port.
fn ports() -> (u64, u64) {
    let file: toml::Table = read("config/samewire.toml")
        .parse()
        .expect("the example is TOML");
    let port = |key: &str| {
        let address = file[key].as_str().expect("an address");
        address
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok())
            .expect("a port")
    };
    (port("listen"), port("admin_listen"))
}

/// Returns the long flags of `samewire serve --help`, without their dashes.
fn flags() -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_samewire"))
        .args(["serve", "--help"])
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let help = String::from_utf8(output.stdout).expect("UTF-8");
    let words = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words
        .filter_map(|word| word.strip_prefix("--"))
        .filter(|flag| !flag.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Fails unless `name` is the variable of a flag of `serve`.
fn assert_variable(name: &str) {
    let flag = name
        .strip_prefix("SAMEWIRE_")
        .unwrap_or_else(|| panic!("{name} is not samewire's"));
    let flag = flag.to_ascii_lowercase().replace('_', "-");
    assert!(flags().contains(&flag), "{name}: serve has no --{flag}");
}

/// Fails unless samewire would start with these arguments and variables and nothing else.
fn assert_starts(args: &[String], variables: &BTreeMap<String, String>) {
    assert_eq!(args.first().map(String::as_str), Some("serve"), "{args:?}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command
        .arg("check")
        .args(&args[1..])
        .env_clear()
        .envs(variables)
        .current_dir(Path::new("/"));
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(0),
        "samewire check {:?} with {variables:?}: {text}",
        &args[1..]
    );
}

/// Fails unless an image is named with a fixed tag.
fn assert_pinned(image: &str) {
    let tag = image.rsplit_once(':').map(|(_, tag)| tag);
    assert!(
        tag.is_some_and(|tag| tag.contains(|c: char| c.is_ascii_digit())),
        "{image} is not pinned"
    );
}

/// Returns the strings of a list.
fn strings(list: &Value) -> Vec<String> {
    let list = list
        .as_array()
        .unwrap_or_else(|| panic!("not a list: {list}"));
    list.iter()
        .map(|item| {
            item.as_str()
                .unwrap_or_else(|| panic!("not a string: {item}"))
                .to_owned()
        })
        .collect()
}
