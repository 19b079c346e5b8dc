//! Operations on the ownership of running responses: cancellation, heartbeats, and take-over.

use super::{RECORD, Row, Sql, head, owned, state};
use crate::store::record::{Error, Key, Kind, Millis, Record, Running, State};
use std::sync::Arc;

pub(in crate::store) async fn request_cancel<S: Sql>(
    s: &mut S,
    key: &Key,
    now: &Millis,
) -> Result<State, Error> {
    let head = head(s, key, Kind::Response, *now).await?;
    if !head.state.is_terminal() {
        let sql = "UPDATE samewire_records SET cancel = 1 WHERE tenant = $1 AND id = $2";
        s.later(sql, &[(&key.tenant).into(), (&key.id).into()]).await?;
    }
    Ok(head.state)
}

pub(in crate::store) async fn is_cancel_requested<S: Sql>(
    s: &mut S,
    key: &Key,
    now: &Millis,
) -> Result<bool, Error> {
    Ok(state(s, key, Kind::Response, *now).await?.int(2)? != 0)
}

pub(in crate::store) async fn running<S: Sql>(s: &mut S, owner: &Arc<str>) -> Result<Vec<Running>, Error> {
    let sql = "SELECT tenant, id, term, cancel FROM samewire_records WHERE state < 2 AND owner = $1 \
               ORDER BY tenant, id";
    let running = |row: &Row| {
        let key = Key { tenant: row.text(0)?, id: row.text(1)? };
        Ok(Running { key, term: row.count(2)?, cancel: row.int(3)? != 0 })
    };
    s.query(sql, &[owner.into()]).await?.iter().map(running).collect()
}

pub(in crate::store) async fn heartbeat<S: Sql>(
    s: &mut S,
    owner: &Arc<str>,
    now: &Millis,
) -> Result<u64, Error> {
    // A response that somebody is writing to does not hold up the others; its owner's events renew its lease.
    let sql = format!(
        "WITH own AS (SELECT tenant, id FROM samewire_records WHERE state < 2 AND owner = $1{}) \
         UPDATE samewire_records SET lease = $2 WHERE (tenant, id) IN (SELECT tenant, id FROM own)",
        S::LOCK_FREE
    );
    s.execute(&sql, &[owner.into(), now.saturating_add(s.caps().lease).into()]).await
}

/// Leaves out a response that somebody is writing to: it is taken over later, and holds no other up.
pub(in crate::store) async fn orphans<S: Sql>(
    s: &mut S,
    owner: &Arc<str>,
    limit: &usize,
    now: &Millis,
) -> Result<Vec<Record>, Error> {
    let sql = format!(
        "WITH free AS (SELECT tenant, id FROM samewire_records WHERE state < 2 AND lease <= $1 \
         ORDER BY lease, tenant, id LIMIT $2{}) UPDATE samewire_records SET owner = $3, term = term + 1, lease = $4 \
         WHERE (tenant, id) IN (SELECT tenant, id FROM free) RETURNING {RECORD}",
        S::LOCK_FREE
    );
    let values =
        [now.into(), (*limit as u64).into(), owner.into(), now.saturating_add(s.caps().lease).into()];
    let rows = s.query(&sql, &values).await?;
    let mut records = rows.iter().map(Row::record).collect::<Result<Vec<_>, _>>()?;
    records.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(records)
}

pub(in crate::store) async fn take_over<S: Sql>(
    s: &mut S,
    key: &Key,
    term: &u64,
    owner: &Arc<str>,
    now: &Millis,
) -> Result<Record, Error> {
    if owned(s, key, *term, *now).await?.state.is_terminal() {
        return Err(Error::Conflict);
    }
    let sql = format!(
        "UPDATE samewire_records SET owner = $1, term = term + 1, lease = $2 WHERE tenant = $3 AND id = $4 \
         RETURNING {RECORD}"
    );
    let values =
        [owner.into(), now.saturating_add(s.caps().lease).into(), (&key.tenant).into(), (&key.id).into()];
    s.query(&sql, &values).await?.first().ok_or(Error::NotFound)?.record()
}
