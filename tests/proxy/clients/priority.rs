//! Priority of keys at engines: what reaches the engine of the client's own and of the key's.

use super::keys::{OTHER, SECOND, entry, with};
use crate::sim::prelude::*;

/// Key that may set its own priority.
const FREE: &str = "sk-CANARY-free";

const BODY: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;

/// Returns requests of all routes that generate text, with this priority of the client's own.
fn requests(own: Option<i64>) -> Vec<Request> {
    let with_own = |mut body: Value| {
        own.into_iter()
            .for_each(|own| body["priority"] = json!(own));
        body.to_string()
    };
    let said = json!([{"role": "user", "content": PROMPT}]);
    vec![
        Request::post(
            "/v1/chat/completions",
            with_own(json!({"model": "m", "messages": said})),
        ),
        Request::post(
            "/v1/responses",
            with_own(json!({"model": "m", "input": PROMPT})),
        ),
        Request::post(
            "/v1/messages",
            with_own(json!({"model": "m", "max_tokens": 9, "messages": said})),
        )
        .header("anthropic-version", "2023-06-01"),
    ]
}

#[tokio::test]
async fn fault_c49_a_client_does_not_put_itself_before_others() {
    let urgent = entry(KEY, "priority = 7");
    let keys = [
        urgent,
        entry(SECOND, ""),
        entry(FREE, "priority = -3\nmay_set_priority = true"),
    ]
    .concat();
    for (engine, sign) in [("vllm", -1), ("sglang", 1), ("llamacpp", 0)] {
        let world = Engine::script(Script::ok(BODY)).await;
        let world = World::start_as(world, engine, Setup::new().config(&keys)).await;
        for (key, own, expected) in [
            (KEY, None, json!(7 * sign)),
            (KEY, Some(-1000), json!(7 * sign)),
            // A key without a priority has 0, which engines need not be told.
            (SECOND, Some(-1000), json!(0)),
            (SECOND, None, json!(0)),
            (FREE, None, json!(-3 * sign)),
        ] {
            for request in requests(own) {
                let before = world.engine.attempt_count();
                let answer = world.request(&with(&request, key)).await;
                assert_eq!(answer.head.status, 200, "{engine}: {}", answer.text());
                let sent = world.engine.attempts()[before].json();
                let expected = Some(&expected).filter(|expected| **expected != 0);
                assert_eq!(
                    sent.get("priority"),
                    expected,
                    "{engine} {own:?} {}",
                    request.path()
                );
            }
        }
        // Its own value is in the engine's own order.
        world
            .request(&with(&requests(Some(-1000))[0], FREE))
            .await
            .with_status(200);
        let sent = world.engine.attempts().last().unwrap().json();
        assert_eq!(sent["priority"], -1000, "{engine}");
        world.end().await;
    }
}

/// Without a priority in the configuration the field passes, as any other field of engines.
#[tokio::test]
async fn without_a_priority_the_field_of_the_client_passes() {
    let world = Engine::script(Script::ok(BODY)).await;
    let world = World::start(
        world,
        Setup::new().config(&[entry(KEY, ""), entry(OTHER, "")].concat()),
    )
    .await;
    world
        .request(&with(&requests(Some(-2))[0], KEY))
        .await
        .with_status(200);
    assert!(world.engine.only().text().contains(r#""priority":-2"#));
    world.end().await;
}
