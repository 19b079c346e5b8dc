//! HTTP/2 clients for samewire: one that sends arbitrary frames, and one that follows the protocol.

use super::client::{self, Client, Request};
use super::engine::CloseKind;
use super::frames::{ACK, END_HEADERS, END_STREAM, Frame, PREFACE, frame, kinds};
use super::within;
use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Method, Version};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Setting for the size of the header compression table (HPACK).
const HEADER_TABLE_SIZE: u16 = 1;

/// Way in which the connection ended: by an orderly close or by a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hangup {
    Fin,
    Reset,
}

/// HTTP/2 client that sends arbitrary frames, for tests of protocol violations.
pub struct RawH2Client {
    stream: TcpStream,
    inbox: Vec<u8>,
    /// True if the client acknowledges neither settings nor pings.
    pub ignores_control_frames: bool,
}

impl RawH2Client {
    /// Connects and sends the preface and empty settings.
    pub async fn open(to: SocketAddr) -> Self {
        Self::open_with(Client::connect(to).await, &[]).await
    }

    /// Connects as [`Self::open`] does, and sends a request on stream 1.
    pub async fn with_request(to: SocketAddr, request: &Request) -> Self {
        let mut this = Self::open(to).await;
        this.send_request(1, request).await;
        this
    }

    /// Sends the preface and these settings on an existing connection.
    pub async fn open_with(client: Client, settings: &[(u16, u32)]) -> Self {
        let (stream, inbox) = client.into_parts();
        let mut this = Self {
            stream,
            inbox,
            ignores_control_frames: false,
        };
        let mut payload = Vec::new();
        // Without a table, response heads do not refer to earlier ones and are easy to decode.
        for (id, value) in settings.iter().chain(&[(HEADER_TABLE_SIZE, 0)]) {
            payload.extend(id.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        this.send(&[PREFACE, &frame(kinds::SETTINGS, 0, 0, &payload)].concat())
            .await;
        this
    }

    /// Wraps a connection on which the preface and all requests have already been sent.
    pub fn resumed(client: Client) -> Self {
        let (stream, inbox) = client.into_parts();
        Self {
            stream,
            inbox,
            ignores_control_frames: false,
        }
    }

    /// Encodes the header block of a request, without compression.
    pub fn fields(request: &Request) -> Vec<u8> {
        let mut block = Vec::new();
        let host = request.headers().iter().find(|(name, _)| name == "host");
        let host = host.map(|(_, host)| (":authority", host.as_str()));
        let start = [
            (":method", request.method()),
            (":scheme", "http"),
            (":path", request.path()),
        ];
        let rest = request
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let rest = rest.filter(|(name, _)| *name != "host");
        for (name, value) in start.into_iter().chain(host).chain(rest) {
            Self::field(name, value, &mut block);
        }
        block
    }

    /// Appends one header field to a block, without compression.
    pub fn field(name: &str, value: &str, block: &mut Vec<u8>) {
        block.push(0);
        for text in [name, value] {
            let mut length = text.len();
            if length < 127 {
                block.push(length as u8);
            } else {
                block.push(127);
                length -= 127;
                while length >= 128 {
                    block.push(length as u8 | 128);
                    length /= 128;
                }
                block.push(length as u8);
            }
            block.extend_from_slice(text.as_bytes());
        }
    }

    /// Returns the frames of a request head.
    pub fn head(stream: u32, block: &[u8], is_last: bool) -> Vec<u8> {
        let pieces: Vec<_> = block.chunks(16_384).collect();
        let mut bytes = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            let kind = if at == 0 {
                kinds::HEADERS
            } else {
                kinds::CONTINUATION
            };
            let end = if at + 1 == pieces.len() {
                END_HEADERS
            } else {
                0
            };
            let last = if at == 0 && is_last { END_STREAM } else { 0 };
            bytes.extend(frame(kind, end | last, stream, piece));
        }
        bytes
    }

    /// Returns the frames of a request, head and body.
    pub fn request(stream: u32, request: &Request) -> Vec<u8> {
        let body = request.sent_body();
        let mut bytes = Self::head(stream, &Self::fields(request), body.is_empty());
        if !body.is_empty() {
            bytes.extend(frame(kinds::DATA, END_STREAM, stream, body));
        }
        bytes
    }

    /// Returns the frame that cancels a request.
    pub fn reset(stream: u32) -> Vec<u8> {
        frame(kinds::RST_STREAM, 0, stream, &8_u32.to_be_bytes())
    }

    /// Returns a WINDOW_UPDATE frame for a stream, or for the connection with stream 0.
    pub fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
        frame(kinds::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
    }

    /// Sends a request on `stream`.
    pub async fn send_request(&mut self, stream: u32, request: &Request) {
        self.send(&Self::request(stream, request)).await;
    }

    /// Sends arbitrary bytes; fails the test if the connection breaks.
    pub async fn send(&mut self, bytes: &[u8]) {
        within("send", self.stream.write_all(bytes))
            .await
            .expect("samewire takes the bytes");
    }

    /// Sends arbitrary bytes as far as they are taken. Returns false if the connection breaks first.
    pub async fn try_send(&mut self, bytes: &[u8]) -> bool {
        within("send", self.stream.write_all(bytes)).await.is_ok()
    }

    /// Closes the connection and returns the time just before.
    pub fn leave(self, manner: CloseKind) -> Instant {
        client::leave(self.stream, manner)
    }

    /// Reads the next frame. Settings and pings are acknowledged, unless the client is deaf.
    pub async fn next(&mut self) -> Result<Frame, Hangup> {
        loop {
            if let Some(frame) = self.parsed() {
                if frame.flags & ACK == 0
                    && matches!(frame.kind, kinds::SETTINGS | kinds::PING)
                    && !self.ignores_control_frames
                {
                    let payload = if frame.kind == kinds::PING {
                        frame.payload.as_slice()
                    } else {
                        &[]
                    };
                    self.try_send(&self::frame(frame.kind, ACK, 0, payload))
                        .await;
                }
                return Ok(frame);
            }
            within("bytes from samewire", self.stream.readable())
                .await
                .map_err(|_| Hangup::Reset)?;
            match self.stream.try_read_buf(&mut self.inbox) {
                Ok(0) => {
                    assert!(self.inbox.is_empty(), "half a frame");
                    return Err(Hangup::Fin);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Err(Hangup::Reset),
            }
        }
    }

    fn parsed(&mut self) -> Option<Frame> {
        let head = self.inbox.get(..9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes(head[5..].try_into().expect("four bytes"));
        let (kind, flags) = (head[3], head[4]);
        let payload = self.inbox.get(9..9 + length)?.to_vec();
        self.inbox.drain(..9 + length);
        Some(Frame {
            kind,
            flags,
            stream,
            payload,
        })
    }

    /// Reads the next frame of a kind on a stream; stream 0 is the connection.
    pub async fn next_of(&mut self, kind: u8, stream: u32) -> Frame {
        loop {
            let frame = self
                .next()
                .await
                .unwrap_or_else(|end| panic!("{end:?} before a frame {kind}"));
            let is_ack =
                matches!(frame.kind, kinds::SETTINGS | kinds::PING) && frame.flags & ACK != 0;
            if frame.kind == kind && frame.stream == stream && !is_ack {
                return frame;
            }
        }
    }

    /// Reads the next response head: its stream and status.
    pub async fn any_head(&mut self) -> (u32, u16) {
        loop {
            let frame = self
                .next()
                .await
                .unwrap_or_else(|end| panic!("{end:?} before a head"));
            if frame.kind == kinds::HEADERS {
                return (frame.stream, frame.status());
            }
        }
    }

    /// Reads until the body of a stream contains `text`.
    pub async fn read_until(&mut self, stream: u32, text: &str) {
        let mut said = String::new();
        while !said.contains(text) {
            let frame = self
                .next()
                .await
                .unwrap_or_else(|end| panic!("{end:?} after {said}"));
            if frame.kind == kinds::DATA && frame.stream == stream {
                said += &String::from_utf8_lossy(&frame.payload);
            }
        }
    }

    /// Reads until the connection ends. Returns the code of the last GOAWAY, if one came, and how the connection
    /// ended.
    pub async fn read_to_end(&mut self) -> (Option<u32>, Hangup) {
        let mut code = None;
        loop {
            match self.next().await {
                Ok(frame) if frame.kind == kinds::GOAWAY => code = Some(frame.number(4)),
                Ok(_) => {}
                Err(end) => return (code, end),
            }
        }
    }
}

/// HTTP/2 client that follows the protocol, built on the `h2` crate.
pub struct H2Client {
    sender: SendRequest<Bytes>,
    task: JoinHandle<Result<(), h2::Error>>,
}

/// Response read by [`H2Client`], with the reset that ended it, if any.
#[derive(Debug)]
pub struct H2Answer {
    pub status: u16,
    pub headers: HeaderMap,
    /// Body, up to its end or to the reset that cut it short.
    pub body: Vec<u8>,
    pub reset_reason: Option<Option<Reason>>,
}

impl H2Answer {
    /// Returns the body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    /// Returns the error code in the body, empty if it has none.
    pub fn code(&self) -> String {
        client::ErrorBody::parse(self.text())
            .code
            .unwrap_or_default()
    }
}

impl Drop for H2Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl H2Client {
    /// Connects without TLS, with prior knowledge.
    pub async fn open(to: SocketAddr) -> Self {
        let stream = within("connect", TcpStream::connect(to))
            .await
            .expect("samewire accepts");
        stream.set_nodelay(true).expect("a TCP socket");
        Self::over(stream).await
    }

    /// Starts HTTP/2 on an existing connection.
    pub async fn over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        // A large connection window, so that one unread stream does not block the others.
        let mut builder = h2::client::Builder::new();
        let shaken = builder
            .initial_connection_window_size(1 << 24)
            .handshake(io);
        let (sender, connection) = within("a handshake", shaken).await.expect("HTTP/2");
        Self {
            sender,
            task: tokio::spawn(connection),
        }
    }

    /// Sends a request and returns its response with the body unread.
    pub async fn begin(
        &mut self,
        request: &Request,
    ) -> Result<http::Response<RecvStream>, h2::Error> {
        let mut sender = within("room for a stream", self.sender.clone().ready()).await?;
        let host = request.headers().iter().find(|(name, _)| name == "host");
        let host = host.map_or("localhost", |(_, host)| host);
        let mut head = http::Request::builder()
            .version(Version::HTTP_2)
            .method(request.method().parse::<Method>().expect("a method"))
            .uri(format!("http://{host}{}", request.path()));
        for (name, value) in request.headers().iter().filter(|(name, _)| name != "host") {
            head = head.header(name, value);
        }
        let body = Bytes::copy_from_slice(request.sent_body());
        let (answer, mut stream) =
            sender.send_request(head.body(()).expect("a request"), body.is_empty())?;
        if !body.is_empty() {
            stream.send_data(body, true)?;
        }
        within("an answer", answer).await
    }

    /// Sends a request and reads the whole response.
    pub async fn request(&mut self, request: &Request) -> H2Answer {
        let response = self
            .begin(request)
            .await
            .unwrap_or_else(|error| panic!("no answer: {error}"));
        Self::read(response).await
    }

    /// Reads the rest of a response.
    pub async fn read(response: http::Response<RecvStream>) -> H2Answer {
        let (head, mut stream) = response.into_parts();
        let (mut body, mut broken) = (Vec::new(), None);
        while let Some(data) = within("data", stream.data()).await {
            match data {
                Ok(data) => {
                    let _ = stream.flow_control().release_capacity(data.len());
                    body.extend_from_slice(&data);
                }
                Err(error) => {
                    broken = Some(error.reason());
                    break;
                }
            }
        }
        H2Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
            reset_reason: broken,
        }
    }

    /// Waits for samewire to close the connection. Returns true if it did so in an orderly way.
    pub async fn closes(&mut self) -> bool {
        within("the end", &mut self.task)
            .await
            .expect("no panic")
            .is_ok()
    }
}
