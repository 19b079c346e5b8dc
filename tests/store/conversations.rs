//! Conversations and their items: creating, listing, adding, retrying and deleting them.

use crate::places::{ROOMY, in_each_place};
use crate::responses::{NOW, completed, item, items, key, over, running};
use samewire::store::{FinalState, Item, Key, NewResponse, PageRequest, State, Store, StoreError};

in_each_place!(
    crate::places::ROOMY,
    a_conversation_lives,
    its_items_are_kept_in_order,
    a_response_is_stored_in_it,
    a_response_ends_in_it,
    it_is_read_as_a_whole,
    conversations_and_responses_are_two_things,
    using_it_keeps_it,
);

async fn all(store: &Store, id: &str) -> Vec<String> {
    let ask = PageRequest {
        limit: 100,
        descending: false,
        ..PageRequest::default()
    };
    let page = store.conversation_items(key(id), ask, NOW).await.unwrap();
    page.items.iter().map(|item| item.id.to_string()).collect()
}

async fn a_conversation_lives(store: &Store) {
    store
        .create_conversation(key("conv_1"), r#"{"a":"1"}"#.into(), items(&["m1"]), NOW)
        .await
        .unwrap();
    let again = store
        .create_conversation(key("conv_1"), "{}".into(), Vec::new(), NOW)
        .await;
    assert_eq!(again, Err(StoreError::Conflict));
    let found = store.conversation(key("conv_1"), NOW).await.unwrap();
    assert_eq!(
        (found.key, found.created, &*found.metadata),
        (key("conv_1"), NOW, r#"{"a":"1"}"#)
    );
    store
        .update_conversation(key("conv_1"), "{}".into(), NOW + 7)
        .await
        .unwrap();
    let found = store.conversation(key("conv_1"), NOW).await.unwrap();
    assert_eq!((found.created, &*found.metadata), (NOW, "{}"));

    let other = Key::new("other", "conv_1");
    assert_eq!(
        store.conversation(other.clone(), NOW).await.unwrap_err(),
        StoreError::NotFound
    );
    assert_eq!(
        store
            .update_conversation(other.clone(), "{}".into(), NOW)
            .await,
        Err(StoreError::NotFound)
    );
    assert_eq!(
        store.add_items(other.clone(), items(&["x"]), NOW).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(
        store
            .conversation_items(other.clone(), PageRequest::default(), NOW)
            .await
            .unwrap_err(),
        StoreError::NotFound
    );
    assert_eq!(
        store
            .conversation_item(other.clone(), "m1".into(), NOW)
            .await,
        Err(StoreError::NotFound)
    );
    assert_eq!(
        store.delete_item(other.clone(), "m1".into(), NOW).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(
        store.delete_conversation(other, NOW).await,
        Err(StoreError::NotFound)
    );

    store.delete_conversation(key("conv_1"), NOW).await.unwrap();
    assert_eq!(
        store.conversation(key("conv_1"), NOW).await.unwrap_err(),
        StoreError::NotFound
    );
    assert_eq!(
        store.resolve("tenant".into(), vec!["m1".into()], NOW).await,
        Ok(vec![None])
    );
    assert_eq!(store.totals().await.unwrap().bytes, 0);
}

async fn its_items_are_kept_in_order(store: &Store) {
    store
        .create_conversation(key("conv_1"), "{}".into(), items(&["z", "a"]), NOW)
        .await
        .unwrap();
    let empty = store.totals().await.unwrap().bytes;
    store
        .add_items(key("conv_1"), items(&["m", "b", "m"]), NOW)
        .await
        .unwrap();
    assert_eq!(
        all(store, "conv_1").await,
        ["z", "a", "m", "b"],
        "an id is there once"
    );
    // A retry after a lost answer, together with a new item.
    let changed = Item::new("m", r#""another""#);
    store
        .add_items(key("conv_1"), vec![changed, item("c")], NOW)
        .await
        .unwrap();
    assert_eq!(all(store, "conv_1").await, ["z", "a", "m", "b", "c"]);
    assert_eq!(
        store
            .conversation_item(key("conv_1"), "m".into(), NOW)
            .await,
        Ok(item("m"))
    );
    store
        .delete_item(key("conv_1"), "a".into(), NOW)
        .await
        .unwrap();
    assert_eq!(
        store.delete_item(key("conv_1"), "a".into(), NOW).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(
        store
            .conversation_item(key("conv_1"), "a".into(), NOW)
            .await,
        Err(StoreError::NotFound)
    );
    store
        .add_items(key("conv_1"), items(&["a"]), NOW)
        .await
        .unwrap();
    assert_eq!(all(store, "conv_1").await, ["z", "m", "b", "c", "a"]);
    let ask = PageRequest {
        after: Some("c".into()),
        limit: 2,
        descending: true,
    };
    let page = store
        .conversation_items(key("conv_1"), ask, NOW)
        .await
        .unwrap();
    assert_eq!((page.items, page.more), (items(&["b", "m"]), true));
    let ask = PageRequest {
        after: Some("gone".into()),
        ..PageRequest::default()
    };
    assert_eq!(
        store
            .conversation_items(key("conv_1"), ask, NOW)
            .await
            .unwrap_err(),
        StoreError::NoCursor
    );
    for id in ["m", "b", "c"] {
        store
            .delete_item(key("conv_1"), id.into(), NOW)
            .await
            .unwrap();
    }
    assert_eq!(
        store.totals().await.unwrap().bytes,
        empty,
        "two items, as at first"
    );
}

async fn a_response_is_stored_in_it(store: &Store) {
    store
        .create_conversation(key("conv_1"), "{}".into(), items(&["m1"]), NOW)
        .await
        .unwrap();
    let new = NewResponse {
        input: items(&["i1", "m1"]),
        output: items(&["o1", "o2"]),
        ..over("resp_1")
    };
    store
        .create_in("conv_1".into(), new.clone(), NOW)
        .await
        .unwrap();
    assert_eq!(all(store, "conv_1").await, ["m1", "i1", "o1", "o2"]);
    assert_eq!(
        store.create_in("conv_1".into(), new.clone(), NOW).await,
        Err(StoreError::Conflict)
    );
    // The conversation keeps its items when the response is deleted.
    store.delete(key("resp_1"), NOW).await.unwrap();
    assert_eq!(
        store
            .conversation_item(key("conv_1"), "o2".into(), NOW)
            .await,
        Ok(item("o2"))
    );
    assert_eq!(
        store.resolve("tenant".into(), vec!["o2".into()], NOW).await,
        Ok(vec![Some(item("o2"))])
    );
    for (conversation, tenant) in [("conv_x", "tenant"), ("conv_1", "other")] {
        let new = NewResponse {
            key: Key::new(tenant, "resp_2"),
            ..new.clone()
        };
        let refused = store.create_in(conversation.into(), new, NOW).await;
        assert_eq!(refused, Err(StoreError::NoConversation));
        assert_eq!(
            store
                .get(Key::new(tenant, "resp_2"), NOW)
                .await
                .unwrap_err(),
            StoreError::NotFound
        );
    }
}

async fn a_response_ends_in_it(store: &Store) {
    store
        .create_conversation(key("conv_1"), "{}".into(), items(&["m1"]), NOW)
        .await
        .unwrap();
    for id in ["resp_1", "resp_2"] {
        store
            .create(
                NewResponse {
                    input: items(&[&format!("{id} in")]),
                    ..running(id)
                },
                NOW,
            )
            .await
            .unwrap();
    }
    let end = |id: &str| FinalState {
        output: items(&[&format!("{id} out")]),
        ..completed(id)
    };
    for id in ["resp_2", "resp_1"] {
        let finish = async |conversation: &str, term| {
            store
                .finish_in(conversation.into(), key(id), term, end(id), NOW)
                .await
        };
        assert_eq!(finish("conv_x", 1).await, Err(StoreError::NoConversation));
        assert_eq!(finish("conv_1", 2).await, Err(StoreError::Fenced));
        assert_eq!(
            store.get(key(id), NOW).await.unwrap().state,
            State::InProgress
        );
        finish("conv_1", 1).await.unwrap();
        // A retry after a lost answer; also if the conversation has been deleted meanwhile.
        finish("conv_1", 1).await.unwrap();
        finish("conv_x", 1).await.unwrap();
        assert_eq!(
            store.get(key(id), NOW).await.unwrap().state,
            State::Completed
        );
    }
    assert_eq!(
        all(store, "conv_1").await,
        ["m1", "resp_2 in", "resp_2 out", "resp_1 in", "resp_1 out"]
    );
    let other = store
        .finish_in("conv_1".into(), key("resp_1"), 1, completed("another"), NOW)
        .await;
    assert_eq!(other, Err(StoreError::Conflict));
    assert_eq!(all(store, "conv_1").await.len(), 5);
}

async fn it_is_read_as_a_whole(store: &Store) {
    let many: Vec<_> = (0..250).map(|n| item(&format!("m{n:03}"))).collect();
    store
        .create_conversation(key("conv_1"), "{}".into(), many.clone(), NOW)
        .await
        .unwrap();
    let bytes = many.iter().map(|item| item.body.len() as u64).sum();
    assert_eq!(store.transcript(key("conv_1"), bytes, NOW).await, Ok(many));
    assert_eq!(
        store.transcript(key("conv_1"), bytes - 1, NOW).await,
        Err(StoreError::Full)
    );
    assert_eq!(
        store
            .transcript(Key::new("other", "conv_1"), bytes, NOW)
            .await,
        Err(StoreError::NotFound)
    );
    store.create(over("resp_1"), NOW).await.unwrap();
    assert_eq!(
        store.transcript(key("resp_1"), bytes, NOW).await,
        Err(StoreError::NotFound)
    );
}

async fn conversations_and_responses_are_two_things(store: &Store) {
    store
        .create_conversation(key("conv_1"), "{}".into(), items(&["m1"]), NOW)
        .await
        .unwrap();
    store.create(over("resp_1"), NOW).await.unwrap();
    assert_eq!(
        store.get(key("conv_1"), NOW).await.unwrap_err(),
        StoreError::NotFound
    );
    assert_eq!(
        store.delete(key("conv_1"), NOW).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(
        store.chain(key("conv_1"), 1 << 20, NOW).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(
        store
            .input_items(key("conv_1"), PageRequest::default(), NOW)
            .await
            .unwrap_err(),
        StoreError::NotFound
    );
    assert_eq!(
        store.conversation(key("resp_1"), NOW).await.unwrap_err(),
        StoreError::NotFound
    );
    assert_eq!(
        store.delete_conversation(key("resp_1"), NOW).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(
        store.add_items(key("resp_1"), items(&["x"]), NOW).await,
        Err(StoreError::NotFound)
    );
    let under = NewResponse {
        previous: Some("conv_1".into()),
        ..over("resp_2")
    };
    store.create(under, NOW).await.unwrap();
    assert_eq!(
        store.chain(key("resp_2"), 1 << 20, NOW).await,
        Err(StoreError::NotFound)
    );
}

async fn using_it_keeps_it(store: &Store) {
    for (at, id) in ["added", "deleted", "updated", "read"]
        .into_iter()
        .enumerate()
    {
        store
            .create_conversation(key(id), "{}".into(), items(&["m1"]), NOW + at as u64)
            .await
            .unwrap();
    }
    let late = NOW + ROOMY.ttl - 1;
    store
        .add_items(key("added"), items(&["m2"]), late)
        .await
        .unwrap();
    store
        .delete_item(key("deleted"), "m1".into(), late)
        .await
        .unwrap();
    store
        .update_conversation(key("updated"), "[]".into(), late)
        .await
        .unwrap();
    store.conversation(key("read"), late).await.unwrap();
    let later = NOW + ROOMY.ttl + 100;
    assert_eq!(store.sweep(later).await, Ok(1));
    assert_eq!(
        store.conversation(key("read"), later).await.unwrap_err(),
        StoreError::NotFound
    );
    for id in ["added", "deleted", "updated"] {
        store.conversation(key(id), later).await.unwrap();
    }
    assert_eq!(store.sweep(late + ROOMY.ttl).await, Ok(3));
    assert_eq!(store.totals().await.unwrap().bytes, 0);
}
