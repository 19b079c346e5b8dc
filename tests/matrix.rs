//! Every row of the fault matrix has a test that is named after it: `fault_u12_…`, or `fault_u12_u13_…` for one that
//! holds several. Rows are told apart by a letter, for whose fault it is: C for clients, U for engines, O for operations.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Every row of the matrix. Rows that came later than their neighbours have a letter behind the number.
fn rows() -> BTreeSet<String> {
    let numbered = [('c', 46), ('u', 55), ('o', 28)]
        .into_iter()
        .flat_map(|(whose, last)| (1..=last).map(move |n| format!("{whose}{n:02}")));
    numbered.chain(["c17b", "c27b", "u12b", "u45b"].map(str::to_owned)).collect()
}

/// The texts of all Rust files below a folder.
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

/// The names of all tests in a text: functions right below an attribute that makes them one.
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

/// The rows at the beginning of a test's name.
fn named<'a>(test: &'a str, rows: &'a BTreeSet<String>) -> impl Iterator<Item = &'a str> {
    let words = test.strip_prefix("fault_").into_iter().flat_map(|rest| rest.split('_'));
    words.take_while(|word| rows.contains(*word))
}

#[test]
fn every_row_has_a_test_of_its_name() {
    let rows = rows();
    assert_eq!(rows.len(), 133);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    texts(&root.join("tests"), &mut sources);
    texts(&root.join("src"), &mut sources);
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

/// The reading that the other stands on.
#[test]
fn tests_are_told_from_other_functions() {
    let text = "#[test]\nfn fault_c01_a() {\n}\n/// x\n#[tokio::test(flavor = \"multi_thread\")]\n#[ignore]\n\
                async fn fault_u12b_o07_c() {}\nfn fault_c02_d() {}\n#[test]\nconst fn e() {}\nfn fault_c03_f() {}\n";
    assert_eq!(tests(text), [("fault_c01_a", false), ("fault_u12b_o07_c", true)]);
    let rows = rows();
    assert_eq!(named("fault_u12b_o07_c", &rows).collect::<Vec<_>>(), ["u12b", "o07"]);
    assert_eq!(named("fault_c99_o07", &rows).count() + named("u12_x", &rows).count(), 0);
}
