//! Content is neither lost, duplicated, invented nor reordered (property P1; wire-format 1.1).

use crate::canonical::said::{AnswerContent, Call, ChoiceContent, read};
use crate::cases::{Case, Cut};
use samewire::wire::Api;
use serde_json::Value;

/// Returns what the client must receive, by a naive reading of the engine's bytes.
fn expected(case: &Case) -> AnswerContent {
    let mut told = read(
        case.api,
        &case.input,
        case.events,
        case.options["invalid_event"] == "skip",
    );
    let logprobs = match case.api {
        Api::Chat => case.request["logprobs"] == true,
        Api::Completions => case.request["logprobs"].is_u64(),
        Api::Responses | Api::Messages => false,
    };
    let forced = case.request["tool_choice"]["function"]["name"].as_str();
    for said in told.choices.values_mut() {
        // 2.2: logprobs are sent only to a client that requested them.
        if !logprobs {
            said.logprobs.clear();
            said.refusal_logprobs.clear();
        }
        // 2.4: what continues a text is text.
        if case.request["continue_final_message"] == true
            && case.options["promote_reasoning"] != false
        {
            let reasoning = std::mem::take(&mut said.reasoning);
            said.content.insert_str(0, &reasoning);
        }
        // 2.4: this option removes the text.
        if case.options["reasoning_field"] == "none" {
            said.reasoning.clear();
        }
        // 2.5 rule 4: a call without a name gets the forced name. This is decided at the end of its choice, after
        // the calls with a name.
        if case.events {
            said.calls.sort_by_key(|call| call.name.is_empty());
        }
        for call in &mut said.calls {
            if call.name.is_empty() {
                call.name = forced.unwrap_or_default().to_owned();
            }
            if case.engine != "generic" {
                once(call);
            }
        }
    }
    told
}

/// Records where complete arguments end if they are followed by a repetition of themselves (engines of both;
/// every name of an engine includes versions that do it).
fn once(call: &mut Call) {
    let mut values = serde_json::Deserializer::from_str(&call.arguments).into_iter::<Value>();
    if let Some(Ok(Value::Object(_) | Value::Array(_))) = values.next() {
        call.first_value_end = Some(values.byte_offset());
    }
}

/// Compares the content that the client received with the content it should have. A failed answer must hold the
/// beginning of it.
pub fn check(case: &Case) -> Result<(), String> {
    let answer = case.run(&Cut::Whole);
    if answer.status != 200 {
        return Ok(());
    }
    let (due, told) = (
        expected(case),
        read(case.api, answer.body.as_bytes(), case.streams(), false),
    );
    let wrong = |index: &u64, due: &ChoiceContent, told: &ChoiceContent| {
        let input = String::from_utf8_lossy(&case.input);
        let request = &case.request;
        format!(
            "{} choice {index}\n  due  {due:?}\n  told {told:?}\n{request} {}\n{input}",
            case.name, case.options
        )
    };
    let nothing = ChoiceContent::default();
    if let Some(made_up) = told
        .choices
        .keys()
        .find(|index| !due.choices.contains_key(index))
    {
        // 2.3 rule 6: the role frame of a lower choice may precede the engine's first chunk of it.
        if told.choices[made_up] != nothing {
            return Err(wrong(made_up, &nothing, &told.choices[made_up]));
        }
    }
    // If the engine broke off, everything readable is due; if samewire ended the stream, everything before that.
    let all = !told.failed || (answer.body.contains("\"upstream_incomplete\""));
    for (index, due) in &due.choices {
        let told = told.choices.get(index).unwrap_or(&nothing);
        let same = if all {
            let mut due = due.clone();
            due.finished = told.finished;
            // A call that has no name when the answer breaks off cannot be sent.
            due.calls.retain(|call| !call.name.is_empty());
            due == *told
        } else {
            told.begins(due)
        };
        if !same {
            return Err(wrong(index, due, told));
        }
    }
    Ok(())
}
