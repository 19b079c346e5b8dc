//! HTTP connection of a soak client: writes requests, parses response heads and removes the body's framing.

use socket2::{Domain, SockRef, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// API key of every request. Must not occur in logs or metrics.
pub(crate) const KEY: &str = "sk-CANARY-SOAK-91c4";

/// Returns the bytes of a request.
pub(crate) fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: soak\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Head,
    Size,
    /// Bytes of a chunk still missing; its line end follows.
    Chunk(usize),
    Length(usize),
    /// Body up to the close of the connection.
    Close,
    /// End of the body: the last chunk, or the last announced byte, has been read.
    Over,
}

/// Reason why no more bytes of a response come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Silence beyond the time limit.
    Silence,
    /// Connection closed or reset within a message.
    Cut(String),
    /// End of the run.
    RunOver,
}

pub(crate) struct ClientConnection {
    stream: TcpStream,
    raw: Vec<u8>,
    framing: Framing,
    pub(crate) status: u16,
    pub(crate) closes: bool,
    /// Body bytes not yet taken by the caller.
    pub(crate) body: Vec<u8>,
    /// Earliest time of the next read.
    pub(crate) rest: Duration,
}

impl ClientConnection {
    pub(crate) async fn connect(to: SocketAddr, narrow: bool) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        if narrow {
            socket.set_recv_buffer_size(16 * 1024)?;
        }
        socket.set_nonblocking(true)?;
        let stream = match socket.connect(&to.into()) {
            Err(error)
                if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
            {
                return Err(error);
            }
            _ => TcpStream::from_std(socket.into())?,
        };
        tokio::time::timeout(Duration::from_secs(10), stream.writable()).await??;
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        stream.set_nodelay(true)?;
        let (raw, body) = (Vec::new(), Vec::new());
        Ok(Self {
            stream,
            raw,
            framing: Framing::Head,
            status: 0,
            closes: false,
            body,
            rest: Duration::ZERO,
        })
    }

    /// Writes a request, after resetting the state of the previous response. Bytes already received are kept: a
    /// response may come before the request is complete.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        (self.framing, self.status, self.closes) = (Framing::Head, 0, false);
        self.body.clear();
        self.stream.write_all(bytes).await
    }

    pub(crate) fn is_over(&self) -> bool {
        self.framing == Framing::Over
    }

    /// Waits for more of the response, at most until `limit` or until `told` returns true. Returns false at the end
    /// of the response.
    pub(crate) async fn more(
        &mut self,
        limit: Instant,
        told: impl Fn() -> bool,
    ) -> Result<bool, Stop> {
        if !self.rest.is_zero() {
            tokio::time::sleep(self.rest).await;
        }
        loop {
            if self.framing == Framing::Over {
                return Ok(false);
            }
            if told() {
                return Err(Stop::RunOver);
            }
            let step = Duration::from_millis(500);
            if tokio::time::timeout(step, self.stream.readable())
                .await
                .is_err()
            {
                if Instant::now() > limit {
                    return Err(Stop::Silence);
                }
                continue;
            }
            let before = self.raw.len();
            let most = if self.rest.is_zero() {
                64 * 1024
            } else {
                2 * 1024
            };
            let mut space = std::mem::take(&mut self.raw);
            space.resize(before + most, 0);
            let read = self.stream.try_read(&mut space[before..]);
            space.truncate(before + read.as_ref().copied().unwrap_or(0));
            self.raw = space;
            match read {
                Ok(0) if self.framing == Framing::Close => self.framing = Framing::Over,
                Ok(0) => return Err(Stop::Cut("end".to_owned())),
                Ok(_) => self.undo()?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(Stop::Cut(error.kind().to_string())),
            }
            return Ok(true);
        }
    }

    fn undo(&mut self) -> Result<(), Stop> {
        let raw = std::mem::take(&mut self.raw);
        let mut at = 0;
        loop {
            let rest = &raw[at..];
            match self.framing {
                Framing::Head => {
                    let Some(end) = memchr::memmem::find(rest, b"\r\n\r\n") else {
                        break;
                    };
                    self.head(&rest[..end])?;
                    at += end + 4;
                }
                Framing::Size => {
                    let Some(end) = memchr::memmem::find(rest, b"\r\n") else {
                        break;
                    };
                    let size = std::str::from_utf8(&rest[..end]).ok();
                    let size = size.and_then(|size| usize::from_str_radix(size, 16).ok());
                    let size = size.ok_or_else(|| Stop::Cut("no chunk size".to_owned()))?;
                    if size == 0 {
                        if rest.len() < end + 4 {
                            break;
                        }
                        at += end + 4;
                        self.framing = Framing::Over;
                    } else {
                        at += end + 2;
                        self.framing = Framing::Chunk(size);
                    }
                }
                Framing::Chunk(0) => {
                    if rest.len() < 2 {
                        break;
                    }
                    at += 2;
                    self.framing = Framing::Size;
                }
                Framing::Chunk(missing) | Framing::Length(missing) => {
                    let count = missing.min(rest.len());
                    if count == 0 && missing > 0 {
                        break;
                    }
                    self.body.extend_from_slice(&rest[..count]);
                    at += count;
                    self.framing = match self.framing {
                        Framing::Length(_) if missing == count => Framing::Over,
                        Framing::Length(_) => Framing::Length(missing - count),
                        _ => Framing::Chunk(missing - count),
                    };
                }
                Framing::Close => {
                    self.body.extend_from_slice(rest);
                    at = raw.len();
                    break;
                }
                Framing::Over => break,
            }
        }
        self.raw = raw;
        self.raw.drain(..at);
        if self.framing == Framing::Over && !self.raw.is_empty() {
            return Err(Stop::Cut("bytes after the answer".to_owned()));
        }
        Ok(())
    }

    fn head(&mut self, head: &[u8]) -> Result<(), Stop> {
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        self.status = status.ok_or_else(|| Stop::Cut(format!("no status: {head}")))?;
        self.closes = head.contains("\r\nconnection: close");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"));
        self.framing = match length.and_then(|length| length.trim().parse().ok()) {
            Some(0) => Framing::Over,
            Some(length) => Framing::Length(length),
            None if head.contains("\r\ntransfer-encoding: chunked") => Framing::Size,
            None => Framing::Close,
        };
        Ok(())
    }

    /// Closes the connection, by a reset or by FIN.
    pub(crate) fn leave(self, reset: bool) {
        if reset {
            // A socket that is broken already is gone as well.
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }
}
