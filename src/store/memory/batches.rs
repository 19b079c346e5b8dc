//! Operations on files and batches in memory.

use super::Memory;
use crate::store::batches::{
    ABANDONED, Batch, BatchStatus, BatchStep, FileChunk, FileLimits, FilePurpose, FileState,
    FileUse, NewFile, ResultLines, StoredFile,
};
use crate::store::record::{Key, Millis, Owned, PageRequest, StoreError, Stored};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Tables of the files and batches.
#[derive(Default)]
pub(super) struct BatchTables {
    files: BTreeMap<Key, FileRow>,
    batches: BTreeMap<Key, BatchRow>,
}

struct FileRow {
    file: StoredFile,
    state: FileState,
    chunks: Vec<FileChunk>,
}

struct BatchRow {
    batch: Batch,
    lease: Millis,
    gone: Millis,
}

impl FileRow {
    fn new(
        key: &Key,
        purpose: FilePurpose,
        name: &Arc<str>,
        (created, expires): (Millis, Millis),
    ) -> Self {
        let file = StoredFile {
            key: key.clone(),
            purpose,
            name: name.clone(),
            created,
            expires,
            bytes: 0,
            lines: 0,
            chunks: 0,
        };
        Self {
            file,
            state: FileState::Writing,
            chunks: Vec::new(),
        }
    }

    fn is_seen(&self, now: Millis) -> bool {
        self.state == FileState::Ready && self.file.expires > now
    }

    fn append(&mut self, chunk: FileChunk) {
        self.file.bytes += chunk.body.len() as u64;
        self.file.lines += chunk.lines;
        self.file.chunks += 1;
        self.chunks.push(chunk);
    }
}

/// Returns the part of a list that a client asks for. `all`: the entries with their age, in any order.
fn listed<T: Clone>(all: Vec<(Millis, Arc<str>, T)>, range: &PageRequest) -> Stored<Vec<T>> {
    let mut all = all;
    all.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    if range.descending {
        all.reverse();
    }
    let from = match &range.after {
        Some(id) => {
            all.iter()
                .position(|(_, own, _)| own == id)
                .ok_or(StoreError::NoCursor)?
                + 1
        }
        None => 0,
    };
    Ok(all
        .into_iter()
        .skip(from)
        .take(range.limit)
        .map(|(_, _, entry)| entry)
        .collect())
}

impl Memory {
    fn file_use(&self, tenant: &Arc<str>) -> FileUse {
        let mut used = FileUse::default();
        for (key, row) in &self.batches.files {
            used.total_bytes += row.file.bytes;
            if key.tenant == *tenant {
                used.tenant_bytes += row.file.bytes;
                used.tenant_files += 1;
            }
        }
        used
    }

    pub(in crate::store) fn create_file(
        &mut self,
        new: &NewFile,
        limits: &FileLimits,
        now: &Millis,
    ) -> Stored {
        limits.check(&self.file_use(&new.key.tenant), 1, 0)?;
        if self.batches.files.contains_key(&new.key) {
            return Err(StoreError::Conflict);
        }
        let times = (*now, now.saturating_add(ABANDONED));
        let row = FileRow::new(&new.key, FilePurpose::Batch, &new.name, times);
        self.batches.files.insert(new.key.clone(), row);
        Ok(())
    }

    pub(in crate::store) fn append_chunk(
        &mut self,
        key: &Key,
        chunk: &FileChunk,
        limits: &FileLimits,
        now: &Millis,
    ) -> Stored {
        let used = self.file_use(&key.tenant);
        let row = self
            .batches
            .files
            .get_mut(key)
            .ok_or(StoreError::NotFound)?;
        if row.state != FileState::Writing || chunk.place > row.file.chunks {
            return Err(StoreError::Conflict);
        }
        if chunk.place < row.file.chunks {
            return Ok(());
        }
        limits.check(&used, 0, chunk.body.len() as u64)?;
        row.append(chunk.clone());
        row.file.expires = now.saturating_add(ABANDONED);
        Ok(())
    }

    pub(in crate::store) fn finish_file(
        &mut self,
        key: &Key,
        purpose: &FilePurpose,
        expires: &Millis,
    ) -> Stored {
        let row = self
            .batches
            .files
            .get_mut(key)
            .filter(|row| row.state != FileState::Deleted);
        let row = row.ok_or(StoreError::NotFound)?;
        row.state = FileState::Ready;
        row.file.purpose = *purpose;
        row.file.expires = *expires;
        Ok(())
    }

    pub(in crate::store) fn file(&mut self, key: &Key, now: &Millis) -> Stored<StoredFile> {
        let row = self.batches.files.get(key).filter(|row| row.is_seen(*now));
        row.map(|row| row.file.clone()).ok_or(StoreError::NotFound)
    }

    pub(in crate::store) fn files(
        &mut self,
        tenant: &Arc<str>,
        range: &PageRequest,
        purpose: &Option<FilePurpose>,
        now: &Millis,
    ) -> Stored<Vec<StoredFile>> {
        let is_meant = |row: &&FileRow| {
            row.file.key.tenant == *tenant
                && row.is_seen(*now)
                && purpose.is_none_or(|purpose| row.file.purpose == purpose)
        };
        let all = self.batches.files.values().filter(is_meant);
        listed(
            all.map(|row| (row.file.created, row.file.key.id.clone(), row.file.clone()))
                .collect(),
            range,
        )
    }

    pub(in crate::store) fn delete_file(&mut self, key: &Key, now: &Millis) -> Stored {
        let is_needed = |row: &BatchRow| {
            row.batch.key.tenant == key.tenant
                && row.batch.input == key.id
                && !row.batch.status.is_terminal()
        };
        if self.batches.batches.values().any(is_needed) {
            return Err(StoreError::Conflict);
        }
        let is_there = |row: &&FileRow| row.state != FileState::Deleted && row.file.expires > *now;
        self.batches
            .files
            .get(key)
            .filter(is_there)
            .ok_or(StoreError::NotFound)?;
        self.batches.files.remove(key);
        Ok(())
    }

    pub(in crate::store) fn chunks(
        &mut self,
        key: &Key,
        from: &u64,
        limit: &usize,
    ) -> Stored<Vec<FileChunk>> {
        let row = self.batches.files.get(key);
        let chunks = row
            .into_iter()
            .flat_map(|row| row.chunks.iter().filter(|chunk| chunk.place >= *from));
        Ok(chunks.take(*limit).cloned().collect())
    }

    pub(in crate::store) fn chunk_at(
        &mut self,
        key: &Key,
        line: &u64,
    ) -> Stored<Option<(u64, u64)>> {
        let Some(row) = self.batches.files.get(key) else {
            return Ok(None);
        };
        let after = row.chunks.partition_point(|chunk| chunk.first <= *line);
        let chunk = after.checked_sub(1).and_then(|at| row.chunks.get(at));
        let chunk = chunk.filter(|chunk| chunk.first + chunk.lines > *line);
        Ok(chunk.map(|chunk| (chunk.place, chunk.body.len() as u64)))
    }

    pub(in crate::store) fn sweep_files(&mut self, now: &Millis) -> Stored<u64> {
        let before = self.batches.files.len() + self.batches.batches.len();
        let open = self
            .batches
            .batches
            .values()
            .filter(|row| !row.batch.status.is_terminal());
        let inputs: HashSet<Key> = open
            .map(|row| Key {
                tenant: row.batch.key.tenant.clone(),
                id: row.batch.input.clone(),
            })
            .collect();
        self.batches
            .files
            .retain(|key, row| row.file.expires > *now || inputs.contains(key));
        self.batches.batches.retain(|_, row| row.gone > *now);
        Ok((before - self.batches.files.len() - self.batches.batches.len()) as u64)
    }

    pub(in crate::store) fn create_batch(
        &mut self,
        new: &Batch,
        most: &u64,
        now: &Millis,
    ) -> Stored {
        let input = Key {
            tenant: new.key.tenant.clone(),
            id: new.input.clone(),
        };
        let is_open = |row: &&BatchRow| {
            row.batch.key.tenant == new.key.tenant && !row.batch.status.is_terminal()
        };
        let open = self.batches.batches.values().filter(is_open).count() as u64;
        let is_input =
            |row: &&mut FileRow| row.is_seen(*now) && row.file.purpose == FilePurpose::Batch;
        let file = self
            .batches
            .files
            .get_mut(&input)
            .filter(is_input)
            .ok_or(StoreError::NotFound)?;
        if open >= *most {
            return Err(StoreError::TooMany);
        }
        if self.batches.batches.contains_key(&new.key) {
            return Err(StoreError::Conflict);
        }
        let until = new.expires.saturating_add(new.expires.saturating_sub(*now));
        file.file.expires = file.file.expires.max(until);
        let row = BatchRow {
            batch: new.clone(),
            lease: 0,
            gone: Millis::MAX,
        };
        self.batches.batches.insert(new.key.clone(), row);
        Ok(())
    }

    pub(in crate::store) fn delete_batch(&mut self, key: &Key) -> Stored {
        let row = self
            .batches
            .batches
            .remove(key)
            .ok_or(StoreError::NotFound)?;
        for id in [row.batch.output, row.batch.errors] {
            self.batches.files.remove(&Key {
                tenant: key.tenant.clone(),
                id,
            });
        }
        Ok(())
    }

    fn batch_row(&mut self, key: &Key, now: Millis) -> Stored<&mut BatchRow> {
        self.batches
            .batches
            .get_mut(key)
            .filter(|row| row.gone > now)
            .ok_or(StoreError::NotFound)
    }

    pub(in crate::store) fn batch(&mut self, key: &Key, now: &Millis) -> Stored<Batch> {
        self.batch_row(key, *now).map(|row| row.batch.clone())
    }

    pub(in crate::store) fn batches(
        &mut self,
        tenant: &Arc<str>,
        range: &PageRequest,
        now: &Millis,
    ) -> Stored<Vec<Batch>> {
        let all = self.batches.batches.values();
        let all = all.filter(|row| row.batch.key.tenant == *tenant && row.gone > *now);
        listed(
            all.map(|row| {
                (
                    row.batch.created,
                    row.batch.key.id.clone(),
                    row.batch.clone(),
                )
            })
            .collect(),
            range,
        )
    }

    pub(in crate::store) fn cancel_batch(&mut self, key: &Key, now: &Millis) -> Stored<Batch> {
        let row = self.batch_row(key, *now)?;
        if !row.batch.status.is_terminal() && row.batch.cancel == 0 {
            row.batch.cancel = *now;
        }
        Ok(row.batch.clone())
    }

    pub(in crate::store) fn claim_batches(
        &mut self,
        owner: &Arc<str>,
        limit: &usize,
        now: &Millis,
    ) -> Stored<Vec<Batch>> {
        let lease = now.saturating_add(self.caps.lease);
        let free = self.batches.batches.values_mut();
        let mut free: Vec<_> = free
            .filter(|row| !row.batch.status.is_terminal() && row.lease <= *now)
            .collect();
        free.sort_by(|a, b| (a.batch.created, &a.batch.key).cmp(&(b.batch.created, &b.batch.key)));
        let claimed = free.into_iter().take(*limit).map(|row| {
            row.batch.owner = owner.clone();
            row.batch.term += 1;
            row.lease = lease;
            row.batch.clone()
        });
        Ok(claimed.collect())
    }

    pub(in crate::store) fn renew_batches(
        &mut self,
        owner: &Arc<str>,
        now: &Millis,
    ) -> Stored<Vec<Owned>> {
        let lease = now.saturating_add(self.caps.lease);
        let own = self.batches.batches.values_mut();
        let own = own.filter(|row| !row.batch.status.is_terminal() && row.batch.owner == *owner);
        let renewed = own.map(|row| {
            row.lease = lease;
            let Batch {
                key, term, cancel, ..
            } = &row.batch;
            Owned {
                key: key.clone(),
                term: *term,
                cancel: *cancel > 0,
            }
        });
        Ok(renewed.collect())
    }

    pub(in crate::store) fn release_batch(&mut self, key: &Key, term: &u64) -> Stored {
        if let Some(row) = self
            .batches
            .batches
            .get_mut(key)
            .filter(|row| row.batch.term == *term)
        {
            (row.lease, row.batch.owner) = (0, "".into());
        }
        Ok(())
    }

    pub(in crate::store) fn advance_batch(
        &mut self,
        key: &Key,
        term: &u64,
        step: &BatchStep,
        limits: &FileLimits,
        now: &Millis,
    ) -> Stored<BatchStatus> {
        let found = self.batch_row(key, *now)?.batch.clone();
        if !step.follows(&found, *term)? {
            return Ok(found.status);
        }
        let status = step.status_of(&found);
        let results = step.results(&found);
        let bytes = results
            .iter()
            .map(|(_, lines)| lines.text.len() as u64)
            .sum();
        limits.check(
            &FileUse {
                tenant_files: 0,
                ..self.file_use(&key.tenant)
            },
            0,
            bytes,
        )?;
        for (id, lines) in results {
            self.append_results(
                Key {
                    tenant: key.tenant.clone(),
                    id: id.clone(),
                },
                lines,
                *now,
            );
        }
        let is_over = status.is_terminal();
        let gone = if is_over { step.gone } else { Millis::MAX };
        for id in [&found.output, &found.errors]
            .into_iter()
            .filter(|_| is_over)
        {
            let key = Key {
                tenant: key.tenant.clone(),
                id: id.clone(),
            };
            let _ = self.finish_file(&key, &FilePurpose::BatchOutput, &step.files_gone);
        }
        let lease = now.saturating_add(self.caps.lease);
        let row = self.batch_row(key, *now)?;
        (row.gone, row.lease) = (gone, lease);
        row.batch.status = status;
        row.batch.version = step.version;
        row.batch.cursor = step.cursor;
        row.batch.ahead = step.ahead.clone();
        row.batch.facts = step.facts.clone();
        Ok(status)
    }

    fn append_results(&mut self, key: Key, lines: &ResultLines, now: Millis) {
        if lines.count == 0 {
            return;
        }
        let name = format!("{}.jsonl", key.id).into();
        let new = || FileRow::new(&key, FilePurpose::BatchOutput, &name, (now, Millis::MAX));
        let row = self.batches.files.entry(key.clone()).or_insert_with(new);
        let (place, first) = (row.file.chunks, row.file.lines);
        row.append(FileChunk {
            place,
            first,
            lines: lines.count,
            body: lines.text.as_str().into(),
        });
    }
}
