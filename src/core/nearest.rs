//! Spelling suggestions: the known name nearest to an unknown one, for "is … meant?" in error messages.

use strsim::levenshtein;

/// Returns the known name that a misspelt one probably meant: one that starts with it, or differs in few letters
/// (at most 1 + length / 4). Returns `None` if no known name is that close, or for names shorter than two bytes.
///
/// Known names that do not start with an ASCII letter, such as versions, are never suggested.
pub fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if name.len() < 2 {
        return None;
    }
    let steps = |known: &str| {
        if known.starts_with(name) {
            0
        } else {
            levenshtein(name, known)
        }
    };
    let words = known
        .into_iter()
        .filter(|known| known.starts_with(|first: char| first.is_ascii_alphabetic()));
    let (steps, nearest) = words.map(|known| (steps(known), known)).min()?;
    (steps <= 1 + name.len() / 4).then_some(nearest)
}

/// Appends a suggestion to an error message about an unknown name, or returns it unchanged if no known name is
/// near.
pub fn suggest<'n>(why: String, name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    match nearest(name, known) {
        Some(known) => format!("{why}; is {known} meant?"),
        None => why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names() {
        let known = ["off", "error", "warn", "info", "debug", "trace", "1.2", "2"];
        for (name, expected) in [
            ("infos", Some("info")),
            ("inf", Some("info")),
            ("wran", Some("warn")),
            ("erorr", Some("error")),
            ("verbose", None),
            ("", None),
            ("i", None),
            ("1.1", None),
            ("3", None),
        ] {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
        assert_eq!(
            suggest("wrong".to_owned(), "infos", known),
            "wrong; is info meant?"
        );
        assert_eq!(suggest("wrong".to_owned(), "sk-1", known), "wrong");
    }
}
