//! Engines that speak HTTP/2 (faults U46).

use crate::canonical::Canonical;
use crate::sim::h2::{
    Act, CANCEL, H2Attempt, H2Behaviour, H2Engine, INTERNAL_ERROR, NO_ERROR, REFUSED_STREAM,
    answer, json, pieces, sse,
};
use crate::sim::prelude::*;
use crate::sim::tls::{Authority, Tunnel, file_key_line};

const BODY: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"whole"},"finish_reason":"stop"}]}"#;

/// Configuration with one thread, so that connections are shared, and with hardly any probes.
const ALONE: &str = "threads = 1";
const QUIET: &str = "[health]\ninterval = 600\ndown_after = 100000";

/// HTTP/2 engine with samewire in front of it. The world's own engine gets no requests.
struct H2World {
    engine: H2Engine,
    world: World,
}

/// Without a parser, so that no prompt is rendered between the requests.
fn setup() -> Setup {
    Setup::new().config(ALONE).config(QUIET).set("parser=off")
}

async fn at(url: &str, setup: Setup, lines: &str) -> World {
    let nobody = Engine::script(Script::new()).await;
    World::start(
        nobody,
        setup.upstream_at(url, &format!("http = \"2\"\n{lines}")),
    )
    .await
}

impl H2World {
    async fn start(
        ways: H2Behaviour,
        setup: Setup,
        answering: impl Fn(&H2Attempt) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let engine = H2Engine::answering(ways, answering).await;
        let world = at(&engine.url(), setup, "").await;
        Self { engine, world }
    }

    /// Starts an engine without deviations from the protocol, which answers by `answering`.
    async fn answering(answering: impl Fn(&H2Attempt) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::start(H2Behaviour::default(), setup().allow_errors(), answering).await
    }

    /// Returns the number of connections that carried generations.
    fn connections(&self) -> usize {
        let mut all: Vec<_> = self
            .engine
            .attempts()
            .iter()
            .map(|asked| asked.connection)
            .collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }

    async fn end(self) {
        until("no active generation", || self.engine.active() == 0).await;
        self.world.end().await;
    }
}

fn number(n: usize) -> Request {
    Request::stream(&format!(r#","user":"n{n}""#))
}

/// Returns the number that [`number`] gave a request whose body has come.
fn place(asked: &H2Attempt) -> Option<usize> {
    let (_, rest) = std::str::from_utf8(&asked.body)
        .ok()?
        .split_once(r#""user":"n"#)?;
    let (number, _) = rest.split_once('"')?;
    number.parse().ok()
}

async fn is_good(two: &H2World, what: &str) {
    let answer = two.world.stream("").await;
    assert_eq!(
        (answer.head.status, answer.text()),
        (200, Canonical::answer("a", 2).text()),
        "{what}"
    );
}

fn failed(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.failure(), format!("{status} server_error {code}"));
}

#[tokio::test]
async fn fault_u46_answers_are_those_of_http1() {
    let two = H2World::answering(|asked| {
        match String::from_utf8_lossy(&asked.body).contains(r#""stream":true"#) {
            true => answer("a", 2),
            false => json(200, BODY),
        }
    })
    .await;
    for _ in 0..5 {
        is_good(&two, "stream").await;
        let answer = two
            .world
            .request(&Request::plain(""))
            .await
            .with_status(200);
        assert!(answer.text().contains("whole"), "{}", answer.text());
    }
    let asked = two.engine.attempts();
    assert_eq!((asked.len(), two.connections()), (10, 1));
    assert_eq!(
        two.world.samewire.admin("/readyz").await.head.status,
        200,
        "probes speak it too"
    );
    two.end().await;
}

/// Read by an independent HTTP/2 server, path, authority and headers equal those sent over HTTP/1.1.
#[tokio::test]
async fn fault_u46_heads_are_those_of_http1() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (tell, mut told) = tokio::sync::mpsc::channel(16);
    let serving = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let response =
                        http::Response::builder().header("content-type", "application/json");
                    let mut out = respond
                        .send_response(response.body(()).unwrap(), false)
                        .expect("open");
                    out.send_data(BODY.into(), true).expect("open");
                    let _ = tell.send(request.into_parts().0).await;
                }
            });
        }
    });
    let world = at(&format!("http://{address}/some/where"), setup(), "").await;
    assert_eq!(world.request(&Request::plain("")).await.head.status, 200);
    let head = loop {
        let head = told.recv().await.expect("a request");
        if head.method == "POST" {
            break head;
        }
    };
    assert_eq!(
        head.uri.to_string(),
        format!("http://{address}/some/where/v1/chat/completions")
    );
    let mut names: Vec<_> = head.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    let expected = [
        "accept",
        "accept-encoding",
        "authorization",
        "content-length",
        "content-type",
        "user-agent",
        "x-request-id",
        "x-samewire-hop",
    ];
    assert_eq!(names, expected);
    assert_eq!(head.headers["accept-encoding"], "identity");
    assert_eq!(head.headers["authorization"], format!("Bearer {}", KEY));
    serving.abort();
    world.end().await;
}

#[tokio::test]
async fn fault_u46_many_requests_on_one_connection() {
    let (gate, held) = Gate::pair();
    let two = H2World::answering(move |_| {
        let body = Script::new()
            .role()
            .text("one")
            .wait(&held)
            .text("two")
            .finish("stop")
            .done();
        [vec![sse()], pieces(body), vec![Act::End]].concat()
    })
    .await;
    let mut clients = Vec::new();
    for n in 0..40 {
        clients.push(number(n).send(two.world.proxy()).await);
    }
    for client in &mut clients {
        client.event_with_head("one").await;
    }
    assert_eq!((two.engine.active(), two.connections()), (40, 1));
    gate.open();
    for client in &mut clients {
        let rest = String::from_utf8(client.rest().await).expect("UTF-8");
        assert!(
            rest.contains("two") && rest.ends_with("data: [DONE]\n\n"),
            "{rest}"
        );
    }
    two.end().await;
}

#[tokio::test]
async fn fault_u46_one_request_at_a_time_on_a_connection() {
    let (gate, held) = Gate::pair();
    let ways = H2Behaviour {
        streams: Some(1),
        ..H2Behaviour::default()
    };
    let two = H2World::start(ways, setup(), move |_| {
        [
            vec![sse(), Act::Await(held.clone())],
            answer("a", 2)[1..].to_vec(),
        ]
        .concat()
    })
    .await;
    let asking: Vec<_> = (0..5)
        .map(|n| {
            let proxy = two.world.proxy();
            tokio::spawn(async move { number(n).answer(proxy).await })
        })
        .collect();
    two.engine.wait(5).await;
    let at_work = || (two.engine.active(), two.connections()) == (5, 5);
    until("each has its own connection", at_work).await;
    gate.open();
    for asking in asking {
        assert_eq!(
            asking.await.expect("answered").text(),
            Canonical::answer("a", 2).text()
        );
    }
    is_good(&two, "later").await;
    assert_eq!(two.connections(), 5, "one of them serves again");
    two.end().await;
}

#[tokio::test]
async fn fault_u46_refused_streams_are_sent_again() {
    for code in [REFUSED_STREAM, 0xd] {
        let two = H2World::answering(move |asked| match asked.number {
            0 | 2 => vec![Act::Reset(code)],
            _ => answer("a", 2),
        })
        .await;
        is_good(&two, "the first").await;
        is_good(&two, "another").await;
        let asked = two.engine.attempts();
        assert_eq!(asked.len(), 4);
        assert_eq!(
            (&asked[0].body, &asked[2].body),
            (&asked[1].body, &asked[3].body)
        );
        assert!(
            asked[1].connection > asked[0].connection,
            "on another connection"
        );
        two.end().await;
    }
}

#[tokio::test]
async fn fault_u46_who_refuses_everything_is_not_asked_for_ever() {
    let two = H2World::answering(|_| vec![Act::Reset(REFUSED_STREAM)]).await;
    for request in [Request::stream(""), Request::plain("")] {
        failed(
            &two.world.request(&request).await,
            502,
            "upstream_unreachable",
        );
    }
    assert_eq!(two.engine.attempts().len(), 4, "each twice");
    two.end().await;
}

#[tokio::test]
async fn fault_u46_who_refuses_is_followed_by_another() {
    let refusing =
        H2Engine::answering(H2Behaviour::default(), |_| vec![Act::Reset(REFUSED_STREAM)]).await;
    let good = Engine::script(Script::answer("a", 2)).await;
    let url = refusing.url();
    let lines =
        format!("[[upstream]]\nname = \"h2\"\nurl = \"{url}\"\nengine = \"vllm\"\nhttp = \"2\"");
    let world = World::fleet(vec![good], setup().allow_errors().config(&lines), &[]).await;
    let start = Instant::now();
    while refusing.attempts().is_empty() {
        let answer = world.stream("").await;
        assert_eq!(
            (answer.head.status, answer.text()),
            (200, Canonical::answer("a", 2).text())
        );
        assert!(
            start.elapsed() < PATIENCE,
            "chance never chose the one that refuses"
        );
    }
    world.end().await;
}

#[tokio::test]
async fn fault_u46_goaway_before_our_stream() {
    for (code, then) in [
        (NO_ERROR, Act::Hang),
        (INTERNAL_ERROR, Act::Hang),
        (NO_ERROR, Act::Close(CloseKind::Fin)),
    ] {
        let two = H2World::answering(move |asked| match asked.number {
            0 => vec![Act::GoAway(false, code), then.clone()],
            _ => answer("a", 2),
        })
        .await;
        is_good(&two, "sent again").await;
        let asked = two.engine.attempts();
        assert_eq!((asked.len(), two.connections()), (2, 2), "{code}");
        two.end().await;
    }
}

/// After GOAWAY, a stream that the engine has accepted continues; the next request uses another connection.
#[tokio::test]
async fn fault_u46_goaway_after_our_stream() {
    for code in [NO_ERROR, INTERNAL_ERROR] {
        let (gate, held) = Gate::pair();
        let two = H2World::answering(move |asked| match asked.number {
            0 => [
                vec![Act::GoAway(true, code), Act::Await(held.clone())],
                answer("a", 2),
            ]
            .concat(),
            _ => answer("a", 2),
        })
        .await;
        let proxy = two.world.proxy();
        let first =
            tokio::spawn(async move { Request::stream(r#","seed":1"#).answer(proxy).await });
        two.engine.wait(1).await;
        // It may go to the old connection first, if samewire has not read the frame yet.
        is_good(&two, "meanwhile").await;
        gate.open();
        assert_eq!(
            first.await.expect("answered").text(),
            Canonical::answer("a", 2).text()
        );
        let attempts = two.engine.attempts();
        let firsts = attempts
            .iter()
            .filter(|attempt| String::from_utf8_lossy(&attempt.body).contains("seed"));
        assert_eq!((firsts.count(), two.connections()), (1, 2));
        two.end().await;
    }
}

/// A request that the engine has accepted is not sent a second time.
#[tokio::test]
async fn fault_u46_goaway_after_our_stream_and_then_nothing() {
    for manner in [CloseKind::Fin, CloseKind::Rst] {
        let two = H2World::answering(move |_| {
            vec![Act::GoAway(true, INTERNAL_ERROR), Act::Close(manner)]
        })
        .await;
        failed(&two.world.stream("").await, 502, "upstream_reset");
        assert_eq!(two.engine.attempts().len(), 1, "{manner:?}");
        two.end().await;
    }
}

#[tokio::test]
async fn fault_u46_reset_before_a_head() {
    for code in [NO_ERROR, INTERNAL_ERROR, CANCEL] {
        let two = H2World::answering(move |_| vec![Act::Reset(code)]).await;
        failed(&two.world.stream("").await, 502, "upstream_reset");
        assert_eq!(
            two.engine.attempts().len(),
            1,
            "{code}: it may have worked for it"
        );
        two.end().await;
    }
}

/// Every token that arrived before the cut is delivered, then the error.
#[tokio::test]
async fn fault_u46_cut_in_the_middle() {
    let cuts = [
        Act::Reset(INTERNAL_ERROR),
        Act::Reset(REFUSED_STREAM),
        Act::Reset(NO_ERROR),
        Act::GoAway(true, INTERNAL_ERROR),
        Act::Close(CloseKind::Fin),
        Act::Close(CloseKind::Rst),
    ];
    for cut in cuts {
        let last = cut.clone();
        let two = H2World::answering(move |_| {
            let tokens = pieces(Script::new().role().tok("a", 6, Duration::ZERO));
            let end = match last {
                Act::GoAway(..) => vec![last.clone(), Act::Close(CloseKind::Fin)],
                _ => vec![last.clone()],
            };
            [vec![sse()], tokens, end].concat()
        })
        .await;
        for _ in 0..20 {
            let answer = two.world.stream("").await;
            let text = answer.text();
            if answer.head.status == 200 {
                assert!(
                    (0..6).all(|n| text.contains(&format!("a.{n} "))),
                    "{cut:?}: {text}"
                );
                assert!(
                    text.contains(r#""code":"upstream_incomplete""#),
                    "{cut:?}: {text}"
                );
                assert!(!text.contains("[DONE]"), "{cut:?}: {text}");
            } else {
                panic!("{cut:?}: {} {text}", answer.head.status);
            }
        }
        assert_eq!(
            two.engine.attempts().len(),
            20,
            "{cut:?}: none is requested twice"
        );
        two.end().await;
    }
}

/// The engine refuses before it has the whole request, and resets the stream without an error (faults U45).
#[tokio::test]
async fn fault_u46_early_answer_and_reset_without_error() {
    let error = r#"{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}"#;
    for end in [Act::Reset(NO_ERROR), Act::Hang] {
        let ways = H2Behaviour {
            window: Some(1000),
            answers_early: true,
            ..H2Behaviour::default()
        };
        let two = H2World::start(ways, setup().allow_errors(), move |_| {
            [json(400, error), vec![end.clone()]].concat()
        })
        .await;
        let long = Request::stream(&format!(r#","user":"{}""#, "x".repeat(300_000)));
        for _ in 0..3 {
            let answer = two.world.request(&long).await;
            assert_eq!(
                answer.fault().code.as_deref(),
                Some("context_length_exceeded")
            );
            assert_eq!(answer.head.status, 400);
        }
        assert!(
            two.engine
                .attempts()
                .iter()
                .all(|asked| asked.body.len() <= 1000)
        );
        two.end().await;
    }
}

#[tokio::test]
async fn fault_u46_zero_window_for_ever() {
    let ways = H2Behaviour {
        window: Some(0),
        ..H2Behaviour::default()
    };
    let two = H2World::start(
        ways,
        setup()
            .allow_errors()
            .config("[timeouts]\nfirst_token = 0.4"),
        |_| answer("a", 2),
    )
    .await;
    for request in [Request::stream(""), Request::plain("")] {
        let start = Instant::now();
        failed(&two.world.request(&request).await, 504, "upstream_timeout");
        assert_took(start, 350);
    }
    until("both are given up", || {
        two.engine
            .attempts()
            .iter()
            .all(|asked| asked.reset.is_some())
    })
    .await;
    assert_eq!(
        two.engine.attempts().len(),
        2,
        "a silent engine gets no second request"
    );
    two.end().await;
}

/// A client that leaves resets its own stream, and no other.
#[tokio::test]
async fn fault_u46_who_leaves_resets_one_stream() {
    let (gate, held) = Gate::pair();
    let two = H2World::answering(move |asked| {
        let begun = pieces(Script::new().role().text("one"));
        match place(asked).expect("a number") % 3 {
            // The client stays to the end.
            0 => [
                vec![sse()],
                begun,
                vec![Act::Await(held.clone())],
                answer("a", 2)[2..].to_vec(),
            ]
            .concat(),
            // The client leaves during prefill, or in the middle.
            1 => vec![Act::Hang],
            _ => [vec![sse()], begun, vec![Act::Hang]].concat(),
        }
    })
    .await;
    let mut stays = number(0).begin_until(two.world.proxy(), "one").await;
    for (n, manner) in [
        (1, CloseKind::Fin),
        (2, CloseKind::Rst),
        (4, CloseKind::Rst),
        (5, CloseKind::Fin),
    ] {
        let mut leaves = number(n).send(two.world.proxy()).await;
        until("it has arrived", || {
            two.engine
                .attempts()
                .iter()
                .any(|asked| place(asked) == Some(n))
        })
        .await;
        if n % 3 == 2 {
            leaves.event_with_head("one").await;
        }
        let left = leaves.leave(manner);
        let reset = || {
            two.engine
                .attempts()
                .iter()
                .find(|asked| place(asked) == Some(n))
                .and_then(|asked| asked.reset)
        };
        until("it is reset", || reset().is_some()).await;
        let (seen, code) = reset().expect("just seen");
        assert_eq!(code, CANCEL);
        let took = seen.saturating_duration_since(left);
        assert!(took < SOON, "{took:?}");
    }
    assert_eq!(
        (two.engine.attempts().len(), two.connections()),
        (5, 1),
        "none was sent again"
    );
    gate.open();
    let rest = String::from_utf8(stays.rest().await).expect("UTF-8");
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
    two.end().await;
}

/// The engine closes an idle connection as a request is sent: the request is repeated once, on a new connection
/// (faults U03).
#[tokio::test]
async fn fault_u46_closed_as_the_request_goes_out() {
    for act in [Act::Close(CloseKind::Fin), Act::Close(CloseKind::Rst)] {
        let closes = act.clone();
        let two = H2World::answering(move |asked| match asked.stream {
            // The first request of a connection is answered, the second never.
            1 => answer("a", 2),
            _ => vec![closes.clone()],
        })
        .await;
        for n in 0..6 {
            is_good(&two, &format!("{act:?} {n}")).await;
        }
        let asked = two.engine.attempts();
        assert_eq!((asked.len(), two.connections()), (11, 6), "{act:?}");
        assert_eq!(two.world.samewire.metric("samewire_panics_total").await, 0);
        two.end().await;
    }
}

/// A connection dies under several requests before any answer: each request is repeated once.
#[tokio::test]
async fn fault_u46_closed_under_several_requests() {
    let two = H2World::answering(move |asked| match (place(asked), asked.stream) {
        (Some(0), _) => answer("a", 2),
        (Some(1), _) => vec![Act::Hang],
        _ => vec![Act::Close(CloseKind::Rst)],
    })
    .await;
    assert_eq!(two.world.request(&number(0)).await.head.status, 200);
    let proxy = two.world.proxy();
    let one = tokio::spawn(async move { number(1).answer(proxy).await });
    two.engine.wait(2).await;
    failed(&two.world.request(&number(2)).await, 502, "upstream_reset");
    let times = |of: usize| {
        two.engine
            .attempts()
            .iter()
            .filter(|asked| place(asked) == Some(of))
            .count()
    };
    assert_eq!(times(2), 2);
    until("the other is sent again", || times(1) == 2).await;
    one.abort();
    until("the answer is cancelled", || two.engine.active() == 0).await;
    two.end().await;
}

#[tokio::test]
async fn fault_u46_lengths_that_are_not_true() {
    for (length, streams) in [
        ("100000", false),
        ("3", false),
        ("100000", true),
        ("3", true),
    ] {
        let two = H2World::answering(move |_| {
            let kind = if streams {
                "text/event-stream"
            } else {
                "application/json"
            };
            let lines = vec![
                ("content-type", kind.to_owned()),
                ("content-length", length.to_owned()),
            ];
            let body = if streams {
                answer("a", 2)[1..].to_vec()
            } else {
                json(200, BODY)[1..].to_vec()
            };
            [vec![Act::Head(200, lines)], body].concat()
        })
        .await;
        let request = if streams {
            Request::stream("")
        } else {
            Request::plain("")
        };
        let answer = two.world.request(&request).await;
        let text = answer.text();
        let honest = streams && length == "100000" && text.contains("a.1 ");
        assert!(
            answer.head.status == 502 || honest,
            "{length} {streams}: {} {text}",
            answer.head.status
        );
        assert_eq!(two.engine.attempts().len(), 1);
        two.end().await;
    }
}

#[tokio::test]
async fn fault_u46_limits_hold() {
    let setup = setup()
        .allow_errors()
        .config("[limits]\nmax_event_bytes = 2000\nmax_answer_bytes = 5000");
    let two = H2World::start(H2Behaviour::default(), setup, |asked| {
        let text = "x".repeat(3000);
        match String::from_utf8_lossy(&asked.body).contains(r#""stream":true"#) {
            true => [
                vec![sse()],
                pieces(Script::new().role().text(&text)),
                vec![Act::Hang],
            ]
            .concat(),
            false => json(200, &BODY.replace("whole", &text.repeat(4))),
        }
    })
    .await;
    let answer = two.world.stream("").await;
    assert!(
        answer.text().contains("upstream_invalid_event"),
        "{}",
        answer.text()
    );
    assert_eq!(
        two.world.request(&Request::plain("")).await.head.status,
        502
    );
    until("the answer is cancelled", || two.engine.active() == 0).await;
    two.end().await;
}

/// A reader that stops does not stop other streams of its connection.
#[tokio::test]
async fn fault_u46_a_stopped_reader_holds_up_nobody() {
    let two = H2World::answering(|asked| match place(asked) {
        Some(0) => {
            let text = "x".repeat(1000);
            let body = Script::new().role();
            [
                vec![sse()],
                pieces((0..60).fold(body, |body, _| body.text(&text))),
                vec![Act::Hang],
            ]
            .concat()
        }
        _ => answer("a", 2),
    })
    .await;
    let stopped = number(0).send_narrow(two.world.proxy()).await;
    two.engine.wait(1).await;
    for n in 1..20 {
        assert_eq!(
            two.world.request(&number(n)).await.text(),
            Canonical::answer("a", 2).text()
        );
    }
    assert_eq!(two.connections(), 1);
    stopped.leave(CloseKind::Rst);
    until("the answer is cancelled", || two.engine.active() == 0).await;
    two.end().await;
}

/// A connection whose pings are not answered is closed, and its requests fail.
#[tokio::test]
async fn fault_u46_an_engine_that_answers_no_ping() {
    let ways = H2Behaviour {
        ignores_pings: true,
        ..H2Behaviour::default()
    };
    let two = H2World::start(ways, setup().allow_errors(), |asked| match asked.number {
        0 => vec![Act::Hang],
        _ => answer("a", 2),
    })
    .await;
    let mut client = Client::connect(two.world.proxy())
        .await
        .with_patience(Duration::from_secs(120));
    let start = Instant::now();
    client.send(&Request::plain("").bytes()).await;
    failed(&client.answer().await, 502, "upstream_reset");
    // Pings are sent every 15 s, with 30 s for the answer.
    let took = start.elapsed();
    assert!(
        took > Duration::from_secs(30) && took < Duration::from_secs(90),
        "{took:?}"
    );
    is_good(&two, "on another connection").await;
    two.end().await;
}

#[tokio::test]
async fn fault_u46_an_engine_of_http1_is_not_reached() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let serving = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = vec![0; 4096];
            let read = stream.read(&mut bytes).await.unwrap_or(0);
            count.fetch_add(
                usize::from(bytes[..read].starts_with(b"PRI * HTTP/2.0")),
                Ordering::SeqCst,
            );
            let _ = stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
                .await;
        }
    });
    let world = at(&url, setup().allow_errors(), "").await;
    failed(&world.stream("").await, 502, "upstream_unreachable");
    assert!(asked.load(Ordering::SeqCst) > 0);
    serving.abort();
    world.end().await;
}

/// Over TLS, HTTP/2 must be negotiated, or the request fails.
#[tokio::test]
async fn fault_u46_over_tls() {
    let authority = Authority::new("engines");
    let folder = Folder::new();
    let line = file_key_line("ca_file", &folder.write("ca.pem", &authority.pem()));
    for (offered, status) in [
        (Some(&b"h2"[..]), 200),
        (Some(b"http/1.1"), 502),
        (None, 502),
    ] {
        let engine = H2Engine::answering(H2Behaviour::default(), |_| answer("a", 2)).await;
        let mut server = (*authority.sign("localhost", 100).server(None)).clone();
        server.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
        let tunnel = Tunnel::out_of_tls(engine.address, Arc::new(server)).await;
        let world = at(&tunnel.url(), setup().allow_errors(), &line).await;
        for _ in 0..3 {
            let answer = world.stream("").await;
            assert_eq!(answer.head.status, status, "{offered:?}");
            if status == 200 {
                assert_eq!(answer.text(), Canonical::answer("a", 2).text());
            } else {
                failed(&answer, 502, "upstream_unreachable");
            }
        }
        assert_eq!(engine.attempts().len(), if status == 200 { 3 } else { 0 });
        world.end().await;
    }
}
