//! Failures that only a database server can have.

use crate::places::{self, ROOMY};
use crate::postgres::connect;
use crate::postgres::partition::{Partition, RelayState};
use crate::responses::{NOW, completed, key, over, running};
use futures::future::join_all;
use samewire::store::{Store, StoreCaps, StoreError, StoreLocation};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpListener;

/// Opens the store through a relay.
async fn opened(partition: &Partition) -> Result<Store, StoreError> {
    let place = StoreLocation::Postgres(partition.url.clone());
    Store::open(&place, ROOMY).await.map(Option::unwrap)
}

/// Waits until the store answers again.
async fn recovered(store: &Store) {
    let start = Instant::now();
    while let Err(error) = store.heartbeat("nobody".into(), NOW).await {
        assert!(start.elapsed() < Duration::from_secs(20), "still {error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn replicas_that_start_at_once_agree() {
    let place = places::postgres().await;
    let place = StoreLocation::Postgres(place.url().to_owned());
    let open = |_| {
        let place = place.clone();
        tokio::spawn(async move { Store::open(&place, ROOMY).await.map(Option::unwrap) })
    };
    let opening: Vec<_> = (0..8).map(open).collect();
    let mut stores = Vec::new();
    for store in opening {
        stores.push(store.await.unwrap().unwrap());
    }
    stores[0].create(over("resp_1"), NOW).await.unwrap();
    for store in &stores {
        assert_eq!(
            store.get(key("resp_1"), NOW).await.unwrap().key,
            key("resp_1")
        );
    }
    let StoreLocation::Postgres(url) = place else {
        unreachable!()
    };
    let rows = connect(&url)
        .await
        .query("SELECT version FROM samewire_schema", &[])
        .await
        .unwrap();
    assert_eq!(rows.len(), 1);
}

/// Checks that an operation waits for a lock as long as its time limit allows.
#[tokio::test]
async fn the_server_gives_up_no_earlier_than_the_caller() {
    let place = places::postgres().await;
    let store = place.open(ROOMY).await;
    store.create(running("resp_1"), NOW).await.unwrap();
    let mut admin = connect(place.url()).await;
    let held = admin.transaction().await.unwrap();
    held.batch_execute("LOCK TABLE samewire_records IN EXCLUSIVE MODE")
        .await
        .unwrap();
    let heartbeat = store.heartbeat("owner".into(), NOW);
    // Longer than the two seconds that are the default limit.
    let released = async {
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        held.rollback().await.unwrap();
    };
    let (answer, ()) = tokio::join!(heartbeat, released);
    assert!(answer.is_ok(), "{answer:?}");
}

#[tokio::test]
async fn fault_o26_two_versions_share_a_database() {
    let place = places::postgres().await;
    let store = place.open(ROOMY).await;
    store.create(running("resp_1"), NOW).await.unwrap();
    let newer = connect(place.url()).await;
    newer
        .batch_execute(
            "INSERT INTO samewire_schema VALUES (3, 1); ALTER TABLE samewire_records ADD COLUMN novelty TEXT;
             UPDATE samewire_records SET novelty = 'kept', version = 2",
        )
        .await
        .unwrap();
    // The store that was connected before, and one that connects now.
    let later = place.open(ROOMY).await;
    assert_eq!(store.get(key("resp_1"), NOW).await.unwrap().version, 2);
    later
        .finish(key("resp_1"), 1, completed("{}"), NOW)
        .await
        .unwrap();
    store.create(over("resp_2"), NOW).await.unwrap();
    let rows = newer
        .query(
            "SELECT novelty, version FROM samewire_records ORDER BY id",
            &[],
        )
        .await
        .unwrap();
    let seen: Vec<(Option<String>, i64)> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(seen, [(Some("kept".to_owned()), 2), (None, 1)]);

    newer
        .batch_execute("INSERT INTO samewire_schema VALUES (9, 9)")
        .await
        .unwrap();
    let Err(StoreError::Unavailable(why)) = place.try_open(ROOMY).await else {
        panic!("it opens")
    };
    assert!(why.contains("version 9"), "{why}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_without_its_password() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for url in [
        format!("postgres://user:hunter2@{address}/db"),
        "postgres://user:hunter2@:x/db?a=b".to_owned(),
    ] {
        let Err(error) = Store::open(&StoreLocation::Postgres(url), ROOMY).await else {
            panic!("it opens")
        };
        assert!(
            matches!(&error, StoreError::Unavailable(why) if !why.contains("hunter2")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn fault_o17_a_reset_connection_is_made_again() {
    let place = places::postgres().await;
    let partition = Partition::before(place.url()).await;
    let store = opened(&partition).await.unwrap();
    store.create(running("resp_1"), NOW).await.unwrap();
    let admin = connect(place.url()).await;
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE application_name = 'samewire' AND datname = current_database()";
    for _ in 0..2 {
        assert_eq!(admin.query(sql, &[]).await.unwrap().len(), 1);
        recovered(&store).await;
    }
    store
        .finish(key("resp_1"), 1, completed("{}"), NOW)
        .await
        .unwrap();
}

#[tokio::test]
async fn fault_o17_a_partition_costs_each_call_two_seconds() {
    let place = places::postgres().await;
    let partition = Partition::before(place.url()).await;
    let store = opened(&partition).await.unwrap();
    store.create(running("resp_1"), NOW).await.unwrap();
    partition.state.send_replace(RelayState::Cut);
    let start = Instant::now();
    let calls = (
        store.get(key("resp_1"), NOW),
        store.start(key("resp_1"), 1, "{}".into(), NOW),
    );
    let (read, write) = tokio::join!(calls.0, calls.1);
    assert_eq!(
        (read.unwrap_err(), write.unwrap_err()),
        (StoreError::Slow, StoreError::Slow)
    );
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    partition.state.send_replace(RelayState::Open);
    recovered(&store).await;
    store
        .finish(key("resp_1"), 1, completed("{}"), NOW)
        .await
        .unwrap();
}

#[tokio::test]
async fn fault_o17_it_is_not_stormed() {
    let place = places::postgres().await;
    let partition = Partition::before(place.url()).await;
    let store = opened(&partition).await.unwrap();
    let before = partition.connections.load(Ordering::Relaxed);
    partition.state.send_replace(RelayState::Closed);
    let start = Instant::now();
    let mut failed = 0;
    while partition.connections.load(Ordering::Relaxed) < before + 2 {
        let answer = store.get(key("resp_1"), NOW).await;
        failed += usize::from(matches!(answer, Err(StoreError::Unavailable(_))));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "it goes on trying"
        );
    }
    // Two attempts, with more than a second before each.
    assert!(
        start.elapsed() >= Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    assert!(failed > 100, "calls fail at once meanwhile: {failed}");
    partition.state.send_replace(RelayState::Open);
    recovered(&store).await;
}

#[tokio::test]
async fn a_locked_row_is_told_in_time() {
    let place = places::postgres().await;
    let caps = StoreCaps {
        deadline: Duration::from_secs(4),
        ..ROOMY
    };
    let store = Store::open(&place.place, caps).await.unwrap().unwrap();
    store.create(running("resp_1"), NOW).await.unwrap();
    store.create(running("resp_2"), NOW).await.unwrap();
    let mut other = connect(place.url()).await;
    let held = other.transaction().await.unwrap();
    held.execute(
        "SELECT 1 FROM samewire_records WHERE id = 'resp_1' FOR UPDATE",
        &[],
    )
    .await
    .unwrap();
    let start = Instant::now();
    let answer = store.finish(key("resp_1"), 1, completed("{}"), NOW).await;
    assert!(
        matches!(&answer, Err(StoreError::Unavailable(why)) if why.contains("lock")),
        "{answer:?}"
    );
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    store
        .finish(key("resp_2"), 1, completed("{}"), NOW)
        .await
        .unwrap();
    held.rollback().await.unwrap();
    store
        .finish(key("resp_1"), 1, completed("{}"), NOW)
        .await
        .unwrap();
}

/// Many concurrent operations share a few connections and all get answers, even after all connections have broken.
#[tokio::test]
async fn many_at_once_share_few_connections() {
    let place = places::postgres().await;
    let partition = Partition::before(place.url()).await;
    // With limits on the totals, writes are serialised.
    let place = StoreLocation::Postgres(partition.url.clone());
    let store = places::opened(&place, StoreCaps::SERVER).await.unwrap();
    let ids: Vec<String> = (0..200).map(|n| format!("resp_{n}")).collect();
    let made = join_all(ids.iter().map(|id| store.create(over(id), NOW))).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    let connections = partition.connections.load(Ordering::Relaxed);
    assert!((2..=8).contains(&connections), "{connections} connections");
    let admin = connect(&partition.url).await;
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE application_name = 'samewire' AND datname = current_database()";
    assert_eq!(admin.query(sql, &[]).await.unwrap().len(), connections);
    recovered(&store).await;
    let found = join_all(ids.iter().map(|id| store.get(key(id), NOW))).await;
    assert!(found.iter().all(Result::is_ok));
    assert!(partition.connections.load(Ordering::Relaxed) <= connections + 1 + 8);
}

#[tokio::test]
async fn an_operation_that_is_given_up_leaves_nothing_behind() {
    let place = places::postgres().await;
    let store = place.open(ROOMY).await;
    store.create(running("resp_1"), NOW).await.unwrap();
    let mut other = connect(place.url()).await;
    let held = other.transaction().await.unwrap();
    held.execute(
        "SELECT 1 FROM samewire_records WHERE id = 'resp_1' FOR UPDATE",
        &[],
    )
    .await
    .unwrap();
    let waiting = store.finish(key("resp_1"), 1, completed("{\"given\":\"up\"}"), NOW);
    assert!(
        tokio::time::timeout(Duration::from_millis(200), waiting)
            .await
            .is_err(),
        "it waits for the lock"
    );
    held.rollback().await.unwrap();
    let start = Instant::now();
    store
        .finish(key("resp_1"), 1, completed("{\"own\":1}"), NOW)
        .await
        .unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(
        &*store.get(key("resp_1"), NOW).await.unwrap().response,
        "{\"own\":1}"
    );
    let sql = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'samewire' \
               AND datname = current_database() AND state LIKE 'idle in%'";
    while !other.query(sql, &[]).await.unwrap().is_empty() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "a transaction stays open"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn leases_go_by_the_servers_clock() {
    let place = places::postgres().await;
    let store = place.open(ROOMY).await;
    let now = || u64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let (before, clock, after) = (now(), store.clock(5).await.unwrap(), now());
    assert!(
        (before..=after + 1).contains(&clock),
        "{before} {clock} {after}"
    );
    assert_eq!(
        places::memory().await.open(ROOMY).await.clock(5).await,
        Ok(5)
    );
}
