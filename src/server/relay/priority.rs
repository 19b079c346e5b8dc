//! Priority of a request at the engine: the field `priority`, as the client's key has it.
//!
//! Takes: the body of an engine's request. Gives: the same body with the key's priority in place of the client's own,
//! counted as this engine counts. Never: changes a body unless a key of the configuration has a priority.

use crate::auth::PriorityRule;
use crate::request::responses::PriorityOrder;
use crate::request::{EngineBody, fields};

/// Member of requests by which vLLM and SGLang order what waits.
const FIELD: &str = "priority";
/// Routes whose requests engines queue by priority.
const QUEUED: [&str; 4] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
];

/// Returns the body with the priority that the rule gives it. A body that is not a JSON object stays as it is.
pub(super) fn applied(
    rule: PriorityRule,
    order: PriorityOrder,
    path: &str,
    body: EngineBody,
) -> EngineBody {
    let (value, keeps_own) = match rule {
        PriorityRule::Client => return body,
        PriorityRule::Fixed(value) => (value, false),
        PriorityRule::Usual(value) => (value, true),
    };
    let value = match order {
        PriorityOrder::HighFirst => i64::from(value),
        PriorityOrder::LowFirst => -i64::from(value),
        PriorityOrder::Unread => 0,
    };
    let is_added = value != 0 && QUEUED.contains(&path);
    if keeps_own && !is_added {
        return body;
    }
    let whole = body.joined();
    let stripped = if keeps_own {
        None
    } else {
        fields::without(&whole, FIELD)
    };
    match (stripped, is_added) {
        (None, false) => body,
        (stripped, false) => stripped.unwrap_or(whole).into(),
        (stripped, true) => {
            let member = (FIELD.to_owned(), value.to_string());
            fields::with_defaults(stripped.unwrap_or(whole), &[member]).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_key_s_priority_replaces_that_of_the_client() {
        use PriorityOrder::{HighFirst, LowFirst, Unread};
        use PriorityRule::{Client, Fixed, Usual};
        let chat = "/v1/chat/completions";
        for (rule, order, path, body, expected) in [
            (
                Client,
                LowFirst,
                chat,
                r#"{"a":1,"priority":-9}"#,
                r#"{"a":1,"priority":-9}"#,
            ),
            (
                Fixed(5),
                LowFirst,
                chat,
                r#"{"a":1}"#,
                r#"{"a":1,"priority":-5}"#,
            ),
            (
                Fixed(5),
                HighFirst,
                chat,
                r#"{"a":1}"#,
                r#"{"a":1,"priority":5}"#,
            ),
            (
                Fixed(-5),
                LowFirst,
                chat,
                r#"{"priority":-9,"a":1}"#,
                r#"{"a":1,"priority":5}"#,
            ),
            (
                Fixed(5),
                Unread,
                chat,
                r#"{"priority":-9,"a":1}"#,
                r#"{"a":1}"#,
            ),
            (
                Fixed(0),
                LowFirst,
                chat,
                r#"{"a":1,"priority":-9}"#,
                r#"{"a":1}"#,
            ),
            (Fixed(0), LowFirst, chat, r#"{"a":1}"#, r#"{"a":1}"#),
            (
                Fixed(0),
                LowFirst,
                chat,
                r#"{"priorit\u0079":-9,"priority":-8,"a":1}"#,
                r#"{"a":1}"#,
            ),
            (
                Fixed(5),
                LowFirst,
                "/tokenize",
                r#"{"a":1,"priority":-9}"#,
                r#"{"a":1}"#,
            ),
            (
                Usual(5),
                LowFirst,
                chat,
                r#"{"a":1,"priority":-9}"#,
                r#"{"a":1,"priority":-9}"#,
            ),
            (
                Usual(5),
                LowFirst,
                chat,
                r#"{"a":1}"#,
                r#"{"a":1,"priority":-5}"#,
            ),
            (
                Usual(5),
                HighFirst,
                chat,
                r#"{"a":1,"priority":null}"#,
                r#"{"a":1,"priority":5}"#,
            ),
            (Usual(0), LowFirst, chat, r#"{"a":1}"#, r#"{"a":1}"#),
            (Fixed(5), LowFirst, chat, "--form", "--form"),
            (Fixed(5), LowFirst, chat, "", ""),
        ] {
            let got = applied(rule, order, path, Bytes::from(body).into()).joined();
            assert_eq!(
                std::str::from_utf8(&got).unwrap(),
                expected,
                "{rule:?} {order:?} {body}"
            );
        }
    }
}
