//! Paths in a configuration: those in a file are relative to its folder, those in flags and variables to the
//! working directory. Both become absolute, so that the output of `check` is valid in any folder.

use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Base folder of relative paths; `None`: paths stay as they are, as for configurations from text.
#[derive(Clone, Debug, Default)]
pub(super) struct Folder(Option<PathBuf>);

impl Folder {
    /// Returns the folder of a configuration file, as an absolute path.
    pub(super) fn of(file: &Path) -> Self {
        Self(
            std::path::absolute(file)
                .ok()
                .and_then(|file| Some(file.parent()?.to_path_buf())),
        )
    }

    /// Returns the working directory, the base of paths in flags and variables.
    pub(super) fn working() -> Self {
        Self(std::env::current_dir().ok())
    }

    /// Makes the paths in a configuration absolute: the values of keys that end in `_file`, and the path in the
    /// store's place.
    pub(super) fn resolve(&self, table: &mut Table) {
        let Some(folder) = &self.0 else { return };
        let store = table.get_mut("store").and_then(Value::as_table_mut);
        if let Some(Value::String(place)) = store.and_then(|store| store.get_mut("place")) {
            *place = absolute_place(folder, place);
        }
        files(folder, table);
    }
}

fn files(folder: &Path, table: &mut Table) {
    for (key, value) in table.iter_mut() {
        match value {
            Value::String(path) if key.ends_with("_file") => *path = absolute(folder, path),
            // The members of `defaults` belong to requests, so their names mean nothing here.
            Value::Table(inner) if key != "defaults" => files(folder, inner),
            Value::Array(items) => {
                items
                    .iter_mut()
                    .filter_map(Value::as_table_mut)
                    .for_each(|item| files(folder, item));
            }
            _ => {}
        }
    }
}

/// Returns the path relative to the folder as an absolute one. Keeps an empty path, and any path if the folder's
/// name is not UTF-8.
fn absolute(folder: &Path, path: &str) -> String {
    let joined = folder.join(path);
    joined
        .to_str()
        .filter(|_| !path.is_empty())
        .unwrap_or(path)
        .to_owned()
}

/// Resolves the path in `sqlite:PATH`, or in `sslrootcert=FILE` of a server's address, where `system` is a keyword
/// of libpq.
fn absolute_place(folder: &Path, place: &str) -> String {
    if let Some(path) = place.strip_prefix("sqlite:") {
        return format!("sqlite:{}", absolute(folder, path));
    }
    let Some((address, query)) = place.split_once('?') else {
        return place.to_owned();
    };
    let pairs = query
        .split('&')
        .map(|pair| match pair.strip_prefix("sslrootcert=") {
            Some("system") | None => pair.to_owned(),
            Some(written) => {
                let plain = written.replace('+', "%2B");
                let (path, _) = form_urlencoded::parse(plain.as_bytes())
                    .next()
                    .unwrap_or_default();
                if Path::new(&*path).is_absolute() {
                    return pair.to_owned();
                }
                let path = absolute(folder, &path);
                let encoded: String = form_urlencoded::byte_serialize(path.as_bytes()).collect();
                // Readers of the address do not decode `+` as a space.
                format!(
                    "sslrootcert={}",
                    encoded.replace('+', "%20").replace("%2F", "/")
                )
            }
        });
    format!("{address}?{}", pairs.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute() {
        let folder = Folder::of(Path::new("/etc/samewire/samewire.toml"));
        let text = "[tls]\ncert_file = \"tls.crt\"\nkey_file = \"/run/tls.key\"\nclient_ca_file = \"\"\n[store]\nplace = \"sqlite:a.db\"\n\
                    [[upstream]]\nurl = \"a\"\napi_key_file = \"../key\"\n[[model]]\ndefaults = { a_file = \"x\" }\n";
        let mut table: Table = text.parse().unwrap();
        folder.resolve(&mut table);
        let expected = text
            .replace("\"tls.crt\"", "\"/etc/samewire/tls.crt\"")
            .replace("sqlite:a.db", "sqlite:/etc/samewire/a.db")
            .replace("../key", "/etc/samewire/../key");
        assert_eq!(table, expected.parse().unwrap());
        let mut same: Table = text.parse().unwrap();
        Folder::default().resolve(&mut same);
        assert_eq!(same, text.parse().unwrap());
    }

    #[test]
    fn places_of_stores() {
        for (place, expected) in [
            ("memory", "memory"),
            ("sqlite:x.db", "sqlite:/a b/x.db"),
            ("sqlite:/x.db", "sqlite:/x.db"),
            ("sqlite:", "sqlite:"),
            ("postgres://u:p@h/d", "postgres://u:p@h/d"),
            (
                "postgres://h/d?sslmode=verify-full&sslrootcert=ca.pem",
                "postgres://h/d?sslmode=verify-full&sslrootcert=/a%20b/ca.pem",
            ),
            (
                "postgres://h/d?sslrootcert=%2Fca+1.pem",
                "postgres://h/d?sslrootcert=%2Fca+1.pem",
            ),
            (
                "postgres://h/d?sslrootcert=c+d",
                "postgres://h/d?sslrootcert=/a%20b/c%2Bd",
            ),
            (
                "postgres://h/d?sslrootcert=system",
                "postgres://h/d?sslrootcert=system",
            ),
        ] {
            assert_eq!(absolute_place(Path::new("/a b"), place), expected);
        }
    }
}
