//! Demo without a GPU: recorded vLLM and SGLang traffic, served as engines behind the real proxy.
//!
//! Takes: nothing. Gives: a [`Comparison`] of one request's answers, and a [`DemoServer`] that keeps serving. Never:
//! connects to another machine.

pub mod compare;
pub mod frame;
pub mod page;
mod recorded;
pub mod snippet;
pub mod web;

pub use compare::{Comparison, compare};

use crate::config::{Config, Mistakes, Overrides};
use crate::html::Page;
use crate::replay::{self, Scenario};
use crate::server::{self, Listeners, PassedSockets};
use crate::tls::trusting_nobody;
use compare::Streams;
use http::header::CONTENT_TYPE;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;
use tokio::runtime::Builder;

/// Pause between two events of a served recording, so that a person can follow.
const PACE: Duration = Duration::from_millis(40);
/// Settings of the demo's proxies. They end at once: there is no load balancer that would have to notice, and no request
/// in a demo is worth waiting for. Exchanges are captured for the inspector: they have no content but recordings, and
/// what the user asks of them.
const SETTINGS: &str = "[timeouts]\nsettle = 0\ndrain = 0.2\n[capture]\nenabled = true\n";
/// Address of a listener whose port the system chooses.
const FREE_PORT: &str = "127.0.0.1:0";

/// Engines that the demo compares, by their names in the configuration.
pub const ENGINES: [&str; 2] = ["vllm", "sglang"];

/// Display names of the engines, in the order of [`ENGINES`].
pub const NAMES: [&str; 2] = ["vLLM", "SGLang"];
/// Display names with the recorded versions, as headings of the columns.
const VERSIONS: [&str; 2] = ["vLLM 0.21.0", "SGLang 0.5.12"];

/// Origin of the recordings of all scenes: model, engines and their versions.
const SOURCE: &str =
    "tiny-qwen3 on vLLM 0.21.0 and SGLang 0.5.12: both gave the same answer, recorded as it came";

/// Model that all scenes ask.
const MODEL: &str = "tiny-qwen3";

/// Request that both engines have answered, with a description of the answers.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// Description of the scene, for the page.
    pub about: &'static str,
    /// Body of the request, as JSON.
    pub request: &'static str,
    /// Remaining differences between the canonical answers; `None`: there are none.
    pub differs: Option<&'static str>,
    scenario: &'static str,
}

impl Scene {
    /// Returns the model name under which an engine's answer is served.
    pub fn served(&self, engine: &str) -> String {
        recorded::served(engine, self.scenario)
    }
}

/// Scene of a model that reasons. Its answer ends at `max_tokens`.
pub const REASONING: Scene = Scene {
    about: "a model that thinks, cut off by max_tokens",
    request: r#"{"model":"tiny-qwen3","messages":[{"role":"user","content":"think"}],"max_tokens":21,"temperature":0,"stream":true}"#,
    differs: None,
    scenario: "same-answer-length",
};

/// Scene of a model that reasons and then calls a function.
pub const TOOL: Scene = Scene {
    about: "a model that thinks and calls a function",
    request: r#"{"model":"tiny-qwen3","messages":[{"role":"user","content":"weather"}],"max_tokens":600,"temperature":0,"tools":[{"type":"function","function":{"name":"get_weather"}}],"stream":true,"stream_options":{"include_usage":true}}"#,
    differs: Some(
        "The engines cut the arguments of the call into pieces of their own, and of the two only SGLang counts reasoning tokens.",
    ),
    scenario: "same-answer-tool",
};

/// Reason why the demo cannot be shown, with the message for the user.
#[derive(Debug, Error)]
pub enum DemoError {
    /// Address of the demo that cannot be bound, for example because the port is in use.
    #[error("{0}; choose another address with --listen or --admin-listen, such as {FREE_PORT}")]
    Address(io::Error),
    /// Address of the demo that is invalid, as a mistake of the configuration.
    #[error("{0}")]
    Settings(Mistakes),
    /// Other failure of a port, a thread or a request.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Sends the scene's request to both engines, directly and through a proxy in front of each.
///
/// # Errors
/// Fails if a port or a thread is unavailable, or if a request fails.
pub fn show(scene: &Scene) -> Result<Comparison, DemoError> {
    let mut answers = Vec::new();
    for engine in ENGINES {
        let address = engine_of(recorded::one(engine, scene.scenario, MODEL), Duration::ZERO)?;
        let proxy = DemoServer::bind((FREE_PORT, FREE_PORT), engine, address)?;
        let front = proxy.listeners.proxy()?;
        std::thread::Builder::new()
            .name(format!("{engine}-proxy"))
            .spawn(move || proxy.run(None))?;
        answers.push((
            request(address, scene.request)?,
            request(front, scene.request)?,
        ));
    }
    let [(raw, canonical), (other_raw, other_canonical)] = answers.as_slice() else {
        return Err(io::Error::other("two engines give two answers").into());
    };
    Ok(compare([
        Streams { raw, canonical },
        Streams {
            raw: other_raw,
            canonical: other_canonical,
        },
    ]))
}

/// Real proxy, with its listeners bound before it runs so that their addresses are known.
#[derive(Debug)]
pub struct DemoServer {
    config: Config,
    listeners: Listeners,
}

impl DemoServer {
    /// Starts an engine with all recordings, and binds a proxy in front of it to the address: for the user's own
    /// requests and the page in the browser. `admin_listen`: the address of the inspector, which shows all exchanges.
    ///
    /// # Errors
    /// Fails if an address is invalid or unavailable.
    pub fn open(listen: &str, admin_listen: &str) -> Result<Self, DemoError> {
        Self::bind(
            (listen, admin_listen),
            "auto",
            engine_of(recorded::all(), PACE)?,
        )
    }

    /// Returns the URL of the inspector.
    ///
    /// # Errors
    /// Fails if the system does not report the listener's address.
    pub fn inspector_url(&self) -> io::Result<String> {
        self.listeners.inspector_url()
    }

    /// Returns the base URL for clients.
    ///
    /// # Errors
    /// Fails if the system does not report the listener's address.
    pub fn base_url(&self) -> io::Result<String> {
        self.listeners.base_url(&self.config)
    }

    /// Returns the model names of all recordings, such as `vllm/reasoning`.
    pub fn models(&self) -> Vec<String> {
        recorded::all()
            .into_iter()
            .map(|scenario| scenario.name)
            .collect()
    }

    /// Serves until a signal ends the process. The page is served at the root of the address.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn serve(self, page: Page) -> io::Result<()> {
        self.run(Some(page))
    }

    fn bind(
        (listen, admin_listen): (&str, &str),
        engine: &str,
        upstream: SocketAddr,
    ) -> Result<Self, DemoError> {
        let flags = Overrides {
            upstream: vec![format!("http://{upstream}")],
            engine: Some(engine.to_owned()),
            ..Overrides::default()
        };
        // Recordings need no protection, so no keys are checked.
        let flags = flags.with("insecure_no_auth", true).with("threads", 1);
        let flags = flags
            .with("listen", listen)
            .with("admin_listen", admin_listen);
        let config = Config::read(SETTINGS, &[&flags]).map_err(DemoError::Settings)?;
        let listeners =
            Listeners::bind(&config, PassedSockets::default()).map_err(DemoError::Address)?;
        Ok(Self { config, listeners })
    }

    fn run(self, page: Option<Page>) -> io::Result<()> {
        server::run_on(self.listeners, self.config, page)
    }
}

/// Serves recordings on their own thread, and returns the address.
fn engine_of(scenarios: Vec<Scenario>, pace: Duration) -> io::Result<SocketAddr> {
    let listener = replay::listen(([127, 0, 0, 1], 0).into())?;
    let address = listener.local_addr()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || runtime.block_on(replay::serve(listener, scenarios, pace)))?;
    Ok(address)
}

/// Sends a chat request, and returns the whole answer as text.
fn request(address: SocketAddr, body: &'static str) -> io::Result<String> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let tls = trusting_nobody()?;
    let answer = async {
        // The environment may name an HTTP proxy, but the demo must not leave the machine.
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_backend_preconfigured(tls)
            .build()?;
        let request = client
            .post(format!("http://{address}/v1/chat/completions"))
            .body(body);
        request
            .header(CONTENT_TYPE, "application/json")
            .send()
            .await?
            .text()
            .await
    };
    runtime.block_on(answer).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::frame::{Change, read};
    use super::*;
    use crate::request::ChatRequest;
    use crate::wire::options::Options;
    use crate::wire::{Api, Ending, OutputBuffer, Rewriter, Stamp};
    use bytes::Bytes;
    use std::sync::Arc;

    /// The page must count the same changes as the rewriter, except for those that the rewriter does not count: it
    /// drops fields without a value silently.
    #[test]
    fn changes_are_counted_as_the_rewriter_counts_them() {
        for (scene, engine) in [(REASONING, 0), (REASONING, 1), (TOOL, 0), (TOOL, 1)] {
            let name = ENGINES[engine];
            let scenario = recorded::one(name, scene.scenario, MODEL).remove(0);
            let raw = String::from_utf8(scenario.frames.concat()).unwrap();
            let body = Bytes::from_static(scene.request.as_bytes());
            let request = ChatRequest::recall(Api::Chat, &body).unwrap();
            let engine = crate::engine::named(name).unwrap();
            let route = crate::plan::Route::new(engine, Arc::new(Options::default()), 1 << 20);
            let mut rewriter =
                Rewriter::new(crate::plan::shape(&request, &route), Stamp::default());
            let mut out = OutputBuffer::default();
            rewriter.push(raw.as_bytes(), &mut out);
            rewriter.finish(Ending::Clean, &mut out);
            let frames = read(&raw, false);
            for (change, _) in Change::ALL {
                if ["null_fields", "unknown_field", "tool_repeat"].contains(&change.rule()) {
                    continue;
                }
                let marked = frames
                    .iter()
                    .flat_map(frame::Frame::changes)
                    .filter(|one| *one == change)
                    .count();
                let tally = rewriter.reader.summary().tally;
                let counted = tally.iter().find(|(rule, _)| rule.name() == change.rule());
                let counted = counted.map_or(0, |(_, times)| times as usize);
                assert_eq!(
                    marked,
                    counted,
                    "{name}, {}: {}",
                    scene.scenario,
                    change.rule()
                );
            }
            // The canonical output must contain nothing left to change.
            let again = read(std::str::from_utf8(&out.join()).unwrap(), false);
            let left: Vec<_> = again.iter().flat_map(frame::Frame::changes).collect();
            assert!(left.is_empty(), "{name}, {}: {left:?}", scene.scenario);
        }
    }
}
