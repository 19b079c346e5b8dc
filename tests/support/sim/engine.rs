//! Scripted engine: a TCP server that reads one request after the other and answers each by a script.
//!
//! Models the one thing of an engine that costs money: a *generation* is active from the moment a request has
//! arrived until the script ends or the connection is closed. The engine records when and how the close reached it.

use super::chunks::{Chunks, Piece, find};
use super::script::{Gate, MOMENTS, Script, Step, flood_event};
use serde_json::Value;
use socket2::SockRef;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Way in which a connection is closed: tests tell an orderly close from a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseKind {
    /// Orderly close, by FIN.
    Fin,
    /// Reset, by RST.
    Rst,
}

/// Request as it arrived, with the outcome of its generation.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Request head, byte for byte, with its empty line.
    pub head: Vec<u8>,
    /// Request method: `POST` …
    pub method: String,
    /// The request target.
    pub target: String,
    /// Header lines in order of arrival; names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body, without its transfer framing.
    pub body: Vec<u8>,
    /// Number of the connection, counted from 0 for each engine.
    pub connection: usize,
    /// True if an earlier request arrived on the same connection.
    pub reused: bool,
    /// Bytes that the engine has written in answer.
    pub written: u64,
    /// True if the script ran to its end.
    pub finished: bool,
    /// Time and manner in which samewire closed the connection while the script ran.
    pub closed: Option<(Instant, CloseKind)>,
}

impl Attempt {
    /// Returns the value of a header, if present. Fails the test if it occurs twice.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(n, _)| n == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "header {name} twice");
        value
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("bodies are UTF-8")
    }

    /// Parses the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }
}

/// Engine, one that is being started, or the script by which it answers every request.
pub trait IntoEngine {
    /// Starts the engine, if it is not running yet.
    fn into_engine(self) -> impl Future<Output = Engine> + Send;
}

impl IntoEngine for Engine {
    async fn into_engine(self) -> Self {
        self
    }
}

impl<F: Future<Output = Engine> + Send> IntoEngine for F {
    async fn into_engine(self) -> Engine {
        self.await
    }
}

impl IntoEngine for Script {
    async fn into_engine(self) -> Engine {
        Engine::script(self).await
    }
}

type Answering = dyn Fn(&Attempt) -> Script + Send + Sync;

struct Shared {
    answering: Box<Answering>,
    attempts: Mutex<Vec<Attempt>>,
    probes: Mutex<Vec<Attempt>>,
    health: Mutex<Script>,
    models: Mutex<Script>,
    routes: Mutex<HashMap<String, Script>>,
    body_read_limit: AtomicUsize,
    crash: Gate,
    active: AtomicUsize,
    open: AtomicUsize,
    connections: AtomicUsize,
}

/// Scripted engine on a loopback port, with a record of its requests. Dropping it closes all its connections.
pub struct Engine {
    /// Address on which the engine listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Engine {
    /// Creates an engine that answers every request by `script`.
    pub async fn script(script: Script) -> Self {
        Self::answering(move |_| script.clone()).await
    }

    /// Creates an engine that answers the nth request by the nth script, and later ones by the last.
    pub async fn in_turn(scripts: Vec<Script>) -> Self {
        let n = AtomicUsize::new(0);
        Self::answering(move |_| {
            scripts[n.fetch_add(1, Ordering::Relaxed).min(scripts.len() - 1)].clone()
        })
        .await
    }

    /// Creates an engine that answers each request by the script that `answering` returns for it.
    pub async fn answering(answering: impl Fn(&Attempt) -> Script + Send + Sync + 'static) -> Self {
        Self::on(
            std::net::TcpListener::bind("127.0.0.1:0").expect("a free port"),
            answering,
        )
        .await
    }

    /// Creates engines that answer like one that [`Self::answering`] creates.
    pub async fn several(
        count: usize,
        answering: impl Fn(&Attempt) -> Script + Clone + Send + Sync + 'static,
    ) -> Vec<Self> {
        let mut engines = Vec::new();
        for _ in 0..count {
            engines.push(Self::answering(answering.clone()).await);
        }
        engines
    }

    /// Creates an engine that answers each request up to the moment that is named in it.
    pub async fn by_moment() -> Self {
        let moment = |text: &str| {
            MOMENTS
                .into_iter()
                .find(|moment| text.contains(moment))
                .expect("a moment")
        };
        Self::answering(move |attempt| Script::up_to(moment(attempt.text()))).await
    }

    /// Creates an engine on a listener of the test's own.
    pub async fn on(
        listener: std::net::TcpListener,
        answering: impl Fn(&Attempt) -> Script + Send + Sync + 'static,
    ) -> Self {
        listener.set_nonblocking(true).expect("a socket");
        let listener = TcpListener::from_std(listener).expect("a socket");
        let address = listener.local_addr().expect("bound");
        let models = r#"{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"vllm","root":"/models/m","parent":null,"max_model_len":4096,"permission":[]}]}"#;
        let shared = Arc::new(Shared {
            answering: Box::new(answering),
            attempts: Mutex::default(),
            probes: Mutex::default(),
            health: Mutex::new(Script::new().whole("200 OK", "", "")),
            models: Mutex::new(Script::ok(models)),
            routes: Mutex::default(),
            body_read_limit: AtomicUsize::new(usize::MAX),
            crash: Gate::default(),
            active: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            task,
        }
    }

    /// Returns the engine's address in the form of samewire's `--upstream` flag.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the script for `GET /v1/models` and `GET /v1/models/…`.
    pub fn set_models(&self, script: Script) {
        *lock(&self.shared.models) = script;
    }

    /// Sets the script for `GET /health`.
    pub fn set_health(&self, script: Script) {
        *lock(&self.shared.health) = script;
    }

    /// Sets the script for another path that a probe or a GET requests; without one the engine sends 404.
    pub fn set_route(&self, path: &str, script: Script) {
        lock(&self.shared.routes).insert(path.to_owned(), script);
    }

    /// Limits how many bytes are read of the next body with a `content-length` before its script is played.
    pub fn limit_next_body(&self, bytes: usize) {
        self.shared.body_read_limit.store(bytes, Ordering::SeqCst);
    }

    /// Resets all connections and refuses new ones from now on.
    pub async fn crash(&self) {
        self.shared.crash.open();
        let gone = || self.task.is_finished() && self.open_connections() == 0;
        super::until("it has gone", gone).await;
    }

    /// Returns every request but GETs and those of probes, in order of arrival.
    pub fn attempts(&self) -> Vec<Attempt> {
        lock(&self.shared.attempts).clone()
    }

    /// Number of requests in [`Engine::attempts`], without copying them.
    pub fn attempt_count(&self) -> usize {
        lock(&self.shared.attempts).len()
    }

    /// Waits until at least `n` requests have arrived, and returns all of them.
    pub async fn wait_attempts(&self, n: usize) -> Vec<Attempt> {
        super::until(&format!("{n} attempts"), || self.attempt_count() >= n).await;
        self.attempts()
    }

    /// Returns the only request that has arrived. Fails the test if there are none or several.
    pub fn only(&self) -> Attempt {
        let mut attempts = self.attempts();
        assert_eq!(
            attempts.len(),
            1,
            "attempts: {:?}",
            attempts.iter().map(|a| &a.target).collect::<Vec<_>>()
        );
        attempts.remove(0)
    }

    /// Returns the GETs and the requests of probes that have arrived: health, models, version, prompts.
    pub fn probes(&self) -> Vec<Attempt> {
        lock(&self.shared.probes).clone()
    }

    /// Number of GETs and of requests of probes for this path that have arrived.
    pub fn probe_count(&self, path: &str) -> usize {
        lock(&self.shared.probes)
            .iter()
            .filter(|probe| probe.target == path)
            .count()
    }

    /// Waits for this many more GETs of this path.
    pub async fn wait_probes(&self, path: &str, more: usize) {
        let before = self.probe_count(path);
        super::until("probes", || self.probe_count(path) >= before + more).await;
    }

    /// Number of requests the engine is working on.
    pub fn active_generations(&self) -> usize {
        self.shared.active.load(Ordering::SeqCst)
    }

    /// Number of connections that are accepted and not yet closed.
    pub fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Bytes written in answer to the nth request.
    pub fn written(&self, n: usize) -> u64 {
        lock(&self.shared.attempts)
            .get(n)
            .map_or(0, |attempt| attempt.written)
    }

    /// Returns when and how samewire closed the connection during the nth request, if it did.
    pub fn closed(&self, n: usize) -> Option<(Instant, CloseKind)> {
        lock(&self.shared.attempts)
            .get(n)
            .and_then(|attempt| attempt.closed)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let id = shared.connections.fetch_add(1, Ordering::SeqCst);
                connections.spawn(serve(stream, id, Arc::clone(&shared)));
            }
            Some(_) = connections.join_next() => {}
            () = shared.crash.wait() => break,
        }
    }
    drop(listener);
    connections.join_all().await;
}

/// Guard that increments a counter and decrements it when dropped.
pub(super) struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    pub(super) fn up(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(stream: TcpStream, id: usize, shared: Arc<Shared>) {
    let _open = Counted::up(&shared.open);
    stream.set_nodelay(true).expect("a TCP socket");
    // Small, so that a stopped reader is noticed soon.
    SockRef::from(&stream)
        .set_send_buffer_size(64 * 1024)
        .expect("a TCP socket");
    let mut connection = Connection {
        stream,
        inbox: Vec::new(),
        id,
        served: 0,
    };
    let crashed = tokio::select! {
        () = shared.crash.wait() => true,
        () = connection.serve(&shared) => false,
    };
    if crashed {
        SockRef::from(&connection.stream)
            .set_linger(Some(Duration::ZERO))
            .expect("a TCP socket");
    }
}

struct Connection {
    stream: TcpStream,
    inbox: Vec<u8>,
    id: usize,
    served: usize,
}

/// Reason why a script ended before its last step.
#[derive(Debug)]
enum Interrupted {
    ByScript(CloseKind),
    BySamewire(CloseKind),
}

impl Connection {
    /// Answers one request after the other until the connection ends.
    async fn serve(&mut self, shared: &Shared) {
        while let Some(attempt) = self.read_request(&shared.body_read_limit).await {
            self.served += 1;
            let is_probe = attempt.header("x-request-id") == Some("samewire-probe");
            if attempt.method == "GET" || is_probe {
                let script = match attempt.target.as_str() {
                    "/health" => lock(&shared.health).clone(),
                    target if target.starts_with("/v1/models") => lock(&shared.models).clone(),
                    target => {
                        let set = lock(&shared.routes).get(target).cloned();
                        set.unwrap_or_else(|| {
                            Script::new().json("404 Not Found", r#"{"detail":"Not Found"}"#)
                        })
                    }
                };
                lock(&shared.probes).push(attempt);
                if !self.play(script, |_| ()).await {
                    return;
                }
                continue;
            }
            if !self.generate(attempt, shared).await {
                return;
            }
        }
    }

    /// Answers one request and records the outcome. Returns true if the connection can serve another request.
    async fn generate(&mut self, attempt: Attempt, shared: &Shared) -> bool {
        let script = (shared.answering)(&attempt);
        let _active = Counted::up(&shared.active);
        let index = {
            let mut attempts = lock(&shared.attempts);
            attempts.push(attempt);
            attempts.len() - 1
        };
        let note = |change: AttemptChange| {
            let mut attempts = lock(&shared.attempts);
            match change {
                AttemptChange::Written(n) => attempts[index].written += n,
                AttemptChange::Finished => attempts[index].finished = true,
                AttemptChange::Closed(manner) => {
                    attempts[index].closed = Some((Instant::now(), manner))
                }
            }
        };
        self.play(script, note).await
    }

    /// Plays a script while watching for the close of the connection. Returns true if the script reached its end.
    async fn play(&mut self, script: Script, note: impl Fn(AttemptChange)) -> bool {
        let Self { stream, inbox, .. } = self;
        let played = async {
            for step in script.0 {
                step_of(stream, step, &note).await?;
            }
            Ok::<(), Interrupted>(())
        };
        let result = tokio::select! {
            biased;
            result = played => result,
            manner = closing(stream, inbox) => Err(Interrupted::BySamewire(manner)),
        };
        match result {
            Ok(()) => note(AttemptChange::Finished),
            Err(Interrupted::BySamewire(manner)) => note(AttemptChange::Closed(manner)),
            Err(Interrupted::ByScript(manner)) => {
                note(AttemptChange::Finished);
                if manner == CloseKind::Rst {
                    SockRef::from(&*stream)
                        .set_linger(Some(Duration::ZERO))
                        .expect("a TCP socket");
                }
            }
        }
        result.is_ok()
    }

    async fn read_request(&mut self, appetite: &AtomicUsize) -> Option<Attempt> {
        let end = loop {
            if let Some(end) = find(&self.inbox, b"\r\n\r\n") {
                break end + 4;
            }
            self.fill().await?;
        };
        let rest = self.inbox.split_off(end);
        let head = std::mem::replace(&mut self.inbox, rest);
        let mut attempt = parse_head(head, self.id, self.served > 0);
        attempt.body = self.read_body(&attempt, appetite).await?;
        Some(attempt)
    }

    async fn read_body(&mut self, attempt: &Attempt, appetite: &AtomicUsize) -> Option<Vec<u8>> {
        if attempt.header("transfer-encoding").is_some() {
            let (mut chunks, mut body) = (Chunks::default(), Vec::new());
            loop {
                chunks.feed(&std::mem::take(&mut self.inbox));
                match chunks.next() {
                    Piece::Data(data) => body.extend(data),
                    Piece::Wait => self.fill().await?,
                    Piece::Last(rest) => {
                        self.inbox = rest;
                        return Some(body);
                    }
                }
            }
        }
        let length = attempt
            .header("content-length")
            .map_or(0, |n| n.parse().expect("a content-length"));
        let length = match length {
            0 => 0,
            length => length.min(appetite.swap(usize::MAX, Ordering::SeqCst)),
        };
        while self.inbox.len() < length {
            self.fill().await?;
        }
        let rest = self.inbox.split_off(length);
        Some(std::mem::replace(&mut self.inbox, rest))
    }

    /// Reads once from the socket. Returns `None` if the connection is closed.
    async fn fill(&mut self) -> Option<()> {
        loop {
            self.stream.readable().await.ok()?;
            match self.stream.try_read_buf(&mut self.inbox) {
                Ok(0) => return None,
                Ok(_) => return Some(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }
}

/// Change to the record of an attempt while it is answered.
enum AttemptChange {
    Written(u64),
    Finished,
    Closed(CloseKind),
}

async fn step_of(
    stream: &TcpStream,
    step: Step,
    note: &impl Fn(AttemptChange),
) -> Result<(), Interrupted> {
    match step {
        Step::Send(bytes) => write(stream, &bytes, note).await?,
        Step::Split { bytes, every } => {
            for piece in bytes.chunks(every) {
                write(stream, piece, note).await?;
                tokio::task::yield_now().await;
            }
        }
        Step::Flood { events, size } => {
            for n in 0..events {
                write(stream, &flood_event(n, size), note).await?;
            }
        }
        Step::Sleep(time) => tokio::time::sleep(time).await,
        Step::Await(gate) => gate.wait().await,
        Step::Hang => std::future::pending().await,
        Step::Close(manner) => return Err(Interrupted::ByScript(manner)),
    }
    Ok(())
}

async fn write(
    stream: &TcpStream,
    mut bytes: &[u8],
    note: &impl Fn(AttemptChange),
) -> Result<(), Interrupted> {
    while !bytes.is_empty() {
        stream
            .writable()
            .await
            .map_err(|_| Interrupted::BySamewire(CloseKind::Rst))?;
        match stream.try_write(bytes) {
            Ok(n) => {
                note(AttemptChange::Written(n as u64));
                bytes = &bytes[n..];
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return Err(Interrupted::BySamewire(CloseKind::Rst)),
        }
    }
    Ok(())
}

/// Resolves when samewire has closed the connection. Other bytes that arrive are kept for the next request.
async fn closing(stream: &TcpStream, inbox: &mut Vec<u8>) -> CloseKind {
    loop {
        if stream.readable().await.is_err() {
            return CloseKind::Rst;
        }
        match stream.try_read_buf(inbox) {
            Ok(0) => return CloseKind::Fin,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return CloseKind::Rst,
        }
    }
}

fn parse_head(head: Vec<u8>, connection: usize, reused: bool) -> Attempt {
    let text = std::str::from_utf8(&head).expect("samewire writes ASCII heads");
    let mut lines = text.split("\r\n");
    let mut first = lines.next().expect("a request line").split(' ');
    let method = first.next().expect("a method").to_owned();
    let target = first.next().expect("a target").to_owned();
    let field = |line: &str| {
        let (name, value) = line
            .split_once(':')
            .unwrap_or_else(|| panic!("header line {line:?}"));
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    let headers = lines.filter(|line| !line.is_empty()).map(field).collect();
    Attempt {
        method,
        target,
        headers,
        head,
        body: Vec::new(),
        connection,
        reused,
        written: 0,
        finished: false,
        closed: None,
    }
}
