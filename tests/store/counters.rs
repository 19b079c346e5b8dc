//! Counters of usage within a time window, which replicas share for their quotas.

use crate::places::{self, ROOMY, in_each_place};
use crate::responses::NOW;
use samewire::store::{Count, Counter, Store, StoreError};
use std::sync::Arc;

in_each_place!(
    crate::places::ROOMY,
    a_writer_is_told_of_the_others,
    amounts_only_grow,
    windows_and_kinds_are_apart,
    many_counters_at_once,
    writers_at_once_lose_nothing,
    ended_windows_are_swept,
    strange_names_are_refused,
);

const DAY: u64 = 86_400_000;

fn count(name: &str, kind: u32, amount: u64) -> Count {
    Count {
        counter: Counter {
            name: name.into(),
            kind,
            begins: NOW,
        },
        ends: NOW + DAY,
        amount,
    }
}

async fn put(store: &Store, writer: &str, counts: Vec<Count>) {
    store.put_counts(writer.into(), counts).await.unwrap();
}

/// Reads what all processes but `writer` have counted under these names.
async fn others(store: &Store, writer: &str, names: &[&str]) -> Vec<Count> {
    let names = names.iter().map(|name| Arc::from(*name)).collect();
    store
        .counts_of_others(names, writer.into(), NOW)
        .await
        .unwrap()
}

async fn a_writer_is_told_of_the_others(store: &Store) {
    assert_eq!(others(store, "a", &["key"]).await, []);
    put(store, "a", vec![count("key", 0, 3), count("key", 1, 500)]).await;
    put(store, "b", vec![count("key", 0, 4)]).await;
    put(store, "c", vec![count("key", 0, 5), count("other", 0, 9)]).await;
    assert_eq!(others(store, "a", &["key"]).await, [count("key", 0, 9)]);
    assert_eq!(
        others(store, "b", &["key"]).await,
        [count("key", 0, 8), count("key", 1, 500)]
    );
    assert_eq!(
        others(store, "new", &["key"]).await,
        [count("key", 0, 12), count("key", 1, 500)]
    );
    assert_eq!(others(store, "new", &["ke", "key "]).await, []);
    assert_eq!(others(store, "new", &[]).await, []);
}

async fn amounts_only_grow(store: &Store) {
    for amount in [3, 7, 7, 5, 0] {
        put(store, "a", vec![count("key", 0, amount)]).await;
    }
    assert_eq!(
        others(store, "b", &["key"]).await,
        [count("key", 0, 7)],
        "a late write takes nothing back"
    );
    put(store, "a", vec![count("key", 0, 1 << 52)]).await;
    assert_eq!(
        others(store, "b", &["key"]).await,
        [count("key", 0, 1 << 52)]
    );
}

async fn windows_and_kinds_are_apart(store: &Store) {
    let yesterday = Count {
        counter: Counter {
            begins: NOW - DAY,
            ..count("key", 0, 0).counter
        },
        ends: NOW,
        ..count("key", 0, 100)
    };
    let tomorrow = Count {
        counter: Counter {
            begins: NOW + DAY,
            ..count("key", 0, 0).counter
        },
        ends: NOW + 2 * DAY,
        ..count("key", 0, 1)
    };
    put(
        store,
        "a",
        vec![
            tomorrow.clone(),
            count("key", 2, 20),
            yesterday,
            count("key", 0, 10),
        ],
    )
    .await;
    let told = others(store, "b", &["key"]).await;
    assert_eq!(
        told,
        [count("key", 0, 10), tomorrow, count("key", 2, 20)],
        "ended periods are not returned"
    );
}

async fn many_counters_at_once(store: &Store) {
    let names: Vec<String> = (0..150).map(|n| format!("key-{n:03}")).collect();
    put(
        store,
        "a",
        names.iter().map(|name| count(name, 1, 7)).collect(),
    )
    .await;
    let asked: Vec<_> = names.iter().map(String::as_str).collect();
    let told = others(store, "b", &asked).await;
    assert_eq!(
        told,
        names
            .iter()
            .map(|name| count(name, 1, 7))
            .collect::<Vec<_>>()
    );
}

async fn writers_at_once_lose_nothing(store: &Store) {
    let writer = async |writer: &str| {
        for amount in 1..=50 {
            put(
                store,
                writer,
                vec![count("key", 0, amount), count("key", 1, 10 * amount)],
            )
            .await;
        }
    };
    tokio::join!(writer("a"), writer("b"), writer("c"), writer("d"));
    assert_eq!(
        others(store, "e", &["key"]).await,
        [count("key", 0, 200), count("key", 1, 2_000)]
    );
}

async fn ended_windows_are_swept(store: &Store) {
    put(store, "a", vec![count("key", 0, 1)]).await;
    assert_eq!(store.sweep(NOW + DAY - 1).await, Ok(0));
    assert_eq!(others(store, "b", &["key"]).await.len(), 1);
    assert_eq!(
        store.sweep(NOW + DAY).await,
        Ok(1),
        "the caller goes on until nothing is left"
    );
    assert_eq!(others(store, "b", &["key"]).await, []);
    assert_eq!(
        store.totals().await.unwrap().records,
        0,
        "they take no room of records either"
    );
}

async fn strange_names_are_refused(store: &Store) {
    for name in ["a\0b", &"x".repeat(600)] {
        assert_eq!(
            store.put_counts("a".into(), vec![count(name, 0, 1)]).await,
            Err(StoreError::Conflict)
        );
    }
}

#[tokio::test]
async fn counters_of_a_file_outlive_the_process() {
    let place = places::sqlite().await;
    let store = place.open(ROOMY).await;
    put(&store, "a", vec![count("key", 0, 3)]).await;
    drop(store);
    assert_eq!(
        others(&place.open(ROOMY).await, "b", &["key"]).await,
        [count("key", 0, 3)]
    );
}

/// A file from a version without counters gets their table, and stays readable for that version.
#[tokio::test]
async fn fault_o26_an_older_file_is_completed() {
    let place = places::sqlite().await;
    drop(place.open(ROOMY).await);
    let db = rusqlite::Connection::open(place.file()).unwrap();
    db.execute_batch("DROP TABLE samewire_counters; DROP TABLE samewire_batches; DROP TABLE samewire_seal_keys; UPDATE samewire_schema SET version = 1, reader = 1")
        .unwrap();
    let store = place.open(ROOMY).await;
    put(&store, "a", vec![count("key", 0, 3)]).await;
    assert_eq!(store.renew_batches("a".into(), NOW).await, Ok(Vec::new()));
    assert_eq!(store.seal_key("k".into()).await, Ok("k".into()));
    let version = "SELECT version, reader FROM samewire_schema ORDER BY version DESC LIMIT 1";
    let version = db.query_row(version, [], |row| Ok((row.get(0)?, row.get(1)?)));
    assert_eq!(version, Ok((4, 1)));
}
