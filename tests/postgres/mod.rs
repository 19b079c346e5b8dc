//! A real PostgreSQL, and databases of their own in it; see `tests/postgres.sh`.
#![allow(dead_code, reason = "each test crate uses its part")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use tokio_postgres::{Client, NoTls};

/// The URL of a database that nobody else has.
pub async fn database() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("samewire_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let base = server();
    connect(base).await.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).await.unwrap();
    let (server, _) = base.rsplit_once('/').expect("a URL with a database");
    format!("{server}/{name}")
}

/// A connection besides the store's.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("PostgreSQL answers");
    tokio::spawn(connection);
    client
}

/// The server's URL: given from outside, or of one that ends with this process.
fn server() -> &'static str {
    static SERVER: OnceLock<String> = OnceLock::new();
    static KEPT: Mutex<Option<Child>> = Mutex::new(None);
    SERVER.get_or_init(|| {
        if let Ok(url) = std::env::var("SAMEWIRE_TEST_POSTGRES") {
            return url;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/postgres.sh");
        let mut command = Command::new(script);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let hint = "install Debian's `postgresql`, or set SAMEWIRE_TEST_POSTGRES to the URL of a server";
        assert!(url.starts_with("postgres://"), "these tests need PostgreSQL: {hint}");
        *KEPT.lock().unwrap() = Some(child);
        url.trim_end().to_owned()
    })
}
