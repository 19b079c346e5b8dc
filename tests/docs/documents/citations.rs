//! Sections cited by the code exist in the documents, and faults in `tests/faults.toml`: `(wire-format 4.6)`,
//! `(faults C24)`, `(engines G.2)`.

use crate::markdown::{Document, ROOT, documents, files};
use crate::matrix;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Names by which code cites documents.
const CITED: [(&str, &str); 4] = [
    ("wire-format", "docs/wire-format.md"),
    ("faults", "docs/faults.md"),
    ("engines", "docs/engines.md"),
    ("messages", "docs/messages.md"),
];

/// Numbered sections of a document, each with the numbers of the rules in its lists; and the ids of faults.
struct Sections {
    rules: BTreeMap<String, BTreeSet<u32>>,
    rows: BTreeSet<String>,
}

impl Sections {
    fn of(document: &Document) -> Self {
        let mut rules: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        let mut section = String::new();
        for line in document.prose.lines() {
            if line.starts_with('#') {
                let first = line
                    .trim_start_matches('#')
                    .trim()
                    .split(' ')
                    .next()
                    .unwrap_or_default();
                section = first.trim_end_matches('.').to_owned();
                rules.entry(section.clone()).or_default();
            } else if let Some(number) = line
                .split_once(". ")
                .and_then(|(number, _)| number.parse().ok())
            {
                rules.entry(section.clone()).or_default().insert(number);
            }
        }
        let is_faults = document.path.ends_with("faults.md");
        Self {
            rules,
            rows: if is_faults {
                matrix::ids()
            } else {
                BTreeSet::new()
            },
        }
    }

    /// Returns true if the cited section, row or rule exists.
    fn have(&self, citation: &Citation) -> bool {
        let of = |number: &u32| {
            self.rules
                .get(&citation.section)
                .is_some_and(|rules| rules.contains(number))
        };
        let is_row = self.rows.contains(&citation.section);
        (self.rules.contains_key(&citation.section) || is_row)
            && citation.rule.as_ref().is_none_or(of)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Citation {
    document: &'static str,
    section: String,
    rule: Option<u32>,
}

/// Returns true if a word is the number of a section or a row: `4.6`, `11`, `E.2`, `G`, `C17b`.
fn is_number(word: &str) -> bool {
    let mut parts = word.split('.');
    let first = parts.next().unwrap_or_default();
    let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let inner = first
        .strip_prefix(|c: char| c.is_ascii_uppercase())
        .unwrap_or(first);
    let row = inner
        .strip_suffix(|c: char| c.is_ascii_lowercase())
        .unwrap_or(inner);
    let starts = digits(row) || first.len() == 1 && inner.is_empty();
    starts && parts.all(digits)
}

/// Returns the citations in a text. A citation continues over commas, dashes and `and`, and may be wrapped in a
/// comment.
fn citations(text: &str) -> Vec<Citation> {
    let lines = text.lines().map(|line| {
        line.trim_start()
            .trim_start_matches(['/', '!', '#', '*'])
            .trim_start()
    });
    let text = lines.collect::<Vec<_>>().join(" ");
    let mut found: Vec<Citation> = Vec::new();
    for (name, document) in CITED {
        for (at, _) in text.match_indices(&format!("{name} ")) {
            if text[..at].ends_with(|c: char| c.is_alphanumeric() || "_-/.".contains(c)) {
                continue;
            }
            let rest: String = text[at + name.len()..].chars().take(120).collect();
            let rest = rest.replace('–', " – ").replace(',', " , ");
            let mut is_of_rule = false;
            let first = found.len();
            for whole in rest.split_whitespace() {
                let word = whole.trim_end_matches([')', ';', ':', '"', '`', '.']);
                if is_of_rule {
                    let number = word.parse().ok();
                    if let Some(last) = found.last_mut() {
                        last.rule = number;
                    }
                } else if is_number(word) {
                    found.push(Citation {
                        document,
                        section: word.to_owned(),
                        rule: None,
                    });
                } else if found.len() == first || !["–", ",", "and", "rule"].contains(&word) {
                    // A number directly after the name begins a citation: "10 messages and 600 tokens" is none.
                    break;
                }
                is_of_rule = word == "rule";
                if whole != word {
                    break;
                }
            }
        }
    }
    found
}

fn sections() -> BTreeMap<&'static str, Sections> {
    CITED
        .map(|(_, path)| (path, Sections::of(&Document::read(path))))
        .into()
}

/// Returns every text file of the program, its tests and benches, with its path.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in ["src", "tests", "benches", "config", ".ci"] {
        files(&Path::new(ROOT).join(folder), &mut |path| {
            let name = path
                .strip_prefix(ROOT)
                .expect("below the root")
                .display()
                .to_string();
            // The examples in this file cite sections that do not exist.
            if name != "tests/docs/documents/citations.rs" {
                found.extend(std::fs::read_to_string(&path).ok().map(|text| (name, text)));
            }
        });
    }
    found
}

#[test]
fn every_citation_resolves() {
    let sections = sections();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (path, text) in sources() {
        for citation in citations(&text) {
            count += 1;
            if !sections[citation.document].have(&citation) {
                wrong.push(format!("{path}: {citation:?}"));
            }
        }
    }
    assert!(count > 200, "{count} citations");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Rules of answers cite only sections of the wire format, and the worked examples those of their API's format.
#[test]
fn rules_and_worked_examples_name_sections() {
    let rules = std::fs::read_to_string(Path::new(ROOT).join("src/core/wire/rule.rs")).unwrap();
    let cited: Vec<_> = rules
        .lines()
        .filter_map(|line| {
            line.trim()
                .strip_prefix("/// ")?
                .rsplit_once(" (")?
                .1
                .strip_suffix(").")
        })
        .filter(|cited| cited.starts_with(|c: char| c.is_ascii_digit()))
        .map(|cited| format!("wire-format {cited}"))
        .collect();
    assert!(cited.len() > 20, "{cited:?}");
    let mut examples = 0;
    let mut texts = cited;
    files(&Path::new(ROOT).join("fixtures/vectors"), &mut |path| {
        let text = std::fs::read_to_string(&path).unwrap();
        let vector: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&text).unwrap();
        let document = if vector["client_api"] == "messages" {
            "messages"
        } else {
            "wire-format"
        };
        texts.push(format!(
            "{document} {}",
            vector["section"].as_str().unwrap()
        ));
        examples += 1;
    });
    assert!(examples > 50, "{examples} examples");
    let sections = sections();
    for text in texts {
        let found = citations(&text);
        assert!(!found.is_empty(), "{text}");
        assert!(
            found
                .iter()
                .all(|citation| sections[citation.document].have(citation)),
            "{text}"
        );
    }
}

/// Comments may link to a document's heading, and name fixtures by their path.
#[test]
fn links_and_fixtures_in_comments_are_there() {
    let documents = documents();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (path, text) in sources()
        .into_iter()
        .filter(|(path, _)| path.ends_with(".rs"))
    {
        let comments = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("//"));
        let ends = |c: char| c.is_whitespace() || "`,;()\"".contains(c);
        for word in comments
            .flat_map(|line| line.split(ends))
            .map(|word| word.trim_end_matches(['.', ':', '/']))
        {
            if !word.starts_with("docs/") && !word.starts_with("fixtures/")
                || word.contains(['<', '*', '…', '{'])
            {
                continue;
            }
            count += 1;
            let (file, anchor) = word.split_once('#').unwrap_or((word, ""));
            let known = documents
                .iter()
                .find(|document| document.path == Path::new(file));
            let named = anchor.is_empty()
                || known.is_some_and(|document| document.anchors().contains(anchor));
            if !Path::new(ROOT).join(file).exists() || !named {
                wrong.push(format!("{path}: {word}"));
            }
        }
    }
    assert!(count > 10, "{count} links and paths");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The citation parser is tested here, because the other tests rely on it.
#[test]
fn citations_are_read() {
    let text = "// Numbers (wire-format 4.6 rule 1, 4.7–4.9; faults C24\n    /// and O05). See engines E.2: x\n\
                faults are many, my-faults 3, (faults U01). A test, (engines A.1; 235 tokens), `engines G`, faults 7, class A,\n\
                two messages and 600 tokens (messages 4.2)";
    let found: Vec<_> = citations(text)
        .into_iter()
        .map(|found| (found.document, found.section, found.rule))
        .collect();
    let (wire, faults, engines) = (CITED[0].1, CITED[1].1, CITED[2].1);
    let expected = [
        (wire, "4.6", Some(1)),
        (wire, "4.7", None),
        (wire, "4.9", None),
        (faults, "C24", None),
        (faults, "O05", None),
        (faults, "U01", None),
        (faults, "7", None),
        (engines, "E.2", None),
        (engines, "A.1", None),
        (engines, "G", None),
        (CITED[3].1, "4.2", None),
    ];
    assert_eq!(
        found,
        expected.map(|(document, section, rule)| (document, section.to_owned(), rule))
    );
    let document = Document::of("faults.md", "## 4. A\n\n### 4.6 B\n\n1. one\n".to_owned());
    let sections = Sections::of(&document);
    let have = |section: &str, rule| {
        sections.have(&Citation {
            document: wire,
            section: section.to_owned(),
            rule,
        })
    };
    assert!(have("4", None) && have("4.6", Some(1)) && have("U12b", None));
    assert!(!have("4.7", None) && !have("4.6", Some(2)) && !have("U99", None));
}
