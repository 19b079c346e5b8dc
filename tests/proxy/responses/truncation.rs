//! Conversations longer than the engine accepts (wire-format 4.2, `truncation`).

use crate::responses::over_chat::{ask, chunk, events, last, object};
use crate::sim::prelude::*;

const TOO_LONG: &str = "This model's maximum context length is 2048 tokens. However, you requested 20 output tokens and your prompt contains at least 2029 input tokens, for a total of at least 2049 tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=2029)";

/// Starts an engine that accepts this many messages besides system messages. It refuses more by its status, or for
/// model `late` in the first event.
async fn engine(most: usize) -> Engine {
    Engine::answering(move |attempt: &Attempt| {
        let body = attempt.json();
        let messages = body["messages"].as_array().unwrap();
        let count = messages.iter().filter(|message| message["role"] != "system").count();
        let error = json!({"error": {"message": TOO_LONG, "type": "BadRequestError", "param": "input_tokens", "code": 400}});
        match (count > most, body["stream"] == true) {
            (true, true) if body["model"] == "late" => {
                Script::new().head_sse().ev(&error.to_string()).done().end()
            }
            (true, _) => Script::new().json("400 Bad Request", &error.to_string()),
            (false, true) => {
                let texts = [r#"{"role":"assistant","content":""}"#, r#"{"content":"fits"}"#];
                let script = Script::new().head_sse().ev(&chunk("c-1", texts[0], "null"));
                script.ev(&chunk("c-1", texts[1], "null")).ev(&chunk("c-1", "{}", "\"stop\"")).done().end()
            }
            (false, false) => Script::ok(r#"{"id":"c-2","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"fits"},"finish_reason":"stop"}]}"#),
        }
    })
    .await
}

/// Returns a conversation of this many turns, each with a question, a call, its output and an answer.
fn conversation(turns: usize) -> String {
    let mut items = vec![r#"{"role":"system","content":"always"}"#.to_owned()];
    for turn in 0..turns {
        items.push(format!(r#"{{"role":"user","content":"question {turn}"}}"#));
        items.push(format!(
            r#"{{"type":"function_call","call_id":"c{turn}","name":"f","arguments":"{{}}"}}"#
        ));
        items.push(format!(
            r#"{{"type":"function_call_output","call_id":"c{turn}","output":"o"}}"#
        ));
        items.push(format!(
            r#"{{"role":"assistant","content":"answer {turn}"}}"#
        ));
    }
    items.push(r#"{"role":"user","content":"last"}"#.to_owned());
    items.join(",")
}

#[tokio::test]
async fn the_oldest_messages_are_left_out_until_it_fits() {
    let world = World::start(engine(9), Setup::new()).await;
    let rounds = [
        ("", "m"),
        (r#","stream":true"#, "m"),
        (r#","stream":true"#, "late"),
    ];
    for (round, (more, model)) in rounds.into_iter().enumerate() {
        let before = world.engine.attempt_count();
        let input = conversation(10);
        let request = ask(&format!(
            r#""model":"{model}","input":[{input}],"truncation":"auto"{more}"#
        ));
        let answer = world.request(&request).await;
        let response = match more {
            "" => object(&answer),
            _ => last(&events(&answer)).clone(),
        };
        assert_eq!(
            [&response["status"], &response["truncation"]],
            ["completed", "auto"]
        );
        assert_eq!(response["output"][0]["content"][0]["text"], "fits");
        let attempts = world.engine.attempts().split_off(before);
        assert!(
            (2..12).contains(&attempts.len()),
            "{} attempts",
            attempts.len()
        );
        let sent = attempts.last().unwrap().json();
        let messages = sent["messages"].as_array().unwrap();
        assert_eq!(messages[0]["content"], "always");
        assert_eq!(messages.last().unwrap()["content"], "last");
        // No output without its call, and not much shorter than the limit allows.
        let calls = messages
            .iter()
            .filter(|message| message.get("tool_calls").is_some())
            .count();
        let outputs = messages
            .iter()
            .filter(|message| message["role"] == "tool")
            .count();
        assert_eq!(calls, outputs);
        assert!(messages.len() >= 4, "{messages:?}");
        until("its line", || world.samewire.request_lines().len() > round).await;
        let line = world.samewire.request_lines().pop().unwrap();
        assert!(
            line.contains(&format!(r#""attempts":{}"#, attempts.len())),
            "{line}"
        );
    }
    world.end().await;
}

#[tokio::test]
async fn otherwise_it_is_the_clients_to_shorten() {
    let world = World::start(engine(3), Setup::new()).await;
    for (truncation, model) in [("", "m"), (r#","truncation":"disabled""#, "late")] {
        for stream in ["", r#","stream":true"#] {
            let input = conversation(2);
            let request = format!(r#""model":"{model}","input":[{input}]{truncation}{stream}"#);
            let answer = world.request(&ask(&request)).await;
            assert_eq!(
                answer.failure(),
                "400 invalid_request_error context_length_exceeded"
            );
        }
    }
    world.end_after(4).await;
}

#[tokio::test]
async fn what_can_never_fit_is_told() {
    let request = ask(&format!(
        r#""model":"m","input":[{}],"truncation":"auto""#,
        conversation(3)
    ));
    let answer = World::answer(engine(0), Setup::new(), &request).await;
    assert_eq!(
        answer.fault().code.as_deref(),
        Some("context_length_exceeded")
    );
    assert_eq!(answer.json()["error"]["message"], TOO_LONG);
}

#[tokio::test]
async fn in_the_background_and_with_a_history() {
    let world = World::start(engine(6), Setup::new()).await;
    let mut previous = String::new();
    for turn in 0..6 {
        let after = if turn == 0 {
            String::new()
        } else {
            format!(r#","previous_response_id":"{previous}""#)
        };
        let request = ask(&format!(
            r#""model":"m","input":"turn {turn}","truncation":"auto","background":true,"stream":true{after}"#
        ));
        let told = events(&world.request(&request).await);
        assert_eq!(
            last(&told)["status"],
            "completed",
            "turn {turn}: {}",
            last(&told)
        );
        previous = last(&told)["id"].as_str().unwrap().to_owned();
    }
    let attempts = world.engine.attempts();
    let sent = attempts.last().unwrap().json();
    let messages = sent["messages"].as_array().unwrap();
    assert!(
        messages.len() <= 6 && messages.last().unwrap()["content"] == "turn 5",
        "{messages:?}"
    );
    tokio::time::timeout(Duration::from_secs(30), world.end())
        .await
        .unwrap();
}
