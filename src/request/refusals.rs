//! Failures shared by the readers of requests, each of which names its parameter.

use crate::wire::fault::{Failure, Fault};

/// Maximum number of characters of a client's word in an error message; also the limit on metadata keys.
pub(crate) const KEY: usize = 64;

/// Builds the failure for an invalid value: names the parameter and states what it must be.
pub(crate) fn invalid(param: impl Into<String>, must: &str) -> Failure {
    refused(Fault::InvalidValue, param.into(), must)
}

/// Builds a failure like [`invalid`] for another fault.
pub(super) fn refused(fault: Fault, param: String, must: &str) -> Failure {
    let message = format!("Invalid value for '{param}': {must}.");
    Failure::from(fault).with_message(message).with_param(param)
}

/// Builds the failure for a multipart form that cannot be read.
pub(crate) fn unreadable_form(why: &str) -> Failure {
    Failure::from(Fault::InvalidRequest)
        .with_message(format!("The multipart body cannot be read: {why}."))
}

pub(crate) fn missing(param: &str) -> Failure {
    let message = format!("Missing required parameter: '{param}'.");
    Failure::from(Fault::MissingParameter)
        .with_message(message)
        .with_param(param)
}

/// Builds the failure for a parameter that is not supported; `instead` says why, or what to send.
pub(crate) fn unsupported_parameter(param: impl Into<String>, instead: &str) -> Failure {
    let param = param.into();
    let message = format!("Unsupported parameter: '{param}'; {instead}.");
    Failure::from(Fault::UnsupportedParameter)
        .with_message(message)
        .with_param(param)
}

/// Builds the failure for a parameter value that this engine does not support.
pub(crate) fn unsupported_value(param: impl Into<String>, why: &str) -> Failure {
    let param = param.into();
    let message = format!("Unsupported value for '{param}': {why}.");
    Failure::from(Fault::UnsupportedValue)
        .with_message(message)
        .with_param(param)
}

/// Builds the failure for a body that is nested more than `levels` deep.
pub(super) fn too_deep(levels: usize) -> Failure {
    let message = format!("The request body is nested more than {levels} levels deep.");
    Failure::from(Fault::TooDeep).with_message(message)
}

/// Builds the failure for a field that the API does not name, where such fields are refused.
pub(crate) fn unknown(param: &str) -> Failure {
    let message = format!("Unknown parameter: '{}'.", shown(param));
    Failure::from(Fault::UnknownParameter)
        .with_message(message)
        .with_param(shown(param))
}

/// Returns the first characters of a client's word, as many as an error message repeats.
pub(crate) fn shown(word: &str) -> String {
    word.chars().take(KEY).collect()
}
