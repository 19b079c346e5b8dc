//! What is wrong with a configuration: all of it at once, each mistake with its path.

use std::fmt;
use strsim::levenshtein;

/// Mistakes in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(Vec<(String, String)>);

impl Mistakes {
    /// Only one.
    pub fn one(path: impl Into<String>, why: impl Into<String>) -> Self {
        Self(vec![(path.into(), why.into())])
    }

    /// One more.
    pub fn add(&mut self, path: impl Into<String>, why: impl Into<String>) {
        self.0.push((path.into(), why.into()));
    }

    /// Some more.
    pub(super) fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// One more, in the place of a value.
    pub(super) fn none<T>(&mut self, path: &str, why: impl Into<String>) -> Option<T> {
        self.add(path, why);
        None
    }

    /// The value, if there are no mistakes.
    pub(super) fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (path, why)) in self.0.iter().enumerate() {
            let separator = if n == 0 { "" } else { "\n" };
            write!(f, "{separator}{path}: {why}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// How serde ends what it says of a wrong type, and what people say.
const TYPES: [(&str, &str); 16] = [
    ("usize", "a whole number"),
    ("u32", "a whole number"),
    ("u64", "a whole number"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a string", "a text in quotes"),
    ("path string", "a text in quotes"),
    ("a sequence", "a list"),
    ("a map", "a table"),
    ("struct KeyFile", "a table; begin each key with [[auth.key]]"),
    ("struct ModelFile", "a table; begin each model with [[model]]"),
    ("struct UpstreamFile", "a table; begin each engine with [[upstream]]"),
    ("struct AuthFile", "a table; begin each key with [[auth.key]]"),
    ("struct StoreFile", "a table; say place = \"memory\" under [store]"),
    ("struct TlsFile", "a table; say cert_file = \"…\" under [tls]"),
    ("struct Options", "a table"),
];

/// Puts serde's words into ours: ``unknown field `x`, expected one of `a`, `b` `` becomes an unknown `noun` with the
/// nearest name, and types have the names that people give them. What stands in the place of a value is not told: it may
/// be a secret that went astray.
pub(super) fn explain(message: &str, noun: &str) -> String {
    let message = message.trim();
    if let Some((_, known)) =
        message.strip_prefix("unknown variant ").and_then(|rest| rest.rsplit_once(", expected "))
    {
        return format!("expected {known}");
    }
    let Some(rest) = message.strip_prefix("unknown field ") else {
        let wrong =
            message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
        let Some((found, expected)) = wrong.and_then(|wrong| wrong.rsplit_once(", expected ")) else {
            return message.to_owned();
        };
        let known = TYPES.iter().find(|(rust, _)| *rust == expected).map(|(_, plain)| *plain);
        let table = if expected.starts_with("struct ") { "a table" } else { expected };
        let expected = known.unwrap_or(table);
        // The kind of what was found, without itself.
        let kind = found.split(['`', '"']).next().unwrap_or("").trim();
        return match kind {
            "" => format!("expected {expected}"),
            "string" => format!("expected {expected}, found a text"),
            "sequence" => format!("expected {expected}, found a list"),
            "map" => format!("expected {expected}, found a table"),
            "integer" if message.starts_with("invalid value") => {
                format!("expected {expected}, found one that is below 0 or too large")
            }
            kind => format!("expected {expected}, found {kind}"),
        };
    };
    let mut quoted = rest.split('`').skip(1).step_by(2);
    let name = quoted.next().unwrap_or("");
    let steps = |known: &str| if known.starts_with(name) { 0 } else { levenshtein(name, known) };
    let near = quoted.map(|known| (steps(known), known)).min();
    match near {
        Some((steps, known)) if steps <= 1 + name.len() / 4 => format!("unknown {noun}; is {known} meant?"),
        _ => format!("unknown {noun}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested() {
        for (message, expected) in [
            ("unknown field `lisen`, expected one of `limits`, `listen`", "unknown key; is listen meant?"),
            ("unknown field `colour`, expected one of `limits`, `listen`", "unknown key"),
            ("invalid type: integer `1`, expected a string", "expected a text in quotes, found integer"),
            (
                "invalid type: string \"sk-1, expected a\", expected a sequence",
                "expected a list, found a text",
            ),
            ("invalid type: string \"a\", expected struct Other", "expected a table, found a text"),
            (
                "invalid value: integer `-1`, expected usize",
                "expected a whole number, found one that is below 0 or too large",
            ),
            ("must be more than 0", "must be more than 0"),
            ("unknown variant `sk-1`, expected `off` or `text`", "expected `off` or `text`"),
        ] {
            assert_eq!(explain(message, "key"), expected);
        }
    }
}
