//! Batches whose process is killed, or leaves them to another one.

use super::{ended, line, prompt_of, results, started, text_of, until_batch, uploaded};
use crate::postgres::database;
use crate::postgres::partition::{Partition, RelayState};
use crate::sim::prelude::*;
use std::collections::BTreeMap;

const LINES: usize = 300;

/// Returns an engine that takes a moment for each line.
async fn engine() -> Engine {
    Engine::answering(|attempt| {
        super::echo_after(Script::new().sleep(Duration::from_millis(20)), attempt)
    })
    .await
}

/// Returns a setup on a store that several processes share, with a short lease.
fn on(store: &str, engine: &Engine) -> Setup {
    with_lease(2, store, engine)
}

/// Returns a setup on a store, with a lease of these seconds. Leases are renewed once a second: other processes take
/// what has a shorter one.
fn with_lease(lease: u32, store: &str, engine: &Engine) -> Setup {
    let batch = "[batch]\nenabled = true\nconcurrency = 4";
    let lease = format!("background_lease = {lease}\nbackground_heartbeat = 0.5");
    Setup::new()
        .config(&format!("{batch}\n[timeouts]\n{lease}"))
        .args(&["--store", store])
        .in_front_of(engine)
}

fn input() -> String {
    (0..LINES)
        .map(|n| line(&format!("id-{n}"), &format!("prompt {n}")))
        .collect()
}

/// Checks that the output has the answer to every line once.
async fn is_whole(samewire: &Samewire, over: &Value) {
    assert_eq!(over["status"], "completed", "{over}");
    assert_eq!(
        (
            &over["request_counts"]["completed"],
            &over["request_counts"]["failed"]
        ),
        (&LINES.into(), &0.into())
    );
    let all = results(samewire.proxy, &over["output_file_id"]).await;
    assert_eq!(all.len(), LINES);
    for n in 0..LINES {
        assert_eq!(text_of(&all[&format!("id-{n}")]), format!("prompt {n}"));
    }
    assert_eq!(
        over["usage"]["total_tokens"],
        5 * LINES,
        "no line is counted twice"
    );
}

/// Waits until a batch has results for so many lines.
async fn until_done(samewire: &Samewire, id: &str, lines: usize) {
    let has =
        |batch: &Value| batch["request_counts"]["completed"].as_u64().unwrap() as usize >= lines;
    until_batch(samewire.proxy, id, has).await;
}

#[tokio::test]
async fn fault_o32_killed_again_and_again_on_a_file() {
    let (engine, folder) = (engine().await, Folder::new());
    let setup = with_lease(1, &folder.store(), &engine);
    let mut samewire = Samewire::start(&setup).await;
    let id = started(samewire.proxy, &input()).await;
    for part in 1..4 {
        until_done(&samewire, &id, part * LINES / 5).await;
        // Dropping it kills the process (SIGKILL).
        drop(samewire);
        samewire = Samewire::start(&setup).await;
    }
    let over = ended(samewire.proxy, &id).await;
    is_whole(&samewire, &over).await;
    let mut times = BTreeMap::<String, usize>::new();
    for attempt in engine.attempts() {
        *times.entry(prompt_of(&attempt)).or_default() += 1;
    }
    assert_eq!(times.len(), LINES);
    // Lines under way at a kill, and those whose results were not stored yet, are sent again; no others.
    let again = times.values().filter(|times| **times > 1).count();
    assert!(again <= 3 * 100, "{again} lines were sent more than once");
}

#[tokio::test]
async fn fault_o32_another_process_goes_on_after_a_kill() {
    let (engine, store) = (engine().await, database().await);
    let first = Samewire::start(&on(&store, &engine)).await;
    let id = started(first.proxy, &input()).await;
    until_done(&first, &id, LINES / 4).await;
    let second = Samewire::start(&on(&store, &engine)).await;
    drop(first);
    let over = ended(second.proxy, &id).await;
    is_whole(&second, &over).await;
    second.logged("a batch is run", 1).await;
}

/// A process whose lease ends while its database is away goes on with its own batch, and does not run it twice.
#[tokio::test]
async fn fault_o32_a_process_keeps_its_batch_through_a_lapsed_lease() {
    let engine = Engine::answering(|attempt| {
        super::echo_after(Script::new().sleep(Duration::from_millis(60)), attempt)
    });
    let engine = engine.await;
    let partition = Partition::before(&database().await).await;
    let samewire = Samewire::start(&with_lease(1, &partition.url, &engine).allow_errors()).await;
    let id = started(samewire.proxy, &input()).await;
    until_done(&samewire, &id, LINES / 10).await;
    partition.state.send_replace(RelayState::Closed);
    // A second lies between two renewals, and the lease takes no longer.
    let is_told = || samewire.count_logged("the leases of batches were not renewed") >= 2;
    until("the lease has ended", is_told).await;
    partition.state.send_replace(RelayState::Open);
    let show = Request::get(&format!("/v1/batches/{id}"));
    show.answer_until(samewire.proxy, |answer| answer.head.status == 200)
        .await;
    let over = ended(samewire.proxy, &id).await;
    is_whole(&samewire, &over).await;
    samewire.logged("a batch is run", 1).await;
    assert_eq!(engine.attempt_count(), LINES, "each line once");
}

/// Results that have no room when the process ends are not lost: the next process runs their lines again.
#[tokio::test]
async fn fault_o32_lines_whose_results_had_no_room_are_run_again() {
    let (engine, folder) = (engine().await, Folder::new());
    let with = |room: usize| {
        let batch = format!("[batch]\nenabled = true\ntenant_bytes = {room}\n");
        let timeouts = "[timeouts]\nsettle = 0\ndrain = 0.3\nbackground_lease = 1\nbackground_heartbeat = 0.5\n";
        let setup = Setup::new()
            .allow_errors()
            .config(&format!("{batch}{timeouts}"));
        setup
            .args(&["--store", &folder.store()])
            .in_front_of(&engine)
    };
    let mut first = Samewire::start(&with(2_000)).await;
    uploaded(first.proxy, &"x\n".repeat(800)).await;
    let id = started(first.proxy, &line("a", "x")).await;
    let is_told = || first.count_logged("results of a batch are not stored yet") > 0;
    until("there is no room", is_told).await;
    first.signal("TERM");
    first.exit(PATIENCE).await;
    let second = Samewire::start(&with(1 << 20)).await;
    let over = ended(second.proxy, &id).await;
    assert_eq!(
        (&over["status"], &over["request_counts"]["completed"]),
        (&"completed".into(), &1.into()),
        "{over}"
    );
    assert_eq!(
        results(second.proxy, &over["output_file_id"]).await.len(),
        1
    );
    assert_eq!(
        engine.attempt_count(),
        2,
        "what could not be stored is run again"
    );
}

#[tokio::test]
async fn fault_o32_a_process_that_ends_leaves_its_batches_at_once() {
    let (engine, store) = (engine().await, database().await);
    let first = on(&store, &engine).config("settle = 0\n");
    let mut first = Samewire::start(&first).await;
    let id = started(first.proxy, &input()).await;
    until_done(&first, &id, LINES / 4).await;
    let second = Samewire::start(&on(&store, &engine)).await;
    first.signal("TERM");
    let status = first.exit(PATIENCE).await;
    assert!(status.success(), "{status}");
    assert_eq!(
        first.count_logged("a batch is left to another process"),
        1,
        "{:#?}",
        first.logs()
    );
    let over = ended(second.proxy, &id).await;
    is_whole(&second, &over).await;
    assert_eq!(
        engine.attempt_count(),
        LINES,
        "lines under way were waited for"
    );
}
