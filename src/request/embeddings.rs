//! Embeddings requests: only looked at, never changed.

use super::check::Checked;
use super::fields;
use crate::wire::fault::Failure;
use bytes::Bytes;

const KNOWN: &[&str] = &["model", "input", "encoding_format", "dimensions", "user"];

/// Checks the request and gives the model it names.
///
/// # Errors
/// The first thing that is wrong, with its `param`.
pub fn check(body: &Bytes) -> Result<String, Failure> {
    let text = fields::text(body)?;
    let checked = Checked::new(text, fields::read(text, text)?, KNOWN)?;
    checked.required("model", true)?;
    checked.required("input", true)?;
    Ok(checked.string("model")?.unwrap_or_default())
}
