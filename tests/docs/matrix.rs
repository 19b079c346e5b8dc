//! Every row of the fault matrix in `docs/faults.md` has a test that is named after it: `fault_u12_…`, or
//! `fault_u12_u13_…` for several rows. A letter marks the origin of the fault: C for clients, U for engines, O for
//! operations.

use crate::markdown::{self, Document, ROOT};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Fault matrix of the document: its rows, and the tests that it names for them.
struct Matrix {
    /// Rows in lower case. Rows added later between others have a letter after the number.
    rows: BTreeSet<String>,
    /// Tests that the document names for each row.
    named: BTreeMap<String, BTreeSet<String>>,
}

impl Matrix {
    /// Reads the matrix. Rows are in one table, and their tests in another: `| <a id="u12b"></a>U12b | …`, `| U12b
    /// | … |`.
    fn of(document: &Document) -> Self {
        let (mut rows, mut named) = (BTreeSet::new(), BTreeMap::<_, BTreeSet<_>>::new());
        for row in markdown::rows(&document.prose) {
            let anchor = row[0].strip_prefix("<a id=\"").and_then(|rest| rest.split_once("\"></a>"));
            if let Some((anchor, name)) = anchor {
                assert_eq!(anchor, name.to_lowercase());
                assert!(rows.insert(anchor.to_owned()), "{name} stands there twice");
            } else if rows.contains(&row[0].to_lowercase()) {
                let tests = row
                    .iter()
                    .flat_map(|cell| markdown::code(cell))
                    .filter(|code| code.starts_with("fault_"));
                named.entry(row[0].to_lowercase()).or_default().extend(tests.map(str::to_owned));
            }
        }
        Self { rows, named }
    }

    fn read() -> Self {
        let matrix = Self::of(&Document::read("docs/faults.md"));
        // Rows are never removed.
        assert!(matrix.rows.len() >= 133, "{} rows", matrix.rows.len());
        matrix
    }
}

/// Collects the texts of all Rust files below a folder.
fn texts(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// Returns the texts of the tests, and of the program with its unit tests.
fn sources() -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["tests", "src"] {
        texts(&Path::new(ROOT).join(folder), &mut found);
    }
    found
}

/// Returns the names of all tests in a text: functions directly below a test attribute.
fn tests(text: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    let (mut test, mut ignored) = (false, false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            ignored |= line.starts_with("#[ignore");
            continue;
        }
        let name = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "));
        if let (true, Some((name, _))) = (test, name.and_then(|name| name.split_once('('))) {
            found.push((name, ignored));
        }
        if !line.starts_with("//") {
            (test, ignored) = (false, false);
        }
    }
    found
}

/// Returns the rows at the start of a test's name.
fn named<'a>(test: &'a str, rows: &'a BTreeSet<String>) -> impl Iterator<Item = &'a str> {
    let words = test.strip_prefix("fault_").into_iter().flat_map(|rest| rest.split('_'));
    words.take_while(|word| rows.contains(*word))
}

#[test]
fn every_row_has_a_test_of_its_name() {
    let Matrix { rows, .. } = Matrix::read();
    let sources = sources();
    let mut held: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (test, ignored) in sources.iter().flat_map(|text| tests(text)) {
        let mut count = 0;
        for row in named(test, &rows) {
            assert!(!ignored, "{test} does not run");
            held.entry(row).or_default().push(test);
            count += 1;
        }
        assert!(count > 0 || !test.starts_with("fault_"), "{test} is named after no row");
    }
    for (row, tests) in &held {
        println!("{row}: {}", tests.join(" "));
    }
    let missing: Vec<_> = rows.iter().filter(|row| !held.contains_key(row.as_str())).collect();
    assert!(missing.is_empty(), "rows without a test: {missing:?}");
}

/// Every test that the document names for a row exists.
#[test]
fn every_test_that_the_document_names_is_there() {
    let Matrix { rows, named: told } = Matrix::read();
    let sources = sources();
    let there: BTreeSet<&str> = sources.iter().flat_map(|text| tests(text)).map(|(test, _)| test).collect();
    let mut wrong = Vec::new();
    for row in &rows {
        let tests: Vec<_> = told.get(row).into_iter().flatten().collect();
        if !tests.iter().any(|test| named(test, &rows).any(|named| named == row)) {
            wrong.push(format!("{row} names no test of its own"));
        }
        let missing = tests.into_iter().filter(|test| !there.contains(test.as_str()));
        wrong.extend(missing.map(|test| format!("{row}: {test}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The parsers are tested here, because the other tests rely on them.
#[test]
fn tests_are_told_from_other_functions() {
    let text = "#[test]\nfn fault_c01_a() {\n}\n/// x\n#[tokio::test(flavor = \"multi_thread\")]\n#[ignore]\n\
                async fn fault_u12b_o07_c() {}\nfn fault_c02_d() {}\n#[test]\nconst fn e() {}\nfn fault_c03_f() {}\n";
    assert_eq!(tests(text), [("fault_c01_a", false), ("fault_u12b_o07_c", true)]);
    let text = "| row | x |\n|---|---|\n| <a id=\"u12b\"></a>U12b | a |\n| <a id=\"o07\"></a>O07 | b |\n\n\
                | row | tests |\n|---|---|\n| U12b | `fault_u12b_x`, `y` |\n";
    let Matrix { rows, named: told } = Matrix::of(&Document::of("x.md", text.to_owned()));
    assert_eq!(rows.iter().collect::<Vec<_>>(), ["o07", "u12b"]);
    assert_eq!(told["u12b"].iter().collect::<Vec<_>>(), ["fault_u12b_x"]);
    assert_eq!(named("fault_u12b_o07_c", &rows).collect::<Vec<_>>(), ["u12b", "o07"]);
    assert_eq!(named("fault_c99_o07", &rows).count() + named("u12_x", &rows).count(), 0);
}
