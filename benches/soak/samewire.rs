//! The built binary as a process, observed from outside.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Digest of the process's log: the number of lines, and those worth reading.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) lines: u64,
    /// Lines of level ERROR, panics, and lines that contain a secret.
    pub(crate) bad: Vec<String>,
    /// Last lines, for people to read.
    pub(crate) last: Vec<String>,
    listening: Vec<(String, SocketAddr)>,
}

/// Running samewire process, killed when dropped.
pub(crate) struct Samewire {
    child: Child,
    pub(crate) proxy: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) log: Arc<Mutex<Log>>,
}

impl Drop for Samewire {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Samewire {
    /// Starts the process with this configuration. Its log is read here and copied to `log_file`.
    pub(crate) fn start(
        program: &Path,
        config: &str,
        folder: &Path,
        log_file: &Path,
    ) -> io::Result<Self> {
        let file: PathBuf = folder.join("samewire.toml");
        fs::write(&file, config)?;
        let mut child = Command::new(program)
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--admin-listen",
                "127.0.0.1:0",
                "--config",
            ])
            .arg(&file)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = Arc::new(Mutex::new(Log::default()));
        let (sink, stderr) = (
            Arc::clone(&log),
            child
                .stderr
                .take()
                .ok_or_else(|| io::Error::other("no log"))?,
        );
        let mut file = io::BufWriter::new(fs::File::create(log_file)?);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // The copy is only for people: a full disk must not fail the run.
                let _ = writeln!(file, "{line}");
                crate::tally::lock(&sink).take(line);
            }
        });
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut this = Self {
            child,
            proxy: nowhere,
            admin: nowhere,
            log,
        };
        this.wait_until_ready()?;
        Ok(this)
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let start = Instant::now();
        loop {
            for (name, address) in &crate::tally::lock(&self.log).listening {
                *(if name == "admin" {
                    &mut self.admin
                } else {
                    &mut self.proxy
                }) = *address;
            }
            if self.admin.port() > 0 && self.get("/readyz").is_ok_and(|(status, _)| status == 200) {
                return Ok(());
            }
            let gone = self.child.try_wait()?;
            if gone.is_some() || start.elapsed() > Duration::from_secs(20) {
                let log = crate::tally::lock(&self.log).last.join("\n");
                return Err(io::Error::other(format!(
                    "samewire does not get ready: {gone:?}\n{log}"
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a GET to the admin listener and returns status and body.
    pub(crate) fn get(&self, path: &str) -> io::Result<(u16, String)> {
        let mut stream = TcpStream::connect(self.admin)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
            self.admin
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0);
        Ok((status, answer))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory in bytes.
    pub(crate) fn rss(&self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap_or_default();
        Ok(line
            .split_whitespace()
            .next()
            .and_then(|kib| kib.parse::<u64>().ok())
            .unwrap_or(0)
            * 1024)
    }

    pub(crate) fn descriptors(&self) -> io::Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.pid()))?.count())
    }

    pub(crate) fn threads(&self) -> io::Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/task", self.pid()))?.count())
    }

    /// Processor time of all threads.
    pub(crate) fn cpu(&self) -> io::Result<Duration> {
        let mut nanoseconds = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            let counts = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            nanoseconds += counts
                .split_whitespace()
                .next()
                .and_then(|word| word.parse::<u64>().ok())
                .unwrap_or(0);
        }
        Ok(Duration::from_nanos(nanoseconds))
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        Command::new("kill")
            .args([&format!("-{name}"), &pid])
            .status()
            .ok();
    }

    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the process to exit, at most for `limit`.
    pub(crate) fn exit(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(None)
    }
}

/// Sums a metric over its labels in the text of a scrape.
pub(crate) fn sum(metrics: &str, name: &str) -> f64 {
    metrics
        .lines()
        .filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        })
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

impl Log {
    fn take(&mut self, line: String) {
        self.lines += 1;
        if line.contains(r#""message":"listening""#)
            && let (Some(name), Some(address)) =
                (member(&line, "listener"), member(&line, "address"))
            && let Ok(address) = address.parse()
        {
            self.listening.push((name.to_owned(), address));
        }
        let bad = line.contains(r#""level":"ERROR""#)
            || line.contains("panicked at")
            || line.contains("CANARY");
        if bad && self.bad.len() < 20 {
            self.bad.push(line.clone());
        }
        if self.last.len() >= 30 {
            self.last.remove(0);
        }
        self.last.push(line);
    }
}

fn member<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(r#""{name}":""#))?;
    rest.split('"').next()
}
