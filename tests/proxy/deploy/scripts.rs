//! Checks of tests/run.sh, as far as a test that it starts can run it.

use super::root;
use crate::sim::Folder;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes an executable that hides the system's program of the same name on the path.
fn write_program(path: &Path, script: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{script}\n"))
        .expect("the temporary folder is writable");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("the file is ours");
}

/// Runs tests/run.sh with a cargo that reports its start and waits, and ends both by a signal.
#[test]
fn a_run_that_a_signal_ends_has_failed() {
    let folder = Folder::new();
    for (signal, status) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        // If all packages are present, the first step runs cargo to get its version.
        let pipe = folder.path(signal);
        let made = Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .expect("mkfifo is there");
        assert!(made.success());
        write_program(
            &folder.path("cargo"),
            &format!("echo begun > '{}'\nexec sleep 600", pipe.display()),
        );
        let path = format!(
            "{}:{}",
            folder.folder().display(),
            std::env::var("PATH").expect("PATH")
        );
        // The caller may have ignored signals, and a shell cannot trap signals that were ignored at its start.
        let mut run = Command::new("env")
            .args(["--default-signal", "bash", "tests/run.sh"])
            .current_dir(root())
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("bash is there");
        // Opening the pipe blocks until cargo runs.
        let begun = std::fs::read_to_string(&pipe).expect("a pipe");
        assert_eq!(begun, "begun\n");
        let group = format!("-{}", run.id());
        let sent = Command::new("kill")
            .args(["-s", signal, "--", &group])
            .status()
            .expect("kill is there");
        assert!(sent.success());
        let mut output = String::new();
        run.stdout
            .take()
            .expect("piped")
            .read_to_string(&mut output)
            .expect("UTF-8");
        assert_eq!(
            run.wait().expect("a child").code(),
            Some(status),
            "{signal}: {output}"
        );
        let last = output.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("== tests/run.sh: FAILED in \"set-up\" after 0 steps"),
            "{signal}: {output}"
        );
    }
}

/// Removes apt-get from the path: missing packages are named, and nothing is installed.
#[test]
fn without_apt_the_missing_packages_are_named() {
    let folder = Folder::new();
    let install = "source tests/apt.sh; apt_install postgresql libfaketime";
    let output = Command::new("/bin/bash")
        .args(["-c", install])
        .current_dir(root())
        .env("PATH", folder.folder())
        .output()
        .expect("bash is there");
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(said.contains("missing: postgresql libfaketime"), "{said}");
    // With apt-get, the packages are named before they are installed.
    write_program(&folder.path("apt-get"), "echo \"apt-get $*\"");
    write_program(&folder.path("id"), "echo 0");
    write_program(&folder.path("env"), "shift; exec \"$@\"");
    let output = Command::new("/bin/bash")
        .args(["-c", install])
        .current_dir(root())
        .env("PATH", folder.folder())
        .output()
        .expect("bash is there");
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "installing as root, with apt-get: postgresql libfaketime",
            "apt-get update -qq"
        ],
        "{said}"
    );
}
