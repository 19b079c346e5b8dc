//! Tests of the fixtures against each other, without samewire: all other tests rely on them.

use crate::sim::prelude::*;

#[tokio::test]
async fn engine_and_client_understand_each_other() {
    let engine = Engine::script(Script::answer("a", 3)).await;
    let mut client = Client::connect(engine.address).await;
    for _ in 0..3 {
        let request = Request::stream("");
        client.send(&request.bytes()).await;
        let answer = client.answer().await;
        assert_eq!((answer.head.status, answer.ended), (200, Ended::LastChunk));
        assert_eq!(answer.text().matches("data: ").count(), 7);
        assert_eq!(
            engine.attempts().last().expect("an attempt").body,
            request.sent_body()
        );
    }
    let reused: Vec<_> = engine
        .attempts()
        .iter()
        .map(|attempt| (attempt.reused, attempt.finished))
        .collect();
    assert_eq!(reused, [(false, true), (true, true), (true, true)]);
    Request::stream("")
        .chunked(5)
        .answer(engine.address)
        .await
        .with_status(200);
    assert_eq!(engine.attempts()[3].body, Request::stream("").sent_body());
}

#[tokio::test]
async fn engine_sees_the_close_and_its_manner() {
    let flood = Script::new().head_sse().then(Step::Flood {
        events: 1000,
        size: 65_536,
    });
    for script in [Script::new().hang(), flood] {
        for manner in [CloseKind::Fin, CloseKind::Rst] {
            let engine = Engine::script(script.clone()).await;
            let client = Request::stream("").send(engine.address).await;
            engine.wait_attempts(1).await;
            assert_eq!(engine.active_generations(), 1);
            let left = client.leave(manner);
            until("the close is seen", || engine.active_generations() == 0).await;
            let (seen, by) = engine.closed(0).expect("noted");
            assert!(seen.saturating_duration_since(left) < SOON);
            assert!(
                by == manner || by == CloseKind::Rst,
                "unread bytes turn a FIN into an RST"
            );
            assert!(!engine.only().finished);
        }
    }
}

#[tokio::test]
async fn engine_closes_in_both_manners() {
    for (manner, ended) in [
        (CloseKind::Fin, Ended::Short),
        (CloseKind::Rst, Ended::Reset),
    ] {
        let script = Script::stream()
            .tok("a", 6, Duration::ZERO)
            .in_one_write()
            .close(manner);
        let engine = Engine::script(script).await;
        for _ in 0..50 {
            let answer = Request::stream("").answer(engine.address).await;
            assert_eq!(answer.ended, ended);
            assert_eq!(
                answer.text().matches("data: ").count(),
                7,
                "the kernel delivers what came before a reset"
            );
        }
    }
}

#[tokio::test]
async fn gates_hold_the_script_and_pieces_arrive_one_by_one() {
    let gate = Gate::default();
    let script = Script::new()
        .head_sse()
        .text("one")
        .wait(&gate)
        .text("two")
        .done()
        .end();
    let engine = Engine::script(script).await;
    let mut client = Request::stream("").begin_until(engine.address, "one").await;
    assert!(!engine.only().finished);
    gate.open();
    client.event_with("two").await;
    let whole = Script::answer("a", 2);
    let pieces = Engine::script(whole.clone().split(1)).await;
    let answer = Request::stream("").answer(pieces.address).await;
    assert_eq!(
        answer.body,
        Request::stream("")
            .answer(Engine::script(whole).await.address)
            .await
            .body
    );
}

#[tokio::test]
async fn a_reader_that_stops_stops_the_engine() {
    let script = Script::new()
        .head_sse()
        .then(Step::Flood {
            events: 800,
            size: 16 * 1024,
        })
        .end();
    let engine = Engine::script(script).await;
    let mut client = Request::stream("").send_narrow(engine.address).await;
    client.head().await;
    client.event().await;
    let held = crate::clients::leaving::settled(|| engine.written(0)).await;
    assert!(held < 4 << 20, "{held}");
    assert!(client.rest().await.len() > 798 * 16 * 1024);
    assert_eq!(client.ended(), Ended::LastChunk);
}

#[tokio::test]
async fn addresses_that_refuse_or_never_answer() {
    let (refusing, _held) = crate::sim::refusing();
    let address = refusing.trim_start_matches("http://").to_owned();
    let refused = tokio::net::TcpStream::connect(&address)
        .await
        .expect_err("nobody listens");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let (hole, _held) = crate::sim::unanswered_address();
    let address = hole.trim_start_matches("http://").to_owned();
    let connect = tokio::net::TcpStream::connect(&address);
    assert!(
        tokio::time::timeout(Duration::from_millis(300), connect)
            .await
            .is_err(),
        "nobody answers"
    );
}
