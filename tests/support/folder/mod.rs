//! Temporary folders of tests.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Temporary folder of one test, deleted when dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates an empty folder.
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // A test that is killed leaves its folder, and a later process may have the same id.
        loop {
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("samewire-test-{}-{n}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match std::fs::create_dir(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => {
                    made.expect("the temporary folder is writable");
                    return Self(path);
                }
            }
        }
    }

    /// Path of the folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file as tools do: replaced atomically, readable by its owner only, as samewire requires of files with
    /// secrets.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, next) = (self.path(name), self.path(&format!("{name}.next")));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&next);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .expect("the folder is writable");
        std::fs::rename(&next, &path).expect("the folder is writable");
        path
    }

    /// Writes a file that everybody may read, in folders that are made, and returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::write(&path, text))
            .expect("the folder is writable");
        path.into_os_string().into_string().expect("UTF-8")
    }

    /// Writes a key to a file, and returns the setting of an upstream that gets this key.
    pub fn key(&self, key: &str) -> String {
        format!("api_key_file = {:?}", self.write("key", key))
    }

    /// Returns the place of a store in this folder.
    pub fn store(&self) -> String {
        format!("sqlite:{}", self.path("store.db").display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
