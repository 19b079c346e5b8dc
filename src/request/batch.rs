//! Requests for batches, and the lines of their input (wire-format 4.1).
//!
//! Takes: the body of a request, or a line. Gives: what it asks for, or the failure that names the parameter.
//! Never: looks into the body of a line further than it must; the line's own request is checked when it runs.

use super::check::Checked;
use super::invalid;
use super::refusals::missing;
use super::rules::Rules;
use crate::json::{self, Members, Raw, Text, compacted};
use crate::wire::fault::Failure;
use std::borrow::Cow;

const KNOWN: &[&str] = &[
    "input_file_id",
    "endpoint",
    "completion_window",
    "metadata",
    "output_expires_after",
];

/// Paths that the lines of a batch may request.
const ENDPOINTS: [&str; 4] = [
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/completions",
    "/v1/embeddings",
];

/// Longest `custom_id`, in bytes.
const LONGEST_ID: usize = 512;

/// Range of `seconds` in `expires_after` (an hour to 30 days).
const EXPIRY: std::ops::RangeInclusive<u64> = 3_600..=2_592_000;

/// Request to create a batch.
#[derive(Debug, PartialEq, Eq)]
pub struct BatchRequest {
    /// Id of the input file.
    pub input: String,
    /// Path that its lines request.
    pub endpoint: &'static str,
    /// Metadata as a JSON object, if there is any.
    pub metadata: Option<String>,
    /// Seconds for which the results are kept, if the client says so.
    pub results_expire_after: Option<u64>,
}

impl BatchRequest {
    /// Reads the request to create a batch.
    ///
    /// # Errors
    /// Fails if the body is no JSON object, or a parameter is missing or invalid.
    pub fn read(body: &[u8], rules: &Rules) -> Result<Self, Failure> {
        let from = Checked::of(body, KNOWN, rules)?;
        let text = |key: &str| match from.get(key) {
            None => Err(missing(key)),
            Some(field) => {
                let text = Text::of(field.value).map(|text| text.decoded().into_owned());
                text.ok_or_else(|| invalid(key, "it must be a string"))
            }
        };
        let (input, endpoint) = (text("input_file_id")?, text("endpoint")?);
        let known = ENDPOINTS.into_iter().find(|known| *known == endpoint);
        let endpoint = known.ok_or_else(|| {
            invalid(
                "endpoint",
                &format!("it must be one of {}", ENDPOINTS.join(", ")),
            )
        })?;
        if text("completion_window")? != "24h" {
            return Err(invalid("completion_window", "it must be 24h"));
        }
        from.metadata()?;
        let results_expire_after = match from.get("output_expires_after") {
            None => None,
            Some(field) => {
                let members = Members::of(field.value.get()).unwrap_or_default();
                let anchor = members
                    .get("anchor")
                    .and_then(Text::of)
                    .map(|text| text.decoded());
                let seconds = members.get("seconds").and_then(json::integer);
                Some(expiry("output_expires_after", anchor.as_deref(), seconds)?)
            }
        };
        let metadata = from.get("metadata").map(|field| compacted(field.value));
        Ok(Self {
            input,
            endpoint,
            metadata,
            results_expire_after,
        })
    }
}

/// Checks `expires_after`, and returns the seconds.
///
/// # Errors
/// Fails if the anchor is not `created_at`, or the seconds are out of range.
pub fn expiry(param: &str, anchor: Option<&str>, seconds: Option<u64>) -> Result<u64, Failure> {
    if anchor != Some("created_at") {
        return Err(invalid(format!("{param}.anchor"), "it must be created_at"));
    }
    let seconds = seconds.filter(|seconds| EXPIRY.contains(seconds));
    seconds.ok_or_else(|| {
        invalid(
            format!("{param}.seconds"),
            "it must be from 3600 to 2592000",
        )
    })
}

/// Line of a batch's input.
#[derive(Debug, PartialEq, Eq)]
pub struct BatchLine<'a> {
    /// Client's name for the line, unique in its file.
    pub custom_id: Cow<'a, str>,
    /// Model that its request names; empty if it names none.
    pub model: Cow<'a, str>,
    /// Body of its request.
    pub body: &'a str,
}

/// Reason why a line cannot be run.
#[derive(Debug, PartialEq, Eq)]
pub struct LineProblem {
    /// Code of the error.
    pub code: &'static str,
    /// Message of the error, without text of the client.
    pub message: String,
    /// Field at fault, if one is.
    pub param: Option<&'static str>,
}

impl<'a> BatchLine<'a> {
    /// Reads a line of the input for a batch of this path.
    ///
    /// # Errors
    /// Fails if the line is no JSON object, or a field is missing or invalid.
    pub fn read(line: &'a str, endpoint: &str) -> Result<Self, LineProblem> {
        let members = Members::of(line).ok_or_else(|| LineProblem {
            code: "invalid_json_line",
            message: "This line is not a JSON object.".to_owned(),
            param: None,
        })?;
        let text = |key: &'static str| match members.get(key).filter(|value| *value != Raw::NULL) {
            None => Err(problem("missing_required_parameter", key, "is missing")),
            Some(value) => Text::of(value)
                .map(|text| text.decoded())
                .ok_or_else(|| problem("invalid_type", key, "must be a string")),
        };
        let custom_id = text("custom_id")?;
        // JSON allows one half of a surrogate pair, which UTF-8 does not: the client would not find its line again.
        let is_whole = || {
            members
                .get("custom_id")
                .and_then(Text::of)
                .and_then(|id| id.characters())
                .is_some()
        };
        if custom_id.contains(char::REPLACEMENT_CHARACTER) && !is_whole() {
            return Err(problem(
                "invalid_value",
                "custom_id",
                "must be Unicode, without lone surrogates",
            ));
        }
        if custom_id.is_empty() || custom_id.len() > LONGEST_ID {
            return Err(problem(
                "invalid_value",
                "custom_id",
                "must have from 1 to 512 bytes",
            ));
        }
        if text("method")? != "POST" {
            return Err(problem("invalid_method", "method", "must be POST"));
        }
        if text("url")? != endpoint {
            return Err(problem(
                "invalid_url",
                "url",
                "must be the endpoint of the batch",
            ));
        }
        let body = members
            .get("body")
            .map(Raw::get)
            .filter(|body| body.starts_with('{'));
        let body =
            body.ok_or_else(|| problem("missing_required_parameter", "body", "must be an object"))?;
        let request = Members::of(body)
            .ok_or_else(|| problem("invalid_json_line", "body", "is not a JSON object"))?;
        // A stream has no place on a line, and a background response would escape the limits of the batch.
        for key in ["stream", "background"] {
            if request.get(key).is_some_and(|value| value.get() == "true") {
                let message = format!("The body of a line may not have \"{key}\": true.");
                return Err(LineProblem {
                    code: "invalid_value",
                    message,
                    param: Some("body"),
                });
            }
        }
        let model = request
            .get("model")
            .and_then(Text::of)
            .map(|text| text.decoded())
            .unwrap_or_default();
        Ok(Self {
            custom_id,
            model,
            body,
        })
    }
}

fn problem(code: &'static str, key: &'static str, what: &str) -> LineProblem {
    LineProblem {
        code,
        message: format!("The field '{key}' {what}."),
        param: Some(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules::ANSWERED;

    #[test]
    fn requests_for_batches_are_read() {
        let body =
            br#"{"input_file_id":"file-1","endpoint":"/v1/embeddings","completion_window":"24h",
            "metadata":{"a" : "b"},"output_expires_after":{"anchor":"created_at","seconds":3600}}"#;
        let read = BatchRequest::read(body, &RULES).unwrap();
        let metadata = Some(r#"{"a":"b"}"#.to_owned());
        let expected = BatchRequest {
            input: "file-1".to_owned(),
            endpoint: "/v1/embeddings",
            metadata,
            results_expire_after: Some(3_600),
        };
        assert_eq!(read, expected);
        for (body, param) in [
            (r#"{}"#, "input_file_id"),
            (r#"{"input_file_id":1}"#, "input_file_id"),
            (r#"{"input_file_id":"f"}"#, "endpoint"),
            (
                r#"{"input_file_id":"f","endpoint":"/v1/models"}"#,
                "endpoint",
            ),
            (
                r#"{"input_file_id":"f","endpoint":"/v1/responses"}"#,
                "completion_window",
            ),
            (
                r#"{"input_file_id":"f","endpoint":"/v1/responses","completion_window":"1h"}"#,
                "completion_window",
            ),
            (
                r#"{"input_file_id":"f","endpoint":"/v1/responses","completion_window":"24h","metadata":{"a":1}}"#,
                "metadata.a",
            ),
            (
                r#"{"input_file_id":"f","endpoint":"/v1/responses","completion_window":"24h","output_expires_after":{"anchor":"created_at","seconds":1}}"#,
                "output_expires_after.seconds",
            ),
        ] {
            let failure = BatchRequest::read(body.as_bytes(), &RULES).unwrap_err();
            assert_eq!(failure.param.as_deref(), Some(param), "{body}");
        }
    }

    #[test]
    fn lines_are_read_and_what_is_wrong_is_named() {
        let line = r#"{"custom_id":"a","method":"POST","url":"/v1/responses","body":{"model":"m","input":"x"}}"#;
        let read = BatchLine::read(line, "/v1/responses").unwrap();
        assert_eq!(
            (&*read.custom_id, &*read.model, read.body),
            ("a", "m", r#"{"model":"m","input":"x"}"#)
        );
        for (line, code) in [
            ("", "invalid_json_line"),
            ("[]", "invalid_json_line"),
            ("{", "invalid_json_line"),
            (r#"{"method":"POST"}"#, "missing_required_parameter"),
            (r#"{"custom_id":1}"#, "invalid_type"),
            (r#"{"custom_id":""}"#, "invalid_value"),
            (r#"{"custom_id":"a\ud800"}"#, "invalid_value"),
            (
                r#"{"custom_id":"a\ufffd","method":"GET"}"#,
                "invalid_method",
            ),
            (r#"{"custom_id":"a","method":"GET"}"#, "invalid_method"),
            (
                r#"{"custom_id":"a","method":"POST","url":"/v1/models"}"#,
                "invalid_url",
            ),
            (
                r#"{"custom_id":"a","method":"POST","url":"/v1/responses"}"#,
                "missing_required_parameter",
            ),
            (
                r#"{"custom_id":"a","method":"POST","url":"/v1/responses","body":{"stream":true}}"#,
                "invalid_value",
            ),
        ] {
            assert_eq!(
                BatchLine::read(line, "/v1/responses").unwrap_err().code,
                code,
                "{line}"
            );
        }
    }
}
