//! What a key may ask for in a minute and at once.

use crate::keys::{OTHER, entry, with};
use crate::responses::prompt;
use crate::sim::{Answer, Client, Engine, Gate, KEY, PATIENCE, Request, Script, Setup, World, until};

async fn world(lines: &str, script: Script) -> World {
    let keys = [entry(KEY, lines), entry(OTHER, "")].concat();
    World::start(Engine::script(script).await, Setup::new().config(&keys)).await
}

/// An answer that cost so many tokens.
fn costly(prompt: u32, completion: u32) -> Script {
    Script::new().head_sse().role().text("a").finish("stop").usage(prompt, completion).done().end()
}

fn limits(answer: &Answer, what: &str) -> Option<(u64, u64, String)> {
    let header = |part: &str| answer.head.header(&format!("x-ratelimit-{part}-{what}"));
    let number = |part| header(part)?.parse().ok();
    Some((number("limit")?, number("remaining")?, header("reset")?.to_owned()))
}

fn refused(answer: &Answer, code: &str) -> u64 {
    assert_eq!(answer.failure(), (429, "rate_limit_error".into(), Some(code.into())));
    answer.head.header("retry-after").expect("429").parse().expect("a number")
}

#[tokio::test]
async fn requests_of_a_key_in_a_minute() {
    let world = world("requests_per_minute = 3", Script::answer("a", 1)).await;
    for (request, left) in
        [(Request::stream(""), 2), (prompt("m", r#","stream":true"#), 1), (Request::stream(""), 0)]
    {
        let answer = world.ask(&request).await;
        assert_eq!(answer.head.status, 200);
        let (limit, remaining, reset) = limits(&answer, "requests").expect("all three headers");
        assert_eq!((limit, remaining), (3, left));
        assert!(reset.ends_with('s'), "{reset}");
        assert_eq!(limits(&answer, "tokens"), None);
    }
    let answer = world.ask(&Request::stream("")).await;
    let wait = refused(&answer, "rate_limit_exceeded");
    assert!((1..=20).contains(&wait), "{wait}");
    assert_eq!(limits(&answer, "requests").map(|(limit, left, _)| (limit, left)), Some((3, 0)));
    // What asks no engine is not counted, and neither is another key.
    assert_ne!(world.ask(&Request::get("/v1/models")).await.head.status, 429);
    for _ in 0..5 {
        let answer = world.ask(&with(&Request::stream(""), OTHER)).await;
        assert_eq!((answer.head.status, limits(&answer, "requests")), (200, None));
    }
    assert_eq!(world.engine.attempt_count(), 8);
    world.end().await;
}

#[tokio::test]
async fn tokens_of_a_key_in_a_minute() {
    let world = world("tokens_per_minute = 1000", costly(300, 900)).await;
    let answer = world.ask(&Request::stream("")).await;
    assert_eq!(answer.head.status, 200);
    assert_eq!(limits(&answer, "tokens").map(|(limit, left, _)| (limit, left)), Some((1000, 999)));
    until("it is charged", PATIENCE, || world.samewire.request_lines().len() == 1).await;
    // 200 more were used than there were: at 1,000 a minute that takes 12 seconds.
    let answer = world.ask(&Request::stream("")).await;
    let wait = refused(&answer, "rate_limit_exceeded");
    assert!((10..=13).contains(&wait), "{wait}");
    let (_, left, reset) = limits(&answer, "tokens").expect("all three headers");
    assert_eq!((left, reset.as_str()), (0, "1m0s"));
    assert_eq!(world.engine.attempt_count(), 1);
    world.end().await;
}

#[tokio::test]
async fn requests_of_a_key_at_once() {
    let gate = Gate::default();
    let script = Script::new().head_sse().role().text("a").wait(&gate).finish("stop").done().end();
    let world = world("concurrency = 2", script).await;
    let mut running = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(world.proxy()).await;
        client.send(&Request::stream("").bytes()).await;
        assert_eq!(client.head().await.status, 200);
        running.push(client);
    }
    refused(&world.ask(&Request::stream("")).await, "concurrency_limit");
    refused(&world.ask(&prompt("m", "")).await, "concurrency_limit");
    // One that leaves makes room, and so does one that is done.
    drop(running.pop());
    until("it has left", PATIENCE, || world.samewire.request_lines().len() == 3).await;
    let mut client = Client::connect(world.proxy()).await;
    client.send(&Request::stream("").bytes()).await;
    assert_eq!(client.head().await.status, 200);
    running.push(client);
    gate.open();
    for mut client in running {
        client.rest().await;
    }
    until("they are done", PATIENCE, || world.samewire.request_lines().len() == 5).await;
    assert_eq!(world.ask(&Request::stream("")).await.head.status, 200);
    world.end().await;
}

/// What stands before the engine may count as well: the client hears of its own key alone.
#[tokio::test]
async fn limits_of_the_engine_are_not_those_of_a_key() {
    let body = r#"{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}"#;
    let lines = "x-ratelimit-limit-requests: 7\r\nx-ratelimit-remaining-tokens: 5\r\n";
    let script = Script::new().whole_with("200 OK", "application/json", lines, body);
    let world = world("requests_per_minute = 100", script).await;
    let answer = world.ask(&Request::plain("")).await;
    assert_eq!(limits(&answer, "requests").map(|(limit, left, _)| (limit, left)), Some((100, 99)));
    assert_eq!(answer.head.header("x-ratelimit-remaining-tokens"), None);
    let answer = world.ask(&with(&Request::plain(""), OTHER)).await;
    assert_eq!(answer.head.header("x-ratelimit-limit-requests"), Some("7"));
    assert_eq!(answer.head.header("x-ratelimit-remaining-tokens"), Some("5"));
    world.end().await;
}
