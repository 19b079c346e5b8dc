//! Figures of the contest, their targets, and the printed table.

use super::proxies::Kind;
use crate::scenario::{Scenario, Unit};
use serde::Serialize;
use std::fs;
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

/// Largest delay of the first byte beyond nginx's, in microseconds: more might be noticed.
const FIRST_US: f64 = 100.0;
/// Largest delay that storing may add to other streams, in milliseconds.
const LATE_MS: f64 = 5.0;
const STREAM_KIB: f64 = 48.0;
const REST_MIB: f64 = 15.0;
const BINARY_MIB: f64 = 12.0;
const READY_MS: f64 = 50.0;
/// Largest ratio of the delay added to a chunk's way to what nginx adds.
const DELAY: f64 = 1.2;
/// Largest ratio of processor time to that of another build in the same run.
const BUILD: f64 = 1.05;
const MIB: f64 = 1024.0 * 1024.0;

#[derive(Serialize)]
pub(super) struct Report {
    /// Start of the run, in seconds since 1970.
    began: u64,
    machine: Machine,
    pub(super) rounds: usize,
    pub(super) start: Vec<Start>,
    pub(super) rows: Vec<Row>,
    pub(super) memory: Vec<Memory>,
    pub(super) left_out: Vec<LeftOut>,
}

/// Machine of a run, which is quoted with its figures.
#[derive(Serialize)]
struct Machine {
    /// Model as the kernel names it; `None` where it has no name for it, as on many ARM machines.
    processor: Option<String>,
    /// Logical processors that the run may use.
    cpus: usize,
}

#[derive(Serialize)]
pub(super) struct Start {
    pub(super) contestant: String,
    pub(super) kind: Kind,
    /// Version of a gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    pub(super) ready_ms: f64,
    pub(super) binary_bytes: Option<u64>,
}

/// Results of one scenario and one contestant, over all rounds.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) scenario: &'static str,
    #[serde(skip)]
    story: &'static str,
    pub(super) contestant: String,
    #[serde(skip)]
    kind: Kind,
    pub(super) unit: &'static str,
    #[serde(skip)]
    target: Option<f64>,
    pub(super) figures: Vec<Figures>,
}

/// Measurements of one round. Times are in microseconds; processor time is per unit.
#[derive(Serialize)]
pub(super) struct Figures {
    pub(super) cpu_us: f64,
    pub(super) engine_cpu_us: f64,
    pub(super) load_cpu_us: f64,
    pub(super) per_second: f64,
    pub(super) first_us: f64,
    pub(super) first_p99_us: f64,
    pub(super) late_p99_us: f64,
    /// Time from a stamped chunk's sending to its arrival, median and 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delay_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delay_p99_us: Option<f64>,
    /// Responses stored per second beside the streams, if any.
    pub(super) stored_per_second: Option<f64>,
    pub(super) failures: u64,
    pub(super) events: u64,
    #[serde(skip)]
    pub(super) seconds: f64,
    #[serde(skip)]
    pub(super) complaint: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Memory {
    pub(super) contestant: String,
    #[serde(skip)]
    pub(super) kind: Kind,
    pub(super) streams: usize,
    pub(super) failures: u64,
    pub(super) rest_bytes: u64,
    pub(super) rest_pss_bytes: u64,
    pub(super) open_bytes: u64,
    pub(super) open_pss_bytes: u64,
    pub(super) after_bytes: u64,
}

/// Gateway that took no part in a scenario, or in the whole run.
#[derive(Serialize)]
pub(super) struct LeftOut {
    contestant: String,
    scenario: Option<&'static str>,
    reason: String,
}

pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (
        sorted.get(sorted.len() / 2),
        sorted.get(sorted.len().saturating_sub(1) / 2),
    ) {
        (Some(upper), Some(lower)) => f64::midpoint(*upper, *lower),
        _ => 0.0,
    }
}

// === impl Machine ===

impl Machine {
    fn of_this_run() -> Self {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = text
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        Self {
            processor: model.map(|rest| {
                rest.trim_start_matches([' ', '\t', ':'])
                    .trim_end()
                    .to_owned()
            }),
            cpus: available_parallelism().map_or(1, usize::from),
        }
    }
}

// === impl Row ===

impl Row {
    pub(super) fn new(scenario: &Scenario, contestant: &str, kind: Kind) -> Self {
        Self {
            scenario: scenario.name,
            story: scenario.story,
            contestant: contestant.to_owned(),
            kind,
            unit: if scenario.unit == Unit::Chunk {
                "chunk"
            } else {
                "request"
            },
            target: scenario.target,
            figures: Vec::new(),
        }
    }

    /// Returns the contestant that this row is compared with, and the label of the comparison.
    fn base(&self) -> (String, &'static str) {
        match self.contestant.strip_suffix(" responses") {
            Some(name) => (format!("{name} chat"), "of chat"),
            None if self.contestant.ends_with(" chat") => (self.contestant.clone(), "of chat"),
            None => ("nginx".to_owned(), "of nginx"),
        }
    }

    fn median(&self, of: impl Fn(&Figures) -> f64) -> f64 {
        median(&self.figures.iter().map(of).collect::<Vec<_>>())
    }

    /// Returns the median, over rounds, of the ratio of processor times in the same round.
    fn over(&self, other: &Self) -> f64 {
        let rounds = self.figures.iter().zip(&other.figures);
        median(
            &rounds
                .map(|(ours, theirs)| ours.cpu_us / theirs.cpu_us)
                .collect::<Vec<_>>(),
        )
    }
}

/// Time of a stamped chunk on its way, of one round.
type Delay = fn(&Figures) -> Option<f64>;
const DELAYS: [(&str, Delay); 2] = [
    ("median", |figures| figures.delay_us),
    ("p99", |figures| figures.delay_p99_us),
];

// === impl LeftOut ===

impl LeftOut {
    pub(super) fn new(contestant: &str, scenario: Option<&'static str>, reason: &str) -> Self {
        // The last line of a program's log is the one that says why it ended.
        let reason = reason.trim_end().rsplit('\n').next().unwrap_or_default();
        Self {
            contestant: contestant.to_owned(),
            scenario,
            reason: reason.chars().take(200).collect(),
        }
    }
}

// === impl Memory ===

impl Memory {
    fn stream_kib(&self) -> f64 {
        self.open_bytes.saturating_sub(self.rest_bytes) as f64 / self.streams as f64 / 1024.0
    }
}

// === impl Report ===

/// Measured figure with its upper limit; a strict run fails if one is exceeded.
struct Verdict {
    what: String,
    figure: f64,
    most: f64,
    unit: &'static str,
}

impl Report {
    pub(super) fn new(rounds: usize) -> Self {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            began: since_1970.as_secs(),
            machine: Machine::of_this_run(),
            rounds,
            start: Vec::new(),
            rows: Vec::new(),
            memory: Vec::new(),
            left_out: Vec::new(),
        }
    }

    pub(super) fn has_started(&self, contestant: &str) -> bool {
        self.start
            .iter()
            .any(|start| start.contestant == contestant)
    }

    /// Returns true if every stream arrived complete.
    pub(super) fn whole(&self) -> bool {
        self.rows
            .iter()
            .flat_map(|row| &row.figures)
            .all(|figures| figures.failures == 0)
            && self.memory.iter().all(|memory| memory.failures == 0)
    }

    pub(super) fn targets_met(&self) -> bool {
        self.verdicts()
            .iter()
            .all(|verdict| verdict.figure <= verdict.most)
    }

    pub(super) fn print(&self) {
        self.print_scenarios();
        self.print_memory();
        self.print_gateways();
        let verdicts = self.verdicts();
        if !verdicts.is_empty() {
            println!("\nTargets");
        }
        for Verdict {
            what,
            figure,
            most,
            unit,
        } in verdicts
        {
            let word = if figure <= most { "met" } else { "MISSED" };
            println!("  {what:<58} {figure:>9.2} {unit:<5} at most {most:>6.2}  {word}");
        }
    }

    fn print_scenarios(&self) {
        let mut scenario = "";
        for row in &self.rows {
            if row.scenario != scenario {
                scenario = row.scenario;
                println!("\n{scenario}: {} (median of {})", row.story, self.rounds);
                println!(
                    "  {:<18} {:>12} {:>8} {:>8} {:>11} {:>12} {:>12} {:>11} {:>11}",
                    "",
                    format!("µs/{}", row.unit),
                    "min",
                    row.base().1,
                    format!("{}s/s", row.unit),
                    "first µs",
                    "p99",
                    "engine's µs",
                    "client's µs"
                );
            }
            println!(
                "  {:<18} {:>12.3} {:>8.3} {:>8} {:>11.0} {:>12.1} {:>12.1} {:>11.3} {:>11.3}",
                row.contestant,
                row.median(|figures| figures.cpu_us),
                row.figures
                    .iter()
                    .map(|figures| figures.cpu_us)
                    .fold(f64::INFINITY, f64::min),
                self.ratio(row)
                    .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
                row.median(|figures| figures.per_second),
                row.median(|figures| figures.first_us),
                row.median(|figures| figures.first_p99_us),
                row.median(|figures| figures.engine_cpu_us),
                row.median(|figures| figures.load_cpu_us),
            );
            if row.figures.iter().any(|figures| figures.late_p99_us > 0.0) {
                let stored = row.median(|figures| figures.stored_per_second.unwrap_or(0.0));
                let late = row.median(|figures| figures.late_p99_us) / 1e3;
                println!(
                    "  {:<18} {late:>12.2} ms late (p99), {stored:.0} stored a second",
                    ""
                );
            }
            if row.figures.iter().any(|figures| figures.delay_us.is_some()) {
                self.print_delay(row);
            }
        }
    }

    fn print_memory(&self) {
        if !self.memory.is_empty() {
            println!("\nMemory");
            println!(
                "  {:<18} {:>10} {:>10} {:>10} {:>10} {:>14}",
                "", "rest MiB", "open MiB", "PSS MiB", "after MiB", "KiB a stream"
            );
        }
        for memory in &self.memory {
            println!(
                "  {:<18} {:>10.2} {:>10.2} {:>10.2} {:>10.2} {:>14.2}",
                memory.contestant,
                memory.rest_bytes as f64 / MIB,
                memory.open_bytes as f64 / MIB,
                memory.open_pss_bytes as f64 / MIB,
                memory.after_bytes as f64 / MIB,
                memory.stream_kib()
            );
        }
    }

    fn print_gateways(&self) {
        for Start {
            contestant,
            version,
            ready_ms,
            ..
        } in &self.start
        {
            if let Some(version) = version {
                println!(
                    "\n{contestant} {version}: first answer after {:.1} s",
                    ready_ms / 1e3
                );
            }
        }
        if !self.left_out.is_empty() {
            println!("\nLeft out");
        }
        for LeftOut {
            contestant,
            scenario,
            reason,
        } in &self.left_out
        {
            println!(
                "  {contestant:<18} {:<12} {reason}",
                scenario.unwrap_or("everything")
            );
        }
    }

    fn print_delay(&self, row: &Row) {
        let [median, p99] =
            DELAYS.map(|(_, of)| row.median(|figures| of(figures).unwrap_or_default()));
        let added: Vec<_> = DELAYS
            .iter()
            .filter_map(|(_, of)| self.added(row, *of))
            .collect();
        let added = match added[..] {
            [median, p99] => format!(", added {median:.1} and {p99:.1}"),
            _ => String::new(),
        };
        println!(
            "  {:<18} {median:>12.1} µs on the way (median), {p99:.1} (p99){added}",
            ""
        );
    }

    /// Returns the delay that a proxy adds to a chunk's way: the median, over rounds, of what its delay is more than
    /// that of the direct way in the same round.
    fn added(&self, row: &Row, of: Delay) -> Option<f64> {
        let direct = self
            .beside(row, "direct")
            .filter(|_| row.kind != Kind::Direct)?;
        let rounds = row.figures.iter().zip(&direct.figures);
        let added: Option<Vec<f64>> = rounds
            .map(|(ours, theirs)| Some(of(ours)? - of(theirs)?))
            .collect();
        added.map(|added| median(&added))
    }

    /// Returns the ratio of the row's processor time to that of its base, if it has a base.
    fn ratio(&self, row: &Row) -> Option<f64> {
        let base = self.beside(row, &row.base().0)?;
        (row.contestant != "direct" && row.contestant != base.contestant).then(|| row.over(base))
    }

    fn beside(&self, row: &Row, contestant: &str) -> Option<&Row> {
        self.rows
            .iter()
            .find(|other| other.scenario == row.scenario && other.contestant == contestant)
    }

    /// Returns the names of other builds of samewire.
    fn builds(&self) -> impl Iterator<Item = &str> {
        let proxies = self
            .start
            .iter()
            .filter(|start| start.kind == Kind::Samewire);
        proxies
            .map(|start| start.contestant.as_str())
            .filter(|name| *name != "samewire")
    }

    fn verdicts(&self) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for row in self.rows.iter().filter(|row| row.kind == Kind::Samewire) {
            let name = &row.contestant;
            if let (Some(most), Some(figure)) = (row.target, self.ratio(row)) {
                let what = format!("{name} {}: processor time {}'s", row.scenario, row.base().1);
                verdicts.push(Verdict {
                    what,
                    figure,
                    most,
                    unit: "×",
                });
            }
            if let ("short" | "responses1", Some(nginx), Some(_)) = (
                row.scenario,
                self.beside(row, &row.base().0),
                self.ratio(row),
            ) {
                let figure = row.median(|figures| figures.first_us)
                    - nginx.median(|figures| figures.first_us);
                let what = format!(
                    "{name} {}: first token more than {}",
                    row.scenario,
                    row.base().0
                );
                verdicts.push(Verdict {
                    what,
                    figure,
                    most: FIRST_US,
                    unit: "µs",
                });
            }
            for (at, of) in DELAYS {
                let nginx = self
                    .beside(row, "nginx")
                    .and_then(|nginx| self.added(nginx, of));
                if let (Some(figure), Some(nginx)) = (self.added(row, of), nginx) {
                    let what = format!("{name} {}: added to a chunk's way ({at})", row.scenario);
                    verdicts.push(Verdict {
                        what,
                        figure,
                        most: DELAY * nginx,
                        unit: "µs",
                    });
                }
            }
        }
        for row in self.rows.iter().filter(|row| row.contestant == "samewire") {
            for other in self.builds().filter_map(|build| self.beside(row, build)) {
                let what = format!(
                    "samewire {}: processor time of {}'s",
                    row.scenario, other.contestant
                );
                verdicts.push(Verdict {
                    what,
                    figure: row.over(other),
                    most: BUILD,
                    unit: "×",
                });
            }
        }
        for row in &self.rows {
            let Some(alone) = row.contestant.strip_suffix(" storing") else {
                continue;
            };
            let Some(alone) = self.beside(row, &format!("{alone} alone")) else {
                continue;
            };
            let late = |row: &Row| row.median(|figures| figures.late_p99_us) / 1e3;
            verdicts.push(Verdict {
                what: format!(
                    "{} {}: later (p99) than alone",
                    row.contestant, row.scenario
                ),
                figure: late(row) - late(alone),
                most: LATE_MS,
                unit: "ms",
            });
        }
        for memory in self
            .memory
            .iter()
            .filter(|memory| memory.kind == Kind::Samewire)
        {
            let name = &memory.contestant;
            let what = format!("{name}: memory for each of {} open streams", memory.streams);
            verdicts.push(Verdict {
                what,
                figure: memory.stream_kib(),
                most: STREAM_KIB,
                unit: "KiB",
            });
            let figure = memory.rest_bytes as f64 / MIB;
            verdicts.push(Verdict {
                what: format!("{name}: memory at rest"),
                figure,
                most: REST_MIB,
                unit: "MiB",
            });
        }
        for start in self
            .start
            .iter()
            .filter(|start| start.kind == Kind::Samewire)
        {
            let name = &start.contestant;
            let what = format!("{name}: start to first answer");
            verdicts.push(Verdict {
                what,
                figure: start.ready_ms,
                most: READY_MS,
                unit: "ms",
            });
            if let Some(bytes) = start.binary_bytes {
                let what = format!("{name}: the binary");
                verdicts.push(Verdict {
                    what,
                    figure: bytes as f64 / MIB,
                    most: BINARY_MIB,
                    unit: "MiB",
                });
            }
        }
        verdicts
    }
}
