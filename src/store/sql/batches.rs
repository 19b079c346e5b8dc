//! Operations on batches.

use super::files::{after, append_results, complete};
use super::{Sql, SqlRow, SqlValue};
use crate::store::batches::{Batch, BatchStatus, BatchStep, FileLimits, FilePurpose};
use crate::store::record::{Key, Millis, Owned, PageRequest, StoreError, Stored};
use std::sync::Arc;

const BATCH: &str = "tenant, id, status, created, expires, cancel, owner, term, version, caller, input_file, \
    output_file, error_file, line_cursor, ahead, facts";

impl SqlRow {
    /// Reads the columns of [`BATCH`].
    fn batch(&self) -> Stored<Batch> {
        let number = self.int(2)?;
        let unknown = || StoreError::unavailable(format_args!("unknown status {number}"));
        Ok(Batch {
            key: Key {
                tenant: self.text(0)?,
                id: self.text(1)?,
            },
            status: BatchStatus::of(number).ok_or_else(unknown)?,
            created: self.count(3)?,
            expires: self.count(4)?,
            cancel: self.count(5)?,
            owner: self.text(6)?,
            term: self.count(7)?,
            version: self.count(8)?,
            caller: self.text(9)?,
            input: self.text(10)?,
            output: self.text(11)?,
            errors: self.text(12)?,
            cursor: self.count(13)?,
            ahead: self.text(14)?,
            facts: self.text(15)?,
        })
    }
}

pub(in crate::store) async fn create_batch<S: Sql>(
    s: &mut S,
    new: &Batch,
    most: &u64,
    now: &Millis,
) -> Stored {
    let tenant = &new.key.tenant;
    // The file is kept for as long as the batch may need it.
    let sql = "UPDATE samewire_files SET expires = CASE WHEN expires < $1 THEN $1 ELSE expires END \
               WHERE tenant = $2 AND id = $3 AND state = 1 AND purpose = 0 AND expires > $4";
    let until = new.expires.saturating_add(new.expires.saturating_sub(*now));
    if s.execute(
        sql,
        &[until.into(), tenant.into(), (&new.input).into(), now.into()],
    )
    .await?
        == 0
    {
        return Err(StoreError::NotFound);
    }
    let sql = "SELECT COUNT(*) FROM samewire_batches WHERE tenant = $1 AND status < 3";
    if s.one(sql, &[tenant.into()]).await?.count(0)? >= *most {
        return Err(StoreError::TooMany);
    }
    let sql = format!(
        "INSERT INTO samewire_batches ({BATCH}, lease, gone) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, \
         $12, $13, $14, $15, $16, $17, $18) ON CONFLICT (tenant, id) DO NOTHING"
    );
    let values = [
        tenant.into(),
        (&new.key.id).into(),
        (new.status as i64).into(),
        new.created.into(),
        new.expires.into(),
        new.cancel.into(),
        (&new.owner).into(),
        new.term.into(),
        new.version.into(),
        (&new.caller).into(),
        (&new.input).into(),
        (&new.output).into(),
        (&new.errors).into(),
        new.cursor.into(),
        (&new.ahead).into(),
        (&new.facts).into(),
        0_u64.into(),
        Millis::MAX.into(),
    ];
    if s.execute(&sql, &values).await? == 0 {
        Err(StoreError::Conflict)
    } else {
        Ok(())
    }
}

pub(in crate::store) async fn delete_batch<S: Sql>(s: &mut S, key: &Key) -> Stored {
    let sql = "DELETE FROM samewire_batches WHERE tenant = $1 AND id = $2 RETURNING output_file, error_file";
    let row = s
        .one(sql, &[(&key.tenant).into(), (&key.id).into()])
        .await?;
    let sql =
        "UPDATE samewire_files SET state = 2, expires = 0 WHERE tenant = $1 AND id IN ($2, $3)";
    let (output, errors) = (row.text(0)?, row.text(1)?);
    s.later(
        sql,
        &[(&key.tenant).into(), (&output).into(), (&errors).into()],
    )
    .await
}

/// Reads a batch. `lock`: the suffix that locks its row, or nothing.
async fn read_batch<S: Sql>(s: &mut S, key: &Key, now: Millis, lock: &str) -> Stored<Batch> {
    let sql = format!(
        "SELECT {BATCH} FROM samewire_batches WHERE tenant = $1 AND id = $2 AND gone > $3{lock}"
    );
    s.one(&sql, &[(&key.tenant).into(), (&key.id).into(), now.into()])
        .await?
        .batch()
}

pub(in crate::store) async fn batch<S: Sql>(s: &mut S, key: &Key, now: &Millis) -> Stored<Batch> {
    read_batch(s, key, *now, "").await
}

pub(in crate::store) async fn batches<S: Sql>(
    s: &mut S,
    tenant: &Arc<str>,
    range: &PageRequest,
    now: &Millis,
) -> Stored<Vec<Batch>> {
    let (condition, more) = after(s, "samewire_batches", tenant, range, 2).await?;
    let mut values: Vec<SqlValue> = vec![tenant.into(), now.into()];
    values.extend(more);
    values.push((range.limit as u64).into());
    let order = if range.descending { "DESC" } else { "ASC" };
    let sql = format!(
        "SELECT {BATCH} FROM samewire_batches WHERE tenant = $1 AND gone > $2{condition} \
         ORDER BY created {order}, id {order} LIMIT ${}",
        values.len()
    );
    s.query(&sql, &values)
        .await?
        .iter()
        .map(SqlRow::batch)
        .collect()
}

pub(in crate::store) async fn cancel_batch<S: Sql>(
    s: &mut S,
    key: &Key,
    now: &Millis,
) -> Stored<Batch> {
    let found = read_batch(s, key, *now, S::LOCK).await?;
    if found.status.is_terminal() || found.cancel > 0 {
        return Ok(found);
    }
    let sql = "UPDATE samewire_batches SET cancel = $1 WHERE tenant = $2 AND id = $3";
    s.later(sql, &[now.into(), (&key.tenant).into(), (&key.id).into()])
        .await?;
    Ok(Batch {
        cancel: *now,
        ..found
    })
}

/// Leaves out a batch that somebody is writing to: it is claimed later, and holds no other up.
pub(in crate::store) async fn claim_batches<S: Sql>(
    s: &mut S,
    owner: &Arc<str>,
    limit: &usize,
    now: &Millis,
) -> Stored<Vec<Batch>> {
    let sql = format!(
        "WITH free AS (SELECT tenant, id FROM samewire_batches WHERE status < 3 AND lease <= $1 \
         ORDER BY created, tenant, id LIMIT $2{}) UPDATE samewire_batches SET owner = $3, term = term + 1, lease = $4 \
         WHERE (tenant, id) IN (SELECT tenant, id FROM free) RETURNING {BATCH}",
        S::LOCK_FREE
    );
    let lease = now.saturating_add(s.caps().lease);
    let values = [
        now.into(),
        (*limit as u64).into(),
        owner.into(),
        lease.into(),
    ];
    s.query(&sql, &values)
        .await?
        .iter()
        .map(SqlRow::batch)
        .collect()
}

pub(in crate::store) async fn renew_batches<S: Sql>(
    s: &mut S,
    owner: &Arc<str>,
    now: &Millis,
) -> Stored<Vec<Owned>> {
    // A batch that somebody is writing to does not hold up the others; each of its owner's writes renews its lease.
    let sql = format!(
        "WITH own AS (SELECT tenant, id FROM samewire_batches WHERE status < 3 AND owner = $1{}) \
         UPDATE samewire_batches SET lease = $2 WHERE (tenant, id) IN (SELECT tenant, id FROM own)",
        S::LOCK_FREE
    );
    s.later(
        &sql,
        &[owner.into(), now.saturating_add(s.caps().lease).into()],
    )
    .await?;
    let sql =
        "SELECT tenant, id, term, cancel FROM samewire_batches WHERE status < 3 AND owner = $1";
    let rows = s.query(sql, &[owner.into()]).await?;
    rows.iter().map(SqlRow::owned).collect()
}

pub(in crate::store) async fn release_batch<S: Sql>(s: &mut S, key: &Key, term: &u64) -> Stored {
    let sql = "UPDATE samewire_batches SET lease = 0, owner = '' \
               WHERE tenant = $1 AND id = $2 AND term = $3 AND status < 3";
    s.later(sql, &[(&key.tenant).into(), (&key.id).into(), term.into()])
        .await
}

pub(in crate::store) async fn advance_batch<S: Sql>(
    s: &mut S,
    key: &Key,
    term: &u64,
    step: &BatchStep,
    limits: &FileLimits,
    now: &Millis,
) -> Stored<BatchStatus> {
    let found = read_batch(s, key, *now, S::LOCK).await?;
    if !step.follows(&found, *term)? {
        return Ok(found.status);
    }
    let status = step.status_of(&found);
    let file = |id: &Arc<str>| Key {
        tenant: key.tenant.clone(),
        id: id.clone(),
    };
    for (id, lines) in step.results(&found) {
        append_results(s, &file(id), lines, (limits, *now)).await?;
    }
    let gone = if status.is_terminal() {
        step.gone
    } else {
        Millis::MAX
    };
    let sql = "UPDATE samewire_batches SET status = $1, version = $2, line_cursor = $3, ahead = $4, facts = $5, \
               gone = $6, lease = $7 WHERE tenant = $8 AND id = $9";
    let values = [
        (status as i64).into(),
        step.version.into(),
        step.cursor.into(),
        (&step.ahead).into(),
        (&step.facts).into(),
        gone.into(),
        now.saturating_add(s.caps().lease).into(),
        (&key.tenant).into(),
        (&key.id).into(),
    ];
    s.later(sql, &values).await?;
    if status.is_terminal() {
        for id in [&found.output, &found.errors] {
            complete(s, &file(id), FilePurpose::BatchOutput, step.files_gone).await?;
        }
    }
    Ok(status)
}
