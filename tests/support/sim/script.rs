//! Steps by which a scripted engine answers one request.

use super::engine::CloseKind;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Single step of a script, played in order by an engine.
#[derive(Clone, Debug)]
pub enum Step {
    /// Writes these bytes in as few writes as the socket allows.
    Send(Vec<u8>),
    /// Writes these bytes in separate writes of `every` bytes.
    Split { bytes: Vec<u8>, every: usize },
    /// Writes `events` SSE events as fast as they are taken. Each carries its number and about `size` characters.
    Flood { events: u64, size: usize },
    /// Pauses for this long.
    Sleep(Duration),
    /// Waits until the test opens the gate.
    Await(Gate),
    /// Waits until samewire closes the connection.
    Hang,
    /// Closes the connection: by a reset with [`CloseKind::Rst`], else by FIN.
    Close(CloseKind),
}

/// Barrier that stays closed until a test opens it.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl Gate {
    /// Creates a gate, and another handle of it.
    pub fn pair() -> (Self, Self) {
        let gate = Self::default();
        (gate.clone(), gate)
    }

    /// Opens the gate for all present and later waiters.
    pub fn open(&self) {
        self.0.close();
    }

    /// Waits until the gate is open.
    pub async fn wait(&self) {
        // An open gate is a closed semaphore, whose `acquire` returns an error.
        let _ = self.0.acquire().await;
    }
}

/// Progress of an engine with its answer.
pub const MOMENTS: [&str; 6] = [
    "before-head",
    "prefill",
    "after-role",
    "between-tokens",
    "writing",
    "half-body",
];

/// List of steps, built by chained calls. The text steps write chat chunks as vLLM does, unless a test gives the
/// JSON.
#[derive(Clone, Debug, Default)]
pub struct Script(pub Vec<Step>);

impl Script {
    /// Creates a script without steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a script that has begun a stream: the head, and the role chunk.
    pub fn stream() -> Self {
        Self::new().head_sse().role()
    }

    /// Creates a script in which the engine makes progress up to this one of [`MOMENTS`].
    pub fn up_to(moment: &str) -> Self {
        let stream = Self::new().head_sse();
        match moment {
            "before-head" => Self::new().hang(),
            "prefill" => stream.hang(),
            "after-role" => stream.role().hang(),
            "between-tokens" => stream.role().tok("a", 2, Duration::ZERO).hang(),
            "writing" => stream.role().then(Step::Flood { events: 10_000, size: 4096 }).hang(),
            "half-body" => Self::new()
                .raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n{\"id\":\"chatcmpl-1\",")
                .hang(),
            other => panic!("no moment {other}"),
        }
    }

    /// Creates a script that writes a complete JSON response with status 200.
    pub fn ok(body: impl ToString) -> Self {
        Self::new().json("200 OK", &body.to_string())
    }

    /// Creates a script that writes a complete chat completion with this text.
    pub fn completion(text: &str) -> Self {
        let text = json_string(text);
        Self::ok(format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":{text}}},"finish_reason":"stop"}}]}}"#
        ))
    }

    /// Creates a script that writes a list of these models.
    pub fn models(names: &[&str]) -> Self {
        let list = names.iter().map(|name| {
            format!(
                r#"{{"id":{},"object":"model","created":7,"owned_by":"vllm"}}"#,
                json_string(name)
            )
        });
        Self::ok(format!(
            r#"{{"object":"list","data":[{}]}}"#,
            list.collect::<Vec<_>>().join(",")
        ))
    }

    /// Appends the steps of another script.
    pub fn followed_by(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Writes these bytes.
    pub fn raw(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.then(Step::Send(bytes.into()))
    }

    /// Writes the head of an SSE response in chunked coding, as the engines write it.
    pub fn head_sse(self) -> Self {
        self.raw(
            "HTTP/1.1 200 OK\r\nserver: uvicorn\r\nx-engine-secret: 10.0.0.7\r\nset-cookie: a=b\r\n\
             content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n",
        )
    }

    /// Writes a complete response with `content-length`.
    pub fn whole(self, status: &str, content_type: &str, body: impl AsRef<[u8]>) -> Self {
        self.whole_with(status, content_type, "", body)
    }

    /// Writes a complete response with `content-length` and further header lines, each ended by CRLF.
    pub fn whole_with(
        self,
        status: &str,
        content_type: &str,
        lines: &str,
        body: impl AsRef<[u8]>,
    ) -> Self {
        let body = body.as_ref();
        let kind = if content_type.is_empty() {
            String::new()
        } else {
            format!("content-type: {content_type}\r\n")
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nserver: uvicorn\r\n{kind}{lines}content-length: {length}\r\n\r\n"
        );
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.raw(bytes)
    }

    /// Writes a complete JSON response.
    pub fn json(self, status: &str, body: &str) -> Self {
        self.whole(status, "application/json", body)
    }

    /// Writes one HTTP chunk.
    pub fn chunk(self, bytes: impl AsRef<[u8]>) -> Self {
        self.raw(chunk(bytes.as_ref()))
    }

    /// Writes one SSE event in one HTTP chunk.
    pub fn ev(self, data: &str) -> Self {
        self.chunk(format!("data: {data}\n\n"))
    }

    /// Writes a chat chunk with this `delta` and this `finish_reason`, both given as JSON.
    pub fn delta(self, delta: &str, finish: &str) -> Self {
        self.ev(&chat_chunk(delta, finish))
    }

    /// Writes the role chunk that starts every vLLM stream.
    pub fn role(self) -> Self {
        self.delta(r#"{"role":"assistant","content":""}"#, "null")
    }

    /// Writes one token of content.
    pub fn text(self, text: &str) -> Self {
        self.delta(&format!(r#"{{"content":{}}}"#, json_string(text)), "null")
    }

    /// Writes the `n` tokens `NAME.0 `, `NAME.1 `, …, with a pause of `pace` between two of them.
    pub fn tok(mut self, name: &str, n: usize, pace: Duration) -> Self {
        for i in 0..n {
            if i > 0 && !pace.is_zero() {
                self = self.sleep(pace);
            }
            self = self.text(&format!("{name}.{i} "));
        }
        self
    }

    /// Writes the finish chunk, without content.
    pub fn finish(self, reason: &str) -> Self {
        self.delta("{}", &json_string(reason))
    }

    /// Ends the stream: the finish chunk with `stop`, `[DONE]`, and the end of the body.
    pub fn stop(self) -> Self {
        self.finish("stop").done().end()
    }

    /// Writes the trailing usage chunk.
    pub fn usage(self, prompt: u32, completion: u32) -> Self {
        let total = prompt + completion;
        self.ev(&format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{{"prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens":{completion}}}}}"#
        ))
    }

    /// Writes the engine's `[DONE]` event.
    pub fn done(self) -> Self {
        self.ev("[DONE]")
    }

    /// Writes the last chunk of chunked coding.
    pub fn end(self) -> Self {
        self.raw("0\r\n\r\n")
    }

    /// Returns a complete streamed answer of `n` tokens.
    pub fn answer(name: &str, n: usize) -> Self {
        Self::stream()
            .tok(name, n, Duration::ZERO)
            .finish("stop")
            .usage(3, 5)
            .done()
            .end()
    }

    /// Pauses for this long.
    pub fn sleep(self, time: Duration) -> Self {
        self.then(Step::Sleep(time))
    }

    /// Waits until the test opens the gate.
    pub fn wait(self, gate: &Gate) -> Self {
        self.then(Step::Await(gate.clone()))
    }

    /// Waits until samewire closes the connection.
    pub fn hang(self) -> Self {
        self.then(Step::Hang)
    }

    /// Closes the connection by FIN.
    pub fn fin(self) -> Self {
        self.then(Step::Close(CloseKind::Fin))
    }

    /// Resets the connection.
    pub fn rst(self) -> Self {
        self.then(Step::Close(CloseKind::Rst))
    }

    /// Closes the connection in this manner.
    pub fn close(self, manner: CloseKind) -> Self {
        self.then(Step::Close(manner))
    }

    /// Appends a step.
    pub fn then(mut self, step: Step) -> Self {
        self.0.push(step);
        self
    }

    /// Joins neighbouring writes into one.
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

    /// Splits every write into pieces of `every` bytes.
    pub fn split(self, every: usize) -> Self {
        let split = |step| match step {
            Step::Send(bytes) => Step::Split { bytes, every },
            other => other,
        };
        Self(self.in_one_write().0.into_iter().map(split).collect())
    }

    /// Returns all bytes that the plain writes of this script contain.
    pub fn bytes(&self) -> Vec<u8> {
        let sent = self.0.iter().filter_map(|step| match step {
            Step::Send(bytes) => Some(bytes.as_slice()),
            _ => None,
        });
        sent.collect::<Vec<_>>().concat()
    }
}

/// Returns the nth event of [`Step::Flood`], as one HTTP chunk.
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

/// Quotes `text` as a JSON string.
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
