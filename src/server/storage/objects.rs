//! Objects in the store, as paths name them.

use crate::server::printable::printable_name;
use crate::wire::fault::{Failure, Fault};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// Returns the failure for an object that does not exist or belongs to another tenant; `what` is its kind.
pub(in crate::server) fn not_found(what: &str, id: &str) -> Failure {
    Failure::from(Fault::NotFound).with_message(format!(
        "{what} with id '{}' not found.",
        printable_name(id)
    ))
}

/// Returns a segment of a path without its percent-escapes.
pub(in crate::server) fn decoded(segment: &str) -> Cow<'_, str> {
    percent_decode_str(segment).decode_utf8_lossy()
}
