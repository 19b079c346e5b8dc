//! The build script: which commit the program is built from, and of which day.
//!
//! `SAMEWIRE_COMMIT` and `SAMEWIRE_DATE` of the environment say it where there is no repository, as in the image. Without
//! either both are `unknown`.

#![allow(clippy::disallowed_methods, reason = "cargo tells a build script in the environment what it builds")]

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    let (commit, date) = (given("SAMEWIRE_COMMIT"), given("SAMEWIRE_DATE"));
    // Only programs that are handed on: all tests would be built anew after each commit.
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let from_git = |arguments: &[&str]| git(arguments).filter(|_| is_release);
    if is_release && let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    let commit = commit.or_else(|| from_git(&["rev-parse", "--short=12", "HEAD"]));
    let date = date.or_else(|| from_git(&["show", "--no-patch", "--format=%cs", "HEAD"]));
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = match (&commit, &date) {
        (Some(commit), Some(date)) => format!("{version} ({commit} {date})"),
        (Some(one), None) | (None, Some(one)) => format!("{version} ({one})"),
        (None, None) => version,
    };
    println!("cargo::rustc-env=SAMEWIRE_BUILD_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo::rustc-env=SAMEWIRE_BUILD_DATE={}", date.as_deref().unwrap_or("unknown"));
    println!("cargo::rustc-env=SAMEWIRE_BUILD_VERSION={version}");
}

/// Reads a variable that may be empty, and has cargo run this again when it changes.
fn given(name: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// Asks git about this repository; `None`: there is no git, or no repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
