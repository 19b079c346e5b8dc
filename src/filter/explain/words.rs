//! Words that explain a rule, by its name in metrics.

use crate::engine::ENGINES;
use crate::engine::fallback::Fallback;
use crate::wire::rule::{NULL_FIELDS, Rule};

/// Rules of requests that no engine's list contains.
const OTHERS: [(&str, &str); 3] = [
    (NULL_FIELDS, "fields without a value were added or removed"),
    (
        "billing_block",
        "the block with the client's billing header was left out",
    ),
    ("thinking_dropped", "thinking of earlier turns was left out"),
];

/// Returns the words that explain the rule of this name; `None` if there is no such rule.
pub fn rule_words(name: &str) -> Option<&'static str> {
    let of_answers = || {
        Rule::ALL
            .iter()
            .find(|rule| rule.name() == name)
            .map(|rule| rule.what())
    };
    let of_requests = || {
        let all = ENGINES
            .iter()
            .flat_map(|engine| engine.rules())
            .chain(Fallback::rules());
        all.into_iter()
            .find(|rule| rule.name == name)
            .map(|rule| rule.what)
    };
    let others = || {
        OTHERS
            .iter()
            .find(|(own, _)| *own == name)
            .map(|(_, words)| *words)
    };
    of_answers().or_else(of_requests).or_else(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_words() {
        assert_eq!(rule_words("role_content"), Some(Rule::RoleContent.what()));
        assert_eq!(
            rule_words("limit_of_nothing"),
            Some("a limit of 0 is refused")
        );
        assert!(rule_words("calls_in_text").is_some() && rule_words(NULL_FIELDS).is_some());
        assert_eq!(rule_words("no_such_rule"), None);
    }
}
