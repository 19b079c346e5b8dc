//! The routes: which paths there are, what each method of them asks for, and what a path that is none was probably meant
//! to be.

use super::azure::{DOORS, RouteFamily};
use super::browsers::printable;
use super::relayed;
use super::responses::{ConversationPath, Stored};
use crate::config::Relayed;
use crate::telemetry::Route;
use crate::wire::Api;
use crate::wire::fault::{Failure, Fault};
use http::Method;
use strsim::levenshtein;

/// The path at which clients and balancers ask whether requests should come here.
pub(super) const HEALTH: &str = "/health";

/// Bytes of a client's path and of its method that stand in a message.
const SHOWN: (usize, usize) = (120, 20);
/// Bytes of the longest path that is compared with those that there are.
const COMPARED: usize = 120;

/// The meaning of a path and a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Answer(Api),
    Respond,
    /// Responses, as messages of a WebSocket.
    Socket,
    Stored(Stored),
    ToolOutputs,
    InputTokens,
    Compact,
    Conversing(ConversationPath),
    Embeddings,
    /// A route of engines that is relayed.
    Relayed,
    /// One whose requests may be of an API that is rewritten.
    ByBody,
    Models,
    Model,
    /// Whether requests should come here.
    Health,
    /// A page for people, where there is one.
    Page,
    /// A path that takes other methods; the router says which.
    OtherMethod,
    Nothing,
}

impl Target {
    /// Whether it may make an engine work.
    pub(super) fn asks_engine(self) -> bool {
        matches!(
            self,
            Self::Answer(_)
                | Self::Respond
                | Self::Compact
                | Self::InputTokens
                | Self::Embeddings
                | Self::Relayed
                | Self::ByBody
        )
    }

    pub(super) fn route(self) -> Route {
        match self {
            Self::Answer(Api::Chat) => Route::Chat,
            Self::Answer(Api::Completions) => Route::Completions,
            Self::Answer(Api::Responses)
            | Self::Respond
            | Self::Socket
            | Self::Stored(_)
            | Self::ToolOutputs
            | Self::InputTokens
            | Self::Compact => Route::Responses,
            Self::Conversing(_) => Route::Conversations,
            Self::Embeddings => Route::Embeddings,
            Self::Relayed | Self::ByBody => Route::Relay,
            Self::Models | Self::Model => Route::Models,
            Self::Health | Self::Page | Self::OtherMethod | Self::Nothing => Route::Unknown,
        }
    }
}

/// A path behind the prefix of a family of routes, and what its methods ask for.
pub(super) struct Path {
    pub(super) path: &'static str,
    pub(super) doors: &'static [RouteFamily],
    pub(super) get: Option<Target>,
    pub(super) post: Option<Target>,
    pub(super) delete: Option<Target>,
}

impl Path {
    const fn at(path: &'static str, doors: &'static [RouteFamily]) -> Self {
        Self { path, doors, get: None, post: None, delete: None }
    }

    const fn get(self, target: Target) -> Self {
        Self { get: Some(target), ..self }
    }

    const fn post(self, target: Target) -> Self {
        Self { post: Some(target), ..self }
    }

    const fn delete(self, target: Target) -> Self {
        Self { delete: Some(target), ..self }
    }

    /// The methods that it takes.
    fn methods(&self) -> String {
        let all = [("GET", self.get), ("POST", self.post), ("DELETE", self.delete)];
        let taken = all.into_iter().filter(|(_, target)| target.is_some()).map(|(method, _)| method);
        taken.collect::<Vec<_>>().join(" and ")
    }
}

const ALL: &[RouteFamily] =
    &[RouteFamily::Plain, RouteFamily::Undated, RouteFamily::Dated, RouteFamily::Deployment];
/// The doors to routes that name a model in the body or in the path.
const MODEL: &[RouteFamily] = &[RouteFamily::Plain, RouteFamily::Undated, RouteFamily::Deployment];
/// The doors to routes that are about no model.
const OTHER: &[RouteFamily] = &[RouteFamily::Plain, RouteFamily::Undated, RouteFamily::Dated];

/// The paths of all families.
pub(super) static PATHS: &[Path] = &[
    Path::at("/chat/completions", MODEL).post(Target::Answer(Api::Chat)),
    Path::at("/completions", MODEL).post(Target::Answer(Api::Completions)),
    Path::at("/embeddings", MODEL).post(Target::Embeddings),
    Path::at("/responses", ALL).post(Target::Respond).get(Target::Socket),
    Path::at("/responses/{id}", OTHER)
        .get(Target::Stored(Stored::Itself))
        .delete(Target::Stored(Stored::Itself)),
    Path::at("/responses/{id}/input_items", OTHER).get(Target::Stored(Stored::InputItems)),
    Path::at("/responses/{id}/cancel", OTHER).post(Target::Stored(Stored::Cancel)),
    Path::at("/responses/{id}/tool_outputs", OTHER).post(Target::ToolOutputs),
    Path::at("/responses/input_tokens", OTHER).post(Target::InputTokens),
    Path::at("/responses/compact", OTHER).post(Target::Compact),
    Path::at("/conversations", OTHER).post(Target::Conversing(ConversationPath::New)),
    Path::at("/conversations/{id}", OTHER)
        .get(Target::Conversing(ConversationPath::One))
        .post(Target::Conversing(ConversationPath::One))
        .delete(Target::Conversing(ConversationPath::One)),
    Path::at("/conversations/{id}/items", OTHER)
        .get(Target::Conversing(ConversationPath::Items))
        .post(Target::Conversing(ConversationPath::Items)),
    Path::at("/conversations/{id}/items/{item}", OTHER)
        .get(Target::Conversing(ConversationPath::Item))
        .delete(Target::Conversing(ConversationPath::Item)),
    Path::at("/models", OTHER).get(Target::Models),
    Path::at("/models/{*id}", OTHER).get(Target::Model),
];

/// All paths as the router takes them.
pub(super) fn all() -> impl Iterator<Item = (String, RouteFamily, &'static Path)> {
    let with = |path: &'static Path| {
        let of_path = DOORS.into_iter().filter(|(family, _)| path.doors.contains(family));
        of_path.map(move |(family, before)| (format!("{before}{}", path.path), family, path))
    };
    PATHS.iter().flat_map(with)
}

/// Whether a path is one that a pattern of the router stands for.
fn matches(pattern: &str, path: &str) -> bool {
    let (mut patterns, mut parts) = (pattern.split('/'), path.split('/'));
    loop {
        match (patterns.next(), parts.next()) {
            (None, None) => return true,
            (Some(pattern), Some(part)) if pattern.starts_with("{*") => {
                return !part.is_empty() || parts.next().is_some();
            }
            (Some(pattern), Some(part)) if pattern.starts_with('{') && !part.is_empty() => {}
            (Some(pattern), Some(part)) if pattern == part => {}
            _ => return false,
        }
    }
}

/// Whether there is such a path.
fn exists(path: &str, relayed: &Relayed) -> bool {
    path == HEALTH
        || all().any(|(pattern, _, _)| matches(&pattern, path))
        || relayed::find(path, relayed).is_some()
}

/// Returns the refusal of a method that a path does not take, with those that it takes.
pub(super) fn other_method(method: &Method, path: &str) -> Failure {
    // A name that stands for itself goes before one that stands for all.
    let literal = all().find(|(pattern, _, _)| pattern == path);
    let found = literal.or_else(|| all().find(|(pattern, _, _)| matches(pattern, path)));
    let methods = match found {
        Some((_, _, path)) => path.methods(),
        None if path == HEALTH => "GET".to_owned(),
        None => "POST".to_owned(),
    };
    let message = format!("{} takes {methods}, not {}.", shown(path), shown_method(method));
    Failure::from(Fault::MethodNotSupported).with_message(message)
}

/// Returns the refusal of a path that does not exist, with what was probably meant. What stands behind the path is not
/// repeated: it may hold a secret.
pub(super) fn unknown(method: &Method, path: &str, relayed: &Relayed) -> Failure {
    let (method_shown, path_shown) = (shown_method(method), shown(path));
    let hint = match Meant::by(path, relayed) {
        Some(meant) => meant.hint(path),
        None => String::new(),
    };
    let message = format!("Unknown request URL: {method_shown} {path_shown}.{hint}");
    Failure::from(Fault::UnknownUrl).with_message(message)
}

fn shown(path: &str) -> String {
    printable(path.as_bytes(), SHOWN.0)
}

fn shown_method(method: &Method) -> String {
    printable(method.as_str().as_bytes(), SHOWN.1)
}

/// The path that was probably meant.
#[derive(Debug, PartialEq, Eq)]
enum Meant {
    /// The base URL alone.
    Base,
    /// Another path.
    Path(String),
}

impl Meant {
    /// Returns what an unknown path was meant to be, if that can be guessed.
    fn by(path: &str, relayed: &Relayed) -> Option<Self> {
        if path.len() > COMPARED {
            return None;
        }
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        // A base URL that ends in /v1, and a client that adds it.
        parts.dedup_by(|part, before| *part == "v1" && before == part);
        if matches!(parts.as_slice(), [] | ["v1" | "openai"] | ["openai", "v1"]) {
            return Some(Self::Base);
        }
        let written = format!("/{}", parts.join("/"));
        let lower = written.to_ascii_lowercase();
        let mut guesses = Vec::new();
        for path in [written.as_str(), lower.as_str()] {
            guesses.push(path.to_owned());
            guesses.push(format!("/v1{path}"));
            // Something stands before it, or /v1 does although it does not belong there.
            if let Some(at) = path.rfind("/v1/") {
                guesses.extend(path.get(at..).map(str::to_owned));
                guesses.extend(path.get(at + "/v1".len()..).map(str::to_owned));
            }
        }
        if let Some(found) = guesses.iter().find(|guess| exists(guess, relayed)) {
            return Some(Self::Path(found.clone()));
        }
        let known = all().map(|(pattern, _, _)| pattern).filter(|pattern| !pattern.contains('{'));
        let known = known.chain(relayed.paths().map(str::to_owned)).chain([HEALTH.to_owned()]);
        let near = known.filter_map(|known| {
            let guesses = [lower.clone(), format!("/v1{lower}")];
            let distance = guesses.iter().map(|guess| levenshtein(guess, &known)).min()?;
            (distance <= (known.len() / 6).clamp(1, 3)).then_some((distance, known))
        });
        near.min_by_key(|(distance, _)| *distance).map(|(_, known)| Self::Path(known))
    }

    /// Says it, and where it is the client's base URL that has to be put right, that.
    fn hint(&self, path: &str) -> String {
        let Self::Path(meant) = self else {
            return " The API is below /v1, as POST /v1/chat/completions and GET /v1/models: a client's base URL ends in /v1."
                .to_owned();
        };
        let base = if path.contains("/v1/v1") {
            " It has /v1 twice: the client's base URL, or what the client adds to it, has one too many."
        } else if meant.strip_prefix("/v1") == Some(path) {
            " The client's base URL should end in /v1."
        } else {
            ""
        };
        format!(" Did you mean {}?{base}", shown(meant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};

    fn relayed() -> Relayed {
        Config::read("[[upstream]]\nurl = \"http://a\"", &[&Overrides::default()]).unwrap().relayed
    }

    #[test]
    fn what_was_probably_meant() {
        let relayed = relayed();
        for (path, expected) in [
            ("/chat/completions", Some("/v1/chat/completions")),
            ("/v1/v1/chat/completions", Some("/v1/chat/completions")),
            ("/v1/v1/v1/models", Some("/v1/models")),
            ("/v1/v1/rerank", Some("/v1/rerank")),
            ("/v1/chat/completions/", Some("/v1/chat/completions")),
            ("//v1//chat/completions", Some("/v1/chat/completions")),
            ("/V1/Chat/Completions", Some("/v1/chat/completions")),
            ("/v1/chat/completion", Some("/v1/chat/completions")),
            ("/v1/chat/complitions", Some("/v1/chat/completions")),
            ("/chat/completion", Some("/v1/chat/completions")),
            ("/v1/response", Some("/v1/responses")),
            ("/v1/model", Some("/v1/models")),
            ("/v1/embedding", Some("/v1/embeddings")),
            ("/api/v1/chat/completions", Some("/v1/chat/completions")),
            ("/openai/v1/v1/models", Some("/openai/v1/models")),
            ("/openai/chat/completions", Some("/openai/v1/chat/completions")),
            ("/responses/resp_1/cancel", Some("/v1/responses/resp_1/cancel")),
            ("/models/org/name", Some("/v1/models/org/name")),
            ("/v1/models/", Some("/v1/models")),
            ("/v1/tokenize", Some("/tokenize")),
            ("/audio/speech", Some("/v1/audio/speech")),
            ("/v1/rerrank", Some("/v1/rerank")),
            ("/healthz", Some("/health")),
            ("/health/", Some("/health")),
            ("/flush_cache", None),
            ("/v1/load_lora_adapter", None),
            ("/favicon.ico", None),
            ("/v1/assistants", None),
        ] {
            let found = Meant::by(path, &relayed);
            assert_eq!(found, expected.map(|path| Meant::Path(path.to_owned())), "{path}");
        }
        for path in ["/", "//", "/v1", "/v1/", "/v1/v1", "/openai/v1/"] {
            assert_eq!(Meant::by(path, &relayed), Some(Meant::Base), "{path}");
        }
    }

    #[test]
    fn messages() {
        let relayed = relayed();
        let long = format!("/{}", "x".repeat(5000));
        for (path, expected) in [
            ("/v1/assistants", "Unknown request URL: GET /v1/assistants."),
            (
                "/models",
                "Unknown request URL: GET /models. Did you mean /v1/models? The client's base URL should end in /v1.",
            ),
            ("/v1/models/", "Unknown request URL: GET /v1/models/. Did you mean /v1/models?"),
        ] {
            assert_eq!(unknown(&Method::GET, path, &relayed).message, expected);
        }
        assert!(unknown(&Method::GET, &long, &relayed).message.len() < 200);
        assert!(unknown(&Method::GET, &"ä/v1/".repeat(100), &relayed).message.is_ascii());
        for (path, expected) in [
            ("/v1/chat/completions", "/v1/chat/completions takes POST, not PUT."),
            ("/v1/responses", "/v1/responses takes GET and POST, not PUT."),
            ("/v1/responses/compact", "/v1/responses/compact takes POST, not PUT."),
            ("/v1/responses/resp_1", "/v1/responses/resp_1 takes GET and DELETE, not PUT."),
            ("/rerank", "/rerank takes POST, not PUT."),
            ("/health", "/health takes GET, not PUT."),
        ] {
            assert_eq!(other_method(&Method::PUT, path).message, expected);
        }
    }
}
