//! The contest: every proxy gets the same load, in turn.
//!
//! Takes: the proxies, the scenarios and the number of rounds.
//! Gives: a table, `proxy.json`, and whether every stream arrived whole.
//! Remembers: the processes it started, each of which ends with it.
//! Never: runs two scenarios at the same time, or one proxy's rounds in a row: what disturbs the machine disturbs
//! all.

mod report;

use crate::load::Seen;
use crate::process;
use crate::scenario::{ClientApi, Pace, SCENARIOS, STORING, Scenario, Unit, named};
use report::{Figures, Memory, Report, Row};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

struct Options {
    rounds: usize,
    /// Factor applied to the length of every scenario.
    scale: f64,
    only: Vec<String>,
    /// Names and programs of the proxies that are run like `samewire serve`.
    proxies: Vec<(String, PathBuf)>,
    json: PathBuf,
    strict: bool,
    pin: Pin,
    workers: usize,
}

/// CPU affinity: the proxies on one set of processors, engine and load client on another; or no pinning.
#[derive(Clone, Copy)]
struct Pin(Option<usize>);

impl Pin {
    fn proxies(self, program: &Path) -> Command {
        self.0.map_or_else(|| Command::new(program), |last| Self::on(&last.to_string(), program))
    }

    fn others(self, program: &Path) -> Command {
        self.0.map_or_else(|| Command::new(program), |last| Self::on(&format!("0-{}", last - 1), program))
    }

    /// Returns a command in which `taskset` replaces itself with the program, so that the process started is the
    /// one measured.
    fn on(processors: &str, program: &Path) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", processors]).arg(program);
        command
    }
}

impl Options {
    fn read(arguments: &[String]) -> io::Result<Self> {
        let mut options = Self {
            rounds: 5,
            scale: 1.0,
            only: Vec::new(),
            proxies: Vec::new(),
            json: PathBuf::from("target/bench/proxy.json"),
            strict: false,
            pin: Pin(None),
            workers: 1,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| io::Error::other(format!("{word} wants a value")));
            match word.as_str() {
                "--quick" => (options.rounds, options.scale) = (1, 0.15),
                "--rounds" => options.rounds = value()?.parse().map_err(io::Error::other)?,
                "--only" => options.only.extend(value()?.split(',').map(str::to_owned)),
                "--json" => options.json = PathBuf::from(value()?),
                "--pin" => {
                    let last = std::thread::available_parallelism()?.get() - 1;
                    options.pin = Pin(Some(last).filter(|last| *last > 0));
                }
                "--workers" => options.workers = value()?.parse().map_err(io::Error::other)?,
                "--strict" => options.strict = true,
                "--samewire" => options.proxies.push(("samewire".to_owned(), PathBuf::from(value()?))),
                "--also" => {
                    let (name, program) =
                        value()?.split_once('=').ok_or_else(|| io::Error::other("--also NAME=PROGRAM"))?;
                    options.proxies.push((name.to_owned(), PathBuf::from(program)));
                }
                other => return Err(io::Error::other(format!("no such option: {other}"))),
            }
        }
        if let Some(unknown) = options.only.iter().find(|name| named(name).is_none()) {
            return Err(io::Error::other(format!("no such scenario: {unknown}")));
        }
        Ok(options)
    }

    fn wants(&self, scenario: &Scenario) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == scenario.name)
    }
}

pub(crate) fn run(arguments: &[String]) -> io::Result<bool> {
    let options = Options::read(arguments)?;
    // `benches/proxy.sh` removes it after an interruption.
    let folder = PathBuf::from(format!("target/bench/proxy.run-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let engine = Engine::start(&options)?;
    let outcome = contest(&options, &folder, &engine);
    if outcome.is_ok() {
        fs::remove_dir_all(&folder)?;
    }
    let report = outcome?;
    report.print();
    fs::write(&options.json, serde_json::to_vec_pretty(&report)?)?;
    println!("\nThe figures: {}", options.json.display());
    Ok(report.whole() && (!options.strict || report.targets_met()))
}

fn contest(options: &Options, folder: &Path, engine: &Engine) -> io::Result<Report> {
    let mut recipes = vec![Recipe::Nginx];
    recipes
        .extend(options.proxies.iter().map(|(name, program)| Recipe::Proxy(name.clone(), program.clone())));
    let mut report = Report::new(options.rounds);

    for recipe in &recipes {
        report.start.push(ready_time(recipe, folder, engine)?);
    }
    let mut contestants = vec![Contestant::direct(engine)];
    for recipe in &recipes {
        contestants.push(Contestant::start(recipe, folder, engine)?);
    }
    let relayed = |scenario: &&Scenario| options.wants(scenario) && !scenario.hold;
    for scenario in SCENARIOS.iter().filter(relayed).filter(|scenario| scenario.way != ClientApi::Stored) {
        eprint!("{:<12}", scenario.name);
        let runs: Vec<(&Contestant, ClientApi)> = match scenario.way {
            ClientApi::Responses => contestants
                .iter()
                .filter(|contestant| contestant.speaks)
                .flat_map(|contestant| [(contestant, ClientApi::Chat), (contestant, ClientApi::Responses)])
                .collect(),
            way => contestants.iter().map(|contestant| (contestant, way)).collect(),
        };
        let name = |(contestant, way): &(&Contestant, ClientApi)| match scenario.way {
            ClientApi::Responses => format!("{} {}", contestant.name, way.name()),
            _ => contestant.name.clone(),
        };
        let mut rows: Vec<Row> = runs.iter().map(|run| Row::new(scenario, &name(run))).collect();
        for round in 0..options.rounds {
            for turn in 0..runs.len() {
                let place = (round + turn) % runs.len();
                let (contestant, way) = runs[place];
                rows[place].figures.push(measure(contestant, scenario, way, options.scale, engine)?);
                eprint!(".");
            }
        }
        eprintln!();
        report.rows.extend(rows);
    }
    drop(contestants);
    for scenario in SCENARIOS.iter().filter(relayed).filter(|scenario| scenario.way == ClientApi::Stored) {
        for recipe in recipes.iter().filter(|recipe| recipe.speaks()) {
            report.rows.extend(beside_storing(recipe, scenario, options, folder, engine)?);
        }
    }
    for scenario in SCENARIOS.iter().filter(|scenario| options.wants(scenario) && scenario.hold) {
        for recipe in &recipes {
            eprintln!("{:<10}{}", scenario.name, recipe.name());
            report.memory.push(hold(recipe, scenario, folder, engine)?);
        }
    }
    Ok(report)
}

// === the proxies ===

enum Recipe {
    Nginx,
    Proxy(String, PathBuf),
}

impl Recipe {
    /// Returns true if the contestant implements Responses.
    fn speaks(&self) -> bool {
        matches!(self, Self::Proxy(..))
    }

    fn name(&self) -> &str {
        match self {
            Self::Nginx => "nginx",
            Self::Proxy(name, _) => name,
        }
    }

    fn command(&self, listen: SocketAddr, folder: &Path, engine: &Engine) -> io::Result<Command> {
        match self {
            Self::Nginx => {
                let file = folder.join(format!("nginx-{}.conf", listen.port()));
                fs::write(
                    &file,
                    nginx_conf(listen, &fs::canonicalize(folder)?, engine.address, engine.workers),
                )?;
                let mut command = engine.pin.proxies(Path::new("nginx"));
                command.arg("-e").arg("stderr").arg("-c").arg(fs::canonicalize(file)?);
                Ok(command)
            }
            Self::Proxy(_, program) => {
                let file = folder.join("samewire.toml");
                fs::write(&file, SAMEWIRE_TOML)?;
                let mut command = engine.pin.proxies(program);
                command
                    .args(["serve", "--engine", "vllm", "--insecure-no-auth", "--config"])
                    .arg(file)
                    .args(["--threads", &engine.workers.to_string()])
                    .args(["--upstream", &format!("http://{}", engine.address)])
                    .args(["--listen", &listen.to_string(), "--admin-listen", "127.0.0.1:0"]);
                Ok(command)
            }
        }
    }
}

/// Default configuration, with room for every stream.
const SAMEWIRE_TOML: &str = "[limits]\nrequests = 4096\n";

/// Returns the configuration of a plain relay for streams, as an operator would write it: no buffering, kept
/// connections, no log.
fn nginx_conf(listen: SocketAddr, folder: &Path, engine: SocketAddr, workers: usize) -> String {
    let folder = folder.display();
    let port = listen.port();
    format!(
        "daemon off; worker_processes {workers}; user root; pid {folder}/nginx-{port}.pid; error_log stderr crit;
events {{ worker_connections 8192; }}
http {{
    access_log off; tcp_nodelay on; keepalive_timeout 600s; keepalive_requests 10000000;
    client_body_temp_path {folder}/body-{port}; proxy_temp_path {folder}/proxy-{port};
    fastcgi_temp_path {folder}/fastcgi-{port}; uwsgi_temp_path {folder}/uwsgi-{port}; scgi_temp_path {folder}/scgi-{port};
    upstream engine {{ server {engine}; keepalive 512; keepalive_requests 10000000; }}
    server {{
        listen {listen} backlog=4096;
        location / {{
            proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection \"\";
            proxy_buffering off; proxy_read_timeout 600s;
        }}
    }}
}}
"
    )
}

struct Contestant {
    name: String,
    address: SocketAddr,
    /// Process of the contestant; `None` for the direct way.
    child: Option<Child>,
    /// Time from the start of the process to its first answer.
    ready: Duration,
    /// True if the contestant implements Responses.
    speaks: bool,
}

impl Contestant {
    fn direct(engine: &Engine) -> Self {
        Self {
            name: "direct".to_owned(),
            address: engine.address,
            child: None,
            ready: Duration::ZERO,
            speaks: false,
        }
    }

    fn start(recipe: &Recipe, folder: &Path, engine: &Engine) -> io::Result<Self> {
        Self::start_with(recipe, &[], folder, engine)
    }

    fn start_with(recipe: &Recipe, more: &[&str], folder: &Path, engine: &Engine) -> io::Result<Self> {
        let address = free_address()?;
        let log = folder.join(format!("{}-{}.log", recipe.name(), address.port()));
        let mut command = recipe.command(address, folder, engine)?;
        command.args(more).stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let begin = Instant::now();
        let child =
            command.spawn().map_err(|error| io::Error::other(format!("{}: {error}", recipe.name())))?;
        let mut contestant = Self {
            name: recipe.name().to_owned(),
            address,
            child: Some(child),
            ready: Duration::ZERO,
            speaks: recipe.speaks(),
        };
        while !answers(address) {
            let gone = contestant.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)));
            if gone || begin.elapsed() > Duration::from_secs(5) {
                let words = fs::read_to_string(&log).unwrap_or_default();
                return Err(io::Error::other(format!("{} does not answer: {words}", recipe.name())));
            }
            sleep(Duration::from_micros(200));
        }
        contestant.ready = begin.elapsed();
        Ok(contestant)
    }

    fn cpu(&self) -> Duration {
        self.child.as_ref().map_or(Duration::ZERO, |child| process::cpu(child.id()))
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            end(child);
        }
    }
}

/// Ends a child by SIGTERM before SIGKILL: nginx only then ends its worker, too.
fn end(child: &mut Child) {
    Command::new("kill").arg(child.id().to_string()).status().ok();
    for _ in 0..200 {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    child.kill().ok();
    child.wait().ok();
}

fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Returns true if a small request is answered.
fn answers(address: SocketAddr) -> bool {
    let body =
        format!(r#"{{"model":"{}","messages":[{{"role":"user","content":"?"}}]}}"#, Pace::Whole.model());
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok();
    let mut start = [0; 12];
    stream.write_all(request.as_bytes()).and_then(|()| stream.read_exact(&mut start)).is_ok()
        && start == *b"HTTP/1.1 200"
}

/// The scripted engine, run as a separate process so that its processor time can be measured.
struct Engine {
    address: SocketAddr,
    child: Child,
    pin: Pin,
    /// Worker threads of each proxy.
    workers: usize,
}

impl Engine {
    fn start(options: &Options) -> io::Result<Self> {
        let mut child = options
            .pin
            .others(&std::env::current_exe()?)
            .arg("engine")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or_else(|| io::Error::other("no output"))?)
            .read_line(&mut line)?;
        let address = line.trim().rsplit(' ').next().unwrap_or_default().parse().map_err(io::Error::other)?;
        Ok(Self { address, child, pin: options.pin, workers: options.workers })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

// === measuring ===

fn load(
    contestant: &Contestant,
    scenario: &Scenario,
    way: ClientApi,
    scale: f64,
    engine: &Engine,
) -> io::Result<Command> {
    let mut command = engine.pin.others(&std::env::current_exe()?);
    command.args(["load", scenario.name, &contestant.address.to_string(), &scale.to_string(), way.name()]);
    Ok(command)
}

fn measure(
    contestant: &Contestant,
    scenario: &Scenario,
    way: ClientApi,
    scale: f64,
    engine: &Engine,
) -> io::Result<Figures> {
    let before = (contestant.cpu(), process::cpu(engine.child.id()));
    let output = load(contestant, scenario, way, scale, engine)?.stderr(Stdio::inherit()).output()?;
    // Waits until the last connections are closed.
    sleep(Duration::from_millis(30));
    let after = (contestant.cpu(), process::cpu(engine.child.id()));
    let seen: Seen = serde_json::from_slice(&output.stdout)?;
    if let Some(complaint) = &seen.complaint {
        eprintln!("\n{} in {}: {} failures, {complaint}", contestant.name, scenario.name, seen.failures);
    }
    let units = match scenario.unit {
        // Counts the engine's chunks, so that merging chunks is no advantage.
        Unit::Chunk => {
            seen.requests as f64 * (scenario.chunks as f64 * scale).floor() + seen.requests as f64 * 4.0
        }
        Unit::Request => seen.requests as f64,
    }
    .max(1.0);
    Ok(Figures {
        cpu_us: (after.0 - before.0).as_secs_f64() * 1e6 / units,
        engine_cpu_us: (after.1 - before.1).as_secs_f64() * 1e6 / units,
        load_cpu_us: seen.cpu_seconds * 1e6 / units,
        per_second: units / seen.seconds,
        first_us: seen.first_us,
        first_p99_us: seen.first_p99_us,
        late_p99_us: seen.late_p99_us,
        stored_per_second: None,
        failures: seen.failures,
        events: seen.events,
    })
}

/// Measures chat streams alone, and beside clients whose responses are stored in a file.
fn beside_storing(
    recipe: &Recipe,
    scenario: &Scenario,
    options: &Options,
    folder: &Path,
    engine: &Engine,
) -> io::Result<[Row; 2]> {
    let place = format!("sqlite:{}", folder.join(format!("{}.db", recipe.name())).display());
    let contestant = Contestant::start_with(recipe, &["--store", &place], folder, engine)?;
    eprint!("{:<12}", scenario.name);
    let mut rows = ["alone", "storing"].map(|how| Row::new(scenario, &format!("{} {how}", recipe.name())));
    for _ in 0..options.rounds {
        rows[0].figures.push(measure(&contestant, scenario, ClientApi::Chat, options.scale, engine)?);
        let mut storing = load(&contestant, &STORING, ClientApi::Stored, options.scale, engine)?;
        let storing = storing.stdout(Stdio::piped()).spawn()?;
        sleep(Duration::from_millis(100));
        let mut figures = measure(&contestant, scenario, ClientApi::Chat, options.scale, engine)?;
        let seen: Seen = serde_json::from_slice(&storing.wait_with_output()?.stdout)?;
        if let Some(complaint) = &seen.complaint {
            eprintln!("\n{}: {} are not stored, {complaint}", recipe.name(), seen.failures);
        }
        figures.failures += seen.failures;
        figures.stored_per_second = Some(seen.requests as f64 / seen.seconds);
        rows[1].figures.push(figures);
        eprint!("..");
    }
    eprintln!();
    Ok(rows)
}

/// Measures the memory of a fresh process: at rest, with every stream open, and after all have closed.
fn hold(recipe: &Recipe, scenario: &Scenario, folder: &Path, engine: &Engine) -> io::Result<Memory> {
    let contestant = Contestant::start(recipe, folder, engine)?;
    let pid = contestant.child.as_ref().map_or(0, Child::id);
    sleep(Duration::from_millis(200));
    let rest = process::memory(pid)?;
    let mut child = load(&contestant, scenario, ClientApi::Chat, 1.0, engine)?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or_else(|| io::Error::other("no output"))?);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    // By then every stream has received a chunk or two more.
    sleep(Duration::from_secs(2));
    let open = process::memory(pid)?;
    drop(child.stdin.take());
    line.clear();
    lines.read_line(&mut line)?;
    child.wait()?;
    let seen: Seen = serde_json::from_str(&line)?;
    if let Some(complaint) = &seen.complaint {
        eprintln!("{}: {} of {} streams failed: {complaint}", recipe.name(), seen.failures, scenario.streams);
    }
    sleep(Duration::from_millis(500));
    let after = process::memory(pid)?;
    Ok(Memory {
        contestant: recipe.name().to_owned(),
        streams: scenario.streams,
        failures: seen.failures,
        rest_bytes: rest.0,
        rest_pss_bytes: rest.1,
        open_bytes: open.0,
        open_pss_bytes: open.1,
        after_bytes: after.0,
    })
}

fn ready_time(recipe: &Recipe, folder: &Path, engine: &Engine) -> io::Result<report::Start> {
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(Contestant::start(recipe, folder, engine)?.ready.as_secs_f64() * 1e3);
    }
    let binary_bytes = match recipe {
        Recipe::Nginx => None,
        Recipe::Proxy(_, program) => Some(fs::metadata(program)?.len()),
    };
    Ok(report::Start { contestant: recipe.name().to_owned(), ready_ms: report::median(&times), binary_bytes })
}
