//! The system clock is changed while the process runs (fault O13). The process sees the clock of libfaketime, which
//! is preloaded: Debian's `libfaketime`, which `tests/run.sh` installs.

use crate::responses::background::ended;
use crate::responses::over_chat::{object, prompt};
use crate::sim::prelude::*;
use std::path::PathBuf;

const DAY: i64 = 24 * 60 * 60;

/// Returns the path of the library, if it is installed.
fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?;
    let mut found =
        folders.filter_map(|entry| Some(entry.ok()?.path().join("faketime/libfaketime.so.1")));
    found.find(|path| path.exists())
}

/// Clock that a test can set: a file from which libfaketime reads the offset.
struct Clock(PathBuf);

impl Clock {
    fn new(folder: &std::path::Path) -> Self {
        let this = Self(folder.join("clock"));
        this.set(0);
        this
    }

    /// Sets the offset from the true time, in seconds.
    fn set(&self, seconds: i64) {
        let next = self.0.with_extension("next");
        std::fs::write(&next, format!("{seconds:+}")).unwrap();
        std::fs::rename(next, &self.0).unwrap();
    }

    fn setup(&self, setup: Setup, library: &std::path::Path) -> Setup {
        setup
            .environment("LD_PRELOAD", library.to_str().unwrap())
            .environment("FAKETIME_TIMESTAMP_FILE", self.0.to_str().unwrap())
            .environment("FAKETIME_NO_CACHE", "1")
            // Only the wall clock jumps; the monotonic clock never does.
            .environment("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }
}

fn long(gate: &Gate) -> Script {
    Script::stream().text("a.0 ").wait(gate).text("a.1 ").stop()
}

async fn status(world: &World, id: &str) -> Value {
    object(&world.get(&format!("/v1/responses/{id}")).await)["status"].clone()
}

/// Makes the clock jump forward and back. Stored, running and streamed responses must be unaffected.
async fn jumps(setup: Setup, folder: &Folder, library: &std::path::Path) {
    let clock = Clock::new(folder.folder());
    let gate = Gate::default();
    let engine = Engine::in_turn(vec![
        Script::answer("a", 2),
        long(&gate),
        long(&gate),
        Script::answer("a", 2),
    ]);
    let timers = "[timeouts]\nfirst_token = 20\ninter_token = 20\ntotal_stream = 60\nbackground_heartbeat = 0.2\n\
                  [store]\nttl = 600";
    let world = World::start(engine.await, clock.setup(setup, library).config(timers)).await;
    let made = object(&world.request(&prompt("m", "")).await);
    let stored = made["id"].as_str().unwrap();
    let mut stream = world.begin_until(&Request::stream(""), "a.0").await;
    let begun = object(&world.request(&prompt("m", r#","background":true"#)).await);
    let background = begun["id"].as_str().unwrap();
    world.engine.wait_attempts(3).await;
    for jump in [DAY, -DAY, 0, 1] {
        clock.set(jump);
        // Checks by the time of a new response that the clock has really changed.
        let answer = object(&world.request(&prompt("m", r#","background":true"#)).await);
        let told = answer["created_at"].as_i64().unwrap() - begun["created_at"].as_i64().unwrap();
        assert!(
            (jump - 5..=jump + 40).contains(&told),
            "{told} instead of {jump}"
        );
        // Several heartbeats, with each of which lost responses are looked for.
        tokio::time::sleep(Duration::from_millis(if jump == DAY { 1_500 } else { 500 })).await;
        assert_eq!(status(&world, stored).await, "completed", "{jump}");
        assert_eq!(status(&world, background).await, "in_progress", "{jump}");
        assert_eq!(
            ended(world.proxy(), answer["id"].as_str().unwrap()).await["status"],
            "completed",
            "{jump}"
        );
    }
    gate.open();
    let rest = String::from_utf8(stream.rest().await).unwrap();
    assert!(
        rest.contains("a.1") && rest.ends_with("data: [DONE]\n\n"),
        "{rest}"
    );
    assert_eq!(
        ended(world.proxy(), background).await["status"],
        "completed"
    );
    world.end().await;
}

#[tokio::test]
async fn fault_o13_a_clock_that_is_set_changes_nothing() {
    let Some(library) = library() else {
        println!("not tried: there is no libfaketime (apt-get install libfaketime)");
        return;
    };
    let (memory, file) = (Folder::new(), Folder::new());
    tokio::join!(
        jumps(Setup::new(), &memory, &library),
        jumps(Setup::stored(&file), &file, &library)
    );
}
