//! The worked examples of the wire format, byte for byte, however their input is cut.

use crate::cases;
use crate::cases::{Answer, Cut, message_vectors, response_vectors, vectors};
use bytes::Bytes;
use samewire::engine::named;
use samewire::plan::{Route, shape};
use samewire::request::ChatRequest;
use samewire::request::responses::{ResponsesMode, ResponsesRequest};
use samewire::wire::encode::{Reply, Response};
use samewire::wire::options::Options;
use samewire::wire::options::ResponsesReasoning::{self, Both, Content};
use samewire::wire::{AnswerId, Api, OutputBuffer, Rewriter, Stamp};
use serde_json::Value;
use std::sync::Arc;

/// Returns the vector's expected answer. A body is compared as JSON text with its key order.
fn expected(vector: &Value) -> Answer {
    let status = vector["expected_status"].as_u64().unwrap() as u16;
    let body = match vector["expected"].as_array() {
        Some(lines) => lines
            .iter()
            .map(|line| format!("{}\n", line.as_str().unwrap()))
            .collect(),
        None => String::new(),
    };
    Answer { status, body }
}

/// Returns the JSON text of `expected_body` in the order of the vector's file: `Value` would sort it.
fn expected_body(name: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Vector<'a> {
        #[serde(borrow)]
        expected_body: &'a serde_json::value::RawValue,
    }
    let text = std::fs::read_to_string(
        cases::fixtures()
            .join("vectors")
            .join(format!("{name}.json")),
    )
    .unwrap();
    let vector: Vector<'_> = serde_json::from_str(&text).unwrap();
    compact(vector.expected_body.get())
}

fn compact(json: &str) -> String {
    let mut out = String::new();
    let (mut string, mut escaped) = (false, false);
    for character in json.chars() {
        if !string && character.is_whitespace() {
            continue;
        }
        out.push(character);
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => string = !string,
            _ => {}
        }
    }
    out
}

#[test]
fn every_vector_byte_for_byte() {
    let mut wrong = Vec::new();
    let vectors: Vec<_> = vectors()
        .into_iter()
        .chain(response_vectors())
        .chain(message_vectors())
        .collect();
    for (case, vector) in &vectors {
        let mut expected = expected(vector);
        if expected.body.is_empty() {
            expected.body = expected_body(&case.name);
        }
        let mut cuts = vec![Cut::Whole, Cut::Bytes];
        let sizes: Vec<Vec<usize>> = (1..=12)
            .map(|seed| {
                (1..40)
                    .map(|at| (at * seed * 2_654_435_761) % 97 + 1)
                    .collect()
            })
            .collect();
        cuts.extend(sizes.iter().map(|sizes| Cut::Sizes(sizes)));
        if let Some(got) = cuts
            .iter()
            .map(|cut| case.run(cut))
            .find(|got| *got != expected)
        {
            wrong.push(format!(
                "{}\n  expected {} {}\n  got      {} {}",
                case.name, expected.status, expected.body, got.status, got.body
            ));
        }
        if vector["idempotent"] == Value::Bool(true) {
            let again = case.fed_back(&expected.body).run(&Cut::Whole);
            if again != expected {
                wrong.push(format!(
                    "{} again\n  expected {}\n  got      {}",
                    case.name, expected.body, again.body
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        vectors.len(),
        wrong.join("\n")
    );
}

/// Returns the same answer as a Responses object: another encoder at the end of the same pipeline.
fn as_response(
    request: &str,
    message: &str,
    finish: &str,
    reasoning: ResponsesReasoning,
) -> String {
    let route = Route::new(named("vllm").unwrap(), Arc::default(), 1 << 20);
    let body = Bytes::from(request.to_owned());
    let shape = shape(&ChatRequest::recall(Api::Chat, &body).unwrap(), &route);
    let stamp = Stamp {
        id: AnswerId(1),
        now: 1_779_866_860,
        seed: 1,
        ..Stamp::default()
    };
    let asked = ResponsesRequest::recall(&body, &Options::default(), ResponsesMode::Chat).unwrap();
    let reply = Reply {
        echo: asked.echo(),
        reasoning,
        ..Reply::default()
    };
    let encoder = Response::new(reply, &stamp);
    let mut rewriter = Rewriter::with_encoder(shape, stamp, Box::new(encoder));
    let input = format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion","created":5,"model":"m","choices":[{{"index":0,"message":{message},"finish_reason":"{finish}"}}]}}"#
    );
    let mut out = OutputBuffer::default();
    rewriter.whole(
        if message.starts_with("{\"id\"") {
            message.as_bytes()
        } else {
            input.as_bytes()
        },
        &mut out,
    );
    assert_eq!(rewriter.writer.failure(), None);
    String::from_utf8(out.to_vec()).unwrap()
}

#[test]
fn response_from_a_chat_object() {
    let name = "json-010-responses-from-chat";
    let file = std::fs::read(cases::fixtures().join(format!("vectors/{name}.json"))).unwrap();
    let vector: Value = serde_json::from_slice(&file).unwrap();
    let got = as_response(
        &vector["request"].to_string(),
        vector["input"].as_str().unwrap(),
        "",
        Content,
    );
    assert_eq!(got, expected_body(name));
}

#[test]
fn response_items_and_echo() {
    let request = r#"{"model":"m","input":"hi","temperature":0.50,"tools":[{"type":"function","name":"f"}],"text":{"verbosity":"low"},"reasoning":{"effort":"high"},"service_tier":"auto","metadata":{ "a" : "b"}}"#;
    let message = r#"{"role":"assistant","content":"a","reasoning_content":"r","refusal":"no","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]}"#;
    let got = as_response(request, message, "length", Both);
    for part in [
        r#""status":"incomplete","background":false,"completed_at":null"#,
        r#""incomplete_details":{"reason":"max_output_tokens"}"#,
        r#""output":[{"id":"rs_1_0","type":"reasoning","status":"completed","summary":[{"type":"summary_text","text":"r"}],"content":[{"type":"reasoning_text","text":"r"}]},"#,
        r#"{"id":"msg_1_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]},{"type":"refusal","refusal":"no"}]},"#,
        r#"{"id":"fc_1_2","type":"function_call","status":"incomplete","call_id":"call_1","name":"f","arguments":"{\"x\":1}"}]"#,
        r#""reasoning":{"effort":"high","summary":null}"#,
        r#""service_tier":"default","store":true,"temperature":0.50,"text":{"format":{"type":"text"},"verbosity":"low"}"#,
        r#""tools":[{"type":"function","name":"f","description":null,"parameters":null,"strict":null}]"#,
        r#""usage":null,"user":null,"metadata":{"a":"b"}}"#,
    ] {
        assert!(got.contains(part), "{part}\nin {got}");
    }
    serde_json::from_str::<Value>(&got).unwrap();
}
