//! The documents are accurate: code blocks are run, links and paths resolve, tables list exactly what exists, figures
//! are those that were measured, and sections cited by the code exist.

mod blocks;
mod citations;
mod figures;
mod links;
mod tables;

pub use tables::metrics;

use crate::markdown::{Document, code, rows};

/// The Markdown parser is tested here, because the other tests rely on it.
#[test]
fn markdown_is_read_as_written() {
    let text = "# A `b` c.d\n\n[x](y#z) `[n](o)`\n\n## A\n\n```sh\n# no heading\n[no](link)\n```\n\
                ## A\n| k | v |\n|---|---|\n| `p` | `q\\|r` |\n";
    let document = Document::of("x.md", text.to_owned());
    assert_eq!(
        document.anchors().into_iter().collect::<Vec<_>>(),
        ["a", "a-1", "a-b-cd"]
    );
    assert_eq!(document.links(), [(3, "y#z".to_owned())]);
    assert_eq!(document.blocks.len(), 1);
    assert_eq!(
        (document.blocks[0].line, document.blocks[0].text.as_str()),
        (7, "# no heading\n[no](link)\n")
    );
    assert_eq!(rows(&document.prose), [["`p`", "`q|r`"]]);
    assert_eq!(code("`p` and `q`").collect::<Vec<_>>(), ["p", "q"]);
}
