//! Nothing is lost, doubled, made up or reordered: the texts, calls and logprobs of each choice are the same in the
//! engine's bytes and in the canonical ones, both read naively (property P1; wire-format 1.1).
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

mod canonical;
mod cases;
#[path = "laws/lossless.rs"]
mod law;
mod random;
mod seeded;
mod slow;

use cases::{Case, captures, vectors};
use law::check;
use proptest::prelude::*;
use seeded::seeded;
use serde_json::Value;

/// All there is, but for text that becomes something else: harmony.rs looks at that.
fn cases() -> impl Iterator<Item = Case> {
    let captures = captures().into_iter().map(|fixture| fixture.case);
    let vectors = vectors().into_iter().map(|(case, _)| case);
    captures.chain(vectors).filter(|case| !case.parses_text())
}

#[test]
fn captures_and_vectors() {
    let cases: Vec<Case> = cases().collect();
    let wrong: Vec<String> = cases.iter().filter_map(|case| check(case).err()).collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// The same answers, collected for a client that did not ask for a stream, and streamed to one that did.
#[test]
fn the_other_form() {
    let mut wrong = Vec::new();
    for mut case in cases() {
        let stream = !case.streams();
        let request = case.request.as_object_mut().unwrap();
        request.insert("stream".to_owned(), Value::Bool(stream));
        request.remove("stream_options");
        wrong.extend(check(&case).err());
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

proptest! {
    #![proptest_config(seeded(8_000))]

    #[test]
    fn random_answers(case in random::case()) {
        check(&case).map_err(TestCaseError::fail)?;
    }
}
