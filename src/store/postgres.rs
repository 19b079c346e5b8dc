//! The store that replicas share: PostgreSQL.
//!
//! Takes: operations, each with a connection of its own while it lasts. Remembers: a few connections, made again when
//! they break. While there is none, every operation fails at once.
//! Never: makes connections faster than one a second while they break, waits for a lock longer than the deadline, changes
//! a table under a lock that others could feel.
//!
//! What is to be written is sent with the end of its transaction behind it, and each transaction's beginning with what is
//! asked first: an operation that looks and then writes waits for the server twice.

mod connect;
mod pool;
mod tls;

use super::record::{Caps, Error, Millis, Totals};
use super::sql::{self, Row, Sql, SqlValue};
use bytes::BytesMut;
use connect::Server;
use futures::{TryStreamExt, future};
use pool::{Held, Pool, PooledConnection};
use std::pin::pin;
use tokio::sync::{Mutex, MutexGuard};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// The most statements that are sent without waiting for their answers.
const AHEAD: usize = 16;

/// The way to the server.
pub(super) struct Postgres {
    pool: Pool,
    /// Held by whoever writes where totals are counted: he must see what the one before him did.
    counting: Mutex<()>,
}

impl Postgres {
    /// Whether this is the address of a database.
    pub(super) fn is_url(url: &str) -> bool {
        Server::is_url(url)
    }

    pub(super) async fn open(url: &str) -> Result<Self, Error> {
        Ok(Self { pool: Pool::open(Server::of(url)?).await?, counting: Mutex::default() })
    }

    /// Begins an operation.
    pub(super) async fn session(&self, writes: bool, caps: &Caps) -> Result<Session<'_>, Error> {
        let alone = match writes && caps.counts() {
            true => Some(self.counting.lock().await),
            false => None,
        };
        Ok(Session { held: self.pool.take().await?, writes, waiting: Vec::new(), _alone: alone })
    }

    pub(super) async fn clock(&self) -> Result<Millis, Error> {
        let sql = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
        let wrong = |error: tokio_postgres::Error| from_postgres(&error);
        let mut held = self.pool.take().await?;
        let row = held.connection()?.client.query_typed_one(sql, &[]).await.map_err(wrong)?;
        let now: i64 = row.try_get(0).map_err(wrong)?;
        u64::try_from(now).map_err(Error::unavailable)
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

/// A statement whose answer nobody waits for.
struct Later {
    sql: String,
    values: Vec<SqlValue>,
}

/// An operation under way. What writes is one transaction, and what only reads is none: at this level of isolation each
/// statement would see for itself even then. Dropped before its end, it is rolled back.
pub(super) struct Session<'a> {
    held: Held,
    writes: bool,
    /// What is sent with the next statement that is waited for.
    waiting: Vec<Later>,
    _alone: Option<MutexGuard<'a, ()>>,
}

impl Session<'_> {
    /// Ends the operation: what it wrote is there if this gives its answer, and else it is not.
    pub(super) async fn end<T>(mut self, answer: Result<T, Error>) -> Result<T, Error> {
        match answer {
            Ok(answer) if self.held.open || !self.waiting.is_empty() => self.send(None).await.map(|_| answer),
            Err(error) if self.held.open => {
                let ended = batch(&self.held.connection()?.client, "ROLLBACK").await;
                self.held.open = ended.is_err();
                ended.and(Err(error))
            }
            answer => answer,
        }
    }

    /// Sends what waits and then `last`, or the end of the transaction, without waiting in between. Gives the answer to
    /// `last`, if nothing before it has failed.
    async fn send(&mut self, last: Option<(&str, &[SqlValue])>) -> Result<Answer, Error> {
        let (begins, ends) = (self.writes && !self.held.open, last.is_none());
        let waiting = std::mem::take(&mut self.waiting);
        let all = waiting.iter().map(|later| (&*later.sql, &*later.values)).chain(last);
        let connection = self.held.connection()?;
        let typed: Vec<_> = all.map(|(sql, values)| (sql, values.iter().map(type_of).collect())).collect();
        connection.prepare(&typed).await?;
        self.held.open = self.writes;
        let connection: &PooledConnection = self.held.connection()?;
        let begun = async { if begins { batch(&connection.client, "BEGIN").await } else { Ok(()) } };
        let before = future::join_all(waiting.iter().map(|later| run(connection, &later.sql, &later.values)));
        let last = async {
            match last {
                Some((sql, values)) => run(connection, sql, values).await,
                None => batch(&connection.client, "COMMIT").await.map(|()| (Vec::new(), 0)),
            }
        };
        // Each sends when it is first polled, and these are polled in their order.
        let (begun, before, last) = future::join3(begun, before, last).await;
        // Once the end has been sent, the transaction is over, also where a statement has failed.
        self.held.open &= !ends;
        begun?;
        before.into_iter().collect::<Result<Vec<_>, _>>()?;
        last
    }
}

async fn batch(client: &Client, sql: &str) -> Result<(), Error> {
    client.batch_execute(sql).await.map_err(|error| from_postgres(&error))
}

/// The rows, and how many were changed.
type Answer = (Vec<tokio_postgres::Row>, u64);

/// One statement.
async fn run(connection: &PooledConnection, sql: &str, values: &[SqlValue]) -> Result<Answer, Error> {
    let wrong = |error: tokio_postgres::Error| from_postgres(&error);
    let stream = match connection.prepared(sql) {
        Some(statement) => connection.client.query_raw(statement, values).await,
        None => {
            connection.client.query_typed_raw(sql, values.iter().map(|value| (value, type_of(value)))).await
        }
    };
    let mut stream = pin!(stream.map_err(wrong)?);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await.map_err(wrong)? {
        rows.push(row);
    }
    Ok((rows, stream.rows_affected().unwrap_or(0)))
}

fn type_of(value: &SqlValue) -> Type {
    if matches!(value, SqlValue::Int(_)) { Type::INT8 } else { Type::TEXT }
}

impl ToSql for SqlValue {
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

    async fn query(&mut self, sql: &str, values: &[SqlValue]) -> Result<Vec<Row>, Error> {
        let (rows, _) = self.send(Some((sql, values))).await?;
        rows.iter()
            .map(|row| (0..row.len()).map(|at| from_column(row, at)).collect::<Result<_, _>>().map(Row))
            .collect()
    }

    async fn execute(&mut self, sql: &str, values: &[SqlValue]) -> Result<u64, Error> {
        self.send(Some((sql, values))).await.map(|(_, count)| count)
    }

    async fn later(&mut self, sql: &str, values: &[SqlValue]) -> Result<(), Error> {
        if self.waiting.len() == AHEAD {
            return self.send(Some((sql, values))).await.map(|_| ());
        }
        self.waiting.push(Later { sql: sql.to_owned(), values: values.to_vec() });
        Ok(())
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

fn from_column(row: &tokio_postgres::Row, at: usize) -> Result<SqlValue, Error> {
    let wrong = |error: tokio_postgres::Error| from_postgres(&error);
    let is_number = row.columns().get(at).is_some_and(|column| *column.type_() == Type::INT8);
    if is_number {
        return Ok(row.try_get::<_, Option<i64>>(at).map_err(wrong)?.map_or(SqlValue::Null, SqlValue::Int));
    }
    Ok(row
        .try_get::<_, Option<&str>>(at)
        .map_err(wrong)?
        .map_or(SqlValue::Null, |text| SqlValue::Text(text.into())))
}
