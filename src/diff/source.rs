//! Sources of answers: folders with an exchange, folders of such folders, or single bodies.
//!
//! Takes: two paths. Gives: pairs of answers, and what one side alone has. Never: compares a folder with a file.

use super::answer::{Answer, Form, Head, Mistake};
use crate::replay::{self, LoadError, Scenario};
use http::header::CONTENT_TYPE;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Stems and extensions of a body's file in a folder.
const STEMS: [&str; 2] = ["upstream", "response"];
/// Extensions of bodies, with the form of each.
const KINDS: [(&str, Form); 3] = [
    ("sse", Form::Events),
    ("json", Form::Json),
    ("txt", Form::Text),
];

/// Answers to compare.
#[derive(Debug)]
pub struct Compared {
    /// Answers of both sides.
    pub pairs: Vec<Pair>,
    /// Names of exchanges that only A has.
    pub only_a: Vec<String>,
    /// Names of exchanges that only B has.
    pub only_b: Vec<String>,
}

/// Answers of both sides that belong together.
#[derive(Debug)]
pub struct Pair {
    /// Name that both have; `None` if two single answers are compared.
    pub name: Option<String>,
    /// Answer of A.
    pub a: Answer,
    /// Answer of B.
    pub b: Answer,
}

/// Reason why two paths cannot be compared.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// File or folder that cannot be read, and the error.
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    /// Folder that is no recorded exchange, or a broken one.
    #[error("{0}")]
    Folder(LoadError),
    /// File with a mistake in a line.
    #[error("{0}: line {line}: {why}", line = .1.line, why = .1.why)]
    Line(PathBuf, Mistake),
    /// File whose name does not say what is in it.
    #[error("{0}: a body must be a file named .sse, .json or .txt")]
    Extension(PathBuf),
    /// Two paths of different kinds, or without an exchange of the same name.
    #[error("{0}")]
    Unpaired(String),
}

/// Loads what two paths hold.
///
/// # Errors
/// Fails with the first file that cannot be read, or if nothing is to be compared.
pub fn load(a: &Path, b: &Path) -> Result<Compared, Unreadable> {
    match (kind(a)?, kind(b)?) {
        (Place::Body, Place::Body) => Ok(one(body(a)?, body(b)?)),
        (Place::Exchange, Place::Exchange) => Ok(one(exchange(a)?, exchange(b)?)),
        (Place::Folder, Place::Folder) => folders(a, b),
        (one, two) => {
            let (a, b) = (a.display(), b.display());
            let why = format!(
                "{a} is {}, and {b} is {}; both must be of one kind",
                one.name(),
                two.name()
            );
            Err(Unreadable::Unpaired(why))
        }
    }
}

/// Kinds of paths that can be compared.
#[derive(Clone, Copy)]
enum Place {
    Body,
    Exchange,
    Folder,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Body => "a file",
            Self::Exchange => "one exchange",
            Self::Folder => "a folder of exchanges",
        }
    }
}

fn kind(path: &Path) -> Result<Place, Unreadable> {
    let is_folder = path
        .metadata()
        .map_err(|error| Unreadable::File(path.to_owned(), error))?
        .is_dir();
    Ok(match is_folder {
        false => Place::Body,
        true if path.join("request.json").is_file() => Place::Exchange,
        true => Place::Folder,
    })
}

fn one(a: Answer, b: Answer) -> Compared {
    Compared {
        pairs: vec![Pair { name: None, a, b }],
        only_a: Vec::new(),
        only_b: Vec::new(),
    }
}

fn body(path: &Path) -> Result<Answer, Unreadable> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let form = KINDS
        .into_iter()
        .find(|(kind, _)| Some(*kind) == extension)
        .map(|(_, form)| form);
    let form = form.ok_or_else(|| Unreadable::Extension(path.to_owned()))?;
    let bytes = std::fs::read(path).map_err(|error| Unreadable::File(path.to_owned(), error))?;
    Answer::read(form, &bytes, false, None)
        .map_err(|mistake| Unreadable::Line(path.to_owned(), mistake))
}

fn exchange(path: &Path) -> Result<Answer, Unreadable> {
    let mut all = scenarios(path)?;
    let (folder, scenario) = all
        .pop_first()
        .map(|(_, found)| found)
        .ok_or_else(|| Unreadable::Folder(LoadError::Nothing(path.to_owned())))?;
    answer(&folder, &scenario)
}

/// Loads the exchanges of a folder, by their names within it, each with its folder.
fn scenarios(path: &Path) -> Result<BTreeMap<String, (PathBuf, Scenario)>, Unreadable> {
    let all = replay::load(&[path.to_owned()]).map_err(Unreadable::Folder)?;
    Ok(all
        .into_iter()
        .map(|scenario| {
            // The name begins with that of the folder itself.
            let within = scenario
                .name
                .split_once('/')
                .map_or("", |(_, within)| within)
                .to_owned();
            let folder = if within.is_empty() {
                path.to_owned()
            } else {
                path.join(&within)
            };
            (within, (folder, scenario))
        })
        .collect())
}

fn answer(folder: &Path, scenario: &Scenario) -> Result<Answer, Unreadable> {
    let files = STEMS
        .iter()
        .flat_map(|stem| KINDS.map(|(kind, form)| (format!("{stem}.{kind}"), form)));
    let file = files
        .map(|(name, form)| (folder.join(name), form))
        .find(|(path, _)| path.is_file());
    // An empty body has no file.
    let (path, form) = file.unwrap_or_else(|| (folder.to_owned(), Form::Text));
    let content_type = scenario.headers.get(CONTENT_TYPE);
    let content_type =
        content_type.map(|value| String::from_utf8_lossy(value.as_bytes()).to_lowercase());
    let head = Head {
        status: scenario.status.as_u16(),
        content_type,
    };
    let body = scenario.frames.concat();
    // The answer to HEAD has the content type of a body that is not there.
    let form = if scenario.method == "HEAD" {
        Form::Text
    } else {
        form
    };
    Answer::read(form, &body, scenario.reset, Some(head))
        .map_err(|mistake| Unreadable::Line(path, mistake))
}

/// Pairs the exchanges of two folders by their names.
fn folders(a: &Path, b: &Path) -> Result<Compared, Unreadable> {
    let (one, mut two) = (scenarios(a)?, scenarios(b)?);
    let (mut pairs, mut only_a) = (Vec::new(), Vec::new());
    for (name, (folder, scenario)) in one {
        match two.remove(&name) {
            Some((other, partner)) => {
                let (a, b) = (answer(&folder, &scenario)?, answer(&other, &partner)?);
                pairs.push(Pair {
                    name: Some(name),
                    a,
                    b,
                });
            }
            None => only_a.push(name),
        }
    }
    if pairs.is_empty() {
        let why = format!(
            "{} and {} have no exchange of the same name",
            a.display(),
            b.display()
        );
        return Err(Unreadable::Unpaired(why));
    }
    Ok(Compared {
        pairs,
        only_a,
        only_b: two.into_keys().collect(),
    })
}
