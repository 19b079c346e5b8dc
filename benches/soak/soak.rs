//! The soak: starts everything, observes it, stops everything and judges the result.

use crate::client::{self, Load};
use crate::engine::{self, Engine};
use crate::options::Options;
use crate::report::Report;
use crate::samewire::{Samewire, sum};
use crate::tally::{Tally, Timers, lock};
use crate::trouble::Operator;
use crate::watch::{Watch, ratio};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const ENGINES: usize = 4;
const MIB: f64 = 1_048_576.0;
/// Shortest run in which a growth of memory in bytes per hour is meaningful.
const LONG: Duration = Duration::from_secs(1_800);

/// Timers short enough for the run to wait for them.
const TIMEOUTS: &str = "
[wire]
commit_after_seconds = 2
keepalive_seconds = 1
[timeouts]
first_token = 6
inter_token = 5
client_write_stall = 5
client_head = 5
client_body_idle = 5
settle = 1
drain = 5
";

fn timers(options: &Options) -> Timers {
    let second = Duration::from_secs(1);
    let slack = if options.lenient { 10 } else { 3 } * second;
    Timers {
        first: 6 * second,
        inter: 5 * second,
        stall: 6 * second,
        slack,
        rate: options.rate,
    }
}

/// Returns samewire's configuration for this run.
pub(crate) fn config(
    engines: &[(String, &str)],
    store: &str,
    most: usize,
    options: &Options,
) -> String {
    // Longer than engines keep connections, so that samewire sometimes uses one that the engine is closing.
    let kept = if options.idle > 0 {
        "pool_idle = 10\n"
    } else {
        ""
    };
    let threads = options.threads;
    let mut text = format!(
        "threads = {threads}\n{TIMEOUTS}{kept}[health]\ninterval = 1\n[limits]\nrequests = {most}\nconnections = {}\n{store}",
        most + 200
    );
    for (n, (address, kind)) in engines.iter().enumerate() {
        let _ = write!(
            text,
            "[[upstream]]\nname = \"e{n}\"\nurl = \"http://{address}\"\nengine = \"{kind}\"\n"
        );
    }
    text
}

/// Temporary folder of the run, deleted when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(json: &Path) -> io::Result<Self> {
        let path = json.with_extension(format!("run-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

pub(crate) fn run(options: &Options) -> io::Result<bool> {
    let folder = Folder::new(&options.json)?;
    let tally = Arc::new(Tally::new(options.lenient));
    let engines = engine::start(ENGINES, options.measure(), &tally.registry)?;
    let database = std::fs::canonicalize(&folder.0)?.join("store.db");
    let store = format!(
        "[store]\nplace = \"sqlite:{}\"\nttl = 60\nmax_bytes = 268435456\n",
        database.display()
    );
    let told: Vec<_> = engines
        .iter()
        .map(|e| (e.address.to_string(), e.dialect.name()))
        .collect();
    let leaving = options.churn as usize * 2;
    let most = (options.streams + options.stopped + options.idle) * 2 + leaving + 500;
    let text = config(&told, &store, most, options);
    let mut samewire = Samewire::start(
        &options.samewire,
        &text,
        &folder.0,
        &options.json.with_extension("log"),
    )?;
    let resting = samewire.descriptors()?;
    let (mut watch, begin) = (Watch::default(), Instant::now());
    let clients = clients(options, &samewire, &engines, &tally)?;
    let operator = operator(options, &samewire, engines, database, &tally)?;
    eprintln!(
        "soak: calm for {:.0} s, then faults up to {:.0} s",
        options.calm.as_secs_f64(),
        options.length.as_secs_f64()
    );
    watch.run(&mut samewire, &tally, begin, begin + options.calm)?;
    tally.rough.store(true, Ordering::Relaxed);
    tally.faults.store(options.faults, Ordering::Relaxed);
    watch.run(&mut samewire, &tally, begin, begin + options.length)?;
    let cpu = samewire.cpu()?;
    tally.stop();
    let (troubles, engines) = operator
        .join()
        .map_err(|_| io::Error::other("the operator panicked"))?;
    clients
        .join()
        .map_err(|_| io::Error::other("a client panicked"))?;
    let after = settle(&samewire, &tally)?;
    let metrics = samewire.get("/metrics")?.1;
    let exit = leave(&mut samewire)?;
    drop(engines);
    let mut report = Report::default();
    run_summary(&mut report, options, &tally, &troubles, cpu);
    streams(&mut report, &tally, &watch, &metrics);
    resources(&mut report, options, &watch, resting, &after);
    late(&mut report, options, &tally);
    process(&mut report, &samewire, &metrics, &after, exit);
    report.print();
    report.write(&options.json)?;
    if report.failed {
        eprintln!(
            "\nthe last lines of the log:\n{}",
            lock(&samewire.log).last.join("\n")
        );
    }
    Ok(!report.failed)
}

fn clients(
    options: &Options,
    samewire: &Samewire,
    engines: &[Engine],
    tally: &Arc<Tally>,
) -> io::Result<std::thread::JoinHandle<()>> {
    let load = Load {
        proxy: samewire.proxy,
        engines: engines.iter().map(|engine| engine.address).collect(),
        measure: options.measure(),
        timers: timers(options),
        streams: options.streams,
        whole: options.whole,
        background: options.background,
        churn: options.churn,
        stopped: options.stopped,
        idle: options.idle,
        ramp: (options.calm / 2).min(Duration::from_secs(10)),
        tally: Arc::clone(tally),
    };
    std::thread::Builder::new()
        .name("clients".to_owned())
        .spawn(move || client::run(load))
}

/// Thread that causes the faults of the machine. Returns their names, and the engines.
type Operating = std::thread::JoinHandle<(Vec<&'static str>, Vec<Engine>)>;

fn operator(
    options: &Options,
    samewire: &Samewire,
    engines: Vec<Engine>,
    store: PathBuf,
    tally: &Arc<Tally>,
) -> io::Result<Operating> {
    let every = if options.faults {
        options.trouble
    } else {
        options.length * 2
    };
    let (pid, tally, seed) = (samewire.pid(), Arc::clone(tally), options.seed);
    let operator = Operator {
        pid,
        engines,
        store,
        tally,
        every,
        seed,
    };
    std::thread::Builder::new()
        .name("operator".to_owned())
        .spawn(move || operator.run())
}

/// State of samewire after all clients have left: what should be zero and is not.
struct After {
    /// Time until no engine worked and all gauges were 0; `None` if that did not happen.
    idle: Option<Duration>,
    left: Vec<String>,
    descriptors: usize,
}

fn settle(samewire: &Samewire, tally: &Tally) -> io::Result<After> {
    let start = Instant::now();
    loop {
        let metrics = samewire.get("/metrics")?.1;
        let mut left: Vec<_> = metrics
            .lines()
            .filter(|line| is_work(line) && !line.ends_with(" 0"))
            .map(str::to_owned)
            .collect();
        let active = tally.registry.active.load(Ordering::Relaxed);
        if active > 0 {
            left.push(format!("generations {active}"));
        }
        if left.is_empty() || start.elapsed() > Duration::from_secs(60) {
            let idle = left.is_empty().then(|| start.elapsed());
            // Connections to engines are kept for three seconds.
            std::thread::sleep(Duration::from_secs(4));
            return Ok(After {
                idle,
                left,
                descriptors: samewire.descriptors()?,
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_work(line: &str) -> bool {
    [
        "samewire_requests_in_flight",
        "samewire_bodies_in_flight_bytes",
        "samewire_upstream_active_streams",
    ]
    .iter()
    .any(|name| line.starts_with(name))
}

/// Sends SIGTERM. Returns how long the shutdown took, if it succeeded.
fn leave(samewire: &mut Samewire) -> io::Result<Option<Duration>> {
    let start = Instant::now();
    samewire.signal("TERM");
    let status = samewire.exit(Duration::from_secs(30))?;
    Ok(status
        .filter(std::process::ExitStatus::success)
        .map(|_| start.elapsed()))
}

// === the report ===

fn run_summary(
    report: &mut Report,
    options: &Options,
    tally: &Tally,
    troubles: &[&str],
    cpu: Duration,
) {
    let seconds = options.length.as_secs_f64();
    report.info_row(
        "seconds of load",
        &format!(
            "{seconds:.0}, the first {:.0} without faults",
            options.calm.as_secs_f64()
        ),
    );
    report.info_row(
        "load",
        &format!(
            "{} streams of {} tokens/s, {} whole/s, {} background/s, {} a second that leave, {} stopped, {} idle",
            options.streams,
            options.rate,
            options.whole,
            options.background,
            options.churn,
            options.stopped,
            options.idle
        ),
    );
    report.info_row("seed", &options.seed.to_string());
    let tokens: u64 = [false, true]
        .iter()
        .map(|faults| tally.latencies(*faults, false).count())
        .sum();
    report.info_row(
        "tokens measured",
        &format!("{tokens}, {:.0}/s", tokens as f64 / seconds),
    );
    report.info_row(
        "processor of samewire",
        &format!("{:.0} % of one core", 100.0 * cpu.as_secs_f64() / seconds),
    );
    let complete = tally.complete.load(Ordering::Relaxed);
    report.info_row("answers complete", &complete.to_string());
    let errors: u64 = lock(&tally.errors).values().sum();
    if options.faults {
        report.info_row(
            "answers that ended with the error that was due",
            &errors.to_string(),
        );
    } else {
        // The only faults are those of clients.
        report.row("1, 2 errors", &errors.to_string(), "0", errors == 0);
    }
    for (code, count) in lock(&tally.errors).iter() {
        report.info_row(&format!("  {code}"), &count.to_string());
    }
    report.info_row(
        "clients that left, or sent nonsense",
        &tally.left.load(Ordering::Relaxed).to_string(),
    );
    for name in ["reload", "restart", "stop", "store"] {
        let count = troubles.iter().filter(|done| **done == name).count();
        report.info_row(&format!("trouble: {name}"), &count.to_string());
    }
}

fn streams(report: &mut Report, tally: &Tally, watch: &Watch, metrics: &str) {
    let wrongs = lock(&tally.wrongs).len();
    report.row(
        "1, 2 lost, doubled, foreign tokens; wrong ends; hangs",
        &wrongs.to_string(),
        "0",
        wrongs == 0,
    );
    let (p99, worst, count) = tally.registry.lag();
    report.info_row(
        "3 engine let go after its client, p99, worst",
        &format!(
            "{:.1} ms, {:.1} ms of {count}",
            p99.as_secs_f64() * 1e3,
            worst.as_secs_f64() * 1e3
        ),
    );
    report.row(
        "3 generations 200 ms after their client",
        &watch.orphans.to_string(),
        "0",
        watch.orphans == 0,
    );
    report.info_row("3 most generations at once", &watch.most_active.to_string());
    let over = ratio(tally);
    report.row(
        "5 attempts for each request",
        &format!("{over:.3}"),
        "1.2",
        over <= 1.2,
    );
    let worst = watch.worst_window;
    report.row(
        "5 the same in the worst 10 s",
        &format!("{worst:.3}"),
        "1.3",
        worst <= 1.3,
    );
    let not = tally.not_retried.load(Ordering::Relaxed);
    report.info_row(
        "5 not retried, budget exhausted",
        &format!(
            "{not}, {}",
            sum(metrics, "samewire_retry_budget_exhausted_total")
        ),
    );
}

fn resources(report: &mut Report, options: &Options, watch: &Watch, resting: usize, after: &After) {
    let peak = watch.peak() / MIB;
    report.row(
        "4 peak of memory",
        &format!("{peak:.0} MiB"),
        "256 MiB",
        peak <= 256.0,
    );
    let (slope, upper) = watch.slope(options.warm_up());
    let value = format!("{:.1}, at most {:.1} MiB/h", slope / MIB, upper / MIB);
    if options.length >= LONG {
        report.row("4 growth of memory", &value, "1 MiB/h", upper / MIB <= 1.0);
    } else {
        report.info_row("4 growth of memory (a longer run judges it)", &value);
    }
    let growth = Watch::growth(&watch.descriptors);
    // The number of open streams varies at random.
    let room = 20 + i64::try_from(options.streams / 10).unwrap_or(0);
    report.row(
        "4 growth of descriptors, last third",
        &growth.to_string(),
        &room.to_string(),
        growth <= room,
    );
    let left = after.descriptors.saturating_sub(resting);
    report.row(
        "4 descriptors left over",
        &left.to_string(),
        "16",
        left <= 16,
    );
    let threads = Watch::growth(&watch.threads);
    // Threads that read large bodies and a new configuration end after ten seconds without work.
    report.row(
        "4 growth of threads",
        &threads.to_string(),
        "4",
        threads <= 4,
    );
}

fn late(report: &mut Report, options: &Options, tally: &Tally) {
    for (faults, limit, name) in [(false, 5.0, "without faults"), (true, 20.0, "with faults")] {
        let (through, direct) = (
            tally.latencies(faults, false),
            tally.latencies(faults, true),
        );
        if through.count() == 0 {
            continue;
        }
        let of = |latency: &crate::latency::Latency| {
            format!("{:.2} ms, {:.2} ms", latency.at(0.5), latency.at(0.99))
        };
        report.info_row(&format!("6 token under way {name}, p50, p99"), &of(through));
        report.info_row(&format!("6 the same past samewire {name}"), &of(direct));
        let added = through.at(0.99) - direct.at(0.99);
        let (row, value, limit_text) = (
            format!("6 added in the p99 {name}"),
            format!("{added:.2} ms"),
            format!("{limit} ms"),
        );
        if options.stopped > 0 && faults {
            let times = |direct: bool| {
                let [calm, beside] =
                    [false, true].map(|rough| tally.latencies(rough, direct).at(0.99));
                beside / calm.max(f64::EPSILON)
            };
            // The engines write for the stopped readers too, on this same machine.
            report.info_row(
                "6 p99 past samewire beside stopped readers, times that without",
                &format!("{:.2}", times(true)),
            );
            let (name, value) = (
                "6 p99 beside stopped readers, times that without",
                format!("{:.2}", times(false)),
            );
            match options.lenient {
                true => report.info_row(name, &value),
                false => report.row(name, &value, "1.5", times(false) <= 1.5),
            }
        } else if options.lenient {
            report.info_row(&row, &value);
        } else {
            report.row(&row, &value, &limit_text, added <= limit);
        }
    }
}

fn process(
    report: &mut Report,
    samewire: &Samewire,
    metrics: &str,
    after: &After,
    exit: Option<Duration>,
) {
    let log = lock(&samewire.log);
    let panics = sum(metrics, "samewire_panics_total");
    report.row("7 panics", &panics.to_string(), "0", panics == 0.0);
    report.row(
        "7 lines of level ERROR, or with a secret",
        &log.bad.len().to_string(),
        "0",
        log.bad.is_empty(),
    );
    for line in &log.bad {
        eprintln!("soak: {line}");
    }
    let secret = metrics.contains("CANARY");
    report.row(
        "7 secrets in the metrics",
        if secret { "some" } else { "none" },
        "none",
        !secret,
    );
    report.info_row("7 log lines", &log.lines.to_string());
    let idle = after.idle.map_or_else(
        || after.left.join(", "),
        |time| format!("{:.2} s", time.as_secs_f64()),
    );
    let quick = after
        .idle
        .is_some_and(|time| time <= Duration::from_secs(2));
    report.row("8 gauges 0 after the load", &idle, "2 s", quick);
    let value = exit.map_or_else(
        || "not".to_owned(),
        |time| format!("{:.2} s", time.as_secs_f64()),
    );
    report.row(
        "8 exit after SIGTERM",
        &value,
        "9 s",
        exit.is_some_and(|time| time < Duration::from_secs(9)),
    );
}
