//! Ownership of a running response: which process runs it, may write to it, and takes it over.

use crate::places::{self, ROOMY, in_each_place};
use crate::responses::{NOW, completed, events, key, queued, running};
use samewire::store::{FinalState, Key, LEASE, NewResponse, Owned, State, Store, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

in_each_place!(
    crate::places::ROOMY,
    a_cancel_reaches_the_owner,
    the_old_owner_is_fenced,
    heartbeats_keep_what_runs,
    claims_are_bounded,
    one_response_is_taken_over
);

async fn a_cancel_reaches_the_owner(store: &Store) {
    store.create(running("resp_1"), NOW).await.unwrap();
    store.create(queued("resp_2"), NOW).await.unwrap();
    store
        .create(
            NewResponse {
                owner: "another".into(),
                ..running("resp_3")
            },
            NOW,
        )
        .await
        .unwrap();
    assert!(!store.get(key("resp_1"), NOW).await.unwrap().cancel);
    for id in ["resp_1", "resp_2", "resp_3", "resp_1"] {
        let state = store.request_cancel(key(id), NOW).await.unwrap();
        assert!(!state.is_terminal(), "{id}");
    }
    assert!(store.get(key("resp_1"), NOW).await.unwrap().cancel);
    let asked = |id: &str| Owned {
        key: key(id),
        term: 1,
        cancel: true,
    };
    assert_eq!(
        store.running("owner".into()).await,
        Ok(vec![asked("resp_1"), asked("resp_2")])
    );
    let finish = FinalState {
        state: State::Cancelled,
        ..completed("{}")
    };
    store.finish(key("resp_1"), 1, finish, NOW).await.unwrap();
    assert_eq!(
        store.running("owner".into()).await,
        Ok(vec![asked("resp_2")])
    );
    assert_eq!(
        store.request_cancel(key("resp_1"), NOW).await,
        Ok(State::Cancelled)
    );
    // The state that was reached first stays.
    store
        .finish(key("resp_2"), 1, completed("{}"), NOW)
        .await
        .unwrap();
    assert_eq!(
        store.request_cancel(key("resp_2"), NOW).await,
        Ok(State::Completed)
    );
    let late = FinalState {
        state: State::Cancelled,
        ..completed("{}")
    };
    assert_eq!(
        store.finish(key("resp_2"), 1, late, NOW).await,
        Err(StoreError::Conflict)
    );
}

async fn the_old_owner_is_fenced(store: &Store) {
    store.create(running("resp_1"), NOW).await.unwrap();
    store
        .append_events(key("resp_1"), 1, events(0, &["0"]), NOW)
        .await
        .unwrap();
    let soon = NOW + LEASE;
    assert_eq!(
        store.orphans("new".into(), 10, soon - 1).await,
        Ok(Vec::new())
    );
    let claimed = store.orphans("new".into(), 10, soon).await.unwrap();
    assert_eq!(claimed.len(), 1);
    let claim = &claimed[0];
    assert_eq!(
        (&claim.key, claim.term, claim.events, claim.lease),
        (&key("resp_1"), 2, 1, soon + LEASE)
    );
    assert_eq!(*claim, store.get(key("resp_1"), soon).await.unwrap());
    let old = [
        store.start(key("resp_1"), 1, "{}".into(), soon).await,
        store
            .append_events(key("resp_1"), 1, events(1, &["1"]), soon)
            .await,
        store.finish(key("resp_1"), 1, completed("{}"), soon).await,
        store.finish(key("resp_1"), 3, completed("{}"), soon).await,
    ];
    assert_eq!(old, [const { Err(StoreError::Fenced) }; 4]);
    assert_eq!(
        store.heartbeat("owner".into(), soon).await,
        Ok(0),
        "it owns nothing any more"
    );
    let lost = FinalState {
        state: State::Failed,
        events: events(1, &["lost"]),
        ..completed(r#"{"status":"failed"}"#)
    };
    store.finish(key("resp_1"), 2, lost, soon).await.unwrap();
    assert_eq!(
        store.finish(key("resp_1"), 1, completed("{}"), soon).await,
        Err(StoreError::Fenced),
        "also when over"
    );
    let record = store.get(key("resp_1"), soon).await.unwrap();
    assert_eq!(
        (record.state, record.term, &*record.owner),
        (State::Failed, 2, "new")
    );
    assert_eq!(
        store.orphans("third".into(), 10, soon + 10 * LEASE).await,
        Ok(Vec::new()),
        "it has ended"
    );
}

async fn heartbeats_keep_what_runs(store: &Store) {
    store.create(running("resp_1"), NOW).await.unwrap();
    store.create(queued("resp_2"), NOW).await.unwrap();
    store
        .create(
            NewResponse {
                owner: "silent".into(),
                ..running("resp_3")
            },
            NOW,
        )
        .await
        .unwrap();
    assert_eq!(store.heartbeat("owner".into(), NOW + 10_000).await, Ok(2));
    let claimed = store.orphans("new".into(), 10, NOW + LEASE).await.unwrap();
    assert_eq!(
        claimed
            .iter()
            .map(|record| &*record.key.id)
            .collect::<Vec<_>>(),
        ["resp_3"]
    );
    assert_eq!(
        store
            .orphans("new".into(), 10, NOW + 10_000 + LEASE - 1)
            .await
            .unwrap()
            .len(),
        0
    );
    // The queued response as well: its queue was lost with its owner.
    assert_eq!(
        store
            .orphans("new".into(), 10, NOW + 10_000 + LEASE)
            .await
            .unwrap()
            .len(),
        2
    );
}

async fn claims_are_bounded(store: &Store) {
    for at in 0..5 {
        store
            .create(
                NewResponse {
                    key: Key::new(&format!("tenant {at}"), "resp"),
                    ..running("")
                },
                NOW,
            )
            .await
            .unwrap();
    }
    let mut seen = Vec::new();
    for expected in [2, 2, 1, 0] {
        let claimed = store.orphans("new".into(), 2, NOW + LEASE).await.unwrap();
        assert_eq!(claimed.len(), expected);
        seen.extend(claimed.into_iter().map(|record| record.key));
    }
    seen.dedup();
    assert_eq!(seen.len(), 5);
}

/// A takeover works before the owner's lease ends, and only from the owner that was seen.
async fn one_response_is_taken_over(store: &Store) {
    for id in ["resp_1", "resp_2"] {
        store.create(running(id), NOW).await.unwrap();
    }
    store
        .append_events(key("resp_1"), 1, events(0, &["0"]), NOW)
        .await
        .unwrap();
    store.request_cancel(key("resp_1"), NOW).await.unwrap();
    let before = store.get(key("resp_1"), NOW).await.unwrap();
    let take = async |id: &str, term: u64, owner: &str| {
        store.take_over(key(id), term, owner.into(), NOW + 1).await
    };
    assert_eq!(take("resp_1", 2, "new").await, Err(StoreError::Fenced));
    let taken = take("resp_1", 1, "new").await.unwrap();
    let expected = samewire::store::StoredResponse {
        owner: "new".into(),
        term: 2,
        lease: NOW + 1 + LEASE,
        ..before
    };
    assert_eq!((&taken, taken.events, taken.cancel), (&expected, 1, true));
    assert_eq!(store.get(key("resp_1"), NOW).await, Ok(expected));
    assert_eq!(
        take("resp_1", 1, "third").await,
        Err(StoreError::Fenced),
        "another one was faster"
    );
    let old = [
        store.start(key("resp_1"), 1, "{}".into(), NOW).await,
        store
            .append_events(key("resp_1"), 1, events(1, &["1"]), NOW)
            .await,
        store.finish(key("resp_1"), 1, completed("{}"), NOW).await,
    ];
    assert_eq!(old, [const { Err(StoreError::Fenced) }; 3]);
    let runs = |id: &str, term| Owned {
        key: key(id),
        term,
        cancel: term > 1,
    };
    assert_eq!(
        store.running("owner".into()).await,
        Ok(vec![runs("resp_2", 1)])
    );
    assert_eq!(
        store.running("new".into()).await,
        Ok(vec![runs("resp_1", 2)])
    );
    assert_eq!(store.heartbeat("owner".into(), NOW).await, Ok(1));
    let cancelled = FinalState {
        state: State::Cancelled,
        events: events(1, &["end"]),
        ..completed("{}")
    };
    store
        .finish(key("resp_1"), 2, cancelled, NOW)
        .await
        .unwrap();
    assert_eq!(
        take("resp_1", 2, "third").await,
        Err(StoreError::Conflict),
        "it has ended"
    );
    assert_eq!(take("resp_3", 1, "new").await, Err(StoreError::NotFound));
    let other = store
        .take_over(Key::new("other", "resp_2"), 1, "new".into(), NOW)
        .await;
    assert_eq!(other, Err(StoreError::NotFound), "another tenant's");
}

/// Several replicas, each with its own store on the same data, claim at once: each response has one new owner.
async fn race(stores: Vec<Arc<Store>>) {
    const RESPONSES: usize = 60;
    let now = NOW + LEASE;
    for at in 0..RESPONSES {
        stores[0]
            .create(running(&format!("resp_{at}")), NOW)
            .await
            .unwrap();
    }
    let total = Arc::new(AtomicUsize::new(0));
    let claim = |(at, store): (usize, Arc<Store>)| {
        let total = total.clone();
        async move {
            let mut won = Vec::new();
            while total.load(Ordering::Relaxed) < RESPONSES {
                let claimed = store
                    .orphans(format!("claimer {at}").into(), 7, now)
                    .await
                    .unwrap();
                total.fetch_add(claimed.len(), Ordering::Relaxed);
                won.extend(claimed);
            }
            won
        }
    };
    let claims: Vec<_> = stores
        .iter()
        .cloned()
        .enumerate()
        .map(|pair| tokio::spawn(claim(pair)))
        .collect();
    let mut winners = Vec::new();
    for claimed in claims {
        winners.extend(claimed.await.unwrap());
    }
    winners.sort_by(|a, b| a.key.cmp(&b.key));
    winners.dedup_by(|a, b| {
        a.key == b.key && panic!("{} and {} both own {:?}", a.owner, b.owner, a.key)
    });
    assert_eq!(winners.len(), RESPONSES);
    // Now all owners try to end each response; only its own one succeeds.
    for winner in winners {
        assert_eq!(winner.term, 2);
        let finish = FinalState {
            state: State::Failed,
            ..completed("{}")
        };
        assert_eq!(
            stores[0]
                .finish(winner.key.clone(), 1, finish.clone(), now)
                .await,
            Err(StoreError::Fenced)
        );
        stores[1].finish(winner.key, 2, finish, now).await.unwrap();
    }
}

#[tokio::test]
async fn one_claimer_wins_in_memory() {
    let store = Arc::new(places::memory().await.open(ROOMY).await);
    race(vec![store.clone(), store.clone(), store]).await;
}

#[tokio::test]
async fn one_claimer_wins_in_a_file() {
    let place = places::sqlite().await;
    let stores = [
        place.open(ROOMY).await,
        place.open(ROOMY).await,
        place.open(ROOMY).await,
    ];
    race(stores.map(Arc::new).to_vec()).await;
}

#[tokio::test]
async fn one_claimer_wins_in_a_database() {
    let place = places::postgres().await;
    let stores = [
        place.open(ROOMY).await,
        place.open(ROOMY).await,
        place.open(ROOMY).await,
    ];
    race(stores.map(Arc::new).to_vec()).await;
}

/// The owner ends a response by itself or because it was told to, and two others take it over, all at once and many
/// times: each response has one final state, which stays.
async fn race_for_the_end(stores: [Store; 2]) {
    let stores = stores.map(Arc::new);
    for at in 0..100 {
        let id = format!("resp_{at}");
        stores[0].create(running(&id), NOW).await.unwrap();
        let ends = [
            (State::Completed, 0),
            (State::Cancelled, 0),
            (State::Cancelled, 1),
            (State::Failed, 1),
        ];
        let ends = ends.into_iter().enumerate().map(|(nth, (state, by))| {
            let (store, id) = (stores[by].clone(), key(&id));
            tokio::spawn(async move {
                let term = match by {
                    0 => 1,
                    _ => {
                        store
                            .take_over(id.clone(), 1, format!("new {nth}").into(), NOW)
                            .await?
                            .term
                    }
                };
                let finish = FinalState {
                    state,
                    response: nth.to_string().into(),
                    ..completed("")
                };
                store
                    .finish(id, term, finish, NOW)
                    .await
                    .map(|()| nth.to_string())
            })
        });
        let mut won = Vec::new();
        for end in ends.collect::<Vec<_>>() {
            match end.await.unwrap() {
                Ok(response) => won.push(response),
                Err(error) => assert!(
                    matches!(error, StoreError::Conflict | StoreError::Fenced),
                    "{error}"
                ),
            }
        }
        assert_eq!(
            won,
            [&*stores[1].get(key(&id), NOW).await.unwrap().response]
        );
    }
}

#[tokio::test]
async fn fault_c43_one_end_is_reached_in_a_file() {
    let place = places::sqlite().await;
    race_for_the_end([place.open(ROOMY).await, place.open(ROOMY).await]).await;
}

#[tokio::test]
async fn fault_c43_one_end_is_reached_in_a_database() {
    let place = places::postgres().await;
    race_for_the_end([place.open(ROOMY).await, place.open(ROOMY).await]).await;
}
