//! The store that replicas share: PostgreSQL.
//!
//! Takes: transactions, one after the other. Remembers: one connection, which a task of its own makes again when it
//! breaks. While there is none, every operation fails at once.
//! Never: connects more than once a second, waits for a lock longer than the deadline, changes a table under a lock that
//! others could feel.

use super::record::{Error, Millis, Totals};
use super::sql::{self, Row, SCHEMA, Sql, Val};
use bytes::BytesMut;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, NoTls, Transaction};

/// How long a connection may take to come about, with the look at the tables.
const CONNECT: Duration = Duration::from_secs(3);

/// How long unacknowledged data may be under way before the connection counts as broken.
const SILENCE: Duration = Duration::from_secs(5);

/// What replicas that start at once lock while they make the tables.
const LOCK: i64 = 0x7361_6d65_7769_7265;

/// The server gives up when the caller has: a lock held by a replica that is cut off ends by itself.
const SETTINGS: &str = "SET statement_timeout = 2000; SET lock_timeout = 1500; \
    SET idle_in_transaction_session_timeout = 4000; SET default_transaction_isolation = 'read committed'";

#[derive(Clone)]
enum Link {
    Connecting,
    Up(Arc<Mutex<Client>>),
    Down(Error),
}

/// The way to the connection.
pub(super) struct Postgres {
    link: watch::Receiver<Link>,
    driver: JoinHandle<()>,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Postgres {
    pub(super) async fn open(url: &str) -> Result<Self, Error> {
        let mut config: Config = url.parse().map_err(|_| Error::unavailable("not a URL of a database"))?;
        config.tcp_user_timeout(SILENCE).application_name("samewire");
        let (publish, mut link) = watch::channel(Link::Connecting);
        #[expect(
            clippy::disallowed_methods,
            reason = "lives as long as the store, which aborts it when dropped"
        )]
        let driver = tokio::spawn(drive(config, publish));
        let postgres = Self { link: link.clone(), driver };
        let first =
            link.wait_for(|link| !matches!(link, Link::Connecting)).await.map_err(|_| gone())?.clone();
        match first {
            Link::Down(error) => Err(error),
            _ => Ok(postgres),
        }
    }

    pub(super) fn client(&self) -> Result<Arc<Mutex<Client>>, Error> {
        match &*self.link.borrow() {
            Link::Up(client) => Ok(Arc::clone(client)),
            Link::Down(error) => Err(error.clone()),
            Link::Connecting => Err(Error::unavailable("not connected")),
        }
    }

    pub(super) async fn clock(&self) -> Result<Millis, Error> {
        let client = self.client()?;
        let sql = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
        let row = client.lock().await.query_one(sql, &[]).await.map_err(|error| from_postgres(&error))?;
        let now: i64 = row.try_get(0).map_err(|error| from_postgres(&error))?;
        u64::try_from(now).map_err(Error::unavailable)
    }
}

fn gone() -> Error {
    Error::unavailable("its connection's task has ended")
}

/// Connects, serves the connection until it breaks, and begins again, at most once a second.
async fn drive(config: Config, publish: watch::Sender<Link>) {
    loop {
        let why = connected(&config, &publish).await;
        publish.send_replace(Link::Down(why));
        let mut random = [0; 2];
        // Without random numbers all replicas come back together, which a database survives.
        let _ = getrandom::fill(&mut random);
        let jitter = u64::from(u16::from_ne_bytes(random)) % 1_000;
        tokio::time::sleep(Duration::from_millis(1_000 + jitter)).await;
    }
}

/// One connection from its beginning to its end; gives why it ended.
async fn connected(config: &Config, publish: &watch::Sender<Link>) -> Error {
    let (client, connection) = match tokio::time::timeout(CONNECT, config.connect(NoTls)).await {
        Ok(Ok(pair)) => pair,
        Ok(Err(error)) => return from_postgres(&error),
        Err(_) => return Error::unavailable("no connection in time"),
    };
    let set_up = async {
        let mut client = client;
        match tokio::time::timeout(CONNECT, set_up(&mut client)).await {
            Ok(Ok(())) => {
                publish.send_replace(Link::Up(Arc::new(Mutex::new(client))));
                None
            }
            Ok(Err(error)) => Some(error),
            Err(_) => Some(Error::unavailable("the tables are not ready in time")),
        }
    };
    let serve = async {
        let end = connection.await;
        // The client goes with the link, so that nobody waits on it any more.
        publish.send_if_modified(|link| {
            let was_up = matches!(link, Link::Up(_));
            if was_up {
                *link = Link::Connecting;
            }
            was_up
        });
        end
    };
    let (refused, ended) = tokio::join!(set_up, serve);
    refused.unwrap_or_else(|| match ended {
        Ok(()) => Error::unavailable("the connection was closed"),
        Err(error) => from_postgres(&error),
    })
}

/// Makes the tables where they are missing. Where they are there, nothing is locked.
async fn set_up(client: &mut Client) -> Result<(), Error> {
    let wrong = |error: tokio_postgres::Error| from_postgres(&error);
    client.batch_execute(SETTINGS).await.map_err(wrong)?;
    if let Some(version) = version(client).await? {
        sql::readable(version)?;
        if version.0 >= SCHEMA.0 {
            return Ok(());
        }
    }
    let begun = client.transaction().await.map_err(wrong)?;
    begun.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await.map_err(wrong)?;
    begun.batch_execute(&sql::tables("TEXT COLLATE \"C\"")).await.map_err(wrong)?;
    let insert = "INSERT INTO samewire_schema (version, reader) SELECT $1, $2 \
                  WHERE NOT EXISTS (SELECT 1 FROM samewire_schema WHERE version >= $1)";
    begun.execute(insert, &[&SCHEMA.0, &SCHEMA.1]).await.map_err(wrong)?;
    begun.commit().await.map_err(wrong)
}

async fn version(client: &Client) -> Result<Option<(i64, i64)>, Error> {
    let sql = "SELECT version, reader FROM samewire_schema ORDER BY version DESC LIMIT 1";
    match client.query_opt(sql, &[]).await {
        Ok(None) => Ok(None),
        Ok(Some(row)) => {
            let column = |at: usize| row.try_get(at).map_err(|error| from_postgres(&error));
            Ok(Some((column(0)?, column(1)?)))
        }
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(None),
        Err(error) => Err(from_postgres(&error)),
    }
}

/// What the server says, without what it says about values.
fn from_postgres(error: &tokio_postgres::Error) -> Error {
    let Some(said) = error.as_db_error() else {
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
        return Error::unavailable(format_args!("{error}{}", cause.unwrap_or_default()));
    };
    match *said.code() {
        SqlState::DISK_FULL => Error::Full,
        SqlState::QUERY_CANCELED => Error::Slow,
        _ => Error::unavailable(format_args!("{} ({})", said.message(), said.code().code())),
    }
}

/// A transaction. Dropped before its end, it is rolled back.
pub(super) struct Session<'a> {
    transaction: Transaction<'a>,
}

impl<'a> Session<'a> {
    pub(super) async fn begin(client: &'a mut Client) -> Result<Self, Error> {
        let transaction = client.transaction().await.map_err(|error| from_postgres(&error))?;
        Ok(Self { transaction })
    }

    pub(super) async fn end<T>(self, answer: Result<T, Error>) -> Result<T, Error> {
        let ended = match &answer {
            Ok(_) => self.transaction.commit().await,
            Err(_) => self.transaction.rollback().await,
        };
        answer.and_then(|answer| ended.map(|()| answer).map_err(|error| from_postgres(&error)))
    }

    async fn rows(&mut self, sql: &str, values: &[Val]) -> Result<Vec<tokio_postgres::Row>, Error> {
        let values: Vec<_> = values.iter().map(parameter).collect();
        self.transaction.query_typed(sql, &values).await.map_err(|error| from_postgres(&error))
    }
}

fn parameter(value: &Val) -> (&(dyn ToSql + Sync), Type) {
    (value, if matches!(value, Val::Int(_)) { Type::INT8 } else { Type::TEXT })
}

impl ToSql for Val {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Int(number) => number.to_sql(kind, out),
            Self::Text(text) => (&**text).to_sql(kind, out),
            Self::Null => Ok(IsNull::Yes),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::INT8, Type::TEXT].contains(kind)
    }

    to_sql_checked!();
}

impl Sql for Session<'_> {
    const LOCK: &'static str = " FOR UPDATE";

    async fn query(&mut self, sql: &str, values: &[Val]) -> Result<Vec<Row>, Error> {
        let rows = self.rows(sql, values).await?;
        rows.iter()
            .map(|row| (0..row.len()).map(|at| from_column(row, at)).collect::<Result<_, _>>().map(Row))
            .collect()
    }

    async fn execute(&mut self, sql: &str, values: &[Val]) -> Result<u64, Error> {
        let values: Vec<_> = values.iter().map(parameter).collect();
        self.transaction.execute_typed(sql, &values).await.map_err(|error| from_postgres(&error))
    }

    /// Others write too, so they are counted; only where a cap asks for it.
    async fn totals(&mut self) -> Result<Totals, Error> {
        sql::count(self).await
    }

    fn moved(&mut self, _: i64, _: i64) {}

    async fn recount(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

fn from_column(row: &tokio_postgres::Row, at: usize) -> Result<Val, Error> {
    let wrong = |error: tokio_postgres::Error| from_postgres(&error);
    let is_number = row.columns().get(at).is_some_and(|column| *column.type_() == Type::INT8);
    if is_number {
        return Ok(row.try_get::<_, Option<i64>>(at).map_err(wrong)?.map_or(Val::Null, Val::Int));
    }
    Ok(row.try_get::<_, Option<&str>>(at).map_err(wrong)?.map_or(Val::Null, |text| Val::Text(text.into())))
}
