//! Metrics in front of engines that invent names (faults O20). The effect of scrapes on token delays is measured in
//! `tests/alone/latency`.

use crate::sim::prelude::*;

/// Invented error names and long model lists do not become metric labels.
#[tokio::test]
async fn fault_o20_engines_make_no_labels() {
    let refusing = |n: usize| {
        let code = format!("invented_{n}");
        let body = format!(
            r#"{{"error":{{"message":"a","type":"invalid_request_error","param":null,"code":"{code}"}}}}"#
        );
        Script::new().json("400 Bad Request", &body)
    };
    let engine = Engine::in_turn((0..50).map(refusing).collect()).await;
    let listed: Vec<_> = (0..5000)
        .map(|n| format!(r#"{{"id":"listed-{n}","object":"model"}}"#))
        .collect();
    engine.set_models(Script::ok(format!(
        r#"{{"object":"list","data":[{}]}}"#,
        listed.join(",")
    )));
    let world = World::start(engine, Setup::new().allow_errors()).await;
    world.get("/v1/models").await;
    for n in 0..50 {
        let body = format!(
            r#"{{"model":"listed-{}","messages":[{{"role":"user","content":"a"}}]}}"#,
            n * 100
        );
        let answer = world.chat(body).await;
        assert!(
            answer.text().contains(&format!("invented_{n}")),
            "the client is told: {}",
            answer.text()
        );
    }
    let metrics = world.samewire.metrics().await;
    assert!(!metrics.contains("invented"), "{metrics}");
    assert!(metrics.contains(r#"outcome="other""#), "{metrics}");
    assert!(
        metrics
            .lines()
            .filter(|line| !line.starts_with('#'))
            .count()
            < 1000,
        "{metrics}"
    );
    world.end().await;
}
