//! Operations on responses, their input items and their events.

use super::{
    ROWS, Sql, SqlValue, WeightChange, insert_events, insert_items, insert_record, make_room,
    owned, page, placeholders, record, remove, state,
};
use crate::store::record::{
    FinalState, Item, Json, Key, Kind, LINKS, Millis, NewResponse, Page, PageRequest, Side, State,
    StoreError, Stored, StoredEvents, StoredReplay, StoredResponse, weight_of_events,
    weight_of_items,
};
use std::sync::Arc;

pub(in crate::store) async fn create<S: Sql>(s: &mut S, new: &NewResponse, now: &Millis) -> Stored {
    let record = StoredResponse::first(new, s.caps(), *now);
    insert_record(s, &record, Kind::Response).await?;
    insert_items(s, &new.key, Side::Input, 0, &new.input).await?;
    insert_items(s, &new.key, Side::Output, 0, &new.output).await?;
    make_room(s, &new.key, WeightChange::new(0, record.bytes)).await
}

pub(in crate::store) async fn start<S: Sql>(
    s: &mut S,
    key: &Key,
    term: &u64,
    response: &Json,
    now: &Millis,
) -> Stored {
    let head = owned(s, key, *term, *now).await?;
    match head.state {
        State::Queued => {}
        State::InProgress => return Ok(()),
        _ => return Err(StoreError::Conflict),
    }
    let bytes = head.bytes.saturating_sub(head.response) + response.len() as u64;
    let sql = "UPDATE samewire_records SET state = 1, response = $1, bytes = $2, touched = $3 \
               WHERE tenant = $4 AND id = $5";
    let values = [
        response.into(),
        bytes.into(),
        now.into(),
        (&key.tenant).into(),
        (&key.id).into(),
    ];
    s.later(sql, &values).await?;
    make_room(s, key, WeightChange::new(head.bytes, bytes)).await
}

pub(in crate::store) async fn append_events<S: Sql>(
    s: &mut S,
    key: &Key,
    term: &u64,
    events: &StoredEvents,
    now: &Millis,
) -> Stored {
    let head = owned(s, key, *term, *now).await?;
    if head.state.is_terminal() {
        return Err(StoreError::Conflict);
    }
    let fresh = events.fresh(head.events)?;
    let bytes = head.bytes + weight_of_events(fresh);
    insert_events(s, key, head.events, fresh).await?;
    let sql = "UPDATE samewire_records SET events = $1, bytes = $2, lease = $3 WHERE tenant = $4 AND id = $5";
    let (total, lease) = (
        head.events + fresh.len() as u64,
        now.saturating_add(s.caps().lease),
    );
    let values = [
        total.into(),
        bytes.into(),
        lease.into(),
        (&key.tenant).into(),
        (&key.id).into(),
    ];
    s.later(sql, &values).await?;
    make_room(s, key, WeightChange::new(head.bytes, bytes)).await
}

pub(in crate::store) async fn finish<S: Sql>(
    s: &mut S,
    key: &Key,
    term: &u64,
    finish: &FinalState,
    now: &Millis,
) -> Stored {
    let head = owned(s, key, *term, *now).await?;
    if head.state.is_terminal() {
        let same =
            head.state == finish.state && get(s, key, now).await?.response == finish.response;
        return if same {
            Ok(())
        } else {
            Err(StoreError::Conflict)
        };
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
    make_room(
        s,
        key,
        WeightChange {
            closing: true,
            ..WeightChange::new(head.bytes, bytes)
        },
    )
    .await
}

pub(in crate::store) async fn get<S: Sql>(
    s: &mut S,
    key: &Key,
    now: &Millis,
) -> Stored<StoredResponse> {
    record(s, key, Kind::Response, *now).await
}

pub(in crate::store) async fn delete<S: Sql>(s: &mut S, key: &Key, now: &Millis) -> Stored {
    remove(s, key, Kind::Response, *now).await
}

pub(in crate::store) async fn input_items<S: Sql>(
    s: &mut S,
    key: &Key,
    range: &PageRequest,
    now: &Millis,
) -> Stored<Page> {
    state(s, key, Kind::Response, *now).await?;
    page(s, key, Side::Input, range).await
}

pub(in crate::store) async fn events_after<S: Sql>(
    s: &mut S,
    key: &Key,
    after: &Option<u64>,
    limit: &usize,
    now: &Millis,
) -> Stored<StoredReplay> {
    let row = state(s, key, Kind::Response, *now).await?;
    let (state, total) = (row.state(0)?, row.count(1)?);
    let from = after.map_or(0, |after| after.saturating_add(1));
    // Reads up to the total that was just read: events that another replica adds meanwhile come with the next call.
    let sql = "SELECT body FROM samewire_events WHERE tenant = $1 AND holder = $2 AND seq >= $3 AND seq < $4 \
               ORDER BY seq LIMIT $5";
    let values = [
        (&key.tenant).into(),
        (&key.id).into(),
        from.into(),
        total.into(),
        (*limit as u64).into(),
    ];
    let rows = s.query(sql, &values).await?;
    let bodies = rows
        .iter()
        .map(|row| row.text(0))
        .collect::<Result<_, _>>()?;
    Ok(StoredReplay {
        events: StoredEvents { from, bodies },
        total,
        state,
    })
}

/// Reads a response and its ancestors, youngest first.
async fn links<S: Sql>(s: &mut S, key: &Key, now: Millis) -> Stored<Vec<Arc<str>>> {
    let sql = "WITH RECURSIVE links (id, previous, state, expires, conversation, depth) AS (
        SELECT id, previous, state, expires, conversation, CAST(1 AS BIGINT) FROM samewire_records
        WHERE tenant = $1 AND id = $2 AND kind = 0
        UNION ALL
        SELECT older.id, older.previous, older.state, older.expires, older.conversation, links.depth + 1
        FROM samewire_records AS older JOIN links ON older.id = links.previous
        WHERE older.tenant = $1 AND older.kind = 0 AND links.depth <= $3)
        SELECT id, previous, state, expires, conversation FROM links ORDER BY depth";
    let values = [
        (&key.tenant).into(),
        (&key.id).into(),
        SqlValue::from(LINKS as u64),
    ];
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
            let of = Key {
                tenant: Arc::clone(&key.tenant),
                id,
            };
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
    if previous.is_some() {
        Err(StoreError::NotFound)
    } else {
        Ok(ids)
    }
}

pub(in crate::store) async fn chain<S: Sql>(
    s: &mut S,
    key: &Key,
    bytes: &u64,
    now: &Millis,
) -> Stored<Vec<Item>> {
    let mut ids = links(s, key, *now).await?;
    ids.reverse();
    let mut weight = 0;
    let mut items = Vec::new();
    for ids in ids.chunks(ROWS) {
        // Some ids are repeated, so that few different statements have to be prepared.
        let again = ids.iter().cycle().take(ids.len().next_power_of_two());
        let named: Vec<SqlValue> = std::iter::once(&key.tenant)
            .chain(again)
            .map(SqlValue::from)
            .collect();
        let of = format!(
            "FROM samewire_items WHERE tenant = $1 AND holder IN ({})",
            placeholders(named.len())
        );
        // The size is checked before anything is fetched.
        let sql = format!("SELECT CAST(COALESCE(SUM(octet_length(body)), 0) AS BIGINT) {of}");
        weight += s.one(&sql, &named).await?.count(0)?;
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

pub(in crate::store) async fn refresh<S: Sql>(s: &mut S, key: &Key, now: &Millis) -> Stored {
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

pub(in crate::store) async fn resolve<S: Sql>(
    s: &mut S,
    tenant: &Arc<str>,
    ids: &[Arc<str>],
    now: &Millis,
) -> Stored<Vec<Option<Item>>> {
    let sql = "SELECT i.id, i.body FROM samewire_items AS i \
               JOIN samewire_records AS r ON r.tenant = i.tenant AND r.id = i.holder \
               WHERE i.tenant = $1 AND i.id = $2 AND (r.state < 2 OR r.expires > $3) \
               ORDER BY i.side, i.holder, i.place LIMIT 1";
    let mut items = Vec::with_capacity(ids.len());
    for id in ids {
        let rows = s
            .query(sql, &[tenant.into(), id.into(), now.into()])
            .await?;
        items.push(rows.first().map(|row| row.item(0)).transpose()?);
    }
    Ok(items)
}
