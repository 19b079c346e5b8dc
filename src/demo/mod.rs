//! What samewire does, shown without a GPU: recorded vLLM and SGLang traffic, served as engines behind the real proxy.
//!
//! Takes: nothing. Gives: a [`Comparison`] of one request's answers, and a [`Stand`] that goes on serving. Never: leaves
//! the machine.

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
use crate::server::{self, Listeners};
use compare::Streams;
use http::header::CONTENT_TYPE;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::runtime::Builder;

/// Between two events of what is served, so that an eye can follow.
const PACE: Duration = Duration::from_millis(40);
/// Shutting down takes no longer: nothing that runs here is worth waiting for.
const SETTINGS: &str = "[timeouts]\ndrain = 0.2\n";

/// The engines that are compared.
pub const ENGINES: [&str; 2] = ["vllm", "sglang"];

/// Their names for people.
pub const NAMES: [&str; 2] = ["vLLM", "SGLang"];
/// The versions that were recorded.
const VERSIONS: [&str; 2] = ["vLLM 0.21.0", "SGLang 0.5.12"];

/// A request that both engines have answered.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// What happens.
    pub about: &'static str,
    /// Where it was recorded.
    pub source: &'static str,
    /// The request's body.
    pub request: &'static str,
    /// What differs between the answers, beside how they are written.
    pub differs: Option<&'static str>,
    scenario: &'static str,
    model: &'static str,
}

impl Scene {
    /// The name under which an engine's answer is served.
    pub fn served(&self, engine: &str) -> String {
        recorded::served(engine, self.scenario)
    }
}

/// A model that thinks.
pub const REASONING: Scene = Scene {
    about: "a model that thinks, cut off by max_tokens",
    source: "tiny-qwen3 on vLLM 0.21.0 and SGLang 0.5.12: both gave the same answer, recorded as it came",
    request: r#"{"model":"tiny-qwen3","messages":[{"role":"user","content":"think"}],"max_tokens":21,"temperature":0,"stream":true}"#,
    differs: None,
    scenario: "same-answer-length",
    model: "tiny-qwen3",
};

/// A model that calls a function.
pub const TOOL: Scene = Scene {
    about: "a model that thinks and calls a function",
    source: "tiny-qwen3 on vLLM 0.21.0 and SGLang 0.5.12: both gave the same answer, recorded as it came",
    request: r#"{"model":"tiny-qwen3","messages":[{"role":"user","content":"weather"}],"max_tokens":600,"temperature":0,"tools":[{"type":"function","function":{"name":"get_weather"}}],"stream":true,"stream_options":{"include_usage":true}}"#,
    differs: Some(
        "The engines cut the arguments of the call into pieces of their own, and of the two only SGLang counts reasoning tokens.",
    ),
    scenario: "same-answer-tool",
    model: "tiny-qwen3",
};

/// Why the demo cannot be shown.
#[derive(Debug)]
pub enum Trouble {
    /// The address where it would go on serving cannot be had.
    Address(io::Error),
    /// The address makes no sense.
    Settings(Mistakes),
    /// Something on the way.
    Io(io::Error),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => {
                write!(f, "{error}; choose another address with --listen, such as --listen 127.0.0.1:0")
            }
            Self::Settings(mistakes) => mistakes.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Trouble {}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Sends the scene's request to both engines and through the proxy in front of each.
///
/// # Errors
/// A port or a thread cannot be had, or an answer does not come.
pub fn show(scene: &Scene) -> Result<Comparison, Trouble> {
    let mut answers = Vec::new();
    for engine in ENGINES {
        let address = engine_of(recorded::one(engine, scene.scenario, scene.model), Duration::ZERO)?;
        let proxy = Proxy::bind("127.0.0.1:0", engine, address)?;
        let front = proxy.listeners.proxy()?;
        std::thread::Builder::new().name(format!("{engine}-proxy")).spawn(move || proxy.run(None))?;
        answers.push((ask(address, scene.request)?, ask(front, scene.request)?));
    }
    let [(raw, canonical), (other_raw, other_canonical)] = answers.as_slice() else {
        return Err(io::Error::other("two engines give two answers").into());
    };
    Ok(compare([Streams { raw, canonical }, Streams { raw: other_raw, canonical: other_canonical }]))
}

/// A proxy in front of all recordings.
#[derive(Debug)]
pub struct Stand(Proxy);

impl Stand {
    /// Opens the address.
    ///
    /// # Errors
    /// It cannot be had.
    pub fn open(listen: &str) -> Result<Self, Trouble> {
        let engine = engine_of(recorded::all(), PACE)?;
        Proxy::bind(listen, "auto", engine).map(Self)
    }

    /// The base URL of clients.
    ///
    /// # Errors
    /// The system does not say where the listener is.
    pub fn base_url(&self) -> io::Result<String> {
        self.0.listeners.base_url(&self.0.config)
    }

    /// The names of what is served.
    pub fn models(&self) -> Vec<String> {
        recorded::all().into_iter().map(|scenario| scenario.name).collect()
    }

    /// Serves until a signal ends the process, and this page at the root of the address.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn serve(self, page: Page) -> io::Result<()> {
        self.0.run(Some(page))
    }
}

/// A real proxy, its addresses open already.
#[derive(Debug)]
struct Proxy {
    config: Config,
    listeners: Listeners,
}

impl Proxy {
    fn bind(listen: &str, engine: &str, upstream: SocketAddr) -> Result<Self, Trouble> {
        let flags = Overrides {
            upstream: vec![format!("http://{upstream}")],
            engine: Some(engine.to_owned()),
            listen: Some(listen.to_owned()),
            admin_listen: Some("127.0.0.1:0".to_owned()),
            // Whoever can connect may look at recordings.
            insecure_no_auth: Some(true),
            threads: Some(1),
            ..Overrides::default()
        };
        let config = Config::read(SETTINGS, &[&flags]).map_err(Trouble::Settings)?;
        let listeners = Listeners::bind(&config).map_err(Trouble::Address)?;
        Ok(Self { config, listeners })
    }

    fn run(self, page: Option<Page>) -> io::Result<()> {
        server::run_on(self.listeners, self.config, page)
    }
}

/// Serves recordings on a thread of their own; says where.
fn engine_of(scenarios: Vec<Scenario>, pace: Duration) -> io::Result<SocketAddr> {
    let listener = replay::listen(([127, 0, 0, 1], 0).into())?;
    let address = listener.local_addr()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || runtime.block_on(replay::serve(listener, scenarios, pace)))?;
    Ok(address)
}

/// The whole answer to a chat request.
fn ask(address: SocketAddr, body: &'static str) -> io::Result<String> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let answer = async {
        // The environment may name a proxy; nothing of this leaves the machine.
        let client = reqwest::Client::builder().no_proxy().build()?;
        let request = client.post(format!("http://{address}/v1/chat/completions")).body(body);
        request.header(CONTENT_TYPE, "application/json").send().await?.text().await
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

    /// What the page counts is what the rewriter counts, as far as that counts it: fields without a value it drops silently.
    #[test]
    fn changes_are_counted_as_the_rewriter_counts_them() {
        for (scene, engine) in [(REASONING, 0), (REASONING, 1), (TOOL, 0), (TOOL, 1)] {
            let name = ENGINES[engine];
            let scenario = recorded::one(name, scene.scenario, scene.model).remove(0);
            let raw = String::from_utf8(scenario.frames.concat()).unwrap();
            let body = Bytes::from_static(scene.request.as_bytes());
            let ask = ChatRequest::read(Api::Chat, &body).unwrap();
            let engine = crate::engine::named(name).unwrap();
            let route = crate::plan::Route::new(engine, Arc::new(Options::default()), 1 << 20);
            let mut rewriter = Rewriter::new(crate::plan::shape(&ask, &route), Stamp::default());
            let mut out = OutputBuffer::default();
            rewriter.push(raw.as_bytes(), &mut out);
            rewriter.finish(Ending::Clean, &mut out);
            let frames = read(&raw, false);
            for change in Change::ALL {
                if matches!(change, Change::Empty | Change::Unknown | Change::ToolRepeat) {
                    continue;
                }
                let marked =
                    frames.iter().flat_map(frame::Frame::changes).filter(|one| *one == change).count();
                let tally = rewriter.summary().tally;
                let counted = tally.iter().find(|(rule, _)| rule.name() == change.rule());
                let counted = counted.map_or(0, |(_, times)| times as usize);
                assert_eq!(marked, counted, "{name}, {}: {}", scene.scenario, change.rule());
            }
            // And nothing is left to be changed in what comes out.
            let again = read(std::str::from_utf8(&out.join()).unwrap(), false);
            let left: Vec<_> = again.iter().flat_map(frame::Frame::changes).collect();
            assert!(left.is_empty(), "{name}, {}: {left:?}", scene.scenario);
        }
    }
}
