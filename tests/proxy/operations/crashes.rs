//! A process killed at a random moment while it runs background responses, a hundred times, and restarted each time
//! on the same file (fault O16). Everything that clients have read stays true.

use crate::operations::replicas::{TOLD, at, follow, sound};
use crate::responses::background::is_over;
use crate::responses::races::{asked_for, numbered_request, random, timed_engine};
use crate::sim::prelude::*;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use samewire::store::{Key, NewResponse, State, Store, StoreCaps, StoreLocation};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

const KILLS: usize = 100;

/// Facts that clients have read about one response, and that must stay true.
#[derive(Default)]
struct Observed {
    number: usize,
    /// Final response object, byte for byte.
    end: Option<String>,
    /// Events that were read while the response ran.
    events: Vec<Value>,
}

/// Facts that clients have read about all responses, over all restarts of the process.
#[derive(Default)]
struct Observations {
    told: RefCell<BTreeMap<String, Observed>>,
    /// Number of responses requested so far.
    asked: Cell<usize>,
}

/// Sends a request and returns the body, or `None` if the process dies before the body is complete.
async fn send(client: &mut Client, request: &Request) -> Option<String> {
    if !client.try_send(&request.bytes()).await {
        return None;
    }
    let answer = client
        .try_answer()
        .await
        .filter(|answer| answer.ended == Ended::Length)?;
    assert_eq!(answer.head.status, 200, "{}", answer.text());
    Some(answer.text().to_owned())
}

impl Observations {
    /// Compares an object with the earlier ones. Returns true if the response has ended.
    fn observe(&self, id: &str, text: &str) -> bool {
        let mut told = self.told.borrow_mut();
        let told = told.get_mut(id).unwrap();
        match &told.end {
            Some(end) => assert_eq!(text, end),
            None if is_over(&parsed(text)) => told.end = Some(text.to_owned()),
            None => {}
        }
        told.end.is_some()
    }

    fn open(&self) -> Vec<String> {
        let told = self.told.borrow();
        told.iter()
            .filter(|(_, told)| told.end.is_none())
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Creates responses until the process dies. The id of the last confirmed one is left in `latest`.
    async fn create(
        &self,
        mut client: Client,
        mut random: StdRng,
        latest: &RefCell<Option<String>>,
    ) {
        loop {
            let number = self.asked.replace(self.asked.get() + 1);
            let takes = Duration::from_millis(random.random_range(0..200));
            let takes = random.random_ratio(2, 3).then_some(takes);
            let Some(text) = send(&mut client, &numbered_request(number, takes)).await else {
                return;
            };
            let id = parsed(&text)["id"].as_str().unwrap().to_owned();
            let known = self.told.borrow_mut().insert(
                id.clone(),
                Observed {
                    number,
                    ..Observed::default()
                },
            );
            assert!(known.is_none(), "{id} is made twice");
            latest.replace(Some(id));
            tokio::time::sleep(Duration::from_millis(random.random_range(10..120))).await;
        }
    }

    /// Follows the events of the latest response.
    async fn read(&self, mut client: Client, latest: &RefCell<Option<String>>) {
        let id = loop {
            if let Some(id) = latest.take() {
                break id;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        if !client.try_send(&at(&id, "?stream=true").bytes()).await
            || client.try_head().await.is_none()
        {
            return;
        }
        let mut text = Vec::new();
        while let Some(piece) = client.piece().await {
            text.extend(piece);
        }
        let text = String::from_utf8_lossy(&text);
        // The last event may be incomplete.
        let whole = text.rsplit_once("\n\n").map_or("", |(whole, _)| whole);
        let data = whole.lines().filter_map(|line| line.strip_prefix("data: "));
        self.told.borrow_mut().get_mut(&id).unwrap().events = data.map(parsed).collect();
    }

    /// Fetches responses known from before: the open ones, and some others.
    async fn check(&self, mut client: Client, mut random: StdRng) {
        let mut ids: Vec<_> = self.told.borrow().keys().cloned().collect();
        ids.shuffle(&mut random);
        let open = self.open();
        for id in open.iter().chain(ids.iter().take(20)) {
            let Some(text) = send(&mut client, &at(id, "")).await else {
                return;
            };
            self.observe(id, &text);
        }
    }

    /// Runs the clients against one process until it is killed.
    async fn run_until_killed(&self, life: Samewire, random: &mut StdRng) {
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push((
                Client::connect(life.proxy).await,
                StdRng::seed_from_u64(random.random()),
            ));
        }
        let reader = Client::connect(life.proxy).await;
        let latest = RefCell::default();
        let (checker, checks) = clients.pop().unwrap();
        let creating = clients
            .into_iter()
            .map(|(client, random)| self.create(client, random, &latest));
        let pause = Duration::from_millis(random.random_range(0..400));
        let killed = async {
            tokio::time::sleep(pause).await;
            drop(life);
        };
        let reading = async {
            tokio::select! {
                () = self.read(reader, &latest) => {}
                // The process may have died before anything could be read.
                () = tokio::time::sleep(pause + PATIENCE / 10) => {}
            }
        };
        let _ = tokio::join!(
            futures::future::join_all(creating),
            self.check(checker, checks),
            reading,
            killed
        );
    }
}

/// Checks a response after its end: its events, its object, and a resumed stream agree with earlier reads.
async fn check_final(proxy: SocketAddr, id: &str, told: &Observed, random: &mut StdRng) {
    let object = parsed(told.end.as_ref().unwrap());
    let last = match object["status"].as_str().unwrap() {
        "completed" => "response.completed",
        "failed" => "response.failed",
        other => panic!("{other}: no request was for that"),
    };
    if last == "response.failed" {
        assert_eq!(object["error"]["code"], "server_error");
        assert!(
            object["error"]["message"]
                .as_str()
                .unwrap()
                .contains("[replica_lost]"),
            "{object}"
        );
    }
    let events = follow(proxy, at(id, "?stream=true")).await;
    sound(&events, 0, last);
    assert_eq!(events.last().unwrap()["response"], object);
    assert_eq!(
        events[..told.events.len()],
        told.events,
        "events once read stay"
    );
    let deltas: String = events
        .iter()
        .filter_map(|event| event["delta"].as_str())
        .collect();
    let text = object["output"][0]["content"][0]["text"]
        .as_str()
        .unwrap_or_default();
    assert_eq!(text, deltas, "the deltas are in the object");
    let after = random.random_range(0..events.len());
    let rest = follow(
        proxy,
        at(id, &format!("?stream=true&starting_after={after}")),
    )
    .await;
    assert_eq!(rest, events[after + 1..]);
}

/// Waits until all responses have ended, including those that no client knows of, and checks the database.
async fn closed(proxy: SocketAddr, promises: &Observations, folder: &Folder) {
    let start = Instant::now();
    let mut client = Client::connect(proxy).await;
    let table = rusqlite::Connection::open(folder.path("store.db")).unwrap();
    let count = |sql: &str| {
        table
            .query_row(sql, (), |row| row.get::<_, i64>(0))
            .unwrap()
    };
    loop {
        let mut open = promises.open();
        for id in &open {
            promises.observe(id, &send(&mut client, &at(id, "")).await.expect("it lives"));
        }
        open = promises.open();
        if open.is_empty() && count("SELECT COUNT(*) FROM samewire_records WHERE state < 2") == 0 {
            break;
        }
        assert!(start.elapsed() < TOLD, "still open: {open:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let gaps = "SELECT COUNT(*) FROM samewire_records AS r WHERE r.events <> (SELECT COUNT(*) FROM samewire_events \
                AS e WHERE e.holder = r.id AND e.tenant = r.tenant AND e.seq < r.events)";
    assert_eq!(count(gaps), 0);
    assert_eq!(count("SELECT COUNT(*) FROM pragma_foreign_key_check"), 0);
    assert_eq!(
        table.query_row("PRAGMA integrity_check", (), |row| row.get(0)),
        Ok("ok".to_owned())
    );
}

/// Checks that the engine received each request at most once, whatever died, and that no generation is left over.
fn sent_once(engine: &Engine, promises: &Observations) {
    assert_eq!(engine.active_generations(), 0);
    let attempts = engine.attempt_count();
    let mut asked = vec![0; promises.asked.get()];
    for attempt in asked_for(engine) {
        asked[attempt.0] += 1;
    }
    assert!(
        asked.iter().all(|times| *times <= 1) && attempts <= asked.len(),
        "{asked:?}"
    );
    for told in promises.told.borrow().values() {
        let completed = told
            .end
            .as_ref()
            .is_some_and(|end| parsed(end)["status"] == "completed");
        assert!(
            !completed || asked[told.number] == 1,
            "number {}",
            told.number
        );
    }
}

#[tokio::test]
async fn fault_o16_what_was_said_survives_a_hundred_kills() {
    let mut random = random();
    let engine = timed_engine().await;
    let folder = Folder::new();
    let setup = Setup::stored(&folder).in_front_of(&engine);
    let promises = Observations::default();
    for kill in 0..KILLS {
        if kill % 5 == 4 {
            // Kills the process while it opens the file, or closes the responses it finds there.
            let life = Samewire::spawn(&setup);
            tokio::time::sleep(Duration::from_millis(random.random_range(0..150))).await;
            drop(life);
        } else {
            promises
                .run_until_killed(Samewire::start(&setup).await, &mut random)
                .await;
        }
    }
    let last = Samewire::start(&setup).await;
    closed(last.proxy, &promises, &folder).await;
    sent_once(&engine, &promises);
    let told = promises.told.take();
    let mut lost = 0;
    for (id, told) in &told {
        check_final(last.proxy, id, told, &mut random).await;
        lost += usize::from(parsed(told.end.as_ref().unwrap())["status"] == "failed");
    }
    println!("{} responses, {lost} lost", told.len());
    assert!(
        lost > KILLS / 10 && told.len() - lost > KILLS / 10,
        "{lost} of {} lost",
        told.len()
    );
    assert!(
        told.values()
            .any(|told| told.end.is_some() && told.events.len() > 3)
    );
}

/// Hundreds of responses left by one killed process are closed soon.
#[tokio::test]
async fn fault_o16_hundreds_are_closed_soon() {
    const MANY: usize = 300;
    let folder = Folder::new();
    let place = StoreLocation::Sqlite(folder.path("store.db"));
    let store = Store::open(&place, StoreCaps::DISK).await.unwrap().unwrap();
    for number in 0..MANY {
        let id = format!("resp_{number:032x}");
        let new = NewResponse {
            key: Key::new("", &id),
            state: State::Queued,
            owner: "dead".into(),
            background: true,
            previous: None,
            conversation: None,
            request: "{}".into(),
            response: format!(r#"{{"id":"{id}","status":"queued","output":[],"error":null}}"#)
                .into(),
            input: Vec::new(),
            output: Vec::new(),
        };
        // The lease of this response expired long ago.
        store.create(new, 1).await.unwrap();
    }
    drop(store);
    let engine = timed_engine().await;
    let _life = Samewire::start(&Setup::stored(&folder).in_front_of(&engine)).await;
    let table = rusqlite::Connection::open(folder.path("store.db")).unwrap();
    let open = "SELECT COUNT(*) FROM samewire_records WHERE state < 2";
    let none = || {
        table
            .query_row(open, (), |row| row.get::<_, i64>(0))
            .unwrap()
            == 0
    };
    until("all are closed", none).await;
}
