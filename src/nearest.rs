//! The nearest of some names to one that is not among them, for "is … meant?".

use strsim::levenshtein;

/// Returns the known name that a misspelt one probably meant: it begins with it, or few letters are different.
///
/// Names without a letter at their beginning, such as versions, are never meant by another one.
pub fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if name.len() < 2 {
        return None;
    }
    let steps = |known: &str| if known.starts_with(name) { 0 } else { levenshtein(name, known) };
    let words =
        known.into_iter().filter(|known| known.starts_with(|first: char| first.is_ascii_alphabetic()));
    let (steps, nearest) = words.map(|known| (steps(known), known)).min()?;
    (steps <= 1 + name.len() / 4).then_some(nearest)
}

/// Adds the nearest name, if there is one, to what is said of a wrong one.
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
        assert_eq!(suggest("wrong".to_owned(), "infos", known), "wrong; is info meant?");
        assert_eq!(suggest("wrong".to_owned(), "sk-1", known), "wrong");
    }
}
