//! Paths: `root_path`, a prefix under which all routes are available as well, and `[relay]`, the routes that pass
//! to engines unchanged (docs/configure.md#relayed-routes).

use super::mistakes::Mistakes;
use super::rows::{self, table};

/// Inference routes of engines that are relayed by default, without rewriting.
const PATHS: [&str; 17] = [
    "/v1/rerank",
    "/rerank",
    "/v2/rerank",
    "/v1/score",
    "/score",
    "/pooling",
    "/classify",
    "/tokenize",
    "/detokenize",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/audio/speech",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/images/variations",
    "/v1/moderations",
    "/generate",
];

/// Routes that samewire handles itself. Engines have others below them, such as `/v1/chat/completions/batch`.
const OWN: [&str; 4] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/health",
];
/// Routes that samewire handles itself, including all paths below them.
const OWN_BELOW: [&str; 5] = [
    "/v1/responses",
    "/v1/conversations",
    "/v1/messages",
    "/v1/models",
    "/openai",
];

/// Longest path in bytes that the configuration accepts.
const LONGEST: usize = 256;

table! {
    /// Table `[relay]` as written: relayed paths, in addition to the defaults or removed from them.
    RelayFile {
        paths: Vec<String>;
        rewritten: Vec<String>;
    }
}

/// Checked set of the paths that are relayed to engines, with or without rewriting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relayed {
    paths: Vec<String>,
    /// Paths whose requests are rewritten if they belong to an API that samewire knows.
    rewritten: Vec<String>,
}

const MUST: &str = "must be a path such as /v1/rerank, of at most 256 letters, digits and ._~-, without a query or a slash at its \
                    end";

impl Relayed {
    /// Checks the entries. Starts from the default paths, adds those listed, and removes those with a leading `!`.
    pub(super) fn resolve(file: &RelayFile, mistakes: &mut Mistakes) -> Self {
        let mut paths: Vec<String> = PATHS.map(str::to_owned).into();
        for (place, entry) in file.paths.iter().enumerate() {
            let mut wrong = |why: String| mistakes.add(format!("relay.paths[{place}]"), why);
            let (removes, path) = entry
                .strip_prefix('!')
                .map_or((false, entry.as_str()), |path| (true, path));
            let known = paths.iter().position(|known| known == path);
            match (removes, known) {
                (true, Some(at)) => _ = paths.remove(at),
                (true, None) => wrong(format!("'{path}' is not relayed, so it cannot be removed")),
                (false, Some(_)) => {}
                (false, None) if !is_path(path) => {
                    wrong(format!("{MUST}; a ! before it removes it"))
                }
                (false, None) if is_own(path) => {
                    wrong(format!("samewire answers '{path}' by itself"))
                }
                (false, None) => paths.push(path.to_owned()),
            }
        }
        for (place, path) in file.rewritten.iter().enumerate() {
            let mut wrong = |why: String| mistakes.add(format!("relay.rewritten[{place}]"), why);
            match path {
                path if !is_path(path) => wrong(MUST.to_owned()),
                path if is_own(path) => wrong(format!("samewire answers '{path}' by itself")),
                path if !paths.contains(path) => paths.push(path.clone()),
                _ => {}
            }
        }
        Self {
            paths,
            rewritten: file.rewritten.clone(),
        }
    }

    /// Returns true if requests to this path are rewritten when they belong to a known API.
    pub fn rewrites(&self, path: &str) -> bool {
        self.rewritten.iter().any(|known| known == path)
    }

    /// Returns the paths that are relayed, to register a route for each.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// Returns true if the path is relayed. Compares it as it is, without normalising.
    pub fn has(&self, path: &str) -> bool {
        self.paths.iter().any(|known| known == path)
    }
}

/// Parses `root_path`, which corresponds to vLLM's `--root-path`: a path such as `/llm`, with an optional slash at
/// the end. Empty: no prefix.
pub(super) fn root_path(given: &str, mistakes: &mut Mistakes) -> Option<String> {
    let path = given.strip_suffix('/').unwrap_or(given);
    if path.is_empty() {
        return None;
    }
    if !is_path(path) {
        let must = "must be a path such as /llm, of at most 256 letters, digits and ._~-";
        return mistakes.add_none("root_path", must);
    }
    Some(path.to_owned())
}

/// Returns the part of a path before one of samewire's routes at its end; `None` if it ends in no such route.
pub(super) fn before_route(path: &str) -> Option<&str> {
    let below_v1 = OWN
        .iter()
        .chain(&OWN_BELOW)
        .chain(&PATHS)
        .filter_map(|route| route.strip_prefix("/v1/"));
    let before = |route: &str| {
        path.strip_suffix(route)?
            .strip_suffix('/')
            .filter(|base| base.ends_with("/v1"))
    };
    let chat = path.strip_suffix("/chat/completions");
    below_v1
        .into_iter()
        .find_map(before)
        .or(chat)
        .or_else(|| path.strip_suffix("/health"))
}

fn is_path(path: &str) -> bool {
    let good = |part: &str| {
        !matches!(part, "" | "." | "..")
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte))
    };
    path.len() <= LONGEST
        && path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(good))
}

fn is_own(path: &str) -> bool {
    let is_below = |own: &&str| {
        path.strip_prefix(*own)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    OWN.contains(&path) || OWN_BELOW.iter().any(is_below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_added_and_removed() {
        let mut mistakes = Mistakes::default();
        let paths = [
            "!/generate",
            "/flush_cache",
            "/flush_cache",
            "!/rerank",
            "/rerank",
        ];
        let file = RelayFile {
            paths: paths.map(str::to_owned).into(),
            ..RelayFile::default()
        };
        let relayed = Relayed::resolve(&file, &mut mistakes);
        assert_eq!(mistakes, Mistakes::default());
        for (path, is_relayed) in [
            ("/v1/rerank", true),
            ("/v1/rerank/", false),
            ("/V1/rerank", false),
            ("/generate", false),
            ("/flush_cache", true),
            ("/rerank", true),
            ("/server_info", false),
        ] {
            assert_eq!(relayed.has(path), is_relayed, "{path}");
        }
    }

    #[test]
    fn what_is_rewritten_is_relayed_else() {
        let mut mistakes = Mistakes::default();
        let rewritten = ["/invocations", "/generate", "/v1/models", "x"]
            .map(str::to_owned)
            .into();
        let relayed = Relayed::resolve(
            &RelayFile {
                rewritten,
                ..RelayFile::default()
            },
            &mut mistakes,
        );
        for path in ["/invocations", "/generate"] {
            assert!(relayed.has(path) && relayed.rewrites(path), "{path}");
        }
        assert!(
            relayed.has("/rerank") && !relayed.rewrites("/rerank") && !relayed.has("/v1/models")
        );
        let mistakes = mistakes.to_string();
        assert!(
            mistakes.contains("relay.rewritten[2]") && mistakes.contains("relay.rewritten[3]"),
            "{mistakes}"
        );
    }

    #[test]
    fn a_root_path_is_a_path() {
        for (given, path, is_mistake) in [
            ("", None, false),
            ("/", None, false),
            ("/llm", Some("/llm"), false),
            ("/llm/", Some("/llm"), false),
            ("/a/b.c", Some("/a/b.c"), false),
            ("llm", None, true),
            ("/a//b", None, true),
            ("/../a", None, true),
            ("/{a}", None, true),
        ] {
            let mut mistakes = Mistakes::default();
            assert_eq!(root_path(given, &mut mistakes).as_deref(), path, "{given}");
            assert_eq!(
                mistakes.to_string().contains("root_path"),
                is_mistake,
                "{given}: {mistakes}"
            );
        }
    }

    #[test]
    fn what_is_no_path_or_not_to_be_relayed_is_a_mistake() {
        for path in [
            "",
            "rerank",
            "/",
            "/a/",
            "//a",
            "/a//b",
            "/a/../b",
            "/./a",
            "/a?b=c",
            "/a#b",
            "/a b",
            "/ä",
            "/a%2fb",
            "!/nothing",
            "!",
            "/v1/models",
            "/v1/chat/completions",
            "/v1/responses/x",
            "/openai/v1/x",
            "/health",
        ] {
            let mut mistakes = Mistakes::default();
            let file = RelayFile {
                paths: vec![path.to_owned()],
                ..RelayFile::default()
            };
            Relayed::resolve(&file, &mut mistakes);
            assert!(
                mistakes.to_string().contains("relay.paths[0]"),
                "{path}: {mistakes}"
            );
        }
    }
}
