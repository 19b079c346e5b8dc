//! Frames of both sides of an exchange, aligned: nothing is lost or reordered, and each client frame is beside the
//! engine frame that made it.

use crate::cases::{Case, Cut, captures, message_vectors, response_vectors, responses, vectors};
use crate::random::case;
use bytes::Bytes;
use proptest::prelude::*;
use samewire::capture::RecordedPiece;
use samewire::config::Limits;
use samewire::engine::named;
use samewire::filter::{FilterParams, FrameRow, Side, explained_rows, relayed_rows};
use samewire::plan::Route;
use samewire::wire::options::{InvalidEvent, Options};
use samewire::wire::rule::Rule;
use samewire::wire::{AnswerId, Api, Ending, OutputBuffer, Stamp};
use std::sync::Arc;
use std::time::Duration;

fn params(case: &Case) -> FilterParams {
    let mut request = case.request.clone();
    request
        .as_object_mut()
        .map(|request| request.remove("request_id"));
    let options = serde_json::from_value(case.options.clone()).unwrap();
    let engine = named(&case.engine).or_else(|| named("auto")).unwrap();
    FilterParams {
        api: Some(case.upstream),
        to: Some(case.api),
        request: Some(Bytes::from(request.to_string())),
        route: Route::new(engine, Arc::new(options), 4 << 20),
        status: case.status,
        ending: case.ending,
        stamp: Stamp {
            id: AnswerId(2),
            now: case.now + 1,
            seed: 2,
            ..Stamp::default()
        },
        limits: Limits::default(),
        shown: false,
    }
}

fn sides<'a>(case: &'a Case, client: &'a str, pieces: &'a [RecordedPiece]) -> [Side<'a>; 2] {
    let is_stream =
        client.starts_with("data:") || client.starts_with("event:") || client.starts_with(':');
    [
        Side {
            body: &case.input,
            pieces: &[],
            is_stream: case.events,
            is_socket: false,
        },
        Side {
            body: client.as_bytes(),
            pieces,
            is_stream,
            is_socket: false,
        },
    ]
}

fn texts(rows: &[FrameRow<'_>]) -> (String, String) {
    let engine = rows
        .iter()
        .filter_map(|row| row.engine.as_ref())
        .map(|frame| &*frame.text);
    let client = rows
        .iter()
        .flat_map(|row| &row.client)
        .map(|frame| &*frame.text);
    (engine.collect(), client.collect())
}

fn explained<'a>(case: &'a Case, client: &'a str) -> Vec<FrameRow<'a>> {
    let [engine, to] = sides(case, client, &[]);
    let rows =
        explained_rows(params(case), &engine, &to).unwrap_or_else(|_| relayed_rows(&engine, &to));
    let own = String::from_utf8_lossy(&case.input);
    assert_eq!(
        texts(&rows),
        (own.into_owned(), client.to_owned()),
        "{}",
        case.name
    );
    rows
}

/// Compares the client frames of each row with the rewriter's output for the row's engine frame alone.
fn check(case: &Case) {
    let answer = case.run(&Cut::Whole);
    let rows = explained(case, &answer.body);
    let is_stream = case.events && case.streams() && answer.status == 200;
    if !is_stream
        || explained_rows(
            params(case),
            &sides(case, "", &[])[0],
            &sides(case, "", &[])[1],
        )
        .is_err()
    {
        return;
    }
    let mut rewriter = case.rewriter(false);
    for row in &rows {
        let Some(engine) = &row.engine else { continue };
        let mut out = OutputBuffer::default();
        rewriter.push(engine.text.as_bytes(), &mut out);
        let made = String::from_utf8(out.to_vec()).unwrap();
        let received: String = row.client.iter().map(|frame| &*frame.text).collect();
        match engine.text.ends_with("\n\n") {
            true => assert_eq!(received, made, "{} {}", case.name, engine.text),
            // The end of the answer may complete the last event.
            false => assert!(received.starts_with(&made), "{} {}", case.name, engine.text),
        }
    }
}

#[test]
fn fixtures_stand_beside_what_made_them() {
    let fixtures = captures()
        .into_iter()
        .chain(responses())
        .map(|fixture| fixture.case);
    let vectors = vectors()
        .into_iter()
        .chain(response_vectors())
        .map(|(case, _)| case);
    fixtures
        .chain(vectors)
        .filter(|case| String::from_utf8(case.input.clone()).is_ok())
        .for_each(|case| check(&case));
}

/// The signatures of thinking are not known to the second run: the events with them are additional ones.
#[test]
fn messages_lose_nothing() {
    for (case, _) in message_vectors() {
        let answer = case.run(&Cut::Whole);
        explained(&case, &answer.body);
    }
}

#[test]
fn changes_have_their_rules_and_rows() {
    let fixtures = captures();
    let fixture = fixtures
        .iter()
        .find(|fixture| fixture.folder.ends_with("vllm/reasoning"))
        .unwrap();
    let answer = fixture.case.run(&Cut::Whole);
    let rows = explained(&fixture.case, &answer.body);
    let with = |rule: &str| {
        rows.iter()
            .filter(|row| row.changes.iter().any(|change| change.rule == Some(rule)))
            .count()
    };
    assert_eq!(with("role_content"), 1);
    assert!(
        rows[0]
            .changes
            .iter()
            .any(|change| change.effect.to_string() == "dropped: content \"\""),
        "{:?}",
        rows[0]
    );
    assert!(with("reasoning_name") > 10, "one in each row");
    let renamed = rows
        .iter()
        .flat_map(|row| &row.changes)
        .find(|change| change.rule == Some("reasoning_name"));
    assert_eq!(
        renamed.unwrap().effect.to_string(),
        "reasoning → reasoning_content, reasoning"
    );
}

/// A refused event and those after it are not reported as held: no part of them comes later.
#[test]
fn a_refused_event_and_what_follows_are_told_as_such() {
    let chunk = |text: &str| {
        format!(
            "data: {{\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{text}}}}}]}}\n\n"
        )
    };
    let input = [
        chunk("\"a\""),
        chunk("5"),
        chunk("\"b\""),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    let route = |options| Route::new(named("vllm").unwrap(), Arc::new(options), 4 << 20);
    let params = |options| FilterParams {
        api: Some(Api::Chat),
        to: Some(Api::Chat),
        request: Some(Bytes::from_static(
            br#"{"model":"m","messages":[],"stream":true}"#,
        )),
        route: route(options),
        status: 200,
        ending: Ending::Clean,
        stamp: Stamp::default(),
        limits: Limits::default(),
        shown: false,
    };
    let engine = Side {
        body: input.as_bytes(),
        pieces: &[],
        is_stream: true,
        is_socket: false,
    };
    let nothing = Side {
        body: &[],
        pieces: &[],
        is_stream: true,
        is_socket: false,
    };
    let told = |options| -> Vec<Vec<(Option<&str>, String)>> {
        let rows = explained_rows(params(options), &engine, &nothing).unwrap();
        let of = |row: FrameRow<'_>| {
            row.changes
                .into_iter()
                .map(|change| (change.rule, change.effect.to_string()))
                .collect()
        };
        rows.into_iter().map(of).collect()
    };
    let after = (Some("after_done"), Rule::AfterDone.what().to_owned());
    let rows = told(Options::default());
    assert_eq!(
        rows[1],
        [(None, "refused: the answer failed here".to_owned())]
    );
    assert_eq!(rows[2..4], [vec![after.clone()], vec![after]]);
    // Where such events are skipped, the rest is read.
    let rows = told(Options {
        invalid_event: InvalidEvent::Skip,
        ..Options::default()
    });
    assert_eq!(
        rows[1],
        [(Some("invalid_skipped"), "dropped: content 5".to_owned())]
    );
    assert!(
        rows[2..]
            .iter()
            .flatten()
            .all(|(rule, _)| *rule != Some("after_done")),
        "{rows:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever the client received, and whenever: all of it is in the rows, in its order.
    #[test]
    fn nothing_is_lost(
        case in case(),
        edits in proptest::collection::vec((0_usize..200, 0_u8..3), 0..6),
        times in proptest::collection::vec(0_u64..50, 1..20),
        cut in 0_usize..10_000,
    ) {
        let mut case = case;
        case.input = String::from_utf8_lossy(&case.input).into_owned().into_bytes();
        let answer = case.run(&Cut::Whole).body;
        let mut frames: Vec<&str> = answer.split_inclusive("\n\n").collect();
        for (place, edit) in edits {
            let place = place % (frames.len() + 1);
            match edit {
                0 => frames.insert(place, ": keepalive\n\n"),
                1 if place < frames.len() => drop(frames.remove(place)),
                _ => frames.insert(place, "data: {\"more\":1}\n\n"),
            }
        }
        let client = frames.concat();
        let client = client.get(..cut.min(client.len())).unwrap_or(&client);
        let step = client.len() / times.len() + 1;
        let mut at = 0;
        let pieces: Vec<_> = times.iter().enumerate().map(|(index, more)| {
            at += more;
            RecordedPiece { at: Duration::from_millis(at), end: ((index + 1) * step).min(client.len()) }
        }).collect();
        let arrivals: Vec<_> = (1..=10).map(|index| RecordedPiece {
            at: Duration::from_millis(index as u64 * 20),
            end: case.input.len() * index / 10,
        }).collect();
        let [engine, to] = sides(&case, client, &pieces);
        let engine = Side { pieces: &arrivals, ..engine };
        let expected = (String::from_utf8_lossy(&case.input).into_owned(), client.to_owned());
        prop_assert_eq!(&texts(&relayed_rows(&engine, &to)), &expected);
        if let Ok(rows) = explained_rows(params(&case), &engine, &to) {
            prop_assert_eq!(&texts(&rows), &expected);
        }
    }
}
