//! PostgreSQL backend: the store that several replicas share.
//!
//! Takes: operations, each of which has its own connection while it lasts. Remembers: a few connections, which
//! are made again when they break. Without a connection, every operation fails at once. Never: makes more than one
//! connection a second while they break, waits for a lock beyond the deadline, changes a table under a lock that
//! others would notice.
//!
//! Statements are pipelined: writes are sent together with the commit, and the start of a transaction with its
//! first query. An operation that reads and then writes waits for the server twice.

mod connect;
mod pool;
mod tls;

use super::record::{Millis, StoreCaps, StoreError, Totals};
use super::sql::{self, Sql, SqlRow, SqlValue};
use bytes::BytesMut;
use connect::PostgresServer;
pub(super) use connect::is_url;
use futures::{TryStreamExt, future};
use pool::{HeldConnection, PooledConnection, SessionPool};
use std::pin::pin;
use tokio::sync::{Mutex, MutexGuard};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// Upper limit for the statements that are sent without waiting for their results.
const AHEAD: usize = 16;

/// Connection pool, with the lock for operations that count.
pub(super) struct Postgres {
    pool: SessionPool,
    caps: StoreCaps,
    /// Lock for operations that write while totals are counted: each must see what the previous one has done.
    counting: Mutex<()>,
}

impl Postgres {
    pub(super) async fn open(url: &str, caps: StoreCaps) -> Result<Self, StoreError> {
        Ok(Self {
            pool: SessionPool::open(PostgresServer::of(url, &caps)?).await?,
            caps,
            counting: Mutex::default(),
        })
    }

    /// Starts an operation on a connection from the pool. `for_leases`: it renews leases, and adds nothing to what is
    /// counted.
    pub(super) async fn session(
        &self,
        writes: bool,
        for_leases: bool,
    ) -> Result<PostgresSession<'_>, StoreError> {
        let alone = match writes && !for_leases && self.caps.counts() {
            true => Some(self.counting.lock().await),
            false => None,
        };
        let held = self.pool.take(for_leases).await?;
        Ok(PostgresSession {
            held,
            caps: &self.caps,
            writes,
            waiting: Vec::new(),
            _alone: alone,
        })
    }

    pub(super) async fn clock(&self) -> Result<Millis, StoreError> {
        let sql = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
        let mut held = self.pool.take(true).await?;
        let row = held
            .connection()?
            .client
            .query_typed_one(sql, &[])
            .await
            .map_err(from_postgres)?;
        let now: i64 = row.try_get(0).map_err(from_postgres)?;
        u64::try_from(now).map_err(StoreError::unavailable)
    }
}

/// Converts an error, without the details in which the server repeats values.
fn from_postgres(error: tokio_postgres::Error) -> StoreError {
    let Some(said) = error.as_db_error() else {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        return StoreError::unavailable(format_args!("{error}{}", cause.unwrap_or_default()));
    };
    match *said.code() {
        SqlState::DISK_FULL => StoreError::Full,
        SqlState::QUERY_CANCELED => StoreError::Slow,
        _ => StoreError::unavailable(format_args!("{} ({})", said.message(), said.code().code())),
    }
}

/// Statement whose result does not matter.
struct Later {
    sql: String,
    values: Vec<SqlValue>,
}

/// Operation that is under way. One that writes is a transaction. One that only reads is not, since at this
/// isolation level each statement has its own snapshot anyway. Rolled back if dropped before its end.
pub(super) struct PostgresSession<'a> {
    held: HeldConnection,
    caps: &'a StoreCaps,
    writes: bool,
    /// Statements that are sent together with the next one whose result matters.
    waiting: Vec<Later>,
    _alone: Option<MutexGuard<'a, ()>>,
}

impl PostgresSession<'_> {
    /// Ends the operation. Its writes are committed if this returns the result, and rolled back otherwise.
    pub(super) async fn end<T>(mut self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        match answer {
            Ok(answer) if self.held.open || !self.waiting.is_empty() => {
                self.send(None).await.map(|_| answer)
            }
            Err(error) if self.held.open => {
                let ended = batch(&self.held.connection()?.client, "ROLLBACK").await;
                self.held.open = ended.is_err();
                ended.and(Err(error))
            }
            answer => answer,
        }
    }

    /// Sends the waiting statements and then `last`, or the commit, without waiting in between. Returns the result
    /// of `last` if no statement before it has failed.
    async fn send(&mut self, last: Option<(&str, &[SqlValue])>) -> Result<Answer, StoreError> {
        let (begins, ends) = (self.writes && !self.held.open, last.is_none());
        let waiting = std::mem::take(&mut self.waiting);
        let all = waiting
            .iter()
            .map(|later| (&*later.sql, &*later.values))
            .chain(last);
        let connection = self.held.connection()?;
        let typed: Vec<_> = all
            .map(|(sql, values)| (sql, values.iter().map(type_of).collect()))
            .collect();
        connection.prepare(&typed).await?;
        self.held.open = self.writes;
        let connection: &PooledConnection = self.held.connection()?;
        let begun = async {
            if begins {
                batch(&connection.client, "BEGIN").await
            } else {
                Ok(())
            }
        };
        let before = future::join_all(
            waiting
                .iter()
                .map(|later| run(connection, &later.sql, &later.values)),
        );
        let last = async {
            match last {
                Some((sql, values)) => run(connection, sql, values).await,
                None => batch(&connection.client, "COMMIT")
                    .await
                    .map(|()| (Vec::new(), 0)),
            }
        };
        // Each future sends at its first poll, and they are polled in this order.
        let (begun, before, last) = future::join3(begun, before, last).await;
        // Once the commit was sent, the transaction is over, even if a statement has failed.
        self.held.open &= !ends;
        begun?;
        before.into_iter().collect::<Result<Vec<_>, _>>()?;
        last
    }
}

async fn batch(client: &Client, sql: &str) -> Result<(), StoreError> {
    client.batch_execute(sql).await.map_err(from_postgres)
}

/// Result of a statement: the rows, and the number of rows that were changed.
type Answer = (Vec<tokio_postgres::Row>, u64);

/// Runs one statement.
async fn run(
    connection: &PooledConnection,
    sql: &str,
    values: &[SqlValue],
) -> Result<Answer, StoreError> {
    let stream = match connection.prepared(sql) {
        Some(statement) => connection.client.query_raw(statement, values).await,
        None => {
            connection
                .client
                .query_typed_raw(sql, values.iter().map(|value| (value, type_of(value))))
                .await
        }
    };
    let mut stream = pin!(stream.map_err(from_postgres)?);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await.map_err(from_postgres)? {
        rows.push(row);
    }
    Ok((rows, stream.rows_affected().unwrap_or(0)))
}

fn type_of(value: &SqlValue) -> Type {
    if matches!(value, SqlValue::Int(_)) {
        Type::INT8
    } else {
        Type::TEXT
    }
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

impl Sql for PostgresSession<'_> {
    const LOCK: &'static str = " FOR UPDATE";
    const LOCK_FREE: &'static str = " FOR UPDATE SKIP LOCKED";

    fn caps(&self) -> &StoreCaps {
        self.caps
    }

    async fn query(&mut self, sql: &str, values: &[SqlValue]) -> Result<Vec<SqlRow>, StoreError> {
        let (rows, _) = self.send(Some((sql, values))).await?;
        rows.iter()
            .map(|row| {
                (0..row.len())
                    .map(|at| from_column(row, at))
                    .collect::<Result<_, _>>()
                    .map(SqlRow)
            })
            .collect()
    }

    async fn execute(&mut self, sql: &str, values: &[SqlValue]) -> Result<u64, StoreError> {
        self.send(Some((sql, values))).await.map(|(_, count)| count)
    }

    async fn later(&mut self, sql: &str, values: &[SqlValue]) -> Result<(), StoreError> {
        if self.waiting.len() == AHEAD {
            return self.send(Some((sql, values))).await.map(|_| ());
        }
        self.waiting.push(Later {
            sql: sql.to_owned(),
            values: values.to_vec(),
        });
        Ok(())
    }

    /// Counts the records, since other replicas write, too. Called only if a limit requires it.
    async fn totals(&mut self) -> Result<Totals, StoreError> {
        sql::count(self, "").await
    }

    fn add_to_totals(&mut self, _: i64, _: i64) {}

    async fn recount(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn from_column(row: &tokio_postgres::Row, at: usize) -> Result<SqlValue, StoreError> {
    let is_number = row
        .columns()
        .get(at)
        .is_some_and(|column| *column.type_() == Type::INT8);
    if is_number {
        let number: Option<i64> = row.try_get(at).map_err(from_postgres)?;
        return Ok(number.map_or(SqlValue::Null, SqlValue::Int));
    }
    let text: Option<&str> = row.try_get(at).map_err(from_postgres)?;
    Ok(text.map_or(SqlValue::Null, |text| SqlValue::Text(text.into())))
}
