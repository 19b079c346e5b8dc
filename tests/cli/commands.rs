//! Output of the command line about itself: the version, shell completions, manual pages.

use crate::folder::Folder;
use std::process::{Command, Output};

/// Names of all commands in `samewire --help`.
const COMMANDS: [&str; 14] = [
    "serve",
    "demo",
    "rewrite",
    "replay",
    "doctor",
    "diff",
    "conform",
    "check",
    "key",
    "env",
    "drain",
    "ready",
    "completions",
    "man",
];

fn samewire(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_samewire"))
        .args(arguments)
        .output()
        .expect("the binary runs")
}

fn said(arguments: &[&str]) -> String {
    let output = samewire(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_version_is_the_packages() {
    let version = said(&["--version"]);
    let rest = version
        .strip_prefix(concat!("samewire ", env!("CARGO_PKG_VERSION")))
        .expect("name and version");
    // A release also reports its commit and date.
    let is_commit =
        |word: &str| word.len() == 12 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words: Vec<_> = rest.trim().trim_matches(['(', ')']).split(' ').collect();
    assert!(
        rest.trim().is_empty() || is_commit(words[0]) && words[1].split('-').count() == 3,
        "{version}"
    );
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = said(&["completions", shell]);
        for command in COMMANDS {
            assert!(text.contains(command), "{shell}: {command}");
        }
        assert!(text.contains("admin-listen"), "{shell}: the flags, too");
    }
    let wrong = samewire(&["completions", "csh"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&wrong.stderr).contains("csh"),
        "{wrong:?}"
    );
}

#[test]
fn completions_of_bash_are_a_script() {
    let check = Command::new("bash")
        .args([
            "-c",
            "source <(\"$1\" completions bash) && complete -p samewire",
            "-",
        ])
        .arg(env!("CARGO_BIN_EXE_samewire"))
        .output()
        .expect("bash runs");
    assert!(check.status.success(), "{check:?}");
}

#[test]
fn there_is_a_page_for_each_command() {
    let page = said(&["man"]);
    assert!(page.contains(".TH samewire 1"), "{page}");
    let folder = Folder::new();
    said(&[
        "man",
        "--out",
        folder.path("pages").to_str().expect("UTF-8"),
    ]);
    for command in COMMANDS {
        let file = folder.path(&format!("pages/samewire-{command}.1"));
        let page = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(
            page.contains(".SH OPTIONS") || page.contains(".SH SUBCOMMANDS"),
            "{page}"
        );
    }
    assert!(folder.path("pages/samewire.1").exists());
    // A file is not a folder.
    let file = folder.path("pages/samewire.1");
    let wrong = samewire(&["man", "--out", file.to_str().expect("UTF-8")]);
    assert_eq!(wrong.status.code(), Some(3));
}

/// A name that changes the direction of writing is seen, and means the same.
#[test]
fn check_shows_every_character() {
    let folder = Folder::new();
    let text = "[[upstream]]\nurl = \"http://127.0.0.1:8000\"\n[[model]]\nname = \"m\"\naliases = [\"a\u{202e}b\"]\n";
    let shown = said(&["check", "--config", &folder.file("samewire.toml", text)]);
    assert!(
        shown.contains("a\\u202Eb") && !shown.contains('\u{202e}'),
        "{shown}"
    );
}

#[test]
fn check_says_that_exchanges_are_captured() {
    let folder = Folder::new();
    for (enabled, is_told) in [("true", true), ("false", false)] {
        let text = format!(
            "[capture]\nenabled = {enabled}\n[[upstream]]\nurl = \"http://127.0.0.1:8000\"\n"
        );
        let shown = said(&["check", "--config", &folder.file("samewire.toml", &text)]);
        assert_eq!(
            shown.contains("# [capture] is on: what clients ask"),
            is_told,
            "{shown}"
        );
    }
}
