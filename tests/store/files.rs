//! Failures that only a file can have: damage, permissions, locks, and two processes on it.

use crate::places::{self, Fresh, ROOMY};
use crate::responses::{NOW, completed, events, item, key, over, running};
use rusqlite::Connection;
use samewire::store::{
    FinalState, NewResponse, State, Store, StoreCaps, StoreError, StoreLocation,
};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// Returns the reason why the store cannot be opened.
async fn refused(place: &Fresh) -> String {
    match place.try_open(ROOMY).await {
        Err(StoreError::Unavailable(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it opens"),
    }
}

/// Stores a few responses and closes the file. The thread ends after the store, so it is waited for.
async fn filled() -> Fresh {
    let place = places::sqlite().await;
    let store = place.open(ROOMY).await;
    for at in 0..200 {
        store
            .create(
                NewResponse {
                    input: vec![item("m")],
                    ..over(&format!("resp_{at}"))
                },
                NOW,
            )
            .await
            .unwrap();
    }
    drop(store);
    let log = place.file().with_extension("db-wal");
    let start = Instant::now();
    while log.exists() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "the file is closed"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    place
}

#[tokio::test]
async fn records_are_there_when_the_file_is_opened_again() {
    let place = filled().await;
    let store = place.open(ROOMY).await;
    let totals = store.totals().await.unwrap();
    assert_eq!(totals.records, 200);
    assert_eq!(
        totals.bytes,
        200 * store.get(key("resp_7"), NOW).await.unwrap().bytes
    );
    let mode = Connection::open(place.file()).unwrap();
    let mode: String = mode
        .query_row("PRAGMA journal_mode", (), |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
}

/// Only the owner may read the files, because they hold clients' content; an existing file keeps its mode.
#[tokio::test]
async fn files_are_for_their_user_alone() {
    let place = places::sqlite().await;
    let mode = |end: &str| {
        let file = place.file().with_extension(format!("db{end}"));
        std::fs::metadata(&file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
            .permissions()
            .mode()
            & 0o777
    };
    let store = place.open(ROOMY).await;
    store
        .create(
            NewResponse {
                input: vec![item("m")],
                ..over("resp_1")
            },
            NOW,
        )
        .await
        .unwrap();
    assert_eq!(["", "-wal", "-shm"].map(mode), [0o600; 3]);
    drop(store);

    let place = filled().await;
    std::fs::set_permissions(place.file(), Permissions::from_mode(0o640)).unwrap();
    let store = place.open(ROOMY).await;
    assert_eq!(store.totals().await.unwrap().records, 200);
    assert_eq!(
        std::fs::metadata(place.file())
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o640
    );
}

#[tokio::test]
async fn fault_o15_a_damaged_file_is_refused_and_kept() {
    let place = places::sqlite().await;
    let garbage = [
        b"these are not the bytes of a database".as_slice(),
        &[7; 9_000],
    ]
    .concat();
    std::fs::write(place.file(), &garbage).unwrap();
    let why = refused(&place).await;
    assert!(
        why.contains("responses.db") && why.contains("not a database"),
        "{why}"
    );
    assert_eq!(
        std::fs::read(place.file()).unwrap(),
        garbage,
        "not a byte is changed"
    );

    let place = filled().await;
    let mut bytes = std::fs::read(place.file()).unwrap();
    let pages = bytes.len() / 4096;
    assert!(pages > 10, "{pages}");
    for page in 3..pages {
        bytes[page * 4096..][..64].fill(0xa5);
    }
    std::fs::write(place.file(), &bytes).unwrap();
    let why = refused(&place).await;
    assert!(
        why.contains("damaged") || why.contains("malformed"),
        "{why}"
    );
    assert_eq!(std::fs::read(place.file()).unwrap(), bytes);

    // The file is truncated in the middle.
    let place = filled().await;
    let bytes = std::fs::read(place.file()).unwrap();
    std::fs::write(place.file(), &bytes[..bytes.len() / 2]).unwrap();
    refused(&place).await;
    assert_eq!(
        std::fs::read(place.file()).unwrap(),
        bytes[..bytes.len() / 2]
    );
}

#[tokio::test]
async fn a_place_that_cannot_be_is_refused() {
    let place = places::sqlite().await;
    for path in [
        place.file().join("below"),
        place.file().with_file_name("missing/responses.db"),
    ] {
        std::fs::write(place.file(), "").unwrap();
        let opened = Store::open(&StoreLocation::Sqlite(path), ROOMY)
            .await
            .map(|_| ());
        assert!(
            matches!(&opened, Err(StoreError::Unavailable(why)) if why.contains("responses.db")),
            "{opened:?}"
        );
    }
}

#[tokio::test]
async fn fault_o26_a_newer_file_is_refused_if_it_says_so() {
    let place = filled().await;
    let db = Connection::open(place.file()).unwrap();
    db.execute("UPDATE samewire_schema SET version = 9, reader = 9", ())
        .unwrap();
    let why = refused(&place).await;
    assert!(why.contains("version 9"), "{why}");
    let count: i64 = db
        .query_row("SELECT COUNT(*) FROM samewire_records", (), |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(count, 200);
}

#[tokio::test]
async fn fault_o26_what_a_newer_version_added_is_left_alone() {
    let place = filled().await;
    let db = Connection::open(place.file()).unwrap();
    db.execute_batch(
        "UPDATE samewire_schema SET version = 3; ALTER TABLE samewire_records ADD COLUMN novelty TEXT;
         ALTER TABLE samewire_items ADD COLUMN novelty TEXT;
         UPDATE samewire_records SET novelty = 'kept', state = 1, version = 2 WHERE id = 'resp_1';",
    )
    .unwrap();
    let store = place.open(ROOMY).await;
    assert_eq!(store.get(key("resp_1"), NOW).await.unwrap().version, 2);
    store
        .append_events(key("resp_1"), 1, events(0, &["0"]), NOW)
        .await
        .unwrap();
    store
        .finish(key("resp_1"), 1, completed("{}"), NOW)
        .await
        .unwrap();
    store.create(running("new"), NOW).await.unwrap();
    let novelty = |id: &str| -> (Option<String>, i64) {
        let sql = "SELECT novelty, version FROM samewire_records WHERE id = ?1";
        db.query_row(sql, [id], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
    };
    assert_eq!(novelty("resp_1"), (Some("kept".to_owned()), 2));
    assert_eq!(novelty("new"), (None, 1));
}

#[tokio::test]
async fn a_record_of_a_strange_shape_is_an_error() {
    let place = filled().await;
    let db = Connection::open(place.file()).unwrap();
    let store = place.open(ROOMY).await;
    for strange in [
        "state = 77",
        "created = -5",
        "request = x'00ff'",
        "events = 'many'",
        "version = 1e300",
    ] {
        db.execute(
            &format!("UPDATE samewire_records SET {strange} WHERE id = 'resp_1'"),
            (),
        )
        .unwrap();
        let got = store.get(key("resp_1"), NOW).await;
        assert!(
            matches!(got, Err(StoreError::Unavailable(_))),
            "{strange}: {got:?}"
        );
        store.get(key("resp_2"), NOW).await.unwrap();
    }
}

#[tokio::test]
async fn fault_o15_a_removed_file_is_noticed() {
    let place = filled().await;
    let store = place.open(ROOMY).await;
    store.create(running("resp"), NOW).await.unwrap();
    let aside = place.file().with_extension("aside");
    std::fs::rename(place.file(), &aside).unwrap();
    let why = store.create(over("lost"), NOW).await.unwrap_err();
    assert!(
        matches!(&why, StoreError::Unavailable(why) if why.contains("removed")),
        "{why}"
    );
    std::fs::write(place.file(), "").unwrap();
    assert!(
        matches!(
            store.get(key("resp"), NOW).await,
            Err(StoreError::Unavailable(_))
        ),
        "another file in its place"
    );
    std::fs::rename(&aside, place.file()).unwrap();
    store.create(over("kept"), NOW).await.unwrap();
    assert_eq!(
        store.get(key("lost"), NOW).await.unwrap_err(),
        StoreError::NotFound
    );
}

#[tokio::test]
async fn fault_o15_a_locked_file_is_told_in_time() {
    let place = filled().await;
    let caps = StoreCaps {
        deadline: Duration::from_secs(4),
        ..ROOMY
    };
    let store = Store::open(&place.place, caps).await.unwrap().unwrap();
    let other = Connection::open(place.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let start = Instant::now();
    let (write, ()) = tokio::join!(store.create(over("resp"), NOW), async {
        // The caller's runtime is not blocked meanwhile.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
    });
    assert!(
        matches!(&write, Err(StoreError::Unavailable(why)) if why.contains("locked")),
        "{write:?}"
    );
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    store
        .get(key("resp_1"), NOW)
        .await
        .expect("reading needs no lock");
    other.execute_batch("ROLLBACK").unwrap();
    store.create(over("resp"), NOW).await.unwrap();
}

#[tokio::test]
async fn an_abandoned_write_is_not_done() {
    let place = filled().await;
    let store = place.open(ROOMY).await;
    let other = Connection::open(place.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waits = store.create(over("waits"), NOW);
    let given_up = tokio::time::timeout(
        Duration::from_millis(50),
        store.create(over("given up"), NOW),
    );
    let (waits, ()) = tokio::join!(waits, async {
        assert!(given_up.await.is_err());
        other.execute_batch("ROLLBACK").unwrap();
    });
    waits.unwrap();
    store.create(over("after"), NOW).await.unwrap();
    assert_eq!(
        store.get(key("given up"), NOW).await.unwrap_err(),
        StoreError::NotFound
    );
}

/// Many concurrent writes share a transaction; a refused write undoes none of the others.
#[tokio::test]
async fn writes_of_a_group_do_not_harm_each_other() {
    let place = places::sqlite().await;
    let store = std::sync::Arc::new(place.open(ROOMY).await);
    let write = |at: usize| {
        let store = store.clone();
        tokio::spawn(async move {
            // Each id is used by two tasks; every fourth has a gap in its events.
            let id = format!("resp_{}", at / 2);
            let created = store.create(running(&id), NOW).await;
            let from = u64::from(at.is_multiple_of(8));
            let finish = FinalState {
                events: events(from, &["0"]),
                ..completed("{}")
            };
            let finished = if created.is_ok() {
                store.finish(key(&id), 1, finish, NOW).await
            } else {
                Ok(())
            };
            (at, created, finished)
        })
    };
    let tasks: Vec<_> = (0..800).map(write).collect();
    let mut created = 0;
    for task in tasks {
        let (at, made, finished) = task.await.unwrap();
        if made == Err(StoreError::Conflict) {
            continue;
        }
        made.unwrap();
        created += 1;
        let state = store
            .get(key(&format!("resp_{}", at / 2)), NOW)
            .await
            .unwrap()
            .state;
        let expected = if at.is_multiple_of(8) {
            (Err(StoreError::Conflict), State::InProgress)
        } else {
            (Ok(()), State::Completed)
        };
        assert_eq!((finished, state), expected, "{at}");
    }
    assert_eq!(created, 400);
    let totals = store.totals().await.unwrap();
    drop(store);
    let counted = Connection::open(place.file()).unwrap();
    let counted = counted.query_row(
        "SELECT COUNT(*), SUM(bytes) FROM samewire_records",
        (),
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
    );
    assert_eq!(
        counted.unwrap(),
        (
            i64::try_from(totals.records).unwrap(),
            i64::try_from(totals.bytes).unwrap()
        )
    );
}

/// Two processes on one file, as when a new one starts before the old one has ended.
#[tokio::test]
async fn what_another_process_wrote_is_counted() {
    let place = places::sqlite().await;
    let (old, new) = (place.open(ROOMY).await, place.open(ROOMY).await);
    old.create(over("resp_1"), NOW).await.unwrap();
    new.create(over("resp_2"), NOW).await.unwrap();
    old.get(key("resp_2"), NOW).await.unwrap();
    assert_eq!(new.sweep(NOW).await, Ok(0));
    assert_eq!(new.totals().await.unwrap().records, 2);
    assert_eq!(new.sweep(NOW + ROOMY.ttl).await, Ok(2));
    assert_eq!(new.totals().await, Ok(Default::default()));
}

#[test]
fn store_locations_are_parsed() {
    let sqlite = |path: &str| Ok(StoreLocation::Sqlite(path.into()));
    let url = "postgres://user:secret@host/db";
    let cases = [
        ("off", Ok(StoreLocation::Off)),
        ("memory", Ok(StoreLocation::Memory)),
        (
            "sqlite:/var/lib/samewire/responses.db",
            sqlite("/var/lib/samewire/responses.db"),
        ),
        ("sqlite:a:b", sqlite("a:b")),
        (url, Ok(StoreLocation::Postgres(url.to_owned()))),
    ];
    for (text, expected) in cases {
        assert!(text.parse::<StoreLocation>() == expected, "{text}");
    }
    for text in [
        "",
        "Memory",
        "memory:",
        "sqlite",
        "sqlite:",
        "postgres",
        "postgres:",
        "redis://host",
        "off ",
    ] {
        assert!(text.parse::<StoreLocation>().is_err(), "{text}");
    }
}
