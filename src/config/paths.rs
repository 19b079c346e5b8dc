//! Paths in a configuration: those of a file are relative to its folder, those of flags and variables to the working
//! directory. Both become absolute, so that what `check` prints means the same in another folder.

use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// What a path is relative to; nothing: it stays as it is written.
#[derive(Clone, Debug, Default)]
pub(super) struct Folder(Option<PathBuf>);

impl Folder {
    /// The folder of a configuration file.
    pub(super) fn of(file: &Path) -> Self {
        Self(std::path::absolute(file).ok().and_then(|file| Some(file.parent()?.to_path_buf())))
    }

    /// The working directory.
    pub(super) fn working() -> Self {
        Self(std::env::current_dir().ok())
    }

    /// Makes the paths of a configuration absolute: the values of keys that end in `_file`, and the store's place.
    pub(super) fn resolve(&self, table: &mut Table) {
        let Some(folder) = &self.0 else { return };
        let store = table.get_mut("store").and_then(Value::as_table_mut);
        if let Some(Value::String(place)) = store.and_then(|store| store.get_mut("place")) {
            *place = absolute_place(folder, place);
        }
        files(folder, table);
    }

    /// Makes the path in a store's place absolute.
    pub(super) fn place(&self, place: &str) -> String {
        self.0.as_deref().map_or_else(|| place.to_owned(), |folder| absolute_place(folder, place))
    }
}

fn files(folder: &Path, table: &mut Table) {
    for (key, value) in table.iter_mut() {
        match value {
            Value::String(path) if key.ends_with("_file") => *path = absolute(folder, path),
            // Members of requests are named by clients.
            Value::Table(inner) if key != "defaults" => files(folder, inner),
            Value::Array(items) => {
                items.iter_mut().filter_map(Value::as_table_mut).for_each(|item| files(folder, item));
            }
            _ => {}
        }
    }
}

/// An empty path names no file. A folder whose name is no text cannot stand before one.
fn absolute(folder: &Path, path: &str) -> String {
    let joined = folder.join(path);
    joined.to_str().filter(|_| !path.is_empty()).unwrap_or(path).to_owned()
}

/// `sqlite:PATH`, and `sslrootcert=FILE` in the address of a server; `system` there is a word of libpq.
fn absolute_place(folder: &Path, place: &str) -> String {
    if let Some(path) = place.strip_prefix("sqlite:") {
        return format!("sqlite:{}", absolute(folder, path));
    }
    let Some((address, query)) = place.split_once('?') else { return place.to_owned() };
    let pairs = query.split('&').map(|pair| match pair.strip_prefix("sslrootcert=") {
        Some("system") | None => pair.to_owned(),
        Some(written) => {
            let plain = written.replace('+', "%2B");
            let (path, _) = form_urlencoded::parse(plain.as_bytes()).next().unwrap_or_default();
            if Path::new(&*path).is_absolute() {
                return pair.to_owned();
            }
            let path = absolute(folder, &path);
            let encoded: String = form_urlencoded::byte_serialize(path.as_bytes()).collect();
            // The reader takes a plus for itself.
            format!("sslrootcert={}", encoded.replace('+', "%20").replace("%2F", "/"))
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
        let folder = Folder::of(Path::new("/a b/c.toml"));
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
            ("postgres://h/d?sslrootcert=%2Fca+1.pem", "postgres://h/d?sslrootcert=%2Fca+1.pem"),
            ("postgres://h/d?sslrootcert=c+d", "postgres://h/d?sslrootcert=/a%20b/c%2Bd"),
            ("postgres://h/d?sslrootcert=system", "postgres://h/d?sslrootcert=system"),
        ] {
            assert_eq!(folder.place(place), expected);
        }
    }
}
