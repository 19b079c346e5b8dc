//! Rows of errors: statuses, and the shape of the body.

use super::answer::Answer;
use super::requests::SuiteRequest;
use super::row::{Row, rows};
use super::verdict::Verdict;
use crate::tree::View;

const SHAPE: &str = "the error has message and type as strings, param and code as strings or null";
const SCHEMA: &str = "openapi: ErrorResponse; wire 3.4";

/// Rows of errors.
pub(super) const ROWS: &[Row] = rows! {
    BadJson "error-bad-json" {
        "status", "a body that is no JSON gets 400", "wire 3.4", refused;
        "shape", SHAPE, SCHEMA, shape;
    }
    UnknownModel "error-unknown-model" {
        "status", "an unknown model gets 404", "wire 3.4", unknown_model_status;
        "shape", SHAPE, SCHEMA, unknown_model_shape;
    }
    WrongType "error-wrong-type" {
        "status", "a parameter of a wrong type gets 400", "wire 3.4", refused;
        "shape", SHAPE, SCHEMA, shape;
    }
    UnknownRoute "error-unknown-route" {
        "status", "an unknown route gets 404", "wire 3.4", missing;
        "shape", SHAPE, SCHEMA, shape;
    }
};

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
    let answers = answer.status == 200 && answer.whole.member("choices").is_array();
    answers.then(|| Verdict::Skipped("the server answers any name of a model".to_owned()))
}

fn missing(answer: &Answer) -> Verdict {
    Verdict::check(answer.status == 404, &answer.beginning())
}

fn shape(answer: &Answer) -> Verdict {
    let shapes = "/error/message text, /error/type text, /error/param string?, /error/code string?";
    Verdict::check(answer.whole.fits(shapes), &answer.beginning())
}
