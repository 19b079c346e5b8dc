//! The three places, each fresh.

use samewire::store::{Caps, Error, Place, Store};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use tokio_postgres::{Client, NoTls};

/// A place that is empty at first and gone at the end.
pub(crate) struct Fresh {
    pub(crate) place: Place,
    folder: Option<PathBuf>,
}

impl Fresh {
    pub(crate) async fn open(&self, caps: Caps) -> Store {
        self.try_open(caps).await.expect("the store opens")
    }

    pub(crate) async fn try_open(&self, caps: Caps) -> Result<Store, Error> {
        Store::open(&self.place, caps).await.map(|store| store.expect("a place"))
    }

    pub(crate) fn file(&self) -> &Path {
        let Place::Sqlite(path) = &self.place else { panic!("not a file") };
        path
    }

    pub(crate) fn url(&self) -> &str {
        let Place::Postgres(url) = &self.place else { panic!("not a server") };
        url
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

pub(crate) async fn memory() -> Fresh {
    Fresh { place: Place::Memory, folder: None }
}

/// A number that no other test has.
fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) async fn sqlite() -> Fresh {
    let name = format!("store-{}-{}", std::process::id(), number());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    Fresh { place: Place::Sqlite(folder.join("responses.db")), folder: Some(folder) }
}

/// A database of its own.
pub(crate) async fn postgres() -> Fresh {
    let name = format!("samewire_{}_{}", std::process::id(), number());
    let base = server();
    connect(base).await.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).await.unwrap();
    let (server, _) = base.rsplit_once('/').expect("a URL with a database");
    Fresh { place: Place::Postgres(format!("{server}/{name}")), folder: None }
}

/// A connection besides the store's.
pub(crate) async fn connect(url: &str) -> Client {
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
