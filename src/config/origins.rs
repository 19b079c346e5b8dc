//! Origin of each key of a configuration: a line of the file, a flag, or an environment variable. Mistakes point
//! there.

use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Origin of a key's value, for the messages of mistakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Line of the file, counted from 1.
    Line(usize),
    /// Name of the flag or variable that overrides the file.
    Given(String),
}

/// Origins of all keys that were set, by their paths, such as `upstream[0].url`.
#[derive(Clone, Debug, Default)]
pub(super) struct Origins {
    /// Name of the file, if there is one.
    pub(super) file: Option<String>,
    written: BTreeMap<String, Origin>,
}

impl Origins {
    /// Records the lines of all keys of a file.
    ///
    /// # Errors
    /// Fails if the text is not TOML.
    pub(super) fn read(file: Option<&str>, text: &str) -> Result<Self, toml::de::Error> {
        let mut this = Self {
            file: file.map(str::to_owned),
            written: BTreeMap::new(),
        };
        let table = DeTable::parse(text)?;
        this.note_table("", table.get_ref(), &Lines::of(text));
        Ok(this)
    }

    fn note_table(&mut self, path: &str, table: &DeTable<'_>, lines: &Lines) {
        for (key, value) in table {
            let separator = if path.is_empty() { "" } else { "." };
            self.note(format!("{path}{separator}{}", key.get_ref()), value, lines);
        }
    }

    fn note(&mut self, path: String, value: &Spanned<DeValue<'_>>, lines: &Lines) {
        match value.get_ref() {
            DeValue::Table(table) => self.note_table(&path, table, lines),
            DeValue::Array(items) => {
                for (n, item) in items.iter().enumerate() {
                    self.note(format!("{path}[{n}]"), item, lines);
                }
            }
            _ => {}
        }
        // A key is on the line on which its value begins; the span of a table is its header.
        self.written
            .insert(path, Origin::Line(lines.line(value.span().start)));
    }

    /// Records that a flag or variable sets a key, including everything below it.
    pub(super) fn give(&mut self, path: &str, by: &str) {
        let is_within = |known: &str| {
            known
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.written.retain(|known, _| !is_within(known));
        self.written
            .insert(path.to_owned(), Origin::Given(by.to_owned()));
    }

    /// Returns the origin of a key, or of the nearest table around it.
    pub(super) fn of(&self, path: &str) -> Option<&Origin> {
        let mut path = path;
        loop {
            if let Some(origin) = self.written.get(path) {
                return Some(origin);
            }
            path = path.get(..path.rfind(['.', '['])?)?;
        }
    }

    /// Returns true if exactly this key was set, in the file, by a flag or by a variable.
    pub(super) fn has(&self, path: &str) -> bool {
        self.written.contains_key(path)
    }
}

/// Byte offsets of line ends in a text, in ascending order.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// Returns the number of the line that contains this byte, counted from 1.
    fn line(&self, at: usize) -> usize {
        self.0.partition_point(|end| *end < at) + 1
    }
}

/// Returns the line of a TOML syntax error, counted from 1.
pub(super) fn line_of(error: &toml::de::Error, text: &str) -> usize {
    Lines::of(text).line(error.span().map_or(0, |span| span.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_lines() {
        let text = "listen = \"a\"\n\n[limits]\nmax_tools = 1\nwire.x = 2\n[[upstream]]\nurl = \"a\"\n# more\n[[upstream]]\n\
                    models = [\n  \"a\",\n  \"b\",\n]\nwire = { parser = \"x\" }\n[wire.think]\nmode = \"off\"\n";
        let mut origins = Origins::read(Some("f"), text).unwrap();
        for (path, line) in [
            ("listen", 1),
            ("limits", 3),
            ("limits.max_tools", 4),
            ("limits.other", 3),
            ("limits.wire.x", 5),
            ("upstream", 6),
            ("upstream[0]", 6),
            ("upstream[0].url", 7),
            ("upstream[1].url", 9),
            ("upstream[1].models[1]", 12),
            ("upstream[1].wire.parser", 14),
            ("wire.think.mode", 16),
            ("wire.think.end", 15),
            ("wire.parser", 15),
        ] {
            assert_eq!(origins.of(path), Some(&Origin::Line(line)), "{path}");
        }
        assert_eq!(origins.of("store.place"), None);
        origins.give("upstream", "--upstream");
        assert_eq!(
            origins.of("upstream[1].url"),
            Some(&Origin::Given("--upstream".to_owned()))
        );
        assert_eq!(origins.of("limits.max_tools"), Some(&Origin::Line(4)));
        assert!(origins.has("limits.max_tools") && !origins.has("limits.other"));
    }
}
