//! The load client.
//!
//! Takes: a scenario's name, an address, a scale factor, the API, and whether chunks may be merged.
//! Gives: one line of JSON: what arrived, how fast, how soon.
//! Remembers: one decoder state for each connection; all share one read buffer.
//! Never: parses a chunk. It removes the HTTP framing, counts blank lines, looks for stamps and at the end.

use crate::scenario::{ClientApi, Pace, Scenario, named};
use crate::stamp::{self, Stamps};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_local};

/// Measurements of one run of the load client, printed as one line of JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) requests: u64,
    pub(crate) failures: u64,
    /// Number of SSE events received.
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// Microseconds from the request's last byte to the body's first, median.
    pub(crate) first_us: f64,
    pub(crate) first_p99_us: f64,
    /// Delay of a paced chunk relative to the earliest chunk of its stream, in microseconds, 99th percentile.
    pub(crate) late_p99_us: f64,
    /// Time from a stamped chunk's sending to its arrival, in microseconds, median and 99th percentile.
    pub(crate) delay_us: Option<f64>,
    pub(crate) delay_p99_us: Option<f64>,
    /// Processor time of the load client itself, in seconds.
    pub(crate) cpu_seconds: f64,
    pub(crate) complaint: Option<String>,
}

/// Word that allows a proxy to leave out or merge the events beside the deltas, as gateways do that write every
/// chunk anew.
pub(crate) const LOOSE: &str = "loose";

/// Runs the load client: `load SCENARIO ADDRESS [SCALE [WAY [loose]]]`.
pub(crate) fn run(arguments: &[String]) -> io::Result<bool> {
    let usage = || io::Error::other("load SCENARIO ADDRESS [SCALE [WAY [loose]]]");
    let scenario = arguments
        .first()
        .and_then(|name| named(name))
        .ok_or_else(usage)?;
    let address: SocketAddr = arguments
        .get(1)
        .and_then(|word| word.parse().ok())
        .ok_or_else(usage)?;
    let scale: f64 = arguments
        .get(2)
        .and_then(|word| word.parse().ok())
        .unwrap_or(1.0);
    let way = arguments
        .get(3)
        .and_then(|word| ClientApi::named(word))
        .unwrap_or(ClientApi::Chat);
    let mut plan = Plan::new(scenario, address, scale, way);
    if arguments.get(4).is_some_and(|word| word == LOOSE) {
        plan.events = plan.deltas;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let seen = LocalSet::new().block_on(&runtime, drive(scenario, plan));
    println!("{}", serde_json::to_string(&seen)?);
    Ok(seen.failures == 0)
}

async fn drive(scenario: &'static Scenario, plan: Plan) -> Seen {
    let start = Instant::now();
    let scratch: Scratch = Rc::new(RefCell::new(vec![0; 256 * 1024].into_boxed_slice()));
    let held = Rc::new(Hold {
        streams: scenario.streams,
        ..Hold::default()
    });
    let plan = Rc::new(plan);
    let tasks: Vec<_> = (0..scenario.streams)
        .map(|_| {
            let (plan, scratch, held) = (Rc::clone(&plan), Rc::clone(&scratch), Rc::clone(&held));
            spawn_local(async move {
                let outcome = client(&plan, &scratch, &held).await;
                // A failed stream must not block the others; it is counted below.
                held.begun();
                outcome
            })
        })
        .collect();
    if scenario.hold {
        wait_for_release(&held).await;
    }
    let mut seen = Seen::default();
    let mut firsts: Vec<Duration> = Vec::new();
    let mut late: Vec<Duration> = Vec::new();
    let mut delays: Vec<Duration> = Vec::new();
    for task in tasks {
        if scenario.hold && !task.is_finished() {
            task.abort();
            continue;
        }
        match task.await.map_err(io::Error::other).flatten() {
            Ok(tally) => {
                seen.requests += tally.firsts.len() as u64;
                seen.events += tally.events;
                seen.bytes += tally.bytes;
                firsts.extend(tally.firsts);
                late.extend(tally.late);
                delays.extend(tally.delays);
            }
            Err(error) => {
                seen.failures += 1;
                seen.complaint = Some(error.to_string());
            }
        }
    }
    seen.seconds = start.elapsed().as_secs_f64();
    firsts.sort_unstable();
    seen.first_us = quantile(&firsts, 0.5);
    seen.first_p99_us = quantile(&firsts, 0.99);
    late.sort_unstable();
    seen.late_p99_us = quantile(&late, 0.99);
    if !delays.is_empty() {
        delays.sort_unstable();
        seen.delay_us = Some(quantile(&delays, 0.5));
        seen.delay_p99_us = Some(quantile(&delays, 0.99));
    }
    seen.cpu_seconds = crate::process::cpu(std::process::id()).as_secs_f64();
    seen
}

fn quantile(sorted: &[Duration], at: f64) -> f64 {
    let place = (sorted.len().saturating_sub(1) as f64 * at).round() as usize;
    sorted
        .get(place)
        .map_or(0.0, |duration| duration.as_secs_f64() * 1e6)
}

type Scratch = Rc<RefCell<Box<[u8]>>>;

struct Plan {
    address: SocketAddr,
    request: Vec<u8>,
    requests: usize,
    stream: bool,
    /// Expected events; a stream with fewer is broken.
    events: u64,
    deltas: u64,
    /// Expected stamps: the first delta bears none.
    stamps: usize,
    way: ClientApi,
    /// Time between two chunks of a stream.
    period: Duration,
    /// Time between two requests of a connection.
    pause: Duration,
    /// Number of connections that have started.
    turns: Cell<f64>,
}

impl Plan {
    fn new(scenario: &Scenario, address: SocketAddr, scale: f64, way: ClientApi) -> Self {
        let scaled = |number: usize| ((number as f64 * scale) as usize).max(1);
        let paced = !scenario.pace.period().is_zero();
        let many = scenario.requests > 1;
        let chunks = if many || scenario.hold {
            scenario.chunks
        } else {
            scaled(scenario.chunks)
        };
        let stream = scenario.pace != Pace::Whole;
        debug_assert!(!(paced && many), "a paced stream is one request");
        let pace = scenario.pace.word();
        let prompt = if scenario.prompt == 0 {
            "Count.".to_owned()
        } else {
            prompt(scenario.prompt)
        };
        let chat = format!(
            r#"{{"model":"bench","messages":[{{"role":"system","content":"{pace}"}},{{"role":"user","content":"{prompt}"}}],"max_tokens":{chunks},"temperature":0,"stream":{stream}{}}}"#,
            if stream {
                r#","stream_options":{"include_usage":true}"#
            } else {
                ""
            }
        );
        let responses = format!(
            r#"{{"model":"bench","instructions":"{pace}","input":"Count.","max_output_tokens":{chunks},"temperature":0,"stream":{stream},"store":{}}}"#,
            way == ClientApi::Stored
        );
        let (path, body, more) = match way {
            // Role, finish and usage come besides the deltas.
            ClientApi::Chat => ("chat/completions", chat, 3),
            // The beginning and the end of the response, of its item and of its part: four events before and four
            // after.
            ClientApi::Responses | ClientApi::Stored => ("responses", responses, 8),
        };
        let request = format!(
            "POST /v1/{path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer bench\r\naccept: */*\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes();
        Self {
            address,
            request,
            requests: if many { scaled(scenario.requests) } else { 1 },
            stream,
            events: if stream { chunks as u64 + more } else { 0 },
            deltas: if stream { chunks as u64 } else { 0 },
            stamps: if matches!(scenario.pace, Pace::Stamped(_)) {
                chunks - 1
            } else {
                0
            },
            way,
            turns: Cell::default(),
            period: scenario.pace.period(),
            pause: match scenario.rate {
                0.0 => Duration::ZERO,
                rate => Duration::from_secs_f64(scenario.streams as f64 / rate),
            },
        }
    }
}

impl Plan {
    /// Returns a different part of the pause for each connection, between 0 and 1, so that their requests are
    /// spread.
    fn share(&self) -> f64 {
        let turn = self.turns.get();
        self.turns.set(turn + 1.0);
        (turn * 0.618_033_988_749_895).fract()
    }
}

/// Returns a long prompt as JSON spells it: lines of some eighty bytes, and two quotes in every fourth.
fn prompt(bytes: usize) -> String {
    const LINES: [&str; 4] = [
        r"The engine reads a long document, and every line of it has to pass the proxy.\n",
        r"Whoever wrote it was in no hurry: one sentence follows another without a pause.\n",
        r#"Somebody is said to have asked, \"Is that the end of it?\", and nobody replied.\n"#,
        r"It goes on about the weather, the harvest, the price of grain, and the neighbours.\n",
    ];
    let mut text = String::with_capacity(bytes);
    let mut lines = LINES.into_iter().cycle();
    while let Some(line) = lines.next().filter(|line| text.len() + line.len() <= bytes) {
        text.push_str(line);
    }
    text.extend(std::iter::repeat_n('.', bytes - text.len()));
    text
}

/// Number of open streams, for scenarios that wait until all are open.
#[derive(Default)]
struct Hold {
    streams: usize,
    open: Cell<usize>,
    /// Time at which the last stream was opened, by the clock of the stamps.
    full: Cell<Option<u64>>,
    changed: Notify,
}

impl Hold {
    fn begun(&self) {
        self.open.set(self.open.get() + 1);
        if self.open.get() == self.streams {
            self.full.set(Some(stamp::now()));
        }
        self.changed.notify_one();
    }
}

/// Prints `open` once every stream has begun, then waits for the line that ends the scenario.
async fn wait_for_release(held: &Hold) {
    while held.open.get() < held.streams {
        held.changed.notified().await;
    }
    println!("open");
    io::stdout().flush().ok();
    let (send, released) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut byte = [0];
        // The end of the input releases as well, because the contest has then ended.
        io::stdin().read_exact(&mut byte).ok();
        send.send(()).ok();
    });
    released.await.ok();
}

#[derive(Default)]
struct Tally {
    events: u64,
    bytes: u64,
    firsts: Vec<Duration>,
    late: Vec<Duration>,
    delays: Vec<Duration>,
}

/// Arrival times of a paced stream's chunks, each reduced by its planned sending time.
#[derive(Default)]
struct Arrivals(Vec<Duration>);

impl Arrivals {
    /// Events at the start and the end that are sent together with others and are not measured.
    const EDGE: u64 = 4;

    fn note(&mut self, plan: &Plan, elapsed: Duration, events: std::ops::Range<u64>) {
        let last = plan.events.saturating_sub(Self::EDGE);
        for event in events.start.max(Self::EDGE)..events.end.min(last) {
            let sent = plan.period.mul_f64(event as f64);
            // The second avoids negative times if an engine sends ahead of schedule.
            self.0
                .push((elapsed + Duration::from_secs(1)).saturating_sub(sent));
        }
    }

    fn late(self) -> impl Iterator<Item = Duration> {
        let soonest = self.0.iter().min().copied().unwrap_or_default();
        self.0.into_iter().map(move |arrival| arrival - soonest)
    }
}

async fn client(plan: &Plan, scratch: &Scratch, held: &Hold) -> io::Result<Tally> {
    let mut stream = TcpStream::connect(plan.address).await?;
    stream.set_nodelay(true)?;
    let mut tally = Tally::default();
    // Spreads the requests of the connections over time.
    let mut turn = tokio::time::Instant::now() + plan.pause.mul_f64(plan.share());
    for _ in 0..plan.requests {
        if !plan.pause.is_zero() {
            tokio::time::sleep_until(turn).await;
            turn += plan.pause;
        }
        stream.write_all(&plan.request).await?;
        let sent = Instant::now();
        let mut answer = Answer {
            stamps: (plan.stamps > 0).then(Stamps::default),
            ..Answer::default()
        };
        let mut stamps = 0;
        let mut arrivals = Arrivals::default();
        while answer.state != State::Over {
            stream.readable().await?;
            let mut buffer = scratch.borrow_mut();
            let count = match stream.try_read(&mut buffer) {
                Ok(0) => {
                    return Err(io::Error::other(format!(
                        "cut off after {} events",
                        answer.events
                    )));
                }
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            let arrived = if plan.stamps > 0 { stamp::now() } else { 0 };
            let (began, before) = (answer.bytes > 0, answer.events);
            answer.take(&buffer[..count])?;
            if let Some(read) = &mut answer.stamps {
                stamps += read.found.len();
                // Opening all streams at once delays the first chunks of each.
                let settled = |sent: &u64| held.full.get().is_some_and(|full| *sent > full);
                let delays = read
                    .found
                    .drain(..)
                    .filter(settled)
                    .map(|sent| arrived.saturating_sub(sent));
                tally.delays.extend(delays.map(Duration::from_nanos));
            }
            if !plan.period.is_zero() {
                arrivals.note(plan, sent.elapsed(), before..answer.events);
            }
            if !began && answer.bytes > 0 {
                tally.firsts.push(sent.elapsed());
                held.begun();
            }
        }
        let end: &[u8] = if plan.way == ClientApi::Chat {
            b"data: [DONE]\n\n"
        } else {
            b"}}\n\n"
        };
        tally.late.extend(arrivals.late());
        if plan.stream && !(answer.events >= plan.events && answer.tail.ends_with(end)) {
            return Err(io::Error::other(format!(
                "{} events of {}, or no end",
                answer.events, plan.events
            )));
        }
        if stamps != plan.stamps {
            return Err(io::Error::other(format!(
                "{stamps} stamps of {}",
                plan.stamps
            )));
        }
        tally.events += answer.events;
        tally.bytes += answer.bytes;
    }
    Ok(tally)
}

/// Position of the next byte in an HTTP response.
#[derive(Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    Size(usize),
    /// Bytes of a chunk still missing, its line end included.
    Data(usize),
    /// Bytes of a body with a `content-length` still missing.
    Length(usize),
    Over,
}

#[derive(Default)]
struct Answer {
    state: State,
    head: Vec<u8>,
    tail: Vec<u8>,
    events: u64,
    bytes: u64,
    /// True once the last chunk has been announced: only its empty trailer is missing.
    last: bool,
    /// Reader of stamps, if the engine sends any.
    stamps: Option<Stamps>,
}

impl Answer {
    fn take(&mut self, mut input: &[u8]) -> io::Result<()> {
        while !input.is_empty() {
            match self.state {
                State::Head => {
                    let byte = input[0];
                    input = &input[1..];
                    self.head.push(byte);
                    if byte == b'\n' && self.head.ends_with(b"\r\n\r\n") {
                        self.read_head()?;
                    }
                }
                State::Size(size) => {
                    let byte = input[0];
                    input = &input[1..];
                    self.state = match (byte as char).to_digit(16) {
                        Some(digit) => State::Size(size * 16 + digit as usize),
                        None if byte == b'\r' => State::Size(size),
                        None if byte == b'\n' => {
                            self.last = size == 0;
                            State::Data(size + 2)
                        }
                        None => return Err(io::Error::other("not a chunk size")),
                    };
                }
                State::Data(missing) => {
                    let count = missing.min(input.len());
                    // The last two bytes are the line end that closes the chunk.
                    self.payload(&input[..count.min(missing.saturating_sub(2))]);
                    input = &input[count..];
                    self.state = match missing - count {
                        0 if self.last => State::Over,
                        0 => State::Size(0),
                        left => State::Data(left),
                    };
                }
                State::Length(missing) => {
                    let count = missing.min(input.len());
                    self.payload(&input[..count]);
                    input = &input[count..];
                    self.state = if missing == count {
                        State::Over
                    } else {
                        State::Length(missing - count)
                    };
                }
                State::Over => return Err(io::Error::other("bytes after the answer")),
            }
        }
        Ok(())
    }

    fn read_head(&mut self) -> io::Result<()> {
        let head = String::from_utf8_lossy(&self.head).to_ascii_lowercase();
        if !head.starts_with("http/1.1 200") {
            return Err(io::Error::other(
                head.lines().next().unwrap_or_default().to_owned(),
            ));
        }
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"));
        self.state = match length.and_then(|value| value.trim().parse().ok()) {
            Some(length) => State::Length(length),
            None => State::Size(0),
        };
        Ok(())
    }

    /// Counts blank lines, also one split across two reads.
    fn payload(&mut self, bytes: &[u8]) {
        let (Some(first), Some(_)) = (bytes.first(), bytes.last()) else {
            return;
        };
        if *first == b'\n' && self.tail.ends_with(b"\n") {
            self.events += 1;
        }
        self.events += memchr::memmem::find_iter(bytes, b"\n\n").count() as u64;
        self.bytes += bytes.len() as u64;
        if let Some(stamps) = &mut self.stamps {
            stamps.take(bytes);
        }
        self.tail
            .extend_from_slice(&bytes[bytes.len().saturating_sub(16)..]);
        let surplus = self.tail.len().saturating_sub(16);
        self.tail.drain(..surplus);
    }
}
