//! What an engine does with one request, step by step.

use super::engine::Manner;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// One thing an engine does.
#[derive(Clone, Debug)]
pub enum Step {
    /// Writes these bytes, in one write as far as the socket takes them.
    Send(Vec<u8>),
    /// Writes these bytes in writes of `every` bytes.
    Split { bytes: Vec<u8>, every: usize },
    /// Writes this many events as fast as they are taken; each carries its number and about `size` characters.
    Flood { events: u64, size: usize },
    /// Waits.
    Sleep(Duration),
    /// Waits until the test opens the gate.
    Await(Gate),
    /// Waits until samewire closes the connection.
    Hang,
    /// Closes the connection; with [`Manner::Rst`] by a reset.
    Close(Manner),
}

/// Held shut until a test opens it.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl Gate {
    /// Lets everybody through, now and later.
    pub fn open(&self) {
        self.0.close();
    }

    /// Until it is open.
    pub async fn wait(&self) {
        // An error is how a closed semaphore says that it is open.
        let _ = self.0.acquire().await;
    }
}

/// A list of steps, written as one chain. Text steps make vLLM-shaped chat chunks unless a test gives the JSON.
#[derive(Clone, Debug, Default)]
pub struct Script(pub Vec<Step>);

impl Script {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Any bytes.
    pub fn raw(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.then(Step::Send(bytes.into()))
    }

    /// The head of an SSE answer in chunked coding, as the engines write it.
    pub fn head_sse(self) -> Self {
        self.raw(
            "HTTP/1.1 200 OK\r\nserver: uvicorn\r\nx-engine-secret: 10.0.0.7\r\nset-cookie: a=b\r\n\
             content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n",
        )
    }

    /// A whole answer with a length.
    pub fn whole(self, status: &str, content_type: &str, body: impl AsRef<[u8]>) -> Self {
        self.whole_with(status, content_type, "", body)
    }

    /// A whole answer with a length and more header lines, each ended by CRLF.
    pub fn whole_with(self, status: &str, content_type: &str, lines: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let kind =
            if content_type.is_empty() { String::new() } else { format!("content-type: {content_type}\r\n") };
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status}\r\nserver: uvicorn\r\n{kind}{lines}content-length: {length}\r\n\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.raw(bytes)
    }

    /// A whole JSON answer.
    pub fn json(self, status: &str, body: &str) -> Self {
        self.whole(status, "application/json", body)
    }

    /// One HTTP chunk.
    pub fn chunk(self, bytes: impl AsRef<[u8]>) -> Self {
        self.raw(chunk(bytes.as_ref()))
    }

    /// One SSE event in one HTTP chunk.
    pub fn ev(self, data: &str) -> Self {
        self.chunk(format!("data: {data}\n\n"))
    }

    /// A chat chunk with this `delta` and this `finish_reason`, both as JSON.
    pub fn delta(self, delta: &str, finish: &str) -> Self {
        self.ev(&chat_chunk(delta, finish))
    }

    /// The role chunk every vLLM stream begins with.
    pub fn role(self) -> Self {
        self.delta(r#"{"role":"assistant","content":""}"#, "null")
    }

    /// One token of content.
    pub fn text(self, text: &str) -> Self {
        self.delta(&format!(r#"{{"content":{}}}"#, json_string(text)), "null")
    }

    /// `n` tokens `NAME.0 `, `NAME.1 `, …; between two of them a pause of `pace`.
    pub fn tok(mut self, name: &str, n: usize, pace: Duration) -> Self {
        for i in 0..n {
            if i > 0 && !pace.is_zero() {
                self = self.sleep(pace);
            }
            self = self.text(&format!("{name}.{i} "));
        }
        self
    }

    /// The finish chunk, on its own.
    pub fn finish(self, reason: &str) -> Self {
        self.delta("{}", &json_string(reason))
    }

    /// The trailing usage chunk.
    pub fn usage(self, prompt: u32, completion: u32) -> Self {
        let total = prompt + completion;
        self.ev(&format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{{"prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens":{completion}}}}}"#
        ))
    }

    /// The engine's `[DONE]`.
    pub fn done(self) -> Self {
        self.ev("[DONE]")
    }

    /// The last chunk.
    pub fn end(self) -> Self {
        self.raw("0\r\n\r\n")
    }

    /// A complete answer of `n` tokens.
    pub fn answer(name: &str, n: usize) -> Self {
        Self::new().head_sse().role().tok(name, n, Duration::ZERO).finish("stop").usage(3, 5).done().end()
    }

    /// A pause.
    pub fn sleep(self, time: Duration) -> Self {
        self.then(Step::Sleep(time))
    }

    /// A pause until the test opens the gate.
    pub fn wait(self, gate: &Gate) -> Self {
        self.then(Step::Await(gate.clone()))
    }

    /// Silence until samewire goes away.
    pub fn hang(self) -> Self {
        self.then(Step::Hang)
    }

    /// The engine closes in an orderly way.
    pub fn fin(self) -> Self {
        self.then(Step::Close(Manner::Fin))
    }

    /// The engine resets the connection.
    pub fn rst(self) -> Self {
        self.then(Step::Close(Manner::Rst))
    }

    /// Closes in the manner given.
    pub fn close(self, manner: Manner) -> Self {
        self.then(Step::Close(manner))
    }

    /// Any step.
    pub fn then(mut self, step: Step) -> Self {
        self.0.push(step);
        self
    }

    /// Neighbouring writes become one write.
    pub fn in_one_write(self) -> Self {
        let mut steps: Vec<Step> = Vec::new();
        for step in self.0 {
            match (steps.last_mut(), step) {
                (Some(Step::Send(last)), Step::Send(more)) => last.extend(more),
                (_, step) => steps.push(step),
            }
        }
        Self(steps)
    }

    /// Every write is made in pieces of `every` bytes.
    pub fn split(self, every: usize) -> Self {
        let split = |step| match step {
            Step::Send(bytes) => Step::Split { bytes, every },
            other => other,
        };
        Self(self.in_one_write().0.into_iter().map(split).collect())
    }

    /// All bytes this script writes.
    pub fn bytes(&self) -> Vec<u8> {
        let sent = self.0.iter().filter_map(|step| match step {
            Step::Send(bytes) => Some(bytes.as_slice()),
            _ => None,
        });
        sent.collect::<Vec<_>>().concat()
    }
}

/// The nth event of [`Step::Flood`], as one HTTP chunk.
pub(super) fn flood_event(n: u64, size: usize) -> Vec<u8> {
    let text = format!("{n}:{};", "x".repeat(size));
    let event = chat_chunk(&format!(r#"{{"content":"{text}"}}"#), "null");
    chunk(format!("data: {event}\n\n").as_bytes())
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut out = format!("{:x}\r\n", bytes.len()).into_bytes();
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
    out
}

fn chat_chunk(delta: &str, finish: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish},"token_ids":null}}]}}"#
    )
}

/// `text` as a JSON string.
pub fn json_string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c < ' ' => write!(out, "\\u{:04x}", u32::from(c)).expect("a string takes all"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
