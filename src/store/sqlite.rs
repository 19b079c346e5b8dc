//! The store in a file: SQLite on a thread of its own.
//!
//! Takes: pieces of work through a bounded queue. Gives: their answers, after what they wrote is on the disk.
//! Never: blocks the caller's runtime, answers before the commit, wipes or repairs a file.
//!
//! The work that waits is done in one transaction with one write to the disk at its end, each piece in a savepoint. That
//! makes `synchronous=FULL` cheap, so it is what is used: with a write-ahead log, NORMAL survives a killed process too,
//! but after a power cut it has lost responses that clients were told are stored.

use super::record::{Error, Totals};
use super::sql::{self, Row, SCHEMA, Sql, Val, ready};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How much work may wait.
const QUEUE: usize = 1_024;

/// How much of it is done in one transaction.
const GROUP: usize = 256;

/// What is left free of a disk of 64 MiB and more; of a smaller one a fourth.
const RESERVE: u64 = 16 << 20;

/// Bytes of a page, as SQLite makes them.
const PAGE: u64 = 4_096;

/// How long another process may hold the file. Less than the deadline, so that the reason is told.
const BUSY: Duration = Duration::from_millis(1_500);

/// Tells the caller: his answer if the commit went well, else what it failed of.
type Tell = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// What is done with the session, or the reason why there is none.
type Work = Box<dyn FnOnce(Result<&mut Session, Error>) -> Option<Tell> + Send>;

struct Job {
    writes: bool,
    work: Work,
}

/// The way to the thread. It ends after this is gone and the queue is empty.
pub(super) struct Sqlite {
    jobs: mpsc::Sender<Job>,
}

impl Sqlite {
    pub(super) async fn open(path: &Path) -> Result<Self, Error> {
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE);
        let (reply, opened) = oneshot::channel();
        let path = path.to_path_buf();
        let thread = std::thread::Builder::new().name("samewire-store".to_owned());
        let run = move || match Session::open(path) {
            Ok(mut session) => {
                let _ = reply.send(Ok(()));
                while let Some(first) = queue.blocking_recv() {
                    let rest = std::iter::from_fn(|| queue.try_recv().ok());
                    session.group(std::iter::once(first).chain(rest).take(GROUP).collect());
                }
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        };
        thread.spawn(run).map_err(Error::unavailable)?;
        opened.await.map_err(|_| gone())??;
        Ok(Self { jobs })
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        writes: bool,
        work: impl FnOnce(&mut Session) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let work: Work = Box::new(move |session| {
            // Whoever has given up gets nothing done behind his back.
            if reply.is_closed() {
                return None;
            }
            let answer = session.and_then(|session| session.within(writes, work));
            Some(Box::new(move |commit| {
                let _ = reply.send(commit.and(answer));
            }))
        });
        self.jobs.send(Job { writes, work }).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

fn gone() -> Error {
    Error::unavailable("its thread has ended")
}

/// What is left free of the disk, so that there is room for what is written before the file itself.
struct Disk {
    /// Bytes.
    reserve: u64,
}

impl Disk {
    fn of(path: &Path) -> Result<Self, Error> {
        let disk = rustix::fs::statvfs(path).map_err(Error::unavailable)?;
        Ok(Self { reserve: (disk.f_blocks.saturating_mul(disk.f_frsize) / 4).min(RESERVE) })
    }

    fn has_enough(&self, path: &Path) -> Result<bool, Error> {
        let disk = rustix::fs::statvfs(path).map_err(Error::unavailable)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize) >= self.reserve)
    }

    /// Of how many pages the log may be before they go to the file: a fourth of the reserve. Some file systems do not say
    /// how large they are.
    fn log(&self) -> i64 {
        let reserve = if self.reserve == 0 { RESERVE } else { self.reserve };
        i64::try_from(reserve / 4 / PAGE).unwrap_or(i64::MAX)
    }
}

/// The connection and what is known about the file.
pub(super) struct Session {
    db: Connection,
    disk: Disk,
    totals: Totals,
    path: PathBuf,
    /// Device and number of the file that was opened.
    file: (u64, u64),
    /// Why the transaction is lost, if it is.
    lost: Option<Error>,
}

impl Session {
    fn open(path: PathBuf) -> Result<Self, Error> {
        let told = |error: Error| Error::unavailable(format_args!("{}: {}", path.display(), reason(&error)));
        let mut session = prepare(&path).map_err(told)?;
        session.totals = ready(sql::count(&mut session)).map_err(told)?;
        Ok(session)
    }

    /// Does the work in one transaction and then tells everybody.
    fn group(&mut self, jobs: Vec<Job>) {
        let writes = jobs.iter().any(|job| job.writes);
        let before = self.totals;
        self.lost = self.begin(writes).err();
        let tells: Vec<Tell> = jobs.into_iter().filter_map(|job| (job.work)(self.usable())).collect();
        let mut commit = match self.lost.take() {
            Some(error) => Err(error),
            None => self.db.execute_batch("COMMIT").map_err(from_sqlite),
        };
        if commit.is_err() {
            self.totals = before;
            if !self.db.is_autocommit() {
                // Without this the next transaction could not begin.
                let rolled_back = self.db.execute_batch("ROLLBACK").map_err(from_sqlite);
                commit = commit.and(rolled_back);
            }
        }
        for tell in tells {
            tell(commit.clone());
        }
    }

    fn usable(&mut self) -> Result<&mut Self, Error> {
        match &self.lost {
            Some(error) => Err(error.clone()),
            None => Ok(self),
        }
    }

    fn begin(&self, writes: bool) -> Result<(), Error> {
        // A deleted file can still be written to, but nobody will ever read it.
        if identity(&self.path).ok() != Some(self.file) {
            return Err(Error::unavailable("the file was removed or replaced"));
        }
        let begin = if writes { "BEGIN IMMEDIATE" } else { "BEGIN" };
        self.db.execute_batch(begin).map_err(from_sqlite)
    }

    /// Does one piece of work; if it fails, what it wrote is taken back.
    fn within<T>(
        &mut self,
        writes: bool,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if !writes {
            return work(self);
        }
        let before = self.totals;
        self.batch("SAVEPOINT piece")?;
        let answer = work(self);
        // When the disk is full, SQLite may end the whole transaction by itself.
        if self.db.is_autocommit() {
            self.totals = before;
            let error = answer.err().unwrap_or_else(|| Error::unavailable("the transaction was rolled back"));
            self.lost = Some(error.clone());
            return Err(error);
        }
        if answer.is_err() {
            self.totals = before;
            self.batch("ROLLBACK TO piece")?;
        }
        self.batch("RELEASE piece")?;
        answer
    }

    /// A statement without which the transaction is lost.
    fn batch(&mut self, sql: &str) -> Result<(), Error> {
        self.db.execute_batch(sql).map_err(from_sqlite).inspect_err(|error| self.lost = Some(error.clone()))
    }
}

impl Sql for Session {
    const LOCK: &'static str = "";

    async fn query(&mut self, sql: &str, values: &[Val]) -> Result<Vec<Row>, Error> {
        let mut statement = self.db.prepare_cached(sql).map_err(from_sqlite)?;
        let width = statement.column_count();
        let mut rows = statement.query(rusqlite::params_from_iter(values)).map_err(from_sqlite)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(from_sqlite)? {
            let value = |at| row.get_ref(at).map_err(from_sqlite).and_then(from_column);
            found.push(Row((0..width).map(value).collect::<Result<_, _>>()?));
        }
        Ok(found)
    }

    async fn execute(&mut self, sql: &str, values: &[Val]) -> Result<u64, Error> {
        let mut statement = self.db.prepare_cached(sql).map_err(from_sqlite)?;
        statement.execute(rusqlite::params_from_iter(values)).map(|rows| rows as u64).map_err(from_sqlite)
    }

    /// Kept up by hand: counting them for each write would read the whole table.
    async fn totals(&mut self) -> Result<Totals, Error> {
        Ok(self.totals)
    }

    fn moved(&mut self, records: i64, bytes: i64) {
        self.totals.records = self.totals.records.saturating_add_signed(records);
        self.totals.bytes = self.totals.bytes.saturating_add_signed(bytes);
    }

    async fn reusable(&mut self) -> Result<Option<u64>, Error> {
        if self.disk.has_enough(&self.path)? {
            return Ok(None);
        }
        let pragma = "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size";
        let bytes: i64 = self.db.query_row(pragma, (), |row| row.get(0)).map_err(from_sqlite)?;
        Ok(Some(bytes.unsigned_abs()))
    }

    async fn recount(&mut self) -> Result<(), Error> {
        self.totals = sql::count(self).await?;
        Ok(())
    }
}

impl rusqlite::ToSql for Val {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Null => ValueRef::Null,
        }))
    }
}

fn from_column(value: ValueRef<'_>) -> Result<Val, Error> {
    match value {
        ValueRef::Integer(number) => Ok(Val::Int(number)),
        ValueRef::Text(text) => {
            std::str::from_utf8(text).map(|text| Val::Text(text.into())).map_err(Error::unavailable)
        }
        ValueRef::Null => Ok(Val::Null),
        ValueRef::Real(_) | ValueRef::Blob(_) => Err(Error::unavailable("a column of a strange type")),
    }
}

fn from_sqlite(error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Full,
        _ => Error::unavailable(error),
    }
}

fn reason(error: &Error) -> String {
    match error {
        Error::Unavailable(why) => why.clone(),
        other => other.to_string(),
    }
}

fn identity(path: &Path) -> Result<(u64, u64), Error> {
    let file = std::fs::metadata(path).map_err(Error::unavailable)?;
    Ok((file.dev(), file.ino()))
}

/// Opens the file and looks whether it is one of ours, whole, and not newer than we are. Only then is it written to.
fn prepare(path: &Path) -> Result<Session, Error> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(path, flags).map_err(from_sqlite)?;
    db.busy_timeout(BUSY).map_err(from_sqlite)?;
    db.set_prepared_statement_cache_capacity(128);
    let check: String = db.query_row("PRAGMA quick_check(1)", (), |row| row.get(0)).map_err(from_sqlite)?;
    if check != "ok" {
        return Err(Error::unavailable(format_args!("the file is damaged: {check}")));
    }
    let mode: String = db.query_row("PRAGMA journal_mode=WAL", (), |row| row.get(0)).map_err(from_sqlite)?;
    if mode != "wal" {
        return Err(Error::unavailable("the file cannot have a write-ahead log"));
    }
    db.execute_batch("PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; PRAGMA journal_size_limit=67108864;")
        .map_err(from_sqlite)?;
    let disk = Disk::of(path)?;
    db.pragma_update(None, "wal_autocheckpoint", disk.log()).map_err(from_sqlite)?;
    let begun = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(from_sqlite)?;
    begun.execute_batch(&sql::tables("TEXT")).map_err(from_sqlite)?;
    let version = "SELECT version, reader FROM samewire_schema ORDER BY version DESC LIMIT 1";
    let found = begun.query_row(version, (), |row| Ok((row.get(0)?, row.get(1)?)));
    match found {
        Ok(found) => sql::readable(found)?,
        Err(rusqlite::Error::QueryReturnedNoRows) => {
            begun
                .execute("INSERT INTO samewire_schema (version, reader) VALUES (?1, ?2)", SCHEMA)
                .map_err(from_sqlite)?;
        }
        Err(error) => return Err(from_sqlite(error)),
    }
    begun.commit().map_err(from_sqlite)?;
    let file = identity(path)?;
    Ok(Session { db, disk, totals: Totals::default(), path: path.to_path_buf(), file, lost: None })
}
