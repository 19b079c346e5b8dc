//! Environment variables: `SAMEWIRE_<FLAG>` for each flag of `serve`, and `SAMEWIRE_<TABLE>__<KEY>` for each key
//! of the file.

use super::file::File;
use super::merged::{MergeStep, Merged, accepts, leaves, path, steps};
use super::mistakes::{Mistakes, explain, unknown_key};
use super::rows::{Flag, list};
use crate::nearest::nearest;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// Prefix of samewire's variables. A variable with this prefix must be a known one.
pub(super) const PREFIX: &str = "SAMEWIRE_";
/// Variables of flags that set no key, or several.
const FLAGS: [&str; 4] = ["CONFIG", "UPSTREAM", "ENGINE", "SET"];
/// Short name of a variable, and its flag.
const SHORT: (&str, &str) = ("SAMEWIRE_LOG", "log-level");
/// Variables of the build, of tests and of clients, which may be present in the environment of a server and are no
/// mistakes there.
const OTHERS: [&str; 5] = ["BIN", "CHROMIUM", "COMMIT", "DATE", "KEY"];
/// Prefixes of variables for tests and build facts; cargo passes them to the programs it runs.
const PREFIXES: [&str; 2] = ["TEST_", "BUILD_"];
/// Keys that are lists of tables, whose variables contain an index.
const LISTS: [&str; 3] = ["upstream", "model", "auth.key"];
/// Protocols in the variables that Kubernetes sets for the ports of a service.
const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];

/// Value of a key of the file, from a flag or a variable such as `SAMEWIRE_LIMITS__MAX_BODY_BYTES`.
#[derive(Clone, PartialEq)]
pub(super) struct Setting {
    steps: Vec<MergeStep>,
    /// Flag or variable that gives the value.
    by: String,
    /// Value, which may be a secret, in its possible readings.
    values: Vec<Value>,
}

/// Prints the name without the value, which may be a secret.
impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.by)
    }
}

/// Values of keys from one source, in the order in which they apply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EnvironmentSettings(pub(super) Vec<Setting>);

impl EnvironmentSettings {
    /// Returns the keys that variables set: those with a flag, then those with a path. Unknown names with our prefix are
    /// mistakes.
    pub(super) fn of_variables(all: &BTreeMap<String, String>, mistakes: &mut Mistakes) -> Self {
        let mut found = Vec::new();
        let flags = File::all_flags();
        for flag in &flags {
            let short = SHORT.0.to_owned();
            let names = std::iter::once(variable_of(flag.name))
                .chain((flag.name == SHORT.1).then_some(short));
            let Some((name, text)) = names.into_iter().find_map(|name| all.get_key_value(&name))
            else {
                continue;
            };
            match flag.read(text) {
                Ok(value) => found.push(Setting::new(&flag.key, name, value)),
                Err(why) => mistakes.given(name, why),
            }
        }
        found.extend(paths(all, &flags, mistakes));
        Self(found)
    }

    /// Returns a text and the flag or variable that gives it, if one sets this key.
    pub(super) fn text(&self, key: &str) -> Option<(&str, &str)> {
        let setting = self.0.iter().rfind(|setting| path(&setting.steps) == key)?;
        Some((&setting.by, setting.values.first()?.as_str()?))
    }

    /// Applies the values over what was read before.
    pub(super) fn apply(&self, merged: &mut Merged) {
        self.0.iter().for_each(|setting| setting.apply(merged));
    }
}

/// Adds the flags of all keys to a command.
impl Args for EnvironmentSettings {
    fn augment_args(command: Command) -> Command {
        command.args(File::all_flags().iter().map(Flag::argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for EnvironmentSettings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let setting = |flag: Flag| {
            Some(Setting::new(
                &flag.key,
                &format!("--{}", flag.name),
                flag.given(matches)?,
            ))
        };
        Ok(Self(
            File::all_flags().into_iter().filter_map(setting).collect(),
        ))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the step that a word of a variable's name means.
fn step(word: &str) -> MergeStep {
    word.parse().map_or_else(
        |_| MergeStep::Key(word.to_ascii_lowercase()),
        MergeStep::Item,
    )
}

fn variable_name(steps: &[MergeStep]) -> String {
    let words: Vec<_> = steps
        .iter()
        .map(|step| match step {
            MergeStep::Item(n) => n.to_string(),
            MergeStep::Key(key) => key.to_ascii_uppercase(),
        })
        .collect();
    format!("{PREFIX}{}", words.join("__"))
}

/// Returns the variable of a flag.
pub(super) fn variable_of(flag: &str) -> String {
    format!("{PREFIX}{}", flag.replace('-', "_").to_ascii_uppercase())
}

/// Returns the keys that variables set by their path. Unknown names with our prefix are mistakes.
fn paths(all: &BTreeMap<String, String>, flags: &[Flag], mistakes: &mut Mistakes) -> Vec<Setting> {
    let top = Table::try_from(File::default()).unwrap_or_default();
    let mut found = Vec::new();
    for (variable, value) in all {
        let Some(rest) = variable.strip_prefix(PREFIX) else {
            continue;
        };
        let is_flag =
            FLAGS.contains(&rest) || flags.iter().any(|flag| variable_of(flag.name) == *variable);
        let is_other =
            OTHERS.contains(&rest) || PREFIXES.iter().any(|prefix| rest.starts_with(prefix));
        if is_flag || variable == SHORT.0 || is_other || is_of_service(rest, value) {
            continue;
        }
        let is_upper = rest.bytes().all(|byte| !byte.is_ascii_lowercase());
        if is_upper && (rest.contains("__") || top.contains_key(&rest.to_ascii_lowercase())) {
            found.push(Setting::of_path(rest, value));
        } else {
            mistakes.given(variable, unknown(rest, flags));
        }
    }
    found.sort_by(|one, other| one.steps.cmp(&other.steps));
    found
}

/// Returns true if Kubernetes sets this variable for a service whose name is, or starts with, `samewire`.
fn is_of_service(rest: &str, value: &str) -> bool {
    let words: Vec<_> = rest.split('_').collect();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_protocol = |word: &str| {
        PROTOCOLS
            .iter()
            .any(|known| word.eq_ignore_ascii_case(known))
    };
    let is_address = || {
        value
            .split_once("://")
            .is_some_and(|(protocol, _)| PROTOCOLS.contains(&protocol))
    };
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
fn unknown(rest: &str, flags: &[Flag]) -> String {
    let flags = flags
        .iter()
        .map(|flag| variable_of(flag.name).replacen(PREFIX, "", 1));
    let known: Vec<(String, String)> = FLAGS
        .iter()
        .map(|flag| (*flag).to_owned())
        .chain(flags)
        .chain(keys_of_file())
        // A single underscore is often written instead of two.
        .map(|name| (name.replace("__", "_"), name))
        .collect();
    let near = nearest(
        &rest.to_ascii_uppercase(),
        known.iter().map(|(plain, _)| plain.as_str()),
    );
    let name = near.and_then(|near| known.iter().find(|(plain, _)| plain == near));
    match name {
        Some((_, name)) => format!("unknown variable; is {PREFIX}{name} meant?"),
        None => "unknown variable".to_owned(),
    }
}

/// Returns the variable names of all keys of the file, without their prefix. List items have index 0.
fn keys_of_file() -> Vec<String> {
    let all = Table::try_from(File::with_one_of_each()).unwrap_or_default();
    leaves(&all)
        .iter()
        .map(|(steps, _)| variable_name(steps).replacen(PREFIX, "", 1))
        .collect()
}

impl Setting {
    /// Creates the setting of a key that is in no list.
    pub(super) fn new(key: &str, by: &str, value: impl Into<Value>) -> Self {
        Self {
            steps: steps(key),
            by: by.to_owned(),
            values: vec![value.into()],
        }
    }

    /// Creates the setting of a variable's name, without its prefix. The value is read as TOML, else as text, else as a
    /// list of texts.
    fn of_path(name: &str, text: &str) -> Self {
        let steps: Vec<_> = name.split("__").map(step).collect();
        let values = text
            .parse()
            .ok()
            .into_iter()
            .chain([Value::from(text), list(text)])
            .collect();
        Self {
            by: variable_name(&steps),
            steps,
            values,
        }
    }

    /// Applies the first valid value over what was read before.
    fn apply(&self, merged: &mut Merged) {
        if let Err(why) = self.check_numbers(&merged.table) {
            return merged.mistakes.given(&self.by, why);
        }
        let mut wrong = None;
        for value in &self.values {
            match accepts(&self.steps, value) {
                Ok(()) => return merged.put(&self.steps, value.clone(), &self.by),
                Err(error) => _ = wrong.get_or_insert(error),
            }
        }
        let why = wrong.map(|error| self.explain(error.message()));
        merged.mistakes.given(&self.by, why.unwrap_or_default());
    }

    /// Fails unless exactly the lists of tables are indexed, without gaps.
    fn check_numbers(&self, table: &Table) -> Result<(), String> {
        for (at, step) in self.steps.iter().enumerate() {
            let (before, after) = self.steps.split_at(at);
            let list = path(before);
            match step {
                MergeStep::Item(n) if LISTS.contains(&list.as_str()) => {
                    if *n > length(table, &list) {
                        return Err(format!(
                            "there is no {list}[{}]; count from 0, without a gap",
                            n - 1
                        ));
                    }
                }
                MergeStep::Item(_) => return Err("unknown variable".to_owned()),
                MergeStep::Key(_) if LISTS.contains(&list.as_str()) => {
                    let numbered = [before, &[MergeStep::Item(0)], after].concat();
                    return Err(format!(
                        "unknown variable; is {} meant?",
                        variable_name(&numbered)
                    ));
                }
                MergeStep::Key(_) => {}
            }
        }
        Ok(())
    }

    fn explain(&self, message: &str) -> String {
        let is_step = |key: &str| {
            self.steps
                .iter()
                .any(|step| matches!(step, MergeStep::Key(name) if name == key))
        };
        // Otherwise the unknown key is inside the value.
        let Some((key, known)) = unknown_key(message).filter(|(key, _)| is_step(key)) else {
            return explain(message, "key");
        };
        let Some(near) = nearest(key, known) else {
            return "unknown variable".to_owned();
        };
        let meant = |step: &MergeStep| match step {
            MergeStep::Key(name) if name == key => MergeStep::Key(near.to_owned()),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, value: &str) -> (usize, String) {
        let mut mistakes = Mistakes::default();
        let all = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        (
            paths(&all, &File::all_flags(), &mut mistakes).len(),
            mistakes.to_string(),
        )
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
        for name in [
            "SAMEWIRE_LIMITS__MAX_TOOLS",
            "SAMEWIRE_ROOT_PATH",
            "SAMEWIRE_UPSTREAM__0__URL",
        ] {
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
        for name in [
            "SAMEWIRE_COLOUR",
            "SAMEWIRE_ADMIN_PORT",
            "SAMEWIRE_PORT_TCP",
        ] {
            let (keys, told) = found(name, "9090");
            assert!(
                keys == 0 && told.starts_with(&format!("{name}: unknown variable")),
                "{told}"
            );
        }
    }
}
