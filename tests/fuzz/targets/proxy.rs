//! samewire inside this process, with an engine that gives a prepared answer and records its requests.

use samewire::config::Config;
use samewire::server::{Listeners, PassedSockets, run_on};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Time after which an exchange counts as hanging.
const PATIENCE: Duration = Duration::from_secs(5);

/// Body that every chat route accepts.
pub(crate) const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"a"}]}"#;
/// Engine's answer to [`BODY`].
pub(crate) const ANSWER: &str = r#"{"id":"a","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;

/// Running samewire and its engine, shared by all inputs of the process.
struct Running {
    proxy: SocketAddr,
    desk: Mutex<EngineRecord>,
}

/// Prepared answer of the engine, and the requests it has received.
#[derive(Default)]
struct EngineRecord {
    answer: Vec<u8>,
    asked: Vec<Vec<u8>>,
}

static RUNNING: OnceLock<Running> = OnceLock::new();

fn running() -> &'static Running {
    RUNNING.get_or_init(|| {
        let engine = TcpListener::bind("127.0.0.1:0").expect("a port");
        let text = format!(
            "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nthreads = 1\n\
             wire = {{ parser = \"off\" }}\n[[upstream]]\nurl = \"http://{}\"\nengine = \"vllm\"\n",
            engine.local_addr().expect("an address"),
        );
        let config = Config::read(&text, &[]).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let listeners = Listeners::bind(&config, PassedSockets::default()).expect("ports");
        let proxy = listeners.proxy().expect("an address");
        std::thread::spawn(move || {
            for stream in engine.incoming().flatten() {
                std::thread::spawn(move || serve(stream));
            }
        });
        std::thread::spawn(move || {
            // The server returns only after a signal, which is meant for the whole program.
            run_on(listeners, config, None).expect("it serves");
            std::process::exit(1);
        });
        Running {
            proxy,
            desk: Mutex::default(),
        }
    })
}

fn desk() -> MutexGuard<'static, EngineRecord> {
    running()
        .desk
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Serves one request, then closes the connection. Requests other than generations get a fixed answer and are not
/// recorded.
fn serve(mut stream: TcpStream) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let Some(request) = request(&mut stream) else {
        return;
    };
    let answer = if request.starts_with(b"POST ") {
        let mut desk = desk();
        desk.asked.push(request);
        desk.answer.clone()
    } else {
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}".to_vec()
    };
    let _ = stream.write_all(&answer);
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Reads a request, which must have samewire's own framing.
fn request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let head = read.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = head {
            let text = std::str::from_utf8(&read[..end])
                .expect("a head is text")
                .to_ascii_lowercase();
            assert!(!text.contains("\r\ntransfer-encoding:"), "{text}");
            let mut lengths = text
                .lines()
                .filter_map(|line| line.strip_prefix("content-length: "));
            let length: usize = lengths.next().unwrap_or("0").parse().expect("a number");
            assert_eq!(lengths.next(), None, "{text}");
            if read.len() >= end + 4 + length {
                assert_eq!(read.len(), end + 4 + length, "more than one request");
                return Some(read);
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(count) => read.extend_from_slice(&buffer[..count]),
        }
    }
}

/// Bytes that a client received, and the requests that the engine received meanwhile.
pub(crate) struct Seen {
    pub(crate) client: Vec<u8>,
    pub(crate) engine: Vec<Vec<u8>>,
}

/// Time for which a client waits for an answer before it closes its sending side.
const PAUSE: Duration = Duration::from_millis(10);

/// Sends a request to samewire and reads until everything is answered. The engine answers with `answer`.
pub(crate) fn send(bytes: &[u8], answer: &[u8]) -> Seen {
    exchange(bytes, answer, PATIENCE)
}

/// Sends bytes that may be a part of a request, or anything else.
pub(crate) fn send_any(bytes: &[u8], answer: &[u8]) -> Seen {
    exchange(bytes, answer, PAUSE)
}

/// Sends HTTP/2 frames and reads until nothing more comes.
pub(crate) fn send_frames(bytes: &[u8], answer: &[u8]) -> Seen {
    exchange_until(bytes, answer, PAUSE, |_| false)
}

fn exchange(bytes: &[u8], answer: &[u8], pause: Duration) -> Seen {
    exchange_until(bytes, answer, pause, |client| answers(client).is_some())
}

fn exchange_until(
    bytes: &[u8],
    answer: &[u8],
    pause: Duration,
    is_answered: fn(&[u8]) -> bool,
) -> Seen {
    static ONE: Mutex<()> = Mutex::new(());
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let address = running().proxy;
    *desk() = EngineRecord {
        answer: answer.to_vec(),
        asked: Vec::new(),
    };
    let mut stream = TcpStream::connect(address).expect("samewire listens");
    stream.set_read_timeout(Some(pause)).expect("a timeout");
    stream.set_nodelay(true).expect("an option");
    // A request that is refused need not be read, so writing may fail.
    let _ = stream.write_all(bytes);
    let (mut client, mut left) = (Vec::new(), false);
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                client.extend_from_slice(&buffer[..count]);
                // The client closes once every request has its response.
                if !left && is_answered(&client) {
                    left = true;
                    let _ = stream.shutdown(Shutdown::Write);
                    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) if error.kind() == ErrorKind::WouldBlock && !left => {
                left = true;
                let _ = stream.shutdown(Shutdown::Write);
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            }
            Err(error) => panic!(
                "{error}: {} gave {}",
                bytes.escape_ascii(),
                client.escape_ascii()
            ),
        }
    }
    Seen {
        client,
        engine: std::mem::take(&mut desk().asked),
    }
}

/// Response of samewire, parsed from the bytes that the client received.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        found.next().map(|(_, value)| value.as_str())
    }
}

/// Parses bytes into responses. Returns `None` if they are anything else, or incomplete.
pub(crate) fn answers(mut bytes: &[u8]) -> Option<Vec<Answer>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let mut lines = head.split("\r\n");
        let status = lines
            .next()?
            .strip_prefix("HTTP/1.")?
            .get(2..5)?
            .parse()
            .ok()?;
        let pair = |line: &str| {
            let (name, value) = line
                .split_once(": ")
                .or_else(|| Some((line.strip_suffix(':')?, "")))?;
            Some((name.to_owned(), value.to_owned()))
        };
        let headers: Vec<_> = lines.map(pair).collect::<Option<_>>()?;
        bytes = &bytes[end + 4..];
        let mut answer = Answer {
            status,
            headers,
            body: Vec::new(),
        };
        if status == 101 {
            // The bytes after the upgrade are not HTTP.
            answer.body = std::mem::take(&mut bytes).to_vec();
        } else if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                let line = bytes.windows(2).position(|window| window == b"\r\n")?;
                let size =
                    usize::from_str_radix(std::str::from_utf8(&bytes[..line]).ok()?, 16).ok()?;
                let data = bytes.get(line + 2..line + 2 + size)?;
                answer.body.extend_from_slice(data);
                bytes = bytes.get(line + 2 + size..)?.strip_prefix(b"\r\n")?;
                if size == 0 {
                    break;
                }
            }
        } else {
            let length = answer
                .header("content-length")
                .map_or(Some(0), |text| text.parse().ok())?;
            answer.body = bytes.get(..length)?.to_vec();
            bytes = &bytes[length..];
        }
        all.push(answer);
    }
    Some(all)
}

/// Returns a whole answer of an engine with more header lines, each with its line end.
pub(crate) fn engine(status: &str, lines: &[u8], body: &str) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    [head.as_bytes(), lines, b"\r\n", body.as_bytes()].concat()
}

/// Returns a chat request with more header lines, each with its line end.
pub(crate) fn client(lines: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: samewire\r\ncontent-length: {}\r\n",
        BODY.len()
    );
    [head.as_bytes(), lines, b"\r\n", BODY.as_bytes()].concat()
}
