//! SQLite backend: a file, accessed by a dedicated thread.
//!
//! Takes: jobs through a bounded queue. Gives: their results, after what they wrote is on the disk. Never: blocks
//! the caller's runtime, replies before the commit, wipes or repairs a file.
//!
//! The queued jobs run in one transaction with one write to the disk at its end, each job in a savepoint. On a disk
//! that is nearly full they run in several transactions, none of which starts if it could need more than is free
//! (faults O14). That makes `synchronous=FULL` cheap enough to use: with a write-ahead log, NORMAL survives a
//! killed process too, but a power cut would lose responses that were reported to clients as stored.

use super::record::{StoreCaps, StoreError, Totals};
use super::sql::{self, SCHEMA, Sql, SqlRow, SqlValue, ready};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior};
use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Upper limit for the jobs in the queue.
const QUEUE: usize = 1_024;

/// Upper limit for the jobs in one transaction.
const GROUP: usize = 256;

/// Bytes to leave free on a disk that has more than four times as many.
const RESERVE: u64 = 16 << 20;

/// Bytes that a job writes beside the records that it adds.
const PIECE: u64 = 32 << 10;

/// Bytes of a page, SQLite's default.
const PAGE: u64 = 4_096;

/// Job that waits in the queue.
trait Job: Send {
    fn writes(&self) -> bool;

    /// Runs in the session, or takes the reason why there is none. Returns false if it needs a transaction of its
    /// own.
    fn run(&mut self, session: Result<&mut SqliteSession, StoreError>) -> bool;

    /// Sends the result to the caller: the job's own if the commit succeeded, else the error of the commit.
    fn reply(self: Box<Self>, commit: Result<(), StoreError>);
}

/// Job whose work is a function.
struct Operation<T, W> {
    writes: bool,
    work: W,
    answer: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, W: Fn(&mut SqliteSession) -> Result<T, StoreError> + Send> Job for Operation<T, W> {
    fn writes(&self) -> bool {
        self.writes
    }

    fn run(&mut self, session: Result<&mut SqliteSession, StoreError>) -> bool {
        // A caller that has given up must not find that the work was done later.
        if self.reply.is_closed() {
            return true;
        }
        self.answer = match session {
            Ok(session) => session.within(self.writes, &self.work),
            Err(error) => Some(Err(error)),
        };
        self.answer.is_some()
    }

    fn reply(self: Box<Self>, commit: Result<(), StoreError>) {
        if let Some(answer) = self.answer {
            let _ = self.reply.send(commit.and(answer));
        }
    }
}

/// Handle for the thread, which ends once this is dropped and the queue is empty.
pub(super) struct Sqlite {
    jobs: mpsc::Sender<Box<dyn Job>>,
}

impl Sqlite {
    pub(super) async fn open(path: &Path, caps: StoreCaps) -> Result<Self, StoreError> {
        let (jobs, mut queue) = mpsc::channel::<Box<dyn Job>>(QUEUE);
        let (reply, opened) = oneshot::channel();
        let path = path.to_path_buf();
        let thread = std::thread::Builder::new().name("samewire-store".to_owned());
        let run = move || match SqliteSession::open(path, caps) {
            Ok(mut session) => {
                let _ = reply.send(Ok(()));
                while let Some(first) = queue.blocking_recv() {
                    let rest = std::iter::from_fn(|| queue.try_recv().ok());
                    session.run_jobs(std::iter::once(first).chain(rest).take(GROUP).collect());
                }
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        };
        thread.spawn(run).map_err(StoreError::unavailable)?;
        opened.await.map_err(|_| thread_ended())??;
        Ok(Self { jobs })
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        writes: bool,
        work: impl Fn(&mut SqliteSession) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.jobs
            .send(Box::new(Operation {
                writes,
                work,
                answer: None,
                reply,
            }))
            .await
            .map_err(|_| thread_ended())?;
        answer.await.map_err(|_| thread_ended())?
    }
}

fn thread_ended() -> StoreError {
    StoreError::unavailable("its thread has ended")
}

/// Free space on the disk. Committed data is first in the log and later in the file. If the file has no room for
/// it, the log cannot restart, and once the log has used up the rest, not even a deletion can be written. So no
/// transaction may start that could need more than is free.
#[derive(Debug)]
struct Disk {
    /// Bytes to leave free as long as old records can be evicted instead.
    reserve: u64,
}

impl Disk {
    /// Computes the reserve: a fourth of the free space and the file's own size, but at most [`RESERVE`].
    fn of(path: &Path) -> Result<Self, StoreError> {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let own = length(path) + length(Path::new(&log));
        Ok(Self {
            reserve: (Self::free(path)?.saturating_add(own) / 4).min(RESERVE),
        })
    }

    /// Returns the number of free bytes.
    fn free(path: &Path) -> Result<u64, StoreError> {
        let disk = rustix::fs::statvfs(path).map_err(StoreError::unavailable)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Returns the bytes that must stay free even after evictions.
    fn least(&self) -> u64 {
        self.reserve / 4
    }

    /// Returns the number of pages in the log from which on they are moved to the file.
    fn log(&self) -> i64 {
        i64::try_from(self.reserve / 4 / PAGE)
            .unwrap_or(i64::MAX)
            .max(16)
    }
}

/// Failure of a job for lack of space.
struct NoSpace {
    /// Bytes that the job needs.
    needed: u64,
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

/// Connection, with what is known about the file and the transaction that is open.
pub(super) struct SqliteSession {
    db: Connection,
    caps: StoreCaps,
    disk: Disk,
    totals: Totals,
    /// Bytes that the transaction adds to the log.
    log: u64,
    /// True if a job lacked space, and may have left the log longer than necessary.
    short: bool,
    path: PathBuf,
    /// Device and inode of the file that was opened.
    file: (u64, u64),
    /// Reason why the transaction is lost, if it is.
    lost: Option<StoreError>,
}

impl SqliteSession {
    fn open(path: PathBuf, caps: StoreCaps) -> Result<Self, StoreError> {
        let told = |error: StoreError| {
            StoreError::unavailable(format_args!("{}: {}", path.display(), reason(&error)))
        };
        let mut session = prepare(&path, caps).map_err(told)?;
        session.totals = ready(sql::count(&mut session, "")).map_err(told)?;
        Ok(session)
    }

    /// Runs jobs in as few transactions as possible, and sends the results after each commit.
    fn run_jobs(&mut self, jobs: Vec<Box<dyn Job>>) {
        let mut jobs = VecDeque::from(jobs);
        while !jobs.is_empty() {
            let (before, mut done) = (self.totals, Vec::new());
            self.log = 0;
            self.lost = self.begin(jobs.iter().any(|job| job.writes())).err();
            while let Some(mut job) = jobs.pop_front() {
                if !job.run(self.usable()) {
                    jobs.push_front(job);
                    break;
                }
                done.push(job);
            }
            let commit = self.commit(before);
            if std::mem::take(&mut self.short) {
                // Success shows in the free space next time.
                let _ = self
                    .db
                    .query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()));
            }
            done.into_iter().for_each(|job| job.reply(commit.clone()));
        }
    }

    /// Commits the transaction. If that fails, everything is as it was before.
    fn commit(&mut self, before: Totals) -> Result<(), StoreError> {
        let commit = match self.lost.take() {
            Some(error) => Err(error),
            None => self.db.execute_batch("COMMIT").map_err(from_sqlite),
        };
        if commit.is_ok() {
            return Ok(());
        }
        self.totals = before;
        if self.db.is_autocommit() {
            return commit;
        }
        // Without this, the next transaction could not begin.
        let rolled_back = self.db.execute_batch("ROLLBACK").map_err(from_sqlite);
        commit.and(rolled_back)
    }

    fn usable(&mut self) -> Result<&mut Self, StoreError> {
        match &self.lost {
            Some(error) => Err(error.clone()),
            None => Ok(self),
        }
    }

    fn begin(&self, writes: bool) -> Result<(), StoreError> {
        // A deleted file can still be written to, but its data would never be read.
        if identity(&self.path).ok() != Some(self.file) {
            return Err(StoreError::unavailable("the file was removed or replaced"));
        }
        let begin = if writes { "BEGIN IMMEDIATE" } else { "BEGIN" };
        self.db.execute_batch(begin).map_err(from_sqlite)
    }

    /// Runs a job, and undoes its writes if it fails. `None`: there is no room for it beside the jobs before it.
    fn within<T>(
        &mut self,
        writes: bool,
        work: &impl Fn(&mut Self) -> Result<T, StoreError>,
    ) -> Option<Result<T, StoreError>> {
        if !writes {
            return Some(work(self));
        }
        let is_first = self.log == 0;
        match self.in_savepoint(work, None) {
            Err(_) if !is_first => None,
            Err(short) => Some(
                self.in_savepoint(work, Some(short))
                    .unwrap_or(Err(StoreError::Full)),
            ),
            Ok(answer) => Some(answer),
        }
    }

    /// Runs a job in a savepoint. `short`: the job lacked space before, so the oldest records are evicted first.
    fn in_savepoint<T>(
        &mut self,
        work: &impl Fn(&mut Self) -> Result<T, StoreError>,
        short: Option<NoSpace>,
    ) -> Result<Result<T, StoreError>, NoSpace> {
        let (totals, log) = (self.totals, self.log);
        if let Err(error) = self.batch("SAVEPOINT piece") {
            return Ok(Err(error));
        }
        self.log += PIECE;
        let evicted = short.as_ref().map_or(Ok(()), |short| self.evict(short));
        let mut answer = evicted.and_then(|()| work(self));
        // If the disk is full, SQLite may roll back the whole transaction on its own.
        if self.db.is_autocommit() {
            self.totals = totals;
            let error = answer
                .err()
                .unwrap_or_else(|| StoreError::unavailable("the transaction was rolled back"));
            self.lost = Some(error.clone());
            return Ok(Err(error));
        }
        let fits = if answer.is_ok() {
            self.fits(short.is_some())
        } else {
            Ok(true)
        };
        let needed = self.log - log;
        let is_short = fits == Ok(false);
        if let Err(error) = fits {
            answer = Err(error);
        }
        if is_short || answer.is_err() {
            (self.totals, self.log) = (totals, log);
            if let Err(error) = self.batch("ROLLBACK TO piece") {
                return Ok(Err(error));
            }
        }
        let released = self.batch("RELEASE piece");
        self.short |= is_short;
        if is_short {
            Err(NoSpace { needed })
        } else {
            Ok(released.and(answer))
        }
    }

    /// Returns true if the log has room for this transaction, and the file for it later. `evicts`: old records were
    /// evicted.
    fn fits(&self, evicts: bool) -> Result<bool, StoreError> {
        let free = Disk::free(&self.path)?;
        if free >= self.log.saturating_add(self.disk.reserve.saturating_mul(4)) {
            return Ok(true);
        }
        let due = self.bytes_to_checkpoint()?;
        let left = if due > 0 && !evicts {
            self.disk.reserve
        } else {
            self.disk.least()
        };
        Ok(free >= self.log.saturating_add(due).saturating_add(left))
    }

    /// Returns the bytes by which the file must grow for the contents of the log and of this transaction.
    fn bytes_to_checkpoint(&self) -> Result<u64, StoreError> {
        Ok(self
            .pages("PRAGMA page_count")?
            .saturating_sub(length(&self.path)))
    }

    /// Returns the bytes of unused pages within the file.
    fn free_pages_bytes(&self) -> Result<u64, StoreError> {
        self.pages("PRAGMA freelist_count")
    }

    /// Runs a pragma that counts pages, and returns their size in bytes.
    fn pages(&self, count: &str) -> Result<u64, StoreError> {
        let pages: i64 = self
            .db
            .query_row(count, (), |row| row.get(0))
            .map_err(from_sqlite)?;
        Ok(pages.unsigned_abs() * PAGE)
    }

    /// Evicts the oldest records until the file has room for a job that lacked space.
    fn evict(&mut self, short: &NoSpace) -> Result<(), StoreError> {
        let none = Arc::from("");
        while self.free_pages_bytes()? < short.needed && ready(sql::evict(self, &none, &none))? {
            self.log += PAGE;
        }
        Ok(())
    }

    /// Runs a statement whose failure loses the transaction.
    fn batch(&mut self, sql: &str) -> Result<(), StoreError> {
        self.db
            .execute_batch(sql)
            .map_err(from_sqlite)
            .inspect_err(|error| self.lost = Some(error.clone()))
    }
}

impl Sql for SqliteSession {
    const LOCK: &'static str = "";
    const LOCK_FREE: &'static str = "";

    fn caps(&self) -> &StoreCaps {
        &self.caps
    }

    async fn query(&mut self, sql: &str, values: &[SqlValue]) -> Result<Vec<SqlRow>, StoreError> {
        let mut statement = self.db.prepare_cached(sql).map_err(from_sqlite)?;
        let width = statement.column_count();
        let mut rows = statement
            .query(rusqlite::params_from_iter(values))
            .map_err(from_sqlite)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(from_sqlite)? {
            let value = |at| row.get_ref(at).map_err(from_sqlite).and_then(from_column);
            found.push(SqlRow((0..width).map(value).collect::<Result<_, _>>()?));
        }
        Ok(found)
    }

    async fn execute(&mut self, sql: &str, values: &[SqlValue]) -> Result<u64, StoreError> {
        let mut statement = self.db.prepare_cached(sql).map_err(from_sqlite)?;
        statement
            .execute(rusqlite::params_from_iter(values))
            .map(|rows| rows as u64)
            .map_err(from_sqlite)
    }

    /// Returns the running totals: counting for each write would read the whole table.
    async fn totals(&mut self) -> Result<Totals, StoreError> {
        Ok(self.totals)
    }

    fn add_to_totals(&mut self, records: i64, bytes: i64) {
        self.totals.records = self.totals.records.saturating_add_signed(records);
        self.totals.bytes = self.totals.bytes.saturating_add_signed(bytes);
        self.log = self.log.saturating_add_signed(bytes.max(0));
    }

    fn will_write(&mut self, bytes: u64) {
        self.log = self.log.saturating_add(bytes);
    }

    async fn has_disk(&mut self, bytes: u64, ended: u64) -> Result<bool, StoreError> {
        let free = Disk::free(&self.path)?.saturating_sub(self.bytes_to_checkpoint()?);
        let log = bytes
            .saturating_add(PIECE)
            .saturating_add(self.disk.least());
        let may_go = self.free_pages_bytes()?.saturating_add(ended) >= bytes;
        let has_room = free >= log && (may_go || free - log >= bytes);
        self.short |= !has_room;
        Ok(has_room)
    }

    async fn recount(&mut self) -> Result<(), StoreError> {
        self.totals = sql::count(self, "").await?;
        Ok(())
    }
}

impl rusqlite::ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Null => ValueRef::Null,
        }))
    }
}

fn from_column(value: ValueRef<'_>) -> Result<SqlValue, StoreError> {
    match value {
        ValueRef::Integer(number) => Ok(SqlValue::Int(number)),
        ValueRef::Text(text) => std::str::from_utf8(text)
            .map(|text| SqlValue::Text(text.into()))
            .map_err(StoreError::unavailable),
        ValueRef::Null => Ok(SqlValue::Null),
        ValueRef::Real(_) | ValueRef::Blob(_) => {
            Err(StoreError::unavailable("a column of a strange type"))
        }
    }
}

fn from_sqlite(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        _ => StoreError::unavailable(error),
    }
}

fn reason(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable(why) => why.clone(),
        other => other.to_string(),
    }
}

fn identity(path: &Path) -> Result<(u64, u64), StoreError> {
    let file = std::fs::metadata(path).map_err(StoreError::unavailable)?;
    Ok((file.dev(), file.ino()))
}

/// Creates the file if there is none, with access for this user alone, since it contains what clients sent. SQLite
/// gives its log and its index the same mode. An existing file keeps the mode that its owner gave it.
fn create(path: &Path) -> Result<(), StoreError> {
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
    {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(StoreError::unavailable(error)),
    }
}

/// Opens the file and checks that it is a samewire store, intact, and not newer than this version. Writes to it
/// only then.
fn prepare(path: &Path, caps: StoreCaps) -> Result<SqliteSession, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    create(path)?;
    let mut db = Connection::open_with_flags(path, flags).map_err(from_sqlite)?;
    db.busy_timeout(caps.lock_wait()).map_err(from_sqlite)?;
    db.set_prepared_statement_cache_capacity(128);
    let check: String = db
        .query_row("PRAGMA quick_check(1)", (), |row| row.get(0))
        .map_err(from_sqlite)?;
    if check != "ok" {
        return Err(StoreError::unavailable(format_args!(
            "the file is damaged: {check}"
        )));
    }
    let mode: String = db
        .query_row("PRAGMA journal_mode=WAL", (), |row| row.get(0))
        .map_err(from_sqlite)?;
    if mode != "wal" {
        return Err(StoreError::unavailable(
            "the file cannot have a write-ahead log",
        ));
    }
    db.execute_batch(
        "PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; PRAGMA journal_size_limit=67108864;",
    )
    .map_err(from_sqlite)?;
    let disk = Disk::of(path)?;
    db.pragma_update(None, "wal_autocheckpoint", disk.log())
        .map_err(from_sqlite)?;
    let begun = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(from_sqlite)?;
    begun
        .execute_batch(&sql::tables("TEXT"))
        .map_err(from_sqlite)?;
    let version = "SELECT version, reader FROM samewire_schema ORDER BY version DESC LIMIT 1";
    let found = begun
        .query_row(version, (), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional();
    let found: Option<(i64, i64)> = found.map_err(from_sqlite)?;
    found.map_or(Ok(()), sql::readable)?;
    // Tables of an older version have just been completed.
    if found.is_none_or(|(version, _)| version < SCHEMA.0) {
        begun
            .execute(
                "INSERT INTO samewire_schema (version, reader) VALUES (?1, ?2)",
                SCHEMA,
            )
            .map_err(from_sqlite)?;
    }
    begun.commit().map_err(from_sqlite)?;
    let file = identity(path)?;
    Ok(SqliteSession {
        db,
        caps,
        disk,
        totals: Totals::default(),
        log: 0,
        short: false,
        path: path.to_path_buf(),
        file,
        lost: None,
    })
}
