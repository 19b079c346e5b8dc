//! Tables of the configuration file, with one row for each key.
//!
//! Takes: rows, such as `threads: usize = 0, fixed, flag("threads", "N", "Threads that serve");`. Gives: the struct that
//! serde reads and writes, its defaults, its range checks, its flags, and the keys that need a restart.

use super::mistakes::Mistakes;
use super::values::Seconds;
use crate::nearest::suggest;
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use std::fmt::Display;
use toml::Value;

/// Declares a table of the file: its doc comment, its name, and its keys with type, default and properties. Its user
/// imports this module as `rows`.
///
/// `as "read_size"` after a type names the function that deserializes it. Without a default, a key has that of its type.
/// A property is one of:
/// - `within(LEAST, MOST)`, `from(LEAST, MOST)`, `positive`: the valid range, with the message of the function here;
/// - `fixed`: a change needs a restart;
/// - `flag(NAME, VALUE, HELP)`: `serve` and `check` have a flag for it, and the environment a variable;
/// - `table`: the value is itself such a table, or a list of them.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident {
        $($key:ident: $type:ty $(as $read:literal)? $(= $default:expr)? $(, $property:ident $(($($argument:expr),+))?)*;)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
        #[serde(default, deny_unknown_fields)]
        #[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
        pub struct $name {
            $($(#[serde(deserialize_with = $read)])? pub $key: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: table!(@default $($default)?),)+ }
            }
        }

        impl rows::Rows for $name {
            fn check(&self, table: &str, mistakes: &mut $crate::config::Mistakes) {
                let _ = (table, &mistakes);
                $($(table!(@check $property (self, $key, table, mistakes) $($($argument)+)?);)*)+
            }

            fn restore(&mut self, before: &Self, table: &str, kept: &mut Vec<String>) {
                let _ = (before, table, &kept);
                $($(table!(@restore $property (self, $key, table, before, kept));)*)+
            }

            fn flags(table: &str, found: &mut Vec<rows::Flag>) {
                let _ = (table, &found);
                $($(table!(@flags $property ($key, $type, table, found) $($($argument)+)?);)*)+
            }
        }
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@check table ($this:ident, $key:ident, $table:ident, $mistakes:ident)) => {
        rows::Rows::check(&$this.$key, &rows::join($table, stringify!($key)), $mistakes)
    };
    (@check fixed $row:tt) => {};
    (@check flag $row:tt $($argument:expr)+) => {};
    (@check $range:ident ($this:ident, $key:ident, $table:ident, $mistakes:ident) $($bound:expr)*) => {
        if let Some(why) = rows::$range(&$this.$key $(, $bound)*) {
            $mistakes.add(rows::join($table, stringify!($key)), why);
        }
    };
    (@restore table ($this:ident, $key:ident, $table:ident, $before:ident, $kept:ident)) => {
        rows::Rows::restore(&mut $this.$key, &$before.$key, &rows::join($table, stringify!($key)), $kept)
    };
    (@restore fixed ($this:ident, $key:ident, $table:ident, $before:ident, $kept:ident)) => {
        rows::keep(&mut $this.$key, &$before.$key, &rows::join($table, stringify!($key)), $kept)
    };
    (@restore $other:ident $row:tt) => {};
    (@flags table ($key:ident, $type:ty, $table:ident, $found:ident)) => {
        <$type as rows::Rows>::flags(&rows::join($table, stringify!($key)), $found)
    };
    (@flags flag ($key:ident, $type:ty, $table:ident, $found:ident) $name:literal $value:literal $help:literal) => {{
        let default = toml::Value::try_from(Self::default().$key).ok();
        let key = rows::join($table, stringify!($key));
        $found.push(rows::Flag { name: $name, key, default, value: $value, help: $help })
    }};
    (@flags $other:ident $row:tt $($argument:expr)*) => {};
}
pub(super) use table;

/// Table of the file, or a list of tables.
pub(super) trait Rows: Sized {
    /// Reports values outside their valid range. `table`: its path, empty for the file.
    fn check(&self, table: &str, mistakes: &mut Mistakes);

    /// Restores the keys that need a restart, and notes those that differ.
    fn restore(&mut self, _before: &Self, _table: &str, _kept: &mut Vec<String>) {}

    /// Collects the flags of the keys.
    fn flags(_table: &str, _found: &mut Vec<Flag>) {}
}

impl<T: Rows> Rows for Vec<T> {
    fn check(&self, table: &str, mistakes: &mut Mistakes) {
        let items = self.iter().enumerate();
        items.for_each(|(at, item)| item.check(&format!("{table}[{at}]"), mistakes));
    }
}

/// Flag of `serve` and `check` that sets a key of the file; also a variable, `SAMEWIRE_` and its name.
#[derive(Clone, Debug)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    /// Path of the key.
    pub(super) key: String,
    /// Default of the key, which has the type of its values.
    pub(super) default: Option<Value>,
    /// Name of the value in the help; empty for a switch.
    pub(super) value: &'static str,
    pub(super) help: &'static str,
}

impl Flag {
    /// Returns the flag for a command. Its help names a default that is a text.
    pub(super) fn argument(&self) -> Arg {
        let argument = Arg::new(self.name).long(self.name).help(self.help);
        match &self.default {
            Some(Value::Boolean(_)) => argument.action(ArgAction::SetTrue),
            Some(Value::Integer(_)) => argument
                .value_name(self.value)
                .value_parser(value_parser!(usize)),
            Some(Value::String(text)) => argument
                .value_name(self.value)
                .help(format!("{} [default: {text}]", self.help)),
            _ => argument.value_name(self.value).action(ArgAction::Append),
        }
    }

    /// Returns the value that a command line gives; `None` without the flag.
    pub(super) fn given(&self, matches: &ArgMatches) -> Option<Value> {
        match &self.default {
            Some(Value::Boolean(_)) => matches.get_flag(self.name).then_some(Value::Boolean(true)),
            Some(Value::Integer(_)) => matches
                .get_one::<usize>(self.name)
                .map(|number| integer(*number)),
            Some(Value::String(_)) => matches
                .get_one::<String>(self.name)
                .cloned()
                .map(Value::String),
            _ => {
                let all = matches
                    .get_many::<String>(self.name)?
                    .cloned()
                    .map(Value::String);
                Some(Value::Array(all.collect()))
            }
        }
    }

    /// Reads the value of the flag's variable.
    pub(super) fn read(&self, text: &str) -> Result<Value, String> {
        match &self.default {
            Some(Value::Boolean(_)) => match text {
                "true" | "1" => Ok(Value::Boolean(true)),
                "false" | "0" => Ok(Value::Boolean(false)),
                word => Err(suggest(
                    "must be true or false".to_owned(),
                    word,
                    ["true", "false"],
                )),
            },
            Some(Value::Integer(_)) => text
                .parse()
                .map(integer)
                .map_err(|_| "must be a whole number".to_owned()),
            Some(Value::String(_)) => Ok(Value::from(text)),
            _ => Ok(list(text)),
        }
    }
}

fn integer(number: usize) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Returns the texts between commas.
pub(super) fn list(text: &str) -> Value {
    Value::Array(text.split(',').map(|one| Value::from(one.trim())).collect())
}

/// Returns the path of a key in a table.
pub(super) fn join(table: &str, key: &str) -> String {
    if table.is_empty() {
        key.to_owned()
    } else {
        format!("{table}.{key}")
    }
}

/// Restores the value of a key that needs a restart, and notes the key if it differs.
pub(super) fn keep<T: Clone + PartialEq>(
    now: &mut T,
    before: &T,
    key: &str,
    kept: &mut Vec<String>,
) {
    if now != before {
        now.clone_from(before);
        kept.push(key.to_owned());
    }
}

/// Returns what is wrong with a value outside a range, by the bound that it violates.
pub(super) fn within<T: PartialOrd + Display>(value: &T, least: T, most: T) -> Option<String> {
    if *value < least {
        Some(format!("must be at least {least}"))
    } else {
        (*value > most).then(|| format!("must be at most {most}"))
    }
}

/// Returns what is wrong with a value outside a range, by both bounds.
pub(super) fn from<T: PartialOrd + Display>(value: &T, least: T, most: T) -> Option<String> {
    (*value < least || *value > most).then(|| format!("must be from {least} to {most}"))
}

/// Returns what is wrong with a time of zero. The upper bound, a year, is checked when [`Seconds`] are read.
pub(super) fn positive(value: &Seconds) -> Option<&'static str> {
    value.is_zero().then_some("must be more than 0")
}
