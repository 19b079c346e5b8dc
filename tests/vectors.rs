//! The worked examples of the wire format, byte for byte, however their input is cut.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_types,
    missing_docs,
    unreachable_pub,
    reason = "tests"
)]

mod cases;

use cases::{Answer, Cut, vectors};
use serde_json::Value;

/// What the vector says, as one answer. A body is compared as JSON text with its key order.
fn expected(vector: &Value) -> Answer {
    let status = vector["expected_status"].as_u64().unwrap() as u16;
    let body = match vector["expected"].as_array() {
        Some(lines) => lines.iter().map(|line| format!("{}\n", line.as_str().unwrap())).collect(),
        None => String::new(),
    };
    Answer { status, body }
}

/// The JSON text of `expected_body` in the order of the vector's file: `Value` would sort it.
fn expected_body(name: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Vector<'a> {
        #[serde(borrow)]
        expected_body: &'a serde_json::value::RawValue,
    }
    let text =
        std::fs::read_to_string(cases::fixtures().join("vectors").join(format!("{name}.json"))).unwrap();
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
    let vectors = vectors();
    for (case, vector) in &vectors {
        let mut expected = expected(vector);
        if expected.body.is_empty() {
            expected.body = expected_body(&case.name);
        }
        let mut cuts = vec![Cut::Whole, Cut::Bytes];
        let sizes: Vec<Vec<usize>> =
            (1..=12).map(|seed| (1..40).map(|at| (at * seed * 2_654_435_761) % 97 + 1).collect()).collect();
        cuts.extend(sizes.iter().map(|sizes| Cut::Sizes(sizes)));
        if let Some(got) = cuts.iter().map(|cut| case.run(cut)).find(|got| *got != expected) {
            wrong.push(format!(
                "{}\n  expected {} {}\n  got      {} {}",
                case.name, expected.status, expected.body, got.status, got.body
            ));
        }
        if vector["idempotent"] == Value::Bool(true) {
            let again = case.again(&expected.body).run(&Cut::Whole);
            if again != expected {
                wrong.push(format!(
                    "{} again\n  expected {}\n  got      {}",
                    case.name, expected.body, again.body
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), vectors.len(), wrong.join("\n"));
}
