//! Scripted engine that speaks HTTP/2. Frames are written and read here without a library, so that the engine can
//! refuse, send GOAWAY, reset and withhold window whenever a test wants that. Request heads are not decoded: a
//! request with a body counts as a generation, one without as a probe.

use super::engine::{CloseKind, Counted, lock};
use super::frames::kinds::{DATA, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE};
use super::frames::{ACK, END_HEADERS, END_STREAM, Frame, PREFACE, frame};
use super::script::{Gate, Script, Step};
use socket2::SockRef;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

const MODELS: &str = r#"{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"vllm","max_model_len":4096}]}"#;

/// Error codes of RST_STREAM and GOAWAY.
pub const NO_ERROR: u32 = 0;
pub const INTERNAL_ERROR: u32 = 2;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;

/// Single step in the engine's answer to a request.
#[derive(Clone, Debug)]
pub enum Act {
    /// Writes a response head with this status and these header lines.
    Head(u16, Vec<(&'static str, String)>),
    /// Writes a piece of the body.
    Data(Vec<u8>),
    /// Ends the stream in an orderly way.
    End,
    /// Resets the stream with this error code.
    Reset(u32),
    /// Sends GOAWAY with this error code. With `true` this stream is still served, with `false` it is not either.
    GoAway(bool, u32),
    /// Waits until the test opens the gate.
    Await(Gate),
    /// Waits until samewire ends the stream.
    Hang,
    /// Closes the connection.
    Close(CloseKind),
}

/// Returns the body that a [`Script`] would write, as data steps.
pub fn pieces(script: Script) -> Vec<Act> {
    let bare = |step| match step {
        Step::Send(bytes) => {
            let start = bytes
                .windows(2)
                .position(|pair| pair == b"\r\n")
                .expect("a chunk")
                + 2;
            Act::Data(bytes[start..bytes.len() - 2].to_vec())
        }
        Step::Await(gate) => Act::Await(gate),
        other => panic!("{other:?} is no piece of a body"),
    };
    script.0.into_iter().map(bare).collect()
}

/// Returns the head of an SSE response.
pub fn sse() -> Act {
    Act::Head(
        200,
        vec![(
            "content-type",
            "text/event-stream; charset=utf-8".to_owned(),
        )],
    )
}

/// Returns a complete SSE response of `n` tokens.
pub fn answer(name: &str, n: usize) -> Vec<Act> {
    let body = Script::new()
        .role()
        .tok(name, n, Duration::ZERO)
        .finish("stop")
        .usage(3, 5)
        .done();
    [vec![sse()], pieces(body), vec![Act::End]].concat()
}

/// Returns a complete JSON response.
pub fn json(status: u16, body: &str) -> Vec<Act> {
    let length = body.len().to_string();
    let lines = vec![
        ("content-type", "application/json".to_owned()),
        ("content-length", length),
    ];
    vec![
        Act::Head(status, lines),
        Act::Data(body.as_bytes().to_vec()),
        Act::End,
    ]
}

/// Settings of an HTTP/2 engine, and its deviations from a well-behaved one.
#[derive(Clone, Copy, Debug, Default)]
pub struct H2Behaviour {
    /// Number of concurrent streams allowed on one connection.
    pub streams: Option<u32>,
    /// Flow-control window of a stream, in bytes, never increased; `None` takes the whole body.
    pub window: Option<u32>,
    /// True if the engine answers as soon as the head has arrived, without waiting for the body.
    pub answers_early: bool,
    /// True if the engine answers only the first ping of a connection.
    pub ignores_pings: bool,
}

/// Request as it arrived, with the outcome of its stream.
#[derive(Clone, Debug)]
pub struct H2Attempt {
    /// Number of the connection, counted from 0 for each engine.
    pub connection: usize,
    pub stream: u32,
    /// Number of the request, counted for each engine.
    pub number: usize,
    pub body: Vec<u8>,
    /// Time and error code of a stream reset by samewire.
    pub reset: Option<(Instant, u32)>,
    /// True if the script ran to its end.
    pub finished: bool,
}

type Answering = dyn Fn(&H2Attempt) -> Vec<Act> + Send + Sync;

struct Shared {
    answering: Box<Answering>,
    ways: H2Behaviour,
    attempts: Mutex<Vec<H2Attempt>>,
    connections: AtomicUsize,
    open: AtomicUsize,
    active: AtomicUsize,
}

/// Scripted HTTP/2 engine. Dropping it closes all its connections.
pub struct H2Engine {
    /// Address on which the engine listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for H2Engine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl H2Engine {
    /// Creates an engine that answers each request by the steps that `answering` returns for it.
    pub async fn answering(
        ways: H2Behaviour,
        answering: impl Fn(&H2Attempt) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            answering: Box::new(answering),
            ways,
            attempts: Mutex::default(),
            connections: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
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

    /// Returns every request but probes, in order of arrival.
    pub fn attempts(&self) -> Vec<H2Attempt> {
        lock(&self.shared.attempts).clone()
    }

    /// Waits until at least `n` requests have arrived, and returns all of them.
    pub async fn wait(&self, n: usize) -> Vec<H2Attempt> {
        super::until(&format!("{n} requests"), || self.attempts().len() >= n).await;
        self.attempts()
    }

    /// Number of requests the engine is working on.
    pub fn active(&self) -> usize {
        self.shared.active.load(Ordering::SeqCst)
    }

    /// Number of open connections.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }
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
        }
    }
}

fn head(stream: u32, status: u16, lines: &[(&str, String)]) -> Vec<u8> {
    // Literal fields without indexing; 8 refers to the name ":status".
    let mut block = vec![0x08, 3];
    block.extend(status.to_string().into_bytes());
    for (name, value) in lines {
        block.push(0);
        for text in [name.as_bytes(), value.as_bytes()] {
            block.push(u8::try_from(text.len()).expect("short"));
            block.extend_from_slice(text);
        }
    }
    frame(HEADERS, END_HEADERS, stream, &block)
}

async fn read(from: &mut OwnedReadHalf) -> Option<Frame> {
    let mut head = [0; 9];
    from.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(length).expect("short")];
    from.read_exact(&mut payload).await.ok()?;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some(Frame {
        kind: head[3],
        flags: head[4],
        stream,
        payload,
    })
}

/// Write half of a connection, shared by its streams.
type SharedWriter = Arc<tokio::sync::Mutex<OwnedWriteHalf>>;

async fn write(out: &SharedWriter, bytes: &[u8]) {
    // A closed connection is noticed by the reading task.
    let _ = out.lock().await.write_all(bytes).await;
}

async fn serve(stream: TcpStream, id: usize, shared: Arc<Shared>) {
    let counted = Arc::clone(&shared);
    let _open = Counted::up(&counted.open);
    stream.set_nodelay(true).expect("a TCP socket");
    let (mut from, out) = stream.into_split();
    let mut preface = [0; PREFACE.len()];
    if from.read_exact(&mut preface).await.is_err() || preface != PREFACE {
        return;
    }
    let out: SharedWriter = Arc::new(tokio::sync::Mutex::new(out));
    let mut settings = Vec::new();
    for (name, value) in [(3_u16, shared.ways.streams), (4, shared.ways.window)] {
        if let Some(value) = value {
            settings.extend(name.to_be_bytes());
            settings.extend(value.to_be_bytes());
        }
    }
    write(&out, &frame(SETTINGS, 0, 0, &settings)).await;
    let (running, streams) = (JoinSet::new(), HashMap::new());
    let mut connection = Connection {
        id,
        out,
        shared,
        running,
        streams,
        pinged: false,
    };
    // A separate task reads frames, so that a partly read frame is not lost when another branch is selected.
    let (tell, mut frames) = tokio::sync::mpsc::channel(64);
    let mut reading = JoinSet::new();
    reading.spawn(async move {
        while let Some(frame) = read(&mut from).await {
            if tell.send(frame).await.is_err() {
                return;
            }
        }
    });
    loop {
        tokio::select! {
            frame = frames.recv() => {
                let Some(frame) = frame else { return };
                connection.take(frame).await;
            }
            Some(ended) = connection.running.join_next() => {
                if let Ok(Some(manner)) = ended {
                    if manner == CloseKind::Rst {
                        let out = connection.out.lock().await;
                        let linger = SockRef::from((*out).as_ref()).set_linger(Some(Duration::ZERO));
                        linger.expect("a TCP socket");
                    }
                    return;
                }
            }
        }
    }
}

struct Connection {
    id: usize,
    out: SharedWriter,
    shared: Arc<Shared>,
    running: JoinSet<Option<CloseKind>>,
    streams: HashMap<u32, (usize, Option<AbortHandle>)>,
    pinged: bool,
}

impl Connection {
    async fn take(&mut self, frame: Frame) {
        let (stream, ends) = (frame.stream, frame.flags & END_STREAM != 0);
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => {
                write(&self.out, &self::frame(SETTINGS, ACK, 0, &[])).await
            }
            PING if frame.flags & ACK == 0 && !(self.shared.ways.ignores_pings && self.pinged) => {
                self.pinged = true;
                write(&self.out, &self::frame(PING, ACK, 0, &frame.payload)).await
            }
            HEADERS if ends => {
                let probe = json(200, MODELS);
                let out = Arc::clone(&self.out);
                self.running
                    .spawn(async move { play(&out, stream, probe).await });
            }
            HEADERS => {
                let number = {
                    let mut all = lock(&self.shared.attempts);
                    let number = all.len();
                    let (connection, body) = (self.id, Vec::new());
                    all.push(H2Attempt {
                        connection,
                        stream,
                        number,
                        body,
                        reset: None,
                        finished: false,
                    });
                    number
                };
                self.streams.insert(stream, (number, None));
                if self.shared.ways.answers_early {
                    self.answer(stream);
                }
            }
            DATA => {
                let number = self.streams[&stream].0;
                lock(&self.shared.attempts)[number]
                    .body
                    .extend_from_slice(&frame.payload);
                let more = u32::try_from(frame.payload.len())
                    .expect("short")
                    .to_be_bytes();
                if self.shared.ways.window.is_none() && !frame.payload.is_empty() {
                    write(&self.out, &self::frame(WINDOW_UPDATE, 0, 0, &more)).await;
                    write(&self.out, &self::frame(WINDOW_UPDATE, 0, stream, &more)).await;
                }
                if ends && !self.shared.ways.answers_early {
                    self.answer(stream);
                }
            }
            RST_STREAM => {
                let code = frame
                    .payload
                    .try_into()
                    .map(u32::from_be_bytes)
                    .expect("four bytes");
                if let Some((number, task)) = self.streams.get(&stream) {
                    lock(&self.shared.attempts)[*number].reset = Some((Instant::now(), code));
                    task.iter().for_each(AbortHandle::abort);
                }
            }
            _ => {}
        }
    }

    fn answer(&mut self, stream: u32) {
        let number = self.streams[&stream].0;
        let attempt = lock(&self.shared.attempts)[number].clone();
        let acts = (self.shared.answering)(&attempt);
        let (out, shared) = (Arc::clone(&self.out), Arc::clone(&self.shared));
        let task = self.running.spawn(async move {
            let _active = Counted::up(&shared.active);
            let end = play(&out, stream, acts).await;
            lock(&shared.attempts)[number].finished = true;
            end
        });
        self.streams.insert(stream, (number, Some(task)));
    }
}

/// Plays the steps of one stream. Everything between two waits is written at once.
async fn play(out: &SharedWriter, stream: u32, acts: Vec<Act>) -> Option<CloseKind> {
    let mut bytes = Vec::new();
    for act in acts {
        match act {
            Act::Head(status, lines) => bytes.extend(head(stream, status, &lines)),
            Act::Data(data) => data
                .chunks(16 << 10)
                .for_each(|piece| bytes.extend(frame(DATA, 0, stream, piece))),
            Act::End => bytes.extend(frame(DATA, END_STREAM, stream, &[])),
            Act::Reset(code) => bytes.extend(frame(RST_STREAM, 0, stream, &code.to_be_bytes())),
            Act::GoAway(ours, code) => {
                let last = if ours { stream } else { stream - 1 };
                bytes.extend(frame(
                    GOAWAY,
                    0,
                    0,
                    &[last.to_be_bytes(), code.to_be_bytes()].concat(),
                ));
            }
            Act::Await(gate) => {
                write(out, &std::mem::take(&mut bytes)).await;
                gate.wait().await;
            }
            Act::Hang => {
                write(out, &std::mem::take(&mut bytes)).await;
                std::future::pending::<()>().await;
            }
            Act::Close(manner) => {
                write(out, &bytes).await;
                return Some(manner);
            }
        }
    }
    write(out, &bytes).await;
    None
}
