//! Operations on the ownership of running responses: cancellation, heartbeats, and take-over.

use super::{RECORD, Sql, SqlRow, head, owned};
use crate::store::record::{Key, Kind, Millis, Owned, State, StoreError, Stored, StoredResponse};
use std::sync::Arc;

pub(in crate::store) async fn request_cancel<S: Sql>(
    s: &mut S,
    key: &Key,
    now: &Millis,
) -> Stored<State> {
    let head = head(s, key, Kind::Response, *now).await?;
    if !head.state.is_terminal() {
        let sql = "UPDATE samewire_records SET cancel = 1 WHERE tenant = $1 AND id = $2";
        s.later(sql, &[(&key.tenant).into(), (&key.id).into()])
            .await?;
    }
    Ok(head.state)
}

pub(in crate::store) async fn running<S: Sql>(s: &mut S, owner: &Arc<str>) -> Stored<Vec<Owned>> {
    let sql = "SELECT tenant, id, term, cancel FROM samewire_records WHERE state < 2 AND owner = $1 \
               ORDER BY tenant, id";
    s.query(sql, &[owner.into()])
        .await?
        .iter()
        .map(SqlRow::owned)
        .collect()
}

pub(in crate::store) async fn heartbeat<S: Sql>(
    s: &mut S,
    owner: &Arc<str>,
    now: &Millis,
) -> Stored<u64> {
    // A response that somebody is writing to does not hold up the others; its owner's events renew its lease.
    let sql = format!(
        "WITH own AS (SELECT tenant, id FROM samewire_records WHERE state < 2 AND owner = $1{}) \
         UPDATE samewire_records SET lease = $2 WHERE (tenant, id) IN (SELECT tenant, id FROM own)",
        S::LOCK_FREE
    );
    s.execute(
        &sql,
        &[owner.into(), now.saturating_add(s.caps().lease).into()],
    )
    .await
}

/// Leaves out a response that somebody is writing to: it is taken over later, and holds no other up.
pub(in crate::store) async fn orphans<S: Sql>(
    s: &mut S,
    owner: &Arc<str>,
    limit: &usize,
    now: &Millis,
) -> Stored<Vec<StoredResponse>> {
    let sql = format!(
        "WITH free AS (SELECT tenant, id FROM samewire_records WHERE state < 2 AND lease <= $1 \
         ORDER BY lease, tenant, id LIMIT $2{}) UPDATE samewire_records SET owner = $3, term = term + 1, lease = $4 \
         WHERE (tenant, id) IN (SELECT tenant, id FROM free) RETURNING {RECORD}",
        S::LOCK_FREE
    );
    let values = [
        now.into(),
        (*limit as u64).into(),
        owner.into(),
        now.saturating_add(s.caps().lease).into(),
    ];
    let rows = s.query(&sql, &values).await?;
    let mut records = rows
        .iter()
        .map(SqlRow::record)
        .collect::<Result<Vec<_>, _>>()?;
    records.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(records)
}

pub(in crate::store) async fn take_over<S: Sql>(
    s: &mut S,
    key: &Key,
    term: &u64,
    owner: &Arc<str>,
    now: &Millis,
) -> Stored<StoredResponse> {
    if owned(s, key, *term, *now).await?.state.is_terminal() {
        return Err(StoreError::Conflict);
    }
    let sql = format!(
        "UPDATE samewire_records SET owner = $1, term = term + 1, lease = $2 WHERE tenant = $3 AND id = $4 \
         RETURNING {RECORD}"
    );
    let values = [
        owner.into(),
        now.saturating_add(s.caps().lease).into(),
        (&key.tenant).into(),
        (&key.id).into(),
    ];
    s.one(&sql, &values).await?.record()
}
