//! Comparison of two answers: how their shapes differ, apart from their words.
//!
//! Takes: recorded exchanges, or bodies alone. Gives: a [`Comparison`]. Never: counts pieces; two answers of one
//! shape have their texts in pieces of any number.

mod align;
mod answer;
mod field;
mod finding;
mod run;
mod source;
mod stable;
mod words;

pub use answer::{Answer, Form, Head, Mistake};
pub use finding::{Difference, Finding, Frames};
pub use source::{Compared, Pair, Unreadable, load};
pub use words::{Topic, WordDifference};

use run::Run;
use serde::Serialize;

/// Row of the alignment, as it is shown: a form of events, and where each side has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Aligned {
    /// Label of what the events say: `content`, `finish_reason`, `response.created`.
    pub says: String,
    /// Events of A; `None` if it has none there.
    pub a: Option<Span>,
    /// Events of B; `None` if it has none there.
    pub b: Option<Span>,
}

/// Events of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// First event, counted from 1.
    pub first: usize,
    /// Last event, counted from 1.
    pub last: usize,
    /// Number of events; less than the span if events of another form are between them.
    pub count: usize,
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Aligned events of both answers, in order.
    pub rows: Vec<Aligned>,
    /// Differences in shape.
    pub shape: Vec<Finding>,
    /// Differences in words.
    pub words: Vec<WordDifference>,
}

/// Compares two answers.
pub fn compare(a: &Answer, b: &Answer) -> Comparison {
    let rows = align::align(run::runs(&a.events), run::runs(&b.events));
    let shape = finding::findings(a, b, &rows);
    let words = words::differing(&a.events, &b.events);
    let span = |run: &Run| {
        let (first, last) = (run.events.first()?, run.events.last()?);
        Some(Span {
            first: first + 1,
            last: last + 1,
            count: run.events.len(),
        })
    };
    let rows = rows.iter().map(|row| {
        let says = |run: &Option<Run>| run.as_ref().map(|run| run.shape.label());
        let (one, two) = (says(&row.a), says(&row.b));
        let says = match (one, two) {
            (Some(one), Some(two)) if one != two => format!("{one} | {two}"),
            (one, two) => one.or(two).unwrap_or_default(),
        };
        Aligned {
            says,
            a: row.a.as_ref().and_then(span),
            b: row.b.as_ref().and_then(span),
        }
    });
    Comparison {
        rows: rows.collect(),
        shape,
        words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(chunks: &[&str]) -> Answer {
        let text: String = chunks
            .iter()
            .map(|data| format!("data: {data}\n\n"))
            .collect();
        Answer::read(Form::Events, text.as_bytes(), false, None).unwrap()
    }

    fn chunk(choice: &str) -> String {
        format!(r#"{{"choices":[{{"index":0,{choice}}}]}}"#)
    }

    /// Returns the differences in shape between two streams of choices.
    fn shape(a: &[&str], b: &[&str]) -> Vec<String> {
        let of = |choices: &[&str]| {
            let chunks: Vec<_> = choices
                .iter()
                .map(|choice| {
                    if choice.starts_with('"') {
                        chunk(choice)
                    } else {
                        (*choice).to_owned()
                    }
                })
                .collect();
            stream(&chunks.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let found = compare(&of(a), &of(b)).shape;
        found
            .iter()
            .map(|one| {
                let frames = |frames: Frames| {
                    frames
                        .first
                        .map_or(String::new(), |first| format!(" @{first}x{}", frames.count))
                };
                format!(
                    "{:?} {}: {}{} | {}{}",
                    one.kind,
                    one.path,
                    one.a,
                    frames(one.frames_a),
                    one.b,
                    frames(one.frames_b)
                )
            })
            .collect()
    }

    const TEXT: &str = r#""delta":{"content":"a"},"finish_reason":null"#;
    const FINISH: &str = r#""delta":{},"finish_reason":"stop""#;
    const USAGE: &str = r#"{"choices":[],"usage":{"total_tokens":1}}"#;

    #[test]
    fn the_number_of_pieces_is_no_difference() {
        assert_eq!(
            shape(
                &[TEXT, FINISH, "[DONE]"],
                &[TEXT, TEXT, TEXT, FINISH, "[DONE]"]
            ),
            [""; 0]
        );
    }

    #[test]
    fn each_kind_of_difference_is_told_once() {
        let merged = r#""delta":{"content":"a"},"finish_reason":"stop""#;
        let with_usage = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"total_tokens":1}}"#;
        for (a, b, expected) in [
            (
                &[TEXT, TEXT, FINISH][..],
                &[TEXT, merged][..],
                &["Together content + finish_reason: apart | together @2x1"][..],
            ),
            (
                &[TEXT, FINISH, USAGE],
                &[TEXT, with_usage],
                &["Together finish_reason + usage: apart | together @2x1"],
            ),
            (
                &[r#""delta":{"content":"a"},"token_ids":null"#],
                &[r#""delta":{"content":"a"},"matched_stop":null"#],
                &[
                    "Null choices[].matched_stop: missing @1x1 | null @1x1",
                    "Null choices[].token_ids: null @1x1 | missing @1x1",
                ],
            ),
            (
                &[r#""delta":{"reasoning":"a"}"#],
                &[r#""delta":{"reasoning_content":"a"}"#],
                &["Name choices[].delta.reasoning: reasoning @1x1 | reasoning_content @1x1"],
            ),
            (
                &[r#""delta":{},"finish_reason":"stop""#],
                &[r#""delta":{},"finish_reason":"tool_calls""#],
                &["Value choices[].finish_reason: stop @1x1 | tool_calls @1x1"],
            ),
            (
                &[r#""delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}"#],
                &[
                    r#""delta":{"tool_calls":[{"index":0,"id":null,"function":{"arguments":"{}"}}]}"#,
                ],
                &["Null choices[].delta.tool_calls[].id: missing @1x1 | null @1x1"],
            ),
            (
                &[TEXT, FINISH, "[DONE]"],
                &[TEXT, FINISH],
                &["Frames [DONE]: 1 frame @3x1 | missing"],
            ),
            (
                &[r#"{"usage":{"details":{"a":1,"b":2}}}"#],
                &[r#"{"usage":{"details":null}}"#],
                &["Type usage.details: object @1x1 | null @1x1"],
            ),
            (
                &[r#"{"type":"a"}"#, r#"{"type":"b"}"#],
                &[r#"{"type":"b"}"#, r#"{"type":"a"}"#],
                &["Order a: frame 1 @1x1 | frame 2 @2x1"],
            ),
            (
                &[r#"{"created":1}"#, r#"{"created":1}"#],
                &[r#"{"created":1}"#, r#"{"created":2}"#],
                &["Changes created: constant | 2 values"],
            ),
        ] {
            assert_eq!(shape(a, b), expected, "{a:?} {b:?}");
        }
    }

    #[test]
    fn a_field_in_some_events_of_a_run_is_told_with_these() {
        let other = r#""delta":{"content":"a"},"finish_reason":null,"logprobs":{}"#;
        assert_eq!(
            shape(&[TEXT, TEXT, TEXT], &[TEXT, other, other]),
            ["Field choices[].logprobs: missing @1x3 | object or missing @2x2"]
        );
    }

    #[test]
    fn status_body_and_end_are_of_the_whole_answer() {
        let head = |status, label: &str| {
            Some(Head {
                status,
                content_type: Some(label.to_owned()),
            })
        };
        let a = Answer::read(
            Form::Events,
            b"data: [DONE]\n\n",
            true,
            head(200, "text/event-stream"),
        )
        .unwrap();
        let b = Answer::read(Form::Json, b"{}", false, head(404, "application/json")).unwrap();
        let kinds: Vec<_> = compare(&a, &b).shape.iter().map(|one| one.kind).collect();
        assert_eq!(
            kinds,
            [
                Difference::Status,
                Difference::ContentType,
                Difference::Body,
                Difference::End
            ]
        );
    }

    #[test]
    fn names_of_events_are_compared() {
        let of = |text: &str| Answer::read(Form::Events, text.as_bytes(), false, None).unwrap();
        let (a, b) = (
            of("event: a\ndata: {\"type\":\"a\"}\n\n"),
            of("data: {\"type\":\"a\"}\n\n"),
        );
        let found = compare(&a, &b).shape;
        let shown: Vec<_> = found
            .iter()
            .map(|one| (one.kind, one.a.as_str(), one.b.as_str()))
            .collect();
        assert_eq!(shown, [(Difference::EventName, "a", "none")]);
    }
}
