//! Repair of a tool call's arguments that are no JSON (option `repair_arguments`, wire-format 2.5 rule 15).
//!
//! Takes: all arguments of one call. Gives: JSON, and the rules by which it was made. Remembers: nothing. Never: touches
//! valid JSON, guesses the text of a string, completes a call that was cut.

mod marks;
mod mistakes;

use super::arguments::Arguments;
use super::options::RepairArguments;
use super::rule::Rule;
use crate::json::Text;
pub(super) use marks::{MARKS, Tail};

/// Limit on held arguments in bytes, for one call of a text or all calls of a choice. Longer ones pass as they come.
pub(super) const MAX_HELD: usize = 512 << 10;

/// Repaired arguments: one JSON object or array.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Repaired {
    pub(super) text: String,
    /// Rules that were applied, each once.
    pub(super) rules: Vec<Rule>,
}

/// Returns true if a text is JSON, white space around it included.
pub(super) fn is_json(text: &str) -> bool {
    let mut arguments = Arguments::default();
    arguments.read(&Text::plain(text));
    arguments.is_complete()
}

/// Evidence that a call's arguments have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentsEnd {
    /// None: the arguments may have been cut.
    Unknown,
    /// The engine reported no cut.
    Said,
    /// Markup of the call follows them.
    Marked,
}

/// Returns the arguments repaired as the option says; `None` if they are JSON, or cannot be made JSON. Missing brackets are
/// added if `end` is known.
pub(super) fn repaired(text: &str, option: RepairArguments, end: ArgumentsEnd) -> Option<Repaired> {
    if option == RepairArguments::Off || is_json(text) {
        return None;
    }
    let found = match option {
        RepairArguments::Off => None,
        RepairArguments::Tail => without_tail(text),
        RepairArguments::Json => mistakes::corrected(text, end),
    };
    found.filter(|found| is_json(&found.text))
}

/// Returns a closed value without the marks after it; `None` if anything else follows it.
fn without_tail(text: &str) -> Option<Repaired> {
    let end = Arguments::default().read_value(text)?;
    let (value, tail) = text.split_at_checked(end)?;
    (Tail::of(tail) == Tail::Marks).then(|| Repaired {
        text: value.to_owned(),
        rules: vec![Rule::ToolArgumentsTail],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Rule::{
        ToolArgumentsBrackets as Brackets, ToolArgumentsComma as Comma,
        ToolArgumentsControls as Controls, ToolArgumentsQuotes as Quotes,
        ToolArgumentsTail as Marks, ToolArgumentsWords as Words,
    };

    #[test]
    fn mistakes_on_the_list_are_corrected() {
        for (text, expected, rules) in [
            (r#"{"a":1}</tool_call>"#, r#"{"a":1}"#, &[Marks][..]),
            ("{\"a\":1} \n<|im_end|>\n", r#"{"a":1}"#, &[Marks]),
            (r#"{"a":1}"}"#, r#"{"a":1}"#, &[Marks]),
            (r#"{"a":1,}"#, r#"{"a":1}"#, &[Comma]),
            (r#"{"a":[1, 2 , ] , }"#, r#"{"a":[1, 2  ]  }"#, &[Comma]),
            (r#"{'a': 'it\'s "b"'}"#, r#"{"a": "it's \"b\""}"#, &[Quotes]),
            (
                r#"{"a": True, "b": [None, False]}"#,
                r#"{"a": true, "b": [null, false]}"#,
                &[Words],
            ),
            (r#"{"a":{"b":["c""#, r#"{"a":{"b":["c"]}}"#, &[Brackets]),
            (
                "{\"a\":\"b\nc\t\u{1}\"}",
                r#"{"a":"b\nc\t\u0001"}"#,
                &[Controls],
            ),
            ("{'a': 'b\n', 'c': True,", "", &[]),
            (
                "{'a': 'b\n', 'c': [True,]",
                r#"{"a": "b\n", "c": [true]}"#,
                &[Quotes, Controls, Words, Comma, Brackets],
            ),
        ] {
            let found = repaired(text, RepairArguments::Json, ArgumentsEnd::Said);
            let expected = Repaired {
                text: expected.to_owned(),
                rules: rules.to_vec(),
            };
            assert_eq!(
                found,
                Some(expected).filter(|_| !rules.is_empty()),
                "{text}"
            );
        }
    }

    #[test]
    fn anything_else_stays() {
        for text in [
            "",
            "{}",
            " {\"a\":1}\n",
            "12",
            "{",
            "[",
            "{\"a\":",
            "{\"a\":[",
            "{\"a\":1,",
            "{\"a\":\"b",
            "{\"a\":'b",
            "{\"a\":tru",
            "{\"a\":-",
            "{\"a\":12",
            "{\"a\"",
            "{\"a\":[1}",
            "{,}",
            "{\"a\":1,,}",
            "{'a': 'it's'}",
            "{True: 1}",
            "{\"a\": xTrue}",
            "{\"a\":1} and",
            "{\"a\":1}</tool_c",
            "}!}!",
            "True",
            "{\"a\":\"b\\\n\"}",
        ] {
            assert_eq!(
                repaired(text, RepairArguments::Json, ArgumentsEnd::Said),
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn many_marks_take_no_stack() {
        let text = format!("{{}}{}", "}".repeat(400_000));
        for option in [RepairArguments::Tail, RepairArguments::Json] {
            assert_eq!(
                repaired(&text, option, ArgumentsEnd::Said)
                    .map(|found| found.text)
                    .as_deref(),
                Some("{}")
            );
        }
    }

    #[test]
    fn a_cut_call_is_not_completed() {
        let marked = repaired(r#"{"a":1"#, RepairArguments::Json, ArgumentsEnd::Marked);
        assert_eq!(
            marked.map(|found| found.text).as_deref(),
            Some(r#"{"a":1}"#)
        );
        assert_eq!(
            repaired(r#"{"a":true"#, RepairArguments::Json, ArgumentsEnd::Unknown),
            None
        );
        let tail = |text| {
            repaired(text, RepairArguments::Tail, ArgumentsEnd::Said).map(|found| found.text)
        };
        assert_eq!(tail(r#"{"a":1"#), None);
        assert_eq!(tail(r#"{"a":1,}</tool_call>"#), None);
        assert_eq!(
            tail(r#"{"a":1}</tool_call>"#).as_deref(),
            Some(r#"{"a":1}"#)
        );
        assert_eq!(
            repaired(r#"{"a":1}}"#, RepairArguments::Off, ArgumentsEnd::Said),
            None
        );
    }
}
