//! Client and engine, which take turns: the engine sends a chunk when the client has the one before.

use crate::frames::Frames;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longest wait for a piece; valgrind slows a program by a factor of some fifty.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answer to every probe, with the version: as long as samewire does not know it, it scans thousands of answers for it.
/// Later versions are probed for their front end, too.
/// A rendered prompt is in it, too: where there is none, vLLM is requested to return it with each answer.
const PROBED: &str =
    r#"{"object":"list","data":[],"version":"0.21.0","tokens":[1],"prompt":"Hello"}"#;

/// Requests of one kind.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) story: &'static str,
    /// Bytes of the prompt.
    prompt: usize,
    /// Chunks of the answer; 0: it comes whole.
    chunks: usize,
    /// Requests before the count begins.
    pub(crate) warm_up: usize,
    pub(crate) requests: usize,
    /// True if the cost of a chunk is meant, not that of a request.
    by_chunk: bool,
}

pub(crate) const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "whole",
        story: "a small complete answer, for each request",
        prompt: 40,
        chunks: 0,
        warm_up: 100,
        requests: 200,
        by_chunk: false,
    },
    Scenario {
        name: "short",
        story: "a stream of 8 chunks, for each request",
        prompt: 40,
        chunks: 8,
        warm_up: 50,
        requests: 100,
        by_chunk: false,
    },
    Scenario {
        name: "chunk",
        story: "a stream of 4,000 chunks, for each chunk",
        prompt: 40,
        chunks: 4_000,
        warm_up: 1,
        requests: 1,
        by_chunk: true,
    },
    Scenario {
        name: "large",
        story: "a prompt of 1 MB and a complete answer, for each request",
        prompt: 1_000_000,
        chunks: 0,
        warm_up: 3,
        requests: 10,
        by_chunk: false,
    },
];

impl Scenario {
    /// Number of units whose cost is told.
    pub(crate) fn units(&self) -> f64 {
        (if self.by_chunk {
            self.chunks
        } else {
            self.requests
        }) as f64
    }

    fn request(&self) -> Vec<u8> {
        let words = "The quick brown fox jumps over the lazy dog, and says \\\"so\\\".\\n";
        let prompt: String = words
            .chars()
            .cycle()
            .take(self.prompt / words.len() * words.len())
            .collect();
        let body = format!(
            r#"{{"model":"{}-{}","messages":[{{"role":"user","content":"{prompt}Say it."}}],"stream":{},"temperature":0.7}}"#,
            "bench",
            self.chunks,
            self.chunks > 0
        );
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nuser-agent: OpenAI/Python 2.8.0\r\naccept: application/json\r\n\
             content-type: application/json\r\nauthorization: Bearer none\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.into_bytes(), body.into_bytes()].concat()
    }
}

/// Engine, and the turns that clients give it.
pub(crate) struct Traffic {
    engine: SocketAddr,
    turns: Sender<()>,
}

impl Traffic {
    /// Starts the engine.
    pub(crate) fn open() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let engine = listener.local_addr()?;
        let (turns, given) = channel();
        let given = Arc::new(Mutex::new(given));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let given = Arc::clone(&given);
                // A connection that breaks fails the client's read.
                std::thread::spawn(move || serve(stream, &given).ok());
            }
        });
        Ok(Self { engine, turns })
    }

    pub(crate) fn engine(&self) -> SocketAddr {
        self.engine
    }

    pub(crate) fn client(&self, to: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Client {
            stream,
            turns: self.turns.clone(),
        })
    }
}

/// Client with one connection.
pub(crate) struct Client {
    stream: TcpStream,
    turns: Sender<()>,
}

impl Client {
    /// Sends so many requests, one after the other, and reads the answers.
    pub(crate) fn run(&mut self, scenario: &Scenario, count: usize) -> io::Result<()> {
        let request = scenario.request();
        for _ in 0..count {
            self.stream.write_all(&request)?;
            match scenario.chunks {
                0 => self.read_whole()?,
                chunks => self.read_stream(chunks)?,
            }
        }
        Ok(())
    }

    fn read_whole(&mut self) -> io::Result<()> {
        let mut input = Vec::new();
        loop {
            self.read_more(&mut input)?;
            let Some(head) = memchr::memmem::find(&input, b"\r\n\r\n") else {
                continue;
            };
            if !input.starts_with(b"HTTP/1.1 200") {
                return Err(io::Error::other(
                    String::from_utf8_lossy(&input).into_owned(),
                ));
            }
            if input.len() >= head + 4 + content_length(&input[..head]) {
                return Ok(());
            }
        }
    }

    fn read_stream(&mut self, chunks: usize) -> io::Result<()> {
        let mut input = Vec::new();
        // The role and the first chunk come together.
        self.read_events(&mut input, 2)?;
        for _ in 1..chunks {
            self.turns.send(()).map_err(io::Error::other)?;
            input.clear();
            self.read_events(&mut input, 1)?;
        }
        self.turns.send(()).map_err(io::Error::other)?;
        while !input.ends_with(b"\r\n0\r\n\r\n") {
            self.read_more(&mut input)?;
        }
        match memchr::memmem::find(&input, b"data: [DONE]") {
            Some(_) => Ok(()),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Reads until so many events are there.
    fn read_events(&mut self, input: &mut Vec<u8>, count: usize) -> io::Result<()> {
        while memchr::memmem::find_iter(input, b"data: ").count() < count {
            self.read_more(input)?;
        }
        Ok(())
    }

    fn read_more(&mut self, input: &mut Vec<u8>) -> io::Result<()> {
        let mut space = [0; 64 << 10];
        let count = self.stream.read(&mut space)?;
        input.extend_from_slice(&space[..count]);
        if count == 0 {
            Err(ErrorKind::UnexpectedEof.into())
        } else {
            Ok(())
        }
    }
}

fn serve(mut stream: TcpStream, turns: &Mutex<Receiver<()>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let frames = Frames::new();
    let mut input = Vec::new();
    loop {
        let Some(request) = read_request(&mut stream, &mut input)? else {
            return Ok(());
        };
        match chunks_of(&request) {
            None => stream.write_all(&crate::frames::json_answer(PROBED))?,
            Some(0) => stream.write_all(frames.whole())?,
            Some(chunks) => {
                stream.write_all(&[frames.head(), frames.role(), frames.deltas(0, 1)].concat())?;
                let turns = turns.lock().map_err(|_| ErrorKind::Other)?;
                for at in 1..chunks {
                    turns.recv().map_err(io::Error::other)?;
                    stream.write_all(frames.deltas(at, 1))?;
                }
                turns.recv().map_err(io::Error::other)?;
                stream.write_all(&[frames.finish(), frames.usage(), frames.done()].concat())?;
            }
        }
    }
}

/// Reads a request with its body; `None` at the end of the connection.
fn read_request(stream: &mut TcpStream, input: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let mut space = vec![0; 64 << 10];
    loop {
        if let Some(head) = memchr::memmem::find(input, b"\r\n\r\n") {
            let end = head + 4 + content_length(&input[..head]);
            if input.len() >= end {
                return Ok(Some(input.drain(..end).collect()));
            }
        }
        let count = stream.read(&mut space)?;
        if count == 0 {
            return Ok(None);
        }
        input.extend_from_slice(&space[..count]);
    }
}

/// Returns the number of chunks that the model's name requests; `None` for a probe.
fn chunks_of(request: &[u8]) -> Option<usize> {
    if !request.starts_with(b"POST /v1/chat/completions ") {
        return None;
    }
    let name = memchr::memmem::find(request, b"\"bench-")? + b"\"bench-".len();
    let digits: String = request[name..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .map(|digit| char::from(*digit))
        .collect();
    digits.parse().ok()
}

fn content_length(head: &[u8]) -> usize {
    String::from_utf8_lossy(head)
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}
