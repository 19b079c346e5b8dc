//! A process that writes to a file and is killed at a random moment: everything it acknowledged is there
//! afterwards.

use crate::places::{self, Fresh, ROOMY};
use crate::responses::{NOW, completed, events, item, key, running};
use crate::seeded;
use rand::{RngExt, SeedableRng};
use samewire::store::{FinalState, NewResponse, PageRequest, State, StoreCaps, StoreLocation};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Environment variable of the process that is killed: the file it writes to, and the prefix of its ids.
const WRITER: &str = "SAMEWIRE_TEST_WRITER";

const CAPS: StoreCaps = StoreCaps {
    records: 1_000_000,
    bytes: 1 << 30,
    ..ROOMY
};

#[test]
fn what_was_acknowledged_survives_a_kill() {
    if let Ok(writer) = std::env::var(WRITER) {
        let (run, path) = writer.split_once(' ').unwrap();
        return write(run, Path::new(path));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let place = runtime.block_on(places::sqlite());
    let _ = seeded::seeded(1);
    let mut random = rand::rngs::StdRng::seed_from_u64(7);
    let mut acknowledged = Vec::new();
    let mut most = 0;
    for run in 0..20 {
        // Some processes are killed while they open the file, some while they write.
        let after = if run % 4 == 0 {
            0
        } else {
            random.random_range(1..400)
        };
        let pause = Duration::from_micros(random.random_range(0..30_000));
        let lines = killed(run, place.file(), after, pause);
        most = most.max(lines.len());
        runtime.block_on(check(&place, &lines));
        acknowledged.extend(lines);
    }
    // No later kill has damaged earlier records.
    runtime.block_on(check(&place, &acknowledged));
    assert!(
        most > 100 && acknowledged.len() > 1_000,
        "{most}, {}",
        acknowledged.len()
    );
}

/// Starts a writer and kills it after this many acknowledgements and a pause. Returns the acknowledged ids.
fn killed(run: usize, path: &Path, after: usize, pause: Duration) -> Vec<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "kill::what_was_acknowledged_survives_a_kill",
        "--nocapture",
    ]);
    command.env(WRITER, format!("{run} {}", path.display()));
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut read = || {
        let mut line = String::new();
        // A line without its end was not written completely.
        (lines.read_line(&mut line).unwrap() > 0 && line.ends_with('\n')).then_some(line)
    };
    let mut ids = Vec::new();
    let keep = |line: String, ids: &mut Vec<String>| {
        ids.extend(
            line.trim_end()
                .split_once("stored ")
                .map(|(_, id)| id.to_owned()),
        );
    };
    while ids.len() < after {
        keep(read().expect("it writes until it is killed"), &mut ids);
    }
    std::thread::sleep(pause);
    child.kill().unwrap();
    while let Some(line) = read() {
        keep(line, &mut ids);
    }
    let status = child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9),
        "{status}"
    );
    ids
}

fn response(id: &str) -> String {
    format!(r#"{{"id":"{id}","text":"{}"}}"#, id.repeat(20))
}

/// Writes responses, many at once, and prints which are stored; never ends.
fn write(run: &str, path: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let place = StoreLocation::Sqlite(path.to_path_buf());
        let store = Arc::new(places::opened(&place, CAPS).await.unwrap());
        let writer = |task: usize| {
            let (store, run) = (store.clone(), run.to_owned());
            tokio::spawn(async move {
                for at in 0.. {
                    let id = format!("resp_{run}_{task}_{at}");
                    store
                        .create(
                            NewResponse {
                                input: vec![item(&id)],
                                ..running(&id)
                            },
                            NOW,
                        )
                        .await
                        .unwrap();
                    store
                        .append_events(key(&id), 1, events(0, &["0", "1"]), NOW)
                        .await
                        .unwrap();
                    let finish = FinalState {
                        output: vec![item("out")],
                        events: events(2, &["2"]),
                        ..completed(&response(&id))
                    };
                    store.finish(key(&id), 1, finish, NOW).await.unwrap();
                    let mut out = std::io::stdout().lock();
                    out.write_all(format!("stored {id}\n").as_bytes()).unwrap();
                    out.flush().unwrap();
                }
            })
        };
        let tasks: Vec<_> = (0..16).map(writer).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

async fn check(place: &Fresh, acknowledged: &[String]) {
    let db = rusqlite::Connection::open(place.file()).unwrap();
    let whole: String = db
        .query_row("PRAGMA integrity_check", (), |row| row.get(0))
        .unwrap();
    assert_eq!(whole, "ok");
    let orphans: i64 = db
        .query_row("SELECT COUNT(*) FROM pragma_foreign_key_check", (), |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(orphans, 0, "items and events without a record");
    drop(db);
    let store = place.open(CAPS).await;
    for id in acknowledged {
        let record = store
            .get(key(id), NOW)
            .await
            .expect("acknowledged records exist");
        assert_eq!(
            (record.state, record.events, &*record.response),
            (State::Completed, 3, &*response(id))
        );
        let replay = store.events_after(key(id), None, 9, NOW).await.unwrap();
        assert_eq!(replay.events, events(0, &["0", "1", "2"]));
        let input = store
            .input_items(key(id), PageRequest::default(), NOW)
            .await
            .unwrap();
        assert_eq!(input.items, [item(id)]);
    }
}
