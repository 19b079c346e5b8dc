//! Replay: recorded traffic served as an engine, for tests, demos and bug reports.
//!
//! Takes: scenarios, and requests that name one. Gives: the recorded answer, byte for byte, with one write per
//! event. Never: reads more of a request than its method, its path, `model` and `stream`.

mod played;
mod request;
mod scenario;
mod timing;

pub use request::RecordedRequest;
pub use scenario::{LoadError, ROUTE, Recorded, Scenario, load};

use crate::json::{self, Raw, Text, object};
use crate::upstream::models::{self, ListedModel};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{Method, Request, Response, StatusCode, header};
use axum::routing::get;
use axum::serve::ListenerExt as _;
use bytes::BytesMut;
use played::PlayedBody;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Longest request that is read, in bytes; longer ones are refused with 413.
const REQUEST: usize = 64 << 20;
/// Version that a replayed vLLM reports if no scenario has one: that of the recordings.
const VERSION: &str = "0.21.0";

/// Serves scenarios until a signal ends the process, and logs the address.
///
/// # Errors
/// Fails if the address, the runtime or the signal handlers are unavailable.
pub fn run(address: SocketAddr, scenarios: Vec<Scenario>, pace: Duration) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        // Installed before the log line: a reader of that may send a signal at once.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let listener = listen(address)?;
        let address = listener.local_addr()?.to_string();
        tracing::info!(listener = "replay", address, "listening");
        tokio::select! {
            ended = serve(listener, scenarios, pace) => ended,
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        }
    })
}

/// Binds a listener to the address.
///
/// # Errors
/// Fails if the address is unavailable; the message contains it.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let told = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    };
    TcpListener::bind(address).map_err(told)
}

/// Serves scenarios without end. Must run inside a tokio runtime.
///
/// # Errors
/// Fails if the listener cannot be used.
pub async fn serve(
    listener: TcpListener,
    scenarios: Vec<Scenario>,
    pace: Duration,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    // Each event is sent at once, as engines do.
    let listener =
        tokio::net::TcpListener::from_std(listener)?.tap_io(|stream| _ = stream.set_nodelay(true));
    let stage = Arc::new(ReplayState { scenarios, pace });
    let router = Router::new()
        .route("/health", get(async || Response::new(Body::empty())))
        .route("/version", get(version))
        .route("/v1/models", get(list))
        .fallback(play)
        .with_state(stage);
    axum::serve(listener, router).await
}

/// State of the server: the scenarios, and the pause between events.
struct ReplayState {
    scenarios: Vec<Scenario>,
    pace: Duration,
}

impl ReplayState {
    /// Returns the scenario of that name: the full name, or the end of one if no other scenario ends the same way.
    fn named(&self, name: &str) -> Result<Option<&Scenario>, String> {
        if let Some(found) = self.scenarios.iter().find(|scenario| scenario.name == name) {
            return Ok(Some(found));
        }
        let ends_so = |scenario: &&Scenario| {
            scenario
                .name
                .strip_suffix(name)
                .is_some_and(|before| !name.is_empty() && before.ends_with('/'))
        };
        let found: Vec<_> = self.scenarios.iter().filter(ends_so).collect();
        match found.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            several => {
                let names: Vec<_> = several
                    .iter()
                    .map(|scenario| scenario.name.as_str())
                    .collect();
                Err(format!(
                    "Several scenarios are named {name}: {}.",
                    names.join(", ")
                ))
            }
        }
    }

    fn choose(&self, method: &Method, path: &str, key: &LookupKey) -> Result<&Scenario, NoMatch> {
        // Like an engine without such a route, whatever the model's name.
        if self.scenarios.iter().all(|scenario| scenario.path != path) {
            let text = format!(
                "Nothing answers {method} {path} with stream = {}.",
                key.stream
            );
            return Err(NoMatch(StatusCode::NOT_FOUND, text));
        }
        let named = self
            .named(&key.model)
            .map_err(|text| NoMatch(StatusCode::BAD_REQUEST, text))?;
        if let Some(scenario) = named {
            if scenario.path == path {
                return Ok(scenario);
            }
            let text = format!(
                "The scenario {} was recorded at {}, not at {path}.",
                scenario.name, scenario.path
            );
            return Err(NoMatch(StatusCode::BAD_REQUEST, text));
        }
        let alike = |scenario: &&Scenario| {
            scenario.path == path
                && scenario.method == method.as_str()
                && scenario.stream == key.stream
        };
        self.scenarios.iter().find(alike).ok_or_else(|| {
            let LookupKey { model, stream } = key;
            let text = format!(
                "No scenario is named `{model}`, and none answers {method} {path} with stream = {stream}. GET /v1/models \
                 lists the names."
            );
            NoMatch(StatusCode::NOT_FOUND, text)
        })
    }
}

/// Error response if no scenario matches: status and message.
struct NoMatch(StatusCode, String);

object! {
    struct RequestFields<'a> {
        model: Raw<'a> = "model",
        stream: Raw<'a> = "stream",
    }
}

/// Fields of a request that select a scenario, apart from its method and path.
#[derive(Default)]
struct LookupKey {
    model: String,
    stream: bool,
}

impl LookupKey {
    fn read(body: &[u8]) -> Self {
        let criteria = std::str::from_utf8(body)
            .ok()
            .and_then(|text| json::read::<RequestFields<'_>>(text).ok());
        let Some(criteria) = criteria else {
            return Self::default();
        };
        let model = criteria
            .model
            .and_then(Text::of)
            .map(|model| model.decoded().into_owned());
        Self {
            model: model.unwrap_or_default(),
            stream: criteria.stream.is_some_and(|stream| stream.get() == "true"),
        }
    }
}

async fn play(State(stage): State<Arc<ReplayState>>, request: Request<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, REQUEST).await else {
        return error(StatusCode::PAYLOAD_TOO_LARGE, "The request cannot be read.");
    };
    match stage.choose(&head.method, head.uri.path(), &LookupKey::read(&body)) {
        Ok(scenario) => {
            let (name, status) = (scenario.name.as_str(), scenario.status.as_u16());
            tracing::info!(scenario = name, path = head.uri.path(), status, "playing");
            answer(scenario, stage.pace)
        }
        Err(NoMatch(status, text)) => {
            tracing::warn!(
                path = head.uri.path(),
                status = status.as_u16(),
                reason = text,
                "nothing to play"
            );
            error(status, &text)
        }
    }
}

fn answer(scenario: &Scenario, pace: Duration) -> Response<Body> {
    let body = match scenario.frames.as_slice() {
        [whole] if !scenario.events && !scenario.reset => Body::from(whole.clone()),
        frames => Body::new(PlayedBody::new(frames.to_vec(), pace, scenario.reset)),
    };
    let mut response = Response::new(body);
    *response.status_mut() = scenario.status;
    response.headers_mut().extend(scenario.headers.clone());
    response
}

/// Returns an error in the format of vLLM, so that a proxy in front handles it as usual.
fn error(status: StatusCode, text: &str) -> Response<Body> {
    let kind = if status == StatusCode::NOT_FOUND {
        "NotFoundError"
    } else {
        "BadRequestError"
    };
    let (message, code) = (json::quoted(text), status.as_str());
    let body = format!(
        r#"{{"error":{{"message":{message},"type":"{kind}","param":"model","code":{code}}}}}"#
    );
    json(status, body)
}

fn json(status: StatusCode, body: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    response
}

/// Lists the names of all scenarios. `owned_by` names the engine of each recording, from which a proxy detects the
/// engine.
async fn list(State(stage): State<Arc<ReplayState>>) -> Response<Body> {
    let created = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let model = |scenario: &Scenario| ListedModel {
        id: scenario.name.clone(),
        created,
        owner: Some(
            scenario
                .engine
                .and_then(|engine| engine.detection.owned_by)
                .unwrap_or("replay")
                .to_owned(),
        ),
        ..ListedModel::default()
    };
    let all: Vec<_> = stage.scenarios.iter().map(model).collect();
    let mut out = BytesMut::new();
    models::write(&all, &mut out);
    json(StatusCode::OK, out)
}

/// Reports a version as vLLM does. SGLang does not have this route.
async fn version(State(stage): State<Arc<ReplayState>>) -> Response<Body> {
    let is_sglang = |scenario: &Scenario| {
        scenario
            .engine
            .is_some_and(|engine| engine.name == "sglang")
    };
    if stage.scenarios.iter().all(is_sglang) {
        return json(StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#);
    }
    let recorded = stage
        .scenarios
        .iter()
        .find(|scenario| !is_sglang(scenario) && scenario.version.is_some());
    let version = recorded
        .and_then(|scenario| scenario.version)
        .map(|version| version.to_string());
    json(
        StatusCode::OK,
        format!(
            r#"{{"version":"{}"}}"#,
            version.as_deref().unwrap_or(VERSION)
        ),
    )
}
