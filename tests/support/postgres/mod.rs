//! A real PostgreSQL, with a separate database for each test; see `tests/postgres.sh`.
#![allow(dead_code, reason = "each test crate uses its part")]

pub mod partition;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::SystemTime;
use tokio_postgres::{Client, NoTls};

/// Creates a database and returns its URL.
pub async fn database() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // A server outlives the process, whose number comes again.
    let start = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    let process = std::process::id();
    let name = format!(
        "samewire_{process}_{start}_{}",
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let base = server();
    connect(base)
        .await
        .batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0"))
        .await
        .unwrap();
    let (server, _) = base.rsplit_once('/').expect("a URL with a database");
    format!("{server}/{name}")
}

/// Opens a connection of the test's own.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .expect("PostgreSQL answers");
    tokio::spawn(connection);
    client
}

/// Returns the server's URL: from the environment, or of a server that ends with this process.
fn server() -> &'static str {
    static SERVER: OnceLock<String> = OnceLock::new();
    SERVER.get_or_init(|| match std::env::var("SAMEWIRE_TEST_POSTGRES") {
        Ok(url) => url,
        Err(_) => started(&[], 1).remove(0),
    })
}

/// Returns the URL of a server that has TLS for `localhost`, and the folder with the certificates that
/// `tests/postgres.sh` prints.
pub fn with_tls() -> (&'static str, &'static Path) {
    static SERVER: OnceLock<Vec<String>> = OnceLock::new();
    let lines = SERVER.get_or_init(|| started(&["tls"], 2));
    (&lines[0], Path::new(&lines[1]))
}

/// Starts a server that ends with this process. Returns the lines that it prints.
fn started(arguments: &[&str], lines: usize) -> Vec<String> {
    static KEPT: Mutex<Vec<Child>> = Mutex::new(Vec::new());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/postgres.sh");
    let mut command = Command::new(script);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let printed = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .take(lines);
    let printed: Vec<String> = printed.map(Result::unwrap).collect();
    let hint =
        "install Debian's `postgresql`, or set SAMEWIRE_TEST_POSTGRES to the URL of a server";
    assert_eq!(printed.len(), lines, "these tests need PostgreSQL: {hint}");
    KEPT.lock().unwrap().push(child);
    printed
}
