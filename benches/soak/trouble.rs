//! Faults of the machine, one at a time in turn (O01 and others in `tests/faults.toml`).

use crate::engine::{Engine, EngineState};
use crate::plan::SeededRandom;
use crate::tally::{MachineFault, Tally, lock};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Operator {
    pub(crate) pid: u32,
    pub(crate) engines: Vec<Engine>,
    pub(crate) store: PathBuf,
    pub(crate) tally: Arc<Tally>,
    pub(crate) every: Duration,
    pub(crate) seed: u64,
}

impl Operator {
    /// Causes faults until the run is over. Returns their names, and the engines, which keep running.
    pub(crate) fn run(self) -> (Vec<&'static str>, Vec<Engine>) {
        let (mut dice, mut done) = (SeededRandom::new(self.seed, 1 << 60), Vec::new());
        let mut left: Vec<&'static str> = Vec::new();
        let mut next = Instant::now() + self.every;
        while !self.tally.is_stopping() {
            if Instant::now() < next
                || !self.tally.faults.load(std::sync::atomic::Ordering::Relaxed)
            {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
            next = Instant::now() + self.every;
            if left.is_empty() {
                left = vec!["reload", "restart", "stop", "store"];
            }
            let name = left.swap_remove(dice.below(left.len() as u64) as usize);
            self.make(name, &mut dice);
            done.push(name);
        }
        (done, self.engines)
    }

    fn make(&self, name: &'static str, dice: &mut SeededRandom) {
        let from = Instant::now();
        // Consequences may come a little later: a lease, a probe, a timer.
        lock(&self.tally.troubles).push(MachineFault {
            name,
            until: from + Duration::from_secs(3_600),
        });
        match name {
            "reload" => self.signal("HUP"),
            "stop" => {
                self.tally.pause(true);
                self.signal("STOP");
                std::thread::sleep(Duration::from_secs(2));
                self.signal("CONT");
                std::thread::sleep(Duration::from_millis(1_500));
                self.tally.pause(false);
            }
            "restart" => {
                let engine = &self.engines[dice.below(self.engines.len() as u64) as usize];
                engine.set(EngineState::Down);
                std::thread::sleep(Duration::from_secs(3));
                engine.set(EngineState::Loading);
                std::thread::sleep(Duration::from_secs(1));
                engine.set(EngineState::Up);
            }
            _ => self.lock_the_store(),
        }
        if let Some(trouble) = lock(&self.tally.troubles).last_mut() {
            trouble.until = Instant::now() + Duration::from_secs(6);
        }
        eprintln!("soak: {name}, {:.1} s", from.elapsed().as_secs_f64());
    }

    /// O15: another process holds the store's write lock for three seconds.
    fn lock_the_store(&self) {
        let open = rusqlite::Connection::open(&self.store).expect("the store is a SQLite file");
        open.busy_timeout(Duration::from_secs(5))
            .expect("a connection");
        open.execute_batch("BEGIN EXCLUSIVE")
            .expect("the lock is to be had");
        std::thread::sleep(Duration::from_secs(3));
        open.execute_batch("COMMIT").expect("the lock is ours");
    }

    fn signal(&self, name: &str) {
        Command::new("kill")
            .args([&format!("-{name}"), &self.pid.to_string()])
            .status()
            .expect("kill runs");
    }
}
