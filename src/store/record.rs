//! What is stored: the record of a response, its items and events, the states it passes through, and what it weighs.

use std::fmt;
use std::sync::Arc;

/// A JSON text, checked by whoever made it. Shared, because the stores hand the same text out again and again.
pub type Json = Arc<str>;

/// Milliseconds since 1970. The caller's clock: nothing in the store reads one.
pub type Millis = u64;

/// The format of the records written here. A later format may only add what a reader of this one can leave alone:
/// columns that may be null, which an update of this version does not touch.
pub const FORMAT: u32 = 1;

/// How long the owner of a running response may be silent, unless [`Caps`] say something else.
pub const LEASE: Millis = 15_000;

/// How far one finish may grow a record whatever the caps say: there must be a way to close what is running.
pub const CLOSING: u64 = 64 << 10;

/// The most responses that [`chain`](super::Store::chain) follows.
pub const LINKS: usize = 1_000;

/// What a record, an item and an event weigh besides their texts: about what they take in memory.
const RECORD: u64 = 512;
const ITEM: u64 = 256;
const EVENT: u64 = 64;

/// What names a response or a conversation: nothing is ever looked up without its tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Who it belongs to.
    pub tenant: Arc<str>,
    /// `resp_…` or `conv_…`
    pub id: Arc<str>,
}

impl Key {
    /// A key of these.
    pub fn new(tenant: &str, id: &str) -> Self {
        Self { tenant: tenant.into(), id: id.into() }
    }
}

/// Whether a text can be an id. Ids come out of paths; a database takes no NUL and indexes nothing long.
pub(super) fn is_sound(id: &str) -> bool {
    id.len() <= 512 && !id.contains('\0')
}

/// How far a response has come: queued, in progress, then one of the four ends, and never back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Waits for its turn.
    Queued,
    /// Is generated.
    InProgress,
    /// Ended by itself.
    Completed,
    /// Ended early: a limit, a filter.
    Incomplete,
    /// Broke.
    Failed,
    /// Was cancelled.
    Cancelled,
}

impl State {
    /// All of them, in the order of the numbers they are stored as.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::InProgress, Self::Completed, Self::Incomplete, Self::Failed, Self::Cancelled];

    /// The word of the wire format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether it ended with an answer, if only a part of one.
    pub fn has_answered(self) -> bool {
        matches!(self, Self::Completed | Self::Incomplete)
    }

    /// Whether nothing comes after it.
    pub fn is_terminal(self) -> bool {
        self > Self::InProgress
    }

    pub(super) fn number(self) -> i64 {
        self as i64
    }

    pub(super) fn of(number: i64) -> Option<Self> {
        usize::try_from(number).ok().and_then(|at| Self::ALL.get(at)).copied()
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An item of a response's input or output, or of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The `id` inside its text.
    pub id: Arc<str>,
    /// The whole item.
    pub body: Json,
}

impl Item {
    /// An item of these.
    pub fn new(id: &str, body: &str) -> Self {
        Self { id: id.into(), body: body.into() }
    }
}

/// A response as it is first stored.
#[derive(Clone, Debug)]
pub struct New {
    /// Its name.
    pub key: Key,
    /// `Queued` or `InProgress`, or an end if it is stored only now that it is over.
    pub state: State,
    /// The process that runs it. Every start of a process has a name of its own.
    pub owner: Arc<str>,
    /// Whether it runs without its client.
    pub background: bool,
    /// `previous_response_id`
    pub previous: Option<Arc<str>>,
    /// The conversation it belongs to.
    pub conversation: Option<Arc<str>>,
    /// The request's body.
    pub request: Json,
    /// The response object as far as it is known.
    pub response: Json,
    /// The items of the input, in order.
    pub input: Vec<Item>,
    /// The items of the output, in order; none unless `state` is an end.
    pub output: Vec<Item>,
}

/// How a response ends.
#[derive(Clone, Debug)]
pub struct Finish {
    /// One of the four ends.
    pub state: State,
    /// The final response object.
    pub response: Json,
    /// The items inside it.
    pub output: Vec<Item>,
    /// The last events, stored together with the end: a reader that sees the end sees all of them.
    pub events: Events,
}

/// Events in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// The `sequence_number` of the first.
    pub from: u64,
    /// Their texts.
    pub bodies: Vec<Json>,
}

impl Events {
    /// Those that follow the `known` first ones. Events that are there already are the same ones: one owner writes.
    pub(super) fn fresh(&self, known: u64) -> Result<&[Json], Error> {
        let skip = known.checked_sub(self.from).ok_or(Error::Conflict)?;
        Ok(usize::try_from(skip).ok().and_then(|skip| self.bodies.get(skip..)).unwrap_or_default())
    }
}

/// What a reader of events gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The events asked for.
    pub events: Events,
    /// How many there are in all; the next one's number.
    pub total: u64,
    /// The state at the same moment: after the last event of an ended response, nothing comes.
    pub state: State,
}

/// A stored response without its items and events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its name.
    pub key: Key,
    /// The format it was written in.
    pub version: u32,
    /// How far it is.
    pub state: State,
    /// When it was stored first.
    pub created: Millis,
    /// When it goes, if it has ended.
    pub expires: Millis,
    /// Whether it runs without its client.
    pub background: bool,
    /// `previous_response_id`
    pub previous: Option<Arc<str>>,
    /// The conversation it belongs to.
    pub conversation: Option<Arc<str>>,
    /// Who runs it, or ran it last.
    pub owner: Arc<str>,
    /// Counts the owners: a write has to name it.
    pub term: u64,
    /// Until when the owner need not be heard of.
    pub lease: Millis,
    /// Whether somebody asked for it to be cancelled.
    pub cancel: bool,
    /// How many events there are; the next one's number.
    pub events: u64,
    /// What it weighs, with items and events.
    pub bytes: u64,
    /// The request's body.
    pub request: Json,
    /// The response object, the final one or the latest known.
    pub response: Json,
}

impl Record {
    /// What `new` is stored as.
    pub(super) fn first(new: &New, caps: &Caps, now: Millis) -> Self {
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

    /// What a conversation is stored as: its metadata stands where a response has its object.
    pub(super) fn conversation(key: &Key, metadata: &Json, items: &[Item], caps: &Caps, now: Millis) -> Self {
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

/// A stored conversation without its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// Its name.
    pub key: Key,
    /// When it was made.
    pub created: Millis,
    /// Its metadata, a JSON object.
    pub metadata: Json,
}

/// A response that its owner runs, as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its name.
    pub key: Key,
    /// Which owner this is: above 1, it has taken the response over, only to close it.
    pub term: u64,
    /// Whether somebody asked for it to be cancelled.
    pub cancel: bool,
}

/// Which part of a list is asked for.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// The item before the first one wanted.
    pub after: Option<Arc<str>>,
    /// How many, 1 to 100; what lies outside is brought inside.
    pub limit: usize,
    /// Last item first.
    pub descending: bool,
}

impl Default for PageRequest {
    fn default() -> Self {
        Self { after: None, limit: 20, descending: true }
    }
}

impl PageRequest {
    pub(super) fn bounded(&self) -> usize {
        self.limit.clamp(1, 100)
    }
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The items in the order asked for.
    pub items: Vec<Item>,
    /// Whether there are more behind them.
    pub more: bool,
}

/// Whose items they are. The order is that in which an id is looked for: what samewire itself made comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Output,
    Conversation,
    Input,
}

impl Side {
    pub(super) fn number(self) -> i64 {
        self as i64
    }
}

/// What the record is of. A conversation is a record that has always ended: it ages and is evicted in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Response,
    Conversation,
}

impl Kind {
    pub(super) fn number(self) -> i64 {
        self as i64
    }
}

/// How much is kept, how long, and how soon an owner that is not heard of has lost what it runs.
#[derive(Clone, Debug)]
pub struct Caps {
    /// How long after its end.
    pub ttl: Millis,
    /// Bytes of all records.
    pub bytes: u64,
    /// Number of records.
    pub records: u64,
    /// Bytes of one record.
    pub record_bytes: u64,
    /// How long the owner of a running response may be silent.
    pub lease: Millis,
}

impl Caps {
    /// For the store in memory: an hour, 256 MiB.
    pub const MEMORY: Self =
        Self { ttl: 3_600_000, bytes: 256 << 20, records: 100_000, record_bytes: 64 << 20, lease: LEASE };

    /// For the embedded database: 30 days, 1 GiB.
    pub const DISK: Self = Self { ttl: 30 * 86_400_000, bytes: 1 << 30, records: 1_000_000, ..Self::MEMORY };

    /// For a database server: 30 days; how full it may get is its operator's business, and counting costs there.
    pub const SERVER: Self = Self { bytes: u64::MAX, records: u64::MAX, ..Self::DISK };

    pub(super) fn counts(&self) -> bool {
        self.bytes != u64::MAX || self.records != u64::MAX
    }

    /// Whether one more response of so many bytes fits beside these.
    pub(super) fn take(&self, others: Totals, bytes: u64) -> Result<(), Error> {
        let fits = others.records < self.records
            && others.bytes.saturating_add(bytes) <= self.bytes
            && bytes <= self.record_bytes;
        if fits { Ok(()) } else { Err(Error::Full) }
    }
}

/// What is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Responses and conversations.
    pub records: u64,
    /// What they weigh.
    pub bytes: u64,
}

pub(super) fn weight_of_items(items: &[Item]) -> u64 {
    items.iter().map(|item| ITEM + (item.id.len() + item.body.len()) as u64).sum()
}

pub(super) fn weight_of_events(bodies: &[Json]) -> u64 {
    bodies.iter().map(|body| EVENT + body.len() as u64).sum()
}

pub(super) fn weight_of_record(request: &str, response: &str) -> u64 {
    RECORD + (request.len() + response.len()) as u64
}

/// Why the store did not do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Nothing of this name, or another tenant's, or expired.
    NotFound,
    /// `after` names no item of the list.
    NoCursor,
    /// Over a cap with nothing that may go, or the disk is full.
    Full,
    /// The conversation that a response is to be added to is not there, or has no room for it.
    NoConversation,
    /// Locked, unreachable, corrupt, or written by a newer samewire. For the log; may name paths.
    Unavailable(String),
    /// Not done within the deadline. It may yet have been done.
    Slow,
    /// The response was made in a conversation, which has what went before it.
    InConversation,
    /// Somebody else owns it by now.
    Fenced,
    /// It is there already, has ended already, or has a gap before it.
    Conflict,
}

impl Error {
    pub(super) fn unavailable(why: impl fmt::Display) -> Self {
        Self::Unavailable(why.to_string())
    }

    /// The same, said of the conversation that is written to beside a response.
    pub(super) fn of_conversation(self) -> Self {
        match self {
            Self::NotFound | Self::Full => Self::NoConversation,
            other => other,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("the store has no such record"),
            Self::NoCursor => f.write_str("`after` names no item of the list"),
            Self::Full => f.write_str("the store is full"),
            Self::NoConversation => f.write_str("the conversation is not there, or has no room"),
            Self::Unavailable(why) => write!(f, "the store is unavailable: {why}"),
            Self::Slow => f.write_str("the store did not answer in time"),
            Self::InConversation => f.write_str("the response is one of a conversation"),
            Self::Fenced => f.write_str("the response has another owner by now"),
            Self::Conflict => f.write_str("the record does not allow it"),
        }
    }
}

impl std::error::Error for Error {}
