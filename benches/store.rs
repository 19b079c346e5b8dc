//! Rate at which responses can be created and ended, and the duration of each operation, for every kind of store.
//!
//!     cargo bench --bench store [-- --quick]
//!
//! The SQLite file is under `target/`: the run measures its disk. PostgreSQL is measured if
//! `SAMEWIRE_TEST_POSTGRES` holds a URL; its tables are made in that database.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a bench fails by panicking"
)]

use samewire::store::{
    FinalState, Item, Key, NewResponse, State, Store, StoreCaps, StoreLocation, StoredEvents,
};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NOW: u64 = 1_800_000_000_000;

/// Number of concurrent callers.
const CALLERS: usize = 64;

fn item(id: &str) -> Item {
    Item::new(
        id,
        &format!(r#"{{"id":"{id}","text":"{}"}}"#, "x".repeat(400)),
    )
}

fn new(key: Key) -> NewResponse {
    NewResponse {
        key,
        state: State::InProgress,
        owner: "bench".into(),
        background: true,
        previous: None,
        conversation: None,
        request: "x".repeat(1_500).into(),
        response: "x".repeat(700).into(),
        input: vec![item("msg_1"), item("msg_2"), item("msg_3")],
        output: Vec::new(),
    }
}

fn finish() -> FinalState {
    let events = StoredEvents {
        from: 0,
        bodies: vec!["x".repeat(150).into(); 20],
    };
    FinalState {
        state: State::Completed,
        response: "x".repeat(2_000).into(),
        output: vec![item("o1"), item("o2")],
        events,
    }
}

/// Runs `count` operations, [`CALLERS`] at once. Returns the operations per second and the sorted time of each.
async fn measure(store: &Arc<Store>, count: usize, ends: bool) -> (f64, Vec<Duration>) {
    let start = Instant::now();
    let caller = |caller: usize| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let mut times = Vec::new();
            for at in 0..count / CALLERS {
                let key = Key::new("bench", &format!("resp_{caller}_{at}"));
                let start = Instant::now();
                if ends {
                    store.finish(key, 1, finish(), NOW).await.unwrap();
                } else {
                    store.create(new(key), NOW).await.unwrap();
                }
                times.push(start.elapsed());
            }
            times
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(caller).collect();
    let mut times = Vec::new();
    for caller in callers {
        times.extend(caller.await.unwrap());
    }
    times.sort();
    (times.len() as f64 / start.elapsed().as_secs_f64(), times)
}

async fn place(name: &str, place: StoreLocation, caps: StoreCaps, count: usize) {
    let store = Arc::new(
        Store::open(&place, caps)
            .await
            .expect("the store opens")
            .expect("a place"),
    );
    for (what, ends) in [("creates", false), ("finishes", true)] {
        let (rate, times) = measure(&store, count, ends).await;
        let at = |share: f64| {
            times
                .get((times.len() as f64 * share) as usize)
                .copied()
                .unwrap_or_default()
        };
        println!(
            "{name:<10}{what:<10}{rate:>9.0}/s   p50 {:>9.2?}   p99 {:>9.2?}",
            at(0.5),
            at(0.99)
        );
    }
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let count = if quick { 2_000 } else { 20_000 };
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-store-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        // Default limits, but with room for all records.
        let roomy = || StoreCaps {
            bytes: 1 << 30,
            ..StoreCaps::DISK
        };
        place("memory", StoreLocation::Memory, roomy(), count).await;
        place(
            "sqlite",
            StoreLocation::Sqlite(folder.join("responses.db")),
            roomy(),
            count,
        )
        .await;
        if let Ok(url) = std::env::var("SAMEWIRE_TEST_POSTGRES") {
            place(
                "postgres",
                StoreLocation::Postgres(url),
                StoreCaps::SERVER,
                count,
            )
            .await;
        }
    });
    std::fs::remove_dir_all(&folder).unwrap();
}
