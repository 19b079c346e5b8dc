//! Keys of clients in either header, and what each gives access to.

use crate::clients::keys::{OTHER, SECOND, entry, sees, with};
use crate::messages::{
    count, engine, fault, hello, message, object, stream, streamed, with_api_key,
};
use crate::sim::prelude::*;

const ENGINES: &str = "sk-CANARY-engine";

fn keys() -> Setup {
    Setup::new().config(&(entry(KEY, "name = \"laptop\"\ntenant = \"acme\"") + &entry(OTHER, "")))
}

#[tokio::test]
async fn either_header_carries_the_key() {
    let world = World::start(engine(), keys()).await;
    let bare = message("").without("authorization");
    let bearer = format!("Bearer {KEY}");
    let rows = [
        bare.clone().header("x-api-key", KEY),
        bare.clone().header("X-Api-Key", KEY),
        bare.clone().header("authorization", &bearer),
        bare.clone().header(
            "authorization",
            &bearer.to_lowercase().replace("canary-77aa", "CANARY-77aa"),
        ),
        // Claude Code sends both where both are set; the token counts.
        bare.clone()
            .header("authorization", &bearer)
            .header("x-api-key", KEY),
        bare.clone()
            .header("authorization", &bearer)
            .header("x-api-key", "sk-CANARY-guess"),
        bare.clone()
            .header("x-api-key", "")
            .header("authorization", &bearer),
    ];
    for request in &rows {
        assert_eq!(
            object(&world.request(request).await)["content"][0]["text"],
            "Hello",
            "{request:?}"
        );
        assert_eq!(
            streamed(
                &world
                    .request(&request.clone().body(stream("").sent_body()))
                    .await
            )["stop_reason"],
            "end_turn"
        );
    }
    let counted = world
        .samewire
        .sum("samewire_key_requests_total", &["key=\"laptop\""])
        .await;
    assert_eq!(counted, 2 * rows.len() as u64);
    world.end().await;
}

/// Clients that are told to try again repeat a refused key; Claude Code does so ten times.
#[tokio::test]
async fn fault_c29_without_a_key_there_is_nothing() {
    let world = World::start(engine(), keys()).await;
    let bare = message("").without("authorization");
    let guess = format!("Bearer {SECOND}");
    let rows = [
        bare.clone(),
        bare.clone().header("x-api-key", ""),
        bare.clone().header("x-api-key", SECOND),
        bare.clone().header("x-api-key", &format!("Bearer {KEY}")),
        bare.clone().header("x-api-key", &KEY[..KEY.len() - 1]),
        bare.clone()
            .header("x-api-key", KEY)
            .header("x-api-key", KEY),
        bare.clone().header("x-api-key", &"k".repeat(8 << 10)),
        bare.clone().header("authorization", &guess),
        bare.clone()
            .header("authorization", &guess)
            .header("x-api-key", KEY),
        bare.clone().header("api-key", KEY),
        bare.target(&format!("/v1/messages?x-api-key={KEY}")),
    ];
    for request in rows
        .iter()
        .chain(&rows.clone().map(|request| count(&request)))
    {
        let answer = world.request(request).await;
        let fault = fault(&answer);
        assert_eq!(
            fault.name(),
            (401, "authentication_error", Some("invalid_api_key")),
            "{request:?}"
        );
        assert_eq!(
            answer.head.header("x-should-retry"),
            Some("false"),
            "{request:?}"
        );
        for key in [KEY, SECOND] {
            assert!(!fault.message.contains(key), "{fault:?}");
        }
    }
    // Paths and methods are not told either.
    for (method, target) in [
        ("GET", "/v1/messages"),
        ("POST", "/v1/messages/batches"),
        ("GET", "/v1/models"),
    ] {
        let request = Request::new(method, target)
            .without("authorization")
            .header("anthropic-version", "x");
        assert_eq!(
            fault(&world.request(&request).await).status,
            401,
            "{method} {target}"
        );
    }
    world.end_after(0).await;
}

/// The header is Anthropic's: on routes of OpenAI it is none of theirs.
#[tokio::test]
async fn the_header_opens_no_route_of_openai() {
    let world = World::start(engine(), keys()).await;
    for request in [
        Request::plain(""),
        Request::stream(""),
        Request::get("/v1/models"),
    ] {
        let answer = world.request(&with_api_key(&request, KEY)).await;
        assert_eq!(
            answer.failure(),
            "401 invalid_request_error invalid_api_key"
        );
    }
    let listed = Request::get("/v1/models").header("anthropic-version", "2023-06-01");
    assert_eq!(
        world.request(&with_api_key(&listed, KEY)).await.head.status,
        200
    );
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c31_models_that_are_not_there_for_a_key() {
    let config =
        entry(KEY, "models = [\"m\"]\nmodels_not_included = [\"big\"]") + &entry(OTHER, "");
    let world = World::start(engine(), Setup::new().config(&config)).await;
    let of = |model: &str| {
        let text = message("").sent_body().to_vec();
        let text = String::from_utf8(text)
            .unwrap()
            .replace(r#""model":"m""#, &format!(r#""model":"{model}""#));
        message("").body(text)
    };
    assert_eq!(
        world
            .request(&with_api_key(&of("m"), KEY))
            .await
            .head
            .status,
        200
    );
    for path in [of("secret"), count(&of("secret"))] {
        let hidden = world.request(&with_api_key(&path, KEY)).await;
        let told = fault(&hidden);
        assert_eq!(
            told.name(),
            (404, "not_found_error", Some("model_not_found"))
        );
        assert!(told.message.contains("secret"), "{told:?}");
        assert_eq!(hidden.head.header("x-should-retry"), None);
    }
    for path in [of("big"), count(&of("big"))] {
        let told = fault(&world.request(&with_api_key(&path, KEY)).await);
        assert_eq!(
            told.name(),
            (403, "permission_error", Some("usage_not_included"))
        );
    }
    assert_eq!(world.engine.attempt_count(), 1);
    assert_eq!(
        world.request(&with(&of("secret"), OTHER)).await.head.status,
        200
    );
    world.end().await;
}

#[tokio::test]
async fn the_engine_sees_no_key_but_its_own() {
    let folder = Folder::new();
    let own = folder.key(ENGINES);
    let (client, engines) = (format!("Bearer {KEY}"), format!("Bearer {ENGINES}"));
    for mode in ["chat", "native"] {
        for (lines, seen) in [
            ("", None),
            ("auth = \"none\"", None),
            ("auth = \"pass\"", Some(client.as_str())),
            (own.as_str(), Some(engines.as_str())),
        ] {
            let setup = keys()
                .upstream_keys(&format!("messages = \"{mode}\"\n{lines}"))
                .allow_errors();
            let world = World::start(engine(), setup).await;
            for request in [message(""), stream(""), count(&message(""))] {
                world.request(&with_api_key(&request, KEY)).await;
                world.request(&with(&request, KEY)).await;
                world
                    .request(&with(&request, KEY).header("x-api-key", KEY))
                    .await;
            }
            assert!(
                world.engine.attempt_count() >= 9,
                "{}",
                world.engine.attempt_count()
            );
            sees(&world.engine, seen, &format!("{mode} {lines}"));
            world.end().await;
        }
    }
}

/// An engine that refuses samewire's key is not the client's fault, unless the key is the client's.
#[tokio::test]
async fn fault_u19_an_engine_that_wants_a_key() {
    for (lines, name) in [
        (
            "name = \"engine\"",
            (500, "api_error", Some("upstream_error")),
        ),
        (
            "auth = \"pass\"",
            (401, "authentication_error", Some("invalid_api_key")),
        ),
    ] {
        let script = Script::new().json("401 Unauthorized", r#"{"error":"Unauthorized"}"#);
        let setup = keys().upstream_keys(lines).allow_errors();
        let world = World::start(script, setup).await;
        for request in [message(""), stream(""), count(&message(""))] {
            assert_eq!(
                fault(&world.request(&with_api_key(&request, KEY)).await).name(),
                name,
                "{lines}"
            );
        }
        world.end().await;
    }
}

/// Without configured keys, whatever a client sends as its key is taken.
#[tokio::test]
async fn without_configured_keys_any_key_will_do() {
    let world = World::start(hello(false), Setup::new()).await;
    let bare = message("").without("authorization");
    for request in [
        bare.clone(),
        bare.clone().header("x-api-key", "sk-ant-x"),
        bare.header("x-api-key", ""),
    ] {
        let answer: Value = object(&world.request(&request).await);
        assert_eq!(answer["role"], "assistant");
    }
    world.end().await;
}
