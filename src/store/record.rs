//! Records of the store: responses with their items and events, the states they pass through, and their weight in
//! bytes.

use crate::named::named;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// JSON text, checked by the caller. Shared, because the stores return the same text again and again.
pub type Json = Arc<str>;

/// Milliseconds since 1970, by the caller's clock: the store itself never reads one.
pub type Millis = u64;

/// Format of the records that this version writes. A later format may only add what a reader of this one can
/// ignore: columns that may be null, which an update by this version leaves alone.
pub const FORMAT: u32 = 1;

/// Time without a heartbeat after which a running response may be taken over, unless [`StoreCaps`] set another one.
pub const LEASE: Millis = 15_000;

/// Bytes by which a finish may exceed the caps: it must always be possible to end a response that runs.
pub const CLOSING: u64 = 64 << 10;

/// Upper limit for the responses that [`chain`](super::Store::chain) follows.
pub const LINKS: usize = 1_000;

/// Weights of a record, an item and an event beside their texts: approximately the memory they take.
const RECORD: u64 = 512;
const ITEM: u64 = 256;
const EVENT: u64 = 64;

/// Key of a response or a conversation. Contains the tenant, so that no lookup can return another tenant's data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Tenant of the client that stored the data.
    pub tenant: Arc<str>,
    /// Id: `resp_…` or `conv_…`
    pub id: Arc<str>,
}

impl Key {
    /// Creates a key from the tenant and the id.
    pub fn new(tenant: &str, id: &str) -> Self {
        Self {
            tenant: tenant.into(),
            id: id.into(),
        }
    }
}

/// Returns true if a text can be an id. Ids come from paths in requests; a database accepts no NUL, and has limits
/// for what it indexes.
pub(super) fn is_sound(id: &str) -> bool {
    id.len() <= 512 && !id.contains('\0')
}

named! {
    /// State of a response: queued, in progress, then one of the four terminal states. Transitions only go forward.
    /// The numbers are stored in databases.
    pub enum State {
        /// Accepted, but not started.
        Queued = "queued",
        /// Output is being generated.
        InProgress = "in_progress",
        /// Generation has ended normally.
        Completed = "completed",
        /// Generation has ended early, for example at a token limit or by a content filter.
        Incomplete = "incomplete",
        /// Generation has failed.
        Failed = "failed",
        /// Client has cancelled the response.
        Cancelled = "cancelled",
    }
}

impl State {
    /// Returns the state with this name in the wire format; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Returns true if the state is terminal and there is an answer, even if only a part of one.
    pub fn has_answered(self) -> bool {
        matches!(self, Self::Completed | Self::Incomplete)
    }

    /// Returns true if the state is terminal.
    pub fn is_terminal(self) -> bool {
        self > Self::InProgress
    }

    pub(super) fn of(number: i64) -> Option<Self> {
        usize::try_from(number)
            .ok()
            .and_then(|at| Self::ALL.get(at))
            .copied()
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Item of a response's input or output, or of a conversation. Kept as text, since the store does not interpret it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Value of `id` in the item.
    pub id: Arc<str>,
    /// Complete item.
    pub body: Json,
}

impl Item {
    /// Creates an item from its id and its text.
    pub fn new(id: &str, body: &str) -> Self {
        Self {
            id: id.into(),
            body: body.into(),
        }
    }
}

/// Response to be stored for the first time, when it starts or after it has ended.
#[derive(Clone, Debug)]
pub struct NewResponse {
    /// Key of the response.
    pub key: Key,
    /// State: `Queued` or `InProgress`, or a terminal one if the response is stored only after its end.
    pub state: State,
    /// Process that runs the response. The name is new at each start of a process.
    pub owner: Arc<str>,
    /// True if the response continues without its client.
    pub background: bool,
    /// Value of `previous_response_id`.
    pub previous: Option<Arc<str>>,
    /// Conversation that the response belongs to.
    pub conversation: Option<Arc<str>>,
    /// Model and settings of the request, which continuations inherit.
    pub request: Json,
    /// Response object, as far as it is known.
    pub response: Json,
    /// Items of the input, in order.
    pub input: Vec<Item>,
    /// Items of the output, in order; none unless `state` is terminal.
    pub output: Vec<Item>,
}

/// End of a response: everything that is written in the moment in which it becomes terminal.
#[derive(Clone, Debug)]
pub struct FinalState {
    /// Terminal state.
    pub state: State,
    /// Final response object.
    pub response: Json,
    /// Items of the output, in order.
    pub output: Vec<Item>,
    /// Last events, stored together with the end: a reader that sees the end also sees all of the events.
    pub events: StoredEvents,
}

/// Consecutive events of a response, identified by their sequence numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredEvents {
    /// Value of `sequence_number` of the first event.
    pub from: u64,
    /// Texts of the events.
    pub bodies: Vec<Json>,
}

impl StoredEvents {
    /// Returns the events after the first `known` ones. Events that are stored already are the same ones, since
    /// only the owner writes. Fails if there is a gap.
    pub(super) fn fresh(&self, known: u64) -> Stored<&[Json]> {
        let skip = known.checked_sub(self.from).ok_or(StoreError::Conflict)?;
        Ok(usize::try_from(skip)
            .ok()
            .and_then(|skip| self.bodies.get(skip..))
            .unwrap_or_default())
    }
}

/// Events for a reader, with the state of the response at the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReplay {
    /// Events that were requested.
    pub events: StoredEvents,
    /// Total number of events; equals the number of the next one.
    pub total: u64,
    /// State when the events were read: once it is terminal, no event follows the last one.
    pub state: State,
}

/// Stored response without its items and events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// Key of the response.
    pub key: Key,
    /// Format in which the record was written.
    pub version: u32,
    /// State of the response.
    pub state: State,
    /// Time at which the record was created.
    pub created: Millis,
    /// Time at which the record expires if the response has ended.
    pub expires: Millis,
    /// True if the response continues without its client.
    pub background: bool,
    /// Value of `previous_response_id`.
    pub previous: Option<Arc<str>>,
    /// Conversation that the response belongs to.
    pub conversation: Option<Arc<str>>,
    /// Process that runs the response, or has run it last.
    pub owner: Arc<str>,
    /// Number of the current ownership, which starts at 1. A write with another term is rejected.
    pub term: u64,
    /// Time until which the owner need not send a heartbeat.
    pub lease: Millis,
    /// True if a client has asked to cancel the response.
    pub cancel: bool,
    /// Number of events; equals the number of the next one.
    pub events: u64,
    /// Weight in bytes, including items and events.
    pub bytes: u64,
    /// Model and settings of the request, which continuations inherit.
    pub request: Json,
    /// Response object: the final one, or the latest that is known.
    pub response: Json,
}

impl StoredResponse {
    /// Returns the record for a new response.
    pub(super) fn first(new: &NewResponse, caps: &StoreCaps, now: Millis) -> Self {
        Self {
            key: new.key.clone(),
            version: FORMAT,
            state: new.state,
            created: now,
            expires: now.saturating_add(caps.ttl),
            background: new.background,
            previous: new.previous.clone(),
            conversation: new.conversation.clone(),
            owner: new.owner.clone(),
            term: 1,
            lease: now.saturating_add(caps.lease),
            cancel: false,
            events: 0,
            bytes: weight_of_record(&new.request, &new.response)
                + weight_of_items(&new.input)
                + weight_of_items(&new.output),
            request: new.request.clone(),
            response: new.response.clone(),
        }
    }

    /// Returns the record for a new conversation: the metadata takes the place of the response object.
    pub(super) fn conversation(
        key: &Key,
        metadata: &Json,
        items: &[Item],
        caps: &StoreCaps,
        now: Millis,
    ) -> Self {
        Self {
            key: key.clone(),
            version: FORMAT,
            state: State::Completed,
            created: now,
            expires: now.saturating_add(caps.ttl),
            background: false,
            previous: None,
            conversation: None,
            owner: "".into(),
            term: 1,
            lease: now,
            cancel: false,
            events: 0,
            bytes: weight_of_record("", metadata) + weight_of_items(items),
            request: "".into(),
            response: metadata.clone(),
        }
    }
}

/// Stored conversation without its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// Key of the conversation.
    pub key: Key,
    /// Time at which the conversation was created.
    pub created: Millis,
    /// Metadata, a JSON object.
    pub metadata: Json,
}

/// Response or batch that runs, as the store knows it, for the owner to check whether it is still the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Key of the response or batch.
    pub key: Key,
    /// Number of the ownership. Above 1, the owner has taken a response over, only to end it.
    pub term: u64,
    /// True if a client has asked to cancel it.
    pub cancel: bool,
}

/// Range of a list that a client asks for.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// Id of the entry before the first one to return.
    pub after: Option<Arc<str>>,
    /// Number of entries. Items come in pages of 1 to 100, whatever it is.
    pub limit: usize,
    /// True if the last entry comes first.
    pub descending: bool,
}

impl Default for PageRequest {
    fn default() -> Self {
        Self {
            after: None,
            limit: 20,
            descending: true,
        }
    }
}

impl PageRequest {
    pub(super) fn bounded(&self) -> usize {
        self.limit.clamp(1, 100)
    }
}

/// Part of a list, as [`PageRequest`] describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Items in the requested order.
    pub items: Vec<Item>,
    /// True if more items follow.
    pub more: bool,
}

/// Side of a record that an item is on. The order is that of a search by id: items made by samewire take
/// precedence. The numbers are stored in databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Output = 0,
    Conversation = 1,
    Input = 2,
}

/// Kind of a record. A conversation is stored as a record that has always ended: it expires and is evicted like a
/// response. The numbers are stored in databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Response = 0,
    Conversation = 1,
}

/// Limits of the store: for the amount of data, its age, the time without a heartbeat after which an owner loses its
/// responses, and the time of one operation.
#[derive(Clone, Debug)]
pub struct StoreCaps {
    /// Time from the end of a response until it expires.
    pub ttl: Millis,
    /// Bytes of all records.
    pub bytes: u64,
    /// Number of records.
    pub records: u64,
    /// Bytes of one record.
    pub record_bytes: u64,
    /// Time without a heartbeat after which a running response may be taken over.
    pub lease: Millis,
    /// Time limit of one operation.
    pub deadline: Duration,
}

impl StoreCaps {
    /// Limits of the store in memory: an hour, 256 MiB.
    pub const MEMORY: Self = Self {
        ttl: 3_600_000,
        bytes: 256 << 20,
        records: 100_000,
        record_bytes: 64 << 20,
        lease: LEASE,
        deadline: Duration::from_secs(2),
    };

    /// Limits of the embedded database: 30 days, 1 GiB.
    pub const DISK: Self = Self {
        ttl: 30 * 86_400_000,
        bytes: 1 << 30,
        records: 1_000_000,
        ..Self::MEMORY
    };

    /// Limits of a database server: 30 days. Its operator limits the size, since counting is expensive there.
    pub const SERVER: Self = Self {
        bytes: u64::MAX,
        records: u64::MAX,
        ..Self::DISK
    };

    /// Returns the time to wait for a lock: less than the deadline, so that the error names the reason.
    pub(super) fn lock_wait(&self) -> Duration {
        self.deadline * 7 / 8
    }

    pub(super) fn counts(&self) -> bool {
        self.bytes != u64::MAX || self.records != u64::MAX
    }

    /// Checks that one more response of this weight fits beside the others. Fails with `Full` if not.
    pub(super) fn check_fits(&self, others: Totals, bytes: u64) -> Stored {
        let fits = others.records < self.records
            && others.bytes.saturating_add(bytes) <= self.bytes
            && bytes <= self.record_bytes;
        if fits { Ok(()) } else { Err(StoreError::Full) }
    }
}

/// Number and weight of the records in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of responses and conversations.
    pub records: u64,
    /// Weight of all records in bytes.
    pub bytes: u64,
}

/// Returns the items whose ids are new, each once.
pub(super) fn without_known(items: &[Item], known: impl Fn(&Arc<str>) -> bool) -> Vec<Item> {
    let mut seen = BTreeSet::new();
    items
        .iter()
        .filter(|item| !known(&item.id) && seen.insert(&item.id))
        .cloned()
        .collect()
}

pub(super) fn weight_of_items(items: &[Item]) -> u64 {
    items
        .iter()
        .map(|item| ITEM + (item.id.len() + item.body.len()) as u64)
        .sum()
}

pub(super) fn weight_of_events(bodies: &[Json]) -> u64 {
    bodies.iter().map(|body| EVENT + body.len() as u64).sum()
}

pub(super) fn weight_of_record(request: &str, response: &str) -> u64 {
    RECORD + (request.len() + response.len()) as u64
}

/// Result of a store operation.
pub(super) type Stored<T = ()> = Result<T, StoreError>;

/// Failure of a store operation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// No record has this key: it never existed, belongs to another tenant, or has expired.
    #[error("the store has no such record")]
    NotFound,
    /// Value of `after` names no item of the list.
    #[error("`after` names no item of the list")]
    NoCursor,
    /// Limit is reached and no record may be evicted, or the disk is full.
    #[error("the store is full")]
    Full,
    /// Tenant has as many unfinished batches as it may have.
    #[error("the tenant has as many unfinished batches as it may have")]
    TooMany,
    /// Conversation to which a response was to be added is missing, or has no room for it.
    #[error("the conversation is not there, or has no room")]
    NoConversation,
    /// Database is locked, unreachable, corrupt, or written by a newer samewire. The text is for logs, and may name
    /// paths.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Deadline has passed. The operation may still have been carried out.
    #[error("the store did not answer in time")]
    Slow,
    /// Response belongs to a conversation, which contains what went before it.
    #[error("the response is one of a conversation")]
    InConversation,
    /// Response has another owner by now.
    #[error("the response has another owner by now")]
    Fenced,
    /// Record exists already, has ended already, or events before the new ones are missing.
    #[error("the record does not allow it")]
    Conflict,
}

impl StoreError {
    pub(super) fn unavailable(why: impl fmt::Display) -> Self {
        Self::Unavailable(why.to_string())
    }

    /// Converts an error about the conversation that is written together with a response.
    pub(super) fn of_conversation(self) -> Self {
        match self {
            Self::NotFound | Self::Full => Self::NoConversation,
            other => other,
        }
    }
}
