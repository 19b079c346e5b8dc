//! Proxy between OpenAI or Anthropic clients and LLM engines (vLLM, SGLang …): every engine's answers reach clients in
//! one canonical wire format.
//!
//! The core is a function from an engine's bytes to canonical bytes: [`wire`], a pure, synchronous state machine in
//! the crate `src/core`. The modules after `seal` are the shell: they wait, connect, generate ids and read clocks.
//!
//! ```text
//! client ──→ server::routes ──→ request::ChatRequest ──→ plan::Plan ──→ upstream::Client ──→ engine
//!                                                           │                                  │
//!                                                           ▼                                  ▼ bytes, cut anywhere
//! client ←── server::relay  ←── wire::Rewriter { Framer → Decode → (Parse) → Normaliser → Encode }
//! ```
//!
//! Modules in reading order, after those of `src/core/lib.rs`. Each imports only modules listed before it
//! (`tests/docs/layering/` reads both lists). The modules up to [`seal`] use neither clocks nor sockets:

pub use samewire_core::{json, nearest, quantity, wire};

// Names of models in the configuration, of which some are patterns such as `claude-*`.
pub mod model_name;

// Text of others, with every character visible in a terminal.
pub mod visible;

// Client requests: read and checked once, before anything is sent.
pub mod request;

// Facts about each engine, as data: quirks, detection, parsers, versions.
pub mod engine;

// Engine requests: adapts the client's body to the engine, and decides how its answer is read.
pub mod plan;

// Encryption of reasoning and summaries that clients keep and cannot read.
pub mod seal;

// Shell: modules that wait, connect, generate ids and read clocks.

// Failures outside the answer's bytes, with their cause and whether a retry is allowed.
pub mod error;

// Exchanges with clients and engines, kept in a bounded ring for operators.
pub mod capture;

// JSON as a tree, for answers that are judged.
pub mod tree;

// Enums whose variants have names for people and programs.
pub mod named;

// HTML pages from templates, with a content security policy.
pub mod html;

// Detection of changed files by their metadata.
pub mod file_watch;

// Secrets: read from protected files, never printed, wiped on drop.
pub mod secret;

// TLS towards clients and engines (rustls).
pub mod tls;

// Client keys: hashes, tenants, allowances and quotas.
pub mod auth;

// Storage of responses, conversations and quota counters: memory, SQLite or PostgreSQL.
pub mod store;

// Configuration from file, environment and flags; reports all mistakes at once.
pub mod config;

// Command-line filter: rewrites an engine's answer from a reader to a writer.
pub mod filter;

// Metrics, logs and traces for operators.
pub mod telemetry;

// Tools that samewire runs: their servers, what they offer, and calls.
pub mod tools;

// Connections to engines: selection, health, retries, HTTP/1.1 and HTTP/2 clients.
pub mod upstream;

// Engines behind Services, as the Kubernetes API names their pods.
pub mod discovery;

// Recorded engine traffic served over HTTP: for tests, demos and bug reports.
pub mod replay;

// Comparison of two recorded answers: how their shapes differ, apart from their words.
pub mod diff;

// One request to any server as a client sends it, and everything that came back, within bounds.
pub mod exchange;

// The contract of the API as a test suite against any server.
pub mod conform;

// Examination of a running engine or gateway: its differences from the API, and their remedies.
pub mod doctor;

// HTTP server for clients and operators: listeners, routes, relaying, shutdown.
pub mod server;

// Demo without a GPU: recorded engines behind the real proxy.
pub mod demo;

// Command line: one file for each command.
pub mod cli;
