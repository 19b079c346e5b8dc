//! Requests on conversations themselves: metadata and items, parsed and checked once (wire-format 4.1).
//!
//! Takes: a body. Gives: canonical metadata and items, or the failure that names the parameter. Remembers:
//! nothing.

use super::input;
use super::item::Item;
use crate::json::compacted;
use crate::request::Rules;
use crate::request::check::Checked;
use crate::request::object::RequestObject;
use crate::request::refusals::{invalid, missing};
use crate::wire::fault::Failure;
use std::collections::HashSet;

/// Maximum number of items that one request may add.
const MOST: usize = 20;

/// Fields that these requests may have.
const KNOWN: &[&str] = &["metadata", "items"];

/// Item to be added to a conversation: new, or a reference to a stored one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewItem {
    /// Item as the client wrote it.
    pub json: String,
    /// Id, if the client gave one.
    pub id: Option<String>,
    /// True if the item only refers to a stored item by its id.
    pub refers: bool,
}

/// Parses the creation of a conversation: metadata as a JSON object, and the first items. An empty body creates an
/// empty conversation.
///
/// # Errors
/// Fails on the first invalid field, with its `param`.
pub fn creation(body: &[u8], rules: &Rules) -> Result<(String, Vec<NewItem>), Failure> {
    if body.is_empty() {
        return Ok(("{}".to_owned(), Vec::new()));
    }
    let from = Checked::of(body, KNOWN, rules)?;
    Ok((metadata(&from)?, items(&from)?))
}

/// Parses an update: returns the metadata that replaces the conversation's.
///
/// # Errors
/// Fails like [`creation`], and if there is no metadata.
pub fn update(body: &[u8], rules: &Rules) -> Result<String, Failure> {
    let from = Checked::of(body, KNOWN, rules)?;
    match from.place("metadata") {
        Some(_) => metadata(&from),
        None => Err(missing("metadata")),
    }
}

/// Parses the addition of items to a conversation.
///
/// # Errors
/// Fails like [`creation`], and if there is no list of items.
pub fn addition(body: &[u8], rules: &Rules) -> Result<Vec<NewItem>, Failure> {
    let from = Checked::of(body, KNOWN, rules)?;
    from.required("items", true)?;
    items(&from)
}

fn metadata(from: &Checked<'_>) -> Result<String, Failure> {
    from.metadata()?;
    Ok(from
        .get("metadata")
        .map_or_else(|| "{}".to_owned(), |field| compacted(field.value)))
}

fn items(from: &Checked<'_>) -> Result<Vec<NewItem>, Failure> {
    let mut items = Vec::new();
    let mut seen = HashSet::new();
    for (at, raw) in from
        .list("items", MOST)?
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        let path = format!("items[{at}]");
        let refers = matches!(
            input::item(path.clone(), raw, from.rules)?,
            Item::Reference(_)
        );
        let item = RequestObject::of(path, raw)?;
        let id = item
            .text("id")?
            .map(|id| id.decoded().into_owned())
            .filter(|id| !id.is_empty());
        if id.as_ref().is_some_and(|id| !seen.insert(id.clone())) {
            return Err(invalid(item.path("id"), "another item has the same"));
        }
        items.push(NewItem {
            json: raw.get().to_owned(),
            id,
            refers,
        });
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules::ANSWERED;

    #[test]
    fn what_is_sent_is_read() {
        assert_eq!(creation(b"", &RULES), Ok(("{}".to_owned(), Vec::new())));
        assert_eq!(
            creation(br#"{"metadata":null,"items":null}"#, &RULES),
            Ok(("{}".to_owned(), Vec::new()))
        );
        let body = br#"{"metadata": {"a" : "\u0041"}, "items": [{"role":"user","content":"x"}, {"id":"msg_1"}, {"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"}], "more": 1}"#;
        let (metadata, items) = creation(body, &RULES).unwrap();
        assert_eq!(metadata, r#"{"a":"A"}"#);
        assert_eq!(items[0].json, r#"{"role":"user","content":"x"}"#);
        let told: Vec<_> = items
            .iter()
            .map(|item| (item.id.as_deref(), item.refers))
            .collect();
        assert_eq!(
            told,
            [(None, false), (Some("msg_1"), true), (Some("fc_1"), false)]
        );
        assert_eq!(addition(br#"{"items":[]}"#, &RULES), Ok(Vec::new()));
        assert_eq!(update(br#"{"metadata":null}"#, &RULES), Ok("{}".to_owned()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let told = |failure: Failure| {
            let code = failure.code.unwrap_or_default().into_owned();
            format!("{code} {}", failure.param.unwrap_or_default())
        };
        let pairs = |count| {
            (0..count)
                .map(|n| format!("\"k{n}\":\"v\""))
                .collect::<Vec<_>>()
                .join(",")
        };
        let sixteen = format!(r#"{{"metadata":{{{}}}}}"#, pairs(16));
        assert!(update(sixteen.as_bytes(), &RULES).is_ok());
        let long = |key: usize, value: usize| {
            format!(
                r#"{{"metadata":{{"{}":"{}"}}}}"#,
                "é".repeat(key),
                "é".repeat(value)
            )
        };
        assert!(update(long(64, 512).as_bytes(), &RULES).is_ok());
        for (body, wrong) in [
            ("[]".to_owned(), "invalid_json "),
            ("{".to_owned(), "invalid_json "),
            (
                r#"{"metadata":{},"metadata":{}}"#.to_owned(),
                "duplicate_key metadata",
            ),
            (r#"{"metadata":[]}"#.to_owned(), "invalid_value metadata"),
            (
                r#"{"metadata":{"a":1}}"#.to_owned(),
                "invalid_value metadata.a",
            ),
            (
                r#"{"metadata":{"a":"","a":""}}"#.to_owned(),
                "duplicate_key metadata.a",
            ),
            (
                format!(r#"{{"metadata":{{{}}}}}"#, pairs(17)),
                "invalid_value metadata",
            ),
            (long(65, 1), "invalid_value metadata"),
            (long(1, 513), "invalid_value metadata.é"),
            (r#"{"items":{}}"#.to_owned(), "invalid_value items"),
            (
                format!(r#"{{"items":[{}]}}"#, ["{}"; 21].join(",")),
                "invalid_value items",
            ),
            (r#"{"items":["x"]}"#.to_owned(), "invalid_value items[0]"),
            (
                r#"{"items":[{}]}"#.to_owned(),
                "missing_required_parameter items[0].type",
            ),
            (
                r#"{"items":[{"type":"magic"}]}"#.to_owned(),
                "invalid_value items[0].type",
            ),
            (
                r#"{"items":[{"role":"user"}]}"#.to_owned(),
                "missing_required_parameter items[0].content",
            ),
            (
                r#"{"items":[{"role":"user","content":"x","id":1}]}"#.to_owned(),
                "invalid_value items[0].id",
            ),
            (
                format!(
                    r#"{{"items":[{{"role":"user","content":"x","id":"{}"}}]}}"#,
                    "x".repeat(513)
                ),
                "invalid_value items[0].id",
            ),
            (
                r#"{"items":[{"role":"user","content":"x","id":"\u0000"}]}"#.to_owned(),
                "invalid_value items[0].id",
            ),
            (
                r#"{"items":[{"id":"a"},{"id":"b"},{"id":"a"}]}"#.to_owned(),
                "invalid_value items[2].id",
            ),
        ] {
            assert_eq!(
                told(creation(body.as_bytes(), &RULES).unwrap_err()),
                wrong,
                "{body}"
            );
        }
        assert_eq!(
            told(update(b"{}", &RULES).unwrap_err()),
            "missing_required_parameter metadata"
        );
        assert_eq!(
            told(addition(br#"{"items":null}"#, &RULES).unwrap_err()),
            "missing_required_parameter items"
        );
        assert_eq!(told(addition(b"", &RULES).unwrap_err()), "invalid_json ");
    }

    #[test]
    fn an_id_has_as_many_bytes_as_the_store_takes() {
        let body =
            |id: &str| format!(r#"{{"items":[{{"role":"user","content":"x","id":"{id}"}}]}}"#);
        let longest = "x".repeat(512);
        let (_, items) = creation(body(&longest).as_bytes(), &RULES).unwrap();
        assert_eq!(items[0].id.as_deref(), Some(longest.as_str()));
        assert!(creation(body(&"é".repeat(256)).as_bytes(), &RULES).is_ok());
        assert!(creation(body(&"é".repeat(257)).as_bytes(), &RULES).is_err());
    }
}
