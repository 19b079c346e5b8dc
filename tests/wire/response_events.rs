//! Events and items of the Responses encoder, from events that no recording has (wire-format 4.4 to 4.7).

#![allow(clippy::disallowed_types, reason = "tests")]

use bytes::Bytes;
use samewire::json::{Raw, Text};
use samewire::wire::encode::{Echo, Encode, EventFraming, Persisted, Reply, Response, StreamForm};
use samewire::wire::event::{
    Delta, Event, Finish, FrameExtras, Head, ItemStage, Logprobs, Reason, TokenLogprob, ToolKind,
};
use samewire::wire::fault::Fault;
use samewire::wire::options::{ResponsesDialect, ResponsesReasoning};
use samewire::wire::{OutputBuffer, Stamp};
use serde_json::Value;

/// Returns a stream's events, as JSON.
fn events(reply: Reply, deltas: Vec<Event<'_>>) -> Vec<Value> {
    let form = StreamForm {
        framing: EventFraming::Lines,
        ..reply.form
    };
    let mut response = Response::new(
        Reply {
            stream: true,
            form,
            ..reply
        },
        &Stamp::default(),
    );
    let mut out = OutputBuffer::default();
    let head = Event::Head(Head {
        id: Some(Text::plain("resp_1")),
        ..Head::default()
    });
    std::iter::once(head)
        .chain(deltas)
        .for_each(|event| response.event(event, &mut out));
    let text = String::from_utf8(out.to_vec()).unwrap();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn delta(delta: Delta<'_>) -> Event<'_> {
    Event::Delta {
        choice: 0,
        delta,
        extras: FrameExtras::default(),
    }
}

fn reasoning(text: &str) -> Event<'_> {
    delta(Delta::Reasoning(Text::plain(text)))
}

fn content(text: &str) -> Event<'_> {
    delta(Delta::Content(Text::plain(text)))
}

fn sealed(late: bool) -> Event<'static> {
    delta(Delta::Sealed {
        text: Text::plain("s"),
        late,
    })
}

fn stop() -> [Event<'static>; 2] {
    [
        delta(Delta::Finish(Finish {
            reason: Reason::Stop,
            stop: None,
        })),
        Event::End,
    ]
}

fn foreign(
    name: &'static str,
    slot: Option<u32>,
    stage: ItemStage,
    json: &'static str,
) -> Event<'static> {
    Event::Foreign {
        name,
        slot,
        stage,
        data: Raw::of(json).unwrap(),
    }
}

/// Returns the types of the events between `response.in_progress` and the terminal one, without `response.`.
fn types(events: &[Value]) -> Vec<&str> {
    let all = events.iter().map(|event| {
        event["type"]
            .as_str()
            .unwrap()
            .trim_start_matches("response.")
    });
    all.skip(2)
        .take_while(|kind| !["completed", "failed", "incomplete"].contains(kind))
        .collect()
}

/// Returns the output of the terminal event.
fn output(events: &[Value]) -> &Vec<Value> {
    let last = events
        .iter()
        .rfind(|event| event["response"]["output"].is_array())
        .unwrap();
    last["response"]["output"].as_array().unwrap()
}

#[test]
fn dialects_have_their_events_for_reasoning() {
    use ResponsesDialect::{CodexLegacy, Openai, Openresponses};
    let answer = |dialect| {
        let deltas = [reasoning("t"), delta(Delta::Summary(Text::plain("s")))]
            .into_iter()
            .chain(stop());
        events(
            Reply {
                dialect,
                ..Reply::default()
            },
            deltas.collect(),
        )
    };
    let shown = |dialect| types(&answer(dialect)).join(" ");
    let expected = |name: &str| {
        format!(
            "output_item.added content_part.added {name}.delta reasoning_summary_part.added \
             reasoning_summary_text.delta {name}.done content_part.done reasoning_summary_text.done \
             reasoning_summary_part.done output_item.done"
        )
    };
    assert_eq!(shown(Openai), expected("reasoning_text"));
    assert_eq!(shown(Openresponses), expected("reasoning"));
    let legacy = answer(CodexLegacy);
    assert_eq!(
        types(&legacy)[..8].join(" "),
        "output_item.added content_part.added reasoning_text.delta reasoning.delta \
         reasoning_summary_part.added reasoning.summary.added reasoning_summary_text.delta \
         reasoning.summary.delta"
    );
    let older = |kind: &str| legacy.iter().find(|event| event["type"] == kind).unwrap();
    for (kind, keys) in [
        (
            "response.reasoning.delta",
            &["item_id", "output_index", "content_index", "delta"][..],
        ),
        (
            "response.reasoning.summary.delta",
            &["item_id", "summary_index", "delta"],
        ),
    ] {
        let event = older(kind).as_object().unwrap();
        let mut own: Vec<_> = event.keys().map(String::as_str).collect();
        own.retain(|key| !["type", "sequence_number", "response"].contains(key));
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        own.sort_unstable();
        assert_eq!(
            (own, &event["response"]["id"]),
            (keys, &Value::from("resp_1")),
            "{kind}"
        );
    }
}

#[test]
fn rate_limits_follow_the_end_in_the_older_dialect() {
    let deltas = || {
        let limits = Event::Limits(Raw::of(r#"{"primary":{"used_percent":3}}"#).unwrap());
        std::iter::once(limits)
            .chain([content("a")])
            .chain(stop())
            .collect()
    };
    let legacy = Reply {
        dialect: ResponsesDialect::CodexLegacy,
        ..Reply::default()
    };
    let told = events(legacy, deltas());
    let last = told.last().unwrap();
    assert_eq!(
        (&last["type"], &last["limits"]["primary"]["used_percent"]),
        (
            &Value::from("response.rate_limits.updated"),
            &Value::from(3)
        )
    );
    assert_eq!(
        events(Reply::default(), deltas()).last().unwrap()["type"],
        "response.completed"
    );
}

/// Checks that an end that waits for the store can be written again with another outcome, and is not lost.
#[test]
fn an_end_is_written_again_as_it_was() {
    let mut echo = Echo::default();
    echo.keep("conversation", Bytes::from_static(br#"{"id":"conv_1"}"#));
    let form = StreamForm {
        framing: EventFraming::Lines,
        awaits_store: true,
        ..StreamForm::default()
    };
    let dialect = ResponsesDialect::CodexLegacy;
    let reply = Reply {
        stream: true,
        form,
        dialect,
        echo,
        ..Reply::default()
    };
    let mut response = Response::new(reply, &Stamp::default());
    let limits = Event::Limits(Raw::of(r#"{"primary":{"used_percent":3}}"#).unwrap());
    let mut out = OutputBuffer::default();
    let head = Event::Head(Head {
        id: Some(Text::plain("resp_1")),
        ..Head::default()
    });
    for event in [head, limits, content("a")].into_iter().chain(stop()) {
        response.event(event, &mut out);
    }
    assert!(
        !String::from_utf8(out.to_vec())
            .unwrap()
            .contains("response.completed")
    );
    let mut end = |persisted| {
        let mut end = OutputBuffer::default();
        response.write_end(persisted, &mut end);
        String::from_utf8(end.to_vec()).unwrap()
    };
    let first = end(Persisted::ALL);
    assert_eq!(
        (first.lines().count(), end(Persisted::ALL)),
        (2, first.clone())
    );
    let without = end(Persisted {
        conversation: false,
        ..Persisted::ALL
    });
    assert_eq!(
        without,
        first.replace(r#","conversation":{"id":"conv_1"}"#, "")
    );
    let unstored = end(Persisted {
        response: false,
        conversation: false,
    });
    assert_eq!(
        unstored,
        without.replace(r#""store":true"#, r#""store":false"#)
    );
    let finished = response.finished().unwrap();
    assert_eq!(
        (&*finished.id, finished.status, finished.stored),
        ("resp_1", "completed", false)
    );
    assert_eq!(finished.items.len(), 1);
}

#[test]
fn a_summary_of_the_engine_is_not_mixed_with_the_text() {
    let both = || Reply {
        reasoning: ResponsesReasoning::Both,
        ..Reply::default()
    };
    let deltas = [delta(Delta::Summary(Text::plain("s"))), reasoning("t")]
        .into_iter()
        .chain(stop());
    let told = events(both(), deltas.collect());
    assert_eq!(output(&told)[0]["summary"][0]["text"], "s");
    assert_eq!(output(&told)[0]["content"][0]["text"], "t");
    let told = events(
        both(),
        std::iter::once(reasoning("t")).chain(stop()).collect(),
    );
    assert_eq!(
        output(&told)[0]["summary"][0]["text"],
        "t",
        "a copy where the engine has none"
    );
}

#[test]
fn sealed_reasoning_of_the_engine() {
    let none = || Reply {
        reasoning: ResponsesReasoning::None,
        ..Reply::default()
    };
    let kinds = |told: &[Value]| -> Vec<String> {
        output(told)
            .iter()
            .map(|item| item["type"].as_str().unwrap().to_owned())
            .collect()
    };
    let told = |reply, first: Vec<Event<'static>>| {
        events(reply, first.into_iter().chain(stop()).collect())
    };
    // Without text it has its own item, unless the operator wants none or there is none to add it to.
    assert_eq!(
        kinds(&told(Reply::default(), vec![sealed(false), content("a")])),
        ["reasoning", "message"]
    );
    assert_eq!(
        kinds(&told(none(), vec![sealed(false), content("a")])),
        ["message"]
    );
    assert_eq!(
        kinds(&told(Reply::default(), vec![content("a"), sealed(true)])),
        ["message"]
    );
    // After the item's end it does not interrupt the text that follows.
    let late = told(
        Reply::default(),
        vec![reasoning("t"), content("a"), sealed(true), content("b")],
    );
    assert_eq!(kinds(&late), ["reasoning", "message"]);
    assert_eq!(output(&late)[1]["content"][0]["text"], "ab");
    assert_eq!(output(&late)[0]["encrypted_content"], "s");
    // The text that it belongs to goes on, and ends with its item.
    let early = told(
        Reply::default(),
        vec![
            sealed(false),
            reasoning("t"),
            delta(Delta::Done {
                slot: None,
                cut: false,
            }),
        ],
    );
    assert_eq!(kinds(&early), ["reasoning"]);
    assert_eq!(output(&early)[0]["content"][0]["text"], "t");
}

/// Checks that a failed answer has the sealed reasoning that its done events had, and no other.
#[test]
fn sealed_reasoning_of_a_failed_answer() {
    for (deltas, expected) in [
        (
            vec![reasoning("t"), sealed(false), content("a")],
            Value::from("s"),
        ),
        (
            vec![reasoning("t"), content("a"), sealed(true)],
            Value::Null,
        ),
    ] {
        let failure = Event::Fail(Fault::Incomplete.into());
        let told = events(
            Reply::default(),
            deltas.into_iter().chain([failure]).collect(),
        );
        assert_eq!(told.last().unwrap()["type"], "response.failed");
        assert_eq!(output(&told)[0]["encrypted_content"], expected);
    }
}

#[test]
fn annotations_are_numbered() {
    let note = |json| delta(Delta::Annotation(Raw::of(json).unwrap()));
    let deltas = [
        content("a"),
        note(r#"{"n":1}"#),
        note(r#"{"n":2}"#),
        note(r#"{"n":3}"#),
    ];
    let told = events(Reply::default(), deltas.into_iter().chain(stop()).collect());
    let numbers = told.iter().filter(|event| !event["annotation"].is_null());
    let numbers: Vec<_> = numbers
        .map(|event| event["annotation_index"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(
        output(&told)[0]["content"][0]["annotations"].to_string(),
        r#"[{"n":1},{"n":2},{"n":3}]"#
    );
}

#[test]
fn log_probabilities_go_with_their_text() {
    let entry = |token: &'static str| TokenLogprob {
        token: Text::plain(token),
        logprob: Raw::of("-1"),
        bytes: Raw::of("[97]"),
        ..TokenLogprob::default()
    };
    let logprobs = Logprobs::Tokens {
        content: Some(vec![entry("a"), entry("b")]),
        refusal: None,
    };
    let extras = FrameExtras {
        logprobs: Some(logprobs),
        ..FrameExtras::default()
    };
    let text = Event::Delta {
        choice: 0,
        delta: Delta::Content(Text::plain("ab")),
        extras,
    };
    let told = events(
        Reply {
            logprobs: true,
            ..Reply::default()
        },
        std::iter::once(text).chain(stop()).collect(),
    );
    let of = |kind: &str| {
        told.iter().find(|event| event["type"] == kind).unwrap()["logprobs"].to_string()
    };
    let plain = r#"[{"logprob":-1,"token":"a","top_logprobs":[]},{"logprob":-1,"token":"b","top_logprobs":[]}]"#;
    let sorted = |json: &str| serde_json::from_str::<Value>(json).unwrap();
    assert_eq!(sorted(&of("response.output_text.delta")), sorted(plain));
    assert_eq!(sorted(&of("response.output_text.done")), sorted(plain));
    assert_eq!(
        output(&told)[0]["content"][0]["logprobs"][1]["bytes"][0],
        97
    );
}

#[test]
fn foreign_items_keep_their_status_and_their_events() {
    use ItemStage::{Added, Done, Told, Whole};
    const CALL: &str = "mcp_call";
    let told = events(
        Reply::default(),
        [
            foreign(CALL, Some(0), Added, r#"{"name":"one"}"#),
            foreign(CALL, Some(1), Added, r#"{"name":"two"}"#),
            foreign("response.mcp_call.failed", Some(0), Told, "{}"),
            foreign("response.mcp_call.failed", Some(7), Told, "{}"),
            foreign(CALL, Some(0), Done, r#"{"name":"one","status":"failed"}"#),
            // Events of an item that has ended, or of none.
            foreign("response.mcp_call.failed", Some(0), Told, "{}"),
            foreign("response.mcp_call.failed", None, Told, "{}"),
            foreign("odd_call", None, Whole, r#"{"status":"calling"}"#),
            foreign("response.mcp_call.failed", None, Told, "{}"),
            content("a"),
            delta(Delta::Done {
                slot: None,
                cut: false,
            }),
        ]
        .into_iter()
        .chain(stop())
        .collect(),
    );
    assert_eq!(
        types(&told).join(" "),
        "output_item.added output_item.added mcp_call.failed output_item.done output_item.added \
         output_item.done output_item.added content_part.added output_text.delta output_text.done \
         content_part.done output_item.done output_item.done"
    );
    let failed = told
        .iter()
        .find(|event| event["type"] == "response.mcp_call.failed")
        .unwrap();
    assert_eq!(failed["output_index"], 0);
    let statuses: Vec<_> = output(&told)
        .iter()
        .map(|item| item["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["failed", "completed", "completed", "completed"]);
}

#[test]
fn a_stream_pauses_for_the_outputs_of_its_calls() {
    let start = || {
        delta(Delta::ToolStart {
            slot: 0,
            id: "call_1",
            name: "f",
            namespace: None,
            kind: ToolKind::Function,
        })
    };
    let pausing = || Reply {
        form: StreamForm {
            pauses: true,
            ..StreamForm::default()
        },
        ..Reply::default()
    };
    let last = |told: &[Value]| told.last().unwrap()["type"].as_str().unwrap().to_owned();
    let called = || std::iter::once(start()).chain(stop()).collect();
    assert_eq!(
        last(&events(pausing(), called())),
        "response.output_item.done"
    );
    assert_eq!(
        last(&events(Reply::default(), called())),
        "response.completed"
    );
    let said = std::iter::once(content("a")).chain(stop()).collect();
    assert_eq!(last(&events(pausing(), said)), "response.completed");
}
