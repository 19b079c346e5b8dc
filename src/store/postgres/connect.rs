//! How a connection comes about, and what is looked at before it is used.

use super::super::record::Error;
use super::super::sql::{self, SCHEMA};
use super::from_postgres;
use super::tls::{Stream, Tls, TlsSettings};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Connection, Socket};

/// How long a connection may take to come about, and again to be ready.
const CONNECT: Duration = Duration::from_secs(3);

/// How long unacknowledged data may be under way before the connection counts as broken.
const SILENCE: Duration = Duration::from_secs(5);

/// What replicas that start at once lock while they make the tables.
const LOCK: i64 = 0x7361_6d65_7769_7265;

/// The server gives up when the caller has: a lock held by a replica that is cut off ends by itself.
const SETTINGS: &str = "SET statement_timeout = 2000; SET lock_timeout = 1500; \
    SET idle_in_transaction_session_timeout = 4000; SET default_transaction_isolation = 'read committed'";

/// A server, as its URL names it.
#[derive(Clone)]
pub(super) struct Server {
    config: Arc<Config>,
    tls: Tls,
}

impl Server {
    /// Whether this is the address of one.
    pub(super) fn is_url(url: &str) -> bool {
        TlsSettings::of(url).is_ok_and(|(_, url)| url.parse::<Config>().is_ok())
    }

    pub(super) fn of(url: &str) -> Result<Self, Error> {
        let (asked, url) = TlsSettings::of(url)?;
        let mut config: Config = url.parse().map_err(|_| Error::unavailable("not a URL of a database"))?;
        config.tcp_user_timeout(SILENCE).application_name("samewire").ssl_mode(asked.mode);
        Ok(Self { config: Arc::new(config), tls: asked.connector()? })
    }

    pub(super) async fn connect(&self) -> Result<(Client, Connection<Socket, Stream>), Error> {
        match tokio::time::timeout(CONNECT, self.config.connect(self.tls.clone())).await {
            Ok(Ok(pair)) => Ok(pair),
            Ok(Err(error)) => Err(from_postgres(&error)),
            Err(_) => Err(Error::unavailable("no connection in time")),
        }
    }
}

/// Makes a connection ready, and the tables where they are missing.
pub(super) async fn ready(client: &mut Client) -> Result<(), Error> {
    let late = |_| Err(Error::unavailable("the tables are not ready in time"));
    tokio::time::timeout(CONNECT, set_up(client)).await.unwrap_or_else(late)
}

/// Where the tables are there, nothing is locked.
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
