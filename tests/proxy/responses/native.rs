//! The Responses API in front of an engine that implements Responses itself (`responses = "native"`).

use crate::official::Schemas;
use crate::responses::background::ended;
use crate::responses::over_chat::{ask, events, last, object, prompt};
use crate::responses::socket::{create, prompted};
use crate::sim::prelude::*;

const ITEM: &str = r#"{"id":"x","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hi","annotations":[]}]}"#;

fn envelope(kind: &str, status: &str, output: &str) -> String {
    let response = format!(
        r#"{{"id":"resp_9","object":"response","created_at":5,"model":"engine-m","status":"{status}","output":[{output}],"store":false,"temperature":0.7,"kv_transfer_params":null,"usage":null}}"#
    );
    match kind {
        "" => response,
        _ => format!(r#"{{"type":"response.{kind}","response":{response}}}"#),
    }
}

/// Returns events whose items contain one word, then the end.
fn said() -> Script {
    Script::new()
        .head_sse()
        .ev(&envelope("created", "in_progress", ""))
        .ev(&envelope("in_progress", "in_progress", ""))
        .ev(r#"{"type":"response.output_text.delta","item_id":"x","output_index":0,"content_index":0,"delta":"H"}"#)
        .ev(r#"{"type":"response.output_text.delta","item_id":"x","output_index":0,"content_index":0,"delta":"i"}"#)
        .ev(&format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{ITEM}}}"#))
        .ev(&envelope("completed", "completed", ITEM))
        .end()
}

async fn engine() -> Engine {
    Engine::answering(|attempt: &Attempt| {
        let body = attempt.json();
        match body["stream"] == true {
            true => said(),
            // Ids of responses are unique.
            false => {
                let whole = envelope("", "completed", ITEM).replace("resp_9", "resp_8");
                Script::ok(&whole)
            }
        }
    })
    .await
}

fn native() -> Setup {
    Setup::new().upstream_keys("responses = \"native\"")
}

#[tokio::test]
async fn the_engine_is_asked_as_itself_and_answers_as_canonical() {
    let world = World::start(engine(), native()).await;
    let more =
        r#","instructions":"Be brief.","max_output_tokens":7,"metadata":{"a":"b"},"temperature":1"#;
    let streamed = events(
        &world
            .request(&prompt("text", &format!(r#"{more},"stream":true"#)))
            .await,
    );
    let whole = object(&world.request(&prompt("text", more)).await);
    for response in [last(&streamed), &whole] {
        assert_eq!(response["output"][0]["content"][0]["text"], "Hi");
        assert_eq!(
            [
                &response["store"],
                &response["metadata"],
                &response["temperature"],
                &response["model"]
            ],
            [
                &json!(true),
                &json!({"a":"b"}),
                &json!(1.0),
                &json!("engine-m")
            ]
        );
        assert!(response.get("kv_transfer_params").is_none());
    }
    assert_eq!([&last(&streamed)["id"], &whole["id"]], ["resp_9", "resp_8"]);
    let deltas: Vec<_> = streamed
        .iter()
        .filter_map(|event| event["delta"].as_str())
        .collect();
    assert_eq!(deltas, ["H", "i"]);
    let attempts = world.engine.attempts();
    let body = |stream: &str| {
        format!(
            r#"{{"model":"text","input":[{{"type":"message","role":"user","content":"{PROMPT}"}}],"store":false{stream},"max_output_tokens":7,"instructions":"Be brief.","temperature":1}}"#
        )
    };
    assert_eq!(
        [attempts[0].text(), attempts[1].text()],
        [&body(r#","stream":true"#), &body("")]
    );
    assert!(
        attempts
            .iter()
            .all(|attempt| attempt.target == "/v1/responses")
    );
    world.end().await;
}

#[tokio::test]
async fn state_is_kept_here_and_not_in_the_engine() {
    let world = World::start(engine(), native()).await;
    let first = object(&world.request(&prompt("text", "")).await);
    let id = first["id"].as_str().unwrap();
    let stored = object(&world.get(&format!("/v1/responses/{id}")).await);
    assert_eq!(stored, first);
    world
        .request(&ask(&format!(
            r#""model":"text","input":"more","previous_response_id":"{id}""#
        )))
        .await;
    let sent = world.engine.attempts()[1].json();
    assert_eq!(
        sent["input"],
        json!([
            {"type": "message", "role": "user", "content": PROMPT},
            {"type": "message", "role": "assistant", "content": "Hi"},
            {"type": "message", "role": "user", "content": "more"},
        ])
    );
    assert!(sent.get("previous_response_id").is_none());
    world.end().await;
}

#[tokio::test]
async fn native_responses_work_over_a_websocket() {
    let world = World::start(engine(), native()).await;
    let mut socket = Socket::open(world.proxy()).await;
    let first = socket
        .exchange(&prompted("text", r#","store":false"#))
        .await;
    assert_eq!(last(&first)["output"][0]["content"][0]["text"], "Hi");
    let id = last(&first)["id"].as_str().unwrap();
    let more =
        format!(r#""model":"text","store":false,"input":"more","previous_response_id":"{id}""#);
    assert_eq!(
        last(&socket.exchange(&create(&more)).await)["previous_response_id"],
        id
    );
    let sent = world.engine.attempts()[1].json();
    assert_eq!(sent["input"].as_array().unwrap().len(), 3, "{sent}");
    assert_eq!(
        [&sent["stream"], &sent["store"]],
        [&json!(true), &json!(false)]
    );
    assert!(sent.get("previous_response_id").is_none() && sent.get("type").is_none());
    world.end().await;
}

#[tokio::test]
async fn native_responses_work_in_the_background() {
    let world = World::start(engine(), native()).await;
    let queued = object(
        &world
            .request(&prompt("text", r#","background":true"#))
            .await,
    );
    assert_eq!(queued["status"], "queued");
    let ended = ended(world.proxy(), queued["id"].as_str().unwrap()).await;
    assert_eq!(ended["status"], "completed");
    assert_eq!(ended["id"], queued["id"]);
    assert_eq!(ended["output"][0]["content"][0]["text"], "Hi");
    world.end().await;
}

#[tokio::test]
async fn what_breaks_off_is_no_answer() {
    let begun = || {
        Script::new()
            .head_sse()
            .ev(&envelope("created", "in_progress", ""))
            .ev(r#"{"type":"response.output_text.delta","item_id":"x","delta":"H"}"#)
    };
    let scripts = vec![begun().close(CloseKind::Rst), begun().end()];
    let world = World::start(Engine::in_turn(scripts), native().allow_errors()).await;
    for _ in 0..2 {
        let told = events(&world.request(&prompt("text", r#","stream":true"#)).await);
        let kinds: Vec<_> = told
            .iter()
            .rev()
            .take(2)
            .map(|event| event["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["response.failed", "error"]);
        assert_eq!(last(&told)["output"][0]["status"], "incomplete");
    }
    world.end().await;
}

/// An engine without the API answers 404, and the client gets that status.
#[tokio::test]
async fn an_engine_without_responses() {
    let script = Script::new().json("404 Not Found", r#"{"detail":"Not Found"}"#);
    World::answer(script, native(), &prompt("text", ""))
        .await
        .with_status(404);
}

#[tokio::test]
async fn a_conversation_is_kept_here_and_told_to_the_engine() {
    let world = World::start(engine(), native()).await;
    let items = r#"{"items":[{"role":"user","content":"before"}]}"#;
    let made = object(&world.post("/v1/conversations", items).await);
    let path = format!(
        "/v1/conversations/{}/items?order=asc",
        made["id"].as_str().unwrap()
    );
    for stream in [true, false] {
        let more = format!(
            r#","stream":{stream},"conversation":{}"#,
            json!({"id":made["id"]})
        );
        let answer = world.request(&prompt("text", &more)).await;
        let response = if stream {
            last(&events(&answer)).clone()
        } else {
            object(&answer)
        };
        assert_eq!(response["conversation"], json!({"id":made["id"]}));
    }
    let sent = world.engine.attempts()[1].json();
    assert!(sent.get("conversation").is_none(), "{sent}");
    let roles: Vec<_> = sent["input"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["role"])
        .collect();
    assert_eq!(roles, ["user", "user", "assistant", "user"]);
    let kept = object(&world.get(&path).await);
    assert_eq!(kept["data"].as_array().unwrap().len(), 5);
    world.end().await;
}

/// Rate limits that the engine sends in a separate event, before or after its last one, are forwarded in the
/// dialect that has such an event, with a new sequence number. Limits in the head of the answer take precedence.
#[tokio::test]
async fn limits_that_the_engine_tells_in_an_event() {
    const LIMITS: &str = r#"{"type":"response.rate_limits.updated","sequence_number":77,"response":{"id":"resp_other"},"limits":{"primary": {"used_percent":12.5,"window_minutes":300},"secondary":{"used_percent":3}}}"#;
    type Rest = fn(Script) -> Script;
    let ended = |head: &str, behind: bool, rest: Rest| {
        let begun = Script::new()
            .raw(head)
            .ev(&envelope("created", "in_progress", ""));
        let last = envelope("completed", "completed", ITEM);
        rest(if behind {
            begun.ev(&last).ev(LIMITS)
        } else {
            begun.ev(LIMITS).ev(&last)
        })
    };
    let plain =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let limited = plain.replace(
        "\r\n\r\n",
        "\r\nx-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: 45\r\n\r\n",
    );
    let own = json!({"primary": {"used_percent": 12.5, "window_minutes": 300}, "secondary": {"used_percent": 3}});
    let of_head = json!({"primary": {"used_percent": 25, "window_minutes": 1}});
    let rows: [(&str, bool, Rest, &Value); 5] = [
        (plain, true, Script::end, &own),
        (plain, false, Script::end, &own),
        (plain, true, |script| script.done().end(), &own),
        // An event after the last one is ignored.
        (
            plain,
            true,
            |script| script.ev(r#"{"type":"error","message":"late"}"#).end(),
            &own,
        ),
        (&limited, true, Script::end, &of_head),
    ];
    for (head, behind, rest, expected) in rows {
        let world = World::start(
            ended(head, behind, rest),
            native().args(&["--store", "off"]),
        )
        .await;
        for (dialect, told) in [
            ("codex-legacy", Some(expected)),
            ("openai", None),
            ("openresponses", None),
        ] {
            let request = prompt("text", r#","stream":true"#).header("x-samewire-dialect", dialect);
            let answer = world.request(&request).await;
            let text = answer.text().replace("data: [DONE]\n\n", "");
            let events: Vec<_> = text
                .split_terminator("\n\n")
                .map(crate::responses::over_chat::event)
                .collect();
            let completed = events
                .iter()
                .position(|event| event["type"] == "response.completed")
                .unwrap();
            let behind = &events[completed + 1..];
            let Some(told) = told else {
                assert!(behind.is_empty(), "{dialect}: {behind:?}");
                continue;
            };
            let limits = json!({"type": "response.rate_limits.updated", "sequence_number": completed + 1, "response": {"id": "resp_9"}, "limits": told});
            assert_eq!(behind, [limits], "{head} {behind:?}");
        }
        world.end().await;
    }
    // Answers without such an event, and answers cut off after their last event, end as before.
    for rest in [Script::end as Rest, Script::rst] {
        let script = rest(
            Script::new()
                .raw(plain)
                .ev(&envelope("created", "in_progress", ""))
                .ev(&envelope("completed", "completed", ITEM)),
        );
        let request =
            prompt("text", r#","stream":true"#).header("x-samewire-dialect", "codex-legacy");
        let events =
            events(&World::answer(script, native().args(&["--store", "off"]), &request).await);
        assert_eq!(events.last().unwrap()["type"], "response.completed");
    }
}

/// The messages that the model read and wrote, and the tokens of each turn, come back in the object, streamed, whole and
/// stored, if the client sets `enable_response_messages`.
#[tokio::test]
async fn messages_that_the_client_asks_for_come_back() {
    let count = AtomicUsize::new(10);
    let engine = Engine::answering(move |attempt: &Attempt| {
        let id = format!("resp_{}", count.fetch_add(1, Ordering::Relaxed));
        // vLLM's names; a model without its own turns has empty lists (fixtures/vllm/responses-reasoning-whole).
        let usage = r#""usage":{"input_tokens":68,"input_tokens_details":{"cached_tokens":16,"input_tokens_per_turn":[30,38],"cached_tokens_per_turn":[0, 16]},"output_tokens":29,"output_tokens_details":{"reasoning_tokens":14,"tool_output_tokens":3,"output_tokens_per_turn":[9,20],"tool_output_tokens_per_turn":[]},"total_tokens":97},"input_messages":[{"role":"user", "content":"a \u00e9"}],"output_messages":[{"type":"raw_message_tokens","message":"Hi","tokens":[1,2]}]"#;
        let ended = |kind: &str| {
            envelope(kind, "completed", ITEM)
                .replace(r#""usage":null"#, usage)
                .replace("resp_9", &id)
        };
        match attempt.text().contains(r#""stream":true"#) {
            true => {
                let unended = envelope("created", "in_progress", "").replace(
                    r#""usage":null"#,
                    r#""usage":null,"input_messages":null,"output_messages":null"#,
                );
                Script::new()
                    .head_sse()
                    .ev(&unended)
                    .ev(&ended("completed"))
                    .end()
            }
            false => Script::ok(ended("")),
        }
    });
    let world = World::start(engine.await, native()).await;
    let mut schemas = Schemas::load();
    let asked = r#","enable_response_messages":true"#;
    for (more, is_asked) in [
        (asked, true),
        ("", false),
        (r#","enable_response_messages":false"#, false),
    ] {
        let answer = world
            .request(&prompt("text", &format!(r#"{more},"stream":true"#)))
            .await;
        let streamed = events(&answer);
        assert!(streamed[0]["response"].get("input_messages").is_none());
        let whole = object(&world.request(&prompt("text", more)).await);
        let path = format!("/v1/responses/{}", whole["id"].as_str().unwrap());
        let stored = object(&world.get(&path).await);
        for response in [last(&streamed), &whole, &stored] {
            let mut input = json!({"cached_tokens": 16, "cache_write_tokens": 0});
            let mut output = json!({"reasoning_tokens": 14});
            if is_asked {
                (
                    input["input_tokens_per_turn"],
                    input["cached_tokens_per_turn"],
                ) = (json!([30, 38]), json!([0, 16]));
                (
                    output["output_tokens_per_turn"],
                    output["tool_output_tokens_per_turn"],
                ) = (json!([9, 20]), json!([]));
            }
            assert_eq!(
                response["usage"],
                json!({"input_tokens": 68, "input_tokens_details": input, "output_tokens": 29, "output_tokens_details": output, "total_tokens": 97})
            );
            if !is_asked {
                schemas.response(response).unwrap();
            }
            let messages = ["input_messages", "output_messages"].map(|key| response.get(key));
            let read = json!([{"role": "user", "content": "a é"}]);
            let wrote = json!([{"type": "raw_message_tokens", "message": "Hi", "tokens": [1, 2]}]);
            assert_eq!(
                messages,
                if is_asked {
                    [Some(&read), Some(&wrote)]
                } else {
                    [None, None]
                }
            );
        }
        let last_attempt = world.engine.attempts().pop().unwrap();
        assert_eq!(
            last_attempt.text().contains("enable_response_messages"),
            !more.is_empty()
        );
    }
    world.end().await;
}

/// Checks that reasoning and calls are read from the text of an engine's own Responses, streamed and whole, with a named
/// parser and without.
#[tokio::test]
async fn text_is_read() {
    const TEXT: &str = "<think>\nHm.\n</think>\n\nI look.<tool_call>\n<function=shell>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>";
    for parser in ["qwen3_coder", "auto"] {
        let engine = Engine::answering(|attempt: &Attempt| {
            let item = json!({"type": "message", "id": "x", "content": [{"type": "output_text", "text": TEXT}]});
            let end = |kind| envelope(kind, "completed", &item.to_string());
            if attempt.json()["stream"] != true {
                return Script::ok(end("").replace("resp_9", "resp_8"));
            }
            let delta = |piece| json!({"type": "response.output_text.delta", "item_id": "x", "delta": piece});
            let done = json!({"type": "response.output_item.done", "item": item});
            TEXT.split_inclusive('>')
                .map(delta)
                .chain([done])
                .fold(Script::new().head_sse(), |script, event| {
                    script.ev(&event.to_string())
                })
                .ev(&end("completed"))
                .end()
        });
        let setup = native().config(&format!("[wire]\nparser = \"{parser}\""));
        let world = World::start(engine, setup).await;
        let tools =
            r#","tools":[{"type":"function","name":"shell","parameters":{"type":"object"}}]"#;
        let streamed = events(
            &world
                .request(&prompt("text", &format!(r#"{tools},"stream":true"#)))
                .await,
        );
        let whole = object(&world.request(&prompt("text", tools)).await);
        for response in [last(&streamed), &whole] {
            let [thought, text, call] = response["output"].as_array().map(Vec::as_slice).unwrap()
            else {
                panic!("{parser}: {response}");
            };
            assert_eq!(thought["content"][0]["text"], "\nHm.\n");
            assert_eq!(text["content"][0]["text"], "\n\nI look.");
            assert_eq!(call["name"], "shell");
            assert_eq!(call["arguments"], r#"{"command": "ls"}"#);
        }
        world.end().await;
    }
}
