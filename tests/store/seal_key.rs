//! The key that seals text: the first one that a process gives to the store is the key of all.

use crate::places::{self, Fresh, ROOMY, in_each_place};
use samewire::store::{Store, StoreError};
use std::sync::Arc;

async fn the_first_key_stays(store: &Store) {
    let first: Arc<str> = "first".into();
    assert_eq!(
        store.seal_key(Arc::clone(&first)).await,
        Ok(Arc::clone(&first))
    );
    assert_eq!(store.seal_key("second".into()).await, Ok(first));
}

in_each_place!(crate::places::ROOMY, the_first_key_stays);

/// Opens the place with several processes' stores at once, and returns the keys that they get.
async fn keys_of_all(place: &Fresh) -> Vec<Arc<str>> {
    let opened = (0..8).map(|number| async move {
        let store = place.open(ROOMY).await;
        store.seal_key(format!("key {number}").into()).await
    });
    let keys: Result<Vec<_>, StoreError> = futures::future::join_all(opened)
        .await
        .into_iter()
        .collect();
    keys.unwrap()
}

#[tokio::test]
async fn processes_that_start_together_get_one_key_and_keep_it() {
    for place in [places::sqlite().await, places::postgres().await] {
        let keys = keys_of_all(&place).await;
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        assert_eq!(
            place
                .open(ROOMY)
                .await
                .seal_key("later".into())
                .await
                .as_ref(),
            Ok(&keys[0])
        );
    }
}
