//! Laws that hold for every answer to a client of Messages (messages 4, 5).

use crate::cases::messages::fold::{Folded, error, fold, whole};
use crate::cases::{Case, Cut};
use samewire::wire::Api;
use serde_json::{Value, json};

/// Checks the answer of a case, streamed or whole.
pub(crate) fn check(case: &Case, sizes: &[usize]) -> Result<(), String> {
    let answer = case.run(&Cut::Whole);
    let told = |what: &str, seen: &str| {
        let (request, input) = (&case.request, case.input.escape_ascii());
        format!(
            "{what}\n  {request} {:?}\n  input {input}\n  {}\n  {seen}",
            case.ending, answer.body
        )
    };
    if case.events {
        for cut in [Cut::Sizes(sizes), Cut::Bytes] {
            let other = case.run(&cut);
            if other != answer {
                return Err(told("the cut matters", &other.body));
            }
        }
    }
    if answer.status != 200 {
        let body: Value =
            serde_json::from_str(&answer.body).map_err(|wrong| told(&wrong.to_string(), ""))?;
        return error(&body).map_err(|wrong| told(&wrong, ""));
    }
    if !case.streams() {
        let message =
            serde_json::from_str(&answer.body).map_err(|wrong| told(&wrong.to_string(), ""))?;
        return whole(&message).map_err(|wrong| told(&wrong, ""));
    }
    let folded = fold(&answer.body).map_err(|wrong| told(&wrong, ""))?;
    let says = |word: &[u8]| case.input.windows(word.len()).any(|window| window == word);
    let words: [&[u8]; 3] = [b"finish_reason", b"stop_reason", b"\\u"];
    if folded.error.is_none() && !words.iter().any(|word| says(word)) {
        return Err(told("an end that nobody told", ""));
    }
    same_as_whole(case, &folded).map_err(|(wrong, seen)| told(&wrong, &seen))?;
    if case.upstream == Api::Chat {
        same_as_chat(case, &folded).map_err(|(wrong, seen)| told(&wrong, &seen))?;
    }
    if folded.error.is_none() && !loses_its_prompt(&answer.body, &folded) {
        let again = case.fed_back(&answer.body).run(&Cut::Whole);
        if again != answer {
            return Err(told("not a fixed point", &again.body));
        }
    }
    Ok(())
}

/// Returns true for an engine that counts a prompt at first, and none at the end: the first count then stays.
fn loses_its_prompt(body: &str, folded: &Folded) -> bool {
    let start = body
        .split("\ndata: ")
        .find(|event| event.starts_with(r#"{"type":"message_start""#));
    let start = start
        .and_then(|event| event.split('\n').next())
        .and_then(|json| serde_json::from_str(json).ok());
    let start: Value = start.unwrap_or_default();
    [
        "input_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    ]
    .iter()
    .any(|key| {
        folded.message["usage"][key] == 0
            && start["message"]["usage"][key]
                .as_u64()
                .is_some_and(|count| count > 0)
    })
}

/// Checks that the stream has the content of the message that another client gets whole. A broken stream has an error
/// in its place.
fn same_as_whole(case: &Case, folded: &Folded) -> Result<(), (String, String)> {
    let mut other = case.clone();
    other.request["stream"] = json!(false);
    let answer = other.run(&Cut::Whole);
    match (&folded.error, answer.status) {
        (Some(_), status) if status != 200 => return Ok(()),
        (None, 200) => {}
        _ => return Err(("only one of both has ended well".to_owned(), answer.body)),
    }
    let message: Value =
        serde_json::from_str(&answer.body).map_err(|wrong| (wrong.to_string(), String::new()))?;
    let same = content(&message) == content(&folded.message)
        && ["id", "model", "stop_reason", "stop_sequence", "usage"]
            .iter()
            .all(|key| message[key] == folded.message[key]);
    if same {
        Ok(())
    } else {
        Err(("other than the whole message".to_owned(), answer.body))
    }
}

/// Returns the blocks, with cut arguments in the form of a whole message.
fn content(message: &Value) -> Vec<Value> {
    let mut blocks = message["content"].as_array().cloned().unwrap_or_default();
    for block in &mut blocks {
        if let Some(text) = block["input"].as_str() {
            block["input"] = json!({ "raw_arguments": text });
        }
    }
    blocks
}

/// Text of the thinking, text of the answer, and the calls with their arguments.
type Said = (String, String, Vec<(String, Value)>);

/// Checks that the message has the content that a chat client gets of the same answer.
fn same_as_chat(case: &Case, folded: &Folded) -> Result<(), (String, String)> {
    let mut options = json!({});
    for key in ["invalid_event", "parser"] {
        if let Some(value) = case.options.get(key) {
            options[key] = value.clone();
        }
    }
    let request = json!({"model": "m", "stream": false});
    let chat = Case {
        api: Api::Chat,
        request,
        options,
        ..case.clone()
    }
    .run(&Cut::Whole);
    if folded.error.is_some() || chat.status != 200 {
        return Ok(());
    }
    let chat: Value =
        serde_json::from_str(&chat.body).map_err(|wrong| (wrong.to_string(), String::new()))?;
    let (ours, theirs) = (of_message(&folded.message), of_chat(&chat));
    let hides = case.options["messages_thinking"] == "none"
        || case.options["messages_thinking"] == "omitted"
        || case.request["thinking"]["display"] == "omitted"
        || case.request["thinking"]["type"] == "disabled";
    // A message has one text; chat keeps a refusal apart from it, whatever came first.
    let letters = |text: &str| {
        let mut letters: Vec<char> = text.chars().collect();
        letters.sort_unstable();
        letters
    };
    let has_refusal = chat["choices"][0]["message"]["refusal"].is_string();
    let same_text = ours.1 == theirs.1 || has_refusal && letters(&ours.1) == letters(&theirs.1);
    let same = (hides || ours.0 == theirs.0) && same_text && ours.2 == theirs.2;
    if same {
        Ok(())
    } else {
        Err((
            format!("other than the chat answer {ours:?}"),
            chat.to_string(),
        ))
    }
}

fn of_message(message: &Value) -> Said {
    let (mut thinking, mut text, mut calls) = Said::default();
    for block in content(message) {
        match block["type"].as_str() {
            Some("thinking") => thinking.push_str(block["thinking"].as_str().unwrap_or_default()),
            Some("text") => text.push_str(block["text"].as_str().unwrap_or_default()),
            _ => calls.push((
                block["name"].as_str().unwrap_or_default().to_owned(),
                block["input"].clone(),
            )),
        }
    }
    (thinking, text, calls)
}

/// Returns the input of a call with these arguments.
fn input(arguments: &str) -> Value {
    match serde_json::from_str::<Value>(arguments) {
        Ok(object @ Value::Object(_)) => object,
        _ if arguments.trim().is_empty() => json!({}),
        _ => json!({ "raw_arguments": arguments }),
    }
}

fn of_chat(object: &Value) -> Said {
    let message = &object["choices"][0]["message"];
    let text = |key: &str| message[key].as_str().unwrap_or_default().to_owned();
    let mut calls = Vec::new();
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let inner = if call["type"] == "custom" {
            &call["custom"]
        } else {
            &call["function"]
        };
        let arguments = inner["arguments"]
            .as_str()
            .or_else(|| inner["input"].as_str())
            .unwrap_or_default();
        calls.push((
            inner["name"].as_str().unwrap_or_default().to_owned(),
            input(arguments),
        ));
    }
    if let Some(name) = message["function_call"]["name"].as_str() {
        let arguments = message["function_call"]["arguments"]
            .as_str()
            .unwrap_or_default();
        calls.push((name.to_owned(), input(arguments)));
    }
    let text_and_refusal = text("content") + &text("refusal");
    (text("reasoning_content"), text_and_refusal, calls)
}
