//! HTTP/1.1 client of the loopback tests: sends arbitrary bytes, reads at its own pace, and closes the connection
//! at any point, by FIN or by reset.

use super::chunks::{Chunks, Piece, find};
use super::engine::CloseKind;
use super::{KEY, PATIENCE, PROMPT, within};
use serde::Deserialize;
use serde_json::Value;
use socket2::{Domain, SockRef, Socket, Type};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// HTTP/1.1 request, built line by line and written exactly as built: the builder corrects nothing, so tests can
/// break the framing.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    target: String,
    version: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// Creates a request without a body, with a `host` header and the test's API key.
    pub fn new(method: &str, target: &str) -> Self {
        let headers = vec![
            ("host".into(), "localhost".into()),
            ("authorization".into(), format!("Bearer {KEY}")),
        ];
        Self {
            method: method.into(),
            target: target.into(),
            version: "HTTP/1.1".into(),
            headers,
            body: Vec::new(),
        }
    }

    /// Creates a GET request.
    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// Creates a POST request with a JSON body and its `content-length`.
    pub fn post(target: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::new("POST", target)
            .header("content-type", "application/json")
            .body(body)
    }

    /// Creates a chat completions request with this body.
    pub fn chat(body: impl Into<Vec<u8>>) -> Self {
        Self::post("/v1/chat/completions", body)
    }

    /// Creates a streaming chat request. `more` is further JSON members, each starting with a comma.
    pub fn stream(more: &str) -> Self {
        Self::chat(format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"{PROMPT}"}}],"stream":true{more}}}"#
        ))
    }

    /// Creates a chat request without streaming. `more` is further JSON members, each starting with a comma.
    pub fn plain(more: &str) -> Self {
        Self::chat(format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"{PROMPT}"}}]{more}}}"#
        ))
    }

    /// Appends a header line.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Removes every header line with this name.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    /// Replaces the protocol version of the request line.
    pub fn version(mut self, version: &str) -> Self {
        self.version = version.into();
        self
    }

    /// Replaces the request target.
    pub fn target(mut self, target: &str) -> Self {
        self.target = target.into();
        self
    }

    /// Sets the body and its length.
    pub fn body(self, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let mut this = self
            .without("content-length")
            .header("content-length", &body.len().to_string());
        this.body = body;
        this
    }

    /// Sends the same body in chunked transfer coding, in chunks of `size` bytes.
    pub fn chunked(self, size: usize) -> Self {
        let mut framed = Vec::new();
        for piece in self.body.chunks(size) {
            framed.extend(format!("{:x}\r\n", piece.len()).into_bytes());
            framed.extend_from_slice(piece);
            framed.extend_from_slice(b"\r\n");
        }
        framed.extend_from_slice(b"0\r\n\r\n");
        let mut this = self
            .without("content-length")
            .header("transfer-encoding", "chunked");
        this.body = framed;
        this
    }

    /// Request method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Header lines, in the order in which they are sent.
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// Request target.
    pub fn path(&self) -> &str {
        &self.target
    }

    /// Returns the body bytes as they are sent, without the head.
    pub fn sent_body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the bytes of the head, with its empty line.
    pub fn head_bytes(&self) -> Vec<u8> {
        let mut out = format!("{} {} {}\r\n", self.method, self.target, self.version);
        for (name, value) in &self.headers {
            out.push_str(&format!("{name}: {value}\r\n"));
        }
        out.push_str("\r\n");
        out.into_bytes()
    }

    /// Returns the bytes of head and body.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.head_bytes();
        out.extend_from_slice(&self.body);
        out
    }

    /// Sends the request on a new connection.
    pub async fn send(&self, to: SocketAddr) -> Client {
        Client::sending(to, &self.bytes()).await
    }

    /// Sends the request on a new connection, and reads the head of the response, which must have status 200.
    pub async fn begin(&self, to: SocketAddr) -> Client {
        let mut client = self.send(to).await;
        assert_eq!(client.head().await.status, 200);
        client
    }

    /// Sends the request as [`Self::begin`] does, and reads events until one contains `what`.
    pub async fn begin_until(&self, to: SocketAddr, what: &str) -> Client {
        let mut client = self.begin(to).await;
        client.event_with(what).await;
        client
    }

    /// Sends the request on a new connection with a small receive buffer.
    pub async fn send_narrow(&self, to: SocketAddr) -> Client {
        let mut client = Client::connect_narrow(to).await;
        client.send(&self.bytes()).await;
        client
    }

    /// Sends the request on a new connection and reads the whole response.
    pub async fn answer(&self, to: SocketAddr) -> Answer {
        self.send(to).await.answer().await
    }

    /// Repeats the request until its answer is as `is_good` wants it, and returns that answer.
    pub async fn answer_until(&self, to: SocketAddr, is_good: impl Fn(&Answer) -> bool) -> Answer {
        self.answer_within(PATIENCE, to, is_good).await
    }

    /// Does what [`Self::answer_until`] does, for at most `limit`.
    pub async fn answer_within(
        &self,
        limit: Duration,
        to: SocketAddr,
        is_good: impl Fn(&Answer) -> bool,
    ) -> Answer {
        let start = Instant::now();
        loop {
            let answer = self.answer(to).await;
            if is_good(&answer) {
                return answer;
            }
            let (status, text) = (answer.head.status, String::from_utf8_lossy(&answer.body));
            assert!(
                start.elapsed() < limit,
                "{} stays {status}: {text}",
                self.target
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Status line and headers of a response, including an interim (1xx) one.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// Protocol version, such as `HTTP/1.1`.
    pub version: String,
    /// Status code.
    pub status: u16,
    /// Header lines in order; names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// Returns the value of a header. Fails the test if the header occurs more than once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(n, _)| n == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "header {name} twice");
        value
    }
}

/// Mark by which a response body ended: it tells a complete body from a truncated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The last chunk of chunked transfer coding.
    LastChunk,
    /// The last byte that `content-length` announced.
    Length,
    /// The close of the connection, where neither of the above was announced.
    Close,
    /// A close of the connection before the announced end: the body is truncated.
    Short,
    /// A connection reset.
    Reset,
}

/// Error object in the body of an HTTP error.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorBody {
    /// Description for people.
    pub message: String,
    /// Error type: `invalid_request_error` …
    #[serde(rename = "type")]
    pub kind: String,
    /// Request field that is at fault.
    pub param: Option<String>,
    /// Error code for programs.
    pub code: Option<String>,
    /// Name of the plan, with `usage_limit_reached` only.
    #[serde(default)]
    pub plan_type: Option<String>,
    /// Time at which the limit starts anew, in seconds since 1970; with `usage_limit_reached` only.
    #[serde(default)]
    pub resets_at: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Faulty {
    error: ErrorBody,
}

impl ErrorBody {
    /// Parses an error body. Fails the test unless it has exactly the four members in their order, and only the
    /// extra ones that `usage_limit_reached` has.
    pub fn parse(body: &str) -> Self {
        let parsed: Faulty =
            serde_json::from_str(body).unwrap_or_else(|e| panic!("{e} in error body {body:?}"));
        let mut at = 0;
        for key in [
            r#"{"error":{"message":"#,
            r#","type":"#,
            r#","param":"#,
            r#","code":"#,
        ] {
            let found = body[at..]
                .find(key)
                .unwrap_or_else(|| panic!("no {key} in its place in {body}"));
            assert!(at > 0 || found == 0, "{body}");
            at += found + key.len();
        }
        assert!(body.ends_with("}}") && !body.contains('\n'), "{body}");
        let Self {
            kind,
            plan_type,
            resets_at,
            ..
        } = &parsed.error;
        assert_eq!(resets_at.is_some(), kind == "usage_limit_reached", "{body}");
        assert!(plan_type.is_none() || resets_at.is_some(), "{body}");
        parsed.error
    }

    /// Returns the type and the code.
    pub fn name(&self) -> (&str, Option<&str>) {
        (&self.kind, self.code.as_deref())
    }
}

/// Complete response with the time to its head, for assertions after the exchange.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status line and headers.
    pub head: Head,
    /// Body without its transfer framing.
    pub body: Vec<u8>,
    /// Mark by which the body ended.
    pub ended: Ended,
    /// Time from the call to the arrival of the head.
    pub waited: Duration,
}

impl Answer {
    /// Returns the body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("samewire writes UTF-8")
    }

    /// Parses the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    /// Returns the response, which must have this status.
    #[track_caller]
    pub fn with_status(self, status: u16) -> Self {
        assert_eq!(
            self.head.status,
            status,
            "{}",
            String::from_utf8_lossy(&self.body)
        );
        self
    }

    /// Parses the error that this response is, and checks what all HTTP errors have in common.
    pub fn fault(&self) -> ErrorBody {
        assert!(
            self.head.status >= 400,
            "an error, not {} {}",
            self.head.status,
            self.text()
        );
        assert_eq!(
            self.head.header("content-type"),
            Some("application/json"),
            "{}",
            self.text()
        );
        assert!(
            self.head.header("x-request-id").is_some(),
            "every answer has an id"
        );
        assert_eq!(self.ended, Ended::Length, "an error body has a length");
        if matches!(self.head.status, 429 | 503) {
            let seconds = self
                .head
                .header("retry-after")
                .expect("429 and 503 carry retry-after");
            assert!(
                (1..=60).contains(&seconds.parse().unwrap_or(0)),
                "retry-after: {seconds}"
            );
        }
        assert!(
            !self.text().contains("127.0.0.1"),
            "no address of an upstream: {}",
            self.text()
        );
        ErrorBody::parse(self.text())
    }

    /// Returns status, type and code of the error that this response is, in one line.
    pub fn failure(&self) -> String {
        let fault = self.fault();
        [self.head.status.to_string(), fault.kind]
            .into_iter()
            .chain(fault.code)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

enum Framing {
    None,
    Chunked(Chunks),
    Length(usize),
    Close,
}

/// Client connection to samewire, with the state of the response that is being read.
pub struct Client {
    stream: TcpStream,
    inbox: Vec<u8>,
    framing: Framing,
    ended: Option<Ended>,
    text: Vec<u8>,
    patience: Duration,
}

impl Client {
    /// Connects to `to`.
    pub async fn connect(to: SocketAddr) -> Self {
        let stream = within("connect", TcpStream::connect(to))
            .await
            .expect("samewire accepts");
        Self::over(stream)
    }

    /// Connects to `to` and writes these bytes.
    pub async fn sending(to: SocketAddr, bytes: &[u8]) -> Self {
        let mut client = Self::connect(to).await;
        client.send(bytes).await;
        client
    }

    /// Connects with a small receive buffer, so that the kernel does not hide a client that has stopped reading.
    pub async fn connect_narrow(to: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket
            .set_recv_buffer_size(32 * 1024)
            .expect("a TCP socket");
        socket.connect(&to.into()).expect("samewire accepts");
        socket.set_nonblocking(true).expect("a TCP socket");
        Self::over(TcpStream::from_std(socket.into()).expect("a TCP socket"))
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a TCP socket");
        let patience = PATIENCE;
        Self {
            stream,
            inbox: Vec::new(),
            framing: Framing::None,
            ended: None,
            text: Vec::new(),
            patience,
        }
    }

    /// Sets how long the server may be silent, or take to read bytes sent at once, before the test fails.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Returns the connection after a response head, and the bytes that have been read after that head.
    pub(super) fn into_parts(self) -> (TcpStream, Vec<u8>) {
        (self.stream, self.inbox)
    }

    /// Writes all of `bytes`; fails the test if the connection breaks.
    pub async fn send(&mut self, bytes: &[u8]) {
        assert!(self.try_send(bytes).await, "samewire takes the bytes");
    }

    /// Writes `bytes` as far as the connection takes them. Returns false if the connection breaks first.
    pub async fn try_send(&mut self, bytes: &[u8]) -> bool {
        let sent = tokio::time::timeout(self.patience, self.stream.write_all(bytes)).await;
        sent.expect("samewire takes bytes in time").is_ok()
    }

    /// Sends FIN and keeps reading.
    pub async fn half_close(&mut self) {
        // An error only means that the other side closed first.
        let _ = self.stream.shutdown().await;
    }

    /// Closes the connection and returns the time just before.
    pub fn leave(self, manner: CloseKind) -> Instant {
        leave(self.stream, manner)
    }

    /// Reads the next response head, including a 1xx one. Returns `None` if the connection is closed before its
    /// first byte.
    pub async fn try_head(&mut self) -> Option<Head> {
        let end = loop {
            if let Some(end) = find(&self.inbox, b"\r\n\r\n") {
                break end + 4;
            }
            if let Err(ended) = self.fill().await {
                assert!(
                    self.inbox.is_empty(),
                    "{ended:?} within a head: {:?}",
                    String::from_utf8_lossy(&self.inbox)
                );
                self.ended = Some(ended);
                return None;
            }
        };
        let rest = self.inbox.split_off(end);
        let head = std::mem::replace(&mut self.inbox, rest);
        let head = parse_head(std::str::from_utf8(&head).expect("heads are ASCII"));
        self.frame(&head);
        Some(head)
    }

    /// Reads the next response head.
    pub async fn head(&mut self) -> Head {
        self.try_head().await.expect("an answer, not a close")
    }

    /// Reads the head of a response to HEAD, which has no body whatever its headers announce.
    pub async fn head_without_body(&mut self) -> Head {
        let head = self.head().await;
        self.framing = Framing::Length(0);
        head
    }

    fn frame(&mut self, head: &Head) {
        self.ended = None;
        self.text.clear();
        let length = head
            .header("content-length")
            .map(|n| n.parse().expect("a length"));
        self.framing = match (head.header("transfer-encoding"), length) {
            (Some("chunked"), None) => Framing::Chunked(Chunks::default()),
            (None, Some(n)) => Framing::Length(n),
            (None, None) if matches!(head.status, 100..=199 | 204 | 304) => Framing::Length(0),
            (None, None) => Framing::Close,
            both => panic!("framed twice: {both:?}"),
        };
    }

    /// Reads the next piece of the body. Returns `None` at its end.
    pub async fn piece(&mut self) -> Option<Vec<u8>> {
        loop {
            if self.ended.is_some() {
                return None;
            }
            let got = std::mem::take(&mut self.inbox);
            match &mut self.framing {
                Framing::None => panic!("a body before its head"),
                Framing::Chunked(chunks) => {
                    chunks.feed(&got);
                    match chunks.next() {
                        Piece::Data(data) => return Some(data),
                        Piece::Last(rest) => {
                            self.inbox = rest;
                            self.ended = Some(Ended::LastChunk);
                            continue;
                        }
                        Piece::Wait => {}
                    }
                }
                Framing::Length(left) => {
                    let mut got = got;
                    self.inbox = got.split_off(got.len().min(*left));
                    *left -= got.len();
                    if !got.is_empty() {
                        return Some(got);
                    }
                    if *left == 0 {
                        self.ended = Some(Ended::Length);
                        continue;
                    }
                }
                Framing::Close if !got.is_empty() => return Some(got),
                Framing::Close => {}
            }
            if let Err(ended) = self.fill().await {
                let promised = !matches!(self.framing, Framing::Close);
                self.ended = Some(if promised && ended == Ended::Close {
                    Ended::Short
                } else {
                    ended
                });
            }
        }
    }

    /// Reads the next SSE event or comment, without its blank line. Returns `None` at the end of the body.
    pub async fn event(&mut self) -> Option<String> {
        let mut searched = 0;
        loop {
            if let Some(end) = find(&self.text[searched..], b"\n\n").map(|end| searched + end) {
                let rest = self.text.split_off(end + 2);
                let event = std::mem::replace(&mut self.text, rest);
                return Some(
                    String::from_utf8(event[..end].to_vec()).expect("samewire writes UTF-8"),
                );
            }
            let Some(piece) = self.piece().await else {
                assert!(
                    self.text.is_empty(),
                    "half an event: {:?}",
                    String::from_utf8_lossy(&self.text)
                );
                return None;
            };
            searched = self.text.len().saturating_sub(1);
            self.text.extend(piece);
        }
    }

    /// Reads events until one contains `what`.
    pub async fn event_with(&mut self, what: &str) -> String {
        loop {
            let event = self
                .event()
                .await
                .unwrap_or_else(|| panic!("no event with {what}"));
            if event.contains(what) {
                return event;
            }
        }
    }

    /// Reads the response head, which must have status 200, then events until one contains `what`.
    pub async fn event_with_head(&mut self, what: &str) -> String {
        assert_eq!(self.head().await.status, 200);
        self.event_with(what).await
    }

    /// Returns how the body ended, once [`Self::piece`] has returned `None`.
    pub fn ended(&self) -> Ended {
        self.ended.expect("the body has ended")
    }

    /// Reads the rest of the body.
    pub async fn rest(&mut self) -> Vec<u8> {
        let mut body = std::mem::take(&mut self.text);
        while let Some(piece) = self.piece().await {
            body.extend(piece);
        }
        body
    }

    /// Reads a complete response.
    pub async fn answer(&mut self) -> Answer {
        self.try_answer().await.expect("an answer, not a close")
    }

    /// Reads a complete response. Returns `None` if the connection is closed instead.
    pub async fn try_answer(&mut self) -> Option<Answer> {
        let start = Instant::now();
        let head = self.try_head().await?;
        let waited = start.elapsed();
        let body = self.rest().await;
        Some(Answer {
            head,
            body,
            ended: self.ended(),
            waited,
        })
    }

    /// Waits for samewire to close the connection. Returns false if it sends anything more.
    pub async fn closes(&mut self) -> bool {
        self.inbox.is_empty() && self.fill().await.is_err()
    }

    /// Reads once from the socket into the inbox. Fails with how the connection ended.
    async fn fill(&mut self) -> Result<(), Ended> {
        loop {
            let readable = tokio::time::timeout(self.patience, self.stream.readable()).await;
            readable
                .expect("bytes from samewire in time")
                .map_err(|_| Ended::Reset)?;
            match self.stream.try_read_buf(&mut self.inbox) {
                Ok(0) => return Err(Ended::Close),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Err(Ended::Reset),
            }
        }
    }
}

fn parse_head(text: &str) -> Head {
    let mut lines = text.split("\r\n");
    let first = lines.next().expect("a status line");
    let mut words = first.splitn(3, ' ');
    let version = words.next().expect("a version").to_owned();
    let status = words
        .next()
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{first:?}"));
    let field = |line: &str| {
        let (name, value) = line
            .split_once(':')
            .unwrap_or_else(|| panic!("header line {line:?}"));
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    Head {
        version,
        status,
        headers: lines.filter(|line| !line.is_empty()).map(field).collect(),
    }
}

/// Closes a connection and returns the time just before.
pub(super) fn leave(stream: TcpStream, manner: CloseKind) -> Instant {
    if manner == CloseKind::Rst {
        SockRef::from(&stream)
            .set_linger(Some(Duration::ZERO))
            .expect("a TCP socket");
    }
    Instant::now()
}
