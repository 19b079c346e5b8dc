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
        let parsed = toml::from_str::<Table>(text).and_then(|table| Ok((table, Origins::read(name, text)?)));
        let (mut table, origins) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => {
                mistakes.extend(Mistakes::syntax(name, line_of(&error, text), error.message()));
                return Err(mistakes);
            }
        };
        folder.resolve(&mut table);
        let mut good = Table::new();
        for leaf in leaves(&table) {
            match accepts(&leaf.alone) {
                Ok(()) => put(&mut good, leaf.alone, &leaf.indices),
                Err(error) => mistakes.add(leaf.path, explain(error.message(), "key")),
            }
        }
        Ok(Self { table: good, origins, mistakes })
    }

    /// Sets a key to the value of a flag or variable, or reports a mistake if the value is invalid.
    pub(super) fn set(&mut self, path: &str, value: impl Into<Value>, by: &str) {
        let alone = nested(path, value.into());
        match accepts(&alone) {
            Ok(()) => self.apply(path, &alone, by),
            Err(error) => self.mistakes.given(by, explain(error.message(), "key")),
        }
    }

    /// Merges a value that has been checked. `alone`: the value inside its tables.
    pub(super) fn apply(&mut self, path: &str, alone: &Table, by: &str) {
        merge(&mut self.table, alone);
        self.origins.give(path, by);
    }

    /// Replaces the list of upstreams by these URLs, which a flag or variable gives.
    pub(super) fn replace_upstreams(&mut self, urls: &[String], by: &str) {
        let of_url = |url: &String| Value::Table(single("url", Value::from(url.as_str())));
        self.table.insert("upstream".to_owned(), Value::Array(urls.iter().map(of_url).collect()));
        self.origins.give("upstream", by);
    }

    /// Sets the engine of every upstream to the one that a flag or variable gives.
    pub(super) fn name_engines(&mut self, engine: &str, by: &str) {
        let upstreams = self.table.get_mut("upstream").and_then(Value::as_array_mut);
        let tables = upstreams.into_iter().flatten().filter_map(Value::as_table_mut);
        for (n, upstream) in tables.enumerate() {
            upstream.insert("engine".to_owned(), Value::from(engine));
            self.origins.give(&format!("upstream[{n}].engine"), by);
        }
    }

    /// Returns the merged configuration with the origins of its keys and the mistakes so far.
    pub(super) fn finish(self) -> (File, Origins, Mistakes) {
        (self.table.try_into().unwrap_or_default(), self.origins, self.mistakes)
    }
}

/// Fails unless the table is a valid configuration, or a part of one.
pub(super) fn accepts(table: &Table) -> Result<(), toml::de::Error> {
    table.clone().try_into::<File>().and_then(|file| file.check_overlays())
}

/// Single value of the file, inside its own tables, so that it can be checked separately.
struct Leaf {
    path: String,
    /// Value inside its tables; each list on the way has one item.
    alone: Table,
    /// Indices of these items, from the outermost list on.
    indices: Vec<usize>,
}

fn leaves(table: &Table) -> Vec<Leaf> {
    let mut found = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) if !inner.is_empty() => {
                let within = leaves(inner).into_iter().map(|leaf| Leaf {
                    path: format!("{key}.{}", leaf.path),
                    alone: single(key, Value::Table(leaf.alone)),
                    ..leaf
                });
                found.extend(within);
            }
            Value::Array(items) if items.iter().any(Value::is_table) => {
                for (n, item) in items.iter().enumerate() {
                    found.extend(leaves_of_item(key, n, item));
                }
            }
            value => {
                let alone = single(key, value.clone());
                found.push(Leaf { path: key.clone(), alone, indices: Vec::new() });
            }
        }
    }
    found
}

/// Returns the leaves of the `n`th table of a list.
fn leaves_of_item(key: &str, n: usize, item: &Value) -> Vec<Leaf> {
    let in_list = |value: Value| single(key, Value::Array(vec![value]));
    match item {
        Value::Table(inner) if !inner.is_empty() => {
            let place = |leaf: Leaf| Leaf {
                path: format!("{key}[{n}].{}", leaf.path),
                alone: in_list(Value::Table(leaf.alone)),
                indices: std::iter::once(n).chain(leaf.indices).collect(),
            };
            leaves(inner).into_iter().map(place).collect()
        }
        other => {
            vec![Leaf { path: format!("{key}[{n}]"), alone: in_list(other.clone()), indices: vec![n] }]
        }
    }
}

/// Puts a leaf into a table, with its lists at these indices.
fn put(base: &mut Table, alone: Table, indices: &[usize]) {
    for (key, value) in alone {
        match (value, indices) {
            (Value::Table(inner), _) if !inner.is_empty() => {
                let own = base.entry(key).or_insert_with(|| Value::Table(Table::new()));
                if let Value::Table(own) = own {
                    put(own, inner, indices);
                }
            }
            (Value::Array(mut items), [at, further @ ..]) => {
                let own = base.entry(key).or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(own) = own else { continue };
                own.resize_with(own.len().max(at + 1), || Value::Table(Table::new()));
                if let (Some(Value::Table(own)), Some(Value::Table(item))) = (own.get_mut(*at), items.pop()) {
                    put(own, item, further);
                }
            }
            (value, _) => {
                base.insert(key, value);
            }
        }
    }
}

/// Returns a list with the value at index `n`, after empty tables.
pub(super) fn list_with(n: usize, value: Value) -> Value {
    let mut items = vec![Value::Table(Table::new()); n];
    items.push(value);
    Value::Array(items)
}

pub(super) fn single(key: &str, value: Value) -> Table {
    Table::from_iter([(key.to_owned(), value)])
}

/// Returns the nested tables for a dotted path: `a.b` = value becomes `b` within `a`.
pub(super) fn nested(path: &str, value: Value) -> Table {
    match path.split_once('.') {
        Some((first, rest)) => single(first, Value::Table(nested(rest, value))),
        None => single(path, value),
    }
}

/// Merges `over` into `base`: tables key by key, lists of tables item by item, other values as a whole.
pub(super) fn merge(base: &mut Table, over: &Table) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Table(base)), Value::Table(over)) => merge(base, over),
            (Some(Value::Array(base)), Value::Array(over))
                if !over.is_empty() && over.iter().all(Value::is_table) =>
            {
                merge_items(base, over);
            }
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

fn merge_items(base: &mut Vec<Value>, over: &[Value]) {
    base.resize_with(base.len().max(over.len()), || Value::Table(Table::new()));
    for pair in base.iter_mut().zip(over) {
        if let (Value::Table(base), Value::Table(over)) = pair {
            merge(base, over);
        }
    }
}
