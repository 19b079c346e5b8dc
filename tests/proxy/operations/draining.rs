//! `samewire drain`, and the requests that it waits for (faults 9, O01, O03, O04).

use crate::canonical::Canonical;
use crate::sim::prelude::*;
use std::process::{Command, Output, Stdio};

const SETTLE: &str = "[timeouts]\nsettle = 1";

pub(super) fn drain(admin: SocketAddr, args: &[&str]) -> Command {
    command("drain", admin, args)
}

/// Returns a command line that contacts a running samewire.
fn command(name: &str, admin: SocketAddr, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command
        .args([name, "--admin-listen", &admin.to_string()])
        .args(args)
        .env_clear();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub(super) async fn finished(mut command: Command) -> Output {
    let finished = tokio::task::spawn_blocking(move || command.output().expect("the binary runs"));
    within("the command ends", finished)
        .await
        .expect("no panic")
}

/// Starts an engine whose stream lasts until the gate opens, and a samewire that relays it.
async fn streaming(gate: &Gate, lines: &str) -> (Engine, Samewire, Client) {
    let script = Script::stream().text("a.0 ").wait(gate).text("a.1 ").stop();
    let engine = Engine::in_turn(vec![script, Script::answer("b", 1)]).await;
    let setup = Setup::before(&engine).config(lines);
    let samewire = Samewire::start(&setup).await;
    let client = Request::stream("").begin_until(samewire.proxy, "a.0").await;
    (engine, samewire, client)
}

#[tokio::test]
async fn a_drain_waits_for_what_runs_and_ends_nothing() {
    let gate = Gate::default();
    let (_engine, mut samewire, mut client) = streaming(&gate, "[timeouts]\nsettle = 5").await;
    // An engine's preStop hook waits, too; it can only send a GET.
    let admin = samewire.admin;
    let engines = tokio::spawn(async move { Request::get("/drain/wait").answer(admin).await });
    let ours = tokio::spawn(finished(drain(admin, &["--wait", "60s"])));
    until("it drains", || {
        samewire.logs().iter().any(|line| line.contains("draining"))
    })
    .await;
    assert_eq!(samewire.admin("/readyz").await.head.status, 503);
    assert_eq!(samewire.admin("/livez").await.head.status, 200);
    // New requests are still served, with `connection: close`.
    let answer = Request::stream("").answer(samewire.proxy).await;
    assert_eq!(answer.text(), Canonical::answer("b", 1).text());
    assert_eq!(answer.head.header("connection"), Some("close"));
    // Later, new connections are refused.
    let refused = || std::net::TcpStream::connect(samewire.proxy).is_err();
    until("the listener is closed", refused).await;
    assert!(
        !ours.is_finished() && !engines.is_finished(),
        "a stream is running"
    );
    gate.open();
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert!(
        rest.contains("a.1") && rest.ends_with("data: [DONE]\n\n"),
        "{rest}"
    );
    let ours = within("the drain ends", ours).await.expect("no panic");
    assert_eq!(
        (ours.status.code(), ours.stdout.as_slice()),
        (Some(0), &b"drained\n"[..])
    );
    let engines = within("the engine may go", engines)
        .await
        .expect("no panic");
    assert_eq!((engines.head.status, engines.text()), (200, "drained\n"));
    assert!(samewire.running(), "it takes a SIGTERM");
    let start = Instant::now();
    samewire.stop().await;
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "it has settled already"
    );
}

/// A connection is accepted just before samewire stops to take new ones, and its request comes just after that.
#[tokio::test]
async fn fault_o01_a_connection_that_was_just_accepted_is_answered() {
    let engine = Engine::answering(|_| Script::answer("a", 1)).await;
    let samewire =
        Samewire::start(&Setup::before(&engine).config("[timeouts]\nsettle = 0.2")).await;
    let mut client = Client::connect(samewire.proxy).await;
    let admin = samewire.admin;
    let drained = tokio::spawn(async move { Request::get("/drain/wait").answer(admin).await });
    let refused = || std::net::TcpStream::connect(samewire.proxy).is_err();
    until("the listener is closed", refused).await;
    client.send(&Request::plain("").bytes()).await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.head.status, answer.fault().code.as_deref()),
        (503, Some("draining"))
    );
    assert_eq!(answer.head.header("connection"), Some("close"));
    within("the drain ends", drained).await.expect("no panic");
}

#[tokio::test]
async fn fault_o04_the_engine_is_stopped_first() {
    let gate = Gate::default();
    let (_engine, mut samewire, mut client) = streaming(&gate, "[timeouts]\nsettle = 0.2").await;
    let admin = samewire.admin;
    // The end of a pod: the engine's preStop hook, after that the engine's SIGTERM, and samewire's at last.
    let engines = tokio::spawn(async move { Request::get("/drain/wait").answer(admin).await });
    tokio::time::timeout(
        Duration::from_millis(500),
        until("never", || engines.is_finished()),
    )
    .await
    .unwrap_err();
    gate.open();
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
    assert_eq!(
        within("the engine may go", engines)
            .await
            .expect("no panic")
            .head
            .status,
        200
    );
    samewire.stop().await;
}

#[tokio::test]
async fn who_waits_is_told_before_the_process_ends() {
    let gate = Gate::default();
    let (_engine, mut samewire, mut client) = streaming(&gate, "[timeouts]\nsettle = 0").await;
    let admin = samewire.admin;
    let waits = tokio::spawn(async move { Request::get("/drain/wait").answer(admin).await });
    until("it drains", || {
        samewire.logs().iter().any(|line| line.contains("draining"))
    })
    .await;
    samewire.signal("TERM");
    gate.open();
    client.rest().await;
    let told = within("it is told", waits).await.expect("no panic");
    assert_eq!((told.head.status, told.text()), (200, "drained\n"));
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
}

#[tokio::test]
async fn what_is_not_drained_in_time_is_told() {
    let gate = Gate::default();
    let (_engine, mut samewire, client) =
        streaming(&gate, "[timeouts]\nsettle = 0\ndrain = 60").await;
    let output = finished(drain(samewire.admin, &["--wait", "1s"])).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "not drained in time\n"
    );
    let output = finished(drain(samewire.admin, &["--wait", "0"])).await;
    assert_eq!(
        (output.status.code(), output.stdout.len()),
        (Some(0), 0),
        "it is not waited for"
    );
    // Cut streams leave nothing behind.
    drop(client);
    samewire.stop().await;
    let output = finished(drain(samewire.admin, &[])).await;
    assert_eq!(output.status.code(), Some(3));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.starts_with(&format!(
            "no samewire serves operators on {}: ",
            samewire.admin
        )),
        "{told}"
    );
    assert_eq!(
        finished(drain(samewire.admin, &["--wait", "soon"]))
            .await
            .status
            .code(),
        Some(2)
    );
}

#[tokio::test]
async fn fault_o03_a_second_sigterm_changes_nothing_and_what_is_idle_holds_nothing_up() {
    let gate = Gate::default();
    let (_engine, mut samewire, mut client) = streaming(&gate, "[timeouts]\nsettle = 0.5").await;
    // A used idle connection, an incomplete head, and a scrape whose response is not read.
    let mut idle = Request::stream("").send(samewire.proxy).await;
    idle.answer().await;
    let half = Client::sending(samewire.proxy, b"POST /v1/chat/completions HTTP/1.1\r\nho").await;
    let scrape = Client::sending(
        samewire.admin,
        b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\nGET /met",
    )
    .await;
    samewire.signal("TERM");
    samewire.signal("TERM");
    until("it drains", || {
        samewire.logs().iter().any(|line| line.contains("draining"))
    })
    .await;
    samewire.signal("TERM");
    samewire.signal("HUP");
    gate.open();
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
    drop((idle, half, scrape));
}

/// Cancels a drain by the command. Returns its output and exit code.
async fn undo(samewire: &Samewire) -> (String, String, Option<i32>) {
    let output = finished(drain(samewire.admin, &["--undo"])).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        text(&output.stdout),
        text(&output.stderr),
        output.status.code(),
    )
}

fn taken_back() -> (String, String, Option<i32>) {
    (
        "the drain was taken back\n".to_owned(),
        String::new(),
        Some(0),
    )
}

async fn is_ready(samewire: &Samewire) -> bool {
    samewire.admin("/readyz").await.head.status == 200
}

#[tokio::test]
async fn a_drain_that_settles_is_taken_back() {
    let gate = Gate::default();
    let (_engine, mut samewire, mut client) = streaming(&gate, "[timeouts]\nsettle = 600").await;
    let no_drain = ("not draining\n".to_owned(), String::new(), Some(0));
    assert_eq!(undo(&samewire).await, no_drain, "there is none");
    for _ in 0..3 {
        assert_eq!(
            finished(drain(samewire.admin, &["--wait", "0"]))
                .await
                .status
                .code(),
            Some(0)
        );
        assert!(!is_ready(&samewire).await);
        assert_eq!(undo(&samewire).await, taken_back());
        assert!(is_ready(&samewire).await);
    }
    // The cancellation follows at once, before the drain has had any effect.
    let target = |target| Request::new("POST", target).header("content-length", "0");
    for _ in 0..50 {
        target("/drain").answer(samewire.admin).await;
        assert_eq!(
            target("/drain/undo")
                .answer(samewire.admin)
                .await
                .head
                .status,
            200
        );
        assert!(is_ready(&samewire).await);
    }
    let answer = Request::stream("").answer(samewire.proxy).await;
    assert_eq!(
        (answer.text(), answer.head.header("connection")),
        (Canonical::answer("b", 1).text(), None)
    );
    gate.open();
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert!(
        rest.contains("a.1") && rest.ends_with("data: [DONE]\n\n"),
        "{rest}"
    );
    assert_eq!(
        finished(drain(samewire.admin, &["--undo", "--wait", "1s"]))
            .await
            .status
            .code(),
        Some(2)
    );
    samewire.signal("INT");
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
    assert_eq!(undo(&samewire).await.2, Some(3));
}

#[tokio::test]
async fn a_drain_is_taken_back_after_the_listener_has_closed() {
    let gate = Gate::default();
    let (_engine, mut samewire, mut client) =
        streaming(&gate, "[timeouts]\nsettle = 0\ndrain = 600").await;
    let proxy = samewire.proxy;
    let refused = || std::net::TcpStream::connect(proxy).is_err();
    for _ in 0..2 {
        let waits = tokio::spawn(finished(drain(samewire.admin, &[])));
        until("the listener is closed", refused).await;
        // Another program listens at the address meanwhile.
        let other = std::net::TcpListener::bind(proxy).expect("the address is free");
        let (_, why, code) = undo(&samewire).await;
        assert_eq!(code, Some(1));
        assert!(
            why.starts_with(&format!("cannot listen on {proxy}: ")),
            "{why}"
        );
        assert!(!is_ready(&samewire).await && !waits.is_finished());
        drop(other);
        assert_eq!(undo(&samewire).await, taken_back());
        assert!(is_ready(&samewire).await);
        let waited = within("the waiting client is told", waits)
            .await
            .expect("no panic");
        let told = String::from_utf8_lossy(&waited.stderr).into_owned();
        assert_eq!(
            (waited.status.code(), told.as_str()),
            (Some(1), "the drain was taken back\n")
        );
        let mut again = Client::connect(proxy).await;
        for _ in 0..2 {
            again.send(&Request::stream("").bytes()).await;
            assert_eq!(
                again.answer().await.text(),
                Canonical::answer("b", 1).text()
            );
        }
    }
    gate.open();
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert!(
        rest.contains("a.1") && rest.ends_with("data: [DONE]\n\n"),
        "{rest}"
    );
    samewire.stop().await;
}

#[tokio::test]
async fn a_drain_is_taken_back_after_the_last_stream_was_cut_but_no_sigterm_is() {
    let gate = Gate::default();
    let lines = "[timeouts]\nsettle = 0\ndrain = 0.2\nflush = 600";
    let (_engine, mut samewire, mut client) = streaming(&gate, lines).await;
    assert_eq!(
        finished(drain(samewire.admin, &[])).await.status.code(),
        Some(0)
    );
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert!(rest.contains(r#""code":"draining""#), "{rest}");
    assert_eq!(undo(&samewire).await, taken_back());
    let answer = Request::stream("").answer(samewire.proxy).await;
    assert_eq!(answer.text(), Canonical::answer("b", 1).text());
    samewire.reconfigure("[timeouts]\nsettle = 600").await;
    samewire.signal("TERM");
    until("it drains", || samewire.count_logged("\"draining\"") >= 2).await;
    let (_, why, code) = undo(&samewire).await;
    let expected =
        "the process is ending, as a signal has asked it to; that cannot be taken back\n";
    assert_eq!((why.as_str(), code), (expected, Some(1)));
    assert!(!is_ready(&samewire).await);
    samewire.signal("INT");
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
}

/// `samewire ready` returns the state of /readyz as an exit code, for a container's health check.
#[tokio::test]
async fn ready_is_an_exit_code() {
    let ready = async |admin, args: &[&str]| {
        let output = finished(command("ready", admin, args)).await;
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let engine = Engine::in_turn(vec![Script::answer("a", 1)]).await;
    let mut samewire =
        Samewire::start(&Setup::before(&engine).config("[timeouts]\nsettle = 60")).await;
    let admin = samewire.admin;
    let (code, said, complaint) = ready(admin, &["--wait", "60s"]).await;
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
    assert!(!said.trim().is_empty());
    // During the settle time requests are served, and readiness is false.
    let output = finished(drain(admin, &["--wait", "0"])).await;
    assert_eq!(output.status.code(), Some(0));
    let (code, said, complaint) = ready(admin, &[]).await;
    assert_eq!((code, said.as_str()), (Some(1), ""), "{complaint}");
    assert!(complaint.contains("drain"), "{complaint}");
    samewire.signal("TERM");
    samewire.signal("INT");
    samewire.exit(PATIENCE).await;
    let (code, _, complaint) = ready(admin, &[]).await;
    assert_eq!(code, Some(3));
    assert!(
        complaint.contains(&format!("no samewire serves operators on {admin}")),
        "{complaint}"
    );
}
