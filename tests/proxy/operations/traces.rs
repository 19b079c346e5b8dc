//! Traces: spans sent to a collector, headers sent to engines, and collectors that never delay a request (faults
//! O22).

use crate::collector::{Collector, attributes};
use crate::sim::prelude::*;
use opentelemetry_proto::tonic::trace::v1::Span;
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Splits spans into those of the server and those of attempts at engines.
fn sides(spans: &[Span]) -> (Vec<&Span>, Vec<&Span>) {
    assert!(spans.iter().all(|span| [2, 3].contains(&span.kind)));
    spans.iter().partition(|span| span.kind == 2)
}

/// Choices that are requested separately have parallel spans, and none of them counts as a failed attempt.
#[tokio::test]
async fn requests_at_once_are_spans_beside_each_other() {
    let collector = Collector::start().await;
    let setup = Setup::new().config(&collector.config());
    let world = World::start_as(Script::answer("a", 5), "transformers", setup).await;
    assert_eq!(world.stream(r#","n":3"#).await.head.status, 200);
    let spans = collector.wait(4).await;
    let (server, client) = sides(&spans);
    assert_eq!((server.len(), client.len()), (1, 3));
    let mut told = Vec::new();
    for span in &client {
        assert_eq!(
            (span.end_time_unix_nano, &span.status),
            (client[0].end_time_unix_nano, &None)
        );
        let attributes = attributes(&span.attributes);
        assert_eq!(attributes.get("error.type"), None);
        told.extend(attributes.get("gen_ai.usage.output_tokens").cloned());
    }
    assert_eq!(told, ["15"], "what all of them used is told once");
    let seen: BTreeSet<_> = world
        .engine
        .attempts()
        .iter()
        .filter_map(|one| one.header("traceparent").map(str::to_owned))
        .collect();
    assert_eq!(seen.len(), 3);
    world.end().await;
}

#[tokio::test]
async fn a_request_is_told_of_with_the_engine_that_was_asked() {
    let collector = Collector::start().await;
    let before = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos();
    let world = World::start(
        Script::answer("a", 5),
        Setup::new().config(&collector.config()),
    )
    .await;
    world.get("/v1/models").await;
    world
        .request(
            &Request::stream("")
                .header("traceparent", PARENT)
                .header("tracestate", "a=b")
                .header("x-request-id", "mine-1"),
        )
        .await;
    let spans = collector.wait(4).await;
    let after = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos();
    assert_eq!(collector.posts()[0].0["service.name"], "samewire");
    let (server, client) = sides(&spans);
    let of_chat = |all: &[&Span]| {
        (*all
            .iter()
            .find(|span| hex(&span.trace_id) == PARENT[3..35])
            .expect("the client's trace"))
        .clone()
    };
    let (server, client) = (of_chat(&server), of_chat(&client));
    assert_eq!(
        (server.name.as_str(), client.name.as_str()),
        ("POST /v1/chat/completions", "chat m")
    );
    assert_eq!(
        (hex(&server.parent_span_id), &client.parent_span_id),
        (PARENT[36..52].to_owned(), &server.span_id)
    );
    assert_eq!(
        (server.trace_state.as_str(), client.trace_state.as_str()),
        ("a=b", "a=b")
    );
    assert!(server.status.is_none() && client.status.is_none());
    let times = [
        before,
        server.start_time_unix_nano.into(),
        client.start_time_unix_nano.into(),
        client.end_time_unix_nano.into(),
        server.end_time_unix_nano.into(),
        after,
    ];
    assert!(times.is_sorted(), "{times:?}");
    let told = attributes(&server.attributes);
    for (name, value) in [
        ("http.request.method", "POST"),
        ("http.route", "/v1/chat/completions"),
        ("http.response.status_code", "200"),
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.request.model", "m"),
        ("samewire.request_id", "mine-1"),
        ("samewire.end", "complete"),
    ] {
        assert_eq!(
            told.get(name).map(String::as_str),
            Some(value),
            "{name}: {told:#?}"
        );
    }
    let told = attributes(&client.attributes);
    let (host, port) = (
        world.engine.address.ip().to_string(),
        world.engine.address.port().to_string(),
    );
    for (name, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "vllm"),
        ("gen_ai.request.model", "m"),
        ("gen_ai.response.finish_reasons", "stop"),
        ("gen_ai.usage.input_tokens", "3"),
        ("gen_ai.usage.output_tokens", "5"),
        ("server.address", &host),
        ("server.port", &port),
        ("samewire.attempt", "1"),
    ] {
        assert_eq!(
            told.get(name).map(String::as_str),
            Some(value),
            "{name}: {told:#?}"
        );
    }
    // The engine gets the id of exactly this span.
    let seen = world.engine.only();
    let expected = format!("00-{}-{}-01", &PARENT[3..35], hex(&client.span_id));
    assert_eq!(
        (seen.header("traceparent"), seen.header("tracestate")),
        (Some(expected.as_str()), Some("a=b"))
    );
    let id = format!("\"trace_id\":\"{}\"", &PARENT[3..35]);
    assert!(world.samewire.logged(&id, 1).await[0].contains("mine-1"));
    world
        .samewire
        .metric_becomes("samewire_spans_exported_total", 4)
        .await;
    world
        .samewire
        .metric_becomes("samewire_spans_dropped_total", 0)
        .await;
    world.end().await;
}

/// Trace headers of a client, whether its trace is continued, and whether the request is recorded.
type Lines = &'static [(&'static str, &'static str)];
const CONTEXTS: [(Lines, bool, bool); 16] = [
    (&[], false, true),
    (&[("traceparent", PARENT)], true, true),
    (
        &[(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
        )],
        true,
        false,
    ),
    (
        &[(
            "traceparent",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-later",
        )],
        true,
        true,
    ),
    (
        &[("traceparent", PARENT), ("traceparent", PARENT)],
        false,
        true,
    ),
    (&[("traceparent", "garbage")], false, true),
    (&[("traceparent", "")], false, true),
    (
        &[(
            "traceparent",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )],
        false,
        true,
    ),
    (
        &[(
            "traceparent",
            "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01",
        )],
        false,
        true,
    ),
    (
        &[(
            "traceparent",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        )],
        false,
        true,
    ),
    (
        &[(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        )],
        false,
        true,
    ),
    (
        &[(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        )],
        false,
        true,
    ),
    (
        &[(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        )],
        false,
        true,
    ),
    (&[("tracestate", "a=b")], false, true),
    (
        &[("traceparent", "garbage"), ("tracestate", "a=b")],
        false,
        true,
    ),
    (
        &[("traceparent", PARENT), ("tracestate", "not a list")],
        true,
        true,
    ),
];

#[tokio::test]
async fn trace_context_goes_on_or_begins() {
    let collector = Collector::start().await;
    let mut recorded = BTreeSet::new();
    for traced in [true, false] {
        let setup = if traced {
            Setup::new().config(&collector.config())
        } else {
            Setup::new()
        };
        let world = World::plain(setup).await;
        for (n, (lines, goes_on, is_recorded)) in CONTEXTS.into_iter().enumerate() {
            let request = lines
                .iter()
                .fold(Request::stream(""), |request, (name, value)| {
                    request.header(name, value)
                });
            world.request(&request).await;
            let seen = world.engine.wait_attempts(n + 1).await.pop().expect("one");
            assert_eq!(seen.header("tracestate"), None, "{lines:?}");
            let told = seen.header("traceparent");
            if !traced {
                // Without a collector samewire starts no trace, and only forwards a valid one.
                assert_eq!(told.is_some(), goes_on, "{lines:?}: {told:?}");
                assert!(
                    told.is_none_or(|told| told[..52] == PARENT[..52]),
                    "{lines:?}: {told:?}"
                );
                continue;
            }
            let told = told.unwrap_or_else(|| panic!("{lines:?}: no trace begins"));
            assert!(
                told.len() == 55 && told.starts_with("00-") && !told.contains(&PARENT[36..52]),
                "{told}"
            );
            assert_eq!(told[3..35] == PARENT[3..35], goes_on, "{lines:?}: {told}");
            let flags = u8::from_str_radix(&told[53..], 16).expect("flags");
            assert_eq!(flags & 1 == 1, is_recorded, "{lines:?}: {told}");
            if is_recorded {
                recorded.insert(told[36..52].to_owned());
            }
        }
        // Dropping the world kills the process, and queued spans would be lost.
        collector.wait(2 * recorded.len()).await;
        world.end().await;
    }
    let spans = collector.spans();
    let (server, client) = sides(&spans);
    let ids: BTreeSet<_> = client.iter().map(|span| hex(&span.span_id)).collect();
    assert_eq!(
        (ids, server.len()),
        (recorded, 15),
        "all that is recorded, and only that"
    );
    for span in client {
        assert!(server.iter().any(
            |server| server.span_id == span.parent_span_id && server.trace_id == span.trace_id
        ));
    }
}

#[tokio::test]
async fn the_environment_names_the_collector_and_its_key() {
    let collector = Collector::start().await;
    let folder = Folder::new();
    let lines = "# of the collector\nauthorization: Bearer CANARY-FILE\nx-tenant: a b\n";
    let file = folder.write("headers", lines);
    let by_file = Setup::new().config(&format!("{}\nheaders_file = {file:?}", collector.config()));
    let nowhere = "[trace]\nendpoint = \"http://127.0.0.1:1\"";
    let by_environment = Setup::new()
        .config(nowhere)
        .environment("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.0.url())
        .environment(
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer%20CANARY-VARIABLE",
        );
    // By OpenTelemetry, the URL for traces alone is used unchanged.
    let exact = Setup::new().environment(
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        &format!("{}/ingest/otel", collector.0.url()),
    );
    for (n, (setup, key, tenant, path)) in [
        (
            by_file,
            Some("Bearer CANARY-FILE"),
            Some("a b"),
            "/v1/traces",
        ),
        (
            by_environment,
            Some("Bearer CANARY-VARIABLE"),
            None,
            "/v1/traces",
        ),
        (exact, None, None, "/ingest/otel"),
    ]
    .into_iter()
    .enumerate()
    {
        let world = World::start(Script::answer("a", 1), setup).await;
        world.stream("").await;
        let posts = collector.0.wait_attempts(n + 1).await;
        assert_eq!(
            (
                posts[n].header("authorization"),
                posts[n].header("x-tenant")
            ),
            (key, tenant)
        );
        assert_eq!(posts[n].target, path);
        world.end().await;
    }
}

#[tokio::test]
async fn a_share_of_traces_is_recorded() {
    let collector = Collector::start().await;
    let config = format!("{}\nsample = 0", collector.config());
    let world = World::configured(&config).await;
    world.stream("").await;
    world
        .request(&Request::stream("").header("traceparent", PARENT))
        .await;
    let told = world
        .engine
        .attempts()
        .remove(0)
        .header("traceparent")
        .expect("told all the same")
        .to_owned();
    assert_eq!(&told[53..], "02", "not recorded");
    let spans = collector.wait(2).await;
    assert!(
        spans
            .iter()
            .all(|span| hex(&span.trace_id) == PARENT[3..35]),
        "{spans:?}"
    );
    world.end().await;
}

/// Each attempt has its own span, and its engine gets that span's id.
#[tokio::test]
async fn every_attempt_is_a_span() {
    let collector = Collector::start().await;
    let broken = Engine::script(Script::new().rst()).await;
    let good = Engine::script(Script::answer("a", 1)).await;
    let setup = Setup::new()
        .upstream(&broken.url())
        .upstream(&good.url())
        .config(&collector.config());
    let samewire = Samewire::start(&setup).await;
    for _ in 0..100 {
        assert_eq!(
            Request::stream("").answer(samewire.proxy).await.head.status,
            200
        );
        if broken.attempt_count() > 0 {
            break;
        }
    }
    let told = broken
        .wait_attempts(1)
        .await
        .remove(0)
        .header("traceparent")
        .expect("a trace")
        .to_owned();
    until("the spans", || {
        collector
            .spans()
            .iter()
            .filter(|span| hex(&span.trace_id) == told[3..35])
            .count()
            >= 3
    })
    .await;
    let spans = collector.spans();
    let mut attempts: Vec<_> = spans
        .iter()
        .filter(|span| span.kind == 3 && hex(&span.trace_id) == told[3..35])
        .collect();
    attempts.sort_by_key(|span| span.start_time_unix_nano);
    let [first, last] = attempts.as_slice() else {
        panic!("{attempts:#?}")
    };
    assert_eq!(hex(&first.span_id), told[36..52]);
    let mut seen = good
        .attempts()
        .into_iter()
        .map(|attempt| attempt.header("traceparent").expect("a trace").to_owned());
    assert!(
        seen.any(|seen| seen[3..52] == format!("{}-{}", hex(&last.trace_id), hex(&last.span_id)))
    );
    assert!(
        first.status.is_some() && last.status.is_none(),
        "{attempts:#?}"
    );
    assert!(
        first.end_time_unix_nano <= last.start_time_unix_nano
            && first.parent_span_id == last.parent_span_id
    );
    for (span, (engine, number)) in attempts.iter().zip([(&broken, "1"), (&good, "2")]) {
        let told = attributes(&span.attributes);
        let expected = [engine.address.port().to_string(), number.to_owned()];
        assert_eq!(
            [
                told["server.port"].clone(),
                told["samewire.attempt"].clone()
            ],
            expected
        );
    }
}

/// Errors are reported by their codes from the closed table.
#[tokio::test]
async fn errors_are_told_by_their_codes() {
    let collector = Collector::start().await;
    let invented = r#"{"error":{"message":"ODDITY-ERROR","type":"invalid_request_error","param":null,"code":"invented_code"}}"#;
    let scripts = vec![
        Script::new().json("400 Bad Request", invented),
        Script::new().json(
            "500 Oops",
            r#"{"error":{"message":"ODDITY-ERROR","type":"x","code":500}}"#,
        ),
        Script::stream().text("CANARY-ANSWER").rst(),
    ];
    let setup = Setup::new().allow_errors().config(&collector.config());
    let world = World::start(Engine::in_turn(scripts), setup).await;
    for _ in 0..3 {
        world.stream("").await;
    }
    world.chat("{").await;
    let spans = collector.wait(7).await;
    let (server, client) = sides(&spans);
    let told: Vec<_> = server
        .iter()
        .map(|span| {
            (
                attributes(&span.attributes)["error.type"].clone(),
                span.status.as_ref().map(|status| status.code),
            )
        })
        .collect();
    let expected = [
        ("_OTHER", None),
        ("internal_error", Some(2)),
        ("upstream_incomplete", Some(2)),
        ("invalid_json", None),
    ];
    let expected: Vec<_> = expected
        .map(|(code, status)| (code.to_owned(), status))
        .into();
    assert_eq!(told, expected);
    assert_eq!(
        client
            .iter()
            .map(|span| span.status.is_some())
            .collect::<Vec<_>>(),
        [false, true, true]
    );
    let raw = collector.raw();
    for foreign in ["CANARY", "ODDITY", "invented"] {
        assert!(
            !raw.windows(foreign.len())
                .any(|part| part == foreign.as_bytes()),
            "{foreign}"
        );
    }
    world.end().await;
}

/// Confidential content, on all routes, must not be in any span.
#[tokio::test]
async fn nothing_confidential_is_in_a_trace() {
    let collector = Collector::start().await;
    let setup = Setup::new()
        .config(&collector.config())
        .config("[log]\nlevel = \"trace\"");
    let world = World::start(Script::answer("CANARY-ANSWER", 3), setup).await;
    let more =
        r#","user":"CANARY-USER","metadata":{"CANARY-KEY":"CANARY-VALUE"},"stop":["CANARY-STOP"]"#;
    let mut asked = 0;
    for request in [
        Request::stream(more),
        Request::plain(more),
        Request::chat(
            r#"{"model":"ODDITY-MODEL","messages":[{"role":"user","content":"CANARY"}]}"#,
        ),
        Request::chat("CANARY"),
        Request::post("/v1/completions", r#"{"model":"m","prompt":"CANARY"}"#),
        Request::post("/v1/responses", r#"{"model":"m","input":"CANARY"}"#),
        Request::post("/v1/embeddings", r#"{"model":"m","input":"CANARY"}"#),
        Request::get("/v1/models/ODDITY-MODEL"),
        Request::get("/v1/responses/resp_ODDITY"),
        Request::get("/v1/ODDITY-PATH?key=CANARY-QUERY"),
        Request::new("ODDITY", "/v1/models"),
    ] {
        world
            .request(
                &request
                    .header("cookie", "CANARY-COOKIE")
                    .header("x-a", "CANARY-HEADER"),
            )
            .await;
        asked += 1;
    }
    until("all of them", || sides(&collector.spans()).0.len() >= asked).await;
    let raw = collector.raw();
    // The log has paths, methods and model names as received; traces and metrics do not.
    assert!(!world.samewire.metrics().await.contains("ODDITY"));
    for canary in ["CANARY", "ODDITY", PROMPT, KEY] {
        assert!(
            !raw.windows(canary.len())
                .any(|part| part == canary.as_bytes()),
            "{canary}"
        );
    }
    world.end().await;
}

/// Starts samewire with traces and without the wait for load balancers, in front of an engine that answers.
async fn traced(config: &str) -> (Engine, Samewire) {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let setup = Setup::new()
        .upstream(&engine.url())
        .config(&format!("{config}\n[timeouts]\nsettle = 0"));
    let samewire = Samewire::start(&setup).await;
    (engine, samewire)
}

/// Sends so many requests, each of which is a span.
async fn send(samewire: &Samewire, requests: usize) {
    let mut client = Client::connect(samewire.proxy).await;
    let request = Request::get("/v1/nothing").bytes();
    for _ in 0..requests {
        client.send(&request).await;
        assert_eq!(client.answer().await.head.status, 404);
    }
}

/// Waits until more than `before` spans have been dropped, and returns how many they are then.
async fn dropped(samewire: &Samewire, before: u64) -> u64 {
    let mut now = before;
    eventually("more spans are dropped", async || {
        now = samewire.metric_now("samewire_spans_dropped_total").await;
        now > before
    })
    .await;
    now
}

/// Faulty collectors of every kind: clients notice nothing.
#[tokio::test]
async fn fault_o22_a_collector_that_does_not_take_them_stops_nobody() {
    let (refusing, _held) = crate::sim::refusing();
    let collectors = [
        Collector::script(Script::new().hang()).await,
        Collector::script(Script::new().json("503 Busy", "{}")).await,
        Collector::script(Script::new().rst()).await,
    ];
    let configs = collectors
        .iter()
        .map(Collector::config)
        .chain([format!("[trace]\nendpoint = \"{refusing}\"")]);
    let played = configs.map(async |config| {
        let (_engine, mut samewire) = traced(&format!("{config}\ntimeout = 0.5")).await;
        let mut lost = 0;
        // Two posts that fail, one after the other.
        for _ in 0..2 {
            send(&samewire, 10).await;
            assert_eq!(
                Request::stream("").answer(samewire.proxy).await.head.status,
                200,
                "{config}"
            );
            lost = dropped(&samewire, lost).await;
        }
        samewire.signal("TERM");
        assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0), "{config}");
        let is_said = || samewire.count_logged("the collector takes no traces") == 1;
        until("it is said once", is_said).await;
    });
    futures::future::join_all(played).await;
}

/// A collector that takes a post may still reject spans of it, and says so in its answer.
#[tokio::test]
async fn spans_that_a_collector_rejects_are_dropped_ones() {
    // `ExportTraceServiceResponse`: two spans rejected, with a reason.
    let answer = "\n\x0b\x08\x02\x12\x07no room";
    let collector =
        Collector::script(Script::new().whole("200 OK", "application/x-protobuf", answer)).await;
    let (_engine, samewire) = traced(&collector.config()).await;
    send(&samewire, 2).await;
    assert_eq!(dropped(&samewire, 1).await, 2);
    let is_said = || samewire.count_logged("it rejects 2 spans: no room") == 1;
    until("it is said", is_said).await;
}

/// A collector keeps its first post waiting for longer than the test lasts, until no more spans have room.
#[tokio::test]
async fn fault_o22_a_full_queue_stops_nobody() {
    // More than the queue and a post hold.
    const MANY: usize = 2048 + 512 + 100;
    let collector = Collector::script(Script::new().hang()).await;
    let (_engine, mut samewire) = traced(&format!("{}\ntimeout = 600", collector.config())).await;
    send(&samewire, MANY).await;
    assert_eq!(
        Request::stream("").answer(samewire.proxy).await.head.status,
        200
    );
    dropped(&samewire, 0).await;
    samewire.signal("TERM");
    let start = Instant::now();
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
    // Traces may delay the shutdown by one second; the rest is the machine's.
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
}

/// Spans that are still queued when the process ends are posted before it exits.
#[tokio::test]
async fn fault_o22_the_last_spans_are_not_lost() {
    let collector = Collector::start().await;
    let engine = Engine::script(Script::answer("a", 1)).await;
    let setup = Setup::new()
        .upstream(&engine.url())
        .config(&collector.config())
        .config("[timeouts]\nsettle = 0");
    let mut samewire = Samewire::start(&setup).await;
    for _ in 0..10 {
        Request::stream("").answer(samewire.proxy).await;
    }
    samewire.stop().await;
    assert_eq!(
        collector
            .spans()
            .iter()
            .map(|span| &span.span_id)
            .collect::<BTreeSet<_>>()
            .len(),
        20
    );
}

/// A collector that comes back gets the spans from then on.
#[tokio::test]
async fn fault_o22_a_collector_comes_back() {
    let busy = Script::new().json("503 Busy", "{}");
    let good = Script::new().whole("200 OK", "application/x-protobuf", "");
    let collector = Collector(Engine::in_turn(vec![busy, good]).await);
    let world = World::plain(Setup::new().config(&collector.config())).await;
    world.stream("").await;
    collector.0.wait_attempts(1).await;
    let lines = |what: &'static str| move |line: &String| line.contains(what);
    until("a warning", || {
        world.samewire.logs().iter().any(lines("takes no traces"))
    })
    .await;
    world.stream("").await;
    until("the end of it", || {
        world
            .samewire
            .logs()
            .iter()
            .any(lines("takes traces again"))
    })
    .await;
    world
        .samewire
        .metric_becomes("samewire_spans_dropped_total", 2)
        .await;
    world
        .samewire
        .metric_becomes("samewire_spans_exported_total", 2)
        .await;
    world.end().await;
}
