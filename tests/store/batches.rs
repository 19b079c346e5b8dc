//! Files and batches: what clients see, limits, ownership, and steps that are stored once.

use crate::places::{self, ROOMY, in_each_place};
use crate::responses::NOW;
use samewire::store::{
    Batch, BatchStatus, BatchStep, FileChunk, FileLimits, FilePurpose, Key, LEASE, NewFile,
    PageRequest, ResultLines, Store, StoreError,
};
use std::sync::Arc;

const LIMITS: FileLimits = FileLimits {
    tenant_files: 3,
    tenant_bytes: 100,
    total_bytes: 150,
};
const WINDOW: u64 = 1_000_000;

in_each_place!(
    crate::places::ROOMY,
    a_file_is_seen_once_it_is_whole,
    files_have_limits_and_make_room_when_they_go,
    lists_have_pages,
    a_batch_has_one_owner_at_a_time,
    a_step_is_stored_once,
    a_cancelled_batch_does_not_complete,
    the_input_of_a_batch_stays
);

fn key(id: &str) -> Key {
    Key::new("tenant", id)
}

fn chunk(place: u64, first: u64, body: &str) -> FileChunk {
    FileChunk {
        place,
        first,
        lines: body.lines().count() as u64,
        body: body.into(),
    }
}

async fn file(store: &Store, key: &Key, body: &str) -> Result<(), StoreError> {
    store
        .create_file(
            NewFile {
                key: key.clone(),
                name: "in".into(),
            },
            LIMITS,
            NOW,
        )
        .await?;
    store
        .append_chunk(key.clone(), chunk(0, 0, body), LIMITS, NOW)
        .await?;
    store
        .finish_file(key.clone(), FilePurpose::Batch, NOW + WINDOW)
        .await
}

fn batch(id: &str) -> Batch {
    Batch {
        caller: "caller".into(),
        input: "file-in".into(),
        output: format!("{id}-out").into(),
        errors: format!("{id}-err").into(),
        expires: NOW + WINDOW,
        facts: "{}".into(),
        ..Batch::new(key(id), NOW)
    }
}

fn step(version: u64, status: BatchStatus, cursor: u64, output: &str) -> BatchStep {
    BatchStep {
        version,
        status,
        cursor,
        ahead: "7,9".into(),
        facts: format!("{{\"version\":{version}}}").into(),
        output: Arc::new(ResultLines {
            count: output.lines().count() as u64,
            text: output.to_owned(),
        }),
        errors: Arc::default(),
        gone: NOW + WINDOW,
        files_gone: NOW + WINDOW / 2,
    }
}

fn list(after: Option<&str>, limit: usize, descending: bool) -> PageRequest {
    PageRequest {
        after: after.map(Into::into),
        limit,
        descending,
    }
}

async fn content(store: &Store, key: Key) -> String {
    store
        .chunks(key, 0, 100)
        .await
        .unwrap()
        .iter()
        .map(|chunk| &*chunk.body)
        .collect()
}

async fn a_file_is_seen_once_it_is_whole(store: &Store) {
    let name = key("file-1");
    store
        .create_file(
            NewFile {
                key: name.clone(),
                name: "in".into(),
            },
            LIMITS,
            NOW,
        )
        .await
        .unwrap();
    for again in 0..2 {
        // A repeated write has no effect.
        store
            .append_chunk(name.clone(), chunk(0, 0, "a\nb\n"), LIMITS, NOW)
            .await
            .unwrap();
        assert_eq!(
            store.file(name.clone(), NOW).await,
            Err(StoreError::NotFound),
            "{again}"
        );
    }
    assert_eq!(
        store
            .append_chunk(name.clone(), chunk(2, 2, "c\n"), LIMITS, NOW)
            .await,
        Err(StoreError::Conflict)
    );
    store
        .append_chunk(name.clone(), chunk(1, 2, "c\nd"), LIMITS, NOW)
        .await
        .unwrap();
    store
        .finish_file(name.clone(), FilePurpose::Batch, NOW + 10)
        .await
        .unwrap();
    let seen = store.file(name.clone(), NOW).await.unwrap();
    assert_eq!(
        (seen.bytes, seen.lines, seen.chunks, seen.purpose),
        (7, 4, 2, FilePurpose::Batch)
    );
    assert_eq!(
        store
            .append_chunk(name.clone(), chunk(2, 4, "e\n"), LIMITS, NOW)
            .await,
        Err(StoreError::Conflict)
    );
    assert_eq!(content(store, name.clone()).await, "a\nb\nc\nd");
    for (line, place) in [
        (0, Some(0)),
        (1, Some(0)),
        (2, Some(1)),
        (3, Some(1)),
        (4, None),
    ] {
        let found = store.chunk_at(name.clone(), line).await.unwrap();
        assert_eq!(
            found,
            place.map(|place| (place, [4, 3][place as usize])),
            "line {line}"
        );
    }
    assert_eq!(
        store.file(Key::new("other", "file-1"), NOW).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(
        store.delete_file(Key::new("other", "file-1"), NOW).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(
        store.file(name.clone(), NOW + 10).await,
        Err(StoreError::NotFound),
        "it has expired"
    );
    while store.sweep_files(NOW + 10).await.unwrap() > 0 {}
    assert_eq!(content(store, name).await, "");
}

async fn files_have_limits_and_make_room_when_they_go(store: &Store) {
    let body = format!("{}\n", "x".repeat(59));
    file(store, &key("file-1"), &body).await.unwrap();
    assert_eq!(
        file(store, &key("file-2"), &body).await,
        Err(StoreError::Full),
        "bytes of a tenant"
    );
    store.delete_file(key("file-2"), NOW).await.unwrap();
    file(store, &Key::new("other", "file-1"), &body)
        .await
        .unwrap();
    let third = file(store, &Key::new("third", "file-1"), &body).await;
    assert_eq!(third, Err(StoreError::Full), "bytes of all");
    store.delete_file(key("file-1"), NOW).await.unwrap();
    for id in ["a", "b", "c"] {
        file(store, &key(id), "x\n").await.unwrap();
    }
    assert_eq!(
        file(store, &key("d"), "x\n").await,
        Err(StoreError::Full),
        "files of a tenant"
    );
    assert_eq!(file(store, &key("a"), "x\n").await, Err(StoreError::Full));
}

async fn lists_have_pages(store: &Store) {
    for (age, id) in ["c", "a", "b"].into_iter().enumerate() {
        let now = NOW + age as u64;
        store
            .create_file(
                NewFile {
                    key: key(id),
                    name: "in".into(),
                },
                LIMITS,
                now,
            )
            .await
            .unwrap();
        store
            .finish_file(key(id), FilePurpose::Batch, NOW + WINDOW)
            .await
            .unwrap();
    }
    let ids = async |ask: PageRequest| {
        let found = store.files("tenant".into(), ask, None, NOW).await;
        found.map(|files| {
            files
                .iter()
                .map(|file| file.key.id.to_string())
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(ids(list(None, 10, true)).await.unwrap(), ["b", "a", "c"]);
    assert_eq!(ids(list(None, 2, false)).await.unwrap(), ["c", "a"]);
    assert_eq!(ids(list(Some("a"), 2, false)).await.unwrap(), ["b"]);
    assert_eq!(ids(list(Some("a"), 2, true)).await.unwrap(), ["c"]);
    assert_eq!(
        ids(list(Some("z"), 2, true)).await,
        Err(StoreError::NoCursor)
    );
    let outputs = Some(FilePurpose::BatchOutput);
    let found = store
        .files("tenant".into(), list(None, 10, true), outputs, NOW)
        .await;
    assert_eq!(found, Ok(Vec::new()));
}

async fn a_batch_has_one_owner_at_a_time(store: &Store) {
    assert_eq!(
        store.create_batch(batch("one"), 2, NOW).await,
        Err(StoreError::NotFound),
        "there is no input"
    );
    file(store, &key("file-in"), "a\nb\n").await.unwrap();
    for (id, made) in [
        ("one", Ok(())),
        ("two", Ok(())),
        ("three", Err(StoreError::TooMany)),
    ] {
        assert_eq!(store.create_batch(batch(id), 2, NOW).await, made);
    }
    assert_eq!(
        store.delete_file(key("file-in"), NOW).await,
        Err(StoreError::Conflict),
        "a batch reads it"
    );
    assert!(
        store.file(key("file-in"), NOW + WINDOW).await.is_ok(),
        "it is kept for the batch"
    );
    let claimed = store.claim_batches("a".into(), 1, NOW).await.unwrap();
    let [
        Batch {
            key: first,
            term: 1,
            ..
        },
    ] = &claimed[..]
    else {
        panic!("{claimed:?}")
    };
    assert_eq!(first.id.as_ref(), "one", "the oldest goes first");
    assert_eq!(
        store.claim_batches("b".into(), 9, NOW).await.unwrap().len(),
        1
    );
    assert_eq!(
        store.claim_batches("c".into(), 9, NOW + LEASE - 1).await,
        Ok(Vec::new())
    );
    store
        .renew_batches("a".into(), NOW + LEASE - 1)
        .await
        .unwrap();
    let taken = store
        .claim_batches("c".into(), 9, NOW + LEASE)
        .await
        .unwrap();
    assert_eq!(
        taken
            .iter()
            .map(|batch| (&*batch.key.id, batch.term))
            .collect::<Vec<_>>(),
        [("two", 2)]
    );
    let late = store
        .advance_batch(
            key("two"),
            1,
            step(1, BatchStatus::InProgress, 0, ""),
            LIMITS,
            NOW,
        )
        .await;
    assert_eq!(late, Err(StoreError::Fenced));
    store.release_batch(key("two"), 2).await.unwrap();
    assert_eq!(
        store
            .claim_batches("d".into(), 9, NOW + LEASE)
            .await
            .unwrap()
            .len(),
        1,
        "it is free at once"
    );
    let cancelled = store.cancel_batch(key("one"), NOW + 5).await.unwrap();
    assert_eq!(
        (cancelled.cancel, cancelled.status),
        (NOW + 5, BatchStatus::Validating)
    );
    assert_eq!(
        store
            .cancel_batch(key("one"), NOW + 6)
            .await
            .unwrap()
            .cancel,
        NOW + 5
    );
    let owned = store.renew_batches("a".into(), NOW).await.unwrap();
    assert_eq!((owned.len(), owned[0].cancel, owned[0].term), (1, true, 1));
    assert_eq!(
        store.batch(Key::new("other", "one"), NOW).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(
        store.cancel_batch(Key::new("other", "one"), NOW).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(
        store
            .batches("tenant".into(), list(None, 9, true), NOW)
            .await
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        store
            .batches("other".into(), list(None, 9, true), NOW)
            .await,
        Ok(Vec::new())
    );
}

async fn a_step_is_stored_once(store: &Store) {
    file(store, &key("file-in"), "a\nb\n").await.unwrap();
    store.create_batch(batch("one"), 2, NOW).await.unwrap();
    store.claim_batches("a".into(), 1, NOW).await.unwrap();
    let advance =
        async |step: BatchStep| store.advance_batch(key("one"), 1, step, LIMITS, NOW).await;
    for _ in 0..2 {
        advance(step(1, BatchStatus::InProgress, 1, "{}\n"))
            .await
            .unwrap();
    }
    assert_eq!(
        advance(step(3, BatchStatus::InProgress, 1, "")).await,
        Err(StoreError::Conflict),
        "one is missing"
    );
    let found = store.batch(key("one"), NOW).await.unwrap();
    assert_eq!((found.cursor, &*found.ahead, found.version), (1, "7,9", 1));
    assert_eq!(
        store.file(key("one-out"), NOW).await,
        Err(StoreError::NotFound),
        "it is not whole yet"
    );
    assert_eq!(
        advance(step(2, BatchStatus::InProgress, 2, &"x".repeat(120))).await,
        Err(StoreError::Full)
    );
    assert_eq!(
        store.batch(key("one"), NOW).await.unwrap().version,
        1,
        "nothing of it is stored"
    );
    for _ in 0..2 {
        advance(step(2, BatchStatus::Completed, 2, "[]\n"))
            .await
            .unwrap();
    }
    assert_eq!(
        advance(step(3, BatchStatus::InProgress, 2, "")).await,
        Err(StoreError::Conflict),
        "it is over"
    );
    assert_eq!(content(store, key("one-out")).await, "{}\n[]\n");
    let output = store.file(key("one-out"), NOW).await.unwrap();
    assert_eq!(
        (output.purpose, output.lines, output.expires),
        (FilePurpose::BatchOutput, 2, NOW + WINDOW / 2)
    );
    assert_eq!(
        store.file(key("one-err"), NOW).await,
        Err(StoreError::NotFound),
        "it has no lines"
    );
    assert_eq!(store.renew_batches("a".into(), NOW).await, Ok(Vec::new()));
    store.delete_file(key("file-in"), NOW).await.unwrap();
    assert_eq!(
        store.batch(key("one"), NOW + WINDOW).await,
        Err(StoreError::NotFound),
        "it has expired"
    );
}

/// Another replica's cancellation comes between the last line and the end.
async fn a_cancelled_batch_does_not_complete(store: &Store) {
    file(store, &key("file-in"), "a\nb\n").await.unwrap();
    for (id, end) in [
        ("one", BatchStatus::Completed),
        ("two", BatchStatus::Failed),
        ("three", BatchStatus::Expired),
    ] {
        store.create_batch(batch(id), 9, NOW).await.unwrap();
        store.claim_batches("a".into(), 1, NOW).await.unwrap();
        assert_eq!(
            store.cancel_batch(key(id), NOW + 5).await.unwrap().status,
            BatchStatus::Validating
        );
        for again in 0..2 {
            let stored = store
                .advance_batch(key(id), 1, step(1, end, 2, "[]\n"), LIMITS, NOW)
                .await;
            assert_eq!(stored, Ok(BatchStatus::Cancelled), "{id} {again}");
        }
        let found = store.batch(key(id), NOW).await.unwrap();
        assert_eq!(
            (found.status, found.cancel),
            (BatchStatus::Cancelled, NOW + 5)
        );
        assert!(
            store.file(key(&format!("{id}-out")), NOW).await.is_ok(),
            "it keeps its results"
        );
    }
    store.create_batch(batch("four"), 9, NOW).await.unwrap();
    store.claim_batches("a".into(), 1, NOW).await.unwrap();
    let end = step(1, BatchStatus::Completed, 2, "");
    assert_eq!(
        store.advance_batch(key("four"), 1, end, LIMITS, NOW).await,
        Ok(BatchStatus::Completed)
    );
    let late = store.cancel_batch(key("four"), NOW).await.unwrap();
    assert_eq!(
        (late.status, late.cancel),
        (BatchStatus::Completed, 0),
        "it had ended"
    );
}

/// The input stays until the batch has ended, even if it is run long after its window.
async fn the_input_of_a_batch_stays(store: &Store) {
    let late = NOW + 10 * WINDOW;
    file(store, &key("file-in"), "a\nb\n").await.unwrap();
    file(store, &key("file-2"), "a\n").await.unwrap();
    store.create_batch(batch("one"), 9, NOW).await.unwrap();
    while store.sweep_files(late).await.unwrap() > 0 {}
    assert_eq!(content(store, key("file-in")).await, "a\nb\n");
    assert_eq!(content(store, key("file-2")).await, "", "no batch reads it");
    store.claim_batches("a".into(), 1, late).await.unwrap();
    let end = BatchStep {
        gone: late + 1,
        ..step(1, BatchStatus::Expired, 2, "")
    };
    store
        .advance_batch(key("one"), 1, end, LIMITS, late)
        .await
        .unwrap();
    while store.sweep_files(late).await.unwrap() > 0 {}
    assert_eq!(content(store, key("file-in")).await, "");
}

#[tokio::test]
async fn fault_o33_a_batch_that_is_being_cancelled_does_not_complete() {
    a_cancelled_batch_does_not_complete(&places::postgres().await.open(ROOMY).await).await;
}

#[tokio::test]
async fn fault_o32_the_input_of_a_batch_stays_until_its_end() {
    the_input_of_a_batch_stays(&places::postgres().await.open(ROOMY).await).await;
}

#[tokio::test]
async fn fault_o32_a_step_is_stored_once_and_only_by_its_owner() {
    let place = places::sqlite().await;
    let store = place.open(ROOMY).await;
    a_step_is_stored_once(&store).await;
    drop(store);
    // The next process reads the stored files.
    let store = place.open(ROOMY).await;
    assert_eq!(
        store.batch(key("one"), NOW).await.unwrap().status,
        BatchStatus::Completed
    );
    assert_eq!(content(&store, key("one-out")).await, "{}\n[]\n");
}
