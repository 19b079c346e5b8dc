//! The three kinds of store, each empty for every test.

use samewire::store::{Caps, Error, Store, StoreLocation};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Store location that is empty at first and deleted at the end.
pub(crate) struct Fresh {
    pub(crate) place: StoreLocation,
    folder: Option<PathBuf>,
}

impl Fresh {
    pub(crate) async fn open(&self, caps: Caps) -> Store {
        self.try_open(caps).await.expect("the store opens")
    }

    pub(crate) async fn try_open(&self, caps: Caps) -> Result<Store, Error> {
        Store::open(&self.place, caps).await.map(|store| store.expect("a place"))
    }

    pub(crate) fn file(&self) -> &Path {
        let StoreLocation::Sqlite(path) = &self.place else { panic!("not a file") };
        path
    }

    pub(crate) fn url(&self) -> &str {
        let StoreLocation::Postgres(url) = &self.place else { panic!("not a server") };
        url
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

pub(crate) async fn memory() -> Fresh {
    Fresh { place: StoreLocation::Memory, folder: None }
}

/// Returns a number that no other test has.
fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) async fn sqlite() -> Fresh {
    let name = format!("store-{}-{}", std::process::id(), number());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    Fresh { place: StoreLocation::Sqlite(folder.join("responses.db")), folder: Some(folder) }
}

/// Creates a database.
pub(crate) async fn postgres() -> Fresh {
    Fresh { place: StoreLocation::Postgres(crate::postgres::database().await), folder: None }
}
