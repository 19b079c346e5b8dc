//! Choice of the engine for a request (faults 8): by model, by load and by health.

use crate::pool::{PATIENT, let_go, open_streams, requested};
use crate::responses::over_chat::{prompt, scripted};
use crate::sim::prelude::*;
use std::collections::BTreeSet;

/// Frequent probes with a short timeout.
const QUICK: &str = "[health]\ninterval = 0.02\ntimeout = 0.5";

/// Starts an engine whose every answer is this one token.
async fn named(name: &str) -> Engine {
    let name = name.to_owned();
    Engine::answering(move |_| Script::answer(&name, 1)).await
}

/// Starts an engine that lists these models.
async fn listing(models: &[&str]) -> Engine {
    let engine = named("x").await;
    engine.set_models(Script::models(models));
    engine
}

/// Returns a request for a model.
fn of(model: &str) -> Request {
    Request::chat(
        json!({"model": model, "stream": true, "messages": [{"role": "user", "content": "x"}]})
            .to_string(),
    )
}

async fn ids(world: &World) -> Vec<String> {
    let list = world.get("/v1/models").await.json();
    list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn the_one_with_the_fewest_requests_is_asked() {
    let gate = Gate::default();
    let script = || Script::stream().text("x").wait(&gate).stop();
    let engines = [script(), script(), script()];
    let world = World::fleet_up(engines, Setup::new().config(PATIENT), &[]).await;
    let clients = open_streams(&world, &Request::stream(""), 30).await;
    assert_eq!(world.attempt_counts(), [10, 10, 10]);
    let_go(&gate, clients).await;
    // Among equal engines the choice is random.
    for _ in 0..60 {
        world.stream("").await;
    }
    let shares = world.attempt_counts();
    assert!(shares.iter().all(|share| *share > 14), "{shares:?}");
    world.end().await;
}

#[tokio::test]
async fn weights_are_parts_of_the_traffic() {
    let gate = Gate::default();
    let script = || Script::stream().text("x").wait(&gate).stop();
    let engines = [script(), script(), script()];
    let world = World::fleet_up(
        engines,
        Setup::new().config(PATIENT),
        &["", "weight = 3", "weight = 0"],
    )
    .await;
    let clients = open_streams(&world, &Request::stream(""), 40).await;
    let shares = world.attempt_counts();
    assert!(
        (9..=11).contains(&shares[0]) && (29..=31).contains(&shares[1]) && shares[2] == 0,
        "{shares:?}"
    );
    let_go(&gate, clients).await;
    world.end().await;
}

#[tokio::test]
async fn models_go_to_the_engines_that_list_them() {
    let engines = [listing(&["m", "small"]), listing(&["m", "large"])];
    let world = World::fleet_up(engines, Setup::new().config(PATIENT), &[]).await;
    for model in ["m", "small", "large", "small", "large", "m"]
        .iter()
        .cycle()
        .take(60)
    {
        assert_eq!(world.request(&of(model)).await.head.status, 200, "{model}");
    }
    let (one, other) = (requested(&world.engine), requested(&world.others[0]));
    assert!(
        !one.contains("large") && !other.contains("small"),
        "{one:?} {other:?}"
    );
    assert!(one.contains("m") && other.contains("m"));
    let before = world.attempt_counts();
    assert_eq!(
        world.request(&of("huge")).await.failure(),
        "404 invalid_request_error model_not_found"
    );
    let answer = world.request(&prompt("huge", "")).await;
    assert_eq!(
        answer.failure(),
        "404 invalid_request_error model_not_found"
    );
    // An invalid request is reported as such in any case.
    world
        .post("/v1/responses", r#"{"model":"huge","input":7}"#)
        .await
        .with_status(400);
    assert_eq!(world.attempt_counts(), before);
    let all: BTreeSet<_> = ids(&world).await.into_iter().collect();
    assert_eq!(all, ["large", "m", "small"].map(str::to_owned).into());
    assert_eq!(world.get("/v1/models/large").await.head.status, 200);
    assert_eq!(world.get("/v1/models/huge").await.head.status, 404);
    world.end().await;
}

/// Engines with equal lists may know more names, so unlisted names are forwarded.
#[tokio::test]
async fn names_that_no_replica_lists_go_on() {
    let world = World::fleet_up(
        [listing(&["m"]), listing(&["m"])],
        Setup::new().config(PATIENT),
        &[],
    )
    .await;
    assert_eq!(world.request(&of("default")).await.head.status, 200);
    world.end().await;
}

#[tokio::test]
async fn models_have_other_names_defaults_and_options() {
    let lines = "[[model]]\nname = \"m\"\naliases = [\"gpt-4o\", \"fast\"]\nupstreams = [\"e1\"]\n\
                 defaults = { temperature = 0.5, chat_template_kwargs = { enable_thinking = false } }\n\
                 wire = { model_name = \"requested\" }\n";
    let world = World::fleet_up(
        [listing(&["m"]), listing(&["m"])],
        Setup::new().config(PATIENT).config(lines),
        &[],
    )
    .await;
    let body = |path: &str, members: Value| {
        let mut request = json!({"model": "gpt-4o", "stream": true, "messages": [{"role": "user", "content": "x"}]});
        if path == "/v1/responses" {
            request = json!({"model": "gpt-4o", "stream": true, "input": "x"});
        }
        request
            .as_object_mut()
            .unwrap()
            .extend(members.as_object().unwrap().clone());
        Request::post(path, request.to_string())
    };
    for path in ["/v1/chat/completions", "/v1/responses"] {
        let answer = world.request(&body(path, json!({}))).await.with_status(200);
        assert!(
            answer.text().contains(r#""model":"gpt-4o""#),
            "{}",
            answer.text()
        );
        let sent = world.others[0].attempts().last().unwrap().json();
        assert_eq!(
            (&sent["model"], &sent["temperature"]),
            (&json!("m"), &json!(0.5)),
            "{path}"
        );
        assert_eq!(
            sent["chat_template_kwargs"],
            json!({"enable_thinking": false}),
            "{path}"
        );
        world.request(&body(path, json!({"temperature": 1}))).await;
        let sent = world.others[0].attempts().last().unwrap().json();
        assert_eq!(
            sent["temperature"],
            json!(1),
            "{path}: what the client says counts"
        );
    }
    assert_eq!(
        world.attempt_counts(),
        [0, 4],
        "it has been said who serves it"
    );
    assert_eq!(ids(&world).await, ["m", "gpt-4o", "fast"]);
    world.end().await;
}

/// A single engine gets every request and reports itself which models it does not have.
#[tokio::test]
async fn the_only_engine_is_asked_for_what_it_does_not_list() {
    let lines = "[[model]]\nname = \"text\"\naliases = [\"gpt-4o\"]";
    let engine = Engine::script(scripted("text", "chatcmpl-1", true)).await;
    let world = World::fleet_up(
        vec![engine],
        Setup::new().config(PATIENT).config(lines),
        &[],
    )
    .await;
    for request in [
        of("gpt-4o"),
        of("huge"),
        prompt("gpt-4o", r#","stream":true"#),
        prompt("huge", r#","stream":true"#),
    ] {
        world.request(&request).await.with_status(200);
    }
    assert_eq!(
        requested(&world.engine),
        ["huge", "text"].map(str::to_owned).into()
    );
    world.end().await;
}

#[tokio::test]
async fn a_conversation_stays_where_it_began() {
    let mut engines = Vec::new();
    for _ in 0..4 {
        let engine = Engine::script(scripted("text", "chatcmpl-1", true)).await;
        engine.set_models(Script::models(&["text", "engine-m"]));
        engines.push(engine);
    }
    let world = World::fleet_up(
        engines,
        Setup::new()
            .config(PATIENT)
            .config("[affinity]\nby = \"conversation\""),
        &[],
    )
    .await;
    let mut used = BTreeSet::new();
    for talk in 0..24 {
        let mut messages = vec![
            json!({"role": "system", "content": "be kind"}),
            json!({"role": "user", "content": format!("talk {talk}")}),
        ];
        let before = world.attempt_counts();
        for turn in 0..4 {
            let body = json!({"model": "text", "stream": true, "messages": messages});
            assert_eq!(world.chat(body.to_string()).await.head.status, 200);
            messages.push(json!({"role": "assistant", "content": "hm"}));
            messages.push(json!({"role": "user", "content": format!("turn {turn}")}));
        }
        let grown: Vec<_> = world
            .attempt_counts()
            .iter()
            .zip(&before)
            .map(|(now, then)| now - then)
            .collect();
        assert_eq!(
            grown.iter().filter(|more| **more == 4).count(),
            1,
            "all turns at one engine: {grown:?}"
        );
        used.insert(grown.iter().position(|more| *more == 4).unwrap());
    }
    assert_eq!(used.len(), 4, "conversations are spread");
    // Responses that continue each other form a conversation, too.
    let before = world.attempt_counts();
    let mut previous = String::new();
    for _ in 0..4 {
        let answer = world
            .request(&prompt("text", &format!(r#","stream":true{previous}"#)))
            .await;
        let id = answer
            .text()
            .split(r#""id":"resp_"#)
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .unwrap();
        previous = format!(r#","previous_response_id":"resp_{id}""#);
    }
    let grown: Vec<_> = world
        .attempt_counts()
        .iter()
        .zip(&before)
        .map(|(now, then)| now - then)
        .collect();
    assert_eq!(
        grown.iter().filter(|more| **more == 4).count(),
        1,
        "{grown:?}"
    );
    world.end().await;
}

#[tokio::test]
async fn a_header_keeps_requests_together_but_not_at_any_price() {
    let gate = Gate::default();
    let script = || Script::stream().text("x").wait(&gate).stop();
    let engines = (0..4).map(|_| script());
    let lines = "[affinity]\nby = \"header\"\nheader = \"x-session\"";
    let world = World::fleet_up(engines, Setup::new().config(PATIENT).config(lines), &[]).await;
    // One engine gets the first requests, until its load exceeds its share; then the others get some.
    let clients = open_streams(&world, &Request::stream("").header("x-session", "a"), 40).await;
    let shares = world.attempt_counts();
    let most = *shares.iter().max().unwrap();
    assert!(
        (12..=14).contains(&most),
        "a quarter more than its part: {shares:?}"
    );
    let_go(&gate, clients).await;
    let before = world.attempt_counts();
    for _ in 0..12 {
        world
            .request(&Request::stream("").header("x-session", "b"))
            .await;
    }
    let grown: Vec<_> = world
        .attempt_counts()
        .iter()
        .zip(&before)
        .map(|(now, then)| now - then)
        .collect();
    assert_eq!(grown.iter().max(), Some(&12), "{grown:?}");
    world.end().await;
}

#[tokio::test]
async fn fault_o18_nobody_is_well() {
    let world = World::fleet_up(
        [named("a"), named("b")],
        Setup::new().config(QUICK).allow_errors(),
        &[],
    )
    .await;
    for engine in world.engines() {
        engine.set_health(Script::new().whole("503 Service Unavailable", "", ""));
    }
    world.samewire.admin_becomes("/readyz", 503).await;
    let before = world.attempt_counts();
    let mut times = Vec::new();
    let requests = [
        Request::stream(""),
        Request::plain(""),
        prompt("m", ""),
        Request::get("/v1/models"),
    ];
    for request in requests.iter().cycle().take(40) {
        let answer = world.request(request).await;
        assert_eq!(answer.failure(), "503 server_error no_healthy_upstream");
        assert_eq!(answer.head.header("retry-after"), Some("5"));
        times.push(answer.waited);
    }
    times.sort();
    println!(
        "nobody is well: median {:?}, worst {:?}",
        times[20], times[39]
    );
    assert!(times[20] < Duration::from_secs(1), "{times:?}");
    assert_eq!(world.attempt_counts(), before);
    // One engine that comes back is enough, and the other still gets no requests.
    world
        .engine
        .set_health(Script::new().whole("200 OK", "", ""));
    world.samewire.admin_becomes("/readyz", 200).await;
    for _ in 0..20 {
        assert_eq!(world.stream("").await.head.status, 200);
    }
    assert_eq!(world.others[0].attempt_count(), before[1]);
    world.end().await;
}

#[tokio::test]
async fn who_fails_is_ejected_and_half_of_them_never_are() {
    let bad = || Engine::script(Script::new().json("500 Internal Server Error", "{}"));
    let setup = || Setup::new().config(PATIENT).allow_errors();
    let world = World::fleet_up(vec![bad().await, named("a").await], setup(), &[]).await;
    for _ in 0..100 {
        assert_eq!(world.stream("").await.head.status, 200);
    }
    let asked = world.engine.attempt_count();
    assert!((5..=12).contains(&asked), "ejected after five: {asked}");
    let metrics = world.samewire.metrics().await;
    for line in [
        "samewire_upstream_circuit_open{upstream=\"e0\"} 1\n",
        "samewire_upstream_circuit_open{upstream=\"e1\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    world.end().await;
    // If there is only one engine, or most are ejected, ejected ones get requests anyway.
    let world = World::fleet_up(
        [bad(), bad(), bad()],
        setup().config("[retry]\nmax_attempts = 1"),
        &[],
    )
    .await;
    for _ in 0..100 {
        assert_eq!(world.stream("").await.head.status, 500);
    }
    let mut shares = world.attempt_counts();
    shares.sort_unstable();
    assert!(
        shares[0] < 25 && shares[1] > 30,
        "one of three is ejected: {shares:?}"
    );
    world.end().await;
}

#[tokio::test]
async fn fault_u19_who_rejects_the_proxys_key_is_asked_last() {
    let folder = Folder::new();
    let bad =
        Engine::script(Script::new().json("401 Unauthorized", r#"{"error":"Unauthorized"}"#)).await;
    let lines = folder.key("sk-CANARY-pool");
    let world = World::fleet_up(
        vec![bad, named("a").await],
        Setup::new().config(PATIENT).allow_errors(),
        &[&lines],
    )
    .await;
    let mut told = 0;
    for _ in 0..30 {
        let answer = world.stream("").await;
        if answer.head.status != 200 {
            assert_eq!(answer.failure(), "502 server_error upstream_error");
            told += 1;
        }
    }
    assert_eq!((told, world.engine.attempt_count()), (1, 1));
    world
        .samewire
        .logged("upstream credentials rejected", 1)
        .await;
    world.end().await;
}

/// An engine that refuses a client's key stays in use: the refusal is not a fault of the engine.
#[tokio::test]
async fn fault_u19_who_rejects_a_clients_key_stays_in_use() {
    for (line, status) in [("401 Unauthorized", 401), ("403 Forbidden", 403)] {
        let bad = Engine::script(Script::new().json(line, r#"{"error":"no"}"#)).await;
        let lines = ["auth = \"pass\""; 2];
        let world = World::fleet_up(
            vec![bad, named("a").await],
            Setup::new().config(PATIENT).allow_errors(),
            &lines,
        )
        .await;
        let mut told = 0;
        for _ in 0..30 {
            let answer = world.stream("").await;
            if answer.head.status != 200 {
                assert_eq!(answer.head.status, status, "{}", answer.text());
                told += 1;
            }
        }
        assert_eq!(
            told,
            world.engine.attempt_count(),
            "{line}: none is tried elsewhere"
        );
        // The random choice sends it about half of them.
        assert!((3..=27).contains(&told), "{line}: {told}");
        world.samewire.finished(30).await;
        for word in ["misconfigured", "ejected"] {
            assert_eq!(world.samewire.count_logged(word), 0, "{line}: {word}");
        }
        world.end().await;
    }
}

#[tokio::test]
async fn fault_u50_who_answers_as_another_model_is_asked_last() {
    let other = |text: &str| text.replace(r#""model":"m""#, r#""model":"other""#);
    let whole = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}"#;
    // Either the configuration names its models, or the other engine lists the claimed model.
    for (stream, configured) in [(true, true), (false, true), (true, false), (false, false)] {
        let wrong = Engine::answering(move |_| {
            match stream {
            true => Script::new().head_sse().ev(&other(r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"x"},"finish_reason":null}]}"#)).hang(),
            false => Script::ok(other(whole)),
        }
        });
        let right = Engine::answering(move |_| match stream {
            true => Script::answer("a", 1),
            false => Script::ok(whole),
        });
        let (wrong, right) = (wrong.await, right.await);
        right.set_models(Script::models(if configured {
            &["m"]
        } else {
            &["m", "other"]
        }));
        let lines = if configured { "models = [\"m\"]" } else { "" };
        let world = World::fleet_up(
            vec![wrong, right],
            Setup::new().config(PATIENT).allow_errors(),
            &[lines],
        )
        .await;
        let request = if stream {
            Request::stream("")
        } else {
            Request::plain("")
        };
        let mut told = 0;
        for _ in 0..30 {
            let answer = world.request(&request).await;
            if answer.head.status != 200 {
                assert_eq!(
                    answer.failure(),
                    "502 server_error upstream_invalid_response"
                );
                told += 1;
            }
        }
        assert_eq!(
            (told, world.engine.attempt_count()),
            (1, 1),
            "{stream} {configured}"
        );
        world.samewire.logged("it answers as a model", 1).await;
        world.end().await;
    }
}

/// A name that no engine lists is forwarded: engines may accept names besides those they list.
#[tokio::test]
async fn models_may_have_names_that_are_not_listed() {
    let engine = || async {
        let engine = Engine::script(scripted("text", "chatcmpl-1", true)).await;
        engine.set_models(Script::models(&["text"]));
        engine
    };
    let world = World::fleet_up([engine(), engine()], Setup::new().config(PATIENT), &[]).await;
    assert_eq!(world.request(&of("text")).await.head.status, 200);
    world.end().await;
}

#[tokio::test]
async fn fault_u44_an_engine_restarts_under_traffic() {
    let world = World::fleet_up(
        [named("a"), named("b")],
        Setup::new().config(QUICK).allow_errors(),
        &[],
    )
    .await;
    let send = async |times: usize| {
        for _ in 0..times {
            assert_eq!(world.stream("").await.head.status, 200);
        }
    };
    send(20).await;
    world.engine.set_health(Script::new().close(CloseKind::Rst));
    let down = async {
        while !world
            .samewire
            .metrics_now()
            .await
            .contains("samewire_upstream_up{upstream=\"e0\"} 0")
        {
            send(1).await;
        }
    };
    tokio::time::timeout(PATIENCE, down).await.unwrap();
    let before = world.engine.attempt_count();
    send(20).await;
    assert_eq!(
        world.engine.attempt_count(),
        before,
        "only probes while it is down"
    );
    world
        .engine
        .set_health(Script::new().whole("503 Service Unavailable", "", ""));
    send(20).await;
    world
        .engine
        .set_health(Script::new().whole("200 OK", "", ""));
    let start = Instant::now();
    while world.engine.attempt_count() == before {
        send(1).await;
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "back within 10 s"
        );
    }
    // A recovered engine is not flooded: with one request at a time, the other has less load relative to its share.
    let (one, other) = (
        world.engine.attempt_count(),
        world.others[0].attempt_count(),
    );
    send(10).await;
    let (one, other) = (
        world.engine.attempt_count() - one,
        world.others[0].attempt_count() - other,
    );
    assert!(one <= other, "{one} {other}");
    world.end().await;
}
