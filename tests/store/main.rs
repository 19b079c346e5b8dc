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

mod caps;
mod conversations;
mod counters;
mod database;
mod files;
mod kill;
mod model;
mod ownership;
mod places;
#[path = "../support/postgres/mod.rs"]
mod postgres;
mod responses;
#[path = "../support/seeded/mod.rs"]
mod seeded;
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
