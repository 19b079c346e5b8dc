//! Models that repeat themselves without end, and `[guard]` (wire-format 2.13).

use crate::sim::prelude::*;

const APIS: [&str; 3] = ["/v1/chat/completions", "/v1/responses", "/v1/messages"];
const GUARD: &str = "[guard]\nrepeats = 8\nbytes = 2048";
const SENTENCE: &str = "Wait, \"let me\" think about this again.\n";

fn request(path: &str) -> Request {
    let messages = json!([{"role": "user", "content": "a"}]);
    Request::post(
        path,
        match path {
            "/v1/responses" => json!({"model": "m", "stream": true, "input": "a"}),
            "/v1/messages" => {
                json!({"model": "m", "stream": true, "max_tokens": 100, "messages": messages})
            }
            _ => json!({"model": "m", "stream": true, "messages": messages}),
        }
        .to_string(),
    )
}

/// Returns the sentence, again and again, under this key, in pieces that differ in length.
fn sentences(script: Script, choice: usize, key: &str, times: usize) -> Script {
    let text = SENTENCE.repeat(times);
    let mut rest = text.as_str();
    let mut script = script;
    for length in (1..9).cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, more) = rest.split_at(length.min(rest.len()));
        rest = more;
        let piece = json_string(piece);
        script = script.ev(&format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":{choice},"delta":{{"{key}":{piece}}},"finish_reason":null}}]}}"#
        ));
    }
    script
}

#[tokio::test]
async fn a_stream_that_repeats_itself_is_cut() {
    for key in ["content", "reasoning_content"] {
        let looped = sentences(Script::stream().text("Well. "), 0, key, 400).hang();
        // Models that nobody lists are counted together.
        let world = World::start(
            looped,
            Setup::new().config(GUARD).config("[[model]]\nname = \"m\""),
        )
        .await;
        for (asked, path) in APIS.into_iter().enumerate() {
            let answer = world.request(&request(path)).await;
            let text = answer.text();
            // Pieces have four and a half bytes. The engine sends 3,500 of them; Responses have two events for one of reasoning.
            let pieces = text.matches("data:").count();
            assert!((400..2500).contains(&pieces), "{path} {key} {pieces}");
            let finish = match path {
                "/v1/responses" => r#""incomplete_details":{"reason":"max_output_tokens"}"#,
                "/v1/messages" => r#""stop_reason":"max_tokens""#,
                _ => r#""finish_reason":"length""#,
            };
            let end = match path {
                "/v1/responses" => "event: response.incomplete",
                "/v1/messages" => "event: message_stop",
                _ => "data: [DONE]",
            };
            assert!(
                text.contains(finish) && text.contains(end),
                "{path} {key} {text:.3000}"
            );
            until("the answer is cancelled", || {
                world.engine.active_generations() == 0
            })
            .await;
            let metrics = world.samewire.metrics().await;
            let counted = format!("samewire_repetitions_total{{model=\"m\"}} {}", asked + 1);
            let found: Vec<_> = metrics
                .lines()
                .filter(|line| line.contains("repetition"))
                .collect();
            assert!(found.contains(&counted.as_str()), "{path} {key} {found:#?}");
        }
        world.end().await;
    }
}

#[tokio::test]
async fn the_answer_fails_if_the_operator_says_so() {
    let looped = sentences(Script::stream(), 0, "content", 400).hang();
    let setup = Setup::new()
        .allow_errors()
        .config(&format!("{GUARD}\nfinish = \"error\""));
    let answer = World::answer(looped, setup, &request(APIS[0])).await;
    let text = answer.text();
    assert!(
        text.contains("upstream_incomplete") && text.contains("guard.repeats"),
        "{text:.3000}"
    );
    assert!(!text.contains("[DONE]") && !text.contains(r#""finish_reason":"length""#));
}

/// An engine may go on after a finish. The client gets one finish all the same.
#[tokio::test]
async fn a_loop_after_the_finish_has_one_finish() {
    let begun = sentences(Script::stream(), 0, "content", 10).finish("stop");
    let setup = Setup::new().config(GUARD);
    let answer = World::answer(
        sentences(begun, 0, "content", 400).hang(),
        setup,
        &request(APIS[0]),
    )
    .await;
    let text = answer.text();
    let finishes: Vec<_> = text.matches(r#""finish_reason":""#).collect();
    assert_eq!(
        (
            finishes.len(),
            text.matches(r#""finish_reason":"length""#).count()
        ),
        (1, 1)
    );
    assert!(text.ends_with("data: [DONE]\n\n"), "{text:.3000}");
}

/// Each choice is watched by itself. The others go on, and the answer ends with the last of them.
#[tokio::test]
async fn other_choices_go_on() {
    let other = |text: &str, finish: &str| {
        format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":1,"delta":{{"content":"{text}"}},"finish_reason":{finish}}}]}}"#
        )
    };
    let script = sentences(
        Script::new().head_sse().ev(&other("a", "null")),
        0,
        "content",
        200,
    );
    let script = sentences(script.ev(&other("b", "null")), 0, "content", 50)
        .ev(&other("c", "\"stop\""))
        .hang();
    let setup = Setup::new().config(GUARD);
    let body = json!({"model": "m", "stream": true, "n": 2, "messages": [{"role": "user", "content": "a"}]});
    let answer = World::answer(script, setup, &Request::chat(body.to_string())).await;
    let text = answer.text();
    for said in ["\"a\"", "\"b\"", "\"c\""] {
        assert!(text.contains(&format!("\"content\":{said}")), "{said}");
    }
    let finishes = text.matches(r#""finish_reason":"length""#).count();
    assert_eq!(
        (finishes, text.matches(r#""finish_reason":"stop""#).count()),
        (1, 1)
    );
    assert!(text.ends_with("data: [DONE]\n\n") && text.matches("data:").count() < 1200);
}

/// Without the option, for a model that overrides it, and in a whole answer, nothing is cut.
#[tokio::test]
async fn nothing_else_is_cut() {
    let engine = || {
        Engine::answering(|attempt: &Attempt| {
            if attempt.text().contains(r#""stream":true"#) {
                return sentences(Script::stream(), 0, "content", 200)
                    .finish("stop")
                    .usage(3, 9)
                    .done()
                    .end();
            }
            let message = json!({"role": "assistant", "content": SENTENCE.repeat(200)});
            let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
            let body = json!({"id": "a", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]});
            Script::ok(body)
        })
    };
    let overridden =
        format!("{GUARD}\n[[model]]\nname = \"m\"\nwire = {{ guard = {{ repeats = 0 }} }}");
    for (config, request) in [
        ("", request(APIS[0])),
        (overridden.as_str(), request(APIS[0])),
        (GUARD, Request::plain("")),
        ("[guard]\nrepeats = 300", request(APIS[0])),
    ] {
        let world = World::start(engine(), Setup::new().config(config)).await;
        assert!(
            world
                .request(&request)
                .await
                .text()
                .contains(r#""finish_reason":"stop""#),
            "{config}"
        );
        assert!(
            !world
                .samewire
                .metrics()
                .await
                .contains("samewire_repetitions_total{"),
            "{config}"
        );
        world.end().await;
    }
}
