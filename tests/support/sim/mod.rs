//! Fixtures of the loopback tests: a scripted engine, a client that sends arbitrary bytes, and the built binary
//! between them.
//!
//! Nothing here is an HTTP framework, because half of the tests break the framing on purpose. All three parts talk
//! over real sockets on loopback, ports are chosen by the kernel, and every wait is for a condition with a limit.

mod addresses;
mod chunks;
mod client;
mod engine;
#[path = "../folder/mod.rs"]
mod folder;
mod frames;
pub mod h2;
mod harness;
mod http2;
mod names;
mod script;
mod socket;
pub mod tls;

pub use addresses::{refusing, unanswered_address};
pub use chunks::{Chunks, Piece};
pub use client::{Answer, Client, Ended, ErrorBody, Head, Request};
pub use engine::{Attempt, CloseKind, Engine, IntoEngine};
pub use folder::Folder;
pub use frames::{Frame as H2Frame, frame, kinds};
pub use harness::{IN_FORCE, LINES_OF_ONE_REQUEST, Samewire, Setup, World};
pub use http2::{H2Client, Hangup, RawH2Client};
pub use names::{Dns, DnsReply, NAME, NameFiles};
pub use script::{Gate, MOMENTS, Script, Step, json_string};
pub use socket::{Frame, Socket};

/// Names that nearly every test of the binary uses.
pub mod prelude {
    pub use super::{
        Answer, Attempt, Client, CloseKind, Ended, Engine, Folder, Gate, KEY, PATIENCE, PROMPT,
        Request, SOON, Samewire, Script, Setup, Socket, Step, World, assert_members, assert_took,
        eventually, json_string, parsed, until, until_within, within,
    };
    pub use serde_json::{Value, json};
    pub use std::net::SocketAddr;
    pub use std::sync::atomic::{AtomicUsize, Ordering};
    pub use std::sync::{Arc, Mutex};
    pub use std::time::{Duration, Instant};
}

use serde_json::Value;
use std::future::Future;
use std::time::{Duration, Instant};

/// Text put into every prompt. Must not be found in any log line or metric.
pub const PROMPT: &str = "CANARY-PROMPT-5d1f";

/// API key that every client sends. Must not be found in any log line or metric.
pub const KEY: &str = "sk-CANARY-77aa";

/// Time that something prompt may take where tests run beside each other, on a busy machine and without
/// optimisation. How prompt it is, is measured in `tests/alone/latency`.
pub const SOON: Duration = Duration::from_secs(5);

/// Limit of every single wait of a test.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Waits until `condition` holds. Fails the test, naming `what`, when it does not within [`PATIENCE`].
pub async fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(what, PATIENCE, condition).await;
}

/// Waits until `condition` holds. Fails the test, naming `what`, when it does not within `limit`.
pub async fn until_within(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "waited {limit:?} in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until `condition` holds, which may send requests. Fails the test, naming `what`, when it does not within
/// [`PATIENCE`].
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(
            start.elapsed() < PATIENCE,
            "waited {PATIENCE:?} in vain: {what}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Parses JSON. Fails the test, showing the text, if it is none.
#[track_caller]
pub fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Checks that a JSON object has these members, and perhaps others.
#[track_caller]
pub fn assert_members(object: &Value, expected: &Value) {
    for (name, value) in expected.as_object().expect("members") {
        assert_eq!(object[name], *value, "{name}: {object}");
    }
}

/// Checks that more than this many milliseconds have passed since `start`, and less than [`PATIENCE`].
#[track_caller]
pub fn assert_took(start: Instant, millis: u64) {
    let took = start.elapsed();
    assert!(
        took > Duration::from_millis(millis) && took < PATIENCE,
        "{took:?}"
    );
}

/// Returns the value of `future`. Fails the test, naming `what`, when it does not resolve within [`PATIENCE`].
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limited = tokio::time::timeout(PATIENCE, future).await;
    limited.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain: {what}"))
}
