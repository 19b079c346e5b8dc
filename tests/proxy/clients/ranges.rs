//! Values beyond the ranges of the published API: the engine decides on them, unless the operator enables `ranges`
//! checks.

use crate::responses::over_chat::ask;
use crate::sim::prelude::*;

/// Values that engines accept and the published API does not: the member, and its parameter.
const BEYOND: &[(&str, &str)] = &[
    (r#""temperature":2.5"#, "temperature"),
    (r#""temperature":-1"#, "temperature"),
    (r#""top_p":1.5"#, "top_p"),
    (r#""frequency_penalty":3"#, "frequency_penalty"),
    (r#""presence_penalty":-2.5"#, "presence_penalty"),
];

/// Values that the published Chat Completions API does not accept: the member, and its parameter.
const OF_CHAT: &[(&str, &str)] = &[
    (r#""logprobs":true,"top_logprobs":21"#, "top_logprobs"),
    (r#""logprobs":true,"top_logprobs":-1"#, "top_logprobs"),
    (r#""max_tokens":0"#, "max_tokens"),
    (r#""max_tokens":-1"#, "max_tokens"),
    (r#""max_completion_tokens":-1"#, "max_completion_tokens"),
    (r#""stop":["a","b","c","d","e"]"#, "stop"),
];
const OF_COMPLETIONS: &[(&str, &str)] = &[
    (r#""logprobs":500"#, "logprobs"),
    (r#""logprobs":-1"#, "logprobs"),
    (r#""max_tokens":-1"#, "max_tokens"),
    (r#""stop":["a","b","c","d","e"]"#, "stop"),
];

fn completion(more: &str) -> Request {
    Request::post(
        "/v1/completions",
        format!(r#"{{"model":"m","prompt":"a",{more}}}"#),
    )
}

fn response(more: &str) -> Request {
    ask(&format!(r#""model":"m","input":"a","store":false,{more}"#))
}

/// Returns a request for each value, with the member and the parameter.
fn all() -> Vec<(Request, &'static str, &'static str)> {
    let chat = |more: &str| Request::plain(&format!(",{more}"));
    let of = |make: &dyn Fn(&str) -> Request, rows: &[(&'static str, &'static str)]| -> Vec<_> {
        rows.iter()
            .map(|(member, param)| (make(member), *member, *param))
            .collect()
    };
    [
        of(&chat, BEYOND),
        of(&chat, OF_CHAT),
        of(&completion, BEYOND),
        of(&completion, OF_COMPLETIONS),
        of(&response, BEYOND),
        of(&response, &[(r#""top_logprobs":21"#, "top_logprobs")]),
    ]
    .concat()
}

async fn engine() -> Engine {
    Engine::answering(|attempt| match attempt.text().contains("\"prompt\"") {
        true => Script::ok(r#"{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":"stop"}]}"#),
        false => Script::ok(r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"logprobs":null,"finish_reason":"stop"}]}"#),
    })
    .await
}

#[tokio::test]
async fn what_the_engine_takes_reaches_it() {
    let world = World::start(engine(), Setup::new()).await;
    for (at, (request, member, _)) in all().into_iter().enumerate() {
        let answer = world.request(&request).await;
        assert_eq!(answer.head.status, 200, "{member}: {}", answer.text());
        let sent = world.engine.attempts()[at].text().to_owned();
        let value = member.rsplit_once(':').unwrap().1;
        // On Responses, a value without effect is not sent to the engine.
        assert!(
            sent.contains(value) || request.path() == "/v1/responses",
            "{member}: {sent}"
        );
    }
    world.end().await;
}

#[tokio::test]
async fn the_published_ranges_are_the_operators_choice() {
    let world = World::start(
        engine(),
        Setup::new().config("[requests]\nranges = \"api\""),
    )
    .await;
    for (request, member, param) in all() {
        let answer = world.request(&request).await;
        let fault = answer.fault();
        assert_eq!(answer.head.status, 400, "{member}");
        assert_eq!(
            (fault.code.as_deref(), fault.param.as_deref()),
            (Some("invalid_value"), Some(param))
        );
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn the_newer_of_two_limits_counts() {
    let world = World::start(engine(), Setup::new()).await;
    let both = r#","max_tokens":5,"max_completion_tokens":6"#;
    assert_eq!(world.request(&Request::plain(both)).await.head.status, 200);
    let sent = world.engine.only().text().to_owned();
    assert!(
        sent.contains(r#""max_completion_tokens":6"#) && !sent.contains(r#""max_tokens":5"#),
        "{sent}"
    );
    let metrics = world.samewire.metrics().await;
    let counted = r#"samewire_rewrites_total{engine="vllm",rule="max_tokens_twice"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    world.end().await;
}
