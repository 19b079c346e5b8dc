//! Reports of what keys have used of their quotas, for their owners and for operators.

use crate::clients::keys::{OTHER, entry, with};
use crate::sim::prelude::*;
use std::time::{SystemTime, UNIX_EPOCH};

fn own() -> Request {
    Request::get("/v1/usage")
}

/// Returns a report without its times, which are checked.
fn timeless(mut report: Value) -> Value {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    for period in ["day", "month"] {
        let Some(members) = report[period].as_object_mut() else {
            continue;
        };
        let [begins, ends] =
            ["begins_at", "resets_at"].map(|key| members.remove(key).unwrap().as_u64().unwrap());
        assert!(
            begins <= now && now < ends && begins % 86_400 == 0,
            "{period}: {begins} to {ends}"
        );
    }
    report
}

/// Keys see their own use, operators that of all keys; a quota that is used up hides nothing.
#[tokio::test]
async fn keys_are_told_what_they_have_used() {
    let lines = "name = \"laptop\"\nplan = \"pro\"\nwhen_used_up = \"usage_limit_reached\"\nrequests_per_day = 2\ntokens_per_month = 1000";
    let keys = [entry(KEY, lines), entry(OTHER, "name = \"server\"")].concat();
    let world = World::configured(&keys).await;
    let used = |requests: usize| {
        let tokens = 8 * requests;
        let of = |used: usize, limit: Option<usize>| json!({"used": used, "limit": limit});
        json!({
            "object": "usage", "key": "laptop", "plan": "pro",
            "day": {"requests": of(requests, Some(2)), "tokens": of(tokens, None)},
            "month": {"requests": of(requests, None), "tokens": of(tokens, Some(1000))},
        })
    };
    let answer = world.request(&own()).await;
    assert_eq!(
        (answer.head.status, answer.head.header("content-type")),
        (200, Some("application/json"))
    );
    assert_eq!(timeless(answer.json()), used(0));
    for request in 1..=2 {
        assert_eq!(world.stream("").await.head.status, 200);
        let lines = || world.samewire.request_lines().len();
        until("it is charged", || lines() >= 2 * request).await;
        assert_eq!(timeless(world.request(&own()).await.json()), used(request));
        until("it is logged", || lines() > 2 * request).await;
    }
    assert_eq!(world.stream("").await.head.status, 429);
    assert_eq!(timeless(world.request(&own()).await.json()), used(2));
    let other =
        json!({"object": "usage", "key": "server", "plan": null, "day": null, "month": null});
    assert_eq!(world.request(&with(&own(), OTHER)).await.json(), other);
    assert_eq!(
        world
            .request(&own().without("authorization"))
            .await
            .head
            .status,
        401
    );
    assert_eq!(world.post("/v1/usage", "{}").await.head.status, 405);
    let all = world.samewire.admin("/usage").await.json();
    assert_eq!(all["object"], "list");
    let reports: Vec<_> = all["data"]
        .as_array()
        .unwrap()
        .iter()
        .cloned()
        .map(timeless)
        .collect();
    assert_eq!(reports, [used(2), other]);
    world.end().await;
}

/// Without keys nothing is counted.
#[tokio::test]
async fn without_keys_there_is_no_use() {
    let world = World::plain(Setup::new()).await;
    let nothing = json!({"object": "usage", "key": null, "plan": null, "day": null, "month": null});
    assert_eq!(world.request(&own()).await.json(), nothing);
    assert_eq!(
        world.samewire.admin("/usage").await.json(),
        json!({"object": "list", "data": []})
    );
    world.end().await;
}
