//! Every row of `tests/faults.toml` has a test that is named after it: `fault_u12_…`, or `fault_u12_u13_…` for several
//! rows. A letter marks the origin of the fault: C for clients, U for engines, O for operations.

use crate::markdown::{ROOT, files};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Faults, and properties that always hold.
#[derive(Deserialize)]
struct Matrix {
    fault: Vec<Row>,
    property: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    id: String,
    /// Tests by file.
    #[serde(default)]
    tests: BTreeMap<String, Vec<String>>,
    /// Files that test a property.
    #[serde(default)]
    held_by: Vec<String>,
    #[serde(flatten)]
    texts: BTreeMap<String, String>,
}

impl Matrix {
    fn read() -> Self {
        let text = std::fs::read_to_string(Path::new(ROOT).join("tests/faults.toml")).unwrap();
        let matrix: Self = toml::from_str(&text).unwrap();
        // Rows are never removed.
        assert!(matrix.fault.len() >= 133, "{} rows", matrix.fault.len());
        let ids: BTreeSet<_> = matrix.all().map(|row| &row.id).collect();
        assert_eq!(ids.len(), matrix.all().count(), "an id is there twice");
        matrix
    }

    fn all(&self) -> impl Iterator<Item = &Row> {
        self.fault.iter().chain(&self.property)
    }

    /// Returns the ids of the faults, in lower case.
    fn rows(&self) -> BTreeSet<String> {
        self.fault.iter().map(|row| row.id.to_lowercase()).collect()
    }
}

/// Returns the ids of all faults and properties.
pub fn ids() -> BTreeSet<String> {
    Matrix::read().all().map(|row| row.id.clone()).collect()
}

/// Returns the texts of the tests, and of the program with its unit tests, by path.
fn sources() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in ["tests", "src"] {
        files(&Path::new(ROOT).join(folder), &mut |path| {
            if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(ROOT).unwrap().display().to_string();
                found.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        });
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
        let name = line
            .strip_prefix("async fn ")
            .or_else(|| line.strip_prefix("fn "));
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
    let words = test
        .strip_prefix("fault_")
        .into_iter()
        .flat_map(|rest| rest.split('_'));
    words.take_while(|word| rows.contains(*word))
}

/// Every row names the tests that are named after it, at least one, and they run.
#[test]
fn every_row_has_tests_of_its_name() {
    let (matrix, sources) = (Matrix::read(), sources());
    let rows = matrix.rows();
    let mut there = BTreeMap::new();
    let mut missing: BTreeSet<_> = rows.iter().map(String::as_str).collect();
    for (file, text) in &sources {
        for (test, ignored) in tests(text) {
            let of_rows: BTreeSet<_> = named(test, &rows).collect();
            let is_fault = test.starts_with("fault_");
            assert!(
                !is_fault || !ignored && !of_rows.is_empty(),
                "{test} has no row, or does not run"
            );
            missing.retain(|row| !of_rows.contains(row));
            there.insert((file.as_str(), test), of_rows);
        }
    }
    assert!(missing.is_empty(), "rows without a test: {missing:?}");
    for Row { id, tests, .. } in &matrix.fault {
        let tests = tests
            .iter()
            .flat_map(|(file, names)| names.iter().map(move |name| (&**file, &**name)));
        for at in tests {
            let of_rows = there
                .get_mut(&at)
                .unwrap_or_else(|| panic!("{id}: {at:?} is not there"));
            let is_its = of_rows.remove(id.to_lowercase().as_str()) || !at.1.starts_with("fault_");
            assert!(is_its, "{id}: {at:?} is named after other rows");
        }
    }
    there.retain(|_, of_rows| !of_rows.is_empty());
    assert!(
        there.is_empty(),
        "tests that their rows do not name: {there:?}"
    );
}

#[test]
fn every_row_has_its_texts() {
    let matrix = Matrix::read();
    for Row {
        id, texts, held_by, ..
    } in matrix.all()
    {
        assert!(
            texts.values().all(|text| !text.trim().is_empty()),
            "{id} has an empty text"
        );
        assert!(
            held_by
                .iter()
                .all(|file| Path::new(ROOT).join(file).is_file()),
            "{id}: {held_by:?}"
        );
        let keys: Vec<_> = texts.keys().filter(|key| *key != "note").collect();
        let expected: &[_] = match id.chars().next() {
            Some('P') => &["holds", "name"],
            Some('O') => &["client", "fault", "never", "samewire"],
            _ => &["client", "engine", "fault", "never"],
        };
        assert!(
            keys == expected && held_by.is_empty() != id.starts_with('P'),
            "{id}: {keys:?}"
        );
    }
}

/// The parsers are tested here, because the other tests rely on them.
#[test]
fn tests_are_told_from_other_functions() {
    let text = "#[test]\nfn fault_c01_a() {\n}\n/// x\n#[tokio::test(flavor = \"multi_thread\")]\n#[ignore]\n\
                async fn fault_u12b_o07_c() {}\nfn fault_c02_d() {}\n#[test]\nconst fn e() {}\nfn fault_c03_f() {}\n";
    assert_eq!(
        tests(text),
        [("fault_c01_a", false), ("fault_u12b_o07_c", true)]
    );
    let rows = ["o07", "u12b"].map(str::to_owned).into();
    assert_eq!(
        named("fault_u12b_o07_c", &rows).collect::<Vec<_>>(),
        ["u12b", "o07"]
    );
    assert_eq!(
        named("fault_c99_o07", &rows).count() + named("u12_x", &rows).count(),
        0
    );
}
