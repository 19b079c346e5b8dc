//! The contestants, and their engine.
//!
//! Takes: programs, processors to run on, a number of workers.
//! Gives: running processes that answer.
//! Remembers: the processes it started, each of which ends with its owner.
//! Never: measures.

use super::gateways::Gateway;
use crate::process;
use crate::scenario::Pace;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// CPU affinity: the proxies on one set of processors, engine and load client on another; or no pinning.
#[derive(Clone, Copy)]
pub(super) struct Pin(pub(super) Option<usize>);

impl Pin {
    pub(super) fn proxies(self, program: &Path) -> Command {
        self.0.map_or_else(
            || Command::new(program),
            |last| Self::on(&last.to_string(), program),
        )
    }

    pub(super) fn others(self, program: &Path) -> Command {
        self.0.map_or_else(
            || Command::new(program),
            |last| Self::on(&format!("0-{}", last - 1), program),
        )
    }

    /// Returns a command in which `taskset` replaces itself with the program, so that the process started is the
    /// one measured.
    fn on(processors: &str, program: &Path) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", processors]).arg(program);
        command
    }
}

/// The scripted engine, run as a separate process so that its processor time can be measured.
pub(super) struct Engine {
    pub(super) address: SocketAddr,
    pub(super) child: Child,
    pub(super) pin: Pin,
    /// Worker threads of each proxy.
    pub(super) workers: usize,
}

impl Engine {
    pub(super) fn start(pin: Pin, workers: usize) -> io::Result<Self> {
        let mut child = pin
            .others(&std::env::current_exe()?)
            .arg("engine")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(
            child
                .stdout
                .take()
                .ok_or_else(|| io::Error::other("no output"))?,
        )
        .read_line(&mut line)?;
        let address = line
            .trim()
            .rsplit(' ')
            .next()
            .unwrap_or_default()
            .parse()
            .map_err(io::Error::other)?;
        Ok(Self {
            address,
            child,
            pin,
            workers,
        })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Sort of a contestant: what it is compared with, and whether targets are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// No proxy at all.
    Direct,
    /// Plain relay, which changes nothing.
    Relay,
    /// Build of samewire. Only these have targets, and speak Responses.
    Samewire,
    /// Gateway from PyPI. What it cannot do is left out, with the reason.
    Gateway,
}

pub(super) enum Recipe {
    Nginx,
    Haproxy,
    Samewire(String, PathBuf),
    Gateway(Gateway),
}

impl Recipe {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Nginx | Self::Haproxy => Kind::Relay,
            Self::Samewire(..) => Kind::Samewire,
            Self::Gateway(_) => Kind::Gateway,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Samewire(name, _) => name,
            Self::Gateway(gateway) => &gateway.name,
        }
    }

    fn command(&self, listen: SocketAddr, folder: &Path, engine: &Engine) -> io::Result<Command> {
        match self {
            Self::Nginx => {
                let file = folder.join(format!("nginx-{}.conf", listen.port()));
                let text = nginx_conf(
                    listen,
                    &fs::canonicalize(folder)?,
                    engine.address,
                    engine.workers,
                );
                fs::write(&file, text)?;
                let mut command = engine.pin.proxies(Path::new("nginx"));
                command
                    .arg("-e")
                    .arg("stderr")
                    .arg("-c")
                    .arg(fs::canonicalize(file)?);
                Ok(command)
            }
            Self::Haproxy => {
                let file = folder.join(format!("haproxy-{}.cfg", listen.port()));
                fs::write(&file, haproxy_cfg(listen, engine.address, engine.workers))?;
                let mut command = engine.pin.proxies(Path::new("haproxy"));
                command.args(["-db", "-q", "-f"]).arg(file);
                Ok(command)
            }
            Self::Samewire(_, program) => {
                let file = folder.join("samewire.toml");
                fs::write(&file, SAMEWIRE_TOML)?;
                let mut command = engine.pin.proxies(program);
                command
                    .args([
                        "serve",
                        "--engine",
                        "vllm",
                        "--insecure-no-auth",
                        "--config",
                    ])
                    .arg(file)
                    .args(["--threads", &engine.workers.to_string()])
                    .args(["--upstream", &format!("http://{}", engine.address)])
                    .args([
                        "--listen",
                        &listen.to_string(),
                        "--admin-listen",
                        "127.0.0.1:0",
                    ]);
                Ok(command)
            }
            Self::Gateway(gateway) => {
                let mut command = engine.pin.proxies(gateway.program());
                gateway.complete(&mut command, listen, folder, engine.address, engine.workers)?;
                Ok(command)
            }
        }
    }

    /// Returns how long the contestant may take until it answers, and the time between two attempts.
    fn patience(&self) -> (Duration, Duration) {
        match self {
            // Python loads a gateway for many seconds.
            Self::Gateway(_) => (Duration::from_secs(120), Duration::from_millis(20)),
            _ => (Duration::from_secs(5), Duration::from_micros(200)),
        }
    }
}

/// Default configuration, with room for every stream.
const SAMEWIRE_TOML: &str = "[limits]\nrequests = 10000\nconnections = 10000\n";

/// Returns the configuration of a plain relay for streams, as an operator would write it: no buffering, kept
/// connections, no log. A long prompt never becomes a file.
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
            client_max_body_size 0; proxy_request_buffering off; client_body_buffer_size 128k;
        }}
    }}
}}
"
    )
}

/// Returns the same relay for HAProxy: HTTP on both sides, nothing held back, kept connections, no log.
fn haproxy_cfg(listen: SocketAddr, engine: SocketAddr, workers: usize) -> String {
    format!(
        "global
    nbthread {workers}
    maxconn 8192
defaults
    mode http
    option http-keep-alive
    option http-no-delay
    http-reuse always
    timeout connect 5s
    timeout client 600s
    timeout server 600s
    timeout http-keep-alive 600s
frontend clients
    bind {listen} backlog 4096
    default_backend engine
backend engine
    server engine {engine}
"
    )
}

pub(super) struct Contestant {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) address: SocketAddr,
    /// Process of the contestant; `None` for the direct way.
    pub(super) child: Option<Child>,
    /// Time from the start of the process to its first answer.
    pub(super) ready: Duration,
}

impl Contestant {
    pub(super) fn direct(engine: &Engine) -> Self {
        Self {
            name: "direct".to_owned(),
            kind: Kind::Direct,
            address: engine.address,
            child: None,
            ready: Duration::ZERO,
        }
    }

    pub(super) fn start(recipe: &Recipe, folder: &Path, engine: &Engine) -> io::Result<Self> {
        Self::start_with(recipe, &[], folder, engine)
    }

    pub(super) fn start_with(
        recipe: &Recipe,
        more: &[&str],
        folder: &Path,
        engine: &Engine,
    ) -> io::Result<Self> {
        let address = free_address()?;
        let log = folder.join(format!("{}-{}.log", recipe.name(), address.port()));
        let mut command = recipe.command(address, folder, engine)?;
        command
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        let begin = Instant::now();
        let child = command
            .spawn()
            .map_err(|error| io::Error::other(format!("{}: {error}", recipe.name())))?;
        let mut contestant = Self {
            name: recipe.name().to_owned(),
            kind: recipe.kind(),
            address,
            child: Some(child),
            ready: Duration::ZERO,
        };
        let (most, pause) = recipe.patience();
        while let Err(refusal) = answer(address) {
            let gone = contestant
                .child
                .as_mut()
                .is_some_and(|child| !matches!(child.try_wait(), Ok(None)));
            if gone || begin.elapsed() > most {
                let words = fs::read_to_string(&log).unwrap_or_default();
                let words = if words.trim().is_empty() {
                    refusal.to_string()
                } else {
                    words
                };
                return Err(io::Error::other(format!(
                    "{} does not answer: {words}",
                    recipe.name()
                )));
            }
            sleep(pause);
        }
        contestant.ready = begin.elapsed();
        Ok(contestant)
    }

    pub(super) fn cpu(&self) -> Duration {
        // Gateways start and end threads all the time.
        let cpu = if self.kind == Kind::Gateway {
            process::cpu_of_ended_too
        } else {
            process::cpu
        };
        self.child
            .as_ref()
            .map_or(Duration::ZERO, |child| cpu(child.id()))
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
    Command::new("kill")
        .arg(child.id().to_string())
        .status()
        .ok();
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

/// Sends a small request. Returns an error unless it is answered with 200.
fn answer(address: SocketAddr) -> io::Result<()> {
    let body = format!(
        r#"{{"model":"bench","messages":[{{"role":"user","content":"{}"}}]}}"#,
        Pace::Whole.word()
    );
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(request.as_bytes())?;
    let mut start = [0; 12];
    stream.read_exact(&mut start)?;
    if start == *b"HTTP/1.1 200" {
        return Ok(());
    }
    // The rest of an answer says why; what cannot be read is not needed.
    let mut rest = String::new();
    stream.read_to_string(&mut rest).ok();
    Err(io::Error::other(format!(
        "{}, {}",
        String::from_utf8_lossy(&start),
        rest.lines().last().unwrap_or_default()
    )))
}
