//! Rows that others are writing to, in a database that replicas share.

use crate::places::{self, ROOMY};
use crate::postgres::connect;
use crate::responses::{NOW, completed, events, key, over, running};
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use samewire::store::{
    Batch, BatchStatus, BatchStep, FileChunk, FileLimits, FilePurpose, Key, LEASE, NewFile, Store,
    StoreCaps,
};
use std::sync::Arc;
use tokio_postgres::Client;

const LIMITS: FileLimits = FileLimits {
    tenant_files: 99,
    tenant_bytes: u64::MAX,
    total_bytes: u64::MAX,
};

async fn file(store: &Store, id: &str, bodies: &[&str]) {
    store
        .create_file(
            NewFile {
                key: key(id),
                name: "in".into(),
            },
            LIMITS,
            NOW,
        )
        .await
        .unwrap();
    for (place, body) in (0..).zip(bodies) {
        let chunk = FileChunk {
            place,
            first: place,
            lines: 1,
            body: (*body).into(),
        };
        store
            .append_chunk(key(id), chunk, LIMITS, NOW)
            .await
            .unwrap();
    }
    store
        .finish_file(key(id), FilePurpose::Batch, NOW + 1_000)
        .await
        .unwrap();
}

async fn batch(store: &Store, key: &Key) {
    let new = Batch {
        caller: "".into(),
        input: "file-in".into(),
        output: format!("{}-out", key.id).into(),
        errors: format!("{}-err", key.id).into(),
        expires: NOW + 1_000_000,
        facts: "{}".into(),
        ..Batch::new(key.clone(), NOW)
    };
    store.create_batch(new, 9, NOW).await.unwrap();
}

async fn count(admin: &Client, table: &str) -> i64 {
    admin
        .query_one(&format!("SELECT COUNT(*) FROM {table}"), &[])
        .await
        .unwrap()
        .get(0)
}

#[tokio::test]
async fn fault_o31_sweeps_at_once_leave_no_part_of_a_file() {
    let place = places::postgres().await;
    let (first, second) = (place.open(ROOMY).await, place.open(ROOMY).await);
    let mut admin = connect(place.url()).await;
    for n in 0..6 {
        file(&first, &format!("file-{n}"), &["x\n"; 40]).await;
    }
    let held = admin.transaction().await.unwrap();
    held.execute(
        "SELECT 1 FROM samewire_files WHERE id = 'file-0' FOR UPDATE",
        &[],
    )
    .await
    .unwrap();
    let sweep = async |store: &Store| while store.sweep_files(NOW + 1_000).await.unwrap() > 0 {};
    join_all([&first, &second, &first, &second].map(sweep)).await;
    held.rollback().await.unwrap();
    // Only the file that somebody held is left, whole.
    assert_eq!(
        (
            count(&admin, "samewire_files").await,
            count(&admin, "samewire_chunks").await
        ),
        (1, 40)
    );
    sweep(&second).await;
    assert_eq!(
        (
            count(&admin, "samewire_files").await,
            count(&admin, "samewire_chunks").await
        ),
        (0, 0)
    );
}

/// A sweep removes no more than it can in the time of one operation.
#[tokio::test]
async fn fault_o31_a_sweep_of_large_chunks_is_short() {
    for place in [places::postgres().await, places::sqlite().await] {
        let store = place.open(ROOMY).await;
        let body = "x".repeat(12 << 20) + "\n";
        for n in 0..2 {
            file(&store, &format!("file-{n}"), &[&body, &body, &body]).await;
        }
        let mut removed = Vec::new();
        loop {
            match store.sweep_files(NOW + 1_000).await.unwrap() {
                0 => break,
                rows => removed.push(rows),
            }
        }
        removed.sort_unstable();
        assert_eq!(
            removed,
            [1, 1, 1, 1, 2, 2],
            "a chunk at a time, and a file with its last one"
        );
        let huge = "x".repeat(40 << 20) + "\n";
        file(&store, "file-3", &[&huge, &huge]).await;
        assert_eq!(
            store.sweep_files(NOW + 1_000).await,
            Ok(1),
            "a chunk above the limit goes alone"
        );
    }
}

#[tokio::test]
async fn fault_o32_a_batch_that_is_locked_stops_no_other() {
    let place = places::postgres().await;
    let store = place.open(ROOMY).await;
    file(&store, "file-in", &["x\n"]).await;
    let keys = ["one", "two", "three"].map(key);
    batch(&store, &keys[0]).await;
    batch(&store, &keys[1]).await;
    assert_eq!(
        store.claim_batches("a".into(), 9, NOW).await.unwrap().len(),
        2
    );
    let mut admin = connect(place.url()).await;
    let held = admin.transaction().await.unwrap();
    held.execute(
        "SELECT 1 FROM samewire_batches WHERE id = 'one' FOR UPDATE",
        &[],
    )
    .await
    .unwrap();
    batch(&store, &keys[2]).await;
    // The owner knows of both, and keeps the one that is free.
    assert_eq!(
        store
            .renew_batches("a".into(), NOW + 10)
            .await
            .unwrap()
            .len(),
        2
    );
    let claimed = store
        .claim_batches("b".into(), 9, NOW + LEASE)
        .await
        .unwrap();
    assert_eq!(
        claimed
            .iter()
            .map(|batch| &*batch.key.id)
            .collect::<Vec<_>>(),
        ["three"]
    );
    held.rollback().await.unwrap();
    // Each write of an owner renews its lease.
    let step = BatchStep {
        version: 1,
        status: BatchStatus::InProgress,
        cursor: 0,
        ahead: "".into(),
        facts: "{}".into(),
        output: Arc::default(),
        errors: Arc::default(),
        gone: 0,
        files_gone: 0,
    };
    store
        .advance_batch(keys[0].clone(), 1, step, LIMITS, NOW + 5)
        .await
        .unwrap();
    assert_eq!(
        store.claim_batches("b".into(), 9, NOW + LEASE + 4).await,
        Ok(Vec::new())
    );
    assert_eq!(
        store
            .claim_batches("b".into(), 9, NOW + LEASE + 5)
            .await
            .unwrap()
            .len(),
        1
    );
}

/// More operations wait than there are connections: the leases of what runs are renewed before them.
#[tokio::test]
async fn fault_o17_leases_do_not_wait_for_requests() {
    let place = places::postgres().await;
    let store = place.open(ROOMY).await;
    store.create(running("resp_1"), NOW).await.unwrap();
    store.create(running("resp_2"), NOW).await.unwrap();
    let mut admin = connect(place.url()).await;
    let held = admin.transaction().await.unwrap();
    held.execute(
        "SELECT 1 FROM samewire_records WHERE id = 'resp_1' FOR UPDATE",
        &[],
    )
    .await
    .unwrap();
    let waiting = (0..40).map(|_| store.finish(key("resp_1"), 1, completed("{}"), NOW));
    let mut waiting: FuturesUnordered<_> = waiting.collect();
    let mut renewed = std::pin::pin!(store.heartbeat("owner".into(), NOW + 10));
    let mut ended = 0;
    let renewed = loop {
        tokio::select! {
            biased;
            Some(_) = waiting.next() => ended += 1,
            renewed = &mut renewed => break renewed,
        }
    };
    assert_eq!(renewed, Ok(1));
    assert!(ended < 20, "{ended} of 40 were first");
}

#[tokio::test]
async fn fault_o17_a_response_that_is_locked_stops_no_other() {
    let place = places::postgres().await;
    let store = place
        .open(StoreCaps {
            records: 3,
            ..ROOMY
        })
        .await;
    store.create(running("resp_1"), NOW).await.unwrap();
    store.create(running("resp_2"), NOW).await.unwrap();
    store.create(over("resp_3"), NOW).await.unwrap();
    let mut admin = connect(place.url()).await;
    let held = admin.transaction().await.unwrap();
    let sql = "SELECT 1 FROM samewire_records WHERE id = 'resp_1' FOR UPDATE";
    held.execute(sql, &[]).await.unwrap();
    assert_eq!(store.heartbeat("owner".into(), NOW + 10).await, Ok(1));
    assert_eq!(
        store.orphans("new".into(), 9, NOW + LEASE).await,
        Ok(Vec::new())
    );
    assert_eq!(
        store
            .orphans("new".into(), 9, NOW + LEASE + 10)
            .await
            .unwrap()
            .len(),
        1
    );
    held.rollback().await.unwrap();
    store
        .append_events(key("resp_1"), 1, events(0, &["0"]), NOW + 20)
        .await
        .unwrap();
    assert_eq!(
        store.orphans("new".into(), 9, NOW + LEASE + 19).await,
        Ok(Vec::new()),
        "events renew the lease"
    );
    store
        .finish(key("resp_1"), 1, completed("{}"), NOW + 20)
        .await
        .unwrap();
    let held = admin.transaction().await.unwrap();
    held.execute(
        "SELECT 1 FROM samewire_records WHERE id = 'resp_3' FOR UPDATE",
        &[],
    )
    .await
    .unwrap();
    // It is the oldest one, which would go first.
    store.create(over("resp_4"), NOW + 30).await.unwrap();
    held.rollback().await.unwrap();
    assert!(store.get(key("resp_3"), NOW + 30).await.is_ok());
    assert!(store.get(key("resp_1"), NOW + 30).await.is_err());
    store.sweep(NOW + 30).await.unwrap();
}
