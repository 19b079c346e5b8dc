//! Chunks of a file, read within the memory that work which can wait may take.

use crate::server::admit::budget::{Budget, BudgetShare};
use crate::store::{Key, Store, StoreError};
use bytes::Bytes;
use std::sync::Arc;

/// Chunk in memory. Its share of the budget is returned with the last copy of its bytes.
pub(super) struct HeldChunk {
    /// Number of its first line in the file.
    pub(super) first: u64,
    /// Number of its lines.
    pub(super) lines: u64,
    /// Text of the lines, in UTF-8.
    pub(super) bytes: Bytes,
}

/// Outcome of an attempt to read on.
pub(super) enum Next<T> {
    Read(T),
    /// There is no memory for it at the moment.
    NoRoom,
    /// The file has no more lines.
    End,
}

/// Reads the chunk with a line. Its memory is taken from the budget before.
pub(super) async fn chunk_with(
    store: &Store,
    key: &Key,
    line: u64,
    budget: &Arc<Budget>,
) -> Result<Next<HeldChunk>, StoreError> {
    let Some((place, bytes)) = store.chunk_at(key.clone(), line).await? else {
        return Ok(Next::End);
    };
    let Some(share) = budget.spare(usize::try_from(bytes).unwrap_or(usize::MAX)) else {
        return Ok(Next::NoRoom);
    };
    let read = store.chunks(key.clone(), place, 1).await?;
    let chunk = read
        .into_iter()
        .find(|chunk| chunk.place == place)
        .ok_or(StoreError::NotFound)?;
    let bytes = BudgetShare::hold(
        &Arc::new(share),
        Bytes::from_owner(Arc::<[u8]>::from(chunk.body)),
    );
    Ok(Next::Read(HeldChunk {
        first: chunk.first,
        lines: chunk.lines,
        bytes,
    }))
}

/// Returns the text of the chunk at a place. Fails if it is missing.
pub(super) async fn chunk_text(
    store: &Store,
    key: &Key,
    place: u64,
) -> Result<Arc<str>, StoreError> {
    let read = store.chunks(key.clone(), place, 1).await?;
    let chunk = read.into_iter().find(|chunk| chunk.place == place);
    chunk.map(|chunk| chunk.body).ok_or(StoreError::NotFound)
}
