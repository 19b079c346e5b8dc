//! Merge of the configuration's sources: file, environment and flags, each applied over the previous one, key by
//! key.

use super::file::File;
use super::mistakes::{Mistakes, explain};
use super::origins::{Origins, line_of};
use super::paths::Folder;
use toml::{Table, Value};

/// Configuration as read so far, with the origin of each key. Invalid keys are left out and reported as mistakes.
#[derive(Debug)]
pub(super) struct Merged {
    /// Keys that have been set so far and are valid.
    pub(super) table: Table,
    /// Origin of each key, for the location of mistakes.
    pub(super) origins: Origins,
    /// Mistakes in the keys that were left out.
    pub(super) mistakes: Mistakes,
}

impl Merged {
    /// Reads the valid keys of a file, and reports the others: each key is checked separately, so that one mistake
    /// does not hide another. `folder`: base of relative paths.
    ///
    /// # Errors
    /// Fails if the text is not TOML.
    pub(super) fn read(
        name: Option<&str>,
        text: &str,
        folder: &Folder,
        mut mistakes: Mistakes,
    ) -> Result<Self, Mistakes> {
        let parsed =
            toml::from_str::<Table>(text).and_then(|table| Ok((table, Origins::read(name, text)?)));
        let (mut table, origins) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => {
                mistakes.extend(Mistakes::syntax(
                    name,
                    line_of(&error, text),
                    error.message(),
                ));
                return Err(mistakes);
            }
        };
        folder.resolve(&mut table);
        let mut good = Table::new();
        for (steps, value) in leaves(&table) {
            match accepts(&steps, value) {
                Ok(()) => put(&mut good, &steps, value.clone()),
                Err(error) => mistakes.add(path(&steps), explain(error.message(), "key")),
            }
        }
        Ok(Self {
            table: good,
            origins,
            mistakes,
        })
    }

    /// Merges a value that has been checked.
    pub(super) fn put(&mut self, steps: &[MergeStep], value: Value, by: &str) {
        put(&mut self.table, steps, value);
        self.origins.give(&path(steps), by);
    }

    /// Replaces the list of upstreams by these URLs, which a flag or variable gives.
    pub(super) fn replace_upstreams(&mut self, urls: &[String], by: &str) {
        let of_url =
            |url: &String| Value::Table(alone(&[MergeStep::Key("url".to_owned())], url.as_str()));
        self.table.insert(
            "upstream".to_owned(),
            Value::Array(urls.iter().map(of_url).collect()),
        );
        self.origins.give("upstream", by);
    }

    /// Sets the engine of every upstream to the one that a flag or variable gives.
    pub(super) fn name_engines(&mut self, engine: &str, by: &str) {
        let upstreams = self.table.get_mut("upstream").and_then(Value::as_array_mut);
        let tables = upstreams
            .into_iter()
            .flatten()
            .filter_map(Value::as_table_mut);
        for (n, upstream) in tables.enumerate() {
            upstream.insert("engine".to_owned(), Value::from(engine));
            self.origins.give(&format!("upstream[{n}].engine"), by);
        }
    }

    /// Returns the merged configuration with the origins of its keys and the mistakes so far.
    pub(super) fn finish(self) -> (File, Origins, Mistakes) {
        // This cannot fail: each key was accepted alone.
        (
            self.table.try_into().unwrap_or_default(),
            self.origins,
            self.mistakes,
        )
    }
}

/// Step of a key's path: an index or a name. Sorting by steps puts list items in order, so that each follows its
/// predecessor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MergeStep {
    Item(usize),
    Key(String),
}

/// Returns the steps of a path without lists, such as `log.level`.
pub(super) fn steps(path: &str) -> Vec<MergeStep> {
    path.split('.')
        .map(|key| MergeStep::Key(key.to_owned()))
        .collect()
}

/// Returns the path in the notation of mistakes, such as `upstream[0].url`.
pub(super) fn path(steps: &[MergeStep]) -> String {
    let mut path = String::new();
    for step in steps {
        match step {
            MergeStep::Item(n) => path += &format!("[{n}]"),
            MergeStep::Key(key) if path.is_empty() => path += key,
            MergeStep::Key(key) => path += &format!(".{key}"),
        }
    }
    path
}

/// Fails unless the value is valid at its path, whatever else the configuration contains.
pub(super) fn accepts(steps: &[MergeStep], value: &Value) -> Result<(), toml::de::Error> {
    alone(steps, value.clone())
        .try_into::<File>()
        .and_then(|mut file| file.check_overlays())
}

/// Returns the value inside its tables; each list on the way has one item.
fn alone(steps: &[MergeStep], value: impl Into<Value>) -> Table {
    let within = |value: Value, step: &MergeStep| match step {
        MergeStep::Key(key) => Value::Table(Table::from_iter([(key.clone(), value)])),
        MergeStep::Item(_) => Value::Array(vec![value]),
    };
    match steps.iter().rev().fold(value.into(), within) {
        Value::Table(table) => table,
        _ => Table::new(),
    }
}

/// Returns the values of a table with their paths: whatever is neither a table with keys nor a list of tables.
pub(super) fn leaves(table: &Table) -> Vec<(Vec<MergeStep>, &Value)> {
    fn collect<'v>(
        value: &'v Value,
        steps: Vec<MergeStep>,
        found: &mut Vec<(Vec<MergeStep>, &'v Value)>,
    ) {
        let below = |step| steps.iter().cloned().chain([step]).collect();
        match value {
            Value::Table(inner) if !inner.is_empty() => {
                inner.iter().for_each(|(key, value)| {
                    collect(value, below(MergeStep::Key(key.clone())), found)
                });
            }
            Value::Array(items) if items.iter().any(Value::is_table) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(n, item)| collect(item, below(MergeStep::Item(n)), found));
            }
            value => found.push((steps, value)),
        }
    }
    let mut found = Vec::new();
    table
        .iter()
        .for_each(|(key, value)| collect(value, vec![MergeStep::Key(key.clone())], &mut found));
    found
}

/// Merges a value into a table at a path. Missing items of lists become empty tables.
pub(super) fn put(table: &mut Table, steps: &[MergeStep], value: Value) {
    if let [MergeStep::Key(key), rest @ ..] = steps {
        put_at(table.entry(key.clone()).or_insert_with(empty), rest, value);
    }
}

fn put_at(place: &mut Value, steps: &[MergeStep], value: Value) {
    match (steps, place) {
        ([], place) => merge(place, value),
        ([MergeStep::Key(_), ..], Value::Table(table)) => put(table, steps, value),
        ([MergeStep::Item(n), rest @ ..], Value::Array(items)) => {
            items.resize_with(items.len().max(n + 1), empty);
            if let Some(item) = items.get_mut(*n) {
                put_at(item, rest, value);
            }
        }
        ([step, ..], place) => {
            *place = if matches!(step, MergeStep::Key(_)) {
                empty()
            } else {
                Value::Array(Vec::new())
            };
            put_at(place, steps, value);
        }
    }
}

/// Merges `over` into `base`: tables key by key, lists of tables item by item, other values as a whole.
pub(super) fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Table(base), Value::Table(over)) => {
            over.into_iter()
                .for_each(|(key, value)| merge(base.entry(key).or_insert_with(empty), value));
        }
        (Value::Array(base), Value::Array(over))
            if !over.is_empty() && over.iter().all(Value::is_table) =>
        {
            base.resize_with(base.len().max(over.len()), empty);
            base.iter_mut()
                .zip(over)
                .for_each(|(base, over)| merge(base, over));
        }
        (base, over) => *base = over,
    }
}

fn empty() -> Value {
    Value::Table(Table::new())
}
