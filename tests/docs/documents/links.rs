//! Links and paths in the documents resolve: files, headings and code paths exist.

use crate::markdown::{ROOT, documents};
use std::path::{Component, Path, PathBuf};

/// Prefixes of paths that are written relative to the root of the project.
const TOPS: [&str; 7] = [
    "src/",
    "tests/",
    "fixtures/",
    "benches/",
    "config/",
    "docs/",
    ".ci/",
];

/// Returns a path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(plain.pop(), "{} leaves the project", path.display()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[test]
fn every_link_and_anchor_is_there() {
    let documents = documents();
    assert!(documents.len() >= 12, "{} documents", documents.len());
    let (mut wrong, mut count) = (Vec::new(), 0);
    for document in &documents {
        let folder = document.path.parent().expect("a file is in a folder");
        for (line, link) in document.links() {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let path = if file.is_empty() {
                document.path.clone()
            } else {
                plain(&folder.join(file))
            };
            let known = documents.iter().find(|other| other.path == path);
            let there = Path::new(ROOT).join(&path).exists();
            let named =
                anchor.is_empty() || known.is_some_and(|other| other.anchors().contains(anchor));
            if !there || !named {
                wrong.push(format!("{}:{line}: {link}", document.name()));
            }
        }
    }
    assert!(count > 500, "{count} links");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the path in a word, up to where it becomes a pattern.
fn path(word: &str) -> Option<&str> {
    let word = word.trim_end_matches([',', '.', ';', ':', ')']);
    if !TOPS.iter().any(|top| word.starts_with(top)) || word.contains("://") {
        return None;
    }
    let word = word.split(['#', ' ']).next()?;
    match word.find(['<', '*', '{', '…', '$']) {
        Some(at) => Some(&word[..word[..at].rfind('/')?]),
        None => Some(word),
    }
}

#[test]
fn every_path_is_there() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for document in documents() {
        let code = document.code().map(|(line, code)| (line, code.to_owned()));
        let shell = document
            .blocks
            .iter()
            .filter(|block| ["sh", "bash"].contains(&block.language.as_str()));
        let words = shell.flat_map(|block| {
            block
                .text
                .split_whitespace()
                .map(|word| (block.line, word.to_owned()))
        });
        for (line, word) in code.chain(words) {
            let Some(path) = path(&word) else { continue };
            count += 1;
            if !Path::new(ROOT).join(path).exists() && !made(path) {
                wrong.push(format!("{}:{line}: {path}", document.name()));
            }
        }
    }
    assert!(count > 200, "{count} paths");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns true for paths that are created by runs and are not in the repository.
fn made(path: &str) -> bool {
    ["tests/fuzz/corpus", "tests/fuzz/artifacts"]
        .iter()
        .any(|folder| path.starts_with(folder))
}
