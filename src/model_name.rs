//! Names of models in the configuration, of which some are patterns.
//!
//! Takes: a name as configured, a name as requested. Gives: whether the first means the second. Never: a pattern in a
//! name that a client sends.

use wildmatch::WildMatchPattern;

/// Character that stands for any number of characters in a pattern.
const ANY: char = '*';
/// Character that stands for exactly one; patterns have none.
const NONE: char = '\0';

/// Returns true if the configured name is a pattern, such as `claude-*`.
pub fn is_pattern(configured: &str) -> bool {
    configured.contains(ANY)
}

/// Returns true if the configured name is this model's name, or a pattern that covers it.
pub fn covers(configured: &str, model: &str) -> bool {
    configured == model
        || is_pattern(configured) && WildMatchPattern::<ANY, NONE>::new(configured).matches(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (configured, model, expected) in [
            ("claude-*", "claude-sonnet-4-5", true),
            ("claude-*", "claude-", true),
            ("claude-*", "Claude-sonnet", false),
            ("claude-*", "my-claude-sonnet", false),
            ("*", "", true),
            ("*", "anything", true),
            ("*-mini", "gpt-4o-mini", true),
            ("gpt-*-mini", "gpt-mini", false),
            ("gpt-*-mini*", "gpt-5-mini-2025", true),
            ("a?c", "abc", false),
            ("qwen", "qwen3", false),
            ("qwen", "qwen", true),
        ] {
            assert_eq!(covers(configured, model), expected, "{configured} {model}");
        }
    }
}
