//! Routes: the paths, the meaning of each method on them, and a guess at what an unknown path was meant to be.

use super::admit::azure::{PREFIXES, RouteFamily};
use super::batch::BatchPath;
use super::handlers::relayed;
use super::printable::printable;
use super::protocol::Protocol;
use super::responses::{ConversationPath, StoredAction};
use crate::config::Relayed;
use crate::telemetry::RouteLabel;
use crate::wire::Api;
use crate::wire::fault::{Failure, Fault};
use http::{HeaderMap, Method};
use strsim::levenshtein;

/// Path of the health check for clients and load balancers.
pub(super) const HEALTH: &str = "/health";

/// Path of the Messages API; all of its paths begin with it.
const MESSAGES: &str = "/v1/messages";

/// Limits for a client's path and method quoted in a message, in bytes.
const SHOWN: (usize, usize) = (120, 20);
/// Longest path that is compared with the known ones, in bytes.
const COMPARED: usize = 120;

/// Operation that a path and a method stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Answer(Api),
    Respond,
    /// Responses over a WebSocket.
    Socket,
    /// Message of Anthropic's API.
    Message,
    /// Number of tokens that a message's prompt has.
    CountTokens,
    Stored(StoredAction),
    ToolOutputs,
    InputTokens,
    Compact,
    Conversing(ConversationPath),
    Embeddings,
    /// Files and batches, if they are served.
    Batch(BatchPath),
    /// Engine route that is relayed unchanged.
    Relayed,
    /// Engine route whose requests may belong to an API that is rewritten.
    ByBody,
    Models,
    Model,
    /// Use of the caller's quotas.
    Usage,
    /// Health check.
    Health,
    /// HTML page, where there is one.
    Page,
    /// Known path with another method; the router lists the right ones.
    OtherMethod,
    Nothing,
}

impl Target {
    /// Returns true if the operation may make an engine work.
    pub(super) fn reaches_engine(self) -> bool {
        matches!(
            self,
            Self::Answer(_)
                | Self::Respond
                | Self::Message
                | Self::CountTokens
                | Self::Compact
                | Self::InputTokens
                | Self::Embeddings
                | Self::Relayed
                | Self::ByBody
        )
    }

    /// Returns the protocol in which the client speaks: that of the route, also for its other methods and for unknown
    /// paths below it. On routes that both protocols have, and on all other unknown paths, the headers tell.
    pub(super) fn protocol(self, path: &str, headers: &HeaderMap) -> Protocol {
        let is_of_messages = || {
            path.strip_prefix(MESSAGES)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        match self {
            Self::Message | Self::CountTokens => Protocol::Anthropic,
            Self::OtherMethod | Self::Nothing if is_of_messages() => Protocol::Anthropic,
            Self::Models | Self::Model | Self::OtherMethod | Self::Nothing => {
                Protocol::of_headers(headers)
            }
            _ => Protocol::OpenAi,
        }
    }

    pub(super) fn route(self) -> RouteLabel {
        match self {
            Self::Answer(Api::Chat) => RouteLabel::Chat,
            Self::Answer(Api::Completions) => RouteLabel::Completions,
            Self::Answer(Api::Messages) | Self::Message | Self::CountTokens => RouteLabel::Messages,
            Self::Answer(Api::Responses)
            | Self::Respond
            | Self::Socket
            | Self::Stored(_)
            | Self::ToolOutputs
            | Self::InputTokens
            | Self::Compact => RouteLabel::Responses,
            Self::Conversing(_) => RouteLabel::Conversations,
            Self::Embeddings => RouteLabel::Embeddings,
            Self::Batch(_) => RouteLabel::Batch,
            Self::Relayed | Self::ByBody => RouteLabel::Relay,
            Self::Models | Self::Model => RouteLabel::Models,
            Self::Usage => RouteLabel::Usage,
            Self::Health | Self::Page | Self::OtherMethod | Self::Nothing => RouteLabel::Unknown,
        }
    }
}

/// Path below the prefix of a route family, with the operation of each method.
pub(super) struct Path {
    pub(super) path: &'static str,
    pub(super) families: &'static [RouteFamily],
    pub(super) get: Option<Target>,
    pub(super) post: Option<Target>,
    pub(super) delete: Option<Target>,
}

impl Path {
    const fn at(path: &'static str, doors: &'static [RouteFamily]) -> Self {
        Self {
            path,
            families: doors,
            get: None,
            post: None,
            delete: None,
        }
    }

    const fn get(self, target: Target) -> Self {
        Self {
            get: Some(target),
            ..self
        }
    }

    const fn post(self, target: Target) -> Self {
        Self {
            post: Some(target),
            ..self
        }
    }

    const fn delete(self, target: Target) -> Self {
        Self {
            delete: Some(target),
            ..self
        }
    }

    /// Returns the methods of the path for an error message.
    fn methods(&self) -> String {
        let all = [
            ("GET", self.get),
            ("POST", self.post),
            ("DELETE", self.delete),
        ];
        let taken = all
            .into_iter()
            .filter(|(_, target)| target.is_some())
            .map(|(method, _)| method);
        taken.collect::<Vec<_>>().join(" and ")
    }
}

const ALL: &[RouteFamily] = &[
    RouteFamily::Plain,
    RouteFamily::Undated,
    RouteFamily::Dated,
    RouteFamily::Deployment,
];
/// Route families of paths that name a model in the body or in the path.
const MODEL: &[RouteFamily] = &[
    RouteFamily::Plain,
    RouteFamily::Undated,
    RouteFamily::Deployment,
];
/// Route families of paths that concern no model.
const OTHER: &[RouteFamily] = &[RouteFamily::Plain, RouteFamily::Undated, RouteFamily::Dated];

/// Route families of paths that Azure's clients do not know.
const PLAIN: &[RouteFamily] = &[RouteFamily::Plain];

/// Paths of all route families.
pub(super) static PATHS: &[Path] = &[
    Path::at("/chat/completions", MODEL).post(Target::Answer(Api::Chat)),
    Path::at("/completions", MODEL).post(Target::Answer(Api::Completions)),
    Path::at("/embeddings", MODEL).post(Target::Embeddings),
    Path::at("/responses", ALL)
        .post(Target::Respond)
        .get(Target::Socket),
    Path::at("/responses/{id}", OTHER)
        .get(Target::Stored(StoredAction::Itself))
        .delete(Target::Stored(StoredAction::Itself)),
    Path::at("/responses/{id}/input_items", OTHER).get(Target::Stored(StoredAction::InputItems)),
    Path::at("/responses/{id}/cancel", OTHER).post(Target::Stored(StoredAction::Cancel)),
    Path::at("/responses/{id}/tool_outputs", OTHER).post(Target::ToolOutputs),
    Path::at("/responses/input_tokens", OTHER).post(Target::InputTokens),
    Path::at("/responses/compact", OTHER).post(Target::Compact),
    Path::at("/messages", PLAIN).post(Target::Message),
    Path::at("/messages/count_tokens", PLAIN).post(Target::CountTokens),
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
    Path::at("/usage", PLAIN).get(Target::Usage),
];

/// Paths of files and batches, which exist only if they are served.
pub(super) static BATCH_PATHS: &[Path] = &[
    Path::at("/files", PLAIN)
        .get(Target::Batch(BatchPath::Files))
        .post(Target::Batch(BatchPath::Files)),
    Path::at("/files/{id}", PLAIN)
        .get(Target::Batch(BatchPath::File))
        .delete(Target::Batch(BatchPath::File)),
    Path::at("/files/{id}/content", PLAIN).get(Target::Batch(BatchPath::Content)),
    Path::at("/batches", PLAIN)
        .get(Target::Batch(BatchPath::Batches))
        .post(Target::Batch(BatchPath::Batches)),
    Path::at("/batches/{id}", PLAIN).get(Target::Batch(BatchPath::Batch)),
    Path::at("/batches/{id}/cancel", PLAIN).post(Target::Batch(BatchPath::Cancel)),
];

/// Returns the paths of files and batches, as router patterns.
pub(super) fn of_batches() -> impl Iterator<Item = (String, RouteFamily, &'static Path)> {
    BATCH_PATHS
        .iter()
        .map(|path| (format!("/v1{}", path.path), RouteFamily::Plain, path))
}

/// Returns true if the path is one of files and batches.
pub(super) fn is_of_batches(path: &str) -> bool {
    of_batches().any(|(pattern, _, _)| matches(&pattern, path))
}

/// Returns all paths with their prefixes, as router patterns.
pub(super) fn all() -> impl Iterator<Item = (String, RouteFamily, &'static Path)> {
    let with = |path: &'static Path| {
        let of_path = PREFIXES
            .into_iter()
            .filter(|(family, _)| path.families.contains(family));
        of_path.map(move |(family, before)| (format!("{before}{}", path.path), family, path))
    };
    PATHS.iter().flat_map(with)
}

/// Returns true if a router pattern matches the path.
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

/// Returns true if the path exists, as its own route or as a relayed one.
fn exists(path: &str, relayed: &Relayed) -> bool {
    path == HEALTH
        || all().any(|(pattern, _, _)| matches(&pattern, path))
        || relayed::find(path, relayed).is_some()
}

/// Returns the failure for a method that the path does not allow; the message lists those that it does.
pub(super) fn other_method(method: &Method, path: &str) -> Failure {
    // A literal path takes precedence over a pattern.
    let literal = all()
        .chain(of_batches())
        .find(|(pattern, _, _)| pattern == path);
    let found = literal.or_else(|| {
        all()
            .chain(of_batches())
            .find(|(pattern, _, _)| matches(pattern, path))
    });
    let methods = match found {
        Some((_, _, path)) => path.methods(),
        None if path == HEALTH => "GET".to_owned(),
        None => "POST".to_owned(),
    };
    let message = format!(
        "{} takes {methods}, not {}.",
        shown(path),
        shown_method(method)
    );
    Failure::from(Fault::MethodNotSupported).with_message(message)
}

/// Returns the failure for an unknown path, with a guess at the intended one. The query is not repeated: it may
/// contain a secret.
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

/// Guess at the path that a client meant, for the message of a 404.
#[derive(Debug, PartialEq, Eq)]
enum Meant {
    /// The base URL alone.
    Base,
    /// A known path.
    Path(String),
}

impl Meant {
    /// Guesses the path that an unknown one was meant to be; `None` if there is no near match.
    fn by(path: &str, relayed: &Relayed) -> Option<Self> {
        if path.len() > COMPARED {
            return None;
        }
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        // The base URL ends in /v1 and the client adds it again.
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
            // The path has a prefix, or a /v1 that does not belong there.
            if let Some(at) = path.rfind("/v1/") {
                guesses.extend(path.get(at..).map(str::to_owned));
                guesses.extend(path.get(at + "/v1".len()..).map(str::to_owned));
            }
        }
        if let Some(found) = guesses.iter().find(|guess| exists(guess, relayed)) {
            return Some(Self::Path(found.clone()));
        }
        let known = all()
            .map(|(pattern, _, _)| pattern)
            .filter(|pattern| !pattern.contains('{'));
        let known = known
            .chain(relayed.paths().map(str::to_owned))
            .chain([HEALTH.to_owned()]);
        let near = known.filter_map(|known| {
            let guesses = [lower.clone(), format!("/v1{lower}")];
            let distance = guesses
                .iter()
                .map(|guess| levenshtein(guess, &known))
                .min()?;
            (distance <= (known.len() / 6).clamp(1, 3)).then_some((distance, known))
        });
        near.min_by_key(|(distance, _)| *distance)
            .map(|(_, known)| Self::Path(known))
    }

    /// Formats the guess as a hint, with advice on the client's base URL if that is wrong.
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
        Config::read("[[upstream]]\nurl = \"http://a\"", &[&Overrides::default()])
            .unwrap()
            .relayed
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
            (
                "/openai/chat/completions",
                Some("/openai/v1/chat/completions"),
            ),
            (
                "/responses/resp_1/cancel",
                Some("/v1/responses/resp_1/cancel"),
            ),
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
            assert_eq!(
                found,
                expected.map(|path| Meant::Path(path.to_owned())),
                "{path}"
            );
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
            (
                "/v1/models/",
                "Unknown request URL: GET /v1/models/. Did you mean /v1/models?",
            ),
        ] {
            assert_eq!(unknown(&Method::GET, path, &relayed).message, expected);
        }
        assert!(unknown(&Method::GET, &long, &relayed).message.len() < 200);
        assert!(
            unknown(&Method::GET, &"ä/v1/".repeat(100), &relayed)
                .message
                .is_ascii()
        );
        for (path, expected) in [
            (
                "/v1/chat/completions",
                "/v1/chat/completions takes POST, not PUT.",
            ),
            (
                "/v1/responses",
                "/v1/responses takes GET and POST, not PUT.",
            ),
            (
                "/v1/responses/compact",
                "/v1/responses/compact takes POST, not PUT.",
            ),
            (
                "/v1/responses/resp_1",
                "/v1/responses/resp_1 takes GET and DELETE, not PUT.",
            ),
            ("/rerank", "/rerank takes POST, not PUT."),
            ("/health", "/health takes GET, not PUT."),
        ] {
            assert_eq!(other_method(&Method::PUT, path).message, expected);
        }
    }
}
