//! Connection pool for PostgreSQL: a few connections, made on demand and made again when they break.
//!
//! ```text
//! take ─→ idle ─→ Held ─┬─ its transaction has ended ─→ idle
//!                       └─ dropped before that ─→ rolled back ─→ idle
//! ```
//!
//! A single task drives all connections. Without a connection, every operation fails at once.

use super::connect::PostgresServer;
use super::{StoreError, from_postgres};
use futures::future::try_join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

/// Upper limit for the number of connections.
const MOST: usize = 8;

/// Connections that requests may use at once: one is left for the leases of what runs, however many requests wait.
const FOR_REQUESTS: usize = MOST - 1;

/// Upper limit for the prepared statements on one connection: more than there are.
const PREPARED: usize = 128;

/// Connection, with the statements that are prepared on it.
pub(super) struct PooledConnection {
    pub(super) client: Client,
    prepared: HashMap<String, Statement>,
}

impl PooledConnection {
    /// Prepares those of these statements that are new, so that the server need not parse and plan them again.
    pub(super) async fn prepare(
        &mut self,
        statements: &[(&str, Vec<Type>)],
    ) -> Result<(), StoreError> {
        let room = PREPARED.saturating_sub(self.prepared.len());
        let unknown = statements
            .iter()
            .filter(|(sql, _)| !self.prepared.contains_key(*sql))
            .take(room);
        let prepares = unknown.map(|(sql, types)| {
            let prepared = self.client.prepare_typed(sql, types);
            async move { Ok(((*sql).to_owned(), prepared.await?)) }
        });
        let prepared = try_join_all(prepares).await.map_err(from_postgres)?;
        self.prepared.extend(prepared);
        Ok(())
    }

    pub(super) fn prepared(&self, sql: &str) -> Option<&Statement> {
        self.prepared.get(sql)
    }
}

/// State of the pool.
#[derive(Clone)]
enum SlotState {
    Connecting,
    Up,
    Down(StoreError),
}

/// Pool of connections, with the task that drives them.
pub(super) struct SessionPool {
    link: watch::Receiver<SlotState>,
    idle: Mutex<mpsc::Receiver<PooledConnection>>,
    for_requests: Arc<Semaphore>,
    ends: Channels,
    driver: JoinHandle<()>,
}

/// Channels through which connections return to the pool, and the signal that more are needed.
#[derive(Clone)]
struct Channels {
    idle: mpsc::Sender<PooledConnection>,
    to_roll_back: mpsc::Sender<PooledConnection>,
    demand: Arc<Notify>,
}

impl Drop for SessionPool {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl SessionPool {
    /// Connects once. Fails with what is wrong with the server or its tables.
    pub(super) async fn open(server: PostgresServer) -> Result<Self, StoreError> {
        let (publish, mut link) = watch::channel(SlotState::Connecting);
        let (idle, resting) = mpsc::channel(MOST);
        let (left, abandoned) = mpsc::channel(MOST);
        let ends = Channels {
            idle,
            to_roll_back: left,
            demand: Arc::default(),
        };
        let driver = Driver {
            server,
            publish,
            ends: ends.clone(),
            up: 0,
            rested: Instant::now(),
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "lives as long as the store, which aborts it when dropped"
        )]
        let driver = tokio::spawn(driver.run(abandoned));
        let for_requests = Arc::new(Semaphore::new(FOR_REQUESTS));
        let pool = Self {
            link: link.clone(),
            idle: Mutex::new(resting),
            for_requests,
            ends,
            driver,
        };
        let first = link
            .wait_for(|link| !matches!(link, SlotState::Connecting))
            .await
            .map_err(|_| gone())?;
        match &*first {
            SlotState::Down(error) => Err(error.clone()),
            _ => Ok(pool),
        }
    }

    /// Takes a connection for exclusive use. Waits for one if all are in use; fails at once if there is none.
    /// `for_leases`: it keeps what runs alive, and does not wait for requests.
    pub(super) async fn take(&self, for_leases: bool) -> Result<HeldConnection, StoreError> {
        let permit = match for_leases {
            true => None,
            false => Some(
                Arc::clone(&self.for_requests)
                    .acquire_owned()
                    .await
                    .map_err(|_| gone())?,
            ),
        };
        let mut link = self.link.clone();
        let mut idle = self.idle.lock().await;
        loop {
            let connection = match idle.try_recv() {
                Ok(connection) => connection,
                Err(_) => {
                    if let SlotState::Down(error) = &*link.borrow_and_update() {
                        return Err(error.clone());
                    }
                    self.ends.demand.notify_one();
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
                let ends = self.ends.clone();
                return Ok(HeldConnection {
                    connection: Some(connection),
                    ends,
                    open: false,
                    _permit: permit,
                });
            }
        }
    }
}

fn gone() -> StoreError {
    StoreError::unavailable("the task of its connections has ended")
}

/// Connection in use by one operation; returns to the pool when dropped.
pub(super) struct HeldConnection {
    connection: Option<PooledConnection>,
    ends: Channels,
    /// True while a transaction is open.
    pub(super) open: bool,
    _permit: Option<OwnedSemaphorePermit>,
}

impl HeldConnection {
    pub(super) fn connection(&mut self) -> Result<&mut PooledConnection, StoreError> {
        self.connection.as_mut().ok_or_else(gone)
    }
}

impl Drop for HeldConnection {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        // The channels have room for all connections.
        let _ = if self.open {
            self.ends.to_roll_back.try_send(connection)
        } else {
            self.ends.idle.try_send(connection)
        };
    }
}

/// End of a connection.
struct EndedConnection {
    /// True if the connection was usable before.
    was_up: bool,
    why: StoreError,
}

/// Task that drives the connections and makes new ones.
struct Driver {
    server: PostgresServer,
    publish: watch::Sender<SlotState>,
    ends: Channels,
    /// Number of usable connections.
    up: usize,
    /// Time from which the next connection may be made.
    rested: Instant,
}

type ConnectionFuture = Pin<Box<dyn Future<Output = EndedConnection> + Send>>;

impl Driver {
    async fn run(mut self, mut abandoned: mpsc::Receiver<PooledConnection>) {
        let (began, mut begun) = mpsc::channel(MOST);
        let mut carried: FuturesUnordered<ConnectionFuture> = FuturesUnordered::new();
        let mut cleaned = FuturesUnordered::new();
        carried.push(self.connection(&began));
        loop {
            let connecting = carried.len() > self.up;
            tokio::select! {
                Some(ended) = carried.next() => {
                    // A connection that ends at once is reported twice in one poll: its start counts first.
                    while let Ok(connection) = begun.try_recv() {
                        self.begun(connection);
                    }
                    self.ended(ended);
                }
                Some(connection) = begun.recv() => self.begun(connection),
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

    /// Waits until another connection is needed and may be made.
    async fn wait(&self) {
        if self.up > 0 {
            self.ends.demand.notified().await;
        }
        tokio::time::sleep_until(self.rested).await;
    }

    fn begun(&mut self, connection: PooledConnection) {
        self.up += 1;
        self.publish.send_replace(SlotState::Up);
        let _ = self.ends.idle.try_send(connection);
    }

    fn ended(&mut self, EndedConnection { was_up, why }: EndedConnection) {
        self.up -= usize::from(was_up);
        if self.up == 0 {
            self.publish.send_replace(SlotState::Down(why));
        }
        let mut random = [0; 2];
        // Without random numbers all replicas reconnect together, which a database survives.
        let _ = getrandom::fill(&mut random);
        let jitter = u64::from(u16::from_ne_bytes(random)) % 1_000;
        self.rested = Instant::now() + Duration::from_millis(1_000 + jitter);
    }

    /// Drives one connection from start to end.
    fn connection(&self, began: &mpsc::Sender<PooledConnection>) -> ConnectionFuture {
        let (server, began) = (self.server.clone(), began.clone());
        Box::pin(async move {
            let (client, connection) = match server.connect().await {
                Ok(pair) => pair,
                Err(why) => return EndedConnection { was_up: false, why },
            };
            let set_up = async {
                let mut client = client;
                server.prepare(&mut client).await?;
                let _ = began.try_send(PooledConnection {
                    client,
                    prepared: HashMap::new(),
                });
                Ok(())
            };
            let (set_up, ended) = tokio::join!(set_up, connection);
            let why = match (&set_up, ended) {
                (Err(error), _) => StoreError::clone(error),
                (Ok(()), Ok(())) => StoreError::unavailable("the connection was closed"),
                (Ok(()), Err(error)) => from_postgres(error),
            };
            EndedConnection {
                was_up: set_up.is_ok(),
                why,
            }
        })
    }
}

/// Rolls back an open transaction. If that fails, the connection is closed anyway.
async fn roll_back(connection: PooledConnection) -> PooledConnection {
    let _ = connection.client.batch_execute("ROLLBACK").await;
    connection
}
