//! Connections to PostgreSQL: how they are made, and what is checked before they are used.

use super::super::record::{StoreCaps, StoreError};
use super::super::sql::{self, SCHEMA};
use super::from_postgres;
use super::tls::{PostgresStream, Tls, TlsSettings};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Connection, Socket};

/// Time limit for making a connection, and again for its setup.
const CONNECT: Duration = Duration::from_secs(3);

/// Time without acknowledgement of sent data after which a connection counts as broken.
const SILENCE: Duration = Duration::from_secs(5);

/// Advisory lock for the creation of the tables, since replicas may start at the same time.
const LOCK: i64 = 0x7361_6d65_7769_7265;

/// Returns the settings that make the server give up when the caller has: locks of a replica that was cut off end on
/// their own.
fn settings(caps: &StoreCaps) -> String {
    format!(
        "SET statement_timeout = {}; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {}; \
         SET default_transaction_isolation = 'read committed'",
        caps.deadline.as_millis(),
        caps.lock_wait().as_millis(),
        caps.deadline.as_millis() * 2
    )
}

/// Database server, as its URL describes it.
#[derive(Clone)]
pub(super) struct PostgresServer {
    config: Arc<Config>,
    tls: Tls,
    /// Settings of each connection.
    settings: Arc<str>,
}

/// Returns true if this is the URL of a database server.
pub(in crate::store) fn is_url(url: &str) -> bool {
    TlsSettings::of(url).is_ok_and(|(_, url)| url.parse::<Config>().is_ok())
}

impl PostgresServer {
    pub(super) fn of(url: &str, caps: &StoreCaps) -> Result<Self, StoreError> {
        let (tls, url) = TlsSettings::of(url)?;
        let mut config: Config = url
            .parse()
            .map_err(|_| StoreError::unavailable("not a URL of a database"))?;
        config
            .tcp_user_timeout(SILENCE)
            .application_name("samewire")
            .ssl_mode(tls.mode);
        Ok(Self {
            config: Arc::new(config),
            tls: tls.connector()?,
            settings: settings(caps).into(),
        })
    }

    pub(super) async fn connect(
        &self,
    ) -> Result<(Client, Connection<Socket, PostgresStream>), StoreError> {
        match tokio::time::timeout(CONNECT, self.config.connect(self.tls.clone())).await {
            Ok(Ok(pair)) => Ok(pair),
            Ok(Err(error)) => Err(from_postgres(error)),
            Err(_) => Err(StoreError::unavailable("no connection in time")),
        }
    }

    /// Prepares a connection for use, and creates missing tables.
    pub(super) async fn prepare(&self, client: &mut Client) -> Result<(), StoreError> {
        let late = |_| Err(StoreError::unavailable("the tables are not ready in time"));
        tokio::time::timeout(CONNECT, set_up(client, &self.settings))
            .await
            .unwrap_or_else(late)
    }
}

/// Applies the settings and completes the tables. Takes no lock if the tables are complete.
async fn set_up(client: &mut Client, settings: &str) -> Result<(), StoreError> {
    client
        .batch_execute(settings)
        .await
        .map_err(from_postgres)?;
    if let Some(version) = version(client).await? {
        sql::readable(version)?;
        if version.0 >= SCHEMA.0 {
            return Ok(());
        }
    }
    let begun = client.transaction().await.map_err(from_postgres)?;
    begun
        .execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])
        .await
        .map_err(from_postgres)?;
    begun
        .batch_execute(&sql::tables("TEXT COLLATE \"C\""))
        .await
        .map_err(from_postgres)?;
    let insert = "INSERT INTO samewire_schema (version, reader) SELECT $1, $2 \
                  WHERE NOT EXISTS (SELECT 1 FROM samewire_schema WHERE version >= $1)";
    begun
        .execute(insert, &[&SCHEMA.0, &SCHEMA.1])
        .await
        .map_err(from_postgres)?;
    begun.commit().await.map_err(from_postgres)
}

async fn version(client: &Client) -> Result<Option<(i64, i64)>, StoreError> {
    let sql = "SELECT version, reader FROM samewire_schema ORDER BY version DESC LIMIT 1";
    match client.query_opt(sql, &[]).await {
        Ok(None) => Ok(None),
        Ok(Some(row)) => {
            let column = |at: usize| row.try_get(at).map_err(from_postgres);
            Ok(Some((column(0)?, column(1)?)))
        }
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(None),
        Err(error) => Err(from_postgres(error)),
    }
}
