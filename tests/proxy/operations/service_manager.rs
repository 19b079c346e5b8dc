//! Service manager, such as systemd: the sockets that it passes, and the messages that it gets.

use super::draining::{drain, finished};
use crate::canonical::Canonical;
use crate::sim::prelude::*;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

/// Opens sockets of these kinds, and becomes samewire with them, as a service manager does: `python3 -c PASSES KINDS
/// samewire …`.
const PASSES: &str = r#"
import os, socket, sys
kinds = {
    "tcp": lambda: socket.create_server(("127.0.0.1", 0)),
    "everywhere": lambda: socket.create_server(("0.0.0.0", 0)),
    "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
}
sockets = [kinds[kind]() for kind in sys.argv[1].split(",")]
for number, passed in enumerate(sockets, 3):
    os.dup2(passed.fileno(), number)
    os.set_inheritable(number, True)
os.environ.update(LISTEN_FDS=str(len(sockets)), LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"#;

/// Returns a command that runs `serve` with sockets of these kinds. The addresses of its flags cannot be bound.
fn passing(kinds: &str, engine: &str) -> Command {
    let mut command = Command::new("python3");
    command.args([
        "-c",
        PASSES,
        kinds,
        env!("CARGO_BIN_EXE_samewire"),
        "serve",
        "--engine",
        "vllm",
    ]);
    command.args([
        "--listen",
        "192.0.2.1:1",
        "--admin-listen",
        "192.0.2.1:2",
        "--upstream",
        engine,
    ]);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("SAMEWIRE_TIMEOUTS__SETTLE", "0");
    command
}

#[tokio::test]
async fn fault_o29_passed_sockets_are_served_and_survive_a_drain() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let mut samewire = Samewire::spawn_as(passing("tcp,tcp", &engine.url()));
    samewire.wait_until_it_listens().await;
    let expected = Canonical::answer("a", 1);
    assert_eq!(
        Request::stream("").answer(samewire.proxy).await.text(),
        expected.text()
    );
    samewire.admin_becomes("/readyz", 200).await;
    let drained = finished(drain(samewire.admin, &["--wait", "60s"])).await;
    assert_eq!(drained.status.code(), Some(0));
    // The manager's socket stays open: a client waits in its queue.
    let proxy = samewire.proxy;
    let waiting =
        tokio::spawn(async move { Request::stream("").answer(proxy).await.text().to_owned() });
    let undone = finished(drain(samewire.admin, &["--undo"])).await;
    assert_eq!(undone.status.code(), Some(0));
    assert_eq!(
        within("it is served", waiting).await.expect("no panic"),
        expected.text()
    );
    samewire.stop().await;
}

#[test]
fn fault_o29_sockets_that_cannot_be_used_are_named() {
    for (kinds, expected) in [
        ("udp", "LISTEN_FDS: the first socket is no TCP listener"),
        (
            "tcp,udp",
            "LISTEN_FDS: the second socket is no TCP listener",
        ),
        (
            "tcp,tcp,tcp",
            "LISTEN_FDS: 3 sockets are passed; there are two listeners",
        ),
        (
            "everywhere,tcp",
            "can be reached from other machines and no keys are checked",
        ),
    ] {
        let output = passing(kinds, "http://127.0.0.1:1")
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && told.contains(expected),
            "{kinds}: {told}"
        );
    }
}

/// Receives messages until one contains this text, and returns that one.
fn told(manager: &UnixDatagram, text: &str) -> String {
    let mut buffer = [0; 4096];
    loop {
        let length = manager
            .recv(&mut buffer)
            .unwrap_or_else(|error| panic!("{text} was not told: {error}"));
        let message = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if message.contains(text) {
            return message;
        }
    }
}

#[tokio::test]
async fn fault_o30_the_service_manager_is_told() {
    let folder = Folder::new();
    let path = folder.path("notify");
    let manager = UnixDatagram::bind(&path).expect("the temporary folder is writable");
    manager.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let engine = Engine::script(Script::answer("a", 1)).await;
    let setup = Setup::before(&engine)
        .config("[timeouts]\nsettle = 0")
        .environment("NOTIFY_SOCKET", path.to_str().expect("UTF-8"))
        .environment("WATCHDOG_USEC", "100000");
    let mut samewire = Samewire::start(&setup).await;
    let ready = told(&manager, "READY=1");
    assert!(
        ready.contains(&format!("STATUS=serving at {}", samewire.proxy)),
        "{ready}"
    );
    told(&manager, "WATCHDOG=1");
    samewire.signal("HUP");
    let reloading = told(&manager, "RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    told(&manager, "READY=1");
    std::fs::write(samewire.config(), "listen = 7").expect("the temporary folder is writable");
    samewire.signal("HUP");
    let refused = told(
        &manager,
        "STATUS=serving; the new configuration is not taken",
    );
    assert!(refused.contains("READY=1"), "{refused}");
    samewire.signal("TERM");
    told(&manager, "STOPPING=1");
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
}

#[tokio::test]
async fn fault_o30_a_service_manager_that_does_not_listen_stops_nothing() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let setup = Setup::before(&engine)
        .args(&["--log-level", "debug"])
        .environment("NOTIFY_SOCKET", "/nonexistent/notify")
        .environment("WATCHDOG_USEC", "1000");
    let samewire = Samewire::start(&setup).await;
    assert_eq!(
        Request::stream("").answer(samewire.proxy).await.text(),
        Canonical::answer("a", 1).text()
    );
    let logged = || samewire.count_logged("the service manager cannot be told") > 1;
    until("it is logged", logged).await;
}

#[tokio::test]
async fn fault_o30_a_service_manager_that_does_not_read_stops_nothing() {
    let folder = Folder::new();
    let path = folder.path("notify");
    let manager = UnixDatagram::bind(&path).expect("the temporary folder is writable");
    let engine = Engine::script(Script::answer("a", 1)).await;
    let setup = Setup::before(&engine)
        .args(&["--log-level", "debug"])
        .config("[timeouts]\nsettle = 0")
        .environment("NOTIFY_SOCKET", path.to_str().expect("UTF-8"))
        .environment("WATCHDOG_USEC", "1000");
    let mut samewire = Samewire::start(&setup).await;
    let is_full = || samewire.count_logged("a message is left out") > 1;
    until("its queue is full", is_full).await;
    assert_eq!(
        Request::stream("").answer(samewire.proxy).await.text(),
        Canonical::answer("a", 1).text()
    );
    assert_eq!(samewire.admin("/livez").await.head.status, 200);
    samewire.stop().await;
    drop(manager);
}
