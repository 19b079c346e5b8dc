//! The store: one suite, run against each of the three kinds of store, and tests of what only one of them can get
//! wrong. PostgreSQL is a real one; see `tests/postgres.sh`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

#[path = "store/caps.rs"]
mod caps;
#[path = "store/conversations.rs"]
mod conversations;
#[path = "store/counters.rs"]
mod counters;
#[path = "store/database.rs"]
mod database;
#[path = "store/files.rs"]
mod files;
#[path = "store/kill.rs"]
mod kill;
#[path = "store/model.rs"]
mod model;
#[path = "store/ownership.rs"]
mod ownership;
#[path = "store/places.rs"]
mod places;
#[path = "support/postgres/mod.rs"]
mod postgres;
#[path = "store/responses.rs"]
mod responses;
#[path = "support/seeded/mod.rs"]
mod seeded;
#[path = "store/tls.rs"]
mod tls;

use samewire::store::{Caps, LEASE};

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
pub(crate) const ROOMY: Caps =
    Caps { ttl: 3_600_000, bytes: 64 << 20, records: 10_000, record_bytes: 1 << 20, lease: LEASE };
