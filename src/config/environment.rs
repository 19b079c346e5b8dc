//! Environment variables: `SAMEWIRE_<FLAG>` for each flag of `serve`, and `SAMEWIRE_<TABLE>__<KEY>` for each key
//! of the file.

use super::file::File;
use super::merged::{Merged, accepts, list_with, single};
use super::mistakes::{Mistakes, explain, unknown_key};
use super::paths::Folder;
use crate::nearest::nearest;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// Prefix of samewire's variables. A variable with this prefix must be a known one.
pub(super) const PREFIX: &str = "SAMEWIRE_";
/// Variables of flags. They are named after the flags, even where keys have other names.
const FLAGS: [&str; 13] = [
    "CONFIG",
    "UPSTREAM",
    "ENGINE",
    "LISTEN",
    "ADMIN_LISTEN",
    "ADMIN_HOST",
    "INSECURE_NO_AUTH",
    "THREADS",
    "STORE",
    "SET",
    "LOG_LEVEL",
    "LOG",
    "LOG_FORMAT",
];
/// Variables of the build, of tests and of clients, which may be present in the environment of a server and are no
/// mistakes there.
const OTHERS: [&str; 5] = ["BIN", "CHROMIUM", "COMMIT", "DATE", "KEY"];
/// Prefixes of variables for tests and build facts; cargo passes them to the programs it runs.
const PREFIXES: [&str; 2] = ["TEST_", "BUILD_"];
/// Keys that are lists of tables, whose variables contain an index.
const LISTS: [&str; 3] = ["upstream", "model", "auth.key"];
/// Protocols in the variables that Kubernetes sets for the ports of a service.
const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];

/// Environment variable that sets a key of the file, such as `SAMEWIRE_LIMITS__MAX_BODY_BYTES`.
#[derive(Clone, PartialEq, Eq)]
pub struct Variable {
    steps: Vec<Step>,
    /// Value as text, which may be a secret.
    value: String,
}

/// Prints the name without the value, which may be a secret.
impl std::fmt::Debug for Variable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&variable_name(&self.steps))
    }
}

/// Step of a key's path: an index or a name. Sorting by steps puts list items in order, so that each follows its
/// predecessor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Item(usize),
    Key(String),
}

impl Step {
    fn of(word: &str) -> Self {
        word.parse().map_or_else(|_| Self::Key(word.to_ascii_lowercase()), Self::Item)
    }
}

fn variable_name(steps: &[Step]) -> String {
    let words: Vec<_> = steps
        .iter()
        .map(|step| match step {
            Step::Item(n) => n.to_string(),
            Step::Key(key) => key.to_ascii_uppercase(),
        })
        .collect();
    format!("{PREFIX}{}", words.join("__"))
}

/// Returns the path in the notation of mistakes, such as `upstream[0].url`.
fn path(steps: &[Step]) -> String {
    let mut path = String::new();
    for step in steps {
        match step {
            Step::Item(n) => path += &format!("[{n}]"),
            Step::Key(key) if path.is_empty() => path += key,
            Step::Key(key) => path += &format!(".{key}"),
        }
    }
    path
}

/// Returns the variables that set keys. Unknown names with our prefix are mistakes.
pub(super) fn keys(all: &BTreeMap<String, String>, mistakes: &mut Mistakes) -> Vec<Variable> {
    let top = Table::try_from(File::default()).unwrap_or_default();
    let mut found = Vec::new();
    for (variable, value) in all {
        let Some(rest) = variable.strip_prefix(PREFIX) else { continue };
        let is_other = FLAGS.contains(&rest)
            || OTHERS.contains(&rest)
            || PREFIXES.iter().any(|prefix| rest.starts_with(prefix));
        if is_other || is_of_service(rest, value) {
            continue;
        }
        let is_upper = rest.bytes().all(|byte| !byte.is_ascii_lowercase());
        if is_upper && (rest.contains("__") || top.contains_key(&rest.to_ascii_lowercase())) {
            found.push(Variable { steps: rest.split("__").map(Step::of).collect(), value: value.clone() });
        } else {
            mistakes.given(variable, unknown(rest));
        }
    }
    found.sort_by(|one, other| one.steps.cmp(&other.steps));
    found
}

/// Returns true if Kubernetes sets this variable for a service whose name is, or starts with, `samewire`.
fn is_of_service(rest: &str, value: &str) -> bool {
    let words: Vec<_> = rest.split('_').collect();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_protocol = |word: &str| PROTOCOLS.iter().any(|known| word.eq_ignore_ascii_case(known));
    let is_address = || value.split_once("://").is_some_and(|(protocol, _)| PROTOCOLS.contains(&protocol));
    (0..words.len()).any(|at| match words.get(at..).unwrap_or_default() {
        ["SERVICE", "HOST"] | ["SERVICE", "PORT", ..] => true,
        ["PORT"] => at == 0 || is_address(),
        ["PORT", port, protocol] | ["PORT", port, protocol, "ADDR" | "PORT" | "PROTO"] => {
            is_number(port) && is_protocol(protocol)
        }
        _ => false,
    })
}

/// Returns the message for an unknown variable, with the nearest known name.
fn unknown(rest: &str) -> String {
    let known: Vec<(String, String)> = FLAGS
        .iter()
        .map(|flag| (*flag).to_owned())
        .chain(keys_of_file())
        // A single underscore is often written instead of two.
        .map(|name| (name.replace("__", "_"), name))
        .collect();
    let near = nearest(&rest.to_ascii_uppercase(), known.iter().map(|(plain, _)| plain.as_str()));
    let name = near.and_then(|near| known.iter().find(|(plain, _)| plain == near));
    match name {
        Some((_, name)) => format!("unknown variable; is {PREFIX}{name} meant?"),
        None => "unknown variable".to_owned(),
    }
}

/// Returns the variable names of all keys of the file, without their prefix. List items have index 0.
fn keys_of_file() -> Vec<String> {
    fn add(prefix: &str, table: &Table, found: &mut Vec<String>) {
        for (key, value) in table {
            let name = format!("{prefix}{}", key.to_ascii_uppercase());
            match value {
                Value::Table(inner) if !inner.is_empty() => add(&format!("{name}__"), inner, found),
                Value::Array(items) if items.iter().any(Value::is_table) => {
                    let tables = items.iter().filter_map(Value::as_table);
                    tables.for_each(|inner| add(&format!("{name}__0__"), inner, found));
                }
                _ => found.push(name),
            }
        }
    }
    let mut found = Vec::new();
    add("", &Table::try_from(File::with_one_of_each()).unwrap_or_default(), &mut found);
    found
}

impl Variable {
    /// Applies the value over what was read before. Tries it as TOML, then as text, then as a comma-separated list
    /// of texts.
    pub(super) fn apply(&self, merged: &mut Merged, folder: &Folder) {
        let name = variable_name(&self.steps);
        if let Err(why) = self.check_numbers(&merged.table) {
            return merged.mistakes.given(name, why);
        }
        let list = self.value.split(',').map(|one| Value::from(one.trim())).collect();
        let values = [
            self.value.parse::<Value>().ok(),
            Some(Value::from(self.value.as_str())),
            Some(Value::Array(list)),
        ];
        let mut wrong = None;
        for value in values.into_iter().flatten() {
            let mut alone = nested(&self.steps, value);
            folder.resolve(&mut alone);
            match accepts(&alone) {
                Ok(()) => return merged.apply(&path(&self.steps), &alone, &name),
                Err(error) => _ = wrong.get_or_insert(error),
            }
        }
        let why = wrong.map(|error| self.explain(error.message()));
        merged.mistakes.given(name, why.unwrap_or_default());
    }

    /// Fails unless exactly the lists of tables are indexed, without gaps.
    fn check_numbers(&self, table: &Table) -> Result<(), String> {
        for (at, step) in self.steps.iter().enumerate() {
            let (before, behind) = self.steps.split_at(at);
            let list = path(before);
            match step {
                Step::Item(n) if LISTS.contains(&list.as_str()) => {
                    if *n > length(table, &list) {
                        return Err(format!("there is no {list}[{}]; count from 0, without a gap", n - 1));
                    }
                }
                Step::Item(_) => return Err("unknown variable".to_owned()),
                Step::Key(_) if LISTS.contains(&list.as_str()) => {
                    let numbered = [before, &[Step::Item(0)], behind].concat();
                    return Err(format!("unknown variable; is {} meant?", variable_name(&numbered)));
                }
                Step::Key(_) => {}
            }
        }
        Ok(())
    }

    fn explain(&self, message: &str) -> String {
        let is_step =
            |key: &str| self.steps.iter().any(|step| matches!(step, Step::Key(name) if name == key));
        // Otherwise the unknown key is inside the value.
        let Some((key, known)) = unknown_key(message).filter(|(key, _)| is_step(key)) else {
            return explain(message, "key");
        };
        let Some(near) = nearest(key, known) else { return "unknown variable".to_owned() };
        let meant = |step: &Step| match step {
            Step::Key(name) if name == key => Step::Key(near.to_owned()),
            step => step.clone(),
        };
        let meant: Vec<_> = self.steps.iter().map(meant).collect();
        format!("unknown variable; is {} meant?", variable_name(&meant))
    }
}

/// Returns the number of tables in the list at this path; 0 if there is no list.
fn length(table: &Table, list: &str) -> usize {
    let mut keys = list.split('.');
    let value = keys.next().and_then(|key| table.get(key));
    let value = keys.fold(value, |value, key| value?.get(key));
    value.and_then(Value::as_array).map_or(0, Vec::len)
}

/// Wraps a value in the tables and lists of its path, so that it can be merged.
fn nested(steps: &[Step], value: Value) -> Table {
    let within = |value: Value, step: &Step| match step {
        Step::Key(key) => Value::Table(single(key, value)),
        Step::Item(n) => list_with(*n, value),
    };
    match steps.iter().rev().fold(value, within) {
        Value::Table(table) => table,
        _ => Table::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, value: &str) -> (usize, String) {
        let mut mistakes = Mistakes::default();
        let all = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        (keys(&all, &mut mistakes).len(), mistakes.to_string())
    }

    #[test]
    fn variables_of_others_pass() {
        for (name, value) in [
            ("SAMEWIRE_SERVICE_HOST", "10.0.0.1"),
            ("SAMEWIRE_SERVICE_PORT", "80"),
            ("SAMEWIRE_SERVICE_PORT_HTTP", "80"),
            ("SAMEWIRE_SERVICE_PORT_HTTP_ADMIN", "80"),
            ("SAMEWIRE_PORT", "tcp://10.0.0.1:80"),
            ("SAMEWIRE_PORT_8080_TCP", "tcp://10.0.0.1:80"),
            ("SAMEWIRE_PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("SAMEWIRE_PORT_8080_TCP_PORT", "80"),
            ("SAMEWIRE_PORT_53_UDP_PROTO", "udp"),
            ("SAMEWIRE_ADMIN_SERVICE_HOST", "10.0.0.1"),
            ("SAMEWIRE_ADMIN_PORT", "tcp://10.0.0.1:80"),
            ("SAMEWIRE_ADMIN_PORT_9090_TCP_ADDR", "10.0.0.1"),
            ("SAMEWIRE_TEST_SEED", "1"),
            ("SAMEWIRE_BIN", "x"),
            ("SAMEWIRE_CONFIG", "x"),
            ("SAMEWIRE_STORE", "memory"),
            ("OTHER_UPSTRAEM", "x"),
        ] {
            assert_eq!(found(name, value), (0, String::new()), "{name}");
        }
        for name in ["SAMEWIRE_LIMITS__MAX_TOOLS", "SAMEWIRE_ROOT_PATH", "SAMEWIRE_UPSTREAM__0__URL"] {
            assert_eq!(found(name, "1"), (1, String::new()), "{name}");
        }
    }

    #[test]
    fn near_variables_are_suggested() {
        for (name, near) in [
            ("SAMEWIRE_UPSTRAEM", "SAMEWIRE_UPSTREAM"),
            ("SAMEWIRE_LISTN", "SAMEWIRE_LISTEN"),
            ("SAMEWIRE_LOG_LEVL", "SAMEWIRE_LOG_LEVEL"),
            ("SAMEWIRE_Listen", "SAMEWIRE_LISTEN"),
            ("SAMEWIRE_TLS_CERT", "SAMEWIRE_TLS__CERT_FILE"),
            ("SAMEWIRE_UPSTREAM_0_NAME", "SAMEWIRE_UPSTREAM__0__NAME"),
        ] {
            let told = format!("{name}: unknown variable; is {near} meant?");
            assert_eq!(found(name, "CANARY"), (0, told), "{name}");
        }
        for name in ["SAMEWIRE_COLOUR", "SAMEWIRE_ADMIN_PORT", "SAMEWIRE_PORT_TCP"] {
            let (keys, told) = found(name, "9090");
            assert!(keys == 0 && told.starts_with(&format!("{name}: unknown variable")), "{told}");
        }
    }
}
