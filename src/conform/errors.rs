//! Rows of errors: statuses, and the shape of the body.

use super::answer::Answer;
use super::ask::Ask;
use super::row::{Row, always};
use super::verdict::Verdict;
use crate::tree::Value;

const SHAPE: &str = "the error has message and type as strings, param and code as strings or null";
const SCHEMA: &str = "openapi: ErrorResponse; wire 3.4";

/// Rows of errors.
pub(super) const ROWS: &[Row] = &[
    always("error-bad-json-status", Ask::BadJson, "a body that is no JSON gets 400", "wire 3.4", refused),
    always("error-bad-json-shape", Ask::BadJson, SHAPE, SCHEMA, shape),
    always(
        "error-unknown-model-status",
        Ask::UnknownModel,
        "an unknown model gets 404",
        "wire 3.4",
        unknown_model_status,
    ),
    always("error-unknown-model-shape", Ask::UnknownModel, SHAPE, SCHEMA, unknown_model_shape),
    always(
        "error-wrong-type-status",
        Ask::WrongType,
        "a parameter of a wrong type gets 400",
        "wire 3.4",
        refused,
    ),
    always("error-wrong-type-shape", Ask::WrongType, SHAPE, SCHEMA, shape),
    always("error-unknown-route-status", Ask::UnknownRoute, "an unknown route gets 404", "wire 3.4", missing),
    always("error-unknown-route-shape", Ask::UnknownRoute, SHAPE, SCHEMA, shape),
];

fn refused(answer: &Answer) -> Verdict {
    Verdict::check(answer.status == 400, &answer.beginning())
}

fn unknown_model_status(answer: &Answer) -> Verdict {
    nameless(answer).unwrap_or_else(|| missing(answer))
}

fn unknown_model_shape(answer: &Answer) -> Verdict {
    nameless(answer).unwrap_or_else(|| shape(answer))
}

/// Returns that an answer cannot be judged if the server takes any name for its one model, as SGLang and llama.cpp do.
/// A proxy before such a server knows no unknown model either.
fn nameless(answer: &Answer) -> Option<Verdict> {
    let answers = answer.status == 200 && answer.whole.member("choices").as_list().is_some();
    answers.then(|| Verdict::Skipped("the server answers any name of a model".to_owned()))
}

fn missing(answer: &Answer) -> Verdict {
    Verdict::check(answer.status == 404, &answer.beginning())
}

fn shape(answer: &Answer) -> Verdict {
    let Some(error) = answer.whole.get("error") else { return Verdict::fail(&answer.beginning()) };
    let nullable = |key| error.get(key).is_some_and(|value: &Value| value.is_null() || value.is_text());
    let holds = !error.text("/message").is_empty()
        && !error.text("/type").is_empty()
        && nullable("param")
        && nullable("code");
    Verdict::check(holds, &answer.beginning())
}
