//! Operations in SQL that both SQLite and PostgreSQL understand; each runs within one transaction of the caller.
//!
//! Only two types are used: whole numbers and texts. Parameters are `$1`, `$2`, … in the order of their first use,
//! because SQLite takes them for names.

mod batches;
mod conversations;
mod counters;
mod files;
mod owners;
mod seal_key;

pub(super) use batches::*;
pub(super) use conversations::*;
pub(super) use counters::*;
pub(super) use files::*;
pub(super) use owners::*;
pub(super) use seal_key::*;

use super::record::{
    CLOSING, FinalState, Item, Json, Key, Kind, LINKS, Millis, NewResponse, Page, PageRequest, Side, State,
    StoreCaps, StoreError, StoredEvents, StoredReplay, StoredResponse, Totals, weight_of_events,
    weight_of_items,
};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Version of the tables, and the oldest version of samewire (by this number) that may still use them.
pub(super) const SCHEMA: (i64, i64) = (4, 1);

/// Checks that this version may use tables of the given version and oldest reader. Fails if they need a newer one.
pub(super) fn readable((version, reader): (i64, i64)) -> Result<(), StoreError> {
    if reader <= SCHEMA.0 {
        return Ok(());
    }
    Err(StoreError::unavailable(format_args!(
        "its tables (version {version}) need a samewire that knows version {reader}; this one knows {}",
        SCHEMA.0
    )))
}

/// Returns the statements that create the tables; each may be run again. A later version adds only columns that may
/// be null and have no default, so that no table is rewritten and an older samewire works on.
pub(super) fn tables(text: &str) -> String {
    TABLES.replace("$TEXT", text)
}

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS samewire_schema (version BIGINT NOT NULL, reader BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS samewire_records (
    tenant $TEXT NOT NULL, id $TEXT NOT NULL, kind BIGINT NOT NULL, version BIGINT NOT NULL, state BIGINT NOT NULL,
    created BIGINT NOT NULL, touched BIGINT NOT NULL, expires BIGINT NOT NULL, background BIGINT NOT NULL,
    previous $TEXT, conversation $TEXT, owner $TEXT NOT NULL, term BIGINT NOT NULL, lease BIGINT NOT NULL,
    cancel BIGINT NOT NULL, events BIGINT NOT NULL, bytes BIGINT NOT NULL,
    request $TEXT NOT NULL, response $TEXT NOT NULL,
    PRIMARY KEY (tenant, id));
CREATE INDEX IF NOT EXISTS samewire_ended ON samewire_records (touched, tenant, id) WHERE state >= 2;
CREATE INDEX IF NOT EXISTS samewire_weights ON samewire_records (bytes);
CREATE INDEX IF NOT EXISTS samewire_expiring ON samewire_records (expires) WHERE state >= 2;
CREATE INDEX IF NOT EXISTS samewire_running ON samewire_records (lease) WHERE state < 2;
CREATE TABLE IF NOT EXISTS samewire_items (
    tenant $TEXT NOT NULL, holder $TEXT NOT NULL, side BIGINT NOT NULL, place BIGINT NOT NULL, id $TEXT NOT NULL,
    body $TEXT NOT NULL,
    PRIMARY KEY (tenant, holder, side, place),
    FOREIGN KEY (tenant, holder) REFERENCES samewire_records (tenant, id) ON DELETE CASCADE);
CREATE INDEX IF NOT EXISTS samewire_item_ids ON samewire_items (tenant, id, side, holder, place);
CREATE TABLE IF NOT EXISTS samewire_events (
    tenant $TEXT NOT NULL, holder $TEXT NOT NULL, seq BIGINT NOT NULL, body $TEXT NOT NULL,
    PRIMARY KEY (tenant, holder, seq),
    FOREIGN KEY (tenant, holder) REFERENCES samewire_records (tenant, id) ON DELETE CASCADE);
CREATE TABLE IF NOT EXISTS samewire_counters (
    name $TEXT NOT NULL, kind BIGINT NOT NULL, begins BIGINT NOT NULL, writer $TEXT NOT NULL, ends BIGINT NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (name, kind, begins, writer));
CREATE INDEX IF NOT EXISTS samewire_counters_ending ON samewire_counters (ends);
CREATE TABLE IF NOT EXISTS samewire_files (
    tenant $TEXT NOT NULL, id $TEXT NOT NULL, purpose BIGINT NOT NULL, state BIGINT NOT NULL, name $TEXT NOT NULL,
    created BIGINT NOT NULL, expires BIGINT NOT NULL, bytes BIGINT NOT NULL, line_count BIGINT NOT NULL,
    chunks BIGINT NOT NULL,
    PRIMARY KEY (tenant, id));
CREATE INDEX IF NOT EXISTS samewire_files_expiring ON samewire_files (expires);
CREATE TABLE IF NOT EXISTS samewire_chunks (
    tenant $TEXT NOT NULL, holder $TEXT NOT NULL, place BIGINT NOT NULL, first_line BIGINT NOT NULL,
    line_count BIGINT NOT NULL, body $TEXT NOT NULL,
    PRIMARY KEY (tenant, holder, place));
CREATE INDEX IF NOT EXISTS samewire_chunk_lines ON samewire_chunks (tenant, holder, first_line);
CREATE TABLE IF NOT EXISTS samewire_batches (
    tenant $TEXT NOT NULL, id $TEXT NOT NULL, status BIGINT NOT NULL, created BIGINT NOT NULL,
    expires BIGINT NOT NULL, gone BIGINT NOT NULL, cancel BIGINT NOT NULL, owner $TEXT NOT NULL,
    term BIGINT NOT NULL, lease BIGINT NOT NULL, version BIGINT NOT NULL, caller $TEXT NOT NULL,
    input_file $TEXT NOT NULL, output_file $TEXT NOT NULL, error_file $TEXT NOT NULL, line_cursor BIGINT NOT NULL,
    ahead $TEXT NOT NULL, facts $TEXT NOT NULL,
    PRIMARY KEY (tenant, id));
CREATE INDEX IF NOT EXISTS samewire_batches_open ON samewire_batches (lease) WHERE status < 3;
CREATE INDEX IF NOT EXISTS samewire_batches_gone ON samewire_batches (gone);
CREATE TABLE IF NOT EXISTS samewire_seal_keys (id $TEXT NOT NULL, body $TEXT NOT NULL, PRIMARY KEY (id));
";

const RECORD: &str = "tenant, id, kind, version, state, created, touched, expires, background, previous, \
    conversation, owner, term, lease, cancel, events, bytes, request, response";

/// Upper limit for the rows that one statement inserts, and for the ids that one looks up.
const ROWS: usize = 64;

/// Value in a statement or a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SqlValue {
    Int(i64),
    Text(Arc<str>),
    Null,
}

impl From<u64> for SqlValue {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<&u64> for SqlValue {
    fn from(number: &u64) -> Self {
        (*number).into()
    }
}

impl From<i64> for SqlValue {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<&Arc<str>> for SqlValue {
    fn from(text: &Arc<str>) -> Self {
        Self::Text(Arc::clone(text))
    }
}

impl From<&Option<Arc<str>>> for SqlValue {
    fn from(text: &Option<Arc<str>>) -> Self {
        text.as_ref().map_or(Self::Null, Self::from)
    }
}

/// Row of a result.
pub(super) struct SqlRow(pub(super) Vec<SqlValue>);

impl SqlRow {
    fn int(&self, at: usize) -> Result<i64, StoreError> {
        match self.0.get(at) {
            Some(SqlValue::Int(number)) => Ok(*number),
            other => Err(StoreError::unavailable(format_args!("column {at} holds {}", kind_of(other)))),
        }
    }

    fn count(&self, at: usize) -> Result<u64, StoreError> {
        u64::try_from(self.int(at)?).map_err(StoreError::unavailable)
    }

    fn text(&self, at: usize) -> Result<Arc<str>, StoreError> {
        match self.0.get(at) {
            Some(SqlValue::Text(text)) => Ok(Arc::clone(text)),
            other => Err(StoreError::unavailable(format_args!("column {at} holds {}", kind_of(other)))),
        }
    }

    fn maybe(&self, at: usize) -> Result<Option<Arc<str>>, StoreError> {
        if self.0.get(at) == Some(&SqlValue::Null) { Ok(None) } else { self.text(at).map(Some) }
    }

    fn state(&self, at: usize) -> Result<State, StoreError> {
        let number = self.int(at)?;
        State::of(number).ok_or_else(|| StoreError::unavailable(format_args!("unknown state {number}")))
    }

    fn item(&self, at: usize) -> Result<Item, StoreError> {
        Ok(Item { id: self.text(at)?, body: self.text(at + 1)? })
    }

    /// Reads the columns of [`RECORD`].
    fn record(&self) -> Result<StoredResponse, StoreError> {
        Ok(StoredResponse {
            key: Key { tenant: self.text(0)?, id: self.text(1)? },
            version: u32::try_from(self.int(3)?).map_err(StoreError::unavailable)?,
            state: self.state(4)?,
            created: self.count(5)?,
            expires: self.count(7)?,
            background: self.int(8)? != 0,
            previous: self.maybe(9)?,
            conversation: self.maybe(10)?,
            owner: self.text(11)?,
            term: self.count(12)?,
            lease: self.count(13)?,
            cancel: self.int(14)? != 0,
            events: self.count(15)?,
            bytes: self.count(16)?,
            request: self.text(17)?,
            response: self.text(18)?,
        })
    }
}

fn kind_of(value: Option<&SqlValue>) -> &'static str {
    match value {
        Some(SqlValue::Int(_)) => "a number",
        Some(SqlValue::Text(_)) => "a text",
        Some(SqlValue::Null) => "null",
        None => "nothing",
    }
}

/// Transaction in which an operation runs its statements.
pub(super) trait Sql {
    /// Suffix of a `SELECT` whose row is about to be changed, to lock the row.
    const LOCK: &'static str;

    /// Suffix of a `SELECT` whose rows are about to be changed, to lock them, and to leave out those that others
    /// have locked. It is used in a `WITH`, which is evaluated once.
    const LOCK_FREE: &'static str;

    /// Returns the limits of the store.
    fn caps(&self) -> &StoreCaps;

    async fn query(&mut self, sql: &str, values: &[SqlValue]) -> Result<Vec<SqlRow>, StoreError>;

    async fn execute(&mut self, sql: &str, values: &[SqlValue]) -> Result<u64, StoreError>;

    /// Runs a statement whose row count does not matter. It may run later, and fail then, but before the operation
    /// ends.
    async fn later(&mut self, sql: &str, values: &[SqlValue]) -> Result<(), StoreError> {
        self.execute(sql, values).await.map(|_| ())
    }

    /// Returns the totals of the store, including the changes of this transaction.
    async fn totals(&mut self) -> Result<Totals, StoreError>;

    /// Adds to the totals what this transaction has added or removed.
    fn add_to_totals(&mut self, records: i64, bytes: i64);

    /// Notes bytes that this transaction writes beside records.
    fn will_write(&mut self, _bytes: u64) {}

    /// Returns true if the disk has room for a record of this size, given that ended ones of `ended` bytes may be
    /// evicted.
    async fn has_disk(&mut self, _bytes: u64, _ended: u64) -> Result<bool, StoreError> {
        Ok(true)
    }

    /// Recounts totals that are maintained incrementally, since another process may have changed the tables.
    async fn recount(&mut self) -> Result<(), StoreError>;
}

/// Returns the result of a future that never waits.
pub(super) fn ready<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => Err(StoreError::unavailable("a statement waits")),
    }
}

/// Fields of a record that an operation checks before it writes.
struct RecordHead {
    state: State,
    term: u64,
    events: u64,
    bytes: u64,
    /// Length of the response object in bytes.
    response: u64,
}

/// Reads the head of a record, and locks the row until the end of the transaction.
async fn head<S: Sql>(s: &mut S, key: &Key, kind: Kind, now: Millis) -> Result<RecordHead, StoreError> {
    let sql = format!(
        "SELECT state, term, events, bytes, CAST(octet_length(response) AS BIGINT) FROM samewire_records \
         WHERE tenant = $1 AND id = $2 AND kind = $3 AND (state < 2 OR expires > $4){}",
        S::LOCK
    );
    let values = [(&key.tenant).into(), (&key.id).into(), (kind as i64).into(), now.into()];
    let rows = s.query(&sql, &values).await?;
    let row = rows.first().ok_or(StoreError::NotFound)?;
    Ok(RecordHead {
        state: row.state(0)?,
        term: row.count(1)?,
        events: row.count(2)?,
        bytes: row.count(3)?,
        response: row.count(4)?,
    })
}

async fn owned<S: Sql>(s: &mut S, key: &Key, term: u64, now: Millis) -> Result<RecordHead, StoreError> {
    let head = head(s, key, Kind::Response, now).await?;
    if head.term == term { Ok(head) } else { Err(StoreError::Fenced) }
}

/// Change of a record's weight by a write.
struct WeightChange {
    before: u64,
    after: u64,
    /// True if the write ends a response.
    closing: bool,
}

/// Evicts the oldest ended records, except this one, until all limits hold. Called after a write.
async fn make_room<S: Sql>(s: &mut S, key: &Key, change: WeightChange) -> Result<(), StoreError> {
    let WeightChange { before, after, closing } = change;
    let closing = closing && after <= before + CLOSING;
    if after > s.caps().record_bytes && !closing {
        return Err(StoreError::Full);
    }
    let difference = i64::try_from(after).unwrap_or(i64::MAX) - i64::try_from(before).unwrap_or(0);
    s.add_to_totals(i64::from(before == 0), difference);
    if !s.caps().counts() {
        return Ok(());
    }
    loop {
        let totals = s.totals().await?;
        if totals.bytes <= s.caps().bytes && totals.records <= s.caps().records {
            return Ok(());
        }
        if !evict(s, &key.tenant, &key.id).await? {
            return if closing { Ok(()) } else { Err(StoreError::Full) };
        }
    }
}

/// Removes the oldest ended record other than this one. Returns false if there is none.
pub(super) async fn evict<S: Sql>(s: &mut S, tenant: &Arc<str>, id: &Arc<str>) -> Result<bool, StoreError> {
    let sql = format!(
        "WITH oldest AS (SELECT tenant, id FROM samewire_records WHERE state >= 2 AND NOT (tenant = $1 AND id = $2) \
         ORDER BY touched, tenant, id LIMIT 1{}) \
         DELETE FROM samewire_records WHERE (tenant, id) IN (SELECT tenant, id FROM oldest) RETURNING bytes",
        S::LOCK_FREE
    );
    let rows = s.query(&sql, &[tenant.into(), id.into()]).await?;
    let Some(row) = rows.first() else { return Ok(false) };
    s.add_to_totals(-1, -row.int(0)?);
    Ok(true)
}

/// Inserts rows of `width` values each, many with one statement. The number of rows is a power of two, so that few
/// different statements have to be prepared.
async fn insert<S: Sql>(s: &mut S, into: &str, width: usize, values: &[SqlValue]) -> Result<(), StoreError> {
    let mut rest = values;
    while let Some(most) = (rest.len() / width).checked_ilog2() {
        let (chunk, after) = rest.split_at(width * ROWS.min(1 << most));
        rest = after;
        let row = |first: usize| {
            let places: Vec<String> = (first..first + width).map(|at| format!("${at}")).collect();
            format!("({})", places.join(", "))
        };
        let rows: Vec<String> = (1..=chunk.len()).step_by(width).map(row).collect();
        s.later(&format!("INSERT INTO {into} VALUES {}", rows.join(", ")), chunk).await?;
    }
    Ok(())
}

async fn insert_items<S: Sql>(
    s: &mut S,
    key: &Key,
    side: Side,
    from: u64,
    items: &[Item],
) -> Result<(), StoreError> {
    let mut values = Vec::with_capacity(items.len() * 6);
    for (place, item) in (from..).zip(items) {
        let row = [
            SqlValue::from(&key.tenant),
            SqlValue::from(&key.id),
            SqlValue::from(side as i64),
            SqlValue::from(place),
            SqlValue::from(&item.id),
            SqlValue::from(&item.body),
        ];
        values.extend(row);
    }
    insert(s, "samewire_items (tenant, holder, side, place, id, body)", 6, &values).await
}

async fn insert_events<S: Sql>(s: &mut S, key: &Key, from: u64, bodies: &[Json]) -> Result<(), StoreError> {
    let mut values = Vec::with_capacity(bodies.len() * 4);
    for (seq, body) in (from..).zip(bodies) {
        values.extend([
            SqlValue::from(&key.tenant),
            SqlValue::from(&key.id),
            SqlValue::from(seq),
            SqlValue::from(body),
        ]);
    }
    insert(s, "samewire_events (tenant, holder, seq, body)", 4, &values).await
}

async fn insert_record<S: Sql>(s: &mut S, record: &StoredResponse, kind: Kind) -> Result<(), StoreError> {
    let sql = format!(
        "INSERT INTO samewire_records ({RECORD}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
         $15, $16, $17, $18, $19) ON CONFLICT (tenant, id) DO NOTHING"
    );
    let values = [
        (&record.key.tenant).into(),
        (&record.key.id).into(),
        (kind as i64).into(),
        u64::from(record.version).into(),
        (record.state as i64).into(),
        record.created.into(),
        record.created.into(),
        record.expires.into(),
        i64::from(record.background).into(),
        (&record.previous).into(),
        (&record.conversation).into(),
        (&record.owner).into(),
        record.term.into(),
        record.lease.into(),
        i64::from(record.cancel).into(),
        record.events.into(),
        record.bytes.into(),
        (&record.request).into(),
        (&record.response).into(),
    ];
    if s.execute(&sql, &values).await? == 0 { Err(StoreError::Conflict) } else { Ok(()) }
}

pub(super) async fn create<S: Sql>(s: &mut S, new: &NewResponse, now: &Millis) -> Result<(), StoreError> {
    let record = StoredResponse::first(new, s.caps(), *now);
    insert_record(s, &record, Kind::Response).await?;
    insert_items(s, &new.key, Side::Input, 0, &new.input).await?;
    insert_items(s, &new.key, Side::Output, 0, &new.output).await?;
    make_room(s, &new.key, WeightChange { before: 0, after: record.bytes, closing: false }).await
}

pub(super) async fn start<S: Sql>(
    s: &mut S,
    key: &Key,
    term: &u64,
    response: &Json,
    now: &Millis,
) -> Result<(), StoreError> {
    let head = owned(s, key, *term, *now).await?;
    match head.state {
        State::Queued => {}
        State::InProgress => return Ok(()),
        _ => return Err(StoreError::Conflict),
    }
    let bytes = head.bytes.saturating_sub(head.response) + response.len() as u64;
    let sql = "UPDATE samewire_records SET state = 1, response = $1, bytes = $2, touched = $3 \
               WHERE tenant = $4 AND id = $5";
    let values = [response.into(), bytes.into(), now.into(), (&key.tenant).into(), (&key.id).into()];
    s.later(sql, &values).await?;
    make_room(s, key, WeightChange { before: head.bytes, after: bytes, closing: false }).await
}

pub(super) async fn append_events<S: Sql>(
    s: &mut S,
    key: &Key,
    term: &u64,
    events: &StoredEvents,
    now: &Millis,
) -> Result<(), StoreError> {
    let head = owned(s, key, *term, *now).await?;
    if head.state.is_terminal() {
        return Err(StoreError::Conflict);
    }
    let fresh = events.fresh(head.events)?;
    let bytes = head.bytes + weight_of_events(fresh);
    insert_events(s, key, head.events, fresh).await?;
    let sql = "UPDATE samewire_records SET events = $1, bytes = $2, lease = $3 WHERE tenant = $4 AND id = $5";
    let (total, lease) = (head.events + fresh.len() as u64, now.saturating_add(s.caps().lease));
    let values = [total.into(), bytes.into(), lease.into(), (&key.tenant).into(), (&key.id).into()];
    s.later(sql, &values).await?;
    make_room(s, key, WeightChange { before: head.bytes, after: bytes, closing: false }).await
}

pub(super) async fn finish<S: Sql>(
    s: &mut S,
    key: &Key,
    term: &u64,
    finish: &FinalState,
    now: &Millis,
) -> Result<(), StoreError> {
    let head = owned(s, key, *term, *now).await?;
    if head.state.is_terminal() {
        let same = head.state == finish.state && get(s, key, now).await?.response == finish.response;
        return if same { Ok(()) } else { Err(StoreError::Conflict) };
    }
    let fresh = finish.events.fresh(head.events)?;
    let bytes = head.bytes.saturating_sub(head.response)
        + finish.response.len() as u64
        + weight_of_items(&finish.output)
        + weight_of_events(fresh);
    insert_events(s, key, head.events, fresh).await?;
    insert_items(s, key, Side::Output, 0, &finish.output).await?;
    let sql = "UPDATE samewire_records SET state = $1, response = $2, events = $3, bytes = $4, touched = $5, \
               expires = $6 WHERE tenant = $7 AND id = $8";
    let values = [
        (finish.state as i64).into(),
        (&finish.response).into(),
        (head.events + fresh.len() as u64).into(),
        bytes.into(),
        now.into(),
        now.saturating_add(s.caps().ttl).into(),
        (&key.tenant).into(),
        (&key.id).into(),
    ];
    s.later(sql, &values).await?;
    make_room(s, key, WeightChange { before: head.bytes, after: bytes, closing: true }).await
}

async fn record<S: Sql>(s: &mut S, key: &Key, kind: Kind, now: Millis) -> Result<StoredResponse, StoreError> {
    let sql = format!(
        "SELECT {RECORD} FROM samewire_records \
         WHERE tenant = $1 AND id = $2 AND kind = $3 AND (state < 2 OR expires > $4)"
    );
    let values = [(&key.tenant).into(), (&key.id).into(), (kind as i64).into(), now.into()];
    s.query(&sql, &values).await?.first().ok_or(StoreError::NotFound)?.record()
}

pub(super) async fn get<S: Sql>(s: &mut S, key: &Key, now: &Millis) -> Result<StoredResponse, StoreError> {
    record(s, key, Kind::Response, *now).await
}

async fn remove<S: Sql>(s: &mut S, key: &Key, kind: Kind, now: Millis) -> Result<(), StoreError> {
    let sql = "DELETE FROM samewire_records \
               WHERE tenant = $1 AND id = $2 AND kind = $3 AND (state < 2 OR expires > $4) RETURNING bytes";
    let values = [(&key.tenant).into(), (&key.id).into(), (kind as i64).into(), now.into()];
    let rows = s.query(sql, &values).await?;
    s.add_to_totals(-1, -rows.first().ok_or(StoreError::NotFound)?.int(0)?);
    Ok(())
}

pub(super) async fn delete<S: Sql>(s: &mut S, key: &Key, now: &Millis) -> Result<(), StoreError> {
    remove(s, key, Kind::Response, *now).await
}

/// Reads the state of a record without locking it; [`head`] is for operations that write.
async fn state<S: Sql>(s: &mut S, key: &Key, kind: Kind, now: Millis) -> Result<SqlRow, StoreError> {
    let sql = "SELECT state, events, cancel FROM samewire_records \
               WHERE tenant = $1 AND id = $2 AND kind = $3 AND (state < 2 OR expires > $4)";
    let values = [(&key.tenant).into(), (&key.id).into(), (kind as i64).into(), now.into()];
    s.query(sql, &values).await?.pop().ok_or(StoreError::NotFound)
}

async fn page<S: Sql>(s: &mut S, key: &Key, side: Side, range: &PageRequest) -> Result<Page, StoreError> {
    let (pick, than, order) = if range.descending { ("MIN", "<", "DESC") } else { ("MAX", ">", "ASC") };
    let mut values = vec![(&key.tenant).into(), (&key.id).into(), (side as i64).into()];
    let mut bound = String::new();
    if let Some(id) = &range.after {
        // If two items share an id, the last one counts; otherwise the pages would start over.
        let sql = format!(
            "SELECT {pick}(place) FROM samewire_items WHERE tenant = $1 AND holder = $2 AND side = $3 AND id = $4"
        );
        let mut named = values.clone();
        named.push(id.into());
        let rows = s.query(&sql, &named).await?;
        let place = rows.first().and_then(|row| row.int(0).ok()).ok_or(StoreError::NoCursor)?;
        values.push(place.into());
        bound = format!(" AND place {than} $4");
    }
    let sql = format!(
        "SELECT id, body FROM samewire_items WHERE tenant = $1 AND holder = $2 AND side = $3{bound} \
         ORDER BY place {order} LIMIT ${}",
        values.len() + 1
    );
    values.push((range.bounded() as u64 + 1).into());
    let rows = s.query(&sql, &values).await?;
    let mut items = rows.iter().map(|row| row.item(0)).collect::<Result<Vec<_>, _>>()?;
    let more = items.len() > range.bounded();
    items.truncate(range.bounded());
    Ok(Page { items, more })
}

pub(super) async fn input_items<S: Sql>(
    s: &mut S,
    key: &Key,
    range: &PageRequest,
    now: &Millis,
) -> Result<Page, StoreError> {
    state(s, key, Kind::Response, *now).await?;
    page(s, key, Side::Input, range).await
}

pub(super) async fn events_after<S: Sql>(
    s: &mut S,
    key: &Key,
    after: &Option<u64>,
    limit: &usize,
    now: &Millis,
) -> Result<StoredReplay, StoreError> {
    let row = state(s, key, Kind::Response, *now).await?;
    let (state, total) = (row.state(0)?, row.count(1)?);
    let from = after.map_or(0, |after| after.saturating_add(1));
    // Reads up to the total that was just read: events that another replica adds meanwhile come with the next call.
    let sql = "SELECT body FROM samewire_events WHERE tenant = $1 AND holder = $2 AND seq >= $3 AND seq < $4 \
               ORDER BY seq LIMIT $5";
    let values = [(&key.tenant).into(), (&key.id).into(), from.into(), total.into(), (*limit as u64).into()];
    let rows = s.query(sql, &values).await?;
    let bodies = rows.iter().map(|row| row.text(0)).collect::<Result<_, _>>()?;
    Ok(StoredReplay { events: StoredEvents { from, bodies }, total, state })
}

/// Reads a response and its ancestors, youngest first.
async fn links<S: Sql>(s: &mut S, key: &Key, now: Millis) -> Result<Vec<Arc<str>>, StoreError> {
    let sql = "WITH RECURSIVE links (id, previous, state, expires, conversation, depth) AS (
        SELECT id, previous, state, expires, conversation, CAST(1 AS BIGINT) FROM samewire_records
        WHERE tenant = $1 AND id = $2 AND kind = 0
        UNION ALL
        SELECT older.id, older.previous, older.state, older.expires, older.conversation, links.depth + 1
        FROM samewire_records AS older JOIN links ON older.id = links.previous
        WHERE older.tenant = $1 AND older.kind = 0 AND links.depth <= $3)
        SELECT id, previous, state, expires, conversation FROM links ORDER BY depth";
    let values = [(&key.tenant).into(), (&key.id).into(), SqlValue::from(LINKS as u64)];
    let mut ids = Vec::new();
    let mut previous = Some(Arc::clone(&key.id));
    for row in s.query(sql, &values).await? {
        let reached = row.state(2)?;
        if reached.is_terminal() && row.count(3)? <= now {
            return Err(StoreError::NotFound);
        }
        if !reached.is_terminal() {
            return Err(StoreError::Conflict);
        }
        if let Some(id) = row.maybe(4)? {
            let of = Key { tenant: Arc::clone(&key.tenant), id };
            match state(s, &of, Kind::Conversation, now).await {
                Ok(_) => return Err(StoreError::InConversation),
                Err(StoreError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        if ids.len() == LINKS {
            return Err(StoreError::Full);
        }
        ids.push(row.text(0)?);
        previous = row.maybe(1)?;
    }
    if previous.is_some() { Err(StoreError::NotFound) } else { Ok(ids) }
}

/// Returns the placeholders `$2, $3, …` up to the last of this many values.
fn placeholders(values: usize) -> String {
    (2..=values).map(|at| format!("${at}")).collect::<Vec<_>>().join(", ")
}

pub(super) async fn chain<S: Sql>(
    s: &mut S,
    key: &Key,
    bytes: &u64,
    now: &Millis,
) -> Result<Vec<Item>, StoreError> {
    let mut ids = links(s, key, *now).await?;
    ids.reverse();
    let mut weight = 0;
    let mut items = Vec::new();
    for ids in ids.chunks(ROWS) {
        // Some ids are repeated, so that few different statements have to be prepared.
        let again = ids.iter().cycle().take(ids.len().next_power_of_two());
        let named: Vec<SqlValue> = std::iter::once(&key.tenant).chain(again).map(SqlValue::from).collect();
        let of =
            format!("FROM samewire_items WHERE tenant = $1 AND holder IN ({})", placeholders(named.len()));
        // The size is checked before anything is fetched.
        let sql = format!("SELECT CAST(COALESCE(SUM(octet_length(body)), 0) AS BIGINT) {of}");
        weight += s.query(&sql, &named).await?.first().map_or(Ok(0), |row| row.count(0))?;
        if weight > *bytes {
            return Err(StoreError::Full);
        }
        let sql = format!("SELECT id, body, holder {of} ORDER BY side DESC, place");
        let mut found = Vec::new();
        for row in s.query(&sql, &named).await? {
            let holder = row.text(2)?;
            found.push((ids.iter().position(|id| *id == holder), row.item(0)?));
        }
        found.sort_by_key(|(link, _)| *link);
        items.extend(found.into_iter().map(|(_, item)| item));
    }
    Ok(items)
}

pub(super) async fn refresh<S: Sql>(s: &mut S, key: &Key, now: &Millis) -> Result<(), StoreError> {
    let sql = "UPDATE samewire_records SET expires = $1, touched = $2
        WHERE tenant = $3 AND kind = 0 AND state >= 2 AND expires > $2 AND expires <= $4 AND id IN (
            WITH RECURSIVE links (id, previous, depth) AS (
                SELECT id, previous, CAST(1 AS BIGINT) FROM samewire_records
                WHERE tenant = $3 AND id = $5 AND kind = 0
                UNION ALL
                SELECT older.id, older.previous, links.depth + 1
                FROM samewire_records AS older JOIN links ON older.id = links.previous
                WHERE older.tenant = $3 AND older.kind = 0 AND links.depth < $6)
            SELECT id FROM links)";
    let values = [
        now.saturating_add(s.caps().ttl).into(),
        now.into(),
        (&key.tenant).into(),
        now.saturating_add(s.caps().ttl / 2).into(),
        (&key.id).into(),
        SqlValue::from(LINKS as u64),
    ];
    s.later(sql, &values).await
}

pub(super) async fn resolve<S: Sql>(
    s: &mut S,
    tenant: &Arc<str>,
    ids: &[Arc<str>],
    now: &Millis,
) -> Result<Vec<Option<Item>>, StoreError> {
    let sql = "SELECT i.id, i.body FROM samewire_items AS i \
               JOIN samewire_records AS r ON r.tenant = i.tenant AND r.id = i.holder \
               WHERE i.tenant = $1 AND i.id = $2 AND (r.state < 2 OR r.expires > $3) \
               ORDER BY i.side, i.holder, i.place LIMIT 1";
    let mut items = Vec::with_capacity(ids.len());
    for id in ids {
        let rows = s.query(sql, &[tenant.into(), id.into(), now.into()]).await?;
        items.push(rows.first().map(|row| row.item(0)).transpose()?);
    }
    Ok(items)
}

pub(super) async fn sweep<S: Sql>(s: &mut S, now: &Millis) -> Result<u64, StoreError> {
    let sql = format!(
        "WITH expired AS (SELECT tenant, id FROM samewire_records WHERE state >= 2 AND expires <= $1 LIMIT 1000{}) \
         DELETE FROM samewire_records WHERE (tenant, id) IN (SELECT tenant, id FROM expired) RETURNING bytes",
        S::LOCK_FREE
    );
    let rows = s.query(&sql, &[now.into()]).await?;
    let sql = format!(
        "WITH ended AS \
         (SELECT name, kind, begins, writer FROM samewire_counters WHERE ends <= $1 LIMIT 1000{}) \
         DELETE FROM samewire_counters WHERE (name, kind, begins, writer) IN \
         (SELECT name, kind, begins, writer FROM ended)",
        S::LOCK_FREE
    );
    s.later(&sql, &[now.into()]).await?;
    s.recount().await?;
    Ok(rows.len() as u64)
}

pub(super) async fn totals<S: Sql>(s: &mut S) -> Result<Totals, StoreError> {
    s.totals().await
}

pub(super) async fn flush<S: Sql>(_: &mut S) -> Result<(), StoreError> {
    Ok(())
}

pub(super) async fn has_room<S: Sql>(s: &mut S, bytes: &u64) -> Result<(), StoreError> {
    // Only a write shows whether writing is possible. The row is removed in the same transaction, before others can
    // see it.
    s.later("INSERT INTO samewire_schema (version, reader) VALUES (0, 0)", &[]).await?;
    s.later("DELETE FROM samewire_schema WHERE version = 0", &[]).await?;
    let running = if s.caps().counts() { count(s, " WHERE state < 2").await? } else { Totals::default() };
    s.caps().check_fits(running, *bytes)?;
    let ended = if s.caps().counts() { s.totals().await?.bytes.saturating_sub(running.bytes) } else { 0 };
    if s.has_disk(*bytes, ended).await? { Ok(()) } else { Err(StoreError::Full) }
}

/// Counts records and their weight. `clause`: ` WHERE …`, or empty for all records.
pub(super) async fn count<S: Sql>(s: &mut S, clause: &str) -> Result<Totals, StoreError> {
    let sql =
        format!("SELECT COUNT(*), CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM samewire_records{clause}");
    let rows = s.query(&sql, &[]).await?;
    let row = rows.first().ok_or_else(|| StoreError::unavailable("no count"))?;
    Ok(Totals { records: row.count(0)?, bytes: row.count(1)? })
}
