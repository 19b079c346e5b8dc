//! Operations on counters.

use super::{ROWS, Sql, SqlRow, SqlValue, placeholders};
use crate::store::counters::{Count, Counter};
use crate::store::record::{Millis, StoreError, Stored};
use std::sync::Arc;

/// Stores a writer's totals in its own rows. A total never decreases, so writes may be repeated and reordered.
pub(in crate::store) async fn put_counts<S: Sql>(
    s: &mut S,
    writer: &Arc<str>,
    counts: &[Count],
) -> Stored {
    let sql = "INSERT INTO samewire_counters (name, kind, begins, writer, ends, amount) \
               VALUES ($1, $2, $3, $4, $5, $6) \
               ON CONFLICT (name, kind, begins, writer) DO UPDATE SET amount = excluded.amount \
               WHERE samewire_counters.amount < excluded.amount";
    for Count {
        counter,
        ends,
        amount,
    } in counts
    {
        let values = [
            (&counter.name).into(),
            i64::from(counter.kind).into(),
            counter.begins.into(),
            writer.into(),
            ends.into(),
            amount.into(),
        ];
        s.later(sql, &values).await?;
    }
    Ok(())
}

pub(in crate::store) async fn counts_of_others<S: Sql>(
    s: &mut S,
    names: &[Arc<str>],
    besides: &Arc<str>,
    now: &Millis,
) -> Stored<Vec<Count>> {
    let count = |row: &SqlRow| {
        let kind = u32::try_from(row.int(1)?).map_err(StoreError::unavailable)?;
        let counter = Counter {
            name: row.text(0)?,
            kind,
            begins: row.count(2)?,
        };
        Ok(Count {
            counter,
            ends: row.count(3)?,
            amount: row.count(4)?,
        })
    };
    let mut found = Vec::new();
    for names in names.chunks(ROWS) {
        // Some names are repeated, so that few different statements have to be prepared.
        let again = names.iter().cycle().take(names.len().next_power_of_two());
        let mut values: Vec<SqlValue> = std::iter::once(besides)
            .chain(again)
            .map(SqlValue::from)
            .collect();
        let named = placeholders(values.len());
        values.push(now.into());
        let sql = format!(
            "SELECT name, kind, begins, MAX(ends), CAST(SUM(amount) AS BIGINT) FROM samewire_counters \
             WHERE writer <> $1 AND name IN ({named}) AND ends > ${} \
             GROUP BY name, kind, begins ORDER BY name, kind, begins",
            values.len()
        );
        let rows = s.query(&sql, &values).await?;
        found.extend(rows.iter().map(count).collect::<Stored<Vec<_>>>()?);
    }
    Ok(found)
}
