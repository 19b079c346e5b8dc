//! Everything that outlives a request: responses with their items and events, conversations, and counters of each key's use.
//!
//! Takes: records, and the time. Gives: what was stored, to the tenant who stored it; another tenant's id is exactly
//! "not there". Remembers: in memory, in an SQLite file, or in PostgreSQL; what it says is stored is stored.
//! Never: goes by a clock of its own, waits longer than it is told (2 s), evicts what still runs, wipes a file it cannot read.
//!
//! ```text
//! Store ─→ memory               a table behind a lock
//!       ─→ sqlite ──┐           a thread of its own, many writes in one transaction
//!       ─→ postgres ┴─→ sql     a few connections, made again when they break; the same statements for both
//! ```
//!
//! A running response belongs to an owner for a term. The owner lives as long as its [heartbeat](Store::heartbeat);
//! then [`Store::orphans`] gives its responses to one other owner, with the next term, and what the old one writes is
//! refused. [`Store::take_over`] does that to one response without waiting.

mod counters;
mod memory;
mod postgres;
mod record;
mod sql;
mod sqlite;

pub use record::{
    CLOSING, Caps, Conversation, Error, Events, FORMAT, Finish, Item, Json, Key, LEASE, LINKS, Millis, New,
    Page, PageRequest, Record, Replay, Running, State, Totals,
};

pub use counters::{Count, Counter};

use crate::nearest::suggest;
use memory::Memory;
use postgres::Postgres;
use record::is_sound;
use sql::ready;
use sqlite::Sqlite;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an operation may take, if nothing else is said.
pub const DEADLINE: Duration = Duration::from_secs(2);

/// Where responses are kept, as `--store` names it.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// Nowhere.
    Off,
    /// In this process.
    Memory,
    /// In this file.
    Sqlite(PathBuf),
    /// In the database at this URL, which may hold a password.
    Postgres(String),
}

/// Without the address of a database, which may hold a password.
impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Memory => f.write_str("memory"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(_) => f.write_str("postgres"),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "off" => Ok(Self::Off),
            None if text == "memory" => Ok(Self::Memory),
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            // Not as it stands there: what has no at sign may be a password all the same.
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                let is_url = Postgres::is_url(text).then(|| Self::Postgres(text.to_owned()));
                is_url.ok_or_else(|| {
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

/// Told of every operation, by its name, and how long it took.
pub type Watch = Arc<dyn Fn(&'static str, Duration) + Send + Sync>;

/// The store.
pub struct Store {
    backend: Backend,
    caps: Arc<Caps>,
    deadline: Duration,
    watch: Option<Watch>,
}

enum Backend {
    Memory(Mutex<Memory>),
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Store {
    /// Opens what `place` names; `None` if that is nothing. A database that cannot be reached or read is an error here,
    /// and nothing of it has been changed; the caller may try again. Needs tokio's timer, except in memory.
    pub async fn open(place: &Place, caps: Caps) -> Result<Option<Self>, Error> {
        let backend = match place {
            Place::Off => return Ok(None),
            Place::Memory => Backend::Memory(Mutex::default()),
            Place::Sqlite(path) => Backend::Sqlite(Sqlite::open(path).await?),
            Place::Postgres(url) => Backend::Postgres(Postgres::open(url).await?),
        };
        Ok(Some(Self { backend, caps: Arc::new(caps), deadline: DEADLINE, watch: None }))
    }

    /// The same, watched.
    pub fn watched(self, watch: Watch) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// The same with so much time for each operation.
    pub fn within(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    async fn timed<T>(&self, name: &'static str, work: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let answer = work.await;
        if let Some(watch) = &self.watch {
            watch(name, start.elapsed());
        }
        answer
    }

    /// The time that leases go by: replicas that share a database take its clock, not each its own. `local` is the
    /// caller's; the difference may be kept for a while.
    pub async fn clock(&self, local: Millis) -> Result<Millis, Error> {
        match &self.backend {
            Backend::Memory(_) | Backend::Sqlite(_) => Ok(local),
            Backend::Postgres(postgres) => in_time(self.deadline, postgres.clock()).await,
        }
    }
}

async fn in_time<T>(deadline: Duration, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(deadline, work).await.unwrap_or(Err(Error::Slow))
}

/// Whether an argument can be looked up, or stored, at all.
trait Sound {
    fn sound(&self) -> Result<(), Error> {
        Ok(())
    }
}

impl Sound for Key {
    fn sound(&self) -> Result<(), Error> {
        if is_sound(&self.tenant) && is_sound(&self.id) { Ok(()) } else { Err(Error::NotFound) }
    }
}

impl Sound for Arc<str> {
    fn sound(&self) -> Result<(), Error> {
        if self.contains('\0') { Err(Error::NotFound) } else { Ok(()) }
    }
}

impl Sound for Vec<Arc<str>> {
    fn sound(&self) -> Result<(), Error> {
        if self.iter().all(|id| is_sound(id)) { Ok(()) } else { Err(Error::NotFound) }
    }
}

impl Sound for PageRequest {
    fn sound(&self) -> Result<(), Error> {
        if self.after.as_deref().is_none_or(is_sound) { Ok(()) } else { Err(Error::NoCursor) }
    }
}

/// Clients name items, so this comes from outside.
impl Sound for Vec<Item> {
    fn sound(&self) -> Result<(), Error> {
        if self.iter().all(|item| is_sound(&item.id)) { Ok(()) } else { Err(Error::Conflict) }
    }
}

impl Sound for New {
    fn sound(&self) -> Result<(), Error> {
        let ids =
            [Some(&self.key.id), Some(&self.key.tenant), self.previous.as_ref(), self.conversation.as_ref()];
        if !ids.into_iter().flatten().all(|id| is_sound(id)) {
            return Err(Error::Conflict);
        }
        self.input.sound().and_then(|()| self.output.sound())
    }
}

impl Sound for Finish {
    fn sound(&self) -> Result<(), Error> {
        self.output.sound()
    }
}

/// Names of counters are made by samewire, and only ever looked up.
impl Sound for Vec<Count> {
    fn sound(&self) -> Result<(), Error> {
        if self.iter().all(|count| is_sound(&count.counter.name)) { Ok(()) } else { Err(Error::Conflict) }
    }
}

impl Sound for Events {}
impl Sound for Option<u64> {}
impl Sound for u64 {}
impl Sound for usize {}

/// The operations, each carried to the backend: the same name in [`Memory`] and in [`sql`].
macro_rules! operations {
    ($($(#[$doc:meta])* $mode:ident $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        impl Store {
            $(
                $(#[$doc])*
                pub async fn $name(&self, $($argument: $type),*) -> Result<$answer, Error> {
                    $($argument.sound()?;)*
                    self.timed(stringify!($name), async {
                    match &self.backend {
                        Backend::Memory(memory) => {
                            let mut table = memory.lock().unwrap_or_else(PoisonError::into_inner);
                            table.$name(&self.caps, $(&$argument),*)
                        }
                        Backend::Sqlite(sqlite) => {
                            let caps = Arc::clone(&self.caps);
                            let work = move |session: &mut sqlite::Session| {
                                ready(sql::$name(session, &caps, $(&$argument),*))
                            };
                            in_time(self.deadline, sqlite.run(operations!(@writes $mode), work)).await
                        }
                        Backend::Postgres(postgres) => {
                            in_time(self.deadline, Box::pin(async {
                                let writes = operations!(@writes $mode);
                                let mut session = postgres.session(writes, &self.caps).await?;
                                let answer = sql::$name(&mut session, &self.caps, $(&$argument),*).await;
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
}

operations! {
    /// Stores a new response. Its first owner's term is 1. `Conflict`: the id is taken, or one of an item cannot be one: it
    /// has more than 512 bytes or a NUL.
    write create(new: New, now: Millis) -> ();
    /// Queued becomes in progress; once more changes nothing.
    write start(key: Key, term: u64, response: Json, now: Millis) -> ();
    /// Adds events. Those that are there already are passed over, so a batch may be tried again; a gap is a `Conflict`.
    write append_events(key: Key, term: u64, events: Events, now: Millis) -> ();
    /// Ends a response, and stores its object, output and last events in the same moment. The same end twice is fine,
    /// another one a `Conflict`. A growth of up to [`CLOSING`] is never refused as `Full`.
    write finish(key: Key, term: u64, finish: Finish, now: Millis) -> ();
    /// The response.
    read get(key: Key, now: Millis) -> Record;
    /// Removes a response in whatever state, with all that belongs to it.
    write delete(key: Key, now: Millis) -> ();
    /// A part of the response's input.
    read input_items(key: Key, ask: PageRequest, now: Millis) -> Page;
    /// At most `limit` events with a number above `after`; from the first on if there is none.
    read events_after(key: Key, after: Option<u64>, limit: usize, now: Millis) -> Replay;
    /// Asks the owner to cancel. Gives the state found: one that has ended stays as it is.
    write request_cancel(key: Key, now: Millis) -> State;
    /// Whether somebody asked.
    read is_cancel_requested(key: Key, now: Millis) -> bool;
    /// The owner's running responses: what an owner asks each second. What it runs and is not among them, or not with its
    /// term, is not its own any more.
    read running(owner: Arc<str>) -> Vec<Running>;
    /// Says that the owner lives, for all its running responses. Gives their number.
    write heartbeat(owner: Arc<str>, now: Millis) -> u64;
    /// Takes over at most `limit` responses whose owners have not been heard of. Each goes to one claimer.
    write orphans(owner: Arc<str>, limit: usize, now: Millis) -> Vec<Record>;
    /// Takes a running response over from the owner of this term, whether or not that one lives. Of many who try, one
    /// does; to the others it is `Fenced`. `Conflict`: it has ended.
    write take_over(key: Key, term: u64, owner: Arc<str>, now: Millis) -> Record;
    /// Input and output of the response's ancestors and of itself, oldest first. `NotFound` if one of them is gone:
    /// half a conversation is none. `Conflict` if one still runs. `InConversation` if one was made in a conversation
    /// that is there.
    /// `Full` if it is more than `bytes` or [`LINKS`].
    read chain(key: Key, bytes: u64, now: Millis) -> Vec<Item>;
    /// Makes a response and its ancestors young again, those that have lived through half of their time: a conversation
    /// that goes on lives on.
    write refresh(key: Key, now: Millis) -> ();
    /// The tenant's items of these ids. What samewire made comes before what a client sent under the same id.
    read resolve(tenant: Arc<str>, ids: Vec<Arc<str>>, now: Millis) -> Vec<Option<Item>>;
    /// Removes at most 1,000 expired records, and counters whose windows have ended; gives the number of records. For a
    /// timer.
    write sweep(now: Millis) -> u64;
    /// What is there.
    read totals() -> Totals;
    /// Returns when all that was asked before is stored.
    write flush() -> ();
    /// Whether a response of so many bytes would be stored now. `Full`: what runs, which is never evicted, leaves no room
    /// for it, or nothing can be written. Changes nothing.
    write has_room(bytes: u64) -> ();
    /// Stores a new conversation.
    write create_conversation(key: Key, metadata: Json, items: Vec<Item>, now: Millis) -> ();
    /// The conversation.
    read conversation(key: Key, now: Millis) -> Conversation;
    /// Replaces the metadata.
    write update_conversation(key: Key, metadata: Json, now: Millis) -> ();
    /// Removes a conversation and its items.
    write delete_conversation(key: Key, now: Millis) -> ();
    /// Adds items at the end; those whose id is there already are passed over, so it may be tried again.
    write add_items(key: Key, items: Vec<Item>, now: Millis) -> ();
    /// [`create`](Self::create) of a response that has ended, and in the same moment its items, input then output, go to the
    /// end of a conversation: all of it or nothing. `NoConversation`: there is none, or it has no room.
    write create_in(conversation: Arc<str>, new: New, now: Millis) -> ();
    /// [`finish`](Self::finish), and in the same moment the response's items go to the end of a conversation, likewise.
    write finish_in(conversation: Arc<str>, key: Key, term: u64, finish: Finish, now: Millis) -> ();
    /// All of a conversation, oldest first. `Full` if it is more than `bytes`.
    read transcript(key: Key, bytes: u64, now: Millis) -> Vec<Item>;
    /// A part of the conversation.
    read conversation_items(key: Key, ask: PageRequest, now: Millis) -> Page;
    /// An item of a conversation.
    read conversation_item(key: Key, item: Arc<str>, now: Millis) -> Item;
    /// Removes an item of a conversation.
    write delete_item(key: Key, item: Arc<str>, now: Millis) -> ();
    /// Stores what a writer has counted in all, for each of these counters. An amount that is less than what the same writer
    /// has stored before changes nothing, so it may be tried again.
    write put_counts(writer: Arc<str>, counts: Vec<Count>) -> ();
    /// Returns what all writers but one have counted, of the counters of these names whose windows have not ended; those that
    /// nobody has counted are missing. A writer knows its own amounts before the store does.
    read counts_of_others(names: Vec<Arc<str>>, besides: Arc<str>, now: Millis) -> Vec<Count>;
}
