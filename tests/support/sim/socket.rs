//! WebSocket client that sends arbitrary frames, valid or not, and reads the server's frames strictly.

use super::client::{self, Answer, Client, Head, Request};
use super::engine::CloseKind;
use super::within;
use serde_json::Value;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Sample key of RFC 6455, and the accept value that a server must derive from it.
const KEY: (&str, &str) = ("dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");

/// WebSocket frame from the server, of the kinds that samewire sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Text message.
    Text(String),
    /// Ping with its payload.
    Ping(Vec<u8>),
    /// Pong with its payload.
    Pong(Vec<u8>),
    /// Close with its code, if it has one.
    Close(Option<u16>),
}

/// WebSocket connection to samewire, after the handshake has been checked.
pub struct Socket {
    stream: TcpStream,
    inbox: Vec<u8>,
    /// Head of the response to the upgrade.
    pub head: Head,
}

impl Socket {
    /// Returns an upgrade request for `target`.
    pub fn request(target: &str) -> Request {
        Request::get(target)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", KEY.0)
    }

    /// Opens a WebSocket at `/v1/responses`.
    pub async fn open(to: SocketAddr) -> Self {
        Self::open_with(to, &Self::request("/v1/responses")).await
    }

    /// Opens a WebSocket by this upgrade request.
    pub async fn open_with(to: SocketAddr, request: &Request) -> Self {
        let opened = Self::over(Client::connect(to).await, &request.bytes()).await;
        opened.unwrap_or_else(|answer| panic!("{}: {}", answer.head.status, answer.text()))
    }

    /// Opens a WebSocket on an existing connection by sending `bytes`. Fails with the response if it is not an
    /// upgrade.
    pub async fn over(mut client: Client, bytes: &[u8]) -> Result<Self, Answer> {
        client.send(bytes).await;
        let head = client.head().await;
        if head.status != 101 {
            let body = client.rest().await;
            return Err(Answer {
                head,
                body,
                ended: client.ended(),
                waited: Duration::ZERO,
            });
        }
        assert_eq!(head.header("sec-websocket-accept"), Some(KEY.1));
        assert_eq!(
            head.header("upgrade")
                .map(str::to_ascii_lowercase)
                .as_deref(),
            Some("websocket")
        );
        assert_eq!(
            head.header("connection")
                .map(str::to_ascii_lowercase)
                .as_deref(),
            Some("upgrade")
        );
        assert!(
            head.header("sec-websocket-extensions").is_none(),
            "none was agreed on"
        );
        let (stream, inbox) = client.into_parts();
        Ok(Self {
            stream,
            inbox,
            head,
        })
    }

    /// Sends a text message in one frame.
    pub async fn send(&mut self, text: &str) {
        self.frame(0x81, text.as_bytes()).await;
    }

    /// Sends one frame with this first byte; the payload is masked here.
    pub async fn frame(&mut self, first: u8, payload: &[u8]) {
        let bytes = Self::masked(first, payload);
        self.raw(&bytes).await;
    }

    /// Returns the bytes of one frame, its payload masked.
    pub fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
        let mut bytes = vec![first];
        match payload.len() {
            short @ 0..=125 => bytes.push(0x80 | short as u8),
            medium @ 126..=0xffff => {
                bytes.push(0x80 | 126);
                bytes.extend((medium as u16).to_be_bytes());
            }
            long => {
                bytes.push(0x80 | 127);
                bytes.extend((long as u64).to_be_bytes());
            }
        }
        bytes.extend(MASK);
        bytes.extend(
            payload
                .iter()
                .zip(MASK.iter().cycle())
                .map(|(byte, mask)| byte ^ mask),
        );
        bytes
    }

    /// Sends arbitrary bytes; fails the test if the connection breaks.
    pub async fn raw(&mut self, bytes: &[u8]) {
        within("send", self.stream.write_all(bytes))
            .await
            .expect("samewire takes the bytes");
    }

    /// Sends arbitrary bytes as far as they are taken. Returns false if the connection breaks first.
    pub async fn try_raw(&mut self, bytes: &[u8]) -> bool {
        within("send", self.stream.write_all(bytes)).await.is_ok()
    }

    /// Sends FIN and keeps reading.
    pub async fn half_close(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Closes the connection and returns the time just before.
    pub fn leave(self, manner: CloseKind) -> Instant {
        client::leave(self.stream, manner)
    }

    /// Reads the next frame. Returns `None` after an orderly end of the connection, and an error after a reset.
    pub async fn try_frame(&mut self) -> Result<Option<Frame>, ErrorKind> {
        loop {
            if let Some((frame, length)) = parse(&self.inbox) {
                self.inbox.drain(..length);
                return Ok(Some(frame));
            }
            within("bytes from samewire", self.stream.readable())
                .await
                .map_err(|error| error.kind())?;
            match self.stream.try_read_buf(&mut self.inbox) {
                Ok(0) => {
                    assert!(self.inbox.is_empty(), "half a frame");
                    return Ok(None);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.kind()),
            }
        }
    }

    /// Reads the next frame that is not a ping.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            let frame = self.try_frame().await.expect("an orderly end");
            if !matches!(frame, Some(Frame::Ping(_))) {
                return frame;
            }
        }
    }

    /// Reads the next message as text.
    pub async fn text(&mut self) -> String {
        match self.next().await {
            Some(Frame::Text(text)) => text,
            other => panic!("a message, not {other:?}"),
        }
    }

    /// Reads the next message as JSON.
    pub async fn message(&mut self) -> Value {
        let text = self.text().await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }

    /// Sends a message and reads all events of its response.
    pub async fn exchange(&mut self, message: &str) -> Vec<Value> {
        self.send(message).await;
        self.response().await
    }

    /// Reads all events of one response and checks their sequence numbers.
    pub async fn response(&mut self) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let message = self.message().await;
            assert!(message.get("status").is_none(), "an event: {message}");
            assert_eq!(message["sequence_number"], all.len(), "{message}");
            let kind = message["type"].as_str().expect("a type").to_owned();
            all.push(message);
            if [
                "response.completed",
                "response.incomplete",
                "response.failed",
            ]
            .contains(&kind.as_str())
            {
                return all;
            }
        }
    }

    /// Reads the next message, which must be an error, and checks its shape. Returns status, code and parameter.
    pub async fn refused(&mut self) -> (u64, String, String) {
        let text = self.text().await;
        let message: Value = serde_json::from_str(&text).expect("JSON");
        let (status, error) = (message["status"].as_u64(), &message["error"]);
        let status = status.unwrap_or_else(|| panic!("no refusal: {text}"));
        let start = format!(r#"{{"type":"error","status":{status},"error":{{"message":""#);
        assert!(text.starts_with(&start) && text.ends_with("}}"), "{text}");
        let keys: Vec<_> = error
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(keys.len(), 4, "{text}");
        assert!(
            ["message", "type", "param", "code"]
                .iter()
                .all(|key| keys.contains(key)),
            "{text}"
        );
        let word = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        (status, word("code"), word("param"))
    }

    /// Reads until the connection ends in an orderly way. Returns the code of the close.
    pub async fn closed(&mut self) -> Option<u16> {
        let Some(Frame::Close(code)) = self.next().await else {
            panic!("no close")
        };
        // The server may have closed the connection before this answer arrives.
        let payload: Vec<u8> = code.iter().flat_map(|code| code.to_be_bytes()).collect();
        self.try_raw(&Self::masked(0x88, &payload)).await;
        assert_eq!(self.next().await, None, "nothing after the close");
        code
    }
}

/// Parses a frame at the start of `bytes`, and returns it with its length. Server frames are not masked, and
/// samewire does not fragment messages.
fn parse(bytes: &[u8]) -> Option<(Frame, usize)> {
    let (first, second) = (*bytes.first()?, *bytes.get(1)?);
    let (start, length) = match second {
        0..=125 => (2, u64::from(second)),
        126 => (
            4,
            u64::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)),
        ),
        127 => (10, u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)),
        _ => panic!("a masked frame"),
    };
    let end = start + usize::try_from(length).expect("a length");
    let payload = bytes.get(start..end)?.to_vec();
    let frame = match first {
        0x81 => Frame::Text(String::from_utf8(payload).expect("samewire writes UTF-8")),
        0x88 => Frame::Close(payload.first_chunk().map(|code| u16::from_be_bytes(*code))),
        0x89 => Frame::Ping(payload),
        0x8a => Frame::Pong(payload),
        other => panic!("a frame that begins with {other:#x}"),
    };
    Some((frame, end))
}
