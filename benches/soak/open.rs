//! Many open streams with few tokens each: all are served, and the cost of one is measured.
//!
//! The engines run in a separate process, because each stream needs a descriptor there, too. If one samewire may
//! not open two descriptors for each stream, several processes share them.

use crate::check::{Check, End};
use crate::engine;
use crate::options::Options;
use crate::plan::{Kind, Plan, Purpose, number};
use crate::registry::Registry;
use crate::report::Report;
use crate::samewire::{Samewire, sum};
use crate::soak::{Folder, config};
use crate::tally::lock;
use crate::wire::{ClientConnection, request};
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::{LocalSet, spawn_local};

const KIB: f64 = 1_024.0;
/// Descriptors that a process opens besides streams.
const OWN: u64 = 300;

/// Runs engines in this process until its standard input ends (`engines COUNT OPTION…`).
pub(crate) fn engines(arguments: &[String]) -> io::Result<bool> {
    let options = Options::read(&arguments[1..])?;
    let count = arguments[0].parse().map_err(io::Error::other)?;
    for engine in engine::start(count, options.measure(), &Arc::new(Registry::default()))? {
        println!("{} {}", engine.address, engine.dialect.name());
        // Dropping the engine's handle would end the engine.
        std::mem::forget(engine);
    }
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(true)
}

struct Engines {
    child: Child,
    told: Vec<(String, &'static str)>,
}

impl Drop for Engines {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Engines {
    fn start(count: usize, options: &Options) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([
                "engines",
                &count.to_string(),
                "--seed",
                &options.seed.to_string(),
            ])
            .args([
                "--rate",
                &options.rate.to_string(),
                "--tokens",
                &format!("{0}-{0}", options.tokens.1),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child
            .stdout
            .take()
            .ok_or_else(|| io::Error::other("no output"))?;
        let mut told = Vec::new();
        for line in BufReader::new(out).lines().take(count) {
            let line = line?;
            let (address, kind) = line.split_once(' ').unwrap_or((&line, ""));
            told.push((
                address.to_owned(),
                if kind == "sglang" { "sglang" } else { "vllm" },
            ));
        }
        Ok(Self { child, told })
    }
}

/// Returns the number of descriptors a process may open.
fn open_files() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .maximum
        .unwrap_or(1 << 20)
}

#[derive(Default)]
struct Held {
    open: Cell<usize>,
    tokens: Cell<u64>,
    told: Cell<bool>,
    failures: Cell<usize>,
    first: std::cell::RefCell<Option<String>>,
}

pub(crate) fn run(options: &Options) -> io::Result<bool> {
    // Slow answers that outlast the observation.
    let mut options = options.clone();
    options.tokens = (1_000_000, 1_000_000);
    let folder = Folder::new(&options.json)?;
    let engines = Engines::start(4, &options)?;
    let each = usize::try_from((open_files() - OWN) / 2)
        .unwrap_or(usize::MAX)
        .min(options.open);
    let processes = options.open.div_ceil(each);
    let share = options.open.div_ceil(processes);
    let store = "[store]\nplace = \"off\"\n";
    let text = config(&engines.told, store, share + 50, &options);
    let mut proxies = Vec::new();
    for n in 0..processes {
        let log = options.json.with_extension(format!("{n}.log"));
        proxies.push(Samewire::start(&options.samewire, &text, &folder.0, &log)?);
    }
    let addresses: Vec<_> = proxies.iter().map(|samewire| samewire.proxy).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let report = LocalSet::new().block_on(&runtime, hold(&options, &proxies, &addresses))?;
    report.print();
    report.write(&options.json)?;
    Ok(!report.failed)
}

async fn hold(
    options: &Options,
    proxies: &[Samewire],
    addresses: &[SocketAddr],
) -> io::Result<Report> {
    let held = Rc::new(Held::default());
    let options = Rc::new(options.clone());
    // A few streams first, so that memory needed once by every process is not counted per stream.
    let mut tasks = Vec::new();
    let few = 20 * addresses.len();
    open(&options, addresses, &held, 0..few, &mut tasks).await?;
    let rss = || proxies.iter().map(Samewire::rss).sum::<io::Result<u64>>();
    let (before, cpu) = (rss()?, Instant::now());
    open(&options, addresses, &held, few..options.open, &mut tasks).await?;
    let opened = cpu.elapsed();
    let (since, tokens) = (Instant::now(), held.tokens.get());
    let spent: Duration = proxies.iter().map(Samewire::cpu).sum::<io::Result<_>>()?;
    while since.elapsed() < options.length {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (after, tokens) = (rss()?, held.tokens.get() - tokens);
    let spent = proxies
        .iter()
        .map(Samewire::cpu)
        .sum::<io::Result<Duration>>()?
        - spent;
    let still = held.open.get();
    held.told.set(true);
    for task in tasks {
        task.await.map_err(io::Error::other)?;
    }
    let mut report = Report::default();
    let (count, wanted) = (options.open, options.open.to_string());
    report.info_row("processes of samewire", &proxies.len().to_string());
    report.info_row("open files each may have", &open_files().to_string());
    report.info_row("opened in", &format!("{:.1} s", opened.as_secs_f64()));
    report.row("open streams", &still.to_string(), &wanted, still == count);
    let failures = held.failures.get();
    report.row("failures", &failures.to_string(), "0", failures == 0);
    if let Some(first) = held.first.borrow().as_ref() {
        eprintln!("soak: {first}");
    }
    let seconds = since.elapsed().as_secs_f64();
    let due = options.rate * seconds * count as f64;
    report.row(
        "tokens that came",
        &format!("{tokens} of {due:.0}"),
        "90 %",
        tokens as f64 >= due * 0.9,
    );
    let memory = (after.saturating_sub(before)) as f64 / (count - few) as f64 / KIB;
    report.row(
        "memory for each stream",
        &format!("{memory:.1} KiB"),
        "48 KiB",
        memory <= 48.0,
    );
    report.info_row(
        "memory in all",
        &format!("{:.0} MiB", after as f64 / KIB / KIB),
    );
    report.info_row(
        "processor",
        &format!(
            "{:.0} % of one core",
            100.0 * spent.as_secs_f64() / options.length.as_secs_f64()
        ),
    );
    let start = Instant::now();
    loop {
        let mut left = 0.0;
        for samewire in proxies {
            left += sum(&samewire.get("/metrics")?.1, "samewire_requests_in_flight");
        }
        if left == 0.0 || start.elapsed() > Duration::from_secs(30) {
            let value = if left == 0.0 {
                format!("{:.2} s", start.elapsed().as_secs_f64())
            } else {
                format!("{left}")
            };
            report.row(
                "gauges 0 after they left",
                &value,
                "2 s",
                left == 0.0 && start.elapsed() <= Duration::from_secs(2),
            );
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let bad: usize = proxies
        .iter()
        .map(|samewire| lock(&samewire.log).bad.len())
        .sum();
    report.row(
        "lines of level ERROR, or with a secret",
        &bad.to_string(),
        "0",
        bad == 0,
    );
    Ok(report)
}

async fn open(
    options: &Rc<Options>,
    addresses: &[SocketAddr],
    held: &Rc<Held>,
    which: std::ops::Range<usize>,
    tasks: &mut Vec<tokio::task::JoinHandle<()>>,
) -> io::Result<()> {
    let wanted = which.end;
    for n in which {
        let to = addresses[n % addresses.len()];
        let (held, options) = (Rc::clone(held), Rc::clone(options));
        tasks.push(spawn_local(async move {
            if let Err(why) = stream(&options, to, n, &held).await {
                held.failures.set(held.failures.get() + 1);
                held.first.borrow_mut().get_or_insert(why);
            }
        }));
        if n % 50 == 0 {
            // Limits the rate at which streams are opened.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let start = Instant::now();
    while held.open.get() + held.failures.get() < wanted {
        if start.elapsed() > Duration::from_secs(120) {
            return Err(io::Error::other(format!(
                "{} of {wanted} streams have begun",
                held.open.get()
            )));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn stream(options: &Options, to: SocketAddr, n: usize, held: &Held) -> Result<(), String> {
    let plan = Plan::of(
        &options.measure(),
        number(n as u64, Kind::Chat, false, Purpose::Answer),
    );
    let mut line = ClientConnection::connect(to, false)
        .await
        .map_err(|error| format!("no connection: {error}"))?;
    line.send(&request("POST", plan.path(), &plan.body()))
        .await
        .map_err(|error| error.to_string())?;
    let mut check = Check::new(&plan, None);
    let patience = Duration::from_secs_f64(10.0 + 3.0 / options.rate);
    loop {
        match line
            .more(Instant::now() + patience, || held.told.get())
            .await
        {
            Ok(true) if line.status == 200 => {}
            Err(crate::wire::Stop::RunOver) => return Ok(()),
            other => {
                return Err(format!(
                    "stream {n}: {other:?}, status {}, {:?}",
                    line.status,
                    End::Complete
                ));
            }
        }
        let (had, mut at) = (check.tokens, 0);
        while let Some(length) = memchr::memmem::find(&line.body[at..], b"\n\n") {
            let event = std::str::from_utf8(&line.body[at..at + length])
                .map_err(|error| error.to_string())?;
            check.event(event)?;
            at += length + 2;
        }
        line.body.drain(..at);
        if had == 0 && check.tokens > 0 {
            held.open.set(held.open.get() + 1);
        }
        held.tokens.set(held.tokens.get() + check.tokens - had);
    }
}
