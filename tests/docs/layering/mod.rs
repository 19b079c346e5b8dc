//! Structure of the source: imports point one way, the pure half does no I/O, files and functions stay short. Reads
//! `src/` as text; the order of the modules is the one in `src/core/lib.rs` and `src/lib.rs`.

mod comments;
mod imports;

use comments::Measure;
use std::path::{Path, PathBuf};

/// Last module of the pure half.
const LAST_PURE: &str = "seal";

/// Names that the pure half must not use: everything that waits, connects, draws random numbers, or reads a clock
/// or the machine.
const WORLD: [&str; 18] = [
    "tokio::",
    "axum::",
    "hyper::",
    "hyper_util::",
    "http::",
    "http_body::",
    "socket2::",
    "futures::",
    "reqwest::",
    "tracing::",
    "rand::",
    "getrandom::",
    "std::env::",
    "std::fs::",
    "std::net::",
    "std::thread::",
    "std::process::",
    "std::io::",
];

/// Names of clocks, which are forbidden by themselves.
const CLOCKS: [&str; 3] = ["Instant", "SystemTime", "UNIX_EPOCH"];

/// Forbidden module names: they say nothing about their contents.
const VAGUE_NAMES: [&str; 6] = ["utils", "util", "common", "helpers", "misc", "types"];

/// Lines of a file with code in them, without its tests.
const LONGEST_FILE: usize = 700;
const LONGEST_FUNCTION: usize = 100;

/// Source file: its top-level module, and its text without comments and literals.
struct Source {
    path: PathBuf,
    module: String,
    text: String,
    lines: usize,
}

/// Returns the Rust files under a folder, relative to it.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut folders = vec![root.to_path_buf()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path.strip_prefix(root).unwrap().to_path_buf());
            }
        }
    }
    found.sort();
    found
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let found: Vec<_> = files(&root)
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(root.join(&path)).unwrap();
            // The crate `src/core` is the beginning of the list of modules.
            let inside = path.strip_prefix("core").unwrap_or(&path);
            let first = inside
                .components()
                .next()
                .unwrap()
                .as_os_str()
                .to_str()
                .unwrap()
                .to_owned();
            let tests = text.find("\n#[cfg(test)]\nmod ").unwrap_or(text.len());
            let mut code_of = code(&text[..tests]);
            let lines = code_of
                .lines()
                .filter(|line| !line.trim().is_empty())
                .count();
            code_of.push_str(&code(&text[tests..]));
            Source {
                module: first.trim_end_matches(".rs").to_owned(),
                lines,
                text: code_of,
                path,
            }
        })
        .collect();
    assert!(found.len() > 30, "the sources are there");
    found
}

/// Blanks comments, strings and characters in a text; line ends stay.
fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // Literals and comments begin with these alone, which are looked for as bytes: this reads all sources for many tests.
    while let Some(at) = rest
        .bytes()
        .position(|byte| matches!(byte, b'/' | b'"' | b'\''))
    {
        let (before, from) = rest.split_at(at);
        let (kept, length) = match from.as_bytes()[0] {
            b'/' if from.starts_with("//") => (before, from.find('\n').unwrap_or(from.len())),
            b'/' if from.starts_with("/*") => {
                (before, from.find("*/").map_or(from.len(), |at| at + 2))
            }
            b'/' => {
                out.push_str(&rest[..=at]);
                rest = &from[1..];
                continue;
            }
            b'"' => match before_raw_string(before) {
                Some(kept) => (kept, raw_string(from, before.len() - kept.len() - 1)),
                None => (before, string(from)),
            },
            _ => (before, quoted_character(from)),
        };
        out.push_str(kept);
        out.push_str(&"\n".repeat(from[..length].matches('\n').count()));
        out.push(' ');
        rest = &from[length..];
    }
    out.push_str(rest);
    out
}

/// Returns the code before an `r` and its `#`s, if a quotation mark after `before` opens a raw string.
fn before_raw_string(before: &str) -> Option<&str> {
    let kept = before.trim_end_matches('#').strip_suffix('r')?;
    let is_word = kept.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    (!is_word).then_some(kept)
}

/// Returns the length of a raw string from its quotation mark.
fn raw_string(text: &str, hashes: usize) -> usize {
    let end = format!("\"{}", "#".repeat(hashes));
    text[1..]
        .find(&end)
        .map_or(text.len(), |at| 1 + at + end.len())
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a character literal such as `'x'`, or of the apostrophe of a lifetime.
fn quoted_character(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match characters.next() {
        Some((_, '\\')) => text[3..].find('\'').map_or(1, |at| 3 + at + 1),
        Some((at, character)) if text[at + character.len_utf8()..].starts_with('\'') => {
            at + character.len_utf8() + 1
        }
        _ => 1,
    }
}

/// Returns the modules in the order of `src/core/lib.rs`, then of `src/lib.rs`.
fn modules(sources: &[Source]) -> Vec<String> {
    let named = sources
        .iter()
        .filter(|source| source.module == "lib")
        .flat_map(|lib| lib.text.lines())
        .filter_map(|line| line.trim().strip_prefix("pub mod ")?.strip_suffix(';'));
    named.map(str::to_owned).collect()
}

/// Returns every word that follows `prefix` in the code.
fn words_after<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(prefix).filter_map(move |(at, _)| {
        let apart = !text[..at].ends_with(|c: char| is_word(c) || c == ':');
        let rest = &text[at + prefix.len()..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        apart.then_some(&rest[..end])
    })
}

/// Returns the first words inside `crate::{…}`.
fn grouped(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (at, open) in text.match_indices("crate::{") {
        let (mut depth, mut start) = (0, true);
        for (end, character) in text[at + open.len()..].char_indices() {
            match character {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => start = true,
                c if start && c.is_alphabetic() => {
                    start = false;
                    let rest = &text[at + open.len() + end..];
                    words.push(
                        &rest[..rest
                            .find(|c: char| !c.is_alphanumeric() && c != '_')
                            .unwrap_or(rest.len())],
                    );
                }
                _ => {}
            }
        }
    }
    words
}

#[test]
fn imports_point_one_way() {
    let sources = sources();
    let order = modules(&sources);
    assert!(order.iter().any(|module| module == LAST_PURE), "{order:?}");
    let place = |module: &str| order.iter().position(|known| known == module);
    let mut wrong = Vec::new();
    for source in sources
        .iter()
        .filter(|source| !["build", "lib", "main"].contains(&source.module.as_str()))
    {
        let Some(own) = place(&source.module) else {
            wrong.push(format!("{} is no module that lib.rs names", source.module));
            continue;
        };
        let named = words_after(&source.text, "crate::").chain(grouped(&source.text));
        let later = named.filter(|named| place(named).is_some_and(|at| at > own));
        wrong.extend(later.map(|named| format!("{} imports {named}", source.path.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_file_imports_in_a_circle() {
    for folder in ["src", "benches/soak"] {
        let cyclic = imports::cyclic_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
        assert!(cyclic.is_empty(), "{folder}: {}", cyclic.join("\n"));
    }
}

/// The options of `wire` name the parsers of text, which read options: the one circle of modules that is left.
#[test]
fn no_module_imports_in_a_circle() {
    for folder in ["src", "benches/soak"] {
        let cyclic = imports::cyclic_modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
        let wrong: Vec<_> = cyclic
            .into_iter()
            .filter(|circle| !circle.starts_with("wire/"))
            .collect();
        assert!(wrong.is_empty(), "{folder}: {}", wrong.join("\n"));
    }
}

#[test]
fn types_have_their_methods_at_home() {
    let wrong = imports::extensions(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// At most 3 % of the comments in a folder open without their subject; in `src`, a comment has at least 13 words on
/// average.
#[test]
fn comments_open_with_their_subject() {
    for (folder, words) in [("src", 13), ("tests", 0), ("benches", 0)] {
        let measure = Measure::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
        let bad = &measure.subjectless;
        println!(
            "{folder}: {} comments, {} words, {} without a subject",
            measure.blocks,
            measure.words,
            bad.len()
        );
        assert!(
            measure.blocks > 100 && measure.words >= words * measure.blocks,
            "{folder}: {} words",
            measure.words
        );
        assert!(
            bad.len() * 100 <= 3 * measure.blocks,
            "{folder}: {} of {}\n{}",
            bad.len(),
            measure.blocks,
            bad.join("\n")
        );
    }
}

#[test]
fn the_pure_half_touches_nothing() {
    let sources = sources();
    let order = modules(&sources);
    let pure = &order[..=order.iter().position(|module| module == LAST_PURE).unwrap()];
    assert_eq!(
        pure,
        [
            "json",
            "quantity",
            "nearest",
            "wire",
            "model_name",
            "visible",
            "request",
            "engine",
            "plan",
            "seal"
        ]
    );
    let mut wrong = Vec::new();
    for source in sources
        .iter()
        .filter(|source| pure.contains(&source.module))
    {
        let world = WORLD
            .iter()
            .filter(|path| words_after(&source.text, path).next().is_some());
        let clocks = CLOCKS
            .iter()
            .filter(|name| words_after(&source.text, name).any(str::is_empty));
        wrong.extend(
            world
                .chain(clocks)
                .map(|name| format!("{} names {name}", source.path.display())),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Only answers that are judged become trees.
#[test]
fn no_trees_of_json() {
    let sources = sources();
    let builds = |source: &&Source| {
        words_after(&source.text, "serde_json::").any(|word| word == "Value" || word == "json")
            || source.text.contains("serde_json::{")
                && words_after(&source.text, "Value").any(str::is_empty)
    };
    let found: Vec<_> = sources
        .iter()
        .filter(builds)
        .map(|source| source.path.as_path())
        .collect();
    assert_eq!(found, [Path::new("tree.rs")], "`serde_json::Value`");
}

#[test]
fn files_have_one_subject() {
    let mut wrong = Vec::new();
    for source in sources() {
        let name = source.path.with_extension("");
        let is_vague = name
            .components()
            .any(|part| VAGUE_NAMES.iter().any(|vague| part.as_os_str() == *vague));
        if is_vague {
            wrong.push(format!(
                "{} says nothing of its subject",
                source.path.display()
            ));
        }
        if source.lines > LONGEST_FILE {
            wrong.push(format!(
                "{} has {} lines",
                source.path.display(),
                source.lines
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn functions_fit_on_a_page() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for source in sources() {
        for (name, lines) in functions(&source.text) {
            seen += 1;
            if lines > LONGEST_FUNCTION {
                wrong.push(format!(
                    "{}: {name} has {lines} lines",
                    source.path.display()
                ));
            }
        }
    }
    assert!(seen > 300, "{seen} functions found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns every function's name and its number of lines from `fn` to the last brace.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in text.match_indices("fn ") {
        if text[..at].ends_with(is_word) {
            continue;
        }
        let rest = &text[at + 3..];
        let name = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
        let mut depth = 0usize;
        for (end, character) in rest.char_indices() {
            match character {
                // No body: a trait's method, or a function type.
                ';' if depth == 0 => break,
                '{' => depth += 1,
                '}' if depth <= 1 => {
                    found.push((name, rest[..end].matches('\n').count() + 1));
                    break;
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    found
}

/// The parser of source text is tested here, because the other tests rely on it.
#[test]
fn code_is_told_from_text() {
    let text = "fn a<'x>() { let b = '{'; // }\n let c = \"}\\\"}\"; let d = r#\"}\"}\"#; /* } */ '\\'' }\nfn e() {}\n";
    assert_eq!(functions(&code(text)), [("a", 2), ("e", 1)]);
    assert_eq!(
        words_after("use crate::wire::x; crate::json", "crate::").collect::<Vec<_>>(),
        ["wire", "json"]
    );
    assert_eq!(
        grouped("use crate::{wire::{json, x}, plan}; cli"),
        ["wire", "plan"]
    );
    assert_eq!(
        words_after("tokio::x subtokio a::tokio", "tokio").collect::<Vec<_>>(),
        [""]
    );
}
