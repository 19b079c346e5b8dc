//! Bugs in the proxy itself, and a process that is suspended for a while.

use crate::sim::prelude::*;

/// Returns a request that makes samewire panic at this place, as a bug would.
fn failing(request: Request, place: &str) -> Request {
    request
        .header("x-samewire-panic", place)
        .header("x-request-id", &format!("bug-{place}"))
}

#[tokio::test]
async fn fault_o25_a_bug_ends_one_request_and_no_other() {
    let (gate, gates) = Gate::pair();
    let engine = Engine::answering(move |attempt| {
        let script = Script::stream().text("a");
        match attempt.text().contains("waits") {
            true => script.wait(&gates).text("b").stop(),
            false => script.text("b").stop(),
        }
    });
    // A response without its task is noticed with a heartbeat.
    let setup = Setup::new()
        .config("[timeouts]\nbackground_heartbeat = 0.2")
        .allow_errors();
    let world = World::start(engine.await, setup).await;
    let mut other = world
        .begin_until(&Request::stream(r#","user":"waits""#), r#""a""#)
        .await;
    let stored = Request::post(
        "/v1/responses",
        r#"{"model":"m","stream":true,"input":"hello"}"#,
    );
    for (place, request) in [
        ("handler", Request::stream("")),
        ("stream", Request::stream("")),
        ("store", stored),
    ] {
        let mut client = world.send(&failing(request, place)).await;
        if let Some(head) = client.try_head().await {
            assert!(matches!(head.status, 200 | 500), "{place}: {head:?}");
            client.rest().await;
            assert!(
                matches!(client.ended(), Ended::Short | Ended::Reset | Ended::Length),
                "{place}"
            );
        }
        assert_eq!(world.stream("").await.head.status, 200, "after {place}");
    }
    // Armed by a served request; the panic occurs on the next connection.
    assert_eq!(
        world
            .request(&failing(Request::stream(""), "connection"))
            .await
            .head
            .status,
        200
    );
    let mut client = Client::connect(world.proxy()).await;
    client.try_send(&Request::stream("").bytes()).await;
    assert!(client.try_head().await.is_none());
    // No client waits for a background response, but it must not stay unfinished.
    let create = Request::post(
        "/v1/responses",
        r#"{"model":"m","background":true,"input":"hello"}"#,
    );
    let answer = world
        .request(&failing(create, "background"))
        .await
        .with_status(200);
    let (_, rest) = answer.text().split_once(r#""id":""#).expect("an id");
    let id = rest.split('"').next().expect("an id").to_owned();
    let get = Request::get(&format!("/v1/responses/{id}"));
    get.answer_until(world.proxy(), |answer| {
        answer.text().contains(r#""status":"failed""#)
    })
    .await;
    gate.open();
    other.event_with(r#""b""#).await;
    other.rest().await;
    assert_eq!(other.ended(), Ended::LastChunk);
    world.end_after_panics(5).await;
}

/// Bytes that arrived while the process was suspended count for the window in which a slow client must send them.
#[tokio::test]
async fn fault_o12_a_body_that_came_during_a_standstill_is_in_time() {
    let timeouts =
        "[timeouts]\nclient_body_idle = 30\nclient_body_window = 2\nclient_body_rate = 10000";
    let world = World::configured(timeouts).await;
    let request = Request::stream(&format!(r#","user":"{}""#, "x".repeat(60_000)));
    let mut client = Client::sending(world.proxy(), &request.head_bytes()).await;
    client.send(&request.sent_body()[..5_000]).await;
    world.samewire.signal("STOP");
    client.send(&request.sent_body()[5_000..]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.samewire.signal("CONT");
    assert_eq!(client.head().await.status, 200);
    client.rest().await;
    assert_eq!(client.ended(), Ended::LastChunk);
    world.end().await;
}

/// The process is suspended for longer than any of its timers. What arrived meanwhile is read on resuming, and
/// nothing is treated as late.
#[tokio::test]
async fn fault_o12_a_standstill_is_nobodys_fault() {
    const STILL: Duration = Duration::from_secs(3);
    const CLIENTS: usize = 20;
    let pace = Duration::from_millis(200);
    let engine = Engine::answering(move |_| Script::stream().tok("a", 20, pace).stop());
    let timeouts = "[timeouts]\nclient_head = 2\nclient_body_idle = 2\nclient_body_total = 10\nclient_idle = 2\n\
                    first_token = 2\ninter_token = 2\nclient_body_window = 2\nclient_body_rate = 10";
    let world = World::start(engine.await, Setup::new().config(timeouts)).await;
    let mut streams = Vec::new();
    let mut uploads = Vec::new();
    let request = Request::stream("");
    for _ in 0..CLIENTS {
        streams.push(world.begin_until(&request, "a.0").await);
        let mut client = Client::sending(world.proxy(), &request.head_bytes()).await;
        client.send(&request.sent_body()[..30]).await;
        uploads.push(client);
    }
    let mut heads = Vec::new();
    for _ in 0..CLIENTS {
        heads.push(Client::sending(world.proxy(), &request.head_bytes()[..20]).await);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.samewire.signal("STOP");
    tokio::time::sleep(STILL / 2).await;
    for client in &mut uploads {
        client.send(&request.sent_body()[30..]).await;
    }
    for client in &mut heads {
        client.send(&request.bytes()[20..]).await;
    }
    tokio::time::sleep(STILL / 2).await;
    world.samewire.signal("CONT");
    for (what, clients) in [("streams", streams), ("uploads", uploads), ("heads", heads)] {
        for mut client in clients {
            if what != "streams" {
                assert_eq!(client.head().await.status, 200, "{what}");
            }
            client.event_with("[DONE]").await;
            client.rest().await;
            assert_eq!(client.ended(), Ended::LastChunk, "{what}");
        }
    }
    world.end().await;
}
