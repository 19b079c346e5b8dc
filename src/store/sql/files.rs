//! Operations on files. The chunks of a deleted file are removed a few at a time, so that no transaction is long.

use super::{Sql, SqlRow, SqlValue};
use crate::store::batches::{
    ABANDONED, FileChunk, FileLimits, FilePurpose, FileState, FileUse, NewFile, ResultLines,
    StoredFile,
};
use crate::store::record::{Key, Millis, PageRequest, StoreError, Stored};
use std::sync::Arc;

const FILE: &str = "tenant, id, purpose, name, created, expires, bytes, line_count, chunks";

/// Files that one sweep looks at, the chunks of each that it removes, and the bytes of all of them: more would take
/// longer than an operation may.
const SWEPT: (u64, u64, u64) = (8, 16, 16 << 20);

impl SqlRow {
    /// Reads the columns of [`FILE`].
    fn file(&self) -> Stored<StoredFile> {
        Ok(StoredFile {
            key: Key {
                tenant: self.text(0)?,
                id: self.text(1)?,
            },
            purpose: FilePurpose::of(self.int(2)?),
            name: self.text(3)?,
            created: self.count(4)?,
            expires: self.count(5)?,
            bytes: self.count(6)?,
            lines: self.count(7)?,
            chunks: self.count(8)?,
        })
    }

    fn chunk(&self) -> Stored<FileChunk> {
        Ok(FileChunk {
            place: self.count(0)?,
            first: self.count(1)?,
            lines: self.count(2)?,
            body: self.text(3)?,
        })
    }
}

/// Checks that a tenant may store more. Deleted files count until their chunks are removed.
async fn check_room<S: Sql>(
    s: &mut S,
    tenant: &Arc<str>,
    limits: &FileLimits,
    files: u64,
    bytes: u64,
) -> Stored {
    let sql = "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT), \
               CAST(COALESCE(SUM(CASE WHEN tenant = $1 THEN bytes ELSE 0 END), 0) AS BIGINT), \
               CAST(COALESCE(SUM(CASE WHEN tenant = $1 THEN 1 ELSE 0 END), 0) AS BIGINT) FROM samewire_files";
    let row = s.one(sql, &[tenant.into()]).await?;
    let used = FileUse {
        total_bytes: row.count(0)?,
        tenant_bytes: row.count(1)?,
        tenant_files: row.count(2)?,
    };
    limits.check(&used, files, bytes)
}

async fn insert_file<S: Sql>(
    s: &mut S,
    key: &Key,
    (purpose, name): (FilePurpose, &Arc<str>),
    (created, expires): (Millis, Millis),
) -> Stored<u64> {
    let sql = "INSERT INTO samewire_files (tenant, id, purpose, state, name, created, expires, bytes, line_count, \
               chunks) VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, 0) ON CONFLICT (tenant, id) DO NOTHING";
    let values = [
        (&key.tenant).into(),
        (&key.id).into(),
        (purpose as i64).into(),
        (FileState::Writing as i64).into(),
        name.into(),
        created.into(),
        expires.into(),
    ];
    s.execute(sql, &values).await
}

pub(in crate::store) async fn create_file<S: Sql>(
    s: &mut S,
    new: &NewFile,
    limits: &FileLimits,
    now: &Millis,
) -> Stored {
    check_room(s, &new.key.tenant, limits, 1, 0).await?;
    let times = (*now, now.saturating_add(ABANDONED));
    match insert_file(s, &new.key, (FilePurpose::Batch, &new.name), times).await? {
        0 => Err(StoreError::Conflict),
        _ => Ok(()),
    }
}

/// Adds a chunk to a file that is being written.
async fn append<S: Sql>(s: &mut S, key: &Key, chunk: &FileChunk) -> Stored {
    let sql = "INSERT INTO samewire_chunks (tenant, holder, place, first_line, line_count, body) \
               VALUES ($1, $2, $3, $4, $5, $6)";
    let values = [
        (&key.tenant).into(),
        (&key.id).into(),
        chunk.place.into(),
        chunk.first.into(),
        chunk.lines.into(),
        (&chunk.body).into(),
    ];
    s.later(sql, &values).await?;
    let sql = "UPDATE samewire_files SET chunks = $1, bytes = bytes + $2, line_count = line_count + $3 \
               WHERE tenant = $4 AND id = $5";
    let bytes = chunk.body.len() as u64;
    let values = [
        (chunk.place + 1).into(),
        bytes.into(),
        chunk.lines.into(),
        (&key.tenant).into(),
        (&key.id).into(),
    ];
    s.later(sql, &values).await?;
    s.will_write(bytes);
    Ok(())
}

/// Reads the chunks and lines that a file has, and locks its row. Fails if it is not being written.
async fn written<S: Sql>(s: &mut S, key: &Key) -> Stored<(u64, u64)> {
    let sql = format!(
        "SELECT state, chunks, line_count FROM samewire_files WHERE tenant = $1 AND id = $2{}",
        S::LOCK
    );
    let row = s
        .one(&sql, &[(&key.tenant).into(), (&key.id).into()])
        .await?;
    let is_writing = row.int(0)? == FileState::Writing as i64;
    if is_writing {
        Ok((row.count(1)?, row.count(2)?))
    } else {
        Err(StoreError::Conflict)
    }
}

pub(in crate::store) async fn append_chunk<S: Sql>(
    s: &mut S,
    key: &Key,
    chunk: &FileChunk,
    limits: &FileLimits,
    now: &Millis,
) -> Stored {
    let (chunks, _) = written(s, key).await?;
    if chunk.place != chunks {
        return if chunk.place < chunks {
            Ok(())
        } else {
            Err(StoreError::Conflict)
        };
    }
    check_room(s, &key.tenant, limits, 0, chunk.body.len() as u64).await?;
    append(s, key, chunk).await?;
    let sql = "UPDATE samewire_files SET expires = $1 WHERE tenant = $2 AND id = $3";
    let values = [
        now.saturating_add(ABANDONED).into(),
        (&key.tenant).into(),
        (&key.id).into(),
    ];
    s.later(sql, &values).await
}

/// Adds lines to a file of results, which is created with its first ones.
pub(super) async fn append_results<S: Sql>(
    s: &mut S,
    key: &Key,
    lines: &ResultLines,
    (limits, now): (&FileLimits, Millis),
) -> Stored {
    if lines.count == 0 {
        return Ok(());
    }
    check_room(
        s,
        &key.tenant,
        &FileLimits {
            tenant_files: u64::MAX,
            ..*limits
        },
        0,
        lines.text.len() as u64,
    )
    .await?;
    let name = format!("{}.jsonl", key.id).into();
    insert_file(
        s,
        key,
        (FilePurpose::BatchOutput, &name),
        (now, Millis::MAX),
    )
    .await?;
    let (place, first) = written(s, key).await?;
    append(
        s,
        key,
        &FileChunk {
            place,
            first,
            lines: lines.count,
            body: lines.text.as_str().into(),
        },
    )
    .await
}

/// Makes a file visible, if it is there and was not before.
pub(super) async fn complete<S: Sql>(
    s: &mut S,
    key: &Key,
    purpose: FilePurpose,
    expires: Millis,
) -> Stored<u64> {
    let sql = "UPDATE samewire_files SET state = 1, expires = $1, purpose = $2 \
               WHERE tenant = $3 AND id = $4 AND state < 2";
    let values = [
        expires.into(),
        (purpose as u64).into(),
        (&key.tenant).into(),
        (&key.id).into(),
    ];
    s.execute(sql, &values).await
}

pub(in crate::store) async fn finish_file<S: Sql>(
    s: &mut S,
    key: &Key,
    purpose: &FilePurpose,
    expires: &Millis,
) -> Stored {
    if complete(s, key, *purpose, *expires).await? == 0 {
        Err(StoreError::NotFound)
    } else {
        Ok(())
    }
}

pub(in crate::store) async fn file<S: Sql>(
    s: &mut S,
    key: &Key,
    now: &Millis,
) -> Stored<StoredFile> {
    let sql = format!(
        "SELECT {FILE} FROM samewire_files WHERE tenant = $1 AND id = $2 AND state = 1 AND expires > $3"
    );
    s.one(&sql, &[(&key.tenant).into(), (&key.id).into(), now.into()])
        .await?
        .file()
}

/// Returns the condition by which a list goes on after its cursor, with the values for it, of which there are
/// `known` already.
pub(super) async fn after<S: Sql>(
    s: &mut S,
    table: &str,
    tenant: &Arc<str>,
    range: &PageRequest,
    known: usize,
) -> Stored<(String, Vec<SqlValue>)> {
    let Some(id) = &range.after else {
        return Ok((String::new(), Vec::new()));
    };
    let sql = format!("SELECT created FROM {table} WHERE tenant = $1 AND id = $2");
    let rows = s.query(&sql, &[tenant.into(), id.into()]).await?;
    let created = rows.first().ok_or(StoreError::NoCursor)?.count(0)?;
    let than = if range.descending { "<" } else { ">" };
    let condition = format!(" AND (created, id) {than} (${}, ${})", known + 1, known + 2);
    Ok((condition, vec![created.into(), id.into()]))
}

pub(in crate::store) async fn files<S: Sql>(
    s: &mut S,
    tenant: &Arc<str>,
    range: &PageRequest,
    purpose: &Option<FilePurpose>,
    now: &Millis,
) -> Stored<Vec<StoredFile>> {
    let (condition, more) = after(s, "samewire_files", tenant, range, 2).await?;
    let mut values: Vec<SqlValue> = vec![tenant.into(), now.into()];
    values.extend(more);
    let purpose = purpose.map_or_else(String::new, |purpose| {
        format!(" AND purpose = {}", purpose as i64)
    });
    let order = if range.descending { "DESC" } else { "ASC" };
    values.push((range.limit as u64).into());
    let sql = format!(
        "SELECT {FILE} FROM samewire_files WHERE tenant = $1 AND state = 1 AND expires > $2{condition}{purpose} \
         ORDER BY created {order}, id {order} LIMIT ${}",
        values.len()
    );
    s.query(&sql, &values)
        .await?
        .iter()
        .map(SqlRow::file)
        .collect()
}

pub(in crate::store) async fn delete_file<S: Sql>(s: &mut S, key: &Key, now: &Millis) -> Stored {
    let sql = "UPDATE samewire_files SET state = 2, expires = 0 \
               WHERE tenant = $1 AND id = $2 AND state < 2 AND expires > $3";
    if s.execute(sql, &[(&key.tenant).into(), (&key.id).into(), now.into()])
        .await?
        == 0
    {
        return Err(StoreError::NotFound);
    }
    // A batch that is created meanwhile holds the row of its file: only after the update are all of them seen.
    let sql = "SELECT id FROM samewire_batches WHERE tenant = $1 AND input_file = $2 AND status < 3 LIMIT 1";
    if !s
        .query(sql, &[(&key.tenant).into(), (&key.id).into()])
        .await?
        .is_empty()
    {
        return Err(StoreError::Conflict);
    }
    // A small file makes room at once; a large one goes little by little.
    sweep_file(s, key, &mut None).await.map(drop)
}

pub(in crate::store) async fn chunks<S: Sql>(
    s: &mut S,
    key: &Key,
    from: &u64,
    limit: &usize,
) -> Stored<Vec<FileChunk>> {
    let sql = "SELECT place, first_line, line_count, body FROM samewire_chunks \
               WHERE tenant = $1 AND holder = $2 AND place >= $3 ORDER BY place LIMIT $4";
    let values = [
        (&key.tenant).into(),
        (&key.id).into(),
        from.into(),
        (*limit as u64).into(),
    ];
    s.query(sql, &values)
        .await?
        .iter()
        .map(SqlRow::chunk)
        .collect()
}

pub(in crate::store) async fn chunk_at<S: Sql>(
    s: &mut S,
    key: &Key,
    line: &u64,
) -> Stored<Option<(u64, u64)>> {
    let sql = "SELECT place, CAST(octet_length(body) AS BIGINT) FROM samewire_chunks \
               WHERE tenant = $1 AND holder = $2 AND first_line <= $3 AND first_line + line_count > $3 \
               ORDER BY first_line DESC LIMIT 1";
    let rows = s
        .query(sql, &[(&key.tenant).into(), (&key.id).into(), line.into()])
        .await?;
    rows.first()
        .map(|row| Ok((row.count(0)?, row.count(1)?)))
        .transpose()
}

/// Removes chunks of a file that goes, and the file with the last ones. `room`: the bytes that may still be removed;
/// `None` if nothing was yet, so that a chunk of any size goes.
async fn sweep_file<S: Sql>(s: &mut S, key: &Key, room: &mut Option<u64>) -> Stored<u64> {
    let sql = "SELECT place, CAST(octet_length(body) AS BIGINT) FROM samewire_chunks \
               WHERE tenant = $1 AND holder = $2 ORDER BY place LIMIT $3";
    let chunks = s
        .query(
            sql,
            &[(&key.tenant).into(), (&key.id).into(), SWEPT.1.into()],
        )
        .await?;
    let (mut last, mut taken) = (None, 0);
    for chunk in &chunks {
        let bytes = chunk.count(1)?;
        let rest = room.unwrap_or(SWEPT.2);
        if bytes > rest && room.is_some() {
            break;
        }
        *room = Some(rest.saturating_sub(bytes));
        (last, taken) = (Some(chunk.int(0)?), taken + 1);
    }
    if let Some(last) = last {
        let sql = "DELETE FROM samewire_chunks WHERE tenant = $1 AND holder = $2 AND place <= $3";
        s.later(sql, &[(&key.tenant).into(), (&key.id).into(), last.into()])
            .await?;
    }
    let is_last = taken == chunks.len() as u64 && taken < SWEPT.1;
    if is_last {
        let sql = "DELETE FROM samewire_files WHERE tenant = $1 AND id = $2";
        s.later(sql, &[(&key.tenant).into(), (&key.id).into()])
            .await?;
    }
    Ok(taken + u64::from(is_last))
}

pub(in crate::store) async fn sweep_files<S: Sql>(s: &mut S, now: &Millis) -> Stored<u64> {
    // Two sweeps at once work on different files: each removes a file only if it has removed all of its chunks. Nobody
    // sees a file, or adds to it, once it has begun to go. The input of a batch stays until that has ended, however late.
    let sql = format!(
        "WITH expired AS (SELECT tenant, id FROM samewire_files AS file WHERE expires <= $1 AND NOT EXISTS \
         (SELECT 1 FROM samewire_batches AS b WHERE b.tenant = file.tenant AND b.input_file = file.id AND b.status < 3) \
         ORDER BY expires LIMIT $2{}) \
         UPDATE samewire_files SET state = 2 WHERE (tenant, id) IN (SELECT tenant, id FROM expired) \
         RETURNING tenant, id",
        S::LOCK_FREE
    );
    let expired = s.query(&sql, &[now.into(), SWEPT.0.into()]).await?;
    let (mut removed, mut room) = (0, None);
    for row in &expired {
        removed += sweep_file(
            s,
            &Key {
                tenant: row.text(0)?,
                id: row.text(1)?,
            },
            &mut room,
        )
        .await?;
    }
    let sql = format!(
        "WITH gone AS (SELECT tenant, id FROM samewire_batches WHERE gone <= $1 LIMIT 100{}) \
         DELETE FROM samewire_batches WHERE (tenant, id) IN (SELECT tenant, id FROM gone)",
        S::LOCK_FREE
    );
    removed += s.execute(&sql, &[now.into()]).await?;
    Ok(removed)
}
