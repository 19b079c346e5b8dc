//! Stored records are read back unchanged, from memory and from SQLite alike.

use super::feed::Feed;
use samewire::store::{PageRequest, StoreCaps, StoredEvents, FinalState, Item, Key, NewResponse, StoreLocation, State, Store};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::Runtime;

const NOW: u64 = 1_800_000_000_000;

/// Stores, opened once; each input has its own tenant.
struct Places {
    runtime: Runtime,
    all: [Store; 2],
}

fn places() -> &'static Places {
    static PLACES: OnceLock<Places> = OnceLock::new();
    PLACES.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let path = folder().join(format!("{PREFIX}{}.db", std::process::id()));
        let open = async |place: StoreLocation| Store::open(&place, StoreCaps::DISK).await.expect("it opens").expect("a place");
        let all = runtime.block_on(async { [open(StoreLocation::Memory).await, open(StoreLocation::Sqlite(path)).await] });
        Places { runtime, all }
    })
}

const PREFIX: &str = "samewire-fuzz-";

/// Returns the folder for the files, after deleting files of processes that no longer run.
fn folder() -> PathBuf {
    let folder = std::env::temp_dir();
    for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('.').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    folder
}

pub fn run(data: &[u8]) {
    static TENANTS: AtomicU64 = AtomicU64::new(0);
    let tenant = format!("tenant {}", TENANTS.fetch_add(1, Ordering::Relaxed));
    let Places { runtime, all } = places();
    let told = all.each_ref().map(|store| runtime.block_on(play(store, &tenant, data)));
    assert_eq!(told[0], told[1]);
}

/// Stores a record and reads it again. Returns all results as text.
async fn play(store: &Store, tenant: &str, data: &[u8]) -> Vec<String> {
    let mut feed = Feed(data);
    let way = feed.byte();
    let new = NewResponse {
        key: Key::new(tenant, &feed.text()),
        state: feed.pick(&State::ALL),
        owner: feed.text().into(),
        background: way & 1 == 1,
        previous: (way & 2 == 2).then(|| feed.text().into()),
        conversation: None,
        request: feed.text().into(),
        response: feed.text().into(),
        input: items(&mut feed),
        output: Vec::new(),
    };
    let key = new.key.clone();
    let mut told = Vec::new();
    let created = store.create(new.clone(), NOW).await;
    told.push(format!("{created:?}"));
    let found = store.get(key.clone(), NOW).await;
    told.push(format!("{found:?}"));
    assert_eq!(created.is_ok(), found.is_ok(), "{created:?} {found:?}");
    if let Ok(found) = found {
        assert_eq!((&found.request, &found.response), (&new.request, &new.response));
        assert_eq!((found.state, &found.owner, &found.previous), (new.state, &new.owner, &new.previous));
        let ask = PageRequest { after: None, limit: 100, descending: false };
        let page = store.input_items(key.clone(), ask, NOW).await.expect("a page");
        let mut ids: Vec<_> = new.input.iter().map(|item| &item.id).collect();
        ids.dedup();
        if ids.len() == new.input.len() {
            assert_eq!(page.items, new.input);
        }
        told.push(format!("{page:?}"));
    }
    let events = StoredEvents { from: 0, bodies: (0..way % 4).map(|_| feed.text().into()).collect() };
    let finish =
        FinalState { state: feed.pick(&State::ALL), response: feed.text().into(), output: items(&mut feed), events };
    told.push(format!("{:?}", store.finish(key.clone(), 1, finish.clone(), NOW).await));
    told.push(format!("{:?}", store.events_after(key.clone(), None, 10, NOW).await));
    told.push(format!("{:?}", store.chain(key.clone(), 10_000, NOW).await));
    let ids = finish.output.iter().map(|item| item.id.clone()).collect();
    told.push(format!("{:?}", store.resolve(tenant.into(), ids, NOW).await));
    told.push(format!("{:?}", store.get(key.clone(), NOW).await));
    told.push(format!("{:?}", store.delete(key.clone(), NOW).await));
    told.push(format!("{:?}", store.get(key, NOW).await));
    assert!(!told.iter().any(|told| told.starts_with("Err(Unavailable")), "{told:?}");
    told
}

/// Makes a few items; their bodies need not be JSON.
fn items(feed: &mut Feed<'_>) -> Vec<Item> {
    (0..feed.byte() % 4).map(|_| Item::new(&feed.text(), &feed.text())).collect()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (way, id, text) in [
        (0, "resp_1", "{}"),
        (1, "resp_2", r#"{"model":"m","input":"Grüße \u0000"}"#),
        (3, "", ""),
        (7, "a\u{0}b", "\u{0}"),
        (6, "';--\"", "'\u{1f600}"),
    ] {
        for state in 0..6_u8 {
            let put = |seed: &mut Vec<u8>, text: &str| {
                seed.push(text.len() as u8);
                seed.extend(text.as_bytes());
            };
            let mut seed = vec![way];
            put(&mut seed, id);
            seed.push(state);
            put(&mut seed, "owner");
            if way & 2 == 2 {
                put(&mut seed, "resp_0");
            }
            put(&mut seed, text);
            put(&mut seed, text);
            seed.push(2);
            for item in ["msg_1", text, "msg_2", text] {
                put(&mut seed, item);
            }
            for _ in 0..way % 4 {
                put(&mut seed, text);
            }
            seed.push(2 + state % 4);
            put(&mut seed, text);
            seed.push(1);
            for item in ["msg_3", text] {
                put(&mut seed, item);
            }
            all.push(seed);
        }
    }
    all
}
