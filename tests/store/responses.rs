//! Responses from their creation to their end, and which tenants may read them.

use crate::places::{ROOMY, in_each_place};
use samewire::store::{
    FORMAT, FinalState, Item, Key, LEASE, LINKS, NewResponse, PageRequest, State, Store,
    StoreError, StoredEvents,
};

/// Point in time, in milliseconds.
pub(crate) const NOW: u64 = 1_800_000_000_000;

pub(crate) fn key(id: &str) -> Key {
    Key::new("tenant", id)
}

pub(crate) fn item(id: &str) -> Item {
    Item::new(id, &format!(r#"{{"id":"{id}","text":"Grüße \u0000"}}"#))
}

pub(crate) fn items(ids: &[&str]) -> Vec<Item> {
    ids.iter().map(|id| item(id)).collect()
}

/// Returns a queued background response.
pub(crate) fn queued(id: &str) -> NewResponse {
    NewResponse {
        key: key(id),
        state: State::Queued,
        owner: "owner".into(),
        background: true,
        previous: None,
        conversation: None,
        request: r#"{"model":"m"}"#.into(),
        response: r#"{"status":"queued"}"#.into(),
        input: Vec::new(),
        output: Vec::new(),
    }
}

pub(crate) fn running(id: &str) -> NewResponse {
    NewResponse {
        state: State::InProgress,
        ..queued(id)
    }
}

/// Returns a response that is stored when it has ended.
pub(crate) fn over(id: &str) -> NewResponse {
    NewResponse {
        state: State::Completed,
        ..queued(id)
    }
}

pub(crate) fn completed(response: &str) -> FinalState {
    FinalState {
        state: State::Completed,
        response: response.into(),
        output: Vec::new(),
        events: StoredEvents::default(),
    }
}

pub(crate) fn events(from: u64, bodies: &[&str]) -> StoredEvents {
    StoredEvents {
        from,
        bodies: bodies.iter().map(|body| (*body).into()).collect(),
    }
}

in_each_place!(
    crate::places::ROOMY,
    a_response_lives,
    states_never_go_back,
    every_other_tenant_sees_nothing,
    strange_ids_are_not_there,
    a_deleted_response_is_gone,
    events_have_no_gaps,
    events_are_replayed_from_anywhere,
    input_is_paged,
    pages_of_equal_ids_come_to_an_end,
    a_chain_is_whole_or_nothing,
    a_long_chain_is_refused,
    a_chain_that_goes_on_lives_on,
    items_are_found_by_id,
    ended_responses_expire,
    many_items_and_events,
);
async fn a_response_lives(store: &Store) {
    let new = NewResponse {
        previous: Some("resp_0".into()),
        conversation: Some("conv_1".into()),
        input: items(&["msg_1", "msg_2"]),
        ..queued("resp_1")
    };
    store.create(new.clone(), NOW).await.unwrap();
    let first = store.get(key("resp_1"), NOW).await.unwrap();
    assert_eq!(
        (first.state, first.term, first.events, first.cancel),
        (State::Queued, 1, 0, false)
    );
    assert_eq!(
        (first.version, first.created, first.lease),
        (FORMAT, NOW, NOW + LEASE)
    );
    assert_eq!(
        (first.previous, first.conversation),
        (new.previous, new.conversation)
    );
    assert_eq!(
        (&first.request, &first.response, &first.owner),
        (&new.request, &new.response, &new.owner)
    );
    assert!(first.background);

    store
        .start(
            key("resp_1"),
            1,
            r#"{"status":"in_progress"}"#.into(),
            NOW + 1,
        )
        .await
        .unwrap();
    let started = store.get(key("resp_1"), NOW).await.unwrap();
    assert_eq!(
        (started.state, &*started.response),
        (State::InProgress, r#"{"status":"in_progress"}"#)
    );

    store
        .append_events(key("resp_1"), 1, events(0, &["{}", "[1]"]), NOW + 2)
        .await
        .unwrap();
    let finish = FinalState {
        output: items(&["msg_3"]),
        events: events(2, &["[2]"]),
        ..completed(r#"{"status":"completed"}"#)
    };
    store
        .finish(key("resp_1"), 1, finish, NOW + 3)
        .await
        .unwrap();
    let last = store.get(key("resp_1"), NOW + 4).await.unwrap();
    assert_eq!((last.state, last.events), (State::Completed, 3));
    assert_eq!((last.created, last.expires), (NOW, NOW + 3 + ROOMY.ttl));
    assert_eq!(&*last.response, r#"{"status":"completed"}"#);
    let replay = store
        .events_after(key("resp_1"), None, 100, NOW)
        .await
        .unwrap();
    assert_eq!(
        (replay.events, replay.total),
        (events(0, &["{}", "[1]", "[2]"]), 3)
    );
    let weight = store.totals().await.unwrap();
    assert_eq!((weight.records, weight.bytes), (1, last.bytes));
    assert!(last.bytes > 512, "{}", last.bytes);
}

async fn states_never_go_back(store: &Store) {
    for (at, end) in State::ALL
        .into_iter()
        .filter(|state| state.is_terminal())
        .enumerate()
    {
        let id = format!("resp_{at}");
        store.create(queued(&id), NOW).await.unwrap();
        assert_eq!(
            store.create(queued(&id), NOW).await,
            Err(StoreError::Conflict),
            "an id is used once"
        );
        let still = FinalState {
            state: State::InProgress,
            ..completed("{}")
        };
        assert_eq!(
            store.finish(key(&id), 1, still, NOW).await,
            Err(StoreError::Conflict)
        );
        // Directly from the queue, as a cancel does.
        store
            .finish(
                key(&id),
                1,
                FinalState {
                    state: end,
                    ..completed("{}")
                },
                NOW,
            )
            .await
            .unwrap();
        store
            .finish(
                key(&id),
                1,
                FinalState {
                    state: end,
                    ..completed("{}")
                },
                NOW,
            )
            .await
            .expect("the same again");
        for other in State::ALL.into_iter().filter(|other| *other != end) {
            let answer = store
                .finish(
                    key(&id),
                    1,
                    FinalState {
                        state: other,
                        ..completed("{}")
                    },
                    NOW,
                )
                .await;
            assert_eq!(answer, Err(StoreError::Conflict), "{end} to {other}");
        }
        let other_text = FinalState {
            state: end,
            ..completed("[]")
        };
        assert_eq!(
            store.finish(key(&id), 1, other_text, NOW).await,
            Err(StoreError::Conflict)
        );
        assert_eq!(
            store.start(key(&id), 1, "{}".into(), NOW).await,
            Err(StoreError::Conflict)
        );
        assert_eq!(
            store
                .append_events(key(&id), 1, events(0, &["1"]), NOW)
                .await,
            Err(StoreError::Conflict)
        );
        assert_eq!(store.request_cancel(key(&id), NOW).await, Ok(end));
        let record = store.get(key(&id), NOW).await.unwrap();
        assert_eq!(
            (record.state, record.cancel, &*record.response),
            (end, false, "{}")
        );
    }
    let running_with_output = NewResponse {
        output: items(&["msg_1"]),
        ..running("resp_x")
    };
    assert_eq!(
        store.create(running_with_output, NOW).await,
        Err(StoreError::Conflict)
    );
    store.create(over("resp_over"), NOW).await.unwrap();
    assert_eq!(
        store.get(key("resp_over"), NOW).await.unwrap().state,
        State::Completed
    );
}

async fn every_other_tenant_sees_nothing(store: &Store) {
    store
        .create(
            NewResponse {
                input: items(&["msg_1"]),
                ..running("resp_1")
            },
            NOW,
        )
        .await
        .unwrap();
    store
        .append_events(key("resp_1"), 1, events(0, &["0"]), NOW)
        .await
        .unwrap();
    for other in [
        Key::new("other", "resp_1"),
        Key::new("", "resp_1"),
        key("resp_2"),
    ] {
        let k = || other.clone();
        let gone = StoreError::NotFound;
        assert_eq!(store.get(k(), NOW).await.unwrap_err(), gone);
        assert_eq!(
            store.start(k(), 1, "{}".into(), NOW).await.unwrap_err(),
            gone
        );
        assert_eq!(
            store
                .append_events(k(), 1, events(1, &["1"]), NOW)
                .await
                .unwrap_err(),
            gone
        );
        assert_eq!(
            store
                .finish(k(), 1, completed("{}"), NOW)
                .await
                .unwrap_err(),
            gone
        );
        assert_eq!(store.delete(k(), NOW).await.unwrap_err(), gone);
        assert_eq!(
            store
                .input_items(k(), PageRequest::default(), NOW)
                .await
                .unwrap_err(),
            gone
        );
        assert_eq!(
            store.events_after(k(), None, 9, NOW).await.unwrap_err(),
            gone
        );
        assert_eq!(store.request_cancel(k(), NOW).await.unwrap_err(), gone);
        assert_eq!(store.chain(k(), 1 << 20, NOW).await.unwrap_err(), gone);
        assert_eq!(store.conversation(k(), NOW).await.unwrap_err(), gone);
    }
    assert_eq!(
        store
            .resolve("other".into(), vec!["msg_1".into()], NOW)
            .await,
        Ok(vec![None])
    );
    assert!(store.get(key("resp_1"), NOW).await.unwrap().state == State::InProgress);
    // The same id is another response for another tenant.
    store
        .create(
            NewResponse {
                key: Key::new("other", "resp_1"),
                ..queued("")
            },
            NOW,
        )
        .await
        .unwrap();
    store
        .delete(Key::new("other", "resp_1"), NOW)
        .await
        .unwrap();
    assert_eq!(
        store
            .input_items(key("resp_1"), PageRequest::default(), NOW)
            .await
            .unwrap()
            .items
            .len(),
        1
    );
}

async fn strange_ids_are_not_there(store: &Store) {
    let long = "x".repeat(100_000);
    for id in [
        "",
        "\0",
        "resp_1\0",
        "'; DROP TABLE samewire_records; --",
        "%",
        "../resp_1",
        long.as_str(),
    ] {
        assert_eq!(
            store.get(key(id), NOW).await.unwrap_err(),
            StoreError::NotFound,
            "{id:.40}"
        );
        let ids = vec!["msg_1".into(), id.into()];
        let found = store.resolve("tenant".into(), ids, NOW).await;
        assert!(
            found == Err(StoreError::NotFound) || found == Ok(vec![None, None]),
            "{id:.40}: {found:?}"
        );
    }
    store.create(running("resp_1"), NOW).await.unwrap();
    store.get(key("resp_1"), NOW).await.unwrap();
    for id in ["msg\0", long.as_str()] {
        let ask = PageRequest {
            after: Some(id.into()),
            ..PageRequest::default()
        };
        assert_eq!(
            store
                .input_items(key("resp_1"), ask, NOW)
                .await
                .unwrap_err(),
            StoreError::NoCursor
        );
        let new = NewResponse {
            input: vec![item(id)],
            ..over("resp_2")
        };
        assert_eq!(store.create(new, NOW).await, Err(StoreError::Conflict));
        let new = NewResponse {
            previous: Some(id.into()),
            ..over("resp_2")
        };
        assert_eq!(store.create(new, NOW).await, Err(StoreError::Conflict));
        let finish = FinalState {
            output: vec![item(id)],
            ..completed("{}")
        };
        assert_eq!(
            store.finish(key("resp_1"), 1, finish, NOW).await,
            Err(StoreError::Conflict)
        );
    }
    // Keys of the largest size, in all parts of an index at once.
    let long = "\u{1f980}".repeat(128);
    let new = NewResponse {
        key: Key::new(&long, &long),
        input: vec![item(&long)],
        ..over("")
    };
    store.create(new, NOW).await.unwrap();
    let found = store
        .resolve(long.as_str().into(), vec![long.as_str().into()], NOW)
        .await
        .unwrap();
    assert_eq!(found, [Some(item(&long))]);
}

async fn a_deleted_response_is_gone(store: &Store) {
    let new = NewResponse {
        input: items(&["msg_1"]),
        ..running("resp_1")
    };
    store.create(new.clone(), NOW).await.unwrap();
    store
        .append_events(key("resp_1"), 1, events(0, &["0"]), NOW)
        .await
        .unwrap();
    store.delete(key("resp_1"), NOW).await.unwrap();
    assert_eq!(
        store.delete(key("resp_1"), NOW).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(
        store.get(key("resp_1"), NOW).await.unwrap_err(),
        StoreError::NotFound
    );
    // The owner learns of the deletion when it writes.
    assert_eq!(
        store.finish(key("resp_1"), 1, completed("{}"), NOW).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(
        store
            .resolve("tenant".into(), vec!["msg_1".into()], NOW)
            .await,
        Ok(vec![None])
    );
    assert_eq!(store.totals().await.unwrap().bytes, 0);
    store
        .create(
            NewResponse {
                input: Vec::new(),
                ..new
            },
            NOW,
        )
        .await
        .unwrap();
    let replay = store
        .events_after(key("resp_1"), None, 9, NOW)
        .await
        .unwrap();
    assert_eq!(
        (replay.events.bodies.len(), replay.total),
        (0, 0),
        "nothing is left of the first"
    );
}

async fn events_have_no_gaps(store: &Store) {
    store.create(running("resp_1"), NOW).await.unwrap();
    assert_eq!(
        store
            .append_events(key("resp_1"), 1, events(1, &["1"]), NOW)
            .await,
        Err(StoreError::Conflict)
    );
    store
        .append_events(key("resp_1"), 1, events(0, &["0", "1"]), NOW)
        .await
        .unwrap();
    let bytes = store.get(key("resp_1"), NOW).await.unwrap().bytes;
    // The same batch again, as after a lost answer, and one that overlaps.
    store
        .append_events(key("resp_1"), 1, events(0, &["0", "1"]), NOW)
        .await
        .unwrap();
    assert_eq!(store.get(key("resp_1"), NOW).await.unwrap().bytes, bytes);
    store
        .append_events(key("resp_1"), 1, events(1, &["1", "2"]), NOW)
        .await
        .unwrap();
    store
        .append_events(key("resp_1"), 1, StoredEvents::default(), NOW)
        .await
        .unwrap();
    assert_eq!(
        store
            .append_events(key("resp_1"), 1, events(4, &["4"]), NOW)
            .await,
        Err(StoreError::Conflict)
    );
    let gap = FinalState {
        events: events(4, &["4"]),
        ..completed("{}")
    };
    assert_eq!(
        store.finish(key("resp_1"), 1, gap, NOW).await,
        Err(StoreError::Conflict)
    );
    let replay = store
        .events_after(key("resp_1"), None, 9, NOW)
        .await
        .unwrap();
    assert_eq!(
        (replay.events, replay.total, replay.state),
        (events(0, &["0", "1", "2"]), 3, State::InProgress)
    );
}

async fn events_are_replayed_from_anywhere(store: &Store) {
    store.create(running("resp_1"), NOW).await.unwrap();
    let bodies: Vec<String> = (0..10).map(|at| at.to_string()).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    store
        .append_events(key("resp_1"), 1, events(0, &bodies[..7]), NOW)
        .await
        .unwrap();
    let finish = FinalState {
        events: events(7, &bodies[7..]),
        ..completed("{}")
    };
    store.finish(key("resp_1"), 1, finish, NOW).await.unwrap();
    for after in 0..12_usize {
        let replay = store
            .events_after(key("resp_1"), Some(after as u64), 100, NOW)
            .await
            .unwrap();
        assert_eq!(
            replay.events.bodies,
            events(0, bodies.get(after + 1..).unwrap_or_default()).bodies,
            "{after}"
        );
        assert_eq!(
            (replay.events.from, replay.total, replay.state),
            (after as u64 + 1, 10, State::Completed)
        );
    }
    for after in [u64::MAX, u64::MAX - 1, i64::MAX as u64] {
        let replay = store
            .events_after(key("resp_1"), Some(after), 100, NOW)
            .await
            .unwrap();
        assert_eq!(replay.events.bodies.len(), 0);
    }
    let some = store
        .events_after(key("resp_1"), Some(1), 3, NOW)
        .await
        .unwrap();
    assert_eq!(some.events, events(2, &["2", "3", "4"]));
}

async fn input_is_paged(store: &Store) {
    let ids: Vec<String> = (0..120).map(|at| format!("msg_{at}")).collect();
    let input: Vec<Item> = ids.iter().map(|id| item(id)).collect();
    store
        .create(
            NewResponse {
                input: input.clone(),
                ..running("resp_1")
            },
            NOW,
        )
        .await
        .unwrap();
    let page = async |after: Option<&str>, limit, descending| {
        let ask = PageRequest {
            after: after.map(Into::into),
            limit,
            descending,
        };
        store.input_items(key("resp_1"), ask, NOW).await
    };
    let standard = store
        .input_items(key("resp_1"), PageRequest::default(), NOW)
        .await
        .unwrap();
    assert_eq!(
        standard.items,
        input.iter().rev().take(20).cloned().collect::<Vec<_>>(),
        "the last 20, last first"
    );
    assert!(standard.more);
    let second = page(Some("msg_1"), 3, false).await.unwrap();
    assert_eq!((second.items, second.more), (input[2..5].to_vec(), true));
    let last = page(Some("msg_116"), 3, false).await.unwrap();
    assert_eq!(
        (last.items, last.more),
        (input[117..].to_vec(), false),
        "exactly to the end"
    );
    let end = page(Some("msg_119"), 3, false).await.unwrap();
    assert_eq!((end.items.len(), end.more), (0, false));
    let back = page(Some("msg_3"), 3, true).await.unwrap();
    assert_eq!(
        (back.items, back.more),
        (vec![item("msg_2"), item("msg_1"), item("msg_0")], false)
    );
    assert_eq!(page(Some("msg_0"), 3, true).await.unwrap().items.len(), 0);
    assert_eq!(
        page(None, 0, false).await.unwrap().items.len(),
        1,
        "at least one"
    );
    assert_eq!(
        page(None, 100_000, false).await.unwrap().items.len(),
        100,
        "at most 100"
    );
    assert_eq!(
        page(Some("msg_x"), 3, true).await.unwrap_err(),
        StoreError::NoCursor
    );
    for (limit, descending) in [(7, true), (7, false), (40, true), (1, false)] {
        let (mut seen, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = page(after.as_deref(), limit, descending).await.unwrap();
            seen.extend(page.items);
            after = seen.last().map(|item| item.id.to_string());
            if !page.more {
                break;
            }
        }
        if descending {
            seen.reverse();
        }
        assert_eq!(seen, input, "by {limit}");
    }
    store.create(running("resp_2"), NOW).await.unwrap();
    let empty = store
        .input_items(key("resp_2"), PageRequest::default(), NOW)
        .await
        .unwrap();
    assert_eq!((empty.items.len(), empty.more), (0, false));
}

async fn pages_of_equal_ids_come_to_an_end(store: &Store) {
    store
        .create(
            NewResponse {
                input: items(&["a", "b", "a", "c", "a"]),
                ..running("resp_1")
            },
            NOW,
        )
        .await
        .unwrap();
    for descending in [true, false] {
        let mut after = None;
        for _ in 0..5 {
            let ask = PageRequest {
                after: after.clone(),
                limit: 1,
                descending,
            };
            match store.input_items(key("resp_1"), ask, NOW).await.unwrap() {
                page if page.items.is_empty() => break,
                page => after = Some(page.items[0].id.clone()),
            }
        }
        let ask = PageRequest {
            after,
            limit: 1,
            descending,
        };
        assert!(
            !store
                .input_items(key("resp_1"), ask, NOW)
                .await
                .unwrap()
                .more,
            "{descending}"
        );
    }
}

async fn a_chain_is_whole_or_nothing(store: &Store) {
    let link = |id: &str, previous: Option<&str>, input: &[&str]| NewResponse {
        previous: previous.map(Into::into),
        input: items(input),
        ..running(id)
    };
    let end = |output: &[&str]| FinalState {
        output: items(output),
        ..completed("{}")
    };
    store
        .create(link("resp_1", None, &["i1", "i2"]), NOW)
        .await
        .unwrap();
    store
        .finish(key("resp_1"), 1, end(&["o1"]), NOW)
        .await
        .unwrap();
    store
        .create(link("resp_2", Some("resp_1"), &["i3"]), NOW)
        .await
        .unwrap();
    assert_eq!(
        store.chain(key("resp_2"), 1 << 20, NOW).await,
        Err(StoreError::Conflict),
        "it still runs"
    );
    store
        .finish(key("resp_2"), 1, end(&["o2", "o3"]), NOW)
        .await
        .unwrap();
    store
        .create(link("resp_0", Some("resp_2"), &["i4"]), NOW + 500)
        .await
        .unwrap();
    store
        .finish(key("resp_0"), 1, end(&[]), NOW + 500)
        .await
        .unwrap();
    let whole = items(&["i1", "i2", "o1", "i3", "o2", "o3", "i4"]);
    assert_eq!(
        store.chain(key("resp_0"), 1 << 20, NOW).await,
        Ok(whole.clone())
    );
    assert_eq!(
        store.chain(key("resp_1"), 1 << 20, NOW).await,
        Ok(whole[..3].to_vec())
    );
    let bytes = whole.iter().map(|item| item.body.len() as u64).sum();
    assert_eq!(store.chain(key("resp_0"), bytes, NOW).await, Ok(whole));
    assert_eq!(
        store.chain(key("resp_0"), bytes - 1, NOW).await,
        Err(StoreError::Full)
    );
    // An ancestor that has expired, then one that was deleted.
    assert_eq!(
        store.chain(key("resp_0"), bytes, NOW + ROOMY.ttl).await,
        Err(StoreError::NotFound)
    );
    store.delete(key("resp_1"), NOW).await.unwrap();
    assert_eq!(
        store.chain(key("resp_0"), bytes, NOW).await,
        Err(StoreError::NotFound)
    );
    // Another tenant's response is not an ancestor.
    let foreign = NewResponse {
        key: Key::new("other", "resp_9"),
        ..link("", Some("resp_0"), &[])
    };
    store
        .create(
            NewResponse {
                state: State::Completed,
                ..foreign
            },
            NOW,
        )
        .await
        .unwrap();
    assert_eq!(
        store.chain(Key::new("other", "resp_9"), bytes, NOW).await,
        Err(StoreError::NotFound)
    );
}

async fn a_long_chain_is_refused(store: &Store) {
    let mut previous = None;
    for at in 0..=LINKS {
        let id = format!("resp_{at}");
        store
            .create(
                NewResponse {
                    previous,
                    input: items(&[&id]),
                    ..over(&id)
                },
                NOW,
            )
            .await
            .unwrap();
        previous = Some(id.into());
    }
    let last = store
        .chain(key(&format!("resp_{}", LINKS - 1)), 1 << 20, NOW)
        .await
        .unwrap();
    let ids: Vec<String> = (0..LINKS).map(|at| format!("resp_{at}")).collect();
    assert_eq!(
        last.iter()
            .map(|item| item.id.to_string())
            .collect::<Vec<_>>(),
        ids
    );
    assert_eq!(
        store
            .chain(key(&format!("resp_{LINKS}")), 1 << 20, NOW)
            .await,
        Err(StoreError::Full)
    );
    // A response that is its own ancestor, which should be impossible, does not loop for ever.
    store
        .create(
            NewResponse {
                previous: Some("resp_loop".into()),
                ..over("resp_loop")
            },
            NOW,
        )
        .await
        .unwrap();
    assert_eq!(
        store.chain(key("resp_loop"), 1 << 20, NOW).await,
        Err(StoreError::Full)
    );
}

/// A refresh renews the response and the chain of responses before it; no other record is renewed.
async fn a_chain_that_goes_on_lives_on(store: &Store) {
    let ttl = ROOMY.ttl;
    for (at, previous) in [
        ("resp_0", None),
        ("resp_1", Some("resp_0")),
        ("resp_x", Some("resp_0")),
    ] {
        let link = NewResponse {
            previous: previous.map(Into::into),
            input: items(&[at]),
            ..over(at)
        };
        store.create(link, NOW).await.unwrap();
    }
    let expires = async |id: &str, now| store.get(key(id), now).await.map(|record| record.expires);
    // Too recent to be refreshed.
    store.refresh(key("resp_1"), NOW + ttl / 4).await.unwrap();
    assert_eq!(expires("resp_0", NOW).await, Ok(NOW + ttl));
    store
        .refresh(key("resp_1"), NOW + ttl * 3 / 4)
        .await
        .unwrap();
    for (id, expected) in [
        ("resp_0", NOW + ttl * 7 / 4),
        ("resp_1", NOW + ttl * 7 / 4),
        ("resp_x", NOW + ttl),
    ] {
        assert_eq!(expires(id, NOW).await, Ok(expected), "{id}");
    }
    assert_eq!(
        store.chain(key("resp_1"), 1 << 20, NOW + ttl + 1).await,
        Ok(items(&["resp_0", "resp_1"]))
    );
    // Another tenant's response, a missing one and an expired one are not refreshed.
    store
        .refresh(Key::new("other", "resp_x"), NOW + ttl * 3 / 4)
        .await
        .unwrap();
    store.refresh(key("resp_none"), NOW).await.unwrap();
    store.refresh(key("resp_x"), NOW + ttl).await.unwrap();
    assert_eq!(
        expires("resp_x", NOW + ttl).await,
        Err(StoreError::NotFound)
    );
}

async fn items_are_found_by_id(store: &Store) {
    let ours = Item::new("msg_1", r#"{"by":"samewire"}"#);
    let theirs = Item::new("msg_1", r#"{"by":"client"}"#);
    store
        .create(
            NewResponse {
                input: vec![theirs.clone(), item("msg_2")],
                ..over("resp_0")
            },
            NOW,
        )
        .await
        .unwrap();
    let ids = || {
        vec![
            "msg_2".into(),
            "msg_x".into(),
            "msg_1".into(),
            "msg_2".into(),
        ]
    };
    let found = store.resolve("tenant".into(), ids(), NOW).await.unwrap();
    assert_eq!(
        found,
        [Some(item("msg_2")), None, Some(theirs), Some(item("msg_2"))]
    );
    store
        .create(
            NewResponse {
                output: vec![ours.clone()],
                ..over("resp_1")
            },
            NOW + 5,
        )
        .await
        .unwrap();
    assert_eq!(
        store.resolve("tenant".into(), ids(), NOW).await.unwrap()[2],
        Some(ours.clone())
    );
    // The first has expired, the second has not.
    let found = store
        .resolve("tenant".into(), ids(), NOW + ROOMY.ttl)
        .await
        .unwrap();
    assert_eq!(found, [None, None, Some(ours), None]);
}

async fn ended_responses_expire(store: &Store) {
    store.create(running("resp_1"), NOW).await.unwrap();
    store.create(running("resp_2"), NOW).await.unwrap();
    store
        .finish(key("resp_1"), 1, completed("{}"), NOW + 10)
        .await
        .unwrap();
    let last = NOW + 10 + ROOMY.ttl - 1;
    store.get(key("resp_1"), last).await.unwrap();
    assert_eq!(store.sweep(last).await, Ok(0));
    assert_eq!(
        store.get(key("resp_1"), last + 1).await.unwrap_err(),
        StoreError::NotFound
    );
    assert_eq!(
        store.delete(key("resp_1"), last + 1).await.unwrap_err(),
        StoreError::NotFound
    );
    assert_eq!(
        store
            .request_cancel(key("resp_1"), last + 1)
            .await
            .unwrap_err(),
        StoreError::NotFound
    );
    assert_eq!(store.sweep(last + 1).await, Ok(1));
    assert_eq!(
        store.get(key("resp_1"), NOW).await.unwrap_err(),
        StoreError::NotFound,
        "really gone"
    );
    store
        .get(key("resp_2"), u64::MAX >> 1)
        .await
        .expect("what runs does not expire");
    assert_eq!(store.totals().await.unwrap().records, 1);
}

async fn many_items_and_events(store: &Store) {
    let input: Vec<Item> = (0..2_345).map(|at| item(&format!("msg_{at}"))).collect();
    store
        .create(
            NewResponse {
                input: input.clone(),
                ..running("resp_1")
            },
            NOW,
        )
        .await
        .unwrap();
    let bodies: Vec<String> = (0..1_234).map(|at| format!("[{at}]")).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    store
        .append_events(key("resp_1"), 1, events(0, &bodies), NOW)
        .await
        .unwrap();
    store
        .finish(key("resp_1"), 1, completed("{}"), NOW)
        .await
        .unwrap();
    assert_eq!(store.chain(key("resp_1"), 1 << 20, NOW).await, Ok(input));
    let replay = store
        .events_after(key("resp_1"), None, 10_000, NOW)
        .await
        .unwrap();
    assert_eq!(replay.events, events(0, &bodies));
}
