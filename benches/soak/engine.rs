//! Engines of the soak: they answer by the plan, in the shape of one of two dialects, until the proxy closes the
//! connection or the engine is restarted.

use crate::plan::{EngineFault, Kind, Plan, RunSettings, number_in};
use crate::registry::{Outcome, Registry};
use crate::speech::{AnswerWriter, Dialect, HEAD};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, sleep_until, timeout};

const MODELS: &str =
    r#"{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"soak"}]}"#;

/// Idle time after which a connection is closed, as uvicorn does (U03).
const KEPT: Duration = Duration::from_secs(5);

/// State of an engine as a whole (U44), changed by the operator during the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineState {
    Up,
    /// Port closed; open connections are reset.
    Down,
    /// Listening, and answering 503.
    Loading,
}

/// Handle of an engine for the clients and for the operator that restarts it.
pub(crate) struct Engine {
    pub(crate) address: SocketAddr,
    pub(crate) dialect: Dialect,
    condition: watch::Sender<EngineState>,
}

impl Engine {
    pub(crate) fn set(&self, condition: EngineState) {
        self.condition.send_replace(condition);
    }
}

/// Starts engines of alternating dialects on a separate thread.
pub(crate) fn start(
    count: usize,
    measure: RunSettings,
    registry: &Arc<Registry>,
) -> io::Result<Vec<Engine>> {
    let (mut engines, mut listeners) = (Vec::new(), Vec::new());
    for n in 0..count {
        let dialect = if n % 2 == 0 {
            Dialect::Vllm
        } else {
            Dialect::Sglang
        };
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = listener.local_addr()?;
        let (condition, seen) = watch::channel(EngineState::Up);
        engines.push(Engine {
            address,
            dialect,
            condition,
        });
        listeners.push((
            EngineServer {
                dialect,
                measure,
                registry: Arc::clone(registry),
                condition: seen,
            },
            listener,
        ));
    }
    std::thread::Builder::new()
        .name("engines".to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            LocalSet::new().block_on(&runtime, async move {
                for (shop, listener) in listeners {
                    spawn_local(serve(shop, listener));
                }
                std::future::pending::<()>().await;
            });
        })?;
    Ok(engines)
}

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[derive(Clone)]
struct EngineServer {
    dialect: Dialect,
    measure: RunSettings,
    registry: Arc<Registry>,
    condition: watch::Receiver<EngineState>,
}

async fn serve(mut shop: EngineServer, listener: std::net::TcpListener) {
    let address = listener.local_addr().expect("bound");
    let mut listener = Some(TcpListener::from_std(listener).expect("a listener"));
    loop {
        if *shop.condition.borrow_and_update() == EngineState::Down {
            listener = None;
        } else if listener.is_none() {
            listener = Some(
                TcpListener::from_std(listen(address).expect("the port is ours"))
                    .expect("a listener"),
            );
        }
        let Some(open) = &listener else {
            // The sender exists as long as the process.
            let _ = shop.condition.changed().await;
            continue;
        };
        tokio::select! {
            _ = shop.condition.changed() => {}
            accepted = open.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                stream.set_nodelay(true).expect("a TCP socket");
                let mut shop = shop.clone();
                spawn_local(async move { shop.connection(stream).await });
            }
        }
    }
}

/// Outcome of the work for one request, which decides what becomes of the connection.
enum WorkOutcome {
    /// The connection can serve another request.
    Next,
    Fin,
    Rst,
    /// The proxy closed the connection first.
    Closed,
}

impl EngineServer {
    async fn connection(&mut self, stream: TcpStream) {
        let mut seen = self.condition.clone();
        let down = async move {
            loop {
                if *seen.borrow_and_update() == EngineState::Down || seen.changed().await.is_err() {
                    return;
                }
            }
        };
        // Any end of the connection is a reset by default, even if the task is dropped.
        SockRef::from(&stream)
            .set_linger(Some(Duration::ZERO))
            .expect("a TCP socket");
        let (read, write) = stream.into_split();
        tokio::select! {
            () = self.requests(Inbox { read, bytes: Vec::new() }, write) => {}
            () = down => {}
        }
    }

    /// Serves one request after the other.
    async fn requests(&self, mut inbox: Inbox, mut write: OwnedWriteHalf) {
        while let Ok(Some((head, body))) = timeout(KEPT, inbox.request()).await {
            let Some(id) = head
                .starts_with(b"POST")
                .then(|| number_in(&body))
                .flatten()
            else {
                if self.probe(&head, &mut write).await.is_err() {
                    break;
                }
                continue;
            };
            let plan = Plan::of(&self.measure, id);
            let work = Work::begin(self, &plan);
            let usage = memchr::memmem::find(&body, b"\"include_usage\":true").is_some();
            drop(body);
            let over = tokio::select! {
                biased;
                over = work.answer(&mut write, usage) => over.unwrap_or(WorkOutcome::Closed),
                () = inbox.closed() => WorkOutcome::Closed,
            };
            work.over(&over);
            match over {
                WorkOutcome::Next => {}
                WorkOutcome::Fin | WorkOutcome::Closed => break,
                WorkOutcome::Rst => return,
            }
        }
        // The connection may be closed already.
        let _ = SockRef::from(write.as_ref()).set_linger(None);
    }

    async fn probe(&self, head: &[u8], write: &mut OwnedWriteHalf) -> io::Result<()> {
        let loading = *self.condition.borrow() == EngineState::Loading;
        let (status, body) = match head {
            _ if loading => ("503 Service Unavailable", ""),
            head if head.starts_with(b"GET /health ") => ("200 OK", ""),
            head if head.starts_with(b"GET /v1/models ") => ("200 OK", MODELS),
            _ => ("404 Not Found", r#"{"detail":"Not Found"}"#),
        };
        write.write_all(whole(status, body).as_bytes()).await
    }
}

fn whole(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

struct Inbox {
    read: OwnedReadHalf,
    bytes: Vec<u8>,
}

impl Inbox {
    /// Reads the head and body of the next request. Returns `None` at the end of the connection.
    async fn request(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let end = loop {
            if let Some(end) = memchr::memmem::find(&self.bytes, b"\r\n\r\n") {
                break end + 4;
            }
            self.fill().await?;
        };
        let text = String::from_utf8_lossy(&self.bytes[..end]).to_ascii_lowercase();
        let length = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let whole = end + length.unwrap_or(0);
        while self.bytes.len() < whole {
            self.fill().await?;
        }
        let rest = self.bytes.split_off(whole);
        let mut head = std::mem::replace(&mut self.bytes, rest);
        let body = head.split_off(end);
        Some((head, body))
    }

    async fn fill(&mut self) -> Option<()> {
        let count = self.read.read_buf(&mut self.bytes).await.ok()?;
        (count > 0).then_some(())
    }

    /// Resolves when the proxy has closed the connection.
    async fn closed(&mut self) {
        while self.fill().await.is_some() {}
    }
}

/// Work for one request. The registry is notified of its end in any case, even if the task is dropped.
struct Work<'a> {
    shop: &'a EngineServer,
    plan: &'a Plan,
    attempt: usize,
    over: bool,
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.becomes(Outcome::Restarted);
        }
        self.shop.registry.ends(self.plan.id);
    }
}

impl<'a> Work<'a> {
    fn begin(shop: &'a EngineServer, plan: &'a Plan) -> Self {
        let attempt = shop.registry.begins(plan.id);
        Self {
            shop,
            plan,
            attempt,
            over: false,
        }
    }

    /// Ends the work by a cause other than a restart of the engine.
    fn over(mut self, over: &WorkOutcome) {
        self.over = true;
        if matches!(over, WorkOutcome::Closed) {
            self.becomes(Outcome::Closed);
        }
    }

    fn becomes(&self, outcome: Outcome) {
        self.shop
            .registry
            .becomes(self.plan.id, self.attempt, outcome);
    }

    async fn answer(&self, write: &mut OwnedWriteHalf, usage: bool) -> io::Result<WorkOutcome> {
        // The fault occurs only once: the next attempt is answered correctly.
        let wrong = self.plan.wrong.filter(|_| self.attempt == 0);
        if let Some(wrong) = wrong.filter(|wrong| *wrong != EngineFault::SlowFirst) {
            self.becomes(Outcome::Wrong(wrong));
        }
        match wrong {
            Some(EngineFault::ResetAtOnce) => return Ok(WorkOutcome::Rst),
            Some(EngineFault::FinAtOnce) => return Ok(WorkOutcome::Fin),
            Some(EngineFault::SilentHead) => std::future::pending().await,
            Some(EngineFault::Status(status)) => {
                if matches!(status, 429 | 503) {
                    self.shop.registry.pushes();
                }
                let body = format!(
                    r#"{{"error":{{"message":"told to","type":"soak","param":null,"code":{status}}}}}"#
                );
                write
                    .write_all(whole(&format!("{status} Told"), &body).as_bytes())
                    .await?;
                return Ok(WorkOutcome::Next);
            }
            _ => {}
        }
        if self.plan.kind == Kind::Whole {
            return self.whole(write, wrong).await;
        }
        self.stream(write, wrong, usage).await
    }

    async fn whole(
        &self,
        write: &mut OwnedWriteHalf,
        wrong: Option<EngineFault>,
    ) -> io::Result<WorkOutcome> {
        let slow = if wrong == Some(EngineFault::SlowFirst) {
            1_500
        } else {
            50 + self.plan.id % 400
        };
        sleep(Duration::from_millis(slow)).await;
        let answer = whole(
            "200 OK",
            &AnswerWriter::new(self.shop.dialect, self.plan).whole(),
        );
        if matches!(wrong, Some(EngineFault::ResetAfter(_))) {
            write
                .write_all(&answer.as_bytes()[..answer.len() / 2])
                .await?;
            return Ok(WorkOutcome::Rst);
        }
        self.becomes(Outcome::Complete);
        write.write_all(answer.as_bytes()).await?;
        Ok(WorkOutcome::Next)
    }

    async fn stream(
        &self,
        write: &mut OwnedWriteHalf,
        wrong: Option<EngineFault>,
        usage: bool,
    ) -> io::Result<WorkOutcome> {
        let mut speech = AnswerWriter::new(self.shop.dialect, self.plan);
        speech.out.extend_from_slice(HEAD.as_bytes());
        speech.role();
        flush(&mut speech, write).await?;
        match wrong {
            Some(EngineFault::RoleThenHang) => std::future::pending().await,
            Some(EngineFault::SlowFirst) => sleep(Duration::from_millis(1_500)).await,
            _ => {}
        }
        let cut = match wrong {
            Some(
                EngineFault::ResetAfter(at)
                | EngineFault::FinAfter(at)
                | EngineFault::EndAfter(at)
                | EngineFault::AbortAfter(at)
                | EngineFault::ErrorAfter(at)
                | EngineFault::GarbageAfter(at)
                | EngineFault::HangAfter(at),
            ) => at,
            _ => u64::MAX,
        };
        let period = Duration::from_secs_f64(1.0 / self.shop.measure.rate);
        let mut due = Instant::now();
        for i in 0..self.plan.tokens().min(cut) {
            if !self.plan.unpaced() {
                due += period;
                sleep_until(due).await;
                // A stream that was delayed does not catch up all at once.
                due = due.max(Instant::now() - period);
            }
            speech.token(i);
            flush(&mut speech, write).await?;
        }
        self.end(&mut speech, write, wrong.filter(|_| cut < u64::MAX), usage)
            .await
    }

    async fn end(
        &self,
        speech: &mut AnswerWriter<'_>,
        write: &mut OwnedWriteHalf,
        wrong: Option<EngineFault>,
        usage: bool,
    ) -> io::Result<WorkOutcome> {
        let over = match wrong {
            Some(EngineFault::ResetAfter(_)) => WorkOutcome::Rst,
            Some(EngineFault::FinAfter(_)) => WorkOutcome::Fin,
            Some(EngineFault::HangAfter(_)) => std::future::pending().await,
            Some(EngineFault::EndAfter(_)) => {
                speech.out.extend_from_slice(b"0\r\n\r\n");
                WorkOutcome::Next
            }
            Some(EngineFault::AbortAfter(_)) => {
                speech.finish(Some("abort"));
                speech.end(false);
                WorkOutcome::Next
            }
            Some(EngineFault::ErrorAfter(_)) => {
                speech.event(r#"{"error":{"object":"error","message":"told to","type":"InternalServerError","param":null,"code":500}}"#);
                speech.event("[DONE]");
                speech.out.extend_from_slice(b"0\r\n\r\n");
                WorkOutcome::Next
            }
            Some(EngineFault::GarbageAfter(_)) => {
                speech.event(r#"{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"no"#);
                flush(speech, write).await?;
                // Keeps running as if nothing had happened.
                std::future::pending().await
            }
            _ => {
                self.becomes(Outcome::Complete);
                speech.finish(None);
                speech.end(usage);
                WorkOutcome::Next
            }
        };
        flush(speech, write).await?;
        Ok(over)
    }
}

async fn flush(speech: &mut AnswerWriter<'_>, write: &mut OwnedWriteHalf) -> io::Result<()> {
    let written = write.write_all(&speech.out).await;
    speech.out.clear();
    written.map_err(|_| ErrorKind::BrokenPipe.into())
}
