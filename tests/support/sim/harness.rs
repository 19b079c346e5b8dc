//! Runs the samewire binary as a process, and checks after every test what must always be true of it.

use super::client::{Answer, Client, Request};
use super::engine::{Engine, IntoEngine};
use super::names::NameFiles;
use super::script::Script;
use super::{Folder, KEY, PATIENCE, PROMPT, until};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Text that identifies the one structured log line written for each request.
pub const LINES_OF_ONE_REQUEST: &str = r#""end":""#;

/// Log message after a configuration reload that succeeded.
pub const IN_FORCE: &str = "the configuration was read again and is in force";

/// Arguments, configuration and environment with which a test starts samewire.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    args: Vec<String>,
    config: String,
    allows_errors: bool,
    log_paused: bool,
    upstreams: Vec<String>,
    upstream_keys: String,
    open_files: Option<u32>,
    environment: Vec<(String, String)>,
    upstream_url: Option<String>,
    names: Option<PathBuf>,
}

impl Setup {
    /// Creates the default: free ports, the engine's address as the only upstream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a setup with this engine as the only upstream, configured as vLLM.
    pub fn before(engine: &Engine) -> Self {
        Self::new().in_front_of(engine)
    }

    /// Creates a setup with a store in this folder.
    pub fn stored(folder: &Folder) -> Self {
        Self::new().args(&["--store", &folder.store()])
    }

    /// Adds this engine as an upstream, configured as vLLM.
    pub fn in_front_of(self, engine: &Engine) -> Self {
        self.upstream(&engine.url()).args(&["--engine", "vllm"])
    }

    /// Appends command-line arguments.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// Sets a wire option (`--set`).
    pub fn set(self, option: &str) -> Self {
        self.args(&["--set", option])
    }

    /// Appends lines to the configuration file.
    pub fn config(mut self, lines: &str) -> Self {
        self.config.push_str(lines);
        self.config.push('\n');
        self
    }

    /// Lists the engine in the configuration file instead of on the command line, with these further keys.
    pub fn upstream_keys(mut self, lines: &str) -> Self {
        self.upstream_keys.push_str(lines);
        self.upstream_keys.push('\n');
        self
    }

    /// Lists the engine in the configuration file with `url` instead of its own address.
    pub fn upstream_at(mut self, url: &str, lines: &str) -> Self {
        self.upstream_url = Some(url.to_owned());
        self.upstream_keys(lines)
    }

    /// Allows log lines of level ERROR, for tests that break the upstream.
    pub fn allow_errors(mut self) -> Self {
        self.allows_errors = true;
        self
    }

    /// Limits the number of open files of the process (`ulimit -n`).
    pub fn open_files(mut self, most: u32) -> Self {
        self.open_files = Some(most);
        self
    }

    /// Stops reading the log once the admin listener is reported, until [`Samewire::resume_log`], so that stderr
    /// fills up.
    pub fn pause_log(mut self) -> Self {
        self.log_paused = true;
        self
    }

    /// Runs samewire with the name-resolution files of this folder in place of those in `/etc`.
    pub fn name_files(mut self, folder: &Path) -> Self {
        self.names = Some(folder.to_owned());
        self
    }

    /// Sets an environment variable; the environment is otherwise empty but for the proxy variables.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an upstream address, in place of the engine's.
    pub fn upstream(mut self, url: &str) -> Self {
        self.upstreams.push(url.to_owned());
        self
    }
}

/// Running samewire process with its addresses and its log. Dropping it kills the process.
pub struct Samewire {
    child: Child,
    /// Address of the listener for clients.
    pub proxy: SocketAddr,
    /// Address of the admin listener.
    pub admin: SocketAddr,
    logs: Arc<Mutex<Vec<String>>>,
    reader: JoinHandle<()>,
    /// True while the reader of the log is paused.
    deaf: Arc<(Mutex<bool>, Condvar)>,
    /// Configuration file, and its folder.
    config: Option<(Folder, PathBuf)>,
}

impl Drop for Samewire {
    fn drop(&mut self) {
        // Both fail only for a process that has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.resume_log();
    }
}

impl Samewire {
    /// Starts the process without waiting for its listeners.
    pub fn spawn(setup: &Setup) -> Self {
        let config = (!setup.config.is_empty()).then(|| {
            let folder = Folder::new();
            let path = folder.file("samewire.toml", &setup.config);
            (folder, PathBuf::from(path))
        });
        let mut command = match (setup.open_files, &setup.names) {
            (None, None) => Command::new(env!("CARGO_BIN_EXE_samewire")),
            (_, Some(folder)) => {
                let mut command = NameFiles::command(folder);
                command.arg(env!("CARGO_BIN_EXE_samewire"));
                command
            }
            (Some(most), None) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", &format!("ulimit -n {most} && exec \"$0\" \"$@\"")]);
                shell.arg(env!("CARGO_BIN_EXE_samewire"));
                shell
            }
        };
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
        ]);
        for url in &setup.upstreams {
            command.args(["--upstream", url]);
        }
        if let Some((_, path)) = &config {
            command.arg("--config").arg(path);
        }
        command.args(&setup.args).env_clear();
        // A proxy of the environment must not be used; port 1 is closed.
        for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env(name, "http://127.0.0.1:1");
        }
        command.envs(setup.environment.iter().map(|(name, value)| (name, value)));
        Self::run(command, config, setup.log_paused)
    }

    /// Starts the process by a command of the test's own, without waiting for its listeners.
    pub fn spawn_as(command: Command) -> Self {
        Self::run(command, None, false)
    }

    fn run(mut command: Command, config: Option<(Folder, PathBuf)>, deaf: bool) -> Self {
        let spawned = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned.expect("the binary starts");
        let logs = Arc::new(Mutex::new(Vec::new()));
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let sink = Arc::clone(&logs);
        let deaf = Arc::new((Mutex::new(deaf), Condvar::new()));
        let hearing = Arc::clone(&deaf);
        let reader = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if line.contains("WARN") || line.contains("ERROR") {
                    eprintln!("{line}");
                }
                let last = line.contains(r#""message":"listening""#)
                    && line.contains(r#""listener":"admin""#);
                sink.lock()
                    .expect("no thread panics with the lock")
                    .push(line);
                if last {
                    let deaf = hearing.0.lock().expect("no thread panics with the lock");
                    drop(hearing.1.wait_while(deaf, |deaf| *deaf));
                }
            }
        });
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        Self {
            child,
            proxy: nowhere,
            admin: nowhere,
            logs,
            reader,
            deaf,
            config,
        }
    }

    /// Starts the process and waits until both listeners are reported in the log.
    pub async fn start(setup: &Setup) -> Self {
        let mut this = Self::spawn(setup);
        this.wait_until_it_listens().await;
        this
    }

    /// Waits until both listeners are reported in the log, and stores their addresses. Fails the test if the
    /// process ends first.
    pub async fn wait_until_it_listens(&mut self) {
        let start = Instant::now();
        loop {
            if let (Some(proxy), Some(admin)) = (self.listening("proxy"), self.listening("admin")) {
                (self.proxy, self.admin) = (proxy, admin);
                return;
            }
            let gone = self.child.try_wait().expect("a child");
            assert!(
                gone.is_none() && start.elapsed() < PATIENCE,
                "{gone:?}, logged: {:#?}",
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn listening(&self, listener: &str) -> Option<SocketAddr> {
        let name = format!(r#""listener":"{listener}""#);
        let lines = self.logs();
        let line = lines
            .iter()
            .find(|l| l.contains(r#""message":"listening""#) && l.contains(&name))?;
        let (_, rest) = line.split_once(r#""address":""#)?;
        rest.split('"').next()?.parse().ok()
    }

    /// Returns all lines read so far. One thread writes lines and another reads them: use
    /// [`Samewire::logged`] for recent events.
    pub fn logs(&self) -> Vec<String> {
        self.logs
            .lock()
            .expect("no thread panics with the lock")
            .clone()
    }

    /// Resumes reading the log that [`Setup::pause_log`] paused.
    pub fn resume_log(&self) {
        *self.deaf.0.lock().expect("no thread panics with the lock") = false;
        self.deaf.1.notify_all();
    }

    /// Returns the lines of finished requests read so far, one for each request. See [`Samewire::finished`].
    pub fn request_lines(&self) -> Vec<String> {
        self.logs()
            .into_iter()
            .filter(|line| line.contains(LINES_OF_ONE_REQUEST))
            .collect()
    }

    /// Waits until `count` log lines contain `what`, and returns those lines. Fails the test if there are more.
    pub async fn logged(&self, what: &str, count: usize) -> Vec<String> {
        let start = Instant::now();
        loop {
            let logs = self.logs();
            let found: Vec<_> = logs
                .iter()
                .filter(|line| line.contains(what))
                .cloned()
                .collect();
            if found.len() >= count {
                assert_eq!(found.len(), count, "lines with {what}: {found:#?}");
                return found;
            }
            let (patient, seen) = (start.elapsed() < PATIENCE, found.len());
            assert!(
                patient,
                "{seen} of {count} lines with {what} after {PATIENCE:?}: {logs:#?}"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until `count` requests are logged, and returns their lines. They are counted in the metrics by then,
    /// and all earlier lines have been read. Fails the test if there are more.
    pub async fn finished(&self, count: usize) -> Vec<String> {
        self.logged(LINES_OF_ONE_REQUEST, count).await
    }

    /// Waits until no request is under way, and fetches `/metrics`, which then count all answers.
    pub async fn metrics(&self) -> String {
        let start = Instant::now();
        loop {
            let metrics = self.metrics_now().await;
            let left: Vec<_> = metrics
                .lines()
                .filter(|line| gauge_of_work(line) && !is_zero(line))
                .collect();
            if left.is_empty() {
                // The counters may have been read before the gauges.
                return self.metrics_now().await;
            }
            assert!(start.elapsed() < PATIENCE, "not idle: {left:#?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Fetches `/metrics` at once, while requests may be under way.
    pub async fn metrics_now(&self) -> String {
        let answer = Request::get("/metrics").answer(self.admin).await;
        assert_eq!(answer.head.status, 200, "/metrics");
        answer.text().to_owned()
    }

    /// Waits until `/metrics` is as `condition` wants it, and returns it. Requests may be under way.
    pub async fn metrics_when(
        &self,
        what: &str,
        mut condition: impl FnMut(&str) -> bool,
    ) -> String {
        let start = Instant::now();
        loop {
            let metrics = self.metrics_now().await;
            if condition(&metrics) {
                return metrics;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "waited {PATIENCE:?} in vain: {what}: {metrics}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until `/metrics` has this series, its labels included, with this value.
    pub async fn metric_becomes(&self, series: &str, value: u64) {
        let line = format!("{series} {value}");
        self.metrics_when(&line, |metrics| metrics.lines().any(|other| other == line))
            .await;
    }

    /// Sends a GET to the admin listener.
    pub async fn admin(&self, target: &str) -> Answer {
        Request::get(target).answer(self.admin).await
    }

    /// Waits until a page of the admin listener has this status.
    pub async fn admin_becomes(&self, target: &str, status: u16) -> Answer {
        Request::get(target)
            .answer_until(self.admin, |answer| answer.head.status == status)
            .await
    }

    /// Resident anonymous memory, in bytes. Pages of the binary are not counted: they are loaded as the code runs,
    /// and a debug build has many.
    pub fn allocated(&self) -> u64 {
        self.memory("RssAnon:")
    }

    fn memory(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("the process lives");
        let line = status
            .lines()
            .find(|line| line.starts_with(field))
            .expect("a size");
        let kib: u64 = line
            .split_whitespace()
            .nth(1)
            .and_then(|n| n.parse().ok())
            .expect("a number of kB");
        kib * 1024
    }

    /// Processor time used so far.
    pub fn cpu(&self) -> Duration {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it lives");
        let fields = stat
            .rsplit(')')
            .next()
            .expect("a name in brackets")
            .split_whitespace();
        let ticks: u64 = fields
            .skip(11)
            .take(2)
            .map(|n| n.parse::<u64>().expect("a number"))
            .sum();
        Duration::from_millis(ticks * 10)
    }

    /// Waits until no request is under way, and returns the value of a metric that has no labels. Fails the test if
    /// there is none.
    pub async fn metric(&self, name: &str) -> u64 {
        value_of(name, &self.metrics().await)
    }

    /// Waits until no request is under way, and returns the sum of a metric over all series with these labels; 0 if
    /// there is none.
    pub async fn sum(&self, name: &str, labels: &[&str]) -> u64 {
        let metrics = self.metrics().await;
        let is_it = |line: &&str| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('{'))
                && labels.iter().all(|label| line.contains(label))
        };
        let values = metrics
            .lines()
            .filter(is_it)
            .filter_map(|line| line.rsplit(' ').next());
        values
            .map(|value| value.parse::<u64>().expect("a count"))
            .sum()
    }

    /// Returns the value of a metric that has no labels at once, while requests may be under way.
    pub async fn metric_now(&self, name: &str) -> u64 {
        value_of(name, &self.metrics_now().await)
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Replaces the configuration file atomically, without signalling the process.
    pub fn configure(&self, text: &str) {
        let (folder, path) = self.config.as_ref().expect("it was started with a file");
        let new = folder.file("samewire.new", text);
        std::fs::rename(new, path).expect("the same folder");
    }

    /// Returns the number of lines read so far that contain `what`. See [`Samewire::logged`].
    pub fn count_logged(&self, what: &str) -> usize {
        self.logs()
            .iter()
            .filter(|line| line.contains(what))
            .count()
    }

    /// Replaces the configuration, sends SIGHUP and waits until the new configuration is in force.
    pub async fn reconfigure(&self, text: &str) {
        let before = self.count_logged(IN_FORCE);
        self.configure(text);
        self.signal("HUP");
        until("it is in force", || self.count_logged(IN_FORCE) > before).await;
    }

    /// Path of the configuration file.
    pub fn config(&self) -> &Path {
        &self.config.as_ref().expect("it was started with a file").1
    }

    /// Sends a signal by name, such as `HUP`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &pid])
            .status()
            .expect("kill runs");
        assert!(sent.success(), "kill -{name}");
    }

    /// Returns true if the process still runs.
    pub fn running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Sends SIGTERM and waits until the process has ended well.
    pub async fn stop(&mut self) {
        self.signal("TERM");
        assert_eq!(self.exit(PATIENCE).await.code(), Some(0));
    }

    /// Waits for the process to exit, at most for `limit`, and then until its whole log has been read.
    pub async fn exit(&mut self, limit: Duration) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                let is_read =
                    || self.reader.is_finished() || *self.deaf.0.lock().expect("no panic");
                until("its log is read", is_read).await;
                return status;
            }
            assert!(start.elapsed() < limit, "still running {limit:?} later");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// World of one test: one or several engines with samewire in front of them. Must be finished with [`World::end`].
pub struct World {
    /// First engine.
    pub engine: Engine,
    /// Further engines.
    pub others: Vec<Engine>,
    /// The samewire process.
    pub samewire: Samewire,
    faulty: bool,
    ended: bool,
}

impl Drop for World {
    fn drop(&mut self) {
        assert!(
            self.ended || std::thread::panicking(),
            "a test must finish with World::end"
        );
    }
}

impl World {
    /// Starts samewire in front of `engine`, configured as vLLM.
    pub async fn start(engine: impl IntoEngine, setup: Setup) -> Self {
        Self::start_as(engine, "vllm", setup).await
    }

    /// Starts samewire in front of `engine`, configured as this kind of engine.
    pub async fn start_as(engine: impl IntoEngine, kind: &str, setup: Setup) -> Self {
        let engine = engine.into_engine().await;
        let mut setup = setup.args(&["--engine", kind]);
        if !setup.upstream_keys.is_empty() {
            let url = setup.upstream_url.clone().unwrap_or_else(|| engine.url());
            setup.config += &format!("[[upstream]]\nurl = \"{url}\"\n{}", setup.upstream_keys);
        } else if setup.upstreams.is_empty() {
            setup.upstreams.push(engine.url());
        }
        let samewire = Samewire::start(&setup).await;
        Self {
            engine,
            others: Vec::new(),
            samewire,
            faulty: setup.allows_errors,
            ended: false,
        }
    }

    /// Starts samewire in front of an engine that answers every request with one token.
    pub async fn plain(setup: Setup) -> Self {
        Self::start(Script::answer("a", 1), setup).await
    }

    /// Starts [`World::plain`] with these lines in the configuration file.
    pub async fn configured(lines: &str) -> Self {
        Self::plain(Setup::new().config(lines)).await
    }

    /// Sends one request to a samewire in front of `engine`, which must pass the checks of [`World::end`] afterwards.
    pub async fn answer(engine: impl IntoEngine, setup: Setup, request: &Request) -> Answer {
        Self::answer_as(engine, "vllm", setup, request).await
    }

    /// Does what [`World::answer`] does, with samewire configured as for this kind of engine.
    pub async fn answer_as(
        engine: impl IntoEngine,
        kind: &str,
        setup: Setup,
        request: &Request,
    ) -> Answer {
        let world = Self::start_as(engine, kind, setup).await;
        let answer = world.request(request).await;
        world.end().await;
        answer
    }

    /// Starts samewire in front of several vLLM engines, named `e0`, `e1` and so on. `lines` holds further
    /// configuration lines for each.
    pub async fn fleet(
        scripts: impl IntoIterator<Item = impl IntoEngine>,
        mut setup: Setup,
        lines: &[&str],
    ) -> Self {
        let mut engines = Vec::new();
        for script in scripts {
            engines.push(script.into_engine().await);
        }
        for (n, engine) in engines.iter().enumerate() {
            let (url, more) = (engine.url(), lines.get(n).unwrap_or(&""));
            setup.config += &format!(
                "[[upstream]]\nname = \"e{n}\"\nurl = \"{url}\"\nengine = \"vllm\"\n{more}\n"
            );
        }
        let samewire = Samewire::start(&setup).await;
        let mut engines = engines.into_iter();
        let engine = engines.next().expect("an engine at least");
        Self {
            engine,
            others: engines.collect(),
            samewire,
            faulty: setup.allows_errors,
            ended: false,
        }
    }

    /// Starts [`World::fleet`] and waits until every engine is up.
    pub async fn fleet_up(
        scripts: impl IntoIterator<Item = impl IntoEngine>,
        setup: Setup,
        lines: &[&str],
    ) -> Self {
        let world = Self::fleet(scripts, setup, lines).await;
        world.wait_until_up().await;
        world
    }

    /// Returns every engine, the first one included.
    pub fn engines(&self) -> impl Iterator<Item = &Engine> {
        std::iter::once(&self.engine).chain(&self.others)
    }

    /// Returns how many requests each engine has received, probes excluded.
    pub fn attempt_counts(&self) -> Vec<usize> {
        self.engines().map(Engine::attempt_count).collect()
    }

    /// Waits until the metrics report every engine as up.
    pub async fn wait_until_up(&self) {
        let is_up = |line: &&str| line.starts_with("samewire_upstream_up{") && line.ends_with(" 1");
        let all = self.engines().count();
        let are_up = |metrics: &str| metrics.lines().filter(is_up).count() >= all;
        self.samewire
            .metrics_when("all engines are up", are_up)
            .await;
    }

    /// Address of the listener for clients.
    pub fn proxy(&self) -> SocketAddr {
        self.samewire.proxy
    }

    /// Sends a request to samewire on a new connection.
    pub async fn send(&self, request: &Request) -> Client {
        request.send(self.samewire.proxy).await
    }

    /// Sends a request to samewire as [`Request::begin`] does.
    pub async fn begin(&self, request: &Request) -> Client {
        request.begin(self.samewire.proxy).await
    }

    /// Sends a request to samewire as [`Request::begin_until`] does.
    pub async fn begin_until(&self, request: &Request, what: &str) -> Client {
        request.begin_until(self.samewire.proxy, what).await
    }

    /// Sends a GET to samewire and reads the whole response.
    pub async fn get(&self, target: &str) -> Answer {
        self.request(&Request::get(target)).await
    }

    /// Sends a POST to samewire and reads the whole response.
    pub async fn post(&self, target: &str, body: impl Into<Vec<u8>>) -> Answer {
        self.request(&Request::post(target, body)).await
    }

    /// Sends a chat request with this body to samewire and reads the whole response.
    pub async fn chat(&self, body: impl Into<Vec<u8>>) -> Answer {
        self.request(&Request::chat(body)).await
    }

    /// Sends the request of [`Request::stream`] to samewire and reads the whole response.
    pub async fn stream(&self, more: &str) -> Answer {
        self.request(&Request::stream(more)).await
    }

    /// Sends a request to samewire on a new connection and reads the whole response.
    pub async fn request(&self, request: &Request) -> Answer {
        request.answer(self.samewire.proxy).await
    }

    /// Checks what must be true once all clients have their responses: no generation and no request is left over,
    /// nothing has panicked, and no prompt or key is in logs or metrics.
    pub async fn end(self) {
        self.end_after_panics(0).await;
    }

    /// Makes the checks of [`World::end`] after `attempts` requests have reached the first engine.
    #[track_caller]
    pub fn end_after(self, attempts: usize) -> impl Future<Output = ()> {
        assert_eq!(
            self.engine.attempt_count(),
            attempts,
            "requests that reached the engine"
        );
        self.end()
    }

    /// Finishes the test without checks, because the test has ended the process itself.
    pub fn end_without_checks(mut self) {
        self.ended = true;
    }

    /// Makes the checks of [`World::end`] for a test that has provoked `panics` panics.
    pub async fn end_after_panics(mut self, panics: u64) {
        self.ended = true;
        let idle = || {
            self.engines()
                .all(|engine| engine.active_generations() == 0)
        };
        until("no active generation", idle).await;
        let metrics = self.samewire.metrics().await;
        let counted = format!("samewire_panics_total {panics}");
        assert!(
            metrics.lines().any(|line| line == counted),
            "{counted} is expected: {metrics}"
        );
        let logs = self.samewire.logs().join("\n");
        for canary in [PROMPT, KEY, "CANARY"] {
            assert!(!logs.contains(canary), "{canary} in the logs: {logs}");
            assert!(
                !metrics.contains(canary),
                "{canary} in the metrics: {metrics}"
            );
        }
        assert!(!logs.contains("panicked at"), "{logs}");
        let errors: Vec<_> = logs
            .lines()
            .filter(|line| line.contains(r#""level":"ERROR""#))
            .collect();
        assert!(
            self.faulty || errors.is_empty(),
            "nothing was wrong, yet: {errors:#?}"
        );
        assert!(self.samewire.running(), "the process must outlive the test");
    }
}

fn value_of(name: &str, metrics: &str) -> u64 {
    let value = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no {name}: {metrics}"))
}

fn gauge_of_work(line: &str) -> bool {
    line.starts_with("samewire_requests_in_flight")
        || line.starts_with("samewire_bodies_in_flight_bytes")
        || line.starts_with("samewire_upstream_active_streams")
}

fn is_zero(line: &str) -> bool {
    line.rsplit(' ')
        .next()
        .and_then(|value| value.parse::<f64>().ok())
        == Some(0.0)
}
