//! The lists of CONTRIBUTING for something new are complete: a file that lists what there is of a kind is named there.

use crate::documents::metrics;
use crate::markdown::{Document, ROOT, files};
use samewire::engine::ENGINES;
use samewire::wire::rule::Rule;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::process::Command;

/// Members of an answer's chunks that come at times, and that samewire reads or keeps.
const FIELDS: [&str; 8] = [
    "system_fingerprint",
    "service_tier",
    "prompt_logprobs",
    "token_ids",
    "stop_reason",
    "reasoning_content",
    "refusal",
    "logprobs",
];
const ANYWHERE: &[&str] = &[""];
/// Name that nothing has.
const INVENTED: &str = "invented-by-a-test";

/// Texts of the project by their paths.
type Sources = BTreeMap<String, Source>;

#[derive(Clone)]
struct Source {
    text: String,
    /// Words of the text, so that most names are found to be absent at once.
    words: HashSet<String>,
}

impl Source {
    fn new(text: String) -> Self {
        let words = text
            .split(|c: char| !is_of_word(c))
            .map(str::to_owned)
            .collect();
        Self { text, words }
    }

    fn push(&mut self, text: &str) {
        *self = Self::new(format!("{}\n{text}\n", self.text));
    }
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-".contains(c)
}

/// Something of which there may be more.
struct Kind {
    /// Heading of its list.
    heading: &'static str,
    /// Names of those that there are.
    names: Vec<String>,
    /// Ways in which files write a name.
    spelled: fn(&str) -> Vec<String>,
    /// Beginnings of the paths that matter: other files name some of these for other reasons.
    within: &'static [&'static str],
}

impl Kind {
    /// Returns the files that list this kind: they name three quarters of all, or more.
    fn places<'s>(&self, sources: &'s Sources) -> BTreeSet<&'s str> {
        let lists = |text: &Source| {
            let named = self
                .names
                .iter()
                .filter(|name| self.is_named(name, text))
                .count();
            named * 4 >= self.names.len() * 3
        };
        let is_within = |path: &str| self.within.iter().any(|start| path.starts_with(start));
        let places = sources
            .iter()
            .filter(|(path, text)| is_within(path) && lists(text));
        places.map(|(path, _)| path.as_str()).collect()
    }

    /// Returns the names that a list lacks which has nearly all of them.
    fn gaps(&self, text: &Source) -> Vec<&str> {
        let lacks = self.names.iter().filter(|name| !self.is_named(name, text));
        let lacks: Vec<_> = lacks.map(String::as_str).collect();
        if lacks.len() * 10 < self.names.len() {
            lacks
        } else {
            Vec::new()
        }
    }

    fn is_named(&self, name: &str, source: &Source) -> bool {
        (self.spelled)(name).iter().any(|spelled| {
            let word = spelled
                .trim_matches(|c| !is_of_word(c))
                .rsplit(' ')
                .next()
                .expect("a word");
            let is_end = |c: Option<char>| !c.is_some_and(|c| c.is_ascii_alphanumeric());
            let text = &source.text;
            source.words.contains(word)
                && text.match_indices(spelled.as_str()).any(|(at, _)| {
                    is_end(text[..at].chars().next_back())
                        && is_end(text[at + spelled.len()..].chars().next())
                })
        })
    }
}

fn word(name: &str) -> Vec<String> {
    vec![name.to_owned()]
}

fn quoted(name: &str) -> Vec<String> {
    vec![format!("\"{name}\""), format!("`{name}`")]
}

fn help(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_samewire"))
        .args(arguments)
        .output()
        .expect("it starts");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn commands() -> Vec<String> {
    let help = help(&["--help"]);
    let list = help
        .split("\nCommands:\n")
        .nth(1)
        .and_then(|rest| rest.split("\n\n").next())
        .expect("commands");
    let names = list
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// Returns the keys of the annotated configuration, without their tables.
fn keys() -> Vec<String> {
    let file = std::fs::read_to_string(Path::new(ROOT).join("config/samewire.toml")).unwrap();
    let names = file
        .lines()
        .filter_map(|line| line.trim_start_matches('#').split_once(" = "));
    let is_key = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_lowercase() || b"_0123456789".contains(&byte))
    };
    let names: BTreeSet<_> = names
        .map(|(name, _)| name.to_owned())
        .filter(|name| is_key(name))
        .collect();
    names.into_iter().collect()
}

fn kinds() -> [Kind; 7] {
    let is_one = |name: &str| !["auto", "generic"].contains(&name);
    let rules = ENGINES
        .iter()
        .flat_map(|engine| engine.rules())
        .map(|rule| rule.name.to_owned());
    let rules: BTreeSet<String> = rules.collect();
    [
        Kind {
            heading: "### An engine",
            names: ENGINES
                .iter()
                .map(|engine| engine.name)
                .filter(|name| is_one(name))
                .map(str::to_owned)
                .collect(),
            spelled: word,
            within: ANYWHERE,
        },
        Kind {
            heading: "### A rule for an engine's requests",
            names: rules.into_iter().collect(),
            spelled: quoted,
            within: ANYWHERE,
        },
        Kind {
            heading: "### A rule for answers",
            names: Rule::ALL
                .iter()
                .map(|rule| rule.name().to_owned())
                .collect(),
            spelled: quoted,
            within: ANYWHERE,
        },
        Kind {
            heading: "### A field",
            names: FIELDS.map(str::to_owned).into(),
            spelled: word,
            // Documents and recorded traffic name fields one by one, and tools that look at answers read any field.
            within: &["src/core/wire/", "tests/", "benches/"],
        },
        Kind {
            heading: "### A configuration key",
            names: keys(),
            spelled: |name| vec![format!("{name} =")],
            within: ANYWHERE,
        },
        Kind {
            heading: "### A metric",
            names: metrics().into_iter().collect(),
            spelled: |name| {
                ["", "_bucket", "_count", "_sum"]
                    .map(|part| format!("{name}{part}"))
                    .into()
            },
            within: ANYWHERE,
        },
        Kind {
            heading: "### A command",
            names: commands(),
            spelled: |name| [quoted(name), vec![format!("samewire {name}")]].concat(),
            within: ANYWHERE,
        },
    ]
}

/// Reads the project, without recordings, this file, and the document that is tested.
fn sources() -> Sources {
    let root = Path::new(ROOT);
    let mut found = Sources::new();
    for folder in ["src", "tests", "benches", "config", "docs", ".ci"] {
        files(&root.join(folder), &mut |path| {
            let name = path
                .strip_prefix(root)
                .unwrap()
                .to_str()
                .expect("UTF-8")
                .to_owned();
            let text = std::fs::read_to_string(&path)
                .ok()
                .filter(|_| name != "tests/docs/additions.rs");
            found.extend(text.map(|text| (name, Source::new(text))));
        });
    }
    for name in ["README.md", "Cargo.toml", "Dockerfile"] {
        let text = std::fs::read_to_string(root.join(name)).unwrap();
        found.insert(name.to_owned(), Source::new(text));
    }
    found
}

#[test]
fn each_file_that_lists_a_kind_is_in_its_list() {
    let (document, sources) = (Document::read("CONTRIBUTING.md"), sources());
    let mut missing = Vec::new();
    for kind in kinds() {
        let (list, places) = (document.section(kind.heading), kind.places(&sources));
        assert!(
            kind.names.len() >= 8 && !places.is_empty(),
            "{}: {:?}",
            kind.heading,
            kind.names
        );
        // Files that have to name every metric are tested with the guide and the dashboards.
        for path in places.iter().filter(|_| kind.heading != "### A metric") {
            assert_eq!(
                kind.gaps(&sources[*path]),
                [""; 0],
                "{}: {path} lists all others",
                kind.heading
            );
        }
        let absent = places.into_iter().filter(|path| !list.contains(path));
        missing.extend(absent.map(|path| format!("{}: {path}", kind.heading)));
    }
    assert!(
        missing.is_empty(),
        "CONTRIBUTING.md lacks\n{}",
        missing.join("\n")
    );
}

/// An invented engine, rule, field, key, metric and command is missing in each file that lists its kind. After the list
/// has been followed, and nothing else been done, none of them lacks it.
#[test]
fn an_invented_one_is_complete_by_its_list() {
    let (document, sources) = (Document::read("CONTRIBUTING.md"), sources());
    for kind in kinds() {
        let places = kind.places(&sources);
        let lacks = |sources: &Sources| -> BTreeSet<String> {
            let lacks = places
                .iter()
                .filter(|path| !kind.is_named(INVENTED, &sources[**path]));
            lacks.map(|path| (*path).to_owned()).collect()
        };
        assert_eq!(lacks(&sources).len(), places.len(), "{}", kind.heading);
        let mut followed = sources.clone();
        for (_, text) in followed
            .iter_mut()
            .filter(|(path, _)| document.section(kind.heading).contains(*path))
        {
            text.push(&(kind.spelled)(INVENTED)[0]);
        }
        assert_eq!(lacks(&followed), BTreeSet::new(), "{}", kind.heading);
    }
}
