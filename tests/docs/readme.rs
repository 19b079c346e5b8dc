//! The README shows real examples. Rules for all documents are in `tests/docs/documents`.

use crate::markdown::{Document, ROOT};
use std::path::Path;

/// The three lines at the top are taken from recordings.
#[test]
fn the_example_is_real() {
    let readme = Document::read("README.md");
    let shown = |name: &str| {
        let line = readme
            .text
            .lines()
            .find(|line| line.starts_with(&format!("    {name}")))
            .expect("an example");
        line.split_once('"')
            .map(|(_, rest)| format!("\"{rest}"))
            .expect("JSON")
    };
    for (name, file) in [
        ("vLLM", "fixtures/vllm/reasoning/upstream.sse"),
        ("SGLang", "fixtures/sglang/reasoning/upstream.sse"),
        ("samewire", "fixtures/vllm/reasoning/chat.sse"),
        ("samewire", "fixtures/sglang/reasoning/chat.sse"),
    ] {
        let recorded = std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap();
        assert!(recorded.contains(&shown(name)), "{name}: {file}");
    }
}

/// The README has at most 160 lines.
#[test]
fn it_is_short() {
    let lines = Document::read("README.md").text.lines().count();
    assert!(lines <= 160, "{lines} lines");
}
