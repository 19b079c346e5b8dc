//! Doc comments: they open with their subject, and say more than a name does.

use std::path::Path;

/// Words that a comment without a subject opens with.
const OPENINGS: [&str; 27] = [
    "It",
    "What",
    "Who",
    "Whoever",
    "One",
    "That",
    "Of",
    "By",
    "How",
    "Where",
    "When",
    "Which",
    "Whose",
    "Its",
    "Those",
    "There",
    "Nothing",
    "Nobody",
    "Something",
    "Somebody",
    "Everything",
    "So",
    "As",
    "Why",
    "If",
    "In",
    "From",
];

/// The doc comments of a folder: how many, how many open without a subject, and how many words they have.
#[derive(Default)]
pub(crate) struct Measure {
    pub(crate) blocks: usize,
    pub(crate) words: usize,
    /// Each with its file and line.
    pub(crate) subjectless: Vec<String>,
}

impl Measure {
    /// Reads all Rust files under a folder.
    pub(crate) fn of(root: &Path) -> Self {
        let mut measure = Self::default();
        for path in super::files(root) {
            let text = std::fs::read_to_string(root.join(&path)).unwrap();
            let mut block: Option<(usize, &str, String)> = None;
            for (number, line) in text.lines().enumerate() {
                let line = line.trim_start();
                let doc = ["///", "//!"]
                    .into_iter()
                    .find(|mark| line.starts_with(mark) && !line.starts_with("////"));
                if let Some((start, mark, words)) = block.take_if(|(_, mark, _)| Some(*mark) != doc)
                {
                    measure.add(&path, start, mark, &words);
                }
                if let Some(mark) = doc {
                    let (_, _, words) = block.get_or_insert((number + 1, mark, String::new()));
                    words.push(' ');
                    words.push_str(&line[mark.len()..]);
                }
            }
            if let Some((start, mark, words)) = block {
                measure.add(&path, start, mark, &words);
            }
        }
        measure
    }

    fn add(&mut self, path: &Path, line: usize, mark: &str, text: &str) {
        let mut words = text.split_whitespace();
        let Some(first) = words.next() else { return };
        self.blocks += 1;
        self.words += 1 + words.count();
        if OPENINGS.contains(&first.trim_end_matches(|c: char| !c.is_alphanumeric())) {
            self.subjectless
                .push(format!("{}:{line}: {mark}{text}", path.display()));
        }
    }
}
