//! Markdown parser for the project's documents: code blocks, headings, anchors, links, code and tables.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Markdown file of the project, parsed as far as the tests of the documents need it.
pub struct Document {
    /// Path relative to the root of the project.
    pub path: PathBuf,
    pub text: String,
    /// Text with the lines of code blocks blanked.
    pub prose: String,
    pub blocks: Vec<Block>,
}

/// Fenced code block, with its language and its position for error messages.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    pub language: String,
    pub text: String,
    /// Line of the opening fence, counted from 1.
    pub line: usize,
}

impl Document {
    pub fn read(path: &str) -> Self {
        let text = std::fs::read_to_string(Path::new(ROOT).join(path))
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        Self::of(path, text)
    }

    pub fn of(path: &str, text: String) -> Self {
        let (mut prose, mut blocks, mut open) = (String::new(), Vec::new(), None::<Block>);
        for (at, line) in text.lines().enumerate() {
            match (line.trim_start().strip_prefix("```"), open.take()) {
                (Some(language), None) => {
                    open = Some(Block {
                        language: language.to_owned(),
                        text: String::new(),
                        line: at + 1,
                    });
                }
                (Some(_), Some(block)) => blocks.push(block),
                (None, Some(mut block)) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                    open = Some(block);
                }
                (None, None) => prose.push_str(line),
            }
            prose.push('\n');
        }
        assert!(open.is_none(), "{path}: a code block does not end");
        Self {
            path: path.into(),
            text,
            prose,
            blocks,
        }
    }

    /// Returns the path, for messages.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns the texts of the headings, in order.
    pub fn headings(&self) -> impl Iterator<Item = &str> {
        self.prose
            .lines()
            .filter(|line| line.starts_with('#'))
            .map(|line| line.trim_start_matches('#').trim())
    }

    /// Returns the possible link fragments: headings as GitHub names them.
    pub fn anchors(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for heading in self.headings() {
            let kept = heading
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
                .collect::<String>();
            let slug = kept.replace(' ', "-");
            let again = (0..).map(|n| {
                if n == 0 {
                    slug.clone()
                } else {
                    format!("{slug}-{n}")
                }
            });
            let free = again.into_iter().find(|slug| !found.contains(slug));
            found.extend(free);
        }
        found
    }

    /// Returns the part below a heading, up to the next heading of any level.
    pub fn section(&self, heading: &str) -> &str {
        let at = self
            .prose
            .find(&format!("\n{heading}\n"))
            .unwrap_or_else(|| panic!("{}: {heading}", self.name()));
        let below = &self.prose[at + heading.len() + 2..];
        below.split("\n#").next().unwrap_or(below)
    }

    /// Returns the code in backticks, each with its line.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.prose.lines().enumerate();
        lines.flat_map(|(at, line)| {
            line.split('`')
                .skip(1)
                .step_by(2)
                .map(move |code| (at + 1, code))
        })
    }

    /// Returns the targets of links, each with its line.
    pub fn links(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (at, line) in self.prose.lines().enumerate() {
            let words: String = line.split('`').step_by(2).collect();
            let targets = words
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next());
            found.extend(targets.map(|target| (at + 1, target.to_owned())));
        }
        found
    }
}

/// Returns the cells of the tables in a text, without heads and separator lines.
pub fn rows(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut body = false;
    for line in text.lines() {
        let Some(inner) = line
            .trim()
            .strip_prefix('|')
            .and_then(|line| line.strip_suffix('|'))
        else {
            body = false;
            continue;
        };
        if inner.starts_with("---") {
            body = true;
        } else if body {
            let cells = inner.replace("\\|", "\u{0}");
            found.push(
                cells
                    .split('|')
                    .map(|cell| cell.trim().replace('\u{0}', "|"))
                    .collect(),
            );
        }
    }
    found
}

/// Returns the code in backticks in a cell.
pub fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns every document for people.
pub fn documents() -> Vec<Document> {
    let root = Path::new(ROOT);
    let mut paths: Vec<PathBuf> = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
    ]
    .map(PathBuf::from)
    .into();
    for folder in ["docs", "fixtures", "tests"] {
        files(&root.join(folder), &mut |path| {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if name.ends_with(".md") && (folder == "docs" || name.starts_with("README")) {
                paths.push(path.strip_prefix(root).expect("below the root").to_owned());
            }
        });
    }
    paths.sort();
    paths
        .iter()
        .map(|path| Document::read(path.to_str().expect("names are UTF-8")))
        .collect()
}

/// Visits all files below a folder, except those that were built or installed there.
pub fn files(folder: &Path, found: &mut impl FnMut(PathBuf)) {
    for entry in
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
    {
        let path = entry.expect("the folder can be read").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() && !["target", "node_modules"].contains(&name) {
            files(&path, found);
        } else if path.is_file() {
            found(path);
        }
    }
}
