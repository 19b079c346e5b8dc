//! Store for everything that outlives a request: responses with their items and events, conversations, and
//! counters.
//!
//! Takes: records, and the time. Gives: stored records, only to the tenant who stored them; another tenant's id is
//! "not found". Remembers: in memory, in an SQLite file, or in PostgreSQL; what it reports as stored is stored.
//! Never: uses its own clock, waits beyond its deadline (`timeouts.store_call`), evicts a running response, wipes a file it
//! cannot read.
//!
//! ```text
//! Store ─→ memory               a table behind a lock
//!       ─→ sqlite ──┐           its own thread, many writes in one transaction
//!       ─→ postgres ┴─→ sql     a few connections, made again when they break; the same statements for both
//! ```
//!
//! A running response belongs to an owner for a term. The owner renews its lease with a [heartbeat](Store::heartbeat).
//! After the lease has expired, [`Store::orphans`] gives its responses to one other owner, with the next term, and
//! refuses writes of the old one. [`Store::take_over`] does that to a single response, without waiting for the lease.

mod batches;
mod counters;
mod memory;
mod postgres;
mod record;
mod sql;
mod sqlite;

pub use record::{
    CLOSING, Conversation, FORMAT, FinalState, Item, Json, Key, LEASE, LINKS, Millis, NewResponse,
    Owned, Page, PageRequest, State, StoreCaps, StoreError, StoredEvents, StoredReplay,
    StoredResponse, Totals,
};

pub use batches::{
    Batch, BatchStatus, BatchStep, FileChunk, FileLimits, FilePurpose, NewFile, ResultLines,
    StoredFile,
};
pub use counters::{Count, Counter};

use crate::nearest::suggest;
use memory::Memory;
use parking_lot::Mutex;
use postgres::Postgres;
use record::{Stored, is_sound};
use sql::ready;
use sqlite::Sqlite;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bounds of the time limit for an operation. Databases count milliseconds in 31 bits, and take 0 for no limit.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_hours(24);

/// Location of the store, as `--store` names it.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// No store.
    Off,
    /// Memory of this process.
    Memory,
    /// SQLite file at this path.
    Sqlite(PathBuf),
    /// PostgreSQL database at this URL, which may contain a password.
    Postgres(String),
}

/// Omits the URL of a database, since it may contain a password.
impl std::fmt::Debug for StoreLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Memory => f.write_str("memory"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(_) => f.write_str("postgres"),
        }
    }
}

impl FromStr for StoreLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "off" => Ok(Self::Off),
            None if text == "memory" => Ok(Self::Memory),
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            // The error does not repeat the text: even without an at sign it may contain a password.
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                let location = postgres::is_url(text).then(|| Self::Postgres(text.to_owned()));
                location.ok_or_else(|| {
                    "must be an address such as postgres://USER:PASSWORD@HOST/DATABASE".to_owned()
                })
            }
            _ => {
                let why = "a store is `memory`, `sqlite:PATH`, `postgres://…` or `off`".to_owned();
                Err(suggest(why, text, ["memory", "off", "sqlite:PATH"]))
            }
        }
    }
}

/// Callback that gets the name and the duration of every operation, for metrics.
pub type DurationHook = Arc<dyn Fn(&'static str, Duration) + Send + Sync>;

/// Store: the operations on responses, conversations and counters, independent of the backend.
pub struct Store {
    backend: Backend,
    deadline: Duration,
    watch: Option<DurationHook>,
}

enum Backend {
    Memory(Mutex<Memory>),
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Store {
    /// Opens the store at `place`; `None` for `StoreLocation::Off`. Fails if the database cannot be reached or read;
    /// nothing in it has been changed then, and the caller may try again. Needs tokio's timer, except in memory.
    pub async fn open(place: &StoreLocation, caps: StoreCaps) -> Result<Option<Self>, StoreError> {
        let deadline = caps.deadline.clamp(SHORTEST, LONGEST);
        let caps = StoreCaps { deadline, ..caps };
        let backend = match place {
            StoreLocation::Off => return Ok(None),
            StoreLocation::Memory => Backend::Memory(Mutex::new(Memory::new(caps))),
            StoreLocation::Sqlite(path) => Backend::Sqlite(Sqlite::open(path, caps).await?),
            StoreLocation::Postgres(url) => Backend::Postgres(Postgres::open(url, caps).await?),
        };
        Ok(Some(Self {
            backend,
            deadline,
            watch: None,
        }))
    }

    /// Sets the callback that gets the duration of every operation.
    pub fn watched(self, watch: DurationHook) -> Self {
        Self {
            watch: Some(watch),
            ..self
        }
    }

    async fn timed<T>(&self, name: &'static str, work: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let answer = work.await;
        if let Some(watch) = &self.watch {
            watch(name, start.elapsed());
        }
        answer
    }

    /// Returns the time that leases are based on. Replicas that share a database use its clock. `local` is the
    /// caller's time; the caller may keep the difference for a while.
    pub async fn clock(&self, local: Millis) -> Result<Millis, StoreError> {
        match &self.backend {
            Backend::Memory(_) | Backend::Sqlite(_) => Ok(local),
            Backend::Postgres(postgres) => in_time(self.deadline, postgres.clock()).await,
        }
    }
}

async fn in_time<T>(deadline: Duration, work: impl Future<Output = Stored<T>>) -> Stored<T> {
    tokio::time::timeout(deadline, work)
        .await
        .unwrap_or(Err(StoreError::Slow))
}

/// Check of an argument before the database is queried. Fails if no database could look it up or store it, or if the
/// caller made a mistake, such as to finish a response with a state that is not terminal. So a mistake is a
/// `Conflict` even if the record is missing or has another owner.
trait Validate {
    fn validate(&self) -> Stored {
        Ok(())
    }
}

impl Validate for Key {
    fn validate(&self) -> Stored {
        if is_sound(&self.tenant) && is_sound(&self.id) {
            Ok(())
        } else {
            Err(StoreError::NotFound)
        }
    }
}

impl Validate for Arc<str> {
    fn validate(&self) -> Stored {
        if self.contains('\0') {
            Err(StoreError::NotFound)
        } else {
            Ok(())
        }
    }
}

impl Validate for Vec<Arc<str>> {
    fn validate(&self) -> Stored {
        if self.iter().all(|id| is_sound(id)) {
            Ok(())
        } else {
            Err(StoreError::NotFound)
        }
    }
}

impl Validate for PageRequest {
    fn validate(&self) -> Stored {
        if self.after.as_deref().is_none_or(is_sound) {
            Ok(())
        } else {
            Err(StoreError::NoCursor)
        }
    }
}

/// Clients choose the ids of items, so these are not trusted.
impl Validate for Vec<Item> {
    fn validate(&self) -> Stored {
        if self.iter().all(|item| is_sound(&item.id)) {
            Ok(())
        } else {
            Err(StoreError::Conflict)
        }
    }
}

impl Validate for NewResponse {
    fn validate(&self) -> Stored {
        let ids = [
            Some(&self.key.id),
            Some(&self.key.tenant),
            self.previous.as_ref(),
            self.conversation.as_ref(),
        ];
        let has_early_output = !self.state.is_terminal() && !self.output.is_empty();
        if has_early_output || !ids.into_iter().flatten().all(|id| is_sound(id)) {
            return Err(StoreError::Conflict);
        }
        self.input.validate().and_then(|()| self.output.validate())
    }
}

impl Validate for FinalState {
    fn validate(&self) -> Stored {
        if self.state.is_terminal() {
            self.output.validate()
        } else {
            Err(StoreError::Conflict)
        }
    }
}

/// Names of counters are made by samewire.
impl Validate for Vec<Count> {
    fn validate(&self) -> Stored {
        if self.iter().all(|count| is_sound(&count.counter.name)) {
            Ok(())
        } else {
            Err(StoreError::Conflict)
        }
    }
}

impl Validate for NewFile {
    fn validate(&self) -> Stored {
        let is_good =
            is_sound(&self.key.id) && is_sound(&self.key.tenant) && !self.name.contains('\0');
        if is_good {
            Ok(())
        } else {
            Err(StoreError::Conflict)
        }
    }
}

impl Validate for FileChunk {
    fn validate(&self) -> Stored {
        if self.body.contains('\0') {
            Err(StoreError::Conflict)
        } else {
            Ok(())
        }
    }
}

impl Validate for Batch {
    fn validate(&self) -> Stored {
        let ids = [
            &self.key.tenant,
            &self.key.id,
            &self.caller,
            &self.input,
            &self.output,
            &self.errors,
        ];
        let is_good = ids.into_iter().all(|id| is_sound(id)) && !self.facts.contains('\0');
        if is_good {
            Ok(())
        } else {
            Err(StoreError::NotFound)
        }
    }
}

impl Validate for BatchStep {
    fn validate(&self) -> Stored {
        let texts: [&str; 3] = [&self.output.text, &self.errors.text, &self.facts];
        if texts.into_iter().any(|text| text.contains('\0')) {
            Err(StoreError::Conflict)
        } else {
            Ok(())
        }
    }
}

impl Validate for FileLimits {}
impl Validate for FilePurpose {}
impl Validate for Option<FilePurpose> {}
impl Validate for StoredEvents {}
impl Validate for Option<u64> {}
impl Validate for u64 {}
impl Validate for usize {}

/// Generates the operations, each of which calls the backend's function of the same name in [`Memory`] or in
/// [`sql`]. Each is a `read`, a `write`, or a `renew`: a write that keeps what runs alive, and goes before others.
macro_rules! operations {
    ($($(#[$doc:meta])* $mode:ident $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        impl Store {
            $(
                $(#[$doc])*
                pub async fn $name(&self, $($argument: $type),*) -> Result<$answer, StoreError> {
                    $($argument.validate()?;)*
                    self.timed(stringify!($name), async {
                    match &self.backend {
                        Backend::Memory(memory) => memory.lock().$name($(&$argument),*),
                        Backend::Sqlite(sqlite) => {
                            let work = move |session: &mut sqlite::SqliteSession| {
                                ready(sql::$name(session, $(&$argument),*))
                            };
                            in_time(self.deadline, sqlite.run(operations!(@writes $mode), work)).await
                        }
                        Backend::Postgres(postgres) => {
                            in_time(self.deadline, Box::pin(async {
                                let (writes, leases) = (operations!(@writes $mode), operations!(@leases $mode));
                                let mut session = postgres.session(writes, leases).await?;
                                let answer = sql::$name(&mut session, $(&$argument),*).await;
                                session.end(answer).await
                            }))
                            .await
                        }
                    }
                    })
                    .await
                }
            )*
        }
    };
    (@writes read) => { false };
    (@writes write) => { true };
    (@writes renew) => { true };
    (@leases renew) => { true };
    (@leases $other:ident) => { false };
}

operations! {
    /// Stores a new response. Its first owner has the term 1. Fails with `Conflict` if the id is taken, or if an
    /// item's id is longer than 512 bytes or contains a NUL.
    write create(new: NewResponse, now: Millis) -> ();
    /// Sets a queued response to in progress; has no effect if it is in progress already.
    write start(key: Key, term: u64, response: Json, now: Millis) -> ();
    /// Appends events. Those that are stored already are skipped, so a batch may be repeated; a gap is a
    /// `Conflict`.
    write append_events(key: Key, term: u64, events: StoredEvents, now: Millis) -> ();
    /// Ends a response, and stores its object, output and last events in the same transaction. Repeating the same
    /// end has no effect, another end is a `Conflict`. Growth of up to [`CLOSING`] is never refused as `Full`.
    write finish(key: Key, term: u64, finish: FinalState, now: Millis) -> ();
    /// Returns the record of a response, without its items and events.
    read get(key: Key, now: Millis) -> StoredResponse;
    /// Removes a response in any state, with everything that belongs to it.
    write delete(key: Key, now: Millis) -> ();
    /// Returns a page of the response's input items.
    read input_items(key: Key, range: PageRequest, now: Millis) -> Page;
    /// Returns at most `limit` events with a number above `after`, or from the first one on if `after` is `None`.
    read events_after(key: Key, after: Option<u64>, limit: usize, now: Millis) -> StoredReplay;
    /// Requests cancellation from the owner. Returns the state before; a response that has ended stays as it is.
    write request_cancel(key: Key, now: Millis) -> State;
    /// Returns the owner's running responses, which every owner reads once a second. A response that it runs but
    /// that is not among them, or has another term, belongs to another owner now.
    read running(owner: Arc<str>) -> Vec<Owned>;
    /// Renews the lease of all running responses of an owner, and returns their number.
    renew heartbeat(owner: Arc<str>, now: Millis) -> u64;
    /// Takes over at most `limit` responses whose lease has expired. Each goes to only one owner.
    write orphans(owner: Arc<str>, limit: usize, now: Millis) -> Vec<StoredResponse>;
    /// Takes over a running response from the owner with this term, whether or not its lease has expired. Only one
    /// of several callers succeeds; the others get `Fenced`. Fails with `Conflict` if the response has ended.
    write take_over(key: Key, term: u64, owner: Arc<str>, now: Millis) -> StoredResponse;
    /// Returns the input and output of the response's ancestors and of itself, oldest first. Fails with `NotFound`
    /// if an ancestor is missing, since half a history would mislead the model, `Conflict` if one still runs,
    /// `InConversation` if one belongs to a conversation that exists, and `Full` if the result exceeds `bytes` or
    /// [`LINKS`].
    read chain(key: Key, bytes: u64, now: Millis) -> Vec<Item>;
    /// Extends the life of a response and its ancestors, as far as they are past half of it, so that a conversation
    /// that continues does not expire.
    write refresh(key: Key, now: Millis) -> ();
    /// Returns the tenant's items with these ids. An item made by samewire takes precedence over a client's with
    /// the same id.
    read resolve(tenant: Arc<str>, ids: Vec<Arc<str>>, now: Millis) -> Vec<Option<Item>>;
    /// Removes at most 1,000 expired records, and as many counters whose windows have ended. Returns the number of
    /// both; the caller repeats the call until that is 0.
    write sweep(now: Millis) -> u64;
    /// Returns the number and weight of the records in the store.
    read totals() -> Totals;
    /// Checks that a response of this many bytes could be stored now, without changing anything. Fails with `Full`
    /// if the running responses, which are never evicted, leave no room, or if nothing can be written.
    write has_room(bytes: u64) -> ();
    /// Stores a new conversation.
    write create_conversation(key: Key, metadata: Json, items: Vec<Item>, now: Millis) -> ();
    /// Returns a conversation, without its items.
    read conversation(key: Key, now: Millis) -> Conversation;
    /// Replaces the metadata of a conversation.
    write update_conversation(key: Key, metadata: Json, now: Millis) -> ();
    /// Removes a conversation and its items.
    write delete_conversation(key: Key, now: Millis) -> ();
    /// Appends items. Those whose id is present already are skipped, so the call may be repeated.
    write add_items(key: Key, items: Vec<Item>, now: Millis) -> ();
    /// Stores a response that has ended, as [`create`](Self::create) does, and appends its items, input then
    /// output, to a conversation in the same transaction. Fails with `NoConversation` if there is none, or it has
    /// no room.
    write create_in(conversation: Arc<str>, new: NewResponse, now: Millis) -> ();
    /// Ends a response as [`finish`](Self::finish) does, and appends its items to a conversation in the same
    /// transaction.
    write finish_in(conversation: Arc<str>, key: Key, term: u64, finish: FinalState, now: Millis) -> ();
    /// Returns all items of a conversation, oldest first. Fails with `Full` if they exceed `bytes`.
    read transcript(key: Key, bytes: u64, now: Millis) -> Vec<Item>;
    /// Returns a page of the conversation's items.
    read conversation_items(key: Key, range: PageRequest, now: Millis) -> Page;
    /// Returns an item of a conversation.
    read conversation_item(key: Key, item: Arc<str>, now: Millis) -> Item;
    /// Removes an item of a conversation.
    write delete_item(key: Key, item: Arc<str>, now: Millis) -> ();
    /// Stores a writer's totals for these counters. A total below the one that the same writer has stored before
    /// has no effect, so the call may be repeated.
    write put_counts(writer: Arc<str>, counts: Vec<Count>) -> ();
    /// Returns the totals of all writers but one for the counters of these names whose windows are open; counters
    /// without any are missing. A writer knows its own totals before the store does.
    read counts_of_others(names: Vec<Arc<str>>, besides: Arc<str>, now: Millis) -> Vec<Count>;
    /// Returns the key with which all processes that share this store seal text. The first caller's becomes it.
    write seal_key(key: Arc<str>) -> Arc<str>;
    /// Stores a new file without content. Clients see it once it is finished. Fails with `Full` at a limit.
    write create_file(new: NewFile, limits: FileLimits, now: Millis) -> ();
    /// Appends a chunk to a file that is not finished. One that is stored already is skipped, so the call may be
    /// repeated. Fails with `Full` at a limit.
    write append_chunk(key: Key, chunk: FileChunk, limits: FileLimits, now: Millis) -> ();
    /// Finishes a file, which clients see from now on until it expires.
    write finish_file(key: Key, purpose: FilePurpose, expires: Millis) -> ();
    /// Returns a finished file, without its content.
    read file(key: Key, now: Millis) -> StoredFile;
    /// Returns the tenant's finished files, by their age: those of one purpose, or all.
    read files(tenant: Arc<str>, range: PageRequest, purpose: Option<FilePurpose>, now: Millis) -> Vec<StoredFile>;
    /// Deletes a file; the chunks of a large one are removed by [`sweep_files`](Self::sweep_files). Fails with
    /// `Conflict` if a batch that has not ended reads it.
    write delete_file(key: Key, now: Millis) -> ();
    /// Returns at most `limit` chunks of a file, from this one on.
    read chunks(key: Key, from: u64, limit: usize) -> Vec<FileChunk>;
    /// Returns the place and the length in bytes of the chunk with the line of this number; `None` after the last one.
    read chunk_at(key: Key, line: u64) -> Option<(u64, u64)>;
    /// Removes a part of what has expired or was deleted of files and batches, except the inputs of batches that have
    /// not ended. Returns the number of rows; the caller repeats the call until that is 0.
    write sweep_files(now: Millis) -> u64;
    /// Stores a new batch, and keeps its input file for as long as it may need it. Fails with `NotFound` if there
    /// is no such file, and with `TooMany` if the tenant has `most` batches that have not ended.
    write create_batch(new: Batch, most: u64, now: Millis) -> ();
    /// Removes a batch in any state, and what is there of its results.
    write delete_batch(key: Key) -> ();
    /// Returns a batch.
    read batch(key: Key, now: Millis) -> Batch;
    /// Returns the tenant's batches, by their age.
    read batches(tenant: Arc<str>, range: PageRequest, now: Millis) -> Vec<Batch>;
    /// Requests cancellation from the owner, and returns the batch. One that has ended stays as it is.
    write cancel_batch(key: Key, now: Millis) -> Batch;
    /// Gives an owner at most `limit` batches that have none, or whose lease has expired. Each goes to only one.
    write claim_batches(owner: Arc<str>, limit: usize, now: Millis) -> Vec<Batch>;
    /// Renews the lease of all batches of an owner, and returns them.
    renew renew_batches(owner: Arc<str>, now: Millis) -> Vec<Owned>;
    /// Gives up a batch, so that another owner can take it at once.
    write release_batch(key: Key, term: u64) -> ();
    /// Stores results and progress of a batch in one transaction. Repeating the same step has no effect. Fails with
    /// `Full` at a limit of the files, and with `Fenced` if the batch has another owner. Returns the status of the
    /// batch, which ends as cancelled if that was requested before.
    write advance_batch(key: Key, term: u64, step: BatchStep, limits: FileLimits, now: Millis) -> BatchStatus;
}
