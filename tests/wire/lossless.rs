//! Content is neither lost, duplicated, invented nor reordered: the texts, calls and logprobs of each choice are
//! the same in the engine's bytes and in the canonical ones, both read naively (property P1; wire-format 1.1), and
//! the same whether streamed or whole (property P9).

use crate::canonical::said::read;
use crate::cases::{Case, Cut, captures, vectors};
use crate::laws::equivalence::both_forms;
use crate::laws::lossless::check;
use crate::random;
use crate::seeded::seeded;
use proptest::prelude::*;
use serde_json::Value;

/// Returns all cases except those whose text is parsed into something else, which harmony.rs tests, and those that
/// allow one call only.
fn cases() -> impl Iterator<Item = Case> {
    let captures = captures().into_iter().map(|fixture| fixture.case);
    let vectors = vectors().into_iter().map(|(case, _)| case);
    captures
        .chain(vectors)
        .filter(|case| !case.parses_text() && !case.wants_one_call())
        .map(Case::unparsed)
}

#[test]
fn captures_and_vectors() {
    let cases: Vec<Case> = cases().collect();
    let wrong: Vec<String> = cases.iter().filter_map(|case| check(case).err()).collect();
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The same answers, collected for a client without a stream, and streamed to a client that wants one.
#[test]
fn nothing_is_lost_in_the_other_form() {
    let mut wrong = Vec::new();
    for mut case in cases() {
        let stream = !case.streams();
        let request = case.request.as_object_mut().unwrap();
        request.insert("stream".to_owned(), Value::Bool(stream));
        request.remove("stream_options");
        wrong.extend(check(&case).err());
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn one_answer_in_both_forms() {
    let wrong: Vec<String> = cases().filter_map(|case| both_forms(&case).err()).collect();
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
}

proptest! {
    #![proptest_config(seeded(8_000))]

    #[test]
    fn random_answers(case in random::case()) {
        check(&case).map_err(TestCaseError::fail)?;
    }
    /// `promote_reasoning` moves the reasoning of a choice without text into its text, completely or not at all.
    #[test]
    fn promoted_text_is_the_reasoning_as_it_was(case in random::case()) {
        let told = |promotes: bool| {
            let mut case = case.clone();
            case.options["promote_reasoning"] = promotes.into();
            case.options["reasoning_field"] = "reasoning_content".into();
            let answer = case.run(&Cut::Whole);
            (answer.status, read(case.api, answer.body.as_bytes(), case.streams(), false))
        };
        let ((status, mut plain), (promoted_status, promoted)) = (told(false), told(true));
        prop_assert_eq!(status, promoted_status);
        prop_assert_eq!(plain.choices.len(), promoted.choices.len());
        for (index, promoted) in &promoted.choices {
            let plain = plain.choices.get_mut(index).expect("the same choices");
            if plain != promoted {
                prop_assert!(!case.events && plain.content.is_empty() && plain.calls.is_empty());
                plain.content = std::mem::take(&mut plain.reasoning);
                prop_assert_eq!(&*plain, promoted);
            }
        }
    }
    #[test]
    fn random_answers_in_both_forms(case in random::case()) {
        both_forms(&case).map_err(TestCaseError::fail)?;
    }
}
