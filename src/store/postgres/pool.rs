//! Connections to a PostgreSQL: few, made when they are wanted, and made again when they break.
//!
//! ```text
//! take ─→ idle ─→ Held ─┬─ its transaction has ended ─→ idle
//!                       └─ dropped before that ─→ rolled back ─→ idle
//! ```
//!
//! A task of its own carries all connections. While there is none, every operation fails at once.

use super::connect::{Server, ready};
use super::{Error, from_postgres};
use futures::future::try_join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

/// The most connections at a time.
const MOST: usize = 8;

/// The most statements that are kept ready on one connection: more than there are.
const PREPARED: usize = 128;

/// A connection, and the statements that the server knows on it.
pub(super) struct PooledConnection {
    pub(super) client: Client,
    prepared: HashMap<String, Statement>,
}

impl PooledConnection {
    /// Makes the server know these; it need not read and plan them again.
    pub(super) async fn prepare(&mut self, statements: &[(&str, Vec<Type>)]) -> Result<(), Error> {
        let room = PREPARED.saturating_sub(self.prepared.len());
        let unknown = statements.iter().filter(|(sql, _)| !self.prepared.contains_key(*sql)).take(room);
        let asked = unknown.map(|(sql, types)| {
            let prepared = self.client.prepare_typed(sql, types);
            async move { Ok(((*sql).to_owned(), prepared.await?)) }
        });
        let prepared = try_join_all(asked).await.map_err(|error| from_postgres(&error))?;
        self.prepared.extend(prepared);
        Ok(())
    }

    pub(super) fn prepared(&self, sql: &str) -> Option<&Statement> {
        self.prepared.get(sql)
    }
}

/// How it stands.
#[derive(Clone)]
enum ConnectionState {
    Connecting,
    Up,
    Down(Error),
}

/// The way to the connections.
pub(super) struct Pool {
    link: watch::Receiver<ConnectionState>,
    idle: Mutex<mpsc::Receiver<PooledConnection>>,
    ends: Ends,
    driver: JoinHandle<()>,
}

/// Where connections go, and where it is said that there are too few.
#[derive(Clone)]
struct Ends {
    idle: mpsc::Sender<PooledConnection>,
    left: mpsc::Sender<PooledConnection>,
    wanted: Arc<Notify>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Pool {
    /// Connects once; what is wrong with the server or its tables is told here.
    pub(super) async fn open(server: Server) -> Result<Self, Error> {
        let (publish, mut link) = watch::channel(ConnectionState::Connecting);
        let (idle, resting) = mpsc::channel(MOST);
        let (left, abandoned) = mpsc::channel(MOST);
        let ends = Ends { idle, left, wanted: Arc::default() };
        let driver = Driver { server, publish, ends: ends.clone(), up: 0, rested: Instant::now() };
        #[expect(
            clippy::disallowed_methods,
            reason = "lives as long as the store, which aborts it when dropped"
        )]
        let driver = tokio::spawn(driver.run(abandoned));
        let pool = Self { link: link.clone(), idle: Mutex::new(resting), ends, driver };
        let first =
            link.wait_for(|link| !matches!(link, ConnectionState::Connecting)).await.map_err(|_| gone())?;
        match &*first {
            ConnectionState::Down(error) => Err(error.clone()),
            _ => Ok(pool),
        }
    }

    /// A connection that nobody else uses.
    pub(super) async fn take(&self) -> Result<Held, Error> {
        let mut link = self.link.clone();
        let mut idle = self.idle.lock().await;
        loop {
            let connection = match idle.try_recv() {
                Ok(connection) => connection,
                Err(_) => {
                    if let ConnectionState::Down(error) = &*link.borrow_and_update() {
                        return Err(error.clone());
                    }
                    self.ends.wanted.notify_one();
                    tokio::select! {
                        connection = idle.recv() => connection.ok_or_else(gone)?,
                        changed = link.changed() => {
                            changed.map_err(|_| gone())?;
                            continue;
                        }
                    }
                }
            };
            if !connection.client.is_closed() {
                return Ok(Held { connection: Some(connection), ends: self.ends.clone(), open: false });
            }
        }
    }
}

fn gone() -> Error {
    Error::unavailable("the task of its connections has ended")
}

/// A connection, for one operation.
pub(super) struct Held {
    connection: Option<PooledConnection>,
    ends: Ends,
    /// A transaction is open.
    pub(super) open: bool,
}

impl Held {
    pub(super) fn connection(&mut self) -> Result<&mut PooledConnection, Error> {
        self.connection.as_mut().ok_or_else(gone)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        // There is room for all of them.
        let _ =
            if self.open { self.ends.left.try_send(connection) } else { self.ends.idle.try_send(connection) };
    }
}

/// How one connection ended.
struct Ended {
    /// It could be used before.
    was_up: bool,
    why: Error,
}

/// What carries the connections.
struct Driver {
    server: Server,
    publish: watch::Sender<ConnectionState>,
    ends: Ends,
    /// How many can be used.
    up: usize,
    /// When the next connection may be made.
    rested: Instant,
}

type Carried = Pin<Box<dyn Future<Output = Ended> + Send>>;

impl Driver {
    async fn run(mut self, mut abandoned: mpsc::Receiver<PooledConnection>) {
        let (began, mut begun) = mpsc::channel(MOST);
        let mut carried: FuturesUnordered<Carried> = FuturesUnordered::new();
        let mut cleaned = FuturesUnordered::new();
        carried.push(self.connection(&began));
        loop {
            let connecting = carried.len() > self.up;
            tokio::select! {
                Some(ended) = carried.next() => self.ended(ended),
                Some(connection) = begun.recv() => {
                    self.up += 1;
                    self.publish.send_replace(ConnectionState::Up);
                    let _ = self.ends.idle.try_send(connection);
                }
                () = self.wait(), if !connecting && carried.len() < MOST => {
                    carried.push(self.connection(&began));
                }
                Some(connection) = abandoned.recv() => cleaned.push(roll_back(connection)),
                Some(connection) = cleaned.next() => {
                    let _ = self.ends.idle.try_send(connection);
                }
            }
        }
    }

    /// Returns when there should be one more connection, and may be.
    async fn wait(&self) {
        if self.up > 0 {
            self.ends.wanted.notified().await;
        }
        tokio::time::sleep_until(self.rested).await;
    }

    fn ended(&mut self, Ended { was_up, why }: Ended) {
        self.up -= usize::from(was_up);
        if self.up == 0 {
            self.publish.send_replace(ConnectionState::Down(why));
        }
        let mut random = [0; 2];
        // Without random numbers all replicas come back together, which a database survives.
        let _ = getrandom::fill(&mut random);
        let jitter = u64::from(u16::from_ne_bytes(random)) % 1_000;
        self.rested = Instant::now() + Duration::from_millis(1_000 + jitter);
    }

    /// One connection from its beginning to its end.
    fn connection(&self, began: &mpsc::Sender<PooledConnection>) -> Carried {
        let (server, began) = (self.server.clone(), began.clone());
        Box::pin(async move {
            let (client, connection) = match server.connect().await {
                Ok(pair) => pair,
                Err(why) => return Ended { was_up: false, why },
            };
            let set_up = async {
                let mut client = client;
                ready(&mut client).await?;
                let _ = began.try_send(PooledConnection { client, prepared: HashMap::new() });
                Ok(())
            };
            let (set_up, ended) = tokio::join!(set_up, connection);
            let why = match (&set_up, ended) {
                (Err(error), _) => Error::clone(error),
                (Ok(()), Ok(())) => Error::unavailable("the connection was closed"),
                (Ok(()), Err(error)) => from_postgres(&error),
            };
            Ended { was_up: set_up.is_ok(), why }
        })
    }
}

/// Ends what was left open; a connection on which that fails is closed by it.
async fn roll_back(connection: PooledConnection) -> PooledConnection {
    let _ = connection.client.batch_execute("ROLLBACK").await;
    connection
}
