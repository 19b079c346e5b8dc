//! Scripted engine, fast enough never to be the limit.
//!
//! Takes: chat requests whose `model` and `max_tokens` say how to answer (see `scenario`).
//! Gives: answers shaped like vLLM's, each chunk a separate write unless the scenario wants batches.
//! Remembers: the requests in progress.
//! Never: stops by itself; the process that started it kills it.

use crate::frames::{Frames, json_answer};
use crate::scenario::Pace;
use crate::stamp::Stamped;
use socket2::SockRef;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind, Write};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local, yield_now};

/// Serves on a free loopback port and prints the address to stdout.
pub(crate) fn run() -> io::Result<bool> {
    let (submit, submitted) = channel();
    std::thread::spawn(move || pacer(&submitted));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    LocalSet::new().block_on(&runtime, async move {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
        // Two thousand streams arrive at once.
        socket.listen(4096)?;
        socket.set_nonblocking(true)?;
        let listener = TcpListener::from_std(socket.into())?;
        println!("listening {}", listener.local_addr()?);
        let frames = Rc::new(Frames::new());
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let connection = Connection {
                stream,
                input: Vec::new(),
                frames: Rc::clone(&frames),
                pacer: submit.clone(),
            };
            // A connection may end early because of the proxy; the load client notices that.
            spawn_local(async move { connection.serve().await.ok() });
        }
    })
}

struct ChatParams {
    pace: Pace,
    chunks: usize,
    usage: bool,
}

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    frames: Rc<Frames>,
    pacer: Sender<Slot>,
}

impl Connection {
    async fn serve(mut self) -> io::Result<()> {
        while let Some(ask) = self.ask().await? {
            let Some(ask) = ask else {
                self.stream.write_all(&json_answer(MODELS)).await?;
                continue;
            };
            match ask.pace {
                Pace::Whole => self.stream.write_all(self.frames.whole()).await?,
                Pace::Flat(batch) => self.flat(&ask, batch).await?,
                Pace::Paced(_) | Pace::Step(_) | Pace::Stamped(_) => self.paced(ask).await?,
            }
        }
        Ok(())
    }

    /// Reads the next request. `Some(None)` is no chat request, such as a probe.
    async fn ask(&mut self) -> io::Result<Option<Option<ChatParams>>> {
        loop {
            if let Some(end) = find(&self.input, b"\r\n\r\n") {
                let length = content_length(&self.input[..end]);
                let whole = end + 4 + length;
                if self.input.len() >= whole {
                    let line = self.input.split(|byte| *byte == b'\r').next();
                    let is_chat =
                        line.is_some_and(|line| find(line, b"/chat/completions").is_some());
                    let ask = is_chat
                        .then(|| read_ask(&self.input[end + 4..whole]))
                        .flatten();
                    self.input.drain(..whole);
                    return Ok(Some(ask));
                }
            }
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Ok(None);
            }
        }
    }

    async fn flat(&mut self, ask: &ChatParams, batch: usize) -> io::Result<()> {
        self.stream.write_all(self.frames.head()).await?;
        self.stream.write_all(self.frames.role()).await?;
        let mut sent = 0;
        while sent < ask.chunks {
            let count = batch.min(ask.chunks - sent);
            self.stream
                .write_all(self.frames.deltas(sent, count))
                .await?;
            sent += count;
            // Lets the next stream write: in an engine step each stream gets a token.
            yield_now().await;
        }
        self.stream.write_all(self.frames.finish()).await?;
        if ask.usage {
            self.stream.write_all(self.frames.usage()).await?;
        }
        self.stream.write_all(self.frames.done()).await
    }

    async fn paced(&mut self, ask: ChatParams) -> io::Result<()> {
        self.stream.write_all(self.frames.head()).await?;
        self.stream.write_all(self.frames.role()).await?;
        // The engine has its first token ready when it starts to answer.
        self.stream.write_all(self.frames.deltas(0, 1)).await?;
        let stream = std::net::TcpStream::from(SockRef::from(&self.stream).try_clone()?);
        let (over, wait) = oneshot::channel();
        let slot = Slot {
            stream,
            sent: 1,
            ask,
            over,
        };
        self.pacer
            .send(slot)
            .map_err(|_gone| io::Error::from(ErrorKind::BrokenPipe))?;
        match wait.await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(io::Error::from(ErrorKind::BrokenPipe)),
        }
    }
}

/// List of models, which some gateways route by. Every other path without a chat body gets it as well.
const MODELS: &str = r#"{"object":"list","data":[{"id":"bench","object":"model"}]}"#;

fn find(within: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(within, what)
}

fn content_length(head: &[u8]) -> usize {
    String::from_utf8_lossy(head)
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

fn read_ask(body: &[u8]) -> Option<ChatParams> {
    let word = body.get(find(body, b"\"bench-")? + 1..)?;
    let word = word.split(|byte| *byte == b'"').next()?;
    let pace = Pace::from_word(std::str::from_utf8(word).ok()?)?;
    let chunks = after(body, b"\"max_tokens\"")
        .or_else(|| after(body, b"\"max_completion_tokens\""))
        .map_or(0, |number| {
            number
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'))
        });
    let usage = after(body, b"\"include_usage\"").is_some_and(|value| value.starts_with(b"true"));
    Some(ChatParams {
        pace,
        chunks,
        usage,
    })
}

/// Returns the bytes after a key and its colon.
fn after<'a>(body: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let rest = &body[find(body, key)? + key.len()..];
    let value = rest.iter().position(|byte| !matches!(byte, b':' | b' '))?;
    Some(&rest[value..])
}

// === paced streams ===

/// Stream whose chunks are sent at set times, handed to the pacer thread.
struct Slot {
    stream: std::net::TcpStream,
    sent: usize,
    ask: ChatParams,
    /// Reports at the end whether the whole stream was sent.
    over: oneshot::Sender<bool>,
}

/// Sends every paced stream from one thread that sleeps with microsecond precision. A runtime's timer ticks in
/// milliseconds and would bunch ten streams of two hundred together.
fn pacer(submitted: &Receiver<Slot>) {
    let (frames, mut stamped) = (Frames::new(), Stamped::new());
    let epoch = Instant::now();
    let mut slots: Vec<Option<Slot>> = Vec::new();
    let mut due: BinaryHeap<Reverse<(Instant, usize)>> = BinaryHeap::new();
    let mut turn = 0_u32;
    loop {
        let next = due.peek().map(|Reverse((at, _))| *at);
        let wait = next.map_or(Duration::MAX, |at| {
            at.saturating_duration_since(Instant::now())
        });
        let arrival = if wait.is_zero() {
            submitted
                .try_recv()
                .map_err(|error| error == TryRecvError::Disconnected)
        } else if wait == Duration::MAX {
            submitted.recv().map_err(|_gone| true)
        } else {
            submitted
                .recv_timeout(wait)
                .map_err(|error| error == RecvTimeoutError::Disconnected)
        };
        match arrival {
            Ok(slot) => {
                turn = turn.wrapping_add(1);
                let at = first_due(slot.ask.pace, epoch, turn);
                let place = slots.iter().position(Option::is_none).unwrap_or_else(|| {
                    slots.push(None);
                    slots.len() - 1
                });
                slots[place] = Some(slot);
                due.push(Reverse((at, place)));
                continue;
            }
            Err(true) => return,
            Err(false) => {}
        }
        let now = Instant::now();
        while let Some(Reverse((at, place))) = due.peek().copied() {
            if at > now {
                break;
            }
            due.pop();
            let Some(slot) = slots[place].as_mut() else {
                continue;
            };
            match slot.advance(&frames, &mut stamped) {
                Some(outcome) => {
                    if let Some(slot) = slots[place].take() {
                        // The connection may have been closed meanwhile; then no task waits.
                        slot.over.send(outcome).ok();
                    }
                }
                None => due.push(Reverse((at + slot.ask.pace.period(), place))),
            }
        }
    }
}

/// Returns the time of a stream's first chunk. Evenly spread streams start one golden section of the period apart;
/// steps fall on multiples of the period.
fn first_due(pace: Pace, epoch: Instant, turn: u32) -> Instant {
    let period = pace.period();
    let now = Instant::now();
    if matches!(pace, Pace::Step(_)) {
        let past = now.duration_since(epoch).as_nanos() / period.as_nanos().max(1);
        return epoch + period * (u32::try_from(past).unwrap_or(u32::MAX) + 2);
    }
    now + period.mul_f64((f64::from(turn) * 0.618_033_988_749_895).fract())
}

impl Slot {
    /// Sends the chunk that is due. Returns `Some` when the stream is over: true if it was sent completely.
    fn advance(&mut self, frames: &Frames, stamped: &mut Stamped) -> Option<bool> {
        let outcome = if self.sent < self.ask.chunks {
            let delta = match self.ask.pace {
                Pace::Stamped(_) => stamped.now(),
                _ => frames.deltas(self.sent, 1),
            };
            self.write(delta).map(|()| None)
        } else {
            self.end(frames).map(|()| Some(true))
        };
        self.sent += 1;
        outcome.unwrap_or(Some(false))
    }

    fn end(&mut self, frames: &Frames) -> io::Result<()> {
        self.write(frames.finish())?;
        if self.ask.usage {
            self.write(frames.usage())?;
        }
        self.write(frames.done())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                // Paced streams leave the socket's buffer nearly empty, so a full one means that the other side
                // does not read.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
