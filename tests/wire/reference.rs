//! The slow implementation compared with the worked examples of the wire format.

use crate::seeded::seeded;
use crate::slow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::slow::json::Json;
use crate::slow::{Answer, Case};
use proptest::prelude::*;
use serde_json::Value;

/// Worked example of the wire format: its name, its text with the key order kept, and its parsed value.
struct Vector {
    name: String,
    text: Json,
    value: Value,
}

#[test]
fn worked_examples() {
    let vectors = vectors();
    assert!(!vectors.is_empty(), "no worked examples found");
    for vector in &vectors {
        let case = vector.case();
        let answer = slow::rewrite(&case);
        vector.check(&answer, "once");
        if vector.value["idempotent"] == Value::Bool(true) {
            vector.check(&slow::rewrite(&again(&case, &answer)), "again");
        }
    }
}

/// Returns the case in which an engine sends this answer.
fn again(case: &Case, answer: &Answer) -> Case {
    Case {
        upstream_status: answer.status,
        input: answer.body.clone(),
        ..case.clone()
    }
}

fn vectors() -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/vectors");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let mut vectors = Vec::new();
    for path in paths.iter().filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    }) {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = Json::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        let value = text.value();
        let spoken = |key: &str| value[key] == "chat.completions" || value[key] == "completions";
        // The slow implementation does not parse reasoning tags or Harmony in text.
        let parsed_text = name.starts_with("chat-09") || name.starts_with("chat-12");
        if spoken("client_api") && spoken("upstream_api") && !parsed_text {
            vectors.push(Vector { name, text, value });
        }
    }
    vectors
}

impl Vector {
    fn case(&self) -> Case {
        let word = |key: &str| self.value[key].as_str().unwrap().to_owned();
        let headers = self.value["upstream_headers"].as_object().unwrap();
        let mut options = self.value["options"].clone();
        // Vectors use one name for reasoning, unless they set another (wire-format 9).
        if options["reasoning_field"].is_null() {
            options["reasoning_field"] = "reasoning_content".into();
        }
        Case {
            client_api: word("client_api"),
            upstream_api: word("upstream_api"),
            request: self.value["request"].clone(),
            options,
            upstream_status: self.value["upstream_status"].as_u64().unwrap() as u16,
            upstream_headers: headers
                .iter()
                .map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned()))
                .collect(),
            input: word("input").into_bytes(),
            eof_reset: word("upstream_eof") == "reset",
            now: self.value["options"]["test_now"].as_u64().unwrap_or(0),
        }
    }

    fn check(&self, answer: &Answer, round: &str) {
        let name = &self.name;
        let body = String::from_utf8(answer.body.clone()).unwrap();
        assert_eq!(
            Some(u64::from(answer.status)),
            self.value["expected_status"].as_u64(),
            "{name} {round}: {body}"
        );
        let headers: BTreeMap<String, String> = match self.value["expected_headers"].as_object() {
            Some(headers) => headers
                .iter()
                .map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned()))
                .collect(),
            None => BTreeMap::new(),
        };
        assert_eq!(answer.headers, headers, "{name} {round}");
        if let Some(expected) = self.text.get("expected_body") {
            assert_eq!(body, expected.compact(), "{name} {round}");
        } else {
            let expected: Vec<&str> = self.value["expected"]
                .as_array()
                .unwrap()
                .iter()
                .map(|line| line.as_str().unwrap())
                .collect();
            let lines: Vec<&str> = body.strip_suffix('\n').unwrap().split('\n').collect();
            assert_eq!(lines, expected, "{name} {round}");
        }
    }
}

proptest! {
    #![proptest_config(seeded(256))]

    /// Every generated stream is answered, and a successful answer is unchanged when it is read again.
    #[test]
    fn random_cases(case in slow::random::case()) {
        let answer = slow::rewrite(&case);
        let text = String::from_utf8(answer.body.clone()).unwrap();
        let failed = answer.status != 200 || text.contains("event: error\n");
        let streams = case.request["stream"] == Value::Bool(true);
        if !failed {
            let mut second = again(&case, &answer);
            let kind = if streams { "text/event-stream" } else { "application/json" };
            second.upstream_headers.insert("content-type".to_owned(), kind.to_owned());
            prop_assert_eq!(text, String::from_utf8(slow::rewrite(&second).body).unwrap());
        }
    }
}
