//! Build script: embeds the version, the commit and the commit's date in the program.
//!
//! `SAMEWIRE_COMMIT` and `SAMEWIRE_DATE` in the environment take precedence; image builds, which have no
//! repository, set them. A value found in neither place is `unknown`.

#![allow(
    clippy::disallowed_methods,
    reason = "cargo tells a build script in the environment what it builds"
)]

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    let (commit, date) = (given("SAMEWIRE_COMMIT"), given("SAMEWIRE_DATE"));
    // Release builds only: reading git in debug builds would rebuild all tests after each commit.
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
    println!(
        "cargo::rustc-env=SAMEWIRE_BUILD_COMMIT={}",
        commit.as_deref().unwrap_or("unknown")
    );
    println!(
        "cargo::rustc-env=SAMEWIRE_BUILD_DATE={}",
        date.as_deref().unwrap_or("unknown")
    );
    println!("cargo::rustc-env=SAMEWIRE_BUILD_VERSION={version}");
}

/// Returns an environment variable, trimmed; `None` if it is unset or empty. Makes cargo rerun the script when it
/// changes.
fn given(name: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var(name)
        .ok()
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
}

/// Returns the trimmed output of a git command. Returns `None` without git, without a repository, or if the output
/// is empty.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
