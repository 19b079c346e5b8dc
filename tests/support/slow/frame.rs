//! Converts the frames of the state machine to the bytes of an SSE body (2.1, 2.11, 8.2).

use super::chunk::Extensions;
use super::json::Out;
use super::machine::{Frame, Part, Run};
use super::{Case, is_chat, option, switch, wants_usage};

/// Returns the whole SSE body of a run.
pub fn stream_text(case: &Case, run: &Run) -> String {
    let mut text = String::new();
    let mut frames = run.frames.iter().peekable();
    while let Some(frame) = frames.next() {
        let finish = frames.next_if(|next| next.joins(frame)).unwrap_or(frame);
        text.push_str(&format!(
            "data: {}\n\n",
            chunk(case, run, frame, finish).write()
        ));
    }
    match &run.failure {
        None => text.push_str("data: [DONE]\n\n"),
        Some(failure) => {
            let mut members = vec![("error", failure.object())];
            if option(case, "error_frame") == "flat+nested" {
                members.push(("message", Out::text(&failure.message)));
                members.push(("type", Out::text(&failure.kind)));
            }
            text.push_str(&format!(
                "event: error\ndata: {}\n\n",
                Out::Object(members).write()
            ));
            if switch(case, "done_after_error") {
                text.push_str("data: [DONE]\n\n");
            }
        }
    }
    text
}

/// Returns a frame as it is written. `finish` is the frame with the finish reason of the choice, if it has one.
fn chunk(case: &Case, run: &Run, frame: &Frame, finish: &Frame) -> Out {
    let object = if is_chat(case) {
        "chat.completion.chunk"
    } else {
        "text_completion"
    };
    let mut members = envelope(
        case,
        run,
        object,
        frame.service_tier.as_ref(),
        frame.fingerprint.as_ref(),
    );
    let is_usage = matches!(frame.part, Part::Usage);
    let choices = if is_usage {
        Vec::new()
    } else {
        vec![choice(case, frame, finish)]
    };
    members.push(("choices", Out::List(choices)));
    if wants_usage(case) {
        members.push((
            "usage",
            frame.usage.as_ref().map_or(Out::Null, |usage| usage.out()),
        ));
    }
    members.extend(asked(&frame.asked));
    members.extend(
        frame
            .extra
            .iter()
            .map(|extra| ("x_upstream", Out::Raw(extra.clone()))),
    );
    Out::Object(members)
}

/// Returns the members before `choices`.
pub fn envelope(
    case: &Case,
    run: &Run,
    object: &str,
    tier: Option<&String>,
    fingerprint: Option<&String>,
) -> Vec<(&'static str, Out)> {
    let envelope = run.envelope.as_ref().expect("an answer has an envelope");
    let mut members = vec![
        ("id", Out::text(&envelope.id)),
        ("object", Out::text(object)),
        ("created", Out::Number(envelope.created)),
        ("model", Out::text(&envelope.model)),
    ];
    if is_chat(case) {
        members.extend(tier.map(|tier| ("service_tier", Out::text(tier))));
    }
    members.extend(fingerprint.map(|fingerprint| ("system_fingerprint", Out::text(fingerprint))));
    members
}

fn choice(case: &Case, frame: &Frame, finish: &Frame) -> Out {
    let mut members = if is_chat(case) {
        vec![
            ("index", Out::Number(frame.choice as u64)),
            ("delta", delta(case, &frame.part)),
        ]
    } else {
        let text = if let Part::Content(text) = &frame.part {
            text
        } else {
            ""
        };
        vec![
            ("text", Out::text(text)),
            ("index", Out::Number(frame.choice as u64)),
        ]
    };
    members.push((
        "logprobs",
        frame
            .logprobs
            .as_ref()
            .map_or(Out::Null, |logprobs| logprobs.out()),
    ));
    if let Part::Finish {
        reason,
        stop_reason,
    } = &finish.part
    {
        members.push(("finish_reason", Out::text(reason)));
        if switch(case, "stop_details") {
            members.push(("stop_reason", Out::raw_or_null(stop_reason.as_ref())));
        }
    } else {
        members.push(("finish_reason", Out::Null));
    }
    members.extend(asked(&frame.choice_asked));
    members.extend(
        frame
            .choice_extra
            .iter()
            .map(|extra| ("x_upstream", Out::Raw(extra.clone()))),
    );
    Out::Object(members)
}

/// Returns the extensions that the client requested (2.10).
pub fn asked(asked: &Extensions) -> impl Iterator<Item = (&'static str, Out)> {
    asked
        .iter()
        .map(|(key, json)| (*key, Out::Raw(json.clone())))
}

fn delta(case: &Case, part: &Part) -> Out {
    let call = |members| Out::List(vec![Out::Object(members)]);
    Out::Object(match part {
        Part::Role => {
            let mut members = vec![("role", Out::text("assistant"))];
            if option(case, "role_frame") == "openai" {
                members.push(("content", Out::text("")));
                members.push(("refusal", Out::Null));
            }
            members
        }
        Part::Reasoning(text) => reasoning(case, text),
        Part::Content(text) => vec![("content", Out::text(text))],
        Part::Refusal(text) => vec![("refusal", Out::text(text))],
        Part::CallHeader { index, id, name } => {
            let function = vec![("name", Out::text(name)), ("arguments", Out::text(""))];
            let members = vec![
                ("index", Out::Number(*index as u64)),
                ("id", Out::text(id)),
                ("type", Out::text("function")),
                ("function", Out::Object(function)),
            ];
            vec![("tool_calls", call(members))]
        }
        Part::CallArguments { index, text } => {
            let function = Out::Object(vec![("arguments", Out::text(text))]);
            vec![(
                "tool_calls",
                call(vec![
                    ("index", Out::Number(*index as u64)),
                    ("function", function),
                ]),
            )]
        }
        Part::FunctionCall(call) => vec![("function_call", call.out())],
        Part::Nothing | Part::Finish { .. } | Part::Usage => Vec::new(),
    })
}

/// Returns reasoning text under the names that the option selects (2.4).
pub fn reasoning(case: &Case, text: &str) -> Vec<(&'static str, Out)> {
    let names: &[&'static str] = match option(case, "reasoning_field").as_str() {
        "none" => &[],
        "reasoning" => &["reasoning"],
        "reasoning_content" => &["reasoning_content"],
        _ => &["reasoning_content", "reasoning"],
    };
    names.iter().map(|name| (*name, Out::text(text))).collect()
}
