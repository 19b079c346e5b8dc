//! Tables, and the statements that create them.

use crate::store::record::{StoreError, Stored};

/// Version of the tables, and the oldest version of samewire (by this number) that may still use them.
pub(in crate::store) const SCHEMA: (i64, i64) = (4, 1);

/// Checks that this version may use tables of the given version and oldest reader. Fails if they need a newer one.
pub(in crate::store) fn readable((version, reader): (i64, i64)) -> Stored {
    if reader <= SCHEMA.0 {
        return Ok(());
    }
    Err(StoreError::unavailable(format_args!(
        "its tables (version {version}) need a samewire that knows version {reader}; this one knows {}",
        SCHEMA.0
    )))
}

/// Returns the statements that create the tables; each may be run again. A later version adds only columns that may
/// be null and have no default, so that no table is rewritten and an older samewire works on.
pub(in crate::store) fn tables(text: &str) -> String {
    TABLES.replace("$TEXT", text)
}

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS samewire_schema (version BIGINT NOT NULL, reader BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS samewire_records (
    tenant $TEXT NOT NULL, id $TEXT NOT NULL, kind BIGINT NOT NULL, version BIGINT NOT NULL, state BIGINT NOT NULL,
    created BIGINT NOT NULL, touched BIGINT NOT NULL, expires BIGINT NOT NULL, background BIGINT NOT NULL,
    previous $TEXT, conversation $TEXT, owner $TEXT NOT NULL, term BIGINT NOT NULL, lease BIGINT NOT NULL,
    cancel BIGINT NOT NULL, events BIGINT NOT NULL, bytes BIGINT NOT NULL,
    request $TEXT NOT NULL, response $TEXT NOT NULL,
    PRIMARY KEY (tenant, id));
CREATE INDEX IF NOT EXISTS samewire_ended ON samewire_records (touched, tenant, id) WHERE state >= 2;
CREATE INDEX IF NOT EXISTS samewire_weights ON samewire_records (bytes);
CREATE INDEX IF NOT EXISTS samewire_expiring ON samewire_records (expires) WHERE state >= 2;
CREATE INDEX IF NOT EXISTS samewire_running ON samewire_records (lease) WHERE state < 2;
CREATE TABLE IF NOT EXISTS samewire_items (
    tenant $TEXT NOT NULL, holder $TEXT NOT NULL, side BIGINT NOT NULL, place BIGINT NOT NULL, id $TEXT NOT NULL,
    body $TEXT NOT NULL,
    PRIMARY KEY (tenant, holder, side, place),
    FOREIGN KEY (tenant, holder) REFERENCES samewire_records (tenant, id) ON DELETE CASCADE);
CREATE INDEX IF NOT EXISTS samewire_item_ids ON samewire_items (tenant, id, side, holder, place);
CREATE TABLE IF NOT EXISTS samewire_events (
    tenant $TEXT NOT NULL, holder $TEXT NOT NULL, seq BIGINT NOT NULL, body $TEXT NOT NULL,
    PRIMARY KEY (tenant, holder, seq),
    FOREIGN KEY (tenant, holder) REFERENCES samewire_records (tenant, id) ON DELETE CASCADE);
CREATE TABLE IF NOT EXISTS samewire_counters (
    name $TEXT NOT NULL, kind BIGINT NOT NULL, begins BIGINT NOT NULL, writer $TEXT NOT NULL, ends BIGINT NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (name, kind, begins, writer));
CREATE INDEX IF NOT EXISTS samewire_counters_ending ON samewire_counters (ends);
CREATE TABLE IF NOT EXISTS samewire_files (
    tenant $TEXT NOT NULL, id $TEXT NOT NULL, purpose BIGINT NOT NULL, state BIGINT NOT NULL, name $TEXT NOT NULL,
    created BIGINT NOT NULL, expires BIGINT NOT NULL, bytes BIGINT NOT NULL, line_count BIGINT NOT NULL,
    chunks BIGINT NOT NULL,
    PRIMARY KEY (tenant, id));
CREATE INDEX IF NOT EXISTS samewire_files_expiring ON samewire_files (expires);
CREATE TABLE IF NOT EXISTS samewire_chunks (
    tenant $TEXT NOT NULL, holder $TEXT NOT NULL, place BIGINT NOT NULL, first_line BIGINT NOT NULL,
    line_count BIGINT NOT NULL, body $TEXT NOT NULL,
    PRIMARY KEY (tenant, holder, place));
CREATE INDEX IF NOT EXISTS samewire_chunk_lines ON samewire_chunks (tenant, holder, first_line);
CREATE TABLE IF NOT EXISTS samewire_batches (
    tenant $TEXT NOT NULL, id $TEXT NOT NULL, status BIGINT NOT NULL, created BIGINT NOT NULL,
    expires BIGINT NOT NULL, gone BIGINT NOT NULL, cancel BIGINT NOT NULL, owner $TEXT NOT NULL,
    term BIGINT NOT NULL, lease BIGINT NOT NULL, version BIGINT NOT NULL, caller $TEXT NOT NULL,
    input_file $TEXT NOT NULL, output_file $TEXT NOT NULL, error_file $TEXT NOT NULL, line_cursor BIGINT NOT NULL,
    ahead $TEXT NOT NULL, facts $TEXT NOT NULL,
    PRIMARY KEY (tenant, id));
CREATE INDEX IF NOT EXISTS samewire_batches_open ON samewire_batches (lease) WHERE status < 3;
CREATE INDEX IF NOT EXISTS samewire_batches_gone ON samewire_batches (gone);
CREATE TABLE IF NOT EXISTS samewire_seal_keys (id $TEXT NOT NULL, body $TEXT NOT NULL, PRIMARY KEY (id));
";
