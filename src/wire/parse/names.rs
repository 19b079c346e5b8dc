//! Names of parsers, as the option `parser` takes them.

use super::family::{FAMILIES, Family};

/// Returns true if `name` is the name of a parser, so that the option `parser` can be checked.
pub(in crate::wire) fn is_parser_name(name: &str) -> bool {
    Family::named(name).is_some()
}

/// Returns the names of all parsers, aliases included, in the order of [`FAMILIES`].
pub(in crate::wire) fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|family| family.names).copied()
}

/// Sample of parser names for error messages; config/samewire.toml lists all of them.
pub(in crate::wire) const EXAMPLES: &str = "qwen3, hermes, qwen3_coder, deepseek_r1, deepseek_v31, kimi_k2, glm45, mistral, llama3_json, pythonic, gemma4, \u{2026}";
