//! Mistakes in a configuration: all of them at once, each with its location.
//!
//! A mistake first contains its key. [`Mistakes::located`] then adds the line in the file, or the flag or variable
//! that set the key.

use super::origins::{Origin, Origins};
use crate::nearest::{nearest, suggest};
use std::fmt;

/// Mistakes of a configuration, in the order of the file. Printed with one line for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mistake {
    place: Location,
    why: String,
}

/// Location of a mistake: first a key, later the line, flag or variable that set it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Location {
    /// Path of a key, such as `upstream[0].url`.
    Key(String),
    /// Name of a flag or variable, or of a file as a whole.
    Given(String),
    /// Line of a file, and the key there. Without a line: the key is missing in the file. With an empty key: the
    /// line is not valid TOML.
    Line {
        file: String,
        line: Option<usize>,
        key: String,
    },
}

impl Mistakes {
    /// Creates a list of one mistake, about a key, for checks that find a single problem.
    pub fn one(path: impl Into<String>, why: impl Into<String>) -> Self {
        let mut this = Self::default();
        this.add(path, why);
        this
    }

    /// Adds a mistake about a key, unless the list already contains the same.
    pub fn add(&mut self, path: impl Into<String>, why: impl Into<String>) {
        self.push(Location::Key(path.into()), why.into());
    }

    /// Adds a mistake about a flag, a variable or a whole file.
    pub(super) fn given(&mut self, by: impl Into<String>, why: impl Into<String>) {
        self.push(Location::Given(by.into()), why.into());
    }

    /// Creates a list of one syntax error. Without a file name, it refers to the text.
    pub(super) fn syntax(file: Option<&str>, line: usize, why: &str) -> Self {
        let place = match file {
            Some(file) => Location::Line {
                file: file.to_owned(),
                line: Some(line),
                key: String::new(),
            },
            None => Location::Given(format!("the configuration, line {line}")),
        };
        Self(vec![Mistake {
            place,
            why: why.to_owned(),
        }])
    }

    fn push(&mut self, place: Location, why: String) {
        let mistake = Mistake { place, why };
        // A flag may set several keys, which would repeat the mistake.
        if !self.0.contains(&mistake) {
            self.0.push(mistake);
        }
    }

    /// Adds the mistakes of another list, without repetitions.
    pub(super) fn extend(&mut self, more: Self) {
        more.0
            .into_iter()
            .for_each(|mistake| self.push(mistake.place, mistake.why));
    }

    /// Adds a mistake about a key, and returns `None` in place of the value.
    pub(super) fn add_none<T>(&mut self, path: &str, why: impl Into<String>) -> Option<T> {
        self.add(path, why);
        None
    }

    /// Returns the value if there are no mistakes, else the mistakes.
    pub(super) fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }

    /// Keeps only the mistakes about a table and the keys in it.
    pub(super) fn below(self, table: &str) -> Self {
        let is_below = |key: &str| {
            key.strip_prefix(table)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let kept = self
            .0
            .into_iter()
            .filter(|mistake| matches!(&mistake.place, Location::Key(key) if is_below(key)));
        Self(kept.collect())
    }

    /// Returns the mistakes with the locations of their keys, in the order of the file.
    pub(super) fn located(self, origins: &Origins) -> Self {
        let mut this = Self::default();
        for Mistake { place, why } in self.0 {
            let place = match place {
                Location::Key(key) => match (origins.of(&key), &origins.file) {
                    (Some(Origin::Given(by)), _) => Location::Given(by.clone()),
                    (_, None) => Location::Key(key),
                    (Some(Origin::Line(line)), Some(file)) => Location::Line {
                        file: file.clone(),
                        line: Some(*line),
                        key,
                    },
                    (None, Some(file)) => Location::Line {
                        file: file.clone(),
                        line: None,
                        key,
                    },
                },
                place => place,
            };
            this.push(place, why);
        }
        this.0.sort_by_key(|mistake| match mistake.place {
            Location::Line {
                line: Some(line), ..
            } => line,
            _ => usize::MAX,
        });
        this
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(place) | Self::Given(place) => f.write_str(place),
            Self::Line { file, line, key } => {
                f.write_str(file)?;
                if let Some(line) = line {
                    write!(f, ":{line}")?;
                }
                if key.is_empty() {
                    Ok(())
                } else {
                    write!(f, ": {key}")
                }
            }
        }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, Mistake { place, why }) in self.0.iter().enumerate() {
            let separator = if n == 0 { "" } else { "\n" };
            write!(f, "{separator}{place}: {why}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// Values of a boolean key, for messages.
const SWITCH: &str = "true or false";

/// Serde's names of types in its messages, with plain words for each.
const TYPES: [(&str, &str); 20] = [
    ("usize", "a whole number"),
    ("u32", "a whole number"),
    ("i32", "a whole number"),
    ("u64", "a whole number"),
    ("f64", "a number"),
    ("a boolean", SWITCH),
    ("a string", "a text in quotes"),
    ("path string", "a text in quotes"),
    ("string only", "a text in quotes"),
    ("a sequence", "a list"),
    ("a map", "a table"),
    (
        "struct KeyFile",
        "a table; begin each key with [[auth.key]]",
    ),
    (
        "struct ModelFile",
        "a table; begin each model with [[model]]",
    ),
    (
        "struct TargetFile",
        "a table such as { model = \"…\", weight = 95 }",
    ),
    (
        "struct UpstreamFile",
        "a table; begin each engine with [[upstream]]",
    ),
    (
        "struct McpFile",
        "a table; begin each server with [[tools.mcp]]",
    ),
    (
        "struct AuthFile",
        "a table; begin each key with [[auth.key]]",
    ),
    (
        "struct StoreFile",
        "a table; say place = \"memory\" under [store]",
    ),
    (
        "struct TlsFile",
        "a table; say cert_file = \"…\" under [tls]",
    ),
    ("struct Options", "a table"),
];

/// Keys that earlier builds knew, each with its replacement.
const REMOVED: [(&str, &str); 1] = [(
    "contract",
    "[contract] is gone; `samewire conform` tests a server from outside",
)];

/// Returns the unknown key and the known ones from serde's message about an unknown field; `None` for other
/// messages.
pub(super) fn unknown_key(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.trim().strip_prefix("unknown field ")?;
    let mut quoted = rest.split('`').skip(1).step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

/// Translates serde's message: ``unknown field `x`, expected one of `a`, `b` `` becomes an unknown `noun` with the
/// nearest name, and types get plain names. The wrong value itself is not repeated, since it may be a misplaced
/// secret.
pub(super) fn explain(message: &str, noun: &str) -> String {
    let message = message.trim();
    if let Some((name, known)) = unknown_key(message) {
        return match REMOVED.iter().find(|(removed, _)| *removed == name) {
            Some((_, replacement)) => format!("unknown {noun}: {replacement}"),
            None => suggest(format!("unknown {noun}"), name, known),
        };
    }
    if let Some((found, known)) = message
        .strip_prefix("unknown variant ")
        .and_then(|rest| rest.rsplit_once(", expected "))
    {
        let names = known.split('`').skip(1).step_by(2);
        return suggest(format!("expected {known}"), found.trim_matches('`'), names);
    }
    let wrong = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, expected)) = wrong.and_then(|wrong| wrong.rsplit_once(", expected ")) else {
        return message.to_owned();
    };
    let known = TYPES
        .iter()
        .find(|(rust, _)| *rust == expected)
        .map(|(_, plain)| *plain);
    let table = if expected.starts_with("struct ") {
        "a table"
    } else {
        expected
    };
    let expected = known.unwrap_or(table);
    // Kind of the value found, without the value.
    let (kind, rest) = found.split_once(['`', '"']).unwrap_or((found, ""));
    match kind.trim() {
        // The second is the TOML reader's name for whatever is neither a text nor a table.
        "" | "unit variant" => format!("expected {expected}"),
        "string" if expected == SWITCH => {
            let word = rest.trim_end_matches('"');
            let meant = match nearest(word, ["true", "false"]) {
                Some(near) if near == word => format!("; is {near} meant, without quotes?"),
                Some(near) => format!("; is {near} meant?"),
                None => String::new(),
            };
            format!("expected {expected}, found a text{meant}")
        }
        "string" => format!("expected {expected}, found a text"),
        "sequence" => format!("expected {expected}, found a list"),
        "map" => format!("expected {expected}, found a table"),
        "integer" if message.starts_with("invalid value") => {
            format!("expected {expected}, found one that is below 0 or too large")
        }
        kind => format!("expected {expected}, found {kind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested() {
        for (message, expected) in [
            (
                "unknown field `lisen`, expected one of `limits`, `listen`",
                "unknown key; is listen meant?",
            ),
            (
                "unknown field `colour`, expected one of `limits`, `listen`",
                "unknown key",
            ),
            (
                "invalid type: integer `1`, expected a string",
                "expected a text in quotes, found integer",
            ),
            (
                "invalid type: string \"sk-1, expected a\", expected a sequence",
                "expected a list, found a text",
            ),
            (
                "invalid type: string \"a\", expected struct Other",
                "expected a table, found a text",
            ),
            (
                "invalid value: integer `-1`, expected usize",
                "expected a whole number, found one that is below 0 or too large",
            ),
            (
                "invalid type: unit variant, expected string only",
                "expected a text in quotes",
            ),
            ("must be more than 0", "must be more than 0"),
            (
                "unknown variant `sk-1`, expected `off` or `text`",
                "expected `off` or `text`",
            ),
            (
                "unknown variant `txet`, expected `off` or `text`",
                "expected `off` or `text`; is text meant?",
            ),
            (
                "invalid type: string \"ture\", expected a boolean",
                "expected true or false, found a text; is true meant?",
            ),
            (
                "invalid type: string \"false\", expected a boolean",
                "expected true or false, found a text; is false meant, without quotes?",
            ),
        ] {
            assert_eq!(explain(message, "key"), expected);
        }
    }
}
