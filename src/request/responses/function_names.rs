//! Function names for tools of a namespace or of a server, whose own names may be taken or have another form.

use crate::wire::ident;
use std::collections::HashMap;

/// Maximum length of a function name, in characters.
pub(super) const LONGEST: usize = 64;
/// Number of hash digits that replace the rest of a name that is too long.
const DIGITS: usize = 8;

/// Returns true if a function may have this name and no other has it.
pub(super) fn is_free(name: &str, taken: &HashMap<String, usize>) -> bool {
    (1..=LONGEST).contains(&name.len()) && name.chars().all(is_of_name) && !taken.contains_key(name)
}

fn is_of_name(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_')
}

/// Returns the function name of a server's tool whose own name is taken or not allowed: label and name, as far as they
/// fit, and a hash of both.
pub(super) fn function_name(label: &str, name: &str) -> String {
    let full = format!("{label}__{name}");
    let head = full.chars().take(LONGEST - DIGITS - 1);
    let head: String = head
        .map(|sign| if is_of_name(sign) { sign } else { '_' })
        .collect();
    let digits = ident::sha256_hex(format!("{label}\0{name}").as_bytes(), DIGITS);
    format!("{head}_{digits}")
}

/// Returns a flat name for a tool in a namespace. A name that is too long or already taken ends in a hash.
pub(super) fn flat_name(namespace: &str, name: &str, taken: impl Fn(&str) -> bool) -> String {
    let full = format!("{namespace}__{name}");
    if full.chars().count() <= LONGEST && !taken(&full) {
        return full;
    }
    let head: String = full.chars().take(LONGEST - DIGITS - 1).collect();
    format!(
        "{head}_{}",
        ident::sha256_hex(format!("{namespace}\0{name}").as_bytes(), DIGITS)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit() {
        let long = "x".repeat(61);
        assert_eq!(flat_name("a", "b", |_| false), "a__b");
        assert_eq!(flat_name("a", &long, |_| false), format!("a__{long}"));
        let cut = flat_name("ab", &long, |_| false);
        assert_eq!((cut.len(), cut.starts_with("ab__xxx")), (64, true));
        assert_ne!(
            cut,
            flat_name("ab", &format!("{long}x"), |_| false),
            "what was cut off counts"
        );
        assert_ne!(
            flat_name("a", "b__c", |_| true),
            flat_name("a__b", "c", |_| true),
            "and where the name was joined"
        );
    }
}
