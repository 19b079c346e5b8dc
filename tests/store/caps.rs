//! Behaviour of a store that is full: evictions and refusals.

use crate::places::{self, in_each_place};
use crate::responses::{NOW, completed, events, item, key, over, queued, running};
use samewire::store::{
    CLOSING, FinalState, Item, NewResponse, State, Store, StoreCaps, StoreError,
};

const FEW: StoreCaps = StoreCaps {
    ttl: 1_000,
    bytes: 1 << 30,
    records: 4,
    record_bytes: 1 << 20,
    ..StoreCaps::MEMORY
};

const SMALL: StoreCaps = StoreCaps {
    ttl: 1_000,
    bytes: 10_000,
    records: 100,
    record_bytes: 8_000,
    ..StoreCaps::MEMORY
};

mod count {
    use super::*;
    in_each_place!(
        crate::caps::FEW,
        the_oldest_ended_ones_go,
        what_runs_stays,
        room_is_known,
        conversations_age_too
    );
    use super::{conversations_age_too, room_is_known, the_oldest_ended_ones_go, what_runs_stays};
}

mod size {
    use super::*;
    in_each_place!(
        crate::caps::SMALL,
        bytes_are_bounded,
        a_record_is_bounded,
        nothing_is_lost_when_full,
        what_runs_can_be_closed,
        a_full_conversation_takes_no_response
    );
    use super::{
        a_full_conversation_takes_no_response, a_record_is_bounded, bytes_are_bounded,
        nothing_is_lost_when_full, what_runs_can_be_closed,
    };
}

async fn there(store: &Store, ids: &[&str]) -> Vec<bool> {
    let mut found = Vec::new();
    for id in ids {
        found.push(store.get(key(id), NOW).await.is_ok());
    }
    found
}

async fn the_oldest_ended_ones_go(store: &Store) {
    // Created first, ended last.
    store.create(running("a"), NOW).await.unwrap();
    store.create(over("b"), NOW + 1).await.unwrap();
    store.create(running("c"), NOW + 2).await.unwrap();
    store
        .finish(key("c"), 1, completed("{}"), NOW + 3)
        .await
        .unwrap();
    store
        .finish(key("a"), 1, completed("{}"), NOW + 4)
        .await
        .unwrap();
    store.create(running("d"), NOW + 5).await.unwrap();
    assert_eq!(store.totals().await.unwrap().records, 4);
    let all = ["a", "b", "c", "d"];
    assert_eq!(there(store, &all).await, [true; 4]);
    store.create(running("e"), NOW + 6).await.unwrap();
    assert_eq!(there(store, &all).await, [true, false, true, true]);
    store.create(running("f"), NOW + 7).await.unwrap();
    assert_eq!(there(store, &all).await, [true, false, false, true]);
    store.create(running("g"), NOW + 8).await.unwrap();
    assert_eq!(there(store, &all).await, [false, false, false, true]);
    assert_eq!(store.totals().await.unwrap().records, 4);
}

async fn what_runs_stays(store: &Store) {
    for id in ["a", "b"] {
        store.create(running(id), NOW).await.unwrap();
        store
            .create(queued(&format!("{id} queued")), NOW)
            .await
            .unwrap();
    }
    assert_eq!(store.create(running("c"), NOW).await, Err(StoreError::Full));
    assert_eq!(
        store.create(over("c"), NOW).await,
        Err(StoreError::Full),
        "not even in its own place"
    );
    assert_eq!(
        store
            .create_conversation(key("c"), "{}".into(), Vec::new(), NOW)
            .await,
        Err(StoreError::Full)
    );
    assert_eq!(
        store.create(running("c"), NOW + 1_000_000).await,
        Err(StoreError::Full),
        "however old"
    );
    assert_eq!(
        there(store, &["a", "a queued", "b", "b queued", "c"]).await,
        [true, true, true, true, false]
    );
    store
        .finish(key("a"), 1, completed("{}"), NOW)
        .await
        .unwrap();
    store.create(running("c"), NOW).await.unwrap();
    assert_eq!(
        there(store, &["a", "a queued", "b", "b queued", "c"]).await,
        [false, true, true, true, true]
    );
}

/// Records that can be evicted count as room. Running responses do not, and a record too large by itself never
/// fits.
async fn room_is_known(store: &Store) {
    for id in ["a", "b", "c", "d"] {
        store.create(over(id), NOW).await.unwrap();
    }
    store.has_room(1_000).await.unwrap();
    assert_eq!(
        store.has_room(FEW.record_bytes + 1).await,
        Err(StoreError::Full)
    );
    for id in ["e", "f", "g"] {
        store.create(running(id), NOW).await.unwrap();
        store.has_room(1_000).await.unwrap();
    }
    store.create(running("h"), NOW).await.unwrap();
    assert_eq!(store.has_room(0).await, Err(StoreError::Full));
    assert_eq!(
        there(store, &["e", "f", "g", "h"]).await,
        [true; 4],
        "nothing was changed"
    );
    store
        .finish(key("e"), 1, completed("{}"), NOW)
        .await
        .unwrap();
    store.has_room(1_000).await.unwrap();
}

async fn conversations_age_too(store: &Store) {
    for (at, id) in ["a", "b", "c"].into_iter().enumerate() {
        store
            .create_conversation(key(id), "{}".into(), vec![item("m")], NOW + at as u64)
            .await
            .unwrap();
    }
    store.create(over("d"), NOW + 3).await.unwrap();
    store
        .update_conversation(key("a"), "[]".into(), NOW + 4)
        .await
        .unwrap();
    store.create(running("e"), NOW + 5).await.unwrap();
    assert_eq!(
        store.conversation(key("b"), NOW).await.unwrap_err(),
        StoreError::NotFound
    );
    store.create(running("f"), NOW + 6).await.unwrap();
    assert_eq!(
        store.conversation(key("c"), NOW).await.unwrap_err(),
        StoreError::NotFound
    );
    store.conversation(key("a"), NOW).await.unwrap();
}

fn text(length: usize) -> String {
    format!("\"{}\"", "x".repeat(length - 2))
}

async fn bytes_are_bounded(store: &Store) {
    for at in 0..50 {
        let id = format!("resp_{at}");
        let new = NewResponse {
            input: vec![item("m")],
            ..running(&id)
        };
        store.create(new, NOW + at).await.unwrap();
        store
            .append_events(key(&id), 1, events(0, &[&text(700)]), NOW + at)
            .await
            .unwrap();
        store
            .finish(key(&id), 1, completed(&text(900)), NOW + at)
            .await
            .unwrap();
        let totals = store.totals().await.unwrap();
        assert!(totals.bytes <= SMALL.bytes, "{totals:?}");
        let record = store
            .get(key(&id), NOW)
            .await
            .expect("the last one is there");
        assert!((2_000..2_500).contains(&record.bytes), "{}", record.bytes);
    }
    assert_eq!(store.totals().await.unwrap().records, 4);
}

async fn a_record_is_bounded(store: &Store) {
    let large = NewResponse {
        request: text(8_000).into(),
        ..over("large")
    };
    assert_eq!(store.create(large, NOW).await, Err(StoreError::Full));
    let large = NewResponse {
        input: vec![Item::new("m", &text(8_000))],
        ..running("large")
    };
    assert_eq!(store.create(large, NOW).await, Err(StoreError::Full));
    assert_eq!(store.totals().await.unwrap().bytes, 0);
    store.create(running("resp"), NOW).await.unwrap();
    let mut next = 0;
    while store
        .append_events(key("resp"), 1, events(next, &[&text(1_100)]), NOW)
        .await
        .is_ok()
    {
        next += 1;
    }
    assert_eq!(next, 6, "the seventh does not fit");
    let replay = store
        .events_after(key("resp"), None, 100, NOW)
        .await
        .unwrap();
    assert_eq!((replay.total, replay.events.bodies.len()), (6, 6));
}

async fn nothing_is_lost_when_full(store: &Store) {
    store
        .create(
            NewResponse {
                input: vec![item("m")],
                ..over("old")
            },
            NOW,
        )
        .await
        .unwrap();
    for id in ["a", "b"] {
        store
            .create(
                NewResponse {
                    request: text(4_000).into(),
                    ..running(id)
                },
                NOW,
            )
            .await
            .unwrap();
    }
    let before = store.totals().await.unwrap();
    // Evicting the old one would not be enough, so it stays.
    let large = NewResponse {
        request: text(5_000).into(),
        ..running("c")
    };
    assert_eq!(store.create(large, NOW).await, Err(StoreError::Full));
    assert_eq!(
        store
            .append_events(key("a"), 1, events(0, &[&text(2_000)]), NOW)
            .await,
        Err(StoreError::Full)
    );
    assert_eq!(store.totals().await.unwrap(), before);
    assert_eq!(
        there(store, &["old", "a", "b", "c"]).await,
        [true, true, true, false]
    );
    assert_eq!(store.get(key("a"), NOW).await.unwrap().events, 0);
    let found = store
        .resolve("tenant".into(), vec!["m".into()], NOW)
        .await
        .unwrap();
    assert_eq!(found, [Some(item("m"))]);
    store
        .append_events(key("a"), 1, events(0, &[&text(300)]), NOW)
        .await
        .expect("for this it is enough");
    assert_eq!(there(store, &["old"]).await, [false]);
}

async fn what_runs_can_be_closed(store: &Store) {
    for id in ["a", "b"] {
        store
            .create(
                NewResponse {
                    request: text(4_300).into(),
                    ..running(id)
                },
                NOW,
            )
            .await
            .unwrap();
    }
    let finish = |length: u64| FinalState {
        state: State::Failed,
        ..completed(&text(usize::try_from(length).unwrap()))
    };
    let own = store.get(key("a"), NOW).await.unwrap().response.len() as u64;
    assert_eq!(
        store
            .finish(key("a"), 1, finish(CLOSING + own + 1), NOW)
            .await,
        Err(StoreError::Full)
    );
    assert_eq!(
        store.get(key("a"), NOW).await.unwrap().state,
        State::InProgress
    );
    store
        .finish(key("a"), 1, finish(CLOSING + own), NOW)
        .await
        .expect("it can always be closed");
    store
        .finish(key("b"), 1, finish(500), NOW + 1)
        .await
        .unwrap();
    assert_eq!(
        there(store, &["a", "b"]).await,
        [false, true],
        "what went over goes when it can"
    );
}

async fn a_full_conversation_takes_no_response(store: &Store) {
    let large = |id: &str, length: usize| Item::new(id, &"x".repeat(length));
    store.create(over("old"), NOW).await.unwrap();
    store
        .create_conversation(key("c"), "{}".into(), vec![large("m", 5_000)], NOW + 1)
        .await
        .unwrap();
    let before = store.totals().await.unwrap();
    let new = |length| NewResponse {
        output: vec![large("o", length)],
        ..over("r")
    };
    // Too large for the conversation, then for both together.
    for length in [3_000, 1_900] {
        assert_eq!(
            store.create_in("c".into(), new(length), NOW + 2).await,
            Err(StoreError::NoConversation)
        );
        assert_eq!(there(store, &["old", "r"]).await, [true, false]);
        assert_eq!(
            store.totals().await.unwrap(),
            before,
            "what made room is back"
        );
        let held = store.transcript(key("c"), 10_000, NOW + 2).await.unwrap();
        assert_eq!(held, [large("m", 5_000)]);
    }
    store
        .create_in("c".into(), new(100), NOW + 2)
        .await
        .unwrap();
    assert_eq!(
        store
            .transcript(key("c"), 10_000, NOW + 2)
            .await
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn a_conversation_over_a_lowered_limit_can_shrink() {
    let place = places::sqlite().await;
    let item = |id: &str| Item::new(id, &"x".repeat(3_000));
    let store = place.open(SMALL).await;
    store
        .create_conversation(key("c"), "{}".into(), vec![item("a"), item("b")], NOW)
        .await
        .unwrap();
    drop(store);
    let store = place
        .open(StoreCaps {
            record_bytes: 2_000,
            ..SMALL
        })
        .await;
    assert_eq!(
        store.add_items(key("c"), vec![item("c")], NOW).await,
        Err(StoreError::Full)
    );
    store.delete_item(key("c"), "a".into(), NOW).await.unwrap();
    store
        .update_conversation(key("c"), "[]".into(), NOW)
        .await
        .unwrap();
}
