//! Operation on the key that seals text.

use super::Sql;
use crate::store::record::{StoreError, Stored};
use std::sync::Arc;

/// Stores the key unless there is one, and returns the one that is stored. It is read first, so that a store which
/// has one answers even if its disk is full. Of several first callers, one stores its key and the others wait for it.
pub(in crate::store) async fn seal_key<S: Sql>(s: &mut S, key: &Arc<str>) -> Stored<Arc<str>> {
    let stored = "SELECT body FROM samewire_seal_keys WHERE id = $1";
    let id: Arc<str> = "store".into();
    if let Some(row) = s.query(stored, &[(&id).into()]).await?.first() {
        return row.text(0);
    }
    let insert =
        "INSERT INTO samewire_seal_keys (id, body) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";
    s.execute(insert, &[(&id).into(), key.into()]).await?;
    let rows = s.query(stored, &[(&id).into()]).await?;
    rows.first()
        .ok_or_else(|| StoreError::unavailable("there is no seal key"))?
        .text(0)
}
