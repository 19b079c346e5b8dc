//! The three kinds of store, each empty for every test, and the macro that runs a test with each.

use crate::folder::Folder;
use samewire::store::{Store, StoreCaps, StoreError, StoreLocation};
use std::path::Path;
use std::time::Duration;

/// Runs each function, given a store with these caps, as a test for each kind of store.
macro_rules! in_each_place {
    ($caps:expr, $($test:ident),* $(,)?) => {
        in_each_place!(@ memory, $caps, $($test),*);
        in_each_place!(@ sqlite, $caps, $($test),*);
        in_each_place!(@ postgres, $caps, $($test),*);
    };
    (@ $place:ident, $caps:expr, $($test:ident),*) => {
        mod $place {
            $(
                #[tokio::test]
                async fn $test() {
                    let place = crate::places::$place().await;
                    super::$test(&place.open($caps).await).await;
                }
            )*
        }
    };
}
pub(crate) use in_each_place;

/// Limits that no test reaches: everything fits, for an hour.
pub(crate) const ROOMY: StoreCaps = StoreCaps {
    bytes: 64 << 20,
    records: 10_000,
    record_bytes: 1 << 20,
    ..StoreCaps::MEMORY
};

/// Opens a store whose operations may take long, since other programs may take the processor.
pub(crate) async fn opened(place: &StoreLocation, caps: StoreCaps) -> Result<Store, StoreError> {
    let caps = StoreCaps {
        deadline: Duration::from_secs(30),
        ..caps
    };
    Ok(Store::open(place, caps).await?.expect("a place"))
}

/// Store location that is empty at first and deleted at the end.
pub(crate) struct Fresh {
    pub(crate) place: StoreLocation,
    _folder: Option<Folder>,
}

impl Fresh {
    pub(crate) async fn open(&self, caps: StoreCaps) -> Store {
        self.try_open(caps).await.expect("the store opens")
    }

    pub(crate) async fn try_open(&self, caps: StoreCaps) -> Result<Store, StoreError> {
        opened(&self.place, caps).await
    }

    pub(crate) fn file(&self) -> &Path {
        let StoreLocation::Sqlite(path) = &self.place else {
            panic!("not a file")
        };
        path
    }

    pub(crate) fn url(&self) -> &str {
        let StoreLocation::Postgres(url) = &self.place else {
            panic!("not a server")
        };
        url
    }
}

pub(crate) async fn memory() -> Fresh {
    Fresh {
        place: StoreLocation::Memory,
        _folder: None,
    }
}

pub(crate) async fn sqlite() -> Fresh {
    let folder = Folder::new();
    Fresh {
        place: StoreLocation::Sqlite(folder.path("responses.db")),
        _folder: Some(folder),
    }
}

/// Creates a database.
pub(crate) async fn postgres() -> Fresh {
    Fresh {
        place: StoreLocation::Postgres(crate::postgres::database().await),
        _folder: None,
    }
}
