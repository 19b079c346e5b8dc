//! `samewire drain`, and what waits for it (faults 9, O01, O03, O04).

use crate::canonical::Canonical;
use crate::sim::{Client, Engine, Gate, PATIENCE, Request, Samewire, Script, Setup, until, within};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const SETTLE: &str = "[timeouts]\nsettle = 1";

fn drain(admin: SocketAddr, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command.args(["drain", "--admin-listen", &admin.to_string()]).args(args).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn finished(mut command: Command) -> Output {
    let finished = tokio::task::spawn_blocking(move || command.output().expect("the binary runs"));
    within("the command ends", finished).await.expect("no panic")
}

/// A stream that goes on until the gate opens, and the samewire that relays it.
async fn streaming(gate: &Gate, lines: &str) -> (Engine, Samewire, Client) {
    let script =
        Script::new().head_sse().role().text("a.0 ").wait(gate).text("a.1 ").finish("stop").done().end();
    let engine = Engine::in_turn(vec![script, Script::answer("b", 1)]).await;
    let setup = Setup::new().args(&["--engine", "vllm"]).upstream(&engine.url()).config(lines);
    let samewire = Samewire::start(&setup).await;
    let mut client = Client::connect(samewire.proxy).await;
    client.send(&Request::stream("").bytes()).await;
    client.head().await;
    client.event_with("a.0").await;
    (engine, samewire, client)
}

#[tokio::test]
async fn a_drain_waits_for_what_runs_and_ends_nothing() {
    let gate = Gate::default();
    let (_engine, mut samewire, mut client) = streaming(&gate, SETTLE).await;
    // An engine's preStop waits, too; it can send nothing but a GET.
    let admin = samewire.admin;
    let engines = tokio::spawn(async move { Request::get("/drain/wait").ask(admin).await });
    let ours = tokio::spawn(finished(drain(admin, &["--wait", "60s"])));
    until("it drains", PATIENCE, || samewire.logs().iter().any(|line| line.contains("draining"))).await;
    assert_eq!(samewire.admin("/readyz").await.head.status, 503);
    assert_eq!(samewire.admin("/livez").await.head.status, 200);
    // Whoever still comes is served, and told to go elsewhere next time.
    let answer = Request::stream("").ask(samewire.proxy).await;
    assert_eq!(answer.text(), Canonical::answer("b", 1).text());
    assert_eq!(answer.head.header("connection"), Some("close"));
    // Then nobody is.
    let refused = || std::net::TcpStream::connect(samewire.proxy).is_err();
    until("the listener is closed", PATIENCE, refused).await;
    assert!(!ours.is_finished() && !engines.is_finished(), "a stream is running");
    gate.open();
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert!(rest.contains("a.1") && rest.ends_with("data: [DONE]\n\n"), "{rest}");
    let ours = within("the drain ends", ours).await.expect("no panic");
    assert_eq!((ours.status.code(), ours.stdout.as_slice()), (Some(0), &b"drained\n"[..]));
    let engines = within("the engine may go", engines).await.expect("no panic");
    assert_eq!((engines.head.status, engines.text()), (200, "drained\n"));
    assert!(samewire.running(), "it takes a SIGTERM");
    let start = Instant::now();
    samewire.signal("TERM");
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(1), "it has settled already");
}

#[tokio::test]
async fn fault_o04_the_engine_is_stopped_first() {
    let gate = Gate::default();
    let (_engine, mut samewire, mut client) = streaming(&gate, SETTLE).await;
    let admin = samewire.admin;
    // The pod ends: the engine's preStop, and only when that has returned the engine's SIGTERM, and samewire's at last.
    let engines = tokio::spawn(async move { Request::get("/drain/wait").ask(admin).await });
    tokio::time::timeout(Duration::from_millis(1500), until("never", PATIENCE, || engines.is_finished()))
        .await
        .unwrap_err();
    gate.open();
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
    assert_eq!(within("the engine may go", engines).await.expect("no panic").head.status, 200);
    samewire.signal("TERM");
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
}

#[tokio::test]
async fn who_waits_is_told_before_the_process_ends() {
    let gate = Gate::default();
    let (_engine, mut samewire, mut client) = streaming(&gate, "[timeouts]\nsettle = 0").await;
    let admin = samewire.admin;
    let waits = tokio::spawn(async move { Request::get("/drain/wait").ask(admin).await });
    until("it drains", PATIENCE, || samewire.logs().iter().any(|line| line.contains("draining"))).await;
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
    let (_engine, mut samewire, client) = streaming(&gate, "[timeouts]\nsettle = 0\ndrain = 60").await;
    let output = finished(drain(samewire.admin, &["--wait", "1s"])).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "not drained in time\n");
    let output = finished(drain(samewire.admin, &["--wait", "0"])).await;
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "it is not waited for");
    // What is cut is not left over.
    drop(client);
    samewire.signal("TERM");
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
    let output = finished(drain(samewire.admin, &[])).await;
    assert_eq!(output.status.code(), Some(3));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.starts_with(&format!("no samewire serves operators on {}: ", samewire.admin)), "{told}");
    assert_eq!(finished(drain(samewire.admin, &["--wait", "soon"])).await.status.code(), Some(2));
}

#[tokio::test]
async fn fault_o03_a_second_sigterm_changes_nothing_and_what_is_idle_holds_nothing_up() {
    let gate = Gate::default();
    let (_engine, mut samewire, mut client) = streaming(&gate, "[timeouts]\nsettle = 0.5").await;
    // An idle connection that was used, half a head, and a scrape that is not read.
    let mut idle = Client::connect(samewire.proxy).await;
    idle.send(&Request::stream("").bytes()).await;
    idle.answer().await;
    let mut half = Client::connect(samewire.proxy).await;
    half.send(b"POST /v1/chat/completions HTTP/1.1\r\nho").await;
    let mut scrape = Client::connect(samewire.admin).await;
    scrape.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\nGET /met").await;
    samewire.signal("TERM");
    samewire.signal("TERM");
    until("it drains", PATIENCE, || samewire.logs().iter().any(|line| line.contains("draining"))).await;
    samewire.signal("TERM");
    samewire.signal("HUP");
    gate.open();
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
    assert_eq!(samewire.exit(Duration::from_secs(12)).await.code(), Some(0));
    drop((idle, half, scrape));
}
