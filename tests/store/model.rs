//! Random operations, one after the other, give the same answers on all three kinds of store.

use crate::places::{self, Fresh};
use crate::postgres::connect;
use crate::responses::{NOW, item, key, queued};
use crate::seeded::seeded;
use proptest::prelude::*;
use samewire::store::{
    FinalState, Item, Key, LEASE, NewResponse, PageRequest, State, Store, StoreCaps, StoredEvents,
};
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Limits so small that records are evicted, refused and expire.
const TIGHT: StoreCaps = StoreCaps {
    ttl: 40_000,
    bytes: 9_000,
    records: 5,
    record_bytes: 6_000,
    ..StoreCaps::MEMORY
};

/// Ids of records: few, so that the steps meet.
const RECORDS: usize = 5;

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Create {
        key: Key,
        conversation: Option<usize>,
        state: State,
        previous: Option<usize>,
        input: Vec<Item>,
        output: Vec<Item>,
        length: usize,
    },
    Start {
        key: Key,
        term: u64,
        length: usize,
    },
    Append {
        key: Key,
        term: u64,
        events: StoredEvents,
    },
    Finish {
        key: Key,
        conversation: Option<usize>,
        term: u64,
        state: State,
        length: usize,
        output: Vec<Item>,
        events: StoredEvents,
    },
    Look(Key),
    Delete(Key),
    Input(Key, PageRequest),
    Replay(Key, Option<u64>, usize),
    Cancel(Key),
    Heartbeat(usize),
    Orphans(usize, usize),
    TakeOver(Key, u64, usize),
    Chain(Key, u64),
    Resolve(Vec<Arc<str>>),
    Sweep,
    Converse {
        key: Key,
        items: Vec<Item>,
        length: usize,
    },
    Update {
        key: Key,
        length: usize,
    },
    Add(Key, Vec<Item>),
    Transcript(Key, u64),
    Items(Key, PageRequest),
    DeleteItem(Key, Arc<str>),
    DeleteConversation(Key),
}

fn text(length: usize) -> Arc<str> {
    format!("\"{}\"", "é".repeat(length)).into()
}

fn owner(at: usize) -> Arc<str> {
    format!("owner {at}").into()
}

fn id(at: usize) -> Arc<str> {
    format!("record_{at}").into()
}

fn keys() -> impl Strategy<Value = Key> {
    // Responses and conversations share their ids, so that a response is sometimes requested as a conversation and
    // the reverse.
    (
        prop_oneof![30 => Just("tenant"), 1 => Just("other")],
        0..RECORDS,
    )
        .prop_map(|(tenant, at)| Key::new(tenant, &id(at)))
}

fn item_ids() -> impl Strategy<Value = Arc<str>> {
    (0..6_usize).prop_map(|at| format!("item_{at}").into())
}

fn some_items() -> impl Strategy<Value = Vec<Item>> {
    let one = (item_ids(), 0..3_usize).prop_map(|(id, of)| Item {
        body: text(of * 40),
        id,
    });
    prop::collection::vec(one, 0..5)
}

fn some_events() -> impl Strategy<Value = StoredEvents> {
    let bodies = prop::collection::vec((0..300_usize).prop_map(text), 0..4);
    (0..4_u64, bodies).prop_map(|(from, bodies)| StoredEvents { from, bodies })
}

fn asks() -> impl Strategy<Value = PageRequest> {
    let after = prop::option::of(item_ids());
    (after, 0..4_usize, any::<bool>()).prop_map(|(after, limit, descending)| PageRequest {
        after,
        limit,
        descending,
    })
}

fn states() -> impl Strategy<Value = State> {
    prop::sample::select(State::ALL.to_vec())
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..400_usize, 1 => 1_000..4_000_usize]
}

fn terms() -> impl Strategy<Value = u64> {
    prop_oneof![5 => Just(1_u64), 2 => Just(2_u64), 1 => Just(3_u64)]
}

fn steps() -> impl Strategy<Value = Step> {
    let records = || prop::option::of(0..RECORDS);
    let names = || (keys(), records());
    let creates = (
        names(),
        states(),
        records(),
        some_items(),
        some_items(),
        lengths(),
    );
    let finishes = (
        names(),
        terms(),
        states(),
        lengths(),
        some_items(),
        some_events(),
    );
    let writes = prop_oneof![
        6 => creates.prop_map(|((key, conversation), state, previous, input, mut output, length)| {
            if !state.is_terminal() && !length.is_multiple_of(8) {
                output.clear();
            }
            Step::Create { key, conversation, state, previous, input, output, length }
        }),
        2 => (keys(), terms(), lengths()).prop_map(|(key, term, length)| Step::Start { key, term, length }),
        4 => (keys(), terms(), some_events()).prop_map(|(key, term, events)| Step::Append { key, term, events }),
        5 => finishes.prop_map(|((key, conversation), term, state, length, output, events)| {
            Step::Finish { key, conversation, term, state, length, output, events }
        }),
        1 => keys().prop_map(Step::Delete),
        1 => keys().prop_map(Step::Cancel),
        1 => (0..2_usize).prop_map(Step::Heartbeat),
        2 => (0..2_usize, 0..4_usize).prop_map(|(owner, limit)| Step::Orphans(owner, limit)),
        2 => (keys(), terms(), 0..2_usize).prop_map(|(key, term, of)| Step::TakeOver(key, term, of)),
        1 => Just(Step::Sweep),
    ];
    let reads = prop_oneof![
        2 => keys().prop_map(Step::Look),
        2 => (keys(), asks()).prop_map(|(key, ask)| Step::Input(key, ask)),
        2 => (keys(), prop::option::of(0..5_u64), 0..4_usize)
            .prop_map(|(key, after, limit)| Step::Replay(key, after, limit)),
        3 => (keys(), 0..4_000_u64).prop_map(|(key, bytes)| Step::Chain(key, bytes)),
        2 => prop::collection::vec(item_ids(), 0..4).prop_map(Step::Resolve),
        2 => (keys(), asks()).prop_map(|(key, ask)| Step::Items(key, ask)),
    ];
    let conversations = prop_oneof![
        2 => (keys(), some_items(), lengths()).prop_map(|(key, items, length)| Step::Converse { key, items, length }),
        1 => (keys(), lengths()).prop_map(|(key, length)| Step::Update { key, length }),
        2 => (keys(), some_items()).prop_map(|(key, items)| Step::Add(key, items)),
        2 => (keys(), 0..4_000_u64).prop_map(|(key, bytes)| Step::Transcript(key, bytes)),
        2 => (keys(), item_ids()).prop_map(|(key, item)| Step::DeleteItem(key, item)),
        1 => keys().prop_map(Step::DeleteConversation),
    ];
    let waits = prop_oneof![2 => 0..500_u64, 1 => Just(20_000), 1 => 5_000..LEASE + 5_000]
        .prop_map(Step::Wait);
    prop_oneof![6 => writes, 4 => reads, 4 => conversations, 1 => waits]
}

/// Returns the store's answer to a step, as text.
async fn answer(store: &Store, step: &Step, now: &mut u64) -> String {
    let at = *now;
    match step.clone() {
        Step::Wait(time) => {
            *now += time;
            String::new()
        }
        Step::Create {
            key,
            conversation,
            state,
            previous,
            input,
            output,
            length,
        } => {
            let owner = owner(length % 2);
            let new = NewResponse {
                key,
                state,
                owner,
                previous: previous.map(id),
                input,
                output,
                request: text(length),
                ..queued("")
            };
            match conversation {
                Some(conversation) => {
                    format!("{:?}", store.create_in(id(conversation), new, at).await)
                }
                None => format!("{:?}", store.create(new, at).await),
            }
        }
        Step::Start { key, term, length } => {
            format!("{:?}", store.start(key, term, text(length), at).await)
        }
        Step::Append { key, term, events } => {
            format!("{:?}", store.append_events(key, term, events, at).await)
        }
        Step::Finish {
            key,
            conversation,
            term,
            state,
            length,
            output,
            events,
        } => {
            let finish = FinalState {
                state,
                response: text(length),
                output,
                events,
            };
            match conversation {
                Some(conversation) => {
                    format!(
                        "{:?}",
                        store
                            .finish_in(id(conversation), key, term, finish, at)
                            .await
                    )
                }
                None => format!("{:?}", store.finish(key, term, finish, at).await),
            }
        }
        Step::Look(key) => {
            let conversation = store.conversation(key.clone(), at).await;
            format!("{conversation:?} {:?}", store.get(key, at).await)
        }
        Step::Delete(key) => format!("{:?}", store.delete(key, at).await),
        Step::Input(key, ask) => format!("{:?}", store.input_items(key, ask, at).await),
        Step::Replay(key, after, limit) => {
            format!("{:?}", store.events_after(key, after, limit, at).await)
        }
        Step::Cancel(key) => {
            let state = store.request_cancel(key, at).await;
            format!(
                "{state:?} {:?} {:?}",
                store.running(owner(0)).await,
                store.running(owner(1)).await
            )
        }
        Step::Heartbeat(of) => format!("{:?}", store.heartbeat(owner(of), at).await),
        Step::Orphans(of, limit) => format!("{:?}", store.orphans(owner(of), limit, at).await),
        Step::TakeOver(key, term, of) => {
            format!("{:?}", store.take_over(key, term, owner(of), at).await)
        }
        Step::Chain(key, bytes) => format!("{:?}", store.chain(key, bytes, at).await),
        Step::Resolve(ids) => format!("{:?}", store.resolve("tenant".into(), ids, at).await),
        Step::Sweep => format!("{:?}", store.sweep(at).await),
        Step::Converse { key, items, length } => {
            format!(
                "{:?}",
                store
                    .create_conversation(key, text(length), items, at)
                    .await
            )
        }
        Step::Update { key, length } => {
            format!(
                "{:?}",
                store.update_conversation(key, text(length), at).await
            )
        }
        Step::Add(key, items) => format!("{:?}", store.add_items(key, items, at).await),
        Step::Transcript(key, bytes) => format!("{:?}", store.transcript(key, bytes, at).await),
        Step::Items(key, ask) => format!("{:?}", store.conversation_items(key, ask, at).await),
        Step::DeleteItem(key, item) => format!("{:?}", store.delete_item(key, item, at).await),
        Step::DeleteConversation(key) => format!("{:?}", store.delete_conversation(key, at).await),
    }
}

/// Plays the steps on a fresh store in memory and on `other`. Returns the kinds of answers seen.
async fn play(steps: &[Step], other: &Fresh) -> Result<Vec<String>, TestCaseError> {
    let (memory, other) = (
        places::memory().await.open(TIGHT).await,
        other.open(TIGHT).await,
    );
    let (mut now, mut seen) = (NOW, Vec::new());
    for (at, step) in steps.iter().enumerate() {
        let expected = answer(&memory, step, &mut now.clone()).await;
        let got = answer(&other, step, &mut now).await;
        prop_assert_eq!(&got, &expected, "step {}, {:?}", at, step);
        prop_assert!(
            !got.contains("Unavailable") && !got.contains("Slow"),
            "{}",
            got
        );
        let totals = memory.totals().await.unwrap();
        prop_assert_eq!(
            other.totals().await.unwrap(),
            totals,
            "after step {}, {:?}",
            at,
            step
        );
        seen.push(got);
    }
    Ok(seen)
}

/// Checks that the random steps produce every kind of answer.
fn reached(seen: &[String]) {
    for word in [
        "Ok(())",
        "NotFound",
        "Full",
        "Fenced",
        "Conflict",
        "NoCursor",
        "NoConversation",
        "InProgress",
        "Ok([Item",
    ] {
        let count = seen.iter().filter(|answer| answer.contains(word)).count();
        assert!(count > 3, "{word}: {count} of {}", seen.len());
    }
}

/// Plays random cases, each on the place that the function returns, which is empty.
fn run<P: std::borrow::Borrow<Fresh>>(runtime: &Runtime, cases: u32, place: impl AsyncFn() -> P) {
    let all = std::cell::RefCell::new(Vec::new());
    let mut runner = proptest::test_runner::TestRunner::new(seeded(cases));
    let outcome = runner.run(&prop::collection::vec(steps(), 60..250), |steps| {
        let seen = runtime.block_on(async { play(&steps, place().await.borrow()).await })?;
        all.borrow_mut().extend(seen);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    reached(&all.borrow());
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn memory_and_sqlite_agree() {
    run(&runtime(), 60, places::sqlite);
}

#[test]
fn memory_and_postgres_agree() {
    let runtime = runtime();
    // To empty a database takes a fraction of the time that a new one takes.
    let place = runtime.block_on(places::postgres());
    let admin = runtime.block_on(connect(place.url()));
    run(&runtime, 30, async || {
        admin
            .batch_execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            .await
            .unwrap();
        &place
    });
}

/// The steps have their intended effect: an item can be read back.
#[tokio::test]
async fn items_of_the_model_can_be_read_back() {
    let steps = [
        Step::Create {
            key: key("record_0"),
            conversation: None,
            state: State::Completed,
            previous: None,
            input: vec![item("item_0")],
            output: Vec::new(),
            length: 1,
        },
        Step::Resolve(vec!["item_0".into()]),
    ];
    let seen = play(&steps, &places::sqlite().await).await.unwrap();
    assert!(seen[1].contains("item_0"), "{seen:?}");
}
