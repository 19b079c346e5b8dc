//! A chat stream as Responses events: they add up to the final object, and have the same content as the chat
//! stream.

use super::made;
use crate::cases::{Case, Cut};
use crate::events::fold;
use crate::laws::response::check;
use samewire::wire::Api;
use serde_json::{Value, json};

pub fn run(data: &[u8]) {
    let mut made = made::response(Api::Chat, data);
    check(&made.case, &made.sizes).unwrap_or_else(|wrong| panic!("{wrong}"));
    // The same answer as one object, and as a chat client receives it.
    made.case.request = json!({"model": "m", "stream": true});
    let invalid = made.case.options.get("invalid_event").cloned();
    made.case.options = invalid.map_or_else(|| json!({}), |invalid| json!({ "invalid_event": invalid }));
    let case = made.case;
    let chat = Case { api: Api::Chat, request: json!({"model": "m", "stream": false}), ..case.clone() };
    let (streamed, whole) = (case.run(&Cut::Whole), chat.run(&Cut::Whole));
    if streamed.status != 200 {
        assert_ne!(whole.status, 200, "{}\n{}", streamed.body, whole.body);
        return;
    }
    let object = fold(&streamed.body).unwrap_or_else(|wrong| panic!("{wrong}\n{}", streamed.body));
    let ended = object["status"] == "completed" || object["status"] == "incomplete";
    assert_eq!(ended, whole.status == 200, "{}\n{}", streamed.body, whole.body);
    if ended {
        let whole: Value = serde_json::from_str(&whole.body).expect("an object");
        let (ours, chat) = (of_response(&object), of_chat(&whole));
        assert!(says_the_same(&ours, &chat), "{ours:?}\n{chat:?}\n{object}\n{whole}");
    }
}

/// Reasoning, content, refusal, and the calls with their arguments.
type Said = (String, String, String, Vec<(String, String)>);

/// Compares the contents. A call that ended because something else began takes no more arguments: fragments that an
/// engine sends later are only in the chat stream.
fn says_the_same(ours: &Said, chat: &Said) -> bool {
    let is_alone = chat.3.len() == 1 && [&chat.0, &chat.1, &chat.2].iter().all(|text| text.is_empty());
    let same = |((our_name, ours), (name, theirs)): (&(String, String), &(String, String))| {
        let goes_on = !is_alone && theirs.starts_with(ours.as_str()) && is_json(ours);
        our_name == name && (ours == theirs || goes_on)
    };
    (&ours.0, &ours.1, &ours.2) == (&chat.0, &chat.1, &chat.2)
        && ours.3.len() == chat.3.len()
        && ours.3.iter().zip(&chat.3).all(same)
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

fn of_chat(object: &Value) -> Said {
    let message = &object["choices"][0]["message"];
    let text = |key: &str| message[key].as_str().unwrap_or_default().to_owned();
    let mut calls = Vec::new();
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let inner = if call["type"] == "custom" { &call["custom"] } else { &call["function"] };
        let arguments = inner["arguments"].as_str().or_else(|| inner["input"].as_str()).unwrap_or_default();
        calls.push((inner["name"].as_str().unwrap_or_default().to_owned(), arguments.to_owned()));
    }
    (text("reasoning_content"), text("content"), text("refusal"), calls)
}

fn of_response(object: &Value) -> Said {
    let (mut reasoning, mut content, mut refusal, mut calls) = Said::default();
    for item in object["output"].as_array().into_iter().flatten() {
        let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
        match item["type"].as_str() {
            Some("function_call") => calls.push((text("name"), text("arguments"))),
            Some("custom_tool_call") => calls.push((text("name"), text("input"))),
            _ => {}
        }
        for part in item["content"].as_array().into_iter().flatten() {
            let text = part["text"].as_str().or_else(|| part["refusal"].as_str()).unwrap_or_default();
            match part["type"].as_str() {
                Some("reasoning_text") => reasoning.push_str(text),
                Some("output_text") => content.push_str(text),
                _ => refusal.push_str(text),
            }
        }
    }
    (reasoning, content, refusal, calls)
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut cases = made::exchanges();
    cases.retain(|case| case.api == Api::Chat && case.request["n"].as_u64().unwrap_or(1) == 1);
    made::seeds(&cases)
}
