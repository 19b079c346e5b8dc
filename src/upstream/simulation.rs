//! Simulation of large pools: the real choice, with invented engines, requests and clock. It shows how even the load is,
//! how many requests find the engine of their conversation again, and how engines that failed come back.
//!
//! `cargo test --lib upstream::simulation -- --nocapture` prints the figures of docs/scale.md.

use super::health::Standing;
use super::models::ListedModel;
use super::pool::{ChosenUpstream, NoUpstream, Pool, SelectionCriteria};
use super::{AttemptOutcome, Upstream, UpstreamId};
use crate::config::{Config, Overrides};
use crate::telemetry::Metrics;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;
use tokio::time::Instant;

/// Mean number of requests under way at each engine.
const LOAD: usize = 8;
/// Mean time of a request.
const REQUEST: Duration = Duration::from_secs(10);

/// Numbers that look random, and are the same in each run (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number above 0 and below 1.
    fn part(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }
}

/// A pool under load, and the time there.
struct World {
    pool: Pool,
    start: Instant,
    now: Duration,
    random: Random,
    /// Requests under way by their ends. Each counts at its engine as long as it is here.
    ends: BinaryHeap<Reverse<(Duration, u64)>>,
    running: HashMap<u64, ChosenUpstream>,
    requests: u64,
    /// Engine that a conversation was last at.
    last: HashMap<u64, UpstreamId>,
    /// Requests of known conversations, and those of them that found their engine again.
    known: u64,
    found: u64,
}

impl World {
    /// Returns a world of this many engines that serve one model, as their probes have shown.
    fn of(engines: usize) -> Self {
        Self::with(engines, "")
    }

    /// Returns the same with further lines of the configuration.
    fn with(engines: usize, lines: &str) -> Self {
        let entries: String = (0..engines)
            .map(|n| format!("[[upstream]]\nname = \"e{n}\"\nurl = \"http://h{n}:80\"\n"))
            .collect();
        let text = format!("threads = 1\n{lines}\n{entries}");
        let config = Config::read(&text, &[&Overrides::default()]).unwrap();
        let pool = Pool::new(&config, &Metrics::default()).unwrap();
        let model = [ListedModel {
            id: "m".to_owned(),
            ..ListedModel::default()
        }];
        pool.upstreams()
            .iter()
            .for_each(|upstream| upstream.listed(&model));
        Self {
            pool,
            start: Instant::now(),
            now: Duration::ZERO,
            random: Random(7),
            ends: BinaryHeap::new(),
            running: HashMap::new(),
            requests: 0,
            last: HashMap::new(),
            known: 0,
            found: 0,
        }
    }

    fn instant(&self) -> Instant {
        self.start + self.now
    }

    fn choose(
        &mut self,
        conversation: Option<u64>,
        prompt: &[u64],
    ) -> Result<ChosenUpstream, NoUpstream> {
        let criteria = SelectionCriteria {
            model: "m",
            only: None,
            affinity_hash: conversation,
            prompt,
            visited: &[],
            compatible_with: None,
            may_use_last_resort: true,
            chance: self.random.next(),
        };
        self.pool.choose_at(self.instant(), &criteria)
    }

    /// Moves the time on to the next request, ends those that are over until then, and starts it. Returns its engine.
    fn request(&mut self, conversation: Option<u64>, prompt: &[u64]) -> UpstreamId {
        let rate = (self.pool.upstreams().len() * LOAD) as f64 / REQUEST.as_secs_f64();
        self.now += Duration::from_secs_f64(-self.random.part().ln() / rate);
        while let Some(Reverse((end, id))) = self
            .ends
            .peek()
            .copied()
            .filter(|Reverse((end, _))| *end <= self.now)
        {
            self.ends.pop();
            if let Some(over) = self.running.remove(&id) {
                over.upstream()
                    .record_outcome(AttemptOutcome::Good, self.start + end);
            }
        }
        let chosen = self.choose(conversation, prompt).unwrap();
        let engine = chosen.upstream().id;
        if let Some(conversation) = conversation
            && let Some(before) = self.last.insert(conversation, chosen.upstream().id)
        {
            self.known += 1;
            self.found += u64::from(before == chosen.upstream().id);
        }
        self.requests += 1;
        let end = self.now + REQUEST.mul_f64(-self.random.part().ln());
        self.ends.push(Reverse((end, self.requests)));
        self.running.insert(self.requests, chosen);
        engine
    }

    /// Returns the number of a conversation of `all`: the nth comes up in proportion to the root of 1/n, so that some are
    /// hundreds of times as busy as most.
    fn conversation(&mut self, all: u64) -> u64 {
        let rank = (all as f64 * self.random.part().powi(2)) as u64;
        Random(rank).next()
    }

    /// Returns the requests under way at the busiest engine, in proportion to the mean.
    fn peak_over_mean(&self) -> f64 {
        let loads = || self.pool.upstreams().iter().map(|upstream| upstream.load());
        let mean = loads().sum::<f64>() / self.pool.upstreams().len() as f64;
        loads().fold(0.0, f64::max) / mean
    }

    /// Returns the part of known conversations whose requests found their engine again since the last call.
    fn affinity(&mut self) -> f64 {
        let part = self.found as f64 / self.known as f64;
        (self.found, self.known) = (0, 0);
        part
    }

    fn at(&self, place: usize) -> &Upstream {
        &self.pool.upstreams()[place]
    }
}

/// Without affinity the load is as even as whole numbers allow, whatever the size.
#[test]
fn load_is_even() {
    println!("engines  peak over mean  choice");
    for engines in [10, 100, 1_000, 4_000] {
        let mut world = World::of(engines);
        let requests = engines * LOAD * 3;
        (0..requests).for_each(|_| _ = world.request(None, &[]));
        let peak = world.peak_over_mean();
        let clock = std::time::Instant::now();
        (0..20_000).for_each(|_| drop(world.choose(None, &[])));
        let each = clock.elapsed() / 20_000;
        println!("{engines:>7}  {peak:>14.2}  {:>4} ns", each.as_nanos());
        assert!(peak <= 1.5, "{engines} engines: {peak}");
    }
}

/// With affinity, conversations stay together, and the bound on load holds where some of them are much busier.
#[test]
fn conversations_stay_and_none_overloads_its_engine() {
    println!("engines  conversations  peak over mean  found again  choice");
    for (engines, conversations) in [
        (10, 2_000),
        (100, 20_000),
        (1_000, 200_000),
        (4_000, 800_000),
    ] {
        let mut world = World::of(engines);
        for _ in 0..engines * LOAD * 4 {
            let conversation = world.conversation(conversations);
            world.request(Some(conversation), &[]);
        }
        let (peak, found) = (world.peak_over_mean(), world.affinity());
        let clock = std::time::Instant::now();
        (0..20_000_u64).for_each(|n| drop(world.choose(Some(Random(n).next()), &[])));
        let each = clock.elapsed() / 20_000;
        println!(
            "{engines:>7}  {conversations:>13}  {peak:>14.2}  {found:>11.2}  {:>4} ns",
            each.as_nanos()
        );
        assert!(peak <= 2.5, "{engines} engines: {peak}");
        assert!(found >= 0.5, "{engines} engines: {found}");
    }
}

/// Engines that fail get no requests, the others' conversations stay where they are, and those that come back have their
/// share again soon, without a rush.
#[test]
fn engines_fail_and_come_back() {
    let engines = 1_000;
    let mut world = World::of(engines);
    let run = |world: &mut World, requests: usize| {
        for _ in 0..requests {
            let conversation = world.conversation(200_000);
            world.request(Some(conversation), &[]);
        }
    };
    run(&mut world, engines * LOAD * 4);
    let before = world.affinity();
    let failing = engines / 10;
    for place in 0..failing {
        world.at(place).set_standing(Standing::Down);
    }
    run(&mut world, engines * LOAD);
    let (during, lost) = (world.affinity(), failing as f64 / engines as f64);
    let left: f64 = (0..failing)
        .map(|place| world.at(place).load())
        .sum::<f64>()
        / failing as f64;
    println!("found again: {before:.2} before, {during:.2} while {failing} of {engines} are down");
    assert!(
        during >= before * (1.0 - 2.0 * lost),
        "the others' conversations stay: {during}"
    );
    assert!(left < LOAD as f64, "no new requests: {left}");
    for place in 0..failing {
        world.at(place).set_standing(Standing::Up);
    }
    let (up, mut rush) = (world.now, 0.0_f64);
    loop {
        run(&mut world, engines / 10);
        let share = |place: usize| world.at(place).load() / LOAD as f64;
        rush = (0..failing).map(share).fold(rush, f64::max);
        if (0..failing).map(share).sum::<f64>() / failing as f64 >= 0.8 {
            break;
        }
        assert!(world.now - up < REQUEST * 10, "they get their share again");
    }
    println!(
        "80 % of their share after {:.1} s, at most {rush:.1} times it",
        (world.now - up).as_secs_f64()
    );
    assert!(rush <= 3.0, "no rush on those that are back: {rush}");
}

/// Cache of an engine: the blocks of prompts that it has used last.
#[derive(Default)]
struct Cache {
    blocks: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
    uses: u64,
}

impl Cache {
    /// Blocks that an engine has room for: some forty conversations.
    const ROOM: usize = 1_000;

    /// Returns the number of blocks at the beginning of a prompt that are there, and takes all of them in.
    fn hits(&mut self, prompt: &[u64]) -> usize {
        let hits = prompt
            .iter()
            .take_while(|block| self.blocks.contains_key(block))
            .count();
        for block in prompt {
            self.uses += 1;
            if let Some(before) = self.blocks.insert(*block, self.uses) {
                self.by_use.remove(&before);
            }
            self.by_use.insert(self.uses, *block);
        }
        while self.blocks.len() > Self::ROOM {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                break;
            };
            self.blocks.remove(&oldest);
        }
        hits
    }
}

/// Conversations: what they have in common with others, and how far they have come.
struct Talk {
    /// Hash of the system prompt and of the first message.
    beginning: u64,
    blocks: Vec<u64>,
}

impl Talk {
    /// Blocks of a system prompt, and those that a turn adds.
    const SYSTEM: u64 = 16;
    const TURN: u64 = 3;

    fn begin(system: u64, random: &mut Random) -> Self {
        let blocks: Vec<_> = (0..Self::SYSTEM)
            .map(|n| Random((system << 32) + n).next())
            .collect();
        Self {
            beginning: random.next(),
            blocks,
        }
    }

    fn turn(&mut self, random: &mut Random) {
        self.blocks.extend((0..Self::TURN).map(|_| random.next()));
    }
}

/// Returns the part of all blocks of prompts that engines find in their caches, and the peak of the load.
fn cached(engines: usize, by: &str) -> (f64, f64) {
    let mut world = World::with(engines, &format!("[affinity]\nby = \"{by}\""));
    let mut caches: HashMap<UpstreamId, Cache> = HashMap::new();
    // More system prompts than one engine has room for, and conversations of some ten turns each.
    let mut random = Random(11);
    let talks = engines * 20;
    let mut open: Vec<_> = (0..talks)
        .map(|_| Talk::begin(random.next() % 200, &mut random))
        .collect();
    let (mut hits, mut blocks) = (0, 0);
    for n in 0..talks * 12 {
        let at = usize::try_from(random.next() % talks as u64).unwrap();
        if random.part() < 0.1 {
            open[at] = Talk::begin(random.next() % 200, &mut random);
        }
        open[at].turn(&mut random);
        let talk = &open[at];
        let (beginning, prompt): (_, &[u64]) = match by {
            "none" => (None, &[]),
            "conversation" => (Some(talk.beginning), &[]),
            _ => (Some(talk.beginning), &talk.blocks),
        };
        let engine = world.request(beginning, prompt);
        let found = caches.entry(engine).or_default().hits(&talk.blocks);
        // The first ones find every cache empty.
        if n >= talks * 4 {
            (hits, blocks) = (hits + found, blocks + talk.blocks.len());
        }
    }
    (
        f64::from(u32::try_from(hits).unwrap()) / blocks as f64,
        world.peak_over_mean(),
    )
}

/// Engines find more of the prompts in their caches by conversation than by load, and still more by prefix.
#[test]
fn caches_are_hit() {
    println!("engines  affinity      found in caches  peak over mean");
    for engines in [20, 100] {
        let [none, conversation, prefix] = ["none", "conversation", "prefix"].map(|by| {
            let (found, peak) = cached(engines, by);
            println!("{engines:>7}  {by:<12}  {found:>15.2}  {peak:>14.2}");
            assert!(peak <= 2.5, "{engines} engines, {by}: {peak}");
            found
        });
        assert!(
            conversation >= none + 0.2,
            "{engines} engines: {none} {conversation}"
        );
        assert!(
            prefix >= conversation + 0.03,
            "{engines} engines: {conversation} {prefix}"
        );
    }
}
