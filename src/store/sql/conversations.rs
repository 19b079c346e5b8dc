//! Operations on conversations, which [`Store`](crate::store::Store) documents. A conversation is a record in the state
//! `Completed`; its items have a side of their own.

use super::{
    Sql, WeightChange, create, finish, head, insert_items, insert_record, make_room, owned, page,
    record, remove, state,
};
use crate::store::record::{
    Conversation, FinalState, Item, Json, Key, Kind, Millis, NewResponse, Page, PageRequest, Side,
    StoreError, Stored, StoredResponse, weight_of_items, without_known,
};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(in crate::store) async fn create_conversation<S: Sql>(
    s: &mut S,
    key: &Key,
    metadata: &Json,
    items: &[Item],
    now: &Millis,
) -> Stored {
    let items = without_known(items, |_| false);
    let record = StoredResponse::conversation(key, metadata, &items, s.caps(), *now);
    insert_record(s, &record, Kind::Conversation).await?;
    insert_items(s, key, Side::Conversation, 0, &items).await?;
    make_room(s, key, WeightChange::new(0, record.bytes)).await
}

pub(in crate::store) async fn conversation<S: Sql>(
    s: &mut S,
    key: &Key,
    now: &Millis,
) -> Stored<Conversation> {
    let record = record(s, key, Kind::Conversation, *now).await?;
    Ok(Conversation {
        key: record.key,
        created: record.created,
        metadata: record.response,
    })
}

/// Updates the weight and the age of a conversation after a change.
async fn renew<S: Sql>(s: &mut S, key: &Key, change: WeightChange, now: Millis) -> Stored {
    let sql = "UPDATE samewire_records SET bytes = $1, touched = $2, expires = $3 WHERE tenant = $4 AND id = $5";
    let values = [
        change.after.into(),
        now.into(),
        now.saturating_add(s.caps().ttl).into(),
        (&key.tenant).into(),
        (&key.id).into(),
    ];
    s.later(sql, &values).await?;
    make_room(s, key, change).await
}

pub(in crate::store) async fn update_conversation<S: Sql>(
    s: &mut S,
    key: &Key,
    metadata: &Json,
    now: &Millis,
) -> Stored {
    let head = head(s, key, Kind::Conversation, *now).await?;
    let sql = "UPDATE samewire_records SET response = $1 WHERE tenant = $2 AND id = $3";
    s.later(
        sql,
        &[metadata.into(), (&key.tenant).into(), (&key.id).into()],
    )
    .await?;
    let bytes = head.bytes.saturating_sub(head.response) + metadata.len() as u64;
    renew(s, key, WeightChange::new(head.bytes, bytes), *now).await
}

pub(in crate::store) async fn delete_conversation<S: Sql>(
    s: &mut S,
    key: &Key,
    now: &Millis,
) -> Stored {
    remove(s, key, Kind::Conversation, *now).await
}

pub(in crate::store) async fn add_items<S: Sql>(
    s: &mut S,
    key: &Key,
    items: &[Item],
    now: &Millis,
) -> Stored {
    let head = head(s, key, Kind::Conversation, *now).await?;
    let sql = "SELECT id, place FROM samewire_items WHERE tenant = $1 AND holder = $2 AND side = 1 ORDER BY place";
    let rows = s
        .query(sql, &[(&key.tenant).into(), (&key.id).into()])
        .await?;
    let known = rows
        .iter()
        .map(|row| row.text(0))
        .collect::<Result<BTreeSet<_>, _>>()?;
    let next = rows
        .last()
        .map_or(Ok(0), |row| row.count(1).map(|place| place + 1))?;
    let fresh = without_known(items, |id| known.contains(id));
    insert_items(s, key, Side::Conversation, next, &fresh).await?;
    let bytes = head.bytes + weight_of_items(&fresh);
    renew(s, key, WeightChange::new(head.bytes, bytes), *now).await
}

pub(in crate::store) async fn create_in<S: Sql>(
    s: &mut S,
    conversation: &Arc<str>,
    new: &NewResponse,
    now: &Millis,
) -> Stored {
    let key = Key {
        tenant: new.key.tenant.clone(),
        id: conversation.clone(),
    };
    // The items come first, so that room for the response is not made by evicting the conversation.
    let items = [&*new.input, &*new.output].concat();
    add_items(s, &key, &items, now)
        .await
        .map_err(StoreError::of_conversation)?;
    create(s, new, now).await?;
    state(s, &key, Kind::Conversation, *now)
        .await
        .map(drop)
        .map_err(StoreError::of_conversation)
}

pub(in crate::store) async fn finish_in<S: Sql>(
    s: &mut S,
    conversation: &Arc<str>,
    key: &Key,
    term: &u64,
    end: &FinalState,
    now: &Millis,
) -> Stored {
    if owned(s, key, *term, *now).await?.state.is_terminal() {
        return finish(s, key, term, end, now).await;
    }
    let sql = "SELECT id, body FROM samewire_items WHERE tenant = $1 AND holder = $2 AND side = 2 ORDER BY place";
    let rows = s
        .query(sql, &[(&key.tenant).into(), (&key.id).into()])
        .await?;
    let mut items = rows
        .iter()
        .map(|row| row.item(0))
        .collect::<Result<Vec<_>, _>>()?;
    items.extend_from_slice(&end.output);
    let conversation = Key {
        tenant: key.tenant.clone(),
        id: conversation.clone(),
    };
    add_items(s, &conversation, &items, now)
        .await
        .map_err(StoreError::of_conversation)?;
    finish(s, key, term, end, now).await?;
    state(s, &conversation, Kind::Conversation, *now)
        .await
        .map(drop)
        .map_err(StoreError::of_conversation)
}

pub(in crate::store) async fn transcript<S: Sql>(
    s: &mut S,
    key: &Key,
    bytes: &u64,
    now: &Millis,
) -> Stored<Vec<Item>> {
    state(s, key, Kind::Conversation, *now).await?;
    let of = "FROM samewire_items WHERE tenant = $1 AND holder = $2 AND side = 1";
    let named = [(&key.tenant).into(), (&key.id).into()];
    // The size is checked before anything is fetched.
    let sql = format!("SELECT CAST(COALESCE(SUM(octet_length(body)), 0) AS BIGINT) {of}");
    if s.one(&sql, &named).await?.count(0)? > *bytes {
        return Err(StoreError::Full);
    }
    let rows = s
        .query(&format!("SELECT id, body {of} ORDER BY place"), &named)
        .await?;
    rows.iter().map(|row| row.item(0)).collect()
}

pub(in crate::store) async fn conversation_items<S: Sql>(
    s: &mut S,
    key: &Key,
    range: &PageRequest,
    now: &Millis,
) -> Stored<Page> {
    state(s, key, Kind::Conversation, *now).await?;
    page(s, key, Side::Conversation, range).await
}

pub(in crate::store) async fn conversation_item<S: Sql>(
    s: &mut S,
    key: &Key,
    id: &Arc<str>,
    now: &Millis,
) -> Stored<Item> {
    state(s, key, Kind::Conversation, *now).await?;
    let sql = "SELECT id, body FROM samewire_items WHERE tenant = $1 AND holder = $2 AND side = 1 AND id = $3";
    s.one(sql, &[(&key.tenant).into(), (&key.id).into(), id.into()])
        .await?
        .item(0)
}

pub(in crate::store) async fn delete_item<S: Sql>(
    s: &mut S,
    key: &Key,
    id: &Arc<str>,
    now: &Millis,
) -> Stored {
    let head = head(s, key, Kind::Conversation, *now).await?;
    let sql = "DELETE FROM samewire_items WHERE tenant = $1 AND holder = $2 AND side = 1 AND id = $3 \
               RETURNING id, body";
    let item = s
        .one(sql, &[(&key.tenant).into(), (&key.id).into(), id.into()])
        .await?
        .item(0)?;
    let bytes = head.bytes.saturating_sub(weight_of_items(&[item]));
    renew(s, key, WeightChange::new(head.bytes, bytes), *now).await
}
