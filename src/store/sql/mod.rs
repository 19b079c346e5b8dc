//! Operations in SQL that both SQLite and PostgreSQL understand; each runs within one transaction of the caller.
//!
//! Only two types are used: whole numbers and texts. Parameters are `$1`, `$2`, … in the order of their first use,
//! because SQLite takes them for names.

mod batches;
mod conversations;
mod counters;
mod files;
mod owners;
mod responses;
mod seal_key;
mod tables;

pub(super) use batches::*;
pub(super) use conversations::*;
pub(super) use counters::*;
pub(super) use files::*;
pub(super) use owners::*;
pub(super) use responses::*;
pub(super) use seal_key::*;
pub(super) use tables::{SCHEMA, readable, tables};

use super::record::{
    CLOSING, Item, Json, Key, Kind, Millis, Owned, Page, PageRequest, Side, State, StoreCaps,
    StoreError, Stored, StoredResponse, Totals,
};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

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
    fn int(&self, at: usize) -> Stored<i64> {
        match self.0.get(at) {
            Some(SqlValue::Int(number)) => Ok(*number),
            other => Err(StoreError::unavailable(format_args!(
                "column {at} holds {}",
                kind_of(other)
            ))),
        }
    }

    fn count(&self, at: usize) -> Stored<u64> {
        u64::try_from(self.int(at)?).map_err(StoreError::unavailable)
    }

    fn text(&self, at: usize) -> Stored<Arc<str>> {
        match self.0.get(at) {
            Some(SqlValue::Text(text)) => Ok(Arc::clone(text)),
            other => Err(StoreError::unavailable(format_args!(
                "column {at} holds {}",
                kind_of(other)
            ))),
        }
    }

    fn maybe(&self, at: usize) -> Stored<Option<Arc<str>>> {
        if self.0.get(at) == Some(&SqlValue::Null) {
            Ok(None)
        } else {
            self.text(at).map(Some)
        }
    }

    fn state(&self, at: usize) -> Stored<State> {
        let number = self.int(at)?;
        State::of(number)
            .ok_or_else(|| StoreError::unavailable(format_args!("unknown state {number}")))
    }

    fn item(&self, at: usize) -> Stored<Item> {
        Ok(Item {
            id: self.text(at)?,
            body: self.text(at + 1)?,
        })
    }

    /// Reads tenant, id, term and cancel, in this order.
    fn owned(&self) -> Stored<Owned> {
        let key = Key {
            tenant: self.text(0)?,
            id: self.text(1)?,
        };
        Ok(Owned {
            key,
            term: self.count(2)?,
            cancel: self.int(3)? != 0,
        })
    }

    /// Reads the columns of [`RECORD`].
    fn record(&self) -> Stored<StoredResponse> {
        Ok(StoredResponse {
            key: Key {
                tenant: self.text(0)?,
                id: self.text(1)?,
            },
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

    async fn query(&mut self, sql: &str, values: &[SqlValue]) -> Stored<Vec<SqlRow>>;

    /// Returns the first row. Fails with `NotFound` if there is none.
    async fn one(&mut self, sql: &str, values: &[SqlValue]) -> Stored<SqlRow> {
        self.query(sql, values)
            .await?
            .into_iter()
            .next()
            .ok_or(StoreError::NotFound)
    }

    async fn execute(&mut self, sql: &str, values: &[SqlValue]) -> Stored<u64>;

    /// Runs a statement whose row count does not matter. It may run later, and fail then, but before the operation
    /// ends.
    async fn later(&mut self, sql: &str, values: &[SqlValue]) -> Stored {
        self.execute(sql, values).await.map(|_| ())
    }

    /// Returns the totals of the store, including the changes of this transaction.
    async fn totals(&mut self) -> Stored<Totals>;

    /// Adds to the totals what this transaction has added or removed.
    fn add_to_totals(&mut self, records: i64, bytes: i64);

    /// Notes bytes that this transaction writes beside records.
    fn will_write(&mut self, _bytes: u64) {}

    /// Returns true if the disk has room for a record of this size, given that ended ones of `ended` bytes may be
    /// evicted.
    async fn has_disk(&mut self, _bytes: u64, _ended: u64) -> Stored<bool> {
        Ok(true)
    }

    /// Recounts totals that are maintained incrementally, since another process may have changed the tables.
    async fn recount(&mut self) -> Stored;
}

/// Returns the result of a future that never waits.
pub(super) fn ready<T>(work: impl Future<Output = Stored<T>>) -> Stored<T> {
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
async fn head<S: Sql>(s: &mut S, key: &Key, kind: Kind, now: Millis) -> Stored<RecordHead> {
    let sql = format!(
        "SELECT state, term, events, bytes, CAST(octet_length(response) AS BIGINT) FROM samewire_records \
         WHERE tenant = $1 AND id = $2 AND kind = $3 AND (state < 2 OR expires > $4){}",
        S::LOCK
    );
    let values = [
        (&key.tenant).into(),
        (&key.id).into(),
        (kind as i64).into(),
        now.into(),
    ];
    let row = s.one(&sql, &values).await?;
    Ok(RecordHead {
        state: row.state(0)?,
        term: row.count(1)?,
        events: row.count(2)?,
        bytes: row.count(3)?,
        response: row.count(4)?,
    })
}

async fn owned<S: Sql>(s: &mut S, key: &Key, term: u64, now: Millis) -> Stored<RecordHead> {
    let head = head(s, key, Kind::Response, now).await?;
    if head.term == term {
        Ok(head)
    } else {
        Err(StoreError::Fenced)
    }
}

/// Change of a record's weight by a write.
struct WeightChange {
    before: u64,
    after: u64,
    /// True if the write ends a response.
    closing: bool,
}

impl WeightChange {
    /// Returns the change by a write that ends no response.
    fn new(before: u64, after: u64) -> Self {
        Self {
            before,
            after,
            closing: false,
        }
    }
}

/// Evicts the oldest ended records, except this one, until all limits hold. Called after a write.
async fn make_room<S: Sql>(s: &mut S, key: &Key, change: WeightChange) -> Stored {
    let WeightChange {
        before,
        after,
        closing,
    } = change;
    let closing = closing && after <= before + CLOSING;
    if after > s.caps().record_bytes.max(before) && !closing {
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
            return if closing {
                Ok(())
            } else {
                Err(StoreError::Full)
            };
        }
    }
}

/// Removes the oldest ended record other than this one. Returns false if there is none.
pub(super) async fn evict<S: Sql>(s: &mut S, tenant: &Arc<str>, id: &Arc<str>) -> Stored<bool> {
    let sql = format!(
        "WITH oldest AS (SELECT tenant, id FROM samewire_records WHERE state >= 2 AND NOT (tenant = $1 AND id = $2) \
         ORDER BY touched, tenant, id LIMIT 1{}) \
         DELETE FROM samewire_records WHERE (tenant, id) IN (SELECT tenant, id FROM oldest) RETURNING bytes",
        S::LOCK_FREE
    );
    let rows = s.query(&sql, &[tenant.into(), id.into()]).await?;
    let Some(row) = rows.first() else {
        return Ok(false);
    };
    s.add_to_totals(-1, -row.int(0)?);
    Ok(true)
}

/// Inserts rows of `width` values each, many with one statement. The number of rows is a power of two, so that few
/// different statements have to be prepared.
async fn insert<S: Sql>(s: &mut S, into: &str, width: usize, values: &[SqlValue]) -> Stored {
    let mut rest = values;
    while let Some(most) = (rest.len() / width).checked_ilog2() {
        let (chunk, after) = rest.split_at(width * ROWS.min(1 << most));
        rest = after;
        let row = |first: usize| {
            let places: Vec<String> = (first..first + width).map(|at| format!("${at}")).collect();
            format!("({})", places.join(", "))
        };
        let rows: Vec<String> = (1..=chunk.len()).step_by(width).map(row).collect();
        s.later(
            &format!("INSERT INTO {into} VALUES {}", rows.join(", ")),
            chunk,
        )
        .await?;
    }
    Ok(())
}

async fn insert_items<S: Sql>(
    s: &mut S,
    key: &Key,
    side: Side,
    from: u64,
    items: &[Item],
) -> Stored {
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
    insert(
        s,
        "samewire_items (tenant, holder, side, place, id, body)",
        6,
        &values,
    )
    .await
}

async fn insert_events<S: Sql>(s: &mut S, key: &Key, from: u64, bodies: &[Json]) -> Stored {
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

async fn insert_record<S: Sql>(s: &mut S, record: &StoredResponse, kind: Kind) -> Stored {
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
    if s.execute(&sql, &values).await? == 0 {
        Err(StoreError::Conflict)
    } else {
        Ok(())
    }
}

async fn record<S: Sql>(s: &mut S, key: &Key, kind: Kind, now: Millis) -> Stored<StoredResponse> {
    let sql = format!(
        "SELECT {RECORD} FROM samewire_records \
         WHERE tenant = $1 AND id = $2 AND kind = $3 AND (state < 2 OR expires > $4)"
    );
    let values = [
        (&key.tenant).into(),
        (&key.id).into(),
        (kind as i64).into(),
        now.into(),
    ];
    s.one(&sql, &values).await?.record()
}

async fn remove<S: Sql>(s: &mut S, key: &Key, kind: Kind, now: Millis) -> Stored {
    let sql = "DELETE FROM samewire_records \
               WHERE tenant = $1 AND id = $2 AND kind = $3 AND (state < 2 OR expires > $4) RETURNING bytes";
    let values = [
        (&key.tenant).into(),
        (&key.id).into(),
        (kind as i64).into(),
        now.into(),
    ];
    let row = s.one(sql, &values).await?;
    s.add_to_totals(-1, -row.int(0)?);
    Ok(())
}

/// Reads the state of a record without locking it; [`head`] is for operations that write.
async fn state<S: Sql>(s: &mut S, key: &Key, kind: Kind, now: Millis) -> Stored<SqlRow> {
    let sql = "SELECT state, events FROM samewire_records \
               WHERE tenant = $1 AND id = $2 AND kind = $3 AND (state < 2 OR expires > $4)";
    let values = [
        (&key.tenant).into(),
        (&key.id).into(),
        (kind as i64).into(),
        now.into(),
    ];
    s.one(sql, &values).await
}

async fn page<S: Sql>(s: &mut S, key: &Key, side: Side, range: &PageRequest) -> Stored<Page> {
    let (pick, than, order) = if range.descending {
        ("MIN", "<", "DESC")
    } else {
        ("MAX", ">", "ASC")
    };
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
        let place = rows
            .first()
            .and_then(|row| row.int(0).ok())
            .ok_or(StoreError::NoCursor)?;
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
    let mut items = rows
        .iter()
        .map(|row| row.item(0))
        .collect::<Result<Vec<_>, _>>()?;
    let more = items.len() > range.bounded();
    items.truncate(range.bounded());
    Ok(Page { items, more })
}

/// Returns the placeholders `$2, $3, …` up to the last of this many values.
fn placeholders(values: usize) -> String {
    (2..=values)
        .map(|at| format!("${at}"))
        .collect::<Vec<_>>()
        .join(", ")
}

pub(super) async fn sweep<S: Sql>(s: &mut S, now: &Millis) -> Stored<u64> {
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
    let counters = s.execute(&sql, &[now.into()]).await?;
    s.recount().await?;
    Ok(rows.len() as u64 + counters)
}

pub(super) async fn totals<S: Sql>(s: &mut S) -> Stored<Totals> {
    s.totals().await
}

pub(super) async fn has_room<S: Sql>(s: &mut S, bytes: &u64) -> Stored {
    // Only a write shows whether writing is possible. The row is removed in the same transaction, before others can
    // see it.
    s.later(
        "INSERT INTO samewire_schema (version, reader) VALUES (0, 0)",
        &[],
    )
    .await?;
    s.later("DELETE FROM samewire_schema WHERE version = 0", &[])
        .await?;
    let running = if s.caps().counts() {
        count(s, " WHERE state < 2").await?
    } else {
        Totals::default()
    };
    s.caps().check_fits(running, *bytes)?;
    let ended = if s.caps().counts() {
        s.totals().await?.bytes.saturating_sub(running.bytes)
    } else {
        0
    };
    if s.has_disk(*bytes, ended).await? {
        Ok(())
    } else {
        Err(StoreError::Full)
    }
}

/// Counts records and their weight. `clause`: ` WHERE …`, or empty for all records.
pub(super) async fn count<S: Sql>(s: &mut S, clause: &str) -> Stored<Totals> {
    let sql = format!(
        "SELECT COUNT(*), CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM samewire_records{clause}"
    );
    let row = s.one(&sql, &[]).await?;
    Ok(Totals {
        records: row.count(0)?,
        bytes: row.count(1)?,
    })
}
