//! Requests that fail on one engine and are answered by another (faults 7).

use crate::canonical::Canonical;
use crate::pool::{PATIENT, refused};
use crate::responses::over_chat::{events, prompt};
use crate::sim::prelude::*;
use crate::sim::{refusing, unanswered_address};

/// Starts an engine that answers correctly, streamed or whole as requested.
async fn good() -> Engine {
    Engine::answering(
        |attempt| match attempt.text().contains(r#""stream":true"#) {
            true => Script::answer("good", 2),
            false => Script::completion("whole"),
        },
    )
    .await
}

/// Starts engines of which the first requests fail with this script, whichever engine they reach. Later ones
/// succeed.
async fn failing_first(failures: usize, engines: usize, script: Script) -> Vec<Engine> {
    let left = Arc::new(AtomicUsize::new(failures));
    let mut all = Vec::new();
    for _ in 0..engines {
        let (left, script) = (Arc::clone(&left), script.clone());
        let engine = Engine::answering(move |attempt| {
            let fails = left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok();
            match attempt.text().contains(r#""stream":true"#) {
                _ if fails => script.clone(),
                true => Script::answer("good", 2),
                false => Script::completion("whole"),
            }
        });
        all.push(engine.await);
    }
    all
}

fn good_stream() -> String {
    Canonical::answer("good", 2).text().to_owned()
}

/// Starts samewire in front of these engines and waits until their models are known.
async fn fleet(engines: Vec<Engine>, setup: Setup) -> World {
    World::fleet_up(engines, setup, &[]).await
}

fn setup() -> Setup {
    Setup::new().allow_errors().config(PATIENT)
}

/// Checks that a request gets the stream of a good engine after this many attempts.
async fn is_good(world: &World, request: &Request, attempts: &str, what: &str) {
    let answer = world.request(request).await;
    assert_eq!(
        (
            answer.head.status,
            answer.head.header("x-samewire-attempts")
        ),
        (200, Some(attempts)),
        "{what}"
    );
    if answer.head.header("content-type") == Some("application/json") {
        assert!(answer.text().contains("whole"), "{what}: {}", answer.text());
    } else {
        assert_eq!(answer.text(), good_stream(), "{what}");
    }
}

#[tokio::test]
async fn fault_u01_who_refuses_the_connection_is_passed_over() {
    let (nobody, _held) = refusing();
    let lines = format!("[[upstream]]\nname = \"gone\"\nurl = \"{nobody}\"\nmodels = [\"m\"]");
    let world = World::fleet_up([good()], setup(), &[&lines]).await;
    let mut twice = 0;
    for n in 0..30 {
        let request = if n % 2 == 0 {
            Request::stream("")
        } else {
            Request::plain("")
        };
        let answer = world.request(&request).await.with_status(200);
        twice += usize::from(answer.head.header("x-samewire-attempts") == Some("2"));
    }
    assert!(twice > 0, "the other one gets no request");
    // Five failures in a row eject the engine: it does not fail every second request for ever.
    assert!(twice <= 6, "{twice}");
    world.end().await;
}

#[tokio::test]
async fn fault_u04_who_never_answers_a_connect_is_passed_over() {
    let (nobody, _held) = unanswered_address();
    let lines = format!("[[upstream]]\nname = \"gone\"\nurl = \"{nobody}\"\nmodels = [\"m\"]");
    let world = World::fleet_up(
        [good()],
        setup().config("[timeouts]\nconnect = 0.2"),
        &[&lines],
    )
    .await;
    for _ in 0..12 {
        world.stream("").await.with_status(200);
    }
    world.end().await;
}

#[tokio::test]
async fn failures_before_the_first_word_are_answered_by_another() {
    let in_band = |code: u32| {
        Script::new()
            .head_sse()
            .ev(&format!(r#"{{"error":{{"message":"no","code":{code}}}}}"#))
            .end()
    };
    let abort = Script::stream().finish("abort").done().end();
    for (row, script) in [
        ("fault_u11 reset", Script::new().rst()),
        ("fault_u11 end", Script::new().fin()),
        (
            "fault_u12 reset after the head",
            Script::new().head_sse().rst(),
        ),
        (
            "fault_u12 reset after the role",
            Script::stream().sleep(Duration::from_millis(20)).rst(),
        ),
        ("fault_u16", abort),
        ("fault_u17 429", in_band(429)),
        ("fault_u17 500", in_band(500)),
        ("fault_u17 503", in_band(503)),
        (
            "fault_u17 after the role",
            Script::stream()
                .ev(r#"{"error":{"message":"no","code":500}}"#)
                .end(),
        ),
        ("fault_u18 500", refused("500 Internal Server Error")),
        ("fault_u18 502", refused("502 Bad Gateway")),
        ("fault_u18 504", refused("504 Gateway Timeout")),
        (
            "fault_u18 html",
            Script::new().whole("502 Bad Gateway", "text/html", "<html>nginx</html>"),
        ),
        ("fault_u23 429", refused("429 Too Many Requests")),
        ("fault_u23 503", refused("503 Service Unavailable")),
        (
            "fault_u41",
            Script::new().raw("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"),
        ),
    ] {
        let world = fleet(failing_first(1, 2, script).await, setup()).await;
        is_good(&world, &Request::stream(""), "2", row).await;
        let asked: Vec<_> = world
            .engines()
            .flat_map(|engine| engine.attempts())
            .collect();
        assert_eq!(asked[0].text(), asked[1].text(), "{row}: the same request");
        let mut ids: Vec<_> = asked
            .iter()
            .filter_map(|attempt| attempt.header("x-request-id"))
            .collect();
        ids.sort_unstable();
        let base = ids[0].strip_suffix("-1").expect("the first attempt");
        assert_eq!(ids[1], format!("{base}-2"), "{row}");
        world.end().await;
    }
}

#[tokio::test]
async fn whole_answers_responses_and_embeddings_are_answered_by_another() {
    for (n, script) in [refused("500 Internal Server Error"), Script::new().rst()]
        .into_iter()
        .enumerate()
    {
        let world = fleet(failing_first(1, 2, script.clone()).await, setup()).await;
        is_good(&world, &Request::plain(""), "2", "whole").await;
        world.end().await;
        let world = fleet(failing_first(1, 2, script.clone()).await, setup()).await;
        let answer = world.request(&prompt("m", r#","stream":true"#)).await;
        assert_eq!(answer.head.header("x-samewire-attempts"), Some("2"), "{n}");
        let told = events(&answer);
        for (at, event) in told.iter().enumerate() {
            assert_eq!(event["sequence_number"], at, "{n}: {event}");
        }
        assert_eq!(
            told.iter()
                .filter(|event| event["type"] == "response.created")
                .count(),
            1
        );
        assert_eq!(
            told.last().map(|last| last["type"] == "response.completed"),
            Some(true),
            "{n}"
        );
        world.end().await;
        let world = fleet(failing_first(1, 2, script).await, setup()).await;
        let answer = world
            .request(&prompt("m", r#","background":true,"stream":true"#))
            .await;
        let told = events(&answer);
        for (at, event) in told.iter().enumerate() {
            assert_eq!(event["sequence_number"], at, "{n}: {event}");
        }
        let kinds: Vec<_> = told
            .iter()
            .filter_map(|event| event["type"].as_str())
            .collect();
        assert_eq!(
            kinds[..3],
            [
                "response.created",
                "response.queued",
                "response.in_progress"
            ],
            "{n}"
        );
        assert_eq!(kinds.last(), Some(&"response.completed"), "{n}: {kinds:?}");
        world.end().await;
    }
    let list = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1}}"#;
    let (bad, fine) = (
        Engine::script(refused("500 Internal Server Error")).await,
        Engine::script(Script::ok(list)).await,
    );
    let world = fleet(vec![bad, fine], setup()).await;
    for _ in 0..12 {
        world
            .post("/v1/embeddings", r#"{"model":"m","input":"x"}"#)
            .await
            .with_status(200);
    }
    assert!(world.engine.attempt_count() > 0);
    world.end().await;
}

/// Errors caused by the client, and unreadable answers, are returned at once without a retry.
#[tokio::test]
async fn what_another_would_say_too_is_not_asked_again() {
    let bad = r#"{"object":"error","message":"This model's maximum context length is 1 token","type":"BadRequestError","param":null,"code":400}"#;
    for (row, script, status) in [
        ("fault_u22", Script::new().json("400 Bad Request", bad), 400),
        (
            "404",
            Script::new().json("404 Not Found", r#"{"detail":"Not Found"}"#),
            404,
        ),
        ("501", refused("501 Not Implemented"), 501),
        (
            "fault_u20",
            Script::new().whole_with(
                "200 OK",
                "application/json",
                "content-encoding: gzip\r\n",
                "x",
            ),
            502,
        ),
        (
            "fault_u21",
            Script::new().whole_with("307 Temporary Redirect", "", "location: http://x/\r\n", ""),
            502,
        ),
        ("fault_u29", Script::new().head_sse().ev("{").end(), 502),
        ("fault_u14", Script::stream().end(), 502),
    ] {
        let world = fleet(failing_first(9, 2, script).await, setup()).await;
        let answer = world.stream("").await;
        assert_eq!(
            (
                answer.head.status,
                answer.head.header("x-samewire-attempts")
            ),
            (status, Some("1")),
            "{row}"
        );
        assert_eq!(world.attempt_counts().iter().sum::<usize>(), 1, "{row}");
        world.end().await;
    }
}

/// A request is not retried once the client has received a part of the answer (P6).
#[tokio::test]
async fn nothing_is_asked_again_behind_the_first_word() {
    let spoken = || Script::stream().text("said ");
    for (what, script) in [
        ("reset in one go", spoken().rst().in_one_write()),
        (
            "reset later",
            spoken().sleep(Duration::from_millis(30)).rst(),
        ),
        (
            "error",
            spoken()
                .ev(r#"{"error":{"message":"no","code":500}}"#)
                .end(),
        ),
        ("abort", spoken().finish("abort").done().end()),
    ] {
        let world = fleet(failing_first(9, 2, script).await, setup()).await;
        let answer = world.stream("").await;
        assert_eq!(answer.head.status, 200, "{what}");
        assert!(
            answer.text().contains("said ") && answer.text().contains("event: error"),
            "{what}: {}",
            answer.text()
        );
        assert_eq!(world.attempt_counts().iter().sum::<usize>(), 1, "{what}");
        world.end().await;
    }
}

#[tokio::test]
async fn fault_u06_u08_who_says_nothing_is_passed_over_while_there_is_time() {
    for (row, script) in [
        ("fault_u06", Script::new().hang()),
        ("fault_u08", Script::stream().hang()),
    ] {
        let times = "[timeouts]\nfirst_token = 0.3\ntotal_stream = 30\ntotal_whole = 30\n[wire]\ncommit_after_seconds = 0";
        let world = fleet(
            failing_first(1, 2, script.clone()).await,
            setup().config(times),
        )
        .await;
        // The status has been sent by then.
        let answer = world.stream("").await;
        let told = answer.text().trim_start_matches(": keepalive\n\n");
        assert_eq!(told, good_stream(), "{row}: one role");
        world.end().await;
        // Less than half of the total time is left.
        let times = "[timeouts]\nfirst_token = 0.3\ntotal_stream = 0.5\ntotal_whole = 0.5";
        let world = fleet(failing_first(1, 2, script).await, setup().config(times)).await;
        let answer = world.request(&Request::plain("")).await;
        assert_eq!(
            (
                answer.head.status,
                world.attempt_counts().iter().sum::<usize>()
            ),
            (504, 1),
            "{row}"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn fault_u42_a_request_that_engines_die_of_reaches_two() {
    let engines = Engine::several(5, |attempt| match attempt.text().contains("marker") {
        true => Script::new().rst(),
        false => Script::answer("good", 2),
    });
    let world = fleet(engines.await, setup().config("[retry]\nmax_attempts = 4")).await;
    let stream = Request::stream(r#","user":"marker""#);
    let object = Request::post("/v1/embeddings", r#"{"model":"m","input":"marker"}"#);
    for (n, poison) in [&stream, &object, &stream, &object, &stream, &object]
        .into_iter()
        .enumerate()
    {
        let answer = world.request(poison).await;
        assert_eq!(answer.failure(), "502 server_error upstream_reset");
        assert_eq!(answer.head.header("x-should-retry"), Some("false"));
        assert_eq!(answer.head.header("x-samewire-attempts"), Some("2"));
        assert_eq!(world.attempt_counts().iter().sum::<usize>(), 2 * (n + 1));
    }
    is_good(&world, &Request::stream(""), "1", "the fleet is up").await;
    world.end().await;
}

#[tokio::test]
async fn fault_u43_a_large_body_goes_to_the_second_as_it_went_to_the_first() {
    for size in [1, 70_000, 3 << 20, 31 << 20] {
        let world = fleet(failing_first(1, 2, Script::new().rst()).await, setup()).await;
        let text = "x".repeat(size);
        is_good(
            &world,
            &Request::stream(&format!(r#","user":"{text}""#)),
            "2",
            "large",
        )
        .await;
        let asked: Vec<_> = world
            .engines()
            .flat_map(|engine| engine.attempts())
            .collect();
        assert_eq!(asked.len(), 2, "{size}");
        assert!(
            asked.iter().all(|attempt| attempt.text().contains(&text)),
            "{size}"
        );
        world.end().await;
    }
}

/// The second engine gets the whole body, byte for byte, however much of it the first one has read.
#[tokio::test]
async fn fault_u43_what_one_has_read_of_a_body_the_other_gets_whole() {
    // The largest one is more than the kernel takes from samewire before the engine reads.
    for size in [1, 70_000, 3 << 20, 12 << 20] {
        let text: String = (0..size as u64)
            .map(|i| char::from(b'a' + (i * 7919 % 25) as u8))
            .collect();
        let more = format!(r#","stream_options":{{"include_usage":true}},"user":"{text}""#);
        let request = Request::stream(&more);
        let length = request.sent_body().len();
        for part in [1, length / 2, length] {
            let first = Engine::script(Script::new().rst()).await;
            let world = fleet(vec![first, good().await], setup()).await;
            // Either engine may be first.
            while world.engine.attempt_count() == 0 {
                world.engine.limit_next_body(part);
                let answer = world.request(&request).await;
                assert_eq!(answer.head.status, 200, "{part} of {length}");
                let before = world.engine.attempt_count() + 1;
                assert_eq!(
                    answer.head.header("x-samewire-attempts"),
                    Some(before.to_string().as_str())
                );
            }
            assert_eq!(
                world.engine.only().body,
                request.sent_body()[..part],
                "{part} of {length}"
            );
            for attempt in world.others[0].attempts() {
                assert!(
                    attempt.body == request.sent_body(),
                    "{part} of {length}: {}",
                    attempt.body.len()
                );
            }
            world.end().await;
        }
    }
}

#[tokio::test]
async fn fault_u23_all_push_back() {
    let pushing = |status: &str, lines: &str| {
        Script::new().whole_with(
            status,
            "application/json",
            lines,
            r#"{"error":{"message":"busy"}}"#,
        )
    };
    let one = Engine::script(pushing("429 Too Many Requests", "retry-after: 20\r\n")).await;
    let other = Engine::script(pushing("503 Service Unavailable", "retry-after: 7\r\n")).await;
    let world = fleet(vec![one, other], setup()).await;
    let answer = world.stream("").await;
    assert!(matches!(answer.head.status, 429 | 503));
    assert_eq!(
        answer.head.header("retry-after"),
        Some("7"),
        "the shorter one"
    );
    assert_eq!(world.attempt_counts(), [1, 1]);
    // No engine gets a request before that time; clients get an error at once.
    for _ in 0..20 {
        let answer = world.stream("").await;
        assert_eq!(answer.head.status, 503, "the one that may be first");
        let after: u64 = answer
            .head
            .header("retry-after")
            .and_then(|after| after.parse().ok())
            .expect("seconds");
        assert!((1..=7).contains(&after), "{after}");
    }
    assert_eq!(world.attempt_counts(), [1, 1]);
    world.end().await;
}

#[tokio::test]
async fn fault_u22_refusals_count_for_nothing() {
    let engine = || {
        Engine::answering(|attempt| match attempt.text().contains("bad") {
            true => Script::new().json(
                "400 Bad Request",
                r#"{"error":{"message":"bad","code":400}}"#,
            ),
            false => Script::answer("good", 2),
        })
    };
    let world = fleet(vec![engine().await, engine().await], setup()).await;
    for _ in 0..200 {
        assert_eq!(world.stream(r#","user":"bad""#).await.head.status, 400);
    }
    for _ in 0..20 {
        is_good(&world, &Request::stream(""), "1", "after many refusals").await;
    }
    let shares = world.attempt_counts();
    assert!(shares.iter().all(|share| *share > 60), "{shares:?}");
    world.end().await;
}

/// The client leaves in the pause before the second attempt, which lasts from 25 to 250 ms. Some clients leave too
/// late for that, but not all.
#[tokio::test]
async fn fault_c24_a_client_that_left_is_not_asked_for_again() {
    const WORLDS: usize = 8;
    // Too few failures to eject an engine.
    const LEAVERS: usize = 3;
    let mut again = 0;
    for _ in 0..WORLDS {
        let engines = Engine::several(2, |attempt| match is_first(attempt) {
            true => refused("500 Internal Server Error"),
            false => Script::answer("good", 2),
        });
        let world = fleet(engines.await, setup()).await;
        let failed = || {
            let attempts = world.engines().flat_map(Engine::attempts);
            attempts
                .filter(|attempt| is_first(attempt) && attempt.finished)
                .count()
        };
        for n in 1..=LEAVERS {
            let client = world.send(&Request::stream("")).await;
            until("the first attempt has failed", || failed() == n).await;
            client.leave(CloseKind::Rst);
            world.samewire.finished(n).await;
        }
        again += world.attempt_counts().iter().sum::<usize>() - LEAVERS;
        is_good(&world, &Request::stream(""), "2", "a client that stays").await;
        world.end().await;
    }
    assert!(
        again <= WORLDS * LEAVERS / 3,
        "sent again for {again} of {}",
        WORLDS * LEAVERS
    );
}

fn is_first(attempt: &Attempt) -> bool {
    attempt
        .header("x-request-id")
        .is_some_and(|id| id.ends_with("-1"))
}

#[tokio::test]
async fn retries_have_a_budget() {
    let engine = || Engine::script(refused("500 Internal Server Error"));
    // Ejection would hide the limit.
    let lines = "[retry]\nbudget_percent = 10\nbudget_per_second = 1";
    let world = fleet(vec![engine().await, engine().await], setup().config(lines)).await;
    let start = Instant::now();
    for _ in 0..100 {
        assert_eq!(world.stream("").await.head.status, 500);
    }
    let took = usize::try_from(start.elapsed().as_secs()).expect("short");
    let asked = world.attempt_counts().iter().sum::<usize>();
    assert!(
        (100..=121 + took).contains(&asked),
        "a tenth of the requests, ten, and one a second: {asked}"
    );
    let spent = world
        .samewire
        .metric("samewire_retry_budget_exhausted_total")
        .await;
    assert!(spent + asked as u64 >= 180, "{spent}");
    world.end().await;
}

/// A kept connection that dies as a request is sent costs one more request at that engine, and none at another: a
/// retry elsewhere uses a new connection.
#[tokio::test]
async fn fault_u03_one_replay_for_each_request() {
    let engine = || {
        Engine::answering(|attempt| match attempt.text().contains("poison") {
            true => Script::new().fin(),
            false => Script::answer("good", 2),
        })
    };
    // Connections stay with the thread that opened them.
    let world = fleet(
        vec![engine().await, engine().await],
        setup().args(&["--threads", "1"]),
    )
    .await;
    while world.attempt_counts().contains(&0) {
        assert_eq!(world.stream("").await.text(), good_stream());
    }
    world.stream(r#","user":"poison""#).await.with_status(502);
    let poisoned: Vec<_> = world
        .engines()
        .flat_map(Engine::attempts)
        .filter(|attempt| attempt.text().contains("poison"))
        .collect();
    assert_eq!(poisoned.len(), 3, "two at the first, one at the second");
    assert_eq!(poisoned.iter().filter(|attempt| attempt.reused).count(), 1);
    world.end().await;
}
