//! Who runs a response, who may write to it, and who takes it over.

use crate::responses::{NOW, completed, events, key, queued, running};
use crate::{ROOMY, in_each_place, places};
use samewire::store::{Error, Finish, Key, LEASE, New, State, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

in_each_place!(
    crate::ROOMY,
    a_cancel_reaches_the_owner,
    the_old_owner_is_fenced,
    heartbeats_keep_what_runs,
    claims_are_bounded
);

async fn a_cancel_reaches_the_owner(store: &Store) {
    store.create(running("resp_1"), NOW).await.unwrap();
    store.create(queued("resp_2"), NOW).await.unwrap();
    store.create(New { owner: "another".into(), ..running("resp_3") }, NOW).await.unwrap();
    assert_eq!(store.is_cancel_requested(key("resp_1"), NOW).await, Ok(false));
    for id in ["resp_1", "resp_2", "resp_3", "resp_1"] {
        let state = store.request_cancel(key(id), NOW).await.unwrap();
        assert!(!state.is_terminal(), "{id}");
    }
    assert_eq!(store.is_cancel_requested(key("resp_1"), NOW).await, Ok(true));
    assert_eq!(store.cancels("owner".into()).await, Ok(vec![key("resp_1"), key("resp_2")]));
    let finish = Finish { state: State::Cancelled, ..completed("{}") };
    store.finish(key("resp_1"), 1, finish, NOW).await.unwrap();
    assert_eq!(store.cancels("owner".into()).await, Ok(vec![key("resp_2")]));
    assert_eq!(store.request_cancel(key("resp_1"), NOW).await, Ok(State::Cancelled));
    // Whichever came first stays.
    store.finish(key("resp_2"), 1, completed("{}"), NOW).await.unwrap();
    assert_eq!(store.request_cancel(key("resp_2"), NOW).await, Ok(State::Completed));
    let late = Finish { state: State::Cancelled, ..completed("{}") };
    assert_eq!(store.finish(key("resp_2"), 1, late, NOW).await, Err(Error::Conflict));
}

async fn the_old_owner_is_fenced(store: &Store) {
    store.create(running("resp_1"), NOW).await.unwrap();
    store.append_events(key("resp_1"), 1, events(0, &["0"]), NOW).await.unwrap();
    let soon = NOW + LEASE;
    assert_eq!(store.orphans("new".into(), 10, soon - 1).await, Ok(Vec::new()));
    let claimed = store.orphans("new".into(), 10, soon).await.unwrap();
    assert_eq!(claimed.len(), 1);
    let claim = &claimed[0];
    assert_eq!((&claim.key, claim.term, claim.events, claim.lease), (&key("resp_1"), 2, 1, soon + LEASE));
    assert_eq!(*claim, store.get(key("resp_1"), soon).await.unwrap());
    let old = [
        store.start(key("resp_1"), 1, "{}".into(), soon).await,
        store.append_events(key("resp_1"), 1, events(1, &["1"]), soon).await,
        store.finish(key("resp_1"), 1, completed("{}"), soon).await,
        store.finish(key("resp_1"), 3, completed("{}"), soon).await,
    ];
    assert_eq!(old, [const { Err(Error::Fenced) }; 4]);
    assert_eq!(store.heartbeat("owner".into(), soon).await, Ok(0), "it owns nothing any more");
    let lost =
        Finish { state: State::Failed, events: events(1, &["lost"]), ..completed(r#"{"status":"failed"}"#) };
    store.finish(key("resp_1"), 2, lost, soon).await.unwrap();
    assert_eq!(
        store.finish(key("resp_1"), 1, completed("{}"), soon).await,
        Err(Error::Fenced),
        "also when over"
    );
    let record = store.get(key("resp_1"), soon).await.unwrap();
    assert_eq!((record.state, record.term, &*record.owner), (State::Failed, 2, "new"));
    assert_eq!(store.orphans("third".into(), 10, soon + 10 * LEASE).await, Ok(Vec::new()), "it has ended");
}

async fn heartbeats_keep_what_runs(store: &Store) {
    store.create(running("resp_1"), NOW).await.unwrap();
    store.create(queued("resp_2"), NOW).await.unwrap();
    store.create(New { owner: "silent".into(), ..running("resp_3") }, NOW).await.unwrap();
    assert_eq!(store.heartbeat("owner".into(), NOW + 10_000).await, Ok(2));
    let claimed = store.orphans("new".into(), 10, NOW + LEASE).await.unwrap();
    assert_eq!(claimed.iter().map(|record| &*record.key.id).collect::<Vec<_>>(), ["resp_3"]);
    assert_eq!(store.orphans("new".into(), 10, NOW + 10_000 + LEASE - 1).await.unwrap().len(), 0);
    // The queued one too: its queue has died with its owner.
    assert_eq!(store.orphans("new".into(), 10, NOW + 10_000 + LEASE).await.unwrap().len(), 2);
}

async fn claims_are_bounded(store: &Store) {
    for at in 0..5 {
        store
            .create(New { key: Key::new(&format!("tenant {at}"), "resp"), ..running("") }, NOW)
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

/// Several replicas, each with a store of its own on the same place, claim at once: each response has one new owner.
async fn race(stores: Vec<Arc<Store>>) {
    const RESPONSES: usize = 60;
    let now = NOW + LEASE;
    for at in 0..RESPONSES {
        stores[0].create(running(&format!("resp_{at}")), NOW).await.unwrap();
    }
    let total = Arc::new(AtomicUsize::new(0));
    let claim = |(at, store): (usize, Arc<Store>)| {
        let total = total.clone();
        async move {
            let mut won = Vec::new();
            while total.load(Ordering::Relaxed) < RESPONSES {
                let claimed = store.orphans(format!("claimer {at}").into(), 7, now).await.unwrap();
                total.fetch_add(claimed.len(), Ordering::Relaxed);
                won.extend(claimed);
            }
            won
        }
    };
    let claims: Vec<_> = stores.iter().cloned().enumerate().map(|pair| tokio::spawn(claim(pair))).collect();
    let mut winners = Vec::new();
    for claimed in claims {
        winners.extend(claimed.await.unwrap());
    }
    winners.sort_by(|a, b| a.key.cmp(&b.key));
    winners.dedup_by(|a, b| a.key == b.key && panic!("{} and {} both own {:?}", a.owner, b.owner, a.key));
    assert_eq!(winners.len(), RESPONSES);
    // Now all of them try to end each response; only its owner can.
    for winner in winners {
        assert_eq!(winner.term, 2);
        let finish = Finish { state: State::Failed, ..completed("{}") };
        assert_eq!(stores[0].finish(winner.key.clone(), 1, finish.clone(), now).await, Err(Error::Fenced));
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
    let stores = [place.open(ROOMY).await, place.open(ROOMY).await, place.open(ROOMY).await];
    race(stores.map(Arc::new).to_vec()).await;
}

#[tokio::test]
async fn one_claimer_wins_in_a_database() {
    let place = places::postgres().await;
    let stores = [place.open(ROOMY).await, place.open(ROOMY).await, place.open(ROOMY).await];
    race(stores.map(Arc::new).to_vec()).await;
}

/// Cancelling and finishing from two sides, many times: one end each, and it stays.
#[tokio::test]
async fn c43_one_end_is_reached() {
    let place = places::sqlite().await;
    let store = Arc::new(place.open(ROOMY).await);
    for at in 0..200 {
        let id = format!("resp_{at}");
        store.create(running(&id), NOW).await.unwrap();
        let ends = [State::Cancelled, State::Completed].map(|state| {
            let (store, id) = (store.clone(), key(&id));
            tokio::spawn(async move {
                store.finish(id, 1, Finish { state, ..completed("{}") }, NOW).await.map(|()| state)
            })
        });
        let mut won = Vec::new();
        for end in ends {
            match end.await.unwrap() {
                Ok(state) => won.push(state),
                Err(error) => assert_eq!(error, Error::Conflict),
            }
        }
        assert_eq!(won, [store.get(key(&id), NOW).await.unwrap().state]);
    }
}
