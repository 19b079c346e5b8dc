//! Streams of events: pauses, breaks, clients that leave, and engines that fail before the first event.

use crate::messages::{Folded, engine, fault, hello, message, object, stream, streamed, told};
use crate::pool::PATIENT;
use crate::sim::prelude::*;
use crate::sim::refusing;

/// Event that says that the stream lives, without its blank line.
const PING: &str = "event: ping\ndata: {\"type\":\"ping\"}";

/// Returns the beginning of an answer, of two tokens.
fn begun() -> Script {
    Script::stream().text("Hel").text("lo")
}

/// Checks that a stream broke off after "Hello": an error at the end, and nothing that looks complete.
fn broke_off(folded: &Folded, code: &str, what: &str) {
    let error = folded
        .error
        .as_ref()
        .unwrap_or_else(|| panic!("{what}: no error"));
    assert_eq!(
        error["error"]["details"]["error_code"], code,
        "{what}: {error}"
    );
    assert_eq!(
        folded.message["content"],
        json!([{"type": "text", "text": "Hello"}]),
        "{what}"
    );
    assert_eq!(folded.message["stop_reason"], Value::Null, "{what}");
}

#[tokio::test]
async fn fault_u07_pings_come_while_the_engine_waits() {
    let gate = Gate::default();
    let script = Script::new()
        .head_sse()
        .wait(&gate)
        .role()
        .text("Hello")
        .stop();
    let setup = Setup::new()
        .set("commit_after_seconds=1")
        .set("keepalive_seconds=1");
    let world = World::start(script, setup).await;
    let mut client = world.begin(&stream("")).await;
    for _ in 0..2 {
        assert_eq!(client.event().await.as_deref(), Some(PING));
    }
    gate.open();
    let rest = String::from_utf8(client.rest().await).unwrap();
    assert!(rest.starts_with("event: message_start\n"), "{rest}");
    let folded = crate::messages::fold(&rest).unwrap();
    assert_eq!(
        (folded.error, &folded.message["content"][0]["text"]),
        (None, &json!("Hello"))
    );
    world.end().await;
}

/// Messages waits for no more of the engine than chat does: the first events come with the first token, and that
/// arrives while the engine has sent nothing else.
#[tokio::test]
async fn the_first_events_come_with_the_first_token() {
    let call = r#""tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a"}}]"#;
    for (delta, of_chat, of_messages) in [
        (
            r#""content":"Hel""#,
            r#""content":"Hel""#,
            r#""text":"Hel""#,
        ),
        (
            r#""reasoning_content":"Hm""#,
            r#""reasoning_content":"Hm""#,
            r#""thinking":"Hm""#,
        ),
        (call, r#""name":"f""#, r#""name":"f""#),
    ] {
        for (request, awaited) in [(Request::stream(""), of_chat), (stream(""), of_messages)] {
            let gate = Gate::default();
            let script = Script::stream()
                .delta(&format!("{{{delta}}}"), "null")
                .wait(&gate);
            let world = World::start(script.stop(), Setup::new()).await;
            let mut client = world.begin_until(&request, awaited).await;
            gate.open();
            client.rest().await;
            world.end().await;
        }
    }
}

/// Pings are between events only, and none is a comment, which this API does not have.
#[tokio::test]
async fn pings_come_only_between_events() {
    let half = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"con"#;
    let other = "tent\":\"lo\"},\"finish_reason\":null}]}\n\n";
    let gates = [Gate::default(), Gate::default()];
    let script = Script::stream()
        .text("Hel")
        .wait(&gates[0])
        .chunk(half)
        .wait(&gates[1]);
    let script = script.chunk(other).stop();
    let world = World::start(script, Setup::new().set("keepalive_seconds=1")).await;
    let mut client = world.begin(&stream("")).await;
    let (mut text, mut gates) = (String::new(), gates.iter());
    // One comes between two events, and one while half an event is there.
    while let Some(event) = client.event().await {
        if event == PING
            && let Some(gate) = gates.next()
        {
            gate.open();
        }
        text += &(event + "\n\n");
    }
    assert_eq!(client.ended(), Ended::LastChunk);
    assert!(text.matches(&format!("{PING}\n\n")).count() >= 2, "{text}");
    assert!(!text.contains("keepalive"));
    let folded = crate::messages::fold(&text).unwrap();
    assert_eq!(
        (folded.error, &folded.message["content"][0]["text"]),
        (None, &json!("Hello"))
    );
    world.end().await;
}

#[tokio::test]
async fn zero_seconds_mean_no_pings() {
    let script = begun().sleep(Duration::from_millis(1200)).stop();
    let answer = World::answer(script, Setup::new().set("keepalive_seconds=0"), &stream("")).await;
    assert_eq!(streamed(&answer)["stop_reason"], "end_turn");
    assert!(!answer.text().contains("ping"), "{}", answer.text());
}

#[tokio::test]
async fn fault_u12_u13_u14_broken_streams() {
    let token =
        "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lost";
    let rows = [
        ("FIN without the last chunk", begun().fin()),
        ("RST", begun().sleep(Duration::from_millis(30)).rst()),
        ("good HTTP end without finish", begun().end()),
        ("[DONE] without finish", begun().done().end()),
        ("half an event, then FIN", begun().chunk(token).fin()),
        (
            "half an event, then a good HTTP end",
            begun().chunk(token).end(),
        ),
        ("half a chunk", begun().raw(format!("ff\r\n{token}")).fin()),
        ("a bad chunk size", begun().raw("zz\r\n").fin()),
    ];
    for (what, script) in rows {
        let world = World::start(script, Setup::new().allow_errors()).await;
        let answer = world.request(&stream("")).await;
        broke_off(&told(&answer), "upstream_incomplete", what);
        assert!(
            !answer.text().contains("message_stop")
                && !answer.text().contains("content_block_stop"),
            "{what}"
        );
        let id = answer.head.header("request-id").unwrap();
        let last = answer.text().trim_end().rsplit("\n\n").next().unwrap();
        assert!(
            last.starts_with("event: error\ndata: ") && last.contains(id),
            "{what}: {last}"
        );
        assert_eq!(
            world.engine.attempt_count(),
            1,
            "{what}: not tried again after the first byte"
        );
        world.end().await;
    }
}

/// Errors inside of a stream, each told as this API tells it.
#[tokio::test]
async fn fault_u16_u17_u29_errors_in_the_stream() {
    let error = |kind: &str, code: u16| {
        format!(r#"{{"error":{{"message":"said","type":"{kind}","param":null,"code":{code}}}}}"#)
    };
    let rows = [
        (
            begun().ev(&error("InternalServerError", 500)).done().end(),
            "api_error",
            "internal_error",
        ),
        (
            begun().ev(&error("TooManyRequests", 429)).done().end(),
            "rate_limit_error",
            "rate_limit_exceeded",
        ),
        (
            begun().ev(&error("ServiceUnavailable", 503)).done().end(),
            "overloaded_error",
            "server_is_overloaded",
        ),
        (
            begun().chunk("event: error\ndata: oops\n\n").end(),
            "api_error",
            "internal_error",
        ),
        (
            begun().ev("{\"choices\":[{").text("x").stop(),
            "api_error",
            "upstream_invalid_event",
        ),
        (
            begun().finish("abort").done().end(),
            "api_error",
            "upstream_aborted",
        ),
    ];
    for (script, kind, code) in rows {
        let folded = told(&World::answer(script, Setup::new().allow_errors(), &stream("")).await);
        broke_off(&folded, code, code);
        assert_eq!(folded.error.unwrap()["error"]["type"], kind);
    }
}

/// Until the first event the client still gets a status, which its library knows how to retry.
#[tokio::test]
async fn fault_u08_u17_cut_before_anything_meaningful_is_an_http_error() {
    let refusal =
        r#"{"error":{"message":"too many","type":"TooManyRequests","param":null,"code":429}}"#;
    let incomplete = (500, "api_error", "upstream_incomplete");
    let rows = [
        ("head", Script::new().head_sse().fin(), incomplete),
        (
            "head and a good HTTP end",
            Script::new().head_sse().end(),
            incomplete,
        ),
        ("role", Script::stream().fin(), incomplete),
        ("role and [DONE]", Script::stream().done().end(), incomplete),
        (
            "an error event",
            Script::new().head_sse().ev(refusal).done().end(),
            (429, "rate_limit_error", "rate_limit_exceeded"),
        ),
    ];
    for (what, script, (status, kind, code)) in rows {
        let world = World::start(script, Setup::new().allow_errors()).await;
        assert_eq!(
            fault(&world.request(&stream("")).await).name(),
            (status, kind, Some(code)),
            "{what}"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn error_after_a_timed_commit_is_in_the_stream() {
    let refusal =
        r#"{"error":{"message":"too many","type":"TooManyRequests","param":null,"code":429}}"#;
    let committed = Gate::default();
    let late = Script::new().wait(&committed);
    let scripts = vec![
        late.clone().json("429 Too Many Requests", refusal),
        late.head_sse().ev(refusal).done().end(),
    ];
    let setup = Setup::new().set("commit_after_seconds=1").allow_errors();
    let world = World::start(Engine::in_turn(scripts), setup).await;
    let mut clients = Vec::new();
    for n in 1..=2 {
        let client = world.send(&stream("")).await;
        world.engine.wait_attempts(n).await;
        clients.push(client);
    }
    for client in &mut clients {
        assert_eq!(client.head().await.status, 200);
    }
    committed.open();
    for mut client in clients {
        let folded =
            crate::messages::fold(std::str::from_utf8(&client.rest().await).unwrap()).unwrap();
        assert_eq!(client.ended(), Ended::LastChunk);
        assert_eq!(folded.error.unwrap()["error"]["type"], "rate_limit_error");
        assert_eq!(folded.message, Value::Null, "no message began");
    }
    world.end().await;
}

#[tokio::test]
async fn fault_u09_silence_in_the_stream() {
    let setup = Setup::new()
        .allow_errors()
        .config("[timeouts]\ninter_token = 0.4");
    let folded = told(&World::answer(begun().hang(), setup, &stream("")).await);
    broke_off(&folded, "upstream_timeout", "silence");
    assert_eq!(folded.error.unwrap()["error"]["type"], "timeout_error");
}

/// A message that is one object is whole, or an error with a status.
#[tokio::test]
async fn fault_u13_whole_answer_cut_short() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{\"id\":\"chatcmpl-1\"";
    let unfinished = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hel"}, "finish_reason": null}],
    });
    for (what, script) in [
        ("FIN", Script::new().raw(head).fin()),
        (
            "RST",
            Script::new()
                .raw(head)
                .sleep(Duration::from_millis(30))
                .rst(),
        ),
        ("no finish", Script::ok(unfinished)),
        (
            "no choices",
            Script::ok(r#"{"id":"chatcmpl-1","object":"chat.completion"}"#),
        ),
    ] {
        let told = fault(&World::answer(script, Setup::new().allow_errors(), &message("")).await);
        assert_eq!(
            (told.status, told.kind.as_str()),
            (500, "api_error"),
            "{what}: {told:?}"
        );
        assert!(
            told.code
                .as_ref()
                .is_some_and(|code| code.starts_with("upstream_")),
            "{what}: {told:?}"
        );
    }
}

/// A stream that has its finish reason is complete, whatever happens to the connection afterwards.
#[tokio::test]
async fn a_finished_answer_is_complete() {
    let finished = || begun().finish("stop");
    for (what, script) in [
        ("good HTTP end", finished().end()),
        ("FIN", finished().fin()),
        ("RST", finished().sleep(Duration::from_millis(30)).rst()),
        ("usage, then FIN", finished().usage(9, 2).fin()),
    ] {
        let message =
            streamed(&World::answer(script, Setup::new().allow_errors(), &stream("")).await);
        assert_eq!(
            (&message["stop_reason"], &message["content"][0]["text"]),
            (&json!("end_turn"), &json!("Hello")),
            "{what}"
        );
    }
}

#[tokio::test]
async fn fault_c24_c25_a_client_that_leaves_stops_the_engine() {
    for (what, script) in [
        ("before-head", Script::new().hang()),
        ("between-tokens", begun().hang()),
    ] {
        for (request, streams) in [(stream(""), true), (message(""), false)] {
            for manner in [CloseKind::Fin, CloseKind::Rst] {
                let world = World::start(script.clone(), Setup::new()).await;
                let mut client = world.send(&request).await;
                world.engine.wait_attempts(1).await;
                if streams && what == "between-tokens" {
                    client.event_with_head("text_delta").await;
                }
                client.leave(manner);
                until("the engine sees the close", || {
                    world.engine.closed(0).is_some()
                })
                .await;
                let line = world.samewire.finished(1).await.remove(0);
                assert!(
                    line.contains(r#""end":"client_closed""#),
                    "{what} {streams} {manner:?}: {line}"
                );
                world.end_after(1).await;
            }
        }
    }
}

/// Engines that fail before their first event are passed over, and the client notices nothing.
#[tokio::test]
async fn fault_u11_u17_u23_a_failure_before_the_first_event_is_tried_elsewhere() {
    let busy = r#"{"error":{"message":"busy","type":"x","param":null,"code":503}}"#;
    let rows = [
        ("reset", Script::new().rst()),
        ("overloaded", Script::new().json("503 Busy", busy)),
        (
            "overloaded in the stream",
            Script::new().head_sse().ev(busy).done().end(),
        ),
        ("cut after the role", Script::stream().fin()),
    ];
    for (what, script) in rows {
        let fails = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let engines = Engine::several(2, move |_| match fails.swap(false, Ordering::SeqCst) {
            true => script.clone(),
            false => hello(true),
        });
        let world = World::fleet_up(
            engines.await,
            Setup::new().allow_errors().config(PATIENT),
            &[],
        )
        .await;
        let answer = world.request(&stream("")).await;
        assert_eq!(streamed(&answer)["content"][0]["text"], "Hello", "{what}");
        assert_eq!(
            answer.head.header("x-samewire-attempts"),
            Some("2"),
            "{what}"
        );
        assert_eq!(world.attempt_counts(), [1, 1], "{what}");
        let bodies: Vec<_> = world.engines().map(|engine| engine.only().body).collect();
        assert_eq!(bodies[0], bodies[1], "{what}: the same request");
        world.end().await;
    }
}

#[tokio::test]
async fn fault_u01_who_refuses_the_connection_is_passed_over() {
    let (nobody, _held) = refusing();
    let lines = format!("[[upstream]]\nname = \"gone\"\nurl = \"{nobody}\"\nmodels = [\"m\"]");
    let world = World::fleet_up(
        [engine()],
        Setup::new().allow_errors().config(PATIENT),
        &[&lines],
    )
    .await;
    for n in 0..12 {
        match n % 2 {
            0 => assert_eq!(
                streamed(&world.request(&stream("")).await)["stop_reason"],
                "end_turn"
            ),
            _ => assert_eq!(
                object(&world.request(&message("")).await)["stop_reason"],
                "end_turn"
            ),
        }
    }
    world.end().await;
}

/// After the first event nothing is tried again: the client has a part of another answer.
#[tokio::test]
async fn fault_u12_a_failure_after_the_first_event_is_not_tried_elsewhere() {
    let engines = [begun().rst(), begun().rst()];
    let world = World::fleet_up(engines, Setup::new().allow_errors().config(PATIENT), &[]).await;
    let folded = told(&world.request(&stream("")).await);
    broke_off(&folded, "upstream_incomplete", "reset");
    assert_eq!(world.attempt_counts().iter().sum::<usize>(), 1);
    world.end().await;
}

#[tokio::test]
async fn fault_o01_o02_a_drain_waits_for_streams_and_cuts_them_at_last() {
    let gate = Gate::default();
    let engine = Engine::in_turn(vec![begun().wait(&gate).stop(), begun().hang()]).await;
    let setup = Setup::before(&engine);
    let mut samewire = Samewire::start(&setup.config("[timeouts]\nsettle = 0\ndrain = 4")).await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(stream("").begin_until(samewire.proxy, "\"lo\"").await);
    }
    samewire.signal("TERM");
    until("it drains", || samewire.count_logged("draining") > 0).await;
    gate.open();
    let rest = String::from_utf8(clients[0].rest().await).unwrap();
    assert!(
        rest.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
        "{rest}"
    );
    let last = clients[1].event().await.expect("an error");
    assert!(
        last.starts_with("event: error\n") && last.contains(r#""error_code":"draining""#),
        "{last}"
    );
    assert_eq!(
        (clients[1].event().await, clients[1].ended()),
        (None, Ended::LastChunk)
    );
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
}

/// Streams and objects of both APIs follow each other on one connection.
#[tokio::test]
async fn requests_of_both_apis_share_a_connection() {
    let world = World::start(engine(), Setup::new()).await;
    let mut client = Client::connect(world.proxy()).await;
    for request in [stream(""), message(""), stream(""), Request::stream("")] {
        client.send(&request.bytes()).await;
        let answer = client.answer().await.with_status(200);
        assert_eq!(
            answer.text().contains("message_stop"),
            request.path() == "/v1/messages" && answer.ended == Ended::LastChunk
        );
    }
    world.end().await;
}
